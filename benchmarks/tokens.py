"""The size of the code by room: `python -m benchmarks.tokens`.

Tokens are those of `tokenize` without comments, docstrings and line structure. Syntax nodes are those of `ast` without docstrings,
imported names and the Load or Store of every name.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import Final

LINES: Final = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def counted(path: Path) -> Counter[str]:
    """The tokens, statements and syntax nodes of a file."""
    nodes = list(ast.walk(ast.parse(path.read_bytes())))
    docstrings = sum(isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None for node in nodes)
    with path.open("rb") as handle:
        tokens = sum(token.type not in LINES for token in tokenize.tokenize(handle.readline))
    names = sum(isinstance(node, (ast.expr_context, ast.alias)) for node in nodes)
    statements = sum(isinstance(node, ast.stmt) for node in nodes)
    return Counter(
        tokens=tokens - docstrings,
        statements=statements - docstrings,
        nodes=len(nodes) - names - 2 * docstrings,  # an expression statement, and its text
    )


def room(path: Path) -> str:
    """The first folder of a path, or the file; of a guest also its own."""
    depth = 2 if path.parts[0] == "guests" else 1
    return "/".join(path.parts[:depth]).removesuffix(".py").removesuffix("/__init__")


def main() -> None:
    """Print a line for each room of the package and each folder of the tests, and their totals."""
    for top in ("grpo_cli", "tests"):
        rooms: dict[str, Counter[str]] = {}
        for path in sorted(Path(top).rglob("*.py")):
            for name in (room(path.relative_to(top)), "total"):
                rooms.setdefault(name, Counter()).update(counted(path))
        sys.stdout.write(f"{top:<16}   tokens  statements  nodes a statement\n")
        rooms["total"] = rooms.pop("total")  # last
        for name, sums in rooms.items():
            each = sums["nodes"] / max(1, sums["statements"])
            sys.stdout.write(f"  {name:<14} {sums['tokens']:>8,} {sums['statements']:>11,} {each:>18.1f}\n")


if __name__ == "__main__":
    main()
