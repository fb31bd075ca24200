"""What shells, file systems and other programs do around a run: unset variables, closed terminals, files that change."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from grpo_cli.errors import DataError, InputChanged, UsageError
from tests.support.command import adv, in_time, taken
from tests.support.jobs import compute, rows_of, write

ROWS = [{"prompt_id": "a", "reward": reward} for reward in (0, 1)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", ROWS)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([""], "an input name is empty"), (["a.jsonl", "-g", ""], "--group is empty"),
        (["a.jsonl", "-g", ","], "--group names no column"), (["a.jsonl", "-o", ""], "--output is empty"),
        (["a.jsonl", "--expect-size", "0"], "--expect-size takes 1 or more"),
    ],
)  # fmt: skip
def test_a_variable_that_is_not_set_is_no_choice(words: list[str], message: str, place: Path) -> None:
    done = adv("compute", *words, "-q", cwd=place)
    assert done.status != 0
    assert message in done.err
    assert [path.name for path in place.iterdir()] == ["a.jsonl"]


def test_the_directory_itself_is_an_input(place: Path) -> None:
    assert adv("compute", ".", "-q", cwd=place).status == 0
    assert sorted(path.name for path in place.iterdir()) == ["a.advantages.jsonl", "a.jsonl"]


def test_a_directory_of_outputs_inside_of_that_of_the_inputs_is_not_read(place: Path) -> None:
    for _ in range(2):
        done = adv("compute", ".", "-o", "out/", "--force", "--json", cwd=place)
        assert done.status == 0, done.err
    facts = json.loads(done.out)
    assert facts["inputs"] == ["a.jsonl"]
    assert "out/a.jsonl" in " ".join(facts["warnings"])


def test_empty_files_of_a_directory_are_skipped_with_a_warning(place: Path) -> None:
    (place / "none.jsonl").touch()
    facts = compute(place, output=f"{place}/out/").facts
    assert len(facts["inputs"]) == 1
    assert "none.jsonl" in " ".join(facts["warnings"])
    with pytest.raises(DataError, match="no rows"):
        compute(place / "none.jsonl", output=f"{place}/none.out.jsonl")


def test_another_name_of_an_input_is_skipped_with_a_warning(place: Path) -> None:
    (place / "b.jsonl").symlink_to("a.jsonl")
    facts = compute("a.jsonl", "b.jsonl", output="out/").facts
    assert (facts["inputs"], len(rows_of(place / "out" / "a.jsonl"))) == (["a.jsonl"], 2)
    assert "b.jsonl" in " ".join(facts["warnings"])


@pytest.mark.parametrize("target", ["/dev/stdout", ">(cat)"])
@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="process substitution is bash's")  # noqa: PTH110
def test_the_shells_own_names_of_pipes_are_outputs(target: str, place: Path) -> None:
    command = f"{sys.executable} -m grpo_cli compute a.jsonl -q -o {target} | cat"
    done = subprocess.run(["/bin/bash", "-c", command], cwd=place, capture_output=True, text=True, check=True)
    assert done.stdout.count('"advantage":') == 2
    assert done.stderr == ""


INTO_A_PIPE = {
    "o.jsonl": ["compute", "a.jsonl", "-o", "TO"],
    "o.csv.gz": ["compute", "a.jsonl", "-o", "TO"],
    "o.parquet": ["compute", "a.jsonl", "-o", "TO"],
    "o.arrow": ["compute", "a.jsonl", "-o", "TO"],
    "selected.jsonl": ["select", "a.jsonl", "--limit", "1", "-o", "TO"],
    "records.jsonl": ["export", "a.jsonl", "--to", "prompts", "--prompt", "prompt_id", "-o", "TO"],
    "summary.json": ["select", "a.jsonl", "--limit", "1", "-o", "-", "--summary", "TO"],
    "r.html": ["report", "a.jsonl", "-o", "TO"],
    "compared.jsonl": ["compare", "a.jsonl", "-m", "grpo", "-m", "rloo", "--write", "-o", "TO"],
    "added.jsonl": ["add", "a.jsonl", "--from", "a.jsonl", "--column", "reward=more", "-o", "TO"],
}  # fmt: skip


@pytest.mark.parametrize("name", INTO_A_PIPE)
def test_a_named_pipe_is_written_like_a_file_if_it_is_read(name: str, place: Path) -> None:
    pipe, words = f"pipe.{name}", INTO_A_PIPE[name]
    assert adv(*(name if word == "TO" else word for word in words), cwd=place).status == 0
    os.mkfifo(place / pipe)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit((place / pipe).read_bytes)
        done = adv(*(pipe if word == "TO" else word for word in words), cwd=place)
        assert done.status == 0, done.err
        got = reader.result(timeout=60)
    (place / "got").write_bytes(got)
    if name in {"summary.json", "r.html"}:  # they have times and their own name
        assert len(got) > 100
    else:
        assert got == (place / name).read_bytes()


@pytest.mark.parametrize("name", INTO_A_PIPE)
def test_a_named_pipe_that_nothing_reads_is_refused_at_once(name: str, place: Path) -> None:
    os.mkfifo(place / name)
    with in_time(60):
        done = adv(*(name if word == "TO" else word for word in INTO_A_PIPE[name]), cwd=place)
    assert done.status == 1
    assert f"{name}" in done.err and "a pipe that nothing reads" in done.err


def test_a_summary_that_cannot_be_written_is_an_error(place: Path) -> None:
    done = adv("compute", "a.jsonl", "-o", "k.jsonl", "--summary", "/dev/full", "-q", cwd=place)
    assert done.status == 1
    assert "--summary /dev/full cannot be written: no space left on device; all other outputs were written" in done.err
    assert len(rows_of(place / "k.jsonl")) == 2


def test_a_change_of_the_file_is_reported_before_what_it_broke(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*_: object, **__: object) -> None:
        write(place / "a.jsonl", ROWS * 2)
        raise DataError("a.jsonl:1: not JSON", "--on-error skip leaves such lines out")

    monkeypatch.setattr("grpo_cli.read.build_table.read", changed)
    with pytest.raises(InputChanged):
        compute("a.jsonl", output="out.jsonl")


def waiting(place: Path, *before: str) -> subprocess.Popen[bytes]:
    """A run that has begun and waits for more of its input."""
    command = [*before, sys.executable, "-m", "grpo_cli", "compute", "-", "-o", "out.jsonl"]
    run = subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdin is not None
    run.stdin.write(b"".join(json.dumps(row).encode() + b"\n" for row in ROWS))
    run.stdin.flush()
    while run.poll() is None and not taken(run.stdin):
        time.sleep(0.01)
    return run


@pytest.mark.parametrize(("number", "status"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_closed_terminal_leaves_nothing_behind(number: int, status: int, place: Path) -> None:
    with waiting(place) as run:
        run.send_signal(number)
        _, said = run.communicate(timeout=30)
    assert (run.returncode, b"Traceback" in said) == (status, False)
    assert [path.name for path in place.iterdir()] == ["a.jsonl"]


def python(script: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", script]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["grpo_cli.cli.entry", "grpo_cli.cli.compute", "polars"])
@pytest.mark.parametrize("swallowed", [False, True], ids=["", "in the words of a library"])
def test_an_interrupt_while_modules_are_loaded_is_no_traceback(swallowed: bool, module: str, place: Path) -> None:  # noqa: FBT001 - a parameter of the test
    script = f"""
import os, runpy, signal, sys, time

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
            except BaseException:
                if {swallowed}:
                    raise SystemError("what a library makes of it") from None
                raise

sys.meta_path.insert(0, Interrupting())
sys.argv = ["grpo-adv", "compute", "a.jsonl"]
runpy.run_module("grpo_cli", run_name="__main__")
"""
    done = python(script, place)
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr
    assert [path.name for path in place.iterdir()] == ["a.jsonl"]


def run_with(script: str, place: Path) -> subprocess.CompletedProcess[str]:
    """`compute a.jsonl --in-place`, after a script has prepared the process."""
    run = 'sys.argv[1:] = ["compute", "a.jsonl", "--in-place", "-q"]\nrunpy.run_module("grpo_cli", run_name="__main__")'
    return python(f"import atexit, os, runpy, signal, sys, time\n{script}\n{run}", place)


def test_a_signal_while_the_interpreter_ends_is_no_traceback(place: Path) -> None:
    done = run_with("atexit.register(lambda: os.kill(os.getpid(), signal.SIGHUP))", place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert all("advantage" in row for row in rows_of(place / "a.jsonl"))


def test_a_signal_where_python_cannot_raise_still_ends_the_run(place: Path) -> None:
    script = """
import grpo_cli.runs.compute_files

class Freed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGHUP)

def run(*_):
    Freed()
    time.sleep(10)

grpo_cli.runs.compute_files.run = run
"""
    before = (place / "a.jsonl").read_bytes()
    done = run_with(script, place)
    assert (done.returncode, done.stdout, done.stderr) == (129, "", "")
    assert (place / "a.jsonl").read_bytes() == before


def test_a_signal_that_a_library_swallows_shows_in_the_exit_status(place: Path) -> None:
    script = """
import grpo_cli.runs.compute_files as module
inner = module.run

def run(*words):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit:
        pass
    return inner(*words)

module.run = run
"""
    done = run_with(script, place)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")


def test_a_run_under_nohup_outlives_its_terminal(place: Path) -> None:
    with waiting(place, "nohup") as run:
        run.send_signal(signal.SIGHUP)
        run.communicate(timeout=30)
    assert run.returncode == 0
    assert len(rows_of(place / "out.jsonl")) == 2


def test_binary_formats_are_not_for_a_terminal(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl.DataFrame(ROWS).write_parquet(place / "a.parquet")
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True, buffer=io.BytesIO()))
    with pytest.raises(UsageError, match="parquet cannot be shown on a terminal"):
        compute("a.parquet", output="-")
    compute("a.jsonl", output="-")


def test_what_is_only_in_the_path_is_shown_so(place: Path) -> None:
    write(place / "runs" / "step=1" / "part.jsonl", ROWS)
    with pytest.raises(DataError, match="step is only in the path: --group-within file"):
        compute("runs", group="prompt_id,step", output="out/")


def test_a_broken_link_is_reported_as_one(place: Path) -> None:
    (place / "link.jsonl").symlink_to("gone.jsonl")
    with pytest.raises(DataError, match=r"link\.jsonl: a broken link to gone\.jsonl"):
        compute("link.jsonl", output="-")


@pytest.mark.parametrize("own", [{}, {"_RJEM_MALLOC_CONF": "narenas:3", "OPENBLAS_NUM_THREADS": "2"}])
def test_memory_and_threads_of_libraries_are_set_unless_the_user_set_them(own: dict[str, str]) -> None:
    names = ("_RJEM_MALLOC_CONF", "OPENBLAS_NUM_THREADS")
    script = f"""
import atexit, os, sys
from grpo_cli.__main__ import main
atexit.register(lambda: print(*map(os.environ.get, {names}), file=sys.stderr))
sys.argv[1:] = ["methods", "--json"]
main()
"""
    environment = {name: value for name, value in os.environ.items() if name not in names} | own
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.split() == (list(own.values()) or [f"narenas:{os.cpu_count()}", "1"])


@pytest.mark.parametrize("name", ["rows", "rows.gz", "sub.d/rows"])
def test_a_file_without_a_suffix_is_known_by_its_first_bytes(name: str, tmp_path: Path) -> None:
    data = b'{"prompt_id":"a","reward":1}\n{"prompt_id":"a","reward":0}\n'
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert adv("compute", name, "-o", "out.jsonl", "-q", cwd=tmp_path).status == 0
    assert [row["reward"] for row in rows_of(tmp_path / "out.jsonl")] == [1, 0]
    assert adv("compute", name, "-q", cwd=tmp_path).status == 0
    (made,) = (path for path in tmp_path.rglob("*") if "advantages" in path.name)
    assert made.name == f"rows.advantages{'.gz' if name.endswith('gz') else ''}"


def test_a_file_as_standard_input_by_its_name_is_read(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('{"prompt_id":"a","reward":1}\n{"prompt_id":"a","reward":0}\n')
    with (tmp_path / "rows").open() as handle:
        done = subprocess.run(
            [sys.executable, "-m", "grpo_cli", "compute", "/dev/stdin", "-o", "-", "-q"],
            stdin=handle, capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
    assert (done.returncode, done.stdout.count("advantage")) == (0, 2), done


@pytest.mark.parametrize("quiet", [False, True])
def test_a_note_says_that_rows_are_read_from_the_terminal(quiet: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    ours, theirs = os.openpty()
    os.write(ours, b'{"prompt_id":1,"reward":1}\n{"prompt_id":1,"reward":0}\n\x04')
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", "compute", "-", *["--quiet"] * quiet],
        cwd=tmp_path, stdin=theirs, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert len(done.stdout.splitlines()) == 2
    assert ("reading rows from the terminal: end with Ctrl-D" in done.stderr) == (not quiet)
