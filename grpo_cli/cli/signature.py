"""Give a command the signature that typer reads, made from the table of options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Union

import typer

from grpo_cli.options import EVERY, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def with_options(names: Sequence[str], arguments: Sequence[inspect.Parameter]) -> Callable[[Callable[..., None]], Any]:
    """Turn a function of one mapping (what was given) into a command with these arguments and options."""

    def wrap(body: Callable[..., None]) -> Any:
        parameters = [*arguments, *(_parameter(EVERY[name]) for name in names)]

        def command(**given: Any) -> None:
            body({name: value for name, value in given.items() if value is not None and value != []})

        command.__name__, command.__doc__ = body.__name__, body.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return wrap


def _parameter(option: Option) -> inspect.Parameter:
    """One option as typer sees it; None always means: not given."""
    flags = [flag for flag in (option.flag, option.other, option.short) if flag]
    told = typer.Option(
        *flags, help=option.help, rich_help_panel=option.panel, metavar=option.metavar, show_default=False
    )
    annotation = Annotated[Union[option.type, None], told]  # type: ignore[name-defined]  # noqa: UP007 - run time
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
