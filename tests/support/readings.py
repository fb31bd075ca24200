"""The files of `tests/reference/readings.toml`: how each is made, and what a person expects of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.jobs import write

TABLE = Path(__file__).resolve().parent.parent / "reference" / "readings.toml"
OUTCOMES = {
    "right": "the right groups, without a flag",
    "asked": "a question, and the right groups with the flags that it leads to",
    "refused": "a refusal that says why",
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A layout and its outcome; `flags` are those that the question leads to, `base` are no part of the reading."""

    layout: str
    outcome: str
    source: str = ""
    file: str = ""
    same: Mapping[str, Any] | None = None
    columns: Mapping[str, Sequence[Any]] | None = None
    document: str = ""
    files: Sequence[Mapping[str, Any]] = ()
    base: Mapping[str, Any] | None = None
    words: str = ""
    flags: Mapping[str, Any] | None = None
    groups: Sequence[int] = ()

    def write(self, folder: Path) -> list[Path]:
        """Make the files."""
        return [_written(folder / given["name"], given) for given in self.files or ({"name": self.file, **vars(self)},)]


def readings() -> dict[str, Reading]:
    """All of them by name, in the order of the file."""
    return {name: Reading(**entry) for name, entry in tomllib.loads(TABLE.read_text(encoding="utf-8")).items()}


def _written(path: Path, given: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if given.get("document"):
        path.write_text(given["document"], encoding="utf-8")
        return path
    columns = {
        name: [None if value == "@null" else value for value in values] for name, values in given["columns"].items()
    }
    count = {len(values) for values in columns.values()}.pop()
    rows = [
        {**(given.get("same") or {}), **{name: values[at] for name, values in columns.items()}} for at in range(count)
    ]
    return write(path, rows)
