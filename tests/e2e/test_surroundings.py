"""What shells, file systems and other programs do around a run: unset variables, closed terminals, files that change."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_cli import __main__
from grpo_cli.errors import DataError, InputChanged, UsageError
from tests.support.command import adv, files, in_time, process, ran, taken
from tests.support.jobs import compute, rows_of, write

ROWS = [{"prompt_id": "a", "reward": reward} for reward in (0, 1)]
LINES = '{"prompt_id":"a","reward":1}\n{"prompt_id":"a","reward":0}\n'


@pytest.fixture(autouse=True)
def _rows(place: Path) -> None:
    write(place / "a.jsonl", ROWS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("''", "an input name is empty"), ("a.jsonl -g ''", "--group is empty"), ("a.jsonl -g ,", "--group names no column"),
        ("a.jsonl -o ''", "--output is empty"), ("a.jsonl --expect-size 0", "--expect-size takes 1 or more"),
    ],
)  # fmt: skip
def test_a_variable_that_is_not_set_is_no_choice(words: str, message: str) -> None:
    done = adv(f"compute {words} -q")
    assert done.status != 0
    assert message in done.err
    assert [*files()] == ["a.jsonl"]


def test_the_directory_itself_is_an_input() -> None:
    ran("compute . -q")
    assert [*files()] == ["a.advantages.jsonl", "a.jsonl"]


def test_a_directory_of_outputs_inside_of_that_of_the_inputs_is_not_read() -> None:
    for _ in range(2):
        done = ran("compute . -o out/ --force --json")
    facts = json.loads(done.out)
    assert facts["inputs"] == ["a.jsonl"]
    assert "out/a.jsonl" in " ".join(facts["warnings"])


def test_empty_files_of_a_directory_are_skipped_with_a_warning() -> None:
    Path("none.jsonl").touch()
    facts = compute(".", output="out/").facts
    assert len(facts["inputs"]) == 1
    assert "none.jsonl" in " ".join(facts["warnings"])
    with pytest.raises(DataError, match="no rows"):
        compute("none.jsonl", output="none.out.jsonl")


def test_another_name_of_an_input_is_skipped_with_a_warning() -> None:
    Path("b.jsonl").symlink_to("a.jsonl")
    facts = compute("a.jsonl", "b.jsonl", output="out/").facts
    assert facts["inputs"] == ["a.jsonl"]
    assert len(rows_of("out/a.jsonl")) == 2
    assert "b.jsonl" in " ".join(facts["warnings"])


@pytest.mark.parametrize("target", ["/dev/stdout", ">(cat)"])
@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="process substitution is bash's")  # noqa: PTH110
def test_the_shells_own_names_of_pipes_are_outputs(target: str) -> None:
    command = f"{sys.executable} -m grpo_cli compute a.jsonl -q -o {target} | cat"
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.count('"advantage":') == 2
    assert done.stderr == ""


INTO_A_PIPE = {
    "o.jsonl": "compute a.jsonl -o",
    "o.csv.gz": "compute a.jsonl -o",
    "o.parquet": "compute a.jsonl -o",
    "o.arrow": "compute a.jsonl -o",
    "selected.jsonl": "select a.jsonl --limit 1 -o",
    "records.jsonl": "export a.jsonl --to prompts --prompt prompt_id -o",
    "summary.json": "select a.jsonl --limit 1 -o - --summary",
    "r.html": "report a.jsonl -o",
    "compared.jsonl": "compare a.jsonl -m grpo -m rloo --write -o",
    "added.jsonl": "add a.jsonl --from a.jsonl --column reward=more -o",
}


@pytest.mark.parametrize("name", INTO_A_PIPE)
def test_a_named_pipe_is_written_like_a_file_if_it_is_read(name: str) -> None:
    ran(f"{INTO_A_PIPE[name]} {name}")
    os.mkfifo(f"pipe.{name}")
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(Path(f"pipe.{name}").read_bytes)
        ran(f"{INTO_A_PIPE[name]} pipe.{name}")
        got = reader.result(timeout=60)
    if name in {"summary.json", "r.html"}:  # they have times and their own name
        assert len(got) > 100
    else:
        assert got == Path(name).read_bytes()


@pytest.mark.parametrize("name", INTO_A_PIPE)
def test_a_named_pipe_that_nothing_reads_is_refused_at_once(name: str) -> None:
    os.mkfifo(name)
    with in_time(60):
        done = adv(f"{INTO_A_PIPE[name]} {name}")
    assert done.status == 1
    assert name in done.err
    assert "a pipe that nothing reads" in done.err


def test_a_summary_that_cannot_be_written_is_an_error() -> None:
    done = adv("compute a.jsonl -o k.jsonl --summary /dev/full -q")
    assert done.status == 1
    assert (
        "--summary: /dev/full: cannot be written: no space left on device; all other outputs were written" in done.err
    )
    assert len(rows_of("k.jsonl")) == 2


def test_a_change_of_the_file_is_reported_before_what_it_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*_: object, **__: object) -> None:
        write("a.jsonl", ROWS * 2)
        raise DataError("a.jsonl:1: not JSON", "--on-error skip leaves such lines out")

    monkeypatch.setattr("grpo_cli.read.build_table.read", changed)
    with pytest.raises(InputChanged):
        compute("a.jsonl", output="out.jsonl")


# --- signals -------------------------------------------------------------------------------------------------------


def waiting(*before: str) -> subprocess.Popen[bytes]:
    """A run that has begun and waits for more of its input."""
    command = [*before, sys.executable, "-m", "grpo_cli", "compute", "-", "-o", "out.jsonl"]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdin is not None
    run.stdin.write(LINES.encode())
    run.stdin.flush()
    while run.poll() is None and not taken(run.stdin):
        time.sleep(0.01)
    return run


@pytest.mark.parametrize(("number", "status"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_closed_terminal_leaves_nothing_behind(number: int, status: int) -> None:
    with waiting() as run:
        run.send_signal(number)
        _, said = run.communicate(timeout=30)
    assert run.returncode == status
    assert b"Traceback" not in said
    assert [*files()] == ["a.jsonl"]


def test_a_run_under_nohup_outlives_its_terminal() -> None:
    with waiting("nohup") as run:
        run.send_signal(signal.SIGHUP)
        run.communicate(timeout=30)
    assert run.returncode == 0
    assert len(rows_of("out.jsonl")) == 2


def run_with(script: str, *line: str) -> subprocess.CompletedProcess[str]:
    """`compute a.jsonl --in-place`, or with these other words, after a script has prepared the process."""
    given = ["compute", "a.jsonl", *(line or ["--in-place"]), "-q"]
    run = f'sys.argv[1:] = {given}\nrunpy.run_module("grpo_cli", run_name="__main__")'
    words = [sys.executable, "-c", f"import atexit, os, runpy, signal, sys, time\n{script}\n{run}"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["grpo_cli.cli.entry", "grpo_cli.cli.compute", "polars"])
@pytest.mark.parametrize("what", ["raise", "raise SystemError('in the words of a library') from None"])
def test_an_interrupt_while_modules_are_loaded_is_no_traceback(what: str, module: str) -> None:
    script = f"""
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
            except BaseException:
                {what}

sys.meta_path.insert(0, Interrupting())
"""
    before = files()
    done = run_with(script)
    assert done.returncode == 130
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert files() == before


def test_a_signal_while_the_interpreter_ends_is_no_traceback() -> None:
    done = run_with("atexit.register(lambda: os.kill(os.getpid(), signal.SIGHUP))")
    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr == ""
    assert all("advantage" in row for row in rows_of("a.jsonl"))


def test_a_signal_where_python_cannot_raise_still_ends_the_run() -> None:
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
    before = Path("a.jsonl").read_bytes()
    done = run_with(script)
    assert done.returncode == 129
    assert done.stdout == ""
    assert done.stderr == ""
    assert Path("a.jsonl").read_bytes() == before


def test_a_signal_that_a_library_swallows_shows_in_the_exit_status() -> None:
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
    done = run_with(script, "-o", "-")
    assert done.returncode == 143
    assert done.stderr == ""


# When a signal is sent (the step, whether before or after it), more words of the line, and the status.
MOMENTS = [
    ("_rename", "before", "--in-place", 0),  # the step is taken before the signal acts
    ("_rename", "after", "--in-place", 0),
    ("_synced", "after", "--in-place", 143),
    ("_sync_directory", "before", "--in-place", 0),
    ("_rename", "after", "b.jsonl --group-within file -o out/", 143),
    ("_sync_directory", "before", "b.jsonl --group-within file -o out/", 0),
    ("_sync_directory", "before", "-o out.jsonl --summary s.json", 143),
]


@pytest.mark.parametrize(("step", "when", "words", "status"), MOMENTS)
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_leaves_status_0_if_every_output_has_its_name(
    step: str, when: str, words: str, status: int, number: str
) -> None:
    Path("b.jsonl").write_bytes(Path("a.jsonl").read_bytes())
    script = f"""
import grpo_cli.files.atomic as atomic
actual = atomic.{step}

def signalled(*args, **more):
    if {when!r} == "after":
        actual(*args, **more)
    atomic.{step} = actual
    os.kill(os.getpid(), signal.{number})
    time.sleep(0.01)
    if {when!r} == "before":
        actual(*args, **more)

atomic.{step} = signalled
"""
    done = run_with(script, *words.split())
    assert done.returncode == (130 if status and number == "SIGINT" else status), done.stderr
    assert "Traceback" not in done.stderr
    assert not [name for name in files() if name.endswith(".tmp")]
    outputs = [path for path in map(Path, ("a.jsonl", "out.jsonl", "out/a.jsonl", "out/b.jsonl")) if path.exists()]
    complete = ["advantage" in path.read_text() for path in outputs]
    if status == 0:
        assert sum(complete) == (2 if "out/" in words else 1)


# --- what libraries need -------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere addresses are not limited")
@pytest.mark.parametrize("megabytes", [60, 160, 240])
def test_libraries_that_do_not_fit_into_memory_are_one_line(megabytes: int) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    words = [sys.executable, "-m", "grpo_cli", "compute", "a.jsonl"]
    done = subprocess.run(words, preexec_fn=limited, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = f"error: not enough memory to load numpy and polars: the process may have {(megabytes << 20) / 1e6:,.0f} MB"
    assert done.stderr == f"{said}; raise the limit (ulimit -v, ulimit -d)\n"
    assert [*files()] == ["a.jsonl"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere addresses are not limited")
@pytest.mark.parametrize("megabytes", [500, 900])
def test_a_limit_that_is_large_enough_stops_nothing(megabytes: int) -> None:
    """At 500 MB the heaps that the C library reserves for threads left, by chance, none for the threads of polars."""
    most = (megabytes << 20) + (64 << 20) * (os.cpu_count() or 1)  # below 1 GB the libraries are tried

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    words = [sys.executable, "-m", "grpo_cli", "compute", "a.jsonl", "-o", "-", "-q"]
    done = subprocess.run(words, preexec_fn=limited, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("advantage") == 2


@pytest.mark.parametrize(("threads", "status"), [("0", 2), ("00", 2), ("1", 0)])
def test_polars_without_a_thread_is_refused_in_one_line(threads: str, status: int) -> None:
    done = process("compute a.jsonl -o - -q", POLARS_MAX_THREADS=threads)
    assert done.status == status
    refused = (
        "error: POLARS_MAX_THREADS is 0, and polars needs a thread; unset POLARS_MAX_THREADS; set it to 1 or more\n"
    )
    assert done.err == (refused if status else "")


def test_a_terminal_of_no_columns_shows_what_one_of_unknown_size_shows() -> None:
    assert ran("inspect a.jsonl", COLUMNS="0").out == ran("inspect a.jsonl", COLUMNS="80").out


# --- names and streams ---------------------------------------------------------------------------------------------

NOT_ASCII = """
inspect é.jsonl -g schlüssel | \\u043a\\u043b\\u044e\\u04470
inspect é.jsonl -g schlüssel --by 部分 | \\u90e8\\u5206
inspect é.jsonl -g schlüssel --show ключ1 --text-column text | \\u65e5\\u672c
inspect é.jsonl -g schlüssel --format csv | ключ1,4,4
inspect é.jsonl -g schlüssel --format md | | ключ1 | 4 | 4
inspect é.jsonl -g schlüssel --against ö=é.jsonl | \\xf6
inspect é.jsonl -g schlüssel --old-rewards-column andere --format md | é.jsonl
inspect é.jsonl -g nö | no column 'n\\xf6'
compute é.jsonl -g schlüssel -o ö.jsonl | written        \\xf6.jsonl
compute é.jsonl -g schlüssel --explain | schl\\xfcssel
compute é.jsonl -g schlüssel -o ö.jsonl --json | "\\u00f6.jsonl"
compute é.jsonl -g schlüssel -o - | "部分": "β"
select é.jsonl -g schlüssel --limit 1 -o ö.jsonl | \\xf6.jsonl
export é.jsonl -g schlüssel --to sft --prompt schlüssel --response text -o ö.jsonl | \\xf6.jsonl
compare é.jsonl -g schlüssel -m grpo -m rloo | \\xe9.jsonl
audit é.jsonl -g schlüssel --column reward | \\xe9.jsonl
report é.jsonl -g schlüssel -o ü.html | \\xfc.html
verify é.jsonl --against é.jsonl | \\xe9.jsonl
schemas é.jsonl | \\xe9.jsonl
skill --install ö | \\xf6
"""


@pytest.mark.parametrize("line", NOT_ASCII.strip().splitlines())
def test_names_that_the_encoding_of_standard_output_lacks_are_escaped_and_data_are_utf_8(line: str) -> None:
    words, _, wanted = line.partition(" | ")
    rows = [
        {"schlüssel": f"ключ{at // 4}", "部分": "β", "reward": at % 3 / 2, "andere": at % 2, "text": f"日本{at}"}
        for at in range(16)
    ]
    Path("é.jsonl").write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    done = adv(words, PYTHONIOENCODING="ascii")
    assert wanted in f"{done.out}{done.err}"
    assert done.status == (1 if "nö" in words else 0), done.err


def test_binary_formats_are_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.parquet", ROWS)
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True, buffer=io.BytesIO()))
    with pytest.raises(UsageError, match="parquet cannot be shown on a terminal"):
        compute("a.parquet", output="-")
    compute("a.jsonl", output="-")


def test_what_is_only_in_the_path_is_shown_so() -> None:
    write("runs/step=1/part.jsonl", ROWS)
    with pytest.raises(DataError, match="step is only in the path: --group-within file"):
        compute("runs", group="prompt_id,step", output="out/")


def test_a_broken_link_is_reported_as_one() -> None:
    Path("link.jsonl").symlink_to("gone.jsonl")
    with pytest.raises(DataError, match=r"link\.jsonl: a broken link to gone\.jsonl"):
        compute("link.jsonl", output="-")


@pytest.mark.parametrize("own", [{}, {"_RJEM_MALLOC_CONF": "narenas:3", "OPENBLAS_NUM_THREADS": "2"}])
def test_memory_and_threads_of_libraries_are_set_unless_the_user_set_them(own: dict[str, str]) -> None:
    variables = ("_RJEM_MALLOC_CONF", "OPENBLAS_NUM_THREADS")
    script = f"""
import atexit, os, sys
from grpo_cli.__main__ import main
atexit.register(lambda: print(*map(os.environ.get, {variables}), file=sys.stderr))
sys.argv[1:] = ["methods", "--json"]
main()
"""
    environment = {name: value for name, value in os.environ.items() if name not in variables} | own
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.split() == (list(own.values()) or [f"narenas:{os.cpu_count()}", "1"])


@pytest.mark.parametrize("name", ["rows", "rows.gz", "sub.d/rows"])
def test_a_file_without_a_suffix_is_known_by_its_first_bytes(name: str) -> None:
    Path("sub.d").mkdir()
    Path(name).write_bytes(gzip.compress(LINES.encode()) if name.endswith(".gz") else LINES.encode())
    ran(f"compute {name} -o out.jsonl -q")
    assert [row["reward"] for row in rows_of("out.jsonl")] == [1, 0]
    ran(f"compute {name} -q")
    assert Path(name.replace("rows", "rows.advantages")).exists()


def test_a_file_as_standard_input_by_its_name_is_read() -> None:
    words = [sys.executable, "-m", "grpo_cli", "compute", "/dev/stdin", "-o", "-", "-q"]
    with Path("a.jsonl").open() as handle:
        done = subprocess.run(words, stdin=handle, capture_output=True, text=True, check=True)
    assert done.stdout.count("advantage") == 2


@pytest.mark.parametrize(("quiet", "count"), [([], 1), (["--quiet"], 0)])
def test_a_note_says_that_rows_are_read_from_the_terminal(quiet: list[str], count: int) -> None:
    ours, theirs = os.openpty()
    os.write(ours, LINES.encode() + b"\x04")
    words = [sys.executable, "-m", "grpo_cli", "compute", "-", *quiet]
    done = subprocess.run(words, stdin=theirs, capture_output=True, text=True, check=True, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr.count("reading rows from the terminal: end with Ctrl-D") == count


def test_on_windows_itself_one_sentence_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as end:
        __main__.main()
    assert end.value.code == "error: grpo-adv runs on Linux and macOS, not on Windows itself; on Windows run it in WSL"
