"""File formats: a row of functions each, found by suffix or by the first bytes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, Final

from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats import arrow, delimited, jsonl, parquet
from grpo_cli.formats.lines import BOM
from grpo_cli.formats.model import Field, Format, Kind, Weaving
from grpo_cli.io.local import Input
from grpo_cli.io.packed import packing, suffix_of, unpacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

__all__ = ["FORMATS", "Field", "Format", "Kind", "Weaving", "of", "sniff"]

FORMATS: Final[Mapping[str, Format]] = MappingProxyType({
    "jsonl": Format(
        name="jsonl", suffixes=(".jsonl", ".ndjson", ".json"),
        columns=jsonl.columns, scan=jsonl.scan, weave=jsonl.weave, write=jsonl.write, read=jsonl.read,
        late=jsonl.late,
    ),
    "csv": Format(
        name="csv", suffixes=(".csv",), columns=delimited.CSV.columns, scan=delimited.CSV.scan,
        weave=delimited.CSV.weave, write=delimited.CSV.write, read=delimited.CSV.read,
    ),
    "tsv": Format(
        name="tsv", suffixes=(".tsv",), columns=delimited.TSV.columns, scan=delimited.TSV.scan,
        weave=delimited.TSV.weave, write=delimited.TSV.write, read=delimited.TSV.read,
    ),
    "parquet": Format(
        name="parquet", suffixes=(".parquet", ".pq"),
        columns=parquet.columns, scan=parquet.scan, weave=parquet.weave,
        write=parquet.write, read=parquet.read, in_place=parquet.in_place,
    ),
    "arrow": Format(
        name="arrow", suffixes=(".arrow", ".ipc", ".feather"),
        columns=arrow.columns, scan=arrow.scan, weave=arrow.weave, write=arrow.write, read=arrow.read,
    ),
})  # fmt: skip
_BY_SUFFIX: Final = {suffix: known for known in FORMATS.values() for suffix in known.suffixes}
_TEXT: Final = ("jsonl", "csv", "tsv")
_OTHER_PACKERS: Final = (".bz2", ".xz", ".zip")
_FIRST: Final = 1 << 16  # bytes that are looked at on a pipe


def of(which: str | Input) -> Format:
    """Find the format by the suffix of a file name, or of an input's name (`-` is sniffed)."""
    if isinstance(which, Input) and which.fd is not None and which.suffix not in _BY_SUFFIX:
        return sniff(which)
    name = which.name if isinstance(which, Input) else which
    packed = suffix_of(name)
    suffix = f".{name[: len(name) - len(packed)].rpartition('/')[2].lower().rpartition('.')[2]}"
    found = _BY_SUFFIX.get(suffix)
    if packed and found is not None and found.name in _TEXT:
        return _packed(found.name, packed)
    if packed or found is None:
        hint = f"the suffixes are {' '.join(_BY_SUFFIX)}"
        pipe = "; unpack it into a pipe: grpo-adv compute -" if suffix in _OTHER_PACKERS else ""
        raise UsageError(f"{name}: no format goes by this name", hint + pipe)
    return found


@cache
def _packed(name: str, suffix: str) -> Format:
    """A text format whose files are written packed. To read them it needs nothing: the first bytes tell."""
    known = FORMATS[name]

    def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        with packing(sink, suffix) as inside:
            return known.weave(source, inside, weaving)

    def write(frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        with packing(sink, suffix) as inside:
            known.write(frame, inside, metadata)

    return replace(known, suffixes=tuple(f"{one}{suffix}" for one in known.suffixes), weave=weave, write=write)


def sniff(source: Input) -> Format:
    """Find the format by the first bytes: a pipe has no name."""
    with unpacked(source) as handle:
        head = handle.read(_FIRST)
    if not head:
        raise DataError(f"{source.name}: no rows", "nothing came in")
    if head.startswith(b"PAR1"):
        return FORMATS["parquet"]
    if head.startswith((b"ARROW1", b"FEA1", b"\xff\xff\xff\xff")):
        return FORMATS["arrow"]
    return _text_format(source, head.removeprefix(BOM).lstrip())


def _text_format(source: Input, text: bytes) -> Format:
    if text.startswith(b"["):
        cure = "write one object a line, for example with jq -c '.[]'"
        raise DataError(f"{source.name}: this is one JSON array", cure)
    first = text.splitlines()[0] if text else b""
    if text.startswith(b"{"):
        return FORMATS["jsonl"]
    if b"\t" in first:
        return FORMATS["tsv"]
    if b"," in first:
        return FORMATS["csv"]
    unclear = f"{source.name}: the format cannot be told from the first bytes"
    raise DataError(unclear, "name a file instead of a pipe")
