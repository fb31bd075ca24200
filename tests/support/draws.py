"""Simulated files of rollouts, as the keys of their rows: prompts that were drawn several times, and natural unequal groups.

`python -m tests.support.draws` counts how many files of each kind are warned about (300 seeds each).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

import polars as pl

from grpo_cli.read.group_keys import encode
from grpo_cli.read.repeated_draws import Draws

Keys = Sequence[int]
Way = Callable[[random.Random], Keys]

SAMPLES: Final = (2, 4, 8, 16)  # rollouts of a draw
FILES: Final = 300


def _rows(draws: Sequence[int], samples: int) -> list[int]:
    return [key for key in draws for _ in range(samples)]


def _drawn(rng: random.Random) -> tuple[list[int], int]:
    """Draws of prompts with replacement, at least one of them twice, and the rollouts of each."""
    prompts = rng.randint(8, 64)
    draws = rng.choices(range(prompts), k=rng.randint(prompts // 2, 3 * prompts))
    return [*draws, rng.choice(draws)], rng.choice(SAMPLES)


def _shuffled_epochs(rng: random.Random) -> Keys:
    prompts = range(rng.randint(8, 64))
    draws = list[int]()
    for _ in range(rng.randint(2, 4)):
        draws += rng.sample(prompts, len(prompts))
    return _rows(draws, rng.choice(SAMPLES))


def _ranks_in_turn(rng: random.Random) -> Keys:
    """Steps of draws whose rows are dealt to ranks; each rank writes all of its steps, rank after rank."""
    draws, samples = _drawn(rng)
    ranks = rng.choice((2, 4, 8))
    rows = list[int]()
    for rank in range(ranks):
        rows += _rows(draws[rank::ranks], samples)
    return rows


def _filtered(rng: random.Random) -> Keys:
    draws, samples = _drawn(rng)
    kept = [key for key in draws if rng.random() > 0.3]
    return _rows([*kept, kept[0]], samples)


DRAWN: Final[dict[str, Way]] = {
    "with replacement, in blocks": lambda rng: _rows(*_drawn(rng)),
    "40 draws of 12 prompts": lambda rng: _rows(rng.choices(range(12), k=40), 4),
    "epochs, shuffled": _shuffled_epochs,
    "ranks one after the other": _ranks_in_turn,
    "30 % of the draws filtered": _filtered,
    "5 % of the rows lost": lambda rng: [key for key in _rows(*_drawn(rng)) if rng.random() > 0.05],
}


# --- natural files: each prompt is drawn once, its groups have unequal sizes -------------------------------------------


def _in_pieces(rng: random.Random, sizes: Sequence[int], piece: Callable[[], int]) -> list[int]:
    """The rows of groups, written in pieces in any order."""
    pieces = list[list[int]]()
    for key, size in enumerate(sizes):
        left = size
        while left > 0:
            pieces.append([key] * min(left, piece()))
            left -= len(pieces[-1])
    rng.shuffle(pieces)
    return list(chain.from_iterable(pieces))


def _together(sizes: Sequence[int]) -> list[int]:
    return [key for key, size in enumerate(sizes) for _ in range(size)]


def _uniform(rng: random.Random) -> list[int]:
    most = rng.choice((4, 8, 16))
    return [rng.randint(1, most) for _ in range(rng.randint(8, 64))]


def _incomplete(rng: random.Random) -> list[int]:
    """Rollouts that failed are missing."""
    samples = rng.choice(SAMPLES)
    share = rng.choice((0.02, 0.1, 0.3))
    sizes = (sum(rng.random() > share for _ in range(samples)) for _ in range(rng.randint(8, 64)))
    return [size for size in sizes if size]


def _two_sizes(rng: random.Random) -> list[int]:
    """Hard prompts have more rollouts than easy ones."""
    few, many = sorted(rng.sample(range(1, 17), 2))
    return [many if rng.random() < 0.3 else few for _ in range(rng.randint(8, 64))]


def _until_solved(rng: random.Random) -> list[int]:
    most = rng.choice((8, 16))
    rates = (rng.random() for _ in range(rng.randint(8, 64)))
    return [next((at for at in range(1, most) if rng.random() < rate), most) for rate in rates]


def _workers(rng: random.Random, sizes: Sequence[int]) -> Keys:
    """Workers that each have some prompts and write in turns, some rows at a time."""
    lanes = [[], [], []]  # type: list[list[int]]
    for key, size in enumerate(sizes):
        lanes[key % 3] += [key] * size
    rows = list[int]()
    while any(lanes):
        lane = rng.choice([*filter(None, lanes)])
        count = rng.randint(1, 12)
        rows += lane[:count]
        del lane[:count]
    return rows


def _by_trials(_: random.Random, sizes: Sequence[int]) -> Keys:
    rows = list[int]()
    for trial in range(max(sizes)):
        rows += [key for key, size in enumerate(sizes) if size > trial]
    return rows


def _resumed(rng: random.Random, sizes: Sequence[int]) -> Keys:
    """A run that stopped in a group and went on with it at the end."""
    rows = _together(sizes)
    at = rng.randrange(1, len(rows))
    end = at + rng.randint(1, 8)
    return [*rows[:at], *rows[end:], *rows[at:end]]


ORDERS: Final[dict[str, Callable[[random.Random, Sequence[int]], Keys]]] = {
    "together": lambda _, sizes: _together(sizes),
    "shuffled": lambda rng, sizes: _in_pieces(rng, sizes, lambda: 1),
    "in pieces of 1 to 6": lambda rng, sizes: _in_pieces(rng, sizes, lambda: rng.randint(1, 6)),
    "workers in turn": _workers,
    "trial by trial": _by_trials,
    "resumed": _resumed,
}
SIZES: Final[dict[str, Callable[[random.Random], list[int]]]] = {
    "sizes of 1 to n": _uniform,
    "rollouts missing": _incomplete,
    "two sizes": _two_sizes,
    "until it is solved": _until_solved,
    # A rollout of each of two variants of the prompt, as often as there was time.
    "even sizes": lambda rng: [2 * rng.randint(1, 8) for _ in range(rng.randint(8, 64))],
    "one size": lambda rng: [rng.randint(2, 16)] * rng.randint(8, 64),
    # Prompts get twice as many rollouts as before until one is solved.
    "powers of two": lambda rng: [rng.choice(SAMPLES) for _ in range(rng.randint(8, 64))],
}


def warned(keys: Keys) -> bool:
    """Whether rows with these keys are warned about."""
    coded = encode([pl.Series("key", keys)], len(keys))
    return Draws(coded).suspicion() is not None


def warned_drawn(way: str, files: int = FILES) -> int:
    """How many of these files are warned about."""
    return sum(warned(DRAWN[way](random.Random(seed))) for seed in range(files))  # noqa: S311 - a simulation


def warned_natural(order: str, files: int = FILES) -> int:
    """How many of these files of each kind of sizes are warned about."""
    found = 0
    for sizes in SIZES.values():
        for seed in range(files):
            rng = random.Random(seed)  # noqa: S311 - a simulation
            found += warned(ORDERS[order](rng, sizes(rng)))
    return found


def main() -> None:
    """Print the counts."""
    for way in DRAWN:
        sys.stdout.write(f"{way:30}{warned_drawn(way):6} of {FILES}\n")
    for order in ORDERS:
        sys.stdout.write(f"natural, {order:21}{warned_natural(order):6} of {FILES * len(SIZES):,}\n")


if __name__ == "__main__":
    main()
