"""`--rows`: rows that do not meet a condition stay in the file, and change nothing for the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from tests.support.command import adv
from tests.support.drawn import examples, some
from tests.support.jobs import look, refused, write
from tests.support.schema_files import WRITERS

Row = dict[str, Any]


def statuses(frame: Any, *rows: str) -> list[int]:
    """The places of the rows that are left out of their groups."""
    found = grpo_cli.compute(frame, rows=list(rows)).status
    return [at for at, status in enumerate(found) if status == "left-out"]


# --- what a condition means -------------------------------------------------------------------------------------

# The condition, and the same in Python.
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "step >= 2": lambda row: row["step"] >= 2,
    "1 <= step < 3": lambda row: 1 <= row["step"] < 3,
    "env == 'math'": lambda row: row["env"] == "math",
    "env != 'math' and step != 1": lambda row: row["env"] != "math" and row["step"] != 1,
    "kind is null": lambda row: row["kind"] is None,
    "kind is not null or step == 0": lambda row: row["kind"] is not None or row["step"] == 0,
    "not kind == 'oom'": lambda row: row["kind"] != "oom",
    "kind != 'oom'": lambda row: row["kind"] is not None and row["kind"] != "oom",
    "score > 0.25": lambda row: row["score"] is not None and row["score"] > 0.25,
    "-score < step": lambda row: row["score"] is not None and -row["score"] < row["step"],
    "score is null and step > -1": lambda row: row["score"] is None,
    "ok == true": lambda row: row["ok"],
    "ok == false or env > 'code'": lambda row: not row["ok"] or row["env"] > "code",
    "reward < step": lambda row: row["reward"] < row["step"],
    "env == kind": lambda row: row["env"] == row["kind"],
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "prompt_id": st.sampled_from("abc"),
            "reward": st.sampled_from([0.0, 0.5, 1.0]),
            "step": st.integers(0, 3),
            "env": st.sampled_from(["math", "code"]),
            "kind": st.sampled_from([None, "oom", "math"]),
            "score": st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.5]),
            "ok": st.booleans(),
        }
    ),
    max_size=8,
)
# Rows that make every column have a value, and every condition hold for one of them and not for another.
BOTH: list[Row] = [
    {"prompt_id": "a", "reward": 0.0, "step": 0, "env": "code", "kind": None, "score": None, "ok": False},
    {"prompt_id": "a", "reward": 1.0, "step": 2, "env": "math", "kind": "math", "score": 0.5, "ok": True},
    {"prompt_id": "a", "reward": 1.0, "step": 1, "env": "math", "kind": "oom", "score": 1.5, "ok": False},
    {"prompt_id": "a", "reward": 0.5, "step": 3, "env": "code", "kind": "math", "score": 0.0, "ok": True},
]
KEY: Any = {"group": "prompt_id", "group_within": "input"}


@pytest.mark.parametrize("suffix", ["frame", ".jsonl", ".csv", ".parquet", ".json"])
@pytest.mark.parametrize("text", some(dict.fromkeys(CONDITIONS), 8))
@given(drawn=ROWS)
@examples(4)
def test_others_get_what_they_get_in_a_file_of_the_rows_that_meet_it(
    text: str, suffix: str, drawn: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [*BOTH, *drawn]
    meets = [CONDITIONS[text](row) for row in rows]
    table: Any = pl.DataFrame(rows)
    if suffix != "frame":
        table = write(tmp_path_factory.mktemp("rows") / f"x{suffix}", rows)
    found = grpo_cli.compute(table, rows=text, **KEY)
    assert [status != "left-out" for status in found.status] == meets
    alone = grpo_cli.advantages(pl.DataFrame([row for row, yes in zip(rows, meets, strict=True) if yes]), **KEY)
    assert found.advantages.filter(pl.Series(meets)).to_list() == alone.to_list()
    assert found.advantages.filter(~pl.Series(meets)).to_list() == [None] * meets.count(False)


MIXED: list[tuple[Sequence[Any], str, list[int]]] = [
    ([1, "1", None, 2.0], "x == 1", [1, 2, 3]),
    ([1, "1", None, 2.0], "x == '1'", [0, 2, 3]),
    ([1, "1", None, 2.0], "x != 1", [0, 1, 2]),
    ([1, "1", None, 2.0], "x is null", [0, 1, 3]),
    ([1, "1", None, 2.0], "x == '1' or x > 1", [0, 2]),
    ([True, 1, "true", 0], "x == true", [2, 3]),
    ([2**63, 2**63 + 1, 2**64, 5], f"x == {2**63 + 1}", [0, 2, 3]),
    ([2**53, 2**53 + 1, 5, 6], f"x == {2**53 + 1}", [0, 2, 3]),
    ([{"a": 1}, {"a": None}, {}, None], "x.a is null", [0]),
    ([{"a": 1}, {"a": None}, {}, None], "x is null", [0, 1, 2]),
    ([{"a": {"b": "u"}}, {"a": {"b": 'it\'s "v"'}}, {}, None], "x.a.b > 't'", [1, 2, 3]),
    ([{"a-b": 1}, {"a-b": 2}, {}, None], "`x.a-b` < 2", [1, 2, 3]),
    (['q"1', "q\\2", "q3", ""], "x == 'q\"1' or x == ''", [1, 2]),
    ([[], None, [1], []], "x is not null", [1]),
    ([0.5, float("nan"), 1, None], "x is null", [0, 2]),
    ([0.5, float("nan"), 1, None], "x < 2", [1, 3]),
]


@pytest.mark.parametrize(("values", "text", "places"), MIXED)
def test_a_value_of_another_type_meets_no_comparison(values: Sequence[Any], text: str, places: list[int]) -> None:
    rows = [{"prompt_id": "a", "reward": i, "x": value} for i, value in enumerate(values)]
    path = Path("x.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert statuses(path, text) == places


def test_a_cell_of_csv_is_a_number_a_text_and_nothing_if_it_is_empty() -> None:
    path = Path("x.csv")
    path.write_text("prompt_id,reward,x\na,1,3\na,2,3.0\na,3,n/a\na,4,\na,5,true\n")
    assert statuses(path, "x == 3") == [2, 3, 4]
    assert statuses(path, "x == '3'") == [1, 2, 3, 4]
    assert statuses(path, "x is not null") == [3]
    assert statuses(path, "x == 1 or x == 'n/a'") == [0, 1, 3]
    path.write_text("prompt_id,reward,x\na,1,\na,2,\na,3,\n")
    assert statuses(path, "x > 1 or reward >= 2") == [0]


def test_a_time_is_compared_as_it_is_written() -> None:
    days = pl.DataFrame({"prompt_id": ["a"] * 3, "reward": [0, 1, 2], "day": [date(2026, 1, d) for d in (9, 10, 11)]})
    assert statuses(days, "day >= '2026-01-10'") == [0]
    assert statuses(days.with_columns(pl.col("day").cast(pl.Datetime("ms"))), "day < '2026-01-10T12'") == [2]


def test_a_column_of_nulls_is_of_every_type() -> None:
    frame = pl.DataFrame({"prompt_id": ["a"] * 3, "reward": [0, 1, 2], "env": ["x", "y", "z"], "kind": [None] * 3})
    for dtype in (pl.Null, pl.String, pl.Int64):
        assert statuses(frame.with_columns(pl.col("kind").cast(dtype)), "env == kind or reward > 0") == [0]
        assert statuses(
            frame.with_columns(pl.col("kind").cast(dtype)), "kind >= reward or kind == kind or env > 'x'"
        ) == [0]


def test_of_several_conditions_a_row_has_to_meet_all() -> None:
    frame = pl.DataFrame({"prompt_id": ["a"] * 4, "reward": [0, 1, 2, 3], "x": [1, 2, 3, 4]})
    assert statuses(frame, "x > 1", "x < 4") == [0, 3]


# --- layouts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", some(sorted(WRITERS), 2))
def test_the_rows_of_every_layout_can_be_asked_for_their_reward(name: str, tmp_path: Path) -> None:
    written = WRITERS[name](tmp_path)
    before = look(written.path, **written.flags)
    prefix = before.narrow.tables[0].prefix
    rewards = before.narrow.table["reward.0"]
    bar: Any = rewards.filter(rewards.is_finite()).median()
    meets = (rewards >= bar).fill_null(value=False) & rewards.is_not_nan().fill_null(value=False)
    out = before.scored.rows[".status"].cast(pl.String) == "left-out"
    found = look(written.path, rows=[f"`{prefix}{before.narrow.reward_names[0]}` >= {bar}"], **written.flags)
    assert (found.scored.rows[".status"].cast(pl.String) == "left-out").to_list() == (out | ~meets).to_list()


# --- files that lack a column ---------------------------------------------------------------------------------------


def in_files(folder: Path, *, late: bool) -> Path:
    """Two files, of which one has a row with `failure`, far behind its head."""
    for which in "ab":
        rows = [{"prompt_id": f"{which}{i // 2}", "reward": i % 2} for i in range(2000)]
        if late and which == "b":
            rows[1900]["failure"] = "oom"
        write(folder / f"{which}.jsonl", rows)
    return folder


def test_a_column_that_one_row_of_one_file_has_is_null_in_all_others(tmp_path: Path) -> None:
    done = adv(f"compute {in_files(tmp_path, late=True)} --rows 'failure is null' --json -o out/")
    facts = json.loads(done.out)
    assert facts["left_out"] == 1
    assert facts["marks"] == [{"kind": "left_out", "mark": "--rows failure is null", "reason": "", "rows": 1}]


def test_a_column_that_no_row_has_is_an_error_with_near_names(tmp_path: Path) -> None:
    assert "no column 'rewrd'; did you mean 'reward'" in refused(in_files(tmp_path, late=False), rows=["rewrd is null"])
    nested = pl.DataFrame({"prompt_id": ["a", "a"], "reward": [0, 1], "info": [{"kind": "x"}, {"kind": "y"}]})
    with pytest.raises(DataError, match=r"no column 'info\.knd'"):
        grpo_cli.compute(nested, rows="info.knd is null")


def test_a_stream_takes_it_group_by_group() -> None:
    rows = [{"p": i // 2, "reward": i % 2, **({"failure": "oom"} if i == 4 else {})} for i in range(6)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    flags = "compute --stream - --group p -o - --scale none --rows"
    done = adv(flags, "failure is null", stdin=text)
    assert [row["advantage"] for row in done.rows] == [-0.5, 0.5, -0.5, 0.5, None, 0.0]
    assert "1 left out of their groups (--rows failure is null)" in done.err
    assert "every row is left out of its group" in adv(flags, "failure == 'x'", stdin=text).err


# --- what is said -----------------------------------------------------------------------------------------------------

FRAME = pl.DataFrame(
    {
        "prompt_id": ["a", "a", "b", "b", "c", "c"],
        "reward": [0, 1, 0, 1, 0, 1],
        "step": [1, 1, 2, 2, 3, 3],
        "env": ["x"] * 6,
    }
)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("step > 3", r"no row of 6 meets rows step > 3; a comparison with null is not met"),
        ("step == 'x'", r"rows step == 'x': step is no text in any row \(1, 2, 3\); texts stand in quotes"),
        ("env > 1", r"rows env > 1: env is no number in any row \(x\); texts stand in quotes"),
        ("env == step", "compares numbers with texts"),
    ],
)
def test_a_condition_that_no_row_can_meet_is_refused(rows: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        grpo_cli.compute(FRAME, rows=rows)


@pytest.mark.parametrize(
    "text", ["step == null", "null < step", "step is 3", "null is null", "step is null is null", "1 < step < null"]
)
def test_null_is_asked_for_with_is(text: str) -> None:
    with pytest.raises(UsageError, match="asks nothing; write NAME is null, or NAME is not null"):
        grpo_cli.compute(FRAME, rows=text)


def test_what_names_no_column_or_compares_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="'1 < 2' names no column; a condition compares columns of a row"):
        grpo_cli.compute(FRAME, rows="1 < 2")
    with pytest.raises(UsageError, match="'step' compares nothing; a condition compares columns of a row"):
        grpo_cli.compute(FRAME, rows="step")


def test_a_condition_that_every_row_meets_is_noted() -> None:
    path = write("x.jsonl", FRAME.to_dicts())
    assert look(path, rows=["step > 0"]).facts["warnings"] == ["every row meets --rows step > 0"]
    assert look(path, rows=["step > 1"]).facts["warnings"] == []


def test_groups_without_a_row_that_meets_it_are_not_chosen() -> None:
    path = write("x.jsonl", FRAME.to_dicts())
    done = adv(f"select {path} --rows 'step > 1 and reward == 1' --limit 1 -o -")
    assert [row["prompt_id"] for row in done.rows] == ["b", "b"]
    assert "1 left out among them" in done.err
    assert "1 group (2 rows): --rows leaves out all of their rows" in " ".join(done.err.split())
    done = adv(f"export {path} --to prompts --prompt prompt_id --rows 'step > 1' -o -")
    assert [(row["prompt"], row["n"]) for row in done.rows] == [("b", 2), ("c", 2)]


@pytest.mark.parametrize("command", [["inspect"], ["compare --preset trl-grpo --preset verl-grpo"]])
def test_every_summary_counts_them(command: list[str]) -> None:
    path = write("x.jsonl", FRAME.to_dicts())
    done = adv(*command, str(path), "--rows", "step > 1")
    assert "2 left out of their groups (--rows step > 1)" in done.out


def test_a_mark_that_nothing_reads_is_still_named_beside_a_condition() -> None:
    frame = FRAME.with_columns(has_error=pl.Series([True, False] * 3))
    look_at = grpo_cli.inspect(frame, rows="step > 1")
    assert any("has_error in 2 of 4 rows" in text for text in look_at.facts["warnings"])
    look_at = grpo_cli.inspect(frame, rows="has_error == false")
    assert look_at.facts["left_out"] == 3
    assert not look_at.facts["warnings"]


def test_checks_look_at_the_rows_that_meet_it() -> None:
    again = [{"prompt_id": "a", "reward": i % 2, "step": i // 2} for i in range(6)]
    path = write("x.jsonl", [*again, {"prompt_id": None, "reward": 1, "step": 1}])
    assert "prompt_id is null" in refused(path)
    with pytest.raises(DataError, match=r"a group key \(.*\) has rows in several values of 'step'"):
        look(path, rows=["prompt_id is not null"])
    found = look(path, rows=["step == 1 and prompt_id is not null"])
    assert found.scored.rows[".advantage"].is_not_null().to_list() == [False, False, True, True, False, False, False]
    assert look(path, rows=["step == 1 and prompt_id is not null"], group_size=2, partial="keep").facts["groups"] == 4


# --- null in the conditions on groups and runs --------------------------------------------------------------------------


def test_a_condition_on_groups_and_on_runs_may_ask_for_null() -> None:
    frame = pl.DataFrame({"prompt_id": ["a", "a", "b", "b"], "reward": [0, 1, None, 1], "step": [1, 1, 2, 3]})
    kept = grpo_cli.select(
        frame, where="step is null", missing="exclude", group="prompt_id", group_within="input"
    ).frame
    assert kept["prompt_id"].to_list() == ["b", "b"]
