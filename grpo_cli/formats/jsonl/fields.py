"""Replace fields in the text of an object; those that it does not have are inserted before its last brace."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from grpo_cli.values.json_text import rewritten

_BLANK_BYTES: Final = b" \t\r\n"
_OPEN: Final = ord("{")
VALUE: Final = r'(?:-?[0-9][-+0-9.eE]*|null|true|false|NaN|-?Infinity|"[^"\\]*"|\[[-+0-9.eE,nul]*\])'


@dataclass(frozen=True, slots=True)
class Spot:
    """Where new fields go. The patterns are None for names that can be written in many ways."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    last: str | None  # these fields as they are inserted, after all others
    anywhere: str | None  # these names, anywhere
    # An object up to its only new field, with no escape and no nested object before it.
    plain: re.Pattern[bytes] | None

    @classmethod
    def of(cls, names: Sequence[str]) -> Self:
        """Render the keys once for all lines."""
        keys = tuple(map(json.dumps, names))
        if not all(map(has_plain_spelling, names)):
            return cls(tuple(names), keys, None, None, None)
        last = "".join(f",{re.escape(key)}:{VALUE}" for key in keys) + "$"
        anywhere = "|".join((*map(re.escape, keys), r"\\u00[2-7]"))
        plain = None
        if len(names) == 1:
            plain = re.compile(rf"\s*{{[^{{\\]*?{re.escape(keys[0])}[ \t]*:[ \t]*({VALUE})[ \t\r\n]*[,}}]".encode())
        return cls(tuple(names), keys, last, anywhere, plain)

    def put(self, line: bytes, values: Sequence[str]) -> bytes:
        """The line with the new fields, all other bytes as they were."""
        if self.plain is not None and line.count(self.keys[0].encode()) == 1:
            match = self.plain.match(line)
            if match is not None and line.find(b"\\u", match.end()) < 0:
                start, end = match.span(1)
                return b"".join((line[:start], values[0].encode(), line[end:]))
        if self.anywhere is not None and not re.search(self.anywhere.encode(), line):
            return inserted(line, self.keys, values)
        fresh = dict(zip(self.names, values, strict=True))
        text, left = rewritten(line.decode("utf-8", "surrogateescape"), fresh)
        line = text.encode("utf-8", "surrogateescape")
        return inserted(line, list(map(json.dumps, left)), list(left.values())) if left else line


def inserted(line: bytes, keys: Sequence[str], values: Sequence[str]) -> bytes:
    """The line with new fields before its last brace; the keys are JSON texts."""
    brace = line.rindex(b"}")
    before = brace - 1
    while line[before] in _BLANK_BYTES:
        before -= 1
    comma = "" if line[before] == _OPEN else ","
    text = comma + ",".join([f"{key}:{value}" for key, value in zip(keys, values, strict=True)])
    return b"".join((line[:brace], text.encode(), line[brace:]))


def has_plain_spelling(name: str) -> bool:
    r"""Whether \u00XX escapes are the only other way to write a name."""
    return name.isascii() and name.isprintable() and not set(name) & set('"\\/') and name != ""
