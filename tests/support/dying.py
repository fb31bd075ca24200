"""Tasks that kill the process that does them, once."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from grpo_cli.runs import compute_ray

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def once(marker: Path, stage: str) -> Callable[..., Any]:
    """The task of a stage; the first process that does it is killed, and takes the marker along."""
    work = getattr(compute_ray, stage)

    def dying(*arguments: Any) -> Any:
        found = work(*arguments)
        try:
            marker.unlink()
        except FileNotFoundError:
            return found
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    return dying
