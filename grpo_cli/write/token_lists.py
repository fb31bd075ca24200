"""Which tokens of each row its advantage stands on: those of the response, by a list of them, a mask or a length."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, UnknownName, UsageError
from grpo_cli.formats import token_lists
from grpo_cli.read.known_names import LIKELY_TOKENS
from grpo_cli.read.texts import json_texts, refuse_same_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from grpo_cli.engine.score import Scored
    from grpo_cli.read.tables import Narrow, Table

# What a mask has where a token does not count: 0, false, and the label that losses ignore.
_IGNORED: Final = (0, -100)
_MOST: Final = 1 << 24  # tokens of a row: their list is one line, and has to fit into memory
_AT_ONCE: Final = token_lists.AT_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenColumns:
    """The columns that say how many tokens there are; of `tokens` all are the response's unless another column says otherwise."""

    tokens: str = ""
    mask: str = ""  # a number for each token: which of them are the response's
    length: str = ""  # how many tokens the response has, the last ones
    prompt_tokens: str = ""  # tokens before those, or their number

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return [name for name in (self.prompt_tokens, self.tokens, self.mask, self.length) if name]

    @property
    def given(self) -> dict[str, str]:
        """Each of them by the part that it plays."""
        return {part: name for part, name in asdict(self).items() if name}

    def check(self, tables: Sequence[Table]) -> None:
        """Refuse columns that say nothing of the tokens, or say it twice."""
        if self.mask and self.length:
            raise UsageError("--mask and --length-column both say which tokens count", "leave one of them out")
        if self.mask and self.prompt_tokens:
            raise UsageError("--mask says of each token whether it counts", "leave out --prompt-tokens")
        if not (self.tokens or self.mask or self.length):
            names = tables[0].columns() if tables else []
            likely = [name for name in names if re.search(LIKELY_TOKENS, name)] or names
            flags = "--tokens COL, --mask COL or --length-column COL"
            could = f"; it could be {', '.join(likely[:20])}" if likely else ""
            raise UsageError("nothing says how many tokens a response has", f"give {flags}{could}")
        refuse_same_column(self)


def tokens_of_rows(narrow: Narrow, scored: Scored, columns: TokenColumns) -> pl.Series:
    """For each row of the narrow table which of its tokens are the response's; null for a row that will have no advantage."""
    written = scored.rows[".kept"] & scored.rows[".advantage"].is_not_null()
    rows = np.flatnonzero(written.to_numpy())
    found, done = [pl.Series(dtype=pl.List(pl.Boolean))], 0
    known = {name for table in narrow.tables for name in table.columns()}
    for frame in json_texts(narrow, rows, columns.names):
        for name in columns.names:
            if frame[name].null_count() == len(frame) and not known & {name, name.partition(".")[0]}:
                raise UnknownName.among("column", name, sorted(known))
        here = rows[done : done + len(frame)]
        done += len(frame)
        found += response_tokens(frame, columns, lambda at, here=here: narrow.place(int(here[at])))  # type: ignore[misc]
    places = np.cumsum(written.to_numpy()) - 1
    return pl.concat(found).gather(pl.select(pl.when(written).then(pl.Series(places))).to_series())


def token_facts(columns: TokenColumns, tokens: pl.Series) -> dict[str, Any]:
    """What the summary says of the tokens of some rows: by which columns, how many, and how many of the responses."""
    return {
        "columns": columns.given,
        "tokens": int(tokens.list.len().cast(pl.Int64).sum()),
        "response_tokens": int(tokens.list.sum().cast(pl.Int64).sum()),
    }


def token_advantages(
    texts: pl.DataFrame, advantages: pl.Series, columns: TokenColumns, place: Callable[[int], str]
) -> Iterator[pl.DataFrame]:
    """The texts with the JSON lists of advantages beside them, in frames of some rows: a list is longer than its number."""
    start = 0
    for tokens in response_tokens(texts, columns, place):
        some = slice(start, start + len(tokens))
        start = some.stop
        lists = token_lists.on_tokens(advantages[some].alias("advantages"), tokens)
        yield texts[some].with_columns(token_lists.json_texts(lists))


def response_tokens(texts: pl.DataFrame, columns: TokenColumns, place: Callable[[int], str]) -> Iterator[pl.Series]:
    """For each row a list that says of its tokens whether they are the response's; in series of some rows.

    An error names the row where its lengths do not fit.
    """
    counts = {name: _counts(texts[name], name, place) for name in (columns.tokens, columns.prompt_tokens) if name}
    lengths = (
        [_whole(text, columns.length, at, place) for at, text in enumerate(texts[columns.length])]
        if columns.length
        else []
    )
    parts, sizes, held = list[np.ndarray](), list[int](), 0
    for at in range(len(texts)):
        tokens = counts[columns.tokens][at] if columns.tokens else None
        before = 0
        if columns.mask:
            of_response = _mask(texts[columns.mask][at], columns.mask, at, place)
            if tokens is not None and len(of_response) != tokens:
                wrong = f"{columns.mask} has {len(of_response)} entries, {columns.tokens} {tokens}"
                raise DataError(f"{place(at)}: {wrong}")
        else:
            most = tokens if tokens is not None else lengths[at]
            length = lengths[at] if lengths else most
            if length > most:
                wrong = f"{place(at)}: {columns.length} is {length}, {columns.tokens} has {most} tokens"
                raise DataError(wrong, "the advantages would not fit the tokens")
            before = most - length + (counts[columns.prompt_tokens][at] if columns.prompt_tokens else 0)
            of_response = np.ones(length, bool)
        parts += [np.zeros(before, bool), of_response]
        sizes.append(before + len(of_response))
        held += sizes[-1]
        if held >= _AT_ONCE or at == len(texts) - 1:
            yield token_lists.bool_lists(np.concatenate(parts), np.array(sizes))
            parts, sizes, held = [], [], 0


def _mask(text: str | None, name: str, at: int, place: Callable[[int], str]) -> np.ndarray:
    """What a mask says of each token."""
    try:
        mask = json.loads(_unquoted(text))
    except ValueError:
        mask = None
    if not isinstance(mask, list) or not all(isinstance(one, int | float) for one in mask):
        raise DataError(f"{place(at)}: {name} is {(text or 'null')[:40]}, expected a list of numbers")
    return np.array([one not in _IGNORED for one in mask], bool)


def _counts(texts: pl.Series, name: str, place: Callable[[int], str]) -> list[int]:
    """How many items each list has; of a number itself."""
    counts = []
    for at, text in enumerate(map(_unquoted, texts)):
        if text.startswith("["):
            inner = text[1:-1].strip()
            if "[" in inner or "{" in inner or '"' in inner:
                raise DataError(f"{place(at)}: {name} is no flat list of tokens")
            counts.append(inner.count(",") + 1 if inner else 0)
        else:
            counts.append(_whole(text, name, at, place))
    return counts


def _unquoted(text: str | None) -> str:
    """The text of a JSON value that a file keeps as text, as CSV does."""
    return str(json.loads(text)) if text is not None and text.startswith('"') else text or ""


def _whole(text: str | None, name: str, at: int, place: Callable[[int], str]) -> int:
    try:
        value = float(_unquoted(text))
    except ValueError:
        value = -1.0
    if value > _MOST:  # not NaN
        raise DataError(
            f"{place(at)}: {name} is {(text or '')[:40]}, more tokens than the {_MOST:,} that a row may have",
            "is it the column of their number?",
        )
    if not value >= 0 or value != int(value):
        raise DataError(f"{place(at)}: {name} is {(text or 'null')[:40]}, expected a number of tokens")
    return int(value)
