"""Give a command the signature that typer reads, made from the table of options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Union

import typer

from grpo_cli.cli.command import INPUTS
from grpo_cli.options.table import EVERY, Option

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_cli.cli.command import Command

_ARGUMENT = typer.Argument(metavar="INPUT", help="Files, directories, quoted globs, or - for stdin.")


def for_typer(command: Command) -> Callable[..., None]:
    """The command as a function with a parameter for the inputs and for each of its options."""
    inputs = inspect.Parameter(
        INPUTS, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[list[str], _ARGUMENT]
    )
    parameters = [inputs, *(_parameter(EVERY[name]) for name in command.options)]

    def run(**given: Any) -> None:
        command.body({name: value for name, value in given.items() if value is not None and value != []})

    run.__name__, run.__doc__ = command.body.__name__, command.body.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _parameter(option: Option) -> inspect.Parameter:
    """One option as typer sees it; None always means: not given."""
    flags = [flag for flag in (option.flag, option.other, option.short) if flag]
    told = typer.Option(
        *flags, help=option.help, rich_help_panel=option.panel, metavar=option.metavar, show_default=False
    )
    annotation = Annotated[Union[option.type, None], told]  # type: ignore[name-defined]  # noqa: UP007 - run time
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
