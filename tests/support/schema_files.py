"""One small file per schema, written as its tool writes it, with what a reader has to find in it.

`WRITERS` has an entry for every schema: it writes into a folder and gives the path, the rows, the sizes of the groups
in order of first appearance, and the rewards (None: no reward, or left out).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from tests.support import harbor as harbor_files
from tests.support import prime_runs

Sizes = Sequence[int]
Rewards = Sequence[float | None]


@dataclass(frozen=True)
class Written:
    """A file and what is in it; `flags` are those that the tool's layout cannot do without."""

    path: Path
    sizes: Sizes
    rewards: Rewards
    flags: dict[str, Any] = field(default_factory=dict)


Writer = Callable[[Path], Written]


lines = prime_runs.lines


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# --- writers of files: the name in the folder, the sizes of the groups, the rewards, what is in the file, the flags ------


def rows(name: str, sizes: Sizes, rewards: Rewards, content: Sequence[Any], **flags: Any) -> Writer:
    """A line of JSON for each row."""
    return lambda folder: Written(lines(folder / name, content), sizes, rewards, flags)


def document(
    name: str, sizes: Sizes, rewards: Rewards, content: Any, *, indent: int | None = 2, **flags: Any
) -> Writer:
    def write(folder: Path) -> Written:
        (folder / name).write_text(json.dumps(content, indent=indent), encoding="utf-8")
        return Written(folder / name, sizes, rewards, flags)

    return write


def parquet(name: str, sizes: Sizes, rewards: Rewards, columns: dict[str, Any], **flags: Any) -> Writer:
    def write(folder: Path) -> Written:
        (folder / name).parent.mkdir(exist_ok=True)
        pl.DataFrame(columns).write_parquet(folder / name)
        return Written(folder / name, sizes, rewards, flags)

    return write


def prime_episode(group: str, score: float | None, *, ok: bool = True) -> dict[str, Any]:
    weighted = None if score is None else {"score": score, "weight": 2.0}
    rewards = {"correct": weighted, "style": {"score": 1, "weight": 0.5}}
    trace = {"agent": "solver", "nodes": [], "rewards": rewards, "metrics": {}, "info": {}, "errors": [], "ok": ok}
    about = {"group": {"id": group}, "run": {"work": {"step": 1}}, "task": {"type": "math", "key": "k"}}
    return {**about, "traces": [trace]}


def verifiers_episode(task: str, trace: str, score: float, *, ok: bool = True, episode: str = "e") -> dict[str, Any]:
    """An episode as `append_trace` of verifiers (a60a606ec, verifiers/v1/cli/output.py) writes it: one trace, no group.

    Replay (verifiers/v1/cli/replay.py) gives it another id, keeps that of the trace, and sets new rewards.
    """
    kind = {"type": "GSM8KTask", "data": {"idx": 0, "prompt": task}, "key": task, "hash": task}
    rewards = {"correct": {"score": score, "weight": 1.0}}
    made = {"version": 1, "id": trace, "task": kind, "agent": {"name": "agent"}, "nodes": [], "rewards": rewards}
    more = {"env": {"id": "gsm8k"}, "task": kind, "ok": ok, "errors": []}
    return {"id": f"{episode}-{trace}", **more, "traces": [{**made, "ok": ok}]}


def prime_stream(folder: Path) -> Written:
    run = prime_runs.training().write(folder / "run")
    rewards = [1.0, 1.0, 1.0, 0.0, 0.25, 0.5, 0.0, 0.0, 0.0, None, None, None]
    return Written(run / "monitors/file/traces/stream.jsonl", [4] * 6, rewards * 2)


def prime_branches(folder: Path) -> Written:
    path = prime_runs.branches(folder / "default" / "train.parquet", [[1.0, 0.0], [0.5, 0.25, 0.0]])
    return Written(path, [2, 3], [1.0, 0.0, 0.5, 0.25, 0.0])


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
        writer.writerows([["e", 1, 1, "C", ""], ["e", 1, 2, "I", ""], ["e", 2, 1, "P", ""], ["e", 2, 2, "C", "x"]])
    return Written(path, [2, 2], [1.0, 0.0, 0.5, None])


def of_lists(texts: str, rewards: str) -> Writer:
    content = [{"prompt": "a", texts: ["x", "y"], rewards: [0.5, 0.1]}, {"prompt": "a", texts: ["z"], rewards: [1.0]}]
    return rows("data.jsonl", [2, 1], [0.5, 0.1, 1.0], content)


WRITERS: dict[str, Writer] = {
    "trl": parquet("completions/completions_00007.parquet", [2, 2], [1.5, 0.5, 1.0, 1.0], {
        "step": [7] * 4, "prompt": ["<|user|>a"] * 2 + ["<|user|>b"] * 2, "completion": [*"wxyz"],
        "accuracy_reward": [1.0, 0.0, 1.0, 1.0], "format_reward": [0.5, 0.5, 0.0, float("nan")],
        "advantage": [0.707007, -0.707007, 0.0, 0.0],
    }, column="mine"),
    "trl-trackio": rows("completions.jsonl", [2] * 4, [1.0, 0.0] * 4, [
        {"run_name": run, "step": 7, "table": "completions", "prompt": p, "completion": c, "acc": float(c == "x"), "advantage": 0.0}
        for run in ("one", "two") for p in "ab" for c in "xy"
    ], column="mine"),
    "ms-swift": rows("completions.jsonl", [2] * 4, [1.5, 0.0, 1.25, 1.25] * 2, [
        {"step": [str(step)] * 4, "prompt": ["a", "a", "b", "b"], "completion": [*"wxyz"],
         "Accuracy": [1.0, 0.0, 1.0, 1.0], "Format": [0.5, None, 0.25, 0.25], "advantages": [0.0] * 4}
        for step in (1, 2)
    ]),
    "ms-swift-megatron": rows("completions.jsonl", [2, 2], [1.0, 0.0] * 2, [
        {"gen_step": step, "prompt": ["a", "a"], "completion": ["x", "y"], "Accuracy": [1.0, 0.0], "advantages": [1, -1]}
        for step in (0, 1)
    ]),
    "ms-swift-ray": rows("completions.jsonl", [2, 2], [1.0, 0.0] * 2, [
        {"gen_step": s, "prompt": "a", "completion": c, "reward": r} for s in (0, 1) for c, r in (("x", 1), ("y", 0))
    ]),
    "verl": rows("12.jsonl", [3, 3], [1.0, 0.5, 0.0] * 2, [
        {"input": f"user\nq{p}", "output": str(k), "gts": "4", "score": [1, 0.5, "0.0"][k], "step": 12, "acc": "True"}
        for p in range(2) for k in range(3)
    ]),
    "verl-v1": rows("3.jsonl", [2, 2], [0.0, 1.0] * 2, [
        {"input": "same", "output": str(k), "gts": None, "score": float(k), "step": 3, "uid": f"{p}_9_{k}_0"}
        for p in range(2) for k in range(2)
    ]),
    "trinity": rows("experiences.jsonl", [2] * 4, [0.0, 1.0] * 4, [
        {"eid": {"batch": b, "task": t, "run": r, "step": 0, "suffix": "x"}, "reward": float(r), "response_length": 3}
        for b in (0, 1) for t in (0, 1) for r in (0, 1)
    ]),
    "nemo-rl": rows("train_data_step5.jsonl", [4, 4], [0.0, 1.0] * 4, [
        {"content": ["text"], "rewards": [float(i % 2)], "input_lengths": [5], "token_ids": [[1, 2]],
         "token_loss_mask": [[0, 1]], "sample_loss_mask": [0.0 if i == 7 else 1.0], "advantages": [[0.0, 0.5]],
         "generation_logprobs": [[0.0, -1.0]], "idx": i}
        for i in range(8)
    ], group_size=4),
    "nemo-gym": rows("out.jsonl", [2, 2, 2], [1.0] * 3 + [0.0] * 3, [
        {"responses_create_params": {}, "response": {"usage": {}}, "reward": r, "_ng_task_index": t, "_ng_rollout_index": k}
        for k, r in ((0, 1.0), (1, 0.0)) for t in range(3)
    ]),
    "nemo-gym-no-index": rows("example_rollouts.jsonl", [2, 2, 2], [1.0] * 3 + [0.0] * 3, [
        {"responses_create_params": {"input": chat(f"q{t}"), "tools": []}, "response": {"id": f"r{t}{k}"}, "reward": r,
         "verifier_metadata": {}}
        for k, r in ((0, 1.0), (1, 0.0)) for t in range(3)
    ]),
    "areal": rows("rollout/2/4.jsonl", [3], [0.0, 1.0, 2.0], [
        {"task_id": 4, "sample_idx": k, "seqlen": 9, "prompt_len": 3, "head_version": 2, "tail_version": 2,
         "reward": float(k), "prompt": "p", "completion": "c"}
        for k in range(3)
    ]),
    "areal-normalized": rows("rollout/2/4.jsonl", [2], [0.0, 1.0], [
        {"task_id": 4, "sample_idx": k, "seqlen": 9, "prompt_len": 3, "head_version": 1, "tail_version": 2,
         "version_rle": [[1, 2], [2, 4]], "reward": 2.0 * k - 1, "prompt": "p", "completion": "c",
         "segments": [{"role": "gen", "len": 6, "text": "c"}], "original_reward": float(k)}
        for k in range(2)
    ]),
    "skyrl": rows("dumped_evals/global_step_20_evals/gsm8k.jsonl", [2, 2], [1.0, 0.5, 0.25, 0.0], [
        {"input_prompt": chat(p), "output_response": "o", "score": s, "stop_reason": "stop", "env_class": "gsm8k",
         "env_extras": {}, "data_source": "gsm8k"}
        for p, s in (("a", 1.0), ("a", [0.0, 0.0, 0.5]), ("b", [0.25]), ("b", 0))
    ]),
    "harbor": harbor,
    "prime-rl": rows("rollouts/step_1/train/effective/traces.jsonl", [2, 2], [2.5, 0.5, 0.5, None], [
        prime_episode("g0", 1.0), prime_episode("g0", 0.0), prime_episode("g1", None), prime_episode("g1", 1.0, ok=False),
    ]),
    "prime-rl-stream": prime_stream,
    "prime-rl-branches": prime_branches,
    "verifiers-traces": rows("outputs/gsm8k/traces.jsonl", [3, 2], [0.0, 1.0, 0.0, 1.0, None], [
        *(verifiers_episode(task, f"{task}-{k}", float(k)) for task in ("a", "b") for k in (0, 1)),
        verifiers_episode("a", "failed", 0.0, ok=False),
    ]),
    "prime-rl-rollouts": rows("run/step_3/train_rollouts.jsonl", [2, 2], [0.0, 1.0] * 2, [
        {"example_id": e, "prompt": chat("q"), "completion": chat("c"), "reward": float(k), "error": None, "metrics": {}}
        for e in (0, 1) for k in (0, 1)
    ]),
    "prime-platform": rows("results.jsonl", [4, 4], [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0], [
        {"run_id": "r", "step": 4, "tag": "", "problem_id": 9, "sample_id": i, "prompt": "[]", "completion": "[]",
         "env_name": "env", "task": "default", "info": "", "metrics": "{}", "timing": "{}",
         "reward": r, "advantage": r - (0.5 if i < 4 else 0.25)}
        for i, r in enumerate([1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    ], column="mine", group_size=4),
    "verifiers": rows("outputs/evals/env--model/0a/results.jsonl", [3, 3], [1.0, 1.0, 0.0, 0.0, 0.0, 0.0], [
        {"example_id": e, "prompt": chat("same"), "completion": chat("c"), "answer": "4", "reward": r, "error": error}
        for r, error in ((1.0, None), (0.0, None), (0.0, {"error": "TimeoutError"})) for e in (0, 1)
    ]),
    "verifiers-id": rows("results.jsonl", [2, 2], [0.0, 0.0, 1.0, 1.0], [
        {"id": e, "prompt": chat(""), "completion": [], "task": "default", "reward": float(k), "answer": "C"}
        for k in (0, 1) for e in (0, 1)
    ]),
    "verifiers-prompt": rows("results.jsonl", [2, 2], [1.0, 0.0, 0.0, 0.0], [
        {"prompt": chat(p), "completion": chat("c"), "answer": "a", "reward": r, "task": "default"}
        for p, r in (("x", 1.0), ("y", 0.0), ("x", 0.0), ("y", 0.0))
    ]),
    "tinker": rows("iteration_000000/train_rollout_summaries.jsonl", [2] * 4, [0.0, 1.0] * 4, [
        {"schema_version": 1, "split": "train", "iteration": i, "group_idx": g, "traj_idx": k, "tags": [],
         "total_reward": float(k), "final_reward": 0.0, "trajectory_metrics": {},
         "steps": [{"step_idx": 0, "ob_len": 4, "ac_len": 2 + k, "reward": float(k)}], "final_ob_len": 4}
        for i in (0, 1) for g in (0, 1) for k in (0, 1)
    ]),
    "slime": rows("samples.jsonl", [3, 3], [1.0, 0.0, None, 1.0, 1.0, 0.0], [
        {"group_index": i // 3, "index": i, "prompt": "p", "response": "r", "response_length": 7, "label": "4",
         "reward": [1, 0.0, None, 1, 1, 0][i], "status": "aborted" if i == 3 else "completed", "remove_sample": i == 4}
        for i in range(6)
    ]),
    "roll": rows("rollout_dump_data.step_3.jsonl", [2, 2], [1.0, 0.0, 0.0, 0.0], [
        {"global_step": [3] * 4, "id": ["p1", "p1", "p2", "p2"], "source": ["s"] * 4, "difficulty": [0.5] * 4,
         "prompt": ["a", "a", "b", "b"], "responses": [*"wxyz"], "scores": [1.0, 0.0, 0.0, 0.0], "domain": ["math"] * 4},
    ]),
    "rllm": rllm,
    "open-instruct": rows("run_rollouts_000000.jsonl", [2] * 4, [0.0, 1.0] * 4, [
        {"step": s, "sample_idx": i, "prompt_idx": i // 2, "prompt_tokens": [1], "response_tokens": [1] * (2 + i),
         "reward": float(i % 2), "advantage": 0.0, "finish_reason": "stop", "dataset": "gsm8k", "logprobs": []}
        for s in (1, 2) for i in range(4)
    ], column="mine"),
    "lm-eval": rows("samples_gsm8k_2025-01-01T00-00-00.jsonl", [1] * 4, [0.0, None] * 2, [
        {"doc_id": d, "doc": {}, "target": "4", "arguments": {}, "resps": [["x"]], "filtered_resps": ["x"],
         "filter": f, "metrics": ["exact_match"], "doc_hash": "h", "prompt_hash": "p", "target_hash": "t", "exact_match": r}
        for d in (0, 1) for f, r in (("strict", 0.0), ("flexible", float("inf")))
    ], singleton="zero"),
    "inspect": document("2025-01-01T00-00-00_task.json", [2, 2], [1.0, 0.0, 0.5, None], {
        "version": 2, "status": "success", "eval": {"task": "t"}, "plan": {},
        "samples": [
            {"id": i // 2, "epoch": i % 2 + 1, "input": "q", "scores": {"match": {"value": letter, "answer": "x"}},
             "error": {"message": "boom"} if i == 3 else None}
            for i, letter in enumerate("CIPC")
        ],
    }),
    "inspect-table": inspect_table,
    "eval-protocol": rows("logs.jsonl", [3, 3], [0.0, 1.0, 0.0, 1.0, None, None], [
        {"messages": chat("q"), "input_metadata": {"row_id": f"r{i // 3}"}, "created_at": "2025-01-01", "rollout_status": {},
         **({"evaluation_result": {"score": float(i % 2), "is_score_valid": i != 4, "reason": "", "metrics": {}}} if i < 5 else {})}
        for i in range(6)
    ]),
    "openr1": rows("train.jsonl", [2, 3], [1.0, 0.0, 1.0, 1.0, 0.0], [
        {"problem": "p", "uuid": f"u{i}", "generations": ["g"] * (len(one) if one else 3), "correctness_math_verify": one, "correctness_llama": None}
        for i, one in enumerate([[True, False], None, [True, True, False]])
    ]),
    "graded-completions": rows("generated.jsonl", [3, 3], [1.0, 0.0, 0.0, 1.0, 1.0, 0.0], [
        {"index": i, "prompt": "p", "completions": [{"raw": "x", "extracted": "4", "is_correct": k < i} for k in range(3)]}
        for i in (1, 2)
    ]),
    "wide": parquet("offline.parquet", [2, 3], [1.0, 0.0, 0.5, 0.5, 1.0], {
        "prompt": ["a", "b", "c"], "completions": [["x", "y"], [], ["z", "w", "v"]], "rewards": [[1.0, 0.0], None, [0.5, 0.5, 1.0]],
    }),
    "atropos": rows("objreward.jsonl", [2, 2], [0.0, 0.25, 1.0, 0.0], [
        {"tokens": [[1, 2], [3]], "masks": [[-100, 2], [3]], "scores": s, "ref_logprobs": None, "messages": ["m", "m"]}
        for s in ([0, 0.25], [1, 0])
    ]),
    "atropos-trajectories": rows("trajectories.jsonl", [2], [0.0, 1.0], [
        {"request_id": f"q{i}", "prompt_used": "move", "llm_completion_raw": "{}", "parsed_action": {}, "score": float(i)}
        for i in range(2)
    ]),
    "human-eval": rows("samples.jsonl_results.jsonl", [2, 2], [1.0, 1.0, 0.0, 0.0], [
        {"task_id": f"HumanEval/{t}", "completion": "return 1", "result": "passed" if p else "failed", "passed": p}
        for p in (True, False) for t in (0, 1)
    ]),
    "tau2": document("results.json", [2, 2], [1.0, 1.0, 0.0, 0.0], {
        "info": {}, "tasks": [{"id": "0"}],
        "simulations": [
            {"id": f"{task}{trial}", "task_id": task, "trial": trial, "reward_info": {"reward": r}, "messages": []}
            for trial, r in ((0, 1.0), (1, 0.0)) for task in ("0", "1")
        ],
    }),
    "tau-bench": document("gpt-4o-airline.json", [2, 2], [1.0, 0.0, 0.0, 1.0], [
        {"task_id": t, "reward": float(k == t), "info": {"reward_info": {"reward": 9}}, "traj": chat("x"), "trial": k}
        for k in range(2) for t in range(2)
    ]),
    "evalplus": document("samples_eval_results.json", [2, 3], [1.0, 0.0, 0.0, 1.0, 1.0], {
        "date": "d", "hash": "h",
        "eval": {
            task: [{"task_id": task, "solution": "s", "base_status": "pass", "plus_status": one} for one in verdicts]
            for task, verdicts in {"HumanEval/0": ["pass", "fail"], "HumanEval/1": ["timeout", "pass", "pass"]}.items()
        },
    }, indent=None, reward=["plus_status"]),
    "mt-bench": rows("gpt-4_single.jsonl", [2] * 4, [None if i == 5 else float(i) for i in range(8)], [
        {"question_id": 81 + i // 4, "model": "mn"[i % 2], "judge": ["gpt-4", "single-v1"], "user_prompt": f"p{i}",
         "judgment": "j", "score": -1 if i == 5 else float(i), "turn": 1 + i // 2 % 2, "tstamp": 1.5}
        for i in range(8)
    ]),
    "livecodebench": document("Scenario.codegeneration_10_0.2_eval_all.json", [2, 2], [1.0, 0.0, 0.0, 0.0], [
        {"question_id": f"q{i}", "question_content": "p", "output_list": ["x", "y"], "code_list": ["a", "b"],
         "graded_list": one, "pass@1": 0.5}
        for i, one in enumerate(([True, False], [False, False]))
    ], indent=4),
    "qwen-math": rows("test_qwen25-math-cot_-1_seed0.jsonl", [2, 2], [1.0, 0.0, 1.0, 1.0], [
        {"idx": i, "question": "p", "gt": "1", "code": ["x", "y"], "pred": ["1", "2"], "score": one}
        for i, one in enumerate(([True, False], [True, True]))
    ]),
    "rlhflow": of_lists("responses", "rewards"),
    "rlhflow-answers": of_lists("answers", "rewards"),
    "simpo": of_lists("all_generated_responses", "all_rm_scores"),
    "tree-of-thought": document("gpt-4_0.7_propose1_value3_greedy5_start900_end1000.json", [2, 2], [1.0, 0.0, 1.0, 1.0], [
        {"steps": [{"step": 0}], "idx": 900 + i, "ys": ["a", "b"], "infos": [{"r": 1}, {"r": i}], "usage_so_far": {}}
        for i in range(2)
    ], indent=4),
    "reasoning-gym": document("time_intervals.json", [2, 2], [0.25, 1.0] * 2, {
        "name": "t",
        "results": [
            {"question": f"q{i}", "best_score": 1.0, "completions": [{"model_answer": "x", "score": s} for s in (0.25, 1.0)]}
            for i in range(2)
        ],
        "config": {"seed": 4},
    }),
    "math-rollouts": parquet("rollouts.parquet", [2, 2], [1.0, 0.0, 1.0, 1.0], {
        "model_id": ["m"] * 4, "unique_id": ["a", "a", "b", "b"], "branch_path": [""] * 4, "run_id": [0] * 4,
        "answer_matches": [True, False, True, True],
    }),
}  # fmt: skip

# What is recognised only to be refused: a record of each.
REFUSED: dict[str, dict[str, Any]] = {
    "nemo-gym-profile": {"mean/reward": 0.5, "max/reward": 1.0, "std/reward": 0.5, "sample": {}},
    "polaris": {"problem": "p", "answer": "4", "difficulty": "7/8"},
    "big-math": {"problem": "p", "answer": "4", "source": "s", "domain": [], "llama8b_solve_rate": None},
    "intellect-2": {"prompt": "p", "verification_info": "{}", "solve_rate_qwen_r1_distill_7b": 0.5},
    "open-math-reasoning": {"problem": "p", "generated_solution": "s", "expected_answer": "4", "pass_rate_72b_tir": "n/a"},
    "verl-prompts": {"data_source": "d", "prompt": chat("q"), "ability": "math", "reward_model": {"ground_truth": "4"}},
}  # fmt: skip
