"""A progress bar for long runs: only on a terminal, and removed when the work is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Timer
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

# Shorter runs need no bar.
PATIENCE = 1.0
MB = 1_000_000  # bytes
# The colour of the text: a colour would mean something.
_PLAIN: dict[str, Any] = {
    "style": "dim",
    "complete_style": "default",
    "finished_style": "default",
    "pulse_style": "dim",
}


@contextmanager
def phases(
    console: Console, after: float = PATIENCE, before: Callable[[], None] = lambda: None
) -> Iterator[Callable[..., None]]:
    """Give a function that names the phase of the run; it is shown when the run lasts longer than `after` seconds.

    `before` is called before anything is shown.
    """
    if not (console.is_terminal and console.is_interactive):
        yield lambda *_: None
        return
    # Data may be on its way to stdout, so rich must not redirect it.
    progress = Progress(
        BarColumn(bar_width=20, **_PLAIN), TextColumn("{task.description}"), _Elapsed(), _Left(),
        console=console, transient=True, redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip
    task = progress.add_task("", total=None, is_known=False, size=None)

    def name(text: str, done: int = 0, total: int | None = None, size: int | None = None) -> None:
        """A phase of known length fills the bar; one of unknown length leaves it as it is, or pulses where it is the first.

        `size` is the number of bytes that have been read.
        """
        known: dict[str, Any] = {} if total is None else {"completed": done, "total": total}
        progress.update(task, description=text, is_known=total is not None, size=size, **known)

    def start() -> None:
        before()
        progress.start()

    timer = Timer(after, start)
    timer.daemon = True
    timer.start()
    try:
        yield name
    finally:
        timer.cancel()
        timer.join()  # or it could start the bar after its end
        if progress.live.is_started:
            progress.stop()


class _Elapsed(ProgressColumn):
    """How long the run has taken."""

    def render(self, task: Task) -> Text:
        return Text(str(timedelta(seconds=int(task.elapsed or 0))))


class _Left(ProgressColumn):
    """The percentage, the speed of reading, and the time left, where the size of the work is known and some of it is done.

    The speed is that of bytes: how many rows a file has is not known before it has been read.
    """

    def render(self, task: Task) -> Text:
        if not task.total:
            return Text("")
        said = [f"{task.percentage:.0f}%"]
        if task.fields["size"] and task.elapsed:
            said.append(f"{task.fields['size'] / task.elapsed / MB:,.0f} MB/s")
        if task.fields["is_known"] and (left := task.time_remaining) is not None:
            said.append(f"{timedelta(seconds=int(left))} left")
        return Text(", ".join(said))
