"""Columns that a schema makes of others: a part of a text, a sum of parts, letters as numbers, the name of the file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats.cells import as_number, canonical
from grpo_cli.formats.interface import Field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grpo_cli.formats.interface import Kind
    from grpo_cli.schemas.table import Derived, Schema

    Place = Callable[[int], str]
    Scan = Callable[[Sequence[Field]], pl.DataFrame]

FILE: Final = "@file"
PATH: Final = "@path"
OWN: Final = frozenset({FILE, PATH})


@dataclass(frozen=True, slots=True)
class Made:
    """A table's columns with those that its schema makes of them."""

    schema: Schema
    path: str
    place: Place

    def scan(self, scan: Scan, fields: Sequence[Field]) -> pl.DataFrame:
        """The asked columns, made ones among them; `scan` reads those of the file."""
        wants = {one.name: self._source(one) for one in fields}
        asked = _distinct([want for want in wants.values() if want.name not in OWN])
        frames = [scan(part) for part in asked if part] or [scan([])]
        height = frames[0].height
        columns = []
        for one in fields:
            want = wants[one.name]
            found = self._constant(want.name, height) if want.name in OWN else _among(frames, want)
            columns.append(self._column(one, found).alias(one.name))
        return pl.DataFrame(columns)

    def _source(self, field: Field) -> Field:
        made = self.schema.derive.get(field.name)
        if made is not None:
            return Field(made.source, "numbers" if made.total else "key")
        return Field(field.name, "key") if field.kind == "number" and self.schema.letters else field

    def _constant(self, name: str, height: int) -> pl.Series:
        return pl.repeat(self.path, height, dtype=pl.String, eager=True).alias(name)

    def _column(self, field: Field, found: pl.Series) -> pl.Series:
        made = self.schema.derive.get(field.name)
        if made is None:
            return self._letters(field, found) if self._source(field) != field else found
        if made.total:
            return _total(found)
        if made.count:
            return self._each(field.name, found, lambda value: float(len(value)))
        if made.value:
            return self._each(made.source, found, lambda value: self._parts(made, value))
        return self._matched(made, found)

    def _letters(self, field: Field, found: pl.Series) -> pl.Series:
        return self._each(field.name, found, self._number)

    def _number(self, value: Any) -> float | None:
        letter = self.schema.letters.get(value) if isinstance(value, str) else None
        return as_number(value) if letter is None else letter

    def _parts(self, made: Derived, value: Any) -> float | None:
        """The sum over the parts that have a value; nothing where no part has one."""
        parts: Mapping[Any, Any] = value if isinstance(value, dict) else dict(enumerate(value))
        if made.alone and len(parts) > 1:
            names = ", ".join(map(str, parts))
            cure = f"choose one with --reward {made.source}.NAME.{made.value}"
            raise DataError(f"several could be the reward: {names}", cure)
        scored = [self._part(made, part) for part in parts.values() if part is not None]
        known = [one for one in scored if one is not None]
        return sum(known) if known else None

    def _part(self, made: Derived, part: Any) -> float | None:
        number = self._number(part.get(made.value) if isinstance(part, dict) else part)
        if number is None or not made.weight or not isinstance(part, dict):
            return number
        weight = as_number(part.get(made.weight))
        return number * (1.0 if weight is None else weight)

    def _each(self, name: str, found: pl.Series, number: Callable[[Any], float | None]) -> pl.Series:
        """A number of every value that is there, worked out once for each that occurs."""
        known: dict[Any, float | None] = {}
        numbers: list[float | None] = []
        for row, value in enumerate(_python(found)):
            key = value if isinstance(value, str) else json.dumps(value, default=str)
            if value is not None and key not in known:
                known[key] = self._asked(name, number, value, row)
            numbers.append(None if value is None else known[key])
        return pl.Series(name, numbers, dtype=pl.Float64)

    def _asked(self, name: str, number: Callable[[Any], float | None], value: Any, row: int) -> float | None:
        try:
            return number(value)
        except DataError as error:
            raise DataError(f"{self.place(row)}: {error.message}", error.hint) from None
        except (ValueError, TypeError, AttributeError):
            text = str(value)
            told = f"{self.place(row)}: {name} is {text[:40]}, which the schema {self.schema.name} does not expect"
            raise DataError(told, "name the column with --reward, or read the file without it: --schema none") from None

    def _matched(self, made: Derived, found: pl.Series) -> pl.Series:
        text = found if found.dtype == pl.String else canonical(found)
        part = text.str.extract(made.pattern)
        if made.otherwise is not None:
            return part.fill_null(made.otherwise)
        wrong = part.is_null() & text.is_not_null()
        if wrong.any():
            row = wrong.arg_max() or 0
            told = f"{self.place(row)}: {made.source} is {text[row]!r}, which has no {made.means}"
            raise DataError(told, "name the key with --group, or read the file without a schema: --schema none")
        return part


def _total(found: pl.Series) -> pl.Series:
    """The sum of each list; null where a list is null, empty or holds a null."""
    whole = (found.list.len() > 0) & (found.list.len() == found.list.drop_nulls().list.len())
    return pl.select(pl.when(whole).then(found.list.sum())).to_series().cast(pl.Float64)


def _python(found: pl.Series) -> list[Any]:
    """The values of a key column as Python has them; those of JSON are text when they are nested or mixed."""
    values = found.to_list()
    if not isinstance(found.dtype, pl.Categorical):
        return values
    return [None if value is None else json.loads(value) for value in values]


def _distinct(fields: Sequence[Field]) -> list[list[Field]]:
    """Fields of one scan have one name each; the same column read as two kinds takes two scans."""
    parts: list[dict[str, Kind]] = [{}]
    for one in fields:
        for part in parts:
            if part.setdefault(one.name, one.kind) == one.kind:
                break
        else:
            parts.append({one.name: one.kind})
    return [[Field(name, kind) for name, kind in part.items()] for part in parts]


def _among(frames: Sequence[pl.DataFrame], want: Field) -> pl.Series:
    having = [frame[want.name] for frame in frames if want.name in frame.columns]
    if len(having) == 1:
        return having[0]
    kinds = {"number": pl.Float64, "numbers": pl.List(pl.Float64)}
    return next((one for one in having if one.dtype == kinds.get(want.kind)), having[0])
