"""What a file looks like to somebody who has to tell its schema: its path, its names, the shapes of a few records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.formats import registry
from grpo_cli.formats.delimited import records, text_of
from grpo_cli.formats.jsonl.lines import raw_lines
from grpo_cli.formats.jsonl.rows import ABSENT, rows, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.interface import Format
    from grpo_cli.schemas.table import Schema

_ROWS: Final = 20
_BYTES: Final = 4 << 20
_NUMBER: Final = re.compile(
    r"\s*([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|nan|[-+]?inf(inity)?|true|false)\s*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What is looked at: the path, the names and a few records of a file."""

    path: str
    format: str
    names: frozenset[str]
    records: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, source: Input, known: Format, columns: Collection[str]) -> Sample:
        """Look at a file of a format, of which some names are known."""
        found = _sample(source, known)
        names = {*columns, *(name for one in found for name in one)}
        return cls(source.name, known.name, frozenset(names), found)


def misfit(name: str, shape: str, sample: Sample) -> str:
    """What speaks against a column of that shape, or nothing."""
    top = name.partition("[")[0]
    if name not in sample.names and top.split(".")[0] not in sample.names:
        return f"no {name}"
    values = [value for record in sample.records for value in _values(record, name)]
    if not values:
        return f"no {name}" if name not in sample.names else ""
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


def reward_names(one: Schema, sample: Sample) -> tuple[str, ...]:
    """The reward columns of a schema that has no fixed names for them."""
    rule = one.rewards
    if rule is None:
        return one.reward
    if rule.named_in:
        named = [value for record in sample.records for value in _values(record, f"{rule.named_in}[]")]
        return tuple(name for name in dict.fromkeys(map(str, named)) if name in sample.names)
    names = [name for record in sample.records for name in record]
    fitting = [name for name in dict.fromkeys(names) if name not in rule.excluded]
    if rule.named:
        return tuple(name for name in fitting if re.search(rule.named, name))
    return tuple(name for name in fitting if _all_of(name, rule.shape, sample))


def _all_of(name: str, shape: str, sample: Sample) -> bool:
    values = [record[name] for record in sample.records if record.get(name) is not None]
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


def _sample(source: Input, kind: Format) -> list[Mapping[str, Any]]:
    if kind.name == "json":
        return registry.documents(kind).sample(source)
    if kind.name in {"csv", "tsv"}:
        marks = {"csv": b",", "tsv": b"\t"}
        cells = (list(map(text_of, raw)) for _, raw in records(source, marks[kind.name]) if raw)
        header = next(cells, [])
        return [dict(zip(header, one, strict=False)) for one in islice(cells, _ROWS)]
    if kind.name in {"parquet", "arrow"}:
        return [_row_of(source, kind.name)]
    return [row for _, row in rows(_lines(source), lambda at: f"{source.name}:{at + 1}")]


def _row_of(source: Input, kind: str) -> dict[str, Any]:
    from grpo_cli.formats.columnar import row_of

    if kind == "parquet":
        import pyarrow.parquet as pq

        with source.open() as handle:
            return row_of(pq.read_schema(handle))
    from grpo_cli.formats.arrow import schema_of

    return row_of(schema_of(source))


def _lines(source: Input) -> Iterator[bytes]:
    size = 0
    for line in islice(raw_lines(source), _ROWS):
        yield line
        size += len(line)
        if size > _BYTES:
            return
