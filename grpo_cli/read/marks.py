"""Rows that do not count like others: left out of their group, masked, or no rollouts at all.

A schema says what the marks of its tool mean, a preset what its own tool does with such rows, and flags override both.
See docs/masked.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.plan_parts import MaskedRows
from grpo_cli.errors import DataError, UsageError, Way, near_names
from grpo_cli.read.known_names import FAILED_ENDS, GOOD, KNOWN_MARKS, MARKS_OF_PEOPLE, MAYBE_OUTCOMES, OUTCOMES
from grpo_cli.read.written import rows_with, values_of
from grpo_cli.schemas.table import Mark, MarkKind
from grpo_cli.values.cells import JSON_TEXT, canonical, where
from grpo_cli.values.key_text import cut, plain

TRUE = frozenset({"true", "yes", "y", "t", "on", "1", "1.0"})
NOTHING = frozenset({"", "[]", "{}", "null", "none", "nan"})
WORDS = {"true": "1", "false": "0"}
FALSE = frozenset({"false", "no", "n", "f", "off", "0", "0.0", "-0.0", *NOTHING})
PRECEDENCE = ("foreign", "left_out", "masked")
NAN = "NaN"  # as a key of JSON is written
SHOWN = 40  # characters of a value in a message
TYPES = ["texts stand in quotes, numbers do not", "any column can be asked for `is null`"]
LISTED = 3  # values in a message
LOOKED_AT = 1_000  # values among which one may be meant
REASONS = 20  # reasons that are counted one by one: an error text may differ in every row


def applied(
    of_schema: Sequence[Mark], flags: Sequence[Mark], masked_rows: MaskedRows, of_preset: MaskedRows
) -> tuple[Mark, ...]:
    """The marks with their meaning; what a flag says of a column replaces what the schema and the preset say of it.

    A row that several marks hold for is what the first of them says: those of rows that are no rollouts come first, then
    those of rows that are left out, of which a condition comes first.
    """
    named = {mark.column for mark in flags}
    marks = [_treated(mark, masked_rows or of_preset) for mark in of_schema if mark.column not in named]
    marks += [_treated(mark, masked_rows) for mark in flags]
    return tuple(sorted(marks, key=lambda mark: (PRECEDENCE.index(mark.kind), mark.unmet is None)))


def _treated(mark: Mark, masked_rows: MaskedRows) -> Mark:
    kinds: Mapping[MaskedRows, MarkKind] = {"vote": "masked", "exclude": "left_out"}
    return replace(mark, kind=kinds.get(masked_rows, mark.kind)) if mark.is_open else mark


class Marked(NamedTuple):
    """Which rows are marked: in each row the place of its mark in `marks`, or null, and the reason as far as one is known."""

    marks: tuple[Mark, ...]
    rows: pl.DataFrame
    nowhere: tuple[Mark, ...] = ()  # those of flags with a value that no row has

    def of_kind(self, kind: MarkKind) -> pl.Series:
        """The rows that are marked so."""
        return self._at([at for at, mark in enumerate(self.marks) if mark.kind == kind])

    @property
    def met(self) -> pl.Series:
        """The rows that meet the condition of a flag; all without one."""
        return ~self._at([at for at, mark in enumerate(self.marks) if mark.unmet is not None])

    def _at(self, places: Sequence[int]) -> pl.Series:
        return self.rows["mark"].is_in(places).fill_null(value=False)

    def at(self, places: np.ndarray[tuple[int], Any]) -> Marked:
        """The same for some of the rows."""
        return self._replace(rows=self.rows[places])

    def cut(self, parts: Sequence[slice], columns: Mapping[str, pl.Series], *, typed: bool) -> list[Marked | None]:
        """The same of consecutive parts of the rows, as `marked` gives it of each; `columns` are those of all rows."""
        named = [mark for mark in self.marks if mark.flag and mark.values and {*mark.columns} <= {*columns}]
        held = [(mark, _holds(columns, mark, typed=typed)) for mark in named]
        found: list[Marked | None] = []
        for rows in parts:
            own = self.rows[rows]
            nowhere = tuple(mark for mark, holds in held if not holds[rows].any())
            nothing = not nowhere and own["mark"].null_count() == len(own)
            found.append(None if nothing else Marked(self.marks, own, nowhere))
        return found

    def counts(self) -> Counter[tuple[MarkKind, str, str]]:
        """How many rows each mark holds for, by kind, mark and reason."""
        found = self.rows.drop_nulls("mark").group_by("mark", "reason", maintain_order=True).len()
        found = found.sort("len", descending=True, maintain_order=True)
        counted = Counter[tuple[MarkKind, str, str]]()
        for at, (place, reason, rows) in enumerate(found.iter_rows()):
            mark = self.marks[place]
            shown = reason or "" if at < REASONS else "other reasons"
            counted[mark.kind, mark.words, shown] += rows
        return counted


def counts_of(
    marked: Marked | None, foreign: Mapping[tuple[MarkKind, str, str], int]
) -> Counter[tuple[MarkKind, str, str]]:
    """How many rows are marked, and how many of the input are no rollouts; 0 for the value of a flag that no row has."""
    if marked is None:
        return Counter(foreign)
    counted = Counter({(mark.kind, mark.words, ""): 0 for mark in marked.nowhere})
    counted.update(foreign)
    counted.update(marked.counts())
    return counted


def marked(
    marks: Sequence[Mark], reasons: Sequence[str], columns: Mapping[str, pl.Series], *, typed: bool
) -> Marked | None:
    """The rows that these marks hold for; None if all count. The first mark that holds for a row counts.

    Of a mark without words of its own, such as `mask_sample`, another column may name the reason.
    """
    held = {}
    nowhere = []
    for at, mark in enumerate(marks):
        if {*mark.columns} <= {*columns}:
            rows = _holds(columns, mark, typed=typed)
            if mark.flag and mark.values and not rows.any():
                nowhere.append(mark)
            # verifiers counts everything if no agent of a run is trainable (verifiers/v1/cli/dashboard/eval.py:311).
            if rows.any() and not (mark.kind == "foreign" and rows.all()):
                held[at] = rows
    if not held and not nowhere:
        return None
    places = [pl.when(rows).then(pl.lit(at, pl.UInt8)) for at, rows in held.items()]
    nothing = pl.repeat(None, len(next(iter(columns.values()))), dtype=pl.UInt8)
    first = pl.select(mark=pl.coalesce(*places, nothing))
    texts = [_text(columns[name]) for name in reasons if name in columns]
    own = [_text(columns[marks[at].column]) for at in held if marks[at].state == "filled"]
    filled = [pl.when(~text.str.to_lowercase().is_in(NOTHING)).then(text) for text in (*own, *texts)]
    named = [at for at, mark in enumerate(marks) if mark.kind != "foreign" and mark.unmet is None]
    text = pl.coalesce(*filled, pl.lit(None, pl.String)).str.slice(0, SHOWN)
    reason = pl.when(pl.col("mark").is_in(named)).then(text).cast(pl.Categorical(pl.Categories.random()))
    return Marked(tuple(marks), first.with_columns(reason=reason), tuple(nowhere))


def useless(marks: Sequence[Mark], columns: Mapping[str, pl.Series], *, typed: bool) -> list[str]:
    """Warnings of values of flags that no row has; a flag's mark that holds for every row says nothing and is refused."""
    refuse_good(marks)
    warnings = []
    for mark in (mark for mark in marks if mark.flag):
        if mark.unmet is not None:
            warnings += _of_condition(mark, columns, typed=typed)
            continue
        column = columns[mark.column]
        of_value = Way(mark.flag, why="names the value that marks a row", fill=f"{mark.column}=VALUE")
        for value in mark.values:
            if rows_with(column, value, typed=typed) is None:
                there = f"{mark.column} holds {values_of(column.dtype)} ({_values(column)})"
                raise DataError(f"{mark.flag} {mark.column}={value}: {there}, and {value!r} is none", of_value)
        rows = _holds(columns, mark, typed=typed)
        if rows.all():
            raise DataError(f"{mark.flag}: {mark.words} in every row ({_values(column)})", of_value)
        if mark.values and not rows.any():
            warnings.append(f"{mark.flag}: {mark.words} in no row{_meant(mark, column)} ({_values(column)})")
    return warnings


def _meant(mark: Mark, column: pl.Series) -> str:
    """The value that may be meant, if there is one like that of the mark."""
    seen = _seen(column).unique(maintain_order=True)
    near = near_names(mark.values[0], seen.filter(seen.str.len_chars() <= SHOWN)[:LOOKED_AT].to_list())
    return f"; did you mean {plain(near[0])}?" if near else ""


def _of_condition(mark: Mark, columns: Mapping[str, pl.Series], *, typed: bool) -> list[str]:
    """A note if every row meets a condition; one that no row meets, or that compares what it cannot, is refused."""
    for read in _read_as(columns, mark.unmet.typed.names, typed=typed):
        kind, _, name = read.name.partition(":")
        (there,) = _read_as(columns, [f"null:{name}"], typed=typed)
        if read.null_count() == len(read) > there.null_count():
            wrong = f"{mark.words}: {name} is no {kind} in any row ({_values(columns[name])})"
            raise DataError(wrong, TYPES)
    rows = _holds(columns, mark, typed=typed)
    if rows.all():
        wrong = f"no row of {len(rows):,} meets {mark.words}"
        null = "null" if typed else "null, as an empty cell of CSV is,"
        raise DataError(wrong, [f"a comparison with {null} is not met", "null is asked for with `is null`"])
    return [] if rows.any() else [f"every row meets {mark.words}"]


def none_left(marks: Sequence[Mark], columns: Mapping[str, pl.Series], masked_rows: MaskedRows, *, typed: bool) -> str:
    """The warning that every row is left out of its group. Where it is the options that leave none, they are refused.

    A file of failures alone is no mistake: its schema says so, and people want to look at them.
    """
    by_option = masked_rows == "exclude"
    nothing = pl.repeat(False, len(next(iter(columns.values()))), eager=True)  # noqa: FBT003 - a value
    by_file = nothing
    said = []
    for mark in marks:
        if mark.kind != "left_out" or not {*mark.columns} <= {*columns}:
            continue
        rows = _holds(columns, mark, typed=typed)
        if not rows.any():
            continue
        if mark.unmet is not None:
            said.append(f"{rows.sum():,} do not meet {mark.words}")
        elif by_option and mark.is_open:
            said.append(f"{mark.words} in {rows.sum():,} (--masked-rows exclude)")
        else:
            said.append(f"{mark.words} in {rows.sum():,}")
            by_file |= nothing if mark.flag else rows
    why = ", ".join(said)
    if by_file.all():
        return f"every row is left out of its group: {why}"
    cure = (
        "change or leave out one of these options" if len(said) > 1 else Way("--masked-rows", "vote", "lets them count")
    )
    raise DataError(f"no row of {len(nothing):,} is left: {why}", cure)


def unread(columns: Mapping[str, pl.Series], reward: pl.Series | None, *, typed: bool) -> tuple[Mark, pl.Series] | None:
    """The first column that marks some rows by its name and its values, with these rows; None if there is none.

    A name such as `failed` is an outcome, and no mark, if it says of every row what the `reward` says: that it is the worst.
    """
    for name, state in (KNOWN_MARKS | MARKS_OF_PEOPLE).items():
        if name not in columns:
            continue
        values = _of_state(columns[name], state)
        if values is None:
            continue
        mark = Mark.named(f"{name}={values}" if values else name, "masked", "--masked-column")
        with suppress(DataError):  # numbers and other texts mark nothing
            rows = _holds(columns, mark, typed=typed)
            if not 0 < rows.sum() < len(rows):
                continue
            if name in MAYBE_OUTCOMES and reward is not None and (rows == (reward == reward.min())).all():
                continue
            return mark, rows
    return None


def _of_state(column: pl.Series, state: str) -> str | None:
    """The value of a column that marks a row, empty if any true one does; None if nothing marks one."""
    if state == "zero":
        return "0"
    if state == "truth":
        return ""
    text = _text(column)
    lower = text.str.to_lowercase()
    if state == "end":
        is_outcome = lower.is_in(OUTCOMES).any()
        found = text.filter(lower.is_in([end for end in FAILED_ENDS if end != "failed" or not is_outcome]))
    else:
        found = text.filter(lower.is_in(FALSE - NOTHING))
        if not lower.filter(~lower.is_in(NOTHING)).is_in([*TRUE, *FALSE]).all():
            return None
    return found[0] if len(found) else None


def refuse_good(marks: Sequence[Mark]) -> None:
    """Refuse a mark that leaves out, or masks, the rows that are good by the name of its column."""
    for mark in marks:
        if mark.flag and mark.state == "truth" and mark.column.lower() in GOOD:
            bad = "leave out" if mark.kind == "left_out" else "mask"
            wrong = f"{mark.flag} {mark.column} would {bad} the rows where {mark.column} is true"
            raise UsageError(wrong, Way(mark.flag, f"{mark.column}=false", "names those where it is false"))


def _holds(columns: Mapping[str, pl.Series], mark: Mark, *, typed: bool) -> pl.Series:
    """The rows that a mark holds for; without types (CSV), a text may be a number."""
    if mark.unmet is not None:
        condition = mark.unmet.typed
        read = pl.DataFrame(_read_as(columns, condition.names, typed=typed))
        try:
            return ~read.select(condition.expression()).to_series()
        except pl.exceptions.PolarsError:
            raise DataError(f"{mark.words} compares numbers with texts", TYPES) from None
    column = columns[mark.column]
    state = mark.state
    if state == "null":
        return column.is_null()
    if column.dtype == pl.Boolean and state != "in":
        return (~column if state in {"false", "zero"} else column).fill_null(value=False)
    text = _text(column)
    lower = text.str.to_lowercase()
    match state:
        case "filled":
            return ~lower.is_in(NOTHING)
        case "in" if mark.flag:
            (value,) = mark.values
            found = rows_with(column, value, typed=typed)
            return pl.repeat(False, len(column), eager=True) if found is None else found  # noqa: FBT003 - a value
        case "in":
            return text.is_in(mark.values) | _equal(text, mark.values)
        case "zero":
            return _equal(text, ("0",))
        case "truth":
            return _true(column, lower, mark)
    return lower == state


def _read_as(columns: Mapping[str, pl.Series], names: Sequence[str], *, typed: bool) -> Iterator[pl.Series]:
    """The columns as what a condition compares them with (see `Filter.typed`); null in rows that have no such value."""
    for name in names:
        kind, _, of = name.partition(":")
        column = columns[of]
        missing = column.is_null()
        if column.dtype == JSON_TEXT:
            missing |= column.cast(pl.String) == NAN
        elif column.dtype.is_float():
            missing |= column.is_nan()
        if kind == "null":
            found = (~missing).set(missing, None)
        elif kind == "text":
            found = _as_text(column)
        else:
            found = as_number(column, typed=typed)
            if kind == "any" and missing.all():  # nothing says of what type it is
                found = pl.select(pl.repeat(None, len(column))).to_series()
            elif kind == "any" and found.null_count() > missing.sum():
                found = _as_text(column)
        yield found.alias(name)


def as_number(column: pl.Series, *, typed: bool) -> pl.Series:
    """A column as numbers, null for other values; without types, texts may be numbers as those of JSON are."""
    dtype = column.dtype
    if dtype.is_integer():
        return column
    if dtype.is_numeric() or dtype == pl.Boolean:
        return column.cast(pl.Float64).fill_nan(None)
    if dtype != JSON_TEXT and typed:
        return column.clear().cast(pl.Float64).extend_constant(None, len(column))
    written = column if dtype == pl.String else canonical(column)
    text = written.str.strip_chars().str.to_lowercase().replace(WORDS)
    whole = text.cast(pl.Int128, strict=False)
    if whole.null_count() == text.null_count():
        return whole
    return text.cast(pl.Float64, strict=False).fill_nan(None)


def _as_text(column: pl.Series) -> pl.Series:
    """The texts; times as ISO 8601 writes them."""
    dtype = column.dtype
    if dtype != JSON_TEXT and not dtype.is_temporal():
        is_text = isinstance(dtype, (pl.String, pl.Categorical, pl.Enum))
        return column.cast(pl.String) if is_text else pl.Series([None] * len(column), dtype=pl.String)
    text = canonical(column)
    if dtype.is_temporal():
        return text.str.replace("^[a-z]+:", "")
    quoted = where(text.str.starts_with('"'), text)
    texts = [text and json.loads(text) for text in quoted]
    return pl.Series(texts, dtype=pl.String)


def _text(column: pl.Series) -> pl.Series:
    """The values as texts without space around them; empty where there is none."""
    return canonical(column).str.strip_chars('" \t\r\n').fill_null("").alias(column.name)


def _equal(text: pl.Series, values: Sequence[str]) -> pl.Series:
    """The rows whose number equals a value, however both are written: 0 is 0.0 and false."""
    numbers = _numbers(pl.Series(values, dtype=pl.String)).drop_nulls()
    return _numbers(text).is_in(numbers.implode()).fill_null(value=False)


def _numbers(text: pl.Series) -> pl.Series:
    return text.str.to_lowercase().replace(WORDS).cast(pl.Float64, strict=False)


def _true(column: pl.Series, lower: pl.Series, mark: Mark) -> pl.Series:
    """The rows that are true: 1, yes and the like, or a text or list that is not empty, if no row has a word for true or false."""
    filled = ~lower.is_in(NOTHING)
    said = lower.filter(filled)
    words = said.is_in([*TRUE, *FALSE])
    if not words.any() and said.cast(pl.Float64, strict=False).is_null().any():
        return filled
    if not words.all():
        wrong = f"{mark.column} is neither true nor false in every row ({_values(column)})"
        raise DataError(wrong, Way(mark.flag, why="names the value that marks a row", fill=f"{mark.column}=VALUE"))
    return lower.is_in(TRUE)


def _seen(column: pl.Series) -> pl.Series:
    """The values as people see them."""
    text = _text(column)
    prefixed = column.dtype.is_temporal() or isinstance(column.dtype, pl.Binary)
    return text.str.replace("^[a-z]+:", "") if prefixed else text


def _values(column: pl.Series) -> str:
    """The first values of a column, for messages."""
    values = _seen(column).unique(maintain_order=True)
    shown = ", ".join(cut(plain(value), SHOWN) or "empty" for value in values[:LISTED])
    return f"{shown}, ..." if len(values) > LISTED else shown
