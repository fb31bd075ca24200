"""What is the same in all lines of a block: the text between the values, keys included."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

_COLON: Final = re.compile(rb"[ \t\r\n]*+:")
_MOST: Final = (
    150  # values of a line: 30 MB of 120 short ones a line took 0.8 of polars' time, of 300 1.5 times as long
)
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_GAP: Final = re.compile(rb"([\s:,\[\]{}]*)(?:([^\s:,\[\]{}]+)([\s:,\[\]{}]*))?")


@dataclass(frozen=True, slots=True)
class Mould:
    """The text before, between and behind the values of a line, and which of the values are texts."""

    constants: tuple[bytes, ...]
    texts: tuple[bool, ...]
    row: dict[str, Any]  # the line as it is parsed, with the number of each value in its place
    sizes: tuple[int, ...] = field(compare=False)  # letters of each value in that line

    @classmethod
    def of(cls, line: bytes) -> Mould | None:
        """Take it from a line; none of very many values, or where two have no text between them that tells them apart."""
        constants, texts, sizes, marked = [b""], list[bool](), list[int](), list[bytes]()
        at = 0
        strings = [*_STRING.finditer(line)]
        for match in [*strings, None]:
            end = len(line) if match is None else match.start()
            gap = _GAP.fullmatch(line, at, end)
            if gap is None:
                return None
            before, scalar, behind = (part or b"" for part in gap.groups())
            constants[-1] += before
            marked.append(before)
            if scalar:
                texts.append(False)
                sizes.append(len(scalar))
                constants.append(behind)
                marked += [b'"%d"' % (len(texts) - 1), behind]
            if match is None:
                break
            if len(texts) > _MOST:
                return None
            at = match.end()
            if _COLON.match(line, at):
                constants[-1] += match[0]
                marked.append(match[0])
            else:
                constants[-1] += b'"'
                texts.append(True)
                sizes.append(len(match[0]) - 2)
                constants.append(b'"')
                marked.append(b'"%d"' % (len(texts) - 1))
        try:
            row = json.loads(b"".join(marked))
        except (ValueError, RecursionError):
            return None
        return cls(tuple(constants), tuple(texts), row, tuple(sizes)) if type(row) is dict else None

    @property
    def closing(self) -> int:
        """How far before the end of a line its last brace is."""
        return len(self.constants[-1]) - self.constants[-1].rindex(b"}")
