"""Keys are compared by their own type and value: all pairs of types, in one file and in several, flat and nested."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from grpo_cli.errors import DataError
from grpo_cli.read.group_keys import encode
from grpo_cli.stats.inspection import Inspection
from grpo_cli.stats.runs import Difference, compared
from grpo_cli.values import cells
from tests.support.command import adv
from tests.support.drawn import some
from tests.support.jobs import inspected, look, write
from tests.support.keys import FLAT, FORMS, JSON, SECOND, What, wrapped

NANOSECONDS = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns"), pa.time64("ns"))


def column(kind: pa.DataType, values: Sequence[Any]) -> pl.Series:
    return pl.Series("key", pl.from_arrow(pa.chunked_array([pa.array(values, kind)])))


def partition(whats: Sequence[Any]) -> list[int]:
    """Groups numbered in order of first appearance, by a plain loop."""
    known: list[Any] = []
    for what in whats:
        if what not in known:
            known.append(what)
    return [known.index(what) for what in whats]


def codes(paths: Sequence[Path]) -> list[int]:
    table = look(*paths, group=("key",), group_within="input").narrow.table
    return table["group"].to_list()


def parquet(path: Path, kind: pa.DataType, values: Sequence[Any]) -> Path:
    pq.write_table(
        pa.table({"key": pa.array(values, kind), "reward": [float(at % 2) for at in range(len(values))]}), path
    )
    return path


@pytest.mark.parametrize("form", FORMS)
def test_values_of_every_pair_of_types_are_one_group_only_where_they_are_equal(form: str) -> None:
    of_type: dict[pa.DataType, tuple[pl.Series, list[What]]] = {}
    for kind in dict.fromkeys(kind for kind, _, _ in FLAT):
        there = [(FORMS[form](kind, value), what) for known, value, what in FLAT if known == kind]
        of_type[kind] = column(there[0][0][0], [value for (_, value), _ in there]), [what for _, what in there]
    pairs = combinations_with_replacement(of_type.items(), 2)
    for (kind, (keys, whats)), (other, (more, others)) in some(pairs, 3 if form == "flat" else 17):
        both = cells.joined_keys("key", [keys, more])
        assert encode([both], len(both)).codes.to_list() == partition([*whats, *others]), f"{kind} and {other}"


@pytest.mark.parametrize("form", FORMS)
def test_files_of_every_type_have_the_groups_of_a_plain_loop(form: str) -> None:
    paths, whats = [], []
    for at, (kind, value, what) in enumerate(FLAT):
        if form != "flat" and kind == pa.string_view():  # pyarrow cannot write it there
            continue
        made, made_value = FORMS[form](kind, value)
        paths.append(parquet(Path(f"{at:03}.parquet"), made, [made_value] * 2))
        whats += [wrapped(form, what)] * 2
    for at, (value, what) in enumerate(JSON):
        _, inside = FORMS[form](pa.string(), value)
        paths.append(write(f"{at:03}.jsonl", [{"key": inside, "reward": reward} for reward in (0.0, 1.0)]))
        whats += [wrapped(form, what)] * 2
    order = {path: whats[2 * at : 2 * at + 2] for at, path in enumerate(paths)}
    found = codes(paths)
    assert found == partition([what for path in paths for what in order[path]])


@pytest.mark.parametrize("form", ["flat", "list", "struct", "chat"])
def test_keys_of_several_types_in_one_json_file_have_the_groups_of_a_plain_loop(form: str) -> None:
    there = [(FORMS[form](pa.string(), value)[1], what) for value, what in JSON] * 2
    path = write("a.jsonl", [{"key": value, "reward": float(at % 2)} for at, (value, _) in enumerate(there)])
    assert codes([path]) == partition([what for _, what in there])


@pytest.mark.parametrize("form", ["flat", "list", "struct", "chat"])
@pytest.mark.parametrize("kind", NANOSECONDS, ids=str)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_keys_that_differ_by_a_nanosecond_are_two_groups(suffix: str, kind: pa.DataType, form: str) -> None:
    counts = [10**12, 10**12 + 1, 10**12 + 1, 10**12]
    made = FORMS[form](kind, 0)[0]
    table = pa.table(
        {"key": pa.array([FORMS[form](kind, count)[1] for count in counts], made), "reward": [0.0, 0.0, 1.0, 1.0]}
    )
    path = Path(f"a.{suffix}")
    pq.write_table(table, path) if suffix == "parquet" else feather.write_feather(table, path)
    assert codes([path]) == [0, 1, 1, 0]


def test_a_null_field_equals_a_missing_field() -> None:
    with_seed = pa.struct([("q", pa.string()), ("seed", pa.int64())])
    paths = [
        parquet(Path("a.parquet"), with_seed, [{"q": "x", "seed": None}, {"q": "x", "seed": 1}]),
        parquet(Path("b.parquet"), pa.struct([("q", pa.string())]), [{"q": "x"}, {"q": None}]),
        write(
            "c.jsonl",
            [{"key": key, "reward": 1} for key in ({"seed": None, "q": "x"}, {"seed": 1.0, "q": "x"}, {})],
        ),
    ]
    assert codes(paths) == [0, 1, 0, 2, 0, 1, 2]


def test_numbers_in_the_texts_of_a_key_stay_as_they_are() -> None:
    def chat(text: str, **more: Any) -> list[Any]:
        return [{"role": "user", "content": text, **more}]

    keys = [
        chat("1.50"), chat("1.5"), chat("[1.50,null,1e-3]"), chat("[1.5,null,0.001]"), chat(",1.0"), chat(",1"),
        chat("1.50", at={"x": [1.0, None]}), chat("1.50", at={"x": [1, None]}), chat("1.5", at={"x": [1, None]}, gone=None),
    ]  # fmt: skip
    path = write("a.jsonl", [{"key": key, "reward": at % 2} for at, key in enumerate(keys * 2)])
    assert codes([path]) == [0, 1, 2, 3, 4, 5, 6, 6, 7] * 2


def test_a_key_may_be_nested_deeply() -> None:
    deep = "[" * 400 + "%s" + "]" * 400
    path = Path("a.jsonl")
    path.write_text(
        "".join(f'{{"key": {deep % number}, "reward": {at}}}\n' for at, number in enumerate(("1", "1.0", "2")))
    )
    assert codes([path]) == [0, 0, 1]


def test_null_is_an_item_of_its_own() -> None:
    keys = [[], [None], [None, None], ["null"], [None], []]
    path = parquet(Path("a.parquet"), pa.list_(pa.string()), keys)
    other = write("b.jsonl", [{"key": key, "reward": at % 2} for at, key in enumerate([*keys, "[]", "[null]"])])
    assert codes([path, other]) == [0, 1, 2, 3, 1, 0, 0, 1, 2, 3, 1, 0, 4, 5]


def test_values_of_a_composite_key_do_not_run_together() -> None:
    rows = [("a", "b, c"), ("a, b", "c"), ('a","b', "c"), ("a", 'b","c')]
    path = write("a.jsonl", [{"x": x, "y": y, "reward": at % 2} for at, (x, y) in enumerate(rows * 2)])
    assert look(path, group=("x", "y")).narrow.table["group"].to_list() == [0, 1, 2, 3] * 2


def change(now: Inspection, before: Inspection) -> Difference:
    return compared({"before": before, "now": now}).differences[0]


@pytest.mark.parametrize("form", FORMS)
def test_the_keys_of_two_runs_are_compared_by_the_same_rule(form: str) -> None:
    runs = []
    for at, (kind, value, what) in enumerate(FLAT[::11]):
        made, inside = FORMS[form](kind, value)
        table = {
            "key": pa.array([inside] * 4, made),
            "task": ["seen", "seen", "both", "both"],
            "reward": [0.0, 1.0, 0.0, 1.0],
        }
        pq.write_table(pa.table(table), f"{at}.parquet")
        runs.append((inspected(f"{at}.parquet", group=("key", "task")), what))
    for (now, one), (before, other) in some(combinations_with_replacement(runs, 2), 1 if form == "flat" else 5):
        if one == other:
            assert change(now, before).prompts == 2
        else:
            with pytest.raises(DataError, match="no prompt is in both runs"):
                change(now, before)


def test_runs_of_a_composite_key_are_not_confused_where_the_words_are_the_same() -> None:
    def run(name: str, pairs: Sequence[tuple[Any, Any]]) -> Any:
        rows = [{"x": x, "y": y, "reward": reward} for x, y in pairs for reward in (0, 1)]
        return inspected(write(name, rows), group=("x", "y"))

    found = change(run("now.jsonl", [("a", "b, c"), ("p", "q")]), run("before.jsonl", [("a, b", "c"), ("p", "q")]))
    assert (found.prompts, found.only_here, found.only_base) == (1, 1, 1)


def test_a_run_in_csv_has_the_prompts_of_one_in_json() -> None:
    """CSV has no types: there 1 is all that can be written of the number 1."""
    before = write("before.jsonl", [{"key": key, "reward": reward} for key in (1, 2) for reward in (0, 1)])
    now = Path("now.csv")
    now.write_text("key,reward\n1,1\n1,1\n3,0\n3,1\n")
    found = change(inspected(now, group=("key",)), inspected(before, group=("key",)))
    assert (found.prompts, found.only_here, found.only_base) == (1, 1, 1)


# --- CSV -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_only_the_mark_at_the_very_beginning_of_a_file_is_one(
    mark: str, quote: str, separator: str, tmp_path: Path
) -> None:
    keys = ["a", "\ufeffa", "a", "\ufeffa", "\ufeff\ufeffa", "\ufeff\ufeffa"]
    path = tmp_path / ("a.csv" if separator == "," else "a.tsv")
    lines = [f"key{separator}reward", *(f"{quote}{key}{quote}{separator}{at % 2}" for at, key in enumerate(keys))]
    path.write_text(mark + "\n".join(lines) + "\n", encoding="utf-8", newline="")
    assert codes([path]) == [0, 1, 0, 1, 2, 2]


@pytest.mark.parametrize("ragged", ["", '"x"y'])  # the second is read record by record
@pytest.mark.parametrize("options", [(), ("--replace", "--column", "old")])
def test_a_cell_that_begins_with_a_mark_keeps_it(options: Sequence[str], ragged: str) -> None:
    path = Path("a.csv")
    rows = ["\ufeffa,1,0.5", "a,1,0.5", "\ufeffa,0,0.5", "a,0,0.5", f"{ragged},1,0.5", f"{ragged},0,0.5"][
        : 6 if ragged else 4
    ]
    path.write_bytes("\n".join(["\ufeffkey,reward,old", *rows, ""]).encode())
    done = adv(f"compute {path} --group key", *options, "-o", "o.csv")
    assert done.status == 0, done.err
    out = Path("o.csv").read_bytes().decode().splitlines()
    kept = [line.rsplit(",", 1)[0] for line in out]
    assert kept == (
        [row.rsplit(",", 1)[0] for row in ["\ufeffkey,reward,old", *rows]]
        if options
        else ["\ufeffkey,reward,old", *rows]
    )
    assert adv(f"verify o.csv --against {path}", *options[1:]).status == 0
    done = adv(f"select {path} --group key --where 'mean >= 0' --copies 1 -o s.csv")
    if done.status == 0:
        assert Path("s.csv").read_bytes() == path.read_bytes()


def test_times_and_bytes_are_written_to_csv_in_full() -> None:
    count = SECOND * 10**9 + 123_456_789
    table = {
        "id": pa.array([1, 1]), "reward": pa.array([0.0, 1.0]),
        "flat": pa.array([count, None], pa.timestamp("ns")),
        "zoned": pa.array([[count], None], pa.list_(pa.timestamp("ns", "Europe/Berlin"))),
        "time": pa.array([[1], []], pa.list_(pa.time64("ns"))),
        "gone": pa.array([{"for": 1, "x": b"\xff", "y": None, "n": 1.0}] * 2,
                         pa.struct([("for", pa.duration("ns")), ("x", pa.binary()), ("y", pa.int8()), ("n", pa.float64())])),
        "fixed": pa.array([[count], None], pa.list_(pa.timestamp("ns"), 1)),
    }  # fmt: skip
    pq.write_table(pa.table(table), "a.parquet")
    assert adv("compute a.parquet --group id -o o.csv").status == 0
    first, second = pl.read_csv("o.csv", infer_schema=False).to_dicts()
    assert first["flat"] == "2024-01-01T00:00:00.123456789"
    assert json.loads(first["zoned"]) == ["2024-01-01T00:00:00.123456789Z"]
    assert json.loads(first["time"]) == ["00:00:00.000000001"] and json.loads(second["time"]) == []
    assert first["gone"] == '{"for":"PT0.000000001S","n":1.0,"x":"/w==","y":null}'
    assert json.loads(first["fixed"]) == ["2024-01-01T00:00:00.123456789"]
    assert second["zoned"] is None and second["flat"] is None
