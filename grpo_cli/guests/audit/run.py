"""`audit` of files: inputs, tables, the formula that made their advantages, and a gate that can fail the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, UnknownName
from grpo_cli.guests.audit.candidates import Said
from grpo_cli.guests.audit.facts import Audited
from grpo_cli.guests.audit.groupings import audit
from grpo_cli.guests.audit.readings import FLOAT32_ERROR
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import claim_of, refuse_without_effect, shape_of, weights_of
from grpo_cli.read.columns import Columns, read_columns
from grpo_cli.read.groups import group
from grpo_cli.read.known_names import ADVANTAGES, LENGTHS, STEP_LIKE
from grpo_cli.read.layout import layout
from grpo_cli.read.request import choose
from grpo_cli.read.tables import Binding, OverTables, Table, column_names
from grpo_cli.read.updates import updated, updates_of
from grpo_cli.runs.asked import OnFiles, binding_of, made
from grpo_cli.runs.gate import Gate
from grpo_cli.runs.progress import HERE, Workers
from grpo_cli.schemas.table import LISTED
from grpo_cli.values.cells import Excerpt, Field, Kind, are_numbers, number_series, where
from grpo_cli.values.paths import Absent
from grpo_cli.write.write_outputs import Phase

SHOWN = 10  # columns of numbers, in an error


@dataclass(frozen=True, kw_only=True)
class Job(OnFiles):
    """What to audit: the column of advantages (None: found by name), and what the user says about their formula."""

    column: str | None = None  # that has the logged advantages; None: found by name
    # what the user says about the formula: weights, shaping and a claimed plan
    said: Said = field(default_factory=Said)
    gate: Gate | None = None  # the condition of --fail-on, checked when the facts are known

    @classmethod
    def of(cls, given: Given, **more: Any) -> Job:
        """The job of these options; `more` are further fields."""
        given = given.to_command("audit")
        return made(
            cls,
            given,
            gate=Gate.of(given, Audited),
            binding=binding_of(given),
            said=said_of(given),
            **more,
        )


def said_of(given: Given) -> Said:
    """What options say about the formula."""
    refuse_without_effect(given)
    return Said(weights=weights_of(given), shape=shape_of(given), claim=claim_of(given), claimed=given.preset or "")


def run(job: Job, phase: Phase = lambda *_: None, workers: Workers = HERE) -> Audited:
    """Audit the files, which the workers read; return the facts, which a gate error carries as well."""
    phase("reading")
    tables, skipped = job.opened(workers.over_far)
    return audited(job, tables, phase, workers.begin(tables, phase), skipped)


def audited(
    job: Job,
    tables: Sequence[Table],
    phase: Phase = lambda *_: None,
    over: OverTables = map,
    skipped: Sequence[str] = (),
) -> Audited:
    """The facts of these tables, which `over` reads, if the gate lets them pass; `skipped` warns of files left out."""
    column, binding = _what_is_read(column_names(tables), job.binding, job.column, tables[0])
    columns = read_columns(choose(layout(tables, binding), job.said.plan), over)
    logged = _logged_in(tables, column, job, over)
    job.said.plan.refuse_distill("an audit of one advantage a row")
    trained = _trained(columns, logged)
    facts = audit(trained, job.binding, logged, job.said, phase)
    facts = replace(facts, warnings=[*facts.warnings, *skipped])
    if rest := columns.height - trained.height:
        note = f"left out {rest:,} rows of groups that have not been trained on, or not whole"
        facts = replace(facts, notes=[*facts.notes, note])
    if job.gate is not None:
        job.gate.check(facts)
    return facts


def _what_is_read(names: Sequence[str], binding: Binding, column: str | None, table: Table) -> tuple[str, Binding]:
    """The column of advantages, and the binding with all columns by which rows may be grouped; `names` are the column names."""
    if column is None:
        declared = [table.schema.advantage] if table.schema is not None and table.schema.advantage else []
        column = next((name for name in (*ADVANTAGES, *declared) if name.partition(".")[0] in names), None)
        if column is None:
            raise _no_advantages(names, binding, table)
    elif column not in names and column.partition(".")[0] not in names:
        raise UnknownName.among("column", column, names)
    # Then formulas that weight by length are tried, too.
    length = next(({"length": name} for name in _of_numbers(names, binding, table) if name in LENGTHS), {})
    steps: dict[str, Kind] = {name: "key" for name in STEP_LIKE if name in names}
    return column, replace(
        binding,
        roles={**length, **binding.roles},
        batch_by=binding.batch_by or "input",
        carried=steps,
        singletons_meant=True,
    )


def _no_advantages(names: Sequence[str], binding: Binding, table: Table) -> DataError:
    """The error if no column has them: it lists the columns of numbers."""
    numbers = _of_numbers(names, binding, table)
    return DataError(
        f"{table.name}: no column has advantages",
        f"name it with --column NAME (columns of numbers: {', '.join(numbers[:SHOWN]) or 'none'})",
    )


def _of_numbers(names: Sequence[str], binding: Binding, table: Table) -> list[str]:
    """The columns of numbers, without keys and rewards."""
    records = table.sample().records
    others = [name for name in names if name not in {*binding.group, *binding.rewards}]
    return [name for name in others if are_numbers(row.get(name) for row in records)]


def _trained(columns: Columns, logged: pl.Series) -> Columns:
    """Only the groups whose advantages are all known, if they are written after the rows."""
    schema = columns.request.schema
    if schema is None or logged.name != schema.advantage or not any(map(updates_of, columns.tables)):
        return columns
    known = logged.is_finite().fill_null(value=False)
    if columns.rows is not None:
        known = known.gather(columns.rows)
    scored = pl.select(pl.any_horizontal(reward.is_finite() for reward in columns.rewards())).to_series()
    codes = group(columns, columns.request.rule).coded.codes
    rows = pl.select(group=codes, known=known, waits=scored & ~known)
    is_trained = pl.col("known").any() & ~pl.col("waits").any()
    trained = rows.select(is_trained.over("group")).to_series()
    return columns.at(trained.arg_true().to_numpy()) if trained.any() else columns


def _logged_in(tables: Sequence[Table], name: str, job: Job, over: OverTables) -> pl.Series:
    """The advantage of every row of the tables."""
    try:
        return pl.concat(list(over(partial(_logged, name=name), tables)))
    except Absent:
        if job.column is not None:
            raise
        # Some files of a tool have the column that its schema names, others do not.
        raise _no_advantages(column_names(tables), job.binding, tables[0]) from None


def _logged(table: Table, name: str) -> pl.Series:
    """The advantage of every row; of a list with an entry per token, the one value of its unmasked tokens."""
    if (later := updated(table, name)) is not None:
        return later
    try:
        return table.scan([Field(name, "number")]).frame[name].cast(pl.Float64)
    except DataError:
        lists = _token_lists(table, name).alias("")
    values = lists.list.eval(pl.element().filter(pl.element() != 0)).list
    spread = values.max() - values.min()
    scale = pl.select(pl.max_horizontal(values.max().abs(), 1.0)).to_series()
    uneven = spread > FLOAT32_ERROR * scale
    if uneven.any():
        row = uneven.arg_max() or 0
        wrong = f"{table.place(row)}: {name} has different values for the tokens of one row"
        raise DataError(wrong, "advantages of a critic cannot be audited: rewards alone do not determine them")
    return where(lists.list.len() > 0, values.mean().fill_null(0.0)).alias(name)


def _token_lists(table: Table, name: str) -> pl.Series:
    """The list of every row. A record with lists of rollouts has a list of lists: NeMo-RL writes `[[0.5, 0.5]]`."""
    field = Field(name, "numbers")
    try:
        return table.scan([field]).frame[name]
    except DataError:
        if not (table.schema and table.schema.layout in LISTED):
            raise
    scanned = table.scan([])
    frames = table.rows(Excerpt(scanned.index, np.arange(len(scanned.frame)), [name], as_json=True))
    values = [None if text is None else json.loads(text) for frame in frames for text in frame[name]]
    return number_series(field, values, table.place)
