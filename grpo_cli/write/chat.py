"""Conversations as chat messages, whatever form a file has them in. What is exported goes through here, once.

A chat message has `role` and `content` (a text, or a list of parts one of which is no text), and where they apply
`reasoning_content`, `tool_calls`, `tool_call_id` and `name`. Files also hold items of OpenAI's Responses (`function_call`,
`reasoning`, ...), contents in parts of text, Anthropic's blocks, ShareGPT's `from` and `value`, ART's choices, and tool
calls in the short form of traces. Texts here are the JSON texts of lists. A message that needs no change keeps every byte.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from grpo_cli.values.chat import responds
from grpo_cli.values.json_text import items_of

_SHAREGPT: Final[Mapping[str, str]] = {
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "chatbot": "assistant",
    "bot": "assistant",
    "observation": "tool",
    "function_response": "tool",
}
# Parts of a content that are text, and the field of the text.
_TEXT_PARTS: Final[Mapping[str, str]] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
# Parts and items that are reasoning; their text is in one of these fields, else in the summary.
_REASONING: Final = ("reasoning", "thinking")
_THOUGHTS: Final = ("content", "text", "thinking", "reasoning")
_ENCRYPTED: Final = "redacted_thinking"  # Anthropic's block of reasoning without a text
_CALLS: Final = ("function_call", "tool_use", "tool_call")
_RESULTS: Final = ("function_call_output", "tool_result")
_ARGUMENTS: Final = ("arguments", "input", "args", "kwargs")


class NoMessage(ValueError):
    """An item of a conversation that is no message; the text says what is wrong with it."""


@dataclass(frozen=True)
class Chats:
    """Conversations as chat messages, and by the position of the conversation what became of its items."""

    texts: pl.Series  # the JSON text of a list of messages for each conversation
    changed: Sequence[int] = ()  # the positions of those that were in another form
    hidden: Mapping[int, int] = field(default_factory=dict)  # reasoning in encrypted form alone, which is dropped
    # traces of several branches, of which the last is taken: the number of the others
    branches: Mapping[int, int] = field(default_factory=dict)
    # the types of items that have no chat form, such as web_search_call
    formless: Mapping[int, Counter[str]] = field(default_factory=dict)
    wrong: Mapping[int, str] = field(default_factory=dict)  # why an item is no message; such a text stays as it is


def chats(texts: pl.Series) -> Chats:
    """These conversations (JSON texts of lists, or null) as chat messages."""
    odd = _odd(texts)
    changed = dict[int, str]()
    hidden = dict[int, int]()
    branches = dict[int, int]()
    formless = dict[int, Counter[str]]()
    wrong = dict[int, str]()
    for at, text in zip(odd.to_list(), texts.gather(odd).to_list(), strict=True):
        turns = _Turns()
        try:
            turns.read(text)
        except NoMessage as error:
            wrong[at] = str(error)
            continue
        if turns.hidden:
            hidden[at] = turns.hidden
        if turns.branches:
            branches[at] = turns.branches
        if turns.formless:
            formless[at] = turns.formless
        if turns.changed:
            changed[at] = f"[{','.join(turns.texts)}]"
    if changed:
        texts = texts.clone().scatter([*changed], [*changed.values()])
    return Chats(texts, [*changed], hidden, branches, formless, wrong)


# What no chat with text contents has outside of its texts, where a quote is escaped.
_OTHER_FORMS: Final = r'"(?:from|value|message|tool_messages)"\s*:|"content"\s*:\s*\[|"tool_calls"\s*:\s*\[\s*"'
_PERHAPS: Final = r'"(?:type|arguments|tool_calls|id)"\s*:'  # of a tool call of a chat, and of other forms
_ROLE: Final = r'"role"\s*:\s*"'


def _odd(texts: pl.Series) -> pl.Series:
    """The positions of the texts with marks of another form; all others are a chat already, and are not parsed."""
    text = pl.col("")
    marked = text.str.contains(f"{_OTHER_FORMS}|{_PERHAPS}") | ~text.str.contains(_ROLE)
    is_list = text.str.contains(r"^\[\s*[^\s\]]")  # of at least one item
    frame = texts.alias("").to_frame().with_row_index("at").filter(is_list & marked)
    # A chat has these as often as each other: `"type": "function"`, `"function": {` and `"arguments"` in every call of
    # a tool, `"tool_call_id"` in every result.
    calls = _count(r'"function"\s*:\s*\{')
    functions = _count(r'"type"\s*:\s*"function"')
    differs = (
        text.str.contains(_OTHER_FORMS)
        | (_count(r'"type"\s*:') > functions)
        | (_count(r'"arguments"\s*:') > calls)
        | (_count(r'"tool_calls"\s*:\s*\[\s*\{') > calls)
        | (_count(r'"role"\s*:\s*"tool"') > _count(r'"tool_call_id"\s*:'))
        | ~text.str.contains(_ROLE)
    )
    return frame.filter(differs)["at"]


def _count(pattern: str) -> pl.Expr:
    return pl.col("").str.count_matches(pattern)


class _Turns:
    """The messages of one conversation, item by item. A turn of the model may be several items: reasoning, text, calls."""

    def __init__(self) -> None:
        self.texts = list[str]()  # the JSON text of each finished message
        self.changed = False
        self.hidden = 0
        self.branches = 0
        self.formless = Counter[str]()
        self._turn = dict[str, Any]()  # of the model, to which the next item may belong

    def read(self, text: str) -> None:
        """Read a list of items; NoMessage if one of them is no message of any form."""
        values = json.loads(text)
        if _are_nodes(values):
            branch = _last_branch(values)
            self.branches = _leaves(values) - 1
            values = [node["message"] for node in branch]
            text = _json(values)
            self.changed = True
        said = [_only_text(value) for value in values]
        if None not in said:  # nearly all conversations of Responses without tools
            self.changed = True
            self.texts = [_said(value["role"], one) for value, one in zip(values, said, strict=True) if one is not None]
            return
        plain = [isinstance(value, dict) and _is_plain(value) for value in values]
        items = items_of(text) if any(plain) else ()
        for at, value in enumerate(values):
            if not isinstance(value, dict):
                raise NoMessage(f"an item of the conversation is no message: {items_of(text)[at][:40]}")
            if plain[at]:
                self._as_it_is(items[at], value)
            else:
                self.changed = True
                self._item(value)
        self._finish()

    def _as_it_is(self, item: str, message: Mapping[str, Any]) -> None:
        """A message that needs no change; reasoning that stands before it as an item of its own becomes a field of it."""
        thought = self._turn.get("reasoning_content")
        alone = thought is not None and self._turn.keys() <= {"role", "reasoning_content"}
        if alone and message["role"] == "assistant" and not message.get("reasoning_content"):
            self._turn = {}
            start, _, rest = item.partition("{")
            item = f'{start}{{"reasoning_content":{_json(thought)},{rest.lstrip()}'
        self._finish()
        self.texts.append(item)

    def _item(self, value: Mapping[str, Any]) -> None:
        """An item or a message of another form."""
        kind = value.get("type")
        if isinstance(value.get("message"), dict) and "role" not in value:  # a choice of a chat completion
            value = value["message"]
            kind = None
        said = _only_text(value)
        if said is not None and value["role"] == "assistant":
            self._begin("content", "tool_calls")
            self._turn["content"] = said
            return
        if said is not None:
            self._finish()
            self.texts.append(_said(value["role"], said))
            return
        role = value.get("role") or _SHAREGPT.get(str(value.get("from")), value.get("from"))
        if kind in _REASONING:
            self._think(value)
        elif kind in _CALLS and isinstance(value.get("name"), str):
            self._call(value)
        elif kind in _RESULTS:
            self._result(value)
        elif isinstance(role, str):
            self._message(role, value)
        elif isinstance(kind, str) and kind != "message":
            self.formless[kind] += 1
        else:
            raise NoMessage(f"an item of the conversation has no role: {_json(value)[:60]}")

    def _message(self, role: str, value: Mapping[str, Any]) -> None:
        """A message with its role."""
        content = value.get("content", value.get("value"))
        parts = content if isinstance(content, list) else [content]
        if isinstance(value.get("tool_messages"), list):  # tau2: the results of several calls
            for one in value["tool_messages"]:
                self._message(role, one)
        elif role == "function_call":  # ShareGPT: the call is the text
            self._call(_parsed(content))
        elif role == "assistant":
            self._of_model(value, parts)
        else:
            self._of_others(role, value, parts)

    def _of_model(self, value: Mapping[str, Any], parts: Sequence[Any]) -> None:
        """A turn of the model: reasoning, what it says, and its calls."""
        thoughts = value.get("reasoning_content", value.get("reasoning"))
        if isinstance(thoughts, str) and thoughts:
            self._begin("content", "tool_calls", "reasoning_content")
            self._turn["reasoning_content"] = thoughts
        for part in parts:
            if _type(part) in (*_REASONING, _ENCRYPTED):
                self._think(part)
        self._begin("content", "tool_calls")
        said = [part for part in parts if _type(part) not in (*_REASONING, _ENCRYPTED, *_CALLS)]
        self._turn |= {**_others(value), "content": _content(said)}
        for part in parts:
            if _type(part) in _CALLS:
                self._call(part)
        for call in value.get("tool_calls") or ():
            self._call(_parsed(call))

    def _of_others(self, role: str, value: Mapping[str, Any], parts: Sequence[Any]) -> None:
        """A turn of anybody else; Anthropic's results of tools are parts of a turn of the user."""
        results = [part for part in parts if _type(part) in _RESULTS]
        for part in results:
            self._result(part)
        said = [part for part in parts if _type(part) not in _RESULTS]
        if results and not said:
            return
        self._finish()
        ids = (value.get(name) for name in ("tool_call_id", "call_id", "id"))
        of_call = next(filter(None, ids), None) if role == "tool" else None
        answered = {} if of_call is None else {"tool_call_id": of_call}
        self._write({"role": role, **answered, **_others(value), "content": _content(said)})

    def _think(self, value: Mapping[str, Any]) -> None:
        """Reasoning: the beginning of a turn of the model."""
        text = "\n".join(filter(None, (_text(value.get(name)) for name in _THOUGHTS))) or _text(value.get("summary"))
        encrypted = value.get("encrypted_content") or value.get("redacted") or value.get("type") == _ENCRYPTED
        if value.get("redacted") or not text:  # the text of redacted reasoning is what is encrypted
            self.hidden += bool(encrypted)
            return
        self._begin("content", "tool_calls")
        before = self._turn.get("reasoning_content")
        self._turn["reasoning_content"] = text if before is None else f"{before}\n{text}"

    def _call(self, call: Any) -> None:
        """A call of a tool: the end of a turn of the model; several may follow each other."""
        self._turn.setdefault("role", "assistant")
        self._turn.setdefault("content", None)
        self._turn.setdefault("tool_calls", []).append(_call(call))

    def _result(self, value: Mapping[str, Any]) -> None:
        """What a tool returned."""
        self._finish()
        said = value.get("output", value.get("content"))
        ids = (value.get(name) for name in ("call_id", "tool_use_id", "tool_call_id", "id"))
        of_call = next(filter(None, ids), None)
        parts = said if isinstance(said, list) else [said]
        self._write(
            {"role": "tool", **({} if of_call is None else {"tool_call_id": of_call}), "content": _content(parts)}
        )

    def _begin(self, *ended_by: str) -> None:
        """Start a new turn of the model if the present one has what ends it."""
        if self._turn.keys() & {*ended_by}:
            self._finish()
        self._turn.setdefault("role", "assistant")

    def _finish(self) -> None:
        if self._turn:
            turn = {"content": None if "tool_calls" in self._turn else "", **self._turn}
            order = [name for name in ("role", "name", "reasoning_content", "content", "tool_calls") if name in turn]
            self._write({name: turn[name] for name in (*order, *turn)})
            self._turn = {}

    def _write(self, message: Mapping[str, Any]) -> None:
        self.texts.append(_json(message))


def _are_nodes(values: Sequence[Any]) -> bool:
    """Whether these are the nodes of a trace of verifiers: each has a message, and most the number of the node before it."""
    return all(
        isinstance(value, dict) and isinstance(value.get("message"), dict) and "role" not in value for value in values
    )


def _last_branch(nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The nodes from the root to the last leaf, as verifiers' own `Trace.messages` takes them.

    There are several branches where a harness rewrote its history. Nodes without parents follow each other.
    """
    if not any("parent" in node for node in nodes):
        return [*nodes]
    parents = [node.get("parent") for node in nodes]
    for at, parent in enumerate(parents):
        if parent is not None and not (isinstance(parent, int) and 0 <= parent < at):
            raise NoMessage(f"the parent of a node of the trace is none of the nodes before it: {parent}")
    at = max(at for at in range(len(nodes)) if at not in parents)
    branch = [nodes[at]]
    while (before := parents[at]) is not None:
        at = before
        branch.append(nodes[at])
    return branch[::-1]


def _leaves(nodes: Sequence[Mapping[str, Any]]) -> int:
    """How many branches a trace has; nodes without parents follow each other."""
    if not any("parent" in node for node in nodes):
        return 1
    return len({*range(len(nodes))} - {node.get("parent") for node in nodes})


def _said(role: str, text: str) -> str:
    """The JSON text of a message that is a role and a text."""
    return f'{{"role": {_json_text(role)}, "content": {_json_text(text)}}}'


def _only_text(item: Any) -> str | None:
    """The text of the usual item of Responses, a message with one part of text; nearly all items are such."""
    if not isinstance(item, dict):
        return None
    content = item.get("content")
    if item.get("type") != "message" or "name" in item or not isinstance(content, list) or len(content) != 1:
        return None
    part = content[0]
    is_text = isinstance(part, dict) and part.get("type") in {"input_text", "output_text"}
    said = part.get("text") if is_text and isinstance(item.get("role"), str) else None
    return said if isinstance(said, str) else None


def _is_plain(message: Mapping[str, Any]) -> bool:
    """Whether a message is one of a chat already: nothing of it changes."""
    content = message.get("content")
    calls = message.get("tool_calls")
    return (
        isinstance(message.get("role"), str)
        and message.get("type") is None
        and "tool_messages" not in message
        and (content is None or isinstance(content, str) or (isinstance(content, list) and _has_other_parts(content)))
        and (not calls or (isinstance(calls, list) and all(map(_is_call_of_chat, calls))))
        and (message["role"] != "tool" or "tool_call_id" in message or "id" not in message)
    )


def _has_other_parts(content: Sequence[Any]) -> bool:
    """Whether a content has pictures and the like beside parts of text as a chat has them."""
    kinds = [_type(part) for part in content]
    foreign = {*_TEXT_PARTS, *_REASONING, _ENCRYPTED, *_CALLS, *_RESULTS} - {"text"}
    return any(kind not in _TEXT_PARTS for kind in kinds) and not foreign & {*kinds}


def _is_call_of_chat(call: Any) -> bool:
    """Whether a call is in the form of a chat, or in one that says no name of a function and stays as it is."""
    return isinstance(call, dict) and not isinstance(call.get("function", call.get("name")), str)


def _type(part: Any) -> str:
    """The type of a part of a content; a bare text is a part of text."""
    if isinstance(part, dict):
        return str(part.get("type", "text" if "text" in part else ""))
    return "text" if part is None or isinstance(part, str) else ""


def _content(parts: Sequence[Any]) -> Any:
    """The content of parts: one text if all are text, None if there is none, else the parts."""
    if all(_type(part) in _TEXT_PARTS for part in parts):
        texts = [_text(part) for part in parts if part is not None]
        return "".join(texts) if texts else None
    return [{"type": "text", "text": _text(part)} if _type(part) in _TEXT_PARTS else part for part in parts]


def _text(value: Any) -> str:
    """The text of a part, of a list of parts, or of nothing."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        kind = str(value.get("type", ""))
        name = _TEXT_PARTS.get(kind) or next((one for one in ("text", kind) if isinstance(value.get(one), str)), "")
        return _text(value.get(name)) if name else ""
    return value if isinstance(value, str) else ""


def _others(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a message keeps beside its contents: of a chat all, of an item of Responses whose it is."""
    read = {"role", "from", "content", "value", "type", "reasoning", "reasoning_content", "tool_calls", "call_id", "id"}
    kept = {name for name in value if name not in read} if value.get("type") is None else {"name"} & {*value}
    return {name: value[name] for name in value if name in kept and value[name] is not None}


def _call(call: Any) -> dict[str, Any]:
    """A tool call of a chat, from that of a chat, an item of Responses, Anthropic's block or the short form of a trace.

    Arguments stay what they are, text or an object; text that is no JSON, too.
    """
    if not isinstance(call, dict):
        raise NoMessage(f"a tool call is no object: {_json(call)[:60]}")
    if _is_call_of_chat(call):
        return call
    arguments: Any = next((call[one] for one in _ARGUMENTS if one in call), {})
    of_call = next(filter(None, (call.get(one) for one in ("call_id", "id"))), None)
    function = {"name": call.get("function") or call["name"], "arguments": arguments}
    return {**({} if of_call is None else {"id": of_call}), "type": "function", "function": function}


def _parsed(value: Any) -> Any:
    """A value that some files store as JSON in a text."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


_ENCODED: Final = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder each time


def _json(value: Any) -> str:
    """JSON text as people read it; with escapes where a text holds half of a pair of surrogates, which no file can."""
    text = _ENCODED(value)
    return text if _is_whole(text) else json.dumps(value)


def _json_text(text: str) -> str:
    """The same of a text, in a fifth of the time."""
    return json.encoder.encode_basestring(text) if _is_whole(text) else json.dumps(text)


def _is_whole(text: str) -> bool:
    """Whether a text has no half of a pair of surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- tools -------------------------------------------------------------------------------------------------------


def have_tools(texts: pl.Series) -> pl.Series:
    """Whether these JSON texts hold tools: lists of some, or traces whose nodes do."""
    some = texts.is_not_null() & ~texts.is_in(["null", '""', "[]"])
    in_nodes = texts.str.contains(r'"tools"\s*:\s*\[\s*[^\s\]]')
    return some & (~are_traces(texts) | in_nodes).fill_null(value=False)


def are_traces(texts: pl.Series) -> pl.Series:
    """Whether these JSON texts are nodes of a trace, of which the root has the tools.

    Nodes say which node is before them, or a message with a role; an argument of a tool may be called message, too.
    """
    nodes = texts.str.contains(r'"parent"\s*:') & texts.str.contains(r'"message"\s*:')
    return texts.str.contains(r"^\[\s*\{") & (nodes | texts.str.contains(r'"message"\s*:\s*\{[^{}]*"role"\s*:\s*"'))


def tools(text: str | None) -> str | None:
    """The JSON text of a list of tools as `{"type": "function", "function": {...}}`; None where a row has none.

    A list in this form keeps every byte. NoMessage if it is no list of tools.
    """
    value = None if text is None else json.loads(text)
    if isinstance(value, str):  # stored as JSON in a text
        text = value
        value = _parsed(value) if value.strip() else None
    if isinstance(value, list) and value and _are_nodes(value):  # the root has the tools of its branch
        value = _last_branch(value)[0].get("tools")
        text = _json(value)
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise NoMessage(f"tools are no list of objects: {(text or '')[:60]}")
    if all(isinstance(tool.get("function"), dict) for tool in value):
        return text
    return _json([*map(_tool, value)])


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool of a chat, from that of a chat, of Responses, or of Anthropic."""
    if isinstance(tool.get("function"), dict):
        return tool
    if not isinstance(tool.get("name"), str):
        raise NoMessage(f"a tool has no name: {_json(tool)[:60]}")
    function = {
        name: value for name, value in tool.items() if name not in {"type", "input_schema"} and value is not None
    }
    if "input_schema" in tool:
        function.setdefault("parameters", tool["input_schema"])
    return {"type": "function", "function": function}


# --- what a conversation says ------------------------------------------------------------------------------------

_SPEAKS: Final = r'"(?:role|from)"\s*:\s*"(?:assistant|gpt|model|ai|chatbot|bot)"'
_NOTHING: Final = r'"(?:content|value)"\s*:\s*(?:""|null|\[\s*\])'


def unanswered(texts: pl.Series) -> pl.Series:
    """Whether these conversations have no turn of the model with a text, a part or a call; false for null and for texts."""
    text = pl.col("")
    frame = texts.alias("").to_frame().with_row_index("at").filter(text.str.starts_with("["))
    some = frame.filter(~text.str.contains(_SPEAKS) | text.str.contains(_NOTHING))
    at = some.filter(~text.str.contains(f"(?i){_SPEAKS}") | text.str.contains(_NOTHING))
    silent = [not _answers(one) for one in at[""].to_list()]
    return pl.repeat(False, len(texts), eager=True).scatter(at["at"].to_list(), silent)  # noqa: FBT003 - a value


def _answers(text: str) -> bool:
    return any(
        responds(message) and any(message.get(name) for name in ("content", "value", "tool_calls"))
        for message in json.loads(text)
    )


def with_instructions(prompts: pl.Series, instructions: pl.Series) -> pl.Series:
    """Lists of messages that begin with their instructions as a turn of the system, unless they have one already."""
    turn = '{"role":"system","content":' + pl.col("said") + "}"
    rest = pl.col("list").str.strip_chars_start().str.slice(1)
    comma = pl.when(rest.str.contains(r"^\s*\]")).then(pl.lit("")).otherwise(pl.lit(","))
    has_one = pl.col("list").str.contains(r'^\s*\[\s*\{[^{}]*"role"\s*:\s*"(?:system|developer)"')
    asked = pl.col("said").str.starts_with('"') & (pl.col("said") != '""') & ~has_one
    whole = pl.when(asked).then("[" + turn + comma + rest).otherwise("list")
    frame = pl.DataFrame([prompts.alias("list"), instructions.alias("said")])
    return frame.select(whole.alias(prompts.name)).to_series()


def joined(first: pl.Series, then: pl.Series) -> pl.Series:
    """Two lists of messages as one: a prompt and what follows it."""
    start = pl.col("first").str.strip_chars_end().str.strip_suffix("]").str.strip_chars_end()
    end = pl.col("then").str.strip_chars_start().str.strip_prefix("[").str.strip_chars_start()
    comma = pl.when((start == "[") | (end == "]")).then(pl.lit("")).otherwise(pl.lit(","))
    frame = pl.DataFrame([first.alias("first"), then.alias("then")])
    return frame.select((start + comma + end).alias(first.name)).to_series()


def with_arguments(texts: pl.Series, kind: str) -> pl.Series:
    """Conversations whose calls have their arguments as JSON `text`, or as an `object`; text that is no JSON stays text."""
    at = texts.str.contains(r'"arguments"\s*:').fill_null(value=False).arg_true()
    made = [_with_arguments(text, kind) for text in texts.gather(at).to_list()]
    return texts.scatter(at, made) if len(at) else texts


def _with_arguments(text: str, kind: str) -> str:
    items = items_of(text)
    for at, item in enumerate(items):
        message = json.loads(item)
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        functions = [call["function"] for call in calls or () if isinstance(call, dict) and _is_call_of_chat(call)]
        changed = False
        for function in functions:
            arguments = function.get("arguments") if isinstance(function, dict) else None
            other = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, (dict, list)) else arguments
            if kind == "object":
                parsed = _parsed(arguments)
                other = parsed if isinstance(parsed, dict) else arguments
            if other is not arguments:
                function["arguments"] = other
                changed = True
        items[at] = _json(message) if changed else item
    return f"[{','.join(items)}]"


def as_texts(lists: pl.Series, role: str) -> tuple[pl.Series, pl.Series]:
    """The text of each list of one message of this role, null for another; and whether it is one."""
    found: list[str | None] = []
    for text in lists.to_list():
        messages = json.loads(text) if text is not None and text.startswith("[") else None
        one = messages[0] if isinstance(messages, list) and len(messages) == 1 else None
        content = one.get("content") if isinstance(one, dict) and one.get("role") == role else None
        plain = isinstance(content, str) and not (one or {}).get("tool_calls")
        found.append(_json(content) if plain else text if text is not None and text.startswith('"') else None)
    texts = pl.Series(lists.name, found, dtype=pl.String)
    return texts, texts.is_not_null()


def kinds(items: Iterable[Counter[str]]) -> str:
    """The types of items without a chat form with their counts, the most frequent first: `web_search_call 12, mcp_call 1`."""
    counts = sum(items, Counter[str]())
    return ", ".join(f"{name} {number:,}" for name, number in counts.most_common())
