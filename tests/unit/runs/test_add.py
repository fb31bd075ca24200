"""`add`: any columns, inserted as `compute` inserts its own: all other bytes stay, and other readers see the values."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from grpo_cli.values.cells import Field
from grpo_cli.write.verify import verify
from tests.support.command import adv, facts_of, ran
from tests.support.drawn import paired
from tests.support.jobs import opened, rows_of, write
from tests.support.schema_files import REFUSED, WRITERS

ROWS = [{"prompt_id": k // 2, "text": f'é "{k}"', "reward": k % 2} for k in range(6)]
NEW_LINES = r"""
{"f64": 0.1, "f32": 0.5, "i64": 1, "u64": 9223372036854775809, "flag": true, "words": "ü", "nothing": null, "lists": [1.0, 2.0]}
{"f64": null, "f32": 1.5, "i64": 2, "u64": 1, "flag": false, "words": "a \"b\"", "nothing": null, "lists": []}
{"f64": -2.5, "f32": null, "i64": null, "u64": 2, "flag": null, "words": null, "nothing": null, "lists": null}
{"f64": 1e-300, "f32": 0.0, "i64": 1152921504606846976, "u64": 3, "flag": true, "words": "", "nothing": null, "lists": [0.5]}
{"f64": 1e300, "f32": 2.0, "i64": -5, "u64": 4, "flag": true, "words": "x,y", "nothing": null, "lists": [1.0, null]}
{"f64": 3.0, "f32": 4.0, "i64": 6, "u64": null, "flag": false, "words": "1\n2", "nothing": null, "lists": [3.0]}
"""
NEW = pl.read_ndjson(
    NEW_LINES.strip().encode(), schema_overrides={"f32": pl.Float32, "u64": pl.UInt64, "nothing": pl.String}
)


LINES = (
    '{"prompt_id": 0, "text": "é \\"0\\"", "reward": 0}\n'
    '{"prompt_id": 0, "text": "é \\"1\\"", "reward": 1}\n'
    '{"prompt_id": 1, "text": "é \\"2\\"", "reward": 0}\n'
    '{"prompt_id": 1, "text": "é \\"3\\"", "reward": 1}\n'
    '{ "reward" : 1.00,"prompt_id":"\\u0041" }\r\n\n'
    '{"prompt_id": "A", "reward": 0, "more": {"b": [1, 2]}}'
)


CSV = b'prompt_id,"reward"\r\n"0", 1.0 \r\n"0", 1.0 \r\n"1", 1.0 \r\n"1", 1.0 \r\n"2", 1.0 \r\n2,1e0'


TYPED = ["in.jsonl", "in.jsonl.gz", "in.json", "in.parquet", "in.arrow"]


def made(name: str) -> Path:
    path = Path(name)
    match name:
        case "in.jsonl":
            path.write_bytes(LINES.encode())
        case "in.jsonl.gz":
            path.write_bytes(gzip.compress(LINES.encode()))
        case "in.csv":
            path.write_bytes(CSV)
        case "stream.arrow":
            pl.DataFrame(ROWS).write_ipc_stream(path)
        case _:
            write(path, ROWS)
    return path


def values(path: Path) -> list[Any]:
    """The rows of a file; one of the lines of JSON is empty."""
    if path.suffix not in {".jsonl", ".gz"}:
        return rows_of(path)
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in raw.splitlines() if line.strip()]


@pytest.mark.parametrize("name", TYPED)
def test_every_type_is_inserted_and_all_other_bytes_stay(name: str) -> None:
    source = made(name)
    before = source.read_bytes()
    out = Path(f"out.{name}")
    assert grpo_cli.add_columns(source, NEW, out) == str(out)
    added = values(out)
    for column in NEW.columns:
        assert [row.pop(column) for row in added] == NEW[column].to_list()
    assert added == values(source)
    found = verify(out, source)
    assert found.added == tuple(NEW.columns)
    assert found.by == ("values" if name == "in.arrow" else "bytes")
    assert source.read_bytes() == before


def test_a_line_keeps_its_bytes_around_the_new_field() -> None:
    out = Path(grpo_cli.add_columns(made("in.jsonl"), NEW.select("i64"), "o.jsonl"))
    assert out.read_bytes().decode() == (
        '{"prompt_id": 0, "text": "é \\"0\\"", "reward": 0,"i64":1}\n'
        '{"prompt_id": 0, "text": "é \\"1\\"", "reward": 1,"i64":2}\n'
        '{"prompt_id": 1, "text": "é \\"2\\"", "reward": 0,"i64":null}\n'
        '{"prompt_id": 1, "text": "é \\"3\\"", "reward": 1,"i64":1152921504606846976}\n'
        '{ "reward" : 1.00,"prompt_id":"\\u0041" ,"i64":-5}\r\n\n'
        '{"prompt_id": "A", "reward": 0, "more": {"b": [1, 2]},"i64":6}'
    )


def test_the_cells_of_a_csv_keep_their_text_and_quotes() -> None:
    source = made("in.csv")
    out = Path("o.csv")
    grpo_cli.add_columns(source, NEW.select("words", "i64"), out)
    assert out.read_bytes().decode() == (
        'prompt_id,"reward",words,i64\r\n"0", 1.0 ,ü,1\r\n"0", 1.0 ,"a ""b""",2\r\n"1", 1.0 ,,\r\n'
        '"1", 1.0 ,,1152921504606846976\r\n"2", 1.0 ,"x,y",-5\r\n2,1e0,"1\n2",6'
    )
    assert verify(out, source) == verify(out, source, ["words", "i64"])
    with pytest.raises(UsageError, match=r"o\.csv: csv cannot hold lists, as in lists; give -o FILE\.jsonl"):
        grpo_cli.add_columns(source, NEW, out, force=True)


@pytest.mark.parametrize(("name", "out"), [("stream.arrow", "stream.added.arrow"), ("in.csv", "in.added.csv")])
def test_a_file_that_does_not_say_its_number_of_rows_is_counted(name: str, out: str) -> None:
    source = made(name)
    with pytest.raises(DataError, match=rf"{name} has 6 rows, the columns to add have 5; rows are matched by"):
        grpo_cli.add_columns(source, NEW.select("f64")[:5])
    assert grpo_cli.add_columns(source, NEW.select("f64")) == out


SIXTHS = {"x": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]}


@pytest.mark.parametrize(
    "frame",
    [pl.DataFrame(SIXTHS), pl.LazyFrame(SIXTHS), pd.DataFrame(SIXTHS, index=list("fedcba")), pa.table(SIXTHS)],
)
def test_every_kind_of_frame_is_taken_row_by_row(frame: Any) -> None:
    out = grpo_cli.add_columns(made("in.json"), frame, "o.json")
    assert [row["x"] for row in rows_of(out)] == SIXTHS["x"]


def test_columns_are_chosen_and_renamed() -> None:
    source = made("in.json")
    out = grpo_cli.add_columns(source, NEW, "o.json", column={"f64": "judge=1", "i64": "prompt"})
    assert [*rows_of(out)[0]] == ["prompt_id", "text", "reward", "judge=1", "prompt"]
    with pytest.raises(UsageError, match="no column named 'none'; known: f64"):
        grpo_cli.add_columns(source, NEW, "p.json", column="none")
    with pytest.raises(UsageError, match="two columns would be 'x'"):
        grpo_cli.add_columns(source, NEW, "p.json", column=("f64=x", "i64=x"))


@pytest.mark.parametrize("name", TYPED)
def test_a_name_that_is_taken_is_refused_and_replaced_on_demand(name: str) -> None:
    source = made(name)
    out = Path(f"o.{name}")
    reward = pl.DataFrame({"reward": SIXTHS["x"]})
    with pytest.raises(DataError, match="already has a column 'reward'; replace overwrites it; column=NAME gives"):
        grpo_cli.add_columns(source, reward, out)
    assert not out.exists()
    grpo_cli.add_columns(source, reward, out, replace=True)
    assert [row["reward"] for row in values(out)] == SIXTHS["x"]
    assert verify(out, source, ["reward"]).added == ("reward",)


def test_replaced_columns_are_not_listed_as_added() -> None:
    made("in.json")
    line = "add in.json --from in.json --column reward=new --column reward --replace -o o.json"
    assert re.search(r"added +new \(\w+\)\n.*\nreplaced +reward \(\w+\)\n", ran(line).out)
    assert facts_of(f"{line} --force")["replaced"] == ["reward"]


def test_a_name_that_only_a_late_line_has_is_refused() -> None:
    with pytest.raises(DataError, match="already has a column 'more'"):
        grpo_cli.add_columns(made("in.jsonl"), pl.DataFrame({"more": range(6)}))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pl.lit(1).alias("a").pipe(pl.struct), r"struct\(.*\), which cannot be added"),
        (pl.lit(["a"]), r"list\(string\), which cannot be added"),
        (pl.date(2026, 1, 1), "date, which cannot be added"),
    ],
)
def test_other_types_are_refused_in_one_line(values: pl.Expr, words: str) -> None:
    with pytest.raises(DataError, match=f"x is {words}; numbers, texts, true and false, and lists of numbers"):
        grpo_cli.add_columns(made("in.json"), pl.DataFrame(SIXTHS).with_columns(x=values))


@pytest.mark.parametrize(("name", "records"), paired(sorted({*WRITERS} - {"trl-trackio", "harbor"}), [False, True]))
def test_every_layout_takes_columns_for_its_rollouts_or_its_records(
    name: str,
    records: bool,  # noqa: FBT001 - given by name
    tmp_path: Path,
) -> None:
    written = WRITERS[name](tmp_path)
    source = written.path
    if source.is_dir():
        source = min(path for path in source.rglob("*") if path.is_file())
    schema = "none" if records else None
    with pytest.raises(DataError, match="rows, the columns to add have 1,000") as error:
        grpo_cli.add_columns(source, pl.DataFrame({"x": range(1000)}), schema=schema)
    (height,) = re.findall(r"has (\d+) rows, the", str(error.value))
    numbers = pl.int_range(int(height), eager=True)
    new = pl.DataFrame({"my_x": numbers / 7, "my_y": numbers.cast(pl.String)})
    out = grpo_cli.add_columns(source, new, f"o{source.suffix}", schema=schema)
    assert set(verify(out, source).added) == {"my_x", "my_y"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_of_prompts_takes_columns_though_it_has_no_rewards(name: str) -> None:
    source = write("in.jsonl", [REFUSED[name]] * 3)
    out = grpo_cli.add_columns(source, pl.DataFrame({"x": [1, 2, 3]}))
    assert [row["x"] for row in rows_of(out)] == [1, 2, 3]


# --- the command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl", "csv"])
def test_columns_come_from_every_table_that_is_read(suffix: str) -> None:
    made("in.json")
    frame = NEW.select("f64", "i64", "flag", "words")
    write(f"c.{suffix}", frame.to_dicts())
    facts = facts_of(f"add in.json --from c.{suffix} -o o.json")
    assert facts["columns"] == {"f64": "float64", "i64": "int64", "flag": "boolean", "words": "string"}
    found = pl.DataFrame(rows_of("o.json")).select(frame.columns)
    if suffix == "csv":  # an empty cell may be a text
        empty = pl.col("words").fill_null("")
        found = found.with_columns(empty)
        frame = frame.with_columns(empty)
    assert found.equals(frame)


def test_cells_of_text_become_numbers_only_where_they_lose_nothing() -> None:
    Path("in.jsonl").write_text('{"a": 1}\n{"a": 1}\n')
    Path("c.csv").write_text("""\
zip,big,huge,half,odd,id
007,18446744073709551615,99999999999999999999,0.50,NaN,9007199254740993
12,1,2,1e3,1,0.5
""")
    done = ran("add in.jsonl --from c.csv -o -")
    assert (
        done.out
        == """\
{"a": 1,"zip":"007","big":18446744073709551615,"huge":"99999999999999999999","half":0.5,"odd":null,"id":"9007199254740993"}
{"a": 1,"zip":"12","big":1,"huge":"2","half":1000.0,"odd":1.0,"id":"0.5"}
"""
    )
    assert "1 values of odd are NaN or infinite; JSON writes them as null" in " ".join(done.err.split())
    Path("in.csv").write_text("a\n1\n2\n")
    assert ran("add in.csv --from c.csv --column half -o -").out == "a,half\n1,0.50\n2,1e3\n"


def test_columns_are_added_between_standard_input_and_output() -> None:
    Path("c.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
    done = ran("add - --from c.jsonl", stdin='{"a": 1.0}\n{"a": 2.0}\n')
    assert done.out == '{"a": 1.0,"x":1}\n{"a": 2.0,"x":2}\n'
    done = ran("add c.jsonl --from - --column x=y -o -", stdin='{"x": 3}\n{"x": 4}\n')
    assert done.out == '{"x": 1,"y":3}\n{"x": 2,"y":4}\n'
    assert adv("add - --from -").err == "error: standard input is both FILE and --from; name one of them\n"


def test_one_file_is_taken_at_a_time() -> None:
    write("d/a.jsonl", [{"x": 1}])
    write("d/b.jsonl", [{"x": 1}])
    done = adv("add d --from d/a.jsonl")
    assert done.status == 2
    assert done.err == "error: d matches 2 files; name one of them\n"


def test_a_folder_is_made_for_the_output_and_empty_lists_are_lists_and_nan_in_lists_is_counted() -> None:
    Path("in.jsonl").write_text('{"a": 1}\n{"a": 1}\n')
    out = grpo_cli.add_columns("in.jsonl", pl.DataFrame({"l": [[], None], "n": [None, None]}), "new/")
    assert out == "new/in.jsonl"
    assert Path(out).read_text() == '{"a": 1,"l":[],"n":null}\n{"a": 1,"l":null,"n":null}\n'
    pl.DataFrame({"l": [[math.inf, 1.0], [math.nan]]}).write_parquet("c.parquet")
    facts = facts_of("add in.jsonl --from c.parquet -o o.jsonl")
    assert facts["warnings"] == ["2 values of l are NaN or infinite; JSON writes them as null"]
    assert [row["l"] for row in rows_of("o.jsonl")] == [[None, 1.0], [None]]


def test_an_output_is_passed_over_in_its_folder(tmp_path: Path) -> None:
    assert grpo_cli.add_columns(write("in.jsonl", ROWS), NEW.select("f64")) == "in.added.jsonl"
    assert "skipped 1 file" in grpo_cli.inspect(tmp_path).facts["warnings"][0]


def test_of_several_columns_the_one_that_is_there_is_left_out_by_naming_the_others() -> None:
    Path("a.jsonl").write_text('{"id": "r1", "reward": 1}\n')
    Path("b.jsonl").write_text('{"id": "r1", "judge": 0.5, "length": 3}\n')
    done = adv("add a.jsonl --from b.jsonl")
    cure = "--column judge --column length leaves it out; --replace overwrites it"
    assert done.err == f"error: a.jsonl already has a column 'id'; --on 'id' matches rows by it; {cure}\n"
    ran("add a.jsonl --from b.jsonl --column judge --column length -q")
    assert Path("a.added.jsonl").read_text() == '{"id": "r1", "reward": 1,"judge":0.5,"length":3}\n'


def test_rows_that_are_missing_name_a_cure() -> None:
    Path("a.csv").write_text("id,reward\nr,1\ns,0\n")
    Path("b.csv").write_text("new\n1\n")
    done = adv("add a.csv --from b.csv")
    cure = "rows are matched by position: give a value for each row of a.csv, or a key of both with --on COL"
    assert done.err == f"error: a.csv has 2 rows, the columns to add have 1; {cure}\n"


BEFORE = '{"id": "a", "reward": 1}\n{"id": "b", "reward": 1}\n{"id": "c", "reward": 1}\n'


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("rows", "wrong"),
    [("c,0 b,1 a,2", 2), ("b,0 c,1 a,2", 3), ("a,0 x,1 ,2", 2), ("a,0 b,1 ,2", 1), ("1,0 2,1 3,2", 3)],
)
def test_ids_that_differ_row_by_row_are_refused_with_both_cures(suffix: str, rows: str, wrong: int) -> None:
    source = Path("a.jsonl")
    source.write_text(BEFORE)
    Path("b.csv").write_text(f"id,new {rows}\n".replace(" ", "\n"))
    frame = pl.read_csv("b.csv")
    frame.write_parquet("b.parquet")
    words = f"add a.jsonl --from b.{suffix} --column new --in-place"
    done = adv(words)
    cures = "--on 'id' matches rows by it; --by-position adds row i to row i"
    assert done.status == 1
    assert done.err == f"error: b.{suffix}: id differs from a.jsonl in {wrong} of 3 rows; {cures}\n"
    assert source.read_text() == BEFORE
    with pytest.raises(DataError, match="on='id' matches rows by it; by_position adds row i to row i"):
        grpo_cli.add_columns("a.jsonl", frame, column="new")
    ran(f"{words} --by-position")
    assert [row["new"] for row in rows_of(source)] == [0, 1, 2]


def test_ids_that_are_the_same_row_by_row_need_no_word() -> None:
    Path("a.jsonl").write_text(BEFORE)
    Path("b.csv").write_text("id,new\na,0\nb,1\nc,2\n")
    assert facts_of("add a.jsonl --from b.csv --column new --in-place")["warnings"] == []


@pytest.mark.parametrize(
    ("ids", "status"), [("p0 p0 p1 p1", 0), ("p0 p1 p0 p1", 1), ("p1 p9 p9 p9", 1), ("w x y z", 0)]
)
def test_ids_of_prompts_are_compared_where_both_files_have_some_of_them(ids: str, status: int) -> None:
    Path("a.csv").write_text("prompt_id,reward\np0,1\np0,1\np1,1\np1,1\n")
    Path("b.csv").write_text("prompt_id,new\n{},0\n{},1\n{},2\n{},3\n".format(*ids.split()))
    done = adv("add a.csv --from b.csv --column new -o o.csv")
    assert done.status == status
    assert ("prompt_id differs from a.csv in" in done.err) == bool(status)


def test_an_id_of_its_own_that_is_the_same_in_both_outweighs_numbers_of_rows() -> None:
    Path("a.csv").write_text("uuid,index,reward\nu0,0,1\nu1,1,1\n")
    Path("b.csv").write_text("uuid,index,new\nu0,9,0\nu1,8,1\n")
    ran("add a.csv --from b.csv --column new -o c.csv")
    Path("a.csv").write_text("uuid,index,reward\nu0,0,1\nu0,1,1\n")
    Path("b.csv").write_text("uuid,index,new\nu0,9,0\nu0,8,1\n")
    done = adv("add a.csv --from b.csv --column new -o d.csv")
    assert done.status == 1
    assert "index differs from a.csv in 2 of 2 rows" in done.err


@pytest.mark.parametrize(("name", "path"), [("verifiers-traces", "id"), ("trinity", "eid.run")])
def test_an_id_that_a_schema_declares_is_compared_wherever_it_is(name: str, path: str) -> None:
    source = WRITERS[name](Path(name)).path
    (table,) = opened(source)
    ids = table.scan([Field(path, "key")]).frame[path]
    head, _, inner = path.partition(".")
    same = pl.DataFrame({head: ids.to_frame(inner).to_struct() if inner else ids}).with_row_index("new")
    same.write_ndjson("same.jsonl")
    ran(f"add {source} --from same.jsonl --column new -o same.{name}.jsonl")
    same.reverse().write_ndjson("other.jsonl")
    done = adv(f"add {source} --from other.jsonl --column new -o other.{name}.jsonl")
    assert done.status == 1
    assert f"--on '{path}' matches rows by it" in done.err


# --- what cannot be inserted as it is --------------------------------------------------------------------------


# A value, one of another kind, and how that is shown.
VALUES = r"""
1 | 1000000000000000000000000000000 | 1000000000000000000000000000000
"a" | "\ud800" | "\ud800"
1 | "1" | "1"
true | 1 | 1
[1] | ["a"] | ["a"]
9007199254740993 | 0.5 | 0.5
null | 100000000000000000000000000000000000000000000000000000000000000000000000 | 100000000000000000000000000000000000000000000000000000000...
"""


@pytest.mark.parametrize("kind", ["jsonl", "json"])
@pytest.mark.parametrize("case", VALUES.strip().splitlines())
def test_a_value_that_would_become_another_is_refused_with_its_row(kind: str, case: str) -> None:
    first, second, shown = case.split(" | ")
    Path("in.jsonl").write_text('{"a": 1}\n{"a": 1}\n')
    rows = f'{{"x": {first}, "y": 0}}\n{{"x": {second}, "y": 0}}\n'
    Path("c.jsonl").write_text(rows)
    Path("c.json").write_text("[" + rows.strip().replace("\n", ",\n") + "]")
    done = adv(f"add in.jsonl --from c.{kind} -o out.jsonl")
    where = "c.jsonl:2" if kind == "jsonl" else "c.json row 2"
    assert done.status == 1
    assert f"error: {where}: x is {shown}, which cannot be added as it is" in done.err
    kinds = "numbers of 64 bits, Unicode texts, true and false, or lists of numbers, all of one kind"
    assert f"a column takes {kinds}" in done.err
    assert not Path("out.jsonl").exists()
    ran(f"add in.jsonl --from c.{kind} --column y -o out.jsonl")


@pytest.mark.parametrize("target", ["jsonl", "csv"])
def test_a_cell_that_is_not_utf8_is_refused_with_its_row(target: str) -> None:
    write(f"in.{target}", [{"a": 1}] * 2)
    Path("c.csv").write_bytes(b"x\nok\n\xff\n")
    done = adv(f"add in.{target} --from c.csv -o out.{target}")
    assert done.err == "error: c.csv row 2: a cell is not UTF-8; write the file in UTF-8\n"


@pytest.mark.parametrize("cell", ["0.12345678901234567890", "1e400", "-1e999"])
def test_numbers_that_would_lose_digits_stay_texts(cell: str) -> None:
    Path("in.jsonl").write_text('{"a": 1}\n{"a": 1}\n')
    Path("c.csv").write_text(f"x,y\n{cell},0.30000000000000004\n1.50000000000000000000,inf\n")
    done = ran("add in.jsonl --from c.csv --column x -o -")
    assert [row["x"] for row in done.rows] == [cell, "1.50000000000000000000"]
    ran("add in.jsonl --from c.csv -o o.parquet")
    assert pl.read_parquet("o.parquet")["y"].to_list() == [0.30000000000000004, math.inf]


@pytest.mark.parametrize(("kind", "text"), [("jsonl", '{"\\ud800": 1}'), ("json", '[{"\\ud800": 1}]')])
def test_a_name_that_is_not_unicode_is_refused(kind: str, text: str) -> None:
    Path("in.jsonl").write_text('{"a": 1}\n')
    Path(f"c.{kind}").write_text(text)
    done = adv(f"add in.jsonl --from c.{kind} -o out.jsonl")
    said = "the name '\\ud800' is not Unicode, and cannot be that of a column; rename the field"
    assert done.err == f"error: c.{kind}: {said}\n"
