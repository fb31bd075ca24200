"""Checks of sizes: blocks that are cut short, groups of another size than expected, groups of one row."""

from __future__ import annotations

from functools import partial

import numpy as np

from grpo_cli.engine.plan_parts import Alone
from grpo_cli.errors import Cures, DataError, UsageError, Way
from grpo_cli.read.checks.check import Check
from grpo_cli.read.checks.keys import PROMPT_ID_OR_BLOCKS
from grpo_cli.read.group_keys import parts_of_each, sizes
from grpo_cli.read.groups import Groups
from grpo_cli.read.known_names import CONVERSATIONS, PROMPT_TEXTS


@partial(Check, one_by_one=True)
def size_of_blocks(groups: Groups) -> None:
    """Refuse blocks without rows."""
    if groups.rule.size is not None and groups.rule.size < 1:
        raise UsageError(f"a block cannot have {groups.rule.size} rows", "--group-size takes 1 or more")


@partial(Check, one_by_one=True)
def last_blocks(groups: Groups) -> None:
    """Refuse a last block with too few rows, unless --partial decides."""
    if groups.short is not None and groups.dropped is None:
        code = int(np.argmax(groups.short))
        rows = sizes(groups.coded)[code]
        place = groups.columns.place(groups.coded.first[code])
        plural = "" if rows == 1 else "s"
        raise DataError(
            f"{place}: the last block has {rows} row{plural}, not {groups.rule.size}",
            [Way("--partial", "keep", "takes it as a group"), Way("--partial", "drop", "leaves it out")],
        )


@partial(Check, needs_whole_input=True, idle=lambda groups: groups.dropped is None)
def nothing_left(groups: Groups) -> None:
    """Refuse a run if every row was dropped because its block was too short."""
    if groups.dropped is not None and groups.dropped.all():
        columns = groups.columns
        raise DataError(f"{columns.tables[0].name}: no rows", f"{columns.height:,} dropped: incomplete last block")


@partial(Check, one_by_one=True)
def other_sizes(groups: Groups) -> None:
    """Refuse groups whose size is not --expect-size."""
    columns = groups.columns
    coded = groups.coded
    expected = groups.request.binding.expect_size
    if expected is None:
        return
    counts = sizes(coded)
    unit = "row"
    if groups.rollouts is not None and columns.request.plan.unit.take != "each":
        counts = parts_of_each(coded, groups.rollouts)
        unit = "rollout"
    unexpected = counts != expected
    if groups.dropped is not None:
        unexpected &= ~groups.dropped
    wrong = np.flatnonzero(unexpected).tolist()
    if wrong:
        first = coded.first[wrong[0]]
        count = counts[wrong[0]]
        size = f"{count} {unit}{'' if count == 1 else 's'}"
        such = f"{len(wrong)} such {'group' if len(wrong) == 1 else 'groups'} of {coded.size}"
        raise DataError(
            f"{columns.place(first)}: {columns.label(first)} has {size}, not {expected} ({such})",
            ["the sampler may have stopped early", "omit --expect-size to continue"],
        )


@partial(Check, looks_at="all rows", once_per="all parts", one_by_one=True)
def only_singletons(groups: Groups) -> None:
    """Refuse a key whose groups all have a single row, if the plan compares the rows of a group.

    Of many parts, one in which a group has two rows is enough.
    """
    request = groups.request
    plan = request.plan
    key_words = request.layout.key_words
    group = request.key
    of_groups = plan.estimator.min_group > 1 and plan.baseline_level == "group"
    compares = of_groups and plan.alone == Alone()
    by_row = plan.unit.take == "each"
    rewards = groups.columns.height if by_row or groups.rollouts is None else groups.rollouts.size
    if not compares or request.binding.singletons_meant or groups.coded.size != rewards:
        return
    unit = "row" if by_row else "rollout"
    what = f"every group has a single {unit}" if groups.coded.size > 1 else f"there is a single {unit}"
    key = ", ".join(group) or "the block size"
    if {*group} & {*CONVERSATIONS}:
        why = f"{key} may contain the responses as well as the prompts"
        cures: Cures = PROMPT_ID_OR_BLOCKS
    elif key_words or {*group} & {*PROMPT_TEXTS}:
        why = f"{key_words or key} has one sample per prompt, nothing to compare"
        cures = [
            "several samples of a prompt make a group",
            Way("--singleton", "zero", "continues anyway"),
            Way("--group", why="takes another key", fill="NAME"),
        ]
    else:
        why = f"{key} may be an id of the rollout, not of the prompt"
        cures = [
            Way("--group", lead="name the prompt's column with"),
            Way("--singleton", "zero", "if there is one sample per prompt", lead="give"),
        ]
    raise DataError(f"{what}: {why}", cures)
