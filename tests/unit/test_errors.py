"""An error keeps what it knows in fields, and is put into words when it is read."""

from __future__ import annotations

import pickle

import pytest

from grpo_cli.errors import DataError, GrpoError, InputChanged, Written


@pytest.mark.parametrize(
    ("written", "end"),
    [
        (None, "no space left"),
        (Written(), "no space left, nothing was written"),
        (Written(0, 3), "no space left, no output was written"),
        (Written(2, 3), "no space left; 2 of 3 outputs had been written, the others were not"),
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


def _in_words(text: str) -> str:
    return text.replace("--missing exclude", "missing='exclude'")


def test_a_reader_names_options_in_its_way_in_the_message_and_in_the_hint() -> None:
    error = DataError("a null without --missing exclude", "--missing exclude leaves it out")
    error.options = _in_words
    assert str(error) == "a null without missing='exclude'; missing='exclude' leaves it out"


def test_every_field_comes_back_from_another_process() -> None:
    error: GrpoError = InputChanged.between_readings("a.jsonl")
    error.written, error.options = Written(1, 2), _in_words
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
