"""What a check is, and how a list of them is run: the first error wins, and the warnings keep the order of the list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from grpo_cli.errors import GrpoError
from grpo_cli.read.groups import Groups, group, with_rollouts

Judge = Callable[[Groups], Sequence[str] | None]


@dataclass(frozen=True)
class Check:
    """A function of the groups, and what it says of itself: which rows it looks at, and in which runs.

    `@Check` makes one of a function, `@partial(Check, once_per="input")` one that differs from most.
    """

    judge: Judge  # raises an error, or returns warnings or None
    _: KW_ONLY
    # With --rows: only the rows that meet it, as if the input had no others. A check that asks whether marks or groups are of
    # any use at all looks at all rows.
    looks_at: Literal["rows that meet --rows", "all rows"] = "rows that meet --rows"
    # With --plan-by. "part": each part is judged as if there were no others. "all parts": so, too, but its error stops the run
    # only if every part has it, and it warns of nothing. "input": all rows are judged together.
    once_per: Literal["part", "all parts", "input"] = "part"
    needs_whole_input: bool = False  # a stream, which sees a few groups at a time, leaves it out
    # Whether it judges how the plan counts the rows of a rollout: an audit, which finds that out, leaves it out.
    judges_counting: bool = False
    # With --plan-by, many parts are asked about at once. A check that judges rows or groups one by one says nothing of any part if it
    # says nothing of all of them. Of another, `idle` says when it has nothing to judge in any part. Otherwise each part is judged.
    one_by_one: bool = False
    idle: Callable[[Groups], bool] = lambda _: False
    comes_first: bool = False  # if --rows leaves rows out: its error is the reason for what other checks would find


def may_speak(one: Check, groups: Groups) -> bool:
    """Whether the check may say something of a part, if these are the groups of many parts, each with batches of its own."""
    if one.idle(groups):
        return False
    if not one.one_by_one:
        return True
    try:
        return bool(one.judge(groups))
    except GrpoError:
        return True


def check(groups: Groups, checks: Sequence[Check]) -> tuple[str, ...]:
    """The warnings of all checks, in their order."""
    meeting = groups
    marked = groups.columns.marked
    if marked is not None and not marked.met.all():
        checks = sorted(checks, key=lambda one: not one.comes_first)
        if marked.met.any() and groups.rule.size is None:  # blocks are cut from all rows
            met = groups.columns.at(marked.met.arg_true().to_numpy())
            meeting = with_rollouts(group(met, groups.rule))
    warnings = list[str]()
    for one in checks:
        warnings += one.judge(groups if one.looks_at == "all rows" else meeting) or ()
    return tuple(warnings)
