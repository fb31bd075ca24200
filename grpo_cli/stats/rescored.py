"""Two rewards of the same rollouts: how far they agree, and how advantages change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import PIECE, Numbers, few, over
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import kept_advantages
from grpo_cli.errors import DataError
from grpo_cli.stats.against import KINDS, NowAndBefore
from grpo_cli.stats.document import asked_by
from grpo_cli.stats.facts import Change, Number, count_by_kind, plain
from grpo_cli.stats.inspection import Inspected, Inspection, score_groups
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.key_text import cut

VERSION: Final = 2
FEW = 6  # a table is shown if each reward has at most this many values
TOP = 10  # disagreements listed
LABEL = 120  # characters of a listed group key
OF_TWO = 2
LARGE = 1000  # sums of advantages this large are shown without decimals
EQUAL = 1e-9  # relative size up to which an advantage counts as 0
OLD = "rescored."  # prefix of the columns of the other reward


@dataclass(frozen=True)
class Sides:
    """A number for each of the two rewards."""

    before: Number  # with the old reward; None if there is no finite number
    now: Number  # with the new reward; None if there is no finite number


@dataclass(frozen=True)
class Moved(Sides):
    """The same with the relative change."""

    change: Number  # `now` over `before`, minus 1; None if `before` is 0


@dataclass(frozen=True)
class OneReward:
    """One of the two rewards."""

    columns: Sequence[str]  # all columns that make this reward
    mean: Number  # over the rollouts that have both rewards
    std: Number  # over the rollouts that have both rewards, with ddof 1; None if there is only one
    min: Number  # the lowest among the rollouts that have both rewards
    max: Number  # the highest among the rollouts that have both rewards


@dataclass(frozen=True)
class TwoRewards:
    """Both rewards of the rollouts that have both, and how many changed."""

    now: OneReward  # statistics of the new reward
    before: OneReward  # statistics of the old reward
    changed: int  # rollouts whose two rewards differ
    up: int  # rollouts whose new reward is higher
    down: int  # rollouts whose new reward is lower
    mean_change: float  # the new reward minus the old one, over all rollouts that have both
    # for each value or bin of the old reward, how many rollouts are better, the same or worse now
    changes: Sequence[Change]


@dataclass(frozen=True)
class Agreement:
    """How often the rewards are the same; Cohen's kappa of two values, and Spearman's rank correlation, with mean ranks for ties."""

    same: int  # rollouts whose two rewards are equal
    share: float  # `same` as a share of the rollouts that have both rewards
    kappa: Number  # Cohen's, between -1 and 1; None unless both rewards together have exactly two values
    rank_correlation: Number  # Spearman's, with mean ranks for ties; None if one of the rewards does not vary


@dataclass(frozen=True)
class Flip:
    """How many rollouts had one value, and now have the other."""

    before: float  # a value of the old reward
    now: float  # a value of the new reward, which may be the old one
    rows: int  # rollouts that have this pair of rewards


@dataclass(frozen=True)
class GroupsOfTwo:
    """Groups with a gradient under each reward, and those that gain or lose it."""

    groups: int  # all groups, those without a scored row too
    with_gradient: NowAndBefore  # groups with at least two rewards that are not all equal
    gained: int  # groups with a gradient under the new reward only
    lost: int  # groups with a gradient under the old reward only


@dataclass(frozen=True)
class MovedAdvantages:
    """How the other reward changes the advantages; `moved` is the sum of the differences."""

    rows: int  # with a finite advantage under both rewards
    sign_changes: int  # rows whose advantage is positive under one reward and negative under the other
    total: Moved  # the sum of |A| under each reward, over rows with an advantage under both
    moved: float  # the sum of |new A - old A| over rows with an advantage under both rewards
    method: str  # that makes the advantages from the new reward


@dataclass(frozen=True)
class DisagreeingRow:
    """A rollout whose rewards differ most."""

    key: str  # of its group, cut to 120 characters
    number: int  # of its group, from 1
    position: int  # among the `rows` of the document, from 0
    file: str  # that has the new reward
    row: int  # its number in the file, from 1
    before: float  # its old reward
    now: float  # its new reward
    advantage: Sides  # under each reward; None where the row has none
    text: str | None  # the response, without its middle if it is long; None if no column has it


@dataclass(frozen=True)
class Pairing:
    """How rollouts of two inputs were paired, and how many are in one of them only."""

    by: Sequence[str]  # the columns that are equal in a pair, beside the key: ids of rollouts, the text, or both
    key: Sequence[str]  # the columns of the group key, which both rows of a pair have in common
    rows: int  # pairs of one row of each input
    only: NowAndBefore  # rows without a partner in the other input


@dataclass(frozen=True)
class Rescored:
    """The result of `inspect --old-rewards`; `paired` is null if the other reward is a column of the same rows."""

    version: Literal[2]  # of the document; it changes when the meaning of a key does
    rows: int  # of the input, or pairs if there are two inputs; with --where, of the groups that meet it
    compared: int  # rows with both rewards
    unscored: NowAndBefore  # rows with only one of the two rewards, counted under the one they lack
    reward: TwoRewards  # the two rewards, and how many rollouts changed
    agreement: Agreement  # of the rows with both rewards
    # how often each old value became each new one; None if one reward has more than 6 values
    flips: Sequence[Flip] | None
    groups: GroupsOfTwo  # how many have a gradient under each reward
    advantage: MovedAdvantages  # how the advantages change
    largest: Sequence[DisagreeingRow]  # up to 10 rows whose reward changes most, the largest change first
    # how the rows of two inputs were paired; None if both rewards are in the same rows
    paired: Pairing | None = field(metadata=asked_by("--old-rewards", "INPUT"))
    verdict: str  # what the change means for training, as a sentence
    rescored: Sequence[str]  # the files with the old reward
    inputs: Sequence[str]  # the files with the new reward
    warnings: Sequence[str]  # about both inputs and their pairing
    config: str | None = None  # the file of options that was read; absent if none was


@dataclass(frozen=True)
class InspectedTwice:
    """What a gate sees with --old-rewards: what the new reward changes, and its own facts."""

    INLINE: ClassVar = ("rescored", "inspected")

    inspected: Inspected
    rescored: Rescored


def other_reward(now: Inspection, names: Sequence[str], plan: Plan) -> Inspection:
    """The same rows with the other reward, from its carried columns, under its plan."""
    narrow = now.narrow
    rewards = [narrow.carried[f"{OLD}{k}"].alias(f"reward.{k}") for k in range(len(names))]
    table = narrow.table.select(~pl.selectors.starts_with("reward.")).hstack(rewards)
    plan = replace(plan, unit=narrow.plan.unit)
    return score_groups(replace(narrow, table=table), plan, {})


def rescored(now: Inspection, before: Inspection, names: Sequence[str]) -> Rescored:
    """What changes on the same rows if the reward of `now` replaces that of `before`, whose columns are `names`."""
    new, old = (side.raw.rows[".reward"] for side in (now, before))
    scored, had = (rewards.is_finite().fill_null(value=False) for rewards in (new, old))
    both = scored & had
    rows = both.arg_true().to_numpy()
    x = old.filter(both)
    y = new.filter(both)
    if not len(x):
        raise DataError("no rollout has both rewards", "there is nothing to compare")
    change = (y - x).to_numpy()
    counts = count_pairs(x, y)
    sides = _of_reward(now.narrow.reward_names, y), _of_reward(names, x)
    reward = _two_rewards(*sides, counts, float(change.mean()))
    groups = _groups(now, before)
    advantage = _advantages(now, before)
    no_new = had & ~scored
    no_old = scored & ~had
    return Rescored(
        version=VERSION,
        rows=len(new),
        compared=len(x),
        unscored=NowAndBefore(now=int(no_new.sum()), before=int(no_old.sum())),
        reward=reward,
        agreement=agreement(counts),
        flips=_table(counts),
        groups=groups,
        advantage=advantage,
        largest=_largest(now, before, rows, change),
        paired=None,
        verdict=verdict(len(x), reward, groups, advantage),
        rescored=(),
        inputs=(),
        warnings=(),
    )


def _two_rewards(now: OneReward, before: OneReward, counts: pl.DataFrame, mean_change: float) -> TwoRewards:
    """Both rewards, and how many went up and down; `counts` are those of `count_pairs`."""
    old, new, rows = (counts[name].to_numpy() for name in ("before", "now", "rows"))
    signs = (new > old).astype(np.int8) - (new < old)
    up = int(rows.sum(where=signs == 1))
    down = int(rows.sum(where=signs == -1))
    kinds = 1 - signs  # places in KINDS: better, same, worse
    return TwoRewards(
        now=now,
        before=before,
        changed=up + down,
        up=up,
        down=down,
        mean_change=mean_change,
        changes=count_by_kind(counts["before"], kinds, KINDS, counts["rows"]),
    )


def _of_reward(names: Sequence[str], values: pl.Series) -> OneReward:
    counted = few(values)
    numbers = Numbers.of(values) if counted is None else Numbers.counted(*counted)
    return OneReward(names, **numbers.facts())


def count_pairs(before: pl.Series, now: pl.Series) -> pl.DataFrame:
    """How often each pair of values occurs, sorted; if most rows have a pair of their own, a line for each row."""

    def pairs(start: int, end: int) -> pl.DataFrame:
        sides = {"before": before, "now": now}
        # With 0.0 instead of -0.0.
        return pl.DataFrame({name: side[start:end].to_numpy() + 0.0 for name, side in sides.items()})

    def counted(start: int, end: int) -> pl.DataFrame:
        return pairs(start, end).group_by("before", "now").agg(rows=pl.len())

    rows = len(before)
    # Counting these would take longer than everything else.
    if rows > PIECE and 2 * len(counted(0, PIECE)) > PIECE:
        return pairs(0, rows).with_columns(rows=1)
    found = pl.concat(over(counted, rows, 8 * PIECE))
    return found.group_by("before", "now").agg(pl.sum("rows")).sort("before", "now")


def agreement(counts: pl.DataFrame) -> Agreement:
    """How two columns agree; `counts` has how often each pair of values occurs (`before`, `now`, `rows`)."""
    before, now, rows = (counts[name].to_numpy() for name in ("before", "now", "rows"))
    total = int(rows.sum())
    same = int(rows.sum(where=before == now))
    share = same / total
    kappa = None
    if len(counts) <= OF_TWO**2 and len(values := np.unique(np.concatenate([before, now]))) == OF_TWO:
        was_high, is_high = (int(rows.sum(where=side == values[1])) / total for side in (before, now))
        chance = was_high * is_high + (1 - was_high) * (1 - is_high)
        kappa = None if chance == 1 else (share - chance) / (1 - chance)
    return Agreement(same, share, kappa, _rank_correlation(before, now, rows))


def _rank_correlation(before: Vector, now: Vector, rows: Index) -> float | None:
    """Pearson's correlation of the ranks of these values, which occur in `rows` rows each; None if one side does not vary."""
    ranks = [_ranks(side, rows) for side in (before, now)]
    (of_before, of_both), (_, of_now) = np.cov(ranks, fweights=rows, ddof=0).tolist()
    size = math.sqrt(of_before) * math.sqrt(of_now)
    return min(1.0, max(-1.0, of_both / size)) if size else None


def _ranks(values: Vector, rows: Index) -> Vector:
    """The mean rank of each value, which occurs in `rows` rows, minus the mean of all ranks, for precision."""
    _, places = np.unique(values, return_inverse=True)
    sizes = np.bincount(places, rows)
    ranks: Vector = np.cumsum(sizes) - (sizes + rows.sum()) / 2
    return ranks[places]


def _table(counts: pl.DataFrame) -> list[Flip] | None:
    """How often each value became each other value, if both rewards have few; else None."""
    if len(counts) > FEW**2 or any(counts[name].n_unique() > FEW for name in ("before", "now")):
        return None
    return [Flip(**line) for line in counts.iter_rows(named=True)]


def _groups(now: Inspection, before: Inspection) -> GroupsOfTwo:
    varies, varied = ((side.groups["scored"] > 1) & ~side.groups["constant"] for side in (now, before))
    both = NowAndBefore(now=int(varies.sum()), before=int(varied.sum()))
    gained = varies & ~varied
    lost = varied & ~varies
    return GroupsOfTwo(len(varies), both, gained=int(gained.sum()), lost=int(lost.sum()))


def _advantages(now: Inspection, before: Inspection) -> MovedAdvantages:
    """How the advantages of the plan differ."""

    def both(start: int, end: int) -> tuple[Vector, Vector]:
        x, y = (kept_advantages(side.scored.rows[start:end]) for side in (before, now))
        known = np.isfinite(x) & np.isfinite(y)
        return (x, y) if known.all() else (x[known], y[known])

    def squares(start: int, end: int) -> list[float]:
        x, y = both(start, end)
        return [len(x), float(x @ x), float(y @ y)]

    def sums(start: int, end: int) -> list[float]:
        x, y = both(start, end)
        down = (x > zero) & (y < -zero)
        up = (x < -zero) & (y > zero)
        return [(down | up).sum(), np.abs(x).sum(), np.abs(y).sum(), np.abs(y - x).sum()]

    height = now.scored.rows.height
    rows, *of_both = np.sum(over(squares, height), axis=0).tolist()
    zero = EQUAL * math.sqrt(max(of_both) / max(rows, 1))
    changes, total, total_now, moved = np.sum(over(sums, height), axis=0).tolist()
    grown = total_now / total - 1 if total else None
    return MovedAdvantages(
        rows=int(rows),
        sign_changes=int(changes),
        total=Moved(total, total_now, grown),
        moved=moved,
        method=now.scored.plan.method,
    )


def _largest(now: Inspection, before: Inspection, rows: Index, change: Vector) -> list[DisagreeingRow]:
    """The rows whose reward changes most, ties broken by the change of the advantage."""
    changed = np.flatnonzero(change != 0)
    size = np.abs(change[changed])
    if len(changed) > TOP:  # leave out rows that cannot be among them
        is_large = size >= np.partition(size, -TOP)[-TOP]
        changed = changed[is_large]
        size = size[is_large]
    changed_rows = rows[changed]
    old, new = (kept_advantages(side.scored.rows[[".advantage", ".kept"]][changed_rows]) for side in (before, now))
    moved = np.abs(np.nan_to_num(old) - np.nan_to_num(new))
    candidates = pl.LazyFrame({"size": size, "moved": moved}).with_row_index("at")
    first = candidates.sort("size", "moved", "at", descending=[True, True, False]).head(TOP).collect()["at"]
    rewards = now.raw.rows[".reward"]
    old_rewards = before.raw.rows[".reward"]
    narrow = now.narrow
    lines = []
    for at in first:
        row = int(changed_rows[at])
        code = narrow.table["group"][row]
        line = DisagreeingRow(
            cut(narrow.label(code), LABEL),
            code + 1,
            row,
            *narrow.spot(row),
            before=old_rewards[row],
            now=rewards[row],
            advantage=Sides(plain(float(old[at])), plain(float(new[at]))),
            text=None,
        )
        lines.append(line)
    return lines


def verdict(compared: int, reward: TwoRewards, groups: GroupsOfTwo, advantage: MovedAdvantages) -> str:
    """What the change means for training, in a sentence."""
    if not reward.changed:
        return "Both rewards are the same on these rollouts."
    total = advantage.total.before
    share = f" ({percent(advantage.moved / total)} of the total |A|)" if total else ""
    moved = f"{advantage.moved:,.0f}" if advantage.moved >= LARGE else f"{advantage.moved:.4g}"
    signs = counted(advantage.sign_changes, "advantage changes sign", "advantages change sign")
    changes = f"{reward.changed:,} of {compared:,} rewards change"
    if signs:
        changes += f", and {signs}"
    gained = counted(groups.gained, "group gains a gradient", "groups gain a gradient")
    lost = counted(groups.lost, "group loses its gradient", "groups lose their gradient")
    gradients = ", ".join(filter(None, (gained, lost))) or "No group gains or loses its gradient"
    return f"{changes}. {gradients}. The advantages move by {moved}{share}."


def counted(size: int, one: str, many: str) -> str:
    """`1 group gains a gradient`, `2 groups gain a gradient`; empty for 0."""
    return f"{size:,} {one if size == 1 else many}" if size else ""
