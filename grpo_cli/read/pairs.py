"""Match the rows of two inputs that are the same rollout: by group key and rollout id, else by the response text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_
from typing import Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import PIECE
from grpo_cli.engine.moments import Codes, Index
from grpo_cli.errors import DataError
from grpo_cli.read.derived_columns import FILE
from grpo_cli.read.group_keys import ascending, encode, packed
from grpo_cli.read.known_names import PAIR_IDS, SOURCE_IDS
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import SHOWN, Binding, Table
from grpo_cli.schemas.sample import values_of
from grpo_cli.values.cells import canonical, json_text
from grpo_cli.values.key_text import cut, plain

EXAMPLES: Final = 3
NOWHERE: Final = np.iinfo(np.uint32).max  # instead of a row

Positions = Index | Codes  # numbers of rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The rows of both inputs that are the same rollouts, in the order of the first.

    `aligned` says that these are all rows, in the same order.
    """

    now: Positions
    before: Positions
    aligned: bool
    by: tuple[str, ...]  # the columns that matched, beside the key


def ids_of(
    tables: Sequence[Table], others: Sequence[Table], binding: Binding
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rollout id column of each input: by flag, by schema, else by name; or none."""
    for mine, theirs in SOURCE_IDS:
        if all(_filled(table, mine) for table in tables) and all(_filled(table, theirs) for table in others):
            return (mine,), (theirs,)
    ids = _same_ids([*tables, *others], binding)
    return ids, ids


def _filled(table: Table, name: str) -> bool:
    """Whether the first records of a file have a value at this path."""
    return any(value is not None for record in table.sample().records for value in values_of(record, name))


def _same_ids(every: Sequence[Table], binding: Binding) -> tuple[str, ...]:
    """The rollout id column that all tables have."""
    if "rollout" in binding.roles:
        return (binding.roles["rollout"],)
    schemas = [table.schema for table in every]
    schema = schemas[0] if all(one == schemas[0] for one in schemas) else None
    if schema is not None and schema.rows:  # rows are inside records, and so are their ids
        return schema.ids
    known = (*schema.ids, *(name for name in schema.rollout if "@" not in name)) if schema is not None else ()
    names = [name for name in (*known, *PAIR_IDS) if name not in {*binding.group, *binding.rewards}]
    if schema is not None:
        names = [name for name in names if name not in {*schema.group, *schema.reward}]
    heads = [{*table.columns()} for table in every]
    return next(((name,) for name in names if all(name in head for head in heads)), ())


def pair(
    now: Narrow,
    before: Narrow,
    of_both: tuple[Sequence[str], Sequence[str]],
    text: str,
    *,
    sure: bool,
) -> Pairs:
    """Match the rows by these ids, else by the text; an error if they do not match one to one.

    `sure` says that the ids were named: otherwise a column whose values repeat is not taken for the id. Rows with equal
    texts may be exchanged if the rewards of one side are equal.
    """
    sides, ids = (now, before), of_both[0]
    keys = _row_keys(now, before)
    by_id = [
        (key, *(_canonical(side.carried[name], len(key)) for name in names))
        for key, side, names in zip(keys, sides, of_both, strict=True)
    ]
    parts_of_one = "rollout" in now.table.columns
    if ids and not any(column.null_count() for columns in by_id for column in columns):
        found = _paired_ids(by_id)
        if found is not None and (len(found[0]) or sure or not text):
            return _pairs(found, now, before, tuple(ids))
        if found is None and ((sure and not parts_of_one) or not text):
            codes = _codes(by_id)
            size = max(int(side.max(initial=0)) for side in codes) + 1
            most = np.maximum(*(np.bincount(side, minlength=size) for side in codes))
            raise _several(codes, np.flatnonzero(most > 1), sides, ids)
    if not text:
        cure = (
            "name the id of the rollout with --rollout, or its text with --text-column; if the rows stand in the same order, "
            "grpo-adv add makes the other reward a column for --old-rewards-column"
        )
        raise DataError("no column tells which rollouts of both inputs are the same", cure)
    columns = [
        (*(columns if parts_of_one and ids else [key]), _hashes(side, text))
        for key, columns, side in zip(keys, by_id, sides, strict=True)
    ]
    rows = _paired_texts(_codes(columns), sides, text)
    return _pairs(rows, now, before, (*(ids if parts_of_one else ()), text))


def _pairs(rows: tuple[Positions, Positions], now: Narrow, before: Narrow, by: tuple[str, ...]) -> Pairs:
    whole = len(rows[0]) == len(now.table) == len(before.table)
    return Pairs(now=rows[0], before=rows[1], aligned=whole and (rows[0] is rows[1] or np.array_equal(*rows)), by=by)


def _row_keys(now: Narrow, before: Narrow) -> tuple[pl.Series, pl.Series]:
    """The key of every row as a number, the same in both inputs."""
    # Files of the two inputs have different names. Only a schema whose keys are numbered in each file needs them.
    mine, theirs = (side.key if FILE in side.rule.key else side.key.drop(FILE, strict=False) for side in (now, before))
    if mine.columns != theirs.columns:
        both = " and ".join(", ".join(side.key_words) or "blocks" for side in (now, before))
        raise DataError(f"the two inputs have different group keys ({both})", "name one that both have with --group")
    if not mine.width:
        return pl.zeros(len(now.table), dtype=pl.UInt32, eager=True), pl.zeros(
            len(before.table), dtype=pl.UInt32, eager=True
        )
    # Groups in the same order. A key that occurs again (in another file or block) does not identify a group.
    if mine.equals(theirs) and all(side.rule.within != "file" and side.rule.size is None for side in (now, before)):
        return now.table["group"], before.table["group"]
    keys = [mine, theirs]
    if mine.dtypes != theirs.dtypes or not all(map(_is_number, mine)):
        keys = [frame.select("key") for frame in key_texts(now, before, mine.columns)]
    one, other = (codes.astype(np.uint32) for codes in _codes([tuple(frame.get_columns()) for frame in keys]))
    if not np.isin(one, other).any():
        wrong = f"no group is in both inputs ({', '.join(now.key_words)} is {now.label(0)} and {before.label(0)})"
        raise DataError(wrong, "--old-rewards takes the same rollouts with another reward; name their key with --group")
    return pl.Series(one[now.table["group"]]), pl.Series(other[before.table["group"]])


def key_texts(now: Narrow, before: Narrow, names: Sequence[str]) -> list[pl.DataFrame]:
    """The keys of the groups of both inputs: as compared (`key`) and as shown (`words`).

    CSV has no types, so there the digits of a whole number are that number.
    """
    keys = [[side.key[name].alias("") for name in names] for side in (now, before)]
    untyped = [all(not table.format.has_types for table in side.tables) for side in (now, before)]
    frames = []
    for mine, theirs, other_untyped in zip(keys, keys[::-1], untyped[::-1], strict=True):
        compared = [
            canonical(
                key.cast(pl.String) if other_untyped and key.dtype.is_integer() and other.dtype == pl.String else key
            )
            for key, other in zip(mine, theirs, strict=True)
        ]
        words = [key if key.dtype == pl.String else canonical(key).str.strip_chars('"') for key in mine]
        columns = [
            pl.concat_str([part.fill_null("null") for part in parts], separator=separator).alias(name)
            for name, parts, separator in (("key", compared, ","), ("words", words, ", "))
        ]
        frames.append(pl.select(columns))
    return frames


def _canonical(ids: pl.Series, rows: int) -> pl.Series:
    """Ids as compared: integers as such, anything else as text."""
    return ids.cast(pl.Int64) if _is_number(ids) and rows else canonical(ids)


def _is_number(ids: pl.Series) -> bool:
    """Whether they are integers that fit into 64 bits with a sign."""
    return ids.dtype.is_integer() and ids.dtype not in {pl.UInt64, pl.Int128, pl.UInt128}


OfBoth = Sequence[tuple[pl.Series, ...]]


def _codes(columns: OfBoth) -> tuple[Index, Index]:
    """A number for every row of both inputs, equal for rows with equal columns."""
    mine, theirs = columns
    joined = [pl.concat(_comparable(one, other)) for one, other in zip(mine, theirs, strict=True)]
    rows = len(joined[0])
    words, possible = packed(joined)
    # A word is its own code if few words are possible.
    codes = encode(joined, rows).codes.to_numpy() if words is None or possible > rows else words.view(np.int64)
    return codes[: len(mine[0])], codes[len(mine[0]) :]


def _comparable(one: pl.Series, other: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Two columns as one type; integers and texts (from CSV) are compared by their digits."""
    if one.dtype == other.dtype:
        return one, other
    return one.cast(pl.String).str.strip_chars('"'), other.cast(pl.String).str.strip_chars('"')


def _paired_ids(columns: OfBoth) -> tuple[Positions, Positions] | None:
    """The rows of both inputs with equal columns; None if several rows of one input are equal."""
    mine, theirs = columns
    if len(mine[0]) == len(theirs[0]) and all(
        one.dtype == other.dtype and one.equals(other) for one, other in zip(mine, theirs, strict=True)
    ):
        every = np.arange(len(mine[0]), dtype=np.uint32)
        return (every, every) if ascending(mine) or encode(mine, len(every)).size == len(every) else None
    if mine[-1][:PIECE].is_unique().all():  # an id that is unique by itself needs no key beside it
        codes = _codes([side[-1:] for side in columns])
        if not _repeat(codes):
            rows, found = _matched(codes)
            keys = map(_comparable, mine[:-1], theirs[:-1])
            kept = reduce(and_, (one[rows].eq_missing(other[found]) for one, other in keys)).to_numpy()
            return (rows, found) if kept.all() else (rows[kept], found[kept])
    codes = _codes(columns)
    return None if _repeat(codes) else _matched(codes)


def _repeat(codes: tuple[Index, Index]) -> bool:
    """Whether several rows of one input have the same code."""
    return any(np.bincount(side).max(initial=0) > 1 for side in codes)


def _matched(codes: tuple[Index, Index]) -> tuple[Codes, Codes]:
    """The rows of both inputs with equal codes, in the order of the first; a common code must be unique on each side."""
    mine, theirs = codes
    places = np.full(max(int(side.max(initial=0)) for side in codes) + 1, NOWHERE, np.uint32)
    places[theirs] = np.arange(len(theirs), dtype=np.uint32)
    found = places[mine]
    rows = np.flatnonzero(found != NOWHERE).astype(np.uint32)
    return rows, found if len(rows) == len(found) else found[rows]


def _paired_texts(codes: tuple[Index, Index], sides: tuple[Narrow, Narrow], text: str) -> tuple[Positions, Positions]:
    """The rows of both inputs with equal texts; repeated texts are matched in order if their rewards are equal."""
    size = max(int(side.max(initial=0)) for side in codes) + 1
    mine, theirs = (np.bincount(side, minlength=size) for side in codes)
    twice = (np.maximum(mine, theirs) > 1) & (mine > 0) & (theirs > 0)
    if not twice.any():
        return _matched(codes)
    rewards = [[side.table[f"reward.{k}"] for k in range(len(side.reward_names))] for side in sides]
    constant = [_constant(side, columns, size) for side, columns in zip(codes, rewards, strict=True)]
    enough = np.where(mine > theirs, constant[0], np.where(theirs > mine, constant[1], constant[0] | constant[1]))
    if (twice & ~enough).any():
        raise _several(codes, np.flatnonzero(twice & ~enough), sides, (text,))
    orders = [pl.DataFrame({"code": side}).select(pl.int_range(pl.len()).over("code")).to_series() for side in codes]
    return _matched(_codes([(pl.Series(side), order) for side, order in zip(codes, orders, strict=True)]))


def _constant(codes: Index, rewards: Sequence[pl.Series], size: int) -> Index:
    """For each code, whether its rows have the same rewards."""
    values = encode(rewards, len(codes)).codes.to_numpy()
    first = np.full(size, -1, dtype=np.int64)
    first[codes[::-1]] = values[::-1]
    differs = np.zeros(size, dtype=bool)
    differs[codes[first[codes] != values]] = True
    return ~differs


def _several(codes: tuple[Index, Index], unclear: Index, sides: tuple[Narrow, Narrow], by: Sequence[str]) -> DataError:
    """The error for rows that do not match one to one, with three examples."""
    shown = []
    for code in unclear[:EXAMPLES].tolist():
        rows = [np.flatnonzero(side == code) for side in codes]
        places = [
            f"{len(here)} rows, {' and '.join(side.places(here[:2].tolist()))}" if len(here) > 1 else side.place(int(here[0]))
            for side, here in zip(sides, rows, strict=True) if len(here)
        ]  # fmt: skip
        side, here = next((side, here) for side, here in zip(sides, rows, strict=True) if len(here))
        label = cut(plain(side.label(int(side.table["group"][int(here[0])]))), SHOWN)
        shown.append(f"{label} ({'; '.join(places)})")
    what = f"{' and '.join(by)} is the same in several rows of a group, so the rollouts do not pair one to one"
    cure = "name the id of the rollout with --rollout, or remove rows that are there twice"
    return DataError(f"{what}: {', '.join(shown)}", cure)


def _hashes(side: Narrow, text: str) -> pl.Series:
    """A hash of the text of every row, equal across formats; a list of messages is hashed as JSON text."""
    files = side.by_file(np.arange(len(side.table)) if side.rows is None else side.rows)
    frames = chain.from_iterable(side.tables[at].rows(side.scans[at].index, here, [text]) for at, here in files)
    return pl.concat([canonical(_plain(frame[text])).hash() for frame in frames])


def _plain(values: pl.Series) -> pl.Series:
    """Values of mixed types from a file of lines as text: those that are not text as JSON."""
    if values.dtype != pl.Object:
        return values
    texts = [value if value is None or isinstance(value, str) else json_text(value) for value in values.to_list()]
    return pl.Series(texts, dtype=pl.String)
