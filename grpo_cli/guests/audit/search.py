"""Find the plans that explain logged advantages: solve them on a sample, then measure the likely ones on all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.guests.audit.candidates import Candidate, Said, candidates, plainness
from grpo_cli.guests.audit.float32 import noisy_groups
from grpo_cli.guests.audit.solve import (
    Ruled,
    Start,
    clipped,
    of_groups,
    of_rewards,
    starts_of,
    with_known_constants,
    with_solved_constants,
)
from grpo_cli.guests.audit.trial import FAR, FLOAT32_ERROR, MANTISSAS, ROUNDING, Fit, Judged, Log, Tolerance
from grpo_cli.read.narrow import Narrow
from grpo_cli.schemas.table import schemas

CONFIRMED = 2_000_000  # rows that are computed to confirm plans, all plans together
FEWEST = 6  # plans that are confirmed at least
SLACK = 6  # further rows that may differ in the sample
MOST = 40  # plans that are confirmed at most
DECIMALS = range(2, 7)  # decimals of rounded values; a number with one or none may be exact
EXACT = 3  # rewards with more decimals may have been rounded
BETTER = 0.5  # a coarser reading has to reduce the rows that differ to this share
TWENTIETHS = 0.5  # values of two decimals may be exact if a larger share are twentieths
# Three of four rounded values need one of the last two bits, fewer if they are multiples of each other; eighths need none.
LAST_BITS = 0.25
VALUES = 4  # distinct values that are needed to recognise rounding


class Found(NamedTuple):
    """The fits, best first, the log as it was read, and the formulas that were tried on it."""

    fits: list[Fit]
    log: Log
    tried: Sequence[Candidate]

    @property
    def missed(self) -> int:
        """How many rows differ from the best."""
        return self.fits[0].mismatched


def search(narrow: Narrow, logged: Vector, said: Said) -> Found:
    """What explains the logged values.

    The values are read as exactly as their type allows. Only if no formula fits so, they may have been rounded, or
    several rewards may have weights. Presets of the tool that wrote the file, if it is known, are tried with every scale.
    """
    of_schema = [name for name, schema in schemas().at_hand.items() if schema.title == narrow.schema]
    schema = next(iter(of_schema), "")
    tool = schema.removeprefix("ms-").split("-")[0]  # as the names of its presets begin: nemo-rl-grpo, swift-grpo
    components, roles = len(narrow.reward_names), {*narrow.request.roles, "input_length", "turns"}
    tried = candidates(said, roles, components, tool)
    log = Log.part(narrow, logged)
    tolerances = [Tolerance.of_type(logged), *_readings_of_rewards(narrow), *_rounded_readings(logged)]
    best = _best_reading(log, tolerances, tried, tool)
    may_be_weighted = best.missed and components > 1 and not said.weights
    has_evidence = may_be_weighted and best.log.evidence(Plan.of({})).suffices(components)
    for weights in of_rewards(log, components) if has_evidence else ():
        formulas = candidates(said._replace(weights=weights), roles, components, tool)
        weighted = [one._replace(constants=components) for one in formulas if not one.claimed]
        with_weights = _best_reading(log, tolerances, weighted, tool)
        if with_weights.missed < BETTER * best.missed:
            best = with_weights
        if not best.missed:
            break
    if best.missed:
        best = best._replace(fits=[*_noisy_fit(tried, best.log), *best.fits])
    return best


def _best_reading(log: Log, tolerances: Iterable[Tolerance], tried: Sequence[Candidate], tool: str) -> Found:
    """The fits with the values read as exactly as the first of these says, or coarser if far fewer rows differ then."""

    def read_as(tolerance: Tolerance) -> Found:
        reading = log.reading(tolerance)
        return Found(_fits(reading, tried, tool), reading, tried)

    exact, *coarser = tolerances
    best = read_as(exact)
    for tolerance in coarser:
        if not best.missed:
            break
        found = read_as(tolerance)
        if found.missed < BETTER * best.missed:
            best = found
    return best


def _fits(log: Log, tried: Sequence[Candidate], tool: str) -> list[Fit]:
    """The fits on all rows, the best first; formulas of the batch are computed only if no formula of the groups fits."""
    by_group = [one for one in tried if not one.plan.uses_batch]
    late = [one for one in by_group if log.beyond_two_values and log.gives_two_values(one.plan)]
    starts = starts_of([one for one in by_group if one not in late], log)
    agreeing = [start for start in starts if start.agrees(None, log.intervals())]
    found = _known(agreeing, log)
    if not _explained(found):  # a wrong row in each group agrees with no other
        found += _known([start for start in starts if start not in agreeing], log)
    # The std of a batch may be nearly a round number: then a factor gives nearly the same values.
    if not _explained(found):
        of_batch = starts_of([one for one in tried if one.plan.uses_batch], log, "batch")
        off = _off_the_lines([start.values for start in of_batch], log)
        most = min(2 * min(off, default=0) + SLACK, FAR * log.size)
        likely = []
        for start, rows in zip(of_batch, off, strict=True):
            if rows <= most or (start.plan.uses_batch and start.agrees(None, log.intervals())):
                likely.append(start)
        found += _known(likely, log)
        starts += likely
        if not _explained(found):
            others = starts_of([one for one in late if log.may_be_near(one.plan)], log)
            found += _known(others, log)
            starts += others
        found += _proven(starts, with_solved_constants)
    if not _explained(found):
        found += [*_proven(starts, clipped), *_proven(starts, of_groups)]
    fits = sorted(_confirmed(found, log), key=lambda fit: fit.rank)
    tied = [fit for fit in fits if fit.is_tied_with(fits[0])]
    behind = [fit for fit in fits if not fit.is_tied_with(fits[0])]
    return sorted(tied, key=lambda fit: plainness(fit.candidate, tool)) + behind


def _known(starts: Sequence[Start], log: Log) -> list[Fit]:
    """The candidates of these starts, and their divisors with usual constants."""
    log.formulas.compute(plan for start in starts for plan in start.parts_of_rules)
    found, seen = list[Fit](), set[tuple[bytes, bool]]()
    for start in starts:
        # The divisors of equal values are tried once.
        kind = start.rounded, start.plain is None
        found += start.fits([*start.members, *(with_known_constants(start) if kind not in seen else ())])
        seen.add(kind)
    return found


def _explained(fits: Iterable[Fit]) -> bool:
    return any(not fit.mismatched for fit in fits)


def _proven(starts: Iterable[Start], solve: Callable[[Start], Iterable[Ruled]]) -> Iterator[Fit]:
    """What is solved and explains every row, if there are enough equations for its constants."""
    for start in starts:
        for fit in start.fits(solve(start)):
            one = fit.candidate
            if not fit.mismatched and start.log.evidence(one.plan).suffices(one.constants):
                yield fit


def _off_the_lines(values: Sequence[Vector], log: Log) -> list[float]:
    """For each of these, how many rows are not on the line of their batch; a few odd rows do not move a line through medians."""
    if not values:
        return []
    allowed = log.tolerance.of(log.logged)
    rows = log.table.select("batch", y=pl.Series(log.logged), count=pl.Series(log.counts), allowed=allowed)
    starts = np.repeat(np.arange(len(values)), len(rows))
    each = pl.concat([rows] * len(values)).with_columns(x=pl.Series(np.concatenate(values)), start=starts)

    def away(value: pl.Expr) -> pl.Expr:
        return value - value.median().over("start", "batch")

    x, y = away(pl.col("x")), away(pl.col("y"))
    slope = pl.when(x.abs() > ROUNDING).then(y / x).median().over("start", "batch").fill_null(0.0)
    rest = each.fill_nan(None).with_columns(rest=pl.col("y") - slope * pl.col("x"))
    is_wrong = away(pl.col("rest")).abs().fill_null(np.inf) > pl.col("allowed")
    counted = pl.when(is_wrong & pl.col("y").is_finite()).then("count")
    sums = rest.with_columns(off=counted).group_by("start", maintain_order=True).agg(pl.sum("off"))
    return sums["off"].to_list()


def _confirmed(found: list[Fit], log: Log) -> list[Fit]:
    """The likely formulas measured on all rows: as many as can be computed in a few seconds.

    If less than half of the part is explained, one is enough to count the rows that differ.
    """
    if log.part_of is None:
        return found
    found = sorted(found, key=lambda fit: fit.rank)
    likely = [fit for fit in found if fit.mismatched <= 2 * found[0].mismatched + SLACK]
    if found[0].mismatched > FAR * found[0].rows:
        likely = likely[:1]
    budget = max(FEWEST, min(CONFIRMED // log.whole.size, MOST))
    fits, measured, whole = list[Fit](), dict[Any, Fit](), log.whole
    settled = [fit for fit in likely if log.settles(fit.candidate.plan)]
    for one in (fit.candidate for fit in likely if not log.settles(fit.candidate.plan)):
        formula = whole.formulas.key(one.plan), one.factor, one.solved
        if formula not in measured and len(measured) < budget:
            computed = one.factor * whole.formulas.advantages(one.plan)
            measured[formula] = Judged(one, whole, computed).fit
        if formula in measured:
            fits.append(measured[formula]._replace(candidate=one))
    return settled + fits


def _noisy_fit(tried: Sequence[Candidate], log: Log) -> list[Fit]:
    """The first preset that explains every row once float32 noise of constant groups is added; nothing if there is none."""
    whitened = [one for one in tried if one.presets and one.plan.post]
    for one in whitened:
        noisy = noisy_groups(one.plan, log)
        if noisy is not None and log.part_of is not None:
            noisy = noisy_groups(one.plan, log.whole)
        if noisy is not None:
            return [Judged.of(one, log.whole).fit._replace(noisy=noisy)]
    return []


def _readings_of_rewards(narrow: Narrow) -> list[Tolerance]:
    """The tolerance of float32 if rewards were rounded to it or to decimals, after advantages were computed from them."""
    columns = [narrow.table[f"reward.{at}"].to_numpy() for at in range(len(narrow.reward_names))]
    rewards = np.concatenate(columns)
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
    tolerances, is_full = [], len(values) >= VALUES
    single = values.astype(np.float32)
    stored = single if np.array_equal(single, values) else values  # a rounded number in the type of the file

    def has(decimals: int) -> bool:
        return bool((np.round(values, decimals).astype(stored.dtype) == stored).all())

    decimals = next(filter(has, range(DECIMALS[-1] + 1)), 0)
    twenty_times = values * 20
    twentieths = np.mean(np.abs(twenty_times - np.round(twenty_times)) < FLOAT32_ERROR)
    if decimals in DECIMALS and (decimals > DECIMALS[0] or (is_full and twentieths < TWENTIETHS)):
        half, error = 0.5 * 10.0**-decimals, 3e-7 if stored is single else 1e-9
        tolerances.append(Tolerance(half + error, 0.0))
    mantissas, _ = np.frexp(values)

    def longer(bits: int) -> Mask:
        """The values that need more bits: half of all rounded values need the last one."""
        return np.asarray(mantissas * 2.0**bits % 1 != 0)

    def are_used(bits: int) -> bool:
        return bool(longer(bits - 1).any() and longer(bits - 2).mean() > LAST_BITS)

    sizes = [size for size in MANTISSAS if is_full and not longer(size).any() and are_used(size)]
    return [*tolerances, *(Tolerance(1e-7, 1e-6, size) for size in sizes)]
