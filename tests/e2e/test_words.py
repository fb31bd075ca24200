"""One thing, one name: no screen, message or page says another (`tests/support/terms.py` has the names)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grpo_cli.options.commands import COMMANDS
from tests.support.command import adv
from tests.support.terms import NOT_SAID, TERMS, said_wrongly, sentences

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "grpo_cli"
# Each has the words of others, and says so.
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in {
    "gates.md",  # the keys of JSON, with the comments of their fields
    "glossary.md",  # what other tools call them
}]  # fmt: skip
SCREENS = [*(ROOT / "tests/e2e/snapshots").glob("*.txt"), *(ROOT / "tests/unit/guests/browse/screens").glob("*.txt")]
# A table of what a public file has, in its own words.
QUOTED = {"schemas.md": r"^\| `polaris` .*$"}


@pytest.mark.parametrize("module", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_sentence_of_the_code_says_another_name(module: Path) -> None:
    found = {line: words for line, text in sentences(module) if (words := said_wrongly(text))}
    assert found == {}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda path: path.name)
def test_no_page_says_another_name(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(QUOTED.get(page.name, r"(?!)"), "", text, flags=re.MULTILINE)
    assert [line for line in text.splitlines() if said_wrongly(line)] == []


@pytest.mark.parametrize("screen", SCREENS, ids=lambda path: path.name)
def test_no_screen_says_another_name(screen: Path) -> None:
    lines = screen.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith("$ ") and said_wrongly(line)] == []


@pytest.mark.parametrize("command", [*COMMANDS.at_hand])
def test_no_help_says_another_name(command: str) -> None:
    text = adv(f"{command} --help-all").out
    assert text
    values = r"(?<=  )(?:\S+\|)+\S+"  # what an option takes
    assert [line for line in text.splitlines() if said_wrongly(re.sub(values, "", line))] == []


def test_every_name_is_in_the_glossary_and_no_name_is_another_s() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    for term in TERMS:
        assert f"| {term.name} |" in glossary
        assert NOT_SAID.search(term.name) is None
        assert re.search(term.not_said, f"{term.name} {term.meaning}", re.IGNORECASE) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3 zero-variance groups", ["zero-variance"]),
        ("3 Unscorable rows", ["Unscorable"]),
        ("drop them (--zero-variance drop)", []),
        ("the status `zero-variance`, and zero_variance.share in JSON", []),
        ("1 group with a single scored row", ["single scored"]),
    ],
)
def test_names_of_options_and_keys_are_no_words(text: str, words: list[str]) -> None:
    assert said_wrongly(text) == words
