"""JSON lines without those that cannot be read: what is left, kept in a file without a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import spooled
from grpo_cli.formats.jsonl.exact import parsed
from grpo_cli.formats.jsonl.lines import BOM, is_blank, raw_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_cli.files.inputs import Input


def without_broken(source: Input) -> tuple[Input, tuple[int, ...]]:
    """The same rows without lines that are no JSON object, and the numbers of those lines."""
    gone: list[int] = []
    for _ in _good_lines(source, gone):
        pass
    if not gone:
        return source, ()
    gone.clear()
    kept = spooled(_good_lines(source, gone), source.name)
    source.check()
    if not kept.pin.size:
        raise DataError(f"{source.name}: none of its lines can be read", "each has to be a JSON object")
    return kept, tuple(gone)


def _good_lines(source: Input, gone: list[int]) -> Iterator[bytes]:
    """The lines that can be read; the numbers of the others are added to `gone`."""
    for number, line in enumerate(raw_lines(source), 1):
        try:
            if not is_blank(line):
                parsed(line.removeprefix(BOM), lambda _: "", 0)
        except DataError:
            gone.append(number)
        else:
            yield line
