"""The search for the plan that gives logged advantages: all on a sample, the likely ones on all rows.

A plan whose batch is larger than the sample is compared up to a factor and an offset of each batch first: that is
all that the other rows of the batch can change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import DDOFS, Candidate, candidates, refined
from grpo_cli.engine.compile import score
from grpo_cli.engine.estimators.registry import ESTIMATORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.tables import Narrow

    Floats = NDArray[np.float64]

SAMPLE: Final = 4_096  # rows that every plan is tried on
CONFIRMED: Final = 2_000_000  # rows that may be computed to confirm what the sample says, beyond the first few
FEW: Final = 6
MANY: Final = 40
REFINED: Final = 8  # formulas whose epsilons are tried
TOLERANCE: Final = 2e-5  # of max(1, |A|): what float32 leaves
DECIMALS: Final = range(3, 7)  # a logger that rounds writes so many
SAME: Final = 3.0  # times the error of the best: no telling apart
LEAST: Final = 1e-12  # below this an error is rounding
FAR: Final = 0.5  # of the rows: a formula that misses more is not near
SPREAD: Final = 1e-3  # smaller advantages say little of an epsilon


@dataclass(frozen=True, slots=True)
class Close:
    """What counts as equal: an absolute part, and one that grows with the advantage."""

    absolute: float = 0.0
    relative: float = TOLERANCE

    def of(self, logged: Floats) -> Floats:
        """How far off a row may be."""
        return self.absolute + self.relative * np.maximum(1.0, np.abs(logged))


FLOAT32: Final = Close()


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a plan gives the logged advantages."""

    candidate: Candidate
    mismatched: int
    typical: float
    median: float
    rows: int

    @property
    def rank(self) -> tuple[int, float]:
        """Fewer rows that differ first, then the smaller error."""
        return self.mismatched, self.typical

    def ties(self, best: Fit) -> bool:
        """Whether the data cannot tell it from the best; of formulas that are far off nothing is said."""
        near = best.mismatched <= FAR * best.rows
        return near and self.mismatched == best.mismatched and self.typical <= SAME * best.typical + LEAST


@dataclass(frozen=True, slots=True)
class Trial:
    """Rows that plans are tried on; one that differs only in rules which these rows never need is not tried again.

    `loose` allows each batch a factor and an offset of its own.
    """

    table: pl.DataFrame
    logged: Floats
    loose: bool = False
    close: Close = FLOAT32
    known: dict[Any, Fit] = field(default_factory=dict)

    def fits(self, tried: Iterable[Candidate]) -> list[Fit]:
        """Compute each plan and measure it, in their order."""
        missing, lone = _odd(self.table)
        return [self._fit(one, _essence(one.plan, missing=missing, lone=lone)) for one in tried]

    def _fit(self, candidate: Candidate, essence: Any) -> Fit:
        if essence not in self.known:
            got = computed(candidate.plan, self.table)
            if self.loose and candidate.plan.uses_batch:
                got = _adjusted(got, self.logged, self.table["batch"].to_numpy())
            self.known[essence] = _measured(candidate, got, self.logged, self.close)
        return replace(self.known[essence], candidate=candidate)


def _odd(table: pl.DataFrame) -> tuple[bool, bool]:
    """Whether any reward is missing, and whether any group may have one row that counts."""
    rewards = [table[name] for name in table.columns if name.startswith("reward.")]
    missing = any(bool((~one.is_finite()).fill_null(value=True).any()) for one in rewards)
    lone = missing or "rollout" in table.columns or bool((np.bincount(table["group"].to_numpy()) == 1).any())
    return missing, lone


def _essence(plan: Plan, *, missing: bool, lone: bool) -> Any:
    """What of a plan these rows can show."""
    rules = (plan.rewards.missing, plan.rewards.component_missing) if missing else ()
    alone = (plan.alone, plan.groups) if lone else (replace(plan.groups, small="null"),)
    formula = plan.estimator.build, str(plan.params), plan.baseline_level, plan.unit, plan.rewards.combine
    return *formula, plan.shape, plan.divisor, plan.post, rules, alone


def searched(
    narrow: Narrow, logged: Floats, weights: Sequence[float], claim: Plan | None
) -> tuple[list[Fit], Close, int]:
    """Every plan on a sample, the likely ones on all rows: best first, what counts as equal, rows of the sample.

    Where nothing fits, the logger may have rounded: then values are equal that it would have written alike.
    """
    found = _searched(narrow, logged, weights, claim, FLOAT32)
    decimals = _decimals(logged) if found[0][0].mismatched else None
    if decimals is None:
        return found
    rounded = _searched(narrow, logged, weights, claim, Close(0.5 * 10.0**-decimals + 1e-9, 0.0))
    return rounded if rounded[0][0].mismatched < FAR * found[0][0].mismatched else found


def _decimals(logged: Floats) -> int | None:
    """The decimals that all values have, if they are few: more than two, for 0.5 is a number as it is."""
    finite = logged[np.isfinite(logged)]
    return next((d for d in DECIMALS if np.array_equal(np.round(finite, d), finite)), None)


def _searched(
    narrow: Narrow, all_logged: Floats, weights: Sequence[float], claim: Plan | None, close: Close
) -> tuple[list[Fit], Close, int]:
    rows = _sample(narrow)
    whole = len(rows) == len(narrow.table)
    every = Trial(narrow.table, all_logged, close=close)
    trial = every if whole else Trial(_part(narrow.table, rows), all_logged[rows], loose=True, close=close)
    roles = {*narrow.roles, "input_length", "turns"}
    first = trial.fits(candidates(roles, weights, len(narrow.reward_names), claim))
    for fit in _families(first, loose=not whole):
        first += trial.fits([*refined(fit.candidate), *_solved(fit.candidate, trial)])
    first.sort(key=lambda fit: fit.rank)
    fits = first if whole else _confirmed(first, every)
    ties = [fit for fit in fits if fit.ties(fits[0])]
    others = [fit for fit in fits if not fit.ties(fits[0])]
    # Of those that the data cannot tell apart a preset speaks first, then the plainest method.
    methods = list(ESTIMATORS)
    ties.sort(key=lambda fit: (not fit.candidate.presets, methods.index(fit.candidate.plan.method)))
    return [*ties, *others], close, len(rows)


def _solved(candidate: Candidate, trial: Trial) -> Iterator[Candidate]:
    """The epsilon that the rows themselves tell of, where a group's std divides: A (std + epsilon) is the residual."""
    plan = candidate.plan
    if plan.divisor.level != "group" or plan.post:
        return
    for ddof in DDOFS:
        bare = replace(plan, divisor=replace(plan.divisor, ddof=ddof, epsilon=0.0))
        frame = score(bare, trial.table).frame
        got, std = (frame[name].to_numpy().astype(np.float64) for name in (".advantage", ".std"))
        with np.errstate(all="ignore"):
            told = std * (got / trial.logged - 1.0)
        told = told[np.isfinite(told) & (np.abs(trial.logged) > SPREAD) & (std > 0)]
        epsilon = float(f"{np.median(told):.2g}") if len(told) else 0.0
        if epsilon > 0:
            yield Candidate(replace(bare, divisor=replace(bare.divisor, epsilon=epsilon)))


def _sample(narrow: Narrow) -> NDArray[np.int64]:
    """Rows of whole groups, from as few batches as hold enough of them."""
    codes, batches = narrow.table["group"].to_numpy(), narrow.table["batch"].to_numpy()
    if len(codes) <= SAMPLE:
        return np.arange(len(codes))
    groups = pl.DataFrame({"group": codes, "batch": batches}).group_by("group", maintain_order=True).agg(
        pl.col("batch").first(), size=pl.len()
    )  # fmt: skip
    # Every k-th group, so that a long file is seen from end to end; at least two of each batch that is seen.
    stride = max(int(groups["size"].sum()) // SAMPLE, 1)
    chosen = groups.gather_every(stride)["group"].to_numpy()
    wanted = np.zeros(int(codes.max()) + 1, dtype=bool)
    wanted[chosen] = True
    return np.flatnonzero(wanted[codes])


def _part(table: pl.DataFrame, rows: NDArray[np.int64]) -> pl.DataFrame:
    """Some rows, with codes that have no gaps."""
    part = table[pl.Series(rows)]
    return part.with_columns(pl.col(name).rank("dense").cast(table[name].dtype) - 1 for name in ("group", "batch"))


def computed(plan: Plan, table: pl.DataFrame) -> Floats:
    """The advantages that a plan gives; None where it drops the row."""
    frame = score(plan, table).frame
    return frame.select(pl.when(pl.col(".kept")).then(".advantage")).to_series().to_numpy().astype(np.float64)


def _measured(candidate: Candidate, got: Floats, logged: Floats, close: Close) -> Fit:
    """Rows that differ, and the error of the others: a few odd rows must not decide between two epsilons."""
    wrong, error = compared(got, logged, close)
    finite = error[np.isfinite(error)]
    if not len(finite):
        return Fit(candidate, int(wrong.sum()), np.inf, np.inf, len(logged))
    told = error[~wrong & np.isfinite(error)] if wrong.sum() <= FAR * len(wrong) else finite
    typical = float(np.sqrt(np.mean(told**2))) if len(told) else np.inf
    return Fit(candidate, int(wrong.sum()), typical, float(np.median(finite)), len(logged))


def compared(got: Floats, logged: Floats, close: Close) -> tuple[NDArray[np.bool_], Floats]:
    """Which rows differ, and by how much (NaN where both have no number)."""
    error = np.abs(got - logged)
    both = np.isnan(got) & np.isnan(logged)
    with np.errstate(invalid="ignore"):
        wrong = ~both & ~(error <= close.of(logged))
    return wrong, error


def _adjusted(got: Floats, logged: Floats, batches: NDArray[Any]) -> Floats:
    """The line through the logged values, batch by batch: slope and offset of least squares."""
    known = np.isfinite(got) & np.isfinite(logged)
    size = int(batches.max(initial=0)) + 1
    at, x, y = batches[known], got[known], logged[known]
    count = np.maximum(np.bincount(at, minlength=size), 1)
    mean_x, mean_y = (np.bincount(at, v, size) / count for v in (x, y))
    dx, dy = x - mean_x[at], y - mean_y[at]
    square = np.bincount(at, dx * dx, size)
    slope = np.where(square > 0, np.bincount(at, dx * dy, size) / np.where(square > 0, square, 1.0), 0.0)
    return np.where(known, mean_y[batches] + slope[batches] * (got - mean_x[batches]), got)


def _families(fits: Sequence[Fit], *, loose: bool) -> list[Fit]:
    """The best formulas, each once; where a batch may have any factor its epsilon is not told by the sample.

    Best by the rows that differ, and by the error of the middle row: a few odd groups must not decide.
    """
    told = [fit for fit in fits if not (loose and fit.candidate.plan.uses_batch)]
    found: dict[Any, Fit] = {}
    for key in (lambda fit: (fit.mismatched, _rounded(fit.typical)), lambda fit: _rounded(fit.median)):
        own: dict[Any, Fit] = {}
        for fit in sorted(told, key=key):
            own.setdefault((_rounded(fit.typical), fit.mismatched), fit)
        found |= {_family(fit.candidate.plan): fit for fit in list(own.values())[:REFINED]}
    return list(found.values())


def _rounded(error: float) -> float:
    """Formulas that are one in two spellings have one error."""
    return float(f"{error:.5g}")


def _family(plan: Plan) -> tuple[Any, ...]:
    """What stays of a formula without its constants and its rules for odd rows and groups."""
    post = tuple(op.name for op in plan.post)
    divisor = plan.divisor.level, plan.divisor.of
    return plan.estimator.build, str(plan.params), plan.baseline_level, plan.unit, plan.shape, divisor, post


def _confirmed(fits: list[Fit], every: Trial) -> list[Fit]:
    """The plans that the sample speaks for, on all rows; as many as fit into a few seconds."""
    likely = [fit for fit in fits if fit.mismatched <= 2 * fits[0].mismatched + FEW]
    budget = max(FEW, min(CONFIRMED // len(every.table), MANY))
    alone = _distinct([fit for fit in likely if not fit.candidate.plan.uses_batch], budget)
    batch = _distinct([fit for fit in likely if fit.candidate.plan.uses_batch], 2 * budget)
    found = every.fits(fit.candidate for fit in (*alone, *batch) or fits[:1])
    nearest = min(found, key=lambda fit: fit.rank).candidate
    if nearest.plan.uses_batch:
        found += every.fits(refined(nearest))
    return sorted(found, key=lambda fit: fit.rank)


def _distinct(fits: list[Fit], budget: int) -> list[Fit]:
    """The first so many that have to be computed, and those that come for nothing with them."""
    seen: dict[Any, None] = {}
    kept = []
    for fit in fits:
        essence = _essence(fit.candidate.plan, missing=True, lone=True)
        if essence in seen or len(seen) < budget:
            seen.setdefault(essence)
            kept.append(fit)
    return kept
