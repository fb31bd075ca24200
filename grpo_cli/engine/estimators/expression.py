"""A custom formula, in polars SQL over named quantities."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

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
# Of a group.
AGGREGATES = (
    "AVG", "SUM", "MIN", "MAX", "COUNT", "MEDIAN", "STDDEV", "VARIANCE", "FIRST", "LAST", "QUANTILE_CONT",
)  # fmt: skip
FUNCTIONS = (
    "ABS", "CEIL", "CEILING", "FLOOR", "ROUND", "TRUNC", "SIGN", "SQRT", "CBRT", "EXP", "LN", "LOG", "LOG2", "LOG10", "LOG1P",
    "POW", "POWER", "MOD", "SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "ATAN2", "LEAST", "GREATEST", "COALESCE", "NULLIF",
    "IFNULL", "IF", *AGGREGATES,
)  # fmt: skip
_ARITHMETIC = ("+", "-", "*", "/", "%")
_CONSTANTS = ("TRUE", "FALSE", "NULL")
_WHOLE = ("COUNT", "SUM")  # give whole numbers where they count rows
_TO_DIGITS = ("ROUND", "TRUNC")
_TO_CONSTANT = ("QUANTILE_CONT",)  # the last value of this aggregate is a number
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


class _Token(NamedTuple):
    """A token of a formula: its kind is a group of `_TOKEN`."""

    kind: str
    text: str

    @property
    def word(self) -> str:
        """Its text as a keyword or the name of a function."""
        return self.text.upper()

    @property
    def opens(self) -> bool:
        """Whether it begins something that a later token ends."""
        return self.word in {"(", "CASE"}

    @property
    def closes(self) -> bool:
        """Whether it ends that."""
        return self.word in {")", "END"}


class Formula(NamedTuple):
    """A formula as it was given, and how polars reads it."""

    tokens: Sequence[_Token]
    texts: Sequence[str]  # of the tokens, with numbers and operands as Float64
    whole: pl.Expr


def expression(t: Terms, *, sql: str, ddof: int, epsilon: float) -> pl.Expr:
    """Any formula over named quantities of the row, its group and its batch.

        A = your formula, for example (reward - mean) / (std + epsilon)

    SQL of polars; an aggregate such as AVG(reward) is taken over the group. A value is needed for every row.
    Source: your own.
    """
    import polars as pl

    formula = parsed(sql)
    names = formula.whole.meta.root_names()
    for name in names:
        if name in COLUMNS and not t.frames.has(name):
            wrong = f"the formula reads {name!r}, but no column is given for it"
            raise UsageError(wrong, f"add {ROLES[name].flag} COLUMN")
    _refuse_other_types(sql, formula.whole, names)
    quantities = _quantities(t, ddof, epsilon)
    for name in dict.fromkeys(names):
        if name in NAMES:
            t.frames.let(quantities[name](), name, replaces=True)
    value = pl.when(t.r.is_not_null()).then(_of_rows(t, formula).cast(pl.Float64))
    named = t.let(value)
    t.frames.keep([named])  # because the quantities have the same names for the next reward column
    return named


def _of_rows(t: Terms, formula: Formula) -> pl.Expr:
    """The formula with the aggregates of the row's group as columns.

    Each aggregate is a window of its own over a column. polars gives one row for 0 < COALESCE(kl, 1) where all kl are
    null, and for others that it knows to be the same everywhere; inside of a window it then reads beyond that row.
    """
    import polars as pl

    from grpo_cli.engine.frames import GROUP

    every_row = pl.col(GROUP).is_not_null()
    written = list[str]()
    opened = list[int]()  # where the parentheses, or the calls with them, begin that are open
    for token, text in zip(formula.tokens, formula.texts, strict=True):
        is_call = token.text == "(" and bool(written) and written[-1].upper() in AGGREGATES
        if token.text == "(":
            opened.append(len(written) - is_call)
        written.append(text)
        begin = opened.pop() if token.text == ")" else 0
        if token.text != ")" or written[begin].upper() not in AGGREGATES:
            continue
        name, _, *of, end = written[begin:]
        commas = [at for at, part in enumerate(of) if part == ","]
        cut = commas[-1] if name.upper() in _TO_CONSTANT else len(of)
        if of not in ([], ["*"]):
            argument = pl.when(every_row).then(pl.sql_expr(" ".join(of[:cut])))
            of[:cut] = [f'"{t.let(argument).meta.output_name()}"']
        aggregate = t.let(t.over(pl.sql_expr(" ".join([name, "(", *of, end]))))
        written[begin:] = [f'"{aggregate.meta.output_name()}"']
    return pl.sql_expr(" ".join(written))


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


def named(sql: str) -> frozenset[str]:
    """The quantities that the formula names; a text that is no formula may name anything."""
    tokens = [(match.lastgroup, match[str(match.lastgroup)]) for match in _TOKEN.finditer(sql)]
    following = [text for _, text in tokens[1:]] + [""]
    names = [
        text.strip('"')
        for (kind, text), after in zip(tokens, following, strict=True)
        if kind == "name" and after != "("
    ]
    return frozenset(names) & {*NAMES, *COLUMNS}


def parsed(sql: str) -> Formula:
    """The formula, or a usage error with the reason of polars."""
    import polars as pl

    tokens = _tokens(sql)
    texts = _in_float64(tokens)
    try:
        pl.sql_expr(sql)  # so that an error shows the formula as it was given
        return Formula(tokens, texts, pl.sql_expr(" ".join(texts)))
    except pl.exceptions.PolarsError as error:
        reason = shortened(str(error).splitlines()[0])
        raise UsageError(f"--expr {shortened(sql)!r} is not a formula ({reason})", EXAMPLE) from None


def _tokens(sql: str) -> list[_Token]:
    """The tokens of a formula: numbers, quantities, the operators, and the listed functions and keywords; all else is refused."""
    tokens = list[_Token]()
    for match in _TOKEN.finditer(sql):
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match[kind]))
    if len(tokens) > MOST_TOKENS:
        raise UsageError(f"--expr has {len(tokens):,} tokens", f"a formula has at most {MOST_TOKENS:,}")
    depth = 0
    nothing = _Token("", "")
    following = [*tokens[1:], nothing, nothing]
    for token, after, second in zip(tokens, following, following[1:], strict=False):
        depth += token.opens - token.closes
        if depth > MOST_DEPTH:
            raise UsageError(f"--expr is nested more than {MOST_DEPTH} deep", "shorten the formula")
        if token.kind in {"comment", "other"}:
            raise UsageError(f"--expr {shortened(sql)!r}: {token.text!r} is not allowed in a formula", EXAMPLE)
        if token.kind != "name" or token.word in WORDS:
            continue
        if after.text != "(":
            name = token.text.strip('"')
            known = [*NAMES, *COLUMNS]
            if name not in known:
                raise UnknownName.among("quantity", name, known, lost="grpo-adv methods expression lists them")
        elif token.word not in FUNCTIONS:
            raise UnknownName.among("function", token.text, FUNCTIONS, lost=f"a formula may use {', '.join(FUNCTIONS)}")
        elif second.text == ")" and token.word != "COUNT":
            raise UsageError(f"--expr {shortened(sql)!r}: {token.text} takes a value", EXAMPLE)
    return tokens


def _in_float64(tokens: Sequence[_Token]) -> list[str]:
    """The texts of these tokens, with Float64 numbers and operands.

    polars takes 10 for an Int32, 0.5 for a decimal with one digit, and counts in whole numbers: POWER(10, 10) would be
    1410065408, and 1.0 / 3.0 would end after seven digits. Only the digits of ROUND and TRUNC have to be whole numbers.
    """
    texts = [token.text for token in tokens]
    opened = list[int]()  # where the parentheses, calls and CASEs begin that are open
    for at, token in enumerate(tokens):
        if token.opens:
            is_call = token.text == "(" and at > 0 and tokens[at - 1].word in FUNCTIONS
            opened.append(at - is_call)
        elif token.kind == "number":
            inside = tokens[opened[-1]].word if opened else ""
            if "e" not in token.text.lower() and not (inside in _TO_DIGITS and _is_second(tokens, at)):
                texts[at] += "e0"
        elif token.closes and opened:
            begin = opened.pop()
            if _is_operand(tokens, begin, at) or tokens[begin].word in _WHOLE:
                texts[at] += "::DOUBLE"
        elif token.word in _CONSTANTS and _is_operand(tokens, at, at):
            texts[at] += "::DOUBLE"
    return texts


def _is_operand(tokens: Sequence[_Token], begin: int, end: int) -> bool:
    """Whether arithmetic is done with what these tokens give."""
    around = [*tokens[max(begin - 1, 0) : begin], *tokens[end + 1 : end + 2]]
    return any(token.text in _ARITHMETIC for token in around)


def _is_second(tokens: Sequence[_Token], at: int) -> bool:
    """Whether a number, with or without a sign, is right behind a comma."""
    before = at - 2 if tokens[at - 1].text in {"+", "-"} else at - 1
    return tokens[before].text == ","


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
