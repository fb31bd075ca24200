"""The numbers of a document by path: found in the types of the facts, read in the facts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.stats.document import ABSENT, Absent, asked_by
from grpo_cli.stats.gates import ALIASES, Numbers
from grpo_cli.stats.off_policy import NUMBERS, Drift


@dataclass(frozen=True)
class Part:
    rows: int
    share: float | None
    said: str = ""


@dataclass(frozen=True)
class Beside:
    rows: int
    more: int


@dataclass(frozen=True)
class Whole:
    INLINE: ClassVar = ("beside",)
    NOT_SHOWN: ClassVar = frozenset({"secret"})
    GATED: ClassVar = {"twice": None}

    beside: Beside
    version: Literal[1]
    rows: int
    good: bool
    from_: str
    secret: int
    part: Part
    parts: Sequence[Part]
    by_name: Mapping[str, Part]
    counts: Mapping[str, Mapping[str, int]]
    settings: Mapping[str, Any]
    asked: Part | None = field(metadata=asked_by("--ask", "COL"))
    length: float | Absent | None = field(default=ABSENT, metadata=asked_by("--length", "COL"))
    config: str | None = None

    @property
    def twice(self) -> int:
        """The rows two times."""
        return 2 * self.rows


WHOLE = Whole(
    beside=Beside(rows=70, more=7),
    version=1,
    rows=3,
    good=True,
    from_="a.jsonl",
    secret=5,
    part=Part(2, None),
    parts=[Part(1, 0.5), Part(2, 0.25)],
    by_name={"a": Part(11, 0.1), "a.b": Part(12, 0.2), "zero-variance": Part(13, 0.3)},
    counts={"a": {"b.c": 21, "d": 22}, "a.b": {"c.d": 23}},
    settings={"k": 4, "sql": "reward"},
    asked=None,
)
NUMBERS_OF_WHOLE = Numbers(Whole)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("version", 1),
        ("rows", 3),
        ("good", True),
        ("twice", 6),
        ("more", 7),  # beside the others
        ("part.rows", 2),
        ("part.share", None),
        ("parts", 2),  # its length
        ("by_name.a.rows", 11),
        ("by_name.a.b.rows", 12),  # a key has dots
        ("by_name.zero-variance.share", 0.3),
        ("counts.a.d", 22),
        ("counts.a.b.c", 21),
        ("counts.a.b.c.d", 23),
        ("settings.k", 4),
    ],
)
def test_a_path_leads_to_a_number(path: str, number: float | None) -> None:
    NUMBERS_OF_WHOLE.refuse_unknown(path)
    assert NUMBERS_OF_WHOLE.value(WHOLE, path) == number


def test_paths_are_those_of_the_types() -> None:
    assert NUMBERS_OF_WHOLE.paths == [
        "rows", "version", "good", "part.rows", "part.share", "parts", "by_name.KEY.rows", "by_name.KEY.share", "counts.KEY.KEY",
        "settings.KEY", "asked.rows", "asked.share", "length", "twice", "more",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("row", "no quantity named 'row'; did you mean 'rows'?"),
        ("part.row", "no quantity named 'part.row'; did you mean 'part.rows'?"),
        ("share", "no quantity named 'share'; did you mean part.share, by_name.KEY.share, asked.share?"),
        ("part", "part is no number, it has several; name one of them: part.rows, part.share"),
        ("by_name.a", "by_name.a is no number, it has several; name one of them: by_name.KEY.rows, by_name.KEY.share"),
        ("parts.0.rows", "parts is a list, and its items have no path; it stands for its length, as in 'parts > 0'"),
        ("part.said", "part.said is a text; a condition of --fail-on compares numbers"),
        ("secret", "no quantity named 'secret'; --json shows what there is"),
        ("nothing.here", "no quantity named 'nothing.here'; --json shows what there is"),
    ],
)
def test_a_name_that_no_type_has_is_refused_before_there_are_facts(name: str, message: str) -> None:
    with pytest.raises(UnknownName) as raised:
        NUMBERS_OF_WHOLE.refuse_unknown(name)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("asked.rows", "asked.rows: this run has no asked; add --ask COL"),
        ("length", "length: this run has no length; add --length COL"),
        ("by_name.c.rows", "no key of by_name named 'c.rows'; known: a, a.b, zero-variance"),
        ("settings.sql", "settings.sql is not a number, but 'reward'; a condition of --fail-on compares numbers"),
    ],
)
def test_what_a_run_does_not_have_is_an_error_and_not_a_comparison_that_fails(path: str, message: str) -> None:
    NUMBERS_OF_WHOLE.refuse_unknown(path)
    with pytest.raises(UsageError) as raised:
        NUMBERS_OF_WHOLE.value(WHOLE, path)
    assert str(raised.value) == message


def test_the_short_names_of_log_probs_are_all_of_them() -> None:
    """The table of aliases is written out: importing the numbers would load them for every command."""
    assert [name for name, path in ALIASES.items() if path.startswith("off_policy.") and "." not in name] == NUMBERS
    assert {path.rpartition(".")[2] for path in ALIASES.values()} >= {*Numbers(Drift).paths} - {"rows"}
