"""All file formats: how they are recognised, by suffix or by first bytes, and where their code is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.compression import suffix_of, unpacked
from grpo_cli.files.inputs import Input, spooled
from grpo_cli.formats.blocks import BOM

if TYPE_CHECKING:
    from grpo_cli.formats.interface import Format, Reader
    from grpo_cli.formats.json_document.document import Documents
    from grpo_cli.formats.json_document.lists import Lists
    from grpo_cli.formats.jsonl.format import Jsonl


class _Row(NamedTuple):
    """Facts of a format before its module is loaded."""

    name: str
    module: str
    class_: str
    suffixes: tuple[str, ...]
    magic: tuple[bytes, ...] = ()  # its first bytes; text has none, and only text may be compressed


class _Formats(Mapping[str, "Format"]):
    """Every format by name. Its module is loaded at the first look-up: most runs need only a few."""

    def __init__(self, *rows: _Row) -> None:
        self.rows: Final = {row.name: row for row in rows}

    def __getitem__(self, name: str) -> Format:
        return _loaded(self.rows[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


@cache
def _loaded(row: _Row) -> Format:
    made: Format = getattr(import_module(f"grpo_cli.formats.{row.module}"), row.class_)(row.name)
    return made


FORMATS = _Formats(
    _Row("jsonl", "jsonl.format", "Jsonl", suffixes=(".jsonl", ".ndjson", ".json")),
    _Row("json", "json_document.document", "Documents", suffixes=()),  # a document per file, found by its first bytes
    _Row("csv", "delimited.format", "Csv", suffixes=(".csv",)),
    _Row("tsv", "delimited.format", "Tsv", suffixes=(".tsv",)),
    _Row("parquet", "parquet.format", "Parquet", suffixes=(".parquet", ".pq"), magic=(b"PAR1", b"PARE")),
    _Row(
        "arrow", "arrow", "Arrow",
        suffixes=(".arrow", ".ipc", ".feather"), magic=(b"ARROW1", b"FEA1", b"\xff\xff\xff\xff"),
    ),
)  # fmt: skip
_BY_SUFFIX = {suffix: row for row in FORMATS.rows.values() for suffix in row.suffixes}
# The suffixes that a directory is searched for, and whether such files may be compressed. Few files of other containers
# have rows, so such a file has to be named.
SUFFIXES = {**{suffix: not row.magic for suffix, row in _BY_SUFFIX.items()}, ".eval": False}
# Containers that are read as JSON: the function that converts them, and the suffix of their outputs.
_CONTAINERS = {
    ".eval": ("containers", "inspect_log", ".json"),
    ".pt": ("torch_file", "samples", ".jsonl"),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), ("containers", "database", ".jsonl")),
}
_TABLE = re.compile(rb'\s*\{\s*"columns"\s*:\s*\[[^\]]*\]\s*,\s*"(data|index)"\s*:\s*\[')
_IS_JSON = re.compile(rb'\s*(\{\s*"[^"]*"\s*:|\[\s*[\[{])')
_BINARY = dict.fromkeys((".pkl", ".pickle"), "a pickle runs code when it is opened: write its samples as JSON lines")
_HEAD = 1 << 16  # bytes by which a file without a known suffix is recognised


def of(which: str | Input) -> Format:
    """The format by the suffix of a name, or by the name and the first bytes of an input."""
    name = which.name if isinstance(which, Input) else which
    if isinstance(which, Input) and which.deferred:
        from grpo_cli.formats.harbor import Trials

        return Trials("jsonl")
    if isinstance(which, Input) and (which.fd is not None or "." not in _bare(name)) and which.suffix not in _BY_SUFFIX:
        return sniff(which)
    suffix = _inner_suffix(name)
    row = _BY_SUFFIX.get(suffix)
    if row is None or (suffix_of(name) and row.magic):
        cures = [f"the suffixes are {' '.join(_BY_SUFFIX)}"]
        if isinstance(which, Input):
            cures += ["a file of another name can be piped in", *filter(None, [_BINARY.get(suffix)])]
        raise UsageError(f"{name}: unknown file format", cures)
    if not isinstance(which, Input) or row.magic:
        return FORMATS[row.name]
    with unpacked(which) as handle:
        head = handle.read(_HEAD)
    binary = _binary_row(head)
    is_json = row.name == "jsonl"
    if binary is not None or (not is_json and _IS_JSON.match(head.removeprefix(BOM))):
        what, other = ("JSON", ".jsonl") if binary is None else (binary.name, binary.suffixes[0])
        meant = "text" if is_json else row.name.upper()
        raise DataError(f"{name}: this is {what}, not {meant}", f"name it {other}, or pipe it in")
    document = _json_format(head, json_name=suffix == ".json") if is_json else None
    return document or FORMATS[row.name]


def as_text(source: Input, *, deferred: bool = False) -> Input:
    """The input itself; for another container the JSON of its rows, in a temporary file.

    `deferred`: the conversations of a job folder are left where they are, and `of` gives the format that fetches them.
    """
    is_folder = source.is_local and source.fd is None and os.path.isdir(source.path)  # noqa: PTH112 - the path of an input
    made = ("harbor", "trials" if deferred else "rows", ".jsonl") if is_folder else _CONTAINERS.get(source.suffix)
    if made is None and source.suffix == ".json":
        with source.open() as handle:
            made = ("containers", "table", ".jsonl") if _TABLE.match(handle.read(_HEAD)) else None
    if made is None:
        return source
    module, function, suffix = made
    texts = getattr(import_module(f"grpo_cli.formats.{module}"), function)(source)
    deferred &= is_folder
    return replace(spooled(texts, source.name), max_line=source.max_line, written_as=suffix, deferred=deferred)


def _bare(name: str) -> str:
    """The last part of a name without the suffix of a compression."""
    return name[: len(name) - len(suffix_of(name))].rpartition("/")[2]


def _inner_suffix(name: str) -> str:
    """The suffix of the format: for a compressed file the suffix before .gz or .zst."""
    return f".{_bare(name).lower().rpartition('.')[2]}"


def _json_format(head: bytes, *, json_name: bool) -> Format | None:
    """The format of a file that is a single JSON document; None if its lines are documents."""
    text = head.removeprefix(BOM).lstrip()
    if text.startswith(b"["):
        return FORMATS["json"]
    first, newline, _ = text.partition(b"\n")
    if not text.startswith(b"{") or not newline:
        return None
    with suppress(ValueError):
        with suppress(RecursionError):  # the reader of the line raises it, with the line number
            json.loads(first)
        return None
    whole = json_name or first.strip() == b"{"
    return replace(cast("Documents", FORMATS["json"]), path="") if whole else None


def nested(known: Reader, path: str) -> Documents:
    """JSON with rollouts at a path inside each record of the known format."""
    from grpo_cli.formats.json_document.document import Documents

    if isinstance(known, Documents):
        inside = path.removeprefix("[].") if known.path == "[]" else path
        return replace(known, path=f"{known.path}.{inside}".strip("."))
    return Documents(known.name, path, lined=True)


def listed(known: Reader, items: tuple[str, ...], *, keys_too: bool, keys: Collection[str] = ()) -> Lists:
    """Records of the known format with lists of rollouts; `items` are the columns of rewards, `keys` those of the key."""
    from grpo_cli.formats.json_document.lists import Lists

    return Lists(known.name, cast("Format", known), items, keys_too, frozenset(keys))  # frames hold no records


def keeps_empty_records(known: Format) -> bool:
    """Whether a record without rollouts stays in the file when rows of others are taken: all are parts of one document."""
    from grpo_cli.formats.json_document.document import Documents

    return isinstance(known, Documents) and not known.lined


def like(known: Format, name: str) -> Format:
    """The format of an output by its name: that of the input, with its layout, if the suffix means the same format."""
    meant = of(name)
    one_document = known.name == "json" and _inner_suffix(name) == ".json"
    return known if meant.same_as(known) or one_document else meant


def lines(*, inner_texts: bool = False) -> Jsonl:
    """The format of a stream: a row per line."""
    return replace(cast("Jsonl", FORMATS["jsonl"]), inner_texts=inner_texts)


def sniff(source: Input) -> Format:
    """The format by the first bytes: a pipe has no name."""
    with unpacked(source) as handle:
        head = handle.read(_HEAD)
    if not head:
        raise DataError(f"{source.name}: no rows", "the input is empty")
    if (binary := _binary_row(head)) is not None:
        return FORMATS[binary.name]
    if (known := _json_format(head, json_name=True)) is not None:
        return known
    text = head.removeprefix(BOM).lstrip()
    first = (text.splitlines() or [b""])[0]
    name = "jsonl" if text.startswith((b"{", b"[")) else "tsv" if b"\t" in first else "csv" if b"," in first else ""
    if not name:
        cure = "give it a suffix" if source.fd is None else "name a file instead of a pipe"
        raise DataError(f"{source.name}: the format cannot be recognised by the first bytes", cure)
    return FORMATS[name]


def _binary_row(head: bytes) -> _Row | None:
    return next((row for row in FORMATS.rows.values() if row.magic and head.startswith(row.magic)), None)
