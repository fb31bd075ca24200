"""The groups at either end of a fact, and a group in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.errors import UnknownName
from grpo_cli.stats import difficulty, facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.read.tables import Narrow

    Places = np.ndarray[tuple[int], np.dtype[np.int64]]
    Keys = np.ndarray[tuple[int], np.dtype[np.float64]]

# What groups can be listed by, and what a line of the list says.
GROUP_FACTS: Final = ("size", "scored", "mean", "std", "min", "max", "solve_rate", "length")


def listed(groups: pl.DataFrame, narrow: Narrow, sort: str, top: int) -> dict[str, Any]:
    """The groups with the most and with the least of a fact, among those with two rewards to compare."""
    there = [name for name in GROUP_FACTS if name in groups.columns]
    if sort not in there:
        raise UnknownName.among("fact of a group", sort, there)
    seen = difficulty.comparable(groups).filter(pl.col(sort).is_not_null())
    keys = [seen[name].cast(pl.Float64).to_numpy() for name in (sort, "scored")]
    places = np.arange(len(seen))
    high = _first(places, [-key for key in keys], top)
    low = _first(places[::-1], keys, max(min(top, len(seen) - top), 0))[::-1]
    return {"sort": sort, **{end: described(seen[at], narrow) for end, at in (("most", high), ("least", low))}}


def _first(places: Places, keys: Sequence[Keys], most: int) -> Places:
    """The first so many places by these keys, in order, as if all had been sorted: of millions only a few are."""
    if len(places) <= most or not keys:
        return places[np.lexsort([key[places] for key in reversed(keys)])] if keys else places[:most]
    values = keys[0][places]
    last = np.partition(values, most - 1)[most - 1] if most else -np.inf
    before, equal = places[values < last], places[values == last]
    rest = _first(equal, keys[1:], most - len(before))
    return np.concatenate([before[np.lexsort([key[before] for key in reversed(keys)])], rest])


def described(groups: pl.DataFrame, narrow: Narrow) -> list[dict[str, Any]]:
    """These groups as plain data, each with its key."""
    names = [name for name in GROUP_FACTS if name in groups.columns]
    return [
        {"key": narrow.label(code), **{name: _plain(value) for name, value in zip(names, rest, strict=True)}}
        for code, *rest in groups.select("code", *names).iter_rows()
    ]


def _plain(value: Any) -> Any:
    return facts.plain(value) if isinstance(value, float) else value
