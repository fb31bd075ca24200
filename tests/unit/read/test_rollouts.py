"""A rollout may have several rows: it counts once, or the run says what it counts instead."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from string import Template
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.errors import DataError, UsageError
from grpo_cli.guests.audit.run import Job as Audit
from grpo_cli.guests.audit.run import run as audit
from grpo_cli.read.tables import Binding
from grpo_cli.runs.compare import Contender
from grpo_cli.runs.compare import Job as Compare
from grpo_cli.runs.compare import run as compare
from grpo_cli.stats.document import document
from tests.support import ray_runs
from tests.support.bad_files import torch_zip
from tests.support.command import facts_of
from tests.support.drawn import paired
from tests.support.jobs import compute, frame, inspected, look, near, refused, rows_of, selected, write
from tests.support.schema_files import WRITERS

# Dumps in which one rollout has several rows: six groups of four rollouts, some of which have up to three rows.
GROUPS = 6
ROLLOUTS = 4
ROWS = 34


@dataclass(frozen=True)
class Part:
    """A row: its group, the number of its rollout in the group and in the file, its own number in the rollout, the reward."""

    group: int
    rollout: int
    index: int
    part: int
    parts: int
    reward: float

    @property
    def is_split(self) -> bool:
        return self.parts > 1


def parts() -> Iterator[Part]:
    """Five of 24 rollouts have three rows; the rewards of a group differ, and those of a rollout do not."""
    rng = np.random.default_rng(7)
    split = {0, 1, 6, 14, 23}
    for group in range(GROUPS):
        rewards = rng.permutation([0.0, 1.0, 1.0, float(group % 2)])
        for rollout, reward in enumerate(rewards.tolist()):
            index = group * ROLLOUTS + rollout
            count = 3 if index in split else 1
            yield from (Part(group, rollout, index, part, count, reward) for part in range(count))


def slime_sample(row: Part, rollout_id: int | None) -> dict[str, Any]:
    return {
        "group_index": row.group, "index": row.index, "rollout_id": rollout_id, "prompt": f"p{row.group}", "response": f"r{row.index}.{row.part}",
        "response_length": 5 + row.part, "label": "4", "reward": row.reward, "loss_mask": None, "status": "completed",
        "remove_sample": False, "metadata": {},
    }  # fmt: skip


def of_rows(name: str, line: str) -> Callable[[Path], Path]:
    """A writer of a line for each row, with what is known of the row in the places of its $names."""

    def made(folder: Path) -> Path:
        text = ""
        for row in PARTS:
            last = LAST[row.part == row.parts - 1]
            text += Template(line.lstrip()).substitute(vars(row), uuid=f"{row.index:032x}", last=last)
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    return made


def slime_lines(name: str, first_id: int, **more: Any) -> Callable[[Path], Path]:
    """Siblings share an id of their rollout, counted from this one; whole rollouts have none."""
    ids = [first_id + row.index if row.is_split else None for row in PARTS]
    samples = [{**slime_sample(row, one), **more} for row, one in zip(PARTS, ids, strict=True)]
    return lambda folder: write(folder / name, samples)


def episodes(folder: Path) -> Path:
    """Of prime-rl: an episode in each line, with a trace for each agent that took part; here they share the reward."""
    made: dict[int, dict[str, Any]] = {}
    for row in PARTS:
        episode = json.loads(Template(EPISODE).substitute(vars(row)))
        trace = json.loads(Template(TRACE).substitute(vars(row)))
        made.setdefault(row.index, episode)["traces"].append(trace)
    return write(folder / "rollouts/step_1/train/all/traces.jsonl", [*made.values()])


def slime_dump(folder: Path) -> Path:
    """What --save-debug-rollout-data writes: rollout_id at the top is the training step."""
    dump = {"rollout_id": 3, "samples": [slime_sample(row, row.index) for row in PARTS]}
    path = folder / "3.pt"
    path.write_bytes(torch_zip(pickle.dumps(dump, protocol=2)))
    return path


PARTS = [*parts()]
LAST = ("false", "true")
EPISODE = """
{"id": "e$index", "group": {"id": "g$group"}, "run": {"type": "train", "work": {"step": 1}}, "task": {"type": "t", "key": "k"}, "traces": []}
"""
TRACE = """
{"id": "t$index.$part", "agent": {"name": "agent", "trainable": true}, "nodes": [], "metrics": {}, "info": {},
 "rewards": {"correct": {"score": $reward, "weight": 1.0}}, "errors": [], "ok": true}
"""
# A writer for each dump, built as its tool writes it.
FAN_OUTS: dict[str, Callable[[Path], Path]] = {
    # Siblings share the index of the sample that they were made of.
    "slime": slime_lines("slime.jsonl", 0),
    "slime dump": slime_dump,
    # Copies of a sample keep its index, and have new ids of their own numbering.
    "miles": slime_lines("miles.jsonl", 1000, adapter=None),
    # Rows are sorted by {prompt}_{session}_{output}; each output has the score of the last.
    "verl v1": of_rows("5.jsonl", """
{"input": "p$group turn $part", "output": "o", "gts": "4", "score": $reward, "step": 5, "uid": "6f1d$group-4c_${rollout}_$part"}
"""),
    # A run of a workflow with several steps; the reward of the run is propagated to each.
    "Trinity": of_rows("experiences.jsonl", """
{"eid": {"batch": 2, "task": $group, "run": $rollout, "step": $part, "suffix": "a"}, "reward": $reward, \
"prompt_text": "p$group step $part", "response_text": "r", "response_length": 3}
"""),
    # A trace of a rollout in each row; ids that were given before it was dispatched.
    "NeMo Gym": of_rows("gym.jsonl", """
{"responses_create_params": {"input": [{"role": "user", "content": "p$group"}]}, "response": {"id": "$index.$part"}, "reward": $reward, \
"_ng_task_index": $group, "_ng_rollout_index": $rollout, "_ng_rollout_id": "step7-$index"}
"""),
    "prime-rl": episodes,
    "eval-protocol": of_rows("logs.jsonl", """
{"messages": [{"role": "user", "content": "p$group"}], "input_metadata": {"row_id": "r$group"}, "created_at": "2026-01-01", \
"rollout_status": {}, "execution_metadata": {"rollout_id": "${index}-b"}, "evaluation_result": {"score": $reward, "is_score_valid": true}}
"""),
    # Rows of a conversation that was forked where its tokens drifted; every one has its own uuid for rollout_id.
    "TRL async": of_rows("training_sequences.jsonl", """
{"group_id": $group, "rollout_id": "$uuid", "reward": $reward, "model_version": 3, "input_ids": [1, $part]}
"""),
    # A row for each step of an episode, whose id is {task}:{number}; the reward is that of the trajectory.
    "rLLM steps": of_rows("steps.jsonl", """
{"task_id": "task$group", "episode_id": "task$group:$rollout", "turn": $part, "reward": $reward}
"""),
    # Step-wise samples: a TrajectoryID is {instance}_{repetition}, the reward is that of the trajectory.
    "SkyRL steps": of_rows("steps.jsonl", """
{"uid": "i$group", "trajectory_id": "i${group}_$rollout", "is_last_step": $last, "reward": $reward}
"""),
    # Requests of agent sessions, as a gateway logs them: a row for each, numbered in its group.
    "sessions": of_rows("requests.jsonl", """
{"prompt_id": $group, "session_id": $rollout, "request": $part, "score": $reward}
"""),
}  # fmt: skip
slime_compact, miles, trl_async = (FAN_OUTS[name] for name in ("slime", "miles", "TRL async"))

KNOWN = ["slime", "slime dump", "miles", "verl v1", "Trinity", "NeMo Gym", "prime-rl", "eval-protocol"]
UNKNOWN = sorted({*FAN_OUTS} - {*KNOWN})
IDS = {"TRL async": "rollout_id", "rLLM steps": "episode_id", "SkyRL steps": "trajectory_id", "sessions": "session_id"}


def by_hand(rewards: Sequence[float]) -> list[float]:
    """GRPO of a group: (r - mean) / (std + epsilon), ddof 1."""
    mean = fmean(rewards)
    sd = stdev(rewards) + 1e-6
    return [(reward - mean) / sd for reward in rewards]


OF_ROLLOUTS: list[float] = []
EACH: list[float] = []  # the advantages of all these files if every row counts
for _group in range(GROUPS):
    _rows = [row for row in PARTS if row.group == _group]
    EACH += by_hand([row.reward for row in _rows])
    OF_ROLLOUTS += by_hand([row.reward for row in _rows if row.part == 0])
ONCE = [OF_ROLLOUTS[row.index] for row in PARTS]  # and if each rollout counts once


@pytest.fixture
def compact(tmp_path: Path) -> Path:
    return slime_compact(tmp_path)


def advantages(path: Path, **options: Any) -> list[float]:
    return look(path, **options).scored.frame[".advantage"].to_list()


# --- files of known tools ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOWN)
def test_each_rollout_of_a_known_tool_counts_once_or_the_preset_says_that_its_rows_count(
    name: str, tmp_path: Path
) -> None:
    path = FAN_OUTS[name](tmp_path)
    found = look(path)
    facts = found.facts
    assert found.scored.frame[".advantage"].to_list() == near(ONCE)
    assert facts["rollouts"] == GROUPS * ROLLOUTS
    assert facts["rows"] == ROWS
    assert facts["unit"] == "rollout"
    assert facts["group_sizes"]["counts"] == {str(ROLLOUTS): GROUPS}
    assert [note for note in facts["notes"] if note.endswith(": 24 rollouts in 34 rows")]
    assert facts["warnings"] == []
    of_rows = look(path, preset="slime-grpo")
    (warning,) = of_rows.facts["warnings"]
    assert of_rows.scored.frame[".advantage"].to_list() == near(EACH)
    assert "24 rollouts in 34 rows" in warning
    assert "counts every row: --rollout-reward last counts each rollout once" in warning
    assert of_rows.facts["rollouts"] == 24
    assert of_rows.facts["unit"] == "row"
    assert advantages(path, preset="slime-grpo", rollout_reward="last") == near(ONCE)


@pytest.mark.parametrize("name", [name for name, row in presets().items() if row.rollouts in {"once", "last"}])
def test_a_preset_whose_tool_counts_rollouts_does_so(name: str, compact: Path) -> None:
    found = look(compact, preset=name)
    values = found.scored.frame[".advantage"].to_list()
    rows = pl.DataFrame(PARTS)
    alone = rows.filter(pl.col("part") == 0)
    of_rollouts = alone.select("index", wanted=grpo_cli.advantages(alone, group="group", preset=name))
    if "batch" not in name and "plus-plus" not in name:  # whitening counts rows
        wanted = rows.join(of_rollouts, on="index", maintain_order="left")["wanted"]
        assert values == near(wanted.to_list())
    assert found.facts["unit"] == "rollout"
    assert found.facts["warnings"] == []


def test_slime_itself_takes_the_whole_batch_of_rows(compact: Path) -> None:
    rewards = [row.reward for row in PARTS]
    assert advantages(compact, preset="slime-grpo-unequal") == near(by_hand(rewards))


def test_a_sample_without_a_rollout_id_is_known_by_its_index(tmp_path: Path) -> None:
    rows = pl.DataFrame(rows_of(miles(tmp_path))[:4]).with_columns(rollout_id=None)
    indexed = rows.with_columns(index=pl.Series([0, 0, 1, 2]))
    assert look(write("a.jsonl", indexed.to_dicts())).facts["rollouts"] == 3
    unknown = rows.with_columns(index=None)
    assert look(write("b.jsonl", unknown.to_dicts())).facts["rollouts"] == 4


def test_ids_that_restart_in_every_group_or_file_are_no_reason_to_merge(compact: Path) -> None:
    rows = [row for row in rows_of(compact) if row["rollout_id"] is None]
    for row in rows:
        row["rollout_id"] = row["index"] % ROLLOUTS
    assert look(write("a.jsonl", rows)).facts["unit"] == "row"


@pytest.mark.parametrize("steps", [[7], [7, 8]])
def test_a_training_step_that_older_dumps_give_every_sample_is_no_rollout(steps: list[int], tmp_path: Path) -> None:
    """Samples had no rollout_id of their own, so each of their rows has that of the dump."""
    for step in steps:
        samples = [slime_sample(row, step) for row in parts() if row.part == 0]
        write(f"{step}.jsonl", samples)
    facts = inspected(tmp_path, group_within="file").facts
    assert facts.summary.rows == 24 * len(steps)
    assert facts.summary.rollouts == 24 * len(steps)
    assert facts.summary.groups == 6 * len(steps)
    assert not facts.summary.warnings


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_ordinary_files_of_every_tool_count_rows_without_a_word(name: str, tmp_path: Path) -> None:
    written = WRITERS[name](tmp_path)
    facts = look(written.path, **written.flags).facts
    assert facts["unit"] == "row"
    assert facts["rollouts"] == facts["rows"]
    said = " ".join([*facts["warnings"], *facts["notes"]])
    for words in ("rollouts by", "share a", "count like all others"):
        assert words not in said


# --- unequal rewards -----------------------------------------------------------------------------------------


@pytest.fixture
def unequal(compact: Path) -> Path:
    rows = rows_of(compact)
    for row in rows:
        if row["response"].endswith(".2"):
            row["reward"] = 0.25
    return write("unequal.jsonl", rows)


def test_rows_of_one_rollout_with_unequal_rewards_stop_the_run(unequal: Path) -> None:
    message = refused(unequal)
    assert message.startswith("5 rollouts have rows with unequal rewards (rollout_id, else index): ")
    assert message.count("unequal.jsonl:") == 3
    assert ", 0.25; " in message
    assert "--rollout-reward last, first or mean" in message
    assert "5 rollouts have rows with unequal rewards" in refused(unequal, rollout="rollout_id")
    assert "5 rollouts have rows with unequal rewards" in refused(unequal, preset="miles-grpo")


def test_what_says_which_of_unequal_rewards_counts_is_enough(unequal: Path) -> None:
    first = look(unequal, rollout_reward="first").scored.frame[".advantage"].to_list()
    assert first == near(ONCE)
    assert look(unequal, rollout_reward="mean").facts["unit"] == "rollout"
    assert look(unequal, preset="verl-grpo").facts["unit"] == "rollout"
    assert look(unequal, preset="miles-grpo", rollout_reward="last").facts["unit"] == "rollout"
    for found in (look(unequal, rollout="none"), look(unequal, rollout_reward="each")):
        assert found.facts["unit"] == "row"
        assert found.facts["warnings"] == []


def test_rewards_in_different_rows_of_a_rollout_stop_the_run() -> None:
    given = {"rollout": "trajectory_id", "reward": ["acc", "fmt"]}

    def rows(first: str, second: str) -> Path:
        path = Path("a.csv")
        path.write_text(f"prompt_id,trajectory_id,acc,fmt\np,x,{first}\np,x,{second}\np,y,{first}\np,y,{second}\n")
        return path

    assert refused(rows("1,", ",0"), **given).startswith("2 rollouts have rows with unequal rewards")
    assert refused(rows("1,1", ",1"), **given).startswith("2 rollouts have rows with unequal rewards")
    assert look(rows(",1", "0,1"), **given).facts["reward"]["mean"] == 1
    assert look(rows(",1", ",1"), **given).facts["reward"]["mean"] == 1
    assert look(rows("0,1", ","), **given).facts["reward"]["mean"] == 1


def test_a_missing_reward_is_not_an_unequal_one(compact: Path) -> None:
    rows = rows_of(compact)
    for row in rows:
        if row["response"].endswith((".1", ".2")):
            row["reward"] = None
    path = write("a.jsonl", rows)
    found = look(path).scored.frame[".advantage"]
    assert found.to_list() == near(ONCE)


def test_rows_cannot_be_rollouts_and_parts_of_them() -> None:
    with pytest.raises(UsageError, match="rollout none says that rows are rollouts"):
        grpo_cli.compute(frame([0.0, 1.0]), rollout="none", rollout_reward="mean")


# --- files without a schema ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_column_that_is_called_like_an_id_stops_a_run_that_would_count_parts(name: str, tmp_path: Path) -> None:
    path = FAN_OUTS[name](tmp_path)
    column = IDS[name]
    said = f"24 rollouts in 34 rows, if {column} is what its name says"
    with pytest.raises(DataError, match=said) as raised:
        look(path)
    assert raised.value.hint == f"--rollout {column} counts each rollout once; --rollout none treats rows as rollouts"
    with pytest.raises(DataError, match="24 rollouts in 34 rows"):
        inspected(path)
    assert advantages(path, rollout=column) == near(ONCE)
    rows = look(path, rollout="none")
    assert rows.scored.frame[".advantage"].to_list() == near(EACH)
    assert rows.facts["warnings"] == []
    of_rows = look(path, preset="slime-grpo")  # whose tool counts them
    assert of_rows.scored.frame[".advantage"].to_list() == near(EACH)
    (warning,) = of_rows.facts["warnings"]
    assert warning.startswith(f"several rows of a group share one {column}: --rollout {column} counts")


def table(rewards: str, **columns: Sequence[Any]) -> Path:
    """Two groups of four rows."""
    groups = pl.DataFrame({"prompt_id": [*"aaaabbbb"], "reward": [*map(float, rewards)], **columns}, strict=False)
    groups.write_ndjson("t.jsonl")
    return Path("t.jsonl")


UNEVEN = "01100101"


@pytest.mark.parametrize("column", ["trajectory_id", "traj_id", "episode_id", "session_id"])
def test_ids_that_repeat_with_several_rewards_are_warned_about(column: str) -> None:
    (warning,) = look(table(UNEVEN, **{column: [0, 0, 1, 1, 2, 2, 3, 3]})).facts["warnings"]
    assert warning.startswith(f"several rows of a group share one {column}: --rollout {column} counts")
    for ids in ("abcdefgh", "abcdabcd", "aaaabbbb", "aaaaaaaa", [None] * 8):
        assert look(table(UNEVEN, **{column: [*ids]})).facts["warnings"] == []


def test_constant_groups_do_not_show_that_rows_are_parts() -> None:
    path = table("11110000", episode_id=[0, 0, 1, 1, 2, 2, 3, 3])
    assert len(look(path).facts["warnings"]) == 2  # beside that of groups without a gradient


@pytest.mark.parametrize("values", ["77777777", "77778888", "00110011", "01234567", "00001111"])
def test_a_rollout_id_that_may_be_a_step_or_a_number_says_nothing(values: str) -> None:
    path = table("00111100", rollout_id=[*map(int, values)])
    assert look(path).facts["warnings"] == []


@pytest.mark.parametrize("column", ["sample_uid", "sample_id", "uuid"])
def test_ids_that_are_not_of_rollouts_are_no_reason_to_ask(column: str) -> None:
    path = table("00111100", **{column: [0, 0, 1, 1, 2, 2, 3, 3]})
    warnings = " ".join(look(path).facts["warnings"])
    assert ("4 rows repeat a sample_id inside their group" in warnings) is (column == "sample_id")
    assert "--rollout" not in warnings


TURN_IDS = ["rollout", "trajectory", "episode", "attempt", "conv_id", "sample_idx", "rollout_id"]


@pytest.mark.parametrize(("column", "turn"), paired(TURN_IDS, ["turn", "turn_idx", "step_id"]))
def test_a_number_that_rises_inside_of_any_id_shows_turns_of_rollouts(column: str, turn: str) -> None:
    columns = {column: [0, 0, 1, 1] * 2, turn: [0, 1] * 4}
    path = table("00110011", **columns)
    said = refused(path)
    assert said.startswith(f"4 rollouts in 8 rows, if {column} is what its name says")
    assert f"--rollout {column}" in said
    assert look(path, rollout=column).facts["group_sizes"]["counts"] == {"2": 2}
    assert look(path, rollout="none").facts["rollouts"] == 8
    (warning, *_) = look(table(UNEVEN, **columns)).facts["warnings"]
    assert warning.startswith(f"several rows of a group share one {column}: ")


NO_TURNS = """
[0, 0, 0, 0, 0, 0, 0, 0]
[1, 0, 1, 0, 1, 0, 1, 0]
[0, 1, 1, 2, 0, 1, 1, 2]
[null, 0, null, 0, null, 0, null, 0]
[0, 1, 0, 1, 0, 1, 0, null]
["x", "y", "x", "y", "x", "y", "x", "y"]
"""


@pytest.mark.parametrize(("column", "numbers"), paired(TURN_IDS, NO_TURNS.strip().splitlines()))
def test_numbers_that_do_not_rise_from_one_start_are_no_turns(column: str, numbers: str) -> None:
    path = table("00110011", **{column: [0, 0, 1, 1] * 2, "turn": json.loads(numbers)})
    assert "--rollout" not in " ".join(look(path).facts["warnings"])


# --- the other commands ------------------------------------------------------------------------------------------


def test_inspect_shows_rollouts_and_not_rows(compact: Path) -> None:
    found = inspected(compact).facts
    assert found.summary.rollouts == 24
    assert found.summary.rows == 34
    assert found.summary.unit == "rollout"
    assert found.summary.group_sizes.counts == {"4": 6}
    assert found.summary.reward.count == 24
    alone = {row.index: row.reward for row in PARTS}
    assert found.summary.reward.mean == pytest.approx(sum(alone.values()) / 24)


def test_select_keeps_whole_rollouts(compact: Path) -> None:
    facts = selected(compact, per_group=2, output="kept.jsonl")
    kept = rows_of("kept.jsonl")
    assert facts["rollouts"] == 24
    assert facts["kept_rollouts"] == 12
    assert facts["kept_rows"] == len(kept)
    whole = rows_of(compact)
    indices = {row["index"] for row in kept}
    assert kept == [row for row in whole if row["index"] in indices]
    assert selected(compact, where="size == 4 and unscorable == 0", output="all.jsonl")["kept_groups"] == 6


def test_pairs_are_of_rollouts_and_weights_of_all_their_rows(compact: Path) -> None:
    facts = facts_of(f"export {compact} --to pairs -o pairs.jsonl")
    last = {f"r{row.index}.{row.part}" for row in PARTS if row.part == row.parts - 1}
    pairs = rows_of("pairs.jsonl")
    assert pairs
    for pair in pairs:
        assert {pair["chosen"], pair["rejected"]} <= last
    assert {"reason": "not the row that represents its rollout", "rows": 10} in facts["dropped"]
    facts_of(f"export {compact} --to weights -o weights.jsonl")
    weights = rows_of("weights.jsonl")
    assert [row["advantage"] for row in weights] == near(ONCE)
    assert [row["reward"] for row in weights] == [row.reward for row in PARTS]
    facts_of(f"export {compact} --to prompts -o prompts.jsonl")
    assert [prompt["n"] for prompt in rows_of("prompts.jsonl")] == [ROLLOUTS] * GROUPS


def test_tasks_on_ray_count_as_one_process_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray_runs.without_ray(monkeypatch)
    source = Path("in")
    source.mkdir()
    slime_compact(source)
    assert ray_runs.both(tmp_path, source, rows=8)["rollouts"] == 24


def test_compare_counts_for_each_plan_as_its_tool_does(compact: Path) -> None:
    inputs = [str(compact)]
    slime = presets()["slime-grpo"].plan

    def changes(unit: Any) -> int:
        plans = {"grpo": Contender(Plan.of({}), "once"), "slime-grpo": Contender(slime, unit)}
        return compare(Compare(inputs=inputs, plans=plans)).differences[0].changed

    assert changes("each") > 0
    assert changes("once") == 0


def test_python_counts_rollouts_and_a_plan_that_is_given_stays_as_it_is(tmp_path: Path) -> None:
    path = trl_async(tmp_path)
    frame = pl.DataFrame(rows_of(path))
    with pytest.raises(
        DataError, match=r"24 rollouts in 34 rows.*rollout rollout_id counts each rollout once; rollout none"
    ):
        grpo_cli.advantages(frame)
    result = grpo_cli.compute(frame, rollout="rollout_id")
    assert result.advantages.to_list() == near(ONCE)
    assert result.groups["size"].to_list() == [4] * 6
    assert result.plan.unit.take == "last"
    assert grpo_cli.advantages(frame, Plan()).to_list() == near(EACH)
    assert grpo_cli.inspect(frame, rollout="rollout_id").facts["rollouts"] == 24
    assert grpo_cli.select(frame, rollout="rollout_id", per_group=1).facts["kept_rollouts"] == 6


# --- audit -----------------------------------------------------------------------------------------------------


def logged(path: Path, preset: str) -> Any:
    """The audit of a slime dump with the advantages of this preset."""
    compute(path, output="logged.jsonl", preset=preset)
    return document(audit(Audit(inputs=["logged.jsonl"])))


def test_an_audit_knows_a_log_that_counts_rollouts(compact: Path) -> None:
    facts = logged(compact, preset="miles-grpo")
    assert facts["match"]["preset_names"][0] == "slime-grpo-rollouts"
    assert facts["causes"] == []
    assert facts["match"]["plan"]["unit"]["take"] == "last"


def test_an_audit_names_a_log_that_counts_every_fragment(compact: Path) -> None:
    facts = logged(compact, preset="slime-grpo")
    assert facts["match"]["preset_names"][0] == "slime-grpo"
    (cause,) = facts["causes"]
    assert cause["cause"] == "counted per fragment"
    assert cause["groups"] == 4


def test_groups_that_count_fragments_are_named_among_others_that_do_not(compact: Path) -> None:
    rows = rows_of(compact)
    for row, part, of_rollout, of_row in zip(rows, PARTS, ONCE, EACH, strict=True):
        row["advantage"] = of_row if part.group == 0 else of_rollout
    path = write("mixed.jsonl", rows)
    facts = document(audit(Audit(inputs=[str(path)], binding=Binding(group=("group_index",)))))
    (cause,) = facts["causes"]
    assert cause["cause"] == "counted per fragment"
    assert cause["groups"] == 1


# --- turns in the order of their numbers ------------------------------------------------------------------------

TURNS: Any = {"rollout": "run", "state_column": "turn", "step_reward_column": "own", "group": "id"}


def turns(*numbers: Any) -> pl.DataFrame:
    """The turns of two rollouts, one after the other."""
    count = len(numbers)
    runs = [0] * count + [1] * count
    return pl.DataFrame({"id": "p", "run": runs, "turn": [*numbers, *numbers], "own": 1.0, "reward": runs})


@pytest.mark.parametrize("numbers", [(1, 2, 10), ("1", "2", "10"), ("search", "answer"), (0.5, 1.5)])
def test_turns_that_rise_or_have_names_are_accepted(numbers: tuple[Any, ...]) -> None:
    assert len(grpo_cli.compute(turns(*numbers), method="mt-grpo", **TURNS).advantages) == 2 * len(numbers)


@pytest.mark.parametrize(("suffix", "numbers"), [("jsonl", [1, "answer"]), ("parquet", [b"a", b"b"]), ("csv", [1, 2])])
def test_turns_of_any_type_are_read(suffix: str, numbers: list[Any]) -> None:
    table = pl.read_csv(b"uid,trajectory_id,reward,advantage\np,0,0.0,-0.5\np,0,0.0,-0.5\np,1,1.0,0.5\np,1,1.0,0.5\n")
    turns = pl.Series("turn", numbers * 2, strict=False)
    logged = table.with_columns(turns)
    path = write(f"a.{suffix}", logged.to_dicts())
    assert "2 rollouts in 4 rows" in refused(path, column="mine")
    with pytest.raises(DataError, match="2 rollouts in 4 rows"):
        audit(Audit(inputs=[str(path)]))
    given = {"rollout": "trajectory_id", "state_column": "turn", "step_reward_column": "reward", "method": "mt-grpo"}
    assert look(path, column="mine", **given).facts["rollouts"] == 2


def test_turns_of_several_rollouts_may_alternate() -> None:
    frame = turns(1, 2, 3)
    mixed = frame[[0, 3, 1, 4, 5, 2]]
    expected = grpo_cli.compute(frame, method="mt-grpo", **TURNS).advantages.gather([0, 3, 1, 4, 5, 2])
    assert grpo_cli.compute(mixed, method="mt-grpo", **TURNS).advantages.to_list() == expected.to_list()


@pytest.mark.parametrize(
    ("numbers", "said"),
    [([1, 3, 2], "turn is 2 after 3"), (["1", "10", "9"], "turn is 9 after 10"), ([1, 1], "turn is 1 after 1")],
)
def test_numbered_turns_out_of_order_are_refused(numbers: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=f"{said} of the same rollout .2 such rows.*sort the rows"):
        grpo_cli.compute(turns(*numbers), method="mt-grpo", **TURNS)
    grpo_cli.compute(turns(*numbers), method="gigpo", **TURNS)  # there a state may come back
