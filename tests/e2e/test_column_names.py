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
from tests.support.command import adv, ran
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
COLUMNS: Final = ("KEY", "REWARD", "OTHER", "PART", "PROMPT", "ANSWER", "LENGTH", "NEW")
UNNAMED: Final = "the rest"  # no option names it
MORE: Final = ("", "_mean", "_std", "_size", "_status")

Names = Mapping[str, str]

# A command for each thing that is done with names; a later one reads what an earlier one has written.
ROWS: Final = "in.KIND --group=KEY --reward=REWARD"
COMMANDS: Final = [
    f"compute {ROWS} -o out.KIND --json --column=NEW --facts",
    "verify out.KIND --against in.KIND --json",
    "compute out.KIND --group=KEY --reward=REWARD --column=NEW --replace -o again.KIND --json",
    "audit out.KIND --group=KEY --reward=REWARD --column=NEW --json",
    f"compute {ROWS} --batch-by=PART --scale batch --only -o only.KIND --json",
    f"compute {ROWS} --group-within=PART --reward=OTHER --combine normalize -o two.KIND --json",
    f"compute {ROWS} --plan-by=PART --plan default:method=rloo -o parts.KIND --json",
    f"compute {ROWS} --per-token --length-column=LENGTH -o tokens.LISTS --json",
    f"compute {ROWS} --zero-variance drop -o fewer.KIND --json",
    f"compute {ROWS} --rollout=ANSWER --explain --json",
    *(f"compute {ROWS} -o converted.{to} --json" for to in ("jsonl", "parquet", "csv", "arrow")),
    f"inspect {ROWS} --by=PART --text-column=ANSWER --length-column=LENGTH --json",
    f"inspect {ROWS} --rescored-column=OTHER --json",
    f"inspect {ROWS} --old-rewards in.KIND --json",
    f"inspect {ROWS} --against in.KIND --json",
    f"inspect {ROWS} --show k1 --text-column=ANSWER --json",
    f"report {ROWS} --by=PART --text-column=ANSWER -o report.html",
    f"select {ROWS} --where std>0 --per-group 2 -o some.KIND --json",
    *(f"export {ROWS} --to {to} --prompt=PROMPT --response=ANSWER -o {to}.RECORDS --json" for to in ("sft", "pairs", "weights")),
    f"export {ROWS} --to prompts --prompt=PROMPT -o prompts.RECORDS --json",
    f"compare {ROWS} --method grpo --method rloo --write -o both.KIND --json",
    "add in.KIND --from out.KIND --column=NEW=more -o added.KIND --json",
]  # fmt: skip


# Four groups of four rows, two in each part; no two rows of a group have the same text.
TABLE: Final = """
KEY,REWARD,OTHER,PART,PROMPT,ANSWER,LENGTH,the rest
k0,0.0,0.0,part 0,question 0,answer 0,3,row 0
k0,1.0,1.0,part 0,question 0,answer 1,4,row 1
k0,1.0,2.0,part 0,question 0,answer 2,5,row 2
k0,0.0,0.0,part 0,question 0,answer 3,6,row 3
k1,0.5,1.0,part 0,question 1,answer 4,3,row 4
k1,0.25,2.0,part 0,question 1,answer 5,4,row 5
k1,0.0,0.0,part 0,question 1,answer 6,5,row 6
k1,1.0,1.0,part 0,question 1,answer 7,6,row 7
k2,1.0,2.0,part 1,question 2,answer 8,3,row 8
k2,1.0,0.0,part 1,question 2,answer 9,4,row 9
k2,1.0,1.0,part 1,question 2,answer 10,5,row 10
k2,1.0,2.0,part 1,question 2,answer 11,6,row 11
k3,0.0,0.0,part 1,question 3,answer 12,3,row 12
k3,0.0,1.0,part 1,question 3,answer 13,4,row 13
k3,0.75,2.0,part 1,question 3,answer 14,5,row 14
k3,0.0,0.0,part 1,question 3,answer 15,6,row 15
"""


def table(names: Names) -> list[dict[str, Any]]:
    """The table under these names."""
    rows = pl.read_csv(TABLE.lstrip().encode()).to_dicts()
    return [{names[column]: value for column, value in row.items()} for row in rows]


def commands(names: Names, kind: str) -> Iterator[list[str]]:
    words = {**names, "KIND": kind, "LISTS": "jsonl" if kind in {"csv", "tsv"} else kind}
    words["RECORDS"] = "jsonl" if kind == "json" else kind
    for line in COMMANDS:
        command = line.split()
        for known, meant in words.items():
            command = [word.replace(known, meant) for word in command]
        yield command


def outcome(place: Path, words: Sequence[str]) -> tuple[Any, ...]:
    """The status of a command, the JSON that it printed, and the rows of the file that it wrote."""
    done = adv("", *words, cwd=place)
    facts = json.loads(done.out) if done.out and "--json" in words else None
    output = place / words[words.index("-o") + 1] if "-o" in words else place
    if not output.is_file() or output.suffix == ".html":
        return done.status, facts, output.exists()
    if output.suffix in {".csv", ".tsv"}:  # polars leaves quotes in a name
        with output.open(encoding="utf-8", newline="") as lines:
            return done.status, facts, list(csv.reader(lines, delimiter="," if output.suffix == ".csv" else "\t"))
    return done.status, facts, [list(row.items()) for row in rows_of(output)]


def alike(found: Any, names: Names) -> Any:
    """What was found, with `a name` for each of these names and `a sentence` for any other text, which may contain one."""
    match found:
        case dict():
            return [[names.get(key, key), alike(value, names)] for key, value in found.items() if key != "seconds"]
        case list() | tuple():
            return [alike(value, names) for value in found]
        case str():
            return names.get(found, "a sentence")
    return found


PLAIN: Final = {column: f"the_{column.lower()}" for column in (*COLUMNS, UNNAMED)}


@cache
def of_plain_names(kind: str, place: Path) -> list[Any]:
    write(place / f"in.{kind}", table(PLAIN))
    return [outcome(place, words) for words in commands(PLAIN, kind)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plain")


@pytest.mark.parametrize("by", some(range(len(NAMES)), every=17))
def test_columns_of_any_names_are_read_and_written_like_those_with_plain_names(
    by: int, plain: Path, place: Path
) -> None:
    """Each column under a name of the list, beginning with this one."""
    kind = KINDS[(by + by // 7) % len(KINDS)]
    names = {column: NAMES[(by + at) % len(NAMES)] for at, column in enumerate(COLUMNS)}
    names[UNNAMED] = BLANK[by % len(BLANK)]
    write(f"in.{kind}", table(names))
    masked = {f"{name}{more}": f"a name{more}" for name in (*PLAIN.values(), *names.values()) for more in MORE}
    for words, usual in zip(commands(names, kind), of_plain_names(kind, plain / kind), strict=True):
        assert alike(outcome(place, words), masked) == alike(usual, masked), words


REWARDS: Final = [0.0, 1.0, 1.0, 0.0]
RLOO: Final = [-1.0, 1.0, 1.0, -1.0]  # of two groups of two


@pytest.mark.parametrize("name", PATTERNS)
def test_a_frame_in_memory_may_have_columns_of_any_names(name: str) -> None:
    as_key = pl.DataFrame({name: [*"xxyy"], "a": [0, 1, 2, 3], "r": REWARDS})
    as_reward = pl.DataFrame({name: REWARDS, "a": [0, 1, 2, 3], "k": [*"xxyy"]})
    for frame, group, reward in ((as_key, name, "r"), (as_key.lazy(), name, "r"), (as_reward, "k", name)):
        assert grpo_cli.advantages(frame, group=group, reward=reward, method="rloo").to_list() == RLOO


INSIDE: Final = """
[{"id": {"a": 0, "NAME": 0}, "info": {"a": 0, "NAME": 0.0}}, {"id": {"a": 1, "NAME": 0}, "info": {"a": 7, "NAME": 1.0}},
 {"id": {"a": 2, "NAME": 1}, "info": {"a": 14, "NAME": 1.0}}, {"id": {"a": 3, "NAME": 1}, "info": {"a": 21, "NAME": 0.0}}]
"""
LISTS: Final = """
[{"prompt": "p0", "tries": [{"a": 7, "NAME": 0.0}, {"a": 8, "NAME": 1.0}]},
 {"prompt": "p1", "tries": [{"a": 9, "NAME": 1.0}, {"a": 5, "NAME": 0.0}]}]
"""


@pytest.mark.parametrize("name", [name for name in PATTERNS if "." not in name])
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow", "json"])
def test_a_field_inside_of_an_object_or_of_objects_in_a_list_is_the_one_that_is_named(name: str, kind: str) -> None:
    rows = INSIDE.replace("NAME", name)
    records = LISTS.replace("NAME", name)
    write(f"in.{kind}", json.loads(rows))
    write(f"lists.{kind}", json.loads(records))
    inside = ran(f"compute in.{kind} -mrloo -o inside.jsonl -q", f"-gid.{name}", f"-rinfo.{name}")
    lists = ran(f"compute lists.{kind} --long -mrloo -o long.jsonl -q", f"-rtries[].{name}")
    assert inside.err + lists.err == ""
    for written in ("inside.jsonl", "long.jsonl"):
        assert [row["advantage"] for row in rows_of(written)] == RLOO
