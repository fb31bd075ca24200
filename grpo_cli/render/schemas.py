"""`grpo-adv schemas`: list the schemas, explain one, or say how a file was matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from grpo_cli.read.recognise import SchemaMatch
from grpo_cli.render.text import Sheet, clean, marked
from grpo_cli.schemas.table import LAYOUTS, REFUSED, Mark, Schema
from grpo_cli.schemas.table import schemas as known

NAME = 23  # characters of the longest name of a schema
LABEL = 13  # characters of a label of one schema


def listing(console: Console) -> None:
    """Every schema: its title, its layout, its key and its reward."""
    sheet = Sheet(console, NAME)
    for row in known().values():
        lines = [f"{row.title} ({row.layout})", f"  {_read(row)}"]
        if origin := known().origin(row.name):
            lines.append(f"  from {clean(origin)}")
        sheet.row(row.name, lines)
    sheet.blank()
    sheet.text("grpo-adv schemas NAME explains a schema; grpo-adv schemas FILE says which schema a file has and why.")


def explain(name: str, console: Console) -> None:
    """One schema: how it is recognised, and which columns it names."""
    row = known()[name]
    sheet = Sheet(console, LABEL)
    sheet.text(_title(row), style="bold")
    sheet.blank()
    sheet.rows(_facts(row).items())


def matched(match: SchemaMatch, console: Console) -> None:
    """Which schema a file has and why, and why the nearest others do not fit."""
    sheet = Sheet(console, LABEL)
    sheet.row("file", match.file)
    if match.schema is None:
        sheet.row("schema", "none: columns are found by name, or set by --group and --reward")
    else:
        row = known()[match.schema]
        sheet.row("schema", _title(row))
        sheet.row("because", f"it has {', '.join(match.because)}")
        sheet.row("read as", _read(row))
    for label, others in (("also fits", match.also), ("nearly", match.nearly)):
        for i, other in enumerate(others):
            why = f"but {'; '.join(other.against)}" if other.against else f"less specific ({other.score})"
            sheet.row("" if i else label, f"{other.schema}, {why}")


def as_dict(name: str) -> dict[str, Any]:
    """One schema as plain data."""
    row = known()[name]
    origin = known().origin(name) or "built in"
    return {"name": name, "origin": origin, "title": row.title, "tool": row.tool, "layout": row.layout, **_facts(row)}


def reward_of(row: Schema) -> str:
    """The reward in words."""
    rule = row.rewards
    if rule is None:
        return " + ".join(map(row.words, row.reward))
    if rule.named_in:
        return f"the column that {rule.named_in} names"
    if rule.shape:
        return "the sum of the reward functions' columns"
    which = "the only column" if rule.alone else "the sum of the columns"
    first = f"{rule.first}, else " if rule.first else ""
    return f"{first}{which} like {rule.named.strip('^$')}*"


def _title(row: Schema) -> str:
    return f"{marked(row.name, known().origin(row.name))}: {row.title}"


def _read(row: Schema) -> str:
    if row.layout in REFUSED:
        return f"refused: {row.refusal}"
    return f"group = {row.grouping}, reward = {reward_of(row)}"


def _mark(mark: Mark) -> str:
    return f"{mark.column} is not empty" if mark.state == "filled" else mark.words


def _facts(row: Schema) -> dict[str, Sequence[str] | str]:
    layout = f"{row.layout}: {LAYOUTS[row.layout]}"
    if row.rows:
        layout += f", at {row.rows}"
    fields = [f"{name} ({shape})" for name, shape in row.fields.items()]
    recognised = [f"has {', '.join(fields)}"]
    if row.absent:
        recognised.append(f"has no {', '.join(row.absent)}")
    if row.file:
        only = "only if" if row.only_file else "more likely if"
        recognised.append(f"{only} the path matches {row.file}")
    passed_over = [f"{copy.skip} beside {copy.beside}" if copy.beside else copy.skip for copy in row.copies]
    return {
        "written by": row.tool,
        "layout": layout,
        "recognised": recognised,
        "read as": _read(row),
        "batch": row.batch,
        "rollout": ", else ".join(map(row.words, row.rollout)),
        "length": row.words(row.length) if row.length else "",
        "logged": row.advantage,
        "no reward": ["the reward is null or not finite"] if row.missing else [],
        "left out": [_mark(mark) for mark in row.left_out],
        "masked": [_mark(mark) for mark in row.masked],
        "no rollouts": [_mark(mark) for mark in row.foreign],
        "passed over": passed_over,
        "note": row.note,
        "source": row.source,
    }
