"""Lines of one mould are read as Python's parser reads them, and nothing that it refuses is taken for one."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_cli.formats import mould, quotes
from grpo_cli.formats.model import Field
from grpo_cli.formats.pruned import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

FIELDS = (Field("id", "key"), Field("n", "key"), Field("reward", "number"), Field("meta.kl", "number"))
WATCHED = frozenset({"step", "kl", "late"})
TEXT = st.text(st.sampled_from('ab"\\/\n\t{}[]:,é漢\U0001f600 \x7f'), max_size=70)
IDS = st.text(st.sampled_from("ab-09 é{}:,[]'"), max_size=20)
ROW = st.fixed_dictionaries(
    {
        "id": IDS,
        "text": TEXT,
        "n": st.integers(-5, 10**14),
        "reward": st.floats(allow_nan=True) | st.sampled_from([0.0, 1.0, None, True, 3]),
        "meta": st.builds(lambda kl, note: {"kl": kl, "note": note, "empty": []}, st.sampled_from([0.5, -0.25]), TEXT),
        "step": st.integers(0, 3),
    }
).map(lambda row: {name: row[name] for name in ("id", "text", "n", "reward", "meta", "step")})
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")])


def written(rows: Sequence[dict[str, Any]], separators: tuple[str, str], *, ascii_only: bool) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=ascii_only, separators=separators).encode() + b"\n" for row in rows)


def exactly(block: bytes) -> tuple[list[list[Any]], frozenset[str]]:
    lines = block.splitlines(keepends=True)
    found = Reader(FIELDS, WATCHED).exact(lines, list(accumulate(map(len, lines), initial=0)), str)
    return [
        [value for part in parts if isinstance(part, pl.Series) for value in part] for parts in found.columns
    ], found.late


def agrees(block: bytes) -> bool:
    """Read both ways; tell whether the mould took it."""
    got = mould.read(block, FIELDS, WATCHED, str)
    if got is None:
        return False
    columns, late, height = got
    wanted, seen = exactly(block)
    assert height == block.count(b"\n")
    assert late == seen
    for column, values in zip(columns, wanted, strict=True):
        assert len(column) == height
        assert list(map(repr, column.to_list())) == list(map(repr, values))
    return True


@settings(deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=20), separators=SEPARATORS, ascii_only=st.booleans())
def test_rows_of_one_mould_are_what_python_reads(
    rows: list[dict[str, Any]],
    separators: tuple[str, str],
    ascii_only: bool,  # noqa: FBT001 - drawn
) -> None:
    taken = agrees(written(rows, separators, ascii_only=ascii_only))
    escaped = ascii_only and any(not row["id"].isascii() for row in rows)
    assert taken == (not escaped)


@settings(max_examples=600, deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=4),
    separators=SEPARATORS,
    ascii_only=st.booleans(),
    changes=st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True), st.sampled_from(list(b'"\\{}[]:,0 1-.eu\nx\x01\xff')), st.integers(0, 2)
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_whatever_happens_to_a_block_it_is_read_as_python_reads_it_or_not_at_all(
    rows: list[dict[str, Any]],
    separators: tuple[str, str],
    ascii_only: bool,  # noqa: FBT001 - drawn
    changes: list[tuple[float, int, int]],
) -> None:
    block = bytearray(written(rows, separators, ascii_only=ascii_only))
    for place, letter, how in changes:
        at = int(place * len(block))
        block[at : at + (how > 0)] = bytes([letter]) if how < 2 else b""
    agrees(bytes(block))


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":xyz}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":01}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":"\\q"}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":"\\u12g4"}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":"\x02"}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"x":"\xc3("}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}} {}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}',
        b'["id"]',
        b"",
        b"  ",
        b'{"id":"a","n":1.5,"reward":0.5,"meta":{"kl":1}}',
        b'{"id":"a","n":true,"reward":0.5,"meta":{"kl":1}}',
        b'{"id":"a","n":1,"reward":"0.5","meta":{"kl":1}}',
        b'{"id":"a","n":1,"reward":[0.5],"meta":{"kl":1}}',
        b'{"id":"\\u0061","n":1,"reward":0.5,"meta":{"kl":1}}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{}}',
        b'{"id":"a","n":99999999999999999999,"reward":0.5,"meta":{"kl":1}}',
    ],
)
def test_a_line_that_is_no_such_object_is_left_to_the_parsers(line: bytes) -> None:
    assert mould.read(line + b"\n", FIELDS, WATCHED, str) is None
    whole = b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}}\n'
    assert agrees(whole)
    assert mould.read(whole + line + b"\n" + whole, FIELDS, WATCHED, str) is None


def test_the_last_of_two_members_of_one_name_counts() -> None:
    assert agrees(b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"reward":0.25}\n' * 3)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 63, 64, 65, 129])
def test_backslashes_are_counted_across_words(size: int) -> None:
    for shift in range(70):
        block = b"x" * shift + b"\\" * size + b'"\n"'
        found = quotes.Quotes.of(block + b"\n")
        behind = shift + size
        if size % 2:
            assert found is not None
            assert behind not in found.places
        elif shift + size:
            assert found is not None
            assert found.places.tolist() == [behind, behind + 2]


@settings(deadline=None)
@given(mask=st.lists(st.booleans(), max_size=300))
def test_places_are_those_of_the_mask(mask: list[bool]) -> None:
    array = np.array(mask, bool)
    sparse = np.concatenate((array, np.zeros(64 * len(array) + 3, bool)))
    for one in (array, sparse):
        assert quotes._places(one).tolist() == np.flatnonzero(one).tolist()
