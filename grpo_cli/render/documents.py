"""The documents that `--json` prints, as types.

A part of a plan means the dictionary that `Plan.as_dict` makes of it. Numbers are finite; None means that there is no
number. A key that is `NotRequired` is present only if it says something.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict, final

from grpo_cli.engine.plan_parts import Alone, Divisor, Groups, PostOp, Rewards, ShapeOp, Unit, Weight

Number = float | None
Scalar = str | int | float | bool | None


class PlanFields(TypedDict):
    """The arithmetic: every field that --set knows, and the package of a method that is not built in."""

    method: str
    package: NotRequired[str]
    params: dict[str, Scalar]
    baseline_level: Literal["group", "batch"]
    unit: Unit
    rewards: Rewards
    shape: list[ShapeOp]
    divisor: Divisor
    alone: Alone
    groups: Groups
    weight: Weight
    post: list[PostOp]


class Run(TypedDict):
    """Facts of a whole run."""

    version: Literal[1]
    inputs: list[str]
    config: NotRequired[str]


class RunOfParts(Run):
    """A run with --plan-by; `parts` has an entry for each value of the column."""

    plan_by: str


# --- audit -----------------------------------------------------------------------------------------------


class Ranked(TypedDict):
    """A formula that was tried."""

    name: str
    mismatched_rows: int
    typical_difference: Number
    plan: PlanFields


class EpsilonInterval(TypedDict):
    """Where the epsilon lies, how exactly the values were read, and a sentence if several usual ones lie there."""

    low: float
    high: float
    read_as: Literal["float64", "float32", "float16", "bfloat16", "decimals"]
    says: str


class Match(Ranked):
    """The best formula, and the evidence for it.

    `without_effect` are fields of its plan about rows and groups that the input has none of.
    """

    mismatched_groups: int
    max_difference: Number
    tolerance: float
    near: bool
    decisive_rows: int
    verdict: Literal["match", "noise", "few", "nothing", "near", "none"]
    equations: int
    constants: int
    epsilon: EpsilonInterval | None
    weights: dict[str, float]
    preset_names: list[str]
    plain_method: str
    factor: float
    without_effect: list[str]


class Disagreement(TypedDict):
    """A group that differs from a formula (the nearest, or in `claim` the claimed one), with its first row that does.

    `expected` is what that formula computes.
    """

    key: str
    place: str
    rows: int
    expected: Number
    logged: Number


class Cause(TypedDict):
    """What explains groups that disagree."""

    cause: str
    says: str
    groups: int
    rows: int


class Differing(TypedDict):
    """A field in which the claim is not the formula that was found."""

    claimed: Any
    logged: Any


class Claim(TypedDict):
    """How far the formula that was named is from what was logged."""

    mismatched_rows: int
    mismatched_groups: int
    max_difference: Number
    disagreements: list[Disagreement]
    differs: dict[str, Differing]


class Audited(TypedDict):
    """Which formula made the advantages of some rows."""

    version: Literal[1]
    inputs: list[str]
    column: str
    rows: int
    groups: int
    notes: list[str]
    match: Match
    ties: list[str]
    tied_formulas: list[list[str]]
    told_apart_by: list[str]
    ranking: list[Ranked]
    disagreements: list[Disagreement]
    headline: str | None
    causes: list[Cause]
    claim: Claim | None
    sampled_rows: int | None
    not_tried: dict[str, list[str]]
    warnings: list[str]


class AuditDocument(Audited):
    """The result of `audit`."""

    config: NotRequired[str]


class AuditedPart(Audited):
    """The same for the rows with one value of --plan-by."""

    value: str


@final
class AuditPartsDocument(RunOfParts):
    """The result of `audit --plan-by`."""

    parts: list[AuditedPart]
    warnings: list[str]
