"""A histogram in a few lines of text: a bar for each value where they are few, else one line of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.view.sheet import BLOCKS
from grpo_cli.view.words import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LISTED: Final = 6
LONGEST: Final = 30


def bars(histogram: Mapping[str, Any] | None) -> list[str]:
    """The lines for a histogram of `facts.distribution`."""
    if histogram is None:
        return []
    if "edges" in histogram:
        low, high = number(histogram["edges"][0]), number(histogram["edges"][-1])
        return [f"{low} |{blocks(histogram['counts'])}| {high}"]
    if len(histogram["values"]) <= LISTED:
        return _listed(histogram["values"], histogram["counts"])
    low, high = number(histogram["values"][0]), number(histogram["values"][-1])
    return [f"{low} |{blocks(histogram['counts'])}| {high}   one bar for each of {len(histogram['values'])} values"]


def blocks(counts: Sequence[int]) -> str:
    """One character each, as high as the count: a space for none, at least the lowest block for any."""
    top = max(counts)
    return "".join(BLOCKS[_height(count, top, len(BLOCKS)) - 1] if count else " " for count in counts)


def _listed(values: Sequence[float], counts: Sequence[int]) -> list[str]:
    names, sizes = [number(value) for value in values], [f"{count:,}" for count in counts]
    wide, high = max(map(len, names)), max(map(len, sizes))
    return [
        f"{name:>{wide}}  {size:>{high}}  {BLOCKS[-1] * _height(count, max(counts), LONGEST)}"
        for name, size, count in zip(names, sizes, counts, strict=True)
    ]


def _height(count: int, top: int, most: int) -> int:
    return max(1, round(count / top * most))
