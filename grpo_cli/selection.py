"""Choosing groups by their facts, and rows inside them; what is written are the rows as they stand in the file."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli import facts, formats
from grpo_cli.errors import DataError, UnknownName, UsageError
from grpo_cli.formats import Weaving
from grpo_cli.io.local import PACKED
from grpo_cli.io.packed import is_packed
from grpo_cli.picks import picked
from grpo_cli.weaving import sink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.filters import Filter
    from grpo_cli.inspection import Inspection
    from grpo_cli.narrow import FileTable
    from grpo_cli.outputs import Target
    from grpo_cli.picks import Pick

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
        rewards = found.seen.rows[".reward"].fill_null(float("nan")).to_numpy()
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
            "kept_zero_variance_share": _constant_share(found.seen.rows.filter(pl.Series(rows))),
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
    for table, aim, length in zip(tables, aims, lengths, strict=True):
        if aim.path is not None:
            aim.path.parent.mkdir(parents=True, exist_ok=True)
        with sink(aim, force=force) as handle:
            notes += _write_one(table, aim, rows[(rows >= start) & (rows < start + length)] - start, length, handle)
            table.source.check()
        start += length
    return notes


def _write_one(table: FileTable, aim: Target, rows: Rows, length: int, handle: Any) -> Sequence[str]:
    """Rows as their file has them; all of them are the file."""
    same, packed = aim.format.name == table.format.name, aim.format.suffixes[0].endswith(PACKED)
    if not same:
        whole = table.format.read if table.format.long is None else table.format.long
        aim.format.write(whole(table.source)[pl.Series(rows)], handle, {})
    elif len(rows) == length and is_packed(table.source) == packed:
        with table.source.open() as source:
            shutil.copyfileobj(source, handle)
    elif table.format.packed is None:
        return aim.format.weave(table.source, handle, _of_rows(rows))
    else:
        return _records(table, aim, rows, handle)
    return ()


def _of_rows(rows: Rows) -> Weaving:
    return Weaving(added=pl.DataFrame(height=len(rows)), take=rows, replace=False, metadata={})


def _records(table: FileTable, aim: Target, rows: Rows, handle: Any) -> Sequence[str]:
    """Records that hold several rows stay as they are where all of their rows stay."""
    packed, long = table.format.packed, table.format.long
    try:
        records = None if packed is None else packed(table.source, _of_rows(rows)).take
    except DataError:
        records = None
    if records is not None:
        plain = formats.FORMATS[table.format.name] if aim.path is None else formats.of(str(aim.path))
        return plain.weave(table.source, handle, _of_rows(records))
    if long is None:
        raise DataError(f"{table.name}: a record holds rows that stay and rows that go", "leave out --per-group")
    aim.format.write(long(table.source)[pl.Series(rows)], handle, {})
    return [f"{table.name}: of some records not all rows are kept, so they are written as one row each"]


def summary_of(chosen: Chosen, aims: Sequence[Target], notes: Sequence[str]) -> Mapping[str, Any]:
    """The facts with what was written."""
    outputs = [aim.name for aim in aims]
    return {**chosen.facts, "outputs": outputs, "warnings": [*chosen.facts["warnings"], *notes]}
