"""`add --on`: the row of the other table that belongs to each row of a file, by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged, UsageError, near_names, short
from grpo_cli.formats.interface import Scanned
from grpo_cli.read.pairs import NOWHERE, Keyed, gathered, several
from grpo_cli.read.tables import Table, label
from grpo_cli.schemas.table import items
from grpo_cli.values.cells import Field, canonical
from grpo_cli.values.paths import absent, splits

Take = Literal["first", "last", "mean"]
GATES: Final = ("rows", "matched", "unmatched", "unmatched_share", "unused", "unused_share")  # what --fail-on may name
_EXACT: Final = 2**53  # larger integers are not all floats


def cuts(text: str) -> list[tuple[str, str]]:
    """The ways to read NAME or NAME=OTHER, where names may have = as well: first all of it as one name."""
    parts = text.split("=")
    return [("=".join(parts[:at]), "=".join(parts[at:])) for at in (len(parts), *range(1, len(parts)))]


def keys_of(texts: Sequence[str], table: Table, other: Table) -> dict[str, str]:
    """The key columns of a file, each with that of the other table: of `COL`, or of `HERE=THERE`.

    A name that the tables do not have is refused, unless later lines may have it.
    """
    found: dict[str, str] = {}
    for text in (name for item in texts for name in items(item) if name):
        ways = [(here, there or text) for here, there in cuts(text)]
        here, there = next((way for way in ways if has(table, way[0]) and has(other, way[1])), ways[:2][-1])
        for side, name in ((table, here), (other, there)):
            if not has(side, name) and (near_names(name, side.columns()) or not side.format.watches):
                raise absent(name, side.name, side.columns())
        if found.setdefault(here, there) != there:
            raise UsageError(f"--on matches {here!r} with {found[here]!r} and {there!r}", "name one of them")
    if texts and not any(found):
        raise UsageError("--on names no column", "give the columns of the key, or leave it out")
    return found


def has(table: Table, name: str) -> bool:
    """Whether a table has this column, or one that a path begins with."""
    return any(head in table.columns() for head, _ in ((name, ""), *splits(name)))


def joined(
    table: Table, other: Table, on: Mapping[str, str], frame: pl.DataFrame, take: Take | None
) -> tuple[pl.DataFrame, Scanned, dict[str, float]]:
    """The rows of `frame`, which are those of the other table, in the order of the file; the scan of the file, and what matched."""
    scanned = table.scan([Field(name, "key") for name in on])
    fields = [Field(name, "key") for name in dict.fromkeys(on.values())]
    theirs = other.scan(fields).frame
    InputChanged.unless_same(len(frame), len(theirs), other.name)
    untyped = (not table.format.has_types, not other.format.has_types)
    keyed = Keyed.of(scanned.frame.get_columns(), [theirs[name] for name in on.values()], untyped)
    repeated = (keyed.counts[0] > 0) & (keyed.counts[1] > 1)
    if repeated.any() and take is None:
        what = f"{' and '.join(on.values())} is the same in several rows of {other.name}"
        cure = "--take first|last|mean takes one value of each; more columns in --on tell them apart"
        unclear = np.flatnonzero(repeated)
        raise several(what, unclear, [(keyed.theirs, other.places)], lambda _, row: label(theirs, row, row), cure)
    used = np.append(keyed.counts[0] > 0, False)[keyed.theirs]
    if take == "mean":
        frame, keyed = _means(frame, keyed)
    places = keyed.places(last=take != "first")
    there = places != NOWHERE
    matched, rows = int(there.sum()), len(places)
    if rows and not matched:
        raise _none(table, other, on, scanned.frame, theirs)
    unused = len(used) - int(used.sum())
    facts = {
        "rows": rows, "matched": matched, "unmatched": rows - matched,
        "unmatched_share": (rows - matched) / rows if rows else 0.0,
        "unused": unused, "unused_share": unused / len(used) if len(used) else 0.0, "repeated": int(repeated.sum()),
    }  # fmt: skip
    return gathered(frame, places), scanned, facts


def _means(frame: pl.DataFrame, keyed: Keyed) -> tuple[pl.DataFrame, Keyed]:
    """The mean of the rows with each key, and the keys of these means."""
    for series in frame:
        if not series.dtype.is_numeric():
            raise DataError(f"{series.name} is {str(series.dtype).lower()}, which has no mean", "--take first|last")
        if series.dtype.is_integer() and int(series.abs().max() or 0) > _EXACT:  # type: ignore[arg-type]
            raise DataError(f"a mean would round the integers of {series.name}", "--take first|last")
    columns = [pl.Series("key", keyed.theirs), *(series.alias(str(at)) for at, series in enumerate(frame))]
    means = pl.DataFrame(columns).group_by("key", maintain_order=True).mean()
    values = [means[str(at)].alias(name) for at, name in enumerate(frame.columns)]
    return pl.DataFrame(values), Keyed(keyed.mine, means["key"].to_numpy(), keyed.size)


def _none(table: Table, other: Table, on: Mapping[str, str], mine: pl.DataFrame, theirs: pl.DataFrame) -> DataError:
    """The error if no key is in both, with the first of each."""
    first = [
        ", ".join(short((canonical(key[:1]).to_list() or [None])[0] or "null") for key in side)
        for side in (mine, theirs)
    ]
    by = " and ".join(here if here == there else f"{here}={there}" for here, there in on.items())
    what = f"no row of {table.name} is in {other.name} (by {by}: the first are {first[0]} and {first[1]})"
    return DataError(what, "--on takes both names if they differ (HERE=THERE); a number and a text are different keys")
