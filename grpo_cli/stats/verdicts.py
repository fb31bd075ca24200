"""What the facts of an inspection mean, in plain words, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from grpo_cli.engine.plan import Plan
from grpo_cli.read.known_names import CONVERSATIONS, PROMPT_TEXTS
from grpo_cli.read.prompt_check import SeveralPrompts
from grpo_cli.stats.facts import ZeroVariance, every_group, marks_of
from grpo_cli.stats.inspection import Inspected, Inspection
from grpo_cli.stats.trends import Ends, TrendLine, ends, over_steps

# Thresholds from which something is worth a sentence.
CONSTANT: Final = 0.1  # share of groups without a gradient that needs advice
MANY: Final = 0.5  # share of groups that counts as most
GAIN: Final = (
    0.1  # a larger group size is suggested if this much more of the groups would vary, and surely half as much
)
CORRELATED: Final = 0.3
SURE: Final = 2.6  # standard deviations that chance exceeds once in a hundred times
AHEAD: Final = 0.1  # a component decides by itself if its correlation is this much above the next one
REPEATED: Final = 0.05  # share of repeated responses that is too much
FEW: Final = 0.5  # an effective sample size below this share of the rows is small
UNEVEN: Final = 2.0  # sizes differ if the largest is this many times the smallest
EQUAL_AT: Final = ("always solved", "never solved", "all equal between")
LEAST: Final = 1e-3  # the smallest share that one decimal of a percent can show


def verdicts(facts: Inspected, *first: str) -> list[str]:
    """The sentences, most important first; at least one. Some come `first` that are not about these facts alone."""
    sentences = [*first, *(line for rule in RULES for line in rule(facts))]
    return sentences or ["Nothing stands out: groups vary, every row has a reward, and there are no singletons."]


def with_verdicts(inspection: Inspection, *first: str) -> Inspection:
    """The inspection, whose facts have the sentences."""
    return inspection.telling(verdicts=verdicts(inspection.facts, *first))


def with_other(inspection: Inspection, beside: object, sentence: str, warnings: Sequence[str]) -> Inspection:
    """The inspection beside another run, several or another reward; its first sentence and its warnings are also of these."""
    return replace(with_verdicts(inspection.telling(warnings=warnings), sentence), beside=beside)


def percent(share: float) -> str:
    """A share as a percentage that is never rounded to 0% or 100%.

    >>> percent(0.25), percent(1 / 3), percent(1e-5), percent(0.99999), percent(1.0)
    ('25%', '33.3%', '<0.1%', '>99.9%', '100%')
    """
    if 0 < share < LEAST:
        return "<0.1%"
    if 1 - LEAST < share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def label_of_equal(plan: Plan) -> str:
    """What groups of equal rewards are called: without a gradient only if the plan gives them 0."""
    return "no gradient" if plan.gives_equal_rewards_0 else "equal rewards"


def equal_at(constant: ZeroVariance) -> dict[str, int]:
    """How many groups are equal at which reward, in the words of EQUAL_AT; those of which there are none are left out."""
    counts = zip(EQUAL_AT, (constant.all_best, constant.all_worst, constant.other), strict=True)
    return {words: groups for words, groups in counts if groups}


def _trend(facts: Inspected) -> Iterator[str]:
    """How a run went, from its first steps to its last; of categories, the one with the most groups without a gradient."""
    without = "without a gradient" if facts.plan.gives_equal_rewards_0 else "with equal rewards"
    for trend in filter(None, (facts.steps, facts.by)):
        way = _course if over_steps(trend.lines) else _worst
        yield from way(trend.column, trend.lines, without)


def _course(column: str, lines: Sequence[TrendLine], without: str) -> Iterator[str]:
    kinds = (
        ("mean", "the mean reward", three),
        ("zero_variance", f"the share of groups {without}", percent),
        ("length", "the mean length", three),
    )
    said = [f"{words} {course(pair, shown)}" for fact, words, shown in kinds if (pair := ends(lines, fact)) is not None]
    if said:
        steps = f"{len(lines):,} {'steps' if 'step' in column else f'values of {column}'}"
        many = max(1, len(lines) // 5)
        moves = any("goes from" in words for words in said)
        means = f" (means of the first and the last {many})" if many > 1 and moves else ""
        *others, last = said
        yield f"Over {steps}, {', '.join(others)}{', and ' if others else ''}{last}{means}."


def _worst(column: str, lines: Sequence[TrendLine], without: str) -> Iterator[str]:
    """The category with the most such groups, if it has more than chance would give it; else how far apart all are."""
    known = [(line.zero_variance, line.groups, line) for line in lines if line.zero_variance is not None]
    if len(known) <= 1:
        return
    shares, groups = (np.array(numbers, np.float64) for numbers in (list(zip(*known, strict=True))[:2]))
    at, least, most = int(shares.argmax()), float(shares.min()), float(shares.max())
    here, there = groups[at], groups.sum() - groups[at]
    every = shares @ groups / groups.sum()
    others = (shares @ groups - here * most) / there
    chance = math.sqrt(every * (1 - every) * (1 / here + 1 / there))
    if most - others > SURE * chance:
        yield f"{column} = {known[at][2].value} has the most groups {without}: {percent(most)}, the others {percent(others)}."
    elif most > least:
        yield f"No {column} stands out: {percent(least)} to {percent(most)} of the groups are {without}."


def course(of: Ends, shown: Callable[[float], str]) -> str:
    """How something goes from one end to the other: "goes from 0.3 to 0.6", or that it stays."""
    before, after = shown(of.first), shown(of.last)
    if before == after:
        return f"stays at {after}"
    return f"goes from {before} to {after}" if of.differ else f"stays near {shown(of.mean)}"


def three(value: float) -> str:
    """A number with three digits, or all before the point.

    >>> three(0.12345), three(12.345), three(1512.3)
    ('0.123', '12.3', '1,512')
    """
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - three digits


def _unscorable(facts: Inspected) -> Iterator[str]:
    if without := facts.unscorable - facts.left_out:
        treatment = "stops at them unless --missing says how to treat them"
        if facts.declared_unscorable >= facts.unscorable:
            treatment = "leaves them out, as the schema says"
        rows, have = ("row", "has") if without == 1 else ("rows", "have")
        share = percent(without / facts.rows)
        yield f"{without:,} {rows} ({share}) {have} no finite reward. compute {treatment}."


def _marked(facts: Inspected) -> Iterator[str]:
    """Rows that failed or are masked, and how much they move the mean reward."""
    left_out, masked, rows = facts.left_out, facts.masked, facts.rows
    mean, others = facts.reward.mean, facts.mean_without_masked
    if left_out:
        scored, zeros = rows - facts.unscorable, ""
        if facts.failed and mean is not None and mean > 0 and left_out >= CONSTANT * rows:
            lower = mean * scored / (scored + left_out)
            zeros = f" As rewards of 0 they would lower the mean from {three(mean)} to {three(lower)}."
        yield f"{percent(left_out / rows)} of the rows are left out of their groups ({marks_of(facts.marks, 'left_out')}).{zeros}"
    if masked:
        means = (
            f": the mean reward is {three(mean)} with them and {three(others)} without"
            if mean is not None and others is not None
            else ""
        )
        cure = " --masked-rows exclude leaves them out." if masked >= CONSTANT * rows else ""
        yield f"{percent(masked / rows)} of the rows are masked ({marks_of(facts.marks, 'masked')}). Their rewards count{means}.{cure}"


def _singletons(facts: Inspected) -> Iterator[str]:
    if facts.groups and facts.singletons == facts.groups > 1:
        names = facts.group_key
        if {*names} & {*CONVERSATIONS}:
            why = ": messages may hold the response as well as the prompt. Name the prompt's id with --group, or give --group-size N."
        elif facts.schema or {*names} & {*PROMPT_TEXTS}:
            why = ": one sample per prompt, and nothing to compare it with."
        elif not names:
            why = ", as --group-size 1 says: advantages need several rewards of a prompt."
        else:
            why = f": {', '.join(names)} is probably an id of the rollout, not of the prompt. Name the prompt's column with --group."
        yield f"Every group has a single reward{why}"
    elif facts.singletons:
        share = percent(facts.singletons / facts.groups)
        have = "group has" if facts.singletons == 1 else "groups have"
        yield f"{facts.singletons:,} {have} a single reward and nothing to compare it with: {share}."


def _zero_variance(facts: Inspected) -> Iterator[str]:
    constant = facts.zero_variance
    if constant.share is None:
        return
    if not constant.groups:
        yield f"{every_group(facts).capitalize()} has a gradient: its rewards differ."
        return
    gradient = facts.plan.gives_equal_rewards_0
    comparable = round(constant.groups / constant.share)
    split = ", ".join(f"{percent(many / comparable)} {word}" for word, many in equal_at(constant).items())
    of = "groups" if comparable == facts.groups else f"the {comparable:,} groups that can be compared"
    have = "have no gradient" if gradient else "have equal rewards"
    advice = _advice(facts) if gradient and constant.share >= CONSTANT else ""
    yield f"{percent(constant.share)} of {of} {have}: {split}.{advice}"


def _advice(facts: Inspected) -> str:
    """What to do about groups without a gradient; if no other is left, dropping them is no cure."""
    constant = facts.zero_variance
    ways = ["dropping them (--zero-variance drop)"] if constant.share != 1 else []
    if constant.all_best > constant.all_worst:
        ways.append("sampling harder prompts")
    elif constant.all_worst:
        ways.append("sampling easier prompts")
    return f" Consider {' or '.join(ways)}." if ways else ""


def _larger_groups(facts: Inspected) -> Iterator[str]:
    """Suggest the smallest size at which clearly more groups would have a gradient."""
    constant, sizes = facts.zero_variance.share, facts.group_sizes
    if constant is None or constant < CONSTANT or not facts.plan.gives_equal_rewards_0:
        return
    now = 1 - constant
    larger = [
        (at.size, at.low, at.high)
        for at in facts.at_size if at.size > sizes.median and at.low is not None and at.high is not None
    ]  # fmt: skip
    better = [
        (size, low, high) for size, low, high in larger if (low + high) / 2 >= now + GAIN and low >= now + GAIN / 2
    ]
    if better:
        size, low, high = better[0]
        shares = f"{percent(low)} to {percent(high)}"
        yield f"With {size} rows per group, {shares} of the groups would have a gradient instead of {percent(now)}."
    elif larger and MANY <= constant < 1 and larger[-1][2] < now + GAIN:
        yield "More rows per group would hardly help: most prompts are too easy or too hard for that."


def _nearly(facts: Inspected) -> Iterator[str]:
    nearly = facts.zero_variance.nearly
    if nearly:
        yield f"{nearly:,} {'group is' if nearly == 1 else 'groups are'} nearly without a gradient (relative spread <= 1e-9): rounding noise, which dividing by the std would blow up."


def _components(facts: Inspected) -> Iterator[str]:
    for name, column in facts.rewards.items():
        share = column.zero_variance_share
        if len(facts.rewards) > 1 and share is not None and share >= MANY:
            yield f"{name} does not vary within {percent(share)} of the groups, whatever its spread over all rows."
    components = facts.components
    if components and components.decides:
        closest = {name: value for name, value in components.advantage.items() if value is not None}
        sizes = sorted(map(abs, closest.values()), reverse=True)
        alone = len(sizes) == 1 or sizes[0] - sizes[1] >= AHEAD
        who = f"{components.decides} decides the advantage" if alone else "No single component decides the advantage"
        yield f"{who}: within groups its correlation is {', '.join(f'{value:+.2f} with {name}' for name, value in closest.items())}."


def _uneven(facts: Inspected) -> Iterator[str]:
    size = facts.group_sizes
    if size.max >= UNEVEN * size.min and size.min > 1:
        yield f"Group sizes differ: {size.min:,} to {size.max:,} {facts.unit}s. --expect-size N stops at any other size."


def _length(facts: Inspected) -> Iterator[str]:
    if facts.length is None or facts.length.within_groups is None:
        return
    correlation = facts.length.within_groups
    # A correlation by chance has the standard deviation 1/sqrt(freedom).
    freedom = facts.length.rows - facts.groups - 1
    if abs(correlation) >= CORRELATED and correlation**2 * freedom > SURE**2:
        level = "higher" if correlation > 0 else "lower"
        yield f"Within groups, longer responses get {level} rewards (correlation {correlation:+.2f}): is length being rewarded?"


def _duplicates(facts: Inspected) -> Iterator[str]:
    share = None if facts.duplicates is None else facts.duplicates.share
    mixed = any(isinstance(warning, SeveralPrompts) for warning in facts.warnings)
    if share is not None and share >= REPEATED and not mixed:
        yield f"{percent(share)} of the responses repeat another response of their group: is the temperature too low, or was a file read twice?"


def _effective_sample_size(facts: Inspected) -> Iterator[str]:
    unit = facts.unit
    size, live = facts.effective_rows, facts.live_rows
    if size is not None and 0 < size < FEW * live:
        exact = f"{size:,.0f}" if size >= 1000 else f"{size:.4g}"  # noqa: PLR2004 - four digits, as beside it
        yield f"The effective sample size is {exact} of {live:,} {unit}s in groups with a gradient: a few {unit}s dominate."


RULES: Final = (
    _trend, _marked, _singletons, _zero_variance, _larger_groups, _components, _unscorable, _nearly, _duplicates, _length,
    _effective_sample_size, _uneven,
)  # fmt: skip
