"""What the workflows say is what the project says: Pythons, commands of the README, and links that a release makes absolute."""

from __future__ import annotations

import re
import runpy
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
RELEASE = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
CHECKS = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_a_release_is_tested_on_the_pythons_of_every_change_beginning_with_the_oldest() -> None:
    (tested,), (released,) = (re.findall(r"python: (\[.+\])", text) for text in (CHECKS, RELEASE))
    assert tested == released
    assert PROJECT["project"]["requires-python"] == f">={re.findall(r'3[.][0-9]+', released)[0]}"
    assert "[ubuntu-latest, macos-latest]" in RELEASE


def test_a_release_runs_the_commands_of_the_readme_as_they_stand_there() -> None:
    whole = RELEASE.replace("- run: |\n          ", "- run: ").replace("&&\n            ", "&&\n  ")
    commands = re.findall(r"- run: (python3 -m venv (?:.|&&\n)+(?:pytest|--force))$", whole, re.MULTILINE)
    assert len(commands) == 2
    assert [command for command in commands if f"```sh\n{command}\n```" not in README] == []


def test_nothing_but_publishing_may_ask_for_an_identity_and_no_token_is_kept() -> None:
    assert RELEASE.count("id-token: write") == 2  # PyPI and the site
    assert "secrets." not in RELEASE
    assert "password" not in RELEASE
    assert re.search(r"publish:\n    needs: \[tests, archives\]", RELEASE)


def test_a_release_makes_all_relative_links_of_the_readme_absolute_and_leaves_the_others() -> None:
    text = (ROOT / "hatch_build.py").read_text(encoding="utf-8")
    found = re.search(r're\.compile\(r"(.+)"\)', text)
    assert found
    relative = re.compile(found[1])
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert [one[0] if isinstance(one, tuple) else one for one in relative.findall(README)] == [
        target for target in targets if not target.startswith(("https://", "#"))
    ]
    assert relative.findall("[a](https://x) [b](#here) [c](docs/a.md#b)") == ["docs/a.md#b"]


def test_pictures_of_the_readme_are_files_and_its_links_are_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", stand_in)
    absolute = runpy.run_path(str(ROOT / "hatch_build.py"))["absolute"]
    text = "![a screen](docs/a.svg) [a page](docs/a.md#b) [here](#c) ![far](https://x/y.png)"
    assert absolute(text, "https://forge/us/it/", "1.2.3") == (
        "![a screen](https://forge/us/it/raw/v1.2.3/docs/a.svg) [a page](https://forge/us/it/blob/v1.2.3/docs/a.md#b) [here](#c) ![far](https://x/y.png)"
    )
    assert "](docs/" not in absolute(README, "https://forge/us/it", "1.2.3")


def test_a_wheel_whose_description_does_not_render_is_no_release() -> None:
    script = (ROOT / ".ci" / "release").read_text(encoding="utf-8")
    built, checked, links = (script.index(step) for step in ("-m build", "-m twine check --strict", ".ci/release.py"))
    assert built < checked < links
    assert ".ci/release dist" in RELEASE


def test_on_the_day_of_a_release_one_word_of_the_readme_changes() -> None:
    assert re.findall(r"\bsoon\b", README, re.IGNORECASE) == ["Soon"]
    assert 'in `README.md`, remove the word "Soon"' in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    # uvx runs the script with the name of the project.
    (command,) = re.findall(r"^uvx (\S+) compute", README, re.MULTILINE)
    assert {PROJECT["project"]["name"]} == {*PROJECT["project"]["scripts"]} == {command}


def test_numbers_and_defaults_that_changed_are_a_table_with_the_way_back() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = changes.partition("### Numbers and defaults that changed\n")[2]
    head, _, *rows = [line for line in section.partition("\n#")[0].splitlines() if line]
    assert head == "| command | before | after | the old result |"
    assert len(rows) > 20
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 and all(map(str.strip, row.split("|")[1:-1])) for row in rows)


def test_every_extra_for_users_is_installed_and_tried_before_a_release() -> None:
    script = (ROOT / ".ci" / "release").read_text(encoding="utf-8")
    for_developers = {"test", "browser", "docs", "readers", "nightly", "dev"}
    tried = re.findall(r"^ +(\w+)\) tried=", script, re.MULTILINE)
    assert {*tried} == {*PROJECT["project"]["optional-dependencies"]} - for_developers
    assert "WITHOUT" not in RELEASE


def test_what_the_checks_leave_out_of_a_release_is_installed_by_another_part_of_them() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    asked = ",".join(re.findall(r"install \S+ -e '\.\[(.+)\]'", script)).split(",")
    needs = " ".join(need for extra in asked for need in PROJECT["project"]["optional-dependencies"][extra])
    installed = {*asked, *",".join(re.findall(r"grpo-adv\[(.+?)\]", needs)).split(",")}
    (left_out,) = re.findall(r'WITHOUT="(.+)" \.ci/release', script)
    assert {*left_out.split()} <= {*installed, "nightly"}


def test_the_hook_is_in_the_source_archive_and_what_it_fills_in_is_dynamic() -> None:
    assert "hatch_build.py" in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"readme", "urls"} <= {*PROJECT["project"]["dynamic"]}
