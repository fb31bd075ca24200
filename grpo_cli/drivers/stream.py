"""The driver for a pipe whose groups arrive one after the other: each leaves as soon as it is complete.

Memory is one group (or one batch, with `--batch-by`) and a 16-byte digest of every key seen: a key that comes
back after its group has left would have had another advantage, so it is an error with its line.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from grpo_cli import sources
from grpo_cli.drivers.arriving import JSONL, blocks
from grpo_cli.engine import score
from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats import Weaving
from grpo_cli.formats.lines import is_blank
from grpo_cli.narrow import FileTable
from grpo_cli.outputs import STDOUT, added, refuse_columns, refuse_read_columns
from grpo_cli.schemas import NONE
from grpo_cli.sources import refuse_singletons, refuse_unscorable
from grpo_cli.tally import Tally

if TYPE_CHECKING:
    from grpo_cli.drivers.arriving import Block
    from grpo_cli.drivers.local import Job


def run(job: Job, source: BinaryIO, sink: BinaryIO) -> dict[str, Any]:
    """Copy lines from `source` to `sink`, each with its advantage; return the facts of all of them."""
    started = time.perf_counter()
    _refuse(job)
    tally = Tally()
    for block in blocks(source, *_boundary(job), job.binding.group_size):
        with block.located():
            _weave(job, block, sink, tally)
    if not tally.counts["rows"]:
        gone = tally.counts["dropped_rows"]
        raise DataError("-: no rows", f"{gone} were dropped as too few for a block" if gone else "nothing came in")
    found = tally.facts(job.plan) | {"preset": job.origin}
    if found["groups"] == found["rows"] > 1 and not job.binding.singletons_meant:
        found["warnings"].append("every group has a single row: the key may be an id of the rollout, not of the prompt")
    found |= {"inputs": [STDOUT], "outputs": ["stdout"], "advantage_column": job.output.column, "copied_rows": 0}
    return found | {"seconds": round(time.perf_counter() - started, 3)}


def _refuse(job: Job) -> None:
    """What a stream cannot do, it says before the first row."""
    plan, binding = job.plan, job.binding
    whole = "leave out --stream"
    refusals = (
        (list(job.inputs) != [STDOUT], "--stream reads standard input", "give - as the only input"),
        (job.binding.schema not in {None, NONE}, "--stream reads one plain row a line", whole),
        (job.skip_broken, "--on-error skip looks at all lines first", whole),
        (job.output.resume, "--resume keeps its notes in an output directory", "leave out --resume or --stream"),
        (job.output.long, "--stream gives every line back", f"{whole} and --long"),
        (job.output.to not in {None, STDOUT}, "--stream writes standard output", "leave out -o"),
        (job.output.only or job.output.in_place, "--stream gives every line back", f"{whole}, --only and --in-place"),
        (
            plan.uses_batch and binding.batch_by in {None, "input", "file"},
            "the plan needs a whole batch, and a stream has no end",
            f"add --batch-by COLUMN, or {whole}",
        ),
        (plan.estimator.spans_batches, f"{plan.method} looks back over the whole input", whole),
        (job.gate is not None, "--fail-on judges before the first row leaves", whole),
        (job.output.duplicate, "--duplicate draws from all groups", whole),
        (job.dry_run, "--explain looks at all groups", whole),
        (
            not binding.group and binding.group_size is None,
            "a stream cannot look ahead for the key",
            "name it with --group, or give --group-size N",
        ),
        (binding.group_within == "file" or (binding.batch_by == "file"), "standard input is one file", whole),
    )
    for holds, message, cure in refusals:
        if holds:
            raise UsageError(message, cure)


def _boundary(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns whose change ends a block; those of the group, where a block is a batch of them."""
    binding = job.binding
    within = [binding.group_within] if binding.group_within not in {None, "input"} else []
    group = tuple(name for name in (*binding.group, *within) if name)
    if job.plan.uses_batch and binding.batch_by:
        return tuple(name.strip() for name in binding.batch_by.split(",")), group
    return group, ()


def _weave(job: Job, block: Block, sink: BinaryIO, tally: Tally) -> None:
    if all(is_blank(row) for row in block.rows):
        sink.writelines(block.rows)
        return
    with block.held() as held:
        table = FileTable(held, JSONL)
        refuse_columns([table], job.output)
        narrow = sources.read([table], replace(job.binding, singletons_meant=True, schema=NONE), job.plan)
        refuse_read_columns(narrow, job.output)
        if not len(narrow.table):  # a last block that is too short, and is dropped
            tally.counts["dropped_rows"] += sum(narrow.lengths)
            return
        scored = score(job.plan, narrow.table)
        refuse_unscorable(job.plan, scored.frame[".scorable"], narrow)
        refuse_singletons(job.plan, scored.frame[".n"], narrow)
        kept = scored.frame[".kept"].to_numpy()
        rows = np.arange(len(kept)) if narrow.rows is None else narrow.rows
        take = None if kept.all() and narrow.rows is None else rows[kept]
        columns = added(scored, job.output).filter(scored.frame[".kept"])
        JSONL.weave(held, sink, Weaving(added=columns, take=take, replace=job.output.replace, metadata={}))
    sink.flush()
    tally.add(scored, narrow)
