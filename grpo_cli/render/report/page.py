"""The report as one self-contained page: libraries, numbers and style, and nothing to fetch."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import vl_convert

from grpo_cli.render.figures import Figure, figures
from grpo_cli.render.report.charts import SHADES, chart, picture
from grpo_cli.render.text import count, number, status_words
from grpo_cli.runs.group_rows import GroupRows, GroupTable
from grpo_cli.stats.document import document
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.runs import Runs
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.key_text import cut

LISTED = 200  # the table of a chart has at most this many lines; the chart itself shows all values
KEY = 60  # the table of a chart shows this many characters of a key
INPUTS = 3  # the subtitle names at most this many inputs
CELL_FIGURES = 2  # figures in a cell of a notebook


def page(inspection: Inspection, drawn: Sequence[Figure], groups: GroupTable, title: str, origin: str) -> str:
    """The whole page. `groups` are those of the table with their rows."""
    facts = inspection.facts
    summary = facts.summary
    charts = {figure.name: _specification(figure) for figure in drawn}
    data = {"charts": charts, "groups": _table(groups), "total": summary.groups}
    # The data must not end an element of the page.
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=False, default=str, allow_nan=False)
    encoded = encoded.replace("<", "\\u003c")
    names = facts.inputs
    inputs = ", ".join(names[:INPUTS])
    if len(names) > INPUTS:
        inputs += f" and {len(names) - INPUTS:,} more"
    rows = f"{count(summary.rows, 'row')} in {count(summary.groups, 'group')}"
    main = "".join(_figure(figure) for figure in drawn if not figure.more)
    details = "".join(_figure(figure) for figure in drawn if figure.more)
    return Template(_part("page.html")).substitute(
        title=html.escape(title),
        origin=html.escape(origin),
        style=_shades() + _part("page.css"),
        script=_part("page.js"),
        library=_library(),
        subtitle=html.escape(f"{rows} from {inputs}" if inputs else rows),
        meaning=_meaning(inspection, _warned(summary.warnings)),
        figures=main,
        details=details,
        shown=html.escape(groups.says),
        data=encoded,
        notes=_items(map(html.escape, summary.notes)),
    )


def _table(groups: GroupTable) -> dict[str, Any]:
    """The table of groups as the page reads it: by column, each as short as it can be."""
    short = [line[0] for line in groups.lines]
    return {
        "columns": groups.columns,
        "shown": groups.shown,
        "solved": groups.solved,
        "heads": groups.heads,
        "rows": {place: _rows(groups.heads, rows) for place, rows in groups.rows.items()},
        "values": [_packed(values) for values in zip(*groups.lines, strict=True)],
        "keys": _packed([None if key == label else key for key, label in zip(groups.keys, short, strict=True)]),
        "beginnings": _packed(groups.beginnings),
        "strips": _packed(groups.strips),
    }


def _rows(heads: Sequence[str], rows: GroupRows) -> dict[str, Any]:
    """The rows of a group, with the statuses that screens say."""
    at = heads.index("status")
    lines = [[*line[:at], status_words(line[at]), *line[at + 1 :]] for line in rows.lines]
    return document(rows) | {"lines": lines}


def _packed(values: Sequence[Any]) -> dict[str, Any]:
    """The values of a column; if they recur, each once, and the place of that of each group."""
    places: dict[Any, int] = {}
    at = [places.setdefault((type(value), value), len(places)) for value in values]
    if len(places) > len(values) // 3:
        return {"each": values}
    return {"of": [value for _, value in places], "at": at}


def _items(lines: Iterable[str]) -> str:
    return "".join(f"<li>{line}</li>" for line in lines)


def _warned(warnings: Sequence[str]) -> str:
    items = _items(html.escape(f"warning: {sentence}") for sentence in warnings)
    return f'<ul class="warnings">{items}</ul>' if items else ""


def cell(inspection: Inspection, warnings: str, groups: str) -> str:
    """What a notebook shows: the verdict, the warnings, the numbers, the first two figures, and the table of `groups`."""
    drawn = picture(figures(inspection)[:CELL_FIGURES], "", [], "svg", on_white=False).decode(errors="replace")
    tiles_in_a_row = ".tiles { display: flex; flex-wrap: wrap; gap: 1.5em } .tiles dd { margin: 0; font-weight: bold }"
    return f"<style>{tiles_in_a_row}</style>{_meaning(inspection, warnings)}{drawn}{groups}"


def _meaning(inspection: Inspection, warnings: str = "") -> str:
    """The verdicts, what follows them, and the numbers."""
    first, *others = map(html.escape, inspection.facts.verdicts)
    says = f'<p class="lead">{first}</p>'
    if others:
        says += f"<ul>{_items(others)}</ul>"
    numbers = ""
    for words, value in tiles(inspection).items():
        numbers += f"<div><dt>{words}</dt><dd>{html.escape(value)}</dd></div>"
    of = ""
    if isinstance(inspection.beside, Runs):  # of several runs, the numbers are those of one
        of = f"<h2>{html.escape(inspection.beside.runs[-1].name)}</h2>"
    said = f'<section class="verdicts" aria-label="What it means">{says}{warnings}</section>'
    return f'{said}\n{of}<dl class="tiles">{numbers}</dl>\n'


@cache
def _part(name: str) -> str:
    return (files("grpo_cli.render.report") / name).read_text(encoding="utf-8")


def _shades() -> str:
    """The colours of the charts, by light and by dark."""
    light = dark = ""
    for at, (by_light, by_dark) in enumerate(SHADES.items()):
        light += f"--c{at}: {by_light}; "
        dark += f"--c{at}: {by_dark}; "
    preferred = f"@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {dark}}} }}"
    chosen = f"@media screen {{ :root[data-theme=dark] {{ {dark}}} }}"
    return f":root {{ {light}}}\n{preferred}\n{chosen}\n"


@cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed, safe inside a script element."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _specification(figure: Figure) -> Any:
    """The Vega-Lite specification of a figure."""
    specification = chart(figure).properties(width="container", title="").to_dict(validate=False)
    text = json.dumps({name: part for name, part in specification.items() if name != "$schema"})
    for at, colour in enumerate(SHADES):  # the page has a light and a dark one of each
        text = text.replace(f'"{colour}"', f'"var(--c{at})"')
    return json.loads(text)


def tiles(inspection: Inspection) -> dict[str, str]:
    """The numbers at the top."""
    facts = inspection.facts
    summary = facts.summary
    zero = summary.zero_variance.share
    shown = {"groups": f"{summary.groups:,}"}
    if summary.rollouts != summary.rows:
        shown["rollouts"] = f"{summary.rollouts:,}"
    shown |= {
        "rows": f"{summary.rows:,}",
        "no gradient": "-" if zero is None else percent(zero),
        "mean reward": number(summary.reward.mean),
        f"{summary.unit}s with a gradient": f"{facts.live_rows:,}",
        "no reward": f"{summary.unscorable - summary.left_out:,}",
    }
    if facts.truncated is not None:
        shown["truncated"] = percent(facts.truncated.share)
    if summary.left_out:
        shown["left out"] = f"{summary.left_out:,}"
    if summary.masked:
        shown["masked"] = f"{summary.masked:,}"
    return shown


def _figure(figure: Figure) -> str:
    """A place for the chart, and its numbers as a table for those who cannot see it."""
    heads = dict.fromkeys(name for line in figure.lines for name in line if name != "where")
    rows = ""
    for line in figure.lines[:LISTED]:
        cells = [html.escape(_cell(line.get(name))) for name in heads]
        rows += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    more = f"<p>{LISTED} of {len(figure.lines):,} lines</p>" if len(figure.lines) > LISTED else ""
    head = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in heads)
    title = html.escape(figure.title)
    caption = html.escape(figure.caption)
    words = f"<figcaption><h2>{title}</h2><p>{caption}</p></figcaption>"
    place = f'<div class="chart" role="img" aria-label="{title}. {caption}" data-chart="{figure.name}"></div>'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    numbers = f"<details><summary>Numbers</summary>{table}{more}</details>"
    return f'<figure id="figure-{figure.name}">{words}{place}{numbers}</figure>'


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, float) else cut(str(value), KEY)
