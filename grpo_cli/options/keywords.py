"""The keywords of the functions of `grpo_cli`, for editors and type checkers.

Made from the table of options: `python -m tests.support.keywords`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Numbers = str | float | Sequence[float | None]  # "0:1" or (0, 1)
Several = str | Sequence[str] | Mapping[str, Any]


class SharedKeywords(TypedDict, total=False):
    """Every function takes them."""

    schema: str | None
    schemas: str | None
    group: Several | None
    group_size: int | None
    partial: Literal["keep", "drop"] | None
    expect_size: int | None
    group_within: str | None
    batch_by: str | None
    rollout: str | None
    rollout_reward: Literal["first", "last", "mean", "each"] | None
    masked_column: str | None
    left_out_column: str | None
    masked_rows: Literal["vote", "exclude"] | None
    reward: Several | None
    map: Several | None
    combine: Literal["sum", "normalize"] | None
    missing: Literal["error", "exclude", "zero", "as-zero", "propagate"] | None
    component_missing: Literal["skip", "zero", "propagate"] | None
    length_column: str | None


class PlanKeywords(SharedKeywords, total=False):
    """All but `select` take them."""

    preset: str | None
    presets: str | None
    method: str | None
    param: Several | None
    expr: str | None
    set: Several | None
    scale: Literal["group", "batch", "none"] | None
    epsilon: float | None
    ddof: int | None
    std_of: Literal["reward", "residual"] | None
    singleton: Literal["zero", "raw", "unit", "nan", "null", "drop", "error"] | None
    zero_variance: Literal["keep", "drop", "null"] | None
    std_threshold: float | None
    min_group_size: int | None
    whiten: Literal["none", "sample", "token"] | None
    whiten_epsilon: float | None
    clip: Numbers | None
    logprob_column: str | None
    baseline_column: str | None
    reference_column: str | None
    kl_column: str | None
    truncated_column: str | None
    state_column: str | None
    step_reward_column: str | None
    role_column: str | None
    input_length_column: str | None
    turns_column: str | None


class CompareKeywords(PlanKeywords, total=False):
    """Of `compare`."""

    reward_shift: float | None
    reward_scale: float | None
    reward_clip: Numbers | None
    kl_coef: float | None
    overlong: Numbers | None


class ComputeKeywords(CompareKeywords, total=False):
    """Of `compute`, `advantages` and `audit`."""

    plan_by: str | None
    plans: Several | None


class InspectKeywords(PlanKeywords, total=False):
    """Of `inspect` and `report`."""

    by: str | None
    top: int | None
    sort: str | None
    text_column: str | None
    duplicates: bool | None
    cluster: str | None
    rescored_column: str | None
    pass_at: str | None
    plan_by: str | None
    plans: Several | None


class SelectKeywords(SharedKeywords, total=False):
    """Of `select`."""

    where: Several | None
    solved_at: float | None
    top: int | None
    by: str | None
    top_p: float | None
    top_p_slack: float | None
    limit: int | None
    per_group: int | None
    pick: Literal["best", "worst", "spread", "random"] | None
    seed: int | None


class ExportKeywords(CompareKeywords, total=False):
    """Of `export`."""

    prompt: str | None
    response: str | None
    messages: str | None
    pick: Literal["best", "all-above"] | None
    min_reward: float | None
    keep_duplicates: bool | None
    per_group: int | None
    pairs: Literal["extremes", "adjacent", "all"] | None
    min_margin: float | None
    max_pairs: int | None
    weight: Literal["exp", "softmax", "positive"] | None
    beta: float | None
    max_weight: float | None
    pool: bool | None
    pass_at: str | None
    solved_at: float | None
    tokens: str | None
    mask: str | None
    prompt_tokens: str | None
    where: Several | None
    limit: int | None
    seed: int | None


class AddKeywords(TypedDict, total=False):
    """Of `add_columns`."""

    column: Several | None
    on: Several | None
    take: Literal["first", "last", "mean"] | None
    by_position: bool | None
    schema: str | None
    in_place: bool | None
    force: bool | None
    replace: bool | None
    fail_on: Several | None
