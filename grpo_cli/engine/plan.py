"""The Plan: a frozen, valid description of the arithmetic, in ten ordered parts.

A Plan says what is computed, not where the input is (a Binding of `read` names the columns) or where results go. Every
layer that can change it (the defaults of a method, a preset, `--config`, flags) is a flat mapping of dotted settings
(`divisor.epsilon`); layers are merged from weak to strong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any, Literal, get_type_hints

from grpo_cli.engine.coerce import typed
from grpo_cli.engine.estimators import expression
from grpo_cli.engine.estimators.registry import ESTIMATORS, Estimator
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan_parts import (
    ORDERED,
    PARTS,
    Alone,
    Distill,
    Divisor,
    Groups,
    Length,
    PostOp,
    Rank,
    Rewards,
    ShapeOp,
    Unit,
    Weight,
    Whiten,
)
from grpo_cli.errors import Cure, UnknownName, UsageError, Way

OTHERS = "default"  # with --plan-by, the name of the plan for all values without one
_OVER_BATCH = {"std", "hard"}  # weights that depend on all groups of a batch


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The complete, valid arithmetic. Equal plans give equal numbers."""

    method: str = "grpo"  # the name of the estimator, which computes the residual
    # the parameters of its formula by name, defaults included; empty if it has none
    params: Mapping[str, Any] = field(default_factory=dict)
    # whether the formula reads mean, sum and size of the group or of the batch
    baseline_level: Literal["group", "batch"] = "group"
    unit: Unit = field(default_factory=Unit)  # what counts as one reward: a row, or a rollout of several rows
    # how reward columns become one reward, and what a missing one means
    rewards: Rewards = field(default_factory=Rewards)
    shape: tuple[ShapeOp, ...] = ()  # operations on the reward before the formula, in this order
    divisor: Divisor = field(default_factory=Divisor)  # what the residual is divided by
    alone: Alone = field(default_factory=Alone)  # what a group with one scored row gets
    groups: Groups = field(default_factory=Groups)  # which groups are trained on, and what the others get
    weight: Weight = field(default_factory=Weight)  # a factor on the advantages of a group, after the division
    post: tuple[PostOp, ...] = ()  # operations on the advantages after the weight, in this order
    distill: Distill = field(default_factory=Distill)  # what a teacher changes on each token; it needs --per-token

    @classmethod
    def of(cls, *layers: Mapping[str, Any]) -> Plan:
        """Merge layers of dotted settings, weak to strong, over the defaults of the method."""
        method = _method(layers)
        given = dict[str, Any]()
        chosen = None
        for layer in layers:
            name = layer.get("estimator.name", chosen)
            if chosen not in {None, name}:
                # This layer chose another method, which does not have the parameters of the weaker one.
                given = {k: v for k, v in given.items() if not k.startswith("estimator.")}
            chosen = name
            of_method = name in {None, method.name}
            given = _over(given, _renamed(layer, method) if of_method else layer)
        settings = _defaults(method, given) | given
        return _checked(_built(cls, settings, method))

    @property
    def estimator(self) -> Estimator:
        """The method's row in the table."""
        return ESTIMATORS[self.method]

    @property
    def needs(self) -> tuple[str, ...]:
        """The roles of the extra columns that the arithmetic reads, each once."""
        wanted = [*self.estimator.needs]
        for op in (*self.shape, *self.post):
            wanted += op.needs
        if self.unit.take != "each" or self.unit.per_step or self.unit.state_weight:
            wanted.append("rollout")
        if self.unit.state_weight:
            wanted += ["state", "step_reward"]
        return tuple(dict.fromkeys(wanted))

    @property
    def may_read(self) -> tuple[str, ...]:
        """Extra columns that are read if they are bound."""
        named = [role for role in ROLES if role in self.named]
        if any(isinstance(op, Length) for op in self.shape):
            named += ["input_length", "turns"]
        named.append("rollout")
        if self.method == "ema":
            named.append("role")
        return tuple(named)

    @property
    def named(self) -> frozenset[str]:
        """The quantities that its formula names; none if a method of the table computes the advantages."""
        return expression.named(str(self.params["sql"])) if self.method == "expression" else frozenset()

    @property
    def unread(self) -> frozenset[str]:
        """Settings that no advantage depends on, because other settings make them irrelevant."""
        unit = self.unit
        divisor = self.divisor
        groups = self.groups
        weight = self.weight
        distill = self.distill
        divides = divisor.level in {"group", "batch"}
        by_std = divides and divisor.measure == "std"
        of_batch = divisor.level == "batch"
        named = self.named
        keeps_singletons = self.alone.result == "keep"
        skips = groups.zero_variance != "keep" or groups.min_size > 1
        is_read = {
            "unit.gamma": unit.state_weight,
            "unit.states": unit.state_weight,
            "divisor.of": divides,
            "divisor.measure": divides,
            "divisor.ddof": by_std or bool({"std", "batch_std"} & named) or weight.by == "std",
            "divisor.inside": by_std,
            "divisor.floor": by_std,
            "divisor.epsilon": divides or "epsilon" in named or (divisor.level == "constant" and divisor.only_positive),
            "divisor.only_positive": divisor.level != "none",
            "divisor.least": divides,
            "divisor.constant": divisor.level == "constant",
            "alone.baseline": keeps_singletons or (of_batch and divisor.of == "residual"),
            "alone.sd": keeps_singletons and (divides or weight.by == "std"),
            "groups.std_threshold": groups.zero_variance != "keep",
            "groups.small": groups.min_size > 1,
            "groups.statistics": skips and (of_batch or weight.by in _OVER_BATCH),
            "weight.solved": weight.by in {"peak", "pass-at-k"},
            "weight.peak": weight.by == "peak",
            "weight.sharpness": weight.by == "peak",
            "weight.k": weight.by == "pass-at-k",
            "weight.temperature": weight.by == "hard",
            "distill.form": distill.coef,
            "distill.clamp": distill.coef,
            "distill.clip": distill.coef and distill.form == "reweight",
            "distill.negative_only": distill.coef and distill.form == "reweight",
        }
        unread = [name for name, reads in is_read.items() if not reads]
        if any(isinstance(op, Whiten) and not op.divide for op in self.post):
            unread += [f"post.whiten.{name}" for name in ("ddof", "inside", "floor", "epsilon")]
        return frozenset(unread)

    @property
    def uses_batch(self) -> bool:
        """Whether an advantage depends on rows of other groups."""
        return self.estimator.batch or self._sums_batch

    @property
    def nan_reach(self) -> str:
        """What a NaN reward makes NaN: its row, the later rows of its group, its group or its batch."""
        return "batch" if self._sums_batch else self.estimator.nan_reach

    @property
    def _sums_batch(self) -> bool:
        """Whether every advantage depends on a mean or std of the batch, with any method."""
        return (
            self.baseline_level == "batch"
            or self.divisor.level == "batch"
            or "batch_" in str(self.params.get("sql", ""))
            or any(isinstance(op, Whiten) for op in self.post)
            or self.weight.by in _OVER_BATCH
            or bool(self.unit.state_weight and self.unit.states == "batch")
        )

    @property
    def centred(self) -> bool:
        """Whether a constant group gets exactly 0 before the post operations."""
        return self.estimator.centred and self.baseline_level == "group" and self.raw_rank is None

    @property
    def gives_equal_rewards_0(self) -> bool:
        """Whether a group with equal shaped rewards gets exactly 0 (before the post operations): it has no gradient."""
        return self.centred and not self.unit.state_weight

    @property
    def raw_rank(self) -> Rank | None:
        """The rank penalty whose numerator keeps the raw reward, if any."""
        return next((op for op in self.shape if isinstance(op, Rank) and op.numerator == "raw"), None)

    def refuse_distill(self, what: str, instead: Cure = "compute --per-token writes lists") -> None:
        """Refuse a plan whose advantages differ from token to token, where there is `what`."""
        if self.distill.coef:
            coef = f"distill.coef {self.distill.coef:g}"
            wrong = f"the plan changes the advantage on each token ({coef}), and this is {what}"
            raise UsageError(wrong, [instead, Way("--set", "distill.coef=0", "leaves that out")])

    @property
    def flag(self) -> str:
        """The options of its method, of another baseline than the method's own, and of the weight of its groups if it has one."""
        words = [f"--expr '{self.params['sql']}'" if self.method == "expression" else f"--method {self.method}"]
        if self.baseline_level != self.estimator.sets.get("estimator.baseline_level", "group"):
            words.append(f"--set estimator.baseline_level={self.baseline_level}")
        for part in fields(Weight):
            value = getattr(self.weight, part.name)
            if value != part.default:
                words.append(f"--set weight.{part.name}={value}")
        return " ".join(words)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the summary, JSON and file metadata."""
        package = ESTIMATORS.origin(self.method)
        return {
            "method": self.method,
            **({"package": package} if package else {}),
            "params": dict(self.params),
            "baseline_level": self.baseline_level,
            **{part: asdict(getattr(self, part)) for part in PARTS},
            "shape": [{"op": op.name, **asdict(op)} for op in self.shape],
            "post": [{"op": op.name, **asdict(op)} for op in self.post],
        }


def _method(layers: tuple[Mapping[str, Any], ...]) -> Estimator:
    """The method of the strongest layer that names one; grpo if none does."""
    name = "grpo"
    for layer in layers:
        name = layer.get("estimator.name", name)
    if str(name) not in ESTIMATORS:
        raise UnknownName.among("method", str(name), ESTIMATORS, lost="grpo-adv methods lists them")
    return ESTIMATORS[name]


def _over(weak: Mapping[str, Any], strong: Mapping[str, Any]) -> dict[str, Any]:
    """The merged layers; the stronger one may remove an operation (or the division) or set it again."""
    gone = [f"{key}." for key, value in strong.items() if value is None]
    if strong.get("divisor.level") == "none":
        gone.append("divisor.of")
    again = {key.rpartition(".")[0] for key in strong}
    merged = dict[str, Any]()
    for key, value in weak.items():
        set_again = value is None and key in again
        if not key.startswith(tuple(gone)) and not set_again:
            merged[key] = value
    return {**merged, **strong}


def _defaults(method: Estimator, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the method; if groups are not compared with themselves, a singleton is a group like any other."""
    settings = {"divisor.level": method.scale}
    level = given.get("estimator.baseline_level", method.sets.get("estimator.baseline_level"))
    if level == "batch" or method.min_group == 1:
        settings |= {"alone.baseline": "formula", "alone.result": "keep"}
    return {**settings, **method.sets}


def _renamed(layer: Mapping[str, Any], method: Estimator) -> dict[str, Any]:
    """The layer with parameters of the method that are fields of the plan (gigpo's omega is unit.state_weight) renamed."""
    aliases = {f"estimator.{p.name}": p.field for p in method.params if p.field}
    return {aliases.get(key, key): value for key, value in layer.items()}


def _built(cls: type[Plan], settings: Mapping[str, Any], method: Estimator) -> Plan:
    grouped = dict[str, dict[str, Any]]()
    for key, value in settings.items():
        part, _, name = key.partition(".")
        if part not in PARTS and part not in ORDERED and part != "estimator":
            raise UnknownName.among("part of the plan", part, ["estimator", *PARTS, *ORDERED], "(part.field=value)")
        grouped.setdefault(part, {})[name] = value
    estimator = grouped.get("estimator", {})
    known = [p.name for p in method.params]
    for name in estimator:
        if name not in {"name", "baseline_level", *known}:
            if name == "sql":
                raise UsageError(f"--expr cannot be combined with the method {method.name}", "leave out --method")
            raise UnknownName.among(f"parameter of {method.name}", name, known)
    params = dict[str, Any]()
    for p in method.params:
        if not p.field:
            value = typed(estimator.get(p.name, p.default), p.type, f"parameter {p.name}")
            params[p.name] = p.checked(value)
    level = estimator.get("baseline_level", "group")
    return cls(
        method=method.name,
        params=params,
        baseline_level=typed(level, Literal["group", "batch"], "estimator.baseline_level"),
        shape=_ordered("shape", grouped.get("shape", {})),
        post=_ordered("post", grouped.get("post", {})),
        **{part: _part(part, PARTS[part], grouped.get(part, {})) for part in PARTS},
    )


def _part(where: str, kind: type, given: Mapping[str, Any]) -> Any:
    names = [f.name for f in fields(kind)]
    for name in given:
        if name not in names:
            raise UnknownName.among(f"field of {where}", name, names)
    hints = _hints(kind)
    checked = {name: typed(value, hints[name], f"{where}.{name}") for name, value in given.items()}
    return kind(**checked)


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """The types of the fields; they are text, and evaluating it takes most of the time of making a plan."""
    return get_type_hints(kind)


def _ordered(part: str, given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Operations in the order of the preset (key ""), then those set one by one, in the order of the table.

    None removes an operation.
    """
    kinds = ORDERED[part]
    listed = _listed(part, given.get("", ()))
    ops = {str(item.pop("op", None)): item for item in listed}
    single = dict[str, dict[str, Any]]()
    removed = set()
    for key, value in given.items():
        if not key:
            continue
        op, _, name = key.partition(".")
        settings = single.setdefault(op, {})
        if name:
            settings[name] = value
        elif not typed(value, bool | None, f"{part}.{op}"):
            removed.add(op)
    for op in (*ops, *single):
        if op not in kinds:
            raise UnknownName.among(f"operation of {part}", op, kinds)
    for op in sorted(single, key=list(kinds).index):
        ops.setdefault(op, {}).update(single[op])
    return tuple(_part(f"{part}.{op}", kinds[op], values) for op, values in ops.items() if op not in removed)


def _listed(part: str, value: Any) -> list[dict[str, Any]]:
    if isinstance(value, (list, tuple)) and all(isinstance(item, dict) for item in value):
        names = [str(item.get("op")) for item in value]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UsageError(f"{part} lists {twice[0]!r} twice", "give each operation once")
        return [dict(item) for item in value]
    cure = f"set its operations one by one, as {part}.clip.lo=0"
    raise UsageError(f"{part} is a list of operations, it cannot be {value!r}", cure)


def _checked(plan: Plan) -> Plan:
    """The plan, if its combination of settings is valid."""
    row = plan.estimator
    if plan.divisor.level not in (*row.scales, "constant"):
        raise UsageError(f"{row.name} has no scale {plan.divisor.level!r}", f"choose from {', '.join(row.scales)}")
    if plan.baseline_level not in row.levels:
        raise UsageError(f"{row.name} has no {plan.baseline_level} baseline", f"choose from {', '.join(row.levels)}")
    if plan.baseline_level == "batch" and plan.divisor.level == "group":
        # The std of a group is unrelated to its distance from the batch: a constant group would be divided by epsilon.
        raise UsageError("a batch baseline cannot be divided by a group's std", "add --scale batch or --scale none")
    if plan.divisor.measure == "mad" and plan.unit.state_weight:
        raise UsageError(
            "the step part has no mean absolute deviation", Way("--set", "divisor.measure=std", lead="use")
        )
    if plan.method == "bnpo" and plan.params["min"] >= plan.params["max"]:
        raise UsageError("bnpo needs min < max", "--param min=0 --param max=1")
    return plan


# A method of a package must make a valid plan: listings show the plan of every method.
ESTIMATORS.validate = lambda row: Plan.of({"estimator.name": row.name})
