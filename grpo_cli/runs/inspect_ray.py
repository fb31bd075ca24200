"""`inspect --engine ray`: one line for each group comes to this process, and the facts of rows that partitions have counted."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from grpo_cli.errors import UsageError
from grpo_cli.read.open_tables import find_inputs, open_tables, skipped_warnings
from grpo_cli.runs.inspect import size_of, with_duplicates
from grpo_cli.runs.partitions import Look, inspect_partition
from grpo_cli.runs.ray_stages import DEFAULTS, RayOptions, refuse_order, refuse_stdin, stages
from grpo_cli.stats import facts
from grpo_cli.stats.difficulty import solve_rates
from grpo_cli.stats.inspection import RowFacts, all_facts, what_is_read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.engine.moments import Moments
    from grpo_cli.runs.inspect import Job
    from grpo_cli.runs.partitions import GroupNames, Outcome, Task, Whole
    from grpo_cli.runs.ray_stages import Stages
    from grpo_cli.write.weave import Phase


def run(job: Job, phase: Phase = lambda *_: None, ray: RayOptions = DEFAULTS) -> dict[str, Any]:
    """The facts of an inspection of the files."""
    refuse_order(job.plan)
    refuse_stdin(job.inputs)
    if job.skip_broken:
        raise UsageError("--on-error skip keeps what is left of a file in this process", "leave out --engine ray")
    if job.plan.rewards.combine == "normalize":
        wrong = "--combine normalize counts which components occur together in all rows"
        raise UsageError(wrong, "leave out --engine ray, or look at each --reward by itself")
    phase("reading")
    inputs, skipped = find_inputs(job.inputs)
    tables = open_tables(inputs, job.binding, max_line=job.max_line)
    view = with_duplicates(job.view, size_of(tables))
    binding, plan, columns = what_is_read(tables, job.binding, job.plan, view)
    with stages(ray, phase, tables, binding, plan) as here:
        rows = here.read()
        outcomes, others = here.compute(_inspect, rows, 3, Look(view, columns))
        names, counted = zip(*others, strict=True)
        groups, groups_of = _all_groups(outcomes)
        row_facts = _with_distributions(here, outcomes, counted)
        summary = here.summary(rows, outcomes, counted)
        del summary["dropped_rows"]
        summary["reward"] |= here.at_ends(summary["reward"], counted, 0)
        summary["zero_variance"] = facts.zero_variance(groups)

        def label(code: int) -> str:
            part, own = groups_of[code]
            ((found, _),) = here.cluster.run(_label, [(names[part], own)])
            return str(found)

        result = all_facts(summary, row_facts, groups, plan, columns, view, label)
    for table in tables:
        table.source.check()
    warnings = [*result["warnings"], *skipped_warnings(skipped)]
    return {**result, "inputs": [table.name for table in tables], "warnings": warnings}


def _inspect(task: Task, whole: Whole, known: Sequence[Moments], look: Look, *parts: Any) -> tuple[Any, ...]:
    return inspect_partition(task, whole, known, parts, look)


def _label(names: GroupNames, code: int) -> str:
    return names.label(code)


def _all_groups(outcomes: Sequence[Outcome]) -> tuple[pl.DataFrame, Any]:
    """The groups in the order of the input with new codes; and of each code the number of its partition and its code there."""
    parts = [one.groups.with_columns(pl.lit(at, pl.UInt32).alias("partition")) for at, one in enumerate(outcomes)]
    groups = pl.concat(parts).sort("first")
    for one in outcomes:
        one.groups = pl.DataFrame()  # they are as many as all groups
    groups_of = groups.select("partition", "code").to_numpy()
    groups = groups.with_columns(code=pl.Series(np.arange(len(groups), dtype=np.uint32)))
    return groups.with_columns(solve_rates(groups)), groups_of


def _with_distributions(here: Stages, outcomes: Sequence[Outcome], counted: Sequence[Any]) -> RowFacts:
    """The facts of all rows, with the distribution of each of several reward columns."""
    merged = reduce(RowFacts.merge, [one.rows for one in outcomes if one.rows is not None])
    components = {}
    for column, (name, one) in enumerate(merged.components.items(), start=1):
        distribution = here.distribution(one.moments, outcomes, counted, column)
        distribution |= here.at_ends(distribution, counted, column)
        components[name] = replace(one, distribution=distribution)
    return replace(merged, components=components)
