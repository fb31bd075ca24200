"""What the records of an export have from the files: conversations, texts and tokens of rows, read a few rows at a time.

Conversations are chat messages, whatever form the file has them in (`write/chat.py`); tools and the columns of --keep
travel with them. A first reading looks at the texts (`look`) and converts what is in another form, so that what cannot be
exported is known before anything is written; a second one writes them, the converted ones from where the first kept them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from grpo_cli.choosing.exports import Looked
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Index
from grpo_cli.errors import DataError, Way
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.texts import Converted, TextColumns, TextStore, hashes_of, refuse_no_text
from grpo_cli.targets.table import Reads
from grpo_cli.values.cells import Excerpt, Place
from grpo_cli.values.json_text import items_of
from grpo_cli.values.key_text import cut
from grpo_cli.values.paths import Absent
from grpo_cli.write import chat
from grpo_cli.write.chat import Chats, NoMessage
from grpo_cli.write.records import (
    TOOLS,
    at_response,
    conversations,
    divided,
    in_list,
    in_one_form,
    tools_as_text,
    unwrapped,
)
from grpo_cli.write.token_lists import TokenColumns, token_advantages

Pieces = Iterator[pl.DataFrame]  # the JSON texts of the records, in frames of some records each
AS_IN_FILE = Way("--form", "raw", "keeps what is in the file")
PIECE_BYTES = 8 << 20  # bytes of texts that are read at once
PIECE_ROWS = 4096  # rows whose records are made at once
SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True, kw_only=True)
class RecordColumns(TextColumns):
    """The columns that records are made from, and the form in which conversations are written."""

    # messages: one list; turns: prompt and completion as two; texts: one turn of the user and the text that answers it; raw: as
    # in the file; None: as many lists as the file has
    form: Literal["messages", "turns", "texts", "raw"] | None = None
    instructions: str = ""  # a text that is the turn of the system before the prompt
    tools: str = ""  # the tools that the model could call
    keep: tuple[str, ...] = ()  # further columns of a record, as they are
    reads: Reads | None = None  # how the trainer of --target reads the records
    converted: Converted | None = None  # the conversations that the first look converted
    skip_formless: bool = False  # leave out conversations with items that have no chat form, instead of stopping

    @property
    def read(self) -> list[str]:
        """All columns that are read for a record."""
        return _columns_of(self.names, self.beside)

    @property
    def beside(self) -> list[str]:
        """The columns that some records may lack."""
        return [name for name in (self.instructions, self.tools, *self.keep) if name]

    @property
    def in_turns(self) -> bool:
        """Whether texts become turns, too."""
        return self.form in {"messages", "turns", "texts"}

    @property
    def carried(self) -> list[str]:
        """What the columns beside the texts are called in a record."""
        return [*([TOOLS] if self.tools else []), *self.keep]


# --- a first look ---------------------------------------------------------------------------------------------------


def look(narrow: Narrow, rows: Index, columns: RecordColumns) -> Looked:
    """Look at the texts of these ascending rows; a column without any text is an error."""
    looking = _Looking(rows, columns)
    converted = Converted(looking.at_all(narrow))
    hashes = {name: pl.concat(parts).to_numpy() for name, parts in looking.hashes.items()}
    for name, array in hashes.items():
        if len(rows) and not array.any():
            raise refuse_no_text(narrow, name, "a text", "--prompt, --response or --messages")
    return Looked(
        rows=rows,
        hashes=hashes,
        unanswered=looking.unanswered,
        changed=looking.changed,
        wrong=looking.wrong,
        converted=converted,
        hidden=looking.hidden,
        branches=looking.branches,
        with_tools=looking.with_tools,
        tools=looking.tools,
        plain=looking.plain,
        few_shot=looking.few_shot,
        tool_results=looking.tool_results,
        reasoning=looking.reasoning,
        formless=looking.formless,
    )


class _Looking:
    """What is found of the texts of some rows, while they are read."""

    def __init__(self, rows: Index, columns: RecordColumns) -> None:
        self.hashes = {name: [hashes_of(pl.Series(dtype=pl.String))] for name in columns.names}
        self.unanswered, self.changed, self.with_tools, self.plain = np.zeros((4, len(rows)), dtype=bool)
        self.few_shot, self.tool_results, self.reasoning = np.zeros((3, len(rows)), dtype=bool)
        self.hidden, self.branches = np.zeros((2, len(rows)), dtype=np.int64)
        self.tools = np.zeros(len(rows), dtype=np.uint64)
        self.formless = dict[int, Counter[str]]()
        self.wrong = dict[int, str]()
        self._rows = rows
        self._columns = columns

    def at_all(self, narrow: Narrow) -> Iterator[tuple[str, Index, pl.Series]]:
        """Look at all rows; the column, the rows and the texts of what was converted."""
        columns = self._columns
        tools = [columns.tools] if columns.tools else []
        start = 0
        for frame, _ in _texts_at(narrow, self._rows, columns.names, tools):
            for name in columns.names:
                texts = in_list(unwrapped(frame[name].alias("")))
                if columns.form != "raw":
                    found = chat.chats(texts)
                    texts = found.texts
                    self._count(found, name, start)
                    if found.changed:
                        at = np.array(found.changed, dtype=np.int64)
                        yield name, self._rows[start + at], texts.gather(at)
                self._see(texts, name, start)
            if tools:
                self._see_tools(_of_file(frame, columns.tools), start)
            start += len(frame)

    def _count(self, found: Chats, name: str, start: int) -> None:
        """What became of conversations; `start` is the position of the first."""
        self.changed[start + np.array(found.changed, dtype=np.int64)] = True
        for at, number in found.hidden.items():
            self.hidden[start + at] += number
        for at, number in found.branches.items():
            self.branches[start + at] = number
        for at, types in found.formless.items():
            self.formless[start + at] = self.formless.get(start + at, Counter()) + types
        for at, why in found.wrong.items():
            self.wrong.setdefault(int(self._rows[start + at]), why)
        if name == (self._columns.response or self._columns.messages):
            silent = chat.unanswered(found.texts).to_numpy().copy()
            silent[[*found.wrong]] = False  # what is no conversation is an error if it is exported
            self.unanswered[start : start + len(silent)] = silent

    def _see(self, texts: pl.Series, name: str, start: int) -> None:
        """What chat messages hold; `start` is the position of the first text."""
        some = slice(start, start + len(texts))
        self.hashes[name].append(hashes_of(texts))
        self.plain[some] |= texts.str.starts_with('"').fill_null(value=False).to_numpy()
        self.reasoning[some] |= _has(texts, r'"reasoning_content"\s*:\s*"[^"]')
        if name == self._columns.prompt:
            self.few_shot[some] = _has(texts, r'"role"\s*:\s*"assistant"')
        else:
            self.tool_results[some] = _has(texts, r'"role"\s*:\s*"tool"')

    def _see_tools(self, texts: pl.Series, start: int) -> None:
        """What the model could call; `start` is the position of the first text."""
        some = slice(start, start + len(texts))
        self.with_tools[some] = chat.have_tools(texts)
        compared = self.with_tools[some] & ~chat.are_traces(texts).fill_null(value=False).to_numpy()
        self.tools[some] = np.where(compared, hashes_of(texts).to_numpy(), np.uint64(0))


def _has(texts: pl.Series, pattern: str) -> Mask:
    """Whether JSON texts contain this pattern."""
    return texts.str.contains(pattern).fill_null(value=False).to_numpy()


def refuse_formless(looked: Looked, rows: Index, *, by_target: bool) -> None:
    """Refuse records whose conversations have items without a chat form; the trainer of --target reads no other form."""
    positions = {*looked.of(rows).tolist()}
    found = [types for at, types in looked.formless.items() if at in positions]
    if found:
        wrong = f"items of {len(found):,} {'row has' if len(found) == 1 else 'rows have'} no form as chat messages: {chat.kinds(found)}"
        skip = Way("--on-error", "skip", "leaves these rows out, and counts them")
        raise DataError(wrong, [skip] if by_target else [skip, AS_IN_FILE])


def refuse_wrong(looked: Looked, rows: Index, narrow: Narrow, *, by_target: bool) -> None:
    """Refuse a record of a conversation that has an item which is no message; the trainer of --target reads no other form."""
    for row in np.intersect1d(rows, np.array([*looked.wrong], dtype=np.int64)).tolist():
        others = Way("--rows", fill="CONDITION", why="exports the other rows")
        raise DataError(looked.wrong[row], others if by_target else AS_IN_FILE, place=narrow.place(row))


# --- texts of records -----------------------------------------------------------------------------------------------


def names_of_responses(columns: RecordColumns) -> list[str]:
    """The columns of a record with a prompt and a response."""
    one_list = columns.form == "messages" or (columns.messages and columns.form != "turns")
    return _renamed([*(["messages"] if one_list else ["prompt", "completion"]), *columns.carried], columns)


def names_of_pairs(columns: RecordColumns) -> list[str]:
    """The columns of a record with a better and a worse response; as one list, each begins with the prompt."""
    texts = ["chosen", "rejected"] if columns.form == "messages" else ["prompt", "chosen", "rejected"]
    return _renamed([*texts, *columns.carried], columns)


def names_of_groups(columns: RecordColumns) -> list[str]:
    """The columns of a record that is a whole group."""
    return _renamed(["prompt", "responses", *columns.carried], columns)


def names_of_prompts(columns: RecordColumns) -> list[str]:
    """The columns of a record of a prompt."""
    return _renamed(["prompt", *columns.carried], columns)


def _renamed(names: Sequence[str], columns: RecordColumns) -> list[str]:
    """The names as the trainer of --target has them."""
    return [columns.reads.names.get(name, name) if columns.reads else name for name in names]


def texts_of_responses(narrow: Narrow, columns: RecordColumns, rows: Index) -> Pieces:
    """Prompts and responses, or conversations."""
    rows, copies = np.unique(rows, return_counts=True)
    done = 0
    for once, at_once in _texts_at(narrow, rows, columns.names, columns.beside, columns.converted):
        frame, place = once, at_once
        of_rows = np.repeat(np.arange(len(once)), copies[done : done + len(once)])
        done += len(once)
        if len(of_rows) > len(once):
            frame, place = once[of_rows], _repeated(at_once, of_rows)
        yield _as_read([*_said(frame, columns, place), *_beside(frame, columns, place)], columns, place)


def _repeated(place: Place, rows: Index) -> Place:
    return lambda at: place(int(rows[at]))


def texts_of_groups(narrow: Narrow, columns: RecordColumns, members: pl.Series) -> Pieces:
    """Whole groups, whose rows may be anywhere in the files, so the texts are first copied to a store on disk."""
    rows = np.unique(members.explode().drop_nulls().to_numpy())
    read = (frame for frame, _ in _texts_at(narrow, rows, columns.names, columns.beside, columns.converted))
    groups = [group.to_numpy() for group in members]
    with TextStore(read, rows, columns.read) as store:
        sizes = np.array([store.size(group).sum() for group in groups], np.int64)
        for some in _of_some_size(sizes):
            parts = [_group(store.take(group), columns, _places(narrow, group)) for group in groups[some]]
            yield pl.concat(parts) if parts else pl.DataFrame()


def _group(frame: pl.DataFrame, columns: RecordColumns, place: Place) -> pl.DataFrame:
    """One group as a record: its prompt, and lists of its responses and of what its rows keep."""
    if columns.messages:
        texts = at_response(_said(frame, replace(columns, form=None), place)["messages"])
    else:
        both = pl.concat([frame[columns.prompt].alias(""), frame[columns.response].alias("")])
        always = columns.in_turns or bool(unwrapped(both).str.contains(r"^[\[{]").any())
        texts = _said(frame, replace(columns, form="turns" if always else None), place)
    one = _as_read([texts["prompt"], texts["completion"].alias("responses")], columns, place)
    responses = columns.reads.names.get("responses", "responses") if columns.reads else "responses"
    record = {name: _as_list(one[name]) if name == responses else one[name][0] for name in one.columns}
    if columns.tools:
        record[TOOLS] = _tools(_of_file(frame, columns.tools)[:1], place)[0]
    record |= {name: _as_list(_of_file(frame, name)) for name in columns.keep}
    return pl.DataFrame({name: pl.Series([text], dtype=pl.String) for name, text in record.items()})


def _as_list(texts: pl.Series) -> str:
    return f"[{','.join(text or 'null' for text in texts)}]"


def texts_of_prompts(narrow: Narrow, columns: RecordColumns, rows: Index) -> Pieces:
    """The prompts; of a conversation the turns before the first response."""
    for frame, place in _texts_at(narrow, rows, columns.names, columns.beside, columns.converted):
        texts = frame.rename({columns.names[0]: "prompt"})
        if columns.messages:
            prompts = at_response(conversations(texts["prompt"], place))["prompt"]
        else:
            (prompts,) = in_one_form(texts.select("prompt"), always=columns.in_turns)
        yield _as_read([_instructed(prompts, frame, columns), *_beside(frame, columns, place)], columns, place)


def texts_of_pairs(narrow: Narrow, columns: RecordColumns, chosen: Index, rejected: Index) -> Pieces:
    """The texts of pairs, whose rows may be anywhere in the files, so the texts are first copied to a store on disk."""
    rows = np.union1d(chosen, rejected)
    read = (frame for frame, _ in _texts_at(narrow, rows, columns.names, columns.beside, columns.converted))
    with TextStore(read, rows, columns.read) as store:
        for some in _of_some_size(store.size(chosen) + store.size(rejected)):
            places = _places(narrow, chosen[some]), _places(narrow, rejected[some])
            better = store.take(chosen[some])
            worse = store.take(rejected[some])
            _refuse_two_values(better, worse, columns.keep, places)
            parts = [*_pair(better, worse, columns, places), *_beside(better, columns, places[0])]
            yield _as_read(parts, columns, places[0])


def advantages_of_tokens(narrow: Narrow, columns: TokenColumns, rows: Index, advantages: pl.Series) -> Pieces:
    """The token columns, and a list with the advantage of each token."""
    done = 0
    for frame, place in _texts_at(narrow, rows, columns.names):
        yield from token_advantages(frame, advantages[done : done + len(frame)], columns, place)
        done += len(frame)


def _said(frame: pl.DataFrame, columns: RecordColumns, place: Place) -> pl.DataFrame:
    """What was asked and answered, under the names that a record has for it."""
    if columns.messages:
        lists = conversations(frame[columns.messages], place).alias("messages")
        lists = _instructed(lists, frame, columns)
        return at_response(lists) if columns.form == "turns" else lists.to_frame()
    both = {"prompt": frame[columns.prompt], "completion": frame[columns.response]}
    texts = in_one_form(pl.DataFrame(both), always=columns.in_turns)
    texts = texts.with_columns(_instructed(texts["prompt"], frame, columns))
    if columns.form == "messages":
        return chat.joined(texts["prompt"], texts["completion"]).alias("messages").to_frame()
    return texts


def _pair(
    better: pl.DataFrame, worse: pl.DataFrame, columns: RecordColumns, places: tuple[Place, Place]
) -> pl.DataFrame:
    """Two conversations with one prompt: as prompt, chosen and rejected, or each as one list."""
    if columns.messages:
        lists = replace(columns, form="raw" if columns.form == "raw" else None)
        chosen, rejected = (_said(one, lists, at)["messages"] for one, at in zip((better, worse), places, strict=True))
        if columns.form == "messages":
            return pl.DataFrame([chosen.alias("chosen"), rejected.alias("rejected")])
        return divided(chosen, rejected)
    # One form for all three: a pair of a text and a list would be no pair.
    three = {"prompt": better[columns.prompt], "chosen": better[columns.response], "rejected": worse[columns.response]}
    texts = in_one_form(pl.DataFrame(three), always=columns.in_turns)
    texts = texts.with_columns(_instructed(texts["prompt"], better, columns))
    if columns.form == "messages":
        return pl.DataFrame([chat.joined(texts["prompt"], texts[name]).alias(name) for name in ("chosen", "rejected")])
    return texts


def _instructed(lists: pl.Series, frame: pl.DataFrame, columns: RecordColumns) -> pl.Series:
    """Lists that begin with the instructions of their rows, which some files have beside the prompt."""
    if not columns.instructions or columns.form == "raw":
        return lists
    return chat.with_instructions(lists, frame[columns.instructions])


# --- as a trainer reads it ------------------------------------------------------------------------------------------

_TEXTS = ("prompt", "completion", "messages", "chosen", "rejected", "responses")


def _as_read(parts: Sequence[pl.Series], columns: RecordColumns, place: Place) -> pl.DataFrame:
    """The columns of some records in the form and by the names of the trainer of --target."""
    reads = columns.reads
    if reads is None:
        return pl.DataFrame(parts)
    made = []
    for part in parts:
        column = part
        if column.name in _TEXTS:
            if reads.arguments:
                column = chat.with_arguments(column, reads.arguments)
            if reads.form == "texts":
                column = _one_text(column, place)
            elif reads.turns == "one" and column.name in {"chosen", "rejected"}:
                column = _one_turn(column, place)
        elif column.name == TOOLS:
            if reads.tools == "text":
                column = tools_as_text(column)
            if reads.tools_never_null:
                column = column.fill_null("[]")
        made.append(column.alias(reads.names.get(column.name, column.name)))
    return pl.DataFrame(made)


def _one_text(lists: pl.Series, place: Place) -> pl.Series:
    texts, is_one = chat.as_texts(lists, "user" if lists.name == "prompt" else "assistant")
    if not is_one.all():
        at = (~is_one).arg_max() or 0
        wrong = f"the {lists.name} is more than one text, which is all that this trainer reads"
        raise DataError(wrong, "choose a target that reads conversations: grpo-adv targets", place=place(at))
    return texts


def _one_turn(lists: pl.Series, place: Place) -> pl.Series:
    """The only message of each list."""
    found = []
    for at, text in enumerate(lists.to_list()):
        turns = items_of(text)
        if len(turns) != 1:
            wrong = f"the {lists.name} response has {len(turns)} turns, and this trainer reads one"
            raise DataError(wrong, "choose a target that reads conversations: grpo-adv targets", place=place(at))
        if json.loads(turns[0]).get("tool_calls"):
            wrong = f"the {lists.name} response calls a tool, and this trainer reads its text alone"
            raise DataError(wrong, "choose a target that reads conversations: grpo-adv targets", place=place(at))
        found.append(turns[0])
    return pl.Series(lists.name, found, dtype=pl.String)


# --- beside the texts -----------------------------------------------------------------------------------------------


def _beside(frame: pl.DataFrame, columns: RecordColumns, place: Place) -> Iterator[pl.Series]:
    """The tools and the columns to keep of these rows."""
    if columns.tools:
        yield _tools(_of_file(frame, columns.tools), place).alias(TOOLS)
    for name in columns.keep:
        yield _of_file(frame, name)


def _tools(texts: pl.Series, place: Place) -> pl.Series:
    """Lists of tools as chat messages name them; few are different, so each is read once."""
    known = dict[str | None, str | None]()
    for at, text in enumerate(texts.to_list()):
        if text not in known:
            try:
                known[text] = chat.tools(text)
            except NoMessage as error:
                raise DataError(str(error), Way("--tools", "none", "leaves them out"), place=place(at)) from None
    return pl.Series([known[text] for text in texts], dtype=pl.String)


def _refuse_two_values(
    better: pl.DataFrame, worse: pl.DataFrame, names: Sequence[str], places: tuple[Place, Place]
) -> None:
    """Refuse a pair whose rows do not share what its record is to keep."""
    for name in names:
        ours, theirs = _of_file(better, name), _of_file(worse, name)
        differs = ours.ne_missing(theirs)
        if differs.any():
            at = differs.arg_max() or 0
            raise two_values(name, (ours[at], theirs[at]), (places[0](at), places[1](at)), "a pair")


def refuse_different(narrow: Narrow, rows: Index, codes: Index, names: Sequence[str]) -> None:
    """Refuse a prompt whose rows do not share what its record is to keep; `codes` are the prompts of the ascending rows."""
    first = dict[int, tuple[int, dict[str, str | None]]]()  # the row that came first, and its values
    done = 0
    for frame, _ in _texts_at(narrow, rows, [], names) if names else ():
        for values in frame.to_dicts():
            row, code = int(rows[done]), int(codes[done])
            done += 1
            before, known = first.setdefault(code, (row, values))
            for name in names:
                if known[name] != values[name]:
                    places = narrow.place(before), narrow.place(row)
                    raise two_values(name, (known[name], values[name]), places, "a prompt")


def two_values(name: str, values: tuple[str | None, str | None], places: tuple[str, str], what: str) -> DataError:
    """The error for a column to keep with two values in the rows of one record."""
    first, second = (f"{cut(value or 'null', SHOWN)} ({place})" for value, place in zip(values, places, strict=True))
    return DataError(f"the rows of {what} have two values of {name}: {first} and {second}", f"leave out --keep {name}")


# --- reading --------------------------------------------------------------------------------------------------------


def _texts_at(
    narrow: Narrow,
    rows: Index,
    columns: Sequence[str],
    beside: Sequence[str] = (),
    converted: Converted | None = None,
) -> Iterator[tuple[pl.DataFrame, Place]]:
    """The JSON texts of columns at ascending rows, some rows at a time, and the file and row of each, for errors.

    A file may lack the columns `beside`: they are null there. Conversations that are `converted` are read from there.
    """
    done = 0
    read = dict.fromkeys([*columns, *beside])
    for at, here in narrow.by_file(narrow.places_of(rows)):
        table = narrow.tables[at]
        lacks = [name for name in beside if name not in columns and _lacks(narrow, at, here, name)]
        there = [name for name in read if name not in lacks]
        for frame in table.rows(Excerpt(narrow.scans[at].index, here, there, as_json=True)):
            missing = [pl.lit(None, pl.String).alias(name) for name in lacks]
            whole = frame.with_columns(missing)
            of_frame = rows[done : done + len(frame)]
            whole = whole.with_columns(whole[name].alias(_in_file(name)) for name in beside if name in columns)
            if converted is not None:
                whole = whole.with_columns(converted.into(whole[name], name, of_frame) for name in columns)
            yield whole[_columns_of(columns, beside)], _places(narrow, of_frame)
            done += len(frame)


def _in_file(name: str) -> str:
    """What a column beside the texts is called that is one of the texts as well, and stays what it is in the file."""
    return f"{name} (as in the file)"


def _columns_of(texts: Sequence[str], beside: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*texts, *(_in_file(name) if name in texts else name for name in beside)]))


def _of_file(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column beside the texts."""
    return (frame[_in_file(name)] if _in_file(name) in frame.columns else frame[name]).alias(name)


def _lacks(narrow: Narrow, at: int, here: Index, name: str) -> bool:
    """Whether a file has no such column; lines of JSON have every column, in some of them null."""
    try:
        for _ in narrow.tables[at].rows(Excerpt(narrow.scans[at].index, here[:1], [name], as_json=True)):
            pass
    except Absent:
        return True
    return False


def _of_some_size(sizes: Index) -> Iterator[slice]:
    """Slices of records of some bytes each."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        base = ends[start - 1] if start else 0
        fits = int(np.searchsorted(ends, base + PIECE_BYTES, side="right"))
        some = slice(start, min(max(start + 1, fits), start + PIECE_ROWS))
        yield some
        start = some.stop


def _places(narrow: Narrow, rows: Index) -> Callable[[int], str]:
    return lambda at: narrow.place(int(rows[at]))
