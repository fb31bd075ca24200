"""What a run on a Ray cluster of this machine costs, stage by stage: wall and processor time, and memory.

    python benchmarks/ray_stages.py FOLDER [ROWS] [FILES] [size=8] [key=short|text] [OPTION=VALUE ...]

Files with groups of `size` rows and 40 bytes of text a row are made in FOLDER unless they are there; the key is an id of
11 bytes, or a prompt of 200. `all` is the proportional set size of all processes (pages that they share count once), looked
at ten times a second, `driver` the largest resident set of this process, which computes, and `store` what it has mapped of
Ray's store.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import numpy as np
import polars as pl

from grpo_cli.options.given import Given
from grpo_cli.runs import compute_files
from grpo_cli.runs.compute_files import Job
from grpo_cli.runs.on_ray import on_ray
from grpo_cli.write.outputs import Output

TICKS = os.sysconf("SC_CLK_TCK")


def make_shards(folder: Path, rows: int, files: int, size: int, key: str) -> None:
    folder.mkdir(parents=True)
    draw, groups = np.random.default_rng(0), rows // files // size
    more = " and what follows from it" * 7 if key == "text" else ""
    for file in range(files):
        keys = pl.Series([f"p-{number:09d}{more}" for number in range(file * groups, (file + 1) * groups)])
        frame = pl.DataFrame(
            {
                "prompt_id": keys.gather(np.repeat(np.arange(groups), size)),
                "completion": pl.repeat("x" * 40, groups * size, eager=True),
                "reward": draw.random(groups * size).round(3),
            }
        )
        frame.write_parquet(folder / f"shard_{file:05d}.parquet")


def family() -> list[int]:
    """The numbers of this process and of all below it."""
    parents = dict[int, int]()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return sorted(below)


def processor_seconds() -> float:
    total = 0
    for pid in family():
        with suppress(OSError):
            total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return total / TICKS


def megabytes(processes: Iterable[int]) -> float:
    total = 0
    for pid in processes:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1])
    return total / 1000


def store_megabytes() -> float:
    """What this process shares with the store of Ray, which is mapped as a whole and present where it was used."""
    total, is_store = 0, False
    with suppress(OSError):
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if not line[:1].isupper():
                is_store = "plasma" in line
            elif is_store and line.startswith("Rss:"):
                total += int(line.split()[1])
    return total / 1000


def main() -> None:
    folder, rows, files = Path(sys.argv[1]), *(int(word) for word in [*sys.argv[2:4], "10000000", "200"][:2])
    options = {"size": "8", "key": "short"} | dict(word.split("=", 1) for word in sys.argv[4:])
    size, key = int(options.pop("size")), options.pop("key")
    if not folder.exists():
        make_shards(folder, rows, files, size, key)
        os.sync()  # or the disk would still be busy with them when outputs are written
    peaks, looking, over = {"all": 0.0, "store": 0.0}, [0.0], Event()

    def watch() -> None:
        while not over.wait(0.1):
            found = {"all": megabytes(family()), "store": store_megabytes()}
            peaks.update({name: max(peaks[name], size) for name, size in found.items()})
            looking[0] = time.thread_time()  # the more memory there is, the longer: no part of the run

    Thread(target=watch, daemon=True).start()
    output = Output(to=f"{folder}.scored/", force=True)
    job = replace(Job.of(Given({"group_within": "input", **options, "inputs": [str(folder)]})), output=output)
    marks = list[tuple[str, float, float]]()

    def mark(name: str, done: int = 0, _: int | None = None) -> None:
        if not done:  # a stage begins
            marks.append((name, time.perf_counter(), processor_seconds() - looking[0]))

    begun = time.perf_counter()
    with on_ray(None) as workers:
        workers.begin([], mark)
        mark("started")
        facts = compute_files.run(job, mark, workers).facts
        rows = facts.summary.rows if isinstance(facts, compute_files.Facts) else 0
        mark("ended")
        over.set()
    print(f"{rows:,} rows; load {os.getloadavg()[0]:.1f}; Ray started in {marks[0][1] - begun:.1f} s")
    for (name, before, spent), (_, now, by_now) in pairwise(marks[1:]):
        per_row = 1e9 * (by_now - spent) / rows
        print(f"{name:10} {now - before:6.2f} s wall {by_now - spent:6.2f} s processor {per_row:6.0f} ns a row")
    wall, spent = marks[-1][1] - marks[0][1], marks[-1][2] - marks[0][2]
    peaks["driver"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    said = ", ".join(f"{name} {size:.0f}" for name, size in peaks.items())
    print(f"{'together':10} {wall:6.2f} s wall {spent:6.2f} s processor; peaks in MB: {said}")


if __name__ == "__main__":
    main()
