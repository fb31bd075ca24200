"""Config files: of `--config` and GRPO_ADV_CONFIG. Also the files of --presets and --schemas."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from typing import Any, Final

from grpo_cli.engine.presets import presets
from grpo_cli.errors import DataError, UsageError, Way, reason
from grpo_cli.files.kept import note
from grpo_cli.files.named import opened_to_read
from grpo_cli.options.export_kinds import EXPORT_KINDS, kinds_that_take
from grpo_cli.options.given import Given
from grpo_cli.options.meant import unknown_option
from grpo_cli.options.needs import LOGPROBS
from grpo_cli.options.resolve import FORMULA, normalized, refuse_twice, settings
from grpo_cli.options.table import BY_VALUE, EVERY, OF_KINDS, OPTIONS, OUTPUT, PER_TOKEN, TOKENS, Option
from grpo_cli.schemas.table import schemas

LARGEST_CONFIG = 1 << 20  # a file of more bytes is refused
DEEPEST = 100  # parts of a name: a.b has two, and no option or preset more than four
# Python takes the square of the parts of a name: 20,000 dots (40 KB) took 1.5 GB.
_PART = rb"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_DEEP = re.compile(rb"(?<![A-Za-z0-9_-])(?:%s){%d}" % (_PART, DEEPEST))
VARIABLE = "GRPO_ADV_CONFIG"
FILE = "grpo-adv.toml"
PROJECT = "pyproject.toml"
SECTION = "grpo-adv"  # the table is [tool.grpo-adv]
LISTS = ("mask", "token_logprobs")
# Options that only say more of one of others: a file has them for lines with those.
SAYS_MORE_OF: Final[Mapping[str, Collection[str]]] = {
    "holdout_seed": {"holdout"},
    "top_p_slack": {"top_p"},
    "most_by": {"most"},
    "pick": {"per_group"},
    "control": {"where", "most", "top_p", "limit"},
    "cluster": {"before"},
}
OF_ONE_REWARD = ("by", "show", "full", "sort", "top", "pass_at")  # without --old-rewards
OF_ONE_RUN = ("by", "show", "full", *LOGPROBS)  # of inspect, without --against
_BY_NAME = "write options by name, for example scale = 'batch'"
_FORMULA = FORMULA | {"compared_presets", "contenders"}


def with_config(given: Given, takes: Mapping[str, Option] = OPTIONS, *, variable: bool = False) -> Given:
    """The given options, completed by those of a config file; `config` is the file that was read.

    With `variable` and without --config, it is the file that GRPO_ADV_CONFIG names. A file of --config may hold the options
    that the command `takes`, and those of `compute` that do not apply to it: one file may serve several commands. The file
    of the variable serves all commands.
    """
    _check_values(given)
    refuse_twice(given)
    if "plans" in given:
        given = Given(given, plans=normalized("plans", given.plans)[1])
    if "config" in given and "no_config" in given:
        raise UsageError("--config and --no-config cannot be combined", "leave one of them out")
    name = os.environ.get(VARIABLE)
    if given.config is not None:
        of_tokens = [row for row in EVERY.values() if row.panel == TOKENS]
        keys = _keys(*OPTIONS.values(), *of_tokens, *takes.values())
        name = given.config
        way = Way("--help-all", why="lists them")
        content = _options(name, "--config takes a TOML file")
    elif variable and name and "config" in takes and "no_config" not in given:
        keys = _keys(*EVERY.values(), *takes.values())
        way = Way("--no-config", why="leaves the file out")
        content = _options(name, f"{VARIABLE} names a TOML file")
    else:
        return Given(given)
    for key in content:
        if key not in keys and key in _keys(*EVERY.values()):
            cure = f"{VARIABLE}={name} reads options of every command, --config those of this one and of compute"
            raise UsageError(f"{key} in {name} is an option of another command", cure)
        if key not in keys:
            raise unknown_option(f"option in {name}", key, keys, way)
    known = {**EVERY, **takes}
    config = Given(normalized(keys[key], value, f" in {name}", known) for key, value in content.items())
    return _merged(given, config, str(name), takes)


def _options(path: str, hint: str) -> dict[str, Any]:
    """The options in a file; of a pyproject.toml its section [tool.grpo-adv]."""
    content = _parsed(_bytes(path, hint), path, _BY_NAME)
    if os.path.basename(path) != PROJECT:  # noqa: PTH119 - a name as it was given
        return content
    tools = content.get("tool")
    section = tools.get(SECTION) if isinstance(tools, dict) else None
    if not isinstance(section, dict):
        raise DataError(f"no table [tool.{SECTION}]", _BY_NAME, place=path)
    return section


def unread() -> str:
    """The file of options in the working folder, which only --config reads; empty if there is none."""
    if os.path.isfile(FILE):  # noqa: PTH113 - a folder that cannot be searched has no such file
        return FILE
    if os.path.isfile(PROJECT):  # noqa: PTH113
        with suppress(DataError):  # one that is not ours may be anything
            return PROJECT if _options(PROJECT, "") else ""
    return ""


@contextmanager
def beside(given: Mapping[str, object]) -> Iterator[None]:
    """Add the presets and schemas of the files that are given."""
    with ExitStack() as stack:
        for name, rows in (("presets", presets()), ("schemas", schemas())):
            if name in given:
                path = str(given[name])
                content = _bytes(path, f"{EVERY[name].flag} takes a TOML file")
                entries = _parsed(content, path, "see docs/plugins.md")
                stack.enter_context(rows.beside(path, entries))
        yield


def _keys(*rows: Option) -> dict[str, str]:
    """The option for each key; if two share a flag the last, which is the command's own."""
    no_keys = {"config", "no_config"}
    return {row.flag.removeprefix("--"): row.name for row in rows if row.name not in no_keys and not row.is_argument}


def _merged(given: Given, config: Given, file: str, takes: Mapping[str, Option]) -> Given:
    """The given options, and below them those of a file.

    A preset, method or formula that is given replaces those of the file.
    """
    _refuse_plans_by_value(config, file, takes)
    config = _without_replaced_formula(_for_command(config, given, takes), given)
    plans = config.plans or {}
    _refuse_options_of_plans(given, plans, file)
    merged = Given({**config.without(given), **given, "config": file})
    # Flags come last: the last setting of a field counts.
    if "param" in config:
        merged["param"] = [*config.param, *given.param]
    if plans:
        merged["plans"] = {**plans, **(given.plans or {})}
    if "set" in config:
        by_flag = settings(given)
        kept = [item for item in config.set if item.partition("=")[0].strip() not in by_flag]
        merged["set"] = [*kept, *given.set]
        config["set"] = kept
    merged.of_file = {name: value for name, value in config.items() if name not in given or name in {"param", "set"}}
    return merged


def _refuse_plans_by_value(config: Given, file: str, takes: Mapping[str, Option]) -> None:
    """Refuse a file with a plan for each value where one plan is computed on all rows: that is another result."""
    if {*BY_VALUE} & {*config} and "plan_by" not in takes and "scale" in takes:
        wrong = f"{file} has a plan for each value of a column, and this command computes one plan on all rows"
        raise UsageError(
            wrong,
            ["use another config file", Way("--no-config", why=", and --rows for the rows of one value", lead="add")],
        )


def _without_replaced_formula(config: Given, given: Given) -> Given:
    """The options of a file without its preset, method and formula, if others are given.

    A file's parameters of the same method stay.
    """
    is_same_method = "method" in config and given.method == config.method
    replaces = (_FORMULA - {"param"}) & {*given}
    if replaces and not (is_same_method and "preset" not in given):
        return config.without(_FORMULA)
    return config.without({"preset"}) if is_same_method else config


def _refuse_options_of_plans(given: Given, plans: Mapping[str, Given], file: str) -> None:
    """Refuse an option for all plans that the plan of a value in the file sets, too."""
    for value, own in plans.items():
        for name, option in product(given, own):
            if name == option or {name, option} <= FORMULA - {"param"}:
                wrong = f"{OPTIONS[name].flag} is given, and [plan.{value}] in {file} sets {option.replace('_', '-')}"
                raise UsageError(wrong, ["leave one of them out", Way("--plan", fill=f"{value}:...", lead="give")])


def _for_command(config: Given, given: Given, takes: Mapping[str, Option]) -> Given:
    """The options of a file that the command has a use for.

    LISTS alone are for `compute --per-token`: they would stop a command that takes them with others. What another line of the same
    command has a use for is left out, too.
    """
    own = config.among(takes)
    if "write" in takes and "write" not in {*given, *config}:
        own = own.among([name for name in own if takes[name].panel != OUTPUT])
    to = given.to or own.to
    of_kind = EXPORT_KINDS[to].takes if to else ()
    if to:
        own = own.among([name for name in own if takes[name].panel not in OF_KINDS or name in of_kind])
        own = own.without([name for name in own if kinds_that_take(name) and name not in {*of_kind, "solved_at"}])
    beside = (not to or "token_logprobs" in of_kind) and {"old_token_logprobs", "kl_from"} & {*own, *given}
    unread = () if "per_token" in takes or "tokens" in of_kind or beside else LISTS
    own = own.without(unread)
    if "format" in takes:  # inspect
        if "before" in given:
            own = own.without(OF_ONE_RUN)
        elif {"rescored", "rescored_column"} & {*given}:
            own = own.without(OF_ONE_REWARD)
        elif "format" in given:
            own = own.without({"full", *(() if "by" in {*own, *given} else LOGPROBS)})
    there = {*own, *given}
    return own.without([name for name, others in says_more_of(takes).items() if there.isdisjoint(others)])


def says_more_of(takes: Collection[str]) -> dict[str, Collection[str]]:
    """The options of a command that only say more of one of others."""
    found = dict(SAYS_MORE_OF)
    if "per_token" in takes:
        found |= {name: {"per_token"} for name in PER_TOKEN}
    return found


def _check_values(given: Given) -> None:
    """Refuse empty values, names that are not text, and lines of no length."""
    longest = given.max_line
    if longest is not None and longest < 1:
        raise UsageError(f"--max-line cannot be {longest}", "it takes 1 or more")
    for name, value in given.items():
        option = EVERY.get(name)
        if option is None:
            continue
        values = value if isinstance(value, list) else [value]
        if "" in values:
            raise UsageError(f"{option.flag} is empty", "is a shell variable not set?")
        if option.metavar.startswith(("COL", "NAME", "KEY")):
            for text in values:  # a word of the command line may be any bytes
                if any("\ud800" <= letter <= "\udfff" for letter in text):
                    raise UsageError(f"{option.flag} {text!r} is not valid UTF-8", "write the name in UTF-8")


def _bytes(path: str, hint: str) -> bytes:
    """The content of a file, up to the limit."""
    try:
        with opened_to_read(path) as handle:
            note(os.fstat(handle.fileno()))
            raw = handle.read(LARGEST_CONFIG + 1)
    except OSError as error:
        raise DataError(reason(error), hint, place=path) from None
    if len(raw) > LARGEST_CONFIG:
        raise DataError(f"more than {LARGEST_CONFIG:,} bytes", hint, place=path)
    return raw


def _parsed(raw: bytes, path: str, hint: str) -> dict[str, Any]:
    if _DEEP.search(raw):
        raise DataError(f"a name of more than {DEEPEST} parts", hint, place=path)
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))  # editors of Windows begin a file with a mark
    except (ValueError, RecursionError) as error:  # also invalid UTF-8, and an integer of 5,000 digits
        raise DataError(f"not TOML ({error})", hint, place=path) from None
