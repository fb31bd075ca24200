"""Packed text is read and written, and broken files are reported."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from grpo_cli.errors import DataError
from grpo_cli.files.compression import packing, suffix_of, unpacked
from grpo_cli.files.inputs import Input
from grpo_cli.formats.registry import FORMATS, of, sniff
from grpo_cli.values.cells import Field
from grpo_cli.write.outputs import Target
from grpo_cli.write.write_outputs import sink
from tests.support.drawn import paired
from tests.support.weaving import in_memory, inserting

LINES = b'{"k":"p","reward":0}\n{"k":"p","reward":1}\n{"k":"q","reward":2}\n' * 1000
FIELDS = [Field("reward", "number"), Field("k", "key")]


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd}
packers = pytest.mark.parametrize("suffix", PACKERS)


def plain(data: bytes) -> bytes:
    with unpacked(in_memory(data, "in")) as handle:
        return handle.read()


def woven(name: str, data: bytes, take: list[int] | None = None) -> bytes:
    out = io.BytesIO()
    added = {"advantage": [0.5] * (3000 if take is None else len(take))}
    with packing(out, suffix_of(name)) as inside:
        of(name).weave(in_memory(data, name), None, inside, inserting(added, take=take))
    return out.getvalue()


@packers
def test_a_packed_file_is_read_like_the_plain_one(suffix: str) -> None:
    known = of(f"x.jsonl{suffix}")
    packed = in_memory(PACKERS[suffix](LINES), f"x.jsonl{suffix}")
    assert known.name == "jsonl"
    assert known.scan(packed, FIELDS).frame.equals(FORMATS["jsonl"].scan(in_memory(LINES, "x"), FIELDS).frame)
    assert known.columns(packed) == ["k", "reward"]
    assert known.read(packed).height == 3000


@packers
@pytest.mark.parametrize("take", [None, [2, 0, 2999]])
def test_packed_text_gets_its_column_like_plain_text(suffix: str, take: list[int] | None) -> None:
    packed = PACKERS[suffix](LINES)
    out = woven(f"x.jsonl{suffix}", packed, take)
    assert out[:2] != LINES[:2]
    assert plain(out) == woven("x.jsonl", LINES, take)
    assert out == woven(f"x.jsonl{suffix}", packed, take)


@packers
def test_several_members_are_one_text(suffix: str) -> None:
    pack = PACKERS[suffix]
    assert plain(pack(LINES[:1000]) + pack(LINES[1000:]) + pack(b"")) == LINES


@packers
def test_a_cut_or_broken_file_is_named(suffix: str) -> None:
    noise = b"".join(b'{"reward":%d,"x":"%x"}\n' % (at, at**40) for at in range(5000))
    packed = PACKERS[suffix](noise)
    broken = packed[:12] + b"\xff" * 200 + packed[212:]  # zstd has no checksums: a flipped letter goes unnoticed
    for data, said in ((packed[:-5], "cut short"), (packed[: len(packed) // 2], "cut short"), (broken, "broken")):
        source = in_memory(data, f"x.jsonl{suffix}")
        with pytest.raises(DataError, match=rf"^x\.jsonl.*: .*{said}"):
            of(source).scan(source, FIELDS[:1])


@packers
def test_what_is_appended_later_is_not_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.jsonl{suffix}"
    path.write_bytes(PACKERS[suffix](LINES))
    source = Input.at(path)
    with path.open("ab") as handle:
        handle.write(PACKERS[suffix](LINES))
    assert of(source).scan(source, FIELDS).frame.height == 3000


LONG = b"".join(b'{"k":"p%d","text":"%x","reward":%d}\n' % (at // 4, at**9, at % 3) for at in range(120_000))
BLOCK = 1 << 20
READ_BY: dict[str, list[Sequence[str]]] = {
    ".gz": [("gzip", "-dc"), ("pigz", "-dc"), ("7z", "x", "-tgzip", "-si", "-so")],
    ".zst": [("zstd", "-dc")],
}


def packed_in(pieces: Sequence[bytes], suffix: str, **workers: int) -> bytes:
    out = io.BytesIO()
    with packing(out, suffix, **workers) as stream:
        for piece in pieces:
            assert stream.write(piece) == len(piece)
    return out.getvalue()


@packers
@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, len(LONG)])
def test_neither_the_cores_nor_the_pieces_change_a_packed_byte(suffix: str, size: int) -> None:
    text = LONG[:size]
    found = set[bytes]()
    for piece, workers in paired((997, BLOCK - 1, BLOCK, 3 * BLOCK + 5, size or 1), (1, 2, 4)):
        pieces = [b"", *(text[at : at + piece] for at in range(0, size, piece)), b""]
        found.add(packed_in(pieces, suffix, workers=workers))
    assert len(found) == 1
    assert plain(found.pop()) == text


@packers
@pytest.mark.parametrize(
    "text", [b"", LONG, b'{"text":"' + bytes(range(35, 91)) * 150_000 + b'"}\n'], ids=["empty", "long", "giant"]
)
def test_programs_read_packed_text_whole(suffix: str, text: bytes) -> None:
    packed = packed_in([text], suffix)
    if suffix == ".gz":
        member = zlib.decompressobj(wbits=31)  # the single member that every reader takes, even one that stops after it
        assert member.decompress(packed) == text
        assert member.eof
        assert member.unused_data == b""
        assert gzip.decompress(packed) == text
    for command in READ_BY[suffix]:
        if shutil.which(command[0]):
            assert subprocess.run(command, input=packed, capture_output=True, check=True).stdout == text


def test_gzip_grows_by_no_more_than_a_tenth_over_the_default_level() -> None:
    assert len(packed_in([LONG], ".gz")) <= 1.1 * len(zlib.compress(LONG))


class _Full(io.BytesIO):
    """A disk that has room for a few bytes."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > 1000:
            raise OSError(28, "No space left on device")
        return super().write(data)


def interrupted(out: io.BytesIO, suffix: str) -> None:
    with packing(out, suffix) as stream:
        for _ in range(9 if isinstance(out, _Full) else 1):
            stream.write(LONG)
        raise KeyboardInterrupt


@packers
def test_a_full_disk_or_an_interruption_stops_packing_and_leaves_no_thread(suffix: str) -> None:
    before = threading.active_count()
    out = io.BytesIO()
    with pytest.raises(OSError, match="No space left"):
        interrupted(_Full(), suffix)
    with pytest.raises(KeyboardInterrupt):
        interrupted(out, suffix)
    assert threading.active_count() == before
    if suffix == ".gz":  # frames of zstd are independent
        with pytest.raises(DataError, match="cut short"):
            plain(out.getvalue())


@packers
def test_delimited_text_is_packed_too(suffix: str) -> None:
    text = b"k\treward\n" + b"a\t1\n" * 3000
    packed = PACKERS[suffix](text)
    for take in (None, [5, 0]):
        out = woven(f"x.tsv{suffix}", packed, take)
        assert plain(out) == woven("x.tsv", text, take)


@packers
def test_a_packed_pipe_is_known_by_what_is_inside(suffix: str) -> None:
    assert sniff(in_memory(PACKERS[suffix](LINES), "-")) is FORMATS["jsonl"]
    assert of(in_memory(PACKERS[suffix](b"a,b\n1,2\n"), "-")) is FORMATS["csv"]


@packers
def test_a_fresh_file_is_packed(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.csv{suffix}"
    known = of(path.name)
    frame = pl.DataFrame({"k": ["a", "b"], "r": [1.5, None]})
    with sink(Target(path, known, suffix), force=False) as handle:
        known.write_parts(iter([frame]), handle, {})
    assert plain(path.read_bytes()) == b"k,r\na,1.5\nb,\n"
