"""The grammar of conditions: `0.1 <= mean <= 0.9 and std > 0`.

Comparisons (chained, as in mathematics), `is null`, `and`, `or`, `not`, brackets, numbers, true and false, quoted text and names. It is a subset of Python's expressions, so there is no second grammar to learn.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from grpo_cli.errors import UnknownName, UsageError

if TYPE_CHECKING:
    import polars as pl

_COMPARE = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_MIRRORED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


Of = Literal["groups", "rows", "run"]  # what a condition is about


class _Names(ast.NodeTransformer):
    """The names of a condition. Python reads ASCII words; other names are replaced before and put back after it."""

    def __init__(self, of: Of) -> None:
        self.has_paths = of != "groups"
        self.has_draws = of != "rows"
        self.names = list[tuple[str, str]]()  # each name, and how it is written

    def taken_out(self, text: str) -> str:
        """The condition with words for the names in backticks, paths and names that are not ASCII; texts in quotes stay as they are."""
        draws = _DRAWS if self.has_draws else ""
        paths = _PATH if self.has_paths else ""
        return re.sub(f"{_TEXT}{paths}{_QUOTED}{draws}{_BARE}", self._word, text)

    def _word(self, found: re.Match[str]) -> str:
        quoted, bare, path = (found.groupdict().get(name) for name in ("quoted", "bare", "path"))
        if found[0] == "pass@":
            return "pass_at_"
        if path:
            if path[0].isdigit():  # a number
                return path
            name = path.replace("`", "")
        elif bare:
            is_plain = bare.isascii() and not _STAND_IN.fullmatch(bare)
            if is_plain or not bare.isidentifier():
                return bare
            name = bare
        elif quoted:
            name = re.sub(r"^pass@(?=\d)", "pass_at_", quoted) if self.has_draws else quoted
        else:
            return found[0]
        self.names.append((name, found[0]))
        return f"name_{len(self.names) - 1}_of_condition"

    def as_written(self, text: str) -> str:
        """A part of what Python read as it is in the condition."""
        return _STAND_IN.sub(lambda found: self.names[int(found[1])][1], text)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The name, put back into the tree; or the constant, if it is one of the words null, true and false without backticks."""
        found = _STAND_IN.fullmatch(node.id)
        if found:
            node.id, written = self.names[int(found[1])]
            setattr(node, _AS_WRITTEN, written)
        elif node.id in _WORDS:
            return ast.copy_location(ast.Constant(_WORDS[node.id], kind=NULL if node.id == NULL else None), node)
        return node


@dataclass(frozen=True)
class Filter:
    """A parsed condition."""

    text: str
    tree: ast.expr

    @classmethod
    def parse(cls, text: str | Sequence[str], of: Of = "groups") -> Filter:
        """Parse a condition, or raise an error that shows where it fails.

        It is about the facts of a group, the columns of a row, or the numbers of a run; the names of the latter two may be
        dotted paths. Several are one condition, which says that all of them hold.
        """
        if not isinstance(text, str):
            parts = [cls.parse(part, of) for part in text]
            if len(parts) == 1:
                return parts[0]
            whole = ast.BoolOp(ast.And(), [part.tree for part in parts])
            return cls(_text(whole), whole)
        example = _EXAMPLES["draws" if of == "groups" and "@" in text else of]
        names = _Names(of)
        readable = names.taken_out(text.strip())
        try:
            tree = names.visit(ast.parse(readable, mode="eval")).body
        except SyntaxError as error:
            rest = names.as_written(readable[(error.offset or 1) - 1 :])
            at = f" at {rest[:20]!r}" if error.offset else ""
            cure = "equal is written ==" if re.search(r"(?<![<>=!])=(?!=)", text) else example
            raise UsageError(f"{text!r} is not a condition{at}", cure) from None
        except (ValueError, RecursionError, MemoryError):
            raise UsageError(f"{text[:40]!r}... cannot be read as a condition", example) from None
        _check(tree, text, example, names.as_written)
        condition = cls(text, tree)
        if of == "rows" and not condition.names:
            raise UsageError(f"{text!r} names no column", example)
        return condition

    @property
    def names(self) -> list[str]:
        """The quantities that it names, each once."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        nodes.sort(key=lambda node: (node.lineno, node.col_offset))
        return list(dict.fromkeys(node.id for node in nodes))

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true for these quantities; a comparison with a missing quantity is false."""
        import polars as pl

        for name in self.names:
            if name not in values:
                raise UnknownName.among("quantity", name, values)
        compared = {name: values[name] for name in self.names}
        row = [pl.Series(name, [value], pl.Float64 if value is None else None) for name, value in compared.items()]
        try:
            return bool(pl.DataFrame(row).select(self.expression()).item())
        except pl.exceptions.PolarsError:
            constants = [node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant)]
            if not any(isinstance(value, str) for value in (*constants, *compared.values())):
                raise
            raise UsageError(f"cannot compare numbers with texts: {self.text!r}", _EXAMPLES["run"]) from None

    def expression(self) -> pl.Expr:
        """The same as a boolean column, for a frame with the quantities as columns, none of them NaN."""
        return _condition(self.tree)

    def inside(self, path: str) -> Filter:
        """The same with names relative to the objects at a path."""
        tree = deepcopy(self.tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = node.id.removeprefix(path)
        return Filter(self.text, tree)

    @property
    def typed(self) -> Filter:
        """The same with names that say how a column is read: `number:step`, `text:env`, `any:a` beside another name, `null:a`."""
        tree = deepcopy(self.tree)
        seen = list[ast.AST]()
        links = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
        for link in reversed(links):
            names = [node for node in ast.walk(link) if isinstance(node, ast.Name)]
            values = [node.value for node in ast.walk(link) if isinstance(node, ast.Constant)]
            kind = "any"
            if None in values:
                kind = "null"
            elif values:
                kind = "text" if any(isinstance(value, str) for value in values) else "number"
            for node in names:
                if node not in seen:
                    node.id = f"{kind}:{node.id}"
            seen += names
        return Filter(self.text, tree)

    @property
    def parts(self) -> list[Filter]:
        """The conditions that all have to hold, one by one."""
        return [Filter(_text(node), node) for node in _conjuncts(self.tree)]


_EXAMPLES = {
    "run": "a condition compares quantities with numbers, as in 'zero_variance.share > 0.5 or groups < 8'",
    "groups": "a condition compares facts of a group with numbers, as in '0.1 <= mean <= 0.9 and std > 0'",
    "rows": "a condition compares columns of a row, as in 'failure_kind is null and step >= 10'",
    "draws": "pass@K takes a number for K, as in 'pass@4 >= 0.5'",
}
NULL = "null"
_WORDS = {NULL: None, "true": True, "false": False}
# A name is the name: Python would read one that is not ASCII in its compatibility form (NFKC). A combining mark is no \w.
_LETTER = r"[\w\x80-\U0010ffff]"
_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_QUOTED = r"|`(?P<quoted>[^`]+)`"
_BARE = rf"|(?P<bare>{_LETTER}+)"
_STEP = rf"(?:{_LETTER}+|`[^`]+`)"
_PATH = rf"|(?P<path>{_STEP}(?:(?:\[\])?\.{_STEP})+)"  # nest.`a.b`
_DRAWS = r"|\bpass@(?=\d)"
_AS_WRITTEN = "as_written"  # a field of a name in the tree
_STAND_IN = re.compile(r"name_(\d+)_of_condition")
_INTEGERS = 1 << 127  # the first integer that polars' Int128 does not hold
_ALLOWED = (
    ast.Compare, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Name, ast.Load,
    ast.Constant, ast.Is, ast.IsNot, *_COMPARE,
)  # fmt: skip


_NO_QUANTITY = (complex, bytes, types.EllipsisType, types.NoneType)


def _check(tree: ast.expr, text: str, example: str, as_written: Callable[[str], str]) -> None:
    """Raise a usage error if the text is more than a condition, or if `and`, `or` and `not` join anything else."""
    for node in ast.walk(tree):
        # An operator has no text of its own: what it is part of is shown.
        operators = [o for o in ast.iter_child_nodes(node) if isinstance(o, (ast.operator, ast.cmpop, ast.unaryop))]
        no_quantity = isinstance(node, ast.Constant) and isinstance(node.value, _NO_QUANTITY) and not _is_null(node)
        if no_quantity or not all(isinstance(part, _ALLOWED) for part in (node, *operators)):
            shown = as_written(_text(node))
            cure = example
            if isinstance(node, ast.Attribute):
                cure = f"a name like this stands in backticks: `{shown.replace('`', '')}`"
            raise UsageError(f"{text!r} has {shown!r}, which a condition cannot contain", cure)
    joined = [tree]
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            nulls = [_is_null(side) for side in (node.left, *node.comparators)]
            asks = isinstance(node.ops[0], (ast.Is, ast.IsNot))
            if nulls != ([False, True] if asks else [False] * len(nulls)):
                wrong = f"{text!r}: {_text(node)!r} asks nothing"
                raise UsageError(wrong, "write NAME is null, or NAME is not null")
        elif isinstance(node, (ast.BoolOp, ast.UnaryOp)) and not isinstance(node.op, ast.USub):
            joined.append(node)
    if not all(map(_is_condition, joined)):
        raise UsageError(f"{text!r} compares nothing", example)


def _is_null(node: ast.AST) -> bool:
    """Whether it is the word null; Python's own None is none."""
    return isinstance(node, ast.Constant) and node.kind == NULL


def _text(node: ast.AST) -> str:
    """A condition as it is written."""
    return ast.unparse(_Written().visit(deepcopy(node)))


class _Written(ast.NodeTransformer):
    """The names of a tree as they were written, else in backticks where they need them, and its constants as words."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        needs = not node.id.isidentifier() or keyword.iskeyword(node.id) or node.id in _WORDS
        written = re.sub(r"^pass_at_(?=\d+$)", "pass@", node.id)
        return ast.Name(getattr(node, _AS_WRITTEN, f"`{written}`" if needs else written))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, bool) or _is_null(node):
            return ast.Name(next(word for word, value in _WORDS.items() if value is node.value))
        return node


def _is_condition(node: ast.expr) -> bool:
    match node:
        case ast.BoolOp():
            return all(map(_is_condition, node.values))
        case ast.UnaryOp(op=ast.Not()):
            return _is_condition(node.operand)
    return isinstance(node, ast.Compare)


# --- as columns --------------------------------------------------------------------------------------------


def _conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BoolOp(op=ast.And()):
            for part in node.values:
                yield from _conjuncts(part)
        case ast.Compare():
            terms = [node.left, *node.comparators]
            for op, left, right in zip(node.ops, terms, terms[1:], strict=False):
                yield ast.Compare(left, [op], [right])
        case _:
            yield node


def _condition(node: ast.expr) -> pl.Expr:
    import polars as pl

    match node:
        case ast.BoolOp(op=ast.Or()):
            return pl.any_horizontal(map(_condition, node.values))
        case ast.UnaryOp(op=ast.Not()):
            return ~_condition(node.operand)
        case ast.Compare(ops=[op]):
            return _link(type(op), node.left, node.comparators[0]).fill_null(value=False)
        case ast.BoolOp() | ast.Compare():
            return pl.all_horizontal(map(_condition, _conjuncts(node)))
    raise TypeError(node)


def _link(op: type[ast.cmpop], left: ast.expr, right: ast.expr) -> pl.Expr:
    # polars 2.1 compares a number with a column of nulls to one row, and the column with the number to all rows.
    if op in {ast.Is, ast.IsNot}:
        null = _term(left).is_null()
        return null if op is ast.Is else ~null
    if not any(isinstance(node, ast.Name) for node in ast.walk(left)):
        op, left, right = _MIRRORED.get(op, op), right, left
    compared: pl.Expr = _COMPARE[op](_term(left), _term(right))
    return compared


def _term(node: ast.expr) -> pl.Expr:
    import polars as pl

    match node:
        case ast.Name():
            return pl.selectors.by_name(node.id).as_expr()  # a name in backticks may look like a pattern
        case ast.Constant():
            value = node.value
            if isinstance(value, int) and not 1 < value < _INTEGERS:  # ids below that are compared digit by digit
                # One beyond the range of doubles is larger than any quantity.
                value = float(value) if value <= sys.float_info.max else math.inf
            return pl.lit(value)
        case ast.UnaryOp(op=ast.USub()):
            return 0.0 - _term(node.operand).cast(pl.Float64)
    return _condition(node).cast(pl.Float64)
