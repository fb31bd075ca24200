"""Why some groups disagree with the formula that explains the others.

Each test of a likely cause returns the groups that it explains; the first such test counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Mask, group_extremes, group_means
from grpo_cli.engine.moments import Codes, Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip
from grpo_cli.engine.score import advantages
from grpo_cli.guests.audit.bends import INSIDE
from grpo_cli.guests.audit.float32 import constant_groups, noise_of
from grpo_cli.guests.audit.trial import Judged, equal, slopes
from grpo_cli.read.group_keys import blocks, encode

SPIKE = 2.0**-10  # relative float32 error of the std of equal rewards, computed as sqrt(E[r^2] - E[r]^2)
MEAN_ERROR = 2.0**-22  # relative float32 error of a mean
SPLITS = (2, 4, 8, 16, 32, 64)
FRAGMENTS = "every row of a rollout was counted, so its reward weighs more; by its id, a rollout counts once"
LINE = 3  # rows of a group, at least: fewer are always on a line


@dataclass(frozen=True)
class Cause:
    """What explains groups that disagree."""

    cause: str  # its short name, such as `zeroed` or `clipped`; `unexplained` if no test explains the groups
    says: str  # the cause as a sentence
    groups: int  # that it explains
    rows: int  # of these groups, also those that agree with the formula


class Case(NamedTuple):
    """The rows of groups that disagree with a formula."""

    judged: Judged  # all rows
    plan: Plan  # of the formula
    table: pl.DataFrame  # groups are numbered without gaps
    codes: Index  # the group of each row, numbered as in `table`
    sizes: Index  # of groups
    computed: Vector  # the advantage of each row by the formula
    logged: Vector  # the advantage of each row that the file has
    tolerance: Vector  # of each row
    same: Mask  # the rows whose logged values are as computed

    def agrees(self, values: Vector) -> Mask:
        """The groups whose logged values are all equal to these."""
        return self.every(equal(values, self.logged, self.tolerance))

    def every(self, flags: Mask) -> Mask:
        """The groups whose rows are all flagged."""
        return np.asarray(np.bincount(self.codes, ~flags) == 0)

    def ends(self, values: Vector) -> tuple[Vector, Vector]:
        """The lowest and the highest of the values that are numbers, of every group."""
        known = ~np.isnan(values)
        return group_extremes(self.codes[known], values[known], len(self.sizes))


def causes(judged: Judged) -> list[Cause]:
    """The causes, each with the number of groups and rows that it explains; the rest is `unexplained`."""
    log = judged.log
    rows = np.isin(log.codes, log.codes[judged.wrong])
    without_gaps = pl.col("group").rank("dense").cast(pl.UInt32) - 1
    table = log.table.filter(pl.Series(rows)).with_columns(without_gaps)
    codes = table["group"].to_numpy().astype(np.int64)
    logged, sizes = log.logged[rows], np.bincount(codes)
    tolerance, same = judged.allowed[rows], ~judged.wrong[rows]
    case = Case(judged, judged.candidate.plan, table, codes, sizes, judged.computed[rows], logged, tolerance, same)
    left = np.ones(len(sizes), bool)
    result = []
    for name, says, test in _TESTS:
        explained = test(case) & left
        if explained.any():
            result.append(cause(name, says, case.codes, explained))
            left &= ~explained
    return result


def _distinct(values: Vector) -> int:
    return len(np.unique(np.round(values, 5)))


def noise_cause(noisy: Mask, codes: Codes) -> Cause:
    """The cause of advantages that differ only by the float32 noise of these groups, which whitening spread."""
    says = (
        "the float32 mean of equal rewards is off in its last bits; divided by epsilon and spread over the batch by whitening, "
        "this noise explains every difference"
    )
    return cause("float32 noise", says, codes, noisy)


def cause(name: str, says: str, codes: Codes | Index, groups: Mask) -> Cause:
    """A cause, with the number of the groups and of their rows."""
    return Cause(name, says, int(groups.sum()), int(groups[codes].sum()))


# --- tests -------------------------------------------------------------------------------------------------


def _rounding(case: Case) -> Mask:
    """The same value on all rows of a constant group: the float32 error of the mean, divided as in the formula."""
    (reward, *others), rule = constant_groups(case.table), case.plan.divisor
    least, most = case.ends(case.logged)
    if others or rule.level != "group":
        small = np.abs(most) <= MEAN_ERROR * np.abs(reward)
    else:
        tolerance = group_means(case.codes, case.tolerance, len(case.sizes))
        small = np.zeros(len(reward), bool)
        for group, value in enumerate(reward.tolist()):
            noise = noise_of(value, int(case.sizes[group]), rule)
            for clip in (op for op in case.plan.post if isinstance(op, Clip)):
                noise = np.clip(noise, clip.lo, clip.hi)
            small[group] = np.abs(noise - most[group]).min() <= tolerance[group]
    return np.asarray((most == least) & small & case.every(case.computed == 0))


def _clipped(case: Case) -> Mask:
    """The formula passes the lowest or the highest logged value.

    Every log has these: several distinct values between them have to be as computed, and several values of the formula have to be logged as a bound.
    """
    logged, computed, wrong = case.judged.log.logged, case.judged.computed, case.judged.wrong
    low, high = np.nanmin(logged), np.nanmax(logged)
    inside = (logged > low) & (logged < high) & (logged != 0)
    beyond = np.zeros(len(case.codes), bool)
    if _distinct(logged[inside & ~wrong]) < INSIDE:
        return case.every(case.same)
    for end, sign in ((low, -1), (high, 1)):
        at_end = wrong & (logged == end)
        if sign * end > 0 and _distinct(computed[at_end]) > 1:
            passes = sign * case.computed > sign * end
            beyond |= passes & (case.logged == end)
    return case.every(case.same | beyond)


def _spiked(case: Case) -> Mask:
    """All other rows of the group are equal, and the row was divided by the float32 error of their std, which is 0."""
    reward = case.table["reward.0"].fill_null(np.nan).to_numpy()
    by_others = case.plan.divisor.of == "others" and "reward.1" not in case.table.columns
    low, high = case.ends(np.where(case.same, reward, np.nan))
    is_lone = np.bincount(case.codes, ~case.same) == 1
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = case.computed / case.logged
    largest = SPIKE * np.abs(low)
    small = (spread > 0) & (spread <= largest[case.codes])
    return np.asarray(case.every(case.same | small) & is_lone & (low == high) & by_others)


def _order(case: Case) -> Mask:
    """The same values on other rows of the group."""
    order = np.lexsort((case.computed, case.codes))
    other = np.lexsort((case.logged, case.codes))
    same = np.empty(len(order), bool)
    same[order] = np.abs(case.computed[order] - case.logged[other]) <= case.tolerance[other]
    return case.every(same)


def _blocks(case: Case, sizes: Iterable[int]) -> Mask:
    """Groups that agree if they are cut into blocks of one of these sizes."""
    explained = np.zeros(len(case.sizes), bool)
    coded = encode([case.table["group"]])
    for size in () if case.plan.uses_batch else sizes:
        cut = case.table.with_columns(group=blocks(coded, size).codes)
        several_whole = (case.sizes > size) & (case.sizes % size == 0)
        explained |= case.agrees(advantages(case.plan, cut)) & several_whole
    return explained


def _usual_blocks(case: Case) -> Mask:
    sizes = np.bincount(case.judged.log.codes)
    return _blocks(case, [int(np.bincount(sizes).argmax())])


def _fragments(case: Case) -> Mask:
    """Groups that agree if every row of a rollout counts."""
    if case.plan.unit.take == "each" or case.plan.uses_batch or "rollout" not in case.table.columns:
        return np.zeros(len(case.sizes), bool)
    return case.agrees(_counted(case.plan, case.table, take="each"))


def counted_per_fragment(judged: Judged) -> list[Cause]:
    """For a plan that counts every row: the groups whose advantages would differ if each rollout counted once."""
    plan, log = judged.candidate.plan, judged.log
    if plan.unit.take != "each" or "rollout" not in log.table.columns:
        return []
    away = np.abs(_counted(plan, log.table, take="last") - judged.computed)
    other = np.bincount(log.codes, away > judged.allowed) > 0
    return [cause("counted per fragment", FRAGMENTS, log.codes, other)] if other.any() else []


def _counted(plan: Plan, table: pl.DataFrame, **unit: Any) -> Vector:
    """The advantages with another way to count the rows of a rollout."""
    return advantages(replace(plan, unit=replace(plan.unit, **unit)), table)


def _other_rows(case: Case) -> Mask:
    """A rising line over the formula's values, with another slope or offset: the mean or the std includes other rows."""
    slope, offset = slopes(case.computed, case.logged, case.codes)
    line = slope[case.codes] * case.computed + offset[case.codes]
    is_rising = case.agrees(line) & (slope > 0) & (case.sizes >= LINE)
    # If one end is as computed, only the other was changed: any two values lie on a line.
    low, high = case.ends(case.computed)
    lowest_moved, highest_moved = case.ends(np.where(case.same, np.nan, case.computed))
    return np.asarray(is_rising & (low == lowest_moved) & (high == highest_moved))


_TESTS: Final[tuple[tuple[str, str, Callable[[Case], Mask]], ...]] = (
    ("zeroed", "every row of the group was logged as 0: it was dropped, masked or filtered", lambda case: case.every(case.logged == 0)),
    ("rounding", "float32 noise in a group without a gradient: the mean of equal rewards is off in its last bits, where the formula gives 0", _rounding),
    ("spike", "float32 leave-one-out spikes: the other rewards are equal, and the row was divided by the float32 error of their std, E[r^2] - E[r]^2 (NeMo-RL before its pull request 4158)", _spiked),
    ("clipped", "the logged values stop at a bound that the formula passes: they were clipped", _clipped),
    ("sign", "the logged values have the opposite sign", lambda case: case.agrees(-case.computed)),
    ("order", "the values of the group are right, on other rows: rows and advantages were shuffled", _order),
    ("counted per fragment", FRAGMENTS, _fragments),
    ("merged", "blocks of the usual size agree: the key merges several prompts or rounds (--group-size splits it)", _usual_blocks),
    ("split", "parts of the group agree: it was split, for instance over workers, before it was scored", lambda case: _blocks(case, SPLITS)),
    ("other rows", "another mean or std, ddof or epsilon: rows of the group are missing here, or were added", _other_rows),
    ("unexplained", "no likely cause was found", lambda case: case.sizes > 0),
)  # fmt: skip
