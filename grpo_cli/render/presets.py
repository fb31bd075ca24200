"""`grpo-adv presets`: list the presets or explain one, as text or as plain data.

The formula and the rules come from the preset's plan, so they cannot differ from what is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final

from rich.console import Console

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan_parts import Counting, MaskedRows
from grpo_cli.engine.presets import Preset
from grpo_cli.engine.presets import presets as known
from grpo_cli.render import plan_text
from grpo_cli.render.text import Sheet, clean, exact, marked
from grpo_cli.stats.verdicts import label_of_equal

LABEL = 13  # characters of a label of one preset
NAME = 31  # characters of the longest name of a preset
COMMIT = 12  # this many digits of a commit are shown
# How a rollout of several rows counts; empty where each row counts.
ROLLOUTS: Final[Mapping[Counting, str]] = {
    "once": "a rollout of several rows counts once: its rows have equal rewards",
    "first": "a rollout of several rows counts once, with the reward of its first row",
    "last": "a rollout of several rows counts once, with the reward of its last row",
    "mean": "a rollout of several rows counts once, with their mean reward",
    "each": "",
}
MASKED_ROWS: Final[Mapping[MaskedRows, str]] = {
    "": "",
    "vote": "rows that are marked as masked or failed count in their groups",
    "exclude": "rows that are marked as masked or failed are left out of their groups",
}


def named_like(word: str) -> list[str]:
    """The presets whose names begin with this word, else those with it in their name or framework."""
    low = word.lower()
    every = known().items()
    begun = [name for name, _ in every if low and name.startswith(low)]
    described = {name: f"{name} {row.framework}".lower() for name, row in every}
    return begun or [name for name, words in described.items() if low and low in words]


def listing(console: Console, names: Collection[str] = (), *, archive: bool = False) -> None:
    """The presets of trainers with their formulas, framework by framework; with `archive` all that are known, or those named."""
    frameworks = defaultdict(list)
    every = known().values()
    for row in every:
        if row.name in names or (not names and (archive or not row.archive)):
            frameworks[row.framework].append(row)
    sheet = Sheet(console, NAME)
    for framework, rows in frameworks.items():
        sheet.text(framework, style="bold")
        for row in rows:
            lines = ["; ".join(_line(row)).replace(":;", ":")]
            if origin := known().origin(row.name):
                lines.append(f"from {clean(origin)}")
            sheet.row(row.name, lines)
        sheet.blank()
    hint = "grpo-adv presets NAME explains a preset"
    hint += "." if names else ", presets trl lists those of a trainer."
    hidden = sum(row.archive for row in every)
    if hidden and not (archive or names):
        hint += f" --all lists {hidden} more: old versions, and the code of papers."
    sheet.text(hint)


def explain(name: str, console: Console) -> None:
    """One preset: what it computes, its rules, the framework's options, its source and equivalent presets."""
    row = known()[name]
    sheet = Sheet(console, LABEL)
    title = marked(row.name, known().origin(row.name))
    sheet.text(f"{title}: {row.framework} {row.estimator}", style="bold")
    sheet.blank()
    if row.refused:
        sheet.row("refused", row.refused)
    else:
        sheet.rows(_rules(row).items())
    sheet.rows(_facts(row).items())


def as_dict(name: str) -> dict[str, Any]:
    """One preset as plain data."""
    row = known()[name]
    plain = {
        "name": name, "origin": known().origin(name) or "built in", "framework": row.framework, "estimator": row.estimator, "options": dict(row.options),
        "source": dict(row.source), "unequal_groups": row.unequal, "rollouts": row.rollouts, "oddities": row.oddities,
        "refused": row.refused or None, "archive": row.archive,
    }  # fmt: skip
    if row.refused:
        return plain
    return plain | {
        "formula": _line(row),
        "rules": _rules(row),
        "needs": [{"column": need, "flag": ROLES[need].flag} for need in row.plan.needs],
        "equal": equal(row),
        "plan": row.plan.as_dict(),
    }


def equal(row: Preset) -> list[str]:
    """The presets that compute the same in every case."""
    others = (other for other in known().at_hand.values() if other is not row and not other.refused)
    return [other.name for other in others if (other.plan, other.rollouts) == (row.plan, row.rollouts)]


# --- pieces ------------------------------------------------------------------------------------------------


def _line(row: Preset) -> list[str]:
    """The formula, without the rules for special rows and groups."""
    if row.refused:
        return [f"refused: {row.refused}"]
    parts = dict(plan_text.parts(row.plan))
    return [line for part in ("unit", "shape", "estimator", "weight", "post", "distill") for line in parts[part]]


def _rules(row: Preset) -> Mapping[str, list[str]]:
    """What is computed, and the rules for singletons, zero-variance groups and unscorable rows."""
    plan = row.plan
    parts = dict(plan_text.parts(plan))
    divisor = "none"
    if plan.divisor.level == "constant":
        divisor = f"the constant {exact(plan.divisor.constant)}"
    singletons = [line.removeprefix(plan_text.OF_ONE).lstrip(": ").removeprefix("gets ") for line in parts["alone"]]
    if plan.alone.result in {"zero", "raw", "keep"} and plan.alone.baseline != "formula":
        # Whitening changes the value of a singleton afterwards.
        singletons = [line + plan_text.before_whitening(plan) for line in singletons]
    missing = plan_text.missing(plan) or ["stop the run (--missing changes that)"]
    return {
        "computes": _line(row),
        "divides": parts["divisor"] or [divisor],
        "singletons": singletons,
        label_of_equal(plan): [plan_text.of_constant_groups(plan), *parts["groups"]],
        "no reward": [*missing, *plan_text.component_missing(plan)],
        "columns": plan_text.columns(plan),
    }


def _facts(row: Preset) -> Mapping[str, str | list[str]]:
    source = row.source
    version = " ".join(source[key] for key in ("version", "date") if key in source)
    commit = f" at {source['commit'][:COMMIT]}" if "commit" in source else ""
    kl = row.kl and f"{row.kl.replace(' ', ', its ')} over the tokens, with --kl-from"
    options = [f"{key} = {exact(value)}" for key, value in row.options.items()]
    return {
        "group sizes": row.unequal,
        "rollouts": ROLLOUTS[row.rollouts],
        "masked rows": MASKED_ROWS[row.masked_rows],
        "KL": kl,
        "oddities": list(row.oddities),
        "options": ", ".join(options),
        "source": [f"{source['repo']}{commit} ({version})", source["path"]],
        "equal": "" if row.refused else ", ".join(equal(row)),
    }
