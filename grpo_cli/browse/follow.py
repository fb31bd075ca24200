"""A folder that a trainer is writing to: complete files are read, half-written files are read once complete."""

from __future__ import annotations

from functools import cache

from grpo_cli.browse.model import Model
from grpo_cli.errors import GrpoError
from grpo_cli.files.inputs import Input, Pin
from grpo_cli.read.open_tables import find_inputs


class Folder:
    """The files of a job; a file is complete when it is unchanged between two looks and can be read."""

    def __init__(self, model: Model) -> None:
        self._job = model.job
        self._seen = self._read = {table.source.path: table.source.pin for table in model.tables}
        self._tried: dict[str, Pin] = {}
        self._opens = cache(self._try_to_open)
        self.waiting: list[str] = []  # files that were not whole at the last look

    def look(self) -> Model | None:
        """The model with files that are new or have grown; None if nothing is new."""
        try:
            found, _ = find_inputs(self._job.inputs)
        except GrpoError:  # e.g. a file that is just being replaced
            return None
        now = {source.path: source.pin for source in found}
        steady = [source for source in found if self._seen.get(source.path) == source.pin]
        self._seen = now
        fresh = {source.path for source in steady if self._read.get(source.path) != source.pin}
        if not fresh and self._read.keys() <= now.keys():
            self.waiting = []
            return None
        ready = [source for source in steady if source.path not in fresh or self._opens(source)]
        known = [source for source in found if source.path in self._read or source in steady]
        self.waiting = [source.name for source in known if source not in ready]
        unfinished = any(source.path in self._read for source in found if source not in ready)
        state = {source.path: source.pin for source in ready}
        if unfinished or not ready or state in (self._read, self._tried):
            return None
        self._tried = state  # if they are refused together, do not read them again until one changes
        made = Model.of(self._job, inputs=ready)
        self._read = state
        return made

    def _try_to_open(self, source: Input) -> bool:
        """Whether the file is whole: a half-written one lacks its footer, or its last line is not an object."""
        try:
            Model.of(self._job, inputs=[source])
        except (GrpoError, OSError):
            return False
        return True
