"""The lines of the lists: a group or a rollout fitted to a width, and the head above its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from grpo_cli.browse.model import Model
from grpo_cli.engine.moments import Index
from grpo_cli.read.excerpts import Labels
from grpo_cli.render.text import clean, column, number, strip
from grpo_cli.stats.verdicts import percent

Column = tuple[str, Callable[[Mapping[str, Any]], str]]  # its head, and its text for a group
BLOCK: Final = 64  # groups whose lines are made together
CACHED: Final = 64  # blocks kept
DIGITS: Final = 3
MISSING: Final = "·"
# A status in one character, where there is no room for its word: a sign that needs no colour.
SIGNS: Final = {
    "scored": " ",
    "zero-variance": "=",
    "singleton": "1",
    "unscorable": "?",
    "small-group": "<",
    "masked": "m",
    "left-out": "x",
}
_WIDE: Final = 72  # cells from which the words of the status and more numbers have room
_STRIP: Final = (6, 16)  # cells of the rewards of a group, in a narrow list and in a wide one


class GroupLines:
    """The lines of some groups, made when they become visible."""

    def __init__(self, model: Model, labels: Labels, codes: Index) -> None:
        self._model, self._labels, self._codes = model, labels, codes
        self._ends = model.ends
        self._block = lru_cache(CACHED)(self._make_block)

    def __len__(self) -> int:
        return len(self._codes)

    def head(self, width: int) -> str:
        """The names of the columns."""
        return _fitted("group", [head for head, _ in self._columns(width)], width)

    def line(self, at: int, width: int) -> str:
        """The line of a group by its place in the list."""
        return self._block(at // BLOCK * BLOCK, width)[at % BLOCK]

    def _make_block(self, start: int, width: int) -> list[str]:
        codes = self._codes[start : start + BLOCK].tolist()
        columns = self._columns(width)
        cells = [
            [_right(cell(facts), cell_len(head)) for head, cell in columns] for facts in self._model.lines_of(codes)
        ]
        room = width - sum(cell_len(head) + 1 for head, _ in columns)
        labels = self._labels(codes, max(room, 1))
        return [_fitted(label, line, width) for label, line in zip(labels, cells, strict=True)]

    def _columns(self, width: int) -> list[Column]:
        """The head of each column, as wide as the column, and its text for a group."""
        wide = width >= _WIDE
        room = _STRIP[wide]

        def rewards(facts: Mapping[str, Any]) -> str:
            return strip(ordered(facts["rewards"]), room, self._ends, MISSING).ljust(room)

        columns: list[Column] = [
            ("  n", lambda facts: str(facts["size"])),
            (" mean", lambda facts: number(facts["mean"], digits=DIGITS)),
        ]
        if wide:
            columns += [
                ("solved", lambda facts: "-" if facts["solve_rate"] is None else percent(facts["solve_rate"])),
                ("   std", lambda facts: number(facts["std"], digits=DIGITS)),
            ]
            columns += [("  length", lambda facts: number(facts["length"]))] if "length" in self._model.facts else []
            status: Column = ("status       ", lambda facts: facts["status"].ljust(13))
        else:
            columns.append(("  std", lambda facts: number(facts["std"], digits=2)))
            status = (" ", lambda facts: SIGNS.get(facts["status"], "!"))
        return [*columns, ("rewards".ljust(room)[:room], rewards), status]


def rollout_lines(
    rollouts: Sequence[Mapping[str, Any]], place: Callable[[int], str], width: int
) -> tuple[str, list[str]]:
    """The head and the lines of the rollouts of a group."""
    advantages = [line["advantage"] for line in rollouts]
    signs = ["+" if value is not None and value > 0 else "" for value in advantages]
    columns = [
        ["reward", *column([line["reward"] for line in rollouts])],
        ["advantage", *map("".join, zip(signs, column(advantages), strict=True))],
    ]
    if any(line["length"] is not None for line in rollouts):
        columns.append(["length", *(number(line["length"]) for line in rollouts)])
    if width >= _WIDE:
        columns.append(["status", *(line["status"] for line in rollouts)])
    else:
        columns.append([" ", *(SIGNS.get(line["status"], "!") for line in rollouts)])
    columns.append(["row", *(place(line["row"]) for line in rollouts)])
    names = [*rollouts[0]["rewards"]] if rollouts else []
    columns += [
        [clean(name)[:12], *(number(line["rewards"][name], digits=DIGITS) for line in rollouts)]
        for name in names if len(names) > 1
    ]  # fmt: skip
    widths = [max(map(cell_len, cells)) for cells in columns]
    head, *lines = (_clipped(" ".join(map(_right, cells, widths)), width) for cells in zip(*columns, strict=True))
    return head, lines


def trend_line(trend: tuple[str, list[dict[str, Any]]], width: int) -> str:
    """The mean reward and the share of groups without a gradient over the steps."""
    name, lines = trend
    parts = [f"{clean(name)} {lines[0]['value']} to {lines[-1]['value']}"]
    room = max(4, (width - len(parts[0]) - 60) // 2)
    for title, key, shown in (("mean", "mean", number), ("constant", "zero_variance", percent)):
        values = [line[key] for line in lines]
        known = [value for value in values if value is not None]
        if known:
            parts.append(f"{title} {strip(values, room, missing=MISSING)} {shown(known[0])} to {shown(known[-1])}")
    return _clipped("  ".join(parts), width)


def ordered(values: Sequence[float | None]) -> list[float | None]:
    """Rewards from the largest to the smallest, missing ones last."""
    known = sorted((value for value in values if value is not None), reverse=True)
    return [*known, *[None] * (len(values) - len(known))]


def _right(text: str, width: int) -> str:
    """A right-aligned text; one that is too wide is cut and marked."""
    if cell_len(text) > width:
        return text[: width - 1] + "…"
    return " " * (width - cell_len(text)) + text


def _fitted(label: str, cells: Sequence[str], width: int) -> str:
    """A label and the cells at the right end of the line."""
    right = "".join(f" {cell}" for cell in cells)
    return set_cell_size(set_cell_size(label, max(width - cell_len(right), 0)) + right, width)


def _clipped(line: str, width: int) -> str:
    return line if cell_len(line) <= width else set_cell_size(line, width)
