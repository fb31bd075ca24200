"""The kinds of export, each declared once: `--to` and its help, the types of Python, the menu of `browse` and the documents are made of these rows.

Importing them loads nothing. How a kind gets from rows to records is in `runs/export_kinds.py`, under the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_CHAT = ("form", "keep", "target", "tools")
_TEXTS = ("prompt", "response", "messages", *_CHAT)


@dataclass(frozen=True, kw_only=True)
class ExportKind:
    """A kind of export: what it is called, what it says of itself, and what it takes."""

    name: str  # as --to takes it
    brief: str  # what the help of the command says, in two or three words
    help: str  # what --to and `browse` say, in one line without a full stop
    record: str  # what one record is, for the documents
    columns: str  # the columns of a record, in Markdown, for the documents
    # Its options by their names in the table. One that no kind names applies to all kinds; of those in a panel `For --to KIND`,
    # a file of options leaves out the ones that the kind does not take.
    takes: tuple[str, ...]
    has_advantages: bool = False  # options of the advantages apply to it


_KINDS = (
    ExportKind(
        name="sft",
        brief="best rows (SFT)",
        help="the best rows of each group",
        record="one of the best rows of a group",
        columns="`prompt`, `completion` (or `messages`), `reward`",
        takes=(*_TEXTS, "best", "per_group", "min_reward", "keep_duplicates"),
    ),
    ExportKind(
        name="pairs",
        brief="preference pairs (DPO)",
        help="preference pairs (DPO)",
        record="a better and a worse response to one prompt",
        columns="`prompt`, `chosen`, `rejected`, `chosen_reward`, `rejected_reward`, `margin`",
        takes=(*_TEXTS, "pairs", "min_margin", "max_pairs"),
    ),
    ExportKind(
        name="labels",
        brief="good or bad rows (KTO)",
        help="rows that are good or bad (KTO)",
        record="a row that is good or bad",
        columns="`prompt`, `completion` (or `messages`), `label`, `reward`; with a plan `advantage`",
        takes=(*_TEXTS, "solved_at"),
        has_advantages=True,
    ),
    ExportKind(
        name="groups",
        brief="whole groups (offline GRPO)",
        help="whole groups (offline GRPO)",
        record="a prompt with all its responses",
        columns="`prompt`, `responses`, `rewards`, `advantages` (lists)",
        takes=(*_TEXTS,),
        has_advantages=True,
    ),
    ExportKind(
        name="weights",
        brief="weighted rows",
        help="rows with a weight",
        record="a row with a weight above 0",
        columns="`prompt`, `completion` (or `messages`), `reward`, `advantage`, `weight`",
        takes=(
            *_TEXTS,
            "weight",
            "beta",
            "max_weight",
            "copies",
            "ratio_cap",
            "token_logprobs",
            "old_token_logprobs",
            "mask",
        ),
        has_advantages=True,
    ),
    ExportKind(
        name="prompts",
        brief="prompts",
        help="one row per prompt",
        record="a prompt",
        columns="`prompt`, `n`, `solve_rate`, `mean`, `std`, `best`, `worst`, `difficulty`, `pass@k`",
        takes=("prompt", "messages", *_CHAT, "pool", "pass_at", "solved_at"),
    ),
    ExportKind(
        name="tokens",
        brief="tokens",
        help="the advantage of every token",
        record="a row, with its advantage on every token",
        columns="the token columns, `advantages` (a list), `reward`, `advantage`",
        takes=("tokens", "mask", "prompt_tokens"),
        has_advantages=True,
    ),
)
EXPORT_KINDS: Final[Mapping[str, ExportKind]] = {kind.name: kind for kind in _KINDS}
WITH_ADVANTAGES: Final = tuple(kind.name for kind in _KINDS if kind.has_advantages)


def listed(names: Iterable[str]) -> str:
    """Names as a sentence lists them: `sft, pairs and weights`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def kinds_that_take(option: str) -> list[str]:
    """The kinds that an option is for; empty for one that applies to all."""
    return [kind.name for kind in _KINDS if option in kind.takes]
