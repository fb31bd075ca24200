"""The texts of rollouts and the keys of groups: which columns they are in, what was said, and how a few of them are shown."""

from __future__ import annotations

import json
import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations, groupby, takewhile
from operator import attrgetter
from typing import Any, NamedTuple, Self, cast

import numpy as np
import polars as pl

from grpo_cli.engine.column_stats import Words
from grpo_cli.engine.moments import Index
from grpo_cli.errors import DataError, UsageError, Way
from grpo_cli.files.inputs import spooled
from grpo_cli.read.known_names import CONVERSATIONS, PROMPTS, RESPONSES, STOPS, TEXTS, TRUTHS
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import SHOWN, Table, column_names, label
from grpo_cli.schemas.table import Schema
from grpo_cli.values.cells import canonical, json_text
from grpo_cli.values.chat import is_model
from grpo_cli.values.key_text import cells, cut, labels_of, plain, shared, told_apart, without
from grpo_cli.values.paths import is_there

Hashes = Words

EMPTY = ('""', "[]", "{}")  # the JSON of a text or a list that says nothing
MISSING = 0  # the hash of a text that is missing


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """The columns of the texts: prompt and response, or a conversation with both."""

    prompt: str = ""
    response: str = ""
    messages: str = ""

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [name for name in (self.prompt, self.response, self.messages) if name]

    @property
    def words(self) -> str:
        """The columns as the summary names them."""
        parts = {"messages": self.messages, "prompt": self.prompt, "response": self.response}
        return ", ".join(f"{part} = {name}" for part, name in parts.items() if name)


def text_columns(tables: Sequence[Table], named: TextColumns, *, prompt_only: bool = False) -> TextColumns:
    """The columns of the texts: by flag, else by schema, else by known names."""
    if named.messages and (named.prompt or named.response):
        raise UsageError("--messages already contains the response", "leave out --prompt and --response")
    names = column_names(tables)
    found = _found(names, tables[0].schema, named, prompt_only=prompt_only)
    if found.messages or (found.prompt and (found.response or prompt_only)):
        return found
    missing = "response" if found.prompt else "prompt"
    listed = ", ".join(names[:20])
    cures = [Way("--prompt", why="" if prompt_only else "and --response NAME", lead="give", fill="NAME")]
    if not prompt_only:
        cures.append(Way("--messages", why="for a conversation", lead="give", fill="NAME"))
    raise DataError(f"no column looks like the {missing} (columns: {listed})", cures, place=tables[0].name)


def some_texts(table: Table, named: TextColumns) -> TextColumns:
    """The columns of the texts of a table to show, as far as there are any; a response has more names here."""
    names = table.columns()
    found = _found(names, table.schema, named)
    if found.messages or found.response:
        return found
    return replace(found, response=next((name for name in TEXTS if name in names), ""))


def _found(
    names: Sequence[str], schema: Schema | None, named: TextColumns, *, prompt_only: bool = False
) -> TextColumns:
    """A conversation, or a prompt and a response, of which one may be missing."""
    if named.messages:
        return named

    def by_schema(part: str) -> str:
        name = "" if schema is None else getattr(schema, part)
        return name if is_there(name, names) else ""

    def column(part: str, known: Sequence[str]) -> str:
        return getattr(named, part) or by_schema(part) or next((name for name in known if name in names), "")

    prompt = column("prompt", PROMPTS)
    response = "" if prompt_only else column("response", RESPONSES)
    messages = column("messages", CONVERSATIONS)
    pair = prompt and (response or prompt_only) and not by_schema("messages")
    if messages and not (pair or named.prompt or named.response):
        return TextColumns(messages=messages)
    return TextColumns(prompt=prompt, response=response)


def refuse_same_column(columns: Any) -> None:
    """Refuse a column that two fields of this dataclass name."""
    named = asdict(columns)
    for part, other in combinations(named, 2):
        name = named[part]
        if name and name == named[other]:
            parts = f"{part} and {other}".replace("_", " ")
            raise UsageError(f"{parts} are both the column {name!r}", ["give each its own column", "leave one out"])


def text_hashes(narrow: Narrow, rows: Index, columns: Sequence[str]) -> dict[str, Hashes]:
    """A hash for each text; 0 if it is missing or empty."""
    flags = "--prompt, --response or --messages"
    return of_texts(narrow, rows, columns, "a text", flags, lambda _, texts: hashes_of(texts))


def hashes_of(texts: pl.Series) -> pl.Series:
    """A hash for each JSON text; 0 if it is missing or empty."""
    missing = texts.is_in(EMPTY) | texts.is_null()
    return texts.hash().set(missing, MISSING)


def text_lengths(narrow: Narrow, rows: Index, column: str) -> Any:
    """The number of characters of each text; of a conversation, of its JSON."""

    def lengths(_: str, texts: pl.Series) -> pl.Series:
        plain = [json.loads(text) if text and text[0] == '"' else text or "" for text in texts]
        return pl.Series([*map(len, plain)], dtype=pl.Float64)

    return of_texts(narrow, rows, [column], "a text", "--response or --messages", lengths)[column]


def of_texts(
    narrow: Narrow,
    rows: Index,
    columns: Sequence[str],
    what: str,
    flags: str,
    values: Callable[[str, pl.Series], pl.Series],
) -> dict[str, Any]:
    """For each column an array with the `values` of its JSON texts; a column without any is an error: no row has `what`, and `flags` name another column."""
    parts = {name: [values(name, pl.Series(dtype=pl.String))] for name in columns}
    for frame in narrow.texts_at(rows, columns):
        for name, found in parts.items():
            found.append(values(name, frame[name].alias("")))
    arrays = {name: pl.concat(found).to_numpy() for name, found in parts.items()}
    for name, array in arrays.items():
        if len(rows) and not array.any():
            raise refuse_no_text(narrow, name, what, flags)
    return arrays


def refuse_no_text(narrow: Narrow, name: str, what: str, flags: str) -> DataError:
    """The error for a column in which no row has `what`; `flags` name another one."""
    table = narrow.tables[0]
    cure = f"the columns are {', '.join(table.columns()[:20])}: name another one with {flags}"
    return DataError(f"no row has {what} in the column {name!r}", cure, place=table.name)


class TextStore:
    """The texts of some rows in a temporary file, for random access; `frames` have those of the ascending rows."""

    def __init__(self, frames: Iterable[pl.DataFrame], rows: Index, columns: Sequence[str]) -> None:
        self._rows = rows
        self._type = pl.Struct(dict.fromkeys(columns, pl.String))
        ends = [np.zeros(1, np.int64)]

        def parts() -> Iterator[bytes]:
            for frame in frames:
                records = frame.to_struct().struct.json_encode()
                sizes = records.str.len_bytes().cast(pl.Int64)
                ends.append(ends[-1][-1] + sizes.cum_sum().to_numpy())
                yield "".join(records).encode()

        self._fd = cast("int", spooled(parts(), "the texts of the records").fd)
        self._ends = np.concatenate(ends)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def size(self, rows: Index) -> Index:
        """The size in bytes of the record of each of these rows."""
        at = np.searchsorted(self._rows, rows)
        return self._ends[at + 1] - self._ends[at]

    def take(self, rows: Index) -> pl.DataFrame:
        """The JSON texts at these rows."""
        at = np.searchsorted(self._rows, rows)
        spans = zip(self._ends[at].tolist(), self._ends[at + 1].tolist(), strict=True)
        records = [os.pread(self._fd, end - start, start).decode() for start, end in spans]
        decoded = pl.Series(records, dtype=pl.String).str.json_decode(self._type)
        return decoded.struct.unnest()


# --- what was said -------------------------------------------------------------------------------------------------

_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_TURN = re.compile(
    r"<\|im_start\|>([\w-]+)\n?(.*?)(?:<\|im_end\|>\n?|(?=<\|im_start\|>)|\Z)"
    r"|<\|start_header_id\|>([\w-]+)<\|end_header_id\|>\s*(.*?)(?:<\|eot_id\|>|(?=<\|start_header_id\|>)|\Z)"
    r"|<start_of_turn>([\w-]+)\n?(.*?)(?:<end_of_turn>\n?|(?=<start_of_turn>)|\Z)",
    re.DOTALL,
)
_THINKING = re.compile(r"\A(?P<before>\s*)<(?P<tag>think|thinking|reasoning)>(?P<inside>.*?)</(?P=tag)>", re.DOTALL)

_WRITTEN = re.compile(r"\[[^]\n]+]\n")


class Passage(NamedTuple):
    """A piece of a rollout: who said it, and what."""

    speaker: str
    text: str


class Said(NamedTuple):
    """What was said in a rollout: what the model was asked, and what it and its tools said from then on."""

    prompt: list[Passage]
    response: list[Passage]
    stop: str = ""  # why it ended, if the file says so


class Reader:
    """Reads the texts of rows of a narrow table, and their records."""

    def __init__(self, narrow: Narrow, named: TextColumns) -> None:
        """`named` are the columns that flags name."""
        self._narrow = narrow
        self._named = named

    def columns(self, file: int) -> TextColumns:
        """The text columns of a file; none if no column looks like one."""
        return some_texts(self._narrow.tables[file], self._named)

    def said(self, rows: Index) -> list[Said]:
        """What was said in these rollouts; empty where no column has a text."""
        found = {}
        files = self._narrow.file.gather(rows).to_numpy()
        for file in np.unique(files).tolist():
            columns = self.columns(file)
            here = rows[files == file]
            stops = [name for name in STOPS if name in self._narrow.tables[file].columns()]
            records = self._values(file, here, [*columns.names, *stops])
            for row, values in zip(here.tolist(), records, strict=True):
                stop = next((str(values[name]) for name in stops if values.get(name)), "")
                found[row] = _laid_out(columns, values)._replace(stop=stop)
        return [found[row] for row in rows.tolist()]

    def passages(self, row: int) -> list[Passage]:
        """What was said in one rollout, from the first to the last."""
        (said,) = self.said(np.array([row]))
        return [*said.prompt, *said.response]

    def texts(self, columns: TextColumns, row: Mapping[str, str | None]) -> Iterator[str]:
        """All that was said in a rollout, from the JSON texts of these columns: as it is stored, then as it is laid out."""
        values = {name: _value(text) for name, text in row.items()}
        yield from (value for value in values.values() if isinstance(value, str))
        said = _laid_out(columns, values)
        yield from (passage.text for passage in (*said.prompt, *said.response))

    def fields(self, row: int) -> list[Passage]:
        """Every field of the record by its name, the ground truth first."""
        file = self._narrow.file[row]
        (values,) = self._values(file, np.array([row]), self._narrow.tables[file].columns())
        truths = [name for name in TRUTHS if name in values]
        names = dict.fromkeys((*truths, *values))
        return [*chain.from_iterable(_of_field(name, values[name]) for name in names if values[name] is not None)]

    def _values(self, file: int, rows: Index, names: Sequence[str]) -> list[dict[str, Any]]:
        """Some columns of rows of a file as values of JSON."""
        self._narrow.tables[file].source.check()
        records = self._narrow.records(rows, names, as_json=True)
        return [{name: _value(text) for name, text in row.items()} for row in records]


def written(passages: Sequence[Passage]) -> str | None:
    """The passages as one text, each under its speaker if there are several; None if there are none."""
    if len(passages) <= 1:
        return passages[0].text if passages else None
    return "\n\n".join(f"[{passage.speaker}]\n{passage.text}" for passage in passages)


def has_turns(text: str) -> bool:
    """Whether a text was `written` from several passages."""
    return _WRITTEN.match(text) is not None


def _laid_out(columns: TextColumns, values: Mapping[str, Any]) -> Said:
    """The passages of the texts of a row; a prompt or a response that is there may be empty."""

    def of(name: str, speaker: str) -> list[Passage]:
        value = values.get(name) if name else None
        if value is None:
            return []
        return [*passages_of(value, speaker)] or [Passage(speaker, "")]

    prompt = of(columns.prompt, "prompt")
    said = of(columns.messages, "message") or of(columns.response, "response")
    if len(prompt) > 1 and not prompt[-1].text:
        prompt.pop()  # the beginning of a turn, which a template puts before the response
    if not prompt:
        asked = [*takewhile(lambda passage: not is_model(re.split("[ ,]", passage.speaker)[0]), said)]
    else:  # a conversation begins with its prompt
        asked = said[: len(prompt)]
        texts = [each.text for each in asked]
        if texts != [each.text for each in prompt]:
            asked = []
    return Said(prompt or asked, said[len(asked) :])


def _of_field(name: str, value: Any) -> Iterator[Passage]:
    """A field of a record by its name: messages one by one, with the name before the speaker of each; all else as it is."""
    if isinstance(value, list) and value and all(map(_is_message, value)):
        for speaker, text in passages_of(value, name):
            yield Passage(name if speaker == name else f"{name}: {speaker}", text)
        return
    yield Passage(name, _written(value))


def _value(text: str | None) -> Any:
    with suppress(ValueError, RecursionError):
        return None if text is None else json.loads(text)
    return text


def _written(value: Any) -> str:
    """A text as it is, every other value as JSON, indented if it is nested."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2)


def passages_of(value: Any, speaker: str) -> Iterator[Passage]:
    """The passages of a text, a message, or a list of these; `speaker` is used where a passage names none."""
    match value:
        case None:
            return
        case str():
            yield from _of_text(value, speaker)
        case list():
            for item in value:
                yield from passages_of(item, speaker)
        case dict():
            yield from _of_message(value, speaker)
        case _:
            yield Passage(speaker, _written(value))


def _of_text(text: str, speaker: str) -> Iterator[Passage]:
    """A text may be messages as JSON, a chat in the marks of a template, or begin with reasoning."""
    if text.startswith(("[{", '{"')):
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            if _is_message(value) or (isinstance(value, list) and all(map(_is_message, value))):
                yield from passages_of(value, speaker)
                return
    at = 0
    for turn in _TURN.finditer(text):
        between = text[at : turn.start()]
        if between.strip():
            yield from _with_thoughts(between, speaker)
        who, said = (group for group in turn.groups() if group is not None)
        yield from _with_thoughts(said, who)
        at = turn.end()
    if not at or text[at:].strip():
        yield from _with_thoughts(text[at:], speaker)


def _with_thoughts(text: str, speaker: str) -> Iterator[Passage]:
    thinking = _THINKING.match(text)
    if thinking is not None:
        yield Passage(f"{speaker}, reasoning", thinking["inside"].strip("\n"))
        text = text[thinking.end() :].lstrip("\n")
    if text or thinking is None:
        yield Passage(speaker, text)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and bool({"role", "from", "content", "type"} & {*value})


def _of_message(message: Mapping[str, Any], speaker: str) -> Iterator[Passage]:
    """A message of a chat, or an item of a response: reasoning, text, and calls of tools."""
    kind = message.get("type")
    said = message.get("role") or message.get("from")
    who = str(said or speaker)
    if "messages" in message and not said:
        yield from passages_of(message["messages"], speaker)
        return
    if kind in {"function_call", "tool_use", "tool_call"} and "content" not in message:
        yield _call(message, who)
        return
    if kind in {"function_call_output", "tool_result"}:
        yield from passages_of(message.get("output", message.get("content")), "tool")
        return
    if kind in {"reasoning", "thinking"}:
        content = [message.get(name) for name in ("summary", "content", "text", *_THOUGHTS)]
        texts = [passage.text for item in content for passage in passages_of(item, who)]
        yield Passage(f"{who}, reasoning", "\n".join(filter(None, texts)))
        return
    if isinstance(message.get("text"), str) and "content" not in message and kind is not None:
        yield Passage(who, message["text"])  # a part of a content
        return
    if not said and not _is_message(message):
        yield Passage(speaker, _written(message))
        return
    name = message.get("name") or message.get("tool_name")
    who = f"{who} {name}" if isinstance(name, str) and name else who
    thoughts = [message.get(thought) for thought in _THOUGHTS]
    thought = next((text for text in thoughts if text and isinstance(text, str)), None)
    if thought is not None:
        yield Passage(f"{who}, reasoning", thought)
    yield from _content(message, who)
    for call in message.get("tool_calls") or ():
        yield _call(_value(call) if isinstance(call, str) else call, who)


def _content(message: Mapping[str, Any], who: str) -> Iterator[Passage]:
    """The content of a message, with texts of the same speaker after each other as one."""
    content = message.get("content", message.get("value"))
    if isinstance(content, list) and content:
        for speaker, same in groupby(passages_of(content, who), key=attrgetter("speaker")):
            yield Passage(speaker, "\n".join(passage.text for passage in same))
    elif content or not any(message.get(name) for name in ("tool_calls", *_THOUGHTS)):
        yield from passages_of("" if content is None else content, who)


def _call(call: Any, who: str) -> Passage:
    """The call of a tool: its name and its arguments."""
    if not isinstance(call, dict):
        return Passage(f"{who}, tool call", _written(call))
    function = call.get("function", call)
    inside = function if isinstance(function, dict) else {"name": function, **call}
    arguments = next((inside[name] for name in ("arguments", "input", "args", "kwargs") if name in inside), None)
    if isinstance(arguments, str):
        arguments = _value(arguments)
    speaker = f"{who}, tool call {inside.get('name', '')}"
    return Passage(speaker.rstrip(), _arguments(arguments))


def _arguments(arguments: Any) -> str:
    """The arguments of a call, each under its name where one has several lines, such as code: in JSON it would be one line with escapes."""
    if not isinstance(arguments, dict):
        return _written(arguments)
    if not any(isinstance(value, str) and "\n" in value for value in arguments.values()):
        return _written(arguments)
    said = []
    for name, value in arguments.items():
        text = _written(value)
        said.append(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}")
    return "\n".join(said)


# --- keys and texts of a few rows, to show to people ---------------------------------------------------------------

SAMPLE = 1_000  # keys from all over the file, to find what all keys share
LISTED = 5  # keys in a message
NUMBER = re.compile(r"#\d{1,15}")
WIDEST = 10_000  # cells: no key on one line is wider


class Labels:
    """The labels of the groups of a narrow table; a key is formatted only when its label is needed."""

    def __init__(self, narrow: Narrow) -> None:
        self._narrow = narrow
        size = narrow.groups.size
        sample = [self._text(code) for code in range(0, size, max(1, size // SAMPLE))]
        self._widest = max(map(cells, sample), default=0)
        self._start, self._end = shared(sample)

    def __call__(self, codes: Sequence[int], width: int) -> list[str]:
        """The labels of these groups in at most `width` cells; if several would be equal, the parts that differ."""
        texts = [self._text(code) for code in codes]
        if self._widest > width:
            texts = [without(text, self._start, self._end) for text in texts]
        return told_apart(texts, width)

    def _text(self, code: int) -> str:
        """The key on one line, without a chat template, as long as it is."""
        return label(self._narrow.key, code, self._narrow.groups.first[code], WIDEST)


def code_of(narrow: Narrow, key: str) -> int:
    """The code of the group that --show names: by its key, `#3`, a prefix, a label as printed, or part of the text."""
    texts = _keys(narrow).fill_null("null")
    for found in _ways(texts, key):
        codes = found.arg_true()
        if len(codes) == 1:
            return int(codes[0])
        if len(codes) > 1:
            some = codes[:LISTED].to_list()
            labels = labels_of([texts[code] for code in some], SHOWN)
            shown = ", ".join(f"#{code + 1} {short}" for code, short in zip(some, labels, strict=True))
            more = f" and {len(codes) - LISTED:,} more" if len(codes) > LISTED else ""
            wrong = f"{key!r} is in {len(codes):,} keys: {shown}{more}"
            raise DataError(wrong, f"give --show more of the key, or its number: --show '#{some[0] + 1}'")
    if NUMBER.fullmatch(key):
        raise DataError(f"there is no group {key}", f"the groups are #1 to #{len(texts)}")
    first = cut(plain(texts[0]), SHOWN)
    wrong = f"no group has the key {key!r} or a text like it in its key"
    raise DataError(wrong, f"the first of {len(texts)} is {first!r}")


def _ways(texts: pl.Series, key: str) -> Iterator[pl.Series]:
    """The keys that are meant, in the ways in which one can be named."""
    yield texts == key
    yield texts == ", ".join(part.strip() for part in key.split(","))
    if NUMBER.fullmatch(key):
        yield pl.Series(range(1, len(texts) + 1)) == int(key[1:])
    yield texts.str.starts_with(key)
    yield texts.str.contains(key, literal=True)
    # As labels print it: on one line, with marks for omissions.
    parts = [" ".join(part.split()) for part in re.split(r"…|\.\.\.", key)]
    if any(parts):
        pattern = ".*".join(re.escape(plain(part)) for part in parts)
        on_one_line = pl.Series([plain(text) for text in texts])
        yield on_one_line.str.contains(f"(?is){pattern}")


def key_of(narrow: Narrow, code: int) -> str:
    """The whole key of a group, as `code_of` takes it."""
    if not narrow.key.width:
        return narrow.label(code)
    (key,) = _keys_written(narrow.key[code : code + 1])
    return str(key)


def _keys(narrow: Narrow) -> pl.Series:
    """The keys as full text; a block is named by its first row."""
    if not narrow.key.width:
        return pl.Series([narrow.label(code) for code in range(narrow.groups.size)], dtype=pl.String)
    return _keys_written(narrow.key)


def _keys_written(keys: pl.DataFrame) -> pl.Series:
    """Keys as text, their parts separated by commas."""
    parts = [_key_part(column).alias(str(at)) for at, column in enumerate(keys)]
    joined = pl.DataFrame(parts).select(pl.concat_str(pl.all(), separator=", "))
    return joined.to_series()


def _key_part(column: pl.Series) -> pl.Series:
    """A column of keys as text."""
    dtype = column.dtype
    if dtype.is_nested() or dtype.is_extension():
        return canonical(column)
    if dtype.is_temporal():
        return canonical(column).str.replace(r"^\w+:", "")
    if dtype == pl.Binary:
        return pl.Series([None if key is None else str(key) for key in column], dtype=pl.String)
    return column.cast(pl.String)


def plain_texts(narrow: Narrow, rows: Index, column: str) -> list[str | None]:
    """The texts of these rows of the narrow table; values that are not text as JSON."""
    return [as_text(record.get(column)) for record in narrow.records(rows, [column])]


def as_text(value: Any) -> str | None:
    """A text as it is, other values as JSON."""
    if isinstance(value, pl.Series):
        value = value.to_list()
    if value is None or isinstance(value, str):
        return value
    return json_text(value)


class Converted:
    """Texts that stand for those of the files, by column and row, in a temporary file: what is converted once is read again.

    `parts` have a column, ascending rows after those of earlier parts, and their texts.
    """

    def __init__(self, parts: Iterable[tuple[str, Index, pl.Series]]) -> None:
        rows: dict[str, list[Index]] = {}
        spans: dict[str, list[Index]] = {}

        def texts_of_parts() -> Iterator[bytes]:
            end = 0
            for name, of_part, texts in parts:
                ends = end + texts.str.len_bytes().cast(pl.Int64).cum_sum().to_numpy()
                rows.setdefault(name, []).append(of_part)
                spans.setdefault(name, []).append(np.stack([np.append(end, ends[:-1]), ends], 1))
                end = int(ends[-1])
                yield "".join(texts).encode()

        self._fd = cast("int", spooled(texts_of_parts(), "conversations as chat messages").fd)
        self._rows = {name: np.concatenate(found) for name, found in rows.items()}
        self._spans = {name: np.concatenate(found) for name, found in spans.items()}
        weakref.finalize(self, os.close, self._fd)

    def into(self, texts: pl.Series, name: str, rows: Index) -> pl.Series:
        """The texts of these rows of a column, those that are here in the place of the file's."""
        if name not in self._rows:
            return texts
        known = self._rows[name]
        at = np.minimum(np.searchsorted(known, rows), len(known) - 1)
        there = np.flatnonzero(known[at] == rows)
        spans = self._spans[name][at[there]].tolist()
        here = [os.pread(self._fd, end - start, start).decode() for start, end in spans]
        return texts.scatter(there, here) if here else texts
