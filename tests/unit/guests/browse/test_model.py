"""Which groups are shown, and in which order."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest

import grpo_cli
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.guests.browse.lines import GroupLines, ordered, rollout_lines, trend_line
from grpo_cli.guests.browse.model import FACTS, Model, commands
from grpo_cli.options.commands import command_line
from grpo_cli.options.given import Given
from grpo_cli.read.texts import Labels
from grpo_cli.render.explain import of_row
from grpo_cli.render.text import strip
from grpo_cli.runs.group_rows import rows_of_groups
from grpo_cli.runs.inspect import Job
from tests.support.jobs import write
from tests.unit.guests.browse.files import REWARDS, model, model_of, rollouts


@pytest.fixture(scope="module", params=["together.jsonl", "mixed.parquet"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The groups one after the other, and their rows in turns."""
    rows = rollouts()
    if request.param.startswith("mixed"):
        rows = sorted(rows, key=lambda row: row["length"] % 10 + 100 * (row["length"] // 10))
    return model_of(tmp_path_factory.mktemp("model"), rows, request.param)


def names(made: Model, codes: np.ndarray) -> list[str]:
    return [made.inspection.narrow.label(int(code)) for code in codes]


def code_of(made: Model, name: str) -> int:
    return names(made, np.arange(made.size)).index(name)


def test_groups_are_sorted_by_a_fact_and_equal_ones_stay_in_order(made: Model) -> None:
    assert names(made, made.shown("", "mean")) == ["easy", "alone", "graded", "mixed", "never"]
    assert names(made, made.shown("", "spread")) == ["mixed", "graded", "easy", "never", "alone"]


def test_a_condition_is_that_of_select(made: Model) -> None:
    assert {*names(made, made.shown("0 < mean < 1"))} == {"mixed", "graded"}
    assert {*names(made, made.shown("size == 2 and std == 0"))} == {"never"}
    assert names(made, made.shown("prompt_id == 'alone'")) == ["alone"]
    assert len(made.shown("mean > 5")) == 0
    with pytest.raises(UnknownName, match="meen"):
        made.shown("meen > 0")
    with pytest.raises(UsageError, match="not a condition"):
        made.shown("mean >")


@pytest.mark.parametrize("name", FACTS)
def test_every_fact_can_be_sorted_by(made: Model, name: str) -> None:
    assert sorted(made.shown("", name).tolist()) == list(range(made.size))


def test_rollouts_are_sorted_by_advantage(made: Model) -> None:
    for code, key in enumerate(names(made, np.arange(made.size))):
        rewards = [line.line.reward for line in made.rollouts(code)]
        assert rewards == sorted(REWARDS[key], reverse=True)


def test_another_plan_is_computed_from_the_rows_in_memory(made: Model) -> None:
    code = code_of(made, "mixed")
    centred = made.under(Plan.of({"estimator.name": "dr-grpo"})).rollouts(code)
    assert [line.line.advantage for line in centred] == [0.75, -0.25, -0.25, -0.25]
    whitened = made.under(Plan.of({"estimator.name": "batch-norm"})).rollouts(code)
    rewards = [reward for group in REWARDS.values() for reward in group]
    assert whitened[0].line.advantage == pytest.approx((1 - fmean(rewards)) / stdev(rewards), abs=1e-4)
    with pytest.raises(UsageError, match="the plan needs reward of the greedy answer"):
        made.under(Plan.of({"estimator.name": "remax"}))


@pytest.mark.parametrize("method", ["grpo", "rloo", "batch-norm", "maxrl", "dr-grpo"])
def test_the_arithmetic_of_a_row_ends_in_its_advantage(made: Model, method: str) -> None:
    under = made.under(Plan.of({"estimator.name": method}))
    best = under.rollouts(code_of(made, "mixed"))[0]
    inspection = under.inspection
    lines = [line.split() for line in of_row(inspection.scored.plan, inspection.narrow, best.position, 78)]
    (of_best,) = [words for words in lines if words[:1] == [f"{best.position + 1}"]]
    assert float(of_best[-2]) == pytest.approx(best.line.advantage, abs=1e-4)


@pytest.mark.parametrize("width", [24, 40, 63, 64, 90])
def test_lines_of_lists_are_as_wide_as_their_head(made: Model, width: int) -> None:
    lines = GroupLines(made, Labels(made.inspection.narrow), made.shown(""), lambda _: None)
    for prompts in ({}, dict.fromkeys(range(made.size), "what is 日本? " * 9)):
        lines.learn(prompts)
        widths = {lines.line(at, width).cell_len for at in range(len(lines))}
        assert widths == {len(lines.head(width))}
    head, rows = rollout_lines(made.rollouts(0), several=False)
    assert {len(line) for line in rows} == {len(head)}


@pytest.mark.parametrize("width", range(36, 48))
def test_columns_are_level_whatever_the_keys(tmp_path: Path, width: int) -> None:
    """A key that was one character shorter than its column moved the numbers to the left."""
    rows = [{"prompt_id": "k" * n, "reward": at} for n in range(4, 24) for at in range(2)]
    made = model_of(tmp_path, rows)
    lines = GroupLines(made, Labels(made.inspection.narrow), made.shown(""), lambda _: None)
    at = lines.head(width).index("rewards")
    for place in range(len(lines)):
        line = lines.line(place, width)
        assert line.plain[at : at + 8] == "▇▁      "
        assert line.cell_len == width


def test_a_strip_is_as_high_as_its_rewards() -> None:
    assert strip(ordered([0.0, 1.0, None, 0.5]), 8, (0.0, 1.0), "·") == "▇▄▁·"
    assert strip([1.0, 1.0, 0.0, 0.0], 2) == "▇▁"
    assert strip([3.0, None, 3.0], 3) == "▄ ▄"


def test_steps_have_a_trend() -> None:
    Path("rows.jsonl").write_text("""\
{"prompt_id": "a", "step": 0, "reward": 1}
{"prompt_id": "a", "step": 0, "reward": 0}
{"prompt_id": "b", "step": 1, "reward": 1}
{"prompt_id": "b", "step": 1, "reward": 1}
{"prompt_id": "c", "step": 2, "reward": 1}
{"prompt_id": "c", "step": 2, "reward": 1}
""")
    made = model("rows.jsonl")
    where = "step >= 1 and mean > 0"
    kept = grpo_cli.select(made.job.inputs[0], where=where, group_within="input").frame
    assert [*dict.fromkeys(kept["prompt_id"])] == names(made, made.shown(where)) == ["b", "c"]
    assert made.trend is not None
    assert trend_line(made.trend, 80, made.equal) == "step 0 to 2  mean ▁▇▇ 0.5 to 1  no gradient ▁▇▇ 0% to 100%"


def test_commands_repeat_the_view_with_quoted_values() -> None:
    given = Given(inputs=["a b.jsonl"], method="rloo", group=["x"], quiet=True, sort="std")
    assert commands(given, "select", where="mean > 0", sort="mean", show="it's") == [
        "grpo-adv browse 'a b.jsonl' --method rloo --group x --quiet --where 'mean > 0' --sort mean --show 'it'\"'\"'s'",
        "grpo-adv select 'a b.jsonl' --group x --where 'mean > 0' --output NEW_FILE",
    ]
    assert command_line("browse", Given(inputs=["a"], show="-1")) == "grpo-adv browse a --show=-1"


@pytest.mark.parametrize("order", ["together", "mixed"])
def test_a_group_has_all_rows_of_its_rollouts(order: str) -> None:
    lines = """\
{"prompt_id": "a", "trajectory_id": "a0", "turn": 0, "reward": 0, "response": "0 0"}
{"prompt_id": "a", "trajectory_id": "a0", "turn": 1, "reward": 0, "response": "0 1"}
{"prompt_id": "a", "trajectory_id": "a1", "turn": 0, "reward": 1, "response": "1 0"}
{"prompt_id": "a", "trajectory_id": "a1", "turn": 1, "reward": 1, "response": "1 1"}
{"prompt_id": "b", "trajectory_id": "b0", "turn": 0, "reward": 0, "response": "0 0"}
{"prompt_id": "b", "trajectory_id": "b0", "turn": 1, "reward": 0, "response": "0 1"}
{"prompt_id": "b", "trajectory_id": "b1", "turn": 0, "reward": 1, "response": "1 0"}
{"prompt_id": "b", "trajectory_id": "b1", "turn": 1, "reward": 1, "response": "1 1"}
""".splitlines(keepends=True)
    if order == "mixed":
        lines = lines[::2] + lines[1::2]
    Path("a.jsonl").write_text("".join(lines))
    made = Model.of(Job.of(Given(inputs=["a.jsonl"], rollout="trajectory_id")))
    a, b = rows_of_groups(made.inspection, [0, 1])
    assert len(a) == 4
    assert len(b) == 4
    assert len(made.rollouts(1)) == 4


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows.csv"])
def test_the_percentage_before_the_first_screen_ends_with_the_work_and_never_goes_back(name: str) -> None:
    said = []  # text, done, of
    if name == "rows.csv":
        Path(name).write_text("prompt_id,reward\na,1\na,0\n")
    else:
        write(name, rollouts())
    Model.of(Job(inputs=[name]), lambda text, done, of, *_: said.append((text, done, of)))
    shares = [done for _, done, _ in said]
    assert shares == sorted(shares)
    assert said[0] == ("finding files", 0, 100)
    assert said[-1] == ("grouping and computing", 70, 100)


def test_a_large_file_of_lines_is_counted_by_its_bytes() -> None:
    row = '{{"prompt_id": "p{}", "completion": "{}", "reward": 1}}\n'
    Path("rows.jsonl").write_text("".join(row.format(at // 2, "x" * 4_000) for at in range(10_000)))
    said = []
    made = Model.of(Job(inputs=["rows.jsonl"]), lambda text, *_: said.append(text))
    assert made.size == 5_000
    assert said.count("reading") > 3
