"""`grpo-adv audit`: which formula made the advantages of a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from grpo_cli.cli.command import takes
from grpo_cli.errors import GateError
from grpo_cli.options.resolve import binding_fields, plan_of, settings, with_config
from grpo_cli.options.table import AUDIT

if TYPE_CHECKING:
    from grpo_cli.engine.plan import Plan


@takes(*AUDIT)
def audit(typed: dict[str, Any]) -> None:
    """Find the formula that made the advantages of a file, and the rows that disagree with it.

    grpo-adv audit completions.parquet --column advantage

    Name a --preset (or --method and its options) to check that claim.
    """
    from grpo_cli.auditing import audit
    from grpo_cli.cli.screen import Screen
    from grpo_cli.options.conditions import Filter
    from grpo_cli.read.open_tables import find_inputs, open_tables
    from grpo_cli.read.tables import Binding
    from grpo_cli.render import audit as view

    given = with_config(typed)
    claim = _claim(given)
    gate = Filter.parse(given["fail_on"], audit.GATES) if "fail_on" in given else None
    weights = settings({"reward": given.get("reward", [])}).get("rewards.weights", ())
    tables = open_tables(find_inputs(given["inputs"])[0], Binding(**binding_fields(given)))
    facts = audit.audit(tables, Binding(**binding_fields(given)), given.get("column"), weights, claim)
    if given.get("json"):
        print(json.dumps(facts, indent=2, default=str, allow_nan=False))
    elif not given.get("quiet"):
        view.render(facts, Screen())
    values = audit.gates(facts)
    if gate is not None and gate.holds(values):
        told = ", ".join(f"{name} is {values[name]:.6g}" for name in gate.names if values[name] is not None)
        raise GateError(f"the gate {gate.text!r} holds", told)


def _claim(given: dict[str, Any]) -> Plan | None:
    """The plan that the user names, if any of its options is there."""
    arithmetic = {key for key in settings(given) if not key.startswith("rewards.")}
    return plan_of(given) if arithmetic or "preset" in given else None
