"""What a report draws, already counted: a figure has hundreds of numbers at most, whatever the number of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.compile import score
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.stats.facts import worst_and_best

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.stats.inspection import Inspection

METHODS: Final = ("grpo", "rloo", "dr-grpo")
# What becomes of a group, and so of its rows; in the order in which they are stacked.
OUTCOMES: Final = ("varies", "always solved", "never solved", "equal at another reward", "alone or unscored")
BINS: Final = 40
TILES: Final = (32, 20)
FEW: Final = 20
POINTS: Final = 200  # of a trend

Lines = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One picture: what kind, what it says, and its numbers."""

    name: str
    kind: str
    title: str
    says: str
    lines: Lines
    axes: Mapping[str, str]


def figures(found: Inspection, told: Mapping[str, pl.Series]) -> list[Figure]:
    """All figures that this data has something to say to; `told` are the advantages of some methods."""
    made = [_rewards(found), _solve_rates(found), _sizes(found), *_advantages(found, told), *_trends(found)]
    made += [_lengths(found), _other_sizes(found), _expected(found)]
    return [one for one in made if one is not None and one.lines]


# --- rewards and groups ------------------------------------------------------------------------------------


def outcomes(found: Inspection) -> np.ndarray[Any, np.dtype[np.int8]]:
    """The place in OUTCOMES of every group."""
    groups = found.groups
    low: Any = groups["min"].min()
    high: Any = groups["max"].max()
    worst, best = worst_and_best(low, high)
    constant, top = groups["constant"].to_numpy(), groups["max"].to_numpy()
    told = np.where(constant, 3, 0)
    if worst != best:
        told = np.where(constant & (top == best), 1, np.where(constant & (top == worst), 2, told))
    return np.where(groups["scored"].to_numpy() > 1, told, 4).astype(np.int8)


def _rewards(found: Inspection) -> Figure:
    frame = found.seen.rows
    kinds = outcomes(found)[frame["group"].to_numpy()]
    lines = _counted(frame[".reward"], kinds, OUTCOMES)
    name = " + ".join(found.narrow.reward_names)
    says = "How many rows have which reward, by what became of their group. Only groups that vary carry a gradient."
    return Figure(
        name="rewards", kind="stacked", title="Rewards", says=says, lines=lines, axes={"x": name, "y": "rows"}
    )


def _counted(values: pl.Series, kinds: Any, names: Sequence[str]) -> Lines:
    """Counts of values, or of bins where the values are many, for each kind."""
    known = values.is_finite().fill_null(value=False).to_numpy()
    numbers, kinds = values.to_numpy()[known], kinds[known]
    if not len(numbers):
        return []
    places, marks = _places(numbers)
    counts = np.bincount(places * len(names) + kinds, minlength=len(marks) * len(names)).reshape(len(marks), -1)
    return [
        {**mark, "kind": names[k], "count": int(counts[i, k])}
        for i, mark in enumerate(marks) for k in range(len(names)) if counts[i, k]
    ]  # fmt: skip


def _places(numbers: Any, bins: int = BINS) -> tuple[Any, Lines]:
    """The bin of each number, and what the bins are: a value each where there are few."""
    distinct = pl.Series(numbers).unique().sort() if len(numbers) else pl.Series([], dtype=pl.Float64)
    if len(distinct) <= FEW:
        values = distinct.to_numpy()
        return np.searchsorted(values, numbers), [{"value": float(value)} for value in values]
    low, high = float(numbers.min()), float(numbers.max())
    edges = np.linspace(low, high, bins + 1)
    places = np.minimum(((numbers - low) / (high - low) * bins).astype(np.int64), bins - 1)
    return places, [{"from": float(edges[i]), "to": float(edges[i + 1])} for i in range(bins)]


def _solve_rates(found: Inspection) -> Figure | None:
    seen = found.facts["difficulty"]
    if seen is None:
        return None
    names = ["never", *(f"{i / 10:g} to {(i + 1) / 10:g}" for i in range(10)), "always"]
    kinds = [OUTCOMES[2], *[OUTCOMES[0]] * 10, OUTCOMES[1]]
    sizes = [seen["never"], *seen["bins"], seen["always"]]
    lines = [{"value": n, "kind": k, "count": c} for n, k, c in zip(names, kinds, sizes, strict=True)]
    says = f"How hard the prompts are: {seen['useful']:,} of {seen['groups']:,} groups lie from 0.2 to 0.8."
    return Figure(name="solve_rates", kind="stacked", title="Solve rates", says=says, lines=lines,
                  axes={"x": "mean reward of a group, from worst to best", "y": "groups"})  # fmt: skip


def _sizes(found: Inspection) -> Figure:
    lines = _counted(found.groups["size"].cast(pl.Float64), outcomes(found), OUTCOMES)
    return Figure(name="sizes", kind="stacked", title="Group sizes", says="How many rows the groups have.",
                  lines=lines, axes={"x": "rows of a group", "y": "groups"})  # fmt: skip


# --- advantages --------------------------------------------------------------------------------------------


def advantages(found: Inspection, methods: Sequence[str] = METHODS) -> dict[str, pl.Series]:
    """The advantages of these methods, first those of the run's own plan, by name."""
    told = {found.scored.plan.method: found.scored.rows[".advantage"]}
    for name in methods:
        if name not in ESTIMATORS:
            raise UnknownName.among("method", name, ESTIMATORS)
        if name not in told:
            plan = Plan.of({"estimator.name": name})
            plan = replace(plan, rewards=found.scored.plan.rewards)
            for need in plan.needs:
                if need not in found.narrow.table.columns:
                    raise UsageError(
                        f"{name} needs {ROLES[need].meaning}", f"name the column with {ROLES[need].flag} COLUMN"
                    )
            told[name] = score(plan, found.narrow.table).rows[".advantage"]
    return told


def _advantages(found: Inspection, told: Mapping[str, pl.Series]) -> list[Figure]:
    made = []
    kinds = outcomes(found)[found.seen.rows["group"].to_numpy()]
    for name, values in told.items():
        zero = int((values == 0).sum())
        says = f"What each row would be pushed by with {name}; {zero:,} of {len(values):,} are exactly 0."
        made.append(Figure(name=f"advantages_{name}", kind="stacked", title=f"Advantages, {name}", says=says,
                           lines=_counted(values, kinds, OUTCOMES), axes={"x": "advantage", "y": "rows"}))  # fmt: skip
    return made


# --- trends, lengths, other sizes --------------------------------------------------------------------------


def _trends(found: Inspection) -> list[Figure]:
    told = found.facts["by"]
    if told is None or len(told["lines"]) < 2:  # noqa: PLR2004 - a line needs two points
        return []
    lines, by = told["lines"], told["column"]
    lines = [lines[i] for i in sorted({round(k * (len(lines) - 1) / (POINTS - 1)) for k in range(POINTS)})]
    rest = [(line, line["zero_variance"] or 0.0, line["all_best"] or 0.0, line["all_worst"] or 0.0) for line in lines]
    shares = [
        {"value": _word(line["value"]), "kind": kind, "share": share}
        for line, total, best, worst in rest
        for kind, share in zip(OUTCOMES[1:4], (best, worst, max(total - best - worst, 0.0)), strict=True)
    ]
    means = [{"value": _word(line["value"]), "mean": line["mean"]} for line in lines if line["mean"] is not None]
    return [
        Figure(name="zero_variance", kind="shares", title=f"Zero variance over {by}", lines=shares,
               says="The share of groups that carry no gradient, by why.", axes={"x": by, "y": "share of groups"}),
        Figure(name="mean_reward", kind="line", title=f"Mean reward over {by}", lines=means,
               says="The mean of all rows.", axes={"x": by, "y": "mean reward"}),
    ]  # fmt: skip


def _word(value: Any) -> Any:
    """A value of a trend as an axis can have it."""
    return value if isinstance(value, (int, float, str)) and not isinstance(value, bool) else str(value)


def _lengths(found: Inspection) -> Figure | None:
    rows, seen = found.rows, found.facts["length"]
    if seen is None:
        return None
    known = rows.filter(pl.col(".reward").is_finite() & pl.col("length").is_finite())
    if not len(known):
        return None
    (across, columns), (up, marks) = (
        _places(known[name].to_numpy(), bins) for name, bins in zip(("length", ".reward"), TILES, strict=True)
    )
    counts = np.bincount(across * len(marks) + up, minlength=len(columns) * len(marks))
    lines = [
        {**{f"x_{k}": v for k, v in columns[i // len(marks)].items()}, **marks[i % len(marks)], "count": int(counts[i])}
        for i in np.flatnonzero(counts)
    ]
    inside = "unknown" if seen["within_groups"] is None else f"{seen['within_groups']:+.2f}"
    says = f"Whether long responses are rewarded; the correlation inside groups is {inside}."
    return Figure(name="lengths", kind="tiles", title="Reward and length", says=says, lines=lines,
                  axes={"x": seen["column"], "y": "reward"})  # fmt: skip


def _other_sizes(found: Inspection) -> Figure:
    words = {"sample": "drawn from the groups", "model": "by a Beta distribution", "bound": "at least"}
    lines = [
        {"size": one["size"], "share": one["alive"], "kind": words[one["found"]]} for one in found.facts["at_size"]
    ]
    return Figure(name="other_sizes", kind="curve", title="Other group sizes", lines=lines,
                  says="The share of groups that would vary if they had so many rows.",
                  axes={"x": "rows of a group", "y": "share of groups"})  # fmt: skip


def _expected(found: Inspection) -> Figure | None:
    seen = found.facts["expected"]
    if seen is None or seen["own_rates"] is None:
        return None
    words = {
        "observed": "observed",
        "own_rates": "expected from each group's rate",
        "one_rate": "if all were equally hard",
    }
    lines = [{"value": word, "share": seen[name]} for name, word in words.items()]
    return Figure(name="expected", kind="bars", title="Zero variance, expected and observed", lines=lines,
                  says="Constant groups beside what luck alone would bring: far above it, prompts differ in difficulty.",
                  axes={"x": "", "y": "share of groups"})  # fmt: skip
