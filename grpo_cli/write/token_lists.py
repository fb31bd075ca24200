"""The advantage on every token of a response, as JSON lists: 0 where a token is none of the response's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from grpo_cli.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What a mask has where a token does not count: 0, false, and the label that losses ignore.
_IGNORED: Final = (0, -100)
_MOST: Final = 1 << 24  # tokens of a row: their list is one line, and has to fit into memory
_AT_ONCE: Final = 1 << 21  # tokens of the rows whose lists are in memory together


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


def token_advantages(
    texts: pl.DataFrame, advantages: pl.Series, columns: TokenColumns, place: Callable[[int], str]
) -> Iterator[pl.DataFrame]:
    """The texts with the JSON lists of advantages beside them, in frames of some rows: a list is longer than its number.

    An error names the row where its lengths do not fit.
    """
    counts = {name: _counts(texts[name], name, place) for name in (columns.tokens, columns.prompt_tokens) if name}
    lengths = (
        [_whole(text, columns.length, at, place) for at, text in enumerate(texts[columns.length])]
        if columns.length
        else []
    )
    lists, start, held = list[str](), 0, 0
    for at, value in enumerate(advantages.to_list()):
        of_response, before = repr(value), 0
        tokens = counts[columns.tokens][at] if columns.tokens else None
        if columns.mask:
            mask = _mask(texts[columns.mask][at], columns.mask, at, place)
            if tokens is not None and len(mask) != tokens:
                raise DataError(f"{place(at)}: {columns.mask} has {len(mask)} entries, {columns.tokens} {tokens}")
            items = ["0.0" if one in _IGNORED else of_response for one in mask]
        else:
            most = tokens if tokens is not None else lengths[at]
            length = lengths[at] if lengths else most
            if length > most:
                wrong = f"{place(at)}: {columns.length} is {length}, {columns.tokens} has {most} tokens"
                raise DataError(wrong, "the advantages would not fit the tokens")
            items = ["0.0"] * (most - length) + [of_response] * length
        if columns.prompt_tokens:
            before = counts[columns.prompt_tokens][at]
        lists.append(f"[{','.join(['0.0'] * before + items)}]")
        held += before + len(items)
        if held >= _AT_ONCE or at == len(texts) - 1:
            yield texts[start : at + 1].with_columns(pl.Series("advantages", lists, dtype=pl.String))
            lists, start, held = [], at + 1, 0


def _mask(text: str | None, name: str, at: int, place: Callable[[int], str]) -> list[float]:
    """The numbers of a mask."""
    try:
        mask = json.loads(_unquoted(text))
    except ValueError:
        mask = None
    if not isinstance(mask, list) or not all(isinstance(one, int | float) for one in mask):
        raise DataError(f"{place(at)}: {name} is {(text or 'null')[:40]}, expected a list of numbers")
    return mask


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
