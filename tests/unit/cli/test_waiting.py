"""The line while files are read: shown after a moment, and gone before anything else is printed."""

from __future__ import annotations

import io
import os
import pty
import sys
import time
from pathlib import Path

import pytest

from grpo_cli.cli import waiting

LINE = "reading a.jsonl ..."


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal as standard error: in the test itself, since pytest sets that anew after fixtures."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(waiting, "PATIENCE", 0.01)
    monkeypatch.setenv("NO_COLOR", "1")
    return stream


def shown(terminal: Terminal) -> str:
    deadline = time.monotonic() + 5
    while not terminal.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    return terminal.getvalue()


def test_it_is_shown_after_a_moment_and_taken_away_once(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    waiting.begin(["a.jsonl"])
    assert shown(terminal) == LINE
    waiting.end()
    waiting.end()
    assert terminal.getvalue() == LINE + waiting.CLEARED


def test_a_run_that_ends_before_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(waiting, "PATIENCE", 0.1)
    waiting.begin(["a.jsonl"])
    waiting.end()
    time.sleep(0.2)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        (["a.jsonl", "b.jsonl", "c.jsonl"], "reading a.jsonl and 2 more ..."),
        (["https://u:secret@x.org/a.jsonl?sig=secret"], "reading https://x.org/a.jsonl ..."),
        (["a\x1b[2J.jsonl"], "reading a\\x1b[2J.jsonl ..."),
        (["x" * 200], ("reading " + "x" * 200)[:79]),
    ],
)
def test_it_names_the_first_file_on_one_line(monkeypatch: pytest.MonkeyPatch, inputs: list[str], line: str) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    waiting.begin(inputs)
    assert shown(terminal) == line
    waiting.end()


@pytest.mark.parametrize("inputs", [[], ["-"]])
def test_where_nothing_is_read_from_files_there_is_none(monkeypatch: pytest.MonkeyPatch, inputs: list[str]) -> None:
    terminal = terminal_of(monkeypatch)
    waiting.begin(inputs)
    time.sleep(0.05)
    assert terminal.getvalue() == ""


def test_a_pipe_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    waiting.begin(["a.jsonl"])
    time.sleep(0.05)
    waiting.end()
    assert stream.getvalue() == ""


def in_a_terminal(words: list[str]) -> str:
    pid, terminal = pty.fork()
    if not pid:
        os.environ.update(TERM="xterm-256color", NO_COLOR="1", COLUMNS="80")
        code = "from grpo_cli.cli import entry, waiting; waiting.PATIENCE = 0.0; entry.main()"
        os.execv(sys.executable, [sys.executable, "-c", code, *words])  # noqa: S606 - no shell is meant
    written = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not part:
            break
        written += part
    os.close(terminal)
    os.waitpid(pid, 0)
    return written.decode(errors="replace")


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (["inspect", "a.jsonl"], "input "),
        (["compute", "a.jsonl", "-o", "b.jsonl"], "method "),
        (["compare", "a.jsonl", "-m", "grpo", "-m", "rloo"], "input "),
        (["select", "a.jsonl", "--where", "std > 0", "-o", "c.jsonl"], "input "),
        (["inspect", "a.jsonl", "--group", "nothing"], "error:"),
        (["inspect", "a.jsonl", "--format", "csv"], "prompt_id,"),
        (["export", "a.jsonl", "--to", "weights", "-o", "d.jsonl"], ""),
    ],
)
def test_a_command_takes_it_away_before_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], after: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text(
        "".join(f'{{"prompt_id": {k // 2}, "prompt": "p", "completion": "c", "reward": {k % 2}}}\n' for k in range(8))
    )
    first, _, rest = in_a_terminal(words).partition(waiting.CLEARED)
    assert first == LINE
    assert LINE not in rest
    assert rest.lstrip().startswith(after)


def test_none_is_shown_where_data_go_to_the_terminal_or_nothing_is_to_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"prompt_id": 1, "reward": 0}\n{"prompt_id": 1, "reward": 1}\n')
    for words in (["compute", "a.jsonl", "-o", "-"], ["inspect", "a.jsonl", "-q"]):
        assert LINE not in in_a_terminal(words)
