"""What the system or the shell limits so far that libraries cannot be loaded: one sentence instead of the thousand lines they print."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any

from grpo_cli.errors import DataError, UsageError

# A smaller limit is tried before numpy and polars are loaded, which takes 0.3 s more. With 2 cores they fit into 0.5 GB of addresses.
ENOUGH = 1 << 30  # bytes
PER_CORE = 64 << 20  # bytes more for each core: threads have a stack and memory of their own
OWN = (
    100 << 20
)  # bytes that the modules of this tool and a small input take beside them: with 64, threads could not start near 300 MB
LONGEST = 120  # seconds of a trial, which may wait for a lock for ever
THREADS = "POLARS_MAX_THREADS"
_ARENA_MAX = -8  # of mallopt(3)


def refuse_no_threads() -> None:
    """Refuse to run polars on no threads, which it answers with a panic in each of them."""
    if os.environ.get(THREADS, "").strip("+0") == "" != os.environ.get(THREADS, ""):
        raise UsageError(f"{THREADS} is 0, and polars needs a thread", f"unset {THREADS}; set it to 1 or more")


def watch_memory() -> None:
    """Where the process may have little memory, try in a child whether the libraries can be loaded before they are."""
    limit = _limit()
    if limit is not None and is_little_memory():
        sys.meta_path.insert(0, _Trial(limit))
        # A thread that cannot start would be told on a line of its own, for ever, and each panic with all of its callers.
        os.environ["_RJEM_MALLOC_CONF"] = "narenas:1,background_thread:false"
        os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
        os.environ.setdefault("RUST_BACKTRACE", "0")
        _share_one_heap()


def _share_one_heap() -> None:
    """Keep the C library from reserving 64 MB of addresses for each thread, of which there are more or less by chance."""
    import ctypes

    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def is_little_memory() -> bool:
    """Whether the process may have so little memory that a library might not fit."""
    limit = _limit()
    return limit is not None and limit < ENOUGH + PER_CORE * (os.cpu_count() or 1)


def _limit() -> int | None:
    """The bytes that this process may have (ulimit -v, ulimit -d); None without a limit."""
    import resource

    soft = [resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((each for each in soft if each != resource.RLIM_INFINITY), default=None)


class _Trial:
    """A finder of modules that waits for the first import of numpy or polars, and finds nothing itself.

    Its class is not derived from `importlib.abc`, which takes as long to load as half of `--version`.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def find_spec(self, fullname: str, *_: Any) -> None:
        if fullname not in {"numpy", "polars"} or self not in sys.meta_path:
            return
        sys.meta_path.remove(self)
        if not _can_be_loaded(self.limit - OWN):
            wrong = f"not enough memory to load numpy and polars: the process may have {self.limit / 1e6:,.0f} MB"
            raise DataError(wrong, "raise the limit (ulimit -v, ulimit -d)")


def _can_be_loaded(limit: int) -> bool:
    """Whether a child of this process can load the libraries and start their threads with so many bytes: some abort if they cannot."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            resource.setrlimit(which, (limit, resource.getrlimit(which)[1]))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LONGEST)
        import polars as pl

        pl.LazyFrame({"a": [1]}).select(pl.col("a").sum()).collect()
    except BaseException:  # noqa: BLE001 - whatever it is
        os._exit(1)
    os._exit(0)
