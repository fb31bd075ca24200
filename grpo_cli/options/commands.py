"""The commands, one row each: the command line, its completion, the Python API and the documents read this table.

The body of a command is the function of its name in the module of its name in `cli/`; it is loaded when the command
is called. To add a command: a row here, and that module.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from grpo_cli.options.table import (
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
    POST,
    PROMPTS,
    REWARDS,
    ROLE,
    SFT,
    SHAPE,
    SKIPPED,
    TOKENS,
    WEIGHTS,
    Listing,
    Option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: what it does, a line that shows it, and the names of the argument and the options that it takes."""

    name: str
    help: str
    argument: Option
    options: tuple[str, ...]
    example: str
    more: str = ""

    @property
    def takes(self) -> dict[str, Option]:
        """The argument and the options by their names, in the order of the help."""
        return {self.argument.name: self.argument, **{name: EVERY[name] for name in self.options}}


def _options(*which: str, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The options of these panels and of these names, in this order."""
    names = (row.name for one in which for row in EVERY.values() if one in {row.panel, row.name})
    return tuple(name for name in names if name not in without)


def _name(of: Listing) -> Option:
    return Option(name="name", type=str, spelled="NAME", values=of, help="Explain this one.")


_INPUTS: Final = Option(
    name="inputs",
    type=list[str],
    spelled="INPUT",
    required=True,
    help="Files, directories, quoted globs, objects (s3://, hf://, ...), or - for stdin.",
)
# Rewards are looked at as they stand in the file: shaping them belongs to an advantage.
_ADVANTAGE: Final = (GROUPS, REWARDS, METHOD, DIVISOR, SKIPPED, POST, ROLE)

_ROWS: Final = (
    Command(
        name="compute",
        help="Compute advantages and weave them into the file as one more column.",
        argument=_INPUTS,
        options=_options(
            INPUT, OUTPUT, TOKENS, GROUPS, REWARDS, SHAPE, METHOD, DIVISOR, SKIPPED, POST, ROLE, ENGINE, MESSAGES
        ),
        example="grpo-adv compute rewards.jsonl --method rloo --scale batch",
    ),
    Command(
        name="inspect",
        help="Look at rewards and groups: spread, solve rates, what carries no gradient, and what would.",
        argument=_INPUTS,
        options=_options(
            LOOK, *_ADVANTAGE, ENGINE, "on_error", "max_line", "config", "json", "quiet", "debug", without=("methods",)
        ),
        example="grpo-adv inspect rewards.jsonl --by step",
    ),
    Command(
        name="report",
        help="Draw the rewards, the groups and their advantages: one HTML page that needs no network, or a picture.",
        argument=_INPUTS,
        options=_options(
            "output", "force", "by", "before", "methods", "text_column", "duplicates", *_ADVANTAGE, "on_error", "max_line",
            "config", "quiet", "debug",
        ),
        example="grpo-adv report rewards.jsonl -o report.html",
    ),
    Command(
        name="select",
        help="Keep groups by their facts, and rows inside them; what is kept is not changed.",
        argument=_INPUTS,
        options=_options(
            CHOICE, "seed", "output", "force", GROUPS, REWARDS, "length_column", "on_error", "max_line", "config",
            "json", "summary", "quiet", "debug",
        ),
        example="grpo-adv select rewards.jsonl --where '0.1 <= mean <= 0.9 and std > 0' -o alive.jsonl",
    ),
    Command(
        name="export",
        help="Make the file of the next training job: the best rows, preference pairs, weighted rows, prompts, tokens.",
        argument=_INPUTS,
        options=_options(
            EXPORT, SFT, "per_group", PAIRS, WEIGHTS, PROMPTS, TOKENS, "where", "limit", "seed", "output", "force", SHAPE, *_ADVANTAGE,
            "on_error", "max_line", "config", "json", "summary", "quiet", "debug",
        ),
        example="grpo-adv export rewards.jsonl --to sft -o sft.jsonl",
        more="The options of the plan (--method, --scale and the like) make the advantages of --to weights and --to tokens.",
    ),
    Command(
        name="audit",
        help="Find the formula that made the advantages of a file, and the rows that disagree with it.",
        argument=_INPUTS,
        options=_options("column", SHAPE, *_ADVANTAGE, ENGINE, "config", "fail_on", "json", "quiet", "debug"),
        example="grpo-adv audit completions.parquet --column advantage",
        more="Name a --preset (or --method and its options) to check that claim; --reward-clip and the like hold for every formula that is tried.",
    ),
    Command(
        name="compare",
        help="Compute several plans on the same rows, and show where they differ.",
        argument=_INPUTS,
        options=_options(
            COMPARED, "output", "force", "in_place", "column", "replace", "dtype", *_ADVANTAGE, "json",
            "quiet", "debug", without=("preset", "method", "expr"),
        ),
        example="grpo-adv compare rewards.jsonl --preset trl-grpo --preset verl-grpo",
        more="The other options hold for all of them; those of one stand behind its name: --method grpo,scale=batch.",
    ),
    Command(
        name="methods",
        help="List the methods, or explain one: formula, parameters, columns, source.",
        argument=_name("methods"),
        options=_options("json", "debug"),
        example="grpo-adv methods rloo",
    ),
    Command(
        name="presets",
        help="List the presets, or explain one: formula, constants, rules, source, and the presets that are equal.",
        argument=_name("presets"),
        options=_options("json", "debug"),
        example="grpo-adv presets trl-grpo",
    ),
    Command(
        name="schemas",
        help="List the file layouts that are known, explain one, or say which of them a file has and why.",
        argument=Option(
            name="name", type=str, spelled="NAME|FILE", values="schemas",
            help="Explain this schema, or how this file is matched.",
        ),
        options=_options("json", "debug"),
        example="grpo-adv schemas rewards.jsonl",
    ),
    Command(
        name="verify",
        help="Check that a file is its input plus the added columns, and nothing else; exit 1 with the first difference.",
        argument=Option(name="file", type=str, spelled="OUT", required=True, help="The file that was written."),
        options=_options(CHECKED, "json", "debug"),
        example="grpo-adv verify rewards.advantages.jsonl --against rewards.jsonl",
    ),
)  # fmt: skip

COMMANDS: Final[Mapping[str, Command]] = MappingProxyType({row.name: row for row in _ROWS})
