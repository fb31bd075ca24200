"""Detect the schema of a file from its column names and a few rows; the most specific match wins.

Detection is deterministic; two schemas that fit equally well are an error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, TypeVar

from grpo_cli.errors import DataError, NoRewards, UsageError
from grpo_cli.files.stores import pinned
from grpo_cli.formats import registry
from grpo_cli.formats.interface import Reader
from grpo_cli.read.tables import OverTables, Table
from grpo_cli.schemas.sample import Sample, misfit, reward_names
from grpo_cli.schemas.table import LISTED, LONG, NESTED, NONE, REFUSED, Schema, schema, schemas

T = TypeVar("T", bound=Table)

_NEAR: Final = 3  # near matches in a message
_SPEAKING: Final = 2  # matching columns from which a message names a schema
_SCORED: Final = frozenset({"reward", "rewards", "score", "scores", "total_reward", "advantage", "advantages"})


@dataclass(frozen=True)
class Match:
    """How well a schema fits: its score, or the reasons against it."""

    schema: Schema
    score: int
    against: tuple[str, ...] = ()
    by: tuple[str, ...] = ()  # the reasons for it


def with_schema(files: Sequence[T], choice: str | None, over: OverTables = map) -> list[T]:
    """The files as their common schema reads them; `choice` is the name of a schema or `none`.

    `over` looks at each file; afterwards its column names and number of rows are known.
    """
    known = [] if choice == NONE else _known(choice)
    looked_at = list(over(partial(_looked_at, known=known, is_named=choice is not None), files))
    files = [table for table, _ in looked_at]
    if choice == NONE:
        return list(files)
    by_file = {table.name: found for table, found in looked_at}
    kinds = {None if found is None else found.name: name for name, found in by_file.items()}
    if len(kinds) > 1:
        listed = ", ".join(f"{name} is {kind or 'of no known schema'}" for kind, name in kinds.items())
        raise DataError(
            f"the files have different schemas: {listed}",
            "name the files of one schema, or choose with --schema NAME, or --schema none",
        )
    schema_ = next(iter(by_file.values()))
    if schema_ is None:
        return list(files)
    nested = schema_.layout == NESTED
    return [
        table.of_schema(schema_, registry.nested(table.format, schema_.rows) if nested else None) for table in files
    ]


def _known(choice: str | None = None) -> list[Schema]:
    """The schemas that a file may have: the named schema, else all that need no import.

    They are looked up here, not in a task on another machine, which may have neither the packages nor the files.
    """
    return [*schemas().at_hand.values()] if choice is None else [schema(choice)]


def _looked_at(table: Any, known: Sequence[Schema], *, is_named: bool) -> tuple[Any, Schema | None]:
    """A table, whose column names and number of rows are now known, and its schema."""
    if not (is_named or table.format.holds_records):
        known = [one for one in known if one.layout == LONG]
    found = known[0] if is_named and known else _schema_of(table, known)
    if found is not None:
        _refuse(found, table)
    table.columns(), table.row_count
    return table, found


def _schema_of(table: Table, known: Sequence[Schema]) -> Schema | None:
    if not _likely(known, table.columns()):
        return None
    sample = table.sample()
    return _best([_match(likely, sample) for likely in _likely(known, sample.names)], table.name)


def _likely(known: Iterable[Schema], names: Collection[str]) -> list[Schema]:
    """The schemas whose top-level names all exist: for most tables there are none."""
    here = {*names}
    return [candidate for candidate in known if _heads(tuple(candidate.fields)) <= here]


@cache
def _heads(fields: tuple[str, ...]) -> frozenset[str]:
    return frozenset(re.split(r"[.\[]", field)[0] for field in fields)


def _best(candidates: Sequence[Match], name: str) -> Schema | None:
    """The best match, or None; a tie is an error."""
    fitting = [match for match in candidates if not match.against]
    if not fitting:
        return None
    most = max(match.score for match in fitting)
    best = [match.schema for match in fitting if match.score == most]
    if len(best) > 1:
        both = " and ".join(f"{known.name} ({known.title})" for known in best)
        raise DataError(f"{name}: two schemas fit: {both}", "choose with --schema NAME, or --schema none")
    return best[0]


def _refuse(chosen: Schema, table: Table) -> None:
    if chosen.layout != LONG and not table.format.holds_records:
        wrong = f"a record of a {chosen.title} has several rollouts, but a frame needs one per row"
        raise UsageError(wrong, "make one row per rollout, and name the columns: group=..., reward=...")
    if chosen.layout in REFUSED:
        raise NoRewards(f"{table.name}: {chosen.title}: {chosen.refusal}", chosen.hint)
    if not _can_hold(table.format, chosen.layout):
        others = sorted(format_.name for format_ in registry.FORMATS.values() if _can_hold(format_, chosen.layout))
        wrong = f"{table.name}: the schema {chosen.name} cannot be read from {table.format.name}"
        raise DataError(wrong, f"it is read from {', '.join(others)}; --schema none reads plain rows")


def _can_hold(known: Reader, layout: str) -> bool:
    """Whether a record of the format can contain the rollouts of a layout."""
    if layout == NESTED:
        return known.holds_objects
    return known.holds_lists if layout in LISTED else True


def nearly(table: Table) -> list[Match]:
    """Schemas with a single mismatch, best first, except those that are refused anyway."""
    sample = table.sample()
    candidates = (_match(known, sample) for known in _known())
    fitting = (match for match in candidates if match.schema.layout not in REFUSED and len(match.by) >= _SPEAKING)
    return _nearly(fitting)


def _nearly(candidates: Iterable[Match]) -> list[Match]:
    near = [match for match in candidates if len(match.against) == 1 and match.by]
    return sorted(near, key=lambda match: -match.score)


@dataclass(frozen=True)
class Fit:
    """How a schema fits a file."""

    schema: str
    score: int
    by: Sequence[str]
    against: Sequence[str]


@dataclass(frozen=True)
class SchemaMatch:
    """Which schema a file has, and why."""

    file: str
    schema: str | None
    because: Sequence[str]
    also: Sequence[Fit]
    nearly: Sequence[Fit]


def explained(name: str) -> SchemaMatch:
    """The schema of a file, the reasons for it, and the reasons against the nearest others."""
    source = registry.as_text(pinned(name))
    known = registry.of(source)
    sample = Sample.of(source, known, known.columns(source))
    candidates = [_match(candidate, sample) for candidate in schemas().values()]  # a listing may import packages
    fitting = sorted((match for match in candidates if not match.against), key=lambda match: -match.score)
    best = _best(candidates, name)
    also, nearly = ([*map(_fit, matches)] for matches in (fitting[1:], _nearly(candidates)[:_NEAR]))
    if best is None:
        return SchemaMatch(name, None, (), also, nearly)
    return SchemaMatch(name, best.name, fitting[0].by, also, nearly)


def _fit(match: Match) -> Fit:
    return Fit(match.schema.name, match.score, match.by, match.against)


# --- matching ----------------------------------------------------------------------------------------------


def _match(known: Schema, sample: Sample) -> Match:
    against, by, score = [], [], 0
    for name, shape in known.fields.items():
        why = misfit(name, shape, sample)
        if why:
            against.append(why)
        else:
            by.append(name)
            score += 2 if shape == "any" else 3
    absent = {*known.absent, *(_SCORED if known.layout in REFUSED else ())}
    against += [f"has {name}" for name in sorted(absent & sample.names)]
    score += len(known.absent)
    if known.file and re.search(known.file, sample.path):
        by.append("the file name")
        score += 3
    elif known.only_file:
        against.append("a different file name")
    # For a nested schema the sample shows the records around the rollouts.
    if not against and known.rewards is not None and known.layout != NESTED and not reward_names(known, sample):
        against.append("no column that could be a reward")
    return Match(known, score, tuple(against), tuple(by))
