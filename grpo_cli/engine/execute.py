"""A Program executed on parts of a table: on all cores, with the same bits for any number of threads.

What is one value a group is computed on one line a group, and spread to the rows that read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Final, TypeVar

import polars as pl

from grpo_cli.engine.estimators.terms import BATCH, GROUP, Base, Let, Program, Round
from grpo_cli.engine.group_stats import OF_GROUPS, OF_ROWS, Layout, base_quantities
from grpo_cli.engine.moments import Moments
from grpo_cli.parallel import ahead

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    Layers = Sequence[Sequence[pl.Expr]]
    from collections.abc import Callable, Mapping

    from polars._typing import EngineType

    from grpo_cli.engine.moments import Vector


@dataclass(frozen=True, slots=True)
class Stage:
    """What is computed of groups, then of rows, and the step that has to see all rows of a part or of all parts."""

    facts: Layers
    rows: Layers
    spread: frozenset[str]  # facts that the rows or the end read
    end: Base | Round | None
    kept: frozenset[str]  # what a later stage or the caller reads
    kept_rows: frozenset[str]  # the same but for facts, which are spread anew


@dataclass(slots=True)
class _Draft:
    facts: list[Let] = field(default_factory=list)
    rows: list[Let] = field(default_factory=list)
    spread: set[str] = field(default_factory=set)
    end: Base | Round | None = None
    known: frozenset[str] = frozenset()  # all facts that there are by then

    @property
    def reads(self) -> set[str]:
        ends = [] if self.end is None else [self.end]
        return {name for step in (*self.facts, *self.rows, *ends) for name in step.reads}


def legs(
    program: Program, batches: int, wanted: Collection[str], of_rows: Collection[str]
) -> tuple[list[tuple[list[Stage], Round]], list[Stage]]:
    """The stages up to each round, and those after the last; of groups, too, columns in `of_rows` are for every row."""
    kept = frozenset({*wanted, *of_rows})
    before: list[tuple[list[Stage], Round]] = []
    after: list[Stage] = []
    for at, one in enumerate(reversed(_drafted(program, batches, of_rows))):
        kept_rows = (kept - one.known) | {BATCH} if at else frozenset(of_rows)
        if isinstance(one.end, Round):
            before = [([], one.end), *before]
        stage = Stage(_layers(one.facts), _layers(one.rows), frozenset(one.spread), one.end, kept, kept_rows)
        (before[0][0] if before else after).insert(0, stage)
        kept |= one.reads
    return before, after


def _drafted(program: Program, batches: int, of_rows: Collection[str]) -> list[_Draft]:
    """The steps by stages. What one batch has only once is a constant, which groups and rows both know."""
    drafts, facts, constants, known = [_Draft()], set[str](), set[str](), set[str]()
    rounds = tuple(f"{step.name}." for step in program.steps if isinstance(step, Round) and batches == 1)
    for step in program.steps:
        if step.name in known:  # made anew: what reads the old one comes first
            drafts.append(_Draft())
        now = drafts[-1]
        left = {name for name in step.reads - constants if not name.startswith(rounds)}
        of_groups = isinstance(step, Let) and step.fact and left <= facts
        of_both = of_groups and not left
        if isinstance(step, Let):
            now.facts += [step] if of_groups else []
            now.rows += [step] if of_both or not of_groups else []
            for names, there in ((facts, of_groups and left), (constants, of_both)):
                (names.add if there else names.discard)(step.name)
            known.add(step.name)
        else:
            now.end = step
            drafts.append(_Draft())
        now.spread |= set() if of_groups else step.reads & facts
        if isinstance(step, Base):
            facts |= {*step.makes(OF_GROUPS)}
            facts -= {*step.makes(OF_ROWS)}
        now.known = frozenset(facts)
    drafts[-1].spread |= facts & {*of_rows}
    return drafts


def _layers(lets: Iterable[Let]) -> Layers:
    """The steps by how many others they wait for."""
    depth = dict[str, int]()
    found: list[list[pl.Expr]] = []
    for step in lets:
        at = depth[step.name] = 1 + max((depth.get(name, -1) for name in step.reads), default=-1)
        if at == len(found):
            found.append([])
        found[at].append(step.value.alias(step.name))
    return found


T = TypeVar("T")
S = TypeVar("S")
# One engine by name: its windows are bit-stable whatever the number of threads; group_by().agg is not.
POLARS_ENGINE: Final = "in-memory"
SMALL: Final = 1 << 15  # rows below which polars' streaming engine takes longer to start than to run


@dataclass(frozen=True, slots=True)
class Part:
    """A part under way: its rows, a line for each of its groups, and where these stand."""

    table: pl.DataFrame
    rows: pl.DataFrame
    groups: pl.DataFrame
    layout: Layout

    @classmethod
    def of(cls, table: pl.DataFrame) -> Part:
        """A part of which nothing is computed yet."""
        layout = Layout.of(table[GROUP].to_numpy())
        return cls(table, table, pl.DataFrame({GROUP: layout.codes}), layout)

    def after(self, stages: Iterable[Stage], how: EngineType) -> Part:
        """The part after some stages; of the last one with what its end reads."""
        part = self
        for stage in stages:
            part = part._after(stage, how)
        return part

    def _after(self, stage: Stage, how: EngineType) -> Part:
        ends = set() if stage.end is None else stage.end.reads
        groups = _query(self.groups, stage.facts, {GROUP, *stage.kept, *stage.spread}, POLARS_ENGINE)
        spread = [self._spread(groups[name]) for name in sorted(stage.spread)]
        rows = _query(_beside(self.rows, spread), stage.rows, stage.kept_rows | ends, how)
        if not isinstance(stage.end, Base):
            return replace(self, rows=rows, groups=groups)
        wanted = [name for name in OF_ROWS if {*stage.end.makes([name])} & stage.kept]
        facts, distances = base_quantities(self.layout, rows[stage.end.column], wanted)
        facts = [one.alias(name) for one, name in zip(facts, stage.end.makes(OF_GROUPS), strict=True)]
        distances = [one.alias(name) for one, name in zip(distances, stage.end.makes(wanted), strict=True)]
        return replace(self, rows=_beside(rows, distances), groups=_beside(groups, facts))

    def _spread(self, facts: pl.Series) -> pl.Series:
        """A fact of groups on every row."""
        if facts.null_count():
            return facts.gather(self.layout.of_row)
        if facts.dtype.is_numeric():
            return pl.Series(facts.name, self.layout.spread(facts.to_numpy()))
        if len(facts) and (facts == facts[0]).all():
            # polars passes over a mask that is the same everywhere, and so do we: no group may be a singleton.
            return facts.new_from_index(0, len(self.rows))
        if facts.dtype == pl.Boolean:
            return pl.Series(facts.name, self.layout.spread(facts.to_numpy()))
        return facts.gather(self.layout.of_row)

    def with_facts(self, found: Mapping[str, Vector]) -> Part:
        """The part with facts of the batches: those of a single batch are facts of groups too."""
        if all(len(values) == 1 for values in found.values()):
            whole = [pl.lit(float(values[0])).alias(name) for name, values in found.items()]
            return replace(self, rows=self.rows.with_columns(whole), groups=self.groups.with_columns(whole))
        batch = self.rows[BATCH].to_numpy()
        return replace(self, rows=_beside(self.rows, [pl.Series(name, one[batch]) for name, one in found.items()]))


def _beside(frame: pl.DataFrame, columns: Sequence[pl.Series]) -> pl.DataFrame:
    """The frame with more columns, which take the place of those that are called like them."""
    if not columns:
        return frame
    names = {one.name for one in columns}
    left = [name for name in frame.columns if name not in names]
    # A new DataFrame of all columns would write out those of one value: polars divides by them with other last bits.
    return (frame if len(left) == frame.width else frame[left]).hstack(list(columns))


def _query(frame: pl.DataFrame, layers: Layers, kept: Collection[str], how: EngineType) -> pl.DataFrame:
    """Compute columns and keep those that somebody reads."""
    new = [value.meta.output_name() for layer in layers for value in layer]
    names = [name for name in dict.fromkeys((*frame.columns, *new)) if name in kept]
    if not new:
        return frame[names]
    asked = frame.lazy()
    for layer in layers:
        asked = asked.with_columns(layer)
    return asked.select(names).collect(engine=how)


def run(program: Program, parts: Sequence[pl.DataFrame], batches: int, keep: Iterable[str]) -> list[pl.DataFrame]:
    """Execute the steps and return the columns in `keep`.

    Moments are collected in every part and merged in the order of the parts. Between two rounds only the
    columns that a later step reads are held.
    """
    return run_each(program, parts, batches, {*keep}, (), lambda part: part.rows)


def run_each(
    program: Program,
    parts: Sequence[pl.DataFrame],
    batches: int,
    of_rows: Collection[str],
    of_groups: Collection[str],
    done: Callable[[Part], T],
) -> list[T]:
    """The same; of a part only what is `done` with it is held."""
    how = _polars_engine(program, parts)
    before, last = legs(program, batches, of_groups, of_rows)
    if not before:
        return _mapped(lambda table: done(Part.of(table).after(last, how)), parts)
    under_way = _mapped(Part.of, parts)
    for leg, step in before:
        under_way = _round(leg, step, under_way, batches, how)
    return _mapped(lambda part: done(part.after(last, how)), under_way)


def _polars_engine(program: Program, parts: Sequence[pl.DataFrame]) -> EngineType:
    """One large piece goes row by row in small ones, on all cores; windows have one engine."""
    windows = any(isinstance(step, Let) and ".over(" in str(step.value) for step in program.steps)
    return POLARS_ENGINE if windows or len(parts) > 1 or len(parts[0]) < SMALL else "streaming"


def _mapped(work: Callable[[S], T], parts: Sequence[S]) -> list[T]:
    return list((ahead if len(parts) > 1 else map)(work, parts))


def _round(leg: Sequence[Stage], step: Round, parts: Sequence[Part], batches: int, how: EngineType) -> list[Part]:
    """All parts up to a round, with what it found."""

    def up_to(part: Part) -> tuple[Part, Moments]:
        part = part.after(leg, how)
        kept = [name for name in part.rows.columns if name in leg[-1].kept_rows]
        return replace(part, rows=part.rows[kept]), _moments(step, part.rows, batches)

    done, moments = zip(*_mapped(up_to, parts), strict=True)
    found = {f"{step.name}.{key}": one for key, one in step.finish(reduce(Moments.merge, moments)).items()}
    return [part.with_facts(found) for part in done]


def _moments(step: Round, frame: pl.DataFrame, batches: int) -> Moments:
    weight = pl.lit(1.0) if step.weight is None else step.weight.cast(pl.Float64)
    rows = frame.select(batch=pl.col(BATCH), value=step.value.cast(pl.Float64), weight=weight).drop_nulls("value")
    arrays = (rows["value"].to_numpy(), rows["batch"].to_numpy(), batches)
    return Moments.of(*arrays) if step.weight is None else Moments.of(*arrays, rows["weight"].to_numpy())
