"""Whole processes against their peers: wall time and peak memory, ratios of medians from one run.

    python benchmarks/run.py --scratch DIR            # every case; needs about 12 GB there
    python benchmarks/run.py wide-parquet --repeat 3  # one case

Each peer does the same job: read, GRPO advantages by prompt, write the file with one more column, fsync. Rounds
are interleaved (tool, peers, tool, peers, ...), so that a slow minute of the machine hits all of them; the page
cache is warm. Peak memory is the child's maximum resident set.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """A generated input and who runs on it."""

    name: str
    suffix: str
    rows: int
    text: int
    peers: tuple[str, ...]
    bars: str


CASES = {
    case.name: case
    for case in (
        Case("wide-parquet", "parquet", 200_000, 4096, ("polars", "duckdb", "pandas", "cp"),
             "wall <= 0.2 x polars, <= 0.2 x duckdb; memory <= 0.3 x polars"),
        Case("narrow-parquet", "parquet", 10_000_000, 0, ("polars", "duckdb", "pandas", "cp"),
             "wall <= 0.9 x polars (aim 0.75), <= 0.85 x duckdb; memory <= polars"),
        Case("wide-jsonl", "jsonl", 200_000, 4096, ("polars", "duckdb", "loop", "cp"),
             "wall <= 1.0 x polars, <= 2.5 x cp (aim 1.6); memory <= 0.3 x polars"),
        Case("narrow-jsonl", "jsonl", 4_000_000, 0, ("polars", "duckdb", "loop", "cp"),
             "wall <= 0.9 x polars, <= duckdb; memory <= polars"),
        Case("narrow-parquet-50m", "parquet", 50_000_000, 0, (),
             "linear from 10M (+-15 %), <= 100 bytes a row"),
    )
}  # fmt: skip


def command(who: str, source: Path, target: Path) -> list[str]:
    """How a contestant is started."""
    if who == "grpo-adv":
        return [sys.executable, "-m", "grpo_cli", "compute", str(source), "-o", str(target), "--force", "--quiet"]
    return [sys.executable, str(HERE / "peers.py"), who, str(source), str(target)]


def measured(arguments: list[str]) -> tuple[float, float]:
    """Wall seconds and peak megabytes of one process."""
    started = time.perf_counter()
    process = subprocess.Popen(arguments)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments} failed with {process.returncode}")
    return seconds, usage.ru_maxrss / 1024


def compared(case: Case, source: Path, scratch: Path, repeat: int) -> Iterator[str]:
    """Interleaved rounds, then one line per contestant."""
    contestants = ("grpo-adv", *case.peers)
    seen: dict[str, list[tuple[float, float]]] = {who: [] for who in contestants}
    measured(command(contestants[0], source, scratch / f"warm.{case.suffix}"))
    for _ in range(repeat):
        for who in contestants:
            target = scratch / f"out-{who}.{case.suffix}"
            seen[who].append(measured(command(who, source, target)))
            target.unlink()
    own = [statistics.median(values) for values in zip(*seen["grpo-adv"], strict=True)]
    for who in contestants:
        wall, memory = (statistics.median(values) for values in zip(*seen[who], strict=True))
        yield f"| {case.name} | {who} | {wall:.2f} | {own[0] / wall:.2f} | {memory:,.0f} | {own[1] / memory:.2f} |"


def made(case: Case, scratch: Path) -> Path:
    """The input, generated once."""
    path = scratch / f"{case.name}.{case.suffix}"
    if not path.exists():
        subprocess.run(
            [sys.executable, str(HERE / "generate.py"), str(path), str(case.rows), str(case.text)], check=True
        )
    return path


def main() -> None:
    """Run the cases that are named, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), choices=[*CASES, []], metavar="CASE")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=None)
    given = parser.parse_args()
    scratch = given.scratch or Path(tempfile.mkdtemp())
    version = sys.version.split()[0]
    print(f"{os.cpu_count()} cores, Python {version}, median of {given.repeat} interleaved rounds, warm page cache\n")
    print("| case | who | wall s | grpo-adv / who | peak MB | grpo-adv / who |")
    print("|---|---|---|---|---|---|")
    for name in given.cases:
        for line in compared(CASES[name], made(CASES[name], scratch), scratch, given.repeat):
            print(line, flush=True)


if __name__ == "__main__":
    main()
