"""Groups that look wrong, as warnings: each names the flag that would change it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Final

import numpy as np

from grpo_cli.read.group_keys import blocks, sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from grpo_cli.read.group_keys import Coded

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

GIANT: Final = 64  # rows of a single group that is more than one prompt's samples
_MANY: Final = 2  # groups of one size that make it the usual one
_SURE: Final = 4  # a smaller common size has to be that of several groups
_NEAR: Final = 1e-4  # two baselines that differ by less are one, rounded


@dataclass(frozen=True, slots=True)
class Draws:
    """How the rows of groups lie in the input, as far as it shows that a group is several draws of a prompt.

    A stretch is rows of one group that follow each other. What is known of parts of the rows can be put together, where
    no group is in two parts.
    """

    sizes: Counter[int]  # how many groups have so many rows
    last_group: tuple[int, int]  # the number of the first row of the group that begins last, and the size of that group
    stretches: Counter[int]  # how many stretches have so many rows
    first: tuple[int, int]  # the number of the first row of the first stretch, and the rows of it
    last: tuple[int, int, int]  # the same of the last stretch, and how many stretches its group has
    split: int  # groups of several stretches
    blocks: (
        Counter[int] | None
    )  # rows that follow each other with one logged baseline, in groups with several; None if unknown
    normalised_in_blocks: int  # those groups

    @classmethod
    def of(cls, coded: Coded, baseline: pl.Series | None, numbers: Ints | None = None) -> Draws:
        """How these groups lie; `numbers` are those of the rows among all rows, where these are a part of them."""
        rows, firsts = sizes(coded), coded.first.to_numpy()
        if numbers is None:
            codes, lengths = (np.arange(coded.size), rows) if coded.together else coded.runs()
            starts = np.cumsum(lengths) - lengths
        else:
            of_row = coded.codes.to_numpy()
            cuts = (of_row[1:] != of_row[:-1]) | (numbers[1:] != numbers[:-1] + 1)
            places = np.flatnonzero(np.concatenate([[True], cuts]))
            codes, lengths, starts = of_row[places], np.diff(places, append=len(of_row)), numbers[places]
            firsts = numbers[firsts]
        stretches = np.bincount(codes, minlength=coded.size)
        blocks, normalised = _baselines(coded, baseline, numbers)
        return cls(
            sizes=_counter(rows),
            last_group=(int(firsts[-1]), int(rows[-1])),
            stretches=_counter(lengths),
            first=(int(starts[0]), int(lengths[0])),
            last=(int(starts[-1]), int(lengths[-1]), int(stretches[codes[-1]])),
            split=int((stretches > 1).sum()),
            blocks=blocks,
            normalised_in_blocks=normalised,
        )

    def merge(self, other: Draws) -> Draws:
        """How the groups of both lie."""
        return Draws(
            self.sizes + other.sizes,
            max(self.last_group, other.last_group),
            self.stretches + other.stretches,
            min(self.first, other.first),
            max(self.last, other.last),
            self.split + other.split,
            None if self.blocks is None or other.blocks is None else self.blocks + other.blocks,
            self.normalised_in_blocks + other.normalised_in_blocks,
        )

    def warnings(self, key: str, group: Sequence[str], *, named: bool) -> tuple[str, ...]:
        """Warnings of groups that may be several in one; `key` are the words for the columns of the group."""
        reason, size = self._baselines() or self._repeated_keys() or self._multiples() or ("", 0)
        if reason:
            flag = "" if named else f"--group {','.join(group)} "
            return (f"{reason} {flag}--group-size {size} cuts them",)
        rows = sum(size * count for size, count in self.sizes.items())
        one_group = self.sizes.total() == 1 and rows >= GIANT
        return (
            f"all {rows:,} rows are one group: is {key} the same everywhere? --group names another key",
        ) * one_group

    def _baselines(self) -> tuple[str, int] | None:
        """Groups in which the logged advantages were made with several baselines, in blocks of one size."""
        if not self.blocks or len(self.blocks) > 1 or 1 in self.blocks:
            return None
        (size,), count = self.blocks, self.normalised_in_blocks
        groups = "a group was" if count == 1 else f"{count} groups were"
        return f"{groups} normalised in blocks of {size} by the trainer (so its own advantages say):", size

    def _repeated_keys(self) -> tuple[str, int] | None:
        """Keys that come back in blocks of one size, with other groups between them."""
        groups, (_, last, with_it) = self.sizes.total(), self.last
        if not self.split or self.first[1] == 1:
            return None  # blocks of one row are no blocks
        size = gcd(*_whole(self.stretches, last))
        # A last stretch that was cut short is no block of its group.
        back = self.split - (with_it == 2 and last % size != 0)  # noqa: PLR2004 - the last one and another
        several = sum(count for rows, count in self.stretches.items() if rows > size)
        # Where all blocks are of one size they say so; of several sizes the smallest has to be that of most groups.
        usual = self.sizes[size]
        if size < _MANY or not back or max(self.sizes) == size or (several and (2 * usual + 1 < groups or usual == 1)):
            return None
        keys = "a group key comes" if back == 1 else f"{back:,} group keys come"
        of = f"{'multiples of ' if several else ''}{size}"
        return f"{keys} back in separate blocks of {of} rows: drawn twice, or ids that restart?", size

    def _multiples(self) -> tuple[str, int] | None:
        """Sizes that are multiples of the usual one, in groups whose rows stand together."""
        whole = _whole(self.sizes, self.last_group[1])
        common, most = gcd(*whole), max(self.sizes)
        usual = min(size for size, count in whole.items() if count == max(whole.values()))
        sure = common >= _SURE or self.sizes[usual] > 1
        if common < _MANY or usual != common or most <= usual or self.split or not sure:
            return None
        return f"group sizes are multiples of {usual} (up to {most}): two draws of one prompt in one group?", usual


def _counter(numbers: Ints) -> Counter[int]:
    counts = np.bincount(numbers)
    values = np.flatnonzero(counts)
    return Counter(dict(zip(values.tolist(), counts[values].tolist(), strict=True)))


def _whole(counts: Counter[int], last: int) -> Counter[int]:
    """The counts without the last one, if it is less than all others: the end of a file may have cut it short."""
    others = counts - Counter([last])
    return others if others and last < min(others) else counts


def size_by_advantages(coded: Coded, advantages: pl.Series) -> int | None:
    """The size of all groups, if some are several of that size in one and the trainer's own advantages show it.

    The advantages of a group add up to zero; where those of each block do, one prompt was drawn several times.
    """
    _, lengths = coded.runs()
    rows, size = sizes(coded), block_size(lengths)
    usual = int(np.bincount(rows).argmax())
    if size < _MANY or usual != size or rows.max() == size or (rows % size).any():
        return None
    cut = blocks(coded, size)
    values = advantages.fill_nan(None).fill_null(0.0).to_numpy()
    sums = np.bincount(cut.codes.to_numpy(), weights=values, minlength=cut.size)
    near = _NEAR * size * max(1.0, float(np.abs(values).max()))
    return size if np.isfinite(sums).all() and values.any() and (np.abs(sums) <= near).all() else None


def block_size(lengths: Ints) -> int:
    """The number of rows that all runs of one key are multiples of; the last run of a file may be cut short."""
    whole = lengths[:-1] if len(lengths) > 1 and lengths[-1] < lengths[:-1].min() else lengths
    return int(np.gcd.reduce(whole))


def _baselines(coded: Coded, baseline: pl.Series | None, numbers: Ints | None) -> tuple[Counter[int] | None, int]:
    """The sizes of the blocks of rows with one baseline each, in groups that have several, and the number of these groups."""
    if baseline is None or baseline.null_count():
        return None, 0
    values, codes = baseline.to_numpy(), coded.codes.to_numpy()
    if not np.isfinite(values).all():
        return None, 0
    near = _NEAR * max(1.0, float(np.abs(values).max()))
    cuts = (codes[1:] != codes[:-1]) | (np.abs(values[1:] - values[:-1]) > near)
    if numbers is not None:
        cuts |= numbers[1:] != numbers[:-1] + 1
    starts = np.flatnonzero(np.concatenate([[True], cuts]))
    lengths, of = np.diff(starts, append=len(codes)), codes[starts]
    split = np.bincount(of, minlength=coded.size) > 1
    return _counter(lengths[split[of]]), int(split.sum())
