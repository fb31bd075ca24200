"""`grpo-adv browse` as a whole process in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
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
from tests.support.samples import samples_in


@pytest.fixture
def place(tmp_path: Path) -> Path:
    samples_in(tmp_path / "sample_data")
    return tmp_path


def started(
    *arguments: str, cwd: Path, hang_up: signal.Handlers = signal.SIG_DFL, no_color: str | None = "1"
) -> tuple[int, int]:
    """A command in a terminal of 80x24, and what it does when that hangs up; its process and the other end of the terminal."""
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, hang_up)
        os.chdir(cwd)
        os.environ.pop("NO_COLOR", None)
        os.environ.update(TERM="xterm-256color", **({} if no_color is None else {"NO_COLOR": no_color}))
        os.execv(sys.executable, [sys.executable, "-m", "grpo_cli", *arguments])  # noqa: S606 - no shell is meant
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    return pid, terminal


def in_a_terminal(*arguments: str, keys: str, until: str, cwd: Path, no_color: str | None = "1") -> tuple[int, str]:
    """Run a command in a terminal of 80x24, press the keys when a text is shown; its status and all that it wrote."""
    pid, terminal = started(*arguments, cwd=cwd, no_color=no_color)
    written, pressed = b"", False
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
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), written.decode(errors="replace")


def test_a_screen_is_shown_without_colours_and_left_with_q(place: Path) -> None:
    status, text = in_a_terminal("browse", "sample_data/chats.jsonl", keys="q", until="What is 17 + 25?", cwd=place)
    assert status == 0
    assert "add-17-25" in text
    coloured = [
        code for codes in re.findall(r"\x1b\[([\d;]*)m", text) for code in codes.split(";") if code[:1] in {"3", "4"}
    ]
    assert {code for code in coloured if len(code) == 2} <= {"39", "49"}
    assert not any(code in {"38", "48"} for code in coloured)


def test_a_screen_has_the_sixteen_colours_of_the_terminal(place: Path) -> None:
    """Cyan keys, a green and a red sign, magenta and blue speakers, and no colour that a theme would not change."""
    _, text = in_a_terminal(
        "browse", "sample_data/chats.jsonl", keys="q", until="What is 17 + 25?", cwd=place, no_color=None
    )
    codes = {code for codes in re.findall(r"\x1b\[([\d;]*)m", text) for code in codes.split(";")}
    assert {"31", "32", "34", "35", "36"} <= codes
    assert not {"38", "48"} & codes


@pytest.mark.parametrize("hang_up", [signal.SIG_DFL, signal.SIG_IGN], ids=["", "nohup"])
def test_it_ends_with_its_terminal(hang_up: signal.Handlers, place: Path) -> None:
    pid, terminal = started("browse", "sample_data/chats.jsonl", cwd=place, hang_up=hang_up)
    patience = Timer(60, os.kill, (pid, signal.SIGKILL))
    patience.start()
    written = b""
    while b"What is 17 + 25?" not in written:
        written += os.read(terminal, 1 << 16)
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    patience.cancel()
    assert status == 128 + signal.SIGHUP


def test_it_starts_at_a_group_and_prints_the_requested_commands(place: Path) -> None:
    status, text = in_a_terminal(
        "browse", "sample_data/chats.jsonl", "--show", "hex-255", "-w", "size < 4", keys="oqq", until="hexadecimal", cwd=place
    )  # fmt: skip
    assert status == 0
    assert text.rstrip().endswith("grpo-adv select sample_data/chats.jsonl --where 'size < 4' --output NEW_FILE")
    assert "grpo-adv browse sample_data/chats.jsonl --where 'size < 4' --show hex-255" in text


def test_a_screen_that_nobody_would_see_is_not_opened(place: Path) -> None:
    ours, theirs = os.openpty()
    words = [sys.executable, "-m", "grpo_cli", "browse", "sample_data/chats.jsonl"]
    done = subprocess.run(
        words, cwd=place, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, done.stderr[:29]) == (2, b"error: browse needs a terminal"[:29])


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [(["sample_data/chats.jsonl"], 2, "browse needs a terminal"), (["-"], 2, "browse reads keys from standard input")],
)
def test_without_a_terminal_it_says_so(place: Path, arguments: list[str], status: int, message: str) -> None:
    done = adv("browse", *arguments, cwd=place)
    assert done.status == status
    assert message in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sample_data/nothing.jsonl"], "no such file"),
        (["sample_data/chats.jsonl", "--where", "meen > 0"], "no fact of a group named 'meen'"),
        (["sample_data/chats.jsonl", "--sort", "stdd"], "no fact of a group named 'stdd'"),
        (["sample_data/chats.jsonl", "--show", "add-1725"], "did you mean 'add-17-25'"),
    ],
)
def test_an_error_is_printed_before_the_screen_opens(place: Path, arguments: list[str], message: str) -> None:
    status, text = in_a_terminal("browse", *arguments, keys="", until="never", cwd=place)
    assert status in {1, 2}
    assert message in " ".join(text.split())
    assert "\x1b[?1049h" not in text


def test_without_textual_it_says_what_to_install(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_cli.cli.browse.find_spec", lambda _name: None)
    done = adv("browse", "sample_data/chats.jsonl", cwd=place)
    assert done.status == 2
    assert "browse needs textual" in done.err
    monkeypatch.chdir(place)  # in a clone, the command names it "."
    assert install("browse") in " ".join(done.err.split())
