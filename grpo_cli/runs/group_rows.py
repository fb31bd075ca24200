"""Groups with their rows and texts: the group that `--show` names, and the table of a report."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import NoneType
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.read.known_names import TRUTHS
from grpo_cli.read.tables import column_names
from grpo_cli.read.texts import Labels, Passage, Reader, Said, TextColumns, code_of, plain_texts, written
from grpo_cli.stats.facts import only_finite, rows_of
from grpo_cli.stats.inspection import GROUP_FACTS, Inspection, RowLine, ShownGroup, describe_groups
from grpo_cli.values.key_text import cut
from grpo_cli.values.key_text import plain as plain_text

GROUPS = 500  # groups in a report
ROWS = 16  # rows of each group
TEXT = 1_200_000  # characters of all texts of a report
LONGEST = 2000  # most characters of each text
SHORTEST = 60  # fewest characters of each text
AT_ONCE = 32  # groups whose texts are read together
LABEL = 120  # characters of a key in the table
KEYS = 300_000  # characters of all keys that the search of a report covers


@dataclass(frozen=True)
class GroupRows:
    """The rows of a group in a report."""

    prompt: Sequence[Passage]  # what the model was asked; empty if that is the key, or unknown
    truth: str | None  # what the responses are compared with; None if no column has it
    more: bool  # whether it has further rows
    lines: Sequence[Sequence[Any]]  # the numbers of each row under `heads` of the table, of up to 16 rows
    # the response of each row, in passages; None if the page has no room for it
    said: Sequence[Sequence[Passage]] | None


@dataclass(frozen=True)
class GroupTable:
    """The groups of a report: their `keys`, `columns` with a line each, and the rows of each under their `heads`."""

    says: str  # the caption: how many groups are here, and how many with texts
    columns: Sequence[str]  # the heads of the table of groups
    keys: Sequence[str]  # the key of each group in full, or cut less than in its line: the search finds these
    lines: Sequence[Sequence[Any]]  # the values of each group under `columns`
    heads: Sequence[str]  # of the numbers of a row, the same in all groups
    rows: Sequence[GroupRows]  # the first rows of each group, in the order of `lines`


def show_group(inspection: Inspection, key: str, most: int | None = None) -> ShownGroup:
    """A group with its facts and its rows: the first `most`, or all."""
    narrow = inspection.narrow
    code = code_of(narrow, key)
    (rows,) = rows_of_groups(inspection, [code], most)
    (facts,) = describe_groups(inspection.groups[code : code + 1], narrow.label)
    texts = said(inspection, rows)
    lines = describe_rows(inspection, rows)
    described = [replace(line, text=written(text.response)) for line, text in zip(lines, texts, strict=True)]
    return ShownGroup(group=facts, prompt=written(texts[0].prompt), rows=described)


def said(inspection: Inspection, rows: Index) -> list[Said]:
    """What was said in these rows."""
    named = TextColumns(response=inspection.columns.get("named", ""))
    return Reader(inspection.narrow, named).said(rows)


def report_groups(inspection: Inspection, *, most: int = GROUPS, text: int = TEXT) -> GroupTable:
    """A table of all groups or of `most` of them, and the first rows of each.

    Conversations together have `text` characters, prompts at most half as many.
    """
    narrow = inspection.narrow
    codes = _choose(inspection, most)
    groups = describe_groups(inspection.groups[codes], narrow.label)
    names = [name for name in GROUP_FACTS if name in inspection.groups.columns]
    columns = _columns(inspection, codes) | {name: [getattr(group, name) for group in groups] for name in names}
    each_rows = rows_of_groups(inspection, codes.tolist(), ROWS)
    firsts = np.array([some[0] for some in each_rows], dtype=np.int64)
    room = _room(text // 2, len(firsts), SHORTEST)
    prompts = _prompts(inspection, firsts, [group.key for group in groups], room)
    truths = _truths(inspection, firsts, room)
    conversations = _conversations(inspection, each_rows, text)
    cells = _cells(inspection, np.concatenate([np.zeros(0, np.int64), *each_rows]))
    of_rows = zip(*cells.values(), strict=True)
    sizes = rows_of(inspection.groups)[codes].to_list()
    of_groups = []
    for at, size in enumerate(sizes):
        some = [*islice(of_rows, len(each_rows[at]))]
        of_groups.append(GroupRows(prompts[at], truths[at], size > ROWS, some, conversations.get(at)))
    width = _room(KEYS, len(groups), LABEL)
    return GroupTable(
        says=_caption(len(inspection.groups), len(codes), len(conversations)),
        columns=[*columns],
        keys=[cut(group.key, width) for group in groups],
        lines=[*zip(*columns.values(), strict=True)],
        heads=[*cells],
        rows=of_groups,
    )


def _prompts(inspection: Inspection, rows: Index, keys: Sequence[str], room: int) -> list[Sequence[Passage]]:
    """What the model was asked in these rows, cut to `room` characters; empty where that is the key of the group."""
    prompts = list[Sequence[Passage]]()
    for row, key in zip(said(inspection, rows), keys, strict=True):
        is_key = plain_text(written(row.prompt) or "") == key
        prompts.append([] if is_key else _shortened(row.prompt, room))
    return prompts


def _cells(inspection: Inspection, rows: Index) -> dict[str, Sequence[Any]]:
    """The numbers of these rows, by the heads of their columns."""
    lines = describe_rows(inspection, rows)
    length = ["length"] if "length" in inspection.groups.columns else []
    names = inspection.narrow.reward_names
    several = names if len(names) > 1 else ()
    components = component_heads(several, {"file", "row", "reward", "advantage", "status", *length})
    return {
        "row": [line.row for line in lines],
        **{head: [line.rewards[name] for line in lines] for name, head in components.items()},
        "reward": [line.reward for line in lines],
        "advantage": [*map(_finite_or_text, inspection.scored.rows[".advantage"].gather(rows))],
        "status": [line.status for line in lines],
        **{name: [line.length for line in lines] for name in length},
    }


def _room(characters: int, texts: int, least: int) -> int:
    """The characters of each of some texts, which share these."""
    return max(least, min(LONGEST, characters // max(texts, 1)))


def _columns(inspection: Inspection, codes: Index) -> dict[str, Sequence[Any]]:
    """What says which groups these are: labels, numbers and the step."""
    narrow = inspection.narrow
    step = inspection.columns.get("by")
    columns: dict[str, Sequence[Any]] = {"key": Labels(narrow)(codes.tolist(), LABEL)}
    columns["number"] = (codes + 1).tolist()
    if inspection.by is not None and step is not None and step not in {"label", "number", *GROUP_FACTS}:
        first_rows = narrow.groups.first.gather(codes)
        values = inspection.by.gather(first_rows).to_list()
        columns[step] = [v if isinstance(v, (int, float, str, NoneType)) else str(v) for v in values]
    return columns


def component_heads(names: Sequence[str], others: Collection[str]) -> dict[str, str]:
    """The heading of each reward column: its name, prefixed with `rewards.` if another column has that heading."""
    return {name: f"rewards.{name}" if name in others else name for name in names}


def _choose(inspection: Inspection, most: int) -> Index:
    """The groups of the table: all, or an even sample from the largest to the smallest spread."""
    std = inspection.groups["std"].fill_nan(None).fill_null(-1.0).to_numpy()
    if len(std) <= most:
        return np.arange(len(std))
    places = np.linspace(0, len(std) - 1, most).round().astype(np.int64)
    return np.argsort(-std, kind="stable")[places]


def _conversations(inspection: Inspection, each_rows: Sequence[Index], room: int) -> dict[int, list[list[Passage]]]:
    """What was said in groups, by their places: in all of them, or in the first ones, which fill the room."""
    found: dict[int, list[list[Passage]]] = {}
    for start in range(0, len(each_rows), AT_ONCE):
        places = range(len(each_rows))[start : start + AT_ONCE]
        rows_together = np.concatenate([each_rows[place] for place in places])
        texts = iter(said(inspection, rows_together))
        for place in places:
            rows = [next(texts).response for _ in each_rows[place]]
            turns = [_cut(row, LONGEST) for row in rows]
            size = sum(len(passage.text) for row in turns for passage in row)
            if size > room and found:
                return found
            # A single group may be too large, too.
            found[place] = turns if size <= room else [_shortened(row, room // len(rows)) for row in rows]
            room -= size
    return found


def _caption(total: int, shown: int, told: int) -> str:
    texts = "" if told == shown else f" The page has the conversations of the first {told:,}."
    sample = f"An even sample of {shown:,} of {total:,} groups, the largest spread first."
    which = f"All {total:,} groups." if shown == total else sample
    return f"{which}{texts} Click a key to read its rows; grpo-adv browse FILES --show KEY shows them in full."


def rows_of_groups(inspection: Inspection, codes: list[int], most: int | None = None) -> list[Index]:
    """The rows of each of these groups in the order of the files: the first `most`, or all."""
    groups = inspection.narrow.groups
    if groups.together:
        each = zip(groups.first.gather(codes), rows_of(inspection.groups).gather(codes), strict=True)
        return [np.arange(first, first + size)[:most] for first, size in each]
    rows = inspection.narrow.table.select("group", row=pl.int_range(pl.len())).filter(pl.col("group").is_in(codes))
    found = rows.group_by("group").agg("row")
    rows_of_group = dict(zip(found["group"], found["row"], strict=True))
    return [rows_of_group[code][:most].to_numpy() for code in codes]


def _truths(inspection: Inspection, rows: Index, room: int) -> Sequence[str | None]:
    """What the responses of these rows are compared with, cut to `room` characters; None if no column is known for it."""
    names = {*column_names(inspection.narrow.tables)} - {*inspection.columns.values()}
    column = next((name for name in TRUTHS if name in names), None)
    if column is None or not len(rows):
        return [None] * len(rows)
    return [ends(text, room) for text in plain_texts(inspection.narrow, rows, column)]


def _shortened(passages: Sequence[Passage], room: int) -> list[Passage]:
    """The passages, which share the room, without the middle of those that are too long."""
    return _cut(passages, max(SHORTEST, room // max(len(passages), 1)))


def _cut(passages: Sequence[Passage], each: int) -> list[Passage]:
    return [Passage(speaker, ends(text, each) or "") for speaker, text in passages]


def ends(text: str | None, room: int) -> str | None:
    """The beginning of a text and its end, where the answer usually is."""
    if text is None or len(text) <= room:
        return text
    start = (room - 3) // 2
    return f"{text[:start]} … {text[start + 3 - room :]}"


def _finite_or_text(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def describe_rows(inspection: Inspection, rows: Index) -> list[RowLine]:
    """These rows without their texts."""
    narrow = inspection.narrow
    raw = inspection.rows[rows]
    scored = inspection.scored.rows[rows]
    length = raw["length"] if "length" in raw.columns else pl.Series([None] * len(rows))
    columns = {"reward": raw[".reward"], "advantage": scored[".advantage"], "status": scored[".status"]}
    facts = only_finite(pl.DataFrame({**columns, "length": length}))
    components = only_finite(narrow.table[rows].select(pl.selectors.starts_with("reward.")))
    lines = []
    for row, values, line in zip(rows.tolist(), components.iter_rows(), facts.iter_rows(named=True), strict=True):
        file, number = narrow.spot(row)
        rewards = dict(zip(narrow.reward_names, values, strict=True))
        lines.append(RowLine(file, number, rewards, **line, text=None))
    return lines
