"""Which formula made the advantages that a file already has? Every plan is tried, and the errors tell.

Where nobody says how rows belong together, the likely ways are tried in turn, the plainest first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import untried
from grpo_cli.auditing.causes import causes
from grpo_cli.auditing.search import FAR, TOLERANCE, Close, Fit, compared, computed, searched
from grpo_cli.engine.compile import score
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import differences
from grpo_cli.errors import DataError, UnknownName
from grpo_cli.formats.interface import Field
from grpo_cli.read import build_table
from grpo_cli.read.known_names import STEP_LIKE
from grpo_cli.stats.correlations import LENGTHS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from grpo_cli.read.tables import Binding, Narrow, Table

    Floats = NDArray[np.float64]

VERSION: Final = 1
LISTED: Final = 10
PARTS: Final = (2, 4, 8)  # rounds that a key of one size only may hold
ODD: Final = 0.01  # of the rows: fewer that differ are no matter of the key
NAMES: Final = ("advantage", "advantages")
GATES: Final = ("mismatched_rows", "mismatched_groups", "max_difference", "rows", "groups", "ties")


@dataclass(frozen=True, slots=True)
class Reading:
    """The file in one of the ways that its rows may belong together."""

    narrow: Narrow
    logged: Floats
    words: str
    binding: Binding


@dataclass(frozen=True, slots=True)
class Found:
    """The best plan of one reading, and those that the data cannot tell from it."""

    reading: Reading
    fits: list[Fit]
    close: Close
    sampled: int


def audit(
    tables: Sequence[Table],
    binding: Binding,
    column: str | None,
    weights: Sequence[float] = (),
    claim: Plan | None = None,
) -> dict[str, Any]:
    """What is known of the logged advantages, as plain data."""
    name = _logged_name(tables, column)
    binding = _with_length(tables, binding)
    search = Search(tables, name, tuple(weights), claim)
    found, refusal = search.best(_bindings(tables, binding), None)
    if found is None:
        raise refusal or DataError(f"{tables[0].name}: nothing to compare", "name the key with --group")
    if found.fits[0].mismatched > ODD * len(found.reading.logged) and not binding.group:
        cut, _ = search.best(_blocks(found, binding), found)
        # Blocks that nobody spoke of are believed only where they explain every row.
        found = cut if cut is not None and not cut.fits[0].mismatched else found
    return _told(found, name, claim, weights)


@dataclass(frozen=True, slots=True)
class Search:
    """What stays the same from one way of grouping to the next."""

    tables: Sequence[Table]
    column: str
    weights: tuple[float, ...]
    claim: Plan | None
    seen: set[int] = field(default_factory=set)  # ways that rows have been put together so far

    def best(self, ways: Iterator[tuple[str, Binding]], best: Found | None) -> tuple[Found | None, DataError | None]:
        """The reading with the best formula; the first without a row that differs ends the search."""
        refusal: DataError | None = None
        for words, tried in ways:
            try:
                reading = _read(self.tables, tried, self.column, words, self.claim)
            except DataError as error:
                refusal = refusal or error
                continue
            codes = reading.narrow.table.select("group", "batch")
            if (way := hash(b"".join(column.to_numpy().tobytes() for column in codes))) in self.seen:
                continue  # one step only, for instance: the same groups and batches under another name
            self.seen.add(way)
            found = Found(reading, *searched(reading.narrow, reading.logged, self.weights, self.claim))
            if best is None or found.fits[0].rank < best.fits[0].rank:
                best = found
            if not best.fits[0].mismatched:
                break
        return best, refusal


# --- reading -----------------------------------------------------------------------------------------------


def _with_length(tables: Sequence[Table], binding: Binding) -> Binding:
    """A column that goes by the name of a length is one: formulas that weigh by tokens are tried as well."""
    names = {name for table in tables for name in table.columns()}
    known = next((name for name in LENGTHS if name in names), None)
    if known is None or "length" in binding.roles:
        return binding
    return replace(binding, roles={**binding.roles, "length": known})


def _logged_name(tables: Sequence[Table], column: str | None) -> str:
    names = list(dict.fromkeys(name for table in tables for name in table.columns()))
    if column is not None:
        if column not in names and column.partition(".")[0] not in names:
            raise UnknownName.among("column", column, names)
        return column
    found = [name for name in NAMES if name in names]
    if not found:
        raise DataError(f"{tables[0].name}: no column holds advantages", "name it with --column NAME")
    return found[0]


def _bindings(tables: Sequence[Table], binding: Binding) -> Iterator[tuple[str, Binding]]:
    """The ways to group and to batch: as told, else the likely ones, the plainest first."""
    names = {name for table in tables for name in table.columns()}
    steps = [name for name in STEP_LIKE if name in names and name not in binding.group]
    parts = [*steps, *(["file"] if len(tables) > 1 else [])]
    open_key = binding.group_within is None and binding.group_size is None
    withins = ["input", *parts] if open_key else [binding.group_within]
    batches = ["input", *parts] if binding.batch_by is None else [binding.batch_by]
    pairs = [(within, batch) for within in withins for batch in batches]
    for within, batch in sorted(pairs, key=lambda pair: pair[0] != pair[1]):
        told = [] if within in {None, "input"} else [f"groups within each {within}"]
        told += [] if batch == "input" else [f"batches by {batch}"]
        yield ", ".join(told), replace(binding, group_within=within, batch_by=batch, singletons_meant=True)


def _blocks(found: Found, binding: Binding) -> Iterator[tuple[str, Binding]]:
    """Where sizes are multiples of another size, keys may have been drawn twice: blocks inside each key."""
    if binding.group_size is not None:
        return
    sizes = {int(size) for size in np.unique(np.bincount(found.reading.narrow.table["group"].to_numpy()))}
    most = max(sizes)
    likely = {size for size in sizes if any(other > size and other % size == 0 for other in sizes)}
    likely |= {most // part for part in PARTS if len(sizes) == 1 and most % part == 0}
    for size in sorted(likely - {1}, reverse=True)[: len(PARTS)]:
        told = replace(found.reading.binding, group=found.reading.narrow.group_names, group_size=size, partial="keep")
        yield (
            ", ".join(
                filter(None, [found.reading.words, f"blocks of {size} rows inside each key (--group-size {size})"])
            ),
            told,
        )


def _read(tables: Sequence[Table], binding: Binding, name: str, words: str, claim: Plan | None) -> Reading:
    narrow = build_table.read(tables, binding, claim or Plan())
    logged = np.concatenate([_values(table, name) for table in tables])
    if not np.isfinite(logged).any():
        raise DataError(f"{tables[0].name}: the column {name} holds no number", "name another one with --column NAME")
    return Reading(narrow, logged if narrow.rows is None else logged[narrow.rows], words, binding)


def _values(table: Table, name: str) -> Floats:
    """The advantage of every row; of a list with one entry a token, the one value that is not masked."""
    try:
        return table.scan([Field(name, "number")])[name].to_numpy().astype(np.float64)
    except DataError:
        lists = table.scan([Field(name, "numbers")])[name]
    told = lists.list.eval(pl.element().filter(pl.element() != 0)).list
    spread = told.max() - told.min()
    uneven = spread > TOLERANCE * pl.select(pl.max_horizontal(told.max().abs(), 1.0)).to_series()
    if uneven.any():
        row = uneven.arg_max() or 0
        raise DataError(
            f"{table.place(row)}: {name} has different values for the tokens of one row",
            "an advantage of a critic cannot be audited: rewards alone do not make it",
        )
    value = pl.select(pl.when(lists.list.len() > 0).then(told.mean().fill_null(0.0))).to_series()
    return value.to_numpy().astype(np.float64)


# --- what is said ------------------------------------------------------------------------------------------


def _told(found: Found, column: str, claim: Plan | None, weights: Sequence[float]) -> dict[str, Any]:
    reading, best = found.reading, found.fits[0]
    narrow, logged = reading.narrow, reading.logged
    got = computed(best.candidate.plan, narrow.table)
    wrong, error = compared(got, logged, found.close)
    bad = np.unique(narrow.table["group"].to_numpy()[wrong])
    near = wrong.sum() <= FAR * len(wrong)
    nearest = min(found.fits, key=lambda fit: fit.rank)
    equal = [fit for fit in found.fits[1:] if fit.ties(nearest)]
    told = [name for fit in equal for name in (fit.candidate.presets or _unnamed(fit, best))]
    why = (best.candidate.plan, narrow.table, got, logged, wrong, found.close.of(logged))
    return {
        "version": VERSION,
        "inputs": [table.name for table in narrow.tables],
        "column": column,
        "rows": len(narrow.table),
        "groups": narrow.groups.size,
        "notes": [*narrow.notes, *([reading.words] if reading.words else [])],
        "match": {
            **_described(best),
            "mismatched_rows": int(wrong.sum()),
            "mismatched_groups": len(bad),
            "max_difference": _finite(error.max(initial=0.0, where=np.isfinite(error) & ~wrong)),
            "tolerance": max(found.close.absolute, found.close.relative),
            "near": bool(near),
            "decisive_rows": _decisive(narrow),
            "preset_names": list(best.candidate.presets),
        },
        "ties": list(dict.fromkeys(told)),
        "ranking": [_described(fit) for fit in found.fits[:LISTED]],
        "disagreements": _disagreements(narrow, got, logged, wrong),
        "causes": causes(*why) if near else _opposite(narrow, logged, weights, len(bad)),
        "claim": None if claim is None else _claimed(claim, best.candidate.plan, found),
        "sampled_rows": found.sampled,
        "not_tried": untried({*narrow.roles, "input_length", "turns"}),
        "warnings": list(narrow.warnings),
    }


def _unnamed(fit: Fit, best: Fit) -> tuple[str, ...]:
    """Another method that gives the same numbers here; another spelling of the same one is no news."""
    own, other = fit.candidate.plan.estimator, best.candidate.plan.estimator
    return () if own.build is other.build else (f"--method {own.name}",)


def _described(fit: Fit) -> dict[str, Any]:
    plan = fit.candidate.plan
    return {
        "name": fit.candidate.name,
        "mismatched_rows": fit.mismatched,
        "typical_difference": _finite(fit.typical),
        "plan": plan.as_dict(),
    }


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _decisive(narrow: Narrow) -> int:
    """Rows of groups whose rewards differ: the others say nothing of a formula."""
    frame = score(Plan.of({"rewards.missing": "exclude"}), narrow.table).frame
    return int((~frame[".constant"].fill_null(value=True)).sum())


def _opposite(narrow: Narrow, logged: Floats, weights: Sequence[float], groups: int) -> list[dict[str, Any]]:
    """Where no formula is near, one may be with the other sign."""
    fits, _, _ = searched(narrow, -logged, weights, None)
    if fits[0].mismatched:
        return []
    says = f"the logged values are those of {fits[0].candidate.name} with the opposite sign"
    return [{"cause": "sign", "says": says, "groups": groups, "rows": len(logged)}]


def _disagreements(narrow: Narrow, got: Floats, logged: Floats, wrong: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """The first groups that disagree: key, place and both values of their first row that does."""
    codes = narrow.table["group"].to_numpy()[wrong]
    rows = np.flatnonzero(wrong)
    bad, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return [
        {
            "key": narrow.label(int(bad[i])), "place": narrow.place(int(rows[first[i]])), "rows": int(counts[i]),
            "expected": _finite(got[rows[first[i]]]), "logged": _finite(logged[rows[first[i]]]),
        }
        for i in np.argsort(first)[:LISTED]
    ]  # fmt: skip


def _claimed(claim: Plan, match: Plan, found: Found) -> dict[str, Any]:
    """How far the formula that the user names is from what was logged, and in which fields it differs."""
    narrow, logged = found.reading.narrow, found.reading.logged
    got = computed(claim, narrow.table)
    wrong, error = compared(got, logged, found.close)
    changed = differences(match, claim) if wrong.any() else {}
    frame = score(claim, narrow.table).frame
    # Rules for rows and groups that this file has none of are no cause.
    missing, lone = (~frame[".scorable"]).any(), (frame[".n"] == 1).any()
    idle = [] if missing else ["rewards.missing", "rewards.component_missing"]
    idle += [] if lone else ["alone.baseline", "alone.sd", "alone.result"]
    return {
        "mismatched_rows": int(wrong.sum()),
        "mismatched_groups": len(np.unique(narrow.table["group"].to_numpy()[wrong])),
        "max_difference": _finite(error.max(initial=0.0, where=np.isfinite(error))),
        "disagreements": _disagreements(narrow, got, logged, wrong),
        "differs": {
            key: {"claimed": before, "logged": now} for key, (before, now) in changed.items() if key not in idle
        },
    }


def gates(facts: dict[str, Any]) -> dict[str, float | None]:
    """The quantities that --fail-on may name: of the formula that is claimed, else of the one that was found."""
    judged = facts["claim"] or facts["match"]
    return {
        "mismatched_rows": judged["mismatched_rows"],
        "mismatched_groups": judged["mismatched_groups"],
        "max_difference": judged["max_difference"],
        "rows": facts["rows"],
        "groups": facts["groups"],
        "ties": len(facts["ties"]),
    }
