"""Every call that changes a file fails once, is half done, or is where the process is killed: old files or new ones.

FAULT_POSITIONS is the largest number of calls of a command at which this happens; without it, all of them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pytest

from tests.support.faults import HALVED, KINDS, Ended, Faults, serving
from tests.support.jobs import write

POSITIONS: Final = int(os.environ.get("FAULT_POSITIONS", "0")) or None
TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
# A file that is whole under its own name, and still has its temporary one, is written.
ROWS: Final = [{"prompt_id": f"p{at // 4}", "reward": at % 3, "text": "x" * (at % 50)} for at in range(400)]
FRAME: Final = pl.DataFrame(ROWS)


def jsonl(folder: Path, name: str = "in.jsonl") -> None:
    write(folder / name, ROWS)


def packed(folder: Path) -> None:
    jsonl(folder)
    for program, suffix in (("gzip", "gz"), ("zstd", "zst")):
        if shutil.which(program):
            subprocess.run([program, "-q", "-k", "in.jsonl"], cwd=folder, check=True)
            assert (folder / f"in.jsonl.{suffix}").exists()


def parquet(folder: Path) -> None:
    FRAME.write_parquet(folder / "in.parquet", row_group_size=100)


def parquet_with_constant_groups(folder: Path) -> None:
    """Half of the groups have a single reward: if they are dropped, the file is rewritten, in several writes."""
    constant = pl.when(pl.int_range(pl.len()) // 4 % 2 == 0).then(1).otherwise("reward").alias("reward")
    drawn = np.random.default_rng(5)
    texts = [pl.Series(name, [drawn.bytes(10_000).hex() for _ in ROWS]) for name in ("completion", "thoughts")]
    FRAME.with_columns(constant, *texts).write_parquet(folder / "in.parquet", row_group_size=100)


def others(folder: Path) -> None:
    for name in ("in.csv", "in.arrow", "in.json"):
        write(folder / name, ROWS)


def shards(folder: Path) -> None:
    (folder / "shards" / "deep").mkdir(parents=True)
    for number in range(4):
        jsonl(folder, f"shards/{'deep/' * (number % 2)}{number}.jsonl")


def shards_and_an_old_output(folder: Path) -> None:
    shards(folder)
    (folder / "out").mkdir()
    (folder / "out" / "0.jsonl").write_text("old\n")


def old_output(folder: Path) -> None:
    jsonl(folder)
    parquet(folder)
    for name in ("out.jsonl", "out.parquet", "out.html", "s.json"):
        (folder / name).write_text("old\n")


def large(folder: Path) -> None:
    """More than is written between two syncs."""
    text = "x" * (1 << 20)
    with (folder / "in.jsonl").open("w") as handle:
        for at in range(40):
            handle.write(f'{{"prompt_id": {at // 4}, "reward": {at % 3}, "text": "{text}"}}\n')


@dataclass(frozen=True)
class Case:
    """A command line, and what makes its files."""

    words: str
    made: Callable[[Path], None]

    @property
    def again(self) -> str:
        """What is said the second time."""
        return "--replace" if "--in-place" in self.words else "--force"

    @property
    def stdin(self) -> str:
        return "in.jsonl" if "compute - " in self.words else "/dev/null"

    def set_up(self, folder: Path) -> tuple[dict[str, bytes], list[str]]:
        """Make its files in a new folder; their bytes by name, and the words of the command."""
        folder.mkdir()
        self.made(folder)
        return contents(folder), [*self.words.split(), "-q"]


def fresh(files: Path, place: Path) -> Path:
    """The place, with nothing but a copy of these files."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(files, place)
    return place


COMMANDS: Final[dict[Callable[[Path], None], str]] = {
    jsonl: """
compute in.jsonl
compute in.jsonl --in-place
compute in.jsonl --facts --summary s.json
compute in.jsonl --only -o out.csv
compute in.jsonl -o out.jsonl.gz
compute - -o out.jsonl
compute in.jsonl -o out.parquet
compute in.jsonl -o out.arrow
compare in.jsonl -m grpo -m rloo --write -o out.jsonl
select in.jsonl --limit 3
export in.jsonl --to weights TEXTS -o out.parquet
export in.jsonl --to prompts --prompt prompt_id -o out.csv
report in.jsonl -o out.html
""",
    old_output: """
compute in.jsonl -o out.jsonl --force
compute in.jsonl -o out.jsonl --summary s.json --force
compute in.parquet -o out.parquet --force
select in.parquet --limit 3 -o out.parquet --force --summary s.json
export in.jsonl --to sft TEXTS -o out.jsonl --force
report in.jsonl -o out.html --force
""",
    packed: """
compute in.jsonl.gz
compute in.jsonl.zst --in-place
""",
    parquet: """
compute in.parquet
compute in.parquet --in-place
compute in.parquet -o out.jsonl
export in.parquet --to pairs TEXTS -o out.jsonl --summary s.json
""",
    parquet_with_constant_groups: """
compute in.parquet --zero-variance drop -o out.parquet
""",
    others: """
compute in.csv
compute in.csv --in-place
compute in.json
compute in.arrow
compute in.arrow --in-place
""",
    shards: """
compute shards --group-within file -o out/
compute shards --group-within file --in-place
select shards --group-within file --limit 3 -o out/
""",
    shards_and_an_old_output: """
compute shards --group-within file -o out/ --force
""",
    large: """
compute in.jsonl -o out.jsonl
""",
}
TEXTS: Final = "--prompt prompt_id --response text"
WRITING: Final = [
    Case(line.replace("TEXTS", TEXTS), made) for made, lines in COMMANDS.items() for line in lines.strip().splitlines()
]


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler for the shim")
    with serving(tmp_path_factory.mktemp("faults")) as server:
        yield server


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder; of a summary without how long the run took."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            raw = path.read_bytes()
            if path.suffix == ".json" and raw.startswith(b"{"):
                raw = json.dumps({**json.loads(raw), "seconds": 0}).encode()
            found[str(path.relative_to(folder))] = raw
    return found


def temporary(files: dict[str, bytes]) -> list[str]:
    return [name for name in files if TEMPORARY.fullmatch(name.rpartition("/")[2])]


def spread(length: int) -> list[int]:
    """The positions of a sample, which includes the first and the last."""
    if POSITIONS is None or length <= POSITIONS:
        return [*range(1, length + 1)]
    return sorted({int(at) for at in np.linspace(1, length, POSITIONS).round()})


def check(case: Case, place: Path, ended: Ended, before: dict[str, bytes], after: dict[str, bytes]) -> str:
    """What is wrong with the files and the message of a spoiled run; empty if nothing is."""
    found = contents(place)
    said = ended.err
    left = temporary(found)
    for name, raw in found.items():
        if name not in left and raw not in (before.get(name), after.get(name)):
            return f"{name} is neither the old file nor the new one"
    if lost := before.keys() - found.keys():
        return f"{lost} are gone"
    if ended.status == 0:
        wrong = [name for name, raw in after.items() if found.get(name) != raw]
        return f"all is said to be done, but {wrong} are not" * bool(wrong) or said
    if ended.status > 0 and not (said.startswith("error: ") and said.count("\n") == 1):
        return f"not one line: {ended.err}"
    if "nothing was written" in ended.err and (new := found.keys() - before.keys() - {*left}):
        return f"{ended.err.strip()}, but {new} were written"
    return ""


def same(name: str, found: bytes, wanted: bytes) -> bool:
    """Whether it is the same table: Parquet keeps the bytes of a column that is replaced, unread."""
    return found == wanted or (name == "in.parquet" and pl.read_parquet(found).equals(pl.read_parquet(wanted)))


def repaired(case: Case, place: Path, faults: Faults, after: dict[str, bytes]) -> str:
    """What is wrong with the next run of the same command, in which nothing fails."""
    words = f"{case.words} -q {case.again}".split()
    ended = faults.run(words, place, stdin=str(place / case.stdin))
    found = contents(place)
    if ended.status or ended.err:
        return f"the next run: {ended}"
    if left := temporary(found):
        return f"the next run leaves {left}"
    wrong = [name for name, raw in after.items() if not same(name, found[name], raw)]
    return f"after the next run {wrong} are wrong" * bool(wrong)


@pytest.mark.parametrize("case", WRITING, ids=lambda case: f"{case.words} {case.made.__name__}")
def test_every_call_that_changes_a_file_may_fail(case: Case, tmp_path: Path, faults: Faults) -> None:
    files = tmp_path / "before"
    place = tmp_path / "place"
    before, words = case.set_up(files)
    whole = faults.run(words, fresh(files, place), stdin=str(place / case.stdin))
    assert (whole.status, whole.err) == (0, ""), whole
    calls = faults.calls()
    after = contents(place)
    assert calls
    wrong = []
    runs = 0
    for kind in KINDS:
        if kind == "count":
            continue
        for position in spread(len(calls)):
            if "half" in kind and calls[position - 1] not in HALVED:
                continue
            ended = faults.run(words, fresh(files, place), kind, position, stdin=str(place / case.stdin))
            problem = check(case, place, ended, before, after) or repaired(case, place, faults, after)
            if problem:
                wrong.append(f"{kind} at {position} of {len(calls)}, {calls[position - 1]}: {problem}")
            runs += 1
    print(f"{case.words}: {runs} runs, {len(calls)} calls")  # noqa: T201 - the figures of CONTRIBUTING.md
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "inspect in.jsonl",
        "audit in.jsonl --column reward",
        "verify in.jsonl --against in.jsonl",
        "compute in.jsonl -o -",
    ],
)
def test_a_command_that_writes_nothing_changes_no_file(line: str, tmp_path: Path, faults: Faults) -> None:
    jsonl(tmp_path)
    before = contents(tmp_path)
    faults.run(line.split(), tmp_path)
    assert faults.calls() == []
    assert contents(tmp_path) == before
