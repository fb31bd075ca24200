"""The plans that an audit tries: every preset, and every method with its scales, spreads and epsilons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Whiten
from grpo_cli.engine.presets import presets
from grpo_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

EPSILONS: Final = (1e-6, 0.0, 1e-9, 1e-8, 1e-5, 1e-4)
DDOFS: Final = (1, 0)
WHITENED: Final[Mapping[str, Mapping[str, Any]]] = {
    "": {},
    "sample": {"post.whiten.level": "sample"},
    "token": {"post.whiten.level": "token"},
}
# What is tried of a divisor before its epsilon and ddof are.
SPREADS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "none": ({},),
    "group": ({}, {"divisor.of": "residual"}),
    "batch": ({}, {"divisor.of": "residual"}),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan to try, and the presets that are it."""

    plan: Plan
    presets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How it is called: by its first preset, else by its method."""
        return self.presets[0] if self.presets else self.plan.method


def candidates(
    roles: Collection[str], weights: Sequence[float], components: int, claim: Plan | None = None
) -> list[Candidate]:
    """Every plan that can be computed from these columns, each once; what is claimed and presets before the rest."""
    found: list[Candidate] = []
    claimed = () if claim is None else ((claim, ""),)
    for plan, name in (*claimed, *_presets(), *((plan, "") for plan in _grid())):
        fitted = _fitted(plan, weights, components)
        if not {*plan.needs} <= {*roles}:
            continue
        known = next((i for i, one in enumerate(found) if same_arithmetic(one.plan, fitted)), None)
        if known is None:
            found.append(Candidate(fitted, (name,) if name else ()))
        elif name:
            found[known] = Candidate(fitted, (*found[known].presets, name))
    return found


def same_arithmetic(one: Plan, other: Plan) -> bool:
    """Whether two plans are one, whatever the method is called: dr-grpo with a group's std is grpo."""
    if one.estimator.build is not other.estimator.build or one.params != other.params:
        return False
    return replace(one, method=other.method) == other


def untried(roles: Collection[str]) -> dict[str, list[str]]:
    """Presets that need a column that nobody named: column -> presets."""
    missing: dict[str, list[str]] = {}
    for plan, name in _presets():
        for need in {*plan.needs} - {*roles}:
            missing.setdefault(need, []).append(name)
    return dict(sorted(missing.items()))


def refined(candidate: Candidate) -> Iterator[Candidate]:
    """The same formula with every epsilon and ddof of its divisor, and of its whitening."""
    plan = candidate.plan
    if plan.divisor.level in {"group", "batch"}:
        for ddof, epsilon in product(DDOFS, EPSILONS):
            yield Candidate(replace(plan, divisor=replace(plan.divisor, ddof=ddof, epsilon=epsilon)))
    for at, op in enumerate(plan.post):
        if isinstance(op, Whiten):
            for ddof, epsilon, inside in product(DDOFS, EPSILONS, (0.0, 1e-8)):
                spelled = replace(op, ddof=ddof, epsilon=epsilon, inside=inside)
                yield Candidate(replace(plan, post=(*plan.post[:at], spelled, *plan.post[at + 1 :])))


def _presets() -> Iterator[tuple[Plan, str]]:
    yield from ((row.plan, row.name) for row in presets().values() if not row.refused)


def _grid() -> Iterator[Plan]:
    """Methods that one formula makes of rewards and columns; chance and a formula of one's own are not among them."""
    for row in ESTIMATORS.values():
        if row.name == "expression":
            continue
        for scale, whitening in product(row.scales, WHITENED.values()):
            for spread in SPREADS[scale]:
                try:
                    yield Plan.of({"estimator.name": row.name, "divisor.level": scale, **spread, **whitening})
                except UsageError:  # a combination that means nothing
                    continue


def _fitted(plan: Plan, weights: Sequence[float], components: int) -> Plan:
    """The plan with the weights of this file; nobody is there to stop for."""
    rule = plan.rewards
    missing = "exclude" if rule.missing == "error" else rule.missing
    told = tuple(weights) if components > 1 else ()
    return replace(plan, rewards=replace(rule, missing=missing, weights=told))
