"""Why some groups disagree with the formula that explains the others.

Each test of a likely cause returns the groups that it explains; the first such test counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.auditing.float32 import constant_groups, noise_of
from grpo_cli.auditing.solve import INSIDE
from grpo_cli.engine.group_stats import Mask, group_extremes, group_means
from grpo_cli.engine.moments import Codes, Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip
from grpo_cli.engine.score import score
from grpo_cli.read.group_keys import blocks, encode

SPIKE: Final = 2.0**-10  # relative float32 error of the std of equal rewards, computed as sqrt(E[r^2] - E[r]^2)
MEAN_ERROR: Final = 2.0**-22  # relative float32 error of a mean
SPLITS: Final = (2, 4, 8, 16, 32, 64)
FRAGMENTS: Final = "every row of a rollout was counted, so its reward weighs more; by its id, a rollout counts once"
LINE: Final = 3  # rows of a group, at least: fewer are always on a line


@dataclass(frozen=True, slots=True)
class Case:
    """The rows of groups that disagree, and the formula that they should follow."""

    plan: Plan
    table: pl.DataFrame
    computed: Vector
    logged: Vector
    tolerance: Vector  # of each row
    usual: int  # the most frequent size of a group
    # The lowest and the highest logged value; infinite if the values were not clipped there.
    bounds: tuple[float, float]

    @property
    def codes(self) -> Index:
        """The group of every row, numbered without gaps."""
        return self.table["group"].to_numpy().astype(np.int64)

    @property
    def sizes(self) -> Index:
        """The number of rows of every group."""
        return np.bincount(self.codes)

    def agrees(self, values: Vector) -> Mask:
        """The groups whose logged values are all equal to these."""
        same = (np.abs(values - self.logged) <= self.tolerance) | (np.isnan(values) & np.isnan(self.logged))
        return self.every(same)

    def some(self, flags: Mask) -> Mask:
        """The groups with a flagged row."""
        return np.asarray(np.bincount(self.codes, flags) > 0)

    def every(self, flags: Mask) -> Mask:
        """The groups whose rows are all flagged."""
        return ~self.some(~flags)

    @property
    def same(self) -> Mask:
        """The rows whose logged values are as computed."""
        return np.asarray(np.abs(self.computed - self.logged) <= self.tolerance)


def causes(
    plan: Plan, table: pl.DataFrame, computed: Vector, logged: Vector, wrong: Mask, tolerance: Vector
) -> list[dict[str, Any]]:
    """The causes, each with the number of groups and rows that it explains; the rest is `unexplained`."""
    if not wrong.any():
        return []
    codes = table["group"].to_numpy()
    bad = np.unique(codes[wrong])
    rows = np.isin(codes, bad)
    part = table.filter(pl.Series(rows)).with_columns(pl.col("group").rank("dense").cast(pl.UInt32) - 1)
    bounds = float(np.nanmin(logged)), float(np.nanmax(logged))
    # Every log has a lowest and a highest value: for a clip, several distinct values between them have to be as computed.
    inside = logged[~wrong & (logged > bounds[0]) & (logged < bounds[1]) & (logged != 0)]
    if len(np.unique(np.round(inside, 5))) < INSIDE:
        bounds = -np.inf, np.inf
    # Several distinct values of the formula must also have been logged as the bound.
    lo, hi = (len(np.unique(np.round(computed[wrong & (logged == end)], 5))) > 1 for end in bounds)
    bounds = bounds[0] if lo else -np.inf, bounds[1] if hi else np.inf
    usual = int(np.bincount(np.bincount(codes)).argmax())
    case = Case(plan, part, computed[rows], logged[rows], tolerance[rows], usual, bounds)
    left = np.ones(len(bad), dtype=bool)
    result = []
    for name, says, test in _TESTS:
        explained = np.asarray(test(case) & left)
        if explained.any():
            result.append(cause(name, says, case.codes, explained))
            left &= ~explained
    if left.any():
        result.append(cause("unexplained", "no likely cause was found", case.codes, left))
    return result


def noise_cause(noisy: Mask, table: pl.DataFrame) -> dict[str, Any]:
    """The cause of advantages that differ only by the float32 noise of these groups, which whitening spread."""
    says = (
        "the float32 mean of equal rewards is off in its last bits; divided by epsilon and spread over the batch by whitening, "
        "this noise explains every difference"
    )
    return cause("float32 noise", says, table["group"].to_numpy(), noisy)


def cause(name: str, says: str, codes: Codes | Index, groups: Mask) -> dict[str, Any]:
    """A cause, with the number of the groups and of their rows."""
    return {"cause": name, "says": says, "groups": int(groups.sum()), "rows": int(groups[codes].sum())}


# --- tests -------------------------------------------------------------------------------------------------


def _rounding(case: Case) -> Mask:
    """The same value on all rows of a constant group: the float32 error of the mean, divided as in the formula."""
    (reward, *others), sizes = constant_groups(case.table), case.sizes
    least, most = _extremes(case, case.logged)
    rule = case.plan.divisor
    if others or rule.level != "group":
        small = np.abs(most) <= MEAN_ERROR * np.abs(reward)
    else:
        clips = [op for op in case.plan.post if isinstance(op, Clip)]
        tolerance = group_means(case.codes, case.tolerance, len(sizes))
        small = np.zeros(len(sizes), dtype=bool)
        for group, value in enumerate(reward.tolist()):
            noise = noise_of(value, int(sizes[group]), rule)
            for clip in clips:
                noise = np.clip(noise, -np.inf if clip.lo is None else clip.lo, np.inf if clip.hi is None else clip.hi)
            small[group] = np.abs(noise - most[group]).min() <= tolerance[group]
    return np.asarray((most == least) & small & case.every(case.computed == 0))


def _clipped(case: Case) -> Mask:
    least, most = case.bounds
    at_top = (case.logged == most) & (case.computed > most) & (most > 0)
    at_bottom = (case.logged == least) & (case.computed < least) & (least < 0)
    cut = at_top | at_bottom
    return case.every(case.same | cut) & case.some(cut)


def _spiked(case: Case) -> Mask | Literal[False]:
    """All other rows of the group are equal, and the row was divided by the float32 error of their std, which is 0."""
    if case.plan.divisor.of != "others" or "reward.1" in case.table.columns:
        return False
    reward = case.table["reward.0"].to_numpy()
    low, high = (end[case.codes] for end in _extremes(case, reward))
    at_low, at_high = (np.bincount(case.codes, reward == end)[case.codes] for end in (low, high))
    lone = np.where(reward == low, at_low, at_high) == 1
    odd = lone & (at_low + at_high == case.sizes[case.codes]) & (low < high)
    others = np.where(reward == low, high, low)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = case.computed / case.logged
    spikes = odd & (spread > 0) & (spread <= SPIKE * np.abs(others))
    return case.every(case.same | spikes) & case.some(spikes)


def _scaled(case: Case) -> Mask:
    """The values of the formula times a factor of the group."""
    square = np.bincount(case.codes, case.computed**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = np.bincount(case.codes, case.computed * case.logged) / square
    values = factor[case.codes] * case.computed
    return np.asarray(case.agrees(values) & (factor > 0) & (case.sizes >= LINE))


def _order(case: Case) -> Mask:
    """The same values on other rows of the group."""
    order = np.lexsort((case.computed, case.codes))
    other = np.lexsort((case.logged, case.codes))
    same = np.empty(len(order), dtype=bool)
    same[order] = np.abs(case.computed[order] - case.logged[other]) <= case.tolerance[other]
    return case.every(same)


def _blocks(case: Case, sizes: Sequence[int]) -> Mask | Literal[False]:
    """Groups that agree if they are cut into blocks of one of these sizes."""
    explained: Mask | Literal[False] = False
    for size in () if case.plan.uses_batch else sizes:
        cut = blocks(encode([case.table["group"]], len(case.table)), size)
        values = score(case.plan, case.table.with_columns(group=cut.codes)).frame[".advantage"].to_numpy()
        explained |= case.agrees(values) & (case.sizes > size) & (case.sizes % size == 0)
    return explained


def _fragments(case: Case) -> Mask | Literal[False]:
    """Groups that agree if every row of a rollout counts."""
    if case.plan.unit.take == "each" or case.plan.uses_batch or "rollout" not in case.table.columns:
        return False
    plan = replace(case.plan, unit=replace(case.plan.unit, take="each"))
    return case.agrees(score(plan, case.table).frame[".advantage"].to_numpy())


def counted_per_fragment(plan: Plan, table: pl.DataFrame, computed: Vector, tolerance: Vector) -> list[dict[str, Any]]:
    """For a plan that counts every row: the groups whose advantages would differ if each rollout counted once."""
    if plan.unit.take != "each" or "rollout" not in table.columns:
        return []
    once = score(replace(plan, unit=replace(plan.unit, take="last")), table).frame[".advantage"].to_numpy()
    codes = table["group"].to_numpy()
    other = np.bincount(codes, np.abs(once - computed) > tolerance) > 0
    return [cause("counted per fragment", FRAGMENTS, codes, other)] if other.any() else []


def _other_rows(case: Case) -> Mask:
    """A line in the reward with another offset or slope: the mean or the std includes other rows."""
    reward = case.table["reward.0"].to_numpy()
    low, high = _extremes(case, reward)
    at_low, at_high = (value_of_groups(case.codes, case.logged, reward == end[case.codes]) for end in (low, high))
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (at_high - at_low) / (high - low)
        line = at_low[case.codes] + slope[case.codes] * (reward - low[case.codes])
    same = np.abs(line - case.logged) <= case.tolerance
    # If one end is as computed, only the other was changed: any two values lie on a line.
    wrong = (np.abs(case.logged - case.computed) > case.tolerance).astype(np.float64)
    moved = [value_of_groups(case.codes, wrong, reward == end[case.codes]) == 1 for end in (low, high)]
    return np.asarray(case.every(same) & moved[0] & moved[1] & (high > low) & (slope > 0) & (case.sizes >= LINE))


def _extremes(case: Case, values: Vector) -> tuple[Vector, Vector]:
    known = ~np.isnan(values)
    return group_extremes(case.codes[known], values[known], int(case.codes.max()) + 1)


def value_of_groups(codes: np.ndarray[Any, Any], values: Vector, rows: Mask) -> Vector:
    """For each group, the value of one of its rows among these; NaN if it has none."""
    found = np.full(int(codes.max()) + 1, np.nan)
    found[codes[rows]] = values[rows]
    return found


_TESTS: Final[tuple[tuple[str, str, Callable[[Case], Mask | Literal[False]]], ...]] = (
    ("zeroed", "every row of the group was logged as 0: it was dropped, masked or filtered", lambda case: case.every(case.logged == 0)),
    ("rounding", "float32 noise in a constant group: the mean of equal rewards is off in its last bits, where the formula gives 0", _rounding),
    ("spike", "float32 leave-one-out spikes: the other rewards are equal, and the row was divided by the float32 error of their std, E[r^2] - E[r]^2 (NeMo-RL before its pull request 4158)", _spiked),
    ("clipped", "the logged values stop at a bound that the formula passes: they were clipped", _clipped),
    ("sign", "the logged values have the opposite sign", lambda case: case.agrees(-case.computed)),
    ("order", "the values of the group are right, on other rows: rows and advantages were shuffled", _order),
    ("counted per fragment", FRAGMENTS, _fragments),
    ("merged", "blocks of the usual size agree: the key merges several prompts or rounds (--group-size splits it)", lambda case: _blocks(case, [case.usual])),
    ("split", "parts of the group agree: it was split, for instance over workers, before it was scored", lambda case: _blocks(case, SPLITS)),
    ("scaled", "the baseline is right, but the divisor has another std, ddof or epsilon", _scaled),
    (
        "other rows", "a line in the reward, with another mean or std: rows of the group are missing here, or were added", _other_rows,
    ),
)  # fmt: skip
