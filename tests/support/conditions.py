"""What a condition means: Python's own reading of it, with quantities that may be missing."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any


class Quantity:
    """A number or a text; without a value it compares false, and so does its negative."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value = None if isinstance(value, float) and math.isnan(value) else value

    def __neg__(self) -> Quantity:
        return Quantity(None if self.value is None else -self.value)


def _compares(function: Callable[[Any, Any], bool]) -> Callable[[Quantity, Quantity], bool]:
    return lambda one, other: one.value is not None and other.value is not None and function(one.value, other.value)


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Quantity, f"__{_name}__", _compares(getattr(operator, _name)))


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Whether a condition is true of these quantities."""
    words = re.sub(r"'[^']*'|\b\d+(?:\.\d+)?\b", lambda found: f"Quantity({found[0]})", text)
    names = {name: Quantity(value) for name, value in values.items()}
    return bool(eval(words, {"Quantity": Quantity}, names))  # noqa: S307 - of conditions that tests write
