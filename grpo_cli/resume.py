"""Going on after an interruption: what is done, for which plan and which inputs, kept in the output directory.

Groups and batches reach across files, so an output is only good for the whole set of inputs that it was
computed from: another set, a changed file or another plan redoes everything.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from grpo_cli.narrow import Binding, FileTable
    from grpo_cli.outputs import Output
    from grpo_cli.plan import Plan

NAME: Final = ".grpo-adv.resume"


def identity(plan: Plan, binding: Binding, output: Output, tables: Sequence[FileTable]) -> str:
    """One digest of everything that decides what the outputs hold."""
    inputs = [(table.name, asdict(table.source.pin)) for table in tables]
    told = [plan.as_dict(), asdict(binding), {**asdict(output), "force": None}, inputs]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(slots=True)
class Ledger:
    """A line per finished output behind a first line that says for what."""

    path: Path
    done: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def opened(cls, folder: Path, key: str) -> Ledger:
        """The ledger of this very run, or a new one in the place of another's."""
        path = folder / NAME
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines and lines[0] == key:
            # The last line may have been cut short by whatever ended the run.
            return cls(path, dict(json.loads(line) for line in lines[1:] if line.endswith("]")))
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{key}\n", encoding="utf-8")
        return cls(path)

    def holds(self, target: Path) -> bool:
        """Whether an output was finished and is still as it was left."""
        return target.exists() and self.done.get(str(target)) == _state(target)

    def finished(self, target: Path) -> None:
        """Note an output that has just got its name."""
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(f"{json.dumps([str(target), _state(target)])}\n")


def _state(target: Path) -> list[int]:
    stat = target.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]
