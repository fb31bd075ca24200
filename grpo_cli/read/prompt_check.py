"""Whether each group has a single prompt: the texts of prompts are compared in a sample of the rows.

An id that does not identify a prompt (`task_id` = easy, medium, hard) merges nearly all prompts, and ids that restart
merge two each, so a few rows show it. The sample is the first and the last row of some groups, spread over all rows that
are cheap to read; all rows of a small file. If no column has the name of a prompt, the other text columns are searched
for one that behaves like a prompt.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from grpo_cli.engine.moments import Index
from grpo_cli.errors import Cure, DataError, Way
from grpo_cli.formats.frame import FrameReader
from grpo_cli.read.group_keys import Coded
from grpo_cli.read.known_names import CONVERSATIONS, NO_PROMPT, PROMPT_TEXTS
from grpo_cli.read.tables import Located, Table, size_of
from grpo_cli.values.chat import responds
from grpo_cli.values.key_text import labels_of
from grpo_cli.values.paths import as_value

GROUPS = 128  # groups in the sample
FEWEST = 8  # groups at least, if rows are very long
FILES = 16  # files in the sample
SMALL = 1 << 20  # bytes: smaller files are compared completely
STRETCHES = 8  # runs of consecutive rows in which other texts are compared
STRETCH = 64  # rows of each run
BYTES = 2 << 20  # bytes of text that are read for each column
COLUMNS = 8  # other text columns that are searched
_PROMPTS = 8  # distinct texts at least, in a column of prompts
_WORDS = r"\s|[\u2e80-\uffff]"  # in prompts, unlike ids: spaces, or a script without spaces
_MOST = 0.9  # least share of such texts in a column of prompts
_LONG = 10  # least mean length of its texts, in characters
_SAID = ("input", "messages", "prompt", "content", "text", "value")  # fields with the text of an object
_SHOWN = 30  # characters of a prompt in a message
_ENDS = ".!?"  # characters that end a sentence
_MARKS = "\n\r<>[]"  # characters between the turns of a conversation in one text
_TURN = 80  # characters that a later turn adds at least, unless a mark precedes it


class SeveralPrompts(str):
    """The warning that groups have several prompts."""

    __slots__ = ()


class Mixed(NamedTuple):
    """Groups with several prompts: the column that shows it, how many of how many groups, and an example."""

    column: str
    groups: int
    compared: int
    code: int
    prompts: tuple[str, str]

    @classmethod
    def of(cls, column: str, prompts: Mapping[int, Sequence[str]]) -> Mixed | None:
        """The groups among these that have several prompts; None if there are none."""
        mixed = {code: pair for code, texts in prompts.items() if (pair := _two_prompts(texts)) is not None}
        return cls(column, len(mixed), len(prompts), *next(iter(mixed.items()))) if mixed else None

    def words(self, key: str, label: str) -> SeveralPrompts:
        """The message."""
        first, other = labels_of(self.prompts, _SHOWN)
        of = f"{self.groups:,} of {self.compared:,} groups that were compared"
        differ = f"{self.column} differs inside {of} ({label}: {first!r} and {other!r})"
        return SeveralPrompts(f"groups of {key} hold several prompts: {differ}")


def mixed_prompts(read: Located, coded: Coded, columns: Sequence[str], others: Sequence[str]) -> Mixed | None:
    """The groups with several prompts, according to every one of these text columns; None if any of them disagrees.

    Without such `columns`, the `others` are searched for a column that behaves like prompts.
    """
    if not columns:
        return _mixed_texts(read, coded, others) if others else None
    rows = _compared_rows(read, coded)
    if not len(rows):
        return None
    codes = coded.codes.gather(rows).to_list()
    worst = None
    for column in columns:
        prompts: dict[int, list[str]] = {}
        for code, value in zip(codes, _values(read, rows, column), strict=True):
            prompt = prompt_of(value)
            if prompt:
                prompts.setdefault(code, []).append(prompt)
        several = {code: texts for code, texts in prompts.items() if len(texts) > 1}
        if len({text for texts in several.values() for text in texts}) < min(2, len(several)):
            continue  # the same text everywhere says nothing about groups
        mixed = Mixed.of(column, several)
        if several and mixed is None:
            return None
        worst = worst or mixed
    return worst


def rows_read(read: Located, coded: Coded, columns: Sequence[str]) -> Index:
    """The rows whose texts `mixed_prompts` reads."""
    return _compared_rows(read, coded) if columns else _stretches(read)


def _mixed_texts(read: Located, coded: Coded, others: Sequence[str]) -> Mixed | None:
    """The groups with several prompts, according to a text column of any name; None if no column behaves like prompts.

    Prompts are sampled equally often, each in one group: every text repeats equally often, and only in that group.
    Responses do not repeat, extracted answers repeat unequally often, and labels occur in many groups.
    """
    cheap = _stretches(read)
    if len(cheap) < 2 * _PROMPTS:
        return None
    codes = coded.codes.gather(cheap).to_list()
    for column in others:
        texts = _values(read, cheap, column)
        if not all(isinstance(text, str) for text in texts) or not _are_words(set(texts)):
            continue
        group_of = dict(zip(texts, codes, strict=True))
        if any(group_of[text] != code for text, code in zip(texts, codes, strict=True)):
            continue
        repeats = _repeats(cheap, texts, whole=len(cheap) == len(coded.codes))
        if len(repeats) != 1 or repeats == {1}:
            continue
        prompts: dict[int, list[str]] = {}
        for text, code in group_of.items():
            prompts.setdefault(code, []).append(text)
        if mixed := Mixed.of(column, prompts):
            return mixed
    return None


def _stretches(read: Located) -> Index:
    """All rows that are cheap to read, or runs of them."""
    cheap = np.concatenate(_cheap_rows(read))
    of_row = size_of(read.tables) / max(1, sum(read.lengths))
    stretches = int(min(STRETCHES, max(1, BYTES / STRETCH / max(1, of_row))))
    if len(cheap) > stretches * STRETCH:
        firsts = np.linspace(0, len(cheap) - STRETCH, stretches).astype(np.int64)
        cheap = cheap[np.unique(firsts[:, None] + np.arange(STRETCH))]
    return cheap


def _are_words(texts: Collection[str]) -> bool:
    """Whether these could be prompts written by people, not ids or labels."""
    count = len(texts)
    with_words = sum(re.search(_WORDS, text) is not None for text in texts)
    characters = sum(map(len, texts))
    return count >= _PROMPTS and with_words >= _MOST * count and characters >= _LONG * count


def _repeats(rows: Index, texts: Sequence[str], *, whole: bool) -> set[int]:
    """How often each text occurs: in all rows, or consecutively if only runs of rows are known."""
    if whole:
        return {*Counter(texts).values()}
    follows = np.append(False, np.diff(rows) == 1)  # the row before
    cuts = [at for at in range(1, len(rows)) if texts[at] != texts[at - 1] or not follows[at]]
    return {end - start for start, end in pairwise(cuts) if follows[start] and follows[end]}


def mixed_error(mixed: Mixed, key: str, group: Sequence[str], label: str) -> DataError:
    """The error for a key that was found by name and merges prompts, with the ways out."""
    named = as_value(*group)
    if mixed.column in {*CONVERSATIONS, "responses_create_params"}:
        cures: list[Cure] = [Way("--group", lead="name the column of the prompt's id with")]
    else:
        cures = [
            f"--group={as_value(mixed.column)} makes a group of each prompt",
            f"--group={as_value(*group, mixed.column)} makes one inside each {', '.join(group)}",
        ]
    why = "cuts blocks where the samples of a prompt follow each other"
    cures += [Way("--group-size", why=why, fill="N"), f"--group={named} keeps them together"]
    return DataError(mixed.words(key, label), cures)


def prompt_of(value: Any) -> str | None:
    """The text of a prompt; for a conversation, everything before the first response. None if there is no text."""
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in {"[", "{"}:  # messages are often stored as JSON text
            with suppress(ValueError, RecursionError):
                return prompt_of(json.loads(text)) or text
        return text or None
    if isinstance(value, dict):
        inner = map(value.get, _SAID)
        return next((part for item in inner if (part := prompt_of(item))), None)
    if isinstance(value, list):
        return "\n".join(_turns(value)) or None
    return None


def is_empty(value: Any) -> bool:
    """Whether a prompt has no text, nor anything else such as an image."""
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in {"[", "{", '"'}:
            with suppress(ValueError, RecursionError):
                return is_empty(json.loads(text))
        return not text
    if isinstance(value, dict):
        said = [value[name] for name in _SAID if name in value]
        return all(map(is_empty, said or value.values()))
    return all(map(is_empty, value)) if isinstance(value, list) else value is None


def _turns(messages: list[Any]) -> Iterator[str]:
    """The texts of a conversation, or of the parts of a message, before the first response."""
    for message in messages:
        said = message
        if responds(message):
            return
        if isinstance(message, dict):
            said = next((message[name] for name in ("content", "value", "text") if name in message), None)
        if text := prompt_of(said):
            yield text


def _two_prompts(texts: Sequence[str]) -> tuple[str, str] | None:
    """Two prompts, neither a later turn of the other; None if all are turns of one conversation."""
    longest = max(texts, key=len)
    other = next((text for text in texts if text != longest and not _goes_on(text, longest)), None)
    return None if other is None else (longest, other)


def _goes_on(text: str, longer: str) -> bool:
    """Whether the longer text continues the other like a later turn: after a sentence or a mark, or at length."""
    if not longer.startswith(text):
        return False
    rest = longer[len(text) :]
    follows = text[-1:] in _ENDS or text[-1:] in _MARKS or rest[:1] in _MARKS
    return follows or len(rest) > max(len(text), _TURN)


def _compared_rows(read: Located, coded: Coded) -> Index:
    """The rows of the sample, in ascending order."""
    cheap = _cheap_rows(read)
    size = size_of(read.tables)
    rows = np.concatenate(cheap)
    if len(cheap) == len(read.tables) and size <= SMALL:
        return rows
    # Groups spread over all rows; fewer if rows are long.
    row_bytes = max(1, size // max(1, sum(read.lengths)))
    groups = max(FEWEST, min(GROUPS, BYTES // row_bytes))
    of_each = groups // len(cheap) + 1
    codes = coded.codes.to_numpy()
    chosen = np.zeros(coded.size, bool)
    for part in cheap:
        last = max(0, len(part) - 1)
        places = np.linspace(0, last, min(len(part), of_each)).astype(np.int64)
        chosen[codes[part[places]]] = True
    rows = rows[chosen[codes[rows]]]
    backwards = rows[::-1]
    _, firsts = np.unique(codes[rows], return_index=True)
    _, lasts = np.unique(codes[backwards], return_index=True)
    return np.unique([rows[firsts], backwards[lasts]])


def _cheap_rows(read: Located) -> list[Index]:
    """For some files, the rows that are cheap to read."""
    found = []
    for at in np.unique(np.linspace(0, len(read.tables) - 1, FILES).astype(np.int64)).tolist():
        table = read.tables[at]
        cheap = table.format.cheap_rows(table.source, read.scans[at].index, read.lengths[at])
        rows, inside = read.rows_of(at)
        found.append(rows[inside < cheap if isinstance(cheap, int) else np.isin(inside, cheap)])
    return found


def _values(read: Located, rows: Index, column: str) -> list[Any]:
    """The values of a column at some rows; None for rows of a file that lacks the column."""
    return [record.get(column) for record in read.records(rows, [column])]


def prompts_by_name(names: Sequence[str], group: Sequence[str]) -> tuple[str, ...]:
    """The text columns that are prompts by name; none if the key contains one or is a record."""
    if any(name.split(".")[0] in PROMPT_TEXTS or name.startswith("@") for name in group):
        return ()
    return tuple(name for name in PROMPT_TEXTS if name in names)


def other_texts(table: Table, taken: Collection[str]) -> tuple[str, ...]:
    """Text columns that may be prompts under another name, by their first rows."""
    known = table.format
    texts = known.in_memory if isinstance(known, FrameReader) else _text_columns(table)
    return tuple(name for name in texts if name not in taken and _may_be_prompt(name))[:COLUMNS]


def _text_columns(table: Table) -> Sequence[str]:
    """Columns with texts in the first rows; those inside objects come last."""
    texts: dict[str, None] = {}
    inside: dict[str, None] = {}
    for record in table.sample().records:
        for name, value in record.items():
            fields = value.items() if isinstance(value, dict) else ()
            inside |= {f"{name}.{part}": None for part, inner in fields if isinstance(inner, str)}
            texts |= {name: None} if isinstance(value, str) else {}
    in_order = [name for name in table.columns() if name in texts]
    return [*in_order, *inside]


def _may_be_prompt(name: str) -> bool:
    """Whether no part of the name says response; the prompt may be inside what an agent observes."""
    head, dot, leaf = name.partition(".")
    outer = re.sub("observ(ation)?s?", "", head) if dot else ""
    return not re.search(NO_PROMPT, f"{outer}.{leaf}" if dot else head, re.IGNORECASE)
