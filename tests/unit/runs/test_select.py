"""`select`: which groups and rows stay, and that they stay as they are."""

from __future__ import annotations

import gzip
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.choosing.groups import Pick
from grpo_cli.choosing.rows import pick_rows
from grpo_cli.errors import DataError
from grpo_cli.options.commands import COMMANDS
from tests.support import jobs
from tests.support.command import adv, facts_of, files, ran
from tests.support.drawn import some
from tests.support.jobs import rows_of
from tests.support.schema_files import WRITERS

LINES = """\
{"prompt_id": "half", "i": 0, "reward": 0}
{"prompt_id": "half", "i": 1, "reward": 1}
{"prompt_id": "half", "i": 2, "reward": 0}
{"prompt_id": "half", "i": 3, "reward": 1}
{"prompt_id": "never", "i": 0, "reward": 0}
{"prompt_id": "never", "i": 1, "reward": 0}
{"prompt_id": "always", "i": 0, "reward": 1}
{"prompt_id": "always", "i": 1, "reward": 1}
{"prompt_id": "always", "i": 2, "reward": 1}
{"prompt_id": "rare", "i": 0, "reward": 0}
{"prompt_id": "rare", "i": 1, "reward": 0}
{"prompt_id": "rare", "i": 2, "reward": 0}
{"prompt_id": "rare", "i": 3, "reward": 0}
{"prompt_id": "rare", "i": 4, "reward": 1}
{"prompt_id": "alone", "i": 0, "reward": 1}
"""


def left(flags: str, lines: str = LINES) -> tuple[str, Any]:
    """The lines that are left of a file, and what was said."""
    Path("in.jsonl").write_text(lines)
    facts = facts_of(f"select in.jsonl -o out.jsonl --force {flags}")
    return Path("out.jsonl").read_text(), facts


def keys(lines: str) -> list[str]:
    return list(dict.fromkeys(json.loads(line)["prompt_id"] for line in lines.splitlines()))


# --- groups ------------------------------------------------------------------------------------------------

CONDITIONS = """0.1 <= mean <= 0.9 and std > 0 | half rare
mean == 1 or size > 4 | always rare alone
not constant == 1 | half rare alone
constant == 0 and solve_rate < 0.5 | rare
prompt_id == 'rare' | rare
prompt_id != 'rare' and spread > 0.2 | half
max == spread | half never rare
"""


@pytest.mark.parametrize("case", CONDITIONS.splitlines())
def test_the_groups_that_stay_are_those_for_which_the_condition_holds(case: str) -> None:
    where, wanted = case.split(" | ")
    lines, facts = left(f'--where "{where}"')
    assert keys(lines) == wanted.split()
    assert lines == "".join(line for line in LINES.splitlines(keepends=True) if keys(line)[0] in wanted.split())
    assert facts["kept_groups"] == len(keys(lines))
    assert facts["kept_rows"] == lines.count("\n")
    dropped = pl.DataFrame(facts["dropped"]).sum()
    assert dropped["groups"].item() == 5 - facts["kept_groups"]
    assert dropped["rows"].item() == 15 - facts["kept_rows"]


def test_each_group_is_dropped_for_the_first_reason_that_applies() -> None:
    _, facts = left("--where '0.1 <= mean <= 0.9 and std > 0.5' --limit 1")
    assert facts["dropped"] == [
        {"reason": "0.1 <= mean is false", "groups": 1, "rows": 2, "keys": ["never"]},
        {"reason": "mean <= 0.9 is false", "groups": 2, "rows": 4, "keys": ["always", "alone"]},
        {"reason": "std > 0.5 is false", "groups": 1, "rows": 5, "keys": ["rare"]},
    ]
    assert facts["zero_variance_share"] == 0.5
    assert facts["kept_zero_variance_share"] == 0.0


def test_a_limit_keeps_the_first_groups_or_with_a_seed_a_random_sample() -> None:
    assert keys(left("--limit 2")[0]) == ["half", "never"]
    drawn = [keys(left(f"--limit 2 --seed {seed}")[0]) for seed in range(12)]
    assert len({*map(tuple, drawn)}) > 3
    order = keys(LINES)
    for pair in drawn:
        assert pair == sorted(pair, key=order.index)
    assert keys(left("--limit 2 --seed 5")[0]) == drawn[5]


def test_rows_without_a_reward_stay_with_their_group() -> None:
    a = '{"prompt_id": "a", "reward": 0}\n{"prompt_id": "a", "reward": null}\n{"prompt_id": "a", "reward": 1}\n'
    b = '{"prompt_id": "b", "reward": null}\n{"prompt_id": "b", "reward": null}\n'
    assert left("--where 'unscorable > 0 and scored == 2'", a + b)[0] == a
    assert left("--where 'mean <= 1'", a + b)[0] == a  # no mean is in no range


def test_the_length_is_a_fact_too() -> None:
    Path("a.csv").write_text("prompt_id,reward,tokens\na,1,1\na,1,3\nb,1,9\nb,1,9\n")
    done = ran("select a.csv --where 'length < 3' --length-column tokens -o - -q")
    assert done.out == "prompt_id,reward,tokens\na,1,1\na,1,3\n"


# --- rows --------------------------------------------------------------------------------------------------

REWARDS = st.lists(st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=7), min_size=1, max_size=5)


def chosen(groups: list[list[float]], most: int, how: Pick, seed: int = 0) -> list[list[float]]:
    """The rewards that are kept of each group."""
    codes = np.array([k for k, rewards in enumerate(groups) for _ in rewards], dtype=np.uint32)
    values = np.array([r for rewards in groups for r in rewards])
    mask = pick_rows(codes, values, most, how, seed)
    return [sorted(values[mask & (codes == k)].tolist()) for k in range(len(groups))]


@given(groups=REWARDS, most=st.integers(1, 5))
def test_the_best_and_the_worst_are_the_ends_of_the_sorted_rewards(groups: list[list[float]], most: int) -> None:
    assert chosen(groups, most, "best") == [sorted(rewards)[-most:] for rewards in groups]
    assert chosen(groups, most, "worst") == [sorted(rewards)[:most] for rewards in groups]


def test_of_splits_that_differ_by_rounding_the_first_is_taken() -> None:
    """0 0 .2 1 1 and its mirror image 0 0 .8 1 1 have one variance, and sums that differ in the last bit."""
    rewards = np.array([0.0, 0.0, 0.2, 0.3, 0.7, 0.8, 1.0, 1.0])
    mask = pick_rows(np.zeros(8, np.int64), rewards, 5, "spread", 0)
    assert np.flatnonzero(mask).tolist() == [0, 1, 2, 6, 7]


@given(groups=REWARDS, most=st.integers(1, 5))
def test_spread_keeps_the_rows_with_the_largest_variance(groups: list[list[float]], most: int) -> None:
    for rewards, kept in zip(groups, chosen(groups, most, "spread"), strict=True):
        assert len(kept) == min(most, len(rewards))
        best = max(statistics.pvariance(some) for some in itertools.combinations(rewards, len(kept)))
        assert statistics.pvariance(kept) == pytest.approx(best)


def test_every_row_has_the_same_chance_and_the_seed_decides() -> None:
    codes = np.zeros(4, dtype=np.uint32)
    values = np.arange(4.0)
    drawn = [pick_rows(codes, values, 2, "random", seed) for seed in range(400)]
    assert {int(mask.sum()) for mask in drawn} == {2}
    times = np.sum(drawn, axis=0)
    assert np.abs(times - 200).max() < 60
    assert np.array_equal(pick_rows(codes, values, 2, "random", 7), drawn[7])


def test_rows_without_a_reward_are_never_picked() -> None:
    lines = """\
{"prompt_id": "a", "reward": null}
{"prompt_id": "a", "reward": 0.5}
{"prompt_id": "a", "reward": null}
{"prompt_id": "a", "reward": 0.25}
"""
    kept, facts = left("--per-group 3 --pick best", lines)
    assert kept == '{"prompt_id": "a", "reward": 0.5}\n{"prompt_id": "a", "reward": 0.25}\n'
    assert facts["dropped"] == [{"reason": "--per-group 3 (best)", "rows": 2}]


@pytest.mark.parametrize("pick", ["best", "worst"])
def test_of_equal_rewards_the_earlier_row_stays(pick: str) -> None:
    kept, _ = left(f"--where 'constant == 1' --per-group 1 --pick {pick}")
    assert kept == '{"prompt_id": "never", "i": 0, "reward": 0}\n{"prompt_id": "always", "i": 0, "reward": 1}\n'


# --- what is written ---------------------------------------------------------------------------------------

ODD = (
    b'\xef\xbb\xbf{"reward":1.0, "prompt_id":"a","x":"\\u00e9 \xc3\xa9","n":1e-0}\r\n'
    b'\r\n'
    b'{"prompt_id":"b","reward":0,"extra":{"deep":[1,2.50]}}\n'
    b'{"prompt_id":"b" ,"reward":1.00}\n'
    b'{"prompt_id":"a","reward":NaN,"reward2":null}'
)  # fmt: skip


def test_a_line_of_json_keeps_every_byte() -> None:
    Path("in.jsonl").write_bytes(ODD)
    ran("select in.jsonl --where 'size == 2 and scored == 2' -o out.jsonl")
    lines = ODD.splitlines(keepends=True)
    assert Path("out.jsonl").read_bytes().removeprefix(b"\xef\xbb\xbf") == b"".join(lines[2:4])


def test_if_all_rows_are_kept_the_file_is_the_same() -> None:
    csv = b'prompt_id,"reward"\r\na, 1.0\r\n'
    for name, data in {"in.jsonl": ODD, "in.csv": csv, "in.jsonl.gz": gzip.compress(ODD, mtime=0)}.items():
        Path(name).write_bytes(data)
        ran(f"select {name} --limit 9 -o out.{name}")
        assert Path(f"out.{name}").read_bytes() == data


def test_a_record_of_csv_keeps_its_quotes() -> None:
    Path("in.csv").write_bytes(b'prompt_id,reward,"a b"\na,1,"x, ""y"""\nb,0,\nb,1.50,z\n')
    where = "std > 0 or prompt_id == 'a'"
    done = ran(f'select in.csv --where "{where}" --per-group 1 --pick best -o - -q')
    assert done.out == 'prompt_id,reward,"a b"\na,1,"x, ""y"""\nb,1.50,z\n'


@pytest.mark.parametrize(
    ("suffix", "write", "read"),
    [("parquet", pl.DataFrame.write_parquet, pl.read_parquet), ("arrow", pl.DataFrame.write_ipc, pl.read_ipc)],
)
def test_the_rows_of_a_table_keep_their_values_and_types(suffix: str, write: Any, read: Any) -> None:
    more = {"tags": pl.lit(["a", None]), "kind": pl.lit("x").cast(pl.Categorical), "raw": pl.lit(b"\x00")}
    frame = pl.read_ndjson(LINES.encode()).with_columns(pl.col("reward").cast(pl.Float32), **more)
    source = f"in.{suffix}"
    write(frame, source)
    facts = facts_of(f"select {source} --where 'std > 0' -o out.{suffix}")
    assert facts["warnings"] == []  # rows that are left out were meant to be
    kept = frame.filter(pl.col("prompt_id").is_in(["half", "rare"]))
    found = read(f"out.{suffix}")
    assert found.equals(kept)
    assert found.schema == kept.schema
    if suffix == "parquet":
        assert pq.read_schema("out.parquet").equals(pq.read_schema(source))


def test_shards_stay_shards_and_one_may_be_left_empty() -> None:
    Path("in").mkdir()
    for shard in ("0", "1", "2"):
        Path(f"in/{shard}.jsonl").write_text(LINES.replace('_id": "', f'_id": "{shard}'))
    where = "prompt_id == '0half' or prompt_id == '2half'"
    facts = facts_of(f'select in --where "{where}" -o out/')
    half = LINES.splitlines(keepends=True)[:4]
    for shard, kept in {"0": 4, "1": 0, "2": 4}.items():
        lines = Path(f"out/{shard}.jsonl").read_text()
        assert lines == "".join(half[:kept]).replace("half", f"{shard}half")
    assert facts["kept_rows"] == 8


def test_a_warning_says_that_no_row_is_left() -> None:
    lines, facts = left("--where 'mean > 7'")
    assert lines == ""
    assert facts["kept_groups"] == 0
    assert facts["warnings"] == ["no row is left"]


def test_without_a_name_the_output_is_beside_the_input_and_is_not_read_as_one() -> None:
    Path("in.jsonl").write_text(LINES)
    assert facts_of("select in.jsonl --limit 1")["outputs"] == ["in.selected.jsonl"]
    again = facts_of("select . --limit 1 --force")
    assert again["inputs"] == ["in.jsonl"]
    assert "skipped 1 file" in again["warnings"][0]


MEANINGLESS = """| nothing says what to keep
--limit 0 | --limit cannot be 0
--per-group=-1 | --per-group cannot be -1
--where mean | compares nothing; a condition compares facts of a group with numbers, as in '0.1 <= mean
--where 'prompt_id > 3' | compares values of different types; prompt_id is a text
--limit 1 --seed=-1 | --seed cannot be -1
--where 'sdt > 0' | did you mean 'std'
--top 99 --by sdt | did you mean 'std'
"""


@pytest.mark.parametrize("case", MEANINGLESS.splitlines())
def test_meaningless_options_are_refused(case: str) -> None:
    """The last one although there are fewer groups than 99."""
    flags, says = case.split("| ")
    Path("in.jsonl").write_text(LINES)
    done = adv(f"select in.jsonl {flags}")
    assert done.status == 2
    assert says in done.err
    assert [*files()] == ["in.jsonl"]


# --- layouts of other tools --------------------------------------------------------------------------------


WIDE = """\
{"uuid": "a", "problem": "a?", "generations": ["a one", "a two"], "correctness_math_verify": [true, false], "is_reasoning_complete": [true, true]}
{"uuid": "b", "problem": "b?", "generations": ["b one", "b two"], "correctness_math_verify": [true, true], "is_reasoning_complete": [true, true]}
{"uuid": "c", "problem": "c?", "generations": ["c one", "c two"], "correctness_math_verify": [false, true], "is_reasoning_complete": [true, true]}
"""


def test_a_line_with_a_whole_group_stays_as_it_is_and_one_that_loses_some_of_its_rows_becomes_rows() -> None:
    Path("wide.jsonl").write_text(WIDE)
    facts = facts_of("select wide.jsonl --where 'std > 0' -o whole.jsonl")
    assert facts["rows"] == 6
    assert facts["kept_rows"] == 4
    a, _, c = WIDE.splitlines(keepends=True)
    assert Path("whole.jsonl").read_text() == a + c
    facts = facts_of("select wide.jsonl --per-group 1 --pick best -o rows.jsonl")
    assert [row["generations"] for row in rows_of("rows.jsonl")] == ["a one", "b one", "c two"]
    assert "written as one line per row" in facts["warnings"][-1]


@pytest.mark.parametrize("name", some(sorted(WRITERS), 2))
def test_a_group_of_every_known_layout_can_be_chosen(name: str, tmp_path: Path) -> None:
    written = WRITERS[name](tmp_path)
    source = written.path
    target = tmp_path / "chosen" / source.name
    target.parent.mkdir()
    flags = {name: value for name, value in written.flags.items() if name in COMMANDS["select"].options}
    facts = jobs.selected(source, **flags, limit=1, output=f"{target}/" if source.is_dir() else str(target))
    assert facts["kept_groups"] == 1
    assert facts["kept_rows"] == written.sizes[0]
    assert facts["groups"] == len(written.sizes)


def test_runs_of_the_same_prompts_are_pooled() -> None:
    """pass@8 is a fact of eight rows, and each run has four."""
    Path("a.csv").write_text("prompt_id,reward\n0,0\n0,0\n0,0\n0,0\n1,0\n1,0\n1,0\n1,0\n")
    Path("b.csv").write_text("prompt_id,reward\n0,0\n0,0\n0,0\n0,0\n1,1\n1,1\n1,0\n1,0\n")
    done = ran("select a.csv b.csv --group-within input --where 'pass@8 >= 0.5' -o out/ -q")
    assert done.err == ""
    assert Path("out/a.csv").read_text() == "prompt_id,reward\n1,0\n1,0\n1,0\n1,0\n"
    assert Path("out/b.csv").read_text() == "prompt_id,reward\n1,1\n1,1\n1,0\n1,0\n"


# --- several inputs, one file ------------------------------------------------------------------------------------


def _folder() -> None:
    """Two steps; the first file ends without a line end, and its lines are written in an odd way."""
    Path("run").mkdir()
    lines = b'{"prompt_id":"a",  "reward":0}\n{"prompt_id":"b","reward":1}\n{"reward":1.0, "prompt_id":"a"}'
    Path("run/step_1.jsonl").write_bytes(lines)
    lines = b'{"prompt_id":"c","reward":0,"text":"x"}\n{"prompt_id":"d","reward":2}\n{"prompt_id":"c","reward":3}\n'
    Path("run/step_2.jsonl.gz").write_bytes(gzip.compress(lines))


@pytest.mark.parametrize("to", ["-", "one.jsonl", "one.jsonl.gz"])
def test_the_lines_of_a_folder_go_into_one_file_unchanged(to: str) -> None:
    _folder()
    done = ran(f"select run --where 'std > 0' -o {to} -q")
    assert done.err == ""
    written = done.out.encode() if to == "-" else Path(to).read_bytes()
    if to.endswith(".gz"):
        written = gzip.decompress(written)
    wanted = """\
{"prompt_id":"a",  "reward":0}
{"reward":1.0, "prompt_id":"a"}
{"prompt_id":"c","reward":0,"text":"x"}
{"prompt_id":"c","reward":3}
"""
    assert written.decode() == wanted


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "json"])
def test_other_formats_have_the_columns_of_all_files_with_their_types(suffix: str) -> None:
    _folder()
    assert facts_of(f"select run --where 'std > 0' -o one.{suffix}")["outputs"] == [f"one.{suffix}"]
    ran(f"select one.{suffix} --limit 9 -o back.jsonl -q")
    rows = rows_of("back.jsonl")
    assert [row["prompt_id"] for row in rows] == ["a", "a", "c", "c"]
    assert [float(row["reward"]) for row in rows] == [0, 1, 0, 3]
    assert [row.get("text") or None for row in rows] == [None, None, "x", None]


def test_columns_of_types_that_do_not_go_together_are_an_error_and_nothing_is_written() -> None:
    pl.DataFrame({"prompt_id": [1, 1], "reward": [0.0, 1.0], "x": [1, 2]}).write_parquet("1.parquet")
    pl.DataFrame({"prompt_id": [2, 2], "reward": [0.0, 1.0], "x": [{"a": 1}, None]}).write_parquet("2.parquet")
    done = adv("select 1.parquet 2.parquet --limit 9 -o one.parquet")
    assert done.status == 1
    assert not Path("one.parquet").exists()
    assert "x is Int64 and Struct({'a': Int64}) in different inputs; give -o FILE.jsonl" in done.err
    ran("select 1.parquet 2.parquet --limit 9 -o one.jsonl -q")


def in_two_files(case: str) -> list[Any]:
    """The values of a column, of which two files have two each, of these types."""
    both = []
    for step, side in enumerate(case.split(" | ")):
        dtype, *texts = side.split()
        values = pl.Series(texts).cast(getattr(pl, dtype), strict=False)
        pl.DataFrame({"prompt_id": [step] * 2, "reward": [0.0, 1.0], "x": values}).write_ipc(f"{step}.arrow")
        both += values.to_list()
    return both


@pytest.mark.parametrize(
    "case",
    [
        "Int64 1 9007199254740992 | Float64 0.5 null",
        "Float32 null 0.1 | Float64 0.1 1e300",
        "Int64 1 1099511627776 | Float32 0.5 2.0",
    ],
)
def test_numbers_of_two_types_keep_their_values_in_one_file(case: str) -> None:
    both = in_two_files(case)
    assert ran("select . --limit 9 -o one.arrow -q").err == ""
    whole = pl.read_ipc("one.arrow")["x"]
    assert whole.dtype == pl.Float64
    assert whole.to_list() == both
    assert grpo_cli.select(Path("[01].arrow"), limit=9).frame["x"].to_list() == both


@pytest.mark.parametrize(
    "case",
    [
        "Int64 1 9007199254740993 | Float64 0.5 null",
        "Int64 1 9223372036854775807 | Float64 0.5 null",
        "Int64 1 -1 | UInt64 1 18446744073709551615",
    ],
)
def test_numbers_that_no_type_holds_are_an_error(case: str, tmp_path: Path) -> None:
    both = in_two_files(case)
    done = adv("select . --limit 9 -o one.arrow -q")
    assert done.status == 1
    assert not Path("one.arrow").exists()
    assert "in different inputs, and no type of number holds all its values; give -o FILE.jsonl" in done.err
    if "UInt64" in case:  # a frame has integers of 128 bits
        assert grpo_cli.select(tmp_path, limit=9).frame["x"].to_list() == both
    else:
        with pytest.raises(DataError, match="no type of number holds all its values"):
            grpo_cli.select(tmp_path, limit=9)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ('{"a": 1}', '{"b": 1}', [{"a": 1, "b": None}, {"a": None, "b": 1}]),
        ("[1]", "[1.5]", [[1.0], [1.5]]),
    ],
)
def test_other_types_of_lines_become_one_frame_in_python(one: str, other: str, both: Any, tmp_path: Path) -> None:
    Path("a.jsonl").write_text(f'{{"prompt_id": "a", "reward": 1, "x": {one}}}\n')
    Path("b.jsonl").write_text(f'{{"prompt_id": "b", "reward": 0, "x": {other}}}\n')
    assert grpo_cli.select(tmp_path, limit=9).frame["x"].to_list() == both


def test_one_of_the_inputs_is_not_the_output() -> None:
    _folder()
    done = adv("select run --limit 9 -o run/step_1.jsonl --force")
    assert done.status == 2
    assert "input" in done.err


def test_a_column_of_steps_is_a_fact_of_a_group_whose_rows_agree_on_it() -> None:
    lines = """\
{"prompt_id": "a", "step": 1, "reward": 0}
{"prompt_id": "a", "step": 1, "reward": 1}
{"prompt_id": "b", "step": 2, "reward": 0}
{"prompt_id": "b", "step": 2, "reward": 1}
{"prompt_id": "c", "step": 2, "reward": 0}
{"prompt_id": "c", "step": 3, "reward": 1}
{"prompt_id": "d", "step": 3, "reward": 0}
{"prompt_id": "d", "step": 3, "reward": 1}
"""

    def kept(flags: str) -> list[str]:
        return keys(left(f"--group-within input {flags}", lines)[0])

    assert kept("--where 'step == 2'") == ["b"]
    assert kept("--where 'step >= 2 and mean > 0'") == ["b", "d"]
    assert kept("--where 'mean > 0' --top 1 --by step") == ["d"]
    done = adv("select in.jsonl --group-within input --where 'stepp == 2'")
    assert "no fact of a group named 'stepp'" in done.err
