"""What rewards go together with: the length of the response; and which responses of a group are the same.

What is counted of parts of the rows can be put together, where no group is in two parts.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from grpo_cli.read.group_keys import encode
from grpo_cli.stats.facts import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_cli.stats.facts import RewardRange


Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Together:
    """Sums that tell how two columns go together: means, squares and products of the distances from them, extremes."""

    count: int = 0
    means: Pair = (0.0, 0.0)
    squares: Pair = (0.0, 0.0)
    products: float = 0.0
    least: Pair = (0.0, 0.0)
    most: Pair = (0.0, 0.0)

    @classmethod
    def of(cls, one: Any, other: Any) -> Together:
        """The sums of two arrays of numbers."""
        if not len(one):
            return cls()
        means = float(one.mean()), float(other.mean())
        x, y = one - means[0], other - means[1]
        squares = float((x * x).sum()), float((y * y).sum())
        least, most = (float(one.min()), float(other.min())), (float(one.max()), float(other.max()))
        return cls(len(one), means, squares, float((x * y).sum()), least, most)

    def merge(self, other: Together) -> Together:
        """The sums of the rows of both."""
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        share = other.count / count
        x, y = (there - here for here, there in zip(self.means, other.means, strict=True))
        both = self.count * share
        return Together(
            count,
            (self.means[0] + x * share, self.means[1] + y * share),
            (self.squares[0] + other.squares[0] + x * x * both, self.squares[1] + other.squares[1] + y * y * both),
            self.products + other.products + x * y * both,
            (min(self.least[0], other.least[0]), min(self.least[1], other.least[1])),
            (max(self.most[0], other.most[0]), max(self.most[1], other.most[1])),
        )

    @property
    def correlation(self) -> float | None:
        """Pearson's correlation; None where one of the columns does not vary."""
        if self.count < 2 or any(low == high for low, high in zip(self.least, self.most, strict=True)):  # noqa: PLR2004 - two points make a line
            return None
        size = math.sqrt(self.squares[0]) * math.sqrt(self.squares[1])
        return plain(min(1.0, max(-1.0, self.products / size))) if size else None


@dataclass(frozen=True, slots=True)
class Lengths:
    """How rewards go with lengths: over all rows, inside the groups, and the lengths at the least and the largest reward."""

    overall: Together = field(default_factory=Together)
    inside: Together = field(default_factory=Together)
    at_ends: Mapping[float, tuple[int, float]] = field(default_factory=dict)  # reward -> rows, and their mean length

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Lengths:
        """The lengths of rows with `.reward`, `.mean` (of the group) and `length`."""
        known = rows.filter(pl.col(".reward").is_finite() & pl.col("length").is_finite())
        reward, length = known[".reward"].to_numpy(), known["length"].to_numpy()
        codes = known["group"].to_numpy()
        group_length = mean_by_code(codes, known["length"], int(codes.max(initial=0)) + 1)
        ends = {float(reward.min()), float(reward.max())} if len(reward) else set[float]()
        return cls(
            Together.of(reward, length),
            Together.of(reward - known[".mean"].to_numpy(), length - group_length[codes]),
            {end: (int((reward == end).sum()), float(length[reward == end].mean())) for end in ends},
        )

    def merge(self, other: Lengths) -> Lengths:
        """The lengths of the rows of both."""
        at_ends = dict(self.at_ends)
        for end, (count, mean) in other.at_ends.items():
            before, first = at_ends.get(end, (0, 0.0))
            at_ends[end] = before + count, (before * first + count * mean) / (before + count)
        return Lengths(self.overall.merge(other.overall), self.inside.merge(other.inside), at_ends)

    def facts(self, extremes: RewardRange) -> dict[str, Any]:
        """How the reward goes with the length, over all rows and inside the groups, where hard prompts count for nothing.

        The mean lengths are those of rows with the best and the worst reward; both are None where such rewards do not occur.
        """
        worst, best = extremes

        def mean_where(rewarded: float | None) -> float | None:
            known = rewarded is not None and best != worst and rewarded in self.at_ends
            return self.at_ends[rewarded][1] if known else None  # type: ignore[index]

        return {
            "rows": self.overall.count,
            "mean": plain(self.overall.means[1]) if self.overall.count else None,
            "correlation": self.overall.correlation,
            "within_groups": self.inside.correlation,
            "best": mean_where(best),
            "worst": mean_where(worst),
        }


def inside_groups(
    codes: Any, columns: Mapping[str, pl.Series], others: Mapping[str, pl.Series]
) -> dict[tuple[str, str], Together]:
    """How each column goes with each of the others, of what is left when each group has its mean taken off."""
    size = int(codes.max(initial=0)) + 1

    def one_pair(one: pl.Series, other: pl.Series) -> Together:
        known = (one.is_finite() & other.is_finite()).fill_null(value=False).to_numpy()
        here = codes[known]
        values = (pl.Series(series.to_numpy()[known]) for series in (one, other))
        x, y = (series.to_numpy() - mean_by_code(here, series, size)[here] for series in values)
        return Together.of(x, y)

    return {(name, what): one_pair(values, other) for name, values in columns.items() for what, other in others.items()}


def mean_by_code(codes: Any, values: pl.Series, size: int) -> Any:
    """The mean of the finite values of each of `size` codes; NaN where a code has none."""
    known = values.is_finite().fill_null(value=False).to_numpy()
    codes = codes[known]
    with np.errstate(invalid="ignore"):
        return np.bincount(codes, weights=values.to_numpy()[known], minlength=size) / np.bincount(codes, minlength=size)


def duplicates(codes: pl.Series, texts: pl.Series) -> Counter[str]:
    """How many of the `known` responses repeat an earlier one of their group, in how many groups; a missing text is like no other."""
    known = texts.is_not_null()
    codes, texts = codes.filter(known), texts.filter(known)
    distinct = encode([codes, texts], len(codes))
    distinct_texts = np.bincount(codes.gather(distinct.first).to_numpy())
    sizes = np.bincount(codes.to_numpy())
    return Counter(
        known=len(codes),
        rows=int(len(codes) - distinct.size),
        groups=int((sizes > distinct_texts).sum()),
        all_the_same=int(((distinct_texts == 1) & (sizes > 1)).sum()),
    )
