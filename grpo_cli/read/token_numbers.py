"""Lists with a number for each token, read a part at a time: each part is reduced and let go, so no list stays in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index, Vector
from grpo_cli.errors import DataError, short
from grpo_cli.parallel import ahead
from grpo_cli.read.tables import Found, KlField, Located, OverTables, Table
from grpo_cli.values.cells import Excerpt, Place, as_number
from grpo_cli.values.paths import absent
from grpo_cli.values.slices import Ints
from grpo_cli.values.token_lists import Bools

# Mask values of tokens that do not count: 0, false, and the label that losses ignore.
IGNORED = (0, -100)
_BYTES = 4 << 20  # of lists that are reduced at once
_LISTS = pl.List(pl.Float64)
_NUMBERS = (pl.Boolean, pl.Null, pl.Decimal)  # and what polars calls numeric
Places = tuple[Any, Index, Index]  # the index of a table, and the numbers of rows in it and in the narrow table


# Of log p/q on samples of p: estimates of KL(p, q). http://joschu.net/blog/kl-approx.html
ESTIMATORS: Final[Mapping[str, Callable[[Vector], Vector]]] = {
    "k1": lambda log_ratio: log_ratio,
    "k2": lambda log_ratio: log_ratio * log_ratio / 2,
    "k3": lambda log_ratio: np.expm1(-log_ratio) + log_ratio,
}


class TokenPart(NamedTuple):
    """Some rows, and the numbers of their tokens that count, row after row: `sizes` of them in each row."""

    rows: Index
    sizes: Ints
    values: Mapping[str, Vector]
    lengths: Ints  # tokens of each row, whether they count or not
    counting: Bools | None  # which of these tokens count; None: all
    missing: int  # rows that were left out, since they lack a list

    @property
    def starts(self) -> Ints:
        """Where the tokens of each row begin."""
        return np.cumsum(self.sizes) - self.sizes

    def sums(self, values: np.ndarray) -> Vector:
        """The sum over the tokens of each row that count; 0 for a row without any."""
        some = self.sizes > 0
        sums = np.zeros(len(self.sizes))
        if some.any():
            sums[some] = np.add.reduceat(values, self.starts[some], dtype=np.float64)
        return sums


def token_numbers(narrow: Located, rows: Index, columns: Sequence[str], mask: str = "") -> Iterator[TokenPart]:
    """The numbers in these columns of ascending rows of the narrow table."""
    for table, places in _by_table(narrow, rows):
        yield from of_table(table, *places, columns, mask)


def reduced(
    work: Callable[[TokenPart], Found],
    merged: Callable[[Iterable[Found]], Found],
    narrow: Located,
    rows: Index,
    columns: Sequence[str],
    mask: str = "",
    *,
    over: OverTables = map,
) -> Found:
    """What `work` makes of the parts of `token_numbers`, merged; `over` has it done where the files are read, in threads."""
    of_tables = list(_by_table(narrow, rows))
    known = {table.name: places for table, places in of_tables}
    task = partial(_reduced, work=work, merged=merged, known=known, columns=columns, mask=mask)
    return merged(over(task, [table for table, _ in of_tables]))


def _reduced(
    table: Table,
    work: Callable[[TokenPart], Found],
    merged: Callable[[Iterable[Found]], Found],
    known: Mapping[str, Places],
    columns: Sequence[str],
    mask: str,
) -> Found:
    parts = of_table(table, *known[table.name], columns, mask)
    return merged(ahead(work, parts))


def _by_table(narrow: Located, rows: Index) -> Iterator[tuple[Table, Places]]:
    """Each table that has some of these rows, and where they are."""
    done = 0
    for at, here in narrow.by_file(narrow.places_of(rows)):
        yield narrow.tables[at], (narrow.scans[at].index, here, rows[done : done + len(here)])
        done += len(here)


def of_table(
    table: Table, index: Any, here: Index, rows: Index, columns: Sequence[str], mask: str = "", *, strict: bool = True
) -> Iterator[TokenPart]:
    """The numbers in these columns of ascending rows of a table, which parts name as `rows`.

    Unless `strict`, a token without a number is NaN and no error.
    """
    names = list(dict.fromkeys([*columns, mask] if mask else columns))
    unseen = {*names}
    done = 0
    for frame in table.lists(Excerpt(index, here, names)):
        unseen -= {series.name for series in frame if series.null_count() < len(series)}
        bytes_in_all = max(1, int(frame.estimated_size()))
        for some in frame.iter_slices(max(1, len(frame) * _BYTES // bytes_in_all)):

            def place(at: int, done: int = done) -> str:
                return table.place(int(here[done + at]))

            yield _part(some, rows[done : done + len(some)], columns, mask, place, strict=strict)
            done += len(some)
    for name in unseen if done else ():
        if not {name, re.split(r"\[\]|\.", name)[0]} & {*table.columns()}:
            raise absent(name, table.name, table.columns())


def kl_column(field: KlField, table: Table, index: Any, height: int) -> pl.Series:
    """The column of a field; null for a row that lacks a list or a number, and for the mean of no tokens.

    Such a row may be left out, which only marks say.
    """
    found = np.full(height, np.nan)
    rows = np.arange(height)
    for part in of_table(table, index, rows, rows, field.columns, field.mask, strict=False):
        policy, reference = (part.values[name] for name in field.columns)
        with np.errstate(over="ignore"):  # an infinite KL is refused where its row counts
            of_tokens = ESTIMATORS[field.estimator](policy - reference)
            sums = part.sums(of_tokens)
        if field.mean:
            sums /= np.where(part.sizes, part.sizes, np.nan)
        found[part.rows] = sums
    return pl.Series(field.name, found).fill_nan(None)


def _part(
    frame: pl.DataFrame, rows: Index, columns: Sequence[str], mask: str, place: Place, *, strict: bool
) -> TokenPart:
    # Without a name, since polars takes one such as ^a$ for a pattern.
    lists = {series.name: _lists(series.name, series.alias(""), place) for series in frame}
    known = [series.is_not_null().to_numpy() for series in lists.values()]
    there = np.flatnonzero(np.logical_and.reduce(known))
    if len(there) < len(frame):
        lists = {name: series.gather(there) for name, series in lists.items()}
    first, *_ = sizes = [series.list.len().cast(pl.Int64) for series in lists.values()]
    for name, size in zip(lists, sizes, strict=True):
        if (wrong := size != first).any():
            at = wrong.arg_max() or 0
            what = f"{name} has {size[at]:,} numbers, {columns[0]} {first[at]:,}"
            raise DataError(what, "the lists must be of the same tokens", place=place(there[at]))
    lengths = first.to_numpy()
    flats = {name: series.explode(empty_as_null=False, keep_nulls=False) for name, series in lists.items()}
    values = {name: flat.cast(pl.Float64).fill_null(np.nan).to_numpy() for name, flat in flats.items()}
    counting = np.isin(values[mask], IGNORED, invert=True) if mask else None
    ends = np.cumsum(lengths)
    for name, numbers in values.items():
        unusable = ~np.isfinite(numbers)
        if counting is not None and name != mask:
            unusable &= counting
        if unusable.any() and (strict or name == mask):
            at = int(unusable.argmax())
            row = np.searchsorted(ends, at, side="right")
            token = at - ends[row] + lengths[row] + 1
            value = "null" if flats[name][at] is None else numbers[at]
            what = f"{name} is {value} at token {token}"
            cure = "if it is a token of the prompt, --mask COL names a list of the tokens that count"
            counts = "write 0 or 1 for each token" if name == mask else f"{mask} says that this token counts"
            raise DataError(what, counts if mask else cure, place=place(there[row]))
    part = TokenPart(
        rows=rows[there],
        sizes=lengths,
        values=values,
        lengths=lengths,
        counting=counting,
        missing=len(frame) - len(there),
    )
    if counting is None:
        return part
    counted = {name: numbers[counting] for name, numbers in values.items()}
    sizes_counted = part.sums(counting).astype(np.int64)
    return part._replace(sizes=sizes_counted, values=counted)


def _lists(name: str, series: pl.Series, place: Place) -> pl.Series:
    """The column of this name as lists of numbers; null where a row has none."""
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    inner = getattr(series.dtype, "inner", None)
    if inner is not None and (inner.is_numeric() or isinstance(inner, _NUMBERS)):
        return series
    if series.dtype == pl.String and series.str.starts_with("[").all():
        with suppress(pl.exceptions.ComputeError):  # NaN, a list within the list, ...: Python says which row has it
            return series.str.json_decode(_LISTS)
    found = [_parsed(name, value, partial(place, at)) for at, value in enumerate(series.to_list())]
    return pl.Series(found, dtype=_LISTS)


def _parsed(name: str, value: Any, place: Callable[[], str]) -> list[float | None] | None:
    """The numbers in a JSON text, which may be quoted."""
    with suppress(ValueError):
        while isinstance(value, str):
            value = json.loads(value)
    if value is None:
        return None
    if isinstance(value, list) and all(item is None or isinstance(item, int | float) for item in value):
        return list(map(as_number, value))
    cure = "write a list of one number per token, that of the token that was sampled"
    raise DataError(f"{name} is {short(value)}, expected a list of numbers", cure, place=place())
