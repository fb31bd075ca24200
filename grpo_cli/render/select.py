"""`select` on a terminal: how much is left, why the rest went, and where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.render.text import Sheet, clean, count, cut, duration, listing, number, percent

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
    for warning in facts["warnings"]:
        sheet.row("warning", clean(warning), style="yellow", hang=2)


def _sections(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    names = ["standard input" if name == "-" else clean(name) for name in facts["inputs"]]
    yield "input", [(f"{count(len(names), 'file')}: " if len(names) > 1 else "") + listing(names)]
    note = next((text.partition(" = ")[2] for text in facts["notes"] if text.startswith("group = ")), "")
    yield (
        "groups",
        [
            f"{facts['kept_groups']:,} of {facts['groups']:,} kept{_of(facts['kept_groups'], facts['groups'])}",
            clean(f"by {note}"),
        ],
    )
    yield "rows", [f"{facts['kept_rows']:,} of {facts['rows']:,} kept{_of(facts['kept_rows'], facts['rows'])}"]
    for label, one in zip(["left out"] + [""] * len(facts["dropped"]), facts["dropped"], strict=False):
        yield label, _reason(one)
    before, after = facts["zero_variance_share"], facts["kept_zero_variance_share"]
    if before is not None:
        now = "none to compare" if after is None else percent(after)
        yield "zero variance", [f"{percent(before)} of the groups before, {now} now"]
    outputs = ["standard output" if name == "stdout" else clean(name) for name in facts["outputs"]]
    yield (
        "written",
        [
            (f"{count(len(outputs), 'file')}: " if len(outputs) > 1 else "") + listing(outputs),
            duration(facts["seconds"]),
        ],
    )


def _of(kept: int, all_of_them: int) -> str:
    return f" ({percent(kept / all_of_them)})" if all_of_them else ""


def _reason(one: Mapping[str, Any]) -> list[str]:
    """How much went for this reason, and the first keys of whole groups."""
    if "groups" not in one:
        return [f"{count(one['rows'], 'row')}: {clean(one['reason'])}"]
    keys = [cut(clean(key), KEY) for key in one["keys"][:KEYS]]
    more = f", ... {number(one['groups'] - len(keys))} more" if one["groups"] > len(keys) else ""
    return [
        f"{count(one['groups'], 'group')} ({count(one['rows'], 'row')}): {clean(one['reason'])}",
        f"  {', '.join(keys)}{more}",
    ]
