"""What is told of how a number goes over the steps: against simulated runs, and against numbers by hand."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from grpo_cli.stats.courses import course, fifths, step_effects
from grpo_cli.stats.intervals import beyond, quantile
from grpo_cli.stats.verdicts import changed, percent, unclear
from tests.support.command import facts_of, ran
from tests.support.trend_runs import KINDS, PROMPTS, STEPS, Kind, courses, drawn

RUNS = 200
# Of 200 runs, how many false claims a share of 2 or 5 % exceeds once in a thousand times.
MOST = {"no trend": 11, "no trend, shocks": 21}


@pytest.mark.parametrize("recur", [True, False], ids=["recurring", "new"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", [*MOST])
def test_runs_without_a_trend_are_hardly_ever_told_as_one(name: str, steps: int, *, recur: bool) -> None:
    found = courses(RUNS, steps, KINDS[name], 1, recur=recur)
    assert sum(one.shape not in {"none", "few"} for one in found) <= MOST[name]


@pytest.mark.parametrize(
    ("steps", "kind", "shape", "least"),
    [
        (40, "+0.1", "line", 170),
        (40, "+0.2", "line", 198),
        (40, "peak of 0.2", "turn", 90),
        (20, "collapse by 0.4", "end", 190),
    ],
)
def test_runs_that_rise_turn_or_collapse_are_told_so(steps: int, kind: str, shape: str, least: int) -> None:
    shapes = Counter(one.shape for one in courses(RUNS, steps, KINDS[kind], 2, recur=True))
    assert shapes[shape] >= least  # type: ignore[index] # a literal


def test_within_prompts_a_rise_is_found_that_the_means_of_steps_hide() -> None:
    shapes = [Counter(one.shape for one in courses(RUNS, 40, KINDS["+0.1"], 3, recur=recur)) for recur in (True, False)]
    assert shapes[0]["line"] > 1.5 * shapes[1]["line"]


def test_the_early_and_the_late_steps_never_differ_against_what_is_told() -> None:
    """The means of the first and the last fifth, on the prompts of both, beside the direction of the claim."""
    random = np.random.default_rng(4)
    for rise in np.linspace(-0.2, 0.2, 60):
        run = drawn(20, Kind(rise=rise, shocks=True), random, recur=True)
        told = course(run.steps, run.means, range(20), run.prompts)
        assert told is not None
        if told.shape == "line":
            early, late = run.steps < 4, run.steps >= 16
            both = np.intersect1d(run.prompts[early], run.prompts[late])
            changes = [
                run.means[late & (run.prompts == p)].mean() - run.means[early & (run.prompts == p)].mean() for p in both
            ]
            apart = np.mean(changes) / (np.std(changes, ddof=1) / np.sqrt(len(changes)))
            assert apart * (told.last - told.first) > 0 or abs(apart) < 1.96


def test_the_effects_of_steps_are_those_of_least_squares() -> None:
    random = np.random.default_rng(0)
    run = drawn(12, KINDS["+0.2"], random, recur=True)
    rows = random.integers(1, 9, len(run.means)).astype(float)
    found = step_effects(run.steps, run.means, run.prompts, rows)
    design = np.hstack([np.eye(12)[run.steps], np.eye(64)[run.prompts]])
    by_hand = np.linalg.lstsq(design * np.sqrt(rows)[:, None], run.means * np.sqrt(rows), rcond=None)[0][:12]
    assert found is not None
    assert found - found.mean() == pytest.approx(by_hand - by_hand.mean())


def test_steps_that_no_prompt_links_are_not_compared_on_the_same_prompts() -> None:
    """Two halves of the run, each with prompts of its own; and two epochs in one order, whose steps go in pairs."""
    steps = np.repeat(np.arange(20), PROMPTS)
    values = np.random.default_rng(0).random(len(steps))
    prompt = np.tile(np.arange(PROMPTS), 20)
    for prompts in (prompt + PROMPTS * (steps >= 10), prompt + PROMPTS * (steps % 10)):
        told = course(steps, values, range(20), prompts)
        assert told is not None
        assert not told.same_prompts
    told = course(steps, values, range(20), prompt)
    assert told is not None
    assert told.same_prompts


def test_without_recurring_prompts_the_slope_is_tested_as_by_hand() -> None:
    """Distances from the line that alternate have no positive correlation: then Student's t of the slope is the plain one."""
    values = 0.5 + 0.01 * np.arange(16) + 0.03 * (-1.0) ** np.arange(16)
    told = course(np.arange(16), values, range(16))
    (slope, _), cov = np.polyfit(np.arange(16), values, 1, cov=True)
    half = quantile(0.01, 14) * np.sqrt(cov[0, 0])
    assert told is not None
    assert (told.change_low, told.change_high) == pytest.approx((15 * (slope - half), 15 * (slope + half)))
    assert (told.shape, told.first, told.last) == ("line", values[:3].mean(), values[-3:].mean())


def test_a_quantile_is_where_the_chance_is() -> None:
    for freedom in (1, 2, 5, 38, 97):
        for chance in (0.05, 0.01, 0.001):
            assert beyond(quantile(chance, freedom), freedom) == pytest.approx(chance)
    assert quantile(0.05, 10) == pytest.approx(2.2281, abs=1e-4)


def test_many_steps_are_tested_in_blocks_and_named_by_their_values() -> None:
    at = np.arange(1_000)
    values = np.minimum(at, 1_400 - at) / 1_000 + 0.01 * np.random.default_rng(0).normal(size=1_000)
    told = course(at, values, [10 * step for step in at])
    assert told is not None
    assert (told.shape, told.turn_from, told.turn_to) == ("turn", 6000, 7990)
    assert (told.first, told.turn) == pytest.approx((0.0995, 0.65), abs=0.01)


def test_the_fifths_of_a_run_cover_it() -> None:
    for steps in range(5, 60):
        edges = fifths(steps)
        assert edges[0] == 0
        assert edges[-1] == steps
        assert all(first < after for first, after in pairwise(edges))


def test_one_trend_has_one_pair_of_numbers_in_text_json_and_page() -> None:
    """40 steps, whose 16 prompts come from a pool of 64: adjusted for prompts, and the same everywhere."""
    run = drawn(40, KINDS["+0.2"], np.random.default_rng(5), recur=True)
    solved = np.round(run.means * 8).astype(int)
    reward = np.concatenate([np.arange(8) < k for k in solved]).astype(int)
    frame = pl.DataFrame({"prompt_id": np.repeat(run.prompts, 8), "step": np.repeat(run.steps, 8), "reward": reward})
    frame.write_ndjson("run.jsonl")
    facts = facts_of("inspect run.jsonl --group prompt_id,step --json")
    mean = facts["by"]["courses"]["mean"]
    assert mean["same_prompts"]
    pair = f"{mean['first']:.3g} to {mean['last']:.3g}"
    out = ran("inspect run.jsonl --group prompt_id,step", COLUMNS="200").out
    assert re.search(rf"^mean +[▁-▇]{{40}}  {pair}$", out, re.MULTILINE)
    assert f"the mean reward goes from {pair}" in out
    assert "on the same prompts" in out
    ran("report run.jsonl --group prompt_id,step -o run.html")
    assert f"The mean reward goes from {pair}." in Path("run.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["", " --by step", " --by env"])
def test_a_run_in_csv_which_has_no_types_has_the_trend_of_the_same_lines_of_json(option: str) -> None:
    run = drawn(20, KINDS["+0.2"], np.random.default_rng(5), recur=True)
    solved = np.round(run.means * 8).astype(int)
    reward = np.concatenate([np.arange(8) < k for k in solved]).astype(int)
    prompts = np.repeat(run.prompts, 8)
    frame = pl.DataFrame(
        {
            "prompt_id": prompts,
            "step": np.repeat(run.steps, 8),
            "env": [f"e{one % 3}" for one in prompts],
            "reward": reward,
        }
    )
    frame.write_ndjson("run.jsonl")
    frame.write_csv("run.csv")
    of_lines, of_cells = (
        facts_of(f"inspect {name} --group prompt_id,step{option}") for name in ("run.jsonl", "run.csv")
    )
    assert of_lines["by"] is not None
    for part in ("by", "steps", "environments", "verdicts"):
        assert of_cells.get(part) == of_lines.get(part)


@pytest.mark.parametrize("values", [["007", "008"], ["1", "two"], ["1e3", "2e3"]])
def test_texts_that_are_written_unlike_numbers_are_no_steps(values: list[str]) -> None:
    rows = "".join(f"p{value},{value},{k}\n" for value in values for k in range(2))
    Path("run.csv").write_text(f"prompt_id,step,reward\n{rows}")
    assert [line["value"] for line in facts_of("inspect run.csv --by step")["by"]["lines"]] == values


def test_ends_on_the_same_prompts_have_no_rounding_and_are_possible_means() -> None:
    """Prompts recur, and rates of 1/3 and 2/3 leave -4e-16 where all of the last steps are 0, and 1 - 1e-16 where all are 1."""
    random = np.random.default_rng(0)
    steps = np.repeat(np.arange(20), PROMPTS)
    prompts = np.tile(np.arange(PROMPTS), 20)
    values = random.integers(1, 3, len(steps)) / 3
    for end in (0.0, 1.0):
        values[steps >= 16] = end
        told = course(steps, values, range(20), prompts)
        assert told is not None
        assert told.same_prompts
        assert told.last == end
        assert str(told.last) != "-0.0"


def test_effects_of_steps_never_lead_out_of_the_range_of_the_values() -> None:
    """Half of the prompts are always solved, and the last steps have only these, unsolved: each is solved 1 less often than of 1/2."""
    random = np.random.default_rng(1)
    steps = np.repeat(np.arange(20), 8)
    prompts = np.concatenate([random.permutation(16)[:8] for _ in range(16)] + [np.arange(8)] * 4)
    values = np.where((prompts < 8) & (steps < 16), 1.0, 0.0)
    told = course(steps, values, range(20), prompts)
    assert told is not None
    assert told.same_prompts
    assert told.last == 0


def test_steps_that_cannot_tell_are_not_said_to_have_no_trend() -> None:
    """Rewards of -1 and 1 change by 2 at most, and waves of three steps leave all of it possible; small noise leaves little."""
    at = np.arange(12)
    waves = np.where(at // 3 % 2, 1.0, -1.0)
    told = course(at, waves, range(12))
    assert told is not None
    assert (told.shape, told.change_low, told.change_high) == ("few", -2, 2)
    random = np.random.default_rng(0)
    told = course(np.repeat(at, 100), random.choice([-1.0, 1.0], 1200), range(12))
    assert told is not None
    assert told.shape == "none"
    assert told.change_low is not None
    assert told.change_high is not None
    assert told.change_high - told.change_low < 1


def test_the_range_of_rows_is_not_that_of_their_means() -> None:
    """Steady means of 100 rows, which lie in a range narrower than any interval of theirs, have no trend."""
    random = np.random.default_rng(0)
    means = random.binomial(100, 0.5, 12) / 100
    told = course(np.arange(12), means, range(12), rows=np.full(12, 100.0))
    assert told is not None
    assert told.shape == "none"


def test_a_jump_carries_the_steps_of_its_own_numbers() -> None:
    """20 steps at 1/2, of which the last two are 0, beside a length that grows: the ends of the run are those of the length alone."""
    at = np.arange(20)
    rows = [
        {"prompt_id": f"p{step}{group}", "step": step, "reward": int(k % 2 and step < 18), "response_length": 100 + 10 * step + 2 * k}
        for step in at.tolist()
        for group in range(4)
        for k in range(4)
    ]  # fmt: skip
    pl.DataFrame(rows).write_ndjson("run.jsonl")
    said = facts_of("inspect run.jsonl")["verdicts"]
    assert "Over 20 steps, the mean reward falls from 0.5 (steps 0 to 17) to 0 in the last 2 steps and the share of groups without a gradient rises from 0% (steps 0 to 17) to 100% in the last 2 steps." in said  # fmt: skip
    assert "Over 20 steps, the mean length goes from 118 to 278 (steps 0 to 3 against 16 to 19)." in said


def test_what_nobody_can_tell_is_said_so_with_points_without_an_exponent() -> None:
    at = np.arange(12)
    rows = [
        {"prompt_id": f"p{step}", "step": step, "reward": 2 * int(k % 2 if step % 3 else step // 3 % 2) - 1}
        for step in at.tolist()
        for k in range(2)
    ]
    pl.DataFrame(rows).write_ndjson("run.jsonl")
    said = " ".join(facts_of("inspect run.jsonl")["verdicts"])
    assert "12 steps cannot tell whether the " in said
    assert "e+" not in said
    level = course(np.arange(12), np.tile([0.0, 1.0], 6), range(12))
    assert level is not None
    assert (level.shape, unclear(level, percent)) == ("few", "50% at first and at last")
    assert changed(1.1, percent) == "+110 points"


def test_groups_without_a_gradient_of_one_kind_have_one_share() -> None:
    rows = [{"prompt_id": f"p{at}", "reward": int(k % 2 and at > 1)} for at in range(8) for k in range(2)]
    pl.DataFrame(rows).write_ndjson("run.jsonl")
    (said,) = [line for line in facts_of("inspect run.jsonl")["verdicts"] if "no gradient" in line]
    assert said.startswith("25% of groups have no gradient, all never solved.")


def test_one_odd_step_is_no_jump_of_the_steps_beside_it() -> None:
    """40 steps at 5 %, of which the last but one is at 63 % and the last at 13 %; two steps at 38 % are a jump."""
    values = 0.05 + 0.03 * np.random.default_rng(0).uniform(-1, 1, 40)
    shapes = []
    for last in ((0.63, 0.13), (0.38, 0.37)):
        told = course(np.arange(40), np.append(values[:-2], last), range(40))
        assert told is not None
        shapes.append((told.shape, told.end_steps))
    assert shapes == [("none", 0), ("end", 2)]


@pytest.mark.parametrize("column", ["masked", "is_correct"])
def test_false_and_true_are_no_steps(column: str) -> None:
    rows = [{"prompt_id": f"p{at}", column: at > 3, "reward": int(k < at % 3)} for at in range(8) for k in range(2)]
    pl.DataFrame(rows).write_ndjson("run.jsonl")
    facts = facts_of(f"inspect run.jsonl --by {column}")
    assert not facts["by"]["courses"]
    assert not [line for line in facts["verdicts"] if line.startswith("Over ") or "at last" in line]
