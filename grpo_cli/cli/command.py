"""Parsing with typer: the tables of commands and options become typer's, and a command line becomes a `Line`."""

from __future__ import annotations

import inspect
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from grpo_cli import __version__
from grpo_cli.cli import waiting
from grpo_cli.cli.help import HELP_ALL, PROGRAM, of_command, of_program
from grpo_cli.engine.coerce import typed
from grpo_cli.errors import GrpoError, PluginError, Spelling, UnknownName, UsageError, Way, printable
from grpo_cli.options.commands import COMMANDS, Command
from grpo_cli.options.given import Given
from grpo_cli.options.meant import meant, unknown_option
from grpo_cli.options.table import Option
from grpo_cli.plugins import PluginWarning, Registry, in_words, named


class Line(NamedTuple):
    """A command, and by name the argument and options that were given."""

    command: Command
    given: Given

    def run(self) -> None:
        """Load the body of the command and call it."""
        from grpo_cli.options.config import beside, with_config

        given = with_config(self.given, self.command.takes, variable=True).to_command(self.command.name)
        names_file = {"config", "no_config"} & {*self.given}
        if "config" in self.command.takes and not names_file and sys.stderr is not None:
            self._name_file(given)
        for row in self.command.takes.values():
            if row.required and row.name not in given:
                cures = [f"give {row.flag} {row.takes}"] if row.takes else []
                raise UsageError(f"{row.flag} is missing", [*cures, "see --help"])
        quiet = bool(given.quiet)
        typed = "-" in given.inputs and sys.stdin is not None and sys.stdin.isatty()
        if typed and not quiet:
            print("reading rows from the terminal: end with Ctrl-D, or pipe them in", file=sys.stderr)
        # Not where data go to the terminal while they are read, or others print meanwhile.
        speaks = (
            quiet or given.debug or given.output == "-" or given.engine == "ray" or COMMANDS.origin(self.command.name)
        )
        if not speaks:
            waiting.begin(given.inputs)
        try:
            with _warnings_said(quiet=quiet), beside(given):
                self._perform(given)
        finally:
            waiting.end()

    def _perform(self, given: Given) -> None:
        """Call the command; an error of one of a package that is none of ours is told in one sentence."""
        try:
            if self.command.body:
                named(self.command.body)(given)
            else:
                from grpo_cli.cli.output import run

                run(self.command, given)
        except GrpoError as error:
            error.spelling = Spelling()  # flags, also if the Python API has raised it
            raise
        except (OSError, MemoryError):
            raise
        except Exception as error:
            package = COMMANDS.origin(self.command.name)
            if not package:
                raise
            what = f"the command {self.command.name} of {package} failed: {in_words(error)}"
            raise PluginError(what, Way("--debug", why="shows where")) from error

    def _name_file(self, given: Given) -> None:
        """Print what the file of GRPO_ADV_CONFIG sets (not with --quiet), or that one of the working folder is not read."""
        from grpo_cli.options.config import unread

        if given.config is not None:
            if given.quiet:
                return
            words = []
            for name in self.command.takes:
                if name in given and name not in {"config", *self.given}:
                    words += self.command.takes[name].words(given[name])
            said = f"{shlex.join(words)}; --no-config leaves it out" if words else f"nothing for {self.command.name}"
            note = f"{given.config} sets {said}"
        else:
            name = unread()
            note = (
                name and f"the options in {name} are not read; --config {name} reads them, --no-config hides this note"
            )
        if note:
            print(printable(f"note: {note}"), file=sys.stderr)


@contextmanager
def _warnings_said(*, quiet: bool) -> Iterator[None]:
    """Print each warning once, as a line; with --quiet none about plugins."""

    def shown(message: Warning | str, *_: Any) -> None:
        print(printable(f"warning: {message}"), file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "default", PluginWarning)
        warnings.showwarning = shown  # type: ignore[assignment]
        yield


def read(words: Sequence[str]) -> Line | int:
    """The command and options of a command line, or an exit status if typer has answered it (help, version, completion).

    Raises a usage error for an invalid line.
    """
    try:
        answer = _program().main(args=_as_meant(words), prog_name=PROGRAM, standalone_mode=False)
    except typer.exceptions.TyperException as error:
        text = error.format_message().rstrip(".")
        if hasattr(error, "possibilities"):
            raise _unknown_option(error) from None
        if text.lower().startswith("got unexpected extra argument"):
            raise _too_many(error, words) from None
        raise UsageError(f"{text[0].lower()}{text[1:]} (see --help)") from None
    if isinstance(answer, Line):
        return answer
    return answer or (0 if words else 2)


def _as_meant(words: Sequence[str]) -> list[str]:
    """The words of a line, with the options for what people type first: `help`, `help COMMAND`, `version` and `-V`."""
    match [*words]:
        case [] | ["help"]:
            return ["--help"]
        case ["help", command, *_]:
            return [command, "--help"]
        case ["version" | "-V", *_]:
            return ["--version"]
    return [*words]


def _too_many(error: Any, words: Sequence[str]) -> UsageError:
    """The error for more words than a command takes; where an option takes the other file, that is what was meant."""
    row = error.ctx.command.row
    argument = row.argument
    what = f"one {argument.flag}" if argument is not None else "no argument"
    other = next(
        (each for each in row.takes.values() if each.required and not each.is_argument and not each.choices), None
    )
    cure = "see --help"
    if other is not None and other.flag not in {word.partition("=")[0] for word in words}:
        cure = f"{other.flag} takes the other file: {other.flag} {other.metavar}"
    return UsageError(f"{row.name} takes {what}, and there are more", cure)


def _unknown_option(error: Any) -> UnknownName:
    """The error for an unknown option: a hint, else near names."""
    ctx = error.ctx
    known = [name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("--")]
    return unknown_option("option", error.option_name, known, f"see {HELP_ALL if HELP_ALL in known else '--help'}")


class _Command(TyperCommand):
    """A row of the table of commands; its parameters are made when one of its lines is parsed."""

    def __init__(self, row: Command) -> None:
        super().__init__(row.name, callback=self._line, short_help=row.help)
        self.row = row

    def get_params(self, ctx: Any) -> list[Any]:
        if not self.params:
            self.params = _parameters(self.row)
        return [_converting(parameter) for parameter in super().get_params(ctx)]

    def _line(self, **given: Any) -> Line:
        return Line(self.row, Given((name, value) for name, value in given.items() if value is not None))

    def format_help(self, _: Any, formatter: Any) -> None:
        formatter.write(of_command(self.row))


class _Commands(TyperGroup):
    """All commands; the error for an unknown one suggests a similar name. Those of packages are looked for where no other has the name."""

    def list_commands(self, _: Any) -> list[str]:
        return [*COMMANDS]

    def get_params(self, ctx: Any) -> list[Any]:
        return [_converting(parameter) for parameter in super().get_params(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        try:
            return _command(_row(cmd_name))
        except GrpoError:
            if ctx.resilient_parsing:  # completion expects no error
                return None
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        # Typer keeps opts in a set.
        options = [(", ".join(sorted(param.opts)), param.help) for param in self.get_params(ctx)]
        with _warnings_said(quiet=False):  # of commands of packages
            formatter.write(of_program(self.help or "", options))


def _row(name: str) -> Command:
    """The command of this name. Installed packages are looked at only if no built-in one has it."""
    if name in COMMANDS.at_hand:
        return COMMANDS[name]
    if Path(name).suffix or "/" in name or name == "-":
        raise UsageError(f"{name} is not a command", f"did you mean {PROGRAM} compute {name}?")
    if name not in COMMANDS:
        raise UnknownName.among("command", name, COMMANDS)
    with _warnings_said(quiet=False):
        return COMMANDS[name]


_made: dict[str, _Command] = {}  # parameters take a few ms, and a process may run many lines


def _command(row: Command) -> _Command:
    """The command of a row, which another of its name may have replaced."""
    if row.name not in _made or _made[row.name].row is not row:
        _made[row.name] = _Command(row)
    return _made[row.name]


@cache
def _program() -> Any:
    app = typer.Typer(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "color": True})

    @app.callback()
    def root(
        *,
        _: bool = typer.Option(False, "--version", help="Show the version.", callback=_version, is_eager=True),  # noqa: FBT003
    ) -> None:
        """Advantages for reinforcement learning, computed offline from reward files."""

    return typer.main.get_command(app)


def _version(given: bool) -> None:  # noqa: FBT001 - typer's callback
    if given:
        print(f"{PROGRAM} {__version__}")
        raise typer.Exit


def _help_all(ctx: typer.Context, given: bool) -> None:  # noqa: FBT001 - typer's callback
    if given:
        command: Any = ctx.command
        print(of_command(command.row, whole=True))
        raise typer.Exit


_HELP_ALL = typer.Option(
    False,  # noqa: FBT003
    HELP_ALL,
    help="Show all options and exit.",
    callback=_help_all,
    is_eager=True,
    expose_value=False,
)


def _parameters(row: Command) -> list[Any]:
    """Typer's parameters, which it makes from the signature of a function: this one has the signature of the table."""

    def command() -> None: ...

    whole = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=_HELP_ALL, annotation=bool)
    command.__signature__ = inspect.Signature([*map(_parameter, row.takes.values()), whole])  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return typer.main.get_command(app).params


def _parameter(row: Option) -> inspect.Parameter:
    """Typer's declaration of an option or argument; None means not given."""
    completion = _columns if row.metavar.startswith("COL") and row.panel else _names(row)
    common: dict[str, Any] = {"help": row.help, "autocompletion": completion}
    flags = filter(None, (row.flag, row.other, row.short))
    info = typer.Argument(None, **common) if row.is_argument else typer.Option(None, *flags, **common)
    return inspect.Parameter(row.name, inspect.Parameter.KEYWORD_ONLY, default=info, annotation=row.type)


def _names(row: Option) -> Callable[[typer.Context, str], list[str]] | None:
    """The completion of a value, from the table that the listing command shows; None without such a table."""
    if not row.values:
        return None

    def names(ctx: typer.Context, incomplete: str) -> list[str]:
        from grpo_cli.engine.estimators.registry import ESTIMATORS
        from grpo_cli.engine.presets import presets
        from grpo_cli.options.config import beside
        from grpo_cli.schemas.table import schemas
        from grpo_cli.targets.table import targets

        tables: dict[str, Registry[Any]] = {
            "methods": ESTIMATORS,
            "presets": presets(),
            "schemas": schemas(),
            "targets": targets(),
        }
        given = {name: value for name, value in ctx.params.items() if value is not None}
        with ExitStack() as stack:
            with suppress(GrpoError):  # errors in a file are reported when the line is run
                stack.enter_context(beside(given))
            return [name for name in tables[row.values] if name.startswith(incomplete)]

    return names


def _columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """The completion of a column, from the head of the first file that the line names so far."""
    from grpo_cli.read.open_tables import find_inputs, open_tables
    from grpo_cli.read.tables import Binding

    files = [name for name in ctx.args if Path(name).is_file()]  # an option without its value leaves them there
    if not files:
        return []
    before, comma, begun = incomplete.rpartition(",")
    with suppress(GrpoError):  # errors in a file are reported when the line is run
        (table, *_) = open_tables(find_inputs(files[:1])[0], Binding())
        return [f"{before}{comma}{name}" for name in table.columns() if name.startswith(begun)]
    return []


@cache  # typer asks several times and compares what it gets
def _converting(parameter: Any) -> Any:
    """The parameter with our conversion of its value: typer's loads pydantic and makes a validator for every option.

    Typer's own options (help, version, completion) are flags and need no conversion.
    """

    def process_value(ctx: Any, value: Any) -> Any:
        row = ctx.command.row.takes.get(parameter.name) if isinstance(ctx.command, _Command) else None
        if row is not None:
            value = _value(row, value)
        return parameter.callback(ctx, parameter, value) if parameter.callback else value

    converting = copy(parameter)
    converting.process_value = process_value

    def add_to_parser(parser: Any, _: Any) -> None:
        """Keep every value of an option: of one that takes a single value, typer would keep the last."""
        parser.add_option(obj=converting, opts=converting.opts, dest=converting.name, action="append")

    if not getattr(parameter, "is_flag", True):
        converting.add_to_parser = add_to_parser
    return converting


def _value(row: Option, value: Any) -> Any:
    """The value of an option from its text, by the rules of `--config` and the Python API; None if it is not given.

    A required option may still be in the config file.
    """
    if value is None or value in ((), []):
        return None
    if get_origin(row.type) is list:
        return list(value)
    if isinstance(value, list):
        if len(value) > 1:
            raise UsageError(
                f"{row.flag} is given more than once: {' and '.join(map(repr, value))}", "it takes one value"
            )
        value = value[0]
    cures = meant(row.name, value) if row.choices else ()
    if cures and value not in row.choices:
        raise UsageError(f"{row.flag} cannot be {value!r}", cures)
    return typed(value, row.type, row.flag)
