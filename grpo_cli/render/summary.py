"""The summary of a run: what was computed, from what, what it means, and where it went.

Every section takes the facts (plain data, see `grpo_cli.stats.facts`) and the plan, and gives labelled lines.
Nothing is said by colour alone; what asks for the user's attention comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.render import plan_text
from grpo_cli.render.text import (
    Sheet,
    bars,
    clean,
    count,
    cut,
    duration,
    exact,
    file_list,
    listing,
    number,
    text_outcomes,
)
from grpo_cli.stats.verdicts import key_note, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.console import Console

    from grpo_cli.engine.plan import Plan

    Section = Callable[[Mapping[str, Any], Plan], Iterator[tuple[str, list[str]]]]


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
    "exclude": "left out of their groups, null",
    "zero": "left out of their groups, advantage 0",
    "as-zero": "counted as reward 0",
    "error": "left out of their groups",
}
PROPAGATED: Final = {
    "row": "they are NaN",
    "later": "they and the later rows that build on them are NaN",
    "group": "their groups are NaN",
    "batch": "their batches are NaN",
}


def render(facts: Mapping[str, Any], console: Console) -> None:
    """Print the summary."""
    sheet, plan = Sheet(console), plan_text.plan_from_dict(facts["plan"])
    for i, block in enumerate(BLOCKS):
        if i:
            sheet.blank()
        show(block, facts, plan, sheet)
    if facts["warnings"]:
        sheet.blank()
    sheet.warnings(facts["warnings"])


def show(sections: Iterable[Section], facts: Mapping[str, Any], plan: Plan, sheet: Sheet) -> None:
    """Print some sections."""
    for section in sections:
        for label, lines in section(facts, plan):
            sheet.row(label, lines, hang=2)


def method(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """The formula with its constants, and where it differs from a plain one."""
    yield from preset(facts, plan)
    yield "method", [plan.method, *(f"  {line}" for line in plan_text.describe(plan, facts["reward_columns"]))]


def preset(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """The preset that was named, and what flags changed of it."""
    named = facts.get("preset")
    if named is not None:
        overridden = [f"{k} {exact(v['plan'])}, not {exact(v['preset'])}" for k, v in named["overridden"].items()]
        yield "preset", [named["name"], *([f"overridden: {'; '.join(overridden)}"] if overridden else [])]


def inputs(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """Files, rows and what became of the rows."""
    if facts.get("inputs"):
        yield "input", [file_list(facts["inputs"])]
    if facts["schema"]:
        first, *others = facts["notes"]
        notes = [first.removeprefix("read as "), *(note for note in others if " = " not in note)]
        yield "schema", [clean(note) for note in notes]
    rollouts = f" in {count(facts['rollouts'], 'rollout')}" if facts["rollouts"] != facts["rows"] else ""
    dropped = f"; {facts['dropped_rows']:,} not written" if facts.get("dropped_rows") else ""
    dropped += f"; {facts['copied_rows']:,} copies added" if facts.get("copied_rows") else ""
    status = [f"{size:,} {name}" for name, size in facts["status"].items() if size]
    yield "rows", [f"{facts['rows']:,}{rollouts}: {', '.join(status)}{dropped}"]


def groups(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """How large the groups are, and their key."""
    size = facts["group_sizes"]
    if size["min"] == size["max"]:
        sizes = f"{facts['groups']:,} x {size['max']:,} {'row' if size['max'] == 1 else 'rows'}"
    else:
        sizes = f"{facts['groups']:,} of {size['min']:,} to {size['max']:,} rows, median {number(size['median'])}"
    yield "groups", [sizes, f"by {clean(key_note(facts)) or ', '.join(facts['group_key'])}"]


def batches(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """What is normalised together, where anything is."""
    if not plan.uses_batch and facts["batches"] == 1:
        return
    key = facts["batch_key"]
    by = {"input": "the whole input", "file": "each file"}.get(key, f"each value of {clean(key)}")
    unused = "" if plan.uses_batch else ", not used by this plan"
    yield "batches", [f"{facts['batches']:,}: {by}{unused}"]


def reward(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """The distribution of the rewards."""
    rewards, name = facts["reward"], plan_text.weighted(plan, facts["reward_columns"], "r")
    outcomes = text_outcomes(facts)
    if not rewards["count"]:
        yield "rewards", [name, *outcomes, "no finite reward"]
        return
    scale = _largest(rewards)
    values = (rewards["min"], *rewards["quartiles"], rewards["max"])
    yield "rewards", [
        f"{name} (before shaping)" if plan.shape else name,
        *outcomes,
        f"mean {number(rewards['mean'], scale)}  std {number(rewards['std'], scale)}",
        "  ".join(f"{n} {number(v, scale)}" for n, v in zip(("min", "25%", "median", "75%", "max"), values, strict=True)),
        *bars(rewards["histogram"]),
    ]  # fmt: skip


def zero_variance(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """How many groups carry no gradient, and which."""
    constant, rule = facts["zero_variance"], plan.groups
    if constant["share"] is None:
        yield "zero variance", ["no group has two rewards to compare"]
        return
    lines = [_constant(constant, plan)] if constant["groups"] else ["none: every group has unequal rewards"]
    if nearly := constant["nearly"]:
        lines.append(f"{count(nearly, 'group')} more {_are(nearly)} nearly constant (spread <= 1e-9 of the size)")
    lines += _skipped_keys(facts, "zero-variance", "all" if rule.std_threshold is None else "mean")
    skipped = _skipped_groups(facts, "zero-variance")
    if skipped > constant["groups"]:
        more = count(skipped - constant["groups"], "group")
        lines.insert(1, f"{more} more by std <= {number(rule.std_threshold)}")
    if skipped and rule.zero_variance in SKIPPED:
        lines.append(SKIPPED[rule.zero_variance])
    yield "zero variance", lines


def _constant(constant: Mapping[str, Any], plan: Plan) -> str:
    """A centred formula gives such a group 0; under any other one it is worth knowing all the same."""
    kinds = (("all best", constant["all_best"]), ("all worst", constant["all_worst"]), ("other", constant["other"]))
    split = ", ".join(f"{size:,} {kind}" for kind, size in kinds if size)
    groups, share = constant["groups"], constant["share"]
    meaning = f"{_are(groups)} constant"
    if plan_text.gives_constant_groups_0(plan):
        meaning = "carries no gradient" if groups == 1 else "carry no gradient"
        meaning += plan_text.before_whitening(plan)
    return f"{groups:,} of {count(round(groups / share), 'group')} {meaning} ({percent(share)}): {split}"


def others(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Singletons, small groups and rows without a reward, where there are any."""
    if facts["singletons"]:
        result = SINGLETONS.get(plan.alone.result) or plan_text.singletons(plan)[0].removeprefix("singletons: ")
        groups = f"{count(facts['singletons'], 'group')} with a single scored row: {result}"
        yield "singletons", [groups, *_skipped_keys(facts, "singleton", "reward")]
    if small := _skipped_groups(facts, "small-group"):
        fewer = f"with fewer than {plan.groups.min_size} scored rows {plan_text.SMALL[plan.groups.small]}"
        yield "small groups", [f"{count(small, 'group')} {fewer}", *_skipped_keys(facts, "small-group", "mean")]
    if facts["unscorable"]:
        result = UNSCORABLE.get(plan.rewards.missing, PROPAGATED[plan.nan_reach])
        lines = [f"{count(facts['unscorable'], 'row')} without a finite reward: {result}"]
        if empty := _skipped_groups(facts, "unscorable"):
            lines.append(f"{count(empty, 'group')} {'has' if empty == 1 else 'have'} no reward at all")
        yield "unscorable", [*lines, *_skipped_keys(facts, "unscorable", "")]


def advantage(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """The distribution of what was computed."""
    values = facts["advantage"]
    scale = _largest(values)
    lines = ["  ".join(f"{name} {number(values[name], scale)}" for name in ("mean", "std", "min", "max"))]
    if values["min"] is None:
        lines = ["no finite advantage"]
    kinds = (("zero", f"{_are(values['zero'])} 0"), ("null", "null"), ("nan", "NaN"))
    counts = [f"{values[key]:,} {words}" for key, words in kinds if values[key]]
    yield "advantages", [*lines, *([", ".join(counts)] if counts else []), *_on_tokens(facts)]


def _on_tokens(facts: Mapping[str, Any]) -> list[str]:
    """A line of the tokens that they stand on; none without --per-token."""
    found = facts.get("per_token")
    if found is None:
        return []
    by = ", ".join(f"{part.replace('_', ' ')} = {clean(name)}" for part, name in found["columns"].items())
    return [f"on {found['response_tokens']:,} of {count(found['tokens'], 'token')} ({by})"]


def written(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """Where it went and how long it took."""
    outputs = facts.get("outputs", ())
    took = duration(facts["seconds"]) if "seconds" in facts else ""
    if not outputs:
        yield "written", [f"nothing ({took})" if took else "nothing"]
        return
    files = file_list(outputs)
    if kept := facts.get("kept_outputs"):
        finished = f"{count(len(outputs) - kept, 'file')}, {kept} were finished by an earlier run"
        files = f"{finished}: {listing(map(clean, outputs))}"
    column = f"column {clean(facts['advantage_column'])}" if "advantage_column" in facts else ""
    yield "written", [files, ", ".join(text for text in (column, took) if text)]


READ: Final = (inputs, groups, batches)
BLOCKS: Final[tuple[tuple[Section, ...], ...]] = (
    (method,),
    READ,
    (reward,),
    (zero_variance, others),
    (advantage, written),
)


def _skipped_groups(facts: Mapping[str, Any], reason: str) -> int:
    return next((skip["groups"] for skip in facts["skipped"] if skip["reason"] == reason), 0)


def _skipped_keys(facts: Mapping[str, Any], reason: str, word: str) -> list[str]:
    """A line of the first groups that were skipped for a reason, each with its reward after the word; or no line."""
    lines = []
    for skip in facts["skipped"]:
        if skip["reason"] == reason:
            keys = [
                cut(clean(group["key"]), KEY)
                + (f" ({word} {number(group['reward'])})" if word and group["reward"] is not None else "")
                for group in skip["keys"]
            ]
            rest = skip["groups"] - len(keys)
            lines.append("; ".join(keys) + (f"; ... {rest:,} more" if rest else ""))
    return lines


def _largest(distribution: Mapping[str, Any]) -> float:
    """The largest number of a distribution, beside which rounding is 0."""
    return max((abs(distribution[key]) for key in ("min", "max") if distribution[key] is not None), default=0.0)


def _are(size: int) -> str:
    return "is" if size == 1 else "are"
