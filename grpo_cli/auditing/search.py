"""The search for the plan that gives logged advantages: all plans on a sample, the likely ones on all rows.

A plan whose batch is larger than the sample is compared up to a factor and an offset of each batch first: that is
all that the other rows of the batch can change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import DDOFS, Candidate, candidates, refined
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.score import score

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from grpo_cli.engine.plan import Plan
    from grpo_cli.engine.score import Scored
    from grpo_cli.read.tables import Narrow

    Floats = NDArray[np.float64]

SAMPLE: Final = 4_096  # rows that every plan is tried on
CONFIRMED: Final = 2_000_000  # rows that may be computed to confirm the result of the sample, beyond the first few
FEWEST: Final = 6  # plans that are confirmed however many rows there are, and rows that may differ in the sample only
MOST: Final = 40  # plans that are confirmed
REFINED: Final = 8  # formulas whose epsilons are tried
FLOAT32_ERROR: Final = 2e-5  # of max(1, |A|): what float32 leaves
DECIMALS: Final = range(3, 7)  # a logger that rounds writes so many; two or fewer may be the number as it is
TIED: Final = 3.0  # times the error of the best: the data cannot tell them apart
ROUNDING: Final = 1e-12  # below this an error is rounding
FAR: Final = 0.5  # of the rows: a formula that misses more is not near
LARGE: Final = 1e-3  # smaller advantages say little of an epsilon


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far off an equal advantage may be: an absolute part, and one that grows with the advantage."""

    absolute: float = 0.0
    relative: float = FLOAT32_ERROR

    def of(self, logged: Floats) -> Floats:
        """The tolerance of each row."""
        return self.absolute + self.relative * np.maximum(1.0, np.abs(logged))


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a plan gives the logged advantages."""

    candidate: Candidate
    mismatched: int  # rows that differ
    typical: float  # error of the others
    median: float  # error of all
    rows: int

    @property
    def rank(self) -> tuple[int, float]:
        """Fewer rows that differ first, then the smaller error."""
        return self.mismatched, self.typical

    def is_tied_with(self, best: Fit) -> bool:
        """Whether the data cannot tell it from the best; formulas that are far off are never tied."""
        near = best.mismatched <= FAR * best.rows
        return near and self.mismatched == best.mismatched and self.typical <= TIED * best.typical + ROUNDING


@dataclass(frozen=True, slots=True)
class Trial:
    """Rows that plans are tried on; one that differs only in rules which these rows never need is not tried again.

    `rescaled` allows each batch a factor and an offset of its own.
    """

    table: pl.DataFrame
    logged: Floats
    rescaled: bool = False
    tolerance: Tolerance = Tolerance()
    known: dict[Any, Fit] = field(default_factory=dict)

    def fits(self, tried: Iterable[Candidate]) -> list[Fit]:
        """Compute each plan and measure it, in their order."""
        rewards = [self.table[name] for name in self.table.columns if name.startswith("reward.")]
        missing = any(bool((~reward.is_finite()).fill_null(value=True).any()) for reward in rewards)
        sizes = np.bincount(self.table["group"].to_numpy())
        singletons = missing or "rollout" in self.table.columns or bool((sizes == 1).any())
        return [self._fit(one, _formula(one.plan, missing=missing, singletons=singletons)) for one in tried]

    def _fit(self, candidate: Candidate, formula: Any) -> Fit:
        if formula not in self.known:
            computed = advantages(candidate.plan, self.table)
            if self.rescaled and candidate.plan.uses_batch:
                computed = _rescale(computed, self.logged, self.table["batch"].to_numpy())
            self.known[formula] = _measure(candidate, computed, self.logged, self.tolerance)
        return replace(self.known[formula], candidate=candidate)


def _formula(plan: Plan, *, missing: bool, singletons: bool) -> Any:
    """All of a plan that rows can show, with or without missing rewards and singletons: a key."""
    rules = (plan.rewards.missing, plan.rewards.component_missing) if missing else ()
    alone = (plan.alone, plan.groups) if singletons else (replace(plan.groups, small="null"),)
    formula = plan.estimator.build, str(plan.params), plan.baseline_level, plan.unit, plan.rewards.combine
    return *formula, plan.shape, plan.divisor, plan.post, rules, alone


def search(
    narrow: Narrow, logged: Floats, weights: Sequence[float], claim: Plan | None
) -> tuple[list[Fit], Tolerance, int]:
    """The fits, best first; the tolerance under which they are; and the rows of the sample.

    Where nothing fits, the logger may have rounded: then values are equal that it would have written as one.
    """
    exact = _search_within(Tolerance(), narrow, logged, weights, claim)
    mismatched = exact[0][0].mismatched
    finite = logged[np.isfinite(logged)]
    decimals = next((d for d in DECIMALS if np.array_equal(np.round(finite, d), finite)), None)
    if not mismatched or decimals is None:
        return exact
    rounded = _search_within(Tolerance(0.5 * 10.0**-decimals + 1e-9, 0.0), narrow, logged, weights, claim)
    return rounded if rounded[0][0].mismatched < FAR * mismatched else exact


def _search_within(
    tolerance: Tolerance, narrow: Narrow, all_logged: Floats, weights: Sequence[float], claim: Plan | None
) -> tuple[list[Fit], Tolerance, int]:
    rows = _sample(narrow)
    whole = len(rows) == len(narrow.table)
    trial = all_rows = Trial(narrow.table, all_logged, tolerance=tolerance)
    if not whole:
        trial = Trial(_part(narrow.table, rows), all_logged[rows], rescaled=True, tolerance=tolerance)
    roles = {*narrow.roles, "input_length", "turns"}
    fits = trial.fits(candidates(roles, weights, len(narrow.reward_names), claim))
    for fit in _best_families(fits, rescaled=not whole):
        fits += trial.fits([*refined(fit.candidate), *_with_solved_epsilon(fit.candidate, trial)])
    fits.sort(key=lambda fit: fit.rank)
    if not whole:
        fits = _confirm(fits, all_rows)
    ties = [fit for fit in fits if fit.is_tied_with(fits[0])]
    others = [fit for fit in fits if not fit.is_tied_with(fits[0])]
    # Of those that the data cannot tell apart a preset comes first, then the plainest method.
    methods = list(ESTIMATORS)
    ties.sort(key=lambda fit: (not fit.candidate.presets, methods.index(fit.candidate.plan.method)))
    return [*ties, *others], tolerance, len(rows)


def _with_solved_epsilon(candidate: Candidate, trial: Trial) -> Iterator[Candidate]:
    """The formula with the epsilon that the rows give, where a group's std divides: A (std + epsilon) is the residual."""
    plan = candidate.plan
    if plan.divisor.level != "group" or plan.post:
        return
    for ddof in DDOFS:
        bare = replace(plan, divisor=replace(plan.divisor, ddof=ddof, epsilon=0.0))
        frame = score(bare, trial.table).frame
        undivided, std = (frame[name].to_numpy().astype(np.float64) for name in (".advantage", ".std"))
        with np.errstate(all="ignore"):
            epsilons = std * (undivided / trial.logged - 1.0)
        epsilons = epsilons[np.isfinite(epsilons) & (np.abs(trial.logged) > LARGE) & (std > 0)]
        epsilon = float(f"{np.median(epsilons):.2g}") if len(epsilons) else 0.0
        if epsilon > 0:
            yield Candidate(replace(bare, divisor=replace(bare.divisor, epsilon=epsilon)))


def _sample(narrow: Narrow) -> NDArray[np.int64]:
    """Rows of whole groups; all rows where they are not many."""
    codes = narrow.table["group"].to_numpy()
    if len(codes) <= SAMPLE:
        return np.arange(len(codes))
    # Every k-th group, so that a long file is sampled from end to end.
    stride = max(len(codes) // SAMPLE, 1)
    chosen = narrow.table["group"].unique(maintain_order=True).gather_every(stride)
    wanted = np.zeros(int(codes.max()) + 1, dtype=bool)
    wanted[chosen.to_numpy()] = True
    return np.flatnonzero(wanted[codes])


def _part(table: pl.DataFrame, rows: NDArray[np.int64]) -> pl.DataFrame:
    """Some rows, with codes that have no gaps."""
    part = table[pl.Series(rows)]
    return part.with_columns(pl.col(name).rank("dense").cast(table[name].dtype) - 1 for name in ("group", "batch"))


def advantages(plan: Plan, table: pl.DataFrame) -> Floats:
    """The advantages that a plan gives to these rows, see `kept_advantages`."""
    return kept_advantages(score(plan, table))


def kept_advantages(scored: Scored) -> Floats:
    """One advantage a row; NaN where there is none, or the plan drops the row."""
    kept = scored.frame.select(pl.when(pl.col(".kept")).then(".advantage")).to_series()
    return kept.to_numpy().astype(np.float64)


def _measure(candidate: Candidate, computed: Floats, logged: Floats, tolerance: Tolerance) -> Fit:
    """Rows that differ, and the error of the others: a few odd rows must not decide between two epsilons."""
    wrong, error = differences(computed, logged, tolerance)
    finite = error[np.isfinite(error)]
    if not len(finite):
        return Fit(candidate, int(wrong.sum()), np.inf, np.inf, len(logged))
    others = error[~wrong & np.isfinite(error)] if wrong.sum() <= FAR * len(wrong) else finite
    typical = float(np.sqrt(np.mean(others**2))) if len(others) else np.inf
    return Fit(candidate, int(wrong.sum()), typical, float(np.median(finite)), len(logged))


def differences(computed: Floats, logged: Floats, tolerance: Tolerance) -> tuple[NDArray[np.bool_], Floats]:
    """Which rows differ, and by how much (NaN where both have no number)."""
    error = np.abs(computed - logged)
    both = np.isnan(computed) & np.isnan(logged)
    with np.errstate(invalid="ignore"):
        wrong = ~both & ~(error <= tolerance.of(logged))
    return wrong, error


def _rescale(computed: Floats, logged: Floats, batches: NDArray[Any]) -> Floats:
    """The line through the logged values, batch by batch: slope and offset of least squares."""
    known = np.isfinite(computed) & np.isfinite(logged)
    size = int(batches.max(initial=0)) + 1
    at, x, y = batches[known], computed[known], logged[known]
    count = np.maximum(np.bincount(at, minlength=size), 1)
    mean_x, mean_y = (np.bincount(at, v, size) / count for v in (x, y))
    dx, dy = x - mean_x[at], y - mean_y[at]
    square = np.bincount(at, dx * dx, size)
    slope = np.where(square > 0, np.bincount(at, dx * dy, size) / np.where(square > 0, square, 1.0), 0.0)
    return np.where(known, mean_y[batches] + slope[batches] * (computed - mean_x[batches]), computed)


def _best_families(fits: Sequence[Fit], *, rescaled: bool) -> list[Fit]:
    """The best formulas, each once; not those of a batch that may have any factor: the sample cannot show their epsilon.

    Best by the rows that differ, and by the error of the middle row: a few odd groups must not decide.
    """
    fits = [fit for fit in fits if not (rescaled and fit.candidate.plan.uses_batch)]
    families: dict[Any, Fit] = {}
    for key in (lambda fit: (fit.mismatched, _digits(fit.typical)), lambda fit: _digits(fit.median)):
        distinct: dict[Any, Fit] = {}
        for fit in sorted(fits, key=key):
            distinct.setdefault((_digits(fit.typical), fit.mismatched), fit)
        families |= {_family(fit.candidate.plan): fit for fit in list(distinct.values())[:REFINED]}
    return list(families.values())


def _digits(error: float) -> float:
    """The error without the digits by which two spellings of one formula differ."""
    return float(f"{error:.5g}")


def _family(plan: Plan) -> tuple[Any, ...]:
    """What stays of a formula without its constants and its rules for odd rows and groups."""
    post = tuple(op.name for op in plan.post)
    divisor = plan.divisor.level, plan.divisor.of
    return plan.estimator.build, str(plan.params), plan.baseline_level, plan.unit, plan.shape, divisor, post


def _confirm(fits: list[Fit], all_rows: Trial) -> list[Fit]:
    """The plans that fit the sample, on all rows; as many as fit into a few seconds."""
    likely = [fit for fit in fits if fit.mismatched <= 2 * fits[0].mismatched + FEWEST]
    budget = max(FEWEST, min(CONFIRMED // len(all_rows.table), MOST))
    group = _first_formulas([fit for fit in likely if not fit.candidate.plan.uses_batch], budget)
    batch = _first_formulas([fit for fit in likely if fit.candidate.plan.uses_batch], 2 * budget)
    confirmed = all_rows.fits(fit.candidate for fit in (*group, *batch) or fits[:1])
    nearest = min(confirmed, key=lambda fit: fit.rank).candidate
    if nearest.plan.uses_batch:
        confirmed += all_rows.fits(refined(nearest))
    return sorted(confirmed, key=lambda fit: fit.rank)


def _first_formulas(fits: list[Fit], number: int) -> list[Fit]:
    """The fits of the first so many formulas: plans of one formula are computed once."""
    formulas: set[Any] = set()
    first = []
    for fit in fits:
        formula = _formula(fit.candidate.plan, missing=True, singletons=True)
        if formula in formulas or len(formulas) < number:
            formulas.add(formula)
            first.append(fit)
    return first
