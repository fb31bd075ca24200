"""Turn the text of an option, a TOML value or a keyword argument into the type that its field declares.

One set of rules serves `--set`, `--param`, `--config`, presets and the Python API.
"""

from __future__ import annotations

import math
import types
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, Union, get_args, get_origin

from grpo_cli.errors import UsageError

LARGEST = 2**63 - 1  # polars and numpy count in signed words of 64 bits
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def typed(value: object, hint: Any, where: str) -> Any:
    """`value` with the type `hint`, or a usage error that names the field and what it takes."""
    if get_origin(hint) in {Union, types.UnionType}:
        if value is None or (isinstance(value, str) and value.lower() in {"none", "null"}):
            return None
        return typed(value, next(arg for arg in get_args(hint) if arg is not type(None)), where)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UsageError(f"{where} cannot be {value!r}", f"choose from {', '.join(map(str, get_args(hint)))}")
        return value
    try:
        if get_origin(hint) is tuple:
            return tuple(typed(item, get_args(hint)[0], where) for item in _items(value))
        return _PLAIN[hint](value)
    except TypeError as wanted:
        raise UsageError(f"{where} cannot be {value!r}", f"it takes {wanted}") from None


def _items(value: object) -> Sequence[object]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise TypeError("a list of numbers")
    return items


def _number(value: object) -> float:
    odd = isinstance(value, str) and ("_" in value or not value.isascii())  # no reward is written so either
    if odd or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError("a number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise TypeError("a number") from None
    if not math.isfinite(number):
        raise TypeError("a finite number")
    return number


def _integer(value: object) -> int:
    number = _exact(value)
    if number is None:
        raise TypeError("a whole number")
    if abs(number) > LARGEST:
        raise TypeError(f"a whole number of at most {LARGEST}")
    return number


def _exact(value: object) -> int | None:
    with suppress(ValueError):
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return int(value)  # where a float is not exact
    with suppress(TypeError):
        number = _number(value)
        if number.is_integer():
            return int(number)
    return None


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise TypeError("true or false")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError("text")


_PLAIN = {float: _number, int: _integer, bool: _flag, str: _text}
