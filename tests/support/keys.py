"""Keys of every type, each with what it is: two keys are one group if and only if that is equal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa

SECOND: Final = 1_704_067_200  # 2024-01-01
DAY: Final = SECOND // 86_400
FAR: Final = 4 * 10**15  # milliseconds since 1970 of a year that no calendar of Python has
UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

What = tuple[str, Any]


def one(value: int | str) -> What:
    return "number", Fraction(value)


def meant(value: Any) -> What:
    """What a value of Python is; of a float the shortest decimal is meant."""
    match value:
        case bool():
            return "bool", value
        case bytes():
            return "bytes", value
        case str():
            return "text", value
    return "number", Fraction(str(value))


FLAT: Final[list[tuple[pa.DataType, Any, What]]] = []


def has(kind: pa.DataType, *values: Any) -> None:
    """Values of a type, which are themselves."""
    for value in values:
        FLAT.append((kind, value, meant(value)))


def has_as(kind: pa.DataType, value: Any, what: str, is_: Any) -> None:
    FLAT.append((kind, value, (what, is_)))


for _kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()):
    has(_kind, 1)
has(pa.int64(), 1, 2**63 - 1, -1, 2**60, 2**60 + 1, 0, DAY, SECOND)
has(pa.uint64(), 1, 2**63, 2**64 - 1)
has(pa.float32(), 1.0, 0.5, -0.0)
has_as(pa.float32(), 0.1, *one("0.10000000149011612"))
has(pa.float64(), 1.0, 0.5, 0.0, -0.0, 0.1, 1e-7)
has_as(pa.float64(), 2.0**60, *one(2**60))
has_as(pa.float64(), 1e300, *one(int(1e300)))
has_as(pa.float64(), float("inf"), "number", "inf")
has(pa.decimal128(3, 0), Decimal(1))
has(pa.decimal128(3, 1), Decimal("1.0"))
has(pa.decimal128(9, 1), Decimal("0.1"))
has(pa.decimal128(9, 4), Decimal("1.0000"), Decimal("0.5000"))
has(pa.decimal128(9, 2), Decimal("0.00"))
has(pa.decimal128(38, 37), Decimal("1." + "0" * 36 + "1"))
for _truth in (True, False):
    has(pa.bool_(), _truth)
for _kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
    has(_kind, "1")
has(
    pa.string(),
    "1",
    "",
    "1.0",
    "true",
    "null",
    "2024-01-01",
    "2024-01-01 00:00:00",
    "date:2024-01-01",
    "bytes:MQ==",
    "b'1'",
)
has(pa.string(), "1:00:00", "[1]", '{"a":1}', '"1"', "\ufeff1", "1 ", "é", "e\u0301", "a\nb", "\\n", "\x00")
has(pa.large_binary(), b"1")
has(pa.binary(1), b"1")
has(pa.binary(), b"1", b"", b"\xff", b"MQ==")
has_as(pa.date32(), date(2024, 1, 1), "date", DAY)
has_as(pa.date32(), 2**31 - 1, "date", 2**31 - 1)
for _unit, _second in UNITS.items():
    for _offset in (0, 1):  # the second is another instant in every unit
        _count = SECOND * _second + _offset
        _after = Fraction(_offset, _second)
        has_as(pa.timestamp(_unit), _count, "local time", SECOND + _after)
        has_as(pa.timestamp(_unit, "UTC"), _count, "instant", SECOND + _after)
        has_as(pa.timestamp(_unit, "Europe/Berlin"), _count, "instant", SECOND + _after)
        has_as(pa.duration(_unit), _second + _offset, "duration", 1 + _after)
        has_as(pa.duration(_unit), -_second - _offset, "duration", -1 - _after)
        _clock = pa.time32 if _unit in {"s", "ms"} else pa.time64
        has_as(_clock(_unit), 3600 * _second + _offset, "time of day", 3600 + _after)
has_as(pa.timestamp("ms"), FAR * 1000, "local time", FAR)
has_as(pa.duration("s"), 0, "duration", 0)

FORMS: Final[dict[str, Callable[[pa.DataType, Any], tuple[pa.DataType, Any]]]] = {
    "flat": lambda kind, value: (kind, value),
    "list": lambda kind, value: (pa.list_(kind), [value]),
    "fixed list": lambda kind, value: (pa.list_(kind, 1), [value]),
    "struct": lambda kind, value: (pa.struct([("a", kind)]), {"a": value}),
    "chat": lambda kind, value: (pa.list_(pa.struct([("role", pa.string()), ("a", kind)])), [{"role": "user", "a": value}]),
}  # fmt: skip

# Values of JSON, and what each is.
JSON_VALUES: Final = [1, 1.0, 0.5, 0.1, -0.0, 2**63, 2**60, True, "1", "true", "2024-01-01", "null", "\ufeff1"]
JSON: Final[list[tuple[Any, What]]] = [(value, meant(value)) for value in JSON_VALUES]


def wrapped(form: str, what: What) -> Any:
    """What a key is in one of the forms; both kinds of lists are lists."""
    match form:
        case "flat":
            return what
        case "list" | "fixed list":
            return "list", what
        case "struct":
            return "struct", what
    return "chat", what
