"""`grpo-adv report`: the findings of `inspect` as a page to share, or as an image."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from glob import has_magic
from importlib.util import find_spec
from pathlib import Path

from grpo_cli.cli.inspect import looked_at, refuse_without_runs
from grpo_cli.cli.output import progress
from grpo_cli.errors import UsageError, printable
from grpo_cli.files.stores import is_url, shown
from grpo_cli.options.given import Given
from grpo_cli.runs.asked import file_of

NEEDS = ("altair", "vl_convert")
# They do not change the page: a run with them writes the same bytes as one without.
UNSEEN = frozenset({"--force", "--quiet", "-q", "--debug"})


def report(given: Given) -> None:
    """Plot what `inspect` finds into a file; its suffix chooses the kind."""
    from grpo_cli.render.report import kind_of, write_report

    target = file_of("output", given.output) or _beside(given.inputs[0])
    kind_of(target)
    if any(find_spec(name) is None for name in NEEDS):
        from grpo_cli.files.installation import missing_extra

        raise missing_extra("the report is drawn with altair and vl-convert-python", "report")
    refuse_without_runs(given)
    force = bool(given.force)
    inspection = looked_at(given, report=target, force=force)
    from grpo_cli.render.text import count

    facts = inspection.facts
    of_what = f"{count(facts.summary.rows, 'row')} in {count(facts.summary.groups, 'group')}"
    by = f", options of {given['config']}" if "config" in given else ""
    with progress(given) as phase:
        phase("drawing")
        size = write_report(inspection, target, _command(sys.argv[1:]), force=force)
    if not given.quiet:
        print(printable(f"{target}: {size / 1e6:.1f} MB, {of_what}{by}"))


def _command(words: Sequence[str]) -> str:
    """The command line for the page, without signatures and passwords in URLs."""
    seen = [shown(word) if is_url(word) else word for word in words if word not in UNSEEN]
    return shlex.join(["grpo-adv", *seen])


def _beside(source: str) -> Path:
    """The default page: next to the first input, with its name; an error if that is no file or directory."""
    path = Path(source)
    if source == "-" or is_url(source) or (has_magic(source) and not path.exists()):
        what = "standard input" if source == "-" else "objects" if is_url(source) else f"all that {source} matches"
        raise UsageError(f"a report of {what} has no default name", "give -o report.html")
    return path.parent / f"{path.stem or path.resolve().name}.report.html"
