"""`grpo-adv verify`: the output without the added columns is the input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

Output = Annotated[Path, typer.Argument(metavar="OUT", help="The file that was written.")]
Against = Annotated[Path, typer.Option("--against", metavar="IN", help="The file that it was made from.")]
Columns = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer
    typer.Option(
        "--column", metavar="NAME", help="Added or replaced column (default: the new names).", show_default=False
    ),
]


def verify(output: Output, against: Against, column: Columns = None) -> None:
    """Check that a file is its input plus the added columns, and nothing else; exit 1 with the first difference."""
    from grpo_cli.write.verify import verify as check

    found = check(output, against, column or ())
    what = ", ".join(found.added) or "no column"
    unit = {"bytes": "byte by byte", "values": "value by value"}[found.by]
    print(f"{output} is {against} plus {what}, {unit}")
