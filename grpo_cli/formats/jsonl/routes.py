"""Which members of a JSON object the fast reader asks for, and what may stand in the text where it asks.

A route says where a field lies and of which type it is, by the look of a few rows. Its tokens are the quoted keys
on the way: in JSON text `"reward"` with these very quotes is a whole string, since quotes inside of a string are
escaped. So a line that holds each token exactly once, and gave a value, holds no second member of that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from grpo_cli.formats.jsonl.rows import value_of
from grpo_cli.formats.paths import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from grpo_cli.formats.interface import Field

_NUMBER: Final = (int, float)


@dataclass(frozen=True, slots=True)
class Route:
    """The keys that lead to a field, the dtype that is asked for, and the spellings that would win over the route."""

    field: Field
    path: tuple[str, ...]
    dtype: pl.DataType
    rivals: tuple[str, ...]

    @property
    def certain(self) -> bool:
        """Tell whether a null can be believed: a nested or a dotted one may stand elsewhere as well."""
        return len(self.path) == 1 and "." not in self.field.name

    def column(self) -> pl.Expr:
        """The value, out of the structs around it."""
        found = pl.col(self.path[0])
        for name in self.path[1:]:
            found = found.struct.field(name)
        # Text is asked for as categories, since polars spells any other value as text where it wants a String.
        return (found.cast(pl.String) if isinstance(self.dtype, pl.Categorical) else found).alias(self.field.name)


def plain(name: str) -> bool:
    r"""Tell whether a key has two spellings at most: its letters, or \u00XX for some of them."""
    return name.isascii() and name.isprintable() and not set(name) & set('"\\/') and name != ""


def routes(fields: Sequence[Field], sample: Sequence[Mapping[str, Any]]) -> list[Route] | None:
    """Find a route to every field; none when one of them has a type that only the exact reader knows."""
    text = pl.Categorical(pl.Categories.random())  # not the global ones, which would keep the keys of all blocks
    found = []
    for field in fields:
        path = _path(field.name, sample)
        dtype = _dtype(field, sample, text)
        if dtype is None:
            return None
        found.append(Route(field, path, dtype, _rivals(field.name, path)))
    return found


def _path(name: str, sample: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    if "." in name:
        for row in sample:
            steps = resolve(name, row, lambda top, key: top.get(key) if isinstance(top, dict) else None)
            if steps is not None:
                return tuple(steps)
    return (name,)


def _rivals(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """Keys with dots in them that reach the same name in another way."""
    parts = name.split(".")
    joined = (".".join(parts[start:end]) for start, end in combinations(range(len(parts) + 1), 2) if end - start > 1)
    return tuple(key for key in joined if key not in path)


def _dtype(field: Field, sample: Sequence[Mapping[str, Any]], text: pl.Categorical) -> pl.DataType | None:
    value = next((value for row in sample if type(value := value_of(row, field.name)) not in _NO_VALUE), None)
    if value is None:
        return pl.Null() if field.kind == "key" else pl.Float64()
    if isinstance(value, str):
        return text
    if isinstance(value, bool):
        return pl.Boolean()
    if field.kind == "key":
        return pl.Int64() if isinstance(value, int) else None
    if isinstance(value, _NUMBER):
        return pl.Float64()
    return pl.List(pl.Float64) if field.kind == "numbers" and isinstance(value, list) else None


_NO_VALUE: Final = (type(None), object)


def schema(found: Iterable[Route]) -> dict[str, pl.DataType] | None:
    """The members to ask for; none when two routes want different things of the same one."""
    tree: dict[str, Any] = {}
    for route in found:
        top = tree
        for name in route.path[:-1]:
            top = top.setdefault(name, {})
            if not isinstance(top, dict):
                return None
        if top.setdefault(route.path[-1], route.dtype) is not route.dtype:
            return None
    return {name: _struct(inner) for name, inner in tree.items()}


def _struct(inner: Any) -> pl.DataType:
    if not isinstance(inner, dict):
        return inner  # type: ignore[no-any-return]
    return pl.Struct({name: _struct(deeper) for name, deeper in inner.items()})
