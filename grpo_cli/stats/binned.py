"""How often values occur, by kind: few values one by one, many in bins. Figures draw the lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import SAMPLE
from grpo_cli.stats.facts import even_bins

BINS: Final = 40
VALUES: Final = 101  # up to this many distinct values (k/100) have a bar each

Lines = list[Any]  # of dictionaries, as Vega takes them


class Change(TypedDict("BinFrom", {"from": NotRequired[float]})):
    """How many prompts or rows changed by this much: for a value, or for a bin if there are many values."""

    value: NotRequired[float]
    to: NotRequired[float]
    kind: str
    count: int


def count_by_kind(values: pl.Series, places: Any, kinds: Sequence[str], times: pl.Series | None = None) -> Lines:
    """Counts of values, or of bins if there are many, for each kind; `places` is the index in `kinds` of each value.

    `times` is how often each value occurs, if not once.
    """
    known = values.is_finite().fill_null(value=False).to_numpy()
    numbers, weights = values.to_numpy(), None if times is None else times.to_numpy()
    if not known.all():
        numbers, places, weights = numbers[known], places[known], None if weights is None else weights[known]
    if not len(numbers):
        return []
    across, bins = bins_of(numbers)
    counts = np.bincount(across * len(kinds) + places, weights, len(bins) * len(kinds)).reshape(len(bins), -1)
    return [
        {**of_bin, "kind": kind, "count": int(counts[i, k])}
        for i, of_bin in enumerate(bins) for k, kind in enumerate(kinds) if counts[i, k]
    ]  # fmt: skip


def bins_of(numbers: Any, most: int = BINS, few: int = VALUES) -> tuple[Any, Lines]:
    """The bin of each number, and the bins: single values if there are few."""
    some = numbers[:SAMPLE]  # if these have many values, the others do not matter
    values = pl.Series(some if len(np.unique(some)) > few else numbers).unique().sort().to_numpy()
    if len(values) <= few:
        return np.searchsorted(values, numbers), [{"value": float(value)} for value in values]
    bins, edges = even_bins(numbers, most)
    return bins(numbers), [{"from": start, "to": end} for start, end in pairwise(edges.tolist())]
