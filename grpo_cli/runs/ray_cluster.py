"""Ray itself: connect to it or start it, keep it quiet, and run tasks whose errors come back as errors of this tool.

Ray does the scheduling, the retries, the spilling to disk and the recomputing of what a lost machine had.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from grpo_cli import __version__
from grpo_cli.errors import DataError, GrpoError, Way, reason
from grpo_cli.files.inputs import Pin
from grpo_cli.formats.columnar import stderr_silenced

Found = TypeVar("Found")

LOCAL = "local"
_AHEAD = 2  # tasks per processor that Ray has at a time
_LONGEST = 20  # characters of a folder; below a longer one, the paths of sockets are too long for the system
_SEEN = 1000  # files that every machine looks for
# No usage reports, and no warnings about devices. On a single machine Ray listens on loopback only, and needs a token
# that is in no file.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "POLARS_MAX_THREADS": "1"}


class Cluster(NamedTuple):
    """Machines that run tasks; `is_here` if this is the only one."""

    ray: Any  # the module, connected to the cluster
    is_here: bool = False  # whether this run has started it, on this machine only

    @property
    def processors(self) -> int:
        """The number of processors now."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def put(self, value: Any) -> Any:
        """A reference to a value that many tasks use."""
        return self.ray.put(value)

    def run(self, work: Callable[..., Found], calls: Iterable[Sequence[Any]]) -> Iterator[Found]:
        """Call a function on the cluster with each of the arguments; return the results in order.

        A call that fails raises its error when all calls before it have finished.
        """
        task = self.ray.remote(work)  # Ray runs a task again if its worker was killed (its default)
        waiting = deque[Any]()
        try:
            for arguments in calls:
                waiting.append(task.remote(*arguments))
                del arguments
                if len(waiting) > _AHEAD * self.processors:  # a cluster may grow
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for reference in waiting:
                with suppress(self.ray.exceptions.RayError):
                    self.ray.cancel(reference)

    def _result(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, (GrpoError, OSError, MemoryError)):
                raise cause from error
            wrong = f"a task on Ray stopped: {type(cause).__name__}: {_line(cause)}"
            raise DataError(wrong, Way("--debug", why="shows where")) from error
        except self.ray.exceptions.RayError as error:
            wrong = f"a task on Ray was lost: {_line(error)}"
            raise DataError(wrong, "is there enough memory for each of its tasks?") from error

    def refuse_unseen(self, pins: dict[str, Pin], folders: Iterable[Path]) -> None:
        """Refuse files that some machine does not see as this one does, and output folders that machines do not share."""
        if self.is_here:
            return
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        names = list(pins)
        step = max(1, len(names) // _SEEN)
        some = [*names[::step], *names[-1:]]
        asked = {name: (pins[name].size, pins[name].mtime_ns) for name in some}
        with _marked(folders) as marks:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            task = self.ray.remote(unseen)
            answers = []
            for node in nodes:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                on_node = task.options(num_cpus=0, scheduling_strategy=there)
                answers.append(on_node.remote(asked, marks, __version__))
            for node, answer in zip(nodes, answers, strict=True):
                wrong = self._result(answer)
                if wrong:
                    raise DataError(
                        f"{node['NodeManagerHostname']}: {wrong}",
                        "every machine of the cluster needs this version, the same files and the output folder: a shared path or a store",
                    )


def unseen(pins: dict[str, tuple[int, int]], marks: Sequence[str], version: str) -> str:
    """What this machine lacks, in words; empty if nothing."""
    if version != __version__:
        return f"grpo-adv is {__version__} here, and {version} where the run was started"
    for name, (size, changed) in pins.items():
        try:
            found = os.stat(name)  # noqa: PTH116 - a name as it was given
        except OSError as error:
            return f"{name}: {reason(error)}"
        if (found.st_size, found.st_mtime_ns) != (size, changed):
            return f"{name} is a different file here"
    for mark in map(Path, marks):
        if not mark.exists():
            return f"{mark.parent} is not the output folder of the run"
    return ""


@contextmanager
def _marked(folders: Iterable[Path]) -> Iterator[list[str]]:
    """Empty files in these folders, or in their nearest parents that exist, until all machines have looked."""
    marks = []
    try:
        there = {next(parent for parent in (folder, *folder.parents) if parent.is_dir()) for folder in folders}
        for folder in there:
            handle, name = tempfile.mkstemp(prefix=".grpo-adv.", dir=folder)
            os.close(handle)
            marks.append(name)
        yield marks
    except OSError as error:
        raise DataError(f"{error.filename}: {reason(error)}", "choose another -o") from None
    finally:
        for mark in marks:
            Path(mark).unlink(missing_ok=True)


@contextmanager
def connected(address: str | None, *, verbose: bool) -> Iterator[Cluster]:
    """A cluster at an address, or one on this machine that ends with the run."""
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    # Ray reads some of these when it is imported.
    settings = {**_QUIET}
    if not verbose:
        settings["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    if address == LOCAL:
        settings |= _ALONE | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    quiet = nullcontext if verbose else stderr_silenced
    try:
        with quiet():
            import ray
    except ImportError:
        from grpo_cli.files.installation import missing_extra

        raise missing_extra("--engine ray needs the package ray", "ray") from None
    if ray.is_initialized():  # the calling Python program has started Ray
        yield Cluster(ray)
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    scratch = None
    options: dict[str, Any] = {"address": address}
    if address == LOCAL:
        short = None if len(tempfile.gettempdir()) <= _LONGEST else "/tmp"  # noqa: S108 - mkdtemp makes a folder of its own
        scratch = tempfile.mkdtemp(prefix="grpo-adv.", dir=short)
        options |= {
            "num_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "include_dashboard": False,
            "_temp_dir": scratch,
            "_node_ip_address": "127.0.0.1",
        }
    try:
        try:
            with quiet():
                ray.init(**options, log_to_driver=verbose, logging_level=logging.DEBUG if verbose else logging.CRITICAL)
        except Exception as error:  # Ray raises many kinds of errors here
            raise DataError(
                f"Ray cannot be {'started' if scratch else 'reached'}: {_line(error)}",
                ["--ray-address takes auto, local or HOST:PORT", Way("--debug", why="shows more")],
            ) from error
        for number, handler in handlers.items():
            signal.signal(number, handler)
        # Ray prints messages about lost machines and repeated tasks to standard output, which may be used for data.
        ray._private.worker._worker_logs_enabled = verbose  # noqa: SLF001 - there is no other switch
        with redirect_stdout(sys.stderr):
            yield Cluster(ray, is_here=scratch is not None)
    finally:
        ray.shutdown()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
