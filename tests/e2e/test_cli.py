"""The command as a user runs it: pipes, typos, broken files, interrupts; most lines in this process, one of each kind in its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args, get_origin

import polars as pl
import pytest

from grpo_cli.errors import DataError
from grpo_cli.options.table import OPTIONS, Option
from tests.support.command import adv, process
from tests.support.drawn import some
from tests.support.jobs import write
from tests.support.samples import samples_in

ROWS = '{"prompt_id": "a", "reward": 1}\n{"prompt_id": "a", "reward": 0}\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    samples_in(tmp_path)
    return tmp_path


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


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
def test_a_line_means_in_this_process_what_it_means_in_its_own(line: str, tmp_path: Path) -> None:
    facts = []
    for run, place in ((process, tmp_path / "own"), (adv, tmp_path / "this")):
        samples_in(place)
        (place / "cut.jsonl").write_text(ROWS + '{"prompt_id": "a", "rew')
        done = run(*line.split(), cwd=place, stdin=ROWS)
        written = {path.name: path.read_bytes() for path in place.iterdir()}
        said = [FLEETING.sub("", text) for text in (done.out, done.err)]
        facts.append((done.status, said, written))
    assert facts[0] == facts[1]


def test_a_pipe_gives_lines_to_stdout_and_the_summary_to_stderr(place: Path) -> None:
    done = adv("compute", "-", cwd=place, stdin=ROWS)
    assert [row["advantage"] for row in done.rows] == pytest.approx([0.7071057811867, -0.7071057811867])
    assert "method         grpo" in done.err


def test_quiet_says_nothing_at_all(place: Path) -> None:
    assert adv("compute", "-", "-q", cwd=place, stdin=ROWS).err == ""


def test_the_json_summary_is_alone_on_stdout_has_no_bare_nan_and_is_that_of_summary(place: Path) -> None:
    (place / "nan.jsonl").write_text('{"prompt_id": 1, "reward": NaN}\n{"prompt_id": 1, "reward": 1}\n')
    done = adv("compute", "nan.jsonl", "--missing", "propagate", "--json", "--summary", "s.json", cwd=place)
    facts = json.loads(done.out, parse_constant=lambda name: pytest.fail(f"bare {name}"))
    assert json.loads((place / "s.json").read_text()) == facts
    assert done.err == ""


def test_explain_is_a_dry_run_and_writes_nothing(place: Path) -> None:
    before = files(place)
    done = adv("compute", "rewards.jsonl", "--explain", cwd=place)
    assert (done.status, files(place)) == (0, before)
    assert adv("compute", "rewards.jsonl", "--dry-run", cwd=place).out == done.out


def test_a_gate_that_holds_exits_3_and_writes_nothing(place: Path) -> None:
    before = files(place)
    done = adv("compute", "rewards.jsonl", "--fail-on", "zero_variance_share > 0.1", cwd=place)
    assert done.status == 3
    assert "zero_variance_share is 0.222222" in done.err
    assert files(place) == before


@pytest.mark.parametrize("gates", [("rows > 1", "rows > 99"), ("rows > 99", "rows > 1")])
def test_of_several_gates_any_that_holds_stops_the_run(gates: tuple[str, str], place: Path) -> None:
    before = files(place)
    done = adv("compute", "rewards.jsonl", "--fail-on", gates[0], "--fail-on", gates[1], cwd=place)
    assert done.status == 3
    assert "the --fail-on condition 'rows > 1' holds, nothing was written; rows is 46" in done.err
    assert files(place) == before
    assert adv("compute", "rewards.jsonl", "--fail-on", "rows > 98", "--fail-on", "rows > 99", cwd=place).status == 0


@pytest.mark.parametrize(
    "command",
    [["presets"], ["methods"], ["presets", "--json"], ["inspect", "rewards.jsonl"], ["--help"], ["compute", "--help"]],
    ids=" ".join,
)
def test_a_reader_that_leaves_a_listing_early_is_no_error(command: list[str], place: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "grpo_cli", *command], cwd=place, stdout=gone, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_broken_pipe_is_silent(place: Path) -> None:
    wide = '{"prompt_id": "a", "reward": 1, "text": "' + "x" * 4000 + '"}\n'
    (place / "wide.jsonl").write_text((wide + wide.replace('"reward": 1', '"reward": 0')) * 500)
    command = f"{sys.executable} -m grpo_cli compute wide.jsonl -q -o - | head -n 1"
    done = subprocess.run(command, shell=True, cwd=place, capture_output=True, text=True, check=False)  # noqa: S602
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with a file that takes a while to pack."""
    place = tmp_path_factory.mktemp("large")
    lines = (f'{{"prompt_id": "{i // 8}", "reward": {i % 3}}}\n' for i in range(1_000_000))
    (place / "big.jsonl").write_text("".join(lines))
    return place


def catches(process: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal; taken for granted where the system does not say."""
    status = Path(f"/proc/{process}/status")
    caught = re.search(r"SigCgt:\s*(\w+)", status.read_text()) if status.exists() else None
    return caught is None or bool(int(caught[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_while_it_writes_leaves_nothing_behind(large: Path, number: int, status: int) -> None:
    command = [sys.executable, "-m", "grpo_cli", "compute", "big.jsonl", "-o", "out.jsonl.gz"]
    with subprocess.Popen(command, cwd=large, stderr=subprocess.PIPE, text=True) as running:
        while running.poll() is None and not (catches(running.pid, number) and files(large) != ["big.jsonl"]):
            time.sleep(0.002)
        running.send_signal(number)
        _, said = running.communicate(timeout=60)
    assert running.returncode == status, said
    assert files(large) == ["big.jsonl"]
    assert "Traceback" not in said


def typo(flag: str) -> str:
    """The flag with a letter doubled in its middle."""
    middle = len(flag) // 2 + 1
    return flag[:middle] + flag[middle - 1] + flag[middle:]


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_a_typo_in_an_option_is_one_line_with_the_right_name(option: Option, place: Path) -> None:
    done = adv("compute", "rewards.jsonl", typo(option.flag), "x", cwd=place)
    assert done.status == 2
    assert len(done.err.strip().splitlines()) == 1
    assert option.flag in done.err


BAD: dict[str, str] = {
    "method": "rlo", "param": "beta", "set": "divisor.epsilom=1", "reward": "rewarf", "group": "promptid", "expr": "reward +",
    "group_within": "fil", "batch_by": "ste", "rollout": "run", "reward_clip": "1", "clip": "a:b", "overlong": "1:2:3:4",
    "config": "none.toml", "fail_on": "zero_varianc > 1", "output": "rewards.docx", "length_column": "lenght", "summary": "no/such/dir/s.json",
}  # fmt: skip


def wrong(option: Option) -> str:
    hint = next((arg for arg in get_args(option.type) if get_origin(option.type) is not list), option.type)
    return BAD.get(option.name, "-" if hint in {int, float} else "nonsense")


@pytest.mark.parametrize(
    "option", [o for o in OPTIONS.values() if o.type is not bool and o.name != "column"], ids=lambda option: option.name
)
def test_a_wrong_value_of_any_option_is_one_line_and_no_file(option: Option, place: Path) -> None:
    before = files(place)
    beside = {"kl_column": ["--kl-coef", "1"], "logprob_column": ["-m", "unlikeliness"], "seed": ["--duplicate"]}
    done = adv("compute", "rewards.jsonl", *beside.get(option.name, ()), option.flag, wrong(option), cwd=place)
    assert done.status in {1, 2}, done
    assert len(done.err.strip().splitlines()) == 1
    assert files(place) == before


def test_debug_shows_the_traceback(place: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        adv("compute", "none.jsonl", "--debug", cwd=place)


def test_an_unknown_method_is_answered_with_the_nearest_name() -> None:
    assert "did you mean 'rloo'" in adv("methods", "rlo").err


# --- texts in the place of rewards -------------------------------------------------------------------------


def test_the_values_of_texts_are_printed_wherever_the_plan_is(tmp_path: Path) -> None:
    pl.DataFrame({"prompt_id": ["a", "a"], "result": ["pass", "fail"]}).write_parquet(tmp_path / "a.parquet")
    words = ("a.parquet", "--reward", "result", "--map", "pass=1,fail=-0.5")
    for more in (("--dry-run",), ("--explain",)):
        assert "text values: pass = 1, fail = -0.5" in " ".join(adv("compute", *words, *more, cwd=tmp_path).out.split())
    done = adv("compute", *words, "--json", "-o", "b.parquet", cwd=tmp_path)
    said = json.loads(pl.read_parquet_metadata(tmp_path / "b.parquet")["grpo_adv"])["map"]
    assert json.loads(done.out)["map"] == said == {"pass": 1.0, "fail": -0.5}


def test_a_text_of_the_map_that_occurs_in_no_row_is_a_warning(tmp_path: Path) -> None:
    rows = [{"prompt_id": k // 2, "result": text} for k, text in enumerate(["pass", "pass", "fail", "fail"])]
    write(tmp_path / "a.jsonl", rows)
    words = ("--reward", "result", "--map", "pass=1,fail=0,pas=2")
    done = adv("select", "a.jsonl", *words, "--top", "1", "--json", "-o", "b.jsonl", cwd=tmp_path)
    assert "--map names 'pas', which no row has" in json.loads(done.out)["warnings"]
    stream = ("compute", "-", "--stream", "-g", "prompt_id", *words, "--summary", "s.json")
    done = adv(*stream, stdin=(tmp_path / "a.jsonl").read_text(encoding="utf-8"), cwd=tmp_path)
    facts = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert facts["map"] == {"pass": 1.0, "fail": 0.0, "pas": 2.0}
    assert not [one for one in facts["warnings"] if "--map" in one]  # a group of a stream need not have every text


def test_verify_names_an_arrow_file_whose_texts_are_spoiled(tmp_path: Path) -> None:
    pl.DataFrame({"prompt_id": ["multiply", "multiply"], "reward": [0.0, 1.0]}).write_ipc(tmp_path / "a.arrow")
    spoiled = (tmp_path / "a.arrow").read_bytes().replace(b"multiply", b"\xffultiply", 1)
    (tmp_path / "b.arrow").write_bytes(spoiled)
    done = adv("verify", "b.arrow", "--against", "a.arrow", cwd=tmp_path)
    assert done.status == 1 and done.err.startswith("error: b.arrow: not readable as Arrow IPC: ")
