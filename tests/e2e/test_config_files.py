"""Config files: --config and GRPO_ADV_CONFIG are read and named; a file that only lies in the working folder is not."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_origin

import polars as pl
import pytest

import grpo_cli
from grpo_cli.options.table import COMMANDS, OUTPUT, Option
from tests.support.command import adv
from tests.support.drawn import paired
from tests.support.jobs import write

ROWS = [{"prompt_id": k // 4, "reward": k % 4, "prompt": "p", "completion": "c"} for k in range(12)]
READERS = [row.name for row in COMMANDS.values() if "config" in row.options]
LINES = {
    "compute": ["compute", "in.jsonl", "-o", "-"],
    "inspect": ["inspect", "in.jsonl"],
    "report": ["report", "in.jsonl"],
    "select": ["select", "in.jsonl", "--top", "1", "-o", "-"],
    "export": ["export", "in.jsonl", "--to", "sft", "-o", "-"],
    "audit": ["audit", "in.jsonl", "--column", "reward"],
    "add": ["add", "in.jsonl", "--from", "in.jsonl", "--column", "prompt=again", "-o", "-"],
    "compare": ["compare", "in.jsonl", "--method", "grpo", "--method", "rloo"],
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GRPO_ADV_CONFIG", raising=False)
    return write(tmp_path / "here" / "in.jsonl", ROWS).parent


def unread(name: str) -> str:
    return f"note: the options in {name} are not read; --config {name} reads them, --no-config hides this note\n"


def numbers(*words: str, place: Path, **env: str) -> list[float]:
    done = adv("compute", "in.jsonl", "-o", "-", "-q", *words, cwd=place, **env)
    assert done.status == 0, done.err
    return [row["advantage"] for row in done.rows]


# --- a file in the working folder ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grpo-adv.toml", "pyproject.toml"])
def test_options_in_the_working_folder_are_not_read_and_named_with_the_flag_that_reads_them(
    name: str, place: Path
) -> None:
    plain, rloo = numbers(place=place), numbers("--method", "rloo", place=place)
    section = "[project]\nname = 'x'\n[tool.grpo-adv]\n" if name == "pyproject.toml" else ""
    (place / name).write_text(f'{section}method = "rloo"\n')
    assert numbers(place=place) == plain != rloo
    assert numbers("--config", name, place=place) == rloo
    for words in (["-o", "-", "-q"], ["-o", "x.jsonl", "--json"]):
        done = adv("compute", "in.jsonl", *words, cwd=place)
        assert (done.status, done.err.count(unread(name))) == (0, 1)


@pytest.mark.parametrize("command", LINES)
def test_every_command_that_takes_a_config_file_names_it_on_standard_error_only(command: str, place: Path) -> None:
    (place / "grpo-adv.toml").write_text("")
    done = adv(*LINES[command], cwd=place)
    assert done.status == 0, done.err
    assert done.err.startswith(unread("grpo-adv.toml"))
    assert "grpo-adv.toml" not in done.out


def test_what_reads_no_options_or_says_which_it_reads_prints_no_note(place: Path) -> None:
    (place / "grpo-adv.toml").write_text('method = "rloo"\n')
    (place / "mine.toml").write_text('method = "rloo"\n')
    for words in (
        ["--help"], ["--version"], ["compute", "--help"], ["compute", "--help-all"], ["methods"], ["presets"],
        ["schemas"], ["verify", "in.jsonl", "--against", "in.jsonl"],
        ["compute", "in.jsonl", "-o", "-", "--no-config"], ["compute", "in.jsonl", "-o", "-", "--config", "mine.toml"],
    ):  # fmt: skip
        done = adv(*words, cwd=place)
        assert (done.status, "note:" in done.err) == (0, False), words
    said = adv("inspect", "in.jsonl", cwd=place, GRPO_ADV_CONFIG="mine.toml").err
    assert said == "note: mine.toml sets --method rloo; --no-config leaves it out\n"


@pytest.mark.parametrize(("there", "here"), [("", "here"), ("here", "")], ids=["above", "of the input"])
def test_other_folders_than_the_working_one_are_not_looked_at(there: str, here: str, place: Path) -> None:
    (place.parent / there / "grpo-adv.toml").write_text('method = "rloo"\n')
    done = adv("compute", str(place / "in.jsonl"), "-o", "-", "-q", cwd=place.parent / here)
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize("name", ["grpo-adv.toml", "pyproject.toml"])
def test_a_pipe_or_a_folder_of_that_name_is_not_opened(name: str, place: Path) -> None:
    os.mkfifo(place / name)
    assert adv("compute", "in.jsonl", "-o", "-", "-q", cwd=place).err == ""
    (place / name).unlink()
    (place / name).mkdir()
    assert adv("compute", "in.jsonl", "-o", "-", "-q", cwd=place).err == ""


@pytest.mark.parametrize(
    "text",
    ["[broken", "tool = 3\n", "[tool]\ngrpo-adv-like = 1\n", "# grpo-adv\n[tool.other]\n", "[tool]\ngrpo-adv = 3\n"],
)
def test_a_project_without_options_of_ours_may_be_anything(text: str, place: Path) -> None:
    (place / "pyproject.toml").write_text(text)
    assert adv("compute", "in.jsonl", "-o", "-", "-q", cwd=place).err == ""
    named = adv("compute", "in.jsonl", "-o", "-", "--config", "pyproject.toml", cwd=place)
    assert (named.status, named.out) == (1, "")
    assert named.err.startswith("error: pyproject.toml: no")  # no table [tool.grpo-adv], or not TOML


def test_python_reads_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"prompt_id": [1, 1], "reward": [0.0, 1.0]})
    wanted = grpo_cli.advantages(frame).to_list()
    (place / "grpo-adv.toml").write_text('method = "rloo"\n')
    monkeypatch.chdir(place)
    monkeypatch.setenv("GRPO_ADV_CONFIG", "grpo-adv.toml")
    assert grpo_cli.advantages(frame).to_list() == wanted


# --- the file of GRPO_ADV_CONFIG -------------------------------------------------------------------------------


def test_the_file_of_the_variable_sets_what_no_flag_sets_and_is_named_unless_quiet(place: Path) -> None:
    plain, rloo = numbers(place=place), numbers("--method", "rloo", place=place)
    (place / "mine.toml").write_text('method = "rloo"\nwhere = "std > 0"\n')  # --where is for other commands
    env = {"GRPO_ADV_CONFIG": "mine.toml"}
    assert plain != rloo == numbers(place=place, **env)
    assert plain == numbers("--method", "grpo", place=place, **env)
    assert plain == numbers("--no-config", place=place, **env)
    assert adv("compute", "in.jsonl", "-o", "-", "--quiet", cwd=place, **env).err == ""
    said = adv("compute", "in.jsonl", "-o", "-", cwd=place, **env).err
    assert said.startswith("note: mine.toml sets --method rloo; --no-config leaves it out\n")
    for line in ("compute in.jsonl -o x.jsonl", "inspect in.jsonl", "select in.jsonl -o y.jsonl"):
        facts = json.loads(adv(*line.split(), "--json", cwd=place, **env).out)
        assert facts["config"] == "mine.toml"
    assert "config" not in json.loads(adv("inspect", "in.jsonl", "--json", "--no-config", cwd=place, **env).out)


def test_a_file_of_the_variable_for_other_commands_is_still_named(place: Path) -> None:
    (place / "mine.toml").write_text('where = "std > 0"\n')
    said = adv("compute", "in.jsonl", "-o", "o.jsonl", "--json", cwd=place, GRPO_ADV_CONFIG="mine.toml").err
    assert said == "note: mine.toml sets nothing for compute\n"


def test_config_comes_before_the_variable(place: Path) -> None:
    (place / "mine.toml").write_text('method = "maxrl"\n')
    (place / "own.toml").write_text('method = "gpg"\n')
    words = ["inspect", "in.jsonl", "--config", "own.toml", "--json"]
    said = adv(*words, cwd=place, GRPO_ADV_CONFIG="mine.toml")
    assert (json.loads(said.out)["config"], said.err) == ("own.toml", ""), "who names a file knows it"


def toml(row: Option) -> str:
    """A line of TOML that gives the option a value of its type."""
    of_lists = ["x:method=rloo" if row.name == "plans" else "x"]
    value: Any = {bool: True, int: 1, float: 0.5, str: "x"}.get(row.type, of_lists)
    if get_origin(row.type) not in {None, list}:
        value = get_args(row.type)[0]
    return f"{row.flag.removeprefix('--')} = {json.dumps(value)}\n"


@pytest.mark.parametrize("command", READERS)
def test_the_file_of_the_variable_may_set_every_option_of_every_command(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a setting means what the flag means is tested with --config."""
    from grpo_cli.options.config import LISTS, with_config

    monkeypatch.setenv("GRPO_ADV_CONFIG", str(place / "mine.toml"))
    takes = COMMANDS[command].takes
    for row in takes.values():
        if row.name not in {"config", "no_config"} and not row.is_argument:
            (place / "mine.toml").write_text(toml(row))
            passed_over = command == "compare" and row.panel == OUTPUT and row.name != "write"
            passed_over |= command != "compute" and row.name in LISTS  # alone they are for --per-token
            assert (row.name in with_config({}, takes, variable=True)) != passed_over, row.name


# --- either ----------------------------------------------------------------------------------------------------


def by_flag(place: Path, text: str) -> tuple[list[str], dict[str, str]]:
    (place / "mine.toml").write_text(text)
    return ["--config", "mine.toml"], {}


def by_variable(place: Path, text: str) -> tuple[list[str], dict[str, str]]:
    (place / "mine.toml").write_text(text)
    return [], {"GRPO_ADV_CONFIG": "mine.toml"}


WAYS = [by_flag, by_variable]
EITHER = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
FORMULAS = [["--preset", "trl-grpo"], ["--method", "dr-grpo"], ["--expr", "reward - mean"]]
TEXTS = ['method = "rloo"\n', 'preset = "verl-grpo"\n', 'expr = "reward"\n', 'method = "pkpo"\nparam = "k=3"\n']


@pytest.mark.parametrize(("formulas", "way"), paired(product(FORMULAS, TEXTS), WAYS))
def test_a_formula_on_the_command_line_replaces_that_of_the_file(
    formulas: tuple[list[str], str], way: Any, place: Path
) -> None:
    formula, text = formulas
    alone = numbers(*formula, place=place)
    words, env = way(place, f"{text}schema = 'none'\n")
    assert numbers(*formula, *words, place=place, **env) == alone
    said = adv("compute", "in.jsonl", "-o", "-", *formula, cwd=place, GRPO_ADV_CONFIG="mine.toml").err
    assert "sets --schema none;" in said, "nothing is said to be set that is not"


@EITHER
def test_parameters_of_the_method_of_the_file_stay_with_that_method(way: Any, place: Path) -> None:
    alone, passk = numbers("--method", "pkpo", "-p", "k=3", place=place), numbers("--method", "passk", place=place)
    words, env = way(place, 'preset = "trl-grpo"\nmethod = "pkpo"\nparam = "k=3"\n')
    assert numbers("--method", "pkpo", *words, place=place, **env) == alone
    assert numbers("--method", "passk", *words, place=place, **env) == passk


@EITHER
def test_a_comparison_takes_groups_and_rewards_from_a_file_and_its_plans_from_the_command_line(
    way: Any, place: Path
) -> None:
    plans = ["--method", "grpo", "--preset", "trl-grpo"]
    (place / "in2.jsonl").write_text((place / "in.jsonl").read_text().replace("prompt_id", "which"))
    plan = 'preset = "verl-grpo"\nmethod = "pkpo"\nparam = "k=3"\n'
    words, env = way(place, f'group = "which"\n{plan}column = "mine"\nepsilon = 0.5\n')
    done = adv("compare", "in2.jsonl", *plans, "--json", *words, cwd=place, **env)
    note = "note: mine.toml sets --group which --epsilon 0.5; --no-config leaves it out\n"
    assert done.err == ("" if words else note)
    facts = json.loads(done.out)
    assert [plan["name"] for plan in facts["plans"]] == ["trl-grpo", "grpo"]
    assert facts["config"] == "mine.toml"
    by_flags = adv("compare", "in2.jsonl", *plans, "--json", "--group", "which", "--epsilon", "0.5", cwd=place)
    assert json.loads(by_flags.out) | {"config": "mine.toml"} == facts
    adv("compare", "in2.jsonl", *plans, "--write", "-o", "both.jsonl", *words, cwd=place, **env)
    assert {"mine_grpo", "mine_trl_grpo"} <= {*json.loads((place / "both.jsonl").read_text().splitlines()[0])}


@EITHER
@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = ", b"#" * (1 << 20) + b"#", b"[" * 100_000], ids=["bytes", "half", "large", "nested"])  # fmt: skip
def test_one_that_is_no_toml_is_one_line(content: bytes, way: Any, place: Path) -> None:
    words, env = way(place, "")
    (place / "mine.toml").write_bytes(content)
    done = adv("compute", "in.jsonl", "-o", "-", *words, cwd=place, **env)
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("error: mine.toml: ")


@EITHER
def test_a_value_in_it_cannot_write_to_the_terminal(way: Any, place: Path) -> None:
    words, env = way(place, 'reward = "\\u001b]0;owned\\u0007reward\\n"\n')
    done = adv("compute", "in.jsonl", "-o", "-", *words, cwd=place, **env)
    assert "\x1b" not in done.err and "\x07" not in done.err
    assert "\\x1b" in done.err
    assert all(line.startswith(("note: ", "error: ")) for line in done.err.splitlines())


@EITHER
def test_a_formula_in_it_reads_no_files(way: Any, place: Path) -> None:
    for formula in ("read_csv('in.jsonl')", "(SELECT 1 FROM read_parquet('/etc/passwd'))"):
        words, env = way(place, f'expr = "{formula}"\n')
        done = adv("compute", "in.jsonl", "-o", "-", *words, cwd=place, **env)
        assert (done.status, done.out) == (2, "")


def test_an_unknown_option_and_a_missing_file_are_errors_with_the_way_out(place: Path) -> None:
    env = {"GRPO_ADV_CONFIG": "mine.toml"}
    gone = adv("compute", "in.jsonl", cwd=place, **env)
    said = "error: mine.toml: no such file or directory; GRPO_ADV_CONFIG names a TOML file\n"
    assert (gone.status, gone.err) == (1, said)
    (place / "mine.toml").write_text("num_generations = 8\n")
    done = adv("compute", "in.jsonl", cwd=place, **env)
    hint = "--group COL where a column names the prompt, else --group-size N"
    assert done.err == f"error: no option in mine.toml named 'num_generations'; {hint}\n"
    (place / "mine.toml").write_text("qqqq = 8\n")
    assert adv("compute", "in.jsonl", cwd=place, **env).err.endswith("named 'qqqq'; --no-config leaves the file out\n")
    both = adv("compute", "in.jsonl", "--config", "mine.toml", "--no-config", cwd=place)
    assert both.err == "error: --config and --no-config cannot be combined; leave one of them out\n"


OF_TOKENS = "per-token = true\nmask = 'm'\ntoken-logprobs = 's'\nteacher-logprobs = 't'\ndistill = 1.0\n"
OF_KL = "kl-coef = 0.1\nkl-from = 's,t'\nkl-estimator = 'k1'\nkl-reduce = 'sum'\nmask = 'm'\n"


@pytest.mark.parametrize("options", [OF_TOKENS, OF_KL], ids=["tokens", "kl"])
@pytest.mark.parametrize(
    "line",
    ["compute", "inspect", "report -o out.html", "select --where std>0 -o out.jsonl", "export --to sft -o out.jsonl"],
)
def test_a_file_for_lists_of_compute_stops_no_other_command(line: str, options: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(options)
    lists = {"m": [0, 1], "s": [-1.0, -2.0], "t": [-1.5, -2.0]}
    rows = [{"prompt_id": 1, "prompt": "q", "completion": c, "reward": r, **lists} for c, r in (("a", 0), ("b", 1))]
    write(tmp_path / "in.jsonl", rows)
    command, *more = line.split()
    done = adv(command, "in.jsonl", *more, "--config", "c.toml", "-q", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")


def test_a_file_for_one_kind_of_export_stops_no_other_kind(tmp_path: Path) -> None:
    rows = '{"prompt_id": 1, "reward": 0, "prompt": "p", "response": "r"}\n{"prompt_id": 1, "reward": 1, "prompt": "p", "response": "s"}\n'
    (tmp_path / "a.jsonl").write_text(rows)
    (tmp_path / "o.toml").write_text(
        'beta = 0.5\nweight = "exp"\npairs = "all"\nmin-margin = 0.1\npick = "best"\npool = true\n'
    )
    for kind in ("sft", "pairs", "weights", "prompts"):
        done = adv(
            "export", "a.jsonl", "--to", kind, "-o", "out.jsonl", "--force", cwd=tmp_path, GRPO_ADV_CONFIG="o.toml"
        )
        assert done.status == 0, done.err


def test_an_option_of_another_command_in_a_file_of_options_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text('where = "std > 0"\n')
    done = adv("compute", "a.jsonl", "--config", "o.toml", cwd=tmp_path)
    assert done.status == 2
    assert "where in o.toml is an option of another command; GRPO_ADV_CONFIG=o.toml reads options of every" in done.err


def test_as_flags_what_no_record_has_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", [{"prompt_id": 1, "prompt": "q", "completion": "a", "reward": 1, "kl": 0.5}])
    done = adv("export", "in.jsonl", "--to", "sft", "-o", "out.jsonl", "--kl-coef", "0.1", cwd=tmp_path)
    assert "--kl-coef does not apply to --to sft" in done.err
