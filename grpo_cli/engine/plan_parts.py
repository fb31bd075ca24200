"""The parts of a Plan: frozen, each valid on its own, with the defaults of the tool.

`unit`, `rewards`, `divisor`, `alone`, `groups`, `weight` and `distill` have fields; `shape` and `post` are ordered operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from grpo_cli.errors import UsageError, Way

Level = Literal["none", "group", "batch", "constant"]
# How the rows of a rollout count if the plan does not say: once if their rewards are equal, by the first, the last or
# their mean, or each; "none" does not look for rollouts.
Counting = Literal["once", "first", "last", "mean", "each", "none"]
# Whether rows that are marked as masked or failed count in their groups; "": as the tool that wrote the file treats them.
MaskedRows = Literal["", "vote", "exclude"]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What counts as one reward: every row, or one per rollout (copied back to its rows).

    `states`: where the step part looks for steps that start from the same state.
    """

    # each: every row counts; else a rollout counts once, with its first or last reward or their mean
    take: Literal["each", "first", "last", "mean"] = "each"
    per_step: bool = False  # whether the advantage is divided by the number of rows of its rollout
    # what the step part, G - mean G divided as `divisor` says, is multiplied by; 0: there is none
    state_weight: float = 0.0
    gamma: float = 0.95  # discount of the step part: G = step reward + gamma G of the rollout's next step
    # whether a step is compared with steps from the same state in its group or in the whole batch
    states: Literal["group", "batch"] = "group"


@dataclass(frozen=True, kw_only=True)
class Rewards:
    """How reward columns become one reward, and what a missing reward means."""

    weights: tuple[float, ...] = ()  # what each reward column is multiplied by, in their order; empty: 1
    # sum: one advantage from the weighted sum; normalize: one per column, and their weighted sum (GDPO)
    combine: Literal["sum", "normalize"] = "sum"
    # of several rewards one is missing: sum the others, count it as 0, or take it that the row has no reward
    component_missing: Literal["skip", "zero", "propagate"] = "skip"
    # a row has no finite reward: stop, leave it out (null), leave it out with A = 0, count it as 0, or spread NaN
    missing: Literal["error", "exclude", "zero", "as-zero", "propagate"] = "error"


def weighted_sum(names: Sequence[str], weights: Sequence[float]) -> str:
    """The sum of these names with their weights; if there are none, all are 1.

    >>> weighted_sum(["accuracy", "format", "length"], [1.0, 0.5, -0.1])
    'accuracy + 0.5 format - 0.1 length'
    """
    text = ""
    for name, weight in zip(names, weights or (1.0,) * len(names), strict=True):
        sign = "-" if weight < 0 else "+"
        if text:
            text += f" {sign} "
        elif weight < 0:
            text = sign
        size = abs(weight)
        text += name if size == 1 else f"{size:.12g} {name}"
    return text


class Op:
    """An operation: its name in a plan, and the columns that it reads."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, kw_only=True)
class Affine(Op):
    """r becomes (r + shift) * scale."""

    name = "affine"
    shift: float = 0.0  # added to r first
    scale: float = 1.0  # what the sum is multiplied by


@dataclass(frozen=True, kw_only=True)
class Clip(Op):
    """Values below `lo` become `lo`, values above `hi` become `hi`."""

    name = "clip"
    lo: float | None = None  # the lower bound; None: there is none
    hi: float | None = None  # the upper bound; None: there is none

    def __post_init__(self) -> None:
        if self.lo is not None and self.hi is not None and self.lo > self.hi:
            raise UsageError(f"clip {self.lo:g}:{self.hi:g} is empty", "the lower bound comes first")


@dataclass(frozen=True, kw_only=True)
class Kl(Op):
    """r becomes r - coef * kl, kl being the sum over the response's tokens."""

    name = "kl"
    needs = ("kl",)
    coef: float = 0.0  # what one nat of KL costs; a negative one rewards it


@dataclass(frozen=True, kw_only=True)
class Overlong(Op):
    """DAPO's soft penalty: r += min(-(L - (max - buffer)) / buffer * penalty, 0).

    Beyond `max` most frameworks let it grow (linear), one stops at -penalty (floor), one sets r to 0 (zero).
    """

    name = "overlong"
    needs = ("length",)
    max: float = 0.0  # length at which all of `penalty` is subtracted
    buffer: float = 1.0  # the length below `max` over which the loss grows from 0 to `penalty`
    penalty: float = 1.0  # what is subtracted from r where the length is `max`
    # above `max` the loss keeps growing (linear), stays at `penalty` (floor), or r is 0 (zero)
    beyond: Literal["linear", "floor", "zero"] = "linear"

    def __post_init__(self) -> None:
        if not 0 < self.buffer <= self.max:
            wrong = f"overlong {self.max:g}:{self.buffer:g}:{self.penalty:g} is out of range"
            raise UsageError(wrong, "MAX:BUFFER:PENALTY with 0 < BUFFER <= MAX")


@dataclass(frozen=True, kw_only=True)
class Truncated(Op):
    """r becomes r * factor where the response was cut off."""

    name = "truncated"
    needs = ("truncated",)
    factor: float = 0.0  # what the reward of a cut response is multiplied by; 1: nothing changes


@dataclass(frozen=True, kw_only=True)
class Length(Op):
    """r becomes r - mean * (output L/max L + input I/max I + turns T/max T), maxima and mean of the group."""

    name = "length"
    needs = ("length",)
    # share of the group's mean reward that is subtracted for the longest response; for others in proportion
    output: float = 0.25
    # share of the mean that is subtracted where the input is longest; elsewhere in proportion to the input
    input: float = 0.1
    # share of the mean that is subtracted where the turns are most; elsewhere in proportion to their number
    turns: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Rank(Op):
    """r becomes r * (1 - penalty * rank / n): likely responses (high log-prob) lose most.

    With `numerator = raw`, only mean and std come from the penalised rewards; the numerator keeps the raw reward.
    """

    name = "rank"
    needs = ("logprob",)
    penalty: float = 0.25  # times rank / n is the share of r that is lost; the rank goes from 0 (least likely) to n - 1
    # the reward that the group's mean is subtracted from: the penalised one (shaped) or the one before (raw)
    numerator: Literal["shaped", "raw"] = "shaped"


@dataclass(frozen=True, kw_only=True)
class Binary(Op):
    """r becomes 1 where r > threshold, else 0."""

    name = "binary"
    threshold: float = 0.5  # the reward must be above it to count as 1


@dataclass(frozen=True, kw_only=True)
class Divisor:
    """What the residual is divided by: sqrt(max(var + inside, floor)) + epsilon.

    With `measure = mad` it is the mean absolute deviation of the group + epsilon. A spread that is NaN or not above `least`
    makes the advantage 0.
    """

    level: Level = "group"  # what divides: the spread of the group or of the batch, a constant, or nothing (none)
    # spread of the rewards, of the residuals (reward - baseline), or of the group's other rewards
    of: Literal["reward", "residual", "others"] = "reward"
    measure: Literal["std", "mad"] = "std"  # standard deviation, or mean absolute deviation (mad)
    # the variance is the sum of squares over n - ddof; it also counts in the std of groups that is reported
    ddof: int = 1
    inside: float = 0.0  # added to the variance under the root
    floor: float = 0.0  # the least value under the root: sqrt(max(var + inside, floor))
    epsilon: float = 1e-6  # added to the std or the mad, outside the root; not to a constant
    only_positive: bool = False  # whether a residual stays undivided where the divisor is not above epsilon
    least: float | None = None  # A is 0 where the spread is NaN or not above this; None: there is no such bound
    constant: float = 1.0  # what divides if the level is constant

    def __post_init__(self) -> None:
        _refuse_other_ddof("divisor", self.ddof)
        if self.of == "others" and self.level != "group":
            raise UsageError("the spread of the others is a group quantity", Way("--scale", "group", lead="use"))
        if self.measure == "mad" and (self.level == "batch" or self.of == "others"):
            raise UsageError(
                "the mean absolute deviation is that of a group's own rewards", Way("--scale", "group", lead="use")
            )
        if self.constant == 0:
            raise UsageError("divisor.constant cannot be 0", Way("--scale", "none", "skips the division"))
        bounds = {"inside": self.inside, "floor": self.floor, "epsilon": self.epsilon, "least": self.least}
        _refuse_negative("divisor", bounds)


def _refuse_other_ddof(part: str, ddof: int) -> None:
    """Refuse a ddof that no std has: one as large as a group or batch would leave its variance undefined."""
    if ddof not in {0, 1}:
        raise UsageError(f"{part}.ddof cannot be {ddof}", "torch.std is 1, numpy.std is 0")


def _refuse_negative(part: str, bounds: Mapping[str, float | None]) -> None:
    """Refuse a negative summand or bound of a divisor."""
    for name, value in bounds.items():
        if value is not None and value < 0:
            raise UsageError(f"{part}.{name} cannot be negative", "it keeps the divisor above zero")


@dataclass(frozen=True, kw_only=True)
class Alone:
    """What a group with one scorable row gets.

    `baseline`: its own reward (residual 0), zero (usually residual r) or what the formula gives; `sd` replaces its std in
    a divisor; `result` keeps that value or replaces it.
    """

    # what its reward is compared with: itself (residual 0), a mean of 0, or what the formula gives
    baseline: Literal["own", "zero", "formula"] = "own"
    sd: Literal["zero", "one", "nan"] = "one"  # taken for its std in a divisor, before epsilon is added
    # keep: what was computed; else it is replaced by the reward, 0, NaN or null, the row dropped, or the run stopped
    result: Literal["keep", "raw", "zero", "nan", "null", "drop", "error"] = "zero"


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Which groups are trained on: how constant groups (max == min, or std <= threshold) and small groups are treated.

    `statistics`: whether skipped groups count in the std of the batch. (Whitening counts what is left.)
    """

    # what groups of equal rewards get: the computed value (keep), null, or their rows are dropped
    zero_variance: Literal["keep", "drop", "null"] = "keep"
    # groups with a std up to this count as groups of equal rewards; None: only equal rewards do
    std_threshold: float | None = None
    min_size: int = 1  # the fewest scored rows of a group that is trained on
    # what groups with fewer scored rows get: null, 0, or their rows are dropped
    small: Literal["null", "zero", "drop"] = "null"
    # whether all groups or only the kept ones count in the std of the batch, and in weights over the batch
    statistics: Literal["all", "kept"] = "all"

    def __post_init__(self) -> None:
        if self.min_size < 1:
            raise UsageError(f"the smallest group cannot have {self.min_size} rows", "--min-group-size takes 1 or more")
        if self.std_threshold is not None and self.std_threshold < 0:
            raise UsageError(f"a std is never <= {self.std_threshold:g}", "--std-threshold takes 0 or more")


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A factor for all rows of a group, computed from its solve rate p or from all groups of the batch.

    p is the mean reward after shaping, clipped to 0..1, or with `solved` the share of rewards before shaping that are at
    least that.
    `peak`: exp(-sharpness KL(p || peak)), largest where p = peak. `pass-at-k`: k (1 - p)^(k - 1), large where p is small.
    `std`: its std over the largest std of the batch. `hard`: exp(-m / temperature) over its mean in the batch, m being the
    mean of the first reward column; only groups with a spread count, and an m of 0 counts as 1.
    """

    by: Literal["none", "peak", "pass-at-k", "std", "hard"] = "none"  # which factor; none: 1
    solved: float | None = None  # least reward before shaping that counts as solved in p; None: p is the mean reward
    peak: float = 0.5  # the solve rate whose groups get the factor 1, the largest
    sharpness: float = 1.0  # how fast the factor falls away from the peak; 0: all groups get 1
    k: int = 2  # size of the sets in k (1 - p)^(k - 1); 1: all groups get 1
    temperature: float = 2.0  # divides m in exp(-m / temperature): the larger, the closer the factors are to 1

    def __post_init__(self) -> None:
        if not 0 < self.peak < 1:
            raise UsageError(f"weight.peak cannot be {self.peak:g}", "it is a solve rate between 0 and 1")
        if self.sharpness < 0:
            raise UsageError(f"weight.sharpness cannot be {self.sharpness:g}", "0 weighs all groups the same")
        if self.k < 1:
            raise UsageError(f"weight.k cannot be {self.k}", "it is the size of the sets, 1 or more")
        if self.temperature <= 0:
            raise UsageError(f"weight.temperature cannot be {self.temperature:g}", "give more than 0")


@dataclass(frozen=True, kw_only=True)
class Whiten:
    """Subtract the batch mean and divide by the batch spread; each row (or each token) counts once.

    `masked`: whether masked rows count. By level, they do unless tokens are counted: trainers count those of the loss mask.
    """

    name: ClassVar[str] = "whiten"  # its `op` in a plan
    # whether each row or each token of the batch counts once in the mean and the variance
    level: Literal["sample", "token"] = "sample"
    divide: bool = True  # false: only the mean is subtracted
    ddof: int = 1  # the variance is the sum of squares over n - ddof, n the number of rows or tokens
    inside: float = 1e-8  # added to the variance of the batch under the root
    floor: float = 0.0  # the least value under the root: sqrt(max(var + inside, floor))
    epsilon: float = 0.0  # added to the root of the variance
    # whether masked rows count in the mean and the variance; by-level: with sample they do, with token not
    masked: Literal["by-level", "count", "skip"] = "by-level"

    def __post_init__(self) -> None:
        _refuse_other_ddof("post.whiten", self.ddof)
        _refuse_negative("post.whiten", {"inside": self.inside, "floor": self.floor, "epsilon": self.epsilon})

    @property
    def skips_masked(self) -> bool:
        """Whether masked rows do not count in its mean and spread."""
        return self.masked == "skip" or (self.masked == "by-level" and self.level == "token")

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return ("length",) if self.level == "token" else ()


@dataclass(frozen=True, kw_only=True)
class ByLength(Op):
    """A becomes A * L / max: long responses count more."""

    name = "length"
    needs = ("length",)
    max: float = 1.0  # the length at which A does not change

    def __post_init__(self) -> None:
        if self.max <= 0:
            raise UsageError(f"post.length.max cannot be {self.max:g}", "it is the length at which A does not change")


@dataclass(frozen=True, kw_only=True)
class Discount(Op):
    """A becomes A + gamma times the new A of the next row of the rollout: turns are rows, in the order of the file."""

    name = "discount"
    needs = ("rollout",)
    gamma: float = 1.0  # what the next row's new A is multiplied by; 1: no discount


@dataclass(frozen=True, kw_only=True)
class NanToZero(Op):
    """Advantages that are null or NaN become 0."""

    name = "nan_to_zero"


@dataclass(frozen=True, kw_only=True)
class Distill:
    """What a teacher changes on each token of a response, d being its log-probability minus that of the student.

    `add`: A + coef d. `reweight`: A ((1 - coef) + coef clip(exp(sign(A) d), 1 - clip, 1 + clip)); with `negative_only` where
    A < 0. `clamp`: d is first cut to -clamp..clamp. A coef of 0 changes nothing.
    """

    coef: float = 0.0  # add: what d is multiplied by; reweight: the share of the factor, 0 to 1; 0: no change
    form: Literal["add", "reweight"] = "add"  # whether A gets a summand or a factor on each token
    clamp: float | None = None  # the largest |d| that counts; None: d is not cut
    clip: float = 0.2  # reweight: how far the ratio exp(sign(A) d) may be from 1
    negative_only: bool = False  # reweight: whether only tokens with A < 0 change

    def __post_init__(self) -> None:
        if self.form == "reweight" and not 0 <= self.coef <= 1:
            raise UsageError(f"distill.coef cannot be {self.coef:g}", "a factor is mixed with 1: give 0 to 1")
        if self.clip < 0 or (self.clamp is not None and self.clamp < 0):
            wrong = "distill.clip and distill.clamp cannot be negative"
            raise UsageError(wrong, "they bound a distance: give 0 or more")


ShapeOp = Affine | Clip | Kl | Overlong | Truncated | Length | Rank | Binary
PostOp = ByLength | Clip | Whiten | NanToZero | Discount
# The order in which operations given by flags are applied; a preset may list its own order.
SHAPE: Final[Mapping[str, type]] = {op.name: op for op in (Affine, Clip, Kl, Overlong, Truncated, Length, Rank, Binary)}
POST: Final[Mapping[str, type]] = {op.name: op for op in (ByLength, Clip, Whiten, NanToZero, Discount)}
PARTS: Final[Mapping[str, type]] = {
    "unit": Unit,
    "rewards": Rewards,
    "divisor": Divisor,
    "alone": Alone,
    "groups": Groups,
    "weight": Weight,
    "distill": Distill,
}
ORDERED: Final[Mapping[str, Mapping[str, type]]] = {"shape": SHAPE, "post": POST}
