"""`inspect --against`: a table of the rates of runs with intervals, and one of differences from the base."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from rich.console import Console

from grpo_cli.errors import StepsApart
from grpo_cli.render.estimates import between, in_percent
from grpo_cli.render.text import Column, Sheet, aligned, clean, count, rescaled
from grpo_cli.stats.against import Prompt
from grpo_cli.stats.intervals import Estimate, in_words
from grpo_cli.stats.runs import Difference, Runs, sentences, short_names, sure_words
from grpo_cli.values.key_text import cells, cut, labels_of, plain

CLUSTER = 20  # characters of the value of a cluster
LONGEST = 60  # characters of the key of a prompt
WHOLE = 1e-6  # a smaller distance from a whole number is rounding


def render(facts: Runs, console: Console) -> None:
    """Print what each run solves, and how far it is from the base."""
    sheet = Sheet(console)
    names = short_names([run.name for run in facts.runs])
    sheet.steps(facts.warnings)
    _matched(sheet, facts)
    sheet.blank()
    rates = [
        [names[run.name], f"{run.prompts:,}", f"{run.rollouts:,}", *in_percent(run.solve_rate)] for run in facts.runs
    ]
    sheet.table(["run", "prompts", "rollouts", "solve rate", "95% interval"], rates)
    passes = []
    short = []
    for run in facts.runs:
        name = clean(names[run.name])
        for of in run.passes:
            passes.append([name, f"{of.k}", *in_percent(of.pass_at), *in_percent(of.pass_all)])
            if of.left_out:
                short.append(f"{name}: {count(of.left_out, 'prompt')} with fewer than {of.k} rollouts")
    if passes:
        sheet.blank()
        sheet.table(["run", "k", "pass@k", "95% interval", "pass^k", "95% interval"], passes)
        sheet.row("left out", short)
    base = clean(names[facts.runs[0].name])
    sheet.blank()
    sheet.text(f"difference from {base}, on the prompts of both", style="bold")
    heads = ["run", "prompts", "points", "95% interval", "p", "better/worse (chance)"]
    lines = [_difference(one) for one in facts.differences]
    wide = max(map(cells, aligned([(head, [line[at] for line in lines]) for at, head in enumerate(heads[1:])])))
    labels = labels_of([names[one.name] for one in facts.differences], console.width - wide - 2)
    sheet.table(heads, [[label, *line] for label, line in zip(labels, lines, strict=True)])
    apart = []
    for one in facts.differences:
        if one.only_here or one.only_base:
            here = f"prompts only in {clean(names[one.name])} {one.only_here:,}"
            apart.append(f"{here}, only in {base} {one.only_base:,}")
    sheet.row("not in both", apart)
    sheet.row("80% power", [_shown(one, names[one.name]) for one in facts.differences if one.detectable is not None])
    sheet.blank()
    pool = "--group-within input " if any(isinstance(line, StepsApart) for line in facts.warnings) else ""
    for one in facts.differences:
        _changed(sheet, one, names[one.name], pool)
    sheet.warnings(facts.warnings)
    said = sentences(facts.runs[0].name, facts.differences, facts.cluster)
    sheet.row("verdict", [f"{clean(line)}." for line in said])


def _matched(sheet: Sheet, facts: Runs) -> None:
    """What names a prompt, which prompts count together, and what a solve rate is."""
    sheet.row("matched by", clean(", ".join(facts.key)))
    if facts.cluster is not None:
        values = f"{facts.runs[-1].clusters:,} values of {clean(facts.cluster)}"
        sheet.row("clusters", f"{values}; prompts with the same count together")
    if (facts.worst, facts.best) != (0, 1):
        sheet.row("solve rate", rescaled(facts.worst, facts.best))


def _difference(one: Difference) -> list[str]:
    points = f"{100 * one.change.mean:+.1f}"
    p = "-" if one.p_holm is None else in_words(one.p_holm).removeprefix("p ").removeprefix("= ")
    counts = f"{one.better:,}/{one.worse:,} ({one.better_by_chance:,.0f}/{one.worse_by_chance:,.0f})"
    return [f"{one.prompts:,}", points, between(one.change), p, counts]


def _shown(one: Difference, name: str) -> str:
    """The smallest change that these prompts would have shown 8 times of 10."""
    name = clean(name)
    smallest = one.detectable or 0.0
    if smallest >= 1:
        return f"{name}: too few prompts to detect any change"
    detected = f"to detect a change of {100 * smallest:.1f} points or more"
    return f"{name}: {detected}; a change of 2 points would take {one.prompts_for_2_points:,} prompts"


def _changed(sheet: Sheet, of: Difference, name: str, pool: str) -> None:
    """How many prompts changed beyond chance, and a table of those that are listed; other tables must be told to `pool` steps."""
    sure = sure_words(of)
    beyond = f"no prompt by itself can be told from chance, after correction for {of.prompts:,} prompts"
    if sure:
        beyond = f"{sure} beyond chance, of {count(of.prompts, 'prompt')}"
    elif of.prompts == 1:
        beyond = "the change of the prompt can be chance"
    chosen = "" if len(of.every) == of.prompts else f"; {len(of.every):,} meet --where"
    sheet.row("changed most", clean(f"{name}: {beyond}{chosen}"))
    if of.changed:
        sheet.blank()
        for at, line in enumerate(_table_of_prompts(of.changed, sheet.console.width)):
            sheet.text(line, style="" if at else "dim")
        if len(of.every) > len(of.changed):
            sheet.text(f"{pool}--sort change --format csv has all", style="dim")
    sheet.blank()


def _table_of_prompts(prompts: Sequence[Prompt], width: int) -> list[str]:
    """A line for each prompt: its solve rate in both runs, the change with its interval, and whether it is beyond chance."""
    before = [(one.before, one.before_rollouts) for one in prompts]
    now = [(one.now, one.now_rollouts) for one in prompts]
    solved = all(abs(rate * rollouts - round(rate * rollouts)) < WHOLE for rate, rollouts in (*before, *now))
    columns: list[Column] = [
        ("", [f"#{one.number}" for one in prompts]),
        ("before", [_rate_of(*one, solved=solved) for one in before]),
        ("now", [_rate_of(*one, solved=solved) for one in now]),
        ("points", [f"{100 * one.change:+.0f}" for one in prompts]),
        ("95% interval", [f"{100 * one.low:.0f} to {100 * one.high:.0f}" for one in prompts]),
        ("adjusted p", [in_words(one.p_adjusted).removeprefix("p ").removeprefix("= ") for one in prompts]),
        ("", [one.beyond_chance or "" for one in prompts]),
    ]
    if prompts[0].cluster is not None:
        columns.append(("cluster", [cut(plain(one.cluster or ""), CLUSTER) for one in prompts]))
    wide = max(map(cells, aligned(columns)))
    columns.insert(1, ("prompt", labels_of([one.key for one in prompts], min(width - wide - 2, LONGEST))))
    return aligned(columns, ("prompt", "cluster"))


def _rate_of(rate: float, rollouts: int, *, solved: bool) -> str:
    """How many of the rollouts are solved, or of rewards between the mean and how many there are."""
    return f"{round(rate * rollouts):,}/{rollouts:,}" if solved else f"{rate:.2f} ({rollouts:,})"


def table(facts: Runs) -> pl.DataFrame:
    """A line for each run, with its difference from the base."""
    lines = []
    for run, difference in zip(facts.runs, (None, *facts.differences), strict=True):
        line = {"run": run.name, "prompts": run.prompts, "rollouts": run.rollouts}
        if run.clusters is not None:
            line["clusters"] = run.clusters
        line |= _columns("solve_rate", run.solve_rate)
        for one in run.passes:
            line |= _columns(f"pass@{one.k}", one.pass_at) | _columns(f"pass^{one.k}", one.pass_all)
        line |= _columns("change", getattr(difference, "change", None))
        for name in ("p", "p_holm", "better", "worse"):
            line[name] = getattr(difference, name, None)
        lines.append(line)
    return pl.DataFrame(lines, infer_schema_length=None)


def table_of_prompts(facts: Runs, top: int | None) -> pl.DataFrame:
    """A line for each prompt that is chosen, of each difference: all of them, or the `top` at either end."""
    frames = []
    for one in facts.differences:
        prompts = one.every if top is None else pl.DataFrame(map(vars, one.changed), schema=one.every.schema)
        frames.append(prompts.select(pl.lit(one.name).alias("run"), pl.col("key").alias("prompt"), pl.exclude("key")))
    return pl.concat(frames)


def _columns(name: str, found: Estimate | None) -> dict[str, str | float | None]:
    ends = {name: "mean", f"{name}_low": "low", f"{name}_high": "high"}
    return {column: getattr(found, end, None) for column, end in ends.items()}
