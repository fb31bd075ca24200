"""Make the sample files beside this script: `python sample_data/make.py [DIRECTORY]`.

The tasks and the answers are written by hand, the rewards are computed by the checkers below, and the seed
only decides the order of the answers and their wording. Running it again gives the same bytes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SEED: Final = 20240205  # the month of the GRPO paper
STEPS_SEED: Final = 14  # chosen: with it the mean reward rises in every step
HERE: Final = Path(__file__).resolve().parent
Row = dict[str, Any]


def exact(answer: str, truth: str) -> float:
    """1 for the right answer, else 0."""
    return float(answer == truth)


def letters_in_place(answer: str, truth: str) -> float:
    """Share of the letters that stand where they should."""
    hits = sum(a == b for a, b in zip(answer, truth, strict=False))
    return round(hits / max(len(answer), len(truth)), 4)


def overlap(answer: str, truth: str) -> float:
    """Share of the listed items that both have in common (Jaccard)."""
    given, wanted = set(answer.split()), set(truth.split())
    return round(len(given & wanted) / len(given | wanted), 4)


@dataclass(frozen=True)
class Task:
    """A prompt, the answer that earns 1, the answers that were sampled, and how they are judged."""

    prompt_id: str
    asks: str
    truth: str
    sampled: tuple[str, ...]
    reward: Callable[[str, str], float] = exact


TASKS: Final = (
    Task("add-17-25", "17 + 25", "42", ("42", "42", "42", "32", "42", "43", "412", "42")),
    Task("multiply-6-7", "6 * 7", "42", ("42", "42", "42", "42", "42")),
    Task(
        "reverse-polars",
        "'polars' spelled backwards",
        "sralop",
        ("sralop", "sralop", "sralpo", "srolap", "polars", "slarop"),
        letters_in_place,
    ),
    Task(
        "primes-below-20",
        "the primes below 20",
        "2 3 5 7 11 13 17 19",
        (
            "2 3 5 7 11 13 17 19",
            "1 2 3 5 7 11 13 17 19",
            "2 3 5 7 9 11 13 15 17 19",
            "3 5 7 11 13",
            "2 3 5 7",
        ),
        overlap,
    ),
    Task(
        "fibonacci-50",
        "the 50th Fibonacci number",
        "12586269025",
        ("7778742049", "20365011074", "12586269024", "50"),
    ),
    Task(
        "vowels-in-onomatopoeia",
        "the number of vowels in 'onomatopoeia'",
        "8",
        ("8", "7", "6", "8", "7", "5", "7"),
    ),
    Task(
        "sort-banana",
        "the letters of 'banana' in order",
        "aaabnn",
        ("aaabnn", "abn", "aabbnn"),
        letters_in_place,
    ),
    Task("decimal-3-8", "3/8 as a decimal number", "0.375", ("0.375", "0.38", "0.375", "2.667")),
    Task("hex-255", "255 in hexadecimal", "ff", ("ff",)),
    Task("minutes-in-a-day", "the minutes in a day", "1440", ("1440", "1440", "24")),
)
WORDINGS: Final = (
    "{answer}",
    "The answer is {answer}",
    "I looked for {asks} and got {answer}",
    "Let me think about {asks}. Step by step this gives {answer}",
)
# How likely the right answer is in each step: a policy that learns, one prompt faster than another.
PROGRESS: Final[Mapping[str, tuple[float, ...]]] = {
    "add-17-25": (0.5, 0.7, 0.9, 1.0),
    "reverse-polars": (0.2, 0.4, 0.5, 0.7),
    "vowels-in-onomatopoeia": (0.3, 0.3, 0.5, 0.6),
    "fibonacci-50": (0.0, 0.0, 0.1, 0.3),
}
# Which rewards of which (prompt, sample) are null, and which are not there at all; no row lost both.
NULL: Final = {("add-17-25", 1): ("format",), ("decimal-3-8", 2): ("accuracy",)}
ABSENT: Final = {
    ("reverse-polars", 3): ("accuracy",),
    ("hex-255", 0): ("format",),
    ("hex-255", 2): ("format",),
}


def one_step() -> list[Row]:
    """Every task once, its answers in random order and wording; length counts the words."""
    rng = Random(SEED)  # noqa: S311 - sample data
    rows = []
    for task in TASKS:
        for sample, answer in enumerate(rng.sample(task.sampled, len(task.sampled))):
            completion = rng.choice(WORDINGS).format(asks=task.asks, answer=answer)
            reward = task.reward(answer, task.truth)
            rows.append(_row(task.prompt_id, sample, reward=reward, length=_words(completion), completion=completion))
    return rows


def chats() -> list[Row]:
    """The rows of one step with their texts as chat messages."""
    asks = {task.prompt_id: task.asks for task in TASKS}
    return [
        {
            "prompt_id": row["prompt_id"],
            "prompt": [{"role": "user", "content": f"What is {asks[row['prompt_id']]}?"}],
            "completion": [{"role": "assistant", "content": row["completion"]}],
            "reward": row["reward"],
        }
        for row in one_step()
    ]


def four_steps() -> list[Row]:
    """The same four prompts in each of four steps, four samples each."""
    rng = Random(STEPS_SEED)  # noqa: S311 - sample data
    return [
        {"step": step} | _row(prompt_id, sample, reward=float(rng.random() < chances[step]), length=rng.randint(3, 20))
        for step in range(4)
        for prompt_id, chances in PROGRESS.items()
        for sample in range(4)
    ]


def two_rewards() -> list[Row]:
    """Accuracy and format, each now and then null or not there."""
    rng = Random(SEED)  # noqa: S311 - sample data
    rows = []
    for prompt_id in ("add-17-25", "decimal-3-8", "reverse-polars", "hex-255"):
        for sample in range(4):
            rewards: Row = {"accuracy": float(rng.random() < 0.5), "format": rng.choice((0.0, 0.5, 1.0))}
            rewards |= dict.fromkeys(NULL.get((prompt_id, sample), ()))
            for name in ABSENT.get((prompt_id, sample), ()):
                del rewards[name]
            rows.append(_row(prompt_id, sample, **rewards))
    return rows


def _row(prompt_id: str, sample: int, **values: object) -> Row:
    return {"prompt_id": prompt_id, "sample": sample, **values}


def _words(text: str) -> int:
    return len(text.split())


def _write_lines(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", newline="\n")


def _write_parquet(path: Path, rows: list[Row]) -> None:
    """Three row groups, so that even this little file has what big ones have."""
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=20, compression="zstd")


def main(directory: Path) -> None:
    """Write all files."""
    rows = one_step()
    _write_lines(directory / "rewards.jsonl", rows)
    _write_parquet(directory / "rewards.parquet", rows)
    _write_lines(directory / "chats.jsonl", chats())
    _write_lines(directory / "steps.jsonl", four_steps())
    _write_lines(directory / "two_rewards.jsonl", two_rewards())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
