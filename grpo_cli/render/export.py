"""`export` on a terminal: what was made of how much, what is in none of it and why, and where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_cli.render.select import left_out
from grpo_cli.render.text import Sheet, clean, count, duration, file_list, text_outcomes
from grpo_cli.stats.verdicts import key_note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console


def render(facts: Mapping[str, Any], console: Console) -> None:
    """Print the summary."""
    sheet = Sheet(console)
    for label, lines in _sections(facts):
        sheet.row(label, lines, hang=2)
    sheet.warnings(facts["warnings"], hang=2)


def _sections(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    yield "input", [file_list(facts["inputs"]), count(facts["rows"], "row")]
    yield "groups", [count(facts["groups"], "group"), clean(f"by {key_note(facts)}")]
    if outcomes := text_outcomes(facts):
        yield "rewards", outcomes
    yield "texts", [clean(facts["texts"])]
    for i, dropped in enumerate(facts["dropped"]):
        yield "" if i else "left out", left_out(dropped)
    yield "records", [f"{count(facts['records'], 'record')} for {facts['to']}: {', '.join(facts['columns'])}"]
    yield "written", [file_list(facts["outputs"]), duration(facts["seconds"])]
