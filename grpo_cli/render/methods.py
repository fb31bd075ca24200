"""`grpo-adv methods`: list the methods or explain one, as text or as plain data.

Everything comes from the table of methods; nothing here loads polars.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any, get_args

from rich.console import Console

from grpo_cli.engine.estimators.expression import COLUMNS, NAMES
from grpo_cli.engine.estimators.registry import ESTIMATORS, Estimator
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.render import plan_text
from grpo_cli.render.text import Sheet, count, exact, marked

NAME = 17  # characters of the longest name of a method
LABEL = 13  # characters of a label of one method
SQL = "(reward - mean) / (std + epsilon)"
TYPES = {float: "number", int: "whole number", str: "text", bool: "true or false"}


def listing(console: Console, *, archive: bool = False) -> None:
    """Methods in two or three lines: the formula; the columns it needs, its scales and its source.

    Without `archive` they are those whose formula the preset of a trainer has.
    """
    sheet = Sheet(console, NAME)
    shipped = {preset.plan.estimator.build for preset in presets().at_hand.values() if not preset.archive}
    every = ESTIMATORS.values()
    origins = {row.name: ESTIMATORS.origin(row.name) for row in every}
    rows = [row for row in every if archive or row.build in shipped or row.name == "expression" or origins[row.name]]
    for row in rows:
        sheet.row(row.name, _formula(row))
        origin = f"from {origins[row.name]}" if origins[row.name] else ""
        scales = f"scale {', '.join(_scales(row))}" if len(row.scales) > 1 else ""
        needs = " ".join(ROLES[need].flag for need in _plan(row).needs)
        facts = filter(None, (origin, needs, scales, row.source))
        sheet.row("", " · ".join(facts), style="dim")
    sheet.blank()
    more = "" if archive else f" --all lists {len(every) - len(rows)} more, which no trainer ships."
    sheet.text(f"grpo-adv methods NAME explains a method. The first scale is its default.{more}")


def explain(name: str, console: Console) -> None:
    """One method: its own words, then what can be set and what it needs."""
    row = ESTIMATORS[name]
    sheet = Sheet(console, LABEL)
    sheet.text(marked(name, ESTIMATORS.origin(name)), style="bold")
    paragraphs = re.sub(r"(?<=\S)\n(?=\S)", " ", row.doc)  # the sheet wraps them
    for paragraph in paragraphs.splitlines():
        sheet.text(paragraph)
    sheet.blank()
    sheet.row("computes", plan_text.describe(_plan(row)))
    first, *others = _scales(row)
    sheet.row("scales", ", ".join([f"{first} (default)", *others]) if others else f"{first} only")
    if len(row.levels) > 1:
        level, other = _levels(row)
        sheet.row("baseline", f"{level} (default); --set estimator.baseline_level={other}")
    parameters = [line for param in row.params for line in _parameter(param)]
    sheet.row("parameters", parameters or "none")
    columns = plan_text.columns(_plan(row))
    if name == "expression":
        columns = [f"{name}: {meaning}" for name, meaning in NAMES.items()]
        columns += [f"{name}: {ROLES[name].meaning} ({ROLES[name].flag})" for name in COLUMNS]
    sheet.row("columns", columns)
    sheet.row("properties", _properties(row))


def as_dict(name: str) -> dict[str, Any]:
    """One method as plain data."""
    row = ESTIMATORS[name]
    plan = _plan(row)
    plain = {key: getattr(row, key) for key in ("name", "summary", "formula", "doc", "source", "scale", "min_group")}
    needs = [{"column": need, "flag": ROLES[need].flag, "meaning": ROLES[need].meaning} for need in plan.needs]
    params = []
    for param in row.params:
        choices = get_args(param.type)
        kind = "choice" if choices else TYPES[param.type]
        params.append(asdict(param) | {"type": kind, "choices": choices})
    return plain | {
        "origin": ESTIMATORS.origin(name) or "built in",
        "scales": _scales(row),
        "levels": _levels(row),
        "needs": needs,
        "params": params,
        "sets": dict(row.sets),
        "computes": plan_text.describe(plan),
        "centred": row.centred,
        "order_free": row.order_free,
        "uses_batch": plan.uses_batch,
        "spans_batches": row.spans_batches,
    }


# --- pieces ------------------------------------------------------------------------------------------------


def _plan(row: Estimator) -> Plan:
    """The plan of the method with its defaults."""
    example = {"estimator.sql": SQL} if row.name == "expression" else {}
    return Plan.of({"estimator.name": row.name, **example})


def _formula(row: Estimator) -> str:
    """The method's own line if it has one; else the plan's, which includes the divisor."""
    if row.about or row.name == "expression":
        return row.formula
    return ";  ".join(plan_text.quotient(_plan(row))).replace(",;", ",")


def _scales(row: Estimator) -> list[str]:
    """The scales that the method allows, its default first."""
    return [row.scale, *(scale for scale in row.scales if scale != row.scale)]


def _levels(row: Estimator) -> list[str]:
    """The levels that the method's baseline may have, its default first."""
    default = _plan(row).baseline_level
    return [default, *(level for level in row.levels if level != default)]


def _parameter(param: Any) -> list[str]:
    """The flag, then its meaning."""
    choices = get_args(param.type)
    kind = f"one of {', '.join(map(str, choices))}" if choices else TYPES[param.type]
    field = f"; same as {param.field}" if param.field else ""
    default = f"={exact(param.default)}" if param.default != "" else "=..."
    return [f"--param {param.name}{default}", f"  {kind}: {param.help}{field}"]


def _properties(row: Estimator) -> list[str]:
    plan = _plan(row)
    lines = [
        plan_text.of_constant_groups(plan),
        "depends on the other groups of the batch" if plan.uses_batch else "does not depend on other groups",
        "does not depend on the row order" if row.order_free else "depends on the row order",
        f"smallest group: {count(row.min_group, 'row')}",
    ]
    if row.spans_batches:
        lines.append("a group may span several batches")
    return lines
