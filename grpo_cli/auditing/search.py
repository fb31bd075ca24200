"""Find the plans that explain logged advantages: solve them on a sample, then measure the likely ones on all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from grpo_cli.auditing.candidates import Candidate, Said, candidates, is_of_tool, plain_method
from grpo_cli.auditing.float32 import noisy_groups
from grpo_cli.auditing.formulas import Formulas, Known, formula_key
from grpo_cli.auditing.solve import (
    Intervals,
    Start,
    clipped,
    starts_of,
    with_known_constants,
    with_solved_constants,
)
from grpo_cli.auditing.trial import FAR, FLOAT32_ERROR, SAMPLE, Fit, Tolerance, Trial
from grpo_cli.auditing.weights import of_groups, of_rewards
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.read.narrow import Narrow
from grpo_cli.schemas.table import schemas

CONFIRMED: Final = 2_000_000  # rows that are computed to confirm plans, all plans together
FEWEST: Final = 6  # plans that are confirmed at least
SLACK: Final = 6  # further rows that may differ in the sample
SAME: Final = 9  # decimals in which the values of two starts agree if they are the same
MOST: Final = 40  # plans that are confirmed at most
DECIMALS: Final = range(2, 7)  # decimals of rounded values; a number with one or none may be exact
EXACT: Final = 3  # rewards with more decimals may have been rounded
BETTER: Final = 0.5  # a coarser reading has to reduce the rows that differ to this share
TWENTIETHS: Final = 0.5  # values of two decimals may be exact if a larger share are twentieths
# Three of four rounded values need one of the last two bits, fewer if they are multiples of each other; eighths need none.
LAST_BITS: Final = 0.25
VALUES: Final = 4  # distinct values that are needed to recognise rounding
BITS: Final = (8, 11)  # of the mantissas of bfloat16 and float16


def search(narrow: Narrow, logged: Vector, said: Said, known: Known) -> tuple[list[Fit], Tolerance, int]:
    """The fits, best first; their tolerance; and the number of rows of the sample.

    The values are read as exactly as their type allows. Only if no formula fits so, they may have been rounded, or
    several rewards may have weights. Presets of the tool that wrote the file, if it is known, are tried with every scale.
    """
    schema = next((name for name, schema in schemas().at_hand.items() if schema.title == narrow.schema), "")
    tool = schema.removeprefix("ms-").split("-")[0]  # as the names of its presets begin: nemo-rl-grpo, swift-grpo
    components, roles = len(narrow.reward_names), {*narrow.roles, "input_length", "turns"}
    tried = candidates(said, roles, components, tool)
    log = Search.of(narrow, logged, known)
    exact = Tolerance.of_type(logged)
    best, reading = log.fits(tried, exact, tool), exact

    def read_again(tried: Sequence[Candidate], tolerance: Tolerance) -> None:
        nonlocal best, reading
        if best[0].mismatched:
            fits = log.fits(tried, tolerance, tool)
            if fits[0].mismatched < BETTER * best[0].mismatched:
                best, reading = fits, tolerance

    coarser = [*_readings_of_rewards(narrow), *_rounded_readings(logged)] if best[0].mismatched else []
    for tolerance in coarser:
        read_again(tried, tolerance)
    enough = log.part.has_evidence_for(Candidate(Plan.of({}), constants=components))
    if best[0].mismatched and components > 1 and not said.weights and enough:
        for weights in of_rewards(log.part, components):
            tried_again = candidates(replace(said, weights=weights), roles, components, tool)
            with_weights = [replace(one, constants=components) for one in tried_again if not one.claimed]
            for tolerance in (exact, *coarser):
                read_again(with_weights, tolerance)
    if best[0].mismatched:
        best = [*_noisy_fit(tried, [replace(trial, tolerance=reading) for trial in log.trials]), *best]
    return best, reading, len(log.rows)


@dataclass(frozen=True)
class Search:
    """All rows of a log, and a sample of them on which formulas are solved: whole groups, or all rows of a small log."""

    whole: Trial
    part: Trial
    rows: Index

    @classmethod
    def of(cls, narrow: Narrow, logged: Vector, known: Known) -> Search:
        """The log as it is."""
        rows = _sample(narrow)
        whole = Trial(Formulas(narrow.table, known), logged)
        if len(rows) == len(logged):
            return cls(whole, whole, rows)
        return cls(whole, Trial(Formulas(narrow.at(rows).table, known), logged[rows], rescaled=True), rows)

    @property
    def trials(self) -> list[Trial]:
        """The sample, and all rows."""
        return [self.whole] if self.part is self.whole else [self.part, self.whole]

    def fits(self, tried: Sequence[Candidate], tolerance: Tolerance, tool: str) -> list[Fit]:
        """The fits on all rows, the best first, with the values read as this tolerance says."""
        part, whole = (replace(trial, tolerance=tolerance) for trial in (self.part, self.whole))
        starts = starts_of(tried, part, np.arange(len(self.rows)))
        found = _known(starts, part, part.logged)
        # The std of a batch may be nearly a round number: then a factor gives nearly the same values.
        by_groups = [fit for fit in found if not fit.candidate.plan.uses_batch]
        if _none_matches(by_groups, part):
            is_open = _none_matches(found, part)
            for start in starts:
                solved = [*with_solved_constants(start, part.logged)]
                solved += [*of_groups(start), *clipped(start, part.logged)] if is_open else []
                fits = start.fits(part.logged, solved)
                found += [fit for fit in fits if not fit.mismatched and part.has_evidence_for(fit.candidate)]
        fits = found if self.part is self.whole else self._confirmed(found, part, whole)
        fits.sort(key=lambda fit: fit.rank)
        ties = [fit for fit in fits if fit.is_tied_with(fits[0])]
        others = [fit for fit in fits if not fit.is_tied_with(fits[0])]
        return [*sorted(ties, key=partial(_plainness, tool=tool)), *others]

    def _confirmed(self, found: list[Fit], part: Trial, whole: Trial) -> list[Fit]:
        """The likely formulas measured on all rows: as many as can be computed in a few seconds.

        If less than half of the sample is explained, one is enough to count the rows that differ.
        """
        found = sorted(found, key=lambda fit: fit.rank)
        budget = max(FEWEST, min(CONFIRMED // len(whole.logged), MOST))
        if part.rescaled:
            of_batch = [fit.candidate for fit in _likely(found) if fit.candidate.plan.uses_batch]
            rest = [fit for fit in found if not fit.candidate.plan.uses_batch]
            starts = starts_of(of_batch, whole, self.rows)[: max(budget // 4, 2)]
            found = sorted([*rest, *_known(starts, whole, part.logged)], key=lambda fit: fit.rank) or found
        if found[0].mismatched > FAR * found[0].rows:
            return whole.fits([found[0].candidate])
        return whole.fits(fit.candidate for fit in _first_formulas(_likely(found), budget))


def _likely(found: list[Fit]) -> list[Fit]:
    return [fit for fit in found if fit.mismatched <= 2 * found[0].mismatched + SLACK]


def _known(starts: Sequence[Start], trial: Trial, logged: Vector) -> list[Fit]:
    """The candidates of these starts, and their divisors with usual constants."""
    trial.formulas.compute(start.plan for start in starts)
    log = Intervals.of(logged, trial.tolerance)
    found, seen = list[Fit](), set[tuple[bytes, bool]]()
    for start in starts:
        # The divisors of equal values are tried once.
        values = (np.round(start.values, SAME) + 0.0).tobytes(), start.plain is None
        known = with_known_constants(start, log) if values not in seen else ()
        found += start.fits(logged, [*start.members, *known])
        seen.add(values)
    return found


def _none_matches(fits: Iterable[Fit], trial: Trial) -> bool:
    """Whether no formula explains all rows; on a sample, one that needs the batch does not count, since any factor is allowed."""
    return all(fit.mismatched or (trial.rescaled and fit.candidate.plan.uses_batch) for fit in fits)


def _noisy_fit(tried: Sequence[Candidate], trials: Sequence[Trial]) -> list[Fit]:
    """The first preset that explains every row once float32 noise of constant groups is added; nothing if there is none."""
    for candidate in (candidate for candidate in tried if candidate.presets and candidate.plan.post):
        for trial in trials:
            allowed = trial.tolerance.of(trial.logged)
            noisy = noisy_groups(candidate.plan, trial.table, trial.logged, allowed, sampled=trial.rescaled)
            if noisy is None:
                break
        else:
            return [replace(trial.fits([candidate])[0], noisy=noisy)]
    return []


def _readings_of_rewards(narrow: Narrow) -> list[Tolerance]:
    """The tolerance of float32 if rewards were rounded to it or to decimals, after advantages were computed from them."""
    rewards = np.concatenate([narrow.table[f"reward.{k}"].to_numpy() for k in range(len(narrow.reward_names))])
    rewards = rewards[np.isfinite(rewards)]
    fine = rewards[np.round(rewards, EXACT) != rewards]
    return [Tolerance()] if len(fine) and Tolerance.of_type(fine) == Tolerance() else []


def _rounded_readings(logged: Vector) -> list[Tolerance]:
    """Tolerances for loggers that round or write 16 bits, if the values show it.

    Numbers with one decimal or few bits may be exact, and so may twentieths, which have two decimals.
    """
    values = np.unique(np.abs(logged[np.isfinite(logged) & (logged != 0)]))
    if not len(values):
        return []
    tolerances = []
    single = values.astype(np.float32)
    stored = single if np.array_equal(single, values) else values  # a rounded number in the type of the file
    decimals = next(
        (d for d in range(DECIMALS[-1] + 1) if (np.round(values, d).astype(stored.dtype) == stored).all()), 0
    )
    twentieths = np.mean(np.abs(values * 20 - np.round(values * 20)) < FLOAT32_ERROR)
    if decimals in DECIMALS and (decimals > DECIMALS[0] or (len(values) >= VALUES and twentieths < TWENTIETHS)):
        tolerances.append(Tolerance(0.5 * 10.0**-decimals + (3e-7 if stored is single else 1e-9), 0.0))
    # The bits that each value needs: half of all rounded values need the last one.
    mantissas = (np.frexp(values)[0] * (1 << 53)).astype(np.int64)
    bits = 53 - np.log2((mantissas & -mantissas).astype(np.float64)).astype(np.int64)
    is_full = len(values) >= VALUES
    return tolerances + [
        Tolerance(1e-7, 1e-6, 0.0, size)
        for size in BITS
        if is_full and bits.max() == size and np.mean(bits >= size - 1) > LAST_BITS
    ]


def _plainness(fit: Fit, tool: str) -> tuple[Any, ...]:
    """Sort formulas that the rows cannot tell apart.

    First comes the claimed one, then one without a factor, the user's own preset, a preset of the tool that wrote the file, a method with
    its default options, a formula without steps before and after the divisor, and a preset, the one with the fewest steps first.
    """
    plan, names, factor = fit.candidate.plan, fit.candidate.presets, fit.candidate.factor
    methods, plain = list(ESTIMATORS), plain_method(plan)
    steps = len(plan.shape) + len(plan.post) + (plan.rewards.combine != "sum") + (plan.weight.by != "none")
    return (
        not fit.candidate.claimed,
        plan.divisor.level == "constant",
        0 if factor == 1 else len(f"{factor:g}"),
        not any(map(presets().origin, names)),
        not any(is_of_tool(name, tool) for name in names),
        methods.index(plain) if plain else len(methods),
        steps > 0,
        not names,
        steps,
        methods.index(plan.method),
        plan.divisor.of != "reward",
    )


def _sample(narrow: Narrow) -> Index:
    """The rows of whole groups; all rows of a small table."""
    codes = narrow.table["group"].to_numpy()
    if len(codes) <= SAMPLE:
        return np.arange(len(codes))
    # Every k-th group, so that the sample covers the whole file.
    stride = max(len(codes) // SAMPLE, 1)
    chosen = narrow.table["group"].unique(maintain_order=True).gather_every(stride)
    wanted = np.zeros(int(codes.max()) + 1, dtype=bool)
    wanted[chosen.to_numpy()] = True
    return np.flatnonzero(wanted[codes])


def _first_formulas(fits: list[Fit], number: int) -> list[Fit]:
    """The fits of the first formulas, this many; plans of the same formula count once."""
    formulas: set[Any] = set()
    first = []
    for fit in fits:
        formula = formula_key(fit.candidate.plan, missing=True, singletons=True)
        if formula in formulas or len(formulas) < number:
            formulas.add(formula)
            first.append(fit)
    return first
