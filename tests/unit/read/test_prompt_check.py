"""An id whose groups contain several prompts stops the run; if a flag named it, a warning says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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

LEVELS = ["easy", "medium", "hard"]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def by_level(count: int = 48, column: str = "prompt") -> list[Any]:
    """Two rollouts of each prompt, and an id that is only its level."""
    return [
        {"task_id": LEVELS[at // 2 % 3], column: f"What is {at // 2} and one?", "reward": at % 2}
        for at in range(count)
    ]  # fmt: skip


def saved(rows: Sequence[Any], path: Path) -> Path:
    """The rows in the format that the suffix names; in Parquet as one row group."""
    if path.suffix != ".parquet":
        return write(path, rows)
    pl.DataFrame(rows).write_parquet(path)
    return path


SUFFIXES = [".jsonl", ".jsonl.gz", ".json", ".parquet", ".csv", ".arrow"]
FRAMES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame, "pandas": pl.DataFrame.to_pandas, "arrow": pl.DataFrame.to_arrow,
}  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "count"),
    [*((suffix, 12) for suffix in SUFFIXES), (".jsonl", 60_000), (".jsonl.gz", 60_000), (".parquet", 60_000)],
)
def test_an_id_found_by_name_with_several_prompts_stops_the_run(suffix: str, count: int) -> None:
    path = saved(by_level(count), Path(f"x{suffix}"))
    with pytest.raises(DataError) as error:
        look(path)
    assert error.value.message.startswith(
        "groups of task_id hold several prompts: prompt differs inside 3 of 3 groups that were compared (easy: 'What is"
    )
    assert error.value.hint == (
        "--group=prompt makes a group of each prompt; --group=task_id,prompt makes one inside each task_id; "
        "--group-size N cuts blocks where the samples of a prompt follow each other; --group=task_id keeps them together"
    )


@pytest.mark.parametrize(("suffix", "rounds"), paired(SUFFIXES, [300, 3000, 300]))
def test_ids_that_restart_once_are_noticed(suffix: str, rounds: int) -> None:
    """Three to seven rows per prompt: blocks have no common size."""
    prompts = [prompt for prompt in range(2 * rounds) for _ in range(3 + prompt % 5)]
    if suffix == ".jsonl.gz":  # only the beginning of a packed file is read
        prompts = [prompt for prompt in prompts if prompt < 8 or rounds <= prompt < rounds + 8]
    rows = [{"prompt_id": one % rounds, "prompt": f"What is {one} and one?", "reward": one % 2} for one in prompts]
    assert "hold several prompts" in refused(saved(rows, Path(f"x{suffix}")))


@pytest.mark.parametrize("count", [1, 3])
def test_of_large_documents_the_last_is_compared(count: int) -> None:
    rows = by_level()
    paths = [saved([{**row, "step": at} for row in rows], Path(f"{at}.json")) for at in range(count)]
    for path in paths:
        path.write_text(path.read_text() + " " * document._AGAIN)
    assert "hold several prompts" in refused(*paths, group_within="step")


def test_each_cure_that_is_named_cures() -> None:
    path = write("x.jsonl", by_level())
    for columns in (["prompt"], ["task_id", "prompt"]):
        facts = look(path, group=columns).facts
        assert facts["groups"] == 24 and not facts["warnings"]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_an_id_that_was_named_is_warned_about(suffix: str) -> None:
    (warning,) = look(saved(by_level(), Path(f"x{suffix}")), group=["task_id"]).facts["warnings"]
    assert warning.startswith("groups of task_id hold several prompts: prompt differs inside 3 of 3 groups")


def test_blocks_with_several_prompts_are_warned_about() -> None:
    rows = [{"prompt": f"say {at // 3}", "reward": at % 2} for at in range(24)]
    path = write("x.jsonl", rows)
    assert look(path, group_size=4).facts["warnings"][0].startswith("groups of the block size hold several prompts")
    assert not look(path, group_size=3).facts["warnings"]


@pytest.mark.parametrize("made", [*FRAMES.values(), pl.DataFrame.lazy], ids=[*FRAMES, "lazy"])
def test_frames_are_checked_as_files_are(made: Callable[[pl.DataFrame], Any]) -> None:
    with pytest.raises(DataError, match="groups of task_id hold several prompts") as error:
        grpo_cli.advantages(made(pl.DataFrame(by_level())))
    assert error.value.hint.startswith(
        "group=prompt makes a group of each prompt; group=task_id,prompt makes one inside"
    )


def test_the_last_rows_of_a_file_are_compared_with_the_first() -> None:
    """Ids that restart in the middle of a file of lines."""
    rows = [
        {"prompt_id": at // 4 % 5000, "prompt": f"round {at // 20_000} prompt {at // 4}", "reward": at % 2}
        for at in range(40_000)
    ]
    with pytest.raises(DataError, match=r"prompt differs inside (\d\d+) of \1 groups that were compared"):
        look(write("x.jsonl", rows))


def test_ids_that_restart_in_each_file_are_not_said_to_be_shards() -> None:
    def file(name: str, word: str) -> Path:
        rows = [{"prompt_id": at // 4, "prompt": f"{word} {at // 4}", "reward": at % 2} for at in range(12)]
        return write(name, rows)

    with pytest.raises(DataError) as error:
        look(file("a.jsonl", "say"), file("b.jsonl", "write"))
    assert error.value.hint == "--group-within file: ids restart in each, since one has several prompts"
    assert "groups of prompt_id hold several prompts" in refused("a.jsonl", "b.jsonl", group_within="input")
    assert "--group-within input if they are shards" in refused(file("c.jsonl", "say"), "a.jsonl")


def test_ids_that_restart_in_each_step_are_not_said_to_be_one_round() -> None:
    rows = [
        {"step": at // 12, "prompt_id": at % 12 // 4, "prompt": f"p {at // 4}", "reward": at % 2} for at in range(24)
    ]
    with pytest.raises(DataError) as error:
        look(write("x.jsonl", rows))
    assert error.value.hint == "--group prompt_id,step: ids restart, since one has several prompts"


# --- what is no difference ---------------------------------------------------------------------------------------


SAME: dict[str, Callable[[int], Any]] = {
    **{f"one {name} a group": lambda at, name=name: {name: f"prompt {at // 4}"} for name in ("prompt", "question", "messages")},  # type: ignore[misc]
    "later turns of one prompt": lambda at: {"task_id": 1, "prompt": "You play chess." + " Your move?" * at},
    "a template with the time in it, around one question": lambda at: {
        "prompt": f"{at} o'clock: q {at // 4}", "question": f"q {at // 4}",
    },
}  # fmt: skip


@pytest.mark.parametrize("row", SAME.values(), ids=SAME)
def test_groups_with_one_prompt_are_not_warned_about(row: Callable[[int], Any]) -> None:
    rows = [{"task_id": at // 4, "reward": at % 2, **row(at)} for at in range(24)]
    assert not look(write("x.jsonl", rows)).facts["warnings"]


def test_a_conversation_is_compared_up_to_its_first_response() -> None:
    rows = [
        {"task_id": at // 4, "messages": [user(f"p {at // 4}"), assistant(f"r {at}"), user(f"so {at}?")], "reward": at % 2}
        for at in range(24)
    ]  # fmt: skip
    assert not look(write("x.jsonl", rows)).facts["warnings"]
    rows = [{**row, "task_id": at // 4 % 3} for at, row in enumerate(rows)]
    with pytest.raises(DataError, match="messages differs inside 3 of 3 groups") as error:
        look(write("y.jsonl", rows))
    assert error.value.hint.startswith("name the column of the prompt's id with --group")


@pytest.mark.parametrize("same", ["", "Answer.", None])
def test_a_text_that_is_the_same_everywhere_is_ignored(same: str | None) -> None:
    rows = [{**row, "input": same} for row in by_level(column="instruction")]
    assert "instruction differs inside 3 of 3 groups" in refused(write("x.jsonl", rows))


def test_steps_of_a_rollout_may_have_prompts_of_their_own() -> None:
    rows = [{"task_id": 1, "traj": at // 2, "prompt": f"state {at}", "reward": at // 2} for at in range(8)]
    assert not look(write("x.jsonl", rows), rollout="traj", rollout_reward="first").facts["warnings"]


def test_a_file_without_the_text_is_passed_over() -> None:
    first = write("a.jsonl", [{"task_id": "a", "reward": r} for r in (0, 1)])
    other = write("b.jsonl", [{"task_id": "b", "prompt": "p", "reward": r} for r in (0, 1)])
    assert not look(first, other).facts["warnings"]


@pytest.mark.parametrize(
    ("value", "prompt"),
    [
        (" a ", "a"),
        ("", None),
        (None, None),
        (3, None),
        ([], None),
        ([user("a"), assistant("b"), user("c")], "a"),
        ([{"role": "system", "content": "s"}, user("a")], "s\na"),
        ([assistant("Hi! How can I help?"), user("a")], None),
        ([{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "a"),
        ([user("")], None),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "x"}]}], "a"),
        (json.dumps([user("a"), assistant("b")]), "a"),
        ("[1, 2] is a list", "[1, 2] is a list"),
        ("[1, 2]", "[1, 2]"),
        ("[" * 100_000, "[" * 100_000),
        ({"input": [user("a")], "tools": []}, "a"),
        ({"messages": [user("a"), assistant("b")]}, "a"),
        ([{"role": {"odd": 1}, "content": "a"}], "a"),
    ],
)  # fmt: skip
def test_what_a_prompt_is(value: Any, prompt: str | None) -> None:
    assert prompt_of(value) == prompt


# --- texts of any name -------------------------------------------------------------------------------------------


def by_shard(text: Callable[[int], str], count: int = 96, size: int = 4, column: str = "ask") -> list[Any]:
    """Rollouts in order, a shard number as their id, and a text in each row under an unknown name."""
    return [{"group_id": at * 3 // count, column: text(at), "reward": at % size % 2} for at in range(count)]


def asked(at: int) -> str:
    return f"How many are {at // 4} and one?"


@pytest.mark.parametrize(("suffix", "count"), paired(SUFFIXES, [96, 20_000, 96]))
def test_a_text_of_any_name_that_comes_back_in_one_group_is_a_prompt(suffix: str, count: int) -> None:
    rows = by_shard(asked, count)
    with pytest.raises(DataError, match="groups of group_id hold several prompts: ask differs inside") as error:
        look(saved(rows, Path(f"rollouts{suffix}")))
    assert "--group=ask makes a group of each prompt" in str(error.value)


def test_prompts_that_take_turns_are_seen_in_a_small_file() -> None:
    rows = by_shard(lambda at: f"How many are {at // 32 * 8 + at % 8} and one?")
    assert "groups of group_id hold several prompts: ask differs" in refused(saved(rows, Path("rollouts.jsonl")))


NO_PROMPTS: dict[str, Callable[[int], str]] = {
    "a response": lambda at: f"The answer is {at}, I think",
    "a label of two words": lambda at: ("greedy sampler", "hot sampler")[at % 2],
    "an answer taken out": lambda at: f"New York {at // 32}" if at % 4 else f"Los Angeles {at // 8}",
    "an id of each prompt": lambda at: f"0123456789-{at // 4}",
    "a node that is in many groups": lambda at: f"node {at // 4 % 10} of the cluster",
    "words of the judge": lambda at: f"rubric {at // 5 % 19}: fulfilled",
    "few letters": lambda at: f"{at // 4} ?",
}


@pytest.mark.parametrize(("name", "count"), paired(NO_PROMPTS, [96, 20_000 // 96 * 96]))
def test_other_texts_are_not_taken_for_prompts(name: str, count: int) -> None:
    look(saved(by_shard(NO_PROMPTS[name], count), Path("rollouts.jsonl")))


@pytest.mark.parametrize("column", ["reply", "model_response", "final_answer", "judgment", "observation"])
def test_a_response_scored_by_two_judges_is_not_taken_for_a_prompt(column: str) -> None:
    look(saved(by_shard(lambda at: f"I think it is {at // 2}", column=column), Path("rollouts.jsonl")))


def test_a_key_that_was_named_is_believed_beside_a_text_of_any_name() -> None:
    path = saved(by_shard(asked), Path("rollouts.jsonl"))
    assert not look(path, group=["group_id"]).narrow.warnings


@pytest.mark.parametrize("made", FRAMES.values(), ids=FRAMES)
def test_frames_have_texts_of_any_name_as_well(made: Callable[[pl.DataFrame], Any]) -> None:
    with pytest.raises(DataError, match="groups of group_id hold several prompts: ask differs"):
        grpo_cli.inspect(made(pl.DataFrame(by_shard(asked))))


def test_of_a_lazy_frame_no_text_of_an_unknown_name_is_computed() -> None:
    grpo_cli.inspect(pl.LazyFrame(by_shard(asked)))


@pytest.mark.parametrize(
    "column", ["query", "task_prompt", "problem_statement", "instruction", "input", "user_prompt", "goal"]
)
def test_a_text_with_the_name_of_a_prompt_needs_no_more_than_to_differ(column: str) -> None:
    with pytest.raises(DataError, match=f"groups of task_id hold several prompts: {column} differs"):
        look(saved(by_level(12, column), Path("rollouts.jsonl")))


@pytest.mark.parametrize(
    ("longer", "is_one"),
    [
        ("What is 12", False),
        ("What is 1\nIt is 1.\nAnd 2?", True),
        ("What is 1<|im_end|>", True),
        ("What is 1, and " + "what " * 40, True),
    ],
    ids=["a plain one", "a line feed", "a mark", "much longer"],
)
def test_one_prompt_at_the_beginning_of_another_is_another_prompt_unless_a_turn_follows(
    longer: str, *, is_one: bool
) -> None:
    rows = [{"task_id": at % 2, "prompt": ("What is 1", longer)[at // 2 % 2], "reward": at % 3} for at in range(12)]
    path = saved(rows, Path("rollouts.jsonl"))
    if is_one:
        look(path)
    else:
        assert "groups of task_id hold several prompts" in refused(path)


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        ("", "'apples' and 'pears'"),
        ("You are a helpful assistant. " * 3, "'apples' and 'pears'"),
    ],
    ids=["short", "behind the same words"],
)
def test_two_prompts_are_shown_around_their_first_difference(head: str, shown: str) -> None:
    rows = [{"task_id": 1, "prompt": head + ("apples", "pears")[at // 2], "reward": at % 2} for at in range(4)]
    with pytest.raises(DataError) as error:
        look(write("x.jsonl", rows))
    assert shown in str(error.value)


# --- prompts in objects, and empty ones ------------------------------------------------------------------------------


def by_ticket(name: str, text: Callable[[int], str], count: int = 48) -> list[Any]:
    return [
        {"task_id": LEVELS[at // 2 % 3], name: {"ticket": text(at), "turn": at}, "reward": at % 2}
        for at in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if suffix != ".csv"])
def test_a_prompt_inside_of_an_object_is_compared(suffix: str) -> None:
    path = saved(by_ticket("observation", lambda at: f"Please repair number {at // 2}"), Path(f"x{suffix}"))
    with pytest.raises(
        DataError, match=r"groups of task_id hold several prompts: observation\.ticket differs"
    ) as error:
        look(path)
    assert error.value.hint.startswith("--group=observation.ticket makes a group of each prompt")
    assert look(path, group=["observation.ticket"]).facts["groups"] == 24


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("observation", lambda at: f"State {at} of the room"),
        ("observation", lambda at: f"Room {at // 2 % 5} of the house"),
        ("response", lambda at: f"I think it is {at // 2}"),
        ("judge", lambda at: f"It says that it is {at // 2}"),
    ],
    ids=["a state of its own in each row", "texts that are in many groups", "responses", "what a judge says"],
)
def test_a_text_inside_of_an_object_that_is_no_prompt_stops_nothing(name: str, text: Callable[[int], str]) -> None:
    look(write("x.jsonl", by_ticket(name, text)))


EMPTY: list[Any] = [{"input": []}, {"input": [user("")], "model": "m"}, {"input": None, "tools": []}, {}]


@pytest.mark.parametrize(("value", "suffix"), paired(EMPTY, [".parquet", ".json", ".jsonl", ".jsonl"]), ids=str)
def test_a_prompt_that_is_empty_in_every_row_is_no_key(value: Any, suffix: str) -> None:
    if value == {} and suffix == ".parquet":
        pytest.skip("a struct has fields")
    rows = [
        {"responses_create_params": value, "response": {"id": f"r{at}"}, "reward": at % 2, "verifier_metadata": {"a": at}}
        for at in range(10)
    ]  # fmt: skip
    path = saved(rows, Path(f"x{suffix}"))
    with pytest.raises(
        DataError, match="responses_create_params is empty in all 10 rows: nothing distinguishes the prompts"
    ) as error:
        look(path)
    assert error.value.hint.startswith("name the column of the prompt's id with --group; give --group-size N")
    assert look(path, group=["verifier_metadata.a"], singleton="zero").facts["groups"] == 10
    assert look(path, group_size=2, schema="none").facts["groups"] == 5


def test_an_empty_text_is_no_key_and_an_image_is_no_empty_prompt() -> None:
    assert "prompt is empty in all 4 rows" in refused(
        write("x.jsonl", [{"prompt": " ", "reward": at % 2} for at in range(4)])
    )
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": "x.png"}]}]
    images = write("y.jsonl", [{"prompt": image, "reward": at % 2} for at in range(4)])
    assert look(images).facts["groups"] == 1
    assert look(write("x.jsonl", [{"prompt": "", "reward": at % 2} for at in range(4)]), group=["prompt"])
