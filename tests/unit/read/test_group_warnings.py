"""Groups that may merge several draws are distinguished from groups that only look unusual."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from grpo_cli.errors import DataError
from grpo_cli.runs.compute_files import run
from tests.support import draws
from tests.support.drawn import paired
from tests.support.jobs import job, look, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


UNPROVEN = (
    ": several draws of a prompt, or one draw that was written in parts (ranks, servers)? "
    "If several, name the column that tells them apart: --group prompt_id,COLUMN"
)


def warnings_of(keys: Sequence[Any], columns: Mapping[str, Sequence[Any]] | None = None, **options: Any) -> list[str]:
    """The warnings for rows with these keys; no group is constant."""
    rows = [
        {"prompt_id": key, "reward": (at * 7) % 5, **{name: values[at] for name, values in (columns or {}).items()}}
        for at, key in enumerate(keys)
    ]
    return list(look(write("x.jsonl", rows), **options).facts["warnings"])


def runs(*pairs: tuple[str, int]) -> list[str]:
    return [key for key, count in pairs for _ in range(count)]


@pytest.mark.parametrize(
    ("keys", "suspicion"),
    [
        (runs(("a", 4), ("b", 4), ("c", 4), ("a", 4)), "a group key comes back in separate blocks of 4 rows"),
        *((runs(("a", 4), ("b", 8), ("c", 4), ("a", 4), ("d", 4), ("e", last)), "a group key comes back in separate blocks of multiples of 4 rows") for last in (4, 3)),
        *((runs(("a", 4), ("b", 8), ("c", 4), ("d", last)), "group sizes are multiples of 4 (up to 8)") for last in (4, 3)),
    ],
)  # fmt: skip
def test_groups_in_blocks_of_one_size_or_of_multiples_of_it_are_suspected(keys: list[str], suspicion: str) -> None:
    assert warnings_of(keys) == [f"{suspicion}{UNPROVEN}"]


def test_a_size_that_sample_numbers_prove_is_named_and_cures() -> None:
    keys = runs(("a", 4), ("b", 4), ("c", 4), ("a", 4), ("b", 4))
    numbered = {"sample_idx": [at % 4 for at in range(len(keys))]}
    said = warnings_of(keys, numbered)
    assert said[1].endswith("4 rows, and sample_idx restarts after 4: --group prompt_id --group-size 4 cuts them")
    assert warnings_of(keys, numbered, group=["prompt_id"])[1].endswith(": --group-size 4 cuts them")
    assert not warnings_of(keys, numbered, group=["prompt_id"], group_size=4)


def test_the_flags_for_a_proven_size_work_if_the_last_draw_was_cut() -> None:
    keys = runs(("a", 4), ("b", 4), ("c", 4), ("a", 4), ("b", 3))
    numbered = {"sample_idx": [at % 4 for at in range(len(keys))]}
    assert warnings_of(keys, numbered)[1].endswith("--group-size 4 --partial keep cuts them")
    assert not warnings_of(keys, numbered, group=["prompt_id"], group_size=4, partial="keep")


@pytest.mark.parametrize("lost", [1, 5, 9])
def test_sample_numbers_prove_nothing_if_a_row_is_lost(lost: int) -> None:
    keys = runs(*((key, 4) for key in "abcabcabcabc"))
    numbered = {"sample_idx": [at % 4 for at in range(len(keys))]}
    del keys[lost], numbered["sample_idx"][lost]
    (_, warning) = warnings_of(keys, numbered)
    assert warning.startswith("3 group keys come back in separate blocks of mostly 4 rows")
    assert warning.endswith(UNPROVEN)


def trl(keys: Sequence[str], advantages: Sequence[float], path: Path) -> Path:
    """A completions table of one step."""
    rewards = [float(at % 2) for at in range(len(keys))]
    pl.DataFrame(
        {"step": 1, "prompt": keys, "completion": "x", "accuracy": rewards, "advantage": advantages},
    ).write_parquet(path)
    return path


@pytest.mark.parametrize("keys", [runs(("a", 4), ("b", 8), ("c", 4)), runs(("a", 4), ("b", 4), ("c", 4), ("b", 4))])
def test_a_trl_table_knows_the_size_of_its_groups(keys: list[str]) -> None:
    facts = look(trl(keys, [1.0, -1.0, 0.5, -0.5] * 4, Path("completions_00001.parquet")), column="mine").facts
    assert facts["groups"] == 4 and facts["group_sizes"]["max"] == 4 and not facts["warnings"]
    assert "groups are cut into blocks of 4 rows: the logged advantages of each add up to 0" in facts["notes"]


def test_advantages_that_do_not_add_up_in_blocks_cut_nothing() -> None:
    path = trl(
        runs(("a", 4), ("b", 8), ("c", 4)),
        [1.0, -1.0, 0.5, -0.5, *[0.5] * 4, *[-0.5] * 4, 0, 0, 0, 0],
        Path("c.parquet"),
    )
    facts = look(path, column="mine").facts
    assert facts["groups"] == 3 and facts["warnings"][0].startswith("group sizes are multiples of 4 (up to 8)")


TELLING = ["model", "policy", "run_id", "data_source", "env", "split", "global_steps"]


@pytest.mark.parametrize(("name", "order"), paired(TELLING, ["aabb", "abab"]))
def test_the_column_that_tells_models_or_data_sets_apart_is_named(name: str, order: str) -> None:
    keys = runs(("p", 4), ("q", 4), ("r", 4))
    (warning,) = warnings_of(keys, {name: order * 3})
    assert warning == f"3 groups have rows of several values of {name}: --group prompt_id,{name} makes a group of each"
    assert not warnings_of(keys, {name: order * 3}, group=["prompt_id", name])


@pytest.mark.parametrize(("differs", "warned"), [("model", True), ("dataset", True), ("env", False)])
def test_of_many_columns_that_say_where_a_row_is_from_three_are_read(differs: str, *, warned: bool) -> None:
    columns = dict.fromkeys(("model", "run_id", "dataset", "env"), "x" * 12) | {differs: "abab" * 3}
    assert bool(warnings_of(runs(("p", 4), ("q", 4), ("r", 4)), columns)) == warned


@pytest.mark.parametrize("models", ["aaab" * 3, "abcd" * 3, "aaaabbbbaaaa", "a" * 12])
def test_models_that_share_a_group_unequally_or_have_a_row_each_are_nothing_to_warn_about(models: str) -> None:
    assert not warnings_of(runs(("p", 4), ("q", 4), ("r", 4)), {"model": models})


# --- simulated files -----------------------------------------------------------------------------------------------

FEW = 30  # files of each kind; `python -m tests.support.draws` takes 300
# How many get a warning; rows that alternate show no blocks.
DRAWN = {
    "with replacement, in blocks": 26,
    "40 draws of 12 prompts": 30,
    "epochs, shuffled": 30,
    "epochs, in order": 30,
    "the last block cut": 25,
    "ranks one after the other": 25,
    "30 % of the draws filtered": 27,
    "5 % of the rows lost": 12,
    "rows that alternate": 0,
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


def fragments(samples: int = 4, parts: int = 3) -> tuple[list[str], list[tuple[str, int]], list[int]]:
    """Rollout by rollout of several prompts in turn, each in parts; prompts differ in how many rollouts they have."""
    rollouts = [(key, at) for at in range(2 * samples) for key in "abcdef"[: 6 - at // 2]]
    rows = [(rollout, part) for rollout in rollouts for part in range(parts)]
    return [key for (key, _), _ in rows], [rollout for rollout, _ in rows], [part for _, part in rows]


def test_rollouts_in_three_fragments_are_no_draws() -> None:
    keys, rollouts, _ = fragments()
    assert warnings_of(keys)[0].startswith("6 group keys come back in separate blocks of 3 rows")
    for name in ("trajectory_id", "rollout_id", "episode_id"):
        (said,) = warnings_of(keys, {name: [f"{key}{at}" for key, at in rollouts]})
        assert said.startswith(f"several rows of a group share one {name}: --rollout {name} counts each rollout once")
    # The number of the rollout restarts for each prompt.
    (said,) = warnings_of(keys, {"sample_idx": [at for _, at in rollouts]})
    assert "may have been written twice" in said


def test_a_sample_that_a_flag_names_as_the_rollout_may_repeat() -> None:
    rows = [{"prompt_id": "a", "sample": k, "part": part, "reward": k} for k in range(2) for part in range(3)]
    path = write("a.jsonl", rows)
    assert "may have been written twice" in " ".join(look(path).facts["warnings"])
    assert not look(path, rollout="sample").facts["warnings"]


def test_three_judges_a_rollout_are_no_draws() -> None:
    keys, _, parts = fragments()
    for names in ("abc", "xyz"):
        assert not warnings_of(keys, {"judge": [names[part] for part in parts]})


def test_draws_are_noticed_although_judges_score_each_rollout() -> None:
    keys = runs(*((key, 12) for key in "abcabcabc"))
    (said,) = warnings_of(keys, {"judge": ["xyz"[at % 3] for at in range(len(keys))]})
    assert said.startswith("3 group keys come back in separate blocks of 12 rows")


def test_a_training_step_named_rollout_id_does_not_hide_draws() -> None:
    """In some dumps `rollout_id` is the step: it is in several groups, which the id of a rollout is not."""
    keys = runs(*((key, 4) for key in "abcabcabc"))
    (said,) = warnings_of(keys, {"rollout_id": [at // 12 for at in range(len(keys))]})
    assert said.startswith("3 group keys come back in separate blocks of 4 rows")


def test_one_group_with_all_rows_is_suspected() -> None:
    (warning,) = warnings_of(["a"] * 64)
    assert warning.startswith("all 64 rows are one group: is prompt_id the same everywhere?")


@pytest.mark.parametrize(
    "keys",
    [
        runs(("a", 4), ("b", 4), ("c", 4)),
        list("abcabcabcabc"),  # trial by trial
        runs(("a", 2), ("b", 3), ("c", 4)),
        runs(("a", 2), ("b", 3)),
        runs(("a", 2), ("b", 4)),  # two groups are no rule
        runs(("a", 2), ("b", 2), ("a", 1)),
        list("aabcbca"),
        runs(("a", 4), ("b", 8), ("a", 4), ("c", 12)),  # no size is the usual one
        ["a"] * 8,
    ],
    ids=str,
)
def test_groups_that_are_merely_uneven_are_not_suspected(keys: list[str]) -> None:
    assert not warnings_of(keys)


def platform(baselines: Sequence[float], rewards: Sequence[float]) -> list[Any]:
    return [
        {
            "run_id": "r", "step": 1, "problem_id": 3, "sample_id": at, "env_name": "e", "reward": reward,
            "advantage": reward - baseline,
        }
        for at, (baseline, reward) in enumerate(zip(baselines, rewards, strict=True))
    ]  # fmt: skip


def test_logged_advantages_separate_two_draws_of_one_problem() -> None:
    rewards = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    path = write("x.jsonl", platform([0.5] * 4 + [0.25] * 4, rewards))
    (warning,) = look(path, column="mine").facts["warnings"]
    assert warning.startswith("a group was normalised in blocks of 4 by the trainer")
    assert warning.endswith("--group-size 4 cuts them")
    assert not look(path, column="mine", group_size=4).facts["warnings"]


def test_baselines_that_differ_by_rounding_are_one() -> None:
    rewards = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    path = write("x.jsonl", platform([0.375, 0.3750001] * 4, rewards))
    assert not look(path, column="mine").facts["warnings"]


def test_a_silent_run_skips_what_only_warns_and_writes_the_same() -> None:
    path = write("x.jsonl", [{"prompt_id": "a", "sample_id": 0, "reward": at % 5} for at in range(64)])
    seen = run(job(path, output=Path("seen.jsonl")))
    unseen = run(replace(job(path, output=Path("unseen.jsonl")), silent=True))
    assert len(seen.parts[0].narrow.warnings) == 2
    assert not unseen.parts[0].narrow.warnings
    assert Path("unseen.jsonl").read_bytes() == Path("seen.jsonl").read_bytes()


# --- several rewards ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({}, ["rows with only some of the rewards: 2; a missing one is skipped"]),
        ({"component_missing": "zero"}, ["rows with only some of the rewards: 2; a missing one counts as 0"]),
        ({"component_missing": "propagate"}, []),
    ],
    ids=["skip", "zero", "propagate"],
)  # fmt: skip
def test_rows_with_some_of_several_rewards_are_counted(options: Any, warned: list[str]) -> None:
    """A row without any is not one of them: it is refused or left out."""
    rewards = {"acc": [0.0, 1.0, None, None], "fmt": [0.5, None, 1.0, None]}
    rows = [{"prompt_id": "a", "acc": acc, "fmt": fmt} for acc, fmt in zip(*rewards.values(), strict=True)]
    done = look(write("x.jsonl", rows), reward=["acc", "fmt"], missing="exclude", **options)
    assert [text for text in done.facts["warnings"] if "rewards" in text] == warned


@pytest.mark.parametrize(
    ("weights", "scale"),
    [((1.0, 1.0, 0.0), "none"), ((1.0, 1.0, 0.0), "group"), ((1.0, 1.0, 1.0), "batch"), ((1.0, 0.2, 0.5), "group")],
)
def test_number_columns_that_the_logged_advantages_ignore_are_no_rewards(
    weights: tuple[float, ...], scale: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    rewards = rng.choice([0.0, 0.5, 1.0], (8, 6, 3))
    total = rewards @ weights
    away = total - total.mean(1, keepdims=True)
    spread = {"none": 1.0, "group": total.std(1, ddof=1, keepdims=True), "batch": total.std()}[scale]
    frame = pl.DataFrame({
        "step": np.full(48, 1), "prompt": np.repeat([f"prompt {k}" for k in range(8)], 6),
        "completion": [f"text {k}" for k in range(48)],
        **{name: rewards[..., k].ravel() for k, name in enumerate(("accuracy", "format", "confidence"))},
        "advantage": (away / (spread + 1e-4)).ravel(),
    })  # fmt: skip
    frame.write_parquet("completions_00001.parquet")
    if 0.0 in weights:
        with pytest.raises(
            DataError, match=r"the logged advantage follows accuracy \+ format, without confidence"
        ) as raised:
            look(tmp_path, column="mine")
        assert raised.value.hint == "name the rewards: --reward accuracy --reward format"
        look(tmp_path, reward=["accuracy", "format", "confidence"], column="mine")
    else:
        assert look(tmp_path, column="mine").facts["reward_columns"] == ["accuracy", "format", "confidence"]
