"""The driver for a pipe whose groups arrive one after the other: each leaves as soon as it is complete.

Memory is one group (or one batch, with `--batch-by`) and a 16-byte digest of every key seen: a key that comes
back after its group has left would have had another advantage, so it is an error with its line.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from grpo_cli import sources
from grpo_cli.engine import score
from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats import FORMATS, Field, Weaving
from grpo_cli.formats.cells import canonical
from grpo_cli.formats.lines import is_blank
from grpo_cli.io.local import Input, Pin
from grpo_cli.io.spool import arrivals
from grpo_cli.narrow import FileTable
from grpo_cli.outputs import STDOUT, added, refuse_columns, refuse_read_columns
from grpo_cli.schemas import NONE
from grpo_cli.sources import refuse_singletons, refuse_unscorable
from grpo_cli.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from grpo_cli.drivers.local import Job

JSONL: Final = FORMATS["jsonl"]


def run(job: Job, source: BinaryIO, sink: BinaryIO) -> dict[str, Any]:
    """Copy lines from `source` to `sink`, each with its advantage; return the facts of all of them."""
    started = time.perf_counter()
    _refuse(job)
    tally = Tally()
    for block in _blocks(job, source):
        with block.located():
            _weave(job, block, sink, tally)
    if not tally.counts["rows"]:
        raise DataError("-: no rows", "nothing came in")
    found = tally.facts(job.plan) | {"preset": job.origin}
    found |= {"inputs": [STDOUT], "outputs": ["stdout"], "advantage_column": job.output.column, "copied_rows": 0}
    return found | {"seconds": round(time.perf_counter() - started, 3)}


def _refuse(job: Job) -> None:
    """What a stream cannot do, it says before the first row."""
    plan, binding = job.plan, job.binding
    whole = "leave out --stream"
    refusals = (
        (list(job.inputs) != [STDOUT], "--stream reads standard input", "give - as the only input"),
        (job.binding.schema not in {None, NONE}, "--stream reads one plain row a line", whole),
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


# --- blocks of whole groups --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows of complete groups (a row with the blank lines behind it), and how many lines came before."""

    rows: Sequence[bytes]
    before: int

    @contextmanager
    def located(self) -> Iterator[None]:
        """Count lines from the beginning of the stream, not of the block."""
        try:
            yield
        except DataError as error:
            message = re.sub(r"^-:(\d+)", lambda at: f"-:{int(at[1]) + self.before}", error.message)
            raise type(error)(message, error.hint) from None

    @contextmanager
    def held(self) -> Iterator[Input]:
        """The rows as an input that can be read twice."""
        with tempfile.TemporaryFile() as file:
            file.writelines(self.rows)
            file.flush()
            path = f"/proc/self/fd/{file.fileno()}"
            there = path if os.path.exists(path) else f"/dev/fd/{file.fileno()}"  # noqa: PTH110 - a descriptor
            yield Input(STDOUT, there, Pin.of(os.fstat(file.fileno())), file.fileno())


@dataclass(slots=True)
class _Waiting:
    """Rows whose group may go on, the digest of each one's key, and the keys that have left."""

    names: tuple[str, ...]
    size: int | None
    rows: list[bytes] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    left: set[bytes] = field(default_factory=set)
    lines: int = 0

    def add(self, rows: list[bytes]) -> None:
        """Take in what has arrived."""
        before = self.lines + sum(row.count(b"\n") for row in self.rows)
        self.digests += self._keys(_Block(rows, before)) if self.names else [b""] * len(rows)
        self.rows += rows

    def _keys(self, block: _Block) -> list[bytes]:
        with block.located(), block.held() as held:
            frame = JSONL.scan(held, [Field(name, "key") for name in self.names])
        texts = [canonical(frame[name]).fill_null("null").to_list() for name in self.names]
        return [
            hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest() for parts in zip(*texts, strict=True)
        ]

    def complete(self) -> int:
        """How many of the waiting rows belong to groups that have ended."""
        if not self.names:
            return len(self.rows) // self.size * self.size if self.size else 0
        last = len(self.digests) - 1
        while last > 0 and self.digests[last - 1] == self.digests[-1]:
            last -= 1
        return max(last, 0)

    def release(self, count: int) -> _Block:
        """Let the first rows go; a key that was here before has come back too late."""
        block = _Block(self.rows[:count], self.lines)
        line = self.lines + 1
        for at, digest in enumerate(self.digests[:count] if self.names else ()):
            begins = at == 0 or digest != self.digests[at - 1]
            if begins and digest in self.left:
                cure = "sort the rows by it upstream, or leave out --stream"
                raise DataError(f"-:{line}: {', '.join(self.names)} comes back after its group was complete", cure)
            self.left.add(digest)
            line += self.rows[at].count(b"\n")
        self.lines += sum(row.count(b"\n") for row in block.rows)
        self.rows, self.digests = self.rows[count:], self.digests[count:]
        return block


def _blocks(job: Job, source: BinaryIO) -> Iterator[_Block]:
    waiting = _Waiting(_boundary(job), job.binding.group_size)
    for rows in _rows(source):
        waiting.add(rows)
        if count := waiting.complete():
            yield waiting.release(count)
    if waiting.rows:
        yield waiting.release(len(waiting.rows))


def _boundary(job: Job) -> tuple[str, ...]:
    """The columns whose change ends a block."""
    binding = job.binding
    if job.plan.uses_batch and binding.batch_by:
        return tuple(name.strip() for name in binding.batch_by.split(","))
    within = [binding.group_within] if binding.group_within not in {None, "input"} else []
    return tuple(name for name in (*binding.group, *within) if name)


def _rows(source: BinaryIO) -> Iterator[list[bytes]]:
    """Whole rows as they arrive, without waiting for a buffer to fill; blank lines stay with the row before them."""
    rest = b""
    for part in arrivals(source):
        *lines, rest = (rest + part).split(b"\n")
        if lines:
            yield from _joined([line + b"\n" for line in lines])
    if rest:
        yield from _joined([rest])


def _joined(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    rows: list[bytes] = []
    for line in lines:
        if rows and is_blank(line):
            rows[-1] += line
        else:
            rows.append(line)
    yield rows


# --- one block ---------------------------------------------------------------------------------------------


def _weave(job: Job, block: _Block, sink: BinaryIO, tally: Tally) -> None:
    if all(is_blank(row) for row in block.rows):
        sink.writelines(block.rows)
        return
    with block.held() as held:
        table = FileTable(held, JSONL)
        refuse_columns([table], job.output)
        narrow = sources.read([table], replace(job.binding, singletons_meant=True, schema=NONE), job.plan)
        refuse_read_columns(narrow, job.output)
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
