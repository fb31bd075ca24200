"""Causes that concern a whole log: advantages were shifted, batches have rows that are not here, lengths were penalised.

Nearly every row differs then, so one cause replaces those of the groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import Candidate, plain_method
from grpo_cli.auditing.causes import Cause, cause, constant_groups
from grpo_cli.auditing.formulas import Formulas, formula_key
from grpo_cli.auditing.trial import SAMPLE, Trial, evidence, slopes
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.moments import Codes, Index

SHIFTS: Final = 64  # rows by which advantages may be shifted
MOST: Final = 0.75  # share of the rows that a shift has to explain, even if each file was shifted separately
PAIRS: Final = 20  # rows beside a shorter one of equal reward and another advantage, at least
GROUPS: Final = 3  # groups with such pairs, at least
STEPS: Final = 3  # that have a mean or std of their own, at least
KINDS: Final = 5  # distinct values in each of them: three more than the two numbers that are solved
LIKE_HERE: Final = 2.0  # how many times the std of the rows that are here may that of the whole batch be
APART: Final = 1e-3  # relative difference of the stds of steps


def cause_of_log(log: Trial, tried: Sequence[Candidate], parts: Codes) -> Cause | None:
    """The cause that explains the whole log; None if there is none.

    Called only if no formula in `tried` explains the log; `parts` numbers the file and the step of every row.
    """
    return _shift(log, tried, parts) or _partial(log, tried, parts) or _length(log)


def _plain(tried: Sequence[Candidate]) -> Iterator[Candidate]:
    """Each formula that reads only the rewards of the group, once; the simplest first."""

    def plainness(candidate: Candidate) -> tuple[bool, int, int, bool]:
        plan = candidate.plan
        return not candidate.claimed, len(plan.post), list(ESTIMATORS).index(plan.method), not plain_method(plan)

    known = set[Any]()
    for candidate in sorted(tried, key=plainness):
        plan = candidate.plan
        formula = formula_key(plan, missing=False, singletons=False)
        if formula not in known and candidate.factor == 1 and not plan.uses_batch and not plan.needs:
            known.add(formula)
            yield candidate


def _shift(log: Trial, tried: Sequence[Candidate], parts: Codes) -> Cause | None:
    """Every row has the advantage of another row, the same number of rows (at most SHIFTS) away.

    If each file or step was shifted separately, the rows at its ends may differ.
    """
    codes = log.table["group"].to_numpy()
    # The first rows of the file, up to the first group that has rows beyond them.
    last = int(np.append(np.isin(codes[:SAMPLE], codes[SAMPLE:]), values=True).argmax())
    formulas, logged = Formulas(log.table.head(last), log.formulas.known), log.logged[:last]
    if not last or not evidence(tried[0].plan, Trial.of(formulas, logged)).suffices(log.tolerance, 1):
        return None
    allowed, plain = log.tolerance.of(logged), [*_plain(tried)]
    formulas.compute(candidate.plan for candidate in plain)
    shifts = [sign * size for size in range(1, min(SHIFTS, last // 4) + 1) for sign in (1, -1)]
    for candidate, by in product(plain, shifts):
        given = formulas.advantages(candidate.plan)
        here, there = slice(max(by, 0), last + min(by, 0)), slice(max(-by, 0), last - max(by, 0))
        near = np.abs(given[there] - logged[here]) <= allowed[here]
        if near.mean() >= MOST and (near | (parts[here] != parts[there])).all():
            rows = f"{abs(by)} row{'s' if abs(by) > 1 else ''}"
            by_part = "" if near.all() else " within each file or step"
            name, where = plain_method(candidate.plan) or candidate.name, f"{rows} further {'up' if by > 0 else 'down'}"
            says = f"shifted by {rows}{by_part}: every row has the advantage that {name} gives {where}"
            return _of_log("shift", says, codes)
    return None


def _partial(log: Trial, tried: Sequence[Candidate], parts: Codes) -> Cause | None:
    """Every step was normalised with numbers of its own, near those of its rows: a batch has rows that are not here."""
    count, codes = int(parts.max()) + 1, log.table["group"].to_numpy()
    for candidate in _plain(tried) if count >= STEPS else ():
        values = log.formulas.advantages(candidate.plan)
        kinds = pl.DataFrame({"part": parts, "value": np.round(values, 5)}).unique()["part"].to_numpy()
        slope, offset = slopes(values, log.logged, parts)
        off = np.abs(slope[parts] * values + offset[parts] - log.logged)
        if np.bincount(kinds, minlength=count).min() < KINDS or not (off <= log.tolerance.of(log.logged)).all():
            continue
        stds = np.array([values[parts == part].std() for part in range(count)])
        is_near = (slope * stds > 1 / LIKE_HERE) & (slope * stds < LIKE_HERE)
        if is_near.all() and np.ptp(slope) > APART * slope.max():
            by = f"times {slope.min():.3g} to {slope.max():.3g} and plus {offset.min():.2g} to {offset.max():.2g}"
            says = f"part of each batch is missing: in every file or step the advantages are those of {candidate.name} {by}, as a mean or std of more rows makes them"
            return _of_log("partial batch", says, codes)
    return None


def _length(log: Trial) -> Cause | None:
    """In groups of equal rewards, advantages rise with the length everywhere, or fall everywhere."""
    if "length" not in log.table.columns:
        return None
    codes, length = log.table["group"].to_numpy(), log.table["length"].to_numpy()
    constant = np.all([np.isfinite(values) for values in constant_groups(log.table)], axis=0)
    rows = np.flatnonzero(constant[codes] & np.isfinite(log.logged))
    rows = rows[np.lexsort((length[rows], codes[rows]))]
    change, allowed = np.diff(log.logged[rows]), 2 * log.tolerance.of(log.logged[rows[1:]])
    longer = (np.diff(codes[rows]) == 0) & (np.diff(length[rows]) > 0) & (np.abs(change) > allowed)
    moved = np.isin(np.arange(len(constant)), codes[rows[1:]][longer])
    falls = int((change[longer] < 0).sum())
    if longer.sum() < PAIRS or moved.sum() < GROUPS or falls not in {0, longer.sum()}:
        return None
    how = ("penalty", "fall") if falls else ("bonus", "rise")
    says = f"a length {how[0]}: in all {moved.sum()} groups of equal rewards that differ, the advantages {how[1]} with the length"
    return cause("length", says, codes, moved)


def _of_log(name: str, says: str, codes: Codes | Index) -> Cause:
    """A cause of all groups."""
    return cause(name, says, codes, np.bincount(codes) > 0)
