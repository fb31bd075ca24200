"""Rows laid out group by group, for the few computations that are recursions and not windows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from grpo_cli.moments import Codes, Vector

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Index = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Segments:
    """Consecutive runs of rows: where each starts and how long it is."""

    starts: Index
    sizes: Index

    @classmethod
    def of(cls, codes: Codes) -> tuple[Segments, Index]:
        """The runs of equal codes, and the row order (stable) that makes them consecutive."""
        # Files hold a group's rows together more often than not: looking costs a tenth of sorting.
        sorted_already = bool((codes[1:] >= codes[:-1]).all())
        order = np.arange(len(codes)) if sorted_already else np.argsort(codes, kind="stable")
        ordered = codes if sorted_already else codes[order]
        edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        starts = np.concatenate([[0], edges]).astype(np.int64)[: len(codes)]
        return cls(starts, np.diff(np.append(starts, len(codes)))), order

    def sum(self, values: Vector) -> Vector:
        """One sum per run."""
        return np.add.reduceat(values, self.starts) if len(values) else values

    def spread(self, values: Vector) -> Vector:
        """One value per run, repeated on its rows."""
        # np.repeat takes as long, and holds up all other threads.
        return np.take(values, self._of_row)

    @cached_property
    def _of_row(self) -> Index:
        """The run of each row."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def least(self, values: Vector) -> Vector:
        """The smallest value of each run; NaN where it has one."""
        return np.minimum.reduceat(values, self.starts) if len(values) else values

    def most(self, values: Vector) -> Vector:
        """The largest value of each run; NaN where it has one."""
        return np.maximum.reduceat(values, self.starts) if len(values) else values
