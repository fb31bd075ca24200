"""Files that should be refused: the words with which `tests/reference/bad_inputs.toml` says how they are made."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import struct
import zipfile
import zlib
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
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


class Blocks:
    """A compressor that gives each part a block of its own, and packs what comes again and again once."""

    @staticmethod
    @cache
    def compress(data: bytes) -> bytes:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)

    @staticmethod
    def flush() -> bytes:
        return b"\x03\x00"


def gz_zeros(size: int) -> bytes:
    """A small gzip file of many zeros."""
    zeros = bytes(MB)
    checksum = 0
    for _ in range(size // MB):
        checksum = zlib.crc32(zeros, checksum)
    head = bytes.fromhex("1f8b08000000000000ff")
    return head + Blocks.compress(zeros) * (size // MB) + Blocks.flush() + struct.pack("<LL", checksum, size)


def zst(data: bytes | str) -> bytes:
    return bytes(pa.Codec("zstd").compress(data.encode() if isinstance(data, str) else data, asbytes=True))


def table(**columns: Any) -> pa.Table:
    """Two rows of one group, and these columns."""
    return pa.table({"prompt_id": ["a", "a"], "reward": [0.0, 1.0]} | columns)


def parquet(content: pa.Table | None = None, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table() if content is None else content, sink, **options)
    return sink.getvalue()


def views(*lists: Any, large: bool = False) -> pa.Array:
    """Lists of numbers as list views."""
    return pa.array(lists, (pa.large_list_view if large else pa.list_view)(pa.float64()))


def arrow(content: pa.Table | None = None, *, stream: bool = False) -> bytes:
    content = table() if content is None else content
    sink = io.BytesIO()
    with (ipc.new_stream if stream else ipc.new_file)(sink, content.schema) as writer:
        writer.write_table(content)
    return sink.getvalue()


def zipped(members: dict[str, bytes | list[bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of members; a list is written part by part."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members.items():
            with archive.open(name, "w", force_zip64=True) as opened:
                member: Any = opened
                if isinstance(content, list):
                    member._compressor = Blocks
                for part in content if isinstance(content, list) else [content]:
                    member.write(part)
    return sink.getvalue()


def eval_log(**members: bytes | list[bytes]) -> bytes:
    """An Inspect archive of these samples (and `header`)."""
    named = {"header.json" if name == "header" else f"samples/{name}.json": one for name, one in members.items()}
    return zipped({"header.json": b"{}", **named})


def torch_zip(pickle: bytes, storage: bytes = b"") -> bytes:
    """What torch.save writes of a pickle and one storage."""
    return zipped({"archive/data.pkl": pickle, "archive/data/0": storage}, zipfile.ZIP_STORED)


def tensor(count: int) -> bytes:
    """What loads a tensor of all numbers of the first storage, in the words of a pickle."""
    number = b"J" + count.to_bytes(4, "little")
    storage = b"(X\x07\0\0\0storagectorch\nLongStorage\nX\x01\0\0\0" + b"0X\x03\0\0\0cpu" + number + b"tQ"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0" + number + b"\x85K\x01\x85\x89}tR"


def pickled_text(text: bytes) -> bytes:
    return b"X" + len(text).to_bytes(4, "little") + text


def database(*statements: str) -> bytes:
    """A SQLite database that these make."""
    with closing(sqlite3.connect(":memory:")) as opened:
        for one in statements:
            opened.execute(one)
        opened.commit()
        return opened.serialize()


def flipped(data: bytes, at: int, to: int) -> bytes:
    """The same bytes with another one at a place (from the end, if it is negative)."""
    changed = bytearray(data)
    changed[at] = to
    return bytes(changed)


def made(expression: str) -> Any:
    """What an expression of these words gives."""
    return eval(expression, {**globals()})  # noqa: S307 - the table is part of the tests


def made_parts(expression: str) -> list[bytes]:
    """The content of a file; text in UTF-8."""
    content: bytes | str | list[bytes] = made(expression)
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return content if isinstance(content, list) else [content]


__all__ = ["Decimal", "datetime", "made", "made_parts", "np", "pl", "timedelta"]
