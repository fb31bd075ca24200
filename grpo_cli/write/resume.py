"""Going on after an interruption: what is done, for which plan and which inputs, kept in the output directory.

Groups and batches reach across files, so an output is only good for the whole set of inputs that it was
computed from: another set, a changed file or another plan redoes everything.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.files.atomic import replacing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.tables import Binding, FileTable
    from grpo_cli.write.outputs import Output, Target

NAME: Final = ".grpo-adv.resume"
_STATE: Final = ("device", "inode", "size", "mtime_ns", "tag")


def identity(plan: Plan, binding: Binding, output: Output, tables: Sequence[FileTable]) -> str:
    """One digest of everything that decides what the outputs hold, from wherever it is run.

    Without ctime: a file that got another mode, owner or link since the last run holds what it held.
    """
    inputs = [
        (os.path.realpath(table.source.path), {name: getattr(table.source.pin, name) for name in _STATE})
        for table in tables
    ]
    decisive = [plan.as_dict(), asdict(binding), {**asdict(output), "force": None, "to": None}, inputs]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(slots=True)
class Ledger:
    """A line per output behind a first line that says for what run; `before` are those of other runs.

    Whatever is listed and still as it was left is the tool's own work: it is kept, or written again, without --force.
    """

    folder: Path
    key: str
    done: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    kept: int = 0

    @property
    def path(self) -> Path:
        """The file of the notes."""
        return self.folder / NAME

    def read(self) -> None:
        """Take in the notes that are there, as this run has to take them."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        # The last line may have been cut short by whatever ended the run.
        for name, state, *earlier in (json.loads(line) for line in lines[1:] if line.endswith("]")):
            (self.before if earlier or lines[0] != self.key else self.done)[name] = state

    def begin(self) -> None:
        """Note for which run what follows is."""
        lines = [json.dumps(line) for line in self.done.items()]
        lines += [json.dumps([*line, "earlier"]) for line in self.before.items() if line[0] not in self.done]
        with replacing(self.path, force=True) as handle:
            handle.write("".join(f"{line}\n" for line in (self.key, *lines)).encode())

    def owns(self, target: Path) -> bool:
        """Whether a file is an output of this run or an earlier one, still as it was left."""
        name = self._name(target)
        return target.exists() and _state(target) in (self.done.get(name), self.before.get(name))

    def holds(self, target: Target) -> bool:
        """Whether an output was finished and is still as it was left."""
        path = target.path
        there = path is not None and path.exists() and self.done.get(self._name(path)) == _state(path)
        self.kept += there
        return there

    def finished(self, target: Path, temporary: Path) -> None:
        """Note an output that is whole and about to get its name."""
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(f"{json.dumps([self._name(target), _state(temporary)])}\n")

    def _name(self, target: Path) -> str:
        return os.path.relpath(target, self.folder)


def _state(target: Path) -> list[int]:
    stat = target.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]
