"""`add --on`: rows matched by key, against a join of plain dictionaries; and each refusal with its words."""

from __future__ import annotations

import json
import random
import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from math import fsum
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import grpo_cli
from grpo_cli.errors import DataError, GateError, UsageError
from grpo_cli.runs import add
from grpo_cli.write.verify import verify
from tests.support.command import Done, adv
from tests.support.drawn import is_nightly, some
from tests.support.jobs import meanwhile, rows_of, write

SUFFIXES = ["jsonl", "jsonl.gz", "json", "csv", "tsv", "parquet", "arrow"]
UNTYPED = {"csv", "tsv"}
IDS: dict[str, list[Any]] = {
    "numbers": [*range(8), -3, 2**53 + 1, 2**53],
    "texts": ["a", "b", "é", "1", "01", "true", 'q"', "x,y", "a b", "null"],
    "truths": [True, False],
    "fractions": [0.5, -1.25, 0.1, 3.0, 1e300],
}


def key(value: Any) -> tuple[str, Any] | None:
    """What a value is compared as: numbers by value, texts only with texts; None equals nothing."""
    match value:
        case None:
            return None
        case bool():
            return "truth", value
        case int() | float():
            return "number", Fraction(value)
    return "text", value


def cell(value: Any, others: str) -> tuple[str, Any] | None:
    """What a cell of CSV is compared as beside values of a kind."""
    if value is None:
        return None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if others == "texts":
        return "text", text
    if others == "truths":
        return ("truth", text == "true") if text in {"true", "false"} else None
    whole = text.removesuffix(".0").removeprefix("-").isdigit() and (text[:1] != "0" or text in {"0", "0.0"})
    if others == "numbers":
        return ("number", Fraction(text)) if whole else None
    try:
        return ("number", Fraction(float(text))) if whole or not text.isdigit() else None
    except ValueError:
        return None


def drawn(draw: random.Random, kind: str, rows: int, more: str) -> list[Any]:
    """Rows with two parts of a key; a few lack the first."""
    ids = [*IDS[kind], None]
    return [{"id": draw.choice(ids), "part": draw.choice("xy"), f"{more}{0}": k} for k in range(rows)]


def dictionary_join(
    mine: Sequence[Any], theirs: Sequence[Any], values: Sequence[float], take: str
) -> tuple[list[float | None], int]:
    """The value for each key, and how many values belong to none: a dictionary of lists."""
    known = defaultdict(list)
    for one, value in zip(theirs, values, strict=True):
        if one is not None:
            known[one].append(value)
    how: dict[str, Callable[[list[float]], float]] = {
        "first": lambda found: found[0],
        "last": lambda found: found[-1],
        "mean": lambda found: fsum(found) / len(found),
    }
    joined = [how[take](known[one]) if one in known else None for one in mine]
    return joined, sum(one is None or one not in {*mine} for one in theirs)


@pytest.mark.parametrize(("mine", "theirs"), some(product(SUFFIXES, SUFFIXES), 3))
def test_rows_get_what_a_join_of_dictionaries_gives_them(mine: str, theirs: str) -> None:
    for seed in range(40 if is_nightly() else 5):
        draw = random.Random(f"{mine} {theirs} {seed}")  # noqa: S311 - tables, not secrets
        kind = draw.choice([*IDS])
        here = drawn(draw, kind, draw.randrange(1, 12), "reward")
        there = drawn(draw, kind, draw.randrange(1, 12), "v")
        both = draw.random() < 0.5
        take = draw.choice(["first", "last", "mean"])
        sides = []
        for name, suffix, rows in (("a", mine, here), ("b", theirs, there)):
            write(f"{name}.{suffix}", rows)
            of = "texts" if {mine, theirs} <= UNTYPED else kind
            ids = [cell(row["id"], of) if suffix in UNTYPED else key(row["id"]) for row in rows]
            sides.append([one and (one, row["part"]) if both else one for one, row in zip(ids, rows, strict=True)])
        mine_keys, their_keys = sides
        wanted, unused = dictionary_join(mine_keys, their_keys, [row["v0"] for row in there], take)
        words = f"--on {'id,part' if both else 'id'} --column v0=v --take {take} --schema none --force"
        done = adv(f"add a.{mine} --from b.{theirs} {words} -o o.{mine} --json")
        if not any(value is not None for value in wanted):
            assert (done.status, f"no row of a.{mine} is in b.{theirs} (by id" in done.err) == (1, True), done
            continue
        assert done.status == 0, (done, here, there)
        found = [row["v"] if row["v"] is not None else None for row in rows_of(f"o.{mine}")]
        assert found == [value if value is None else pytest.approx(value) for value in wanted], (here, there)
        said = json.loads(done.out)["joined"]
        matched = sum(value is not None for value in wanted)
        assert said["matched"] == matched
        assert said["unmatched"] == len(here) - matched
        assert said["unused"] == unused
        assert verify(f"o.{mine}", f"a.{mine}").added == ("v",)


def files(here: list[Any], there: list[Any], suffix: str = "jsonl") -> None:
    write("a.jsonl", here)
    write(f"b.{suffix}", there)


def added(words: str = "", other: str = "b.jsonl") -> Done:
    return adv(f"add a.jsonl --from {other} -o o.jsonl --force {words}")


def values(name: str = "v") -> list[Any]:
    return [row[name] for row in rows_of("o.jsonl")]


# --- keys --------------------------------------------------------------------------------------------------------


def test_a_number_and_its_text_are_different_keys() -> None:
    files([{"id": 1, "reward": 0}, {"id": 2, "reward": 0}], [{"id": "1", "v": 5}, {"id": "2", "v": 6}])
    done = added("--on id")
    cures = "--on takes both names if they differ (HERE=THERE); a number and a text are different keys"
    said = f"error: no row of a.jsonl is in b.jsonl (by id); {cures}\n"
    assert done.status == 1
    assert done.err == said
    files([{"id": 1, "reward": 0}, {"id": "1", "reward": 0}], [{"id": "1", "v": 5}, {"id": 1.0, "v": 6}])
    assert added("--on id").status == 0
    assert values() == [6, 5]


def test_cells_count_as_what_they_are_written_as() -> None:
    write("a.jsonl", [{"id": k, "reward": 0} for k in (7, 8, 9)])
    Path("b.csv").write_text("id,v\n007,1\n8,2\n9.0,3\n9.5,4\n,5\n")
    assert added("--on id", other="b.csv").status == 0
    assert values() == [None, 2, 3]


def test_a_number_and_a_text_of_one_column_are_not_told_apart_by_csv() -> None:
    write("a.jsonl", [{"id": 1, "reward": 0}, {"id": "1", "reward": 0}])
    Path("b.csv").write_text("id,v\n1,5\n")
    done = added("--on id", other="b.csv")
    assert done.status == 1
    assert done.err.startswith("error: 1 is of several types in one input, and the other has none; convert")
    write("a.jsonl", [{"id": 1, "reward": 0}, {"id": "x", "reward": 0}])
    assert added("--on id", other="b.csv").status == 0
    assert values() == [5, None]


def test_keys_are_paths_and_may_have_other_names_there() -> None:
    here = [{"info": {"id": k}, "a=b": "x", "reward": 0} for k in range(3)]
    files(here, [{"trace": {"id": 2 - k}, "a=b": "x", "v": k} for k in range(3)])
    for on in ("info.id=trace.id", "info.id=trace.id,a=b"):
        assert added(f"--on {on} --column v").status == 0
        assert values() == [2, 1, 0]
    files([{"id": k, "reward": 0} for k in range(3)], [{"rid": 2 - k, "v": k} for k in range(3)])
    assert added("--on id=rid").status == 0
    assert values() == [2, 1, 0]
    assert list(rows_of("o.jsonl")[0]) == ["id", "reward", "v"]


@pytest.mark.parametrize(
    "name",
    [
        "^a$",
        "*",
        ".",
        "a.b",
        "x[]",
        "a,b",
        "a=b",
        " sp",
        "\U0001f600",
        "n" * 1000,
        ".advantage",
        "file",
        "0",
        '"q"',
        "-x",
    ],
)
def test_a_key_may_have_any_name(name: str) -> None:
    files(
        [{name: f"k{k}", "reward": 0} for k in range(3)],
        [{name: f"k{2 - k}", "v": k} for k in range(3)],
        "parquet",
    )
    quoted = f'"{name}"' if "," in name or name != name.strip() else name
    assert added(shlex.quote(f"--on={quoted}"), other="b.parquet").status == 0
    assert values() == [2, 1, 0]


def test_the_key_of_the_other_file_can_be_added_by_name() -> None:
    files([{"id": k, "reward": 0} for k in range(2)], [{"id": 1, "v": 5}])
    assert added("--on id --column id=there").status == 0
    assert values("there") == [None, 1]
    done = added()
    said = "a.jsonl already has a column 'id'; --on 'id' matches rows by it; --column v leaves it out; --replace overwrites it\n"
    assert done.err == f"error: {said}"


def test_several_columns_are_one_key() -> None:
    here: list[Any] = [{"id": k // 2, "part": k % 2, "reward": 0} for k in range(6)]
    files(here, [{**{name: row[name] for name in ("id", "part")}, "v": k} for k, row in enumerate(here)][::-1])
    assert added("--on id --on part").status == 0
    assert values() == [0, 1, 2, 3, 4, 5]


def test_two_columns_may_have_to_equal_one_of_the_other_file() -> None:
    here: list[Any] = [{"a": k, "b": 2, "reward": 0} for k in range(3)]
    files(here, [{"x": k, "v": k} for k in range(3)])
    assert added("--on a=x,b=x").status == 0
    assert values() == [None, None, 2]


# --- several for one row -----------------------------------------------------------------------------------------


def test_several_rows_for_one_are_an_error_with_three() -> None:
    files([{"id": f"r{k}", "reward": 0} for k in range(9)], [{"id": f"r{k % 5}", "v": k} for k in range(11)])
    done = added("--on id")
    three = "r0 (3 rows, b.jsonl:1 and b.jsonl:6), r1 (2 rows, b.jsonl:2 and b.jsonl:7), r2 (2 rows, b.jsonl:3 and b.jsonl:8)"
    cures = "--take first|last|mean takes one value of each; more columns in --on tell them apart"
    assert done.status == 1
    assert done.err == f"error: id is the same in several rows of b.jsonl: {three}; {cures}\n"
    for take, wanted in (("first", [0, 1, 2, 3, 4]), ("last", [10, 6, 7, 8, 9]), ("mean", [5, 3.5, 4.5, 5.5, 6.5])):
        done = added(f"--on id --take {take} --json")
        assert values() == [*wanted, None, None, None, None]
        assert json.loads(done.out)["joined"] | {"rows": 0} == {
            "on": {"id": "id"}, "take": take, "rows": 0, "matched": 5, "unmatched": 4, "unmatched_share": 4 / 9,
            "unused": 0, "unused_share": 0.0, "repeated": 5,
        }  # fmt: skip


def test_rows_that_repeat_but_belong_to_none_are_no_error() -> None:
    files([{"id": "a", "reward": 0}], [{"id": "b", "v": 1}, {"id": "b", "v": 2}, {"id": "a", "v": 3}])
    assert added("--on id").status == 0
    assert values() == [3]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("yes", "v is string, which has no mean"),
        (True, "v is boolean"),
        (2**60 + 1, "a mean would round the integers of v"),
    ],
)
def test_what_has_no_mean_is_refused(value: Any, words: str) -> None:
    files([{"id": 1, "reward": 0}], [{"id": 1, "v": value}] * 2)
    done = added("--on id --take mean")
    assert done.status == 1
    assert words in done.err
    assert "--take first|last" in done.err
    assert added("--on id --take last").status == 0
    assert values() == [value]


# --- what is said and refused ------------------------------------------------------------------------------------


def test_counts_are_shown_and_gates_hold_before_anything_is_written() -> None:
    files([{"id": k, "reward": 0} for k in range(4)], [{"id": k, "v": k} for k in (3, 2, 1, 7, 8)])
    said = " ".join(added("--on id").out.split())
    assert "matched 3 of 4 rows by id 1 row without a match: null 2 rows of the other file not used" in said
    Path("o.jsonl").unlink()
    for condition, status in (("unmatched > 0", 3), ("unmatched_share > 0.25", 0), ("unused_share > 0.3", 3)):
        done = added(f"--on id --fail-on '{condition}'")
        assert (done.status, Path("o.jsonl").exists()) == (status, status == 0), done
        Path("o.jsonl").unlink(missing_ok=True)
    assert "no quantity named 'unmatch'; did you mean" in added("--on id --fail-on 'unmatch > 0'").err
    with pytest.raises(GateError, match="unmatched is 1"):
        grpo_cli.add_columns("a.jsonl", "b.jsonl", on="id", fail_on="unmatched > 0")


def test_options_that_say_nothing_together_are_refused() -> None:
    files([{"id": 1, "reward": 0}], [{"id": 1, "v": 2}])
    for words, wrong in (
        ("--take first", "--take has no effect without --on; add --on COL"),
        ("--on id --by-position", "--by-position and --on cannot be combined"),
        ("--on id --column v=id --replace", "the column 'id' is read by this run"),
        ("--on ,", "--on names no column"),
        ("--on =", "--on names no column"),
        ("--on id=id,id=v", "--on matches 'id' with 'id' and 'v'; name one of them"),
    ):
        done = added(words)
        assert (done.status, wrong in done.err) == (2, True), done


@pytest.mark.parametrize(
    ("on", "file"), [("rolout_id", "a"), ("rollout_id=rolout_id", "b"), ("rolout_id=rollout_id", "a")]
)
def test_a_misspelt_key_is_named_before_an_existing_output(on: str, file: str) -> None:
    write("a.jsonl", [{"rollout_id": 1, "reward": 0}])
    for suffix in ("jsonl", "csv", "parquet"):
        write(f"b.{suffix}", [{"rollout_id": 1, "v": 2}])
        Path("o.jsonl").write_text("precious")
        done = adv(f"add a.jsonl --from b.{suffix} --on {on} -o o.jsonl")
        name = "a.jsonl" if file == "a" else f"b.{suffix}"
        assert (done.status, f"{name}: no column 'rolout_id'; did you mean 'rollout_id'?" in done.err) == (1, True), (
            done
        )
        assert Path("o.jsonl").read_text() == "precious"
    done = adv("add a.jsonl --from b.csv --on rollout_id -o o.jsonl")
    assert "o.jsonl exists; add --force" in done.err


def test_a_key_that_only_later_lines_have_is_read() -> None:
    write("a.jsonl", [*({"reward": 0} for _ in range(3000)), {"late": 1, "reward": 0}])
    write("b.jsonl", [{"late": 1, "v": 2}])
    assert added("--on late --column v").status == 0
    assert values() == [None] * 3000 + [2]
    assert "a.jsonl: no column 'lat'" in added("--on lat=late").err


def test_all_other_bytes_stay_and_nulls_replace_old_values_where_no_row_matches() -> None:
    text = '{ "id":1.0, "v" : "old" ,"reward":1e0}\r\n\r\n{"reward": 0,"id":2,"v":"old"}'
    Path("a.jsonl").write_bytes(text.encode())
    write("b.jsonl", [{"id": 2, "v": 5}])
    assert added("--on id --column v=w").status == 0
    wanted = text.replace("1e0}", '1e0,"w":null}').replace('"old"}', '"old","w":5}')
    assert Path("o.jsonl").read_bytes() == wanted.encode()
    assert added("--on id --replace").status == 0
    assert Path("o.jsonl").read_bytes() == text.replace('"old" ', "null ").replace('"old"', "5").encode()


def test_a_file_that_changes_between_its_two_readings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files([{"id": 1, "reward": 0}], [{"id": 1, "v": 2}])
    meanwhile(monkeypatch, lambda: write("b.jsonl", [{"id": 1, "v": 2}]), add, "joined")
    done = added("--on id")
    assert done.status == 1
    assert "b.jsonl: the file changed while it was being read" in done.err
    assert not Path("o.jsonl").exists()


# --- frames and layouts ------------------------------------------------------------------------------------------


def test_frames_are_joined_by_key() -> None:
    source = write("a.parquet", [{"rollout": f"r{k}", "reward": 0.0} for k in range(4)])
    frame = pa.table({"rid": ["r3", "r1", "r9"], "score": [0.3, 0.1, 0.9]})
    out = grpo_cli.add_columns(source, frame, "o.parquet", on={"rollout": "rid"})
    assert pl.read_parquet(out)["score"].to_list() == [None, 0.1, None, 0.3]
    with pytest.raises(
        DataError,
        match=r"rid is the same in several rows of frame: r1 \(2 rows, frame row 1 and frame row 2\); take first\|last\|mean",
    ):
        grpo_cli.add_columns(source, pa.table({"rid": ["r1", "r1"], "s": [1, 2]}), on={"rollout": "rid"})
    with pytest.raises(DataError, match="no column 'rollot'; did you mean 'rollout'"):
        grpo_cli.add_columns(source, frame, on={"rollot": "rid"})
    with pytest.raises(UsageError, match="take has no effect without on"):
        grpo_cli.add_columns(source, frame, take="first")


def test_ids_of_numbers_that_pandas_made_floats_are_the_same_ids() -> None:
    source = write("a.jsonl", [{"id": k, "reward": 0} for k in range(3)])
    frame = pd.DataFrame({"id": [2.0, None, 0.0], "v": [5, 6, 7]})
    out = grpo_cli.add_columns(source, frame, "o.jsonl", on="id")
    assert [row["v"] for row in rows_of(Path(out))] == [7, None, 5]
