"""Twinkle's advantage classes: the same call, the same rules, the engine's numbers.

    advantages = GRPOAdvantage()(rewards, num_generations=4, scale="group")

Lists, numpy arrays and torch tensors come back as what they were; torch is never imported unless a tensor
comes in. Differences from Twinkle, all of them on purpose: float64 inside, so a constant group gives exactly
0 (its float32 gives up to 6); a list gives a list; an infinite reward counts as NaN; an unknown keyword is an
error and not ignored. The keywords are those of Trinity's `GRPOGroupedAdvantage` and of Twinkle's newer files,
see `Options`.

Source: modelscope/twinkle src/twinkle/advantage/{grpo,rloo}.py@1a1d8845; {_utils,reinforce_plus_plus}.py@d4ec2a61,
newer than any release; Trinity-RFT trinity/algorithm/advantage_fn/grpo_advantage.py@9051d637.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from operator import index
from typing import Any, ClassVar, Literal, SupportsIndex, get_type_hints

import numpy as np

from grpo_cli.engine.coerce import typed
from grpo_cli.engine.extra_columns import MOST_LOGPROB
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Codes
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.write.refill import refill

Scale = Literal["group", "batch", "none", "gdpo"]
Array = np.ndarray
Floats = np.ndarray[Any, np.dtype[np.float64]]
# Turns the float64 advantages (or the int64 row numbers) into the kind that came in.
Restore = Callable[[Array], Any]


# Settings that need a column: its role, and the option that has it.
_COLUMNS = (("shape.rank.penalty", "logprob", "logprobs"), ("shape.kl.coef", "kl", "kl_values"))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Trinity's options, with Twinkle's epsilon, and those of Twinkle's newer files (d4ec2a61).

    `std_threshold`: groups with std <= it, and singletons, are left out of the result, which is then shorter.
    `duplicate_experiences`: for every group left out a surviving one, drawn by `seed`, is appended.
    `rank_penalty`: the mean and the std come from r (1 - penalty rank/n), likely responses ranking high.
    `std_cal_level`: Trinity's word for `scale`. `return_rows`: also give the row that each advantage is of.
    `reward_weights`: one for each reward column; a NaN then counts as 0 in the sum of its row.
    `kl_in_reward`: `beta` times `kl_values`, the KL of every row, is subtracted from the reward first.
    """

    epsilon: float = 1e-8
    std_threshold: float | None = None
    duplicate_experiences: bool = False
    rank_penalty: float | None = None
    std_cal_level: Literal["group", "batch"] | None = None
    logprobs: object = None
    seed: int = 0
    return_rows: bool = False
    reward_weights: object = None
    kl_in_reward: bool = False
    beta: float = 0.0
    kl_values: object = None

    def __post_init__(self) -> None:
        """Refuse options that would silently have no meaning."""
        if self.duplicate_experiences and self.std_threshold is None:
            raise UsageError("duplicate_experiences needs std_threshold", "without it no group is left out")
        if self.duplicate_experiences and not self.return_rows:
            wrong = "with duplicate_experiences the result does not line up with the rewards"
            raise UsageError(wrong, "pass return_rows=True and take (advantages, row numbers)")
        if self.rank_penalty is not None and self.logprobs is None:
            raise UsageError("rank_penalty needs logprobs", "pass logprobs=, the mean log-prob of every row")
        if self.kl_in_reward and self.kl_values is None:
            raise UsageError("kl_in_reward needs kl_values", "pass kl_values=, the KL of every row")
        for name in ("epsilon", "std_threshold", "seed"):
            if (getattr(self, name) or 0) < 0:
                raise UsageError(f"{name} cannot be {getattr(self, name):g}", "it takes 0 or more")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Check names and types; numpy's scalars count as numbers."""
        hints = get_type_hints(cls)
        for name in given:
            if name not in hints:
                raise UnknownName.among("option", name, hints)
        values = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
        return cls(**{n: v if hints[n] is object else typed(v, hints[n], n) for n, v in values.items()})


class Advantage:
    """The call of all classes; a subclass names its method."""

    method: ClassVar[str]
    of_residual: ClassVar[bool] = False  # the std is that of the centred rewards; groups of one give 0

    def __call__(
        self, rewards: Any, num_generations: SupportsIndex = 1, scale: Scale | str | None = None, **kwargs: Any
    ) -> Any:
        """Return one advantage per reward, in the order and of the kind that came in.

        `rewards`: blocks of `num_generations` rows, one block per prompt; of two dimensions the last is
        summed. `scale`: what the residual is divided by, the std of its group (the default), of the batch, or nothing; "gdpo"
        standardises each reward column in its group, adds them up and standardises the sum over the batch.
        `kwargs`: the fields of `Options`. With return_rows=True the result is (advantages, row numbers).
        """
        options = Options.of(kwargs)
        level = _scale_level(scale, options)
        values, restore = _as_float64(rewards, "rewards")
        columns = _reward_columns(values)
        rows = len(values)
        size = self._block_size(num_generations, rows)
        settings, block = self._settings(level, size, options, values)
        for setting, role, name in _COLUMNS:
            if setting in settings:
                columns[role] = _one_per_row(getattr(options, name), name, rows)
        codes = (np.arange(rows) // block).astype(np.uint32)
        advantages, kept = _score(settings, columns, codes)
        if options.duplicate_experiences:
            source = refill(codes, kept, options.seed)
        else:
            source = np.flatnonzero(kept).astype(np.int64)
        result = restore(advantages[source])
        return (result, restore(source)) if options.return_rows else result

    def _settings(self, level: Scale, size: int, options: Options, values: Floats) -> tuple[dict[str, Any], int]:
        """The settings of the plan, and how many rows make a group.

        At size 1 Twinkle measures a row against the batch (unless the scale is group): the batch is the group
        then, and a singleton gives 0. With a std_threshold Trinity's rule holds: singletons are left out.
        """
        settings = {
            "estimator.name": self.method,
            "divisor.level": level,
            "divisor.ddof": 1,
            "divisor.epsilon": options.epsilon,
            "rewards.missing": "propagate",
            "rewards.component_missing": "propagate",
        }
        if options.reward_weights is not None:
            settings |= {"rewards.weights": _weights(options, values), "rewards.missing": "as-zero"}
            settings["rewards.component_missing"] = "zero"
        if options.kl_in_reward:
            settings["shape.kl.coef"] = options.beta
        if self.of_residual:
            settings |= {"divisor.level": "none" if level == "gdpo" else level, "divisor.of": "residual"}
        elif level == "gdpo":
            return settings | _gdpo(options, values), size
        if options.rank_penalty is not None and size > 1:
            settings |= {"shape.rank.penalty": options.rank_penalty, "shape.rank.numerator": "raw"}
        if options.std_threshold is not None:
            settings |= {"groups.zero_variance": "drop", "groups.std_threshold": options.std_threshold}
            return settings | {"alone.result": "drop"}, size
        if size > 1:
            return settings, size
        if self.of_residual:
            return settings | {"alone.baseline": "own", "alone.sd": "one", "alone.result": "keep"}, 1
        if level == "group":
            return settings | {"divisor.level": "none", "alone.baseline": "zero", "alone.result": "keep"}, 1
        one_group = {"divisor.level": "group" if level == "batch" else "none"}
        return settings | one_group, max(len(values), 1)

    def _block_size(self, num_generations: SupportsIndex, rows: int) -> int:
        """The number of rows in a block; rows must divide into blocks."""
        try:
            size = index(num_generations)
        except TypeError:
            size = 0
        if size < 1:
            cure = "it is the number of rows per prompt, 1 or more"
            raise UsageError(f"num_generations cannot be {num_generations!r}", cure)
        if rows % size:
            wrong = f"{rows} rewards cannot be cut into groups of {size}: {rows % size} left over"
            raise UsageError(wrong, "num_generations is the number of rows per prompt, the same for all")
        return size


class GRPOAdvantage(Advantage):
    """Reward minus the mean of its group, divided by the std.

        A = (r - mean) / (std + 1e-8);  scale="none": r - mean

    With num_generations=1, Twinkle's default, there is no group: "group" gives the reward itself, "batch" and
    "none" measure it against the mean of the batch. Twinkle's page shows [-0.5, 0.5, ...] beside
    scale="group"; its code gives [-0.866, 0.866, ...] there and the page's numbers for "none". So do we.
    """

    method = "grpo"


class RLOOAdvantage(Advantage):
    """Reward minus the mean of the other rewards of its group, divided by the std of the raw rewards.

        A = (r - (sum - r)/(n - 1)) / (std + 1e-8);  scale="none": the textbook's RLOO

    The default is scaled, as in Twinkle. A single row has no others, so num_generations must be above 1.
    """

    method = "rloo"

    def _block_size(self, num_generations: SupportsIndex, rows: int) -> int:
        size = super()._block_size(num_generations, rows)
        if size == 1:
            wrong = "leave-one-out with num_generations=1 has no other rows to compare with"
            raise UsageError(wrong, "pass num_generations=2 or more, or use GRPOAdvantage")
        return size


class ReinforcePlusPlusAdvantage(Advantage):
    """Reward minus the mean of its group, divided by the std of these differences, in the group or the batch.

        A = (r - mean) / (std of r - mean + 1e-8);  scale="none" and "gdpo": r - mean

    From a file of Twinkle that is newer than any release. A group of one gives 0.
    """

    method = "grpo"
    of_residual = True


def _scale_level(scale: str | None, options: Options) -> Scale:
    """One level from Twinkle's `scale` and Trinity's `std_cal_level`."""
    level: Scale = typed(scale or options.std_cal_level or "group", Scale, "scale")
    if options.std_cal_level not in {None, level}:
        wrong = f"scale={level!r} contradicts std_cal_level={options.std_cal_level!r}"
        raise UsageError(wrong, "give one of them")
    return level


def _gdpo(options: Options, values: Floats) -> dict[str, Any]:
    """The settings of scale="gdpo"."""
    if values.ndim == 1:
        raise UsageError("scale='gdpo' needs rewards of shape (rows, reward columns)", "pass one column per reward")
    beside = {"kl_in_reward": options.kl_in_reward or None, "std_threshold": options.std_threshold}
    for name, given in {**beside, "rank_penalty": options.rank_penalty}.items():
        if given is not None:
            raise UsageError(f"scale='gdpo' does not take {name}", "Twinkle ignores it there: leave it out")
    return {
        "estimator.name": "grpo",
        "divisor.level": "group",
        "rewards.combine": "normalize",
        "rewards.missing": "zero",
        "rewards.component_missing": "skip",
        "post": [
            {"op": "nan_to_zero"},
            {"op": "whiten", "level": "sample", "inside": 0.0, "epsilon": options.epsilon},
        ],
    }


def _weights(options: Options, values: Floats) -> tuple[float, ...]:
    weights, _ = _as_float64(options.reward_weights, "reward_weights")
    if weights.shape != values.shape[1:]:
        wrong = f"{weights.size} reward_weights for rewards of shape {values.shape}"
        raise UsageError(wrong, "pass one weight for each reward column")
    return tuple(weights.tolist())


def _one_per_row(given: object, name: str, rows: int) -> Floats:
    values, _ = _as_float64(given, name)
    if values.shape != (rows,):
        raise UsageError(f"{name} have shape {values.shape} for {rows} rewards", "pass one number for every row")
    if name == "logprobs":
        if (values > MOST_LOGPROB).any():
            raise UsageError(f"{name} have {values.max():g}", "a log-prob is 0 or less")
        if any(isinstance(value, bool) for value in given) if isinstance(given, (list, tuple)) else _is_boolean(given):
            raise UsageError(f"{name} are booleans", "pass the mean log-prob of every row")
    return values


def _is_boolean(array: object) -> bool:
    return str(getattr(array, "dtype", "")) in {"bool", "torch.bool"}


def _score(settings: Mapping[str, Any], columns: Mapping[str, Floats], codes: Codes) -> tuple[Floats, Mask]:
    """The engine's advantage of every row, and whether the row stays."""
    # `import grpo_cli` names this class, and must not load polars.
    import polars as pl

    from grpo_cli.engine.score import score

    table = pl.DataFrame({"group": codes, "batch": np.zeros_like(codes), **columns})
    frame = score(Plan.of(settings), table).frame
    return frame[".advantage"].to_numpy(), frame[".kept"].to_numpy()


# --- what comes in and goes out ----------------------------------------------------------------------------


def _reward_columns(values: Floats) -> dict[str, Floats]:
    """One reward column per entry of the last dimension; the engine adds them up."""
    if values.ndim not in {1, 2} or values.shape[1:] == (0,):
        cure = "they are one number per row, or (rows, reward columns)"
        raise UsageError(f"rewards of shape {values.shape} cannot be used", cure)
    return {f"reward.{k}": column for k, column in enumerate(np.atleast_2d(values.T))}


def _as_float64(given: Any, name: str) -> tuple[Floats, Restore]:
    """The numbers as float64, and a function that restores the kind that came in."""
    if isinstance(given, (list, tuple)):
        kind = tuple if isinstance(given, tuple) else list
        return _from_list(given, name), lambda array: kind(array.tolist())
    if any(base.__module__.partition(".")[0] == "torch" for base in type(given).__mro__):
        # bfloat16 has no numpy type and some devices have no float64: cpu first, then double, then numpy.
        values = given.detach().cpu().double().numpy()
        return values, lambda result: _as_tensor(result, given)
    array = _as_array(given, name)
    values = _from_list(array.tolist(), name) if array.dtype.kind == "O" else array.astype(np.float64)
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    return values, lambda result: result.astype(dtype) if result.dtype.kind == "f" else result


def _as_tensor(array: Array, like: Any) -> Any:
    """A tensor beside `like`: its device and, where advantages fit into it, its dtype."""
    torch = import_module("torch")
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    values = torch.as_tensor(array)
    return values.to(device=like.device, dtype=dtype if values.is_floating_point() else values.dtype)


def _as_array(given: Any, name: str) -> Array:
    """An array of numbers from anything that supports numpy's protocol or DLPack."""
    try:
        array = np.asarray(given) if hasattr(given, "__array__") else np.from_dlpack(given, device="cpu")
    except (AttributeError, TypeError, ValueError, BufferError, RuntimeError) as error:
        kind = type(given).__name__
        raise TypeError(f"{name} cannot be read from {kind}; pass a list, an array or a tensor") from error
    if array.dtype.kind not in "biufO":
        raise TypeError(f"{name} are numbers, not {array.dtype}")
    return array


def _from_list(items: Sequence[Any], name: str) -> Floats:
    """An array from a list of numbers, or of lists of numbers; errors name the place."""
    with suppress(TypeError, ValueError, RuntimeError):  # ragged, or tensors that need a gradient
        array = np.asarray(items)
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
    rows = [
        [_number(value, f"{name}[{i}][{k}]") for k, value in enumerate(item)]
        if isinstance(item, (list, tuple))
        else _number(item, f"{name}[{i}]")
        for i, item in enumerate(items)
    ]
    for i, row in enumerate(rows):
        if np.shape(row) != np.shape(rows[0]):
            wrong = f"{name}[{i}] has shape {np.shape(row)}, {name}[0] has {np.shape(rows[0])}"
            raise UsageError(wrong, "every row needs the same number of rewards")
    return np.array(rows, np.float64)


def _number(item: Any, where: str) -> float:
    if item is None:
        raise TypeError(f"{where} is None, not a number; leave that row out, or give a number for it")
    try:
        if not isinstance(item, (str, bytes)):
            return float(item)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(f"{where} is {item!r}, not a number")


__all__ = ["GRPOAdvantage", "Options", "RLOOAdvantage", "ReinforcePlusPlusAdvantage"]
