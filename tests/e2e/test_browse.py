"""`grpo-adv browse` as a whole process in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from threading import Timer

import pytest

from grpo_cli.files.installation import install
from tests.support.command import adv
from tests.support.jobs import samples_in

BROWSE = "browse sample_data/chats.jsonl"
SHOWN = "What is 17 + 25?"


@pytest.fixture(autouse=True)
def _samples(place: Path) -> None:
    samples_in(place / "sample_data")


def started(line: str, *, hang_up: signal.Handlers = signal.SIG_DFL, colours: bool = False) -> tuple[int, int]:
    """A command in a terminal of 80x24, and what it does when that hangs up; its process and the other end of the terminal."""
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, hang_up)
        os.environ.update(TERM="xterm-256color", NO_COLOR="1")
        if colours:
            del os.environ["NO_COLOR"]
        os.execv(sys.executable, [sys.executable, "-m", "grpo_cli", *shlex.split(line)])  # noqa: S606 - no shell is meant
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    return pid, terminal


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_a_terminal(line: str, *, keys: str = "q", until: str = SHOWN, colours: bool = False) -> tuple[int, str]:
    """Run a command in a terminal of 80x24, press the keys when a text is shown; its status and all that it wrote."""
    pid, terminal = started(line, colours=colours)
    written = b""
    pressed = False
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not part:
            break
        written += part
        if not pressed and until.encode() in written:
            os.write(terminal, keys.encode())
            pressed = True
    os.close(terminal)
    return ended(pid), written.decode(errors="replace")


def colours_in(text: str) -> set[str]:
    return {code for codes in re.findall(r"\x1b\[([\d;]*)m", text) for code in codes.split(";")}


def test_a_screen_is_shown_without_colours_and_left_with_q() -> None:
    status, text = in_a_terminal(BROWSE)
    assert status == 0
    assert "add-17-25" in text
    assert {code for code in colours_in(text) if code[:1] in {"3", "4"} and len(code) == 2} <= {"39", "49"}


def test_a_screen_has_the_sixteen_colours_of_the_terminal() -> None:
    """Cyan keys, a green and a red sign, magenta and blue speakers, and no colour that a theme would not change."""
    _, text = in_a_terminal(BROWSE, colours=True)
    assert {"31", "32", "34", "35", "36"} <= colours_in(text)
    assert not {"38", "48"} & colours_in(text)


@pytest.mark.parametrize("hang_up", [signal.SIG_DFL, signal.SIG_IGN], ids=["", "nohup"])
def test_it_ends_with_its_terminal(hang_up: signal.Handlers) -> None:
    pid, terminal = started(BROWSE, hang_up=hang_up)
    patience = Timer(60, os.kill, (pid, signal.SIGKILL))
    patience.start()
    written = b""
    while SHOWN.encode() not in written:
        written += os.read(terminal, 1 << 16)
    os.close(terminal)
    status = ended(pid)
    patience.cancel()
    assert status == 128 + signal.SIGHUP


def test_it_starts_at_a_group_and_prints_the_requested_commands() -> None:
    status, text = in_a_terminal(f"{BROWSE} --show hex-255 -w 'size < 4'", keys="oqq", until="hexadecimal")
    assert status == 0
    assert text.rstrip().endswith("grpo-adv select sample_data/chats.jsonl --where 'size < 4' --output NEW_FILE")
    assert "grpo-adv browse sample_data/chats.jsonl --where 'size < 4' --show hex-255" in text


def test_a_screen_that_nobody_would_see_is_not_opened() -> None:
    ours, theirs = os.openpty()
    words = [sys.executable, "-m", "grpo_cli", *BROWSE.split()]
    done = subprocess.run(words, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: browse needs a terminal")


@pytest.mark.parametrize(
    ("line", "message"), [(BROWSE, "browse needs a terminal"), ("browse -", "browse reads keys from standard input")]
)
def test_without_a_terminal_it_says_so(line: str, message: str) -> None:
    done = adv(line)
    assert done.status == 2
    assert message in done.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("browse sample_data/nothing.jsonl", "no such file"),
        (f"{BROWSE} --where 'meen > 0'", "no fact of a group named 'meen'"),
        (f"{BROWSE} --sort stdd", "no fact of a group named 'stdd'"),
        (f"{BROWSE} --show add-1725", "no group has the key 'add-1725'"),
    ],
)
def test_an_error_is_printed_before_the_screen_opens(line: str, message: str) -> None:
    status, text = in_a_terminal(line, until="never")
    assert status in {1, 2}
    assert message in " ".join(text.split())
    assert "\x1b[?1049h" not in text


def test_without_textual_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_cli.guests.browse.run.find_spec", lambda _name: None)
    done = adv(BROWSE)
    assert done.status == 2
    assert "browse needs textual" in done.err
    assert install("browse") in " ".join(done.err.split())
