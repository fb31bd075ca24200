"""`select`, `export` and `add` on a terminal: what was read, what is left out and why, and the output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console

from grpo_cli.choosing.exports import Scale
from grpo_cli.choosing.selected import Selected
from grpo_cli.render.text import (
    LABEL,
    Sections,
    Sheet,
    clean,
    count,
    duration,
    file_list,
    number,
    rescaled,
    text_outcomes,
)
from grpo_cli.runs.add import Added, Joined
from grpo_cli.runs.export import Exported
from grpo_cli.stats.facts import Dropped
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.key_text import labels_of

KEYS = 3  # that are listed


def select(facts: Selected, console: Console) -> None:
    """Print the summary of `select`."""
    _print(_selected(facts, console.width), facts.warnings, console)


def export(facts: Exported, console: Console) -> None:
    """Print the summary of `export`."""
    _print(_exported(facts, console.width), facts.warnings, console)


def add(facts: Added, console: Console) -> None:
    """Print the summary of `add`."""
    _print(_added(facts), facts.warnings, console)


def _print(sections: Sections, warnings: Iterable[str], console: Console) -> None:
    sheet = Sheet(console)
    sheet.rows(sections)
    sheet.warnings(warnings)


def _selected(facts: Selected, width: int) -> Sections:
    yield "input", [file_list(facts.inputs)]
    yield "groups", [_kept(facts.kept_groups, facts.groups), clean(f"by {facts.key_note}")]
    if facts.rollouts != facts.rows:
        yield "rollouts", [_kept(facts.kept_rollouts, facts.rollouts)]
    rows = [
        _kept(facts.kept_rows, facts.rows),
        f"{count(facts.kept_rows, 'row')} of {count(facts.kept_prompts, 'prompt')}",
    ]
    for marked, kind in ((facts.kept_masked, "masked"), (facts.kept_left_out, "left out")):
        if marked:
            rows.append(f"{marked:,} {kind} among them")
    yield "rows", rows
    yield "rewards", text_outcomes(facts.map)
    yield from _left_out(facts.dropped, width)
    for name, beside in facts.beside.items():
        yield name, [f"{count(beside.groups, 'group')} ({count(beside.rows, 'row')})"]
    before = facts.zero_variance_share
    after = facts.kept_zero_variance_share
    if before is not None:
        now = "no group with two rows" if after is None else percent(after)
        yield "no gradient", [f"{percent(before)} of the groups before, {now} now"]
    yield "written", [file_list(facts.outputs), duration(facts.seconds)]


def _exported(facts: Exported, width: int) -> Sections:
    yield "input", [file_list(facts.inputs), count(facts.rows, "row")]
    yield "groups", [count(facts.groups, "group"), clean(f"by {facts.key_note}")]
    yield "rewards", text_outcomes(facts.map)
    yield "texts", [clean(facts.texts), *_of_chat(facts)]
    yield from _left_out(facts.dropped, width)
    scale = facts.scale
    if isinstance(scale, Scale) and (scale.worst, scale.best) != (0, 1):
        said = "unknown: all rewards are equal"
        if scale.worst != scale.best:
            said = rescaled(scale.worst, scale.best)
        yield "solve rate", [said]
    records = count(facts.records, "record")
    yield "records", [f"{records} for {facts.to}: {', '.join(facts.columns)}"]
    if facts.labels is not None:
        shares = [f"{word} {number:,} ({percent(number / facts.records)})" for word, number in facts.labels.items()]
        yield "labels", [" / ".join(shares)]
    if facts.lowest_reward_records:
        yield "", [f"{facts.lowest_reward_records:,} of them have the lowest reward"]
    for name, beside in facts.beside.items():
        yield name, [count(beside, "record")]
    yield "written", [file_list(facts.outputs), duration(facts.seconds)]
    yield "read by", [*facts.read_by]


def _of_chat(facts: Exported) -> Iterator[str]:
    """What had to become chat messages."""
    if facts.converted:
        yield f"{count(facts.converted, 'conversation')} written as chat messages"
    if facts.cut_traces:
        yield f"{count(facts.cut_traces, 'trace')} with several branches: the last one is taken"
    if facts.hidden_reasoning:
        yield f"{count(facts.hidden_reasoning, 'item')} of encrypted reasoning left out"


def _added(facts: Added) -> Sections:
    typed = {name: f"{name} ({dtype})" for name, dtype in facts.columns.items()}
    replaced = [typed.pop(name) for name in facts.replaced]
    yield "input", [file_list(facts.inputs), count(facts.rows, "row")]
    for word, names in (("added", [*typed.values()]), ("replaced", replaced)):
        if names:
            yield word, [clean(", ".join(names)), clean(f"from {facts.from_}")]
    if facts.joined is not None:
        yield "matched", [*_matched(facts.joined)]
    yield "written", [file_list(facts.outputs), duration(facts.seconds)]


def _matched(rows: Joined) -> Iterator[str]:
    pairs = [here if here == there else f"{here} = {there}" for here, there in rows.on.items()]
    by = clean(", ".join(pairs))
    yield f"{rows.matched:,} of {count(rows.rows, 'row')} by {by}"
    if rows.unmatched:
        yield f"{count(rows.unmatched, 'row')} without a match: null"
    if rows.unused:
        yield f"{count(rows.unused, 'row')} of the other file not used"
    if rows.repeated:
        yield f"{count(rows.repeated, 'key')} in several rows: {rows.take} taken"


def _kept(kept: int, total: int) -> str:
    said = f"{kept:,} of {total:,} kept"
    return f"{said} ({percent(kept / total)})" if total else said


def _left_out(dropped: Sequence[Dropped], width: int) -> Sections:
    """How much was dropped for each reason, and the first group keys."""
    label = "left out"
    for one in dropped:
        rows = count(one.rows, "row")
        reason = clean(one.reason)
        lines = [f"{rows}: {reason}"]
        if one.groups is not None and one.keys is not None:
            keys = labels_of(one.keys[:KEYS], (width - LABEL) // KEYS - len(", "))
            if one.groups > len(keys):
                keys.append(f"... {number(one.groups - len(keys))} more")
            lines = [f"{count(one.groups, 'group')} ({rows}): {reason}", f"  {'; '.join(keys)}"]
        yield label, lines
        label = ""
