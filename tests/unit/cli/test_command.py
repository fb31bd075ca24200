"""A command line as it is read: the tables become typer's parameters, and a line becomes what a command is given."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from grpo_cli.cli.command import Line, read
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.presets import presets
from grpo_cli.errors import UsageError
from grpo_cli.options.commands import COMMANDS, Command
from grpo_cli.options.table import EVERY, Option
from grpo_cli.schemas.table import schemas
from tests.support.command import adv
from tests.unit.test_rooms import loaded_by

EACH_COMMAND = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
# A text for each type of option, and its value.
TEXTS: dict[Any, tuple[str, Any]] = {
    str: ("a b", "a b"), int: ("7", 7), float: ("-1e-4", -1e-4), list[str]: ("x=1", ["x=1"]), bool: ("", True),
}  # fmt: skip


def given(*words: str) -> dict[str, Any]:
    line = read(words)
    assert isinstance(line, Line)
    return line.given


def options_of(command: Command) -> list[Option]:
    return [EVERY[name] for name in command.options]


def value_of(option: Option) -> str:
    """A value that an option takes which has to be given."""
    return str((get_args(option.type) or ("needed",))[0])


def needed(command: Command) -> dict[str, Any]:
    return {name: value_of(EVERY[name]) for name in command.options if EVERY[name].required}


def line(command: Command, *more: str) -> list[str]:
    """A line of the command, with what it has to be given before `more` unless that is in it."""
    words = [command.name]
    if command.argument:
        words.append("in.jsonl")
    for name, value in needed(command).items():
        if not any(word.partition("=")[0] == EVERY[name].flag for word in more):
            words += [EVERY[name].flag, value]
    return [*words, *more]


@EACH_COMMAND
def test_what_is_not_given_is_not_there(command: Command) -> None:
    found = given(*line(command))
    if command.argument is not None:
        assert found.pop(command.argument.name) in ("in.jsonl", ["in.jsonl"])
    assert found == needed(command)


@EACH_COMMAND
def test_every_spelling_of_an_option_gives_its_value(command: Command) -> None:
    for option in options_of(command):
        choice = (get_args(option.type) or ("",))[0]
        text, value = TEXTS.get(option.type, (choice, choice))
        for flag in filter(None, (option.flag, option.other, option.short)):
            words = [flag, text] if text else [flag]
            found = given(*line(command, *words))
            assert found[option.name] == value, flag
            if text and flag.startswith("--"):
                found = given(*line(command, f"{flag}={text}"))
                assert found[option.name] == value, flag


@EACH_COMMAND
def test_a_value_of_another_type_is_a_usage_error_that_names_the_option(command: Command) -> None:
    for option in options_of(command):
        if option.type in {str, bool, list[str]}:
            continue
        with pytest.raises(UsageError, match=f"^{option.flag} cannot be 'nonsense'; ") as error:
            read(line(command, option.flag, "nonsense"))
        wanted = {int: "a whole number", float: "a number"}.get(option.type, ", ".join(get_args(option.type)))
        assert error.value.hint.endswith(wanted), option


def test_what_may_be_repeated_is_a_list_in_the_order_of_the_line() -> None:
    found = given("compute", "b", "-g", "x", "a", "--group=y", "--", "-c")
    assert found == {"group": ["x", "y"], "inputs": ["b", "a", "-c"]}


def two_values(option: Option) -> tuple[str, str]:
    choices = get_args(option.type)
    if len(choices) > 1:
        return choices[0], choices[1]
    return ("1:2", "2:3") if ":" in option.takes else ("1", "2")


@EACH_COMMAND
def test_no_value_of_an_option_that_is_given_twice_is_lost(command: Command) -> None:
    for option in options_of(command):
        one, two = two_values(option)
        words = [option.flag, one, f"{option.flag}={two}"]
        if option.type is bool:
            assert given(*line(command, option.flag, option.flag))[option.name] is True, option
        elif get_origin(option.type) is list:
            assert given(*line(command, *words))[option.name] == [one, two], option
        else:
            with pytest.raises(UsageError) as error:
                read(line(command, *words))
            wrong = f"{option.flag} is given more than once: {one!r} and {two!r}; it takes one value"
            assert str(error.value) == wrong


def test_the_two_spellings_of_an_option_are_one_option() -> None:
    assert given("compute", "a", "--explain", "--dry-run", "--explain")["explain"] is True
    with pytest.raises(UsageError, match="--output is given more than once: 'x' and 'y'"):
        read(["compute", "a", "-o", "x", "--output", "y"])
    assert given("select", "a", "-w", "mean > 0", "--where", "std > 0")["where"] == ["mean > 0", "std > 0"]


def test_short_options_may_stand_together_and_a_large_whole_number_is_exact() -> None:
    assert given("compute", "a", "-qofile") == {"inputs": ["a"], "output": "file", "quiet": True}
    assert given("compute", "a", "--seed", "4611686018427387905")["seed"] == 2**62 + 1


INVALID = """
comptue a               | no command named 'comptue'; did you mean 'compute'?
compute a --mehtod rloo | no option named '--mehtod'; did you mean '--method'?
compute a --zzzzz       | no option named '--zzzzz'; see --help-all
compute a -z            | no option named '-z'; did you mean '--zero-variance'?
inspect a --output x    | no option named '--output'; see --help-all
compute a --all         | no option named '--all'; see --help-all
compute                 | INPUT is missing; see --help
verify                  | OUT is missing; see --help
verify a                | --against is missing; give --against IN; see --help
export a                | --to is missing; give --to sft|pairs|labels|groups|weights|prompts|tokens; see --help
compute a --epsilon     | option '--epsilon' requires an argument (see --help)
compute a --force=yes   | option '--force' does not take a value (see --help)
methods a b             | methods takes one NAME, and there are more; see --help
add a b --from c        | add takes one FILE, and there are more; see --help
add a b                 | add takes one FILE, and there are more; --from takes the other file: --from COLUMNS
verify a b              | verify takes one OUT, and there are more; --against takes the other file: --against IN
compute a --epsilon nan | --epsilon cannot be 'nan'; it takes a finite number
"""


@pytest.mark.parametrize("line", INVALID.strip().splitlines())
def test_an_invalid_command_line_is_one_line_of_error_and_exit_status_2(line: str) -> None:
    words, _, message = line.partition(" | ")
    done = adv(words)
    assert done.status == 2
    assert done.out == ""
    assert done.err == f"error: {message}\n"


def on_a_terminal(*words: str, streams: str = "stderr", **surroundings: str) -> str:
    """What a line prints on streams that are a terminal; NO_COLOR and its like are unset, unless they are given."""
    ours, its = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")}
    there: dict[str, Any] = dict.fromkeys(streams.split(), its)
    subprocess.run([sys.executable, "-m", "grpo_cli", *words], env=env | surroundings, check=False, **there)
    os.close(its)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    return said


@pytest.mark.parametrize(
    ("surroundings", "printed"),
    [
        ({"TERM": "xterm"}, "\x1b[1;31merror:\x1b[0m INPUT is missing\r\n \x1b[36mhelp:\x1b[0m see --help\r\n"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "error: INPUT is missing\r\n help: see --help\r\n"),
        ({"TERM": "dumb"}, "error: INPUT is missing\r\n help: see --help\r\n"),
    ],
)
def test_an_error_on_a_terminal_has_a_line_for_each_way_out_and_colours_if_there_are_any(
    surroundings: dict[str, Any], printed: str
) -> None:
    assert on_a_terminal("compute", **surroundings) == printed
    assert adv("compute").err == "error: INPUT is missing; see --help\n", "one line in a log"


WAYS_OUT = """
inspect steps.jsonl --json                       | inspect steps.jsonl --json --group prompt_id,step | inspect steps.jsonl --json --group-within input
compute steps.jsonl -g prompt_id,step -o 'an output.jsonl' | compute steps.jsonl -g prompt_id,step -o 'an output.jsonl' --force
inspect broken.jsonl                             | inspect broken.jsonl --on-error skip
inspect steps.jsonl --grop prompt_id,step        | inspect steps.jsonl --group prompt_id,step
methods rlo                                      | methods rloo
inspect steps.jsonl -g prompt_id,stepp
inspect steps.jsonl --json --format md
inspect steps.jsonl -g prompt_id --json          | inspect steps.jsonl -g prompt_id --json --group-within input
inspect steps.jsonl -gprompt_id --json           | inspect steps.jsonl -gprompt_id --json --group-within input
compute null.jsonl --explain                     | compute null.jsonl --explain --missing exclude | compute null.jsonl --explain --missing zero | compute null.jsonl --explain --missing as-zero
compute null.jsonl --missing=error --explain
compute null.jsonl --partial keep
compute null.jsonl -m trl-grpo
compute null.jsonl --normalize
export null.jsonl --to sft --prompt p --response r -o x.jsonl --seed 1
inspect steps.jsonl -g prompt_id,step --full --by step --show 1
inspect
"""


@pytest.mark.parametrize("way", WAYS_OUT.strip().splitlines())
def test_a_way_out_is_a_command_to_paste_where_it_can_be_one(way: str) -> None:
    """No command where a word is wrong or an option is there already, nor where one of two options is to be left out."""
    line, *commands = [part.strip() for part in way.split(" | ")]
    Path("steps.jsonl").write_text("""\
{"prompt_id": 0, "step": 0, "reward": 0}
{"prompt_id": 0, "step": 0, "reward": 1}
{"prompt_id": 0, "step": 1, "reward": 0}
{"prompt_id": 0, "step": 1, "reward": 1}
""")
    Path("null.jsonl").write_text("""\
{"prompt_id": 0, "reward": 0}
{"prompt_id": 0, "reward": 1}
{"prompt_id": 0, "reward": null}
""")
    Path("an output.jsonl").write_text("mine")
    good = '{"prompt_id": 1, "reward": 1}\n{"prompt_id": 1, "reward": 0}\n'
    Path("broken.jsonl").write_text(f'{good}{{"prompt_id"\n')
    said = on_a_terminal(*shlex.split(line), TERM="dumb")
    assert re.findall(r"\n {7}grpo-adv (.*)\r", said) == commands
    for command in commands:
        assert adv(command).status == 0


@pytest.mark.parametrize(
    ("words", "coloured"),
    [
        ("always NO_COLOR=1", True),
        ("always TERM=dumb", True),
        ("auto FORCE_COLOR=1 NO_COLOR=", True),
        ("never FORCE_COLOR=1", False),
        ("auto NO_COLOR=1", False),
        ("auto", False),
    ],
)
def test_color_wins_over_the_environment_and_without_colours_there_is_no_escape(words: str, *, coloured: bool) -> None:
    choice, *variables = words.split()
    surroundings: dict[str, Any] = dict(one.split("=") for one in variables)
    for line in ("methods rloo", "compute --help"):
        done = adv(f"{line} --color={choice}", **surroundings)
        assert ("\x1b[" in done.out + done.err) == coloured


# --- the table of commands -----------------------------------------------------------------------------------


@EACH_COMMAND
def test_a_command_has_an_example_and_options_that_are_there_once(command: Command) -> None:
    assert command.example.startswith(f"grpo-adv {command.name} ")
    assert command.help.endswith(".")
    assert len(command.options) == len(set(command.options))
    flags = [row.flag for row in options_of(command)]
    flags += [row.short for row in options_of(command) if row.short]
    assert len(flags) == len(set(flags))


def test_every_option_belongs_to_a_command() -> None:
    assert {name for command in COMMANDS.values() for name in command.options} == {*EVERY}


@EACH_COMMAND
def test_the_whole_help_of_a_command_shows_its_example_and_the_full_text_of_all_its_options(command: Command) -> None:
    done = adv(command.name, "--help-all")
    words = " ".join(done.out.split())
    assert done.status == 0
    assert f"  {command.example}" in done.out.splitlines()
    assert [name for name, row in command.takes.items() if f"{row.takes} {row.help}".strip() not in words] == []
    flags = [flag for row in command.takes.values() for flag in (row.flag, row.other, row.short)]
    assert [flag for flag in flags if flag not in words] == []
    assert max(map(len, done.out.splitlines())) <= 80


@EACH_COMMAND
@pytest.mark.parametrize("word", ["-h", "--help"])
def test_the_help_of_a_command_is_one_screen_with_a_line_for_each_option(command: Command, word: str) -> None:
    done = adv(command.name, word)
    lines = done.out.splitlines()
    assert done.status == 0
    assert done.err == ""
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    assert f"  {command.example}" in lines
    shown = [EVERY[name] for name in command.common or command.options]
    assert len(shown) <= 20
    assert len(shown) >= 16 or not command.common
    for row in shown:
        text = row.brief or row.help.removesuffix(".")
        starts = [line for line in lines if line.startswith((f"  {row.flag} ", f"  {row.flag}, "))]
        assert starts
        assert any(line.endswith(f"  {text}") for line in lines), "the text stands on one line"
        if get_origin(row.type) is Literal and not row.metavar:
            choices = "|".join(get_args(row.type))
            assert any(choices in line for line in starts)
    more = f"all {len(command.options)} options: grpo-adv {command.name} --help-all"
    assert (more in lines) == bool(command.common)


def test_method_groups_and_rewards_come_first_in_the_help_of_compute() -> None:
    titles = [line for line in adv("compute", "-h").out.splitlines() if line and line[0].isupper()]
    assert titles[2:7] == ["Argument", "Method", "Divisor", "Groups and batches", "Rewards"]


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_help_fits_terminals_of_all_widths(command: str, columns: int) -> None:
    done = adv(*command.split(), "--help", COLUMNS=str(columns))
    example = COMMANDS[command].example if command else ""
    assert max(len(line) for line in done.out.splitlines() if line.strip() != example) <= columns


@pytest.mark.parametrize(
    ("words", "same"),
    [("help", "--help"), ("help compute", "compute --help"), ("version", "--version"), ("-V", "--version")],
)
def test_what_people_type_for_help_and_the_version_works(words: str, same: str) -> None:
    assert adv(words) == adv(same)
    assert adv(words).status == 0


def test_help_of_a_command_that_there_is_not_names_the_one_that_is_meant() -> None:
    assert "did you mean 'compute'?" in adv("help compte").err


def test_the_help_lists_every_command() -> None:
    done = adv("--help")
    assert [name for name in COMMANDS if f"\n  {name} " not in done.out] == []
    assert adv().status == 2
    assert adv().out == done.out


def test_titles_of_the_help_are_bold_on_a_terminal_that_has_colours() -> None:
    printed = on_a_terminal("verify", "-h", streams="stdout", TERM="xterm")
    assert "\x1b[1mExample\x1b[0m" in printed
    assert "\x1b[36m--debug\x1b[0m      " in printed


# --- completion ----------------------------------------------------------------------------------------------


def completed(words: str, cwd: Path | None = None) -> list[str]:
    """What the shell would offer for the last word; nothing that is slow to load is loaded."""
    script = """
import atexit, sys
from grpo_cli.__main__ import main
if LOADS_NOTHING:
    atexit.register(lambda: print(*{"polars", "pyarrow", "numpy"} & {*sys.modules}, file=sys.stderr))
main()
"""
    so_far = {"COMP_WORDS": f"grpo-adv {words}", "COMP_CWORD": f"{len(words.split())}"}
    environment = os.environ | so_far | {"_GRPO_ADV_COMPLETE": "complete_bash"}
    asked = [sys.executable, "-c", script.replace("LOADS_NOTHING", str(cwd is None))]
    done = subprocess.run(asked, env=environment, cwd=cwd, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    return done.stdout.split()


COMPLETED = """\
in | inspect
compute --sing | --singleton
compute --rew | --reward --reward-shift --reward-scale --reward-clip
select --help | --help-all --help
compute --singleton n | nan null
"""


@pytest.mark.parametrize("case", COMPLETED.splitlines())
def test_commands_and_options_are_completed(case: str) -> None:
    words, wanted = case.split(" | ")
    assert completed(words) == wanted.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("compute --method rl", ESTIMATORS),
        ("compare a.jsonl --preset trl-g", presets()),
        ("compute --schema ver", schemas()),
        ("schemas tr", schemas()),
    ],
)
def test_the_names_of_the_tables_are_completed(words: str, names: Iterable[str]) -> None:
    start = words.rsplit(maxsplit=1)[-1]
    wanted = [name for name in names if name.startswith(start)]
    assert wanted
    assert completed(words) == wanted


COLUMNS = """\
compute in.jsonl --reward sc | score score_2
inspect in.jsonl --group task,s | task,score task,score_2
inspect in.jsonl nothing.jsonl --by t | task
compute broken.parquet --reward s |
compute --reward s |
compute nothing.jsonl --reward s |
"""


@pytest.mark.parametrize("case", COLUMNS.splitlines())
def test_columns_are_completed_from_the_first_file(case: str, tmp_path: Path) -> None:
    words, wanted = case.split(" |")
    Path("in.jsonl").write_text('{"task": "a", "score": 1, "score_2": 0}\n')
    Path("broken.parquet").write_bytes(b"PAR1")
    assert completed(words, tmp_path) == wanted.split()


def test_a_long_listing_goes_to_the_pager_of_a_terminal() -> None:
    (pager := Path("pager")).write_text("#!/bin/sh\nsed 's/^/paged: /' | head -3\n")
    pager.chmod(0o755)
    said = on_a_terminal("presets", streams="stdin stdout", PAGER=str(pager.absolute()), TERM="xterm").splitlines()
    assert len(said) == 3
    assert all(line.startswith("paged: ") for line in said)
    assert len(adv("presets").out.splitlines()) > 300, "a pipe gets all of it, without a pager"


@pytest.mark.skipif(shutil.which("bash") is None, reason="completion is installed for bash")
def test_completion_installs_itself_for_the_shell(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("grpo-adv")
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}

    def bash(script: str) -> str:
        return subprocess.check_output(["bash", "-c", script], env=environment, text=True)

    assert "_grpo_adv_completion" in bash("grpo-adv --show-completion; :")
    assert "bash completion installed in" in bash("grpo-adv --install-completion; :")
    asked = "COMP_WORDS=(grpo-adv compute --scale b); COMP_CWORD=3; _grpo_adv_completion grpo-adv; echo ${COMPREPLY[@]}"
    assert bash(f"source .bash_completions/grpo-adv.sh; {asked}").strip() == "batch"


@pytest.mark.parametrize("words", ["--help", "export -h", "compute a --epsilon 1 -g x"])
def test_a_line_and_the_help_load_neither_rich_nor_what_reads_files(words: str) -> None:
    slow = {"pydantic", "rich", "polars", "pyarrow", "numpy", "grpo_cli.files"}
    assert not slow & loaded_by(f"from grpo_cli.cli.command import read; read({words.split()!r})")


def test_an_error_that_names_a_flag_of_some_commands_says_so() -> None:
    Path("x.jsonl").write_text('{"prompt_id": 1, "reward": 1, "advantage": 0}\n{oops\n')
    for command in ("audit", "schemas", "inspect", "compute", "compare --preset trl-grpo --preset verl-grpo"):
        done = adv(f"{command} x.jsonl")
        assert "--on-error skip leaves such lines out, in commands that have it" in done.err


# --- presets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["TRL", "drgrpo", "trinity-rft"])
def test_presets_of_a_framework_or_with_a_word_in_their_names_are_listed(word: str) -> None:
    low = word.lower()
    wanted = [name for name, row in presets().items() if low in name or low == row.framework.lower()]
    assert wanted
    listed = json.loads(adv("presets", word, "--json").out)
    assert [row["name"] for row in listed] == wanted
    shown = [line.split()[0] for line in adv("presets", word).out.splitlines() if line]
    assert [name for name in shown if name in presets()] == wanted


def test_a_word_that_no_preset_has_is_an_error() -> None:
    assert adv("presets", "qqq").err == "error: no preset named 'qqq'; grpo-adv presets lists them\n"
    assert "--zero-variance drop" in adv("presets", "dapo").err
