"""Replace dropped groups with copies of surviving ones (Polaris, Trinity-RFT).

Dropping groups shrinks a training batch. Trinity keeps the number of *groups* by copying survivors, so the number of
rows stays the same only if all groups have one size. Trinity samples differently in every run; here a seed decides.
"""

from __future__ import annotations

import numpy as np

from grpo_cli.engine.group_stats import Mask, Segments
from grpo_cli.engine.moments import Codes, Index


def refill(group_codes: Codes, kept: Mask, seed: int) -> Index:
    """The source row of every row of the result: the kept rows in order, then the copies.

    A group is lost if none of its rows is kept. For each lost group a surviving group is sampled, uniformly and with
    replacement, and its kept rows are appended in order. If no row is kept, there is nothing to copy.
    """
    rows = np.flatnonzero(kept).astype(np.int64)
    if not len(rows):
        return rows
    survivors, order = Segments.of(group_codes[rows])
    groups = np.split(rows[order], survivors.starts[1:])
    lost = len(np.unique(group_codes)) - len(groups)
    sampled = np.random.default_rng(seed).integers(len(groups), size=lost)
    return np.concatenate([rows, *(groups[at] for at in sampled)])
