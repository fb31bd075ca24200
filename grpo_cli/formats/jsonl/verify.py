"""Compare JSON lines with their input: whole blocks at once, and line by line where blocks are not conclusive."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from io import BytesIO
from itertools import islice
from typing import NamedTuple

from grpo_cli.files.compression import unpacked
from grpo_cli.files.inputs import Input
from grpo_cli.formats import verify
from grpo_cli.formats.blocks import blocks, refuse_other_encodings
from grpo_cli.formats.jsonl.lines import VALUE, has_plain_spelling
from grpo_cli.formats.verify import Record, json_record
from grpo_cli.parallel import ahead

_ESCAPED = re.compile(rb"\\u00[2-7]")  # a letter of a name, perhaps
_END = rb"(?=}[ \t\r]*(?:\n|\Z))"  # the last brace of a line


def first_difference(new: Input, old: Input, added: Collection[str], size: int) -> str | None:
    """The first line that is not the old line with the new fields; None if there is none."""

    def differs(pair: _Pair) -> str | None:
        if _is_woven_block(pair, added):
            return None
        now = _records(new.name, pair.now, pair.before)
        was = _records(old.name, pair.was, pair.before)
        return verify.first_difference(now, was, added, "line")

    return next((found for found in ahead(differs, _pairs(new, old, size)) if found is not None), None)


class _Pair(NamedTuple):
    """The same number of lines of both files (fewer at an end), and the number of lines before them."""

    was: bytes
    now: bytes
    before: int


def _pairs(new: Input, old: Input, size: int) -> Iterator[_Pair]:
    line = 0
    with unpacked(new) as handle:
        refuse_other_encodings(new, handle)
        for block in blocks(old, size):
            was = block.read()
            count = _line_count(was)
            yield _Pair(was, b"".join(islice(handle, count)), line)
            line += count
        yield from (_Pair(b"", more, line) for more in handle)


def _records(name: str, data: bytes, before: int) -> Iterator[Record]:
    lines = enumerate(BytesIO(data), before + 1)
    return (json_record(f"{name}:{number}", line.decode("utf-8", "surrogateescape")) for number, line in lines)


def _is_woven_block(pair: _Pair, added: Collection[str]) -> bool:
    """Whether all new lines are the old lines with the new fields last; False if single lines have to decide."""
    was, now, _ = pair
    if not added or not was or not now:
        return was == now
    keys = [json.dumps(name).encode() for name in added]
    if not all(map(has_plain_spelling, added)) or any(key in was for key in keys):
        return False
    if b"\\" in was and _ESCAPED.search(was):
        return False
    first, *others = (b",%b:" % re.escape(key) for key in keys)
    after_field = rb"(?<![{ \t\r\n]%b)" % first  # in an empty object nothing is before a new field, not even a comma
    value = VALUE.encode()
    put_in = b"".join([first, after_field, value, *(key + value for key in others), _END])
    left, count = re.subn(put_in, b"", now)
    return left == was and count == _line_count(was)


def _line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n"))
