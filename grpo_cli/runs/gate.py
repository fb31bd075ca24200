"""A gate: the conditions of --fail-on on the numbers of a document. A run that meets one of them fails, with exit status 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from grpo_cli.errors import GateError, Written
from grpo_cli.options.conditions import Filter
from grpo_cli.options.given import Given
from grpo_cli.stats.gates import Numbers


@dataclass(frozen=True)
class Gate:
    """Conditions of which one is enough, and the numbers that they may name."""

    conditions: Sequence[Filter]  # each --fail-on
    numbers: Numbers  # of the documents of this run

    @classmethod
    def of(cls, given: Given, kind: Any) -> Self | None:
        """The gate of these options on facts of this class; None without --fail-on. Unknown names are refused here."""
        if "fail_on" not in given:
            return None
        numbers = Numbers(kind)
        conditions = [Filter.parse(text, "run") for text in given["fail_on"]]
        for condition in conditions:
            for name in condition.names:
                numbers.refuse_unknown(name)
        return cls(conditions, numbers)

    def check(self, facts: Any, *, shown: Any = None, place: str = "", written: Written | None = None) -> None:
        """Raise a gate error if one of the conditions holds for these facts; it carries those that are `shown`, by default all."""
        for condition in self.conditions:
            values = {name: self.numbers.value(facts, name) for name in condition.names}
            if condition.holds(values):
                said = [f"{name} is {value:.6g}" for name, value in values.items() if value is not None]
                wrong = f"the --fail-on condition {condition.text!r} holds"
                error = GateError(wrong, ", ".join(said), place=place, written=written)
                error.facts = facts if shown is None else shown
                raise error
