"""The order in which the steps of a Program are taken: facts of groups before rows, whole columns between stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grpo_cli.estimators.terms import BATCH, Base, Let, Program, Round
from grpo_cli.grouped import OF_GROUPS, OF_ROWS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import polars as pl

    # Columns that do not read each other, then those that read them, and so on.
    Layers = Sequence[Sequence[pl.Expr]]


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
