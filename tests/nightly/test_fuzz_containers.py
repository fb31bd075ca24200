"""Archives, packed lines, databases and saved data sets that are spoiled: the values that were there, or one line of refusal.

Each test goes on for FUZZ_SECONDS and begins at FUZZ_SEED, as in `test_fuzz`. Archives and gzip have checksums, so every answer must be that
of the intact file. SQLite has none: its own library, which reads the same files, says what is right.
"""

from __future__ import annotations

import gzip
import json
import pickle
import random
import shutil
import sqlite3
import subprocess
import sys
import time
import zipfile
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.nightly.test_fuzz import refused_in_one_line, seeds, spoiled
from tests.reference.test_bad_inputs import forget_peak, peak
from tests.support.bad_files import pickled_text, tensor, torch_zip, zipped
from tests.support.command import adv
from tests.unit.formats.test_containers import with_zstandard

SECONDS: Final = 5  # of the processor, for one file
ZSTANDARD: Final = 93  # the method of a member that `zipfile` may not read
BYTES: Final = 500 << 20  # more than there were before it
ROWS: Final[list[dict[str, Any]]] = [
    {"prompt_id": k // 4, "reward": k % 3, "text": f"é text {k} " * (1 + k % 5), "list": list(range(k % 4))}
    for k in range(24)
]
LINES: Final = "".join(f"{json.dumps(row)}\n" for row in ROWS).encode()
OPTIONS: Final = ["--method", "rloo", "--group", "prompt_id", "--reward", "reward", "--force", "-q"]


def answer(out: Path, *words: str) -> list[str] | None:
    """The values of a run, in any order; None if it is refused as it has to be."""
    out.unlink(missing_ok=True)
    start = time.process_time()
    had = forget_peak()
    done = adv(*words, "-o", str(out))
    assert peak() - had < BYTES
    assert time.process_time() - start < SECONDS
    if done.status:
        assert refused_in_one_line(done) and done.err.count("\n") == 1, done
        assert done.err.removesuffix("\n").isprintable(), done
        assert not out.exists()
        return None
    found = out.read_text(encoding="utf-8")
    rows = json.loads(found)["samples"] if out.suffix == ".json" else map(json.loads, found.splitlines())
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


# --- archives and packed lines: a checksum for every byte -----------------------------------------------------------


def eval_members() -> dict[str, bytes]:
    head = {"version": 2, "status": "success", "eval": {"task": "t"}, "plan": {}}
    members = {"header.json": json.dumps(head).encode()}
    for k, row in enumerate(ROWS):
        scores = {"match": {"value": row["reward"]}}
        sample = {"id": row["prompt_id"], "epoch": k % 4, "input": row["text"], "scores": scores}
        members[f"samples/{row['prompt_id']}_epoch_{k % 4}.json"] = json.dumps(sample).encode()
    return members


def torch_columns() -> bytes:
    numbers = b"".join((k % 3).to_bytes(8, "little") for k in range(24))
    keys = b"](" + b"".join(b"K%c" % (k // 4) for k in range(24)) + b"e"
    columns = pickled_text(b"prompt_id") + keys + pickled_text(b"reward") + tensor(24)
    return torch_zip(b"\x80\x02}(" + columns + b"u.", numbers)


CHECKED: Final[dict[str, tuple[str, Callable[[], bytes]]]] = {
    "eval": ("in.eval", lambda: zipped(dict(eval_members()))),
    "eval of zstandard": ("in.eval", lambda: zipped(dict(eval_members()), zipfile.ZIP_STORED)),
    "pt of rows": ("in.pt", lambda: torch_zip(pickle.dumps({"samples": ROWS, "rollout_id": 3}, 2))),
    "pt of columns": ("in.pt", torch_columns),
    "gz": ("in.jsonl.gz", lambda: gzip.compress(LINES, mtime=0)),
    "gz of members": ("in.jsonl.gz", lambda: gzip.compress(LINES[:700], mtime=0) + gzip.compress(LINES[700:], mtime=0)),
}


def torn(right: bytes, draw: random.Random) -> bytes:
    """The same bytes with a part of them lost, twice there, of zeros, elsewhere, or with something behind them."""
    first, last = sorted(draw.randrange(len(right)) for _ in range(2))
    part = right[first:last]
    return draw.choice([
        right[:first],
        right[:first] + right[last:],
        right[:last] + part + right[last:],
        right[:first] + bytes(len(part)) + right[last:],
        right[last:] + part + right[:first],
        right + part,
        part + right,
    ])  # fmt: skip


def wrong_sizes(right: bytes, draw: random.Random) -> bytes:
    """A size, an offset, a method or a checksum that a zip states is another one."""
    wrong = bytearray(right)
    marks = [at for mark in (b"PK\1\2", b"PK\3\4", b"PK\5\6") for at in range(len(right)) if right.startswith(mark, at)]
    for _ in range(draw.choice([1, 2])):
        if marks:
            at = draw.choice(marks) + draw.randrange(4, 46)
            wrong[at : at + 4] = draw.choice([bytes(4), b"\xff" * 4, draw.randbytes(4), right[at : at + 3] + b"\x7f"])
    return bytes(wrong[: len(right)])


def other_members(right: bytes, draw: random.Random) -> bytes:
    """A zip in which two members have changed their places, or one is there twice."""
    if not right.startswith(b"PK"):
        return right
    from io import BytesIO

    with zipfile.ZipFile(BytesIO(right)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist() if info.compress_type != ZSTANDARD]
    if not members:
        return right
    draw.shuffle(members)
    sink = BytesIO()
    with pytest.MonkeyPatch.context() as patch, zipfile.ZipFile(sink, "w") as archive:
        patch.setattr(zipfile.ZipFile, "_writecheck", lambda *_: None)  # it would warn of the second one
        for info, content in [*members, *draw.sample(members, draw.randrange(2))]:
            archive.writestr(info.filename, content, info.compress_type)
    return sink.getvalue()


@pytest.mark.parametrize("kind", CHECKED)
def test_a_spoiled_container_with_checksums_gives_the_values_of_the_intact_one_or_is_refused(
    kind: str, tmp_path: Path
) -> None:
    name, made = CHECKED[kind]
    path = tmp_path / name
    out = tmp_path / ("out.json" if name == "in.eval" else "out.jsonl")
    options = ["--method", "rloo", "--group", "id", "--force", "-q"] if name == "in.eval" else OPTIONS
    words = ["compute", str(path), *options]
    path.write_bytes(made())
    if kind == "eval of zstandard":
        with_zstandard(path)
    right = path.read_bytes()
    expected = answer(out, *words)
    assert expected is not None
    assert len(expected) == len(ROWS)
    refused = 0
    for draw in seeds():
        path.write_bytes(draw.choice([spoiled, torn, wrong_sizes, other_members])(right, draw))
        found = answer(out, *words)
        assert found in (None, expected)
        refused += found is None
    assert refused


# --- databases ------------------------------------------------------------------------------------------------------

WRITER: Final = """
import os, sqlite3, sys
writer = sqlite3.connect(sys.argv[1], isolation_level=None)
writer.execute("PRAGMA page_size=512")
writer.execute(f"PRAGMA journal_mode={sys.argv[2]}")
writer.execute("PRAGMA cache_size=1")
writer.execute("CREATE TABLE r (prompt_id INTEGER, reward REAL, text TEXT)")
writer.executemany("INSERT INTO r VALUES (?, ?, ?)", [(k // 4, k % 3, "x" * (50 * k % 400)) for k in range(60)])
if sys.argv[3] == "stopped":
    writer.execute("BEGIN")
    writer.execute("UPDATE r SET reward = 7.0")
    os._exit(0)
"""


def as_json(row: Any) -> str:
    """A row of the library as JSON, bytes being their base64."""
    return json.dumps(row, default=lambda value: b64encode(value).decode())


def as_sqlite_reads(folder: Path, name: str, copy: Path) -> list[Any] | None:
    """The rows that the library itself finds in a copy; None where it finds none."""
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    try:
        with closing(sqlite3.connect(copy / name)) as opened:
            opened.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            return opened.execute("SELECT prompt_id, reward, text FROM r").fetchall() or None
    except (sqlite3.Error, OverflowError):
        return None
    finally:
        shutil.rmtree(copy)


@pytest.mark.parametrize("state", ["closed", "stopped"])
@pytest.mark.parametrize("mode", ["DELETE", "PERSIST", "WAL"])
def test_a_spoiled_database_is_read_as_sqlite_reads_it_or_refused(mode: str, state: str, tmp_path: Path) -> None:
    folder = tmp_path / "db"
    out = tmp_path / "out.jsonl"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", WRITER, str(folder / "in.db"), mode, state], check=True)
    right = {path.name: path.read_bytes() for path in folder.iterdir() if path.stat().st_size}
    read = 0
    for draw in seeds():
        for path in folder.iterdir():
            path.unlink()
        for name, content in right.items():
            (folder / name).write_bytes(content)
        name = draw.choice(sorted(right))
        (folder / name).write_bytes(draw.choice([spoiled, torn])(right[name], draw))
        expected = as_sqlite_reads(folder, "in.db", tmp_path / "copy")
        found = answer(out, "compute", str(folder / "in.db"), *OPTIONS)
        if found is not None:
            rows = [json.loads(row) for row in found]
            values = [[row[name] for name in ("prompt_id", "reward", "text")] for row in rows]
            assert expected is not None
            assert sorted(map(json.dumps, values)) == sorted(map(as_json, expected))
            read += 1
    assert read or (state == "stopped" and mode != "WAL")  # a journal of an open transaction is refused


# --- saved data sets ------------------------------------------------------------------------------------------------


def test_a_spoiled_saved_data_set_gives_all_of_its_rows_or_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    out = tmp_path / "out.jsonl"
    shards = [pa.Table.from_pylist(ROWS[at : at + 8]) for at in (0, 8, 16)]
    names = [f"data-{at:05d}-of-00003.arrow" for at in range(3)]
    state = json.dumps({"_data_files": [{"filename": name} for name in names], "_split": "train"}).encode()
    contents = {"dataset_info.json": b"{}", "state.json": state}
    for name, shard in zip(names, shards, strict=True):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, shard.schema) as writer:
            writer.write_table(shard)
        contents[name] = sink.getvalue().to_pybytes()

    def write(changed: dict[str, bytes]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in changed.items():
            (folder / name).write_bytes(content)

    write(contents)
    texts = ["--prompt", "prompt_id", "--response", "text"]
    words = ["export", str(folder), "--to", "weights", *texts, *OPTIONS, "--group-within", "input"]
    expected = answer(out, *words)
    assert expected is not None
    assert len(expected) == len(ROWS)
    refused = 0
    for draw in seeds():
        changed = dict(contents)
        one, other = draw.sample(names, 2)
        match draw.randrange(6):
            case 0:
                del changed[one]
            case 1:
                changed[one], changed[other] = changed[other], changed[one]
            case 2:
                changed[f"copy-of-{one}"] = changed[one]
            case 3:
                changed["cache-123.arrow"] = changed[one]
            case 4:
                changed["dataset_info.json"] = spoiled(state, draw)
            case _:
                changed[one] = changed[one][: draw.randrange(len(changed[one]))]
        write(changed)
        found = answer(out, *words)
        assert found in (None, expected)
        refused += found is None
    assert refused
