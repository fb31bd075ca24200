"""The rows of one group as `--show` tells them: reward, advantage, and what the text begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from grpo_cli.read import excerpts
from grpo_cli.stats.extremes import described
from grpo_cli.stats.facts import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.stats.inspection import Inspection


def shown(inspection: Inspection, key: str, most: int | None = None) -> dict[str, Any]:
    """A group with its facts and its rows, all of them or the first so many."""
    narrow, columns = inspection.narrow, inspection.columns
    code = excerpts.code_of(narrow, key)
    rows = np.flatnonzero(narrow.table["group"].to_numpy() == code)[:most]
    (facts,) = described(inspection.groups[code : code + 1], narrow)
    texts: Sequence[str | None] = [None] * len(rows)
    if "text" in columns:
        texts = excerpts.texts(narrow, rows, columns["text"])
    prompt = excerpts.texts(narrow, rows[:1], columns["prompt"])[0] if "prompt" in columns else None
    return {**facts, "prompt": prompt, "rows": numbers(inspection, rows, texts)}


def numbers(
    inspection: Inspection, rows: np.ndarray[tuple[int], np.dtype[np.int64]], texts: Sequence[str | None]
) -> list[dict[str, Any]]:
    """Row by row: place, every reward column, the reward that counts, the advantage, its status, length and text."""
    narrow, frame = inspection.narrow, inspection.rows
    here, scored = frame[rows], inspection.scored.rows[rows]
    columns = {name: narrow.table[f"reward.{k}"][rows] for k, name in enumerate(narrow.reward_names)}
    lengths = here["length"] if "length" in here.columns else [None] * len(rows)
    return [
        {
            **dict(zip(("file", "row"), narrow.spot(int(row)), strict=True)),
            "rewards": {name: plain(values[i]) for name, values in columns.items()},
            "reward": plain(here[".reward"][i]),
            "advantage": plain(scored[".advantage"][i]),
            "status": str(scored[".status"][i]),
            "length": plain(lengths[i]),
            "text": texts[i],
        }
        for i, row in enumerate(rows)
    ]
