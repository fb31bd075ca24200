"""What the facts of an inspection mean, in plain words, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from grpo_cli.engine.plan import Plan
from grpo_cli.read.prompt_check import SeveralPrompts
from grpo_cli.stats.courses import Course, fifths
from grpo_cli.stats.facts import Number, ZeroVariance, marks_of, same_everywhere
from grpo_cli.stats.inspection import Inspected, Inspection
from grpo_cli.stats.intervals import Z
from grpo_cli.stats.trends import Trend, TrendLine, over_steps

# Thresholds from which something is worth a sentence.
CONSTANT = 0.1  # share of groups without a gradient that needs advice
MANY = 0.5  # share of groups that counts as most
GAIN = 0.1  # a larger group size is suggested if this much more of the groups would vary, and surely half as much
CORRELATED = 0.3  # a smaller correlation explains less than a tenth of the variance
SURE = 2.6  # standard deviations that chance exceeds once in a hundred times
AHEAD = 0.1  # a component decides by itself if its correlation is this much above the next one
TRUNCATED = 0.05  # share of responses that are cut off that is worth a sentence
REPEATED = 0.05  # share of repeated responses that is too much
EQUAL_AT = ("always solved", "never solved", "all equal between")
ROUNDED = 1e-6  # a smaller change, as a part of the mean, is rounding
FEW = 3  # environments that are named
LEAST = 1e-3  # the smallest share that one decimal of a percent can show


def verdicts(facts: Inspected, *first: str) -> list[str]:
    """The sentences, most important first; at least one. Some come `first` that are not about these facts alone."""
    sentences = [*first]
    for rule in RULES:
        sentences += rule(facts)
    return sentences or ["Nothing stands out: groups vary, every row has a reward, and there are no singletons."]


def with_verdicts(inspection: Inspection, *first: str) -> Inspection:
    """The inspection, whose facts have the sentences."""
    return inspection.telling(verdicts=verdicts(inspection.facts, *first))


def with_other(inspection: Inspection, beside: object, sentence: str, warnings: Sequence[str]) -> Inspection:
    """The inspection beside another run, several or another reward; its first sentence and its warnings are also of these."""
    return replace(with_verdicts(inspection.warned(warnings), sentence), beside=beside)


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


def nearly_equal(constant: ZeroVariance) -> list[str]:
    """The groups that are not among them, but whose rewards differ by so little that it may be rounding."""
    groups = constant.nearly
    have = "group more has" if groups == 1 else "groups more have"
    return [f"{groups:,} {have} nearly equal rewards (relative spread <= 1e-9)"] if groups else []


def _same_everywhere(facts: Inspected) -> Iterator[str]:
    if said := same_everywhere(facts.summary.reward):
        yield said[0].upper() + said[1:]


def _trend(facts: Inspected) -> Iterator[str]:
    """How a run went, from its first steps to its last; of categories, the one with the most groups without a gradient."""
    without = "without a gradient" if facts.summary.plan.gives_equal_rewards_0 else "with equal rewards"
    for trend in filter(None, (facts.steps, facts.by)):
        if over_steps(trend.lines):
            yield from _over(trend, without)
        else:
            yield from _worst(trend.column, trend.lines, without)


def _environments(facts: Inspected) -> Iterator[str]:
    """The environments that stand still while others move, or the run does; and those that move against each other."""
    by = facts.by
    column, courses = "", dict[str, Course]()
    if facts.environments is not None:
        column, courses = facts.environments.column, dict(facts.environments.courses)
    elif by is not None and not over_steps(by.lines):
        column = by.column
        courses = {str(line.value): line.course for line in by.lines if line.course is not None}
    moves = {name: one for name, one in courses.items() if moving(one, three)}
    still = {name: one for name, one in courses.items() if one.shape != "few" and name not in moves}
    run = facts.steps or by
    of_run = None if run is None else run.courses.get("mean")
    if not still or len(moves) > FEW:  # else they are told beside those that stand still
        yield from _opposite(column, moves)
    if not still or not (moves or (of_run is not None and moving(of_run, three))):
        return
    named = [f"{name} ({unmoved(one, three)})" for name, one in still.items()]
    more = [f"{len(named) - FEW} more"] if len(named) > FEW + 1 else []
    others = [f"{name} {course(one, three)}" for name, one in moves.items()]
    while_others = f", while {listed(others)}" if 0 < len(others) <= FEW else ""
    kept = named[:FEW] if more else named
    yield f"By {column}, no trend beyond chance in the mean reward of {listed([*kept, *more])}{while_others}."


def _opposite(column: str, moves: dict[str, Course]) -> Iterator[str]:
    """The environments that rise and those that fall, if there are both: the mean of the run may hide it."""
    ways = {
        name: one.last - (one.first if one.turn is None else one.turn)
        for name, one in moves.items()
        if one.shape != "turn"
    }
    rising = sorted((name for name in ways if ways[name] > 0), key=lambda name: -ways[name])
    falling = sorted((name for name in ways if ways[name] < 0), key=lambda name: ways[name])
    if not (rising and falling):
        return
    first, *others = [rising[0], falling[0], *rising[1:], *falling[1:]]
    named = [
        f"of {first} {course(moves[first], three)}",
        *(f"that of {name} {course(moves[name], three)}" for name in others),
    ]
    more = [f"{len(named) - FEW} more move"] if len(named) > FEW + 1 else []
    yield f"By {column}, the mean reward {listed([*(named[:FEW] if more else named), *more])}."


def _over(trend: Trend, without: str) -> Iterator[str]:
    """What moves over the steps, from where to where, and what has no trend beyond chance."""
    steps = "steps" if "step" in trend.column else f"values of {trend.column}"
    name = steps_named(trend.column)
    told = [(words, shown, trend.courses[fact]) for fact, words, shown in _told(without) if fact in trend.courses]
    if not told:
        return
    few = [f"{words} {course(one, shown, name)}" for words, shown, one in told if one.change_low is None]
    unknown = [f"{words} ({unclear(one, shown)})" for words, shown, one in told if is_unclear(one)]
    moves = [
        f"{words} {course(one, shown, name)}" for words, shown, one in told if moving(one, shown) and not one.end_steps
    ]
    jumps = [
        f"{words} {course(one, shown, name)}" for words, shown, one in told if moving(one, shown) and one.end_steps
    ]
    rest = [
        f"{words} ({unmoved(one, shown)})"
        for words, shown, one in told
        if one.shape != "few" and not moving(one, shown)
    ]
    over = f"Over {len(trend.lines):,} {steps}"
    if few:
        yield f"{over}, too few to tell a trend from chance, {listed(few)}."
    # The ends of a jump are no fifths of the run: it carries its own steps. What has the first fact comes first.
    ways = [(moves, _compared(trend, with_ends=True)), (jumps, _compared(trend, with_ends=False))]
    for parts, compared in reversed(ways) if told[0][2].end_steps else ways:
        if parts:
            yield f"{over}, {listed(parts)}{compared}."
    if rest:
        yield f"{'No' if moves or jumps else f'{over}, no'} trend beyond chance in {listed(rest)}."
    if unknown:
        yield f"{over[len('Over ') :]} cannot tell whether {listed(unknown)} {'move' if len(unknown) > 1 else 'moves'}."


def _told(without: str) -> Iterator[tuple[str, str, Callable[[float], str]]]:
    """The facts of a trend that a verdict tells, with their words and how their numbers are written."""
    yield "mean", "the mean reward", three
    yield "truncated", "the share of truncated responses", percent
    yield "zero_variance", f"the share of groups {without}", percent
    yield "length", "the mean length", three


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence with commas and an "and"."""
    *others, last = parts
    return f"{', '.join(others)}{',' * (len(others) > 1)} and {last}" if others else last


def steps_named(column: str) -> str:
    """What the values of a trend are called before their numbers."""
    return "steps" if "step" in column else column


def _compared(trend: Trend, *, with_ends: bool) -> str:
    """Which steps are the ends, and whether their prompts are the same."""
    values = [line.value for line in trend.lines]
    many = fifths(len(values))[1]
    ends = ""
    if with_ends and many > 1:
        name = steps_named(trend.column)
        ends = f"{name} {values[0]} to {values[many - 1]} against {values[-many]} to {values[-1]}"
    same = "on the same prompts" if any(one.same_prompts for one in trend.courses.values()) else ""
    words = ", ".join(filter(None, (ends, same)))
    return f" ({words})" if words else ""


def _worst(column: str, lines: Sequence[TrendLine], without: str) -> Iterator[str]:
    """The categories with the fewest and with the most such groups."""
    known = sorted((line.zero_variance, str(line.value)) for line in lines if line.zero_variance is not None)
    if not known:
        return
    (least, low), (most, high) = known[0], known[-1]
    if least < most:
        yield f"By {column}, {percent(least)} ({low}) to {percent(most)} ({high}) of the groups are {without}."


def moving(of: Course, shown: Callable[[float], str]) -> bool:
    """Whether something moves beyond chance, and by so much that its written numbers differ."""
    return of.shape in {"line", "turn", "end"} and len({*way(of, shown)}) > 1


def way(of: Course, shown: Callable[[float], str]) -> list[str]:
    """The numbers on the way from one end to the other: two, or three with a turn or a jump."""
    numbers = [of.first, *([] if of.turn is None else [of.turn]), of.last]
    return [*map(shown, numbers)]


def course(of: Course, shown: Callable[[float], str], steps: str = "steps") -> str:
    """How something goes from one end to the other of its steps, or that nothing is beyond chance."""
    numbers = way(of, shown)
    if of.shape == "few":
        return (
            f"is {numbers[0]} {'in every step' if steps == 'steps' else f'for every {steps}'}"
            if len({*numbers, shown(of.mean)}) == 1
            else f"is {numbers[0]} at first and {numbers[-1]} at last"
        )
    if not moving(of, shown):
        return f"has no trend beyond chance ({unmoved(of, shown)})"
    first, *turn, last = numbers
    if of.shape == "end":
        before = of.first if of.turn is None else of.turn
        word = "falls" if of.last < before else "rises"
        end = f"{last} in the last {of.end_steps} {steps}" if of.end_steps > 1 else f"{last} at the end"
        from_first = f"from {first} ({_between(steps, of.first_from, of.first_to)})"
        if not turn:
            return f"{word} {from_first} to {end}"
        return f"goes {from_first} to {turn[0]} ({_between(steps, of.turn_from, of.turn_to)}) and then {word} to {end}"
    if of.shape == "turn":
        return f"goes from {first} to {turn[0]} ({_between(steps, of.turn_from, of.turn_to)}) and then to {last}"
    return f"goes from {first} to {last}"


def _between(steps: str, first: object, last: object) -> str:
    """From which to which of the steps; one by itself has no end.

    >>> _between("steps", 0, 31), _between("steps", 3, 3), _between("epoch", 3, 3)
    ('steps 0 to 31', 'step 3', 'epoch 3')
    """
    if first == last:
        return f"{'step' if steps == 'steps' else steps} {first}"
    return f"{steps} {first} to {last}"


def is_unclear(of: Course) -> bool:
    """Whether there are enough steps for a test, and they differ so much that nothing can be told."""
    return of.shape == "few" and of.change_low is not None


def unclear(of: Course, shown: Callable[[float], str]) -> str:
    """The ends of something of which nobody can tell whether it moves."""
    first, *_, last = way(of, shown)
    return f"{first} at first and at last" if first == last else f"{first} at first, {last} at last"


def unmoved(of: Course, shown: Callable[[float], str]) -> str:
    """The mean of what has no trend, and between what the change over the run is."""
    mean = shown(of.mean)
    if of.change_low is None or of.change_high is None:
        return mean
    if max(abs(of.change_low), abs(of.change_high)) <= ROUNDED * abs(of.mean):
        return f"always {mean}"
    return f"{mean}, between {changed(of.change_low, shown)} and {changed(of.change_high, shown)} over the run"


def changed(by: float, shown: Callable[[float], str]) -> str:
    """A change with its sign: of a share in points.

    >>> changed(-0.021, three), changed(1512.3, three), changed(0.12, percent), changed(1.0, percent)
    ('-0.021', '+1,512', '+12 points', '+100 points')
    """
    if shown is percent:
        points = 100 * by
        return f"{points:+.2g} points" if abs(points) < 10 else f"{points:+.0f} points"  # noqa: PLR2004 - two digits
    return f"{by:+.2g}" if abs(by) < 1 else f"{by:+,.0f}"


def three(value: float) -> str:
    """A number with three digits, or all before the point.

    >>> three(0.12345), three(12.345), three(1512.3)
    ('0.123', '12.3', '1,512')
    """
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - three digits


def _unscorable(facts: Inspected) -> Iterator[str]:
    summary = facts.summary
    if without := summary.unscorable - summary.left_out:
        treatment = "stops at them unless --missing says how to treat them"
        if summary.declared_unscorable >= summary.unscorable:
            treatment = "leaves them out, as the schema says"
        rows, have = ("row", "has") if without == 1 else ("rows", "have")
        share = percent(without / summary.rows)
        yield f"{without:,} {rows} ({share}) {have} no finite reward. compute {treatment}."


def _marked(facts: Inspected) -> Iterator[str]:
    """Rows that failed, and what rewards of 0 would do to the mean; rows that are masked."""
    summary = facts.summary
    left_out = summary.left_out
    masked = summary.masked
    rows = summary.rows
    mean = summary.reward.mean
    if left_out:
        share = percent(left_out / rows)
        marks = marks_of(summary.marks, "left_out")
        zeros = ""
        effect = facts.failed_effect
        if effect is not None and facts.failed and mean is not None and mean > 0 and left_out >= CONSTANT * rows:
            changes = _changes(
                facts,
                (effect.mean, effect.solve_rate, effect.zero_variance_share),
                (effect.mean_with, effect.solve_rate_with, effect.zero_variance_share_with),
            )
            zeros = f" With rewards of 0 for them {listed(changes)}." if changes else ""
        yield f"{share} of the rows are left out of their groups ({marks}).{zeros}"
    if masked:
        share = percent(masked / rows)
        marks = marks_of(summary.marks, "masked")
        cure = " --masked-rows exclude leaves them out." if masked >= CONSTANT * rows else ""
        yield f"{share} of the rows are masked ({marks}). Their rewards count.{_without_them(facts)}{cure}"


def _without_them(facts: Inspected) -> str:
    """What the masked rows change."""
    effect = facts.masked_effect
    if effect is None:
        return ""
    changes = _changes(
        facts,
        (effect.mean, effect.solve_rate, effect.zero_variance_share),
        (effect.mean_without, effect.solve_rate_without, effect.zero_variance_share_without),
    )
    return f" Without them {listed(changes)}." if changes else " Without them all numbers are the same."


def _changes(facts: Inspected, now: Sequence[Number], then: Sequence[Number]) -> list[str]:
    """The mean, the mean solve rate and the share without a gradient where they would be other numbers."""
    equal = label_of_equal(facts.summary.plan)
    words = (("the mean is", three), ("the mean solve rate", percent), (f"the share of {equal}", percent))
    return [
        f"{what} {shown(other)} instead of {shown(one)}"
        for (what, shown), one, other in zip(words, now, then, strict=True)
        if one is not None and other is not None and shown(one) != shown(other)
    ]


def _singletons(facts: Inspected) -> Iterator[str]:
    summary = facts.summary
    if summary.groups and summary.singletons == summary.groups > 1:
        yield "Every group has a single reward, and nothing to compare it with. If prompts were sampled several times, name the prompt's id with --group, or give --group-size N."
    elif summary.singletons:
        share = percent(summary.singletons / summary.groups)
        have = "group has" if summary.singletons == 1 else "groups have"
        yield f"{summary.singletons:,} {have} a single reward and nothing to compare it with: {share}."


def _zero_variance(facts: Inspected) -> Iterator[str]:
    summary = facts.summary
    constant = summary.zero_variance
    if constant.share is None:
        return
    if same_everywhere(facts.summary.reward):
        return  # said, and no advice helps
    if not constant.groups:
        yield "Every group that can be compared has a gradient: its rewards differ."
        return
    comparable = round(constant.groups / constant.share)
    kinds = equal_at(constant)
    split = [f"{percent(many / comparable)} {word}" for word, many in kinds.items()]
    first, *others = kinds
    how = f": {', '.join(split)}" if others else f", {first if first.startswith('all ') else f'all {first}'}"
    of = "groups" if comparable == summary.groups else f"the {comparable:,} groups that can be compared"
    without = label_of_equal(summary.plan)
    advice = _advice(facts) if summary.plan.gives_equal_rewards_0 and constant.share >= CONSTANT else ""
    yield f"{percent(constant.share)} of {of} have {without}{how}.{advice}"


def _advice(facts: Inspected) -> str:
    """What to do about groups without a gradient; if no other is left, dropping them is no cure."""
    constant = facts.summary.zero_variance
    ways = []
    if constant.share != 1:
        ways.append("dropping them (--zero-variance drop)")
    # A group without a gradient that is as likely to be always as never solved says nothing about the prompts.
    more = constant.all_best - constant.all_worst
    if more**2 > Z**2 * (constant.all_best + constant.all_worst):
        ways.append(f"sampling {'harder' if more > 0 else 'easier'} prompts")
    return f" Consider {' or '.join(ways)}." if ways else ""


def _larger_groups(facts: Inspected) -> Iterator[str]:
    """Suggest the smallest size at which clearly more groups would have a gradient."""
    summary = facts.summary
    constant = summary.zero_variance.share
    sizes = summary.group_sizes
    if constant is None or constant < CONSTANT or not summary.plan.gives_equal_rewards_0:
        return
    now = 1 - constant
    most = 1.0
    for at in facts.at_size:
        if at.size <= sizes.median or at.low is None or at.high is None:
            continue
        if (at.low + at.high) / 2 >= now + GAIN and at.low >= now + GAIN / 2:
            shares = f"{percent(at.low)} to {percent(at.high)}"
            yield f"With {at.size} rows per group, {shares} of the groups would have a gradient instead of {percent(now)}."
            return
        most = at.high
    if MANY <= constant < 1 and most < now + GAIN:
        yield "More rows per group would hardly help: most prompts are too easy or too hard for that."


def _components(facts: Inspected) -> Iterator[str]:
    several = facts.rewards if len(facts.rewards) > 1 else {}
    for name, column in several.items():
        share = column.zero_variance_share
        values = column.values
        if values.min is not None and values.min == values.max and not same_everywhere(facts.summary.reward):
            yield f"{name} is {values.min:.6g} in every row that has it: is it computed right?"
        elif share is not None and share >= MANY:
            yield f"{name} does not vary within {percent(share)} of the groups, whatever its spread over all rows."
    components = facts.components
    if components and components.decides:
        closest = {name: value for name, value in components.advantage.items() if value is not None}
        sizes = sorted(map(abs, closest.values()), reverse=True)
        alone = len(sizes) == 1 or sizes[0] - sizes[1] >= AHEAD
        who = components.decides if alone else "No single component"
        correlations = [f"{value:+.2f} with {name}" for name, value in closest.items()]
        yield f"{who} decides the advantage: within groups its correlation is {', '.join(correlations)}."


def _length(facts: Inspected) -> Iterator[str]:
    if facts.length is None or facts.length.within_groups is None:
        return
    correlation = facts.length.within_groups
    # A correlation by chance has the standard deviation 1/sqrt(freedom).
    freedom = facts.length.rows - facts.summary.groups - 1
    if abs(correlation) >= CORRELATED and correlation**2 * freedom > SURE**2:
        level = "higher" if correlation > 0 else "lower"
        asked = (
            ": is length being rewarded?"
            if correlation > 0
            else "."
            if _cuts(facts)
            else ": are long ones cut off, or lost in loops?"
        )
        yield f"Within groups, longer responses get {level} rewards (correlation {correlation:+.2f}){asked}"


def _cuts(facts: Inspected) -> bool:
    """Whether so many responses are cut off that it is worth a sentence."""
    return facts.truncated is not None and facts.truncated.share >= TRUNCATED


def _truncated(facts: Inspected) -> Iterator[str]:
    """How many responses are cut off, and whether more of the unsolved ones than of the solved ones are."""
    cut_off = facts.truncated
    if cut_off is None or not _cuts(facts):
        return
    said = f"{percent(cut_off.share)} of the responses are cut off ({cut_off.column})"
    worst, best = cut_off.unsolved_share, cut_off.solved_share
    if worst is not None and best is not None:
        said += f": {percent(worst)} of those with the worst reward, {percent(best)} of those with the best"
        # Rows of a group are alike: groups are the sample.
        error = math.sqrt(cut_off.share * (1 - cut_off.share) / facts.summary.groups)
        if worst - best > SURE * error:
            said += ". Raise the limit of the length, or look for loops"
    yield f"{said}."


def _duplicates(facts: Inspected) -> Iterator[str]:
    share = None if facts.duplicates is None else facts.duplicates.share
    mixed = any(isinstance(warning, SeveralPrompts) for warning in facts.summary.warnings)
    if share is not None and share >= REPEATED and not mixed:
        yield f"{percent(share)} of the responses repeat another response of their group: is the temperature too low, or was a file read twice?"


RULES = (
    _same_everywhere, _trend, _environments, _truncated, _marked, _singletons, _zero_variance, _larger_groups, _components, _unscorable, _duplicates, _length,
)  # fmt: skip
