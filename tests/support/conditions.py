"""What a condition means: Python's own reading of it, with quantities that may be missing."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any


class Quantity:
    """A number or a text; without a value it compares false, and so does what is calculated from it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value = None if isinstance(value, float) and math.isnan(value) else value


def _calculates(function: Callable[[Any, Any], Any]) -> Callable[[Quantity, Quantity], Quantity]:
    def calculated(one: Quantity, other: Quantity) -> Quantity:
        if one.value is None or other.value is None:
            return Quantity(None)
        try:
            return Quantity(function(one.value, other.value))
        except (ZeroDivisionError, OverflowError):
            return Quantity(None)

    return calculated


def _compares(function: Callable[[Any, Any], bool]) -> Callable[[Quantity, Quantity], bool]:
    return lambda one, other: one.value is not None and other.value is not None and function(one.value, other.value)


for _name in ("add", "sub", "mul", "truediv"):
    setattr(Quantity, f"__{_name}__", _calculates(getattr(operator, _name)))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Quantity, f"__{_name}__", _compares(getattr(operator, _name)))
Quantity.__neg__ = lambda self: Quantity(0) - self  # type: ignore[operator]


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Whether a condition is true of these quantities."""
    words = re.sub(r"'[^']*'|\b\d+(?:\.\d+)?\b", lambda found: f"Quantity({found[0]})", text)
    names = {name: Quantity(value) for name, value in values.items()}
    return bool(eval(words, {"Quantity": Quantity}, names))  # noqa: S307 - of conditions that tests write
