"""`grpo-adv report`: what `inspect` says, as a page to send around or as a picture."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from grpo_cli.cli.inspect import inspected
from grpo_cli.errors import UsageError

KINDS: Final = ("html", "png", "svg", "pdf")
NEEDS: Final = ("altair", "vl_convert")


def report(given: dict[str, Any]) -> None:
    """Draw what `inspect` finds, into a file of the kind that its suffix names."""
    target = _target(given)
    if any(find_spec(name) is None for name in NEEDS):
        raise UsageError("the report is drawn with altair and vl-convert-python", "pip install 'grpo-adv[report]'")
    found = inspected(given, by_steps=True)
    from grpo_cli.render.report import write_report

    size = write_report(found, given, target)
    if not given.get("quiet"):
        print(f"{target}: {size / 1e6:.1f} MB, {found.facts['rows']:,} rows in {found.facts['groups']:,} groups")


def _target(given: dict[str, Any]) -> Path:
    """Where the report goes, refused before anything is read."""
    first = Path(given["inputs"][0])
    if "output" not in given and str(first) == "-":
        raise UsageError("a report of standard input has no name", "give -o report.html")
    target = Path(given.get("output") or first.with_name(f"{first.stem or first.resolve().name}.report.html"))
    if target.suffix.lower().removeprefix(".") not in KINDS:
        raise UsageError(f"{target}: no report goes by this name", f"the suffixes are .{' .'.join(KINDS)}")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target}: there is no directory {target.parent}", f"mkdir -p {target.parent}")
    if target.is_dir():
        raise UsageError(f"{target} is a directory", "give a file")
    if target.exists() and not given.get("force"):
        raise UsageError(f"{target} exists", "add --force to replace it, or give another name with -o")
    return target
