"""Which files and columns are written: their names, what is refused, and the new columns, for every kind of run."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import polars as pl

from grpo_cli.engine.extra_columns import MASKED
from grpo_cli.engine.score import Scored
from grpo_cli.errors import DataError, GrpoError, UsageError, Way
from grpo_cli.files.atomic import ELSEWHERE, refuse_unwritable
from grpo_cli.files.compression import suffix_of
from grpo_cli.files.inputs import is_readable
from grpo_cli.files.kept import identity_of, is_input
from grpo_cli.files.stores import is_url, refuse_url
from grpo_cli.formats import registry
from grpo_cli.formats.interface import Format
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import FileTable
from grpo_cli.values.paths import refuse_doubled
from grpo_cli.values.token_lists import Tokens, on_tokens, with_lists
from grpo_cli.write.token_lists import TokenColumns

STDOUT = "-"
DTYPES = {"f64": pl.Float64, "f32": pl.Float32}
_NAME_A_FILE = "give -o FILE.jsonl or FILE.parquet"
FACTS = ("mean", "std", "size", "status")


@dataclass(frozen=True, kw_only=True)
class Output:
    """The options of writing."""

    to: str | None = None
    force: bool = False
    in_place: bool = False
    column: str = "advantage"
    also: tuple[str, ...] = ()  # further columns of advantages
    replace: bool = False
    dtype: Literal["f64", "f32"] = "f64"
    facts: bool = False
    only: bool = False
    duplicate: bool = False
    seed: int = 0
    long: bool = False  # one row per rollout, whatever the layout of the input
    tokens: TokenColumns | None = None  # write the advantage of every token that these columns count
    word: str = "advantages"  # part of the name of an output next to its input
    summary: Path | None = None  # the caller writes it; its name is checked like that of an output

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"--seed cannot be {self.seed}", "it takes 0 or more")

    @property
    def names(self) -> list[str]:
        """The columns that will be added."""
        extra = [f"{self.column}_{fact}" for fact in FACTS] if self.facts else []
        return [self.column, *self.also, *extra, *([f"{self.column}_copy"] if self.duplicate else [])]

    @property
    def types(self) -> dict[str, str]:
        """The columns that will be added, with their types."""
        advantage = f"list of {self.dtype}" if self.tokens is not None else self.dtype
        of_facts = {"mean": "f64", "std": "f64", "size": "i64", "status": "text"}
        types = dict.fromkeys((self.column, *self.also), advantage)
        types |= {f"{self.column}_{fact}": of_facts[fact] for fact in FACTS if self.facts}
        return types | ({f"{self.column}_copy": "bool"} if self.duplicate else {})


class Target(NamedTuple):
    """One output: a path, an object (`url`), or standard output; `packing` is the suffix of its compression, or empty."""

    path: Path | None
    format: Format
    packing: str = ""
    url: str = ""

    @property
    def name(self) -> str:
        """Its name in the summary."""
        return self.url or (str(self.path) if self.path else "stdout")


def choose_targets(tables: Sequence[FileTable], output: Output) -> list[Target]:
    """One target per input, checked before anything is computed."""
    if output.in_place:
        return _in_place_targets(tables, output)
    targets = _named_targets(tables, output)
    _refuse_shared(targets)
    for target in targets:
        _refuse(target, output)
    return targets


def planned_targets(tables: Sequence[FileTable], output: Output) -> tuple[list[Target], list[str]]:
    """The outputs of a run that writes nothing, and what would stop one that does."""
    in_the_way = []
    try:
        targets = _in_place_targets(tables, output) if output.in_place else _named_targets(tables, output)
        _refuse_shared(targets)
    except GrpoError as error:
        return [], [str(error)]
    for target in () if output.in_place else targets:
        try:
            _refuse(target, output)
        except GrpoError as error:
            in_the_way.append(str(error))
    return targets, in_the_way


def _refuse(target: Target, output: Output, *, makes_folders: bool = False) -> None:
    """Refuse an output that is an input, that exists, or whose directory does not exist and is not made."""
    if target.url:
        refuse_url(target.url, force=output.force)
    elif target.path is not None:
        refuse_path(target.path, force=output.force, makes_folders=makes_folders or is_folder(output.to))


def _refuse_shared(targets: Sequence[Target]) -> None:
    """Refuse two outputs that are one file: `x.db` and `x.pt` both become `x.jsonl`, and symlinks can lead to the same file."""
    seen: dict[str, Target] = {}
    for target in targets:
        other = seen.setdefault(os.path.realpath(target.path) if target.path else target.name, target)
        if other.name != target.name:
            raise UsageError(
                f"{other.name} and {target.name} are the same file", ["remove the link", "give another -o"]
            )
        if other is not target:
            raise UsageError(
                f"two inputs would be written to {target.name}", "run them separately, each with its own -o"
            )


def choose_beside(targets: Sequence[Target], words: Collection[str], output: Output) -> list[Target]:
    """For each word another output beside each of these, named by it (x.jsonl, x.holdout.jsonl), checked like them."""
    found = []
    for word, target in product(words, targets):
        if target.name == "stdout" or _is_device(target.name):
            raise UsageError(f"--{word} writes a second file, and {target.name} takes one", "give -o FILE")
        found.append(_target(_name_beside(target.name, word), target.format))
        _refuse(found[-1], output)
    _refuse_shared([*targets, *found])
    return found


def choose_target(output: Output, *, makes_folders: bool = False) -> Target:
    """The single output of all inputs, checked before anything is computed; by default JSON lines. Its folder may have to be made."""
    to = output.to
    if to is None:
        raise UsageError("-o is missing: this command writes a new file", "give -o FILE.jsonl, FILE.parquet or -o -")
    if is_folder(to):
        raise UsageError(f"{to} is a directory, but a single file is written", _NAME_A_FILE)
    if to == STDOUT or _is_device(to):
        return Target(None if to == STDOUT else Path(to), registry.lines())
    target = _target(to, registry.of(to))
    _refuse(target, output, makes_folders=makes_folders)
    return target


def _in_place_targets(tables: Sequence[FileTable], output: Output) -> list[Target]:
    for value, flag in (
        (output.to, "-o"),
        (output.only, "--only"),
        (output.duplicate, "--duplicate"),
        (output.long, "--long"),
    ):
        if value:
            raise UsageError(f"--in-place and {flag} cannot be combined", "leave one of them out")
    for table in tables:
        for wrong, why, cure in (
            (table.source.left_out, "cannot be changed in place: it has lines to leave out", "give -o FILE"),
            (table.source.written_as, "cannot be changed in place: its format is read-only", _NAME_A_FILE),
            (table.source.fd is not None, "is a pipe, which cannot be changed in place", "leave out --in-place"),
            (not table.source.is_local, "is in an object store and cannot be changed in place", "give -o"),
        ):
            if wrong:
                raise UsageError(f"{table.name} {why}", cure)
        _refuse_checksums(Path(table.source.path), table.name)
    return [Target(Path(table.source.path), table.format, suffix_of(table.name)) for table in tables]


def is_folder(to: str | None) -> bool:
    """Whether `-o` names a directory: it ends with a slash, or it is one."""
    return to is not None and (to.endswith("/") or (not is_url(to) and Path(to).is_dir()))


def _is_device(to: str) -> bool:
    """Whether a name is a device such as /dev/null, or a pipe, and has no suffix that sets the format."""
    named = is_url(to) or is_readable(to, registry.SUFFIXES)
    return not named and Path(to).exists() and not Path(to).is_file()


def _named_targets(tables: Sequence[FileTable], output: Output) -> list[Target]:
    """The outputs that `-o` names; without it, a file beside each input, or standard output for standard input."""
    to = output.to
    if to == STDOUT or (to is None and len(tables) == 1 and tables[0].name == STDOUT):
        if len(tables) > 1:
            raise UsageError(f"{len(tables)} inputs cannot share standard output", "give -o DIRECTORY/")
        return [Target(None, tables[0].format)]  # not compressed, even if the input is: the name of an output decides
    if to is None:
        for table in tables:
            if table.source.fd is not None and not (table.source.left_out or table.source.written_as):
                raise UsageError(f"{table.name} is a pipe: the output needs a name", "give -o FILE, or -o -")
        names = [_name_beside(_name_as_written(table), output.word) for table in tables]
    elif is_folder(to):
        names = _names_in_folder(to, tables)
    elif len(tables) > 1:
        raise UsageError(f"{len(tables)} inputs cannot share one file {to}", "give -o DIRECTORY/")
    elif _is_device(to):
        return [Target(Path(to), tables[0].format)]
    else:
        return [_target(to, registry.like(tables[0].format, to))]
    return [_target(name, table.format) for name, table in zip(names, tables, strict=True)]


def _name_as_written(table: FileTable) -> str:
    """The name of an input, with the suffix of the output if its format is read-only."""
    suffix = table.source.written_as
    if suffix and Path(table.name).is_dir():
        return f"{Path(table.name)}{suffix}"
    if suffix and not is_url(table.name):
        return str(Path(table.name).with_suffix(suffix))
    return table.name + suffix


def _target(name: str, kind: Format) -> Target:
    """A file or an object of this name."""
    return Target(None, kind, suffix_of(name), name) if is_url(name) else Target(Path(name), kind, suffix_of(name))


def _name_beside(name: str, word: str) -> str:
    folder, slash, last = name.rpartition("/")
    packed = suffix_of(last)
    plain = Path(last[: len(last) - len(packed)])
    return f"{folder}{slash}{plain.stem}.{word}{plain.suffix}{packed}"


def _names_in_folder(folder: str, tables: Sequence[FileTable]) -> list[str]:
    """Names in the folder: the paths of the inputs relative to their common parent."""
    if any(table.name == STDOUT for table in tables):
        raise UsageError("the output of standard input needs a name", "give -o FILE")
    places = [_absolute(_name_as_written(table)) for table in tables]
    common = os.path.commonpath([os.path.dirname(place) for place in places])  # noqa: PTH120 - links stay links
    below = [os.path.relpath(place, common) for place in places]
    return [f"{folder.rstrip('/')}/{name}" if is_url(folder) else str(Path(folder, name)) for name in below]


def _absolute(name: str) -> str:
    """The absolute path of a file; for an object its bucket and key as a path."""
    return os.path.abspath(f"/{name.partition('://')[2]}" if is_url(name) else name)  # noqa: PTH100 - links stay links


# --- what is never overwritten -----------------------------------------------------------------------------


def refuse_path(path: Path, *, force: bool, flag: str = "-o", makes_folders: bool = False) -> None:
    """Refuse an output path that is an input under any name, that exists, or whose directory does not exist.

    `force` lets an existing file be replaced, but never an input.
    """
    if not makes_folders and not path.absolute().parent.is_dir():
        named = path if flag == "-o" else f"{flag} {path}"
        raise UsageError(f"there is no directory {path.parent}", f"mkdir -p {path.parent}", place=named)
    if not path.exists():
        return
    if is_input(path.stat()):
        raise UsageError(f"{path} is an input: it is never overwritten", f"give another name with {flag}")
    if path.is_dir():
        raise UsageError(f"{path} is a directory", f"give the name of a file with {flag}")
    if path.is_file() and not force:  # a device has no content to lose
        raise UsageError(
            f"{path} exists", [Way("--force", why="to replace it", lead="add"), f"give another name with {flag}"]
        )


def _refuse_checksums(path: Path, name: str) -> None:
    """Refuse a file with Hadoop checksums beside it: Spark would no longer read the changed file."""
    for each in (path, Path(os.path.realpath(path))):
        side = each.with_name(f".{each.name}.crc")
        if os.path.exists(side):  # noqa: PTH110 - False if the name is too long
            wrong = f"{side} has its checksums, which would no longer match"
            raise DataError(wrong, ["remove it", ELSEWHERE], place=name)


def refuse_summary(output: Output, targets: Sequence[Target]) -> None:
    """Check the path of the summary, if there is one, like that of any output; it must not be one of the targets."""
    path = output.summary
    if path is None:
        return
    if str(path) == STDOUT:
        raise UsageError("--summary takes a file", Way("--json", why="prints the summary"))
    real = os.path.realpath(path)
    for target in targets:
        shared = (
            os.path.realpath(target.path) == real if target.path else identity_of(path) in {identity_of(1)} - {None}
        )
        if shared:
            raise UsageError(f"--summary and an output are both {path}", "give the summary another name")
    refuse_path(path, force=output.force, flag="--summary")
    refuse_unwritable([path])  # it is written last


# --- columns -----------------------------------------------------------------------------------------------


def refuse_columns(tables: Sequence[FileTable], output: Output) -> list[FileTable]:
    """The tables, which now refuse rows that already have an output column, so that none is hidden silently."""
    if not output.column:
        raise UsageError("a column without a name", ["give --column a name", "leave it out"])
    if output.replace:
        for table in tables:
            refuse_doubled(output.names, table.format.columns(table.source), table.name)
    if output.replace or output.only:
        return list(tables)
    return [table.refusing(output.names) for table in tables]


def refuse_read_columns(read: Collection[str], output: Output) -> None:
    """Refuse to overwrite a column that the run reads: --column reward --replace would destroy the reward."""
    of_tokens = () if output.tokens is None else output.tokens.given.values()
    for name in output.names:
        if name in read or name in of_tokens:
            raise UsageError(f"the column {name!r} is read by this run", "give the new one another name with --column")


def refuse_token_lists(tables: Sequence[FileTable], targets: Sequence[Target], columns: TokenColumns) -> None:
    """Refuse --per-token if no column gives the number of tokens, or if an output format cannot hold lists."""
    columns.check(tables)
    for target in targets:
        if target.format.record == "texts":
            raise UsageError(f"{target.format.name} cannot hold lists", _NAME_A_FILE, place=target.name)


def added(
    scored: Scored,
    output: Output,
    others: Mapping[str, Scored] = MappingProxyType({}),
    tokens: Tokens | None = None,
) -> pl.DataFrame:
    """The new columns, with a row for each row of the narrow table; with `tokens`, advantages are lists over tokens."""
    columns = [_typed(values, output.dtype).alias(name) for name, values in {output.column: scored, **others}.items()]
    if tokens is not None:
        masked = scored.rows[MASKED] if MASKED in scored.rows.columns else pl.Series([False])
        trained_on = pl.when(masked).then(0.0).otherwise(columns[0])
        on_each = pl.select(trained_on.cast(columns[0].dtype).alias(output.column))
        columns[0] = on_tokens(on_each.to_series(), tokens)
    if output.facts:
        frame = scored.frame
        std = frame[".std"].fill_nan(None)  # of a group whose rows are all left out
        values = (frame[".mean"], std, frame[".n"].cast(pl.Int64), frame[".status"].cast(pl.String))
        columns += [value.alias(f"{output.column}_{fact}") for fact, value in zip(FACTS, values, strict=True)]
    return pl.DataFrame(columns)


def in_memory(scored: Scored, tokens: Tokens | None) -> pl.Series:
    """The advantages; with `tokens` as lists, all at once."""
    return with_lists(added(scored, Output(), tokens=tokens)).to_series()


def _typed(scored: Scored, dtype: Literal["f64", "f32"]) -> pl.Series:
    """The advantages in this type; a value that is too large for it is an error."""
    exact = scored.rows[".advantage"]
    cast = exact.cast(DTYPES[dtype])
    if dtype == "f32" and (lost := (cast.is_infinite() & exact.is_finite()).fill_null(value=False)).any():
        row = lost.arg_max() or 0
        reward = scored.rows[".reward"][row]
        wrong = f"the advantage {exact[row]:.4g} (of the reward {reward:.4g}) does not fit in 32 bits"
        raise DataError(wrong, Way("--dtype", "f64", lead="use"))
    return cast


def metadata(
    parts: Sequence[tuple[Scored, Narrow]], output: Output, others: Mapping[str, Scored] = MappingProxyType({})
) -> dict[str, str]:
    """The Parquet metadata of the new column, without timestamps: the same input gives the same bytes."""
    scored, narrow = parts[0]
    by = narrow.request.by
    of_plans = {id(own.plan): own.plan for _, own in parts}  # many parts may have the same plan
    as_dicts = {name: plan.as_dict() for name, plan in of_plans.items()}
    plans = {own.request.value: as_dicts[id(own.plan)] for _, own in parts}
    rewards = {own.request.value: list(own.reward_names) for _, own in parts}
    entry: dict[str, Any] = {
        "version": 1,
        "column": output.column,
        **({"plan_by": by, "plans": plans} if by else {"plan": scored.plan.as_dict()}),
        "group": narrow.key.columns,
        "batch": narrow.rule.batch_name,
        "rewards": rewards if by else list(narrow.reward_names),
    }
    if narrow.marked is not None:
        entry["marks"] = {mark.words: mark.kind for mark in narrow.marked.marks}
    if narrow.request.binding.outcomes:
        entry["map"] = dict(narrow.request.binding.outcomes)
    if output.tokens is not None:
        entry["per_token"] = output.tokens.given
    if others:
        entry["others"] = {name: values.plan.as_dict() for name, values in others.items()}
    return {"grpo_adv": json.dumps(entry, sort_keys=True, default=str, allow_nan=False)}
