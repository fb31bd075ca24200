"""To look at a run of several steps: a prompt that recurs in several of them is a group in each.

Whatever writes something stops there (`checks/merges.py`), since a flag must say whether such rows belong together. Who only looks sees
the steps apart, and is told so.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_cli.errors import StepsApart
from grpo_cli.read.checks.merges import comparable_steps
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import Coded, spanning, usual, within
from grpo_cli.read.groups import Numbers, numbers
from grpo_cli.read.known_names import ROLLOUT_IDS, STEP_LIKE
from grpo_cli.read.prompt_check import mixed_prompts

COMPLETE = 0.9  # share of the groups of a step that have the same number of samples; some rows may be lost


def steps_apart(columns: Columns, numbered: Numbers) -> tuple[Columns, Numbers, list[StepsApart]]:
    """The columns with the steps in their key, where a key recurs in several of them, the numbers of their rows, and what to say of it.

    Not where a flag says what is a group, nor where rows of a step are parts of a rollout or single: a check then stops.
    """
    rule = columns.request.rule
    said = list[StepsApart]()
    found = list[tuple[Columns, Coded, str, int]]()
    steps = {*columns.request.for_checks.steps} & {*STEP_LIKE} - {*rule.key}
    if not columns.request.binding.steps_apart or rule.within is not None or rule.size is not None or not rule.key:
        return columns, numbered, said
    if not steps:  # and no column is looked through
        return columns, numbered, said
    for name in comparable_steps(columns):
        keys = numbered.keys
        recur = _recurring(columns, keys, name) if name in steps else 0
        if not recur or columns.values[name].null_count() or not _separates(columns, keys, name):
            continue
        rule = rule._replace(key=(*rule.key, name))
        request = replace(columns.request, rule=rule, layout=columns.request.layout.under(group=rule.key))
        columns = replace(columns, request=request)
        numbered = numbers(columns, rule)
        found.append((columns, keys, name, recur))
    said += [_said(*each, ",".join(map(str, rule.key))) for each in found]
    return columns, numbered, said


def _said(columns: Columns, keys: Coded, name: str, recur: int, key: str) -> StepsApart:
    """How many prompts or ids recur, and the flags that part and pool their steps; ids that restart have nothing to pool."""
    steps = f"steps ({name})" if "step" in name else f"values of {name}"
    texts = columns.request.for_checks
    if mixed_prompts(columns, keys, texts.prompts, texts.other_texts) is not None:
        ids = "an id restarts" if recur == 1 else f"{recur:,} ids restart"
        return StepsApart(f"{ids} in several {steps}, where they name other prompts: the steps are shown apart")
    prompts = "a prompt recurs" if recur == 1 else f"{recur:,} prompts recur"
    apart = f"which are shown apart: a group is a prompt in one of them (compute takes --group {key})"
    recurring = f"{prompts} in several {steps}"
    return StepsApart(f"{recurring}, {apart}; --group-within input pools them", recurring)


def _recurring(columns: Columns, keys: Coded, name: str) -> int:
    """How many keys have rows in several values of a column; of the rows that meet --rows, as if there were no others."""
    values = columns.values[name]
    marked = columns.marked
    if marked is not None and not marked.met.all():
        places = marked.met.arg_true().to_numpy()
        keys, values = keys.at(places), values.gather(places)
    return len(spanning(keys, values)) if len(values) else 0


def _separates(columns: Columns, keys: Coded, name: str) -> bool:
    """Whether a value of the column is a step: not every row has one of its own, and it counts no turns of a rollout."""
    values = columns.values[name]
    size, share = usual(within(keys, [values]))
    if size == 1:
        return False
    for one in columns.request.for_checks.rollouts:
        rollouts = within(keys, [columns.values[one]])
        if not spanning(rollouts, values):
            continue
        # The number of a sample starts again in each step, with another reward. Rollouts of several turns end at different ones, or
        # have one reward in all of them.
        if one in ROLLOUT_IDS or share < COMPLETE or not any(spanning(rollouts, each) for each in columns.rewards()):
            return False
    return True
