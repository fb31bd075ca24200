"""What Python users call: frames in, a series like the frame out, or the whole result; a look shows itself in a notebook.

import grpo_cli
grpo_cli.advantages(frame, method="rloo")
look = grpo_cli.inspect(frame, by="step")
look.facts["zero_variance"], look.groups.filter("constant"), look.chart("solve_rates")
alive = grpo_cli.select(frame, where="0.1 <= mean <= 0.9 and std > 0").frame
"""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import score
from grpo_cli.errors import DataError, UnknownName, UsageError
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.resolve import binding_fields, normalized, plan_of, settings
from grpo_cli.options.table import ON_FRAMES, OPTIONS
from grpo_cli.read.build_table import read, refuse_singletons, refuse_unscorable
from grpo_cli.read.tables import Binding, FrameTable, Narrow
from grpo_cli.runs.inspect import CHEAP, of_tables
from grpo_cli.runs.select import chosen_of, wanted_of
from grpo_cli.stats.facts import group_facts
from grpo_cli.stats.figures import advantages_by_method, figures
from grpo_cli.stats.group_rows import show_group
from grpo_cli.stats.verdicts import verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from grpo_cli.auditing.compare import Comparison
    from grpo_cli.stats.inspection import Inspection


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Advantages and statuses row by row, the facts of every group, and the plan that made them.

    `advantages` and `status` are series like the frame that came in (polars, pandas or pyarrow); rows of
    dropped groups have null. `groups` is a polars frame with one line per group.
    """

    advantages: Any
    status: Any
    groups: pl.DataFrame
    plan: Plan


def advantages(frame: Any, plan: Plan | None = None, **options: Any) -> Any:
    """One advantage per row, as a series like `frame`; see `compute` for what it takes."""
    return compute(frame, plan, **options).advantages


def compute(frame: Any, plan: Plan | None = None, **options: Any) -> Result:
    """Compute advantages of a polars (lazy too), pandas or pyarrow table.

    `options` are the options of `grpo-adv compute` without the dashes in front: method="rloo", scale="batch",
    group=["prompt_id", "step"], reward=["accuracy=1", "format=0.5"], param={"k": 4}. With a `plan` the
    options may only say which columns play which part. Of a lazy frame only those columns are collected.
    """
    if plan is not None and not isinstance(plan, Plan):
        raise UsageError(f"a plan cannot be {plan!r}", "options have names: method='rloo', scale='batch'")
    given = _given(options)
    table, back = opened(frame)
    made = plan_of(given) if plan is None else _bound(plan, given)
    narrow = read([table], Binding(**binding_fields(given)), made)
    scored = score(made, narrow.table)
    refuse_unscorable(made, scored.frame[".scorable"], narrow)
    refuse_singletons(made, scored.frame[".n"], narrow)
    values = pl.select(pl.when(scored.frame[".kept"]).then(scored.frame[".advantage"])).to_series()
    status = scored.frame[".status"].cast(pl.String)
    return Result(
        advantages=back(_on_all_rows(narrow, values).alias("advantage")),
        status=back(_on_all_rows(narrow, status).alias("status")),
        groups=_keyed(narrow, group_facts(scored)),
        plan=made,
    )


def audit(frame: Any, column: str | None = None, plan: Plan | None = None, **options: Any) -> dict[str, Any]:
    """Which formula made the advantages of a frame: what `grpo-adv audit --json` tells, as plain data.

    `plan` (or the options of one, as preset="trl-grpo") is a claim that is checked. Rows and groups that
    disagree, ties and likely causes are in the answer.
    """
    from grpo_cli.auditing.audit import audit as audited

    given = _given(options)
    arithmetic = {key for key in settings(given) if not key.startswith("rewards.")}
    claim = plan_of(given) if plan is None and (arithmetic or "preset" in given) else plan
    weights = settings({"reward": given.get("reward", [])}).get("rewards.weights", ())
    return audited([opened(frame)[0]], Binding(**binding_fields(given)), column, weights, claim)


def compare(frame: Any, plans: Mapping[str, Plan], **options: Any) -> Comparison:
    """Several plans on the same rows, the first being what the others are measured against.

    The answer has `facts` (plain data) and `scored`, the rows of each plan by its name.
    """
    from grpo_cli.auditing.compare import compare as compared

    given = _given(options)
    return compared([opened(frame)[0]], Binding(**binding_fields(given)), plans)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    for name in options:
        if name in OPTIONS and name not in ON_FRAMES:
            raise UsageError(f"the option {name!r} is about files and messages", "it belongs to grpo-adv compute")
        if name not in ON_FRAMES:
            raise UnknownName.among("option", name, ON_FRAMES)
    return dict(normalized(name, value) for name, value in options.items() if value is not None)


def _bound(plan: Plan, given: dict[str, Any]) -> Plan:
    """A plan is complete: an option that would change it is refused rather than ignored."""
    bound = binding_fields(given)
    roles = {f"{role}_column" for role in bound["roles"]}
    columns = {"group", "reward", "group_size", "partial", "expect_size", "group_within", "batch_by", "rollout"}
    idle = [name for name in given if name not in columns | roles and not name.endswith("_column")]
    if "rewards.weights" in settings(given):
        idle.append("a reward's weight")
    if idle:
        raise UsageError(f"the plan is given, and so is {idle[0]}", "make it part of the plan, or leave the plan out")
    return plan


def _on_all_rows(narrow: Narrow, values: pl.Series) -> pl.Series:
    """Rows of a remainder that was dropped have null."""
    if narrow.rows is None:
        return values
    whole = pl.select(pl.repeat(None, sum(narrow.lengths), dtype=values.dtype)).to_series()
    return whole.scatter(pl.Series(narrow.rows), values)


def _keyed(narrow: Narrow, facts: pl.DataFrame) -> pl.DataFrame:
    keys = narrow.key.get_columns()
    told = facts.drop("code", "batch", "degenerate")
    return pl.DataFrame([*(key for key in keys if key.name not in told.columns), *told.get_columns()])


# --- kinds of frames ---------------------------------------------------------------------------------------


def opened(frame: Any) -> tuple[FrameTable, Callable[[pl.Series], Any]]:
    """The frame as a table, and how a series becomes one of its kind; pandas is never imported for it."""
    home = type(frame).__module__.partition(".")[0]
    if isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        lazy = frame.lazy()
        return FrameTable(
            lazy.collect_schema().names(), lambda names: lazy.select(names).collect()
        ), lambda series: series
    if home == "pandas" and hasattr(frame, "columns"):
        named = frame.set_axis([str(name) for name in frame.columns], axis=1)
        return FrameTable(list(named.columns), lambda names: _from_pandas(named[names])), _as_pandas(frame)
    if home == "pyarrow" and hasattr(frame, "column_names"):
        return FrameTable(frame.column_names, lambda names: _from_arrow(frame.select(names))), _as_arrow
    raise UsageError(f"cannot read a {type(frame).__name__}", "give a polars, pandas or pyarrow table")


def _from_pandas(frame: Any) -> pl.DataFrame:
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise UsageError(f"the frame has two columns {twice!r}", "rename one of them")
    try:
        return pl.from_pandas(frame)
    except (TypeError, ValueError) as error:  # pyarrow's errors are among them
        reason = str(error).splitlines()[0]
        raise DataError(f"a column holds values of several types ({reason})", "make it one type first") from None


def _from_arrow(table: Any) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def _as_arrow(series: pl.Series) -> Any:
    return series.to_arrow(compat_level=pl.CompatLevel.oldest())


def _as_pandas(frame: Any) -> Callable[[pl.Series], Any]:
    def back(series: pl.Series) -> Any:
        values = series.to_numpy() if series.dtype.is_float() else series.to_list()
        made = type(frame.iloc[:, 0])
        return made(values, index=frame.index, name=series.name)

    return back


OF_LOOKS: Final = tuple(
    name
    for name in COMMANDS["inspect"].options
    if name in ON_FRAMES or name in {"by", "top", "sort", "text_column", "duplicates"}
)
OF_CHOICES: Final = tuple(
    name
    for name in COMMANDS["select"].options
    if name in ON_FRAMES or name in {"where", "limit", "per_group", "pick", "seed"}
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
        return show_group(self.inspection, key)

    def chart(self, name: str, methods: Sequence[str] = ()) -> Any:
        """One figure of the report as an altair chart (extra `report`)."""
        from grpo_cli.render.report.charts import chart

        found = {one.name: one for one in figures(self.inspection, advantages_by_method(self.inspection, methods))}
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
        from grpo_cli.render.inspect import render

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
    given = _options_among(options, OF_LOOKS)
    table, _ = opened(frame)
    return Look(of_tables([table], plan_of(given), given, cheap=_size(frame) <= CHEAP))


def select(frame: Any, **options: Any) -> Selection:
    """Keep groups of a frame, and rows inside them, with the options of `grpo-adv select` by their names."""
    given = _options_among(options, OF_CHOICES)
    table, _ = opened(frame)
    chosen, _ = chosen_of([table], given, wanted_of(given))
    return Selection(_taken(frame, chosen.rows), chosen.facts)


def _options_among(options: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
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
