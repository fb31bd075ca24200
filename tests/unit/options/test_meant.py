"""Names that are in no table: what people mean by them, else a near spelling, else nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

import grpo_cli
from grpo_cli.cli.command import Line, read
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.presets import presets
from grpo_cli.errors import UnknownName, UsageError, Way, near_names
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.config import with_config
from grpo_cli.options.given import Given
from grpo_cli.options.meant import MEANT, Meaning
from grpo_cli.options.resolve import plan_of
from grpo_cli.options.table import EVERY
from tests.support.command import adv

ROWS = [(option, name, meaning) for option, names in MEANT.items() for name, meaning in names.items()]
FLAGS = {flag for row in EVERY.values() for flag in (row.flag, row.other, row.short)}


@pytest.mark.parametrize(("option", "name", "meaning"), ROWS)
def test_a_sentence_names_flags_and_values_that_there_are(option: str, name: str, meaning: Meaning) -> None:
    sentence = UsageError("", meaning.cures).hint
    flags = {*re.findall(r"(?<![\w-])--?[a-z][a-z-]*", sentence)}
    assert flags <= FLAGS
    for flag, value in re.findall(r"--(method|scale|whiten|to|zero-variance) ([a-z][a-z+-]*)", sentence):
        choices = get_args(EVERY[flag.replace("-", "_")].type)
        assert value in (ESTIMATORS if flag == "method" else choices)
    assert not sentence.endswith(".")
    if option == "method":
        assert name not in ESTIMATORS
    elif option:
        assert name not in get_args(EVERY[option].type)
    else:
        of_commands = [{row.flag for row in command.takes.values()} for command in COMMANDS.values()]
        without_name = [of for of in of_commands if name not in {flag.replace("-", "") for flag in of}]
        ways = {cure.flag for cure in meaning.cures if isinstance(cure, Way)}
        in_sentences = flags - ways
        for way in ways or {""}:
            needed = in_sentences | ({way} - {""})
            assert any(needed <= of for of in without_name), "a command without it has what the sentence names"
        assert {flag.removeprefix("--") for flag in in_sentences} <= meaning.options
    assert re.fullmatch(r"[a-z0-9+]+", name), "as a name is looked up"


OPTIONS_THAT_PEOPLE_TRY = """
--eps 1             | the epsilon of the divisor is --epsilon
--normalize         | --scale group or --scale batch
--num_generations 8 | --group COL where a column names the prompt, else --group-size N
--mehtod rloo       | did you mean '--method'?
--group_size 4      | did you mean '--group-size'?
--rewards r         | did you mean '--reward'?
--group-by prompt   | --group COL names the key of a group
--reward-col score  | --reward COL names the reward
--overwrite         | --force replaces an output that exists; --replace a column that exists
--verbose           | --explain works out one group; --debug shows where an error comes from
"""
ALGORITHMS = """
DAPO      | --zero-variance drop
gspo      | keeps the advantage of grpo
GAE       | the values of a critic
dr_grpo   | --method dr-grpo
rlo       | did you mean 'rloo'?
trl-grpo  | --preset trl-grpo
"""


@pytest.mark.parametrize("line", OPTIONS_THAT_PEOPLE_TRY.strip().splitlines())
def test_an_option_that_people_try_is_answered_with_what_they_mean(line: str) -> None:
    words, _, says = line.partition(" | ")
    with pytest.raises(UsageError) as raised:
        read(["compute", "in.jsonl", *words.split()])
    assert says in raised.value.hint


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("inspect in --vs old", "--against INPUT takes the earlier run"),
        ("inspect in --solve-rate 0.5", "solve_rate is a fact of a group: --where 'solve_rate < 0.9'"),
        ("inspect in --verbose", "--full shows every section; --debug shows where an error comes from"),
        ("select in --overwrite", "--force replaces an output that exists"),
    ],
)
def test_an_option_that_people_try_is_answered_with_what_the_command_has(line: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(line.split())
    assert raised.value.hint == says


@pytest.mark.parametrize("line", ALGORITHMS.strip().splitlines())
def test_an_algorithm_that_is_no_method_is_answered_with_what_to_do(line: str) -> None:
    name, _, says = line.partition(" | ")
    with pytest.raises(UnknownName) as raised:
        plan_of(Given(method=name.strip()))
    assert says in raised.value.hint
    assert says in adv("methods", name.strip()).err


@pytest.mark.parametrize("words", ["--expr -reward", "-r -reward", "-mrloo", "-grollout", "-o -", "-- -config"])
def test_what_begins_with_a_dash_may_be_a_value_or_a_letter_with_one(words: str) -> None:
    assert isinstance(read(["compute", "in.jsonl", *words.split()]), Line)


@pytest.mark.parametrize("name", ["verlo-x", "qqqq", "advanced-thing"])
def test_a_name_that_is_near_nothing_is_answered_without_a_guess(name: str) -> None:
    for line in (["methods", name], ["compute", "in.jsonl", f"--{name}"], ["compute", "in.jsonl", "--preset", name]):
        assert "did you mean" not in adv(*line).err
    assert adv("methods", name).err == f"error: no method named {name!r}; grpo-adv methods lists them\n"


@pytest.mark.parametrize(
    "names", [[*ESTIMATORS], [*presets()], [row.flag for row in EVERY.values()]], ids=["methods", "presets", "options"]
)
def test_a_swapped_pair_of_letters_finds_the_name(names: list[str]) -> None:
    for name in names:
        at = len(name) // 2
        slip = name[:at] + name[at + 1 :][:1] + name[at] + name[at + 2 :]
        # One letter away from another name (trl-gmpo from trl-grpo) it is a slip of that one.
        alike = [other for other in names if len(other) == len(slip) and sum(map(str.__ne__, other, slip)) < 2]
        if not alike and len(name) > 5:
            assert name in near_names(slip, names), slip


def test_names_that_begin_with_the_word_are_shown_and_none_that_only_contain_it() -> None:
    known = ["oat-drgrpo", "oat-grpo", "areal-gsm8k-drgrpo"]
    assert near_names("oat", known) == known[:2]
    assert near_names("areal", known) == known[2:]
    assert near_names("drgrpo", known) == []
    assert near_names("x", ["a", "b"]) == []
    assert near_names("", ["a", "b"]) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_sentence_names_only_options_of_the_command(command: str) -> None:
    row = COMMANDS[command]
    own = {one.flag for one in row.takes.values()}
    for name in MEANT[""]:
        with pytest.raises(UsageError) as raised:
            read([command, "in", f"--{name}"])
        if "known: " not in raised.value.hint:
            assert {*re.findall(r"--[a-z][a-z-]*", raised.value.hint)} <= {*own, "--help-all"}


KEYWORDS = """
{"eps": 1e-4}            | the epsilon of the divisor is epsilon
{"num_generations": 8}   | group=COL where a column names the prompt, else group_size=N
{"scale_rewards": false} | TRL's scale_rewards is scale
{"method": "ppo"}        | the values of a critic
{"metod": "rloo"}        | did you mean 'method'?
"""


@pytest.mark.parametrize("line", KEYWORDS.strip().splitlines())
def test_keywords_of_python_are_answered_in_the_same_way(line: str) -> None:
    options, _, says = line.partition(" | ")
    with pytest.raises(UsageError) as raised:
        grpo_cli.advantages(pl.DataFrame({"prompt_id": [1, 1], "reward": [0, 1]}), **json.loads(options))
    assert says.strip() in str(raised.value)


def test_keys_of_a_file_of_options_are_answered_in_the_same_way() -> None:
    Path("c.toml").write_text("num_generations = 8\n", encoding="utf-8")
    with pytest.raises(UnknownName, match="--group-size N"):
        with_config(Given(config="c.toml"))
