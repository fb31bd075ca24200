"""`grpo-adv verify`: check that the output without the added columns is the input."""

from __future__ import annotations

from grpo_cli.cli.output import as_json
from grpo_cli.errors import printable
from grpo_cli.options.given import Given


def verify(given: Given) -> None:
    """Compare the two files; the first difference is an error."""
    from grpo_cli.write.verify import verify as check

    output = given.file
    against = given.against
    result = check(output, against, given.columns)
    if given.json:
        print(as_json({"file": output, "against": against, "columns": result.added, "compared_by": result.by}))
        return
    if given.quiet:
        return
    unit = {"bytes": "byte by byte", "values": "value by value"}[result.by]
    added = ", ".join(result.added) or "no column"
    print(printable(f"{output} is {against} plus {added}, {unit}"))
