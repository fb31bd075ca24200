"""Files in memory, and new columns to insert into them."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input, spool
from grpo_cli.formats.interface import Format, Weaving

NOTE = {"grpo_adv": '{"method":"grpo"}'}


def in_memory(data: bytes | str, name: str = "in") -> Input:
    return spool(io.BytesIO(data.encode() if isinstance(data, str) else data), name)


def inserting(columns: Any, *, take: Sequence[int] | np.ndarray | None = None, replace: bool = False) -> Weaving:
    """New columns for all rows, or for those that are taken."""
    rows = None if take is None else np.array(take, np.int64)
    return Weaving(added=pl.DataFrame(columns), take=rows, replace=replace, metadata=NOTE)


def woven_with_notes(known: Format, data: bytes, weaving: Weaving) -> tuple[bytes, list[str]]:
    sink = io.BytesIO()
    notes = known.weave(in_memory(data), None, sink, weaving)
    return sink.getvalue(), [*notes]


def woven(known: Format, data: bytes | str, weaving: Weaving) -> bytes:
    """The bytes that are written, which are the same with the index of a scan and without."""
    source = in_memory(data)
    alone = io.BytesIO()
    after = io.BytesIO()
    try:
        known.weave(source, None, alone, weaving)
        with suppress(DataError):  # what cannot be read is written all the same
            index = pickle.loads(pickle.dumps(known.scan(source, ()).index))  # noqa: S301 - for another process
            known.weave(source, index, after, weaving)
            assert after.getvalue() == alone.getvalue()
    finally:
        os.close(int(source.fd or 0))  # many examples are many files
    return alone.getvalue()
