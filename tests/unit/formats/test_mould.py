"""Lines of one mould are read as Python's parser reads them, and nothing that it refuses is taken for one."""

from __future__ import annotations

import io
import json
import re
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_cli.formats.interface import Field
from grpo_cli.formats.jsonl import alike, bits, digits, quotes, window
from grpo_cli.formats.jsonl.mould import Mould
from grpo_cli.formats.jsonl.pruned import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIELDS = (Field("id", "key"), Field("n", "key"), Field("reward", "number"), Field("meta.kl", "number"))
WATCHED = frozenset({"step", "kl", "late"})
TEXT = st.text(st.sampled_from('ab"\\/\n\t{}[]:,é漢\U0001f600 \x7f'), max_size=70)
IDS = st.text(st.sampled_from("ab-09 é{}:,[]'"), max_size=20)
ROW = st.fixed_dictionaries(
    {
        "id": IDS,
        "text": TEXT,
        "n": st.integers(-5, 10**14),
        "reward": st.floats(allow_nan=True) | st.sampled_from([0.0, 1.0, None, True, False, 3]),
        "meta": st.builds(lambda kl, note: {"kl": kl, "note": note, "empty": []}, st.sampled_from([0.5, -0.25]), TEXT),
        "step": st.integers(0, 3) | st.sampled_from([True, False, None, 1e300]),
    }
).map(lambda row: {name: row[name] for name in ("id", "text", "n", "reward", "meta", "step")})
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")])


def written(
    rows: Sequence[dict[str, Any]], separators: tuple[str, str], *, ascii_only: bool, ending: bytes = b"\n"
) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=ascii_only, separators=separators).encode() + ending for row in rows)


def exactly(block: bytes) -> tuple[list[list[Any]], frozenset[str]]:
    lines = io.BytesIO(block).readlines()
    found = Reader(FIELDS, WATCHED).exact(lines, list(accumulate(map(len, lines), initial=0)), str)
    return [
        [value for part in parts if isinstance(part, pl.Series) for value in part] for parts in found.columns
    ], found.late


def cast(block: bytes) -> list[alike.Read]:
    """What the mould takes of a block, in windows."""
    return list(alike.read(io.BytesIO(block), len(block), FIELDS, WATCHED, str))


def agrees(block: bytes) -> bool:
    """Read both ways what the mould takes; tell whether that was all of it."""
    got = cast(block)
    done = sum(one.size for one in got)
    wanted, seen = exactly(block[:done])
    assert done == 0 or block[done - 1 : done] == b"\n"
    assert sum(len(one.braces) for one in got) == block[:done].count(b"\n")
    assert frozenset().union(*(one.late for one in got)) == seen
    for at, values in enumerate(wanted):
        column = [value for one in got for value in one.columns[at]]
        assert list(map(repr, column)) == list(map(repr, values))
    return done == len(block)


@contextmanager
def small_windows() -> Iterator[None]:
    """Windows that hold a few lines."""
    held = window.Window.mine()
    window._MINE.window = window.Window(4096)
    try:
        yield
    finally:
        window._MINE.window = held


def test_a_short_key_at_the_end_of_a_window_may_stand_beside_much_longer_ones() -> None:
    for size in range(520, 720, 8):
        keys = ["k" * (1 if number % 3 else 300) for number in range(60)]
        start = f'{{"n":1,"reward":1,"meta":{{"kl":1}},"text":"{"t" * size}","id":"'
        with small_windows():
            assert agrees("".join(f'{start}{key}"}}\n' for key in keys).encode())


def test_a_line_of_very_many_values_has_no_mould() -> None:
    for many in (100, 100_000):
        line = json.dumps({"id": "a", "tokens": ["t"] * many}).encode()
        assert (Mould.of(line) is not None) == (many == 100)


@settings(deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=20),
    separators=SEPARATORS,
    ascii_only=st.booleans(),
    ending=st.sampled_from([b"\n", b"\r\n"]),
)
def test_rows_of_one_mould_are_what_python_reads(
    rows: list[dict[str, Any]],
    separators: tuple[str, str],
    ascii_only: bool,  # noqa: FBT001 - drawn
    ending: bytes,
) -> None:
    block = written(rows, separators, ascii_only=ascii_only, ending=ending)
    taken = agrees(block)
    with small_windows():
        assert agrees(block) == taken
    escaped = ascii_only and any(not row["id"].isascii() for row in rows)
    assert taken == (not escaped)


@settings(max_examples=600, deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=4),
    separators=SEPARATORS,
    ascii_only=st.booleans(),
    changes=st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),
            st.sampled_from(list(b'"\\{}[]:,0 1-.eu\n\rx\x01\xff')),
            st.integers(0, 2),
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
    with small_windows():
        agrees(bytes(block))


ALIKE = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["p-0001", "p-0002", "p-0099"]),
        "text": st.text(st.sampled_from("ab{}[]:, "), min_size=9, max_size=9),
        "n": st.integers(10, 99),
        "reward": st.sampled_from([0.0, 1.0, 0.5]),
        "meta": st.builds(lambda kl: {"kl": kl}, st.sampled_from([True, None, 1e99])),
        "step": st.integers(0, 9),
    }
).map(lambda row: {name: row[name] for name in ("id", "text", "n", "reward", "meta", "step")})


def of_one_shape(block: bytes) -> bool:
    found = window.Window()
    found.fill(io.BytesIO(block), len(block))
    return alike._of_shape(found, FIELDS, WATCHED, str) is not None


@settings(deadline=None)
@given(rows=st.lists(ALIKE, min_size=1, max_size=40), separators=SEPARATORS, ending=st.sampled_from([b"\n", b"\r\n"]))
def test_lines_of_one_shape_are_what_python_reads(
    rows: list[dict[str, Any]], separators: tuple[str, str], ending: bytes
) -> None:
    block = written(rows, separators, ascii_only=True, ending=ending)
    sizes = [len(line) for line in io.BytesIO(block)]
    assert of_one_shape(block) == (len({*sizes[: len(block) // sizes[0]]}) == 1)
    assert agrees(block)
    with small_windows():
        assert agrees(block)


@settings(max_examples=600, deadline=None)
@given(
    rows=st.lists(ALIKE.map(lambda row: {**row, "meta": {"kl": None}}), min_size=1, max_size=9),
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(list(b'"\\{}[]:,0 1-.eu\n\rx\x01\xff'))),
        min_size=1,
        max_size=3,
    ),
)
def test_a_letter_that_is_another_one_is_noticed_in_lines_of_one_shape(
    rows: list[dict[str, Any]], changes: list[tuple[float, int]]
) -> None:
    block = bytearray(written(rows, (", ", ": "), ascii_only=True))
    for place, letter in changes:
        block[int(place * len(block))] = letter
    agrees(bytes(block))


def test_a_name_before_a_tab_is_no_text() -> None:
    line = b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"reward"\t:0.25}\n'
    assert not of_one_shape(line * 3)
    agrees(line * 3)


def test_any_constant_letter_that_differs_in_the_last_line_is_seen() -> None:
    line = written([{"id": "p-1", "n": 1, "reward": 1.0, "meta": {"kl": 1}}], (",", ":"), ascii_only=True)
    values = {
        line.index(text) + at
        for text in (b"p-1", b"1,", b"1.0", b"1}")
        for at in range(len(text) - (b"1" in text[:1] and text != b"1.0"))
    }
    assert of_one_shape(line * 3)
    for at in set(range(len(line))) - values:
        other = bytearray(line)
        other[at] ^= 1
        assert not of_one_shape(line * 2 + bytes(other)), at


def test_texts_are_seen_where_they_lie() -> None:
    rng = np.random.default_rng(0)
    found = window.Window(1 << 16)
    found.fill(io.BytesIO(rng.integers(33, 127, 1 << 15, dtype=np.uint8).tobytes()), 1 << 16)
    start = rng.integers(0, (1 << 15) - 40, 500)
    for sizes in (rng.integers(0, 40, 500), rng.integers(0, 13, 500), np.full(500, 12), np.full(500, 13)):
        letters = found.room.tobytes()
        wanted = [letters[at : at + size].decode() for at, size in zip(start, sizes, strict=True)]
        assert found.views(start, sizes).to_list() == wanted


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
    assert cast(line + b"\n") == []
    whole = b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}}\n'
    assert agrees(whole)
    assert cast(whole + line + b"\n" + whole) == []


def test_the_last_of_two_members_of_one_name_counts() -> None:
    assert agrees(b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"reward":0.25}\n' * 3)


def looked_at(block: bytes) -> quotes.Quotes | None:
    found = window.Window()
    found.fill(io.BytesIO(block), len(block))
    found.search()
    return quotes.Quotes.of(found)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 63, 64, 65, 129])
def test_backslashes_are_counted_across_words(size: int) -> None:
    for shift in range(70):
        block = b"x" * shift + b"\\" * size + b'"\n"'
        found = looked_at(block + b"\n")
        behind = shift + size
        if size % 2:
            assert found is not None
            assert behind not in found.quotes.places()
        elif shift + size:
            assert found is not None
            assert found.quotes.places().tolist() == [behind, behind + 2]


@settings(deadline=None)
@given(text=st.binary(max_size=300) | st.text(st.sampled_from(' "a'), max_size=300).map(str.encode))
def test_letters_are_found_where_they_are_and_the_next_one_from_anywhere(text: bytes) -> None:
    letters = np.frombuffer(text, np.uint8)
    quote, space = b'" '
    for one in (letters, np.concatenate((letters, np.full(64 * len(letters) + 3, ord("x"), np.uint8), letters))):
        there = np.flatnonzero(one == quote)
        found = bits.equal(one, quote)
        assert bits.places(found).tolist() == bits.Bits(found).places().tolist() == there.tolist()
        assert bits.places(bits.below(one, space)).tolist() == np.flatnonzero((one < space) | (one > 127)).tolist()
        following = np.append(there, len(one))[np.searchsorted(there, np.arange(len(one)))]
        assert np.minimum(bits.Bits(found).next(np.arange(len(one))), len(one)).tolist() == following.tolist()


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.text(st.sampled_from("0123456789.-+e \x00\xff"), max_size=8)
        | st.integers(-9999999, 99999999).map(str)
        | st.floats(-999, 999).map(lambda value: f"{value:.3f}"),
        min_size=1,
    ),
    st.binary(min_size=8, max_size=8),
)
def test_short_numbers_are_those_of_python(texts: list[str], behind: bytes) -> None:
    letters = [text.encode("latin-1") for text in texts]
    words = np.array([int.from_bytes((one + behind)[:8], "little") for one in letters], np.uint64)
    found = digits.read(words, np.array(list(map(len, letters))))
    are = [re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", text, re.ASCII) is not None for text in texts]
    assert found.known.tolist() == are
    values = zip(texts, found.floats().tolist(), are, strict=True)
    assert all(repr(float(json.loads(text))) == repr(value) for text, value, known in values if known)
    if (whole := found.whole()) is not None:
        assert all(int(text) == value for text, value, known in zip(texts, whole, are, strict=True) if known)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False).map(repr)
        | st.text(st.sampled_from("0159.-+eE"), min_size=1, max_size=12)
        | st.from_regex(r"[-+]?[0-9]{0,9}\.?[0-9]*([eE][-+]?[0-9]*|[0-9a-z_. \n\x00\x80\xff])?", fullmatch=True),
        min_size=1,
    )
)
def test_a_number_that_begins_well_and_that_polars_takes_is_a_decimal_number_of_json(texts: list[str]) -> None:
    letters = [text.encode("latin-1") + b',"next":1.5' for text in texts]
    words = np.array([int.from_bytes(one[:8], "little") for one in letters], np.uint64)
    begin = [re.match(rb"-?(0|[1-9][0-9]*)\.[0-9]", one[:8]) is not None for one in letters]
    assert digits.begin_decimals(words).tolist() == begin
    values = pl.Series(texts).cast(pl.Float64, strict=False).to_list()
    for text, value, well in zip(texts, values, begin, strict=True):
        is_one = re.fullmatch(r"-?(0|[1-9][0-9]*)\.[0-9]+([eE][-+]?[0-9]+)?", text, re.ASCII) is not None
        assert not well or (value is not None) == is_one
        assert not well or not is_one or value == float(text)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False).map(repr)
        | st.from_regex(r"-?(0|[1-9][0-9]*)\.[0-9]+([eE][+-]?[0-9]{1,3})?", fullmatch=True),
        min_size=1,
    )
)
def test_long_numbers_are_those_of_python(texts: list[str]) -> None:
    row = '{"id":"a","n":1,"reward":%s,"meta":{"kl":1}}\n'
    assert agrees("".join(row % text for text in texts).encode())


@pytest.mark.parametrize("size", [0, 1, 57, 64, 65, 200, 5000])
def test_constants_and_keys_of_any_length(size: int) -> None:
    names = {"x" * size: [], "y": "z" * size, "n": 1, "reward": 0.5, "meta": {"kl": 1}}
    block = b"".join(json.dumps({"id": f"{at // 3}" * size, **names}).encode() + b"\n" for at in range(20))
    assert agrees(block)
    assert not agrees(block[:-20] + b" " + block[-20:])
