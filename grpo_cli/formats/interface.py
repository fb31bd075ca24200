"""What a format can do, and what it is asked: the words that every format module shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np
    import polars as pl

    from grpo_cli.files.inputs import Input

Kind = Literal["number", "numbers", "key"]
PARENT: Final = "@parent"  # the column that numbers the list that a rollout stands in


@dataclass(frozen=True, slots=True)
class Field:
    """A column to read. The name may be a dotted path; a column that has the whole name wins."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Weaving:
    """What goes into the bytes of a file.

    `added` is aligned with the rows of the output; `take` says which source row each of them is (none:
    every row, in order). With `replace` a column of the same name is rewritten where it stands.
    """

    added: pl.DataFrame
    take: np.ndarray | None
    replace: bool
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One file format as a row of functions of one shape; `weave` gives what it has to say, a line each."""

    name: str
    suffixes: tuple[str, ...]
    columns: Callable[[Input], list[str]]
    scan: Callable[[Input, Sequence[Field]], pl.DataFrame]
    weave: Callable[[Input, BinaryIO, Weaving], Sequence[str]]
    write: Callable[[pl.DataFrame, BinaryIO, Mapping[str, str]], None]
    read: Callable[[Input], pl.DataFrame]
    in_place: Callable[[Input, Weaving], Sequence[str]] | None = None
    binary: bool = False
    # Where `columns` goes by the look of some rows: scan, and tell which of the watched names any row holds.
    late: Callable[[Input, Sequence[Field], Collection[str]], tuple[pl.DataFrame, frozenset[str]]] | None = None
    # What a packed file holds.
    plain: Format | None = None
    # Where rollouts lie inside of JSON documents.
    path: str | None = None
    # Where a row is not a line or a record of the file: how messages call it, and which names its own object has.
    place: Callable[[Input, int], str] | None = None
    own: Callable[[Input], list[str]] | None = None
    # Where rows stand together in one record: the new columns as that record has them, and one row each instead.
    packed: Callable[[Input, Weaving], Weaving] | None = None
    long: Callable[[Input], pl.DataFrame] | None = None
    # The first place where a file is more than another one with new members put in.
    difference: Callable[[Input, Input, Collection[str]], str | None] | None = None
