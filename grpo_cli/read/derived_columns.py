"""Columns that a schema derives from others: a part of a text, a sum, letters as numbers, the name of the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats.interface import Scanned
from grpo_cli.schemas.table import Derived, Schema
from grpo_cli.values.cells import Field, Kind, Place, as_number, canonical, key_series, number_series
from grpo_cli.values.json_text import ABSENT, value_of

Scan = Callable[[Sequence[Field]], Scanned]

FILE: Final = "@file"
PATH: Final = "@path"
OWN: Final = frozenset({FILE, PATH})


@dataclass(frozen=True)
class DerivedColumns:
    """The columns of a table, plus those that its schema derives from them."""

    schema: Schema
    path: str
    place: Place

    def scan(self, scan: Scan, fields: Sequence[Field]) -> Scanned:
        """The columns of these fields, including derived ones; `scan` reads columns of the file."""
        sources = [self._source(field) for field in fields]
        parts = _distinct([source for source in sources if source.name not in OWN])
        scans = [scan(part) for part in parts]
        read = {source: found.frame[source.name] for part, found in zip(parts, scans, strict=True) for source in part}
        height, columns = scans[0].frame.height, []
        for field, source in zip(fields, sources, strict=True):
            is_path = source.name in OWN
            values = pl.repeat(self.path, height, dtype=pl.String, eager=True) if is_path else read[source]
            columns.append(self._column(field, values).alias(field.name))
        return scans[0].with_frame(pl.DataFrame(columns or None, height=height), *scans)

    def _source(self, field: Field) -> Field:
        """The source column of a derived column, or the column itself."""
        made = self.schema.derive.get(field.name)
        if made is not None:
            return Field(made.source, "numbers" if made.total else "key")
        name = field.name.removeprefix(f"{self.schema.rows}.") if self.schema.rows else field.name
        return Field(name, "key" if field.kind == "number" and self.schema.letters else field.kind)

    def _column(self, field: Field, values: pl.Series) -> pl.Series:
        made = self.schema.derive.get(field.name)
        if made is None:
            return (
                self._each(field.name, values, self._number)
                if field.kind == "number" and self.schema.letters
                else values
            )
        if made.total:  # null for lists that are null, empty or contain nulls
            whole = (values.list.len() > 0) & (values.list.len() == values.list.drop_nulls().list.len())
            return pl.select(pl.when(whole).then(values.list.sum())).to_series().cast(pl.Float64)
        if made.count:
            return self._each(field.name, values, lambda value: float(len(value)))
        if made.value:
            as_is = made.single and field.kind == "key"  # --map says which number it is
            return self._each(made.source, values, lambda value: self._parts(made, value, as_is=as_is), as_is=as_is)
        return self._matched(made, values)

    def _number(self, value: Any) -> float | None:
        letter = self.schema.letters.get(value) if isinstance(value, str) else None
        return as_number(value) if letter is None else letter

    def _parts(self, made: Derived, value: Any, *, as_is: bool) -> Any:
        """The sum over the parts with a value, or the value of the only part; what the schema says, or None, if no part has one."""
        parts: Mapping[Any, Any] = value if isinstance(value, dict) else dict(enumerate(value))
        if made.single and len(parts) > 1:
            names = ", ".join(map(str, parts))
            cure = f"choose one with --reward {made.source}.NAME.{made.value}"
            raise DataError(f"several could be the reward: {names}", cure)
        if as_is:
            return next((part.get(made.value) if isinstance(part, dict) else part for part in parts.values()), None)
        scored = [self._part(made, part) for part in parts.values() if part is not None]
        known = [number for number in scored if number is not None]
        return sum(known) if known else as_number(made.otherwise)

    def _part(self, made: Derived, part: Any) -> float | None:
        number = self._number(part.get(made.value) if isinstance(part, dict) else part)
        if number is None or not made.weight or not isinstance(part, dict):
            return number
        weight = as_number(part.get(made.weight))
        return number * (1.0 if weight is None else weight)

    def _each(self, name: str, column: pl.Series, number: Callable[[Any], Any], *, as_is: bool = False) -> pl.Series:
        """A number, or what it is read from, for every value that is not null, computed once for each distinct value."""
        values = column.to_list()
        if isinstance(
            column.dtype, pl.Categorical
        ):  # JSON values that are nested or of several types are stored as text
            values = [None if value is None else json.loads(value) for value in values]
        known: dict[Any, Any] = {}
        numbers = []
        for row, value in enumerate(values):
            key = value if isinstance(value, str) else json.dumps(value, default=str)
            if value is not None and key not in known:
                try:
                    known[key] = number(value)
                except DataError as error:
                    error.inside(self.place(row))
                    raise
                except (ValueError, TypeError, AttributeError):
                    raise DataError(
                        f"{name} is {str(value)[:40]}, which the schema {self.schema.name} does not expect",
                        "name the column with --reward, or read the file without it: --schema none",
                        place=self.place(row),
                    ) from None
            numbers.append(None if value is None else known[key])
        return key_series(name, numbers) if as_is else pl.Series(name, numbers, dtype=pl.Float64)

    def _matched(self, made: Derived, column: pl.Series) -> pl.Series:
        """The part of each text that the pattern of the schema extracts."""
        text = column if column.dtype == pl.String else canonical(column)
        part = text.str.extract(made.pattern)
        if made.otherwise is not None:
            return part.fill_null(made.otherwise)
        wrong = part.is_null() & text.is_not_null()
        if wrong.any():
            row = wrong.arg_max() or 0
            raise DataError(
                f"{made.source} is {text[row]!r}, which has no {made.means}",
                "name the key with --group, or read the file without a schema: --schema none",
                place=self.place(row),
            )
        return part


def inside_of_texts(field: Field, head: str, texts: pl.Series, place: Place) -> pl.Series | None:
    """The column at a dotted path into texts that are JSON objects; None if no text has the field."""
    if texts.dtype != pl.String:
        return None
    found: dict[str, Any] = {}
    other = None
    for text in texts.drop_nulls().unique(maintain_order=True):
        try:
            parsed = json.loads(text or "{}")
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            found[text] = value_of(parsed, field.name.removeprefix(f"{head}."))
        elif other is None:
            other = text
    if all(value is ABSENT for value in found.values()):
        return None
    if other is not None:
        raise DataError(
            f"{head} is {other[:40]!r}, expected a JSON object", place=place((texts == other).arg_max() or 0)
        )
    values = [None if text is None or found[text] is ABSENT else found[text] for text in texts]
    return key_series(field.name, values) if field.kind == "key" else number_series(field, values, place)


def _distinct(fields: Sequence[Field]) -> list[list[Field]]:
    """Divide the fields among scans, in each of which a name occurs once: a column read as two kinds takes two scans."""
    parts: list[dict[str, Kind]] = [{}]
    for field in fields:
        for part in parts:
            if part.setdefault(field.name, field.kind) == field.kind:
                break
        else:
            parts.append({field.name: field.kind})
    return [[Field(name, kind) for name, kind in part.items()] for part in parts]
