"""CSV as tables of rollouts are exported: short records, and long texts with quotes and line feeds in them."""

from __future__ import annotations

import csv
import random
from typing import TYPE_CHECKING, Final

from benchmarks.shapes_files import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Cells = tuple[object, ...]

GROUP: Final = 8
_SAID: Final = ('He said "yes", and then', "first,\nsecond,\n", "a plain sentence of words", "x = 1; y = 2", "数学问题")


def short(rows: int) -> Iterator[Cells]:
    """Key, place in its group, reward."""
    drawn = random.Random(7)
    yield "prompt_id", "sample", "reward"
    for at in range(rows):
        yield f"prompt-{at // GROUP}", at % GROUP, drawn.random()


def texts(rows: int) -> Iterator[Cells]:
    """The same with a text of about 2 KB, in no order."""
    drawn = random.Random(7)
    yield "step", "prompt_id", "completion", "reward"
    for at in drawn.sample(range(rows), rows):
        yield 1, f"prompt-{at // GROUP}", " ".join(drawn.choices(_SAID, k=90)), drawn.randrange(5) / 4


def _writer(cells: Callable[[int], Iterator[Cells]]) -> Callable[[Path, int], None]:
    """A function that writes this many rows of cells, after the header."""

    def write(path: Path, rows: int) -> None:
        with path.open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle, lineterminator="\n").writerows(cells(rows))

    return write


SHAPES: Final = {
    "csv-short": Shape(2_000_000, _writer(short), ".csv"),
    "csv-texts": Shape(150_000, _writer(texts), ".csv"),
}
