"""A folder that a trainer is writing to: complete files are read, half-written files are read once complete."""

from __future__ import annotations

from grpo_cli.browse.model import Model
from grpo_cli.errors import GrpoError
from grpo_cli.files.inputs import Input, Pin
from grpo_cli.read.open_tables import find_inputs


class Folder:
    """The files of a job; a file is complete when it is unchanged between two looks and can be read."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._read = {table.source.path: table.source.pin for table in model.tables}
        self._seen: dict[str, Pin] = dict(self._read)
        self._tried: dict[str, Pin] = {}
        self._looked_into: dict[str, tuple[Pin, bool]] = {}
        self.waiting: list[str] = []  # files that were not whole at the last look

    def look(self) -> Model | None:
        """The model with files that are new or have grown; None if nothing is new."""
        job = self._model.job
        try:
            found, _ = find_inputs(job.inputs)
        except GrpoError:  # e.g. a file that is just being replaced
            return None
        now = {source.path: source.pin for source in found}
        steady = [source for source in found if self._seen.get(source.path) == source.pin]
        self._seen = now
        fresh = {source.path for source in steady if self._read.get(source.path) != source.pin}
        gone = {path for path in self._read if path not in now}
        if not fresh and not gone:
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
        made = Model.of(job, inputs=ready)
        self._model = made
        self._read = state
        return made

    def _opens(self, source: Input) -> bool:
        """Whether the file is whole: a half-written one lacks its footer, or its last line is not an object."""
        if self._looked_into.get(source.path, (None, False))[0] != source.pin:
            try:
                Model.of(self._model.job, inputs=[source])
                whole = True
            except (GrpoError, OSError):
                whole = False
            self._looked_into[source.path] = (source.pin, whole)
        return self._looked_into[source.path][1]
