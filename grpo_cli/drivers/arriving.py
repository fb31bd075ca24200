"""Rows of a pipe as they arrive, and when a block of them is whole.

Of rows that have left only a digest of each key stays, 16 bytes: a key that comes back is an error with its line.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, BinaryIO, Final

from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats import FORMATS, Field
from grpo_cli.formats.cells import canonical
from grpo_cli.formats.lines import is_blank
from grpo_cli.io.local import Input, Pin
from grpo_cli.io.spool import arrivals
from grpo_cli.outputs import STDOUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

JSONL: Final = FORMATS["jsonl"]
_OTHERS: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow",
}


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of complete groups (a row with the blank lines behind it), and how many lines came before."""

    rows: Sequence[bytes]
    before: int

    @contextmanager
    def located(self) -> Iterator[None]:
        """Count lines from the beginning of the stream, not of the block."""
        try:
            yield
        except DataError as error:
            message = re.sub(r"^-:(\d+)", lambda at: f"-:{int(at[1]) + self.before}", error.message)
            hint = error.hint.replace("--on-error skip", "without --stream, --on-error skip")
            raise type(error)(message, hint) from None

    @contextmanager
    def held(self) -> Iterator[Input]:
        """The rows as an input that can be read twice."""
        with tempfile.TemporaryFile() as file:
            file.writelines(self.rows)
            file.flush()
            path = f"/proc/self/fd/{file.fileno()}"
            there = path if os.path.exists(path) else f"/dev/fd/{file.fileno()}"  # noqa: PTH110 - a descriptor
            yield Input(STDOUT, there, Pin.of(os.fstat(file.fileno())), file.fileno())


@dataclass(slots=True)
class _Waiting:
    """Rows whose block may go on, with digests of their keys: a change of the block's key ends it."""

    ends: tuple[str, ...]  # the columns whose change ends a block
    groups: tuple[str, ...]  # those of the group, where a block is a batch
    size: int | None
    rows: list[bytes] = field(default_factory=list)
    keys: list[tuple[bytes, bytes]] = field(default_factory=list)
    left: set[bytes] = field(default_factory=set)
    block_of: dict[bytes, bytes] = field(default_factory=dict)
    blank: bytes = b""  # lines without a row before them that is still here
    lines: int = 0

    def add(self, rows: list[bytes]) -> None:
        """Take in what has arrived."""
        if is_blank(rows[0]):
            self._add_blank(rows.pop(0))
        if not rows:
            return
        rows[0], self.blank = self.blank + rows[0], b""
        if self.ends:
            self.keys += self._keys(Block(rows, self.lines + sum(row.count(b"\n") for row in self.rows)))
        self.rows += rows

    def _add_blank(self, lines: bytes) -> None:
        """Blank lines belong to the row before them, or to the next one when that has left."""
        if self.rows:
            self.rows[-1] += lines
        else:
            self.blank += lines

    def _keys(self, block: Block) -> Iterator[tuple[bytes, bytes]]:
        names = dict.fromkeys((*self.ends, *self.groups))
        with block.located(), block.held() as held:
            frame = JSONL.scan(held, [Field(name, "key") for name in names])
        return zip(_digests(frame, self.ends), _digests(frame, self.groups), strict=True)

    def complete(self) -> int:
        """How many of the waiting rows belong to blocks that have ended."""
        if not self.ends:
            return len(self.rows) // self.size * self.size if self.size else 0
        last = len(self.keys) - 1
        while last > 0 and self.keys[last - 1][0] == self.keys[-1][0]:
            last -= 1
        return max(last, 0)

    def release(self, count: int) -> Block:
        """Let the first rows go; a key that was here before has come back too late."""
        block = Block(self.rows[:count], self.lines)
        before = b""
        for row, (end, group) in zip(block.rows, self.keys, strict=False):
            line = self.lines + 1 + row.count(b"\n", 0, len(row) - len(row.lstrip()))
            if end != before and end in self.left:
                cure = "sort the rows by it upstream, or leave out --stream"
                raise DataError(f"-:{line}: {', '.join(self.ends)} comes back after its group was complete", cure)
            if self.groups and self.block_of.setdefault(group, end) != end:
                more = f"a group belongs to one batch: add {', '.join(self.ends)} to --group"
                raise DataError(f"-:{line}: {', '.join(self.groups)} was in an earlier batch", more)
            self.left.add(end)
            before = end
            self.lines += row.count(b"\n")
        if not self.ends:
            self.lines += sum(row.count(b"\n") for row in block.rows)
        self.rows, self.keys = self.rows[count:], self.keys[count:]
        return block


def _digests(frame: pl.DataFrame, names: Sequence[str]) -> list[bytes]:
    """The key of every row in 16 bytes."""
    texts = [canonical(frame[name]).fill_null("null").to_list() for name in names]
    rows = zip(*texts, strict=True) if names else repeat((), len(frame))
    return [hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest() for parts in rows]


def blocks(source: BinaryIO, ends: tuple[str, ...], groups: tuple[str, ...], size: int | None) -> Iterator[Block]:
    """Blocks of whole groups, as soon as each is complete: a change of `ends` (or `size` rows) ends one."""
    waiting = _Waiting(ends, groups, size)
    for rows in _rows(source):
        waiting.add(rows)
        if count := waiting.complete():
            yield waiting.release(count)
    if waiting.rows:
        yield waiting.release(len(waiting.rows))
    if waiting.blank:
        yield Block([waiting.blank], waiting.lines)


def _rows(source: BinaryIO) -> Iterator[list[bytes]]:
    """Whole rows as they arrive, without waiting for a buffer to fill; blank lines stay with the row before them."""
    rest, first = b"", True
    for part in arrivals(source):
        if first:
            _refuse_others(part)
            first = False
        *lines, rest = (rest + part).split(b"\n")
        if lines:
            yield from _joined([line + b"\n" for line in lines])
    if rest:
        yield from _joined([rest])


def _refuse_others(head: bytes) -> None:
    """A stream is plain text; the whole input may be something else."""
    for magic, name in _OTHERS.items():
        if head.startswith(magic):
            raise UsageError(
                f"--stream reads plain JSON lines, and this is {name}", "leave out --stream, or unpack it before"
            )


def _joined(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    rows: list[bytes] = []
    for line in lines:
        if rows and is_blank(line):
            rows[-1] += line
        else:
            rows.append(line)
    yield rows
