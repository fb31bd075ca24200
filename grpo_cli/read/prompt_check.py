"""Whether the groups of an id hold one prompt each: the text beside the id is compared, in some rows of the files.

An id that is no prompt's (`task_id` = easy, medium, hard) merges nearly all prompts, and ids that begin anew merge two
each, so a few rows show it. Compared are the first and the last row of some groups from all over those rows that are
quickly read, and all rows of a small file. Where no column
has the name of a prompt's text, one that behaves like it is looked for among all columns of text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.read.known_names import NO_PROMPT, PROMPT_TEXTS
from grpo_cli.read.tables import FileTable, FrameTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from grpo_cli.read.group_keys import Coded
    from grpo_cli.read.tables import Table

    Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

GROUPS: Final = 128  # that are compared
FEWEST: Final = 8  # where rows are very long
FILES: Final = 16  # that are looked into
SMALL: Final = 1 << 20  # bytes of files of which all rows are compared
FRAME: Final = 4096  # rows of a frame that are looked at
STRETCHES: Final = 8  # of rows that follow each other, of which other texts are compared,
STRETCH: Final = 64  # and their rows
BYTES: Final = 2 << 20  # of texts that are read, for each column
COLUMNS: Final = 8  # other columns of text that are looked into
_PROMPTS: Final = 8  # different texts that are no coincidence
_WORDS: Final = r"\s|[\u2e80-\uffff]"  # what a text has that is no id or label
_MOST: Final = 0.9  # of the texts
_LONG: Final = 10  # characters of a text, on average
_SHOWN: Final = 30  # characters of a prompt in a message,
_BEFORE: Final = 10  # and those before the first that differs
_ENDS: Final = ".!?"  # of a sentence
_MARKS: Final = "\n\r<>[]"  # between the turns of a conversation that is written as one text
_TURN: Final = 80  # characters that a later turn adds at least, where no mark shows it
_RESPONDS: Final = frozenset({"assistant", "gpt", "model", "ai", "chatbot", "bot"})


class Mixed(NamedTuple):
    """Groups of several prompts: the column that shows them, how many of how many groups, and a group with two prompts."""

    column: str
    groups: int
    compared: int
    code: int
    prompts: tuple[str, str]

    def words(self, key: str, label: str) -> str:
        """What is wrong, as a message says it."""
        one, other = _shortened(*self.prompts)
        of = f"{self.groups:,} of {self.compared:,} groups that were compared"
        return (
            f"groups of {key} hold several prompts: {self.column} differs inside {of} ({label}: {one!r} and {other!r})"
        )


def mixed_prompts(
    columns: Sequence[str], others: Sequence[str], tables: Sequence[Table], lengths: Sequence[int], coded: Coded
) -> Mixed | None:
    """The groups that hold several prompts, as each text column beside the key shows them; None where one says otherwise.

    Where none of these `columns` says anything, the `others` are looked through for one that behaves as prompts do.
    """
    if not columns:
        return _mixed_texts(others, tables, lengths, coded) if others else None
    rows = _compared_rows(tables, lengths, coded)
    if not len(rows):
        return None
    codes = coded.codes.gather(rows).to_list()
    worst = None
    for column in columns:
        prompts: dict[int, list[str]] = {}
        for code, value in zip(codes, _values(tables, lengths, rows, column), strict=True):
            prompt = prompt_of(value)
            if prompt:
                prompts.setdefault(code, []).append(prompt)
        several = {code: texts for code, texts in prompts.items() if len(texts) > 1}
        if len({text for texts in several.values() for text in texts}) < min(2, len(several)):
            continue  # the same text everywhere tells nothing of the groups
        mixed = {code: pair for code, texts in several.items() if (pair := _two_prompts(texts)) is not None}
        if several and not mixed:
            return None
        if mixed and worst is None:
            code, pair = next(iter(mixed.items()))
            worst = Mixed(column, len(mixed), len(several), code, pair)
    return worst


def _mixed_texts(others: Sequence[str], tables: Sequence[Table], lengths: Sequence[int], coded: Coded) -> Mixed | None:
    """The groups that hold several prompts, as a text of any name shows; None where no column behaves as prompts do.

    Prompts are sampled equally often and belong to one group each: every text comes back equally often, in one group
    only. A response does not come back, an answer that is taken out of it does so unequally often, a label is in many groups.
    """
    starts = np.cumsum([0, *lengths])
    parts = [(int(starts[at]), _quick_rows(tables[at], lengths[at])) for at in _some_files(tables)]
    ends = np.cumsum([len(rows) for _, rows in parts])
    of_row = _bytes(tables) / max(1, sum(lengths))
    stretches = int(min(STRETCHES, max(1, BYTES / STRETCH / max(1, of_row))))
    places = np.arange(min(ends[-1], stretches * STRETCH))
    if ends[-1] > len(places):
        firsts = np.linspace(0, ends[-1] - STRETCH, stretches).astype(np.int64)
        places = np.unique(firsts[:, None] + np.arange(STRETCH))
    of_part = np.searchsorted(ends, places, side="right")
    quick = np.concatenate(
        [
            np.asarray(rows)[places[of_part == at] - (ends[at] - len(rows))] + start
            if isinstance(rows, np.ndarray)
            else places[of_part == at] - (ends[at] - len(rows)) + start
            for at, (start, rows) in enumerate(parts)
        ]
    )
    if len(quick) < 2 * _PROMPTS:
        return None
    codes = coded.codes.gather(quick).to_list()
    for column in others:
        texts = _values(tables, lengths, quick, column)
        if not all(isinstance(text, str) for text in texts) or not _are_words(set(texts)):
            continue
        group_of = dict(zip(texts, codes, strict=True))
        if any(group_of[text] != code for text, code in zip(texts, codes, strict=True)):
            continue
        repeats = _repeats(quick, texts, whole=len(quick) == sum(lengths))
        if len(repeats) != 1 or repeats == {1}:
            continue
        prompts: dict[int, list[str]] = {}
        for text, code in group_of.items():
            prompts.setdefault(code, []).append(text)
        mixed = {code: pair for code, several in prompts.items() if (pair := _two_prompts(several)) is not None}
        if mixed:
            code, pair = next(iter(mixed.items()))
            return Mixed(column, len(mixed), len(prompts), code, pair)
    return None


def _are_words(texts: Collection[str]) -> bool:
    """Whether these are several texts that a person could have written, and no ids and labels."""
    worded = sum(re.search(_WORDS, text) is not None for text in texts)
    return len(texts) >= _PROMPTS and worded >= _MOST * len(texts) and sum(map(len, texts)) >= _LONG * len(texts)


def _repeats(rows: Ints, texts: Sequence[str], *, whole: bool) -> set[int]:
    """How often texts come back: in all rows of a file, or in a row where only stretches of them are known from end to end."""
    if whole:
        return {*Counter(texts).values()}
    cuts = [at for at in range(1, len(rows)) if texts[at] != texts[at - 1] or rows[at] != rows[at - 1] + 1]
    runs = [(start, end) for start, end in pairwise([0, *cuts, len(rows)])]
    inner = (
        (start, end)
        for start, end in runs[1:-1]
        if rows[start] == rows[start - 1] + 1 and rows[end] == rows[end - 1] + 1
    )
    return {end - start for start, end in inner}


def mixed_error(mixed: Mixed, key: str, group: Sequence[str], label: str) -> DataError:
    """The error for a key that nobody named and that merges prompts, with both cures."""
    named = ",".join(group)
    if mixed.column in {"messages", "conversation", "conversations", "responses_create_params"}:
        cure = "name the column of the prompt's id with --group"
    else:
        cure = (
            f"--group={mixed.column} makes a group of each prompt (--group={named},{mixed.column}: inside each {named})"
        )
    blocks = "--group-size N cuts blocks where the samples of a prompt follow each other"
    return DataError(mixed.words(key, label), f"{cure}, {blocks}, --group={named} keeps them together")


def prompt_of(value: Any) -> str | None:
    """The text of a prompt; of a conversation what stands before the first response. None where there is none."""
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in {"[", "{"}:  # messages are often kept as JSON text
            with suppress(ValueError, RecursionError):
                return prompt_of(json.loads(text)) or text
        return text or None
    if isinstance(value, dict):
        inner = (value.get(name) for name in ("input", "messages", "prompt", "content", "text", "value"))
        return next((part for one in inner if (part := prompt_of(one))), None)
    if isinstance(value, list):
        return "\n".join(_turns(value)) or None
    return None


def _turns(messages: list[Any]) -> Iterator[str]:
    """What is said in a conversation, or in the parts of a message, before the first response."""
    for message in messages:
        said = message
        if isinstance(message, dict):
            role = message.get("role") or message.get("from")
            if isinstance(role, str) and role.lower() in _RESPONDS:
                return
            said = next((message[name] for name in ("content", "value", "text") if name in message), None)
        if text := prompt_of(said):
            yield text


def _two_prompts(texts: list[str]) -> tuple[str, str] | None:
    """Two texts of which neither is the beginning of the other, as a later turn's prompt goes on from an earlier one's."""
    longest = max(texts, key=len)
    other = next((text for text in texts if text != longest and not _goes_on(text, longest)), None)
    return None if other is None else (longest, other)


def _goes_on(text: str, longer: str) -> bool:
    """Whether a text goes on as a later turn does: behind a sentence, a line feed or a mark, or by more than it holds."""
    if not longer.startswith(text):
        return False
    rest = longer[len(text) :]
    follows = text[-1:] in _ENDS or text[-1:] in _MARKS or rest[:1] in _MARKS
    return follows or len(rest) > max(len(text), _TURN)


def _compared_rows(tables: Sequence[Table], lengths: Sequence[int], coded: Coded) -> Ints:
    """The rows whose prompts are compared, in ascending order."""
    files = _some_files(tables)
    starts = np.cumsum([0, *lengths])
    quick = [(int(starts[at]), _quick_rows(tables[at], lengths[at])) for at in files]
    codes = [
        coded.codes.slice(start, len(rows)).to_numpy()  # nothing is copied: there may be many rows
        if isinstance(rows, range)
        else coded.codes.gather(pl.Series(rows + start)).to_numpy()
        for start, rows in quick
    ]
    small = len(files) == len(tables) and _bytes(tables) <= SMALL
    # Groups from all over the rows, and of them as many as can be read soon where rows are long.
    groups = int(max(FEWEST, min(GROUPS, BYTES // max(1, _bytes(tables) // max(1, sum(lengths)))))) // len(files) + 1
    chosen = np.full(int(max((part.max(initial=0) for part in codes), default=0)) + 1, small)
    for part in codes if not small else ():
        chosen[part[np.linspace(0, max(0, len(part) - 1), min(len(part), groups)).astype(np.int64)]] = True
    here = [np.flatnonzero(chosen[part]) for part in codes]
    rows = np.concatenate(
        [(at if isinstance(one, range) else one[at]) + start for (start, one), at in zip(quick, here, strict=True)]
    )
    if small:
        return rows.astype(np.int64)
    of_rows = np.concatenate([part[at] for part, at in zip(codes, here, strict=True)])
    first, last = (np.unique(some, return_index=True)[1] for some in (of_rows, of_rows[::-1]))
    return np.unique([rows[first], rows[::-1][last]])


def _bytes(tables: Sequence[Table]) -> int:
    """How large the files are."""
    return sum(one.source.pin.size for one in tables if isinstance(one, FileTable))


def _some_files(tables: Sequence[Table]) -> list[int]:
    return [int(at) for at in np.unique(np.linspace(0, len(tables) - 1, FILES).astype(np.int64))]


def _quick_rows(table: Table, height: int) -> range | Ints:
    """Those rows of a file that are quickly read."""
    if isinstance(table, FileTable):
        rows = table.format.quick_rows(table.source, height)
        return rows if isinstance(rows, range) else rows.astype(np.int64)
    return range(min(height, FRAME) if isinstance(table, FrameTable) and table.head is not None else 0)


def _values(tables: Sequence[Table], lengths: Sequence[int], rows: Ints, column: str) -> list[Any]:
    """The values of a column at some rows, file after file; None for those of a file that has no such column."""
    starts = np.cumsum([0, *lengths])
    found: list[Any] = []
    for table, start, end in zip(tables, starts[:-1], starts[1:], strict=True):
        here = rows[(rows >= start) & (rows < end)] - start
        values = None
        if len(here) and column in table.columns():
            if isinstance(table, FileTable):
                values = table.format.values(table.source, here, column, int(end - start))
            elif isinstance(table, FrameTable) and table.head is not None:
                values = table.head(column, int(here[-1]) + 1)[column].gather(here).to_list()
        found += [None] * len(here) if values is None else values
    return found


def prompt_columns(names: Sequence[str], group: Sequence[str]) -> tuple[str, ...]:
    """The text columns that show whether a group is one prompt; none where the key itself is made of one, or is a record."""
    if any(name.split(".")[0] in PROMPT_TEXTS or name.startswith("@") for name in group):
        return ()
    return tuple(name for name in PROMPT_TEXTS if name in names)


def other_texts(table: Table, taken: Collection[str]) -> tuple[str, ...]:
    """Columns of text that may hold prompts under any name, as the first rows show them."""
    texts: Sequence[str] = ()
    if isinstance(table, FileTable):
        sample = table.format.sample(table.source)
        texts = [name for name in table.columns() if any(isinstance(record.get(name), str) for record in sample)]
    elif isinstance(table, FrameTable):
        texts = table.texts
    likely = (name for name in texts if name not in taken and not re.search(NO_PROMPT, name, re.IGNORECASE))
    return tuple(likely)[:COLUMNS]


def _shortened(*texts: str) -> list[str]:
    """Each text on one line, and of long ones the part where the first difference is."""
    lines = [" ".join(text.split()) for text in texts]
    same = next((at for at, pair in enumerate(zip(*lines, strict=False)) if len({*pair}) > 1), min(map(len, lines)))
    start = 0 if same < _SHOWN - _BEFORE else same - _BEFORE
    parts = (line[start : start + _SHOWN] for line in lines)
    return [
        f"{'...' if start else ''}{part}{'...' if len(line) > start + _SHOWN else ''}"
        for part, line in zip(parts, lines, strict=True)
    ]
