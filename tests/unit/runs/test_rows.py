"""`--rows`: rows that do not meet a condition stay in the file, and change nothing for the others."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from tests.support.command import adv, facts_of, ran
from tests.support.drawn import some
from tests.support.jobs import Seen, look, refused, rows_of, write
from tests.support.schema_files import WRITERS


def statuses(frame: Any, *rows: str) -> str:
    """The places of the rows that are left out of their groups, a digit each."""
    found = grpo_cli.compute(frame, rows=list(rows)).status
    return "".join(str(at) for at, status in enumerate(found) if status == "left-out")


TABLE = """\
prompt_id,reward,step,env,kind,score,ok
a,0.0,0,code,,,false
a,1.0,2,math,math,0.5,true
a,1.0,1,math,oom,1.5,false
a,0.5,3,code,code,0.0,true
a,0.0,2,math,,0.25,true
a,1.0,3,code,oom,,true
"""


# --- what a condition means -------------------------------------------------------------------------------------

# The condition, and the rows that meet it, a digit each.
CONDITIONS = """\
step >= 2 | 1345
1 <= step < 3 | 124
env == 'math' | 124
env != 'math' and step != 1 | 035
kind is null | 04
kind is not null or step == 0 | 01235
not kind == 'oom' | 0134
kind != 'oom' | 13
score > 0.25 | 12
-score < step | 1234
score is null and step > -1 | 05
ok == true | 1345
ok == false or env > 'code' | 0124
reward < step | 1345
env == kind | 13
"""


@pytest.mark.parametrize("suffix", ["frame", "jsonl", "csv", "parquet", "json"])
@pytest.mark.parametrize("case", CONDITIONS.splitlines())
def test_others_get_what_they_get_in_a_file_of_the_rows_that_meet_it(case: str, suffix: str) -> None:
    text, places = case.split(" | ")
    Path("x.csv").write_text(TABLE)
    frame = pl.read_csv("x.csv")
    if suffix not in {"frame", "csv"}:
        write(f"x.{suffix}", frame.to_dicts())
    compute: Any = partial(grpo_cli.compute, group="prompt_id", group_within="input")
    found = compute(frame if suffix == "frame" else f"x.{suffix}", rows=text)
    met = [*map(int, places)]
    counted = found.status != "left-out"
    assert counted.arg_true().to_list() == met
    assert found.advantages.gather(met).to_list() == compute(frame[met]).advantages.to_list()
    assert found.advantages.null_count() == 6 - len(met)


# The values of a column, the condition, and the rows that do not meet it.
VALUES = r"""
[1, "1", null, 2.0] | x == 1 | 123
[1, "1", null, 2.0] | x == '1' | 023
[1, "1", null, 2.0] | x != 1 | 012
[1, "1", null, 2.0] | x is null | 013
[1, "1", null, 2.0] | x == '1' or x > 1 | 02
[true, 1, "true", 0] | x == true | 23
[9223372036854775808, 9223372036854775809, 18446744073709551616, 5] | x == 9223372036854775809 | 023
[9007199254740992, 9007199254740993, 5, 6] | x == 9007199254740993 | 023
[{"a": 1}, {"a": null}, {}, null] | x.a is null | 0
[{"a": 1}, {"a": null}, {}, null] | x is null | 012
[{"a": {"b": "u"}}, {"a": {"b": "it's \"v\""}}, {}, null] | x.a.b > 't' | 123
[{"a-b": 1}, {"a-b": 2}, {}, null] | `x.a-b` < 2 | 123
["q\"1", "q\\2", "q3", ""] | x == 'q"1' or x == '' | 12
[[], null, [1], []] | x is not null | 1
[0.5, NaN, 1, null] | x is null | 02
[0.5, NaN, 1, null] | x < 2 | 13
"""


@pytest.mark.parametrize("case", VALUES.strip().splitlines())
def test_a_value_of_another_type_meets_no_comparison(case: str) -> None:
    values, text, places = case.split(" | ")
    rows = [{"prompt_id": "a", "reward": 1, "x": value} for value in json.loads(values)]
    assert statuses(write("x.jsonl", rows), text) == places


def test_a_cell_of_csv_is_a_number_a_text_and_nothing_if_it_is_empty() -> None:
    path = Path("x.csv")
    path.write_text("prompt_id,reward,x\na,1,3\na,2,3.0\na,3,n/a\na,4,\na,5,true\n")
    assert statuses(path, "x == 3") == "234"
    assert statuses(path, "x == '3'") == "1234"
    assert statuses(path, "x is not null") == "3"
    assert statuses(path, "x == 1 or x == 'n/a'") == "013"
    path.write_text("prompt_id,reward,x\na,1,\na,2,\na,3,\n")
    assert statuses(path, "x > 1 or reward >= 2") == "0"


@pytest.mark.parametrize(
    "name",
    ["\ufb01eld", "field", "\u00b5s", "\u03bcs", "cafe\u0301", "caf\u00e9", "null", "true", "name_0_of_condition"],
)
def test_a_name_is_that_column_and_no_other(name: str) -> None:
    others = [
        "\ufb01eld",
        "field",
        "\u00b5s",
        "\u03bcs",
        "cafe\u0301",
        "caf\u00e9",
        "null",
        "true",
        "name_0_of_condition",
    ]
    frame = pl.DataFrame({"prompt_id": ["a"] * 3, "reward": [0, 1, 2], **{other: [9, 9, 9] for other in others}})
    frame = frame.with_columns(pl.Series(name, [0, 1, 2]))
    bare = name not in {"null", "true"}
    for written in (f"`{name}`", name)[: 1 + bare]:
        assert statuses(frame, f"{written} >= 1") == "0"
    assert statuses(frame, f"`{name}` is not null") == ""
    by_name = grpo_cli.inspect(frame.with_columns(pl.Series(name, ["a", "a", "b"])), group=name)
    assert (by_name.facts["group_key"], by_name.facts["groups"]) == ([name], 2)


EMPTY = """\
x is null | 014
x is not null | 23
x != 'b' | 2
x < 'b' | 2
x <= 'b' | 23
not x == 'b' | 0124
n is null | 01
n >= 0 | 234
"""


@pytest.mark.parametrize("case", EMPTY.splitlines())
def test_an_empty_cell_of_csv_is_null_with_quotes_or_without(case: str) -> None:
    text, places = case.split(" | ")
    Path("x.csv").write_text('prompt_id,reward,x,n\na,1,"",\na,2,,""\na,3,a,1\na,4,"b",2\na,5,"","3"\n')
    assert statuses("x.csv", text) == "".join(sorted({*"01234"} - {*places}))


def test_an_empty_cell_is_null_in_every_command() -> None:
    Path("x.csv").write_text('prompt_id,reward,x\na,1,""\na,2,\na,3,b\nb,1,""\nb,0,"c"\n')
    Path("scores.csv").write_text('id,score\nb,1\nc,""\n')
    done = adv("compute x.csv -o out.csv", "--rows", "x == ''")
    assert "no row of 5 meets" in done.err
    assert "null, as an empty cell of CSV is, is not met" in done.err
    assert adv("compute x.csv -o out.csv", "--rows", "x == '' or x == 'b'", "-q").status == 0
    assert [row["advantage"] for row in rows_of("out.csv")] == [None, None, 0, None, None]
    by = facts_of("inspect x.csv --by x --json")["by"]["lines"]
    assert [(line["value"], line["rows"]) for line in by] == [("b", 1), ("c", 1), (None, 3)]
    ran("add x.csv --from scores.csv --on x=id -o added.csv")
    assert [row["score"] for row in rows_of("added.csv")] == [None, None, 1, None, None]
    Path("keys.csv").write_text('prompt_id,reward\n"",1\n"",0\n')
    assert "prompt_id is null or missing" in adv("compute keys.csv").err


def test_an_empty_key_that_a_conversion_makes_null_is_told() -> None:
    write("x.jsonl", [{"prompt_id": "", "reward": 1}, {"prompt_id": "", "reward": 0}])
    warning = "x.csv: prompt_id is an empty text in some rows, and an empty cell is read as null"
    assert facts_of("compute x.jsonl -o x.csv")["warnings"] == [f"{warning}; the format of the input keeps it"]
    assert facts_of("compute x.jsonl -o x.parquet")["warnings"] == []


def test_a_time_is_compared_as_it_is_written() -> None:
    days = pl.read_csv(b"prompt_id,reward,day\na,0,2026-01-09\na,1,2026-01-10\na,2,2026-01-11\n")
    day = pl.col("day").str.to_date()
    assert statuses(days.with_columns(day), "day >= '2026-01-10'") == "0"
    assert statuses(days.with_columns(day.cast(pl.Datetime("ms"))), "day < '2026-01-10T12'") == "2"


@pytest.mark.parametrize("dtype", [pl.Null, pl.String, pl.Int64])
def test_a_column_of_nulls_is_of_every_type(dtype: Any) -> None:
    frame = pl.read_csv(b"prompt_id,reward,env\na,0,x\na,1,y\na,2,z\n")
    frame = frame.with_columns(pl.lit(None, dtype).alias("kind"))
    assert statuses(frame, "env == kind or reward > 0") == "0"
    assert statuses(frame, "kind >= reward or kind == kind or env > 'x'") == "0"


def test_of_several_conditions_a_row_has_to_meet_all() -> None:
    frame = pl.read_csv(b"prompt_id,reward,x\na,0,1\na,1,2\na,2,3\na,3,4\n")
    assert statuses(frame, "x > 1", "x < 4") == "03"


def left_out(seen: Seen) -> pl.Series:
    return seen.scored.rows[".status"].cast(pl.String) == "left-out"


GROUPS = '{"prompt_id": 1, "reward": 0}\n{"prompt_id": 1, "reward": 1}\n' * 1000


# --- layouts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", some(sorted(WRITERS), 2))
def test_the_rows_of_every_layout_can_be_asked_for_their_reward(name: str, tmp_path: Path) -> None:
    written = WRITERS[name](tmp_path)
    before = look(written.path, **written.flags)
    column = before.narrow.tables[0].prefix + before.narrow.reward_names[0]
    rewards = before.narrow.table["reward.0"]
    bar: Any = rewards.filter(rewards.is_finite()).median()
    meets = (rewards.fill_nan(None) >= bar).fill_null(value=False)
    found = look(written.path, rows=[f"`{column}` >= {bar}"], **written.flags)
    out = left_out(before) | ~meets
    assert left_out(found).to_list() == out.to_list()


# --- files that lack a column ---------------------------------------------------------------------------------------


def test_a_column_that_one_row_of_one_file_has_is_null_in_all_others() -> None:
    """It is far behind the head of the file."""
    Path("in").mkdir()
    Path("in/a.jsonl").write_text(GROUPS)
    Path("in/b.jsonl").write_text(GROUPS.replace("1,", "2,") + '{"prompt_id": 2, "reward": 0, "failure": "oom"}\n')
    facts = facts_of("compute in --rows 'failure is null' -o out/")
    assert facts["left_out"] == 1
    assert facts["marks"] == [{"kind": "left_out", "mark": "--rows failure is null", "reason": "", "rows": 1}]


def test_a_column_that_no_row_has_is_an_error_with_near_names() -> None:
    Path("a.jsonl").write_text(GROUPS)
    assert "no column 'rewrd'; did you mean 'reward'" in refused("a.jsonl", rows=["rewrd is null"])
    nested = pl.read_ndjson(b'{"prompt_id": "a", "reward": 0, "info": {"kind": "x"}}\n' * 2)
    with pytest.raises(DataError, match=r"no column 'info\.knd'"):
        grpo_cli.compute(nested, rows="info.knd is null")


def test_a_stream_takes_it_group_by_group() -> None:
    text = """\
{"p": 0, "reward": 0}
{"p": 0, "reward": 1}
{"p": 1, "reward": 0, "failure": "oom"}
{"p": 1, "reward": 1}
"""
    flags = "compute --stream - --group p -o - --scale none --rows"
    done = adv(flags, "failure is null", stdin=text)
    assert [row["advantage"] for row in done.rows] == [-0.5, 0.5, None, 0.0]
    assert "1 left out of their groups (--rows failure is null)" in done.err
    assert "every row is left out of its group" in adv(flags, "failure == 'x'", stdin=text).err


# --- what is said -----------------------------------------------------------------------------------------------------

FRAME = pl.read_csv(b"prompt_id,reward,step,env\na,0,1,x\na,1,1,x\nb,0,2,x\nb,1,2,x\nc,0,3,x\nc,1,3,x\n")


# As slime writes it.
ROW = {"prompt": "p", "response": "r", "response_length": 7, "label": "4", "status": "completed", "remove_sample": True}


NEVER_MET = """\
step > 3 | no row of 6 meets rows step > 3; a comparison with null is not met
step == 'x' | rows step == 'x': step is no text in any row (1, 2, 3); texts stand in quotes
env > 1 | rows env > 1: env is no number in any row (x); texts stand in quotes
env == step | compares numbers with texts
"""


@pytest.mark.parametrize("case", NEVER_MET.splitlines())
def test_a_condition_that_no_row_can_meet_is_refused(case: str) -> None:
    rows, says = case.split(" | ")
    with pytest.raises(DataError, match=re.escape(says)):
        grpo_cli.compute(FRAME, rows=rows)


COMMANDS = """\
compute x.jsonl -o out.jsonl
compute x.jsonl -o out.jsonl --plan-by env --plan x:method=rloo
inspect x.jsonl
select x.jsonl --where 'size > 0' -o out.jsonl
export x.jsonl --to prompts --prompt prompt_id -o out.jsonl
compare x.jsonl --preset trl-grpo --preset verl-grpo
report x.jsonl -o out.html
audit x.jsonl --column step
"""


@pytest.mark.parametrize("command", COMMANDS.splitlines())
def test_a_condition_and_a_mark_that_leave_no_row_together_are_refused_with_the_count_of_each(command: str) -> None:
    FRAME.with_columns(failed=pl.col("reward") == 1).write_ndjson("x.jsonl")
    done = adv(f"{command} --rows 'step != 2 and reward == 1' --left-out-column failed")
    says = "no row of 6 is left: 4 do not meet --rows step != 2 and reward == 1, failed in 3; change or leave out one of these options"
    assert (done.status, done.err) == (1, f"error: {says}\n")
    assert not [*Path().glob("out.*")]


def test_python_refuses_them_too() -> None:
    frame = FRAME.with_columns(failed=pl.col("reward") == 1, late=pl.col("step") > 1)
    for call in (grpo_cli.compute, grpo_cli.inspect, partial(grpo_cli.select, limit=1)):
        says = "no row of 6 is left: 3 do not meet rows reward == 1, failed in 3"
        with pytest.raises(DataError, match=says):
            call(frame, rows="reward == 1", left_out_column="failed")
    with pytest.raises(DataError, match="no row of 6 is left: late in 4, step is 1 in 2"):
        grpo_cli.compute(frame, left_out_column="step=1", masked_column="late", masked_rows="exclude")


def test_a_file_that_loses_all_of_its_rows_is_fine_beside_one_that_keeps_some() -> None:
    frame = FRAME.with_columns(failed=pl.col("reward") == 1)
    frame.filter(pl.col("step") < 3).write_ndjson("x.jsonl")
    frame.filter(pl.col("step") == 3).write_ndjson("y.jsonl")
    flags = "--rows 'step < 3' --left-out-column step=2"
    facts = facts_of(f"compute x.jsonl y.jsonl -o out/ --group-within file {flags}")
    assert (facts["rows"], facts["left_out"], facts["warnings"]) == (6, 4, [])
    assert adv(f"compute y.jsonl -o - --group-within file {flags}").status == 1


def test_marks_of_a_schema_that_leave_no_row_are_refused_where_an_option_excludes_them() -> None:
    rows = [{**ROW, "group_index": at // 2, "index": at, "reward": at % 2} for at in range(4)]
    write(Path("x.jsonl"), rows)
    assert facts_of("inspect x.jsonl")["masked"] == 4
    done = adv("inspect x.jsonl --masked-rows exclude")
    says = "no row of 4 is left: remove_sample is true in 4 (--masked-rows exclude); --masked-rows vote lets them count"
    assert (done.status, done.err) == (1, f"error: {says}\n")
    done = adv("inspect x.jsonl --rows 'index > 0' --masked-rows exclude")
    says = "1 do not meet --rows index > 0, remove_sample is true in 4 (--masked-rows exclude); change or leave out one"
    assert done.status == 1
    assert says in done.err


NO_COMPARISON = """\
step == null | asks nothing; write NAME is null, or NAME is not null
step is 3 | asks nothing; write NAME is null, or NAME is not null
null is null | asks nothing; write NAME is null, or NAME is not null
step is null is null | asks nothing; write NAME is null, or NAME is not null
1 < step < null | asks nothing; write NAME is null, or NAME is not null
1 < 2 | '1 < 2' names no column; a condition compares columns of a row
step | 'step' compares nothing; a condition compares columns of a row
"""


@pytest.mark.parametrize("case", NO_COMPARISON.splitlines())
def test_null_is_asked_for_with_is_and_a_condition_compares_columns(case: str) -> None:
    text, says = case.split(" | ")
    with pytest.raises(UsageError, match=says):
        grpo_cli.compute(FRAME, rows=text)


def test_a_condition_that_every_row_meets_is_noted() -> None:
    line = "compute x.jsonl -o out.jsonl --force --rows"
    FRAME.write_ndjson("x.jsonl")
    assert facts_of(f"{line} 'step > 0'")["warnings"] == ["every row meets --rows step > 0"]
    assert facts_of(f"{line} 'step > 1'")["warnings"] == []


def test_groups_without_a_row_that_meets_it_are_not_chosen() -> None:
    FRAME.write_ndjson("x.jsonl")
    done = adv("select x.jsonl --rows 'step > 1 and reward == 1' --limit 1 -o -")
    assert [row["prompt_id"] for row in done.rows] == ["b", "b"]
    assert "1 left out among them" in done.err
    assert "1 group (2 rows): --rows leaves out all of their rows" in " ".join(done.err.split())
    done = adv("export x.jsonl --to prompts --prompt prompt_id --rows 'step > 1' -o -")
    assert [row["prompt"] for row in done.rows] == ["b", "c"]
    assert [row["n"] for row in done.rows] == [2, 2]


@pytest.mark.parametrize("command", ["inspect", "compare --preset trl-grpo --preset verl-grpo"])
def test_every_summary_counts_them(command: str) -> None:
    FRAME.write_ndjson("x.jsonl")
    done = ran(f"{command} x.jsonl --rows 'step > 1'")
    assert "2 left out of their groups (--rows step > 1)" in done.out


def test_a_mark_that_nothing_reads_is_still_named_beside_a_condition() -> None:
    frame = FRAME.with_columns(has_error=pl.Series([True, False] * 3))
    facts = grpo_cli.inspect(frame, rows="step > 1").facts
    assert "has_error in 2 of 4 rows" in " ".join(facts["warnings"])
    facts = grpo_cli.inspect(frame, rows="has_error == false").facts
    assert facts["left_out"] == 3
    assert facts["warnings"] == []


def test_checks_look_at_the_rows_that_meet_it() -> None:
    Path("x.csv").write_text("prompt_id,reward,step\na,0,0\na,1,0\na,0,1\na,1,1\na,0,2\na,1,2\n,1,1\n")
    assert "prompt_id is" in adv("compute x.csv").err
    several = adv("compute x.csv --rows 'prompt_id is not null'").err
    assert re.search(r"a group key \(.*\) has rows in several values of 'step'", several)
    line = "compute x.csv -o out.csv --force --rows 'step == 1 and prompt_id is not null'"
    ran(line)
    found = [row["advantage"] for row in rows_of("out.csv")]
    assert [at for at, value in enumerate(found) if value is not None] == [2, 3]
    assert facts_of(f"{line} --group-size 2 --partial keep")["groups"] == 4


# --- null in the conditions on groups and runs --------------------------------------------------------------------------


def test_a_condition_on_groups_and_on_runs_may_ask_for_null() -> None:
    frame = pl.read_csv(b"prompt_id,reward,step\na,0,1\na,1,1\nb,,2\nb,1,3\n")
    kept = grpo_cli.select(frame, where="step is null", missing="exclude", group="prompt_id", group_within="input")
    assert kept.frame["prompt_id"].to_list() == ["b", "b"]
