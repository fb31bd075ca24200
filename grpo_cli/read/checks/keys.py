"""Checks of the key: whether it is the right column, and whether every row has one."""

from __future__ import annotations

import json
from functools import partial

from grpo_cli.errors import DataError, Way
from grpo_cli.read.checks.check import Check
from grpo_cli.read.group_keys import refuse_missing
from grpo_cli.read.groups import Groups
from grpo_cli.read.known_names import CONVERSATIONS, PROMPT_TEXTS, TEXTS
from grpo_cli.read.layout import inside_of_record
from grpo_cli.read.prompt_check import is_empty, prompt_of
from grpo_cli.read.tables import column_names
from grpo_cli.values.cells import JSON_TEXT, canonical
from grpo_cli.values.chat import responds

PROMPT_ID_OR_BLOCKS = (
    Way("--group", lead="name the column of the prompt's id with"),
    Way("--group-size", why="if the samples of a prompt are consecutive", lead="give", fill="N"),
)
_KEYS = 4096  # keys that are looked at, at most: whether they end with an answer


@partial(Check, one_by_one=True)
def ids_beside_a_text(groups: Groups) -> None:
    """Refuse a text as the key if an id beside it groups the rows differently: equal texts may be different prompts."""
    columns = groups.columns
    request = groups.request
    for name in request.for_checks.ids:
        by_id = columns.coded([name])
        by_text = columns.coded(request.key)
        if by_id.size < columns.height and not by_id.codes.equals(by_text.codes):
            names = ", ".join((*request.key, name))
            raise DataError(
                f"several columns could be the group key: {names}", Way("--group", lead="choose with", fill="NAME")
            )


@partial(Check, one_by_one=True)
def missing_keys(groups: Groups) -> None:
    """Refuse rows without a key, or without a value in a column that divides groups or batches."""
    for name in (*groups.rule.key, *groups.rule.named_columns):
        refuse_missing(name, groups.columns.values[name], groups.columns.place)


def _holds_plain_keys(groups: Groups) -> bool:
    """Whether no key is a list or an object."""
    types = [groups.columns.values[name].dtype for name in groups.rule.key]
    return not any(kind == JSON_TEXT or kind.is_nested() for kind in types)


@partial(Check, idle=_holds_plain_keys)
def one_record(groups: Groups) -> None:
    """Refuse a single row whose key is a list or an object that is no chat: usually a document with the rows inside."""
    columns = groups.columns
    for name in groups.rule.key if columns.height == 1 else ():
        key = columns.values[name]
        value = json.loads(key[0]) if key.dtype == JSON_TEXT else key.to_list()[0]
        of_objects = isinstance(value, list) and any(isinstance(item, dict) for item in value)
        is_chat = prompt_of(value) is not None and (of_objects or isinstance(value, dict))
        if isinstance(value, (list, dict)) and not is_chat:
            what = "a list of objects" if of_objects else "a list"
            if isinstance(value, dict):
                what = "an object"
            inside = "the rows may be inside the record: write each on its own line"
            another = Way("--group", lead="name another key with")
            wrong = f"{columns.place(0)}: the file has one row, and its key {name} is {what}"
            raise DataError(wrong, [*inside_of_record(columns.tables), inside, another])


def _prompts_in_key(groups: Groups) -> list[str]:
    return [name for name in groups.rule.key if name.partition(".")[0] in PROMPT_TEXTS]


def _begins_with_prompts(groups: Groups) -> bool:
    """Whether the first key of each batch, and so of each part, is not empty; or was named, or is no prompt."""
    prompts = _prompts_in_key(groups)
    if groups.rule.key_is_named or not prompts:
        return True
    firsts = [canonical(groups.columns.values[name].gather(groups.batches.first)) for name in prompts]
    return not any(all(map(is_empty, texts)) for texts in zip(*firsts, strict=True))


@partial(Check, idle=_begins_with_prompts)
def empty_keys(groups: Groups) -> None:
    """Refuse a prompt as the key if it is empty in every row."""
    columns = groups.columns
    rule = groups.rule
    prompts = _prompts_in_key(groups)
    if rule.key_is_named or not prompts or groups.by_key.size == columns.height:
        return
    first = groups.by_key.first
    for rows in (first.head(1), first):  # usually the first key is not empty, and settles it
        for name in prompts:
            texts = canonical(columns.values[name].gather(rows))
            if not all(map(is_empty, texts)):
                return
    wrong = f"{', '.join(prompts)} is empty in all {columns.height:,} rows: nothing distinguishes the prompts"
    raise DataError(wrong, PROMPT_ID_OR_BLOCKS, place=columns.place(0))


def _begins_with_questions(groups: Groups) -> bool:
    """Whether the first key of each batch, and so of each part, does not end with an answer; or was named, or is no conversation."""
    rule = groups.rule
    if rule.key_is_named or groups.request.schema is not None:
        return True
    keys = [groups.columns.values[name] for name in {*rule.key} & {*CONVERSATIONS}]
    firsts = [canonical(key.gather(groups.batches.first)) for key in keys]
    return not any(_ends_with_answer(text) for texts in firsts for text in texts)


@partial(Check, idle=_begins_with_questions)
def answers_in_key(groups: Groups) -> None:
    """Refuse a conversation that was found as the key if it ends with the answer: rows of a prompt with other answers are other groups.

    Beside a column of responses, the last turn is the beginning of the answer, which all rows share.
    """
    columns = groups.columns
    rule = groups.rule
    plan = columns.request.plan
    has_other_responses = {*TEXTS} & {*column_names(columns.tables)}
    compares = plan.estimator.min_group > 1 and plan.baseline_level == "group"
    if rule.key_is_named or columns.request.schema is not None or has_other_responses or not compares:
        return
    if groups.by_key.size == columns.height:  # `only_singletons` says so
        return
    for name in {*rule.key} & {*CONVERSATIONS}:
        keys = canonical(columns.values[name].gather(groups.by_key.first.head(_KEYS)))
        if all(map(_ends_with_answer, keys)):
            wrong = f"{name} ends with the answer in every row, so only rows with the same answer are in one group"
            raise DataError(wrong, PROMPT_ID_OR_BLOCKS, place=columns.place(0))


def _ends_with_answer(text: str | None) -> bool:
    """Whether these messages end with a turn of the model."""
    try:
        turns = json.loads(text or "")
    except ValueError:
        return False
    return isinstance(turns, list) and bool(turns) and responds(turns[-1])
