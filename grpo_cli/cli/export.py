"""`grpo-adv export`: the next training job's file, made of the rows and their rewards."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import file_of, progress, show
from grpo_cli.options.resolve import binding_fields, export_fields, output_fields, plan_of


def export(given: dict[str, Any]) -> None:
    """Write records for supervised finetuning, preferences, a weighted loss, or a table of prompts."""
    from grpo_cli.choosing.exports import Wanted
    from grpo_cli.read.tables import Binding
    from grpo_cli.render import export as view
    from grpo_cli.runs.export import Job, run
    from grpo_cli.write.outputs import Output

    job = Job(
        inputs=given["inputs"],
        wanted=Wanted(**export_fields(given)),
        plan=plan_of({name: value for name, value in given.items() if name != "seed"}),  # which is for choosing
        binding=Binding(**binding_fields(given)),
        output=Output(**output_fields(given)),
        summary=file_of(given, "summary"),
    )
    with progress(given) as phase:
        facts = run(job, phase)
    show(given, facts, view.render)
