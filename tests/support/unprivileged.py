"""A command without the rights of root: what the mode of a file forbids is forbidden, whoever runs the tests."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import TERMINAL, Done

_DROP = 24  # PR_CAPBSET_DROP of linux/prctl.h
_RIGHTS = range(5)  # CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID
_LIBC = ctypes.CDLL(None)


def _give_up_rights() -> None:
    """What root may do beyond the modes of files is lost at the next exec."""
    for right in _RIGHTS:
        if _LIBC.prctl(_DROP, right, 0, 0, 0):
            os._exit(77)


def unprivileged(line: str, *words: str, cwd: Path | None = None, **env: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", *shlex.split(line), *words], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={**os.environ, **TERMINAL, **env}, timeout=100, preexec_fn=_give_up_rights if os.geteuid() == 0 else None,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("the rights of root cannot be given up here")
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)
