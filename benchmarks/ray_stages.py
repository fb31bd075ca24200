"""What a run on a Ray cluster of this machine costs, stage by stage: wall and processor time, and memory of all processes.

    python benchmarks/ray_stages.py FOLDER [ROWS] [FILES] [OPTION=VALUE ...]

Shards with groups of eight and 40 bytes of text a row are made in FOLDER unless they are there. Memory is the sum of
the proportional set sizes (pages that processes share count once), looked at twice a second.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import numpy as np
import polars as pl

from grpo_cli.options.resolve import binding_fields, plan_of
from grpo_cli.read.tables import Binding
from grpo_cli.runs import compute_ray
from grpo_cli.runs.compute_files import Job
from grpo_cli.runs.ray_cluster import connected
from grpo_cli.write.outputs import Output

GROUP = 8
TICKS = os.sysconf("SC_CLK_TCK")


def make_shards(folder: Path, rows: int, files: int) -> None:
    folder.mkdir(parents=True)
    draw, groups = np.random.default_rng(0), rows // files // GROUP
    for file in range(files):
        keys = pl.Series([f"p-{number:09d}" for number in range(file * groups, (file + 1) * groups)])
        frame = pl.DataFrame(
            {
                "prompt_id": keys.gather(np.repeat(np.arange(groups), GROUP)),
                "completion": pl.repeat("x" * 40, groups * GROUP, eager=True),
                "reward": draw.random(groups * GROUP).round(3),
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


def megabytes() -> float:
    total = 0
    for pid in family():
        with suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1])
    return total / 1000


def main() -> None:
    folder, rows, files = Path(sys.argv[1]), *(int(word) for word in [*sys.argv[2:4], "10000000", "200"][:2])
    options = dict(word.split("=", 1) for word in sys.argv[4:])
    if not folder.exists():
        make_shards(folder, rows, files)
        os.sync()  # or the disk would still be busy with them when outputs are written
    peak, looking, over = [0.0], [0.0], Event()

    def watch() -> None:
        while not over.wait(0.5):
            peak[0] = max(peak[0], megabytes())
            looking[0] = time.thread_time()  # the more memory there is, the longer: no part of the run

    Thread(target=watch, daemon=True).start()
    output = Output(to=f"{folder}.scored/", force=True)
    binding = Binding(**binding_fields({"group_within": "input", **options}))
    job = Job(inputs=[str(folder)], plan=plan_of(options), binding=binding, output=output)
    marks = list[tuple[str, float, float]]()

    def mark(name: str, done: int = 0, total: int | None = None) -> None:
        if done == total or name == "started":  # a stage says last that all of it is done
            marks.append((name, time.perf_counter(), processor_seconds() - looking[0]))

    begun = time.perf_counter()
    with connected("local"):
        mark("started")
        facts = compute_ray.run(job, mark)
        over.set()
    print(f"{facts['rows']:,} rows; load {os.getloadavg()[0]:.1f}; Ray started in {marks[0][1] - begun:.1f} s")
    for (_, before, spent), (name, now, by_now) in pairwise(marks):
        per_row = 1e9 * (by_now - spent) / facts["rows"]
        print(f"{name:10} {now - before:6.2f} s wall {by_now - spent:6.2f} s processor {per_row:6.0f} ns a row")
    wall, spent = marks[-1][1] - marks[0][1], marks[-1][2] - marks[0][2]
    print(f"{'all':10} {wall:6.2f} s wall {spent:6.2f} s processor; peak {peak[0]:.0f} MB")


if __name__ == "__main__":
    main()
