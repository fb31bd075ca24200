"""The summary of a computation: its rewards, groups and advantages.

Numbers are finite; None means that there is no number. `grpo_cli.stats.document` makes plain data of the classes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, NotRequired, TypedDict

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import FEW, SAMPLE, Numbers, counts, few, over
from grpo_cli.engine.group_stats import AnyCodes, finite_rows, group_extremes
from grpo_cli.engine.moments import NEAREST, Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import STATUSES, Scored, Status
from grpo_cli.read.narrow import Narrow
from grpo_cli.schemas.table import MarkKind

Number = float | None
Lines = list[Any]  # of dictionaries, as Vega takes them
RewardRange = tuple[Number, Number]  # the worst and the best reward
Reason = Literal["zero-variance", "singleton", "small-group", "unscorable"]
Unit = Literal["row", "rollout"]

VERSION: Final = 1
LISTED = 10  # keys listed for each reason
OF_BLOCK = " (in the first such block of the stream)"  # ends a warning whose numbers are those of one block
MARKED: Final[Mapping[MarkKind, str]] = {
    "left_out": "left out of their groups",
    "masked": "masked: not trained on, the rewards count",
    "foreign": "more are no rollouts",
}
MOST_REASONS = 3  # reasons on a line, beside the mark
# Distinct rewards of constant groups that a stream keeps, usually a handful; others are only counted.
CONSTANTS = 1000
STATISTICS = ("mean", "std", "min", "max")
QUARTERS = (0.25, 0.5, 0.75)  # the quantiles of a summary
BINS = FEW
BARS = 40  # bins of a figure
VALUES = 101  # up to this many distinct values (k/100) have a bar each
STEPPED = 4  # numbers are on a grid if at least one in this many of its steps has a value
COMB = 50  # with this many steps per bin, one more or less is invisible
ALL_WORST = "is the verifier right, or is every prompt too hard?"
ALL_BEST = "is the verifier right, or is every prompt too easy?"
NEARLY_CONSTANT = 1e-9  # relative spread up to which differences are rounding


@dataclass(frozen=True)
class ValueCounts:
    """A histogram of few values."""

    values: Sequence[float]  # distinct and ascending; for solve rates also those that no group has
    counts: Sequence[int]  # how many rewards have each value; for solve rates how many groups


@dataclass(frozen=True)
class BinCounts:
    """A histogram of bins between edges."""

    edges: Sequence[float]  # ascending, equally far apart, one more than there are bins
    # how many rewards are in each bin; for solve rates how many groups, smoothed across group sizes
    counts: Sequence[int]


Histogram = ValueCounts | BinCounts


@dataclass(frozen=True)
class Distribution:
    """Finite values; if there are none, all fields but the count are null."""

    count: int  # how many values are finite; the other fields are of these
    mean: Number  # of the finite values; None without any
    std: Number  # sample std (divided by n - 1) of the finite values; None with fewer than two
    min: Number  # the smallest finite value; None without any
    max: Number  # the largest finite value; None without any
    # 25 %, 50 % and 75 % quantiles, interpolated; three None without values, and for a stream
    quartiles: Sequence[Number]
    # by value if there are at most 20 distinct ones, else by bin; None without values, and for a stream
    histogram: Histogram | None


def same_everywhere(reward: Distribution) -> str:
    """What a reward says that is the same in all rows, as after a verifier that fails; empty if it varies or there is a single one."""
    if reward.min is None or reward.min != reward.max or reward.count < 2:  # noqa: PLR2004 - a single one says nothing
        return ""
    asked = {0.0: ALL_WORST, 1.0: ALL_BEST}.get(reward.min, "is the verifier right?")
    return f"the reward is {reward.min:.6g} in all {reward.count:,} scored rows: {asked}"


@dataclass(frozen=True)
class Advantages:
    """The finite advantages, and how many are null, NaN or 0."""

    mean: Number  # of the finite advantages of rows that the plan does not drop; None without any
    # sample std (divided by n - 1) of the finite advantages of rows that are not dropped; None with fewer than two
    std: Number
    min: Number  # the smallest finite advantage of a row that is not dropped; None without any
    max: Number  # the largest finite advantage of a row that is not dropped; None without any
    null: int  # rows that are not dropped and have no advantage, such as rows left out of their groups
    nan: int  # rows that are not dropped and whose advantage is NaN; infinite ones are not counted
    zero: int  # rows that are not dropped and whose advantage is exactly 0


@dataclass(frozen=True)
class GroupSizes:
    """How large groups are; `counts` has the number of groups of each size."""

    min: int  # rows of the smallest group, scored or not; rollouts if they are the unit
    median: float  # of the sizes of all groups; the mean of the middle two if their number is even
    max: int  # rows of the largest group, scored or not; rollouts if they are the unit
    counts: Mapping[str, int]  # the number of groups by size, ascending; the sizes are keys, so they are text


@dataclass(frozen=True)
class ZeroVariance:
    """Groups with equal rewards; `share` is among the groups with two rewards to compare.

    They are all best, all worst, or equal at another reward. Best and worst are 1 and 0 if all rewards lie in 0..1, else the
    extremes: of the rewards that enter the estimator.
    """

    # with at least two rewards, all of them equal; in each reward column, if columns are normalised separately
    groups: int
    rows: int  # all rows of the groups with equal rewards, scored or not
    # groups with equal rewards among those with at least two rewards; None if there are none of the latter
    share: Number
    # groups with equal rewards at the best one: 1 if all rewards of the input are in 0..1, else the highest
    all_best: int
    # groups with equal rewards at the worst one: 0 if all rewards of the input are in 0..1, else the lowest
    all_worst: int
    other: int  # groups with equal rewards, neither best nor worst; all, if the input has a single reward outside 0..1
    nearly: int  # further groups, whose rewards differ by at most a billionth of the largest |reward| in them: rounding


@dataclass(frozen=True)
class MarkedRows:
    """Rows that do not count like others: left out of their groups, masked, or no rollouts (foreign); and why."""

    # left_out: their rewards do not count; masked: they count, but the rows are not trained on; foreign: no rollouts
    kind: MarkKind
    mark: str  # what marks the rows, in words: a column and its value, or the condition of an option
    # the text that the row gives for it; empty without one, and "other reasons" beyond the 20 most frequent
    reason: str
    # how many have this mark and this reason; a row with several marks counts for one of them; 0 for the value of an
    # option that no row has
    rows: int


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Rows that are left out for a reason; whole groups with the first of their keys."""

    reason: str  # the option, condition or rule that left them out, in words
    groups: int | None = None  # how many whole groups were left out; absent where only rows are counted
    rows: int  # that were left out for this reason; of whole groups all rows, scored or not
    keys: Sequence[str] | None = None  # of the first 10 of these groups; absent where only rows are counted


@dataclass(frozen=True)
class SkippedGroup:
    """A group for which a plan has a rule of its own."""

    key: str  # the group key as text
    reward: Number  # the mean reward of the group after shaping; None if no row is scored


@dataclass(frozen=True)
class Skipped:
    """The groups for which a plan has a rule of their own, for one reason, with the keys of the first."""

    # equal rewards (or a std up to --std-threshold), one scored row, fewer than --min-group-size, or none
    reason: Reason
    groups: int  # how many the reason holds for; a group may be counted under several reasons
    rows: int  # all rows of these groups, scored or not
    keys: Sequence[SkippedGroup]  # the first 10 of these groups in the order of the files, each with its mean reward

    def merge(self, later: Skipped) -> Skipped:
        """The groups with those of the next block."""
        keys = [*self.keys, *later.keys][:LISTED]
        return Skipped(self.reason, self.groups + later.groups, self.rows + later.rows, keys)


@dataclass(frozen=True)
class Summary:
    """What was read, and how; rows, groups, rewards and advantages."""

    GATED: ClassVar = dict.fromkeys(("skipped_rows", "zero_share"))

    value: str  # of --plan-by; empty without it
    version: Literal[1]  # of the document; it changes when the meaning of a key does
    rows: int  # of all groups, scored or not; rows that are no rollouts are not counted
    rollouts: int  # that the rows are parts of; as many as rows, unless a column with the rollout id is read
    groups: int  # all of them, also those without a scored row
    batches: int  # sets of rows over which the statistics of a batch are taken; 1 if the whole input is one
    group_sizes: GroupSizes  # rows of a group, or rollouts if the unit is the rollout
    singletons: int  # groups with exactly one scored row, or one scored rollout if that is the unit
    unscorable: int  # rows without a reward that counts; rows that are left out of their groups are among them
    # rows that a mark leaves out, or that have no finite reward where the schema says that such rows occur
    declared_unscorable: int
    left_out: int  # rows that a mark or --rows leaves out of their groups, so that their rewards do not count
    masked: int  # rows that are not trained on, but whose rewards count in their groups
    marks: Sequence[MarkedRows]  # rows that do not count like others, by mark and reason, the most frequent first
    zero_variance: ZeroVariance  # groups whose rewards are all equal
    reward: Distribution  # the finite rewards (the weighted sum of the columns, before shaping), one for each unit
    advantage: Advantages  # of the rows that the plan does not drop; a rollout counts with each of its rows
    status: Mapping[Status, int]  # the number of rows with each status; all of them are listed, also those of no row
    skipped: Sequence[Skipped]  # groups that have no advantage by the formula, by reason
    kept: Sequence[Skipped]  # as skipped ones, but the plan gives them a number
    unit: Unit  # what counts as one reward: every row, or one per rollout
    schema: str | None  # the title of the file layout that was recognised or named; None without one
    group_key: Sequence[str]  # the columns whose values make a group; empty if groups are blocks of consecutive rows
    batch_key: str  # the columns that divide the batches, "file", or "input" if all rows are one batch
    reward_columns: Sequence[str]  # in the order of their weights in the plan
    # the rewards of text values, by --map; None for a missing reward; empty without the option
    map: Mapping[str, Number]
    # the column of each other quantity that the plan needs or an option names, by its role, such as length
    role_columns: Mapping[str, str]
    key_note: str  # the key in words, and how it was found; not in a document, whose notes have it
    notes: Sequence[str]  # how the files were read, and what the group key and the reward are
    warnings: Sequence[str]  # what may be wrong with the rows or the options, a sentence each
    plan: Plan  # the method with all of its settings

    def warned(self, warnings: Sequence[str]) -> Summary:
        """The summary with further warnings."""
        return replace(self, warnings=[*self.warnings, *warnings])

    @property
    def skipped_rows(self) -> int:
        """The rows without an advantage of their own."""
        return self.rows - self.status["scored"]

    @property
    def zero_share(self) -> float:
        """The share of rows whose advantage is 0."""
        return self.advantage.zero / self.rows


def group_facts(scored: Scored) -> pl.DataFrame:
    """One line per group, in order of first appearance.

    If rollouts count, `size` is the number of rollouts and `rows` the number of rows.
    """
    # If components are estimated separately, their sum may be constant while they are not.
    groups = facts_of_lines(scored.groups, pl.lit(scored.plan.rewards.combine == "sum"))
    if scored.plan.unit.take == "each":
        return groups
    rollouts = scored.rows.select("group", "rollout").unique("rollout")
    sizes = np.bincount(rollouts["group"].to_numpy(), minlength=len(groups))
    return groups.with_columns(size=pl.Series(sizes), rows="size")


def facts_of_lines(groups: pl.DataFrame, of_sum: pl.Expr) -> pl.DataFrame:
    """The same of lines of groups, where rows count; `of_sum` says whether the rewards of a line are estimated by their sum."""
    size = pl.max_horizontal(pl.col(".min").abs(), pl.col(".max").abs())
    spread = (pl.col(".max") - pl.col(".min")).fill_nan(None)  # polars has NaN <= NaN
    near = (spread <= NEARLY_CONSTANT * size) | (spread < NEAREST)
    return groups.select(
        code="code",
        batch="batch",
        size=pl.col("size").cast(pl.Int64),
        scored=pl.col(".n").cast(pl.Int64),
        mean=".mean",
        std=".std",
        min=".min",
        max=".max",
        constant=pl.col(".constant").fill_null(value=False) & (pl.col(".n") > 1),
        nearly=of_sum & ~pl.col(".constant") & near,
        status=".status",
        kept=".kept",
        zero_variance=".zero_variance",
    )


def rows_of(groups: pl.DataFrame) -> pl.Series:
    """The number of rows of each group."""
    return groups["rows" if "rows" in groups.columns else "size"]


def distribution(values: pl.Series) -> Distribution:
    """Mean, spread, quartiles and a histogram of the finite values."""
    known = few(values)
    numbers = Numbers.of(values) if known is None else Numbers.counted(*known)
    quartiles = [None] * 3
    histogram: Histogram | None = None
    if known is None:
        if numbers.count < len(values):
            values = values.filter(values.is_finite())
        finite = values.to_numpy()
        bins, edges = even_bins(finite, BINS)

        def of_part(start: int, end: int) -> Index:
            return np.bincount(bins(finite[start:end]), minlength=len(edges) - 1)

        counts = np.sum(over(of_part, len(finite)), axis=0)
        quartiles = np.quantile(finite, QUARTERS).tolist()
        histogram = BinCounts(edges.tolist(), counts.tolist())
    elif numbers.count:
        quartiles = np.quantile(np.repeat(*known), QUARTERS).tolist()
        histogram = ValueCounts(*known)
    return Distribution(count=numbers.count, **numbers.facts(), quartiles=quartiles, histogram=histogram)


def even_bins(finite: Vector, most: int) -> tuple[Callable[[Vector], Index], Vector]:
    """A function that finds the bin of each of these numbers, and the edges of at most `most` bins.

    The numbers must not all be equal. Bins are equally wide. If numbers are on a grid, like lengths or rewards of k/30, all
    bins cover the same number of steps: with one more in some bins, a flat distribution would look like a comb.
    """
    low = float(finite.min())
    high = float(finite.max())
    if len(np.unique(finite[:SAMPLE])) <= COMB * most:
        distinct = over(lambda start, end: pl.Series(finite[start:end]).unique().sort(), len(finite))
        values = pl.concat(distinct).unique().sort().to_numpy()
        step = np.diff(values).min()
        steps = (values - low) / step
        if _on_grid(steps):
            count = round(steps[-1]) + 1
            width = _steps_of_a_bin(count, most)
            first_steps = np.arange((count - 1) // width + 2) * width
            edges = low + step * (first_steps - 0.5)
            return lambda numbers: np.round((numbers - low) / step).astype(np.int64) // width, edges

    def scaled(numbers: Vector) -> Index:
        places = (numbers - low) / (high - low) * most
        return np.minimum(places.astype(np.int64), most - 1)

    return scaled, np.linspace(low, high, most + 1)  # faster than the search of np.histogram


def _on_grid(steps: Vector) -> bool:
    """Whether these ascending distances from the smallest number are whole steps, many of which have a number."""
    are_whole = np.allclose(steps, np.round(steps), rtol=0, atol=1e-3)
    return are_whole and bool(steps[-1] < STEPPED * len(steps))


def _steps_of_a_bin(count: int, most: int) -> int:
    """How many of so many steps a bin covers: the number that leaves the last of at most `most` bins the least empty."""
    least = -(-count // most)
    return min(range(least, 2 * least), key=lambda width: (-count % width, width))


class Change(
    TypedDict(
        "BinFrom",
        {
            "from": NotRequired[float],  # the lower end of a bin of rewards before; absent from a single value
        },
    )
):
    """How many rollouts that had this reward changed in a way: for a value, or for a bin if there are many values."""

    value: NotRequired[float]  # the reward before; absent from a bin, which has "from" and "to"
    to: NotRequired[float]  # the upper end of a bin of rewards before; absent from a single value
    kind: str  # whether the reward is now better, the same or worse
    count: int  # how many rollouts had this reward and changed so; never 0


def count_by_kind(values: pl.Series, places: Any, kinds: Sequence[str], times: pl.Series | None = None) -> Lines:
    """Counts of values, or of bins if there are many, for each kind; `places` is the index in `kinds` of each value.

    `times` is how often each value occurs, if not once.
    """
    known = values.is_finite().fill_null(value=False).to_numpy()
    numbers = values.to_numpy()
    weights = None if times is None else times.to_numpy()
    if not known.all():
        numbers, places = numbers[known], places[known]
        if weights is not None:
            weights = weights[known]
    if not len(numbers):
        return []
    across, bins = bins_of(numbers)
    counts = np.bincount(across * len(kinds) + places, weights, len(bins) * len(kinds))
    lines = []
    for of_bin, by_kind in zip(bins, counts.reshape(len(bins), -1), strict=True):
        for kind, count in zip(kinds, by_kind, strict=True):
            if count:
                lines.append({**of_bin, "kind": kind, "count": int(count)})
    return lines


def bins_of(numbers: Any, most: int = BARS, few: int = VALUES) -> tuple[Any, Lines]:
    """The bin of each number, and the bins: single values if there are few."""
    some = numbers[:SAMPLE]  # if these have many values, the others do not matter
    if len(np.unique(some)) <= few:
        some = numbers
    values = pl.Series(some).unique().sort().to_numpy()
    if len(values) <= few:
        return np.searchsorted(values, numbers), [{"value": float(value)} for value in values]
    bin_of, edges = even_bins(numbers, most)
    bins = [{"from": start, "to": end} for start, end in pairwise(edges.tolist())]
    return bin_of(numbers), bins


def zero_variance_share(groups: pl.DataFrame) -> float | None:
    """The share of groups without a gradient, among those with two rewards to compare."""
    comparable = int((groups["scored"] > 1).sum())
    return int(groups["constant"].sum()) / comparable if comparable else None


def constant_share(codes: AnyCodes, values: pl.Series, groups: int) -> float | None:
    """The share of groups whose values are equal, among those with two finite values."""
    codes, known = finite_rows(codes, values)
    low, high = group_extremes(codes, known, groups)
    two = np.bincount(codes, minlength=groups) > 1
    return float((low == high)[two].mean()) if two.any() else None


def reward_range(groups: pl.DataFrame) -> RewardRange:
    """The worst and the best reward of these groups, see `worst_and_best`."""
    return worst_and_best(*extremes(groups))


def extremes(groups: pl.DataFrame) -> RewardRange:
    """The lowest and the highest reward of these groups; None without any."""
    low: Any = groups["min"].min()
    high: Any = groups["max"].max()
    return plain(low), plain(high)


def worst_and_best(low: float | None, high: float | None) -> RewardRange:
    """The rewards that count as worst and best: 0 and 1 if all lie between, else the extremes; None without any."""
    between = low is not None and high is not None and low >= 0 and high <= 1
    return (0.0, 1.0) if between else (low, high)


def sizes(counts: Mapping[int, int]) -> GroupSizes:
    """The distribution of group sizes, from the number of groups of each size."""
    sizes = sorted(counts)
    # Not one number for each group: a stream has any number of them.
    ends = np.cumsum([counts[size] for size in sizes])
    groups = ends[-1]
    below, above = np.searchsorted(ends, [(groups - 1) // 2, groups // 2], side="right")
    named = {str(size): counts[size] for size in sizes}
    median = (sizes[below] + sizes[above]) / 2
    return GroupSizes(min=sizes[0], median=median, max=sizes[-1], counts=named)


def at_ends(rewards: Any, extremes: RewardRange) -> tuple[Any, Any]:
    """Which of these rewards are the worst and which are the best, up to rounding; none if these are equal or missing."""
    worst, best = (math.nan if end is None else end for end in extremes)
    near = NEARLY_CONSTANT * best - NEARLY_CONSTANT * worst
    apart = worst != best
    at_worst = rewards <= worst + near
    at_best = rewards >= best - near
    return apart & at_worst, apart & at_best


SKIPPED: Final[Mapping[Reason, pl.Expr]] = {
    "zero-variance": pl.col("zero_variance"),
    "singleton": (pl.col("scored") == 1) & (pl.col("size") >= 1),
    "small-group": pl.col("status") == "small-group",
    "unscorable": pl.col("scored") == 0,
}


def skipped(groups: pl.DataFrame, narrow: Narrow) -> dict[Reason, Skipped]:
    """The groups for which a plan has a rule of their own, by reason: how many, and the first keys with their rewards."""
    skips = {}
    for reason, condition in SKIPPED.items():
        affected = groups.filter(condition)
        first = affected.select("code", "mean").head(LISTED)
        keys = [SkippedGroup(narrow.label(code), plain(mean)) for code, mean in first.iter_rows()]
        if keys:
            rows = int(rows_of(affected).sum())
            skips[reason] = Skipped(reason, len(affected), rows, keys)
    return skips


def summarize(scored: Scored, narrow: Narrow, groups: pl.DataFrame | None = None) -> Summary:
    """The summary of one computation; `groups` are its `group_facts`, if already computed."""
    tally = Tally.of(scored, narrow, group_facts(scored) if groups is None else groups)
    return tally.facts(scored.plan, distribution(scored.rows[".reward"]))


def _form(warning: str) -> str:
    """The text of a warning without its numbers."""
    return re.sub(r"\d[\d,.]*", "#", warning)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many rows, groups and batches there are; those of two blocks are added."""

    # those that a summary has; it says what they are
    rows: int = 0
    rollouts: int = 0
    groups: int = 0
    batches: int = 0
    singletons: int = 0
    unscorable: int = 0
    declared_unscorable: int = 0
    left_out: int = 0
    masked: int = 0
    constant_rows: int = 0  # rows of groups with equal rewards
    comparable: int = 0  # groups with two rewards to compare
    nearly: int = 0  # groups whose rewards differ by rounding
    no_rate: int = 0  # groups whose mean reward is outside 0..1
    null: int = 0  # rows without an advantage that are not dropped
    # of a stream: rows that are not written, and the tokens of --per-token
    dropped_rows: int = 0
    tokens: int = 0
    response_tokens: int = 0

    def __add__(self, other: Counts) -> Counts:
        """The counts of both."""
        sums = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        return Counts(**sums)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Counts of a whole input, or of blocks of a stream, which are merged one by one."""

    counts: Counts = field(default_factory=Counts)
    statuses: Counter[Status] = field(default_factory=Counter)  # how many rows have each
    marks: Counter[tuple[MarkKind, str, str]] = field(default_factory=Counter)  # marked rows by kind, mark and reason
    sizes: Counter[int] = field(default_factory=Counter)  # sizes of the groups
    constants: Counter[float | None] = field(default_factory=Counter)  # rewards of constant groups
    extremes: RewardRange = (None, None)  # range of the rewards that enter the estimator
    reward: Numbers = field(default_factory=Numbers)  # for a stream only; a whole input has a distribution
    advantage: Numbers = field(default_factory=Numbers)  # of the rows that the plan does not drop
    skipped: dict[Reason, Skipped] = field(default_factory=dict)  # by reason; includes groups that are kept
    reading: Reading | None = None  # of the last block; None without a row
    warnings: tuple[str, ...] = ()  # of all blocks; of those that differ only in numbers, the first

    @classmethod
    def of(cls, scored: Scored, narrow: Narrow, groups: pl.DataFrame) -> Tally:
        """Count rows, and groups with their facts."""
        rows = scored.rows
        constant = groups.filter("constant")
        advantages = rows[".advantage"].filter(rows[".kept"])
        none = narrow.without_reward
        statuses = counts(rows[".status"].to_physical(), range(len(STATUSES)))
        group_sizes, occurrences = np.unique(groups["size"].to_numpy(), return_counts=True)
        declared = narrow.left_out if none is None else narrow.left_out | none
        outside = ~groups["mean"].fill_nan(None).is_between(0, 1)
        counted = Counts(
            rows=len(rows),
            rollouts=rows["rollout"].n_unique() if "rollout" in rows.columns else len(rows),
            groups=len(groups),
            batches=narrow.batches,
            singletons=int((groups["scored"] == 1).sum()),
            unscorable=len(rows) - int(rows[".scorable"].sum()),
            declared_unscorable=int(declared.sum()),
            left_out=int(narrow.left_out.sum()),
            masked=int(narrow.masked.sum()),
            constant_rows=int(rows_of(constant).sum()),
            comparable=int((groups["scored"] > 1).sum()),
            nearly=int(groups["nearly"].sum()),
            no_rate=int(outside.sum()),
            null=advantages.null_count(),
            dropped_rows=narrow.height - int(rows[".kept"].sum()),
        )
        return cls(
            counts=counted,
            statuses=Counter(dict(zip(STATUSES, statuses, strict=True))),
            marks=narrow.mark_counts,
            sizes=Counter(dict(zip(group_sizes.tolist(), occurrences.tolist(), strict=True))),
            constants=Counter(dict(constant["max"].value_counts().iter_rows())),
            extremes=extremes(groups),
            advantage=Numbers.of(advantages),
            skipped=skipped(groups, narrow),
            reading=reading_of(scored, narrow),
            warnings=narrow.warnings,
        )

    def merge(self, block: Tally) -> Tally:
        """The counts with those of the next block."""
        constants = self.constants.copy()
        marks = self.marks.copy()
        marks.update(block.marks)  # a sum would be without those of no row
        for value, groups in block.constants.items():
            is_listed = value in constants or len(constants) < CONSTANTS
            constants[value if is_listed else None] += groups
        lows, highs = zip(self.extremes, block.extremes, strict=True)
        low = min((value for value in lows if value is not None), default=None)
        high = max((value for value in highs if value is not None), default=None)
        known_forms = {*map(_form, self.warnings)}
        new_warnings = [text for text in block.warnings if _form(text) not in known_forms]
        skipped = dict(self.skipped)
        for reason, skip in block.skipped.items():
            skipped[reason] = skipped[reason].merge(skip) if reason in skipped else skip
        return Tally(
            counts=self.counts + block.counts,
            statuses=self.statuses + block.statuses,
            marks=marks,
            sizes=self.sizes + block.sizes,
            constants=constants,
            extremes=(low, high),
            reward=self.reward.merge(block.reward),
            advantage=self.advantage.merge(block.advantage),
            skipped=skipped,
            reading=block.reading or self.reading,
            warnings=(*self.warnings, *new_warnings),
        )

    def facts(self, plan: Plan, reward: Distribution | None = None) -> Summary:
        """The summary; without a distribution of the reward it is that of a stream: no quartiles and no histogram."""
        if self.reading is None:
            raise ValueError("nothing was read")
        counts = self.counts
        numbers = self.reward
        warnings = [*self.warnings]
        if reward is None:
            warnings = [text + OF_BLOCK * (text != _form(text)) for text in warnings]
            reward = Distribution(count=numbers.count, **numbers.facts(), quartiles=[None] * 3, histogram=None)
        rules = {"zero-variance": plan.groups.zero_variance, "singleton": plan.alone.result}
        kept = {reason for reason, rule in rules.items() if rule == "keep"}
        advantage = self.advantage
        return Summary(
            version=VERSION,
            rows=counts.rows,
            rollouts=counts.rollouts,
            groups=counts.groups,
            batches=1 if self.reading["batch_key"] == "input" else counts.batches,
            group_sizes=sizes(self.sizes),
            singletons=counts.singletons,
            unscorable=counts.unscorable,
            declared_unscorable=counts.declared_unscorable,
            left_out=counts.left_out,
            masked=counts.masked,
            marks=marked_rows(self.marks),
            zero_variance=self._zero_variance(),
            reward=reward,
            advantage=Advantages(**advantage.facts(), null=counts.null, nan=advantage.nan, zero=advantage.zero),
            status={name: self.statuses[name] for name in STATUSES},
            skipped=[skip for reason, skip in self.skipped.items() if reason not in kept],
            kept=[skip for reason, skip in self.skipped.items() if reason in kept],
            warnings=[*warnings, *self._weighed(plan)],
            plan=plan,
            **self.reading,
        )

    def _weighed(self, plan: Plan) -> Iterator[str]:
        """Warn if groups are weighted by solve rate and mean rewards are outside 0..1."""
        by_mean = plan.weight.by in {"peak", "pass-at-k"} and plan.weight.solved is None
        if by_mean and (groups := self.counts.no_rate):
            low, high = self.extremes
            have = "group has a mean reward" if groups == 1 else "groups have mean rewards"
            yield (
                f"{groups:,} {have} outside 0..1, counted as the solve rate 0 or 1 by weight.by={plan.weight.by}: "
                f"bring rewards (now {low:g} to {high:g}) to 0..1 with --reward-shift and --reward-scale, "
                "or set the reward from which a row is solved with --set weight.solved=X"
            )

    def _zero_variance(self) -> ZeroVariance:
        groups = self.constants.total()
        comparable = self.counts.comparable
        rewards = np.array([*self.constants], np.float64)
        times = np.array([*self.constants.values()], np.int64)
        ends = at_ends(rewards, worst_and_best(*self.extremes))
        all_worst, all_best = (int(times[at_end].sum()) for at_end in ends)
        return ZeroVariance(
            groups=groups,
            rows=self.counts.constant_rows,
            share=groups / comparable if comparable else None,
            all_best=all_best,
            all_worst=all_worst,
            other=groups - all_best - all_worst,
            nearly=self.counts.nearly,
        )


def marked_rows(counted: Counter[tuple[MarkKind, str, str]]) -> list[MarkedRows]:
    """The rows that do not count like others, the most first; marks of no row last."""
    some = {(kind, mark) for (kind, mark, _), rows in counted.items() if rows}
    return [
        MarkedRows(kind, mark, reason, rows)
        for (kind, mark, reason), rows in counted.most_common()
        if rows or (kind, mark) not in some
    ]


class ReadAs(TypedDict):
    """What was read, and how: fields of every summary."""

    schema: str | None  # the title of the file layout that was recognised or named; None without one
    group_key: Sequence[str]  # the columns whose values make a group; empty if groups are blocks of consecutive rows
    reward_columns: Sequence[str]  # in the order of their weights in the plan
    # the rewards of text values, by --map; None for a missing reward; empty without the option
    map: Mapping[str, Number]
    key_note: str  # the group key in words, and how it was found; not in a document
    notes: Sequence[str]  # how the files were read, and what the group key and the reward are


def read_as(narrow: Narrow) -> ReadAs:
    """The fields that say what was read, and how."""
    return {
        "schema": narrow.schema,
        "group_key": narrow.key_words,
        "reward_columns": narrow.reward_names,
        "map": narrow.request.binding.outcomes,
        "key_note": narrow.request.layout.key_note,
        "notes": narrow.notes,
    }


class Reading(ReadAs):
    """What was read, and how: further fields of a summary."""

    value: str  # of --plan-by; empty without it
    unit: Unit  # what counts as one reward: every row, or one per rollout
    batch_key: str  # the columns that divide the batches, "file", or "input" if all rows are one batch
    role_columns: Mapping[str, str]  # the column of each other quantity that was read, by its role


def reading_of(scored: Scored, narrow: Narrow) -> Reading:
    """The fields of a summary that say what was read, and how."""
    return {
        "value": narrow.request.value,
        "unit": "row" if scored.plan.unit.take == "each" else "rollout",
        "batch_key": narrow.rule.batch_name,
        "role_columns": dict(narrow.request.roles),
        **read_as(narrow),
    }


def of_foreign(narrow: Narrow) -> list[Dropped]:
    """The rows that are no rollouts, as a reason why rows are not chosen."""
    rows = sum(narrow.lengths) - narrow.height
    if not rows:
        return []
    marks = marks_of(marked_rows(narrow.mark_counts), "foreign")
    return [Dropped(reason=f"no rollouts ({marks})", rows=rows)]


def marked_lines(marks: Sequence[MarkedRows]) -> Iterator[str]:
    """A line for each kind of such rows: how many, what they are, and why."""
    for kind, meaning in MARKED.items():
        of_kind = [line.rows for line in marks if line.kind == kind]
        if of_kind:
            rows = f"{sum(of_kind):,}" if any(of_kind) else "0 rows"
            yield f"{rows} {meaning} ({marks_of(marks, kind)})"


def marks_of(lines: Sequence[MarkedRows], kind: MarkKind) -> str:
    """The marks of these rows with the reasons, in words: `mask_sample is true: timeout 900, oom 272`."""
    marks: dict[str, dict[str, int]] = {}
    for line in lines:
        if line.kind == kind:
            marks.setdefault(line.mark, {})[line.reason] = line.rows
    return "; ".join(map(_with_reasons, marks, marks.values()))


def _with_reasons(mark: str, reasons: Mapping[str, int]) -> str:
    if not any(reasons.values()):
        return f"{mark} in none"
    named = [f"{reason} {rows:,}" for reason, rows in reasons.items() if reason]
    if len(named) > MOST_REASONS:
        named[MOST_REASONS:] = [f"{len(named) - MOST_REASONS} more"]
    return f"{mark}: {', '.join(named)}" if named else mark


def only_finite(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with null for every number that is not finite."""
    numbers = pl.selectors.float()
    return frame.with_columns(pl.when(numbers.is_finite()).then(numbers))


def plain(value: float | None) -> float | None:
    """The number if it is finite, else None: JSON has neither NaN nor infinities."""
    return value if value is not None and math.isfinite(value) else None
