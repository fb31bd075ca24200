"""A command as a function of what was given, with the options that it takes; and the plain way to read its line.

Loading typer, and pydantic behind it, takes a quarter of the shortest run. A line of inputs and of options that are
spelled out is read here from the same table; whatever else it is (help, a short way to write, a mistake) is typer's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from grpo_cli.options.table import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from grpo_cli.options.table import Option

INPUTS: Final = "inputs"
_INT: Final = re.compile(r"-?[0-9]{1,15}")
_FLOAT: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?([eE]-?[0-9]{1,2})?")


@dataclass(frozen=True, slots=True)
class Command:
    """What is done with the inputs and options that were given, and which options those may be."""

    body: Callable[[dict[str, Any]], None]
    options: tuple[str, ...]

    def understood(self, words: Sequence[str]) -> dict[str, Any] | None:
        """What a command line gives, in the order of the table; None where it takes typer to say."""
        flags = {flag: EVERY[name] for name in self.options for flag in _flags(EVERY[name])}
        given: dict[str, Any] = {}
        left = iter(words)
        for word in left:
            if word == "-" or not word.startswith("-"):
                given.setdefault(INPUTS, []).append(word)
            elif (found := _given(flags, word, left)) is None:
                return None
            elif isinstance(found[1], list):
                given.setdefault(found[0], []).extend(found[1])
            else:
                given[found[0]] = found[1]
        return {name: given[name] for name in (INPUTS, *self.options) if name in given} if INPUTS in given else None


def takes(*options: str) -> Callable[[Callable[[dict[str, Any]], None]], Command]:
    """Make a command of a function."""
    return lambda body: Command(body, options)


def _flags(option: Option) -> list[str]:
    return [flag for flag in (option.flag, option.other, option.short) if flag]


def _given(flags: dict[str, Option], word: str, left: Iterator[str]) -> tuple[str, Any] | None:
    """One option and its value."""
    flag, equals, text = word.partition("=")
    option = flags.get(flag)
    if option is None or (equals and (option.type is bool or not flag.startswith("--"))):
        return None
    if option.type is bool:
        return option.name, True
    value = _value(option.type, text if equals else next(left, "--"))
    return None if value is None else (option.name, value)


def _value(kind: Any, text: str) -> Any:
    """The value that a text is, where no one can doubt it."""
    if kind is float or kind is int:
        return kind(text) if (_FLOAT if kind is float else _INT).fullmatch(text) else None
    if text.startswith("-") and text != "-":
        return None
    if get_origin(kind) is list:
        return [text]
    return text if kind is str or text in get_args(kind) else None
