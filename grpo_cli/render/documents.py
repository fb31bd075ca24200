"""What `--json` prints, as types: `docs/schemas/` is made of them, and renderers that ask for keys one by one read by them.

A type is a row: its keys, then what it is. A type that is made of others is a class. A part of a plan stands for the dictionary
that `Plan.as_dict` makes of it. Numbers are finite; None is a number that there is not. A key that is `NotRequired` is there
only where it says something.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NotRequired, TypedDict, final

from grpo_cli.engine.plan_parts import Alone, Counting, Divisor, Groups, PostOp, Rewards, ShapeOp, Unit, Weight

Number = float | None
Scalar = str | int | float | bool | None
Status = Literal["scored", "unscorable", "singleton", "zero-variance", "small-group"]

PlanFields = TypedDict("PlanFields", {
    "method": str, "package": NotRequired[str], "params": dict[str, Scalar], "baseline_level": Literal["group", "batch"],
    "unit": Unit, "rewards": Rewards, "shape": list[ShapeOp], "divisor": Divisor, "alone": Alone, "groups": Groups,
    "weight": Weight, "post": list[PostOp],
})  # fmt: skip
"""The arithmetic: every field that --set knows, and the package of a method that is not built in."""

# --- rewards and groups ------------------------------------------------------------------------------------

Moments = TypedDict("Moments", {"mean": Number, "std": Number, "min": Number, "max": Number})
"""Of the finite values; without any, all is null."""

ValueCounts = TypedDict("ValueCounts", {"values": list[float], "counts": list[int]})
"""A histogram of few values."""

BinCounts = TypedDict("BinCounts", {"edges": list[float], "counts": list[int]})
"""A histogram of bins between edges."""


class Distribution(Moments):
    """Finite values; without any, all but the count is null."""

    count: int
    quartiles: list[Number]
    histogram: ValueCounts | BinCounts | None


class EndedDistribution(Distribution):
    """A distribution with how often its smallest and its largest value occur."""

    at_min: int
    at_max: int


class RewardColumn(EndedDistribution):
    """A reward column by itself, without its weight."""

    unscorable: int
    zero_variance_share: Number
    weight: float


GroupSizes = TypedDict("GroupSizes", {"min": int, "median": float, "max": int, "counts": dict[str, int]})
"""How large groups are; `counts` has the number of groups of each size."""

ZeroVariance = TypedDict("ZeroVariance", {
    "groups": int, "rows": int, "share": Number, "all_best": int, "all_worst": int, "other": int, "nearly": int,
})  # fmt: skip
"""Groups with equal rewards; `share` is that of the groups with two rewards to compare."""

Reading = TypedDict("Reading", {
    "group_key": list[str], "reward_columns": list[str], "map": dict[str, float], "schema": str | None, "notes": list[str],
})  # fmt: skip
"""What was read, and how."""

Counts = TypedDict("Counts", {
    "rows": int, "rollouts": int, "groups": int, "group_sizes": GroupSizes, "singletons": int, "unscorable": int,
    "declared_unscorable": int, "zero_variance": ZeroVariance, "unit": Literal["row", "rollout"],
    "role_columns": dict[str, str], "warnings": list[str],
})  # fmt: skip
"""Rows and groups, of a run or of a part of its rows."""

Run = TypedDict("Run", {"version": Literal[1], "inputs": list[str], "config": NotRequired[str]})
"""What there is of a run as a whole."""


class RunOfParts(Run):
    """A run with --plan-by, whose `parts` are those of the values of a column."""

    plan_by: str


# --- compute -----------------------------------------------------------------------------------------------


class Advantages(Moments):
    """The finite advantages, and how many are null, NaN or 0."""

    null: int
    nan: int
    zero: int


SkippedGroup = TypedDict("SkippedGroup", {"key": str, "reward": Number})
"""A group without an advantage of its own."""

Skipped = TypedDict("Skipped", {
    "reason": Literal["zero-variance", "singleton", "small-group", "unscorable"], "groups": int, "rows": int,
    "keys": list[SkippedGroup],
})  # fmt: skip
"""Such groups of one reason, the first of them by their keys."""

Overridden = TypedDict("Overridden", {"preset": Any, "plan": Any})
"""A field of a preset that a flag changed."""

Origin = TypedDict("Origin", {
    "name": str, "source": dict[str, str], "from": NotRequired[str], "overridden": dict[str, Overridden],
})  # fmt: skip
"""The preset of a plan, where a file or a package has it, and what flags changed of it."""

OnTokens = TypedDict("OnTokens", {"columns": dict[str, str], "tokens": int, "response_tokens": int})
"""Tokens of --per-token, by these columns."""

Computed = TypedDict("Computed", {
    "batches": int, "batch_key": str, "reward": Distribution, "advantage": Advantages, "status": dict[Status, int],
    "skipped": list[Skipped], "plan": PlanFields, "preset": Origin | None, "dropped_rows": int, "copied_rows": int,
    "per_token": NotRequired[OnTokens],
})  # fmt: skip
"""What was computed by a plan."""

Written = TypedDict("Written", {
    "advantage_column": str, "more_columns": list[str], "outputs": list[str], "kept_outputs": NotRequired[int],
    "seconds": NotRequired[float],
})  # fmt: skip
"""What `compute` wrote; `kept_outputs` and `seconds` are missing where a gate stopped it."""


class ComputeDocument(Run, Reading, Counts, Computed, Written):
    """The summary of `compute`; `kept_outputs` and `seconds` are missing where a gate stopped it."""


class ComputedPart(Reading, Counts, Computed):
    """What was computed of the rows with a value of --plan-by."""

    value: str


class ComputePartsDocument(RunOfParts, Written):
    """The summary of `compute --plan-by`."""

    rows: int
    groups: int
    dropped_rows: int
    copied_rows: int
    parts: list[ComputedPart]
    warnings: list[str]


# --- inspect -----------------------------------------------------------------------------------------------

Components = TypedDict("Components", {
    "correlation": dict[str, dict[str, Number]], "length": NotRequired[dict[str, Number]], "advantage": dict[str, Number],
    "decides": str | None,
})  # fmt: skip
"""How several reward columns go together within groups; `decides` goes with the advantage most closely."""

Difficulty = TypedDict("Difficulty", {
    "worst": float, "best": float, "groups": int, "mean": float, "never": int, "always": int,
    "between": ValueCounts | BinCounts, "useful": int, "alive": int,
})  # fmt: skip
"""How many groups are never solved, always solved, and how hard those between are."""

Spread = TypedDict("Spread", {"within": Number, "between": Number, "between_share": Number})
"""The variance of the rewards within groups, between them, and the share of the latter."""

Expected = TypedDict("Expected", {"observed": float, "beta": Number, "one_rate": Number})
"""The share of zero-variance groups, and what chance would give."""

AtSize = TypedDict("AtSize", {"size": int, "alive": float, "found": Literal["sample", "model", "bound"]})
"""The share of groups that would vary at another size."""

Lengths = TypedDict("Lengths", {
    "column": str, "rows": int, "mean": Number, "correlation": Number, "within_groups": Number, "best": Number,
    "worst": Number,
})  # fmt: skip
"""How rewards go with lengths; `best` and `worst` are mean lengths."""

Duplicates = TypedDict("Duplicates", {"column": str, "rows": int, "share": Number, "groups": int, "all_the_same": int})
"""Responses that repeat another one of their group."""

GroupLine = TypedDict("GroupLine", {
    "key": str, "number": int, "size": int, "scored": int, "mean": Number, "std": Number, "min": Number, "max": Number,
    "solve_rate": Number, "length": NotRequired[Number],
})  # fmt: skip
"""A group; `number` is its place in the files, `length` is there where lengths are known."""

Listed = TypedDict("Listed", {"sort": str, "most": list[GroupLine], "least": list[GroupLine]})
"""The groups with the most and the least of a fact."""

TrendLine = TypedDict("TrendLine", {
    "value": Any, "groups": int, "rows": int, "unscorable": int, "mean": Number, "std": Number, "group_std": Number,
    "zero_variance": Number, "all_best": Number, "all_worst": Number, "length": Number,
})  # fmt: skip
"""The rows and groups with one value of the column of --by."""

Trend = TypedDict("Trend", {"column": str, "lines": list[TrendLine]})
"""The trend of --by."""

RowLine = TypedDict("RowLine", {
    "file": str, "row": int, "rewards": dict[str, Number], "reward": Number, "advantage": Number, "status": Status,
    "length": Number, "text": str | None,
})  # fmt: skip
"""A row of the group of --show."""


class ShownGroup(GroupLine):
    """The group of --show with its rows."""

    prompt: str | None
    rows: list[RowLine]


Inspected = TypedDict("Inspected", {
    "reward": EndedDistribution, "advantage_column": str | None, "combine": Literal["sum", "normalize"],
    "rewards": dict[str, RewardColumn], "components": Components | None, "difficulty": Difficulty | None, "spread": Spread,
    "expected": Expected | None, "at_size": list[AtSize], "live_rows": int, "effective_rows": Number, "method": str,
    "length": Lengths | None, "duplicates": Duplicates | None, "listed": Listed, "by": Trend | None, "verdicts": list[str],
})  # fmt: skip
"""What rewards look like."""


class InspectDocument(Run, Reading, Counts, Inspected):
    """What `inspect` shows; `show` is there with --show."""

    show: NotRequired[ShownGroup]


class InspectedPart(Reading, Counts, Inspected):
    """What the rewards of the rows with a value of --plan-by look like."""

    version: Literal[1]
    value: str


class InspectPartsDocument(RunOfParts):
    """What `inspect --plan-by` shows; `show` is there with --show."""

    rows: int
    rollouts: int
    groups: int
    parts: list[InspectedPart]
    show: NotRequired[ShownGroup]
    warnings: list[str]


# --- inspect --against -------------------------------------------------------------------------------------

Only = TypedDict("Only", {"prompts": int, "keys": list[str]})
"""Prompts of one run only, the first of them by their keys."""

NowAndBefore = TypedDict("NowAndBefore", {"now": int, "before": int})
"""A number of both runs."""

Interval = TypedDict("Interval", {
    "now": float, "before": float, "change": float, "low": Number, "high": Number, "level": float,
})  # fmt: skip
"""The solve rates of both runs, and an interval of the change; null for one prompt."""

UpAndDown = TypedDict("UpAndDown", {"up": float, "down": float})
"""Prompts whose solve rate reached 0.5, and those that lost it."""

Chance = TypedDict("Chance", {
    "better": float, "worse": float, "same": float, "solved_first": float, "solved_no_more": float, "flips": UpAndDown,
    "deals": int,
})  # fmt: skip
"""The same counts where chance alone deals the rows to the runs."""

Change = TypedDict("Change", {
    "value": NotRequired[float], "from": NotRequired[float], "to": NotRequired[float],
    "kind": Literal["better", "same", "worse"], "count": int,
})  # fmt: skip
"""A change of so many prompts or rows: of a value, or in a bin where there are many values."""

Band = TypedDict("Band", {
    "difficulty": Literal["never", "hard", "medium", "easy", "always"], "prompts": int, "before": float, "now": float,
    "change": float, "low": Number, "high": Number,
})  # fmt: skip
"""Prompts of a difficulty, by their solve rates in both runs."""

Prompt = TypedDict("Prompt", {
    "key": str, "number": int, "before": float, "now": float, "change": float, "shrunken": float,
})  # fmt: skip
"""A prompt that changed by more than chance; `shrunken` is the change without its share of noise."""

AgainstDocument = TypedDict("AgainstDocument", {
    "version": Literal[2], "inputs": list[str], "against": list[str], "key": list[str], "worst": float, "best": float,
    "prompts": int, "only_now": Only, "only_before": Only, "rows": NowAndBefore, "solve_rate": Interval,
    "changes": list[Change], "better": int, "worse": int, "same": int, "solved_first": int, "solved_no_more": int,
    "flips": UpAndDown, "chance": Chance, "beyond_chance": bool, "by_difficulty": list[Band], "gained": list[Prompt],
    "lost": list[Prompt], "verdict": str, "warnings": list[str], "config": NotRequired[str],
})  # fmt: skip
"""What `inspect --against` shows."""

# --- inspect --rescored ------------------------------------------------------------------------------------

Sides = TypedDict("Sides", {"now": Number, "before": Number})
"""A number for each of the two rewards."""

Moved = TypedDict("Moved", {"now": Number, "before": Number, "change": Number})
"""The same with the relative change."""


class OneReward(Moments):
    """One of the two rewards."""

    columns: list[str]


TwoRewards = TypedDict("TwoRewards", {
    "now": OneReward, "before": OneReward, "changed": int, "up": int, "down": int, "mean_change": float,
    "changes": list[Change],
})  # fmt: skip
"""Both rewards of the rollouts that have both, and how many changed."""

Agreement = TypedDict("Agreement", {"same": int, "share": float, "kappa": Number, "rank_correlation": Number})
"""How often the rewards are the same; Cohen's kappa of two values, and Spearman's rank correlation."""

Flip = TypedDict("Flip", {"before": float, "now": float, "rows": int})
"""How many rollouts had one value, and now have the other."""

Gradients = TypedDict("Gradients", {"groups": int, "keys": list[str]})
"""How many groups have a gradient under a reward and not under the other, and the first of them."""

GroupsOfTwo = TypedDict("GroupsOfTwo", {
    "groups": int, "with_gradient": NowAndBefore, "gained": Gradients, "lost": Gradients,
})  # fmt: skip
"""Groups with a gradient under each reward."""

MovedAdvantages = TypedDict("MovedAdvantages", {
    "rows": int, "sign_changes": int, "first_signs": int, "lost_signs": int, "total": Moved, "moved": float, "method": str,
})  # fmt: skip
"""What the other reward does to the advantages; `moved` is the sum of the differences."""

SomeChanges = TypedDict("SomeChanges", {"rows": int, "changed": int, "up": int, "down": int, "mean_change": Number})
"""Rollouts, and how many of them changed."""


class ChangesAt(SomeChanges):
    """Rollouts of a step, and how many of them changed."""

    value: Any


class ChangesBetween(SomeChanges):
    """The same of lengths from `low` to `high`."""

    low: float
    high: float


ByLength = TypedDict("ByLength", {"column": str, "correlation": Number, "bands": list[ChangesBetween]})
"""How changes go with the length."""

ByStep = TypedDict("ByStep", {"column": str, "lines": list[ChangesAt]})
"""How changes go with the step."""

ByComponent = TypedDict("ByComponent", {"column": str, "differs": int | None, "correlation": Number})
"""How changes go with a component; `differs` is the number of rows where it changed itself."""

DependsOn = TypedDict("DependsOn", {
    "length": ByLength | None, "by": ByStep | None, "components": list[ByComponent] | None,
})  # fmt: skip
"""What changes go with."""

DisagreeingRow = TypedDict("DisagreeingRow", {
    "key": str, "number": int, "position": int, "file": str, "row": int, "before": float, "now": float, "advantage": Sides,
    "text": str | None,
})  # fmt: skip
"""A rollout whose rewards differ most."""

Pairing = TypedDict("Pairing", {"by": list[str], "key": list[str], "rows": int, "only": NowAndBefore})
"""How rollouts of two inputs were paired, and how many are in one of them only."""

RescoredDocument = TypedDict("RescoredDocument", {
    "version": Literal[1], "inputs": list[str], "rescored": list[str], "paired": Pairing | None, "rows": int,
    "compared": int, "unscored": NowAndBefore, "reward": TwoRewards, "agreement": Agreement, "flips": list[Flip] | None,
    "groups": GroupsOfTwo, "advantage": MovedAdvantages, "depends_on": DependsOn, "largest": list[DisagreeingRow],
    "verdict": str, "warnings": list[str], "config": NotRequired[str],
})  # fmt: skip
"""What `inspect --rescored` shows; nothing is paired where the other reward is a column of the same rows."""

# --- select and export -------------------------------------------------------------------------------------

Dropped = TypedDict("Dropped", {
    "reason": str, "groups": NotRequired[int], "rows": int, "keys": NotRequired[list[str]],
})  # fmt: skip
"""Rows that are left out for a reason; whole groups with the first of their keys."""


Chosen = TypedDict("Chosen", {
    "where": str | None, "rows": int, "groups": int, "dropped": list[Dropped], "outputs": list[str], "warnings": list[str],
    "seconds": float,
})  # fmt: skip
"""What a command wrote that chooses rows."""

Kept = TypedDict("Kept", {
    "seed": int | None, "kept_rows": int, "rollouts": int, "kept_rollouts": int, "kept_groups": int,
    "zero_variance_share": Number, "kept_zero_variance_share": Number,
})  # fmt: skip
"""What is kept of the rows."""


class SelectDocument(Run, Reading, Chosen, Kept):
    """The summary of `select`."""


Scale = TypedDict("Scale", {"worst": Number, "best": Number})
"""The rewards with the solve rates 0 and 1."""

Exported = TypedDict("Exported", {
    "to": Literal["sft", "pairs", "weights", "prompts", "tokens"], "texts": str, "plan": PlanFields | None, "records": int,
    "columns": list[str], "narrow_pairs": NotRequired[int], "pairs_over_limit": NotRequired[int],
    "groups_without_pair": NotRequired[int], "solved_at": NotRequired[Number], "scale": NotRequired[Scale | None],
})  # fmt: skip
"""Records; numbers of pairs with --to pairs, `solved_at` and `scale` with --to prompts."""


class ExportDocument(Run, Reading, Chosen, Exported):
    """The summary of `export`; numbers of pairs with --to pairs, `solved_at` and `scale` with --to prompts."""


# --- audit and compare -------------------------------------------------------------------------------------

Ranked = TypedDict("Ranked", {"name": str, "mismatched_rows": int, "typical_difference": Number, "plan": PlanFields})
"""A formula that was tried."""

Evidence = TypedDict("Evidence", {
    "mismatched_groups": int, "max_difference": Number, "tolerance": float, "near": bool, "decisive_rows": int,
    "verdict": Literal["match", "noise", "few", "nothing", "near", "none"], "equations": int, "constants": int,
    "weights": dict[str, float], "preset_names": list[str], "plain_method": str, "factor": float,
})  # fmt: skip
"""What an answer rests on."""


class Match(Ranked, Evidence):
    """The best of them, and what it rests on."""


Disagreement = TypedDict("Disagreement", {"key": str, "place": str, "rows": int, "expected": Number, "logged": Number})
"""A group that disagrees, by the first of its rows that does."""

Cause = TypedDict("Cause", {"cause": str, "says": str, "groups": int, "rows": int})
"""What explains groups that disagree."""

Differing = TypedDict("Differing", {"claimed": Any, "logged": Any})
"""A field in which the claim is not the formula that was found."""

Claim = TypedDict("Claim", {
    "mismatched_rows": int, "mismatched_groups": int, "max_difference": Number, "disagreements": list[Disagreement],
    "differs": dict[str, Differing],
})  # fmt: skip
"""How far the formula that was named is from what was logged."""

Audited = TypedDict("Audited", {
    "version": Literal[1], "inputs": list[str], "column": str, "rows": int, "groups": int, "notes": list[str],
    "match": Match, "ties": list[str], "tied_formulas": list[list[str]], "ranking": list[Ranked],
    "disagreements": list[Disagreement], "headline": str | None, "causes": list[Cause], "claim": Claim | None,
    "sampled_rows": int | None, "not_tried": dict[str, list[str]], "warnings": list[str],
})  # fmt: skip
"""Which formula made the advantages of some rows."""


class AuditDocument(Audited):
    """The result of `audit`."""

    config: NotRequired[str]


class AuditedPart(Audited):
    """That of the rows with a value of --plan-by."""

    value: str


@final
class AuditPartsDocument(RunOfParts):
    """The result of `audit --plan-by`."""

    parts: list[AuditedPart]


class PlanAdvantages(Moments):
    """The advantages of a plan."""

    rms: Number
    zero_share: Number
    missing: int


ComparedPlan = TypedDict("ComparedPlan", {"name": str, "plan": PlanFields, "advantage": PlanAdvantages})
"""A plan by the name that was given."""

Changes = TypedDict("Changes", {
    "rows": int, "changed": int, "sign_flips": int, "scale_ratio": Number, "mean_change": Number, "largest_change": Number,
})  # fmt: skip
"""How two columns of advantages differ."""


class OfSize(Changes):
    """The same in groups of a size."""

    size: int


class OfSolveRate(Changes):
    """The same in groups with such solve rates."""

    solve_rate: str


ChangedRow = TypedDict("ChangedRow", {"key": str, "place": str, "reward": Number, "first": float, "other": float})
"""A row that changes most."""


class Difference(Changes):
    """A plan against the first; `lost` rows have an advantage in only one of them."""

    name: str
    lost: int
    rank_correlation: Number
    correlation: Number
    largest: list[ChangedRow]
    by_size: list[OfSize]
    by_solve_rate: list[OfSolveRate] | None


CompareDocument = TypedDict("CompareDocument", {
    "version": Literal[1], "inputs": list[str], "rows": int, "groups": int, "notes": list[str],
    "plans": list[ComparedPlan], "against": str, "differences": list[Difference], "columns": NotRequired[dict[str, str]],
    "outputs": NotRequired[list[str]], "warnings": list[str], "config": NotRequired[str],
})  # fmt: skip
"""The result of `compare`; columns and outputs with --write."""

# --- verify, add, and the listings -------------------------------------------------------------------------

VerifyDocument = TypedDict("VerifyDocument", {
    "file": str, "against": str, "columns": list[str], "compared_by": Literal["bytes", "values"],
})  # fmt: skip
"""The result of `verify`."""

AddDocument = TypedDict("AddDocument", {
    "version": Literal[1], "inputs": list[str], "from": str, "schema": str | None, "rows": int, "columns": dict[str, str],
    "outputs": list[str], "warnings": list[str], "seconds": float, "config": NotRequired[str],
})  # fmt: skip
"""The summary of `add`."""

Need = TypedDict("Need", {"column": str, "flag": str})
"""A column that a plan reads, and its flag."""

NeedInWords = TypedDict("NeedInWords", {"column": str, "flag": str, "meaning": str})
"""The same with what the column is."""

Parameter = TypedDict("Parameter", {
    "name": str, "type": Literal["number", "whole number", "text", "true or false", "choice"], "default": Scalar,
    "help": str, "field": str, "least": Number, "above": Number, "most": Number, "choices": list[Scalar],
})  # fmt: skip
"""A parameter of a method."""

Method = TypedDict("Method", {
    "name": str, "origin": str, "summary": str, "formula": str, "doc": str, "source": str, "scale": str, "min_group": int,
    "scales": list[str], "levels": list[str], "needs": list[NeedInWords], "params": list[Parameter],
    "sets": dict[str, Any], "computes": list[str], "centred": bool, "order_free": bool, "uses_batch": bool,
    "spans_batches": bool, "example": str,
})  # fmt: skip
"""A method; `origin` is `built in`, or the package that brings it."""

Preset = TypedDict("Preset", {
    "name": str, "origin": str, "framework": str, "estimator": str, "options": dict[str, Any], "source": dict[str, str],
    "unequal_groups": str, "rollouts": Counting, "oddities": list[str], "refused": str | None, "archive": bool,
    "formula": NotRequired[list[str]], "rules": NotRequired[dict[str, list[str]]], "needs": NotRequired[list[Need]],
    "equal": NotRequired[list[str]], "equal_up_to_epsilon": NotRequired[list[str]], "plan": NotRequired[PlanFields],
})  # fmt: skip
"""A preset; of one that is refused there is no plan. `origin` is `built in`, a file, or a package."""

Schema = TypedDict("Schema", {
    "name": str, "origin": str, "title": str, "tool": str, "layout": str, "written by": str, "recognised": list[str],
    "read as": str, "batch": str, "rollout": str, "length": str, "logged": str, "no reward": list[str],
    "passed over": list[str], "note": str, "source": str,
})  # fmt: skip
"""A schema; `origin` is `built in`, or the package that brings it."""

Fit = TypedDict("Fit", {"schema": str, "score": int, "by": list[str], "against": list[str]})
"""How a schema fits a file."""

SchemaMatch = TypedDict("SchemaMatch", {
    "file": str, "schema": str | None, "because": list[str], "also": list[Fit], "nearly": list[Fit],
})  # fmt: skip
"""Which schema a file has, and why."""

# The documents of each command with --json, each by the name of its schema.
DOCUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "compute": {"compute": ComputeDocument, "compute-parts": ComputePartsDocument},
    "inspect": {
        "inspect": InspectDocument, "inspect-parts": InspectPartsDocument, "inspect-against": AgainstDocument,
        "inspect-rescored": RescoredDocument,
    },
    "select": {"select": SelectDocument},
    "export": {"export": ExportDocument},
    "audit": {"audit": AuditDocument, "audit-parts": AuditPartsDocument},
    "compare": {"compare": CompareDocument},
    "methods": {"methods": list[Method], "methods-one": Method},
    "presets": {"presets": list[Preset], "presets-one": Preset},
    "schemas": {"schemas": list[Schema], "schemas-one": Schema, "schemas-file": SchemaMatch},
    "verify": {"verify": VerifyDocument},
    "add": {"add": AddDocument},
}  # fmt: skip
