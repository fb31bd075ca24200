"""A plan from the plain data that files and documents carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import ORDERED, PARTS


def plan_from_dict(plain: Mapping[str, Any]) -> Plan:
    """The plan that `Plan.as_dict` gave, as facts and files carry it."""
    values: dict[str, Any] = {key: value for key, value in plain.items() if key not in {"package", *PARTS, *ORDERED}}
    for part, kind in PARTS.items():
        values[part] = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in plain.get(part, {}).items()})
    for part, kinds in ORDERED.items():
        values[part] = tuple(kinds[op["op"]](**{k: v for k, v in op.items() if k != "op"}) for op in plain[part])
    return Plan(**values)
