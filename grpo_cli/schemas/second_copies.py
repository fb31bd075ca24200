"""Files of a directory that hold no rows, or hold them a second time, by what the schemas know of their writers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grpo_cli.schemas.table import schemas

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path


def without_copies(files: Sequence[Path], named: Collection[Path]) -> tuple[list[Path], list[Path]]:
    """The files to read, and those that are passed over; a file that the user named itself is always read."""
    names = {path: path.as_posix() for path in files}
    passed: dict[Path, None] = {}
    for rule in (rule for one in schemas().values() for rule in one.copies):
        skip = re.compile(rule.skip)
        hit = [path for path, name in names.items() if path not in named and skip.search(name)]
        others = [name for path, name in names.items() if not skip.search(name)] if hit and rule.beside else []
        if hit and (not rule.beside or any(re.search(rule.beside, name) for name in others)):
            passed |= dict.fromkeys(hit)
    if len(passed) == len(files):
        return list(files), []
    return [path for path in files if path not in passed], list(passed)
