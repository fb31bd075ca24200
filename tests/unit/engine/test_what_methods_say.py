"""What the methods say of themselves: every part is there, and it is true of the numbers."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import grpo_cli
from grpo_cli.engine.estimators.registry import ESTIMATORS, Estimator
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import PluginError
from grpo_cli.render import methods, plan_text
from tests.support.battery import Row, advantages
from tests.support.jobs import frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms


def paragraphs(name: str) -> list[str]:
    return ESTIMATORS[name].doc.split("\n\n")


def of(rewards: Sequence[float], method: str, settings: dict[str, Any] | None = None) -> list[float | None]:
    rows = [Row("a", reward) for reward in rewards]
    return advantages(rows, {"estimator.name": method, **(settings or {})})


def shown(name: str) -> str:
    console = Console(width=500, record=True, file=io.StringIO())
    methods.explain(name, console)
    return console.export_text()


# --- the parts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_method_is_shown_as_sentence_formula_limits_and_source(name: str) -> None:
    sentence, formula, rest = paragraphs(name)
    assert re.fullmatch(r"[A-Z0-9][^\n]*[^.]\.", sentence), "one sentence on one line"
    assert re.fullmatch(r"(    .*\n?)+", formula), "the formula is indented"
    assert re.search(r"\b(A|x) = ", formula), "the formula says what A is"
    limits, _, source = rest.partition("Source: ")
    assert re.search(r"[\w)]\.\s*$", limits), "limit cases are whole sentences, before the source"
    assert source.endswith(".")
    assert "Source:" not in source, "one source, at the end"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_formula_that_is_shown_is_the_one_of_the_docstring(name: str) -> None:
    formula = [line.strip() for line in paragraphs(name)[1].splitlines()]
    text = shown(name)
    for line in formula:
        assert line in text
    assert methods.as_dict(name)["formula"] == "; ".join(line.rstrip(",;") for line in formula)


COMPUTED = [name for name, row in ESTIMATORS.items() if not row.about and "none" in row.scales]


@pytest.mark.parametrize("name", [name for name in COMPUTED if name != "expression"])
def test_what_is_computed_is_shown_with_the_formula_of_the_function(name: str) -> None:
    plan = Plan.of({"estimator.name": name, "divisor.level": "none"})
    formula = [line.strip() for line in paragraphs(name)[1].splitlines()]
    assert [line for line in plan_text.describe(plan) if line in formula] == formula


# --- that they are true ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, row in ESTIMATORS.items() if len(row.levels) > 1])
def test_the_level_of_the_baseline_that_is_called_the_default_is_the_default(name: str) -> None:
    level = Plan.of({"estimator.name": name}).baseline_level
    assert f"baseline     {level} (default)" in shown(name)
    assert methods.as_dict(name)["levels"][0] == level


@pytest.mark.parametrize("method", ["unlikeliness", "length-penalty"])
def test_a_group_of_equal_rewards_that_are_shaped_by_another_column_is_not_said_to_get_0(method: str) -> None:
    rows = [Row("a", 1.0, length=n, logprob=-0.1 * n) for n in (1, 2, 4)]
    assert 0.0 not in advantages(rows, {"estimator.name": method})
    assert methods._properties(ESTIMATORS[method])[0] == "a group whose shaped rewards are equal gets 0"


def test_a_row_that_is_neither_0_nor_1_keeps_its_reward_under_passk() -> None:
    assert of([0.25, 1.0, 0.0, 0.0], "passk")[0] == 0.25
    assert of([0.25, 1.0, 1.0, 1.0], "passk")[0] == 0.25
    assert of([0.25, 1.0, 0.0, 1.0], "passk", {"estimator.k": 9})[0] == 0.25
    assert of([0.5, 1.0, 0.0], "passk")[1:] == of([0.0, 1.0, 0.0], "passk")[1:]


def test_singletons_and_constant_groups_of_gdpo_get_exactly_0() -> None:
    rows = frame([0.1, 0.7, 0.3, 1.0, 0.2, 0.9, 0.35, 0.31, 0.8, 0.5, 0.5], [*"aaabccdddee"])
    got = grpo_cli.advantages(rows, method="gdpo").to_list()
    assert got[3] == 0.0
    assert got[9:] == [0.0, 0.0]


@pytest.mark.parametrize("divide", [True, False])
def test_whitening_takes_away_a_mean_that_is_more_than_rounding(*, divide: bool) -> None:
    offset = 1e-12
    got = of([offset, 1 + offset, -1 + offset], "reinforce", {"post.whiten.divide": divide})
    assert got[0] is not None
    assert abs(got[0]) < 1e-15


@pytest.mark.parametrize(
    ("name", "of_one_row"),
    [("roll-reinforce-batch-batch", "nan"), ("roll-reinforce-group-batch", "nan"), ("roll-reinforce-running", "0.0")],
)
def test_a_batch_of_one_row_has_no_std_in_roll(name: str, of_one_row: str) -> None:
    """torch's std of one value is NaN; the running one divides by infinity."""
    assert str(grpo_cli.advantages(frame([2.0]), preset=name).item()) == of_one_row


def test_the_other_limits_that_methods_name_are_true() -> None:
    assert of([2.0, 2.0], "batch-norm") == [0.0, 0.0]
    assert of([0.0, 1.0, 5.0], "james-stein++") == pytest.approx([-2.0, -1.0, 3.0], abs=1e-5)
    assert of([1.0, 3.0], "gpg", {"estimator.f_norm": 2.0}) == [-0.5, 0.5]
    assert of([2.0, 2.0], "asymre") == pytest.approx([0.1, 0.1])
    assert of([0.0, 1.0, 1.0], "rec", {"estimator.drop": "balance"}) == of([0.0, 1.0, 1.0], "rec")
    assert advantages([Row("a", 2.0, references=(0.5,))], {"estimator.name": "reference"}) == [1.5]
    assert advantages([Row("a", 2.0, references=())], {"estimator.name": "reference"}) == [None]


def test_a_method_that_reads_a_column_without_declaring_it_fails_its_check() -> None:
    def by_length(t: Terms) -> pl.Expr:
        """Reward over length.

            A = r / L

        Source: this test.
        """
        return t.r / t.role("length")

    row = Estimator("by-length", by_length, centred=False)
    rows = [Row("a", 1.0, length=2), Row("a", 3.0)]
    with ESTIMATORS.beside("a test", {"by-length": row}), pytest.raises(PluginError, match="length"):
        advantages(rows, {"estimator.name": "by-length"})
    declared = replace(row, needs=("length",))
    with ESTIMATORS.beside("a test", {"by-length": declared}):
        assert advantages(rows, {"estimator.name": "by-length"}) == [0.5, 3.0]
