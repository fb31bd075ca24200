"""`grpo-adv audit`: which formula made the advantages of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_cli.cli.output import show
from grpo_cli.errors import GateError
from grpo_cli.options.resolve import binding_fields, plan_of, settings

if TYPE_CHECKING:
    from grpo_cli.engine.plan import Plan


def audit(given: dict[str, Any]) -> None:
    """Find the formula of the advantages, or check the one that is named."""
    from grpo_cli.auditing import audit
    from grpo_cli.options.conditions import Filter
    from grpo_cli.read.open_tables import find_inputs, open_tables
    from grpo_cli.read.tables import Binding
    from grpo_cli.render import audit as view

    claim = _claim(given)
    gate = Filter.parse(given["fail_on"], audit.GATES) if "fail_on" in given else None
    weights = settings({"reward": given.get("reward", [])}).get("rewards.weights", ())
    binding = Binding(**binding_fields(given))
    tables = open_tables(find_inputs(given["inputs"])[0], binding)
    facts = audit.audit(tables, binding, given.get("column"), weights, claim)
    show(given, facts, view.render)
    values = audit.gates(facts)
    if gate is not None and gate.holds(values):
        told = ", ".join(f"{name} is {values[name]:.6g}" for name in gate.names if values[name] is not None)
        raise GateError(f"the gate {gate.text!r} holds", told)


def _claim(given: dict[str, Any]) -> Plan | None:
    """The plan that the user names; None where none of its options is given."""
    arithmetic = {key for key in settings(given) if not key.startswith("rewards.")}
    return plan_of(given) if arithmetic or "preset" in given else None
