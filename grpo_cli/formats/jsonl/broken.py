"""JSON lines without those that cannot be read: what is left, kept in a file without a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, cast

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import spool
from grpo_cli.formats.jsonl.exact import parsed
from grpo_cli.formats.jsonl.lines import BOM, is_blank, raw_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_cli.files.inputs import Input


@dataclass(slots=True)
class _Good:
    """The lines that can be read, as a stream; the numbers of the others."""

    source: Input
    gone: list[int] = field(default_factory=list)

    def lines(self) -> Iterator[bytes]:
        for number, line in enumerate(raw_lines(self.source), 1):
            try:
                if not is_blank(line):
                    parsed(line.removeprefix(BOM), lambda _: "", 0)
            except DataError:
                self.gone.append(number)
            else:
                yield line


@dataclass(slots=True)
class _Stream:
    """An iterator of lines that is read like a file."""

    lines: Iterator[bytes]

    def read(self, _: int) -> bytes:
        return next(self.lines, b"")


def without_broken(source: Input) -> tuple[Input, tuple[int, ...]]:
    """The same rows without lines that are no JSON object, and the numbers of those lines."""
    good = _Good(source)
    for _ in good.lines():
        pass
    if not good.gone:
        return source, ()
    again = _Good(source)
    kept = spool(cast("BinaryIO", _Stream(again.lines())), source.name)
    source.check()
    if not kept.pin.size:
        raise DataError(f"{source.name}: none of its lines can be read", "each has to be a JSON object")
    return kept, tuple(again.gone)
