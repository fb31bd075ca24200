"""The summary of a run: what was computed, from what, what it means, and where it went.

Every section takes the facts (plain data, see `grpo_cli.facts`) and the plan, and gives labelled lines. Nothing is
said by colour alone; what asks for the user's attention comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.render import plan_text
from grpo_cli.render.text import Sheet, bars, clean, count, cut, duration, exact, listing, number, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.console import Console

    from grpo_cli.engine.plan import Plan

    Section = Callable[[Mapping[str, Any], Plan], Iterator[tuple[str, list[str]]]]


KEY: Final = 32
FATE: Final = {"drop": "their rows are dropped", "null": "their rows get null"}
ALONE: Final = {
    "zero": "advantage 0",
    "raw": "advantage r",
    "nan": "advantage NaN",
    "null": "advantage null",
    "drop": "rows dropped",
}
UNSCORED: Final = {
    "exclude": "left out of their groups, null",
    "zero": "left out of their groups, advantage 0",
    "as-zero": "counted as reward 0",
    "error": "left out of their groups",
}
SPOILT: Final = {
    "row": "they are NaN",
    "later": "they and the later rows that build on them are NaN",
    "group": "their groups are NaN",
    "batch": "their batches are NaN",
}


def render(facts: Mapping[str, Any], console: Console, *, quiet: bool = False) -> None:
    """Print the summary; `quiet` leaves only the warnings."""
    sheet, plan = Sheet(console), plan_text.restored(facts["plan"])
    if not quiet:
        for i, block in enumerate(BLOCKS):
            if i:
                sheet.blank()
            show(block, facts, plan, sheet)
    if facts["warnings"] and not quiet:
        sheet.blank()
    for warning in facts["warnings"]:
        sheet.row("warning", clean(warning), style="yellow")


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
    told = facts.get("preset")
    if told is not None:
        changed = [f"{key} {exact(one['plan'])}, not {exact(one['preset'])}" for key, one in told["overridden"].items()]
        yield "preset", [told["name"], *([f"overridden: {'; '.join(changed)}"] if changed else [])]


def inputs(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """Files, rows and what became of the rows."""
    names = [clean(name) for name in facts.get("inputs", ())]
    files = f"{count(len(names), 'file')}: " if len(names) > 1 else ""
    if names:
        yield "input", [files + listing("standard input" if name == "-" else name for name in names)]
    if facts["schema"]:
        first, *others = facts["notes"]
        said = [note for note in others if " = " not in note]
        yield "schema", [clean(note) for note in (first.removeprefix("read as "), *said)]
    rollouts = f" in {count(facts['rollouts'], 'rollout')}" if facts["rollouts"] != facts["rows"] else ""
    dropped = f"; {facts['dropped_rows']:,} not written" if facts.get("dropped_rows") else ""
    dropped += f"; {facts['copied_rows']:,} copies added" if facts.get("copied_rows") else ""
    status = [f"{size:,} {name}" for name, size in facts["status"].items() if size]
    yield "rows", [f"{facts['rows']:,}{rollouts}: {', '.join(status)}{dropped}"]


def groups(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """How groups were found and how large they are."""
    size = facts["group_sizes"]
    if size["min"] == size["max"]:
        sizes = f"{facts['groups']:,} x {size['max']:,} {'row' if size['max'] == 1 else 'rows'}"
    else:
        sizes = f"{facts['groups']:,} of {size['min']:,} to {size['max']:,} rows, median {number(size['median'])}"
    yield "groups", [sizes, _note(facts, "group") or f"by {', '.join(facts['group_key'])}"]


def batches(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """What is normalised together, where anything is."""
    if not plan.uses_batch and facts["batches"] == 1:
        return
    by = {"input": "the whole input", "file": "each file"}.get(
        facts["batch_key"], f"each value of {clean(facts['batch_key'])}"
    )
    unused = "" if plan.uses_batch else ", not used by this plan"
    yield "batches", [f"{facts['batches']:,}: {by}{unused}"]


def reward(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """The distribution of the rewards."""
    seen, name = facts["reward"], plan_text.weighted(plan, facts["reward_columns"], "r")
    if not seen["count"]:
        yield "rewards", [name, "no finite reward"]
        return
    scale, quartiles = _size(seen), dict(zip(("25%", "median", "75%"), seen["quartiles"], strict=True))
    places = {"min": seen["min"], **quartiles, "max": seen["max"]}
    lines = [
        f"mean {number(seen['mean'], scale)}  std {number(seen['std'], scale)}",
        "  ".join(f"{place} {number(value, scale)}" for place, value in places.items()),
    ]
    before = " (before shaping)" if plan.shape else ""
    yield "rewards", [f"{name}{before}", *lines, *bars(seen["histogram"])]


def zero_variance(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """How many groups teach nothing, and which."""
    seen = facts["zero_variance"]
    if seen["share"] is None:
        yield "zero variance", ["no group has two rewards to compare"]
        return
    comparable = round(seen["groups"] / seen["share"]) if seen["share"] else 0
    lines = [_constant(seen, comparable, plan)] if seen["groups"] else ["none: every group has unequal rewards"]
    if seen["nearly"]:
        lines.append(
            f"{count(seen['nearly'], 'group')} more {_are(seen['nearly'])} nearly constant (spread <= 1e-9 of the size)"
        )
    lines += _skipped(facts, "zero-variance", "all" if plan.groups.std_threshold is None else "mean")
    degenerate = next((one["groups"] for one in facts["skipped"] if one["reason"] == "zero-variance"), 0)
    if degenerate > seen["groups"]:
        threshold = f"std <= {number(plan.groups.std_threshold)}"
        lines.insert(1, f"{count(degenerate - seen['groups'], 'group')} more by {threshold}")
    if degenerate and plan.groups.zero_variance in FATE:
        lines.append(FATE[plan.groups.zero_variance])
    yield "zero variance", lines


def _constant(seen: Mapping[str, Any], comparable: int, plan: Plan) -> str:
    """A centred formula gives such a group 0; under any other one it is worth knowing all the same."""
    kinds = (("all best", seen["all_best"]), ("all worst", seen["all_worst"]), ("other", seen["other"]))
    split = ", ".join(f"{size:,} {kind}" for kind, size in kinds if size)
    whitened = any(op.name == "whiten" for op in plan.post)
    one = seen["groups"] == 1
    meaning = (
        ("carries" if one else "carry") + " no gradient"
        if plan_text.silences(plan)
        else _are(seen["groups"]) + " constant"
    )
    before = " before whitening" if whitened and plan_text.silences(plan) else ""
    return f"{seen['groups']:,} of {count(comparable, 'group')} {meaning}{before} ({percent(seen['share'])}): {split}"


def others(facts: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Singletons, small groups and rows without a reward, where there are any."""
    if facts["singletons"]:
        fate = ALONE.get(plan.alone.result) or plan_text.alone(plan)[0].removeprefix("singletons: ")
        what = f"{count(facts['singletons'], 'group')} with a single scored row: {fate}"
        yield "singletons", [what, *_skipped(facts, "singleton", "reward")]
    small = next((one for one in facts["skipped"] if one["reason"] == "small-group"), None)
    if small:
        fewer = f"with fewer than {plan.groups.min_size} scored rows {plan_text.SMALL[plan.groups.small]}"
        yield (
            "small groups",
            [f"{count(small['groups'], 'group')} {fewer}", *_skipped(facts, "small-group", "mean")],
        )
    if facts["unscorable"]:
        fate = UNSCORED.get(plan.rewards.missing, SPOILT[plan.spoils])
        told = f"{count(facts['unscorable'], 'row')} without a finite reward: {fate}"
        empty = next((one["groups"] for one in facts["skipped"] if one["reason"] == "unscorable"), 0)
        lines = [f"{count(empty, 'group')} {'has' if empty == 1 else 'have'} no reward at all"] if empty else []
        yield "unscorable", [told, *lines, *_skipped(facts, "unscorable", "")]


def advantage(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """The distribution of what was computed."""
    seen = facts["advantage"]
    scale = _size(seen)
    line = "  ".join(f"{name} {number(seen[name], scale)}" for name in ("mean", "std", "min", "max"))
    counts = [
        f"{seen[key]:,} {word}"
        for key, word in (("zero", "is 0" if seen["zero"] == 1 else "are 0"), ("null", "null"), ("nan", "NaN"))
        if seen[key]
    ]
    yield (
        "advantages",
        [
            line if seen["min"] is not None else "no finite advantage",
            *([", ".join(counts)] if counts else []),
        ],
    )


def written(facts: Mapping[str, Any], _: Plan) -> Iterator[tuple[str, list[str]]]:
    """Where it went and how long it took."""
    outputs = [clean(name) for name in facts.get("outputs", ())]
    took = f"{duration(facts['seconds'])}" if "seconds" in facts else ""
    if not outputs:
        yield "written", [f"nothing ({took})" if took else "nothing"]
        return
    files = f"{count(len(outputs), 'file')}: " if len(outputs) > 1 else ""
    if kept := facts.get("kept_outputs"):
        files = f"{count(len(outputs) - kept, 'file')}, {kept} were finished by an earlier run: "
    column = f"column {clean(facts['advantage_column'])}" if "advantage_column" in facts else ""
    yield "written", [files + listing("standard output" if name == "stdout" else name for name in outputs),
                      ", ".join(text for text in (column, took) if text)]  # fmt: skip


FOUND: Final = (inputs, groups, batches)
BLOCKS: Final[tuple[tuple[Section, ...], ...]] = (
    (method,),
    FOUND,
    (reward,),
    (zero_variance, others),
    (advantage, written),
)


def _note(facts: Mapping[str, Any], name: str) -> str:
    """What `sources` noted about how it found the key or the reward."""
    told = (note.partition(" = ") for note in facts["notes"])
    return next((clean(f"{'by ' if name == 'group' else ''}{text}") for key, _, text in told if key == name), "")


def _skipped(facts: Mapping[str, Any], reason: str, word: str) -> list[str]:
    """The first groups of a reason, each with its reward."""
    one = next((one for one in facts["skipped"] if one["reason"] == reason), None)
    if one is None:
        return []
    keys = [cut(clean(item["key"]), KEY) + _rewarded(item["reward"], word) for item in one["keys"]]
    rest = one["groups"] - len(keys)
    return ["; ".join(keys) + (f"; ... {rest:,} more" if rest else "")]


def _rewarded(value: float | None, word: str) -> str:
    return f" ({word} {number(value)})" if word and value is not None else ""


def _size(seen: Mapping[str, Any]) -> float:
    """The largest number of a distribution, beside which rounding is 0."""
    return max((abs(seen[key]) for key in ("min", "max") if seen[key] is not None), default=0.0)


def _are(size: int) -> str:
    return "is" if size == 1 else "are"
