"""The key-value entries of a footer: those that describe the schema learn of the new columns."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from grpo_cli.formats import footer, spell, thrift
from grpo_cli.formats.footer import Unspliceable
from grpo_cli.formats.thrift import BINARY, STRUCT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grpo_cli.formats.layout import Layout

_KEY, _VALUE = 1, 2  # of KeyValue
_ARROW: Final = "ARROW:schema"


class Keys(NamedTuple):
    """The entries as they will be, and a line for each that had to stay as it was."""

    listed: bytes
    left: Sequence[str]


class Alien(ValueError):
    """An entry does not have the form that its key promises."""


@dataclass(frozen=True, slots=True)
class Change:
    """The columns before and after: none for a new one, or its number before; and the new fields by name."""

    before: Sequence[str]
    after: Sequence[tuple[str, int | None]]
    new: Mapping[str, pa.Field]
    ours: Mapping[str, str]

    def applied(self, items: Sequence[Any], spelt: Callable[[pa.Field], Any]) -> list[Any]:
        """Give a list with one item per column as it is after the change."""
        if len(items) != len(self.before):
            raise Alien
        return [spelt(self.new[name]) if at is None else items[at] for name, at in self.after]


def keys(layout: Layout, new: pa.Schema, ours: Mapping[str, str]) -> Keys:
    """List the entries after the change."""
    raw, old = layout.old.raw, layout.old
    places = {one: at for at, one in enumerate(old.columns)}
    change = Change(
        [one.name for one in old.columns],
        [(one.name, None if fresh else places[one]) for fresh, one in layout.columns],
        {one.name: one for one in new},
        ours,
    )
    marks = thrift.items(raw, old.fields[footer.NOTES].start) if footer.NOTES in old.fields else [0]
    left: list[str] = []
    entries = [_entry(raw, at, change, left) for at in marks[:-1]]
    known = {thrift.binary(raw, thrift.by_id(raw, at)[_KEY].start).decode("utf-8", "replace") for at in marks[:-1]}
    entries += [_spelt(key, value) for key, value in ours.items() if key not in known]
    return Keys(spell.listed(STRUCT, len(entries), b"".join(entries)), left)


def extended(
    told: Mapping[bytes, bytes], before: Sequence[str], new: pa.Schema, ours: Mapping[str, str]
) -> dict[bytes, bytes]:
    """Give entries of a file that is written again, and not only spliced; what has an unknown form stays."""
    fresh = {one.name: one for one in new}
    places = {name: None if name in fresh else at for at, name in enumerate(before)}
    change = Change(before, list((places | dict.fromkeys(fresh)).items()), fresh, ours)
    edits = {name.encode(): edit for name, edit in _DESCRIBING.items() if name != _ARROW}
    changed = {key: _or_same(edits[key], value, change) for key, value in told.items() if key in edits}
    return {**told, **changed}


def _spelt(key: str, value: str) -> bytes:
    return spell.struct([(_KEY, BINARY, spell.text(key.encode())), (_VALUE, BINARY, spell.text(value.encode()))])


def _entry(raw: bytes, at: int, change: Change, left: list[str]) -> bytes:
    found, end = thrift.fields(raw, at)
    named = {one.id: one for one in found}
    key = thrift.binary(raw, named[_KEY].start).decode("utf-8", "replace")
    if key in change.ours:
        value = change.ours[key].encode()
    elif key in _DESCRIBING and _VALUE in named:
        try:
            value = _DESCRIBING[key](thrift.binary(raw, named[_VALUE].start), change)
        except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            if key == _ARROW:
                # Readers believe it before they believe the Parquet schema: they would not see the column.
                raise Unspliceable(f"its {_ARROW} entry cannot be read") from error
            left.append(f"the metadata entry {key!r} stays without the new column, its form is not known")
            return raw[at:end]
    else:
        return raw[at:end]
    return spell.changed(raw, found, {_VALUE: (BINARY, spell.text(value))})


# --- the entries ------------------------------------------------------------------------------------


def arrow_schema(value: bytes, change: Change) -> bytes:
    """Change the Arrow schema, and the entries of the schema's own metadata."""
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
    inner = dict(schema.metadata or {})
    for key in inner.keys() & {name.encode() for name in _DESCRIBING}:
        inner[key] = _or_same(_DESCRIBING[key.decode()], inner[key], change)
    if inner:  # where it has any, pyarrow shows these and not those of the footer
        inner |= {key.encode(): text.encode() for key, text in change.ours.items()}
    fields = change.applied(list(schema), lambda one: one)
    return base64.b64encode(pa.schema(fields, inner or None).serialize())


def _or_same(edit: Callable[[bytes, Change], bytes], value: bytes, change: Change) -> bytes:
    try:
        return edit(value, change)
    except (ValueError, KeyError, TypeError, AttributeError):
        return value  # its copy in the footer is noted


def pandas(value: bytes, change: Change) -> bytes:
    """Change the list of pandas, which has the index columns too, in an order of its own."""
    told = json.loads(value)
    new = {name: _pandas_column(one) for name, one in change.new.items()}
    kept = [new.pop(one["field_name"], one) for one in told["columns"]]
    told["columns"] = [*kept, *new.values()]
    return _text(told)


def _pandas_column(one: pa.Field) -> dict[str, Any]:
    kind = _kind(one)
    names = {"name": one.name, "field_name": one.name}
    return {**names, "pandas_type": kind.pandas, "numpy_type": kind.numpy, "metadata": None}


def huggingface(value: bytes, change: Change) -> bytes:
    """Change the features of a Hugging Face dataset, which stand in the order of the columns."""
    told = json.loads(value)
    features = told["info"]["features"]
    if list(features) != list(change.before):
        raise Alien
    pairs = change.applied(list(features.items()), lambda one: (one.name, {"dtype": _kind(one).hf, "_type": "Value"}))
    told["info"]["features"] = dict(pairs)
    return _text(told)


def spark(value: bytes, change: Change) -> bytes:
    """Change the struct type of a Spark table."""
    told = json.loads(value)
    told["fields"] = change.applied(
        told["fields"], lambda one: {"name": one.name, "type": _kind(one).spark, "nullable": True, "metadata": {}}
    )
    return _text(told)


def avro(value: bytes, change: Change) -> bytes:
    """Change the record that an Avro writer left."""
    told = json.loads(value)
    told["fields"] = change.applied(
        told["fields"], lambda one: {"name": one.name, "type": ["null", _kind(one).avro], "default": None}
    )
    return _text(told)


class _Kind(NamedTuple):
    """What others call an Arrow type."""

    pandas: str
    numpy: str
    hf: str
    spark: str
    avro: str


_KINDS: Final[Mapping[str, _Kind]] = MappingProxyType({
    "double": _Kind("float64", "float64", "float64", "double", "double"),
    "float": _Kind("float32", "float32", "float32", "float", "float"),
    "string": _Kind("unicode", "object", "string", "string", "string"),
    "bool": _Kind("bool", "bool", "bool", "boolean", "boolean"),
    "int8": _Kind("int8", "int8", "int8", "byte", "int"),
    "int16": _Kind("int16", "int16", "int16", "short", "int"),
    "int32": _Kind("int32", "int32", "int32", "integer", "int"),
    "int64": _Kind("int64", "int64", "int64", "long", "long"),
})  # fmt: skip


def _kind(one: pa.Field) -> _Kind:
    return _KINDS[str(one.type)]


def _text(told: Any) -> bytes:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


_DESCRIBING: Final[Mapping[str, Callable[[bytes, Change], bytes]]] = MappingProxyType({
    _ARROW: arrow_schema,
    "pandas": pandas,
    "huggingface": huggingface,
    "org.apache.spark.sql.parquet.row.metadata": spark,
    "parquet.avro.schema": avro,
    "avro.schema": avro,
})  # fmt: skip
