"""Checks of the values that the plan computes with: rewards, and the other columns it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.engine.extra_columns import MOST_LOGPROB, ROLES
from grpo_cli.engine.group_stats import group_means
from grpo_cli.engine.moments import Vector
from grpo_cli.errors import DataError
from grpo_cli.read.checks.check import Check
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import repeats
from grpo_cli.read.groups import Groups
from grpo_cli.read.tables import KlField
from grpo_cli.read.token_numbers import of_kl, token_numbers

_LARGEST = 1e100  # reward: up to here sums of squares and cubes stay finite, even after weights and shaping
_FOLLOWED = 4096  # groups that are looked at, at most: whether their logged advantages follow the rewards
# Distance of logged advantages from a line in the reward, relative to the largest: float32 leaves less.
_LINEAR = 1e-3


@partial(Check, one_by_one=True)
def huge_rewards(groups: Groups) -> None:
    """Refuse rewards whose squares overflow: all advantages of their groups would be 0 or NaN."""
    columns = groups.columns
    for name, column in zip(columns.request.rewards, columns.rewards(), strict=True):
        huge = column.is_finite() & ~column.is_between(-_LARGEST, _LARGEST)
        if huge.any():
            row = huge.arg_max() or 0
            raise DataError(
                f"{columns.place(row)}: {name} is {column[row]:g}, the largest reward is {_LARGEST:g}",
                ["its square would overflow", "does it mark rows without a reward?"],
            )


@partial(Check, one_by_one=True)
def unusable_values(groups: Groups) -> None:
    """Refuse an extra column of the plan that has no usable value in some row that counts."""
    columns = groups.columns
    left_out = columns.left_out
    made = {field.name: field for field in columns.request.binding.made}
    for role, name in columns.request.roles.items():
        own = role == "rollout" and name in columns.request.layout.rollouts  # a row without an id is a rollout
        if own or (role == "length" and name == "equal"):
            continue
        for what, wrong in _unusable(columns.values[name], role):
            counted = wrong if left_out is None else wrong & ~left_out
            if counted.any():
                row = counted.arg_max() or 0
                if name in made:
                    _refuse_lists(columns, made[name], row)
                raise DataError(f"{columns.place(row)}: {name} is {what}", f"it is read as {ROLES[role].meaning}")
        if role == "logprob":
            _refuse_booleans(columns, name)


def _refuse_booleans(columns: Columns, name: str) -> None:
    """Refuse a column of log-probs that has booleans: false is read as 0, and true, which is 1, has been refused as too large."""
    rows = (columns.values[name] == 0).arg_true().to_numpy()
    rows = rows[np.argsort(columns.places_of(rows), kind="stable")]  # in the order of the files
    done = 0
    for frame in columns.texts_at(rows, [name], as_json=False):
        for at, value in enumerate(frame[name].to_list()):
            if value is False or (isinstance(value, str) and value.strip().lower() == "false"):
                what = f"{name} is false"
                raise DataError(what, f"it is read as {ROLES['logprob'].meaning}", place=columns.place(rows[done + at]))
        done += len(frame)


def _refuse_lists(columns: Columns, field: KlField, row: int) -> None:
    """Say which list of a row, or which number in it, gives no KL; nothing if the KL of usable numbers is infinite."""
    leaves_out = "--rows leaves such rows out"
    lists = of_kl(field)
    try:
        part = next(token_numbers(columns, np.array([row]), lists))
    except DataError as error:
        error.cures.append(leaves_out)
        raise
    place = columns.place(row)
    if part.missing:
        raise DataError(f"without a list in {' or '.join(lists.names)}", leaves_out, place=place)
    if part.sizes[0]:
        return
    if part.lengths[0]:
        what = f"{field.mask} counts none of the {part.lengths[0]:,} tokens, so they have no mean"
    else:
        what = f"{' and '.join(lists.logprobs)} are empty, so they have no mean"
    raise DataError(what, leaves_out, place=place)


def _unusable(column: pl.Series, role: str) -> Iterator[tuple[str, pl.Series]]:
    yield "null", column.is_null()
    if column.dtype == pl.Float64:
        yield "not finite", ~column.is_finite()
        if role in {"length", "input_length", "turns"}:
            yield "negative", column < 0
        if role == "logprob":
            yield "above 0", column > MOST_LOGPROB
    if column.dtype == pl.List(pl.Float64):
        finite = pl.element().is_finite().fill_null(value=False)
        yield "a list with null or NaN in it", column.list.eval(~finite).list.any()
        yield "an empty list", column.list.len() == 0


def _has_named_rewards(groups: Groups) -> bool:
    """Whether a flag names the rewards, there is one, or none is logged with its advantage."""
    request = groups.request
    logged = groups.columns.logged_advantages(request.layout.logged_column)
    return bool(request.layout.flags.rewards) or len(request.rewards) == 1 or logged is None


@partial(Check, idle=_has_named_rewards)
def no_rewards_at_the_end(groups: Groups) -> None:
    """Refuse number columns that a layout takes for rewards if the logged advantages follow the columns before them."""
    columns = groups.columns
    request = groups.request
    logged = columns.logged_advantages(request.layout.logged_column)
    if request.layout.flags.rewards or len(request.rewards) == 1 or logged is None:
        return
    rows = (groups.coded.codes < _FOLLOWED).arg_true()
    some_rewards = [reward.gather(rows).fill_null(0.0).fill_nan(0.0).to_numpy() for reward in columns.rewards()]
    totals = np.cumsum(some_rewards, axis=0)
    codes = groups.coded.codes.gather(rows).to_numpy()
    values = logged.gather(rows).to_numpy()
    every = len(totals)
    following = (count for count in range(every, 0, -1) if _follow(codes, totals[count - 1], values))
    if (count := next(following, every)) < every:
        rewards = request.rewards[:count]
        others = request.rewards[count:]
        flags = " ".join(f"--reward {name}" for name in rewards)
        raise DataError(
            f"the logged {request.layout.logged_column} follows {' + '.join(rewards)}, without {', '.join(others)}",
            f"name the rewards: {flags}",
            place=columns.tables[0].name,
        )


def _follow(codes: np.ndarray[Any, Any], total: Vector, logged: Vector) -> bool:
    """Whether advantages rise linearly with a reward in each group, as those of every scale and baseline do."""
    has_advantage = np.isfinite(logged)
    codes = codes[has_advantage]
    x = total[has_advantage]
    y = logged[has_advantage]
    size = int(codes.max(initial=0)) + 1
    x = x - group_means(codes, x, size)[codes]
    y = y - group_means(codes, y, size)[codes]
    squares = np.bincount(codes, x * x, size)
    products = np.bincount(codes, x * y, size)
    slope = np.divide(products, squares, out=np.zeros(size), where=squares > 0)
    most = np.abs(y).max(initial=0.0)
    if most == 0 or (slope < 0).any():
        return False
    away = np.abs(y - slope[codes] * x)
    return bool(away.max() <= _LINEAR * most)


@partial(Check, one_by_one=True)
def missing_components(groups: Groups) -> Sequence[str]:
    """Warn of rows with only some of several rewards, unless the tool that wrote them is known to leave some out."""
    columns = groups.columns
    rule = groups.request.plan.rewards
    request = columns.request
    if len(request.rewards) == 1 or request.layout.may_lack_rewards or rule.component_missing == "propagate":
        return ()
    some = pl.any_horizontal(pl.all())
    whole = pl.all_horizontal(pl.all())
    in_part = rows_with(columns.rewards()).filter(some & ~whole)
    if in_part.is_empty():
        return ()
    what = "counts as 0" if rule.component_missing == "zero" else "is skipped"
    return [f"rows with only some of the rewards: {len(in_part):,}; a missing one {what}"]


def rows_with(rewards: Sequence[pl.Series]) -> pl.DataFrame:
    """Which rows have which of the rewards."""
    return pl.DataFrame(reward.is_finite().fill_null(value=False).alias(f"{at}") for at, reward in enumerate(rewards))


@partial(Check, one_by_one=True)
def repeated_samples(groups: Groups) -> Sequence[str]:
    """Warn if a group repeats a sample: rollouts may have been written twice."""
    columns = groups.columns
    sample = groups.request.for_checks.sample
    if not sample or sample in {*columns.request.key, columns.request.roles.get("rollout")}:
        return ()
    twice = repeats(groups.coded.codes, columns.values[sample])
    words = f"{twice:,} rows repeat a {sample} inside their group: rollouts may have been written twice"
    return (words,) if twice else ()
