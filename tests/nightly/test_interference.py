"""What other processes do to a run: one of two writers is killed, links are swapped, and the kernel ends what takes too much memory.

INTERFERENCES is the number of runs that are disturbed in each way, 20 by default; INTERFERENCES_SEED chooses other moments.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pytest

from grpo_cli.files.atomic import remove_abandoned
from tests.nightly.test_faults import TEMPORARY
from tests.support.command import adv, process, ran

COUNT: Final = int(os.environ.get("INTERFERENCES", "20"))
SEED: Final = int(os.environ.get("INTERFERENCES_SEED", "7"))
ROWS: Final = 30_000
MEMORY: Final = Path("/sys/fs/cgroup/memory")  # of cgroups, version 1
MB: Final = 1 << 20


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files of the same rows but for a letter in each, in two formats."""
    monkeypatch.chdir(tmp_path)
    rows = pl.DataFrame({"prompt_id": np.arange(ROWS) // 8, "reward": np.arange(ROWS) % 3})
    for name in ("a", "b"):
        here = rows.with_columns(text=pl.lit(name * 100))
        here.write_ndjson(f"{name}.jsonl")
        here.write_parquet(f"{name}.parquet", row_group_size=3000)


def started(line: str) -> subprocess.Popen[str]:
    """The command, as a user starts it."""
    words = [sys.executable, "-m", "grpo_cli", *shlex.split(line), "-q"]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def left() -> list[str]:
    """Temporary files."""
    return [path.name for path in Path().iterdir() if TEMPORARY.fullmatch(path.name)]


def is_one_line(said: str) -> bool:
    return said.startswith("error: ") and said.count("\n") == 1


# --- two writers, one of them killed ---------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["compute {0}.{1} -o out.{1} --force", "compute in.{1} --in-place --column {0}"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_of_two_writers_one_is_killed_and_each_output_is_the_old_or_the_new_one(line: str, suffix: str) -> None:
    """In place, both change one file, and each adds a column of its own."""
    here = "--in-place" in line
    name = f"in.{suffix}" if here else f"out.{suffix}"
    old = Path(f"a.{suffix}").read_bytes() if here else b"old\n"
    lines = [line.format(each, suffix) for each in "ab"]
    whole = {old}
    for each in lines:
        Path(name).write_bytes(old)
        ran(f"{each} -q")
        whole.add(Path(name).read_bytes())
    if here:  # both, one after the other
        for order in (lines, lines[::-1]):
            Path(name).write_bytes(old)
            for each in order:
                ran(f"{each} -q")
            whole.add(Path(name).read_bytes())
    Path(name).write_bytes(old)
    start = time.perf_counter()
    with started(lines[0]) as alone:
        assert alone.wait(timeout=100) == 0
    seconds = time.perf_counter() - start
    drawn = np.random.default_rng([SEED, len(suffix), here])
    seen = Counter[str]()
    for at in range(COUNT):
        Path(name).write_bytes(old)
        with ExitStack() as stack:
            killed, other = [stack.enter_context(started(each)) for each in lines]
            if at % 2:  # while one of them writes, which takes little of the time
                while not left() and killed.poll() is None:
                    time.sleep(0.001)
                time.sleep(drawn.uniform(0, 0.03))
            else:
                time.sleep(drawn.uniform(0.3, 2.2) * seconds)  # two of them take longer than one
            killed.kill()
            _, said = other.communicate(timeout=100)
            killed.communicate(timeout=100)
        assert Path(name).read_bytes() in whole
        assert other.returncode == 0 or is_one_line(said), said
        seen[f"killed {killed.returncode}, other {other.returncode}, left {len(left())}"] += 1
        remove_abandoned.cache_clear()  # as in a process of its own
        ran(f"compute a.{suffix} -o next.{suffix} --force -q")
        assert not left()
    print(f"{lines[0]}: {dict(seen)}")  # noqa: T201 - the figures of CONTRIBUTING.md


# --- links that are swapped ------------------------------------------------------------------------------------


@contextmanager
def swapping(links: dict[str, tuple[str, str]], pause: float) -> Iterator[list[int]]:
    """Point each link at its two files by turns, at once for a reader; the number of times."""
    done = threading.Event()
    times = [0]

    def swap() -> None:
        for at in cycle((1, 0)):
            for link, targets in links.items():
                Path(f"{link}.new").symlink_to(targets[at])
                Path(f"{link}.new").replace(link)
            times[0] += 1
            if done.wait(pause):
                return

    for link, targets in links.items():
        Path(link).unlink(missing_ok=True)
        Path(link).symlink_to(targets[0])
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield times
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("line", ["compute in.{0} -o out.{0} --force", "compute in.{0} --in-place"])
def test_links_that_are_swapped_give_no_file_the_advantages_of_another(line: str, suffix: str) -> None:
    kept = {f"{name}.{suffix}": Path(f"{name}.{suffix}").read_bytes() for name in "ab"}
    whole = {}
    for name in kept:
        ran(f"compute {name} -o whole.{suffix} --force -q")
        whole[name] = Path(f"whole.{suffix}").read_bytes()
    drawn = np.random.default_rng([SEED, len(suffix), len(line)])
    seen = Counter[str]()
    swaps = 0
    for _ in range(COUNT):
        for name, raw in kept.items():
            Path(name).write_bytes(raw)
        for name in ("x", "y"):
            Path(f"{name}.{suffix}").write_bytes(b"old\n")
        links = {f"in.{suffix}": (f"a.{suffix}", f"b.{suffix}"), f"out.{suffix}": (f"x.{suffix}", f"y.{suffix}")}
        with swapping(links, drawn.choice([0.0005, 0.02, 0.1, 0.4])) as times:
            done = adv(line.format(suffix), "-q")
        swaps += times[0]
        new = 0
        for name, raw in kept.items():
            found = Path(name).read_bytes()
            assert found == raw or ("--in-place" in line and found == whole[name]), f"{name} is another file's"
            new += found != raw
        for name in ("x", "y"):
            found = Path(f"{name}.{suffix}").read_bytes()
            assert found == b"old\n" or found in whole.values()
            new += found != b"old\n"
        assert new == (done.status == 0), done
        assert done.status == 0 or is_one_line(done.err), done
        assert Path(f"in.{suffix}").is_symlink()
        assert Path(f"out.{suffix}").is_symlink()
        assert not left()
        seen[re.sub(r".*: ", "", done.err.partition(";")[0]) or "done"] += 1
    print(f"{line.format(suffix)}: {swaps} swaps, {dict(seen)}")  # noqa: T201 - the figures of CONTRIBUTING.md


# --- memory ----------------------------------------------------------------------------------------------------


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of processes whose memory the kernel limits."""
    folder = MEMORY / f"grpo-adv-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip(f"no group of processes may be made in {MEMORY}")
    yield folder
    folder.rmdir()


OOM: Final = """
compute a.jsonl -o out.jsonl
compute a.parquet -o out.parquet --force
compute a.jsonl --in-place
compute a.parquet --in-place
select a.jsonl --limit 100 -o out.jsonl
export a.jsonl --to sft --prompt prompt_id --response text -o out.parquet --force
"""


@pytest.mark.parametrize("line", OOM.strip().splitlines())
def test_the_killer_of_the_kernel_leaves_old_files_or_new_ones(line: str, group: Path) -> None:
    name = Path(line.split()[1] if "--in-place" in line else line.split("-o ")[1].split(maxsplit=1)[0])
    before = name.read_bytes() if "--in-place" in line else b"old\n"

    def fresh() -> None:
        name.write_bytes(before) if "--in-place" in line or "--force" in line else name.unlink(missing_ok=True)

    def limited(most: int) -> int:
        """The status in a group that may have so much."""
        (group / "memory.limit_in_bytes").write_text(f"{most}")
        enter = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} -m grpo_cli {line} -q"
        ended = subprocess.run(["sh", "-c", enter], capture_output=True, text=True, check=False, timeout=120)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.returncode

    fresh()
    most = 2048 * MB
    assert limited(most) == 0
    peak = int((group / "memory.max_usage_in_bytes").read_text())
    whole = name.read_bytes()
    seen = Counter[int]()
    for most in np.linspace(0.3, 1.05, min(COUNT, 20)) * peak:
        fresh()
        status = limited(int(most) // 4096 * 4096)
        now = name.read_bytes() if name.exists() else b""
        assert now == whole if status == 0 else now in {before, whole, b""}
        assert status in {0, 1, -signal.SIGKILL}
        seen[status] += 1
    fresh()
    remove_abandoned.cache_clear()  # as in a process of its own
    ran(f"{line} -q")
    assert name.read_bytes() == whole
    assert not left()
    print(f"{line}: peak {peak / MB:.0f} MB, {dict(seen)}")  # noqa: T201 - the figures of CONTRIBUTING.md
    assert seen[-signal.SIGKILL]


SMALL: Final = """
compute a.jsonl -o out.jsonl
compute a.parquet -o out.parquet
compute a.parquet -o out.arrow
inspect a.jsonl
select a.parquet --limit 100 -o out.parquet
export a.jsonl --to sft --prompt prompt_id --response text -o out.parquet
report a.jsonl -o out.html
compute - -o out.jsonl
"""


@pytest.mark.parametrize("line", SMALL.strip().splitlines())
def test_a_small_dev_shm_is_enough(line: str) -> None:
    stdin = Path("a.jsonl").read_text() if line.startswith("compute -") else ""
    script = 'mount -t tmpfs -o size=1m none /dev/shm && echo mounted >&2 && exec "$@"'
    words = [sys.executable, "-m", "grpo_cli", *line.split(), "-q"]
    if "report" not in line and "inspect" not in line:
        process(line, "-q", stdin=stdin)
        whole = Path(line.split("-o ")[1]).read_bytes()
        words.append("--force")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *words], input=stdin, capture_output=True, text=True, check=False
    )
    if not done.stderr.startswith("mounted"):
        pytest.skip("no mount namespace may be made here")
    assert (done.returncode, done.stderr) == (0, "mounted\n")
    if "--force" in words:
        assert Path(line.split("-o ")[1]).read_bytes() == whole
