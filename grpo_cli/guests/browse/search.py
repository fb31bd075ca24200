"""A search in the texts of rows: it streams over the files, and its hits appear while it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.guests.browse.model import Model
from grpo_cli.read.texts import Reader, TextColumns
from grpo_cli.render.text import count
from grpo_cli.values.cells import Excerpt

# Words that a file contains as they are shown, unless a letter is escaped; JSON may differ in other characters.
_WORDS = re.compile(r"\w+(?: \w+)*", re.ASCII)


class Search:
    """Words that are looked for, in any case, and the rows that have them."""

    def __init__(self, model: Model, shown: Index, needle: str, text_columns: TextColumns) -> None:
        self.needle = needle
        self.hits: list[int] = []
        self.going = True  # false stops it
        self._at = 0
        self._done = 0
        self._narrow = model.inspection.narrow
        wanted = np.zeros(model.size, bool)
        wanted[shown] = True
        self._rows = np.flatnonzero(wanted[model.codes])
        self._reader = Reader(self._narrow, text_columns)
        self._word = max(_WORDS.findall(needle.lower()), key=len, default="")

    def run(self) -> Iterator[int]:
        """Search part by part until the end, or until it is stopped, and yield the number of hits of each part."""
        narrow = self._narrow
        places = self._rows if narrow.rows is None else narrow.rows[self._rows]
        bounds = np.searchsorted(places, [0, *narrow.ends]).tolist()
        for file, (start, end) in enumerate(pairwise(bounds)):
            table = narrow.tables[file]
            columns = self._reader.columns(file)
            if start < end and columns.names:
                first = narrow.ends[file] - narrow.lengths[file]
                inside = places[start:end] - first
                rows = self._rows[start:end]
                excerpt = Excerpt(narrow.scans[file].index, inside, columns.names, as_json=True)
                table.source.check()
                for passed, numbers, frame in table.rows_perhaps_with(excerpt, self._word.encode()):
                    if not self.going:
                        return
                    perhaps = rows[np.searchsorted(inside, numbers)]
                    hits = perhaps[self._has(frame, columns)]
                    self.hits += hits.tolist()
                    self._done = start + passed
                    yield len(hits)
            self._done = end
        self.going = False
        yield 0

    def _has(self, frame: pl.DataFrame, columns: TextColumns) -> list[int]:
        """Which rows have the words in any of their texts."""
        parts = [self._word, *(rf"\u00{digit}" for digit in range(2, 8))]  # a letter may be escaped
        perhaps = pl.any_horizontal(pl.all().str.contains_any(parts, ascii_case_insensitive=True))
        places = frame.select(perhaps.fill_null(value=False).arg_true()).to_series().to_list()
        needle = self.needle.lower()
        rows = []
        for row in places:
            texts = self._reader.texts(columns, frame.row(row, named=True))
            if any(needle in text.lower() for text in texts):
                rows.append(row)
        return rows

    def go(self, by: int) -> int:
        """The hit that many places further, wrapping around."""
        self._at = (self._at + by) % len(self.hits)
        return self.hits[self._at]

    @property
    def says(self) -> str:
        """The progress, in words."""
        share = f"{100 * self._done // max(len(self._rows), 1)}% searched"
        hits = count(len(self.hits), "row")
        if self.hits:
            hits += f", at {self._at + 1:,} (n: next, N: previous)"
        end = ", Esc stops" if self.going else ""
        return f"{self.needle!r} in {hits}, {share}{end}"
