"""The records of an export: prompts and responses in the form that trainers read, and the file they are written to.

Texts are JSON texts. In a record all of them are texts, or all are lists of messages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import spooled
from grpo_cli.formats import registry
from grpo_cli.formats.convert import convert
from grpo_cli.formats.interface import Format, Weaving
from grpo_cli.values.cells import Place
from grpo_cli.values.chat import is_message, responds
from grpo_cli.values.json_text import column_texts, items_of, on_one_line
from grpo_cli.values.slices import joined

TOOLS = "tools"  # what the column of tools is called in a record
_LIST = r"^\[\s*[\{\]]"  # the JSON text of a list of messages, or of an empty list
_LIST_IN_TEXT = r'^"(?:\s|\\[nrt])*\[(?:\s|\\[nrt])*\{'


def unwrapped(texts: pl.Series) -> pl.Series:
    """Unwrap messages that a file stores as JSON in a string; leave everything else as it is."""
    odd = texts.str.contains(_LIST_IN_TEXT).fill_null(value=False).arg_true()
    if not len(odd):
        return texts
    unpacked = [_messages_in(text) or text for text in texts.gather(odd).to_list()]
    return texts.scatter(odd, unpacked)


def in_list(texts: pl.Series) -> pl.Series:
    """A single message becomes a list; everything else stays as it is."""
    alone = texts.str.starts_with("{").fill_null(value=False)
    if not alone.any():
        return texts
    return texts.scatter(alone.arg_true(), ("[" + texts.filter(alone) + "]"))


def _messages_in(text: str) -> str | None:
    with suppress(ValueError, RecursionError):
        inner = json.loads(text)
        messages = json.loads(inner)
        if all(map(is_message, messages)):
            return on_one_line(inner.strip())
    return None


def conversations(texts: pl.Series, place: Place) -> pl.Series:
    """Lists of messages; anything else is a DataError with the place of the text."""
    found = unwrapped(texts)
    wrong = ~found.str.contains(_LIST)
    if wrong.any():
        row = wrong.arg_max() or 0
        said = f"a conversation is not a list of messages: {found[row][:40]}"
        raise DataError(said, "name --prompt and --response instead", place=place(row))
    return found


def in_one_form(frame: pl.DataFrame, *, always: bool = False) -> pl.DataFrame:
    """Give the columns of a record the same form: if any is a list of messages (or `always`), texts become turns.

    `prompt` becomes a turn of the user, any other column a turn of the assistant.
    """
    texts = pl.DataFrame([in_list(unwrapped(column)) for column in frame])
    names = {name: pl.col(name) for name in texts.columns}
    is_list = pl.any_horizontal(pl.all().str.contains(_LIST).fill_null(value=False)) | always
    lists = texts.select(is_list).to_series()
    if not lists.any():
        return texts
    return texts.with_columns(
        pl.when(lists & text.str.starts_with('"')).then(_turn(name)).otherwise(text).alias(name)
        for name, text in names.items()
    )


def _turn(name: str) -> pl.Expr:
    role = "user" if name == "prompt" else "assistant"
    return pl.concat_str(pl.lit(f'[{{"role":"{role}","content":'), pl.col(name), pl.lit("}]"))


def divided(chosen: pl.Series, rejected: pl.Series) -> pl.DataFrame:
    """Split two conversations into prompt, chosen and rejected: the prompt is their common beginning."""
    rows = []
    for first, other in zip(chosen, rejected, strict=True):
        ours = items_of(first)
        theirs = items_of(other)
        most = max(0, min(len(ours), len(theirs)) - 1)
        shared = next((at for at in range(most) if ours[at] != theirs[at]), most)
        parts = ours[:shared], ours[shared:], theirs[shared:]
        rows.append([f"[{','.join(part)}]" for part in parts])
    return pl.DataFrame(rows, schema=dict.fromkeys(("prompt", "chosen", "rejected"), pl.String), orient="row")


def at_response(conversations: pl.Series) -> pl.DataFrame:
    """Split each conversation at the first turn of the model: the prompt, and the completion that begins there."""
    parts = []
    for text in conversations:
        turns = items_of(text)
        end = next((at for at, turn in enumerate(turns) if responds(json.loads(turn))), len(turns))
        parts.append([f"[{','.join(part)}]" for part in (turns[:end], turns[end:])])
    return pl.DataFrame(parts, schema=dict.fromkeys(("prompt", "completion"), pl.String), orient="row")


def write_records(
    pieces: Iterator[pl.DataFrame],
    names: Sequence[str],
    columns: pl.DataFrame,
    sink: BinaryIO,
    format_: Format,
    without: Sequence[str] = (),
    *,
    tools_as_lists: bool = False,
) -> None:
    """Write a record for each row: its JSON texts, then the computed `columns`, but those `without`. Only one piece of texts is in memory.

    `names` are the columns of the texts. Formats other than JSON lines need the types of all texts, so these are first
    written to a temporary file. There, `tools` are JSON text: as structs of one type, each tool would have the arguments of all.
    """
    if format_.same_as(registry.lines()):
        row = 0
        for piece in pieces:
            sink.write(_lines(piece, columns[row : row + len(piece)].drop(*without)))
            row += len(piece)
        return
    if not len(columns):
        nothing = pl.DataFrame(schema={**dict.fromkeys(names, pl.String), **columns.drop(*without).schema})
        format_.write_parts(iter([nothing]), sink, {})
        return
    made = _with_one_list_of_tools(pieces) if tools_as_lists else map(_with_tools_as_text, pieces)
    source = spooled(map(_lines, made), "the texts of the records")
    try:
        convert(
            source, registry.lines(inner_texts=True), sink, format_, Weaving(added=columns.drop(*without)), long=False
        )
    finally:
        if source.fd is not None:
            os.close(source.fd)


def _with_one_list_of_tools(pieces: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The pieces, for a trainer that reads tools as structs: two lists would get each other's arguments there.

    A record without tools has an empty list: verl hands its template what pandas makes of a null, which is no JSON.
    """
    known: str | None = None
    for piece in pieces:
        for text in piece[TOOLS].drop_nulls().unique() if TOOLS in piece.columns else ():
            if known is not None and text != known:
                wrong = "records have different tools, and this trainer reads tools as structs of one type, which mixes them"
                raise DataError(wrong, "export the rows of each list of tools into a file of its own, with --rows")
            known = text
        yield piece.with_columns(piece[TOOLS].fill_null("[]")) if TOOLS in piece.columns else piece


def _with_tools_as_text(texts: pl.DataFrame) -> pl.DataFrame:
    return texts.with_columns(tools_as_text(texts[TOOLS])) if TOOLS in texts.columns else texts


def tools_as_text(tools: pl.Series) -> pl.Series:
    """Lists of tools as texts that hold their JSON; those that are texts stay as they are."""
    lists = [text for text in tools.unique() if text is not None and text.startswith("[")]
    as_text = {text: json.dumps(text, ensure_ascii=False) for text in lists}
    return pl.Series(tools.name, [as_text.get(text, text) for text in tools], dtype=pl.String)


def _lines(texts: pl.DataFrame, columns: pl.DataFrame | None = None) -> memoryview:
    fields = [column.alias("").fill_null("null").alias(column.name) for column in texts]
    fields += [column_texts(column) for column in (() if columns is None else columns)]
    parts: list[str | pl.Series] = []
    for at, field in enumerate(fields):
        parts += [f"{',' if at else '{'}{json.dumps(field.name)}:", field]
    return joined([*parts, "}\n"])
