"""Names of columns that mean something to a shell, a parser, polars or this tool: a file that has them gives what its twin with plain names gives."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import grpo_cli
from tests.support.command import adv, process
from tests.support.drawn import some
from tests.support.jobs import rows_of, write

PATTERNS: Final = ("^a$", "^.*$", "^[a-z]+$", "^$", "^(the_)?.*$", "*", "^reward.*$", "^.")
ODD: Final = (
    ".", "..", "[]", "a[]", "a.b", ".a", "a.", "'", '"', "`", "a b", "a\nb", "\\", "{}", "$", "%s", "#", "é", "🙂", "n" * 300, "-a", "--json",
)  # fmt: skip
OURS: Final = (
    ".advantage", ".n", ".reward", ".kept", "group", "batch", "reward.0", "rollout", "code", "size", "mean", "std", "key", "value",
    "place", "literal", "0", "status", "file",
)  # fmt: skip
NAMES: Final = (*PATTERNS, *ODD, *OURS)
BLANK: Final = ("", " a", "\t")  # a list of names, as --group takes it, is given with blanks between them
KINDS: Final = ("jsonl", "csv", "parquet", "arrow", "json", "jsonl.gz", "tsv")
KEY, REWARD, OTHER, PART, PROMPT, ANSWER, LENGTH, NEW = COLUMNS = (
    "the_key", "the_reward", "the_other", "the_part", "the_prompt", "the_answer", "the_length", "the_new",
)  # fmt: skip
UNNAMED: Final = "the_rest"  # no option names it
MORE: Final = ("", "_mean", "_std", "_size", "_status")

Names = Mapping[str, str]


def table(names: Names) -> list[dict[str, Any]]:
    """Four groups of four rows, two in each part; no two rows of a group have the same text."""
    rewards = [0.0, 1.0, 1.0, 0.0, 0.5, 0.25, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.75, 0.0]
    columns: dict[str, list[Any]] = {
        KEY: [f"k{at // 4}" for at in range(16)],
        REWARD: rewards,
        OTHER: [float(at % 3) for at in range(16)],
        PART: [f"part {at // 8}" for at in range(16)],
        PROMPT: [f"question {at // 4}" for at in range(16)],
        ANSWER: [f"answer {at}" for at in range(16)],
        LENGTH: [3 + at % 4 for at in range(16)],
        UNNAMED: [f"row {at}" for at in range(16)],
    }
    return [{names[column]: values[at] for column, values in columns.items()} for at in range(16)]


def commands(names: Names, kind: str) -> Iterator[list[str]]:
    """A command for each thing that is done with names; a later one reads what an earlier one has written."""
    key, reward, other, part, prompt, answer, length, new = (names[column] for column in COLUMNS)
    rows = [f"in.{kind}", f"--group={key}", f"--reward={reward}"]
    texts = [f"--prompt={prompt}", f"--response={answer}"]
    lists = "jsonl" if kind in {"csv", "tsv"} else kind
    records = "jsonl" if kind == "json" else kind
    yield ["compute", *rows, "-o", f"out.{kind}", "--json", f"--column={new}", "--facts"]
    yield ["verify", f"out.{kind}", "--against", f"in.{kind}", "--json"]
    yield ["compute", f"out.{kind}", *rows[1:], f"--column={new}", "--replace", "-o", f"again.{kind}", "--json"]
    yield ["audit", f"out.{kind}", *rows[1:], f"--column={new}", "--json"]
    yield ["compute", *rows, f"--batch-by={part}", "--scale", "batch", "--only", "-o", f"only.{kind}", "--json"]
    yield [
        "compute",
        *rows,
        f"--group-within={part}",
        f"--reward={other}",
        "--combine",
        "normalize",
        "-o",
        f"two.{kind}",
        "--json",
    ]
    yield ["compute", *rows, f"--plan-by={part}", "--plan", "default:method=rloo", "-o", f"parts.{kind}", "--json"]
    yield ["compute", *rows, "--per-token", f"--length-column={length}", "-o", f"tokens.{lists}", "--json"]
    yield ["compute", *rows, "--zero-variance", "drop", "-o", f"fewer.{kind}", "--json"]
    yield ["compute", *rows, f"--rollout={answer}", "--explain", "--json"]
    yield from (["compute", *rows, "-o", f"converted.{to}", "--json"] for to in ("jsonl", "parquet", "csv", "arrow"))
    yield ["inspect", *rows, f"--by={part}", f"--text-column={answer}", f"--length-column={length}", "--json"]
    yield ["inspect", *rows, f"--rescored-column={other}", "--json"]
    yield ["inspect", *rows, "--against", f"in.{kind}", "--json"]
    yield ["inspect", *rows, "--show", "k1", f"--text-column={answer}", "--json"]
    yield ["report", *rows, f"--by={part}", f"--text-column={answer}", "-o", "report.html"]
    yield ["select", *rows, "--where", "std > 0", "--per-group", "2", "-o", f"some.{kind}", "--json"]
    yield from (
        ["export", *rows, "--to", to, *texts, "-o", f"{to}.{records}", "--json"] for to in ("sft", "pairs", "weights")
    )
    yield ["export", *rows, "--to", "prompts", texts[0], "-o", f"prompts.{records}", "--json"]
    yield ["compare", *rows, "--method", "grpo", "--method", "rloo", "--write", "-o", f"both.{kind}", "--json"]
    yield ["compare", *rows, f"--vs-reward={other}", "--json"]
    yield ["add", f"in.{kind}", "--from", f"out.{kind}", f"--column={new}=more", "-o", f"added.{kind}", "--json"]


def outcome(place: Path, words: Sequence[str], run: Any = adv) -> tuple[Any, ...]:
    """The status of a command, the JSON that it printed, and the rows of the file that it wrote."""
    done = run(*words, cwd=place)
    facts = json.loads(done.out) if done.out and "--json" in words else None
    output = place / words[words.index("-o") + 1] if "-o" in words else place
    if not output.is_file() or output.suffix == ".html":
        return done.status, facts, output.exists()
    if output.suffix in {".csv", ".tsv"}:  # polars leaves quotes in a name
        with output.open(encoding="utf-8", newline="") as lines:
            return done.status, facts, list(csv.reader(lines, delimiter="," if output.suffix == ".csv" else "\t"))
    return done.status, facts, [list(row.items()) for row in rows_of(output)]


def alike(found: Any, names: Mapping[str, str]) -> Any:
    """What was found, with `a name` for each of these names and `a sentence` for any other text, which may contain one."""
    match found:
        case dict():
            return [[names.get(key, key), alike(value, names)] for key, value in found.items() if key != "seconds"]
        case list() | tuple():
            return [alike(value, names) for value in found]
        case str():
            return names.get(found, "a sentence")
    return found


@cache
def of_plain_names(kind: str, place: Path) -> list[Any]:
    names = {column: column for column in (*COLUMNS, UNNAMED)}
    write(place / f"in.{kind}", table(names))
    return [outcome(place, words) for words in commands(names, kind)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plain")


def turned(by: int) -> dict[str, str]:
    """Each column under a name of the list, beginning with this one."""
    names = {column: NAMES[(by + at) % len(NAMES)] for at, column in enumerate(COLUMNS)}
    return {**names, UNNAMED: BLANK[by % len(BLANK)]}


@pytest.mark.parametrize("by", some(range(len(NAMES)), every=13))
def test_columns_of_any_names_are_read_and_written_like_those_with_plain_names(
    by: int, plain: Path, tmp_path: Path
) -> None:
    kind, names = KINDS[(by + by // 7) % len(KINDS)], turned(by)
    write(tmp_path / f"in.{kind}", table(names))
    masked = {f"{name}{more}": f"a name{more}" for name in (*names, *names.values()) for more in MORE}
    for words, usual in zip(commands(names, kind), of_plain_names(kind, plain / kind), strict=True):
        assert alike(outcome(tmp_path, words), masked) == alike(usual, masked), words


@pytest.mark.parametrize("name", PATTERNS)
def test_the_command_as_installed_takes_a_name_for_a_name(name: str, tmp_path: Path) -> None:
    keys, rewards = ["x", "x", "y", "y"], [0.0, 1.0, 1.0, 0.0]
    write(tmp_path / "in.parquet", [{name: key, "a": at, "r": rewards[at]} for at, key in enumerate(keys)])
    done = process("compute", "in.parquet", f"--group={name}", "--reward=r", "--method=rloo", "-q", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert [row["advantage"] for row in rows_of(tmp_path / "in.advantages.parquet")] == [-1.0, 1.0, 1.0, -1.0]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_frame_in_memory_may_have_columns_of_any_names(name: str) -> None:
    keys, rewards = ["x", "x", "y", "y"], [0.0, 1.0, 1.0, 0.0]
    as_key = pl.DataFrame({name: keys, "a": [0, 1, 2, 3], "r": rewards})
    as_reward = pl.DataFrame({name: rewards, "a": [0, 1, 2, 3], "k": keys})
    for frame, group, reward in ((as_key, name, "r"), (as_key.lazy(), name, "r"), (as_reward, "k", name)):
        found = grpo_cli.advantages(frame, group=group, reward=reward, method="rloo")
        assert found.to_list() == [-1.0, 1.0, 1.0, -1.0]


@pytest.mark.parametrize("name", [name for name in PATTERNS if "." not in name])
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow", "json"])
def test_a_field_inside_of_an_object_is_the_one_that_is_named(name: str, kind: str, tmp_path: Path) -> None:
    rewards = [0.0, 1.0, 1.0, 0.0]
    rows = [{"id": {"a": at, name: at // 2}, "info": {"a": 7 * at, name: reward}} for at, reward in enumerate(rewards)]
    write(tmp_path / f"in.{kind}", rows)
    done = adv(
        "compute", f"in.{kind}", f"-gid.{name}", f"-rinfo.{name}", "-mrloo", "-o", "out.jsonl", "-q", cwd=tmp_path
    )
    assert (done.status, done.err) == (0, "")
    assert [row["advantage"] for row in rows_of(tmp_path / "out.jsonl")] == [-1.0, 1.0, 1.0, -1.0]


@pytest.mark.parametrize("name", [name for name in PATTERNS if "." not in name])
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow", "json"])
def test_a_field_of_objects_in_a_list_is_the_one_that_is_named(name: str, kind: str, tmp_path: Path) -> None:
    tries = [[{"a": 7, name: 0.0}, {"a": 8, name: 1.0}], [{"a": 9, name: 1.0}, {"a": 5, name: 0.0}]]
    write(tmp_path / f"in.{kind}", [{"prompt": f"p{at}", "tries": each} for at, each in enumerate(tries)])
    done = adv("compute", f"in.{kind}", f"-rtries[].{name}", "-mrloo", "--long", "-o", "out.jsonl", "-q", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert [row["advantage"] for row in rows_of(tmp_path / "out.jsonl")] == [-1.0, 1.0, 1.0, -1.0]
