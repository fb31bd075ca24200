"""Keys are compared by their own type and value: all pairs of types, in one file and in several, flat and nested."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
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
from tests.support.command import ran
from tests.support.drawn import some
from tests.support.jobs import inspected, look, write
from tests.support.keys import FLAT, FORMS, JSON, SECOND, What, wrapped


def partition(whats: Sequence[Any]) -> list[int]:
    """Groups numbered in order of first appearance, by a plain loop."""
    known = []
    for what in whats:
        if what not in known:
            known.append(what)
    return [known.index(what) for what in whats]


def codes(paths: Sequence[Path]) -> list[int]:
    table = look(*paths, group=("key",), group_within="input").narrow.table
    return table["group"].to_list()


def parquet(path: str, kind: pa.DataType, values: Sequence[Any]) -> Path:
    rewards = np.arange(len(values)) % 2.0
    pq.write_table(pa.table({"key": pa.array(values, kind), "reward": rewards}), path)
    return Path(path)


@pytest.mark.parametrize("form", FORMS)
def test_values_of_every_pair_of_types_are_one_group_only_where_they_are_equal(form: str) -> None:
    made: dict[pa.DataType, list[Any]] = {}
    whats: dict[pa.DataType, list[What]] = {}
    for kind, value, what in FLAT:
        _, inside = FORMS[form](kind, value)
        made.setdefault(kind, []).append(inside)
        whats.setdefault(kind, []).append(what)
    of_type = dict[pa.DataType, pl.Series]()
    for kind, values in made.items():
        dtype, _ = FORMS[form](kind, None)
        whole = pa.array(values, dtype)
        of_type[kind] = pl.Series("key", pl.from_arrow(pa.chunked_array([whole])))
    pairs = combinations_with_replacement(of_type, 2)
    for one, other in some(pairs, 3 if form == "flat" else 17):
        both = cells.joined_keys("key", [of_type[one], of_type[other]])
        found = encode([both], len(both)).codes
        assert found.to_list() == partition(whats[one] + whats[other]), f"{one} and {other}"


@pytest.mark.parametrize("form", FORMS)
def test_files_of_every_type_have_the_groups_of_a_plain_loop(form: str) -> None:
    paths = list[Path]()
    whats = list[Any]()
    for at, (kind, value, what) in enumerate(FLAT):
        if form != "flat" and kind == pa.string_view():  # pyarrow cannot write it there
            continue
        made, inside = FORMS[form](kind, value)
        paths.append(parquet(f"{at:03}.parquet", made, [inside, inside]))
        whats += [wrapped(form, what)] * 2
        feather.write_feather(pq.read_table(paths[-1]), f"{at:03}.arrow")
    in_arrow = [path.with_suffix(".arrow") for path in paths]
    assert codes(in_arrow) == partition(whats)
    for at, (value, what) in enumerate(JSON):
        _, inside = FORMS[form](pa.string(), value)
        paths.append(write(f"{at:03}.jsonl", [{"key": inside, "reward": 0.0}, {"key": inside, "reward": 1.0}]))
        whats += [wrapped(form, what)] * 2
    assert codes(paths) == partition(whats)


@pytest.mark.parametrize("form", ["flat", "list", "struct", "chat"])
def test_keys_of_several_types_in_one_json_file_have_the_groups_of_a_plain_loop(form: str) -> None:
    keys = [FORMS[form](pa.string(), value)[1] for value, _ in JSON]
    whats = [what for _, what in JSON]
    path = write("a.jsonl", [{"key": key, "reward": reward} for reward in (0, 1) for key in keys])
    assert codes([path]) == partition([*whats, *whats])


def test_a_null_field_equals_a_missing_field() -> None:
    with_seed = pa.struct([("q", pa.string()), ("seed", pa.int64())])
    first = parquet("a.parquet", with_seed, [{"q": "x", "seed": None}, {"q": "x", "seed": 1}])
    second = parquet("b.parquet", pa.struct([("q", pa.string())]), [{"q": "x"}, {"q": None}])
    third = Path("c.jsonl")
    third.write_text("""\
{"key": {"seed": null, "q": "x"}, "reward": 1}
{"key": {"seed": 1.0, "q": "x"}, "reward": 1}
{"key": {}, "reward": 1}
""")
    assert codes([first, second, third]) == [0, 1, 0, 2, 0, 1, 2]


def test_numbers_in_the_texts_of_a_key_stay_as_they_are() -> None:
    lines = """\
{"key": [{"role": "user", "content": "1.50"}], "reward": 0}
{"key": [{"role": "user", "content": "1.5"}], "reward": 0}
{"key": [{"role": "user", "content": "[1.50,null,1e-3]"}], "reward": 0}
{"key": [{"role": "user", "content": "[1.5,null,0.001]"}], "reward": 0}
{"key": [{"role": "user", "content": ",1.0"}], "reward": 0}
{"key": [{"role": "user", "content": ",1"}], "reward": 0}
{"key": [{"role": "user", "content": "1.50", "at": {"x": [1.0, null]}}], "reward": 0}
{"key": [{"role": "user", "content": "1.50", "at": {"x": [1, null]}}], "reward": 0}
{"key": [{"role": "user", "content": "1.5", "at": {"x": [1, null]}, "gone": null}], "reward": 0}
"""
    path = Path("a.jsonl")
    path.write_text(lines + lines)
    assert codes([path]) == [0, 1, 2, 3, 4, 5, 6, 6, 7] * 2


def test_a_key_may_be_nested_deeply() -> None:
    deep = '{"key": ' + "[" * 400 + "KEY" + "]" * 400 + ', "reward": 0}\n'
    path = Path("a.jsonl")
    path.write_text(deep.replace("KEY", "1") + deep.replace("KEY", "1.0") + deep.replace("KEY", "2"))
    assert codes([path]) == [0, 0, 1]


def test_null_is_an_item_of_its_own() -> None:
    keys = [[], [None], [None, None], ["null"], [None], []]
    first = parquet("a.parquet", pa.list_(pa.string()), keys)
    second = Path("b.jsonl")
    second.write_text("""\
{"key": [], "reward": 1}
{"key": [null], "reward": 1}
{"key": ["null"], "reward": 1}
{"key": "[]", "reward": 1}
{"key": "[null]", "reward": 1}
""")
    assert codes([first, second]) == [0, 1, 2, 3, 1, 0, 0, 1, 3, 4, 5]


def test_values_of_a_composite_key_do_not_run_together() -> None:
    path = Path("a.jsonl")
    path.write_text(
        r"""
{"x": "a", "y": "b, c", "reward": 0}
{"x": "a, b", "y": "c", "reward": 0}
{"x": "a\",\"b", "y": "c", "reward": 0}
{"x": "a", "y": "b\",\"c", "reward": 0}
""".lstrip()
    )
    found = look(path, group=("x", "y"), singleton="zero").narrow
    assert found.table["group"].to_list() == [0, 1, 2, 3]


def change(now: Inspection, before: Inspection) -> Difference:
    return compared({"before": before, "now": now}).differences[0]


@pytest.mark.parametrize("form", FORMS)
def test_the_keys_of_two_runs_are_compared_by_the_same_rule(form: str) -> None:
    runs = []
    for at, (kind, value, what) in enumerate(FLAT[::11]):
        made, inside = FORMS[form](kind, value)
        keys = pa.array([inside] * 4, made)
        tasks = ["seen", "seen", "both", "both"]
        pq.write_table(pa.table({"key": keys, "task": tasks, "reward": [0.0, 1.0, 0.0, 1.0]}), f"{at}.parquet")
        runs.append((inspected(f"{at}.parquet", group=("key", "task")), what))
    pairs = combinations_with_replacement(runs, 2)
    for (now, one), (before, other) in some(pairs, 1 if form == "flat" else 5):
        if one == other:
            assert change(now, before).prompts == 2
        else:
            with pytest.raises(DataError, match="no prompt is in both runs"):
                change(now, before)


def test_runs_of_a_composite_key_are_not_confused_where_the_words_are_the_same() -> None:
    Path("now.csv").write_text('x,y,reward\na,"b, c",0\na,"b, c",1\np,q,0\np,q,1\n')
    Path("before.csv").write_text('x,y,reward\n"a, b",c,0\n"a, b",c,1\np,q,0\np,q,1\n')
    found = change(inspected("now.csv", group=("x", "y")), inspected("before.csv", group=("x", "y")))
    assert found.prompts == 1
    assert found.only_here == 1
    assert found.only_base == 1


def test_a_run_in_csv_has_the_prompts_of_one_in_json() -> None:
    """CSV has no types: there 1 is all that can be written of the number 1."""
    Path("before.jsonl").write_text('{"key": 1, "reward": 0}\n{"key": 1, "reward": 1}\n{"key": 2, "reward": 0}\n')
    Path("now.csv").write_text("key,reward\n1,1\n1,1\n3,0\n3,1\n")
    found = change(inspected("now.csv", group=("key",)), inspected("before.jsonl", group=("key",)))
    assert found.prompts == 1
    assert found.only_here == 1
    assert found.only_base == 1


# --- CSV -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_only_the_mark_at_the_very_beginning_of_a_file_is_one(
    mark: str, quote: str, suffix: str, separator: str
) -> None:
    text = "key,reward\n'a',1\n'\ufeffa',1\n'a',1\n'\ufeffa',1\n'\ufeff\ufeffa',1\n'\ufeff\ufeffa',1\n"
    path = Path(f"a.{suffix}")
    path.write_text(mark + text.replace(",", separator).replace("'", quote), encoding="utf-8", newline="")
    assert codes([path]) == [0, 1, 0, 1, 2, 2]


ROWS = "\ufeffkey,reward,old\n\ufeffa,1,0.5\na,1,0.5\n\ufeffa,0,0.5\na,0,0.5\n"


@pytest.mark.parametrize("more", ["", '"x"y,1,0.5\n"x"y,0,0.5\n'])  # the second is read record by record
@pytest.mark.parametrize("options", ["", "--column old"])
def test_a_cell_that_begins_with_a_mark_keeps_it(options: str, more: str) -> None:
    before = ROWS + more
    Path("a.csv").write_bytes(before.encode())
    ran(f"compute a.csv --group key {options} {options and '--replace'} -o o.csv")
    out = Path("o.csv").read_bytes().decode().splitlines()
    kept = [line.rpartition(",")[0] for line in out]
    if options:
        assert kept == [line.rpartition(",")[0] for line in before.splitlines()]
    else:
        assert kept == before.splitlines()
    ran(f"verify o.csv --against a.csv {options}")
    if not more:
        ran("select a.csv --group key --where 'mean >= 0' -o s.csv")
        assert Path("s.csv").read_text() == before


def test_times_and_bytes_are_written_to_csv_in_full() -> None:
    count = SECOND * 10**9 + 123_456_789
    time = pa.timestamp("ns")
    zoned = pa.list_(pa.timestamp("ns", "Europe/Berlin"))
    gone = pa.struct([("for", pa.duration("ns")), ("x", pa.binary()), ("y", pa.int8()), ("n", pa.float64())])
    inside = {"for": 1, "x": b"\xff", "y": None, "n": 1.0}
    table = pa.table({"id": [1, 1], "reward": [0.0, 1.0], "flat": pa.array([count, None], time)})
    table = table.append_column("zoned", pa.array([[count], None], zoned))
    table = table.append_column("time", pa.array([[1], []], pa.list_(pa.time64("ns"))))
    table = table.append_column("gone", pa.array([inside, inside], gone))
    table = table.append_column("fixed", pa.array([[count], None], pa.list_(time, 1)))
    pq.write_table(table, "a.parquet")
    ran("compute a.parquet --group id -o o.csv")
    written = pl.read_csv("o.csv", infer_schema=False).drop("reward", "advantage")
    first, second = written.rows()
    assert first == (
        "1",
        "2024-01-01T00:00:00.123456789",
        '["2024-01-01T00:00:00.123456789Z"]',
        '["00:00:00.000000001"]',
        '{"for":"PT0.000000001S","n":1.0,"x":"/w==","y":null}',
        '["2024-01-01T00:00:00.123456789"]',
    )
    assert second == ("1", None, None, "[]", first[4], None)
