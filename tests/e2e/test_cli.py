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
from tests.support.command import adv, files, process, ran
from tests.support.drawn import some
from tests.support.jobs import samples_in, write

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


def test_explain_is_a_dry_run_and_writes_nothing() -> None:
    before = files()
    done = adv("compute rewards.jsonl --explain")
    assert done.status == 0
    assert files() == before
    assert adv("compute rewards.jsonl --dry-run").out == done.out


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
    assert done.status == 3
    assert said in done.err
    assert files() == before
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
    assert done.returncode == 141
    assert done.stderr == b""


def test_a_write_that_ends_halfway_is_an_error_where_python_has_no_buffer() -> None:
    """PYTHONUNBUFFERED is set in many containers; the reader takes a part of one long write and leaves."""
    write("rows.jsonl", [{"prompt": f"p{at}", "completion": "x" * 400, "reward": 1} for at in range(1000)])
    words = [sys.executable, "-m", "grpo_cli", "export", "rows.jsonl", "--to", "sft", "-o", "-"]
    done = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert done.stdout is not None
    assert os.read(done.stdout.fileno(), 1000)
    done.stdout.close()
    assert done.communicate()[1] == b""
    assert done.returncode == 141


def test_a_broken_pipe_is_silent() -> None:
    write("wide.jsonl", [{"prompt_id": "a", "reward": at % 2, "text": "x" * 4000} for at in range(1000)])
    command = f"{sys.executable} -m grpo_cli compute wide.jsonl -q -o - | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with a file that takes a while to pack."""
    place = tmp_path_factory.mktemp("large")
    lines = (f'{{"prompt_id": "{i // 8}", "reward": {i % 3}}}\n' for i in range(300_000))
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
        while running.poll() is None and not (catches(running.pid, number) and len([*large.iterdir()]) > 1):
            time.sleep(0.002)
        running.send_signal(number)
        _, said = running.communicate(timeout=60)
    left = sorted(path.name for path in large.iterdir())
    if running.returncode == 0:  # on a busy machine the signal may come after the rename
        assert left == ["big.jsonl", "out.jsonl.gz"], said
    else:
        assert (running.returncode, left) == (status, ["big.jsonl"]), said
    assert "Traceback" not in said


def typo(flag: str) -> str:
    """The flag with a letter doubled in its middle."""
    middle = len(flag) // 2 + 1
    return flag[:middle] + flag[middle - 1] + flag[middle:]


@pytest.mark.parametrize("option", some(OPTIONS.values(), 4), ids=lambda option: option.name)
def test_a_typo_in_an_option_is_one_line_with_the_right_name(option: Option) -> None:
    done = adv(f"compute rewards.jsonl {typo(option.flag)} x")
    assert (done.status, done.err.count("\n"), option.flag in done.err) == (2, 1, True), done


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
def test_a_wrong_value_of_any_option_is_one_line_and_no_file(option: Option) -> None:
    before = files()
    beside = {"kl_column": "--kl-coef 1", "logprob_column": "-m unlikeliness", "seed": "--duplicate"}
    done = adv(f"compute rewards.jsonl {beside.get(option.name, '')}", option.flag, wrong(option))
    assert (done.status in {1, 2}, done.err.count("\n"), files()) == (True, 1, before), done


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(DataError, match="no such file"):
        adv("compute none.jsonl --debug")


def test_an_unknown_method_is_answered_with_the_nearest_name() -> None:
    assert "did you mean 'rloo'" in adv("methods rlo").err


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
    assert done.status == 1
    assert done.err.startswith("error: b.arrow: not readable as Arrow IPC: ")
