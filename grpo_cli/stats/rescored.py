"""Two rewards of the same rollouts: how far they agree, and how advantages change. Everything is plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import PIECE, Numbers, few, over
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import kept_advantages
from grpo_cli.errors import DataError
from grpo_cli.stats.against import KINDS
from grpo_cli.stats.binned import count_by_kind
from grpo_cli.stats.correlations import correlation
from grpo_cli.stats.facts import plain
from grpo_cli.stats.inspection import Inspection, first_by, score_groups
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.key_text import cut

VERSION: Final = 1
FEW: Final = 6  # a table is shown if each reward has at most this many values
TOP: Final = 10  # disagreements listed
LISTED: Final = 3  # groups named of each kind
LABEL: Final = 120  # characters of a listed group key
BANDS: Final = 4  # bands of the length, with equal numbers of rows
OF_TWO: Final = 2
LARGE: Final = 1000  # sums of advantages this large are shown without decimals
EQUAL: Final = 1e-9  # relative size up to which an advantage counts as 0
OLD: Final = "rescored."  # prefix of the columns of the other reward

Facts = dict[str, Any]
RowIndex = Index | slice  # the rows that have both rewards; a slice of all


@dataclass(frozen=True, kw_only=True)
class Rescoring(Inspection):
    """An inspection of rollouts that have another reward, too."""

    rescored: Facts

    def read_from(self, inputs: Sequence[str], warnings: Sequence[str]) -> Self:
        """The inspection of these files, with further warnings."""
        known = self if self.described is None else super().read_from(inputs, warnings)
        told = [*self.rescored["warnings"], *warnings]
        return replace(known, rescored={**self.rescored, "inputs": inputs, "warnings": told})


def other_reward(now: Inspection, names: Sequence[str], plan: Plan) -> Inspection:
    """The same rows with the other reward, from its carried columns, under its plan."""
    narrow = now.narrow
    table = narrow.table.select(~pl.selectors.starts_with("reward.")).hstack(
        [narrow.carried[f"{OLD}{k}"].alias(f"reward.{k}") for k in range(len(names))]
    )
    plan = replace(plan, unit=narrow.plan.unit)
    return score_groups(replace(narrow, table=table), plan, {})


def rescored(now: Inspection, before: Inspection, names: Sequence[str]) -> Facts:
    """What changes on the same rows if the reward of `now` replaces that of `before`, whose columns are `names`."""
    new, old = (side.raw.rows[".reward"] for side in (now, before))
    scored, had = (rewards.is_finite().fill_null(value=False) for rewards in (new, old))
    both = scored & had
    rows = slice(None) if both.all() else both.arg_true().to_numpy().astype(np.int64)
    x, y = (rewards if both.all() else rewards.filter(both) for rewards in (old, new))
    if not len(x):
        raise DataError("no rollout has both rewards", "there is nothing to compare")
    change = (y - x).to_numpy()
    counts = count_pairs(x, y)
    values, values_now, times = (counts[name].to_numpy() for name in ("before", "now", "rows"))
    signs = (values_now > values).astype(np.int8) - (values_now < values)
    up, down = (int(times.sum(where=signs == sign)) for sign in (1, -1))
    return {
        "version": VERSION,
        "rows": len(new),
        "compared": len(x),
        "unscored": {"now": (had & ~scored).sum(), "before": (scored & ~had).sum()},
        "reward": {
            "now": _of_reward(now.narrow.reward_names, y),
            "before": _of_reward(names, x),
            "changed": up + down, "up": up, "down": down,
            "mean_change": float(change.mean()),
            "changes": count_by_kind(counts["before"], 1 - signs, KINDS, counts["rows"]),
        },
        "agreement": agreement(counts),
        "flips": _table(counts),
        "groups": _groups(now, before),
        "advantage": _advantages(now, before),
        "depends_on": _depends_on(now, before, names, rows, change),
        "largest": _largest(now, before, rows, change),
    }  # fmt: skip


def _of_reward(names: Sequence[str], values: pl.Series) -> Facts:
    counted = few(values)
    numbers = Numbers.of(values) if counted is None else Numbers.counted(*counted)
    return {"columns": list(names), **numbers.facts()}


def count_pairs(before: pl.Series, now: pl.Series) -> pl.DataFrame:
    """How often each pair of values occurs, sorted; if most rows have a pair of their own, a line for each row."""
    pairs = pl.DataFrame({"before": before.to_numpy() + 0.0, "now": now.to_numpy() + 0.0})  # + 0.0 turns -0.0 into 0.0
    # Counting these would take longer than everything else.
    if len(pairs) > PIECE and 2 * pairs.head(PIECE).n_unique() > PIECE:
        return pairs.with_columns(rows=1)
    return pairs.group_by("before", "now").agg(rows=pl.len()).sort("before", "now")


def agreement(counts: pl.DataFrame) -> Facts:
    """How two columns agree; `counts` has how often each pair of values occurs (`before`, `now`, `rows`).

    Kappa is Cohen's, for two values; the rank correlation is Spearman's, with mean ranks for ties.
    """
    before, now, rows = (counts[name].to_numpy() for name in ("before", "now", "rows"))
    total = int(rows.sum())
    same = int(rows.sum(where=before == now))
    kappa = None
    if len(counts) <= OF_TWO**2 and len(values := np.unique(np.concatenate([before, now]))) == OF_TWO:
        high = [int(rows[side == values[1]].sum()) / total for side in (before, now)]
        chance = high[0] * high[1] + (1 - high[0]) * (1 - high[1])
        kappa = None if chance == 1 else (same / total - chance) / (1 - chance)
    ranks = over(lambda side, _: _ranks((before, now)[side], rows), 2, piece=1)  # each on a core of its own
    return {
        "same": same,
        "share": same / total,
        "kappa": kappa,
        "rank_correlation": _correlation(ranks[0], ranks[1], rows),
    }


def _ranks(values: Vector, rows: Index) -> Vector:
    """The mean rank of each value, which occurs in `rows` rows, minus the mean of all ranks, for precision."""
    order = np.argsort(values)  # equal values may come in any order: they share a rank
    values = values[order]
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    once = len(values) == rows.sum()
    counted = np.diff(starts, append=len(values)) if once else np.add.reduceat(rows[order], starts)
    sizes = counted.astype(np.float64)
    middles = np.cumsum(sizes)
    sizes += rows.sum()
    middles -= np.divide(sizes, 2, out=sizes)
    ranks = np.empty(len(values))
    ranks[order] = middles if len(starts) == len(values) else np.repeat(middles, np.diff(starts, append=len(values)))
    return ranks


def _correlation(x: Vector, y: Vector, rows: Index) -> float | None:
    """Pearson's correlation of centred ranks, which occur in `rows` rows each; None if one side does not vary."""
    once = len(x) == rows.sum()

    def sums(start: int, end: int) -> list[float]:
        a, b = x[start:end], y[start:end]
        of_a, of_b = (a, b) if once else (a * rows[start:end], b * rows[start:end])
        return [(of_a * a).sum(), (of_b * b).sum(), (of_a * b).sum()]

    square_x, square_y, product = np.sum(np.array(over(sums, len(x))), axis=0).tolist()
    size = math.sqrt(square_x) * math.sqrt(square_y)
    return min(1.0, max(-1.0, product / size)) if size else None


def _table(counts: pl.DataFrame) -> list[Facts] | None:
    """How often each value became each other value, if both rewards have few; else None."""
    shown = len(counts) <= FEW**2 and all(counts[name].n_unique() <= FEW for name in ("before", "now"))
    return counts.to_dicts() if shown else None


def _groups(now: Inspection, before: Inspection) -> Facts:
    """The groups with a gradient under each reward, and those that gain or lose it."""
    can, could = ((side.groups["scored"] > 1).to_numpy() for side in (now, before))
    varies, varied = (able & ~side.groups["constant"].to_numpy() for able, side in ((can, now), (could, before)))
    gained, lost = np.flatnonzero(varies & ~varied), np.flatnonzero(varied & ~varies)
    label = now.narrow.label
    return {
        "groups": len(can),
        "with_gradient": {"now": int(varies.sum()), "before": int(varied.sum())},
        "gained": {"groups": len(gained), "keys": [label(int(code)) for code in gained[:LISTED]]},
        "lost": {"groups": len(lost), "keys": [label(int(code)) for code in lost[:LISTED]]},
    }


def _advantages(now: Inspection, before: Inspection) -> Facts:
    """How the advantages of the plan differ."""
    sides = [side.scored.rows[[".advantage", ".kept"]] for side in (before, now)]

    def pieces(start: int, end: int) -> tuple[Vector, Vector]:
        x, y = (kept_advantages(rows[start:end]) for rows in sides)
        both = np.isfinite(x) & np.isfinite(y)
        return (x, y) if both.all() else (x[both], y[both])

    def sums(start: int, end: int) -> list[float]:
        x, y = pieces(start, end)
        return [len(x), np.square(x).sum(), np.square(y).sum(), np.abs(x).sum(), np.abs(y).sum(), np.abs(y - x).sum()]

    rows, squares, squares_now, total, total_now, moved = np.sum(
        np.array([[0.0] * 6, *over(sums, len(sides[0]))]), axis=0
    ).tolist()
    size = EQUAL * float(np.sqrt(max(squares, squares_now) / rows)) if rows else 0.0

    def signs(start: int, end: int) -> list[int]:
        x, y = pieces(start, end)
        up, down, up_now, down_now = x > size, x < -size, y > size, y < -size
        zero, zero_now = ~(up | down), ~(up_now | down_now)
        found = (up & down_now) | (down & up_now), zero & ~zero_now, ~zero & zero_now
        return [int(np.count_nonzero(mask)) for mask in found]

    changed, first, lost = np.sum(np.array([[0] * 3, *over(signs, len(sides[0]))]), axis=0).tolist()
    return {
        "rows": int(rows),
        "sign_changes": changed,
        "first_signs": first,
        "lost_signs": lost,
        "total": {"before": total, "now": total_now, "change": total_now / total - 1 if total else None},
        "moved": moved,
        "method": now.scored.plan.method,
    }


def _depends_on(now: Inspection, before: Inspection, names: Sequence[str], rows: RowIndex, change: Vector) -> Facts:
    """How the change depends on length, step and reward components; None for each that is unknown."""
    table = now.rows
    length = by = components = None
    if "length" in table.columns:
        length = {"column": now.columns["length"], **_with_lengths(table["length"].to_numpy()[rows], change)}
    if now.by is not None:
        parts = now.by[rows].to_frame("value").with_columns(change=pl.Series(change))
        lines = parts.group_by("value", maintain_order=True).agg(**_SUMS).sort("value", nulls_last=True)
        by = {"column": now.columns["by"], "lines": lines.to_dicts()}
    if len(now.narrow.reward_names) > 1:
        components = [
            _component(name, now.narrow.table[f"reward.{k}"], before, names, rows, change)
            for k, name in enumerate(now.narrow.reward_names)
        ]
    return {"length": length, "by": by, "components": components}


_SUMS: Final[Mapping[str, pl.Expr]] = {
    "rows": pl.len(),
    "changed": (pl.col("change") != 0).sum(),
    "up": (pl.col("change") > 0).sum(),
    "down": (pl.col("change") < 0).sum(),
    "mean_change": pl.col("change").mean(),
}


def _with_lengths(lengths: Vector, change: Vector) -> Facts:
    """The changes in quartile bands of the length, and their correlation with the length."""
    known = np.isfinite(lengths)
    lengths, change = lengths[known], change[known]
    if not len(lengths):
        return {"correlation": None, "bands": []}
    ends = np.unique(np.quantile(lengths, np.arange(1, BANDS) / BANDS, method="lower"))
    bands = (
        pl.DataFrame({"band": np.searchsorted(ends, lengths), "length": lengths, "change": change})
        .group_by("band", maintain_order=True).agg(low=pl.col("length").min(), high=pl.col("length").max(), **_SUMS).sort("band").drop("band")
    )  # fmt: skip
    return {"correlation": correlation(lengths, change), "bands": bands.to_dicts()}


def _component(
    name: str, values: pl.Series, before: Inspection, names: Sequence[str], rows: RowIndex, change: Vector
) -> Facts:
    """The correlation of the change with that of a component, or with its value if the other reward lacks it."""
    part = values.fill_null(float("nan")).to_numpy()[rows]
    differs = None
    if name in names:
        other = before.narrow.table[f"reward.{names.index(name)}"].fill_null(float("nan")).to_numpy()[rows]
        part = part - other
        differs = int((part[np.isfinite(part)] != 0).sum())
    known = np.isfinite(part)
    return {"column": name, "differs": differs, "correlation": correlation(part[known], change[known])}


def _largest(now: Inspection, before: Inspection, rows: RowIndex, change: Vector) -> list[Facts]:
    """The rows whose reward changes most, ties broken by the change of the advantage."""
    at = np.flatnonzero(change)
    size = np.abs(change[at])
    if len(at) > TOP:  # leave out rows that cannot be among them
        kept = size >= np.partition(size, -TOP)[-TOP]
        at, size = at[kept], size[kept]
    at_rows = at if isinstance(rows, slice) else rows[at]
    old, new = (kept_advantages(side.scored.rows[[".advantage", ".kept"]][at_rows]) for side in (before, now))
    first = first_by([-size, -np.abs(np.nan_to_num(old) - np.nan_to_num(new))], TOP)
    top, rewards = at_rows[first], [side.raw.rows[".reward"] for side in (before, now)]
    codes = now.narrow.table["group"].gather(top).to_list()
    return [
        {
            "key": cut(now.narrow.label(code), LABEL), "number": code + 1, "position": row,
            **dict(zip(("file", "row"), now.narrow.spot(row), strict=True)),
            "before": rewards[0][row], "now": rewards[1][row],
            "advantage": {"before": plain(float(old[at])), "now": plain(float(new[at]))},
        }
        for row, at, code in zip(top.tolist(), first.tolist(), codes, strict=True)
    ]  # fmt: skip


def verdict(facts: Mapping[str, Any]) -> str:
    """What the change means for training, in a sentence."""
    groups, advantage = facts["groups"], facts["advantage"]
    if not facts["reward"]["changed"]:
        return "Both rewards are the same on these rollouts."
    total = advantage["total"]["before"]
    share = f" ({percent(advantage['moved'] / total)} of the total |A|)" if total else ""
    moved = f"{advantage['moved']:,.0f}" if advantage["moved"] >= LARGE else f"{advantage['moved']:.4g}"
    gained, lost = groups["gained"]["groups"], groups["lost"]["groups"]
    gradient = (
        f"{gained:,} gain a gradient and {lost:,} lose it" if gained or lost else "No group gains or loses its gradient"
    )
    gradient = gradient if gradient.startswith("No") else f"Of the groups, {gradient}"
    return (
        f"{facts['reward']['changed']:,} of {facts['compared']:,} rewards change, and {advantage['sign_changes']:,} advantages change sign. "
        f"{gradient}. The advantages move by {moved}{share}."
    )
