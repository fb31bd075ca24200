"""Finding the input files, and checking that they are unchanged when they are read again.

Standard input and other pipes are copied to an unnamed file, so that they can be read twice.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import select
import shlex
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from io import DEFAULT_BUFFER_SIZE, BufferedReader, BytesIO, FileIO, RawIOBase
from pathlib import Path, PurePath
from typing import Any, BinaryIO, ClassVar, NamedTuple, Self, cast

from grpo_cli.errors import DataError, InputChanged, UsageError, Way, reason
from grpo_cli.files.kept import note
from grpo_cli.files.named import content, inside, opened_to_read, regular
from grpo_cli.files.trials import is_job

PACKED = (".gz", ".zst")
# Bytes of a line of text, unless --max-line says otherwise: it has to fit into memory whole.
MAX_LINE = 256 << 20
Into = Callable[[memoryview, int], int]  # fills a buffer with the bytes from an offset on, and returns their number
Found = tuple[Path, bool]  # a file, and whether it is skipped
Suffixes = Mapping[str, bool]  # the suffixes that are read, and whether such files may be compressed
# Files that Hugging Face writes beside the files of a data set, and caches of derived data sets.
_NOTES = re.compile(r"dataset_(info|infos|dict)\.json")
STATE = "state.json"  # names the files of a saved data set
_SPLITS = "dataset_dict.json"  # names the folders of several saved data sets
_BESIDE_ARROW = re.compile(r"state\.json|cache-.*\.arrow|tmp[^.]*")
_OF_DISK = "lost+found"  # in the top folder of a disk, for root alone
_OWN_OUTPUTS = (".advantages.", ".selected.", ".added.")
_BLOCK = 1 << 20  # bytes to read from a pipe at once
_MOST = 8 << 20  # bytes to return at once
_PAUSE = 20  # milliseconds to wait for more; a pipe gives a few bytes at a time
_TURN = 200  # milliseconds of a single wait for a pipe


@dataclass(frozen=True)
class Pin:
    """The state of a file, to notice changes.

    A writer can reset the modification time, but not the ctime. Without the number of the device, which differs between
    machines that share a file system.
    """

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    links: int = field(compare=False)
    tag: str = ""  # the ETag of an object in a store

    @classmethod
    def of(cls, stat: os.stat_result) -> Self:
        """The state that the operating system reports."""
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_nlink)

    def matches(self, stat: os.stat_result) -> bool:
        """Whether a file is still in this state. A further name (hard link) changes its ctime, not its content."""
        now = Pin.of(stat)
        return now == self or (now.links != self.links and replace(now, ctime_ns=self.ctime_ns) == self)


@dataclass(frozen=True)
class Input:
    """A file that is read twice and must not change in between."""

    name: str
    path: str
    pin: Pin
    fd: int | None = None
    max_line: int = field(default=MAX_LINE, compare=False)
    written_as: str = ""  # the suffix of an output beside it, if its format is read-only
    deferred: bool = False  # whether its lines say where their texts are
    left_out: tuple[int, ...] = ()  # numbers of lines of the file that it lacks
    on_read: Callable[[int], None] | None = field(
        default=None, compare=False, repr=False
    )  # gets the offset read so far
    is_local: ClassVar[bool] = True  # whether `path` is a local file, which other libraries can open

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """Pin a regular file (`pinned` takes pipes as well)."""
        try:
            stat = os.stat(path)  # noqa: PTH116 - also takes /dev/fd/N, and there is no Path to keep
        except OSError as error:
            raise _unreadable(os.fspath(path), error) from None
        note(stat)
        return cls(os.fspath(path), os.fspath(path), Pin.of(stat))

    def open(self) -> BinaryIO:
        """Open at the first byte, with an independent position."""
        # On Linux, opening /proc/self/fd/N gives a new position; elsewhere /dev/fd/N is a dup that shares one.
        if self.fd is not None and not self.path.startswith("/proc/"):
            return file_of(partial(_pread, self.fd), self.pin.size)
        try:
            handle = regular(self.path)
        except OSError as error:
            raise _unreadable(self.name, error) from None
        if handle is None:  # it was a file when it was pinned
            raise InputChanged.between_readings(self.name)
        # A link may lead elsewhere for this moment, and back again when it is checked.
        if self.fd is None and os.fstat(handle.fileno()).st_ino != self.pin.inode:
            handle.close()
            raise InputChanged.between_readings(self.name)
        if self.on_read is None:
            return handle
        with handle:
            return BufferedReader(_Reported(os.dup(handle.fileno()), self.on_read))

    def check(self) -> None:
        """Stop the run if this is no longer the file that was pinned."""
        try:
            stat = os.stat(self.path) if self.fd is None else os.fstat(self.fd)  # noqa: PTH116 - see `at`
        except OSError:
            raise InputChanged.between_readings(self.name) from None
        if not self.pin.matches(stat):
            raise InputChanged.between_readings(self.name)

    def refuse_long_line(self, size: int) -> None:
        """Refuse a line of more bytes than are allowed."""
        if size > self.max_line:
            long = f"{self.name}: a line of more than {self.max_line:,} bytes"
            raise DataError(long, Way("--max-line", why="reads longer ones, each as a whole in memory", fill="BYTES"))

    @property
    def lines_before(self) -> int:
        """The number of lines of the named file before the first byte."""
        return 0

    @property
    def suffix(self) -> str:
        """The last suffix of the name in lower case, with its dot."""
        return Path(self.name).suffix.lower()


class _Reported(FileIO):
    """A file that reports how far it has been read."""

    def __init__(self, fd: int, on_read: Callable[[int], None]) -> None:
        super().__init__(fd)
        self._on_read = on_read

    def readinto(self, buffer: Any) -> int | None:
        size = super().readinto(buffer)
        self._on_read(self.tell())
        return size


@dataclass(frozen=True)
class InMemory(Input):
    """Bytes in memory that are read like a file."""

    data: bytes = b""
    lines_before: int = 0

    @classmethod
    def of(cls, data: bytes, name: str = "-", lines_before: int = 0) -> Self:
        """Give bytes a name for messages."""
        return cls(name, name, Pin(0, len(data), 0, 0, 0), data=data, lines_before=lines_before)

    def open(self) -> BinaryIO:
        """Open at the first byte."""
        return cast("BinaryIO", BufferedReader(cast("RawIOBase", BytesIO(self.data))))

    def check(self) -> None:
        """Nothing to check: no other process can change it."""


@dataclass(frozen=True, kw_only=True)
class Section(Input):
    """A section of a file, in whole lines, that is read like a file."""

    whole: Input
    start: int
    is_local: ClassVar[bool] = False  # it has to be read through `open`

    @classmethod
    def between(cls, whole: Input, start: int, end: int) -> Self:
        """The bytes from a start to an end."""
        pin = replace(whole.pin, size=end - start)
        return cls(
            whole.name, whole.path, pin, max_line=whole.max_line, left_out=whole.left_out, whole=whole, start=start
        )

    def open(self) -> BinaryIO:
        """Open at the first byte of the section."""
        return part_of(self.whole.open(), self.start, self.pin.size)

    def check(self) -> None:
        """Stop the run if the whole file is no longer the file that was pinned."""
        self.whole.check()

    @property
    def lines_before(self) -> int:
        """Counted only if a message has to name a line."""
        left = self.start
        lines = 0
        with self.whole.open() as handle:
            while left and (data := handle.read(min(left, 1 << 20))):
                left -= len(data)
                lines += data.count(b"\n")
        return lines


class Unbuffered(RawIOBase):
    """A stream that is read, through a buffer of its own."""

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readall(self) -> bytes:
        """All bytes that are left."""
        return b"".join(iter(lambda: self.read(_BLOCK) or b"", b""))  # the inherited method reads 8 KB at a time


class _Window(Unbuffered):
    def __init__(self, into: Into, size: int, close: Callable[[], None]) -> None:
        self._into, self._size, self._at, self._close = into, size, 0, close

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._into(memoryview(buffer)[: max(0, self._size - self._at)], self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = (0, self._at, self._size)[whence] + offset
        return self._at

    def close(self) -> None:
        self._close()
        super().close()


def file_of(
    into: Into, size: int, close: Callable[[], None] = lambda: None, *, buffer: int = DEFAULT_BUFFER_SIZE
) -> BinaryIO:
    """A file of `size` bytes that `into` fetches."""
    return cast("BinaryIO", BufferedReader(_Window(into, size, close), buffer))


def part_of(handle: BinaryIO, start: int, size: int, *, buffer: int = DEFAULT_BUFFER_SIZE) -> BinaryIO:
    """`size` bytes of an open file from `start` on, as a file; closing it closes the open file."""

    def into(place: memoryview, at: int) -> int:
        handle.seek(start + at)
        return cast("BufferedReader", handle).readinto(place)

    return file_of(into, size, handle.close, buffer=buffer)


def _pread(fd: int, buffer: memoryview, at: int) -> int:
    """Read from a shared descriptor without its position."""
    block = os.pread(fd, len(buffer), at)
    buffer[: len(block)] = block
    return len(block)


def _unreadable(name: str, error: OSError) -> DataError:
    return DataError(f"{name}: {reason(error)}")


def pinned(path: Path) -> Input:
    """Pin a file, or spool it if it is a pipe, as in `grpo-adv compute <(sampler)`."""
    source = Input.at(path)
    mode = os.stat(path).st_mode  # noqa: PTH116 - also takes /dev/fd/N
    if stat.S_ISDIR(mode) and is_job(path):
        return source
    if stat.S_ISDIR(mode):
        raise DataError(f"{path}: is a directory", "name a file in it")
    if stat.S_ISREG(mode) and (source.pin.size or not _has_bytes(path)):
        return source
    try:
        stream = opened_to_read(path)
    except OSError as error:
        raise _unreadable(source.name, error) from None
    with stream:
        # A link to /dev/zero would fill the disk.
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not stream.isatty()):
            raise DataError("is a device", "name a file or a pipe", place=path)
        return spool(stream, str(path))


def _has_bytes(path: Path) -> bool:
    """Whether a file that says to be empty has bytes: those of /proc do."""
    try:
        handle = regular(path)
    except OSError:
        return False  # who opens it to read is told
    if handle is None:
        return False
    with handle:
        return bool(handle.read(1))


def spool(stream: BinaryIO, name: str = "-") -> Input:
    """Copy a stream to an unnamed temporary file."""
    return spooled(arrivals(stream), name)


def spooled(parts: Iterable[bytes | memoryview], name: str) -> Input:
    """An unnamed temporary file of these bytes: nothing is left behind, however the run ends."""
    try:
        with tempfile.TemporaryFile(prefix="grpo-adv.") as sink:
            sink.writelines(parts)
            sink.flush()
            fd = os.dup(sink.fileno())
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            no_room = f"{name}: no space left in {tempfile.gettempdir()} to keep it for the second pass"
            raise DataError(no_room, "set TMPDIR elsewhere") from error
        raise DataError(f"{name}: cannot be read: {reason(error)}") from error
    linux = f"/proc/self/fd/{fd}"
    reopened = linux if os.path.exists(linux) else f"/dev/fd/{fd}"  # noqa: PTH110 - a descriptor, not a file
    return Input(name, reopened, Pin.of(os.fstat(fd)), fd)


def arrivals(stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of a stream in blocks, as they arrive.

    polars has its own handler for Ctrl-C, under which a blocked read is restarted instead of interrupted, so we wait in
    short turns.
    """
    try:
        fd = stream.fileno()
    except (OSError, AttributeError):  # not a file of the system: nothing to wait for
        while part := stream.read(_BLOCK):
            yield part
        return
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    parts = list[bytes]()
    size = 0
    part = b""
    first = 0.0
    while True:
        there = waiting.poll(max(0, _PAUSE - (time.monotonic() - first) * 1000) if parts else _TURN)
        if there:
            first = first if parts else time.monotonic()
            part = os.read(fd, _BLOCK)
            parts.append(part)
            size += len(part)
        if parts and (not there or not part or size >= _MOST):
            yield b"".join(parts)
            parts = []
            size = 0
        if there and not part:
            return


class Matched(NamedTuple):
    """The files that match patterns, and those that were skipped."""

    files: dict[str, Path]  # by their real path
    skipped: list[Path]


def expand(patterns: Sequence[str], suffixes: Suffixes) -> Matched:
    """Files, globs and directories as one list without duplicates, in natural order inside each pattern.

    A directory stands for its files with a known suffix.
    """
    files: dict[str, Path] = {}
    skipped: dict[str, Path] = {}
    twice: dict[Path, None] = {}  # files that were named again, by the same or another name
    known = set[str]()
    for pattern in patterns:
        for path, is_skipped in sorted(_matched(pattern, suffixes), key=lambda found: natural(found[0])):
            real = os.path.realpath(path)
            if is_skipped:
                skipped.setdefault(real, path)
            elif files.setdefault(real, path) != path or pattern in known:
                twice[path] = None
        known.add(pattern)
    left_out = [path for name, path in skipped.items() if name not in files]
    return Matched(files, [*left_out, *twice])


def _matched(pattern: str, suffixes: Suffixes) -> list[Found]:
    """What matches a pattern; at least one file that is not skipped."""
    path = Path(pattern)
    if not pattern:
        raise UsageError("an input name is empty", "is a shell variable unset?")
    if path.is_dir():
        found = list(_in_directory(path, suffixes))
        wrong = f"{path}: no file to read in this directory", f"the suffixes that can be read are {' '.join(suffixes)}"
    elif path.exists():
        return [(path, False)]
    elif path.is_symlink():
        raise DataError(f"{pattern}: a broken link to {path.readlink()}")
    elif not glob.has_magic(pattern):
        raise DataError(f"{pattern}: no such file or directory")
    else:
        found = list(_in_glob(pattern, suffixes))
        wrong = f"{pattern}: no file matches this pattern", ""
        if found:
            named = shlex.quote(str(found[0][0]))
            wrong = f"{pattern}: all {len(found)} files it matches are skipped", f"to read one anyway, name it: {named}"
    if all(is_skipped for _, is_skipped in found):
        raise DataError(*wrong)
    return found


def _in_glob(pattern: str, suffixes: Suffixes) -> Iterator[Found]:
    # With ** the files of a directory match themselves; otherwise a directory stands for its files.
    recursive = "**" in Path(pattern).parts
    shards_of = cache(_shards)
    for path in map(Path, glob.glob(pattern, recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute one
        if path.is_file():
            yield path, is_passed_over(path.name, shards_of(path.parent) if path.suffix == ".arrow" else None)
        elif path.is_dir() and not recursive:
            yield from _in_directory(path, suffixes)


def _in_directory(top: Path, suffixes: Suffixes) -> Iterator[Found]:
    """The readable files in a directory and below it."""
    for folder, below, names in os.walk(top, onerror=_refuse_folder):
        here = Path(folder)
        if is_job(here, below):
            yield here, False
            below.clear()
            continue
        below[:] = [name for name in below if not name.startswith((".", "_")) and name != _OF_DISK]
        below[:] = _of_hub_cache(here, below)
        _refuse_splits(here)
        shards = _shards(here) if STATE in names else None
        for name in shards or ():
            if name not in names:
                raise DataError(f"{here / name}: no such file, but {STATE} lists it", "was the copy complete?")
            inside(here, name)
        has_data = any(map(is_arrow_data, names))
        for path in (here / name for name in names if not is_note(name, beside_arrow=has_data)):
            # Reading a named pipe would block; it has to be named explicitly.
            if is_readable(path, suffixes) and path.is_file():
                yield path, is_passed_over(path.name, shards)


def _refuse_folder(error: OSError) -> None:
    """Refuse a folder that cannot be read: its files would be left out in silence."""
    raise DataError(reason(error), "name the files or folders to read", place=error.filename)


def is_arrow_data(name: str) -> bool:
    """Whether a file has rows of a data set, not results computed from them."""
    return name.endswith(".arrow") and not _BESIDE_ARROW.fullmatch(name)


def is_note(name: str, *, beside_arrow: bool) -> bool:
    """Whether Hugging Face wrote a file of this name about a data set; some are notes only beside its Arrow files."""
    return bool(_NOTES.fullmatch(name) or (beside_arrow and _BESIDE_ARROW.fullmatch(name)))


def _shards(folder: Path) -> list[str] | None:
    """The files of a data set that `save_to_disk` wrote into this folder; None for any other folder."""
    if not (folder / STATE).is_file():
        return None
    state = content(folder / STATE, MAX_LINE)
    try:
        return [str(entry["filename"]) for entry in json.loads(state)["_data_files"]] or None
    except (ValueError, RecursionError, LookupError, TypeError):
        return None


def _refuse_splits(folder: Path) -> None:
    """Refuse several splits that were saved together: the user has to name one of these data sets."""
    if not (folder / _SPLITS).is_file():
        return
    try:
        noted = json.loads(content(folder / _SPLITS, MAX_LINE))["splits"]
    except DataError:
        raise
    except (ValueError, RecursionError, LookupError, TypeError):
        return
    splits = [name for name in map(str, noted) if inside(folder, name).is_dir()] if isinstance(noted, list) else []
    if len(splits) > 1:
        listed = f"{len(splits)} splits: {', '.join(splits)}"
        raise DataError(f"{folder}: a data set with {listed}", f"name one of them, as {folder / splits[0]}")


def _of_hub_cache(folder: Path, below: list[str]) -> list[str]:
    """In the cache of the Hugging Face hub, the current snapshot of a repository; otherwise the directory itself."""
    if {"blobs", "refs", "snapshots"} <= {*below}:
        return ["snapshots"]
    now = folder.parent / "refs" / "main"
    if folder.name == "snapshots" and now.is_file():
        commit = content(now, MAX_LINE).strip()
        return [name for name in below if os.fsencode(name) == commit]
    return below


def is_passed_over(name: str, shards: Collection[str] | None = None) -> bool:
    """Whether a name is hidden, private, an output of this tool, or not one of the shards of its data set."""
    if name.startswith((".", "_")) or any(word in name for word in _OWN_OUTPUTS):
        return True
    return shards is not None and name not in shards


def is_readable(path: Path | str, suffixes: Suffixes) -> bool:
    """Whether files with this suffix are read, compressed or not."""
    path = Path(path)
    suffix = path.suffix.lower()
    return suffixes.get(Path(path.stem).suffix.lower(), False) if suffix in PACKED else suffix in suffixes


def natural(path: PurePath) -> tuple[list[str | int], ...]:
    """A sort key that puts step_2 before step_10."""
    return tuple([int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name)] for name in path.parts)
