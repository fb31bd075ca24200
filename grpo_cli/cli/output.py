"""What commands share: the summary as text or JSON on the right stream, and progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from grpo_cli.cli import waiting
from grpo_cli.cli.terminal import has_colours
from grpo_cli.errors import GateError, GrpoError
from grpo_cli.options.commands import COMMANDS, Command
from grpo_cli.options.given import Given
from grpo_cli.plugins import Registry, named
from grpo_cli.stats.document import plain_data

if TYPE_CHECKING:
    from rich.console import Console

Facts = Any  # a frozen dataclass


def show(given: Given, facts: Facts, view: str, *, aside: bool = False, **more: Any) -> None:
    """Print the facts to standard output, or to standard error if data went there, and write the file of --summary.

    `view` is MODULE:FUNCTION: it loads rich, which a quiet run and JSON do not need. `aside` says that data went to standard output
    although the facts do not list it.
    """
    if given.config is not None and hasattr(facts, "config"):  # those of a package need not have it
        facts = replace(facts, config=given.config)
    stream = sys.stderr if aside or "stdout" in (getattr(facts, "outputs", None) or ()) else sys.stdout
    if given.summary is not None:
        _save(Path(given.summary), as_json(facts), force=bool(given.force))
    if given.json:
        print(as_json(facts), file=stream)
    elif not given.quiet:
        named(view)(facts, screen(given, stream), **more)


def emit(text: str) -> None:
    """Print a table for another program: in UTF-8 whatever PYTHONIOENCODING says, but on a terminal as that shows it."""
    if sys.stdout.isatty():
        sys.stdout.write(text)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())


def run(command: Command, given: Given) -> None:
    """Run the job of a command and show what it found; where nothing was to be written, also if a gate refuses it."""
    from grpo_cli.cli.engine import workers

    job = named(command.job).of(given)
    steps = import_module(command.job.partition(":")[0])
    try:
        with progress(given) as phase, workers(given) as tasks:
            facts = steps.run(job, phase, *([tasks] if "engine" in command.options else []))
        _gate_of_package(command, given, facts)
    except GateError as error:
        if error.written is None:
            show(given, error.facts, command.shown_by)
        raise
    show(given, facts, command.shown_by)


def _gate_of_package(command: Command, given: Given, facts: Facts) -> None:
    """The gate of a command of a package, on what it found; ours ask it themselves, before they write."""
    if "fail_on" not in given or not COMMANDS.origin(command.name):
        return
    from grpo_cli.runs.gate import Gate

    if gate := Gate.of(given, type(facts)):
        gate.check(facts)


def screen(given: Given, stream: IO[str] | None = None) -> Console:
    """A console without automatic highlighting, on standard output unless another stream is given.

    Its first line names the file of options, if one was read.
    """
    from rich.console import Console

    console = Console(
        file=stream,
        highlight=False,
        color_system="standard" if has_colours(stream or sys.stdout) else None,  # the sixteen of the terminal
    )
    if "config" in given:
        from grpo_cli.render.text import Sheet

        Sheet(console).row("options", given["config"])
    return console


def as_json(facts: Facts) -> str:
    """Facts as JSON; NaN is an error."""
    return json.dumps(plain_data(facts), indent=2, default=str, allow_nan=False)


def listing(given: Given, view: Any, table: Registry[Any], **some: Any) -> None:
    """Show a whole table (or `some` rows of it), or the row that is named."""
    name = given.name
    if given.json:
        names = some.get("names") or [row.name for row in table.values()]
        found = view.as_dict(name) if name in table else [*map(view.as_dict, names)]
        print(json.dumps(found, indent=2))
        return
    if given.all:
        some["archive"] = True
    with _paged(given) as console:
        if name in table:
            view.explain(name, console)
        else:
            view.listing(console, **some)


@contextmanager
def _paged(given: Given) -> Iterator[Console]:
    """A console whose text goes to the pager (PAGER, else less) if a person reads it on a terminal."""
    console = screen(given)
    os.environ.setdefault("LESS", "FRX")  # colours; a text that fits the screen stays on it
    of_person = sys.stdin.isatty() and sys.stdout.isatty()
    with console.pager(styles=console.color_system is not None) if of_person else nullcontext():
        yield console


@contextmanager
def progress(given: Given) -> Iterator[Callable[..., None]]:
    """Give a function that is called with each phase of a run, and shows it on a terminal unless --quiet."""
    if given.quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console

    from grpo_cli.render.progress import phases

    try:
        with phases(Console(stderr=True), before=waiting.end) as name:
            yield name
    finally:
        waiting.end()


def _save(path: Path, text: str, *, force: bool) -> None:
    from grpo_cli.files.atomic import replacing

    try:
        with replacing(path, force=force) as handle:
            handle.write(f"{text}\n".encode())
    except GrpoError as error:
        error.inside("--summary")
        error.written, error.cures = None, ["all other outputs were written"]
        raise
