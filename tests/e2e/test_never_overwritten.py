"""No command writes over its own input, under whatever name and whatever `--force` says, nor two things into one file."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.support.command import adv
from tests.support.jobs import rows_of, write

ROWS = [{"prompt_id": i // 2, "reward": i % 2, "prompt": "p", "completion": "c"} for i in range(8)]
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
def test_a_missing_reward_is_reported_before_an_existing_output(words: list[str], place: Path) -> None:
    (place / "out.jsonl").write_text("precious")
    (place / "late.jsonl").write_text((place / "in.jsonl").read_text() * 2000 + '{"prompt_id": 99, "score": 1}\n')
    for reward, file, says in (
        ("scoer", "in.jsonl", "no column 'scoer'"),
        ("reward", "in.jsonl", "out.jsonl exists; add --force"),
        ("score", "late.jsonl", "out.jsonl exists; add --force"),  # only the last line has it
    ):
        done = adv(words[0], file, *words[1:], "--reward", reward, "-o", "out.jsonl", cwd=place)
        assert done.status in {1, 2} and says in done.err
        assert (place / "out.jsonl").read_text() == "precious"
