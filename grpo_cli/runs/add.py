"""`add`: insert columns of a frame or of a second file into a file, and keep all its other bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.errors import (
    Cure,
    DataError,
    InputChanged,
    NoRewards,
    UnknownName,
    UsageError,
    Way,
    Written,
    near_names,
    short,
)
from grpo_cli.files.finished import expect
from grpo_cli.files.inputs import MAX_LINE, Input
from grpo_cli.formats import registry
from grpo_cli.formats.frame import FRAME, FrameReader
from grpo_cli.formats.interface import InCells, Scanned, Weaving
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import refuse_beside
from grpo_cli.read.known_names import GROUP_TIERS
from grpo_cli.read.open_tables import STDIN, find_inputs
from grpo_cli.read.pairs import NOWHERE, NUMBER, WHOLE, Keyed, comparable, gathered, known_ids, several
from grpo_cli.read.recognise import recognise
from grpo_cli.read.tables import Binding, FileTable, Table, label, refuse_changed
from grpo_cli.runs.asked import made, output_of
from grpo_cli.runs.gate import Gate
from grpo_cli.schemas.table import NONE
from grpo_cli.stats.document import asked_by
from grpo_cli.values.cells import JSON_TEXT, Field, nameless
from grpo_cli.values.column_types import Contents
from grpo_cli.values.paths import Absent, absent, items, splits
from grpo_cli.write.outputs import (
    Output,
    Target,
    choose_targets,
    refuse_columns,
    refuse_read_columns,
    refuse_summary,
)
from grpo_cli.write.write_outputs import Phase, Writing, in_turn, make_folders, paths_of

VERSION: Final = 1
Take = Literal["first", "last", "mean"]
_EXACT = 2**53  # larger integers are not all floats
_TAKES = (
    "numbers, texts, true and false, and lists of numbers can be added",
    Way("--column", why="names them", fill="NAME"),
)
_ONE_KIND = "a column takes numbers of 64 bits, Unicode texts, true and false, or lists of numbers, all of one kind"
_OTHER_KEYS = (
    Way("--on", why="takes both names if they differ (HERE=THERE)"),
    "a number and a text are different keys",
)
_TRUTHS = {"true": True, "True": True, "false": False, "False": False}
_KEY = "\0key"  # no column of a user
_DIGITS = 17  # with more, a float is not the number that was written


@dataclass(frozen=True, kw_only=True)
class Job:
    """The file, the columns to add (a frame, or the name of a file that has them), which row is whose, and where to write."""

    file: str  # that gets the columns
    columns: FrameReader | str  # the frame, or the name of the file, that has the columns
    chosen: Sequence[str] = ()  # NAME or NAME=NEW: some of the columns, and their names in the output
    on: Sequence[str] = ()  # the columns of the key; none: by position
    take: Take | None = None  # of several rows with one key
    by_position: bool = False  # even if ids differ
    gate: Gate | None = None  # the condition of --fail-on, checked before anything is written
    schema: str | None = None  # the schema, named as in a Binding; "none": rows are records
    output: Output = field(default_factory=lambda: Output(word="added"))  # where and how to write
    max_line: int = MAX_LINE  # the most bytes of a line, in both files

    @classmethod
    def of(cls, given: Given, **more: Any) -> Job:
        """What options ask for; `more` are further fields."""
        if given.by_position:
            refuse_beside("by_position", given, "on")
        if "take" in given and "on" not in given:
            raise UsageError("--take has no effect without --on", Way("--on", fill="COL", lead="add"))
        gate = Gate.of(given, Added)
        return made(cls, given, columns=given.source, output=output_of(given, "added"), gate=gate, **more)


@dataclass(frozen=True)
class Joined:
    """How rows matched by key: `unused` are rows of the other file that belong to none, `repeated` keys that several of its rows have."""

    on: Mapping[str, str]  # each key column of the file, with its name in the other file
    take: Take | None  # which value is taken if several rows of the other file have the key; None: that is an error
    rows: int  # of the file that gets the columns
    matched: int  # rows of the file whose key is in the other file
    unmatched: int  # rows of the file whose key is not in the other file: their new values are null
    unmatched_share: float  # `unmatched` as a share of the rows of the file
    unused: int  # rows of the other file whose key is not in the file
    unused_share: float  # `unused` as a share of the rows of the other file
    repeated: int  # keys of the file that several rows of the other file have


@dataclass(frozen=True, kw_only=True)
class Added:
    """The summary of `add`."""

    version: Literal[1]  # of the document; it changes when the meaning of a key does
    inputs: Sequence[str]  # the one file that gets the columns
    from_: str  # the name of the file that has the columns, as given; `frame` if Python gave a frame
    schema: str | None  # the name of the file's schema, whose rollouts are rows; None without one
    rows: int  # of the file; each gets a value, which may be null
    columns: Mapping[str, str]  # the new columns, each with its type in polars
    replaced: Sequence[str]  # those of the new columns that the file had before
    # how rows matched by key; None if row i belongs to row i
    joined: Joined | None = field(metadata=asked_by("--on", "COL"))
    outputs: Sequence[str]  # the one file that was written, or stdout
    warnings: Sequence[str]  # values that JSON cannot hold, and notes of the writer
    seconds: float  # the whole run took
    config: str | None = None  # the file of options that was read; absent if none was


@dataclass(frozen=True)
class Matched:
    """The columns to add, with a row for each row of the file."""

    frame: pl.DataFrame
    scanned: Scanned  # where the rows of the file are
    joined: Joined | None  # how rows matched by key; None if row i belongs to row i


def run(job: Job, phase: Phase = lambda *_: None) -> Added:
    """Insert the columns; return the facts."""
    started = time.perf_counter()
    phase("reading")
    if job.file == STDIN == job.columns:
        raise UsageError("standard input is both FILE and --from", "name one of them")
    table = _opened(_only(job.file), job)
    other, every = _read(job)
    on = keys_of(job.on, table, other)
    frame = _to_add(job, other, every, on)
    output = replace(job.output, column=frame.columns[0], also=tuple(frame.columns[1:]))
    (target,) = choose_targets([table], output)
    refuse_summary(output, [target])
    replaced = _replaced(job, table, frame.columns, on)
    refuse_read_columns(on, output)
    (table,) = refuse_columns([table], output)

    matched = _matched(job, table, other, frame, on, target)
    refuse_changed([other])
    matched = replace(matched, frame=matched.frame.with_columns(_addable(series, target) for series in matched.frame))
    facts = Added(
        version=VERSION,
        inputs=[table.name],
        from_=job.columns if isinstance(job.columns, str) else "frame",
        schema=table.schema.name if table.schema else None,
        rows=len(matched.frame),
        columns={series.name: str(series.dtype).lower() for series in matched.frame},
        replaced=replaced,
        joined=matched.joined,
        outputs=[target.name],
        warnings=[*_lost(matched.frame, target)],
        seconds=time.perf_counter() - started,
    )
    if job.gate is not None:
        job.gate.check(facts, written=Written())

    weaving = Weaving(added=matched.frame, replace=output.replace)
    writing = Writing(table, target, matched.scanned.index, weaving, 0)
    phase("writing", 0, None)
    make_folders([target])
    expect(len(paths_of([target])))
    notes = in_turn(output, [target], iter([writing]), phase)
    seconds = round(time.perf_counter() - started, 3)
    return replace(facts, warnings=[*facts.warnings, *notes], seconds=seconds)


def _only(name: str) -> Input:
    """The only input with this name."""
    inputs, _ = find_inputs([name])
    if len(inputs) > 1:
        raise UsageError(f"{name} matches {len(inputs)} files", "name one of them")
    return inputs[0]


def _opened(source: Input, job: Job) -> FileTable:
    """The file with one row per rollout, as `compute` reads it; one per record if it has no rewards."""
    source = registry.as_text(replace(source, max_line=job.max_line))
    records = FileTable(source, registry.of(source))
    if job.schema == NONE:
        return records
    try:
        return recognise([records], Binding(schema=job.schema))[0]
    except NoRewards:
        return records


def _read(job: Job) -> tuple[Table, pl.DataFrame]:
    """The table that has the columns to add, and all of it."""
    columns = job.columns
    if isinstance(columns, FrameReader):
        return Table(FRAME, columns), columns.take(list(columns.names), None)
    source = registry.as_text(replace(_only(columns), max_line=job.max_line))
    kind = registry.of(source)
    strict = replace(kind, strict=True) if isinstance(kind, InCells) else kind
    return FileTable(source, kind), strict.read(source)


def _to_add(job: Job, other: Table, every: pl.DataFrame, on: Mapping[str, str]) -> pl.DataFrame:
    """The columns to add, by their new names: the chosen ones, or all but the key. `every` are all columns of the other table."""
    others = [name for name in every.columns if name not in on.values()]
    names = _chosen(every.columns, job.chosen or others)
    if other.format.record == "object":
        _refuse_changed_values(other, every, names.values())
    return pl.DataFrame([every[name].alias(new) for new, name in names.items()])


def _replaced(job: Job, table: FileTable, names: Sequence[str], on: Mapping[str, str]) -> list[str]:
    """Those of the new columns that the file has already. If it has only some, and nobody chose them, it is an error."""
    there = {*table.columns()} - table.format.outer_columns(table.source)
    free = [name for name in names if name not in there]
    taken = [name for name in names if name in there]
    if free and taken and not (job.chosen or job.output.replace):
        without: Cure = f"{' '.join(f'--column {name}' for name in free)} leaves it out"
        if len(free) == 1:
            without = Way("--column", free[0], "leaves it out")
        cures: list[Cure] = [without, Way("--replace", why="overwrites it")]
        if not on and taken[0] in (*known_ids(table.schema), *GROUP_TIERS[0]):
            cures.insert(0, f"--on {taken[0]!r} matches rows by it")
        raise DataError(f"{table.name} already has a column {taken[0]!r}", cures)
    return taken


def _matched(
    job: Job, table: FileTable, other: Table, frame: pl.DataFrame, on: Mapping[str, str], target: Target
) -> Matched:
    """The columns in the order of the file's rows, matched by key or by position."""
    if not other.typed and (target.format.record != "texts" or job.take == "mean"):
        frame = frame.with_columns(map(_typed, frame))
    if on:
        return joined(table, other, on, frame, job.take)
    return Matched(frame, _same_rows(table, other, frame, checked=not job.by_position), None)


def _same_rows(table: FileTable, other: Table, frame: pl.DataFrame, *, checked: bool) -> Scanned:
    """The rows of the file if it has as many as the columns; `checked`: and if no ids contradict that row i is row i."""
    height = table.row_count
    scanned = table.scan([]) if height is None else Scanned(pl.DataFrame(height=height))
    if len(frame) != len(scanned.frame):
        rows = f"{table.name} has {len(scanned.frame):,} rows, the columns to add have {len(frame):,}"
        values = f"give a value for each row of {table.name}, or a key of both with --on COL"
        cure = f"rows are matched by position: {values}"
        if table.schema is not None:
            cure = f"a row is a rollout of a {table.schema.title}: --schema none counts records"
        raise DataError(rows, cure)
    if checked:
        _refuse_other_ids(table, other, frame.columns)
    return scanned


def _refuse_other_ids(table: FileTable, other: Table, added: Sequence[str]) -> None:
    """Refuse columns whose row i is that of another row: an id that both inputs have says so."""
    for name in (*known_ids(table.schema), *GROUP_TIERS[0]):
        if name in added or not (has(table, name) and has(other, name)):
            continue
        with suppress(Absent):  # an object without it
            here, there = (side.scan([Field(name, "key")]).frame[name] for side in (table, other))
            here, there = comparable(here, there, (table.typed, other.typed))
            if name in GROUP_TIERS[0] and not here.is_in(there.unique().implode()).any():  # names of other prompts
                continue
            if wrong := here.ne_missing(there).sum():
                rows = f"{name} differs from {table.name} in {wrong:,} of {len(here):,} rows"
                cures = f"--on {name!r} matches rows by it", Way("--by-position", why="adds row i to row i")
                raise DataError(rows, cures, place=other.name)
            if here.is_unique().all():  # then other ids may be numbers of their own
                return


@nameless
def _typed(texts: pl.Series) -> pl.Series:
    """Texts as booleans or numbers if all of them are; integers that would lose digits stay texts."""
    there = texts.drop_nulls()
    if there.is_empty():
        return texts
    if there.is_in(_TRUTHS).all():
        return texts.replace_strict(_TRUTHS, default=None, return_dtype=pl.Boolean)
    if there.str.contains(f"^{WHOLE}$").all():
        ways = (texts.cast(dtype, strict=False) for dtype in (pl.Int64, pl.UInt64))
        return next((way for way in ways if way.null_count() == texts.null_count()), texts)
    whole = there.filter(there.str.contains(f"^{WHOLE}$")).cast(pl.Float64)
    exact = (whole.abs() < 2.0**53).all()
    if not exact or not there.str.contains(NUMBER).all():
        return texts
    mantissas = there.str.replace("[eE].*", "").str.replace(".", "", literal=True)
    digits = mantissas.str.strip_chars_start("-0").str.strip_chars_end("0")
    numbers = there.cast(pl.Float64)
    too_large = numbers.is_infinite() & ~there.str.contains("inf")
    lost = (digits.str.len_bytes() > _DIGITS) | too_large
    return texts if lost.any() else texts.cast(pl.Float64)


def _refuse_changed_values(other: Table, frame: pl.DataFrame, names: Iterable[str]) -> None:
    """Refuse columns of texts that stand for other values: those without a common type, or half of a surrogate pair."""
    for name in names:
        if frame[name].dtype != pl.String:
            continue
        key = other.scan([Field(name, "key")]).frame[name]
        if key.dtype != JSON_TEXT:  # all of its values are texts
            continue
        contents = Contents()
        for row, text in enumerate(key):
            contents.add(Contents.of([text and json.loads(text)]))
            if contents.type() is None:
                wrong = f"{name} is {short(text)}, which cannot be added as it is"
                raise DataError(wrong, _ONE_KIND, place=other.place(row))


def _chosen(columns: Sequence[str], chosen: Sequence[str]) -> dict[str, str]:
    """The columns to add, by their new names."""
    new = {}
    for text in chosen:
        name, _, other = (text, "", "") if text in columns else text.partition("=")
        other = other or name
        if name not in columns:
            raise UnknownName.among("column", name, columns)
        if other in new:
            raise UsageError(
                f"two columns would be {other!r}", Way("--column", why="gives another name", fill="NAME=NEW")
            )
        new[other] = name
    if not new:
        raise DataError("there is no column to add", "--from takes a file with columns")
    return new


def _addable(series: pl.Series, target: Target) -> pl.Series:
    """The column in a type that every format supports; DataError if there is none."""
    dtype = series.dtype
    if isinstance(dtype, (pl.Categorical, pl.Enum, pl.Null)):
        return series.cast(pl.String)
    if isinstance(dtype, pl.Array):
        series = series.arr.to_list()
    if series.dtype == pl.List(pl.Null):
        series = series.cast(pl.List(pl.Float64))
    inner = series.dtype.inner if isinstance(series.dtype, pl.List) else series.dtype
    is_number = inner.is_float() or (inner.is_integer() and inner not in {pl.Int128, pl.UInt128})
    is_plain = inner in {pl.String, pl.Boolean} and inner == dtype
    if not (is_number or is_plain):
        raise DataError(f"{series.name} is {str(dtype).lower()}, which cannot be added", _TAKES)
    if isinstance(series.dtype, pl.List) and target.format.record == "texts":
        cure = "give -o FILE.jsonl or FILE.parquet"
        raise UsageError(f"{target.format.name} cannot hold lists, as in {series.name}", cure, place=target.name)
    return series


def _lost(frame: pl.DataFrame, target: Target) -> Iterator[str]:
    """Warnings about values that JSON does not have."""
    for series in frame if target.format.name.startswith("json") else ():
        values = (series.explode() if isinstance(series.dtype, pl.List) else series).alias("")
        if values.dtype.is_float():
            count = (~values.is_finite()).sum()
            if count:
                yield f"{count:,} values of {series.name} are NaN or infinite; JSON writes them as null"


# --- by key --------------------------------------------------------------------------------------------


def keys_of(texts: Sequence[str], table: Table, other: Table) -> dict[str, str]:
    """The key columns of a file, each with that of the other table: of `COL`, or of `HERE=THERE`.

    A name that the tables do not have is refused, unless later lines may have it.
    """
    on: dict[str, str] = {}
    for text in (name for item in texts for name in items(item) if name):
        here, _, there = (text, "", "") if text in table.columns() else text.partition("=")
        there = there or here
        for side, name in ((table, here), (other, there)):
            if not has(side, name) and (near_names(name, side.columns()) or side.format.record != "object"):
                raise absent(name, side.name, side.columns())
        if on.setdefault(here, there) != there:
            raise UsageError(f"--on matches {here!r} with {on[here]!r} and {there!r}", "name one of them")
    if texts and not any(on):
        raise UsageError("--on names no column", ["give the columns of the key", "leave it out"])
    return on


def has(table: Table, name: str) -> bool:
    """Whether a table has this column, or one that a path begins with."""
    return any(head in table.columns() for head, _ in ((name, ""), *splits(name)))


def joined(table: Table, other: Table, on: Mapping[str, str], frame: pl.DataFrame, take: Take | None) -> Matched:
    """The rows of `frame`, which are those of the other table, in the order of the file."""
    scanned = table.scan([Field(name, "key") for name in on])
    fields = [Field(name, "key") for name in dict.fromkeys(on.values())]
    theirs = other.scan(fields).frame
    InputChanged.unless_same(len(frame), len(theirs), other.name)
    typed = (table.typed, other.typed)
    keyed = Keyed.of(scanned.frame.get_columns(), [theirs[name] for name in on.values()], typed)
    mine, yours = keyed.counts
    repeated = (mine > 0) & (yours > 1)
    if repeated.any() and take is None:
        what = f"{' and '.join(on.values())} is the same in several rows of {other.name}"
        one = Way("--take", why="takes one value of each", fill="first|last|mean")
        unclear = np.flatnonzero(repeated)
        raise several(
            what,
            unclear,
            [(keyed.theirs, other.places)],
            lambda _, row: label(theirs, row, row),
            [one, "more columns in --on tell them apart"],
        )
    used = np.append(mine > 0, False)[keyed.theirs]
    if take == "mean":
        frame, keyed = _means(frame, keyed)
    places = keyed.places(last=take != "first")
    there = places != NOWHERE
    matched = int(there.sum())
    rows = len(places)
    if rows and not matched:
        by = " and ".join(here if here == there else f"{here}={there}" for here, there in on.items())
        raise DataError(f"no row of {table.name} is in {other.name} (by {by})", _OTHER_KEYS)
    unmatched = rows - matched
    unused = len(used) - int(used.sum())
    facts = Joined(
        on=on,
        take=take,
        rows=rows,
        matched=matched,
        unmatched=unmatched,
        unmatched_share=unmatched / max(rows, 1),
        unused=unused,
        unused_share=unused / max(len(used), 1),
        repeated=int(repeated.sum()),
    )
    return Matched(gathered(frame, places), scanned, facts)


def _means(frame: pl.DataFrame, keyed: Keyed) -> tuple[pl.DataFrame, Keyed]:
    """The mean of the rows with each key, and the keys of these means."""
    for series in frame:
        if not series.dtype.is_numeric():
            raise DataError(
                f"{series.name} is {str(series.dtype).lower()}, which has no mean", Way("--take", fill="first|last")
            )
        if series.dtype.is_integer() and int(series.abs().max() or 0) > _EXACT:  # type: ignore[arg-type]
            raise DataError(f"a mean would round the integers of {series.name}", Way("--take", fill="first|last"))
    by_key = frame.group_by(pl.lit(pl.Series(_KEY, keyed.theirs)), maintain_order=True)
    key, *means = by_key.mean()
    return pl.DataFrame(means), Keyed(keyed.mine, key.to_numpy(), keyed.size)
