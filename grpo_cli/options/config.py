"""Config files: `--config`, which may set any option, and the file of the working folder, which may not overwrite or send.

Also the files of --presets and --schemas.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any, Final, NamedTuple

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.presets import presets
from grpo_cli.errors import DataError, UsageError, reason
from grpo_cli.files.kept import note
from grpo_cli.options.meant import unknown_option
from grpo_cli.options.resolve import FORMULA, Given, normalized, settings
from grpo_cli.options.table import COMPARED, EVERY, OPTIONS, OUTPUT, TOKENS, WITH, Option
from grpo_cli.schemas.table import schemas

LARGEST_CONFIG: Final = 1 << 20  # a file of more bytes is refused
VARIABLE: Final = "GRPO_ADV_CONFIG"
FILE: Final = "grpo-adv.toml"
PROJECT: Final = "pyproject.toml"
SECTION: Final = "grpo-adv"  # the table is [tool.grpo-adv]
_BY_NAME: Final = "write options by name, for example scale = 'batch'"
_LEAVE_OUT: Final = "--no-config leaves the file out"
_FORMULA: Final = FORMULA | {"compared_presets", "contenders"}


class _File(NamedTuple):
    name: str  # the name that messages show
    content: Mapping[str, Any]
    known: Mapping[str, str]  # the option for each key that it may have
    hint: str = ""


def with_config(given: Given, takes: Mapping[str, Option] = OPTIONS, *, search: bool = False) -> dict[str, Any]:
    """The given options, completed by those of a config file; `config` is the file that was read.

    With `search` it is the file of the working folder, if there is no --config. A file of --config may hold the options that the
    command `takes`, and those of `compute` that do not apply to it: one file may serve several commands.
    """
    _check_values(given)
    if "plans" in given:
        given = {**given, "plans": normalized("plans", given["plans"])[1]}
    if "config" in given and "no_config" in given:
        raise UsageError("--config and --no-config cannot be combined", "leave one of them out")
    if "config" in given:
        file: _File | None = _named(given["config"], takes)
    else:
        file = _found(takes, given) if search and "config" in takes and "no_config" not in given else None
    return dict(given) if file is None else _merged(given, file, takes)


def _named(path: str, takes: Mapping[str, Option]) -> _File:
    """The file of --config."""
    of_tokens = (row for row in EVERY.values() if row.panel == TOKENS)
    content = _parsed(_bytes(path, "--config takes a TOML file"), path, _BY_NAME)
    return _File(path, content, _keys((*OPTIONS.values(), *of_tokens, *takes.values())))


def _found(takes: Mapping[str, Option], given: Given) -> _File | None:
    """The file that GRPO_ADV_CONFIG names, else that of the working folder, else the section of its project; None without any.

    Parent folders are not searched. The table of options says what it may set: nobody knows who wrote the folder.
    For `compare` its presets and methods are ignored, and without --write its output options.
    """
    name = os.environ.get(VARIABLE)
    if name or os.path.isfile(FILE):  # noqa: PTH113 - a folder that cannot be searched has no such file
        name = name or FILE
        raw = _bytes(name, f"{VARIABLE} names a TOML file" if name != FILE else _LEAVE_OUT)
        content = _parsed(raw, name, f"{_BY_NAME}; {_LEAVE_OUT}")
    elif os.path.isfile(PROJECT):  # noqa: PTH113
        raw = _bytes(PROJECT, _LEAVE_OUT)
        if SECTION.encode() not in raw:  # without our section it need not be valid TOML
            return None
        tools = _parsed(raw, PROJECT, f"{_BY_NAME}; {_LEAVE_OUT}").get("tool")
        section = tools.get(SECTION) if isinstance(tools, Mapping) else None
        if section is None:
            return None
        name = f"[tool.{SECTION}] in {PROJECT}"
        if not isinstance(section, Mapping):
            raise UsageError(f"{name} is not a table", _LEAVE_OUT)
        content = dict(section)
    else:
        return None
    file = _File(name, content, _keys((*EVERY.values(), *takes.values())), _LEAVE_OUT)
    for key, value in content.items():
        row = EVERY.get(file.known.get(key, ""))
        foreign = "" if row is None else _of_package(*normalized(row.name, value, f" in {name}"))
        if foreign or not (row is None or row.in_folder):
            what = f"{key} to {foreign} of an installed package," if foreign else f"{key},"
            raise UsageError(
                f"{name} sets {what} which a config file in the working folder may not set",
                f"give --{key} on the command line; {_LEAVE_OUT}",
            )
    if "write" not in takes:
        return file
    passed_over = {COMPARED} if "write" in given else {COMPARED, OUTPUT}
    names = [key for key in content if key not in file.known or EVERY[file.known[key]].panel not in passed_over]
    return file._replace(content={key: content[key] for key in names})


def _of_package(name: str, value: Any) -> str:
    """The name in an option's value that is not built in, if there is one: using it would import a package."""
    if name == "plans":
        named = (_of_package(*option) for own in value.values() for option in own.items() if option[0] != WITH)
        return next(filter(None, named), "")
    tables = ESTIMATORS, presets(), schemas()
    if name in {"param", "set"}:
        pairs = (text.partition("=") for text in value)
        texts = [named for key, _, named in pairs if key.strip().removeprefix("estimator.") == "name"]
    elif EVERY[name].values or name == "methods":
        texts = value if isinstance(value, list) else [value]
    else:
        return ""
    words = (word.strip() for text in texts for word in re.split("[,=]", text) if word.strip())
    others = (word for word in words if not any(word in table.at_hand for table in tables))
    return next((word for word in others if any(word in table for table in tables)), "")


@contextmanager
def beside(given: Given) -> Iterator[None]:
    """Add the presets and schemas of the files that are given."""
    with ExitStack() as stack:
        for name, rows in (("presets", presets()), ("schemas", schemas())):
            if name in given:
                path = str(given[name])
                entries = _parsed(_bytes(path, f"{EVERY[name].flag} takes a TOML file"), path, "see docs/plugins.md")
                stack.enter_context(rows.beside(path, entries))
        yield


def _keys(rows: tuple[Option, ...]) -> dict[str, str]:
    """The option for each key; if two share a flag the last, which is the command's own."""
    no_keys = {"config", "no_config"}
    return {row.flag.removeprefix("--"): row.name for row in rows if row.name not in no_keys and not row.is_argument}


def _merged(given: Given, file: _File, takes: Mapping[str, Option]) -> dict[str, Any]:
    """The given options, and below them those of a file.

    A preset, method or formula that is given replaces those of the file.
    """
    for key in file.content:
        if key not in file.known:
            raise unknown_option(f"option in {file.name}", key, file.known, file.hint)
    config = dict(normalized(file.known[key], value, f" in {file.name}") for key, value in file.content.items())
    if "plan_by" in config and "plan_by" not in takes and "scale" in takes:  # one plan on all rows is another result
        hint = "use another config file, or --no-config"
        raise UsageError(f"{file.name} sets plan-by, and this command computes one plan on all rows", hint)
    config = {name: value for name, value in config.items() if name in takes}
    is_same_method = "method" in given and given["method"] == config.get("method")
    if (_FORMULA - {"param"}) & {*given} and not (is_same_method and "preset" not in given):
        config = {name: value for name, value in config.items() if name not in _FORMULA}
    elif is_same_method:
        config.pop("preset", None)
    for value, own in config.get("plans", {}).items():
        for name, option in product(given, own):
            if name == option or {name, option} <= FORMULA - {"param"}:
                wrong = (
                    f"{OPTIONS[name].flag} is given, and [plan.{value}] in {file.name} sets {option.replace('_', '-')}"
                )
                raise UsageError(wrong, f"leave one of them out, or give --plan {value}:...")
    # Flags come last: the last setting of a field counts.
    weaker = {name: value for name, value in config.items() if name not in given}
    both: dict[str, Any] = {
        name: [*config[name], *given[name]] for name in ("param", "set") if name in config and name in given
    }
    if "plans" in config and "plans" in given:
        both["plans"] = {**config["plans"], **given["plans"]}
    if "set" in config:
        by_flag = settings(given)
        kept = [item for item in config["set"] if item.partition("=")[0].strip() not in by_flag]
        both["set"] = [*kept, *given.get("set", ())]
    return {**weaker, **given, **both, "config": file.name}


def _check_values(given: Given) -> None:
    """Refuse empty values, names that are not text, and lines of no length."""
    if given.get("max_line", 1) < 1:
        raise UsageError(f"--max-line cannot be {given['max_line']}", "it takes 1 or more")
    for name, value in given.items():
        if name in EVERY and (value == "" or (isinstance(value, list) and "" in value)):
            raise UsageError(f"{EVERY[name].flag} is empty", "is a shell variable not set?")
        metavar = (EVERY[name].metavar or "") if name in EVERY else ""
        for text in value if isinstance(value, list) else [value]:  # a word of the command line may be any bytes
            if metavar.startswith(("COL", "NAME", "KEY")) and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise UsageError(f"{EVERY[name].flag} {text!r} is not valid UTF-8", "write the name in UTF-8")


def _bytes(path: str, hint: str) -> bytes:
    """The content of a file, up to the limit."""
    try:
        with open(path, "rb") as handle:  # noqa: PTH123 - a name as it was given
            note(os.fstat(handle.fileno()))
            raw = handle.read(LARGEST_CONFIG + 1)
    except OSError as error:
        raise DataError(reason(error), hint, place=path) from None
    if len(raw) > LARGEST_CONFIG:
        raise DataError(f"more than {LARGEST_CONFIG:,} bytes", hint, place=path)
    return raw


def _parsed(raw: bytes, path: str, hint: str) -> dict[str, Any]:
    try:
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # also invalid UTF-8, and an integer of 5,000 digits
        raise DataError(f"not TOML ({error})", hint, place=path) from None
