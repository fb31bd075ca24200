"""`inspect` on a terminal: the rewards, the groups, the curriculum, what to make of it, and one group if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpo_cli.verdicts import verdicts
from grpo_cli.view import listed
from grpo_cli.view.histogram import bars, blocks
from grpo_cli.view.sheet import BLOCKS, Sheet
from grpo_cli.view.words import clean, count, cut, listing, number, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

BAR: Final = 30
WIDEST: Final = 60  # bars of a histogram on one line


def render(facts: Mapping[str, Any], console: Console) -> None:
    """Print everything that is known."""
    sheet = Sheet(console)
    for block in BLOCKS_OF_LINES:
        lines = [pair for section in block for pair in section(facts)]
        if lines:
            for label, told in lines:
                sheet.row(label, told, hang=2)
            sheet.blank()
    listed.trend(facts, sheet)
    listed.groups(facts, sheet)
    for warning in facts["warnings"]:
        sheet.row("warning", clean(warning), style="yellow", hang=2)
    for label, line in zip(["verdict"] + [""] * 20, verdicts(facts), strict=False):
        sheet.row(label, clean(line), style="cyan", hang=2)


# --- sections ----------------------------------------------------------------------------------------------


def _inputs(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    names = [clean(name) for name in facts.get("inputs", ())]
    if names:
        files = f"{count(len(names), 'file')}: " if len(names) > 1 else ""
        yield "input", [files + listing("standard input" if name == "-" else name for name in names)]
    if facts["schema"]:
        yield "schema", [clean(str(facts["schema"]))]
    rollouts = f" in {count(facts['rollouts'], 'rollout')}" if facts["rollouts"] != facts["rows"] else ""
    missing = f", {facts['unscorable']:,} without a finite reward" if facts["unscorable"] else ""
    yield "rows", [f"{facts['rows']:,}{rollouts}{missing}"]


def _groups(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    size = facts["group_sizes"]
    note = next((text.partition(" = ")[2] for text in facts["notes"] if text.startswith("group = ")), "")
    lone = f", {count(facts['singletons'], 'group')} with a single reward" if facts["singletons"] else ""
    even = size["min"] == size["max"]
    sizes = (
        f"of {size['max']:,}"
        if even
        else f"of {size['min']:,} to {size['max']:,} rows, median {number(size['median'])}"
    )
    lines = [f"{facts['groups']:,} {sizes}{lone}", clean(f"by {note}")]
    if not even:
        counts = size["counts"]
        lines.append(
            f"{size['min']:,} |{blocks(_thinned(list(counts.values())))}| {size['max']:,}   groups of each size"
        )
    yield "groups", lines


def _thinned(counts: Sequence[int]) -> list[int]:
    """As many sums of neighbours as fit on a line."""
    step = -(-len(counts) // WIDEST)
    return [sum(counts[i : i + step]) for i in range(0, len(counts), step)]


def _rewards(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    named = facts["rewards"]
    if len(named) > 1:
        yield "rewards", [clean(" + ".join(named)), *_distribution(facts["reward"])]
        for name, seen in named.items():
            share = seen["zero_variance_share"]
            missing = [f"{seen['unscorable']:,} missing"] if seen["unscorable"] else []
            constant = [f"constant in {percent(share)} of the groups"] if share is not None else []
            yield (
                f"  {cut(clean(name), 11)}",
                [*_distribution(seen), *([", ".join(missing + constant)] if missing + constant else [])],
            )
    else:
        (name,) = named
        yield "rewards", [clean(name), *_distribution(facts["reward"])]


def _distribution(seen: Mapping[str, Any]) -> list[str]:
    if not seen["count"]:
        return ["no finite reward"]
    scale = max(abs(seen["min"]), abs(seen["max"]))
    places = dict(
        zip(("min", "25%", "median", "75%", "max"), (seen["min"], *seen["quartiles"], seen["max"]), strict=True)
    )
    return [
        f"mean {number(seen['mean'], scale)}  std {number(seen['std'], scale)}{_spikes(seen)}",
        "  ".join(f"{place} {number(value, scale)}" for place, value in places.items()),
        *bars(seen["histogram"]),
    ]


def _spikes(seen: Mapping[str, Any]) -> str:
    """The shares of the smallest and of the largest value, where more than these two occur."""
    if not {"at_min", "at_max"} <= seen.keys() or seen["at_min"] + seen["at_max"] == seen["count"]:
        return ""
    ends = ((seen["min"], seen["at_min"]), (seen["max"], seen["at_max"]))
    return "  " + "  ".join(f"{percent(times / seen['count'])} at {number(value)}" for value, times in ends)


def _difficulty(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    seen = facts["difficulty"]
    if seen is None:
        return
    own = (seen["worst"], seen["best"]) == (0, 1)
    way = "" if own else f"   way from {number(seen['worst'])} (0) to {number(seen['best'])} (1)"
    fifths = [sum(seen["bins"][i : i + 2]) for i in range(0, len(seen["bins"]), 2)]
    names = ["0, never", *(f"{i / 5:g} to {(i + 1) / 5:g}" for i in range(5)), "1, always"]
    sizes = [seen["never"], *fifths, seen["always"]]
    top = max(sizes)
    wide, high = max(map(len, names)), max(len(f"{size:,}") for size in sizes)
    lines = [
        f"{name:<{wide}}  {size:>{high},}  {BLOCKS[-1] * (max(1, round(size / top * BAR)) if size else 0)}"
        for name, size in zip(names, sizes, strict=True)
    ]
    useful = f"{seen['useful']:,} of {count(seen['groups'], 'group')} from 0.2 to 0.8, mean {number(seen['mean'])}{way}"
    yield "solve rate", [*lines, useful]


def _zero_variance(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    seen, expected = facts["zero_variance"], facts["expected"]
    if expected is None:
        yield "zero variance", ["no group has two rewards to compare"]
        return
    kinds = (
        ("always solved", "all_best"),
        ("never solved", "all_worst"),
        ("other", "other"),
        ("nearly constant", "nearly"),
    )
    split = [f"{seen[name]:,} {word}" for word, name in kinds if seen[name]]
    some = f"{percent(expected['observed'])} of the groups: {', '.join(split)}"
    lines = [some if seen["groups"] else "none: every group has unequal rewards"]
    if expected["own_rates"] is not None:
        lines += [
            f"expected: {percent(expected['own_rates'])} if each group's rate is its prompt's own",
            f"          {percent(expected['one_rate'])} if all prompts were equally hard",
        ]
    yield "zero variance", lines


def _sizes(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    if all(one["alive"] == 1 for one in facts["at_size"]):
        return
    marks = {"sample": "", "model": "~", "bound": ">="}
    alive = [f"{marks[one['found']]}{percent(one['alive'])}" for one in facts["at_size"]]
    heads = [f"{one['size']:,}" for one in facts["at_size"]]
    widths = [max(len(a), len(b)) for a, b in zip(heads, alive, strict=True)]
    lines = [
        "  ".join([name.ljust(12), *(text.rjust(width) for text, width in zip(texts, widths, strict=True))])
        for name, texts in (("rows a group", heads), ("would vary", alive))
    ]
    used = {one["found"] for one in facts["at_size"]}
    notes = {"model": "~ if solve rates follow a Beta distribution", "bound": ">= at least so many"}
    yield "other sizes", [*lines, *(note for mark, note in notes.items() if mark in used)]


def _pull(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    seen = facts["spread"]
    if seen["within"] is not None:
        share = f" ({percent(seen['between_share'])} of the variance)" if seen["between_share"] is not None else ""
        yield "spread", [f"{number(seen['within'])} within groups, {number(seen['between'])} between them{share}"]
    effective = (
        ""
        if facts["effective_rows"] is None
        else f"; all pull like {number(facts['effective_rows'])} equal rows ({facts['method']})"
    )
    yield "rows that pull", [f"{facts['live_rows']:,} of {facts['rows']:,} are in groups that vary{effective}"]


def _likeness(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    seen = facts["length"]
    if seen is not None and seen["mean"] is not None:
        signed = {
            name: "-" if seen[name] is None else f"{seen[name]:+.2f}" for name in ("correlation", "within_groups")
        }
        ends = [
            f"{word} {number(seen[name])}"
            for word, name in (("best rows", "best"), ("worst", "worst"))
            if seen[name] is not None
        ]
        yield (
            "length",
            [
                f"correlation with the reward {signed['correlation']}, inside groups {signed['within_groups']}",
                clean(f"{seen['column']}: mean {number(seen['mean'])}" + (f"; {', '.join(ends)}" if ends else "")),
            ],
        )
    same = facts["duplicates"]
    if same is not None and same["share"] is not None:
        told = f"{same['rows']:,} of the texts ({percent(same['share'])}) repeat another one of their group"
        whole = f"; {count(same['all_the_same'], 'group')} of one text only" if same["all_the_same"] else ""
        yield "duplicates", [clean(f"{told}{whole}" if same["rows"] else f"none in {same['column']}")]


BLOCKS_OF_LINES: Final = ((_inputs, _groups), (_rewards,), (_difficulty, _zero_variance, _sizes), (_pull, _likeness))
