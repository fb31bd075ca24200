"""Which of the rows that were read belong together: the rules of groups and batches, and their refusals.

`grouping` numbers keys; here is what a plan and a binding ask of them, in words that name rows and flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import over
from grpo_cli.engine.plan_parts import Alone
from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats.cells import canonical
from grpo_cli.read.group_keys import Coded, blocks, encode, refuse_merge, refuse_missing, sizes, spanning, within
from grpo_cli.read.tables import label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.tables import Binding, Table

OWN_STEP: Final = "step"  # the one step-like name that may also count the steps of a rollout


@dataclass(frozen=True)
class Looked:
    """What the scan of all files brought, and the names it goes by."""

    tables: Sequence[Table]
    lengths: tuple[int, ...]
    columns: Mapping[str, pl.Series]
    group: tuple[str, ...]
    steps: Sequence[str]
    roles: Mapping[str, str]
    words: str = ""  # the key as its schema calls it

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return sum(self.lengths)

    @cached_property
    def file(self) -> pl.Series:
        """The number of the file of every row."""
        return pl.Series("file", np.repeat(np.arange(len(self.tables), dtype=np.uint32), self.lengths))

    def key(self) -> pl.DataFrame:
        """The key columns, row by row."""
        return pl.DataFrame([self.columns[name] for name in self.group])

    def labels(self, coded: Coded, codes: Sequence[int]) -> list[str]:
        """The first few of these groups in words."""
        return [self.label(int(coded.first[code])) for code in codes[:3]]

    def label(self, row: int) -> str:
        """The key of a row in words."""
        return label(self.key(), row, row)

    def place(self, row: int) -> str:
        """File and row as a person counts them."""
        ends = np.cumsum(self.lengths)
        file = int(np.searchsorted(ends, row, side="right"))
        return self.tables[file].place(row - (int(ends[file - 1]) if file else 0))


def named_columns(binding: Binding) -> list[str]:
    """Columns that --group-within and --batch-by name."""
    given = [binding.group_within, *_batch_names(binding)]
    return [name for name in given if name not in {None, "file", "input"}]


def _batch_names(binding: Binding) -> list[str]:
    return [] if binding.batch_by is None else [name.strip() for name in binding.batch_by.split(",")]


def refuse_rivals(looked: Looked, rivals: Sequence[str]) -> None:
    """A text is the key only if no id beside it repeats: equal texts need not be one prompt."""
    for name in rivals:
        if encode([looked.columns[name]], looked.rows).size < looked.rows:
            told = ", ".join((*looked.group, name))
            raise DataError(f"several columns could be the group key: {told}", "choose with --group NAME")


def grouped(looked: Looked, binding: Binding) -> tuple[Coded, np.ndarray[tuple[int], np.dtype[np.bool_]] | None]:
    """The group of every row; which rows are a remainder that goes, if any are."""
    for name in (*looked.group, *named_columns(binding)):
        refuse_missing(name, looked.columns[name], looked.place)
    coded = encode([looked.columns[name] for name in looked.group], looked.rows, keep=True)
    if binding.group_within == "file" or (not looked.group and len(looked.tables) > 1):
        coded = within(coded, [looked.file])
    elif binding.group_within not in {None, "input"}:
        coded = within(coded, [looked.columns[str(binding.group_within)]])
    if binding.group_within is None and looked.group:
        _refuse_silent_merge(looked, coded)
    if binding.group_size is None:
        return coded, None
    if binding.group_size < 1:
        raise UsageError(f"a block cannot have {binding.group_size} rows", "--group-size takes 1 or more")
    cut = blocks(coded, binding.group_size)
    return cut, _partial(looked, cut, binding)


def _refuse_silent_merge(looked: Looked, coded: Coded) -> None:
    key = ",".join(looked.group)
    for name in _comparable_steps(looked):
        if name not in looked.group and (codes := spanning(coded, looked.columns[name])):
            cures = f"--group {key},{name} if ids restart, --group-within input if {name} does not separate groups"
            raise refuse_merge(f"values of {name!r}", codes, looked.labels(coded, codes), cures)
    if len(looked.tables) > 1 and (codes := spanning(coded, looked.file)):
        cures = (
            "--group-within file if ids restart in each, --group-within input if they are shards of one sampling round"
        )
        raise refuse_merge("files", codes, looked.labels(coded, codes), cures)


def _comparable_steps(looked: Looked) -> list[str]:
    """Step-like columns that tell training steps apart; a `step` that varies inside rollouts counts their own."""
    rollout = looked.roles.get("rollout")
    varying = [name for name in looked.steps if looked.columns[name].n_unique() > 1]
    if rollout is None or OWN_STEP not in varying:
        return varying
    coded = encode([looked.columns[name] for name in (*looked.group, rollout)], looked.rows)
    own = spanning(coded, looked.columns[OWN_STEP])
    return [name for name in varying if name != OWN_STEP or not own]


def _partial(looked: Looked, coded: Coded, binding: Binding) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    short = sizes(coded) < (binding.group_size or 0)
    if not short.any() or binding.partial == "keep":
        return None
    if binding.partial == "drop":
        return np.asarray(short[coded.codes.to_numpy()])
    code = int(np.argmax(short))
    row = int(coded.first[code])
    raise DataError(
        f"{looked.place(row)}: the last block is of {sizes(coded)[code]}, not of {binding.group_size} rows",
        "--partial keep or --partial drop says what to do with it",
    )


def batched(looked: Looked, binding: Binding, plan: Plan, coded: Coded) -> tuple[Coded, str]:
    """The batch of every row, and what cuts the batches."""
    if binding.batch_by is None and plan.uses_batch:
        _refuse_unclear_batch(looked)
    by = binding.batch_by or "input"
    names = [name for name in _batch_names(binding) if name != "input"]
    keys = [looked.file if name == "file" else looked.columns[name] for name in names]
    batch = encode(keys, looked.rows)
    if not plan.estimator.spans_batches and (codes := spanning(coded, batch.codes)):
        cure = f"a group belongs to one batch: add {by} to --group, or use --batch-by input"
        raise refuse_merge(f"batches of {by!r}", codes, looked.labels(coded, codes), cure)
    return batch, by


def _refuse_unclear_batch(looked: Looked) -> None:
    cure = "--batch-by {0} normalises each on its own, --batch-by input takes all rows as one batch"
    for name in _comparable_steps(looked):
        count = looked.columns[name].n_unique()
        raise DataError(f"the plan needs a batch, and the rows have {count} values of {name!r}", cure.format(name))
    if len(looked.tables) > 1:
        raise DataError(f"the plan needs a batch, and there are {len(looked.tables)} files", cure.format("file"))


def check_sizes(
    looked: Looked,
    binding: Binding,
    plan: Plan,
    coded: Coded,
    partial: np.ndarray[tuple[int], np.dtype[np.bool_]] | None,
) -> None:
    """Refuse groups of another size than expected, and a key that has one row everywhere."""
    if binding.expect_size is not None:
        _refuse_other_sizes(looked, binding, coded, partial)
    lone = coded.size == _units(looked, plan, coded) > 1 and plan.estimator.min_group > 1
    if lone and plan.baseline_level == "group" and not binding.singletons_meant and plan.alone == Alone():
        key = looked.words or ", ".join(looked.group) or "the block size"
        raise DataError(
            f"every group has a single {'row' if plan.unit.take == 'each' else 'rollout'}: "
            f"{key} may be an id of the rollout, not of the prompt",
            "name the prompt's column with --group, or say --singleton zero if there is one sample a prompt",
        )


def _refuse_other_sizes(
    looked: Looked, binding: Binding, coded: Coded, partial: np.ndarray[tuple[int], np.dtype[np.bool_]] | None
) -> None:
    counts = sizes(coded)
    dropped = (counts < (binding.group_size or 0)) if partial is not None else np.zeros(len(counts), dtype=bool)
    wrong = np.flatnonzero((counts != binding.expect_size) & ~dropped)
    if len(wrong):
        first = int(coded.first[int(wrong[0])])
        raise DataError(
            f"{looked.place(first)}: {looked.label(first)} has {counts[wrong[0]]} rows, not {binding.expect_size} "
            f"({len(wrong)} such groups of {coded.size})",
            "the sampler may have stopped early; leave out --expect-size to go on",
        )


def _units(looked: Looked, plan: Plan, coded: Coded) -> int:
    """How many rewards there are to compare: rows, or rollouts where they count once."""
    rollout = looked.roles.get("rollout")
    if plan.unit.take == "each" or rollout is None:
        return looked.rows
    return encode([coded.codes, looked.columns[rollout]], looked.rows).size


def duplicates(coded: Coded, sample: pl.Series) -> tuple[str, ...]:
    """A warning when a group holds the same sample twice."""
    if _ascending(coded, sample):
        return ()
    known = sample.is_not_null()
    codes, samples = coded.codes.filter(known), sample.filter(known)
    if not samples.dtype.is_integer():
        samples = canonical(samples).cast(pl.Categorical).to_physical()
    # One number per pair: numbering pairs of columns took seven times as long.
    pairs = codes.cast(pl.UInt64) * 4_294_967_296 + (samples.cast(pl.Int64) % 4_294_967_296).cast(pl.UInt64)
    twice = len(pairs) - pairs.n_unique()
    if not twice:
        return ()
    return (f"{twice:,} rows repeat a {sample.name} inside their group: rollouts may have been written twice",)


def _ascending(coded: Coded, sample: pl.Series) -> bool:
    """Tell that samples count up inside of groups that lie one after the other, so that no two are the same."""
    if not sample.dtype.is_integer() or sample.null_count() or not coded.together:
        return False
    codes = coded.codes.to_numpy()

    def climbs(start: int, end: int) -> bool:
        of, numbers = codes[start : end + 1], sample[start : end + 1].to_numpy()
        return bool(((of[1:] != of[:-1]) | (numbers[1:] > numbers[:-1])).all())

    return all(over(climbs, len(codes)))
