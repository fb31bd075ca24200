"""Config files: --config and GRPO_ADV_CONFIG are read and named; a file that only lies in the working folder is not."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_origin

import polars as pl
import pytest

import grpo_cli
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.config import LISTS, says_more_of, with_config
from grpo_cli.options.export_kinds import EXPORT_KINDS
from grpo_cli.options.given import Given
from grpo_cli.options.table import OUTPUT, Option
from tests.support.command import Done, adv, facts_of, ran
from tests.support.drawn import paired
from tests.support.jobs import rows_of, write

ROWS = [{"prompt_id": k // 4, "reward": k % 4, "prompt": "p", "completion": "c"} for k in range(12)]
READERS = [row.name for row in COMMANDS.values() if "config" in row.options]
RLOO = 'method = "rloo"\n'


@pytest.fixture(autouse=True)
def _files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPO_ADV_CONFIG", raising=False)
    write(place / "in.jsonl", ROWS)


def unread(name: str) -> str:
    return f"note: the options in {name} are not read; --config {name} reads them, --no-config hides this note\n"


def numbers(more: str = "", **env: Any) -> list[float]:
    done = ran(f"compute in.jsonl -o - -q {more}", **env)
    return [row["advantage"] for row in done.rows]


# --- a file in the working folder ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"), [("grpo-adv.toml", RLOO), ("pyproject.toml", f"[project]\nname = 'x'\n[tool.grpo-adv]\n{RLOO}")]
)
def test_options_in_the_working_folder_are_not_read_and_named_with_the_flag_that_reads_them(
    name: str, text: str
) -> None:
    plain = numbers()
    rloo = numbers("--method rloo")
    Path(name).write_text(text)
    assert numbers() == plain != rloo
    assert numbers(f"--config {name}") == rloo
    for more in ("-o - -q", "-o x.jsonl --json"):
        done = adv(f"compute in.jsonl {more}")
        assert done.status == 0
        assert done.err.count(unread(name)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "compute in.jsonl -o -", "inspect in.jsonl", "report in.jsonl", "select in.jsonl --top 1 -o -",
        "export in.jsonl --to sft -o -", "audit in.jsonl --column reward",
        "add in.jsonl --from in.jsonl --column prompt=again -o -", "compare in.jsonl --method grpo --method rloo",
    ],
)  # fmt: skip
def test_every_command_that_takes_a_config_file_names_it_on_standard_error_only(line: str) -> None:
    Path("grpo-adv.toml").touch()
    done = ran(line)
    assert done.err.startswith(unread("grpo-adv.toml"))
    assert "grpo-adv.toml" not in done.out


@pytest.mark.parametrize(
    "line",
    [
        "--help", "--version", "compute --help", "compute --help-all", "methods", "presets", "schemas",
        "verify in.jsonl --against in.jsonl", "compute in.jsonl -o - --no-config", "compute in.jsonl -o - --config mine.toml",
    ],
)  # fmt: skip
def test_what_reads_no_options_or_says_which_it_reads_prints_no_note(line: str) -> None:
    Path("grpo-adv.toml").write_text(RLOO)
    Path("mine.toml").write_text(RLOO)
    done = adv(line)
    assert done.status == 0
    assert "note:" not in done.err
    said = adv("inspect in.jsonl", GRPO_ADV_CONFIG="mine.toml").err
    assert said == "note: mine.toml sets --method rloo; --no-config leaves it out\n"


@pytest.mark.parametrize(("there", "here"), [(".", "inner"), ("inner", ".")], ids=["above", "of the input"])
def test_other_folders_than_the_working_one_are_not_looked_at(there: str, here: str, place: Path) -> None:
    write("inner/in.jsonl", ROWS)
    (place / there / "grpo-adv.toml").write_text(RLOO)
    done = adv(f"compute {place}/inner/in.jsonl -o - -q", cwd=place / here)
    assert done.status == 0
    assert done.err == ""


@pytest.mark.parametrize("name", ["grpo-adv.toml", "pyproject.toml"])
@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_of_that_name_is_not_opened(name: str, made: Callable[[str], None]) -> None:
    made(name)
    assert adv("compute in.jsonl -o - -q").err == ""


@pytest.mark.parametrize(
    "text",
    ["[broken", "tool = 3\n", "[tool]\ngrpo-adv-like = 1\n", "# grpo-adv\n[tool.other]\n", "[tool]\ngrpo-adv = 3\n"],
)
def test_a_project_without_options_of_ours_may_be_anything(text: str) -> None:
    Path("pyproject.toml").write_text(text)
    assert adv("compute in.jsonl -o - -q").err == ""
    named = adv("compute in.jsonl -o - --config pyproject.toml")
    assert named.status == 1
    assert named.out == ""
    assert named.err.startswith("error: pyproject.toml: no")  # no table [tool.grpo-adv], or not TOML


def test_python_reads_none(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"prompt_id": [1, 1], "reward": [0.0, 1.0]})
    wanted = grpo_cli.advantages(frame).to_list()
    Path("grpo-adv.toml").write_text(RLOO)
    monkeypatch.setenv("GRPO_ADV_CONFIG", "grpo-adv.toml")
    assert grpo_cli.advantages(frame).to_list() == wanted


# --- the file of GRPO_ADV_CONFIG -------------------------------------------------------------------------------


def test_the_file_of_the_variable_sets_what_no_flag_sets_and_is_named_unless_quiet() -> None:
    plain = numbers()
    rloo = numbers("--method rloo")
    Path("mine.toml").write_text(f'{RLOO}where = "std > 0"\n')  # --where is for other commands
    env: dict[str, Any] = {"GRPO_ADV_CONFIG": "mine.toml"}
    assert plain != rloo == numbers(**env)
    assert plain == numbers("--method grpo", **env) == numbers("--no-config", **env)
    assert adv("compute in.jsonl -o - --quiet", **env).err == ""
    said = adv("compute in.jsonl -o -", **env).err
    note = "note: mine.toml sets --method rloo; --no-config leaves it out\n"
    assert said.startswith(f"{note}options        mine.toml\n")
    for line in ("compute in.jsonl -o x.jsonl", "inspect in.jsonl", "select in.jsonl -o y.jsonl"):
        assert facts_of(f"{line}", **env)["config"] == "mine.toml"
    assert "config" not in facts_of("inspect in.jsonl --no-config", **env)


def test_a_file_of_the_variable_for_other_commands_is_still_named() -> None:
    Path("mine.toml").write_text('where = "std > 0"\n')
    said = adv("compute in.jsonl -o o.jsonl --json", GRPO_ADV_CONFIG="mine.toml").err
    assert said == "note: mine.toml sets nothing for compute\n"
    named = adv("compute in.jsonl --config mine.toml")
    hint = "where in mine.toml is an option of another command; GRPO_ADV_CONFIG=mine.toml reads options of every"
    assert named.status == 2
    assert hint in named.err


def test_config_comes_before_the_variable() -> None:
    Path("mine.toml").write_text('method = "maxrl"\n')
    Path("own.toml").write_text('method = "gpg"\n')
    said = adv("inspect in.jsonl --config own.toml --json", GRPO_ADV_CONFIG="mine.toml")
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
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a setting means what the flag means is tested with --config."""
    monkeypatch.setenv("GRPO_ADV_CONFIG", "mine.toml")
    takes = COMMANDS[command].takes
    for row in takes.values():
        if row.name not in {"config", "no_config"} and not row.is_argument:
            words = {"per_token": "per-token = true\n", "before": 'against = ["x"]\n'}
            more_of = says_more_of(takes).get(row.name, ())
            beside = [words.get(name) or toml(takes[name]) for name in sorted(more_of)[:1]]
            Path("mine.toml").write_text(toml(row) + "".join(beside))
            passed_over = command == "compare" and row.panel == OUTPUT and row.name != "write"
            passed_over |= command != "compute" and row.name in LISTS  # alone they are for --per-token
            assert (row.name in with_config(Given(), takes, variable=True)) != passed_over, row.name


OF_ANOTHER_LINE = """
masked-rows = "exclude"             | compute a.jsonl -o o.jsonl         | compute a.jsonl -o o.jsonl
tokens = "tok"                      | compute a.jsonl -o o.jsonl         | export a.jsonl -o o.jsonl --to sft --prompt ask --response say
prompt-tokens = "tok"               | compute a.jsonl -o o.jsonl         | export a.jsonl -o o.jsonl --to prompts --prompt ask
pass-at = "2"                       | export a.jsonl -o o.jsonl --to sft --prompt ask --response say | export a.jsonl -o o.jsonl --to pairs --prompt ask --response say
response = "say"                    | export a.jsonl -o o.jsonl --to prompts --prompt ask | inspect a.jsonl
per-group = 2                       | export a.jsonl -o o.jsonl --to pairs --prompt ask --response say | inspect a.jsonl
kl-coef = 0.1                       | export a.jsonl -o o.jsonl --to sft --prompt ask --response say   | select a.jsonl -o o.jsonl --top 2
overlong = "9:2"                    | export a.jsonl -o o.jsonl --to prompts --prompt ask | select a.jsonl -o o.jsonl --top 2
top = 2                             | inspect a.jsonl --old-rewards b.jsonl --text-column say | compute a.jsonl -o o.jsonl
by = "ask"                          | inspect a.jsonl --against b.jsonl  | inspect a.jsonl --against b.jsonl --format csv
token-logprobs = "s"\nold-token-logprobs = "o" | inspect a.jsonl --against b.jsonl | inspect a.jsonl --format csv
cluster = "ask"                     | inspect a.jsonl                    | inspect a.jsonl --format csv
holdout-seed = 3                    | select a.jsonl -o o.jsonl --where 'std > 0' | export a.jsonl -o o.jsonl --to prompts --prompt ask
top-p-slack = 0.1                   | select a.jsonl -o o.jsonl --where 'std > 0' | export a.jsonl -o o.jsonl --to prompts --prompt ask
control = true                      | export a.jsonl -o o.jsonl --to prompts --prompt ask | inspect a.jsonl
pick = "worst"                      | select a.jsonl -o o.jsonl --where 'std > 0' | inspect a.jsonl
"""


@pytest.mark.parametrize("row", OF_ANOTHER_LINE.strip().splitlines(), ids=lambda row: row.partition(" = ")[0])
def test_what_a_file_sets_for_other_lines_of_a_command_is_passed_over(row: str) -> None:
    """As what it sets for other commands: the result is that of the line without the file. Typed, it is refused."""
    setting, *these = (cell.strip() for cell in row.split(" | "))
    rows = [
        {"prompt_id": at // 4, "reward": at % 3 / 2, "ask": f"q{at // 4}", "say": f"a{at}", "tok": [1, 2], "s": [-0.1, -0.2], "o": [-0.2, -0.1]}
        for at in range(24)
    ]  # fmt: skip
    for name, turn in (("a.jsonl", 0), ("b.jsonl", 1)):
        Path(name).write_text(
            "".join(json.dumps({**one, "reward": (at + turn) % 3 / 2}) + "\n" for at, one in enumerate(rows))
        )
    Path("mine.toml").write_text(setting.replace("\\n", "\n") + "\n")
    for line in these:
        force = " --force" * ("-o " in line)
        results = []
        for done in (adv(line + force), adv(line + force, GRPO_ADV_CONFIG="mine.toml")):
            assert done.status == 0, done.err
            made = Path("o.jsonl").read_bytes() if force else b""
            results.append((made, re.sub(r"(?m)^options .*\n|[\d.]+ s\b", "", done.out)))
        assert results[0] == results[1], line


# --- either ----------------------------------------------------------------------------------------------------

Way = Callable[..., Done]


def by_flag(line: str) -> Done:
    return adv(f"{line} --config mine.toml")


def by_variable(line: str) -> Done:
    return adv(line, GRPO_ADV_CONFIG="mine.toml")


WAYS = [by_flag, by_variable]
EITHER = pytest.mark.parametrize("way", WAYS)
FORMULAS = ["--preset trl-grpo", "--method dr-grpo", "--expr 'reward - mean'"]
TEXTS = [RLOO, 'preset = "verl-grpo"\n', 'expr = "reward"\n', 'method = "pkpo"\nparam = "k=3"\n']


@pytest.mark.parametrize(("formulas", "way"), paired([*product(FORMULAS, TEXTS)], WAYS))
def test_a_formula_on_the_command_line_replaces_that_of_the_file(formulas: tuple[str, str], way: Way) -> None:
    formula, text = formulas
    Path("mine.toml").write_text(f"{text}schema = 'none'\n")
    done = way(f"compute in.jsonl -o - -q {formula}")
    assert [row["advantage"] for row in done.rows] == numbers(formula)
    said = by_variable(f"compute in.jsonl -o - {formula}").err
    assert "sets --schema none;" in said, "nothing is said to be set that is not"


@EITHER
@pytest.mark.parametrize(("method", "own"), [("pkpo", "-p k=3"), ("passk", "")])
def test_parameters_of_the_method_of_the_file_stay_with_that_method(method: str, own: str, way: Way) -> None:
    Path("mine.toml").write_text('preset = "trl-grpo"\nmethod = "pkpo"\nparam = "k=3"\n')
    done = way(f"compute in.jsonl -o - -q --method {method}")
    assert [row["advantage"] for row in done.rows] == numbers(f"--method {method} {own}")


@EITHER
def test_a_comparison_takes_groups_and_rewards_from_a_file_and_its_plans_from_the_command_line(way: Way) -> None:
    write("in2.jsonl", [{"which": row["prompt_id"], "reward": row["reward"]} for row in ROWS])
    plan = 'preset = "verl-grpo"\nmethod = "pkpo"\nparam = "k=3"\n'
    Path("mine.toml").write_text(f'group = "which"\n{plan}column = "mine"\nepsilon = 0.5\n')
    line = "compare in2.jsonl --method grpo --preset trl-grpo"
    done = way(f"{line} --json")
    note = "note: mine.toml sets --group which --epsilon 0.5; --no-config leaves it out\n"
    assert done.err == ("" if way is by_flag else note)
    facts = json.loads(done.out)
    assert [plan["name"] for plan in facts["plans"]] == ["trl-grpo", "grpo"]
    assert facts.pop("config") == "mine.toml"
    assert facts_of(f"{line} --group which --epsilon 0.5") == facts
    way(f"{line} --write -o both.jsonl")
    assert {"mine_grpo", "mine_trl_grpo"} <= {*json.loads(Path("both.jsonl").read_text().splitlines()[0])}


@EITHER
@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = ", b"#" * (1 << 20) + b"#", b"[" * 100_000], ids=["bytes", "half", "large", "nested"])  # fmt: skip
def test_one_that_is_no_toml_is_one_line(content: bytes, way: Way) -> None:
    Path("mine.toml").write_bytes(content)
    done = way("compute in.jsonl -o -")
    assert done.status == 1
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert done.err.startswith("error: mine.toml: ")


@EITHER
def test_a_value_in_it_cannot_write_to_the_terminal(way: Way) -> None:
    Path("mine.toml").write_text('reward = "\\u001b]0;owned\\u0007reward\\n"\n')
    said = way("compute in.jsonl -o -").err
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "\\x1b" in said
    assert all(line.startswith(("note: ", "error: ")) for line in said.splitlines())


@EITHER
@pytest.mark.parametrize("formula", ["read_csv('in.jsonl')", "(SELECT 1 FROM read_parquet('/etc/passwd'))"])
def test_a_formula_in_it_reads_no_files(formula: str, way: Way) -> None:
    Path("mine.toml").write_text(f'expr = "{formula}"\n')
    done = way("compute in.jsonl -o -")
    assert done.status == 2
    assert done.out == ""


def test_an_unknown_option_and_a_missing_file_are_errors_with_the_way_out() -> None:
    gone = by_variable("compute in.jsonl")
    said = "error: mine.toml: no such file or directory; GRPO_ADV_CONFIG names a TOML file\n"
    assert gone.status == 1
    assert gone.err == said
    Path("mine.toml").write_text("num_generations = 8\n")
    hint = "--group COL where a column names the prompt, else --group-size N"
    assert by_variable("compute in.jsonl").err == f"error: no option in mine.toml named 'num_generations'; {hint}\n"
    Path("mine.toml").write_text("qqqq = 8\n")
    assert by_variable("compute in.jsonl").err.endswith("named 'qqqq'; --no-config leaves the file out\n")
    both = by_flag("compute in.jsonl --no-config")
    assert both.err == "error: --config and --no-config cannot be combined; leave one of them out\n"


OF_TOKENS = "per-token = true\nmask = 'm'\ntoken-logprobs = 's'\nteacher-logprobs = 't'\ndistill = 1.0\n"
OF_KL = "kl-coef = 0.1\nkl-from = 's,t'\nkl-estimator = 'k1'\nkl-reduce = 'sum'\nmask = 'm'\n"


@pytest.mark.parametrize("options", [OF_TOKENS, OF_KL], ids=["tokens", "kl"])
@pytest.mark.parametrize(
    "line",
    [
        "compute in.jsonl", "inspect in.jsonl", "report in.jsonl -o out.html",
        "select in.jsonl --where 'std > 0' -o out.jsonl", "export in.jsonl --to sft -o out.jsonl",
    ],
)  # fmt: skip
def test_a_file_for_lists_of_compute_stops_no_other_command(line: str, options: str) -> None:
    Path("mine.toml").write_text(options)
    row = {"prompt_id": 1, "prompt": "q", "m": [0, 1], "s": [-1.0, -2.0], "t": [-1.5, -2.0]}
    write("in.jsonl", [{**row, "completion": "a", "reward": 0}, {**row, "completion": "b", "reward": 1}])
    done = by_flag(f"{line} -q")
    assert done.status == 0
    assert done.err == ""


@pytest.mark.parametrize("kind", [kind for kind in EXPORT_KINDS if kind != "tokens"])
def test_a_file_for_one_kind_of_export_stops_no_other_kind(kind: str) -> None:
    row = {"prompt_id": 1, "prompt": "q"}
    write("in.jsonl", [{**row, "completion": "a", "reward": 0}, {**row, "completion": "b", "reward": 1}])
    Path("mine.toml").write_text(
        'beta = 0.5\nweight = "exp"\npairs = "all"\nmin-margin = 0.1\npick = "best"\npool = true\n'
    )
    done = by_variable(f"export in.jsonl --to {kind} -o out.jsonl")
    assert done.status == 0, done.err


def test_as_flags_what_no_record_has_is_refused() -> None:
    write("in.jsonl", [{"prompt_id": 1, "prompt": "q", "completion": "a", "reward": 1, "kl": 0.5}])
    done = adv("export in.jsonl --to sft -o out.jsonl --kl-coef 0.1")
    assert "--kl-coef does not apply to --to sft" in done.err


@pytest.mark.parametrize("line", ["{} = 1", "[{}]", "x = {{{} = 1}}", '"a".{} = 1'])
@pytest.mark.parametrize("option", ["--config", "--presets", "--schemas"])
def test_a_name_of_many_parts_is_refused_before_it_is_read(line: str, option: str) -> None:
    """Python's reader took 1.5 GB for 40 KB."""
    write("in.jsonl", [{"prompt_id": 0, "reward": reward} for reward in (0, 1)])
    Path("deep.toml").write_text(line.format(".".join(["a"] * 20_000)))
    started = time.process_time()
    done = adv(f"compute in.jsonl {option} deep.toml")
    assert done.status == 1
    assert "deep.toml: a name of more than 100 parts" in done.err
    assert time.process_time() - started < 5


def test_files_of_options_and_presets_may_begin_with_the_mark_of_an_editor() -> None:
    write("in.jsonl", [{"prompt_id": 0, "reward": reward} for reward in (0, 1)])
    Path("o.toml").write_text('method = "rloo"\n', encoding="utf-8-sig")
    Path("p.toml").write_text('[ours]\ninherits = "trl-grpo"\nframework = "Ours"\n', encoding="utf-8-sig")
    ran("compute in.jsonl --config o.toml -o out.jsonl")
    assert [row["advantage"] for row in rows_of("out.jsonl")] == [-1, 1]
    assert "Ours" in ran("presets ours --presets p.toml").out
