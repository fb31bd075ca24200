"""Masked, failed and foreign rows: the numbers of the frameworks' own code, from their own files and from plain tables.

`golden/marked.json` has the tables, and for each case what the named function of the framework returned for one of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Any

import polars as pl
import pytest

from tests.support.command import adv, ran
from tests.support.goldens import HERE, TOLERANCE, same
from tests.support.jobs import write

MARKED: Any = json.loads((HERE / "marked.json").read_text(encoding="utf-8"))
CASES: dict[str, Any] = MARKED["cases"]
FROM_DUMPS = [name for name, case in CASES.items() if "dump" in case]


def table(case: str) -> list[dict[str, Any]]:
    return pl.DataFrame(MARKED["tables"][CASES[case]["table"]]).to_dicts()


# --- the files that the tools write: a line for each row -----------------------------------------------------------

FILES = {"slime": "samples.jsonl", "nemo-rl": "train_data_step1.jsonl", "verifiers": "results.jsonl"}
LINES = {
    "slime": """
{"group_index": $number, "index": $at, "prompt": "$group", "response": "r", "label": "4", "status": "completed", "reward": $reward,
 "response_length": $length, "remove_sample": $is_marked}
""",
    # A prompt of as many tokens as the place of the row, then the response.
    "nemo-rl": """
{"content": ["text"], "rewards": [$reward], "input_lengths": [$whole], "token_ids": [$ids], "token_loss_mask": [$mask],
 "sample_loss_mask": [$counts], "advantages": [[0.0]], "idx": $at}
""",
    "verifiers": """
{"example_id": $number, "prompt": [], "completion": [], "answer": "4", "reward": $reward, "error": $error}
""",
}


def dumped(tool: str, folder: Path, rows: list[dict[str, Any]]) -> Path:
    if tool == "prime-rl":
        return prime_rl(folder, rows)
    text = ""
    widest = max(at + row["length"] for at, row in enumerate(rows))
    for at, row in enumerate(rows):
        whole = at + row["length"]
        known = {**row, "at": at, "number": ord(row["group"]), "whole": whole, "ids": [7] * widest}
        known["mask"] = [0] * at + [1] * row["length"] + [0] * (widest - whole)
        known["counts"] = 0.0 if row["marked"] else 1.0
        known["is_marked"] = "true" if row["marked"] else "false"
        known["error"] = '{"error": "TimeoutError"}' if row["marked"] else "null"
        text += Template(LINES[tool]).substitute(known).replace("\n", "") + "\n"
    path = folder / FILES[tool]
    path.write_text(text, encoding="utf-8")
    return path


EPISODE = (
    '{"group": {"id": "$group"}, "run": {"work": {"step": 1}}, "task": {"type": "math", "key": "k"}, "traces": []}'
)
TRACE = '{"agent": {"name": "solver", "trainable": true}, "nodes": [], "rewards": {}, "metrics": {}, "info": {}, "errors": [], "ok": true}'


def prime_rl(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Episodes, with a trace for each row."""
    episodes: dict[int, dict[str, Any]] = {}
    for row in rows:
        trace = json.loads(TRACE)
        trace["ok"] = row["state"] != "error"
        if row["state"] == "judge":
            trace["agent"] = {"name": "judge", "trainable": False}
        if row["reward"] is not None and row["state"] != "unscored":
            trace["rewards"]["correct"] = {"score": row["reward"], "weight": 1.0}
        episode = episodes.setdefault(row["episode"], json.loads(Template(EPISODE).substitute(row)))
        episode["traces"].append(trace)
    return write(folder / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl", [*episodes.values()])


OPTIONS = {"nemo-rl": ["--group-size", "4"], "prime-rl": ["--long"]}
STATUS = {"judge": "not-a-rollout", "error": "left-out"}

# --- the cases -----------------------------------------------------------------------------------------------------


def computed(path: Path, *options: str) -> list[dict[str, Any]]:
    """The rows of the output of `compute`, with facts."""
    done = adv(f"compute {path} -o - --facts --quiet", *options)
    assert done.status == 0
    assert done.err == ""
    found = []
    for row in done.rows:
        value = row["advantage"]
        status = row["advantage_status"]
        if isinstance(value, list):  # a dump with lists of one has lists of one again
            value, status = value[0], status[0]
        found.append({"advantage": value, "advantage_status": status})
    return found


def differences(case: str, got: list[dict[str, Any]]) -> list[str]:
    wanted = CASES[case]["advantages"]
    numbers = [row["advantage"] for row in got]
    if CASES[case].get("masked_get_zero"):
        # The framework multiplies by the loss mask; the tool keeps the value, and --per-token gives such rows zeros.
        numbers = [0.0 if row["advantage_status"] == "masked" else row["advantage"] for row in got]
    pairs = enumerate(zip(numbers, wanted, strict=True))
    return [f"row {i}: {here} instead of {there}" for i, (here, there) in pairs if not same(here, there, TOLERANCE)]


@pytest.mark.parametrize("case", FROM_DUMPS)
def test_the_file_of_a_tool_gives_the_numbers_of_the_tool(case: str, tmp_path: Path) -> None:
    rows = table(case)
    tool = CASES[case]["dump"]
    args = CASES[case]["args"]
    got = computed(dumped(tool, tmp_path, rows), *args, *OPTIONS.get(tool, []))
    assert differences(case, got) == []
    marked = "left-out" if "exclude" in args else "masked"
    apart = {marked, *STATUS.values()}
    for row, found in zip(rows, got, strict=True):
        said = found["advantage_status"] if found["advantage_status"] in apart else None
        wanted = STATUS.get(row["state"]) if "state" in row else marked if row["marked"] else None
        assert said == wanted


@pytest.mark.parametrize("case", [*CASES])
def test_a_plain_table_with_the_flags_gives_the_numbers_of_the_tool(case: str, tmp_path: Path) -> None:
    rows = table(case)
    reward = ["--reward", "reward"]
    marks = ["--masked-column", "marked"]
    if CASES[case]["table"] == "episodes":
        marks = ["--left-out-column", "state"]
        rows = [{**row, "state": row["state"].replace("unscored", "")} for row in rows]
    options = [*CASES[case]["args"], *CASES[case].get("plain", ()), "--group", "group", *marks]
    got = computed(write(tmp_path / "table.jsonl", rows), *options, *([] if "--reward" in options else reward))
    assert differences(case, got) == []


def test_on_tokens_the_rows_that_verl_masks_have_the_zeros_of_verl(tmp_path: Path) -> None:
    case = "verl.reinforce_plus_plus_baseline"
    path = write(tmp_path / "table.jsonl", table(case))
    options = "-o - -g group --length-column length --masked-column marked --per-token"
    done = ran(f"compute {path} {options}", *CASES[case]["args"])
    for row, wanted in zip(done.rows, CASES[case]["advantages"], strict=True):
        assert row["advantage"] == pytest.approx([wanted] * row["length"], abs=TOLERANCE)
