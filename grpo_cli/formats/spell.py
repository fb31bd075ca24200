"""Thrift's compact protocol written: numbers, lists and structs around spans that stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from grpo_cli.formats.thrift import LONG_LIST, SHORT_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from grpo_cli.formats.thrift import Field

_DIGIT: Final = 0x80


def plain(value: int) -> bytes:
    """Spell an unsigned number."""
    out = bytearray()
    while value >= _DIGIT:
        out.append(value % _DIGIT + _DIGIT)
        value //= _DIGIT
    out.append(value)
    return bytes(out)


def whole(value: int) -> bytes:
    """Spell a signed number."""
    return plain(value << 1 if value >= 0 else (-value << 1) - 1)


def text(value: bytes) -> bytes:
    """Spell a string of bytes."""
    return plain(len(value)) + value


def listed(kind: int, count: int, body: bytes) -> bytes:
    """Put the head of a list before its items."""
    short = count < LONG_LIST
    return (bytes([count << 4 | kind]) if short else bytes([LONG_LIST << 4 | kind]) + plain(count)) + body


def struct(values: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Spell a struct from the ids, kinds and values of its fields."""
    parts, last = [], 0
    for name, kind, value in values:
        step = name - last
        parts += [bytes([step << 4 | kind]) if step in SHORT_STEP else bytes([kind]) + whole(name), value]
        last = name
    return b"".join(parts) + b"\x00"


def changed(raw: bytes, kept: Iterable[Field], values: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Spell a struct again with the kinds and values that some ids now have; the others stay bytes."""
    old = [(one.id, *values.get(one.id, (one.kind, raw[one.start : one.end]))) for one in kept]
    known = {name for name, _, _ in old}
    new = [(name, *value) for name, value in values.items() if name not in known]
    return struct(sorted([*old, *new]) if new else old)
