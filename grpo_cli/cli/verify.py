"""`grpo-adv verify`: check that the output without the added columns is the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grpo_cli.cli.output import as_json
from grpo_cli.errors import printable


@dataclass(frozen=True)
class Verified:
    """The result of `verify`."""

    file: str
    against: str
    columns: Sequence[str]
    compared_by: Literal["bytes", "values"]


def verify(given: dict[str, Any]) -> None:
    """Compare the two files; the first difference is an error."""
    from grpo_cli.write.verify import verify as check

    output, against = given["file"], given["against"]
    result = check(output, against, given.get("columns", ()))
    if given.get("json"):
        print(as_json(Verified(output, against, result.added, result.by)))
        return
    if given.get("quiet"):
        return
    unit = {"bytes": "byte by byte", "values": "value by value"}[result.by]
    print(printable(f"{output} is {against} plus {', '.join(result.added) or 'no column'}, {unit}"))
