"""Which files are meant, and whether they are still the same when they are read again.

Standard input and other pipes are kept in a file without a name, so that they can be read twice.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import select
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast

from grpo_cli.errors import DataError, InputChanged, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

PACKED: Final = (".gz", ".zst")
MAX_LINE: Final = (
    256 << 20
)  # bytes of a line of text, unless --max-line says otherwise: it has to fit into memory whole
Suffixes = Mapping[str, bool]  # those that are read, and whether such files may be packed as well
# What Hugging Face writes beside the files of a data set, and what it keeps of data sets that were computed of them.
_NOTES: Final = re.compile(r"dataset_(info|infos|dict)\.json")
_BESIDE_ARROW: Final = re.compile(r"state\.json|cache-.*\.arrow|tmp[^.]*")
_OWN_OUTPUTS: Final = (".advantages.", ".selected.")
_BLOCK: Final = 1 << 20  # bytes that are read from a pipe at once
_MOST: Final = 8 << 20  # bytes that are given at once
_PAUSE: Final = 20  # milliseconds in which more may come in; a pipe gives a few bytes at a time
_TURN: Final = 200  # milliseconds that a pipe is waited for at a time


@dataclass(frozen=True, slots=True)
class Pin:
    """What tells one state of a file from another.

    A writer can set the time of modification back, but not that of the last change to the file or its entry (ctime).
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    links: int = field(compare=False)
    tag: str = ""  # the ETag of an object in a store

    @classmethod
    def of(cls, stat: os.stat_result) -> Self:
        """Take the identity from what the operating system says."""
        return cls(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_nlink)

    def holds(self, stat: os.stat_result) -> bool:
        """Whether a file is still in this state. One more or one less name for it changes its ctime, not its content."""
        now = Pin.of(stat)
        return now == self or (now.links != self.links and replace(now, ctime_ns=self.ctime_ns) == self)


@dataclass(frozen=True, slots=True)
class Input:
    """A file that is read twice and has to be the same both times."""

    name: str
    path: str
    pin: Pin
    fd: int | None = None
    max_line: int = field(default=MAX_LINE, compare=False)
    written_as: str = ""  # the suffix of an output beside it, where the file itself is read only
    blocks: list[Any] = field(default_factory=list, compare=False, repr=False)  # that its first reading found
    empty_records: list[int] = field(default_factory=list, compare=False, repr=False)  # how many that reading found

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """Pin a regular file (`pinned` takes pipes as well)."""
        try:
            stat = os.stat(path)  # noqa: PTH116 - also takes /dev/fd/N, and there is no Path to keep
        except OSError as error:
            raise _unreadable(os.fspath(path), error) from None
        return cls(os.fspath(path), os.fspath(path), Pin.of(stat))

    def open(self) -> BinaryIO:
        """Open at the first byte, with a position of its own."""
        # Linux opens /proc/self/fd/N anew; elsewhere /dev/fd/N is a dup that shares one position.
        if self.fd is not None and not self.path.startswith("/proc/"):
            return cast("BinaryIO", BufferedReader(_Positioned(self.fd)))
        try:
            handle = open(self.path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
        except OSError as error:
            raise _unreadable(self.name, error) from None
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            handle.close()
            raise InputChanged.between_readings(self.name)
        return handle

    def check(self) -> None:
        """Refuse to go on when this is no longer the file that was pinned."""
        try:
            stat = os.stat(self.path) if self.fd is None else os.fstat(self.fd)  # noqa: PTH116 - see `at`
        except OSError:
            raise InputChanged.between_readings(self.name) from None
        if not self.pin.holds(stat):
            raise InputChanged.between_readings(self.name)

    def refuse_long_line(self, size: int) -> None:
        """Refuse a line of more bytes than are allowed."""
        if size > self.max_line:
            long = f"{self.name}: a line of more than {self.max_line:,} bytes"
            raise DataError(long, "--max-line BYTES reads longer ones, each as a whole in memory")

    @property
    def is_local(self) -> bool:
        """Whether `path` is that of a file, which other libraries may open."""
        return True

    @property
    def suffix(self) -> str:
        """The last suffix of the name in lower case, with its dot."""
        return Path(self.name).suffix.lower()


@dataclass(frozen=True, slots=True)
class Held(Input):
    """Bytes in memory that are read as a file is."""

    data: bytes = b""

    @classmethod
    def of(cls, data: bytes, name: str = "-") -> Self:
        """Give bytes a name for messages."""
        return cls(name, name, Pin(0, 0, len(data), 0, 0, 0), data=data)

    def open(self) -> BinaryIO:
        """Open at the first byte."""
        return cast("BinaryIO", BufferedReader(cast("RawIOBase", BytesIO(self.data))))

    def check(self) -> None:
        """Nobody else can change it."""


@dataclass(frozen=True, slots=True)
class Section(Input):
    """Some whole lines of a file, read as a file of their own."""

    whole: Input | None = None
    start: int = 0

    @classmethod
    def between(cls, whole: Input, start: int, end: int) -> Self:
        """The bytes from a start to an end."""
        pin = replace(whole.pin, size=end - start)
        return cls(whole.name, whole.path, pin, max_line=whole.max_line, whole=whole, start=start)

    def open(self) -> BinaryIO:
        """Open at the first byte of the section."""
        return cast("BinaryIO", BufferedReader(_Window(cast("Input", self.whole).open(), self.start, self.pin.size)))

    def check(self) -> None:
        """Refuse to go on when the whole file is no longer the one that was pinned."""
        cast("Input", self.whole).check()

    @property
    def is_local(self) -> bool:
        """Never: it has to be read through `open`."""
        return False


class _Window(RawIOBase):
    """Some bytes of a file, as a file."""

    def __init__(self, handle: BinaryIO, start: int, size: int) -> None:
        self._handle, self._start, self._size, self._at = handle, start, size, 0
        handle.seek(start)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._handle.read(min(len(buffer), self._size - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = (0, self._at, self._size)[whence]
        self._at = min(origin + offset, self._size)
        self._handle.seek(self._start + self._at)
        return self._at

    def close(self) -> None:
        self._handle.close()
        super().close()


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that stands in its place by now would be waited for without an end."""
    return os.open(path, flags | os.O_NONBLOCK)


def _unreadable(name: str, error: OSError) -> DataError:
    return DataError(f"{name}: {(error.strerror or str(error)).lower()}")


class _Positioned(RawIOBase):
    """A reader of a shared descriptor that keeps its own position."""

    def __init__(self, fd: int) -> None:
        self._fd, self._at = fd, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        block = os.pread(self._fd, len(buffer), self._at)
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = (0, self._at, os.fstat(self._fd).st_size)[whence]
        self._at = origin + offset
        return self._at


def pinned(path: Path) -> Input:
    """Pin a file, or spool it when it is a pipe, as in `grpo-adv compute <(sampler)`."""
    source = Input.at(path)
    mode = os.stat(path).st_mode  # noqa: PTH116 - also takes /dev/fd/N
    if stat.S_ISDIR(mode):
        raise DataError(f"{path}: is a directory", "name a file in it")
    if stat.S_ISREG(mode):
        return source
    try:
        stream = open(path, "rb")  # noqa: PTH123, SIM115 - also takes /dev/fd/N
    except OSError as error:
        raise _unreadable(source.name, error) from None
    with stream:
        return spool(stream, str(path))


def spool(stream: BinaryIO, name: str = "-") -> Input:
    """Copy a stream to a temporary file without a name."""
    return spooled(arrivals(stream), name)


def spooled(parts: Iterable[bytes | memoryview], name: str) -> Input:
    """A temporary file of these bytes that has no name: nothing is left behind, however the run ends."""
    try:
        with tempfile.TemporaryFile(prefix="grpo-adv.") as sink:
            sink.writelines(parts)
            sink.flush()
            fd = os.dup(sink.fileno())
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            no_room = f"{name}: no space left in {tempfile.gettempdir()} to keep it for the second reading"
            raise DataError(no_room, "set TMPDIR elsewhere") from error
        raise DataError(f"{name}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    linux = f"/proc/self/fd/{fd}"
    reopened = linux if os.path.exists(linux) else f"/dev/fd/{fd}"  # noqa: PTH110 - a descriptor, not a file
    return Input(name, reopened, Pin.of(os.fstat(fd)), fd)


def arrivals(stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of a stream in blocks: what comes in at once, or nearly so.

    polars has its own handler for Ctrl-C, under which a read that waits is started again and never interrupted:
    waiting is therefore done in short turns.
    """
    try:
        fd = stream.fileno()
    except (OSError, AttributeError):  # not a file of the system: there is nothing to wait for
        while part := stream.read(_BLOCK):
            yield part
        return
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    parts, size, part, first = list[bytes](), 0, b"", 0.0
    while True:
        there = waiting.poll(max(0, _PAUSE - (time.monotonic() - first) * 1000) if parts else _TURN)
        if there:
            first = first if parts else time.monotonic()
            part = os.read(fd, _BLOCK)
            parts.append(part)
            size += len(part)
        if parts and (not there or not part or size >= _MOST):
            yield b"".join(parts)
            parts, size = [], 0
        if there and not part:
            return


class Matched(NamedTuple):
    """The files that patterns mean, and those that were passed over on the way."""

    files: list[Path]
    skipped: list[Path]


def expand(patterns: Sequence[str], suffixes: Suffixes) -> Matched:
    """Files, globs and directories as one list without duplicates, in natural order inside each pattern.

    Of a directory the files with one of the suffixes are meant.
    """
    files: dict[str, Path] = {}
    skipped: dict[str, Path] = {}
    real = RealPaths()
    twice: dict[Path, None] = {}  # other names of a file that has been named
    for pattern in patterns:
        matched = _matched(pattern, suffixes)
        for path in sorted(matched.files, key=natural):
            if files.setdefault(real.of(path), path) != path:
                twice[path] = None
        for path in sorted(matched.skipped, key=natural):
            skipped.setdefault(real.of(path), path)
    left_out = [path for real, path in skipped.items() if real not in files]
    return Matched(list(files.values()), [*left_out, *twice])


class RealPaths:
    """Paths without links. A directory is looked up once, not for each of its thousands of files."""

    def __init__(self) -> None:
        self._folders: dict[Path, str] = {}

    def of(self, path: Path) -> str:
        """The path that leads to the same file without a link."""
        if path.name in {"", ".."} or path.is_symlink():
            return os.path.realpath(path)
        folder = path.parent
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return f"{self._folders[folder].rstrip('/')}/{path.name}"


def _matched(pattern: str, suffixes: Suffixes) -> Matched:
    """The files that one pattern means, of which there is at least one."""
    path = Path(pattern)
    if not pattern:
        raise UsageError("an input without a name", "is it a variable that is not set?")
    if path.is_dir():
        matched = _in_directory(path, suffixes)
        if not matched.files:
            known = " ".join(suffixes)
            raise DataError(f"{path}: no file to read in this directory", f"the suffixes that can be read are {known}")
        return matched
    if path.exists():
        return Matched([path], [])
    if path.is_symlink():
        raise DataError(f"{pattern}: a link to {path.readlink()}, which is not there")
    if not glob.has_magic(pattern):
        raise DataError(f"{pattern}: no such file or directory", _similar_name(path))
    matched = _in_glob(pattern, suffixes)
    if not matched.files:
        why = f"all {len(matched.skipped)} files it matches are skipped" if matched.skipped else "matches nothing"
        raise DataError(f"{pattern}: {why}", "name a file literally to read it whatever it is called")
    return matched


def _in_glob(pattern: str, suffixes: Suffixes) -> Matched:
    matched = Matched([], [])
    # With ** the files of a directory are matches themselves; without it a directory stands for them.
    recursive = "**" in Path(pattern).parts
    for path in map(Path, glob.glob(pattern, recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute one
        if path.is_file():
            (matched.skipped if is_passed_over(path.name) else matched.files).append(path)
        elif path.is_dir() and not recursive:
            below = _in_directory(path, suffixes)
            matched.files.extend(below.files)
            matched.skipped.extend(below.skipped)
    return matched


def _in_directory(top: Path, suffixes: Suffixes) -> Matched:
    """The readable files in a directory and below it; there may be none."""
    matched = Matched([], [])
    for folder, below, names in os.walk(top):
        below[:] = _of_hub_cache(Path(folder), [name for name in below if not name.startswith((".", "_"))])
        has_data = any(name.endswith(".arrow") and not _BESIDE_ARROW.fullmatch(name) for name in names)
        for path in (Path(folder, name) for name in names):
            if _NOTES.fullmatch(path.name) or (has_data and _BESIDE_ARROW.fullmatch(path.name)):
                continue
            # A named pipe in a directory would be waited for; whoever means it names it.
            if is_readable(path, suffixes) and path.is_file():
                (matched.skipped if is_passed_over(path.name) else matched.files).append(path)
    return matched


def _of_hub_cache(folder: Path, below: list[str]) -> list[str]:
    """Of a repository in the cache of the Hugging Face hub the files as they are now; all of any other directory."""
    if {"blobs", "refs", "snapshots"} <= {*below}:
        return ["snapshots"]
    now = folder.parent / "refs" / "main"
    if folder.name == "snapshots" and now.is_file():
        return [name for name in below if name == now.read_text(encoding="utf-8").strip()]
    return below


def is_passed_over(name: str) -> bool:
    """Whether a name is hidden, private or that of an output of this tool."""
    return name.startswith((".", "_")) or any(word in name for word in _OWN_OUTPUTS)


def is_readable(path: Path | str, suffixes: Suffixes) -> bool:
    """Whether the suffix is one of those that are read, packed or not."""
    path = Path(path)
    suffix = path.suffix.lower()
    return suffixes.get(Path(path.stem).suffix.lower(), False) if suffix in PACKED else suffix in suffixes


def natural(path: PurePath) -> tuple[list[str | int], ...]:
    """Order key in which step_2 comes before step_10."""
    return tuple([int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name)] for name in path.parts)


def _similar_name(path: Path) -> str:
    """A hint with the most similar name in the same directory, or nothing."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {str(path.parent / near[0])!r}?" if near else ""
