"""When an option has an effect: with another option, or with a plan that reads it. A row each, with the way out.

An option that nothing reads is refused, so that nobody believes that it counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import Cure, UsageError, Way
from grpo_cli.options.given import Given
from grpo_cli.options.table import EVERY


class Asked(NamedTuple):
    """What is asked for: the options that are given, and the plan that they make."""

    given: Given
    plan: Plan
    plan_without: Callable[[str], Plan]  # the plan that is made if nothing sets this field

    def reads(self, option: str) -> bool:
        """Whether an advantage depends on the field of the plan that the option sets."""
        return EVERY[option].sets not in self.plan.unread


class Need(NamedTuple):
    """What an option needs: whether it is there, and the words for an error without it."""

    met: Callable[[Asked], bool]
    missing: str  # such as "has no effect without --group-size"


@dataclass(frozen=True)
class Row:
    """An option, what it needs to have an effect, and the way out, which may depend on what is asked for."""

    option: str
    on: Need
    cure: Cure | Callable[[Asked], Cure]

    def refusal(self, asked: Asked) -> UsageError:
        """The error of the option where nothing reads it."""
        cure = self.cure if isinstance(self.cure, str | Way) else self.cure(asked)
        return UsageError(f"{EVERY[self.option].flag} {self.on.missing}", cure)


def given(*names: str, missing: str = "") -> Need:
    """One of these options."""
    flags = " and ".join(EVERY[name].flag for name in names)
    return Need(lambda asked: not asked.given.keys().isdisjoint(names), missing or f"has no effect without {flags}")


def plan(met: Callable[[Asked], bool], missing: str) -> Need:
    """A plan that reads it."""
    return Need(met, missing)


def _scale_of(option: str) -> Row:
    """An option about the divisor: a plan that divides by nothing does not read it, unless its formula does."""

    def cure(asked: Asked) -> Cure:
        method = asked.plan.estimator
        if any(param.name == option for param in method.params):
            return Way("--param", fill=f"{option}=", lead=f"{method.name} has its own:")
        return "add --scale group or --scale batch" if len(method.scales) > 1 else f"{method.name} has no divisor"

    divides = plan(
        lambda asked: asked.plan.divisor.level != "none" or asked.reads(option), "has no effect with scale none"
    )
    return Row(option, on=divides, cure=cure)


def _whitens(asked: Asked) -> bool:
    """Whether the plan whitens, also without the option that sets a number of the whitening."""
    return any(op.name == "whiten" for op in asked.plan_without("post.whiten.inside").post)


ROWS: Final = (
    _scale_of("epsilon"),
    _scale_of("ddof"),
    _scale_of("std_of"),
    Row(
        "whiten_epsilon",
        on=plan(_whitens, "has no effect without whitening"),
        cure=Way("--whiten", "sample", lead="add"),
    ),
    Row("partial", on=given("group_size"), cure=Way("--group-size", fill="N", lead="add")),
    Row(
        "std_threshold",
        on=plan(lambda asked: asked.reads("std_threshold"), "says which groups --zero-variance drop or null skips"),
        cure="add one of them",
    ),
    Row("kl_estimator", on=given("kl_from"), cure=Way("--kl-from", fill="POLICY,REFERENCE", lead="add")),
    Row("kl_reduce", on=given("kl_from"), cure=Way("--kl-from", fill="POLICY,REFERENCE", lead="add")),
    Row(
        "kl_from",
        on=plan(lambda asked: "kl" in asked.plan.needs, "has no effect without --kl-coef"),
        cure=Way("--kl-coef", fill="X", lead="add"),
    ),
    Row(
        "mask",
        on=given("kl_from", "per_token", "token_logprobs", "to", missing="has no effect alone"),
        cure=Way("--per-token", why=", --kl-from or --token-logprobs", lead="add"),
    ),
    Row(
        "component_missing",
        on=plan(lambda asked: len(asked.given.reward) != 1, "has no effect with a single reward"),
        cure=Way("--reward", lead="name them with"),
    ),
)


def without_effect(asked: Asked) -> Iterator[Row]:
    """The rows of the options that are given and that nothing reads."""
    return (row for row in ROWS if row.option in asked.given and not row.on.met(asked))
