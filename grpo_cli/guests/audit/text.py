"""The result of an audit: the formula, what else it could be, and the groups that disagree with it."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.presets import presets
from grpo_cli.guests.audit.facts import Audited, Claim, Differences, Match
from grpo_cli.render import plan_text
from grpo_cli.render.text import Sheet, clean, count, exact, file_list, listing, number
from grpo_cli.stats.facts import marked_lines
from grpo_cli.values.key_text import cut

KEY = 60  # characters of a key
TIES = 8  # formulas that are named where none fits
LABELS = {"match": "match", "noise": "match", "few": "too few", "nothing": "nothing"}


def render(facts: Audited, console: Console) -> None:
    """Print the result of an audit, the answer first."""
    sheet = Sheet(console)
    match = facts.match
    claim = facts.claim
    if claim is not None:
        sheet.row("claimed", _claim(claim, facts.rows))
        sheet.blank()
    verdict = match.verdict
    fits = verdict in {"match", "noise"}
    formula = "formula" if fits else "nearest"
    says_formula = verdict not in {"few", "nothing"} and facts.headline is None
    verdict_lines = [_verdict(facts)]
    if says_formula:
        verdict_lines.append(f"  {_constants(facts)}")
        if match.epsilon and match.epsilon.says:
            verdict_lines.append(f"  {match.epsilon.says}")
    sheet.row(LABELS.get(verdict, "no match"), verdict_lines)
    if says_formula:
        sheet.row(formula, plan_text.decided(match.plan, match.without_effect))
        sheet.row("computed by", _computed_by(match) if fits else [])
    if facts.ties and verdict != "nothing" and facts.headline is None:
        names = _tied(facts, len(facts.ties) if fits else TIES)
        sheet.row("also fits", [f"{names}: these rows cannot tell them apart", *_told_apart(facts)])
    sheet.blank()
    sheet.row("input", file_list(facts.inputs))
    sheet.row("rows", f"{facts.rows:,} in {count(facts.groups, 'group')}; column {clean(facts.column)}")
    sheet.row("read as", [clean(note.removeprefix("read as ")) for note in facts.notes])
    sheet.row("marked", [*map(clean, marked_lines(facts.marks))])
    if says_formula:
        for cause in facts.causes:
            sheet.row("cause", f"{count(cause.groups, 'group')}: {cause.says}")
        # If the claim leads, the same rows would be listed twice.
        if claim is None or claim.disagreements != match.disagreements:
            _differing("differs", formula, match, sheet)
    if claim is not None:
        _differing("claim differs", "claimed", claim, sheet)
    if facts.not_tried:
        flags = [f"{ROLES[role].flag} ({len(names)})" for role, names in facts.not_tried.items()]
        sheet.row("not tried", f"presets that need {', '.join(flags)}")
    sheet.warnings(facts.warnings)


def _tied(facts: Audited, most: int) -> str:
    """The presets that fit as well, those that compute the same together."""
    names = []
    for tie in facts.ties[:most]:
        first, *others = tie.names
        names.append(f"{first} (and {count(len(others), 'preset')} like it)" if others else first)
    if len(facts.ties) > most:
        names.append(f"{len(facts.ties) - most} more (--json names them)")
    return ", ".join(names)


def _told_apart(facts: Audited) -> list[str]:
    """What to log so that the formula differs from those that fit as well."""
    names: dict[str, list[str]] = {}
    for tie in facts.ties:
        names.setdefault(tie.told_apart_by, []).append(tie.names[0])
    return [f"log {kind} to tell {listing(tied)} apart" for kind, tied in names.items() if kind]


def _differing(label: str, of: str, wrong: Differences, sheet: Sheet) -> None:
    """Groups that differ from what a formula computes, and how many more there are."""
    groups = wrong.disagreements
    lines = []
    for group in groups:
        expected = _value(group.expected)
        logged = _value(group.logged)
        values = f"{of} {expected}, logged {logged} ({count(group.rows, 'row')})"
        key = cut(clean(group.key), KEY)
        lines.append(f"{key}, {clean(group.place)}: {values}")
    if more := wrong.mismatched_groups - len(groups):
        rows = wrong.mismatched_rows - sum(group.rows for group in groups)
        lines.append(f"and {count(more, 'more group')} ({count(rows, 'row')})")
    sheet.row(label, lines)


def _value(advantage: float | None) -> str:
    return "no number" if advantage is None else number(advantage, digits=6)


def _verdict(facts: Audited) -> str:
    if facts.headline is not None:
        return facts.headline
    match = facts.match
    rows = count(facts.rows, "row")
    plain = [f"--method {match.plain_method}"] if match.plain_method else []
    names = sorted([*plain, *match.preset_names], key=lambda name: not presets().origin(name))
    name, *same = names or [match.plan.flag]
    if same:
        name += f" (the same as {listing(same)})"
    if match.factor != 1:
        name = f"{number(match.factor)} x {name}"
    if match.constants and match.weights:
        weights = [f"--reward {column}={weight:g}" for column, weight in match.weights.items()]
        name += f" with {' '.join(weights)}"
    wrong = _wrong(match, facts.rows)
    match match.verdict:
        case "match":
            return f"matches {name}{_as_logged(match)}: max abs difference {number(match.max_difference, digits=1)} over {rows}"
        case "noise":
            return f"matches {name} as float32 computes it; {wrong} differ from the exact formula"
        case "few":
            pairs = f"{count(match.equations, 'distinct pair')} of a group's rewards and an advantage"
            groups = count(facts.groups, "group")
            return f"too few different values to tell: {pairs} in {groups}; {name} fits, but others may too"
        case "nothing":
            return "nothing to tell: every advantage is 0, or no group has rewards that differ"
        case "near":
            return f"{wrong} differ from the nearest formula, {name}"
    return f"no formula comes close: the nearest, {name}, differs in {wrong}"


def _constants(facts: Audited) -> str:
    divisor = facts.match.plan.divisor
    if divisor.level == "none":
        return "scale none"
    root = f" (--set divisor.inside={exact(divisor.inside)})" if divisor.inside else ""
    if divisor.measure == "mad":
        return f"scale {divisor.level}, mean absolute deviation, epsilon {exact(divisor.epsilon)}"
    constants = f"scale {divisor.level}, epsilon {exact(divisor.epsilon)}{root}, ddof {divisor.ddof}"
    return constants if divisor.of == "reward" else f"{constants}, std of {divisor.of}"


def _computed_by(match: Match) -> list[str]:
    """The options of `compute`, unless the first line says all of them: a preset, or a method without any."""
    named = [*(f"--preset {name}" for name in match.preset_names), f"--method {match.plain_method}"]
    times = "" if match.factor == 1 else f"{number(match.factor)} x "
    return [] if match.flags in named and not times else [f"{times}{match.flags}"]


def _as_logged(one: Differences) -> str:
    """To how many decimals or bits rounded values match."""
    return "" if one.read_as in {"float32", "float64"} else f" to {one.read_as}, as logged"


def _claim(claim: Claim, rows: int) -> list[str]:
    if not claim.mismatched_rows:
        return [f"every row matches the claim{_as_logged(claim)}"]
    furthest = number(claim.max_difference)
    lines = [f"{_wrong(claim, rows)} differ from what the claim computes, by up to {furthest}"]
    for field, values in claim.differs.items():
        lines.append(f"{field}: logged {_set(values.logged)}, claimed {_set(values.claimed)}")
    return lines


def _set(value: Any) -> str:
    return "none" if value in {None, ()} else exact(value)


def _wrong(of: Differences, rows: int) -> str:
    return f"{of.mismatched_rows:,} of {count(rows, 'row')} in {count(of.mismatched_groups, 'group')}"
