"""The report as one self-contained page: libraries, numbers and style, and nothing to fetch."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any, Final

import vl_convert

from grpo_cli.render.report.charts import SHADES, chart, picture
from grpo_cli.render.text import count, number
from grpo_cli.stats.figures import Figure
from grpo_cli.stats.verdicts import percent, verdicts
from grpo_cli.values.key_text import cut

LISTED: Final = 200  # the table of a chart has at most this many lines; the chart itself shows all values
KEY: Final = 60  # the table of a chart shows this many characters of a key
INPUTS: Final = 3  # the subtitle names at most this many inputs
CELL_FIGURES: Final = 2  # figures in a cell of a notebook
LIBRARY: Final = "window.vegaEmbed = vegaEmbed;"

Section = tuple[str, Mapping[str, Any], Sequence[Figure]]  # of all rows, or of a part: head, facts and figures


def page(
    parts: Sequence[Section], groups: Mapping[str, Any], facts: Mapping[str, Any], title: str, origin: str = ""
) -> str:
    """The whole page. `groups` are those of the table with their rows, the `facts` those of all parts."""
    charts = {figure.name: _specification(figure) for _, _, figures in parts for figure in figures}
    data = {"charts": charts, "groups": groups}
    # The data must not end an element of the page.
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=False, default=str, allow_nan=False)
    names = facts.get("inputs", [])
    inputs = ", ".join(names[:INPUTS]) + (f" and {len(names) - INPUTS:,} more" if len(names) > INPUTS else "")
    rows = f"{count(facts['rows'], 'row')} in {count(facts['groups'], 'group')}"
    return Template(_part("page.html")).substitute(
        title=html.escape(title),
        origin=html.escape(origin),
        style=_shades() + _part("page.css"),
        script=_part("page.js"),
        library=_library(),
        subtitle=html.escape(f"{rows} from {inputs}" if inputs else rows),
        parts="".join(map(_section, parts)),
        details="".join(_figure(figure) for _, _, figures in parts for figure in figures if figure.more),
        shown=html.escape(groups["says"]),
        data=encoded.replace("<", "\\u003c"),
        notes="".join(f"<li>{html.escape(note)}</li>" for note in _notes(parts, facts)),
    )


def cell(sections: Sequence[Section], groups: str) -> str:
    """What a notebook shows of each part: the verdict, its numbers and its first two figures; then the table of groups."""
    drawn = [
        _meaning(section) + picture(section[2][:CELL_FIGURES], "", [], "svg").decode(errors="replace")
        for section in sections
    ]
    tiles_in_a_row = ".tiles { display: flex; flex-wrap: wrap; gap: 1.5em } .tiles dd { margin: 0; font-weight: bold }"
    return f"<style>{tiles_in_a_row}</style>{''.join(drawn)}{groups}"


def _meaning(section: Section) -> str:
    """What a section means, and its numbers."""
    head, facts, _ = section
    first, *others = (html.escape(line) for line in verdicts(facts))
    says = f'<p class="lead">{first}</p>' + (
        f"<ul>{''.join(f'<li>{line}</li>' for line in others)}</ul>" if others else ""
    )
    shown = "".join(f"<div><dt>{words}</dt><dd>{value}</dd></div>" for words, value in tiles(facts).items())
    return (
        f"<h2>{html.escape(head)}</h2>" if head else ""
    ) + f'<section class="verdicts" aria-label="What it means">{says}</section>\n<dl class="tiles">{shown}</dl>\n'


def _section(section: Section) -> str:
    """What a section means, its numbers and its figures."""
    drawn = "".join(_figure(figure) for figure in section[2] if not figure.more)
    return f'{_meaning(section)}<section class="figures" aria-label="Figures">{drawn}</section>\n'


def _notes(parts: Sequence[Section], facts: Mapping[str, Any]) -> list[str]:
    """Notes and warnings on reading, for each part and for all."""
    each = [f"{head}: {note}" if head else note for head, own, _ in parts for note in [*own["notes"], *own["warnings"]]]
    return [*each, *(facts["warnings"] if "parts" in facts else ())]


@cache
def _part(name: str) -> str:
    return (files("grpo_cli.render.report") / name).read_text(encoding="utf-8")


def _shades() -> str:
    """The colours of the charts, by light and by dark."""
    light, dark = ("".join(f"--c{at}: {pair[side]}; " for at, pair in enumerate(SHADES.items())) for side in (0, 1))
    chosen = ":root[data-theme=dark]"
    return (
        f":root {{ {light}}}\n@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {dark}}} }}\n"
        f"@media screen {{ {chosen} {{ {dark}}} }}\n"
    )


@cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed, safe inside a script element."""
    return str(vl_convert.javascript_bundle(LIBRARY)).replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _specification(figure: Figure) -> dict[str, Any]:
    """The Vega-Lite specification of a figure."""
    specification = chart(figure).properties(width="container", title="").to_dict(validate=False)
    text = json.dumps({name: part for name, part in specification.items() if name != "$schema"})
    for at, colour in enumerate(SHADES):  # the page has a light and a dark one of each
        text = text.replace(f'"{colour}"', f'"var(--c{at})"')
    found: dict[str, Any] = json.loads(text)
    return found


def tiles(facts: Mapping[str, Any]) -> dict[str, str]:
    """The numbers at the top, in HTML where there is another run."""
    zero = facts["zero_variance"]["share"]
    before = facts.get("before", {})

    def since(now: float | None, name: str, *, share: bool = False) -> str:
        """The change from the other run, if there is one."""
        if now is None or before.get(name) is None:
            return ""
        change = now - before[name]
        return f" <small>{f'{100 * change:+.1f} points' if share else f'{change:+.4g}'}</small>"

    mean = facts["reward"]["mean"]
    return {
        "groups": f"{facts['groups']:,}",
        **({"rollouts": f"{facts['rollouts']:,}"} if facts["rollouts"] != facts["rows"] else {}),
        "rows": f"{facts['rows']:,}",
        "without a gradient": ("-" if zero is None else percent(zero)) + since(zero, "zero_variance", share=True),
        "mean reward": number(mean) + since(mean, "mean"),
        f"{facts['unit']}s in groups that vary": f"{facts['live_rows']:,}",
        "without a reward": f"{facts['unscorable'] - facts['left_out']:,}",
        **({"left out": f"{facts['left_out']:,}"} if facts["left_out"] else {}),
        **({"masked": f"{facts['masked']:,}"} if facts["masked"] else {}),
    }


def _figure(figure: Figure) -> str:
    """A place for the chart, and its numbers as a table for those who cannot see it."""
    heads = list(dict.fromkeys(name for line in figure.lines for name in line if name != "where"))
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(line.get(name)))}</td>" for name in heads) + "</tr>"
        for line in figure.lines[:LISTED]
    )
    more = f"<p>{LISTED} of {len(figure.lines):,} lines</p>" if len(figure.lines) > LISTED else ""
    head = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in heads)
    title, caption = html.escape(figure.title), html.escape(figure.caption)
    return (
        f'<figure id="figure-{figure.name}"><figcaption><h2>{title}</h2><p>{caption}</p></figcaption>'
        f'<div class="chart" role="img" aria-label="{title}. {caption}" data-chart="{figure.name}"></div>'
        f"<details><summary>Numbers</summary><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"
        "</details></figure>"
    )


def _cell(value: Any) -> str:
    return "" if value is None else number(value) if isinstance(value, float) else cut(str(value), KEY)
