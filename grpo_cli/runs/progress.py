"""Who reads and writes the files of a run, this process or tasks on Ray, and how far it is.

By the bytes of its files that have been read, and then by those that have been written. This process alone does everything in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from grpo_cli.files.inputs import Input
from grpo_cli.read.tables import FileTable, Table
from grpo_cli.write.outputs import Output, Target
from grpo_cli.write.write_outputs import Phase, Writing, in_turn

if TYPE_CHECKING:
    from pathlib import Path

    from grpo_cli.runs.on_ray import OnRay

T = TypeVar("T", bound=Table)

ALL = 100  # per cent
READ = 70  # per cent of the work is reading; the rest is grouping, computing and writing


class Watching:
    """Reads and writes in this process, and reports the percentage done to `phase`.

    Called as a `map` over tables. Files that are read from start to end count byte by byte.
    """

    def __init__(self, tables: Sequence[FileTable], phase: Phase) -> None:
        self._starts = [0, *accumulate(table.source.pin.size for table in tables)]
        self._total = max(1, self._starts[-1])
        self._phase = phase
        self._shown = -1

    def __call__(self, work: Callable[[Table], Any], tables: Iterable[Table], /) -> Iterator[Any]:
        """The results of the work."""
        before = 0
        for table in tables:
            self._read(before, 0)
            yield work(_watched(table, partial(self._read, before)))
            before += table.source.pin.size
        self._phase("grouping and computing", READ, ALL)

    def writing(self, at: int, table: FileTable) -> FileTable:
        """The table at this position; each byte that is read of it from now on counts as written."""
        return _watched(table, partial(self._written, self._starts[at]))

    def write(self, output: Output, targets: Sequence[Target], writings: Iterator[Writing]) -> list[str]:
        """Write one output after the other; return notes for the user."""
        watched = (replace(writing, table=self.writing(writing.before, writing.table)) for writing in writings)
        return in_turn(output, targets, watched, self.phase)

    def phase(self, text: str, files: int = 0, _: int | None = None, /) -> None:
        """`files` are written; other phases have no percentage."""
        if text != "writing":
            self._phase(text)
            return
        self._written(self._starts[files], 0)
        if not files:  # writing begins, wherever reading has ended
            self._phase(text, self._shown, ALL)

    def wrote(self, share: float) -> None:
        """Say that a share of the writing is done."""
        self._say("writing", READ + int((ALL - READ) * min(share, 1.0)))

    def _read(self, start: int, at: int) -> None:
        done = min(start + at, self._total)
        self._say("reading", READ * done // self._total, done)

    def _written(self, start: int, at: int) -> None:
        self.wrote((start + at) / self._total)

    def _say(self, text: str, done: int, size: int | None = None) -> None:
        if done > self._shown:
            self._shown = done
            self._phase(text, done, ALL, size)


def _watched(table: T, said: Callable[[int], None]) -> T:
    """The table, which reports to `said` how far it has been read; unchanged unless it is a plain file."""
    if type(table.source) is not Input or table.source.fd is not None:
        return table
    return table.of_source(replace(table.source, on_read=said))


class Here:
    """A single worker, which is this process; it has the two methods of `OnRay`."""

    over_far = map

    def begin(self, tables: Sequence[FileTable], phase: Phase, _: Iterable[Path] = (), /) -> Watching:
        """The stages of a run on these files, which report their progress to `phase`."""
        return Watching(tables, phase)


HERE = Here()
Workers: TypeAlias = "Here | OnRay"
