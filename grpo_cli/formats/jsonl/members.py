"""New members put into the text of one object: before its last brace, or where members of their names stand already."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from grpo_cli.formats.json_text import rewritten

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

_BLANK_BYTES: Final = b" \t\r\n"
_OPEN: Final = ord("{")
_VALUE: Final = r'(?:-?[0-9][-+0-9.eE]*|null|true|false|NaN|-?Infinity|"[^"\\]*"|\[[-+0-9.eE,nul]*\])'


@dataclass(frozen=True, slots=True)
class Spot:
    """Where new members go. The patterns are None for names that can be spelled in many ways."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    replace: bool
    last: str | None  # these members as they are put in, behind all others
    anywhere: str | None  # these names, wherever they stand
    plain: (
        re.Pattern[bytes] | None
    )  # an object up to its only new member, with no escape and no object inside before it

    @classmethod
    def of(cls, names: Sequence[str], *, replace: bool) -> Self:
        """Spell the keys once for all lines."""
        keys = tuple(map(json.dumps, names))
        if not all(map(has_one_spelling, names)):
            return cls(tuple(names), keys, replace, None, None, None)
        last = "".join(f",{re.escape(key)}:{_VALUE}" for key in keys) + "$"
        anywhere = "|".join((*map(re.escape, keys), r"\\u00[2-7]"))
        plain = None
        if len(names) == 1:
            plain = re.compile(rf"\s*{{[^{{\\]*?{re.escape(keys[0])}[ \t]*:[ \t]*({_VALUE})[ \t\r\n]*[,}}]".encode())
        return cls(tuple(names), keys, replace, last, anywhere, plain)

    def put(self, line: bytes, values: Sequence[str]) -> bytes:
        """The line with the new members, every other byte as it was."""
        if not self.replace:
            return _inserted(line, self.keys, values)
        if self.plain is not None and line.count(self.keys[0].encode()) == 1:
            match = self.plain.match(line)
            if match is not None and line.find(b"\\u", match.end()) < 0:
                start, end = match.span(1)
                return b"".join((line[:start], values[0].encode(), line[end:]))
        if self.anywhere is not None and not re.search(self.anywhere.encode(), line):
            return _inserted(line, self.keys, values)
        text, names, left = rewritten(
            line.decode("utf-8", "surrogateescape"), dict(zip(self.names, values, strict=True))
        )
        line = text.encode("utf-8", "surrogateescape")
        return _inserted(line, list(map(json.dumps, names)), left) if names else line


def _inserted(line: bytes, keys: Sequence[str], values: Sequence[str]) -> bytes:
    brace = line.rindex(b"}")
    before = brace - 1
    while line[before] in _BLANK_BYTES:
        before -= 1
    comma = "" if line[before] == _OPEN else ","
    text = comma + ",".join([f"{key}:{value}" for key, value in zip(keys, values, strict=True)])
    return b"".join((line[:brace], text.encode(), line[brace:]))


def has_one_spelling(name: str) -> bool:
    r"""Tell whether a name has no other spelling than with \u00XX for some of its characters."""
    return name.isascii() and name.isprintable() and not set(name) & set('"\\/') and name != ""
