"""The report: figures drawn with altair, as one page that needs nothing else, or as a picture."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap

from grpo_cli import __version__
from grpo_cli.errors import UsageError, printable
from grpo_cli.files.atomic import replacing
from grpo_cli.files.finished import expect
from grpo_cli.render.figures import figures
from grpo_cli.render.text import count, listing
from grpo_cli.runs import group_rows
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.rescored import Rescored
from grpo_cli.stats.runs import Runs

WRAPPED = 130  # characters of a line over the charts of a picture
UNENCODED = "backslashreplace"  # half a surrogate pair becomes its escape, as in a text of JSON
MOST = 5_000_000  # a page has at most about this many bytes
KINDS = ("html", "png", "svg", "pdf")


def write_report(inspection: Inspection, target: Path, command: str = "", *, force: bool = False) -> int:
    """Draw the figures and write them as the suffix of `target` says; give the number of bytes. A page names the command."""
    kind = kind_of(target)
    is_page = kind == "html"
    data = page_of(inspection, command).encode(errors=UNENCODED) if is_page else picture_of(inspection, kind)
    expect(1)
    with replacing(target, force=force) as handle:
        handle.write(data)
    return len(data)


def kind_of(target: Path) -> str:
    """The kind of a report, which its suffix says."""
    kind = target.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise UsageError("unknown report format", f"use .{' .'.join(KINDS)}", place=target)
    return kind


def page_of(inspection: Inspection, command: str = "") -> str:
    """The page, with the rows of fewer groups and shorter texts if it were too large."""
    from grpo_cli.render.report.page import page

    drawn = figures(inspection)
    table = group_rows.report_groups(inspection)
    most = group_rows.OPENED
    text = group_rows.TEXT
    while True:
        groups = group_rows.with_rows(inspection, table, most=most, text=text)
        html = page(inspection, drawn, groups, _title(inspection), _origin(inspection, command))
        if len(html.encode(errors=UNENCODED)) < MOST or most <= 1:
            return html
        most, text = most // 2, text // 2


def picture_of(inspection: Inspection, kind: str) -> bytes:
    """The figures as png, svg or pdf."""
    from grpo_cli.render.report.charts import picture
    from grpo_cli.render.report.page import tiles

    facts = inspection.facts
    rows = f"{count(facts.summary.rows, 'row')} in {count(facts.summary.groups, 'group')}"
    rows = ", ".join([rows, *_others(inspection)])
    numbers = " · ".join(f"{words} {value}" for words, value in tiles(inspection).items())
    lines = [rows, *wrap(facts.verdicts[0], WRAPPED), numbers]
    return picture(figures(inspection), _title(inspection), lines, kind)


def _title(inspection: Inspection) -> str:
    """The inputs, and with --against or --old-rewards those of the other run or reward."""
    names = [printable(name) for name in inspection.facts.inputs if name != "-"]
    rewards = f"Rewards of {listing(names)}" if names else "Rewards"
    return " ".join([rewards, *_others(inspection)])


def _others(inspection: Inspection) -> list[str]:
    """The other run or reward, if any."""
    beside = inspection.beside
    if isinstance(beside, Runs):
        return [f"against {listing([printable(run.name) for run in beside.runs[:-1]])}"]
    if isinstance(beside, Rescored):
        return [f"re-scored from {listing(map(printable, beside.rescored))}"]
    return []


def _origin(inspection: Inspection, command: str) -> str:
    """The command, the version, and when the files were last written."""
    said = [printable(command), f"grpo-adv {__version__}"]
    times = [table.source.pin.mtime_ns for table in inspection.narrow.tables if table.source.pin.mtime_ns]
    if times:
        ends = [datetime.fromtimestamp(ns / 1e9, UTC) for ns in (min(times), max(times))]
        days = dict.fromkeys(f"{end:%Y-%m-%d %H:%M}" for end in ends)
        said.append(f"files last written {' to '.join(days)} UTC")
    return " · ".join(filter(None, said))
