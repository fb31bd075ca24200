"""`grpo-adv verify`: check that the output without the added columns is the input."""

from __future__ import annotations

from grpo_cli.cli.output import as_json
from grpo_cli.errors import printable
from grpo_cli.options.given import Given
from grpo_cli.runs.gate import Gate


def verify(given: Given) -> None:
    """Compare the two files; the first difference is an error."""
    from grpo_cli.write.verify import VerifyDocument
    from grpo_cli.write.verify import verify as check

    gate = Gate.of(given, VerifyDocument)
    result = check(given.file, given.against, given.columns)
    facts = VerifyDocument(given.file, given.against, result.added, result.by)
    if given.json:
        print(as_json(facts))
    elif not given.quiet:
        unit = {"bytes": "byte by byte", "values": "value by value"}[result.by]
        added = ", ".join(result.added) or "no column"
        print(printable(f"{given.file} is {given.against} plus {added}, {unit}"))
    if gate is not None:
        gate.check(facts)
