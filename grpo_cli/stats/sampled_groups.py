"""The groups that a report lists, and the rows that it shows of each: all of few, a choice of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.read import excerpts
from grpo_cli.stats.extremes import GROUP_FACTS, described
from grpo_cli.stats.group_rows import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from grpo_cli.stats.inspection import Inspection

GROUPS: Final = 1000
ROWS: Final = 16  # of a group
TEXT: Final = 1_200_000  # characters of all texts
LONGEST: Final = 2000
SHORTEST: Final = 60

Places = np.ndarray[tuple[int], np.dtype[np.int64]]


def listed(
    found: Inspection, advantages: Mapping[str, pl.Series], *, most: int = GROUPS, text: int = TEXT, texts: bool = True
) -> dict[str, Any]:
    """Lines of the table, and for each of them the rows of the group."""
    codes = chosen(found, most)
    facts = described(found.groups[codes], found.narrow)
    columns = ["key", *(name for name in GROUP_FACTS if facts and name in facts[0])]
    rows, prompts = _rows(found, codes, advantages, text, texts=texts)
    several = len(found.narrow.reward_names) > 1
    heads = ["row", *(found.narrow.reward_names if several else ()), "reward", *advantages, "status"]
    heads += [*(["length"] if "length" in columns else []), *(["text"] if texts and "text" in found.columns else [])]
    sizes = found.groups["size"][codes].to_list()
    return {
        "says": _says(found, len(codes)),
        "columns": columns,
        "lines": [[line[name] for name in columns] for line in facts],
        "heads": heads,
        "rows": [
            {"prompt": prompt, "more": size > ROWS, "lines": [[line[name] for name in heads] for line in lines]}
            for lines, prompt, size in zip(rows, prompts, sizes, strict=True)
        ],
    }


def chosen(found: Inspection, most: int) -> Places:
    """The groups of the table in their order: of many the most informative half, and as many from all over the rest."""
    total = len(found.groups)
    if total <= most:
        return np.arange(total)
    std = found.groups["std"].fill_nan(None).fill_null(-1.0).to_numpy()
    best = np.sort(np.argsort(-std, kind="stable")[: most // 2])
    rest = np.setdiff1d(np.arange(total), best)
    spread = rest[np.linspace(0, len(rest) - 1, most - len(best)).round().astype(np.int64)]
    return np.union1d(best, spread)


def _says(found: Inspection, shown: int) -> str:
    total = len(found.groups)
    if shown == total:
        return f"All {total:,} groups. A click on a key opens its rows."
    half = shown // 2
    return f"{shown:,} of {total:,} groups: the {half:,} with the largest spread, and others from all over. A click on a key opens its rows."


def _rows(
    found: Inspection, codes: Places, advantages: Mapping[str, pl.Series], budget: int, *, texts: bool
) -> tuple[list[list[dict[str, Any]]], list[str | None]]:
    places = _places(found, codes)
    flat = np.concatenate(places) if places else np.zeros(0, np.int64)
    room = max(SHORTEST, min(LONGEST, budget // max(len(flat), 1)))
    told: list[str | None] = _texts(found, "text", flat, room) if texts else [None] * len(flat)
    firsts = np.array([rows[0] for rows in places], dtype=np.int64)
    prompts: list[str | None] = _texts(found, "prompt", firsts, room) if texts else [None] * len(places)
    lines = numbers(found, flat, told)
    for name, values in advantages.items():
        for line, value in zip(lines, values.gather(flat).to_list(), strict=True):
            line[name] = value if value is None or np.isfinite(value) else str(value)
    flattened = [line | line["rewards"] for line in lines]
    ends = np.cumsum([len(rows) for rows in places])
    return [flattened[end - len(rows) : end] for rows, end in zip(places, ends, strict=True)], prompts


def _texts(found: Inspection, part: str, rows: Places, room: int) -> list[str | None]:
    if part not in found.columns or not len(rows):
        return [None] * len(rows)
    return [_cut(text, room) for text in excerpts.texts(found.narrow, rows, found.columns[part])]


def _cut(text: str | None, room: int) -> str | None:
    return text if text is None or len(text) <= room else f"{text[: room - 1]}…"


def _places(found: Inspection, codes: Places) -> Sequence[Places]:
    """The first rows of each of these groups."""
    group = found.narrow.table["group"].to_numpy()
    wanted = np.zeros(len(found.groups), dtype=bool)
    wanted[codes] = True
    rows = np.flatnonzero(wanted[group])
    order = np.argsort(group[rows], kind="stable")
    rows = rows[order]
    starts = np.searchsorted(group[rows], codes)
    ends = np.searchsorted(group[rows], codes, side="right")
    return [rows[start : min(end, start + ROWS)] for start, end in zip(starts, ends, strict=True)]
