"""Which schema a file is of: every schema is held against the names and a few rows, and the most specific one is it.

Detection is deterministic, and two that fit equally well are an error, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.errors import DataError
from grpo_cli.files.stores import pinned
from grpo_cli.formats import registry
from grpo_cli.schemas.sample import Sample, misfit, reward_names
from grpo_cli.schemas.table import LISTED, NESTED, NONE, REFUSED, schema, schemas

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from grpo_cli.formats.interface import Format
    from grpo_cli.read.tables import FileTable
    from grpo_cli.schemas.table import Schema

_NEAR: Final = 3  # schemas that nearly fit
_SPEAKING: Final = 2  # columns that have to speak for one that a message names
_SCORED: Final = frozenset({"reward", "rewards", "score", "scores", "total_reward", "advantage", "advantages"})


@dataclass(frozen=True, slots=True)
class Match:
    """How well a schema fits: its score, or what speaks against it."""

    schema: Schema
    score: int
    against: tuple[str, ...] = ()
    by: tuple[str, ...] = ()  # what speaks for it


def with_schema(files: Sequence[FileTable], choice: str | None) -> list[FileTable]:
    """The files as the schema that all of them are of reads them; `choice` names one, or says that there is none."""
    if choice == NONE:
        return list(files)
    by_file = {one.name: _schema_of(one, choice) for one in files}
    kinds = {None if one is None else one.name: name for name, one in by_file.items()}
    if len(kinds) > 1:
        listed = ", ".join(f"{name} is {kind or 'of no known schema'}" for kind, name in kinds.items())
        raise DataError(
            f"the files are of different schemas: {listed}",
            "name the files of one, or choose with --schema NAME, or --schema none",
        )
    schema_ = next(iter(by_file.values()))
    if schema_ is None:
        return list(files)
    nested = schema_.layout == NESTED
    return [
        one.of_schema(schema_, registry.nested(one.format, schema_.rows) if nested else one.format) for one in files
    ]


def _schema_of(table: FileTable, choice: str | None) -> Schema | None:
    if choice is not None:
        chosen = schema(choice)
        _refuse(chosen, table)
        return chosen
    if not _likely(table.columns()):
        return None
    sample = Sample.of(table.source, table.format, table.columns())
    best = _best([_match(one, sample) for one in _likely(sample.names)], table.name)
    if best is not None:
        _refuse(best, table)
    return best


def _likely(names: Collection[str]) -> list[Schema]:
    """The schemas whose top-level names are all here: most tables need no closer look."""
    here = {*names}
    return [one for one in schemas().values() if _heads(one.name) <= here]


@cache
def _heads(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[.\[]", field)[0] for field in schema(name).fields)


def _best(candidates: Sequence[Match], name: str) -> Schema | None:
    """The schema that fits best, None where none fits; two that fit equally well are an error."""
    fitting = [one for one in candidates if not one.against]
    if not fitting:
        return None
    most = max(one.score for one in fitting)
    best = [one.schema for one in fitting if one.score == most]
    if len(best) > 1:
        both = " and ".join(f"{one.name} ({one.title})" for one in best)
        raise DataError(f"{name}: two schemas fit: {both}", "choose with --schema NAME, or --schema none")
    return best[0]


def _refuse(chosen: Schema, table: FileTable) -> None:
    if chosen.layout in REFUSED:
        raise DataError(f"{table.name}: {chosen.title}: {chosen.refusal}", chosen.hint)
    if not _can_hold(table.format, chosen.layout):
        others = sorted(one.name for one in registry.FORMATS.values() if _can_hold(one, chosen.layout))
        wrong = f"{table.name}: the schema {chosen.name} is not read from {table.format.name}"
        raise DataError(wrong, f"it is read from {', '.join(others)}; --schema none reads plain rows")


def _can_hold(known: Format, layout: str) -> bool:
    """Whether a record of the format has room for the rollouts of a layout."""
    if layout == NESTED:
        return known.holds_objects
    return known.holds_lists if layout in LISTED else True


def nearly(table: FileTable) -> list[Match]:
    """The schemas that a single thing speaks against, the best first; none of those that are refused anyway."""
    sample = Sample.of(table.source, table.format, table.columns())
    fitting = (one for one in matches(sample) if one.schema.layout not in REFUSED and len(one.by) >= _SPEAKING)
    return _nearly(fitting)


def _nearly(candidates: Iterable[Match]) -> list[Match]:
    near = [one for one in candidates if len(one.against) == 1 and one.by]
    return sorted(near, key=lambda one: -one.score)


def explained(name: str) -> dict[str, Any]:
    """Which schema a file is of, what speaks for it, and what against the nearest others, as plain data."""
    source = registry.as_text(pinned(name))
    known = registry.of(source)
    candidates = matches(Sample.of(source, known, known.columns(source)))
    fitting = sorted((one for one in candidates if not one.against), key=lambda one: -one.score)
    best = _best(candidates, name)
    return {
        "file": name,
        "schema": None if best is None else best.name,
        "because": [] if best is None else list(fitting[0].by),
        "also": [_as_dict(one) for one in fitting[1:]],
        "nearly": [_as_dict(one) for one in _nearly(candidates)[:_NEAR]],
    }


def _as_dict(one: Match) -> dict[str, Any]:
    return {"schema": one.schema.name, "score": one.score, "by": list(one.by), "against": list(one.against)}


# --- matching ----------------------------------------------------------------------------------------------


def matches(sample: Sample) -> list[Match]:
    """How every schema fits, in the order of the table."""
    return [_match(one, sample) for one in schemas().values()]


def _match(one: Schema, sample: Sample) -> Match:
    against, by, score = [], [], 0
    for name, shape in one.fields.items():
        why = misfit(name, shape, sample)
        if why:
            against.append(why)
        else:
            by.append(name)
            score += 2 if shape == "any" else 3
    absent = {*one.absent, *(_SCORED if one.layout in REFUSED else ())}
    against += [f"has {name}" for name in sorted(absent & sample.names)]
    score += len(one.absent)
    if one.file and re.search(one.file, sample.path):
        by.append("the name of the file")
        score += 3
    elif one.only_file:
        against.append("another name of the file")
    # Of a nested one the sample shows the records around the rollouts.
    if not against and one.rewards is not None and one.layout != NESTED and not reward_names(one, sample):
        against.append("no column that could be a reward")
    return Match(one, score, tuple(against), tuple(by))
