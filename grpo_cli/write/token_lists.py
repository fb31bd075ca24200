"""Which tokens of a row get its advantage: those of the response, as a token list, a mask or a length says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

import numpy as np
import polars as pl

from grpo_cli.engine.distill import on_tokens
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Index
from grpo_cli.engine.score import Scored
from grpo_cli.errors import Cure, DataError, UnknownName, UsageError, Way
from grpo_cli.files.inputs import spooled
from grpo_cli.read.known_names import LIKELY_TOKENS
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import Table, column_names
from grpo_cli.read.texts import of_texts, refuse_same_column
from grpo_cli.read.token_numbers import IGNORED, Lists, token_numbers
from grpo_cli.values import token_lists
from grpo_cli.values.cells import Place, where
from grpo_cli.values.paths import is_there
from grpo_cli.values.slices import Ints

_NO_TOKENS = r"""^"?(\[\s*\]|[-+]?0+(\.0*)?([eE][-+]?\d+)?)"?$"""  # an empty list, or the number 0
_MOST = 1 << 24  # tokens in a row: their list is on one line, which has to fit into memory


@dataclass(frozen=True, kw_only=True)
class TokenColumns:
    """The columns that count tokens; all `tokens` belong to the response unless another column says otherwise."""

    tokens: str = ""
    mask: str = ""  # a number for each token: does it belong to the response?
    length: str = ""  # the number of tokens of the response, which come last
    prompt_tokens: str = ""  # the tokens before the response, or their number
    token_logprobs: str = ""  # a number for each token, or for each of the response
    teacher_logprobs: str = ""  # the same, by a teacher

    @property
    def names(self) -> list[str]:
        """The columns that count tokens."""
        return [name for name in (self.prompt_tokens, self.tokens, self.mask, self.length) if name]

    @property
    def words(self) -> str:
        """The columns as the summary names them."""
        return ", ".join(self.names)

    @property
    def logprobs(self) -> list[str]:
        """The columns of the log-probabilities."""
        return [name for name in (self.token_logprobs, self.teacher_logprobs) if name]

    @property
    def given(self) -> dict[str, str]:
        """The columns that were named, by option."""
        return {part: name for part, name in asdict(self).items() if name}

    def check(self, tables: Sequence[Table]) -> None:
        """Refuse columns that do not determine the tokens, or contradict each other."""
        if self.mask and self.length:
            raise UsageError("--mask and --length-column both say which tokens count", "leave one of them out")
        if self.mask and self.prompt_tokens:
            raise UsageError("--mask marks the tokens that count", "leave out --prompt-tokens")
        if not (self.tokens or self.mask or self.length or self.logprobs):
            names = tables[0].columns() if tables else []
            likely = [name for name in names if re.search(LIKELY_TOKENS, name)]
            could = [f"it could be {', '.join(likely[:20])}"] if likely else []
            cures = ["give --tokens COL, --mask COL or --length-column COL", *could]
            raise UsageError("nothing says how many tokens a response has", cures)
        refuse_same_column(replace(self, tokens="") if self.tokens == self.token_logprobs else self)


def has_tokens(narrow: Narrow, rows: Index, columns: TokenColumns) -> Mask:
    """Which rows have a response of at least one token; a prompt may have none."""

    def there(name: str, text: pl.Series) -> pl.Series:
        missing = text.is_null() | (text == '""')
        if name != columns.prompt_tokens:
            missing |= text.str.contains(_NO_TOKENS).fill_null(value=False)
        return ~missing

    masks = of_texts(narrow, rows, columns.names, "tokens", "--tokens, --mask or --length-column", there)
    return cast("Mask", np.logical_and.reduce([*masks.values()]))


def tokens_of_rows(narrow: Narrow, scored: Scored, columns: TokenColumns) -> token_lists.Tokens:
    """For each row of the narrow table, which tokens belong to the response; null for a row without an advantage.

    With log-probabilities each token has a number of its own.
    """
    written = scored.rows[".kept"] & scored.rows[".advantage"].is_not_null()
    rows = np.flatnonzero(written.to_numpy())
    found = [pl.Series(dtype=pl.List(pl.Boolean))]
    names = columns.names
    done = 0
    for frame in narrow.texts_at(rows, names) if names else ():
        for name in names:
            if frame[name].null_count() == len(frame):
                _refuse_unknown(narrow, name)
        here = rows[done : done + len(frame)]
        done += len(frame)
        found += response_tokens(frame, columns, lambda at, here=here: narrow.place(int(here[at])))  # type: ignore[misc]
    tokens = pl.concat(found)
    places = where(written, pl.Series(np.cumsum(written.to_numpy()) - 1))
    if not columns.logprobs:
        return token_lists.Tokens(tokens.gather(places))
    advantages = where(~narrow.masked, scored.rows[".advantage"]).gather(rows)
    sizes = list[Ints]()
    parts = _own_numbers(narrow, rows, advantages, tokens, columns, sizes)
    file = token_lists.Numbers(cast("int", spooled(parts, "the advantages of tokens").fd))
    own = np.concatenate([np.zeros(0, np.int64), *sizes])
    if not names:
        tokens = token_lists.bool_lists(np.ones(own.sum(), bool), own)
    return token_lists.Tokens(tokens.gather(places), file, pl.Series(np.cumsum(own) - own).gather(places))


def _refuse_unknown(narrow: Narrow, name: str) -> None:
    known = column_names(narrow.tables)
    if not is_there(name, known):
        raise UnknownName.among("column", name, sorted(known))


def _own_numbers(
    narrow: Narrow, rows: Index, advantages: pl.Series, tokens: pl.Series, columns: TokenColumns, sizes: list[Ints]
) -> Iterator[bytes]:
    """The advantages on the tokens of responses, row after row; `sizes` gets how many each row has.

    A row whose advantage is null is masked: its tokens get 0.
    """
    done = 0
    for part in token_numbers(narrow, rows, Lists(columns.logprobs, mask=columns.mask)):
        of_part = slice(done, done + len(part.rows) + part.missing)
        done = of_part.stop
        if part.missing:
            _refuse_missing(narrow, columns, rows[of_part], part.rows)
        gaps = part.values[columns.teacher_logprobs] - part.values[columns.token_logprobs]
        own = part.sizes
        if columns.names:
            counting = tokens[of_part]
            own, every = (counts.cast(pl.Int64).to_numpy() for counts in (counting.list.sum(), counting.list.len()))
            # A list has a number for each token of the response, or for each of the row.
            of_all_tokens = (part.sizes != own) & (part.sizes == every)
            wrong = (part.sizes != own) & ~of_all_tokens
            if wrong.any():
                at = int(wrong.argmax())
                place = narrow.place(int(rows[of_part][at]))
                raise _other_length(columns, int(part.sizes[at]), int(own[at]), int(every[at]), place)
            of_response = counting.explode(empty_as_null=False, keep_nulls=False).to_numpy()
            has_number = of_response | np.repeat(of_all_tokens, every)
            gaps = gaps[of_response[has_number]]
        sizes.append(own)
        of_rows = advantages[of_part]
        changed = on_tokens(narrow.plan.distill, np.repeat(of_rows.fill_null(0.0).to_numpy(), own), gaps)
        changed[np.repeat(of_rows.is_null().to_numpy(), own)] = 0.0
        yield changed.tobytes()


def _refuse_missing(narrow: Narrow, columns: TokenColumns, rows: Index, there: Index) -> None:
    """Refuse that some of these rows have no list of log-probabilities."""
    for name in columns.logprobs:
        _refuse_unknown(narrow, name)
    names = " and ".join(columns.logprobs)
    cure: Cure = Way("--left-out-column", why="names a column that leaves such rows out", fill="COL")
    first = int(np.setdiff1d(rows, there)[0])
    raise DataError(f"without a list in {names}", cure, place=narrow.place(first))


def _other_length(columns: TokenColumns, numbers: int, own: int, every: int, place: str) -> DataError:
    """The error for a row whose list has neither a number for each of its own tokens nor for every one."""
    what = f"{columns.token_logprobs} has {numbers:,} numbers, the response {own:,} tokens"
    cure: Cure = f"the lists are of the response, or of all {every:,} tokens of the row"
    if columns.names == [columns.length]:
        cure = Way("--tokens", columns.token_logprobs, "says that the lists begin with the prompt")
    return DataError(what, cure, place=place)


@dataclass(frozen=True)
class OnTokens:
    """The tokens of --per-token, how many belong to responses, and the columns they come from."""

    columns: Mapping[str, str]  # the columns that count the tokens, or have their log-probs, by option
    tokens: int  # of all rows with an advantage, those of prompts too if the columns count them
    response_tokens: int  # of `tokens`, those of responses: only they get the advantage, others get 0


def token_facts(columns: TokenColumns, tokens: token_lists.Tokens) -> OnTokens:
    """How many of these tokens there are."""
    lists = tokens.counting.list
    every = lists.len().cast(pl.Int64).sum()
    of_responses = lists.sum().cast(pl.Int64).sum()
    return OnTokens(columns.given, int(every), int(of_responses))


def token_advantages(
    texts: pl.DataFrame,
    advantages: pl.Series,
    columns: TokenColumns,
    place: Place,
    at_once: int = token_lists.AT_ONCE,
) -> Iterator[pl.DataFrame]:
    """The texts with JSON lists of advantages, in frames of about `at_once` tokens, since lists take much memory."""
    start = 0
    for tokens in response_tokens(texts, columns, place, at_once):
        some = slice(start, start + len(tokens))
        start = some.stop
        lists = token_lists.on_tokens(advantages[some], token_lists.Tokens(tokens))
        yield texts[some].with_columns(advantages=token_lists.json_texts(lists))


def response_tokens(
    texts: pl.DataFrame, columns: TokenColumns, place: Place, at_once: int = token_lists.AT_ONCE
) -> Iterator[pl.Series]:
    """For each row, a list that is true for the tokens of the response, in series of about `at_once` tokens.

    Lengths that do not match are an error that names the row.
    """
    parts = list[np.ndarray]()
    sizes = list[int]()
    size = 0
    for of_row in _each_response(texts, columns, place):
        parts += of_row
        sizes.append(sum(map(len, of_row)))
        size += sizes[-1]
        if size >= at_once:
            yield token_lists.bool_lists(np.concatenate(parts), np.array(sizes))
            parts, sizes, size = [], [], 0
    if sizes:
        yield token_lists.bool_lists(np.concatenate(parts), np.array(sizes))


def _each_response(texts: pl.DataFrame, columns: TokenColumns, place: Place) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each row its tokens before the response (false), and those of the response (true, or as the mask says)."""
    counts = {name: _counts(texts[name], name, place) for name in (columns.tokens, columns.prompt_tokens) if name}
    lengths = texts[columns.length] if columns.length else [None] * len(texts)
    for at, text in enumerate(lengths):
        tokens = counts[columns.tokens][at] if columns.tokens else None
        if columns.mask:
            mask = _mask(texts[columns.mask][at], columns.mask, at, place)
            if tokens is not None and len(mask) != tokens:
                wrong = f"{columns.mask} has {len(mask)} entries, {columns.tokens} {tokens}"
                raise DataError(wrong, place=place(at))
            yield np.zeros(0, bool), mask
            continue
        length = _whole(text, columns.length, at, place) if columns.length else tokens or 0
        every = length if tokens is None else tokens
        if length > every:
            wrong = f"{place(at)}: {columns.length} is {length}, {columns.tokens} has {every} tokens"
            raise DataError(wrong, "the advantages would not fit the tokens")
        prompt = counts[columns.prompt_tokens][at] if columns.prompt_tokens else 0
        yield np.zeros(prompt + every - length, bool), np.ones(length, bool)


def _mask(text: str | None, name: str, at: int, place: Place) -> np.ndarray:
    """The mask as booleans."""
    try:
        mask = json.loads(_unquoted(text))
    except ValueError:
        mask = None
    if not isinstance(mask, list) or not all(isinstance(value, int | float) for value in mask):
        raise DataError(f"{name} is {(text or 'null')[:40]}, expected a list of numbers", place=place(at))
    return np.array([value not in IGNORED for value in mask], bool)


def _counts(texts: pl.Series, name: str, place: Place) -> list[int]:
    """The number of items of each list; a number counts as itself."""
    counts = []
    for at, text in enumerate(map(_unquoted, texts)):
        if text.startswith("["):
            inner = text[1:-1].strip()
            if "[" in inner or "{" in inner or '"' in inner:
                raise DataError(f"{name} is not a flat list of tokens", place=place(at))
            counts.append(inner.count(",") + 1 if inner else 0)
        else:
            counts.append(_whole(text, name, at, place))
    return counts


def _unquoted(text: str | None) -> str:
    """The text of a JSON value that a file, such as CSV, stores as text."""
    return str(json.loads(text)) if text is not None and text.startswith('"') else text or ""


def _whole(text: str | None, name: str, at: int, place: Place) -> int:
    try:
        value = float(_unquoted(text))
    except ValueError:
        value = -1.0
    if value > _MOST:  # not NaN
        wrong = f"{name} is {(text or '')[:40]}, more than the {_MOST:,} tokens that a row may have"
        raise DataError(wrong, "is it the column of token counts?", place=place(at))
    if not value >= 0 or value != int(value):
        raise DataError(f"{name} is {(text or 'null')[:40]}, expected a number of tokens", place=place(at))
    return int(value)
