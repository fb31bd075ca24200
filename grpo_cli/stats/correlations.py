"""What rewards go together with: the length of the response; and which responses of a group are the same."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.read.group_keys import encode
from grpo_cli.stats.facts import plain

LENGTHS: Final = (
    "length", "response_length", "completion_length", "output_length", "num_output_tokens", "completion_tokens",
    "response_tokens", "output_tokens", "num_tokens", "seqlen",
)  # fmt: skip
TEXTS: Final = (
    "completion", "response", "output", "completion_text", "response_text", "output_response", "llm_completion_raw",
    "answer_text", "generation", "text", "content",
)  # fmt: skip
PROMPTS: Final = ("prompt", "question", "problem", "input", "instruction", "prompt_text", "input_prompt")
ADVANTAGES: Final = ("advantage", "advantages")


def as_lengths(values: pl.Series) -> pl.Series | None:
    """A column as lengths, where it holds numbers."""
    return values.cast(pl.Float64).alias("length") if values.dtype.is_numeric() else None


def with_length(rows: pl.DataFrame, ends: tuple[float | None, float | None]) -> dict[str, Any]:
    """How the reward goes with the length, over all rows and inside the groups, where hard prompts count for nothing.

    `rows` has `.reward`, `.mean` (of the group) and `length`. The mean lengths are those of rows with the best and the
    worst reward; both are null where such rewards do not occur.
    """
    known = rows.filter(pl.col(".reward").is_finite() & pl.col("length").is_finite())
    reward, length = known[".reward"].to_numpy(), known["length"].to_numpy()
    inside = reward - known[".mean"].to_numpy()
    codes = known["group"].to_numpy()
    own = length - _means(codes, length, int(codes.max(initial=0)) + 1)[codes]
    worst, best = ends
    return {
        "rows": len(known),
        "mean": plain(float(length.mean())) if len(length) else None,
        "correlation": correlation(reward, length),
        "within_groups": correlation(inside, own),
        "best": _mean(length[reward == best]) if best != worst else None,
        "worst": _mean(length[reward == worst]) if best != worst else None,
    }


def correlation(one: Any, other: Any) -> float | None:
    """Pearson's correlation; none where one of them does not vary."""
    if len(one) < 2 or one.min() == one.max() or other.min() == other.max():  # noqa: PLR2004 - two points make a line
        return None
    x, y = one - one.mean(), other - other.mean()
    size = float(np.sqrt((x * x).sum())) * float(np.sqrt((y * y).sum()))
    return plain(min(1.0, max(-1.0, float((x * y).sum()) / size))) if size else None


def group_means(codes: pl.Series, values: pl.Series, groups: int) -> pl.Series:
    """The mean of the finite values of each group; null where it has none."""
    known = values.is_finite().fill_null(value=False).to_numpy()
    means = _means(codes.to_numpy()[known], values.to_numpy()[known], groups)
    return pl.Series("length", means).fill_nan(None)


def _means(codes: Any, values: Any, groups: int) -> Any:
    n = np.bincount(codes, minlength=groups)
    with np.errstate(invalid="ignore"):
        return np.bincount(codes, weights=values, minlength=groups) / n


def _mean(values: Any) -> float | None:
    return float(values.mean()) if len(values) else None


def duplicates(codes: pl.Series, texts: pl.Series) -> dict[str, Any]:
    """How many responses repeat an earlier one of their group, in how many groups; a missing text is like no other."""
    known = texts.is_not_null()
    codes, texts = codes.filter(known), texts.filter(known)
    distinct = encode([codes, texts], len(codes))
    owners = codes.gather(distinct.first)
    kinds = np.bincount(owners.to_numpy()) if len(owners) else np.zeros(0, np.int64)
    sizes = np.bincount(codes.to_numpy()) if len(codes) else np.zeros(0, np.int64)
    repeated = sizes - kinds
    return {
        "rows": int(len(codes) - distinct.size),
        "share": (len(codes) - distinct.size) / len(codes) if len(codes) else None,
        "groups": int((repeated > 0).sum()),
        "all_the_same": int(((kinds == 1) & (sizes > 1)).sum()),
    }
