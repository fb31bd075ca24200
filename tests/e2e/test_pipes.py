"""Pipes without a writer are waited for aloud; sockets, files of /proc and folders that vanish are one sentence each."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import DataError
from grpo_cli.runs import compute_files
from tests.support.command import adv, ran
from tests.support.jobs import job, rows_of

ROWS = '{"prompt_id": "a", "reward": 1}\n{"prompt_id": "a", "reward": 0}\n'
LONGEST = 60  # seconds that a process may take on a busy machine
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


@pytest.fixture(autouse=True)
def _rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text(ROWS)


# What reads a pipe, and what is written to it.
READERS = {
    "compute pipe -o out.jsonl": ROWS,
    "inspect a.jsonl --config pipe": "full = true\n",
    "compute a.jsonl --presets pipe --preset mine -o out.jsonl": '[mine]\ninherits = "trl-rloo"\n',
    "inspect a.jsonl --against pipe": ROWS,
    "add a.jsonl --from pipe --column reward=x --by-position -o out.jsonl": ROWS,
}


def started(line: str) -> subprocess.Popen[str]:
    def deaf_no_more() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it

    words = [sys.executable, "-m", "grpo_cli", *line.split()]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=deaf_no_more)  # noqa: PLW1509


@pytest.mark.parametrize("line", READERS)
def test_a_pipe_without_a_writer_is_waited_for_aloud(line: str) -> None:
    os.mkfifo("pipe")
    process = started(line)
    assert process.stderr is not None
    said = process.stderr.readline()
    assert said == "grpo-adv: pipe is a pipe: waiting for its writer\n"
    Path("pipe").write_text(READERS[line])
    out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, (out, err)


@pytest.mark.parametrize("line", READERS)
def test_ctrl_c_ends_the_wait_for_a_writer(line: str) -> None:
    os.mkfifo("pipe")
    process = started(line)
    assert process.stderr is not None
    assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONGEST)
    assert (process.returncode, err) == (130, "error: interrupted, nothing was left half-written\n"), out
    assert not Path("out.jsonl").exists()


def test_a_pipe_whose_writer_comes_soon_is_read_in_silence() -> None:
    os.mkfifo("pipe")

    def write() -> None:
        time.sleep(0.3)
        Path("pipe").write_text(ROWS)

    writer = threading.Thread(target=write)
    writer.start()
    done = ran("compute pipe -o out.jsonl -q")
    writer.join()
    assert (len(rows_of("out.jsonl")), done.err) == (2, "")


@pytest.mark.parametrize(
    "line", ["compute s.jsonl", "inspect a.jsonl --config s.jsonl", "compute a.jsonl -o s.jsonl --force"]
)
def test_a_socket_is_called_one(line: str) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("s.jsonl")
        done = adv(line)
    assert done.status == 1
    assert done.err.startswith(
        "error: s.jsonl: it is a socket" if "--force" not in line else "error: s.jsonl: is a socket"
    )


@needs_linux
@pytest.mark.parametrize(
    "line",
    [
        "compute a.jsonl -o /proc/x.jsonl",
        "report a.jsonl -o /proc/x.html",
        "compute a.jsonl --only -o x.jsonl --summary /proc/x.json",
    ],
)
def test_where_no_file_can_be_made_no_temporary_name_is_shown(line: str) -> None:
    done = adv(line)
    name = line.rsplit(maxsplit=1)[-1]
    assert (done.status, done.err) == (1, f"error: {name}: no file can be made in /proc; choose another -o\n")
    assert not Path("x.jsonl").exists()


@needs_linux
def test_a_file_that_says_to_be_empty_and_is_not_is_read() -> None:
    """Files of /proc have no size."""
    done = adv("schemas /proc/self/mountinfo")
    assert "no rows" not in done.err
    assert adv("compute /proc/self/mountinfo -o -").err.startswith("error: no column looks like")


@pytest.mark.parametrize("when", ["computing", "writing"])
@pytest.mark.parametrize("gone", ["in", "out"])
@pytest.mark.parametrize("more", [{"output": "out/"}, {"in_place": True}])
def test_a_folder_that_vanishes_is_one_sentence(when: str, gone: str, more: dict[str, Any]) -> None:
    for folder in ("in", "out"):
        Path(folder).mkdir()
    shutil.copy("a.jsonl", "in")

    def phase(name: str, *_: object) -> None:
        if name == when:
            shutil.rmtree(gone, ignore_errors=True)  # writing is said for each file

    wanted = job("in", **more)
    if gone == "out" and (when == "computing" or "in_place" in more):  # it is made
        compute_files.run(wanted, phase)
        return
    with pytest.raises(DataError) as error:
        compute_files.run(wanted, phase)
    said = "there is no directory" if gone == "out" else "a.jsonl: the file changed while it was being read"
    assert said in str(error.value)
    assert not Path("out/a.jsonl").exists()


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    Path("gone").mkdir()
    line = f"{sys.executable} -m grpo_cli compute {tmp_path / 'a.jsonl'} -o x.jsonl"
    shell = f"cd gone && rmdir ../gone && exec {line}"
    environment = {**os.environ, "PYTHONPATH": str(Path(compute_files.__file__).parents[2])}
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (1, "error: the working directory: no such file or directory\n")


@needs_linux
@pytest.mark.parametrize(
    "line",
    ["inspect a.jsonl --against <(cat a.jsonl)", "select a.jsonl --against <(cat a.jsonl) --where 'runs > 0' -o -"],
)
def test_another_run_that_is_a_pipe_is_read_once(line: str) -> None:
    words = f"{sys.executable} -m grpo_cli {line}"
    done = subprocess.run(["/bin/bash", "-c", words], capture_output=True, text=True, check=False, timeout=LONGEST)
    assert (done.returncode, "error" in done.stderr) == (0, False), done
