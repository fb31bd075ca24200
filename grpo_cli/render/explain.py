"""`--explain`: what would be computed, part by part, and one group of the input worked out row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
PLACE: Final = 24
MOST: Final = 2_000_000  # rows that are worked out with all intermediate columns
KEY: Final = 60
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
    for part, lines in plan_text.full(plan, facts.reward_columns):
        sheet.row(f"  {part}", lines)
    sheet.blank()
    _example(worked_example(plan, scored, narrow), facts.group_key, sheet)
    sheet.blank()
    sheet.warnings(facts.warnings)
    sheet.text("nothing was written")


def _example(example: Example, key_columns: Sequence[str], sheet: Sheet) -> None:
    """The group's numbers, then a table of its rows."""
    key = ", ".join(map(clean, key_columns))
    named = f"{key} = " if key else ""
    rows = count(len(example.group), "row")
    sheet.row("worked out", f"{named}{cut(clean(example.key), KEY)} ({rows})")
    files = {file for file, _ in example.places}
    sheet.row("", f"in {clean(*files) if len(files) == 1 else f'{len(files)} files'}")
    for label, line in _numbers(example):
        sheet.row(label, line)
    for title, lines in _tables(example, sheet.console.width):
        sheet.blank()
        if title:
            sheet.text(title)
        for line in lines:
            sheet.text(line)


def _row_names(example: Example) -> list[str]:
    """The row in its file; with the file's name if the group spans several."""
    if len({file for file, _ in example.places}) == 1:
        return [row for _, row in example.places]
    return [cut(clean(f"{file}:{row}"), PLACE) for file, row in example.places]


# --- the group ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Example:
    """A group and its batch with all columns of the computation; where its first rows are in the input."""

    plan: Plan
    group: pl.DataFrame
    batch: pl.DataFrame
    key: str
    places: list[tuple[str, str]]  # the file, and the row or line in it
    reward_names: tuple[str, ...]
    whitenings: list[tuple[Whiten, float, float]]  # what each whitening subtracts and divides by in this batch


def worked_example(plan: Plan, scored: Scored, narrow: Narrow) -> Example:
    """The first group with a non-zero residual; else the first group."""
    frame = scored.frame
    moved = pl.any_horizontal(pl.col("^.*\\.residual$").fill_nan(0.0) != 0).fill_null(value=False)
    moving = frame.filter((pl.col(".n") > 1) & ~pl.col(".constant").fill_null(value=True) & moved)
    code = int((moving if len(moving) else frame)["group"][0])
    group = frame.with_row_index(".row").filter(pl.col("group") == code)
    rows = group[".row"].head(SHOWN).to_list()
    spots = [(narrow.spot(row)[0], place) for row, place in zip(rows, narrow.places(rows), strict=True)]
    first_places = [(file, place.removeprefix(file).removeprefix(":").removeprefix(" row ")) for file, place in spots]
    return _example_of(plan, frame, group, narrow, first_places)


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
    group = pl.concat([group.filter(first), group.filter(~first)])
    # Not its line number, which needs all lines before it counted.
    places = [(file, str(number)) for file, number in map(narrow.spot, group[".row"].head(SHOWN).to_list())]
    example = _example_of(plan, frame, group, narrow, places)
    lines = [f"{label.strip():<11}{line}" for label, line in _numbers(example)]
    for title, table_lines in _tables(example, width):
        lines += ["", *([title] if title else []), *table_lines]
    return lines


def _example_of(
    plan: Plan, frame: pl.DataFrame, group: pl.DataFrame, narrow: Narrow, places: list[tuple[str, str]]
) -> Example:
    """The rows of a group, which know their row in the narrow table, with the batch that they are in."""
    batch = frame.filter(pl.col("batch") == group["batch"][0])
    first = batch.row(0, named=True)
    whitenings = [
        (op, first[f".post.{place}.mean"], first[f".post.{place}.sd"])
        for place, op in enumerate(plan.post)
        if isinstance(op, Whiten)
    ]
    key = narrow.label(int(narrow.table["group"][group[".row"][0]]))
    return Example(plan, group, batch, key, places, narrow.reward_names, whitenings)


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
        for op, mean, divisor in example.whitenings:
            divided = f"  divisor {number(divisor, digits=DIGITS)}" if op.divide else ""
            lines.append(("  whitening", f"mu {number(mean, divisor, DIGITS)}{divided}"))
    return lines


def _statistics(plan: Plan, size: int, values: dict[str, float | None]) -> str:
    scale = max((abs(value) for value in values.values() if value is not None), default=0.0)
    ddof = {"std": f" (ddof {plan.divisor.ddof})"}
    texts = (f"{key} {number(value, scale, DIGITS)}{ddof.get(key, '')}" for key, value in values.items())
    return "  ".join([f"n {size:,}", *texts])


# --- tables ------------------------------------------------------------------------------------------------


def _tables(example: Example, width: int) -> list[tuple[str, list[str]]]:
    """One table with its title; with combined estimates one for each reward column, then one for all."""
    plan, group = example.plan, example.group.head(SHOWN)
    more = len(example.group) - SHOWN
    rest = [f"... {count(more, 'more row')}"] if more > 0 else []
    scale = max((abs(v) for v in example.batch[".advantage"].drop_nulls() if math.isfinite(v)), default=0.0)
    result = {"advantage": column(group[".advantage"].to_list(), scale), "status": group[".status"].cast(str).to_list()}
    if plan.rewards.combine == "normalize":
        parts = [
            (f"z({clean(name)})", _steps(example, f".component.{k}")) for k, name in enumerate(example.reward_names)
        ]
        return [(title, _table(example, steps, width) + rest) for title, steps in [*parts, ("together", result)]]
    steps = _steps(example, ".reward")
    unit = plan.unit
    if plan.weight.by != "none":
        steps["weight"] = _column(example, ".weight")
    elif not (plan.post or unit.take != "each" or unit.per_step or unit.state_weight):
        del steps["scaled"]  # it is the advantage
    return [("", _table(example, steps | result, width) + rest)]


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
    row = {"row": _row_names(example)}
    extras = {name: _column(example, name) for name in EXTRAS if name in example.plan.needs}
    for columns in (row | extras | steps, row | steps):
        left = [at for at, name in enumerate(columns) if name == "status"]
        lines = aligned(list(columns), list(columns.values()), left)
        if max(map(len, lines)) <= width:
            break
    return lines
