"""Speakers of a chat: a message names its speaker in `role`, or in `from` as ShareGPT files do."""

from __future__ import annotations

_BY = ("role", "from")
# The last two are of texts that name no speaker: a response, and a conversation without marks.
_MODEL = frozenset({"assistant", "gpt", "model", "ai", "chatbot", "bot", "response", "message"})


def is_message(value: object) -> bool:
    """Whether a value is a turn of a chat."""
    return isinstance(value, dict) and any(name in value for name in _BY)


def responds(value: object) -> bool:
    """Whether a value is a turn of the model."""
    speaker = next(filter(None, map(value.get, _BY)), None) if isinstance(value, dict) else None
    return isinstance(speaker, str) and is_model(speaker)


def is_model(speaker: str) -> bool:
    """Whether this speaker is the model."""
    return speaker.lower() in _MODEL
