"""Several plans on the same rows: where their advantages differ, and how much.

Every plan is measured against the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import Numbers
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import Scored, kept_advantages
from grpo_cli.read.narrow import Narrow
from grpo_cli.stats.correlations import correlation
from grpo_cli.stats.document import asked_by, document
from grpo_cli.stats.facts import MarkedRows, Number, marked_rows, plain, reward_range

VERSION: Final = 1
SMALL = 0.01  # a change by less than this part of the root mean square is called the same up to it
SCALED = 0.9999  # a larger correlation is a factor
LARGEST = 3  # changes that are listed
EQUAL = 1e-9  # advantages are equal if they differ by less, relative to their root mean square
SOLVE_RATES = (0.0, 0.25, 0.5, 0.75, 1.0)  # the ends of the quarters whose rows are counted together


@dataclass(frozen=True)
class PlanAdvantages:
    """The advantages of a plan."""

    mean: Number  # of the finite advantages of kept rows; None if there are none
    std: Number  # of the finite advantages of kept rows, with ddof 1; None with fewer than two
    min: Number  # the smallest finite advantage of a kept row; None if there is none
    max: Number  # the largest finite advantage of a kept row; None if there is none
    rms: Number  # root mean square of the finite advantages of kept rows; None if there are none
    zero_share: Number  # the share of 0 among the finite advantages of kept rows; None if there are none
    missing: int  # rows without a finite advantage, and rows that the plan drops


@dataclass(frozen=True)
class ComparedPlan:
    """A plan by the name that was given."""

    name: str  # the text of its --preset or --method, with the options after it
    plan: Plan  # all settings of its arithmetic
    advantage: PlanAdvantages  # statistics over all rows, masked ones too


@dataclass(frozen=True)
class OfSize:
    """How two columns of advantages differ in groups of one size."""

    size: int  # rewards that count in such a group: scored rows, or rollouts if those count once
    rows: int  # of groups of this size, with an advantage in both plans
    changed: int  # rows whose advantages differ by more than 1e-9 of the larger root mean square
    sign_flips: int  # changed rows whose advantages have opposite signs
    scale_ratio: Number  # root mean square of this plan's advantages over that of the first; None if the first's is 0
    mean_change: Number  # mean absolute difference of the two advantages of a row
    largest_change: Number  # largest absolute difference of the two advantages of a row


@dataclass(frozen=True)
class OfSolveRate:
    """The same for groups with these solve rates."""

    solve_rate: str  # 0, 1, or an interval of the mean reward of a group: 0.25..0.5 is above 0.25, up to 0.5
    rows: int  # of groups with this solve rate, with an advantage in both plans
    changed: int  # rows whose advantages differ by more than 1e-9 of the larger root mean square
    sign_flips: int  # changed rows whose advantages have opposite signs
    scale_ratio: Number  # root mean square of this plan's advantages over that of the first; None if the first's is 0
    mean_change: Number  # mean absolute difference of the two advantages of a row
    largest_change: Number  # largest absolute difference of the two advantages of a row


@dataclass(frozen=True)
class ChangedRow:
    """A row that changes most."""

    key: str  # of its group
    place: str  # its file and line, or its row where a file has no lines
    reward: Number  # the weighted sum of its rewards, before shaping; of a rollout of several rows, the highest
    first: float  # its advantage in the first plan
    other: float  # its advantage in this plan


@dataclass(frozen=True)
class Difference:
    """A plan against the first; `lost` rows have an advantage in only one of them."""

    name: str  # of the plan that is compared with the first
    rows: int  # with a finite advantage in both plans; the other numbers are of these, except `lost`
    lost: int  # rows with a finite advantage in only one of the two plans
    changed: int  # rows whose advantages differ by more than 1e-9 of the larger root mean square
    sign_flips: int  # changed rows whose advantages have opposite signs
    scale_ratio: Number  # root mean square of this plan's advantages over that of the first; None if the first's is 0
    mean_change: Number  # mean absolute difference of the two advantages of a row; None without rows
    largest_change: Number  # largest absolute difference of the two advantages of a row; None without rows
    rank_correlation: Number  # Spearman's, with mean ranks for ties; None if one of the columns does not vary
    correlation: Number  # Pearson's; None if one of the columns does not vary
    largest: Sequence[ChangedRow]  # up to 3 rows that change most, the largest change first
    by_size: Sequence[OfSize]  # how rows differ in groups of each size, the smallest size first
    # how rows differ at each solve rate; None if rewards are not all in 0..1
    by_solve_rate: Sequence[OfSolveRate] | None


@dataclass(frozen=True)
class Compared:
    """The result of `compare`; columns and outputs with --write."""

    version: Literal[1]  # of the document; it changes when the meaning of a key does
    inputs: Sequence[str]  # the files
    rows: int  # of the files; not counted are rows that are no rollouts, and incomplete blocks
    groups: int  # that have any of the rows, scored or not
    left_out: int  # rows that are left out of their groups, and have no advantage
    masked: int  # rows that count in their groups and are not trained on
    marks: Sequence[MarkedRows]  # why rows are left out, masked or no rollouts, with the number of rows
    notes: Sequence[str]  # how rows were read and grouped
    plans: Sequence[ComparedPlan]  # in the order in which they were given
    against: str  # the name of the first plan, which the others are compared with
    differences: Sequence[Difference]  # one for each plan but the first, in their order
    verdicts: Sequence[str]  # a sentence for each difference: the same, the same up to a number, or where they differ
    warnings: Sequence[str]  # about the input, and with --write about the outputs
    # the column of each plan in the outputs, by the plan's name; absent without --write
    columns: Mapping[str, str] | None = field(default=None, metadata=asked_by("--write"))
    # the files that were written; absent without --write
    outputs: Sequence[str] | None = field(default=None, metadata=asked_by("--write"))
    config: str | None = None  # the file of options that was read; absent if none was


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The advantages of every plan by its name, the rows they belong to, and the differences."""

    scored: Mapping[str, Scored]  # the advantages of each plan by its name, the reference first
    narrow: Narrow  # the rows that all plans read, once
    compared: Compared  # the facts, as a document has them

    @property
    def facts(self) -> dict[str, Any]:
        """The differences as plain data."""
        return document(self.compared)


def compare(scored: Mapping[str, Scored], narrow: Narrow) -> Comparison:
    """What the plans computed, by their names; the first is what the others are measured against."""
    values = {name: kept_advantages(result.rows) for name, result in scored.items()}
    first, *others = scored
    differences = [_difference(name, scored[first], values[first], values[name], narrow) for name in others]
    compared = Compared(
        version=VERSION,
        inputs=[table.name for table in narrow.tables],
        rows=len(narrow.table),
        groups=narrow.groups.size,
        left_out=int(narrow.left_out.sum()),
        masked=int(narrow.masked.sum()),
        marks=marked_rows(narrow.mark_counts),
        notes=narrow.notes,
        plans=[ComparedPlan(name, result.plan, _advantages(values[name])) for name, result in scored.items()],
        against=first,
        differences=differences,
        verdicts=[said(first, _rms(values[first][np.isfinite(values[first])]), one) for one in differences],
        warnings=narrow.warnings,
    )
    return Comparison(scored=scored, narrow=narrow, compared=compared)


def said(first: str, size: float | None, of: Difference) -> str:
    """What a difference comes to, as a sentence; `size` is the root mean square of the first plan's advantages."""
    lost = f" {of.lost:,} rows have an advantage in only one of them." if of.lost else ""
    if not of.changed or of.largest_change is None:
        return f"{of.name} gives what {first} gives{' where both give something' if of.lost else ''}.{lost}"
    flips = "no sign changes" if not of.sign_flips else f"{of.sign_flips:,} of {of.rows:,} signs change"
    small = size is not None and of.largest_change <= SMALL * size
    sizes = [part for part in of.by_size if part.changed]
    only = ""
    if len(sizes) == 1 < len(of.by_size):
        only = f", only in groups of {sizes[0].size}"
    if small:
        return f"{of.name} is the same as {first} up to {of.largest_change:.2g}{only}; {flips}.{lost}"
    scaled = of.correlation is not None and of.correlation > SCALED and of.scale_ratio is not None and not of.sign_flips
    if scaled and not only:
        return f"{of.name} is {first} times {of.scale_ratio:.3g}, nearly in every row; {flips}.{lost}"
    rows = f"in {of.changed:,} of {of.rows:,} rows"
    return f"{of.name} differs from {first} {rows}, by up to {of.largest_change:.3g}{only}; {flips}.{lost}"


def _advantages(values: Vector) -> PlanAdvantages:
    finite = values[np.isfinite(values)]
    return PlanAdvantages(
        **Numbers.of(pl.Series(finite)).facts(),
        rms=_rms(finite),
        zero_share=float(np.mean(finite == 0)) if len(finite) else None,
        missing=len(values) - len(finite),
    )


def _difference(name: str, base: Scored, first: Vector, other: Vector, narrow: Narrow) -> Difference:
    both = np.isfinite(first) & np.isfinite(other)
    frame = base.frame.select(".n", ".mean", min=".min", max=".max").filter(pl.Series(both))
    x = first[both]
    y = other[both]
    x_ranks, y_ranks = (pl.Series(values).rank().to_numpy() for values in (x, y))  # equal values have their mean rank
    sizes, means = (frame[name].to_numpy() for name in (".n", ".mean"))
    by_size = []
    for size in np.unique(sizes).tolist():
        here = sizes == size
        by_size.append(OfSize(size=int(size), **_changes(x[here], y[here])))
    return Difference(
        name=name,
        lost=int((np.isfinite(first) != np.isfinite(other)).sum()),
        **_changes(x, y),
        rank_correlation=correlation(x_ranks, y_ranks),
        correlation=correlation(x, y),
        largest=_largest(np.flatnonzero(both), x, y, narrow, base),
        by_size=by_size,
        by_solve_rate=_by_rate(x, y, means) if reward_range(frame) == (0, 1) else None,
    )


def _changes(x: Vector, y: Vector) -> dict[str, Any]:
    """How two columns of advantages differ, row by row."""
    size = _rms(x) or 0.0
    other = _rms(y) or 0.0
    change = np.abs(y - x)
    moved = change > EQUAL * max(size, other)
    flipped = np.sign(x) * np.sign(y) < 0
    return {
        "rows": len(x),
        "changed": int(moved.sum()),
        "sign_flips": int(np.sum(flipped & moved)),
        "scale_ratio": plain(other / size) if size else None,
        "mean_change": plain(float(change.mean())) if len(x) else None,
        "largest_change": plain(float(change.max())) if len(x) else None,
    }


def _rms(values: Vector) -> float | None:
    """The root mean square; None without values."""
    return float(np.sqrt(np.mean(values**2))) if len(values) else None


def _largest(rows: Index, x: Vector, y: Vector, narrow: Narrow, base: Scored) -> list[ChangedRow]:
    """The rows that change most: group, place, reward and both advantages."""
    change = np.abs(y - x)
    top = [at for at in np.argsort(-change, kind="stable")[:LARGEST].tolist() if change[at] > 0]
    changed = rows[top].tolist()
    codes = narrow.table["group"]
    reward = pl.col(".reward")
    if base.plan.unit.take != "each":  # only one row of a rollout has its reward
        reward = reward.max().over("rollout")
    rewards = base.rows.select(reward).to_series()
    lines = []
    for at, row, place in zip(top, changed, narrow.places(changed), strict=True):
        label = narrow.label(codes[row])
        lines.append(ChangedRow(label, place, rewards[row], float(x[at]), float(y[at])))
    return lines


def _by_rate(x: Vector, y: Vector, mean: Vector) -> list[OfSolveRate]:
    """The changes by solve rate, from never to always solved; rates without rows are left out."""
    parts = {"0": mean == 0}
    for low, high in pairwise(SOLVE_RATES):
        inside = (mean > low) & (mean <= high)
        parts[f"{low:g}..{high:g}"] = inside & (mean < 1)
    parts["1"] = mean == 1
    return [OfSolveRate(solve_rate=label, **_changes(x[here], y[here])) for label, here in parts.items() if here.any()]
