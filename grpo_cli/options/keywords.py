"""The keywords of the functions of `grpo_cli`, for editors and type checkers.

Made from the table of options: `python -m tests.support.keywords`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Switch = bool | None
Whole = int | None
Number = float | None
Text = str | None
Numbers = str | float | Sequence[float | None] | None  # "0:1" or (0, 1)
Several = str | Sequence[str] | Mapping[str, Any] | None
ExportTo = Literal["sft", "pairs", "labels", "groups", "weights", "prompts", "tokens"]


class SharedKeywords(TypedDict, total=False):
    """Every function takes them."""

    schema: Text
    schemas: Text
    group: Several
    group_size: Whole
    partial: Literal["keep", "drop"] | None
    expect_size: Whole
    group_within: Text
    batch_by: Text
    rollout: Text
    rollout_reward: Literal["first", "last", "mean", "each"] | None
    masked_column: Text
    left_out_column: Text
    rows: Several
    masked_rows: Literal["vote", "exclude"] | None
    reward: Several
    map: Several
    combine: Literal["sum", "normalize"] | None
    missing: Literal["error", "exclude", "zero", "as-zero", "propagate"] | None
    component_missing: Literal["skip", "zero", "propagate"] | None
    length_column: Text


class PlanKeywords(SharedKeywords, total=False):
    """All but `select` take them."""

    preset: Text
    presets: Text
    method: Text
    param: Several
    expr: Text
    set: Several
    scale: Literal["group", "batch", "none"] | None
    epsilon: Number
    ddof: Whole
    std_of: Literal["reward", "residual"] | None
    singleton: Literal["zero", "raw", "unit", "nan", "null", "drop", "error"] | None
    zero_variance: Literal["keep", "drop", "null"] | None
    std_threshold: Number
    min_group_size: Whole
    whiten: Literal["none", "sample", "token"] | None
    whiten_epsilon: Number
    clip: Numbers
    logprob_column: Text
    baseline_column: Text
    reference_column: Text
    kl_column: Text
    truncated_column: Text
    state_column: Text
    step_reward_column: Text
    role_column: Text
    input_length_column: Text
    turns_column: Text
    mask: Text
    token_logprobs: Text


class AuditKeywords(PlanKeywords, total=False):
    """Of `audit` and `compare`."""

    reward_shift: Number
    reward_scale: Number
    reward_clip: Numbers
    kl_coef: Number
    kl_from: Text
    kl_estimator: Literal["k1", "k2", "k3"] | None
    kl_reduce: Literal["sum", "mean"] | None
    overlong: Numbers


class ComputeKeywords(AuditKeywords, total=False):
    """Of `compute` and `advantages`."""

    plan_by: Text
    plans: Several
    per_token: Switch
    distill: Number
    tokens: Text
    prompt_tokens: Text
    token_logprobs: Text
    teacher_logprobs: Text


class InspectKeywords(PlanKeywords, total=False):
    """Of `inspect` and `report`."""

    by: Text
    top: Whole
    sort: Text
    text_column: Text
    duplicates: Switch
    pass_at: Text
    cluster: Text
    old_rewards_column: Text
    old_token_logprobs: Text
    token_entropy: Text


class SelectKeywords(SharedKeywords, total=False):
    """Of `select`."""

    where: Several
    solved_at: Number
    top: Whole
    by: Text
    top_p: Number
    top_p_slack: Number
    limit: Whole
    per_group: Whole
    pick: Literal["best", "worst", "spread", "random", "shortest"] | None
    control: Switch
    holdout: Number
    holdout_seed: Whole
    against: Several
    seed: Whole


class ExportKeywords(AuditKeywords, total=False):
    """Of `export`."""

    prompt: Text
    response: Text
    messages: Text
    form: Literal["messages", "turns", "raw"] | None
    target: Text
    keep: Several
    tools: Text
    pick: Literal["best", "all-above", "shortest"] | None
    min_reward: Number
    keep_duplicates: Switch
    per_group: Whole
    pairs: Literal["extremes", "adjacent", "all"] | None
    min_margin: Number
    max_pairs: Whole
    weight: Literal["exp", "softmax", "positive"] | None
    beta: Number
    max_weight: Number
    copies: Whole
    ratio_cap: Number
    pool: Switch
    solved_at: Number
    tokens: Text
    prompt_tokens: Text
    token_logprobs: Text
    old_token_logprobs: Text
    where: Several
    pass_at: Text
    against: Several
    limit: Whole
    control: Switch
    holdout: Number
    holdout_seed: Whole
    seed: Whole


class AddKeywords(TypedDict, total=False):
    """Of `add_columns`."""

    column: Several
    on: Several
    take: Literal["first", "last", "mean"] | None
    by_position: Switch
    schema: Text
    in_place: Switch
    force: Switch
    replace: Switch
    fail_on: Several
