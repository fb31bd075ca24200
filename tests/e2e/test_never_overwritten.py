"""No command writes over its own input, under whatever name and whatever `--force` says, nor two things into one file."""

from __future__ import annotations

import os
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
from grpo_cli.options.table import COMMANDS
from tests.support import harbor
from tests.support.command import adv
from tests.support.jobs import meanwhile, rows_of, write
from tests.unit.files.test_datasets_on_disk import shards

ROWS: list[dict[str, Any]] = [
    {"prompt_id": i // 2, "reward": i % 2, "prompt": "p", "completion": "c"} for i in range(8)
]
WRITING = {
    "compute": ["compute", "in.jsonl", "-o", "TARGET", "--force"],
    "compute --summary": ["compute", "in.jsonl", "-o", "out.jsonl", "--summary", "TARGET", "--force"],
    "compute --in-place --summary": ["compute", "in.jsonl", "--in-place", "--summary", "TARGET", "--force"],
    "compute --explain --summary": ["compute", "in.jsonl", "--explain", "--summary", "TARGET", "--force"],
    "select": ["select", "in.jsonl", "--limit", "1", "-o", "TARGET", "--force"],
    "select --summary": ["select", "in.jsonl", "--limit", "1", "--summary", "TARGET", "--force"],
    "export": ["export", "in.jsonl", "--to", "sft", "-o", "TARGET", "--force"],
    "export --summary": ["export", "in.jsonl", "--to", "sft", "-o", "out.jsonl", "--summary", "TARGET", "--force"],
    "compare --write": ["compare", "in.jsonl", "-m", "grpo", "-m", "rloo", "--write", "-o", "TARGET", "--force"],
    "report": ["report", "in.jsonl", "-o", "TARGET", "--force"],
    "report --against": ["report", "copy.jsonl", "--against", "in.jsonl", "-o", "TARGET", "--force"],
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("in.jsonl", "copy.jsonl"):
        write(tmp_path / name, ROWS)
    return tmp_path


# A report has a suffix that no input has: it can only be one under another name.
NAMES = ("itself", "symlink", "hard link")
CASES = [(c, n) for c, n in product(WRITING, NAMES) if not (c.startswith("report") and n == "itself")]


@pytest.mark.parametrize(("command", "name"), CASES)
def test_no_command_writes_over_its_input(command: str, name: str, place: Path) -> None:
    target = place / ("in.jsonl" if name == "itself" else "r.html" if command.startswith("report") else "other.jsonl")
    if name == "symlink":
        target.symlink_to("in.jsonl")
    elif name == "hard link":
        target.hardlink_to(place / "in.jsonl")
    before, names = (place / "in.jsonl").read_bytes(), sorted(path.name for path in place.iterdir())
    done = adv(*(target.name if word == "TARGET" else word for word in WRITING[command]), cwd=place)
    assert (done.status, done.out) == (2, "")
    assert "is an input: it is never overwritten" in done.err or "are both" in done.err
    assert (place / "in.jsonl").read_bytes() == before
    assert sorted(path.name for path in place.iterdir()) == names


# --- every pair of an option that reads a file and one that writes a file ------------------------------------------

READ = {"inputs", "file", "source", "before", "rescored", "against", "config", "presets", "schemas", "name"}
WRITTEN = {"output", "summary", "install"}
PRESET = "[ours]\ninherits = 'trl-grpo'\n"
SCHEMA = "[ours]\ntitle = 'x'\ntool = 'x'\nlayout = 'long'\nsource = 'x'\nfields = { q = 'text' }\ngroup = ['q']\nreward = ['points']\n"
TEXTS = {"config": "missing = 'zero'\n", "presets": PRESET, "schemas": SCHEMA}
MORE = {
    "select": ["--limit", "1"],
    "export": ["--to", "sft"],
    "compare": ["-m", "grpo", "-m", "rloo", "--write"],
    "add": ["--column", "reward=more", "--from", "in.jsonl"],
}
PAIRS = [
    (command.name, reading, writing, name)
    for command in COMMANDS.values()
    for reading, writing, name in product(command.takes, command.takes, NAMES)
    if reading in READ and writing in WRITTEN
]


def test_every_option_that_names_a_file_is_known_here() -> None:
    words = {"FILE", "INPUT", "COLUMNS", "[NAME=]INPUT", "IN", "DIR", "OUT", "FILE|DIR/|-", "NAME|FILE"}
    rows = [row for command in COMMANDS.values() for row in command.takes.values()]
    assert {row.name for row in rows if {row.metavar, row.spelled} & words} == READ | WRITTEN
    assert len(PAIRS) > 80


def line(place: Path, command: str, reading: str, path: str) -> list[str]:
    """A command that reads this file by this option."""
    if reading in TEXTS:
        (place / path).write_text(TEXTS[reading])
    else:
        write(place / path, ROWS)
    row = COMMANDS[command].takes[reading]
    first = [path] if row.is_argument else ["in.jsonl"]
    given = [] if row.is_argument else [row.flag, path]
    more = [word for word in MORE.get(command, ()) if reading != "source" or word not in {"--from", "in.jsonl"}]
    if reading == "rescored":
        more += ["--rescored-column", "reward"]
    if reading == "before" and command in {"select", "export"}:
        more += ["--where", "runs == 2"]
    return [command, *first, *given, *more]


@pytest.mark.parametrize(("command", "reading", "writing", "name"), PAIRS)
def test_no_option_writes_over_what_another_one_reads(
    command: str, reading: str, writing: str, name: str, place: Path
) -> None:
    words = line(place, command, reading, "read.toml" if reading in TEXTS else "read.jsonl")
    read = place / ("read.toml" if reading in TEXTS else "read.jsonl")
    target = read if name == "itself" else place / ("page.html" if command == "report" else "other.jsonl")
    if name == "symlink":
        target.symlink_to(read.name)
    elif name == "hard link":
        target.hardlink_to(read)
    elsewhere = [] if writing == "output" or command == "select" else ["-o", "new.jsonl"]
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    done = adv(*words, *elsewhere, COMMANDS[command].takes[writing].flag, target.name, "--force", cwd=place)
    said = ["is an input: it is never overwritten", "are both"]
    if name == "itself" and writing == "output":  # the suffix of a page or of settings is refused first
        said += (
            ["unknown report format"] if command == "report" else ["unknown file format"] if reading in TEXTS else []
        )
    assert done.status == 2 and any(text in done.err for text in said), done
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


IN_PYTHON: dict[str, Callable[[], object]] = {
    "in.jsonl": lambda: grpo_cli.report("in.jsonl", "page.html", force=True),
    "copy.jsonl": lambda: grpo_cli.report("in.jsonl", "page.html", rescored="copy.jsonl", force=True),
    "presets.toml": lambda: grpo_cli.report("in.jsonl", "page.html", presets="presets.toml", force=True),
    "schemas.toml": lambda: grpo_cli.report("in.jsonl", "page.html", schemas="schemas.toml", force=True),
    "frame.jsonl": lambda: grpo_cli.add_columns("in.jsonl", "frame.jsonl", "frame.jsonl", force=True, column={"reward": "more"}),
}  # fmt: skip


@pytest.mark.parametrize("read", IN_PYTHON)
def test_what_python_reads_is_not_written_either(read: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    write(place / "frame.jsonl", ROWS)
    write(place / "copy.jsonl", [{**row, "reward": 1 - row["reward"]} for row in ROWS])
    for name in ("presets", "schemas"):
        (place / f"{name}.toml").write_text(TEXTS[name])
    (place / "page.html").symlink_to(read)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(UsageError, match="is an input: it is never overwritten"):
        IN_PYTHON[read]()
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_what_an_earlier_call_has_read_may_be_written(place: Path) -> None:
    read, new = place / "in.jsonl", place / "new.jsonl"
    grpo_cli.add_columns(read, read, new, column={"reward": "more"})
    grpo_cli.add_columns(new, new, read, column={"reward": "again"}, force=True)
    assert [row["again"] for row in rows_of(read)] == [row["reward"] for row in ROWS]


SURROUNDED = {
    "a folder": ["compute", "folder", "-o", "out/"],
    "a pattern": ["compute", "folder/*.jsonl", "-o", "out/"],
    "a job": ["compute", "job", "-o", "out.jsonl"],
    "a data set": ["compute", "saved", "-o", "out/"],
    "a database": ["compute", "x.db", "-o", "out.jsonl"],
    "the variable": ["compute", "in.jsonl", "-o", "out.jsonl"],
}
BESIDE = {
    "a folder": "folder/a.jsonl", "a pattern": "folder/a.jsonl", "a job": "job/b/agent/trajectory.json",
    "a data set": "saved/state.json", "a database": "x.db-wal", "the variable": "mine.toml",
}  # fmt: skip


@pytest.mark.parametrize("what", SURROUNDED)
def test_what_is_read_without_being_named_is_not_written_either(what: str, place: Path) -> None:
    write(place / "folder" / "a.jsonl", ROWS)
    job = harbor.job(place / "job", 2)
    for at, name in enumerate("ab"):
        harbor.trial(job, "t", name, {"reward": at}, steps=harbor.conversation("t", name))
    shards(place / "saved", 1)
    (place / "mine.toml").write_text("missing = 'zero'\n")
    with closing(sqlite3.connect(place / "x.db")) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE t (prompt_id, reward)")
        writer.executemany("INSERT INTO t VALUES (?, ?)", [(at // 2, at % 2) for at in range(8)])
        writer.commit()
        before = (place / BESIDE[what]).read_bytes()
        env = {"GRPO_ADV_CONFIG": "mine.toml"} if what == "the variable" else {}
        done = adv(*SURROUNDED[what], "--summary", BESIDE[what], "--force", cwd=place, **env)
        assert done.status == 2
        assert f"{BESIDE[what]}" in done.err and "is an input: it is never overwritten" in done.err
        assert (place / BESIDE[what]).read_bytes() == before


def test_a_link_that_appears_while_rows_are_read_is_noticed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (place / "in.jsonl").read_bytes()
    meanwhile(monkeypatch, lambda: (place / "out.jsonl").symlink_to("in.jsonl"))
    done = adv("compute", "in.jsonl", "-o", "out.jsonl", "--force", cwd=place)
    assert (done.status, (place / "in.jsonl").read_bytes()) == (2, before)
    assert "in.jsonl: is an input: it is never overwritten" in done.err


@pytest.mark.parametrize(
    "command",
    [["inspect"], ["schemas"], ["audit"], ["verify", "--against", "copy.jsonl"], ["presets", "x", "--presets"]],
    ids=" ".join,
)
def test_no_command_prints_into_what_it_reads(command: list[str], place: Path) -> None:
    before = (place / "in.jsonl").read_bytes()
    done = run(place, *command, "in.jsonl", stdin="in.jsonl", stdout="in.jsonl", mode="a")
    assert done.returncode != 0
    assert (place / "in.jsonl").read_bytes() == before


def test_devices_may_be_read_and_written(place: Path) -> None:
    assert adv("compute", "in.jsonl", "--config", "/dev/null", "-o", "/dev/null", cwd=place).status == 0


def test_a_file_is_changed_in_place_by_its_own_columns(place: Path) -> None:
    done = adv("add", "in.jsonl", "--from", "in.jsonl", "--column", "reward=more", "--in-place", cwd=place)
    assert done.status == 0, done.err
    assert [row["more"] for row in rows_of(place / "in.jsonl")] == [row["reward"] for row in ROWS]


@pytest.mark.parametrize("command", [c for c in WRITING if "in-place" not in c and "explain" not in c])
def test_no_command_replaces_a_file_that_is_created_at_the_last_moment(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, real = place / ("r.html" if command.startswith("report") else "other.jsonl"), os.link

    def link(temporary: Path, path: Path) -> None:
        if path == target:
            path.write_text("theirs")
        real(temporary, path)

    monkeypatch.setattr(os, "link", link)
    words = [target.name if word == "TARGET" else word for word in WRITING[command] if word != "--force"]
    done = adv(*words, cwd=place)
    assert (done.status, done.err.count("\n"), "exists" in done.err) == (2, 1, True), done
    assert target.read_text() == "theirs"


@pytest.mark.parametrize("command", [("compute",), ("select", "--limit", "1")], ids=["compute", "select"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_summary_is_not_an_output_through_a_symlink(command: tuple[str, ...], place: Path, *, existing: bool) -> None:
    (place / "link.json").symlink_to("out.jsonl")
    if existing:
        (place / "out.jsonl").write_text("old")
    options = ["-o", "out.jsonl", "--summary", "link.json", "--force"]
    done = adv(*command, "in.jsonl", *options, cwd=place)
    assert done.status == 2
    assert "--summary and an output are both link.json" in done.err
    assert not existing or (place / "out.jsonl").read_text() == "old"


def test_two_outputs_are_not_one_file_through_symlinks(place: Path) -> None:
    write(place / "other.jsonl", ROWS)
    (place / "out").mkdir()
    (place / "out" / "other.jsonl").symlink_to("in.jsonl")
    done = adv("compute", "in.jsonl", "other.jsonl", "--group-within", "file", "-o", "out/", "--force", cwd=place)
    assert (done.status, done.out) == (2, "")
    assert "out/in.jsonl and out/other.jsonl are the same file; remove the link" in done.err
    assert not (place / "out" / "in.jsonl").exists()


def run(
    place: Path, *arguments: str, stdin: str, stdout: str = "", mode: str = "w"
) -> subprocess.CompletedProcess[str]:
    """The real command with files behind its streams."""
    with (place / stdin).open() as source, (place / (stdout or "nothing")).open(mode) as sink:
        return subprocess.run(
            [sys.executable, "-m", "grpo_cli", *arguments], stdin=source, stdout=sink, stderr=subprocess.PIPE, text=True,
            cwd=place, check=False,
        )  # fmt: skip


def test_the_file_behind_standard_input_is_an_input(place: Path) -> None:
    before = (place / "in.jsonl").read_bytes()
    for more in ("-o in.jsonl", "--summary in.jsonl", "--summary in.jsonl --stream -g prompt_id"):
        done = run(place, "compute", "-", *more.split(), "--force", stdin="in.jsonl")
        assert done.returncode == 2, more
        assert "in.jsonl is an input" in done.stderr
        assert (place / "in.jsonl").read_bytes() == before


def test_standard_output_appended_to_an_input_is_refused(place: Path) -> None:
    before = (place / "in.jsonl").read_bytes()
    done = run(place, "compute", "in.jsonl", "-o", "-", stdin="in.jsonl", stdout="in.jsonl", mode="a")
    assert done.returncode == 2
    assert "standard output is an input" in done.stderr
    assert (place / "in.jsonl").read_bytes() == before


def test_a_summary_is_not_the_file_behind_standard_output(place: Path) -> None:
    done = run(place, "compute", "-", "--summary", "out.jsonl", "--force", stdin="in.jsonl", stdout="out.jsonl")
    assert done.returncode == 2
    assert "--summary and an output are both out.jsonl" in done.stderr


def test_the_summary_of_a_stream_is_an_output_like_others(place: Path) -> None:
    (place / "s.json").write_text("mine")
    stream = ("compute", "-", "--stream", "-g", "prompt_id", "--summary", "s.json")
    done = run(place, *stream, stdin="in.jsonl", stdout="out.jsonl")
    assert (done.returncode, (place / "s.json").read_text()) == (2, "mine")
    done = run(place, *stream, "--force", stdin="in.jsonl", stdout="out.jsonl")
    assert done.returncode == 0, done.stderr
    assert len(rows_of(place / "out.jsonl")) == len(ROWS)


@pytest.mark.parametrize(
    "words", [["compute"], ["select", "--limit", "1"], ["export", "--to", "sft"]], ids=lambda words: words[0]
)
def test_an_output_that_exists_stays_whatever_column_is_named(words: list[str], place: Path) -> None:
    (place / "out.jsonl").write_text("precious")
    (place / "late.jsonl").write_text((place / "in.jsonl").read_text() * 2000 + '{"prompt_id": 99, "score": 1}\n')
    for reward, file in (
        ("scoer", "in.jsonl"),
        ("reward", "in.jsonl"),
        ("score", "late.jsonl"),
    ):  # late: in the last line
        done = adv(words[0], file, *words[1:], "--reward", reward, "-o", "out.jsonl", cwd=place)
        assert done.status == 2 and "out.jsonl exists; add --force" in done.err
        assert (place / "out.jsonl").read_text() == "precious"
