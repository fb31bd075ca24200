"""From tables to rows that know their group: the steps of `read` in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, GrpoError, UsageError
from grpo_cli.read.checks import CHECKS, CHECKS_OF_FILES, Check, check, one_part_each, only_singletons
from grpo_cli.read.columns import read_columns
from grpo_cli.read.group_keys import Coded
from grpo_cli.read.groups import group
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.parts import Parts, columns_of_parts
from grpo_cli.read.request import Rule
from grpo_cli.read.rollouts import with_rollouts
from grpo_cli.read.tables import Binding, OverTables, Table, column_names


def read(
    tables: Sequence[Table],
    binding: Binding,
    plan: Plan,
    *,
    warn: bool = True,
    over: OverTables = map,
    checks: Sequence[Check] = CHECKS,
    known: Coded | None = None,
) -> Narrow:
    """Read what the plan needs and group the rows; without `warn` suspicious groups are not looked for.

    `over` reads each table. The rows may have the keys of the `known` ones, which were numbered before.
    """
    columns = read_columns(tables, binding, plan, warn=warn, over=over)
    groups = with_rollouts(group(columns, columns.request.rule, known))
    return Narrow.of(groups, check(groups, checks))


def read_parts(
    tables: Sequence[Table], parts: Parts, *, warn: bool = True, over: OverTables = map
) -> tuple[list[Narrow], tuple[str, ...]]:
    """The same of each part of the rows, as if the others were not there; and the warnings that are not about a part.

    A key is only that of rollouts where it is so in every part: one of them may have a single prompt with a single row.
    """
    whole, of_parts = columns_of_parts(tables, parts, warn=warn, over=over)
    warnings = check(group(whole, Rule()), CHECKS_OF_FILES)
    each = [one for one in CHECKS if one not in {*CHECKS_OF_FILES, only_singletons}]
    narrows, refused = [], list[DataError]()
    for columns in of_parts:
        groups = with_rollouts(group(columns, columns.request.rule))
        try:
            narrows.append(Narrow.of(groups, check(groups, each)))
        except GrpoError as error:
            error.inside(f"{parts.column} = {columns.request.value}")
            raise
        try:
            only_singletons(groups)
        except DataError as error:
            refused.append(error)
    if len(refused) == len(of_parts):
        raise refused[0]
    one_part_each(group(whole, replace(whole.request.rule, logged_column="")))
    return narrows, warnings


@contextmanager
def rewards_before_outputs(tables: Sequence[Table], binding: Binding, plan: Plan) -> Iterator[None]:
    """Where an output is refused and a reward is not there either, it is the reward that is said: --force would not help.

    A reward that no head shows may still stand further on in a file; only then the columns are read.
    """
    try:
        yield
    except UsageError:
        known = {*column_names(tables)}
        if any(re.split(r"[.\[]", name)[0] not in known for name in binding.rewards):
            read_columns(tables, binding, plan, warn=False)
        raise
