"""The exception tree: what went wrong, how to fix it, and the exit status.

    GrpoError
    ├── UsageError        2   the command line, a plan or a parameter is invalid
    │   ├── UnknownName   2   a name that is in no table, with the nearest one that is
    │   └── PluginError   2   what an installed package adds does not work
    ├── DataError         1   the data cannot be used (file, row or group, and the flag that helps)
    │   ├── InputChanged  1   a file changed between the two readings
    │   └── NoRewards     1   a layout of rows that have no reward each
    └── GateError         3   a --fail-on condition holds; nothing was written

Messages are one line, lower case, without a full stop. What an error knows is kept in fields, and formatted when it is
read: code that passes it on may fill in a field (how many outputs are written by now), but never edits a text. A way out that is an
option is a `Way`, and nothing reads it out of a sentence. `args` is always what is wrong and how to fix it, and the fields are plain
attributes, so an error can be pickled in another process.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

_LISTED = 10  # names near an unknown name that are listed, at most; TRL has as many presets
_FEW = 16  # if no name is near, all known names are listed, unless there are more and a command lists them
_TYPOS = 2  # in a name, at most: one in three letters
_SAID = 400  # characters of what is wrong that are shown: a value that it repeats may have megabytes


def printable(text: str) -> str:
    r"""The text on one line, with an escape (`\x1b`) for each character that a terminal would obey or cannot show.

    Everything printed that may come from data (keys, names of columns and files) goes through here.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short(value: object, most: int = 60) -> str:
    """A value in a message, cut if it is long. What a reader may paste (a hint) is never cut."""
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def reason(error: OSError) -> str:
    """What the system says of an error, in lower case."""
    return (error.strerror or str(error)).lower()


class Written(NamedTuple):
    """How many outputs are complete when an error ends the run; its text is the end of the message."""

    before: int | None = 0  # None: unknown, since several processes were writing
    total: int | None = None  # None: all that the run would have written
    names: Sequence[str] = ()  # of those that are complete

    def __str__(self) -> str:
        if self.before is None:
            return "; other outputs may have been written"
        if self.before:
            named = [*self.names]
            if len(named) > _FEW:
                named[1:-1] = ["..."]
            those = f" ({printable(', '.join(named))})" if named else ""
            return f"; {self.before} of {self.total} outputs had been written{those}, the others were not"
        return ", no output was written" if self.total else ", nothing was written"


@dataclass(frozen=True)
class Spelling:
    """How a reader spells options: here as a shell takes them."""

    def option(self, flag: str, value: str) -> str:
        """An option and its value, quoted for a shell, or the placeholder of one; a switch has none."""
        return f"{flag} {value}" if value else flag

    def text(self, text: str) -> str:
        """A sentence that may name options."""
        return text


@dataclass(frozen=True)
class Way:
    """A way out that is an option. It is printed for a shell and for Python; with a value, or without any, it is a command to copy."""

    flag: str
    value: str = ""  # as it is, not quoted
    why: str = ""  # when it helps, or what it does: "if ids restart in each"
    lead: str = ""  # what the sentence begins with: "add"
    fill: str = ""  # the placeholder of a value that only the reader knows: "COL"

    def said(self, spelling: Spelling) -> str:
        """The sentence."""
        option = spelling.option(self.flag, shlex.quote(self.value) if self.value else self.fill)
        end = spelling.text(self.why)
        gap = "" if end[:1] in {"", ",", ":"} else " "
        return f"{spelling.text(self.lead)} {option}{gap}{end}".lstrip()


Cure = str | Way  # a way out: a sentence, or an option
Cures = Cure | Sequence[Cure]


def one_by_one(cures: Cures) -> list[Cure]:
    """The ways out."""
    return [cure for cure in ([cures] if isinstance(cures, str | Way) else cures) if cure]


def in_words(cures: Iterable[Way]) -> str:
    """Ways out as the end of a warning, for a shell."""
    return "; ".join(cure.said(Spelling()) for cure in cures)


class StepsApart(str):
    """The warning that the steps of a run are shown apart; it stands before what is shown.

    `recur` says which prompts recur; it is empty if ids restart, and name other prompts in each step.
    """

    __slots__ = ("recur",)

    recur: str

    def __new__(cls, text: str, recur: str = "") -> Self:
        """The warning."""
        made = super().__new__(cls, text)
        made.recur = recur
        return made

    def pooled(self, run: str = "") -> Self:
        """The warning where runs are compared, after the name of a run: a prompt has its rewards of all steps."""
        text = f"{self.recur}: a prompt has the rewards of all its steps here" if self.recur else self
        return type(self)(f"{run}{text}", self.recur)


class GrpoWarning(UserWarning):
    """A warning of a run, as Python gives it: what the command line prints after `warning:`."""


class GrpoError(Exception):
    """Something that the user can act on; never a bug of ours."""

    status: ClassVar[int] = 1

    def __init__(self, what: str, cures: Cures = "", *, place: object = "", written: Written | None = None) -> None:
        super().__init__(what, cures)
        self.cures = one_by_one(cures)  # the ways to fix it; a command that knows a better one sets its own
        self.wrong = ""  # the word of the command line that is wrong, if it is one
        self.right = ""  # what may be meant instead
        self._place = str(place)
        self.written = written  # what became of the outputs; None if they do not matter
        self.spelling = Spelling()  # how the reader spells options
        self.names: Mapping[str, str] = {}  # how the reader calls files that are there for this run only

    @property
    def place(self) -> str:
        """The file, and its line or row."""
        return self._named(self._place)

    @property
    def message(self) -> str:
        """What is wrong and where, and what was written."""
        where = f"{self.place}: " if self.place else ""
        what = printable(self._said(self.args[0]))
        if len(what) > _SAID:
            what = f"{what[: _SAID // 2]}...{what[-_SAID // 2 :]}"
        return f"{where}{what}{'' if self.written is None else self.written}"

    @property
    def hint(self) -> str:
        """How to fix it."""
        return "; ".join(self.hints)

    @property
    def hints(self) -> list[str]:
        """The ways to fix it, one by one."""
        return [
            self._named(cure.said(self.spelling)) if isinstance(cure, Way) else self._said(cure) for cure in self.cures
        ]

    def _said(self, text: str) -> str:
        return self.spelling.text(self._named(text))

    def _named(self, text: str) -> str:
        for path, name in self.names.items():
            text = text.replace(path, name)
        return text

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def inside(self, place: str) -> None:
        """Prefix the place: the code that raised the error knew only a part of it."""
        self._place = f"{place}: {self._place}" if self._place else place


class UsageError(GrpoError, ValueError):
    """The request itself is invalid, whatever the data."""

    status = 2


class UnknownName(UsageError):
    """A name that no table has."""

    @classmethod
    def of(cls, kind: str, name: str, cures: Cures) -> UnknownName:
        """The error for a name of this kind of things."""
        error = cls(f"no {kind} named {name!r}", cures)
        error.wrong = name
        return error

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str], cure: str = "", *, lost: Cure = "") -> UnknownName:
        """The error for an unknown name: it lists near names, else all if they are few or there is no `lost`, which says where they are."""
        names = list(known)
        near = near_names(name, names)
        if near:
            more = f" and {len(near) - _LISTED} more" if len(near) > _LISTED else ""
            listed = repr(near[0]) if len(near) == 1 else ", ".join(near[:_LISTED])
            way_out = f"did you mean {listed}{more}?"
        elif lost and len(names) > _FEW:
            return cls.of(kind, name, lost)
        else:
            way_out = f"known: {', '.join(names) or 'none'}"
        error = cls.of(kind, name, f"{way_out} {cure}".strip())
        error.right = near[0] if len(near) == 1 else ""
        return error


class PluginError(UsageError):
    """A plugin cannot be imported, is invalid, or fails."""


def near_names(name: str, known: Collection[str]) -> list[str]:
    """The names that begin with this one, else the name that it is a typo of."""
    low, *texts = (text.lower().lstrip("-").replace("_", "-") for text in (name, *known))
    names = dict(zip(known, texts, strict=True))
    begun = [other for other, text in names.items() if low and text.startswith(low)]
    if len(begun) > 1:
        return begun
    steps = {other: edits(low, text) for other, text in names.items()}
    nearest = min(steps, key=steps.__getitem__, default="")
    return [nearest] if steps and steps[nearest] <= min(len(low) // 3, _TYPOS) else begun


def edits(name: str, other: str) -> int:
    """The edit distance of two names; swapping two neighbouring letters is one edit."""
    before: list[int] = []
    last: list[int] = [*range(len(other) + 1)]
    for row, letter in enumerate(name):
        now = [row + 1]
        for column, wanted in enumerate(other):
            swapped = row and column and (letter, name[row - 1]) == (other[column - 1], wanted)
            costs = [last[column] + (letter != wanted), last[column + 1] + 1, now[column] + 1]
            now.append(min([*costs, before[column - 1] + 1] if swapped else costs))
        before, last = last, now
    return last[-1]


class DataError(GrpoError, ValueError):
    """The data cannot be used for what the options request."""


class InputChanged(DataError):
    """A file has changed since its rewards were read."""

    @classmethod
    def between_readings(cls, name: str) -> InputChanged:
        """The error that keeps advantages of old rows off new ones."""
        wrong = "the file changed while it was being read"
        cure = "run again when its writer has finished"
        return cls(wrong, cure, place=name, written=Written())

    @classmethod
    def unless_same(cls, rows: int, again: int, name: str) -> None:
        """Refuse a file if its second reading has another number of rows than the first."""
        if rows != again:
            raise cls.between_readings(name)


class NoRewards(DataError):
    """The layout of the file has no reward for each row."""


class GateError(GrpoError):
    """A --fail-on condition holds; `facts` are what it was evaluated on."""

    status = 3
    facts: Any = None
