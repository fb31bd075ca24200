"""No command writes over its own input, under whatever name and whatever `--force` says, nor two things into one file."""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import grpo_cli
from grpo_cli.errors import UsageError
from grpo_cli.options.commands import COMMANDS
from tests.support import harbor
from tests.support.command import Done, adv, files, ran
from tests.support.drawn import paired
from tests.support.jobs import meanwhile, rows_of, write
from tests.unit.files.test_datasets_on_disk import shards

ROWS: list[dict[str, Any]] = [
    {"prompt_id": i // 2, "reward": i % 2, "prompt": "p", "completion": "c"} for i in range(8)
]
WRITING = [
    "compute in.jsonl -o TARGET",
    "compute in.jsonl -o out.jsonl --summary TARGET",
    "select in.jsonl --limit 1 -o TARGET",
    "select in.jsonl --limit 1 --summary TARGET",
    "export in.jsonl --to sft -o TARGET",
    "export in.jsonl --to sft -o out.jsonl --summary TARGET",
    "compare in.jsonl -m grpo -m rloo --write -o TARGET",
    "report in.jsonl -o TARGET",
    "report copy.jsonl --against in.jsonl -o TARGET",
]


@pytest.fixture(autouse=True)
def _files(place: Path) -> None:
    for name in ("in.jsonl", "copy.jsonl"):
        write(place / name, ROWS)


NAMES = ("itself", "symlink", "hard link")


def target(read: str, name: str, other: str) -> str:
    """A file by its own or another name."""
    if name == "symlink":
        Path(other).symlink_to(read)
    elif name == "hard link":
        Path(other).hardlink_to(read)
    return read if name == "itself" else other


def other_name(line: str) -> str:
    """A report has a suffix that no input has: it can only be one under another name."""
    return "page.html" if line.startswith("report") else "other.jsonl"


@pytest.mark.parametrize("way", ["--in-place", "--explain"])
def test_no_summary_is_written_over_the_input(way: str) -> None:
    before = files()
    done = adv(f"compute in.jsonl {way} --summary in.jsonl --force")
    assert done.status == 2
    assert done.out == ""
    assert files() == before
    assert "is an input: it is never overwritten" in done.err or "are both" in done.err


# --- every pair of an option that reads a file and one that writes a file ------------------------------------------

READ = {"inputs", "file", "source", "before", "rescored", "against", "config", "presets", "schemas", "name"}
WRITTEN = {"output", "summary", "install"}
PRESET = "[ours]\ninherits = 'trl-grpo'\n"
SCHEMA = "[ours]\ntitle = 'x'\ntool = 'x'\nlayout = 'long'\nsource = 'x'\nfields = { q = 'text' }\ngroup = ['q']\nreward = ['points']\n"
TEXTS = {"config": "missing = 'zero'\n", "presets": PRESET, "schemas": SCHEMA}
MORE = {
    "select": "--limit 1",
    "export": "--to sft",
    "compare": "-m grpo -m rloo --write",
    "add": "--column reward=more --from in.jsonl",
}
PAIRS = [
    (command.name, reading, writing)
    for command in COMMANDS.values()
    for reading, writing in product(command.takes, command.takes)
    if reading in READ and writing in WRITTEN
]


def test_every_option_that_names_a_file_is_known_here() -> None:
    words = {"FILE", "INPUT", "COLUMNS", "[NAME=]INPUT", "IN", "DIR", "OUT", "FILE|DIR/|-", "NAME|FILE"}
    rows = [row for command in COMMANDS.values() for row in command.takes.values()]
    assert {row.name for row in rows if {row.metavar, row.spelled} & words} == READ | WRITTEN
    assert len(PAIRS) > 26


def line_that_reads(command: str, reading: str, path: str) -> str:
    """A command that reads this file by this option."""
    row = COMMANDS[command].takes[reading]
    line = f"{command} {path}" if row.is_argument else f"{command} in.jsonl {row.flag} {path}"
    more = MORE.get(command, "")
    if reading == "source":
        more = more.replace("--from in.jsonl", "")
    if reading == "rescored":
        more += " --rescored-column reward"
    if reading == "presets":
        more = f"{more.replace('sft', 'weights')} --preset ours"
    if reading == "before" and command in {"select", "export"}:
        more += " --where 'runs == 2'"
    return f"{line} {more}"


@pytest.mark.parametrize(("pair", "name"), paired(PAIRS, NAMES))
def test_no_option_writes_over_what_another_one_reads(pair: tuple[str, str, str], name: str) -> None:
    command, reading, writing = pair
    read = Path("read.toml" if reading in TEXTS else "read.jsonl")
    read.write_text(TEXTS.get(reading, Path("in.jsonl").read_text()))
    output = target(str(read), name, other_name(command))
    elsewhere = "" if writing == "output" or command == "select" else "-o new.jsonl"
    flag = COMMANDS[command].takes[writing].flag
    before = files()
    done = adv(f"{line_that_reads(command, reading, str(read))} {elsewhere} {flag} {output} --force")
    said = ["is an input: it is never overwritten", "are both"]
    if name == "itself" and writing == "output":  # the suffix of a page or of settings is refused first
        said += ["unknown report format"] * (command == "report") + ["unknown file format"] * (reading in TEXTS)
    assert done.status == 2 and any(text in done.err for text in said), done
    assert files() == before


IN_PYTHON: dict[str, Callable[[], object]] = {
    "in.jsonl": lambda: grpo_cli.report("in.jsonl", "page.html", force=True),
    "copy.jsonl": lambda: grpo_cli.report("in.jsonl", "page.html", rescored="copy.jsonl", force=True),
    "presets.toml": lambda: grpo_cli.report("in.jsonl", "page.html", presets="presets.toml", force=True),
    "schemas.toml": lambda: grpo_cli.report("in.jsonl", "page.html", schemas="schemas.toml", force=True),
    "frame.jsonl": lambda: grpo_cli.add_columns("in.jsonl", "frame.jsonl", "frame.jsonl", force=True, column={"reward": "more"}),
}  # fmt: skip


@pytest.mark.parametrize("read", IN_PYTHON)
def test_what_python_reads_is_not_written_either(read: str) -> None:
    write("frame.jsonl", ROWS)
    write("copy.jsonl", [{**row, "reward": 1 - row["reward"]} for row in ROWS])
    for name in ("presets", "schemas"):
        Path(f"{name}.toml").write_text(TEXTS[name])
    Path("page.html").symlink_to(read)
    before = files()
    with pytest.raises(UsageError, match="is an input: it is never overwritten"):
        IN_PYTHON[read]()
    assert files() == before


def test_what_an_earlier_call_has_read_may_be_written() -> None:
    grpo_cli.add_columns("in.jsonl", "in.jsonl", "new.jsonl", column={"reward": "more"})
    grpo_cli.add_columns("new.jsonl", "new.jsonl", "in.jsonl", column={"reward": "again"}, force=True)
    assert [row["again"] for row in rows_of("in.jsonl")] == [row["reward"] for row in ROWS]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("compute folder -o out/", "folder/a.jsonl"),
        ("compute folder/*.jsonl -o out/", "folder/a.jsonl"),
        ("compute job -o out.jsonl", "job/b/agent/trajectory.json"),
        ("compute saved -o out/", "saved/state.json"),
        ("compute x.db -o out.jsonl", "x.db-wal"),
        ("compute in.jsonl -o out.jsonl", "mine.toml"),
    ],
)
def test_what_is_read_without_being_named_is_not_written_either(line: str, read: str) -> None:
    write("folder/a.jsonl", ROWS)
    job = harbor.job(Path("job"), 2)
    for at, name in enumerate("ab"):
        harbor.trial(job, "t", name, {"reward": at}, steps=harbor.conversation("t", name))
    shards(Path("saved"), 1)
    Path("mine.toml").write_text("missing = 'zero'\n")
    with closing(sqlite3.connect("x.db")) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE t (prompt_id, reward)")
        writer.executemany("INSERT INTO t VALUES (?, ?)", [(at // 2, at % 2) for at in range(8)])
        writer.commit()
        before = Path(read).read_bytes()
        config = "mine.toml" if read == "mine.toml" else ""
        done = adv(f"{line} --summary {read} --force", GRPO_ADV_CONFIG=config)
        assert done.status == 2
        assert Path(read).read_bytes() == before
        assert read in done.err
        assert "is an input: it is never overwritten" in done.err


def test_a_link_that_appears_while_rows_are_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("in.jsonl").read_bytes()
    meanwhile(monkeypatch, lambda: Path("out.jsonl").symlink_to("in.jsonl"))
    done = adv("compute in.jsonl -o out.jsonl --force")
    assert done.status == 2
    assert Path("in.jsonl").read_bytes() == before
    assert "in.jsonl: is an input: it is never overwritten" in done.err


def test_devices_may_be_read_and_written() -> None:
    ran("compute in.jsonl --config /dev/null -o /dev/null")


def test_a_file_is_changed_in_place_by_its_own_columns() -> None:
    ran("add in.jsonl --from in.jsonl --column reward=more --in-place")
    assert [row["more"] for row in rows_of("in.jsonl")] == [row["reward"] for row in ROWS]


@pytest.mark.parametrize("line", WRITING)
def test_no_command_replaces_a_file_that_is_created_at_the_last_moment(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = place / other_name(line)
    real = os.link

    def link(temporary: Path, path: Path) -> None:
        if Path(path).absolute() == output:
            output.write_text("theirs")
        real(temporary, path)

    monkeypatch.setattr(os, "link", link)
    done = adv(line.replace("TARGET", output.name))
    assert (done.status, done.err.count("\n"), "exists" in done.err) == (2, 1, True), done
    assert output.read_text() == "theirs"


@pytest.mark.parametrize("line", ["compute in.jsonl", "select in.jsonl --limit 1"])
@pytest.mark.parametrize("existing", ["old", ""])
def test_a_summary_is_not_an_output_through_a_symlink(line: str, existing: str) -> None:
    Path("link.json").symlink_to("out.jsonl")
    if existing:
        Path("out.jsonl").write_text(existing)
    before = files()
    done = adv(f"{line} -o out.jsonl --summary link.json --force")
    assert done.status == 2
    assert files() == before
    assert "--summary and an output are both link.json" in done.err


def test_two_outputs_are_not_one_file_through_symlinks() -> None:
    Path("out").mkdir()
    Path("out/copy.jsonl").symlink_to("in.jsonl")
    done = adv("compute in.jsonl copy.jsonl --group-within file -o out/ --force")
    assert done.status == 2
    assert done.out == ""
    assert "out/copy.jsonl and out/in.jsonl are the same file; remove the link" in done.err or (
        "out/in.jsonl and out/copy.jsonl are the same file; remove the link" in done.err
    )
    assert not Path("out/in.jsonl").exists()


# --- what stands behind the streams --------------------------------------------------------------------------------


def run(line: str, stdin: str, stdout: str = "nothing", mode: str = "w") -> Done:
    """The real command with files behind its streams."""
    words = [sys.executable, "-m", "grpo_cli", *shlex.split(line)]
    with Path(stdin).open() as source, Path(stdout).open(mode) as sink:
        done = subprocess.run(words, stdin=source, stdout=sink, stderr=subprocess.PIPE, text=True, check=False)
    return Done(done.returncode, "", done.stderr)


@pytest.mark.parametrize("line", ["inspect", "schemas", "audit", "verify --against copy.jsonl", "presets x --presets"])
def test_no_command_prints_into_what_it_reads(line: str) -> None:
    before = Path("in.jsonl").read_bytes()
    assert run(f"{line} in.jsonl", stdin="in.jsonl", stdout="in.jsonl", mode="a").status != 0
    assert Path("in.jsonl").read_bytes() == before


@pytest.mark.parametrize("more", ["-o in.jsonl", "--summary in.jsonl", "--summary in.jsonl --stream -g prompt_id"])
def test_the_file_behind_standard_input_is_an_input(more: str) -> None:
    before = Path("in.jsonl").read_bytes()
    done = run(f"compute - {more} --force", stdin="in.jsonl")
    assert (done.status, "in.jsonl is an input" in done.err) == (2, True), done
    assert Path("in.jsonl").read_bytes() == before


def test_standard_output_appended_to_an_input_is_refused() -> None:
    before = Path("in.jsonl").read_bytes()
    done = run("compute in.jsonl -o -", stdin="in.jsonl", stdout="in.jsonl", mode="a")
    assert (done.status, "standard output is an input" in done.err) == (2, True), done
    assert Path("in.jsonl").read_bytes() == before


def test_a_summary_is_not_the_file_behind_standard_output() -> None:
    done = run("compute - --summary out.jsonl --force", stdin="in.jsonl", stdout="out.jsonl")
    assert (done.status, "--summary and an output are both out.jsonl" in done.err) == (2, True), done


def test_the_summary_of_a_stream_is_an_output_like_others() -> None:
    Path("s.json").write_text("mine")
    stream = "compute - --stream -g prompt_id --summary s.json"
    done = run(stream, stdin="in.jsonl", stdout="out.jsonl")
    assert done.status == 2
    assert Path("s.json").read_text() == "mine"
    done = run(f"{stream} --force", stdin="in.jsonl", stdout="out.jsonl")
    assert done.status == 0, done.err
    assert len(rows_of("out.jsonl")) == len(ROWS)


@pytest.mark.parametrize("line", ["compute {}", "select {} --limit 1", "export {} --to sft"])
@pytest.mark.parametrize(("reward", "file"), [("reward", "in.jsonl"), ("score", "late.jsonl")])
def test_an_output_that_exists_stays_whatever_column_is_named(line: str, reward: str, file: str) -> None:
    Path("out.jsonl").write_text("precious")
    last = '{"prompt_id": 99, "score": 1}\n'
    Path("late.jsonl").write_text(Path("in.jsonl").read_text() * 2000 + last)
    done = adv(f"{line.format(file)} --reward {reward} -o out.jsonl")
    assert done.status == 2
    assert "out.jsonl exists; add --force" in done.err
    assert Path("out.jsonl").read_text() == "precious"


TYPOS = """
compute in.jsonl --reward scoer -o out.jsonl | no column 'scoer'
compute in.jsonl --group promptid -o out.jsonl | no column 'promptid'; did you mean 'prompt_id'?
compute in.jsonl --rows 'stpe > 1' -o out.jsonl | no column 'stpe'
compute in.jsonl --scale batch --batch-by stpe -o out.jsonl | no column 'stpe'
compute in.jsonl --plan-by env --plan other:method=rloo -o out.jsonl | no column 'env'
compute in.jsonl --kl-coef 1 --kl-from s,r --kl-estimator k1 --kl-reduce sum -o out.jsonl | no column 's'
compute in.jsonl --per-token --mask msk -o out.jsonl | no column 'msk'
compute in.jsonl --reward scoer -o - --summary out.jsonl | no column 'scoer'
select in.jsonl --limit 1 --reward scoer -o out.jsonl | no column 'scoer'
export in.jsonl --to sft --reward scoer -o out.jsonl | no column 'scoer'
export in.jsonl --to sft --prompt promt --response completion -o out.jsonl | no column 'promt'
compare in.jsonl --method grpo --method rloo --write --reward scoer -o out.jsonl | no column 'scoer'
report in.jsonl --reward scoer -o out.html | no column 'scoer'
add in.jsonl --from in.jsonl --on promptid --column x=reward -o out.jsonl | no column 'promptid'
"""


@pytest.mark.parametrize("case", TYPOS.strip().splitlines())
def test_a_column_that_is_not_there_is_told_before_an_output_that_is(case: str) -> None:
    """Whoever adds --force for it would only be told then."""
    line, said = case.split(" | ")
    for name in ("out.jsonl", "out.html"):
        Path(name).write_text("precious")
    done = adv(line)
    assert done.status == 1, done
    assert said in done.err
    assert {Path(name).read_text() for name in ("out.jsonl", "out.html")} == {"precious"}
