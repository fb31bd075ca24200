"""The exact reading of JSON lines: Python's own parser, one line at a time.

It defines what a line means. The fast reading must agree with it, and hands over to it whatever it is not sure of.
"""

from __future__ import annotations

import json
from io import BytesIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.errors import DataError
from grpo_cli.formats.blocks import BOM
from grpo_cli.formats.json_text import DECODER
from grpo_cli.formats.jsonl.lines import is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SKIP: Final = "--on-error skip leaves such lines out"
_ONE_A_LINE: Final = "write one object a line, for example with jq -c '.[]'"


def rows(lines: Iterable[bytes], place: Callable[[int], str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every row with the position of its line. A blank line is no row. `place` names a position in a message."""
    for at, line in enumerate(lines):
        if not is_blank(line):
            yield at, parsed(line.removeprefix(BOM), place, at)


def rows_at(data: bytes, place: Callable[[int], str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every row of a block with the offset of its line. `place` names an offset in a message."""
    lines = BytesIO(data).readlines()
    starts = list(accumulate(map(len, lines), initial=0))
    return ((starts[at], row) for at, row in rows(lines, lambda at: place(starts[at])))


def parsed(line: bytes, place: Callable[[int], str], at: int) -> dict[str, Any]:
    """One line as an object, which it has to be."""
    # Bytes that are not UTF-8 are no reason to stop: they go out as they came in.
    text = line.decode("utf-8", "surrogateescape")
    try:
        row = DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _not_json(place(at), text, error) from None
    except RecursionError:
        raise DataError(f"{place(at)}: nested too deeply to be read") from None
    except ValueError as error:  # an integer of more than 4300 digits
        raise DataError(f"{place(at)}: {str(error).lower()}") from None
    if not isinstance(row, dict):
        kind = {list: "an array", str: "a string", type(None): "null"}.get(type(row), "a single value")
        raise DataError(f"{place(at)}: expected an object, found {kind}", _ONE_A_LINE)
    return row


def _not_json(place: str, text: str, error: json.JSONDecodeError) -> DataError:
    if text.strip() in {"[", "{"}:
        return DataError(f"{place}: one JSON value over several lines", _ONE_A_LINE)
    if not text.endswith("\n"):
        return DataError(
            f"{place}: the last line is cut short", "was its writer stopped? --on-error skip leaves that line out"
        )
    what = error.msg.removesuffix(" at")
    column = min(error.pos, len(text.rstrip("\r\n"))) + 1  # what ends too early is found wanting in the next line
    return DataError(f"{place}: not JSON: {what[:1].lower()}{what[1:]} at column {column}", _SKIP)
