"""Which prompts of a run count together: those with the same value in the column of `--cluster`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Index
from grpo_cli.errors import DataError
from grpo_cli.read.group_keys import SHOWN, encode, spanning
from grpo_cli.stats.inspection import Inspection
from grpo_cli.values.cells import bare_texts
from grpo_cli.values.key_text import plain

NULL = "null"  # prompts without a value count together, too: nothing says that they are apart


@dataclass(frozen=True)
class Clusters:
    """The clusters of the prompts of a run."""

    column: str
    of_prompts: pl.DataFrame  # a line for each prompt with a reward: `key` and `cluster`, its value as text
    without: int  # prompts without a value

    @classmethod
    def of(cls, run: Inspection, keys: pl.DataFrame) -> Self:
        """The clusters of a run; `keys` has the `key` and the `words` of the prompt of each group.

        A prompt whose rows have several values is refused. Rows without a reward may lack the value.
        """
        column = run.columns["cluster"]
        rows = run.raw.rows.select("group", ".reward")
        counted = rows[".reward"].is_finite().fill_null(value=False)
        values = run.narrow.carried[column].filter(counted)
        groups = rows["group"].filter(counted)
        prompts = keys["key"].gather(groups)
        of_prompt = encode([prompts])
        if several := spanning(of_prompt, values):
            words = keys["words"].gather(groups.gather(several[:SHOWN]))
            more = f" and {len(several) - SHOWN} more" if len(several) > SHOWN else ""
            prompts_have = "1 prompt has" if len(several) == 1 else f"{len(several):,} prompts have"
            wrong = f"{prompts_have} rows of several values of {column} ({', '.join(map(plain, words))}{more})"
            raise DataError(wrong, "--cluster takes a column that is the same in all rows of a prompt")
        first = values.gather(of_prompt.first)
        lines = pl.DataFrame({"key": prompts.gather(of_prompt.first), "cluster": bare_texts(first).fill_null(NULL)})
        return cls(column, lines, first.null_count())

    def words(self, prompts: pl.Series) -> pl.Series:
        """The cluster of each of these prompts, as text."""
        lines = prompts.to_frame("key").join(self.of_prompts, on="key", how="left", maintain_order="left")
        return lines["cluster"]

    def codes(self, prompts: pl.Series) -> Index:
        """The same as numbers from 0."""
        return encode([self.words(prompts)]).codes.to_numpy().astype(np.int64)


def many(clusters: Index) -> int:
    """How many clusters there are."""
    return int(clusters.max()) + 1
