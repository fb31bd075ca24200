"""`select` on a terminal: how much is left, why the rest went, and where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.render.text import Sheet, clean, count, cut, duration, file_list, number, text_outcomes
from grpo_cli.stats.verdicts import key_note, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

KEY: Final = 32
KEYS: Final = 3


def render(facts: Mapping[str, Any], console: Console) -> None:
    """Print the summary."""
    sheet = Sheet(console)
    for label, lines in _sections(facts):
        sheet.row(label, lines, hang=2)
    sheet.warnings(facts["warnings"], hang=2)


def _sections(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    yield "input", [file_list(facts["inputs"])]
    yield "groups", [_kept(facts["kept_groups"], facts["groups"]), clean(f"by {key_note(facts)}")]
    yield "rows", [_kept(facts["kept_rows"], facts["rows"])]
    if outcomes := text_outcomes(facts):
        yield "rewards", outcomes
    for i, dropped in enumerate(facts["dropped"]):
        yield "" if i else "left out", left_out(dropped)
    before, after = facts["zero_variance_share"], facts["kept_zero_variance_share"]
    if before is not None:
        now = "none to compare" if after is None else percent(after)
        yield "zero variance", [f"{percent(before)} of the groups before, {now} now"]
    yield "written", [file_list(facts["outputs"]), duration(facts["seconds"])]


def _kept(kept: int, total: int) -> str:
    return f"{kept:,} of {total:,} kept" + (f" ({percent(kept / total)})" if total else "")


def left_out(dropped: Mapping[str, Any]) -> list[str]:
    """How much was left out for this reason, and the first keys of whole groups."""
    rows, reason = count(dropped["rows"], "row"), clean(dropped["reason"])
    if "groups" not in dropped:
        return [f"{rows}: {reason}"]
    keys = [cut(clean(key), KEY) for key in dropped["keys"][:KEYS]]
    more = f", ... {number(dropped['groups'] - len(keys))} more" if dropped["groups"] > len(keys) else ""
    return [f"{count(dropped['groups'], 'group')} ({rows}): {reason}", f"  {', '.join(keys)}{more}"]
