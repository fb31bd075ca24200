"""`grpo-adv add`: insert columns from another file, unchanged."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import file_of, progress, show
from grpo_cli.files.inputs import MAX_LINE
from grpo_cli.options.resolve import output_fields


def add(given: dict[str, Any]) -> None:
    """Insert the columns; all other bytes of the file stay the same."""
    from grpo_cli.runs.add import Job, run
    from grpo_cli.write.outputs import Output

    job = Job(
        file=given["file"],
        columns=given["source"],
        chosen=given.get("chosen", ()),
        schema=given.get("schema"),
        output=Output(**output_fields(given), word="added"),
        summary=file_of(given, "summary"),
        max_line=given.get("max_line", MAX_LINE),
    )
    with progress(given) as phase:
        facts = run(job, phase)
    show(given, facts, "written.add")
