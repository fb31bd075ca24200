"""Prompts and responses as trainers read them: both are text, or both are lists of messages; always as JSON texts."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.values.cells import Place
from grpo_cli.values.chat import is_message, responds
from grpo_cli.values.json_text import items_of, on_one_line

_LIST: Final = r"^\[\s*[\{\]]"  # the JSON text of a list of messages, or of an empty list
_LIST_IN_TEXT: Final = r'^"(?:\s|\\[nrt])*\[(?:\s|\\[nrt])*\{'


def unwrapped(texts: pl.Series) -> pl.Series:
    """Unwrap messages that a file stores as JSON in a string; leave everything else as it is."""
    odd = texts.str.contains(_LIST_IN_TEXT).fill_null(value=False).arg_true()
    return (
        texts.scatter(odd, [_messages_in(text) or text for text in texts.gather(odd).to_list()]) if len(odd) else texts
    )


def _messages_in(text: str) -> str | None:
    with suppress(ValueError, RecursionError):
        inner = json.loads(text)
        messages = json.loads(inner)
        if all(map(is_message, messages)):
            return on_one_line(str(inner).strip())
    return None


def conversations(texts: pl.Series, place: Place) -> pl.Series:
    """Lists of messages; anything else is a DataError with the place of the text."""
    found = unwrapped(texts)
    wrong = ~found.str.contains(_LIST)
    if wrong.any():
        row = wrong.arg_max() or 0
        said = f"a conversation is not a list of messages: {str(found[row])[:40]}"
        raise DataError(said, "name --prompt and --response instead", place=place(row))
    return found


def in_one_form(frame: pl.DataFrame) -> pl.DataFrame:
    """Give the columns of a record the same form: if any is a list of messages, texts become turns.

    `prompt` becomes a turn of the user, any other column a turn of the assistant.
    """
    columns = [unwrapped(series) for series in frame]
    # A single message becomes a list.
    columns = [
        pl.select(pl.when(column.str.starts_with("{")).then("[" + column + "]").otherwise(column))
        .to_series()
        .alias(column.name)
        for column in columns
    ]
    lists = pl.select(
        pl.any_horizontal([column.str.contains(_LIST).fill_null(value=False) for column in columns])
    ).to_series()
    if not lists.any():
        return pl.DataFrame(columns)
    return pl.DataFrame([
        pl.select(pl.when(lists & column.str.starts_with('"')).then(_turn(column)).otherwise(column)).to_series().alias(column.name)
        for column in columns
    ])  # fmt: skip


def _turn(texts: pl.Series) -> pl.Expr:
    role = "user" if texts.name == "prompt" else "assistant"
    return pl.concat_str(pl.lit(f'[{{"role":"{role}","content":'), texts, pl.lit("}]"))


def divided(chosen: pl.Series, rejected: pl.Series, of_chosen: Place, of_rejected: Place) -> pl.DataFrame:
    """Split two conversations into prompt, chosen and rejected: the prompt is their common beginning."""
    rows = []
    for first, other in zip(conversations(chosen, of_chosen), conversations(rejected, of_rejected), strict=True):
        ours, theirs = items_of(first), items_of(other)
        most = max(0, min(len(ours), len(theirs)) - 1)
        shared = next((at for at in range(most) if ours[at] != theirs[at]), most)
        rows.append([f"[{','.join(part)}]" for part in (ours[:shared], ours[shared:], theirs[shared:])])
    return pl.DataFrame(rows, schema=dict.fromkeys(("prompt", "chosen", "rejected"), pl.String), orient="row")


def before_response(texts: pl.Series, place: Place) -> pl.Series:
    """The turns of each conversation before the first response."""
    prompts = []
    for text in conversations(texts, place):
        turns = items_of(text)
        end = next((at for at, turn in enumerate(turns) if responds(json.loads(turn))), len(turns))
        prompts.append(f"[{','.join(turns[:end])}]")
    return pl.Series(texts.name, prompts, dtype=pl.String)
