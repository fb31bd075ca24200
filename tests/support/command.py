"""The command in a test: `adv` runs it in this process, `process` as a user does, which takes 0.4 s longer.

Both take a line as it is typed; words behind it are taken as they are. `ran` and `facts_of` are for runs that must succeed.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import termios
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from grpo_cli import __main__


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a `conftest.py` imports this, each test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)


TERMINAL = {"COLUMNS": "80", "NO_COLOR": "1"}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def process(
    line: str = "", *words: str, cwd: Path | None = None, stdin: str = "", timeout: float = 600, **env: str
) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", *shlex.split(line), *words],
        cwd=cwd, input=stdin, capture_output=True, text=True, check=False, env={**os.environ, **TERMINAL, **env}, timeout=timeout,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def adv(line: str = "", *words: str, cwd: Path | None = None, stdin: str = "", **env: str) -> Done:
    """What `main` does with this line; an error that it does not expect fails the test. PYTHONIOENCODING is that of the streams."""
    streams = {
        "stdout": io.TextIOWrapper(io.BytesIO(), env.get("PYTHONIOENCODING", "utf-8")),
        "stderr": io.TextIOWrapper(io.BytesIO(), env.get("PYTHONIOENCODING", "utf-8"), "backslashreplace"),
    }
    with pytest.MonkeyPatch.context() as patch, _as_it_was():
        for name, value in {**TERMINAL, **env}.items():
            patch.setenv(name, value)
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        patch.setattr(sys, "argv", ["grpo-adv", *shlex.split(line), *words])
        if cwd is not None:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as end:
            __main__.main()
    assert isinstance(end.value.code, int), end.value.code
    return Done(end.value.code, *(_text(stream) for stream in streams.values()))


def ran(line: str = "", *words: str, **more: Any) -> Done:
    """The same of a run that must succeed."""
    done = adv(line, *words, **more)
    assert done.status == 0, done.err
    return done


def facts_of(line: str, **more: Any) -> Any:
    """What a run that must succeed says with --json."""
    return json.loads(ran(f"{line} --json", **more).out)


def files(folder: Path = Path()) -> dict[str, bytes]:
    """All files below a folder, which is the working one by default."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """What waits for longer, as for a pipe, ends this process, and xdist names the test: no exception ends a call in C."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return str(stream.buffer.read(), "utf-8")


@contextmanager
def _as_it_was() -> Iterator[None]:
    """What `main` does to its process is undone: its handlers of signals, the environment, and objects that the collector passes over."""
    handlers = [(number, signal.getsignal(number)) for number in SIGNALS]
    environment = dict(os.environ)
    try:
        yield
    finally:
        gc.unfreeze()
        os.environ.clear()
        os.environ.update(environment)
        for number, handler in handlers:
            signal.signal(number, handler)


def taken(pipe: IO[Any]) -> bool:
    """Whether the other end has read all that was written into a pipe: a run that has read a line waits for the next."""
    left = array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, left)
    return left[0] == 0
