"""Prompts and responses as trainers read them: both as text, or both as lists of messages. All of it on JSON texts."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats.json_text import items_of, on_one_line

_LIST: Final = r"^\[\s*[\{\]]"  # of messages, or an empty one
_LIST_IN_TEXT: Final = r'^"(?:\s|\\[nrt])*\[(?:\s|\\[nrt])*\{'
_RESPONDS: Final = frozenset({"assistant", "gpt", "model", "ai", "chatbot", "bot"})


def unwrapped(texts: pl.Series) -> pl.Series:
    """Messages that a file keeps as JSON inside of a text, as the messages themselves; all else as it is."""
    odd = texts.str.contains(_LIST_IN_TEXT).fill_null(value=False).arg_true()
    return (
        texts.scatter(odd, [_messages_in(text) or text for text in texts.gather(odd).to_list()]) if len(odd) else texts
    )


def _messages_in(text: str) -> str | None:
    with suppress(ValueError, RecursionError):
        inner = json.loads(text)
        messages = json.loads(inner)
        if all(isinstance(one, dict) and "role" in one for one in messages):
            return on_one_line(str(inner).strip())
    return None


def conversations(texts: pl.Series) -> pl.Series:
    """Lists of messages; a DataError where one of them is something else."""
    found = unwrapped(texts)
    wrong = ~found.str.contains(_LIST)
    if wrong.any():
        shown = str(found[wrong.arg_max() or 0])[:40]
        raise DataError(f"a conversation is no list of messages: {shown}", "name --prompt and --response instead")
    return found


def alike(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns of a record in one form: where one of them is a list of messages, a text beside it is one turn.

    The column `prompt` is a turn of the user, any other one of the assistant.
    """
    columns = [unwrapped(series) for series in frame]
    # A single message is a list of one.
    columns = [
        pl.select(pl.when(one.str.starts_with("{")).then("[" + one + "]").otherwise(one)).to_series().alias(one.name)
        for one in columns
    ]
    lists = pl.select(
        pl.any_horizontal([one.str.contains(_LIST).fill_null(value=False) for one in columns])
    ).to_series()
    if not lists.any():
        return pl.DataFrame(columns)
    return pl.DataFrame([
        pl.select(pl.when(lists & one.str.starts_with('"')).then(_turn(one)).otherwise(one)).to_series().alias(one.name)
        for one in columns
    ])  # fmt: skip


def _turn(texts: pl.Series) -> pl.Expr:
    role = "user" if texts.name == "prompt" else "assistant"
    return pl.concat_str(pl.lit(f'[{{"role":"{role}","content":'), texts, pl.lit("}]"))


def divided(chosen: pl.Series, rejected: pl.Series) -> pl.DataFrame:
    """Two conversations as prompt, chosen and rejected: the prompt is what both begin with."""
    rows = []
    for one, other in zip(conversations(chosen), conversations(rejected), strict=True):
        ours, theirs = items_of(one), items_of(other)
        most = max(0, min(len(ours), len(theirs)) - 1)
        shared = next((at for at in range(most) if ours[at] != theirs[at]), most)
        rows.append([f"[{','.join(part)}]" for part in (ours[:shared], ours[shared:], theirs[shared:])])
    return pl.DataFrame(rows, schema=dict.fromkeys(("prompt", "chosen", "rejected"), pl.String), orient="row")


def before_response(texts: pl.Series) -> pl.Series:
    """The turns of each conversation before the first response."""
    prompts = []
    for text in conversations(texts):
        turns = items_of(text)
        end = next((at for at, turn in enumerate(turns) if _responds(json.loads(turn))), len(turns))
        prompts.append(f"[{','.join(turns[:end])}]")
    return pl.Series(texts.name, prompts, dtype=pl.String)


def _responds(turn: object) -> bool:
    role = (turn.get("role") or turn.get("from")) if isinstance(turn, dict) else None
    return isinstance(role, str) and role.lower() in _RESPONDS
