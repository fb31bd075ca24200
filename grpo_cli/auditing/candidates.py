"""The plans that an audit tries: every preset, and every method with its scales, spreads and epsilons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Level, Whiten
from grpo_cli.engine.presets import presets
from grpo_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from grpo_cli.engine.plan_parts import ShapeOp

EPSILONS: Final = (1e-6, 0.0, 1e-9, 1e-8, 1e-5, 1e-4)
DDOFS: Final = (1, 0)
WHITENED: Final[Mapping[str, Mapping[str, Any]]] = {
    "": {},
    "sample": {"post.whiten.level": "sample"},
    "token": {"post.whiten.level": "token"},
}
# What a divisor of each scale may be of; its epsilon and ddof are tried later.
DIVISORS: Final[Mapping[Level, Sequence[Mapping[str, Any]]]] = {
    "none": ({},),
    "group": ({}, {"divisor.of": "residual"}),
    "batch": ({}, {"divisor.of": "residual"}),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan to try, the presets that are it, a number that its advantages are multiplied by, and whether a constant was solved."""

    plan: Plan
    presets: tuple[str, ...] = ()
    factor: float = 1.0
    solved: bool = False

    @property
    def name(self) -> str:
        """How it is called: by its first preset, else by its method."""
        name = self.presets[0] if self.presets else self.plan.method
        return name if self.factor == 1 else f"{self.factor:g} x {name}"


def candidates(
    roles: Collection[str],
    weights: Sequence[float],
    components: int,
    claim: Plan | None = None,
    shape: Sequence[ShapeOp] = (),
    tool: str = "",
) -> list[Candidate]:
    """Every plan that can be computed from these columns, each once; what is claimed and presets before the rest.

    The presets of the tool that wrote the file are tried with every scale. `shape` comes before all of them.
    """
    distinct: list[Candidate] = []
    claimed = () if claim is None else ((claim, ""),)
    for plan, preset in (*claimed, *_presets(), *_scaled(tool), *((plan, "") for plan in _grid())):
        if not {*plan.needs} <= {*roles}:
            continue
        # The weights of this file, and no rule that stops: the search goes on.
        missing = "exclude" if plan.rewards.missing == "error" else plan.rewards.missing
        rewards = replace(plan.rewards, missing=missing, weights=tuple(weights) if components > 1 else ())
        shaped = () if plan is claim else tuple(op for op in shape if op.name not in {own.name for own in plan.shape})
        plan = replace(plan, rewards=rewards, shape=(*shaped, *plan.shape))  # noqa: PLW2901 - the plan as it fits this file
        known = next((i for i, other in enumerate(distinct) if _same_arithmetic(other.plan, plan)), None)
        if known is None:
            distinct.append(Candidate(plan, (preset,) if preset else ()))
        elif preset:
            distinct[known] = Candidate(plan, (*distinct[known].presets, preset))
    return distinct


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
                whiten = replace(op, ddof=ddof, epsilon=epsilon, inside=inside)
                yield Candidate(replace(plan, post=(*plan.post[:at], whiten, *plan.post[at + 1 :])))


def _same_arithmetic(one: Plan, other: Plan) -> bool:
    """Whether two plans are one, whatever the method is called: dr-grpo with a group's std is grpo."""
    if one.estimator.build is not other.estimator.build or one.params != other.params:
        return False
    return replace(one, method=other.method) == other


def _presets() -> Iterator[tuple[Plan, str]]:
    yield from ((row.plan, row.name) for row in presets().values() if not row.refused)


def _scaled(tool: str) -> Iterator[tuple[Plan, str]]:
    """A tool's presets with the scales that they do not have, as an option of the tool sets them."""
    for plan, name in _presets():
        if tool and name.split("-")[0] == tool and plan.divisor.level in DIVISORS:
            for scale in {*DIVISORS} & {*plan.estimator.scales} - {plan.divisor.level}:
                yield replace(plan, divisor=replace(plan.divisor, level=scale)), f"{name} --scale {scale}"


def _grid() -> Iterator[Plan]:
    """Every method with its scales, divisors and whitenings; a formula of the user's own is none of them."""
    for row in ESTIMATORS.values():
        if row.name == "expression":
            continue
        for scale, whitening in product(row.scales, WHITENED.values()):
            for divisor in DIVISORS[scale]:
                try:
                    yield Plan.of({"estimator.name": row.name, "divisor.level": scale, **divisor, **whitening})
                except UsageError:  # a combination that means nothing
                    continue
