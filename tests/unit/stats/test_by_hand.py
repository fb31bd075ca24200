"""Facts whose numbers were worked out by hand, from tables that are small enough to do so again."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.read.prompt_check import SeveralPrompts
from grpo_cli.stats.correlations import correlation
from grpo_cli.stats.facts import Summary
from grpo_cli.stats.gates import Numbers
from grpo_cli.stats.trends import courses_of_lines
from grpo_cli.stats.verdicts import percent, verdicts
from tests.support.command import adv, facts_of, ran


def test_a_constant_column_has_no_correlation() -> None:
    rising = np.array([1.0, 2.0, 3.0])
    flat = np.array([0.1, 0.1, 0.1])
    assert correlation(rising, rising) == pytest.approx(1.0)
    assert correlation(rising, -rising) == pytest.approx(-1.0)
    assert correlation(rising, flat) is None
    assert correlation(rising[:1], rising[:1]) is None


# --- what is said of facts ---------------------------------------------------------------------------------

QUIET = """{
  "truncated": null, "masked_effect": null, "failed_effect": null, "environments": null,
  "rows": 100, "groups": 10, "singletons": 0, "unscorable": 0, "declared_unscorable": 0, "notes": [], "warnings": [],
  "left_out": 0, "masked": 0, "marks": [], "reward": {"mean": 0.5, "count": 100, "min": 0.0, "max": 1.0}, "group_sizes": {"min": 10, "median": 10, "max": 10},
  "zero_variance": {"share": 0.0, "groups": 0, "nearly": 0, "all_best": 0, "all_worst": 0, "other": 0}, "at_size": [],
  "components": null, "length": null, "duplicates": null, "effective_rows": 100.0, "live_rows": 100, "by": null,
  "unit": "row", "schema": null, "group_key": ["uid"], "steps": null, "plan": {"gives_equal_rewards_0": true}
}"""


def facts(text: str = "{}", **change: Any) -> Any:
    """Quiet facts with these changes, whose values are read as attributes; the reward is a column by its name."""
    values = json.loads(QUIET)
    for name, value in (json.loads(text) | change).items():
        before = values.get(name)
        values[name] = {**before, **value} if isinstance(before, dict) else value
    made = json.loads(json.dumps(values), object_hook=lambda fields: SimpleNamespace(**fields))
    made.rewards = {"reward": SimpleNamespace(zero_variance_share=0.0, weight=1, count=100, min=0.0, max=1.0)}
    made.warnings = values["warnings"]
    made.summary = made
    for trend in filter(None, (made.by, made.steps)):
        for line in trend.lines:
            line.course = None
        trend.courses = courses_of_lines(trend.lines, ("mean", "truncated", "zero_variance", "length"))
    return made


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ('{"groups": 100, "zero_variance": {"share": 0.3, "groups": 30, "all_best": 21, "all_worst": 9}}', "30% of groups have no gradient: 21% always solved, 9% never solved. Consider dropping them (--zero-variance drop) or sampling harder prompts."),
        ('{"groups": 100, "zero_variance": {"share": 0.3, "groups": 30, "all_best": 9, "all_worst": 21}}', "30% of groups have no gradient: 9% always solved, 21% never solved. Consider dropping them (--zero-variance drop) or sampling easier prompts."),
        ('{"groups": 200, "zero_variance": {"share": 0.715, "groups": 143, "all_best": 72, "all_worst": 71}}', "71.5% of groups have no gradient: 36% always solved, 35.5% never solved. Consider dropping them (--zero-variance drop)."),
        ('{"zero_variance": {"share": 0.2, "groups": 2, "all_best": 1, "all_worst": 1}}', "20% of groups have no gradient: 10% always solved, 10% never solved. Consider dropping them (--zero-variance drop)."),
        ('{"zero_variance": {"share": 1.0, "groups": 10, "all_best": 1, "all_worst": 9}}', "100% of groups have no gradient: 10% always solved, 90% never solved. Consider sampling easier prompts."),
        ('{"zero_variance": {"share": 0.3, "groups": 3, "all_best": 2, "all_worst": 1}, "plan": {"gives_equal_rewards_0": false}}', "30% of groups have equal rewards: 20% always solved, 10% never solved."),
        ('{"zero_variance": {"share": 0.25, "groups": 2, "all_best": 2, "all_worst": 0}}', "25% of the 8 groups that can be compared have no gradient, all always solved. Consider dropping them (--zero-variance drop)."),
        ('{"zero_variance": {"share": 0.4, "groups": 4, "all_best": 4, "all_worst": 0}, "at_size": [{"size": 5, "alive": 0.9, "found": "sample"}, {"size": 20, "alive": 0.7, "low": 0.66, "high": 0.74, "found": "model"}]}', "With 20 rows per group, 66% to 74% of the groups would have a gradient instead of 60%."),
        ('{"zero_variance": {"share": 0.6, "groups": 6, "all_best": 6, "all_worst": 0}, "at_size": [{"size": 20, "alive": 0.45, "low": 0.43, "high": 0.47, "found": "model"}]}', "More rows per group would hardly help: most prompts are too easy or too hard for that."),
        ('{"unscorable": 1}', "1 row (1%) has no finite reward. compute stops at them unless --missing says how to treat them."),
        ('{"unscorable": 2, "declared_unscorable": 2}', "2 rows (2%) have no finite reward. compute leaves them out, as the schema says."),
        ('{"left_out": 5, "failed": 5, "unscorable": 5, "marks": [{"kind": "left_out", "mark": "ok is false", "reason": "timeout", "rows": 5}]}', "5% of the rows are left out of their groups (ok is false: timeout 5)."),
        ('{"left_out": 50, "failed": 50, "unscorable": 75, "declared_unscorable": 50, "marks": [{"kind": "left_out", "mark": "ok is false", "reason": "", "rows": 50}], "failed_effect": {"mean": 0.5, "mean_with": 0.1667, "solve_rate": 0.5, "solve_rate_with": 0.25, "zero_variance_share": 0.5, "zero_variance_share_with": 0.5}}', "50% of the rows are left out of their groups (ok is false). With rewards of 0 for them the mean is 0.167 instead of 0.5 and the mean solve rate 25% instead of 50%."),
        ('{"masked": 4, "marks": [{"kind": "masked", "mark": "remove_sample is true", "reason": "", "rows": 4}]}', "4% of the rows are masked (remove_sample is true). Their rewards count."),
        ('{"singletons": 1}', "1 group has a single reward and nothing to compare it with: 10%."),
        ('{"singletons": 10, "group_key": ["uid"]}', "Every group has a single reward, and nothing to compare it with. If prompts were sampled several times, name the prompt's id with --group, or give --group-size N."),
        ('{"length": {"within_groups": -0.3, "rows": 100}}', "Within groups, longer responses get lower rewards (correlation -0.30): are long ones cut off, or lost in loops?"),
        ('{"duplicates": {"share": 0.05}}', "5% of the responses repeat another response of their group: is the temperature too low, or was a file read twice?"),
    ],
)  # fmt: skip
def test_each_sentence_has_its_numbers(change: str, sentence: str) -> None:
    assert sentence in verdicts(facts(change))


@pytest.mark.parametrize(
    "change",
    [
        '{"length": {"within_groups": 0.29, "rows": 1000}}',
        '{"length": {"within_groups": 0.9, "rows": 18}}',  # chance does as much with so few rows
        '{"duplicates": {"share": 0.049}}',
    ],
)
def test_what_is_within_bounds_is_not_mentioned(change: str) -> None:
    assert verdicts(facts(change)) == ["Every group that can be compared has a gradient: its rewards differ."]


EVERYWHERE = """\
0 0, 0 0 | The reward is 0 in all 4 scored rows: is the verifier right, or is every prompt too hard?
1 1, 1 1 | The reward is 1 in all 4 scored rows: is the verifier right, or is every prompt too easy?
0.5 0.5, 0.5 | The reward is 0.5 in all 3 scored rows: is the verifier right?
-1 -1, -1 -1 | The reward is -1 in all 4 scored rows: is the verifier right?
"""


@pytest.mark.parametrize("case", EVERYWHERE.splitlines())
def test_a_reward_that_is_the_same_everywhere_is_told_as_that_and_not_as_the_fault_of_the_prompts(case: str) -> None:
    groups, sentence = case.split(" | ")
    rows = [(at, float(value)) for at, group in enumerate(groups.split(", ")) for value in group.split()]
    frame = pl.DataFrame(rows, schema=["prompt_id", "reward"], orient="row")
    frame.write_csv("x.csv")
    said = grpo_cli.inspect(frame).verdicts
    assert said[0] == sentence
    assert not any("no gradient" in line or "Consider" in line for line in said)
    warned = f"no group has a gradient, as {sentence[0].lower()}{sentence[1:]}"
    assert facts_of("compute x.csv -o out.csv")["warnings"] == [warned]


def test_a_single_reward_and_one_that_varies_between_groups_are_not_the_same_everywhere() -> None:
    for groups in ([0.0], [0.0, 0.0, 1.0, 1.0]):
        frame = pl.DataFrame({"prompt_id": np.arange(len(groups)) // 2, "reward": groups})
        assert not any("verifier" in line for line in grpo_cli.inspect(frame).verdicts)


def test_one_of_several_rewards_that_is_the_same_everywhere_is_named() -> None:
    frame = pl.DataFrame({"prompt_id": [0, 0, 1, 1], "accuracy": [0, 1, 1, 0], "format": [1, 1, 1, None]})
    said = grpo_cli.inspect(frame, reward=["accuracy", "format"]).verdicts
    assert "format is 1 in every row that has it: is it computed right?" in said
    assert not any("format does not vary" in line for line in said)


def test_nearly_equal_groups_are_beside_the_share_of_equal_ones_and_not_among_them() -> None:
    """Rewards of 1e12 and more have a std, and what differs by 1 there differs by a thousandth of a billionth."""
    for step, nearly in ((1.0, "2 groups more have"), (1e-3, "2 groups more have")):
        rewards = [1e12, 1e12, 1e12, 1e12 + step, 1e12 + step, 1e12]
        frame = pl.DataFrame({"prompt_id": [0, 0, 1, 1, 2, 2], "reward": rewards})
        frame.write_csv("x.csv")
        text = ran("inspect x.csv").out
        assert "33.3% of the groups: 1 never solved\n" in text
        assert f"\n               {nearly} nearly equal rewards (relative spread <= 1e-9)\n" in text
        assert f"  std {statistics.stdev([reward - 1e12 for reward in rewards]):.4g}\n" in text
        assert "  std 0  " not in ran("compute x.csv -o out.csv --force --expr reward").out


def test_duplicates_of_a_key_that_names_no_prompt_are_not_mentioned() -> None:
    (said,) = verdicts(facts(duplicates={"share": 0.5}, warnings=[SeveralPrompts("the key names no prompt")]))
    assert "repeat" not in said


@pytest.mark.parametrize(("low", "high"), [(0.65, 0.73), (0.61, 0.9)])
def test_larger_groups_are_not_suggested_for_a_small_gain(low: float, high: float) -> None:
    """From 60 %: 9 % more, or perhaps 30 % and perhaps 1 %."""
    sizes = [{"size": 20, "alive": 0.69, "low": low, "high": high, "found": "model"}]
    text = '{"zero_variance": {"share": 0.4, "groups": 4, "all_best": 4}}'
    assert len(verdicts(facts(text, at_size=sizes))) == 1


def test_a_share_is_never_rounded_to_nothing_or_to_all() -> None:
    shares = [0.0, 0.0009, 0.001, 1 / 3, 0.999, 0.9991, 1.0]
    assert " ".join(map(percent, shares)) == "0% <0.1% 0.1% 33.3% 99.9% >99.9% 100%"


def test_the_quantities_of_a_gate_are_those_of_the_summary() -> None:
    summary = facts("""{
        "rows": 8, "rollouts": 8, "groups": 4, "batches": 1, "singletons": 1, "unscorable": 2, "left_out": 1, "masked": 1,
        "zero_variance": {"groups": 2, "share": 0.5, "nearly": 1, "all_best": 1, "all_worst": 0},
        "group_sizes": {"min": 1, "max": 3}, "reward": {"mean": 0.5, "std": 0.25, "min": 0.0, "max": 1.0},
        "advantage": {"mean": 0.5, "std": 0.25, "min": 0.0, "max": 1.0, "null": 2, "nan": 1, "zero": 4},
        "dropped_rows": 1, "skipped_rows": 3, "zero_share": 0.5
    }""")
    numbers = Numbers(Summary)
    names = "skipped_rows zero_share null_advantages nan_advantages advantage_std zero_variance_groups all_best group_size_max"
    assert [numbers.value(summary, name) for name in names.split()] == [3, 0.5, 2, 1, 0.25, 2, 1, 3]


@pytest.mark.parametrize(
    ("gate", "said"), [("skipped_rows > 0", "skipped_rows is 1"), ("zero_share > 0.3", "zero_share is 0.333333")]
)
def test_a_gate_sees_rows_without_an_advantage_of_their_own_and_zeros(gate: str, said: str, tmp_path: Path) -> None:
    """Two rows of a prompt have the advantages -0.707 and 0.707, and a single row of another has 0."""
    (tmp_path / "a.csv").write_text("prompt_id,reward\na,0\na,1\nb,1\n")
    done = adv("compute a.csv -o b.csv --fail-on", gate, cwd=tmp_path)
    assert done.status == 3
    assert said in done.err
    ran("compute a.csv -o b.csv --fail-on 'zero_share > 0.4'", cwd=tmp_path)


def steps(means: Iterable[float], length: int | None = None) -> dict[str, Any]:
    lines = []
    for step, mean in enumerate(means):
        tokens = length and length + step
        lines.append(
            {"value": step, "rows": 8, "mean": mean, "zero_variance": None, "length": tokens, "truncated": None}
        )
    return {"column": "step", "lines": lines}


def test_a_trend_within_chance_is_said_as_that() -> None:
    """Twenty steps, whose mean rises by 0.001 each, from 0.5, and is 0.1 above or below that; then 0.005."""

    def run(spread: float, count: int = 20) -> list[str]:
        means = [0.5 + step / 1000 + spread * (-1) ** step for step in range(count)]
        return verdicts(facts(by=steps(means, length=1500)))[:2]

    assert run(0.1) == [
        "Over 20 steps, the mean length goes from 1,502 to 1,518 (steps 0 to 3 against 16 to 19).",
        "No trend beyond chance in the mean reward (0.51, between -0.23 and +0.21 over the run).",
    ]
    assert "the mean reward goes from 0.502 to 0.518" in run(0.005)[0]
    few, *_ = run(0.0, 9)
    assert few == (
        "Over 9 steps, too few to tell a trend from chance, the mean reward is 0.5 at first and 0.508 at last "
        "and the mean length is 1,500 at first and 1,508 at last."
    )


def line(value: object, mean: float, rows: int = 8, zero_variance: float | None = 0.5) -> dict[str, Any]:
    known = {"value": value, "rows": rows, "groups": 20, "mean": mean, "zero_variance": zero_variance}
    return {**known, "length": None, "truncated": None}


def test_a_run_is_a_sentence() -> None:
    """Of ten steps, the first two and the last two are compared, each with its rows."""
    shares = (0.5, 0.25, 0.5, 0.75, 0.25, 0.5, 0.75, 0.25, 0.5, 0.25)
    of_steps = [line(step, step / 10, rows=8 if step else 4, zero_variance=share) for step, share in enumerate(shares)]
    told = verdicts(facts(by={"column": "step", "lines": of_steps}))
    assert told[:2] == [
        "Over 10 steps, the mean reward goes from 0.0667 to 0.85 (steps 0 to 1 against 8 to 9).",
        "No trend beyond chance in the share of groups without a gradient (44.7%, between -77 points and +61 points over the run).",
    ]
    run, *_ = verdicts(facts(by={"column": "epoch", "lines": [line(0, 0.25), line(1, 0.25)]}))
    assert run == (
        "Over 2 values of epoch, too few to tell a trend from chance, the mean reward is 0.25 for every epoch "
        "and the share of groups without a gradient is 50% for every epoch."
    )
    still, *_ = verdicts(
        facts(by={"column": "step", "lines": [line(step, 0.25, zero_variance=None) for step in range(12)]})
    )
    assert still == "Over 12 steps, no trend beyond chance in the mean reward (always 0.25)."


def test_a_peak_and_a_collapse_are_told_with_their_steps() -> None:
    wave = [0.002 * (-1) ** step for step in range(20)]
    peak = [0.4 + 0.02 * min(step, 24 - step) + wave[step] for step in range(20)]
    told, *_ = verdicts(facts(by=steps(peak)))
    assert told == (
        "Over 20 steps, the mean reward goes from 0.43 to 0.61 (steps 12 to 15) and then to 0.53 (steps 0 to 3 against 16 to 19)."
    )
    collapsed = [0.5 + wave[step] if step < 18 else 0.0 for step in range(20)]
    told, *_ = verdicts(facts(by=steps(collapsed)))
    assert told.startswith("Over 20 steps, the mean reward falls from 0.5 (steps 0 to 17) to 0 in the last 2 steps")
    risen = [0.3 + 0.02 * step + wave[step] if step < 19 else 0.0 for step in range(20)]
    told, *_ = verdicts(facts(by=steps(risen)))
    assert told.startswith(
        "Over 20 steps, the mean reward goes from 0.33 (steps 0 to 3) to 0.63 (steps 15 to 18) and then falls to 0 at the end"
    )


def test_of_categories_the_best_and_the_worst_are_named() -> None:
    def of_categories(**shares: float | None) -> dict[str, Any]:
        lines = [line(name, 0.5, zero_variance=share) for name, share in shares.items()]
        return {"column": "env", "lines": lines}

    first, *_ = verdicts(facts(by=of_categories(code=0.1, math=0.6, web=0.2, new=None)))
    assert first == "By env, 10% (code) to 60% (math) of the groups are without a gradient."
    assert "env" not in verdicts(facts(by=of_categories(code=0.5, math=0.5)))[0]
    over, by, *_ = verdicts(facts(by=of_categories(code=0.5, math=0.0), steps=steps([0.25, 0.25])))
    assert over.startswith("Over")
    assert by.startswith("By")
