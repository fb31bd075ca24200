"""Files made to trip what is guessed about repeated draws and ids of rollouts, beside the same rows under keys that say it.

A silent merge is a file whose advantages differ from those under its true keys without an error or a warning; a false stop is
an error about a file of which nothing is wrong. `python -m tests.nightly.test_adversaries` counts both (50 files each).
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.command import adv
from tests.support.jobs import rows_of, write

Rows = list[dict[str, Any]]
FILES: Final = 50
SAMPLES: Final = ("sample_idx", "sample_index", "sample_id", "rollout_idx")
ROLLOUTS: Final = ("rollout_id", "trajectory_id", "traj_uid", "episode_id")


def _rewards(rng: random.Random, count: int) -> list[float]:
    """Often 0 and 1 alone, so that rows of one id are equal by chance."""
    return [rng.choice((0.0, 1.0)) if rng.random() < 0.8 else rng.randint(0, 4) / 4 for _ in range(count)]


def _rows(rng: random.Random, prompts: Sequence[int], sizes: Callable[[], int]) -> Rows:
    """Rows of these draws; `draw` is the true key and `n` the number of a row in its draw."""
    rows = Rows()
    for at, key in enumerate(prompts):
        for n, reward in enumerate(_rewards(rng, sizes())):
            rows.append({"prompt_id": f"p{key}", "draw": at, "n": n, "reward": reward})
    return rows


def _draws(rng: random.Random, sizes: Callable[[], int]) -> Rows:
    """Prompts drawn once to three times."""
    prompts = list[int]()
    for key in range(rng.randint(4, 16)):
        prompts += [key] * rng.choice((1, 1, 2, 3))
    rng.shuffle(prompts)
    return _rows(rng, prompts, sizes)


def _once(rng: random.Random, sizes: Callable[[], int]) -> Rows:
    """Prompts that are drawn once."""
    return _rows(rng, range(rng.randint(4, 16)), sizes)


def _renamed(rows: Rows, name: str, value: Callable[[dict[str, Any]], Any]) -> Rows:
    return [
        {"prompt_id": row["prompt_id"], name: value(row), "reward": row["reward"], "draw": row["draw"]} for row in rows
    ]


def _turns(rng: random.Random, rows: Rows, *, order: str) -> Rows:
    """Each row as some turns, which all have its reward; only the first counts in the truth."""
    name = rng.choice(ROLLOUTS)
    made = Rows()
    for at, row in enumerate(rows):
        turns = [*range(rng.randint(1, 4))]
        if order != "rising":
            turns.reverse() if order == "falling" else rng.shuffle(turns)
        made += [{**row, name: f"r{at}", "turn": turn, "first": k == 0} for k, turn in enumerate(turns)]
    return [{key: value for key, value in row.items() if key != "n"} for row in made]


def _constant_in_a_step(rng: random.Random) -> Rows:
    """Every prompt in two training steps, which `rollout_id` numbers; the rewards of a step are often equal."""
    rows = Rows()
    for step in range(2):
        for key in range(rng.randint(2, 4) if step else 4):
            rows += [
                {"prompt_id": f"p{key}", "rollout_id": step, "reward": one, "draw": key} for one in _rewards(rng, 2)
            ]
    return rows


def _lossy(rng: random.Random, rows: Rows) -> Rows:
    return [row for row in rows if rng.random() > 0.15]


def _numbered(rng: random.Random, rows: Rows) -> Rows:
    return _renamed(rows, rng.choice(SAMPLES), lambda row: row["n"])


WAYS: Final[dict[str, Callable[[random.Random], Rows]]] = {
    # drawn several times: anything but silence
    "sample numbers restart": lambda rng: _numbered(rng, _draws(rng, lambda: 4)),
    "sample numbers restart, with gaps": lambda rng: _numbered(rng, _lossy(rng, _draws(rng, lambda: 4))),
    "draws of several sizes": lambda rng: _numbered(rng, _draws(rng, lambda: rng.choice((2, 4, 8)))),
    "rollout ids restart": lambda rng: _renamed(_draws(rng, lambda: 4), rng.choice(ROLLOUTS), lambda row: row["n"]),
    "draws without numbers": lambda rng: _renamed(_draws(rng, lambda: 4), "text", lambda row: f"{row['n']}"),
    # drawn once: neither an error nor other numbers
    "sizes are multiples": lambda rng: _numbered(rng, _once(rng, lambda: 4 * rng.randint(1, 3))),
    "sample numbers with gaps": lambda rng: _numbered(rng, _lossy(rng, _once(rng, lambda: 8))),
    "rollout ids restart in groups": lambda rng: _renamed(
        _once(rng, lambda: 4), rng.choice(ROLLOUTS), lambda row: row["n"]
    ),
    "rollout ids are steps": _constant_in_a_step,
    "turns rise": lambda rng: _turns(rng, _once(rng, lambda: 4), order="rising"),
    "turns fall": lambda rng: _turns(rng, _once(rng, lambda: 4), order="falling"),
    "turns in any order": lambda rng: _turns(rng, _once(rng, lambda: 4), order="any"),
}


def truth(rows: Rows, place: Path) -> list[float]:
    """The advantages under the true keys, one row a rollout."""
    counted = [{"draw": row["draw"], "reward": row["reward"]} for row in rows if row.get("first", True)]
    write(place / "true.jsonl", counted)
    done = adv("compute true.jsonl -g draw --group-size none -o true.out.jsonl -q", cwd=place)
    if done.status:
        done = adv("compute true.jsonl -g draw -o true.out.jsonl -q", cwd=place)
    assert done.status == 0, done.err
    each = iter(rows_of(place / "true.out.jsonl"))
    found = []
    last = 0.0
    for row in rows:
        last = next(each)["advantage"] if row.get("first", True) else last
        found.append(last)
    return found


def verdict(way: str, seed: int) -> str:
    """What the tool makes of this file: right, warned, stopped or a silent merge."""
    rows = WAYS[way](random.Random(f"{way} {seed}"))  # noqa: S311 - a simulation
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write(place / "in.jsonl", [{k: v for k, v in row.items() if k not in {"draw", "first", "n"}} for row in rows])
        done = adv("compute in.jsonl -o out.jsonl --json", cwd=place)
        if done.status:
            return "stopped"
        right = [row["advantage"] for row in rows_of(place / "out.jsonl")] == pytest.approx(truth(rows, place))
        warned = bool(json.loads(done.out)["warnings"])
    return ("right, warned" if warned else "right") if right else "warned" if warned else "silent merge"


ALLOWED: Final = {
    **{way: {"right", "right, warned", "warned"} for way in WAYS if "restart" in way or "draws" in way},
    **{way: {"stopped"} for way in WAYS if way.startswith("turns")},  # it asks what counts
}
ONCE: Final = {"right", "right, warned"}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_merged_in_silence_and_nothing_right_is_stopped(way: str) -> None:
    counts = Counter(verdict(way, seed) for seed in range(20))
    allowed = ONCE if way == "rollout ids restart in groups" else ALLOWED.get(way, ONCE)
    assert {*counts} <= allowed, counts


def main() -> None:
    """Print the counts."""
    for way in WAYS:
        counts = Counter(verdict(way, seed) for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else FILES))
        sys.stdout.write(f"{way:36}{dict(counts)}\n")


if __name__ == "__main__":
    main()
