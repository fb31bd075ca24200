"""How many of the outputs of a run have their name: a signal that comes after the last one does not make it a failure.

A signal that comes while a file gets its name waits until the file is counted. Outputs that tasks on a cluster write are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final


@dataclass
class _Outputs:
    expected: int = 0
    named: int = 0
    is_naming: bool = False
    late: Callable[[], None] | None = None  # what a signal does that came meanwhile


_OUTPUTS: Final = _Outputs()


def begin(outputs: int) -> None:
    """A command begins, with so many outputs that are known from its options alone."""
    _OUTPUTS.expected, _OUTPUTS.named = outputs, 0


def expect(outputs: int) -> None:
    """So many more outputs will be written."""
    _OUTPUTS.expected += outputs


@contextmanager
def naming() -> Iterator[None]:
    """Around the step that gives an output its name."""
    _OUTPUTS.is_naming = True
    try:
        yield
        _OUTPUTS.named += 1
    finally:
        _OUTPUTS.is_naming = False
        late, _OUTPUTS.late = _OUTPUTS.late, None
        if late is not None:
            late()


def put_off(what: Callable[[], None]) -> bool:
    """Whether an output gets its name at this moment: then this is called when it has it."""
    if _OUTPUTS.is_naming:
        _OUTPUTS.late = what
    return _OUTPUTS.is_naming


def is_complete() -> bool:
    """Whether there are outputs, and each has its name."""
    return 0 < _OUTPUTS.expected <= _OUTPUTS.named
