"""Whether the rows of the inputs fit into memory: checked before anything is read, if their formats state their number of rows.

Only what every run needs is counted: a run that is accepted may still be too large, but a run that is refused would have been
killed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from grpo_cli.errors import DataError
from grpo_cli.read.tables import Table

ROW = 40  # bytes per row with a key and a reward: less than in any measured run (50 to 90)
COLUMN = 8  # bytes per row for each further column
MOST = (1 << 32) - 1  # rows: they are numbered with 32 bits
WAYS_OUT = (
    "run it in parts, by step or by file, on a machine with more memory, or as JSON lines that are sorted by group "
    "through --stream"
)
_GB = 1e9


def refuse_beyond_memory(tables: Sequence[Table], columns: int, root: Path = Path("/")) -> None:
    """Refuse more rows than fit into the available memory; do nothing if either number is unknown."""
    rows = sum(table.row_count or 0 for table in tables)
    if rows > MOST:
        raise DataError(f"{rows:,} rows, but a run takes at most {MOST:,}", WAYS_OUT)
    needed = rows * (ROW + COLUMN * max(0, columns - 2))
    available = available_memory(root) if needed else None
    if available is not None and needed > available:
        raise DataError(
            f"{rows:,} rows take at least {needed / _GB:.1f} GB of memory, but {available / _GB:.1f} GB are available",
            WAYS_OUT,
        )


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process can still use, by the machine and its container; None if unknown."""
    limits = []
    with suppress(OSError, ValueError):  # `max` is no limit
        limits.append(int((root / "sys/fs/cgroup/memory.max").read_text()))
    with suppress(OSError):
        known = (root / "proc/meminfo").read_text()
        sizes = dict(re.findall(r"^(MemAvailable|SwapFree): +(\d+) kB$", known, re.MULTILINE))
        if "MemAvailable" in sizes:
            limits.append(sum(map(int, sizes.values())) * 1024)
    return min(limits, default=None)
