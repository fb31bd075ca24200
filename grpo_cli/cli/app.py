"""The application: its commands, and the one place where errors become messages and exit statuses."""

from __future__ import annotations

import functools
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from grpo_cli import __version__
from grpo_cli.cli.audit import audit
from grpo_cli.cli.compare import compare
from grpo_cli.cli.compute import compute
from grpo_cli.cli.inspect import inspect
from grpo_cli.cli.methods import methods
from grpo_cli.cli.presets import presets
from grpo_cli.cli.report import report
from grpo_cli.cli.schemas import schemas
from grpo_cli.cli.select import select
from grpo_cli.cli.verify import verify
from grpo_cli.errors import GrpoError

if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED: Final = 130
TERMINATED: Final = 143
BROKEN_PIPE: Final = 141

app = typer.Typer(
    name="grpo-adv",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Turn our errors into one line on stderr and their exit status; the signature stays."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        try:
            command(**given)
        except GrpoError as error:
            if given.get("debug"):
                raise
            print(f"grpo-adv: {error}", file=sys.stderr)
            raise typer.Exit(error.status) from None
        except BrokenPipeError:
            _silence()
            raise typer.Exit(BROKEN_PIPE) from None
        except OSError as error:
            if given.get("debug"):
                raise
            print(f"grpo-adv: {_system(error)}", file=sys.stderr)
            raise typer.Exit(1) from None

    return run


def _system(error: OSError) -> str:
    """What the operating system refused: a full disk, a directory without permission, a closed stream."""
    where = f"{error.filename}: " if error.filename else "reading or writing failed: "
    return f"{where}{(error.strerror or str(error)).lower()}"


def _version(asked: bool) -> None:  # noqa: FBT001 - typer's callback
    if asked:
        print(f"grpo-adv {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    _: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Advantages for reinforcement learning, computed offline from reward files."""


app.command()(guarded(compute))
app.command()(guarded(inspect))
app.command()(guarded(report))
app.command()(guarded(select))
app.command()(guarded(audit))
app.command()(guarded(compare))
app.command()(guarded(methods))
app.command()(guarded(presets))
app.command()(guarded(schemas))
app.command()(guarded(verify))


def main() -> NoReturn:
    """Run the command line; never a traceback for what a user can cause."""
    signal.signal(signal.SIGTERM, _signalled)
    signal.signal(signal.SIGINT, _signalled)
    try:
        status = app(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        _leave(INTERRUPTED, "interrupted, nothing was left half-written")
    except BrokenPipeError:
        _leave(BROKEN_PIPE)
    except OSError as error:
        _leave(1, _system(error))
    except typer.exceptions.TyperException as error:
        _leave(2, _worded(error))
    except (Exception, SystemExit):
        # A signal that arrives inside one of our functions that polars calls comes back in polars' words.
        if not _SIGNALS:
            raise
        _leave(TERMINATED if _SIGNALS[0] == signal.SIGTERM else INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


_SIGNALS: Final[list[int]] = []  # those that have asked for the end


def _signalled(number: int, _: object) -> NoReturn:
    """Unwind, so that temporary files go."""
    _SIGNALS.append(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(TERMINATED)


def _worded(error: Exception) -> str:
    told = error.format_message() if hasattr(error, "format_message") else str(error)
    text = told.replace("Value error, ", "").rstrip(".")
    text = text.replace(
        "Input should be a valid integer, unable to parse string as an integer", "it takes a whole number"
    )
    text = text.replace("Input should be a valid number, unable to parse string as a number", "it takes a number")
    # Without a command typer has shown the help, and has no words of its own.
    return f"{text[:1].lower()}{text[1:]} (see --help)" if text else ""


def _leave(status: int, message: str = "") -> NoReturn:
    if message:
        print(f"grpo-adv: {message}", file=sys.stderr)
    _silence()
    sys.exit(status)


def _silence() -> None:
    """Whatever is still buffered for a reader that has gone would raise once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
