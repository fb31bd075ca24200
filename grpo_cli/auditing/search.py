"""Search the plan that explains logged advantages: try all plans on a sample, then the likely ones on all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from grpo_cli.auditing.candidates import Candidate, Said, candidates, is_of_tool, plain_method, refined, rooted
from grpo_cli.auditing.float32 import noisy_groups
from grpo_cli.auditing.formulas import Formulas, Known, formula_key
from grpo_cli.auditing.solved import clipped, multiplied, weighed, with_solved_epsilon, without_epsilon
from grpo_cli.auditing.solved import weights as solved_weights
from grpo_cli.auditing.trial import FAR, FLOAT32_ERROR, SAMPLE, Fit, Tolerance, Trial, rounded
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.read.narrow import Narrow
from grpo_cli.schemas.table import schemas

CONFIRMED: Final = 2_000_000  # rows that are computed to confirm plans, all plans together
FEWEST: Final = 6  # plans that are confirmed at least
SLACK: Final = 6  # further rows that may differ in the sample
MOST: Final = 40  # plans that are confirmed at most
REFINED: Final = 8  # formulas whose epsilons are tried
DECIMALS: Final = range(2, 7)  # decimals of rounded values; a number with one or none may be exact
EXACT: Final = 3  # rewards with more decimals may have been rounded
BETTER: Final = 0.5  # a tolerance for rounding has to reduce the rows that differ to this share
LAST_BITS: Final = 0.5  # values were rounded to 16 bits if a larger share has one of the last two bits
VALUES: Final = 4  # distinct values that are needed to recognise rounding
SIXTEEN_BITS: Final = {11: 2.0**-11, 8: 2.0**-8}  # float16 and bfloat16: bits of the mantissa -> relative error


def search(narrow: Narrow, logged: Vector, said: Said, known: Known) -> tuple[list[Fit], Tolerance, int]:
    """The fits, best first; their tolerance; and the number of rows of the sample.

    If nothing fits, the logger may have rounded, and several rewards may have weights. Presets of the tool that wrote the file, if it is
    known, are tried with every scale.
    """
    schema = next((name for name, schema in schemas().at_hand.items() if schema.title == narrow.schema), "")
    tool = schema.removeprefix("ms-").split("-")[0]  # as the names of its presets begin: nemo-rl-grpo, swift-grpo
    rows = _sample(narrow)
    of_type = Tolerance.of_type(logged)
    trials = [Trial(Formulas(narrow.table, known), logged, tolerance=of_type)]
    if len(rows) < len(logged):
        trials.insert(0, Trial(Formulas(narrow.at(rows).table, known), logged[rows], rescaled=True, tolerance=of_type))
    components, roles = len(narrow.reward_names), {*narrow.roles, "input_length", "turns"}
    tried = candidates(said, roles, components, tool)
    best, best_tolerance = _best_fits(trials, tried, tool), of_type

    def try_again(tried: Sequence[Candidate], tolerance: Tolerance) -> None:
        nonlocal best, best_tolerance
        nearer = _best_fits([replace(trial, tolerance=tolerance) for trial in trials], tried, tool)
        if nearer[0].mismatched < BETTER * best[0].mismatched:
            best, best_tolerance = nearer, tolerance

    tolerances = [*_tolerances_of_rewards(narrow), *_rounding_tolerances(logged)] if best[0].mismatched else []
    for tolerance in tolerances:
        try_again(tried, tolerance)
    enough = trials[0].has_evidence_for(Candidate(Plan.of({}), constants=components))
    if best[0].mismatched and components > 1 and not said.weights and enough:
        for weights in solved_weights(trials[0], components):
            tried_again = candidates(replace(said, weights=weights), roles, components, tool)
            with_weights = [replace(one, constants=components) for one in tried_again if not one.claimed]
            for tolerance in (of_type, *tolerances):
                if best[0].mismatched:
                    try_again(with_weights, tolerance)
    if best[0].mismatched:
        best = [*_noisy_fit(tried, [replace(trial, tolerance=best_tolerance) for trial in trials]), *best]
    return best, best_tolerance, len(rows)


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


def _tolerances_of_rewards(narrow: Narrow) -> list[Tolerance]:
    """The tolerance of float32 if rewards were rounded to it or to decimals, after advantages were computed from them."""
    rewards = np.concatenate([narrow.table[f"reward.{k}"].to_numpy() for k in range(len(narrow.reward_names))])
    rewards = rewards[np.isfinite(rewards)]
    fine = rewards[np.round(rewards, EXACT) != rewards]
    return [Tolerance()] if len(fine) and Tolerance.of_type(fine) == Tolerance() else []


def _rounding_tolerances(logged: Vector) -> list[Tolerance]:
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
    if decimals in DECIMALS and (decimals > DECIMALS[0] or (len(values) >= VALUES and twentieths < LAST_BITS)):
        tolerances.append(Tolerance(0.5 * 10.0**-decimals + (3e-7 if stored is single else 1e-9), 0.0))
    # The bits that each value needs: half of all rounded values need the last one.
    mantissas = (np.frexp(values)[0] * (1 << 53)).astype(np.int64)
    bits = 53 - np.log2((mantissas & -mantissas).astype(np.float64)).astype(np.int64)
    for size, error in SIXTEEN_BITS.items():
        if bits.max() == size and len(values) >= VALUES and np.mean(bits >= size - 1) > LAST_BITS:
            tolerances.append(Tolerance(FLOAT32_ERROR, error, 0.0))
    return tolerances


def _best_fits(trials: Sequence[Trial], tried: Sequence[Candidate], tool: str) -> list[Fit]:
    """The fits on all rows, the best first; the first of the trials has a sample, if there are many rows."""
    trial = trials[0]
    fits = trial.fits(tried)
    best = _best_families(fits, rescaled=trial.rescaled)
    trial.formulas.compute(candidate.plan for fit in best for candidate in refined(fit.candidate))
    trial.formulas.compute(plan for fit in best for plan in without_epsilon(fit.candidate.plan, trial))
    for fit in best:
        fits += trial.fits([*refined(fit.candidate), *with_solved_epsilon(fit.candidate, trial)])
    if _none_matches(fits, trial):
        families = {_family_key(fit.candidate.plan): fit.candidate for fit in reversed(fits)}
        trial.formulas.compute(plan for family in families.values() for plan in without_epsilon(family.plan, trial))
        fits += trial.fits(solved for family in families.values() for solved in with_solved_epsilon(family, trial))
    if _none_matches(fits, trial):
        roots = trial.fits(candidate for fit in best for candidate in rooted(fit.candidate))
        fits += [fit for fit in roots if fit.mismatched <= FAR * fit.rows]
        fits += clipped(best, trial)
        fits += weighed(fits, trial)
    # If the std of a batch is nearly a round number, a factor gives nearly the same values as the batch formula.
    if _none_matches((fit for fit in fits if not fit.candidate.plan.uses_batch), trial):
        fits += multiplied(fits, trial)
    fits = [
        fit for fit in fits if fit.mismatched or not fit.candidate.constants or trial.has_evidence_for(fit.candidate)
    ]
    fits.sort(key=lambda fit: fit.rank)
    if trial.rescaled:
        fits = _confirm(fits, trials[-1])
    ties = [fit for fit in fits if fit.is_tied_with(fits[0])]
    others = [fit for fit in fits if not fit.is_tied_with(fits[0])]
    return [*sorted(ties, key=partial(_plainness, tool=tool)), *others]


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


def _none_matches(fits: Iterable[Fit], trial: Trial) -> bool:
    """Whether no formula explains all rows; on a sample, one that needs the batch does not count, since any factor is allowed."""
    return all(fit.mismatched or (trial.rescaled and fit.candidate.plan.uses_batch) for fit in fits)


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


def _best_families(fits: Sequence[Fit], *, rescaled: bool) -> list[Fit]:
    """The best formulas, each once, by rows that differ and by median error, so that a few odd groups do not decide.

    On a sample, formulas of the batch are left out: it cannot show their epsilon.
    """
    fits = [fit for fit in fits if not (rescaled and fit.candidate.plan.uses_batch)]
    families: dict[Any, Fit] = {}
    for key in (lambda fit: (fit.mismatched, rounded(fit.typical)), lambda fit: rounded(fit.median)):
        distinct: dict[Any, Fit] = {}
        for fit in sorted(fits, key=key):
            distinct.setdefault((rounded(fit.typical), fit.mismatched), fit)
        families |= {_family_key(fit.candidate.plan): fit for fit in list(distinct.values())[:REFINED]}
    return list(families.values())


def _family_key(plan: Plan) -> tuple[Any, ...]:
    """A formula without its constants and its rules for missing rewards and singletons, as a key."""
    post = tuple(op.name for op in plan.post)
    divisor = plan.divisor.level, plan.divisor.of
    return plan.estimator.build, str(plan.params), plan.baseline_level, plan.unit, plan.shape, divisor, post


def _confirm(fits: list[Fit], all_rows: Trial) -> list[Fit]:
    """Fit the best plans of the sample to all rows: as many plans as can be computed in a few seconds.

    If less than half of the sample is explained, one plan is enough to count the rows that differ.
    """
    if fits[0].mismatched > FAR * fits[0].rows:
        return all_rows.fits([fits[0].candidate])
    likely = [fit for fit in fits if fit.mismatched <= 2 * fits[0].mismatched + SLACK]
    budget = max(FEWEST, min(CONFIRMED // len(all_rows.table), MOST))
    group = _first_formulas([fit for fit in likely if not fit.candidate.plan.uses_batch], budget)
    batch = _first_formulas([fit for fit in likely if fit.candidate.plan.uses_batch], 2 * budget)
    confirmed = all_rows.fits(fit.candidate for fit in (*group, *batch) or fits[:1])
    nearest = min(confirmed, key=lambda fit: fit.rank).candidate
    if nearest.plan.uses_batch:
        confirmed += all_rows.fits([*refined(nearest), *with_solved_epsilon(nearest, all_rows)])
    return sorted(confirmed, key=lambda fit: fit.rank)


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
