"""Numbers and texts as a person reads them: short, aligned, and safe to print."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Below this share of the largest number beside it, a value is what rounding left of 0.
ROUNDING: Final = 1e-12
LISTED: Final = 3
# Beyond this a float has no units; where four decimals are too few or too many; what one decimal of a percent can say.
UNITS: Final = 1e15
SMALLEST: Final = 1e-3
LARGEST: Final = 1e4
LEAST: Final = 1e-3
MINUTE: Final = 60
ELLIPSIS: Final = "..."


def number(value: float | None, scale: float = 0.0, digits: int = 4) -> str:
    """Four significant digits (or as many as asked for) and thousands separators; 0 for what is rounding beside `scale`.

    >>> number(0.1 + 0.2), number(-1.4e-17, scale=1.0), number(1234567.0), number(None)
    ('0.3', '0', '1,234,567', '-')
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:g}"
    size = abs(value)
    if size <= ROUNDING * scale:
        return "0"
    rounded = float(f"{size:.{digits}g}")
    whole = 10 ** (digits - 1) <= rounded < UNITS
    return f"{value:,.0f}" if whole else f"{value:.{digits}g}"


def exact(value: Any) -> str:
    """A constant with all the digits that it was given with."""
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def column(values: Sequence[float | None], scale: float = 0.0) -> list[str]:
    """Numbers of one column with the same number of decimals, where their sizes allow it."""
    finite = [abs(v) for v in values if v is not None and math.isfinite(v)]
    top = max([scale, *finite])
    telling = [v for v in finite if v > ROUNDING * top]
    fraction = any(v != int(v) for v in telling)
    if not fraction or min(telling) < SMALLEST or top >= LARGEST:
        return [number(v, top) for v in values]
    return [_decimals(v) if v is not None and math.isfinite(v) else number(v) for v in values]


def _decimals(value: float) -> str:
    return f"{value:.4f}".replace("-0.0000", "0.0000")


def count(size: int, noun: str) -> str:
    """`1 group`, `3,000 groups`."""
    return f"{size:,} {noun}" if size == 1 else f"{size:,} {noun}s"


def percent(share: float) -> str:
    """A share, never rounded to nothing or to everything.

    >>> percent(0.25), percent(1 / 3), percent(1e-5), percent(0.99999), percent(1.0)
    ('25%', '33.3%', '<0.1%', '>99.9%', '100%')
    """
    if 0 < share < LEAST:
        return "<0.1%"
    if 1 - LEAST < share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def clean(text: str) -> str:
    """Data on one line, without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def cut(text: str, width: int) -> str:
    """Take out the middle of a long text: keys often differ at their ends.

    >>> cut("what is the sum of 17 and 25", 15)
    'what i...and 25'
    """
    if cell_len(text) <= width:
        return text
    room = width - len(ELLIPSIS)
    return _fitting(text, room - room // 2) + ELLIPSIS + _fitting(text[::-1], room // 2)[::-1]


def _fitting(text: str, width: int) -> str:
    """As many leading characters as fit into `width` cells."""
    used = 0
    for i, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[:i]
    return text


def listing(items: Iterable[str], shown: int = LISTED) -> str:
    """The first few, and how many more there are."""
    texts = list(items)
    more = f", {ELLIPSIS} {len(texts) - shown:,} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more


def duration(seconds: float) -> str:
    """`0.021 s`, `12.3 s`, `2 min 05 s`."""
    if seconds < MINUTE:
        return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{int(seconds) // MINUTE} min {int(seconds) % MINUTE:02d} s"
