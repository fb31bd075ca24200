"""The summary of a run: what was computed, from what, what it means, and where it went.

Every section takes the facts and gives labelled lines.
Colour alone never carries information, and warnings come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.console import Console

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from grpo_cli.render import plan_text
from grpo_cli.render.distribution import distribution_lines, largest, spread
from grpo_cli.render.text import (
    Sections,
    Sheet,
    clean,
    count,
    duration,
    exact,
    file_list,
    group_size,
    marked,
    number,
    row_count,
    status_words,
    text_outcomes,
)
from grpo_cli.runs.compute_files import Facts, FactsOfParts
from grpo_cli.stats.facts import Reason, Skipped, ZeroVariance, marked_lines
from grpo_cli.stats.verdicts import equal_at, label_of_equal, nearly_equal, percent
from grpo_cli.values.key_text import labels_of
from grpo_cli.write.token_lists import OnTokens

Section = Callable[[Facts], Sections]


SCREEN = 23  # lines of a small terminal, below the command
LEAST = 3  # lines of a formula that are always shown
KEY = 40  # characters of the key of a skipped group


def render(facts: Facts | FactsOfParts, console: Console) -> None:
    """Print the summary; of several parts each, and then what was written."""
    sheet = Sheet(console)
    if isinstance(facts, Facts):
        _print(BLOCKS, facts, sheet, SCREEN)
        return
    for part in facts.parts:
        with sheet.at_once():
            sheet.part(facts.plan_by, part.value)
            _print(BLOCKS_OF_PART, part.facts, sheet)
            sheet.blank()
    total = f"{facts.rows:,} in {count(facts.groups, 'group')}"
    read = [("input", [file_list(facts.inputs)]), ("rows", [total])]
    sheet.rows([*read, *written(facts)])
    sheet.warnings(facts.warnings)


def _print(parts: Iterable[Sequence[Section]], facts: Facts, sheet: Sheet, screen: int | None = None) -> None:
    """Print blocks; without warnings on one screen, if needed without empty lines and the end of a long formula."""
    blocks = [rows(block, facts) for block in parts]
    height = sum(map(sheet.height, blocks))
    spaced = screen is None or facts.summary.warnings or height + len(blocks) - 1 <= screen
    if screen is not None and not spaced and height > screen:
        formula, *others = blocks
        room = screen - sum(map(sheet.height, others))
        *_, (label, lines) = formula
        while sheet.height(formula) > room and len(lines) > LEAST:
            lines = [*lines[:-2], "  ... (--explain shows all of it)"]
            formula[-1] = label, lines
    for block in blocks:
        sheet.rows(block)
        if spaced:
            sheet.blank()
    sheet.warnings(facts.summary.warnings)


def rows(sections: Iterable[Section], facts: Facts) -> list[tuple[str, list[str]]]:
    """The labelled lines of some sections."""
    return [row for section in sections for row in section(facts)]


def method(facts: Facts) -> Sections:
    """The formula with its constants."""
    plan = facts.summary.plan
    yield from preset(facts)
    lines = [f"  {line}" for line in plan_text.describe(plan, facts.summary.reward_columns)]
    yield "method", [marked(plan.method, ESTIMATORS.origin(plan.method)), *lines]


def preset(facts: Facts) -> Sections:
    """The preset, and what flags changed in it."""
    named = facts.preset
    if named is not None:
        lines = [marked(named.name, named.from_ or "")]
        overridden = [f"{name} {exact(of.plan)}, not {exact(of.preset)}" for name, of in named.overridden.items()]
        if overridden:
            lines.append(f"overridden: {'; '.join(overridden)}")
        yield "preset", lines


def inputs(facts: Facts) -> Sections:
    """Files, rows and row statuses."""
    summary = facts.summary
    if facts.inputs:
        yield "input", [file_list(facts.inputs)]
    if summary.schema:
        first, *others = summary.notes
        notes = [note for note in others if " = " not in note]
        yield "schema", [*map(clean, (first.removeprefix("read as "), *notes))]
    status = [f"{size:,} {status_words(name)}" for name, size in summary.status.items() if size]
    line = f"{row_count(summary.rows, summary.rollouts)}: {', '.join(status)}"
    if facts.dropped_rows:
        line += f"; {facts.dropped_rows:,} not written"
    if facts.copied_rows:
        line += f"; {facts.copied_rows:,} copies added"
    yield "rows", [line]


def groups(facts: Facts) -> Sections:
    """Group sizes and the group key."""
    summary = facts.summary
    sizes = group_size(summary.group_sizes, summary.unit)
    yield "groups", [f"{summary.groups:,}, {sizes}, by {clean(summary.key_note)}"]


def batches(facts: Facts) -> Sections:
    """The batches, if the plan uses any."""
    summary = facts.summary
    used = summary.plan.uses_batch
    if not used and summary.batches == 1:
        return
    key = summary.batch_key
    whole = "all rows of the part" if summary.value else "the whole input"
    by = {"input": whole, "file": "each file"}.get(key, f"each value of {clean(key)}")
    unused = "" if used else ", not used by this plan"
    yield "batches", [f"{summary.batches:,}: {by}{unused}"]


def reward(facts: Facts) -> Sections:
    """The distribution of the rewards."""
    summary = facts.summary
    name = plan_text.weighted(summary.plan, summary.reward_columns, "r")
    lines = ["no reward"]
    if summary.reward.count:
        lines = distribution_lines(summary.reward)
        if summary.plan.shape:
            name += " (before shaping)"
    yield "rewards", [name, *text_outcomes(summary.map), *lines]


def zero_variance(facts: Facts) -> Sections:
    """Zero-variance groups: how many, and which."""
    summary = facts.summary
    constant = summary.zero_variance
    rule = summary.plan.groups
    label = label_of_equal(summary.plan)
    if constant.share is None:
        yield label, ["no group has two scored rows"]
        return
    lines = ["none: rewards differ in every group that can be compared"]
    if constant.groups:
        lines = [_constant(constant, summary.plan)]
    lines += nearly_equal(constant)
    skipped = _skipped(facts, "zero-variance")
    lines += _keys(skipped, "all" if rule.std_threshold is None else "mean")
    if (below := skipped.groups - constant.groups) > 0:
        lines.insert(1, f"{count(below, 'group')} more with std <= {number(rule.std_threshold)}")
    yield label, lines


def _constant(constant: ZeroVariance, plan: Plan) -> str:
    """A centred formula gives such a group 0; other formulas do not, so the line only counts them."""
    split = [f"{many:,} {kind}" for kind, many in equal_at(constant).items()]
    groups = constant.groups
    share = constant.share or 1.0
    comparable = count(round(groups / share), "group")
    meaning = label_of_equal(plan)
    if plan.gives_equal_rewards_0:
        meaning += plan_text.before_whitening(plan)
    return f"{groups:,} of {comparable} {_has(groups)} {meaning} ({percent(share)}): {', '.join(split)}"


def _has(groups: int) -> str:
    return "has" if groups == 1 else "have"


def others(facts: Facts) -> Sections:
    """Singletons, small groups and rows without a reward or with a mark; what they get is among the rules of the method."""
    summary = facts.summary
    if summary.singletons:
        groups = f"{count(summary.singletons, 'group')} with one reward"
        yield "singletons", [groups, *_keys(_skipped(facts, "singleton"), "reward")]
    small = _skipped(facts, "small-group")
    if small.groups:
        fewer = f"with fewer than {summary.plan.groups.min_size} scored rows"
        yield "small groups", [f"{count(small.groups, 'group')} {fewer}", *_keys(small, "mean")]
    yield "marked", [*map(clean, marked_lines(summary.marks))]
    if without := summary.unscorable - summary.left_out:
        empty = _skipped(facts, "unscorable")
        lines = [f"{count(without, 'row')} without a reward"]
        if empty.groups:
            lines.append(f"{count(empty.groups, 'group')} {_has(empty.groups)} no reward that counts")
        yield "no reward", [*lines, *_keys(empty, "")]


def advantage(facts: Facts) -> Sections:
    """The distribution of the advantages."""
    summary = facts.summary
    values = summary.advantage
    scale = largest(values)
    said = "no finite advantage"
    if values.min is not None:
        mean, low, high = (number(value, scale) for value in (values.mean, values.min, values.max))
        said = f"mean {mean}  std {spread(values)}  min {low}  max {high}"
    is_zero = "is 0" if values.zero == 1 else "are 0"
    for rows, words in ((values.zero, is_zero), (values.null, "null"), (values.nan, "NaN")):
        if rows:
            said += f", {rows:,} {words}"
    over = []
    if summary.unit == "rollout":
        over.append("of rows: a rollout counts with each of its rows")
    over += [f"of rows, {line}" for line in plan_text.distilled(summary.plan)]
    yield "advantages", [*over, said, *_on_tokens(facts.per_token)]


def _on_tokens(found: OnTokens | None) -> list[str]:
    """How many tokens have an advantage; nothing without --per-token."""
    if found is None:
        return []
    by = [f"{part.replace('_', ' ')} = {clean(name)}" for part, name in found.columns.items()]
    return [f"on {found.response_tokens:,} of {count(found.tokens, 'token')} ({', '.join(by)})"]


def written(facts: Facts | FactsOfParts) -> Sections:
    """The output files and the time."""
    took = "" if facts.seconds is None else duration(facts.seconds)
    if not facts.outputs:
        yield "written", [f"nothing ({took})" if took else "nothing"]
        return
    names = [facts.advantage_column, *facts.more_columns]
    word = "columns" if facts.more_columns else "column"
    columns = f"{word} {', '.join(map(clean, names))}"
    said = filter(None, (file_list(facts.outputs), columns, took))
    yield "written", [", ".join(said)]


READ = (inputs, groups, batches)
BLOCKS: Final = (
    (method,),
    READ,
    (reward,),
    (zero_variance, others),
    (advantage, written),
)
BLOCKS_OF_PART = (*BLOCKS[:-1], (advantage,))


def _skipped(facts: Facts, reason: Reason) -> Skipped:
    """The groups that were skipped for a reason, or kept in spite of it."""
    for skip in (*facts.summary.skipped, *facts.summary.kept):
        if skip.reason == reason:
            return skip
    return Skipped(reason, 0, 0, ())


def _keys(skip: Skipped, word: str) -> list[str]:
    """The first of the groups, each with its reward after `word`."""
    if not skip.keys:
        return []
    labels = labels_of([group.key for group in skip.keys], KEY)
    said = []
    for label, group in zip(labels, skip.keys, strict=True):
        has_reward = word and group.reward is not None
        said.append(f"{label} ({word} {number(group.reward)})" if has_reward else label)
    if rest := skip.groups - len(skip.keys):
        said.append(f"... {rest:,} more")
    return ["; ".join(said)]
