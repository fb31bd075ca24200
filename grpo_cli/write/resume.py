"""Resuming after an interruption: notes in the output directory list the finished outputs and identify the run.

Groups and batches can span files, so an output is only valid for the set of inputs that it was computed from. With
another set, a changed file or another plan, everything is computed again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, reason
from grpo_cli.files.atomic import replacing
from grpo_cli.read.build_table import PlanBy
from grpo_cli.read.tables import Binding, FileTable
from grpo_cli.write.outputs import Output, Target

NAME: Final = ".grpo-adv.resume"
_KEY: Final = re.compile("[0-9a-f]{64}")  # the digest of a run
_STATE: Final = ("inode", "size", "mtime_ns", "tag")


def identity(plan: Plan, binding: Binding, parts: PlanBy | None, output: Output, tables: Sequence[FileTable]) -> str:
    """A digest of everything that determines the outputs, whatever the working directory.

    Without ctime: a new mode, owner or link does not change the content of a file.
    """
    sources = [table.source for table in tables]
    inputs = [
        (
            os.path.realpath(source.path) if source.is_local else source.path,
            [getattr(source.pin, name) for name in _STATE],
        )
        for source in sources
    ]
    by_value = (
        []
        if parts is None
        else [parts.column, *((name, plan.as_dict(), _deciding(own)) for name, (plan, own) in parts.plans.items())]
    )
    decisive = [plan.as_dict(), _deciding(binding), by_value, {**asdict(output), "force": None, "to": None}, inputs]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=str).encode()).hexdigest()


def _deciding(binding: Binding) -> dict[str, Any]:
    """The parts of a binding that determine the outputs: not how long a line may be."""
    return {**asdict(binding), "max_line": None}


@dataclass(frozen=True, slots=True)
class Ledger:
    """The notes: a first line that identifies the run, then a line per output; `before` has the outputs of other runs.

    An output that is listed and unchanged was written by this tool, so it is kept or replaced without --force.
    """

    folder: Path
    key: str
    done: Mapping[str, Any]
    before: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, key: str) -> Self:
        """The notes in a folder for the run with this key."""
        path, done, before = folder / NAME, dict[str, Any](), dict[str, Any]()
        try:
            with open(path, "rb", opener=_opened) as handle:
                first, *lines = handle.read().decode().splitlines() or [key]
            if not _KEY.fullmatch(first):
                raise _foreign(path)
            # If the run was killed, the last line may be incomplete.
            for line in (line for line in lines if line.endswith("]")):
                name, state, *earlier = json.loads(line)
                (before if earlier or first != key else done)[name] = state
        except FileNotFoundError:
            pass
        except DataError:
            raise
        except (ValueError, TypeError, RecursionError):
            raise _foreign(path) from None
        return cls(folder, key, done, before)

    @property
    def path(self) -> Path:
        """The file of the notes."""
        return self.folder / NAME

    def begin(self) -> None:
        """Write the notes that this run begins with."""
        lines = [json.dumps(line) for line in self.done.items()]
        lines += [json.dumps([*line, "earlier"]) for line in self.before.items() if line[0] not in self.done]
        with suppress(FileNotFoundError):  # never write through a link or a pipe
            if not stat.S_ISREG(self.path.lstat().st_mode):
                raise _foreign(self.path)
        with replacing(self.path, force=True) as handle:
            handle.write("".join(f"{line}\n" for line in (self.key, *lines)).encode())

    def owns(self, target: Path) -> bool:
        """Whether a file is an unchanged output of this run or an earlier one."""
        name = self._name(target)
        return target.exists() and _state(target) in (self.done.get(name), self.before.get(name))

    def has(self, target: Target) -> bool:
        """Whether an output was finished and is unchanged."""
        path = target.path
        return path is not None and path.exists() and self.done.get(self._name(path)) == _state(path)

    def finished(self, target: Path, temporary: Path) -> None:
        """Note an output that is complete and about to be renamed."""
        with open(self.path, "ab", opener=_opened) as handle:
            handle.write(f"{json.dumps([self._name(target), _state(temporary)])}\n".encode())

    def _name(self, target: Path) -> str:
        return os.path.relpath(target, self.folder)


def _foreign(path: Path) -> DataError:
    return DataError(f"{path}: was not written by --resume", "move it away, or choose another -o DIR/")


def _state(target: Path) -> list[int]:
    found = target.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _opened(path: str, flags: int) -> int:
    """Open the notes, without following a link and without waiting for a pipe."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "a link" if error.errno == errno.ELOOP else reason(error)
        raise DataError(f"{path}: cannot be opened: {why}", "move it away, or choose another -o DIR/") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise DataError(f"{path}: is not a file", "move it away, or choose another -o DIR/")
    return fd
