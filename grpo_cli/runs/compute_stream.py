"""`compute --stream`: groups arrive through a pipe one after the other, and each is written as soon as it is complete.

In memory are one group (or one batch, with `--batch-by`), the few megabytes that arrived together, and a 16-byte digest
of every key so far. A key that comes back after its group was written would have changed its advantages: that is an
error with the line.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import BinaryIO, NamedTuple

import numpy as np

from grpo_cli.engine.column_stats import Numbers
from grpo_cli.errors import DataError, UsageError, Way
from grpo_cli.files.compression import packer_of
from grpo_cli.files.inputs import InMemory, arrivals
from grpo_cli.files.kept import note_standard_input
from grpo_cli.formats import registry
from grpo_cli.formats.interface import Weaving
from grpo_cli.read import build_table
from grpo_cli.read.checks.registry import CHECKS_OF_STREAM
from grpo_cli.read.layout import layout
from grpo_cli.read.tables import FileTable
from grpo_cli.runs.compute_files import Facts, Job, scored_unless_refused
from grpo_cli.schemas.table import NONE
from grpo_cli.stats.facts import Counts, Tally, group_facts
from grpo_cli.values.cells import Field, canonical
from grpo_cli.values.paths import items
from grpo_cli.values.slices import Ints
from grpo_cli.write.outputs import STDOUT, Target, added, refuse_columns, refuse_read_columns, refuse_summary
from grpo_cli.write.token_lists import OnTokens, token_facts, tokens_of_rows


def run(job: Job, source: BinaryIO, sink: BinaryIO) -> Facts:
    """Copy lines from `source` to `sink`, each with its advantage; return the facts."""
    started = time.perf_counter()
    _refuse(job)
    note_standard_input()
    output = job.output
    refuse_summary(output, [Target(None, registry.lines())])
    tally = Tally()
    ends, groups = _boundary(job)
    for portion in portions(source, ends, groups, job.binding.group_size, job.binding.max_line):
        tally = tally.merge(_weave(job, portion, sink))
    counts = tally.counts
    if not counts.rows:
        dropped = counts.dropped_rows
        why = f"{dropped} dropped: incomplete last block" if dropped else "standard input was empty"
        raise DataError("-: no rows", why)
    summary = tally.facts(job.plan)
    warnings = []
    if summary.groups == summary.rows > 1 and not job.binding.singletons_meant:
        warnings.append("every group has a single row: the key may be an id of the rollout, not of the prompt")
    if summary.left_out == summary.rows:
        warnings.append("every row is left out of its group")
    columns = output.tokens
    tokens = None if columns is None else OnTokens(columns.given, counts.tokens, counts.response_tokens)
    return Facts(
        summary=summary.warned(warnings),
        preset=job.origins.get(""),
        inputs=[STDOUT],
        advantage_column=output.column,
        more_columns=output.names[1:],
        dropped_rows=counts.dropped_rows,
        copied_rows=0,
        outputs=["stdout"],
        per_token=tokens,
        seconds=round(time.perf_counter() - started, 3),
    )


def _refuse(job: Job) -> None:
    """Refuse what a stream cannot do, before the first row is read."""
    plan = job.plan
    binding = job.binding
    output = job.output
    whole = "leave out --stream"
    needs_batch = plan.uses_batch and binding.batch_by in {None, "input", "file"}
    has_paths = any("[]" in name for name in (*binding.rewards, *binding.group))
    has_no_key = not binding.group and binding.group_size is None
    refusals = (
        (list(job.inputs) != [STDOUT], "--stream reads standard input", "give - as the only input"),
        (binding.schema not in {None, NONE}, "--stream reads one plain row per line", whole),
        (job.parts is not None, "--stream computes one plan, and --plan-by has several", whole),
        (binding.skip_broken, "--on-error skip looks at all lines first", whole),
        (output.long, "--stream writes every line back", f"{whole} and --long"),
        (output.to not in {None, STDOUT}, "--stream writes standard output", "leave out -o"),
        (output.only or output.in_place, "--stream writes every line back", f"{whole}, --only and --in-place"),
        (
            needs_batch,
            "the plan needs a whole batch, and a stream has no end",
            Way("--batch-by", why=f", or {whole}", fill="COLUMN", lead="add"),
        ),
        (plan.estimator.spans_batches, f"{plan.method} looks back over the whole input", whole),
        (job.gate is not None, "--fail-on is checked before the first row is written", whole),
        (output.duplicate, "--duplicate samples from all groups", whole),
        (job.dry_run, "--explain needs all groups", whole),
        (has_paths, "--stream reads rows, not paths into their lists", whole),
        (
            has_no_key,
            "a stream cannot look ahead to find the key",
            [Way("--group", lead="name it with"), Way("--group-size", fill="N", lead="give")],
        ),
        (binding.group_within == "file" or binding.batch_by == "file", "standard input is one file", whole),
    )
    for holds, message, cure in refusals:
        if holds:
            raise UsageError(message, cure)
    if output.tokens is not None:
        output.tokens.check([])


def _boundary(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns whose change ends a portion, and the columns of the group if a portion is a batch (otherwise none)."""
    binding = job.binding
    within = [binding.group_within] if binding.group_within not in {None, "input"} else []
    group = tuple(name for name in (*binding.group, *within) if name)
    if job.plan.uses_batch and binding.batch_by:
        return tuple(items(binding.batch_by)), group
    return group, ()


def _weave(job: Job, portion: InMemory, sink: BinaryIO) -> Tally:
    """Write the rows of a portion with their advantages, and return their counts; a portion of blank lines is copied."""
    if not len(registry.lines().row_starts(portion.data)):
        sink.write(portion.data)
        return Tally()
    output = job.output
    (table,) = refuse_columns([FileTable(portion, registry.lines())], output)
    binding = replace(job.binding, singletons_meant=True, schema=NONE, compare_prompts=False)
    narrow = build_table.read(layout([table], binding), job.plan, checks=CHECKS_OF_STREAM)
    refuse_read_columns(narrow.request.read_names, output)
    if not len(narrow.table):  # a last block that is too short, and is dropped
        return Tally(counts=Counts(dropped_rows=sum(narrow.lengths)))
    scored = scored_unless_refused(narrow)
    kept = scored.frame[".kept"].to_numpy()
    rows = np.arange(len(kept)) if narrow.rows is None else narrow.rows
    take = None if kept.all() and narrow.rows is None else rows[kept]
    tokens = None if output.tokens is None else tokens_of_rows(narrow, scored, output.tokens)
    columns = added(scored, output, tokens=tokens).filter(scored.frame[".kept"])
    weaving = Weaving(added=columns, take=take, replace=output.replace)
    table.format.weave(portion, narrow.scans[0].index, sink, weaving)
    sink.flush()
    tally = Tally.of(scored, narrow, group_facts(scored))
    if tokens is not None and output.tokens is not None:
        counted = token_facts(output.tokens, tokens)
        of_tokens = Counts(tokens=counted.tokens, response_tokens=counted.response_tokens)
        tally = replace(tally, counts=tally.counts + of_tokens)
    return replace(tally, reward=Numbers.of(scored.rows[".reward"]))


# --- portions of whole groups ------------------------------------------------------------------------------


def portions(
    source: BinaryIO, ends: tuple[str, ...], groups: tuple[str, ...], size: int | None, max_line: int
) -> Iterator[InMemory]:
    """Portions of whole groups, each as soon as it is complete: a change of `ends`, or `size` rows, ends a portion.

    They know how many lines came before. Blank lines stay with the row before them. The waiting lines are the beginning of one portion, so it ends in what arrives next.
    """
    keys = _Keys(ends, groups)
    waiting = list[bytes]()  # the parts of that portion
    rows = 0  # that wait
    before = 0  # lines that came before them
    arrived = 0  # lines, those that wait among them
    for data in _whole_lines(source, max_line):
        starts = registry.lines().row_starts(data)
        if ends:
            cut = keys.add(InMemory.of(data, STDOUT, arrived), starts)
        else:
            cut, rows = _end_of_blocks(data, starts, rows, size)
        if cut is not None:
            yield InMemory.of(b"".join([*waiting, data[:cut]]), STDOUT, before)
            waiting = []
            before = arrived + data.count(b"\n", 0, cut)
        waiting.append(data[cut:])
        arrived += data.count(b"\n")
    if any(waiting):
        keys.complete(len(keys.runs))
        yield InMemory.of(b"".join(waiting), STDOUT, before)


def _end_of_blocks(data: bytes, starts: Ints, waiting: int, size: int | None) -> tuple[int | None, int]:
    """Where the last block of so many rows ends in what has arrived, None if none does; and the rows that wait from then on."""
    rows = waiting + len(starts)
    left = rows % size if size else rows
    if left == rows:
        return None, rows
    return (int(starts[-left]) if left else len(data)), left


def _whole_lines(source: BinaryIO, max_line: int) -> Iterator[bytes]:
    """Lines as they arrive, without waiting for a buffer to fill."""
    rest = b""
    for part in arrivals(source):
        data = rest + part
        if packer := packer_of(data):
            raise UsageError(
                f"--stream reads plain JSON lines, not {packer}", ["unpack them first", "leave out --stream"]
            )
        cut = data.rfind(b"\n") + 1
        rest = data[cut:]
        if cut:
            yield data[:cut]
        if len(rest) > max_line:
            raise DataError(
                f"-: a line of more than {max_line:,} bytes", Way("--max-line", why="allows longer lines", fill="BYTES")
            )
    if rest:
        yield rest


class _Run(NamedTuple):
    """Consecutive rows with the same key: where they begin, and digests of the key."""

    start: int  # in what arrived with them
    line: int
    end: bytes  # digest of the columns whose change ends a portion
    group: bytes  # digest of the group's columns, if a portion is a batch


@dataclass
class _Keys:
    """The keys of rows as they arrive: where portions end, and which keys have been complete before."""

    ends: tuple[str, ...]  # the columns whose change ends a portion
    groups: tuple[str, ...]  # those of the group, where a portion is a batch
    runs: list[_Run] = field(default_factory=list)  # of the portion that waits
    left: set[bytes] = field(default_factory=set)  # digests of complete keys: one that comes back is an error
    # for the digest of each group that of its batch, where a portion is a batch
    portion_of: dict[bytes, bytes] = field(default_factory=dict)

    def add(self, arrived: InMemory, starts: Ints) -> int | None:
        """Add what has arrived; return how many of its bytes belong to a portion that is now complete, None if none is."""
        if not len(starts):
            return None
        known = len(self.runs)
        for run in self._runs_of(arrived, starts):
            if not self.runs or run[2:] != self.runs[-1][2:]:
                self.runs.append(run)
        # The portion ends where the key has changed last: the run from there on may go on in what arrives next.
        for at in reversed(range(max(known, 1), len(self.runs))):
            if self.runs[at].end != self.runs[at - 1].end:
                self.complete(at)
                return self.runs[0].start
        return None

    def _runs_of(self, arrived: InMemory, starts: Ints) -> Iterator[_Run]:
        """The runs of rows with the same key in what has arrived."""
        names = dict.fromkeys((*self.ends, *self.groups))
        frame = registry.lines().scan(arrived, [Field(name, "key") for name in names]).frame
        changed = reduce(or_, (key.ne_missing(key.shift()) for key in frame))
        first = np.union1d([0], changed.arg_true())
        texts = {key.name: canonical(key.gather(first)).fill_null("null").to_list() for key in frame}
        ends = _digests([texts[name] for name in self.ends], len(first))
        groups = _digests([texts[name] for name in self.groups], len(first))
        begins = starts[first]
        ends_of_lines = np.flatnonzero(np.frombuffer(arrived.data, np.uint8) == ord("\n"))
        lines = np.searchsorted(ends_of_lines, begins) + arrived.lines_before + 1
        return map(_Run, begins.tolist(), lines.tolist(), ends, groups)

    def complete(self, count: int) -> None:
        """These first runs are complete; a key that was complete before is an error."""
        last = b""
        for run in self.runs[:count]:
            by = ", ".join(self.ends)
            if run.end != last and run.end in self.left:
                wrong = f"-:{run.line}: {by} comes back after its group was complete"
                raise DataError(wrong, ["sort the rows by it upstream", "leave out --stream"])
            if self.groups and self.portion_of.setdefault(run.group, run.end) != run.end:
                wrong = f"-:{run.line}: {', '.join(self.groups)} was in an earlier batch"
                raise DataError(wrong, f"a group belongs to one batch: add {by} to --group")
            self.left.add(run.end)
            last = run.end
        self.runs = self.runs[count:]


def _digests(keys: Sequence[list[str]], count: int) -> list[bytes]:
    """16 bytes for each key, which has one text or several."""
    if not keys:
        return [b""] * count
    joined = ("\0".join(key).encode() for key in zip(*keys, strict=True))
    return [hashlib.blake2b(key, digest_size=16).digest() for key in joined]
