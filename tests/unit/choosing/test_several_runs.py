"""`select --against` and `export --against`: prompts by what several runs say of them."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import UsageError
from tests.support.command import adv
from tests.support.conditions import holds
from tests.support.drawn import paired
from tests.support.jobs import rows_of, write

Run = dict[str, list[float]]
FLAGS = "-g prompt_id,step --group-within input"


def runs_of(seed: int) -> list[Run]:
    """Three runs: of some prompts, the rewards in each; some prompts are in some of them only."""
    draw = random.Random(seed)  # noqa: S311 - of a test
    runs: list[Run] = [{}, {}, {}]
    for run in runs:
        for p in draw.sample(range(20), 16):
            run[f"p{p}"] = draw.choices([0.0, 0.5, 1.0], [3, 1, 1], k=4)
    return runs


def in_file(path: str, run: Run) -> Path:
    rows = list[dict[str, Any]]()
    for key, some in run.items():
        rows += [{"prompt_id": key, "step": i % 2, "reward": reward} for i, reward in enumerate(some)]
    return write(path, rows)


def counted(runs: list[Run], bar: float) -> dict[str, tuple[int, int]]:
    """For each prompt of the newest run: in how many runs it is, and how many solve it."""
    found = dict[str, tuple[int, int]]()
    for key in runs[-1]:
        rewards = [run[key] for run in runs if key in run]
        found[key] = len(rewards), sum(max(some) >= bar for some in rewards)
    return found


@pytest.mark.parametrize(("seed", "case"), paired(range(4), [*product([1.0, 0.5], [".jsonl", ".csv"])]))
def test_prompts_are_chosen_by_the_runs_that_have_and_solve_them(seed: int, case: tuple[float, str]) -> None:
    bar, suffix = case
    runs = runs_of(seed)
    for name, run in zip((f"0{suffix}", f"1{suffix}", "now.jsonl"), runs, strict=True):
        in_file(name, run)
    found = counted(runs, bar)
    more = "" if bar == 1 else f"--solved-at {bar}"  # that of --solved-at is the largest reward, here 1
    for condition in ("solved_runs == 0 and runs == 3", "solved_runs == runs", "0 < solved_runs < runs"):
        wanted = set[str]()
        for key, (seen, solved) in found.items():
            if holds(condition, {"runs": seen, "solved_runs": solved}):
                wanted.add(key)
        flags = f"now.jsonl {FLAGS} {more} --against old=0{suffix} --against 1{suffix} --where '{condition}' -o -"
        assert {row["prompt_id"] for row in adv(f"select {flags}").rows} == wanted
        pool = adv(f"export {flags} --to prompts --prompt prompt_id --pool").rows
        assert sorted(row["prompt"] for row in pool) == sorted(wanted)


@pytest.mark.parametrize(("now", "other"), [(".jsonl", ".csv"), (".csv", ".jsonl"), (".parquet", ".csv")])
def test_digits_of_csv_are_numbers(now: str, other: str) -> None:
    newest = pl.read_csv(b"prompt_id,reward\n1,1\n1,1\n2,0\n2,0\n3,1\n")
    write(f"now{now}", newest.to_dicts())
    write(f"before{other}", [{"prompt_id": 1, "reward": 1}, {"prompt_id": 2, "reward": 0}])

    def kept(condition: str) -> set[str]:
        line = f"select now{now} --against before{other} --against old=now{now} -o out.jsonl --force --where"
        assert adv(line, condition).status == 0
        return {str(row["prompt_id"]) for row in rows_of("out.jsonl")}

    assert kept("runs == 3") == {"1", "2"}
    assert kept("solved_runs == 3") == {"1"}
    assert kept("solved_runs == 2") == {"3"}


def test_python_takes_paths() -> None:
    runs = runs_of(1)
    *before, now = [str(in_file(f"{at}.parquet", run)) for at, run in enumerate(runs)]
    options: Any = {"where": "solved_runs == 0", "against": before, "group": "prompt_id,step", "group_within": "input"}
    wanted = {key for key, (_, solved) in counted(runs, 1.0).items() if not solved}
    selected = grpo_cli.select(now, **options).frame
    assert {*selected["prompt_id"]} == wanted
    exported = grpo_cli.export(now, "prompts", prompt="prompt_id", pool=True, **options).frame
    assert {*exported["prompt"]} == wanted


def test_python_says_that_runs_are_paths_or_have_names() -> None:
    frame = pl.DataFrame({"prompt_id": ["a", "a"], "prompt": "p", "response": ["x", "y"], "reward": [0, 1]})
    for runs in (frame, [frame], [in_file("x.jsonl", runs_of(0)[0]), frame]):
        options: Any = {"where": "solved_runs == 0", "against": runs}
        with pytest.raises(UsageError, match="against takes paths; write the other run to a file"):
            grpo_cli.select(frame, **options)
        with pytest.raises(UsageError, match="against takes paths"):
            grpo_cli.export(frame, "sft", **options)
    unnamed: Any = frame
    with pytest.raises(UsageError, match="against takes runs by their names; give them as against="):
        grpo_cli.inspect(frame, against=unnamed)


def test_the_best_or_worst_solved_can_be_taken() -> None:
    runs = runs_of(2)
    for at, run in enumerate(runs):
        in_file(f"{at}.jsonl", run)
    line = f"select 2.jsonl {FLAGS} --against 0.jsonl --against 1.jsonl --top 6 --by=solved_runs -o -"
    found = counted(runs, 1.0)
    kept = {row["prompt_id"] for row in adv(line).rows}
    least = min(found[key][1] for key in kept)
    assert all(solved <= least for key, (_, solved) in found.items() if key not in kept)


def test_runs_without_a_common_prompt_and_standard_input_twice_are_refused() -> None:
    now = '{"prompt_id": "a0", "step": 0, "reward": 0}\n{"prompt_id": "a0", "step": 0, "reward": 1}\n'
    Path("a.jsonl").write_text(now)
    Path("b.jsonl").write_text(now.replace("a0", "b0"))
    flags = f"--where 'solved_runs == 0' {FLAGS} -o - --against"
    refused = adv(f"select a.jsonl {flags} b.jsonl")
    assert "no prompt is in both runs (matched by prompt_id)" in refused.err
    assert "both runs are read from standard input" in adv(f"select - {flags} -", stdin=now).err


def test_an_input_of_another_run_is_never_written_over() -> None:
    runs = runs_of(0)
    now = in_file("now.jsonl", runs[0])
    other = in_file("other.jsonl", runs[1])
    before = other.read_bytes()
    done = adv(f"select {now} {FLAGS} --where 'solved_runs == 0' --against {other} -o {other} --force")
    assert done.status != 0
    assert other.read_bytes() == before
    assert "is an input: it is never overwritten" in done.err
