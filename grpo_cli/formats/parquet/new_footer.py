"""Which columns of the new footer are old ones and which are new, and how its parts are put together."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from grpo_cli.formats.parquet import footer, thrift
from grpo_cli.formats.parquet.footer import Unspliceable
from grpo_cli.formats.parquet.thrift import BINARY, I32, I64, LIST, STRUCT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grpo_cli.formats.parquet.footer import Column, Footer
    from grpo_cli.formats.parquet.thrift import Field


_KEY, _VALUE = 1, 2  # of KeyValue
_ARROW: Final = "ARROW:schema"


class Metadata(NamedTuple):
    """The encoded list of key-value entries, and a note for each entry that should have changed and could not."""

    encoded: bytes
    notes: Sequence[str]


class UnknownForm(ValueError):
    """The value of an entry does not have the form that its key promises."""


@dataclass(frozen=True, slots=True)
class Change:
    """The columns before and after (each with its number before, None for a new one), and the new fields by name."""

    before: Sequence[str]
    after: Sequence[tuple[str, int | None]]
    new: Mapping[str, pa.Field]
    ours: Mapping[str, str]

    def applied(self, items: Sequence[Any], described: Callable[[pa.Field], Any]) -> list[Any]:
        """A list with one item per column, as it is after the change."""
        if len(items) != len(self.before):
            raise UnknownForm
        return [described(self.new[name]) if at is None else items[at] for name, at in self.after]


def edited(layout: Layout, new: pa.Schema, ours: Mapping[str, str]) -> Metadata:
    """The key-value entries with the new columns in those that describe the schema, and with ours."""
    raw, old = layout.old.raw, layout.old
    places = {one: at for at, one in enumerate(old.columns)}
    change = Change(
        [one.name for one in old.columns],
        [(one.name, None if fresh else places[one]) for fresh, one in layout.columns],
        {one.name: one for one in new},
        ours,
    )
    marks = thrift.items(raw, old.fields[footer.NOTES].start) if footer.NOTES in old.fields else [0]
    notes: list[str] = []
    entries = [_entry(raw, at, change, notes) for at in marks[:-1]]
    known = {thrift.binary(raw, thrift.by_id(raw, at)[_KEY].start).decode("utf-8", "replace") for at in marks[:-1]}
    entries += [_encoded(key, value) for key, value in ours.items() if key not in known]
    return Metadata(thrift.listed(STRUCT, len(entries), b"".join(entries)), notes)


def extended(
    entries: Mapping[bytes, bytes], before: Sequence[str], new: pa.Schema, ours: Mapping[str, str]
) -> dict[bytes, bytes]:
    """The same for a file that is written again; entries of an unknown form stay."""
    fresh = {one.name: one for one in new}
    places = {name: None if name in fresh else at for at, name in enumerate(before)}
    change = Change(before, list((places | dict.fromkeys(fresh)).items()), fresh, ours)
    edits = {name.encode(): edit for name, edit in _DESCRIBING.items() if name != _ARROW}
    changed = {key: _or_same(edits[key], value, change) for key, value in entries.items() if key in edits}
    return {**entries, **changed}


def _encoded(key: str, value: str) -> bytes:
    return thrift.struct([(_KEY, BINARY, thrift.text(key.encode())), (_VALUE, BINARY, thrift.text(value.encode()))])


def _entry(raw: bytes, at: int, change: Change, notes: list[str]) -> bytes:
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
            notes.append(f"the metadata entry {key!r} stays without the new column, its form is not known")
            return raw[at:end]
    else:
        return raw[at:end]
    return thrift.changed(raw, found, {_VALUE: (BINARY, thrift.text(value))})


# --- what each kind of entry needs ----------------------------------------------------------------------


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
        return value  # the copy of the entry in the footer gets a note


def pandas(value: bytes, change: Change) -> bytes:
    """Change the list of pandas, which has the index columns too, in an order of its own."""
    parsed = json.loads(value)
    new = {name: _pandas_column(one) for name, one in change.new.items()}
    kept = [new.pop(one["field_name"], one) for one in parsed["columns"]]
    parsed["columns"] = [*kept, *new.values()]
    return _text(parsed)


def _pandas_column(one: pa.Field) -> dict[str, Any]:
    names = {"name": one.name, "field_name": one.name}
    numpy = "object" if _is_list(one) else _kind(one).numpy
    return {**names, "pandas_type": _pandas_type(one), "numpy_type": numpy, "metadata": None}


def _pandas_type(one: pa.Field) -> str:
    return f"list[{_pandas_type(one.type.value_field)}]" if _is_list(one) else _kind(one).pandas


def huggingface(value: bytes, change: Change) -> bytes:
    """Change the features of a Hugging Face dataset, which stand in the order of the columns."""
    parsed = json.loads(value)
    features = parsed["info"]["features"]
    if list(features) != list(change.before):
        raise UnknownForm
    pairs = change.applied(list(features.items()), lambda one: (one.name, _feature(one)))
    parsed["info"]["features"] = dict(pairs)
    return _text(parsed)


def _feature(one: pa.Field) -> dict[str, Any]:
    if _is_list(one):  # by the name that releases before and after 4.0 read
        return {"feature": _feature(one.type.value_field), "_type": "Sequence"}
    return {"dtype": _kind(one).hf, "_type": "Value"}


def spark(value: bytes, change: Change) -> bytes:
    """Change the struct type of a Spark table."""
    parsed = json.loads(value)
    parsed["fields"] = change.applied(
        parsed["fields"], lambda one: {"name": one.name, "type": _spark_type(one), "nullable": True, "metadata": {}}
    )
    return _text(parsed)


def _spark_type(one: pa.Field) -> Any:
    if _is_list(one):
        return {"type": "array", "elementType": _spark_type(one.type.value_field), "containsNull": True}
    return _kind(one).spark


def avro(value: bytes, change: Change) -> bytes:
    """Change the record that an Avro writer left."""
    parsed = json.loads(value)
    parsed["fields"] = change.applied(
        parsed["fields"], lambda one: {"name": one.name, "type": ["null", _avro_type(one)], "default": None}
    )
    return _text(parsed)


def _avro_type(one: pa.Field) -> Any:
    return {"type": "array", "items": ["null", _avro_type(one.type.value_field)]} if _is_list(one) else _kind(one).avro


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


def _is_list(one: pa.Field) -> bool:
    return bool(pa.types.is_list(one.type))


def _text(parsed: Any) -> bytes:
    return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


_DESCRIBING: Final[Mapping[str, Callable[[bytes, Change], bytes]]] = MappingProxyType({
    _ARROW: arrow_schema,
    "pandas": pandas,
    "huggingface": huggingface,
    "org.apache.spark.sql.parquet.row.metadata": spark,
    "parquet.avro.schema": avro,
    "avro.schema": avro,
})  # fmt: skip


class Run(NamedTuple):
    """Neighbouring leaves, of the new footer or of the old one."""

    new: bool
    first: int
    last: int


class Removed(NamedTuple):
    """Sizes of the chunks that a row group loses, and all of their bytes that stay in the file unread."""

    plain: int
    packed: int
    unread: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of the new footer in their order. `removed` are the leaves that only the old one has."""

    old: Footer
    new: Footer
    columns: Sequence[tuple[bool, Column]]
    leaves: Sequence[Run]
    removed: Sequence[int]

    @classmethod
    def of(cls, old: Footer, new: Footer) -> Layout:
        """Put each new column into the place of the old one of its name, or behind all others."""
        fresh = {one.name: (True, one) for one in new.columns}
        order = dict.fromkeys(fresh.get(one.name, (False, one)) for one in old.columns)
        columns = list(order | dict.fromkeys(fresh.values()))
        runs = [Run(is_new, one.first, one.last) for is_new, one in columns]
        removed = [leaf for one in old.columns if one.name in fresh for leaf in range(one.first, one.last)]
        return cls(old, new, columns, runs, removed)

    def schema(self) -> bytes:
        """List the schema elements; of the old ones only the root changes."""
        raw, elements = self.old.raw, thrift.fields(self.old.raw, self.old.root)[0]
        root = thrift.changed(raw, elements, {footer.CHILDREN: (I32, thrift.whole(len(self.columns)))})
        spans = [(self.new if new else self.old).raw[one.start : one.end] for new, one in self.columns]
        return thrift.listed(STRUCT, 1 + sum(one.elements for _, one in self.columns), b"".join([root, *spans]))

    def orders(self) -> bytes:
        """List the order of each leaf."""
        return self._listed(_spans(self.old, self.old.fields), _spans(self.new, self.new.fields))

    def group(self, group: Mapping[int, Field], sizes: tuple[int, int], new: Sequence[bytes]) -> tuple[bytes, int]:
        """Encode a row group with its new chunks, of these sizes plain and packed; count the bytes that go unread."""
        raw, removed = self.old.raw, Removed(0, 0, 0)
        if self.removed:
            old = _cut(raw, self.old.chunks(group))
            removed = _removed([old[leaf] for leaf in self.removed])
            chunks = self._listed(old, new)
        else:  # behind all others: nobody has to know where each old chunk begins
            _, count, at = thrift.opened(raw, group[footer.CHUNKS].start)
            chunks = thrift.listed(STRUCT, count + len(new), raw[at : group[footer.CHUNKS].end] + b"".join(new))
        values = {footer.CHUNKS: (LIST, chunks)}
        for name, more, less in zip((footer.PLAIN_SIZE, footer.PACKED_SIZE), sizes, removed[:2], strict=True):
            if name in group:
                values[name] = (I64, thrift.whole(thrift.number(raw, group[name].start) + more - less))
        return thrift.changed(raw, self._sorted_by(group, values), values), removed.unread

    def _listed(self, old: Sequence[bytes], new: Sequence[bytes]) -> bytes:
        found = [one for run in self.leaves for one in (new if run.new else old)[run.first : run.last]]
        return thrift.listed(STRUCT, len(found), b"".join(found))

    def _sorted_by(self, group: Mapping[int, Field], values: dict[int, tuple[int, bytes]]) -> list[Field]:
        """Number the sorting columns anew where leaves were removed; give the fields that the row group keeps."""
        if not self.removed or footer.SORTING not in group:
            return list(group.values())
        sorting = self._sorting(group[footer.SORTING].start)
        if sorting:
            values[footer.SORTING] = (LIST, sorting)
        return [one for one in group.values() if sorting or one.id != footer.SORTING]

    def _sorting(self, at: int) -> bytes:
        """Rows stay sorted by the columns before the first that was removed, under their new numbers."""
        raw, marks, kept = self.old.raw, thrift.items(self.old.raw, at), []
        places = {leaf: to for to, leaf in enumerate(self._old_leaves()) if leaf is not None}
        for start in marks[:-1]:
            found, _ = thrift.fields(raw, start)
            leaf = next(thrift.number(raw, one.start) for one in found if one.id == footer.SORTED_BY)
            if leaf not in places:
                break
            kept.append(thrift.changed(raw, found, {footer.SORTED_BY: (I32, thrift.whole(places[leaf]))}))
        return thrift.listed(STRUCT, len(kept), b"".join(kept)) if kept else b""

    def _old_leaves(self) -> list[int | None]:
        return [None if run.new else leaf for run in self.leaves for leaf in range(run.first, run.last)]


def _removed(chunks: Sequence[bytes]) -> Removed:
    plain = packed = beside = 0
    for chunk in chunks:
        places = thrift.by_id(chunk, 0)
        meta = thrift.by_id(chunk, places[footer.META].start)
        plain += thrift.number(chunk, meta[footer.PLAIN].start)
        packed += thrift.number(chunk, meta[footer.PACKED].start)
        indexes = [places.get(footer.OFFSETS_SIZE), places.get(footer.INDEX_SIZE), meta.get(footer.BLOOM_SIZE)]
        beside += sum(thrift.number(chunk, one.start) for one in indexes if one)
    return Removed(plain, packed, packed + beside)


def _spans(side: Footer, fields: Mapping[int, Field]) -> list[bytes]:
    return _cut(side.raw, thrift.items(side.raw, fields[footer.ORDERS].start))


def _cut(raw: bytes, marks: Sequence[int]) -> list[bytes]:
    return [raw[start:end] for start, end in pairwise(marks)]
