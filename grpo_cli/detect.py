"""Which schema a file is of: every schema is held against the names and a few rows, and the most specific one is it.

Detection is deterministic, and two that fit equally well are an error, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from grpo_cli import formats
from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats.lines import raw_lines
from grpo_cli.formats.prototype import row_of
from grpo_cli.formats.records import records, text_of
from grpo_cli.formats.rows import ABSENT, rows, value_of
from grpo_cli.io.spool import pinned
from grpo_cli.narrow import FileTable
from grpo_cli.schemas import LISTED, NONE, REFUSED, schema, schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from grpo_cli.narrow import Table
    from grpo_cli.schemas import Schema

_NEAR: Final = 3  # schemas that nearly fit
_ROWS: Final = 20
_BYTES: Final = 4 << 20
_SCORED: Final = frozenset({"reward", "rewards", "score", "scores", "total_reward", "advantage", "advantages"})
_NUMBER: Final = re.compile(
    r"\s*([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|nan|[-+]?inf(inity)?|true|false)\s*", re.IGNORECASE
)
_BASES: Final = {"nested": {"jsonl", "json"}, **{layout: {"jsonl", "json", "parquet", "arrow"} for layout in LISTED}}


@dataclass(frozen=True, slots=True)
class Sight:
    """What is looked at: the path, the names and a few records of a file."""

    path: str
    format: str
    names: frozenset[str]
    records: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, table: FileTable) -> Sight:
        """Look at a file."""
        found = _sample(table)
        names = {*table.columns(), *(name for one in found for name in one)}
        return cls(table.name, table.format.name, frozenset(names), found)


@dataclass(frozen=True, slots=True)
class Match:
    """How well a schema fits: its score, or what speaks against it."""

    schema: Schema
    score: int
    against: tuple[str, ...] = ()
    by: tuple[str, ...] = ()  # what speaks for it


def recognised(tables: Sequence[Table], choice: str | None) -> list[Table]:
    """The tables as the schema of their files reads them; those that have been recognised stay as they are."""
    files = [one for one in tables if isinstance(one, FileTable)]
    if choice == NONE or any(one.looked for one in files):
        return list(tables)
    if len(files) < len(tables):
        return _named_on_frames(tables, choice)
    found = {one.name: _schema_of(one, choice) for one in files}
    kinds = {None if one is None else one.name: name for name, one in found.items()}
    if len(kinds) > 1:
        told = ", ".join(f"{name} is {kind or 'of no known schema'}" for kind, name in kinds.items())
        raise DataError(f"the files are of different schemas: {told}", "name one with --schema NAME, or --schema none")
    return [_laid(one, found[one.name]) for one in files]


def _named_on_frames(tables: Sequence[Table], choice: str | None) -> list[Table]:
    if choice is not None:
        raise UsageError("a schema says how a file is read", "name the columns of a frame: group=..., reward=...")
    return list(tables)


def _schema_of(table: FileTable, choice: str | None) -> Schema | None:
    if choice is not None:
        chosen = schema(choice)
        _refuse(chosen, table)
        return chosen
    if table.format.name in {"csv", "tsv", "parquet", "arrow"} and not _likely(table.columns()):
        return None
    best = _best(matches(Sight.of(table)), table.name)
    if best is not None:
        _refuse(best, table)
    return best


def _likely(names: Sequence[str]) -> bool:
    """Whether any schema's top-level names are all here: most tables need no closer look."""
    here = {*names}
    return any({name.split(".")[0].split("[")[0] for name in one.fields} <= here for one in schemas().values())


def _best(found: Sequence[Match], name: str) -> Schema | None:
    fitting = [one for one in found if not one.against]
    if not fitting:
        return None
    most = max(one.score for one in fitting)
    best = [one.schema for one in fitting if one.score == most]
    if len(best) > 1:
        told = " and ".join(f"{one.name} ({one.title})" for one in best)
        raise DataError(f"{name}: two schemas fit: {told}", "choose with --schema NAME, or --schema none")
    return best[0]


def _refuse(found: Schema, table: FileTable) -> None:
    if found.layout in REFUSED:
        raise DataError(f"{table.name}: {found.title}: {found.refusal}", found.hint)
    bases = _BASES.get(found.layout)
    if bases is not None and table.format.name not in bases:
        told = f"{table.name}: the schema {found.name} is not read from {table.format.name}"
        raise DataError(told, f"it is read from {', '.join(sorted(bases))}; --schema none reads plain rows")


def explained(name: str) -> dict[str, Any]:
    """Which schema a file is of, what speaks for it, and what against the nearest others, as plain data."""
    source = pinned(Path(name))
    found = matches(Sight.of(FileTable(source, formats.of(source))))
    fitting = sorted((one for one in found if not one.against), key=lambda one: -one.score)
    near = sorted((one for one in found if one.against and one.by), key=lambda one: (len(one.against), -one.score))
    best = _best(found, name)
    return {
        "file": name,
        "schema": None if best is None else best.name,
        "because": [] if best is None else list(fitting[0].by),
        "also": [_told(one) for one in fitting[1:]],
        "nearly": [_told(one) for one in near if len(one.against) == 1][:_NEAR],
    }


def _told(one: Match) -> dict[str, Any]:
    return {"schema": one.schema.name, "score": one.score, "by": list(one.by), "against": list(one.against)}


def _laid(table: FileTable, found: Schema | None) -> FileTable:
    """A file whose format knows the layout of its schema."""
    if found is None:
        table.looked.add(NONE)
        return table
    kind = table.format
    if found.layout == "nested":
        inner = "[]" if kind.name == "json" and kind.path == "[]" else ""
        kind = formats.nested(f"{inner}.{found.rows}".strip("."), lined=kind.name == "jsonl")
    return table.of_schema(found, kind)


# --- matching ----------------------------------------------------------------------------------------------


def matches(sight: Sight) -> list[Match]:
    """How every schema fits, in the order of the table."""
    return [_match(one, sight) for one in schemas().values()]


def _match(one: Schema, sight: Sight) -> Match:
    against, by, score = [], [], 0
    for name, shape in one.fields.items():
        why = _misfit(name, shape, sight)
        if why:
            against.append(why)
        else:
            by.append(name)
            score += 2 if shape == "any" else 3
    absent = {*one.absent, *(_SCORED if one.layout in REFUSED else ())}
    against += [f"has {name}" for name in sorted(absent & sight.names)]
    score += len(one.absent)
    if one.file and re.search(one.file, sight.path):
        by.append("the name of the file")
        score += 3
    elif one.only_file:
        against.append("another name of the file")
    if not against and one.rewards is not None and not reward_names(one, sight):
        against.append("no column that could be a reward")
    return Match(one, score, tuple(against), tuple(by))


def _misfit(name: str, shape: str, sight: Sight) -> str:
    top = name.partition("[")[0]
    if name not in sight.names and top.split(".")[0] not in sight.names:
        return f"no {name}"
    values = [value for record in sight.records for value in _values(record, name)]
    if not values:
        return f"no {name}" if name not in sight.names else ""
    known = [value for value in values if value is not None]
    return "" if all(map(_SHAPES[shape], known)) else f"{name} is not {shape}"


def _values(record: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Every value at a name that may lead over lists."""
    head, each, rest = name.partition("[]")
    found = value_of(record, head)
    if found is ABSENT:
        return
    if not each:
        yield found
        return
    for item in found if isinstance(found, list) else ():
        if rest:
            yield from _values(item, rest.removeprefix(".")) if isinstance(item, dict) else ()
        else:
            yield item


def reward_names(one: Schema, sight: Sight) -> tuple[str, ...]:
    """The reward columns of a schema that has no fixed names for them."""
    rule = one.rewards
    if rule is None:
        return one.reward
    if rule.named_in:
        named = [value for record in sight.records for value in _values(record, f"{rule.named_in}[]")]
        return tuple(name for name in dict.fromkeys(map(str, named)) if name in sight.names)
    names = [name for record in sight.records for name in record]
    fitting = [name for name in dict.fromkeys(names) if name not in rule.excluded]
    if rule.named:
        return tuple(name for name in fitting if re.search(rule.named, name))
    return tuple(name for name in fitting if _all_of(name, rule.shape, sight))


def _all_of(name: str, shape: str, sight: Sight) -> bool:
    values = [record[name] for record in sight.records if record.get(name) is not None]
    return bool(values) and all(map(_SHAPES[shape], values))


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return isinstance(value, (bool, int, float))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(item is None or _is_number(item) for item in value)


_SHAPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "any": lambda _: True,
    "number": _is_number,
    "float": lambda value: type(value) is float,
    "text": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool) or value in {"True", "False", "true", "false"},
    "list": lambda value: isinstance(value, list),
    "numbers": _is_numbers,
    "texts": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "objects": lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
    "object": lambda value: isinstance(value, dict),
    "numbers-or-number": lambda value: _is_number(value) or _is_numbers(value),
    "fraction": lambda value: isinstance(value, str) and re.fullmatch(r"\d+/\d+", value) is not None,
}


# --- a few records -----------------------------------------------------------------------------------------


def _sample(table: FileTable) -> list[Mapping[str, Any]]:
    kind, source = table.format, table.source
    if kind.name == "json":
        texts = formats.documents(kind).texts(source)
        return [row.value for one in texts for row in one.rows[:_ROWS]]
    if kind.name in {"csv", "tsv"}:
        marks = {"csv": b",", "tsv": b"\t"}
        cells = (list(map(text_of, raw)) for _, raw in records(source, marks[kind.name]) if raw)
        header = next(cells, [])
        return [dict(zip(header, one, strict=False)) for one in islice(cells, _ROWS)]
    if kind.name in {"parquet", "arrow"}:
        return [row_of(source, kind.name)]
    return [row for _, row in rows(_lines(table), lambda at: f"{table.name}:{at + 1}")]


def _lines(table: FileTable) -> Iterator[bytes]:
    size = 0
    for line in islice(raw_lines(table.source), _ROWS):
        yield line
        size += len(line)
        if size > _BYTES:
            return
