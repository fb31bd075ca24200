"""The report: figures drawn with altair, as one page that needs nothing else, or as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.files.atomic import replacing
from grpo_cli.read.tables import FileTable
from grpo_cli.runs.inspect import size_of
from grpo_cli.stats import sampled_groups
from grpo_cli.stats.figures import METHODS, advantages, figures

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from grpo_cli.stats.inspection import Inspection

MOST: Final = 5_000_000  # bytes of a page
# Texts of the listed groups lie all over the files: beyond this much to read they are left out unless asked for.
READABLE: Final = 256 << 20


def written(found: Inspection, given: Mapping[str, Any], target: Path) -> int:
    """Draw what was found and write it; give the number of bytes."""
    names = [name.strip() for name in given.get("methods", ",".join(METHODS)).split(",") if name.strip()]
    kind = target.suffix.lower().removeprefix(".")
    made = page_of(found, names, texts="text_column" in given or _readable(found)).encode() if kind == "html" else None
    if made is None:
        made = picture_of(found, names, kind)
    with replacing(target, force=True) as handle:
        handle.write(made)
    return len(made)


def page_of(found: Inspection, methods: list[str], *, texts: bool = True) -> str:
    """The page, with fewer groups and shorter texts if it were too large."""
    from grpo_cli.render.report.page import page

    told = advantages(found, methods)
    drawn = figures(found, told)
    groups, room = sampled_groups.GROUPS, sampled_groups.TEXT
    while True:
        listed = sampled_groups.listed(found, told, most=groups, text=room, texts=texts)
        made = page(found.facts, drawn, listed, _title(found))
        if len(made.encode()) < MOST or groups <= 1:
            return made
        groups, room = groups // 2, room // 2


def picture_of(found: Inspection, methods: list[str], kind: str) -> bytes:
    """The figures as png, svg or pdf."""
    from grpo_cli.render.report.picture import drawn

    rows = f"{found.facts['rows']:,} rows in {found.facts['groups']:,} groups"
    return drawn(figures(found, advantages(found, methods)), _title(found), rows, kind)


def _title(found: Inspection) -> str:
    names = found.facts.get("inputs", [])
    return f"Rewards of {names[0]}" if len(names) == 1 and names[0] != "-" else "Rewards"


def _readable(found: Inspection) -> bool:
    files = [table for table in found.narrow.tables if isinstance(table, FileTable)]
    return size_of(files) <= READABLE
