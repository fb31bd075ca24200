"""Thrift's compact protocol: structs are walked field by field, and encoded again around spans that stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

Stepper = Callable[[bytes, int], int]


TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
_MORE = 0x80  # set in each byte of a number but the last
_FIXED = {TRUE: 0, FALSE: 0, BYTE: 1, DOUBLE: 8, UUID: 16}
LONG_LIST = 15  # instead of a length, which follows as a varint
SHORT_STEP = range(1, 16)  # steps from one field id to the next that fit into the header
_SHORT = 24  # a string of fewer bytes, and a list of so many items, are stepped over by `_FIELDS`
_COUNTS = range(4)
_RUN = 64  # fields that are stepped over at once: more than the structs of a footer have, and a way back over more takes memory
_DEEPEST = 64  # no Parquet struct is so deep; a broken footer must not exhaust the stack
_PLAIN: Final[Mapping[int, Stepper]] = {}


class ThriftField(NamedTuple):
    """A field of a struct; its value is the bytes from start to end (none for a bool)."""

    id: int
    kind: int
    start: int
    end: int


def varint(raw: bytes, at: int) -> tuple[int, int]:
    """An unsigned number, and the offset after it."""
    value = raw[at]
    at += 1
    if value < _MORE:
        return value, at
    value -= _MORE
    shift = 7
    while True:
        byte = raw[at]
        at += 1
        value |= (byte % _MORE) << shift
        if byte < _MORE:
            return value, at
        shift += 7


def number(raw: bytes, at: int) -> int:
    """A signed number."""
    value, _ = varint(raw, at)
    return (value >> 1) ^ -(value & 1)


def binary(raw: bytes, at: int) -> bytes:
    """A string of bytes."""
    size, at = varint(raw, at)
    return raw[at : at + size]


def opened(raw: bytes, at: int) -> tuple[int, int, int]:
    """The head of a list: the kind of its items, their number, and the offset of the first."""
    head = raw[at]
    count, at = (head >> 4, at + 1) if head >> 4 != LONG_LIST else varint(raw, at + 1)
    _refuse_many(raw, at, count)
    return head & 15, count, at


def walk(raw: bytes, at: int, inside: Mapping[int, Stepper] = _PLAIN) -> Iterator[ThriftField]:
    """The fields of a struct one by one.

    The functions in `inside` step over the values of some ids, and can look into them.
    """
    last = 0
    while head := raw[at]:
        at += 1
        if step := head >> 4:
            last += step
        else:
            last = number(raw, at)
            at = varint(raw, at)[1]
        kind = head & 15
        start, at = at, inside[last](raw, at) if last in inside else skip(raw, at, kind)
        yield ThriftField(last, kind, start, at)


def fields(raw: bytes, at: int, inside: Mapping[int, Stepper] = _PLAIN) -> tuple[list[ThriftField], int]:
    """All fields of a struct, and the offset after it."""
    found = list(walk(raw, at, inside))
    return found, (found[-1].end if found else at) + 1


def by_id(raw: bytes, at: int) -> dict[int, ThriftField]:
    """The fields of a struct by id."""
    return {field.id: field for field in walk(raw, at)}


def items(raw: bytes, at: int) -> list[int]:
    """The offset of each item of a list, and the end of the list."""
    kind, count, at = opened(raw, at)
    marks = [at]
    for _ in range(count):
        at = skip(raw, at, kind)
        marks.append(at)
    return marks


def skip(raw: bytes, at: int, kind: int, depth: int = 0) -> int:
    """The offset after a value."""
    if I16 <= kind <= I64:
        while raw[at] >= _MORE:
            at += 1
        return at + 1
    if kind == BINARY:
        size, at = varint(raw, at)
        return at + size
    if kind in _FIXED:
        return at + _FIXED[kind]
    if depth > _DEEPEST:
        raise ValueError("structs are nested too deeply")
    if kind == STRUCT:
        return _after_struct(raw, at, depth + 1)
    if kind in {LIST, SET}:
        item, count, at = opened(raw, at)
        return _after_items(raw, at, [item] * count, depth + 1)
    if kind == MAP:
        count, at = varint(raw, at)
        if not count:
            return at
        _refuse_many(raw, at, count)
        return _after_items(raw, at + 1, [raw[at] >> 4, raw[at] & 15] * count, depth + 1)
    raise ValueError(f"no value is of kind {kind}")


def _after_struct(raw: bytes, at: int, depth: int) -> int:
    while True:
        if found := _FIELDS.match(raw, at):  # always: it also matches the empty string
            at = found.end()
            if found.lastindex:
                return at
        head = raw[at]
        at += 1
        if not head >> 4:
            at = varint(raw, at)[1]
        at = skip(raw, at, head & 15, depth)


def _refuse_many(raw: bytes, at: int, count: int) -> None:
    if count > len(raw) - at:  # the shortest item takes a byte
        raise IndexError(at + count)


def _after_items(raw: bytes, at: int, kinds: Iterable[int], depth: int) -> int:
    for kind in kinds:
        # Unlike a field of a struct, a bool in a list takes a byte.
        at = at + 1 if kind in {TRUE, FALSE} else skip(raw, at, kind, depth)
        if at > len(raw):
            raise IndexError(at)
    return at


def _any(patterns: Iterable[bytes]) -> bytes:
    return b"(?:" + b"|".join(patterns) + b")"


def _run_of(pattern: bytes) -> bytes:
    """As many as there are, without a way back. In Python 3.11.2, `*+` fails as a whole where the last one fails in its middle."""
    return b"(?>%b{0,%d})" % (pattern, _RUN)


def _byte(value: int) -> bytes:
    return b"\\x%02x" % value


def _heads(*kinds: int) -> bytes:
    return b"[" + b"".join(_byte(step << 4 | kind) for kind in kinds for step in SHORT_STEP) + b"]"


def _short_fields() -> re.Pattern[bytes]:
    """Consecutive fields of a struct that are numbers, short strings or short lists of them; the group is its end."""
    digits = rb"[\x80-\xff]*+[\x00-\x7f]"
    short = _any(_byte(size) + b".{%d}" % size for size in range(_SHORT))
    numbers = _heads(I16, I32, I64) + digits
    bools = _heads(TRUE, FALSE)
    texts = _heads(BINARY) + short
    items = {I32: digits, I64: digits, BINARY: short, STRUCT: _run_of(_any([numbers, bools])) + b"\x00"}
    heads = [(_byte(count << 4 | kind), count, item) for kind, item in items.items() for count in _COUNTS]
    lists = _heads(LIST) + _any(head + b"(?:%b){%d}" % (item, count) for head, count, item in heads)
    return re.compile(_run_of(_any([numbers, texts, bools, lists])) + b"(\x00)?", re.DOTALL)


_FIELDS = _short_fields()


def plain(value: int) -> bytes:
    """Encode an unsigned number."""
    out = bytearray()
    while value >= _MORE:
        out.append(value % _MORE + _MORE)
        value //= _MORE
    out.append(value)
    return bytes(out)


def whole(value: int) -> bytes:
    """Encode a signed number."""
    return plain(value << 1 if value >= 0 else (-value << 1) - 1)


def text(value: bytes) -> bytes:
    """Encode a string of bytes."""
    return plain(len(value)) + value


def listed(kind: int, count: int, body: bytes) -> bytes:
    """Encode a list from its encoded items."""
    head = bytes([min(count, LONG_LIST) << 4 | kind])
    return head + (plain(count) if count >= LONG_LIST else b"") + body


def struct(values: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Encode a struct from the ids, kinds and values of its fields."""
    parts = []
    last = 0
    for name, kind, value in values:
        step = name - last
        parts += [bytes([step << 4 | kind]) if step in SHORT_STEP else bytes([kind]) + whole(name), value]
        last = name
    return b"".join(parts) + b"\x00"


def changed(raw: bytes, fields: Iterable[ThriftField], values: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Encode a struct again, with new kinds and values for some ids; the bytes of the other fields stay."""
    found = {field.id: (field.kind, raw[field.start : field.end]) for field in fields} | {**values}
    return struct((name, *value) for name, value in sorted(found.items()))
