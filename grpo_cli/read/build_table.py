"""From tables to rows that know their group: the steps of `read` in order, and the same for each part of --plan-by.

The columns of all parts are read together; from then on, each part is processed like a run of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Codes, Index
from grpo_cli.engine.plan import OTHERS, Plan
from grpo_cli.errors import DataError, GrpoError
from grpo_cli.read.checks.check import Check, check
from grpo_cli.read.checks.merges import one_part_each
from grpo_cli.read.checks.registry import CHECKS, CHECKS_OF_ALL_PARTS, CHECKS_OF_INPUT, CHECKS_OF_PART
from grpo_cli.read.columns import Columns, read_columns
from grpo_cli.read.group_keys import Coded, encode
from grpo_cli.read.groups import Groups, group, with_rollouts
from grpo_cli.read.layout import Layout, layout
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.request import Request, Rule, choose, united
from grpo_cli.read.tables import Binding, OverTables, Table, column_names
from grpo_cli.values.cells import bare_texts
from grpo_cli.values.key_text import plain
from grpo_cli.values.paths import absent, is_there

NULL = "null"  # the name of the part without a value
LISTED = 10  # values listed in a message


def read(
    layout: Layout,
    plan: Plan,
    *,
    warn: bool = True,
    over: OverTables = map,
    checks: Sequence[Check] = CHECKS,
    known: tuple[pl.DataFrame, Coded] | None = None,
) -> Narrow:
    """Read what the plan needs and group the rows; without `warn`, suspicious groups are not looked for.

    `over` reads each table. `known` are the keys and the codes of another input, which may have the same rows.
    """
    _, narrow = _grouped(read_columns(choose(layout, plan, warn=warn), over), checks, known)
    return narrow


def _grouped(
    columns: Columns, checks: Sequence[Check], known: tuple[pl.DataFrame, Coded] | None = None
) -> tuple[Groups, Narrow]:
    """The groups of these rows, and the rows that know them."""
    groups = with_rollouts(group(columns, columns.request.rule, known))
    return groups, Narrow.of(groups, check(groups, checks))


# --- parts of the rows, each with its plan ---------------------------------------------------------------------


class PlanBy(NamedTuple):
    """--plan-by: the column that divides the rows, and the plan of each value with the columns it reads."""

    column: str
    plans: Mapping[str, tuple[Plan, Binding]]

    def name(self, part: str) -> str:
        """The plan of a part; the plan for all others if it has none of its own."""
        return part if part in self.plans else OTHERS


def read_parts(
    tables: Sequence[Table], parts: PlanBy, *, warn: bool = True, over: OverTables = map
) -> tuple[list[Narrow], tuple[str, ...]]:
    """The same for each part of the rows, as if there were no others; and the warnings that concern no single part.

    Some checks stop the run only if every part fails them: one part may have a single prompt with one row.
    """
    whole, values, codes = _columns_of_all(tables, parts, warn=warn, over=over)
    of_input = check(group(whole, Rule()), CHECKS_OF_INPUT)
    narrows = []
    errors: dict[Check, list[DataError]] = {one: [] for one in CHECKS_OF_ALL_PARTS}
    for at, value in enumerate(values):  # the columns of a part are copied only when it is its turn
        columns = _part(whole, value, np.flatnonzero(codes == at), parts.name(value))
        try:
            groups, narrow = _grouped(columns, CHECKS_OF_PART)
        except GrpoError as error:
            error.inside(f"{parts.column} = {value}")
            raise
        narrows.append(narrow)
        for one, of_parts in errors.items():
            try:
                check(groups, [one])
            except DataError as error:
                of_parts.append(error)
    for of_parts in errors.values():
        if len(of_parts) == len(narrows):
            raise of_parts[0]
    rule = whole.request.rule._replace(logged_column="")
    one_part_each(group(whole, rule))
    return narrows, (*of_input, *_without_rows(parts, values))


def _columns_of_all(
    tables: Sequence[Table], parts: PlanBy, *, warn: bool, over: OverTables
) -> tuple[Columns, list[str], Codes]:
    """Read each column once: the columns of all rows, the names of the parts, and the number of the part of every row.

    A plan that no row uses may need columns that the files lack.
    """
    requests = {}
    refused = {}
    for name, (plan, binding) in parts.plans.items():
        try:
            requests[name] = choose(layout(tables, binding), plan, warn=warn)
        except GrpoError as error:
            refused[name] = error
    if not requests:
        raise next(iter(refused.values()))
    whole = read_columns(united(requests, parts.column), over)
    values, codes = _values(whole.values[parts.column])
    sizes = np.bincount(codes).tolist()
    without = {value: size for value, size in zip(values, sizes, strict=True) if parts.name(value) not in parts.plans}
    if without:
        raise _no_plan(parts, without)
    for value in values:
        if (name := parts.name(value)) in refused:
            refused[name].inside(f"[plan.{name}]")
            raise refused[name]
        _refuse_absent(whole, whole.request.parts[name])
    return whole, values, codes


def _values(column: pl.Series) -> tuple[list[str], Codes]:
    """The names of the parts in order of first appearance, and the number of the part of every row."""
    coded = encode([column])
    texts = bare_texts(column.gather(coded.first)).fill_null(NULL)  # as the names of plans are written
    numbers: dict[str, int] = {}
    of_code = [numbers.setdefault(text, len(numbers)) for text in texts]
    parts = np.array(of_code, np.uint32)
    return list(numbers), parts[coded.codes.to_numpy()]


def _without_rows(parts: PlanBy, values: Sequence[str]) -> list[str]:
    """Warn of plans for values that no row has: one may be misspelled, and its rows then get the plan for all others."""
    unused = [plain(value) for value in sorted({*parts.plans} - {OTHERS, *values})]
    if OTHERS not in parts.plans or not unused:
        return []
    have = "which has a plan" if len(unused) == 1 else "which have plans"
    return [f"no row has {parts.column} = {', '.join(unused)}, {have}"]


def _no_plan(parts: PlanBy, without: Mapping[str, int]) -> DataError:
    """The error that lists values without a plan."""
    shown = []
    for value, count in without.items():
        rows = "row" if count == 1 else "rows"
        shown.append(f"{plain(value)} ({count:,} {rows})")
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    have = "a value has" if len(shown) == 1 else f"{len(shown)} values have"
    first = plain(next(iter(without)))
    return DataError(
        f"{parts.column}: {have} no plan: {', '.join(shown[:LISTED])}{more}",
        f"add --plan {first}:OPTION=X (in --config a table [plan.{first}]); add --plan {OTHERS}:OPTION=X for all other values",
    )


def _refuse_absent(whole: Columns, request: Request) -> None:
    """Refuse a column that no file has, if a plan with rows needs it."""
    names = {*column_names(whole.tables)}
    first = whole.tables[0]
    for name in {field_.name for field_ in request.fields} - request.optional:
        if whole.values[name].dtype == pl.Null and not is_there(name, names):
            raise absent(name, first.name, first.columns())


def _part(whole: Columns, value: str, rows: Index, name: str) -> Columns:
    """The columns of a part: those that the request of its plan names, in its rows."""
    request = whole.request.parts[name]
    read = {field_.name: whole.values[field_.name] for field_ in request.fields}
    request = replace(request, by=whole.request.by, value=value)
    own = replace(whole, request=request, values=read)
    return own.at(rows)
