"""What hypothesis draws for the built-in methods, and how many examples of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import cycle, product
from typing import Final, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

from grpo_cli.engine.plan import Plan
from tests.support.battery import REWARDS, Row, rows_of

T = TypeVar("T")
U = TypeVar("U")

EVERYDAY: Final = settings.get_profile("everyday").max_examples
BINARY = st.sampled_from([0.0, 1.0])
# The sign of a mean decides where there is a root to take: here no rounding can turn it.
QUARTERS = st.sampled_from([-0.25, 0.0, 0.25, 0.5, 1.0, 1.5])
REWARDS_FOR = {"bnpo": BINARY, "spo": BINARY, "one-sided": QUARTERS, "a-grae": QUARTERS}
MORE = {"ema": ("role",), "length-penalty": ("input_length", "turns")}  # what a method reads where it is there


def examples(count: int) -> settings:
    """Another number for a test with many cases or slow examples; the nightly run raises it like all others."""
    return settings(max_examples=max(1, count * settings().max_examples // EVERYDAY))


def some(cases: Iterable[T], every: int) -> list[T]:
    """One in `every` of cases that are slow and similar; the nightly run takes all of them."""
    return [*cases][:: 1 if is_nightly() else every]


def paired(these: Iterable[T], those: Collection[U]) -> list[tuple[T, U]]:
    """Each of these with the next of those, in a cycle; the nightly run takes every pair."""
    return [*(product(these, those) if is_nightly() else zip(these, cycle(those), strict=False))]


def is_nightly() -> bool:
    """Whether this is the nightly run."""
    return settings().max_examples > EVERYDAY


def drawn_for(method: str) -> st.SearchStrategy[list[Row]]:
    """Rows with what a method reads, and the rewards that it is made for."""
    needs = Plan.of({"estimator.name": method}).needs
    return rows_of(*needs, *MORE.get(method, ()), rewards=REWARDS_FOR.get(method, REWARDS))
