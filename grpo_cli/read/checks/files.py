"""Checks of what was read, once for the whole input: lines, records, texts of --map, and columns that mark rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, Way, in_words
from grpo_cli.read.checks.check import Check
from grpo_cli.read.groups import Groups
from grpo_cli.read.marks import none_left, unread, useless
from grpo_cli.read.tables import column_names
from grpo_cli.values.paths import absent

FEWEST = 2  # groups that lost their second row: of a single one, the others may have failed
_AT_LIMIT = ("is_truncated", "finish_reason")  # marks of responses that reached the longest length


@partial(Check, once_per="input")
def broken_lines(groups: Groups) -> Sequence[str]:
    """Warn of lines that were left out because they are not JSON objects."""
    warnings = []
    for table in groups.columns.tables:
        numbers = table.source.left_out
        if numbers:
            lines = "line that is not a JSON object" if len(numbers) == 1 else "lines that are not JSON objects"
            first = ", ".join(map(str, numbers[:3]))
            more = ", ..." if len(numbers) > 3 else ""  # noqa: PLR2004
            warnings.append(f"{table.name}: left out {len(numbers)} {lines} (line {first}{more})")
    return warnings


@partial(Check, once_per="input")
def empty_records(groups: Groups) -> Sequence[str]:
    """Warn of records without rollouts: an empty list, null, or a missing field."""
    warnings = []
    for table, scanned in zip(groups.columns.tables, groups.columns.scans, strict=True):
        if scanned.empty:
            records = "record has" if scanned.empty == 1 else "records have"
            warnings.append(f"{table.name}: {scanned.empty:,} {records} no rollouts")
    return warnings


@partial(Check, once_per="input", needs_whole_input=True)
def unused_outcomes(groups: Groups) -> Sequence[str]:
    """Warn of texts of --map that no row has."""
    texts = ", ".join(map(repr, groups.columns.unused))
    return [f"--map names {texts}, which no row has"] if texts else []


@partial(Check, looks_at="all rows", once_per="input", needs_whole_input=True, comes_first=True)
def useless_marks(groups: Groups) -> Sequence[str]:
    """Refuse marks of flags that hold for every row, one or several together, and warn of a value that no row has."""
    columns = groups.columns
    tables = columns.tables
    for name in columns.lacking:
        raise absent(name, tables[0].name, column_names(tables))
    layout = groups.request.layout
    warnings = useless(layout.marks, columns.values, typed=columns.typed)
    left_out = columns.left_out
    if left_out is not None and left_out.all():
        warnings.append(none_left(layout.marks, columns.values, layout.flags.masked_rows, typed=columns.typed))
    return warnings


@partial(Check, once_per="input", needs_whole_input=True)
def unread_marks(groups: Groups) -> Sequence[str]:
    """Name a column that seems to mark failed or masked rows, if nothing says what such rows are."""
    columns = groups.columns
    names = groups.request.for_checks.marks
    # A known tool that cuts responses off counts them like others, unless its schema says so.
    names = [name for name in names if columns.request.schema is None or name not in _AT_LIMIT]
    rewards = columns.rewards()
    reward = rewards[0].cast(pl.Float64, strict=False) if len(rewards) == 1 and rewards[0].dtype.is_numeric() else None
    mark_and_rows = unread({name: columns.values[name] for name in names}, reward, typed=columns.typed)
    if mark_and_rows is None:
        return ()
    mark, rows = mark_and_rows
    means = "" if reward is None else _means(reward, rows)
    value = f"{mark.column}={mark.values[0]}" if mark.values else mark.column
    cures = [
        Way("--left-out-column", value, "leaves them out of their groups"),
        Way("--masked-column", value, "marks them as not trained on"),
    ]
    there = f"{mark.words} in {rows.sum():,} of {columns.height:,} rows, which count like all others{means}"
    return [f"{there}: {in_words(cures)}"]


def _means(reward: pl.Series, rows: pl.Series) -> str:
    """The mean reward of the marked rows and of the others."""
    means = []
    for some in (reward.filter(rows), reward.filter(~rows)):
        known = some.filter(some.is_finite()).to_numpy()
        if not len(known):
            return ""
        means.append(f"{known.mean():.3g}")
    return f" (mean reward {means[0]}, and {means[1]} of the others)"


@partial(Check, looks_at="all rows", once_per="input", needs_whole_input=True)
def marks_that_leave_single_rows(groups: Groups) -> None:
    """Refuse marks of flags after which no group has two rows, where some had: they may mark the good ones."""
    columns = groups.columns
    marked = columns.marked
    if marked is None:
        return
    # Who names a value, or a condition, has said which rows are meant.
    by_flag = [mark for mark in marked.marks if mark.flag and mark.state == "truth" and mark.kind == "left_out"]
    left_out = columns.left_out
    if not by_flag or left_out is None or left_out.all() or groups.coded.size == 0:
        return
    codes = groups.coded.codes.to_numpy()
    before = np.bincount(codes)
    after = np.bincount(codes[~left_out.to_numpy()], minlength=1)
    several = int((before > 1).sum())
    if several >= FEWEST and after.max() <= 1:
        mark = by_flag[0]
        wrong = f"{mark.flag} {mark.column}: no group has two rows after it, {several:,} had before"
        why = "leaves out the others, if it marks the good ones"
        raise DataError(wrong, Way(mark.flag, why=why, fill=f"{mark.column}=VALUE"))
