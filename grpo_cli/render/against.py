"""`inspect --against` on a terminal: how solve rates changed from one run to another."""

from __future__ import annotations

from typing import Final

from rich.console import Console

from grpo_cli.render.text import Sheet, clean, column, file_list, number, rescaled
from grpo_cli.stats.against import Against, Band, Interval
from grpo_cli.stats.intervals import in_words
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.key_text import labels_of

KEY: Final = 40  # characters of the key of a prompt that is in one run only


def render(facts: Against, console: Console) -> None:
    """Print what changed."""
    sheet, rate = Sheet(console), facts.solve_rate
    sheet.row("now", file_list(facts.inputs))
    sheet.row("before", file_list(facts.against))
    sheet.row("prompts", f"{facts.prompts:,} in both runs, matched by {clean(', '.join(facts.key))}")
    for word, part in (("only now", facts.only_now), ("only before", facts.only_before)):
        if part.prompts:
            keys = ", ".join(labels_of(part.keys, KEY))
            more = ", ..." if part.prompts > len(part.keys) else ""
            sheet.row("", f"{word} {part.prompts:,}: {keys}{more}")
    sheet.blank()
    chance, flips = facts.chance, facts.flips
    level = f"{percent(rate.level)} interval"
    interval = "no interval: only one prompt" if rate.low is None else f"{level} {_interval(rate)}"
    change = f"{number(rate.before)} to {number(rate.now)}: {rate.change:+.4f}"
    lines = [change, f"{interval}, {in_words(facts.p)}"]
    if facts.detectable is not None and facts.detectable < 1:
        lines.append(f"80% power to detect a change of {facts.detectable:.3f} or more")
    if (facts.worst, facts.best) != (0, 1):
        lines.append(rescaled(facts.worst, facts.best))
    sheet.row("solve rate", lines)
    counts = [
        f"{facts.better:,} better, {facts.worse:,} worse, {facts.same:,} the same",
        f"(by chance {chance.better:,.1f}, {chance.worse:,.1f} and {chance.same:,.1f})",
        f"newly solved {facts.solved_first:,}, lost {facts.solved_no_more:,}",
        f"(by chance {chance.solved_first:,.1f} and {chance.solved_no_more:,.1f})",
        f"crossed a solve rate of 0.5: {flips.up:,} up, {flips.down:,} down",
        f"(by chance {chance.flips.up:,.1f} and {chance.flips.down:,.1f})",
    ]
    sheet.row("changes", counts)
    sheet.blank()
    sheet.text("by difficulty: the solve rate over both runs", style="bold")
    heads = ["difficulty", "prompts", "before", "now", "change", level]
    bands = facts.by_difficulty
    rates = (column([line.before for line in bands]), column([line.now for line in bands]))
    rows = [
        [
            line.difficulty,
            f"{line.prompts:,}",
            *both,
            f"{line.change:+.4f}",
            "-" if line.low is None else _interval(line),
        ]
        for line, *both in zip(bands, *rates, strict=True)
    ]
    sheet.table(heads, rows)
    if not (facts.gained or facts.lost):
        sheet.row("gained, lost", "no single prompt stands out from chance")
    for word, prompts in (("gained most", facts.gained), ("lost most", facts.lost)):
        numbers = [
            f"{prompt.shrunken:+.2f} of {prompt.change:+.2f}  {number(prompt.before)} to {number(prompt.now)}  #{prompt.number} "
            for prompt in prompts
        ]
        labels = labels_of([prompt.key for prompt in prompts], sheet.width - max(map(len, numbers), default=0))
        for at, (text, label) in enumerate(zip(numbers, labels, strict=True)):
            sheet.row("" if at else word, text + label)
    if facts.gained or facts.lost:
        sheet.row("", "(the first number is the change after shrinking it for noise)")
    sheet.blank()
    sheet.warnings(facts.warnings)
    sheet.row("verdict", facts.verdict)


def _interval(line: Interval | Band) -> str:
    return f"{line.low:+.4f} to {line.high:+.4f}"
