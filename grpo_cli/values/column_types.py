"""The type of a whole column of JSON values: derived from all of them, or block by block from the contents of each.

polars infers a struct from its first value and silently drops fields that come later, so the types are made here.
pyarrow builds the columns (a list of mixed numbers inside a struct is refused by polars 2.1), and is imported only here and
where blocks are converted: nothing else of a text format needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.values.cells import is_unicode, json_as_is, json_text

if TYPE_CHECKING:
    import pyarrow as pa

EXACT = 2**53  # a larger integer is not exact as a float
_MOST_FIELDS = 500  # a dict of more fields is a table of its own, not a record


@dataclass(slots=True)
class Contents:
    """The contents of a column: kinds of values, the range of integers, and the contents of its lists and objects."""

    kinds: set[type] = field(default_factory=set)
    low: int = 0
    high: int = 0
    items: Contents | None = None
    fields: dict[str, Contents] = field(default_factory=dict)
    is_unicode: bool = True

    @classmethod
    def of(cls, values: Iterable[Any]) -> Self:
        """The contents of these values; nulls add nothing."""
        present = [value for value in values if value is not None]
        found = cls(set(map(type, present)))
        if int in found.kinds:
            whole = [value for value in present if type(value) is int]
            low = min(whole)
            high = max(whole)
            found.low, found.high = min(0, low), max(0, high)
        if len(found.kinds) > 1:  # no lists, objects or texts have a type in common with another kind
            return found
        if str in found.kinds:
            found.is_unicode = is_unicode(present)
        if list in found.kinds:
            found.items = cls.of(item for row in present for item in row)
        if dict in found.kinds:
            names = dict.fromkeys(name for row in present for name in row)
            found.is_unicode = is_unicode(names)
            found.fields = {name: cls.of(row.get(name) for row in present) for name in names}
        return found

    def add(self, other: Contents) -> None:
        """Add the contents of another part of the column."""
        self.kinds |= other.kinds
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.is_unicode &= other.is_unicode
        if other.items is not None:
            self.items = self.items or Contents()
            self.items.add(other.items)
        for name, inner in other.fields.items():
            self.fields.setdefault(name, Contents()).add(inner)

    def type(self, *, inner_texts: bool = False) -> pa.DataType | None:
        """The type that holds all values without loss; None when there is no such type.

        With `inner_texts` only an item or a field without such a type becomes JSON text, instead of the whole column.
        """
        import pyarrow as pa

        if not self.kinds:
            return pa.large_string()  # a null type inside lists of structs leaves polars 2.1 as an invalid array
        if self.kinds <= {int, float} and int in self.kinds:
            if float in self.kinds:
                return pa.float64() if self.low >= -EXACT and self.high <= EXACT else None
            if self.low >= -(2**63) and self.high < 2**63:
                return pa.int64()
            return pa.uint64() if self.low >= 0 and self.high < 2**64 else None
        if len(self.kinds) > 1 or not self.is_unicode:
            return None
        (kind,) = self.kinds
        other = pa.large_string() if inner_texts else None
        if self.items is not None:
            inner = self.items.type(inner_texts=inner_texts) or other
            return None if inner is None else pa.large_list(inner)
        if kind is not dict:
            return {bool: pa.bool_(), str: pa.large_string(), float: pa.float64()}.get(kind)
        if not 0 < len(self.fields) <= _MOST_FIELDS:
            return None
        types = {name: inner.type(inner_texts=inner_texts) or other for name, inner in self.fields.items()}
        return None if None in types.values() else pa.struct(list(types.items()))


def refuse_broken_names(names: Iterable[str], file: str) -> None:
    """Refuse a name with half of a surrogate pair, which JSON allows and a column cannot have."""
    for name in names:
        if not is_unicode([name]):
            raise DataError(
                f"the name {name!r} is not Unicode, and cannot be that of a column", "rename the field", place=file
            )


def series_of(name: str, values: Sequence[Any]) -> pl.Series:
    """A column typed by all its values; what has no common type is kept as text, of other values than text as JSON."""
    return typed_series(name, values, Contents.of(values).type())


def typed_series(name: str, values: Sequence[Any], dtype: pa.DataType | None) -> pl.Series:
    """A column of a type that holds its values; without one (None), their texts."""
    import pyarrow as pa

    if dtype is None:
        return pl.Series(name, list(map(_as_text, values)), dtype=pl.String)
    return pl.Series(name, pa.array(values, dtype))


def with_inner_texts(value: Any, dtype: pa.DataType) -> Any:
    """The value, with items and fields of another type as JSON text where the column's type is text."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_large_list(dtype):
        return [with_inner_texts(item, dtype.value_type) for item in value]
    if pa.types.is_struct(dtype):
        return {field.name: with_inner_texts(value.get(field.name), field.type) for field in dtype}
    if pa.types.is_large_string(dtype):
        return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else json_as_is(value)
    return value


def _as_text(value: object) -> str | None:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return None if value is None else json_text(value)
