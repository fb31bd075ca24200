"""Small Parquet files with one wrong bit under the reading commands, in a process that may end: `python -m tests.support.flips FIRST LAST`.

It prints a line for each traceback, and `now` has the file and command that it is at. Two minutes for a file end it.
"""

from __future__ import annotations

import faulthandler
import io
import random
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from grpo_cli.errors import GrpoError
from grpo_cli.guests.browse.model import Model
from grpo_cli.read.texts import Reader, TextColumns
from grpo_cli.runs.inspect import Job
from grpo_cli.stats.inspection import View
from tests.support.command import adv

TABLE: Final = pa.table({
    "prompt_id": [f"p{k // 4}" for k in range(40)],
    "reward": [float(k % 3 == 0) for k in range(40)],
    "tokens": [[k] * (k % 3) for k in range(40)],
    "about": [{"x": k} for k in range(40)],
    "response": [f"text {k}" for k in range(40)],
})  # fmt: skip
OPTIONS: Final[list[dict[str, Any]]] = [
    {},
    {"use_dictionary": False, "row_group_size": 13},
    {"data_page_version": "2.0", "write_page_index": True},
    {"compression": "zstd", "max_rows_per_page": 8},
]
COMMANDS: Final = """
inspect in.parquet
report in.parquet -o out.html --force
select in.parquet -o selected.parquet --force --per-group 1
compute in.parquet -o out.jsonl --force
compute in.parquet -o out.parquet --force
compute in.parquet -o out.parquet --force --zero-variance drop
compare in.parquet --method grpo --method rloo
export in.parquet --to sft -o out.jsonl --force --prompt prompt_id --response response
export in.parquet --to weights -o out.jsonl --force
audit in.parquet
verify in.parquet --against intact.parquet
schemas in.parquet
browse
"""
MOSTLY: Final = 0.6  # of the bits are those of the footer
SECONDS: Final = 120


def written(number: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, **OPTIONS[number % len(OPTIONS)])
    return sink.getvalue()


def spoiled(number: int) -> bytes:
    """The same file with the same wrong bit for a number."""
    chance, data = random.Random(number), bytearray(written(number))  # noqa: S311 - the same each time
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = chance.randrange(footer if chance.random() < MOSTLY else 0, len(data))
    data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


def browsed() -> None:
    """What the screen shows: groups in an order, and the record of a rollout."""
    try:
        model = Model.of(Job(inputs=["in.parquet"], view=View(by_steps=True)))
        (code, *_) = model.shown("std > 0", "spread")
        reader = Reader(model.inspection.narrow, TextColumns(prompt="prompt_id", response="response"))
        for rollout in model.rollouts(int(code)):
            reader.passages(rollout.position)
            reader.fields(rollout.position)
    except GrpoError:
        return


def run(line: str) -> str:
    """What is wrong with how a command ends, or nothing."""
    try:
        if line == "browse":
            browsed()
            return ""
        done = adv(line)
    except BaseException as error:  # noqa: BLE001 - a traceback of whatever kind
        return repr(error)
    return "" if done.status in {0, 1, 2} else str(done)


def main(first: int, last: int) -> None:
    Path("intact.parquet").write_bytes(written(0))
    for number in range(first, last):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        Path("in.parquet").write_bytes(spoiled(number))
        for line in COMMANDS.strip().splitlines():
            Path("now").write_text(f"{number} {line}", encoding="utf-8")
            if wrong := run(line):
                sys.stdout.write(f"{number} {line} {wrong}\n")
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
