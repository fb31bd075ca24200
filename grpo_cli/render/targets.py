"""`grpo-adv targets`: list the trainers that read an export, or explain one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from grpo_cli.render.text import Sheet, clean, marked
from grpo_cli.targets.table import WHEN, Reads, Target
from grpo_cli.targets.table import targets as known

NAME = 16  # characters of the longest name of a target
LABEL = 10  # characters of a label of one target

CHECKED = {"run": "its own loader ran on an export", "read": "its code was read, not run"}
FORMS = {
    "messages": "one list of messages",
    "turns": "prompt and completion as two lists",
    "texts": "texts: one turn of the user and one answer",
}


def listing(console: Console) -> None:
    """Every target: its release, and the kinds that it reads."""
    sheet = Sheet(console, NAME)
    for row in known().values():
        lines = [
            f"{title(row)} ({row.release}, {row.checked})",
            f"  --to {', '.join(row.kinds)}; {' or '.join(row.suffixes)}",
        ]
        if origin := known().origin(row.name):
            lines.append(f"  from {clean(origin)}")
        sheet.row(row.name, lines)
    sheet.blank()
    sheet.text(
        "grpo-adv targets NAME says what a trainer reads, what it trains on and what to set; export --target NAME writes it."
    )


def explain(name: str, console: Console) -> None:
    """One target: each kind that it reads, and those that it does not."""
    row = known()[name]
    sheet = Sheet(console, LABEL)
    sheet.text(f"{marked(row.name, known().origin(row.name))}: {title(row)}", style="bold")
    sheet.blank()
    sheet.row("release", f"{row.release}: {CHECKED[row.checked]}")
    sheet.row("source", row.source)
    for kind, reads in row.kinds.items():
        sheet.blank()
        sheet.row(f"--to {kind}", [*kind_lines(row, kind, reads)])
    if row.not_read:
        sheet.blank()
        sheet.row("not read", [f"{kind}: {why}" for kind, why in row.not_read.items()])


def title(row: Target) -> str:
    """What people call it, and what else reads the same."""
    return f"{row.title} ({row.also})" if row.also else row.title


def kind_lines(row: Target, kind: str, reads: Reads) -> Iterator[str]:
    """How a trainer reads one kind, a fact on each line."""
    form = FORMS[reads.form]
    if reads.names:
        form += f" ({', '.join(f'{ours} is {theirs}' for ours, theirs in reads.names.items())})"
    yield f"by {reads.by}: {form}" if reads.by else form
    yield f"files: {' or '.join(row.suffixes_of(kind))}{', train and valid in one folder' if reads.folder else ''}"
    if reads.trains_on:
        yield f"trains on {reads.trains_on}"
    for when, say in reads.know.items():
        yield say if when == "always" else f"{WHEN[when]}: {say}"
    if reads.without:
        yield f"not written: {', '.join(reads.without)}"
    if reads.ignores:
        yield f"ignored: {', '.join(reads.ignores)}"
    if reads.checked:
        yield CHECKED[reads.checked]


def as_dict(name: str) -> dict[str, Any]:
    """One target as plain data."""
    row = known()[name]
    kinds: dict[str, Any] = {}
    for kind, reads in row.kinds.items():
        facts = {key: value for key, value in vars(reads).items() if value not in ("", (), {}, False)}
        kinds[kind] = {**facts, "suffixes": [*row.suffixes_of(kind)], "checked": reads.checked or row.checked}
    origin = known().origin(name) or "built in"
    about = {key: getattr(row, key) for key in ("title", "also", "release", "source", "checked")}
    return {"name": name, "origin": origin, **about, "kinds": kinds, "not_read": {**row.not_read}}
