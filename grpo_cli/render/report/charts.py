"""Figures as altair charts. Colours differ in lightness, so that they differ without colour vision, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt

from grpo_cli.stats.figures import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from grpo_cli.stats.figures import Figure

HEIGHT: Final = 220
COLOURS: Final = ("#2b83ba", "#f2b53c", "#5e3c99", "#9a9fa5", "#d5d7da")
SHAPES: Final = ("circle", "square", "triangle-up")
ONE: Final = COLOURS[0]


def chart(figure: Figure) -> Any:
    """The chart of a figure; its width is that of whatever holds it."""
    made = KINDS[figure.kind](figure, alt.Chart(_data(figure)))
    return made.properties(height=HEIGHT)


def _data(figure: Figure) -> Any:
    return alt.InlineData(values=figure.lines)


def _told(figure: Figure, name: str = "value") -> Any:
    """A value or an end of a bin in a tooltip."""
    number = isinstance(figure.lines[0][name], (int, float))
    return alt.Tooltip(f"{name}:Q", format=".4~g") if number else alt.Tooltip(f"{name}:N")


def _axis(title: str, **more: Any) -> alt.Axis:
    return alt.Axis(title=title or None, **more)


def _x(figure: Figure, *, prefix: str = "") -> tuple[Any, dict[str, Any]]:
    """The horizontal axis: bins lie between two numbers, values stand in their order."""
    title = figure.axes["x"]
    if f"{prefix}from" in figure.lines[0]:
        axis = alt.X(f"{prefix}from:Q", axis=_axis(title), scale=alt.Scale(zero=False, nice=False))
        return axis.bin("binned"), {"x2": alt.X2(f"{prefix}to")}
    return alt.X(f"{prefix}value:O", sort=None, axis=_axis(title, **_short(figure, prefix))), {}


def _short(figure: Figure, prefix: str) -> dict[str, Any]:
    number = isinstance(figure.lines[0][f"{prefix}value"], float)
    return {"format": ".4~g", "labelAngle": 0, "labelOverlap": True} if number else {"labelAngle": -40}


def _outcome(figure: Figure) -> alt.Color:
    there = {line["kind"] for line in figure.lines}
    named = [(kind, colour) for kind, colour in zip(OUTCOMES, COLOURS, strict=True) if kind in there]
    scale = alt.Scale(domain=[kind for kind, _ in named], range=[colour for _, colour in named])
    return alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="top", columns=3, labelLimit=220))


def _order() -> alt.Order:
    return alt.Order("rank:Q")


def _ranked(base: Any) -> Any:
    return base.transform_calculate(rank=f"indexof({list(OUTCOMES)!r}, datum.kind)")


def _stacked(figure: Figure, base: Any) -> Any:
    across, more = _x(figure)
    named = [_told(figure, name) for name in ("value", "from", "to") if name in figure.lines[0]]
    return _ranked(base).mark_bar().encode(
        x=across, **more, y=alt.Y("count:Q", axis=_axis(figure.axes["y"], format="~s"), stack=True),
        color=_outcome(figure), order=_order(), tooltip=[*named, alt.Tooltip("kind:N"), alt.Tooltip("count:Q", format=",")],
    )  # fmt: skip


def _by_value(figure: Figure) -> alt.X:
    number = all(isinstance(line["value"], (int, float)) for line in figure.lines)
    whole = all(isinstance(line["value"], int) for line in figure.lines)
    axis = _axis(figure.axes["x"], labelOverlap=True, **({"tickMinStep": 1, "format": "d"} if whole else {}))
    return (
        alt.X("value:Q", axis=axis, scale=alt.Scale(zero=False, nice=False))
        if number
        else alt.X("value:O", sort=None, axis=axis)
    )


def _shares(figure: Figure, base: Any) -> Any:
    return _ranked(base).mark_area(line=True, opacity=0.9, point=len(figure.lines) <= 3 * 2).encode(
        x=_by_value(figure), y=alt.Y("share:Q", axis=_axis(figure.axes["y"], format=".0%"), stack=True, scale=alt.Scale(domain=[0, 1])),
        color=_outcome(figure), order=_order(), tooltip=[_told(figure), alt.Tooltip("kind:N"), alt.Tooltip("share:Q", format=".1%")],
    )  # fmt: skip


def _line(figure: Figure, base: Any) -> Any:
    return base.mark_line(point=True, color=ONE).encode(
        x=_by_value(figure), y=alt.Y("mean:Q", axis=_axis(figure.axes["y"]), scale=alt.Scale(zero=False)),
        tooltip=[_told(figure), alt.Tooltip("mean:Q", format=".4~g")],
    )  # fmt: skip


def _tiles(figure: Figure, base: Any) -> Any:
    across, more = _x(figure, prefix="x_")
    if "from" in figure.lines[0]:
        up: Any = alt.Y("from:Q", axis=_axis(figure.axes["y"]), scale=alt.Scale(zero=False, nice=False)).bin("binned")
        more = {**more, "y2": alt.Y2("to")}
    else:
        up = alt.Y("value:O", sort="descending", axis=_axis(figure.axes["y"], format=".4~g"))
    colour = alt.Color("count:Q", scale=alt.Scale(scheme="viridis", type="log"), legend=alt.Legend(title="rows"))
    return base.mark_rect().encode(x=across, y=up, **more, color=colour, tooltip=[alt.Tooltip("count:Q", format=",")])


def _curve(figure: Figure, base: Any) -> Any:
    kinds = list(dict.fromkeys(line["kind"] for line in figure.lines))
    shape = alt.Shape(
        "kind:N",
        scale=alt.Scale(domain=kinds, range=list(SHAPES[: len(kinds)])),
        legend=alt.Legend(title=None, orient="top"),
    )
    axis = _axis(figure.axes["x"], values=[line["size"] for line in figure.lines])
    across = alt.X("size:Q", scale=alt.Scale(type="log", base=2, nice=False), axis=axis)
    up = alt.Y("share:Q", axis=_axis(figure.axes["y"], format=".0%"), scale=alt.Scale(domain=[0, 1]))
    return base.mark_point(filled=True, size=90, color=ONE, opacity=1).encode(
        x=across, y=up, shape=shape, tooltip=["size:Q", alt.Tooltip("share:Q", format=".1%"), "kind:N"],
    )  # fmt: skip


def _bars(figure: Figure, base: Any) -> Any:
    return base.mark_bar(color=ONE).encode(
        y=alt.Y("value:N", sort=None, axis=_axis("", labelLimit=220)),
        x=alt.X("share:Q", axis=_axis(figure.axes["y"], format=".0%"), scale=alt.Scale(domain=[0, 1])),
        tooltip=["value:N", alt.Tooltip("share:Q", format=".1%")],
    )  # fmt: skip


KINDS: Final[Mapping[str, Callable[[Figure, Any], Any]]] = {
    "stacked": _stacked, "shares": _shares, "line": _line, "tiles": _tiles, "curve": _curve, "bars": _bars,
}  # fmt: skip
