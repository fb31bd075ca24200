"""`select`: the groups and rows that each output keeps, and what is said of the choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.choosing.groups import Choice, choose_groups
from grpo_cli.choosing.rows import rows_picked
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Index
from grpo_cli.read.group_keys import encode
from grpo_cli.read.narrow import Narrow
from grpo_cli.stats import facts
from grpo_cli.stats.inspection import Inspection, learned_from, prompt_columns

VERSION: Final = 1


@dataclass(frozen=True)
class Beside:
    """Groups and rows that go to a file of their own, beside the selected ones."""

    groups: int  # with at least one row in that file
    rows: int  # of these groups in that file; rows that are no rollouts are not counted


@dataclass(frozen=True)
class Selected:
    """The summary of `select`."""

    NOT_SHOWN: ClassVar = frozenset({"key_note"})

    inputs: Sequence[str]  # the files that were read
    version: Literal[1]  # of the form of this document
    where: str | None  # the condition on groups, as it was given; None: there was none
    # as --seed gave it; None: not given, --limit took the first groups and other random choices used 0
    seed: int | None
    rows: int  # of the files, also those that do not count or are no rollouts
    kept_rows: int  # that were kept for the output; rows of their records that are no rollouts are not counted
    kept_masked: int  # kept rows that are masked: they count in their group and are not trained on
    kept_left_out: int  # kept rows that are marked to be left out of their group
    rollouts: int  # distinct rollouts of the input; the same as `rows` if no column has rollout ids
    kept_rollouts: int  # distinct rollouts of the kept rows; the same as `kept_rows` if no column has rollout ids
    groups: int  # of the input, before anything was chosen
    kept_groups: int  # with at least one kept row
    # of the kept groups; groups whose keys differ only in the step or the file are of one prompt. The output has `kept_rows` rows of them
    kept_prompts: int
    group_key: Sequence[str]  # the columns of the group key; empty if groups are blocks of rows alone
    reward_columns: Sequence[str]  # the columns whose weighted sum is the reward
    map: Mapping[str, facts.Number]  # what each text counts as (--map); null: a missing reward; empty without --map
    schema: str | None  # the title of the file layout that was recognised or named; None: plain rows
    key_note: str  # how the groups were found, in words
    notes: Sequence[str]  # how the rows were read and grouped
    # of the input's groups with two or more scored rows, the share with equal rewards; None: no such group
    zero_variance_share: facts.Number
    # the same share for what is kept: with --per-group only the kept rows are compared
    kept_zero_variance_share: facts.Number
    # how many groups and rows each reason left out; a reason is a condition, an option or a mark
    dropped: Sequence[facts.Dropped]
    # what went to the further outputs, by `holdout` and `control`; empty if neither was asked for
    beside: Mapping[str, Beside]
    warnings: Sequence[str]  # about the input and the output, each a sentence
    outputs: Sequence[str]  # the files that were written, those of `beside` last
    seconds: float  # that the run took, by the clock
    against: Sequence[str] = ()  # the runs of --against, as they were given; absent without the option
    config: str | None = None  # the file of options that was read; absent: none was


def select_rows(
    inspection: Inspection, choice: Choice, others: Sequence[Inspection]
) -> tuple[dict[str, Index], Selected]:
    """The rows of the input that each output keeps, in order, and the facts of the choice; the kept rows are called "".

    Kept are the groups that meet the condition, up to a limit of groups, and of rows in each.
    """
    narrow = inspection.narrow
    codes = narrow.table["group"].to_numpy()
    picked = rows_picked(inspection, choice)
    groups, dropped = choose_groups(inspection, choice, others, None if picked is None else picked.mask)
    outputs = {name: mask[codes] for name, mask in groups.items()}
    if picked is None:
        share = facts.zero_variance_share(inspection.groups.filter(groups[""]))
    else:
        dropped += picked.dropped(outputs[""])
        outputs = {name: mask & picked.mask for name, mask in outputs.items()}
        share = _constant_share(inspection, outputs[""])
    dropped += [*_of_short_blocks(narrow), *facts.of_foreign(narrow)]
    places = {name: narrow.places_of(np.flatnonzero(mask)) for name, mask in outputs.items()}
    return places, _summary(inspection, choice, outputs, share, dropped)


def _constant_share(inspection: Inspection, kept: Mask) -> float | None:
    """The share of groups whose kept rows have equal rewards, among those with two rows to compare."""
    codes = inspection.narrow.table["group"].to_numpy()
    learned = learned_from(inspection).filter(pl.Series(kept))
    return facts.constant_share(codes[kept], learned, len(inspection.groups))


def _of_short_blocks(narrow: Narrow) -> Iterator[facts.Dropped]:
    """The rows of a last block that --partial drops."""
    rows = narrow.height - len(narrow.table)
    if rows:
        yield facts.Dropped(reason="the last block is incomplete", rows=rows)


def _summary(
    inspection: Inspection,
    choice: Choice,
    outputs: Mapping[str, Mask],
    kept_share: float | None,
    dropped: Sequence[facts.Dropped],
) -> Selected:
    """The facts, without those of the files; `outputs` are the rows of each output, `kept_share` the zero-variance share of the kept."""
    narrow = inspection.narrow
    sizes = {name: _size(inspection, mask) for name, mask in outputs.items()}
    kept = sizes.pop("")
    rows = pl.Series(outputs[""])
    rollouts = sum(narrow.lengths)
    kept_rollouts = kept.rows
    if "rollout" in narrow.table.columns:
        rollouts = narrow.table["rollout"].n_unique()
        kept_rollouts = narrow.table["rollout"].filter(rows).n_unique()
    return Selected(
        inputs=(),
        version=VERSION,
        where=choice.where.text if choice.where else None,
        seed=choice.seed,
        rows=sum(narrow.lengths),
        kept_rows=kept.rows,
        kept_masked=int((narrow.masked & rows).sum()),
        kept_left_out=int((narrow.left_out & rows).sum()),
        rollouts=rollouts,
        kept_rollouts=kept_rollouts,
        groups=len(inspection.groups),
        kept_groups=kept.groups,
        kept_prompts=_prompts(narrow, rows),
        **facts.read_as(narrow),
        zero_variance_share=facts.zero_variance_share(inspection.groups),
        kept_zero_variance_share=kept_share,
        dropped=dropped,
        beside=sizes,
        warnings=[*narrow.warnings] if kept.rows else [*narrow.warnings, "no row is left"],
        outputs=(),
        seconds=0.0,
    )


def _prompts(narrow: Narrow, rows: pl.Series) -> int:
    """The number of different prompts in these rows; of blocks that no key names, each is one."""
    kept = narrow.table["group"].filter(rows).unique()
    columns = [narrow.key[name] for name in prompt_columns(narrow) if name in narrow.key.columns]
    return encode([column.alias("").gather(kept) for column in columns]).size if columns and len(kept) else len(kept)


def _size(inspection: Inspection, rows: Mask) -> Beside:
    """How many of these rows there are, and of how many groups."""
    codes = inspection.narrow.table["group"].to_numpy()
    has_some = np.zeros(len(inspection.groups), bool)
    has_some[codes[rows]] = True
    return Beside(int(has_some.sum()), int(rows.sum()))
