"""From tables to rows that know their group: the steps of `read` in order, and the same for each part of --plan-by.

The columns of all parts are read together; from then on, each part is processed like a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index, stable_order
from grpo_cli.engine.plan import OTHERS, Plan
from grpo_cli.errors import DataError, GrpoError, UsageError
from grpo_cli.read.checks.check import Check, check
from grpo_cli.read.checks.merges import one_part_each
from grpo_cli.read.checks.registry import CHECKS, CHECKS_OF_ALL_PARTS, CHECKS_OF_INPUT, CHECKS_OF_PART
from grpo_cli.read.columns import Columns, read_columns
from grpo_cli.read.group_keys import Coded, encode
from grpo_cli.read.groups import Groups, Numbers, group, numbers, with_rollouts
from grpo_cli.read.layout import Layout, layout, of_single_reward
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.request import Request, Rule, choose, united
from grpo_cli.read.steps_apart import steps_apart
from grpo_cli.read.tables import FILE, Binding, KlField, OverTables, Table, column_names
from grpo_cli.read.together import SMALL, Together, alike
from grpo_cli.read.written import canonical_texts, number_of_cell, values_of
from grpo_cli.schemas.sample import values_of as found_at
from grpo_cli.values.cells import Field, bare_texts, canonical
from grpo_cli.values.key_text import plain
from grpo_cli.values.paths import PARENT, Absent, absent, is_there

NULL = "null"  # the name of the part without a value
SHOWN = 3  # values in a message about their type
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
    columns = read_columns(choose(layout, plan, warn=warn), over)
    columns, numbered, said = steps_apart(columns, numbers(columns, columns.request.rule, known))
    _, narrow = _grouped(columns, numbered, checks)
    return replace(narrow, warnings=(*said, *narrow.warnings))


@contextmanager
def columns_first(
    tables: Sequence[Table], *reads: tuple[Plan, Binding] | PlanBy, names: Collection[str] = ()
) -> Iterator[None]:
    """Tell what is wrong with the columns that these read before a usage error about outputs, such as one that exists.

    All rows are read only if no file begins with rows that have some column: it may be a typo, or come late. `names` are of further columns.
    """
    try:
        yield
    except UsageError:
        for read_by in reads:
            if not all(_is_seen(name, tables) for name in _names_read(_request(tables, read_by))):
                _read_all(tables, read_by)
        for name in names:
            if not _is_seen(name, tables):
                _refuse_unread(tables, name)
        raise


def _read_all(tables: Sequence[Table], read_by: tuple[Plan, Binding] | PlanBy) -> None:
    if isinstance(read_by, PlanBy):
        read_parts(tables, read_by, warn=False)
    else:
        plan, binding = read_by
        read(layout(tables, binding), plan, warn=False)


def _refuse_unread(tables: Sequence[Table], name: str) -> None:
    """Refuse a column that no row of any table has."""
    for table in tables:
        try:
            table.scan([Field(name, "key")])
        except Absent as error:
            lacking = error
        else:
            return
    raise lacking


def _request(tables: Sequence[Table], read_by: tuple[Plan, Binding] | PlanBy) -> Request:
    """The columns that a plan reads, or those of --plan-by."""
    if isinstance(read_by, PlanBy):
        return united(_requests(tables, read_by, warn=False)[0], read_by.column)
    plan, binding = read_by
    return choose(layout(tables, binding), plan, warn=False)


def _names_read(request: Request) -> Iterator[str]:
    """The columns that some row must have."""
    for wanted in request.fields:
        if isinstance(wanted, KlField):
            yield from wanted.columns
        elif wanted.name not in request.optional - request.sought:
            yield wanted.name


def _is_seen(name: str, tables: Sequence[Table]) -> bool:
    """Whether the first rows of each file have a column; its schema may compute it."""
    for table in tables:
        derived = {PARENT, FILE} if table.schema is None else {PARENT, FILE, *table.schema.derive}
        records = table.sample().records
        if name not in derived and not any(True for record in records for _ in found_at(record, name)):
            return False
    return True


def _grouped(columns: Columns, numbered: Numbers, checks: Sequence[Check]) -> tuple[Groups, Narrow]:
    """The groups of these rows, and the rows that know them."""
    groups = with_rollouts(group(columns, columns.request.rule, numbered))
    return groups, Narrow.of(groups, check(groups, checks))


# --- parts of the rows, each with its plan ---------------------------------------------------------------------


class PlanBy(NamedTuple):
    """--plan-by: the column that divides the rows, and the plan of each value with the columns it reads."""

    column: str
    plans: Mapping[str, tuple[Plan, Binding]]
    of_several: tuple[str, ...] = ()  # flags for all plans, which have no effect if each reads a single reward


class _Part(NamedTuple):
    """The rows of a value."""

    value: str  # as it is shown
    plan: str  # the name of its plan
    rows: Index


def read_parts(
    tables: Sequence[Table], parts: PlanBy, *, warn: bool = True, over: OverTables = map
) -> tuple[list[Narrow], tuple[str, ...]]:
    """The same for each part of the rows, as if there were no others; and the warnings that concern no single part.

    Some checks stop the run only if every part fails them: one part may have a single prompt with one row.
    """
    whole, of_values = _columns_of_all(tables, parts, warn=warn, over=over)
    of_input = check(group(whole, Rule()), CHECKS_OF_INPUT)
    narrows = []
    errors: dict[Check, list[DataError]] = {one: [] for one in CHECKS_OF_ALL_PARTS}
    for part, read_part in zip(of_values, _readers(whole, of_values), strict=True):
        try:
            narrow, failed = read_part()
        except GrpoError as error:
            error.inside(f"{parts.column} = {part.value}")
            raise
        narrows.append(narrow)
        for one, why in failed.items():
            errors[one].append(why)
    for of_parts in errors.values():
        if len(of_parts) == len(narrows):
            raise of_parts[0]
    if parts.of_several and all(len(narrow.reward_names) == 1 for narrow in narrows):
        raise of_single_reward(parts.of_several[0], narrows[0].reward_names[0])
    rule = whole.request.rule._replace(logged_column="")
    one_part_each(group(whole, rule))
    return narrows, (*of_input, *_without_rows(parts, of_values))


def _columns_of_all(
    tables: Sequence[Table], parts: PlanBy, *, warn: bool, over: OverTables
) -> tuple[Columns, list[_Part]]:
    """Read each column once: the columns of all rows, and the parts.

    A plan that no row uses may need columns that the files lack.
    """
    requests, refused = _requests(tables, parts, warn=warn)
    whole = read_columns(united(requests, parts.column), over)
    of_values = _of_values(whole.values[parts.column], parts, typed=whole.typed)
    without = {part.value: len(part.rows) for part in of_values if part.plan not in parts.plans}
    if without:
        raise _no_plan(parts, without)
    for name in dict.fromkeys(part.plan for part in of_values):
        if name in refused:
            refused[name].inside(f"[plan.{name}]")
            raise refused[name]
        _refuse_absent(whole, whole.request.parts[name])
    return whole, of_values


def _requests(tables: Sequence[Table], parts: PlanBy, *, warn: bool) -> tuple[dict[str, Request], dict[str, GrpoError]]:
    """What each plan reads, and why some cannot: the files may lack what a plan needs that no row uses."""
    requests = {}
    refused = {}
    layouts: list[Layout] = []  # most plans name the same columns
    for name, (plan, binding) in parts.plans.items():
        try:
            found = next((one for one in layouts if one.flags == binding), None)
            if found is None:
                found = layout(tables, binding)
                layouts.append(found)
            requests[name] = choose(found, plan, warn=warn)
        except GrpoError as error:
            refused[name] = error
    if not requests:
        raise next(iter(refused.values()))
    return requests, refused


def _of_values(column: pl.Series, parts: PlanBy, *, typed: bool) -> list[_Part]:
    """The parts in order of first appearance."""
    coded = encode([column])
    keys = column.gather(coded.first).alias("")
    texts = bare_texts(keys)
    if keys.dtype.is_temporal() or isinstance(keys.dtype, pl.Binary):
        texts = texts.str.replace("^[a-z]+:", "")
    names: dict[str, int] = {}
    of_code = np.array([names.setdefault(text, len(names)) for text in texts.fill_null(NULL)], np.uint32)
    codes = of_code[coded.codes.to_numpy()]
    rows = np.split(stable_order(codes), np.cumsum(np.bincount(codes))[:-1])
    _, first = np.unique(of_code, return_index=True)
    plans = _plans_of(keys.gather(first), list(names), parts, typed=typed)
    return [_Part(*part) for part in zip(names, plans, rows, strict=True)]


def _plans_of(keys: pl.Series, names: Sequence[str], parts: PlanBy, *, typed: bool) -> list[str]:
    """The name of the plan of each value: its own name, else another spelling of the value (2.0 of 2 in a column of numbers), else all others."""
    is_cell = not typed and keys.dtype == pl.String
    spelled = dict[str, list[str]]()
    for plan in parts.plans:
        if plan in {OTHERS, NULL}:
            continue
        texts = {number_of_cell(plan) or ""} - {""} if is_cell else canonical_texts(plan, keys.dtype)
        if texts is None:
            there = f"{parts.column} holds {values_of(keys.dtype)} ({', '.join(map(plain, names[:SHOWN]))})"
            raise DataError(f"{there}, and the plan {plan!r} is for none", "name each plan by a value of the column")
        for text in texts:
            spelled.setdefault(text, []).append(plan)
    plans = list[str]()
    key: str | None
    for key, name in zip(keys if is_cell else canonical(keys), names, strict=True):
        value = number_of_cell(key or "") if is_cell else key
        others = spelled.get(value or "", [])
        # In CSV, 2 and 2.0 are two texts, each of which may have a plan.
        if len(others) > 1 and not (is_cell and name in parts.plans):
            both = " and ".join(others)
            raise DataError(f"{parts.column}: the plans {both} are for the same value", "leave out all but one of them")
        plans.append(name if name in parts.plans else others[0] if others else OTHERS)
    return plans


# The narrow table of a part, and the errors of the checks that stop the run only if every part has them.
_ReadPart = Callable[[], tuple[Narrow, Mapping[Check, DataError]]]


def _readers(whole: Columns, parts: Sequence[_Part]) -> list[_ReadPart]:
    """How each part is read: together with others, or from its own columns, which are copied only when it is its turn."""
    numbered = _numbered(whole, parts)
    readers: list[_ReadPart] = [partial(_read_alone, whole, part, numbered) for part in parts]
    same = dict[Hashable, list[int]]()
    for at, part in enumerate(parts):
        if len(part.rows) >= SMALL:
            continue  # its steps cost less than its rows
        same.setdefault(alike(whole.request.parts[part.plan]), []).append(at)
    for places in same.values():
        some = [parts[at] for at in places]
        if len(some) > 1 and (together := _together(whole, some, numbered)):
            for nth, (at, part) in enumerate(zip(places, some, strict=True)):
                readers[at] = partial(_cut, together, nth, _request_of(whole, part))
    return readers


def _read_alone(whole: Columns, part: _Part, numbered: Numbers | None) -> tuple[Narrow, Mapping[Check, DataError]]:
    """Read a part from its own columns."""
    columns = _columns_of(whole, part)
    own = numbers(columns, columns.request.rule) if numbered is None else numbered.at(part.rows)
    groups, narrow = _grouped(columns, own, CHECKS_OF_PART)
    return narrow, _failed(groups, CHECKS_OF_ALL_PARTS)


def _together(whole: Columns, parts: Sequence[_Part], numbered: Numbers | None) -> Together | None:
    """The groups of these parts, whose requests are alike."""
    rows = np.concatenate([part.rows for part in parts])
    columns = _columns_of(whole, parts[0]._replace(rows=rows))
    checks = (*CHECKS_OF_PART, *CHECKS_OF_ALL_PARTS)
    return Together.of(columns, [len(part.rows) for part in parts], checks, numbered and numbered.at(rows))


def _cut(together: Together, nth: int, request: Request) -> tuple[Narrow, Mapping[Check, DataError]]:
    """A part of these."""
    speaking = together.speaking
    if not speaking:
        return together.narrow(nth, request, ()), {}
    groups = together.groups(nth, request)
    warnings = check(groups, [one for one in CHECKS_OF_PART if one in speaking])
    failed = _failed(groups, [one for one in CHECKS_OF_ALL_PARTS if one in speaking])
    return together.narrow(nth, request, warnings), failed


def _failed(groups: Groups, checks: Sequence[Check]) -> dict[Check, DataError]:
    """The errors of these checks."""
    failed = {}
    for one in checks:
        try:
            check(groups, [one])
        except DataError as error:
            failed[one] = error
    return failed


def _numbered(whole: Columns, parts: Sequence[_Part]) -> Numbers | None:
    """The rows of all parts by key and batch, which are numbered once; None if the plans differ in what these are."""
    rules = [whole.request.parts[name].rule for name in dict.fromkeys(part.plan for part in parts)]
    read = [(rule.key, rule.within, rule.within_columns, rule.batch_parts) for rule in rules]
    return numbers(whole, rules[0]) if all(one == read[0] for one in read) else None


def _without_rows(parts: PlanBy, of_values: Sequence[_Part]) -> list[str]:
    """Warn of plans for values that no row has: one may be misspelled, and its rows then get the plan for all others."""
    used = {part.plan for part in of_values}
    unused = [plain(value) for value in sorted({*parts.plans} - {OTHERS, *used})]
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
        [
            f"add --plan {first}:OPTION=X (in --config a table [plan.{first}])",
            f"add --plan {OTHERS}:OPTION=X for all other values",
        ],
    )


def _refuse_absent(whole: Columns, request: Request) -> None:
    """Refuse a column that no file has, if a plan with rows needs it."""
    names = {*column_names(whole.tables)}
    first = whole.tables[0]
    needed = [field_.name for field_ in request.fields if field_.name not in request.optional]
    for name in needed:
        if whole.values[name].dtype == pl.Null and not is_there(name, names):
            raise absent(name, first.name, first.columns())


def _columns_of(whole: Columns, part: _Part) -> Columns:
    """The columns of a part: those that the request of its plan names, in its rows."""
    request = _request_of(whole, part)
    read = {field_.name: whole.values[field_.name] for field_ in request.fields}
    own = replace(whole, request=request, values=read)
    return own.at(part.rows)


def _request_of(whole: Columns, part: _Part) -> Request:
    """The request of a part."""
    return replace(whole.request.parts[part.plan], by=whole.request.by, value=part.value, of_plan=part.plan)
