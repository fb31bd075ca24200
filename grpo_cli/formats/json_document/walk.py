"""Where the rollouts of a JSON document lie in its text, and new members beside them.

The positions come from Python's own scanner, which also gives the values: what is read and what is written back can
never differ. Every byte that is not a new member stays as it was.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from grpo_cli.formats.json_text import ABSENT, DECODER, Doubled, refuse_doubled, rewritten, skip, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = DECODER.scan_once  # type: ignore[attr-defined]
EACH: Final = "[]"
EVERY: Final = "*"

Scope = dict[str, Any]


class Row(NamedTuple):
    """One rollout: where its text is, its value, the members of the objects around it, and the list it stands in."""

    start: int
    end: int
    value: Any
    scopes: tuple[Scope, ...]  # the farthest first
    list_at: int  # the number of its list in the document, as if each record without rollouts had one; -1 for none

    def value_of(self, name: str, place: Callable[[], str]) -> tuple[int, Any]:
        """The value of a column and how far out it was found; of the objects around it, the nearest that has it.

        `place` names the rollout for the error if one of these objects names it twice.
        """
        for far, scope in enumerate((self.value, *reversed(self.scopes))):
            if type(scope) is dict and name in scope:  # nearly always: a plain one names nothing twice
                return far, scope[name]
            if isinstance(scope, dict):
                refuse_doubled(scope, [name], place)
                found = value_of(scope, name)
                if found is not ABSENT:
                    return far, found
        return -1, ABSENT


class Rows(list[Row]):
    """The rollouts of a document in order, how many lists they could stand in, and how many of its records have none."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__()
        lists = [at for at, step in enumerate(path) if step == EACH]
        self.inside_record = (
            path[lists[-2] + 1 :] if len(lists) > 1 else path
        )  # the steps from a record to its rollouts
        self.lists = self.empty = 0


def steps(path: str) -> tuple[str, ...]:
    """The steps of a path: `results[].completions[]` leads over two lists, `eval.*[]` over the list in every member."""
    return tuple(re.findall(r"\[\]|[^.\[\]]+", path))


def rows_of(text: str, path: tuple[str, ...]) -> Rows:
    """All rollouts of one document; JSONDecodeError where it is none."""
    rows = Rows(path)
    try:
        end = _walk(text, skip(text, 0), path, (), -1, rows)
    except (StopIteration, IndexError):
        raise _refused(text) from None
    if (behind := skip(text, end)) != len(text):
        raise json.JSONDecodeError("Extra data", text, behind)
    return rows


def _refused(text: str) -> json.JSONDecodeError:
    """What Python's parser says of a text that the walk could not read."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error
    return json.JSONDecodeError("Expecting value", text, len(text))


def _walk(text: str, at: int, path: tuple[str, ...], scopes: tuple[Scope, ...], list_at: int, rows: Rows) -> int:
    if not path:
        value, end = _SCAN(text, at)
        rows.append(Row(at, end, value, scopes, list_at))
        return end
    opening, before, lists = "[" if path[0] == EACH else "{", len(rows), rows.lists
    if text[at] != opening:
        _, end = _SCAN(text, at)  # null, or another thing where a list or an object could be: no rollouts in it
    else:
        end = (_elements if opening == "[" else _members)(text, at, path, scopes, rows)
    if path == rows.inside_record:
        rows.empty += len(rows) == before
        rows.lists += rows.lists == lists
    return end


def _elements(text: str, at: int, path: tuple[str, ...], scopes: tuple[Scope, ...], rows: Rows) -> int:
    number, at = rows.lists, skip(text, at + 1)
    rows.lists += EACH not in path[1:]
    while text[at] != "]":
        at = skip(text, _walk(text, at, path[1:], scopes, number, rows))
        at = _after_comma(text, at, "]")
    return at + 1


def _members(text: str, at: int, path: tuple[str, ...], scopes: tuple[Scope, ...], rows: Rows) -> int:
    scope, entered = Doubled(), False
    at = skip(text, at + 1)
    while text[at] != "}":
        key, at = _key(text, at)
        if path[0] == EVERY:
            at = _walk(text, at, path[1:], (*scopes, scope), -1, rows)
        elif key == path[0]:
            if entered:
                raise ValueError(f"{key} is named twice in one object")
            entered = True
            at = _walk(text, at, path[1:], (*scopes, scope), -1, rows)
        else:
            value, at = _SCAN(text, at)
            scope.add(key, value)
        at = _after_comma(text, skip(text, at), "}")
    return at + 1


def _key(text: str, at: int) -> tuple[str, int]:
    """A key and where its value begins."""
    if text[at] != '"':
        raise StopIteration
    key, at = _SCAN(text, at)
    at = skip(text, at)
    if text[at] != ":":
        raise StopIteration
    return key, skip(text, at + 1)


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
    """The text of an object with new members at its end, spaced as its first one is."""
    if replace:
        text, names, values = rewritten(text, dict(zip(names, values, strict=True)))
    if not names:
        return text
    first = skip(text, 1)
    lead = text[1:first]
    last = len(text[:-1].rstrip(" \t\n\r"))
    colon = ": " if "\n" in lead else ":"
    separator = f",{lead}" if "\n" in lead else ","
    members = separator.join(f"{json.dumps(name)}{colon}{value}" for name, value in zip(names, values, strict=True))
    head = text[:last] + ("" if first == len(text) - 1 else separator)
    return f"{head}{members}{text[last:]}"


def woven(text: str, rows: Sequence[Row], texts: Iterable[str]) -> Iterator[str]:
    """The document in pieces, with new texts where its rollouts were."""
    done = 0
    for row, new in zip(rows, texts, strict=True):
        yield text[done : row.start]
        yield new
        done = row.end
    yield text[done:]


def without(text: str, rows: Sequence[Row], kept: Collection[int], texts: Iterable[str]) -> Iterator[str]:
    """The document in pieces with only the kept rollouts, of which these are the new texts; other separators go, too."""
    fresh, done = iter(texts), 0
    for first, last in _lists(rows):
        yield text[done : rows[first].start]
        stay = [at for at in range(first, last) if at in kept]
        for number, at in enumerate(stay):
            yield text[rows[at - 1].end : rows[at].start] if number else ""
            yield next(fresh)
        done = rows[last - 1].end
    yield text[done:]


def _lists(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """First and behind the last of the rollouts that share a list."""
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at].list_at != rows[start].list_at:
            yield start, at
            start = at
