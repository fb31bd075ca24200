"""Bad inputs as a table (`bad_inputs.toml`): each is refused in one line that says what is wrong, in seconds, in little memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.bad_files import made, made_parts
from tests.support.command import TERMINAL, Done, adv

TABLE: Final = Path(__file__).with_name("bad_inputs.toml")
CASES: Final[list[dict[str, Any]]] = [
    case
    for case in tomllib.loads(TABLE.read_text(encoding="utf-8"))["case"]
    if list(sys.version_info[:2]) <= case.get("until", [4, 0])
]
SECONDS: Final = 10
BYTES: Final = 1 << 30
CHARACTERS: Final = 1000
IN_A_PROCESS: Final = 60  # one case in this many runs in a process of its own
# A process counts the memory of the one that it was made by as its own: it is made by a small one, which says its peak.
LAUNCHER: Final = """
import os, sys
words = [sys.executable, "-m", "grpo_cli", *sys.argv[2:]]
_, status, usage = os.wait4(os.posix_spawn(sys.executable, words, os.environ), 0)
open(sys.argv[1], "w").write(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak() -> int:
    """The most memory that this process had since `forget_peak`, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def forget_peak() -> int:
    """Count the most memory from now on, and return what there is."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return peak()


def run_as_a_user(words: list[str], folder: Path) -> tuple[Done, int]:
    """What a process of its own says, and the most memory that it had."""
    command = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(folder / ".peak"), *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, **TERMINAL},
    )  # fmt: skip
    peak = int((folder / ".peak").read_text())
    (folder / ".peak").unlink()
    return Done(done.returncode, done.stdout, done.stderr), peak << 10


def arguments(case: dict[str, Any], folder: Path) -> list[str]:
    """Make the files of a case in a folder; the command line that meets them."""
    name = case.get("input", "in.jsonl")
    for file, content in {name: case.get("made"), **case.get("files", {})}.items():
        if content is not None:
            with (folder / file).open("wb") as opened:
                opened.writelines(made_parts(content))
    if "text" in case:
        (folder / name).write_text(case["text"], encoding="utf-8")
    command = case.get("command", "compute")
    options = made(case["made_options"]) if "made_options" in case else case.get("options", [name])
    return [command, *options]


@pytest.mark.parametrize(("at", "case"), list(enumerate(CASES)), ids=[case["name"] for case in CASES])
def test_a_bad_input_is_refused_in_one_line(at: int, case: dict[str, Any], tmp_path: Path) -> None:
    words = arguments(case, tmp_path)
    before = sorted(tmp_path.iterdir())
    start = time.process_time()
    had = forget_peak()
    if case.get("process", at % IN_A_PROCESS == 0):
        usage = os.times()
        done, memory = run_as_a_user(words, tmp_path)
        spent = sum(os.times()[2:4]) - sum(usage[2:4])
    else:
        done = adv(*words, cwd=tmp_path)
        memory = peak() - had
        spent = time.process_time() - start
    assert done.status == case.get("status", 1), done
    assert done.err.startswith("error: ") and done.err.count("\n") == 1, done.err
    assert done.err.rstrip("\n").isprintable(), done.err
    assert len(done.err) < case.get("characters", CHARACTERS)
    for word in case["words"]:
        assert word in done.err
    assert sorted(tmp_path.iterdir()) == before
    assert spent < SECONDS
    assert memory < BYTES
