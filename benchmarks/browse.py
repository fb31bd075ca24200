"""`grpo-adv browse`: the time to the first screen, the time of a key press on a million groups, and memory.

    python -m benchmarks.browse --scratch DIR      # needs about 1.2 GB there

The first screen is that of a whole process in a terminal of 80x24, from its start until the mark of the list is painted;
memory is its largest resident set after 1,000 groups were paged through, beside that of `inspect` on the same file. Key
presses go through the terminal as well: from the key to the first that is painted, which is the list, and to the last, the text.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent.parent
MARK: Final = "▸".encode()
PERCENT: Final = b"%"
# Input of `inputs.py`, rows, and the most seconds until the first screen.
FILES: Final = (("wide-parquet", 200_000, 1.5), ("wide", 200_000, 3.0), ("together", 10_000_000, 5.0))
# What a terminal sends for each key.
KEYS: Final = {
    "down": b"\x1b[B", "page down": b"\x1b[6~", "up": b"\x1b[A", "end": b"\x1b[F", "home": b"\x1b[H", "d": b"d", "u": b"u",
    "tab": b"\t", "]": b"]", "r": b"r", "f": b"f", "z": b"z",
}  # fmt: skip
ORDER: Final = (
    "down", "page down", "up", "end", "home", "d", "tab", "down", "tab", "page down", "tab", "r", "u", "]", "f", "f", "z", "z",
)  # fmt: skip
QUIET: Final = 0.3  # seconds without output after which a key press is answered
PAGES: Final = 60  # screens of 16 groups


def made(scratch: Path, name: str, rows: int) -> Path:
    """An input of the benchmarks, written once."""
    path = scratch / f"{name}-{rows}{'.jsonl' if name == 'wide' else '.parquet'}"
    if not path.exists():
        subprocess.run([sys.executable, "-m", "benchmarks.inputs", name, path, str(rows)], cwd=HERE, check=True)
    return path


def memory(pid: int) -> int:
    """The largest resident set of a process so far, in MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024


def opened(path: Path) -> tuple[int, int]:
    """A process that shows a file in a terminal of 80x24, and that terminal."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(HERE)
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "grpo_cli", "browse", str(path)])  # noqa: S606 - no shell is meant
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    return pid, terminal


def closed(pid: int, terminal: int) -> float:
    """Milliseconds until the process has ended after q."""
    begun = time.perf_counter()
    os.write(terminal, b"q")
    while read(terminal, 5):
        pass
    os.waitpid(pid, 0)
    return 1000 * (time.perf_counter() - begun)


def processor(pid: int) -> float:
    """Milliseconds that a process has run on all processors."""
    return 1000 * time.clock_gettime((~pid << 3) | 2)  # the clock that clock_getcpuclockid names


def first_screen(path: Path) -> dict[str, float]:
    """Seconds until the first percentage and the first screen, processor seconds, MB after paging, ms until the end."""
    begun = time.perf_counter()
    pid, terminal = opened(path)
    found: dict[str, float] = {}
    while MARK not in (seen := read(terminal, 60)):
        if PERCENT in seen:
            found.setdefault("percentage", time.perf_counter() - begun)
    found["first screen"] = time.perf_counter() - begun
    found["processor"] = processor(pid) / 1000
    for _ in range(PAGES):
        os.write(terminal, b"\x1b[6~")
        read(terminal, 0.2)
    found["MB"] = memory(pid)
    found["quit ms"] = closed(pid, terminal)
    return found


def read(terminal: int, wait: float) -> bytes:
    """What the terminal shows next; nothing when nothing comes or the process has ended."""
    if not select.select([terminal], [], [], wait)[0]:
        return b""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def inspected(path: Path) -> dict[str, float]:
    """Seconds and MB of `inspect` on the same file."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "grpo_cli", "inspect", "--quiet", path], cwd=HERE)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    wall = time.perf_counter() - begun
    return {"inspect": wall, "inspect processor": used.ru_utime + used.ru_stime, "inspect MB": used.ru_maxrss // 1024}


def key_presses(path: Path, rounds: int) -> dict[str, float]:
    """Milliseconds from a key to the first and to the last that the terminal is sent, and of all processors, at the 95th percentile."""
    pid, terminal = opened(path)
    while MARK not in read(terminal, 60):
        pass
    while read(terminal, 5 * QUIET):  # what is computed after the first screen
        pass
    taken: list[tuple[float, float, float]] = []
    slowest = (0.0, "")
    for key in ORDER * rounds:
        used, begun = processor(pid), time.perf_counter()
        os.write(terminal, KEYS[key])
        answers = []
        while read(terminal, QUIET):
            answers.append(1000 * (time.perf_counter() - begun))
        if answers:
            taken.append((answers[0], answers[-1], processor(pid) - used))
            slowest = max(slowest, (answers[0], key))
    closed(pid, terminal)
    print(f"slowest: {slowest[1]} {slowest[0]:.0f} ms")
    firsts, lasts, used_by = (sorted(one[at] for one in taken) for at in range(3))
    at = int(0.95 * len(taken))
    return {
        "median ms": statistics.median(firsts),
        "95% ms": firsts[at],
        "95% ms until the text": lasts[at],
        "median ms of processor": statistics.median(used_by),
        "95% ms of processor": used_by[at],
    }


def main() -> None:
    """Measure all of it."""
    options = argparse.ArgumentParser()
    options.add_argument("--scratch", type=Path, required=True)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    for name, rows, most in FILES:
        path = made(given.scratch, name, rows)
        rounds = [first_screen(path) for _ in range(given.rounds)]
        best = min(rounds, key=lambda one: one["first screen"])
        shown = {key: round(value, 2) for key, value in {**best, **inspected(path)}.items()}
        print(json.dumps({"file": name, "at most": most, **shown}))
    keys = key_presses(made(given.scratch, "together", 10_000_000), given.rounds)
    print(json.dumps({"key presses": {name: round(value, 1) for name, value in keys.items()}, "at most": 100}))


if __name__ == "__main__":
    main()
