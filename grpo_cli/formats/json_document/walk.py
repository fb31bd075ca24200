"""Positions of rollouts in the text of a JSON document, and new fields beside them.

The positions come from Python's own scanner, which also gives the values, so reading and writing can never differ.
Every byte that is not a new field stays as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from grpo_cli.values.json_text import ABSENT, DECODER, Doubled, Where, rewritten, skip, value_of

_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = DECODER.scan_once  # type: ignore[attr-defined]
EACH = "[]"
EVERY = "*"

Steps = tuple[str, ...]
Scopes = tuple[Doubled, ...]  # the fields of the objects around a rollout, farthest first


class Rollout(NamedTuple):
    """A rollout: the position of its text, its value, the fields of the objects around it, and its list."""

    start: int
    end: int
    value: Any
    scopes: Scopes
    list_at: int  # the number of its list in the document, as if each record without rollouts had one; -1 for none

    def value_of(self, name: str, place: Where) -> tuple[int, Any]:
        """The value of a column, in the rollout or the nearest object around it, and how far out it was found.

        `place` names the rollout for the error, if one of these objects names the column twice.
        """
        for far, scope in enumerate((self.value, *reversed(self.scopes))):
            if isinstance(scope, dict):
                found = value_of(scope, name, place)
                if found is not ABSENT:
                    return far, found
        return -1, ABSENT


class Rollouts(list[Rollout]):
    """The rollouts of a document in order, the number of lists that could have some, and of empty records."""

    def __init__(self, path: Steps) -> None:
        super().__init__()
        lists = [at for at, step in enumerate(path) if step == EACH]
        # The steps from a record to its rollouts.
        self.inside_record = path[lists[-2] + 1 :] if len(lists) > 1 else path
        self.lists = self.empty = 0


def steps(path: str) -> Steps:
    """The steps of a path: `results[].completions[]` goes through two lists, `eval.*[]` through the list in each field."""
    return tuple(re.findall(r"\[\]|[^.\[\]]+", path))


def rows_of(text: str, path: Steps) -> Rollouts:
    """All rollouts of a document; JSONDecodeError if it is not JSON."""
    rows = Rollouts(path)
    try:
        end = _walk(text, skip(text, 0), path, (), -1, rows)
    except (StopIteration, IndexError):
        json.loads(text)  # says what is wrong
        raise json.JSONDecodeError("Expecting value", text, len(text)) from None
    if (after := skip(text, end)) != len(text):
        raise json.JSONDecodeError("Extra data", text, after)
    return rows


def _walk(text: str, at: int, path: Steps, scopes: Scopes, list_at: int, rows: Rollouts) -> int:
    if not path:
        value, end = _SCAN(text, at)
        rows.append(Rollout(at, end, value, scopes, list_at))
        return end
    opening = "[" if path[0] == EACH else "{"
    before = len(rows)
    lists = rows.lists
    if text[at] != opening:
        _, end = _SCAN(text, at)  # null or another value instead of a list or an object: no rollouts
    else:
        end = (_items if opening == "[" else _fields)(text, at, path, scopes, rows)
    if path == rows.inside_record:
        rows.empty += len(rows) == before
        rows.lists += rows.lists == lists
    return end


def _items(text: str, at: int, path: Steps, scopes: Scopes, rows: Rollouts) -> int:
    number, at = rows.lists, skip(text, at + 1)
    rows.lists += EACH not in path[1:]
    while text[at] != "]":
        at = skip(text, _walk(text, at, path[1:], scopes, number, rows))
        at = _after_comma(text, at, "]")
    return at + 1


def _fields(text: str, at: int, path: Steps, scopes: Scopes, rows: Rollouts) -> int:
    scope = Doubled()
    entered = False
    at = skip(text, at + 1)
    while text[at] != "}":
        if text[at] != '"':
            raise StopIteration
        key, at = _SCAN(text, at)
        at = skip(text, at)
        if text[at] != ":":
            raise StopIteration
        at = skip(text, at + 1)
        if path[0] in {key, EVERY}:
            if entered and path[0] != EVERY:
                raise ValueError(f"{key} is named twice in one object")
            entered = True
            at = _walk(text, at, path[1:], (*scopes, scope), -1, rows)
        else:
            value, at = _SCAN(text, at)
            scope.add(key, value)
        at = _after_comma(text, skip(text, at), "}")
    return at + 1


def _after_comma(text: str, at: int, closing: str) -> int:
    """The next item, or the closing bracket."""
    if text[at] == closing:
        return at
    if text[at] != ",":
        raise StopIteration
    at = skip(text, at + 1)
    if text[at] == closing:
        raise StopIteration
    return at


def put(text: str, names: Sequence[str], values: Sequence[str], *, replace: bool) -> str:
    """The text of an object with new fields at its end, spaced like its first field."""
    fresh = dict(zip(names, values, strict=True))
    if replace:
        text, fresh = rewritten(text, fresh)
    if not fresh:
        return text
    first = skip(text, 1)
    lead = text[1:first]
    last = len(text[:-1].rstrip(" \t\n\r"))
    colon = ": " if "\n" in lead else ":"
    separator = f",{lead}" if "\n" in lead else ","
    fields = separator.join(f"{json.dumps(name)}{colon}{value}" for name, value in fresh.items())
    head = text[:last] + ("" if first == len(text) - 1 else separator)
    return f"{head}{fields}{text[last:]}"


def woven(text: str, rows: Sequence[Rollout], kept: Collection[int], texts: Iterable[str]) -> Iterator[str]:
    """The document in pieces with the kept rollouts in these new texts, without the others and their separators."""
    fresh = iter(texts)
    done = 0
    for _, places in groupby(range(len(rows)), key=lambda at: rows[at].list_at):
        here = list(places)
        yield text[done : rows[here[0]].start]
        stay = [at for at in here if at in kept]
        for number, at in enumerate(stay):
            yield text[rows[at - 1].end : rows[at].start] if number else ""
            yield next(fresh)
        done = rows[here[-1]].end
    yield text[done:]
