"""Why some groups disagree with the formula that explains the others.

Each test of a likely cause returns the groups that it explains; the first such test counts. One cause may concern a whole log: advantages
were shifted, batches or groups have rows that are not here, lengths were penalised. Nearly every row differs then, and it replaces those of the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import Candidate, plain_method
from grpo_cli.auditing.float32 import constant_groups, noise_of
from grpo_cli.auditing.formulas import Formulas, formula_key
from grpo_cli.auditing.solve import INSIDE
from grpo_cli.auditing.trial import SAMPLE, SPARE_EQUATIONS, Trial, evidence, slopes
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.group_stats import AnyCodes, Mask, Matrix, group_extremes, group_means
from grpo_cli.engine.moments import Codes, Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip
from grpo_cli.engine.score import advantages
from grpo_cli.read.group_keys import blocks, encode

SPIKE: Final = 2.0**-10  # relative float32 error of the std of equal rewards, computed as sqrt(E[r^2] - E[r]^2)
MEAN_ERROR: Final = 2.0**-22  # relative float32 error of a mean
SPLITS: Final = (2, 4, 8, 16, 32, 64)
FRAGMENTS: Final = "every row of a rollout was counted, so its reward weighs more; by its id, a rollout counts once"
LINE: Final = 3  # rows of a group, at least: fewer are always on a line
# Of a whole log:
SHIFTS: Final = 64  # rows by which advantages may be shifted
MOST: Final = 0.75  # share of the rows that a shift has to explain, even if each file was shifted separately
LARGEST: Final = 64  # rows of a group that was cut
WHOLE: Final = 0.05  # how far the number of higher rewards of a whole group may be from an integer
TWO: Final = 2  # distinct rewards: otherwise the missing rows of a group cannot be solved
PAIRS: Final = 20  # rows beside a shorter one of equal reward and another advantage, at least
GROUPS: Final = 3  # groups with such pairs, at least
STEPS: Final = 3  # that have a mean or std of their own, at least
KINDS: Final = 5  # distinct values in each of them: three more than the two numbers that are solved
LIKE_HERE: Final = 2.0  # how many times the std of the rows that are here may that of the whole batch be
APART: Final = 1e-3  # relative difference of the stds of steps


@dataclass(frozen=True)
class Cause:
    """What explains groups that disagree."""

    cause: str
    says: str
    groups: int
    rows: int


@dataclass(frozen=True)
class Case:
    """The rows of groups that disagree, and the formula that they should follow."""

    plan: Plan
    table: pl.DataFrame  # groups are numbered without gaps
    computed: Vector
    logged: Vector
    tolerance: Vector  # of each row
    usual: int  # the most frequent size of a group
    # The lowest and the highest logged value; infinite if the values were not clipped there.
    bounds: tuple[float, float]

    @cached_property
    def codes(self) -> Index:
        """The group of every row."""
        return self.table["group"].to_numpy().astype(np.int64)

    @cached_property
    def sizes(self) -> Index:
        """The number of rows of every group."""
        return np.bincount(self.codes)

    @cached_property
    def same(self) -> Mask:
        """The rows whose logged values are as computed."""
        return np.asarray(np.abs(self.computed - self.logged) <= self.tolerance)

    @cached_property
    def reward(self) -> Vector:
        """The first reward of every row."""
        return self.table["reward.0"].fill_null(np.nan).to_numpy()

    def agrees(self, values: Vector) -> Mask:
        """The groups whose logged values are all equal to these."""
        both = np.isnan(values) & np.isnan(self.logged)
        return self.every((np.abs(values - self.logged) <= self.tolerance) | both)

    def every(self, flags: Mask) -> Mask:
        """The groups whose rows are all flagged."""
        return np.asarray(np.bincount(self.codes, ~flags) == 0)

    def ends(self, values: Vector) -> tuple[Vector, Vector]:
        """The lowest and the highest of the values that are numbers, of every group."""
        known = ~np.isnan(values)
        return group_extremes(self.codes[known], values[known], len(self.sizes))

    def scored(self, codes: pl.Series | None = None, **unit: Any) -> Vector:
        """The advantages with other groups, or with another way to count the rows of a rollout."""
        plan = replace(self.plan, unit=replace(self.plan.unit, **unit))
        return advantages(plan, self.table if codes is None else self.table.with_columns(group=codes))


def causes(
    plan: Plan, table: pl.DataFrame, computed: Vector, logged: Vector, wrong: Mask, tolerance: Vector
) -> list[Cause]:
    """The causes, each with the number of groups and rows that it explains; the rest is `unexplained`."""
    if not wrong.any():
        return []
    codes = table["group"].to_numpy()
    bad = np.unique(codes[wrong])
    rows = np.isin(codes, bad)
    part = table.filter(pl.Series(rows)).with_columns(pl.col("group").rank("dense").cast(pl.UInt32) - 1)
    usual = int(np.bincount(np.bincount(codes)).argmax())
    case = Case(plan, part, computed[rows], logged[rows], tolerance[rows], usual, _bounds(computed, logged, wrong))
    left = np.ones(len(bad), dtype=bool)
    result = []
    for name, says, test in _TESTS:
        explained = np.asarray(test(case) & left)
        if explained.any():
            result.append(cause(name, says, case.codes, explained))
            left &= ~explained
    return result


def _bounds(computed: Vector, logged: Vector, wrong: Mask) -> tuple[float, float]:
    """The lowest and the highest logged value, each infinite if nothing shows that values were clipped there.

    Every log has these: several distinct values between them have to be as computed, and several values of the formula have to be logged as a bound.
    """
    low, high = float(np.nanmin(logged)), float(np.nanmax(logged))
    inside = ~wrong & (logged > low) & (logged < high) & (logged != 0)
    is_clip = _distinct(logged[inside]) >= INSIDE
    cut = [is_clip and _distinct(computed[wrong & (logged == end)]) > 1 for end in (low, high)]
    return low if cut[0] else -np.inf, high if cut[1] else np.inf


def _distinct(values: Vector) -> int:
    return len(np.unique(np.round(values, 5)))


def noise_cause(noisy: Mask, table: pl.DataFrame) -> Cause:
    """The cause of advantages that differ only by the float32 noise of these groups, which whitening spread."""
    says = (
        "the float32 mean of equal rewards is off in its last bits; divided by epsilon and spread over the batch by whitening, "
        "this noise explains every difference"
    )
    return cause("float32 noise", says, table["group"].to_numpy(), noisy)


def cause(name: str, says: str, codes: Codes | Index, groups: Mask) -> Cause:
    """A cause, with the number of the groups and of their rows."""
    return Cause(cause=name, says=says, groups=int(groups.sum()), rows=int(groups[codes].sum()))


# --- tests -------------------------------------------------------------------------------------------------


def _rounding(case: Case) -> Mask:
    """The same value on all rows of a constant group: the float32 error of the mean, divided as in the formula."""
    (reward, *others), rule = constant_groups(case.table), case.plan.divisor
    least, most = case.ends(case.logged)
    if others or rule.level != "group":
        small = np.abs(most) <= MEAN_ERROR * np.abs(reward)
    else:
        tolerance = group_means(case.codes, case.tolerance, len(case.sizes))
        small = np.zeros(len(reward), dtype=bool)
        for group, value in enumerate(reward.tolist()):
            noise = noise_of(value, int(case.sizes[group]), rule)
            for clip in (op for op in case.plan.post if isinstance(op, Clip)):
                noise = np.clip(noise, clip.lo, clip.hi)
            small[group] = np.abs(noise - most[group]).min() <= tolerance[group]
    return np.asarray((most == least) & small & case.every(case.computed == 0))


def _clipped(case: Case) -> Mask:
    least, most = case.bounds
    at_top = (case.logged == most) & (case.computed > most) & (most > 0)
    at_bottom = (case.logged == least) & (case.computed < least) & (least < 0)
    return case.every(case.same | at_top | at_bottom)


def _spiked(case: Case) -> Mask:
    """All other rows of the group are equal, and the row was divided by the float32 error of their std, which is 0."""
    low, high = case.ends(np.where(case.same, case.reward, np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = case.computed / case.logged
    small = (spread > 0) & (spread <= SPIKE * np.abs(low[case.codes]))
    lone = (np.bincount(case.codes, ~case.same) == 1) & (low == high)
    by_others = case.plan.divisor.of == "others" and "reward.1" not in case.table.columns
    return np.asarray(case.every(case.same | small) & lone & by_others)


def _order(case: Case) -> Mask:
    """The same values on other rows of the group."""
    order = np.lexsort((case.computed, case.codes))
    other = np.lexsort((case.logged, case.codes))
    same = np.empty(len(order), dtype=bool)
    same[order] = np.abs(case.computed[order] - case.logged[other]) <= case.tolerance[other]
    return case.every(same)


def _blocks(case: Case, sizes: Sequence[int]) -> Mask:
    """Groups that agree if they are cut into blocks of one of these sizes."""
    explained = np.zeros(len(case.sizes), dtype=bool)
    for size in () if case.plan.uses_batch else sizes:
        cut = blocks(encode([case.table["group"]], len(case.table)), size)
        explained |= case.agrees(case.scored(cut.codes)) & (case.sizes > size) & (case.sizes % size == 0)
    return explained


def _fragments(case: Case) -> Mask:
    """Groups that agree if every row of a rollout counts."""
    if case.plan.unit.take == "each" or case.plan.uses_batch or "rollout" not in case.table.columns:
        return np.zeros(len(case.sizes), dtype=bool)
    return case.agrees(case.scored(take="each"))


def counted_per_fragment(plan: Plan, table: pl.DataFrame, computed: Vector, tolerance: Vector) -> list[Cause]:
    """For a plan that counts every row: the groups whose advantages would differ if each rollout counted once."""
    if plan.unit.take != "each" or "rollout" not in table.columns:
        return []
    once = advantages(replace(plan, unit=replace(plan.unit, take="last")), table)
    codes = table["group"].to_numpy()
    other = np.bincount(codes, np.abs(once - computed) > tolerance) > 0
    return [cause("counted per fragment", FRAGMENTS, codes, other)] if other.any() else []


def _other_rows(case: Case) -> Mask:
    """A rising line over the formula's values, with another slope or offset: the mean or the std includes other rows."""
    slope, offset = slopes(case.computed, case.logged, case.codes)
    line = slope[case.codes] * case.computed + offset[case.codes]
    # If one end is as computed, only the other was changed: any two values lie on a line.
    both, moved = case.ends(case.computed), case.ends(np.where(case.same, np.nan, case.computed))
    return np.asarray(
        case.agrees(line) & (slope > 0) & (both[0] == moved[0]) & (both[1] == moved[1]) & (case.sizes >= LINE)
    )


_TESTS: Final[tuple[tuple[str, str, Callable[[Case], Mask]], ...]] = (
    ("zeroed", "every row of the group was logged as 0: it was dropped, masked or filtered", lambda case: case.every(case.logged == 0)),
    ("rounding", "float32 noise in a constant group: the mean of equal rewards is off in its last bits, where the formula gives 0", _rounding),
    ("spike", "float32 leave-one-out spikes: the other rewards are equal, and the row was divided by the float32 error of their std, E[r^2] - E[r]^2 (NeMo-RL before its pull request 4158)", _spiked),
    ("clipped", "the logged values stop at a bound that the formula passes: they were clipped", _clipped),
    ("sign", "the logged values have the opposite sign", lambda case: case.agrees(-case.computed)),
    ("order", "the values of the group are right, on other rows: rows and advantages were shuffled", _order),
    ("counted per fragment", FRAGMENTS, _fragments),
    ("merged", "blocks of the usual size agree: the key merges several prompts or rounds (--group-size splits it)", lambda case: _blocks(case, [case.usual])),
    ("split", "parts of the group agree: it was split, for instance over workers, before it was scored", lambda case: _blocks(case, SPLITS)),
    ("other rows", "another mean or std, ddof or epsilon: rows of the group are missing here, or were added", _other_rows),
    ("unexplained", "no likely cause was found", lambda case: case.sizes > 0),
)  # fmt: skip

# --- causes of a whole log -----------------------------------------------------------------------------


def cause_of_log(log: Trial, tried: Sequence[Candidate], parts: Codes) -> Cause | None:
    """The cause that explains the whole log; None if there is none.

    Called only if no formula in `tried` explains the log; `parts` numbers the file and the step of every row.
    """
    return _shift(log, tried, parts) or _partial(log, tried, parts) or _cut(log, tried) or _length(log)


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


def _cut(log: Trial, tried: Sequence[Candidate]) -> Cause | None:
    """Groups with two distinct rewards that were cut after advantages were computed: all had the same size before.

    The missing rows are solved from the advantages, so several different groups have to confirm them.
    """
    reward, codes = log.table["reward.0"].to_numpy(), log.table["group"].to_numpy()
    rewards, is_high = np.unique(reward), reward == np.nanmax(reward)
    is_finite = np.isfinite(rewards).all() and np.isfinite(log.logged).all()
    if "reward.1" in log.table.columns or len(rewards) != TWO or not is_finite:
        return None
    allowed = float(log.tolerance.of(log.logged).max())
    seen = _of_both(codes, log.logged, is_high)
    if (np.abs(seen[codes, is_high.astype(int)] - log.logged) > allowed).any():
        return None
    # Groups with the same rewards and advantages count once.
    kinds = np.column_stack([seen, np.bincount(codes, is_high), np.bincount(codes)])
    kinds = np.unique(np.nan_to_num(kinds, nan=np.inf), axis=0)
    seen, high, kept = kinds[:, :TWO], kinds[:, 2], kinds[:, 3]
    both = np.isfinite(seen).all(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(both, seen[:, 0] / (seen[:, 0] - seen[:, 1]), 0.0)  # of the whole group
    largest = int(kept.max())
    sizes = range(largest, LARGEST + 1) if np.isfinite(rate).all() else ()
    n = next((n for n in sizes if (np.abs(rate * n - np.round(rate * n)) < WHOLE).all()), largest)
    # Groups of this size with 0, 1, ... n higher rewards.
    whole, place = np.divmod(np.arange((n + 1) * n, dtype=np.uint32), n)
    table = pl.DataFrame({"group": whole, "reward.0": rewards[(place < whole).astype(int)]})
    formulas = Formulas(table.with_columns(batch=pl.lit(0, pl.UInt32)))
    plain = [one for one in _plain(tried) if one.plan.estimator.order_free and n > largest]
    formulas.compute(one.plan for one in plain)
    more = np.arange(n + 1) - high[:, None]  # how many of the missing rows have the higher reward
    for one in plain:
        given = _of_both(whole, formulas.advantages(one.plan), place < whole)
        same = (np.abs(given - seen[:, None]) <= allowed) | ~np.isfinite(seen)[:, None]
        fits = (more >= 0) & (more <= n - kept[:, None]) & same.all(axis=2)
        if fits.any(axis=1).all() and _is_confirmed(seen, kinds[:, TWO:], fits.argmax(axis=1)):
            sizes_ = f"{kept.min():g}" if kept.min() == largest else f"{kept.min():g} to {largest}"
            return _of_log(
                "cut",
                f"groups were cut to {sizes_} of {n}: with the missing rows {one.name} gives every advantage",
                codes,
            )
    return None


def _of_both(codes: AnyCodes, values: Vector, is_high: Mask) -> Matrix:
    """For each group, the value of one of its rows with the lower and with the higher reward; NaN if it has none."""
    found = np.full((int(codes.max()) + 1, TWO), np.nan)
    found[codes, is_high.astype(int)] = values
    return found


def _is_confirmed(seen: Matrix, here: Matrix, solved: Index) -> bool:
    """Whether distinct groups confirm the solved numbers of higher rewards.

    If the rows `here` determined the missing ones, a formula of the rows here alone would explain the log.
    """
    free = len(np.unique(np.column_stack([here, solved]), axis=0)) - len(np.unique(here, axis=0))
    equations = sum(len(np.unique(solved[np.isfinite(column)])) for column in seen.T)
    return equations >= 1 + len(np.unique(solved)) + SPARE_EQUATIONS and free >= SPARE_EQUATIONS


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
