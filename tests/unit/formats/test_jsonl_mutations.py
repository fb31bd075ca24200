"""Whatever happens to the bytes of ordinary lines, polars reads them as Python's parser does, or is not trusted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.formats.interface import Field
from grpo_cli.formats.jsonl import reading
from grpo_cli.formats.jsonl.lines import last_braces
from tests.unit.formats.test_jsonl import exactly, outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

FIELDS = (Field("id", "key"), Field("n", "key"), Field("reward", "number"), Field("meta.kl", "number"))
WATCHED = ("step", "kl", "late")
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
SAME_SIZE = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["p-0001", "p-0002", "p-0099"]),
        "text": st.text(st.sampled_from("ab{}[]:, "), min_size=9, max_size=9),
        "n": st.integers(10, 99),
        "reward": st.sampled_from([0.0, 1.0, 0.5]),
        "meta": st.builds(lambda kl: {"kl": kl}, st.sampled_from([True, None, 1e99])),
        "step": st.integers(0, 9),
    }
).map(lambda row: {name: row[name] for name in ("id", "text", "n", "reward", "meta", "step")})
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")])
ENDINGS = st.sampled_from([b"\n", b"\r\n"])
OTHER_BYTES = list(b'"\\{}[]:,0 1-.eu\n\rx\x01\xff')


def written(
    rows: Sequence[dict[str, Any]], separators: tuple[str, str], *, ascii_only: bool = True, ending: bytes = b"\n"
) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=ascii_only, separators=separators).encode() + ending for row in rows)


def agrees(block: bytes) -> None:
    """Compare both readers, on the block as a whole and line by line."""
    wanted = exactly(block, FIELDS, WATCHED)
    assert outcome(block, FIELDS, WATCHED) == wanted
    with mock.patch.object(reading, "PIECE", 1):
        assert outcome(block, FIELDS, WATCHED) == wanted


@given(rows=st.lists(ROW, min_size=1, max_size=20), separators=SEPARATORS, ascii_only=st.booleans(), ending=ENDINGS)
def test_ordinary_rows_are_what_python_reads(
    rows: list[dict[str, Any]],
    separators: tuple[str, str],
    ascii_only: bool,  # noqa: FBT001 - drawn
    ending: bytes,
) -> None:
    agrees(written(rows, separators, ascii_only=ascii_only, ending=ending))


@given(
    rows=st.lists(ROW, min_size=1, max_size=4),
    separators=SEPARATORS,
    ascii_only=st.booleans(),
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(OTHER_BYTES), st.integers(0, 2)),
        min_size=1,
        max_size=3,
    ),
)
def test_bytes_that_are_changed_added_or_gone_are_noticed(
    rows: list[dict[str, Any]],
    separators: tuple[str, str],
    ascii_only: bool,  # noqa: FBT001 - drawn
    changes: list[tuple[float, int, int]],
) -> None:
    block = bytearray(written(rows, separators, ascii_only=ascii_only))
    for place, byte, how in changes:
        at = int(place * len(block))
        block[at : at + (how > 0)] = bytes([byte]) if how < 2 else b""
    agrees(bytes(block))


@given(rows=st.lists(SAME_SIZE, min_size=1, max_size=40), separators=SEPARATORS, ending=ENDINGS)
def test_rows_of_one_size_are_what_python_reads(
    rows: list[dict[str, Any]], separators: tuple[str, str], ending: bytes
) -> None:
    agrees(written(rows, separators, ending=ending))


@given(
    rows=st.lists(SAME_SIZE.map(lambda row: {**row, "meta": {"kl": None}}), min_size=1, max_size=9),
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(OTHER_BYTES)), min_size=1, max_size=3
    ),
)
def test_a_byte_that_is_another_one_is_noticed(rows: list[dict[str, Any]], changes: list[tuple[float, int]]) -> None:
    block = bytearray(written(rows, (", ", ": ")))
    for place, byte in changes:
        block[int(place * len(block))] = byte
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
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"reward"\t:0.25}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1},"meta.kl":null}',
        b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1,"kl":2}}',
        b'{"id":"a","n":1,"reward":0.5,"meta":7}',
    ],
)
@pytest.mark.parametrize("before", [0, 1, 20])
def test_an_odd_line_is_read_as_python_reads_it_wherever_it_stands(line: bytes, before: int) -> None:
    whole = b'{"id":"a","n":1,"reward":0.5,"meta":{"kl":1}}\n'
    if line.count(b'"reward"') + line.count(b'"kl"') > 2 and before > 8:
        with mock.patch.object(reading, "_EVERY", 1):  # beyond the first rows a rare double is looked for in samples
            agrees(whole * before + line + b"\n" + whole)
    else:
        agrees(whole * before + line + b"\n" + whole)


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False).map(repr)
        | st.integers(-9_999_999, 99_999_999).map(str)
        | st.from_regex(r"-?(0|[1-9][0-9]*)\.[0-9]+([eE][+-]?[0-9]{1,3})?", fullmatch=True)
        | st.from_regex(r"[-+]?[0-9]{0,9}\.?[0-9]*([eE][-+]?[0-9]*|[0-9a-z_. ])?", fullmatch=True),
        min_size=1,
    )
)
def test_numbers_are_those_of_python(texts: list[str]) -> None:
    for row in ('{"id":"a","n":1,"reward":%s,"meta":{"kl":1}}\n', '{"id":"a","n":%s,"reward":1,"meta":{"kl":1}}\n'):
        agrees("".join(row % text for text in texts).encode())


@pytest.mark.parametrize("size", [0, 1, 57, 64, 65, 200, 5000])
def test_constants_and_keys_of_any_length(size: int) -> None:
    names = {"x" * size: [], "y": "z" * size, "n": 1, "reward": 0.5, "meta": {"kl": 1}}
    block = b"".join(json.dumps({"id": f"{at // 3}" * size, **names}).encode() + b"\n" for at in range(20))
    agrees(block)
    agrees(block[:-20] + b" " + block[-20:])


@given(st.lists(st.text(st.sampled_from('{}" \t\r\x0b\ufeffa'), max_size=6)), st.booleans())
def test_last_braces_are_those_of_each_line(found: list[str], ended: bool) -> None:  # noqa: FBT001 - drawn
    block = "\n".join(found).encode() + b"\n" * ended
    places, empty = last_braces(block)
    lines = block.splitlines(keepends=True) if b"\r" not in block and b"\x0b" not in block else None
    if lines is not None:
        ends = [sum(map(len, lines[:at])) + line.rindex(b"}") for at, line in enumerate(lines) if b"}" in line]
        assert places.tolist() == ends
    for row, place in enumerate(places.tolist()):
        before = block[:place].rpartition(b"\n")[2].rstrip(b" \t\r")
        assert (row in empty) == before.endswith(b"{")
