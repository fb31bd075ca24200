"""Rates with their intervals, in per cent."""

from __future__ import annotations

from grpo_cli.stats.intervals import Estimate

DIGITS = 1  # of a rate; an interval is never that narrow


def in_percent(found: Estimate | None) -> tuple[str, str]:
    """The mean and its interval; dashes if there is none."""
    return ("-", "-") if found is None else (f"{found.mean:.{DIGITS}%}", between(found))


def between(found: Estimate) -> str:
    """The ends of the interval; a dash if there are too few prompts for one."""
    if found.low is None or found.high is None:
        return "-"
    low = 100 * found.low
    high = 100 * found.high
    return f"{low:.{DIGITS}f} to {high:.{DIGITS}f}"
