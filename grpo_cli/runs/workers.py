"""Who reads and writes the files of a run: this process, or others as well. This process alone does everything in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from grpo_cli.read.tables import FileTable, OverTables
from grpo_cli.runs.progress import Watching
from grpo_cli.write.outputs import Output, Target
from grpo_cli.write.write_outputs import Phase, Writing


class Stages(OverTables, Protocol):
    """The stages of a run that has found its files: it is called to read tables, and it writes outputs."""

    def phase(self, text: str, done: int = 0, total: int | None = None, /) -> None:
        """Say what is being done now."""

    def write(self, output: Output, targets: Sequence[Target], writings: Iterator[Writing]) -> list[str]:
        """Write the outputs; return notes for the user."""


class Workers(Protocol):
    """Who may work for a run."""

    @property
    def over_far(self) -> OverTables:
        """Do a little work on each table: others help only where it has to wait for a store."""

    def begin(self, tables: Sequence[FileTable], phase: Phase, folders: Iterable[Path] = (), /) -> Stages:
        """The stages of a run on these files, which report their progress to `phase`.

        Files that some worker cannot read, and folders that it cannot write to, are refused.
        """


class _Here:
    over_far = map

    def begin(self, tables: Sequence[FileTable], phase: Phase, _: Iterable[Path] = (), /) -> Stages:
        return Watching(tables, phase)


HERE: Final[Workers] = _Here()
