"""Which rows belong together: keys, blocks and batches, and the refusals that keep groups apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.column_stats import PIECE
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError
from grpo_cli.read import group_keys
from grpo_cli.read.columns import read_columns
from grpo_cli.read.group_keys import _ODD, _numbered, encode, repeats, sizes, spanning
from grpo_cli.read.known_names import DRAW_LIKE, STEP_LIKE
from grpo_cli.read.layout import layout
from grpo_cli.read.request import choose
from grpo_cli.read.tables import Binding, FileTable
from grpo_cli.stats.verdicts import verdicts
from tests.support.drawn import some
from tests.support.jobs import frame, inspected, look, opened, refused, write

KEYS = st.sampled_from(["a", "b", "c", "d"])


def table(keys: Sequence[Any], name: str = "a.jsonl", /, **columns: Sequence[Any]) -> Path:
    """Rows with these keys, and rewards of 0 and 1 in turn."""
    rewards = cycle([0.0, 1.0])
    names = ["prompt_id", "reward", *columns]
    rows = zip(keys, rewards, *columns.values(), strict=False)
    return write(name, [dict(zip(names, row, strict=True)) for row in rows])


def groups(*paths: Path, **options: Any) -> str:
    """The group of every row that is kept, a digit each."""
    return "".join(map(str, look(*paths, **options).narrow.table["group"]))


# --- codes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int64, pl.UInt64, pl.Int128])
def test_integers_of_any_width_and_sign_are_keys(dtype: type[pl.DataType]) -> None:
    least = pl.select(dtype.min()).item()  # type: ignore[attr-defined]
    most = pl.select(dtype.max()).item()  # type: ignore[attr-defined]
    coded = encode([pl.Series([9, 1, most, least, 7, most, 9, None, 3, None], dtype=dtype)])
    assert coded.codes.to_list() == [0, 1, 2, 3, 4, 2, 0, 5, 6, 5]
    assert coded.first.to_list() == [0, 1, 2, 3, 4, 7, 8]


@pytest.mark.parametrize("repeat", [1, 3])
def test_keys_that_share_a_hash_stay_apart(monkeypatch: pytest.MonkeyPatch, repeat: int) -> None:
    hash_rows = pl.DataFrame.hash_rows

    def colliding(frame: pl.DataFrame, seed: int) -> pl.Series:
        hashes = hash_rows(frame, seed)
        return hashes % 2 if seed < 3 else hashes

    monkeypatch.setattr(pl.DataFrame, "hash_rows", colliding)
    keys = pl.Series(["b", "a", None, "c", "b", None, "a"])
    rows = np.repeat(range(7), repeat)
    coded = encode([keys[rows]])
    assert coded.codes.to_list() == np.repeat([0, 1, 2, 3, 0, 2, 1], repeat).tolist()
    assert coded.first.to_list() == [0, repeat, 2 * repeat, 3 * repeat]


def test_words_that_collide_in_the_table_get_their_own_numbers() -> None:
    inverse = pow(_ODD, -1, 1 << 64)  # times it, words become the products, which differ in their last bits only
    words = [product * inverse % (1 << 64) for product in range(50)]
    codes, _ = _numbered(np.array([*words, *words], np.uint64))
    assert codes.tolist() == [*range(50), *range(50)]


def test_equal_keys_of_any_type_are_one_group() -> None:
    def coded(keys: str) -> list[int]:
        found = encode([pl.Series(json.loads(keys))])
        return found.codes.to_list()

    assert coded("[0.0, -0.0, 1.0, 0.0]") == [0, 0, 1, 0]
    assert coded("[true, null, false, true]") == [0, 1, 2, 0]
    assert coded("[[1, 2], [3], [1, 2]]") == [0, 1, 0]
    assert coded("[NaN, 1.0, NaN]") == [0, 1, 0]


def test_the_first_row_with_another_value_is_found_for_each_key() -> None:
    coded = encode([pl.Series([*"ppqqppqqrr"])])
    assert spanning(coded, pl.Series([1, 1, 2, 2, 3, 1, 2, 4, 5, 5])) == [4, 7]
    assert spanning(coded, pl.Series([1] * 10)) == []


@given(keys=st.lists(KEYS | st.none(), min_size=1, max_size=40), cut=st.integers(0, 40), piece=st.integers(1, 9))
def test_codes_are_the_same_for_keys_in_several_chunks(keys: list[str | None], cut: int, piece: int) -> None:
    before = pl.Series(keys[:cut], dtype=pl.String)
    chunks = before.append(pl.Series(keys[cut:], dtype=pl.String))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group_keys, "PIECE", piece)
        coded = encode([chunks])
    distinct = [*dict.fromkeys(keys)]
    assert coded.codes.to_list() == [distinct.index(key) for key in keys]
    assert coded.first.to_list() == [keys.index(key) for key in distinct]
    assert sizes(coded).tolist() == [keys.count(key) for key in distinct]


@pytest.mark.parametrize("at", [PIECE - 1, PIECE, PIECE + 1])
def test_a_repeated_sample_is_found_across_pieces(at: int) -> None:
    samples = np.arange(2 * PIECE)
    one = pl.zeros(2 * PIECE, eager=True)
    two = pl.Series(samples >= at)
    assert repeats(one, pl.Series(samples)) == 0
    samples[at] = samples[at - 1]
    assert repeats(one, pl.Series(samples)) == 1
    assert repeats(two, pl.Series(samples)) == 0


@pytest.mark.parametrize(("dtype", "first"), [(pl.UInt64, 2**63 + 9), (pl.Int64, 2**40)])
def test_samples_are_compared_by_all_their_bits(dtype: type[pl.DataType], first: int) -> None:
    steps = pl.Series([0, 2**32, 2**33, 2**34], dtype=dtype)
    falling = pl.Series([first], dtype=dtype) - steps
    codes = pl.zeros(4, eager=True)
    assert repeats(codes, falling) == 0
    assert repeats(codes, falling[[0, 1, 0, 1]]) == 2
    assert repeats(codes, pl.Series([0, 1, 0, 2], dtype=pl.Int8)) == 1


@pytest.mark.parametrize(("a", "b"), [(0, 1), (-5, 3), (0, 1 << 60), ("a", "b")])
def test_each_row_that_repeats_a_sample_of_its_group_is_counted(a: Any, b: Any) -> None:
    codes = encode([pl.Series([*"ppppqqqqpp"])]).codes
    assert repeats(codes, pl.Series([a, b, a, a, a, None, None, b, None, b])) == 3


# --- keys --------------------------------------------------------------------------------------------------


def test_the_key_may_be_composite_and_named_twice() -> None:
    path = table("ppqq", run=[1, 2, 1, 1])
    assert groups(path, group="prompt_id,run") == "0122"
    assert groups(path, group=["prompt_id", "run"]) == "0122"
    assert groups(path, group="run, run") == "0100"


@pytest.mark.parametrize(
    ("row", "codes"),
    [
        ('{"meta": {"id": 0}, "reward": 0}\n{"meta": {"id": 1}, "reward": 1}\n', "0101"),
        ('{"meta": {"id": 0}, "meta.id": 7, "reward": 0}\n{"meta": {"id": 1}, "meta.id": 7, "reward": 1}\n', "0000"),
    ],
)
def test_dotted_paths_reach_nested_fields_and_a_literal_name_wins(row: str, codes: str) -> None:
    path = Path("n.jsonl")
    path.write_text(row * 2)
    assert groups(path, group="meta.id") == codes
    found = grpo_cli.compute(pl.read_ndjson(path), group="meta.id").groups["meta.id"]
    assert found.to_list() == ([0, 1] if codes == "0101" else [7])


def test_a_row_without_a_key_or_a_batch_belongs_nowhere() -> None:
    def said(rows: str, **options: Any) -> str:
        Path("a.jsonl").write_text(rows)
        return refused("a.jsonl", **options)

    of_null = said('{"uid": "a", "reward": 0}\n{"uid": null, "reward": 0}', group="uid")
    assert "a.jsonl:2: uid is null or missing; " in of_null
    of_missing = said('{"uid": "a", "reward": 0}\n{"reward": 0}\n{"reward": 0}', group="uid")
    assert "a.jsonl:2: uid is null or missing (2 rows); " in of_missing
    of_nan = said('{"uid": 1.0, "reward": 0}\n{"uid": NaN, "reward": 0}', group="uid")
    assert "a.jsonl:2: uid is NaN; " in of_nan
    rows = '{"uid": "a", "run": 1, "reward": 0}\n{"uid": "a", "reward": 0}'
    assert "a.jsonl:2: run is null or missing; " in said(rows, group="uid,run")
    assert "a.jsonl:2: run is null or missing; " in said(rows, group_within="run")
    assert "a.jsonl:2: run is null or missing; " in said(rows, scale="batch", batch_by="run")


# --- no silent merge ---------------------------------------------------------------------------------------


def test_a_key_in_several_files_stops_with_three_keys_and_both_cures() -> None:
    first = table("00112233")
    second = table("00112233", "b.jsonl")
    with pytest.raises(DataError) as raised:
        groups(first, second)
    assert "4 group keys (0, 1, 2 and 1 more) have rows in several files" in raised.value.message
    assert "--group-within file" in raised.value.hint
    assert "--group-within input" in raised.value.hint
    assert groups(first, second, group_within="file") == "0011223344556677"
    assert groups(first, second, group_within="input") == "0011223300112233"


@pytest.mark.parametrize("name", [*STEP_LIKE, *DRAW_LIKE])
def test_a_key_in_several_steps_or_draws_stops_with_both_cures(name: str) -> None:
    path = table("ppqqppq", **{name: [1, 1, 2, 2, 3, 3, 4]})
    with pytest.raises(DataError) as raised:
        groups(path)
    assert f"2 group keys (p, q) have rows in several values of {name!r}" in raised.value.message
    assert raised.value.hint.startswith(f"--group prompt_id,{name} makes a group of a prompt in each step")
    cured = look(path, group=f"prompt_id,{name}").narrow
    assert cured.table["group"].to_list() == [0, 0, 1, 1, 2, 2, 3]
    assert cured.warnings == ()
    assert groups(path, group_within=name) == "0011223"
    assert groups(path, group_within="input") == "0011001"
    with pytest.raises(DataError, match=f"the plan needs a batch, but the rows have 4 values of '{name}'"):
        groups(path, group_within="input", scale="batch")


# The number of each sample; trial by trial; batches that end inside of a group; the second in which each row was written; the
# time of each row.
NUMBERINGS = """
00001111 01230123
012012 000111
000011112222 000000111111
000011112222 778889999999
00001111 01234567
"""


@pytest.mark.parametrize("name", some(DRAW_LIKE, 5))
@pytest.mark.parametrize("line", NUMBERINGS.strip().splitlines())
def test_what_numbers_the_rows_or_parts_of_a_draw_does_not_stop(line: str, name: str) -> None:
    keys, values = line.split()
    path = table(keys, **{name: [*map(int, values)]})
    assert groups(path) == keys
    assert groups(path, scale="batch") == keys


def test_parts_of_a_draw_with_a_time_of_their_own_do_not_stop() -> None:
    path = table("ppppqqqq", timestamp=[1, 1, 2, 2, 3, 3, 4, 4])
    assert groups(path) == "00001111"


def test_a_draw_that_only_a_late_line_names_is_seen() -> None:
    early = '{"prompt_id": "p", "reward": 0}\n{"prompt_id": "p", "reward": 1}\n'
    late = """\
{"prompt_id": "q", "reward": 0, "round": 1}
{"prompt_id": "q", "reward": 1, "round": 1}
{"prompt_id": "q", "reward": 0, "round": 2}
{"prompt_id": "q", "reward": 1, "round": 2}
"""
    Path("a.jsonl").write_text(early * 80 + late)
    assert "a group key (q) has rows in several values of 'round'" in refused("a.jsonl")


def test_a_step_that_is_missing_or_nested_is_compared_by_value() -> None:
    assert "several values of 'step'" in refused(table("pp", step=[1, None]))
    assert "several values of 'step'" in refused(table("pp", step=[[1, 2], [1]]))
    assert groups(table("pp", step=[[1, 2], [1, 2]])) == "00"


def test_files_that_are_steps_are_named_as_steps() -> None:
    paths = [table("pp", "1.jsonl", step=[1, 1]), table("pp", "2.jsonl", step=[2, 2])]
    assert "several values of 'step'" in refused(*paths)
    assert groups(*paths, group="prompt_id,step") == "0011"


def test_keys_may_restart_in_each_value_of_a_column() -> None:
    path = table("pppp", shard="xyxy")
    assert groups(path, group_within="shard") == "0101"
    assert "no column ''" in refused(path, group_within="")


def test_the_steps_inside_a_rollout_are_not_training_steps() -> None:
    path = table("pppp", step=[0, 1, 0, 1], episode="xxyy")
    assert groups(path, rollout="episode", rollout_reward="last") == "0000"
    assert "several values of 'step'" in refused(path)
    constant = table("pppp", "b.jsonl", step=[0, 0, 1, 1], episode="wxyz")
    assert "several values of 'step'" in refused(constant, rollout="episode")


# --- blocks ------------------------------------------------------------------------------------------------


def test_blocks_of_consecutive_rows_over_each_file() -> None:
    first = table("pqpq")
    second = table("pqpq", "b.jsonl")
    assert groups(first, group_size=2) == "0011"
    assert groups(first, second, group_size=2) == "00112233"
    odd = table("ppp", "c.jsonl")
    assert "c.jsonl:3: the last block has 1 row, not 2" in refused(odd, table("ppp", "d.jsonl"), group_size=2)


def test_a_remainder_is_an_error_that_names_both_ways_out() -> None:
    path = table("ppppp")
    with pytest.raises(DataError) as raised:
        groups(path, group_size=2)
    assert ":5: the last block has 1 row, not 2" in raised.value.message
    assert "--partial keep" in raised.value.hint
    assert "--partial drop" in raised.value.hint
    assert groups(path, group_size=2, partial="keep") == "00112"
    dropped = look(path, group_size=2, partial="drop").narrow
    assert dropped.table["group"].to_list() == [0, 0, 1, 1]
    assert dropped.rows is not None
    assert dropped.rows.tolist() == [0, 1, 2, 3]
    assert "no rows; 5 dropped: incomplete last block" in refused(path, group_size=6, partial="drop")


def test_the_remainder_of_each_key_is_dropped() -> None:
    path = table("ppqpqr")
    dropped = look(path, group_size=2, group="prompt_id", partial="drop").narrow
    assert dropped.table["group"].to_list() == [0, 0, 1, 1]
    assert dropped.rows is not None
    assert dropped.rows.tolist() == [0, 1, 2, 4]
    assert dropped.place(2).endswith(":3")
    assert dropped.label(1) == "q"


def test_blocks_of_a_frame_without_a_key() -> None:
    rows = frame([0.0, 1.0, 4.0, 2.0, 9.0])
    result = grpo_cli.compute(rows, method="dr-grpo", group_size=2, partial="drop")
    assert result.advantages.to_list() == [-0.5, 0.5, 1.0, -1.0, None]
    assert result.groups["size"].to_list() == [2, 2]


def test_an_expected_size_is_only_checked_on_the_groups_or_the_blocks_that_stay() -> None:
    path = table("ppqqqrr")
    assert "a.jsonl:3: q has 3 rows, not 2 (1 such group of 3)" in refused(path, expect_size=2)
    even = table("ppqq", "b.jsonl")
    assert groups(even, expect_size=2) == groups(even) == "0011"
    five = table("ppppp", "c.jsonl")
    assert groups(five, group_size=2, partial="drop", expect_size=2) == "0011"
    too_short = refused(five, group_size=2, partial="drop", expect_size=3)
    assert "has 2 rows, not 3 (2 such groups of 3)" in too_short
    assert "not 2 (1 such group of 3)" in refused(five, group_size=2, partial="keep", expect_size=2)


# --- batches -----------------------------------------------------------------------------------------------


@pytest.fixture
def two_steps() -> Path:
    return table("pppp", "steps.jsonl", step=[1, 1, 2, 2])


@pytest.mark.parametrize(
    "flag", ["scale batch", "whiten sample", "method batch-norm", "method gdpo", "method gpg", "method james-stein"]
)
def test_a_batch_over_several_steps_or_files_needs_a_flag(flag: str, two_steps: Path) -> None:
    option, value = flag.split()
    with pytest.raises(DataError) as raised:
        groups(two_steps, group="prompt_id,step", **{option: value})
    assert "the rows have 2 values of 'step'" in raised.value.message
    assert "--batch-by step" in raised.value.hint
    assert "--batch-by input" in raised.value.hint
    with pytest.raises(DataError, match=r"there are 2 files; --batch-by file .*--batch-by input"):
        groups(table("pp"), table("qq", "b.jsonl"), **{option: value})


def test_each_way_to_say_the_batch(two_steps: Path) -> None:
    def batches(batch_by: str, *paths: Path) -> str:
        found = look(two_steps, *paths, scale="batch", group="prompt_id,step", batch_by=batch_by)
        return "".join(map(str, found.narrow.table["batch"]))

    assert batches("step") == "0011"
    assert batches("input") == "0000"
    assert batches("file") == "0000"
    other = table("qq", "more.jsonl", step=[2, 2])
    assert batches("file", other) == "000011"
    assert batches("step, file", other) == "001122"
    assert batches("step,input", other) == "001111"


def test_a_group_in_two_batches_is_refused(two_steps: Path) -> None:
    with pytest.raises(DataError) as raised:
        groups(two_steps, group_within="input", batch_by="step", scale="batch")
    assert "a group key (p) has rows in several batches of 'step'" in raised.value.message
    assert "add step to --group" in raised.value.hint
    assert "--batch-by input" in raised.value.hint


# --- singletons --------------------------------------------------------------------------------------------


def test_groups_of_one_row_each_stop_because_the_key_is_probably_wrong() -> None:
    lonely = frame([0.0, 1.0, 2.0], ["a", "b", "c"])
    with pytest.raises(DataError) as raised:
        grpo_cli.advantages(lonely)
    assert "prompt_id may be an id of the rollout" in raised.value.message
    assert "with group; give singleton zero" in raised.value.hint
    assert grpo_cli.advantages(lonely, singleton="zero").to_list() == [0.0, 0.0, 0.0]
    assert grpo_cli.advantages(lonely, set="alone.result=raw").to_list() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("method", ["reinforce", "batch-norm", "nsr"])
def test_groups_of_one_row_are_fine_where_a_group_is_not_compared_with_itself(method: str) -> None:
    lonely = frame([0.0, 1.0, 1.0], ["a", "b", "c"])
    assert None not in grpo_cli.advantages(lonely, method=method).to_list()


def test_a_single_row_stops_the_run_and_one_larger_group_does_not() -> None:
    with pytest.raises(DataError, match="there is a single row: prompt_id may be an id of the rollout"):
        grpo_cli.advantages(frame([1.0]))
    assert grpo_cli.advantages(frame([1.0]), singleton="zero").to_list() == [0.0]
    assert grpo_cli.advantages(frame([1.0, 1.0, 1.0], ["a", "b", "b"])).to_list() == [0.0, 0.0, 0.0]


def test_messages_with_the_answers_are_not_called_prompts() -> None:
    path = Path("a.jsonl")
    path.write_text("""\
{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "0"}], "reward": 0}
{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "1"}], "reward": 1}
{"messages": [{"role": "user", "content": "r"}, {"role": "assistant", "content": "2"}], "reward": 0}
{"messages": [{"role": "user", "content": "r"}, {"role": "assistant", "content": "3"}], "reward": 1}
""")
    with pytest.raises(DataError, match="messages may contain the responses as well") as caught:
        look(path)
    assert "--group-size N" in caught.value.hint
    verdict = " ".join(verdicts(inspected(path).facts))
    assert "every group has a single reward" in verdict.lower()


# --- the steps of reading, without a run ----------------------------------------------------------------------


def test_checks_are_asked_in_their_order_and_all_their_warnings_are_kept() -> None:
    path = table("aaabbbcccaaa", sample_id=[0, 1, 1, 0, 1, 2, 0, 1, 2, 0, 1, 2], step=[1] * 11 + [2])
    assert "values of 'step'" in refused(path)
    warnings = look(path, group="prompt_id", group_within="input").facts["warnings"]
    assert [line.split(":")[0] for line in warnings] == [
        "3 rows repeat a sample_id inside their group",
        "a group key comes back in separate blocks of 3 rows",
    ]


PLAIN = '{"prompt_id": 1, "reward": 0.0}\n{"prompt_id": 1, "reward": 1.0}\n'
WITH_A_LATE_STEP = PLAIN * 4_500 + PLAIN.replace("}", ', "step": 7}') + PLAIN * 5_499


def test_files_are_read_once_more_if_one_of_them_has_a_late_step(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.jsonl").write_text(PLAIN * 10_000)
    Path("b.jsonl").write_text(WITH_A_LATE_STEP)
    asked = []
    before = FileTable.scan

    def scan(table: FileTable, fields: Any) -> Any:
        asked.append(" ".join([table.name, *(field.name for field in fields)]))
        return before(table, fields)

    monkeypatch.setattr(FileTable, "scan", scan)
    columns = read_columns(choose(layout(opened("a.jsonl", "b.jsonl"), Binding()), Plan()))
    assert asked == [
        "a.jsonl prompt_id reward",
        "b.jsonl prompt_id reward",
        "a.jsonl prompt_id reward",
        "b.jsonl prompt_id reward step",
    ]
    assert columns.lengths == (20_000, 20_000)
    assert columns.values["step"].is_not_null().arg_true().to_list() == [29_000, 29_001]


def test_a_late_step_is_read_beside_a_column_that_the_file_has() -> None:
    """A column of all files, an epoch, need not be in the file with the late step."""
    Path("a.jsonl").write_text(PLAIN.replace("}", ', "epoch": 1}') * 10_000)
    Path("b.jsonl").write_text(WITH_A_LATE_STEP)
    columns = read_columns(choose(layout(opened("a.jsonl", "b.jsonl"), Binding(group_size=4)), Plan()))
    assert columns.values["step"].is_not_null().arg_true().to_list() == [29_000, 29_001]
