"""`grpo-adv select`: the groups worth training on, as they stand in the file."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import file_of, is_silent, progress, show
from grpo_cli.options.resolve import binding_fields, choice_fields, output_fields, plan_of


def select(given: dict[str, Any]) -> None:
    """Keep groups by their facts, and rows inside them."""
    from grpo_cli.choosing.groups import Choice
    from grpo_cli.read.tables import Binding
    from grpo_cli.render import select as view
    from grpo_cli.runs.select import Job, run
    from grpo_cli.write.outputs import Output

    job = Job(
        inputs=given["inputs"],
        choice=Choice(**choice_fields(given)),
        plan=plan_of({name: value for name, value in given.items() if name != "seed"}),  # which is for choosing
        binding=Binding(**binding_fields(given)),
        length=given.get("length_column"),
        output=Output(**output_fields(given), word="selected"),
        summary=file_of(given, "summary"),
        silent=is_silent(given),
    )
    with progress(given) as phase:
        facts = run(job, phase)
    show(given, facts, view.render)
