"""Checks of what was read, once for the whole input: lines, records, texts of --map, and columns that mark rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from grpo_cli.errors import Way, in_words
from grpo_cli.read.checks.check import Check
from grpo_cli.read.groups import Groups
from grpo_cli.read.marks import none_left, unread, useless
from grpo_cli.read.tables import column_names
from grpo_cli.values.paths import absent

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
    mark_and_rows = unread({name: columns.values[name] for name in names}, typed=columns.typed)
    if mark_and_rows is None:
        return ()
    mark, rows = mark_and_rows
    value = f"{mark.column}={mark.values[0]}" if mark.values else mark.column
    cures = [
        Way("--left-out-column", value, "leaves them out of their groups"),
        Way("--masked-column", value, "marks them as not trained on"),
    ]
    return [f"{mark.words} in {rows:,} of {columns.height:,} rows, which count like all others: {in_words(cures)}"]
