"""A config file in the working folder: what it may set, that it is always named, and what a hostile one cannot do."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_origin

import polars as pl
import pytest

import grpo_cli
from grpo_cli.options.table import COMMANDS, COMPARED, EVERY, OUTPUT, Option
from tests.support.command import adv
from tests.support.drawn import paired
from tests.support.jobs import write

ROWS = [{"prompt_id": k // 4, "reward": k % 4, "prompt": "p", "completion": "c"} for k in range(12)]
READERS = [row.name for row in COMMANDS.values() if "config" in row.options]
NOT_ALLOWED = {
    "stream", "max_line", "config", "no_config",  # what is read
    "output", "force", "in_place", "replace", "summary", "write", "install",  # what is written
    "engine", "ray_address", "before", "rescored", "against", "presets", "schemas", "source",  # other machines and other files
}  # fmt: skip
LINES = {
    "compute": ["compute", "in.jsonl"],
    "inspect": ["inspect", "in.jsonl"],
    "browse": ["browse", "in.jsonl"],
    "report": ["report", "in.jsonl"],
    "select": ["select", "in.jsonl"],
    "export": ["export", "in.jsonl", "--to", "sft", "-o", "new.jsonl"],
    "audit": ["audit", "in.jsonl"],
    "add": ["add", "in.jsonl", "--from", "in.jsonl", "--column", "prompt=again", "-o", "new.jsonl"],
    "compare": ["compare", "in.jsonl", "--method", "grpo", "--method", "rloo"],
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GRPO_ADV_CONFIG", raising=False)
    return write(tmp_path / "downloaded" / "in.jsonl", ROWS).parent


def toml(row: Option) -> str:
    """A line of TOML that gives the option a value of its type."""
    of_lists = ["x:method=rloo" if row.name == "plans" else "x"]
    value: Any = {bool: True, int: 1, float: 0.5, str: "x"}.get(row.type, of_lists)
    if get_origin(row.type) not in {None, list}:
        value = get_args(row.type)[0]
    return f"{row.flag.removeprefix('--')} = {json.dumps(value)}\n"


def as_file(place: Path, text: str) -> dict[str, str]:
    (place / "grpo-adv.toml").write_text(text)
    return {}


def as_section(place: Path, text: str) -> dict[str, str]:
    (place / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.other]\na = 1\n[tool.grpo-adv]\n{text}")
    return {}


def as_variable(place: Path, text: str) -> dict[str, str]:
    (place.parent / "mine.toml").write_text(text)
    return {"GRPO_ADV_CONFIG": str(place.parent / "mine.toml")}


WAYS = [as_file, as_section, as_variable]
SOURCES = pytest.mark.parametrize("source", WAYS, ids=lambda source: source.__name__)


def files(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


# --- what it may not do ----------------------------------------------------------------------------------------


def test_what_a_file_of_the_folder_may_not_set_is_written_down_here_as_well() -> None:
    assert {row.name for row in EVERY.values() if not row.in_folder} == NOT_ALLOWED


@pytest.mark.parametrize(("setting", "source"), paired(product(READERS, sorted(NOT_ALLOWED)), WAYS))
def test_it_cannot_overwrite_or_send_whatever_the_command(setting: tuple[str, str], source: Any, place: Path) -> None:
    command, row = setting[0], EVERY[setting[1]]
    (place / "in.advantages.jsonl").write_text("precious")
    env = source(place, toml(row))
    before = files(place)
    done = adv(*LINES[command], cwd=place, **env)
    assert done.status == 2
    assert "may not" in done.err or f"named {row.flag.removeprefix('--')!r}" in done.err
    assert "--no-config" in done.err
    assert files(place) == before


@pytest.mark.parametrize("name", ["in-place = true", "force = true", "output = '/tmp/x'", "force = false"])
def test_a_flag_that_says_otherwise_does_not_make_it_harmless(name: str, place: Path) -> None:
    (place / "grpo-adv.toml").write_text(f"{name}\n")
    assert adv("compute", "in.jsonl", "-o", "mine.jsonl", cwd=place).status == 2
    assert adv("compute", "in.jsonl", "-o", "mine.jsonl", "--no-config", "-q", cwd=place).status == 0


def test_a_formula_in_it_reads_no_files(place: Path) -> None:
    for formula in ("read_csv('in.jsonl')", "(SELECT 1 FROM read_parquet('/etc/passwd'))"):
        (place / "grpo-adv.toml").write_text(f'expr = "{formula}"\n')
        done = adv("compute", "in.jsonl", "-o", "-", cwd=place)
        assert (done.status, done.out) == (2, "")


def test_a_value_in_it_cannot_write_to_the_terminal(place: Path) -> None:
    (place / "grpo-adv.toml").write_text('reward = "\\u001b]0;owned\\u0007reward\\n"\n')
    done = adv("compute", "in.jsonl", "-o", "-", cwd=place)
    assert "\x1b" not in done.err and "\x07" not in done.err
    assert "\\x1b" in done.err
    assert all(line.startswith(("note: ", "error: ")) for line in done.err.splitlines())


@pytest.mark.parametrize("name", ["grpo-adv.toml", "pyproject.toml"])
def test_a_pipe_or_a_folder_of_that_name_is_not_opened(name: str, place: Path) -> None:
    os.mkfifo(place / name)
    assert adv("compute", "in.jsonl", "-o", "-", "-q", cwd=place).err == ""
    (place / name).unlink()
    (place / name).mkdir()
    assert adv("compute", "in.jsonl", "-o", "-", "-q", cwd=place).err == ""


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = ", b"#" * (1 << 20) + b"#", b"[" * 100_000], ids=["bytes", "half", "large", "nested"])  # fmt: skip
def test_one_that_is_no_toml_is_an_error_that_says_how_to_go_on(content: bytes, place: Path) -> None:
    (place / "grpo-adv.toml").write_bytes(content)
    done = adv("compute", "in.jsonl", "-o", "-", cwd=place)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("error: grpo-adv.toml: ") and "--no-config leaves the file out" in done.err
    assert adv("compute", "in.jsonl", "-o", "-", "-q", "--no-config", cwd=place).status == 0


def test_python_does_not_read_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"prompt_id": [1, 1], "reward": [0.0, 1.0]})
    wanted = grpo_cli.advantages(frame).to_list()
    as_file(place, 'method = "rloo"\n')
    monkeypatch.chdir(place)
    monkeypatch.setenv("GRPO_ADV_CONFIG", "grpo-adv.toml")
    assert grpo_cli.advantages(frame).to_list() == wanted


@pytest.mark.parametrize(("there", "here"), [("", "downloaded"), ("downloaded", "")], ids=["above", "of the input"])
def test_other_folders_than_the_working_one_are_not_searched(there: str, here: str, place: Path) -> None:
    as_file(place.parent / there, 'method = "rloo"\n')
    as_section(place.parent / there, 'method = "rloo"\n')
    done = adv("compute", str(place / "in.jsonl"), "-o", "-", "-q", cwd=place.parent / here)
    assert (done.status, done.err) == (0, "")


# --- what it does ----------------------------------------------------------------------------------------------


def numbers(*words: str, place: Path, **env: str) -> list[float]:
    done = adv("compute", "in.jsonl", "-o", "-", "-q", *words, cwd=place, **env)
    assert done.status == 0, done.err
    return [row["advantage"] for row in done.rows]


@SOURCES
def test_it_sets_what_is_computed_below_flags_and_is_named_even_with_quiet(source: Any, place: Path) -> None:
    plain = numbers("--no-config", place=place)
    rloo = numbers("--method", "rloo", "--no-config", place=place)
    env = source(place, 'method = "rloo"\nwhere = "std > 0"\n')  # --where is for other commands
    assert plain != rloo == numbers(place=place, **env)
    assert plain == numbers("--method", "grpo", place=place, **env)
    assert plain == numbers("--no-config", place=place, **env)
    said = adv("compute", "in.jsonl", "-o", "-", "--quiet", cwd=place, **env).err
    names = {as_file: "grpo-adv.toml", as_section: "[tool.grpo-adv] in pyproject.toml"}
    name = names.get(source, env.get("GRPO_ADV_CONFIG"))
    assert said == f"note: {name} sets 1 option\n"
    said = adv("compute", "in.jsonl", "-o", "-", cwd=place, **env).err
    assert said.startswith(f"note: {name} sets --method rloo; --no-config leaves it out\n")
    for line in ("compute in.jsonl -o x.jsonl", "inspect in.jsonl", "select in.jsonl -o y.jsonl"):
        facts = json.loads(adv(*line.split(), "--json", cwd=place, **env).out)
        assert facts["config"] == name
    assert "config" not in json.loads(adv("inspect", "in.jsonl", "--json", "--no-config", cwd=place, **env).out)


def test_of_several_the_variable_comes_first_and_the_project_last(place: Path) -> None:
    section = as_section(place, 'method = "rloo"\n')
    assert "pyproject.toml" in adv("inspect", "in.jsonl", cwd=place, **section).err
    as_file(place, 'method = "dr-grpo"\n')
    assert "note: grpo-adv.toml sets --method dr-grpo" in adv("inspect", "in.jsonl", cwd=place).err
    env = as_variable(place, 'method = "maxrl"\n')
    assert "mine.toml sets --method maxrl" in adv("inspect", "in.jsonl", cwd=place, **env).err
    (place / "own.toml").write_text('method = "gpg"\nforce = true\n')
    said = adv("inspect", "in.jsonl", "--config", "own.toml", "--json", cwd=place, **env)
    assert (json.loads(said.out)["config"], said.err) == ("own.toml", ""), "who names a file knows it"


FORMULAS = [["--preset", "trl-grpo"], ["--method", "dr-grpo"], ["--expr", "reward - mean"]]
TEXTS = ['method = "rloo"\n', 'preset = "verl-grpo"\n', 'expr = "reward"\n', 'method = "pkpo"\nparam = "k=3"\n']


@pytest.mark.parametrize(("formulas", "source"), paired(product(FORMULAS, TEXTS), WAYS))
def test_a_formula_on_the_command_line_replaces_that_of_the_file(
    formulas: tuple[list[str], str], source: Any, place: Path
) -> None:
    formula, text = formulas
    alone = numbers(*formula, "--no-config", place=place)
    env = source(place, f"{text}schema = 'none'\n")
    assert numbers(*formula, place=place, **env) == alone
    said = adv("compute", "in.jsonl", "-o", "-", *formula, cwd=place, **env).err
    assert "sets --schema none;" in said, "nothing is said to be set that is not"


def test_parameters_of_the_method_of_the_file_stay_with_that_method(place: Path) -> None:
    as_file(place, 'preset = "trl-grpo"\nmethod = "pkpo"\nparam = "k=3"\n')
    alone = numbers("--method", "pkpo", "-p", "k=3", "--no-config", place=place)
    assert numbers("--method", "pkpo", place=place) == alone
    assert numbers("--method", "passk", place=place) == numbers("--method", "passk", "--no-config", place=place)


def test_a_comparison_takes_groups_and_rewards_from_a_file_and_its_plans_from_the_command_line(place: Path) -> None:
    plans = ["--method", "grpo", "--preset", "trl-grpo"]
    (place / "in2.jsonl").write_text((place / "in.jsonl").read_text().replace("prompt_id", "which"))
    plan = 'preset = "verl-grpo"\nmethod = "pkpo"\nparam = "k=3"\n'
    as_file(place, f'group = "which"\n{plan}column = "mine"\nepsilon = 0.5\n')
    done = adv("compare", "in2.jsonl", *plans, "--json", cwd=place)
    assert done.err == "note: grpo-adv.toml sets --group which --epsilon 0.5; --no-config leaves it out\n"
    facts = json.loads(done.out)
    assert [plan["name"] for plan in facts["plans"]] == ["trl-grpo", "grpo"]
    assert facts["config"] == "grpo-adv.toml"
    flags = ["--no-config", "--group", "which", "--epsilon", "0.5"]
    by_flags = adv("compare", "in2.jsonl", *plans, "--json", *flags, cwd=place)
    assert json.loads(by_flags.out) | {"config": "grpo-adv.toml"} == facts
    written = adv("compare", "in2.jsonl", *plans, "--write", "-o", "both.jsonl", cwd=place)
    assert written.err.startswith("note: grpo-adv.toml sets --column mine --group which")
    assert {"mine_grpo", "mine_trl_grpo"} <= {*json.loads((place / "both.jsonl").read_text().splitlines()[0])}


def test_a_file_for_other_commands_is_still_named(place: Path) -> None:
    as_file(place, 'where = "std > 0"\n')
    for words in (["--json"], ["--quiet"]):
        said = adv("compute", "in.jsonl", "-o", "o.jsonl", "--force", *words, cwd=place).err
        assert said == "note: grpo-adv.toml sets nothing for compute\n"


def test_a_project_that_does_not_name_the_tool_may_be_anything(place: Path) -> None:
    for text in ("[broken", "tool = 3\n", "[tool]\ngrpo-adv-like = 1\n", "# grpo-adv\n[tool.other]\n"):
        (place / "pyproject.toml").write_text(text)
        assert adv("compute", "in.jsonl", "-o", "-", "-q", cwd=place).err == ""
    (place / "pyproject.toml").write_text("[tool]\ngrpo-adv = 3\n")
    assert "[tool.grpo-adv] in pyproject.toml is not a table" in adv("compute", "in.jsonl", "-o", "-", cwd=place).err


def test_an_unknown_option_and_a_missing_file_are_errors_with_the_way_out(place: Path) -> None:
    as_file(place, "num_generations = 8\n")
    done = adv("compute", "in.jsonl", cwd=place)
    hint = "--group COL where a column names the prompt, else --group-size N"
    assert done.err == f"error: no option in grpo-adv.toml named 'num_generations'; {hint}\n"
    as_file(place, "qqqq = 8\n")
    assert adv("compute", "in.jsonl", cwd=place).err.endswith("named 'qqqq'; --no-config leaves the file out\n")
    gone = adv("compute", "in.jsonl", cwd=place, GRPO_ADV_CONFIG="gone.toml")
    said = "error: gone.toml: no such file or directory; GRPO_ADV_CONFIG names a TOML file\n"
    assert (gone.status, gone.err) == (1, said)
    both = adv("compute", "in.jsonl", "--config", "grpo-adv.toml", "--no-config", cwd=place)
    assert both.err == "error: --config and --no-config cannot be combined; leave one of them out\n"


@pytest.mark.parametrize("command", READERS)
def test_what_it_may_set_can_be_set_for_every_command(command: str, place: Path) -> None:
    """Each allowed option is read; that it means what the flag means is tested with --config."""
    from grpo_cli.options.config import with_config

    takes = COMMANDS[command].takes
    for row in takes.values():
        if row.in_folder and not row.is_argument and not (command == "compare" and row.panel in {COMPARED, OUTPUT}):
            as_file(place, toml(row))
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(place)
                assert row.name in with_config({}, takes, search=True)
