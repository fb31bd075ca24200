"""What the groups of a run say of its prompts: how hard they are, and what another group size would bring.

Everything is computed from one line per group. Two rewards of one prompt are equal by luck or because the prompt
leaves no choice; how often they would all be equal in a group of another size is estimated from how the values
of each group are distributed over its rows:

* n' <= n: the chance that n' rows drawn from the group without replacement are equal, sum over its values of
  C(c, n') / C(n, n'). It is an unbiased estimate of what a group of n' rows would do.
* n' > n: where two rewards occur, a constant group stays constant as often as under a Beta distribution of
  solve rates with the mean and the spread that were seen (its moments without the luck of the draw); a group
  that is alive stays so. Where more rewards occur there is no such model: what is constant is taken to stay
  so, and the share that is alive is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import Numbers, each
from grpo_cli.stats.facts import plain, worst_and_best

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OTHER_SIZES: Final = (2, 4, 8, 16, 32, 64)
BINS: Final = 10
USEFUL: Final = (0.2, 0.8)

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def comparable(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups that have two rewards to compare."""
    return groups.filter(pl.col("scored") > 1)


def solve_rates(groups: pl.DataFrame) -> pl.Series:
    """How far each group's mean is on the way from the worst reward to the best; null where there is no way."""
    worst, best = _range(groups)
    if worst is None or best is None or worst == best:
        return pl.repeat(None, len(groups), dtype=pl.Float64, eager=True).alias("solve_rate")
    rate = ((pl.col("mean") - worst) / (best - worst)).clip(0.0, 1.0)
    return groups.select(solve_rate=pl.when(pl.col("scored") > 0).then(rate)).to_series()


def _range(groups: pl.DataFrame) -> tuple[float | None, float | None]:
    low: Any = groups["min"].min()
    high: Any = groups["max"].max()
    return worst_and_best(low, high)


def difficulty(groups: pl.DataFrame) -> dict[str, Any] | None:
    """The curriculum: how many groups are never solved, always solved, and how hard those between are.

    `bins` counts the groups whose rate lies in each tenth of 0..1, without those at 0 and at 1. A group may be
    between and yet have equal rewards; `alive` counts those that have not.
    """
    worst, best = _range(groups)
    rated = comparable(groups.with_columns(solve_rates(groups)))
    rates = rated["solve_rate"].drop_nulls().to_numpy()
    if not len(rates):
        return None
    between = rates[(rates > 0) & (rates < 1)]
    places = np.minimum((between * BINS).astype(np.int64), BINS - 1)
    low, high = USEFUL
    return {
        "worst": worst,
        "best": best,
        "groups": len(rates),
        "mean": float(rates.mean()),
        "never": int((rates == 0).sum()),
        "always": int((rates == 1).sum()),
        "bins": np.bincount(places, minlength=BINS).tolist(),
        "useful": int(((rates >= low) & (rates <= high)).sum()),
        "alive": int((~rated["constant"]).sum()),
    }


def spread(groups: pl.DataFrame, ddof: int) -> dict[str, float | None]:
    """The variance of the rewards, split: around the mean of each group, and of these means around that of all.

    Both are sums over scored rows divided by their number, so that they add up to the variance of all rows.
    """
    seen = groups.filter(pl.col("scored") > 0)
    n, mean, std = (seen[name].to_numpy() for name in ("scored", "mean", "std"))
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


# --- equal by luck -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ties:
    """How often a value stands c times in a comparable group of n rows: lines of `n`, `c` and how many `times`.

    `rate` is the mean solve rate of the groups, where only two values occur.
    """

    counts: pl.DataFrame
    rate: float | None

    def columns(self) -> tuple[Floats, Floats, Floats]:
        """The three columns as numbers."""
        n, c, times = (self.counts[name].cast(pl.Float64).to_numpy() for name in ("n", "c", "times"))
        return n, c, times


def ties(groups: pl.DataFrame, rows: pl.DataFrame, rewards: Mapping[str, Any]) -> Ties:
    """Count equal rewards. `rows` has `group` and `.reward`; `rewards` is the histogram of all.

    Where only two values occur, the means of the groups tell it all.
    """
    seen = comparable(groups)
    low: Any = seen["min"].min()
    high: Any = seen["max"].max()
    if low is None:
        return Ties(pl.DataFrame(schema=dict.fromkeys(("n", "c", "times"), pl.Int64)), None)
    two = low != high and {*rewards.get("values", ())} == {low, high}
    if two:
        rates = (seen["mean"] - low) / (high - low)
        best = (rates * seen["scored"]).round().cast(pl.Int64)
        pairs = pl.concat([seen.select(n="scored", c=best), seen.select(n="scored", c=pl.col("scored") - best)])
        pairs = pairs.filter(pl.col("c") > 0)
    else:
        pairs = _counted(seen, rows)
    counts = pairs.group_by("n", "c").agg(times=pl.len().cast(pl.Int64)).sort("n", "c")
    return Ties(counts, float(rates.to_numpy().mean()) if two else None)


def _counted(seen: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    constant = seen.filter("constant").select(n="scored", c="scored")
    alive = seen.filter(~pl.col("constant")).select(group="code", n="scored")
    known = rows.filter(pl.col(".reward").is_not_null())
    counts = known.group_by("group", ".reward").agg(c=pl.len().cast(pl.Int64))
    return pl.concat([constant, counts.join(alive, on="group").select("n", "c")])


def equal_without_replacement(n: Floats, c: Floats, drawn: int) -> Floats:
    """C(c, drawn) / C(n, drawn), for drawn <= n."""
    chance = np.ones(len(n))
    for i in range(drawn):
        chance = chance * np.maximum(c - i, 0.0) / (n - i)
    return chance


def by_size(tied: Ties, sizes: Sequence[int] = OTHER_SIZES) -> list[dict[str, Any]]:
    """The share of groups that would have unequal rewards, for each of these sizes, and how it was found."""
    return [_at_size(tied, size) for size in sizes] if len(tied.counts) else []


def _at_size(tied: Ties, size: int) -> dict[str, Any]:
    n, c, times = tied.columns()
    groups = float((times * c / n).sum())  # the shares of a group's values add up to 1
    inside = n >= size
    chance = np.where(c == n, _stays(tied, n, size), 0.0)
    chance[inside] = equal_without_replacement(n[inside], c[inside], size)
    found = "sample" if inside.all() else "bound" if tied.rate is None else "model"
    return {"size": size, "alive": 1.0 - float((times * chance).sum()) / groups, "found": found}


def _stays(tied: Ties, n: Floats, size: int) -> Floats:
    """How much of the constant groups of n rows would still be constant if they had this size."""
    if tied.rate is None:
        return np.ones(len(n))
    settled = _settled(tied)
    stays: Floats = _constant_under_beta(tied.rate, settled, size) / _constant_under_beta(tied.rate, settled, n)
    return stays


def _settled(tied: Ties) -> float:
    """How alike the prompts are: E[p (1 - p)] beside that of prompts which all have the mean rate.

    The numerator is unbiased: c (n - c) / (n (n - 1)) of each group.
    """
    n, c, times = tied.columns()
    mixed = float((times * c * (n - c) / (n * (n - 1))).sum()) / 2 / float((times * c / n).sum())
    rate = tied.rate or 0.0
    return min(mixed / (rate * (1 - rate)), 1.0) if 0 < rate < 1 else 0.0


def _constant_under_beta(rate: float, settled: float, size: Any) -> Any:
    """E[p^n + (1 - p)^n] for p of a Beta distribution: products of (a + i) / (a + b + i), i < n."""
    sizes = np.asarray(size, dtype=np.float64)
    if settled >= 1:
        return rate**sizes + (1 - rate) ** sizes
    strength = settled / (1 - settled)
    made = np.zeros_like(sizes)
    for part in (rate * strength, (1 - rate) * strength):
        steps = [(part + i) / (strength + i) if strength + i else 1.0 for i in range(int(sizes.max()))]
        made = made + np.concatenate([[1.0], np.cumprod(steps)])[sizes.astype(np.int64)]
    return made


def expected(groups: pl.DataFrame, tied: Ties, rewards: Mapping[str, Any]) -> dict[str, Any] | None:
    """The share of constant groups that was observed, beside two that the solve rates let one expect.

    `own_rates`: each group's shares of values taken for its prompt's true ones, p^n + (1 - p)^n where rewards are
    0 and 1. It cannot be less than what was observed. `one_rate`: as if all prompts were equally hard, the
    shares of all rows taken for each prompt's; no other difficulties with that mean leave fewer groups constant.
    Both are known where few values occur: `rewards` is the histogram of all.
    """
    seen = comparable(groups)
    if not len(seen):
        return None
    n, c, times = tied.columns()
    return {
        "observed": float(seen["constant"].mean() or 0.0),  # type: ignore[arg-type]
        "own_rates": float((times * (c / n) ** n).sum()) / len(seen) if "values" in rewards else None,
        "one_rate": _one_rate(seen, rewards) if "values" in rewards else None,
    }


def _one_rate(seen: pl.DataFrame, rewards: Mapping[str, Any]) -> float:
    counts = np.array(rewards["counts"], dtype=np.float64)
    shares, sizes = counts / counts.sum(), seen["scored"].value_counts().sort("scored")
    return float(sum(float((shares**size).sum()) * times for size, times in sizes.iter_rows())) / len(seen)


def effective(advantages: pl.Series) -> float | None:
    """How many rows of equal weight would pull as hard: (sum |A|)^2 / sum A^2; none where nothing pulls."""
    seen = Numbers.of(advantages)
    if not seen.count:
        return None
    top = max(abs(seen.least or 0.0), abs(seen.most or 0.0))
    if top == 0.0:
        return 0.0

    def sums(piece: pl.Series) -> tuple[float, float]:
        sizes = np.abs(piece.filter(piece.is_finite()).to_numpy()) / top
        return float(sizes.sum()), float((sizes * sizes).sum())

    total, squares = (sum(column) for column in zip(*each(sums, advantages), strict=True))
    return plain(total**2 / squares)
