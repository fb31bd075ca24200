"""Keys of every type, each with what it is: two keys are one group if and only if that is equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def of(kind: pa.DataType, *values: Any) -> Iterator[tuple[pa.DataType, Any, What]]:
    """Values of a type of numbers, which are themselves."""
    return ((kind, value, ("number", Fraction(value))) for value in values)


def texts(*values: str) -> Iterator[tuple[pa.DataType, Any, What]]:
    return ((pa.string(), value, ("text", value)) for value in values)


def _times() -> list[tuple[pa.DataType, Any, What]]:
    found: list[tuple[pa.DataType, Any, What]] = []
    for unit, second in UNITS.items():
        for offset in (0, 1):  # the second is another instant in every unit
            count, after = SECOND * second + offset, Fraction(offset, second)
            found += [
                (pa.timestamp(unit), count, ("local time", SECOND + after)),
                (pa.timestamp(unit, "UTC"), count, ("instant", SECOND + after)),
                (pa.timestamp(unit, "Europe/Berlin"), count, ("instant", SECOND + after)),
                (pa.duration(unit), second + offset, ("duration", 1 + after)),
                (pa.duration(unit), -second - offset, ("duration", -1 - after)),
            ]
            clock = pa.time32 if unit in {"s", "ms"} else pa.time64
            found.append((clock(unit), 3600 * second + offset, ("time of day", 3600 + after)))
    return [*found, (pa.timestamp("ms"), FAR * 1000, ("local time", FAR)), (pa.duration("s"), 0, ("duration", 0))]


FLAT: Final[list[tuple[pa.DataType, Any, What]]] = [
    *(row for kind in (pa.int8, pa.int16, pa.int32, pa.uint8, pa.uint16, pa.uint32) for row in of(kind(), 1)),
    *of(pa.int64(), 1, 2**63 - 1, -1, 2**60, 2**60 + 1, 0, DAY, SECOND), *of(pa.uint64(), 1, 2**63, 2**64 - 1),
    *of(pa.float32(), 1.0, 0.5, -0.0), *of(pa.float64(), 1.0, 0.5, 0.0, -0.0, 2.0**60),
    # The shortest decimal is what is meant.
    (pa.float64(), 0.1, one("0.1")), (pa.float32(), 0.1, one("0.10000000149011612")), (pa.float64(), 1e-7, one("1e-7")),
    (pa.float64(), 1e300, one(int(1e300))), (pa.float64(), float("inf"), ("number", "inf")),
    *of(pa.decimal128(3, 0), Decimal(1)), *of(pa.decimal128(3, 1), Decimal("1.0")), *of(pa.decimal128(9, 1), Decimal("0.1")),
    *of(pa.decimal128(9, 4), Decimal("1.0000"), Decimal("0.5000")), *of(pa.decimal128(9, 2), Decimal("0.00")),
    *of(pa.decimal128(38, 37), Decimal("1." + "0" * 36 + "1")),
    (pa.bool_(), True, ("bool", True)), (pa.bool_(), False, ("bool", False)),
    *((kind, "1", ("text", "1"))
      for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))),
    *texts("1", "", "1.0", "true", "null", "2024-01-01", "2024-01-01 00:00:00", "date:2024-01-01", "bytes:MQ==", "b'1'", "1:00:00",
           "[1]", '{"a":1}', '"1"', "\ufeff1", "1 ", "é", "e\u0301", "a\nb", "\\n", "\x00"),
    *((kind, b"1", ("bytes", b"1")) for kind in (pa.large_binary(), pa.binary(1))),
    *((pa.binary(), value, ("bytes", value)) for value in (b"1", b"", b"\xff", b"MQ==")),
    (pa.date32(), date(2024, 1, 1), ("date", DAY)), (pa.date32(), 2**31 - 1, ("date", 2**31 - 1)),
    *_times(),
]  # fmt: skip

FORMS: Final[dict[str, Callable[[pa.DataType, Any], tuple[pa.DataType, Any]]]] = {
    "flat": lambda kind, value: (kind, value),
    "list": lambda kind, value: (pa.list_(kind), [value]),
    "fixed list": lambda kind, value: (pa.list_(kind, 1), [value]),
    "struct": lambda kind, value: (pa.struct([("a", kind)]), {"a": value}),
    "chat": lambda kind, value: (pa.list_(pa.struct([("role", pa.string()), ("a", kind)])), [{"role": "user", "a": value}]),
}  # fmt: skip

# Values of JSON, and what each is.
JSON: Final[list[tuple[Any, What]]] = [
    (1, one(1)), (1.0, one(1)), (0.5, one("1/2")), (0.1, one("0.1")), (-0.0, one(0)), (2**63, one(2**63)), (2**60, one(2**60)),
    (True, ("bool", True)), ("1", ("text", "1")), ("true", ("text", "true")), ("2024-01-01", ("text", "2024-01-01")),
    ("null", ("text", "null")), ("\ufeff1", ("text", "\ufeff1")),
]  # fmt: skip


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
