"""Data cannot control the terminal: no command prints a control character from a key, a column, a text or a name."""

from __future__ import annotations

import csv
import io
import os
import pty
import subprocess
import sys
from contextlib import suppress
from typing import Final

import pytest

from tests.support.command import adv
from tests.support.drawn import paired
from tests.support.jobs import write

# Clear the screen, ring, C1's CSI, turn the direction of writing, end the line, return, half a surrogate pair's place.
HOSTILE: Final = "k\x1b[2J\x07\x9b31m\u202e\u2066\nz\r\x00|"
NAME: Final = HOSTILE.replace("\x00", "")
COMMANDS: Final = [
    "compute FILE -o out.jsonl", "compute FILE --explain", "compute FILE -o out.jsonl --json",
    "compute FILE -o goneNAME/out.jsonl", "compute FILE -o outNAME.xyz",
    "compute FILE --group prompt_id --expect-size 7", "compute FILE --singleton error",
    "compute FILE --zero-variance drop -o out.jsonl", "compute FILE --reward text", "compute FILE --reward NAME",
    "compute FILE --group NAME", "compute FILE --column cNAME -o out.jsonl", "compute FILE --method NAME",
    "compute FILE --preset NAME", "compute FILE --config NAME", "compute FILE --expr NAME", "compute FILE --set NAME",
    "compute FILE --fail-on NAME", "compute FILE --length-column cNAME -o out.jsonl", "compute goneNAME.jsonl",
    "compute FILE --NAME", "NAME", "inspect FILE", "inspect FILE --json", "inspect FILE --format md",
    "inspect FILE --by cNAME", "inspect FILE --show NAME", "inspect FILE --text-column text --duplicates",
    "select FILE --limit 1 -o out.jsonl", "select FILE --where size>99 -o out.jsonl", "select FILE --where NAME>1",
    "export FILE --to sft --prompt cNAME -o out.jsonl", "export FILE --to prompts --prompt NAME -o out.jsonl",
    "export FILE --to sft --prompt cNAME --response text -o goneNAME/out.jsonl",
    "export FILE --to weights --messages text -o out.jsonl", "export FILE --to tokens --length-column cNAME -o out.jsonl",
    "export FILE --to tokens --mask text -o out.jsonl", "export FILE --to tokens --tokens cNAME -o out.jsonl",
    "report FILE -o rNAME.html", "audit FILE --column logged", "compare FILE --method grpo --method rloo",
    "verify FILE --against goneNAME.jsonl", "schemas FILE", "schemas NAME", "methods NAME", "presets NAME",
]  # fmt: skip


@pytest.mark.parametrize(("command", "kind"), paired(COMMANDS, ["jsonl", "parquet", "csv"]))
def test_nothing_that_a_terminal_would_obey_is_printed(command: str, kind: str) -> None:
    texts = {f"c{NAME}": HOSTILE, "text": HOSTILE}
    rows = [{"prompt_id": f"{HOSTILE}{at // 2}", "reward": at % 3, "logged": at % 2 - 0.5, **texts} for at in range(8)]
    file = str(write(f"f{NAME}.{kind}", rows))
    done = adv("", *(word.replace("FILE", file).replace("NAME", NAME) for word in command.split()))
    for text in (done.out, done.err):
        assert all(line.isprintable() for line in text.split("\n")), text
    if done.status:
        assert done.err.count("\n") == 1, done.err


TABLES: Final = ["", " --by cNAME", " --show #1 --text-column text", " --against old=FILE"]
FORMULA: Final = "=HYPERLINK(1)"  # a cell that a spreadsheet computes


def printed_on_a_terminal(*words: str) -> str:
    ours, its = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "grpo_cli", *words], stdout=its) as running:
        os.close(its)
        said = b""
        with suppress(OSError):  # the end, on Linux
            while part := os.read(ours, 10_000):
                said += part
        os.close(ours)
    assert running.returncode == 0
    return said.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("options", TABLES)
def test_a_table_of_csv_is_escaped_on_a_terminal_and_has_every_text_as_it_is_elsewhere(options: str) -> None:
    texts = {f"c{NAME}": HOSTILE, "text": f"{FORMULA}{HOSTILE}"}
    rows = [{"prompt_id": f"{FORMULA}{HOSTILE}{at // 2}", "reward": at % 3, **texts} for at in range(8)]
    file = str(write("f.jsonl", rows))
    line = f"inspect FILE --format csv{options}"
    words = [word.replace("FILE", file).replace("NAME", NAME) for word in line.split()]
    shown = printed_on_a_terminal(*words)
    assert all(each.isprintable() for each in shown.split("\n")), shown
    piped = adv("", *words)
    assert piped.status == 0
    cells = [cell for row in csv.reader(io.StringIO(piped.out, newline="")) for cell in row]
    escaped = [cell for row in csv.reader(io.StringIO(shown)) for cell in row]
    assert len(cells) == len(escaped)
    assert [cell for cell in cells if HOSTILE in cell or NAME in cell] or "--against" in options
    assert not [cell for cell in escaped if "\x1b" in cell]


@pytest.mark.parametrize("options", ["", " --by env", " --show #1 --text-column text", " --old-rewards-column other"])
def test_a_table_of_markdown_has_no_html_of_the_data(options: str) -> None:
    script = "<script>alert(1)</script>&amp;"
    rows = [
        {"prompt_id": f"{script}{at // 4}", "env": f"{script}{at // 8}", "reward": at % 3, "other": at % 2, "text": f"{script}{at}"}
        for at in range(16)
    ]  # fmt: skip
    file = str(write("a<b>.jsonl", rows))
    done = adv("", *f"inspect FILE --format md{options}".replace("FILE", file).split())
    assert done.status == 0, done.err
    assert "<" not in done.out
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;" in done.out
