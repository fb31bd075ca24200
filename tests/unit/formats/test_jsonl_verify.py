"""Comparing blocks of JSON lines says what comparing line by line says."""

from __future__ import annotations

import io
import os
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.errors import DataError
from grpo_cli.formats.blocks import SIZE
from grpo_cli.formats.jsonl import verify
from grpo_cli.formats.registry import FORMATS
from tests.support.weaving import in_memory, inserting

LINES = FORMATS["jsonl"]
ADDED = ("advantage", "advantage_status")


def verdict(new: bytes, old: bytes, size: int = SIZE) -> Any:
    now = in_memory(new, "new")
    was = in_memory(old, "old")
    try:
        return verify.first_difference(now, was, ADDED, size)
    except DataError as error:
        return str(error)
    finally:
        os.close(int(now.fd or 0))
        os.close(int(was.fd or 0))


def by_lines(new: bytes, old: bytes, size: int) -> Any:
    with mock.patch.object(verify, "_is_woven_block", return_value=False):
        return verdict(new, old, size)


def woven(old: bytes, rows: int) -> bytes:
    sink = io.BytesIO()
    source = in_memory(old)
    added = {"advantage": [at / 7 - 1 for at in range(rows)], "advantage_status": ["scored"] * rows}
    LINES.weave(source, None, sink, inserting(added))
    os.close(int(source.fd or 0))
    return sink.getvalue()


rows = st.lists(
    st.sampled_from(
        [
            '{"k":"a"}',
            r'{"k": "\u00e9", "x": 5}',
            r'{"k": "\"advantage\":1", "y": {"z": []}}',
            '{"k": "a", "x": -77777, "y": {"z": []}}',
            "",
            "{}",
            '{"advantage":1}',
            '{"x":{"advantage":2}}',
            '{"k":"\udce9"}',
            '{"k":"é"}',
        ]
    ),
    min_size=1,
    max_size=12,
)


@given(
    rows,
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(b'"\\{}:,0\n x\xff')), max_size=2),
)
def test_blocks_are_judged_as_their_lines_are(
    lines: list[str],
    newline: str,
    ended: bool,  # noqa: FBT001 - drawn
    changes: list[tuple[float, int]],
) -> None:
    text = newline.join([*lines, '{"last":1}']) + newline * ended
    old = text.encode("utf-8", "surrogateescape")
    new = bytearray(woven(old, 1 + sum(line != "" for line in lines)))
    for where, byte in changes:
        new[int(where * len(new))] = byte
    for size in (40, 1 << 20):
        assert verdict(bytes(new), old, size) == by_lines(bytes(new), old, size)


@pytest.mark.parametrize("more", [b"\n", b'{"k":1}\n', b"\n\n"])
def test_more_lines_than_the_other_file_has_are_reported(more: bytes) -> None:
    old = b'{"k":1}\n' * 3000
    new = woven(old, 3000)
    assert verdict(new, old) is None
    assert verdict(new + more, old) == "new:3001: a line that the other file does not have"
    assert verdict(new, old + more) == "old:3001: a line that the other file does not have"


def test_woven_lines_are_compared_without_looking_at_single_lines() -> None:
    old = b'{"k":"a","t":"xxxxxxxxxxxxxxxxxxxxxxx"}\n{"k":"bbb"}\n' * 1500
    new = woven(old, 3000)
    with mock.patch.object(verify, "_records") as by_line:
        assert verdict(new, old, 10_000) is None
    by_line.assert_not_called()
