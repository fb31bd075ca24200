"""The command as a user runs it: pipes, typos, broken files, interrupts; most lines in this process, one of each kind in its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from grpo_cli.errors import DataError
from tests.support.command import adv, files, process, ran
from tests.support.drawn import some
from tests.support.jobs import write
from tests.support.samples import samples_in

ROWS = '{"prompt_id": "a", "reward": 1}\n{"prompt_id": "a", "reward": 0}\n'


@pytest.fixture(autouse=True)
def _samples(place: Path) -> None:
    samples_in(place)


# The time it took, and the name of the program.
FLEETING = re.compile(r"[0-9.]+ s$|(?<=\"seconds\": )[0-9.]+|python -m grpo_cli|grpo-adv| +$", re.MULTILINE)
LINES = [
    "compute rewards.jsonl --method rloo --scale batch", "compute rewards.jsonl --json", "compute rewards.jsonl --explain",
    "compute rewards.jsonl -q -o -", "compute -", "compute - --stream --group prompt_id",
    "compute rewards.jsonl --fail-on zero_variance_share>0.1", "compute rewards.jsonl --mehtod rloo", "compute cut.jsonl",
    "inspect rewards.jsonl --by prompt_id", "select rewards.jsonl --limit 2", "audit rewards.jsonl",
    "verify rewards.jsonl --against cut.jsonl", "report rewards.jsonl -o a.docx",
    "methods rloo", "schemas rewards.jsonl", "compute --help", "--help", "", "--version",
]  # fmt: skip


@pytest.mark.parametrize("line", some(LINES, 2))
def test_a_line_means_in_this_process_what_it_means_in_its_own(line: str) -> None:
    facts = []
    for run, folder in ((process, Path("own")), (adv, Path("this"))):
        samples_in(folder)
        (folder / "cut.jsonl").write_text(ROWS + '{"prompt_id": "a", "rew')
        done = run(line, cwd=folder, stdin=ROWS)
        said = [FLEETING.sub("", text) for text in (done.out, done.err)]
        facts.append((done.status, said, files(folder)))
    assert facts[0] == facts[1]


def test_a_pipe_gives_lines_to_stdout_and_the_summary_to_stderr() -> None:
    done = adv("compute -", stdin=ROWS)
    assert [row["advantage"] for row in done.rows] == pytest.approx([0.7071057811867, -0.7071057811867])
    assert "method         grpo" in done.err
    assert adv("compute - -q", stdin=ROWS).err == ""


def test_the_json_summary_is_alone_on_stdout_has_no_bare_nan_and_is_that_of_summary() -> None:
    Path("nan.jsonl").write_text('{"prompt_id": 1, "reward": NaN}\n{"prompt_id": 1, "reward": 1}\n')
    done = adv("compute nan.jsonl --missing propagate --json --summary s.json")
    facts = json.loads(done.out, parse_constant=lambda name: pytest.fail(f"bare {name}"))
    assert json.loads(Path("s.json").read_text()) == facts
    assert done.err == ""


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        ("--fail-on 'zero_variance_share > 0.1'", "zero_variance_share is 0.222222"),
        ("--fail-on 'rows > 1' --fail-on 'rows > 99'", "'rows > 1' holds, nothing was written; rows is 46"),
        ("--fail-on 'rows > 99' --fail-on 'rows > 1'", "'rows > 1' holds, nothing was written; rows is 46"),
    ],
)
def test_any_gate_that_holds_exits_3_and_writes_nothing(gates: str, said: str) -> None:
    before = files()
    done = adv(f"compute rewards.jsonl {gates}")
    assert (done.status, said in done.err, files()) == (3, True, before)
    ran("compute rewards.jsonl --fail-on 'rows > 98' --fail-on 'rows > 99'")


@pytest.mark.parametrize(
    "command", ["presets", "methods", "presets --json", "inspect rewards.jsonl", "--help", "compute --help"]
)
def test_a_reader_that_leaves_a_listing_early_is_no_error(command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "grpo_cli", *command.split()]
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(words, stdout=gone, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_broken_pipe_is_silent() -> None:
    write("wide.jsonl", [{"prompt_id": "a", "reward": at % 2, "text": "x" * 4000} for at in range(1000)])
    command = f"{sys.executable} -m grpo_cli compute wide.jsonl -q -o - | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(DataError, match="no such file"):
        adv("compute none.jsonl --debug")


# --- texts in the place of rewards -------------------------------------------------------------------------


def test_the_values_of_texts_are_printed_wherever_the_plan_is() -> None:
    write("a.parquet", [{"prompt_id": "a", "result": "pass"}, {"prompt_id": "a", "result": "fail"}])
    line = "compute a.parquet --reward result --map pass=1,fail=-0.5"
    for more in ("--dry-run", "--explain"):
        assert "text values: pass = 1, fail = -0.5" in " ".join(adv(f"{line} {more}").out.split())
    done = adv(f"{line} --json -o b.parquet")
    said = json.loads(pl.read_parquet_metadata("b.parquet")["grpo_adv"])["map"]
    assert json.loads(done.out)["map"] == said == {"pass": 1.0, "fail": -0.5}


def test_a_text_of_the_map_that_occurs_in_no_row_is_a_warning() -> None:
    write("a.jsonl", [{"prompt_id": k // 2, "result": "pass" if k < 2 else "fail"} for k in range(4)])
    options = "--reward result --map pass=1,fail=0,pas=2"
    done = adv(f"select a.jsonl {options} --top 1 --json -o b.jsonl")
    assert "--map names 'pas', which no row has" in json.loads(done.out)["warnings"]
    adv(f"compute - --stream -g prompt_id {options} --summary s.json", stdin=Path("a.jsonl").read_text())
    facts = json.loads(Path("s.json").read_text())
    assert facts["map"] == {"pass": 1.0, "fail": 0.0, "pas": 2.0}
    assert not [one for one in facts["warnings"] if "--map" in one]  # a group of a stream need not have every text


def test_verify_names_an_arrow_file_whose_texts_are_spoiled() -> None:
    data = write("a.arrow", [{"prompt_id": "multiply", "reward": reward} for reward in (0.0, 1.0)]).read_bytes()
    Path("b.arrow").write_bytes(data.replace(b"multiply", b"\xffultiply", 1))
    done = adv("verify b.arrow --against a.arrow")
    assert done.status == 1 and done.err.startswith("error: b.arrow: not readable as Arrow IPC: ")
