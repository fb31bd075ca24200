"""How each kind of export gets from scored rows to records: its columns, groups, rows, records and texts.

What a kind says of itself and takes is its row in `options/export_kinds.py`. Which rows become records is a pure function in
`choosing/exports.py`; how texts are read and what form they get is in `runs/export_texts.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

import numpy as np
import polars as pl

from grpo_cli.choosing import exports
from grpo_cli.choosing.exports import Looked, Records, Rollouts, Wanted
from grpo_cli.choosing.rows import lengths_of
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Index
from grpo_cli.errors import DataError
from grpo_cli.formats.interface import InRecords
from grpo_cli.options.table import NO_TOOLS
from grpo_cli.read.known_names import TOOLS
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import FileTable, column_names
from grpo_cli.read.texts import MISSING, TextColumns, refuse_same_column, text_columns
from grpo_cli.read.token_numbers import Lists, TokenPart, reduced
from grpo_cli.runs.asked import made
from grpo_cli.runs.export_targets import reads_of
from grpo_cli.runs.export_texts import (
    Pieces,
    RecordColumns,
    advantages_of_tokens,
    look,
    names_of_groups,
    names_of_pairs,
    names_of_prompts,
    names_of_responses,
    refuse_different,
    refuse_formless,
    refuse_wrong,
    texts_of_groups,
    texts_of_pairs,
    texts_of_prompts,
    texts_of_responses,
)
from grpo_cli.stats.inspection import Inspection
from grpo_cli.values.paths import absent, is_there
from grpo_cli.write.chat import kinds
from grpo_cli.write.token_lists import TokenColumns, has_tokens

Columns = TypeVar("Columns", RecordColumns, TokenColumns)


class Kind(ABC, Generic[Columns]):
    """The steps of a kind of export, in the order in which a run takes them."""

    @abstractmethod
    def columns(self, tables: Sequence[FileTable], wanted: Wanted) -> Columns:
        """The columns that its records are made from."""

    def prepared(self, inspection: Inspection, columns: Columns, wanted: Wanted) -> Inspection:
        """The inspection with the groups to choose from, and further facts of them."""
        return inspection

    @abstractmethod
    def rollouts(self, inspection: Inspection, columns: Columns, groups: Mask) -> Rollouts:
        """The rows of these groups that can be records, and what is left out."""

    @abstractmethod
    def records(self, rollouts: Rollouts, inspection: Inspection, columns: Columns, wanted: Wanted) -> Records:
        """The rows that become records, and the computed columns."""

    def settled(self, columns: Columns, looked: Looked | None, records: Records, narrow: Narrow) -> Columns:
        """The columns that these records have; records that cannot be written are an error."""
        return columns

    @abstractmethod
    def names(self, columns: Columns) -> list[str]:
        """What the columns of `texts` are called in a record."""

    @abstractmethod
    def texts(self, narrow: Narrow, columns: Columns, records: Records) -> Pieces:
        """What the records have from the files, in their order."""


# --- rows with a text -----------------------------------------------------------------------------------------------


class OfTexts(Kind[RecordColumns]):
    """Records with the texts of rows, as conversations where they are some."""

    def settled(self, columns: RecordColumns, looked: Looked | None, records: Records, narrow: Narrow) -> RecordColumns:
        if looked is None:
            return columns
        rows = records.all_rows
        by_target = columns.reads is not None
        refuse_formless(looked, rows, by_target=by_target)
        refuse_wrong(looked, rows, narrow, by_target=by_target)
        has_tools = looked.with_tools[looked.of(rows)].any()
        return replace(columns, tools=columns.tools if has_tools else "", converted=looked.converted)


def _with_form(rollouts: Rollouts, looked: Looked, columns: RecordColumns, rows: Index) -> Rollouts:
    """With --on-error skip, the rollouts whose text, that of these rows, has a form as chat messages."""
    if not columns.skip_formless or not looked.formless:
        return rollouts
    has_form = ~np.isin(looked.of(rows), [*looked.formless])
    types = kinds(looked.formless.values())
    return rollouts.keep(has_form, f"items without a form as chat messages ({types})")


class OfResponses(OfTexts):
    """Records of rows with a prompt and a response, or a conversation."""

    all_rows = False  # whether all rows of a rollout count, or only the row with its reward

    def columns(self, tables: Sequence[FileTable], wanted: Wanted) -> RecordColumns:
        return _text_columns(tables, wanted)

    def rollouts(self, inspection: Inspection, columns: RecordColumns, groups: Mask) -> Rollouts:
        narrow = inspection.narrow
        found = _with_reward(inspection, groups, all_rows=self.all_rows)
        found = found.keep(~narrow.masked.to_numpy()[found.rows], "masked")
        looked = look(narrow, found.rows, columns)
        column = columns.response or columns.messages
        hashes = looked.hashes
        # The same turns with other tools are another prompt: no pair and no record of a group may mix the two.
        prompts = hashes.get(columns.prompt, found.prompts) ^ looked.tools
        found = replace(found, prompts=prompts, responses=hashes[column], looked=looked)
        _refuse_text_of_record(found, narrow, column)
        found = found.keep(np.logical_and.reduce([*hashes.values()]), _missing(columns))
        found = found.keep(~looked.unanswered[looked.of(found.rows)], "without an answer of the model")
        return _with_form(found, looked, columns, found.rows)

    def names(self, columns: RecordColumns) -> list[str]:
        return names_of_responses(columns)

    def texts(self, narrow: Narrow, columns: RecordColumns, records: Records) -> Pieces:
        return texts_of_responses(narrow, columns, records.rows["response"])


class Sft(OfResponses):
    """The best rows of each group."""

    def records(self, rollouts: Rollouts, inspection: Inspection, columns: RecordColumns, wanted: Wanted) -> Records:
        if wanted.pick == "shortest":
            text = columns.response or columns.messages
            rollouts = replace(rollouts, lengths=lengths_of(inspection, rollouts.rows, text))
        return exports.sft(rollouts, wanted)


class Pairs(OfResponses):
    """A better and a worse response of one group."""

    def records(self, rollouts: Rollouts, inspection: Inspection, columns: RecordColumns, wanted: Wanted) -> Records:
        return exports.pairs(rollouts, wanted)

    def names(self, columns: RecordColumns) -> list[str]:
        return names_of_pairs(columns)

    def texts(self, narrow: Narrow, columns: RecordColumns, records: Records) -> Pieces:
        return texts_of_pairs(narrow, columns, records.rows["chosen"], records.rows["rejected"])


class Labels(OfResponses):
    """Rows that are good or bad."""

    def records(self, rollouts: Rollouts, inspection: Inspection, columns: RecordColumns, wanted: Wanted) -> Records:
        return exports.labels(rollouts, wanted)


class Groups(OfResponses):
    """Whole groups: a prompt, and its responses with their rewards and advantages."""

    def records(self, rollouts: Rollouts, inspection: Inspection, columns: RecordColumns, wanted: Wanted) -> Records:
        return exports.whole_groups(rollouts, wanted)

    def names(self, columns: RecordColumns) -> list[str]:
        return names_of_groups(columns)

    def texts(self, narrow: Narrow, columns: RecordColumns, records: Records) -> Pieces:
        members = records.members
        return iter(()) if members is None else texts_of_groups(narrow, columns, members)


class Weights(OfResponses):
    """Rows with a weight."""

    all_rows = True

    def records(self, rollouts: Rollouts, inspection: Inspection, columns: RecordColumns, wanted: Wanted) -> Records:
        records = exports.weights(rollouts, wanted)
        if wanted.ratio_cap is not None:
            records = _times_ratio(records, inspection.narrow, wanted, wanted.ratio_cap)
        return records if wanted.copies is None else exports.as_copies(records, wanted.copies, wanted.choice.seed or 0)


def _times_ratio(records: Records, narrow: Narrow, wanted: Wanted, cap: float) -> Records:
    """The records with their weights times the ratio: the mean of min(exp(new - old), cap) over the tokens of the row."""
    new = str(wanted.token_logprobs)
    old = str(wanted.old_token_logprobs)
    rows = records.rows["response"]

    def means(part: TokenPart) -> pl.DataFrame:
        log_ratio = part.values[new] - part.values[old]
        ratio = np.exp(np.minimum(log_ratio, math.log(cap)))
        tokens = np.where(part.sizes, part.sizes, np.nan)
        return pl.DataFrame({"row": part.rows, "ratio": part.sums(ratio) / tokens})

    def joined(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
        none = pl.DataFrame(schema={"row": pl.Int64, "ratio": pl.Float64})
        return pl.concat([none, *parts])

    found = reduced(means, joined, narrow, rows, Lists([new, old], mask=wanted.mask or ""))
    of_rows = np.full(len(narrow.table), np.nan)
    of_rows[found["row"]] = found["ratio"]
    ratios = of_rows[rows]
    there = np.isfinite(ratios)
    with_ratio = records.columns.with_columns(ratio=ratios)
    columns = with_ratio.with_columns(pl.col("weight") * pl.col("ratio"))
    left_out = (*records.left_out, ("no log-probs", int((~there).sum())))
    return replace(records, rows={"response": rows[there]}, columns=columns.filter(there), left_out=left_out)


# --- prompts --------------------------------------------------------------------------------------------------------


class Prompts(OfTexts):
    """A record for each prompt, whose numbers count all its rows."""

    def columns(self, tables: Sequence[FileTable], wanted: Wanted) -> RecordColumns:
        return _text_columns(tables, wanted, prompt_only=True)

    def prepared(self, inspection: Inspection, columns: RecordColumns, wanted: Wanted) -> Inspection:
        first = inspection.narrow.groups.first.cast(pl.Int64).to_numpy()
        column = columns.prompt or columns.messages
        looked = look(inspection.narrow, first, columns)
        texts = looked.hashes[column]
        with_tools = np.where(texts == MISSING, texts, texts ^ looked.tools)  # with other tools it is another prompt
        return exports.of_prompts(inspection, with_tools, wanted)

    def rollouts(self, inspection: Inspection, columns: RecordColumns, groups: Mask) -> Rollouts:
        found = _of_groups(inspection, groups)
        there = inspection.groups[".prompt"].to_numpy()
        found = found.keep(there[found.codes], f"no {columns.names[0]}")
        refuse_different(inspection.narrow, found.rows, found.codes, columns.keep)
        _, starts, of_rows = np.unique(found.codes, return_index=True, return_inverse=True)
        firsts = found.rows[starts]  # whose texts are exported
        looked = look(inspection.narrow, np.sort(firsts), columns)
        return _with_form(replace(found, looked=looked), looked, columns, firsts[of_rows])

    def records(self, rollouts: Rollouts, inspection: Inspection, columns: RecordColumns, wanted: Wanted) -> Records:
        return exports.prompts(rollouts, wanted)

    def names(self, columns: RecordColumns) -> list[str]:
        return names_of_prompts(columns)

    def texts(self, narrow: Narrow, columns: RecordColumns, records: Records) -> Pieces:
        return texts_of_prompts(narrow, columns, records.rows["prompt"])


# --- tokens ---------------------------------------------------------------------------------------------------------


class Tokens(Kind[TokenColumns]):
    """Every row with an advantage, which its tokens share."""

    def columns(self, tables: Sequence[FileTable], wanted: Wanted) -> TokenColumns:
        columns = made(TokenColumns, _inside_rows(tables, wanted))
        columns.check(tables)
        return columns

    def rollouts(self, inspection: Inspection, columns: TokenColumns, groups: Mask) -> Rollouts:
        found = _with_reward(inspection, groups, all_rows=True)
        return found.keep(has_tokens(inspection.narrow, found.rows, columns), _missing(columns))

    def records(self, rollouts: Rollouts, inspection: Inspection, columns: TokenColumns, wanted: Wanted) -> Records:
        return exports.tokens(rollouts, wanted)

    def names(self, columns: TokenColumns) -> list[str]:
        return [*columns.names, "advantages"]

    def texts(self, narrow: Narrow, columns: TokenColumns, records: Records) -> Pieces:
        return advantages_of_tokens(narrow, columns, records.rows["tokens"], records.columns["advantage"])


STEPS: Final[Mapping[str, Kind[Any]]] = {
    "sft": Sft(),
    "pairs": Pairs(),
    "labels": Labels(),
    "groups": Groups(),
    "weights": Weights(),
    "prompts": Prompts(),
    "tokens": Tokens(),
}


# --- what kinds share -----------------------------------------------------------------------------------------------


def _inside_rows(tables: Sequence[FileTable], wanted: Wanted) -> dict[str, str]:
    """The columns that options name, inside the objects that are rows; users may give full paths, as for the reward."""
    prefix = tables[0].prefix
    return {part: name.removeprefix(prefix) for part, name in vars(wanted).items() if isinstance(name, str)}


def _text_columns(tables: Sequence[FileTable], wanted: Wanted, *, prompt_only: bool = False) -> RecordColumns:
    inside = _inside_rows(tables, wanted)
    texts = text_columns(tables, made(TextColumns, inside), prompt_only=prompt_only)
    refuse_same_column(texts)
    names = column_names(tables)
    reads = reads_of(wanted)
    columns = RecordColumns(
        **vars(texts),
        form=reads.form if reads else wanted.form,
        reads=reads,
        instructions=_instructions(tables, texts),
        tools=_tools(tables, names, inside.get("tools")),
        keep=tuple(name.removeprefix(tables[0].prefix) for name in wanted.keep),
        skip_formless=wanted.on_error == "skip",
    )
    for name in columns.keep:
        if not is_there(name, names):
            raise absent(name, tables[0].name, names)
    return columns


def _tools(tables: Sequence[FileTable], names: Sequence[str], named: str | None) -> str:
    """The column of the tools: by flag, else by schema, else by a known name; empty if there is none."""
    if named == NO_TOOLS:
        return ""
    if named and not is_there(named, names):
        raise absent(named, tables[0].name, names)
    by_schema = tables[0].schema.tools if tables[0].schema else ""
    known = (by_schema, *TOOLS)
    return named or next((name for name in known if name and is_there(name, names)), "")


def _instructions(tables: Sequence[FileTable], texts: TextColumns) -> str:
    """The text before the prompt that the schema names, if the prompt is the schema's."""
    schema = tables[0].schema
    return schema.instructions if schema and texts.prompt == schema.prompt else ""


def _missing(columns: RecordColumns | TokenColumns) -> str:
    return f"no {' or '.join(columns.names)}"


def _of_groups(inspection: Inspection, groups: Mask, rewards: pl.Series | None = None) -> Rollouts:
    """All rows of these groups that the plan keeps; without texts, and with their own rewards if no others are given."""
    narrow = inspection.narrow
    codes = narrow.table["group"].to_numpy().astype(np.int64)
    kept = inspection.scored.rows[".kept"].to_numpy()
    rows = np.flatnonzero(groups[codes] & kept)
    if rewards is None:
        rewards = inspection.raw.rows[".reward"]
    # For tokens: others have no masked rows.
    advantages = np.where(narrow.masked, 0.0, inspection.scored.rows[".advantage"])
    nothing = np.zeros(len(rows), np.uint64)
    return Rollouts(
        rows=rows,
        codes=codes[rows],
        rewards=rewards.to_numpy()[rows],
        advantages=advantages[rows],
        prompts=nothing,
        responses=nothing,
        groups=inspection.groups,
    )


def _with_reward(inspection: Inspection, groups: Mask, *, all_rows: bool) -> Rollouts:
    """The rows of these groups that have a reward and are not left out of their group.

    If a rollout of several rows counts once, this is its row with the reward; with `all_rows` all of them, with its reward.
    """
    reward = of_rollout = inspection.raw.rows[".reward"]
    if inspection.raw.plan.unit.take != "each":
        highest = inspection.raw.rows.select(pl.col(".reward").max().over("rollout"))
        of_rollout = highest.to_series()
    found = _of_groups(inspection, groups, of_rollout if all_rows else reward)
    if not all_rows:
        counts = (reward.is_not_null() | of_rollout.is_null()).to_numpy()
        found = found.keep(counts[found.rows], "not the row that represents its rollout")
    found = found.keep(~inspection.narrow.left_out.to_numpy()[found.rows], "left out of their groups")
    return found.keep(np.isfinite(found.rewards), "no reward")


def _refuse_text_of_record(rollouts: Rollouts, narrow: Narrow, column: str) -> None:
    """A record with several rewards and one text, such as a flat chat of Atropos: nobody knows which reward the text has."""
    rows = pl.DataFrame({"group": rollouts.codes, "text": rollouts.responses, "reward": rollouts.rewards})
    distinct = rows.group_by("group").n_unique().filter(pl.col("reward") > 1)
    if not len(distinct) or (distinct["text"] > 1).any():
        return
    for table, scanned in zip(narrow.tables, narrow.scans, strict=True):
        known = table.format
        if isinstance(known, InRecords) and not known.of_rollouts(table.source, scanned.index, [column]):
            wrong = f"{column} has one text for all rollouts of a record, and their rewards differ"
            cure = "name the column with a text for each rollout: --response NAME or --messages NAME"
            raise DataError(wrong, cure, place=table.name)
