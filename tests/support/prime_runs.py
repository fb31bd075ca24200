"""The run folder of prime-rl since it appends traces to a stream, and its data set on the Hub with a row per branch.

Written by what PrimeIntellect-ai/prime-rl does: `monitors/file/monitor.py` (048a6e23), `traces/chunks.py` (551bfc39),
`traces/update.py` (65a18584), `orchestrator/annotations.py` (96e0cf47), `tools/convert_traces_to_hf_dataset.py` (41ad2015).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import polars as pl

from tests.support.bad_files import zst
from tests.support.jobs import write

FRAME = 700  # bytes of a frame of a sealed chunk; 4 MB there
FOOTER = (0x184D2A5E).to_bytes(4, "little") + (9).to_bytes(4, "little") + bytes(5) + (0x8F92EAB1).to_bytes(4, "little")

BRANCH = """
{"episode_id": "e$g$k", "episode_ok": true, "episode_has_error": false, "episode_errors": "[]", "env_id": "gsm8k", "env_name": "gsm8k",
 "group_id": "g$g", "run_type": "train", "run_id": "r", "run_name": null, "work_type": "train", "step": 4, "policy_start": 3, "policy_end": 3,
 "trace_id": "t$g$k", "trace_version": 1, "verifiers_version": "0.2.0", "verifiers_commit": null, "task_type": "Task", "task_data": "{}",
 "task_key": "k$g", "task_hash": "k$g", "agent": "solver", "trainable": true, "agent_config": "{}", "agent_runtime": "null", "tools": "[]",
 "reward": $reward, "rewards": "{}", "metrics": "{}", "info": "{}", "is_completed": true, "ok": true, "stop_condition": "agent_completed",
 "has_error": false, "error_type": null, "error_message": null, "error_status_code": null, "errors": "[]", "is_truncated": false,
 "num_branches": $count, "num_turns": 1, "num_input_tokens": 3, "num_output_tokens": $output, "num_total_tokens": $total,
 "branch_index": $branch, "messages": [], "calls": "[]", "branch_num_input_tokens": 3, "branch_num_output_tokens": $output,
 "branch_num_total_tokens": $total}
"""


def trace(name: str, reward: float | None, *, ok: bool = True, kind: str = "train", step: int = 1) -> dict[str, Any]:
    """A trace as it arrives: its rewards, no advantage yet, and the stamps of `stamp_arrival`."""
    stamps = {"kind": kind, "dispatch": {"step": step, "time": 1.0}, "arrival": {"step": step, "time": 2.0}}
    rewards = {} if reward is None else {"correct": {"score": reward, "weight": 1.0}}
    nodes = [{"message": message, "token_ids": [1, 2], "mask": [False, True]} for message in _chat(f"for {name}", "x")]
    return {
        "version": 1, "id": name, "agent": {"name": "solver", "trainable": True}, "nodes": nodes, "rewards": rewards,
        "metrics": {}, "info": stamps, "is_completed": True, "ok": ok, "errors": [],
    }  # fmt: skip


def _chat(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def episode(group: str, traces: Sequence[Mapping[str, Any]], *, kind: str = "train", step: int = 1) -> dict[str, Any]:
    work = {"type": kind, "step": step, "policy": {"start": step - 1, "end": step - 1}}
    return {
        "id": f"e-{traces[0]['id'] if traces else group}", "env": {"id": "gsm8k", "name": "gsm8k"}, "group": {"id": group},
        "task": {"type": "Task", "data": {"idx": 0}, "key": "k"}, "run": {"type": "train", "id": "r", "work": work},
        "ok": True, "errors": [], "traces": list(traces),
    }  # fmt: skip


def shipped(name: str, advantage: float | None, step: int = 1) -> dict[str, Any]:
    """What `stamp_ship` adds when the batch of a trace is sent to the trainer; an evaluation has no advantage."""
    info: dict[str, Any] = {"effective": True, "ship": {"step": step, "time": 3.0}}
    branches = []
    if advantage is not None:
        info["advantage"] = advantage
        branches.append({"index": 0, "advantages": [0.0, advantage]})
    return {"version": 1, "trace_id": name, "info": info, "branches": branches}


@dataclass(frozen=True)
class Run:
    """What happened in a run: episodes in the order of their arrival, and the updates of the orchestrator."""

    episodes: Sequence[Mapping[str, Any]]
    updates: Sequence[Mapping[str, Any]] = ()
    trainer: Sequence[Mapping[str, Any]] = field(default_factory=list)

    def write(self, top: Path, *, chunks: int = 0, index: bool = True) -> Path:
        """Its folder, with a plain stream or some sealed chunks and a live one, as of the first or the second version."""
        folder = top / "monitors" / "file"
        traces = folder / "traces"
        size = -(-len(self.episodes) // (chunks + 1))
        for number in range(chunks):
            rows = self.episodes[number * size : (number + 1) * size]
            sealed(traces / f"stream/{number:05d}.jsonl.zst", rows)
        live = f"stream/{chunks:05d}.jsonl" if chunks else "stream.jsonl"
        write(traces / live, self.episodes[chunks * size :])
        count = len(self.episodes)
        write(traces / "stream.index.jsonl", [{"line": at, "offset": 0, "reward": 1.0} for at in range(count)])
        notes = traces / "annotations"
        for producer, updates in (("orch", self.updates), ("trainer", self.trainer)):
            write(notes / (f"{producer}/00000.jsonl" if chunks else f"{producer}.jsonl"), updates)
            if index:
                scalars = [
                    {"trace_id": one["trace_id"], "chunk": 0, "offset": 0, "info": one["info"]} for one in updates
                ]
                write(notes / f"{producer}.index.jsonl", scalars)
        (traces / "stream.lock").touch()
        write(traces / "live" / "t9.jsonl", [{"open": {"id": "t9"}}])
        write(folder / "metrics.jsonl", [{"step": 1, "time": 1.0, "reward/mean": 0.5}])
        (folder / "plan.json").write_text('{"gsm8k": {"1": 8}}')
        resolved = top / "configs" / "resolved"
        resolved.mkdir(parents=True)
        (resolved / "rl.json").write_text('{"max_steps": 2}')
        return top


def sealed(path: Path, rows: Iterable[Any]) -> Path:
    """A chunk in seekable zstd: frames that are compressed by themselves, and a frame that readers skip."""
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(zst(data[at : at + FRAME]) for at in range(0, len(data), FRAME)) + FOOTER)
    return path


def training(*, steps: int = 2) -> Run:
    """Groups of four, whose episodes arrive one of each group at a time. In each group a trace has failed.

    prime-rl subtracts the mean of the traces that have not failed (`orchestrator/algo/grpo.py`).
    """
    episodes = []
    updates = []
    for step in range(1, steps + 1):
        rewards = {f"s{step}g{g}": [1.0, 0.25 * g, 0.0, None] for g in range(3)}
        for k in range(4):
            for group, some in rewards.items():
                one = trace(f"{group}t{k}", some[k], ok=some[k] is not None, step=step)
                episodes.append(episode(group, [one], step=step))
        for g, group in enumerate(rewards):
            middle = (1.0 + 0.25 * g) / 3
            for k, reward in enumerate((1.0, 0.25 * g, 0.0)):
                updates.append(shipped(f"{group}t{k}", reward - middle, step))
    tokens = [{"index": 0, "trainer_logprobs": [None, -0.5], "entropies": [None, 0.25]}]
    trainer = [{"version": 1, "trace_id": one["trace_id"], "info": {}, "branches": tokens} for one in updates]
    return Run(episodes, updates, trainer)


def evaluation(*, step: int, groups: int = 2) -> list[dict[str, Any]]:
    """Groups of four of an evaluation."""
    episodes = []
    for k in range(4):
        for g in range(groups):
            group = f"eval{step}g{g}"
            one = trace(f"{group}t{k}", float(k % 2), kind="eval", step=step)
            episodes.append(episode(group, [one], kind="eval", step=step))
    return episodes


def branches(
    path: Path, rewards: Sequence[Sequence[float]], *, extra: Mapping[tuple[int, int], int] | None = None
) -> Path:
    """The data set on the Hub: a row for each branch of a trace; `extra` says which traces have more than one."""
    rows = []
    for g, some in enumerate(rewards):
        for k, reward in enumerate(some):
            count = 1 + (extra or {}).get((g, k), 0)
            for branch in range(count):
                known = {
                    "g": g,
                    "k": k,
                    "branch": branch,
                    "count": count,
                    "reward": reward,
                    "output": 5 + k,
                    "total": 8 + k,
                }
                row = json.loads(Template(BRANCH).substitute(known))
                row["messages"] = _chat(f"q{g}", f"a{k}.{branch}")
                rows.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_parquet(path)
    return path
