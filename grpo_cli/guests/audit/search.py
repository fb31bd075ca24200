"""Find the plans that explain logged advantages: solve them on a sample, then measure the likely ones on all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.guests.audit.candidates import Candidate, Said, candidates, plainness
from grpo_cli.guests.audit.float32 import noisy_groups
from grpo_cli.guests.audit.readings import readings_of
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
from grpo_cli.guests.audit.trial import BETTER, FAR, ROUNDING, Fit, Judged, Log
from grpo_cli.read.narrow import Narrow
from grpo_cli.schemas.table import schemas

CONFIRMED = 2_000_000  # rows that are computed to confirm plans, all plans together
FEWEST = 6  # plans that are confirmed at least
SLACK = 6  # further rows that may differ in the sample
MOST = 40  # plans that are confirmed at most


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

    They are read in every way that their digits and their type allow. Only if no formula fits, several rewards may have weights.
    Presets of the tool that wrote the file, if it is known, are tried with every scale.
    """
    of_schema = [name for name, schema in schemas().at_hand.items() if schema.title == narrow.schema]
    schema = next(iter(of_schema), "")
    tool = schema.removeprefix("ms-").split("-")[0]  # as the names of its presets begin: nemo-rl-grpo, swift-grpo
    components, roles = len(narrow.reward_names), {*narrow.request.roles, "input_length", "turns"}
    tried = candidates(said, roles, components, tool)
    rewards = np.concatenate([narrow.table[f"reward.{at}"].to_numpy() for at in range(components)])
    log = Log.part(narrow, logged).read_as(*readings_of(logged, rewards))
    best = _found(log, tried, tool)
    may_be_weighted = best.missed and components > 1 and not said.weights
    has_evidence = may_be_weighted and log.evidence(Plan.of({})).suffices(components)
    for weights in of_rewards(log, components) if has_evidence else ():
        formulas = candidates(said._replace(weights=weights), roles, components, tool)
        weighted = [one._replace(constants=components) for one in formulas if not one.claimed]
        with_weights = _found(log, weighted, tool)
        if with_weights.missed < BETTER * best.missed:
            best = with_weights
        if not best.missed:
            break
    if best.missed:
        best = best._replace(fits=[*_noisy_fit(tried, log.read_as(log.readings[0])), *best.fits])
    return best


def _found(log: Log, tried: Sequence[Candidate], tool: str) -> Found:
    """The fits, the best first: what the values say as exactly as their type allows, and what they say if they were rounded."""
    exact, *others = log.readings
    fits = list[Fit]()
    for reading in (exact, *(one for one in others if not one.is_rounded)):
        if not _explained(fits):
            fits += _fits(log.read_as(reading), tried)
    if rounded := [one for one in others if one.is_rounded]:
        fits = [*_judged_again(fits, log), *_of_rounded(log, tried)]
        for reading in rounded:
            if not _explained(fits):
                fits += _solved(log.read_as(reading), tried)
    return Found(_ranked(_confirmed(fits, log), tool), log, tried)


def _judged_again(fits: list[Fit], log: Log) -> list[Fit]:
    """The fits with the best of those that differ somewhere under every reading of the log."""
    fits = sorted(fits, key=lambda fit: fit.rank)
    again = []
    for fit in fits[:MOST]:
        one = fit.candidate
        computed = one.factor * log.formulas.advantages(one.plan) if fit.mismatched else None
        again.append(fit if computed is None else Judged(one, log, computed).fit)
    return again


def _ranked(fits: list[Fit], tool: str) -> list[Fit]:
    """The best first; of those that the rows cannot tell apart, the plainest."""
    fits = sorted(fits, key=lambda fit: fit.rank)
    tied = [fit for fit in fits if fit.is_tied_with(fits[0])]
    behind = [fit for fit in fits if not fit.is_tied_with(fits[0])]

    def plainest(fit: Fit) -> tuple[Any, ...]:
        one = fit.candidate
        return not one.claimed, one.is_odd, fit.reading.is_rounded, *plainness(one, tool)

    return sorted(tied, key=plainest) + behind


def _fits(log: Log, tried: Sequence[Candidate]) -> list[Fit]:
    """The fits under one reading; formulas of the batch are computed only if no formula of the groups fits."""
    by_group = [one for one in tried if not one.plan.uses_batch]
    late = [one for one in by_group if log.beyond_two_values and log.gives_two_values(one.plan)]
    starts = starts_of([one for one in by_group if one not in late], log)
    agreeing = [start for start in starts if start.agrees(None, log.intervals())]
    found = _known(agreeing, log)
    if not _explained(found):  # a wrong row in each group agrees with no other
        found += _known([start for start in starts if start not in agreeing], log)
    # The std of a batch may be nearly a round number: then a factor gives nearly the same values.
    if not _explained(found):
        likely = _of_batch(log, tried)
        found += _known(likely, log)
        starts += likely
        if not _explained(found):
            others = starts_of([one for one in late if log.may_be_near(one.plan)], log)
            found += _known(others, log)
            starts += others
        found += _proven(starts, with_solved_constants)
    if not _explained(found):
        found += [*_proven(starts, clipped), *_proven(starts, of_groups)]
    return found


def _of_rounded(log: Log, tried: Sequence[Candidate]) -> list[Fit]:
    """The formulas with usual constants within half a step of rounded values, those of the batch as well."""
    by_group = [one for one in tried if not one.plan.uses_batch and log.may_be_near(one.plan)]
    starts = starts_of(by_group, log)
    agreeing = [start for start in starts if start.agrees(None, log.intervals())]
    found = _known(agreeing, log) + _known(_of_batch(log, tried), log)
    if not _explained(found):  # a wrong row in each group agrees with no other
        found += _known([start for start in starts if start not in agreeing], log)
    return found


def _solved(log: Log, tried: Sequence[Candidate]) -> list[Fit]:
    """What rounded values say of constants: those of the batch, a factor, a clip."""
    starts = starts_of([one for one in tried if not one.plan.uses_batch], log)
    starts += _of_batch(log, tried)
    found = [*_proven(starts, with_solved_constants)]
    if not _explained(found):
        found += [*_proven(starts, clipped), *_proven(starts, of_groups)]
    return found


def _of_batch(log: Log, tried: Sequence[Candidate]) -> list[Start]:
    """The formulas that read the batch and may be near, before their last division."""
    of_batch = starts_of([one for one in tried if one.plan.uses_batch], log, "batch")
    off = _off_the_lines([start.values for start in of_batch], log)
    most = min(2 * min(off, default=0) + SLACK, FAR * log.size)
    likely = []
    for start, rows in zip(of_batch, off, strict=True):
        if rows <= most or (start.plan.uses_batch and start.agrees(None, log.intervals())):
            likely.append(start)
    return likely


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
            if not fit.mismatched and start.log.evidence(one.plan, fit.reading).suffices(one.constants):
                yield fit


def _off_the_lines(values: Sequence[Vector], log: Log) -> list[float]:
    """For each of these, how many rows are not on the line of their batch; a few odd rows do not move a line through medians.

    The slope is that of the rows that are far from the middle, which rounding turns least.
    """
    if not values:
        return []
    rows = log.table.select("batch", y=pl.Series(log.logged), count=pl.Series(log.counts), allowed=log.allowed)
    starts = np.repeat(np.arange(len(values)), len(rows))
    each = pl.concat([rows] * len(values)).with_columns(x=pl.Series(np.concatenate(values)), start=starts)

    def away(value: pl.Expr) -> pl.Expr:
        return value - value.median().over("start", "batch")

    x, y = away(pl.col("x")), away(pl.col("y"))
    far = x.abs() >= pl.max_horizontal(x.abs().median().over("start", "batch"), ROUNDING)
    slope = pl.when(far).then(y / x).median().over("start", "batch").fill_null(0.0)
    rest = each.fill_nan(None).with_columns(rest=pl.col("y") - slope * pl.col("x"))
    is_wrong = away(pl.col("rest")).abs().fill_null(np.inf) > 2 * pl.col("allowed")
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
