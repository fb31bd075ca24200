"""Where results go and which columns they are: names, refusals and the woven columns, for every driver."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.errors import UsageError
from grpo_cli.files.compression import suffix_of
from grpo_cli.files.in_place import ELSEWHERE, refuse_checksums
from grpo_cli.files.stores import is_url, refuse_url
from grpo_cli.formats import registry
from grpo_cli.formats.token_lists import on_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from grpo_cli.engine.score import Scored
    from grpo_cli.formats.interface import Format
    from grpo_cli.read.tables import FileTable, Narrow
    from grpo_cli.write.token_lists import TokenColumns

STDOUT: Final = "-"
DTYPES: Final = {"f64": pl.Float64, "f32": pl.Float32}
FACTS: Final = ("mean", "std", "size", "status")

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the user said about writing."""

    to: str | None = None
    force: bool = False
    in_place: bool = False
    resume: bool = False
    column: str = "advantage"
    also: tuple[str, ...] = ()  # further columns of advantages
    replace: bool = False
    dtype: Literal["f64", "f32"] = "f64"
    facts: bool = False
    only: bool = False
    duplicate: bool = False
    seed: int = 0
    long: bool = False  # one row per rollout, whatever the layout of the input
    tokens: TokenColumns | None = None  # the advantage is written on every token that these columns say there is
    word: str = "advantages"  # in the name of an output beside its input

    @property
    def names(self) -> list[str]:
        """The columns that will be added."""
        extra = [f"{self.column}_{fact}" for fact in FACTS] if self.facts else []
        return [self.column, *self.also, *extra, *([f"{self.column}_copy"] if self.duplicate else [])]


@dataclass(frozen=True, slots=True)
class Target:
    """One output: a path, an object (`url`), or standard output; `packing` is the suffix of what it is packed with, or nothing."""

    path: Path | None
    format: Format
    packing: str = ""
    url: str = ""

    @property
    def name(self) -> str:
        """How the summary calls it."""
        return self.url or (str(self.path) if self.path else "stdout")


def choose_targets(
    tables: Sequence[FileTable], output: Output, owned: Callable[[Path], bool] | None = None
) -> list[Target]:
    """One target per input, checked before anything is computed; an `owned` file may be replaced without --force."""
    if output.in_place:
        return _in_place_targets(tables, output)
    targets = _named_targets(tables, output)
    if output.resume and (not is_folder(output.to) or is_url(str(output.to))):
        raise UsageError("--resume keeps its notes in the output directory", "give -o DIRECTORY/")
    inputs = identities(tables)
    objects = {table.source.path for table in tables if not table.source.is_local}
    for target in targets:
        if target.url:
            refuse_url(target.url, objects, force=output.force)
            continue
        if target.path is None:
            _refuse_stdout(inputs)
            continue
        force = output.force or (owned is not None and owned(target.path))
        left = "no run with --resume has left it so: " if output.resume else ""
        refuse_path(target.path, inputs, force=force, makes_folders=is_folder(output.to), hint=left)
    _refuse_shared(targets)
    return targets


def _refuse_shared(targets: Sequence[Target]) -> None:
    """Refuse two outputs that are one file, which symlinks in an output directory can make of them."""
    seen: dict[str, Path] = {}
    for path in (target.path for target in targets if target.path is not None):
        other = seen.setdefault(os.path.realpath(path), path)
        if other is not path:
            raise UsageError(f"{other} and {path} are one file", "remove the link, or give another -o")


def choose_target(tables: Sequence[FileTable], output: Output) -> Target:
    """The one file that is made of all inputs, checked before anything is computed; JSON lines where no suffix tells."""
    to = output.to
    if to is None:
        raise UsageError(
            "-o is missing: what is written is a file of its own", "give -o FILE.jsonl, FILE.parquet or -o -"
        )
    if is_folder(to):
        raise UsageError(f"{to} is a directory, and one file is written", "give -o FILE.jsonl or FILE.parquet")
    inputs = identities(tables)
    if to == STDOUT:
        _refuse_stdout(inputs)
        return Target(None, registry.lines())
    if is_url(to):
        refuse_url(to, {table.source.path for table in tables if not table.source.is_local}, force=output.force)
        return _target(to, registry.of(to))
    path = Path(to)
    if path.exists() and not path.is_file():  # /dev/null and the like have no suffix
        return Target(path, registry.lines())
    refuse_path(path, inputs, force=output.force)
    return Target(path, registry.of(to), suffix_of(to))


def _in_place_targets(tables: Sequence[FileTable], output: Output) -> list[Target]:
    for value, flag in (
        (output.to, "-o"),
        (output.only, "--only"),
        (output.duplicate, "--duplicate"),
        (output.long, "--long"),
        (output.resume, "--resume"),
    ):
        if value:
            raise UsageError(f"--in-place and {flag} are two places", "leave one of them out")
    for table in tables:
        if table.left_out:
            raise UsageError(f"{table.name} has lines to leave out: not in place", "give -o FILE")
        if table.source.written_as:
            raise UsageError(f"{table.name} is read only: not in place", "give -o FILE.jsonl or FILE.parquet")
        if table.source.fd is not None:
            raise UsageError(f"{table.name} is a pipe: there is no place to write into", "leave out --in-place")
        if not table.source.is_local:
            raise UsageError(f"{table.name} is an object, which cannot be changed in place", "give -o")
        refuse_checksums(Path(table.source.path), table.name, ELSEWHERE)
    return [Target(Path(table.source.path), table.format, suffix_of(table.name)) for table in tables]


def is_folder(to: str | None) -> bool:
    """Whether `-o` names a directory: by a slash at its end, or because it is one."""
    return to is not None and (to.endswith("/") or (not is_url(to) and Path(to).is_dir()))


def _named_targets(tables: Sequence[FileTable], output: Output) -> list[Target]:
    """Where `-o` leads, or without it beside each input; of standard input to standard output."""
    to = output.to
    if to == STDOUT or (to is None and len(tables) == 1 and tables[0].name == STDOUT):
        if len(tables) > 1:
            raise UsageError(f"{len(tables)} inputs cannot share standard output", "give -o DIRECTORY/")
        return [Target(None, tables[0].format, suffix_of(tables[0].name))]
    if to is None:
        for table in tables:
            if table.source.fd is not None and not (table.left_out or table.source.written_as):
                raise UsageError(f"{table.name} is a pipe: there is no name beside it", "give -o FILE, or -o -")
        names = [_name_beside(_readable_name(table), output.word) for table in tables]
    elif is_folder(to):
        names = _names_in_folder(to, tables)
    elif len(tables) > 1:
        raise UsageError(f"{len(tables)} inputs cannot share one file {to}", "give -o DIRECTORY/")
    elif is_url(to):
        return [_target(to, registry.like(tables[0].format, to))]
    elif Path(to).exists() and not Path(to).is_file():  # /dev/null and the like have no suffix
        return [Target(Path(to), tables[0].format, suffix_of(tables[0].name))]
    else:
        return [Target(Path(to), registry.like(tables[0].format, to), suffix_of(to))]
    return [
        _target(name, registry.like(table.format, Path(name).name, beside=True))
        for name, table in zip(names, tables, strict=True)
    ]


def _readable_name(table: FileTable) -> str:
    """The name of an input, with the suffix of what is written of it where it is read only."""
    suffix = table.source.written_as
    return str(Path(table.name).with_suffix(suffix)) if suffix and not is_url(table.name) else table.name + suffix


def _target(name: str, kind: Format) -> Target:
    """A file or an object of this name."""
    return Target(None, kind, suffix_of(name), name) if is_url(name) else Target(Path(name), kind, suffix_of(name))


def _name_beside(name: str, word: str) -> str:
    folder, slash, last = name.rpartition("/")
    packed = suffix_of(last)
    plain = Path(last[: len(last) - len(packed)])
    return f"{folder}{slash}{plain.stem}.{word}{plain.suffix}{packed}"


def _names_in_folder(folder: str, tables: Sequence[FileTable]) -> list[str]:
    """The names of the inputs below their common parent, in the folder."""
    if any(table.name == STDOUT for table in tables):
        raise UsageError("standard input has no name of its own", "give -o FILE")
    places = [_absolute(_readable_name(table)) for table in tables]
    common = os.path.commonpath([os.path.dirname(place) for place in places])  # noqa: PTH120 - links stay links
    below = [os.path.relpath(place, common) for place in places]
    return [f"{folder.rstrip('/')}/{name}" if is_url(folder) else str(Path(folder, name)) for name in below]


def _absolute(name: str) -> str:
    """The path of a file from the root; of an object its bucket and key as a path."""
    return f"/{name.partition('://')[2]}" if is_url(name) else os.path.abspath(name)  # noqa: PTH100 - links stay links


# --- what is never overwritten -----------------------------------------------------------------------------

Identities = frozenset[tuple[int, int]]  # device and inode of files


def identities(tables: Sequence[FileTable]) -> Identities:
    """The identities of the inputs; of standard input that of the file that the shell opened, if it is one."""
    files = [table for table in tables if table.name != STDOUT]
    paths = [
        Path(one.name if one.left_out or one.source.written_as else one.source.path)
        for one in files
        if one.source.is_local
    ]
    return frozenset(map(_identity, paths)) | (open_file(0) if len(files) < len(tables) else frozenset())


def _identity(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_dev, state.st_ino


def open_file(descriptor: int) -> Identities:
    """The identity of the regular file behind a descriptor; none where it is a pipe, a device or closed."""
    with suppress(OSError):
        state = os.fstat(descriptor)
        if stat.S_ISREG(state.st_mode):
            return frozenset({(state.st_dev, state.st_ino)})
    return frozenset()


def _refuse_stdout(inputs: Identities) -> None:
    """`>> rewards.jsonl` would have a run read what it writes."""
    if open_file(1) & inputs:
        raise UsageError("standard output is an input: it is never overwritten", "send it to another file")


def refuse_path(
    path: Path, inputs: Identities, *, force: bool, flag: str = "-o", makes_folders: bool = False, hint: str = ""
) -> None:
    """Refuse to write a path that is an input by whatever name, that exists, or that has no directory.

    `force` lets an existing file be replaced, but never an input.
    """
    if not makes_folders and not path.absolute().parent.is_dir():
        named = path if flag == "-o" else f"{flag} {path}"
        raise UsageError(f"{named}: there is no directory {path.parent}", f"mkdir -p {path.parent}")
    refuse_checksums(path, str(path), f"choose another {flag}")
    if not path.exists():
        return
    if _identity(path) in inputs:
        own = " (an own output, matched by the shell? quote the pattern)" if ".advantages" in path.name else ""
        raise UsageError(f"{path} is an input: it is never overwritten{own}", f"give another name with {flag}")
    if path.is_dir():
        raise UsageError(f"{path} is a directory", f"give the name of a file with {flag}")
    if path.is_file() and not force:  # of a device there is nothing to lose
        raise UsageError(f"{path} exists", f"{hint}add --force to replace it, or give another name with {flag}")


def refuse_summary(path: Path, inputs: Identities, outputs: Sequence[Path | None], *, force: bool) -> None:
    """Refuse a summary as any output, and where it is one of the `outputs` (None: standard output)."""
    if str(path) == STDOUT:
        raise UsageError("--summary takes a file", "--json prints the summary")
    real = os.path.realpath(path)
    for output in outputs:
        shared = os.path.realpath(output) == real if output else path.exists() and _identity(path) in open_file(1)
        if shared:
            raise UsageError(f"--summary and an output are both {path}", "give the summary another name")
    refuse_path(path, inputs, force=force, flag="--summary")


# --- columns -----------------------------------------------------------------------------------------------


def refuse_columns(tables: Sequence[FileTable], output: Output) -> None:
    """A column that is already there is never shadowed in silence."""
    if not output.column:
        raise UsageError("a column without a name", "give --column a name, or leave it out")
    if output.replace or output.only:
        return
    for table in tables:
        table.refuse(output.names)


def refuse_read_columns(read: Collection[str], output: Output) -> None:
    """What the run reads is not what it writes: --column reward --replace would destroy the reward."""
    of_tokens = () if output.tokens is None else output.tokens.names
    for name in output.names:
        if name in read or name in of_tokens:
            raise UsageError(f"the column {name!r} is read by this run", "give the new one another name with --column")


def refuse_token_lists(tables: Sequence[FileTable], targets: Sequence[Target], columns: TokenColumns) -> None:
    """Refuse --per-token where nothing says how many tokens there are, and where an output has no place for lists."""
    columns.check(tables)
    for target in targets:
        if not target.format.holds_lists:
            raise UsageError(
                f"{target.name}: {target.format.name} holds no lists", "give -o FILE.jsonl or FILE.parquet"
            )


def added(
    scored: Scored,
    output: Output,
    others: Mapping[str, Scored] = MappingProxyType({}),
    tokens: pl.Series | None = None,
) -> pl.DataFrame:
    """The new columns, one row per row of the narrow table; the advantages on these tokens of their rows."""
    columns = [
        one.rows[".advantage"].cast(DTYPES[output.dtype]).alias(name)
        for name, one in {output.column: scored, **others}.items()
    ]
    if tokens is not None:
        columns[0] = on_tokens(columns[0], tokens)
    if output.facts:
        frame = scored.frame
        values = (frame[".mean"], frame[".std"], frame[".n"].cast(pl.Int64), frame[".status"].cast(pl.String))
        columns += [value.alias(f"{output.column}_{fact}") for fact, value in zip(FACTS, values, strict=True)]
    return pl.DataFrame(columns)


def metadata(
    scored: Scored, narrow: Narrow, output: Output, others: Mapping[str, Scored] = MappingProxyType({})
) -> dict[str, str]:
    """What a Parquet file says of its new column. No times: the same input gives the same bytes."""
    entry: dict[str, Any] = {
        "version": 1,
        "column": output.column,
        "plan": scored.plan.as_dict(),
        "group": list(narrow.group_names),
        "batch": narrow.batch_name,
        "rewards": list(narrow.reward_names),
    }
    if narrow.outcomes:
        entry["map"] = dict(narrow.outcomes)
    if output.tokens is not None:
        entry["per_token"] = output.tokens.given
    if others:
        entry["others"] = {name: one.plan.as_dict() for name, one in others.items()}
    return {"grpo_adv": json.dumps(entry, sort_keys=True, default=str, allow_nan=False)}
