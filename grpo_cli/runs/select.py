"""`select` over files: inputs, tables, rows with groups, the groups and rows that are kept, and files with those rows."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import Segments
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UnknownName, UsageError
from grpo_cli.files.atomic import directories_synced
from grpo_cli.files.compression import is_packed
from grpo_cli.files.inputs import MAX_LINE
from grpo_cli.formats.convert import convert
from grpo_cli.formats.interface import PartOfRecord, Weaving
from grpo_cli.read.open_tables import find_inputs, open_tables, skipped_warnings
from grpo_cli.read.tables import Binding
from grpo_cli.schemas.table import words
from grpo_cli.stats import facts
from grpo_cli.stats.difficulty import pass_at
from grpo_cli.stats.inspection import View, learned_from, score_groups
from grpo_cli.write.outputs import Output, choose_targets, identities, refuse_summary
from grpo_cli.write.weave import make_folders, one_of_several, sink

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from grpo_cli.engine.group_stats import Mask
    from grpo_cli.engine.moments import Codes, Index, Vector
    from grpo_cli.options.conditions import Filter
    from grpo_cli.read.tables import FileTable
    from grpo_cli.stats.inspection import Inspection
    from grpo_cli.write.outputs import Target

VERSION: Final = 1
FACTS: Final = (
    "size", "scored", "unscorable", "mean", "std", "min", "max", "spread", "solve_rate", "constant", "nearly", "length",
)  # fmt: skip

Pick = Literal["best", "worst", "spread", "random"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which groups are kept, and how many of their rows."""

    where: Filter | None = None
    solved_at: float | None = None  # of pass@K; None: the best reward that there is
    top: int | None = None
    by: str = "std"  # what --top goes by; -FACT takes the smallest
    top_p: float | None = None  # the share of the variance inside groups that is kept
    limit: int | None = None
    per_group: int | None = None
    pick: Pick = "spread"
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("limit", self.limit), ("per-group", self.per_group), ("top", self.top)):
            if value is not None and value < 1:
                raise UsageError(f"--{name} cannot be {value}", "it takes 1 or more")
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"--seed cannot be {self.seed}", "it takes 0 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"--top-p cannot be {self.top_p}", "it takes a share above 0, up to 1")
        if self.by != "std" and self.top is None:
            raise UsageError("--by says what --top goes by", "add --top N")
        if all(one is None for one in (self.where, self.limit, self.per_group, self.top, self.top_p)):
            raise UsageError(
                "nothing says what to keep", "give --where CONDITION, --top N, --top-p P, --per-group N or --limit N"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to read, what to keep of it, and where to write that."""

    inputs: Sequence[str]
    choice: Choice
    plan: Plan = field(default_factory=Plan)
    binding: Binding = field(default_factory=Binding)
    length: str | None = None  # the column of lengths, None: found by name
    output: Output = field(default_factory=Output)
    summary: Path | None = None
    silent: bool = False  # warnings are shown to nobody
    skip_broken: bool = False  # lines that are no JSON objects are left out
    max_line: int = MAX_LINE  # bytes


def run(job: Job, phase: Callable[..., None] = lambda *_: None) -> dict[str, Any]:
    """Write the rows that are kept; the facts say why the others are not."""
    started = time.perf_counter()
    phase("reading")
    inputs, skipped = find_inputs(job.inputs)
    tables = open_tables(inputs, job.binding, skip_broken=job.skip_broken, max_line=job.max_line)
    targets = choose_targets(tables, job.output)
    if job.summary is not None:
        outputs = [target.path for target in targets]
        refuse_summary(job.summary, identities(tables), outputs, force=job.output.force)

    groups = score_groups(tables, job.binding, job.plan, View(length=job.length), warn=not job.silent)
    chosen = choose(groups, job.choice)

    phase("writing")
    notes = _write(tables, chosen, targets, force=job.output.force)
    return {
        "inputs": [table.name for table in tables],
        **chosen.facts,
        "outputs": [target.name for target in targets],
        "warnings": [*chosen.facts["warnings"], *skipped_warnings(skipped), *notes],
        "seconds": round(time.perf_counter() - started, 3),
    }


# --- which groups and rows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The rows of the input that are kept, in their order, and the facts of the choice."""

    rows: Index
    lengths: tuple[int, ...]  # rows of each input
    facts: dict[str, Any]


def choose(inspection: Inspection, choice: Choice) -> Chosen:
    """Keep the groups for which the condition holds, at most so many of them, and at most so many rows of each."""
    narrow, groups = inspection.narrow, inspection.groups
    kept_groups, dropped = choose_groups(inspection, choice)
    codes = narrow.table["group"].to_numpy()
    rows, kept = kept_groups[codes], kept_groups
    share = facts.zero_variance(groups.filter(kept_groups))["share"]
    if choice.per_group is not None:
        rewards = inspection.raw.rows[".reward"].fill_null(float("nan")).to_numpy()
        picked = rows & pick_rows(codes, rewards, choice.per_group, choice.pick, choice.seed or 0)
        count = int((rows & ~picked).sum())
        dropped.append({"reason": f"--per-group {choice.per_group} ({choice.pick})", "rows": count})
        rows = picked
        kept = np.zeros(len(groups), dtype=bool)
        kept[codes[rows]] = True
        share = _constant_share(codes[rows], learned_from(inspection).filter(pl.Series(rows)), len(groups))
    if narrow.rows is not None:
        dropped.append({"reason": "the last block is not whole", "rows": sum(narrow.lengths) - len(codes)})
    places = np.flatnonzero(rows) if narrow.rows is None else narrow.rows[rows]
    return Chosen(
        rows=places,
        lengths=narrow.lengths,
        facts={
            "version": VERSION,
            "where": choice.where.text if choice.where else None,
            "seed": choice.seed,
            "rows": sum(narrow.lengths),
            "kept_rows": len(places),
            "groups": len(groups),
            "kept_groups": int(kept.sum()),
            "group_key": list(narrow.key_words),
            "reward_columns": list(narrow.reward_names),
            "map": dict(narrow.outcomes),
            "schema": narrow.schema,
            "notes": list(narrow.notes),
            "zero_variance_share": facts.zero_variance(groups)["share"],
            "kept_zero_variance_share": share,
            "dropped": dropped,
            "warnings": [*narrow.warnings, *([] if len(places) else ["no row is left"])],
        },
    )


def _constant_share(codes: Codes, compared: pl.Series, groups: int) -> float | None:
    """Of the groups with two rewards to compare, how many have equal ones; of the rows that are left."""
    known = compared.is_not_null()
    codes, rewards = codes[known.to_numpy()], compared.filter(known).to_numpy()
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(low, codes, rewards)
    np.maximum.at(high, codes, rewards)
    two = np.bincount(codes, minlength=groups) > 1
    return float((low == high)[two].mean()) if two.any() else None


def _quantities(inspection: Inspection, choice: Choice) -> pl.DataFrame:
    """What a condition may speak of: the facts of a group, pass@K where it is named, and its key."""
    groups = inspection.groups.with_columns(
        unscorable=pl.col("size") - pl.col("scored"), spread=pl.col("max") - pl.col("min")
    ).with_columns(pl.col("constant", "nearly").cast(pl.Int8))
    quantities = groups.select([name for name in FACTS if name in groups.columns]).with_columns(
        pl.selectors.float().fill_nan(None)
    )
    narrow = inspection.narrow
    keys = [one.alias(words(one.name)) for one in narrow.key.get_columns() if not one.dtype.is_nested()]
    keys = [one for one in keys if one.name not in FACTS]
    named = [*(choice.where.names if choice.where else ()), choice.by.removeprefix("-").replace("pass@", "pass_at_")]
    draws = {int(name[8:]) for name in named if re.fullmatch(r"pass_at_[1-9]\d*", name)}
    return quantities.with_columns(
        *(key.cast(pl.String) if isinstance(key.dtype, pl.Categorical) else key for key in keys),
        *(_passes(inspection, choice.solved_at, draws) if draws else ()),
    )


def _passes(inspection: Inspection, solved_at: float | None, draws: Collection[int]) -> Iterator[pl.Series]:
    """pass@K of each group, for each K."""
    rewards = inspection.raw.rows[".reward"].fill_null(float("nan")).to_numpy()
    scored = np.isfinite(rewards)
    bar = solved_at if solved_at is not None else rewards[scored].max(initial=-np.inf)
    codes = inspection.narrow.table["group"].to_numpy()
    height = len(inspection.groups)
    n, solved = np.bincount(codes[scored], minlength=height), np.bincount(codes[rewards >= bar], minlength=height)
    for k in sorted(draws):
        if n.max() < k:
            raise DataError(f"no group has {k} scored rows for pass@{k}", f"the largest group has {n.max()}")
        yield pl.Series(f"pass_at_{k}", pass_at(n.tolist(), solved.tolist(), k), dtype=pl.Float64)


def choose_groups(inspection: Inspection, choice: Choice) -> tuple[Mask, list[dict[str, Any]]]:
    """The groups that are kept, and what each reason has dropped: conditions, --top-p, --top and --limit, in this order."""
    quantities = _quantities(inspection, choice)
    numbers = np.zeros(len(quantities), dtype=np.int64)  # of each group 0 or the number of the first reason to drop it
    reasons: list[str] = []

    def drop(groups: Index | Mask, reason: str) -> None:
        reasons.append(reason)
        numbers[groups] = len(reasons)

    for part in choice.where.parts if choice.where else ():
        drop((numbers == 0) & ~_holds(quantities, part), f"{part.text} is false")
    if choice.top_p is not None:
        left = np.flatnonzero(numbers == 0)
        drop(left[_beyond_share(quantities[left], choice.top_p)], f"--top-p {choice.top_p:g}")
    left = np.flatnonzero(numbers == 0)
    if choice.top is not None and len(left) > choice.top:
        drop(
            left[_descending(quantities, choice.by)[left].argsort(kind="stable")[choice.top :]],
            f"--top {choice.top} --by {choice.by}",
        )
    left = np.flatnonzero(numbers == 0)
    if choice.limit is not None and len(left) > choice.limit:
        random = choice.seed is not None
        order = np.random.default_rng(choice.seed).permutation(len(left)) if random else np.arange(len(left))
        drop(left[order[choice.limit :]], f"--limit {choice.limit}")
    return numbers == 0, _dropped(inspection, numbers, reasons)


def _descending(quantities: pl.DataFrame, by: str) -> Vector:
    """Numbers by which groups are sorted, the largest fact (of -FACT the smallest) first and groups without it last."""
    name = by.removeprefix("-").replace("pass@", "pass_at_")
    if name not in quantities.columns or not quantities[name].dtype.is_numeric():
        numeric = [one.name for one in quantities if one.dtype.is_numeric()]
        raise _unknown_fact(by.removeprefix("-").strip(), numeric)
    values = quantities[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return np.where(np.isnan(values), np.inf, values if by.startswith("-") else -values)


def _beyond_share(quantities: pl.DataFrame, share: float) -> Index:
    """The groups beyond the fewest that hold a share of all squared distances from a group's mean."""
    squares = ((quantities["scored"] - 1) * quantities["std"] ** 2).fill_null(0.0).fill_nan(0.0).to_numpy()
    order = np.argsort(-squares, kind="stable")
    held = np.cumsum(squares[order])
    enough = int(np.searchsorted(held, share * held[-1] * (1 - 1e-12))) + 1 if len(held) and held[-1] > 0 else 0
    return order[enough:]


def _holds(quantities: pl.DataFrame, part: Filter) -> Mask:
    """For which groups a condition holds."""
    for name in part.names:
        if name not in quantities.columns:
            raise _unknown_fact(name, quantities.columns)
    try:
        holds = quantities.with_columns(part.expression().alias(".holds"))[".holds"]
    except pl.exceptions.PolarsError:
        types = ", ".join(
            f"{name} is a {'number' if quantities.schema[name].is_numeric() else 'text'}" for name in part.names
        )
        raise UsageError(f"{part.text!r} compares what cannot be compared", types) from None
    return np.asarray(holds.to_numpy(), dtype=bool)


def _unknown_fact(name: str, known: Sequence[str]) -> UnknownName:
    """The error for a name that is no fact, with the one that may be meant."""
    draws = re.fullmatch(r"p(?:ass)?[_@]?(?:at)?_?(\d+)", name, re.IGNORECASE)
    if draws is not None:
        shown = name.replace("pass_at_", "pass@")
        return UnknownName(f"no fact of a group named {shown!r}", f"did you mean 'pass@{int(draws[1]) or 1}'?")
    if "reward" in name.lower():
        return UnknownName(
            f"no fact of a group named {name!r}", "of its rewards there are mean, std, min, max and spread"
        )
    listed = [*(one for one in known if not one.startswith("pass_at_")), "pass@K"]
    return UnknownName.among("fact of a group", name, listed)


def _dropped(inspection: Inspection, numbers: Index, reasons: Sequence[str]) -> list[dict[str, Any]]:
    """What each reason has dropped, and the first keys of it."""
    sizes = inspection.groups["size"].to_numpy()
    listed = []
    for number, reason in enumerate(reasons, 1):
        codes = np.flatnonzero(numbers == number)
        if len(codes):
            keys = [inspection.narrow.label(int(code)) for code in codes[: facts.LISTED]]
            listed.append({"reason": reason, "groups": len(codes), "rows": int(sizes[codes].sum()), "keys": keys})
    return listed


def pick_rows(codes: Codes, rewards: Vector, most: int, how: Pick, seed: int) -> Mask:
    """Mark at most so many rows of each group; rows whose reward is not finite are never among them.

    Of equal rewards the earlier row is taken (`spread` takes from both ends). The same seed gives the same rows.
    """
    finite = np.flatnonzero(np.isfinite(rewards))
    chosen = np.zeros(len(codes), dtype=bool)
    if not len(finite):
        return chosen
    codes, rewards, most = codes[finite], rewards[finite], min(most, len(finite))
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
    from_top = np.zeros(len(segments.sizes), dtype=np.int64)
    large = np.flatnonzero(segments.sizes > most)
    if not len(large):  # all rows of all groups are kept, however many may be
        return from_top
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
    from_top[large] = share
    return from_top


def _running(values: Vector, first: Index, step: int, most: int) -> tuple[list[Vector], list[Vector]]:
    """Sums and sums of squares of the first 0, 1, ... rows from an end of each group."""
    sums, squares = [np.zeros(len(first))], [np.zeros(len(first))]
    for i in range(most):
        value = values[first + step * i]
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)
    return sums, squares


# --- writing -----------------------------------------------------------------------------------------------


def _write(tables: Sequence[FileTable], chosen: Chosen, targets: Sequence[Target], *, force: bool) -> list[str]:
    """Write each input's part of the rows, and return what there is to say of it."""
    for table in tables:
        table.source.check()
    make_folders(targets)
    notes: list[str] = []
    start = 0
    with directories_synced() as folders:
        for at, (table, target, length) in enumerate(zip(tables, targets, chosen.lengths, strict=True)):
            rows = chosen.rows[slice(*np.searchsorted(chosen.rows, [start, start + length]))] - start
            same = target.format.same_as(table.format)
            empty = any(table.source.empty_records) and not (same and table.format.keeps_empty_records)
            if empty:
                notes.append(f"{table.name}: no record without rollouts is written")
            # All rows are the file.
            whole = same and len(rows) == length and not empty and is_packed(table.source) == bool(target.packing)
            to = replace(target, packing="") if whole else target
            with one_of_several(at, len(targets)), sink(to, force=force, folders=folders) as handle:
                if whole:
                    with table.source.open() as source:
                        shutil.copyfileobj(source, handle)
                else:
                    notes += _write_rows(table, target, rows, handle)
                table.source.check()
            start += length
    return notes


def _write_rows(table: FileTable, target: Target, rows: Index, handle: BinaryIO) -> Sequence[str]:
    """Rows as their file has them, or one row each where a record cannot be divided."""
    weaving = Weaving(added=pl.DataFrame(height=len(rows)), take=rows, replace=False, metadata={})
    notes: Sequence[str] = ()
    if target.format.same_as(table.format):
        try:
            return table.format.weave(table.source, handle, weaving)
        except PartOfRecord:
            notes = [f"{table.name}: of some records not all rows are kept, so they are written as one row each"]
    convert(table.source, table.format, handle, target.format, weaving, long=True)
    return notes
