"""The members of one JSON object in its text: where their values lie, and how to put new ones in.

The positions come from the scanner that also parses the rows (Python's own, in C), so that the two can
never read a line differently.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from grpo_cli.formats.cells import float_texts
from grpo_cli.formats.paths import splits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Self

_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_BREAKS: Final = re.compile(r"[ \t\r]*\n[ \t\r\n]*")
_BLANK_BYTES: Final = b" \t\r\n"
_OPEN: Final = ord("{")
_SMALL: Final = 1e-4
_VALUE: Final = r'(?:-?[0-9][-+0-9.eE]*|null|true|false|NaN|-?Infinity|"[^"\\]*")'


def spell(value: object) -> str:
    """JSON text of one cell, in ASCII. JSON has no word for NaN and infinity, so they become null."""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "null"
    if isinstance(value, list):
        return f"[{','.join(map(spell, value))}]"
    return json.dumps(value)


def spelt(series: pl.Series) -> pl.Series:
    """JSON text of a column, letter for letter that of `spell`."""
    if series.dtype.is_float():
        return _spelt_floats(series.cast(pl.Float64))
    if series.dtype.is_integer() or series.dtype == pl.Boolean:
        return series.cast(pl.String).fill_null("null")
    return pl.Series(series.name, list(map(spell, series.to_list())), dtype=pl.String)


def _spelt_floats(series: pl.Series) -> pl.Series:
    texts, finite = float_texts(series), series.is_finite()
    if finite.all() and not series.null_count():
        return texts
    return pl.select(pl.when(finite).then(texts).otherwise(pl.lit("null"))).to_series()


@dataclass(frozen=True, slots=True)
class Spot:
    """Where new members go: before the last brace, or where members of their names stand already."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    spellings: tuple[bytes, ...]
    replace: bool
    last: str | None  # a pattern of these members as they are put in; None if a name can be spelled in many ways
    anywhere: str  # a pattern of these names, wherever they stand
    plain: (
        re.Pattern[bytes] | None
    )  # an object up to its only new member, with no escape and no object inside before it

    @classmethod
    def of(cls, names: Sequence[str], *, replace: bool) -> Self:
        """Spell the keys once for all lines."""
        keys = tuple(map(json.dumps, names))
        raw = (json.dumps(name, ensure_ascii=False) for name in names)
        looked_for = (b"\\u", *(key.encode("utf-8", "surrogatepass") for key in (*keys, *raw)))
        # Letters can be escaped as \u0061 only; a slash or a quote in a name has more spellings, and
        # a lone backslash is in each of them.
        odd = any(not name.isidentifier() for name in names)
        last = "".join(f",{re.escape(key)}:{_VALUE}" for key in keys) + "$"
        plain = None
        if len(names) == 1 and has_one_spelling(names[0]):
            plain = re.compile(rf"\s*{{[^{{\\]*?{re.escape(keys[0])}[ \t]*:[ \t]*({_VALUE})[ \t\r\n]*[,}}]".encode())
        return cls(
            tuple(names),
            keys,
            (b"\\", *looked_for) if odd else looked_for,
            replace,
            last if all(map(has_one_spelling, names)) else None,
            "|".join((*map(re.escape, keys), r"\\u00[2-7]")),
            plain,
        )

    def put(self, line: bytes, values: Sequence[str]) -> bytes:
        """Give the line with the new members, every other byte as it was."""
        if not self.replace:
            return _inserted(line, self.keys, values)
        if self.plain is not None and line.count(self.keys[0].encode()) == 1:
            match = self.plain.match(line)
            if match is not None and line.find(b"\\u", match.end()) < 0:
                start, end = match.span(1)
                return b"".join((line[:start], values[0].encode(), line[end:]))
        if any(spelling in line for spelling in self.spellings):
            return self._rewritten(line, values)
        return _inserted(line, self.keys, values)

    def _rewritten(self, line: bytes, values: Sequence[str]) -> bytes:
        # A repeated key is rewritten everywhere: which of them counts differs from reader to reader.
        text = line.decode("utf-8", "surrogateescape")
        fresh = dict(zip(self.names, values, strict=True))
        spans = [span for span in spans_of(text) if span[0] in fresh]
        for name, start, end in reversed(spans):
            text = text[:start] + fresh[name] + text[end:]
        seen = {name for name, _, _ in spans}
        named = zip(self.keys, self.names, strict=True)
        left = [(key, fresh[name]) for key, name in named if name not in seen]
        line = text.encode("utf-8", "surrogateescape")
        return _inserted(line, *zip(*left, strict=True)) if left else line


def _inserted(line: bytes, keys: Sequence[str], values: Sequence[str]) -> bytes:
    brace = line.rindex(b"}")
    before = brace - 1
    while line[before] in _BLANK_BYTES:
        before -= 1
    comma = "" if line[before] == _OPEN else ","
    text = comma + ",".join([f"{key}:{value}" for key, value in zip(keys, values, strict=True)])
    return b"".join((line[:brace], text.encode(), line[brace:]))


def spans_of(text: str) -> Iterator[tuple[str, int, int]]:
    """Key, start and end of value of every top-level member, in order; ValueError or IndexError for what is no object."""
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = _scanned(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _scanned(text, start)
        yield key, start, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def texts_of(text: str, names: Sequence[str]) -> list[str | None]:
    """The JSON text of the value of each column or dotted path of an object; None where it has none, or null.

    ValueError for one that the object names twice.
    """
    spans: dict[str, tuple[int, int]] = {}
    twice: set[str] = set()
    for key, start, end in spans_of(text):
        if key in spans:
            twice.add(key)
        else:
            spans[key] = start, end
    return [_text_of(text, name, spans, twice) for name in names]


def _text_of(text: str, name: str, spans: Mapping[str, tuple[int, int]], twice: Collection[str]) -> str | None:
    if name in twice:
        raise ValueError(f"{name} is named twice in one object")
    if name in spans:
        start, end = spans[name]
        found = text[start:end]
        return None if found == "null" else found
    for head, rest in splits(name):
        if head in spans:
            start, end = spans[head]
            return texts_of(text[start:end], [rest])[0] if text[start] == "{" else None
    return None


def on_one_line(text: str) -> str:
    """The same JSON without line breaks: outside of its strings they mean nothing, and inside they are escaped."""
    return _BREAKS.sub("", text) if "\n" in text else text


def items_of(text: str) -> list[str]:
    """The JSON text of every item of a list."""
    items = []
    at = _skip(text, 1)
    while text[at] != "]":
        start = at
        _, at = _scanned(text, start)
        items.append(text[start:at])
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return items


def _scanned(text: str, at: int) -> tuple[Any, int]:
    try:
        return _SCAN(text, at)
    except StopIteration:
        raise ValueError(text) from None


def _skip(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()


def has_one_spelling(name: str) -> bool:
    r"""Tell whether a name has no other spelling than with \u00XX for some of its characters."""
    return name.isascii() and name.isprintable() and not set(name) & set('"\\/') and name != ""
