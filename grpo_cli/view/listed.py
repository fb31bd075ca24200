"""The tables of a look: a trend with its sparklines, the groups at either end, and the rows of one group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.view.sheet import BLOCKS, Sheet, aligned
from grpo_cli.view.words import clean, column, cut, number, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

KEY: Final = 28
LINES: Final = 20  # of a trend; more are thinned out
SPARKS: Final = 60
ROWS: Final = 64  # of a group
NARROWEST: Final = 12  # of a text beside its numbers
HEADS: Final = {
    "unscorable": "missing",
    "zero_variance": "constant",
    "all_best": "best",
    "all_worst": "worst",
    "group_std": "in group",
}
# Which columns of a trend go first where the terminal is too narrow for all.
SPARE: Final = ("std", "rows", "all_worst", "all_best", "unscorable", "length", "group_std")
SHARES: Final = frozenset({"zero_variance", "all_best", "all_worst"})
SPARKED: Final = ("mean", "group_std", "zero_variance", "length")


def trend(facts: Mapping[str, Any], sheet: Sheet) -> None:
    """One line for each value of a column, under the course of its most telling numbers."""
    if facts["by"] is None:
        return
    name, lines = clean(facts["by"]["column"]), facts["by"]["lines"]
    here = [key for key in lines[0] if any(line[key] not in {None, 0} for line in lines) or key in {"value", "mean"}]
    for key in SPARKED:
        values = [line[key] for line in lines]
        if len(lines) > 1 and any(value is not None for value in values):
            sheet.row(HEADS.get(key, key), f"{spark(values)}  {_cell(key, values[0])} to {_cell(key, values[-1])}")
    picked = [lines[round(i * (len(lines) - 1) / (LINES - 1))] for i in range(LINES)] if len(lines) > LINES else lines
    for line in _fitting(name, here, picked, sheet.console.width):
        sheet.text(line)
    if len(lines) > LINES:
        sheet.text(f"{LINES} of {len(lines):,} values; --format csv has all", style="dim")
    sheet.blank()


def _fitting(name: str, keys: list[str], lines: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """The table with as many columns as there is room for."""
    for spare in ("", *SPARE):
        keys = [key for key in keys if key != spare]
        cells = [[_cell(key, line[key]) for line in lines] for key in keys]
        table = aligned([name, *(HEADS.get(key, key) for key in keys[1:])], cells)
        if max(map(len, table)) <= width:
            break
    return table


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key in SHARES:
        return percent(value)
    return (
        number(value) if isinstance(value, float) else f"{value:,}" if key != "value" else cut(clean(str(value)), KEY)
    )


def spark(values: Sequence[float | None]) -> str:
    """One block for each value (or for each few), from the lowest to the highest; a gap where there is none."""
    step = -(-len(values) // SPARKS)
    parts = [[v for v in values[i : i + step] if v is not None] for i in range(0, len(values), step)]
    means = [sum(part) / len(part) if part else None for part in parts]
    known = [mean for mean in means if mean is not None]
    low, high = min(known), max(known)
    if low == high:
        return "".join(" " if mean is None else BLOCKS[3] for mean in means)
    return "".join(
        " " if mean is None else BLOCKS[round((mean - low) / (high - low) * (len(BLOCKS) - 1))] for mean in means
    )


def groups(facts: Mapping[str, Any], sheet: Sheet) -> None:
    """The groups with the most and with the least of a fact."""
    told = facts["listed"]
    those = [*told["most"], *told["least"]]
    if not those:
        return
    names = ["scored", "mean", "std", "min", "max", *(["length"] if "length" in those[0] else [])]
    cells = [[cut(clean(one["key"]), KEY) for one in those]]
    cells += [column([one[name] for one in those]) for name in names]
    heads = ["group", "rows", *names[1:]]
    lines = aligned(heads, cells, frozenset({0}))
    sheet.text(
        f"the {'most' if len(told['most']) > 1 else 'group with the most'} and the least by {told['sort']}",
        style="bold",
    )
    for at, line in enumerate(lines):
        if told["least"] and at == 1 + len(told["most"]):
            sheet.text("...")
        sheet.text(line, style="dim" if not at else "")
    sheet.blank()


def group(told: Mapping[str, Any], console: Console) -> None:
    """One group: its facts, and its rows with as much of their text as fits."""
    sheet = Sheet(console)
    sheet.row("group", clean(told["key"]), hang=2)
    if told["prompt"]:
        sheet.row("prompt", cut(clean(told["prompt"]), 3 * sheet.width), hang=2)
    numbers = ("scored", "mean", "std", "min", "max", "solve_rate")
    sheet.row("facts", "  ".join(f"{name.replace('_', ' ')} {number(told[name])}" for name in numbers), hang=2)
    sheet.blank()
    heads, cells = row_cells(told["rows"])
    lines = aligned(heads, cells)
    room = console.width - max(map(len, lines)) - 2
    texts = ["text", *(clean(row["text"] or "") for row in told["rows"])]
    beside = any(texts[1:]) and room >= NARROWEST
    for line, text in zip(lines, texts, strict=True):
        sheet.text(f"{line}  {' ' * (max(map(len, lines)) - len(line))}{_head(text, room)}" if beside else line)
    if told["size"] > len(told["rows"]):
        sheet.text(f"{len(told['rows']):,} of {told['size']:,} rows; --format csv has all", style="dim")


def row_cells(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and columns of a group's rows."""
    several = len(rows[0]["rewards"]) > 1
    heads, cells = ["row"], [[str(row["row"]) for row in rows]]
    for name in rows[0]["rewards"] if several else ():
        heads.append(clean(name))
        cells.append([number(row["rewards"][name]) for row in rows])
    for name in ("reward", "advantage"):
        heads.append(name)
        cells.append(column([row[name] for row in rows]))
    if any(row["length"] is not None for row in rows):
        heads.append("length")
        cells.append([number(row["length"]) for row in rows])
    if any(row["status"] != "scored" for row in rows):
        heads.append("status")
        cells.append([row["status"] for row in rows])
    return heads, cells


def _head(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
