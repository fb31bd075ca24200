"""Rows that their tool does not count like others: what each command makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest

import grpo_cli
from tests.support.command import adv
from tests.support.jobs import write

NO = None
WIN, LOSS = 0.8660239037870368, -0.8660239037870368  # of 1, 0, 0, 1 with std 0.5774 + 1e-6


def slime(**of_the_third: Any) -> list[Any]:
    """Samples of one group with the rewards 1, 0, 0, 1."""
    rows = [
        {"group_index": 0, "index": i, "prompt": "p", "response": f"answer {i}", "response_length": 2, "label": "",
         "reward": reward, "status": "completed", "remove_sample": False}
        for i, reward in enumerate([1, 0, 0, 1])
    ]  # fmt: skip
    rows[2] |= of_the_third
    return rows


def trace(score: float | None, *, ok: bool = True, trainable: bool = True) -> Any:
    rewards = {} if score is None else {"correct": {"score": score, "weight": 1.0}}
    return {"rewards": rewards, "ok": ok, "agent": {"name": "a", "trainable": trainable}, "nodes": [], "info": {}}


def episode(group: str, *traces: Any) -> Any:
    return {"group": {"id": group}, "task": {"key": group}, "run": {"work": {"step": 1}}, "traces": list(traces)}


def advantages(file: Path, options: str = "") -> list[float | None]:
    """The advantages that `compute` gives; of traces, those of each episode in turn."""
    done = adv(f"compute {file} -o - --quiet {options}")
    assert done.status == 0, done.err
    rows = [of for row in done.rows for of in row.get("traces", [row])]
    return [row["advantage"] for row in rows]


def inspected(file: Path) -> Any:
    done = adv(f"inspect {file} --json")
    assert done.status == 0, done.err
    return json.loads(done.out)


# --- what the trainers give ------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["slime-grpo", "miles-grpo"])
def test_a_sample_that_slime_removes_from_the_loss_counts_in_its_group(preset: str) -> None:
    file = write("samples.jsonl", slime(remove_sample=True))
    assert advantages(file, f"--preset {preset}") == [WIN, LOSS, LOSS, WIN]
    done = adv(f"compute {file} -o - --facts --preset {preset}")
    assert [row["advantage_status"] for row in done.rows] == ["scored", "scored", "masked", "scored"]
    assert "1 masked: not trained on, the rewards count (remove_sample is true" in " ".join(done.err.split())


def test_slime_does_not_look_at_the_status_of_a_sample() -> None:
    file = write("samples.jsonl", slime(status="failed"))
    assert advantages(file, "--preset slime-grpo") == [WIN, LOSS, LOSS, WIN]


def test_an_errored_trace_leaves_before_the_mean_of_prime_rl() -> None:
    traces = [trace(1.0), trace(0.0), trace(1.0, ok=False), trace(1.0)]
    file = write("traces.jsonl", [episode("g", one) for one in traces])
    assert advantages(file, "--preset prime-rl-grpo") == pytest.approx([1 / 3, -2 / 3, NO, 1 / 3])
    assert advantages(file, "-m rloo --missing propagate") == pytest.approx([0.5, -1.0, NO, 0.5])


def test_a_judge_beside_the_solver_is_no_rollout() -> None:
    rewards = [1.0, 0.0, 1.0, 1.0]
    file = write("traces.jsonl", [episode("g", trace(r), trace(NO, trainable=False)) for r in rewards])
    assert advantages(file, "--preset prime-rl-grpo") == [0.25, NO, -0.75, NO, 0.25, NO, 0.25, NO]
    facts = inspected(file)
    assert facts["rows"] == 4
    assert facts["group_sizes"]["max"] == 4
    assert facts["unscorable"] == 0
    assert facts["marks"] == [{"kind": "foreign", "mark": "agent.trainable is false", "reason": "", "rows": 4}]


def test_a_rubric_of_verifiers_scores_every_state() -> None:
    rows: list[Any] = [
        {"example_id": 0, "prompt": [], "completion": [], "task": "t", "reward": r, "error": error}
        for r, error in [(1.0, NO), (0.0, {"error": "TimeoutError"})]
    ]
    file = write("results.jsonl", rows)
    assert advantages(file, "--preset verifiers-rubric-grpo") == [0.5, -0.5]


def test_a_failed_rollout_of_nemo_gym_is_masked_and_named() -> None:
    rows = [
        {
            "_ng_task_index": 0,
            "_ng_rollout_index": i,
            "reward": r,
            "mask_sample": kind is not None,
            "failure_kind": kind,
        }
        for i, (r, kind) in enumerate([(1.0, NO), (0.0, "timeout"), (0.0, "oom"), (0.0, "timeout")])
    ]
    file = write("rollouts.jsonl", rows)
    facts = inspected(file)
    assert facts["masked"] == 3
    assert facts["unscorable"] == 0
    assert [(line["reason"], line["rows"]) for line in facts["marks"]] == [("timeout", 2), ("oom", 1)]
    assert (
        "75% of the rows are masked (mask_sample is true: timeout 2, oom 1). Their rewards count. "
        "--masked-rows exclude leaves them out."
    ) in facts["verdicts"]
    assert advantages(file, "--masked-rows exclude") == [0.0, NO, NO, NO]


def test_a_flag_wins_over_the_preset_and_the_preset_over_the_schema() -> None:
    traces = [trace(1.0), trace(0.0), trace(1.0, ok=False), trace(0.0)]
    file = write("traces.jsonl", [episode("g", one) for one in traces])
    left_out = pytest.approx([2 / 3, -1 / 3, NO, -1 / 3])
    voting = [0.5, -0.5, 0.5, -0.5]
    plain = "-m grpo -s none"
    assert advantages(file, plain) == left_out  # prime-rl wrote it
    assert advantages(file, "--preset slime-grpo -s none") == voting  # slime looks at no status
    assert advantages(file, "--preset slime-grpo -s none --masked-rows exclude") == left_out
    assert advantages(file, f"{plain} --masked-rows vote") == voting


# --- plain tables ------------------------------------------------------------------------------------------------

TABLE = [
    {"prompt_id": "a", "reward": 1.0, "bad": "", "n": 2, "prompt": "p", "completion": "x"},
    {"prompt_id": "a", "reward": 0.0, "bad": "oom", "n": 2, "prompt": "p", "completion": "y"},
    {"prompt_id": "a", "reward": 0.0, "bad": "", "n": 2, "prompt": "p", "completion": "z"},
]


def test_a_column_says_which_rows_are_left_out_or_masked() -> None:
    file = write("in.jsonl", TABLE)
    assert advantages(file, "-m rloo --left-out-column bad") == [1.0, NO, -1.0]
    assert advantages(file, "-m rloo --masked-column bad=oom") == [1.0, -0.5, -0.5]
    assert advantages(file, "-m rloo --masked-column bad --masked-rows exclude") == [1.0, NO, -1.0]


def test_a_mark_that_nothing_reads_is_named_with_its_flags() -> None:
    rows = [{"prompt_id": "a", "reward": r, "sample_loss_mask": m} for r, m in [(1, 1), (0, 0), (0, 1)]]
    done = adv(f"compute {write('in.jsonl', rows)} -o -")
    assert "sample_loss_mask is 0 in 1 of 3 rows" in done.err
    assert "--masked-column sample_loss_mask=0" in done.err


def test_a_masked_row_has_zeros_on_its_tokens_and_is_in_no_data_to_train_on() -> None:
    file = write("in.jsonl", TABLE)
    flags = "--masked-column bad"
    done = adv(f"compute {file} -m rloo -o - --quiet {flags} --per-token --length-column n")
    assert [row["advantage"] for row in done.rows] == [[1.0, 1.0], [0.0, 0.0], [-0.5, -0.5]]
    tokens = adv(f"export {file} --to tokens -m rloo --length-column n -o - {flags}")
    assert [row["advantages"] for row in tokens.rows] == [[1.0, 1.0], [0.0, 0.0], [-0.5, -0.5]]
    of_sft = "--pick all-above --min-reward 0"
    for kind, more, names in (
        ("sft", of_sft, ["completion"]),
        ("pairs", "", ["chosen", "rejected"]),
        ("weights", "", ["completion"]),
    ):
        records = adv(f"export {file} --to {kind} -o - {flags} {more}").rows
        assert {row[name] for row in records for name in names} == {"x", "z"}


def test_select_keeps_marked_rows_with_their_group_and_never_picks_them() -> None:
    file = write("in.jsonl", TABLE)
    done = adv(f"select {file} --where 'size > 1' --masked-column bad -o -")
    assert len(done.rows) == 3
    assert "1 masked among them" in done.err
    picked = adv(f"select {file} --per-group 3 --masked-column bad -o -")
    assert [row["completion"] for row in picked.rows] == ["x", "z"]


def test_select_keeps_the_record_of_a_kept_trace_whole() -> None:
    records = [
        episode(g, trace(r), trace(NO, trainable=False)) for g, r in [("a", 1.0), ("a", 0.0), ("b", 0.0), ("b", 0.0)]
    ]
    file = write("traces.jsonl", records)
    done = adv(f"select {file} --where 'std > 0' -o -")
    assert done.rows == records[:2]


def test_audit_tries_marked_rows_both_ways_and_says_which_was_used() -> None:
    rewards = [1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 1]
    bad = [2, 7, 8]
    rows = [{"prompt_id": i // 4, "reward": r, "has_error": i in bad} for i, r in enumerate(rewards)]
    frame = pl.DataFrame(rows)
    said: dict[Literal["vote", "exclude"], str] = {
        "vote": "masked rows count in their groups",
        "exclude": "marked rows are left out",
    }
    for masked_rows, note in said.items():
        logged = grpo_cli.advantages(frame, masked_column="has_error", masked_rows=masked_rows, epsilon=1e-4)
        found = grpo_cli.audit(frame.with_columns(advantage=logged), masked_column="has_error")
        assert found["match"]["mismatched_rows"] == 0
        assert note in " ".join(found["notes"])


def test_a_mark_that_only_late_rows_have_is_found() -> None:
    rows: list[Any] = [
        {"_ng_task_index": i // 4, "_ng_rollout_index": i % 4, "reward": float(i % 2)} for i in range(40_000)
    ]
    rows[-1] |= {"_ng_failure_class": "judge_failed"}
    found = inspected(write("rollouts.jsonl", rows))
    assert found["left_out"] == 1
    assert found["marks"][0]["reason"] == "judge_failed"


def test_a_column_that_a_flag_names_is_masked_under_every_preset() -> None:
    rows = [{"prompt_id": "a", "reward": r, "m": m} for r, m in [(1.0, 0), (0.0, 1), (0.0, 0)]]
    file = write("in.jsonl", rows)
    preset = "--preset prime-rl-grpo --masked-column m"  # prime-rl itself leaves such rows out
    assert advantages(file, preset) == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert advantages(file, f"{preset} --masked-rows exclude") == pytest.approx([0.5, NO, -0.5])


def test_a_stream_of_judges_and_evaluations_alone_has_no_rollout() -> None:
    evaluated = {**trace(1.0), "info": {"kind": "eval"}}
    records = [episode("g", trace(NO, trainable=False)), episode("h", evaluated)]
    done = adv(f"inspect {write('run/stream.jsonl', records)}")
    assert done.status == 1
    assert (
        "stream.jsonl: no row is a rollout: agent.trainable is false in 1, info.kind is eval or grade in 1; "
        in done.err
    )


def test_audit_leaves_out_what_a_flag_leaves_out() -> None:
    frame = pl.DataFrame(
        {"prompt_id": [0] * 4 + [1] * 4, "reward": [1, 0, 0, 1, 0, 1, 1, 1], "bad": [0, 0, 1, 0, 0, 0, 0, 0]}
    )
    logged = grpo_cli.advantages(frame, left_out_column="bad", epsilon=1e-4)
    found = grpo_cli.audit(frame.with_columns(advantage=logged), left_out_column="bad")
    assert found["rows"] == 7
    assert found["match"]["mismatched_rows"] == 0
