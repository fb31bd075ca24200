"""Advantages for reinforcement learning, computed offline from reward files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from grpo_cli.api import (
        Look,
        Page,
        Result,
        Selection,
        add_columns,
        advantages,
        audit,
        compare,
        compute,
        export,
        inspect,
        report,
        select,
    )
    from grpo_cli.engine.estimators.registry import Estimator, Param
    from grpo_cli.engine.estimators.terms import Terms
    from grpo_cli.engine.plan import Plan
    from grpo_cli.errors import DataError, GateError, GrpoError, GrpoWarning, UnknownName, UsageError
    from grpo_cli.options.commands import Command
    from grpo_cli.options.table import Option

__version__: Final = "0.1.0"

__all__ = [
    "Command",
    "DataError",
    "Estimator",
    "GateError",
    "GrpoError",
    "GrpoWarning",
    "Look",
    "Option",
    "Page",
    "Param",
    "Plan",
    "Result",
    "Selection",
    "Terms",
    "UnknownName",
    "UsageError",
    "__version__",
    "add_columns",
    "advantages",
    "audit",
    "compare",
    "compute",
    "export",
    "inspect",
    "report",
    "select",
]

# Loaded on first use: `grpo-adv --help` imports this package and must not pay for polars.
_HOME: Final = {
    "Result": "api", "advantages": "api", "audit": "api", "compare": "api", "compute": "api", "Plan": "engine.plan",
    "Look": "api", "Page": "api", "Selection": "api", "inspect": "api", "select": "api",
    "export": "api", "report": "api", "add_columns": "api",
    "Estimator": "engine.estimators.registry", "Param": "engine.estimators.registry", "Terms": "engine.estimators.terms",
    "Command": "options.commands", "Option": "options.table",
    # Old names; they are imported from grpo_cli.twinkle.
    "GRPOAdvantage": "twinkle", "RLOOAdvantage": "twinkle", "ReinforcePlusPlusAdvantage": "twinkle",
    "DataError": "errors", "GateError": "errors", "GrpoError": "errors", "GrpoWarning": "errors", "UnknownName": "errors", "UsageError": "errors",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """The public names, for `dir`, `help` and completion."""
    return __all__
