"""`add --on`: rows matched by key, against a join of plain dictionaries; and each refusal with its words."""

from __future__ import annotations

import json
import random
import shlex
from collections import defaultdict
from itertools import product
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import grpo_cli
from grpo_cli.errors import DataError, GateError, UsageError
from grpo_cli.runs import add
from grpo_cli.write.verify import verify
from tests.support.command import Done, adv, facts_of, ran
from tests.support.drawn import is_nightly, some
from tests.support.jobs import meanwhile, rows_of, write

SUFFIXES = ["jsonl", "jsonl.gz", "json", "csv", "tsv", "parquet", "arrow"]
# All values of a kind are different, and what is written of one is read as it in every format.
IDS: list[list[Any]] = [
    [*range(8), -3, 2**53 + 1, 2**53],
    ["a", "b", "é", "1", "01", "true", 'q"', "x,y", "a b", "null"],
    [True, False],
    [0.5, -1.25, 0.1, 3.0, 1e300],
]
TAKE: dict[str, Any] = {"first": itemgetter(0), "last": itemgetter(-1), "mean": fmean}


def drawn(draw: random.Random, ids: list[Any], more: str) -> list[Any]:
    """Rows with two parts of a key; a few lack the first."""
    rows = range(draw.randrange(1, 12))
    return [{"id": draw.choice([*ids, None]), "part": draw.choice("xy"), more: k} for k in rows]


def key(row: Any, on: str) -> tuple[Any, ...] | None:
    return None if row["id"] is None else tuple(row[name] for name in on.split(","))


@pytest.mark.parametrize(("mine", "theirs"), some(product(SUFFIXES, SUFFIXES), 3))
def test_rows_get_what_a_join_of_dictionaries_gives_them(mine: str, theirs: str) -> None:
    for seed in range(40 if is_nightly() else 5):
        draw = random.Random(f"{mine} {theirs} {seed}")  # noqa: S311 - tables, not secrets
        ids = draw.choice(IDS)
        here = drawn(draw, ids, "reward")
        there = drawn(draw, ids, "v")
        on = draw.choice(["id", "id,part"])
        take = draw.choice([*TAKE])
        write(f"a.{mine}", here)
        write(f"b.{theirs}", there)
        known = defaultdict(list)
        for row in there:
            known[key(row, on)].append(row["v"])
        known.pop(None, None)
        wanted = []
        for row in here:
            found = known.get(key(row, on))
            wanted.append(found and pytest.approx(TAKE[take](found)))
        line = f"add a.{mine} --from b.{theirs} --on {on} --column v --take {take} --schema none --force -o o.{mine}"
        unmatched = wanted.count(None)
        if unmatched == len(here):
            done = adv(line)
            assert done.status == 1
            assert f"no row of a.{mine} is in b.{theirs} (by id" in done.err
            continue
        said = facts_of(line)["joined"]
        assert [row["v"] for row in rows_of(f"o.{mine}")] == wanted, (here, there)
        assert said["matched"] == len(here) - unmatched
        assert said["unmatched"] == unmatched
        used = {key(row, on) for row in here} - {None}
        assert said["unused"] == sum(key(row, on) not in used for row in there)
        assert verify(f"o.{mine}", f"a.{mine}").added == ("v",)


def files(here: str, there: str) -> None:
    Path("a.jsonl").write_text(here)
    Path("b.jsonl").write_text(there)


def added(words: str = "", other: str = "b.jsonl") -> Done:
    return adv(f"add a.jsonl --from {other} -o o.jsonl --force {words}")


def matched(words: str, other: str = "b.jsonl", name: str = "v") -> list[Any]:
    """What the rows get."""
    ran(f"add a.jsonl --from {other} -o o.jsonl --force {words}")
    return [row[name] for row in rows_of("o.jsonl")]


IDS_0_TO_2 = '{"id": 0, "reward": 0}\n{"id": 1, "reward": 0}\n{"id": 2, "reward": 0}\n'


# --- keys --------------------------------------------------------------------------------------------------------


def test_a_number_and_its_text_are_different_keys() -> None:
    files('{"id": 1, "reward": 0}\n{"id": 2, "reward": 0}\n', '{"id": "1", "v": 5}\n{"id": "2", "v": 6}\n')
    done = added("--on id")
    cures = "--on takes both names if they differ (HERE=THERE); a number and a text are different keys"
    assert done.status == 1
    assert done.err == f"error: no row of a.jsonl is in b.jsonl (by id); {cures}\n"
    files('{"id": 1, "reward": 0}\n{"id": "1", "reward": 0}\n', '{"id": "1", "v": 5}\n{"id": 1.0, "v": 6}\n')
    assert matched("--on id") == [6, 5]


def test_cells_count_as_what_they_are_written_as() -> None:
    Path("a.jsonl").write_text('{"id": 7, "reward": 0}\n{"id": 8, "reward": 0}\n{"id": 9, "reward": 0}\n')
    Path("b.csv").write_text("id,v\n007,1\n8,2\n9.0,3\n9.5,4\n,5\n")
    assert matched("--on id", "b.csv") == [None, 2, 3]


def test_a_number_and_a_text_of_one_column_are_not_told_apart_by_csv() -> None:
    Path("a.jsonl").write_text('{"id": 1, "reward": 0}\n{"id": "1", "reward": 0}\n')
    Path("b.csv").write_text("id,v\n1,5\n")
    done = added("--on id", "b.csv")
    assert done.status == 1
    assert done.err.startswith("error: 1 is of several types in one input, and the other has none; convert")
    Path("a.jsonl").write_text('{"id": 1, "reward": 0}\n{"id": "x", "reward": 0}\n')
    assert matched("--on id", "b.csv") == [5, None]


def test_keys_are_paths_and_may_have_other_names_there() -> None:
    files(
        '{"info": {"id": 0}, "a=b": "x", "reward": 0}\n{"info": {"id": 1}, "a=b": "x", "reward": 0}\n',
        '{"trace": {"id": 1}, "a=b": "x", "v": 5}\n{"trace": {"id": 0}, "a=b": "x", "v": 6}\n',
    )
    assert matched("--on info.id=trace.id --column v") == [6, 5]
    assert matched("--on info.id=trace.id,a=b --column v") == [6, 5]
    files(IDS_0_TO_2, '{"rid": 2, "v": 0}\n{"rid": 1, "v": 1}\n{"rid": 0, "v": 2}\n')
    assert matched("--on id=rid") == [2, 1, 0]
    assert [*rows_of("o.jsonl")[0]] == ["id", "reward", "v"]


NAMES = """\
^a$
*
.
a.b
x[]
a,b
a=b
 sp
😀
.advantage
file
0
"q"
-x
"""


@pytest.mark.parametrize("name", [*NAMES.splitlines(), "n" * 1000])
def test_a_key_may_have_any_name(name: str) -> None:
    write("a.jsonl", [{name: "k0", "reward": 0}, {name: "k1", "reward": 0}])
    write("b.parquet", [{name: "k1", "v": 0}, {name: "k0", "v": 1}])
    quoted = f'"{name}"' if "," in name or name != name.strip() else name
    assert matched(shlex.quote(f"--on={quoted}"), "b.parquet") == [1, 0]


def test_the_key_of_the_other_file_can_be_added_by_name() -> None:
    files(IDS_0_TO_2, '{"id": 1, "v": 5}\n')
    assert matched("--on id --column id=there", name="there") == [None, 1, None]
    said = "--on 'id' matches rows by it; --column v leaves it out; --replace overwrites it"
    assert added().err == f"error: a.jsonl already has a column 'id'; {said}\n"


def test_several_columns_are_one_key_and_two_may_have_to_equal_one_of_the_other_file() -> None:
    files(
        '{"id": 0, "part": 0, "reward": 0}\n{"id": 0, "part": 1, "reward": 0}\n{"id": 1, "part": 0, "reward": 0}\n',
        '{"id": 1, "part": 0, "v": 5}\n{"id": 0, "part": 1, "v": 6}\n{"id": 0, "part": 0, "v": 7}\n',
    )
    assert matched("--on id --on part") == [7, 6, 5]
    files(
        '{"a": 0, "b": 2, "reward": 0}\n{"a": 1, "b": 2, "reward": 0}\n{"a": 2, "b": 2, "reward": 0}\n',
        '{"x": 0, "v": 0}\n{"x": 1, "v": 1}\n{"x": 2, "v": 2}\n',
    )
    assert matched("--on a=x,b=x") == [None, None, 2]


# --- several for one row -----------------------------------------------------------------------------------------


def test_several_rows_for_one_are_an_error_with_three() -> None:
    write("a.jsonl", [{"id": f"r{k}", "reward": 0} for k in range(9)])
    write("b.jsonl", [{"id": f"r{k % 5}", "v": k} for k in range(11)])
    done = added("--on id")
    three = "r0 (3 rows, b.jsonl:1 and b.jsonl:6), r1 (2 rows, b.jsonl:2 and b.jsonl:7), r2 (2 rows, b.jsonl:3 and b.jsonl:8)"
    cures = "--take first|last|mean takes one value of each; more columns in --on tell them apart"
    assert done.status == 1
    assert done.err == f"error: id is the same in several rows of b.jsonl: {three}; {cures}\n"
    for take, wanted in (("first", [0, 1, 2, 3, 4]), ("last", [10, 6, 7, 8, 9]), ("mean", [5, 3.5, 4.5, 5.5, 6.5])):
        assert matched(f"--on id --take {take}") == [*wanted, None, None, None, None]
    joined = facts_of("add a.jsonl --from b.jsonl -o o.jsonl --force --on id --take mean")["joined"]
    del joined["rows"]
    assert joined == {
        "on": {"id": "id"}, "take": "mean", "matched": 5, "unmatched": 4, "unmatched_share": 4 / 9,
        "unused": 0, "unused_share": 0.0, "repeated": 5,
    }  # fmt: skip


def test_rows_that_repeat_but_belong_to_none_are_no_error() -> None:
    files('{"id": "a", "reward": 0}\n', '{"id": "b", "v": 1}\n{"id": "b", "v": 2}\n{"id": "a", "v": 3}\n')
    assert matched("--on id") == [3]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('"yes"', "v is string, which has no mean"),
        ("true", "v is boolean"),
        ("1152921504606846977", "a mean would round the integers of v"),
    ],
)
def test_what_has_no_mean_is_refused(value: str, words: str) -> None:
    files('{"id": 1, "reward": 0}\n', f'{{"id": 1, "v": {value}}}\n' * 2)
    done = added("--on id --take mean")
    assert done.status == 1
    assert words in done.err
    assert "--take first|last" in done.err
    assert matched("--on id --take last") == [json.loads(value)]


# --- what is said and refused ------------------------------------------------------------------------------------


def test_counts_are_shown_and_gates_hold_before_anything_is_written() -> None:
    files(IDS_0_TO_2 + '{"id": 3, "reward": 0}\n', "".join(f'{{"id": {k}, "v": {k}}}\n' for k in (3, 2, 1, 7, 8)))
    line = "add a.jsonl --from b.jsonl -o o.jsonl --on id"
    for gate in ("unmatched > 0", "unused_share > 0.3"):
        assert adv(f"{line} --fail-on '{gate}'").status == 3
        assert not Path("o.jsonl").exists()
    said = " ".join(ran(f"{line} --fail-on 'unmatched_share > 0.25'").out.split())
    assert "matched 3 of 4 rows by id 1 row without a match: null 2 rows of the other file not used" in said
    assert "no quantity named 'unmatch'; did you mean" in added("--on id --fail-on 'unmatch > 0'").err
    with pytest.raises(GateError, match="unmatched is 1"):
        grpo_cli.add_columns("a.jsonl", "b.jsonl", on="id", fail_on="unmatched > 0")


REFUSED = """\
--take first | --take has no effect without --on; add --on COL
--on id --by-position | --by-position and --on cannot be combined
--on id --column v=id --replace | the column 'id' is read by this run
--on , | --on names no column
--on = | --on names no column
--on id=id,id=v | --on matches 'id' with 'id' and 'v'; name one of them
"""


@pytest.mark.parametrize("case", REFUSED.splitlines())
def test_options_that_say_nothing_together_are_refused(case: str) -> None:
    words, wrong = case.split(" | ")
    files('{"id": 1, "reward": 0}\n', '{"id": 1, "v": 2}\n')
    done = added(words)
    assert done.status == 2
    assert wrong in done.err


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("on", "file"), [("rolout_id", "a"), ("rollout_id=rolout_id", "b"), ("rolout_id=rollout_id", "a")]
)
def test_a_misspelt_key_is_named_before_an_existing_output(on: str, file: str, suffix: str) -> None:
    Path("a.jsonl").write_text('{"rollout_id": 1, "reward": 0}\n')
    write(f"b.{suffix}", [{"rollout_id": 1, "v": 2}])
    Path("o.jsonl").write_text("precious")
    done = adv(f"add a.jsonl --from b.{suffix} --on {on} -o o.jsonl")
    name = "a.jsonl" if file == "a" else f"b.{suffix}"
    assert done.status == 1
    assert f"{name}: no column 'rolout_id'; did you mean 'rollout_id'?" in done.err
    assert Path("o.jsonl").read_text() == "precious"
    done = adv(f"add a.jsonl --from b.{suffix} --on rollout_id -o o.jsonl")
    assert "o.jsonl exists; add --force" in done.err


def test_a_key_that_only_later_lines_have_is_read() -> None:
    files('{"reward": 0}\n' * 3000 + '{"late": 1, "reward": 0}\n', '{"late": 1, "v": 2}\n')
    assert matched("--on late --column v") == [None] * 3000 + [2]
    assert "a.jsonl: no column 'lat'" in added("--on lat=late").err


def test_all_other_bytes_stay_and_nulls_replace_old_values_where_no_row_matches() -> None:
    text = '{ "id":1.0, "v" : "old" ,"reward":1e0}\r\n\r\n{"reward": 0,"id":2,"v":"old"}'
    Path("a.jsonl").write_bytes(text.encode())
    Path("b.jsonl").write_text('{"id": 2, "v": 5}\n')
    ran("add a.jsonl --from b.jsonl --on id --column v=w -o w.jsonl")
    wanted = '{ "id":1.0, "v" : "old" ,"reward":1e0,"w":null}\r\n\r\n{"reward": 0,"id":2,"v":"old","w":5}'
    assert Path("w.jsonl").read_bytes().decode() == wanted
    ran("add a.jsonl --from b.jsonl --on id --replace -o o.jsonl")
    wanted = '{ "id":1.0, "v" : null ,"reward":1e0}\r\n\r\n{"reward": 0,"id":2,"v":5}'
    assert Path("o.jsonl").read_bytes().decode() == wanted


def test_a_file_that_changes_between_its_two_readings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    row = '{"id": 1, "reward": 0, "v": 2}\n'
    files(row, row)
    meanwhile(monkeypatch, lambda: Path("b.jsonl").write_text(row), add, "joined")
    done = added("--on id --column v=w")
    assert done.status == 1
    assert "b.jsonl: the file changed while it was being read" in done.err
    assert not Path("o.jsonl").exists()


# --- frames and layouts ------------------------------------------------------------------------------------------


def test_frames_are_joined_by_key() -> None:
    source = Path("a.csv")
    source.write_text("rollout,reward\nr0,0\nr1,0\nr2,0\nr3,0\n")
    frame = pa.table({"rid": ["r3", "r1", "r9"], "score": [0.3, 0.1, 0.9]})
    out = grpo_cli.add_columns(source, frame, "o.csv", on={"rollout": "rid"})
    assert Path(out).read_text() == "rollout,reward,score\nr0,0,\nr1,0,0.1\nr2,0,\nr3,0,0.3\n"
    places = r"r1 \(2 rows, frame row 1 and frame row 2\); take first\|last\|mean"
    with pytest.raises(DataError, match=rf"rid is the same in several rows of frame: {places}"):
        grpo_cli.add_columns(source, pa.table({"rid": ["r1", "r1"], "s": [1, 2]}), on={"rollout": "rid"})
    with pytest.raises(DataError, match="no column 'rollot'; did you mean 'rollout'"):
        grpo_cli.add_columns(source, frame, on={"rollot": "rid"})
    with pytest.raises(UsageError, match="take has no effect without on"):
        grpo_cli.add_columns(source, frame, take="first")


def test_ids_of_numbers_that_pandas_made_floats_are_the_same_ids() -> None:
    Path("a.jsonl").write_text(IDS_0_TO_2)
    frame = pd.DataFrame({"id": [2.0, None, 0.0], "v": [5, 6, 7]})
    out = grpo_cli.add_columns("a.jsonl", frame, "o.jsonl", on="id")
    assert [row["v"] for row in rows_of(out)] == [7, None, 5]
