"""A minute each of random files: every answer is right or one line of refusal, never a traceback.

FUZZ_SECONDS is how long each test goes on, FUZZ_SEED where it begins (1, unless given): the same files each time, and more
of them the longer it runs. A failure names the seed of its file.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.support.command import Done, adv
from tests.support.jobs import write

FILES = 40  # that one process reads
SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
TEXTS = [
    "", "x", 'a "quoted" one', "\\", "\n\t", "é", "漢字", "\U0001f600", "\u2028", "}", '{"reward": 9}',
    ',"advantage":1}', "\x7f",
]  # fmt: skip
COMPUTE = """
import sys
from tests.support.command import adv
for path in sys.argv[1:]:
    for options in ([], ["--scale", "none"]):
        print(path, flush=True)  # the last one that is printed is the one that crashed
        done = adv("compute", path, "-o", f"{path}.out.{path.rpartition('.')[2]}", "-q", "--force", *options)
        refused = done.status == 1 and done.err.startswith("error: ") and done.err.count("\\n") == 1
        assert done.status == 0 or refused, (path, done)
"""
NAMES = ["text", "reward ", "Reward", "a.b", "messages", "ünïcode", 'q"', "reward\\", "extra"]


def seeds() -> Iterator[random.Random]:
    """One generator after the other until the time is up."""
    seed = int(os.environ.get("FUZZ_SEED", "1"))
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            yield random.Random(seed)  # noqa: S311 - any numbers do
        except GeneratorExit:
            print(f"FUZZ_SEED={seed}")  # noqa: T201 - pytest shows it where the test has failed
            raise
        seed += 1


def anything(draw: random.Random, depth: int = 0) -> Any:
    """A value of JSON."""
    kind = draw.randrange(8 if depth < 3 else 6)
    if kind < 3:
        return draw.choice(TEXTS) * draw.choice([1, 1, 1, 50])
    if kind < 6:
        return draw.choice([None, True, False, 0, -1, 1 << 70, 0.1, 1e300, 5e-324])
    if kind == 6:
        return [anything(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {name: anything(draw, depth + 1) for name in draw.sample([*NAMES, "reward"], draw.randrange(3))}


def lines(draw: random.Random) -> tuple[list[str], list[tuple[Any, float]]]:
    """Lines with a key and a reward among other fields in any order, and these two of each."""
    texts = []
    known = []
    keys: list[Any] = draw.choice([["a", "b", "c"], [1, 2, 3], ["1", 1, 2], ["é", "\\", ""]])
    for _ in range(draw.choice([1, 5, 40, 400])):
        row = {name: anything(draw) for name in draw.sample(NAMES, draw.randrange(4))}
        key = draw.choice(keys)
        reward = draw.choice([0, 1, 0.5, 1.0, -3, 1e-9, 12345678.9])
        row |= {"prompt_id": key, "reward": reward}
        fields = draw.sample(sorted(row.items()), len(row)) if draw.random() < 0.5 else list(row.items())
        separators = draw.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
        texts.append(json.dumps(dict(fields), ensure_ascii=draw.random() < 0.5, separators=separators))
        known.append((key, float(reward)))
    return texts, known


def refused_in_one_line(done: Done) -> bool:
    return done.status == 1 and done.err.startswith("error: ")


def test_any_lines_keep_every_byte_and_get_the_numbers_of_plain_python(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    out = tmp_path / "out.jsonl"
    for draw in seeds():
        texts, known = lines(draw)
        ending = draw.choice(["\n", "\r\n"])
        path.write_bytes((ending.join(texts) + draw.choice(["", ending])).encode())
        options = ["--scale=none", "--singleton=zero", "--group=prompt_id", "--reward=reward", "-q", "--force"]
        done = adv(f"compute {path} -o {out}", *options)
        assert done.status == 0, done.err
        written = out.read_bytes().decode().split(ending)
        groups: dict[str, list[float]] = {}
        for key, reward in known:
            groups.setdefault(repr(key), []).append(reward)
        for text, line, (key, reward) in zip(texts, written, known, strict=False):
            kept, _, value = line.rpartition(',"advantage":')
            assert kept + "}" == text
            group = groups[repr(key)]
            assert float(value.removesuffix("}")) == pytest.approx(reward - fmean(group), rel=1e-9, abs=1e-9)
        assert [line for line in written[len(texts) :] if line] == []


def spoiled(right: bytes, draw: random.Random) -> bytes:
    """The same bytes with some others among them, or cut short."""
    wrong = bytearray(right)
    for _ in range(draw.choice([1, 1, 3, 20])):
        wrong[draw.randrange(len(wrong))] = draw.randrange(256)
    if draw.random() < 0.2:
        del wrong[draw.randrange(len(wrong)) :]
    return bytes(wrong)


def good(path: Path) -> bytes:
    """A file with some rows."""
    rows = [{"prompt_id": f"p{at // 4}", "reward": at % 3, "text": TEXTS[at % len(TEXTS)]} for at in range(40)]
    return write(path, rows).read_bytes()


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "json"])
def test_a_file_with_wrong_bytes_is_computed_or_refused_in_one_line(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"in.{suffix}"
    right = good(path)
    for draw in seeds():
        path.write_bytes(spoiled(right, draw))
        done = adv("compute", str(path), "-o", str(tmp_path / f"out.{suffix}"), "-q", "--force")
        assert done.status == 0 or refused_in_one_line(done), done


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_binary_file_with_wrong_bytes_never_crashes_the_process(tmp_path: Path, suffix: str) -> None:
    """In processes of their own: what points out of its buffers would take pytest with it."""
    right = good(tmp_path / f"good.{suffix}")
    draws = seeds()
    while batch := list(islice(draws, FILES)):
        names = [f"{tmp_path}/{number}.{suffix}" for number in range(len(batch))]
        for name, draw in zip(names, batch, strict=True):
            Path(name).write_bytes(spoiled(right, draw))
        words = [sys.executable, "-c", COMPUTE, *names]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.returncode} at {done.stdout.splitlines()[-1:]}\n{done.stderr[-2000:]}"
