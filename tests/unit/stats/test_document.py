"""Facts become the documents that `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from grpo_cli.engine.plan import Plan
from grpo_cli.stats.document import ABSENT, Absent, document


@dataclass(frozen=True)
class Part:
    rows: int
    value: str


@dataclass(frozen=True)
class Whole:
    NOT_SHOWN: ClassVar = frozenset({"secret"})

    from_: str
    secret: str
    nothing: float | None
    parts: Sequence[Part]
    by_name: Mapping[str, Any]
    length: float | Absent | None = ABSENT
    config: str | None = None


def test_fields_are_keys_in_their_order_and_one_with_its_default_is_left_out() -> None:
    whole = Whole("a", "b", None, (Part(1, "x"), Part(2, "y")), {"pair": (1, 2), "part": Part(3, "z")})
    plain = document(whole)
    assert plain == {
        "from": "a", "nothing": None, "parts": [{"rows": 1, "value": "x"}, {"rows": 2, "value": "y"}],
        "by_name": {"pair": [1, 2], "part": {"rows": 3, "value": "z"}},
    }  # fmt: skip
    assert [*plain] == ["from", "nothing", "parts", "by_name"]


def test_a_length_that_is_known_to_be_none_is_not_one_that_nobody_knows() -> None:
    assert document(Whole("a", "b", None, (), {}, length=None, config="c"))["length"] is None
    assert "length" not in document(Whole("a", "b", None, (), {}))


def test_a_plan_is_the_dictionary_that_it_makes() -> None:
    plan = Plan.of({"estimator.name": "rloo"})
    assert document(Whole("a", "b", None, (), {"plan": plan}))["by_name"]["plan"] == plan.as_dict()
