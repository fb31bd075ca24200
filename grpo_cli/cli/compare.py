"""`grpo-adv compare`: several plans on the same rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from grpo_cli.cli.output import show
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.options.resolve import binding_fields, normalized, output_fields, plan_of
from grpo_cli.options.table import OPTIONS, OUTPUT, PLAN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_cli.engine.plan import Plan


def compare(given: dict[str, Any]) -> None:
    """Compute the plans, show where they differ, and write their columns where --write asks for it."""
    from grpo_cli.auditing import compare
    from grpo_cli.read.open_tables import find_inputs, open_tables
    from grpo_cli.read.tables import Binding
    from grpo_cli.render import compare as view

    plans = _plans(given)
    for name in () if given.get("write") else given:
        if name in OPTIONS and OPTIONS[name].panel == OUTPUT:
            raise UsageError(f"{OPTIONS[name].flag} is about a file, and nothing is written", "add --write")
    binding = Binding(**binding_fields(given))
    tables = open_tables(find_inputs(given["inputs"])[0], binding)
    if given.get("write"):
        facts = _written(given, tables, binding, plans)
    else:
        facts = dict(compare.compare(tables, binding, plans).facts)
    show(given, facts, view.render)


def _written(given: dict[str, Any], tables: Any, binding: Any, plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Compare, and weave every column into the outputs."""
    from grpo_cli.auditing import compare
    from grpo_cli.write.outputs import Output, refuse_columns, refuse_read_columns, targets
    from grpo_cli.write.weave import Computed, write

    fields = output_fields(given)
    prefix = fields.pop("column", "advantage")
    columns = {f"{prefix}_{re.sub(r'[^A-Za-z0-9]+', '_', name).strip('_')}": name for name in plans}
    if len(columns) < len(plans):
        raise UsageError("two of the plans would have one column", "give them options that differ in words")
    first, *also = columns
    output = Output(column=first, also=tuple(also), **fields)
    aims = targets(tables, output)
    refuse_columns(tables, output)
    found = compare.compare(tables, binding, plans)
    refuse_read_columns(found.narrow, output)
    others = {column: found.scored[columns[column]] for column in also}
    notes = write(
        output, Computed(found.narrow, found.scored[columns[first]], None, others), tables, aims, None, lambda *_: None
    )
    facts = {**found.facts, "columns": {name: column for column, name in columns.items()}}
    return facts | {"outputs": [aim.name for aim in aims], "warnings": [*facts["warnings"], *notes]}


def _plans(given: dict[str, Any]) -> dict[str, Plan]:
    """The plans by the words that they were asked for with."""
    common = {name: value for name, value in given.items() if name in OPTIONS}
    asked = [("preset", text) for text in given.get("presets", ())] + [
        ("method", text) for text in given.get("contenders", ())
    ]
    plans: dict[str, Plan] = {}
    for kind, text in asked:
        name, *options = (part.strip() for part in text.split(","))
        if text in plans:
            raise UsageError(f"{text!r} is named twice", "its options stand behind its name: grpo,scale=batch")
        plans[text] = plan_of({**common, **dict(_option(option) for option in options), kind: name})
    return plans


def _option(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    known = [one.name.replace("_", "-") for one in OPTIONS.values() if one.panel in PLAN]
    if name not in known:
        raise UnknownName.among("option of a plan", name, known)
    if not sign:
        raise UsageError(f"{text!r} has no value", f"write {name}=VALUE")
    return normalized(name.replace("-", "_"), value)
