"""Many parts of the rows at once, as --plan-by makes them: grouped, checked and numbered together, then cut.

All that is said of a part is as if it were a file of its own. But steps for each of a thousand parts would cost more than their rows. Here
the rows of a part follow each other, and no group or batch has rows of two parts, so what is found for all rows is cut into what each part
would have by itself. Only checks that have something to say are asked about each part.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.read.checks.check import Check, may_speak
from grpo_cli.read.checks.merges import several_prompts
from grpo_cli.read.columns import Columns, Texts
from grpo_cli.read.group_keys import within
from grpo_cli.read.groups import Groups, Numbers, group, numbers, with_rollouts
from grpo_cli.read.known_names import ROLLOUT_NUMBER
from grpo_cli.read.marks import Marked
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.prompt_check import rows_read
from grpo_cli.read.request import Request
from grpo_cli.read.tables import size_of

SMALL = 1 << 14  # rows: those of a larger part take longer than its steps, and need not be copied together
AT_ONCE = 64 << 20  # bytes of rows whose texts are read at once


def alike(request: Request) -> Hashable:
    """What the columns, the groups and the checks of a request depend on, as a key: the rest of its plan is about numbers."""
    plan = request.plan
    read_by_checks = plan.method, plan.baseline_level, plan.unit, plan.rewards, plan.alone, plan.uses_batch
    return id(request.layout), request.rule, tuple(request.roles.items()), read_by_checks


class Together:
    """The groups of many parts whose requests are alike."""

    def __init__(self, groups: Groups, sizes: Sequence[int], checks: Collection[Check]) -> None:
        self._groups = groups
        ends = np.cumsum(sizes).tolist()
        self._rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self.speaking = frozenset(one for one in checks if may_speak(one, groups))
        self._texts: list[Texts] = []  # of each part, if prompts are compared
        if several_prompts in self.speaking:
            self._texts = self._in_portions()

    @classmethod
    def of(
        cls, columns: Columns, sizes: Sequence[int], checks: Collection[Check], numbered: Numbers | None
    ) -> Together | None:
        """The groups of these rows, part after part; None if more than the groups of a part depends on the rows beside them."""
        if columns.marked is not None and any(mark.unmet is not None for mark in columns.marked.marks):
            return None  # checks look at the rows that meet --rows, as if there were no others
        rule = columns.request.rule
        keys, batches = numbered or numbers(columns, rule)
        part = pl.Series(np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes))
        apart = Numbers(within(keys, [part]), within(batches, [part]))
        groups = with_rollouts(group(columns, rule, apart))
        return cls(groups, sizes, checks) if _are_apart(columns, groups) else None

    def groups(self, at: int, request: Request) -> Groups:
        """The groups of a part."""
        rows = self._rows[at]
        groups = self._groups
        coded = groups.coded.cut(rows)
        short = groups.short
        if short is not None:
            first = int(groups.coded.codes[rows.start])
            short = short[first : first + coded.size]
        return replace(
            groups,
            columns=replace(groups.columns.cut(rows), request=request, texts=self._texts[at] if self._texts else None),
            by_key=groups.by_key.cut(rows),
            coded=coded,
            batches=groups.batches.cut(rows),
            short=short if short is not None and short.any() else None,
            rollouts=None if groups.rollouts is None else groups.rollouts.cut(rows),
        )

    def narrow(self, at: int, request: Request, warnings: tuple[str, ...]) -> Narrow:
        """The narrow table of a part."""
        return self._narrow.cut(self._rows[at], request, warnings, marked=self._marked[at])

    @cached_property
    def _narrow(self) -> Narrow:
        return Narrow.of(self._groups)

    @cached_property
    def _marked(self) -> list[Marked | None]:
        """The marks of each part, which knows those of its own rows alone."""
        columns = self._groups.columns
        marked = columns.marked
        if marked is None:
            return [None] * len(self._rows)
        return marked.cut(self._rows, columns.values, typed=columns.typed)

    def _in_portions(self) -> list[Texts]:
        """The texts that parts compare, read for as many parts at once as fit into the memory."""
        columns = self._groups.columns
        prompts = columns.request.for_checks.prompts
        of_row = max(1, size_of(columns.tables) // max(1, sum(columns.lengths)))
        portions: list[list[Index]] = []
        portion_of = []
        room = 0
        for at, rows in enumerate(self._rows):
            groups = self.groups(at, columns.request)
            own = rows.start + rows_read(groups.columns, groups.coded, prompts)
            if not portions or len(own) > room:
                portions.append([])
                room = AT_ONCE // of_row
            portions[-1].append(own)
            portion_of.append(len(portions) - 1)
            room -= len(own)
        texts = [Texts(columns, np.concatenate(rows)) for rows in portions]
        return [texts[portion] for portion in portion_of]


def _are_apart(columns: Columns, groups: Groups) -> bool:
    """Whether the groups, the batches and the rollouts of each part are those that it would have by itself."""
    if columns.logged_advantages(groups.rule.logged_column) is not None or groups.dropped is not None:
        return False  # logged advantages may show a size in the rows of one part; blocks are dropped of some
    request = columns.request
    names = groups.rollout_columns
    if not names or "rollout" in request.layout.flags.roles:
        return True
    # Of several ids a part may have one. And where rollouts are found in some parts, only these count them.
    found = groups.rollouts is not None and "rollout" not in request.roles
    return not (found or ROLLOUT_NUMBER in names or columns.values[names[0]].null_count())
