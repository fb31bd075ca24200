"""The documentation is true: generated parts are fresh, code blocks run, names exist, and nothing is left out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import chart
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.presets import presets
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.export_kinds import EXPORT_KINDS
from grpo_cli.options.table import EVERY
from grpo_cli.schemas.table import REFUSED, schemas
from grpo_cli.targets.table import Reads, targets
from tests.support.command import adv, ran
from tests.support.documents import BLOCK, PAGES, TABLES, commands_of, regenerated, run, shell
from tests.support.goldens import cases
from tests.support.jobs import samples_in
from tests.unit.test_rooms import PACKAGE, RULES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
WRITTEN = {name: BLOCK.sub("", text) for name, text in TEXTS.items()}  # by people, not generated
README = TEXTS["README.md"]
ALL = "\n".join(TEXTS.values())
BLOCK_OF_CODE = re.compile(r"```(sh|python|toml)\n(.*?)```", re.DOTALL)
BLOCKS = {name: BLOCK_OF_CODE.findall(text) for name, text in WRITTEN.items()}
GUIDES = {**WRITTEN, "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")}


@pytest.fixture(autouse=True)
def _samples(place: Path) -> None:
    samples_in(place / "sample_data")


# --- what is shown is what happens --------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_the_generated_parts_of_a_page_are_fresh(name: str) -> None:
    assert regenerated(TEXTS[name]) == TEXTS[name], "run: make docs"


GUARANTEES = TEXTS["docs/guarantees.md"]


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[\w./]+\.py(?:::\w+)?)`", GUARANTEES))))
def test_a_test_that_guards_a_promise_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8")


def test_every_promise_of_the_readme_has_its_tests() -> None:
    promises = re.findall(r"^\* (\*\*.+?\*\*)", README.partition("## What you can rely on")[2], re.MULTILINE)
    rows = re.findall(r"^\| (.+) \| (.*)\|$", GUARANTEES.partition("## What holds these promises")[2], re.MULTILINE)[2:]
    assert len(promises) == 3
    assert [promise for promise in promises if promise not in dict(rows)] == []
    # A promise without tests of its own comes to what the rows below it say.
    assert all(tests or not rows[at + 1][0].startswith("**") for at, (_, tests) in enumerate(rows))


def test_every_generated_table_is_on_a_page() -> None:
    used = {what for _, kind, what in BLOCK.findall(ALL) if kind == "table"}
    assert used == {*TABLES}


@pytest.mark.parametrize("name", [name for name, blocks in BLOCKS.items() if blocks])
def test_the_blocks_of_a_page_run_twice_in_a_row_in_a_folder(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only steps that wrote a file run a second time: the others have nothing to overwrite."""
    monkeypatch.setattr(subprocess, "run", partial(in_process, subprocess.run))
    steps = [(kind, step) for kind, body in BLOCKS[name] for step in (commands_of(body) if kind == "sh" else [body])]
    wrote = [step for step in steps if writes(*step, place)]
    for step in wrote:
        writes(*step, place)


def writes(kind: str, step: str, place: Path) -> bool:
    """Run a step of a page; return whether it wrote a file."""
    before = files_of(place)
    if kind == "python":
        exec(compile(step, kind, "exec"), {"__name__": "block"})  # noqa: S102 - that it runs is the point
    elif kind == "sh":
        done = run(step, place)
        assert done.status == 0, f"{step}\n{done.err}"
        assert "Traceback" not in done.err
    return files_of(place) != before


def files_of(place: Path) -> dict[Path, tuple[int, int]]:
    stats = {path: path.stat() for path in place.rglob("*")}
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in stats.items()}


def in_process(start: Callable[..., Any], words: list[str], **options: Any) -> Any:
    """`subprocess.run` for a page: the tool runs in this process, anything else as usual."""
    if words[:3] != [sys.executable, "-m", "grpo_cli"]:
        return start(words, **options)
    assert options == {"check": True}
    ran(*words[3:])
    return None


def test_a_gate_in_front_of_another_command_stops_the_pipe(place: Path) -> None:
    gated = [body for blocks in BLOCKS.values() for _, body in blocks if re.search(r"--fail-on .*\|", body)]
    assert gated
    for body in gated:
        assert "set -o pipefail" in body
        (command,) = commands_of(re.sub(r"> 0\.\d+'", "> 0'", body))
        assert run(command, place).status == 3, body


def test_the_configuration_of_the_documentation_is_read() -> None:
    blocks = [body for blocks in BLOCKS.values() for kind, body in blocks if kind == "toml"]
    (plans,) = [body for body in blocks if "plan-by" in body]
    Path("plans.toml").write_text(plans, encoding="utf-8")
    rows = Path("sample_data/rewards.jsonl").read_text(encoding="utf-8").replace('{"', '{"env_name": "math", "')
    done = adv("compute - --config plans.toml -o plans.jsonl --json", stdin=rows)
    assert [part["preset"]["name"] for part in json.loads(done.out)["parts"]] == ["trl-grpo"]

    (block,) = [body for body in blocks if body != plans]
    assert tomllib.loads(block)
    Path("grpo.toml").write_text(block, encoding="utf-8")
    done = ran("compute sample_data/two_rewards.jsonl --config grpo.toml --json")
    assert '"method": "gdpo"' in done.out


def test_both_installing_commands_are_in_the_readme_as_agreed() -> None:
    install = "python3 -m venv .venv && .venv/bin/pip install"
    main = "'.[browse,report]' &&\n  .venv/bin/grpo-adv compute sample_data/rewards.jsonl --method rloo --scale batch"
    assert f"```sh\n{install} {main} --force\n```" in README  # it runs a second time, too
    assert f"```sh\n{install} -e '.[test]' && .venv/bin/pytest\n```" in README


# --- nothing is left out ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("README.md", [*COMMANDS]),
        ("docs/commands.md", [*COMMANDS]),
        ("docs/options.md", [row.flag for row in EVERY.values()]),
        ("docs/methods.md", [*ESTIMATORS]),
        ("docs/presets.md", [*presets()]),
        ("docs/schemas.md", [*schemas()]),
        ("docs/targets.md", [*EXPORT_KINDS.keys() & {kind for row in targets().values() for kind in row.kinds}]),
    ],
)
def test_every_name_is_documented(page: str, names: list[str]) -> None:
    rows = set(re.findall(r"^\| `([^`]+)`", TEXTS[page], re.MULTILINE))
    assert sorted({*names} - rows) == [], f"{page} has no line for these; run: make docs"


def test_every_method_has_a_sentence_a_formula_and_a_source() -> None:
    for row in ESTIMATORS.values():
        assert row.summary.endswith((".", ":")) or row.summary[0].isupper(), row.name
        assert "=" in row.formula and row.source, row.name


def test_the_changelog_names_the_version() -> None:
    from grpo_cli import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_readme_is_short_and_shows_what_it_does_in_25_lines() -> None:
    lines = README.splitlines()
    assert len(lines) <= 200
    top = "\n".join(lines[:25])
    assert top.count("```sh") == 1
    assert "](docs/browse.svg)" in top
    assert "For people who" in top
    shown = re.search(r"```text\n(no gradient.+?)\n```", top, re.DOTALL)
    assert shown
    assert README.count(shown[1]) == 2, "the result at the top is that of the whole output below"
    commands = [line for body in re.findall(r"```sh\n(.+?)```", README, re.DOTALL) for line in body.splitlines()]
    assert max(map(len, commands)) <= 92, "wider lines get a scrollbar"


def test_the_chart_of_speed_is_that_of_what_was_measured() -> None:
    measured = json.loads(chart.MEASURED.read_text(encoding="utf-8"))
    assert chart.PICTURE.read_text(encoding="utf-8") == chart.drawn(measured["seconds"])
    ratios = sorted(file["tool"] / file["polars"] for file in measured["seconds"].values())
    faster, slower = ([ratio for ratio in ratios if (ratio < 1) is side] for side in (True, False))
    said = " ".join(README.split())
    assert f"take {faster[0]:.2f} to {faster[-1]:.2f} of the time of the polars script" in said
    assert f"{slower[0]:.1f} to {slower[-1]:.1f} times as long" in said


def test_the_numbers_of_methods_presets_and_layouts_are_right() -> None:
    frameworks = {row.framework for row in presets().values()}
    layouts = [row for row in schemas().values() if row.layout not in REFUSED]
    introduction = " ".join(README.split())
    others = f"TRL, verl, OpenRLHF and {len(frameworks) - 3} more"
    sentences = {
        f"GRPO, RLOO and {len(ESTIMATORS) - 2} more critic-free estimators": introduction,
        f"{len(presets())} presets reproduce the exact arithmetic of {others}": introduction,
        f"each preset beside its framework's own code, on 15 tables | {len(cases())} |": GUIDES["CONTRIBUTING.md"],
        f"[{len(layouts)} layouts]": TEXTS["docs/getting-started.md"],
    }
    assert [said for said, text in sentences.items() if said not in text] == [], "write these numbers"


# --- what is named exists -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GUIDES)
def test_paths_and_modules_that_are_named_exist(name: str) -> None:
    """A path is one of the project, of the package or of docs/; a name with dots is one of `grpo_cli`."""
    words = re.findall(r"`([\w./-]+)`", GUIDES[name])
    paths = [word for word in words if re.search(r"\w/[\w.]|\w/$|\.(py|md|yml)$", word) and not word.startswith("-")]
    gone = [path for path in paths if not any((home / path).exists() for home in (ROOT, PACKAGE, DOCS))]
    gone += [word for word in words if word.startswith("grpo_cli.") and not is_known(word)]
    assert not gone


def is_known(dotted: str) -> bool:
    import grpo_cli

    _, *rest = dotted.split(".")
    home = PACKAGE.joinpath(*rest)
    return hasattr(grpo_cli, rest[0]) or home.is_dir() or home.with_suffix(".py").is_file()


@pytest.mark.parametrize("name", TEXTS)
def test_options_that_are_named_exist(name: str) -> None:
    known = {row.flag for command in COMMANDS.values() for row in command.takes.values()}
    known |= {row.other for row in EVERY.values()}
    known.add("--solved-above")  # of the command in examples/plugin
    known |= {"--help", "--help-all", "--version", "--install-completion", "--show-completion"}
    if name == "docs/targets.md":  # what a person gives to the trainer
        known |= {option for row in targets().values() for reads in row.kinds.values() for option in _options(reads)}
    assert not {*re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", TEXTS[name])} - known


def _options(reads: Reads) -> list[str]:
    said = " ".join([reads.by, reads.trains_on, *reads.know.values()])
    return re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", said)


@pytest.mark.parametrize("name", GUIDES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", GUIDES[name]):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        page = (ROOT / name).parent / file if file else ROOT / name
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), target


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_what_the_readme_links_to_is_in_the_source_archive() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", README)}
    assert {target.split("/")[0] for target in linked if not target.startswith("https://")} <= {*packed}


def test_the_picture_shows_the_rooms_that_there_are() -> None:
    picture = (DOCS / "rooms.svg").read_text(encoding="utf-8")
    assert {*re.findall(r'class="room"[^>]*>(\w+)<', picture)} == {name.rpartition("/")[2] for name in RULES}


def test_the_picture_of_the_landing_page_has_the_advantages_of_its_rewards() -> None:
    picture = (DOCS / "advantages.svg").read_text(encoding="utf-8")
    rewards, shown = (re.findall(rf'class="{name}"[^>]*>([-\d.]+)<', picture) for name in ("reward", "advantage"))
    assert len(rewards) == len(shown) == 12
    rows = "".join(f'{{"prompt_id": {k // 4}, "reward": {reward}}}\n' for k, reward in enumerate(rewards))
    scored = adv("compute - -q", stdin=rows).rows
    assert [f"{row['advantage']:.1f}" for row in scored] == shown


@pytest.mark.parametrize(
    "word", ["DAPO", "RLOO", "Dr. GRPO", "GDPO", "Best of n", "DPO", "wandb", "Trackio", "rLLM", "tinker", "Atropos"]
)
def test_a_recipe_is_found_by_the_word_that_people_search_for(word: str) -> None:
    titles = re.findall(r"^##+ (.+)$", WRITTEN["docs/recipes.md"], re.MULTILINE)
    assert any(word in title for title in titles)


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = re.findall(r"([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(menu) == sorted(page.name for page in DOCS.glob("*.md"))


def test_names_do_not_wrap_and_wide_tables_fit_on_the_site() -> None:
    settings, style = ((ROOT / name).read_text(encoding="utf-8") for name in ("mkdocs.yml", "docs/site.css"))
    assert "extra_css: [site.css]" in settings
    assert re.search(r"td:first-child code \{\s+white-space: nowrap;", style)
    assert re.search(r"table:not\(\[class\]\) td \{\s+min-width: 0;", style)


def test_the_landing_page_has_an_installation_an_example_a_picture_and_five_questions() -> None:
    page = TEXTS["docs/index.md"]
    titles = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert titles[:2] == ["One example", "Five questions"]
    assert ".venv/bin/pip install ." in page.partition("##")[0]
    questions = page.partition("## Five questions")[2].partition("## Further")[0]
    assert len(re.findall(r"^\*\*.+\?\*\*", questions, re.MULTILINE)) == 5
    assert "](advantages.svg)" in page


def test_the_toy_learns_through_a_real_pipe(place: Path) -> None:
    done = shell(f"{sys.executable} {ROOT}/examples/toy.py", place)
    assert done.status == 0, done.err
    means = [float(line.split()[1]) for line in done.out.splitlines() if line.split()[0].isdigit()]
    assert means[-1] > 2 * means[0]
    assert means[-1] > 0.8


def test_pages_that_the_search_finds_first_exist_and_their_words_are_for_the_search_alone() -> None:
    pytest.importorskip("mkdocs")
    from tests.support import site

    for name in {*site.FOUND_BY, *site.REFERENCE}:
        assert (DOCS / name).is_file()
    page = SimpleNamespace(file=SimpleNamespace(src_uri="choosing.md"), meta={})
    assert site.on_page_markdown("text", page, None, None) == "text"
    assert page.meta == {"search": {"boost": site.GUIDE}}
    html = site.on_page_content("<h1>Choosing</h1><p>more</p>", page, None, None)
    assert html.startswith("<h1>Choosing</h1><p hidden>leave-one-out ")
    assert html.endswith("</p><p>more</p>")


@pytest.mark.parametrize(
    "name", re.findall(r"^  ([a-z]+): \"", (DOCS / "site.js").read_text(encoding="utf-8"), re.MULTILINE)
)
def test_a_page_with_a_filter_has_sections_and_tables(name: str) -> None:
    page = TEXTS[f"docs/{name}.md"]
    assert re.search(r"^## ", page, re.MULTILINE)
    assert "| --- |" in page
