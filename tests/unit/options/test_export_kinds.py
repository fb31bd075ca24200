"""A kind of export is one row: whatever lists the kinds is made of these rows, and a test fails if it lags behind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import grpo_cli
from grpo_cli.errors import UsageError
from grpo_cli.guests.browse.model import KINDS as MENU
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.export_kinds import EXPORT_KINDS, WITH_ADVANTAGES
from grpo_cli.options.table import EVERY, OF_KINDS
from grpo_cli.runs.export_kinds import STEPS
from tests.support.command import adv
from tests.support.documents import TABLES

NAMES = tuple(EXPORT_KINDS)
ROOT = Path(__file__).resolve().parents[3]


def test_the_command_line_takes_every_kind_and_says_what_each_is() -> None:
    assert EVERY["to"].choices == NAMES
    assert EVERY["to"].help.startswith("sft: the best rows of each group. pairs: ")
    for kind in EXPORT_KINDS.values():
        assert f"{kind.name}: {kind.help}." in EVERY["to"].help
        assert kind.brief in COMMANDS["export"].help
        assert not kind.help.endswith(".")


def test_type_checkers_of_python_know_every_kind() -> None:
    assert get_args(get_type_hints(grpo_cli.export)["to"]) == NAMES, "run: make docs"


def test_browse_offers_every_kind() -> None:
    assert {
        "select": "the rows as they are in their files",
        **{f"export --to {kind.name}": kind.help for kind in EXPORT_KINDS.values()},
    } == MENU


def test_the_page_has_a_line_for_every_kind() -> None:
    lines = TABLES["export kinds"]().splitlines()
    assert [line.split("`")[1] for line in lines[2 : 2 + len(NAMES)]] == [*NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_a_section_on_every_kind(name: str) -> None:
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert len(section.split()) > 20, (
        f"docs/export.md needs a section '## {name}': which rows, which options, an example"
    )


def test_every_kind_has_its_steps() -> None:
    assert tuple(STEPS) == NAMES


def test_what_a_kind_takes_is_an_option_of_export() -> None:
    for kind in EXPORT_KINDS.values():
        assert {*kind.takes} <= {*COMMANDS["export"].options}, kind.name


def test_an_option_in_the_panel_of_a_kind_is_one_that_the_kind_takes() -> None:
    for panel in OF_KINDS:
        of_panel = {row.name for row in EVERY.values() if row.panel == panel}
        assert of_panel <= {*EXPORT_KINDS[panel.removeprefix("For --to ")].takes}, panel


def refused(kind: str, option: str) -> str:
    row = EVERY[option]
    value = "" if row.type is bool else "1" if row.type in {int, float} or option == "pass_at" else "x"
    value = row.choices[0] if row.choices else value
    done = adv("export", "x.jsonl", "--to", kind, row.flag, *[value] * bool(value), "-o", "y.jsonl")
    assert done.status == 2
    return done.err


@pytest.mark.parametrize("kind", NAMES)
def test_a_kind_refuses_the_options_of_others_and_names_theirs(kind: str) -> None:
    of_kinds = {name for one in EXPORT_KINDS.values() for name in one.takes}
    for option in sorted(of_kinds - {*EXPORT_KINDS[kind].takes}):
        said = refused(kind, option)
        assert f"{EVERY[option].flag} does not apply to --to {kind}" in said
        named = re.split(", | and ", said.partition("it is for --to ")[2].partition(", pass@K")[0].strip())
        assert named == [name for name, one in EXPORT_KINDS.items() if option in one.takes]


@pytest.mark.parametrize("kind", [name for name in NAMES if name not in WITH_ADVANTAGES])
def test_a_kind_without_advantages_refuses_their_options(kind: str) -> None:
    for option in ("method", "scale", "clip", "kl_coef", "zero_variance"):
        value = {"method": "rloo", "clip": "0:1", "kl_coef": "1", "zero_variance": "null"}.get(option, "none")
        done = adv("export", "x.jsonl", "--to", kind, EVERY[option].flag, value, "-o", "y.jsonl")
        assert (done.status, f"does not apply to --to {kind}" in done.err) == (2, True)


def test_an_unknown_kind_is_refused_on_the_command_line_in_a_file_and_in_python(tmp_path: Path) -> None:
    cure = f"cannot be 'sftt'; choose from {', '.join(NAMES)}"
    config = tmp_path / "c.toml"
    config.write_text('to = "sftt"\n')
    assert f"--to {cure}" in adv("export", "x.jsonl", "--to", "sftt", "-o", "y.jsonl").err
    assert f"to in {config} {cure}" in adv("export", "x.jsonl", "--config", str(config), "-o", "y.jsonl").err
    with pytest.raises(UsageError, match=f"to {cure}"):
        grpo_cli.export("x.jsonl", "sftt")  # type: ignore[arg-type]
