"""Several runs write one output at once, files have holes, and Parquet is encrypted: whole files, or one line."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from tests.support.command import Done, adv, files, process, ran
from tests.support.drawn import paired
from tests.support.jobs import frame, rows_of, write
from tests.unit.formats.test_splice import OpenKeys

WRITERS = int(os.environ.get("WRITERS", "3"))  # at once
ROUNDS = int(os.environ.get("WRITER_ROUNDS", "1"))


@pytest.fixture(autouse=True)
def _small(place: Path) -> None:
    write(place / "0.jsonl", [{"prompt_id": row // 4, "reward": row % 3} for row in range(8)])


@pytest.fixture
def large() -> None:
    """A file for each writer, in two formats."""
    rewards = [0, 1, 2, 1] * 500
    for at in range(WRITERS):
        rows = frame(rewards, range(2000), of=[at] * 2000, text=["x" * 500] * 2000).with_columns(
            pl.col("prompt_id") // 4
        )
        rows.write_ndjson(f"{at}.jsonl")
        rows.write_parquet(f"{at}.parquet", row_group_size=3)


def at_once(line: str) -> list[Done]:
    """What the writers say who run this line at once, each with its number."""
    with ThreadPoolExecutor(WRITERS) as pool:
        return [*pool.map(lambda at: process(line.format(at), "-q", timeout=100), range(WRITERS))]


def is_one_line(done: Done) -> bool:
    return done.err.startswith("error: ") and done.err.count("\n") == 1


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("suffix", "force"), paired(["jsonl", "parquet", "jsonl.gz"], ["", " --force"]))
def test_of_several_runs_one_output_is_that_of_one_of_them(suffix: str, force: str) -> None:
    kind = suffix.partition(".")[0]
    out = Path(f"out.{suffix}")
    whole = []
    for at in range(WRITERS):
        ran(f"compute {at}.{kind} -o alone.{at}.{suffix}")
        whole.append(Path(f"alone.{at}.{suffix}").read_bytes())
    for _ in range(ROUNDS):
        done = at_once(f"compute {{}}.{kind} -o {out}{force}")
        bad = [each for each in done if each.status]
        assert len(bad) == (0 if force else WRITERS - 1), done
        for each in bad:
            assert is_one_line(each)
            assert "exists" in each.err
        assert out.read_bytes() in whole
        assert not [*Path().glob(".*.tmp")]
        out.unlink()


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_of_several_runs_in_place_none_is_lost_in_silence(kind: str) -> None:
    rows = rows_of(f"0.{kind}")
    for _ in range(ROUNDS):
        write(f"in.{kind}", rows)
        done = at_once(f"compute in.{kind} --in-place --column a{{}}")
        columns = {f"a{at}" for at, each in enumerate(done) if each.status == 0}
        assert columns and all(is_one_line(each) for each in done if each.status), done
        after = rows_of(f"in.{kind}")
        assert after[0].keys() == rows[0].keys() | columns, done
        assert [{name: row[name] for name in rows[0]} for row in after] == rows
        assert not [*Path().glob(".*.tmp")]


# --- holes -----------------------------------------------------------------------------------------------------


def hole(name: str) -> None:
    """A file of a terabyte of nothing."""
    Path(name).touch()
    os.truncate(name, 1 << 40)


@pytest.mark.parametrize(
    "name", ["in.jsonl", "in.json", "in.csv", "in.parquet", "in.arrow", "in.jsonl.gz", "in.db", "in.pt"]
)
def test_a_file_that_is_one_large_hole_is_refused(name: str) -> None:
    hole(name)
    done = process(f"compute {name}", timeout=100)
    assert (done.status, is_one_line(done)) == (1, True), done


def test_an_output_with_a_hole_is_replaced_as_a_whole() -> None:
    hole("out.jsonl")
    ran("compute 0.jsonl -o out.jsonl --force")
    assert len(rows_of("out.jsonl")) == 8
    assert Path("out.jsonl").stat().st_size < 1 << 22


# --- encrypted Parquet -------------------------------------------------------------------------------------------


LINES = [
    "compute in.parquet", "compute in.parquet --in-place", "inspect in.parquet", "select in.parquet --limit 1", "audit in.parquet",
    "export in.parquet --to prompts --prompt prompt_id -o out.jsonl", "report in.parquet -o r.html", "schemas in.parquet",
    "add 0.jsonl --from in.parquet -o out.jsonl", "add in.parquet --from 0.jsonl -o out.parquet", "verify in.parquet --against in.parquet",
    "inspect 0.jsonl --against in.parquet", "compute . -o out/ --group-within file",
]  # fmt: skip


@pytest.mark.parametrize(("line", "plaintext_footer"), paired(LINES, [True, False]))
def test_encrypted_columns_are_said_by_every_command(line: str, *, plaintext_footer: bool) -> None:
    keys = encryption.EncryptionConfiguration("f", column_keys={"c": ["reward"]}, plaintext_footer=plaintext_footer)
    locks = encryption.CryptoFactory(OpenKeys).file_encryption_properties(encryption.KmsConnectionConfig(), keys)
    pq.write_table(frame([0, 1, 1, 0]).to_arrow(), "in.parquet", encryption_properties=locks)
    before = files()
    done = adv(line)
    assert (done.status, is_one_line(done), "encrypted" in done.err) == (1, True, True), done
    assert files() == before
