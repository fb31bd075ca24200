"""The plans that an audit tries: every preset, and every method with its scales, stds and epsilons."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, Final, NamedTuple

from grpo_cli.engine.estimators.registry import ESTIMATORS, Estimator
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Level, Rewards, ShapeOp
from grpo_cli.engine.presets import presets
from grpo_cli.guests.audit.formulas import formula_key

EPSILONS = (1e-6, 0.0, 1e-9, 1e-8, 1e-5, 1e-4)
# Of values of 16 bits or two decimals no epsilon is solved: these are tried, too.
LARGE_EPSILONS = (1e-3, 1e-2)
DDOFS = (1, 0)
SCALES: Final[Sequence[Level]] = ("none", "group", "batch")


class Candidate(NamedTuple):
    """A plan to try, its presets, and a factor on its advantages."""

    plan: Plan  # the arithmetic, with the constants that were solved
    # the names of the presets with this plan, the most likely first; empty: it is no preset
    presets: tuple[str, ...] = ()
    factor: float = 1.0  # what the advantages of the plan are multiplied by
    solved: bool = False  # whether a factor or an epsilon is among the solved constants
    constants: int = 0  # how many constants were solved from the logged values
    claimed: bool = False  # whether the user claims this plan

    @property
    def times(self) -> str:
        """Its factor in words; empty if there is none."""
        return "" if self.factor == 1 else f"{self.factor:g} x "

    @property
    def is_odd(self) -> bool:
        """Whether it has a solved constant other than a factor of one digit."""
        is_plain_factor = self.factor != 1 and float(f"{self.factor:.1g}") == self.factor
        return self.constants > is_plain_factor

    @property
    def name(self) -> str:
        """The name of its first preset, else its method or formula."""
        return self.times + (self.presets[0] if self.presets else self.plan.flag.removeprefix("--method "))

    def with_plan(self, plan: Plan, **solved: Any) -> Candidate:
        """The same with another plan, which is no preset and not claimed."""
        return self._replace(plan=plan, presets=(), claimed=False, **solved)


class Said(NamedTuple):
    """What the user says about the formula: the weights of the rewards, how rewards were shaped, and the claimed plan."""

    weights: Sequence[float] = ()  # one for each reward column; empty: none was given, and each counts 1
    shape: Sequence[ShapeOp] = ()  # how rewards were shaped before the formula
    claim: Plan | None = None  # the formula that is said to have made the advantages; None: nothing is claimed
    claimed: str = ""  # the name of the claim's preset; empty if it has none

    @property
    def plan(self) -> Plan:
        """The plan whose columns are read."""
        return self.claim or Plan(shape=tuple(self.shape))


def candidates(said: Said, roles: Collection[str], components: int, tool: str = "") -> list[Candidate]:
    """Every plan that can be computed from these columns, each once: first the claim, then presets, then the rest.

    The presets of the tool that wrote the file are tried with every scale. If presets have the same plan, the claimed one comes first, then
    the user's own, then those of the tool.
    """
    plans, names, claimed = dict[Any, Plan](), dict[Any, list[str]](), None
    first = () if said.claim is None else ((said.claim, ""),)
    methods = tuple(row.name for row in ESTIMATORS.values())
    every = (*first, *_presets(), *_scaled(tool), *((plan, "") for plan in _grid(methods)))
    for plan, preset in _counting(every) if "rollout" in roles else every:
        if not {*plan.needs} <= {*roles}:
            continue
        # With the weights of this file, and without a rule that would stop the search.
        missing = "exclude" if plan.rewards.missing == "error" else plan.rewards.missing
        rewards = replace(plan.rewards, missing=missing, weights=tuple(said.weights) if components > 1 else ())
        own = {op.name for op in plan.shape}
        shaped = () if plan is said.claim else tuple(op for op in said.shape if op.name not in own)
        fitted = replace(plan, rewards=rewards, shape=(*shaped, *plan.shape))
        key = formula_key(fitted, missing=True, singletons=True)  # dr-grpo with a group's std is grpo
        claimed = key if plan is said.claim else claimed
        plans.setdefault(key, fitted)
        names.setdefault(key, []).extend([preset] if preset else [])

    def order(preset: str) -> tuple[bool, bool, bool]:
        return preset != said.claimed, not presets().origin(preset), not is_of_tool(preset, tool)

    found = []
    for key, plan in plans.items():
        of_plan = tuple(sorted(names[key], key=order))
        found.append(Candidate(plan, of_plan, claimed=key == claimed))
    return found


def plainness(one: Candidate, tool: str = "") -> tuple[Any, ...]:
    """Sort formulas that the rows cannot tell apart.

    First comes the claimed one, then one without a constant divisor or a factor, the user's own preset, a preset of the tool that wrote the
    file, a method with its default options, a formula without steps before and after the divisor, and a preset, the one with the fewest
    steps first; then the first in the table of methods, and the std of the rewards before that of the residuals.
    """
    plan, methods, plain = one.plan, list(ESTIMATORS), plain_method(one.plan)
    steps = len(plan.shape) + len(plan.post) + (plan.rewards.combine != "sum") + (plan.weight.by != "none")
    return (
        not one.claimed,
        plan.divisor.level == "constant",
        len(one.times),
        not any(map(presets().origin, one.presets)),
        not any(is_of_tool(name, tool) for name in one.presets),
        methods.index(plain) if plain else len(methods),
        steps > 0,
        not one.presets,
        steps,
        methods.index(plan.method),
        plan.divisor.of != "reward",
    )


def is_of_tool(preset: str, tool: str) -> bool:
    """Whether a preset belongs to the tool that wrote the file, if that is known."""
    return bool(tool) and preset.partition("-")[0] == tool


def untried(roles: Collection[str]) -> dict[str, list[str]]:
    """Presets that need columns that were not named: column -> presets."""
    missing: dict[str, list[str]] = {}
    for plan, name in _presets():
        for need in plan.needs:
            if need not in roles:
                missing.setdefault(need, []).append(name)
    return dict(sorted(missing.items()))


def plain_method(plan: Plan) -> str:
    """The method whose default options give this plan, apart from reward weights; "" if there is none."""
    if plan.rewards.missing != "exclude":
        return ""
    return _plain_methods(tuple(ESTIMATORS)).get(_without_rewards(plan), "")


@cache
def _plain_methods(_: tuple[str, ...]) -> Mapping[Any, str]:
    """The first method for each formula that default options give; broken packages are left out."""
    names = [row.name for row in ESTIMATORS.values()]
    return {_without_rewards(Plan.of({"estimator.name": name})): name for name in reversed(names)}


def _without_rewards(plan: Plan) -> Any:
    return formula_key(replace(plan, rewards=Rewards()), missing=True, singletons=True)


def _presets() -> Iterator[tuple[Plan, str]]:
    """All that give one number a row."""
    yield from ((row.plan, row.name) for row in presets().values() if not (row.refused or row.plan.distill.coef))


def _counting(pairs: Iterable[tuple[Plan, str]]) -> Iterator[tuple[Plan, str]]:
    """Each plan for rollouts with several rows: counted as the tool of the preset counts them, and in the other way."""
    for plan, preset in pairs:
        once = replace(plan, unit=replace(plan.unit, take="last"))
        if plan.unit.take != "each":
            yield plan, preset
        elif preset in presets() and presets()[preset].rollouts != "each":
            yield from ((once, preset), (plan, ""))
        else:
            yield from ((plan, preset), (once, ""))


def _scaled(tool: str) -> Iterator[tuple[Plan, str]]:
    """The presets of the tool with their other scales, which an option of the tool sets."""
    for plan, name in _presets():
        if is_of_tool(name, tool) and plan.divisor.level in SCALES:
            others = {*SCALES} & {*plan.estimator.scales} - {plan.divisor.level}
            for scale in (one for one in SCALES if one in others):
                divisor = replace(plan.divisor, level=scale)
                yield replace(plan, divisor=divisor), f"{name} --scale {scale}"


@cache
def _grid(methods: tuple[str, ...]) -> tuple[Plan, ...]:
    """Each of these methods with its scales, and whitened; constants and other stds are solved."""
    rows = (ESTIMATORS[name] for name in methods if name not in {"expression", "none"})

    def levels(row: Estimator) -> Sequence[str]:
        """Beside the mean of the batch, grpo and dr-grpo are batch-norm."""
        if row.build is not ESTIMATORS["batch-norm"].build:
            return row.levels
        return (row.sets.get("estimator.baseline_level", "group"),)

    plans = []
    for row in rows:
        for baseline, scale, whitened in product(levels(row), row.scales, ("", "sample", "token")):
            # Whitening undoes the std of a batch, and a group has no std beside the mean of a batch.
            if (whitened and scale == "batch") or (baseline == "batch" and scale == "group"):
                continue
            settings = {"estimator.name": row.name, "estimator.baseline_level": baseline, "divisor.level": scale}
            steps = {"post.whiten.level": whitened} if whitened else {}
            plans.append(Plan.of({**settings, **steps}))
    return tuple(plans)
