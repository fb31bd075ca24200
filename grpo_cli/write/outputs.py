"""Where results go and which columns they are: names, refusals and the woven columns, for every driver."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.errors import UsageError
from grpo_cli.files.compression import suffix_of
from grpo_cli.files.in_place import ELSEWHERE, refuse_checksums
from grpo_cli.formats import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grpo_cli.engine.score import Scored
    from grpo_cli.formats.interface import Format
    from grpo_cli.read.tables import FileTable, Narrow

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
    word: str = "advantages"  # in the name of an output beside its input

    @property
    def names(self) -> list[str]:
        """The columns that will be added."""
        extra = [f"{self.column}_{fact}" for fact in FACTS] if self.facts else []
        return [self.column, *self.also, *extra, *([f"{self.column}_copy"] if self.duplicate else [])]


@dataclass(frozen=True, slots=True)
class Target:
    """One output: a path, or standard output (None); `packing` is the suffix of what it is packed with, or nothing."""

    path: Path | None
    format: Format
    packing: str = ""

    @property
    def name(self) -> str:
        """How the summary calls it."""
        return str(self.path) if self.path else "stdout"


def targets(tables: Sequence[FileTable], output: Output, owned: Callable[[Path], bool] | None = None) -> list[Target]:
    """One target per input, checked before anything is computed; what is `owned` may be replaced."""
    if output.in_place:
        return _themselves(tables, output)
    found = _named(tables, output)
    folder = is_folder(output.to)
    if output.resume and not folder:
        raise UsageError("--resume keeps its notes in the output directory", "give -o DIRECTORY/")
    inputs = _identities(tables)
    for path in (target.path for target in found if target.path is not None):
        if not folder and not path.absolute().parent.is_dir():
            raise UsageError(f"{path}: there is no directory {path.parent}", f"mkdir -p {path.parent}")
        _refuse_existing(path, inputs, force=output.force or (owned is not None and owned(path)), resume=output.resume)
    return found


def _themselves(tables: Sequence[FileTable], output: Output) -> list[Target]:
    for given, what in (
        (output.to, "-o"),
        (output.only, "--only"),
        (output.duplicate, "--duplicate"),
        (output.long, "--long"),
        (output.resume, "--resume"),
    ):
        if given:
            raise UsageError(f"--in-place and {what} are two places", "leave one of them out")
    for table in tables:
        if table.gone:
            raise UsageError(f"{table.name} has lines to leave out: not in place", "give -o FILE")
        if table.source.fd is not None:
            raise UsageError(f"{table.name} is a pipe: there is no place to write into", "leave out --in-place")
        refuse_checksums(Path(table.source.path), table.name, ELSEWHERE)
    return [Target(Path(table.source.path), table.format, suffix_of(table.name)) for table in tables]


def is_folder(to: str | None) -> bool:
    """Whether `-o` names a directory: by a slash at its end, or because it is one."""
    return to is not None and (to.endswith("/") or Path(to).is_dir())


def _named(tables: Sequence[FileTable], output: Output) -> list[Target]:
    to = output.to
    piped = len(tables) == 1 and tables[0].name == STDOUT
    if to == STDOUT or (to is None and piped):
        if len(tables) > 1:
            raise UsageError(f"{len(tables)} inputs cannot share standard output", "give -o DIRECTORY/")
        return [Target(None, tables[0].format, suffix_of(tables[0].name))]
    for table in tables if to is None else ():
        if table.source.fd is not None and not table.gone:
            raise UsageError(f"{table.name} is a pipe: there is no name beside it", "give -o FILE, or -o -")
    if to is None:
        paths = [_beside(Path(table.name), output.word) for table in tables]
        return [
            Target(path, registry.like(one.format, path.name, beside=True), suffix_of(path.name))
            for path, one in zip(paths, tables, strict=True)
        ]
    if is_folder(to):
        return _in_directory(Path(to), tables)
    if len(tables) > 1:
        raise UsageError(f"{len(tables)} inputs cannot share one file {to}", "give -o DIRECTORY/")
    device = Path(to).exists() and not Path(to).is_file()  # /dev/null and the like have no suffix
    given = tables[0].format
    if device:
        return [Target(Path(to), given, suffix_of(tables[0].name))]
    return [Target(Path(to), registry.like(given, to), suffix_of(to))]


def _beside(path: Path, word: str) -> Path:
    packed = suffix_of(path.name)
    plain = path.with_name(path.name[: len(path.name) - len(packed)])
    return path.with_name(f"{plain.stem}.{word}{plain.suffix}{packed}")


def _in_directory(top: Path, tables: Sequence[FileTable]) -> list[Target]:
    if any(table.name == STDOUT for table in tables):
        raise UsageError("standard input has no name of its own", "give -o FILE")
    parents = [os.path.abspath(Path(table.name).parent) for table in tables]  # noqa: PTH100 - links stay links
    common = os.path.commonpath(parents)
    return [
        Target(
            top / os.path.relpath(parent, common) / Path(table.name).name,
            registry.like(table.format, table.name, beside=True),
            suffix_of(table.name),
        )
        for parent, table in zip(parents, tables, strict=True)
    ]


def _identities(tables: Sequence[FileTable]) -> frozenset[tuple[int, int]]:
    """Device and inode of every input: of thousands of outputs none is compared with thousands of inputs."""
    named = [Path(table.name if table.gone else table.source.path) for table in tables if table.name != STDOUT]
    return frozenset(map(_identity, named))


def _identity(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def _refuse_existing(path: Path, inputs: frozenset[tuple[int, int]], *, force: bool, resume: bool = False) -> None:
    refuse_checksums(path, str(path), "choose another -o")
    if not path.exists():
        return
    if _identity(path) in inputs:
        own = " (an own output, matched by the shell? quote the pattern)" if ".advantages" in path.name else ""
        raise UsageError(f"{path} is an input: it is never overwritten{own}", "give another name with -o")
    if not path.is_file() and not path.is_dir():
        return  # a device: nothing there to lose
    if path.is_dir():
        raise UsageError(f"{path} is a directory", f"give -o {path}/ to write into it")
    if not force:
        left = "no run with --resume has left it so: " if resume else ""
        raise UsageError(f"{path} exists", f"{left}add --force to replace it, or give another name with -o")


def refuse_columns(tables: Sequence[FileTable], output: Output) -> None:
    """A column that is already there is never shadowed in silence."""
    if not output.column:
        raise UsageError("a column without a name", "give --column a name, or leave it out")
    if output.replace or output.only:
        return
    for table in tables:
        table.refuse(output.names)


def refuse_read_columns(narrow: Narrow, output: Output) -> None:
    """What the run reads is not what it writes: --column reward --replace would destroy the reward."""
    read = {*narrow.group_names, *narrow.reward_names, *narrow.roles.values()}
    for name in output.names:
        if name in read:
            raise UsageError(f"the column {name!r} is read by this run", "give the new one another name with --column")


def refuse_summary(path: Path, tables: Sequence[FileTable], aims: Sequence[Target], *, force: bool) -> None:
    """The summary is an output like the others."""
    if str(path) == STDOUT:
        raise UsageError("--summary takes a file", "--json prints the summary")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--summary {path}: there is no directory {path.parent}", f"mkdir -p {path.parent}")
    if any(aim.path is not None and aim.path.absolute() == path.absolute() for aim in aims):
        raise UsageError(f"--summary and an output are both {path}", "give the summary another name")
    _refuse_existing(path, _identities(tables), force=force)


def added(scored: Scored, output: Output, others: Mapping[str, Scored] = MappingProxyType({})) -> pl.DataFrame:
    """The new columns, one row per row of the narrow table."""
    told = {output.column: scored, **others}
    columns = [one.rows[".advantage"].cast(DTYPES[output.dtype]).alias(name) for name, one in told.items()]
    if output.facts:
        frame = scored.frame
        values = (frame[".mean"], frame[".std"], frame[".n"].cast(pl.Int64), frame[".status"].cast(pl.String))
        columns += [value.alias(f"{output.column}_{fact}") for fact, value in zip(FACTS, values, strict=True)]
    return pl.DataFrame(columns)


def metadata(
    scored: Scored, narrow: Narrow, output: Output, others: Mapping[str, Scored] = MappingProxyType({})
) -> dict[str, str]:
    """What a Parquet file says of its new column. No times: the same input gives the same bytes."""
    told: dict[str, Any] = {
        "version": 1,
        "column": output.column,
        "plan": scored.plan.as_dict(),
        "group": list(narrow.group_names),
        "batch": narrow.batch_name,
        "rewards": list(narrow.reward_names),
    }
    if others:
        told["others"] = {name: one.plan.as_dict() for name, one in others.items()}
    return {"grpo_adv": json.dumps(told, sort_keys=True, default=str, allow_nan=False)}
