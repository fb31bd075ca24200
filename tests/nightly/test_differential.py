"""The same rows give the same bits, from every format and by every way that they can come in."""

from __future__ import annotations

import csv
import gzip
import json
import math
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from tests.support.command import adv
from tests.support.drawn import examples

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

Row = dict[str, Any]
Table = list[Row]

# Text that every format can hold: of CSV an empty cell is no text, and a line feed in a cell becomes another one.
TEXTS: Final = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=12).map(lambda text: f"t{text}")
REWARDS: Final = st.one_of(
    st.sampled_from([0.0, 1.0, -0.0, 0.1, 1e9, 1e9 + 1, 1e-300, 5e-324, 1e15, 1 / 3]),
    st.floats(-1e6, 1e6),
    st.integers(-(10**6), 10**6).map(float),
)
KEYS: Final = st.one_of(
    st.lists(TEXTS, min_size=1, max_size=5, unique=True),
    st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=5, unique=True),
)
ALONE: Final = ((), ("--method", "rloo"), ("--method", "mc-grpo"))  # no group needs to know of the others
PLANS: Final = (
    *ALONE, ("--method", "james-stein"), ("--scale", "batch"), ("--method", "dr-grpo", "--whiten", "sample"),
)  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Rows whose groups stand one after the other; the first one has two at least, for groups of one alone are refused."""
    keys = draw(KEYS)
    sizes = [draw(st.integers(2, 6)), *(draw(st.integers(1, 6)) for _ in keys[1:])]
    return [
        {"prompt_id": key, "reward": draw(REWARDS), "text": draw(TEXTS)}
        for key, size in zip(keys, sizes, strict=True)
        for _ in range(size)
    ]


# --- formats ---------------------------------------------------------------------------------------------------


def lines(table: Sequence[Row]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in table).encode()


def zstd(data: bytes, *options: str) -> bytes:
    return subprocess.run(["zstd", "-q", "-c", *options], input=data, capture_output=True, check=True).stdout


def delimited(table: Sequence[Row], separator: str) -> bytes:
    return pl.DataFrame(table).write_csv(separator=separator).encode()


def _parquet(path: Path, table: Table) -> None:
    pl.DataFrame(table).write_parquet(path, row_group_size=3)


WRITE: Final[dict[str, Callable[[Path, Table], Any]]] = {
    "jsonl": lambda path, table: path.write_bytes(lines(table)),
    "jsonl.gz": lambda path, table: path.write_bytes(gzip.compress(lines(table))),
    "jsonl.zst": lambda path, table: path.write_bytes(zstd(lines(table))),
    "json": lambda path, table: path.write_text(json.dumps(table)),
    "csv": lambda path, table: path.write_bytes(delimited(table, ",")),
    "tsv": lambda path, table: path.write_bytes(delimited(table, "\t")),
    "parquet": _parquet,
    "arrow": lambda path, table: pl.DataFrame(table).write_ipc(path),
}


def _of_lines(data: bytes) -> list[float | None]:
    return [json.loads(line)["advantage"] for line in data.splitlines()]


def _of_cells(path: Path, separator: str) -> list[float | None]:
    with path.open(newline="", encoding="utf-8") as handle:
        return [float(row["advantage"]) for row in csv.DictReader(handle, delimiter=separator)]


READ: Final[dict[str, Callable[[Path], list[float | None]]]] = {
    "jsonl": lambda path: _of_lines(path.read_bytes()),
    "jsonl.gz": lambda path: _of_lines(gzip.decompress(path.read_bytes())),
    "jsonl.zst": lambda path: _of_lines(zstd(path.read_bytes(), "-d")),
    "json": lambda path: [row["advantage"] for row in json.loads(path.read_text())],
    "csv": lambda path: _of_cells(path, ","),
    "tsv": lambda path: _of_cells(path, "\t"),
    "parquet": lambda path: pl.read_parquet(path)["advantage"].to_list(),
    "arrow": lambda path: pl.read_ipc(path)["advantage"].to_list(),
}


def bits(values: Sequence[float | None]) -> bytes:
    """The bits of the numbers; NaN, which is null in JSON, has those of one NaN."""
    return struct.pack(f"<{len(values)}d", *(math.nan if one is None or one != one else one for one in values))  # noqa: PLR0124


def run(place: Path, *words: str, stdin: str = "") -> str:
    done = adv("compute", *words, "-q", "--group-within", "input", cwd=place, stdin=stdin)
    assert (done.status, done.err) == (0, ""), done
    return done.out


@pytest.fixture(scope="module", autouse=True)
def _packer() -> None:
    if shutil.which("zstd") is None:
        pytest.skip("there is no zstd to pack with")


@given(table=tables(), plan=st.sampled_from(PLANS), order=st.none() | st.randoms(use_true_random=False))
@examples(4)
def test_every_format_and_every_way_in_give_the_same_bits(
    table: Table, plan: tuple[str, ...], order: random.Random | None
) -> None:
    found: dict[str, bytes] = {}
    if order is not None:
        order.shuffle(table)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for kind, write in WRITE.items():
            write(place / f"in.{kind}", table)
            run(place, f"in.{kind}", "-o", f"out.{kind}", *plan)
            found[kind] = bits(READ[kind](place / f"out.{kind}"))
            run(place, "in.jsonl", "-o", f"converted.{kind}", *plan)
            if kind != "json":  # what is converted to .json is lines
                found[f"jsonl to {kind}"] = bits(READ[kind](place / f"converted.{kind}"))
            shutil.copy(place / f"in.{kind}", place / f"here.{kind}")
            run(place, f"here.{kind}", "--in-place", *plan)
            found[f"{kind} in place"] = bits(READ[kind](place / f"here.{kind}"))
        text = lines(table).decode()
        found["standard input"] = bits(_of_lines(run(place, "-", *plan, stdin=text).encode()))
        if order is None and plan in ALONE:
            streamed = adv("compute", "-", "--stream", "-g", "prompt_id", "-q", *plan, stdin=text)
            assert (streamed.status, streamed.err) == (0, ""), streamed
            found["stream"] = bits(_of_lines(streamed.out.encode()))
        found["shards"] = bits(sharded(place, table, *plan))
        if order is None:
            found["lists"] = bits(_of_lines(long(place, table, *plan)))
    options: dict[str, Any] = dict(zip([word.removeprefix("--") for word in plan[::2]], plan[1::2], strict=True))
    found["Python"] = bits(grpo_cli.advantages(pl.DataFrame(table), **options).to_list())
    different = [name for name, values in found.items() if values != found["jsonl"]]
    assert not different, (plan, different)


def sharded(place: Path, table: Table, *plan: str) -> list[float]:
    """The advantages where the rows are cut anywhere into three files."""
    (place / "shards").mkdir()
    third = -(-len(table) // 3)
    names = []
    for at in range(0, len(table), third):
        names.append(f"{at}.parquet")
        pl.DataFrame(table[at : at + third]).write_parquet(place / "shards" / names[-1])
    run(place, "shards", "-o", "shards.out/", "--batch-by", "input", *plan)
    return [one for name in names for one in pl.read_parquet(place / "shards.out" / name)["advantage"]]


def long(place: Path, table: Table, *plan: str) -> bytes:
    """What --long writes of a record for each group, which has lists."""
    records: dict[Any, Row] = {}
    for row in table:
        record = records.setdefault(
            row["prompt_id"], {"prompt": str(row["prompt_id"]), "completions": [], "rewards": []}
        )
        record["completions"].append(row["text"])
        record["rewards"].append(row["reward"])
    (place / "lists.jsonl").write_bytes(lines(list(records.values())))
    run(place, "lists.jsonl", "--long", "-o", "long.jsonl", *plan)
    return (place / "long.jsonl").read_bytes()


# --- woven Parquet -----------------------------------------------------------------------------------------------


def by_duckdb(path: Path) -> dict[str, list[Any]]:
    return duckdb.read_parquet(str(path)).to_arrow_table().to_pydict()  # type: ignore[no-any-return]


def by_datafusion(path: Path) -> dict[str, list[Any]]:
    context = pytest.importorskip("datafusion").SessionContext()
    return context.read_parquet(str(path)).to_arrow_table().to_pydict()  # type: ignore[no-any-return]


def by_fastparquet(path: Path) -> dict[str, list[Any]]:
    frame = pytest.importorskip("fastparquet").ParquetFile(str(path)).to_pandas()
    return {name: frame[name].tolist() for name in frame.columns}


READERS: Final[dict[str, Callable[[Path], dict[str, list[Any]]]]] = {
    "polars": lambda path: pl.read_parquet(path).to_dict(as_series=False),
    "pyarrow": lambda path: pq.read_table(path).to_pydict(),
    "duckdb": by_duckdb,
    "datafusion": by_datafusion,
    "fastparquet": by_fastparquet,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", READERS)
@given(table=tables())
@examples(10)
def test_woven_parquet_is_read_with_the_same_bits_by_every_reader(reader: str, table: Table) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        _parquet(place / "in.parquet", table)
        run(place, "in.parquet", "-o", "out.parquet")
        run(place, "in.parquet", "--in-place", "--facts")
        WRITE["jsonl"](place / "in.jsonl", table)
        run(place, "in.jsonl", "-o", "out.jsonl")
        wanted = bits(READ["jsonl"](place / "out.jsonl"))
        for path in (place / "out.parquet", place / "in.parquet"):
            found = READERS[reader](path)
            assert bits(found["advantage"]) == wanted
            assert bits(found["reward"]) == bits([row["reward"] for row in table])
            assert all(found[name] == [row[name] for row in table] for name in ("prompt_id", "text"))
