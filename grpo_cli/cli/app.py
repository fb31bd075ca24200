"""The application as typer has it: help, completion of short spellings, and words for what is mistyped."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_cli import __version__
from grpo_cli.cli.audit import audit
from grpo_cli.cli.compare import compare
from grpo_cli.cli.compute import compute
from grpo_cli.cli.guard import guarded
from grpo_cli.cli.inspect import inspect
from grpo_cli.cli.methods import methods
from grpo_cli.cli.presets import presets
from grpo_cli.cli.report import report
from grpo_cli.cli.schemas import schemas
from grpo_cli.cli.select import select
from grpo_cli.cli.signature import for_typer
from grpo_cli.cli.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="grpo-adv",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The same command; what went wrong is its exit status."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        status = guarded(lambda: command(**given), given)
        if status:
            raise typer.Exit(status)

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


for one in (compute, inspect, report, select, audit, compare):
    app.command()(_guarded(for_typer(one)))
for other in (methods, presets, schemas, verify):
    app.command()(_guarded(other))


def run() -> int:
    """Run the command line; a mistake in it is one line as well."""
    try:
        status = app(standalone_mode=False)
    except typer.exceptions.TyperException as error:
        told = _worded(error)
        if told:
            print(f"grpo-adv: {told}", file=sys.stderr)
        return 2
    return status if isinstance(status, int) else 0


def _worded(error: Exception) -> str:
    told = error.format_message() if hasattr(error, "format_message") else str(error)
    text = told.replace("Value error, ", "").rstrip(".")
    text = text.replace(
        "Input should be a valid integer, unable to parse string as an integer", "it takes a whole number"
    )
    text = text.replace("Input should be a valid number, unable to parse string as a number", "it takes a number")
    # Without a command typer has shown the help, and has no words of its own.
    return f"{text[:1].lower()}{text[1:]} (see --help)" if text else ""
