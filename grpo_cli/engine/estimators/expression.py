"""A custom formula, in polars SQL over named quantities."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.errors import UnknownName, UsageError

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms

# What a formula may name besides columns bound by flags.
NAMES: Final[Mapping[str, str]] = {
    "reward": "the row's reward",
    "mean": "mean of the group",
    "std": "std of the group, with the plan's ddof",
    "n": "rows of the group that have a reward",
    "min": "smallest reward of the group",
    "max": "largest reward of the group",
    "median": "median of the group",
    "sum": "sum of the group",
    "rank": "place in the group, 1 = smallest, ties averaged",
    "batch_mean": "mean of the batch",
    "batch_std": "std of the batch, with the plan's ddof",
    "batch_n": "rows of the batch that have a reward",
    "epsilon": "the plan's epsilon",
}
EXAMPLE = "try '(reward - mean) / (std + epsilon)'"
# The extra columns with a number for each row.
COLUMNS = tuple(role.name for role in ROLES.values() if role.kind == "number")
# The SQL that a formula may contain. Whatever else polars understands (queries, functions that read files or addresses,
# casts, texts) is refused before polars sees it.
WORDS = (
    "AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CASE", "WHEN", "THEN", "ELSE", "END",
)  # fmt: skip
FUNCTIONS = (
    "ABS", "CEIL", "CEILING", "FLOOR", "ROUND", "TRUNC", "SIGN", "SQRT", "CBRT", "EXP", "LN", "LOG", "LOG2", "LOG10", "LOG1P",
    "POW", "POWER", "MOD", "SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "ATAN2", "LEAST", "GREATEST", "COALESCE", "NULLIF",
    "IFNULL", "IF", "AVG", "SUM", "MIN", "MAX", "COUNT", "MEDIAN", "STDDEV", "VARIANCE", "FIRST", "LAST", "QUANTILE_CONT",
)  # fmt: skip
SHOWN = 120  # characters of a formula in a message
MOST_TOKENS = 2000  # of a formula: polars builds one expression of it
MOST_DEPTH = 50  # of nested parentheses and CASE
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<comment> -- | /\* )
      | (?P<number> (?: \d+ (?: \.\d* )? | \.\d+ ) (?: [eE][-+]?\d+ )? (?![\w.]) )
      | (?P<name> [^\W\d]\w* | "[^"]*" )
      | (?P<operator> <= | >= | <> | != | == | [-+*/%=<>(),] )
      | (?P<other> \S )
    )""",
    re.VERBOSE,
)


def expression(t: Terms, *, sql: str, ddof: int, epsilon: float) -> pl.Expr:
    """Any formula over named quantities of the row, its group and its batch.

        A = your formula, for example (reward - mean) / (std + epsilon)

    SQL of polars; an aggregate such as AVG(reward) is taken over the group. A value is needed for every row.
    Source: your own.
    """
    import polars as pl

    formula = parsed(sql)
    names = formula.meta.root_names()
    for name in names:
        if name in COLUMNS and not t.frames.has(name):
            wrong = f"the formula reads {name!r}, but no column is given for it"
            raise UsageError(wrong, f"add {ROLES[name].flag} COLUMN")
    _refuse_other_types(sql, formula, names)
    quantities = _quantities(t, ddof, epsilon)
    for name in dict.fromkeys(names):
        if name in NAMES:
            t.frames.let(quantities[name](), name, replaces=True)
    # Named here, because the quantities have the same names for the next reward column.
    value = t.over(formula.cast(pl.Float64))
    return t.let(pl.when(t.r.is_not_null()).then(value))


def _refuse_other_types(sql: str, formula: pl.Expr, names: Sequence[str]) -> None:
    """Try the formula on a row of numbers: it must give a number."""
    import polars as pl

    probe = pl.DataFrame({name: [0.5, 1.5] for name in names} or {"reward": [0.5, 1.5]})
    try:
        values = probe.select(formula.alias("value"))["value"]
    except (pl.exceptions.PolarsError, ValueError) as error:
        reason = shortened(str(error).splitlines()[0])
        raise UsageError(f"--expr {shortened(sql)!r} cannot be computed ({reason})", EXAMPLE) from None
    kind = values.dtype
    if not (kind.is_numeric() or kind == pl.Boolean) or len(values) not in {1, 2}:
        raise UsageError(f"--expr {shortened(sql)!r} gives {kind}, not a number for each row", EXAMPLE)


def parsed(sql: str) -> pl.Expr:
    """The formula as an expression, or a usage error with the reason of polars."""
    import polars as pl

    _refuse_more_than_arithmetic(sql)
    try:
        return pl.sql_expr(sql)
    except pl.exceptions.PolarsError as error:
        reason = shortened(str(error).splitlines()[0])
        raise UsageError(f"--expr {shortened(sql)!r} is not a formula ({reason})", EXAMPLE) from None


def _refuse_more_than_arithmetic(sql: str) -> None:
    """Refuse tokens other than numbers, quantities, the operators, and the listed functions and keywords."""
    tokens = list[tuple[str, str]]()
    for match in _TOKEN.finditer(sql):
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind]))
    if len(tokens) > MOST_TOKENS:
        raise UsageError(f"--expr has {len(tokens):,} tokens", f"a formula has at most {MOST_TOKENS:,}")
    depth = 0
    texts = [text for _, text in tokens]
    following = [*texts[1:], "", ""]
    for (kind, text), after, second in zip(tokens, following, following[1:], strict=False):
        word = text.upper()
        opens = word in {"(", "CASE"}
        closes = word in {")", "END"}
        depth += opens - closes
        if depth > MOST_DEPTH:
            raise UsageError(f"--expr is nested more than {MOST_DEPTH} deep", "shorten the formula")
        if kind in {"comment", "other"}:
            raise UsageError(f"--expr {shortened(sql)!r}: {text!r} is not allowed in a formula", EXAMPLE)
        if kind != "name" or word in WORDS:
            continue
        if after != "(":
            name = text.strip('"')
            known = [*NAMES, *COLUMNS]
            if name not in known:
                raise UnknownName.among("quantity", name, known, lost="grpo-adv methods expression lists them")
        elif word not in FUNCTIONS:
            raise UnknownName.among("function", text, FUNCTIONS, lost=f"a formula may use {', '.join(FUNCTIONS)}")
        elif second == ")" and word != "COUNT":
            raise UsageError(f"--expr {shortened(sql)!r}: {text} takes a value", EXAMPLE)


def shortened(sql: str) -> str:
    """The beginning of a formula, as a message shows it."""
    return sql if len(sql) <= SHOWN else f"{sql[: SHOWN - 3]}..."


def _quantities(t: Terms, ddof: int, epsilon: float) -> Mapping[str, Callable[[], pl.Expr]]:
    """How each name is computed, when the formula reads it."""
    import polars as pl

    return {
        "reward": lambda: t.r,
        "mean": lambda: t.mean,
        "std": lambda: t.over(t.d.std(ddof=ddof)).fill_null(0.0),
        "n": lambda: t.n,
        "min": lambda: t.least,
        "max": lambda: t.most,
        "median": lambda: t.over(t.r.median()),
        "sum": lambda: t.sum(t.r),
        "rank": lambda: t.over(t.r.rank("average")),
        "batch_mean": lambda: t.batch(t.r).mean,
        "batch_std": lambda: t.batch(t.r).variance(ddof).sqrt(),
        "batch_n": lambda: t.batch(t.r).weight,
        "epsilon": lambda: pl.lit(epsilon),
    }
