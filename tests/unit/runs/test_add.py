"""`add`: any columns, inserted as `compute` inserts its own: all other bytes stay, and other readers see the values."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable
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
from tests.support.command import adv
from tests.support.drawn import paired
from tests.support.jobs import opened, rows_of, write
from tests.support.schema_files import REFUSED, WRITERS, lines

ROWS = [{"prompt_id": k // 2, "text": f'é "{k}"', "reward": k % 2} for k in range(6)]
NEW = pl.DataFrame(
    {
        "f64": [0.1, None, -2.5, 1e-300, 1e300, 3.0],
        "f32": pl.Series([0.5, 1.5, None, 0.0, 2.0, 4.0], dtype=pl.Float32),
        "i64": [1, 2, None, 2**60, -5, 6],
        "u64": pl.Series([2**63 + 1, 1, 2, 3, 4, None], dtype=pl.UInt64),
        "flag": [True, False, None, True, True, False],
        "words": ["ü", 'a "b"', None, "", "x,y", "1\n2"],
        "nothing": pl.Series([None] * 6, dtype=pl.String),
        "lists": [[1.0, 2.0], [], None, [0.5], [1.0, None], [3.0]],
    }
)


# Each line up to its last brace, and the rest: CRLF, blanks, other orders and a missing last line feed have to stay.
PARTS = [
    *((json.dumps(row, ensure_ascii=False)[:-1], "}\n") for row in ROWS[:4]),
    ('{ "reward" : 1.00,"prompt_id":"\\u0041" ', "}\r\n\n"),
    ('{"prompt_id": "A", "reward": 0, "more": {"b": [1, 2]}', "}"),
]


def jsonl() -> Path:
    path = Path("in.jsonl")
    path.write_bytes("".join(before + after for before, after in PARTS).encode())
    return path


def packed() -> Path:
    path = Path("in.jsonl.gz")
    path.write_bytes(gzip.compress(jsonl().read_bytes()))
    return path


def document() -> Path:
    path = Path("in.json")
    path.write_text(json.dumps(ROWS, indent=3))
    return path


def parquet() -> Path:
    return write("in.parquet", ROWS)


def arrow() -> Path:
    return write("in.arrow", ROWS)


def stream() -> Path:
    path = Path("stream.arrow")
    pl.DataFrame(ROWS).write_ipc_stream(path)
    return path


def csv() -> Path:
    path = Path("in.csv")
    path.write_bytes(b'prompt_id,"reward"\r\n' + b"".join(b'"%d", 1.0 \r\n' % (k // 2) for k in range(5)) + b"2,1e0")
    return path


def values(path: Path) -> list[Any]:
    """The rows of a file; one of the lines of JSON is empty."""
    if path.suffix not in {".jsonl", ".gz"}:
        return rows_of(path)
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in raw.splitlines() if line.strip()]


TYPED = {"jsonl": jsonl, "gz": packed, "json": document, "parquet": parquet, "arrow": arrow}


@pytest.mark.parametrize("name", TYPED)
def test_every_type_is_inserted_and_all_other_bytes_stay(name: str) -> None:
    source = TYPED[name]()
    before = source.read_bytes()
    out = Path(grpo_cli.add_columns(source, NEW, f"out{''.join(source.suffixes)}"))
    added = values(out)
    assert [[row[column] for row in added] for column in NEW.columns] == [NEW[c].to_list() for c in NEW.columns]
    rest = [{key: value for key, value in row.items() if key not in NEW.columns} for row in added]
    assert rest == values(source)
    found = verify(out, source)
    assert set(found.added) == set(NEW.columns)
    assert found.by == ("values" if name == "arrow" else "bytes")
    assert source.read_bytes() == before


def test_a_line_keeps_its_bytes_around_the_new_field() -> None:
    out = grpo_cli.add_columns(jsonl(), NEW.select("i64"), "o.jsonl")
    texts = ["1", "2", "null", str(2**60), "-5", "6"]
    expected = (f'{before},"i64":{text}{after}' for (before, after), text in zip(PARTS, texts, strict=True))
    assert Path(out).read_bytes() == "".join(expected).encode()


def test_the_cells_of_a_csv_keep_their_text_and_quotes() -> None:
    source = csv()
    out = Path("o.csv")
    grpo_cli.add_columns(source, NEW.select("words", "i64"), out)
    cells = [b",\xc3\xbc,1", b',"a ""b""",2', b",,", b",,%d" % 2**60, b',"x,y",-5', b',"1\n2",6']
    rows = [b'prompt_id,"reward"', *source.read_bytes().split(b"\r\n")[1:]]
    assert out.read_bytes() == b"\r\n".join([rows[0] + b",words,i64", *map(bytes.__add__, rows[1:], cells)])
    assert verify(out, source) == verify(out, source, ["words", "i64"])
    with pytest.raises(UsageError, match=r"o\.csv: csv cannot hold lists, as in lists; give -o FILE\.jsonl"):
        grpo_cli.add_columns(source, NEW, out, force=True)


@pytest.mark.parametrize("write", [stream, csv])
def test_a_file_that_does_not_say_its_number_of_rows_is_counted(write: Callable[[], Path]) -> None:
    source = write()
    with pytest.raises(DataError, match=rf"{source.name} has 6 rows, the columns to add have 5; rows are matched by"):
        grpo_cli.add_columns(source, NEW.select("f64")[:5])
    out = grpo_cli.add_columns(source, NEW.select("f64"))
    assert out == f"{source.stem}.added{source.suffix}"


FRAMES: dict[str, Callable[[], Any]] = {
    "polars": lambda: pl.DataFrame({"x": [k / 3 for k in range(6)]}),
    "lazy": lambda: pl.LazyFrame({"x": [k / 3 for k in range(6)]}),
    "pandas": lambda: pd.DataFrame({"x": [k / 3 for k in range(6)]}, index=list("fedcba")),
    "pyarrow": lambda: pa.table({"x": [k / 3 for k in range(6)]}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame_is_taken_row_by_row(kind: str) -> None:
    out = grpo_cli.add_columns(document(), FRAMES[kind](), "o.json")
    assert [row["x"] for row in values(Path(out))] == [k / 3 for k in range(6)]


def test_columns_are_chosen_and_renamed() -> None:
    out = grpo_cli.add_columns(document(), NEW, "o.json", column={"f64": "judge=1", "i64": "prompt"})
    assert list(values(Path(out))[0]) == ["prompt_id", "text", "reward", "judge=1", "prompt"]
    wrongs = {("none",): "no column named 'none'; known: f64", ("f64=x", "i64=x"): "two columns would be 'x'"}
    for column, wrong in wrongs.items():
        with pytest.raises(UsageError, match=wrong):
            grpo_cli.add_columns(document(), NEW, "p.json", column=column)


@pytest.mark.parametrize("name", TYPED)
def test_a_name_that_is_taken_is_refused_and_replaced_on_demand(name: str) -> None:
    source = TYPED[name]()
    out = Path(f"o{''.join(TYPED[name]().suffixes)}")
    reward = pl.DataFrame({"reward": [k / 2 for k in range(6)]})
    with pytest.raises(DataError, match="already has a column 'reward'; replace overwrites it; column=NAME gives"):
        grpo_cli.add_columns(source, reward, out)
    assert not out.exists()
    grpo_cli.add_columns(source, reward, out, replace=True)
    assert [row["reward"] for row in values(out)] == [k / 2 for k in range(6)]
    assert verify(out, source, ["reward"]).added == ("reward",)


def test_replaced_columns_are_not_listed_as_added() -> None:
    source = lines("in.jsonl", ROWS)
    line = f"add {source.name} --from {source.name} --column reward=new --column reward --replace -o o.jsonl"
    said = adv(line).out
    assert re.search(r"added +new \(\w+\)\n.*\nreplaced +reward \(\w+\)\n", said)
    facts = json.loads(adv(f"{line} --force --json").out)
    assert facts["replaced"] == ["reward"]


def test_a_name_that_only_a_late_line_has_is_refused() -> None:
    source = jsonl()
    with pytest.raises(DataError, match="already has a column 'more'"):
        grpo_cli.add_columns(source, pl.DataFrame({"more": range(6)}))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (pl.Series("x", [{"a": 1}] * 6), r"struct\(.*\), which cannot be added"),
        (pl.Series("x", [["a"]] * 6), r"list\(string\), which cannot be added"),
        (pl.Series("x", ["2026-01-01"] * 6).str.to_date(), "date, which cannot be added"),
    ],
)
def test_other_types_are_refused_in_one_line(wrong: pl.Series, words: str) -> None:
    with pytest.raises(DataError, match=f"x is {words}; numbers, texts, true and false, and lists of numbers"):
        grpo_cli.add_columns(document(), pl.DataFrame([wrong]))


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
    height = int(str(error.value).split(" rows")[0].rsplit(" ", 1)[1].replace(",", ""))
    new = pl.DataFrame({"my_x": [k / 7 for k in range(height)], "my_y": [str(k) for k in range(height)]})
    out = grpo_cli.add_columns(source, new, f"o{source.suffix}", schema=schema)
    assert set(verify(out, source).added) == {"my_x", "my_y"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_of_prompts_takes_columns_though_it_has_no_rewards(name: str) -> None:
    source = lines("in.jsonl", [REFUSED[name]] * 3)
    out = grpo_cli.add_columns(source, pl.DataFrame({"x": [1, 2, 3]}))
    assert [row["x"] for row in map(json.loads, Path(out).read_text().splitlines())] == [1, 2, 3]


# --- the command ------------------------------------------------------------------------------------------------


def test_columns_come_from_every_table_that_is_read() -> None:
    source = document()
    frame = NEW.select("f64", "i64", "flag", "words")
    for suffix in ("parquet", "arrow", "jsonl", "csv"):
        write(f"c.{suffix}", frame.to_dicts())
        done = adv(f"add {source.name} --from c.{suffix} -o o.json --force --json")
        assert done.status == 0, done.err
        found = [{name: row[name] for name in frame.columns} for row in values(Path("o.json"))]
        wanted = frame.to_dicts()
        if suffix == "csv":
            wanted[3]["words"] = found[3]["words"] if found[3]["words"] in {"", None} else wanted[3]["words"]
        assert found == wanted
        types = {"f64": "float64", "i64": "int64", "flag": "boolean", "words": "string"}
        assert json.loads(done.out)["columns"] == types


def test_cells_of_text_become_numbers_only_where_they_lose_nothing() -> None:
    source = lines("in.jsonl", [{"a": 1}] * 2)
    rows = (
        "zip,big,huge,half,odd,id",
        "007,18446744073709551615,99999999999999999999,0.50,NaN,9007199254740993",
        "12,1,2,1e3,1,0.5",
    )
    Path("c.csv").write_text("".join(f"{row}\n" for row in rows))
    done = adv(f"add {source.name} --from c.csv -o -")
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {
            "a": 1,
            "zip": "007",
            "big": 2**64 - 1,
            "huge": "99999999999999999999",
            "half": 0.5,
            "odd": None,
            "id": "9007199254740993",
        },
        {"a": 1, "zip": "12", "big": 1, "huge": "2", "half": 1000.0, "odd": 1.0, "id": "0.5"},
    ]
    assert "1 values of odd are NaN or infinite; JSON writes them as null" in " ".join(done.err.split())
    Path("in.csv").write_text("a\n1\n2\n")
    done = adv("add in.csv --from c.csv --column half -o -")
    assert done.out == "a,half\n1,0.50\n2,1e3\n"


def test_columns_are_added_between_standard_input_and_output() -> None:
    lines("c.jsonl", [{"x": 1}, {"x": 2}])
    done = adv("add - --from c.jsonl", stdin='{"a": 1.0}\n{"a": 2.0}\n')
    assert done.out == '{"a": 1.0,"x":1}\n{"a": 2.0,"x":2}\n'
    more = '{"x": 3}\n{"x": 4}\n'
    done = adv("add c.jsonl --from - --column x=y -o -", stdin=more)
    assert done.out == '{"x": 1,"y":3}\n{"x": 2,"y":4}\n'
    assert adv("add - --from -").err == ("error: standard input is both FILE and --from; name one of them\n")


def test_one_file_is_taken_at_a_time() -> None:
    for name in ("a", "b"):
        lines(f"d/{name}.jsonl", [{"x": 1}])
    done = adv("add d --from d/a.jsonl")
    assert done.status == 2
    assert done.err == "error: d matches 2 files; name one of them\n"


def test_a_folder_is_made_for_the_output_and_empty_lists_are_lists() -> None:
    source = lines("in.jsonl", [{"a": 1}] * 2)
    out = grpo_cli.add_columns(source, pl.DataFrame({"l": [[], None], "n": [None, None]}), "new/")
    assert out == "new/in.jsonl"
    assert values(Path(out)) == [{"a": 1, "l": [], "n": None}, {"a": 1, "l": None, "n": None}]


def test_nan_in_lists_is_counted() -> None:
    source = lines("in.jsonl", [{"a": 1}] * 2)
    pl.DataFrame({"l": [[math.inf, 1.0], [math.nan]]}).write_parquet("c.parquet")
    done = adv(f"add {source.name} --from c.parquet --json -o o.jsonl")
    assert json.loads(done.out)["warnings"] == ["2 values of l are NaN or infinite; JSON writes them as null"]
    assert [row["l"] for row in values(Path("o.jsonl"))] == [[None, 1.0], [None]]


def test_an_output_is_passed_over_in_its_folder(tmp_path: Path) -> None:
    source = lines("in.jsonl", ROWS)
    out = grpo_cli.add_columns(source, NEW.select("f64"))
    assert Path(out).name == "in.added.jsonl"
    assert "skipped 1 file" in grpo_cli.inspect(tmp_path).facts["warnings"][0]


def test_of_several_columns_the_one_that_is_there_is_left_out_by_naming_the_others() -> None:
    Path("a.jsonl").write_text('{"id": "r1", "reward": 1}\n')
    pl.DataFrame({"id": ["r1"], "judge": [0.5], "length": [3]}).write_parquet("b.parquet")
    done = adv("add a.jsonl --from b.parquet")
    cure = "--column judge --column length leaves it out; --replace overwrites it"
    assert done.err == f"error: a.jsonl already has a column 'id'; --on 'id' matches rows by it; {cure}\n"
    assert adv("add a.jsonl --from b.parquet", *cure.split()[:4], "-q").status == 0
    assert values(Path("a.added.jsonl")) == [{"id": "r1", "reward": 1, "judge": 0.5, "length": 3}]


def test_rows_that_are_missing_name_a_cure() -> None:
    Path("a.csv").write_text("id,reward\nr,1\ns,0\n")
    Path("b.csv").write_text("new\n1\n")
    done = adv("add a.csv --from b.csv")
    cure = "rows are matched by position: give a value for each row of a.csv, or a key of both with --on COL"
    assert done.err == f"error: a.csv has 2 rows, the columns to add have 1; {cure}\n"


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("there", "wrong"),
    [("abc", 0), ("cba", 2), ("bca", 3), ("xyz", 3), (["a", "x", None], 2), (["a", "b", None], 1), ([1, 2, 3], 3)],
)
def test_ids_that_differ_row_by_row_are_refused_with_both_cures(suffix: str, there: list[object], wrong: int) -> None:
    before = "".join(f'{{"id": "{name}", "reward": 1}}\n' for name in "abc")
    Path("a.jsonl").write_text(before)
    frame = pl.DataFrame({"id": list(there), "new": range(3)})
    path = write(f"b.{suffix}", frame.to_dicts())
    words = f"add a.jsonl --from {path.name} --column new --in-place --json"
    done = adv(words)
    if not wrong:
        assert done.status == 0
        assert json.loads(done.out)["warnings"] == []
        return
    cures = "--on 'id' matches rows by it; --by-position adds row i to row i"
    said = f"error: {path.name}: id differs from a.jsonl in {wrong} of 3 rows; {cures}\n"
    assert done.status == 1
    assert done.err == said
    assert Path("a.jsonl").read_text() == before
    with pytest.raises(DataError, match="on='id' matches rows by it; by_position adds row i to row i"):
        grpo_cli.add_columns("a.jsonl", frame, column="new")
    done = adv(f"{words} --by-position")
    assert done.status == 0
    assert [row["new"] for row in rows_of("a.jsonl")] == [0, 1, 2]


def test_ids_of_prompts_are_compared_where_both_files_have_some_of_them() -> None:
    write("a.jsonl", [{"prompt_id": f"p{k // 2}", "reward": 1} for k in range(4)])
    words = "add a.jsonl --from b.csv --column new -o o.jsonl --force"
    for ids, status in (
        (["p0", "p0", "p1", "p1"], 0),
        (["p0", "p1", "p0", "p1"], 1),
        (["p1", "p9", "p9", "p9"], 1),
        ("wxyz", 0),
    ):
        write("b.csv", [{"prompt_id": one, "new": k} for k, one in enumerate(ids)])
        done = adv(words)
        assert (done.status, "prompt_id differs from a.jsonl in" in done.err) == (status, bool(status)), done


def test_an_id_of_its_own_that_is_the_same_in_both_outweighs_numbers_of_rows() -> None:
    write("a.jsonl", [{"uuid": f"u{k}", "index": k, "reward": 1} for k in range(4)])
    write("b.jsonl", [{"uuid": f"u{k}", "index": 9 - k, "new": k} for k in range(4)])
    assert adv("add a.jsonl --from b.jsonl --column new -o c.jsonl").status == 0
    write("b.jsonl", [{"uuid": 0, "index": 9 - k, "new": k} for k in range(4)])
    write("a.jsonl", [{"uuid": 0, "index": k, "reward": 1} for k in range(4)])
    done = adv("add a.jsonl --from b.jsonl --column new -o d.jsonl")
    assert done.status == 1
    assert "index differs from a.jsonl in 4 of 4 rows" in done.err


def test_an_id_that_a_schema_declares_is_compared_wherever_it_is() -> None:
    for name, path in (("verifiers-traces", "id"), ("trinity", "eid.run")):
        source = WRITERS[name](Path(name)).path
        (table,) = opened(source)
        ids = table.scan([Field(path, "key")]).frame[path].to_list()
        head, _, inner = path.partition(".")
        for at, order in enumerate((ids, ids[::-1])):
            rows = [{head: {inner: one} if inner else one, "new": k} for k, one in enumerate(order)]
            lines("b.jsonl", rows)
            done = adv(f"add {source} --from b.jsonl --column new -o {name}{at}.jsonl")
            assert (done.status, f"--on '{path}' matches rows by it" in done.err) == (at, bool(at)), done


# --- what cannot be inserted as it is --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "json"])
@pytest.mark.parametrize(
    ("first", "second", "place", "shown"),
    [
        ("1", "1" + "0" * 30, 2, "1" + "0" * 30),
        ('"a"', '"\\ud800"', 2, r'"\ud800"'),
        ("1", '"1"', 2, '"1"'),
        ("true", "1", 2, "1"),
        ("[1]", '["a"]', 2, '["a"]'),
        ("9007199254740993", "0.5", 2, "0.5"),
        ("null", "1" + "0" * 99, 2, "1" + "0" * 56 + "..."),
    ],
)
def test_a_value_that_would_become_another_is_refused_with_its_row(
    kind: str, first: str, second: str, place: int, shown: str
) -> None:
    lines("in.jsonl", [{"a": 1}] * 2)
    rows = [f'{{"x": {value}, "y": 0}}' for value in (first, second)]
    text = "\n".join(rows) if kind == "jsonl" else f"[{', '.join(rows)}]"
    Path(f"c.{kind}").write_text(text)
    done = adv(f"add in.jsonl --from c.{kind} -o out.jsonl")
    where = f"c.jsonl:{place}" if kind == "jsonl" else f"c.json row {place}"
    assert done.status == 1
    assert f"error: {where}: x is {shown}, which cannot be added as it is" in done.err
    assert (
        "a column takes numbers of 64 bits, Unicode texts, true and false, or lists of numbers, all of one kind"
        in done.err
    )
    assert not Path("out.jsonl").exists()
    assert adv(f"add in.jsonl --from c.{kind} --column y -o out.jsonl").status == 0


@pytest.mark.parametrize("target", ["jsonl", "csv"])
def test_a_cell_that_is_not_utf8_is_refused_with_its_row(target: str) -> None:
    write(f"in.{target}", [{"a": 1}] * 2)
    Path("c.csv").write_bytes(b"x\nok\n\xff\n")
    done = adv(f"add in.{target} --from c.csv -o out.{target}")
    assert done.err == "error: c.csv row 2: a cell is not UTF-8; write the file in UTF-8\n"


@pytest.mark.parametrize("cell", ["0.12345678901234567890", "1e400", "-1e999"])
def test_numbers_that_would_lose_digits_stay_texts(cell: str) -> None:
    lines("in.jsonl", [{"a": 1}] * 2)
    Path("c.csv").write_text(f"x,y\n{cell},0.30000000000000004\n1.50000000000000000000,inf\n")
    done = adv("add in.jsonl --from c.csv --column x -o -")
    assert [json.loads(line)["x"] for line in done.out.splitlines()] == [cell, "1.50000000000000000000"]
    assert adv("add in.jsonl --from c.csv -o o.parquet").status == 0
    assert pl.read_parquet("o.parquet")["y"].to_list() == [0.30000000000000004, math.inf]


@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_a_name_that_is_not_unicode_is_refused(kind: str) -> None:
    lines("in.jsonl", [{"a": 1}])
    Path(f"c.{kind}").write_text('{"\\ud800": 1}' if kind == "jsonl" else '[{"\\ud800": 1}]')
    done = adv(f"add in.jsonl --from c.{kind} -o out.jsonl")
    assert (
        done.err
        == f"error: c.{kind}: the name '\\ud800' is not Unicode, and cannot be that of a column; rename the field\n"
    )
