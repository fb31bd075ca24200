"""Groups that may merge several draws are distinguished from groups that only look unusual."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from grpo_cli.runs.compute_files import run
from tests.support import draws
from tests.support.drawn import paired
from tests.support.jobs import job, look, refused, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


UNPROVEN = (
    ": several draws of a prompt, or one draw that was written in parts (ranks, servers)? "
    "If several, name the column that tells them apart: --group prompt_id,COLUMN"
)


def warnings_of(keys: Sequence[Any], columns: Mapping[str, Iterable[Any]] | None = None, **options: Any) -> list[str]:
    """The warnings for rows with these keys; no group is constant."""
    rows = pl.DataFrame({"prompt_id": [*keys], "reward": [at * 7 % 5 for at in range(len(keys))]})
    for name, values in (columns or {}).items():
        rows = rows.with_columns(pl.Series(name, [*values]))
    rows.write_ndjson("x.jsonl")
    warnings: list[str] = look("x.jsonl", **options).facts["warnings"]
    return warnings


@pytest.mark.parametrize(
    ("keys", "suspicion"),
    [
        ("aaaabbbbccccaaaa", "a group key comes back in separate blocks of 4 rows"),
        ("aaaabbbbbbbbccccaaaaddddeeee", "a group key comes back in separate blocks of multiples of 4 rows"),
        ("aaaabbbbbbbbccccaaaaddddeee", "a group key comes back in separate blocks of multiples of 4 rows"),
        ("aaaabbbbbbbbccccdddd", "group sizes are multiples of 4 (up to 8)"),
        ("aaaabbbbbbbbccccddd", "group sizes are multiples of 4 (up to 8)"),
    ],
)  # fmt: skip
def test_groups_in_blocks_of_one_size_or_of_multiples_of_it_are_suspected(keys: str, suspicion: str) -> None:
    assert warnings_of(keys) == [f"{suspicion}{UNPROVEN}"]


def test_a_size_that_sample_numbers_prove_is_named_and_cures() -> None:
    keys = "aaaabbbbccccaaaabbbb"
    numbered = {"sample_idx": [0, 1, 2, 3] * 5}
    said = warnings_of(keys, numbered)
    assert said[1].endswith("4 rows, and sample_idx restarts after 4: --group prompt_id --group-size 4 cuts them")
    assert warnings_of(keys, numbered, group=["prompt_id"])[1].endswith(": --group-size 4 cuts them")
    assert not warnings_of(keys, numbered, group=["prompt_id"], group_size=4)


def test_the_flags_for_a_proven_size_work_if_the_last_draw_was_cut() -> None:
    keys = "aaaabbbbccccaaaabbb"
    numbered = {"sample_idx": [*[0, 1, 2, 3] * 4, 0, 1, 2]}
    assert warnings_of(keys, numbered)[1].endswith("--group-size 4 --partial keep cuts them")
    assert not warnings_of(keys, numbered, group=["prompt_id"], group_size=4, partial="keep")


@pytest.mark.parametrize("lost", [1, 5, 9])
def test_sample_numbers_prove_nothing_if_a_row_is_lost(lost: int) -> None:
    keys = [*"aaaabbbbcccc" * 4]
    numbers = [0, 1, 2, 3] * 12
    del keys[lost], numbers[lost]
    (_, warning) = warnings_of(keys, {"sample_idx": numbers})
    assert warning.startswith("3 group keys come back in separate blocks of mostly 4 rows")
    assert warning.endswith(UNPROVEN)


def trl(keys: str, advantages: Sequence[float]) -> Path:
    """A completions table of one step."""
    columns = {"step": 1, "prompt": [*keys], "completion": "x", "accuracy": [0.0, 1.0] * 8, "advantage": advantages}
    path = Path("completions_00001.parquet")
    pl.DataFrame(columns).write_parquet(path)
    return path


@pytest.mark.parametrize("keys", ["aaaabbbbbbbbcccc", "aaaabbbbccccbbbb"])
def test_a_trl_table_knows_the_size_of_its_groups(keys: str) -> None:
    facts = look(trl(keys, [1.0, -1.0, 0.5, -0.5] * 4), column="mine").facts
    assert facts["groups"] == facts["group_sizes"]["max"] == 4
    assert not facts["warnings"]
    assert "groups are cut into blocks of 4 rows: the logged advantages of each add up to 0" in facts["notes"]


def test_advantages_that_do_not_add_up_in_blocks_cut_nothing() -> None:
    advantages = [1.0, -1.0, 0.5, -0.5, *[0.5] * 4, *[-0.5] * 4, 0, 0, 0, 0]
    facts = look(trl("aaaabbbbbbbbcccc", advantages), column="mine").facts
    assert facts["groups"] == 3
    assert facts["warnings"][0].startswith("group sizes are multiples of 4 (up to 8)")


TELLING = "model policy run_id data_source env split global_steps"


@pytest.mark.parametrize(("name", "order"), paired(TELLING.split(), ["aabb", "abab"]))
def test_the_column_that_tells_models_or_data_sets_apart_is_named(name: str, order: str) -> None:
    keys = "ppppqqqqrrrr"
    values = {name: order * 3}
    (warning,) = warnings_of(keys, values)
    assert warning == f"3 groups have rows of several values of {name}: --group prompt_id,{name} makes a group of each"
    assert not warnings_of(keys, values, group=["prompt_id", name])


@pytest.mark.parametrize(("differs", "warned"), [("model", True), ("dataset", True), ("env", False)])
def test_of_many_columns_that_say_where_a_row_is_from_three_are_read(differs: str, *, warned: bool) -> None:
    columns = dict.fromkeys(("model", "run_id", "dataset", "env"), "x" * 12) | {differs: "abab" * 3}
    assert bool(warnings_of("ppppqqqqrrrr", columns)) == warned


@pytest.mark.parametrize("models", ["aaab" * 3, "abcd" * 3, "aaaabbbbaaaa", "a" * 12])
def test_models_that_share_a_group_unequally_or_have_a_row_each_are_nothing_to_warn_about(models: str) -> None:
    assert not warnings_of("ppppqqqqrrrr", {"model": models})


# --- simulated files -----------------------------------------------------------------------------------------------

FEW = 30  # files of each kind; `python -m tests.support.draws` takes 300
# How many get a warning.
DRAWN = {
    "with replacement, in blocks": 26,
    "40 draws of 12 prompts": 30,
    "epochs, shuffled": 30,
    "ranks one after the other": 25,
    "30 % of the draws filtered": 27,
    "5 % of the rows lost": 12,
}
# Sizes that are multiples of the usual size are suspected where groups are consecutive.
NATURAL = {"together": 18, "resumed": 2}


@pytest.mark.parametrize("way", draws.DRAWN)
def test_prompts_that_were_drawn_several_times_are_mostly_noticed(way: str) -> None:
    assert draws.warned_drawn(way, FEW) == DRAWN[way]


@pytest.mark.parametrize("order", draws.ORDERS)
def test_natural_files_of_unequal_groups_are_warned_about_only_for_their_sizes(order: str) -> None:
    assert draws.warned_natural(order, FEW) == NATURAL.get(order, 0)


# --- what looks like draws -------------------------------------------------------------------------------------------


# Rollout by rollout of several prompts in turn, each in three parts; the prompts differ in how many rollouts they have.
OF_FRAGMENTS = [key for key in "abcdefabcdefabcdeabcdeabcdabcdabcabc" for _ in range(3)]
NUMBERS = [number for number in "000000111111222223333344445555666777" for _ in range(3)]


def test_rollouts_in_three_fragments_are_no_draws() -> None:
    assert warnings_of(OF_FRAGMENTS)[0].startswith("6 group keys come back in separate blocks of 3 rows")
    for name in ("trajectory_id", "rollout_id", "episode_id"):
        (said,) = warnings_of(OF_FRAGMENTS, {name: map(str.__add__, OF_FRAGMENTS, NUMBERS)})
        assert said.startswith(f"several rows of a group share one {name}: --rollout {name} counts each rollout once")
    (said,) = warnings_of(OF_FRAGMENTS, {"sample_idx": NUMBERS})
    assert "may have been written twice" in said


def test_a_sample_that_a_flag_names_as_the_rollout_may_repeat() -> None:
    Path("a.csv").write_text("prompt_id,sample,part,reward\na,0,0,0\na,0,1,0\na,0,2,0\na,1,0,1\na,1,1,1\na,1,2,1\n")
    assert "may have been written twice" in " ".join(look("a.csv").facts["warnings"])
    assert not look("a.csv", rollout="sample").facts["warnings"]


def test_three_judges_a_rollout_are_no_draws_and_hide_none() -> None:
    judges = {"judge": "xyz" * 36}
    assert not warnings_of(OF_FRAGMENTS, judges)
    (said,) = warnings_of(("a" * 12 + "b" * 12 + "c" * 12) * 3, judges)
    assert said.startswith("3 group keys come back in separate blocks of 12 rows")


def test_judges_that_score_several_rows_in_a_row_are_no_votes_on_one_rollout() -> None:
    (said,) = warnings_of(OF_FRAGMENTS, {"judge": "xxxyyyzzz" * 12})
    assert said.startswith("6 group keys come back in separate blocks of 3 rows")


def test_a_training_step_named_rollout_id_does_not_hide_draws() -> None:
    """In some dumps `rollout_id` is the step: it is in several groups, which the id of a rollout is not."""
    (said,) = warnings_of("aaaabbbbcccc" * 3, {"rollout_id": [*[0] * 12, *[1] * 12, *[2] * 12]})
    assert said.startswith("3 group keys come back in separate blocks of 4 rows")


def test_one_group_with_all_rows_is_suspected() -> None:
    (warning,) = warnings_of(["a"] * 64)
    assert warning.startswith("all 64 rows are one group: is prompt_id the same everywhere?")


@pytest.mark.parametrize(
    "keys",
    [
        "aaaabbbbcccc",
        "abcabcabcabc",  # trial by trial
        "aabbbcccc",
        "aabbb",
        "aabbbb",  # two groups are no rule
        "aabba",
        "aabcbca",
        "aaaabbbbbbbbaaaacccccccccccc",  # no size is the usual one
        "aaaaaaaa",
    ],
)
def test_groups_that_are_merely_uneven_are_not_suspected(keys: str) -> None:
    assert not warnings_of(keys)


def test_baselines_that_differ_by_rounding_are_one() -> None:
    rewards = pl.Series([1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    columns = {"run_id": "r", "step": 1, "problem_id": 3, "sample_id": range(8), "env_name": "e", "reward": rewards}
    logged = rewards - pl.Series([0.375, 0.3750001] * 4)
    pl.DataFrame({**columns, "advantage": logged}).write_ndjson("x.jsonl")
    assert not look("x.jsonl", column="mine").facts["warnings"]


def test_a_silent_run_skips_what_only_warns_and_writes_the_same() -> None:
    path = write("x.jsonl", [{"prompt_id": "a", "sample_id": 0, "reward": at % 5} for at in range(64)])
    seen = run(job(path, output=Path("seen.jsonl")))
    unseen = run(replace(job(path, output=Path("unseen.jsonl")), silent=True))
    assert len(seen.parts[0].narrow.warnings) == 2
    assert not unseen.parts[0].narrow.warnings
    assert Path("unseen.jsonl").read_bytes() == Path("seen.jsonl").read_bytes()


# --- several rewards ---------------------------------------------------------------------------------------------


def test_rows_with_some_of_several_rewards_are_counted() -> None:
    """A row without any is not one of them: it is refused or left out."""
    Path("x.csv").write_text("prompt_id,acc,fmt\na,0.0,0.5\na,1.0,\na,,1.0\na,,\n")

    def warnings(rule: str) -> str:
        done = look("x.csv", reward=["acc", "fmt"], missing="exclude", component_missing=rule)
        return " ".join(done.facts["warnings"])

    assert "rows with only some of the rewards: 2; a missing one is skipped" in warnings("skip")
    assert "rows with only some of the rewards: 2; a missing one counts as 0" in warnings("zero")
    assert "rewards" not in warnings("propagate")


@pytest.mark.parametrize(
    ("weights", "scale"),
    [((1.0, 1.0, 0.0), "none"), ((1.0, 1.0, 0.0), "group"), ((1.0, 1.0, 1.0), "batch"), ((1.0, 0.2, 0.5), "group")],
)
def test_number_columns_that_the_logged_advantages_ignore_are_no_rewards(
    weights: tuple[float, ...], scale: str, tmp_path: Path
) -> None:
    rewards = np.random.default_rng(3).choice([0.0, 0.5, 1.0], (8, 6, 3))
    total = rewards @ weights
    advantage = total - total.mean(1, keepdims=True)
    if scale == "group":
        advantage /= total.std(1, ddof=1, keepdims=True) + 1e-4
    if scale == "batch":
        advantage /= total.std() + 1e-4
    names = ["accuracy", "format", "confidence"]
    frame = pl.DataFrame(rewards.reshape(48, 3), names)
    keys = [*"aaaaaabbbbbbccccccddddddeeeeeeffffffgggggghhhhhh"]
    frame = frame.with_columns(step=1, prompt=pl.Series(keys), advantage=advantage.ravel())
    frame.with_columns(completion=pl.int_range(48).cast(pl.String)).write_parquet("completions_00001.parquet")
    if 0.0 in weights:
        said = refused(tmp_path, column="mine")
        assert "the logged advantage follows accuracy + format, without confidence" in said
        assert said.endswith("; name the rewards: --reward accuracy --reward format")
        look(tmp_path, reward=names, column="mine")
    else:
        assert look(tmp_path, column="mine").facts["reward_columns"] == names


def test_logged_advantages_are_compared_with_one_reward_only() -> None:
    """Those of a sum say nothing of the baseline of its first part."""
    row = {"step": 4, "env_name": "env", "problem_id": 9, "prompt": "[]", "completion": "[]"}
    logged = [0.5, -0.5, 0.5, -0.5, 0.75, -0.25, -0.25, -0.25]
    rewards = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    each = [{"sample_id": at, "reward": rewards[at], "advantage": logged[at], "form": at % 3 / 2} for at in range(8)]
    path = write("results.jsonl", [row | more for more in each])
    blocks = "normalised in blocks of 4 by the trainer, as its advantages show"
    assert blocks in " ".join(look(path, schema="prime-platform", column="mine").facts["warnings"])
    both = look(path, schema="prime-platform", column="mine", reward=["reward", "form"])
    assert blocks not in " ".join(both.facts["warnings"])
