"""Find the plans that explain logged advantages: solve them on a sample, then measure the likely ones on all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import Candidate, Said, candidates, is_of_tool, plain_method
from grpo_cli.auditing.float32 import noisy_groups
from grpo_cli.auditing.formulas import Known, formula_key
from grpo_cli.auditing.solve import (
    Start,
    clipped,
    of_groups,
    of_rewards,
    starts_of,
    with_known_constants,
    with_solved_constants,
)
from grpo_cli.auditing.trial import FAR, FLOAT32_ERROR, MANTISSAS, ROUNDING, Fit, Log, Tolerance, Trial
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.read.narrow import Narrow
from grpo_cli.schemas.table import schemas

CONFIRMED: Final = 2_000_000  # rows that are computed to confirm plans, all plans together
FEWEST: Final = 6  # plans that are confirmed at least
SLACK: Final = 6  # further rows that may differ in the sample
MOST: Final = 40  # plans that are confirmed at most
DECIMALS: Final = range(2, 7)  # decimals of rounded values; a number with one or none may be exact
EXACT: Final = 3  # rewards with more decimals may have been rounded
BETTER: Final = 0.5  # a coarser reading has to reduce the rows that differ to this share
TWENTIETHS: Final = 0.5  # values of two decimals may be exact if a larger share are twentieths
# Three of four rounded values need one of the last two bits, fewer if they are multiples of each other; eighths need none.
LAST_BITS: Final = 0.25
VALUES: Final = 4  # distinct values that are needed to recognise rounding


def search(narrow: Narrow, logged: Vector, said: Said, known: Known) -> tuple[list[Fit], Log]:
    """The fits, best first, and the log as it was read.

    The values are read as exactly as their type allows. Only if no formula fits so, they may have been rounded, or
    several rewards may have weights. Presets of the tool that wrote the file, if it is known, are tried with every scale.
    """
    schema = next((name for name, schema in schemas().at_hand.items() if schema.title == narrow.schema), "")
    tool = schema.removeprefix("ms-").split("-")[0]  # as the names of its presets begin: nemo-rl-grpo, swift-grpo
    components, roles = len(narrow.reward_names), {*narrow.request.roles, "input_length", "turns"}
    tried = candidates(said, roles, components, tool)
    log = Log.of(narrow, logged, known)
    exact = Tolerance.of_type(logged)
    reading = log.reading(exact)
    best = _fits(reading, tried, tool)

    def read_again(tried: Sequence[Candidate], tolerance: Tolerance) -> None:
        nonlocal best, reading
        if best[0].mismatched:
            coarser = log.reading(tolerance)
            fits = _fits(coarser, tried, tool)
            if fits[0].mismatched < BETTER * best[0].mismatched:
                best, reading = fits, coarser

    tolerances = [*_readings_of_rewards(narrow), *_rounded_readings(logged)] if best[0].mismatched else []
    for tolerance in tolerances:
        read_again(tried, tolerance)
    enough = log.part.has_evidence_for(Candidate(Plan.of({}), constants=components))
    if best[0].mismatched and components > 1 and not said.weights and enough:
        for weights in of_rewards(log.part, components):
            tried_again = candidates(replace(said, weights=weights), roles, components, tool)
            with_weights = [replace(one, constants=components) for one in tried_again if not one.claimed]
            for tolerance in (exact, *tolerances):
                read_again(with_weights, tolerance)
    if best[0].mismatched:
        best = [*_noisy_fit(tried, reading), *best]
    return best, reading


def _fits(log: Log, tried: Sequence[Candidate], tool: str) -> list[Fit]:
    """The fits on all rows, the best first; formulas of the batch are computed only if no formula of the groups fits."""
    starts = starts_of([one for one in tried if not one.plan.uses_batch], log)
    agreeing = [start for start in starts if start.agreeing > FAR * len(log.rows)]
    found = _known(agreeing, log)
    if not _explained(found):  # a wrong row in each group agrees with no other
        found += _known([start for start in starts if start not in agreeing], log)
    # The std of a batch may be nearly a round number: then a factor gives nearly the same values.
    if not _explained(found):
        of_batch = _likely(starts_of([one for one in tried if one.plan.uses_batch], log, "batch"), log)
        found += _known(of_batch, log)
        starts += of_batch
        found += _proven(starts, with_solved_constants)
    if not _explained(found):
        found += [*_proven(starts, clipped), *_proven(starts, of_groups)]
    fits = _confirmed(found, log)
    fits.sort(key=lambda fit: fit.rank)
    ties = [fit for fit in fits if fit.is_tied_with(fits[0])]
    others = [fit for fit in fits if not fit.is_tied_with(fits[0])]
    return [*sorted(ties, key=partial(_plainness, tool=tool)), *others]


def _known(starts: Sequence[Start], log: Log) -> list[Fit]:
    """The candidates of these starts, and their divisors with usual constants."""
    log.compute(plan for start in starts for plan in start.parts_of_rules)
    found, seen = list[Fit](), set[tuple[bytes, bool]]()
    for start in starts:
        # The divisors of equal values are tried once.
        kind = start.rounded, start.plain is None
        found += start.fits([*start.members, *(with_known_constants(start) if kind not in seen else ())])
        seen.add(kind)
    return found


def _explained(fits: Iterable[Fit]) -> bool:
    return any(not fit.mismatched for fit in fits)


def _proven(starts: Iterable[Start], solve: Callable[[Start], Iterable[Candidate]]) -> Iterator[Fit]:
    """What is solved and explains every row, if there are enough equations for its constants."""
    for start in starts:
        yield from (
            fit
            for fit in start.fits(solve(start))
            if not fit.mismatched and start.log.part.has_evidence_for(fit.candidate)
        )


def _likely(starts: Sequence[Start], log: Log) -> list[Start]:
    """The starts over whose values the logged values of each batch are on a line (those that miss the fewest rows), or of each group."""
    off = _off_the_lines([start.values for start in starts], log.part)
    most = min(2 * min(off, default=0) + SLACK, FAR * log.part.size)
    half = FAR * len(log.rows)
    return [
        start
        for start, rows in zip(starts, off, strict=True)
        if rows <= most or (start.plan.uses_batch and start.agreeing > half)
    ]


def _off_the_lines(values: Sequence[Vector], log: Trial) -> list[float]:
    """For each of these, how many rows are not on the line of their batch; a few odd rows do not move a line through medians."""
    names, y = [f"{at}" for at in range(len(values))], pl.col("y")

    def away(value: pl.Expr) -> pl.Expr:
        return value - value.median().over("batch")

    frame = log.table.select("batch", y=pl.Series(log.logged), **dict(zip(names, map(pl.Series, values), strict=True)))
    frame = frame.with_columns(pl.exclude("batch").fill_nan(None))
    ratios = (pl.when(away(pl.col(name)).abs() > ROUNDING).then(away(y) / away(pl.col(name))) for name in names)
    slopes = frame.select(
        ratio.median().over("batch").fill_null(0.0).alias(name) for name, ratio in zip(names, ratios, strict=True)
    )
    rest = frame.select("batch", *(pl.lit(frame["y"] - slopes[name] * frame[name]).alias(name) for name in names))
    off = rest.select(away(pl.col(name)).abs() for name in names).fill_null(np.inf).to_numpy()
    wrong = (off > log.tolerance.of(log.logged)[:, None]) & np.isfinite(log.logged)[:, None]
    return [float(rows) for rows in log.counts @ wrong]


def _confirmed(found: list[Fit], log: Log) -> list[Fit]:
    """The likely formulas measured on all rows: as many as can be computed in a few seconds.

    If less than half of the part is explained, one is enough to count the rows that differ.
    """
    if log.is_small:
        return found
    found = sorted(found, key=lambda fit: fit.rank)
    likely = [fit for fit in found if fit.mismatched <= 2 * found[0].mismatched + SLACK]
    if found[0].mismatched > FAR * found[0].rows:
        likely = likely[:1]
    settled = [fit for fit in likely if log.settles(fit.candidate.plan)]
    budget = max(FEWEST, min(CONFIRMED // log.whole.size, MOST))
    open_ = [fit for fit in likely if not log.settles(fit.candidate.plan)]
    return [*settled, *log.whole.fits(fit.candidate for fit in _first_formulas(open_, budget))]


def _noisy_fit(tried: Sequence[Candidate], log: Log) -> list[Fit]:
    """The first preset that explains every row once float32 noise of constant groups is added; nothing if there is none."""
    for candidate in (candidate for candidate in tried if candidate.presets and candidate.plan.post):
        if log.is_small or noisy_groups(candidate.plan, log.part, is_part=True) is not None:
            noisy = noisy_groups(candidate.plan, log.whole, is_part=False)
            if noisy is not None:
                return [replace(log.whole.fits([candidate])[0], noisy=noisy)]
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
        for size in MANTISSAS
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
