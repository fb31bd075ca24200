"""Which rows of a group are kept: the best, the worst, those that differ most, the shortest, or some at random."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from grpo_cli.choosing.groups import Choice, Pick, bar_of
from grpo_cli.engine.group_stats import Mask, Matrix, Segments
from grpo_cli.engine.moments import Codes, Index, Vector
from grpo_cli.errors import DataError, Way
from grpo_cli.read.texts import TextColumns, some_texts, text_lengths
from grpo_cli.stats import facts
from grpo_cli.stats.inspection import Inspection


@dataclass(frozen=True)
class PickedRows:
    """The rows that --per-group keeps of each group, whether or not the group is kept; masks are of the rows of the table."""

    mask: Mask
    option: str  # as messages name it
    unsolved: Mask | None = None  # rows that `--pick shortest` passes over: they are not solved; None: another pick
    bar: float = math.nan  # the least reward of a row that is solved

    def dropped(self, kept: Mask) -> Iterator[facts.Dropped]:
        """Why rows of the kept groups are not picked; `kept` are all rows of these groups."""
        left = kept & ~self.mask
        if self.unsolved is not None:
            failed = int((left & self.unsolved).sum())
            if failed:
                yield facts.Dropped(reason=f"not solved: a reward below {self.bar:g}", rows=failed)
            left &= ~self.unsolved
        yield facts.Dropped(reason=self.option, rows=int(left.sum()))


def rows_picked(inspection: Inspection, choice: Choice) -> PickedRows | None:
    """The rows that --per-group keeps; None without it. Rows that are masked or have no reward are not picked."""
    if choice.per_group is None:
        return None
    option = f"--per-group {choice.per_group} ({choice.pick})"
    codes = inspection.narrow.table["group"].to_numpy()
    rewards = np.where(inspection.narrow.masked, np.nan, inspection.raw.rows[".reward"])
    seed = choice.seed or 0
    if choice.pick != "shortest":
        mask = pick_rows(codes, rewards, choice.per_group, choice.pick, seed)
        return PickedRows(_with_siblings(inspection, mask), option)
    bar = bar_of(inspection.groups, choice.solved_at)
    unsolved = rewards < bar
    rewards = np.where(unsolved, np.nan, rewards)
    text = some_texts(inspection.narrow.tables[0], TextColumns())
    solved = np.flatnonzero(np.isfinite(rewards))
    lengths = np.full(len(codes), np.nan)
    lengths[solved] = lengths_of(inspection, solved, text.response or text.messages)
    mask = pick_rows(codes, rewards, choice.per_group, choice.pick, seed, lengths)
    return PickedRows(_with_siblings(inspection, mask), option, unsolved, bar)


def lengths_of(inspection: Inspection, rows: Index, text: str) -> Vector:
    """The lengths of these responses: those of a column, else of the texts in the column `text`."""
    if "length" in inspection.rows.columns:
        return inspection.rows["length"].to_numpy()[rows]
    if not text:
        raise DataError(
            "--pick shortest needs the length of each response", Way("--length-column", lead="name its column with")
        )
    lengths: Vector = text_lengths(inspection.narrow, rows, text)
    return lengths


def _with_siblings(inspection: Inspection, picked: Mask) -> Mask:
    """The picked rows; if rollouts count once, with all rows of their rollouts."""
    if inspection.raw.plan.unit.take == "each":
        return picked
    rollouts = inspection.narrow.table["rollout"].to_numpy()
    kept = np.zeros(rollouts.max() + 1, dtype=bool)
    kept[rollouts[picked]] = True
    whole: Mask = kept[rollouts]
    return whole


def pick_rows(codes: Codes, rewards: Vector, most: int, how: Pick, seed: int, lengths: Vector | None = None) -> Mask:
    """Mark at most `most` rows of each group; never rows whose reward is not finite. The shortest are those of these lengths.

    Of equal rewards the earlier row is taken (`spread` takes from both ends). The same seed gives the same rows.
    """
    finite = np.flatnonzero(np.isfinite(rewards))
    chosen = np.zeros(len(codes), dtype=bool)
    if not len(finite):
        return chosen
    codes = codes[finite]
    rewards = rewards[finite]
    most = min(most, len(finite))
    by = -rewards if how == "best" else rewards
    if lengths is not None:
        by = lengths[finite]
    if how == "random":
        by = np.random.default_rng(seed).random(len(finite))
    order = np.lexsort((by, codes))
    segments = Segments.of_ordered(codes[order])
    place = np.arange(len(order)) - segments.spread(segments.starts)
    if how == "spread":
        top = segments.spread(_from_the_top(segments, rewards[order], most))
        from_end = segments.spread(segments.sizes) - place
        kept = (place < most - top) | (from_end <= top)
    else:
        kept = place < most
    chosen[finite[order[kept]]] = True
    return chosen


def _from_the_top(segments: Segments, ordered: Vector, most: int) -> Index:
    """How many of the kept rows come from the top of each group; the rest come from its bottom.

    `most` rows of a group have the largest variance if they come from its two ends. Every split between them is tried,
    the even one first.
    """
    from_top = np.zeros(len(segments.sizes), dtype=np.int64)
    large = np.flatnonzero(segments.sizes > most)
    if not len(large):  # all rows of all groups are kept
        return from_top
    starts = segments.starts[large]
    ends = segments.starts[large] + segments.sizes[large]
    away = ordered - segments.spread(ordered[segments.starts])  # a shared offset would cost digits
    low, low_squares = _running(away, starts, 1, most)
    high, high_squares = _running(away, ends - 1, -1, most)
    total = low[:, ::-1] + high
    squares = low_squares[:, ::-1] + high_squares
    variances = squares - total * total / most
    best = variances.max(axis=1, keepdims=True)
    uneven = np.abs(2 * np.arange(most + 1) - most)
    order = np.argsort(uneven, kind="stable")
    as_good = variances[:, order] >= best - 1e-12 * np.abs(best)
    from_top[large] = order[as_good.argmax(axis=1)]
    return from_top


def _running(values: Vector, first: Index, step: int, most: int) -> tuple[Matrix, Matrix]:
    """Sums, and sums of squares, of the first 0, 1, ... rows from one end of each group."""
    places = first[:, None] + step * np.arange(most)
    taken = np.pad(values[places], ((0, 0), (1, 0)))
    return np.cumsum(taken, axis=1), np.cumsum(taken**2, axis=1)
