"""Which divisor explains the log: no constant is solved, every one is among the usual ones.

A rung for each kind of formula, the costlier later: those in which most groups agree about their divisor, all others, those of the batch,
and those that give the rows of a group one of two values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan_parts import Whiten
from grpo_cli.guests.audit.baselines import Known, Rule, Ruled, Start, starts_of
from grpo_cli.guests.audit.candidates import EPSILONS, LARGE_EPSILONS, Candidate
from grpo_cli.guests.audit.trial import FAR, ROUNDING, Fit, Intervals, Log

SLACK = 6  # further rows that may differ in the sample


def of_agreeing_groups(known: Known) -> list[Fit]:
    """Formulas of the groups in which most groups have a divisor that all of their rows share."""
    late = _of_two_values(known)
    known.starts = starts_of([one for one in known.of_groups if one not in late], known.log)
    return _fits_of(_agreeing(known.starts, known.log), known.log)


def of_other_groups(known: Known) -> list[Fit]:
    """The other formulas of the groups: with a wrong row in each group, no group agrees."""
    agreeing = _agreeing(known.starts, known.log)
    return _fits_of([start for start in known.starts if start not in agreeing], known.log)


def of_batches(known: Known) -> list[Fit]:
    """Formulas of the batch. Its std may be nearly a round number: then a factor gives nearly the same values."""
    likely = likely_of_batch(known)
    known.starts += likely
    return _fits_of(likely, known.log)


def of_two_values(known: Known) -> list[Fit]:
    """Formulas that see only whether a reward is beyond a threshold."""
    late = starts_of([one for one in _of_two_values(known) if known.log.may_be_near(one.plan)], known.log)
    known.starts += late
    return _fits_of(late, known.log)


def within_half_a_step(known: Known) -> list[Fit]:
    """All of these at once for rounded values, of which several formulas may be right."""
    log = known.log
    known.starts = starts_of([one for one in known.of_groups if log.may_be_near(one.plan)], log)
    found = _fits_of(_agreeing(known.starts, log), log) + _fits_of(likely_of_batch(known), log)
    return found if any(not fit.mismatched for fit in found) else found + of_other_groups(known)


def likely_of_batch(known: Known) -> list[Start]:
    """The formulas that read the batch and may be near, before their last division."""
    log = known.log
    of_batch = starts_of([one for one in known.tried if one.plan.uses_batch], log, "batch")
    off = _off_the_lines([start.values for start in of_batch], log)
    most = min(2 * min(off, default=0) + SLACK, FAR * log.size)
    likely = []
    for start, rows in zip(of_batch, off, strict=True):
        if rows <= most or (start.plan.uses_batch and start.agrees(None, log.intervals())):
            likely.append(start)
    return likely


def _agreeing(starts: Sequence[Start], log: Log) -> list[Start]:
    return [start for start in starts if start.agrees(None, log.intervals())]


def _of_two_values(known: Known) -> list[Candidate]:
    """The formulas that give the rows of a group two values, where the log has more."""
    log = known.log
    return [one for one in known.of_groups if log.beyond_two_values and log.gives_two_values(one.plan)]


def _fits_of(starts: Sequence[Start], log: Log) -> list[Fit]:
    """The candidates of these starts, and their divisors with usual constants."""
    log.formulas.compute(plan for start in starts for plan in start.parts_of_rules)
    found, seen = list[Fit](), set[tuple[bytes, bool]]()
    for start in starts:
        # The divisors of equal values are tried once.
        kind = start.rounded, start.plain is None
        found += start.fits([*start.members, *(with_known_constants(start) if kind not in seen else ())])
        seen.add(kind)
    return found


def with_known_constants(start: Start, log: Intervals | None = None) -> Iterator[Ruled]:
    """The rules of a start with the usual epsilons that most rows have in their intervals."""
    log = log or start.log.intervals()
    epsilons = (*EPSILONS, *LARGE_EPSILONS) if start.log.is_coarse else EPSILONS
    for one, rule, values, spread in agreeing_rules(start, log):
        most, divisors = int(FAR * len(spread)) + 1, log.divisors(values)
        for squared in (False, True):
            left = divisors.beside(spread, squared=squared)
            held = {value: left.holding(value) for value in epsilons}
            most = max(most, *held.values())
            best = [value for value, rows in held.items() if rows == most]
            for value in best:
                constant = replace(rule, inside=value) if squared else replace(rule, epsilon=value)
                yield start.ruled(one, constant)
            if most == len(spread):
                break


def agreeing_rules(start: Start, log: Intervals) -> Iterator[tuple[Candidate, Rule, Vector, Vector]]:
    """The rules of a start with their parts, if most rows agree with those of their group about the divisor."""
    agree = dict[str, bool]()
    for one, rule in start.rules():
        kind = rule.level if isinstance(rule, Whiten) else ""
        if kind not in agree:
            agree[kind] = start.agrees(rule, log)
        if agree[kind]:
            yield one, rule, *start.parts(rule)


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
