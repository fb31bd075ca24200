"""The lines of the lists: a group or a rollout fitted to a width, and the head above its columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from grpo_cli.engine.moments import Index
from grpo_cli.guests.browse.model import GroupLine, Model, Rollout
from grpo_cli.read.texts import Labels
from grpo_cli.render.text import clean, column, number, strip
from grpo_cli.stats.trends import Trend
from grpo_cli.stats.verdicts import percent, three, way

Column = tuple[str, Callable[[Sequence[GroupLine]], list[str]]]  # its head, and its texts for some groups
BLOCK = 64  # groups whose lines are made together
CACHED = 64  # blocks kept
SHORTEST = 8  # the beginning of a prompt has at least this many cells
MISSING = "·"
# A status in one character: a sign that needs no colour.
SIGNS = {
    "scored": " ",
    "zero-variance": "=",
    "singleton": "1",
    "unscorable": "?",
    "small-group": "<",
    "masked": "m",
    "left-out": "x",
}
EQUAL: Final[Mapping[float | None, str]] = {1.0: "good", 0.0: "bad"}  # the colours of always and never solved groups
STRIP = 8  # cells of the rewards of a group
UPRIGHT = "upright"  # the style of what must not be reversed: 7 of 8 rewards would look like 1 of 8


class GroupLines:
    """The lines of some groups, made when they become visible."""

    def __init__(self, model: Model, labels: Labels, codes: Index, ask: Callable[[list[int]], None]) -> None:
        """`ask` is told which groups become visible whose prompts are not known."""
        self._model, self._labels, self._codes, self._ask = model, labels, codes, ask
        self._columns = _columns(model)
        self._right = "".join(f" {head}" for head, _ in self._columns)
        self._prompts: dict[int, str] = {}
        self._block = lru_cache(CACHED)(self._make_block)

    def learn(self, prompts: Mapping[int, str]) -> None:
        """Know the prompts of some groups."""
        self._prompts.update(prompts)
        self._block.cache_clear()

    def __len__(self) -> int:
        return len(self._codes)

    def head(self, width: int) -> str:
        """The names of the columns."""
        return set_cell_size("group", max(width - len(self._right), 0)) + self._right

    def line(self, at: int, width: int) -> Text:
        """The line of a group by its place in the list."""
        return self._block(at // BLOCK * BLOCK, width)[at % BLOCK]

    def _make_block(self, start: int, width: int) -> list[Text]:
        codes = self._codes[start : start + BLOCK].tolist()
        room = max(width - len(self._right), 0)
        labels = self._labels(codes, max(room, 1))
        if unknown := [code for code in codes if code not in self._prompts]:
            self._ask(unknown)
        lines = []
        texts = []
        groups = self._model.lines_of(codes)
        for head, shown in self._columns:
            wide = cell_len(head)
            texts.append([_right(text, wide) for text in shown(groups)])
        for code, label, facts, *cells in zip(codes, labels, groups, *texts, strict=True):
            style = EQUAL.get(facts.solve_rate, "") if facts.constant else ""
            beside = room - cell_len(label) - 2
            # A label with spaces is a text, not an id that says nothing.
            prompt = self._prompts.get(code, "") if beside >= SHORTEST and " " not in label else ""
            blank = "  " + set_cell_size(prompt, beside) if beside >= 0 else ""
            *numbers, status = (f" {cell}" for cell in cells)
            key = set_cell_size(label, min(cell_len(label), room))
            blank = blank or " " * (room - cell_len(key))
            *others, strip_of = numbers
            lines.append(Text.assemble(key, (blank, "dim"), *others, (strip_of, UPRIGHT), (status, style)))
        return lines


def _columns(model: Model) -> list[Column]:
    """The head of each column, as wide as the column, and its text for a group."""
    largest = str(model.inspection.groups["size"].max())
    width = max(3, len(largest))
    ends = model.ends

    def rewards(groups: Sequence[GroupLine]) -> list[str]:
        return [strip(ordered(facts.rewards), STRIP, ends, MISSING).ljust(STRIP) for facts in groups]

    return [
        ("n".rjust(width), lambda groups: [str(facts.size) for facts in groups]),
        ("  mean", lambda groups: fitted([facts.mean for facts in groups], 6)),
        ("  std", lambda groups: fitted([facts.std for facts in groups], 5)),
        ("rewards".ljust(STRIP), rewards),
        (" ", lambda groups: [SIGNS.get(facts.status, "!") for facts in groups]),
    ]


def rollout_lines(rollouts: Sequence[Rollout], *, several: bool) -> tuple[str, list[Text]]:
    """The head and the lines of the rollouts of a group, which may be in `several` files."""
    rows = [rollout.line for rollout in rollouts]
    advantages = [row.advantage for row in rows]
    colours = [*map(sign_of, advantages)]
    signs = ["+" if colour == "good" else "" for colour in colours]
    signed = [sign + text for sign, text in zip(signs, column(advantages), strict=True)]
    columns = [["reward", *column([row.reward for row in rows])], ["advantage", *signed]]
    if any(row.length is not None for row in rows):
        columns.append(["length", *(number(row.length) for row in rows)])
    columns.append([" ", *(SIGNS.get(row.status, "!") for row in rows)])
    places = [f"{row.row:,}" for row in rows]
    if several:
        places = [f"{clean(PurePath(row.file).name)}:{row.row}" for row in rows]
    columns.append(["row", *places])
    names = [*rows[0].rewards] if rows else []
    if len(names) > 1:
        for name in names:
            rewards = [number(row.rewards[name], digits=3) for row in rows]
            columns.append([clean(name)[:12], *rewards])
    widths = [max(map(cell_len, cells)) for cells in columns]
    head, *lines = (map(_right, cells, widths) for cells in zip(*columns, strict=True))
    texts = []
    for (reward, advantage, *others), colour in zip(lines, colours, strict=True):
        texts.append(Text.assemble(f"{reward} ", (advantage, colour), f" {' '.join(others)}"))
    return " ".join(head), texts


def sign_of(advantage: float | None) -> str:
    """The colour of an advantage, beside its sign."""
    if not advantage:
        return ""
    return "good" if advantage > 0 else "bad"


def trend_line(trend: Trend, width: int, equal: str) -> str:
    """The mean reward and the share of groups with equal rewards, which are called `equal`, over the steps."""
    lines = trend.lines
    parts = [f"{clean(trend.column)} {lines[0].value} to {lines[-1].value}"]
    room = max(4, (width - len(parts[0]) - 60) // 2)
    for title, key, shown in (
        ("mean", "mean", three),
        (equal, "zero_variance", percent),
        ("truncated", "truncated", percent),
    ):
        values = [getattr(line, key) for line in lines]
        if key in trend.courses and (key != "truncated" or any(values)):
            drawn = strip(values, room, missing=MISSING)
            parts.append(f"{title} {drawn} {' to '.join(way(trend.courses[key], shown))}")
    text = "  ".join(parts)
    return set_cell_size(text, min(cell_len(text), width))


def ordered(values: Sequence[float | None]) -> list[float | None]:
    """Rewards from the largest to the smallest, missing ones last."""
    return sorted(values, key=lambda value: (value is None, -(value or 0)))


def fitted(values: Sequence[float | None], width: int) -> list[str]:
    """Numbers with the same decimals, as many as fit, unless one would become 0: then each number by itself.

    >>> fitted([0.5, 1 / 3, None], 6), fitted([0.5, 1 / 3], 5), fitted([0.5, 4e-5], 5)
    (['0.5000', '0.3333', '-'], ['0.500', '0.333'], ['0.5', '4e-05'])
    """
    for places in (4, 3, 2):
        rounded = [value and round(value, places) for value in values]
        texts = column(rounded)
        becomes_0 = any(value and not short for value, short in zip(values, rounded, strict=True))
        if max(map(len, texts)) <= width and not becomes_0:
            return texts
    return [fitting(value, width) for value in values]


def fitting(value: float | None, width: int) -> str:
    """A number with as many digits as fit, never cut.

    >>> fitting(0.0437, 6), fitting(0.0437, 5), fitting(-0.000437, 5), fitting(-123456.0, 6)
    ('0.0437', '0.044', '-4e-4', '-1e5')
    """
    texts = [number(value, digits=n) for n in (3, 2, 1)]
    if value is not None:
        texts.append(re.sub("e([+-])0*", lambda sign: "e" + sign[1].strip("+"), f"{value:.0e}"))
    return next((text for text in texts if len(text) <= width), texts[-1])


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text
