"""Two columns with one name: an error where the name is read or replaced, in every format; otherwise both stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc
from pyarrow.csv import WriteOptions, write_csv

from tests.support.command import adv, facts_of, ran

Table = list[tuple[str, list[Any]]]  # names and values of the columns, in order

PLAIN: Final[Table] = [("prompt_id", [1, 1]), ("reward", [0.0, 1.0]), ("note", ["a", "b"]), ("advantage", [9.0, 9.0])]
SECOND: Final[dict[str, list[Any]]] = dict(PLAIN) | {"reward": [1.0, 0.0], "note": ["c", "d"], "advantage": [8.0, 8.0]}
TEXT: Final = ("jsonl", "json")
BINARY: Final = ("parquet", "arrow", "ipc")
TABLES: Final = ("csv", "tsv", *BINARY)


def write(name: str, table: Table) -> None:
    """The columns as a file of the kind that its suffix names (`.ipc`: the stream form of Arrow)."""
    path = Path(name)
    kind = path.suffix[1:]
    names = [name for name, _ in table]
    columns = [pa.array(values) for _, values in table]
    made = pa.table(columns, names=names)
    if kind in {"csv", "tsv"}:
        write_csv(made, path, WriteOptions(delimiter="," if kind == "csv" else "\t"))
    elif kind in TEXT:
        objects = []
        for row in zip(*(values for _, values in table), strict=True):
            fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in zip(names, row, strict=True)]
            objects.append(f"{{{', '.join(fields)}}}")
        path.write_text("\n".join(objects) if kind == "jsonl" else f"[{', '.join(objects)}]")
    elif kind == "parquet":
        pq.write_table(made, path)
    else:
        with (ipc.new_file if kind == "arrow" else ipc.new_stream)(path, made.schema) as writer:
            writer.write_table(made)


def with_second(name: str) -> Table:
    """The columns, and last a second one with this name."""
    return [*PLAIN, (name, SECOND[name])]


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("name", "places"), [("prompt_id", "1 and 5"), ("reward", "2 and 5"), ("advantage", "4 and 5")]
)
def test_a_column_that_is_read_or_replaced_occurs_once(kind: str, name: str, places: str) -> None:
    write(f"in.{kind}", with_second(name))
    done = adv(f"compute in.{kind} --replace -o out.{kind}")
    assert done.status == 1
    assert done.err == f"error: in.{kind}: columns {places} are named {name!r}; rename all but one of them\n"
    assert not Path(f"out.{kind}").exists()


def test_a_replaced_field_that_a_document_or_a_late_line_names_twice_is_refused_with_its_place() -> None:
    write("in.json", with_second("advantage"))
    done = adv("compute in.json --replace -o out.json")
    assert done.status == 1
    assert done.err == "error: in.json row 1: advantage is named twice in one object; write each field once\n"
    plain = '{"prompt_id": 1, "reward": 1, "advantage": 0.5}\n' * 2345
    Path("in.jsonl").write_text(plain + '{"prompt_id": 1, "advantage": 1, "reward": 1, "advantage": 2}\n' + plain)
    done = adv("compute in.jsonl --replace -o out.jsonl")
    assert done.status == 1
    assert done.err == "error: in.jsonl:2346: advantage is named twice in one object; write each field once\n"


@pytest.mark.parametrize("kind", [*TABLES, *TEXT])
def test_other_columns_may_have_one_name_and_keep_it(kind: str) -> None:
    write(f"in.{kind}", with_second("note"))
    write(f"once.{kind}", PLAIN)
    twice = facts_of(f"compute in.{kind} --column new --facts -o in.out.{kind}")
    once = facts_of(f"compute once.{kind} --column new --facts -o once.out.{kind}")
    assert twice["advantage"] == once["advantage"]
    assert twice["reward"] == once["reward"]
    ran(f"verify in.out.{kind} --against in.{kind}")


@pytest.mark.parametrize("kind", TABLES)
def test_a_conversion_reads_every_column(kind: str) -> None:
    write(f"in.{kind}", with_second("note"))
    done = adv(f"compute in.{kind} --column new -o out.jsonl")
    assert done.status == 1
    assert done.err.startswith(f"error: in.{kind}: columns 3 and 5 are named 'note'; rename all but one of them")


@pytest.mark.parametrize(("kind", "where"), [("jsonl", "in.jsonl:1"), ("json", "in.json row 1")])
@pytest.mark.parametrize("fields", ['"x": 1, "x": 2', '"notes": [{"x": 1, "y": 0, "x": 2}]'])
def test_a_conversion_reads_every_field(kind: str, where: str, fields: str) -> None:
    row = f'{{"prompt_id": 1, "reward": 1, {fields}}}'
    Path(f"in.{kind}").write_text(f"[{row}]" if kind == "json" else row)
    done = adv(f"compute in.{kind} --singleton zero -o out.parquet")
    assert done.err.startswith(f"error: {where}: x is named twice in one object; write each field once")


@pytest.mark.parametrize("kind", BINARY)
def test_a_field_of_a_struct_that_is_read_occurs_once(kind: str) -> None:
    two = pa.StructArray.from_arrays([pa.array([0.0, 1.0]), pa.array([1.0, 0.0])], names=["score", "score"])
    write(f"in.{kind}", [("prompt_id", [1, 1]), ("of", two)])
    done = adv(f"compute in.{kind} --reward of.score -o out.{kind}")
    assert done.status == 1
    assert done.err == f"error: in.{kind}: fields 1 and 2 are named 'score'; rename all but one of them\n"
