"""One thing, one name: what screens, pages, figures, help and documents call a thing, and how code and other tools call it.

The glossary has this as a table; `tests/e2e/test_words.py` finds the words that are not said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Term(NamedTuple):
    """A thing, and its names."""

    name: str
    meaning: str
    in_code: str  # options, JSON keys, facts and Python names, which stay as they are
    not_said: str  # a pattern of other names


TERMS = (
    Term("no gradient", "of a group: all its rewards are equal, so every centred method gives 0; *never solved*, *always solved* or *all equal between*",
         "`--zero-variance`, `zero_variance`, `constant`, the status `zero-variance`", r"zero[- ]variance|constant groups?|dead groups?|degenerate|uniform groups?"),
    Term("never solved", "every reward of the group is the worst", "`all_worst`, `never`", r"all[- ]worst"),
    Term("always solved", "every reward of the group is the best", "`all_best`, `always`", r"all[- ]best"),
    Term("solve rate", "the mean reward of a group, from the worst reward (0) to the best (1)", "`solve_rate`, `difficulty`, `--solved-at`", r"pass[- ]rates?\b|success rates?"),
    Term("group size", "how many rollouts a group has; with a reward that counts: `scored`", "`size`, `scored`, `group_sizes`, `n`", r"(?<!to the )size of a group\b"),
    Term("rollout", "one answer of a model to a prompt; mostly a row, which is a line of the file", "`rows`, `rollouts`, `--rollout`", r"trajectory of"),
    Term("spread", "the standard deviation of the rewards within groups", "`group_std`, `std`; the fact `spread` is the largest reward of a group less its smallest", r"\bin group\b|within-group std"),
    Term("no reward", "the reward of a row is null, NaN or infinite", "`--missing`, `unscorable`", r"unscorable|unscored|without (?:a|any) finite reward|null rewards?|missing rewards?"),
    Term("singleton", "a group with one reward, which has nothing to be compared with", "`--singleton`, `singletons`, the part `alone`", r"groups? of a single|single[- ]scored\b|one-row groups?"),
)  # fmt: skip
NOT_SAID = re.compile("|".join(f"(?:{term.not_said})" for term in TERMS), re.IGNORECASE)
# Names of options, keys and facts are what they are.
_CODE = re.compile(r"`[^`]*`|--[\w-]+(?:[ =]\S+)?|\b\w+(?:[._]\w+)+\b|\[[\w\W]*?\]\([^)]*\)")


def said_wrongly(text: str) -> list[str]:
    """The words of a text that no screen says, beside names in code."""
    return [found[0] for found in NOT_SAID.finditer(_CODE.sub(" ", text))]


def sentences(module: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that somebody may read: strings with a space, but no docstrings; and their lines."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in documented
        ):
            yield node.lineno, node.value
