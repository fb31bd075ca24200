"""File formats: a row of functions each, found by suffix or by the first bytes."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.compression import packing, suffix_of, unpacked
from grpo_cli.files.inputs import Input
from grpo_cli.formats.interface import Field, Format, Kind, Weaving
from grpo_cli.formats.jsonl.lines import BOM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from grpo_cli.formats.json_document.document import Documents

__all__ = ["FORMATS", "Field", "Format", "Kind", "Weaving", "documents", "like", "listed", "nested", "of", "sniff"]


def _of(module: str, name: str) -> Callable[..., Any]:
    """A function of a format's module, which is loaded when it is first called: most runs need one of them."""

    def call(*given: Any) -> Any:
        return attrgetter(name)(import_module(f"grpo_cli.formats.{module}"))(*given)

    return call


def _row(
    name: str, module: str, inside: str = "", *more: str, suffixes: tuple[str, ...], binary: bool = False
) -> Format:
    known: dict[str, Any] = {
        one: _of(module, f"{inside}{one}") for one in ("columns", "scan", "weave", "write", "read", *more)
    }
    return Format(name=name, suffixes=suffixes, binary=binary, **known)


FORMATS: Final[Mapping[str, Format]] = MappingProxyType({
    row.name: row for row in (
        _row("jsonl", "jsonl.jsonl", "", "late", suffixes=(".jsonl", ".ndjson", ".json")),
        _row("csv", "delimited", "CSV.", "difference", suffixes=(".csv",)),
        _row("tsv", "delimited", "TSV.", "difference", suffixes=(".tsv",)),
        _row("parquet", "parquet.parquet", "", "in_place", suffixes=(".parquet", ".pq"), binary=True),
        _row("arrow", "arrow", suffixes=(".arrow", ".ipc", ".feather"), binary=True),
    )
})  # fmt: skip
_BY_SUFFIX: Final = {suffix: known for known in FORMATS.values() for suffix in known.suffixes}
_TEXT: Final = ("jsonl", "csv", "tsv")
_MARKS: Final = {"parquet": (b"PAR1", b"PARE"), "arrow": (b"ARROW1", b"FEA1", b"\xff\xff\xff\xff")}
_OTHER_PACKERS: Final = (".bz2", ".xz", ".zip")
_BINARY: Final = dict.fromkeys(
    (".pt", ".pkl", ".pickle"), "; a pickle runs code when it is opened: write its samples as JSON lines"
) | {".eval": "; inspect log convert --to json makes a log that can be read"}
_FIRST: Final = 1 << 16  # bytes that are looked at on a pipe


def of(which: str | Input) -> Format:
    """Find the format by the suffix of a file name, or of an input's name (`-` is sniffed)."""
    if isinstance(which, Input) and which.fd is not None and which.suffix not in _BY_SUFFIX:
        return sniff(which)
    name = which.name if isinstance(which, Input) else which
    packed, suffix = _suffixes(name)
    found = _BY_SUFFIX.get(suffix)
    if found is None or (packed and found.name not in _TEXT):
        hint = f"the suffixes are {' '.join(_BY_SUFFIX)}"
        unpackable = suffix in _OTHER_PACKERS and isinstance(which, Input)
        pipe = "; unpack it into a pipe: grpo-adv compute -" if unpackable else ""
        raise UsageError(f"{name}: no format goes by this name", hint + pipe + _BINARY.get(suffix, ""))
    if isinstance(which, Input) and found.name == "jsonl":
        with unpacked(which) as handle:
            head = handle.read(_FIRST)
        if (binary := _binary_format(head)) is not None:
            raise DataError(f"{name}: this is {binary.name}, not text", f"name it {binary.suffixes[0]}, or pipe it in")
        found = _json_format(head, json_name=suffix == ".json") or found
    return _packed(found, packed) if packed else found


def _suffixes(name: str) -> tuple[str, str]:
    """How a file of this name is packed, and the suffix that tells its format."""
    packed = suffix_of(name)
    return packed, f".{name[: len(name) - len(packed)].rpartition('/')[2].lower().rpartition('.')[2]}"


def _json_format(head: bytes, *, json_name: bool) -> Format | None:
    """The format of a file that is one JSON document, if it is one."""
    if not _is_whole(head, json_name=json_name):
        return None
    return nested("[]" if head.removeprefix(BOM).lstrip().startswith(b"[") else "", lined=False)


def _is_whole(head: bytes, *, json_name: bool) -> bool:
    """Tell by its first bytes whether a file is one document rather than one a line."""
    text = head.removeprefix(BOM).lstrip()
    if not text.startswith(b"{"):
        return text.startswith(b"[")
    first, newline, _ = text.partition(b"\n")
    if not newline:
        return False
    with suppress(ValueError):
        json.loads(first)
        return False
    return json_name or first.strip() == b"{"


@cache
def nested(path: str, *, lined: bool) -> Format:
    """JSON documents with rollouts at a path: a document is each line, or the whole file."""
    from grpo_cli.formats.json_document import document

    found = document.Documents(path, lined)
    known = FORMATS["jsonl"]
    return replace(
        known, path=path, name=known.name if lined else "json", suffixes=known.suffixes if lined else (".json",),
        columns=found.columns, scan=found.scan, late=found.late, weave=found.weave, read=found.read,
        write=known.write if lined else document.write, place=found.place, own=found.own,
        long=found.read if path not in {"", "[]"} else None, difference=found.difference,
    )  # fmt: skip


def documents(known: Format) -> Documents:
    """The documents that a format reads."""
    from grpo_cli.formats.json_document.document import Documents

    return Documents(known.path or "", known.name == "jsonl")


@cache
def listed(base: Format, items: tuple[str, ...], *, keys_too: bool) -> Format:
    """Records of a format with lists of rollouts in them."""
    from grpo_cli.formats.json_document.lists import Lists

    found = Lists(base, items, keys_too)
    return replace(
        base, scan=found.scan, late=found.late, weave=found.weave, place=found.place, packed=found.packed,
        long=found.long, in_place=found.in_place if base.in_place else None,
    )  # fmt: skip


def like(known: Format, name: str, *, beside: bool = False) -> Format:
    """The format of an output's name: that of the input, layout and all, where the suffix means the same.

    A name that was made of the input's own (`beside`) always means the same.
    """
    known, meant = known.plain or known, of(name)
    packed, suffix = _suffixes(name)
    same = beside or meant.name == known.name or (known.name == "json" and suffix == ".json")
    if not same:
        return meant
    return _packed(known, packed) if packed else known


@cache
def _packed(known: Format, suffix: str) -> Format:
    """A text format whose files are written packed. To read them it needs nothing: the first bytes tell."""

    def weave(source: Input, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        with packing(sink, suffix) as inside:
            return known.weave(source, inside, weaving)

    def write(frame: pl.DataFrame, sink: BinaryIO, metadata: Mapping[str, str]) -> None:
        with packing(sink, suffix) as inside:
            known.write(frame, inside, metadata)

    suffixes = tuple(f"{one}{suffix}" for one in known.suffixes)
    return replace(known, suffixes=suffixes, weave=weave, write=write, plain=known)


def sniff(source: Input) -> Format:
    """Find the format by the first bytes: a pipe has no name."""
    with unpacked(source) as handle:
        head = handle.read(_FIRST)
    if not head:
        raise DataError(f"{source.name}: no rows", "nothing came in")
    text = head.removeprefix(BOM).lstrip()
    return _binary_format(head) or _json_format(head, json_name=True) or _text_format(source, text)


def _binary_format(head: bytes) -> Format | None:
    return next((FORMATS[name] for name, marks in _MARKS.items() if head.startswith(marks)), None)


def _text_format(source: Input, text: bytes) -> Format:
    first = text.splitlines()[0] if text else b""
    if text.startswith(b"{"):
        return FORMATS["jsonl"]
    if b"\t" in first:
        return FORMATS["tsv"]
    if b"," in first:
        return FORMATS["csv"]
    unclear = f"{source.name}: the format cannot be told from the first bytes"
    raise DataError(unclear, "name a file instead of a pipe")
