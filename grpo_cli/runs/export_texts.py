"""What the records of an export have from the files: texts and tokens of rows, read a few rows at a time and brought into one form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.texts import TextColumns, TextStore
from grpo_cli.values.cells import Place
from grpo_cli.write.records import before_response, conversations, divided, in_one_form
from grpo_cli.write.token_lists import TokenColumns, token_advantages

Pieces = Iterator[pl.DataFrame]  # the JSON texts of the records, in frames of some records each
PIECE_BYTES = 8 << 20  # bytes of texts that are read at once
PIECE_ROWS = 4096  # rows whose records are made at once


def texts_of_responses(narrow: Narrow, columns: TextColumns, names: Sequence[str], rows: Index) -> Pieces:
    """The conversations that end with the response, or prompts and responses, under these names."""
    for frame, place in _texts_at(narrow, rows, columns.names):
        texts = frame.rename(dict(zip(columns.names, names, strict=True)))
        yield pl.DataFrame([conversations(texts[names[0]], place)]) if columns.messages else in_one_form(texts)


def texts_of_prompts(narrow: Narrow, columns: TextColumns, rows: Index) -> Pieces:
    """The prompts; of a conversation the turns before the first response."""
    for frame, place in _texts_at(narrow, rows, columns.names):
        texts = frame.rename({columns.names[0]: "prompt"})
        yield pl.DataFrame([before_response(texts["prompt"], place)]) if columns.messages else in_one_form(texts)


def texts_of_pairs(narrow: Narrow, columns: TextColumns, chosen: Index, rejected: Index) -> Pieces:
    """The texts of pairs, whose rows may be anywhere in the files, so the texts are first copied to a store on disk."""
    with TextStore(narrow, np.union1d(chosen, rejected), columns.names) as store:
        ends = np.cumsum(store.size(chosen) + store.size(rejected))
        start = 0
        while start < len(chosen):
            base = ends[start - 1] if start else 0
            fits = int(np.searchsorted(ends, base + PIECE_BYTES, side="right"))
            end = max(start + 1, fits)
            some = slice(start, min(end, start + PIECE_ROWS))
            start = some.stop
            better = store.take(chosen[some])
            worse = store.take(rejected[some])
            if columns.messages:
                pairs = better[columns.messages], worse[columns.messages]
                yield divided(*pairs, _places(narrow, chosen[some]), _places(narrow, rejected[some]))
            else:
                texts = {
                    "prompt": better[columns.prompt],
                    "chosen": better[columns.response],
                    "rejected": worse[columns.response],
                }
                yield in_one_form(pl.DataFrame(texts))


def advantages_of_tokens(narrow: Narrow, columns: TokenColumns, rows: Index, advantages: pl.Series) -> Pieces:
    """The token columns, and a list with the advantage of each token."""
    done = 0
    for frame, place in _texts_at(narrow, rows, columns.names):
        yield from token_advantages(frame, advantages[done : done + len(frame)], columns, place)
        done += len(frame)


def _texts_at(narrow: Narrow, rows: Index, columns: Sequence[str]) -> Iterator[tuple[pl.DataFrame, Place]]:
    """The JSON texts of columns at ascending rows, some rows at a time, and the file and row of each, for errors."""
    done = 0
    for frame in narrow.texts_at(rows, columns):
        yield frame, _places(narrow, rows[done : done + len(frame)])
        done += len(frame)


def _places(narrow: Narrow, rows: Index) -> Place:
    return lambda at: narrow.place(int(rows[at]))
