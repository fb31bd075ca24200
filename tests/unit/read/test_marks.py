"""Rows that are marked as masked or failed: what a mark may look like, and what is said of columns that look like marks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from tests.support.command import adv
from tests.support.jobs import look, near, refused, write
from tests.support.schema_files import WRITERS


def frame(marks: Sequence[Any], **options: Any) -> pl.DataFrame:
    """Rows of one group, none of which is like another."""
    rewards = [*map(float, range(len(marks)))]
    return pl.DataFrame({"prompt_id": "a", "reward": rewards, "mark": pl.Series(marks, strict=False, **options)})


def in_file(marks: str, name: str = "mark") -> Path:
    """A list of JSON as a column of a file."""
    rows = [{"prompt_id": "a", "reward": at, name: mark} for at, mark in enumerate(json.loads(marks))]
    return write("x.jsonl", rows)


def lines(text: str) -> list[list[str]]:
    """The parts of each line, between bars."""
    return [[part.strip() for part in line.split(" | ")] for line in text.strip().splitlines()]


def marked(statuses: Iterable[Any]) -> list[int]:
    """The places of the rows that are masked."""
    return [at for at, status in enumerate(statuses) if status == "masked"]


# --- what marks a row ----------------------------------------------------------------------------------------------

# Without a value, a word for true or something that is not empty marks a row; a value those that equal it.
MARKS = r"""
[true, false, null, true]                            | mark         | 0 3
[1, 0, 0, 1]                                         | mark         | 0 3
[1.0, 0.0, NaN, -0.0]                                | mark         | 0
["true", "YES", "y", "on", "T", "1", "1.0", " True", "False", "no", "n", "off", "f", "0", "0.0", "no ", "", null] | mark | 0 1 2 3 4 5 6 7
["timed out after 60 s", "404", "", null, "nan", "None", "null"]   | mark | 0 1
[["boom"], [], null, ["a", "b"]]                     | mark         | 0 3
["[]", "[\"boom\"]", "{}", ""]                       | mark         | 1
[{"type": "Timeout"}, null, null, null]              | mark         | 0
[0.0, 1.0, 0.0, 1.0]                                 | mark=0       | 0 2
[0, 1, 0, 1]                                         | mark=0.0     | 0 2
["0", "1", "00", "x"]                                | mark=0       | 0
["1", "1.0", "007", "7"]                             | mark=1       | 0
["1", "1.0", "007", "7"]                             | mark=007     | 2
[" a", "a", "A", "\"a\""]                            | mark=a       | 1
[9007199254740992, 9007199254740993, 9007199254740994] | mark=9007199254740993 | 1
[9007199254740992, 9007199254740993, 9007199254740994] | mark=9007199254740992.0 | 0
[18446744073709551615, 18446744073709551614, 0]      | mark=18446744073709551615 | 0
[7, 8, 9]                                            | mark=+07.00  | 0
[7, 8, 9]                                            | mark=70e-1   | 0
[0.1, 0.5, 1e300, 1e23]                              | mark=0.10    | 0
[0.1, 0.5, 1e300, 1e23]                              | mark=1E300   | 2
[9007199254740992.0, 0.5]                            | mark=9007199254740992 | 0
[false, true, true]                                  | mark=0.0     | 0
[true, false, false, false]                          | mark=True    | 0
[true, false, true, true]                            | mark=0       | 1
[1, 0, 0, 0]                                         | mark=true    | 0
["timeout", "oom", null, "Timeout"]                  | mark=timeout | 0
["timeout", "oom", null, ""]                         | mark=        | 2 3
["a=b", "a", "b", ""]                                | mark=a=b     | 0
[["oom"], [], ["oom", "x"], null]                    | mark=["oom"] | 0
[1.0, NaN, 2.0, 3.0]                                 | mark=nan     | 1
"""


@pytest.mark.parametrize(("marks", "flag", "places"), lines(MARKS))
def test_a_mark_is_read_however_it_is_written(marks: str, flag: str, places: str) -> None:
    of_frame = grpo_cli.compute(frame(json.loads(marks)), masked_column=flag).status
    of_file = look(in_file(marks), masked_column=flag).scored.rows[".status"]
    assert marked(of_frame) == marked(of_file) == [*map(int, places.split())]


# Only JSON has values of several types in a column: each is read in its own.
MIXED = """
[1, "1", 1.0, "1.0", true, null, [1]]                | mark=1       | 0 1 2 4
[1, "1", 1.0, "1.0", true, null, [1]]                | mark=1.0     | 0 2 3 4
[1, "1", 1.0, "1.0", true, null, [1]]                | mark=[ 1 ]   | 6
[9007199254740993, 9007199254740992.0, "x"]          | mark=9007199254740993 | 0
["", null, 0, false]                                 | mark=        | 0 1
"""


@pytest.mark.parametrize(("marks", "flag", "places"), lines(MIXED))
def test_a_value_is_read_in_the_type_of_each_value(marks: str, flag: str, places: str) -> None:
    assert marked(look(in_file(marks), masked_column=flag).scored.rows[".status"]) == [*map(int, places.split())]


CELLS = """
1,1.0,007,7,true,True                    | mark=1    | 0 1 4 5
1,1.0,007,7,7.0,7e0                      | mark=7    | 3 4 5
1,1.0,007,7,7.0,07                       | mark=007  | 2
9007199254740993,9007199254740992,x      | mark=9007199254740993 | 0
18446744073709551615,18446744073709551614,x | mark=18446744073709551615 | 0
True,False,true                          | mark=true | 0 2
timeout,Timeout,,"timeout"               | mark=timeout | 0 3
a,,"",b                                  | mark=     | 1 2
2024-01-01,2024-01-02,x                  | mark=2024-01-01 | 0
"""


@pytest.mark.parametrize(("cells", "flag", "places"), lines(CELLS))
def test_a_cell_of_csv_is_a_text_and_a_number_if_it_is_written_as_one(cells: str, flag: str, places: str) -> None:
    text = "".join(f"a,{at},{cell}\n" for at, cell in enumerate(cells.split(",")))
    Path("x.csv").write_text(f"prompt_id,reward,mark\n{text}")
    assert marked(look("x.csv", masked_column=flag).scored.rows[".status"]) == [*map(int, places.split())]


DAY = datetime(2024, 1, 1, 10, 0, 0)  # noqa: DTZ001 - without a zone
OTHERS: list[tuple[list[Any], Any, str, str]] = [
    ([DAY.date(), date(2024, 1, 2), None], pl.Date(), "2024-01-01", "0"),
    ([DAY, DAY.replace(microsecond=500_000), None], pl.Datetime("us"), "2024-01-01T10:00:00", "0"),
    ([DAY, DAY.replace(microsecond=500_000), None], pl.Datetime("ns"), "2024-01-01 10:00:00.500", "1"),
    ([DAY.replace(hour=0), DAY, None], pl.Datetime("ms"), "2024-01-01", "0"),
    ([DAY, DAY.replace(hour=11), None], pl.Datetime("us", "UTC"), "2024-01-01T11:00:00+01:00", "0"),
    ([DAY, DAY.replace(hour=11), None], pl.Datetime("us", "UTC"), "2024-01-01 11:00:00Z", "1"),
    ([time(10), time(10, 30), None], pl.Time(), "10:30", "1"),
    ([timedelta(minutes=90), timedelta(days=2), None], pl.Duration("ms"), "PT1H30M", "0"),
    ([timedelta(minutes=90), timedelta(days=2), None], pl.Duration("us"), "2 days, 0:00:00", "1"),
    ([b"oom", b"\xff", None], pl.Binary(), "oom", "0"),
    ([b"oom", b"\xff", None], pl.Binary(), "/w==", "1"),
    ([b"oom", b"\xff", None], pl.Binary(), r"b'\xff'", "1"),
    ([Decimal("1.50"), Decimal("2.00"), None], pl.Decimal(10, 2), "1.5", "0"),
    ([0.1, 0.5, None], pl.Float32(), "0.1", "0"),
    ([2**64 - 1, 2**64 - 2, None], pl.UInt64(), str(2**64 - 1), "0"),
    (
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}, None],
        pl.Struct({"a": pl.Int64, "b": pl.String}),
        '{"b": "x", "a": 1}',
        "0",
    ),
    ([["a"], [], None], pl.List(pl.String), "[]", "1"),
]


@pytest.mark.parametrize(("values", "dtype", "written", "place"), OTHERS)
def test_a_value_is_written_as_people_see_it(values: list[Any], dtype: Any, written: str, place: str) -> None:
    frame(values, dtype=dtype).write_parquet("x.parquet")
    assert marked(look("x.parquet", masked_column=f"mark={written}").scored.rows[".status"]) == [int(place)]
    assert marked(grpo_cli.compute(pl.read_parquet("x.parquet"), masked_column=f"mark={written}").status) == [
        int(place)
    ]


WRONG: list[tuple[list[Any], Any, str, str]] = [
    ([1, 2, None], pl.Int64(), "soon", "holds numbers (1, 2, empty), and 'soon' is none"),
    ([0.5, 2.5], pl.Float64(), "soon", "holds numbers (0.5, 2.5), and 'soon' is none"),
    ([True, False], pl.Boolean(), "2", "holds true or false (true, false), and '2' is none"),
    ([DAY.date(), None], pl.Date(), "2024-13-01", "holds dates (2024-01-01, empty), and '2024-13-01' is none"),
    ([DAY, None], pl.Datetime("us"), "2024-01-01T10:00Z", "holds dates with a time (2024-01-01T10:00:00, empty)"),
    ([time(10), None], pl.Time(), "25:00", "holds times of day (10:00:00, empty)"),
    ([timedelta(1), None], pl.Duration("us"), "P", "holds durations (P1D, empty)"),
    (["a", "b"], pl.Enum(["a", "b"]), "c", "holds one of a, b (a, b), and 'c' is none"),
    ([["a"], []], pl.List(pl.String), "a", "holds lists or objects"),
    ([None, None], pl.Int64(), "soon", "holds numbers (empty), and 'soon' is none"),
]


@pytest.mark.parametrize(("values", "dtype", "written", "message"), WRONG)
def test_a_value_that_the_column_cannot_have_is_refused(
    values: list[Any], dtype: Any, written: str, message: str
) -> None:
    frame(values, dtype=dtype).write_parquet("x.parquet")
    assert message in refused("x.parquet", masked_column=f"mark={written}")


@pytest.mark.parametrize("kind", [pl.Categorical(), pl.Enum(["", "oom"]), pl.String()])
def test_a_mark_may_be_a_category(kind: Any) -> None:
    frame(["oom", "", "", "oom"], dtype=kind).write_parquet("x.parquet")
    assert marked(look("x.parquet", masked_column="mark").scored.rows[".status"]) == [0, 3]


def test_a_mark_may_be_inside_of_an_object() -> None:
    path = in_file('[{"bad": true}, {"bad": false}, {}, null]', "info")
    assert marked(look(path, masked_column="info.bad").scored.rows[".status"]) == [0]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_in_a_record_with_lists_a_mark_is_a_list_or_a_value_for_all(suffix: str) -> None:
    text = """[
        {"prompt": "a", "rewards": [1.0, 0.0, 0.5], "completions": ["x", "y", "z"], "cut": [0, 1, 0], "failed": false},
        {"prompt": "b", "rewards": [1.0, 0.0], "completions": ["x", "y"], "cut": [0, 0], "failed": true}
    ]"""
    rows = json.loads(text)
    path = write(f"x{suffix}", rows)
    seen = look(path, masked_column="cut", left_out_column="failed")
    assert [*seen.scored.rows[".status"]] == ["scored", "masked", "scored", "left-out", "left-out"]
    rows[1]["cut"] = [0, 0, 1]
    assert "cut has 3 values, rewards 2" in refused(write(f"y{suffix}", rows), masked_column="cut")


def test_the_reward_itself_may_be_the_mark() -> None:
    done = grpo_cli.compute(frame([0, 0, 0, 0]), left_out_column="reward=3")
    assert done.advantages.to_list() == pytest.approx([-1, 0, 1, None], abs=1e-5)


def test_a_row_with_two_marks_is_left_out() -> None:
    rows = frame([1, 1, 0, 0]).with_columns(failed=pl.Series(["", "oom", "oom", ""]))
    done = grpo_cli.compute(rows, masked_column="mark", left_out_column="failed")
    assert done.status.to_list() == ["masked", "left-out", "left-out", "scored"]


def test_a_judge_that_failed_is_no_rollout_even_where_failed_rows_vote() -> None:
    path = Path("traces.jsonl")
    path.write_text("""\
{"group": {"id": "g"}, "run": {"work": {"step": 1}}, "task": {"type": "math", "key": "k"}, "traces": [\
{"agent": {"name": "a", "trainable": true}, "nodes": [], "rewards": {"correct": {"score": 1.0, "weight": 1.0}}, "ok": true, "errors": []}, \
{"agent": {"name": "a", "trainable": false}, "nodes": [], "rewards": {"correct": {"score": 0.5, "weight": 1.0}}, "ok": false, "errors": []}]}
{"group": {"id": "g"}, "run": {"work": {"step": 1}}, "task": {"type": "math", "key": "k"}, "traces": [\
{"agent": {"name": "a", "trainable": true}, "nodes": [], "rewards": {"correct": {"score": 0.0, "weight": 1.0}}, "ok": false, "errors": []}, \
{"agent": {"name": "a", "trainable": false}, "nodes": [], "rewards": {"correct": {"score": 0.5, "weight": 1.0}}, "ok": true, "errors": []}]}
{"group": {"id": "g"}, "run": {"work": {"step": 1}}, "task": {"type": "math", "key": "k"}, "traces": [\
{"agent": {"name": "a", "trainable": true}, "nodes": [], "rewards": {"correct": {"score": 0.0, "weight": 1.0}}, "ok": true, "errors": []}]}
""")
    done = adv(f"compute {path} -o - --long --facts --masked-rows vote --scale none")
    statuses = [row["advantage_status"] for row in done.rows]
    assert statuses == ["scored", "not-a-rollout", "masked", "not-a-rollout", "scored"]
    assert [row["advantage"] for row in done.rows] == near([2 / 3, None, -1 / 3, None, -1 / 3])


# --- marks that say nothing ----------------------------------------------------------------------------------------


def test_in_a_stream_all_rows_of_a_block_may_be_marked() -> None:
    rows = """\
{"prompt_id":"a","reward":0,"bad":1}
{"prompt_id":"a","reward":1,"bad":1}
{"prompt_id":"b","reward":0,"bad":0}
{"prompt_id":"b","reward":1,"bad":0}
"""
    done = adv("compute - --stream --facts --group prompt_id --left-out-column bad", stdin=rows)
    assert [row["advantage_status"] for row in done.rows] == ["left-out", "left-out", "scored", "scored"]


def test_a_value_that_no_row_has_is_named() -> None:
    seen = look(in_file('["timeout", null, "oom", null]'), left_out_column="mark=timout")
    warning = "--left-out-column: mark is timout in no row; did you mean timeout? (timeout, empty, oom)"
    assert seen.facts["warnings"] == [warning]
    assert marked(seen.scored.rows[".status"]) == []
    assert seen.facts["marks"] == [{"kind": "left_out", "mark": "mark is timout", "reason": "", "rows": 0}]


@pytest.mark.parametrize("marks", ["[1, 2, 3]", "[0.5, 2]", "[null, null]", '["a", "b"]', "[7, null, []]"])
def test_a_value_that_no_row_happens_to_have_is_0_rows_and_a_warning(marks: str) -> None:
    in_file(marks)
    done = adv("compute x.jsonl -o out.jsonl --left-out-column mark=700")
    assert done.status == 0
    assert "marked         0 rows left out of their groups (mark is 700 in none)" in done.out
    assert "warning:       --left-out-column: mark is 700 in no row" in done.out
    looked = adv("inspect x.jsonl --left-out-column mark=700")
    assert "0 rows left out of their groups" in looked.out


def test_in_a_stream_a_value_that_no_row_has_is_0_rows() -> None:
    rows = '{"prompt_id":"a","reward":0,"bad":1}\n{"prompt_id":"a","reward":1,"bad":2}\n'
    rows += rows.replace('"a"', '"b"')
    words = "compute - --stream --group prompt_id --left-out-column"
    assert "0 rows left out of their groups (bad is 3 in none)" in adv(f"{words} bad=3", stdin=rows).err
    assert "2 left out of their groups (bad is 2)" in adv(f"{words} bad=2", stdin=rows).err


def test_a_mark_that_is_false_in_every_row_is_no_mistake() -> None:
    assert look(in_file("[false, false]"), masked_column="mark").facts["warnings"] == []


# --- flags and schemas ---------------------------------------------------------------------------------------------


def statuses(path: Path, options: str = "") -> list[str]:
    done = adv(f"compute {path} -o - --facts {options}")
    assert done.status == 0, done.err
    values = [row["advantage_status"] for row in done.rows]
    return [value[0] if isinstance(value, list) else value for value in values]


def test_a_flag_replaces_what_the_schema_says_of_its_column(tmp_path: Path) -> None:
    path = WRITERS["slime"](tmp_path).path
    assert statuses(path) == ["scored", "scored", "unscorable", "scored", "masked", "scored"]
    left_out = statuses(path, "--left-out-column remove_sample")
    assert left_out == ["scored", "scored", "unscorable", "scored", "left-out", "scored"]
    aborted = statuses(path, "--left-out-column status=aborted")
    assert aborted == ["scored", "scored", "unscorable", "left-out", "masked", "scored"]


# --- columns that look like marks, and are not read ----------------------------------------------------------------

UNREAD = """
[true, false, null]               | mask_sample
[1, 0, 0]                         | remove_sample
["yes", "no", "no"]               | is_masked
[0.0, 1.0, 1.0]                   | sample_loss_mask=0
["oom", null, null]               | failure_kind
["oom", "", ""]                   | failure_reason
[{"type": "Timeout"}, null, null] | error
[["boom"], [], []]                | errors
[true, false, false]              | has_error
["true", "false", "false"]        | is_truncated
["ABORT", "stop", "length"]       | finish_reason=ABORT
"""


@pytest.mark.parametrize(("marks", "flag"), lines(UNREAD))
def test_a_column_that_looks_like_a_mark_is_named_with_flags_that_read_it(marks: str, flag: str) -> None:
    name, _, _ = flag.partition("=")
    path = in_file(marks, name)
    words = flag.replace("=", " is ")
    cures = (
        f"--left-out-column {flag} leaves them out of their groups; --masked-column {flag} marks them as not trained on"
    )
    means = "mean reward 0, and 1.5 of the others"
    assert look(path).facts["warnings"] == [f"{words} in 1 of 3 rows, which count like all others ({means}): {cures}"]
    for read in (look(path, masked_column=flag), look(path, left_out_column=flag)):
        assert read.facts["warnings"] == []
        assert [line["rows"] for line in read.facts["marks"]] == [1]


OF_PEOPLE = """
[true, false, false, false]         | failed
["disk full", null, null, null]     | exception
[true, false, false, false]         | timed_out
[true, false, false, null]          | timeout
[1, 0, 0, 0]                        | crashed
[true, false, null, false]          | infra_error
[true, false, false, false]         | aborted
[true, false, false, false]         | is_error
["oom", "", "", ""]                 | failure
[true, false, false, false]         | masked
[false, true, true, true]           | ok=false
[0, 1, 1, 1]                        | valid=0
["timeout", "done", "done", "done"] | status=timeout
["Failed", "done", "done", "done"]  | status=Failed
"""


@pytest.mark.parametrize(("marks", "flag"), lines(OF_PEOPLE))
def test_marks_that_people_write_are_named_with_what_they_do_to_the_mean(marks: str, flag: str) -> None:
    """The row with the mark has the reward 0, and so has one of the three others."""
    name, _, _ = flag.partition("=")
    rows = [{"prompt_id": "a", "reward": r, name: m} for r, m in zip((0, 0, 1, 1), json.loads(marks), strict=True)]
    (warning,) = look(write("x.jsonl", rows)).facts["warnings"]
    assert warning.startswith(f"{flag.replace('=', ' is ')} in 1 of 4 rows, which count like all others")
    assert "(mean reward 0, and 0.667 of the others)" in warning
    assert f"--left-out-column {flag} leaves" in warning
    assert look(write("x.jsonl", rows), left_out_column=flag).facts["left_out"] == 1


OUTCOMES = """
[true, true, false, false]             | failed
[false, false, true, true]             | ok
[false, false, true, true]             | valid
["failed", "failed", "passed", "passed"] | status
["failed", "passed", "passed", "failed"] | status
[false, true, true, true]              | success
[false, true, true, true]              | passed
[false, true, true, true]              | solved
[false, true, true, true]              | correct
[30, 30, 60, 60]                       | timeout
["A", "B", "A", "B"]                   | valid
[200, 200, 500, 200]                   | status
"""


@pytest.mark.parametrize(("marks", "name"), lines(OUTCOMES))
def test_outcomes_and_settings_are_no_marks(marks: str, name: str) -> None:
    rows = [{"prompt_id": "a", "reward": r, name: m} for r, m in zip((0, 0, 1, 1), json.loads(marks), strict=True)]
    assert look(write("x.jsonl", rows), reward=["reward"]).facts["warnings"] == []


@pytest.mark.parametrize("name", ["ok", "valid", "success", "passed"])
def test_a_column_that_marks_the_good_rows_is_refused_as_a_mark(name: str) -> None:
    path = in_file("[true, true, false]", name)
    with pytest.raises(UsageError, match=f"would leave out the rows where {name} is true") as refused:
        look(path, left_out_column=name)
    assert f"{name}=false" in str(refused.value.cures)
    assert look(path, left_out_column=f"{name}=false").facts["left_out"] == 1


def test_a_mark_after_which_no_group_has_two_rows_is_refused() -> None:
    """Two groups of three rows, of which it leaves out all but one; a mark that leaves two rows of one group stays."""
    keys, rewards = "aaabbb", (0, 1, 0, 1, 0, 1)
    for marks, stops in (([0, 1, 1, 0, 1, 1], True), ([0, 0, 1, 0, 1, 1], False)):
        rows = [{"prompt_id": k, "reward": r, "good": m} for k, r, m in zip(keys, rewards, marks, strict=True)]
        path = write("x.jsonl", rows)
        if stops:
            with pytest.raises(DataError, match="no group has two rows after it, 2 had before"):
                look(path, left_out_column="good")
        else:
            assert look(path, left_out_column="good").facts["left_out"] == 3


SAYS_NOTHING = """
["stop", "length", "stop"]   | finish_reason
["stop", "tool_calls", null] | finish_reason
[1.0, 1.0, 1.0]              | sample_loss_mask
[0.25, 0.5, 0.0]             | error
[0.25, null, 0.5]            | error
[0, 3, 1]                    | errors
["none", null, ""]           | failure_reason
["maybe", "no", "yes"]       | is_masked
[null, null, null]           | is_truncated
[false, false, false]        | has_error
["", "", ""]                 | failure_kind
"""


@pytest.mark.parametrize(("marks", "name"), lines(SAYS_NOTHING))
def test_nothing_is_said_of_a_column_that_marks_nothing(marks: str, name: str) -> None:
    assert look(in_file(marks, name)).facts["warnings"] == []


def test_of_several_failed_ends_the_first_is_counted_and_named() -> None:
    path = in_file('["stop", "error", "abort", "error"]', "finish_reason")
    assert look(path).facts["warnings"][0].startswith("finish_reason is error in 2 of 4 rows")


def test_nothing_is_said_of_a_column_that_is_read_for_something_else() -> None:
    path = Path("x.jsonl")
    path.write_text("""\
{"prompt_id": "a", "reward": 0, "is_truncated": false, "errors": [0], "has_error": 0}
{"prompt_id": "a", "reward": 1, "is_truncated": true, "errors": [1], "has_error": 1}
{"prompt_id": "a", "reward": 2, "is_truncated": false, "errors": [2], "has_error": 0}
{"prompt_id": "a", "reward": 3, "is_truncated": false, "errors": [3], "has_error": 1}
""")
    factor = ["shape.truncated.factor=0.5"]
    found = look(path, group=["prompt_id", "has_error"], set=factor, truncated_column="is_truncated")
    assert found.facts["warnings"] == []


def test_nothing_is_said_of_a_reason_that_a_known_tool_gives_of_real_zeros() -> None:
    path = Path("out.jsonl")
    path.write_text("""\
{"responses_create_params": {}, "response": {}, "reward": 0.0, "_ng_task_index": 0, "_ng_rollout_index": 0, "failure_reason": "no_sql_extracted"}
{"responses_create_params": {}, "response": {}, "reward": 0.0, "_ng_task_index": 1, "_ng_rollout_index": 0, "failure_reason": "no_sql_extracted"}
{"responses_create_params": {}, "response": {}, "reward": 1.0, "_ng_task_index": 0, "_ng_rollout_index": 1, "failure_reason": "none"}
{"responses_create_params": {}, "response": {}, "reward": 1.0, "_ng_task_index": 1, "_ng_rollout_index": 1, "failure_reason": "none"}
""")
    assert look(path).facts["warnings"] == []


def test_nothing_is_said_of_responses_that_a_known_tool_cut_off() -> None:
    path = Path("results.jsonl")
    path.write_text("""\
{"example_id": 0, "prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "c"}], "answer": "4", "reward": 0.0, "is_truncated": false}
{"example_id": 0, "prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "c"}], "answer": "4", "reward": 1.0, "is_truncated": true}
""")
    assert look(path).facts["warnings"] == []
