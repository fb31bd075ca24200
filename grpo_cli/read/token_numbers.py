"""Lists with a number for each token, read a part at a time: each part is reduced and let go, so no list stays in memory."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.extra_columns import MOST_LOGPROB
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


class Lists(NamedTuple):
    """The columns to read: lists with a number for each of the same tokens."""

    logprobs: Sequence[str]
    entropy: str = ""
    mask: str = ""  # which tokens count

    @property
    def values(self) -> list[str]:
        """Those that have numbers to compute with."""
        return [*self.logprobs, self.entropy] if self.entropy else [*self.logprobs]

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys([*self.values, self.mask] if self.mask else self.values))


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


def token_numbers(narrow: Located, rows: Index, lists: Lists) -> Iterator[TokenPart]:
    """The numbers in these columns of ascending rows of the narrow table."""
    for table, places in _by_table(narrow, rows):
        yield from of_table(table, *places, lists)


def reduced(
    work: Callable[[TokenPart], Found],
    merged: Callable[[Iterable[Found]], Found],
    narrow: Located,
    rows: Index,
    lists: Lists,
    *,
    over: OverTables = map,
) -> Found:
    """What `work` makes of the parts of `token_numbers`, merged; `over` has it done where the files are read, in threads."""
    of_tables = list(_by_table(narrow, rows))
    known = {table.name: places for table, places in of_tables}
    task = partial(_reduced, work=work, merged=merged, known=known, lists=lists)
    return merged(over(task, [table for table, _ in of_tables]))


def _reduced(
    table: Table,
    work: Callable[[TokenPart], Found],
    merged: Callable[[Iterable[Found]], Found],
    known: Mapping[str, Places],
    lists: Lists,
) -> Found:
    parts = of_table(table, *known[table.name], lists)
    return merged(ahead(work, parts))


def _by_table(narrow: Located, rows: Index) -> Iterator[tuple[Table, Places]]:
    """Each table that has some of these rows, and where they are."""
    done = 0
    for at, here in narrow.by_file(narrow.places_of(rows)):
        yield narrow.tables[at], (narrow.scans[at].index, here, rows[done : done + len(here)])
        done += len(here)


def of_table(
    table: Table, index: Any, here: Index, rows: Index, lists: Lists, *, strict: bool = True
) -> Iterator[TokenPart]:
    """The numbers in these columns of ascending rows of a table, which parts name as `rows`.

    Unless `strict`, a token without a number that can be used is NaN and no error.
    """
    names = lists.names
    unseen = {*names}
    done = 0
    for frame in table.lists(Excerpt(index, here, names)):
        unseen -= {series.name for series in frame if series.null_count() < len(series)}
        bytes_in_all = max(1, int(frame.estimated_size()))
        for some in frame.iter_slices(max(1, len(frame) * _BYTES // bytes_in_all)):

            def place(at: int, done: int = done) -> str:
                return table.place(int(here[done + at]))

            yield _part(some, rows[done : done + len(some)], lists, place, strict=strict)
            done += len(some)
    for name in names if done else ():
        if name in unseen and not {name, re.split(r"\[\]|\.", name)[0]} & {*table.columns()}:
            raise absent(name, table.name, table.columns())


def of_kl(field: KlField) -> Lists:
    """The lists that a field is made of."""
    return Lists(field.columns, mask=field.mask)


def kl_column(field: KlField, table: Table, index: Any, height: int) -> pl.Series:
    """The column of a field; null for a row that lacks a list or a number, and for the mean of no tokens.

    Such a row may be left out, which only marks say.
    """
    found = np.full(height, np.nan)
    rows = np.arange(height)
    for part in of_table(table, index, rows, rows, of_kl(field), strict=False):
        policy, reference = (part.values[name] for name in field.columns)
        with np.errstate(over="ignore"):  # an infinite KL is refused where its row counts
            of_tokens = ESTIMATORS[field.estimator](policy - reference)
            sums = part.sums(of_tokens)
        if field.mean:
            sums /= np.where(part.sizes, part.sizes, np.nan)
        found[part.rows] = sums
    return pl.Series(field.name, found).fill_nan(None)


def _part(frame: pl.DataFrame, rows: Index, wanted: Lists, place: Place, *, strict: bool) -> TokenPart:
    mask = wanted.mask
    # Without a name, since polars takes one such as ^a$ for a pattern.
    lists = {}
    for series in frame:
        is_logprob = series.name in wanted.logprobs and series.name != mask
        lists[series.name] = _lists(series.name, series.alias(""), place, booleans=not is_logprob)
    known = [series.is_not_null().to_numpy() for series in lists.values()]
    there = np.flatnonzero(np.logical_and.reduce(known))
    if len(there) < len(frame):
        lists = {name: series.gather(there) for name, series in lists.items()}
    first, *_ = sizes = [series.list.len().cast(pl.Int64) for series in lists.values()]
    for name, size in zip(lists, sizes, strict=True):
        if (wrong := size != first).any():
            at = wrong.arg_max() or 0
            what = f"{name} has {size[at]:,} numbers, {next(iter(lists))} {first[at]:,}"
            raise DataError(what, "the lists must be of the same tokens", place=place(there[at]))
    lengths = first.to_numpy()
    flats = {name: series.explode(empty_as_null=False, keep_nulls=False) for name, series in lists.items()}
    values = {name: flat.cast(pl.Float64).fill_null(np.nan).to_numpy() for name, flat in flats.items()}
    counting = np.isin(values[mask], IGNORED, invert=True) if mask else None
    ends = np.cumsum(lengths)
    for name, numbers in values.items():
        unusable = ~np.isfinite(numbers)
        if name in wanted.logprobs and name != mask:
            unusable |= numbers > MOST_LOGPROB
        if counting is not None and name != mask:
            unusable &= counting
        if unusable.any() and (strict or name == mask):
            at = int(unusable.argmax())
            row = int(np.searchsorted(ends, at, side="right"))
            token = int(at - ends[row] + lengths[row])
            written = _as_written(frame[name][int(there[row])], token)
            cures = _cures(name, mask, is_above=bool(np.isfinite(numbers[at])))
            raise DataError(f"{name} is {written} at token {token + 1}", cures, place=place(there[row]))
        values[name] = np.where(unusable, np.nan, numbers)
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


def _cures(name: str, mask: str, *, is_above: bool) -> list[str]:
    """What to do about a number of a token that cannot be used; `is_above`: it is too large."""
    if name == mask:
        return ["write 0 or 1 for each token"]
    why = ["a log-prob is 0 or less"] if is_above else []
    if mask:
        return [*why, f"{mask} says that this token counts"]
    return [*why, "if it is a token of the prompt, --mask COL names a list of the tokens that count"]


def _as_written(cell: Any, token: int) -> str:
    """The value of a token in a cell: a list, or its JSON text, which may be quoted."""
    with suppress(ValueError):
        while isinstance(cell, str):
            cell = json.loads(cell)
    value = list(cell)[token]
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def _lists(name: str, series: pl.Series, place: Place, *, booleans: bool) -> pl.Series:
    """The column of this name as lists of numbers; null where a row has none. NaN for `booleans` that are no numbers here."""
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    inner = getattr(series.dtype, "inner", None)
    if isinstance(inner, pl.Boolean) and not booleans:
        raise DataError(
            f"{name} has lists of booleans, expected log-probs", "name a column of log-probs", place=place(0)
        )
    if inner is not None and (inner.is_numeric() or isinstance(inner, _NUMBERS)):
        return series
    if series.dtype == pl.String and series.str.starts_with("[").all():
        has_words = not booleans and series.str.contains("true|false").any()
        with suppress(pl.exceptions.ComputeError):  # NaN, a list within the list, ...: Python says which row has it
            if not has_words:
                return series.str.json_decode(_LISTS)
    found = [_parsed(name, value, partial(place, at), booleans=booleans) for at, value in enumerate(series.to_list())]
    return pl.Series(found, dtype=_LISTS)


def _parsed(name: str, value: Any, place: Callable[[], str], *, booleans: bool) -> list[float | None] | None:
    """The numbers in a JSON text, which may be quoted; NaN for `booleans` that are no numbers here."""
    with suppress(ValueError):
        while isinstance(value, str):
            value = json.loads(value)
    if value is None:
        return None
    if isinstance(value, list) and all(item is None or isinstance(item, int | float) for item in value):
        return [math.nan if isinstance(item, bool) and not booleans else as_number(item) for item in value]
    cure = "write a list of one number per token, that of the token that was sampled"
    raise DataError(f"{name} is {short(value)}, expected a list of numbers", cure, place=place())
