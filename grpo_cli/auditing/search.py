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
from grpo_cli.auditing.float32 import noisy_groups
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan_parts import Clip, Divisor
from grpo_cli.engine.score import Undivided, advantages
from grpo_cli.schemas.table import schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from grpo_cli.engine.plan import Plan
    from grpo_cli.engine.plan_parts import ShapeOp
    from grpo_cli.read.tables import Narrow

    Floats = NDArray[np.float64]

SAMPLE: Final = 4_096  # rows that every plan is tried on
CONFIRMED: Final = 2_000_000  # rows that may be computed to confirm the result of the sample, beyond the first few
FEWEST: Final = 6  # plans that are confirmed however many rows there are, and rows that may differ in the sample only
MOST: Final = 40  # plans that are confirmed
REFINED: Final = 8  # formulas whose epsilons are tried
FLOAT32_ERROR: Final = 2e-5  # of max(1, |A|): what float32 leaves
EXACT: Final = (
    1e-9,
    1e-6,
)  # of the largest |A|: what is off where a constant that was solved is right, in float64 and float32
TELLING: Final = 500.0  # of that error: a constant gets only so many digits that its neighbours miss by more
DECIMALS: Final = range(3, 7)  # a logger that rounds writes so many; two or fewer may be the number as it is
TIED: Final = 3.0  # times the error of the best: the data cannot tell them apart
ROUNDING: Final = 1e-12  # below this an error is rounding
FAR: Final = 0.5  # of the rows: a formula that misses more is not near
BETTER: Final = 0.5  # of the rows that differ: more is not worth a tolerance
LAST_BITS: Final = 0.5  # of the values: fewer with one of the last two bits were not rounded to so many
CLIPPED: Final = 6  # clipped formulas whose epsilons are tried
LARGE: Final = 1e-3  # smaller advantages say little of an epsilon
SAME: Final = 0.1  # of an epsilon: by so much may that of one spread differ from that of the others
DIFFERENT: Final = 2  # values, or rows at a bound, that are no coincidence
VALUES: Final = 4  # different ones that show of how many bits they are
SIXTEEN_BITS: Final = {11: 2.0**-11, 8: 2.0**-8}  # float16 and bfloat16: bits of a number, and how far off it may be


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far off an equal advantage may be: an absolute part, and one that grows with an advantage above `least`."""

    absolute: float = 0.0
    relative: float = FLOAT32_ERROR
    least: float = 1.0

    def of(self, logged: Floats) -> Floats:
        """The tolerance of each row."""
        return self.absolute + self.relative * np.maximum(self.least, np.abs(logged))

    def for_candidate(self, candidate: Candidate, logged: Floats) -> Tolerance:
        """The same; with a constant that was solved from values that were not rounded, only what their own type leaves.

        Such a constant is nearly right for any values.
        """
        return self.of_solved(logged) if candidate.solved else self

    def of_solved(self, logged: Floats) -> Tolerance:
        """See `for_candidate`."""
        if self != Tolerance():
            return self
        finite = logged[np.isfinite(logged)]
        is_float32 = bool((finite.astype(np.float32).astype(np.float64) == finite).all())
        return Tolerance(EXACT[is_float32] * float(np.abs(finite).max(initial=0.0)), 0.0)


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a plan gives the logged advantages."""

    candidate: Candidate
    mismatched: int  # rows that differ
    typical: float  # error of the others
    median: float  # error of all
    rows: int
    noisy: NDArray[np.bool_] | None = None  # the groups whose float32 noise, spread by whitening, explains every row

    @property
    def explains_all(self) -> bool:
        """Whether every row is as the formula says, but for float32 noise."""
        return not self.mismatched or self.noisy is not None

    @property
    def rank(self) -> tuple[int, float]:
        """Fewer rows that nothing explains first, then the smaller error."""
        return 0 if self.explains_all else self.mismatched, self.typical

    def is_tied_with(self, best: Fit) -> bool:
        """Whether the data cannot tell it from the best; formulas that are far off are never tied."""
        near = best.mismatched <= FAR * best.rows
        return near and self.mismatched == best.mismatched and self.typical <= TIED * best.typical + ROUNDING


@dataclass(frozen=True, slots=True)
class Trial:
    """Rows that plans are tried on; one that differs only in rules which these rows never need is not computed again.

    `rescaled` allows each batch a factor and an offset of its own. `computed` are the advantages so far, of few rows:
    they do not depend on what was logged. `odd_rows` says whether there are any, once that has been looked up.
    """

    table: pl.DataFrame
    logged: Floats
    rescaled: bool = False
    tolerance: Tolerance = Tolerance()
    computed: dict[Any, Floats] = field(default_factory=dict)
    undivided: dict[Any, Undivided] = field(default_factory=dict)
    odd_rows: dict[str, bool] = field(default_factory=dict)

    def fits(self, tried: Iterable[Candidate]) -> list[Fit]:
        """Compute each plan and measure it, in their order."""
        known: dict[Any, Fit] = {}
        measured = []
        for candidate in tried:
            formula = self.formula_key(candidate.plan), candidate.factor, candidate.solved
            if formula not in known:
                tolerance = self.tolerance.for_candidate(candidate, self.logged)
                known[formula] = _measure(candidate, self.values(candidate), self.logged, tolerance)
            measured.append(replace(known[formula], candidate=candidate))
        return measured

    def values(self, candidate: Candidate) -> Floats:
        """What the rows would have been given."""
        values = candidate.factor * self.advantages(candidate.plan)
        if self.rescaled and candidate.plan.uses_batch:
            return _rescale(values, self.logged, self.table["batch"].to_numpy())
        return values

    def advantages(self, plan: Plan) -> Floats:
        """The advantages of a plan, kept where the rows are few."""
        if len(self.table) > 2 * SAMPLE:
            return advantages(plan, self.table)
        formula = self.formula_key(plan)
        if formula not in self.computed:
            # Most plans differ from the one before in the divisor and what comes after it.
            key = self.formula_key(replace(plan, divisor=Divisor(level="none", ddof=plan.divisor.ddof), post=()))
            if key not in self.undivided:
                self.undivided.clear()
                self.undivided[key] = Undivided.of(plan, self.table)
            self.computed[formula] = self.undivided[key].advantages(plan)
        return self.computed[formula]

    def formula_key(self, plan: Plan) -> Any:
        """All of a plan that these rows can show: a key."""
        if not self.odd_rows:
            rewards = [self.table[name] for name in self.table.columns if name.startswith("reward.")]
            missing = any(bool((~reward.is_finite()).fill_null(value=True).any()) for reward in rewards)
            singleton = bool((np.bincount(self.table["group"].to_numpy()) == 1).any())
            self.odd_rows["missing"] = missing
            self.odd_rows["singletons"] = missing or "rollout" in self.table.columns or singleton
        return _formula_key(plan, **self.odd_rows)


def _formula_key(plan: Plan, *, missing: bool, singletons: bool) -> Any:
    """All of a plan that rows can show, with or without missing rewards and singletons: a key."""
    rules = (plan.rewards.missing, plan.rewards.component_missing) if missing else ()
    alone = (plan.alone, plan.groups) if singletons else (replace(plan.groups, small="null"),)
    formula = plan.estimator.build, str(plan.params), plan.baseline_level, plan.unit, plan.rewards.combine
    return *formula, plan.shape, plan.divisor, plan.post, rules, alone


def search(
    narrow: Narrow, logged: Floats, weights: Sequence[float], claim: Plan | None, shape: Sequence[ShapeOp] = ()
) -> tuple[list[Fit], Tolerance, int]:
    """The fits, best first; the tolerance under which they are; and the rows of the sample.

    Where nothing fits, the logger may have rounded: then values are equal that it would have written as one. Presets
    of the tool that wrote the file, as far as that is known, are tried with every scale and come first.
    """
    schema = next((name for name, schema in schemas().items() if schema.title == narrow.schema), "")
    tool = schema.removeprefix("ms-").split("-")[0]
    rows = _sample(narrow)
    all_rows = Trial(narrow.table, logged)
    trial = all_rows if len(rows) == len(logged) else Trial(_part(narrow.table, rows), logged[rows], rescaled=True)
    tried = candidates({*narrow.roles, "input_length", "turns"}, weights, len(narrow.reward_names), claim, shape, tool)
    best, within = _search_within(trial, all_rows, tried, tool), Tolerance()
    for tolerance in _rounding_tolerances(logged) if best[0].mismatched else ():
        nearer = _search_within(
            replace(trial, tolerance=tolerance), replace(all_rows, tolerance=tolerance), tried, tool
        )
        if nearer[0].mismatched < BETTER * best[0].mismatched:
            best, within = nearer, tolerance
    if best[0].mismatched:
        trials = [replace(one, tolerance=within) for one in ((trial, all_rows) if trial.rescaled else (all_rows,))]
        best = [*_noisy_fit(tried, trials), *best]
    return best, within, len(rows)


def _noisy_fit(tried: Sequence[Candidate], trials: Sequence[Trial]) -> list[Fit]:
    """The first preset that gives every row once the float32 noise of constant groups is added; nothing where none does.

    The last of the trials has all rows; one before it has a sample.
    """
    for candidate in (one for one in tried if one.presets and one.plan.post):
        for trial in trials:
            allowed = trial.tolerance.of(trial.logged)
            noisy = noisy_groups(candidate.plan, trial.table, trial.logged, allowed, sampled=trial.rescaled)
            if noisy is None:
                break
        else:
            return [replace(trial.fits([candidate])[0], noisy=noisy)]
    return []


def _rounding_tolerances(logged: Floats) -> list[Tolerance]:
    """The tolerances of loggers that round or have 16 bits, as far as the values themselves show that they did.

    Numbers of one or two decimals, or of few bits, may be what was computed.
    """
    values = np.unique(np.abs(logged[np.isfinite(logged) & (logged != 0)]))
    if not len(values):
        return []
    tolerances = []
    decimals = next((d for d in range(DECIMALS[-1] + 1) if np.array_equal(np.round(values, d), values)), 0)
    if decimals in DECIMALS:
        tolerances.append(Tolerance(0.5 * 10.0**-decimals + 1e-9, 0.0))
    # The bits that each needs; of numbers that were rounded to so many, half have the last one.
    mantissas = (np.frexp(values)[0] * (1 << 53)).astype(np.int64)
    bits = 53 - np.log2((mantissas & -mantissas).astype(np.float64)).astype(np.int64)
    for size, error in SIXTEEN_BITS.items():
        if bits.max() == size and len(values) >= VALUES and np.mean(bits >= size - 1) > LAST_BITS:
            tolerances.append(Tolerance(FLOAT32_ERROR, error, 0.0))
    return tolerances


def _search_within(trial: Trial, all_rows: Trial, tried: Sequence[Candidate], tool: str) -> list[Fit]:
    fits = trial.fits(tried)
    best = _best_families(fits, rescaled=trial.rescaled)
    for fit in best:
        fits += trial.fits([*refined(fit.candidate), *_with_solved_epsilon(fit.candidate, trial)])
    if _none_matches(fits, trial):
        families = {_family_key(fit.candidate.plan): fit.candidate for fit in reversed(fits)}
        fits += trial.fits(one for family in families.values() for one in _with_solved_epsilon(family, trial))
    if _none_matches(fits, trial):
        fits += _clipped(best, trial)
    # Where the spread of a batch is near a round number, its formula is nearly one without it, multiplied.
    if _none_matches((fit for fit in fits if not fit.candidate.plan.uses_batch), trial):
        fits += _multiplied(fits, trial)
    fits.sort(key=lambda fit: fit.rank)
    if trial.rescaled:
        fits = _confirm(fits, all_rows)
    ties = [fit for fit in fits if fit.is_tied_with(fits[0])]
    others = [fit for fit in fits if not fit.is_tied_with(fits[0])]
    methods = list(ESTIMATORS)

    def plainness(fit: Fit) -> tuple[Any, ...]:
        """Of those that the data cannot tell apart: no factor, a preset of the tool, a preset, the plainest method."""
        plan, names, factor = fit.candidate.plan, fit.candidate.presets, fit.candidate.factor
        from_tool = bool(tool) and any(name.split("-")[0] == tool for name in names)
        digits = 0 if factor == 1 else len(f"{factor:g}")
        return digits, not from_tool, not names, methods.index(plan.method), 0 if names else len(plan.post)

    ties.sort(key=plainness)
    return [*ties, *others]


def _none_matches(fits: Iterable[Fit], trial: Trial) -> bool:
    """Whether no formula gives all rows; one of a batch that may have any factor is none."""
    return all(fit.mismatched or (trial.rescaled and fit.candidate.plan.uses_batch) for fit in fits)


def _with_solved_epsilon(candidate: Candidate, trial: Trial) -> Iterator[Candidate]:
    """The formula with the epsilon that the rows give: A (std + epsilon) is the residual.

    Groups with other spreads must give the same one. Where there is one spread only, that of a batch, any factor could
    be called an epsilon: it has so few digits that another one would be far off.
    """
    plan = candidate.plan
    if plan.divisor.level not in {"group", "batch"} or plan.post or (plan.uses_batch and trial.rescaled):
        return
    residual = trial.advantages(replace(plan, divisor=Divisor(level="none")))
    for ddof in DDOFS:
        bare = replace(plan, divisor=replace(plan.divisor, ddof=ddof, epsilon=0.0))
        with np.errstate(all="ignore"):
            spread = residual / trial.advantages(bare)
            epsilons = residual / trial.logged - spread
        known = np.isfinite(epsilons) & (np.abs(trial.logged) > LARGE)
        epsilons, spread = epsilons[known], spread[known]
        if not len(epsilons):
            continue
        epsilon = float(np.median(epsilons))
        kinds, kind = np.unique([_rounded(one) for one in spread.tolist()], return_inverse=True)
        most = kind == np.bincount(kind).argmax()
        if len(kinds) == 1:
            values = trial.logged[known]
            share = trial.tolerance.of_solved(values).of(values).max() / np.abs(values).max()
            off = TELLING * share * (float(spread[0]) + epsilon)
            digits = _telling_digits(epsilon, off) if plan.divisor.level == "batch" and epsilon > 0 else 0
        else:
            allowed = SAME * abs(epsilon) + np.median(trial.tolerance.of(trial.logged[known]) * spread)
            digits = 2 if abs(np.median(epsilons[most]) - np.median(epsilons[~most])) <= allowed else 0
        if epsilon > 0 and digits:
            divisor = replace(bare.divisor, epsilon=float(f"{epsilon:.{digits}g}"))
            yield Candidate(replace(bare, divisor=divisor), solved=True)


def _telling_digits(value: float, least: float) -> int:
    """As many digits of a number as leave its neighbours `least` away, two at the most; 0 where one digit does not."""
    magnitude = np.floor(np.log10(value))
    return next((digits for digits in (2, 1) if 10.0 ** (magnitude - digits + 1) >= least), 0)


def _multiplied(fits: Sequence[Fit], trial: Trial) -> list[Fit]:
    """Formulas that give every row when they are multiplied by a number of at most three digits, which the rows tell.

    Groups with other values must tell the same number, so rows of one value and its opposite tell nothing.
    """
    exact_fits = list[Fit]()
    tried = set()
    for fit in fits:
        formula = trial.formula_key(fit.candidate.plan)
        if formula in tried or (trial.rescaled and fit.candidate.plan.uses_batch):
            continue
        tried.add(formula)
        values = trial.advantages(fit.candidate.plan)
        known = np.isfinite(values) & np.isfinite(trial.logged) & (np.abs(values) > LARGE)
        sizes = np.abs(values[known]).tolist()
        if all(_rounded(one) == _rounded(sizes[0]) for one in sizes):  # mostly the second differs
            continue
        digits = 2 if fit.candidate.plan.uses_batch else 3  # one and the same with each of many spreads of the batch
        factor = float(f"{np.median(trial.logged[known] / values[known]):.{digits}g}")
        if factor in {0.0, 1.0}:
            continue
        one = trial.fits([Candidate(fit.candidate.plan, factor=factor, solved=True)])[0]
        if not one.mismatched:
            exact_fits.append(one)
    return exact_fits


def _clipped(best: Sequence[Fit], trial: Trial) -> list[Fit]:
    """The best formulas, clipped where the logged values stop at both ends."""
    finite = trial.logged[np.isfinite(trial.logged)]
    ends = (float(finite.min(initial=0.0)), float(finite.max(initial=0.0)))
    if not ends[0] < 0 < ends[1] or any(np.sum(finite == end) < DIFFERENT for end in ends):
        return []
    clip = Clip(lo=float(f"{ends[0]:.6g}"), hi=float(f"{ends[1]:.6g}"))
    clipped = [Candidate(replace(fit.candidate.plan, post=(*fit.candidate.plan.post, clip))) for fit in best]
    fits = trial.fits(clipped)
    for fit in sorted(fits, key=lambda fit: fit.rank)[:CLIPPED]:
        fits += trial.fits(refined(fit.candidate))
    return fits


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
    for key in (lambda fit: (fit.mismatched, _rounded(fit.typical)), lambda fit: _rounded(fit.median)):
        distinct: dict[Any, Fit] = {}
        for fit in sorted(fits, key=key):
            distinct.setdefault((_rounded(fit.typical), fit.mismatched), fit)
        families |= {_family_key(fit.candidate.plan): fit for fit in list(distinct.values())[:REFINED]}
    return list(families.values())


def _rounded(error: float) -> float:
    """The error without the digits by which two spellings of one formula differ."""
    return float(f"{error:.5g}")


def _family_key(plan: Plan) -> tuple[Any, ...]:
    """What stays of a formula without its constants and its rules for odd rows and groups."""
    post = tuple(op.name for op in plan.post)
    divisor = plan.divisor.level, plan.divisor.of
    return plan.estimator.build, str(plan.params), plan.baseline_level, plan.unit, plan.shape, divisor, post


def _confirm(fits: list[Fit], all_rows: Trial) -> list[Fit]:
    """The plans that fit the sample, on all rows; as many as fit into a few seconds.

    Where not even half of the sample is explained, one is enough to count how many rows differ.
    """
    if fits[0].mismatched > FAR * fits[0].rows:
        return all_rows.fits([fits[0].candidate])
    likely = [fit for fit in fits if fit.mismatched <= 2 * fits[0].mismatched + FEWEST]
    budget = max(FEWEST, min(CONFIRMED // len(all_rows.table), MOST))
    group = _first_formulas([fit for fit in likely if not fit.candidate.plan.uses_batch], budget)
    batch = _first_formulas([fit for fit in likely if fit.candidate.plan.uses_batch], 2 * budget)
    confirmed = all_rows.fits(fit.candidate for fit in (*group, *batch) or fits[:1])
    nearest = min(confirmed, key=lambda fit: fit.rank).candidate
    if nearest.plan.uses_batch:
        confirmed += all_rows.fits([*refined(nearest), *_with_solved_epsilon(nearest, all_rows)])
    return sorted(confirmed, key=lambda fit: fit.rank)


def _first_formulas(fits: list[Fit], number: int) -> list[Fit]:
    """The fits of the first so many formulas: plans of one formula are computed once."""
    formulas: set[Any] = set()
    first = []
    for fit in fits:
        formula = _formula_key(fit.candidate.plan, missing=True, singletons=True)
        if formula in formulas or len(formulas) < number:
            formulas.add(formula)
            first.append(fit)
    return first
