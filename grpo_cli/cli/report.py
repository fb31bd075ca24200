"""`grpo-adv report`: what `inspect` says, as a page to send around or as a picture."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from grpo_cli.cli.inspect import compared, inspected
from grpo_cli.cli.output import file_of
from grpo_cli.errors import UsageError, printable
from grpo_cli.files.stores import is_url

KINDS: Final = ("html", "png", "svg", "pdf")
NEEDS: Final = ("altair", "vl_convert")


def report(given: dict[str, Any]) -> None:
    """Draw what `inspect` finds, into a file of the kind that its suffix names."""
    first = Path(given["inputs"][0])
    if "output" not in given and (given["inputs"][0] == "-" or is_url(given["inputs"][0])):
        what = "standard input" if given["inputs"][0] == "-" else "objects"
        raise UsageError(f"a report of {what} has no name", "give -o report.html")
    target = file_of(given, "output") or Path(first.with_name(f"{first.stem or first.resolve().name}.report.html"))
    if target.suffix.lower().removeprefix(".") not in KINDS:
        raise UsageError(f"{target}: no report goes by this name", f"the suffixes are .{' .'.join(KINDS)}")
    if any(find_spec(name) is None for name in NEEDS):
        raise UsageError(
            "the report is drawn with altair and vl-convert-python", "pip install altair vl-convert-python"
        )
    written = {"report": target, "force": given.get("force", False)}
    inspection = inspected(given, **written)
    if "before" in given:
        changes = compared(inspection, given, **written)
        inspection = replace(
            inspection, facts={**inspection.facts, "against": changes, "warnings": changes["warnings"]}
        )
    from grpo_cli.render.report import write_report

    size = write_report(inspection, given, target)
    if not given.get("quiet"):
        facts = inspection.facts
        print(f"{printable(str(target))}: {size / 1e6:.1f} MB, {facts['rows']:,} rows in {facts['groups']:,} groups")
