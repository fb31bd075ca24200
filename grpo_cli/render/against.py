"""`inspect --against` on a terminal: how solve rates changed from one run to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_cli.render.text import Sheet, aligned, clean, count, cut, file_list, number
from grpo_cli.stats.verdicts import percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

KEY = 40


def render(facts: Mapping[str, Any], console: Console) -> None:
    """Print what changed."""
    sheet, rate = Sheet(console), facts["solve_rate"]
    sheet.row("now", file_list(facts["inputs"]))
    sheet.row("before", file_list(facts["against"]))
    sheet.row("prompts", f"{count(facts['prompts'], 'prompt')} in both, by {clean(', '.join(facts['key']))}")
    for word, part in (("only now", facts["only_now"]), ("only before", facts["only_before"])):
        if part["prompts"]:
            keys = ", ".join(cut(clean(key), KEY) for key in part["keys"])
            more = ", ..." if part["prompts"] > len(part["keys"]) else ""
            sheet.row("", f"{word} {part['prompts']:,}: {keys}{more}", hang=2)
    sheet.blank()
    interval = (
        f"{percent(rate['level'])} of {rate['draws']:,} draws of the prompts: {rate['low']:+.4f} to {rate['high']:+.4f}"
    )
    sheet.row(
        "solve rate",
        [f"{number(rate['before'])} to {number(rate['now'])}: {rate['change']:+.4f}", interval],
    )
    flips = facts["flips"]
    sheet.row(
        "changes",
        [
            f"{facts['better']:,} better, {facts['worse']:,} worse, {facts['same']:,} the same",
            f"{facts['solved_first']:,} solved that never were, {facts['solved_no_more']:,} no more",
            f"{flips['up']:,} now solved at least half the time, {flips['down']:,} no more",
        ],
    )
    sheet.blank()
    lines = facts["by_difficulty"]
    columns = [[line["difficulty"] for line in lines], [f"{line['prompts']:,}" for line in lines]]
    columns += [[number(line[name]) for line in lines] for name in ("before", "now")]
    columns.append([f"{line['change']:+.4f}" for line in lines])
    for line in aligned(["solved before", "prompts", "before", "now", "change"], columns, frozenset({0})):
        sheet.text(line)
    for word, prompts in (("gained most", facts["gained"]), ("lost most", facts["lost"])):
        for at, one in enumerate(prompts):
            text = (
                f"{one['change']:+.4f}  {number(one['before'])} to {number(one['now'])}  {cut(clean(one['key']), KEY)}"
            )
            sheet.row("" if at else word, text, hang=2)
    sheet.warnings(facts["warnings"], hang=2)
    sheet.row("verdict", facts["verdict"], style="cyan", hang=2)
