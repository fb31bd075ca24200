"""Match the rows of two inputs by key: those of a file and of columns for it (`add --on`), and rollouts (`inspect --old-rewards`).

Rollouts match by their group and their id, else by the text of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import polars as pl

from grpo_cli.engine.moments import Codes, Index
from grpo_cli.errors import Cures, DataError, Way
from grpo_cli.read.group_keys import encode, repeats
from grpo_cli.read.known_names import PAIR_IDS, SOURCE_IDS
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import FILE, SHOWN, Binding, Table
from grpo_cli.read.texts import as_text
from grpo_cli.schemas.sample import values_of
from grpo_cli.schemas.table import Schema
from grpo_cli.values.cells import JSON_TEXT, bare_texts, canonical, where
from grpo_cli.values.key_text import cut, plain

EXAMPLES = 3  # keys in a message
NOWHERE = np.iinfo(np.uint32).max  # instead of a row
WHOLE = r"-?(?:0|[1-9]\d*)"  # 007 is a text
_BY_ID = Way("--rollout", lead="name the id of the rollout with")
_IN_ORDER = "if the rows of both inputs stand in the same order, grpo-adv add makes the old reward a column for --old-rewards-column"
NUMBER = rf"^(?:{WHOLE}(?:\.\d+)?(?:[eE][-+]?\d+)?|NaN|nan|-?inf)$"

Columns = Sequence[pl.Series]


# --- keys of rows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keyed:
    """A number for each row of both inputs, the same for equal keys; a row that lacks a part of its key has `size`, and equals none."""

    mine: Index
    theirs: Index
    size: int

    @classmethod
    def of(cls, mine: Columns, theirs: Columns, typed: tuple[bool, bool]) -> Keyed:
        """Number rows by these columns; `typed` says which inputs have types."""
        both = [comparable(one, other, typed) for one, other in zip(mine, theirs, strict=True)]
        rows = len(mine[0])
        columns = [pl.concat([one, other]) for one, other in both]
        coded = encode(columns)
        codes = coded.codes.to_numpy()
        size = coded.size
        missing = reduce(or_, (column.is_null() for column in columns))
        if missing.any():
            codes = np.where(missing, size, codes)
        return cls(codes[:rows], codes[rows:], size)

    @cached_property
    def counts(self) -> tuple[Index, Index]:
        """How many rows of each input have each key."""
        counts = [np.bincount(side, minlength=self.size + 1) for side in (self.mine, self.theirs)]
        mine, theirs = (of_side[: self.size] for of_side in counts)
        return mine, theirs

    def places(self, *, last: bool = True) -> Codes:
        """For each row of mine, the last or the first row of theirs with its key, or NOWHERE."""
        places = np.full(self.size + 1, NOWHERE, np.uint32)
        order = slice(None, None, 1 if last else -1)
        rows = np.arange(len(self.theirs), dtype=np.uint32)
        places[self.theirs[order]] = rows[order]
        places[self.size] = NOWHERE
        return places[self.mine]

    def matched(self) -> tuple[Codes, Codes]:
        """The rows of both inputs with equal keys, in the order of the first."""
        found = self.places()
        rows = np.flatnonzero(found != NOWHERE).astype(np.uint32)
        return rows, found[rows]


def comparable(mine: pl.Series, theirs: pl.Series, typed: tuple[bool, bool]) -> tuple[pl.Series, pl.Series]:
    """Two columns as one type, with equal values for equal keys and null for missing ones.

    CSV has no types: a cell counts as a value of the other column if it is written as one, and an empty cell is missing.
    """
    sides = [mine.alias(""), theirs.alias("")]
    cells = [not is_typed and side.dtype == pl.String for side, is_typed in zip(sides, typed, strict=True)]
    sides = [where(side != "", side) if is_so else side for side, is_so in zip(sides, cells, strict=True)]
    if sum(cells) == 1:
        at = cells.index(True)
        sides[1 - at], sides[at] = _spelled(sides[1 - at], sides[at])
    one, other = sides
    if one.dtype == other.dtype and (one.dtype.is_integer() or one.dtype == pl.String):
        return one, other
    one, other = (where(text != "NaN", text) for text in map(canonical, sides))  # pandas writes NaN for a missing id
    return one, other


def _spelled(typed: pl.Series, cells: pl.Series) -> tuple[pl.Series, pl.Series]:
    """A column, and the cells of one that has no types, spelled alike where a cell is a value of the column."""
    if typed.dtype != JSON_TEXT and isinstance(typed.dtype, (pl.String, pl.Categorical, pl.Enum)):
        return typed, cells
    texts = canonical(typed)
    bare = texts.str.replace("^[a-z]+:", "").str.strip_chars('"')  # without date: and the like
    if typed.dtype == JSON_TEXT and bare.n_unique() < texts.n_unique():
        both = bare.filter(bare.is_duplicated() & (bare != texts))[0]
        what = f"{both} is of several types in one input, and the other has none"
        raise DataError(what, "convert CSV to Parquet or to lines of JSON, which have types")
    cells = cells.replace({"True": "true", "False": "false"}).str.replace(rf"^({WHOLE})\.0+$", "${1}")
    is_fraction = cells.str.contains(NUMBER) & ~cells.str.contains(f"^{WHOLE}$")
    fractions = where(is_fraction, cells).cast(pl.Float64)
    return bare, canonical(fractions).fill_null(cells)


def gathered(frame: pl.DataFrame, places: Codes) -> pl.DataFrame:
    """The rows of a frame at these places, with nulls for NOWHERE."""
    rows = where(pl.Series(places != NOWHERE), pl.Series(places))
    return frame.rechunk().select(pl.all().gather(rows))


def several(
    what: str,
    unclear: Index,
    sides: Sequence[tuple[Index, Callable[[Sequence[int]], list[str]]]],
    label: Callable[[int, int], str],
    cures: Cures,
) -> DataError:
    """The error for keys that several rows have, with three examples: `sides` number the rows of an input, and name them."""
    shown = []
    for code in unclear[:EXAMPLES].tolist():
        key = ""
        places = []
        for at, (codes, named) in enumerate(sides):
            rows = np.flatnonzero(codes == code).tolist()
            if rows:
                first = " and ".join(named(rows[:2]))
                places.append(f"{len(rows)} rows, {first}" if len(rows) > 1 else first)
                key = key or cut(plain(label(at, rows[0])), SHOWN)
        shown.append(f"{key} ({'; '.join(places)})")
    return DataError(f"{what}: {', '.join(shown)}", cures)


# --- rollouts ------------------------------------------------------------------------------------------------


class Pairs(NamedTuple):
    """The rows of both inputs that are the same rollouts, in the order of the first."""

    now: Codes
    before: Codes
    by: Sequence[str]  # the columns that matched, beside the key


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


def known_ids(schema: Schema | None) -> tuple[str, ...]:
    """The columns that may be the id of a rollout: those of the schema, else by name."""
    declared = () if schema is None else (*schema.ids, *(name for name in schema.rollout if "@" not in name))
    return (*declared, *PAIR_IDS)


def _same_ids(every: Sequence[Table], binding: Binding) -> tuple[str, ...]:
    """The rollout id column that all tables have."""
    if "rollout" in binding.roles:
        return (binding.roles["rollout"],)
    schemas = [table.schema for table in every]
    schema = schemas[0] if all(one == schemas[0] for one in schemas) else None
    if schema is not None and schema.rows:  # rows are inside records, and so are their ids
        return schema.ids
    taken = {*binding.group, *binding.rewards}
    if schema is not None:
        taken.update(schema.group, schema.reward)
    in_all = set.intersection(*({*table.columns()} for table in every))
    return next(((name,) for name in known_ids(schema) if name in in_all - taken), ())


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
    sides = (now, before)
    ids = of_both[0]
    typed = (now.typed, before.typed)
    keys = _row_keys(now, before)
    mine, theirs = (
        [key, *(side.carried[name] for name in names)] for key, side, names in zip(keys, sides, of_both, strict=True)
    )
    parts_of_one = "rollout" in now.table.columns
    if ids and not any(column.null_count() for column in (*mine, *theirs)):
        if _in_order(mine, theirs):
            every = np.arange(len(now.table), dtype=np.uint32)
            return Pairs(every, every, ids)
        keyed = Keyed.of(mine, theirs, typed)
        most = np.maximum(*keyed.counts)
        unclear = np.flatnonzero(most > 1)
        if not len(unclear):
            rows, others = keyed.matched()
            if len(rows) or sure or not text:
                return Pairs(rows, others, ids)
        elif (sure and not parts_of_one) or not text:
            same = f"{' and '.join(ids)} is the same in several rows of a group, so the rollouts do not pair one to one"
            raise _several(keyed, unclear, sides, same, [_BY_ID, "remove rows that are there twice"])
    if not text:
        cures = _BY_ID, Way("--text-column", lead="name its text with"), _IN_ORDER
        raise DataError("no column tells which rollouts of both inputs are the same", cures)
    one, other = [
        [*(of_ids if parts_of_one and ids else [key]), _hashes(side, text)]
        for key, of_ids, side in zip(keys, (mine, theirs), sides, strict=True)
    ]
    rows, others = _paired_texts(Keyed.of(one, other, typed), sides, text)
    return Pairs(rows, others, (*(ids if parts_of_one else ()), text))


def _in_order(mine: Columns, theirs: Columns) -> bool:
    """Whether each key occurs once and in the same row, as in a file that was scored again: seen in a third of the time."""
    is_plain = all(column.dtype.is_integer() or column.dtype == pl.String for column in mine)
    same = is_plain and all(one.equals(other, check_dtypes=True) for one, other in zip(mine, theirs, strict=True))
    return same and len(mine) == 2 and not repeats(*mine)  # noqa: PLR2004 - the group and an id


def _row_keys(now: Narrow, before: Narrow) -> tuple[pl.Series, ...]:
    """The key of every row as a number, the same in both inputs."""
    # Files of the two inputs have different names. Only a schema whose keys are numbered in each file needs them.
    mine, theirs = (side.key if FILE in side.rule.key else side.key.drop(FILE, strict=False) for side in (now, before))
    if mine.columns != theirs.columns:
        both = " and ".join(", ".join(side.key_words) or "blocks" for side in (now, before))
        raise DataError(
            f"the two inputs have different group keys ({both})", Way("--group", lead="name one that both have with")
        )
    if not mine.width:
        return tuple(pl.zeros(len(side.table), dtype=pl.UInt32, eager=True) for side in (now, before))
    # Groups in the same order. A key that occurs again, in another file, block or draw, does not identify a group.
    in_order = mine.equals(theirs, null_equal=False)
    if now.groups is before.groups or (in_order and mine.n_unique() == len(mine)):
        return now.table["group"], before.table["group"]
    # Groups of other files or blocks may share a number.
    keyed = Keyed.of(mine.get_columns(), theirs.get_columns(), (now.typed, before.typed))
    if not np.minimum(*keyed.counts).any():
        keys = f"{', '.join(now.key_words)} is {now.label(0)} and {before.label(0)}"
        cures = (
            "--old-rewards takes the same rollouts with another reward",
            Way("--group", lead="name their key with"),
        )
        raise DataError(f"no group is in both inputs ({keys})", cures)
    of_rows = keyed.mine[now.table["group"]], keyed.theirs[before.table["group"]]
    return tuple(pl.Series(codes.astype(np.uint32)) for codes in of_rows)


def key_texts(now: Narrow, before: Narrow, names: Sequence[str]) -> list[pl.DataFrame]:
    """The keys of the groups of both inputs: as compared (`key`) and as shown (`words`)."""
    both = [comparable(now.key[name], before.key[name], (now.typed, before.typed)) for name in names]
    frames = []
    for side, mine in zip((now, before), zip(*both, strict=True), strict=True):
        own = [side.key[name].alias("") for name in names]
        compared = [canonical(part).fill_null("null") for part in mine]
        words = [bare_texts(part).fill_null("null") for part in own]
        key = pl.concat_str(compared, separator=",").alias("key")
        columns = [key, pl.concat_str(words, separator=", ").alias("words")]
        frames.append(pl.select(columns))
    return frames


def _paired_texts(keyed: Keyed, sides: tuple[Narrow, Narrow], text: str) -> tuple[Codes, Codes]:
    """The rows of both inputs with equal texts; repeated texts are matched in order if their rewards are equal."""
    mine, theirs = keyed.counts
    in_both = (mine > 0) & (theirs > 0)
    twice = (np.maximum(mine, theirs) > 1) & in_both
    if not twice.any():
        return keyed.matched()
    codes = (keyed.mine, keyed.theirs)
    rewards = [[side.table[f"reward.{k}"] for k in range(len(side.reward_names))] for side in sides]
    of_mine, of_theirs = (_kinds(side, columns, keyed.size) <= 1 for side, columns in zip(codes, rewards, strict=True))
    equal_enough = np.where(mine > theirs, of_mine, np.where(theirs > mine, of_theirs, of_mine | of_theirs))
    unclear = np.flatnonzero(twice & ~equal_enough)
    if len(unclear):
        same = f"{text} is the same in several rollouts of a group whose rewards differ, so the text does not tell them apart"
        cures = _BY_ID, _IN_ORDER
        raise _several(keyed, unclear, sides, same, cures)
    place = pl.int_range(pl.len()).over("code")
    one, other = (pl.DataFrame({"code": side}).with_columns(place=place).get_columns() for side in codes)
    return Keyed.of(one, other, (False, False)).matched()


def _kinds(codes: Index, rewards: Sequence[pl.Series], size: int) -> Index:
    """For each code, how many different rewards its rows have."""
    parts = encode([pl.Series(codes), *rewards])
    return np.bincount(codes[parts.first.to_numpy()], minlength=size)[:size]


def _several(keyed: Keyed, unclear: Index, sides: tuple[Narrow, Narrow], what: str, cures: Cures) -> DataError:
    """The error for rollouts that do not match one to one."""

    def label(at: int, row: int) -> str:
        return sides[at].label(sides[at].table["group"][row])

    codes = [(keyed.mine, sides[0].places), (keyed.theirs, sides[1].places)]
    return several(what, unclear, codes, label, cures)


def _hashes(side: Narrow, text: str) -> pl.Series:
    """A hash of the text of every row, equal across formats; a list of messages is hashed as JSON text."""
    frames = side.texts_at(np.arange(len(side.table)), [text], as_json=False)
    hashes = []
    for values in (frame[text] for frame in frames):
        is_mixed = values.dtype == pl.Object  # of a file of lines
        texts = pl.Series([*map(as_text, values.to_list())], dtype=pl.String) if is_mixed else values
        hashes.append(canonical(texts).hash())
    return pl.concat(hashes)
