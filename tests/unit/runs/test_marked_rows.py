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
from grpo_cli.options.resolve import plan_of
from tests.support.battery import Row, rows_of
from tests.support.command import adv
from tests.support.drawn import examples, some
from tests.support.jobs import rows_of as rows_in
from tests.support.jobs import write
from tests.support.schema_files import lines

OUT = "failed"
HIDDEN = "masked"
LEFT_OUT = f"mark={OUT}"
MASKED = f"mark={HIDDEN}"
MARKS = st.sampled_from(["", "", OUT, HIDDEN])

# --- every method and preset -----------------------------------------------------------------------------------------

# Their numbers depend on the order of the groups, which is that of their first rows, whether these count or not.
BY_ORDER = {"ema", "james-stein"}
PLANS: dict[str, dict[str, str]] = {
    **{name: {"preset": name} for name, row in presets().items() if not (row.refused or row.plan.distill.coef)},
    **{
        f"{name}, {scale}": {"method": name, "scale": scale}
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


def bits(frame: pl.DataFrame, options: Any, **marks: str) -> list[str] | str:
    """The advantages of the rows, to the last bit; the class of the error where there is one."""
    every: Any = {**options, **marks}
    if "masked_column" not in marks:
        del every["masked_rows"]
    try:
        return [repr(value) for value in grpo_cli.advantages(frame, **every)]
    except DataError as error:
        return type(error).__name__


def number(text: str) -> float:
    return float("nan") if text == "None" else float(text)


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
    kept = [value for value, counted in zip(found, counts, strict=True) if counted]
    if plan_of(
        PLANS[name]
    ).uses_batch:  # a row that is left out may be the first of its group, and groups are added up in order
        assert list(map(number, kept)) == pytest.approx(list(map(number, alone)), rel=1e-12, abs=1e-12, nan_ok=True)
    else:
        assert kept == alone
    assert {value for value, counted in zip(found, counts, strict=True) if not counted} <= {"None"}


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
    assert bits(table, options, masked_column=MASKED) == bits(table, options)


# --- files -----------------------------------------------------------------------------------------------------------

Rows = Sequence[dict[str, Any]]
REWARDED = st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0])


@st.composite
def rollouts(draw: st.DrawFn, *, several: bool = False) -> list[Any]:
    """Rows of up to five groups, some of which are marked; with `several`, a rollout may have several rows."""
    keys = draw(st.lists(st.sampled_from("abcd"), min_size=2, max_size=12))
    rows: list[Any] = []
    shared: dict[tuple[str, str], float] = {}
    for at, key in enumerate(["z", *keys, "z"]):
        mark = draw(MARKS) if key != "z" else ""
        rollout = draw(st.sampled_from("xy")) if several and key != "z" else str(at)
        reward = shared.setdefault((key, rollout), draw(REWARDED))
        tokens = [7] * draw(st.integers(0, 3))
        missing = mark == OUT and draw(st.booleans())
        rows.append({
            "key": key, "reward": None if missing else reward, "mark": mark, "run": rollout, "tokens": tokens,
            "env": "ab".find(key) < 0, "at": at,
        })  # fmt: skip
    return rows


def computed(rows: Rows, path: Path, options: str, *, stream: bool = False) -> dict[int, tuple[Any, Any, Any]] | str:
    """The advantage, status and mean of every row that is written, by its place; the error where there is one."""
    write(path, rows)
    if stream:
        done = adv(f"compute - --stream --facts {options}", stdin=path.read_text())
        return facts_of(done.rows) if done.status == 0 else done.err
    out = path.with_name(f"out{path.suffix}")
    to = "" if "--in-place" in options else f"-o {out} --force"
    done = adv(f"compute {path} {to} --facts {options}")
    if done.status:
        return done.err
    if "drop" not in options and to:
        assert adv(f"verify {out} --against {path}").status == 0
    return facts_of(rows_in(out if to else path))


def facts_of(rows: Iterable[Any]) -> dict[int, tuple[Any, Any, Any]]:
    return {row["at"]: (row["advantage"], row["advantage_status"], row["advantage_mean"]) for row in rows}


FLAGS = f"--reward reward --left-out-column {LEFT_OUT} --masked-column {MASKED}"
RULES = [
    "", "--method rloo", "--preset nemo-rl-grpo", "--preset trl-grpo", "--scale batch", "--whiten sample",
    "--zero-variance drop", "--zero-variance null", "--singleton drop", "--min-group-size 2",
]  # fmt: skip


def expected(rows: Rows, path: Path, options: str) -> dict[int, tuple[Any, Any, Any]]:
    """What the rows get in a file without marks and without the rows that are left out, with the statuses of marked rows."""
    alone = computed([row for row in rows if row["mark"] != OUT], path, options)
    assert not isinstance(alone, str), alone
    marks = {row["at"]: row["mark"] for row in rows}
    return {
        at: (value, "masked" if marks[at] == HIDDEN else status, mean) for at, (value, status, mean) in alone.items()
    }


def apart(found: Any, rows: Rows) -> tuple[Any, list[Any]]:
    """What rows that are not left out get, and what the others do."""
    assert isinstance(found, dict), found
    out = {row["at"] for row in rows if row["mark"] == OUT}
    others = {at: facts for at, facts in found.items() if at not in out}
    return others, [facts[:2] for at, facts in found.items() if at in out]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".arrow", ".json"])
@given(data=st.data())
@examples(5)
def test_a_file_gives_rows_what_they_get_without_marks(
    suffix: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    several = data.draw(st.booleans())
    rows = data.draw(rollouts(several=several))
    options = f"--group key {data.draw(st.sampled_from(RULES))} {'--rollout run' if several else ''}"
    wanted = expected(rows, folder / f"alone{suffix}", f"{options} --reward reward")
    ways = ["", "--in-place"] if "drop" not in options and suffix in {".jsonl", ".parquet"} else [""]
    for way in ways:
        found, out = apart(computed(rows, folder / f"x{suffix}", f"{options} {FLAGS} {way}"), rows)
        assert found == wanted
        assert set(out) <= {(None, "left-out")}


@given(rows=rollouts())
@examples(8)
def test_a_stream_gives_what_a_file_gives(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("stream") / "x.jsonl"
    rows = sorted(rows, key=lambda row: str(row["key"]))
    options = f"--group key {FLAGS}"
    assert computed(rows, path, options, stream=True) == computed(rows, path, options)


@given(rows=rollouts())
@examples(8)
def test_a_row_that_is_left_out_keeps_its_place_in_a_block(
    rows: Rows, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "x.jsonl"
    blocks = [{**row, "block": at // 2} for at, row in enumerate(rows)]
    named = computed(blocks, path, f"--group block --singleton zero {FLAGS}")
    assert computed(rows, path, f"--group-size 2 --partial keep --singleton zero {FLAGS}") == named


@given(rows=rollouts())
@examples(6)
def test_each_value_of_plan_by_is_as_in_a_run_of_its_own(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("parts")
    options = "--group key --singleton zero"
    plans = "--plan-by env --plan true:method=rloo --plan default:scale=none"
    # A mark that holds for every row of a part is none that holds for every row.
    alone: dict[int, Any] = {}
    for env, plan in ((True, "--method rloo"), (False, "--scale none")):
        part = [row for row in rows if row["env"] is env]
        if {row["mark"] for row in part} - {OUT}:
            alone |= expected(part, folder / "part.jsonl", f"{options} --reward reward {plan}")
    found, out = apart(computed(rows, folder / "x.jsonl", f"{options} {FLAGS} {plans}"), rows)
    assert found == alone
    assert set(out) <= {(None, "left-out")}


@given(rows=rollouts())
@examples(8)
def test_on_tokens_masked_rows_have_zeros_and_rows_that_are_left_out_nothing(
    rows: Rows, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tokens") / "x.jsonl"
    options = f"--group key --singleton zero {FLAGS}"
    values = computed(rows, path, options)
    tokens = computed(rows, path, f"{options} --per-token --tokens tokens")
    assert isinstance(values, dict)
    assert isinstance(tokens, dict)
    for row in rows:
        value = 0.0 if row["mark"] == HIDDEN else values[row["at"]][0]
        assert tokens[row["at"]][0] == (None if row["mark"] == OUT else [value] * len(row["tokens"]))


@given(rows=rollouts())
@examples(6)
def test_only_the_new_columns_have_a_row_for_every_row(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("only") / "x.jsonl"
    options = f"--group key --singleton zero {FLAGS}"
    found = computed(rows, path, options)
    assert isinstance(found, dict)
    done = adv(f"compute {path} -o - --only --facts {options}")
    assert [row["advantage"] for row in done.rows] == [found[row["at"]][0] for row in rows]


# --- episodes, with judges -------------------------------------------------------------------------------------------

KINDS = st.sampled_from(["", "", "judge", "error", "failed judge"])


@st.composite
def episodes(draw: st.DrawFn) -> list[Any]:
    """Episodes of two groups as prime-rl writes them; judges are before, after and between solvers."""
    about = {"run": {"work": {"step": 1}}, "task": {"type": "math", "key": "k"}}
    drawn = draw(st.lists(st.tuples(st.sampled_from("ab"), st.lists(KINDS, max_size=3), REWARDED), max_size=6))
    # Two groups with solvers that can be compared.
    drawn += [("a", [""], 0.0), ("a", ["judge", ""], 1.0)]
    made: list[Any] = []
    for group, kinds, reward in drawn:
        traces = [
            {
                "id": f"{len(made)}-{at}", "agent": {"name": kind or "solver", "trainable": "judge" not in kind}, "nodes": [],
                "rewards": {"correct": {"score": reward, "weight": 1.0}}, "metrics": {}, "info": {}, "errors": [],
                "ok": kind in {"", "judge"},
            }
            for at, kind in enumerate(kinds)
        ]  # fmt: skip
        made.append({"group": {"id": group}, **about, "traces": traces})
    return made


def of_traces(made: Rows, folder: Path, options: str = "") -> dict[str, tuple[Any, Any]]:
    """The advantage and status of every trace, by its id, as a list of rows has them and as the records have them."""
    path = lines(folder / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl", made)
    done = adv(f"compute {path} -o - --facts --long {options}")
    assert done.status == 0, done.err
    found = {row["id"]: (row["advantage"], row["advantage_status"]) for row in done.rows}
    assert [*found] == [trace["id"] for episode in made for trace in episode["traces"]]
    records = adv(f"compute {path} -o - --facts {options}").rows
    nested = [trace for record in records for trace in record["traces"]]
    assert [(trace["advantage"], trace["advantage_status"]) for trace in nested] == [*found.values()]
    return found


@pytest.mark.parametrize("plan", ["--preset prime-rl-grpo", "--preset prime-rl-max-rl", "--method rloo"])
@given(made=episodes())
@examples(6)
def test_judges_are_in_no_group_and_failed_traces_leave_theirs(
    plan: str, made: Rows, tmp_path_factory: pytest.TempPathFactory
) -> None:
    solvers = [
        {**episode, "traces": [t for t in episode["traces"] if t["ok"] and t["agent"]["trainable"]]} for episode in made
    ]
    found = of_traces(made, tmp_path_factory.mktemp("all"), plan)
    wanted = of_traces(solvers, tmp_path_factory.mktemp("solvers"), plan)
    for episode in made:
        for trace in episode["traces"]:
            why = "left-out" if trace["agent"]["trainable"] else "not-a-rollout"
            assert found[trace["id"]] == wanted.get(trace["id"], (None, why))


def test_where_all_traces_failed_all_are_left_out_and_where_all_are_judges_all_count() -> None:
    def trace(at: int, *, ok: bool, trainable: bool) -> Any:
        agent = {"name": "a", "trainable": trainable}
        rewards = {"r": {"score": float(at % 2), "weight": 1.0}}
        return {"id": str(at), "agent": agent, "nodes": [], "rewards": rewards, "metrics": {}, "info": {}, "ok": ok}

    about = {"group": {"id": "a"}, "run": {"work": {"step": 1}}, "task": {"type": "math", "key": "k"}}
    failed = [{**about, "traces": [trace(at, ok=False, trainable=True)]} for at in range(4)]
    assert {*of_traces(failed, Path("failed")).values()} == {(None, "left-out")}
    judges = [{**about, "traces": [trace(at, ok=True, trainable=False)]} for at in range(4)]
    assert {status for _, status in of_traces(judges, Path("judges")).values()} == {"scored"}


def test_a_group_may_have_only_rows_that_are_left_out() -> None:
    rows = [{"key": key, "reward": at % 3, "mark": OUT * (key == "b"), "at": at} for at, key in enumerate("aabbcc")]
    found = computed(
        rows, Path("x.jsonl"), f"--group key --zero-variance drop --reward reward --left-out-column {LEFT_OUT}"
    )
    assert isinstance(found, dict)
    assert [found[at] for at in (2, 3)] == [(None, "left-out", None)] * 2
    assert [found[at][1:] for at in (0, 1, 4, 5)] == [("scored", 0.5)] * 2 + [("scored", 1.5)] * 2
    assert rows_in("out.jsonl")[2]["advantage_size"] == 0
