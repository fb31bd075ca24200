"""`select --against` and `export --against`: prompts by what several runs say of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import UsageError
from tests.support.command import adv
from tests.support.drawn import paired
from tests.support.jobs import rows_of, write

Run = dict[str, list[float]]
FLAGS = ("-g", "prompt_id,step", "--group-within", "input")


def runs_of(seed: int) -> list[Run]:
    """Three runs: of some prompts, the rewards in each; some prompts are in some of them only, and some rewards are missing."""
    draw = random.Random(seed)  # noqa: S311 - of a test
    return [
        {f"p{p}": [draw.choice([0.0, 0.0, 0.0, 0.5, 1.0]) for _ in range(4)] for p in range(20) if draw.random() < 0.8}
        for _ in range(3)
    ]


def in_file(path: Path, run: Run) -> Path:
    rows = [
        {"prompt_id": key, "step": i % 2, "reward": reward}
        for key, rewards in run.items()
        for i, reward in enumerate(rewards)
    ]
    return write(path, rows)


def counted(runs: list[Run], bar: float) -> dict[str, tuple[int, int]]:
    """For each prompt of the newest run: in how many runs it is, and how many solve it."""
    return {
        key: (sum(key in run for run in runs), sum(max(run.get(key, [-1.0])) >= bar for run in runs))
        for key in runs[-1]
    }


@pytest.mark.parametrize(("seed", "case"), paired(range(4), [*product([None, 0.5], [".jsonl", ".csv"])]))
def test_prompts_are_chosen_by_the_runs_that_have_and_solve_them(
    seed: int, case: tuple[float | None, str], tmp_path: Path
) -> None:
    bar, suffix = case
    runs = runs_of(seed)
    *before, now = [in_file(tmp_path / f"{at}{suffix if at < 2 else '.jsonl'}", run) for at, run in enumerate(runs)]
    found = counted(runs, 1.0 if bar is None else bar)
    more = [] if bar is None else ["--solved-at", str(bar)]
    conditions: dict[str, Callable[[int, int], bool]] = {
        "solved_runs == 0 and runs == 3": lambda seen, solved: (seen, solved) == (3, 0),
        "solved_runs == 0": lambda _, solved: solved == 0,
        "solved_runs == runs": lambda seen, solved: seen == solved,
        "0 < solved_runs < runs": lambda seen, solved: 0 < solved < seen,
    }
    for condition, keeps in conditions.items():
        wanted = {key for key, counts in found.items() if keeps(*counts)}
        flags = (
            *FLAGS,
            *more,
            "--against",
            f"old={before[0]}",
            "--against",
            str(before[1]),
            "--where",
            condition,
            "--force",
        )
        done = adv(f"select {now}", *flags, "-o", f"{tmp_path}/out.jsonl")
        assert done.status == 0
        assert {row["prompt_id"] for row in rows_of(tmp_path / "out.jsonl")} == wanted
        pool = ["--to", "prompts", "--prompt", "prompt_id", "--pool", "--json"]
        done = adv(f"export {now}", *flags, *pool, "-o", f"{tmp_path}/list.jsonl")
        assert {row["prompt"] for row in rows_of(tmp_path / "list.jsonl")} == wanted
        assert json.loads(done.out)["records"] == len(wanted)


@pytest.mark.parametrize(("now", "other"), [(".jsonl", ".csv"), (".csv", ".jsonl"), (".parquet", ".csv")])
def test_digits_of_csv_are_numbers(now: str, other: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"now{now}", [{"prompt_id": key, "reward": key % 2} for key in (1, 1, 2, 2, 3)])
    before = write(
        tmp_path / f"before{other}", [{"prompt_id": key, "reward": reward} for key, reward in [(1, 1), (2, 0)]]
    )
    flags = ("--against", str(before), "--against", f"old={path}", "-o", f"{tmp_path}/out.jsonl", "--force", "--where")
    for condition, wanted in [("runs == 3", {"1", "2"}), ("solved_runs == 3", {"1"}), ("solved_runs == 2", {"3"})]:
        assert adv(f"select {path}", *flags, condition).status == 0
        assert {str(row["prompt_id"]) for row in rows_of(tmp_path / "out.jsonl")} == wanted


def test_python_takes_paths(tmp_path: Path) -> None:
    runs = runs_of(1)
    *before, now = [str(in_file(tmp_path / f"{at}.parquet", run)) for at, run in enumerate(runs)]
    options: Any = {"where": "solved_runs == 0", "against": before, "group": "prompt_id,step", "group_within": "input"}
    wanted = {key for key, (_, solved) in counted(runs, 1.0).items() if not solved}
    assert set(grpo_cli.select(now, **options).frame["prompt_id"]) == wanted
    found = grpo_cli.export(now, "prompts", prompt="prompt_id", pool=True, **options)
    assert set(found.frame["prompt"]) == wanted


def test_python_says_that_runs_are_paths_or_have_names(tmp_path: Path) -> None:
    frame = pl.DataFrame({"prompt_id": ["a", "a"], "prompt": "p", "response": ["x", "y"], "reward": [0, 1]})
    for runs in (frame, [frame], [in_file(tmp_path / "x.jsonl", runs_of(0)[0]), frame]):
        options: Any = {"where": "solved_runs == 0", "against": runs}
        with pytest.raises(UsageError, match="against takes paths; write the other run to a file"):
            grpo_cli.select(frame, **options)
        with pytest.raises(UsageError, match="against takes paths"):
            grpo_cli.export(frame, "sft", **options)
    unnamed: Any = frame
    with pytest.raises(UsageError, match="against takes runs by their names; give them as against="):
        grpo_cli.inspect(frame, against=unnamed)


def test_the_best_or_worst_solved_can_be_taken(tmp_path: Path) -> None:
    runs = runs_of(2)
    *before, now = [in_file(tmp_path / f"{at}.jsonl", run) for at, run in enumerate(runs)]
    flags = (
        *FLAGS,
        "--against",
        str(before[0]),
        "--against",
        str(before[1]),
        "--top",
        "6",
        "--by=solved_runs",
        "-o",
        "-",
    )
    kept = {row["prompt_id"] for row in adv(f"select {now}", *flags).rows}
    found = counted(runs, 1.0)
    assert min(found[key][1] for key in kept) >= sorted((solved for _, solved in found.values()), reverse=True)[2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"where": "solved_runs == 0"}, "solved_runs counts runs, and there is one; add against"),
        (
            {"where": "mean > 0", "against": ["x.jsonl"]},
            "against counts runs, and .* name neither runs nor solved_runs",
        ),
    ],
)
def test_counts_and_runs_belong_together(options: Any, says: str, tmp_path: Path) -> None:
    path = in_file(tmp_path / "x.jsonl", runs_of(0)[0])
    with pytest.raises(UsageError, match=says):
        grpo_cli.select(str(path), group="prompt_id,step", **options)


def test_runs_without_a_common_prompt_and_standard_input_twice_are_refused(tmp_path: Path) -> None:
    now, other = (in_file(tmp_path / f"{name}.jsonl", {f"{name}{i}": [0.0, 1.0] for i in range(3)}) for name in "ab")
    flags = ("--where", "solved_runs == 0", *FLAGS, "-o", "-", "--against")
    assert "no prompt is in both runs (prompt_id is a0 and b0)" in adv(f"select {now}", *flags, str(other)).err
    assert "both runs are read from standard input" in adv("select -", *flags, "-", stdin=now.read_text()).err
    assert "no such file" in adv(f"select {now}", *flags, "nowhere.jsonl").err.lower()


def test_an_input_of_another_run_is_never_written_over(tmp_path: Path) -> None:
    now, other = (in_file(tmp_path / f"{at}.jsonl", run) for at, run in enumerate(runs_of(0)[:2]))
    done = adv(
        f"select {now}", *FLAGS, "--where", "solved_runs == 0", "--against", str(other), "-o", str(other), "--force"
    )
    assert done.status != 0
    assert len(rows_of(other)) > 0
    assert "is an input: it is never overwritten" in done.err
