"""Hints about where rewards and keys may be: paths into the first records of a file, as flags to copy."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any, Final

from grpo_cli.read.known_names import (
    GROUP_TIERS,
    LIKELY_REWARD,
    LOG_OF_STEPS,
    MAYBE_GROUPS,
    MAYBE_REWARDS,
    NO_REWARD,
    REWARD_TIERS,
)
from grpo_cli.read.tables import Table
from grpo_cli.schemas.sample import values_of
from grpo_cli.schemas.table import SHAPES
from grpo_cli.values.chat import is_message
from grpo_cli.values.paths import Absent, absent

_LEVELS: Final = 2  # levels of nested objects that are searched
_ITEMS: Final = 8  # items of a list of objects that are searched
_FLAGS: Final = 3  # flags listed in a hint
_LIKE: Final = 0.6  # least similarity of a name that may have been meant
_LOGGED: Final = 2  # columns of a trainer's log that are no coincidence
_GROUPS: Final = (*GROUP_TIERS[0], *MAYBE_GROUPS)
_REWARDS: Final = tuple(name for tier in REWARD_TIERS for name in tier) + MAYBE_REWARDS


def flags_of_likely(tables: Sequence[Table], *, group: bool, reward: bool) -> str:
    """Ready-made flags for columns that may be the key and the reward, by well-known names or likely ones inside objects."""
    values = _values(tables)
    keys = [path for path in values if "[]" not in path and _leaf(path) in _GROUPS] if group else []
    rewards = [path for path in _rewards(values) if "." in path or path.strip() in _REWARDS] if reward else []
    if not (keys or rewards) or log_of_steps(tables) or inside_of_record(tables):
        return ""
    return f", such as {' '.join([*_flags('--group', keys[:1]), *_flags('--reward', rewards[:1])])}"


def inside_of_record(tables: Sequence[Table]) -> str:
    """A hint at the rows if the file is a single JSON record with a list of objects; otherwise empty."""
    records = _records(tables)
    is_document = len(tables) == len(records) == 1 and tables[0].format.holds_objects
    if not is_document or tables[0].schema is not None or log_of_steps(tables):
        return ""
    lists = {name: value for name, value in records[0].items() if _is_list_of_rows(value)}
    if not lists:
        return ""
    name, rows = max(lists.items(), key=lambda item: len(item[1]))
    inner = [path for path in _rewards(_values(tables)) if path.startswith(f"{name}[]")]
    path = shlex.quote(inner[0]) if inner else f"'{name}[].NAME'"
    return f"; the file is one record, and its {name} is a list of {len(rows)}: --reward {path} reads them"


def log_of_steps(tables: Sequence[Table]) -> str:
    """A hint if the file is a log with one line per training step, of means over rollouts; otherwise empty."""
    leaves = dict.fromkeys(_leaf(path) for path in _values(tables))
    logged = [name for name in LOG_OF_STEPS if name in leaves]
    if len(logged) < _LOGGED:
        return ""
    return (
        f"it looks like a log of training steps ({', '.join(logged)}): advantages need the rollouts behind their means"
    )


def refuse_absent(rewards: Sequence[str], tables: Sequence[Table]) -> None:
    """Refuse a reward that none of the first records has, if they have others that may have been meant."""
    for name in rewards:
        if any(True for record in _records(tables) for _ in values_of(record, name)):
            continue
        error = absent(name, tables[0].name, tables[0].columns())
        meant = absent_column(error, "--reward", tables)
        if meant is not error:
            raise meant


def absent_column(error: Absent, flag: str, tables: Sequence[Table]) -> Absent:
    """The error for a column that no row has, with ready-made flags for what may have been meant."""
    values, name = _values(tables), error.column
    likeness = {path: max(_likeness(name, path), _likeness(name, _leaf(path))) for path in values}
    paths = _rewards(values, likely=False) if flag == "--reward" else [path for path in values if "[]" not in path]
    meant = [path for path in paths if likeness[path] >= _LIKE] or (_rewards(values) if flag == "--reward" else [])
    meant = sorted(meant, key=lambda path: -round(likeness[path], 1))[:_FLAGS]
    if cut := _cut_by_flag(flag, name, tables[0].columns()):
        meant = [cut]
    elif not any("." in path for path in meant):
        return error  # it names the nearest column
    rows = tables[0].prefix if flag == "--reward" else ""
    flags = " or ".join(_flags(flag, [f"{rows}{path}" for path in meant]))
    return Absent.of(name, error.place, f"did you mean {flags}? columns: {', '.join(tables[0].columns()[:20])}")


def _cut_by_flag(flag: str, name: str, columns: Sequence[str]) -> str:
    """The column that the flag has cut at a comma or at =, as it has to be written; empty if there is none."""
    for column in columns:
        if flag == "--reward" and column.rpartition("=")[0] == name:
            return f"{column}=1"
        if flag in {"--group", "--batch-by"} and name in map(str.strip, column.split(",")):
            return f'"{column}"'
    return ""


# --- paths ---------------------------------------------------------------------------------------------------


def _flags(flag: str, paths: Sequence[str]) -> list[str]:
    return [f"{flag} {shlex.quote(path)}" for path in paths]


def _leaf(path: str) -> str:
    return re.split(r"[.\]]", path)[-1].strip()


def _likeness(name: str, path: str) -> float:
    return SequenceMatcher(None, name.replace("[]", "").lower(), path.replace("[]", "").lower()).ratio()


def _rewards(values: Mapping[str, Sequence[Any]], *, likely: bool = True) -> list[str]:
    """The paths of numbers, without counts and deviations: well-known names first, and lists before numbers."""
    ranks = {}
    for path, found in values.items():
        leaf, *parents = [part.removesuffix("[]").lower() for part in reversed(path.split("."))]
        numbers = [value for value in found if value is not None]
        kind = next((shape for shape in ("number", "numbers") if all(map(SHAPES[shape], numbers))), None)
        named = [bool(re.search(LIKELY_REWARD, name)) for name in (leaf, *parents[:1])]
        if not numbers or kind is None or re.search(NO_REWARD, leaf) or (likely and not any(named)):
            continue
        known = _REWARDS.index(leaf) if leaf in _REWARDS else len(_REWARDS) + named.index(True) if any(named) else 99
        ranks[path] = (leaf not in _REWARDS, kind == "number", known, path.count("."))
    return sorted(ranks, key=ranks.__getitem__)


def _values(tables: Sequence[Table]) -> dict[str, list[Any]]:
    """The values at each path into the first records of the first file; conversations are not searched."""
    found: dict[str, list[Any]] = {}
    for record in _records(tables):
        for path, value in _walk(record, "", _LEVELS):
            found.setdefault(path, []).append(value)
    return found


def _records(tables: Sequence[Table]) -> Sequence[Mapping[str, Any]]:
    return tables[0].sample().records if tables and tables[0].format.holds_records else ()


def _walk(value: Any, path: str, levels: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str) and value[:1] == "{":
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, dict):
        for name, inner in value.items() if levels >= 0 else ():
            yield from _walk(inner, f"{path}.{name}" if path else name, levels - 1)
    elif _is_list_of_rows(value):
        for item in value[:_ITEMS]:
            yield from _walk(item, f"{path}[]", levels)
    else:
        yield path, value


def _is_list_of_rows(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(item, dict) and not is_message(item) for item in value)
