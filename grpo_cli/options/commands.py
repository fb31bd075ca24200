"""The commands, each declared once: its name, its help, its options, an example, its job and what shows what the job found.

A command names its job as MODULE:CLASS and the rest as MODULE:FUNCTION; they are loaded when it is called. A command of an
installed package is a `Command` as well, under an entry point:

    [project.entry-points."grpo_adv.commands"]
    lab-words = "lab_words:COMMAND"

Importing this table loads neither polars nor typer.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Final, Literal, get_origin

from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.options.export_kinds import EXPORT_KINDS, WITH_ADVANTAGES, listed
from grpo_cli.options.given import Given
from grpo_cli.options.table import (
    ADDED,
    CHECKED,
    CHOICE,
    COMPARED,
    DIVISOR,
    ENGINE,
    EVERY,
    EXPORT,
    GROUPS,
    INPUT,
    LOOK,
    MESSAGES,
    METHOD,
    OUTPUT,
    PAIRS,
    PLANS,
    POST,
    PROMPTS,
    REWARDS,
    ROLE,
    SFT,
    SHAPE,
    SKIPPED,
    TOKENS,
    WEIGHTS,
    Option,
    Several,
)
from grpo_cli.plugins import Registry, named, refuse_misfits

OWN = "Of this command"  # the panel of options that say none
# The argument of most commands.
INPUTS = Several(
    "inputs",
    "Files, directories, quoted globs, URLs (s3://, hf://, ...), or - for stdin.",
    spelled="INPUT",
    required=True,
    brief="Files, directories, globs, URLs, - for stdin",
)


@dataclass(frozen=True)
class Command:
    """A command: what it does, its options, an example, and what is loaded when it is called.

    `options` are names of the table of options; `own` are options that no other command has. `common` are those that most runs need,
    which `--help` shows; a command without them shows all that it has.
    """

    name: str
    help: str
    options: tuple[str, ...]
    example: str
    argument: Option | None = INPUTS
    own: tuple[Option, ...] = ()
    common: tuple[str, ...] = ()
    more: str = ""
    job: str = ""  # MODULE:CLASS, made of options by `CLASS.of`; the module's `run` performs it
    shown_by: str = ""  # MODULE:FUNCTION, prints what was found on a console
    # MODULE:FUNCTION of a command that does more than run a job and show what it found; it gets the options
    body: str = ""

    @property
    def takes(self) -> dict[str, Option]:
        """The argument and the options by name, in the order of the help."""
        argument = {} if self.argument is None else {self.argument.name: self.argument}
        own = {row.name: row if row.panel else replace(row, panel=OWN) for row in self.own}
        return argument | own | {name: EVERY[name] for name in self.options}


_OF_PANEL = {
    one: [row.name for row in EVERY.values() if row.panel == one] for one in {row.panel for row in EVERY.values()}
}


def options_of(*which: str, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The options of these panels and names, in this order."""
    names = chain.from_iterable([name] if name in EVERY else _OF_PANEL[name] for name in which)
    return tuple(name for name in names if name not in without)


# inspect and report show rewards as they are in the file, so they take no shaping.
ADVANTAGE = (GROUPS, REWARDS, METHOD, DIVISOR, SKIPPED, POST, ROLE)
# Parts of what `--help` shows.
GROUPED = ("group", "group_size", "group_within", "schema")
REWARDED = ("reward", "map", "missing")
# Parts of what commands take.
DRIFT = ("mask", "token_logprobs", "old_token_logprobs", "token_entropy")
READ = ("on_error", "max_line", "config", "no_config")
SHOWN = ("quiet", "color", "debug")

# In the order of the help. A guest is a name, loaded with the table: nothing of the core imports one.
_BUILT_IN: tuple[Command | str, ...] = (
    Command(
        "compute",
        "Compute advantages and add them to the file as a new column.",
        options=options_of(
            INPUT, OUTPUT, TOKENS, GROUPS, REWARDS, SHAPE, METHOD, PLANS, DIVISOR, SKIPPED, POST, ROLE, ENGINE, MESSAGES,
            without=("all", "old_token_logprobs", "token_entropy"),
        ),
        common=(
            "preset", "method", "scale", *GROUPED, "batch_by", *REWARDED, "zero_variance", "output", "force", "in_place", "column",
            "explain", "fail_on", "json", "quiet",
        ),
        body="grpo_cli.cli.compute:compute",
        example="grpo-adv compute rewards.jsonl --method rloo --scale batch",
    ),
    Command(
        "inspect",
        "Inspect rewards and groups: spread, solve rates, groups without a gradient, and which group size would help.",
        options=options_of(
            "where", LOOK, *DRIFT, *ADVANTAGE, ENGINE, *READ, "fail_on", "json", *SHOWN,
        ),
        common=(
            "preset", "method", *GROUPED, *REWARDED, "where", "by", "full", "show", "top", "sort", "format", "before", "rescored", "fail_on",
            "json",
        ),
        body="grpo_cli.cli.inspect:inspect",
        example="grpo-adv inspect rewards.jsonl --by step",
    ),
    "grpo_cli.guests.browse:COMMAND",
    Command(
        "report",
        "Plot rewards, groups and advantages: a self-contained HTML page or an image.",
        options=options_of(
            "output", "force", "by", "before", "cluster", "pass_at", "rescored", "rescored_column", "text_column", "duplicates", *DRIFT, *ADVANTAGE, *READ, *SHOWN,
        ),
        common=(
            "preset", "method", *GROUPED, *REWARDED, "by", "before", "rescored", "text_column", "output",
            "force", "quiet",
        ),
        body="grpo_cli.cli.report:report",
        example="grpo-adv report rewards.jsonl -o report.html",
    ),
    Command(
        "select",
        "Select groups by solve rate, spread, pass@K, ..., and rows within them; the rows stay unchanged.",
        options=options_of(
            CHOICE, "before", "seed", "output", "force", GROUPS, REWARDS, "length_column", *READ,
            "fail_on", "json", "summary", *SHOWN,
        ),
        common=(
            "where", "limit", "per_group", "pick", "most", "most_by", "top_p", *GROUPED, *REWARDED, "output", "force",
            "json", "quiet",
        ),
        job="grpo_cli.runs.select:Job",
        shown_by="grpo_cli.render.written:select",
        example="grpo-adv select rewards.jsonl --where '0.1 <= mean <= 0.9' -o alive.jsonl",
    ),
    Command(
        "export",
        f"Export training data: {', '.join(kind.brief for kind in EXPORT_KINDS.values())}.",
        options=options_of(
            EXPORT, SFT, "per_group", PAIRS, WEIGHTS, PROMPTS, TOKENS, "where", "pass_at", "before", "limit", "control", "holdout", "holdout_seed", "seed", "output", "force", SHAPE, *ADVANTAGE,
            *READ, "fail_on", "json", "summary", *SHOWN, without=("teacher_logprobs", "token_entropy"),
        ),
        common=(
            "to", "prompt", "response", "messages", "where", "limit", "per_group", "best", "min_reward", "pairs", "min_margin", "weight",
            "pool", "method", "group", "group_within", "reward", "output", "force", "json",
        ),
        job="grpo_cli.runs.export:Job",
        shown_by="grpo_cli.render.written:export",
        example="grpo-adv export rewards.jsonl --to sft -o sft.jsonl",
        more=f"--method, --scale and the other plan options set the advantages of {listed(f'--to {kind}' for kind in WITH_ADVANTAGES)}.",
    ),
    "grpo_cli.guests.audit:COMMAND",
    Command(
        "compare",
        "Compute several plans on the same rows and show where they differ.",
        options=options_of(
            COMPARED, "output", "force", "in_place", "column", "replace", "dtype", *ADVANTAGE, "config",
            "no_config", "fail_on", "json", *SHOWN, without=("preset", "method", "expr"),
        ),
        common=(
            "compared_presets", "contenders", "write", "scale", *GROUPED, "batch_by", *REWARDED, "output", "force", "in_place", "json",
            "quiet",
        ),
        job="grpo_cli.runs.compare:Job",
        shown_by="grpo_cli.render.compare:render",
        example="grpo-adv compare rewards.jsonl --preset trl-grpo --preset verl-grpo",
        more="Other options apply to all plans; append options to a name to set them for one plan: --method grpo,scale=batch.",
    ),
    Command(
        "methods",
        "List the methods, or explain one: formula, parameters, columns, source.",
        argument=Option("name", "Name to explain.", spelled="NAME", values="methods"),
        options=options_of("all", "json", "color", "debug"),
        body="grpo_cli.cli.methods:methods",
        example="grpo-adv methods rloo",
    ),
    Command(
        "presets",
        "List the presets, or explain one: formula, constants, rules, source, equivalent presets.",
        argument=Option(
            "name", "Preset to explain, or a framework or part of a name to list.",
            spelled="NAME|WORD", values="presets", brief="Preset to explain, or a framework to list",
        ),
        options=options_of("presets", "all", "json", "color", "debug"),
        body="grpo_cli.cli.presets:presets",
        example="grpo-adv presets trl-grpo",
    ),
    Command(
        "schemas",
        "List the known file layouts, explain one, or say which layout a file has and why.",
        argument=Option(
            "name", "Schema to explain, or file to match.",
            spelled="NAME|FILE", values="schemas",
        ),
        options=options_of("schemas", "json", "color", "debug"),
        body="grpo_cli.cli.schemas:schemas",
        example="grpo-adv schemas rewards.jsonl",
    ),
    Command(
        "targets",
        "List the trainers that read an export, or explain one: form, columns, what it trains on and what to set.",
        argument=Option("name", "Target to explain.", spelled="NAME", values="targets"),
        options=options_of("json", "color", "debug"),
        body="grpo_cli.cli.targets:targets",
        example="grpo-adv targets trl",
    ),
    Command(
        "add",
        "Add columns from another file, by row or by key; all other bytes of the file stay the same.",
        argument=Option(
            "file", "The file that gets the columns, a URL, or - for stdin.",
            spelled="FILE", required=True, brief="The file that gets the columns; -: stdin",
        ),
        options=options_of(
            ADDED, "schema", "output", "force", "in_place", "replace", "max_line", "config", "no_config", "fail_on", "json",
            "summary", *SHOWN,
        ),
        job="grpo_cli.runs.add:Job",
        shown_by="grpo_cli.render.written:add",
        example="grpo-adv add rewards.jsonl --from judge.parquet --on rollout_id",
    ),
    Command(
        "verify",
        "Check that a file is its input plus the added columns and nothing else; exit 1 at the first difference.",
        argument=Option("file", "The output file to check.", spelled="OUT", required=True),
        options=options_of(CHECKED, "fail_on", "json", *SHOWN),
        body="grpo_cli.cli.verify:verify",
        example="grpo-adv verify rewards.advantages.jsonl --against rewards.jsonl",
    ),
    Command(
        "skill",
        "Print a guide for coding agents, or install it as a skill.",
        argument=None,
        options=options_of("install", "force", "color", "debug"),
        body="grpo_cli.cli.skill:skill",
        example="grpo-adv skill --install skills",
    ),
)  # fmt: skip


@cache
def _built_in() -> Mapping[str, Command]:
    rows: Iterable[Command] = (named(row) if isinstance(row, str) else row for row in _BUILT_IN)
    return {row.name: row for row in rows}


_NAME = re.compile(r"[a-z][a-z0-9-]*")
_REFERENCE = re.compile(r"[\w.]+:\w+")
_TYPES = (str, bool, int, float, list[str])


def _checked(name: str, entries: Mapping[str, Command]) -> Command:
    """A command of a package."""
    row = entries[name]
    if row.name != name:
        raise UsageError(f"its own name is {row.name}", "give both the same")
    if not _NAME.fullmatch(name):
        raise UsageError(f"a command cannot be named {name!r}", "names have lower-case letters, digits and -")
    refuse_misfits(Command, f"command {name}", _without(row, "argument", "own"))
    for known in row.options:
        if known not in EVERY:
            raise UnknownName.among("option", known, EVERY)
    taken = {text for known in EVERY.values() for text in (known.name, known.flag, known.other, known.short)} - {""}
    for option in row.own:
        _refuse_option(option)
        if used := {option.name, option.flag, option.other, option.short} & taken:
            raise UsageError(f"its option {option.name} has a name of grpo-adv: {min(used)}", "give it another name")
    if row.argument is not None:
        _refuse_option(row.argument)
    if unknown := [option for option in row.common if option not in row.takes]:
        raise UnknownName.among("option of the command", unknown[0], row.takes)
    for reference in [row.body] if row.body else [row.job, row.shown_by]:
        if not _REFERENCE.fullmatch(reference):
            raise UsageError(f"it calls {reference!r}, which is not MODULE:OBJECT", "set body, or job and shown_by")
    return row


def _refuse_option(row: Option) -> None:
    """Refuse what is no option, or one that cannot be parsed or shown."""
    if not isinstance(row, Option):
        raise UsageError(f"it has {row!r} for an option", "make it with grpo_cli.Option")
    refuse_misfits(Option, f"option {row.name}", _without(row, "type"))
    if not (row.type in _TYPES or get_origin(row.type) is Literal):
        raise UsageError(
            f"its option {row.name} has the type {row.type}", "it takes str, bool, int, float, list[str] or a Literal"
        )


def _without(row: object, *names: str) -> dict[str, object]:
    """The fields of a dataclass by name, but for these."""
    return {name: value for name, value in vars(row).items() if name not in names}


COMMANDS: Final = Registry("command", "grpo_adv.commands", _built_in, _checked, Command, loads="")


def command_line(command: str, given: Given) -> str:
    """A command line of options by their names, as a shell takes it."""
    words = ["grpo-adv", command, *given.inputs]
    for name, value in given.items():
        if name != "inputs" and value is not False:
            words += EVERY[name].words(value)
    return shlex.join(words)
