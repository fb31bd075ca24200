"""`add` on a terminal: the columns, their types, and the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from grpo_cli.render.text import Sheet, clean, count, duration, file_list


def render(facts: Mapping[str, Any], console: Console) -> None:
    """Print the summary."""
    typed = {name: f"{name} ({dtype})" for name, dtype in facts["columns"].items()}
    replaced = [typed.pop(name) for name in facts["replaced"]]
    said = [("added", [*typed.values()]), ("replaced", replaced)]
    sheet = Sheet(console)
    sheet.rows(
        [
            ("input", [file_list(facts["inputs"]), count(facts["rows"], "row")]),
            *((word, [clean(", ".join(names)), clean(f"from {facts['from']}")]) for word, names in said if names),
            ("written", [file_list(facts["outputs"]), duration(facts["seconds"])]),
        ]
    )
    sheet.warnings(facts["warnings"], hang=2)
