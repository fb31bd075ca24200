"""The rows and groups of a computation: only this module knows how columns are computed.

The arithmetic (`score.py` and the estimators) names columns with `let`, sums and extremes of groups, and moments of
batches; it never says where a column is stored. There are two frames, rows and groups. What depends on groups only is a
column of the groups, spread to rows when a row reads it. What is computed row by row stays pending until it is read, and
is then computed in pieces of the table, on several cores. What needs all rows of a group (a rank, a recursion) is computed
immediately and kept. See docs/engine.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import over
from grpo_cli.engine.group_stats import Segments, base_quantities, group_extremes, group_sizes, group_sums
from grpo_cli.engine.moments import Codes, Moments, Vector, exact_sums
from grpo_cli.errors import DataError

GROUP = "group"
BATCH = "batch"
ROLLOUT = "rollout"
# The largest absolute reward: the squares of larger ones overflow and silently give 0 or NaN.
FARTHEST = 1e150
# With at most this many rows, a step of a query costs more than the arithmetic of its columns.
FEW_ROWS = 4_096
_ROW_BY_ROW: Final[dict[bytes, bool]] = {}  # a cache: most plans share their expressions


class BatchMoments(NamedTuple):
    """Weight, mean and squared deviations of a batch, as columns."""

    weight: pl.Expr
    mean: pl.Expr
    low: pl.Expr
    m2: pl.Expr

    def above(self, value: pl.Expr) -> pl.Expr:
        """How far a value lies above the mean, with all digits of the mean."""
        return (value - self.mean) - self.low

    def variance(self, ddof: int) -> pl.Expr:
        """The variance with `ddof`; 0 if there are too few rows."""
        variance = self.m2 / (self.weight - ddof)
        return pl.when(self.weight > ddof).then(variance).otherwise(0.0 * self.mean)


class Frames:
    """A narrow table and the columns computed from it."""

    def __init__(self, table: pl.DataFrame) -> None:
        self._scope = ""  # prefix of the engine's own names, see `under`
        self.names: dict[str, None] = {}  # of all computed columns, in order
        # Columns of rows by name: the input, and those that needed whole groups.
        self._rows = {name: table[name] for name in table.columns}
        self._later: dict[str, pl.Expr] = {}  # pending columns of rows
        self._fresh = 0  # the number of generated names
        codes = table[GROUP].to_numpy()
        sizes = group_sizes(codes)
        known = np.flatnonzero(sizes)
        if len(known) and known[-1] >= len(known):  # a part of a table has some of its groups
            places = np.empty(int(known[-1]) + 1, np.uint32)
            places[known] = np.arange(len(known), dtype=np.uint32)
            codes = places[codes]
        self._codes = codes
        size = pl.Series("size", sizes[sizes > 0])
        self._facts = {"code": pl.Series("code", known, pl.UInt32), "size": size}
        self._later_facts: dict[str, pl.Expr] = {}  # pending columns of groups, computed together
        batch = table[BATCH]
        self._batches = 1 + int(batch.max() or 0)  # type: ignore[arg-type]  # polars does not say that it is a number
        self.batch_of_group = np.zeros(len(known), np.uint32)
        self._batches_hold_groups = True
        if self._batches > 1:
            self.batch_of_group[codes] = batch
            self._batches_hold_groups = bool((self.batch_of_group[codes] == batch.to_numpy()).all())

    def copy(self) -> Frames:
        """A copy with the same columns; names added to either are not in the other."""
        other = copy(self)
        for name in ("names", "_rows", "_facts", "_later", "_later_facts"):
            setattr(other, name, {**getattr(self, name)})
        return other

    @contextmanager
    def under(self, scope: str) -> Iterator[None]:
        """While it lasts, the engine's own names begin with this: the columns of several plans are kept apart."""
        before = self._scope
        self._scope = scope
        try:
            yield
        finally:
            self._scope = before

    def has(self, name: str) -> bool:
        """Whether the table has a column."""
        return name in self._rows

    @property
    def groups(self) -> pl.DataFrame:
        """A line for each group."""
        self._settle()
        return pl.DataFrame([*self._facts.values()])

    @property
    def codes(self) -> pl.Series:
        """The line in `groups` of every row."""
        return pl.Series(self._codes)

    def let(self, value: pl.Expr, name: str = "", *, replaces: bool = False) -> pl.Expr:
        """Name a column; without a name it gets a generated one.

        A column replaces another of its name if it is the engine's own (a leading dot) or with `replaces`; otherwise a number
        is appended to the name.
        """
        name = self._named(name, replaces=replaces)
        reads = {*value.meta.root_names()}
        if not _row_by_row(value):
            read = self.select({GROUP, *reads})
            computed = read.select(value.alias(name)).to_series()
            self._forget(name)
            self._rows[name] = computed
            return pl.col(name)
        reads_facts = all(read in self._facts or read in self._later_facts for read in reads)
        self._forget(name)
        pending = self._later_facts if reads_facts else self._later
        pending[name] = value
        return pl.col(name)

    def keep(self, columns: Iterable[pl.Expr]) -> None:
        """Compute pending columns of rows now, which otherwise happens again for each reader."""
        names = [column.meta.output_name() for column in columns]
        pending = [name for name in names if name in self._later]
        if pending:
            self._rows |= self.select(pending).to_dict()
            self._later = {name: value for name, value in self._later.items() if name not in pending}

    def sum(self, value: pl.Expr) -> pl.Expr:
        """The sum over each group; nulls are left out."""
        return self._sum(self._computed(value))

    def total(self, values: Sequence[pl.Expr]) -> pl.Expr:
        """The exact sum of the values in each row, rounded once: the same in any order of them; nulls count as 0."""

        def added(parts: pl.Series) -> pl.Series:
            columns = [part.to_numpy() for part in parts.struct.unnest()]
            return pl.Series(exact_sums(columns))

        name = self._named("")
        filled = [value.fill_null(0.0) for value in values]
        parts = pl.struct(value.alias(str(at)) for at, value in enumerate(filled))
        # Not by `let`: polars cannot tell that a function of Python works row by row.
        self._later[name] = parts.map_batches(added, pl.Float64, is_elementwise=True)
        self.keep([pl.col(name)])
        return pl.col(name)

    def average(self, value: pl.Expr) -> pl.Expr:
        """The mean over each group; nulls are left out, NaN if there is nothing else."""
        values = self._computed(value)
        return self._sum(values) / self._sum(values.is_not_null())

    def base(self, value: pl.Expr, prefix: str) -> dict[str, pl.Expr]:
        """The base quantities of a column's groups; names get the prefix, and groups without values have no extremes."""
        computed = base_quantities(self._codes, self._computed(value), self._facts["size"].to_numpy())
        empty = computed["n"] == 0
        ends = np.abs([computed["min"], computed["max"]])
        far = ends[(ends > FARTHEST) & ~empty]
        if len(far):
            raise DataError(
                f"after weights and shaping a reward is as large as {far.max():g}, and its square overflows",
                "give smaller weights, or a smaller --reward-scale",
            )
        facts = {name: pl.Series(values) for name, values in computed.items()}
        if empty.any():
            facts |= {name: facts[name].set(pl.Series(empty), None) for name in ("min", "max", "mean_d")}
        named = dict[str, pl.Expr]()
        for name, values in facts.items():
            full = self._named(f"{prefix}{name}")
            named[name] = self._fact(full, values)
        return named

    def of_groups(self, function: Callable[..., Iterable[pl.Series]], *facts: pl.Expr) -> list[pl.Expr]:
        """Facts that a function computes from facts: columns with a line for each group."""
        values = [self.groups.select(fact).to_series() for fact in facts]
        return [self._fact(self._named(""), made) for made in function(*values)]

    def scan(self, function: Callable[..., Vector], key: str, *values: pl.Expr) -> pl.Expr:
        """A numpy function of (segments, *arrays), for what expressions cannot do.

        It gets the rows without nulls, key by key in order of first appearance; the other rows get null.
        """
        columns = {"key": self._computed(pl.col(key))}
        for at, value in enumerate(values):
            columns[str(at)] = self._computed(value)
        frame = pl.DataFrame(columns).with_row_index(".row").drop_nulls()
        segments, order = Segments.of(frame["key"].to_numpy())
        arrays = [frame[str(at)].cast(pl.Float64).to_numpy()[order] for at in range(len(values))]
        rows = frame[".row"].to_numpy()[order]
        found = np.zeros(len(self._codes))
        missing = np.ones(len(self._codes), bool)
        found[rows] = function(segments, *arrays)
        missing[rows] = False
        name = self._named("")
        self._rows[name] = pl.Series(name, found).set(pl.Series(missing), None)
        return pl.col(name)

    def batch(self, value: pl.Expr, weight: pl.Expr | None = None) -> BatchMoments:
        """The moments of a value over its batch; nulls are left out."""
        columns = {"value": self._computed(value).cast(pl.Float64), "batch": self._rows[BATCH]}
        if weight is not None:
            columns["weight"] = self._computed(weight).cast(pl.Float64)
        rows = pl.DataFrame(columns).drop_nulls("value")
        weights = None if weight is None else rows["weight"].to_numpy()
        batch = rows["batch"].to_numpy()
        moments = Moments.of(rows["value"].to_numpy(), batch, self._batches, weights)
        return BatchMoments(**self._spread(moments._asdict()))

    def batch_of_groups(self, value: pl.Expr, n: pl.Expr) -> BatchMoments:
        """The moments of a fact over the groups of the batch with at least one row that counts."""
        return BatchMoments(**self.fit(value, n, Moments._asdict))

    def most_of_batch(self, value: pl.Expr) -> pl.Expr:
        """The largest value of a fact among the groups of the batch; NaN if any is NaN, and nulls are left out."""
        _, most = group_extremes(*self._by_batch(value), self._batches)
        return self._spread({"most": most})["most"]

    def fit(
        self, value: pl.Expr, n: pl.Expr, finish: Callable[[Moments], Mapping[str, Vector]]
    ) -> Mapping[str, pl.Expr]:
        """What a function computes from these moments, once for each batch."""
        batch, values = self._by_batch(pl.when(n > 0).then(value))
        moments = Moments.of(values, batch, self._batches)
        return self._spread(finish(moments))

    def _by_batch(self, fact: pl.Expr) -> tuple[Codes, Vector]:
        """The batch and the value of each group with a value."""
        facts = self.groups.select(value=fact, batch=pl.Series(self.batch_of_group)).drop_nulls("value")
        return facts["batch"].to_numpy(), facts["value"].to_numpy()

    def select(self, names: Iterable[str]) -> pl.DataFrame:
        """These columns on every row, computed piece by piece."""
        names = list(dict.fromkeys(names))
        self._settle()
        needed, steps = _reached([GROUP, *names], self._later)
        # Brackets instead of `select` and `gather`: on small tables a query costs more than its arithmetic.
        rows = pl.DataFrame([self._rows[name] for name in self._rows if name in needed])
        facts = [self._facts[name] for name in self._facts if name in needed]
        same = {fact.name for fact in facts if not fact.dtype.is_float() and fact.n_unique() == 1}
        codes = self.codes

        def lines(start: int, end: int) -> pl.DataFrame:
            at = codes[start:end]
            # In a frame gathered from one line, columns are constants; see `_of_lines`.
            spread = [fact.new_from_index(0, len(at)) if fact.name in same else fact[at] for fact in facts]
            piece = rows[start:end].hstack(spread)
            return _of_lines(piece, steps, names)

        return pl.concat(over(lines, len(codes)) or [lines(0, 0)])

    def _settle(self) -> None:
        """Compute the pending facts."""
        if self._later_facts:
            read = {"size"}
            for value in self._later_facts.values():
                read.update(value.meta.root_names())
            known = pl.DataFrame([self._facts[name] for name in self._facts if name in read])
            computed = _of_lines(known, self._later_facts, [*self._later_facts])
            self._facts |= computed.to_dict()
            self._later_facts.clear()

    def _sum(self, values: pl.Series) -> pl.Expr:
        sums = group_sums(self._codes, values, len(self.batch_of_group))
        return self._fact(self._named(""), pl.Series(sums))

    def _computed(self, value: pl.Expr) -> pl.Series:
        """The values of an expression on every row."""
        if value.meta.is_column():
            name = value.meta.output_name()
            return self._rows[name] if name in self._rows else self.select([name]).to_series()
        named = self.let(value)
        name = named.meta.output_name()
        computed = self.select([name]).to_series()
        self._forget(name)
        del self.names[name]
        return computed

    def _spread(self, facts: Mapping[str, Vector]) -> dict[str, pl.Expr]:
        """Facts of batches as columns: of their groups, or of their rows if groups span batches."""
        columns = dict[str, pl.Expr]()
        for key, values in facts.items():
            name = self._named("")
            if self._batches_hold_groups:
                self._fact(name, pl.Series(values[self.batch_of_group]))
            else:
                self._rows[name] = pl.Series(name, values[self._rows[BATCH].to_numpy()])
            columns[key] = pl.col(name)
        return columns

    def _fact(self, name: str, values: pl.Series) -> pl.Expr:
        self._forget(name)
        self._facts[name] = values.alias(name)
        return pl.col(name)

    def _named(self, name: str, *, replaces: bool = False) -> str:
        if name.startswith("."):
            name = f"{self._scope}{name}"
        elif not name:
            name = f".{self._fresh}"
            self._fresh += 1
        elif name in self.names and not replaces:
            name = f"{name} {self._fresh}"
            self._fresh += 1
        self.names[name] = None
        return name

    def _forget(self, name: str) -> None:
        """Remove a column that is replaced: everything that reads it has been computed."""
        self._later.pop(name, None)
        self._rows.pop(name, None)
        if name in self._later_facts:
            self._settle()
        self._facts.pop(name, None)


def _reached(names: Iterable[str], later: dict[str, pl.Expr]) -> tuple[set[str], dict[str, pl.Expr]]:
    """These columns and all that they are computed from, and the pending ones among them in their order."""
    needed = {*names}
    for name in reversed(later):
        if name in needed:
            needed.update(later[name].meta.root_names())
    return needed, {name: value for name, value in later.items() if name in needed}


def _rounds(columns: Mapping[str, pl.Expr]) -> list[list[pl.Expr]]:
    """These columns in rounds: each reads only columns of earlier rounds."""
    place: dict[str, int] = {}
    rounds = list[list[pl.Expr]]()
    for name, value in columns.items():
        earlier = [place.get(read, -1) for read in value.meta.root_names()]
        place[name] = nth = 1 + max(earlier, default=-1)
        if nth == len(rounds):
            rounds.append([])
        rounds[nth].append(value.alias(name))
    return rounds


def _of_lines(frame: pl.DataFrame, steps: Mapping[str, pl.Expr], names: Sequence[str]) -> pl.DataFrame:
    """Columns of a frame after some steps that compute each line separately."""
    if len(frame) == 1:  # polars treats a column of one line as a constant c, and x * (1/c) has other bits than x / c
        return _of_lines(pl.concat([frame, frame]), steps, names)[:1]
    query = frame.lazy()
    if len(frame) <= FEW_ROWS:
        for columns in _rounds(steps):
            query = query.with_columns(columns)
        effort = pl.QueryOptFlags.none()  # the optimizer costs more than it saves here, too
    else:
        for name, value in steps.items():
            query = query.with_columns(value.alias(name))
        effort = pl.QueryOptFlags()
    return query.select(names).collect(engine="in-memory", optimizations=effort)


def _row_by_row(value: pl.Expr) -> bool:
    """Whether each row can be computed separately; False if polars cannot tell before it knows the types.

    On small tables, asking for each part costs more than the arithmetic, so answers are cached.
    """
    text = value.meta.serialize()
    if text not in _ROW_BY_ROW:
        _ROW_BY_ROW[text] = _asked(value)
    return _ROW_BY_ROW[text]


def _asked(value: pl.Expr) -> bool:
    left = [value]
    while left:  # a formula may be a thousand deep
        meta = left.pop().meta
        if meta.is_column():
            continue
        try:
            if not meta.is_row_separable():  # ignores the inputs
                return False
        except pl.exceptions.PolarsError:
            return False
        left += meta.pop()
    return True
