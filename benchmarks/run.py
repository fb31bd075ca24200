"""Whole processes against their peers: wall time and peak memory, ratios of medians from one run.

    python benchmarks/run.py --scratch DIR            # every case; needs about 12 GB there
    python benchmarks/run.py wide-parquet --repeat 3  # one case
    python benchmarks/run.py alone --scratch DIR      # what has no peer: 50M rows, thousands of files, in place

Each peer does the same job: read, GRPO advantages by prompt, write the file with one more column, fsync. Rounds
are interleaved (tool, peers, tool, peers, ...), so that a slow minute of the machine hits all of them, and each begins
with another one and goes the other way round, since memory that a neighbour has just freed is taken faster; the page
cache is warm. Peak memory is the child's maximum resident set.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        Case("mixed-jsonl", "jsonl", 4_000_000, 0, ("polars", "duckdb", "cp"), "none: lines and rewards that differ"),
    )
}  # fmt: skip
LARGE: Final = Case("narrow-parquet-50m", "parquet", 50_000_000, 0, (), "linear from 10M (+-15 %), <= 100 bytes a row")
FILES: Final = (500, 5000)


def command(who: str, source: Path, target: Path) -> list[str]:
    """How a contestant is started."""
    if who == "grpo-adv":
        return [sys.executable, "-m", "grpo_cli", "compute", str(source), "-o", str(target), "--force", "--quiet"]
    return [sys.executable, str(HERE / "peers.py"), who, str(source), str(target)]


class Taken(NamedTuple):
    """What one process took: wall and processor seconds, peak megabytes, bytes that it wrote (calls, not disk)."""

    wall: float
    processor: float
    memory: float
    written: int


def measured(arguments: list[str]) -> Taken:
    """Run one process to its end."""
    # As installed: modules are compiled once, in the first round that is not counted.
    here = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    process = subprocess.Popen(arguments, env=here)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    seconds = time.perf_counter() - started
    counted = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments[:6]} failed with {process.returncode}")
    return Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, int(counted["wchar"]))


def compared(case: Case, source: Path, scratch: Path, repeat: int) -> Iterator[str]:
    """Interleaved rounds, each in another order, then one line per contestant."""
    contestants = ("grpo-adv", *case.peers)
    seen: dict[str, list[Taken]] = {who: [] for who in contestants}
    measured(command(contestants[0], source, scratch / f"warm.{case.suffix}"))
    for number in range(repeat):
        turned = (contestants * 2)[number % len(contestants) :][: len(contestants)]
        for who in turned[:: -1 if number % 2 else 1]:
            target = scratch / f"out-{who}.{case.suffix}"
            seen[who].append(measured(command(who, source, target)))
            target.unlink()
    own = middle(seen["grpo-adv"])
    for who in contestants:
        one = middle(seen[who])
        yield (
            f"| {case.name} | {who} | {one.wall:.2f} | {own.wall / one.wall:.2f} | {one.processor:.2f} "
            f"| {one.memory:,.0f} | {own.memory / one.memory:.2f} |"
        )


def middle(taken: Sequence[Taken]) -> Taken:
    """The median of each quantity."""
    return Taken(*map(statistics.median, zip(*taken, strict=True)))


def alone(scratch: Path, repeat: int) -> Iterator[str]:
    """What grpo-adv does that nobody is compared with: sizes against each other and against the bytes that are due."""
    small, large = CASES["narrow-parquet"], LARGE
    taken = {}
    for case in (small, large):
        runs = [measured(command("grpo-adv", made(case, scratch), scratch / "out.parquet")) for _ in range(repeat)]
        taken[case.name] = middle(runs)
    times = taken[large.name].wall / taken[small.name].wall / (large.rows / small.rows)
    bytes_a_row = taken[large.name].memory * (1 << 20) / large.rows
    yield f"50M rows: {taken[large.name].wall:.2f} s, {times:.2f} x five times 10M rows; {bytes_a_row:.0f} bytes a row"
    for count in FILES:
        one = middle([measured(many(count, scratch)) for _ in range(repeat)])
        each = 1000 / count
        yield f"{count} files: {one.wall:.2f} s, {one.processor * each:.1f} ms of processor a file, {one.memory:.0f} MB"
    path = scratch / "in-place.parquet"
    shutil.copyfile(made(CASES["wide-parquet"], scratch), path)
    before = path.stat().st_size
    one = measured([sys.executable, "-m", "grpo_cli", "compute", str(path), "--in-place", "--quiet"])
    column, footer = new_parts(path)
    yield (
        f"in place: {one.wall:.2f} s, {one.written:,} bytes written into a file of {before:,}; the new column has "
        f"{column:,}, the footer {footer:,}: {one.written / (1.1 * column + 2 * footer):.2f} of what is allowed"
    )


def many(count: int, scratch: Path) -> list[str]:
    """A run over many files of 64 rows, into files that do not exist yet."""
    folder, target = scratch / f"many-{count}", scratch / f"many-{count}-out"
    if not folder.exists():
        subprocess.run([sys.executable, str(HERE / "generate.py"), str(folder), str(count), "0"], check=True)
    shutil.rmtree(target, ignore_errors=True)
    return [sys.executable, "-m", "grpo_cli", "compute", f"{folder}/*.parquet", "-o", f"{target}/", "--quiet"]


def new_parts(path: Path) -> tuple[int, int]:
    """Bytes of the last column, and of the footer."""
    import pyarrow.parquet as pq  # only here: a child begins with the memory of its parent

    meta = pq.read_metadata(path)
    chunks = [meta.row_group(group).column(meta.num_columns - 1) for group in range(meta.num_row_groups)]
    return sum(chunk.total_compressed_size for chunk in chunks), meta.serialized_size


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
    names = [*CASES, "alone"]
    parser.add_argument("cases", nargs="*", default=names, choices=[*names, []], metavar="CASE")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=None)
    given = parser.parse_args()
    scratch = given.scratch or Path(tempfile.mkdtemp())
    version = sys.version.split()[0]
    print(f"{os.cpu_count()} cores, Python {version}, median of {given.repeat} interleaved rounds, warm page cache\n")
    print("| case | who | wall s | grpo-adv / who | processor s | peak MB | grpo-adv / who |")
    print("|---|---|---|---|---|---|---|")
    for name in given.cases:
        if name == "alone":
            lines = alone(scratch, given.repeat)
        else:
            lines = compared(CASES[name], made(CASES[name], scratch), scratch, given.repeat)
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
