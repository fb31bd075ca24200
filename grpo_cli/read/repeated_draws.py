"""Warnings about groups that may merge several draws of a prompt; each names the flag that would change it.

All of it is heuristic: in natural files the lengths of runs of rows have no common divisor. A divisor may also come from
rollouts of several rows, or from a draw that was written in parts, so a size is named only if something proves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, gcd, lgamma, log
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import Coded, blocks, encode, parts_of_each, sizes, spanning, within
from grpo_cli.read.known_names import JUDGES, ROLLOUT_IDS, SAMPLE_IDS

Numbering = Literal["rollout", "sample", "judge"]  # what a column numbers; `sample` restarts in each group

GIANT = 64  # rows from which a single group is more than the samples of one prompt
_MANY = 2  # least rows of a block
_SURE = 4  # a smaller usual size must occur in several groups
_LEAST = 3  # least rows of a block found by many runs: half of all numbers are multiples of 2
_SEVERAL = 2  # least keys that come back: a single one may be from a run that was resumed
_RARE = 1e-3  # largest probability that random lengths have this divisor
_RARER = 1e-4  # largest probability that this number of random lengths would be multiples of it
_MOST = 0.6  # least share of multiples
_NEAR = 1e-4  # baselines that differ by less are equal up to rounding
_WHOLE = 0.9  # least share of rows that follow a rule, as some rows may be lost


class Suspicion(NamedTuple):
    """Groups that may merge several draws: the evidence, the rows of a block, and whether that size is proven."""

    reason: str
    size: int
    is_proven: bool = False

    def words(self, group: Sequence[str], sizes: Counter[int], *, named: bool) -> str:
        """The warning: the flags that cut the groups, or possible explanations."""
        key = ",".join(group)
        if self.is_proven:
            flags = [] if named else [f"--group {key}"]
            flags.append(f"--group-size {self.size}")
            if any(rows % self.size for rows in sizes):
                flags.append("--partial keep")
            return f"{self.reason}: {' '.join(flags)} cuts them"
        cure = "name the column that tells them apart"
        if "@" not in key:
            cure += f": --group {key},COLUMN"
        return f"{self.reason}: several draws of a prompt, or one draw that was written in parts (ranks, servers)? If several, {cure}"


class Draws:
    """How the rows of groups are ordered in the input, which can show that a group merges several draws of a prompt.

    A stretch is a run of consecutive rows of a group.
    """

    def __init__(self, coded: Coded) -> None:
        rows = sizes(coded)
        codes, lengths = (np.arange(coded.size), rows) if coded.together else coded.runs()
        stretches = np.bincount(codes, minlength=coded.size)
        self.sizes = _counter(rows)  # groups by their number of rows
        self.last_group = int(rows[-1])  # rows of the group that starts last
        self.stretches = _counter(lengths)  # stretches by their number of rows
        self.first = int(lengths[0])  # rows of the first stretch
        self.last = int(lengths[-1])  # rows of the last stretch
        self.stretches_of_last = int(stretches[codes[-1]])  # stretches in the group of the last stretch
        self.split = int((stretches > 1).sum())  # groups with several stretches
        # The stretches of these groups by their number of rows.
        self.returning = _counter(lengths[stretches[codes] > 1])

    def suspicion(self) -> Suspicion | None:
        """The best evidence that groups merge several draws, if any."""
        return self._repeated_keys() or self._multiples()

    @property
    def is_one_group(self) -> bool:
        """Whether all rows are one group, with more rows than a prompt has samples."""
        return self.sizes.total() == 1 and max(self.sizes) >= GIANT

    def _repeated_keys(self) -> Suspicion | None:
        """Keys that come back in blocks of the same size, with other groups in between."""
        if not self.split or self.first == 1:
            return None  # single rows are not blocks
        size = gcd(*_whole(self.stretches, self.last))
        if not self._usual_blocks(size):
            size = self._common_divisor() or self._frequent_size()
        if not size:
            return None
        back = self._back(size)
        keys = "a group key comes" if back == 1 else f"{back:,} group keys come"
        others = self.stretches - Counter([self.last])
        blocks = f"{size} rows"
        if _multiples_of(size, others) < others.total():
            blocks = f"mostly {blocks}"
        elif max(self.stretches) > size:
            blocks = f"multiples of {blocks}"
        return Suspicion(f"{keys} back in separate blocks of {blocks}", size)

    def _back(self, size: int) -> int:
        """Keys that come back, not counting a last stretch that was cut short."""
        return self.split - (self.stretches_of_last == 2 and self.last % size != 0)  # noqa: PLR2004 - the last one and another

    def _usual_blocks(self, size: int) -> bool:
        """Whether all stretches are multiples of a usual size: if there are several sizes, the size of most groups."""
        usual = self.sizes[size]
        several = any(rows > size for rows in self.stretches)
        rare = 2 * usual + 1 < self.sizes.total() or usual == 1
        if size < _MANY or (several and rare):
            return False
        return self._back(size) > 0 and max(self.sizes) != size

    def _common_divisor(self) -> int:
        """A common divisor of too many stretches to be chance; the last stretch may have been cut. 0 if there is none."""
        others = self.stretches - Counter([self.last])
        size = gcd(*others)
        if size < _LEAST or max(self.sizes) == size:
            return 0
        rare = (self.returning.total() - 2) * log(size) >= -log(_RARE)
        return size if rare and self._back(size) >= _SEVERAL else 0

    def _frequent_size(self) -> int:
        """The most frequent length of a stretch, if most are multiples of it: some rows may be lost. 0 otherwise."""
        size = max(self.stretches, key=lambda rows: (self.stretches[rows], -rows))
        count = self.returning.total()
        multiples = _multiples_of(size, self.returning)
        drawn_twice = sum(found for rows, found in self.sizes.items() if rows >= 2 * size)
        several = min(self._back(size), drawn_twice) >= _SEVERAL
        if size < _LEAST or multiples < _MOST * count or not several:
            return 0
        return size if _tail(count, multiples, 1 / size) <= _RARER else 0

    def _multiples(self) -> Suspicion | None:
        """Group sizes that are multiples of the usual size, if all groups are consecutive."""
        whole = _whole(self.sizes, self.last_group)
        common = gcd(*whole)
        most = max(self.sizes)
        often = max(whole.values())
        usual = min(size for size, count in whole.items() if count == often)
        sure = common >= _SURE or self.sizes[usual] > 1
        if common < _MANY or usual != common or most <= usual or self.split or not sure:
            return None
        return Suspicion(f"group sizes are multiples of {usual} (up to {most})", usual)


def shows_no_draws(coded: Coded) -> bool:
    """Whether `Draws` of any of these groups would find nothing: all have the same few rows, which follow each other."""
    rows = sizes(coded)
    return coded.together and rows.max() < GIANT and bool((rows == rows[0]).all())


def _multiples_of(size: int, counts: Counter[int]) -> int:
    return sum(count for rows, count in counts.items() if rows % size == 0)


def _tail(count: int, hits: int, chance: float) -> float:
    """A tight upper bound of the binomial tail: each further term is smaller by at least this ratio."""
    ways = lgamma(count + 1) - lgamma(hits + 1) - lgamma(count - hits + 1)
    misses = count - hits
    first = exp(ways + hits * log(chance) + misses * log(1 - chance))
    ratio = misses / (hits + 1) * chance / (1 - chance)
    return first / (1 - ratio) if ratio < 1 else 1.0


def _counter(numbers: Index) -> Counter[int]:
    counts = np.bincount(numbers)
    values = np.flatnonzero(counts)
    return Counter(dict(zip(values.tolist(), counts[values].tolist(), strict=True)))


def _whole(counts: Counter[int], last: int) -> Counter[int]:
    """The counts without the last size if it is smaller than all others: the end of the file may have cut it."""
    others = counts - Counter([last])
    return others if others and last < min(others) else counts


def numberings(columns: Columns) -> dict[str, Numbering]:
    """Columns that number rollouts, samples or judges: they can show that blocks are not draws."""
    request = columns.request
    schema = request.schema
    given = [name for role, name in request.roles.items() if role == "rollout"]
    if schema is not None:
        given += schema.rollout
    kinds: dict[str, Numbering] = {
        **dict.fromkeys(JUDGES, "judge"), **dict.fromkeys([*ROLLOUT_IDS, "rollout", "episode"], "rollout"), **dict.fromkeys(SAMPLE_IDS, "sample"),
        **dict.fromkeys(given, "sample"),
    }  # fmt: skip
    return {name: kind for name, kind in kinds.items() if name in request.layout.names and name not in request.key}


def is_several_rows_a_rollout(coded: Coded, size: int, column: pl.Series, kind: Numbering) -> bool:
    """Whether blocks of this size are not draws but single rollouts: their fragments, or the votes of judges."""
    order = np.argsort(coded.codes.to_numpy(), kind="stable")
    values = encode([column])
    groups = coded.codes.to_numpy()[order]
    numbers = values.codes.to_numpy()[order]
    same_group = groups[1:] == groups[:-1]
    same_number = numbers[1:] == numbers[:-1]
    same = int((same_group & same_number).sum())
    if kind == "judge":
        return size <= values.size <= 2 * size and same <= (1 - _WHOLE) * len(column)
    rollouts = len(column) - same
    is_own = kind == "sample" or not spanning(values, coded.codes)  # a training step is in several groups
    return is_own and coded.size < rollouts <= (2 - _WHOLE) * len(column) / size


def size_by_samples(coded: Coded, samples: pl.Series) -> int | None:
    """The size of a draw, if sample numbers restart inside groups and no block of that size repeats a number."""
    pairs = within(coded, [samples])
    size = int(parts_of_each(coded, pairs).max())
    if size < _MANY or size >= sizes(coded).max() or samples.null_count():
        return None
    return size if within(blocks(coded, size), [samples]).size == len(samples) else None


def by_baselines(coded: Coded, baseline: pl.Series) -> Suspicion | None:
    """Groups whose logged advantages have several baselines, in blocks of the same size."""
    if baseline.null_count() or not baseline.is_finite().all():
        return None
    values = baseline.to_numpy()
    codes = coded.codes.to_numpy()
    near = _NEAR * max(1.0, np.abs(values).max())
    differs = np.abs(np.diff(values)) > near
    cuts = (codes[1:] != codes[:-1]) | differs
    starts = np.flatnonzero(np.concatenate([[True], cuts]))
    lengths = np.diff(starts, append=len(codes))
    group_of = codes[starts]
    split = np.bincount(group_of, minlength=coded.size) > 1
    of_blocks = np.unique(lengths[split[group_of]]).tolist()
    if len(of_blocks) != 1 or of_blocks == [1]:
        return None
    (size,) = of_blocks
    count = split.sum()
    groups = "a group was" if count == 1 else f"{count} groups were"
    reason = f"{groups} normalised in blocks of {size} by the trainer, as its advantages show"
    # A larger group whose size is no multiple would be cut inside a draw.
    rows = sizes(coded)
    uncut = (rows < size) | (rows % size == 0)
    return Suspicion(reason, size, is_proven=bool(uncut.all()))
