"""The report: figures drawn with altair, as one page that needs nothing else, or as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.errors import printable
from grpo_cli.files.atomic import replacing
from grpo_cli.read.tables import FileTable
from grpo_cli.render.text import count, listing
from grpo_cli.runs.inspect import size_of
from grpo_cli.stats import group_rows
from grpo_cli.stats.figures import METHODS, advantages_by_method, figures

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from grpo_cli.stats.inspection import Inspection

UNENCODED: Final = "backslashreplace"  # half a surrogate pair: in a text of JSON that is its escape
MOST: Final = 5_000_000  # bytes of a page
# Texts of the listed groups lie all over the files: beyond this much to read they are left out unless asked for.
READABLE: Final = 256 << 20


def write_report(inspection: Inspection, given: Mapping[str, Any], target: Path) -> int:
    """Draw the figures and write them as the suffix of `target` says; give the number of bytes."""
    names = [name.strip() for name in given.get("methods", ",".join(METHODS)).split(",") if name.strip()]
    kind = target.suffix.lower().removeprefix(".")
    if kind == "html":
        files = [table for table in inspection.narrow.tables if isinstance(table, FileTable)]
        texts = "text_column" in given or size_of(files) <= READABLE
        data = page_of(inspection, names, texts=texts).encode(errors=UNENCODED)
    else:
        data = picture_of(inspection, names, kind)
    with replacing(target, force=given.get("force", False)) as handle:
        handle.write(data)
    return len(data)


def page_of(inspection: Inspection, methods: list[str], *, texts: bool = True) -> str:
    """The page, with fewer groups and shorter texts if it were too large."""
    from grpo_cli.render.report.page import page

    advantages = advantages_by_method(inspection, methods)
    drawn = figures(inspection, advantages)
    most, text = group_rows.GROUPS, group_rows.TEXT
    while True:
        groups = group_rows.report_groups(inspection, advantages, most=most, text=text, texts=texts)
        html = page(inspection.facts, drawn, groups, _title(inspection))
        if len(html.encode(errors=UNENCODED)) < MOST or most <= 1:
            return html
        most, text = most // 2, text // 2


def picture_of(inspection: Inspection, methods: list[str], kind: str) -> bytes:
    """The figures as png, svg or pdf."""
    from grpo_cli.render.report.charts import picture

    rows = f"{count(inspection.facts['rows'], 'row')} in {count(inspection.facts['groups'], 'group')}"
    if "against" in inspection.facts:
        rows += f", against {listing(map(printable, inspection.facts['against']['against']))}"
    drawn = figures(inspection, advantages_by_method(inspection, methods))
    return picture(drawn, _title(inspection), rows, kind)


def _title(inspection: Inspection) -> str:
    names = [printable(name) for name in inspection.facts.get("inputs", [])]
    return f"Rewards of {names[0]}" if len(names) == 1 and names[0] != "-" else "Rewards"
