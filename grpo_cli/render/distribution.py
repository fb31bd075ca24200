"""A distribution as lines: its numbers, and its histogram."""

from __future__ import annotations

import math

from grpo_cli.render.text import bar_lines, blocks, number
from grpo_cli.stats.facts import Advantages, Distribution, ValueCounts

BARS = 6  # up to this many values have a line each


def bars(distribution: Distribution) -> list[str]:
    """The histogram of a distribution as lines: a bar per value if there are few, else a block per value or bin.

    The labels are the smallest and the largest value: the edges of bins lie between values, as -0.01667.
    """
    histogram = distribution.histogram
    scale = largest(distribution)
    if histogram is None:
        return []
    note = ""
    if isinstance(histogram, ValueCounts):
        values = histogram.values
        if len(values) <= BARS:
            return bar_lines([number(value, scale) for value in values], histogram.counts)
        note = f"   one bar per value ({len(values)} values)"
    low = number(distribution.min, scale)
    high = number(distribution.max, scale)
    return [f"{low} |{blocks(histogram.counts)}| {high}{note}"]


def distribution_lines(distribution: Distribution) -> list[str]:
    """Mean, std, quartiles and histogram of `facts.distribution`."""
    scale = largest(distribution)
    values = (distribution.min, *distribution.quartiles, distribution.max)
    named = zip(("min", "25%", "median", "75%", "max"), values, strict=True)
    return [
        f"mean {number(distribution.mean, scale)}  std {spread(distribution)}",
        "  ".join(f"{name} {number(value, scale)}" for name, value in named),
        *bars(distribution),
    ]


def spread(distribution: Distribution | Advantages) -> str:
    """The std; 0 only where it is no more than the rounding of the largest value: 1e12 + {0, 1} has one of 0.5."""
    std = distribution.std
    scale = largest(distribution)
    is_rounding = std is not None and std <= 2 * math.ulp(scale)
    return number(0.0 if is_rounding else std)


def largest(distribution: Distribution | Advantages) -> float:
    """The largest magnitude of a distribution; values far below it are rounding errors."""
    return max((abs(end) for end in (distribution.min, distribution.max) if end is not None), default=0.0)
