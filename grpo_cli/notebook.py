"""Looking at frames and choosing from them, for Python users; what comes back shows itself in a notebook.

import grpo_cli
look = grpo_cli.inspect(frame, by="step")
look.facts["zero_variance"], look.groups.filter("constant"), look.chart("solve_rates")
alive = grpo_cli.select(frame, where="0.1 <= mean <= 0.9 and std > 0").frame
"""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from grpo_cli.api import opened
from grpo_cli.choosing import chosen_of, wanted_of
from grpo_cli.errors import UnknownName
from grpo_cli.figures import advantages, figures
from grpo_cli.looking import CHEAP, of_tables
from grpo_cli.options import INSPECT, ON_FRAMES, SELECT
from grpo_cli.settings import normalized, plan_of
from grpo_cli.shown import shown
from grpo_cli.verdicts import verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from grpo_cli.inspection import Inspection

OF_LOOKS: Final = tuple(
    name for name in INSPECT if name in ON_FRAMES or name in {"by", "top", "sort", "text_column", "duplicates"}
)
OF_CHOICES: Final = tuple(
    name for name in SELECT if name in ON_FRAMES or name in {"where", "limit", "per_group", "pick", "seed"}
)
WIDTH: Final = 100
PRE: Final = '<pre style="white-space:pre;overflow-x:auto;line-height:1.2;font-family:monospace">{code}</pre>'


@dataclass(frozen=True, slots=True)
class Look:
    """What the rewards of a frame look like."""

    inspection: Inspection

    @property
    def facts(self) -> Mapping[str, Any]:
        """All that `grpo-adv inspect --json` says."""
        return {**self.inspection.facts, "verdicts": self.verdicts}

    @property
    def verdicts(self) -> list[str]:
        """What it means, in plain words."""
        return verdicts(self.inspection.facts)

    @property
    def groups(self) -> pl.DataFrame:
        """One line per group: its key and its facts."""
        told = self.inspection.groups.drop("code", "batch", "status", "kept", "degenerate")
        keys = [key for key in self.inspection.narrow.key.get_columns() if key.name not in told.columns]
        return pl.DataFrame([*keys, *told.get_columns()])

    def show(self, key: str) -> dict[str, Any]:
        """One group with its rows: rewards, advantages and texts."""
        return shown(self.inspection, key)

    def chart(self, name: str, methods: Sequence[str] = ()) -> Any:
        """One figure of the report as an altair chart (extra `report`)."""
        from grpo_cli.view.report.charts import chart

        found = {one.name: one for one in figures(self.inspection, advantages(self.inspection, methods))}
        if name not in found:
            raise UnknownName.among("figure", name, found)
        return chart(found[name]).properties(title=found[name].title)

    def __str__(self) -> str:
        from rich.console import Console

        text = StringIO()
        self._print(Console(file=text, width=WIDTH, highlight=False))
        return text.getvalue()

    def _repr_html_(self) -> str:
        from rich.console import Console

        console = Console(file=StringIO(), width=WIDTH, highlight=False, record=True)
        self._print(console)
        return console.export_html(inline_styles=True, code_format=PRE)

    def _print(self, console: Console) -> None:
        from grpo_cli.view.inspect import render

        render(self.inspection.facts, console)


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that stay, as a frame of the kind that came in, and what is to be said of them."""

    frame: Any
    facts: Mapping[str, Any]


def inspect(frame: Any, **options: Any) -> Look:
    """Look at a polars (lazy too), pandas or pyarrow table, with the options of `grpo-adv inspect` by their names.

    Texts are compared where the frame is small and in memory, or with duplicates=True.
    """
    given = _given(options, OF_LOOKS)
    table, _ = opened(frame)
    return Look(of_tables([table], plan_of(given), given, cheap=_size(frame) <= CHEAP))


def select(frame: Any, **options: Any) -> Selection:
    """Keep groups of a frame, and rows inside them, with the options of `grpo-adv select` by their names."""
    given = _given(options, OF_CHOICES)
    table, _ = opened(frame)
    chosen, _ = chosen_of([table], given, wanted_of(given))
    return Selection(_taken(frame, chosen.rows), chosen.facts)


def _given(options: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    for name in options:
        if name not in known:
            raise UnknownName.among("option", name, known)
    return dict(normalized(name, value) for name, value in options.items() if value is not None)


def _size(frame: Any) -> float:
    """Bytes of a frame in memory; a lazy one may be of any size."""
    if isinstance(frame, pl.DataFrame):
        return frame.estimated_size()
    if hasattr(frame, "memory_usage"):
        return float(frame.memory_usage(index=False, deep=True).sum())
    return float(getattr(frame, "nbytes", "inf"))


def _taken(frame: Any, rows: Any) -> Any:
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()[pl.Series(rows)]
    if isinstance(frame, pl.DataFrame):
        return frame[pl.Series(rows)]
    return frame.iloc[rows] if hasattr(frame, "iloc") else frame.take(rows)
