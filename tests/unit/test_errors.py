"""An error keeps what it knows in fields, and is put into words when it is read."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from grpo_cli.api.calls import InKeywords
from grpo_cli.errors import DataError, GrpoError, InputChanged, Spelling, Way, Written


@pytest.mark.parametrize(
    ("written", "end"),
    [
        (None, "no space left"),
        (Written(), "no space left, nothing was written"),
        (Written(0, 3), "no space left, no output was written"),
        (Written(2, 3), "no space left; 2 of 3 outputs had been written, the others were not"),
        (Written(1, 3, ["a"]), "no space left; 1 of 3 outputs had been written (a), the others were not"),
        (
            Written(17, 18, "abcdefghijklmnopq"),
            "no space left; 17 of 18 outputs had been written (a, ..., q), the others were not",
        ),
        (Written(None), "no space left; other outputs may have been written"),
    ],
)
def test_the_message_ends_with_what_became_of_the_outputs(written: Written | None, end: str) -> None:
    error = DataError("no space left", "free some", place="out.jsonl")
    error.written = written
    assert error.message == f"out.jsonl: {end}"
    assert str(error) == f"out.jsonl: {end}; free some"


def test_a_caller_can_put_the_file_before_the_place_of_an_error() -> None:
    error = DataError("reward is null")
    error.inside("a.jsonl:3")
    assert str(error) == "a.jsonl:3: reward is null"
    error.inside("--against a.jsonl")
    assert str(error) == "--against a.jsonl: a.jsonl:3: reward is null"


@dataclass(frozen=True)
class InWords(Spelling):
    """Options as keywords, whose values are texts."""

    def option(self, flag: str, value: str) -> str:
        return f"{flag[2:]}={value!r}"

    def text(self, text: str) -> str:
        return text.replace("--missing exclude", "missing='exclude'")


def test_a_reader_names_options_in_its_way_in_the_message_and_in_the_hint() -> None:
    error = DataError("a null without --missing exclude", "--missing exclude leaves it out")
    error.spelling = InWords()
    assert str(error) == "a null without missing='exclude'; missing='exclude' leaves it out"


@pytest.mark.parametrize(
    ("way", "in_a_shell", "in_python"),
    [
        (Way("--force", why="to replace it", lead="add"), "add --force to replace it", "add force to replace it"),
        (Way("--group", "id,step", "if ids restart"), "--group id,step if ids restart", "group id,step if ids restart"),
        (Way("--group", "my id"), "--group 'my id'", "group='my id'"),
        (Way("--where", "it's"), """--where 'it'"'"'s'""", """where='it'"'"'s'"""),
        (Way("--group-size", fill="N", lead="give"), "give --group-size N", "give group_size=N"),
        (Way("--mask", fill="COL", why=": a list"), "--mask COL: a list", "mask=COL: a list"),
        (Way("--missing", "zero", "as --missing exclude is"), "--missing zero as --missing exclude is", "missing zero as missing exclude is"),
    ],
)  # fmt: skip
def test_a_way_out_is_printed_for_a_shell_and_for_python(way: Way, in_a_shell: str, in_python: str) -> None:
    error = DataError("no", way)
    assert error.hints == [in_a_shell]
    error.spelling = InKeywords()
    assert error.hints == [in_python]


def test_ways_out_are_one_by_one_in_their_order_and_one_line_together() -> None:
    error = DataError("no", [Way("--partial", "keep", "takes it"), "leave it out", Way("--partial", "drop")])
    assert error.hints == ["--partial keep takes it", "leave it out", "--partial drop"]
    assert str(error) == "no; --partial keep takes it; leave it out; --partial drop"


def test_every_field_comes_back_from_another_process() -> None:
    error: GrpoError = InputChanged.between_readings("a.jsonl")
    error.cures.append(Way("--force", why="to replace it"))
    error.written, error.spelling = Written(1, 2), InWords()
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is InputChanged
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize("value", ["k" * 5000, "\0" * 5000, "a b " * 5000])
def test_a_long_value_is_cut_and_the_place_and_the_cure_are_not(value: str) -> None:
    error = DataError(f"--map {value} is no number", f"--map {value}=NUMBER", place="a" * 1000)
    assert len(error.message) < len(error.place) + 420
    assert error.message.startswith(f"{error.place}: --map ")
    assert error.message.endswith(" is no number")
    assert error.hint == f"--map {value}=NUMBER"
