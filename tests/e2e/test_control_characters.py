"""Data cannot control the terminal: no command prints a control character from a key, a column, a text or a name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.command import adv
from tests.support.drawn import paired
from tests.support.jobs import write

# Clear the screen, ring, C1's CSI, turn the direction of writing, end the line, return, half a surrogate pair's place.
HOSTILE: Final = "k\x1b[2J\x07\x9b31m\u202e\u2066\nz\r\x00|"
NAME: Final = HOSTILE.replace("\x00", "")
COLUMN: Final = f"c{NAME}"
COMMANDS: Final = [
    ["compute", "FILE", "-o", "out.jsonl"],
    ["compute", "FILE", "--explain"],
    ["compute", "FILE", "-o", "out.jsonl", "--json"],
    ["compute", "FILE", "-o", f"gone{NAME}/out.jsonl"],
    ["compute", "FILE", "-o", f"out{NAME}.xyz"],
    ["compute", "FILE", "--group", "prompt_id", "--expect-size", "7"],
    ["compute", "FILE", "--singleton", "error"],
    ["compute", "FILE", "--zero-variance", "drop", "-o", "out.jsonl"],
    ["compute", "FILE", "--reward", "text"],
    ["compute", "FILE", "--reward", NAME],
    ["compute", "FILE", "--group", NAME],
    ["compute", "FILE", "--column", COLUMN, "-o", "out.jsonl"],
    ["compute", "FILE", "--method", NAME],
    ["compute", "FILE", "--preset", NAME],
    ["compute", "FILE", "--config", NAME],
    ["compute", "FILE", "--expr", NAME],
    ["compute", "FILE", "--set", NAME],
    ["compute", "FILE", "--fail-on", NAME],
    ["compute", "FILE", "--length-column", COLUMN, "-o", "out.jsonl"],
    ["compute", f"gone{NAME}.jsonl"],
    ["compute", "FILE", f"--{NAME}"],
    [NAME],
    ["inspect", "FILE"],
    ["inspect", "FILE", "--json"],
    ["inspect", "FILE", "--format", "md"],
    ["inspect", "FILE", "--by", COLUMN],
    ["inspect", "FILE", "--show", NAME],
    ["inspect", "FILE", "--text-column", "text", "--duplicates"],
    ["select", "FILE", "--limit", "1", "-o", "out.jsonl"],
    ["select", "FILE", "--where", "size > 99", "-o", "out.jsonl"],
    ["select", "FILE", "--where", f"{NAME} > 1"],
    ["export", "FILE", "--to", "sft", "--prompt", COLUMN, "-o", "out.jsonl"],
    ["export", "FILE", "--to", "prompts", "--prompt", NAME, "-o", "out.jsonl"],
    ["export", "FILE", "--to", "sft", "--prompt", COLUMN, "--response", "text", "-o", f"gone{NAME}/out.jsonl"],
    ["export", "FILE", "--to", "weights", "--messages", "text", "-o", "out.jsonl"],
    ["export", "FILE", "--to", "tokens", "--length-column", COLUMN, "-o", "out.jsonl"],
    ["export", "FILE", "--to", "tokens", "--mask", "text", "-o", "out.jsonl"],
    ["export", "FILE", "--to", "tokens", "--tokens", COLUMN, "-o", "out.jsonl"],
    ["report", "FILE", "-o", f"r{NAME}.html"],
    ["audit", "FILE", "--column", "logged"],
    ["compare", "FILE", "--method", "grpo", "--method", "rloo"],
    ["verify", "FILE", "--against", f"gone{NAME}.jsonl"],
    ["schemas", "FILE"],
    ["schemas", NAME],
    ["methods", NAME],
    ["presets", NAME],
]


def written(kind: str, folder: Path) -> str:
    rows = [
        {"prompt_id": f"{HOSTILE}{at // 2}", "reward": at % 3, COLUMN: HOSTILE, "text": HOSTILE, "logged": at % 2 - 0.5}
        for at in range(8)
    ]
    return write(folder / f"f{NAME}.{kind}", rows).name


@pytest.mark.parametrize(
    ("command", "kind"),
    paired(COMMANDS, ["jsonl", "parquet", "csv"]),
    ids=lambda words: " ".join(words).encode("unicode_escape").decode()[:60] if isinstance(words, list) else words,
)
def test_nothing_that_a_terminal_would_obey_is_printed(command: list[str], kind: str, tmp_path: Path) -> None:
    file = written(kind, tmp_path)
    done = adv(*(file if word == "FILE" else word for word in command), cwd=tmp_path)
    for text in (done.out, done.err):
        assert all(line.isprintable() for line in text.split("\n")), text
    if done.status:
        assert done.err.count("\n") == 1, done.err
