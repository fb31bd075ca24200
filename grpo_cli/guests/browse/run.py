"""`grpo-adv browse`: read the rollouts on a terminal, groups first."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from select import POLLERR, POLLHUP, poll
from threading import Thread

from grpo_cli.cli.entry import SIGNALLED
from grpo_cli.cli.output import progress
from grpo_cli.errors import UsageError
from grpo_cli.options.given import Given

_LOCAL = 3  # where tcgetattr has the modes of the terminal that the user sees


def browse(given: Given) -> None:
    """Read the files, show the screen, and print the commands that the user asked for."""
    if find_spec("textual") is None:
        from grpo_cli.files.installation import missing_extra

        raise missing_extra("browse needs textual", "browse")
    if "-" in given.inputs:
        raise UsageError("browse reads keys from standard input", "name a file")
    # Textual draws on standard error.
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("browse needs a terminal", "inspect --show KEY prints a group")
    Thread(target=import_module, args=["textual.app"]).start()  # takes 0.2 s, while the files are read
    from grpo_cli.guests.browse.model import Model
    from grpo_cli.read.known_names import STEP_LIKE
    from grpo_cli.runs.inspect import Job

    job = Job.of(given.without({"where", "sort"}))  # they are applied when the groups are shown
    job = replace(job, view=replace(job.view, by_steps=True, named=STEP_LIKE)).apart
    with _unechoed(), progress(given) as phase:
        model = Model.of(job, phase)
    given = model.as_shown(given)
    from grpo_cli.guests.browse.app import Browser

    browser = Browser(model, given)
    Thread(target=_leave_with_terminal, args=[browser.finish], daemon=True).start()
    for line in browser.run() or ():
        print(line)
    browser.finish()
    sys.stdout.flush()
    os._exit(0)  # without waiting for what is still being read


@contextmanager
def _unechoed() -> Iterator[None]:
    """Keys that are pressed while files are read are for the screen that follows: the terminal does not print them."""
    before = termios.tcgetattr(sys.stdin)
    silent = [*before]
    silent[_LOCAL] = before[_LOCAL] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _leave_with_terminal(finish: Callable[[], None]) -> None:
    """End the process when the terminal is gone: textual would read its end again and again, and wait for its output."""
    waiting = poll()
    waiting.register(sys.stdin, 0)
    if any(state & (POLLHUP | POLLERR) for _, state in waiting.poll()):
        finish()
        os._exit(SIGNALLED + signal.SIGHUP)
