"""An id whose groups contain several prompts stops the run; if a flag named it, a warning says so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import DataError
from grpo_cli.formats.json_document import document
from grpo_cli.read.prompt_check import prompt_of
from tests.support.drawn import paired
from tests.support.jobs import look, refused, write


def by_level(count: int = 48, column: str = "prompt") -> list[Any]:
    """Two rollouts of each prompt, and an id that is only its level."""
    levels = ["easy", "easy", "medium", "medium", "hard", "hard"]
    return [{"task_id": levels[at % 6], column: f"What is {at // 2} and one?", "reward": at % 2} for at in range(count)]


def saved(rows: Sequence[Any], path: Path) -> Path:
    """The rows in the format that the suffix names; in Parquet as one row group."""
    if path.suffix != ".parquet":
        return write(path, rows)
    pl.DataFrame(rows).write_parquet(path)
    return path


SUFFIXES = [".jsonl", ".jsonl.gz", ".json", ".parquet", ".csv", ".arrow"]
FRAMES: list[Callable[[pl.DataFrame], Any]] = [pl.DataFrame.clone, pl.DataFrame.to_pandas, pl.DataFrame.to_arrow]


@pytest.mark.parametrize(
    ("suffix", "count"),
    [*product(SUFFIXES, [12]), (".jsonl", 60_000), (".jsonl.gz", 60_000), (".parquet", 60_000)],
)
def test_an_id_found_by_name_with_several_prompts_stops_the_run(suffix: str, count: int) -> None:
    said = refused(saved(by_level(count), Path(f"x{suffix}")))
    assert said.startswith(
        "groups of task_id hold several prompts: prompt differs inside 3 of 3 groups that were compared (easy: 'What is"
    )
    assert said.endswith(
        "; --group=prompt makes a group of each prompt; --group=task_id,prompt makes one inside each task_id; "
        "--group-size N cuts blocks where the samples of a prompt follow each other; --group=task_id keeps them together"
    )


@pytest.mark.parametrize(("suffix", "rounds"), paired(SUFFIXES, [3000, 3000, 300]))
def test_ids_that_restart_once_are_noticed(suffix: str, rounds: int) -> None:
    """Three to seven rows per prompt: blocks have no common size."""
    rows = list[Any]()
    for one in range(2 * rounds):
        if suffix == ".jsonl.gz" and one % rounds >= 8:  # only the beginning of a packed file is read
            continue
        row = {"prompt_id": one % rounds, "prompt": f"What is {one} and one?", "reward": 1}
        rows += [row] * (3 + one % 5)
    assert "hold several prompts" in refused(saved(rows, Path(f"x{suffix}")))


@pytest.mark.parametrize("count", [1, 3])
def test_of_large_documents_the_last_is_compared(count: int) -> None:
    rows = pl.DataFrame(by_level())
    paths = [Path(f"{at}.json") for at in range(count)]
    for at, path in enumerate(paths):
        text = rows.with_columns(step=at).write_json()
        path.write_text(text + " " * document._AGAIN)
    assert "hold several prompts" in refused(*paths, group_within="step")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_an_id_that_was_named_is_warned_about(suffix: str) -> None:
    (warning,) = look(saved(by_level(), Path(f"x{suffix}")), group=["task_id"]).facts["warnings"]
    assert warning.startswith("groups of task_id hold several prompts: prompt differs inside 3 of 3 groups")


def test_blocks_with_several_prompts_are_warned_about() -> None:
    path = write("x.jsonl", [{"prompt": f"say {at // 3}", "reward": at % 2} for at in range(24)])
    (warning,) = look(path, group_size=4).facts["warnings"]
    assert warning.startswith("groups of the block size hold several prompts")
    assert not look(path, group_size=3).facts["warnings"]


@pytest.mark.parametrize("made", [*FRAMES, pl.DataFrame.lazy])
def test_frames_are_checked_as_files_are(made: Callable[[pl.DataFrame], Any]) -> None:
    hint = "group=prompt makes a group of each prompt; group=task_id,prompt makes one inside"
    with pytest.raises(DataError, match=f"groups of task_id hold several prompts.*{hint}"):
        grpo_cli.advantages(made(pl.DataFrame(by_level())))
    unnamed = made(pl.DataFrame(by_shard(asked)))
    if made is pl.DataFrame.lazy:  # of which no text of an unknown name is computed
        grpo_cli.inspect(unnamed)
    else:
        with pytest.raises(DataError, match="groups of group_id hold several prompts: ask differs"):
            grpo_cli.inspect(unnamed)


def test_the_last_rows_of_a_file_are_compared_with_the_first() -> None:
    """Ids that restart in the middle of a file of lines."""
    with Path("x.jsonl").open("w") as lines:
        lines.writelines(
            f'{{"prompt_id": {at % 5000}, "prompt": "prompt {at}", "reward": 1}}\n' * 4 for at in range(10_000)
        )
    assert re.search(r"prompt differs inside (\d\d+) of \1 groups that were compared", refused("x.jsonl"))


# --- what is no difference ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"task_id": GROUP, "reward": BIT, "prompt": "prompt GROUP"}',
        '{"task_id": GROUP, "reward": BIT, "question": "prompt GROUP"}',
        '{"task_id": GROUP, "reward": BIT, "messages": "prompt GROUP"}',
        # A template with the time in it, around one question.
        """{"task_id": GROUP, "reward": BIT, "prompt": "ROW o'clock: q GROUP", "question": "q GROUP"}""",
        # Later turns of one prompt.
        '{"task_id": 1, "reward": BIT, "prompt": "You play chess.MOVES"}',
    ],
)
def test_groups_with_one_prompt_are_not_warned_about(text: str) -> None:
    with Path("x.jsonl").open("w") as lines:
        for at in range(24):
            line = text.replace("GROUP", f"{at // 4}").replace("BIT", f"{at % 2}").replace("ROW", f"{at}")
            lines.write(line.replace("MOVES", " Your move?" * at) + "\n")
    assert not look("x.jsonl").facts["warnings"]


def test_a_conversation_is_compared_up_to_its_first_response() -> None:
    line = """{"task_id": TASK, "reward": BIT, "messages": [{"role": "user", "content": "p PROMPT"}, \
{"role": "assistant", "content": "r ROW"}, {"role": "user", "content": "so ROW?"}]}
"""
    one = ""
    for at in range(24):
        filled = line.replace("ROW", f"{at}").replace("PROMPT", f"{at // 4}")
        one += filled.replace("TASK", f"{at // 4}").replace("BIT", f"{at % 2}")
    Path("x.jsonl").write_text(one)
    assert not look("x.jsonl").facts["warnings"]
    mixed = one.replace('"task_id": 3', '"task_id": 0').replace('"task_id": 4', '"task_id": 1')
    Path("y.jsonl").write_text(mixed.replace('"task_id": 5', '"task_id": 2'))
    said = refused("y.jsonl")
    assert "messages differs inside 3 of 3 groups" in said
    assert "; name the column of the prompt's id with --group" in said


@pytest.mark.parametrize("same", ["", "Answer.", None])
def test_a_text_that_is_the_same_everywhere_is_ignored(same: str | None) -> None:
    rows = pl.DataFrame(by_level(column="instruction")).with_columns(input=pl.lit(same))
    rows.write_ndjson("x.jsonl")
    assert "instruction differs inside 3 of 3 groups" in refused("x.jsonl")


def test_steps_of_a_rollout_may_have_prompts_of_their_own() -> None:
    path = Path("x.csv")
    path.write_text("task_id,traj,prompt,reward\n1,0,state 0,0\n1,0,state 1,0\n1,1,state 2,1\n1,1,state 3,1\n")
    assert not look(path, rollout="traj", rollout_reward="first").facts["warnings"]


def test_a_file_without_the_text_is_passed_over() -> None:
    Path("a.csv").write_text("task_id,reward\na,0\na,1\n")
    Path("b.csv").write_text("task_id,prompt,reward\nb,p,0\nb,p,1\n")
    assert not look("a.csv", "b.csv").facts["warnings"]


# A value of JSON, and the prompt in it.
PROMPTS = r"""
" a " => "a"
"" => null
null => null
3 => null
[] => null
[{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}] => "a"
{"input": [{"role": "user", "content": "a"}], "tools": []} => "a"
"[{\"role\": {\"odd\": 1}, \"content\": \"a\"}]" => "a"
"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}]" => "a"
"[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"a\"}]" => "s\na"
"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"image_url\", \"image_url\": \"x\"}]}]" => "a"
"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}" => "a"
"[1, 2] is a list" => "[1, 2] is a list"
"[1, 2]" => "[1, 2]"
[{"role": "assistant", "content": "Hi! How can I help?"}, {"role": "user", "content": "a"}] => null
[{"role": "user", "content": ""}] => null
"""


@pytest.mark.parametrize("line", PROMPTS.strip().splitlines())
def test_what_a_prompt_is_and_that_a_response_at_the_beginning_is_none(line: str) -> None:
    value, _, prompt = line.partition(" => ")
    assert prompt_of(json.loads(value)) == json.loads(prompt)


def test_a_text_of_many_brackets_is_a_prompt_like_any_other() -> None:
    brackets = "[" * 100_000
    assert prompt_of(brackets) == brackets


# --- texts of any name -------------------------------------------------------------------------------------------


def by_shard(text: Callable[[int], str], count: int = 96, column: str = "ask") -> list[Any]:
    """Rollouts in order, a shard number as their id, and a text in each row under an unknown name."""
    return [{"group_id": at * 3 // count, column: text(at), "reward": at % 4 % 2} for at in range(count)]


def asked(at: int) -> str:
    return f"How many are {at // 4} and one?"


@pytest.mark.parametrize(("suffix", "count"), paired(SUFFIXES, [96, 20_000, 96]))
def test_a_text_of_any_name_that_comes_back_in_one_group_is_a_prompt(suffix: str, count: int) -> None:
    said = refused(saved(by_shard(asked, count), Path(f"rollouts{suffix}")))
    assert "groups of group_id hold several prompts: ask differs inside" in said
    assert "--group=ask makes a group of each prompt" in said


def test_of_a_large_file_some_runs_of_rows_are_compared() -> None:
    firsts = range(0, 7 * 128 + 1, 128)  # 64 rows from here
    rows = by_shard(asked, 7 * 128 + 64)
    for at, row in enumerate(rows):
        if not any(first <= at < first + 64 for first in firsts):
            row["ask"] = None  # no prompt: were it compared, the column would be none of prompts
    assert "groups of group_id hold several prompts: ask differs" in refused(saved(rows, Path("rollouts.jsonl")))


def test_prompts_that_take_turns_are_seen_in_a_small_file() -> None:
    rows = by_shard(lambda at: f"How many are {at // 32 * 8 + at % 8} and one?")
    assert "groups of group_id hold several prompts: ask differs" in refused(saved(rows, Path("rollouts.jsonl")))


OTHER_TEXTS = """
The answer is {at}, I think
{sampler} sampler
{city}
0123456789-{quarter}
node {node} of the cluster
rubric {rubric}: fulfilled
{quarter} ?
"""


@pytest.mark.parametrize("count", [96, 19_968])
@pytest.mark.parametrize("text", OTHER_TEXTS.strip().splitlines())
def test_other_texts_are_not_taken_for_prompts(text: str, count: int) -> None:
    def filled(at: int) -> str:
        city = f"Los Angeles {at // 8}" if at % 4 else f"New York {at // 32}"
        known = {"quarter": at // 4, "node": at // 4 % 10, "rubric": at // 5 % 19}
        return text.format(at=at, city=city, sampler=("hot", "greedy")[at % 2], **known)

    look(write("rollouts.jsonl", by_shard(filled, count)))


@pytest.mark.parametrize("column", ["reply", "model_response", "final_answer", "judgment", "observation"])
def test_a_response_scored_by_two_judges_is_not_taken_for_a_prompt(column: str) -> None:
    look(saved(by_shard(lambda at: f"I think it is {at // 2}", column=column), Path("rollouts.jsonl")))


def test_a_key_that_was_named_is_believed_beside_a_text_of_any_name() -> None:
    path = saved(by_shard(asked), Path("rollouts.jsonl"))
    assert not look(path, group=["group_id"]).narrow.warnings


@pytest.mark.parametrize(
    "column", ["query", "task_prompt", "problem_statement", "instruction", "input", "user_prompt", "goal"]
)
def test_a_text_with_the_name_of_a_prompt_needs_no_more_than_to_differ(column: str) -> None:
    said = refused(write("rollouts.jsonl", by_level(12, column)))
    assert f"groups of task_id hold several prompts: {column} differs" in said


def test_one_prompt_at_the_beginning_of_another_is_another_prompt_unless_a_turn_follows() -> None:
    def rows(longer: str) -> Path:
        prompts = ["What is 1", "What is 1", longer, longer]
        table = pl.DataFrame({"task_id": [0, 1, 0, 1], "prompt": prompts, "reward": [0, 1, 0, 1]})
        return write("rollouts.jsonl", table.to_dicts())

    look(rows("What is 1\nIt is 1.\nAnd 2?"))
    look(rows("What is 1<|im_end|>"))
    look(rows("What is 1, and " + "what " * 40))
    assert "groups of task_id hold several prompts" in refused(rows("What is 12"))


@pytest.mark.parametrize("head", ["", "You are a helpful assistant. " * 3], ids=["short", "behind the same words"])
def test_two_prompts_are_shown_around_their_first_difference(head: str) -> None:
    path = Path("x.csv")
    path.write_text(f"task_id,prompt,reward\n1,{head}apples,0\n1,{head}apples,1\n1,{head}pears,0\n1,{head}pears,1\n")
    assert "'apples' and 'pears'" in refused(path)


# --- prompts in objects, and empty ones ------------------------------------------------------------------------------


def by_ticket(text: Callable[[int], str]) -> list[Any]:
    """The same with the prompt inside of an object."""
    rows = by_level()
    for at, row in enumerate(rows):
        del row["prompt"]
        row["observation"] = {"ticket": text(at), "turn": at}
    return rows


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if suffix != ".csv"])
def test_a_prompt_inside_of_an_object_is_compared(suffix: str) -> None:
    path = saved(by_ticket(lambda at: f"Please repair number {at // 2}"), Path(f"x{suffix}"))
    said = refused(path)
    assert "groups of task_id hold several prompts: observation.ticket differs" in said
    assert "; --group=observation.ticket makes a group of each prompt" in said
    assert look(path, group=["observation.ticket"]).facts["groups"] == 24


def test_a_text_inside_of_an_object_that_is_no_prompt_stops_nothing() -> None:
    """A state of its own in each row, texts that are in many groups, responses, and what a judge says."""
    rows = by_ticket(lambda at: f"State {at} of the room")
    for at, row in enumerate(rows):
        row["place"] = {"ticket": f"Room {at // 2 % 5} of the house"}
        row["response"] = row["judge"] = {"ticket": f"I think it is {at // 2}"}
    look(write("x.jsonl", rows))


EMPTY = """
parquet {"input": []}
json    {"input": [{"role": "user", "content": ""}], "model": "m"}
jsonl   {"input": null, "tools": []}
jsonl   {}
"""


@pytest.mark.parametrize("line", EMPTY.strip().splitlines())
def test_a_prompt_that_is_empty_in_every_row_is_no_key(line: str) -> None:
    suffix, value = line.split(maxsplit=1)
    row = {"responses_create_params": json.loads(value), "response": {"id": "r"}}
    path = write(f"x.{suffix}", [{**row, "reward": at % 2, "of": {"a": at}} for at in range(10)])
    said = refused(path)
    assert "responses_create_params is empty in all 10 rows: nothing distinguishes the prompts; " in said
    assert "; name the column of the prompt's id with --group; give --group-size N" in said
    assert look(path, group=["of.a"], singleton="zero").facts["groups"] == 10
    assert look(path, group_size=2, schema="none").facts["groups"] == 5


def test_an_empty_text_is_no_key_and_an_image_is_no_empty_prompt() -> None:
    path = write("x.jsonl", [{"prompt": " ", "reward": 0}, {"prompt": " ", "reward": 1}])
    assert "prompt is empty in all 2 rows" in refused(path)
    assert look(path, group=["prompt"])
    image = {"type": "image_url", "image_url": "x.png"}
    other = write("y.jsonl", [{"prompt": [{"role": "user", "content": [image]}], "reward": 1}] * 2)
    assert look(other).facts["groups"] == 1
