"""Containers other than text, read as JSON: Inspect archives, SQLite databases, tables of W&B and MLflow.

They are read-only. Each function returns JSON text instead of the file; `torch_file` does so for `.pt`. The unpacked
size is bounded (`Budget`): a few bytes can unpack to more than any machine has.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from grpo_cli.errors import DataError, InputChanged, Way
from grpo_cli.files.inputs import Input, natural
from grpo_cli.files.named import inside, opened
from grpo_cli.values.paths import refuse_doubled

_ZIP = b"PK\x03\x04"  # at the beginning of an archive; its list of members is at the end
_HEADS = ("_journal/start.json", "start.json", "results.json", "header.json")  # the last one has all of it
_TRACKIO = frozenset({"run_name", "step", "metrics"})
_LISTED = 8  # tables of a database in a message
_ZSTANDARD = 93  # the method of a zip's member
_METHODS = {
    zipfile.ZIP_STORED,
    zipfile.ZIP_DEFLATED,
    _ZSTANDARD,
}  # others may need gigabytes at their first byte
# The unpacked size may be this many times the file: more than any log or dump needs, far less than a bomb.
_TIMES = 200
_OF_LIST = 64  # bytes that Python needs for a list or an object
_OF_ITEM = 40  # bytes that Python needs for each of its items
_SQLITE = b"SQLite format 3\0"
_TRIES = 3  # attempts to copy a database between two commits of its writer
_PAUSE = 0.1  # seconds between these attempts
_LAST = 22 + 65_535  # bytes of the end of a zip, with the longest comment
_COUNT = struct.Struct("<10xH")  # the number of members, in the last record of a zip
_MANY = 65_535  # this number of members means that the real one is stored elsewhere
_UTF8 = 0x800  # the flag of a name in this encoding
_HEADER = struct.Struct("<26xHH")  # before the bytes of a member: the lengths of its name and of its extra field
_CONVERT = "convert it first: inspect log convert --to json"
# Errors of zipfile and of the decompressors for a broken file.
BROKEN = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, MemoryError, NotImplementedError, OSError, OverflowError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip


class Budget:
    """How many bytes a container may unpack to: `--max-line` for a value, and a multiple of the file in total."""

    def __init__(self, source: Input) -> None:
        self._name, self._most = source.name, source.max_line
        self._left = max(source.max_line, _TIMES * source.pin.size)

    def allow(self, size: int, what: str) -> None:
        """DataError if a value takes more bytes than allowed."""
        if size > self._most:
            raise self._too_much(what, f"{self._most:,} bytes")

    def spend(self, size: int, what: str) -> None:
        """Count bytes that are about to be unpacked; DataError if they are too many, by themselves or in total."""
        self.allow(size, what)
        self._left -= size
        if self._left < 0:
            raise self._too_much(what, f"{_TIMES} times the size of the file")

    def _too_much(self, what: str, most: str) -> DataError:
        return DataError(
            f"{self._name}: {what} takes more than {most}", Way("--max-line", why="reads more, in memory", fill="BYTES")
        )


def plain(value: Any) -> Any:
    """A stand-in for a value that JSON does not have: for bytes, their base64."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(f"a {type(value).__name__}")


def line(row: Mapping[str, Any], default: Callable[[Any], Any] = plain) -> bytes:
    """A row as a line of JSON."""
    return json.dumps(row, default=default).encode() + b"\n"


@contextmanager
def in_one_line(errors: tuple[type[Exception], ...], what: str, cure: str = "") -> Iterator[None]:
    """Turn these errors into a DataError that says what is wrong, and why."""
    try:
        yield
    except DataError:
        raise
    except errors as error:
        raise DataError(f"{what}: {str(error).lower()}", cure) from None


def archive(source: Input, handle: Any, what: str, cure: str) -> zipfile.ZipFile:
    """An open zip; DataError, with a cure, if the file is not a zip."""
    try:
        found = zipfile.ZipFile(handle)
    except BROKEN as error:
        handle.seek(0)
        if handle.read(len(_ZIP)) == _ZIP:
            why = "the end of the archive is missing"
            cure = "was its writer stopped?"
        else:
            why = str(error).lower()
        raise DataError(f"{source.name}: not readable as {what}: {why}", cure) from None
    with in_one_line(BROKEN, f"{source.name}: cannot be unpacked", cure):
        _refuse_lost_members(handle, found.infolist())
    return found


def _refuse_lost_members(handle: Any, found: list[zipfile.ZipInfo]) -> None:
    """Compare the number of members with the number at the end of the file, and each name with the name in front of its bytes.

    zipfile checks members only when they are read, and a member with a changed name is not read.
    """
    handle.seek(0, os.SEEK_END)
    handle.seek(max(handle.tell() - _LAST, 0))
    end = handle.read()
    (stated,) = _COUNT.unpack_from(end, end.rfind(b"PK\5\6"))
    if stated not in {_MANY, len(found) % (_MANY + 1)}:
        raise zipfile.BadZipFile(f"{len(found)} of {stated} members are listed")
    for info in found:
        handle.seek(info.header_offset)
        size, _ = _HEADER.unpack(handle.read(_HEADER.size))
        written = handle.read(size).decode("utf-8" if info.flag_bits & _UTF8 else "cp437")
        if written != info.orig_filename:
            raise zipfile.BadZipFile(f"{info.orig_filename!r} is named {written!r} in front of its bytes")


def inspect_log(source: Input) -> Iterator[bytes]:
    """An `.eval` archive as the JSON log that Inspect would write: facts of the run, and the list of its samples."""
    with source.open() as handle, archive(source, handle, "an Inspect archive", _CONVERT) as found:
        names = dict.fromkeys(found.namelist())
        budget = Budget(source)
        head: dict[str, Any] = {}
        samples = [name for name in names if name.startswith("samples/") and name.endswith(".json")]
        with in_one_line(BROKEN, f"{source.name}: cannot be unpacked", _CONVERT):
            for name in (*_HEADS, *samples):  # a member is never read beyond its stated size
                budget.spend(found.getinfo(name).file_size if name in names else 0, name)
            for name in _HEADS:
                head |= _object(found, handle, name, budget)[1] if name in names else {}
            head.pop("samples", None)
            yield b"{\n" + b"".join(
                f"{json.dumps(key)}: {json.dumps(value)},\n".encode() for key, value in head.items()
            )
            yield b'"samples": ['
            for number, name in enumerate(sorted(samples, key=lambda name: natural(PurePosixPath(name)))):
                yield (b",\n" if number else b"\n") + _object(found, handle, name, budget)[0]
            yield b"\n]}\n"


def _object(found: zipfile.ZipFile, handle: BinaryIO, name: str, budget: Budget) -> tuple[bytes, dict[str, Any]]:
    """The text of a member and its JSON object; a text of two objects would become two samples, and is refused."""
    content = _member(found, handle, name)
    lists = content.count(b"[") + content.count(b"{")
    items = content.count(b",")
    budget.allow(lists * _OF_LIST + items * _OF_ITEM, name)
    try:
        value = json.loads(content.decode())
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise TypeError(f"{name} is not a JSON object")
    return content, value


def _member(found: zipfile.ZipFile, handle: BinaryIO, name: str) -> bytes:
    """The content of a member; zstandard, which Inspect uses now, is only supported by later releases of zipfile."""
    import pyarrow as pa

    info = found.getinfo(name)
    if info.compress_type not in _METHODS:
        raise zipfile.BadZipFile(f"{name} is packed by method {info.compress_type}, not stored, deflated or zstandard")
    if info.compress_type != _ZSTANDARD:
        return found.read(name)
    handle.seek(info.header_offset)
    head = handle.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(b"PK\3\4") or info.flag_bits & 1:
        raise zipfile.BadZipFile(f"{name} is encrypted or cut short")
    handle.seek(sum(_HEADER.unpack(head)), os.SEEK_CUR)  # its name and its extra field
    packed = pa.BufferReader(handle.read(info.compress_size))
    try:
        content: bytes = pa.CompressedInputStream(packed, "zstd").read(info.file_size + 1)
    except (pa.ArrowException, OSError) as error:
        raise zipfile.BadZipFile(str(error)) from None
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 for file {name!r}")
    return content


def database(source: Input) -> Iterator[bytes]:
    """The rows of a SQLite database: tables and traces that Trackio logged, or the only table.

    A copy is read: opening the file itself while another process writes would leave files beside it.
    """
    with source.open() as handle:
        head = handle.read(len(_SQLITE))
    if head not in {_SQLITE, b""}:  # before it is copied: it may be large
        raise DataError(f"{source.name}: not readable as a SQLite database: it begins with {head!r}")
    with TemporaryDirectory(prefix="grpo-adv.") as folder:
        copy = Path(folder) / "copy.db"
        _copy_database(source, copy)
        budget = Budget(source)
        try:
            with closing(sqlite3.connect(copy)) as opened:
                opened.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
                opened.execute("PRAGMA trusted_schema = OFF")
                for made in _database_rows(source, opened):
                    budget.spend(len(made), "a row")
                    yield made
        except DataError:
            raise
        except (sqlite3.Error, ValueError, OverflowError, RecursionError) as error:
            cures = [Way("--max-line", why="reads longer values", fill="BYTES")] if "too big" in str(error) else []
            raise DataError(f"{source.name}: not readable as a SQLite database: {error}", cures) from None


def _copy_database(source: Input, copy: Path) -> None:
    """Copy a database with the `-wal` beside it, which has the latest writes, in the state between two commits."""
    is_file = type(source) is Input and source.fd is None
    real = Path(os.path.realpath(source.path))
    log = Path(f"{copy}-wal")
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE)
        now = Input.at(source.path) if is_file else source
        with source.open() as handle, copy.open("wb") as sink:
            copyfileobj(handle, sink)
        if not is_file:
            return
        log.unlink(missing_ok=True)
        with suppress(FileNotFoundError), _beside(real, "-wal") as handle, log.open("wb") as sink:
            copyfileobj(handle, sink)
        with suppress(FileNotFoundError), _beside(real, "-journal") as handle:
            if handle.read(1) not in {b"", b"\0"}:  # the transaction is not complete: some rows may be new, others old
                wrong = f"a transaction is open or was interrupted: {real}-journal"
                raise DataError(wrong, ["wait for its writer", "open it once with sqlite3"], place=source.name)
        if Input.at(source.path).pin == now.pin:
            return
    raise InputChanged.between_readings(source.name)


def _beside(real: Path, end: str) -> AbstractContextManager[BinaryIO]:
    return opened(inside(real.parent, f"{real.name}{end}"))


def _database_rows(source: Input, opened: sqlite3.Connection) -> Iterator[bytes]:
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = [name for (name,) in opened.execute(names)]
    # A computed column can be any size: all of them in a row together may take a quarter of what one value may.
    hidden = "SELECT COUNT(*) FROM sqlite_master, pragma_table_xinfo(sqlite_master.name) AS c WHERE c.hidden > 1"
    computed = opened.execute(hidden).fetchone()[0]
    opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(source.max_line // max(4 * computed, 1), 2**31 - 1))
    if "metrics" in tables:
        columns = {row[1] for row in opened.execute("PRAGMA table_info(metrics)")}
        if columns >= _TRACKIO:
            yield from _trackio_rows(source, opened)
            return
    if len(tables) != 1:
        listed = ", ".join(tables[:_LISTED]) or "none"
        raise DataError(f"{source.name}: has {len(tables)} tables: {listed}", "export one of them as JSON lines")
    quoted = tables[0].replace('"', '""')
    rows = opened.execute(f'SELECT * FROM "{quoted}"')  # noqa: S608 - the name comes from the database, quoted
    columns_there = [column[0] for column in rows.description]
    for row in rows:
        yield line(dict(zip(columns_there, row, strict=True)))


def _trackio_rows(source: Input, opened: sqlite3.Connection) -> Iterator[bytes]:
    """A line for each row of a logged table and for each trace, with its run and step; else a line per log."""
    logs = opened.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id")
    scalars = []
    has_rows = False
    for number, (run, step, metrics) in enumerate(logs, 1):
        try:
            logged = json.loads(metrics).items()
            found = [(name, row) for name, value in logged for row in _logged_rows(value)]
        except (ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{source.name}: row {number} of its metrics is not a JSON object: {error}") from None
        around = {"run_name": run, "step": step}
        for name, row in found:
            has_rows = True
            yield line({**around, "table": name, **row})
        if not has_rows:
            scalars.append({**around, **dict(logged)})
    if not has_rows:
        yield from map(line, scalars)


def _logged_rows(value: Any) -> list[dict[str, Any]]:
    """The rows of a logged value: the records of a table, or the messages and metadata of a trace."""
    values = value if isinstance(value, list) else [value]
    rows = []
    for entry in values:
        kind = entry.get("_type") if isinstance(entry, dict) else None
        if kind == "trackio.table" and isinstance(entry.get("_value"), list):
            rows += [row for row in entry["_value"] if isinstance(row, dict)]
        elif kind == "trackio.trace":
            known = entry.get("metadata") or {}
            if not isinstance(known, dict):
                raise TypeError("the metadata of a trace is not an object")
            rows.append({**known, "messages": entry.get("messages")})
    return rows


def table(source: Input) -> Iterator[bytes]:
    """The rows of a table of W&B or MLflow: a list of columns, and a list of values per row."""
    with source.open() as handle, in_one_line((ValueError, RecursionError), f"{source.name}: not JSON"):
        found = json.load(handle)
    data = found.get("data", [])
    if not isinstance(data, list) or not isinstance(found["columns"], list):
        raise DataError(f"{source.name}: its columns or its data are not a list", "name each field once")
    columns = list(map(str, found["columns"]))
    refuse_doubled(columns, columns, source.name)
    for number, row in enumerate(data, 1):
        if not isinstance(row, list) or len(row) != len(columns):
            size = len(row) if isinstance(row, list) else "no"
            raise DataError(f"{source.name} row {number}: {size} values for {len(columns)} columns")
        yield line(dict(zip(columns, row, strict=True)))
