"""What the groups of a run say of its prompts: how hard they are, and what another group size would bring.

Everything is computed from one line per group. Two rewards of one prompt are equal by luck or because the prompt
leaves no choice; how often they would all be equal in a group of another size is estimated from how the values
of each group are distributed over its rows:

* n' <= n: the chance that n' rows drawn from the group without replacement are equal, sum over its values of
  C(c, n') / C(n, n'). It is an unbiased estimate of what a group of n' rows would do.
* n' > n: where two rewards occur, a constant group stays constant as often as under a Beta distribution of
  solve rates with the observed mean and spread (its moments without the luck of the draw); a group that varies
  still varies. Where more rewards occur there is no such model: what is constant is taken to stay so, and the
  share of groups that vary is a lower bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import Numbers, each, few
from grpo_cli.read.group_keys import encode
from grpo_cli.stats.facts import plain, reward_range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OTHER_SIZES: Final = (2, 4, 8, 16, 32, 64)
BINS: Final = 10
USEFUL: Final = (0.2, 0.8)
BANDS: Final = (
    "never",
    "hard",
    "medium",
    "easy",
    "always",
)  # how often a prompt is solved: hard and easy are beyond USEFUL

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


def pass_at(n: Sequence[int], solved: Sequence[int], k: int) -> list[float | None]:
    """How often k draws of the n rows have a solved one, 1 - C(n - c, k) / C(n, k); None where there are fewer rows than k."""
    known: dict[tuple[int, int], float | None] = {}
    for rows, right in {*zip(n, solved, strict=True)}:
        known[rows, right] = None if rows < k else 1.0 - math.comb(rows - right, k) / math.comb(rows, k)
    return [known[pair] for pair in zip(n, solved, strict=True)]


def comparable(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups that have two rewards to compare."""
    return groups.filter(pl.col("scored") > 1)


def solve_rates(groups: pl.DataFrame) -> pl.Series:
    """How far each group's mean is on the way from the worst reward to the best; null where these are equal or missing."""
    worst, best = reward_range(groups)
    if worst is None or best is None or worst == best:
        return pl.repeat(None, len(groups), dtype=pl.Float64, eager=True).alias("solve_rate")
    rate = ((pl.col("mean") - worst) / (best - worst)).clip(0.0, 1.0)
    return groups.select(solve_rate=pl.when(pl.col("scored") > 0).then(rate)).to_series()


def difficulty(groups: pl.DataFrame) -> dict[str, Any] | None:
    """How many groups are never solved, always solved, and how hard those between are; None without any solve rate.

    `bins` counts the groups whose rate lies in each tenth of 0..1, without those at 0 and at 1. A group may be
    between and yet have equal rewards; `alive` counts those that have not.
    """
    worst, best = reward_range(groups)
    rated = comparable(groups.with_columns(solve_rates(groups)))
    rates = rated["solve_rate"].drop_nulls().to_numpy()
    if not len(rates):
        return None
    between = rates[(rates > 0) & (rates < 1)]
    tenths = np.minimum((between * BINS).astype(np.int64), BINS - 1)
    low, high = USEFUL
    return {
        "worst": worst,
        "best": best,
        "groups": len(rates),
        "mean": float(rates.mean()),
        "never": int((rates == 0).sum()),
        "always": int((rates == 1).sum()),
        "bins": np.bincount(tenths, minlength=BINS).tolist(),
        "useful": int(((rates >= low) & (rates <= high)).sum()),
        "alive": int((~rated["constant"]).sum()),
    }


def spread(groups: pl.DataFrame, ddof: int) -> dict[str, float | None]:
    """The variance of the rewards, split: around the mean of each group, and of these means around that of all.

    Both are sums over scored rows divided by their number, so that they add up to the variance of all rows. All are
    None where no row is scored.
    """
    scored = groups.filter(pl.col("scored") > 0)
    n, mean, std = (scored[name].to_numpy() for name in ("scored", "mean", "std"))
    rows = int(n.sum())
    if not rows:
        return dict.fromkeys(("within", "between", "between_share"))
    # A group of one row has no spread, whatever a sample variance would make of it.
    within = float(np.where(n > 1, std**2 * (n - ddof), 0.0).sum()) / rows
    centre = float((n * (mean - mean.min())).sum()) / rows
    between = float((n * (mean - mean.min() - centre) ** 2).sum()) / rows
    total = within + between
    return {
        "within": plain(within**0.5),
        "between": plain(between**0.5),
        "between_share": plain(between / total) if total else None,
    }


@dataclass(frozen=True, slots=True)
class SampleSize:
    """The sums of Kish's effective sample size: of |A| and of A^2, as shares of the largest |A|; None without a finite A."""

    largest: float | None = None
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, advantages: pl.Series) -> SampleSize:
        """The sums of a column."""
        numbers = Numbers.of(advantages)
        if not numbers.count:
            return cls()
        largest = max(abs(numbers.least), abs(numbers.most))
        if largest == 0.0:
            return cls(largest)

        def sums(piece: pl.Series) -> tuple[float, float]:
            sizes = np.abs(piece.filter(piece.is_finite()).to_numpy()) / largest
            return float(sizes.sum()), float((sizes * sizes).sum())

        return cls(largest, *(sum(column) for column in zip(*each(sums, advantages), strict=True)))

    def merge(self, other: SampleSize) -> SampleSize:
        """The sums of the rows of both."""
        small, large = sorted((self, other), key=lambda one: -1.0 if one.largest is None else one.largest)
        if not small.largest or not large.largest:
            return large
        share = small.largest / large.largest
        return SampleSize(large.largest, large.total + small.total * share, large.squares + small.squares * share**2)

    @property
    def effective(self) -> float | None:
        """(sum |A|)^2 / sum A^2: how many rows of equal weight these are worth."""
        if not self.largest:
            return self.largest
        return plain(self.total**2 / self.squares)


# --- equal by luck -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ties:
    """How often a value stands c times in a comparable group of n rows: lines of `n`, `c` and how many `times`.

    `rate` is the mean solve rate of the groups where only two values occur, else None.
    """

    n: Floats
    c: Floats
    times: Floats
    rate: float | None


def has_two_values(groups: pl.DataFrame, rewards: Mapping[str, Any]) -> bool:
    """Whether the comparable groups have two rewards only, so that their means say how often each occurs."""
    groups = comparable(groups)
    low, high = groups["min"].min(), groups["max"].max()
    return low is not None and low != high and {*rewards.get("values", ())} == {low, high}


def repeated_rewards(groups: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """How many `times` a reward stands `c` times in a group of `n` rows that varies; `rows` has `group` and `.reward`."""
    varying = comparable(groups).filter(~pl.col("constant"))
    known = rows.filter(pl.col(".reward").is_not_null())
    codes, rewards = known["group"].to_numpy(), known[".reward"]
    sizes = np.zeros(len(groups), np.int64)  # 0 where a group is constant
    sizes[varying["code"].to_numpy()] = varying["scored"].to_numpy()
    found = few(rewards)
    if found is None or not found[0]:
        pairs = encode([known["group"], rewards], len(known))
        size, of_pairs = sizes.take(codes.take(pairs.first.to_numpy())), np.bincount(pairs.codes.to_numpy())
        return _summed(_times(size, of_pairs))
    # A pass for each value takes half the time of numbering all pairs.
    return _summed(
        pl.concat(
            _summed(_times(sizes, np.bincount(codes[(rewards == value).to_numpy()], minlength=len(sizes))))
            for value in found[0]
        )
    )


def _times(sizes: Ints, counts: Ints) -> pl.DataFrame:
    pairs = pl.DataFrame({"n": sizes, "c": counts}, schema={"n": pl.Int64, "c": pl.Int64})
    return pairs.filter((pl.col("n") > 0) & (pl.col("c") > 0)).with_columns(times=pl.lit(1, pl.Int64))


def _summed(pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.group_by("n", "c").agg(pl.col("times").sum()).sort("n", "c")


def count_ties(groups: pl.DataFrame, repeated: pl.DataFrame | None, rewards: Mapping[str, Any]) -> Ties:
    """Count equal rewards; `rewards` is the histogram of all, and `repeated` is known where they are not two."""
    two_values = has_two_values(groups, rewards)
    groups = comparable(groups)
    rate = None
    if two_values:
        low: Any = groups["min"].min()
        high: Any = groups["max"].max()
        rates = (groups["mean"] - low) / (high - low)
        rate = float(rates.to_numpy().mean())
        best = (rates * groups["scored"]).round().cast(pl.Int64)
        pairs = pl.concat([groups.select(n="scored", c=best), groups.select(n="scored", c=pl.col("scored") - best)])
        pairs = pairs.filter(pl.col("c") > 0).with_columns(times=pl.lit(1, pl.Int64))
    else:
        constant = groups.filter("constant").select(n="scored", c="scored", times=pl.lit(1, pl.Int64))
        pairs = constant if repeated is None else pl.concat([constant, repeated])
    lines = _summed(pairs)
    n, c, times = (lines[name].cast(pl.Float64).to_numpy() for name in ("n", "c", "times"))
    return Ties(n, c, times, rate)


def at_other_sizes(ties: Ties, sizes: Sequence[int] = OTHER_SIZES) -> list[dict[str, Any]]:
    """The share of groups that would have unequal rewards at each of these sizes, and how it was estimated."""
    return [_at_size(ties, size) for size in sizes] if len(ties.n) else []


def _at_size(ties: Ties, size: int) -> dict[str, Any]:
    n, c, times = ties.n, ties.c, ties.times
    groups = float((times * c / n).sum())  # the shares of a group's values add up to 1
    drawn = n >= size
    # Larger than the groups are: only a constant group can stay constant, and how often it does is modelled.
    stays: Any = np.ones(len(n))
    if ties.rate is not None:
        evenness = _evenness(ties, ties.rate)
        stays = _constant_under_beta(ties.rate, evenness, size) / _constant_under_beta(ties.rate, evenness, n)
    chance = np.where(c == n, stays, 0.0)
    # Not larger: C(c, size) / C(n, size), without replacement.
    equal = np.ones(int(drawn.sum()))
    for i in range(size):
        equal = equal * np.maximum(c[drawn] - i, 0.0) / (n[drawn] - i)
    chance[drawn] = equal
    estimate = "sample" if drawn.all() else "bound" if ties.rate is None else "model"
    return {"size": size, "alive": 1.0 - float((times * chance).sum()) / groups, "found": estimate}


def _evenness(ties: Ties, rate: float) -> float:
    """E[p (1 - p)] of the prompts, as a share of what it would be if all prompts had the mean rate.

    The numerator is unbiased: c (n - c) / (n (n - 1)) of each group.
    """
    n, c, times = ties.n, ties.c, ties.times
    mixed = float((times * c * (n - c) / (n * (n - 1))).sum()) / 2 / float((times * c / n).sum())
    return min(mixed / (rate * (1 - rate)), 1.0) if 0 < rate < 1 else 0.0


def _constant_under_beta(rate: float, evenness: float, size: Any) -> Any:
    """E[p^n + (1 - p)^n] for p of a Beta distribution: products of (a + i) / (a + b + i), i < n."""
    sizes = np.asarray(size, dtype=np.float64)
    if evenness >= 1:
        return rate**sizes + (1 - rate) ** sizes
    strength = evenness / (1 - evenness)
    chance = np.zeros_like(sizes)
    for part in (rate * strength, (1 - rate) * strength):
        steps = [(part + i) / (strength + i) if strength + i else 1.0 for i in range(int(sizes.max()))]
        chance = chance + np.concatenate([[1.0], np.cumprod(steps)])[sizes.astype(np.int64)]
    return chance


def expected_zero_variance(groups: pl.DataFrame, ties: Ties, rewards: Mapping[str, Any]) -> dict[str, Any] | None:
    """The share of constant groups that was observed, beside two that the solve rates let one expect.

    `own_rates`: each group's shares of values taken for its prompt's true ones, p^n + (1 - p)^n where rewards are
    0 and 1. It cannot be less than what was observed. `one_rate`: as if all prompts were equally hard, the
    shares of all rows taken for each prompt's; no other difficulties with that mean leave fewer groups constant.
    Both are None where many values occur: `rewards` is the histogram of all. None without groups to compare.
    """
    groups = comparable(groups)
    if not len(groups):
        return None
    own_rates = one_rate = None
    if "values" in rewards:
        n, c, times = ties.n, ties.c, ties.times
        own_rates = float((times * (c / n) ** n).sum()) / len(groups)
        counts = np.array(rewards["counts"], dtype=np.float64)
        shares, sizes = counts / counts.sum(), groups["scored"].value_counts().sort("scored")
        one_rate = float(sum(float((shares**n).sum()) * many for n, many in sizes.iter_rows())) / len(groups)
    observed = float(groups["constant"].mean() or 0.0)  # type: ignore[arg-type]
    return {"observed": observed, "own_rates": own_rates, "one_rate": one_rate}
