"""Groups that look wrong, as warnings: each names the flag that would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from grpo_cli.read.group_keys import blocks, sizes

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.read.assign_groups import Scan
    from grpo_cli.read.group_keys import Coded
    from grpo_cli.read.tables import Binding

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

GIANT: Final = 64  # rows of a single group that is more than one prompt's samples
_MANY: Final = 2  # groups of one size that make it the usual one
_SURE: Final = 4  # a smaller common size has to be that of several groups
_NEAR: Final = 1e-4  # two baselines that differ by less are one, rounded


def group_warnings(scan: Scan, binding: Binding, coded: Coded, baseline: pl.Series | None) -> tuple[str, ...]:
    """Warnings of groups that may be several in one; `baseline` is the one that the trainer logged, row by row."""
    if binding.group_size is not None or not scan.group:
        return ()
    key = scan.key_words or ", ".join(scan.group)
    rows = sizes(coded)
    reason, size = _baselines(coded, baseline) or _repeated_keys(coded, rows) or _multiples(coded, rows) or ("", 0)
    if reason:
        group = "" if binding.group else f"--group {','.join(scan.group)} "
        return (f"{reason} {group}--group-size {size} cuts them",)
    return giant_group(scan.rows, key) if coded.size == 1 and scan.rows >= GIANT else ()


def giant_group(rows: int, key: str) -> tuple[str, ...]:
    """The warning for so many rows that are one group."""
    return (f"all {rows:,} rows are one group: is {key} the same everywhere? --group names another key",)


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


def _repeated_keys(coded: Coded, rows: Ints) -> tuple[str, int] | None:
    """Keys that come back in blocks of one size, with other groups between them."""
    if coded.together or coded.codes[0] != coded.codes[1]:
        return None  # blocks of one row are no blocks
    codes, lengths = coded.runs()
    size = block_size(lengths)
    back = int((np.bincount(codes[lengths % size == 0], minlength=coded.size) > 1).sum())
    several = int((lengths > size).sum())
    # Where all blocks are of one size they say so; of several sizes the smallest has to be that of most groups.
    usual = int((rows == size).sum())
    if size < _MANY or not back or rows.max() == size or (several and (2 * usual + 1 < coded.size or usual == 1)):
        return None
    keys = "a group key comes" if back == 1 else f"{back:,} group keys come"
    return (
        f"{keys} back in separate blocks of {'multiples of ' if several else ''}{size} rows: drawn twice, or ids that restart?",
        size,
    )


def block_size(lengths: Ints) -> int:
    """The number of rows that all runs of one key are multiples of; the last run of a file may be cut short."""
    whole = lengths[:-1] if len(lengths) > 1 and lengths[-1] < lengths[:-1].min() else lengths
    return int(np.gcd.reduce(whole))


def _multiples(coded: Coded, rows: Ints) -> tuple[str, int] | None:
    """Sizes that are multiples of the usual one, in groups whose rows stand together."""
    usual_last = len(rows) == 1 or rows[-1] >= rows[:-1].min()
    whole = rows if usual_last else rows[:-1]  # the last group of a file may be cut short
    counts = np.bincount(whole)
    common, usual = int(np.gcd.reduce(np.flatnonzero(counts))), int(counts.argmax())
    most = int(rows.max())
    sure = common >= _SURE or int((rows == usual).sum()) > 1
    if common < _MANY or usual != common or most <= usual or not coded.together or not sure:
        return None
    return f"group sizes are multiples of {usual} (up to {most}): two draws of one prompt in one group?", usual


def _baselines(coded: Coded, baseline: pl.Series | None) -> tuple[str, int] | None:
    """Groups in which the logged advantages were made with several baselines, in blocks of one size."""
    if baseline is None or baseline.null_count():
        return None
    values, codes = baseline.to_numpy(), coded.codes.to_numpy()
    if len(values) < _MANY or not np.isfinite(values).all():
        return None
    near = _NEAR * max(1.0, float(np.abs(values).max()))
    cuts = np.concatenate([[True], (codes[1:] != codes[:-1]) | (np.abs(values[1:] - values[:-1]) > near)])
    starts = np.flatnonzero(cuts)
    lengths, of = np.diff(np.append(starts, len(codes))), codes[starts]
    split = np.bincount(of, minlength=coded.size) > 1
    inside = lengths[split[of]]
    if not split.any() or (inside != inside[0]).any() or inside[0] == 1:
        return None
    size, count = int(inside[0]), int(split.sum())
    groups = "a group was" if count == 1 else f"{count} groups were"
    return f"{groups} normalised in blocks of {size} by the trainer (so its own advantages say):", size
