"""`inspect --rescored`: two rewards of the same rollouts, on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl
from rich.console import Console

from grpo_cli.render.inspect import markdown as table
from grpo_cli.render.text import Sheet, aligned, clean, count, cut, file_list, number
from grpo_cli.stats.verdicts import percent
from grpo_cli.values.key_text import labels_of

KEY: Final = 28
LINES: Final = 6  # a longer trend is thinned out to this many lines
NARROWEST: Final = 12  # a text beside its numbers is at least this many characters wide
TREND: Final = ("rows", "changed", "up", "down", "mean change")

Facts = Mapping[str, Any]
Table = tuple[Sequence[str], list[list[str]]]  # its heads, its lines


def render(facts: Facts, console: Console) -> None:
    """Print what the new reward changes."""
    sheet = Sheet(console)
    for label, said in _sections(facts):
        sheet.row(label, said, hang=2)
    for heads, lines in (*_trends(facts["depends_on"]), _largest(facts, console.width)):
        left = frozenset(at for at, head in enumerate(heads) if not at or head == "text")
        for i, line in enumerate(aligned(heads, list(zip(*lines, strict=True)), left) if lines else ()):
            if not i:
                sheet.blank()
            sheet.text(line[: console.width], style="" if i else "bold")
    sheet.warnings(facts["warnings"], hang=2)
    sheet.row("verdict", facts["verdict"], style="cyan", hang=2)


def markdown(facts: Facts) -> str:
    """The same as Markdown: a list, and a table for each part."""
    said = [f"* **{label}**: {'; '.join(parts)}\n" for label, parts in _sections(facts)]
    for heads, lines in (*_trends(facts["depends_on"]), _largest(facts, None)):
        if lines:
            said += ["\n", table(pl.DataFrame(lines, schema=list(heads), orient="row"))]
    return "".join([*said, f"\n{facts['verdict']}\n"])


def _sections(facts: Facts) -> Iterator[tuple[str, list[str]]]:
    """The labelled lines above the tables."""
    reward, agree, groups, advantage = (facts[name] for name in ("reward", "agreement", "groups", "advantage"))
    for label, names in (("now", facts["inputs"]), ("before", facts["rescored"])):
        side = reward[label]
        yield label, [f"{file_list(names)}: {' + '.join(map(clean, side['columns']))}, mean {number(side['mean'])}"]
    yield "rollouts", list(_pairing(facts))
    measures = [("kappa", agree["kappa"]), ("rank correlation", agree["rank_correlation"])]
    parts = [f"{name} {number(value)}" for name, value in measures if value is not None]
    changes = f"{reward['up']:,} up, {reward['down']:,} down, mean change {reward['mean_change']:+.4g}"
    yield "agreement", [", ".join([f"{percent(agree['share'])} exactly", *parts]), changes]
    if facts["flips"] is not None:
        flips = [(one["before"], one["now"], f"{one['rows']:,}") for one in facts["flips"]]
        changed = [f"{number(before)} to {number(now)}: {rows}" for before, now, rows in flips if before != now]
        same = [f"{number(now)} stays: {rows}" for before, now, rows in flips if before == now]
        yield "flips", ["   ".join(part) for part in (changed, same) if part]
    has = groups["with_gradient"]
    gradient = f"{has['before']:,} of {count(groups['groups'], 'group')} before, {has['now']:,} now"
    yield "gradient", [gradient, *_named(groups)]
    total = advantage["total"]
    signs = f"{advantage['sign_changes']:,} change sign, {advantage['first_signs']:,} are no longer 0, {advantage['lost_signs']:,} become 0"
    share = "" if total["change"] is None else f" ({100 * total['change']:+.1f}%)"
    moved = (
        f"total |A| {number(total['before'])} to {number(total['now'])}{share}, moved by {number(advantage['moved'])}"
    )
    yield "advantages", [f"{signs} ({advantage['method']})", moved]
    length, components = (facts["depends_on"][name] for name in ("length", "components"))
    goes_with = [_correlation(one) for one in (length, *(components or ())) if one and one["correlation"] is not None]
    if goes_with:
        yield "correlation", [f"of the change: {', '.join(goes_with)}"]


def _pairing(said: Facts) -> Iterator[str]:
    paired = said["paired"]
    if paired is None:
        yield f"{said['compared']:,} with both rewards"
    else:
        by = ", ".join(map(clean, paired["by"]))
        yield f"{said['compared']:,} with both rewards, paired by {by} within {clean(', '.join(paired['key'])) or 'the input'}"
        if any(paired["only"].values()):
            yield f"only now {paired['only']['now']:,}, only before {paired['only']['before']:,}"
    if any(said["unscored"].values()):
        yield f"no reward now {said['unscored']['now']:,}, no reward before {said['unscored']['before']:,}"


def _named(groups: Facts) -> Iterator[str]:
    for kind in ("gained", "lost"):
        part = groups[kind]
        if part["groups"]:
            more = ", ..." if part["groups"] > len(part["keys"]) else ""
            yield f"{kind} by {part['groups']:,}: {', '.join(labels_of(part['keys'], KEY))}{more}"


def _correlation(one: Facts) -> str:
    """How the change goes with the length or with a component."""
    differs = "" if one.get("differs") is None else f" (differs in {one['differs']:,} rows)"
    return f"{one['correlation']:+.2f} with {clean(one['column'])}{differs}"


def _trends(depends: Facts) -> Iterator[Table]:
    """How often the reward changes by length and by step."""
    length, by = depends["length"], depends["by"]
    if length is not None:
        bands = [(f"{number(band['low'])} to {number(band['high'])}", band) for band in length["bands"]]
        yield (clean(length["column"]), *TREND), [_counts(name, band) for name, band in bands]
    if by is not None:
        lines = by["lines"]
        some = sorted({round(k * (len(lines) - 1) / (LINES - 1)) for k in range(LINES)})
        yield (clean(by["column"]), *TREND), [_counts(clean(str(lines[at]["value"])), lines[at]) for at in some]


def _counts(name: str, line: Facts) -> list[str]:
    changed = f"{line['changed']:,} ({percent(line['changed'] / line['rows'])})"
    return [name, f"{line['rows']:,}", changed, f"{line['up']:,}", f"{line['down']:,}", f"{line['mean_change']:+.4g}"]


def _largest(said: Facts, width: int | None) -> Table:
    """The rows that disagree most; on a screen of some width the beginning of their texts."""
    heads, rows = ("largest", "row", "reward", "advantage", "text"), said["largest"]
    lines = [
        [
            f"#{row['number']} {key}",
            f"{row['row']}",
            f"{number(row['before'])} to {number(row['now'])}",
            f"{number(row['advantage']['before'])} to {number(row['advantage']['now'])}",
            clean(row["text"] or ""),
        ]
        for row, key in zip(rows, labels_of([row["key"] for row in rows], KEY), strict=True)
    ]
    if not any(row["text"] for row in rows):
        return heads[:-1], [cells[:-1] for cells in lines]
    if width is not None:
        used = sum(max(map(len, column)) + 2 for column in list(zip(heads, *lines, strict=True))[:-1])
        lines = [[*cells, cut(text, max(width - used, NARROWEST))] for *cells, text in lines]
    return heads, lines
