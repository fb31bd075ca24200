"""Turn the text of an option, a TOML value or a keyword argument into the type that its field declares.

One set of rules serves `--set`, `--param`, `--config`, presets and the Python API.
"""

from __future__ import annotations

import math
import types
from contextlib import suppress
from typing import Any, Literal, Union, get_args, get_origin

from grpo_cli.errors import UsageError

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
    if get_origin(hint) is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)):
            raise _wrong(value, "a list of numbers", where)
        return tuple(typed(item, get_args(hint)[0], where) for item in items)
    return _PLAIN[hint](value, where)


def _number(value: object, where: str) -> float:
    odd = isinstance(value, str) and ("_" in value or not value.isascii())  # no reward is written so either
    if odd or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _wrong(value, "a number", where)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise _wrong(value, "a number", where) from None
    if not math.isfinite(number):
        raise _wrong(value, "a finite number", where)
    return number


def _integer(value: object, where: str) -> int:
    with suppress(ValueError):
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return int(value)  # exact, where a float is not
    try:
        number = _number(value, where)
    except UsageError:
        raise _wrong(value, "a whole number", where) from None
    if not number.is_integer():
        raise _wrong(value, "a whole number", where)
    return int(number)


def _flag(value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise _wrong(value, "true or false", where)


def _text(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(value, "text", where)


def _wrong(value: object, wanted: str, where: str) -> UsageError:
    return UsageError(f"{where} cannot be {value!r}", f"it takes {wanted}")


_PLAIN = {float: _number, int: _integer, bool: _flag, str: _text}
