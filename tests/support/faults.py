"""Runs of the command in which one call that changes a file fails or kills the process: `faults.c` wraps these calls.

Run as a script, this is the server for the tests: it loads the libraries once, and forks for each run.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, Any, Final

import grpo_cli

ROOT: Final = Path(__file__).parents[2]
KINDS: Final = {  # what the shim knows them as, and the error that the call ends with
    "count": (0, 0),
    "killed": (1, 0),
    "disk full": (2, errno.ENOSPC),  # and so it stays
    "disk error": (2, errno.EIO),  # once, as Linux reports it
    "killed halfway": (3, 0),
    "half done": (4, 0),  # which a system call may do at any time
    "half done, then disk full": (5, errno.ENOSPC),
}
HALVED: Final = {
    "write", "pwrite", "pwrite64", "writev", "pwritev", "pwritev64", "copy_file_range", "sendfile", "sendfile64",
}  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit status, or the negative number of the signal that killed it."""

    status: int
    err: str


@dataclass(frozen=True)
class Faults:
    """The server; it keeps the output of its runs in `scratch`."""

    server: subprocess.Popen[str]
    scratch: Path

    def run(
        self, words: Sequence[str], cwd: Path, kind: str = "count", position: int = 0, stdin: str = "/dev/null"
    ) -> Ended:
        """Run a command in its own process, and spoil the call at this position (1 is the first)."""
        order = {"words": words, "cwd": str(cwd), "kind": kind, "position": position, "stdin": stdin}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        print(json.dumps(order), file=self.server.stdin, flush=True)
        status = json.loads(self.server.stdout.readline())
        return Ended(status, (self.scratch / "err").read_text())

    def calls(self) -> list[str]:
        """The names of the calls that changed files in the last run of the kind `count`."""
        return (self.scratch / "calls").read_text().split()


@contextmanager
def serving(scratch: Path, before: Sequence[str] = ()) -> Iterator[Faults]:
    """Compile the shim and start the server under it; `before` is a command that starts it elsewhere."""
    shim = scratch / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, ROOT / "tests/support/faults.c", "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(shim), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [*before, sys.executable, "-m", "tests.support.faults", scratch],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        yield Faults(server, scratch)
        assert server.stdin is not None
        server.stdin.close()


# --- in the server -------------------------------------------------------------------------------------------

# What the rooms import late.
LIBRARIES: Final = ["altair", "polars", "pyarrow.parquet", "rich.console", "rich.table", "typer"]


def _serve(orders: IO[str], scratch: Path) -> None:
    rooms = [room.name for room in walk_packages(grpo_cli.__path__, "grpo_cli.")]
    for name in [*LIBRARIES, *rooms]:
        importlib.import_module(name)
    gc.freeze()  # or each run would copy these pages when it ends
    while line := orders.readline():
        child = os.fork()
        if not child:
            _run(json.loads(line), scratch)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


def _run(order: dict[str, Any], scratch: Path) -> None:
    """Be the command, up to the end of the interpreter."""
    from grpo_cli.__main__ import main

    fresh = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
    streams = ((order["stdin"], os.O_RDONLY), (scratch / "out", fresh), (scratch / "err", fresh))
    for number, (path, flags) in enumerate(streams):
        os.dup2(os.open(path, flags, 0o600), number)
    log = os.open(scratch / "calls", fresh, 0o600) if order["kind"] == "count" else -1
    os.chdir(order["cwd"])
    sys.argv = ["grpo-adv", *order["words"]]
    number, error = KINDS[order["kind"]]
    ctypes.CDLL(None).fault_arm(number, ctypes.c_long(order["position"]), error, log)
    main()


if __name__ == "__main__":
    _serve(sys.stdin, Path(sys.argv[1]))
