"""`compare` of files: inputs, tables, the advantages of every plan, and files with a column for each plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Counting, MaskedRows
from grpo_cli.engine.score import score
from grpo_cli.errors import UsageError, Way, Written
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import counting, options_of_plan, own_options, plan_of, with_shared
from grpo_cli.options.table import OF_PART, OPTIONS, OUTPUT
from grpo_cli.read.build_table import columns_first, read
from grpo_cli.read.checks.scored import refuse_singletons, refuse_unscorable
from grpo_cli.read.groups import counted
from grpo_cli.read.layout import layout
from grpo_cli.read.request import columns_of_roles, unread_columns
from grpo_cli.read.tables import Table
from grpo_cli.runs.asked import OnFiles, binding_of, made, output_of
from grpo_cli.runs.gate import Gate
from grpo_cli.stats.compare import Compared, Comparison, compare
from grpo_cli.values.paths import items
from grpo_cli.write.outputs import Output, choose_targets, refuse_columns, refuse_read_columns
from grpo_cli.write.write_outputs import Computed, Phase, merged_keys, write

_OF_ONE = {*OF_PART} - {"reward", "rollout_reward"}  # all plans read the same columns


OF_MASKED = "masked-rows="  # begins an option of a plan that is about its rows, and not about its arithmetic


class Contender(NamedTuple):
    """A plan that is compared."""

    plan: Plan
    rollouts: Counting | None = None  # how it counts rows of one rollout; None: each row
    masked_rows: MaskedRows = ""  # what becomes of its masked rows; empty: what becomes of them in all plans


@dataclass(frozen=True, kw_only=True)
class Job(OnFiles):
    """Contenders by name (the first is the reference), and where their columns go.

    The column of the output is the prefix of the new columns. Without an output nothing is written.
    """

    plans: Mapping[str, Contender]  # by the texts of --preset and --method; the first is the reference
    output: Output | None = None  # where the columns of all plans go; None without --write
    gate: Gate | None = None  # the condition of --fail-on, checked before anything is written

    @classmethod
    def of(cls, given: Given) -> Job:
        """What options ask for."""
        given = given.to_command("compare")
        plans = {text: one._replace(masked_rows=masked_of(text)) for text, one in contenders(_options(given)).items()}
        for name in () if given.write else given:
            if name in OPTIONS and OPTIONS[name].panel == OUTPUT:
                raise UsageError(
                    f"{OPTIONS[name].flag} is about an output file, and none is written", Way("--write", lead="add")
                )
        return made(
            cls,
            given,
            plans=plans,
            binding=binding_of(given),
            output=output_of(given) if given.write else None,
            gate=Gate.of(given, Compared),
        )


def contenders(options: Mapping[str, Given]) -> dict[str, Contender]:
    """The plans that these options make, by their names."""
    return {name: Contender(plan_of(own), counting(own)) for name, own in options.items()}


def run(job: Job, phase: Phase = lambda *_: None) -> Compared:
    """Compare, write if there is an output, and return the facts."""
    phase("reading and computing")
    tables, skipped = job.opened()
    if job.output is None:
        facts = compared(job, tables).compared
        facts = replace(facts, warnings=[*facts.warnings, *skipped])
        if job.gate is not None:
            job.gate.check(facts)
        return facts

    columns = {_column_name(job.output.column, name): name for name in job.plans}
    if len(columns) < len(job.plans):
        raise UsageError("two plans would write the same column", "give the plans different options")
    first, *others = columns
    output = replace(job.output, column=first, also=tuple(others))
    with columns_first(tables, *((each.plan, job.binding) for each in job.plans.values())):
        targets = choose_targets(tables, output)
    tables = refuse_columns(tables, output)

    comparison = compared(job, tables)
    refuse_read_columns(comparison.narrow.request.read_names, output)
    scored = {column: comparison.scored[name] for column, name in columns.items()}
    computed = Computed(comparison.narrow, scored.pop(first), None, scored)
    merged = merged_keys(comparison.narrow, tables, targets)
    facts = replace(
        comparison.compared,
        warnings=[*comparison.compared.warnings, *skipped, *merged],
        columns={name: column for column, name in columns.items()},
        outputs=[target.name for target in targets],
    )
    if job.gate is not None:
        job.gate.check(facts, written=Written())
    notes = write(output, [computed], tables, targets, phase)
    return replace(facts, warnings=[*facts.warnings, *notes])


def compared(job: Job, tables: Sequence[Table]) -> Comparison:
    """Read what all plans need, once, and compute each plan."""
    plans = {name: each.plan for name, each in job.plans.items()}
    if len(plans) < 2:  # noqa: PLR2004 - two are a comparison
        raise UsageError(
            "a comparison needs two plans",
            ["give --preset or --method twice", "two runs are compared by grpo-adv inspect NEW --against OLD"],
        )
    for plan in plans.values():
        plan.refuse_distill("a comparison of one advantage a row")
    found = layout(tables, job.binding)
    one_with_batch = max(plans.values(), key=lambda plan: plan.uses_batch)
    countings = {name: each.rollouts or "each" for name, each in job.plans.items()}
    counting_of_file = job.binding.rollouts
    if counting_of_file != "none":  # a plan that does not say how rollouts count takes it from the file
        counting_of_file = max(countings.values(), key=lambda one: (one == "once", one != "each"))
    roles = columns_of_roles(found, *plans.values())
    narrow = read(found.under(roles=roles, rollouts=counting_of_file), one_with_batch)
    if "rollout" in narrow.request.roles:
        plans = {name: counted(plan, countings[name]) for name, plan in plans.items()}
    scored = {}
    for name, plan in plans.items():
        rows = narrow
        if treated := job.plans[name].masked_rows:
            own = found.under(roles=roles, rollouts=counting_of_file, masked_rows=treated)
            rows = read(own, one_with_batch)
        scored[name] = score(plan, rows.table)
        refuse_unscorable(plan, scored[name].frame[".scorable"], rows)
        refuse_singletons(plan, scored[name].frame[".n"], rows)
    used = {role for plan in plans.values() for role in (*plan.needs, *plan.may_read)}
    unread = unread_columns(narrow.request.roles, used, "these plans")
    return compare(scored, replace(narrow, warnings=(*narrow.warnings, *unread)))


def _column_name(prefix: str, plan: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "_", plan)
    return f"{prefix}_{words.strip('_')}"


# --- options -----------------------------------------------------------------------------------------------


def _options(given: Given) -> dict[str, Given]:
    """The options of each plan, by the text given to --preset or --method."""
    presets = [("preset", text) for text in given.compared_presets]
    methods = [("method", text) for text in given.contenders]
    plans = {}
    for kind, text in (*presets, *methods):
        if text in plans:
            raise UsageError(f"{text!r} is named twice", "append options to tell them apart: grpo,scale=batch")
        arithmetic = text
        if masked_of(text):  # it is about the rows that are read
            arithmetic = ",".join(part for part in items(text) if not part.startswith(OF_MASKED))
        plans[text] = plan_in_words(kind, arithmetic)
    return with_shared(given.among(OPTIONS), plans)


def masked_of(text: str) -> MaskedRows:
    """What a plan says becomes of masked rows; empty if it says nothing."""
    for part in items(text):
        if part.startswith(OF_MASKED):
            said = part.removeprefix(OF_MASKED)
            if said not in {"vote", "exclude"}:
                raise UsageError(f"masked-rows cannot be {said!r}", "it is vote or exclude")
            return cast("MaskedRows", said)
    return ""


def plan_in_words(kind: str, text: str) -> Given:
    """The options of a plan from the name of its method or preset and its own options: `grpo,scale=batch`."""
    name, *options = items(text)
    return Given(own_options(options, _OF_ONE - {kind}), **{kind: name})


def plan_in_keywords(name: str, options: Mapping[str, Any]) -> Given:
    """The options of a plan that Python gives by their names; `name` is that of the plan."""
    return options_of_plan(f"the plan {name!r}", options, _OF_ONE)
