"""Masked, failed and foreign rows: the numbers of the frameworks' own code, from their own files and from plain tables.

`golden/marked.json` has the tables, and for each case what the named function of the framework returned for one of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support import prime_runs
from tests.support.command import adv
from tests.support.goldens import HERE, TOLERANCE, same
from tests.support.schema_files import lines

MARKED: Any = json.loads((HERE / "marked.json").read_text(encoding="utf-8"))
CASES: dict[str, Any] = MARKED["cases"]
ALSO = {"prime-rl": ["prime-rl-stream", "prime-rl-branches"]}  # files of other versions and programs of the tool
FROM_DUMPS = [
    (name, dump)
    for name, case in CASES.items()
    if "dump" in case
    for dump in [case["dump"], *ALSO.get(case["dump"], [])]
]


def table(case: str) -> list[dict[str, Any]]:
    columns = MARKED["tables"][CASES[case]["table"]]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


# --- the files that the tools write ------------------------------------------------------------------------------


def slime(folder: Path, rows: list[dict[str, Any]]) -> Path:
    return lines(folder / "samples.jsonl", (
        {"group_index": ord(row["group"]), "index": i, "prompt": row["group"], "response": "r", "label": "4", "status": "completed",
         "reward": row["reward"], "response_length": row["length"], "remove_sample": bool(row["marked"])}
        for i, row in enumerate(rows)
    ))  # fmt: skip


def nemo_rl(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """A prompt of as many tokens as the place of the row, then the response, then padding."""
    widest = max(i + row["length"] for i, row in enumerate(rows))
    return lines(folder / "train_data_step1.jsonl", (
        {"content": ["text"], "rewards": [row["reward"]], "input_lengths": [i + row["length"]], "token_ids": [[7] * widest],
         "token_loss_mask": [[0] * i + [1] * row["length"] + [0] * (widest - i - row["length"])],
         "sample_loss_mask": [0.0 if row["marked"] else 1.0], "advantages": [[0.0] * widest], "idx": i}
        for i, row in enumerate(rows)
    ))  # fmt: skip


def prime_rl(folder: Path, rows: list[dict[str, Any]]) -> Path:
    episodes: dict[int, dict[str, Any]] = {}
    for row in rows:
        of_group = {"group": {"id": row["group"]}, "run": {"work": {"step": 1}}, "task": {"type": "math", "key": "k"}}
        episode = episodes.setdefault(row["episode"], {**of_group, "traces": []})
        scored = row["reward"] is not None and row["state"] != "unscored"
        episode["traces"].append({
            "agent": {"name": "judge" if row["state"] == "judge" else "solver", "trainable": row["state"] != "judge"},
            "nodes": [], "rewards": {"correct": {"score": row["reward"], "weight": 1.0}} if scored else {},
            "metrics": {}, "info": {}, "errors": [], "ok": row["state"] != "error",
        })  # fmt: skip
    return lines(folder / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl", episodes.values())


def prime_rl_stream(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """A stream in which a validation follows the training episodes."""
    episodes: dict[int, list[dict[str, Any]]] = {}
    for at, row in enumerate(rows):
        reward = None if row["state"] == "unscored" else row["reward"]
        trace = prime_runs.trace(f"t{at}", reward, ok=row["state"] != "error")
        trace["agent"]["trainable"] = row["state"] != "judge"
        episodes.setdefault(row["episode"], []).append({"group": row["group"], **trace})
    made = [prime_runs.episode(traces[0].pop("group"), traces) for traces in episodes.values()]
    run = prime_runs.Run([*made, *prime_runs.evaluation(step=1)]).write(folder / "run")
    return run / "monitors" / "file" / "traces" / "stream.jsonl"


def prime_rl_branches(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The table on the Hub: `reward` is `Trace.reward`, the sum of the rewards that are there."""
    path = prime_runs.branches(folder / "train.parquet", [[row["reward"] or 0.0] for row in rows])
    failed, judges = ([row["state"] == state for row in rows] for state in ("error", "judge"))
    ids = pl.Series("group_id", [row["group"] for row in rows])
    ok, trainable = ~pl.Series("ok", failed), ~pl.Series("trainable", judges)
    pl.read_parquet(path).with_columns(ids, ok, trainable, pl.col("messages").first()).write_parquet(path)
    return path


def verifiers(folder: Path, rows: list[dict[str, Any]]) -> Path:
    return lines(folder / "results.jsonl", (
        {"example_id": ord(row["group"]), "prompt": [], "completion": [], "answer": "4", "reward": row["reward"],
         "error": {"error": "TimeoutError"} if row["marked"] else None}
        for row in rows
    ))  # fmt: skip


DUMPS = {
    "slime": slime,
    "nemo-rl": nemo_rl,
    "prime-rl": prime_rl,
    "prime-rl-stream": prime_rl_stream,
    "prime-rl-branches": prime_rl_branches,
    "verifiers": verifiers,
}
OPTIONS = {"nemo-rl": ["--group-size", "4"], "prime-rl": ["--long"], "prime-rl-stream": ["--long"]}
STATUS = {"judge": "not-a-rollout", "error": "left-out"}

# --- the cases -----------------------------------------------------------------------------------------------------


def computed(path: Path, *options: str) -> list[dict[str, Any]]:
    """The rows of the output of `compute`, with facts."""
    out = path.parent / "out.jsonl"
    done = adv(f"compute {path} -o {out} --facts --quiet", *options)
    assert (done.status, done.err) == (0, "")
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    named = [{name: row[name] for name in ("advantage", "advantage_status")} for row in rows]
    # A dump with lists of one has lists of one again.
    return [{name: value[0] if isinstance(value, list) else value for name, value in row.items()} for row in named]


def differences(case: str, got: list[dict[str, Any]]) -> list[str]:
    wanted = CASES[case]["advantages"]
    numbers = [row["advantage"] for row in got]
    if CASES[case].get("masked_get_zero"):
        # The framework multiplies by the loss mask; the tool keeps the value, and --per-token gives such rows zeros.
        numbers = [0.0 if row["advantage_status"] == "masked" else row["advantage"] for row in got]
    pairs = enumerate(zip(numbers, wanted, strict=True))
    return [f"row {i}: {here} instead of {there}" for i, (here, there) in pairs if not same(here, there, TOLERANCE)]


@pytest.mark.parametrize(("case", "dump"), FROM_DUMPS)
def test_the_file_of_a_tool_gives_the_numbers_of_the_tool(case: str, dump: str, tmp_path: Path) -> None:
    rows = table(case)
    got = computed(DUMPS[dump](tmp_path, rows), *CASES[case]["args"], *OPTIONS.get(dump, []))
    evaluated = got[len(rows) :]
    assert {row["advantage_status"] for row in evaluated} == ({"not-a-rollout"} if "stream" in dump else set())
    got = got[: len(rows)]
    assert differences(case, got) == []
    marked = "left-out" if "exclude" in CASES[case]["args"] else "masked"
    wanted = [STATUS.get(row["state"]) if "state" in row else marked if row["marked"] else None for row in table(case)]
    apart = {marked, *STATUS.values()}
    assert [status if (status := row["advantage_status"]) in apart else None for row in got] == wanted


@pytest.mark.parametrize("case", [*CASES])
def test_a_plain_table_with_the_flags_gives_the_numbers_of_the_tool(case: str, tmp_path: Path) -> None:
    rows, reward, marks = table(case), ["--reward", "reward"], ["--masked-column", "marked"]
    if CASES[case]["table"] == "episodes":
        marks = ["--left-out-column", "state"]
        rows = [{**row, "state": row["state"].replace("unscored", "")} for row in rows]
    options = [*CASES[case]["args"], *CASES[case].get("plain", ()), "--group", "group", *marks]
    got = computed(lines(tmp_path / "table.jsonl", rows), *options, *([] if "--reward" in options else reward))
    assert differences(case, got) == []


def test_on_tokens_the_rows_that_verl_masks_have_the_zeros_of_verl(tmp_path: Path) -> None:
    case = "verl.reinforce_plus_plus_baseline"
    options = [*CASES[case]["args"], "--length-column", "length", "--masked-column", "marked", "--per-token"]
    out = tmp_path / "out.jsonl"
    done = adv("compute", str(lines(tmp_path / "table.jsonl", table(case))), "-o", str(out), "-g", "group", *options)
    assert done.status == 0, done.err
    for row, wanted in zip(out.read_text(encoding="utf-8").splitlines(), CASES[case]["advantages"], strict=True):
        assert json.loads(row)["advantage"] == pytest.approx([wanted] * json.loads(row)["length"], abs=TOLERANCE)
