"""`inspect --old-rewards`: two rewards of the same rollouts, on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from rich.console import Console

from grpo_cli.render.text import (
    Column,
    Sections,
    Sheet,
    clean,
    column_of_texts,
    count,
    file_list,
    markdown_table,
    number,
)
from grpo_cli.stats.rescored import DisagreeingRow, Rescored, Sides, counted
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.key_text import labels_of

KEY = 28  # characters of a key

Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # its heads (the first is its title) and its lines


def render(facts: Rescored, console: Console) -> None:
    """Print what the new reward changes."""
    sheet = Sheet(console)
    sheet.steps(facts.warnings)
    sheet.rows(_sections(facts))
    for heads, lines in _tables(facts, console.width):
        sheet.blank()
        sheet.table(heads, lines)
    sheet.warnings(facts.warnings)
    sheet.row("verdict", facts.verdict)


def markdown(facts: Rescored) -> str:
    """The same as Markdown: a list, and a table for each part."""
    lines = [f"* **{label}**: {escape('; '.join(parts), quote=False)}\n" for label, parts in _sections(facts)]
    tables = [f"\n{markdown_table(heads, rows)}" for heads, rows in _tables(facts, None)]
    return "".join([*lines, *tables, f"\n{escape(clean(facts.verdict), quote=False)}\n"])


def _sections(facts: Rescored) -> Sections:
    """The labelled lines above the tables."""
    reward = facts.reward
    agree = facts.agreement
    groups = facts.groups
    advantage = facts.advantage
    alone = facts.paired and (facts.paired.only.now or facts.paired.only.before)
    of_pairs = " of the pairs" if alone or facts.compared < facts.rows else ""
    for side, word, names in ((reward.before, "old", facts.rescored), (reward.now, "new", facts.inputs)):
        columns = " + ".join(map(clean, side.columns))
        yield word, [f"{file_list(names)}: {columns}, mean{of_pairs} {number(side.mean)}"]
    yield "rollouts", list(_pairing(facts))
    agreement = f"{percent(agree.share)} exactly"
    if agree.kappa is not None:
        agreement += f", kappa {number(agree.kappa)}"
    if agree.rank_correlation is not None:
        agreement += f", rank correlation {number(agree.rank_correlation)}"
    changes = f"{reward.up:,} up, {reward.down:,} down, mean change {reward.mean_change:+.4g}"
    yield "agreement", [agreement, changes]
    has = groups.with_gradient
    total = advantage.total
    old = f"{has.before:,} of {count(groups.groups, 'group')} with the old rewards"
    gained = f"gained by {groups.gained:,}, lost by {groups.lost:,}"
    yield "gradient", [f"{old}, {has.now:,} with the new", gained]
    signs = counted(advantage.sign_changes, "changes sign", "change sign") or "none changes sign"
    size = f"total |A| {number(total.before)} to {number(total.now)}"
    if total.change is not None:
        plus = "+" if total.change > 0 else ""
        size += f" ({plus}{number(100 * total.change, digits=3)}%)"
    yield "advantages", [f"{signs} ({advantage.method})", f"{size}, moved by {number(advantage.moved)}"]


def _pairing(facts: Rescored) -> Iterator[str]:
    both = f"{facts.compared:,} with both rewards"
    paired = facts.paired
    unscored = facts.unscored
    if paired is None:
        yield both
    else:
        by = ", ".join(map(clean, paired.by))
        within = clean(", ".join(paired.key)) or "the input"
        yield f"{both}, paired by {by} within {within}"
        if paired.only.now or paired.only.before:
            yield f"only in the old input {paired.only.before:,}, only in the new one {paired.only.now:,}"
    if unscored.now or unscored.before:
        yield f"no old reward {unscored.before:,}, no new reward {unscored.now:,}"


def _tables(facts: Rescored, width: int | None) -> Iterator[Table]:
    """How often each reward became each other one, and the rows that disagree most."""
    if facts.flips is not None:
        rows = {(flip.before, flip.now): f"{flip.rows:,}" for flip in facts.flips}
        new = sorted({now for _, now in rows})
        lines = []
        for before in sorted({before for before, _ in rows}):
            changes = [rows.get((before, now), "0") for now in new]
            lines.append([number(before), *changes])
        yield ["old", *(f"new {number(now)}" for now in new)], lines
    if facts.largest:
        yield _largest(facts.largest, width)


def _largest(rows: Sequence[DisagreeingRow], width: int | None) -> Table:
    """The rows that disagree most; both ends of their texts if the screen is wide enough."""
    keys = labels_of([row.key for row in rows], KEY)
    groups = [f"#{row.number} {key}" for row, key in zip(rows, keys, strict=True)]
    columns: list[Column] = [
        ("largest", groups),
        ("row", [str(row.row) for row in rows]),
        ("reward", [_from_to(row) for row in rows]),
        ("advantage", [_from_to(row.advantage) for row in rows]),
    ]
    columns += column_of_texts([row.text for row in rows], columns, width)
    heads, cells = zip(*columns, strict=True)
    return heads, [*zip(*cells, strict=True)]


def _from_to(sides: Sides | DisagreeingRow) -> str:
    return f"{number(sides.before)} to {number(sides.now)}"
