"""Groups with their rows: the one that `--show` names, and those that a report lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.read import excerpts
from grpo_cli.stats.facts import plain
from grpo_cli.stats.inspection import GROUP_FACTS, describe_groups

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import polars as pl

    from grpo_cli.stats.inspection import Inspection

GROUPS: Final = 1000  # of a report
ROWS: Final = 16  # of a group of a report
TEXT: Final = 1_200_000  # characters of all texts of a report
LONGEST: Final = 2000  # characters of one of them
SHORTEST: Final = 60

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


def show_group(inspection: Inspection, key: str, most: int | None = None) -> dict[str, Any]:
    """A group with its facts and its rows, all of them or the first so many."""
    narrow = inspection.narrow
    code = excerpts.code_of(narrow, key)
    rows = np.flatnonzero(narrow.table["group"].to_numpy() == code)[:most]
    (facts,) = describe_groups(inspection.groups[code : code + 1], narrow.label)
    (prompt,) = _texts(inspection, "prompt", rows[:1])
    return {**facts, "prompt": prompt, "rows": _describe_rows(inspection, rows, _texts(inspection, "text", rows))}


def report_groups(
    inspection: Inspection,
    advantages: Mapping[str, pl.Series],
    *,
    most: int = GROUPS,
    text: int = TEXT,
    texts: bool = True,
) -> dict[str, Any]:
    """A table of groups, all or a choice of so many, and for each of them its first rows.

    `advantages` are columns by method; the texts have `text` characters together, or with texts=False none.
    """
    narrow = inspection.narrow
    codes = _choose(inspection, most)
    facts = describe_groups(inspection.groups[codes], narrow.label)
    columns = ["key", *(name for name in GROUP_FACTS if facts and name in facts[0])]
    others = ["reward", *advantages, "status"]
    others += ["length"] if "length" in columns else []
    others += ["text"] if texts and "text" in inspection.columns else []
    several = narrow.reward_names if len(narrow.reward_names) > 1 else ()
    components = component_heads(several, {"file", "row", "advantage", *others})
    heads = ["row", *components.values(), *others]

    rows_of_groups = _first_rows(inspection, codes)
    rows = np.concatenate(rows_of_groups) if rows_of_groups else np.zeros(0, np.int64)
    room = max(SHORTEST, min(LONGEST, text // max(len(rows), 1)))
    prompts: Sequence[str | None] = [None] * len(codes)
    responses: Sequence[str | None] = [None] * len(rows)
    if texts:
        firsts = np.array([some[0] for some in rows_of_groups], dtype=np.int64)
        prompts, responses = _texts(inspection, "prompt", firsts, room), _texts(inspection, "text", rows, room)
    lines = _describe_rows(inspection, rows, responses)
    for line in lines:
        line |= {head: line["rewards"][name] for name, head in components.items()}
    for name, values in advantages.items():
        for line, value in zip(lines, values.gather(rows).to_list(), strict=True):
            line[name] = value if value is None or np.isfinite(value) else str(value)
    cells = iter([[line[name] for name in heads] for line in lines])
    sizes = inspection.groups["size"][codes].to_list()
    return {
        "says": _caption(len(inspection.groups), len(codes)),
        "columns": columns,
        "lines": [[line[name] for name in columns] for line in facts],
        "heads": heads,
        "rows": [
            {"prompt": prompt, "more": size > ROWS, "lines": [next(cells) for _ in some]}
            for some, prompt, size in zip(rows_of_groups, prompts, sizes, strict=True)
        ],
    }


def component_heads(names: Sequence[str], others: Collection[str]) -> dict[str, str]:
    """The heading of each reward column: its name, with `rewards.` before it where another column has that heading."""
    return {name: f"rewards.{name}" if name in others else name for name in names}


def _choose(inspection: Inspection, most: int) -> Rows:
    """The groups of the table in their order: of many the most informative half, and as many from all over the rest."""
    total = len(inspection.groups)
    if total <= most:
        return np.arange(total)
    std = inspection.groups["std"].fill_nan(None).fill_null(-1.0).to_numpy()
    best = np.sort(np.argsort(-std, kind="stable")[: most // 2])
    rest = np.setdiff1d(np.arange(total), best)
    evenly = rest[np.linspace(0, len(rest) - 1, most - len(best)).round().astype(np.int64)]
    return np.union1d(best, evenly)


def _caption(total: int, shown: int) -> str:
    if shown == total:
        return f"All {total:,} groups. A click on a key opens its rows."
    half = shown // 2
    return f"{shown:,} of {total:,} groups: the {half:,} with the largest spread, and others from all over. A click on a key opens its rows."


def _first_rows(inspection: Inspection, codes: Rows) -> list[Rows]:
    """The first rows of each of these groups."""
    group = inspection.narrow.table["group"].to_numpy()
    wanted = np.zeros(len(inspection.groups), dtype=bool)
    wanted[codes] = True
    rows = np.flatnonzero(wanted[group])
    rows = rows[np.argsort(group[rows], kind="stable")]
    starts = np.searchsorted(group[rows], codes)
    ends = np.searchsorted(group[rows], codes, side="right")
    return [rows[start : min(end, start + ROWS)] for start, end in zip(starts, ends, strict=True)]


def _texts(inspection: Inspection, part: str, rows: Rows, room: int | None = None) -> list[str | None]:
    """The texts of these rows, cut to `room` characters; None where there is no such column or no text."""
    if part not in inspection.columns or not len(rows):
        return [None] * len(rows)
    texts = excerpts.texts(inspection.narrow, rows, inspection.columns[part])
    return [t if t is None or room is None or len(t) <= room else f"{t[: room - 1]}…" for t in texts]


def _describe_rows(inspection: Inspection, rows: Rows, texts: Sequence[str | None]) -> list[dict[str, Any]]:
    """Row by row: place, every reward column, the reward that counts, the advantage, its status, length and text."""
    narrow, frame = inspection.narrow, inspection.rows[rows]
    scored = inspection.scored.rows[rows]
    columns = {name: narrow.table[f"reward.{k}"][rows] for k, name in enumerate(narrow.reward_names)}
    lengths = frame["length"] if "length" in frame.columns else [None] * len(rows)
    return [
        {
            **dict(zip(("file", "row"), narrow.spot(int(row)), strict=True)),
            "rewards": {name: plain(values[i]) for name, values in columns.items()},
            "reward": plain(frame[".reward"][i]),
            "advantage": plain(scored[".advantage"][i]),
            "status": str(scored[".status"][i]),
            "length": plain(lengths[i]),
            "text": texts[i],
        }
        for i, row in enumerate(rows)
    ]
