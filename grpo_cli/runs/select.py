"""`select` for files: from options to files with fewer rows."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Segments
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.files.atomic import directories_synced
from grpo_cli.files.compression import is_packed
from grpo_cli.formats.convert import convert
from grpo_cli.formats.interface import PartOfRecord, Weaving
from grpo_cli.options.conditions import Filter
from grpo_cli.options.resolve import binding_fields, settings
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding, FileTable
from grpo_cli.runs.inspect import of_skipped
from grpo_cli.stats import facts
from grpo_cli.stats.inspection import View, score_groups
from grpo_cli.write.outputs import Output, refuse_summary, targets
from grpo_cli.write.weave import sink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grpo_cli.engine.group_stats import Mask
    from grpo_cli.engine.moments import Codes, Index, Vector
    from grpo_cli.read.tables import Table
    from grpo_cli.stats.inspection import Inspection
    from grpo_cli.write.outputs import Target


Pick = Literal["best", "worst", "spread", "random"]


def picked(codes: Codes, rewards: Vector, most: int, how: Pick, seed: int) -> Mask:
    """Mark at most so many rows of each group; rows whose reward is not finite are never among them.

    Of equal rewards the earlier row is taken (`spread` takes from both ends). The same seed gives the same rows.
    """
    finite = np.flatnonzero(np.isfinite(rewards))
    chosen = np.zeros(len(codes), dtype=bool)
    if not len(finite):
        return chosen
    codes, rewards = codes[finite], rewards[finite]
    by = {"best": -rewards, "worst": rewards, "spread": rewards}.get(how)
    if by is None:
        by = np.random.default_rng(seed).random(len(finite))
    order = np.lexsort((by, codes))
    segments, _ = Segments.of(codes[order])
    place = np.arange(len(order)) - np.repeat(segments.starts, segments.sizes)
    if how == "spread":
        top = np.repeat(_from_the_top(segments, rewards[order], most), segments.sizes)
        kept = (place < most - top) | (place >= np.repeat(segments.sizes, segments.sizes) - top)
    else:
        kept = place < most
    chosen[finite[order[kept]]] = True
    return chosen


def _from_the_top(segments: Segments, ordered: Vector, most: int) -> Index:
    """How many of the kept rows come from the top of each group, the rest from its bottom.

    The largest variance that so many rows of a group can have is reached at its two ends; every division between them
    is tried, the even one first.
    """
    large = np.flatnonzero(segments.sizes > most)
    starts, ends = segments.starts[large], segments.starts[large] + segments.sizes[large]
    away = ordered - segments.spread(ordered[segments.starts])  # an offset that all share costs no digits
    bottom, top = _running(away, starts, 1, most), _running(away, ends - 1, -1, most)
    best = np.full(len(large), -1.0)
    share = np.full(len(large), most // 2)
    for k in sorted(range(most + 1), key=lambda k: (abs(2 * k - most), k)):
        total = bottom[0][most - k] + top[0][k]
        variance = bottom[1][most - k] + top[1][k] - total * total / most
        better = variance > best + 1e-12 * np.abs(best)
        best, share = np.where(better, variance, best), np.where(better, k, share)
    found = np.zeros(len(segments.sizes), dtype=np.int64)
    found[large] = share
    return found


def _running(values: Vector, first: Index, step: int, most: int) -> tuple[list[Vector], list[Vector]]:
    """Sums and sums of squares of the first 0, 1, ... rows from an end of each group."""
    sums, squares = [np.zeros(len(first))], [np.zeros(len(first))]
    for i in range(most):
        value = values[first + step * i]
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)
    return sums, squares


VERSION: Final = 1
FACTS: Final = (
    "size", "scored", "unscorable", "mean", "std", "min", "max", "spread", "solve_rate", "constant", "nearly", "length",
)  # fmt: skip

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which groups stay, and how many of their rows."""

    where: Filter | None = None
    limit: int | None = None
    per_group: int | None = None
    pick: Pick = "spread"
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("limit", self.limit), ("per-group", self.per_group)):
            if value is not None and value < 1:
                raise UsageError(f"--{name} cannot be {value}", "it takes 1 or more")
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"--seed cannot be {self.seed}", "it takes 0 or more")
        if self.where is None and self.limit is None and self.per_group is None:
            raise UsageError("nothing says what to keep", "give --where CONDITION, --per-group N or --limit N")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The rows of the input that stay, in their order, and what is to be said of them."""

    rows: Rows
    lengths: tuple[int, ...]  # rows of each input
    facts: dict[str, Any]


def choose(found: Inspection, wanted: Wanted) -> Chosen:
    """Keep the groups for which the condition holds, at most so many of them, and at most so many rows of each."""
    narrow, groups = found.narrow, found.groups
    told, reasons = _judged(_quantities(found), wanted)
    codes = narrow.table["group"].to_numpy()
    rows = (told == 0)[codes]
    lost = []
    if wanted.per_group is not None:
        rewards = found.raw.rows[".reward"].fill_null(float("nan")).to_numpy()
        mine = rows & picked(codes, rewards, wanted.per_group, wanted.pick, wanted.seed or 0)
        lost.append({"reason": f"--per-group {wanted.per_group} ({wanted.pick})", "rows": int((rows & ~mine).sum())})
        rows = mine
    if narrow.rows is not None:
        lost.append({"reason": "the last block is not whole", "rows": sum(narrow.lengths) - len(codes)})
    places = np.flatnonzero(rows) if narrow.rows is None else narrow.rows[rows]
    kept = np.zeros(len(groups), dtype=bool)
    kept[codes[rows]] = True
    return Chosen(
        rows=places,
        lengths=narrow.lengths,
        facts={
            "version": VERSION,
            "where": wanted.where.text if wanted.where else None,
            "seed": wanted.seed,
            "rows": sum(narrow.lengths),
            "kept_rows": len(places),
            "groups": len(groups),
            "kept_groups": int(kept.sum()),
            "group_key": list(narrow.group_names),
            "reward_columns": list(narrow.reward_names),
            "schema": narrow.schema,
            "notes": list(narrow.notes),
            "zero_variance_share": facts.zero_variance(groups)["share"],
            "kept_zero_variance_share": _constant_share(found.raw.rows.filter(pl.Series(rows))),
            "dropped": [*_dropped(found, told, reasons), *lost],
            "warnings": [*narrow.warnings, *([] if len(places) else ["no row is left"])],
        },
    )


def _constant_share(rows: pl.DataFrame) -> float | None:
    """Of the groups with two rewards to compare, how many have equal ones; of the rows that are left."""
    known = rows.filter(pl.col(".reward").is_finite())
    ends = known.group_by("group").agg(n=pl.len(), low=pl.col(".reward").min(), high=pl.col(".reward").max())
    two = ends.filter(pl.col("n") > 1)
    return int((two["low"] == two["high"]).sum()) / len(two) if len(two) else None


def _quantities(found: Inspection) -> pl.DataFrame:
    """What a condition may speak of: the facts of a group, and its key."""
    groups = found.groups.with_columns(
        unscorable=pl.col("size") - pl.col("scored"), spread=pl.col("max") - pl.col("min")
    ).with_columns(pl.col("constant", "nearly").cast(pl.Int8))
    told = groups.select([name for name in FACTS if name in groups.columns]).with_columns(
        pl.selectors.float().fill_nan(None)
    )
    keys = [one for one in found.narrow.key.get_columns() if one.name not in FACTS and not one.dtype.is_nested()]
    return told.with_columns(key.cast(pl.String) if isinstance(key.dtype, pl.Categorical) else key for key in keys)


def _judged(quantities: pl.DataFrame, wanted: Wanted) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[str]]:
    """For each group 0 or the number of the first reason why it goes; and the reasons."""
    told = np.zeros(len(quantities), dtype=np.int64)
    reasons: list[str] = []
    for part in wanted.where.parts if wanted.where else ():
        reasons.append(f"{part.text} is false")
        holds = _holding(quantities, part)
        told[(told == 0) & ~holds] = len(reasons)
    left = np.flatnonzero(told == 0)
    if wanted.limit is not None and len(left) > wanted.limit:
        reasons.append(f"--limit {wanted.limit}")
        random = wanted.seed is not None
        order = np.random.default_rng(wanted.seed).permutation(len(left)) if random else np.arange(len(left))
        told[left[order[wanted.limit :]]] = len(reasons)
    return told, reasons


def _holding(quantities: pl.DataFrame, part: Filter) -> np.ndarray[Any, np.dtype[np.bool_]]:
    for name in part.names:
        if name not in quantities.columns:
            raise UnknownName.among("fact of a group", name, quantities.columns)
    try:
        found = quantities.with_columns(part.expression().alias(".holds"))[".holds"]
    except pl.exceptions.PolarsError:
        types = ", ".join(f"{name} is {quantities.schema[name]}" for name in part.names)
        raise UsageError(f"{part.text!r} compares what cannot be compared", types) from None
    return np.asarray(found.to_numpy(), dtype=bool)


def _dropped(
    found: Inspection, told: np.ndarray[Any, np.dtype[np.int64]], reasons: Sequence[str]
) -> list[dict[str, Any]]:
    sizes = found.groups["size"].to_numpy()
    listed = []
    for number, reason in enumerate(reasons, 1):
        codes = np.flatnonzero(told == number)
        if len(codes):
            keys = [found.narrow.label(int(code)) for code in codes[: facts.LISTED]]
            listed.append({"reason": reason, "groups": len(codes), "rows": int(sizes[codes].sum()), "keys": keys})
    return listed


# --- writing -----------------------------------------------------------------------------------------------


def write(
    tables: Sequence[FileTable], lengths: Sequence[int], aims: Sequence[Target], rows: Rows, *, force: bool
) -> list[str]:
    """Write each input's part of the rows, and give what there is to say of it."""
    for table in tables:
        table.source.check()
    notes: list[str] = []
    start = 0
    with directories_synced() as folders:
        for table, aim, length in zip(tables, aims, lengths, strict=True):
            if aim.path is not None:
                aim.path.parent.mkdir(parents=True, exist_ok=True)
            here = rows[slice(*np.searchsorted(rows, [start, start + length]))] - start
            same = aim.format.same_as(table.format)
            if same and len(here) == length and is_packed(table.source) == bool(aim.packing):  # all rows are the file
                with (
                    sink(replace(aim, packing=""), force=force, folders=folders) as handle,
                    table.source.open() as source,
                ):
                    shutil.copyfileobj(source, handle)
                    table.source.check()
            else:
                with sink(aim, force=force, folders=folders) as handle:
                    notes += _write_one(table, aim, here, handle)
                    table.source.check()
            start += length
    return notes


def _write_one(table: FileTable, aim: Target, rows: Rows, handle: BinaryIO) -> Sequence[str]:
    """Rows as their file has them, or one row each where a record cannot be divided."""
    chosen = Weaving(added=pl.DataFrame(height=len(rows)), take=rows, replace=False, metadata={})
    notes: Sequence[str] = ()
    if aim.format.same_as(table.format):
        try:
            return table.format.weave(table.source, handle, chosen)
        except PartOfRecord:
            notes = [f"{table.name}: of some records not all rows are kept, so they are written as one row each"]
    convert(table.source, table.format, handle, aim.format, chosen, long=True)
    return notes


def summary_of(chosen: Chosen, aims: Sequence[Target], notes: Sequence[str]) -> Mapping[str, Any]:
    """The facts with what was written."""
    outputs = [aim.name for aim in aims]
    return {**chosen.facts, "outputs": outputs, "warnings": [*chosen.facts["warnings"], *notes]}


DIRECT = ("limit", "per_group", "pick", "seed")


def wanted_of(given: Mapping[str, Any]) -> Wanted:
    """What to keep, from options by their names."""
    where = Filter.parse(given["where"]) if "where" in given else None
    return Wanted(where=where, **{name: given[name] for name in DIRECT if name in given})


def chosen_of(tables: Sequence[Table], given: Mapping[str, Any], wanted: Wanted) -> tuple[Chosen, Sequence[Table]]:
    """Choose among the rows of tables, and give the tables as they were read."""
    view = View(length=given.get("length_column"))
    found = score_groups(tables, Binding(**binding_fields(given)), Plan.of(settings(given)), view)
    return choose(found, wanted), found.narrow.tables


def run(
    names: Sequence[str], given: Mapping[str, Any], phase: Callable[..., None] = lambda *_: None
) -> Mapping[str, Any]:
    """Write the rows that are kept, and say why the others are not."""
    started = time.perf_counter()
    wanted = wanted_of(given)
    phase("reading")
    binding = Binding(**binding_fields(given))
    inputs, skipped = find_inputs(names)
    tables = open_tables(inputs, binding, skip_broken=given.get("on_error") == "skip")
    output = Output(to=given.get("output"), force=given.get("force", False), word="selected")
    aims = targets(tables, output)
    if "summary" in given:
        refuse_summary(Path(given["summary"]), tables, aims, force=output.force)
    chosen, read = chosen_of(tables, given, wanted)
    phase("writing")
    files = [one for one in read if isinstance(one, FileTable)]
    notes = write(files, chosen.lengths, aims, chosen.rows, force=output.force)
    told = summary_of(chosen, aims, [*of_skipped(skipped), *notes])
    return {"inputs": [table.name for table in tables], **told, "seconds": round(time.perf_counter() - started, 3)}
