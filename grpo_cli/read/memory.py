"""Whether the rows of the inputs can be in memory at all: said before anything is read, where it is certain.

Only a format whose files say how many rows they have takes part, and only what every run needs is counted. A run that
is not refused may still be too large; what is refused would have been ended by the system after minutes.
"""

from __future__ import annotations

import re
import resource
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from grpo_cli.errors import DataError
from grpo_cli.read.tables import FileTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from grpo_cli.read.tables import Table

ROW: Final = 40  # bytes a row with one key and one reward: less than any run was measured to take (50 to 90)
COLUMN: Final = 8  # bytes a row for each further column
WAYS_OUT: Final = (
    "run it in parts, by step or by file, or as JSON lines that are sorted by group through --stream, "
    "or on several machines with --engine ray"
)
_GB: Final = 1e9


def refuse_beyond_memory(tables: Sequence[Table], columns: int, root: Path = Path("/")) -> None:
    """Refuse more rows than the available memory can hold; nothing where either is unknown."""
    rows = sum(table.row_count() or 0 for table in tables if isinstance(table, FileTable))
    needed = rows * (ROW + COLUMN * max(0, columns - 2))
    available = available_memory(root) if needed else None
    if available is not None and needed > available:
        raise DataError(
            f"{rows:,} rows take {needed / _GB:.1f} GB of memory at least, and {available / _GB:.1f} GB are available",
            WAYS_OUT,
        )


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process can take: of the machine, its control groups and its own limit; None where nothing says so."""
    limits = [*_of_machine(root), *_of_control_groups(root)]
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min([*limits, *([] if own == resource.RLIM_INFINITY else [own])], default=None)


def _of_machine(root: Path) -> Iterator[int]:
    with suppress(OSError):
        sizes = dict(
            re.findall(r"^(MemAvailable|SwapFree): +(\d+) kB$", (root / "proc/meminfo").read_text(), re.MULTILINE)
        )
        if "MemAvailable" in sizes:
            yield sum(map(int, sizes.values())) * 1024


def _of_control_groups(root: Path) -> Iterator[int]:
    """The limits of the groups that the process is in, and of those around them, of both versions."""
    groups = root / "sys/fs/cgroup"
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in {"", "memory"}:
                continue
            top, name = (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
            inner = top / path.lstrip("/")
            for folder in (inner, *inner.parents):
                with suppress(OSError, ValueError):  # the outermost has no file, and `max` is no limit
                    yield int((folder / name).read_text())
                if folder == top:
                    break
