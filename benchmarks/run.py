"""Every shape of file on every path of the tool, beside the same job written by hand, and beside `cp`.

    python -m benchmarks.run --scratch DIR                 # the whole table; needs about 20 GB there
    python -m benchmarks.run narrow/compute wide/verify     # some lines of it
    python -m benchmarks.run --scale 0.25 --record          # the small table that the nightly tests hold the tool to

Whole processes. Rounds are interleaved (tool, peer, cp, then the other way round), so that a slow minute of the machine
hits all of them; the page cache is warm and everybody fsyncs. Memory is the largest resident set of the process. A peer
is a job of `peers.py`, or another path of this tool, on the same input.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE: Final = Path(__file__).resolve().parent
INPUTS: Final = [sys.executable, "-m", "benchmarks.inputs"]
RECORD: Final = HERE / "recorded.json"
PAGE: Final = HERE / "README.md"
MARKS: Final = ("<!-- figures -->\n", "<!-- end of figures -->\n")

COLUMNS: Final = (
    *("input", "path", "wall s", "processor s", "peak MB", "peer", "wall / peer", "processor / peer", "memory / peer"),
    *("wall / cp", "bar", "met"),
)


class Shape(NamedTuple):
    """An input of `inputs.py`: how many rows at full size, its key and reward columns, its suffix."""

    name: str
    rows: int
    key: str
    reward: str
    suffix: str

    @classmethod
    @cache
    def named(cls, name: str) -> Shape:
        """One of those that there are; asked of another process, since a child begins with the memory of its parent."""
        listed = subprocess.run(INPUTS, cwd=HERE.parent, check=True, capture_output=True, text=True).stdout
        return next(shape for shape in (cls(**json.loads(line)) for line in listed.splitlines()) if shape.name == name)


class Files(NamedTuple):
    """The input, the output, what `compute` made of the input before, and the same rows with other rewards."""

    source: Path
    target: Path
    woven: Path
    moved: Path
    again: Path


PATHS: Final[dict[str, Callable[[Files], list[str]]]] = {
    "compute": lambda at: ["compute", f"{at.source}", "-o", f"{at.target}"],
    "shards": lambda at: ["compute", f"{at.source}", "-o", f"{at.target}/", "--group-within", "input"],
    "folder": lambda at: ["compute", f"{at.source}", "-o", f"{at.target}/"],
    "drop": lambda at: ["compute", f"{at.source}", "-o", f"{at.target}", "--zero-variance", "drop"],
    "stream": lambda _: ["compute", "-", "--stream"],
    "replace": lambda at: ["compute", f"{at.woven}", "-o", f"{at.target}", "--replace"],
    "replace-inside": lambda at: ["compute", f"{at.moved}", "-o", f"{at.target}", "--replace"],
    "to-parquet": lambda at: ["compute", f"{at.source}", "-o", f"{at.target}"],
    "verify": lambda at: ["verify", f"{at.woven}", "--against", f"{at.source}"],
    "select": lambda at: ["select", f"{at.source}", "-o", f"{at.target}", "--where", "mean > 0.5"],
    "inspect": lambda at: ["inspect", f"{at.source}"],
    "rescored": lambda at: ["inspect", f"{at.source}", "--old-rewards", f"{at.again}"],
    "kalman": lambda at: ["compute", f"{at.source}", "-o", f"{at.target}", "--method", "kalman"],
    "quantile": lambda at: ["compute", f"{at.source}", "-o", f"{at.target}", "--method", "quantile"],
}


@dataclass(frozen=True)
class Case:
    """A line of the table: an input, a path, the peer, and the most that wall time and memory may be of the peer's."""

    shape: str
    path: str
    peer: str
    wall: float | None = None
    memory: float | None = None

    @property
    def name(self) -> str:
        """As it is asked for on the command line."""
        return f"{self.shape}/{self.path}"


def _cases() -> Iterator[Case]:
    yield Case("together", "compute", "polars", 0.75, 1.5)
    yield Case("together", "rescored", "inspect", 1.5)
    for shape in ("random", "round-robin", "integers", "composite", "giant", "pairs"):
        yield Case(shape, "compute", "polars", 1.2, 1.5)
    for path in ("inspect", "select", "quantile", "kalman"):
        yield Case("random", path, "compute", 1.5 if path in {"inspect", "select"} else None)
    yield Case("wide-parquet", "compute", "polars", 0.25, 0.3)
    yield Case("wide-parquet", "select", "filtered", 1.5, 1)
    yield Case("wide-parquet", "drop", "dropped")
    for shape, memory in {
        "wide": 0.5, "narrow": 1.1, "verl": 0.5, "chat": 0.5, "tokens": 0.5, "nested": 1.1, "integer-lines": 1.1,
        "ragged": 1.1, "mixed": 1.1, "crlf": 1.1, "gz": None, "zst": None,
    }.items():  # fmt: skip
        wall = {"chat": 0.85, "tokens": 0.85, "gz": None, "zst": None}.get(shape, 1.6)
        yield Case(shape, "compute", "polars", wall, memory)
    paths = {"verify": 1.5, "drop": 1.6, "replace": 1.6, "replace-inside": 5.0, "stream": 3.0, "select": 1.6}
    for shape in ("narrow", "wide"):
        yield from (Case(shape, path, "compute", wall) for path, wall in paths.items())
        yield Case(shape, "to-parquet", "polars", 3)
    for shape in ("csv-short", "csv-texts"):
        yield Case(shape, "compute", "polars", 2.5)
        yield from (
            Case(shape, path, "compute", wall)
            for path, wall in paths.items()
            if path not in {"replace-inside", "stream"}
        )
    yield Case("episodes", "shards", "lines", 2.5)
    yield Case("small-parquet", "folder", "tables", 2.5)
    yield Case("array", "compute", "document", 1.2, 1.5)


CASES: Final = {case.name: case for case in _cases()}


class Taken(NamedTuple):
    """What one process took: wall and processor seconds, peak megabytes."""

    wall: float
    processor: float
    memory: float


def measured(arguments: list[str], given: Path | None = None, printed: Path | None = None) -> Taken:
    """Run one process to its end."""
    # As installed: modules are compiled once, in the first round that is not counted.
    here = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    here["PYTHONPATH"] = str(HERE.parent)
    nowhere = Path(os.devnull)
    with (given or nowhere).open("rb") as stdin, (printed or nowhere).open("wb") as stdout:
        started = time.perf_counter()
        process = subprocess.Popen(arguments, env=here, stdin=stdin, stdout=stdout)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        seconds = time.perf_counter() - started
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed with {process.returncode}")
    return Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


@dataclass(frozen=True)
class Bench:
    """Where inputs and outputs lie, how large the inputs are, and how many rounds there are."""

    scratch: Path
    scale: float
    repeat: int

    def source(self, shape: str, rows: int | None = None) -> Path:
        """The input, made once."""
        found = Shape.named(shape)
        rows = rows or int(found.rows * self.scale)
        path = self.scratch / f"{shape}-{rows}{found.suffix}"
        if not path.exists():
            begun = path.with_name(f"begun-{path.name}")
            subprocess.run([*INPUTS, shape, str(begun), str(rows)], cwd=HERE.parent, check=True)
            begun.rename(path)
        return path

    def files(self, case: Case) -> Files:
        """The files of a case; those that the tool has to make first are made."""
        source = self.source(case.shape)
        woven, moved = (source.with_name(f"{kind}-{source.name}") for kind in ("woven", "moved"))
        again = self.source("scored-again") if case.path == "rescored" else source
        if case.path in {"verify", "replace", "replace-inside"} and not woven.exists():
            self._tool(case, Files(source, woven, woven, moved, again), "compute")
        if case.path == "replace-inside" and not moved.exists():
            with woven.open("rb") as lines, moved.open("wb") as sink:
                for line in lines:  # the field as the first, where `compute` has written it as the last
                    head, _, last = line.rpartition(b',"advantage":')
                    sink.write(b'{"advantage":' + last.rstrip(b"}\r\n") + b"," + head[1:] + b"}\n")
        suffix = {"to-parquet": ".parquet", "shards": "", "folder": ""}.get(case.path, Shape.named(case.shape).suffix)
        return Files(source, self.scratch / f"out{suffix}", woven, moved, again)

    def _tool(self, case: Case, at: Files, path: str) -> Taken:
        shape = Shape.named(case.shape)
        words = PATHS[path](at)
        words += ["--quiet"] if path not in {"verify", "inspect", "rescored"} else []
        words += ["--force"] if "-o" in words else []
        if path == "stream" or (path != "verify" and set(shape.key + shape.reward) & set(",.")):
            words += ["--group", shape.key, "--reward", shape.reward]  # elsewhere they are found by name
        given, printed = (at.source, at.target) if path == "stream" else (None, None)
        return measured([sys.executable, "-m", "grpo_cli", *words], given, printed)

    def _by_hand(self, job: str, at: Files, shape: str) -> Taken:
        os.environ["KEY"], os.environ["REWARD"] = Shape.named(shape).key, Shape.named(shape).reward
        return measured([sys.executable, "-m", "benchmarks.peers", job, str(at.source), str(at.target)])

    def rounds(self, case: Case, who: tuple[str, ...]) -> dict[str, Taken]:
        """The medians of all who take part: the tool, its peer, and who else is named."""
        at = self.files(case)

        def run(one: str) -> Taken:
            if one in {"tool", *PATHS}:
                path = case.path if one == "tool" else one
                target = at.target.with_suffix(at.source.suffix) if path != case.path else at.target
                taken = self._tool(case, at._replace(target=target), path)
            else:
                target = at.target if one != "cp" else at.target.with_suffix(at.source.suffix)
                taken = self._by_hand(one, at._replace(target=target), case.shape)
            if target.is_dir():
                shutil.rmtree(target)
            target.unlink(missing_ok=True)
            return taken

        seen: dict[str, list[Taken]] = {one: [] for one in ("tool", *who)}
        run("tool")
        for number in range(self.repeat):
            for one in list(seen)[:: -1 if number % 2 else 1]:
                seen[one].append(run(one))
        return {one: Taken(*map(statistics.median, zip(*taken, strict=True))) for one, taken in seen.items()}

    def line(self, case: Case) -> str:
        """A line of the table."""
        taken = self.rounds(case, (case.peer, "cp"))
        tool, peer, copied = taken["tool"], taken[case.peer], taken["cp"]
        wall, memory = tool.wall / peer.wall, tool.memory / peer.memory
        bars = [f"{name} {bar:g}" for name, bar in (("wall", case.wall), ("memory", case.memory)) if bar]
        missed = [
            name
            for name, bar, got in (("wall", case.wall, wall), ("memory", case.memory, memory))
            if bar and round(got, 2) > bar
        ]
        verdict = f"**{' and '.join(missed)} missed**" if missed else "met" if bars else ""
        return (
            f"| {case.shape} | {case.path} | {tool.wall:.2f} | {tool.processor:.2f} | {tool.memory:,.0f} | {case.peer} "
            f"| {wall:.2f} | {tool.processor / peer.processor:.2f} | {memory:.2f} | {tool.wall / copied.wall:.1f} "
            f"| {', '.join(bars)} | {verdict} |"
        )

    def alone(self) -> Iterator[str]:
        """What has no peer: sizes against each other."""
        few, many = Shape.named("together").rows, Shape.named("large").rows
        taken = {}
        for shape in ("together", "large"):
            case = Case(shape, "compute", "")
            taken[shape] = self.rounds(case, ())["tool"]
        times = taken["large"].wall / taken["together"].wall / (many / few)
        each = taken["large"].memory * (1 << 20) / (many * self.scale)
        yield f"{many:,} rows together: {taken['large'].wall:.2f} s, {times:.2f} x {many // few} times {few:,} rows; {each:.0f} bytes a row"


def main() -> None:
    """Measure the cases that are named, print the table; with all of them it replaces that of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="SHAPE/PATH", help="all of them, if none is named")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--scratch", type=Path, default=None)
    parser.add_argument("--record", action="store_true", help=f"write the ratios to {RECORD.name}")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    given = parser.parse_args()
    if unknown := set(given.cases) - {*CASES, "alone"}:
        parser.error(f"{', '.join(sorted(unknown))}: no such case; there are {', '.join(CASES)}, alone")
    with tempfile.TemporaryDirectory() as temporary:
        if given.scratch is not None:
            given.scratch.mkdir(parents=True, exist_ok=True)
        bench = Bench(given.scratch or Path(temporary), given.scale, given.repeat)
        wanted = given.cases or [*CASES, "alone"]
        if given.record:
            ratios = {name: recorded(bench, CASES[name]) for name in wanted if name in CASES}
            RECORD.write_text(json.dumps({"scale": given.scale, "ratios": ratios}, indent=2) + "\n")
            return
        lines = [
            f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, median of {given.repeat} interleaved rounds.\n",
            f"| {' | '.join(COLUMNS)} |",
            "|---" * len(COLUMNS) + "|",
        ]
        print("\n".join(lines), flush=True)
        for name in wanted:
            found = [f"\n* {line}" for line in bench.alone()] if name == "alone" else [bench.line(CASES[name])]
            print("\n".join(found), flush=True)
            lines += found
        if given.write:
            before, after = PAGE.read_text().split(MARKS[0])[0], PAGE.read_text().split(MARKS[1])[1]
            PAGE.write_text("".join([before, MARKS[0], "\n", "\n".join(lines), "\n\n", MARKS[1], after]))


def recorded(bench: Bench, case: Case) -> float:
    """The wall time of the tool as a multiple of its peer's."""
    taken = bench.rounds(case, (case.peer,))
    return round(taken["tool"].wall / taken[case.peer].wall, 3)


if __name__ == "__main__":
    main()
