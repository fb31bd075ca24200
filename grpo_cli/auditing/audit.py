"""Which formula made the advantages that a file already has? Every plan is tried, and the errors decide.

Where nobody says how rows belong together, the likely ways are tried in turn, the plainest first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import untried
from grpo_cli.auditing.causes import causes, noise_cause
from grpo_cli.auditing.search import FAR, FLOAT32_ERROR, Fit, Tolerance, differences, search
from grpo_cli.engine import presets
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import advantages, score
from grpo_cli.errors import DataError, UnknownName
from grpo_cli.formats.interface import Field
from grpo_cli.read import build_table
from grpo_cli.read.known_names import ADVANTAGES, LENGTHS, STEP_LIKE
from grpo_cli.stats.facts import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from grpo_cli.engine.plan_parts import Divisor, ShapeOp
    from grpo_cli.read.build_table import OverTables
    from grpo_cli.read.tables import Binding, Narrow, Table

    Floats = NDArray[np.float64]

VERSION: Final = 1
LISTED: Final = 10
PARTS: Final = (2, 4, 8)  # rounds that a key may hold where all keys have one size
MOST_DIVISORS: Final = 4  # of formulas that the rows cannot tell apart: for so many the causes are worked out
UNEQUAL: Final = 0.01  # of max(1, |A|): two equal advantages differ by less, however few bits or decimals they have
ODD: Final = 0.01  # of the rows: fewer that differ do not speak against the key
GATES: Final = ("mismatched_rows", "mismatched_groups", "max_difference", "rows", "groups", "ties")


def audit(
    tables: Sequence[Table],
    binding: Binding,
    column: str | None,
    weights: Sequence[float] = (),
    claim: Plan | None = None,
    shape: Sequence[ShapeOp] = (),
    phase: Callable[..., None] = lambda *_: None,
    over: OverTables = map,
) -> dict[str, Any]:
    """What is known of the logged advantages, as plain data; `phase` is called with the name of each part of the work.

    `over` does the reading of each table.
    """
    names = list(dict.fromkeys(name for table in tables for name in table.columns()))
    if column is None:
        column = next((name for name in ADVANTAGES if name in names), None)
        if column is None:
            raise DataError(f"{tables[0].name}: no column holds advantages", "name it with --column NAME")
    elif column not in names and column.partition(".")[0] not in names:
        raise UnknownName.among("column", column, names)
    length = next((name for name in LENGTHS if name in names), None)
    if length is not None and "length" not in binding.roles:
        # Formulas that weigh by tokens are tried as well.
        binding = replace(binding, roles={**binding.roles, "length": length})

    trials = Trials(tables, column, tuple(weights), claim, tuple(shape), phase, over)
    best, refusal = trials.best(_ways_to_group(tables, binding), None)
    if best is None:
        raise refusal or DataError(f"{tables[0].name}: nothing to compare", "name the key with --group")
    if best.fits[0].rank[0] > ODD * len(best.reading.logged) and not binding.group:
        blocks, _ = trials.best(_ways_to_cut(best, binding), best)
        # Blocks that nobody named are believed only where they explain every row.
        if blocks is not None and not blocks.fits[0].mismatched:
            best = blocks
    phase("looking for causes")
    return _facts(best, trials)


def gates(facts: dict[str, Any]) -> dict[str, float | None]:
    """The quantities that --fail-on may name: of the formula that is claimed, else of the best one."""
    judged = facts["claim"] or facts["match"]
    return {
        "mismatched_rows": judged["mismatched_rows"],
        "mismatched_groups": judged["mismatched_groups"],
        "max_difference": judged["max_difference"],
        "rows": facts["rows"],
        "groups": facts["groups"],
        "ties": len(facts["ties"]),
    }


# --- ways to group -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """The file in one of the ways that its rows may belong together; `note` says in which."""

    narrow: Narrow
    logged: Floats
    note: str
    binding: Binding


@dataclass(frozen=True, slots=True)
class Result:
    """The plans for one reading, the best first, and under which tolerance on how many sampled rows."""

    reading: Reading
    fits: list[Fit]
    tolerance: Tolerance
    sampled: int


@dataclass(frozen=True, slots=True)
class Trials:
    """What stays the same from one way of grouping to the next."""

    tables: Sequence[Table]
    column: str
    weights: tuple[float, ...]
    claim: Plan | None
    shape: tuple[ShapeOp, ...]
    phase: Callable[..., None]
    over: OverTables
    tried: set[int] = field(default_factory=set)  # hashes of the groups and batches so far

    def best(self, ways: Iterator[tuple[str, Binding]], best: Result | None) -> tuple[Result | None, DataError | None]:
        """The result with the best formula (None where no way can be read), and the first refusal.

        Where there is a result before, only one that gives every row is better.
        """
        refusal, exact = None, best is not None
        for note, binding in ways:
            try:
                reading = self._read(binding, note)
            except DataError as error:
                refusal = refusal or error
                continue
            codes = reading.narrow.table.select("group", "batch")
            if (way := hash(b"".join(column.to_numpy().tobytes() for column in codes))) in self.tried:
                continue  # one step only, for instance: the same groups and batches under another name
            self.tried.add(way)
            if exact and not _may_explain_all(reading):
                continue
            self.phase(f"trying formulas on {len(reading.logged):,} rows{f', {note}' if note else ''}")
            result = Result(reading, *search(reading.narrow, reading.logged, self.weights, self.claim, self.shape))
            if best is None or result.fits[0].rank < best.fits[0].rank:
                best = result
            if best.fits[0].explains_all:
                break
        return best, refusal

    def _read(self, binding: Binding, note: str) -> Reading:
        narrow = build_table.read(self.tables, binding, self.claim or Plan(shape=self.shape), over=self.over)
        logged = np.concatenate(list(self.over(partial(_logged_values, name=self.column), self.tables)))
        if not np.isfinite(logged).any():
            raise DataError(
                f"{self.tables[0].name}: the column {self.column} holds no number",
                "name another one with --column NAME",
            )
        return Reading(narrow, logged if narrow.rows is None else logged[narrow.rows], note, binding)


def _ways_to_group(tables: Sequence[Table], binding: Binding) -> Iterator[tuple[str, Binding]]:
    """The ways to group and to batch: as the binding says, else the likely ones, the plainest first."""
    names = {name for table in tables for name in table.columns()}
    steps = [name for name in STEP_LIKE if name in names and name not in binding.group]
    parts = [*steps, *(["file"] if len(tables) > 1 else [])]
    open_key = binding.group_within is None and binding.group_size is None
    withins = ["input", *parts] if open_key else [binding.group_within]
    batches = ["input", *parts] if binding.batch_by is None else [binding.batch_by]
    pairs = [(within, batch) for within in withins for batch in batches]
    for within, batch in sorted(pairs, key=lambda pair: pair[0] != pair[1]):
        notes = [] if within in {None, "input"} else [f"groups within each {within}"]
        notes += [] if batch == "input" else [f"batches by {batch}"]
        yield ", ".join(notes), replace(binding, group_within=within, batch_by=batch, singletons_meant=True)


def _ways_to_cut(best: Result, binding: Binding) -> Iterator[tuple[str, Binding]]:
    """Where sizes are multiples of another size, keys may have been drawn twice: blocks inside each key."""
    if binding.group_size is not None:
        return
    narrow = best.reading.narrow
    sizes = {int(size) for size in np.unique(np.bincount(narrow.table["group"].to_numpy()))}
    largest = max(sizes)
    likely = {size for size in sizes if any(other > size and other % size == 0 for other in sizes)}
    likely |= {largest // part for part in PARTS if len(sizes) == 1 and largest % part == 0}
    for size in sorted(likely - {1}, reverse=True)[: len(PARTS)]:
        note = f"blocks of {size} rows inside each key (--group-size {size})"
        cut = replace(best.reading.binding, group=narrow.group_names, group_size=size, partial="keep")
        yield ", ".join(filter(None, [best.reading.note, note])), cut


def _may_explain_all(reading: Reading) -> bool:
    """Whether rows of a group that are equal in all that formulas read have equal advantages, as far as a log can tell.

    Where they have not, no formula gives every row, and blocks that nobody named need not be tried.
    """
    columns = reading.narrow.table.columns
    rows = reading.narrow.table.with_columns(logged=pl.Series(reading.logged)).filter(pl.col("logged").is_finite())
    ends = rows.group_by(columns).agg(low=pl.col("logged").min(), high=pl.col("logged").max())
    size = pl.max_horizontal(pl.col("low").abs(), pl.col("high").abs())
    return bool(ends.select((pl.col("high") - pl.col("low") <= UNEQUAL * (1 + size)).all()).item())


def _logged_values(table: Table, name: str) -> Floats:
    """The advantage of every row; of a list with one entry a token, the one value that is not masked."""
    try:
        return table.scan([Field(name, "number")])[name].to_numpy().astype(np.float64)
    except DataError:
        lists = table.scan([Field(name, "numbers")])[name]
    values = lists.list.eval(pl.element().filter(pl.element() != 0)).list
    spread = values.max() - values.min()
    uneven = spread > FLOAT32_ERROR * pl.select(pl.max_horizontal(values.max().abs(), 1.0)).to_series()
    if uneven.any():
        row = uneven.arg_max() or 0
        raise DataError(
            f"{table.place(row)}: {name} has different values for the tokens of one row",
            "an advantage of a critic cannot be audited: rewards alone do not make it",
        )
    value = pl.select(pl.when(lists.list.len() > 0).then(values.mean().fill_null(0.0))).to_series()
    return value.to_numpy().astype(np.float64)


# --- facts -------------------------------------------------------------------------------------------------


def _facts(result: Result, trials: Trials) -> dict[str, Any]:
    narrow, logged, tolerance = result.reading.narrow, result.reading.logged, result.tolerance
    result, explained = _explained(result)
    best = result.fits[0]
    tolerance = tolerance.for_candidate(best.candidate, logged)
    computed = best.candidate.factor * advantages(best.candidate.plan, narrow.table)
    wrong, error = differences(computed, logged, tolerance)
    wrong_groups = len(np.unique(narrow.table["group"].to_numpy()[wrong]))
    near = best.noisy is not None or bool(wrong.sum() <= FAR * len(wrong))
    # Only rows of groups whose rewards differ say anything of a formula.
    constant = score(Plan.of({"rewards.missing": "exclude"}), narrow.table).frame[".constant"]
    return {
        "version": VERSION,
        "inputs": [table.name for table in narrow.tables],
        "column": trials.column,
        "rows": len(narrow.table),
        "groups": narrow.groups.size,
        "notes": [*narrow.notes, *([result.reading.note] if result.reading.note else [])],
        "match": {
            **_describe(best),
            "mismatched_rows": int(wrong.sum()),
            "mismatched_groups": wrong_groups,
            "max_difference": plain(float(error.max(initial=0.0, where=np.isfinite(error) & ~wrong))),
            "tolerance": max(tolerance.absolute, tolerance.relative),
            "near": near,
            "decisive_rows": int((~constant.fill_null(value=True)).sum()),
            "preset_names": list(best.candidate.presets),
            "factor": best.candidate.factor,
        },
        "ties": _ties(result.fits),
        "ranking": [_describe(fit) for fit in result.fits[:LISTED]],
        "disagreements": _disagreements(narrow, computed, logged, wrong),
        "causes": explained,
        "claim": None if trials.claim is None else _check_claim(trials.claim, result),
        "sampled_rows": result.sampled,
        "not_tried": untried({*narrow.roles, "input_length", "turns"}),
        "warnings": list(narrow.warnings),
    }


def _explained(result: Result) -> tuple[Result, list[dict[str, Any]]]:
    """The result with that formula first, of those that the rows cannot tell apart, whose differences have causes; and them."""
    narrow, logged, first = result.reading.narrow, result.reading.logged, result.fits[0]
    if first.noisy is not None:
        return result, [noise_cause(first.noisy, narrow.table)]
    if not first.mismatched or first.mismatched > FAR * len(logged):
        return result, []
    by_unexplained: dict[int, tuple[Fit, list[dict[str, Any]]]] = {}
    divisors: set[Divisor] = set()
    for fit in (fit for fit in result.fits if fit.is_tied_with(first)):
        plan = fit.candidate.plan
        if plan.divisor in divisors or len(divisors) == MOST_DIVISORS or 0 in by_unexplained:
            continue
        divisors.add(plan.divisor)
        computed = fit.candidate.factor * advantages(plan, narrow.table)
        tolerance = result.tolerance.for_candidate(fit.candidate, logged)
        wrong, _ = differences(computed, logged, tolerance)
        explained = causes(plan, narrow.table, computed, logged, wrong, tolerance.of(logged))
        left = sum(one["rows"] for one in explained if one["cause"] == "unexplained")
        by_unexplained.setdefault(left, (fit, explained))
    best, explained = by_unexplained[min(by_unexplained)]
    return replace(result, fits=[best, *(fit for fit in result.fits if fit is not best)]), explained


def _describe(fit: Fit) -> dict[str, Any]:
    return {
        "name": fit.candidate.name,
        "mismatched_rows": fit.mismatched,
        "typical_difference": plain(fit.typical),
        "plan": fit.candidate.plan.as_dict(),
    }


def _ties(fits: Sequence[Fit]) -> list[str]:
    """Presets and methods that the data cannot tell from the best; another spelling of its own method is none."""
    best, nearest = fits[0], min(fits, key=lambda fit: fit.rank)
    names: list[str] = []
    for fit in fits[1:]:
        if fit.is_tied_with(nearest):
            estimator = fit.candidate.plan.estimator
            same = estimator.build is best.candidate.plan.estimator.build
            same &= fit.candidate.factor == best.candidate.factor
            of_method = [] if same else [f"--method {estimator.name}"]
            times = "" if fit.candidate.factor == 1 else f"{fit.candidate.factor:g} x "
            names += [f"{times}{name}" for name in fit.candidate.presets or of_method]
    return list(dict.fromkeys(names))


def _disagreements(narrow: Narrow, computed: Floats, logged: Floats, wrong: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """The first groups that disagree: key, place and both values of their first row that does."""
    rows = np.flatnonzero(wrong)
    codes, first, counts = np.unique(narrow.table["group"].to_numpy()[rows], return_index=True, return_counts=True)
    return [
        {
            "key": narrow.label(int(codes[i])), "place": narrow.place(int(rows[first[i]])), "rows": int(counts[i]),
            "expected": plain(float(computed[rows[first[i]]])), "logged": plain(float(logged[rows[first[i]]])),
        }
        for i in np.argsort(first)[:LISTED]
    ]  # fmt: skip


def _check_claim(claim: Plan, result: Result) -> dict[str, Any]:
    """How far the formula that the user names is from what was logged, and in which fields it differs."""
    narrow, logged, match = result.reading.narrow, result.reading.logged, result.fits[0].candidate.plan
    computed = advantages(claim, narrow.table)
    wrong, error = differences(computed, logged, result.tolerance)
    changed = presets.differences(match, claim) if wrong.any() else {}
    # Rules for rows and groups that this file has none of are no cause.
    frame = score(claim, narrow.table).frame
    without_effect = [] if (~frame[".scorable"]).any() else ["rewards.missing", "rewards.component_missing"]
    without_effect += [] if (frame[".n"] == 1).any() else ["alone.baseline", "alone.sd", "alone.result"]
    return {
        "mismatched_rows": int(wrong.sum()),
        "mismatched_groups": len(np.unique(narrow.table["group"].to_numpy()[wrong])),
        "max_difference": plain(float(error.max(initial=0.0, where=np.isfinite(error)))),
        "disagreements": _disagreements(narrow, computed, logged, wrong),
        "differs": {
            key: {"claimed": before, "logged": now}
            for key, (before, now) in changed.items()
            if key not in without_effect
        },
    }
