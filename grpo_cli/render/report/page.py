"""The report as one page: libraries, numbers and style inside it, and nothing that it would fetch."""

from __future__ import annotations

import html
import json
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any, Final

import vl_convert

from grpo_cli.render.report.charts import chart
from grpo_cli.render.text import count, number, percent
from grpo_cli.stats.verdicts import verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.stats.figures import Figure

# Of a chart's table; the chart itself has all.
LISTED: Final = 200
LIBRARY: Final = "window.vegaEmbed = vegaEmbed;"
TILES: Final = (("groups", "groups"), ("rows", "rows"), ("constant", "without a gradient"), ("mean", "mean reward"),
                ("pull", "rows that pull"), ("missing", "without a reward"))  # fmt: skip


def page(facts: Mapping[str, Any], figures: Sequence[Figure], listed: Mapping[str, Any], title: str) -> str:
    """The whole page. `listed` are the groups of the table with their rows."""
    data = {
        "charts": {one.name: _specification(one) for one in figures},
        "groups": listed,
    }
    return Template(_part("page.html")).substitute(
        title=html.escape(title),
        style=_part("page.css"),
        script=_part("page.js"),
        library=_library(),
        subtitle=html.escape(_subtitle(facts)),
        verdicts="".join(f"<li>{html.escape(line)}</li>" for line in verdicts(facts)),
        tiles=_tiles(facts),
        figures="".join(map(_figure, figures)),
        shown=html.escape(listed["says"]),
        data=_quoted(data),
        notes="".join(f"<li>{html.escape(note)}</li>" for note in [*facts["notes"], *facts["warnings"]]),
    )


@cache
def _part(name: str) -> str:
    return (files("grpo_cli.render.report") / name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega and what draws with it, safe inside a script element."""
    return str(vl_convert.javascript_bundle(LIBRARY)).replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _quoted(data: Any) -> str:
    """JSON that no element can end early."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, default=str, allow_nan=False).replace(
        "<", "\\u003c"
    )


def _specification(figure: Figure) -> dict[str, Any]:
    made = chart(figure).properties(width="container", title="")
    return {name: part for name, part in made.to_dict(validate=False).items() if name != "$schema"}


def _subtitle(facts: Mapping[str, Any]) -> str:
    names = facts.get("inputs", [])
    read = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")  # noqa: PLR2004 - as listed
    return f"{count(facts['rows'], 'row')} in {count(facts['groups'], 'group')}" + (f" from {read}" if read else "")


def _tiles(facts: Mapping[str, Any]) -> str:
    zero = facts["zero_variance"]["share"]
    values = {
        "groups": f"{facts['groups']:,}",
        "rows": f"{facts['rows']:,}",
        "constant": "-" if zero is None else percent(zero),
        "mean": number(facts["reward"]["mean"]),
        "pull": f"{facts['live_rows']:,}",
        "missing": f"{facts['unscorable']:,}",
    }
    return "".join(f"<div><dt>{word}</dt><dd>{values[name]}</dd></div>" for name, word in TILES)


def _figure(figure: Figure) -> str:
    """A place for the chart, and its numbers for those who do not see it."""
    heads = list(dict.fromkeys(name for line in figure.lines for name in line))
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(line.get(name)))}</td>" for name in heads) + "</tr>"
        for line in figure.lines[:LISTED]
    )
    more = f"<p>{LISTED} of {len(figure.lines):,} lines</p>" if len(figure.lines) > LISTED else ""
    head = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in heads)
    title, says = html.escape(figure.title), html.escape(figure.says)
    return (
        f'<figure id="figure-{figure.name}"><figcaption><h2>{title}</h2><p>{says}</p></figcaption>'
        f'<div class="chart" role="img" aria-label="{title}. {says}" data-chart="{figure.name}"></div>'
        f"<details><summary>Numbers</summary><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"
        "</details></figure>"
    )


def _cell(value: Any) -> str:
    return "" if value is None else number(value) if isinstance(value, float) else str(value)
