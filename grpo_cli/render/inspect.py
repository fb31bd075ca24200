"""`inspect` on a terminal: the rewards, the groups, the curriculum, what to make of it, and one group if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from grpo_cli.errors import UnknownName
from grpo_cli.formats.cells import canonical
from grpo_cli.render.text import (
    BLOCKS,
    Sheet,
    aligned,
    bars,
    blocks,
    clean,
    column,
    count,
    cut,
    listing,
    number,
    percent,
)
from grpo_cli.stats.extremes import GROUP_FACTS
from grpo_cli.stats.group_rows import shown
from grpo_cli.stats.verdicts import verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

    from grpo_cli.stats.inspection import Inspection


KEY: Final = 28
LINES: Final = 20  # of a trend; more are thinned out
SPARKS: Final = 60
ROWS: Final = 64  # of a group
NARROWEST: Final = 12  # of a text beside its numbers
HEADS: Final = {
    "unscorable": "missing",
    "zero_variance": "constant",
    "all_best": "best",
    "all_worst": "worst",
    "group_std": "in group",
}
# Which columns of a trend go first where the terminal is too narrow for all.
SPARE: Final = ("std", "rows", "all_worst", "all_best", "unscorable", "length", "group_std")
SHARES: Final = frozenset({"zero_variance", "all_best", "all_worst"})
SPARKED: Final = ("mean", "group_std", "zero_variance", "length")


def trend(facts: Mapping[str, Any], sheet: Sheet) -> None:
    """One line for each value of a column, under the course of its most telling numbers."""
    if facts["by"] is None:
        return
    name, lines = clean(facts["by"]["column"]), facts["by"]["lines"]
    here = [key for key in lines[0] if any(line[key] not in {None, 0} for line in lines) or key in {"value", "mean"}]
    for key in SPARKED:
        values = [line[key] for line in lines]
        if len(lines) > 1 and any(value is not None for value in values):
            sheet.row(HEADS.get(key, key), f"{spark(values)}  {_cell(key, values[0])} to {_cell(key, values[-1])}")
    picked = [lines[round(i * (len(lines) - 1) / (LINES - 1))] for i in range(LINES)] if len(lines) > LINES else lines
    for line in _fitting(name, here, picked, sheet.console.width):
        sheet.text(line)
    if len(lines) > LINES:
        sheet.text(f"{LINES} of {len(lines):,} values; --format csv has all", style="dim")
    sheet.blank()


def _fitting(name: str, keys: list[str], lines: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """The table with as many columns as there is room for."""
    for spare in ("", *SPARE):
        keys = [key for key in keys if key != spare]
        cells = [[_cell(key, line[key]) for line in lines] for key in keys]
        table = aligned([name, *(HEADS.get(key, key) for key in keys[1:])], cells)
        if max(map(len, table)) <= width:
            break
    return table


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key in SHARES:
        return percent(value)
    return (
        number(value) if isinstance(value, float) else f"{value:,}" if key != "value" else cut(clean(str(value)), KEY)
    )


def spark(values: Sequence[float | None]) -> str:
    """One block for each value (or for each few), from the lowest to the highest; a gap where there is none."""
    step = -(-len(values) // SPARKS)
    parts = [[v for v in values[i : i + step] if v is not None] for i in range(0, len(values), step)]
    means = [sum(part) / len(part) if part else None for part in parts]
    known = [mean for mean in means if mean is not None]
    low, high = min(known), max(known)
    if low == high:
        return "".join(" " if mean is None else BLOCKS[3] for mean in means)
    return "".join(
        " " if mean is None else BLOCKS[round((mean - low) / (high - low) * (len(BLOCKS) - 1))] for mean in means
    )


def groups(facts: Mapping[str, Any], sheet: Sheet) -> None:
    """The groups with the most and with the least of a fact."""
    told = facts["listed"]
    those = [*told["most"], *told["least"]]
    if not those:
        return
    names = ["scored", "mean", "std", "min", "max", *(["length"] if "length" in those[0] else [])]
    cells = [[cut(clean(one["key"]), KEY) for one in those]]
    cells += [column([one[name] for one in those]) for name in names]
    heads = ["group", "rows", *names[1:]]
    lines = aligned(heads, cells, frozenset({0}))
    sheet.text(
        f"the {'most' if len(told['most']) > 1 else 'group with the most'} and the least by {told['sort']}",
        style="bold",
    )
    for at, line in enumerate(lines):
        if told["least"] and at == 1 + len(told["most"]):
            sheet.text("...")
        sheet.text(line, style="dim" if not at else "")
    sheet.blank()


def group(told: Mapping[str, Any], console: Console) -> None:
    """One group: its facts, and its rows with as much of their text as fits."""
    sheet = Sheet(console)
    sheet.row("group", clean(told["key"]), hang=2)
    if told["prompt"]:
        sheet.row("prompt", cut(clean(told["prompt"]), 3 * sheet.width), hang=2)
    numbers = ("scored", "mean", "std", "min", "max", "solve_rate")
    sheet.row("facts", "  ".join(f"{name.replace('_', ' ')} {number(told[name])}" for name in numbers), hang=2)
    sheet.blank()
    heads, cells = row_cells(told["rows"])
    lines = aligned(heads, cells)
    room = console.width - max(map(len, lines)) - 2
    texts = ["text", *(clean(row["text"] or "") for row in told["rows"])]
    beside = any(texts[1:]) and room >= NARROWEST
    for line, text in zip(lines, texts, strict=True):
        sheet.text(f"{line}  {' ' * (max(map(len, lines)) - len(line))}{_head(text, room)}" if beside else line)
    if told["size"] > len(told["rows"]):
        sheet.text(f"{len(told['rows']):,} of {told['size']:,} rows; --format csv has all", style="dim")


def row_cells(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and columns of a group's rows."""
    several = len(rows[0]["rewards"]) > 1
    heads, cells = ["row"], [[str(row["row"]) for row in rows]]
    for name in rows[0]["rewards"] if several else ():
        heads.append(clean(name))
        cells.append([number(row["rewards"][name]) for row in rows])
    for name in ("reward", "advantage"):
        heads.append(name)
        cells.append(column([row[name] for row in rows]))
    if any(row["length"] is not None for row in rows):
        heads.append("length")
        cells.append([number(row["length"]) for row in rows])
    if any(row["status"] != "scored" for row in rows):
        heads.append("status")
        cells.append([row["status"] for row in rows])
    return heads, cells


def _head(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


DIGITS: Final = 6


def asked(found: Inspection, *, show: str | None, sort: str | None, top: int | None) -> pl.DataFrame:
    """The rows of a group if one is shown, else the trend if there is one, else the groups."""
    if show is not None:
        return _rows(shown(found, show)["rows"])
    if found.facts["by"] is not None:
        told = found.facts["by"]
        return pl.DataFrame(told["lines"], infer_schema_length=None).rename({"value": told["column"]})
    return _groups(found, sort, top)


def _rows(rows: list[Mapping[str, Any]]) -> pl.DataFrame:
    flat = [{k: v for k, v in row.items() if k != "rewards"} | dict(row["rewards"]) for row in rows]
    return pl.DataFrame(flat, infer_schema_length=None)


def _groups(found: Inspection, sort: str | None, top: int | None) -> pl.DataFrame:
    """Every group with its key; in their order, or the most first."""
    names = [name for name in (*GROUP_FACTS, "constant") if name in found.groups.columns]
    keys = [canonical(one) if one.dtype.is_nested() else one for one in found.narrow.key.get_columns()]
    facts = found.groups.select(names).with_columns(pl.selectors.float().fill_nan(None))
    frame = pl.DataFrame([*(key for key in keys if key.name not in names), *facts.get_columns()])
    if not keys:
        frame = pl.DataFrame([(found.narrow.groups.first + 1).alias("first_row"), *facts.get_columns()])
    if sort is not None:
        if sort not in names:
            raise UnknownName.among("fact of a group", sort, names)
        frame = frame.sort(sort, descending=True, nulls_last=True, maintain_order=True)
    return frame if top is None else frame.head(top)


def markdown(frame: pl.DataFrame) -> str:
    """A table as Markdown has it; numbers to the right."""
    right = [dtype.is_numeric() for dtype in frame.dtypes]
    lines = [frame.columns, ["--:" if one else "---" for one in right]]
    lines += [[_text(value) for value in row] for row in frame.iter_rows()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value, digits=DIGITS)
    return " ".join(str(value).split()).replace("|", "\\|")


def _csv(frame: pl.DataFrame) -> str:
    return frame.write_csv()


WRITERS: Final[Mapping[str, Callable[[pl.DataFrame], str]]] = {"md": markdown, "csv": _csv}


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
    trend(facts, sheet)
    groups(facts, sheet)
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


def _group_facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
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


BLOCKS_OF_LINES: Final = (
    (_inputs, _group_facts),
    (_rewards,),
    (_difficulty, _zero_variance, _sizes),
    (_pull, _likeness),
)
