"""`--explain`: what would be computed, part by part, and one group of the input worked out row by row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from rich.console import Console

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Whiten
from grpo_cli.engine.score import Scored, score
from grpo_cli.errors import DataError
from grpo_cli.read.narrow import Narrow
from grpo_cli.render import plan_text, summary
from grpo_cli.render.text import Sheet, aligned, clean, column, count, number, text_outcomes
from grpo_cli.runs.compute_files import Facts, FactsOfParts, Planned
from grpo_cli.stats.facts import plain
from grpo_cli.values.key_text import cut
from grpo_cli.write.write_outputs import Computed

SHOWN = 12  # this many rows of the group are shown
PLACE = 24  # characters of the file and row of a row, if its group is in several files
MOST = 2_000_000  # rows that are worked out with all intermediate columns
KEY = 60  # characters of a column of the key of the group
# Extra columns that a reader needs to follow the arithmetic, where they fit.
EXTRAS = ("length", "logprob", "baseline", "kl", "step_reward")
FILES = 5  # of the outputs that are named
DIGITS = 6  # of the statistics of a group


def whole(facts: Facts | FactsOfParts, console: Console, *, parts: Sequence[Computed]) -> None:
    """Print how the numbers of each part come about, and what a run would write; nothing has been or will be written."""
    sheet = Sheet(console)
    each = [part.facts for part in facts.parts] if isinstance(facts, FactsOfParts) else [facts]
    for part, own in zip(parts, each, strict=True):
        if isinstance(facts, FactsOfParts):
            if part is not parts[0]:
                sheet.blank()
            sheet.part(facts.plan_by, own.summary.value)
        render(replace(own, inputs=facts.inputs), part.scored, part.narrow, console)
    sheet.blank()
    if facts.planned is not None:
        sheet.rows(_planned(facts.planned))
    sheet.text("nothing was written")


def _planned(planned: Planned) -> Iterator[tuple[str, list[str]]]:
    """What a run would write."""
    files = []
    for name in planned.outputs[:FILES]:
        over = " (written over)" if name in planned.replaced else ""
        files.append(f"{clean(name)}{over}")
    if more := len(planned.outputs) - len(files):
        files.append(f"and {more:,} more files")
    yield "would write", [*files, count(planned.rows, "row")]
    new = ", ".join(f"{clean(name)} ({kind})" for name, kind in planned.columns.items())
    kept = [] if planned.only is None else [f"of the input only {', '.join(map(clean, planned.only))}"]
    yield "  columns", [new, *kept]
    if planned.long:
        yield "  rows", ["one for each rollout"]
    yield "in the way", [*map(clean, planned.in_the_way)]


def render(facts: Facts, scored: Scored, narrow: Narrow, console: Console) -> None:
    """Print the columns and the grouping, the plan, and a group worked out."""
    sheet = Sheet(console)
    plan = facts.summary.plan
    sheet.rows(summary.rows(summary.READ, facts))
    sheet.row(
        "reward",
        [clean(plan_text.weighted(plan, facts.summary.reward_columns, "r")), *text_outcomes(facts.summary.map)],
    )
    for role, name in facts.summary.role_columns.items():
        said = "all responses have the same length" if name == "equal" else clean(name)
        sheet.row(role.replace("_", " "), said)
    sheet.blank()
    sheet.rows(summary.preset(facts))
    sheet.row("method", f"{plan.method}: {plan.estimator.summary}")
    sheet.rows((f"  {part}", lines) for part, lines in plan_text.parts(plan, facts.summary.reward_columns))
    sheet.blank()
    example = worked_example(plan, scored, narrow)
    columns = ", ".join(map(clean, facts.summary.group_key))
    label = narrow.label(example.group["group"][0], KEY)
    group = f"{columns} = {label}" if columns else label
    files = {file for file, _ in example.places}
    where = clean(*files) if len(files) == 1 else f"{len(files)} files"
    size = count(len(example.group), "row")
    sheet.row("worked out", [f"{group} ({size})", f"in {where}"])
    sheet.rows(_numbers(example))
    for lines in _tables(example, console.width):
        sheet.blank()
        for line in lines:
            sheet.text(line)
    sheet.blank()
    sheet.warnings(facts.summary.warnings)


# --- the group ---------------------------------------------------------------------------------------------


class Example(NamedTuple):
    """A group, whose rows know their `.row` in the narrow table, among all rows that were computed with it."""

    plan: Plan
    narrow: Narrow
    frame: pl.DataFrame
    group: pl.DataFrame

    @property
    def batch(self) -> pl.DataFrame:
        """All rows of its batch."""
        return self.frame.filter(pl.col("batch") == self.group["batch"][0])

    @property
    def places(self) -> list[tuple[str, int]]:
        """The files of the rows that are shown, and their numbers in these."""
        return [*map(self.narrow.spot, self.group[".row"].head(SHOWN))]


def worked_example(plan: Plan, scored: Scored, narrow: Narrow) -> Example:
    """The first group with a non-zero residual; else the first group."""
    frame = scored.frame
    moved = pl.any_horizontal(pl.col("^.*\\.residual$").fill_nan(0.0) != 0).fill_null(value=False)
    varies = ~pl.col(".constant").fill_null(value=True)
    moving = frame.filter((pl.col(".n") > 1) & varies & moved)
    shown = moving if len(moving) else frame
    group = frame.with_row_index(".row").filter(pl.col("group") == shown["group"][0])
    return Example(plan, narrow, frame, group)


def of_row(plan: Plan, narrow: Narrow, row: int, width: int) -> list[str]:
    """The arithmetic of a row and its group, as lines: the row first, then the others of the group."""
    codes, batches = (narrow.table[name].to_numpy() for name in ("group", "batch"))
    needed = codes == codes[row]
    if plan.estimator.spans_batches:
        needed = np.ones(len(codes), bool)
    elif plan.uses_batch:
        needed = batches == batches[row]
    rows = np.flatnonzero(needed)
    if len(rows) > MOST:
        many = f"{count(len(rows), 'row')} enter the advantage of this row, too many to show here"
        raise DataError(many, "compute --explain shows one group step by step")
    table = narrow.table[rows]
    for name in ("group", "batch"):
        # Groups are numbered in the order of their first rows, here as in the whole table.
        _, numbered = np.unique(table[name].to_numpy(), return_inverse=True)
        table = table.with_columns(pl.Series(name, numbered.astype(np.uint32)))
    frame = score(plan, table, intermediate=True).frame.with_columns(pl.Series(".row", rows))
    group = frame.filter(pl.Series(codes[rows] == codes[row]))
    first = pl.col(".row") == row
    row_first = pl.concat([group.filter(first), group.filter(~first)])
    example = Example(plan, narrow, frame, row_first)
    lines = [f"{label.strip():<11}{line}" for label, line in _numbers(example)]
    for block in _tables(example, width):
        lines += ["", *block]
    return lines


# --- numbers -----------------------------------------------------------------------------------------------


def _numbers(example: Example) -> list[tuple[str, str]]:
    """Labelled lines: statistics of the group, and of the batch if the plan uses it."""
    plan = example.plan
    first = example.group.row(0, named=True)
    group = {key: plain(first[f".{key}"]) for key in ("mean", "std", "min", "max")}
    lines = [("  group", _statistics(plan, int(first[".n"] or 0), group))]
    if plan.uses_batch:
        rewards = example.batch[".r"].drop_nulls()
        batch: dict[str, Any] = {"mean": rewards.mean(), "std": rewards.std(plan.divisor.ddof)}
        lines.append(("  batch", _statistics(plan, len(rewards), batch)))
        for at, op in enumerate(plan.post):
            if isinstance(op, Whiten):
                mean = first[f".post.{at}.mean"]
                divisor = first[f".post.{at}.sd"]
                divided = f"  divisor {number(divisor, digits=DIGITS)}" if op.divide else ""
                lines.append(("  whitening", f"mu {number(mean, divisor, DIGITS)}{divided}"))
    return lines


def _statistics(plan: Plan, size: int, values: dict[str, float | None]) -> str:
    known = [abs(value) for value in values.values() if value is not None]
    scale = max(known, default=0.0)
    texts = [f"n {size:,}"]
    for key, value in values.items():
        ddof = f" (ddof {plan.divisor.ddof})" if key == "std" else ""
        texts.append(f"{key} {number(value, scale, DIGITS)}{ddof}")
    return "  ".join(texts)


# --- tables ------------------------------------------------------------------------------------------------


def _tables(example: Example, width: int) -> list[list[str]]:
    """The lines of one table; with combined estimates of one for each reward column, then of one for all, under their titles."""
    plan = example.plan
    group = example.group.head(SHOWN)
    more = len(example.group) - SHOWN
    rest = [f"... {count(more, 'more row')}"] if more > 0 else []
    of_batch = [abs(value) for value in example.batch[".advantage"].drop_nulls() if math.isfinite(value)]
    advantages = column(group[".advantage"].to_list(), max(of_batch, default=0.0))
    result = {"advantage": advantages, "status": group[".status"].cast(str).to_list()}
    if plan.rewards.combine == "normalize":
        names = example.narrow.reward_names
        parts = {f"z({clean(name)})": _steps(example, f".component.{k}") for k, name in enumerate(names)}
        parts["together"] = result
        return [[title, *_table(example, steps, width), *rest] for title, steps in parts.items()]
    steps = _steps(example, ".reward")
    unit = plan.unit
    if plan.weight.by != "none":
        steps["weight"] = _column(example, ".weight")
    elif not (plan.post or unit.take != "each" or unit.per_step or unit.state_weight):
        del steps["scaled"]  # it is the advantage
    return [[*_table(example, steps | result, width), *rest]]


def _steps(example: Example, part: str) -> dict[str, list[str]]:
    """From the reward to the scaled residual."""
    names = {"reward": part}
    if example.plan.shape and part == ".reward":
        names["shaped"] = ".r"
    names |= {step: f"{part}.{step}" for step in ("residual", "divisor", "scaled")}
    return {step: _column(example, name) for step, name in names.items()}


def _column(example: Example, name: str) -> list[str]:
    return column(example.group[name].head(SHOWN).to_list())


def _table(example: Example, steps: dict[str, list[str]], width: int) -> list[str]:
    """The rows of the table, with extra columns before the reward if there is room."""
    files, rows = zip(*example.places, strict=True)
    places = [*map(str, rows)]
    if len({*files}) > 1:
        places = [cut(clean(f"{file}:{row}"), PLACE) for file, row in example.places]
    row = {"row": places}
    extras = {name: _column(example, name) for name in EXTRAS if name in example.plan.needs}
    for columns in (row | extras | steps, row | steps):
        lines = aligned(columns.items(), ("status",))
        if max(map(len, lines)) <= width:
            break
    return lines
