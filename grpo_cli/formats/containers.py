"""Files that hold their rows in another container than text, as JSON: Inspect archives, SQLite databases, tables of W&B and MLflow.

They are read only. Each function gives the text that stands for the file; `torch_file` has the one for `.pt`.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import struct
import zipfile
import zlib
from contextlib import closing
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import natural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from grpo_cli.files.inputs import Input

_ZIP: Final = b"PK\x03\x04"  # at the beginning of an archive; its list of members is at the end
_HEADS: Final = ("_journal/start.json", "start.json", "results.json", "header.json")  # the last one has all of it
_TRACKIO: Final = frozenset({"run_name", "step", "metrics"})
_LISTED: Final = 8
_ZSTANDARD: Final = 93  # the method of a zip's member
_HEADER: Final = struct.Struct("<26xHH")  # that stands before its bytes: the lengths of what comes between
_CONVERT: Final = "inspect log convert --to json makes a log that can be read"


def line(row: Mapping[str, Any]) -> bytes:
    """A row as a line of JSON; bytes as base64, which is all that JSON can hold."""
    return json.dumps(row, default=_plain).encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(f"a {type(value).__name__}")


def archive(source: Input, handle: Any, what: str, cure: str) -> zipfile.ZipFile:
    """An open zip; DataError, with what cures it, where the file is none."""
    try:
        return zipfile.ZipFile(handle)
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        handle.seek(0)
        if handle.read(len(_ZIP)) == _ZIP:
            why, cure = "the end of the archive is missing", "was its writer stopped?"
        else:
            why = str(error).lower()
        raise DataError(f"{source.name}: not {what} that can be read: {why}", cure) from None


def inspect_log(source: Input) -> Iterator[bytes]:
    """An `.eval` archive as the JSON log that Inspect would write: what is known of the run, and the list of its samples."""
    with source.open() as handle, archive(source, handle, "an Inspect archive", _CONVERT) as found:
        names = list(dict.fromkeys(found.namelist()))
        head: dict[str, Any] = {}
        try:
            for name in _HEADS:
                head |= json.loads(_member(found, handle, name)) if name in names else {}
            head.pop("samples", None)
            yield b"{\n" + b"".join(b"%s: %s,\n" % (_json(key), _json(value)) for key, value in head.items())
            yield b'"samples": ['
            samples = [name for name in names if name.startswith("samples/") and name.endswith(".json")]
            for number, name in enumerate(sorted(samples, key=lambda name: natural(PurePosixPath(name)))):
                yield (b",\n" if number else b"\n") + _member(found, handle, name)
            yield b"\n]}\n"
        except (zipfile.BadZipFile, EOFError, ValueError, TypeError, NotImplementedError, RuntimeError) as error:
            raise DataError(f"{source.name}: cannot be unpacked: {str(error).lower()}", _CONVERT) from None


def _member(found: zipfile.ZipFile, handle: BinaryIO, name: str) -> bytes:
    """The content of a member; those packed by zstandard, as Inspect writes them now, only later releases of zipfile unpack."""
    import pyarrow as pa

    info = found.getinfo(name)
    if info.compress_type != _ZSTANDARD:
        return found.read(name)
    handle.seek(info.header_offset)
    head = handle.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(b"PK\3\4") or info.flag_bits & 1:
        raise zipfile.BadZipFile(f"{name} is encrypted or cut short")
    handle.seek(sum(_HEADER.unpack(head)), os.SEEK_CUR)  # its name, and what else is said of it
    packed = pa.BufferReader(handle.read(info.compress_size))
    try:
        content: bytes = pa.CompressedInputStream(packed, "zstd").read()
    except (pa.ArrowException, OSError) as error:
        raise zipfile.BadZipFile(str(error)) from None
    if zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 for file {name!r}")
    return content


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def database(source: Input) -> Iterator[bytes]:
    """The rows of a SQLite database: the tables and traces that Trackio logged, or the only table that there is.

    A copy is read: opening the file itself would leave files beside it while another process writes.
    """
    with TemporaryDirectory(prefix="grpo-adv.") as folder:
        copy = Path(folder) / "copy.db"
        with source.open() as handle, copy.open("wb") as sink:
            copyfileobj(handle, sink)
        log = Path(f"{source.path}-wal")  # what was written last may only be there
        if source.is_local and log.is_file():
            Path(f"{copy}-wal").write_bytes(log.read_bytes())
        try:
            with closing(sqlite3.connect(copy)) as opened:
                opened.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
                yield from _database_rows(source, opened)
        except sqlite3.Error as error:
            raise DataError(f"{source.name}: not a SQLite database that can be read: {error}") from None


def _database_rows(source: Input, opened: sqlite3.Connection) -> Iterator[bytes]:
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = [name for (name,) in opened.execute(names)]
    if "metrics" in tables:
        columns = {row[1] for row in opened.execute("PRAGMA table_info(metrics)")}
        if columns >= _TRACKIO:
            yield from _trackio_rows(source, opened)
            return
    if len(tables) != 1:
        listed = ", ".join(tables[:_LISTED]) or "none"
        raise DataError(f"{source.name}: holds {len(tables)} tables: {listed}", "write the rows of one as JSON lines")
    quoted = tables[0].replace('"', '""')
    rows = opened.execute(f'SELECT * FROM "{quoted}"')  # noqa: S608 - the name comes out of the database, quoted
    columns_there = [column[0] for column in rows.description]
    for row in rows:
        yield line(dict(zip(columns_there, row, strict=True)))


def _trackio_rows(source: Input, opened: sqlite3.Connection) -> Iterator[bytes]:
    """A line for each row of a logged table and for each trace, with its run and step; without any a line for each log."""
    logs = opened.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id")
    scalars, has_rows = [], False
    for number, (run, step, metrics) in enumerate(logs, 1):
        try:
            logged = dict(json.loads(metrics))
        except (ValueError, TypeError):
            raise DataError(f"{source.name}: row {number} of its metrics is no JSON object") from None
        around = {"run_name": run, "step": step}
        for name, value in logged.items():
            for row in _logged_rows(value):
                has_rows = True
                yield line({**around, "table": name, **row})
        if not has_rows:
            scalars.append({**around, **logged})
    if not has_rows:
        yield from map(line, scalars)


def _logged_rows(value: Any) -> list[dict[str, Any]]:
    """The rows of a logged value: of a table its records, of a trace its messages beside what is known of it."""
    values = value if isinstance(value, list) else [value]
    rows: list[dict[str, Any]] = []
    for one in values:
        kind = one.get("_type") if isinstance(one, dict) else None
        if kind == "trackio.table" and isinstance(one.get("_value"), list):
            rows += [row for row in one["_value"] if isinstance(row, dict)]
        elif kind == "trackio.trace":
            rows.append({**(one.get("metadata") or {}), "messages": one.get("messages")})
    return rows


def table(source: Input) -> Iterator[bytes]:
    """The rows of a table as W&B and MLflow write it: a list of columns, and a list of values for each row."""
    with source.open() as handle:
        try:
            found = json.load(handle)
        except ValueError as error:
            raise DataError(f"{source.name}: not JSON: {str(error).lower()}") from None
    columns = list(map(str, found["columns"]))
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        raise DataError(f"{source.name}: {twice[0]} is named twice in its columns", "name each column once")
    for number, row in enumerate(found.get("data") or (), 1):
        if not isinstance(row, list) or len(row) != len(columns):
            size = len(row) if isinstance(row, list) else "no"
            raise DataError(f"{source.name} row {number}: {size} values for {len(columns)} columns")
        yield line(dict(zip(columns, row, strict=True)))
