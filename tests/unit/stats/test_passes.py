"""pass@k and pass^k of one run: against every draw of k rollouts, and against the same numbers of a comparison of runs."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest

import grpo_cli
from tests.support.command import adv, facts_of, here, ran
from tests.support.jobs import write

__all__ = ["here"]

# By prompt: all solved, none, some, a partial reward, one rollout alone.
REWARDS: dict[str, list[float]] = {"a": [1, 1, 1], "b": [0, 0, 0, 0], "c": [1, 0, 0, 1], "d": [0.5, 1], "e": [1]}


def rows() -> list[dict[str, Any]]:
    return [{"prompt_id": key, "reward": reward} for key, rewards in REWARDS.items() for reward in rewards]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_of_every_draw_of_k_rollouts_some_or_all_are_solved(k: int) -> None:
    write("in.jsonl", rows())
    found = facts_of(f"inspect in.jsonl --pass-at {k}")["draws"]
    drawn = [
        [[reward >= 1 for reward in draw] for draw in combinations(of, k)] for of in REWARDS.values() if len(of) >= k
    ]
    (one,) = found["passes"]
    assert one["pass_at"]["mean"] == pytest.approx(mean(mean(map(any, draws)) for draws in drawn))
    assert one["pass_all"]["mean"] == pytest.approx(mean(mean(map(all, draws)) for draws in drawn))
    assert one["left_out"] == len(REWARDS) - len(drawn)
    assert [found[word] for word in ("always", "sometimes", "never")] == [2, 2, 1]


def test_one_run_has_the_numbers_that_it_has_beside_another() -> None:
    for name in ("in", "before"):
        write(f"{name}.jsonl", rows())
    alone = facts_of("inspect in.jsonl --pass-at 1,2,3")["draws"]["passes"]
    beside = facts_of("inspect in.jsonl --against before.jsonl --pass-at 1,2,3")["runs"][-1]["passes"]
    assert alone == beside


def test_a_gate_names_it_and_python_has_it_and_a_page_draws_it() -> None:
    write("in.jsonl", rows())
    assert adv("inspect in.jsonl --pass-at 2 --fail-on 'draws.pass_at.2.mean < 0.9'").status == 3
    done = adv("inspect in.jsonl --fail-on 'draws.pass_at.2.mean < 0.9'")
    assert (done.status, "--pass-at" in done.err) == (2, True), done
    assert grpo_cli.inspect(pl.DataFrame(rows()), pass_at="2").facts["draws"]["always"] == 2  # noqa: S106 - no password
    assert adv("report in.jsonl --pass-at 2 -o out.html").status == 0
    assert "Of k rollouts of a group" in Path("out.html").read_text(encoding="utf-8")


def test_rewards_that_are_no_shares_are_solved_at_their_highest() -> None:
    write("in.jsonl", [{"prompt_id": at // 4, "reward": 10 * (at % 2)} for at in range(8)])
    done = adv("inspect in.jsonl --pass-at 2")
    assert "of 2 groups: 0 always solved (a reward of 10), 2 sometimes, 0 never" in " ".join(done.out.split())
    assert json.loads(adv("inspect in.jsonl --pass-at 2 --json").out)["draws"]["solved_at"] == 10
    write("old.jsonl", [{"prompt_id": at // 4, "reward": at % 2} for at in range(8)])
    for words, where in (
        ("--old-rewards old.jsonl", "beside --old-rewards"),
        ("--format csv", "on the table of --format"),
    ):
        assert f"--pass-at has no effect {where}" in adv(f"inspect in.jsonl --pass-at 2 {words}").err


def test_what_is_solved_is_said_where_rewards_lie_between() -> None:
    write("in.jsonl", rows())
    assert "2 always solved (a reward of 1), 2 sometimes, 1 never" in " ".join(
        ran("inspect in.jsonl --pass-at 1").out.split()
    )
    write("in.jsonl", [row for row in rows() if row["reward"] in (0, 1)])
    assert "always solved, " in ran("inspect in.jsonl --pass-at 1").out
