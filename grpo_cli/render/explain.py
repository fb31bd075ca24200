"""`--explain`: what would be computed, part by part, and one group of the input worked out row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

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
from grpo_cli.runs.compute_files import Facts
from grpo_cli.stats.facts import plain
from grpo_cli.values.key_text import cut

SHOWN: Final = 12  # this many rows of the group are shown
PLACE: Final = 24  # characters of the file and row of a row, if its group is in several files
MOST: Final = 2_000_000  # rows that are worked out with all intermediate columns
KEY: Final = 60  # characters of the key of the group
# Extra columns that a reader needs to follow the arithmetic, where they fit.
EXTRAS: Final = ("length", "logprob", "baseline", "kl", "step_reward")
DIGITS: Final = 6


def render(facts: Facts, scored: Scored, narrow: Narrow, console: Console) -> None:
    """Print the columns and the grouping, the plan, and a group; nothing has been or will be written."""
    sheet, plan = Sheet(console), facts.plan
    sheet.rows(summary.rows(summary.READ, facts))
    sheet.row("reward", [clean(plan_text.weighted(plan, facts.reward_columns, "r")), *text_outcomes(facts.map)])
    for role, name in facts.role_columns.items():
        sheet.row(role.replace("_", " "), clean("all responses have the same length" if name == "equal" else name))
    sheet.blank()
    sheet.rows(summary.preset(facts))
    sheet.row("method", f"{plan.method}: {plan.estimator.summary}")
    sheet.rows((f"  {part}", lines) for part, lines in plan_text.parts(plan, facts.reward_columns))
    sheet.blank()
    example, key = worked_example(plan, scored, narrow), ", ".join(map(clean, facts.group_key))
    label = cut(clean(narrow.label(int(example.group["group"][0]))), KEY)
    files = {file for file, _ in example.places}
    where = clean(*files) if len(files) == 1 else f"{len(files)} files"
    size = count(len(example.group), "row")
    sheet.row("worked out", [f"{f'{key} = ' if key else ''}{label} ({size})", f"in {where}"])
    for name, line in _numbers(example):
        sheet.row(name, line)
    for lines in _tables(example, console.width):
        sheet.blank()
        for line in lines:
            sheet.text(line)
    sheet.blank()
    sheet.warnings(facts.warnings)
    sheet.text("nothing was written")


# --- the group ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Example:
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
    moving = frame.filter((pl.col(".n") > 1) & ~pl.col(".constant").fill_null(value=True) & moved)
    code = (moving if len(moving) else frame)["group"][0]
    return Example(plan, narrow, frame, frame.with_row_index(".row").filter(pl.col("group") == code))


def of_row(plan: Plan, narrow: Narrow, row: int, width: int) -> list[str]:
    """The arithmetic of a row and its group, as lines: the row first, then the others of the group."""
    codes, batches = (narrow.table[name].to_numpy() for name in ("group", "batch"))
    needed = np.ones(len(codes), bool) if plan.estimator.spans_batches else codes == codes[row]
    if plan.uses_batch and not plan.estimator.spans_batches:
        needed = batches == batches[row]
    if needed.sum() > MOST:
        many = f"{count(int(needed.sum()), 'row')} enter the advantage of this row, too many to show here"
        raise DataError(many, "compute --explain shows one group step by step")
    rows = np.flatnonzero(needed)
    # Groups are numbered in the order of their first rows, here as in the whole table.
    table = narrow.table[rows].with_columns(
        pl.Series(name, np.unique(column[rows], return_inverse=True)[1].astype(np.uint32))
        for name, column in (("group", codes), ("batch", batches))
    )
    frame = score(plan, table, intermediate=True).frame.with_columns(pl.Series(".row", rows))
    group = frame.filter(pl.Series(codes[rows] == codes[row]))
    first = pl.col(".row") == row
    example = Example(plan, narrow, frame, pl.concat([group.filter(first), group.filter(~first)]))
    lines = [f"{label.strip():<11}{line}" for label, line in _numbers(example)]
    for block in _tables(example, width):
        lines += ["", *block]
    return lines


# --- numbers -----------------------------------------------------------------------------------------------


def _numbers(example: Example) -> list[tuple[str, str]]:
    """Labelled lines: statistics of the group, and of the batch if the plan uses it."""
    plan, first = example.plan, example.group.row(0, named=True)
    group = {key: plain(first[f".{key}"]) for key in ("mean", "std", "min", "max")}
    lines = [("  group", _statistics(plan, int(first[".n"] or 0), group))]
    if plan.uses_batch:
        rewards = example.batch[".r"].drop_nulls()
        batch: dict[str, Any] = {"mean": rewards.mean(), "std": rewards.std(plan.divisor.ddof)}
        lines.append(("  batch", _statistics(plan, len(rewards), batch)))
        whitenings = [(at, op) for at, op in enumerate(plan.post) if isinstance(op, Whiten)]
        for at, op in whitenings:
            mean, divisor = first[f".post.{at}.mean"], first[f".post.{at}.sd"]
            divided = f"  divisor {number(divisor, digits=DIGITS)}" if op.divide else ""
            lines.append(("  whitening", f"mu {number(mean, divisor, DIGITS)}{divided}"))
    return lines


def _statistics(plan: Plan, size: int, values: dict[str, float | None]) -> str:
    scale = max((abs(value) for value in values.values() if value is not None), default=0.0)
    ddof = {"std": f" (ddof {plan.divisor.ddof})"}
    texts = (f"{key} {number(value, scale, DIGITS)}{ddof.get(key, '')}" for key, value in values.items())
    return "  ".join([f"n {size:,}", *texts])


# --- tables ------------------------------------------------------------------------------------------------


def _tables(example: Example, width: int) -> list[list[str]]:
    """The lines of one table; with combined estimates of one for each reward column, then of one for all, under their titles."""
    plan, group = example.plan, example.group.head(SHOWN)
    more = len(example.group) - SHOWN
    rest = [f"... {count(more, 'more row')}"] if more > 0 else []
    scale = max((abs(v) for v in example.batch[".advantage"].drop_nulls() if math.isfinite(v)), default=0.0)
    result = {"advantage": column(group[".advantage"].to_list(), scale), "status": group[".status"].cast(str).to_list()}
    if plan.rewards.combine == "normalize":
        parts = {
            f"z({clean(name)})": _steps(example, f".component.{k}")
            for k, name in enumerate(example.narrow.reward_names)
        }
        each = [*parts.items(), ("together", result)]
        return [[title, *_table(example, steps, width), *rest] for title, steps in each]
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
    several = len({file for file, _ in example.places}) > 1
    row = {"row": [cut(clean(f"{file}:{row}"), PLACE) if several else str(row) for file, row in example.places]}
    extras = {name: _column(example, name) for name in EXTRAS if name in example.plan.needs}
    for columns in (row | extras | steps, row | steps):
        lines = aligned(columns.items(), ("status",))
        if max(map(len, lines)) <= width:
            break
    return lines
