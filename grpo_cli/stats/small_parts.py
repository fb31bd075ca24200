"""The summaries of many small parts of the rows, as --plan-by makes them: counted together, in a few passes over all rows.

By itself each part would take some hundred small steps, which cost more than its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import Numbers
from grpo_cli.engine.group_stats import Mask, group_extremes
from grpo_cli.engine.moments import CHUNK, Index, Moments, Vector
from grpo_cli.engine.score import STATUSES, Scored
from grpo_cli.read.narrow import Narrow
from grpo_cli.stats.facts import (
    LISTED,
    SKIPPED,
    Counts,
    Reason,
    Skipped,
    SkippedGroup,
    Summary,
    Tally,
    distribution,
    facts_of_lines,
    plain,
    reading_of,
    summarize,
)

Part = tuple[Scored, Narrow]


def summarize_each(parts: Sequence[Part]) -> list[Summary]:
    """The summary of each part, as `summarize` gives it."""
    small = [at for at, (scored, _) in enumerate(parts) if _is_small(scored)]
    found = {}
    if len(small) > 1:
        some = [parts[at] for at in small]
        for at, (scored, _), tally in zip(small, some, _tallies(some), strict=True):
            found[at] = tally.facts(scored.plan, distribution(scored.rows[".reward"]))
    return [found[at] if at in found else summarize(*part) for at, part in enumerate(parts)]


def _is_small(scored: Scored) -> bool:
    """Whether its numbers are added up in one step, so that they have the same bits beside those of other parts; and rows count."""
    return len(scored.rows) <= CHUNK and "rollout" not in scored.rows.columns


@dataclass(frozen=True)
class _Lines:
    """Columns of several parts, one after the other."""

    frame: pl.DataFrame
    part: Index  # of each line
    parts: int
    ends: Index  # where the lines of each part begin, and where the last ends

    @classmethod
    def of(cls, frames: Sequence[pl.DataFrame]) -> _Lines:
        """The lines of these."""
        sizes = [*map(len, frames)]
        part = np.repeat(np.arange(len(frames)), sizes)
        return cls(pl.concat(frames, how="vertical_relaxed", rechunk=True), part, len(frames), np.cumsum([0, *sizes]))

    def count(self, rows: pl.Series) -> list[int]:
        """How many lines of each part these are."""
        return self.sum(rows.fill_null(value=False).to_numpy().astype(np.int64))

    def sum(self, numbers: Index) -> list[int]:
        """The sum of whole numbers over each part."""
        sums = np.zeros(self.parts, np.int64)
        np.add.at(sums, self.part, numbers)
        return [*map(int, sums)]

    def counters(self, numbers: Vector | Index, where: Mask | None = None) -> list[Counter[Any]]:
        """How often each number occurs in each part."""
        part = self.part
        if where is not None:
            part, numbers = part[where], numbers[where]
        found: list[Counter[Any]] = [Counter() for _ in range(self.parts)]
        pairs = pl.DataFrame({"part": part, "number": numbers}).group_by("part", "number").len().sort("part", "number")
        for place, number, times in pairs.iter_rows():
            found[place][number] = times
        return found


def _tallies(parts: Sequence[Part]) -> list[Tally]:
    """The counts of each part, as `Tally.of` gives them."""
    rows = _Lines.of([scored.rows[[".advantage", ".status", ".kept", ".scorable"]] for scored, _ in parts])
    groups = _Lines.of([scored.groups for scored, _ in parts])
    of_sum = np.array([scored.plan.rewards.combine == "sum" for scored, _ in parts])
    groups = replace(groups, frame=facts_of_lines(groups.frame, pl.lit(pl.Series(of_sum[groups.part]))))
    statuses = np.zeros((len(parts), len(STATUSES)), np.int64)
    np.add.at(statuses, (rows.part, rows.frame[".status"].to_physical().to_numpy()), 1)
    facts = groups.frame
    constant = facts["constant"].to_numpy()
    size = facts["size"].to_numpy()
    singletons = groups.count(facts["scored"] == 1)
    comparable = groups.count(facts["scored"] > 1)
    constant_rows = groups.sum(np.where(constant, size, 0))
    nearly = groups.count(facts["nearly"])
    outside = groups.count(~facts["mean"].fill_nan(None).is_between(0, 1))
    kept = rows.frame[".kept"]
    kept_rows = rows.count(kept)
    scorable = rows.count(rows.frame[".scorable"])
    null = rows.count(kept & rows.frame[".advantage"].is_null())
    sizes = groups.counters(size)
    constants = groups.counters(facts["max"].to_numpy(), constant)
    lows = _least(groups, facts["min"])
    highs = [-least for least in _least(groups, -facts["max"])]
    advantages = _numbers(rows, rows.frame[".advantage"], kept.to_numpy())
    skips = _skipped(groups, [narrow for _, narrow in parts])
    tallies = []
    for at, (scored, narrow) in enumerate(parts):
        length = len(scored.rows)
        none = narrow.without_reward
        is_marked = narrow.marked is not None
        declared = 0
        if is_marked or none is not None:
            declared = int((narrow.left_out if none is None else narrow.left_out | none).sum())
        counts = Counts(
            rows=length,
            rollouts=length,
            groups=len(scored.groups),
            batches=narrow.batches,
            singletons=singletons[at],
            unscorable=length - scorable[at],
            declared_unscorable=declared,
            left_out=int(narrow.left_out.sum()) if is_marked else 0,
            masked=int(narrow.masked.sum()) if is_marked else 0,
            constant_rows=constant_rows[at],
            comparable=comparable[at],
            nearly=nearly[at],
            no_rate=outside[at],
            null=null[at],
            dropped_rows=narrow.height - kept_rows[at],
        )
        tallies.append(
            Tally(
                counts=counts,
                statuses=Counter(dict(zip(STATUSES, statuses[at].tolist(), strict=True))),
                marks=narrow.mark_counts,
                sizes=sizes[at],
                constants=constants[at],
                extremes=(plain(lows[at]), plain(highs[at])),
                advantage=advantages[at],
                skipped=skips[at],
                reading=reading_of(scored, narrow),
                warnings=narrow.warnings,
            )
        )
    return tallies


def _least(lines: _Lines, numbers: pl.Series) -> list[float]:
    """The lowest number of each part that is not NaN; NaN if there is none."""
    least = np.fmin.reduceat(numbers.cast(pl.Float64).fill_null(np.nan).to_numpy(), lines.ends[:-1])
    return [*map(float, least)]


def _numbers(lines: _Lines, column: pl.Series, where: Mask) -> list[Numbers]:
    """What `Numbers.of` says of these values of each part."""
    there = where & column.is_not_null().to_numpy()
    values = column.fill_null(0.0).to_numpy()[there]
    part = lines.part[there]
    finite = np.isfinite(values)
    nan = np.bincount(part[np.isnan(values)], minlength=lines.parts).tolist()
    values, part = values[finite], part[finite]
    zero = np.bincount(part[values == 0], minlength=lines.parts).tolist()
    low, high = group_extremes(part, values, lines.parts)
    moments = Moments.of(values, part.astype(np.uint32), lines.parts)
    found = []
    for at in range(lines.parts):
        own = Moments(*(numbers[at : at + 1] for numbers in moments))
        found.append(Numbers(nan[at], zero[at], own, float(low[at]) + 0.0, float(high[at]) + 0.0))
    return found


def _skipped(groups: _Lines, narrows: Sequence[Narrow]) -> list[dict[Reason, Skipped]]:
    """The groups of each part for which its plan has a rule of its own, as `skipped` gives them."""
    found: list[dict[Reason, Skipped]] = [{} for _ in narrows]
    for reason, condition in SKIPPED.items():
        affected = groups.frame.select("code", "size", "mean", meets=condition)
        lines = np.flatnonzero(affected["meets"].fill_null(value=False).to_numpy())
        part = groups.part[lines]
        of_part = np.searchsorted(part, np.arange(groups.parts + 1))
        some = affected[lines]
        for at in np.flatnonzero(np.diff(of_part)).tolist():
            here = some[of_part[at] : of_part[at + 1]]
            first = here.head(LISTED)
            narrow = narrows[at]
            named = zip(first["code"], first["mean"], strict=True)
            keys = [SkippedGroup(narrow.label(code), plain(mean)) for code, mean in named]
            found[at][reason] = Skipped(reason, len(here), int(here["size"].sum()), keys)
    return found
