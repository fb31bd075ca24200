"""The figures as one picture: PNG, SVG or PDF."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt
import vl_convert

from grpo_cli.render.report.charts import chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.stats.figures import Figure

WIDTH: Final = 380
COLUMNS: Final = 2
SCALE: Final = 2.0
INK: Final = "#20242a"


def drawn(figures: Sequence[Figure], title: str, subtitle: str, kind: str) -> bytes:
    """Every figure, two beside each other, under a title."""
    spec = specification(figures, title, subtitle)
    match kind:
        case "png":
            return bytes(vl_convert.vegalite_to_png(spec, scale=SCALE))
        case "pdf":
            return bytes(vl_convert.vegalite_to_pdf(spec))
    return vl_convert.vegalite_to_svg(spec).encode()


def specification(figures: Sequence[Figure], title: str, subtitle: str) -> dict[str, Any]:
    """The whole picture in Vega-Lite's words."""
    parts = [chart(one).properties(width=WIDTH, title=alt.TitleParams(one.title, subtitle=one.says)) for one in figures]
    whole = alt.concat(*parts, columns=COLUMNS, spacing=40).resolve_scale(color="independent", shape="independent")
    whole = whole.properties(title=alt.TitleParams(title, subtitle=subtitle, fontSize=20, offset=20))
    whole = whole.configure(background="white", font="sans-serif", padding=20)
    whole = whole.configure_title(anchor="start", color=INK, subtitleColor=INK).configure_bar(
        stroke=INK, strokeWidth=0.3
    )
    return dict(whole.to_dict(validate=False))
