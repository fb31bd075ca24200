"""The new footer: its old and new columns in order, and how its parts are encoded."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from grpo_cli.formats.parquet import footer, thrift
from grpo_cli.formats.parquet.footer import Column, Footer, Unspliceable
from grpo_cli.formats.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, ThriftField

_KEY, _VALUE = 1, 2  # field numbers of a Thrift KeyValue
_ARROW = "ARROW:schema"


class UnknownForm(ValueError):
    """The value of an entry does not have the form that its key promises."""


class Change(NamedTuple):
    """The names of the columns before, the new fields, and our entries."""

    before: Sequence[str]  # the names of the old columns, in the order of the file
    new: pa.Schema  # the columns that are added, or replace old ones of the same name
    ours: Mapping[str, str]  # key-value entries to write, each in place of an old one with its key

    def applied(self, items: Sequence[Any], described: Callable[[pa.Field], Any]) -> list[Any]:
        """A list with one item per column, as it is after the change."""
        if len(items) != len(self.before):
            raise UnknownForm
        order = in_order(self.before, self.new.names)
        return [described(self.new.field(name)) if at is None else items[at] for name, at in order]


Edit = Callable[[bytes, Change], bytes]


def in_order(before: Sequence[str], new: Iterable[str]) -> list[tuple[str, int | None]]:
    """All columns, each with its old number; a new one (None) takes the place of the old column with its name, or is last."""
    fresh = dict.fromkeys(new)
    old = ((name, None if name in fresh else at) for at, name in enumerate(before))
    return list(dict.fromkeys([*old, *((name, None) for name in fresh)]))


def edited(old: Footer, new: pa.Schema, ours: Mapping[str, str]) -> tuple[bytes, list[str]]:
    """The encoded key-value entries with the new columns in those that describe the schema, and with ours.

    And a note for each entry that should have changed and could not.
    """
    raw = old.raw
    change = Change([column.name for column in old.columns], new, ours)
    marks = thrift.items(raw, old.fields[footer.NOTES].start) if footer.NOTES in old.fields else [0]
    found = [_entry(raw, at, change) for at in marks[:-1]]
    known = {key for key, _, _ in found}
    entries = [entry for _, entry, _ in found]
    for key, value in ours.items():
        if key not in known:
            name = thrift.text(key.encode())
            text = thrift.text(value.encode())
            entries.append(thrift.struct([(_KEY, BINARY, name), (_VALUE, BINARY, text)]))
    notes = [f"the metadata entry {key!r} is left without the new column: {why}" for key, _, why in found if why]
    return thrift.listed(STRUCT, len(entries), b"".join(entries)), notes


def _entry(raw: bytes, at: int, change: Change) -> tuple[str, bytes, str]:
    """The key of an entry, the entry as it is after the change, and why it should have changed and could not."""
    found, end = thrift.fields(raw, at)
    named = {field.id: field for field in found}
    key = thrift.binary(raw, named[_KEY].start).decode("utf-8", "replace")
    if key in change.ours:
        value = change.ours[key].encode()
    elif key in _DESCRIBING and _VALUE in named:
        try:
            value = _DESCRIBING[key](thrift.binary(raw, named[_VALUE].start), change)
        except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            if key == _ARROW:
                # Readers trust it more than the Parquet schema, and would not see the column.
                raise Unspliceable(f"its {_ARROW} entry cannot be read") from error
            return key, raw[at:end], "its format is unknown"
    else:
        return key, raw[at:end], ""
    return key, thrift.changed(raw, found, {_VALUE: (BINARY, thrift.text(value))}), ""


# --- how each kind of entry changes ---------------------------------------------------------------------


def arrow_schema(value: bytes, change: Change) -> bytes:
    """Change the Arrow schema, and the entries of the schema's own metadata."""
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
    inner = each_edited(schema.metadata or {}, change)
    if inner:  # where it has any, pyarrow shows these and not those of the footer
        inner |= {key.encode(): text.encode() for key, text in change.ours.items()}
    fields = change.applied(list(schema), lambda field: field)
    return base64.b64encode(pa.schema(fields, inner or None).serialize())


def each_edited(entries: Mapping[bytes, bytes], change: Change) -> dict[bytes, bytes]:
    """The entries after the change; those of an unknown form stay."""
    edits = {name.encode(): edit for name, edit in _DESCRIBING.items()}
    return {key: _or_same(edits[key], value, change) if key in edits else value for key, value in entries.items()}


def _or_same(edit: Edit, value: bytes, change: Change) -> bytes:
    try:
        return edit(value, change)
    except (ValueError, KeyError, TypeError, AttributeError):
        return value  # the copy of the entry in the footer gets a note


def pandas(value: bytes, change: Change) -> bytes:
    """Change the columns that pandas lists, with the index among them and in an order of its own."""
    parsed = json.loads(value)
    new = {field.name: _pandas_column(field) for field in change.new}
    columns = [new.pop(column["field_name"], column) for column in parsed["columns"]]
    parsed["columns"] = [*columns, *new.values()]
    return _text(parsed)


def _pandas_column(field: pa.Field) -> dict[str, Any]:
    is_text = pa.types.is_string(field.type)
    is_list = _is_list(field)
    numpy = "object" if is_text or is_list else _named(field, _PANDAS, str)
    dtype = _named(field, _PANDAS, "list[{}]".format)
    return {"name": field.name, "field_name": field.name, "pandas_type": dtype, "numpy_type": numpy, "metadata": None}


def huggingface(value: bytes, change: Change) -> bytes:
    """Change the features of a Hugging Face dataset, which are in the order of the columns."""
    parsed = json.loads(value)
    features = parsed["info"]["features"]
    if list(features) != list(change.before):
        raise UnknownForm
    pairs = change.applied(list(features.items()), lambda field: (field.name, _feature(field)))
    parsed["info"]["features"] = dict(pairs)
    return _text(parsed)


def _feature(field: pa.Field) -> Any:
    if _is_list(field):  # releases before and after 4.0 read this name
        return {"feature": _feature(field.type.value_field), "_type": "Sequence"}
    return {"dtype": _named(field, _FEATURES, str), "_type": "Value"}


def spark(value: bytes, change: Change) -> bytes:
    """Change the fields of a schema of Spark."""
    parsed = json.loads(value)
    parsed["fields"] = change.applied(parsed["fields"], _spark_field)
    return _text(parsed)


def _spark_field(field: pa.Field) -> dict[str, Any]:
    dtype = _named(field, _SPARK, lambda inner: {"type": "array", "elementType": inner, "containsNull": True})
    return {"name": field.name, "type": dtype, "nullable": True, "metadata": {}}


def avro(_value: bytes, _change: Change) -> bytes:
    """A schema of Avro stays, with a note: readers of Avro do not see the new column."""
    raise UnknownForm


# The names of Arrow types in other libraries.
_FEATURES = {"double": "float64", "float": "float32"} | {
    name: name for name in ("string", "bool", "int8", "int16", "int32", "int64")
}
_PANDAS = {**_FEATURES, "string": "unicode"}
_SPARK = {
    "double": "double", "float": "float", "string": "string", "bool": "boolean",
    "int8": "byte", "int16": "short", "int32": "integer", "int64": "long",
}  # fmt: skip


def _named(field: pa.Field, names: Mapping[str, str], around: Callable[[Any], Any]) -> Any:
    """The type of a field by these names; `around` gives a list of a type."""
    if _is_list(field):
        return around(_named(field.type.value_field, names, around))
    return names[str(field.type)]


def _is_list(field: pa.Field) -> bool:
    return bool(pa.types.is_list(field.type))


def _text(parsed: Any) -> bytes:
    return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


_DESCRIBING = {
    _ARROW: arrow_schema,
    "pandas": pandas,
    "huggingface": huggingface,
    "org.apache.spark.sql.parquet.row.metadata": spark,
    **dict.fromkeys(("parquet.avro.schema", "avro.schema"), avro),
}


class MergedColumns(NamedTuple):
    """The columns of the new footer in order, each with whether it is new; `removed` are leaves that only the old footer has."""

    old: Footer
    new: Footer
    columns: Sequence[tuple[bool, Column]]
    removed: Sequence[int]

    @classmethod
    def of(cls, old: Footer, new: Footer) -> MergedColumns:
        """Put the columns in order."""
        fresh = {column.name: column for column in new.columns}
        order = in_order([column.name for column in old.columns], fresh)
        columns = [(True, fresh[name]) if at is None else (False, old.columns[at]) for name, at in order]
        removed = [leaf for column in old.columns if column.name in fresh for leaf in range(column.first, column.last)]
        return cls(old, new, columns, removed)

    def footer(self, groups: Sequence[bytes], metadata: bytes) -> bytes:
        """The new footer with these row groups and key-value entries."""
        lists = {
            footer.SCHEMA: self.schema(),
            footer.ROW_GROUPS: thrift.listed(STRUCT, len(groups), b"".join(groups)),
            footer.NOTES: metadata,
        }
        if footer.ORDERS in self.old.fields:
            lists[footer.ORDERS] = self._listed(_orders(self.old), _orders(self.new))
        values = {name: (LIST, value) for name, value in lists.items()}
        return thrift.changed(self.old.raw, self.old.fields.values(), values)

    def schema(self) -> bytes:
        """The schema elements; of the old elements only the root changes."""
        raw = self.old.raw
        elements = thrift.fields(raw, self.old.root)[0]
        root = thrift.changed(raw, elements, {footer.CHILDREN: (I32, thrift.whole(len(self.columns)))})
        spans = [(self.new if new else self.old).raw[column.start : column.end] for new, column in self.columns]
        count = 1 + sum(column.elements for _, column in self.columns)
        return thrift.listed(STRUCT, count, b"".join([root, *spans]))

    def group(
        self, group: Mapping[int, ThriftField], sizes: tuple[int, int], new: Sequence[bytes]
    ) -> tuple[bytes, int]:
        """A row group with its new chunks (`sizes`: plain and packed), and the number of bytes that stay unread."""
        raw = self.old.raw
        plain = packed = 0  # of the chunks that are removed
        if self.removed:
            old = _cut(raw, self.old.chunks(group))
            for leaf in self.removed:
                chunk = old[leaf]
                meta = thrift.by_id(chunk, thrift.by_id(chunk, 0)[footer.META].start)
                plain += thrift.number(chunk, meta[footer.PLAIN].start)
                packed += thrift.number(chunk, meta[footer.PACKED].start)
            chunks = self._listed(old, new)
        else:  # after all others: the offsets of the old chunks are not needed
            _, count, at = thrift.opened(raw, group[footer.CHUNKS].start)
            chunks = thrift.listed(STRUCT, count + len(new), raw[at : group[footer.CHUNKS].end] + b"".join(new))
        values = {footer.CHUNKS: (LIST, chunks)}
        for name, more, less in zip((footer.PLAIN_SIZE, footer.PACKED_SIZE), sizes, (plain, packed), strict=True):
            if name in group:
                values[name] = (I64, thrift.whole(thrift.number(raw, group[name].start) + more - less))
        # The columns that rows are sorted by have other numbers once one is removed, and it may be one of them.
        kept = [field for field in group.values() if not (self.removed and field.id == footer.SORTING)]
        return thrift.changed(raw, kept, values), packed

    def _listed(self, old: Sequence[bytes], new: Sequence[bytes]) -> bytes:
        found = [item for is_new, at in self.columns for item in (new if is_new else old)[at.first : at.last]]
        return thrift.listed(STRUCT, len(found), b"".join(found))


def _orders(side: Footer) -> list[bytes]:
    """The column order of each leaf."""
    return _cut(side.raw, thrift.items(side.raw, side.fields[footer.ORDERS].start))


def _cut(raw: bytes, marks: Sequence[int]) -> list[bytes]:
    return [raw[start:end] for start, end in pairwise(marks)]
