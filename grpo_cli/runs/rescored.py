"""`inspect --old-rewards`: the same rollouts with another reward, from other files or from another column."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from grpo_cli.choosing.groups import of_rows, only
from grpo_cli.engine.moments import Index
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UsageError, Way
from grpo_cli.options.conditions import Filter
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import plan_of
from grpo_cli.read.build_table import read
from grpo_cli.read.layout import layout
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.pairs import Pairs, gathered, ids_of, known_ids, pair
from grpo_cli.read.tables import Binding, OverTables, Table, column_names
from grpo_cli.read.texts import plain_texts, written
from grpo_cli.runs.asked import OnFiles, binding_of
from grpo_cli.runs.group_rows import ends, said
from grpo_cli.stats.against import NowAndBefore
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.rescored import OLD, Pairing, Rescored, other_reward, rescored
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.paths import is_there

FEW = 0.5  # share of the smaller input's rows; a warning if fewer are paired
ALIKE = 0.5  # least share of equal texts among the listed rows of the same rollouts
TEXT = 2000  # characters of a listed text
ROW = f"{OLD}row"  # the row of the other input among the carried columns


@dataclass(frozen=True, kw_only=True)
class Other(OnFiles):
    """Where the other reward is: in these inputs or, without any, in another column of the same inputs."""

    # the weights and rules of the old reward, and the formula of its advantages
    plan: Plan = field(default_factory=Plan)

    @classmethod
    def of(cls, given: Given) -> Other:
        """What options ask for: the same as for the reward, except for its column if another is named."""
        if given.rescored_column is not None:
            given = Given(given.without({"component_missing", "combine"}), reward=[given.rescored_column])
        inputs = [] if given.rescored is None else [given.rescored]
        return cls(inputs=inputs, plan=plan_of(given), binding=binding_of(given))


def carrying(tables: Sequence[Table], others: Sequence[Table], other: Other, binding: Binding) -> Binding:
    """The binding that also reads what `two_rewards` needs: the ids of rollouts, or the column of the other reward."""
    if others:
        ids, _ = ids_of(tables, others, binding)
        return replace(binding, carried=dict.fromkeys(ids, "key"))
    return replace(binding, carried=dict.fromkeys(other.binding.rewards, "number"))


def two_rewards(
    now: Inspection, others: Sequence[Table], other: Other, *, where: Filter | None, over: OverTables
) -> tuple[Inspection, Rescored]:
    """The inspection of the rollouts that have both rewards, and the facts about both.

    Without `others` the other reward is a carried column of the inspection.
    """
    both = _in_both(now, others, other, over) if others else _of_column(now, other.binding.rewards)
    now = both.now if where is None else only(both.now, where)
    names = both.names
    facts = rescored(now, other_reward(now, names, other.plan), names)
    places = np.array([row.position for row in facts.largest], dtype=np.int64)
    paired = both.paired
    if both.before is not None and paired is not None and paired.by != [now.columns.get("text")]:
        _refuse_other_texts(now, both.before, places, paired.by)
    texts = [ends(written(each.response), TEXT) for each in said(now, places)]
    largest = [replace(row, text=text) for row, text in zip(facts.largest, texts, strict=True)]
    warnings = [*now.narrow.warnings, *both.warnings]
    old = [table.name for table in others or now.narrow.tables]
    return now, replace(facts, largest=largest, paired=paired, rescored=old, warnings=warnings)


class _Both(NamedTuple):
    """The rollouts that have both rewards."""

    now: Inspection  # of these rollouts, with the other reward as carried columns
    names: Sequence[str]  # of the columns of the other reward
    before: Narrow | None = None  # the other input, for its texts; None if both rewards are in the same rows
    paired: Pairing | None = None  # how the rows of the two inputs were paired
    warnings: Sequence[str] = ()  # about the pairing


def _of_column(now: Inspection, names: Sequence[str]) -> _Both:
    """All rows, with the other reward from further columns of the same inputs."""
    if names == now.narrow.reward_names:
        wrong = f"the reward and --old-rewards-column are the same column, {', '.join(names)}"
        raise UsageError(wrong, Way("--reward", lead="name the new reward with"))
    return _Both(_with_old(now, [now.narrow.carried[name] for name in names]), names)


def _in_both(now: Inspection, others: Sequence[Table], other: Other, over: OverTables) -> _Both:
    """The rows of the inspection that the other input has as well, with the reward from there."""
    narrow = now.narrow
    before = _read(now, others, other, over)
    names = before.reward_names
    text = _text_of_both(now, others)
    flags = narrow.request.layout.flags
    ids = ids_of(narrow.tables, others, flags)
    pairs = pair(narrow, before, ids, text, sure="rollout" in flags.roles)
    paired = _paired(pairs, narrow, before)
    warnings = _few(paired)
    if not {*ids[0]} <= {*pairs.by}:
        unused = ", ".join(ids[0])
        warnings.append(f"{unused} pairs no rollouts (null, repeated or other values): their texts do")
    if len(pairs.now) < len(narrow.table):
        head = f"{len(pairs.now):,} of {len(narrow.table):,} rows are in both inputs"
        now = of_rows(now, pairs.now.astype(np.int64), head)
    old_rewards = before.table[[f"reward.{k}" for k in range(len(names))]]
    if pairs.before is not pairs.now:  # the rows stand in another order
        old_rewards = gathered(old_rewards, pairs.before)
    now = _with_old(now, old_rewards.get_columns(), **{ROW: pl.Series(pairs.before)})
    only_texts = replace(before, table=before.table.clear(), carried={})
    return _Both(now, names, only_texts, paired, warnings)


def _text_of_both(now: Inspection, others: Sequence[Table]) -> str:
    """The response column if the other tables have it as well; otherwise empty."""
    text = now.columns.get("text", "")
    return text if all(is_there(text, table.columns()) for table in others) else ""


def _read(now: Inspection, others: Sequence[Table], other: Other, over: OverTables) -> Narrow:
    """The other rewards with the keys and the ids of their rows."""
    _, ids = ids_of(now.narrow.tables, others, now.narrow.request.layout.flags)
    binding = replace(other.binding, carried=dict.fromkeys(ids, "key"), singletons_meant=True)
    rewards = replace(other.plan.rewards, missing="exclude")
    plan = Plan(unit=other.plan.unit, rewards=rewards)
    known = now.narrow.key, now.narrow.groups
    try:
        found = layout(others, binding)
    except DataError as error:
        raise _without_key(error, now.narrow, others) from None
    return read(found, plan, warn=False, over=over, known=known)


def _without_key(error: DataError, narrow: Narrow, others: Sequence[Table]) -> DataError:
    """The error about the columns of the other input; a table of ids and scores becomes a column."""
    key = narrow.request.key
    there = {name for table in others for name in table.columns()}
    both = [name for name in column_names(narrow.tables) if name in there]
    known = [name for name in known_ids(narrow.request.schema) if name in both]
    if others[0].name not in error.message:
        error.inside(f"--old-rewards {others[0].name}")
    if both and not {*key} <= there:
        on = (known or both)[0]
        line = f"grpo-adv add {shlex.quote(narrow.tables[0].name)} --from {shlex.quote(others[0].name)} --on {shlex.quote(on)}"
        error.cures = [f"{line} makes the old reward a column, for --old-rewards-column"]
    return error


def _with_old(now: Inspection, rewards: Sequence[pl.Series], **more: pl.Series) -> Inspection:
    """The inspection with the other reward as carried columns."""
    columns = {f"{OLD}{k}": reward for k, reward in enumerate(rewards)}
    carried = {**now.narrow.carried, **columns, **more}
    return replace(now, narrow=replace(now.narrow, carried=carried))


def _paired(pairs: Pairs, now: Narrow, before: Narrow) -> Pairing:
    key = now.key_words
    if not len(pairs.now):
        wrong = f"no rollout is in both inputs (by {', '.join(pairs.by)} within {', '.join(key)})"
        raise DataError(wrong, "--against compares different rollouts of the same prompts")
    alone = NowAndBefore(now=len(now.table) - len(pairs.now), before=len(before.table) - len(pairs.before))
    return Pairing([*pairs.by], key, len(pairs.now), alone)


def _few(paired: Pairing) -> list[str]:
    """A warning if most rollouts of each input are not in the other."""
    fewest = paired.rows + min(paired.only.now, paired.only.before)
    if paired.rows >= FEW * fewest:
        return []
    few = f"only {percent(paired.rows / fewest)} of the rollouts are in both inputs"
    return [f"{few}: --against compares different rollouts of the same prompts"]


def _refuse_other_texts(now: Inspection, before: Narrow, places: Index, by: Sequence[str]) -> None:
    """Refuse rows that were paired by an id such as a sample number, but are other rollouts: their texts differ."""
    text = _text_of_both(now, before.tables)
    if not text:
        return
    places_before = now.narrow.carried[ROW].gather(places).to_numpy().astype(np.int64)
    mine = plain_texts(now.narrow, places, text)
    theirs = plain_texts(before, places_before, text)
    known = [(now, then) for now, then in zip(mine, theirs, strict=True) if now is not None and then is not None]
    same = sum(now == then for now, then in known)
    if known and same < ALIKE * len(known):
        differ = f"{len(known) - same} of {len(known)} that were compared"
        wrong = f"the rows with the same {' and '.join(by)} have different texts in {text} ({differ})"
        raise DataError(wrong, "they are different rollouts: --against compares different rollouts of the same prompts")
