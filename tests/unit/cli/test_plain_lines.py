"""A command line that is read without typer means what it means with typer."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, get_args, get_origin

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_cli.cli import app, entry
from grpo_cli.cli.command import Command
from grpo_cli.cli.signature import for_typer
from grpo_cli.options.table import EVERY, OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from grpo_cli.options.table import Option

NUMBERS = ("1", "0.5", "-2", "1e-4", "007", "-0", "1_000", ".5", "5.", "nan", "inf", "1e400", " 1", "+1", "9" * 16)
TEXTS = ("a.jsonl", "-", "a,b", "x=1", "", "--force", "-q", "-1:1", "a b", "é", "none", "keep", "@file")


def by_typer(words: list[str]) -> tuple[str, Any]:
    """What the body is given, or that the line is refused."""
    seen: list[dict[str, Any]] = []
    application = typer.Typer(add_completion=False)
    application.command()(for_typer(Command(named(seen), tuple(OPTIONS))))
    try:
        application(words, standalone_mode=False)
    except typer.exceptions.TyperException as error:
        return "refused", type(error).__name__
    return ("given", seen[0]) if seen else ("helped", None)


def named(seen: list[dict[str, Any]]) -> Any:
    def compute(typed: dict[str, Any]) -> None:
        seen.append(typed)

    return compute


def plainly(words: list[str]) -> dict[str, Any] | None:
    return Command(named([]), tuple(OPTIONS)).understood(words)


def values(option: Option) -> st.SearchStrategy[str]:
    usual = get_args(option.type) if get_origin(option.type) is not list else ()
    return st.sampled_from([*map(str, usual), *NUMBERS, *TEXTS])


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    words: list[str] = []
    for _ in range(draw(st.integers(0, 5))):
        option = OPTIONS[draw(st.sampled_from(sorted(OPTIONS)))]
        flag = draw(st.sampled_from([one for one in (option.flag, option.other, option.short) if one]))
        if option.type is bool:
            words.append(flag)
        elif draw(st.booleans()):
            words.append(f"{flag}={draw(values(option))}")
        else:
            words += [flag, draw(values(option))]
    for _ in range(draw(st.integers(0, 2))):
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from([*TEXTS, "--", "-h", "--fo", "-ofile"])))
    return words


@settings(max_examples=150)
@given(lines())
def test_what_is_understood_is_what_typer_gives(words: list[str]) -> None:
    plain = plainly(words)
    if plain is not None:
        how, seen = by_typer(words)
        assert (how, repr(seen)) == ("given", repr(plain)), words


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_every_option_is_understood_when_it_is_spelled_out(option: Option) -> None:
    value = (get_args(option.type) or ("1",))[0] if get_origin(option.type) is not list else "a=1"
    words = ["in.jsonl", option.flag, *([] if option.type is bool else [value])]
    plain = plainly(words)
    assert plain is not None
    assert by_typer(words) == ("given", plain)


@pytest.mark.parametrize(
    "words",
    [[], ["--help"], ["a", "-h"], ["a", "--fore"], ["a", "--force=yes"], ["a", "--ddof", "one"], ["a", "--scale", "no"],
     ["a", "-ofile"], ["a", "-o"], ["--", "a"], ["a", "-qf"], ["a", "--clip", "-1:1"]],
    ids=" ".join,
)  # fmt: skip
def test_short_spellings_help_and_mistakes_are_left_to_typer(words: list[str]) -> None:
    assert plainly(words) is None


@pytest.mark.parametrize("name", entry.PLAIN)
def test_every_plain_command_is_a_command_of_the_application_too(name: str) -> None:
    known = {one.callback.__name__: one.callback for one in app.app.registered_commands if one.callback is not None}
    command = vars(sys.modules[f"grpo_cli.cli.{name}"])[name]
    assert name in known
    assert set(command.options) <= set(EVERY)
    assert known[name].__doc__ == command.body.__doc__


def test_a_plain_line_loads_neither_typer_nor_pydantic(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt_id": 1, "reward": 1}\n{"prompt_id": 1, "reward": 0}\n')
    told = (
        f"import sys; sys.argv = ['grpo-adv', 'compute', {str(path)!r}, '--quiet']\n"
        "from grpo_cli.cli.entry import main\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted({'typer', 'pydantic', 'rich'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
