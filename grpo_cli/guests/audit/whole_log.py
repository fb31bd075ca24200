"""What is the matter with a whole log that no formula explains: one cause, and nearly every row differs.

Advantages were shifted or shuffled, batches or groups have rows that are not here, lengths were penalised.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import AnyCodes, Mask, Matrix, group_extremes
from grpo_cli.engine.moments import Codes, Index, Vector
from grpo_cli.guests.audit.baselines import starts_of
from grpo_cli.guests.audit.candidates import Candidate, plain_method, plainness
from grpo_cli.guests.audit.causes import Cause, cause
from grpo_cli.guests.audit.float32 import constant_groups
from grpo_cli.guests.audit.readings import SAMPLE
from grpo_cli.guests.audit.trial import FAR, SPARE_EQUATIONS, Log, equal, slopes

SHIFTS = 64  # rows by which advantages may be shifted
COMPARED = 500  # rows from all over the log that rule a shift out: chance moves their share by a few per cent
MOST = 0.75  # share of the rows that a shift has to explain, even if each file was shifted separately
LARGEST = 64  # rows of a group that was cut
WHOLE = 0.05  # how far the number of higher rewards of a whole group may be from an integer
TWO = 2  # distinct rewards: otherwise the missing rows of a group cannot be solved
PAIRS = 20  # rows beside a shorter one of equal reward and another advantage, at least
GROUPS = 3  # groups with such pairs, at least
STEPS = 3  # that have a mean or std of their own, at least
KINDS = 5  # distinct values in each of them: three more than the two numbers that are solved
LIKE_HERE = 2.0  # how many times the std of the rows that are here may that of the whole batch be
APART = 1e-3  # relative difference of the stds of steps


def cause_of_log(log: Log, tried: Sequence[Candidate], parts: Codes) -> Cause | None:
    """The cause that explains the whole log; None if there is none.

    Called only if no formula in `tried` explains the log; `parts` numbers the file and the step of every row.
    """
    whole = log.whole
    return (
        _shift(whole, tried, parts)
        or _permuted(log, tried)
        or _partial(log, tried, parts)
        or _cut(whole, tried)
        or _length(whole)
    )


def _plain(tried: Sequence[Candidate], log: Log) -> list[tuple[Candidate, Vector]]:
    """Each formula that reads only the shaped rewards of the group, the simplest first, and its advantages."""
    of_groups = [one for one in tried if not one.plan.uses_batch]
    starts = starts_of([one for one in of_groups if log.may_be_near(one.plan)], log)
    log.formulas.compute(plan for start in starts for plan in start.parts_of_rules)
    computed = [(one, start.divided(one, rule)) for start in starts for one, rule in start.members]
    computed.sort(key=lambda each: plainness(each[0]))
    distinct = dict[bytes, tuple[Candidate, Vector]]()
    for one, values in computed:
        distinct.setdefault(values.tobytes(), (one, values))
    return [*distinct.values()]


def _shift(log: Log, tried: Sequence[Candidate], parts: Codes) -> Cause | None:
    """Every row has the advantage of another row, the same number of rows (at most SHIFTS) away.

    If each file or step was shifted separately, the rows at its ends may differ.
    """
    # The first rows of the file, up to the first group that has rows beyond them.
    goes_on = np.isin(log.codes[:SAMPLE], log.codes[SAMPLE:])
    last = int(np.append(goes_on, values=True).argmax())
    head = Log.of(log.table.head(last), log.logged[:last]).read_as(*log.readings)
    if not last or not head.evidence(tried[0].plan).suffices(1):
        return None
    allowed, plain = head.allowed, _plain(tried, head)
    given = np.stack([values for _, values in plain])
    few = slice(None, None, max(last // COMPARED, 1))
    sizes = range(1, min(SHIFTS, last // 4) + 1)
    for by in (sign * size for size in sizes for sign in (1, -1)):
        here = slice(max(by, 0), last + min(by, 0))
        there = slice(max(-by, 0), last - max(by, 0))
        shifted, logged, most = given[:, there], head.logged[here], allowed[here]
        near_few = np.abs(shifted[:, few] - logged[few]) <= most[few]
        if near_few.mean(axis=1).max() < MOST / 2:  # no formula is near: all rows need not be compared
            continue
        near = np.abs(shifted - logged) <= most
        is_end = parts[here] != parts[there]
        fits = (near.mean(axis=1) >= MOST) & (near | is_end).all(axis=1)
        if fits.any():
            at = fits.argmax()
            one, _ = plain[at]
            name = plain_method(one.plan) or one.name
            rows = "1 row" if abs(by) == 1 else f"{abs(by)} rows"
            by_part = "" if near[at].all() else " within each file or step"
            says = f"shifted by {rows}{by_part}: every row has the advantage that {name} gives {rows} further {'up' if by > 0 else 'down'}"
            return _of_log("shift", says, log)
    return None


def _permuted(log: Log, tried: Sequence[Candidate]) -> Cause | None:
    """Each group has the advantages that a formula gives it, and most groups have them on other rows; a few are causes of their own."""
    for one, shown in _plain(tried, log):
        if not log.evidence(one.plan).suffices(1) or not _in_some_order(log, shown):
            continue
        whole = log.whole
        if _in_some_order(whole, whole.formulas.advantages(one.plan)):
            name = plain_method(one.plan) or one.name
            says = f"shuffled within groups: each group has the advantages that {name} gives it, on other rows"
            return _of_log("order", says, whole)
    return None


def _in_some_order(log: Log, values: Vector) -> bool:
    """Whether the values of each group are those that were logged, and most groups whose values vary have them in another order."""
    given, logged = np.lexsort((values, log.codes)), np.lexsort((log.logged, log.codes))
    if not equal(values[given], log.logged[logged], log.allowed[logged]).all():
        return False
    size = log.codes.max(initial=0) + 1
    low, high = group_extremes(log.codes, log.logged, size)
    moved = np.bincount(log.codes, ~equal(values, log.logged, log.allowed), size) > 0
    return bool(moved.sum() > FAR * (high - low > log.allowed.max()).sum())


def _partial(log: Log, tried: Sequence[Candidate], parts: Codes) -> Cause | None:
    """Every step was normalised with numbers of its own, near those of its rows: a batch has rows that are not here."""
    count = parts.max() + 1

    def lines(values: Vector, rows: Log, of: Codes) -> tuple[Vector, Vector, Mask]:
        slope, offset = slopes(values, rows.logged, of)
        away = np.abs(slope[of] * values + offset[of] - rows.logged)
        return slope, offset, away <= rows.allowed

    for one, shown in _plain(tried, log) if count >= STEPS else ():
        if not lines(shown, log, parts[log.formulas.rows])[2].all():
            continue
        values = log.whole.formulas.advantages(one.plan)
        slope, offset, near = lines(values, log.whole, parts)
        distinct = pl.DataFrame({"part": parts, "value": np.round(values, 5)}).unique()
        kinds = np.bincount(distinct["part"].to_numpy())
        stds = np.array([values[parts == part].std() for part in range(count)])
        here = slope * stds  # 1 if the std is that of the rows that are here
        is_like_here = (here > 1 / LIKE_HERE) & (here < LIKE_HERE)
        differ = np.ptp(slope) > APART * slope.max()
        if near.all() and is_like_here.all() and kinds.min() >= KINDS and differ:
            by = f"times {slope.min():.3g} to {slope.max():.3g} and plus {offset.min():.2g} to {offset.max():.2g}"
            says = f"part of each batch is missing: in every file or step the advantages are those of {one.name} {by}, as a mean or std of more rows makes them"
            return _of_log("partial batch", says, log.whole)
    return None


def _cut(log: Log, tried: Sequence[Candidate]) -> Cause | None:
    """Groups with two distinct rewards that were cut after advantages were computed: all had the same size before.

    The missing rows are solved from the advantages, so several different groups have to confirm them.
    """
    reward, codes = log.table["reward.0"].to_numpy(), log.codes
    rewards, is_high = np.unique(reward), reward == np.nanmax(reward)
    is_finite = np.isfinite(rewards).all() and np.isfinite(log.logged).all()
    if "reward.1" in log.table.columns or len(rewards) != TWO or not is_finite:
        return None
    allowed = log.allowed.max()
    seen = _of_both(codes, log.logged, is_high)
    if (np.abs(seen[codes, is_high.astype(int)] - log.logged) > allowed).any():
        return None
    # Groups with the same rewards and advantages count once.
    kinds = np.column_stack([seen, np.bincount(codes, is_high), np.bincount(codes)])
    kinds = np.unique(np.nan_to_num(kinds, nan=np.inf), axis=0)
    seen, high, kept = kinds[:, :TWO], kinds[:, 2], kinds[:, 3]
    is_seen, largest = np.isfinite(seen), int(kept.max())
    n = _size_before(seen, largest)
    if n == largest:
        return None
    # Groups of this size with 0, 1, ... n higher rewards.
    whole, place = np.divmod(np.arange((n + 1) * n, dtype=np.uint32), n)
    of_whole = place < whole
    table = pl.DataFrame({"group": whole, "reward.0": rewards[of_whole.astype(int)]})
    every = Log.of(table.with_columns(batch=pl.lit(0, pl.UInt32)), np.zeros(len(table)))
    more = np.arange(n + 1) - high[:, None]  # how many of the missing rows have the higher reward
    is_possible = (more >= 0) & (more <= n - kept[:, None])
    # The missing rows have no length and no KL.
    of_rewards = [one for one in tried if one.plan.estimator.order_free and not one.plan.needs]
    for one, values in _plain(of_rewards, every):
        away = np.abs(_of_both(whole, values, of_whole) - seen[:, None])
        same = (away <= allowed) | ~is_seen[:, None]
        fits = is_possible & same.all(axis=2)
        if fits.any(axis=1).all() and _is_confirmed(seen, kinds[:, TWO:], fits.argmax(axis=1)):
            to = f"{largest}" if kept.min() == largest else f"{kept.min():g} to {largest}"
            says = f"groups were cut to {to} of {n}: with the missing rows {one.name} gives every advantage"
            return _of_log("cut", says, log)
    return None


def _size_before(seen: Matrix, largest: int) -> int:
    """The size of all groups with which the advantages of both rewards give whole numbers of higher rewards; else the largest."""
    low, high = seen[np.isfinite(seen).all(axis=1)].T
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = low / (low - high)
    sizes = range(largest, LARGEST + 1) if np.isfinite(rate).all() else ()
    for size in sizes:
        higher = rate * size
        if (np.abs(higher - np.round(higher)) < WHOLE).all():
            return size
    return largest


def _of_both(codes: AnyCodes, values: Vector, is_high: Mask) -> Matrix:
    """For each group, the value of one of its rows with the lower and with the higher reward; NaN if it has none."""
    found = np.full((codes.max() + 1, TWO), np.nan)
    found[codes, is_high.astype(int)] = values
    return found


def _is_confirmed(seen: Matrix, here: Matrix, solved: Index) -> bool:
    """Whether distinct groups confirm the solved numbers of higher rewards.

    If the rows `here` determined the missing ones, a formula of the rows here alone would explain the log.
    """
    both = np.column_stack([here, solved])
    free = len(np.unique(both, axis=0)) - len(np.unique(here, axis=0))
    equations = sum(len(np.unique(solved[np.isfinite(column)])) for column in seen.T)
    needed = 1 + len(np.unique(solved)) + SPARE_EQUATIONS
    return equations >= needed and free >= SPARE_EQUATIONS


def _length(log: Log) -> Cause | None:
    """In groups of equal rewards, advantages rise with the length everywhere, or fall everywhere."""
    if "length" not in log.table.columns:
        return None
    constant = np.all([np.isfinite(values) for values in constant_groups(log.table)], axis=0)
    allowed = 2 * log.allowed
    rows = log.table.select("group", "length", logged=pl.Series(log.logged), allowed=allowed)
    rows = rows.filter(pl.Series(constant[log.codes]) & pl.col("logged").is_finite()).sort("group", "length")
    steps = rows.with_columns(pl.col("length", "logged").diff().over("group"))
    is_change = pl.col("logged").abs() > pl.col("allowed")
    steps = steps.filter((pl.col("length") > 0) & is_change)
    moved = np.isin(np.arange(len(constant)), steps["group"])
    falls = (steps["logged"] < 0).sum()
    if len(steps) < PAIRS or moved.sum() < GROUPS or falls not in {0, len(steps)}:
        return None
    kind, go = ("penalty", "fall") if falls else ("bonus", "rise")
    says = f"a length {kind}: in all {moved.sum()} groups of equal rewards that differ, the advantages {go} with the length"
    return cause("length", says, log.codes, moved)


def _of_log(name: str, says: str, log: Log) -> Cause:
    """A cause of all groups."""
    return cause(name, says, log.codes, np.bincount(log.codes) > 0)
