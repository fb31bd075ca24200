"""Whether an output of JSON lines is its input with new members put in, byte by byte."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from grpo_cli.errors import DataError
from grpo_cli.files.compression import unpacked
from grpo_cli.formats.blocks import BOM, blocks, refuse_other_encodings
from grpo_cli.formats.json_text import SMALL, spans_of
from grpo_cli.formats.jsonl.lines import is_blank, last_braces
from grpo_cli.formats.jsonl.members import Spot
from grpo_cli.formats.jsonl.weaving import without_last
from grpo_cli.formats.slices import between
from grpo_cli.parallel import ahead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from grpo_cli.files.inputs import Input


def first_difference(new: Input, old: Input, added: tuple[str, ...]) -> str | None:
    """The first line that is not what weaving its own new values into the old line gives; None when there is none."""
    spot = Spot.of(added, replace=True)

    def differs(pair: _Pair) -> str | None:
        return None if _is_woven_block(spot, pair) else _first_differing_line(spot, pair, new.name, old.name)

    return next((found for found in ahead(differs, _pairs(new, old)) if found is not None), None)


class _Pair(NamedTuple):
    """As many lines of both files, fewer where one of them is at its end, and how many lines are before them."""

    was: bytes
    now: bytes
    before: int


def _pairs(new: Input, old: Input) -> Iterator[_Pair]:
    line = 0
    with unpacked(new) as handle:
        refuse_other_encodings(new, handle)
        for block in blocks(old):
            was = block.read()
            count = was.count(b"\n") + (not was.endswith(b"\n"))
            yield _Pair(was, b"".join(islice(handle, count)), line)
            line += count
        yield from (_Pair(b"", more, line) for more in handle)


def _is_woven_block(spot: Spot, pair: _Pair) -> bool:
    """Tell whether all new lines are the old ones with the new members last; False where single lines have to say."""
    was, now, _ = pair
    if not spot.names or not was or not now:
        return was == now
    (old, empty), (new, _) = last_braces(was), last_braces(now)
    if len(old) != len(new) or len(old) <= SMALL or len(empty) or was[old[-1] :] != now[new[-1] :]:
        return False
    before = without_last(now, np.concatenate(([0], new[:-1])), new, spot)
    if before is None:
        return False
    sizes = np.diff(new, prepend=0)
    woven = (before.str.len_bytes().to_numpy() < sizes).all()
    return bool(woven and (before == between(was, np.concatenate(([0], old[:-1])), old)).all())


def _first_differing_line(spot: Spot, pair: _Pair, new: str, old: str) -> str | None:
    lines = zip_longest(BytesIO(pair.was), BytesIO(pair.now))
    for number, (was, now) in enumerate(lines, pair.before + 1):
        if was is None or now is None:
            raise DataError(f"{new if was is None else old}:{number}: a line that the other file does not have")
        if was == now if is_blank(was) or not spot.names else _is_woven(spot, was, now):
            continue
        if wrong := _wrong_names(now, spot.names):
            raise DataError(f"{new}:{number}: {wrong}")
        return f"{new}:{number}: {_differing_member(was, now, spot.names)} differs from {old}:{number}"
    return None


def _wrong_names(line: bytes, added: Sequence[str]) -> str | None:
    """That an object does not have a new member, or has it twice; None if neither, and for what is no object."""
    with suppress(ValueError, IndexError):
        names = [name for name, _ in _members(line)]
        for name in added:
            if names.count(name) != 1:
                return f"{name} is named twice in one object" if name in names else f"no {name} in this line"
    return None


def _is_woven(spot: Spot, was: bytes, now: bytes) -> bool:
    with suppress(ValueError, IndexError):  # what is no object is no line that was woven
        found = dict(_members(now))
        return all(name in found for name in spot.names) and spot.put(was, [found[name] for name in spot.names]) == now
    return False


def _members(line: bytes) -> list[tuple[str, str]]:
    """The keys of an object and the texts of their values."""
    text = line.removeprefix(BOM).decode("utf-8", "surrogateescape")
    return [(name, text[start:end]) for name, start, end in spans_of(text)]


def _differing_member(was: bytes, now: bytes, added: Sequence[str]) -> str:
    """The first member that is not the same in both lines, or what else there is in a line."""
    try:
        before, after = _members(was), _members(now)
    except (ValueError, IndexError):
        return "the line"
    pairs = zip_longest(before, (one for one in after if one[0] not in added or one in before))
    differing = (one or other for one, other in pairs if one != other)
    return next((name for name, _ in differing if name not in added), "the text around the values")
