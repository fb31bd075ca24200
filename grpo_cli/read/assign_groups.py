"""Which of the rows that were read belong together: the rules of groups and batches, and their refusals.

`group_keys` numbers keys; here is what a plan and a binding require of them, in words that name rows and flags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import over
from grpo_cli.engine.plan_parts import Alone
from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats.cells import canonical
from grpo_cli.read.choose_columns import inside_of_record, named_columns
from grpo_cli.read.group_keys import (
    SHOWN,
    Coded,
    CountedError,
    MergeError,
    blocks,
    encode,
    refuse_missing,
    sizes,
    spanning,
    within,
)
from grpo_cli.read.known_names import CONVERSATIONS, OWN_STEP, PROMPT_TEXTS
from grpo_cli.read.prompt_check import mixed_prompts, prompt_of
from grpo_cli.read.tables import label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.prompt_check import Mixed
    from grpo_cli.read.tables import Binding, Table

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Scan:
    """What was read of all tables, and which columns are the key, steps and roles."""

    tables: Sequence[Table]
    lengths: tuple[int, ...]
    columns: Mapping[str, pl.Series]
    group: tuple[str, ...]
    steps: Sequence[str]
    roles: Mapping[str, str]
    key_words: str = ""  # the key as its schema calls it
    prompts: Sequence[str] = ()  # texts that show whether a group is one prompt
    others: Sequence[str] = ()  # texts that may be prompts, where there are none by name
    numbers: Ints | None = None  # of the rows among all rows, where these are a part of them
    unused: Sequence[str] = ()  # texts of --map that are in no row

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

    def mixed_prompts(self, coded: Coded) -> Mixed | None:
        """The groups that hold several prompts, as some rows show them; None where they do not."""
        return mixed_prompts(self.prompts, self.others, self.tables, self.lengths, coded)

    def label(self, row: int) -> str:
        """The key of a row in words."""
        return label(self.key(), row, row if self.numbers is None else int(self.numbers[row]))

    def place(self, row: int) -> str:
        """File and row as a person counts them."""
        ends = np.cumsum(self.lengths)
        file = int(np.searchsorted(ends, row, side="right"))
        return self.tables[file].place(row - (int(ends[file - 1]) if file else 0))


def refuse_rivals(scan: Scan, rivals: Sequence[str]) -> None:
    """A text is the key only if no id beside it repeats in another way: equal texts need not be one prompt."""
    for name in rivals:
        by_id = encode([scan.columns[name]], scan.rows)
        if by_id.size < scan.rows and not by_id.codes.equals(
            encode([scan.columns[one] for one in scan.group], scan.rows).codes
        ):
            names = ", ".join((*scan.group, name))
            raise DataError(f"several columns could be the group key: {names}", "choose with --group NAME")


def check_keys(scan: Scan, binding: Binding) -> None:
    """Refuse rows without a key, and a key that is a whole document."""
    for name in (*scan.group, *named_columns(binding)):
        refuse_missing(name, scan.columns[name], scan.place)
    if scan.rows == 1:
        _refuse_record(scan)


def assign_groups(scan: Scan, binding: Binding) -> tuple[Coded, np.ndarray[tuple[int], np.dtype[np.bool_]] | None]:
    """The group of every row; which rows are a remainder that goes, if any are."""
    coded = encode([scan.columns[name] for name in scan.group], scan.rows, keep=True)
    if binding.group_within == "file" or (not scan.group and len(scan.tables) > 1 and not is_one_dataset(scan.tables)):
        coded = within(coded, [scan.file])
    elif binding.group_within not in {None, "input"}:
        coded = within(coded, [scan.columns[str(binding.group_within)]])
    if binding.group_within is None and scan.group:
        _refuse_silent_merge(scan, coded)
    if binding.group_size is None:
        return coded, None
    if binding.group_size < 1:
        raise UsageError(f"a block cannot have {binding.group_size} rows", "--group-size takes 1 or more")
    cut = blocks(coded, binding.group_size)
    return cut, _partial(scan, cut, binding)


def _refuse_record(scan: Scan) -> None:
    """Refuse a single row whose key is a list or an object, and no chat: mostly a document with the rows inside of it."""
    for name in scan.group:
        value = json.loads(canonical(scan.columns[name])[0])
        of_objects = isinstance(value, list) and any(isinstance(one, dict) for one in value)
        is_chat = prompt_of(value) is not None and (of_objects or isinstance(value, dict))
        if isinstance(value, (list, dict)) and not is_chat:
            what = "an object" if isinstance(value, dict) else f"a list{' of objects' if of_objects else ''}"
            hint = (
                "the rows may be inside of the record: write each of them as a line, or name another key with --group"
            )
            wrong = f"{scan.place(0)}: the file has one row, and its key {name} is {what}"
            raise DataError(wrong + inside_of_record(scan.tables), hint)


def _refuse_silent_merge(scan: Scan, coded: Coded) -> None:
    key = ",".join(scan.group)
    for name in comparable_steps(scan):
        if name not in scan.group and (rows := spanning(coded, scan.columns[name])):
            cures = f"--group {key},{name} if ids restart, --group-within input if {name} does not separate groups"
            if scan.mixed_prompts(coded) is not None:
                cures = f"--group {key},{name}: ids restart, since one has several prompts"
            raise _merge_error(scan, f"values of {name!r}", rows, cures)
    if len(scan.tables) > 1 and not is_one_dataset(scan.tables) and (rows := spanning(coded, scan.file)):
        cures = (
            "--group-within file if ids restart in each, --group-within input if they are shards of one sampling round"
        )
        if scan.mixed_prompts(coded) is not None:
            cures = "--group-within file: ids restart in each, since one has several prompts"
        raise _merge_error(scan, "files", rows, cures)


def is_one_dataset(tables: Sequence[Table]) -> bool:
    """Whether the files are all shards of one data set, as their names say (`data-00000-of-00002.arrow`): it was cut anywhere."""
    names = [re.fullmatch(r"(.*)-\d{5}-of-(\d{5})(\.\w+)", one.name) for one in tables]
    shards = {None if one is None else one.groups() for one in names}
    first = names[0]
    return first is not None and len(shards) == 1 and int(first[2]) == len(names)


def _merge_error(scan: Scan, what: str, rows: Sequence[int], cures: str) -> MergeError:
    return MergeError.of(what, len(rows), rows[:SHOWN], [scan.label(row) for row in rows[:SHOWN]], cures)


def comparable_steps(scan: Scan) -> list[str]:
    """Step-like columns that tell training steps apart; a `step` that varies inside rollouts counts their own."""
    rollout = scan.roles.get("rollout")
    varying = [name for name in scan.steps if scan.columns[name].n_unique() > 1]
    if rollout is None or OWN_STEP not in varying:
        return varying
    coded = encode([scan.columns[name] for name in (*scan.group, rollout)], scan.rows)
    own = spanning(coded, scan.columns[OWN_STEP])
    return [name for name in varying if name != OWN_STEP or not own]


def _partial(scan: Scan, coded: Coded, binding: Binding) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    short = sizes(coded) < (binding.group_size or 0)
    if not short.any() or binding.partial == "keep":
        return None
    if binding.partial == "drop":
        return np.asarray(short[coded.codes.to_numpy()])
    code = int(np.argmax(short))
    row = int(coded.first[code])
    raise DataError(
        f"{scan.place(row)}: the last block is of {sizes(coded)[code]}, not of {binding.group_size} rows",
        "--partial keep or --partial drop says what to do with it",
    )


BatchCodes = Callable[[Sequence[pl.Series], int], Coded]


def assign_batches(
    scan: Scan, binding: Binding, plan: Plan, coded: Coded, number: BatchCodes = encode
) -> tuple[Coded, str]:
    """The batch of every row, and what cuts the batches; `number` gives the keys of batches their codes."""
    by = binding.batch_by or "input"
    names = [name for name in binding.batch_names if name != "input"]
    keys = [scan.file if name == "file" else scan.columns[name] for name in names]
    batch = number(keys, scan.rows)
    if not plan.estimator.spans_batches and (rows := spanning(coded, batch.codes)):
        cure = f"a group belongs to one batch: add {by} to --group, or use --batch-by input"
        raise _merge_error(scan, f"batches of {by!r}", rows, cure)
    return batch, by


def refuse_unclear_batch(steps: Mapping[str, int], files: int) -> None:
    """Refuse rows of several steps or files where nothing says which of them are normalised together.

    `steps` are the columns that tell training steps apart, and how many values each of them has.
    """
    cure = "--batch-by {0} normalises each on its own, --batch-by input takes all rows as one batch"
    for name, count in steps.items():
        raise DataError(f"the plan needs a batch, and the rows have {count} values of {name!r}", cure.format(name))
    if files > 1:
        raise DataError(f"the plan needs a batch, and there are {files} files", cure.format("file"))


def check_sizes(
    scan: Scan, binding: Binding, coded: Coded, partial: np.ndarray[tuple[int], np.dtype[np.bool_]] | None
) -> None:
    """Refuse groups of another size than expected."""
    if binding.expect_size is not None:
        _refuse_other_sizes(scan, binding, coded, partial)


def refuse_only_singletons(group: Sequence[str], key_words: str, binding: Binding, plan: Plan) -> None:
    """Refuse a key that has one row everywhere, where the plan compares the rows of a group."""
    if plan.estimator.min_group <= 1 or plan.baseline_level != "group" or binding.singletons_meant:
        return
    if plan.alone != Alone():
        return
    what = f"every group has a single {'row' if plan.unit.take == 'each' else 'rollout'}"
    if {*group} & {*CONVERSATIONS}:
        raise DataError(
            f"{what}: {', '.join(group)} may hold the responses as well as the prompts",
            "name the column of the prompt's id with --group, or say --group-size N if the samples of a prompt follow each other",
        )
    if key_words or {*group} & {*PROMPT_TEXTS}:
        raise DataError(
            f"{what}: {key_words or ', '.join(group)} has one sample per prompt, nothing to compare",
            "several samples of a prompt make a group; --singleton zero goes on all the same, --group names another key",
        )
    key = ", ".join(group) or "the block size"
    raise DataError(
        f"{what}: {key} may be an id of the rollout, not of the prompt",
        "name the prompt's column with --group, or say --singleton zero if there is one sample a prompt",
    )


def _refuse_other_sizes(
    scan: Scan, binding: Binding, coded: Coded, partial: np.ndarray[tuple[int], np.dtype[np.bool_]] | None
) -> None:
    counts = sizes(coded)
    dropped = (counts < (binding.group_size or 0)) if partial is not None else np.zeros(len(counts), dtype=bool)
    wrong = np.flatnonzero((counts != binding.expect_size) & ~dropped)
    if len(wrong):
        first, count = int(coded.first[int(wrong[0])]), counts[wrong[0]]
        raise CountedError.of(
            f"{scan.place(first)}: {scan.label(first)} has {count} {'row' if count == 1 else 'rows'}, not {binding.expect_size}",
            (len(wrong), coded.size),
            sizes_words,
            "the sampler may have stopped early; leave out --expect-size to go on",
        )


def sizes_words(wrong: int, groups: int) -> str:
    """How many groups of how many have another size than expected."""
    return f" ({wrong} such {'group' if wrong == 1 else 'groups'} of {groups})"


def units(scan: Scan, plan: Plan, coded: Coded) -> int:
    """How many rewards there are to compare: rows, or rollouts where they count once."""
    rollout = scan.roles.get("rollout")
    if plan.unit.take == "each" or rollout is None:
        return scan.rows
    return encode([coded.codes, scan.columns[rollout]], scan.rows).size


def repeated_samples(coded: Coded, sample: pl.Series) -> tuple[str, ...]:
    """A warning when a group holds the same sample twice."""
    twice = repeats(coded, sample)
    return (repeats_words(twice, sample.name),) if twice else ()


def repeats_words(twice: int, name: str) -> str:
    """The warning for so many rows."""
    return f"{twice:,} rows repeat a {name} inside their group: rollouts may have been written twice"


def repeats(coded: Coded, sample: pl.Series) -> int:
    """How many rows have the same sample as another one of their group."""
    if _ascending(coded, sample):
        return 0
    codes, samples = coded.codes, sample
    if sample.null_count():
        known = sample.is_not_null()
        codes, samples = codes.filter(known), samples.filter(known)
    if not samples.dtype.is_integer():
        samples = canonical(samples).cast(pl.Categorical).to_physical()
    # One number per pair: numbering pairs of columns is far slower.
    pairs = codes.to_numpy().astype(np.uint64)
    pairs <<= np.uint64(32)
    pairs |= samples.cast(pl.Int64).to_numpy().astype(np.uint32)
    return len(pairs) - pl.Series(pairs).n_unique()


def _ascending(coded: Coded, sample: pl.Series) -> bool:
    """Tell that samples count up inside of groups that lie one after the other, so that no two are the same."""
    if not sample.dtype.is_integer() or sample.null_count() or not coded.together:
        return False
    codes = coded.codes.to_numpy()

    def climbs(start: int, end: int) -> bool:
        of, numbers = codes[start : end + 1], sample[start : end + 1].to_numpy()
        return bool(((of[1:] != of[:-1]) | (numbers[1:] > numbers[:-1])).all())

    return all(over(climbs, len(codes)))
