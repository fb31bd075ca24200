"""Files that should be refused: the words with which `tests/reference/bad_inputs.toml` says how they are made."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zlib
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

ROW = '{"prompt_id":"a","reward":1}\n'
TWO = ROW + '{"prompt_id":"a","reward":0}\n'
MB = 1 << 20


def lines(*rows: Any) -> str:
    """One row a line."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def rewards(*values: Any, **columns: Any) -> str:
    """Lines of one group with these rewards."""
    return lines(*({"prompt_id": "a", "reward": value, **columns} for value in values))


def gz(data: bytes | str) -> bytes:
    return gzip.compress(data.encode() if isinstance(data, str) else data, mtime=0)


def gz_zeros(size: int) -> bytes:
    """A small gzip file of many zeros: one compressed block, again and again."""
    packer, zeros, checksum = zlib.compressobj(9, zlib.DEFLATED, -15), bytes(MB), 0
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(size // MB):
        checksum = zlib.crc32(zeros, checksum)
    head, last = bytes.fromhex("1f8b08000000000000ff"), b"\x03\x00"
    return head + block * (size // MB) + last + struct.pack("<LL", checksum, size)


def zst(data: bytes | str) -> bytes:
    return bytes(pa.Codec("zstd").compress(data.encode() if isinstance(data, str) else data, asbytes=True))


def table(**columns: Any) -> pa.Table:
    """Two rows of one group, and these columns."""
    return pa.table({"prompt_id": ["a", "a"], "reward": [0.0, 1.0]} | columns)


def parquet(content: pa.Table | None = None, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table() if content is None else content, sink, **options)
    return sink.getvalue()


def arrow(content: pa.Table | None = None, *, stream: bool = False) -> bytes:
    content = table() if content is None else content
    sink = io.BytesIO()
    with (ipc.new_stream if stream else ipc.new_file)(sink, content.schema) as writer:
        writer.write_table(content)
    return sink.getvalue()


def flipped(data: bytes, at: int, to: int) -> bytes:
    """The same bytes with another one at a place (from the end, if it is negative)."""
    changed = bytearray(data)
    changed[at] = to
    return bytes(changed)


def made(expression: str) -> Any:
    """What an expression of these words gives."""
    return eval(expression, {**globals()})  # noqa: S307 - the table is part of the tests


def made_bytes(expression: str) -> bytes:
    """The content of a file; text in UTF-8."""
    content: bytes | str = made(expression)
    return content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")


__all__ = ["Decimal", "datetime", "made", "made_bytes", "np", "pl", "timedelta"]
