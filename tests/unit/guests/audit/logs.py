"""Logs of forty groups that the tests of the audit share, and what is read from its answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

import grpo_cli
from grpo_cli.guests.audit.run import Job, run
from tests.support.command import adv
from tests.support.jobs import write

Groups = Any  # an array with a line for each group


KEY: dict[str, Any] = {
    "group": "prompt_id"
}  # without it, a log that no formula explains is searched once for each way to group


def drawn(groups: int, size: int, seed: int = 0) -> Groups:
    return np.random.default_rng(seed).random((groups, size)).round(3)


def solved(*counts: int, size: int = 8) -> Groups:
    """Groups of zeros and ones, with these numbers of ones."""
    return (np.arange(size) < np.array(counts)[:, None]).astype(float)


def mean(groups: Groups) -> Any:
    return groups.mean(axis=1, keepdims=True)


def std(groups: Groups, ddof: int = 1) -> Any:
    return groups.std(axis=1, ddof=ddof, keepdims=True)


def centred(groups: Groups) -> Groups:
    return groups - mean(groups)


def standard(groups: Groups, epsilon: float = 1e-4, ddof: int = 1) -> Groups:
    return centred(groups) / (std(groups, ddof) + epsilon)


GROUPS = drawn(40, 8)  # the same in most tests, because what plans give for them is cached
STANDARD = standard(GROUPS)
MIXED = solved(1, 3, 2, 6, 2, 5, 7, 1, 4, 4, 0, 8, 6, 3)
NO_FORMULA = {"near", "none"}  # the verdicts that name none


def rows(groups: Groups, advantages: Groups, stored: Any = np.float32, **columns: Any) -> pl.DataFrame:
    keys = [f"p{k}" for k, group in enumerate(groups) for _ in group]
    logged = np.concatenate([*advantages]).astype(stored)
    return pl.DataFrame({"prompt_id": keys, "reward": np.concatenate([*groups]), "advantage": logged, **columns})


def with_keys(frame: pl.DataFrame, group_of: Callable[[int], int]) -> pl.DataFrame:
    """Other keys for the forty groups of eight."""
    keys = [f"p{group_of(row // 8)}" for row in range(len(frame))]
    return frame.with_columns(pl.Series("prompt_id", keys))


def found(frame: pl.DataFrame, column: str | None = None, **options: Any) -> Any:
    facts = grpo_cli.audit(frame, column, **options)
    json.dumps(facts, allow_nan=False)
    return facts


def match_of(groups: Groups, logged: Groups, stored: Any = np.float32, **options: Any) -> Any:
    return found(rows(groups, logged, stored), **options)["match"]


def causes(facts: Any) -> list[str]:
    """What differs and why: of each cause its name, its groups and its rows."""
    return [f"{one['cause']}: {one['groups']}, {one['rows']}" for one in facts["causes"]]


def keys(facts: Any) -> list[str]:
    return [one["key"] for one in facts["match"]["disagreements"]]


def said(frame: pl.DataFrame, flags: str = "") -> str:
    """What the command prints, in one line."""
    write("a.jsonl", frame.to_dicts())
    done = adv(f"audit a.jsonl {flags}")
    assert done.status == 0, done.err
    return " ".join(done.out.split())


def phases_of(frame: pl.DataFrame) -> list[str]:
    """What is said while a file is audited."""
    frame.write_parquet("logged.parquet")
    phases = []
    run(Job(inputs=["logged.parquet"]), lambda name, *_: phases.append(name))
    return list(dict.fromkeys(phases))
