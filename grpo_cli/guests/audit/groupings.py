"""Find the formula behind the advantages in a file: compute every plan, and compare.

If the user does not say how rows are grouped, the likely groupings are tried in turn, the simplest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from grpo_cli.engine.extra_columns import LEFT_OUT, MASKED
from grpo_cli.engine.moments import Vector
from grpo_cli.errors import DataError, Way
from grpo_cli.guests.audit.candidates import Said
from grpo_cli.guests.audit.facts import Audited, Result, facts_of
from grpo_cli.guests.audit.ladder import search
from grpo_cli.guests.audit.trial import FAR
from grpo_cli.read.checks.check import check
from grpo_cli.read.checks.registry import CHECKS
from grpo_cli.read.columns import Columns
from grpo_cli.read.groups import counted, group, with_rollouts
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.request import Rule
from grpo_cli.read.tables import Binding

AUDITED = tuple(one for one in CHECKS if not one.judges_counting)  # an audit finds out how the rows of a rollout count
PARTS = (2, 4, 8)  # if all keys have one size: how many groups each may merge
ODD = 0.01  # share of the rows: if fewer differ, the key is right
DISORDER = 0.1  # of a key with two blocks, nearly always; rounding to 16 bits or two decimals makes less


def audit(
    columns: Columns,
    binding: Binding,
    logged: pl.Series,
    said: Said,
    phase: Callable[..., None],
) -> Audited:
    """What was found about the logged advantages; `phase` is called with the name of each part of the work.

    `binding` has the user's flags for groups and batches.
    """
    if said.claim is not None and with_rollouts(group(columns, columns.request.rule)).rollouts is not None:
        said = said._replace(claim=counted(said.claim, columns.request.layout.counting))
    audited = Audit(columns, logged.name, logged.to_numpy(), said, phase)
    ways = [*_ways_to_group(columns, binding)]
    if (other := _other_treatment(columns)) is not None:
        ways += _ways_to_group(other, binding)
    best = audited.best(ways)
    if np.nan_to_num(best.log.whole.logged).any() and not binding.group and _may_be_cut(best):
        best = audited.best(_ways_to_cut(best), best)
    phase("looking for causes")
    return facts_of(best, audited.column, said)


# --- ways to group -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Audit:
    """An audit in progress: what all groupings share, and what was tried so far."""

    columns: Columns  # as they were read, before rows are grouped
    column: str  # of the advantages
    logged: Vector  # the advantage of each row of the files; NaN if it has none
    said: Said  # what the user says about the formula
    phase: Callable[..., None]  # is called with the name of each part of the work
    tried: set[int] = field(default_factory=set)  # hashes of the groups and batches

    def best(self, ways: Iterable[tuple[str, Columns, Rule]], before: Result | None = None) -> Result:
        """The grouping with the best formula; if none is possible, the first error is raised.

        If there is a result `before`, another one replaces it only if it explains every row.
        """
        best, refusal = before, None
        for note, columns, rule in ways:
            try:
                narrow, logged, treatment = self._grouped(columns, rule)
            except DataError as error:
                refusal = refusal or error
                continue
            codes = [narrow.table[name].to_numpy().tobytes() for name in ("group", "batch")]
            number = hash(b"".join(codes))
            if number in self.tried:
                continue  # the same groups and batches again, for instance if there is only one step
            self.tried.add(number)
            if before is not None and "reward.1" not in narrow.table.columns and _disorder(narrow, logged) > DISORDER:
                continue
            notes = [*filter(None, [note, treatment])]
            self.phase(", ".join([f"trying formulas on {len(logged):,} rows", *notes]))
            found = search(narrow, logged, self.said)
            result = Result(columns, narrow, ", ".join(notes), *found)
            if best is None or result.fits[0].rank < best.fits[0].rank:
                best = result
            if best.fits[0].explains_all:
                break
        if best is None:
            raise refusal or DataError(
                f"{self.columns.tables[0].name}: nothing to compare", Way("--group", lead="name the key with")
            )
        return before if before is not None and best.fits[0].mismatched else best

    def _grouped(self, columns: Columns, rule: Rule) -> tuple[Narrow, Vector, str]:
        groups = with_rollouts(group(columns, rule))
        narrow = Narrow.of(groups, check(groups, AUDITED))
        treatment = _treatment(narrow)
        if narrow.left_out.any():
            narrow = narrow.at(np.flatnonzero(~narrow.left_out.to_numpy()))
            narrow = replace(narrow, table=narrow.table.drop(LEFT_OUT))
        logged = self.logged if narrow.rows is None else self.logged[narrow.rows]
        if not np.isfinite(logged).any():
            raise DataError(
                f"{columns.tables[0].name}: the column {self.column} has no numbers",
                Way("--column", lead="name another one with", fill="NAME"),
            )
        return narrow, logged, treatment


def _treatment(narrow: Narrow) -> str:
    """How marked rows are treated, in words; empty if there are none."""
    if narrow.marked is None or not narrow.marked.counts():
        return ""
    return "masked rows count in their groups" if MASKED in narrow.table.columns else "marked rows are left out"


def _other_treatment(columns: Columns) -> Columns | None:
    """The same columns with masked rows left out of their groups, or with rows that were left out in them.

    None if there are none, or if a flag says how they count.
    """
    layout = columns.request.layout
    if columns.marked is None or layout.flags.masked_rows or not any(mark.is_open for mark in layout.marks):
        return None
    votes = columns.marked.of_kind("masked").any()
    return columns.under(masked_rows="exclude" if votes else "vote")


def _ways_to_group(columns: Columns, binding: Binding) -> Iterator[tuple[str, Columns, Rule]]:
    """The ways to group and to batch: those of the flags, or the likely ones, simplest first."""
    rule, steps = columns.request.rule, columns.request.binding.carried
    parts = [*steps, *(["file"] if len(columns.tables) > 1 else [])]
    open_key = binding.group_within is None and binding.group_size is None
    withins = ["input", *(part for part in parts if part not in rule.key)] if open_key else [binding.group_within]
    batches = ["input", *parts] if binding.batch_by is None else [binding.batch_by]
    pairs = [(within, batch) for within in withins for batch in batches]
    for within, batch in sorted(pairs, key=lambda pair: pair[0] != pair[1]):
        notes = [] if within in {None, "input"} else [f"groups within each {within}"]
        notes += [] if batch == "input" else [f"batches by {batch}"]
        yield ", ".join(notes), columns, rule._replace(within=within or rule.within, batch_by=batch)


def _ways_to_cut(best: Result) -> Iterator[tuple[str, Columns, Rule]]:
    """Blocks inside each key: if sizes are multiples of another size, a prompt may have been sampled several times."""
    columns, rule = best.columns, best.narrow.rule
    if columns.request.binding.group_size is not None:
        return
    of_groups = np.bincount(best.narrow.table["group"].to_numpy())
    sizes = {*np.unique(of_groups).tolist()}
    largest = max(sizes)
    likely = {size for size in sizes if any(other > size and other % size == 0 for other in sizes)}
    if len(sizes) == 1:
        likely |= {largest // part for part in PARTS if largest % part == 0}
    for size in sorted(likely - {1}, reverse=True)[: len(PARTS)]:
        note = f"blocks of {size} rows inside each key (--group-size {size})"
        cut = columns.under(
            group=rule.key, partial="keep", group_within=rule.within, batch_by=rule.batch_by, group_size=size
        )
        yield ", ".join(filter(None, [best.note, note])), cut, cut.request.rule


def _may_be_cut(best: Result) -> bool:
    """Whether keys may have blocks that were scored separately, by a formula that explains every row.

    If no key has any, a formula explains some rows. If all have some, a reward has different advantages in the blocks of a key.
    """
    rows, unexplained = best.fits[0].rows, best.fits[0].unexplained
    if unexplained <= FAR * rows:
        return unexplained > ODD * rows
    return "reward.1" in best.narrow.table.columns or _disorder(best.narrow, best.log.whole.logged) > DISORDER


def _disorder(narrow: Narrow, logged: Vector) -> float:
    """How far the advantages of some group are from those that rise with its first reward: the norm, in stds of all."""
    codes, reward = narrow.table["group"].to_numpy(), narrow.table["reward.0"].to_numpy()
    known = np.isfinite(reward) & np.isfinite(logged)
    codes, reward, logged = codes[known], reward[known], logged[known]
    given = logged[np.lexsort((-logged, reward, codes))]
    rising = logged[np.lexsort((logged, codes))]
    squares = np.bincount(np.sort(codes), (given - rising) ** 2)
    norm = np.sqrt(squares.max(initial=0.0))
    return float(norm / (logged.std() or 1.0))
