"""Lists with a number for each token are read in parts, in every format; what does not fit is an error with its row."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import ipc

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError
from grpo_cli.read import token_numbers as module
from grpo_cli.read.build_table import read
from grpo_cli.read.layout import layout
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding
from grpo_cli.read.token_numbers import Lists, TokenPart, token_numbers
from tests.support.jobs import write

S = [[-0.5, -1.25, -2.0], [-3.0], [], [-0.75, -0.125]]
T = [[-0.25, -1.5, -1.0], [-2.0], [], [-0.5, -0.25]]
COLUMNS: Any = {
    "id": [0, 0, 1, 1],
    "reward": [0.0, 1.0, 2.0, 3.0],
    "s": S,
    "t": T,
    "mask": [[1, 0, 1], [1], [], [0, -100]],
}
ROWS = pl.DataFrame(COLUMNS).to_dicts()


NAMES = ["a.jsonl", "a.jsonl.gz", "a.json", "a.parquet", "a.arrow", "a.ipc", "a.csv", "a.tsv"]


def written(path: Path, rows: list[Any]) -> Path:
    """Parquet and the stream of Arrow have parts of three rows."""
    if path.suffix != ".ipc":
        return write(path, rows)
    table = pa.Table.from_pylist(rows)
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return path


def opened(*paths: Path | str) -> Narrow:
    binding = Binding(group=("id",), rewards=("reward",), group_within="file")
    tables = open_tables(find_inputs([*map(str, paths)])[0], binding)
    return read(layout(tables, binding), Plan(), warn=False)


def parts_of(name: str, *columns: str, mask: str = "") -> list[TokenPart]:
    narrow = opened(name)
    return list(token_numbers(narrow, np.arange(len(narrow.table)), Lists(columns, mask=mask)))


def listed(parts: list[TokenPart], column: str) -> dict[int, list[float]]:
    """The numbers of each row."""
    found = {}
    for part in parts:
        values = part.values[column]
        assert values.dtype == np.float64
        assert part.sizes.sum() == len(values)
        for row, start, size in zip(part.rows, part.starts, part.sizes, strict=True):
            found[int(row)] = values[start : start + size].tolist()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_numbers_of_each_row(name: str) -> None:
    written(Path(name), ROWS)
    parts = parts_of(name, "s", "t")
    sums = np.concatenate([part.sums(part.values["s"]) for part in parts])
    assert sums.tolist() == [-3.75, -3.0, 0.0, -0.875]
    assert listed(parts, "s") == dict(enumerate(S))
    assert listed(parts, "t") == dict(enumerate(T))
    with pytest.raises(DataError, match="no column 'u'"):
        parts_of(name, "s", "u")


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_leaves_the_tokens_that_count(name: str) -> None:
    written(Path(name), ROWS)
    parts = parts_of(name, "s", mask="mask")
    assert listed(parts, "s") == {0: [-0.5, -2.0], 1: [-3.0], 2: [], 3: []}
    lengths = np.concatenate([part.lengths for part in parts])
    assert lengths.tolist() == [3, 1, 0, 2]
    counting = [part.counting for part in parts if part.counting is not None]
    assert np.concatenate(counting).tolist() == [True, False, True, True, False, False]


WRONG = """
[-1.0] => t has 1 numbers, s 2
[-1.0, null] => t is null at token 2
[-1.0, NaN] => t is nan at token 2
[-Infinity, 0.0] => t is -inf at token 1
"""


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_fit_is_an_error_with_its_row(name: str) -> None:
    for line in WRONG.strip().splitlines():
        value, _, said = line.partition(" => ")
        written(Path(name), [*ROWS[:3], {**ROWS[3], "t": json.loads(value)}])
        with pytest.raises(DataError) as error:
            parts_of(name, "s", "t")
        assert said in error.value.message
        assert error.value.place.endswith(("row 4", ":4", "[3]"))


NO_NUMBERS = """
[{"token": "a", "logprob": -1.0}] => t is [{'token': 'a', 'logprob': -1.0}], expected a list of numbers
[[-1.0, -2.0]] => t is [[-1.0, -2.0]], expected a list of numbers
["-1.0"] => expected a list of numbers
-1.0 => expected a list of numbers
{"values": [-1.0]} => expected a list of numbers
"""


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("sv")])
@pytest.mark.parametrize("line", NO_NUMBERS.strip().splitlines())
def test_what_is_no_list_of_numbers_is_refused(name: str, line: str) -> None:
    value, _, said = line.partition(" => ")
    written(Path(name), [{**row, "t": json.loads(value)} for row in ROWS])
    with pytest.raises(DataError, match=re.escape(said)):
        parts_of(name, "t")


def test_one_row_of_another_shape_is_named() -> None:
    plain = '{"id": 0, "reward": 1.0, "s": [-1.0, -2.0]}\n' * 2000
    Path("a.jsonl").write_text(plain + '{"id": 0, "reward": 0.0, "s": [[-1.0]]}\n')
    with pytest.raises(DataError, match=r"s is \[\[-1.0\]\], expected a list of numbers") as error:
        parts_of("a.jsonl", "s")
    assert error.value.place.endswith("a.jsonl:2001")


@pytest.mark.parametrize("name", NAMES)
def test_a_row_without_a_list_is_counted_and_left_out(name: str) -> None:
    written(Path(name), [ROWS[0], {**ROWS[1], "s": None}, *ROWS[2:]])
    parts = parts_of(name, "s", "t")
    assert sum(part.missing for part in parts) == 1
    assert listed(parts, "t") == {0: T[0], 2: T[2], 3: T[3]}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet", "a.ipc"])
def test_a_dotted_path_reaches_a_list(name: str) -> None:
    written(Path(name), [{**row, "extra": {"s": row["s"]}} for row in ROWS])
    assert listed(parts_of(name, "extra.s"), "extra.s") == dict(enumerate(S))


def test_rows_keep_their_numbers_over_files_and_without_some() -> None:
    write("a.jsonl", ROWS)
    write("b.parquet", ROWS)
    narrow = opened("a.jsonl", "b.parquet").at(np.array([0, 3, 4, 5]))
    parts = list(token_numbers(narrow, np.array([1, 2, 3]), Lists(["s"])))
    assert listed(parts, "s") == {1: S[3], 2: S[0], 3: S[1]}


def test_numbers_of_single_precision_keep_their_values() -> None:
    single = pl.Series("s", [[-0.1, -0.3], [-0.7], [], None], dtype=pl.List(pl.Float32))
    frame = pl.DataFrame(ROWS).with_columns(single)
    frame.write_parquet("a.parquet")
    found = listed(parts_of("a.parquet", "s"), "s")
    assert found == dict(enumerate(single[:3].to_list()))


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.arrow", "a.csv"])
def test_parts_are_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BYTES", 2000)
    numbers = {at: [-1.0 * at] * 100 for at in range(50)}
    written(Path(name), [{"id": at // 2, "reward": 1.0, "s": s} for at, s in numbers.items()])
    parts = parts_of(name, "s")
    assert max(len(part.values["s"]) for part in parts) <= 500
    assert listed(parts, "s") == numbers
