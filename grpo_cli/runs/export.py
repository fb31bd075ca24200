"""`export` of files: inputs, tables, rows with groups and advantages, the rows of a kind, their texts, one new file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.choosing.exports import KINDS, Records, Rollouts, Scale, Wanted, of_prompts
from grpo_cli.choosing.groups import choose_groups, lengths_of
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Index
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UsageError, Written
from grpo_cli.formats.interface import InRecords
from grpo_cli.options.conditions import Filter
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import plan_of
from grpo_cli.options.table import DIVISOR, METHOD, OPTIONS, POST, SHAPE, SKIPPED
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import FileTable, refuse_changed
from grpo_cli.read.texts import TextColumns, TextStore, refuse_same_column, text_columns, text_hashes
from grpo_cli.read.token_numbers import TokenPart, reduced
from grpo_cli.runs.asked import OnFiles, binding_of, condition_of, draws_of, made, output_of, refuse_idle_seed
from grpo_cli.runs.inspect import other_runs, scored
from grpo_cli.runs.progress import Watching
from grpo_cli.runs.select import choice_of
from grpo_cli.stats.document import ABSENT, Absent
from grpo_cli.stats.facts import Dropped, Number, of_foreign, read_as
from grpo_cli.stats.inspection import Inspection, View
from grpo_cli.write.outputs import Output, choose_beside, choose_target, refuse_summary
from grpo_cli.write.records import before_response, conversations, divided, in_one_form, write_records
from grpo_cli.write.token_lists import TokenColumns, has_tokens, token_advantages
from grpo_cli.write.write_outputs import Phase, one_of_several, sink

TextsOrTokens = TextColumns | TokenColumns
VERSION: Final = 1
WEIGH = ("weights", "tokens")  # the kinds with advantages
ARITHMETIC = (SHAPE, METHOD, DIVISOR, SKIPPED, POST)  # options of advantages alone
GATES = ("records", "rows", "groups")  # what --fail-on may name
PIECE_BYTES = 8 << 20  # bytes of texts that are read at once
PIECE_ROWS = 4096  # rows whose records are made at once


@dataclass(frozen=True, kw_only=True)
class Job(OnFiles):
    """What to read, what to make of it, and where to write the result."""

    wanted: Wanted  # the kind of records, and the options of that kind
    plan: Plan = field(default_factory=Plan)  # the rewards of rows, and for weights and tokens their advantages
    output: Output = field(default_factory=Output)  # where and how to write
    gate: Filter | None = None  # the condition of --fail-on, checked before anything is written

    @classmethod
    def of(cls, given: Given, **more: Any) -> Job:
        """What options ask for; `more` are further fields."""
        plan = plan_of(given)
        to = given.to
        plan.refuse_distill("an export")
        if to == "weights" and "mask" in given and not {"ratio_cap", "kl_from"} & {*given}:
            raise UsageError("--mask has no effect on --to weights alone", "add --ratio-cap or --kl-from")
        idle = [name for name in given if name in OPTIONS and OPTIONS[name].panel in ARITHMETIC]
        idle = [name for name in idle if name not in {"preset", "presets", "set"}]  # they may say which rows count
        if idle and to not in WEIGH and "config" not in given:  # a file of options serves several commands
            wrong = f"{OPTIONS[idle[0]].flag} does not apply to --to {to}"
            raise UsageError(wrong, "it is for --to weights and tokens")
        refuse_idle_seed(given)
        return made(
            cls,
            given,
            wanted=wanted_of(given),
            plan=plan,
            binding=binding_of(given),
            output=output_of(given),
            gate=condition_of(given, "fail_on", GATES),
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The summary of `export`; numbers of pairs with --to pairs, `solved_at` and `scale` with --to prompts."""

    NOT_SHOWN: ClassVar = frozenset({"key_note"})

    version: Literal[1]  # of the document; it changes when the meaning of a key does
    to: str  # the kind of records: sft, pairs, weights, prompts or tokens
    inputs: Sequence[str]  # the files
    against: Sequence[str]  # the other runs, as --against gives them; empty without it
    where: str | None  # the condition that groups must meet, as given; None without one
    rows: int  # of the files, those that are no rollouts too
    groups: int  # of the input, before any are chosen
    group_key: Sequence[str]  # the columns of the key; empty if groups are blocks of rows
    reward_columns: Sequence[str]  # all columns that make the reward
    map: Mapping[str, Number]  # the reward that each text of --map stands for, None for a missing one; empty without it
    texts: str  # the columns that records are made from, in words
    schema: str | None  # the title of the file's schema; None if it has none
    plan: Plan | None  # that made the advantages; None unless records are weights or tokens
    records: int  # in the first output; `beside` has those of the others
    beside: Mapping[str, int]  # the records of each further output
    columns: Sequence[str]  # of a record, those of texts first
    dropped: Sequence[Dropped]  # rows that no record has, by reason
    narrow_pairs: int | None = None  # pairs whose margin is less than --min-margin; absent unless records are pairs
    pairs_over_limit: int | None = None  # pairs beyond --max-pairs of their group; absent without that option
    # groups with a usable row that give no pair, counted for each prompt; absent unless records are pairs
    groups_without_pair: int | None = None
    # the least reward that counts as solved;
    # None without --solved-at and --pass-at, absent unless records are prompts
    solved_at: Number | Absent = ABSENT
    # the rewards with solve rates 0 and 1; None with --solved-at, absent unless records are prompts
    scale: Scale | Absent | None = ABSENT
    key_note: str  # the key in words, and how it was found; not in a document, whose notes have it
    notes: Sequence[str]  # how rows were read and grouped
    outputs: Sequence[str]  # the first output, then the further ones
    warnings: Sequence[str]  # about the input and the records
    seconds: float  # the whole run took
    config: str | None = None  # the file of options that was read; absent if none was


def wanted_of(given: Given) -> Wanted:
    """What is exported."""
    choice = choice_of(given, per_group=1 if given.per_group is None else given.per_group)
    return made(Wanted, given, choice=choice, pick=given.best, pass_at=draws_of(given))


def run(job: Job, phase: Phase = lambda *_: None) -> Exported:
    """Write the records; return the facts, which say how many rows were left out, and why."""
    started = time.perf_counter()
    wanted, kind = job.wanted, KINDS[job.wanted.to]
    where = wanted.choice.where
    phase("reading")
    tables, skipped = job.opened()
    columns = _columns(tables, job)
    targets = [choose_target(job.output)]
    targets += choose_beside(targets, wanted.choice.beside, job.output)
    refuse_summary(job.output, targets)

    watching = Watching(tables, phase)
    view = View(named=() if where is None else where.names)
    inspection = scored(tables, job.binding, job.plan, view, over=watching)
    grouped = len(inspection.groups)
    without_prompt = None
    if isinstance(columns, TextColumns) and wanted.to == "prompts":
        phase("comparing texts")
        first, column = inspection.narrow.groups.first.cast(pl.Int64).to_numpy(), columns.prompt or columns.messages
        prompts = text_hashes(inspection.narrow, first, [column])[column]
        without_prompt = first[prompts == 0]
        inspection = of_prompts(inspection, prompts, wanted)
    narrow = inspection.narrow
    outputs, dropped = choose_groups(inspection, wanted.choice, other_runs(job, job.plan))
    groups = np.logical_or.reduce([*outputs.values()])
    phase("comparing texts")
    rollouts = _rollouts(inspection, columns, groups, without_prompt, all_rows=kind.all_rows)
    if wanted.pick == "shortest" and isinstance(columns, TextColumns):
        text = columns.response or columns.messages
        rollouts = replace(rollouts, lengths=lengths_of(inspection, rollouts.rows, text))
    records = kind.records(rollouts, wanted)
    if wanted.ratio_cap is not None:
        records = _times_ratio(records, narrow, wanted, wanted.ratio_cap)
    codes = narrow.table["group"].to_numpy()[next(iter(records.rows.values()))]
    parts = {name: records.at(mask[codes]) for name, mask in outputs.items()}
    beside = {name: len(part.columns) for name, part in parts.items()}
    height = beside.pop("")
    names, rows = _names(columns, records.rows), sum(narrow.lengths)
    if job.gate is not None:
        counts = {"records": height, "rows": rows, "groups": grouped}
        job.gate.check(lambda _: counts, counts, Written())

    watching.phase("writing")
    refuse_changed(tables)
    for at, (target, part) in enumerate(zip(targets, parts.values(), strict=True)):
        with one_of_several(at, len(targets)), sink(target, force=job.output.force) as handle:
            pieces = _counted(_pieces(narrow, columns, names, part), len(records.columns), watching)
            write_records(pieces, names, part.columns, handle, target.format)
            refuse_changed(tables)
    left_out = [Dropped(reason=reason, rows=rows) for reason, rows in records.left_out if rows]
    warnings = [*narrow.warnings, *records.warnings, *skipped]
    if not height:
        warnings.append("no record is left")
    return Exported(
        version=VERSION,
        to=wanted.to,
        inputs=[table.name for table in tables],
        against=job.before,
        where=where.text if where else None,
        rows=rows,
        groups=grouped,
        **read_as(narrow),
        texts=columns.words if isinstance(columns, TextColumns) else ", ".join(columns.names),
        plan=inspection.scored.plan if wanted.to in WEIGH else None,
        records=height,
        beside=beside,
        columns=[*names, *records.columns.columns],
        dropped=[*dropped, *left_out, *of_foreign(narrow)],
        **records.facts,
        outputs=[target.name for target in targets],
        warnings=warnings,
        seconds=round(time.perf_counter() - started, 3),
    )


def records(job: Job) -> tuple[list[pl.DataFrame], Exported]:
    """The records of each output as a frame, and the facts."""
    with TemporaryDirectory(prefix="grpo-adv.") as folder:
        made = str(Path(folder) / "records.parquet")
        facts = run(replace(job, output=Output(to=made)))
        return [pl.read_parquet(name) for name in facts.outputs], facts


def _columns(tables: Sequence[FileTable], job: Job) -> TextsOrTokens:
    """The columns of the texts, or of the tokens."""
    wanted = job.wanted
    prefix = tables[0].prefix
    # Names inside the objects that are rows; users may give full paths, as for the reward.
    named = {part: name.removeprefix(prefix) for part, name in vars(wanted).items() if isinstance(name, str)}
    if wanted.to != "tokens":
        texts = text_columns(tables, made(TextColumns, named), prompt_only=wanted.to == "prompts")
        refuse_same_column(texts)
        return texts
    length = job.binding.roles.get("length", "")
    if length == "equal" or (wanted.mask and "length" in job.plan.needs):
        length = ""  # the plan reads it, and it does not count tokens
    columns = made(TokenColumns, named, length=length.removeprefix(prefix))
    columns.check(tables)
    return columns


def _rollouts(
    inspection: Inspection,
    columns: TextsOrTokens,
    groups: Mask,
    without_prompt: Index | None,
    *,
    all_rows: bool,
) -> Rollouts:
    """The rows of these groups that have what the kind reads.

    If a rollout of several rows counts once, this is its row with the reward; with `all_rows` all of them, with its reward.
    For an export of prompts, `without_prompt` has the first rows of the groups that have none.
    """
    narrow = inspection.narrow
    missing = f"no {' or '.join(columns.names)}"
    codes = narrow.table["group"].to_numpy().astype(np.int64)
    kept = inspection.scored.rows[".kept"].to_numpy()
    rows = np.flatnonzero(groups[codes] & kept)
    reward = of_rollout = inspection.raw.rows[".reward"]
    if inspection.raw.plan.unit.take != "each":
        highest = inspection.raw.rows.select(pl.col(".reward").max().over("rollout"))
        of_rollout = highest.to_series()
    # For tokens: others have no masked rows.
    advantages = np.where(narrow.masked, 0.0, inspection.scored.rows[".advantage"])
    nothing = np.zeros(len(rows), np.uint64)
    found = Rollouts(
        rows=rows,
        codes=codes[rows],
        rewards=(of_rollout if all_rows else reward).to_numpy()[rows],
        advantages=advantages[rows],
        prompts=nothing,
        responses=nothing,
        groups=inspection.groups,
    )
    if without_prompt is not None:
        lost = np.isin(narrow.groups.first.to_numpy(), without_prompt)
        return found.keep(~lost[found.codes], f"no {columns.names[0]}")
    if not all_rows:
        counts = (reward.is_not_null() | of_rollout.is_null()).to_numpy()
        found = found.keep(counts[found.rows], "not the row that represents its rollout")
    found = found.keep(~narrow.left_out.to_numpy()[found.rows], "left out of their groups")
    found = found.keep(np.isfinite(found.rewards), "no finite reward")
    if isinstance(columns, TokenColumns):
        return found.keep(has_tokens(narrow, found.rows, columns), missing)
    found = found.keep(~narrow.masked.to_numpy()[found.rows], "masked")
    hashes = text_hashes(narrow, found.rows, columns.names)
    column = columns.response or columns.messages
    prompts = hashes.get(columns.prompt, found.prompts)
    found = replace(found, prompts=prompts, responses=hashes[column])
    _refuse_text_of_record(found, narrow, column)
    return found.keep(np.logical_and.reduce([*hashes.values()]), missing)


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


# --- texts of records ------------------------------------------------------------------------------------------


def _names(columns: TextsOrTokens, rows: Mapping[str, Index]) -> list[str]:
    """The text columns of a record."""
    if isinstance(columns, TokenColumns):
        return [*columns.names, "advantages"]
    if "response" in rows:
        return ["messages"] if columns.messages else ["prompt", "completion"]
    return ["prompt", *(name for name in rows if name != "prompt")]


def _pieces(narrow: Narrow, columns: TextsOrTokens, names: Sequence[str], records: Records) -> Iterator[pl.DataFrame]:
    """The JSON texts of the records, in frames of some records each."""
    if isinstance(columns, TextColumns) and "chosen" in records.rows:
        yield from _pairs(narrow, columns, records.rows["chosen"], records.rows["rejected"])
        return
    ((kind, rows),) = records.rows.items()
    done = 0
    for frame in narrow.texts_at(rows, columns.names):
        some = slice(done, done + len(frame))
        done = some.stop
        place = _places(narrow, rows[some])
        if isinstance(columns, TokenColumns):
            yield from token_advantages(frame, records.columns["advantage"][some], columns, place)
            continue
        texts = frame.rename(dict(zip(columns.names, names, strict=True)))
        if columns.messages:
            form = before_response if kind == "prompt" else conversations
            yield pl.DataFrame([form(texts[names[0]], place)])
        else:
            yield in_one_form(texts)


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

    found = reduced(means, joined, narrow, rows, [new, old], wanted.mask or "")
    of_rows = np.full(len(narrow.table), np.nan)
    of_rows[found["row"]] = found["ratio"]
    ratios = of_rows[rows]
    there = np.isfinite(ratios)
    with_ratio = records.columns.with_columns(ratio=ratios)
    columns = with_ratio.with_columns(pl.col("weight") * pl.col("ratio"))
    left_out = (*records.left_out, ("no log-probs", int((~there).sum())))
    return replace(records, rows={"response": rows[there]}, columns=columns.filter(there), left_out=left_out)


def _counted(pieces: Iterator[pl.DataFrame], records: int, watching: Watching) -> Iterator[pl.DataFrame]:
    """The pieces; each counts as written when the next is requested."""
    done = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        watching.wrote(done / records)


def _places(narrow: Narrow, rows: Index) -> Callable[[int], str]:
    """The place (file and row) of each of these rows, for errors."""
    return lambda at: narrow.place(int(rows[at]))


def _pairs(narrow: Narrow, columns: TextColumns, chosen: Index, rejected: Index) -> Iterator[pl.DataFrame]:
    """The texts of pairs, whose rows may be anywhere in the files, so the texts are first copied to a store on disk."""
    with TextStore(narrow, np.union1d(chosen, rejected), columns.names) as store:
        ends = np.cumsum(store.size(chosen) + store.size(rejected))
        start = 0
        while start < len(chosen):
            base = ends[start - 1] if start else 0
            fits = int(np.searchsorted(ends, base + PIECE_BYTES, side="right"))
            end = max(start + 1, fits)
            some = slice(start, min(end, start + PIECE_ROWS))
            start = some.stop
            better = store.take(chosen[some])
            worse = store.take(rejected[some])
            if columns.messages:
                pairs = better[columns.messages], worse[columns.messages]
                yield divided(*pairs, _places(narrow, chosen[some]), _places(narrow, rejected[some]))
            else:
                texts = {
                    "prompt": better[columns.prompt],
                    "chosen": better[columns.response],
                    "rejected": worse[columns.response],
                }
                yield in_one_form(pl.DataFrame(texts))
