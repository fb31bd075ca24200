"""One small file per schema, written as its tool writes it, with what a reader has to find in it.

`WRITERS` has an entry for every schema: it writes into a folder and gives the path, the rows, the sizes of the groups
in order of first appearance, and the rewards (None: unscorable).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from tests.support import harbor as harbor_files


@dataclass(frozen=True)
class Written:
    """A file and what is in it; `flags` are those that the tool's layout cannot do without."""

    path: Path
    sizes: Sequence[int]
    rewards: Sequence[float | None]
    flags: dict[str, Any] = field(default_factory=dict)


def lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def document(path: Path, value: Any, indent: int | None = None) -> Path:
    path.write_text(json.dumps(value, indent=indent), encoding="utf-8")
    return path


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def trl(folder: Path) -> Written:
    path = folder / "completions" / "completions_00007.parquet"
    path.parent.mkdir()
    accuracy, form = [1.0, 0.0, 1.0, 1.0], [0.5, 0.5, 0.0, float("nan")]
    frame = pl.DataFrame(
        {
            "step": [7] * 4, "prompt": ["<|user|>a"] * 2 + ["<|user|>b"] * 2, "completion": list("wxyz"),
            "accuracy_reward": accuracy, "format_reward": form, "advantage": [0.707007, -0.707007, 0.0, 0.0],
        }
    )  # fmt: skip
    frame.write_parquet(path)
    return Written(path, [2, 2], [1.5, 0.5, 1.0, 1.0], {"column": "mine"})


def trl_trackio(folder: Path) -> Written:
    rows = [
        {"run_name": run, "step": 7, "table": "completions", "prompt": p, "completion": c, "acc": float(c == "x"), "advantage": 0.0}
        for run in ("one", "two") for p in "ab" for c in "xy"
    ]  # fmt: skip
    return Written(lines(folder / "completions.jsonl", rows), [2] * 4, [1.0, 0.0] * 4, {"column": "mine"})


def ms_swift(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "step": [str(step)] * 4, "prompt": ["a", "a", "b", "b"], "completion": list("wxyz"),
            "Accuracy": [1.0, 0.0, 1.0, 1.0], "Format": [0.5, None, 0.25, 0.25], "advantages": [0.0] * 4,
        }
        for step in (1, 2)
    ]  # fmt: skip
    return Written(lines(folder / "completions.jsonl", rows), [2] * 4, [1.5, 0.0, 1.25, 1.25] * 2)


def ms_swift_megatron(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "gen_step": step,
            "prompt": ["a", "a"],
            "completion": ["x", "y"],
            "Accuracy": [1.0, 0.0],
            "advantages": [1, -1],
        }
        for step in (0, 1)
    ]
    return Written(lines(folder / "completions.jsonl", rows), [2, 2], [1.0, 0.0] * 2)


def ms_swift_ray(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"gen_step": s, "prompt": "a", "completion": c, "reward": r} for s in (0, 1) for c, r in (("x", 1), ("y", 0))
    ]
    return Written(lines(folder / "completions.jsonl", rows), [2, 2], [1.0, 0.0] * 2)


def verl(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"input": f"user\nq{p}", "output": str(k), "gts": "4", "score": [1, 0.5, "0.0"][k], "step": 12, "acc": "True"}
        for p in range(2)
        for k in range(3)
    ]
    return Written(lines(folder / "12.jsonl", rows), [3, 3], [1.0, 0.5, 0.0] * 2)


def verl_v1(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"input": "same", "output": str(k), "gts": None, "score": float(k), "step": 3, "uid": f"{p}_9_{k}_0"}
        for p in range(2)
        for k in range(2)
    ]
    return Written(lines(folder / "3.jsonl", rows), [2, 2], [0.0, 1.0] * 2)


def trinity(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"eid": {"batch": b, "task": t, "run": r, "step": 0, "suffix": "x"}, "reward": float(r), "response_length": 3}
        for b in (0, 1)
        for t in (0, 1)
        for r in (0, 1)
    ]
    return Written(lines(folder / "experiences.jsonl", rows), [2] * 4, [0.0, 1.0] * 4)


def nemo_rl(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "content": ["text"], "rewards": [float(i % 2)], "input_lengths": [5], "token_ids": [[1, 2]],
            "token_loss_mask": [[0, 1]], "sample_loss_mask": [0.0 if i == 7 else 1.0], "advantages": [[0.0, 0.5]],
            "generation_logprobs": [[0.0, -1.0]], "idx": i,
        }
        for i in range(8)
    ]  # fmt: skip
    path = lines(folder / "train_data_step5.jsonl", rows)
    return Written(path, [4, 4], [0.0, 1.0] * 3 + [0.0, None], {"group_size": 4})


def nemo_gym(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "responses_create_params": {},
            "response": {"usage": {}},
            "reward": r,
            "_ng_task_index": t,
            "_ng_rollout_index": k,
        }
        for k, r in ((0, 1.0), (1, 0.0))
        for t in range(3)
    ]
    return Written(lines(folder / "out.jsonl", rows), [2, 2, 2], [1.0] * 3 + [0.0] * 3)


def nemo_gym_no_index(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "responses_create_params": {"input": chat(f"q{t}"), "tools": []},
            "response": {"id": f"r{t}{k}"},
            "reward": r,
            "verifier_metadata": {},
        }
        for k, r in ((0, 1.0), (1, 0.0))
        for t in range(3)
    ]
    return Written(lines(folder / "example_rollouts.jsonl", rows), [2, 2, 2], [1.0] * 3 + [0.0] * 3)


def areal(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "task_id": 4, "sample_idx": k, "seqlen": 9, "prompt_len": 3, "head_version": 2, "tail_version": 2,
            "reward": float(k), "prompt": "p", "completion": "c",
        }
        for k in range(3)
    ]  # fmt: skip
    return Written(lines(folder / "rollout" / "2" / "4.jsonl", rows), [3], [0.0, 1.0, 2.0])


def skyrl(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"input_prompt": chat(p), "output_response": "o", "score": s, "stop_reason": "stop", "env_class": "gsm8k",
         "env_extras": {}, "data_source": "gsm8k"}
        for p, s in (("a", 1.0), ("a", [0.0, 0.0, 0.5]), ("b", [0.25]), ("b", 0))
    ]  # fmt: skip
    path = folder / "dumped_evals" / "global_step_20_evals" / "gsm8k.jsonl"
    return Written(lines(path, rows), [2, 2], [1.0, 0.5, 0.25, 0.0])


def prime_rl(folder: Path) -> Written:
    def episode(group: str, score: float | None, *, ok: bool = True) -> dict[str, Any]:
        rewards = {
            "correct": None if score is None else {"score": score, "weight": 2.0},
            "style": {"score": 1, "weight": 0.5},
        }
        trace = {"agent": "solver", "nodes": [], "rewards": rewards, "metrics": {}, "info": {}, "errors": [], "ok": ok}
        return {
            "group": {"id": group},
            "run": {"work": {"step": 1}},
            "task": {"type": "math", "key": "k"},
            "traces": [trace],
        }

    rows = [episode("g0", 1.0), episode("g0", 0.0), episode("g1", None), episode("g1", 1.0, ok=False)]
    path = folder / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl"
    return Written(lines(path, rows), [2, 2], [2.5, 0.5, 0.5, None])


def verifiers_traces(folder: Path) -> Written:
    rows = [verifiers_episode(task, f"{task}-{k}", float(k)) for task in ("a", "b") for k in (0, 1)]
    rows.append(verifiers_episode("a", "failed", 0.0, ok=False))
    return Written(lines(folder / "outputs" / "gsm8k" / "traces.jsonl", rows), [3, 2], [0.0, 1.0, 0.0, 1.0, None])


def verifiers_episode(task: str, trace: str, score: float, *, ok: bool = True, episode: str = "e") -> dict[str, Any]:
    """An episode as `append_trace` of verifiers (a60a606ec, verifiers/v1/cli/output.py) writes it: one trace, no group.

    Replay (verifiers/v1/cli/replay.py) gives it another id, keeps that of the trace, and sets new rewards.
    """
    kind = {"type": "GSM8KTask", "data": {"idx": 0, "prompt": task}, "key": task, "hash": task}
    rewards = {"correct": {"score": score, "weight": 1.0}}
    made = {
        "version": 1,
        "id": trace,
        "task": kind,
        "agent": {"name": "agent"},
        "nodes": [],
        "rewards": rewards,
        "ok": ok,
    }
    return {"id": f"{episode}-{trace}", "env": {"id": "gsm8k"}, "task": kind, "ok": ok, "errors": [], "traces": [made]}


def prime_rl_rollouts(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "example_id": e,
            "prompt": chat("q"),
            "completion": chat("c"),
            "reward": float(k),
            "error": None,
            "metrics": {},
        }
        for e in (0, 1)
        for k in (0, 1)
    ]
    return Written(lines(folder / "run" / "step_3" / "train_rollouts.jsonl", rows), [2, 2], [0.0, 1.0] * 2)


def prime_platform(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "run_id": "r", "step": 4, "tag": "", "problem_id": 9, "sample_id": i, "prompt": "[]", "completion": "[]",
            "env_name": "env", "task": "default", "info": "", "metrics": "{}", "timing": "{}",
            "reward": r, "advantage": r - (0.5 if i < 4 else 0.25),
        }
        for i, r in enumerate([1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    ]  # fmt: skip
    flags = {"column": "mine", "group_size": 4}
    return Written(lines(folder / "results.jsonl", rows), [4, 4], [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0], flags)


def verifiers(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"example_id": e, "prompt": chat("same"), "completion": chat("c"), "answer": "4", "reward": r, "error": error}
        for r, error in ((1.0, None), (0.0, None), (0.0, {"error": "TimeoutError"}))
        for e in (0, 1)
    ]
    path = folder / "outputs" / "evals" / "env--model" / "0a" / "results.jsonl"
    return Written(lines(path, rows), [3, 3], [1.0, 1.0, 0.0, 0.0, None, None])


def verifiers_id(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"id": e, "prompt": chat(""), "completion": [], "task": "default", "reward": float(k), "answer": "C"}
        for k in (0, 1)
        for e in (0, 1)
    ]
    return Written(lines(folder / "results.jsonl", rows), [2, 2], [0.0, 0.0, 1.0, 1.0])


def verifiers_prompt(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"prompt": chat(p), "completion": chat("c"), "answer": "a", "reward": r, "task": "default"}
        for p, r in (("x", 1.0), ("y", 0.0), ("x", 0.0), ("y", 0.0))
    ]
    return Written(lines(folder / "results.jsonl", rows), [2, 2], [1.0, 0.0, 0.0, 0.0])


def tinker(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "schema_version": 1, "split": "train", "iteration": i, "group_idx": g, "traj_idx": k, "tags": [],
            "total_reward": float(k), "final_reward": 0.0, "trajectory_metrics": {},
            "steps": [{"step_idx": 0, "ob_len": 4, "ac_len": 2 + k, "reward": float(k)}], "final_ob_len": 4,
        }
        for i in (0, 1)
        for g in (0, 1)
        for k in (0, 1)
    ]  # fmt: skip
    return Written(lines(folder / "iteration_000000" / "train_rollout_summaries.jsonl", rows), [2] * 4, [0.0, 1.0] * 4)


def slime(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "group_index": i // 3, "index": i, "prompt": "p", "response": "r", "response_length": 7, "label": "4",
            "reward": [1, 0.0, None, 1, 1, 0][i], "status": "aborted" if i == 3 else "completed", "remove_sample": i == 4,
        }
        for i in range(6)
    ]  # fmt: skip
    return Written(lines(folder / "samples.jsonl", rows), [3, 3], [1.0, 0.0, None, None, None, 0.0])


def roll(folder: Path) -> Written:
    row = {
        "global_step": [3] * 4, "id": ["p1", "p1", "p2", "p2"], "source": ["s"] * 4, "difficulty": [0.5] * 4,
        "prompt": ["a", "a", "b", "b"], "responses": list("wxyz"), "scores": [1.0, 0.0, 0.0, 0.0], "domain": ["math"] * 4,
    }  # fmt: skip
    return Written(lines(folder / "rollout_dump_data.step_3.jsonl", [row]), [2, 2], [1.0, 0.0, 0.0, 0.0])


def rllm(folder: Path) -> Written:
    top = folder / "episodes" / "train_step_1_epoch_0"
    top.mkdir(parents=True)
    for k in range(2):
        for task in ("ab", "cd"):
            steps = [{"observation": "o", "reward": 0.0}]
            episode = {
                "training_step": 1, "epoch": 0, "episode_id": f"{task}:{k}", "task": {}, "task_hash": task,
                "is_correct": bool(k), "termination_reason": "done", "metrics": {},
                "trajectories": [
                    {"name": "solver", "uid": f"u{k}", "reward": float(k), "num_steps": 1, "steps": steps},
                    {"name": "judge", "uid": f"v{k}", "reward": 0.5, "num_steps": 1, "steps": steps},
                ],
            }  # fmt: skip
            (top / f"episode_hash{task}_id{k}.json").write_text(json.dumps(episode, indent=2), encoding="utf-8")
    return Written(top, [2, 2, 2, 2], [0.0, 0.5, 1.0, 0.5, 0.0, 0.5, 1.0, 0.5])


def open_instruct(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "step": s, "sample_idx": i, "prompt_idx": i // 2, "prompt_tokens": [1], "response_tokens": [1] * (2 + i),
            "reward": float(i % 2), "advantage": 0.0, "finish_reason": "stop", "dataset": "gsm8k", "logprobs": [],
        }
        for s in (1, 2)
        for i in range(4)
    ]  # fmt: skip
    path = lines(folder / "run_rollouts_000000.jsonl", rows)
    return Written(path, [2] * 4, [0.0, 1.0] * 4, {"column": "mine"})


def lm_eval(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "doc_id": d, "doc": {}, "target": "4", "arguments": {}, "resps": [["x"]], "filtered_resps": ["x"],
            "filter": f, "metrics": ["exact_match"], "doc_hash": "h", "prompt_hash": "p", "target_hash": "t",
            "exact_match": r,
        }
        for d in (0, 1)
        for f, r in (("strict", 0.0), ("flexible", float("inf")))
    ]  # fmt: skip
    path = lines(folder / "samples_gsm8k_2025-01-01T00-00-00.jsonl", rows)
    return Written(path, [1] * 4, [0.0, None] * 2, {"singleton": "zero"})


def inspect(folder: Path) -> Written:
    letters = ["C", "I", "P", "C"]
    samples = [
        {"id": i // 2, "epoch": i % 2 + 1, "input": "q", "scores": {"match": {"value": letter, "answer": "x"}},
         "error": {"message": "boom"} if i == 3 else None}
        for i, letter in enumerate(letters)
    ]  # fmt: skip
    log = {"version": 2, "status": "success", "eval": {"task": "t"}, "plan": {}, "samples": samples}
    path = folder / "2025-01-01T00-00-00_task.json"
    path.write_text(json.dumps(log, indent=2), encoding="utf-8")
    return Written(path, [2, 2], [1.0, 0.0, 0.5, None])


def harbor(folder: Path) -> Written:
    top = harbor_files.job(folder / "jobs" / "2026-11-20__10-00-00", 6)
    rewards = [1.0, 0.0, None, 0.0, None, 1.0]
    for i, reward in enumerate(rewards):
        task = "sort-list" if i < 3 else "fix-build"
        harbor_files.trial(
            top, task, f"{i}-{task}__Ab{i}", None if reward is None else {"reward": reward},
            exception="EnvironmentStartTimeoutError" if i == 2 else None, steps=harbor_files.conversation(task, str(i)),
        )  # fmt: skip
    return Written(top, [3, 3], rewards)


def inspect_table(folder: Path) -> Written:
    path = folder / "samples.csv"
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["eval_id", "id", "epoch", "score_match", "error"])
        writer.writerows(
            [["e", "1", 1, "C", ""], ["e", "1", 2, "I", ""], ["e", "2", 1, "P", ""], ["e", "2", 2, "C", "x"]]
        )
    return Written(path, [2, 2], [1.0, 0.0, 0.5, None])


def eval_protocol(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "messages": chat("q"),
            "input_metadata": {"row_id": f"r{i // 3}"},
            "created_at": "2025-01-01",
            "rollout_status": {},
        }
        for i in range(6)
    ]
    for i, row in enumerate(rows[:5]):
        row["evaluation_result"] = {"score": float(i % 2), "is_score_valid": i != 4, "reason": "", "metrics": {}}
    return Written(lines(folder / "logs.jsonl", rows), [3, 3], [0.0, 1.0, 0.0, 1.0, None, None])


def openr1(folder: Path) -> Written:
    verdicts = [[True, False], None, [True, True, False]]
    rows: list[dict[str, Any]] = [
        {
            "problem": "p",
            "uuid": f"u{i}",
            "generations": ["g"] * 3,
            "correctness_math_verify": one,
            "correctness_llama": None,
        }
        for i, one in enumerate(verdicts)
    ]
    return Written(lines(folder / "train.jsonl", rows), [2, 3], [1.0, 0.0, 1.0, 1.0, 0.0])


def graded_completions(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "index": i,
            "prompt": "p",
            "completions": [{"raw": "x", "extracted": "4", "is_correct": k < i} for k in range(3)],
        }
        for i in (1, 2)
    ]
    return Written(lines(folder / "generated.jsonl", rows), [3, 3], [1.0, 0.0, 0.0, 1.0, 1.0, 0.0])


def wide(folder: Path) -> Written:
    frame = pl.DataFrame(
        {
            "prompt": ["a", "b", "c"],
            "completions": [["x", "y"], [], ["z", "w", "v"]],
            "rewards": [[1.0, 0.0], None, [0.5, 0.5, 1.0]],
        }
    )
    path = folder / "offline.parquet"
    frame.write_parquet(path)
    return Written(path, [2, 3], [1.0, 0.0, 0.5, 0.5, 1.0])


def atropos(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"tokens": [[1, 2], [3]], "masks": [[-100, 2], [3]], "scores": s, "ref_logprobs": None, "messages": ["m", "m"]}
        for s in ([0, 0.25], [1, 0])
    ]
    return Written(lines(folder / "objreward.jsonl", rows), [2, 2], [0.0, 0.25, 1.0, 0.0])


def atropos_trajectories(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {
            "request_id": f"q{i}",
            "prompt_used": "move",
            "llm_completion_raw": "{}",
            "parsed_action": {},
            "score": float(i),
        }
        for i in range(2)
    ]
    return Written(lines(folder / "trajectories.jsonl", rows), [2], [0.0, 1.0])


def human_eval(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"task_id": f"HumanEval/{t}", "completion": "return 1", "result": "passed" if p else "failed", "passed": p}
        for p in (True, False)
        for t in (0, 1)
    ]
    return Written(lines(folder / "samples.jsonl_results.jsonl", rows), [2, 2], [1.0, 1.0, 0.0, 0.0])


def tau_bench(folder: Path) -> Written:
    rows: list[dict[str, Any]] = [
        {"task_id": t, "reward": float(k == t), "info": {"reward_info": {"reward": 9}}, "traj": chat("x"), "trial": k}
        for k in range(2)
        for t in range(2)
    ]
    return Written(document(folder / "gpt-4o-airline.json", rows, 2), [2, 2], [1.0, 0.0, 0.0, 1.0])


def tau2(folder: Path) -> Written:
    simulations: list[dict[str, Any]] = [
        {"id": f"{task}{trial}", "task_id": task, "trial": trial, "reward_info": {"reward": r}, "messages": []}
        for trial, r in ((0, 1.0), (1, 0.0))
        for task in ("0", "1")
    ]
    path = document(folder / "results.json", {"info": {}, "tasks": [{"id": "0"}], "simulations": simulations}, 2)
    return Written(path, [2, 2], [1.0, 1.0, 0.0, 0.0])


def reasoning_gym(folder: Path) -> Written:
    results = [
        {
            "question": f"q{i}",
            "best_score": 1.0,
            "completions": [{"model_answer": "x", "score": s} for s in (0.25, 1.0)],
        }
        for i in range(2)
    ]
    path = document(folder / "time_intervals.json", {"name": "t", "results": results, "config": {"seed": 4}}, 2)
    return Written(path, [2, 2], [0.25, 1.0] * 2)


def math_rollouts(folder: Path) -> Written:
    frame = pl.DataFrame(
        {
            "model_id": ["m"] * 4, "unique_id": ["a", "a", "b", "b"], "branch_path": [""] * 4, "run_id": [0] * 4,
            "answer_matches": [True, False, True, True],
        }
    )  # fmt: skip
    path = folder / "rollouts.parquet"
    frame.write_parquet(path)
    return Written(path, [2, 2], [1.0, 0.0, 1.0, 1.0])


def evalplus(folder: Path) -> Written:
    verdicts = {"HumanEval/0": ["pass", "fail"], "HumanEval/1": ["timeout", "pass", "pass"]}
    tasks = {
        task: [{"task_id": task, "solution": "s", "base_status": "pass", "plus_status": one} for one in each]
        for task, each in verdicts.items()
    }
    path = document(folder / "samples_eval_results.json", {"date": "d", "hash": "h", "eval": tasks})
    return Written(path, [2, 3], [1.0, 0.0, 0.0, 1.0, 1.0], {"reward": ["plus_status"]})


def mt_bench(folder: Path) -> Written:
    rows = [
        {
            "question_id": 81 + i // 4, "model": "mn"[i % 2], "judge": ["gpt-4", "single-v1"], "user_prompt": f"p{i}",
            "judgment": "j", "score": -1 if i == 5 else float(i), "turn": 1 + i // 2 % 2, "tstamp": 1.5,
        }
        for i in range(8)
    ]  # fmt: skip
    rewards = [None if i == 5 else float(i) for i in range(8)]
    return Written(lines(folder / "gpt-4_single.jsonl", rows), [2, 2, 2, 2], rewards)


def livecodebench(folder: Path) -> Written:
    rows = [
        {
            "question_id": f"q{i}",
            "question_content": "p",
            "output_list": ["x", "y"],
            "code_list": ["a", "b"],
            "graded_list": one,
            "pass@1": 0.5,
        }
        for i, one in enumerate(([True, False], [False, False]))
    ]
    path = document(folder / "Scenario.codegeneration_10_0.2_eval_all.json", rows, 4)
    return Written(path, [2, 2], [1.0, 0.0, 0.0, 0.0])


def qwen_math(folder: Path) -> Written:
    rows = [
        {"idx": i, "question": "p", "gt": "1", "code": ["x", "y"], "pred": ["1", "2"], "score": one}
        for i, one in enumerate(([True, False], [True, True]))
    ]
    return Written(lines(folder / "test_qwen25-math-cot_-1_seed0.jsonl", rows), [2, 2], [1.0, 0.0, 1.0, 1.0])


def of_lists(texts: str, rewards: str) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        rows = [{"prompt": "a", texts: ["x", "y"], rewards: [0.5, 0.1]}, {"prompt": "a", texts: ["z"], rewards: [1.0]}]
        return Written(lines(folder / "data.jsonl", rows), [2, 1], [0.5, 0.1, 1.0])

    return write


def tree_of_thought(folder: Path) -> Written:
    rows = [
        {"steps": [{"step": 0}], "idx": 900 + i, "ys": ["a", "b"], "infos": [{"r": 1}, {"r": i}], "usage_so_far": {}}
        for i in range(2)
    ]
    path = document(folder / "gpt-4_0.7_propose1_value3_greedy5_start900_end1000.json", rows, 4)
    return Written(path, [2, 2], [1.0, 0.0, 1.0, 1.0])


WRITERS: dict[str, Callable[[Path], Written]] = {
    "trl": trl, "trl-trackio": trl_trackio, "ms-swift": ms_swift, "ms-swift-megatron": ms_swift_megatron, "ms-swift-ray": ms_swift_ray,
    "verl": verl, "verl-v1": verl_v1, "trinity": trinity, "nemo-rl": nemo_rl, "nemo-gym": nemo_gym,
    "nemo-gym-no-index": nemo_gym_no_index, "areal": areal,
    "skyrl": skyrl, "harbor": harbor, "prime-rl": prime_rl, "verifiers-traces": verifiers_traces, "prime-rl-rollouts": prime_rl_rollouts,
    "prime-platform": prime_platform,
    "verifiers": verifiers, "verifiers-id": verifiers_id, "verifiers-prompt": verifiers_prompt, "tinker": tinker,
    "slime": slime, "roll": roll, "rllm": rllm, "open-instruct": open_instruct, "lm-eval": lm_eval, "inspect": inspect,
    "inspect-table": inspect_table, "eval-protocol": eval_protocol, "openr1": openr1,
    "graded-completions": graded_completions, "wide": wide, "atropos": atropos,
    "atropos-trajectories": atropos_trajectories, "human-eval": human_eval, "tau2": tau2, "tau-bench": tau_bench,
    "evalplus": evalplus, "mt-bench": mt_bench, "livecodebench": livecodebench, "qwen-math": qwen_math,
    "rlhflow": of_lists("responses", "rewards"), "rlhflow-answers": of_lists("answers", "rewards"),
    "simpo": of_lists("all_generated_responses", "all_rm_scores"), "tree-of-thought": tree_of_thought,
    "reasoning-gym": reasoning_gym, "math-rollouts": math_rollouts,
}  # fmt: skip

# What is recognised only to be refused: a record of each.
REFUSED: dict[str, dict[str, Any]] = {
    "nemo-gym-profile": {"mean/reward": 0.5, "max/reward": 1.0, "std/reward": 0.5, "sample": {}},
    "polaris": {"problem": "p", "answer": "4", "difficulty": "7/8"},
    "big-math": {"problem": "p", "answer": "4", "source": "s", "domain": [], "llama8b_solve_rate": None},
    "intellect-2": {"prompt": "p", "verification_info": "{}", "solve_rate_qwen_r1_distill_7b": 0.5},
    "open-math-reasoning": {
        "problem": "p",
        "generated_solution": "s",
        "expected_answer": "4",
        "pass_rate_72b_tir": "n/a",
    },
    "verl-prompts": {"data_source": "d", "prompt": chat("q"), "ability": "math", "reward_model": {"ground_truth": "4"}},
}
