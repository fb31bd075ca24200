"""How far the policy that is trained is from the one that sampled: from the log-probs of both at every token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Self

import numpy as np
import polars as pl

from grpo_cli.read.group_keys import encode
from grpo_cli.read.token_numbers import ESTIMATORS, TokenPart
from grpo_cli.stats.document import ABSENT, asked_by, members
from grpo_cli.stats.facts import Number, only_finite
from grpo_cli.stats.trends import in_order

FARTHEST = 300.0  # a larger log-ratio counts as this one: no sum of squares is infinite, and a gate sees it
CLIP = 0.2  # the epsilon of a clipped objective
# The share of tokens whose ratio is beyond these.
TAILS = {"ratio_above_1_2": 1 + CLIP, "ratio_above_2": 2.0, "ratio_below_0_8": 1 - CLIP, "ratio_below_0_5": 0.5}
QUANTILES = {"ratio_p1": 0.01, "ratio_p5": 0.05, "ratio_median": 0.5, "ratio_p95": 0.95, "ratio_p99": 0.99}
MOST = 128  # values of a column that quantiles are counted for
# A log-ratio is counted by its sign, its exponent and 6 bits of its mantissa: the middle of a bin is within 0.8 % of it.
_SHIFT = 17
_BINS = 1 << (32 - _SHIFT)
with np.errstate(invalid="ignore"):  # bins of NaN are empty, and come last
    _MIDDLES: Final = (
        ((np.arange(-_BINS // 2, _BINS // 2, dtype=np.int32) << _SHIFT) + (1 << _SHIFT - 1))
        .view(np.float32)
        .astype(float)
    )
_ORDER = np.argsort(_MIDDLES)
Bins = dict[tuple[str, int], np.ndarray]  # how many tokens are in each bin, by column and code of their row


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Of some tokens. A ratio is exp(new - old), the probability of a token that is trained over the one that sampled it.

    k1, k2 and k3 estimate KL(old, new). The shares are of all tokens: `clipped_above` have A > 0 and a ratio above 1.2,
    `clipped_below` have A < 0 and one below 0.8. The sizes are shares, too: (sum w)^2 / sum w^2 over the number of weights,
    which are the ratios of tokens, or of whole sequences.
    """

    rows: int  # with log-probs of both policies for at least one token that the mask counts
    tokens: int  # of these rows that the mask counts; means and shares are over these tokens
    k1: Number  # the mean of old - new log-prob, an estimate of KL(old, new) that may be negative
    k2: Number  # the mean of (old - new)^2 / 2, a biased estimate of KL(old, new)
    k3: Number  # the mean of ratio - 1 - log ratio, an estimate of KL(old, new) that is never negative
    ratio_mean: Number  # the mean importance ratio of a token
    ratio_p1: Number = None  # 1 % of the tokens have a ratio up to this; absent if the column has more than 128 values
    ratio_p5: Number = None  # 5 % of the tokens have a ratio up to this; absent if the column has more than 128 values
    # half of the tokens have a ratio up to this; absent if the column has more than 128 values
    ratio_median: Number = None
    # 95 % of the tokens have a ratio up to this; absent if the column has more than 128 values
    ratio_p95: Number = None
    # 99 % of the tokens have a ratio up to this; absent if the column has more than 128 values
    ratio_p99: Number = None
    ratio_above_1_2: Number  # the share of tokens with a ratio above 1.2
    ratio_above_2: Number  # the share of tokens with a ratio above 2
    ratio_below_0_8: Number  # the share of tokens with a ratio below 0.8
    ratio_below_0_5: Number  # the share of tokens with a ratio below 0.5
    clipped_above: Number  # the share of tokens that have A > 0 and a ratio above 1.2, which a clip of 0.2 cuts
    clipped_below: Number  # the share of tokens that have A < 0 and a ratio below 0.8, which a clip of 0.2 cuts
    token_ess: Number  # effective sample size of the ratios of tokens, as a share of the tokens
    # effective sample size of the ratios of rows, exp of the sum of new - old, as a share of the rows
    sequence_ess: Number
    # the mean of the entropies of tokens; absent without a column of them
    entropy: Number = field(default=None, metadata=asked_by("--token-entropy", "COL"))
    value: Any = ABSENT  # of the column that the rows are divided by


# Those of a table, and the short names of a gate.
NUMBERS = [name for name in members(Drift) if name not in {"value", "rows"}]


@dataclass(frozen=True)
class DriftTrend:
    """By the values of a column."""

    column: str  # whose values divide the rows
    lines: Sequence[Drift]  # one for each value that has tokens, in order


@dataclass(frozen=True)
class OffPolicy:
    """Of all rows, and by the step and the version of the policy; `missing` rows have no log-probs."""

    columns: Mapping[str, str]  # the columns of the log-probs, of the entropy and of the mask, by option
    missing: int  # rows that lack one of these lists; rows that are left out of their groups are not counted
    all: Drift  # over all rows that have the lists
    # by the column of --by or the step, and by the version of the policy; empty without these columns
    by: Sequence[DriftTrend]


class Counted(NamedTuple):
    """Sums over the tokens of each row, and how many tokens have a log-ratio in each bin, by column and code of their row."""

    sums: pl.DataFrame
    bins: Bins

    @classmethod
    def of(cls, part: TokenPart, columns: Mapping[str, str], codes: Mapping[str, pl.Series]) -> Self:
        """Those of a part. `codes` has columns of all rows."""
        logprobs = part.values[columns["token_logprobs"]]
        log_ratio = np.clip(logprobs - part.values[columns["old_token_logprobs"]], -FARTHEST, FARTHEST)
        ratio = np.expm1(log_ratio) + 1
        each: dict[str, np.ndarray] = {name: estimate(-log_ratio) for name, estimate in ESTIMATORS.items()}
        each |= {name: ratio > at if at > 1 else ratio < at for name, at in TAILS.items()}
        each |= {"ratio_mean": ratio, "square": ratio * ratio, "zero": logprobs == 0}
        if "token_entropy" in columns:
            each["entropy"] = part.values[columns["token_entropy"]]
        sums = {name: part.sums(values) for name, values in each.items()}
        bins = _in_bins(log_ratio, part, codes)
        return cls(pl.DataFrame({"row": part.rows, "tokens": part.sizes, **sums}), bins)

    @classmethod
    def merged(cls, parts: Iterable[Self]) -> Self:
        """Those of all rows of the parts."""
        tables = []
        bins = Bins()
        for sums, counted in parts:
            tables.append(sums)
            for key, counts in counted.items():
                bins[key] = bins[key] + counts if key in bins else counts
        return cls(pl.concat(tables), bins)


def _in_bins(log_ratio: np.ndarray, part: TokenPart, codes: Mapping[str, pl.Series]) -> Bins:
    """How many tokens of the part have a log-ratio in each bin, for each column and code of their row."""
    bits = log_ratio.astype(np.float32).view(np.int32)
    own = (bits >> _SHIFT) + _BINS // 2
    bins = Bins()
    for name, coded in codes.items():
        here, inside = np.unique(coded.gather(part.rows), return_inverse=True)
        keys = own if len(here) < 2 else own + np.repeat(inside * _BINS, part.sizes)  # noqa: PLR2004
        counted = np.bincount(keys, minlength=len(here) * _BINS).reshape(-1, _BINS)
        for code, counts in zip(here.tolist(), counted, strict=True):
            bins[name, code] = counts
    return bins


def off_policy(
    reduced: Callable[..., Counted],
    columns: Mapping[str, str],
    asked: int,
    advantages: pl.Series,
    by: Mapping[str, pl.Series],
) -> OffPolicy | None:
    """The facts of `asked` rows, whose parts are counted by `reduced`; None if no token has a log-prob but 0.

    NeMo-RL writes 0 where it computes none. `advantages` and the columns of `by` have all rows.
    """
    columns_by = {"": pl.zeros(len(advantages), eager=True), **by}
    coded = {name: encode([values]) for name, values in columns_by.items()}
    codes = {name: known.codes for name, known in coded.items() if known.size <= MOST}
    sums, bins = reduced(partial(Counted.of, columns=columns, codes=codes), Counted.merged)
    table = sums.filter(pl.col("tokens") > 0)
    if table["zero"].sum() == table["tokens"].sum():
        return None
    sign = advantages.gather(table["row"]).fill_null(0.0).sign()
    above = pl.col("ratio_above_1_2") * (sign > 0)
    below = pl.col("ratio_below_0_8") * (sign < 0)
    table = table.with_columns(clipped_above=above, clipped_below=below)
    trends = []
    for name, known in coded.items():
        found = _drifts(table.with_columns(code=known.codes.gather(table["row"])))
        if name in codes:
            counts = np.stack([bins[name, code] for code in found["code"]])
            found = _with_quantiles(found, counts)
        values = columns_by[name].gather(known.first).gather(found["code"])
        trends.append(DriftTrend(name, _lines(found, values, named=name != "")))
    every, *trends = trends
    return OffPolicy(columns, asked - len(sums), every.lines[0], trends)


def _lines(found: pl.DataFrame, values: pl.Series, *, named: bool) -> list[Drift]:
    """The facts for each value, in the order of the values; with its value if it is `named`."""
    lines = only_finite(found.drop("code")).to_dicts()
    drifts = []
    for at in in_order(values):
        value = {"value": values[at]} if named else {}
        drifts.append(Drift(**lines[at], **value))
    return drifts


def _drifts(table: pl.DataFrame) -> pl.DataFrame:
    """The facts for each code, without quantiles."""
    tokens = pl.col("tokens").sum()
    names = pl.exclude("row", "code", "tokens", "square", "zero")
    log_weight = -pl.col("k1")
    weight = (log_weight - log_weight.max()).exp()
    sequences = weight.sum() ** 2 / (weight**2).sum()
    return table.group_by("code", maintain_order=True).agg(
        names.sum() / tokens,
        pl.col("tokens").sum(),
        rows=pl.len(),
        token_ess=pl.col("ratio_mean").sum() ** 2 / (pl.col("square").sum() * tokens),
        sequence_ess=sequences / pl.len(),
    )


def _with_quantiles(found: pl.DataFrame, counts: np.ndarray) -> pl.DataFrame:
    """The facts with quantiles of the ratio: `counts` has a row of bins for each line."""
    below = counts[:, _ORDER].cumsum(axis=1)
    middles = _MIDDLES[_ORDER]
    for name, share in QUANTILES.items():
        first = (below >= share * below[:, -1:]).argmax(axis=1)
        found = found.with_columns(pl.Series(name, np.exp(middles[first])))
    return found
