"""Speakers of a chat: a message names its speaker in `role`, or in `from` as ShareGPT files do."""

from __future__ import annotations

from typing import Final

_BY: Final = ("role", "from")
_MODEL: Final = frozenset({"response", "assistant", "gpt", "model", "ai", "chatbot", "bot"})


def is_message(value: object) -> bool:
    """Whether a value is a turn of a chat."""
    return isinstance(value, dict) and any(name in value for name in _BY)


def responds(value: object) -> bool:
    """Whether a value is a turn of the model."""
    speaker = next(filter(None, map(value.get, _BY)), None) if isinstance(value, dict) else None
    return isinstance(speaker, str) and is_model(speaker)


def is_model(speaker: str) -> bool:
    """Whether this speaker is the model, or a text without a speaker that is known as its response."""
    return speaker.lower() in _MODEL
