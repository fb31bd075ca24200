"""Checks of rows that are parts of one rollout, or that may be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Mask, finite_rows, group_extremes
from grpo_cli.errors import DataError, Way, in_words
from grpo_cli.read.checks.check import Check
from grpo_cli.read.checks.values import rows_with
from grpo_cli.read.group_keys import SHOWN, Coded, parts_of_each
from grpo_cli.read.groups import Groups, id_words, in_rows, rollouts_by
from grpo_cli.read.known_names import IDS_OF_TURNS, ROLLOUT_NUMBER
from grpo_cli.read.marks import as_number

_ROWS = Way("--rollout", "none", "treats rows as rollouts")


@partial(Check, judges_counting=True, one_by_one=True)
def unequal_siblings(groups: Groups) -> None:
    """Refuse rows of one rollout with unequal rewards, unless something says which of them counts."""
    request = groups.request
    if groups.rollouts is None or request.plan.unit.take == "each" or request.layout.counting != "once":
        return
    rewards = groups.columns.rewards()
    unequal = _vary(groups.rollouts, rewards) | _divided(groups.rollouts, rewards)
    several = np.flatnonzero(unequal)
    if not len(several):
        return
    each = [(groups.rollouts.codes == code).arg_true() for code in several[:SHOWN].tolist()]
    places = groups.columns.places([rows[0] for rows in each])
    shown = []
    for rows, place in zip(each, places, strict=True):
        values = []
        for row in rows[:4]:
            parts = [f"{reward[row]:g}" if reward[row] is not None else "null" for reward in rewards]
            values.append(" + ".join(parts))
        more = ", ..." if len(rows) > len(values) else ""
        shown.append(f"{place}: {', '.join(values)}{more}")
    many = "1 rollout has" if len(several) == 1 else f"{len(several):,} rollouts have"
    raise DataError(
        f"{many} rows with unequal rewards ({id_words(groups)}): {'; '.join(shown)}",
        ["--rollout-reward last, first or mean chooses the reward of a rollout", _ROWS],
    )


def _has_found_none(groups: Groups) -> bool:
    """Whether no rollout of several rows was found."""
    return groups.found_rollouts is None


def _counts_rollouts(groups: Groups) -> bool:
    """Whether no rollout has several rows, or rollouts count."""
    return groups.rollouts is None or groups.request.plan.unit.take != "each"


@partial(Check, judges_counting=True, idle=_has_found_none)
def rows_counted(groups: Groups) -> Sequence[str]:
    """Warn if a preset counts rows and the file shows that several of them are one rollout."""
    request = groups.request
    rollouts = groups.found_rollouts
    if rollouts is None or request.plan.unit.take != "each" or request.layout.counting != "each":
        return ()
    what = f"{in_rows(groups, rollouts)} (by {id_words(groups)}), and this plan counts every row"
    return [f"{what}: --rollout-reward last counts each rollout once"]


@partial(Check, judges_counting=True, idle=_counts_rollouts)
def lone_rollouts(groups: Groups) -> Sequence[str]:
    """Warn if no group has a second rollout: the rows of a rollout are then compared only with each other."""
    rollouts = groups.rollouts
    if rollouts is None or groups.request.plan.unit.take != "each" or groups.coded.size < 2:  # noqa: PLR2004 - a single group may be a single rollout
        return ()
    if parts_of_each(groups.coded, rollouts).max() > 1 or rollouts.size == groups.columns.height:
        return ()
    what = f"each group has the rows of one rollout (by {id_words(groups)}), compared only with each other"
    return [f"{what}: name the prompt with --group"]


@partial(Check, one_by_one=True)
def turns_in_order(groups: Groups) -> None:
    """Refuse rollouts whose turns do not ascend, if the estimator takes the rows below a turn for what follows it."""
    request = groups.request
    columns = groups.columns
    name = request.roles.get("state")
    if groups.rollouts is None or name is None or not request.plan.estimator.rising_state:
        return
    numbers = as_number(columns.values[name], typed=False)
    if numbers.null_count() > columns.values[name].null_count():  # names of turns have no order
        return
    turns = pl.DataFrame({"rollout": groups.rollouts.codes, "turn": numbers})
    before = turns.select(pl.col("turn").shift(1).over("rollout")).to_series()
    wrong = (numbers <= before).fill_null(value=False)
    if wrong.any():
        row = wrong.arg_max() or 0
        order = f"{name} is {numbers[row]:g} after {before[row]:g} of the same rollout"
        raise DataError(
            f"{columns.place(row)}: {order} ({wrong.sum():,} such rows)",
            "sort the rows of each rollout by turn, and remove duplicate turns",
        )


def _repeats_no_id(groups: Groups) -> bool:
    """Whether no value of a column with the name of a rollout id repeats in a group."""
    names = groups.request.for_checks.rollouts
    return all(rollouts_by(groups, [name]).size == groups.columns.height for name in names)


@partial(Check, idle=_repeats_no_id)
def unnamed_rollouts(groups: Groups) -> Sequence[str]:
    """Ask about a column with the name of a rollout id whose values repeat: its rows may be parts of rollouts.

    It is an error only if rows with the same id always have equal rewards while rewards within groups differ, and neither
    a flag nor a preset says what counts: the id of a worker or a judge has rows with different rewards.
    """
    columns = groups.columns
    request = groups.request
    rewards = columns.rewards()
    warnings = []
    for name in request.for_checks.rollouts:
        rollouts = rollouts_by(groups, [name])
        if rollouts.size == columns.height:
            continue
        of_group = parts_of_each(groups.coded, rollouts)
        if not _are_in_turns(groups, rollouts):
            if name in IDS_OF_TURNS:
                continue
            restarts = columns.coded([name]).size < rollouts.size
            if name == ROLLOUT_NUMBER and (of_group.min() < 2 or restarts):  # noqa: PLR2004 - a group has two
                continue  # the number of a training step, of a group or of a row within it
        if of_group.max() < 2:  # noqa: PLR2004 - nothing to compare: the id of the group
            continue
        cures = [Way("--rollout", name, "counts each rollout once"), _ROWS]
        equal = not _vary(rollouts, rewards).any() and _vary(groups.coded, rewards).any()
        if equal and request.layout.counting == "once":
            wrong = f"{in_rows(groups, rollouts)}, if {name} is what its name says:"
            raise DataError(f"{wrong} it repeats inside groups, always with the same reward", cures)
        warnings.append(f"several rows of a group share one {name}: {in_words(cures)}")
    return warnings if request.warn else ()


def _are_in_turns(groups: Groups, rollouts: Coded) -> bool:
    """Whether a number rises inside all of these rollouts, from the same first value."""
    if not (name := groups.request.for_checks.turn):
        return False
    numbers = as_number(groups.columns.values[name], typed=False)
    turns = pl.DataFrame({"rollout": rollouts.codes, "turn": numbers})
    now = pl.col("turn")
    before = now.shift(1).over("rollout")
    rises = pl.when(before.is_null()).then(now == now.min()).otherwise(now > before)
    return bool(turns.select(rises.fill_null(value=False).all()).item())


def _vary(coded: Coded, rewards: Sequence[pl.Series]) -> Mask:
    """Which codes have different finite values of some reward."""
    vary = np.zeros(coded.size, dtype=bool)
    for reward in rewards:
        codes, values = finite_rows(coded.codes.to_numpy(), reward)
        low, high = group_extremes(codes, values, coded.size)
        vary |= low < high
    return vary


def _divided(rollouts: Coded, rewards: Sequence[pl.Series]) -> Mask:
    """Which rollouts have some of several rewards only in rows that do not count: the last row with a reward counts."""
    divided = np.zeros(rollouts.size, dtype=bool)
    if len(rewards) > 1:
        has_reward = pl.exclude("rollout")
        rows = rows_with(rewards).with_columns(rollout=rollouts.codes).filter(pl.any_horizontal(has_reward))
        lost = has_reward.any() & ~has_reward.last()
        losing = rows.group_by("rollout").agg(lost).filter(pl.any_horizontal(has_reward))
        divided[losing["rollout"].to_numpy()] = True
    return divided
