"""Tasks for tests: they kill their process once, or see other files than there are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grpo_cli.runs.ray_cluster import unseen


def once(marker: Path, work: Callable[..., Any]) -> Callable[..., Any]:
    """The task of a stage; the first process that runs it removes the marker and is killed."""

    def dying(*arguments: Any) -> Any:
        found = work(*arguments)
        try:
            marker.unlink()
        except FileNotFoundError:
            return found
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    return dying


def blind(pins: dict[str, tuple[int, int]], marks: Sequence[str], version: str) -> str:
    """The answer of a machine on which each file has another size."""
    return unseen({name: (size + 1, changed) for name, (size, changed) in pins.items()}, marks, version)
