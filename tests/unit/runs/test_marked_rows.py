"""Rows that are marked change nothing for the others: as if those that are left out were not there, and masked ones not marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan_parts import Whiten
from grpo_cli.engine.presets import presets
from grpo_cli.errors import DataError
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import plan_of
from tests.support.battery import Row, rows_of
from tests.support.command import facts_of as command_facts
from tests.support.command import ran
from tests.support.drawn import examples, some
from tests.support.jobs import NAN, near, write
from tests.support.jobs import rows_of as rows_in

OUT = "failed"
HIDDEN = "masked"
LEFT_OUT = f"mark={OUT}"
MASKED = f"mark={HIDDEN}"
MARKS = st.sampled_from(["", "", OUT, HIDDEN])

# --- every method and preset -----------------------------------------------------------------------------------------

# Their numbers depend on the order of the groups, which is that of their first rows, whether these count or not.
BY_ORDER = {"ema", "james-stein"}
PLANS: dict[str, Given] = {
    **{name: Given(preset=name) for name, row in presets().items() if not (row.refused or row.plan.distill.coef)},
    **{
        f"{name}, {scale}": Given(method=name, scale=scale)
        for name, method in ESTIMATORS.items()
        for scale in method.scales
        if name != "expression"
    },
}
PLANS = {name: options for name, options in PLANS.items() if plan_of(options).method not in BY_ORDER}


def options_of(name: str) -> Any:
    """The options of a plan, with the columns that it reads."""
    plan = plan_of(PLANS[name])
    columns = {ROLES[role].flag.removeprefix("--").replace("-", "_"): role for role in plan.needs}
    rewards = ["reward", "baseline"] if plan.rewards.combine == "normalize" else ["reward"]
    return {**PLANS[name], **columns, "group": ["group"], "reward": rewards, "masked_rows": "vote"}


@st.composite
def tables(draw: st.DrawFn, name: str) -> pl.DataFrame:
    """Rows, some of which are marked, and two that are not."""
    needs = [role for role in plan_of(PLANS[name]).needs if role in Row.__dataclass_fields__]
    rows = [*draw(rows_of(*needs)), Row("z", 0.0, rollout="x"), Row("z", 1.0, rollout="y", length=3)]
    marks = [draw(MARKS) for _ in rows[2:]]
    columns = [
        {**asdict(row), "kl": 0.125 * (at % 3), "truncated": at % 2, "mark": mark}
        for at, (row, mark) in enumerate(zip(rows, [*marks, "", ""], strict=True))
    ]
    return pl.DataFrame(columns).drop("rewards")


def bits(frame: pl.DataFrame, options: Any, **marks: str) -> list[float | None] | str:
    """The advantages of the rows; the class of the error where there is one."""
    every: Any = {**options, **marks}
    if "masked_column" not in marks:
        del every["masked_rows"]
    try:
        return list(grpo_cli.advantages(frame, **every))
    except DataError as error:
        return type(error).__name__


@pytest.mark.parametrize("name", some(PLANS, 10))
@given(data=st.data())
@examples(3)
def test_a_plan_gives_rows_what_they_get_in_a_file_without_those_that_are_left_out(
    name: str, data: st.DataObject
) -> None:
    table = data.draw(tables(name))
    options = options_of(name)
    counts = table["mark"] != OUT
    alone = bits(table.filter(counts), options)
    found = bits(table, options, left_out_column=LEFT_OUT)
    if isinstance(found, str):
        assert found == alone
        return
    values = pl.Series(found, dtype=pl.Float64)
    kept = values.filter(counts)
    if plan_of(PLANS[name]).uses_batch:
        # A row that is left out may be the first of its group, and groups are added up in order.
        wanted = pl.Series(alone, dtype=pl.Float64).fill_null(NAN).to_list()
        assert kept.fill_null(NAN).to_list() == near(wanted)
    else:
        assert repr(kept.to_list()) == repr(alone)
    assert values.filter(~counts).null_count() == len(values) - len(kept)


VOTING = [
    name
    for name, options in PLANS.items()
    if not any(isinstance(op, Whiten) and op.skips_masked for op in plan_of(options).post)
]


@pytest.mark.parametrize("name", some(VOTING, 10))
@given(data=st.data())
@examples(3)
def test_a_plan_gives_rows_the_same_where_masked_rows_vote_and_are_not_marked(name: str, data: st.DataObject) -> None:
    table = data.draw(tables(name))
    options = options_of(name)
    assert repr(bits(table, options, masked_column=MASKED)) == repr(bits(table, options))


# --- files -----------------------------------------------------------------------------------------------------------

Rows = Sequence[dict[str, Any]]
REWARDED = st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0])


@st.composite
def rollouts(draw: st.DrawFn, *, several: bool = False) -> list[Any]:
    """Rows of up to five groups, some of which are marked; with `several`, a rollout may have several rows."""
    keys = draw(st.lists(st.sampled_from("abcd"), min_size=2, max_size=12))
    rows = []
    shared: dict[tuple[str, str], float] = {}
    for at, key in enumerate(["z", *keys, "z"]):
        mark = draw(MARKS) if key != "z" else ""
        run = draw(st.sampled_from("xy")) if several and key != "z" else str(at)
        reward: float | None = shared.setdefault((key, run), draw(REWARDED))
        if mark == OUT and draw(st.booleans()):
            reward = None
        tokens = [7] * draw(st.integers(0, 3))
        env = key not in "ab"
        rows.append({"key": key, "reward": reward, "mark": mark, "run": run, "tokens": tokens, "env": env, "at": at})
    return rows


ByRow = dict[int, tuple[Any, Any, Any]]


def computed(rows: Rows, options: str, suffix: str = ".jsonl") -> ByRow:
    """The advantage, status and mean of every row that is written, by its place."""
    path = write(f"x{suffix}", rows)
    if "--in-place" in options:
        ran(f"compute {path} --facts {options}")
        return facts_of(rows_in(path))
    ran(f"compute {path} -o out{suffix} --force --facts {options}")
    if "drop" not in options:
        ran(f"verify out{suffix} --against {path}")
    return facts_of(rows_in(f"out{suffix}"))


def facts_of(rows: Iterable[Any]) -> ByRow:
    return {row["at"]: (row["advantage"], row["advantage_status"], row["advantage_mean"]) for row in rows}


FLAGS = f"--reward reward --left-out-column {LEFT_OUT} --masked-column {MASKED}"
RULES = """\

--method rloo
--preset nemo-rl-grpo
--preset trl-grpo
--scale batch
--whiten sample
--zero-variance drop
--zero-variance null
--singleton drop
--min-group-size 2
""".splitlines()


def expected(rows: Rows, options: str, suffix: str = ".jsonl") -> ByRow:
    """What the rows get in a file without marks and without the rows that are left out, with the statuses of marked rows."""
    wanted = computed([row for row in rows if row["mark"] != OUT], f"{options} --reward reward", suffix)
    for row in rows:
        if row["mark"] == HIDDEN and row["at"] in wanted:
            value, _, mean = wanted[row["at"]]
            wanted[row["at"]] = (value, "masked", mean)
    return wanted


def assert_given(found: ByRow, wanted: ByRow, rows: Rows) -> None:
    """Rows that are not left out get what is wanted, and the others, where they are written, nothing."""
    for row in rows:
        if row["mark"] == OUT and row["at"] in found:
            assert found.pop(row["at"])[:2] == (None, "left-out")
    assert found == wanted


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".arrow", ".json"])
@given(data=st.data())
@examples(5)
def test_a_file_gives_rows_what_they_get_without_marks(suffix: str, data: st.DataObject) -> None:
    several = data.draw(st.booleans())
    rows = data.draw(rollouts(several=several))
    options = f"--group key {data.draw(st.sampled_from(RULES))} {'--rollout run' if several else ''}"
    wanted = expected(rows, options, suffix)
    assert_given(computed(rows, f"{options} {FLAGS}", suffix), wanted, rows)
    if "drop" not in options and suffix in {".jsonl", ".parquet"}:
        assert_given(computed(rows, f"{options} {FLAGS} --in-place", suffix), wanted, rows)


@given(rows=rollouts())
@examples(8)
def test_a_stream_gives_what_a_file_gives(rows: Rows) -> None:
    rows = sorted(rows, key=lambda row: str(row["key"]))
    options = f"--group key {FLAGS}"
    of_file = computed(rows, options)
    done = ran(f"compute - --stream --facts {options}", stdin=Path("x.jsonl").read_text())
    assert facts_of(done.rows) == of_file


@given(rows=rollouts())
@examples(8)
def test_a_row_that_is_left_out_keeps_its_place_in_a_block(rows: Rows) -> None:
    blocks = [{**row, "block": at // 2} for at, row in enumerate(rows)]
    named = computed(blocks, f"--group block --singleton zero {FLAGS}")
    assert computed(rows, f"--group-size 2 --partial keep --singleton zero {FLAGS}") == named


@given(rows=rollouts())
@examples(6)
def test_each_value_of_plan_by_is_as_in_a_run_of_its_own(rows: Rows) -> None:
    options = "--group key --singleton zero"
    plans = "--plan-by env --plan true:method=rloo --plan default:scale=none"
    # A mark that holds for every row of a part is none that holds for every row.
    alone: ByRow = {}
    for env, plan in ((True, "--method rloo"), (False, "--scale none")):
        part = [row for row in rows if row["env"] is env]
        if any(row["mark"] != OUT for row in part):
            alone |= expected(part, f"{options} {plan}")
    assert_given(computed(rows, f"{options} {FLAGS} {plans}"), alone, rows)


@given(rows=rollouts())
@examples(8)
def test_on_tokens_masked_rows_have_zeros_and_the_new_columns_alone_have_every_row(rows: Rows) -> None:
    options = f"--group key --singleton zero {FLAGS}"
    values = computed(rows, options)
    only = ran(f"compute x.jsonl -o - --only --facts {options}")
    assert [row["advantage"] for row in only.rows] == [values[row["at"]][0] for row in rows]
    tokens = computed(rows, f"{options} --per-token --tokens tokens")
    for row in rows:
        value = 0.0 if row["mark"] == HIDDEN else values[row["at"]][0]
        of_tokens = None if row["mark"] == OUT else [value] * len(row["tokens"])
        assert tokens[row["at"]][0] == of_tokens


# --- episodes, with judges -------------------------------------------------------------------------------------------

KINDS = st.sampled_from(["", "", "judge", "error", "failed judge"])


def trace(name: str, kind: str, reward: float) -> Any:
    """As prime-rl writes it."""
    return {
        "id": name, "agent": {"name": kind or "solver", "trainable": "judge" not in kind}, "nodes": [],
        "rewards": {"correct": {"score": reward, "weight": 1.0}}, "metrics": {}, "info": {}, "errors": [], "ok": kind in {"", "judge"},
    }  # fmt: skip


def episode(group: str, traces: list[Any]) -> Any:
    return {
        "group": {"id": group},
        "run": {"work": {"step": 1}},
        "task": {"type": "math", "key": "k"},
        "traces": traces,
    }


@st.composite
def episodes(draw: st.DrawFn) -> list[Any]:
    """Episodes of two groups; judges are before, after and between solvers."""
    drawn = draw(st.lists(st.tuples(st.sampled_from("ab"), st.lists(KINDS, max_size=3), REWARDED), max_size=6))
    # Two groups with solvers that can be compared.
    drawn += [("a", [""], 0.0), ("a", ["judge", ""], 1.0)]
    made: list[Any] = []
    for group, kinds, reward in drawn:
        traces = [trace(f"{len(made)}-{at}", kind, reward) for at, kind in enumerate(kinds)]
        made.append(episode(group, traces))
    return made


def of_traces(made: Rows, options: str = "") -> dict[str, tuple[Any, Any]]:
    """The advantage and status of every trace, by its id, as a list of rows has them and as the records have them."""
    path = write(Path("rollouts/step_1/train/effective/traces.jsonl"), made)
    rows = ran(f"compute {path} -o - --facts --long {options}").rows
    assert [row["id"] for row in rows] == [trace["id"] for episode in made for trace in episode["traces"]]
    records = ran(f"compute {path} -o - --facts {options}").rows
    nested = [trace for record in records for trace in record["traces"]]
    assert list(map(given_to, nested)) == list(map(given_to, rows))
    return {row["id"]: given_to(row) for row in rows}


def given_to(row: Any) -> tuple[Any, Any]:
    return row["advantage"], row["advantage_status"]


@pytest.mark.parametrize("plan", ["--preset prime-rl-grpo", "--preset prime-rl-max-rl", "--method rloo"])
@given(made=episodes())
@examples(6)
def test_judges_are_in_no_group_and_failed_traces_leave_theirs(plan: str, made: Rows) -> None:
    found = of_traces(made, plan)
    wanted = {}
    for episode in made:
        for trace in episode["traces"]:
            wanted[trace["id"]] = (None, "left-out" if trace["agent"]["trainable"] else "not-a-rollout")
        episode["traces"] = [trace for trace in episode["traces"] if trace["ok"] and trace["agent"]["trainable"]]
    assert found == wanted | of_traces(made, plan)


@pytest.mark.parametrize(("kind", "status"), [("error", "left-out"), ("judge", "scored")])
def test_where_all_traces_failed_all_are_left_out_and_where_all_are_judges_all_count(kind: str, status: str) -> None:
    found = of_traces([episode("a", [trace(f"{at}", kind, at % 2)]) for at in range(4)])
    assert [of_trace[1] for of_trace in found.values()] == [status] * 4
    (path,) = Path().rglob("traces.jsonl")
    warnings = command_facts(f"inspect {path}")["warnings"]
    every = ["every row is left out of its group: ok is false in 4"]
    assert warnings == (every if kind == "error" else [])


def test_a_group_may_have_only_rows_that_are_left_out() -> None:
    Path("x.csv").write_text("key,reward,mark\na,0,\na,1,\nb,2,failed\nb,0,failed\nc,1,\nc,2,\n")
    ran(f"compute x.csv -o out.csv --facts --group key --zero-variance drop --left-out-column {LEFT_OUT}")
    rows = rows_in("out.csv")
    assert [row["advantage_status"] for row in rows] == ["scored", "scored", "left-out", "left-out", "scored", "scored"]
    assert [row["advantage_mean"] for row in rows] == [0.5, 0.5, None, None, 1.5, 1.5]
    assert rows[2]["advantage"] is None
    assert rows[2]["advantage_size"] == 0
