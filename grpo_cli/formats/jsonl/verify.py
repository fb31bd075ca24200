"""Compare JSON lines with their input: whole blocks at once, and line by line where blocks are not conclusive."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from io import BytesIO
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from grpo_cli.files.compression import unpacked
from grpo_cli.files.inputs import Input
from grpo_cli.formats import verify
from grpo_cli.formats.blocks import blocks, refuse_other_encodings
from grpo_cli.formats.jsonl.fields import VALUE, has_plain_spelling
from grpo_cli.formats.verify import Record, json_record
from grpo_cli.parallel import ahead
from grpo_cli.values.slices import Ints, between

_LF: Final = ord("\n")
_BEFORE_EMPTY: Final = np.frombuffer(b"{ \t\r\n", np.uint8)  # an empty object has one of these before its last brace


def first_difference(new: Input, old: Input, added: Collection[str], size: int, small: int) -> str | None:
    """The first line that is not the old line with the new fields; None if there is none."""

    def differs(pair: _Pair) -> str | None:
        if _is_woven_block(pair, added, small):
            return None
        now, was = _records(new.name, pair.now, pair.before), _records(old.name, pair.was, pair.before)
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
            count = was.count(b"\n") + (not was.endswith(b"\n"))
            yield _Pair(was, b"".join(islice(handle, count)), line)
            line += count
        yield from (_Pair(b"", more, line) for more in handle)


def _records(name: str, data: bytes, before: int) -> Iterator[Record]:
    lines = enumerate(BytesIO(data), before + 1)
    return (json_record(f"{name}:{number}", line.decode("utf-8", "surrogateescape")) for number, line in lines)


def _is_woven_block(pair: _Pair, added: Collection[str], small: int) -> bool:
    """Whether all new lines are the old lines with the new fields last; False if single lines have to decide."""
    was, now, _ = pair
    if not added or not was or not now:
        return was == now
    old, new = _last_braces(was), _last_braces(now)
    if len(old) != len(new) or len(old) <= small or was[old[-1] :] != now[new[-1] :]:
        return False
    starts = np.append(0, new[:-1])
    ends = starts + np.diff(old, prepend=0)  # where the old text of each line ends in the new line
    if (ends >= new).any() or not all(map(has_plain_spelling, added)):
        return False
    try:
        _ = now.isascii() or now.decode()
    except UnicodeDecodeError:
        return False
    rows = between(now, starts, ends)
    if not (rows == between(was, np.append(0, old[:-1]), old)).all():
        return False
    keys = [re.escape(json.dumps(name)) for name in added]
    put_in = "".join(f",{key}:{VALUE}" for key in keys)
    twice = "|".join((*keys, r"\\u00[2-7]"))
    return bool(between(now, ends, new).str.contains(f"^(?:{put_in})$").all() and not rows.str.contains(twice).any())


def _last_braces(data: bytes) -> Ints:
    """Where each line ends with a brace, if all do and none is an empty object; else nothing.

    The writer finds its places with a function of its own, so that a wrong place cannot look right here as well.
    """
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == _LF)
    ends = ends if data.endswith(b"\n") else np.append(ends, len(text))
    starts = np.append(0, ends[:-1] + 1)
    last = ends - 1
    usual = np.take(text, last, mode="clip") == ord("}")
    usual &= ~np.isin(np.take(text, last - 1, mode="clip"), _BEFORE_EMPTY)
    for at in np.flatnonzero(~usual).tolist():
        line = data[starts[at] : ends[at]].rstrip()
        if not line.endswith(b"}") or line[:-1].rstrip().endswith(b"{"):
            return last[:0]
        last[at] = starts[at] + len(line) - 1
    return last
