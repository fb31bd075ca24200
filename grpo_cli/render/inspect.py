"""`inspect` on a terminal: rewards, groups, solve rates, what to make of them; one group; and tables for other programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import Console

from grpo_cli.engine.plan_parts import weighted_sum
from grpo_cli.errors import UnknownName, printable
from grpo_cli.read.texts import has_turns
from grpo_cli.render.distribution import distribution_lines
from grpo_cli.render.estimates import in_percent
from grpo_cli.render.text import (
    Column,
    Sections,
    Sheet,
    aligned,
    bar_lines,
    blocks,
    clean,
    column,
    column_of_texts,
    count,
    file_list,
    group_size,
    markdown_table,
    number,
    rescaled,
    row_count,
    status_words,
    strip,
    text_outcomes,
)
from grpo_cli.runs.group_rows import component_heads, show_group
from grpo_cli.schemas.table import words
from grpo_cli.stats.courses import Course
from grpo_cli.stats.document import ABSENT, document, members
from grpo_cli.stats.facts import STATISTICS, BinCounts, Distribution, ValueCounts, marked_lines
from grpo_cli.stats.inspection import (
    GROUP_FACTS,
    Inspected,
    Inspection,
    Listed,
    RowLine,
    ShownGroup,
    key_columns,
)
from grpo_cli.stats.off_policy import CLIP, NUMBERS, QUANTILES, TAILS, Drift, DriftTrend
from grpo_cli.stats.trends import Trend, over_steps, thinned
from grpo_cli.stats.verdicts import equal_at, label_of_equal, moving, nearly_equal, percent, three, way
from grpo_cli.values.cells import texts_of_nested
from grpo_cli.values.key_text import cells, cut, labels_of, plain, told_apart

KEY = 28  # characters of a value that a trend is over
LINES = 20  # a longer trend is thinned out to this many lines
SPARKS = 60  # characters of a sparkline
ROWS = 64  # at most this many rows of a group are shown
NARROWEST_BAR = 5  # a shorter one of the share without a gradient shows nothing
WIDEST_BAR = 20  # a bar of all groups has at most this many characters
SHORTEST = 8  # cells of a value of a table that is too wide
NAME = 12  # characters of the name of a reward column at a matrix
NAMED = 3  # the names of up to this many reward columns fit over a matrix
RATES = 9  # up to this many solve rates have a line each
# Columns of a trend that fit on 80 characters; --format csv has all.
SPARKED = ("mean", "group_std", "zero_variance", "length", "truncated")
SHOWN = ("groups", *SPARKED)
# Columns of the drift of a policy.
DRIFTS = {
    "k3": "KL k3", "ratio_above_2": "above 2", "ratio_below_0_5": "below 0.5", "clipped_above": "cut A>0", "clipped_below": "cut A<0",
    "token_ess": "ESS",
}  # fmt: skip
SHARES = frozenset(
    {
        "zero_variance",
        "truncated",
        "all_best",
        "all_worst",
        *TAILS,
        "clipped_above",
        "clipped_below",
        "token_ess",
        "sequence_ess",
    }
)


def render(facts: Inspected, console: Console, browse: str = "", *, asked: Collection[str] = ()) -> None:
    """Print all facts of an inspection.

    `browse` is the command that shows the texts, `asked` has the options that were given. A table that they ask for comes last before the
    verdict, and the rest is in brief, unless it is asked for as well.
    """
    sheet = Sheet(console)
    full = "full" in asked or TABLES.isdisjoint(asked)
    asked_for = tuple(section for option, section in ASKED_FOR.items() if option in asked)
    sheet.steps(facts.summary.warnings)
    blocks = BLOCKS_OF_LINES if full else (*IN_BRIEF, asked_for)
    for block in blocks:
        sections = [labelled for section in block for labelled in section(facts)]
        sheet.rows(sections)
        if sections:
            sheet.blank()
    run = facts.steps or facts.by
    heads = {"group_std": "spread", "zero_variance": label_of_equal(facts.summary.plan)}
    if run is not None:
        _sparklines(run, heads, sheet)
    if not full:
        sheet.text("Add --full for the rest: distribution, solve rates, spread, groups.", style="dim")
        sheet.blank()
    if full or not LISTS.isdisjoint(asked):
        _most_and_least(facts.listed, browse, sheet)
    if facts.by is not None and "by" in asked:
        _table_by(facts.by, heads, sheet)
    if facts.off_policy is not None:
        for drift in facts.off_policy.by:
            _drift_by(drift, sheet)
    sheet.warnings(facts.summary.warnings)
    sheet.row("verdict", map(clean, facts.verdicts))


def render_group(shown: ShownGroup, console: Console) -> None:
    """Print one group of `show_group`: its facts, its rows with as much of their text as fits, and conversations below them."""
    sheet = Sheet(console)
    group = shown.group
    rows = shown.rows
    sheet.row("group", cut(f"#{group.number} {plain(group.key)}", 3 * sheet.width))
    if shown.prompt and plain(shown.prompt) != plain(group.key):
        sheet.row("prompt", cut(clean(shown.prompt), 3 * sheet.width))
    numbers = ("scored", "mean", "std", "min", "max", "solve_rate")
    facts = [f"{name.replace('_', ' ')} {number(getattr(group, name))}" for name in numbers]
    sheet.row("facts", "  ".join(facts))
    sheet.blank()
    columns = _columns_of(rows)
    texts = [row.text or "" for row in rows]
    turns = any(map(has_turns, texts))
    if not turns:
        columns += column_of_texts(texts, columns, console.width)
    for line in aligned(columns):
        sheet.text(line)
    if group.size > len(rows):
        sheet.text(f"{len(rows):,} of {group.size:,} rows; --format csv has all", style="dim")
    if turns:
        for row, text in zip(rows, texts, strict=True):
            sheet.blank()
            sheet.text(f"row {row.row}, reward {number(row.reward)}", style="bold")
            for line in text.splitlines():
                sheet.text(f"  {line}")


def _columns_of(rows: Sequence[RowLine]) -> list[Column]:
    """The rows of a group: each reward and their sum, and what differs from other rows."""
    columns: list[Column] = [("row", [str(row.row) for row in rows])]
    of_sum = "reward"
    if len(rows[0].rewards) > 1:
        for name in rows[0].rewards:
            rewards = [number(row.rewards[name]) for row in rows]
            columns.append((clean(name), rewards))
        of_sum = "sum"
    columns.append((of_sum, column([row.reward for row in rows])))
    columns.append(("advantage", column([row.advantage for row in rows])))
    if any(row.length is not None for row in rows):
        columns.append(("length", [number(row.length) for row in rows]))
    if any(row.status != "scored" for row in rows):
        columns.append(("status", [status_words(row.status) for row in rows]))
    return columns


# --- trend and groups --------------------------------------------------------------------------------------


def _sparklines(run: Trend, heads: Mapping[str, str], sheet: Sheet) -> None:
    """The main numbers over the steps, with the ends that the verdict has; categories have no order in which they could rise or fall."""
    if not over_steps(run.lines):
        return
    for key in SPARKED:
        values = [getattr(line, key) for line in run.lines]
        if key in run.courses and sum(value is not None for value in values) > 1:
            ends = way(run.courses[key], percent if key in SHARES else three)
            sheet.row(heads.get(key, key), f"{strip(values, SPARKS)}  {' to '.join(ends)}")
    sheet.blank()


def _table_by(by: Trend, heads: Mapping[str, str], sheet: Sheet) -> None:
    """One line for each value of a column; categories in the order of their groups without a gradient."""
    name = clean(by.column)
    lines = by.lines
    known = [key for key in SHOWN if any(getattr(line, key) is not None for line in lines)]
    categories = not over_steps(lines)
    if categories:
        lines = sorted(lines, key=lambda line: -(line.zero_variance or 0))
    shown = thinned(lines, LINES)
    columns = []
    at = 0  # of the bars, beside the share that they show
    for key in known:
        values = [getattr(line, key) for line in shown]
        columns.append((heads.get(key, key), _cells(key, values)))
        at = len(columns) if key == "zero_variance" else at
    if any(line.course is not None for line in shown):
        columns.append(("over steps", [_in_short(line.course) for line in shown]))
    values = _cells("value", [line.value for line in shown])
    room = sheet.console.width - max(map(cells, aligned(columns))) - 2
    if max(map(cells, [name, *values])) > room:
        name, *values = told_apart([name, *values], max(room, SHORTEST))
    columns = [(name, values), *columns]
    wide = sheet.console.width - max(map(cells, aligned(columns))) - 2
    if categories and at and wide >= NARROWEST_BAR:
        bars = ["█" * round((line.zero_variance or 0.0) * min(wide, WIDEST_BAR)) for line in shown]
        if any(bars):
            columns.insert(at + 1, ("", bars))
    for text in aligned(columns, (name, "") if categories else ()):
        sheet.text(text)
    if len(lines) > LINES:
        sheet.text(f"{LINES} of {len(lines):,} values; --format csv has all", style="dim")
    sheet.blank()


def _in_short(of: Course | None) -> str:
    """The way of the mean reward of a category over the steps: only what is beyond chance is a way."""
    if of is None:
        return "-"
    return (
        " to ".join(way(of, three))
        if moving(of, three)
        else f"{three(of.mean)}, too few steps"
        if of.shape == "few"
        else "no trend"
    )


def _cells(key: str, values: Sequence[Any]) -> list[str]:
    """A column of the trend; numbers have the same decimals."""
    if key not in SHARES and key != "value" and any(isinstance(value, float) for value in values):
        return column(values)
    return [_cell(key, value) for value in values]


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key in SHARES:
        return percent(value)
    if isinstance(value, float):
        return number(value)
    return cut(clean(str(value)), KEY) if key == "value" else f"{value:,}"


def _most_and_least(listed: Listed, browse: str, sheet: Sheet) -> None:
    """The groups with the most and with the least of a fact, and the command that shows their texts."""
    groups = [*listed.most, *listed.least]
    if not groups:
        return
    lengths = () if groups[0].length is ABSENT else ("length",)
    columns: list[Column] = [("", [f"#{group.number}" for group in groups])]
    for name in ("scored", *STATISTICS, *lengths):
        numbers = column([getattr(group, name) for group in groups])
        columns.append(("rows" if name == "scored" else name, numbers))
    wide = max(map(len, aligned(columns)))
    labels = labels_of([group.key for group in groups], sheet.console.width - wide - 2)
    columns.insert(1, ("group", labels))
    sheet.text(f"groups by {listed.sort}, largest and smallest", style="bold")
    for at, line in enumerate(aligned(columns, ("group",))):
        if listed.groups > len(groups) and at == 1 + len(listed.most):
            sheet.text("...")
        sheet.text(line, style="dim" if not at else "")
    sheet.blank()
    if browse:
        sheet.command("to read their texts:", clean(browse))
        sheet.blank()


# --- sections: labels with their lines ---------------------------------------------------------------------


def _inputs(facts: Inspected) -> Sections:
    summary = facts.summary
    if facts.inputs:
        yield "input", [file_list(facts.inputs)]
    if summary.schema:
        yield "schema", [clean(summary.schema)]
    without = summary.unscorable - summary.left_out
    rows = row_count(summary.rows, summary.rollouts)
    if without:
        rows += f", {without:,} without a reward"
    yield "rows", [rows, *map(clean, marked_lines(summary.marks))]


def _groups(facts: Inspected) -> Sections:
    summary = facts.summary
    size = summary.group_sizes
    groups = f"{summary.groups:,}, {group_size(size, summary.unit)}"
    if summary.singletons:
        groups += f", {count(summary.singletons, 'singleton')}"
    where = [clean(note) for note in summary.notes if note.startswith("where ")]
    yield "groups", [groups, clean(f"by {summary.key_note}"), *where]


def _of_columns(facts: Inspected) -> list[str]:
    """The columns with their weights, and the values of texts."""
    columns = facts.rewards
    weights = [column.weight for column in columns.values()]
    lines = [clean(weighted_sum([*columns], weights))]
    if facts.combine == "normalize" and len(columns) > 1:
        lines.append("(the sum; the plan normalises each column separately)")
    return [*lines, *text_outcomes(facts.summary.map)]


def _rewards(facts: Inspected) -> Sections:
    columns = facts.rewards
    components = facts.components
    yield "rewards", [*_of_columns(facts), *_distribution(facts.summary.reward)]
    if len(columns) < 2:  # noqa: PLR2004 - a single one is the reward
        return
    others = {} if components is None else {"length": components.length, "advantage": components.advantage}
    for name, reward in columns.items():
        lines = _distribution(reward.values)
        notes = []
        if reward.unscorable:
            notes.append(f"{reward.unscorable:,} missing")
        if reward.zero_variance_share is not None:
            notes.append(f"all equal in {percent(reward.zero_variance_share)} of the groups")
        if notes:
            lines.append(", ".join(notes))
        known = {what: of_columns[name] for what, of_columns in others.items() if of_columns is not None}
        if any(correlation is not None for correlation in known.values()):
            goes_with = [f"{what} {_signed(correlation)}" for what, correlation in known.items()]
            lines.append(f"correlation within groups with {', '.join(goes_with)}")
        yield f"  {cut(clean(name), 11)}", lines


def _rewards_in_brief(facts: Inspected) -> Sections:
    """Which columns, and the mean and std of their sum."""
    yield "rewards", [*_of_columns(facts), *_distribution(facts.summary.reward)[:1]]


def _components(facts: Inspected) -> Sections:
    """The correlations of several reward columns; if there are many, their heads are numbers."""
    coefficients = facts.components
    if coefficients is None:
        return
    names = coefficients.correlation
    heads = rows = [cut(clean(name), NAME) for name in names]
    if len(names) > NAMED:
        heads = [str(place) for place in range(1, len(names) + 1)]
        rows = [f"{head} {row}" for head, row in zip(heads, rows, strict=True)]
    columns = [("", rows)]
    for head, other in zip(heads, names, strict=True):
        columns.append((head, [_signed(coefficients.correlation[name][other]) for name in names]))
    yield "together", ["correlations within groups", *aligned(columns, ("",))]


def _signed(correlation: float | None) -> str:
    return "-" if correlation is None else f"{correlation:+.2f}"


def _distribution(reward: Distribution) -> list[str]:
    """Mean, std, quartiles and histogram."""
    return distribution_lines(reward) if reward.count else ["no reward"]


def _difficulty(facts: Inspected) -> Sections:
    rates = facts.difficulty
    if rates is None:
        return
    useful = (
        f"{rates.useful:,} of {count(rates.groups, 'group')} from 0.2 to 0.8, both included; mean {number(rates.mean)}"
    )
    of_bars = ""
    if (rates.worst, rates.best) != (0, 1):
        useful += f"   {rescaled(rates.worst, rates.best)}"
    names = list[str]()
    counts = rates.between.counts
    one_line = ""
    if isinstance(rates.between, BinCounts):
        counts = [sum(pair) for pair in zip(counts[::2], counts[1::2], strict=True)]
        names = [f"{i / 5:g} to {(i + 1) / 5:g}" for i in range(5)]
        of_bars = _smoothed(facts)
    elif len(counts) <= RATES:
        names = [number(value) for value in rates.between.values]
    else:
        low, *_, high = map(number, rates.between.values)
        one_line = f"{low} |{blocks(counts)}| {high}   one bar for each of {len(counts)} rates"
        counts = []
    names, counts = ["0, never", *names, "1, always"], [rates.never, *counts, rates.always]
    never, *lines = bar_lines(names, counts, left=True)
    yield "solve rate", [*filter(None, (never, one_line)), *lines, *filter(None, (of_bars,)), useful]


def _smoothed(facts: Inspected) -> str:
    """Why there is no bar for each rate."""
    sizes = facts.summary.group_sizes
    if sizes.min < sizes.max:
        return "smoothed across groups of different sizes; counted exactly,"
    return "the bars are fifths without their upper end; counted exactly,"


def _zero_variance(facts: Inspected) -> Sections:
    constant = facts.summary.zero_variance
    said = "none: rewards differ in every group that can be compared"
    if constant.share is None:
        said = "no group has two rewards to compare"
    elif constant.groups:
        split = [f"{groups:,} {word}" for word, groups in equal_at(constant).items()]
        said = f"{percent(constant.share)} of the groups: {', '.join(split)}"
    yield label_of_equal(facts.summary.plan), [said, *nearly_equal(constant)]


def solved_words(facts: Inspected) -> str:
    """What a solved rollout is, where rewards are not simply 0 and 1."""
    draws, reward = facts.draws, facts.summary.reward
    if draws is None:
        return ""
    values = reward.histogram.values if isinstance(reward.histogram, ValueCounts) else ()
    is_plain = draws.solved_at == 1 and reward.histogram is not None and {*values} <= {0, 1} and len(values) > 0
    return "" if is_plain else f" (a reward of {number(draws.solved_at)})"


def _passes(facts: Inspected) -> Sections:
    """What k rollouts of each group solve."""
    draws = facts.draws
    if draws is None:
        return
    of_all = f"of {count(draws.always + draws.sometimes + draws.never, 'group')}"
    solved = solved_words(facts)
    split = f"{draws.always:,} always solved{solved}, {draws.sometimes:,} sometimes, {draws.never:,} never"
    columns = []
    for one in draws.passes:
        cells = [str(one.k), *in_percent(one.pass_at), *in_percent(one.pass_all)]
        columns.append([*cells, f"{one.left_out:,}" if one.left_out else ""])
    heads = ["k", "pass@k", "95% interval", "pass^k", "95% interval", f"fewer than k {facts.summary.unit}s"]
    if not any(one.left_out for one in draws.passes):
        del heads[-1]
    table = aligned([(head, [line[at] for line in columns]) for at, head in enumerate(heads)])
    yield "pass@k", [f"{of_all}: {split}", *table]


def _other_sizes(facts: Inspected) -> Sections:
    sizes = facts.at_size
    if all(at.alive == 1 for at in sizes) or not facts.summary.plan.gives_equal_rewards_0:
        return
    columns = [("group size", ["with a gradient", "95% interval", "to"])]
    for at in sizes:
        share = percent(at.alive)
        if at.found == "bound" and share[0] not in "<>" and share != "100%":
            share = f">={share}"
        ends = ["-" if end is None else percent(end) for end in (at.low, at.high)]
        columns.append((f"{at.size:,}", [share, *ends]))
    notes = []
    if any(at.found == "model" for at in sizes):
        notes.append("larger groups: from the solve rates that fit these groups")
    if any(shares[0].startswith(">=") for _, shares in columns):
        notes.append(">= lower bound")
    yield "other sizes", [*aligned(columns, ("group size",)), *notes]


def _spread(facts: Inspected) -> Sections:
    summary = facts.summary
    spread = facts.spread
    size = facts.effective_rows
    if spread.within is not None:
        said = f"{number(spread.within)} within groups, {number(spread.between)} between them"
        if spread.between_share is not None:
            said += f" ({percent(spread.between_share)} of the variance)"
        yield "spread", [said]
    effective = "" if size is None else f"; effective sample size {number(size)} ({facts.method})"
    every = summary.rows if summary.unit == "row" else summary.rollouts
    of = f"{facts.live_rows:,} of {every:,} {summary.unit}s"
    among = "in groups with a gradient" if summary.plan.gives_equal_rewards_0 else "in groups whose rewards differ"
    yield "sample size", [f"{of} are {among}{effective}"]


def _length(facts: Inspected) -> Sections:
    length = facts.length
    if length is None or length.mean is None:
        return
    overall = _signed(length.correlation)
    inside = _signed(length.within_groups)
    ends = ((length.best, "at the best reward"), (length.worst, "at the worst"))
    at_ends = [f"{number(mean)} {word}" for mean, word in ends if mean is not None]
    means = f"{length.column}: mean {number(length.mean)}"
    if at_ends:
        means += f"; {', '.join(at_ends)}"
    yield "length", [f"correlation with the reward {overall}, within groups {inside}", clean(means)]


def _truncated(facts: Inspected) -> Sections:
    cut_off = facts.truncated
    if cut_off is None:
        return
    said = f"{cut_off.rows:,} of {facts.summary.rows:,} responses ({percent(cut_off.share)}), by {cut_off.column}"
    if not cut_off.rows:
        said = f"no response, by {cut_off.column}"
    shares = ((cut_off.unsolved_share, "worst"), (cut_off.solved_share, "best"))
    of = [f"{percent(share)} of those with the {word} reward" for share, word in shares if share is not None]
    yield "truncated", [clean(said), *([", ".join(of)] if cut_off.rows and of else [])]


def _duplicates(facts: Inspected) -> Sections:
    same = facts.duplicates
    if same is None or same.share is None:
        return
    said = clean(f"none in {same.column}")
    if same.rows:
        said = f"{same.rows:,} of the rollouts ({percent(same.share)}) repeat the text of another of their group"
    yield "duplicates", [said]


def _off_policy(facts: Inspected) -> Sections:
    found = facts.off_policy
    if found is None:
        return
    drift = found.all
    columns = found.columns
    names = clean(f"{columns['token_logprobs']} and {columns['old_token_logprobs']}")
    missing = f"; {count(found.missing, 'row')} without" if found.missing else ""
    said = {name: _cell(name, getattr(drift, name)) for name in members(Drift)}
    tails = []
    for name in TAILS:
        bound = name.removeprefix("ratio_").replace("_", " ", 1).replace("_", ".")
        tails.append(f"{bound} {said[name]}")
    quantiles = [f"{name.removeprefix('ratio_')} {said[name]}" for name in QUANTILES]
    lines = [
        f"{said['tokens']} tokens of {count(drift.rows, 'row')}: {names}{missing}",
        f"KL(old, new) k1 {said['k1']}  k2 {said['k2']}  k3 {said['k3']}",
        "  ".join(["ratio", *quantiles]),
        f"ratio {', '.join(tails)} of the tokens",
        f"a clip of {CLIP:g} cuts {said['clipped_above']} (A > 0) and {said['clipped_below']} (A < 0) of the tokens",
        f"effective sample size {said['token_ess']} of the tokens, {said['sequence_ess']} of the sequences",
    ]
    if drift.entropy is not None:
        lines.append(f"entropy mean {said['entropy']}")
    yield "off-policy", lines


def _drift_by(trend: DriftTrend, sheet: Sheet) -> None:
    """One line for each value of a column."""
    lines = thinned(trend.lines, LINES)
    columns = []
    for name, head in {"value": clean(trend.column), **DRIFTS}.items():
        columns.append((head, [_cell(name, getattr(line, name)) for line in lines]))
    for text in aligned(columns, ()):
        sheet.text(text)
    sheet.blank()


BLOCKS_OF_LINES = (
    (_inputs, _groups),
    (_rewards, _components),
    (_difficulty, _passes, _zero_variance, _other_sizes),
    (_spread, _length, _truncated, _duplicates),
    (_off_policy,),
)
# What is shown beside a table that was asked for, and what else an option asks for.
IN_BRIEF = ((_inputs, _groups), (_rewards_in_brief, _zero_variance))
ASKED_FOR = {"pass_at": _passes, "length_column": _length, "duplicates": _duplicates, "token_logprobs": _off_policy}
LISTS = {"sort", "top"}  # ask for the list of groups
TABLES = {"by", *LISTS}


# --- tables for other programs -----------------------------------------------------------------------------


def table(
    inspection: Inspection, *, show: str | None, by: str | None, sort: str | None, top: int | None
) -> pl.DataFrame:
    """The rows of a group if one is shown, else the trend that was asked for, else the groups."""
    if show is not None:
        rows = show_group(inspection, show).rows
        heads = component_heads(list(rows[0].rewards), {*members(RowLine)} - {"rewards"})
        if heads.get("reward") and all(row.rewards["reward"] == row.reward for row in rows):
            del heads["reward"]  # it is there once
        lines = []
        for row in rows:
            line = document(row)
            rewards = line.pop("rewards")
            lines.append(line | {head: rewards[name] for name, head in heads.items()})
        return pl.DataFrame(lines, infer_schema_length=None)
    trend = None if by is None else inspection.facts.by
    if trend is None:
        return _table_of_groups(inspection, sort, top)
    frame = _frame(trend.lines)
    off_policy = inspection.facts.off_policy
    if off_policy is not None:
        for drift in off_policy.by:
            if drift.column == by:
                more = _frame(drift.lines).select("value", *NUMBERS)
                frame = frame.join(more, "value", how="left", nulls_equal=True, maintain_order="left")
    return frame if by in frame.columns else frame.rename({"value": trend.column})


def _frame(lines: Sequence[object]) -> pl.DataFrame:
    """A line for each value; of a trend over the steps its shape and its ends."""
    flat = []
    for line in lines:
        facts = dict(vars(line))
        over = facts.pop("course", None)
        flat.append(
            facts | {f"over_steps_{name}": getattr(over, name) for name in ("shape", "first", "last")}
            if over
            else facts
        )
    return pl.DataFrame(flat, infer_schema_length=None)


def _table_of_groups(inspection: Inspection, sort: str | None, top: int | None) -> pl.DataFrame:
    """Every group with its key; in their order, or the most first."""
    groups = inspection.groups
    narrow = inspection.narrow
    names = [name for name in (*GROUP_FACTS, "constant") if name in groups.columns]
    if sort is not None and sort not in names:
        raise UnknownName.among("fact of a group", sort, names)
    keys = texts_of_nested(pl.DataFrame(key_columns(narrow, names)))
    heads = [key if words(key.name) in keys.columns else key.alias(words(key.name)) for key in keys]
    if not heads:
        heads = [(narrow.groups.first + 1).alias("first_row")]
    facts = groups.select(names).with_columns(pl.selectors.float().fill_nan(None))
    frame = pl.DataFrame([*heads, *facts])
    if sort is not None:
        frame = frame.sort(sort, descending=True, nulls_last=True, maintain_order=True)
    return frame if top is None else frame.head(min(top, len(frame)))


def table_text(frame: pl.DataFrame, kind: str, *, escaped: bool) -> str:
    """A table as `csv` or `md`; `escaped`: without what a terminal would obey. Markdown never has it, and no HTML either."""
    if kind == "md":
        numbers = frame.select(pl.selectors.numeric()).columns
        return markdown_table(frame.columns, frame.iter_rows(), numbers)
    if escaped:
        frame = pl.DataFrame([_escaped(column) if column.dtype == pl.String else column for column in frame])
        frame.columns = [printable(name) for name in frame.columns]
    return frame.write_csv()


def _escaped(texts: pl.Series) -> pl.Series:
    return pl.Series(texts.name, [text and printable(text) for text in texts], dtype=pl.String)
