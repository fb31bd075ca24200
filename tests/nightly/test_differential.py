"""The same rows give the same bits, from every format and by every way that they can come in."""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

import grpo_cli
from tests.nightly.test_readers import by_datafusion, by_fastparquet
from tests.support.command import Done, adv
from tests.support.drawn import examples
from tests.support.jobs import rows_of, write
from tests.support.keys import FLAT, FORMS, JSON, wrapped

Row = dict[str, Any]
Table = list[Row]

# Text that every format can store: an empty cell of CSV is no text, and a line feed in a cell may change.
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


KINDS: Final = ("jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "tsv", "parquet", "arrow")


def advantages_in(path: Path) -> list[float | None]:
    return [row["advantage"] for row in rows_of(path, ["advantage"])]


def bits(values: Sequence[float | None]) -> bytes:
    """The bits of the numbers; NaN, which is null in JSON, has those of one NaN."""
    return struct.pack(f"<{len(values)}d", *(math.nan if one is None or one != one else one for one in values))  # noqa: PLR0124


def run(place: Path, *words: str, stdin: str = "") -> Done:
    done = adv("compute", *words, "-q", "--group-within", "input", cwd=place, stdin=stdin)
    assert (done.status, done.err) == (0, ""), done
    return done


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
        for kind in KINDS:
            write(place / f"in.{kind}", table)
            run(place, f"in.{kind}", "-o", f"out.{kind}", *plan)
            found[kind] = bits(advantages_in(place / f"out.{kind}"))
            run(place, "in.jsonl", "-o", f"converted.{kind}", *plan)
            if kind != "json":  # what is converted to .json is lines
                found[f"jsonl to {kind}"] = bits(advantages_in(place / f"converted.{kind}"))
            shutil.copy(place / f"in.{kind}", place / f"here.{kind}")
            run(place, f"here.{kind}", "--in-place", *plan)
            found[f"{kind} in place"] = bits(advantages_in(place / f"here.{kind}"))
        text = lines(table).decode()
        found["standard input"] = bits([row["advantage"] for row in run(place, "-", *plan, stdin=text).rows])
        if order is None and plan in ALONE:
            streamed = adv("compute", "-", "--stream", "-g", "prompt_id", "-q", *plan, stdin=text)
            assert (streamed.status, streamed.err) == (0, ""), streamed
            found["stream"] = bits([row["advantage"] for row in streamed.rows])
        found["shards"] = bits(sharded(place, table, *plan))
        if order is None:
            found["lists"] = bits(advantages_in(long(place, table, *plan)))
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


def long(place: Path, table: Table, *plan: str) -> Path:
    """What --long writes of a record for each group, which has lists."""
    records: dict[Any, Row] = {}
    for row in table:
        empty = {"prompt": str(row["prompt_id"]), "completions": [], "rewards": []}
        record = records.setdefault(row["prompt_id"], empty)
        record["completions"].append(row["text"])
        record["rewards"].append(row["reward"])
    write(place / "lists.jsonl", list(records.values()))
    run(place, "lists.jsonl", "--long", "-o", "long.jsonl", *plan)
    return place / "long.jsonl"


# --- keys of every type -------------------------------------------------------------------------------------------


Keyed = tuple[pa.DataType | None, Any, Any]  # the type (none: of JSON), the value, and what it is


def keys_of(form: str) -> list[Keyed]:
    """Every key of `tests.support.keys` in a form; what cannot be written in it is left out."""
    there: list[Keyed] = [
        (*FORMS[form](kind, value), wrapped(form, what))
        for kind, value, what in FLAT
        if form == "flat" or kind != pa.string_view()  # pyarrow cannot write it there
    ]
    return [*there, *((None, FORMS[form](pa.string(), value)[1], wrapped(form, what)) for value, what in JSON)]


def of_keys(path: Path, kind: pa.DataType | None, rows: Sequence[tuple[Any, float]]) -> Path:
    """A file of keys of one type with their rewards; the suffix of a table depends on the path's own."""
    if kind is None:
        path = path.with_suffix(".jsonl")
        return write(path, [{"key": key, "reward": reward} for key, reward in rows])
    table = pa.table({"key": pa.array([key for key, _ in rows], kind), "reward": [reward for _, reward in rows]})
    pq.write_table(table, path) if path.suffix == ".parquet" else feather.write_feather(table, path)
    return path


def of_equal_keys(place: Path, paths: Sequence[Path], rows: Sequence[tuple[Any, float]]) -> None:
    """The advantages of files are those of the same rewards in one file, under numbers that a plain loop gives the keys."""
    known: list[Any] = []
    plain: Table = []
    for what, reward in rows:
        if what not in known:
            known.append(what)
        plain.append({"prompt_id": f"g{known.index(what)}", "reward": reward})
    write(place / "plain.jsonl", plain)
    run(place, "plain.jsonl", "-o", "plain.out.jsonl", "--force")
    run(place, *[path.name for path in paths], "-g", "key", "-o", "keyed/")
    found = [value for path in paths for value in advantages_in(place / "keyed" / path.name)]
    assert bits(found) == bits(advantages_in(place / "plain.out.jsonl"))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("form", FORMS)
def test_files_of_keys_of_every_type_have_the_bits_of_their_groups(form: str, suffix: str, tmp_path: Path) -> None:
    paths, rows = [], list[tuple[Any, float]]()
    for at, (kind, value, what) in enumerate(keys_of(form)):
        rewards = [float(at % 7), float(at % 3) + 0.1]
        paths.append(of_keys(tmp_path / f"{at:03}.{suffix}", kind, [(value, reward) for reward in rewards]))
        rows += [(what, reward) for reward in rewards]
    of_equal_keys(tmp_path, paths, rows)


@given(data=st.data(), form=st.sampled_from(list(FORMS)), rewards=st.lists(REWARDS, min_size=4, max_size=9))
@examples(12)
def test_two_keys_in_one_file_and_in_two_have_the_bits_of_their_groups(
    data: st.DataObject, form: str, rewards: list[float]
) -> None:
    keys = keys_of(form)
    chosen = [data.draw(st.sampled_from(keys)) for _ in range(2)]
    of_one_file = [key for key in keys if key[0] == chosen[0][0]]  # they have one type
    together = [chosen[0], data.draw(st.sampled_from(of_one_file))]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        suffix = data.draw(st.sampled_from(["parquet", "arrow"]))
        halves = [rewards[: len(rewards) // 2], rewards[len(rewards) // 2 :]]
        paths = [
            of_keys(place / f"{at}.{suffix}", kind, [(value, reward) for reward in half])
            for at, ((kind, value, _), half) in enumerate(zip(chosen, halves, strict=True))
        ]
        of_equal_keys(place, paths, [(key[2], one) for key, half in zip(chosen, halves, strict=True) for one in half])
        turns = [(together[at % 2], reward) for at, reward in enumerate(rewards)]
        path = of_keys(place / f"both.{suffix}", together[0][0], [(key[1], reward) for key, reward in turns])
        of_equal_keys(place, [path], [(key[2], reward) for key, reward in turns])


NESTED: Final = [kind for kind in KINDS if kind not in {"csv", "tsv"}]  # they have fields in fields, and lists


@given(table=tables(), plan=st.sampled_from(PLANS))
@examples(4)
def test_a_key_inside_of_another_column_gives_the_same_bits(table: Table, plan: tuple[str, ...]) -> None:
    inside = [
        {"about": {"task": {"id": row["prompt_id"]}, "n": at}, "reward": row["reward"]} for at, row in enumerate(table)
    ]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write(place / "flat.jsonl", table)
        run(place, "flat.jsonl", "-o", "flat.out.jsonl", *plan)
        wanted = bits(advantages_in(place / "flat.out.jsonl"))
        for kind in NESTED:
            write(place / f"in.{kind}", inside)
            run(place, f"in.{kind}", "-g", "about.task.id", "-o", f"out.{kind}", *plan)
            assert bits(advantages_in(place / f"out.{kind}")) == wanted, kind


# --- --pick and --per-token ------------------------------------------------------------------------------------------


PICKS: Final = (
    *(("select", "--per-group", "2", "--pick", pick) for pick in ("best", "worst", "spread", "random")),
    ("export", "--to", "sft", "--pick", "best"), ("export", "--to", "sft", "--pick", "all-above"),
)  # fmt: skip


@given(table=tables(), picking=st.sampled_from(PICKS))
@examples(6)
def test_the_same_rows_are_picked_from_every_format(table: Table, picking: tuple[str, ...]) -> None:
    rows = [
        {"prompt_id": key, "prompt": f"p{key}", "completion": f"{at} {text}", "reward": reward}
        for at, (key, reward, text) in enumerate(map(dict.values, table))
    ]
    command, *options = picking
    with tempfile.TemporaryDirectory() as name:
        place, found = Path(name), dict[str, Any]()
        for kind in KINDS:
            write(place / f"in.{kind}", rows)
            out = f"out.{kind}" if command == "select" and kind != "json" else f"out.{kind}.jsonl"
            done = adv(command, f"in.{kind}", *options, "--group-within", "input", "-o", out, "-q", cwd=place)
            found[kind] = done.status, rows_of(place / out) if done.status == 0 else None
        assert found["jsonl"][0] in {0, 1}, done  # 1: no group has rows to pick
        different = [kind for kind, rows in found.items() if rows != found["jsonl"]]
        assert not different, (picking, {kind: found[kind] for kind in (different[0], "jsonl")})


@given(table=tables(), data=st.data(), plan=st.sampled_from([*ALONE, ("--method", "dr-grpo")]))
@examples(4)
def test_every_format_gives_tokens_the_same_bits(table: Table, data: st.DataObject, plan: tuple[str, ...]) -> None:
    counts = [data.draw(st.integers(0, 5)) for _ in table]
    rows = [
        {**row, "n": count, "ids": list(range(count)), "mask": [at % 2 for at in range(count)]}
        for row, count in zip(table, counts, strict=True)
    ]
    rows[0].update(n=2, ids=[7, 8], mask=[0, 1])  # a column of empty lists has no type
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for kind in NESTED:
            write(place / f"in.{kind}", rows)
        run(place, "in.jsonl", "-o", "rows.jsonl", *plan)
        each = advantages_in(place / "rows.jsonl")
        all_tokens = [[one] * row["n"] for one, row in zip(each, rows, strict=True)]
        own_tokens = [[one if own else 0.0 for own in row["mask"]] for one, row in zip(each, rows, strict=True)]
        lists = {("--length-column", "n"): all_tokens, ("--tokens", "ids"): all_tokens, ("--mask", "mask"): own_tokens}
        for words, wanted in lists.items():
            for kind in NESTED:
                run(place, f"in.{kind}", "-o", f"out.{kind}", "--force", "--per-token", *words, *plan)
                found = [row["advantage"] for row in rows_of(place / f"out.{kind}")]
                assert list(map(bits, found)) == list(map(bits, wanted)), (kind, words)


# --- Parquet with a new column -----------------------------------------------------------------------------------------------


READERS: Final[dict[str, Callable[[Path], dict[str, list[Any]]]]] = {
    "polars": lambda path: pl.read_parquet(path).to_dict(as_series=False),
    "pyarrow": lambda path: pq.read_table(path).to_pydict(),
    "duckdb": lambda path: duckdb.read_parquet(str(path)).to_arrow_table().to_pydict(),
    "datafusion": by_datafusion,
    "fastparquet": by_fastparquet,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", READERS)
@given(table=tables())
@examples(10)
def test_every_reader_reads_the_same_bits_from_parquet_with_a_new_column(reader: str, table: Table) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write(place / "in.parquet", table)
        run(place, "in.parquet", "-o", "out.parquet")
        run(place, "in.parquet", "--in-place", "--facts")
        write(place / "in.jsonl", table)
        run(place, "in.jsonl", "-o", "out.jsonl")
        wanted = bits(advantages_in(place / "out.jsonl"))
        for path in (place / "out.parquet", place / "in.parquet"):
            found = READERS[reader](path)
            assert bits(found["advantage"]) == wanted
            assert bits(found["reward"]) == bits([row["reward"] for row in table])
            assert all(found[name] == [row[name] for row in table] for name in ("prompt_id", "text"))
