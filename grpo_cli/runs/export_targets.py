"""What the trainer of --target asks of an export, and what a person must know of the file for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from grpo_cli.choosing.exports import Looked, Records, Wanted
from grpo_cli.engine.moments import Index
from grpo_cli.errors import Cure, DataError, UsageError, Way
from grpo_cli.files.compression import suffix_of
from grpo_cli.formats import registry
from grpo_cli.runs.export_texts import RecordColumns
from grpo_cli.targets.table import ALWAYS, WHEN, Reads, Target, readers, target, targets
from grpo_cli.write.outputs import STDOUT, is_folder
from grpo_cli.write.outputs import Target as Output
from grpo_cli.write.token_lists import TokenColumns

LINES = ".jsonl"
NEARLY_0 = 1e-9  # of the size of an advantage: rounding of sums in double precision, with room


def reads_of(wanted: Wanted) -> Reads | None:
    """How the trainer reads these records; None without a target."""
    return None if wanted.target is None else target(wanted.target).kinds[_kind(wanted)]


def _kind(wanted: Wanted) -> str:
    """The kind as which these records are read: whole copies are rows like any."""
    return "sft" if wanted.copies is not None else wanted.to


def refuse_unread(wanted: Wanted, output: str | None) -> None:
    """Refuse what the trainer does not read, before any file is opened."""
    if wanted.target is None:
        return
    row = target(wanted.target)
    kind = _kind(wanted)
    if kind not in row.kinds:
        why = row.not_read.get(kind, "nothing is known of how it would read them")
        others = readers(kind)
        cure = (
            f"--target {', '.join(others)} read{'s' if len(others) == 1 else ''} it" if others else "no target reads it"
        )
        ways: list[Cure] = [cure, f"--to {' or '.join(row.kinds)}"]
        if kind == "weights" and "sft" in row.kinds:
            ways.insert(0, Way("--copies", why="writes whole copies instead, which every trainer reads", fill="N"))
        raise UsageError(f"--target {row.name} reads no --to {kind}: {why}", ways)
    reads = row.kinds[kind]
    if wanted.form is not None and wanted.form != reads.form:
        wrong = f"--form {wanted.form} is not what --target {row.name} reads"
        raise UsageError(wrong, "leave out --form, or --target")
    _refuse_suffix(row, kind, reads, output)


def _refuse_suffix(row: Target, kind: str, reads: Reads, output: str | None) -> None:
    suffixes = row.suffixes_of(kind)
    if output is None or (output == STDOUT and LINES in suffixes):
        return
    if reads.folder:
        if not is_folder(output):
            raise UsageError(
                f"--target {row.name} reads a folder with train{suffixes[0]} and valid{suffixes[0]}", "give -o DIR/"
            )
        return
    if output == STDOUT or suffix_of(output) or not output.endswith(suffixes):
        which = " or ".join(suffixes)
        name = output if output != STDOUT else "train"
        stem = name.removesuffix(suffix_of(name)).rpartition(".")[0] or name
        raise UsageError(f"--target {row.name} reads {which} files", f"-o {stem}{suffixes[0]}")


def refuse_moved(reads: Reads | None, records: Records) -> None:
    """Refuse groups from which a trainer that takes stored advantages as rewards would make others."""
    if reads is None or not reads.stored or records.members is None or not len(records.members):
        return
    sizes = records.members.list.len()
    if sizes.n_unique() > 1:
        least, most = int(sizes.to_numpy().min()), int(sizes.to_numpy().max())
        wrong = f"groups have {least} to {most} rows, and this trainer takes groups of one size"
        raise DataError(wrong, [Way("select --per-group", fill="N --pick random", why="before makes them one size")])
    sums = records.columns["advantages"].list.sum().abs()
    largest = records.columns["advantages"].list.eval(pl.element().abs()).list.max()
    moved = int((sums > NEARLY_0 * (1 + largest) * sizes).sum())
    if moved:
        wrong = f"the advantages of {moved:,} groups do not add up to 0, and this trainer subtracts their mean"
        raise DataError(
            wrong, "use a method with a baseline of the group, without --clip or --whiten after the division"
        )


def to_know(wanted: Wanted, looked: Looked | None, rows: Index, written: str, output: Output) -> Iterator[str]:
    """Who reads these records, and what that person must know; `written` is the form in which they are."""
    reads = reads_of(wanted)
    kind = _kind(wanted)
    if reads is None and kind == "weights":
        ignoring = [row.name for row in targets().values() if kind in row.not_read and "sft" in row.kinds]
        of_targets = ", ".join(f"{name} (--target {name})" for name in readers(kind))
        yield f"a loss of your own, {of_targets}; {', '.join(ignoring)} ignore the weight: --copies N"
        return
    if reads is None:
        fitting = [row for row in targets().values() if _fits(row, kind, written, output, pooled=bool(wanted.pool))]
        yield from _as_it_is(fitting, kind, looked, rows)
        return
    who = " ".join(filter(None, [target(str(wanted.target)).title, reads.by]))
    yield f"{who}: trains on {reads.trains_on}" if reads.trains_on else who
    if reads.entry:
        yield f"dataset_info.json: {reads.entry.replace('{file}', Path(output.name).name)}"
    for when, say in reads.know.items():
        if when == ALWAYS or _has(when, looked, rows):
            yield say


def _as_it_is(fitting: Sequence[Target], kind: str, looked: Looked | None, rows: Index) -> Iterator[str]:
    """Which of these trainers read the records as meant, and which make something else of a part of them."""
    parts = {row.name: [when for when in row.kinds[kind].know if _has(when, looked, rows)] for row in fitting}
    as_meant = [name for name, differs in parts.items() if not differs]
    if as_meant:
        yield f"{', '.join(as_meant)} as it is; --target NAME writes the form of another"
    otherwise = [name for name, differs in parts.items() if differs]
    if otherwise:
        what = " or ".join(dict.fromkeys(WHEN[when] for name in otherwise for when in parts[name]))
        too = " too" if as_meant else ""
        yield f"{', '.join(otherwise)}{too}; {what}, see grpo-adv targets NAME first"


def _fits(row: Target, kind: str, written: str, output: Output, *, pooled: bool) -> bool:
    """Whether a trainer reads a file of this form as it is."""
    is_lines = output.format.same_as(registry.lines())
    suffix = LINES if is_lines else Path(output.name).suffix
    reads = row.kinds.get(kind)
    return (
        reads is not None
        and reads.form == written
        and (pooled or not reads.pooled)
        and suffix in row.suffixes_of(kind)
        and not (reads.names or reads.without or reads.turns or reads.folder or reads.arguments or reads.tools)
    )


def _has(when: str, looked: Looked | None, rows: Index) -> bool:
    if looked is None or when == ALWAYS:
        return False
    masks = {
        "tools": looked.tool_results,
        "few_shot": looked.few_shot,
        "texts": looked.plain,
        "reasoning": looked.reasoning,
    }
    return bool(masks[when][looked.of(rows)].any())


def written_form(
    names: Sequence[str], looked: Looked | None, rows: Index, columns: RecordColumns | TokenColumns
) -> str:
    """The form of records with these names: one list, two lists, or texts."""
    in_turns = isinstance(columns, RecordColumns) and columns.in_turns
    plain = looked is not None and not in_turns and bool(looked.plain[looked.of(rows)].any())
    if plain:
        return "texts"
    of_prompts = names[:1] == ["prompt"] and not {"completion", "chosen", "responses"} & {*names}
    one_list = "messages" in names or of_prompts or (isinstance(columns, RecordColumns) and columns.form == "messages")
    return "messages" if one_list else "turns"
