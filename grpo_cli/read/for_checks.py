"""Columns that only the checks read, found by their names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from grpo_cli.formats.frame import FrameReader
from grpo_cli.read.known_names import (
    GROUP_TIERS,
    IDS_OF_TURNS,
    KNOWN_MARKS,
    MARKS_OF_PEOPLE,
    MOST_SOURCES,
    ROLLOUT_IDS,
    ROW_IDS,
    SAMPLE_IDS,
    SOURCES,
    STEPS,
    TIME,
    TURNS,
)
from grpo_cli.read.layout import Layout
from grpo_cli.read.prompt_check import other_texts, prompts_by_name
from grpo_cli.read.tables import Table


class ForChecks(NamedTuple):
    """Columns that are read only for the checks, where the files have them."""

    steps: Sequence[str]  # training or sampling steps: a key that occurs in several of them may be several groups
    ids: Sequence[str]  # candidates for the key where only a text was found by name
    rollouts: Sequence[str]  # rollout ids that neither a flag nor the schema names: several rows may be one rollout
    turn: str  # the number of a turn, which shows that rows are turns of rollouts; "" if there is none
    sample: str = ""  # the number of a sample in its group: repeated if rows were written twice; "" if there is none
    sources: Sequence[str] = ()  # the model, the data set and the like that a row is from
    marks: Sequence[str] = ()  # columns that may mark rows, if nothing says which rows are marked
    prompts: Sequence[str] = ()  # texts that differ within a group if it merges several prompts
    other_texts: Sequence[str] = ()  # texts that may be prompts, if no column has the name of a prompt

    @property
    def columns(self) -> list[str]:
        """The columns to read in full; of the texts, the check fetches a few rows."""
        return [
            *self.steps,
            *self.ids,
            *self.rollouts,
            *self.sources,
            *self.marks,
            *filter(None, [self.sample, self.turn]),
        ]


def for_checks(layout: Layout, roles: Mapping[str, str], named: Collection[str], *, warn: bool) -> ForChecks:
    """These columns of a layout; without `warn`, not those that are read only for warnings.

    `named` are the columns that the rule of groups names besides the key.
    """
    used = {*layout.key, *layout.rewards, *named}
    free = {*layout.names} - used
    # A frame in memory may have columns of Python objects, which need not be readable.
    readable = free.difference(*(one.format.untyped for one in layout.tables if isinstance(one.format, FrameReader)))
    rollouts, turn = _parts_of_rollouts(layout, roles, free, readable)
    columns = ForChecks(steps=_steps(layout, named), ids=_ids_beside_a_text(layout), rollouts=rollouts, turn=turn)
    if warn:
        columns = columns._replace(
            sample=next((name for name in SAMPLE_IDS if name in layout.names), ""),
            sources=_sources(layout, readable),
            marks=_unread_marks(layout, roles, readable),
        )
    return _with_texts(columns, layout, roles, used, warn=warn)


def _steps(layout: Layout, named: Collection[str]) -> list[str]:
    repeats = () if layout.schema is None else layout.schema.repeats
    steps = [name for name in STEPS if name in layout.names and name not in repeats]
    if TIME in steps and TIME not in (*layout.key, *named) and _differs_in_every_row(layout.tables[0], TIME):
        steps.remove(TIME)  # it is the time of each row, and separates nothing
    return steps


def _differs_in_every_row(table: Table, name: str) -> bool:
    """Whether no value repeats in the first rows of a file of text."""
    records = table.sample().records
    return 1 < len(records) == len({str(record.get(name)) for record in records})


def _ids_beside_a_text(layout: Layout) -> list[str]:
    by_text = not layout.binding.group and len(layout.key) == 1 and layout.key[0] in GROUP_TIERS[-1]
    return [name for name in ROW_IDS if by_text and name in layout.names]


def _parts_of_rollouts(
    layout: Layout, roles: Mapping[str, str], free: Collection[str], readable: Collection[str]
) -> tuple[list[str], str]:
    """Ids by which rows may be parts of rollouts, and the number of the turn; none if the rollouts are known."""
    if layout.schema is not None or "rollout" in roles or layout.binding.rollouts == "none":
        return [], ""
    turn = next((name for name in TURNS if name in readable), "")
    ids = [name for name in ROLLOUT_IDS if name in free]
    if turn:
        ids += [name for name in IDS_OF_TURNS if name in readable]
    return ids, turn if ids else ""


def _sources(layout: Layout, readable: Collection[str]) -> list[str]:
    repeats = () if layout.schema is None else layout.schema.repeats
    return [name for name in SOURCES if name in readable and name not in repeats][:MOST_SOURCES]


def _unread_marks(layout: Layout, roles: Mapping[str, str], readable: Collection[str]) -> list[str]:
    if any(mark.unmet is None for mark in layout.marks):  # a flag or the schema says which rows are marked
        return []
    read = {*roles.values(), *layout.reasons, *(name for mark in layout.marks for name in mark.columns)}
    known = KNOWN_MARKS if layout.schema is not None else KNOWN_MARKS | MARKS_OF_PEOPLE
    return [name for name in known if name in readable and name not in read]


def _with_texts(
    columns: ForChecks, layout: Layout, roles: Mapping[str, str], used: Collection[str], *, warn: bool
) -> ForChecks:
    """The same with the texts that are compared within groups: those with the name of a prompt, or else others."""
    key = layout.key
    derived, no_prompts = ((), ()) if layout.schema is None else (layout.schema.derive, layout.schema.no_prompts)
    if not layout.binding.compare_prompts or "rollout" in roles or {*key} & {*derived}:
        return columns  # each step of a rollout may have its own prompt
    if prompts := prompts_by_name([name for name in layout.names if name not in no_prompts], key):
        return columns._replace(prompts=prompts)
    # Other texts are not compared if the key was named, comes from a known tool, or is a prompt itself.
    if not warn or layout.binding.group or not {*key} & {*GROUP_TIERS[0]}:
        return columns
    marked = [name for mark in layout.marks for name in mark.columns]
    taken = {*used, *roles.values(), *columns.columns, *marked, *layout.rollouts}
    return columns._replace(other_texts=other_texts(layout.tables[0], taken))
