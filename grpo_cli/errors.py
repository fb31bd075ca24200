"""The one exception tree: what went wrong, the way out, and the exit status.

    GrpoError
    ├── UsageError        2   the command line, a plan or a parameter means nothing
    │   └── UnknownName   2   a name that is in no table, with the nearest one that is
    ├── DataError         1   the data cannot be used (file, row or group, and the flag that helps)
    │   └── InputChanged  1   a file changed between the two readings
    └── GateError         3   a --fail-on condition holds; nothing was written

Messages are one line, lower case, without a full stop. `args` is always `(message, hint)`, so every
error survives pickling on its way back from another process.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LISTED: Final = 6  # names that begin like an unknown one


NOTHING_WRITTEN: Final = ", nothing was written"  # at the end of a message


def printable(text: str) -> str:
    r"""The text on one line, with an escape (`\x1b`) for each character that a terminal would obey or cannot show.

    Whatever is printed and may come from data, keys, names of columns and of files, goes through here.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class GrpoError(Exception):
    """Something the user can act upon; never a bug of ours."""

    status: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(GrpoError, ValueError):
    """The request itself means nothing, whatever the data."""

    status = 2


class UnknownName(UsageError):
    """A name that stands in no table."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str], cure: str = "") -> UnknownName:
        """The error for a name that is not among the known ones: with the nearest of them, or else all."""
        names = list(known)
        begun = [known_name for known_name in names if known_name.startswith(name.lower())] if name else []
        if 1 < len(begun) < len(names):
            more = f" and {len(begun) - _LISTED} more" if len(begun) > _LISTED else ""
            return cls(f"no {kind} named {name!r}", f"did you mean {', '.join(begun[:_LISTED])}{more}? {cure}".strip())
        near = get_close_matches(name.lower(), names, n=1, cutoff=0.5) or get_close_matches(
            name, names, n=1, cutoff=0.5
        )
        listed = ", ".join(names) if names else "none"
        way_out = f"did you mean {near[0]!r}?" if near else f"known: {listed}"
        return cls(f"no {kind} named {name!r}", f"{way_out} {cure}".strip())


class DataError(GrpoError, ValueError):
    """The data cannot be used for what the options request."""

    def after_others(self, written: int, total: int) -> DataError:
        """The same error of one of several outputs: those before it are complete, and so are notes of --resume."""
        before = (
            f"; {written} of {total} outputs were written before, no other one"
            if written
            else ", no output was written"
        )
        return type(self)(self.message.replace(NOTHING_WRITTEN, before), self.hint)


class InputChanged(DataError):
    """A file is not the one whose rewards were read."""

    @classmethod
    def between_readings(cls, name: str) -> InputChanged:
        """The advantages of the old rows must not land on the new ones."""
        return cls(
            f"{name}: the file changed while it was being read{NOTHING_WRITTEN}",
            "run again when its writer has finished",
        )

    @classmethod
    def unless_same(cls, rows: int, again: int, name: str) -> None:
        """Refuse a file whose second reading has another number of rows than the first."""
        if rows != again:
            raise cls.between_readings(name)


class GateError(GrpoError):
    """A condition given with --fail-on holds. `facts` are those that it was judged by."""

    status = 3
    facts: Mapping[str, Any] | None = None
