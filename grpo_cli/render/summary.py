"""The summary of a run: what was computed, from what, what it means, and where it went.

Every section takes the facts (plain data, see `grpo_cli.stats.facts`) and the plan, and gives labelled lines.
Colour alone never carries information, and warnings come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from grpo_cli.engine.plan import Plan
from grpo_cli.render import plan_text
from grpo_cli.render.text import (
    Sheet,
    clean,
    count,
    distribution_lines,
    duration,
    exact,
    file_list,
    largest,
    marked,
    number,
    row_count,
    text_outcomes,
)
from grpo_cli.stats.facts import every_group, marks_of
from grpo_cli.stats.verdicts import EQUAL_AT, key_note, percent
from grpo_cli.values.key_text import labels_of

Section = Callable[[Mapping[str, Any], Plan], Iterator[tuple[str, list[str]]]]


SCREEN: Final = 23  # lines of a small terminal, below the command
LEAST: Final = 3  # lines of a formula that are always shown
REST: Final = "  ... (--explain shows all of it)"
KEY: Final = 32
SKIPPED: Final = {"drop": "their rows are dropped", "null": "their rows get null"}
SINGLETONS: Final = {
    "zero": "advantage 0",
    "raw": "advantage r",
    "nan": "advantage NaN",
    "null": "advantage null",
    "drop": "rows dropped",
}
UNSCORABLE: Final = {
    "exclude": "left out, advantage null",
    "zero": "left out, advantage 0",
    "as-zero": "counted as reward 0",
    "error": "left out",
}
PROPAGATED: Final = {
    "row": "their advantages are NaN",
    "later": "their advantages and those of later rows that build on them are NaN",
    "group": "their groups are NaN",
    "batch": "their batches are NaN",
}


def render(facts: Mapping[str, Any], console: Console) -> None:
    """Print the summary; of several parts each, and then what was written."""
    sheet = Sheet(console)
    if "parts" not in facts:
        _print(BLOCKS, facts, sheet, SCREEN)
        return
    for part in facts["parts"]:
        sheet.part(facts["plan_by"], part["value"])
        _print(BLOCKS_OF_PART, part, sheet)
        sheet.blank()
    total = f"{facts['rows']:,} in {count(facts['groups'], 'group')}"
    read = [("input", [file_list(facts["inputs"])]), ("rows", [total])]
    sheet.rows([*read, *written(facts, Plan())])
    sheet.warnings(facts["warnings"])


def _print(
    parts: Iterable[Sequence[Section]], facts: Mapping[str, Any], sheet: Sheet, screen: int | None = None
) -> None:
    """Print blocks; without warnings on one screen, if needed without empty lines and the end of a long formula."""
    plan = plan_text.plan_from_dict(facts["plan"])
    blocks = [rows(block, facts, plan, sheet) for block in parts]
    height = sum(map(sheet.height, blocks))
    spaced = screen is None or bool(facts["warnings"]) or height + len(blocks) - 1 <= screen
    if screen is not None and not spaced and height > screen:
        *_, (label, lines) = blocks[0]
        while sheet.height(blocks[0]) > screen - sum(map(sheet.height, blocks[1:])) and len(lines) > LEAST:
            lines = [*lines[:-2], REST]
            blocks[0][-1] = label, lines
    for i, block in enumerate(blocks):
        if i and spaced:
            sheet.blank()
        sheet.rows(block)
    sheet.warnings(facts["warnings"])


def rows(
    sections: Iterable[Section], facts: Mapping[str, Any], plan: Plan, sheet: Sheet
) -> list[tuple[str, list[str]]]:
    """The labelled lines of some sections; keys of groups are shortened for the sheet."""
    skipped = (*facts["skipped"], *facts["kept"])
    facts = {**facts, "skipped": {skip["reason"]: _labelled(skip, sheet.width) for skip in skipped}}
    return [row for section in sections for row in section(facts, plan)]


def method(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """The formula with its constants."""
    yield from preset(facts, plan)
    lines = [f"  {line}" for line in plan_text.describe(plan, facts["reward_columns"])]
    yield "method", [marked(plan.method, facts["plan"].get("package", "")), *lines]


def preset(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """The preset, and what flags changed in it."""
    named = facts.get("preset")
    if named is not None:
        overridden = [f"{k} {exact(v['plan'])}, not {exact(v['preset'])}" for k, v in named["overridden"].items()]
        said = [f"overridden: {'; '.join(overridden)}"] if overridden else []
        yield "preset", [marked(named["name"], named.get("from", "")), *said]


def inputs(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """Files, rows and row statuses."""
    if facts.get("inputs"):
        yield "input", [file_list(facts["inputs"])]
    if facts["schema"]:
        first, *others = facts["notes"]
        notes = [first.removeprefix("read as "), *(note for note in others if " = " not in note)]
        yield "schema", [clean(note) for note in notes]
    dropped = f"; {facts['dropped_rows']:,} not written" if facts.get("dropped_rows") else ""
    dropped += f"; {facts['copied_rows']:,} copies added" if facts.get("copied_rows") else ""
    status = [f"{size:,} {name}" for name, size in facts["status"].items() if size]
    yield "rows", [f"{row_count(facts)}: {', '.join(status)}{dropped}"]


def groups(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """Group sizes and the group key."""
    size = facts["group_sizes"]
    if size["min"] == size["max"]:
        sizes = f"{facts['groups']:,} x {count(size['max'], facts['unit'])}"
    else:
        sizes = f"{facts['groups']:,} of {size['min']:,} to {size['max']:,} {facts['unit']}s, median {number(size['median'])}"
    yield "groups", [f"{sizes}, by {clean(key_note(facts)) or ', '.join(facts['group_key'])}"]


def batches(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """The batches, if the plan uses any."""
    if not plan.uses_batch and facts["batches"] == 1:
        return
    key = facts["batch_key"]
    whole = "all rows of the part" if "value" in facts else "the whole input"
    by = {"input": whole, "file": "each file"}.get(key, f"each value of {clean(key)}")
    unused = "" if plan.uses_batch else ", not used by this plan"
    yield "batches", [f"{facts['batches']:,}: {by}{unused}"]


def reward(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """The distribution of the rewards."""
    rewards, name = facts["reward"], plan_text.weighted(plan, facts["reward_columns"], "r")
    outcomes = text_outcomes(facts)
    if not rewards["count"]:
        yield "rewards", [name, *outcomes, "no finite reward"]
        return
    name = f"{name} (before shaping)" if plan.shape else name
    yield "rewards", [name, *outcomes, *distribution_lines(rewards)]


def zero_variance(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Zero-variance groups: how many, and which."""
    constant, rule = facts["zero_variance"], plan.groups
    if constant["share"] is None:
        yield "zero variance", ["no group has two scored rows"]
        return
    lines = [_constant(constant, plan) if constant["groups"] else f"none: rewards differ in {every_group(facts)}"]
    if nearly := constant["nearly"]:
        lines.append(f"{count(nearly, 'group')} more {_are(nearly)} nearly zero-variance (relative spread <= 1e-9)")
    lines += _skipped_keys(facts, "zero-variance", "all" if rule.std_threshold is None else "mean")
    skipped = _skipped_groups(facts, "zero-variance")
    if skipped > constant["groups"]:
        more = count(skipped - constant["groups"], "group")
        lines.insert(1, f"{more} more with std <= {number(rule.std_threshold)}")
    if skipped and rule.zero_variance in SKIPPED:
        lines.append(SKIPPED[rule.zero_variance])
    yield "zero variance", lines


def _constant(constant: Mapping[str, Any], plan: Plan) -> str:
    """A centred formula gives such a group 0; other formulas do not, so the line only counts them."""
    split = ", ".join(f"{constant[name]:,} {kind}" for name, kind in EQUAL_AT.items() if constant[name])
    groups, share = constant["groups"], constant["share"]
    meaning = f"{'has' if groups == 1 else 'have'} zero variance"
    if plan_text.gives_constant_groups_0(plan):
        meaning = "carries no gradient" if groups == 1 else "carry no gradient"
        meaning += plan_text.before_whitening(plan)
    return f"{groups:,} of {count(round(groups / share), 'group')} {meaning} ({percent(share)}): {split}"


def others(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Singletons, small groups and rows without a reward, if there are any."""
    if facts["singletons"]:
        result = SINGLETONS.get(plan.alone.result) or plan_text.singletons(plan)[0].removeprefix("singletons: ")
        groups = f"{count(facts['singletons'], 'group')} with a single scored row: {result}"
        yield "singletons", [groups, *_skipped_keys(facts, "singleton", "reward")]
    if small := _skipped_groups(facts, "small-group"):
        fewer = f"with fewer than {plan.groups.min_size} scored rows {plan_text.SMALL[plan.groups.small]}"
        yield "small groups", [f"{count(small, 'group')} {fewer}", *_skipped_keys(facts, "small-group", "mean")]
    if facts["left_out"]:
        why = clean(marks_of(facts["marks"], "left_out"))
        yield "left out", [f"{count(facts['left_out'], 'row')}, advantage null ({why})"]
    if facts["masked"]:
        why = clean(marks_of(facts["marks"], "masked"))
        yield "masked", [f"{count(facts['masked'], 'row')} not trained on, the rewards count in their groups ({why})"]
    if why := clean(marks_of(facts["marks"], "foreign")):
        rows = sum(line["rows"] for line in facts["marks"] if line["kind"] == "foreign")
        yield "no rollouts", [f"{count(rows, 'row')} of no group, advantage null ({why})"]
    if without := facts["unscorable"] - facts["left_out"]:
        result = UNSCORABLE.get(plan.rewards.missing, PROPAGATED[plan.nan_reach])
        lines = [f"{count(without, 'row')} without a finite reward: {result}"]
        if empty := _skipped_groups(facts, "unscorable"):
            lines.append(f"{count(empty, 'group')} {'has' if empty == 1 else 'have'} no reward that counts")
        yield "unscorable", [*lines, *_skipped_keys(facts, "unscorable", "")]


def advantage(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """The distribution of the advantages."""
    values = facts["advantage"]
    scale = largest(values)
    lines = ["  ".join(f"{name} {number(values[name], scale)}" for name in ("mean", "std", "min", "max"))]
    if values["min"] is None:
        lines = ["no finite advantage"]
    kinds = (("zero", f"{_are(values['zero'])} 0"), ("null", "null"), ("nan", "NaN"))
    counts = [f"{values[key]:,} {words}" for key, words in kinds if values[key]]
    over = ["of rows: a rollout counts with each of its rows"] if facts["unit"] == "rollout" else []
    yield "advantages", [*over, ", ".join([*lines, *counts]), *_on_tokens(facts)]


def _on_tokens(facts: Mapping[str, Any]) -> list[str]:
    """How many tokens have an advantage; nothing without --per-token."""
    found = facts.get("per_token")
    if found is None:
        return []
    by = ", ".join(f"{part.replace('_', ' ')} = {clean(name)}" for part, name in found["columns"].items())
    return [f"on {found['response_tokens']:,} of {count(found['tokens'], 'token')} ({by})"]


def written(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """The output files and the time."""
    outputs = facts.get("outputs", ())
    took = duration(facts["seconds"]) if "seconds" in facts else ""
    if not outputs:
        yield "written", [f"nothing ({took})" if took else "nothing"]
        return
    files = file_list(outputs)
    names = [facts["advantage_column"], *facts.get("more_columns", ())] if "advantage_column" in facts else []
    columns = f"column{'s' if names[1:] else ''} {', '.join(map(clean, names))}" if names else ""
    yield "written", [", ".join(text for text in (files, columns, took) if text)]


READ: Final = (inputs, groups, batches)
BLOCKS: Final[tuple[tuple[Section, ...], ...]] = (
    (method,),
    READ,
    (reward,),
    (zero_variance, others),
    (advantage, written),
)
BLOCKS_OF_PART: Final = (*BLOCKS[:-1], (advantage,))


def _labelled(skip: Mapping[str, Any], width: int) -> dict[str, Any]:
    """The skipped groups with labels instead of keys, short enough for one line if the terminal is wide."""
    room = width // max(len(skip["keys"]), 1) - len(" (reward 0.5); ")
    labels = labels_of([group["key"] for group in skip["keys"]], max(KEY, room))
    return {**skip, "keys": [{**group, "key": label} for group, label in zip(skip["keys"], labels, strict=True)]}


def _skipped_groups(facts: Mapping[str, Any], reason: str) -> int:
    return facts["skipped"][reason]["groups"] if reason in facts["skipped"] else 0


def _skipped_keys(facts: Mapping[str, Any], reason: str, word: str) -> list[str]:
    """The first groups that were skipped for a reason, each with its reward after `word`."""
    if reason not in facts["skipped"]:
        return []
    skip = facts["skipped"][reason]
    rest = skip["groups"] - len(skip["keys"])
    keys = [
        group["key"] + (f" ({word} {number(group['reward'])})" if word and group["reward"] is not None else "")
        for group in skip["keys"]
    ]
    return ["; ".join(keys) + (f"; ... {rest:,} more" if rest else "")]


def _are(size: int) -> str:
    return "is" if size == 1 else "are"
