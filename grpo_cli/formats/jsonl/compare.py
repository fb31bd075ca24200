"""Whether an output of JSON lines is its input with new members put in, byte by byte."""

from __future__ import annotations

from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING

from grpo_cli.errors import DataError
from grpo_cli.formats.jsonl import members
from grpo_cli.formats.jsonl.lines import BOM, is_blank, raw_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_cli.files.inputs import Input


def first_difference(new: Input, old: Input, added: tuple[str, ...]) -> str | None:
    """The first line that is not what weaving its own new values into the old line gives; None when there is none."""
    spot = members.Spot.of(added, replace=True)
    for number, (was, now) in enumerate(zip_longest(raw_lines(old), raw_lines(new)), 1):
        if was is None or now is None:
            longer = new.name if was is None else old.name
            raise DataError(f"{longer}:{number}: a line that the other file does not have")
        if was == now if is_blank(was) or not added else _is_woven(spot, was, now):
            continue
        if wrong := _wrong_names(now, added):
            raise DataError(f"{new.name}:{number}: {wrong}")
        return f"{new.name}:{number}: {_differing_member(was, now, added)} differs from {old.name}:{number}"
    return None


def _wrong_names(line: bytes, added: Sequence[str]) -> str | None:
    """That an object does not have a new member, or has it twice; None if neither, and for what is no object."""
    with suppress(ValueError, IndexError, StopIteration):
        names = [name for name, _ in _members(line)]
        for name in added:
            if names.count(name) != 1:
                return f"{name} is named twice in one object" if name in names else f"no {name} in this line"
    return None


def _is_woven(spot: members.Spot, was: bytes, now: bytes) -> bool:
    if is_blank(now):
        return False
    found = dict(_members(now))
    if not all(name in found for name in spot.names):
        return False
    return spot.put(was, [found[name] for name in spot.names]) == now


def _members(line: bytes) -> list[tuple[str, str]]:
    """The keys of an object and the texts of their values."""
    text = line.removeprefix(BOM).decode("utf-8", "surrogateescape")
    return [(name, text[start:end]) for name, start, end in members.spans_of(text)]


def _differing_member(was: bytes, now: bytes, added: Sequence[str]) -> str:
    """The first member that is not the same in both lines, or what else there is in a line."""
    try:
        before, after = _members(was), _members(now)
    except (ValueError, IndexError, StopIteration):
        return "the line"
    pairs = zip_longest(before, (one for one in after if one[0] not in added or one in before))
    differing = (one or other for one, other in pairs if one != other)
    return next((name for name, _ in differing if name not in added), "the text around the values")
