"""The application: its commands, and the one place where errors become messages and exit statuses."""

from __future__ import annotations

import functools
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from grpo_cli import __version__
from grpo_cli.cli.compute import compute
from grpo_cli.cli.methods import methods
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

    return run


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
app.command()(guarded(methods))


def main() -> NoReturn:
    """Run the command line; never a traceback for what a user can cause."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _leave(INTERRUPTED, "interrupted, nothing was left half-written")
    except BrokenPipeError:
        _leave(BROKEN_PIPE)
    except typer.exceptions.TyperException as error:
        _leave(2, _worded(error))
    sys.exit(status if isinstance(status, int) else 0)


def _terminated(*_: object) -> NoReturn:
    """Unwind, so that temporary files go."""
    sys.exit(TERMINATED)


def _worded(error: Exception) -> str:
    told = error.format_message() if hasattr(error, "format_message") else str(error)
    text = told.replace("Value error, ", "").rstrip(".")
    return f"{text[:1].lower()}{text[1:]} (see --help)"


def _leave(status: int, message: str = "") -> NoReturn:
    if message:
        print(f"grpo-adv: {message}", file=sys.stderr)
    # Whatever is still buffered for a reader that has gone would raise once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)
