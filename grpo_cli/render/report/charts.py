"""Figures as altair charts: one by one, or all of them in one picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, pairwise
from textwrap import wrap
from typing import Any, Final

import altair as alt
import vl_convert

from grpo_cli.render.figures import OUTCOMES, Figure
from grpo_cli.stats.against import KINDS as CHANGES

HEIGHT = 220  # pixels of a chart
# Each has at least three times the contrast of the paper, and differs from the others without colour vision; a page by
# dark has the second ones.
SHADES = {
    "#2b83ba": "#7cc4ee",
    "#b07d00": "#f2b53c",
    "#5e3c99": "#9575d6",
    "#767b82": "#a3acb7",
    "#8d9299": "#6b747e",
}
COLOURS = (*SHADES,)
# How kinds are coloured, and in which order they are stacked.
KINDS = {
    **dict(zip(OUTCOMES, COLOURS, strict=True)),
    **dict(zip(CHANGES, (COLOURS[0], COLOURS[3], COLOURS[1]), strict=True)),
}
LABEL = 220  # a label of a legend is at most this many pixels wide
TICKS = 12  # up to this many steps have a tick each
FEW_TICKS = 6  # up to this count an axis has a tick for each number
ACROSS = 5  # ticks of an axis of numbers below bars, which have many digits
PICTURE_WIDTH = 380  # each chart of a picture is this many pixels wide
PICTURE_COLUMNS = 2  # charts beside each other in a picture
GAP = 10  # pixels between the caption of a chart and the chart
WRAPPED = 68  # characters of a caption that are as wide as its chart
PNG_SCALE = 2.0  # pixels of a PNG for each pixel of the chart
INK = "#20242a"
ON_TOP = alt.Legend(title=None, orient="top", columns=2, labelLimit=LABEL, symbolOpacity=1)
ROW = 26  # pixels of a category
WIDEST = 30.0  # pixels of a bar at a number
NARROWEST = 3.0


def chart(figure: Figure) -> Any:
    """The chart of a figure, as wide as its container."""
    lines = (
        [{**line, "interval": _interval(figure, line)} for line in figure.lines] if _has_ends(figure) else figure.lines
    )
    base = alt.Chart(alt.InlineData(values=lines))
    height = HEIGHT
    if figure.kind == "bars":
        height = ROW * len({line["value"] for line in figure.lines})
    drawn = DRAWN[figure.kind](figure, base)
    return drawn.properties(height=height)


def picture(
    figures: Sequence[Figure], title: str, subtitle: Sequence[str], kind: str, *, on_white: bool = True
) -> bytes:
    """All figures in two columns under a title and lines that say what was found, as png, svg or pdf.

    Without a white paper, texts and lines have the colour of the text around the picture: a notebook may be dark.
    """
    ink = INK if on_white else "currentColor"
    charts = []
    captions = [wrap(figure.caption, WRAPPED) for figure in figures]
    for at, figure in enumerate(figures):
        row = captions[at // PICTURE_COLUMNS * PICTURE_COLUMNS :][:PICTURE_COLUMNS]
        caption = [*captions[at], *[""] * (max(map(len, row)) - len(captions[at]))]  # charts of a row are level
        heading = alt.TitleParams(figure.title, subtitle=caption, offset=GAP)
        charts.append(chart(figure).properties(width=PICTURE_WIDTH, title=heading))
    heading = alt.TitleParams(title, subtitle=[*subtitle], fontSize=20, offset=20)
    combined = alt.concat(*charts, columns=PICTURE_COLUMNS, spacing=40, title=heading)
    combined = combined.resolve_scale(
        color="independent", shape="independent", size="independent", yOffset="independent"
    )
    combined = combined.configure(background="white" if on_white else "transparent", font="sans-serif", padding=20)
    combined = combined.configure_title(anchor="start", color=ink, subtitleColor=ink)
    combined = combined.configure_bar(stroke=ink, strokeWidth=0.3)
    if not on_white:
        lines = dict.fromkeys(("labelColor", "titleColor", "tickColor", "domainColor", "gridColor"), ink)
        combined = combined.configure_axis(**lines, gridOpacity=0.15).configure_view(stroke=None)
        combined = combined.configure_legend(labelColor=ink, titleColor=ink)
    specification = dict(combined.to_dict(validate=False))
    match kind:
        case "png":
            return bytes(vl_convert.vegalite_to_png(specification, scale=PNG_SCALE))
        case "pdf":
            return bytes(vl_convert.vegalite_to_pdf(specification))
    return vl_convert.vegalite_to_svg(specification).encode()


# --- parts of a chart --------------------------------------------------------------------------------------


def _tooltip(figure: Figure, name: str = "value") -> Any:
    """A value or an end of a bin in a tooltip, under the name of its axis."""
    title = {"value": figure.x or "of"}.get(name, name)
    number = isinstance(figure.lines[0][name], (int, float))
    return alt.Tooltip(f"{name}:Q", title=title, format=".4~g") if number else alt.Tooltip(f"{name}:N", title=title)


def _axis(title: str, **more: Any) -> alt.Axis:
    percent = {"format": ".2~%"} if title.startswith("share") else {}
    return alt.Axis(title=title or None, **percent | more)


def _field(figure: Figure) -> str:
    return "share" if "share" in figure.lines[0] else "mean"


def _digits(figure: Figure) -> str:
    return ".1%" if _field(figure) == "share" else ".4~g"


def _told(figure: Figure) -> list[Any]:
    """What is said of a point, a bar or a band under the pointer."""
    told = [_tooltip(figure)]
    if "kind" in figure.lines[0]:
        told.append(alt.Tooltip("kind:N", title="what"))
    told.append(alt.Tooltip(f"{_field(figure)}:Q", title=figure.y or _field(figure), format=_digits(figure)))
    if _has_ends(figure):
        told.append(alt.Tooltip("interval:N", title="95% interval"))
    return told


def _interval(figure: Figure, line: Mapping[str, Any]) -> str:
    """The ends of an interval in a tooltip."""
    low, high = line.get("low"), line.get("high")
    if low is None or high is None:
        return "-"
    return f"{low:{_form(figure)}} to {high:{_form(figure)}}"


def _form(figure: Figure) -> str:
    """How Python writes a number of this figure: as `_digits` says it to Vega."""
    return ".1%" if _field(figure) == "share" else ".4g"


def _has_ends(figure: Figure) -> bool:
    """Whether there are intervals."""
    return any("low" in line for line in figure.lines)


def _of_kinds(figure: Figure, channel: Any = alt.Color, among: Sequence[str] = COLOURS) -> Any:
    """A colour or a shape for each kind of line, or for all."""
    if "kind" not in figure.lines[0]:
        return alt.value(among[0])
    kinds = dict.fromkeys(line["kind"] for line in figure.lines)
    marks = dict(zip(kinds, cycle(among), strict=False))
    if channel is alt.Color and {*kinds} <= {*KINDS}:  # these have one colour in all figures
        marks = {kind: colour for kind, colour in KINDS.items() if kind in kinds}
    scale = alt.Scale(domain=[*marks], range=[*marks.values()])
    return channel("kind:N", scale=scale, legend=ON_TOP if len(marks) > 1 else None)


def _x(figure: Figure) -> tuple[Any, dict[str, Any]]:
    """The horizontal axis: numbers stand on a scale, bins between two of them; texts stand in their order."""
    title = figure.x
    line = figure.lines[0]
    if "from" in line:
        start = alt.X("from:Q", axis=_axis(title), scale=alt.Scale(zero=False, nice=False))
        return start.bin("binned"), {"x2": alt.X2("to")}
    if not isinstance(line["value"], float):
        axis = _axis(title, labelAngle=0, labelOverlap=True, labelSeparation=4)
        return alt.X("value:O", sort=None, axis=axis), {}
    values = _values(figure)
    ticks = {"values": values} if len(values) <= TICKS else {}
    axis = _axis(title, format=".3~g", labelAngle=0, labelOverlap=True, labelSeparation=4, **ticks)
    return alt.X("value:Q", axis=axis, scale=alt.Scale(zero=False, nice=False, padding=WIDEST)), {}


def _values(figure: Figure) -> list[float]:
    return sorted({line["value"] for line in figure.lines})


def _bar_width(figure: Figure) -> float:
    """The width of bars on a scale, so that the two closest do not touch unless they would be hairlines."""
    values = _values(figure)
    if len(values) < 2:  # noqa: PLR2004 - no two are close
        return WIDEST
    closest = min(other - one for one, other in pairwise(values))
    return max(NARROWEST, min(WIDEST, 0.8 * PICTURE_WIDTH * closest / (values[-1] - values[0])))


def _x_of_trend(figure: Figure) -> alt.X:
    """The horizontal axis of a trend: a scale for numbers, else the values in their order."""
    values = [line["value"] for line in figure.lines]
    ticks: dict[str, Any] = {}
    if all(isinstance(value, int) for value in values):
        steps = sorted({*values})
        few = len(steps) <= TICKS  # else there would be ticks between whole numbers
        ticks = {"values": steps, "format": "d"} if few else {"tickMinStep": 1, "format": "d"}
    axis = _axis(figure.x, labelOverlap=True, **ticks)
    if all(isinstance(value, (int, float)) for value in values):
        return alt.X("value:Q", axis=axis, scale=alt.Scale(zero=False, nice=False, padding=8))
    return alt.X("value:O", sort=None, axis=axis)


# --- one function for each kind of figure ------------------------------------------------------------------


def _stacked(figure: Figure, base: Any) -> Any:
    """Bars of kinds on top of each other, on a scale where they stand at numbers."""
    across, more = _x(figure)
    named = [_tooltip(figure, name) for name in ("value", "from", "to") if name in figure.lines[0]]
    told = [*named, alt.Tooltip("kind:N", title="what"), alt.Tooltip("count:Q", title=figure.y, format=",")]
    ends: dict[float, int] = {}
    lines = []
    for line in sorted(figure.lines, key=lambda line: [*KINDS].index(line["kind"])):
        at = line.get("value", line.get("from"))
        start = ends.get(at, 0)
        ends[at] = start + line["count"]
        lines.append({**line, "start": start, "end": ends[at]})
    most = max(ends.values(), default=0)
    few = {"values": [*range(most + 1)]} if most <= FEW_TICKS else {}  # else there would be ticks between whole numbers
    counts = _axis(figure.y, format=",d", **few)
    places = {line.get("value", line.get("from")): at for at, line in reversed([*enumerate(figure.lines)])}
    lines.sort(key=lambda line: places[line.get("value", line.get("from"))])
    base.data = alt.InlineData(values=lines)
    width = {"size": _bar_width(figure)} if isinstance(figure.lines[0].get("value"), float) else {}
    up = alt.Y("start:Q", axis=counts)
    drawn = base.mark_bar(orient="vertical", **width)
    return drawn.encode(x=across, **more, y=up, y2="end:Q", color=_of_kinds(figure), tooltip=told)


def _lines(figure: Figure, base: Any) -> Any:
    """A line for each kind: means with bands, shares with intervals of single points."""
    field = _field(figure)
    shape = _of_kinds(figure, alt.Shape, ("circle", "square", "triangle-up"))
    base = base.encode(x=_x_of_trend(figure), color=_of_kinds(figure), tooltip=_told(figure))
    scale = alt.Scale(zero=field == "share")
    means = base.encode(y=alt.Y(f"{field}:Q", axis=_axis(figure.y), scale=scale))
    points = means.encode(shape=shape).mark_point(filled=True)
    line = means.mark_line()
    if len({line["value"] for line in figure.lines}) == len(figure.lines):  # kinds of one line: found in several ways
        line = means.encode(color=alt.value(COLOURS[0])).mark_line()
    drawn = line + _cells(figure) + points
    if not _has_ends(figure):
        return drawn
    low = alt.Y("low:Q", scale=scale, title=figure.y)
    ends = base.transform_filter("isValid(datum.low)").encode(y=low, y2="high:Q")
    intervals = ends.mark_area(opacity=0.25) if field == "mean" else ends.mark_rule(strokeWidth=2)
    return intervals + drawn


def _cells(figure: Figure) -> Any:
    """What shows the values of the nearest point, and takes its click, anywhere in a trend.

    A point is 3 pixels wide, and an area has the data of its first point wherever it is hit.
    """
    values = [*dict.fromkeys(line["value"] for line in figure.lines)]
    field = _field(figure)
    kinds = [*dict.fromkeys(line.get("kind", "") for line in figure.lines)]
    none = {f"{name}{at}": "-" for at in range(len(kinds)) for name in ("of", "ends")}
    cells = {value: {"value": value, **none} for value in values}
    for line in figure.lines:
        at = kinds.index(line.get("kind", ""))
        number = line.get(field)
        cells[line["value"]] |= {
            f"of{at}": "-" if number is None else format(number, _form(figure)),
            f"ends{at}": _interval(figure, line),
        }
        cells[line["value"]] |= {"where": line["where"]} if "where" in line else {}
    told = [_tooltip(figure)]
    for at, kind in enumerate(kinds):
        told.append(alt.Tooltip(f"of{at}:N", title=kind or field))
        if _has_ends(figure):
            told.append(alt.Tooltip(f"ends{at}:N", title=f"{kind}, 95% interval" if kind else "95% interval"))
    base = alt.Chart(alt.InlineData(values=[*cells.values()])).encode(tooltip=told)
    if not all(isinstance(value, (int, float)) for value in values):
        return base.mark_rect(opacity=0).encode(x=_x_of_trend(figure))
    ordered = sorted(cells)
    middles = [(one + other) / 2 for one, other in pairwise(ordered)]
    for value, start, end in zip(ordered, [ordered[0], *middles], [*middles, ordered[-1]], strict=True):
        cells[value] |= {"start": start, "end": end}
    base.data = alt.InlineData(values=[*cells.values()])
    return base.mark_rect(opacity=0).encode(x=alt.X("start:Q", title=figure.x), x2="end:Q")


def _bars(figure: Figure, base: Any) -> Any:
    """A bar for each category, its name at the left; kinds stand below each other."""
    kinds = {line.get("kind") for line in figure.lines}
    base = base.encode(y=alt.Y("value:N", sort=None, axis=_axis("")), tooltip=_told(figure))
    if len(kinds) > 1:
        base = base.encode(yOffset=alt.YOffset("kind:N", sort=None))
    across = alt.X(f"{_field(figure)}:Q", axis=_axis(figure.y, tickCount=ACROSS, labelOverlap=True), stack=False)
    drawn = base.mark_bar(opacity=0.6 if _has_ends(figure) else 1).encode(x=across, color=_of_kinds(figure))
    if _has_ends(figure):
        drawn += base.mark_rule().encode(x=alt.X("low:Q", title=figure.y), x2="high:Q")
    return drawn


def _ranges(figure: Figure, base: Any) -> Any:
    """A mean for each range of numbers, as wide as the range, with its interval."""
    told = [
        alt.Tooltip("from:Q", title=f"{figure.x} from", format=".4~g"),
        alt.Tooltip("to:Q", title="to", format=".4~g"),
        alt.Tooltip("mean:Q", title=figure.y, format=".4~g"),
        alt.Tooltip("interval:N", title="95% interval"),
        alt.Tooltip("count:Q", title="rollouts", format=","),
    ]
    scale = alt.Scale(zero=False, nice=True)
    base = base.encode(y=alt.Y("mean:Q", axis=_axis(figure.y), scale=scale), color=_of_kinds(figure), tooltip=told)
    wide = base.mark_rule(strokeWidth=4, opacity=0.5).encode(
        x=alt.X("from:Q", axis=_axis(figure.x, labelOverlap=True, labelSeparation=6), scale=scale), x2="to:Q"
    )
    ends = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2)
    ends = ends.encode(x=alt.X("at:Q", scale=scale), y=alt.Y("low:Q", scale=scale, title=figure.y), y2="high:Q")
    points = base.mark_point(filled=True, size=60, opacity=1).encode(x=alt.X("at:Q", scale=scale))
    return wide + ends + points


def _estimates(figure: Figure, base: Any) -> Any:
    """A point for each line, with a rule for its interval; a change has a rule at 0."""
    is_change = figure.y == "change"
    base = base.encode(
        y=alt.Y("value:N", sort=None, axis=_axis(figure.x)),
        yOffset=alt.YOffset("kind:N", sort=None),
        color=_of_kinds(figure),
        tooltip=_told(figure),
    )
    scale = alt.Scale() if is_change else alt.Scale(domain=[0, 1])
    axis = _axis(figure.y, format=".0%")
    if is_change:
        axis = _axis("change, in points", tickCount=ACROSS, labelExpr="format(100 * datum.value, '+.3~g')")
    across = alt.X("share:Q", axis=axis, scale=scale)
    drawn = base.mark_point(filled=True, size=70, opacity=1).encode(x=across)
    if _has_ends(figure):
        interval = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
        drawn = interval + drawn
    if is_change:
        zero = alt.Chart(alt.InlineData(values=[{"zero": 0}]))
        drawn += zero.mark_rule(strokeDash=[4, 4]).encode(x="zero:Q")
    return drawn


DRAWN: Final[Mapping[str, Callable[[Figure, Any], Any]]] = {
    "stacked": _stacked, "lines": _lines, "ranges": _ranges, "estimates": _estimates, "bars": _bars,
}  # fmt: skip
