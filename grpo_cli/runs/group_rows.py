"""Groups with their rows and texts: the group that `--show` names, and the table of a report."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import NoneType
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.read import known_names
from grpo_cli.read.group_keys import encode
from grpo_cli.read.known_names import TRUTHS
from grpo_cli.read.tables import column_names
from grpo_cli.read.texts import Labels, Passage, Reader, Said, TextColumns, code_of, plain_texts, written
from grpo_cli.stats.facts import at_ends, only_finite, reward_range, rows_of
from grpo_cli.stats.inspection import GROUP_FACTS, Inspection, RowLine, ShownGroup, describe_groups, prompt_columns
from grpo_cli.stats.trends import as_numbers
from grpo_cli.values.key_text import cut
from grpo_cli.values.key_text import plain as plain_text

GROUPS = 20_000  # groups in the table of a report
OPENED = 500  # of them have their rows in the page
ROWS = 16  # rows of each group
TEXT = 1_200_000  # characters of all texts of a report
LONGEST = 2000  # most characters of each text
SHORTEST = 60  # fewest characters of each text
AT_ONCE = 32  # groups whose texts are read together
READ_AT_ONCE = 1_000  # prompts that are read together
LABEL = 120  # characters of a key in the table
NARROWEST = 24  # the same where there are very many groups
LABELS = 600_000  # characters of all keys in the table
KEYS = 300_000  # characters of all keys that the search of a report covers
BEGINNINGS = 1_000_000  # characters of the beginnings of all prompts in the table
BEGINNING = 120  # characters of the beginning of a prompt
HEIGHTS = 8  # that a reward may have in a strip
STRIP = 16  # rewards in a strip; of more, as many evenly spread ones
MISSING = "-"  # in a strip: a row without a reward
ENVIRONMENTS = 100  # a column with more values names no environments


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
    """The groups of a report, those to look at first before the others: a line for each under `columns`, and the rows of some."""

    says: str  # the caption: how many groups are here, and how many with their rows
    columns: Sequence[str]  # the heads of all that is known of a group; the first is a short key, the second a number
    shown: Sequence[str]  # those of them that the table shows: the others say the same everywhere, or follow from these
    lines: Sequence[Sequence[Any]]  # the values of each group under `columns`
    keys: Sequence[str]  # the key of each group in full, or cut less than in its line: the search finds these
    beginnings: Sequence[str]  # of the prompt of each group; empty where it is the key, or unknown
    # the rewards of each group, the best first: a height from 0 (worst) to 7 (best), "-" for a row without one
    strips: Sequence[str]
    solved: bool  # whether every reward is the worst or the best: then a solve rate is k of n
    heads: Sequence[str] = ()  # of the numbers of a row, the same in all groups
    rows: Mapping[int, GroupRows] = field(
        default_factory=dict
    )  # the first rows of some groups, by their place in `lines`


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


def report_groups(inspection: Inspection) -> GroupTable:
    """A table of all groups, or of `GROUPS` of them, without rows."""
    codes = _listed(inspection)
    keys = [inspection.narrow.label(code) for code in codes.tolist()]
    columns = _columns(inspection, codes)
    solved = solved_or_not(inspection)
    width = _room(KEYS, len(codes), LONGEST, NARROWEST)
    return GroupTable(
        says="",
        columns=[*columns],
        shown=_shown(columns, solved=solved),
        lines=[*zip(*columns.values(), strict=True)],
        keys=[cut(key, width) for key in keys],
        beginnings=_beginnings(inspection, codes, keys),
        strips=_strips(inspection, codes),
        solved=solved,
    )


def with_rows(inspection: Inspection, table: GroupTable, *, most: int = OPENED, text: int = TEXT) -> GroupTable:
    """The table with the first rows of `most` groups.

    Conversations together have `text` characters, prompts at most half as many.
    """
    codes = np.array([line[table.columns.index("number")] - 1 for line in table.lines], dtype=np.int64)
    opened = _opened(inspection, table, most)
    each_rows = rows_of_groups(inspection, codes[opened].tolist(), ROWS)
    firsts = np.array([some[0] for some in each_rows], dtype=np.int64)
    room = _room(text // 2, len(firsts), LONGEST, SHORTEST)
    prompts = _prompts(inspection, firsts, [inspection.narrow.label(code) for code in codes[opened].tolist()], room)
    truths = _truths(inspection, firsts, room)
    conversations, ends_of = _conversations(inspection, each_rows, text)
    cells = _cells(inspection, np.concatenate([np.zeros(0, np.int64), *each_rows]), ends_of)
    of_rows = zip(*cells.values(), strict=True)
    sizes = rows_of(inspection.groups)[codes[opened]].to_list()
    of_groups = {}
    for at, (place, size) in enumerate(zip(opened.tolist(), sizes, strict=True)):
        some = [*islice(of_rows, len(each_rows[at]))]
        of_groups[place] = GroupRows(prompts[at], truths[at], size > ROWS, some, conversations.get(at))
    says = _caption(len(inspection.groups), len(codes), len(conversations))
    return replace(table, says=says, heads=[*cells], rows=of_groups)


def _prompts(inspection: Inspection, rows: Index, keys: Sequence[str], room: int) -> list[Sequence[Passage]]:
    """What the model was asked in these rows, cut to `room` characters; empty where that is the key of the group."""
    prompts = list[Sequence[Passage]]()
    for row, key in zip(said(inspection, rows), keys, strict=True):
        is_key = plain_text(written(row.prompt) or "") == key
        prompts.append([] if is_key else _shortened(row.prompt, room))
    return prompts


def _cells(inspection: Inspection, rows: Index, ends_of: Mapping[int, str]) -> dict[str, Sequence[Any]]:
    """The numbers of these rows, by the heads of their columns; and why each response ended, where that is known."""
    lines = describe_rows(inspection, rows)
    length = ["length"] if "length" in inspection.groups.columns else []
    names = inspection.narrow.reward_names
    several = names if len(names) > 1 else ()
    components = component_heads(several, {"file", "row", "reward", "advantage", "status", "ended", *length})
    cells: dict[str, Sequence[Any]] = {
        "row": [line.row for line in lines],
        **{head: [line.rewards[name] for line in lines] for name, head in components.items()},
        "reward": [line.reward for line in lines],
        "advantage": [*map(_finite_or_text, inspection.scored.rows[".advantage"].gather(rows))],
        "status": [line.status for line in lines],
        **{name: [line.length for line in lines] for name in length},
    }
    if any(ends_of.values()):
        cells["ended"] = [ends_of.get(row) or None for row in rows.tolist()]
    return cells


def _room(characters: int, texts: int, most: int, least: int) -> int:
    """The characters of each of some texts, which share these."""
    return max(least, min(most, characters // max(texts, 1)))


def _columns(inspection: Inspection, codes: Index) -> dict[str, Sequence[Any]]:
    """What is known of these groups: the key, the number, the step and the environment, and the facts."""
    narrow = inspection.narrow
    names = [name for name in GROUP_FACTS if name in inspection.groups.columns]
    groups = only_finite(inspection.groups[codes])
    columns: dict[str, Sequence[Any]] = {
        "key": Labels(narrow)(codes.tolist(), _room(LABELS, len(codes), LABEL, NARROWEST))
    }
    columns["number"] = (codes + 1).tolist()
    first_rows = narrow.groups.first.gather(codes)
    of_rows = {inspection.columns.get("by"): inspection.by}
    steps = inspection.columns.get("steps")
    of_rows[steps] = narrow.carried.get(steps or "")
    for name, values in of_rows.items():
        if values is not None and name is not None and name not in {"key", "number", "truncated", *GROUP_FACTS}:
            typed = as_numbers(values.gather(first_rows), typed=narrow.typed)
            columns[name] = [_simple(value) for value in typed]
    columns |= _environments(inspection, first_rows.to_numpy().astype(np.int64), {*columns})
    columns |= {name: [_short(value) for value in groups[name]] for name in names}
    if "truncated" in inspection.groups.columns and (inspection.groups["truncated"] > 0).any():
        columns["truncated"] = [_short(value) for value in inspection.groups["truncated"].gather(codes)]
    return columns


def _simple(value: Any) -> Any:
    """A value of a column as JSON has it."""
    return value if isinstance(value, (int, float, str, NoneType)) else str(value)


def _short(value: Any) -> Any:
    """A number of the table: a page of very many groups has no room for digits that nobody sees."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _environments(inspection: Inspection, first_rows: Index, others: Collection[str]) -> dict[str, Sequence[Any]]:
    """The environment of each group, if a column has some; nothing if it has as many values as there are prompts."""
    narrow = inspection.narrow
    taken = [name for part, name in inspection.columns.items() if part != "environment"]
    names = {*column_names(narrow.tables)} - {*others, *taken, *GROUP_FACTS}
    name = next((name for name in known_names.ENVIRONMENTS if name in names), None)
    if name is None or not len(first_rows):
        return {}
    values = plain_texts(narrow, first_rows, name)
    many = len({*values})
    return {name: values} if 1 < many <= min(ENVIRONMENTS, len(values) // 2) else {}


def solved_or_not(inspection: Inspection) -> bool:
    """Whether every reward is the worst or the best one."""
    rewards = inspection.raw.rows[".reward"]
    rewards = rewards.filter(rewards.is_finite())
    worst, best = at_ends(rewards.to_numpy(), reward_range(inspection.groups))
    return len(rewards) > 0 and bool((worst | best).all())


def _shown(columns: Mapping[str, Sequence[Any]], *, solved: bool) -> list[str]:
    """The columns that help to choose a group."""
    hidden = {"scored"} if columns["scored"] == columns["size"] else set()
    if solved:  # k of n says these
        hidden |= {"size", "scored", "mean", "std", "min", "max"}
    else:
        hidden |= {"min", "max"}  # the strip of rewards shows them
        hidden |= {"size"} if len({*columns["size"]}) == 1 else set()
        hidden |= {"solve_rate"} if columns["solve_rate"] == columns["mean"] else set()
    return [name for name in columns if name not in hidden]


def _listed(inspection: Inspection) -> Index:
    """The groups of the table, those that are never solved first, of equal ones the most often cut off and the longest; of very many an even sample."""
    groups = inspection.groups
    by = [name for name in ("solve_rate", "mean", "truncated", "length") if name in groups.columns]
    facts = pl.DataFrame([groups[name].cast(pl.Float64).fill_nan(None) for name in by])
    downwards = [name in {"truncated", "length"} for name in by]
    codes = (
        facts.select(pl.arg_sort_by([*facts], descending=downwards, nulls_last=True, maintain_order=True))
        .to_series()
        .to_numpy()
    )
    if len(codes) <= GROUPS:
        return codes
    return codes[np.linspace(0, len(codes) - 1, GROUPS).round().astype(np.int64)]


def _opened(inspection: Inspection, table: GroupTable, most: int) -> Index:
    """The places of the groups whose rows are in the page, in the order in which their texts are taken.

    In turns of the solve rates, by tenths, and in each of these in turns of the steps: whatever is clicked has some of them.
    """
    rates = [line[table.columns.index("solve_rate")] for line in table.lines]
    tenths = [None if rate is None else math.ceil(10 * rate) + (rate == 1) for rate in rates]
    step = inspection.columns.get("by")
    steps = (
        [str(line[table.columns.index(step)]) for line in table.lines] if step in table.columns else [""] * len(rates)
    )
    frame = pl.DataFrame({"rate": tenths, "step": steps}).with_columns(at=pl.int_range(pl.len()))
    frame = frame.with_columns(turn=pl.int_range(pl.len()).over("rate", "step")).sort("turn", "at")
    frame = frame.with_columns(turn=pl.int_range(pl.len()).over("rate")).sort("turn", "at")
    return frame["at"].to_numpy()[:most]


def _beginnings(inspection: Inspection, codes: Index, keys: Sequence[str]) -> list[str]:
    """The beginning of the prompt of each group; empty where the key says it. A prompt that recurs is read once."""
    narrow = inspection.narrow
    width = _room(BEGINNINGS, len(codes), BEGINNING, SHORTEST)
    names = [name for name in prompt_columns(narrow) if name in narrow.key.columns]
    first_rows = narrow.groups.first.gather(codes).to_numpy().astype(np.int64)
    prompts = encode([narrow.key[name].alias("").gather(codes) for name in names]) if names else None
    places = np.arange(len(codes)) if prompts is None else prompts.codes.to_numpy()
    firsts = first_rows if prompts is None else first_rows[prompts.first.to_numpy()]
    beginnings = []
    for start in range(0, len(firsts), READ_AT_ONCE):
        for each in said(inspection, firsts[start : start + READ_AT_ONCE]):
            asked = each.prompt[-1].text if each.prompt else ""
            beginnings.append(cut(plain_text(asked[: 4 * width]), width))
    found = []
    for place, key in zip(places.tolist(), keys, strict=True):
        text = beginnings[place]
        found.append("" if key.startswith(text[: width // 2]) else text)
    return found


def _strips(inspection: Inspection, codes: Index) -> list[str]:
    """The rewards of each group, the best first."""
    rows = inspection.raw.rows.select("group", reward=pl.col(".reward").cast(pl.Float64))
    low, high = reward_range(inspection.groups)
    low, high = (0.0 if low is None else low), (1.0 if high is None else high)
    share = ((pl.col("reward") - low) / (high - low)).clip(0, 1) if high > low else pl.lit(0.5)
    height = (share * (HEIGHTS - 1)).round().cast(pl.Int8).cast(pl.String)
    at, of = pl.int_range(pl.len()).over("group"), pl.len().over("group")
    thin = (of <= STRIP) | (at * STRIP // of != (at - 1) * STRIP // of) | (at == 0)
    drawn = (
        rows.filter(pl.col("reward").is_finite(), pl.col("group").is_in(codes.tolist()))
        .sort("group", "reward", descending=[False, True])
        .filter(thin)
        .group_by("group")
        .agg(strip=height.str.join(""))
    )
    known = dict(zip(drawn["group"], drawn["strip"], strict=True))
    groups = inspection.groups.select("size", "scored")[codes]
    strips = []
    for code, (size, scored) in zip(codes.tolist(), groups.iter_rows(), strict=True):
        strips.append((known.get(code, "") + MISSING * (size - scored))[:STRIP])
    return strips


def component_heads(names: Sequence[str], others: Collection[str]) -> dict[str, str]:
    """The heading of each reward column: its name, prefixed with `rewards.` if another column has that heading."""
    return {name: f"rewards.{name}" if name in others else name for name in names}


def _conversations(
    inspection: Inspection, each_rows: Sequence[Index], room: int
) -> tuple[dict[int, list[list[Passage]]], dict[int, str]]:
    """What was said in groups, by their places: in all of them, or in the first ones, which fill the room; and why the response of each row ended."""
    found: dict[int, list[list[Passage]]] = {}
    ends_of: dict[int, str] = {}
    for start in range(0, len(each_rows), AT_ONCE):
        places = range(len(each_rows))[start : start + AT_ONCE]
        rows_together = np.concatenate([each_rows[place] for place in places])
        texts = said(inspection, rows_together)
        ends_of |= {row: text.stop for row, text in zip(rows_together.tolist(), texts, strict=True)}
        following = iter(texts)
        for place in places:
            rows = [next(following).response for _ in each_rows[place]]
            turns = [_cut(row, LONGEST) for row in rows]
            size = sum(len(passage.text) for row in turns for passage in row)
            if size > room and found:
                return found, ends_of
            # A single group may be too large, too.
            found[place] = turns if size <= room else [_shortened(row, room // len(rows)) for row in rows]
            room -= size
    return found, ends_of


def _caption(total: int, shown: int, told: int) -> str:
    which = "1 group" if total == 1 else f"{total:,} groups"
    if shown < total:
        which = f"{shown:,} of {total:,} groups, evenly sampled"
    texts = "" if told == shown else f" {told:,} of them have their rollouts here, some of each solve rate."
    order = "Never solved and longest first." if shown > 1 else ""
    return f"{which}. {order}{texts} Click one to read it; grpo-adv browse has all, whole."


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
