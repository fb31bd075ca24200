"""Which rows belong together: keys, blocks and batches, and the refusals that keep groups apart."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.engine.column_stats import PIECE
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UsageError
from grpo_cli.read import group_keys
from grpo_cli.read.checks import repeats
from grpo_cli.read.columns import read_columns
from grpo_cli.read.group_keys import _ODD, _numbered, blocks, encode, sizes, spanning, within
from grpo_cli.read.known_names import DRAW_LIKE, STEP_LIKE
from grpo_cli.read.layout import layout
from grpo_cli.read.request import choose
from grpo_cli.read.tables import Binding, FileTable
from grpo_cli.stats.verdicts import verdicts
from tests.support.drawn import some
from tests.support.jobs import frame, inspected, look, opened, refused, write
from tests.support.keys import FORMS

KEYS = st.sampled_from(["a", "b", "c", "d"])


def codes_of(*columns: list[Any]) -> list[int]:
    return encode([pl.Series(f"k{i}", values) for i, values in enumerate(columns)], len(columns[0])).codes.to_list()


def first_seen(keys: list[Any]) -> list[int]:
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def groups(data: Path | list[Path], **options: Any) -> list[int]:
    """The group of every row that is kept."""
    return look(*(data if isinstance(data, list) else [data]), **options).narrow.table["group"].to_list()


def rows(*keys: Any, **columns: list[Any]) -> list[Any]:
    return [
        {"prompt_id": key, "reward": float(i % 2), **{name: values[i] for name, values in columns.items()}}
        for i, key in enumerate(keys)
    ]


# --- codes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int64, pl.UInt64, pl.Int128])
@pytest.mark.parametrize("missing", [False, True])
def test_integers_of_any_width_and_sign_are_keys(dtype: type[pl.DataType], *, missing: bool) -> None:
    ends = [pl.select(end).item() for end in (dtype.min(), dtype.max())]  # type: ignore[attr-defined]
    keys = [0, 1, ends[1], ends[0], 7, ends[1], 0, *([None, 3, None] if missing else [])] * 3
    coded = encode([pl.Series("key", keys, dtype=dtype)], len(keys))
    assert coded.codes.to_list() == first_seen(keys)
    assert [keys[row] for row in coded.first] == list(dict.fromkeys(keys))


@pytest.mark.parametrize("repeat", [1, 3])
def test_keys_that_share_a_hash_stay_apart(monkeypatch: pytest.MonkeyPatch, repeat: int) -> None:
    keys = [key for key in ["b", "a", None, "c", "b", None, "a"] for _ in range(repeat)]
    hash_rows = pl.DataFrame.hash_rows

    def colliding(frame: pl.DataFrame, seed: int) -> pl.Series:
        return hash_rows(frame, seed) % 2 if seed < 3 else hash_rows(frame, seed)

    monkeypatch.setattr(pl.DataFrame, "hash_rows", colliding)
    coded = encode([pl.Series("key", keys)], len(keys))
    assert coded.codes.to_list() == first_seen(keys)
    assert [keys[row] for row in coded.first] == ["b", "a", None, "c"]


@given(words=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 40), max_size=200))
def test_words_are_numbered_in_order_of_appearance(words: list[int]) -> None:
    codes, first = _numbered(np.array(words, np.uint64))
    assert codes.tolist() == first_seen(words)
    assert first.tolist() == [words.index(word) for word in dict.fromkeys(words)]


def test_words_that_collide_in_the_table_get_their_own_numbers() -> None:
    inverse = pow(_ODD, -1, 1 << 64)  # times it, words become the products, which differ in their last bits only
    words = [product * inverse % (1 << 64) for product in range(50)] * 2
    codes, _ = _numbered(np.array(words, np.uint64))
    assert codes.tolist() == [*range(50)] * 2


@pytest.mark.parametrize(
    "keys", [[0.0, -0.0, 1.0, 0.0], [True, None, False, True], [[1, 2], [3], [1, 2]], [float("nan"), 1.0, float("nan")]]
)
def test_equal_keys_of_any_type_are_one_group(keys: list[Any]) -> None:
    assert codes_of(keys) == first_seen(["nan" if key != key else str(key).replace("-0.0", "0.0") for key in keys])  # noqa: PLR0124


@given(keys=st.lists(KEYS | st.none(), min_size=1, max_size=40), cut=st.integers(0, 40), piece=st.integers(1, 9))
def test_codes_are_the_same_for_keys_in_several_chunks(keys: list[str | None], cut: int, piece: int) -> None:
    whole = pl.Series("key", keys, dtype=pl.String)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group_keys, "PIECE", piece)
        coded = encode([pl.concat([whole[:cut], whole[cut:]], rechunk=False)], len(keys))
    assert coded.codes.to_list() == first_seen(keys)
    assert coded.first.to_list() == [keys.index(key) for key in dict.fromkeys(keys)]
    assert sizes(coded).tolist() == [keys.count(key) for key in dict.fromkeys(keys)]
    starts = [at for at, (a, b) in enumerate(pairwise([object(), *keys])) if a != b]
    assert coded.together == (len(starts) == len({*keys}))
    codes, lengths = coded.runs()
    assert codes.tolist() == [first_seen(keys)[start] for start in starts]
    assert lengths.tolist() == np.diff([*starts, len(keys)]).tolist()


@pytest.mark.parametrize("at", [PIECE - 1, PIECE, PIECE + 1])
def test_a_repeated_sample_is_found_across_pieces(at: int) -> None:
    rows = 2 * PIECE
    one, two = (encode([pl.Series(codes)], rows) for codes in (np.zeros(rows), np.arange(rows) >= at))
    samples = np.arange(rows)
    assert repeats(one, pl.Series(samples)) == 0
    samples[at] = samples[at - 1]
    assert (repeats(one, pl.Series(samples)), repeats(two, pl.Series(samples))) == (1, 0)


@pytest.mark.parametrize("dtype", [pl.UInt64, pl.Int64])
def test_samples_are_compared_by_all_their_bits(dtype: type[pl.DataType]) -> None:
    first = (1 << 63) + 9 if dtype == pl.UInt64 else 1 << 40
    falling = pl.Series([first - (at << 32) for at in range(4)], dtype=dtype)
    codes = encode([pl.Series([0, 0, 0, 0])], 4)
    assert repeats(codes, falling) == 0
    assert repeats(codes, falling.gather([0, 1, 0, 1])) == 2


@given(
    codes=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    values=st.sampled_from([[0, 1, 2], [-5, None, 3], [0, 1 << 60], ["a", "b", None]]),
    data=st.data(),
)
def test_each_row_that_repeats_a_sample_of_its_group_is_counted(
    codes: list[int], values: list[Any], data: st.DataObject
) -> None:
    samples = [data.draw(st.sampled_from(values)) for _ in codes]
    pairs = [pair for pair in zip(codes, samples, strict=True) if pair[1] is not None]
    assert repeats(encode([pl.Series(codes)], len(codes)), pl.Series(samples)) == len(pairs) - len({*pairs})


@given(pairs=st.lists(st.tuples(KEYS, st.integers(0, 2)), min_size=1, max_size=40))
def test_a_key_within_another_is_cut_further(pairs: list[tuple[str, int]]) -> None:
    coded = encode([pl.Series([a for a, _ in pairs])], len(pairs))
    assert within(coded, [pl.Series([b for _, b in pairs])]).codes.to_list() == first_seen(pairs)


@given(keys=st.lists(KEYS, min_size=1, max_size=40), size=st.integers(1, 5))
def test_blocks_are_counted_inside_each_key(keys: list[str], size: int) -> None:
    cut = blocks(encode([pl.Series(keys)], len(keys)), size)
    assert cut.codes.to_list() == first_seen([(key, keys[:i].count(key) // size) for i, key in enumerate(keys)])


@given(pairs=st.lists(st.tuples(KEYS, st.integers(0, 2)), min_size=1, max_size=30))
def test_spanning_finds_the_keys_with_several_values(pairs: list[tuple[str, int]]) -> None:
    coded = encode([pl.Series([a for a, _ in pairs])], len(pairs))
    found = spanning(coded, pl.Series([b for _, b in pairs]))
    firsts = dict(reversed(pairs))
    others = [(a, row) for row, (a, b) in enumerate(pairs) if b != firsts[a]]
    assert found == sorted(dict(reversed(others)).values())


@pytest.mark.parametrize("form", FORMS)
def test_a_key_of_any_form_may_be_part_of_a_composite_key(form: str) -> None:
    kind = FORMS[form](pa.int64(), 0)[0]
    keys = pl.Series("key", pl.from_arrow(pa.array([FORMS[form](pa.int64(), at)[1] for at in (3, -1, 3)], kind)))
    assert encode([keys], 3).codes.to_list() == [0, 1, 0]
    assert encode([keys, pl.Series("l", ["k", "k", "l"])], 3).codes.to_list() == [0, 1, 2]


# --- keys --------------------------------------------------------------------------------------------------


def test_the_key_may_be_composite_and_named_twice() -> None:
    path = write("a.jsonl", rows("p", "p", "q", "q", run=[1, 2, 1, 1]))
    assert groups(path, group="prompt_id,run") == [0, 1, 2, 2]
    assert groups(path, group=["prompt_id", "run"]) == [0, 1, 2, 2]
    assert groups(path, group="run, run") == [0, 1, 0, 0]


def test_dotted_paths_reach_nested_fields_and_a_literal_name_wins() -> None:
    nested = [{"meta": {"id": i % 2}, "reward": i} for i in range(4)]
    both = [{"meta": {"id": i % 2}, "meta.id": i // 2, "reward": i} for i in range(4)]
    for data, codes in ((nested, [0, 1, 0, 1]), (both, [0, 0, 1, 1])):
        assert groups(write("n.jsonl", data), group="meta.id") == codes
        assert grpo_cli.compute(pl.DataFrame(data), group="meta.id").groups["meta.id"].to_list() == [0, 1]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (rows("a", None), {"group": "prompt_id"}, ":2: prompt_id is null or missing"),
        (rows("a", None, None), {"group": "prompt_id"}, ":2: prompt_id is null or missing (2 rows)"),
        ([{"prompt_id": "a", "reward": 1}, {"reward": 0}], {"group": "prompt_id"}, ":2: prompt_id is null or missing"),
        (rows(1.0, float("nan"), float("nan")), {"group": "prompt_id"}, ":2: prompt_id is NaN (2 rows)"),
        (rows("a", "a", run=[1, None]), {"group": "prompt_id,run"}, ":2: run is null or missing"),
        (rows("p", "p", shard=["x", None]), {"group_within": "shard"}, ":2: shard is null or missing"),
        (rows(*"ppqq", step=[1, 1, None, None]), {"scale": "batch", "batch_by": "step"}, ":3: step is null or missing (2 rows)"),
    ],
)  # fmt: skip
def test_a_row_without_a_key_or_a_batch_belongs_nowhere(data: list[Any], options: Any, message: str) -> None:
    with pytest.raises(DataError) as raised:
        groups(write("a.jsonl", data), **options)
    assert raised.value.message.endswith(message)


# --- no silent merge ---------------------------------------------------------------------------------------


def test_a_key_in_several_files_stops_with_three_keys_and_both_cures() -> None:
    restarted = [write(f"{name}.jsonl", rows(0, 0, 1, 1, 2, 2, 3, 3)) for name in "ab"]
    with pytest.raises(DataError) as raised:
        groups(restarted)
    assert "4 group keys (0, 1, 2 and 1 more) have rows in several files" in raised.value.message
    assert "--group-within file" in raised.value.hint and "--group-within input" in raised.value.hint
    assert groups(restarted, group_within="file") == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    assert groups(restarted, group_within="input") == [0, 0, 1, 1, 2, 2, 3, 3] * 2


@pytest.mark.parametrize("name", [*STEP_LIKE, *DRAW_LIKE])
def test_a_key_in_several_steps_or_draws_stops_with_both_cures(name: str) -> None:
    path = write("a.jsonl", rows(*"ppqqppq", **{name: [1, 1, 2, 2, 3, 3, 4]}))
    with pytest.raises(DataError) as raised:
        groups(path)
    assert f"2 group keys (p, q) have rows in several values of {name!r}" in raised.value.message
    assert raised.value.hint.startswith(f"--group prompt_id,{name} if ids restart; --group-within input")
    cured = look(path, group=f"prompt_id,{name}").narrow
    assert (cured.table["group"].to_list(), cured.warnings) == ([0, 0, 1, 1, 2, 2, 3], ())
    assert groups(path, group_within=name) == [0, 0, 1, 1, 2, 2, 3]
    assert groups(path, group_within="input") == [0, 0, 1, 1, 0, 0, 1]
    with pytest.raises(DataError, match=f"the plan needs a batch, but the rows have 4 values of '{name}'"):
        groups(path, group_within="input", scale="batch")


NO_DRAWS: dict[str, tuple[str, list[Any]]] = {
    "the number of each sample": ("ppppqqqq", [0, 1, 2, 3, 0, 1, 2, 3]),
    "trial by trial": ("pqrpqr", [0, 0, 0, 1, 1, 1]),
    "batches that end inside of a group": ("ppppqqqqrrrr", [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]),
    "the second in which each row was written": ("ppppqqqqrrrr", [7, 7, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9]),
    "the time of each row": ("ppppqqqq", [f"2026-11-23 10:00:0{at}" for at in range(8)]),
}


@pytest.mark.parametrize(("case", "name"), some(product(NO_DRAWS, DRAW_LIKE), 5))
def test_what_numbers_the_rows_or_parts_of_a_draw_does_not_stop(case: str, name: str) -> None:
    keys, values = NO_DRAWS[case]
    path = write("a.jsonl", rows(*keys, **{name: values}))
    wanted = [sorted({*keys}).index(key) for key in keys]
    assert groups(path) == groups(path, scale="batch") == wanted


def test_parts_of_a_draw_with_a_time_of_their_own_do_not_stop() -> None:
    path = write("a.jsonl", rows(*"ppppqqqq", timestamp=[1, 1, 2, 2, 3, 3, 4, 4]))
    assert groups(path) == [0] * 4 + [1] * 4


def test_a_draw_that_only_a_late_line_names_is_seen() -> None:
    late = [*rows(*"ppqq" * 40), *rows(*"rrssrrss", round=[1, 1, 1, 1, 2, 2, 2, 2])]
    with pytest.raises(DataError, match=r"2 group keys \(.*\) have rows in several values of 'round'"):
        groups(write("a.jsonl", late))


@pytest.mark.parametrize(
    ("steps", "differ"), [([1, None], True), ([[1, 2], [1]], True), ([[1, 2], [1, 2]], False)], ids=str
)
def test_a_step_that_is_missing_or_nested_is_compared_by_value(steps: list[Any], *, differ: bool) -> None:
    path = write("a.jsonl", rows("p", "p", step=steps))
    with pytest.raises(DataError, match="several values of 'step'") if differ else nullcontext():
        assert groups(path) == [0, 0]


def test_files_that_are_steps_are_named_as_steps() -> None:
    paths = [write(f"{n}.jsonl", rows("p", "p", step=[n, n])) for n in (1, 2)]
    assert "several values of 'step'" in refused(*paths)
    assert groups(paths, group="prompt_id,step") == [0, 0, 1, 1]


def test_keys_may_restart_in_each_value_of_a_column() -> None:
    path = write("a.jsonl", rows("p", "p", "p", "p", shard=["x", "y", "x", "y"]))
    assert groups(path, group_within="shard") == [0, 1, 0, 1]
    with pytest.raises(DataError, match="no column 'shar'"):
        groups(path, group_within="shar")
    with pytest.raises(DataError, match="no column ''"):
        groups(path, group_within="")


def test_the_steps_inside_a_rollout_are_not_training_steps() -> None:
    path = write("a.jsonl", rows("p", "p", "p", "p", step=[0, 1, 0, 1], episode=["x", "x", "y", "y"]))
    assert groups(path, rollout="episode", rollout_reward="last") == [0, 0, 0, 0]
    with pytest.raises(DataError, match="several values of 'step'"):
        groups(path)


def test_a_step_that_is_constant_in_every_rollout_is_a_training_step() -> None:
    path = write("a.jsonl", rows("p", "p", "p", "p", step=[0, 0, 1, 1], episode=["w", "x", "y", "z"]))
    with pytest.raises(DataError, match="several values of 'step'"):
        groups(path, rollout="episode")


# --- blocks ------------------------------------------------------------------------------------------------


def test_blocks_of_consecutive_rows_over_each_file() -> None:
    paths = [write(f"{name}.jsonl", rows(*"pqpq")) for name in "ab"]
    assert groups(paths[0], group_size=2) == [0, 0, 1, 1]
    assert groups(paths, group_size=2) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_block_never_reaches_into_the_next_file() -> None:
    paths = [write(f"{name}.jsonl", rows(*"ppp")) for name in "ab"]
    with pytest.raises(DataError, match=r"a\.jsonl:3: the last block has 1 row, not 2"):
        groups(paths, group_size=2)


def test_a_remainder_is_an_error_that_names_both_ways_out() -> None:
    path = write("a.jsonl", rows(*"ppppp"))
    with pytest.raises(DataError) as raised:
        groups(path, group_size=2)
    assert ":5: the last block has 1 row, not 2" in raised.value.message
    assert "--partial keep" in raised.value.hint and "--partial drop" in raised.value.hint
    assert groups(path, group_size=2, partial="keep") == [0, 0, 1, 1, 2]
    dropped = look(path, group_size=2, partial="drop").narrow
    assert dropped.table["group"].to_list() == [0, 0, 1, 1]
    assert dropped.rows is not None and dropped.rows.tolist() == [0, 1, 2, 3]


def test_if_every_block_is_short_there_is_nothing_to_compute() -> None:
    assert "no rows; 3 dropped: incomplete last block" in refused(
        write("a.jsonl", rows(*"ppp")), group_size=4, partial="drop"
    )


def test_the_remainder_of_each_key_is_dropped() -> None:
    path = write("a.jsonl", rows(*"pppqqr"))
    dropped = look(path, group_size=2, group="prompt_id", partial="drop").narrow
    assert dropped.table["group"].to_list() == [0, 0, 1, 1]
    assert dropped.rows is not None and dropped.rows.tolist() == [0, 1, 3, 4]
    assert dropped.place(2).endswith(":4") and dropped.label(1) == "q"


def test_blocks_of_a_frame_without_a_key() -> None:
    result = grpo_cli.compute(frame([0.0, 1.0, 4.0, 2.0, 9.0]), method="dr-grpo", group_size=2, partial="drop")
    assert result.advantages.to_list() == [-0.5, 0.5, 1.0, -1.0, None]
    assert result.groups["size"].to_list() == [2, 2]
    kept = grpo_cli.advantages(frame([0.0, 1.0, 4.0, 2.0, 9.0]), method="dr-grpo", group_size=2, partial="keep")
    assert kept.to_list() == [-0.5, 0.5, 1.0, -1.0, 0.0]


@pytest.mark.parametrize("size", [0, -2])
def test_a_block_has_at_least_one_row(size: int) -> None:
    with pytest.raises(UsageError, match="group_size takes 1 or more"):
        grpo_cli.advantages(frame([0.0, 1.0]), group_size=size)


def test_an_expected_size_is_only_checked() -> None:
    path = write("a.jsonl", rows(*"ppqqqrr"))
    with pytest.raises(DataError, match=r"a\.jsonl:3: q has 3 rows, not 2 \(1 such group of 3\)"):
        groups(path, expect_size=2)
    even = write("b.jsonl", rows(*"ppqq"))
    assert groups(even, expect_size=2) == groups(even) == [0, 0, 1, 1]


def test_an_expected_size_is_checked_on_the_blocks_that_stay() -> None:
    path = write("a.jsonl", rows(*"ppppp"))
    assert groups(path, group_size=2, partial="drop", expect_size=2) == [0, 0, 1, 1]
    with pytest.raises(DataError, match=r"has 2 rows, not 3 \(2 such groups of 3\)"):
        groups(path, group_size=2, partial="drop", expect_size=3)
    with pytest.raises(DataError, match=r"not 2 \(1 such group of 3\)"):
        groups(path, group_size=2, partial="keep", expect_size=2)


# --- batches -----------------------------------------------------------------------------------------------


BATCHED: list[Any] = [
    {"scale": "batch"},
    {"whiten": "sample"},
    {"method": "batch-norm"},
    {"method": "gdpo"},
    {"method": "gpg"},
    {"method": "james-stein"},
]


@pytest.fixture
def two_steps(tmp_path: Path) -> Path:
    return write(tmp_path / "steps.jsonl", rows("p", "p", "p", "p", step=[1, 1, 2, 2]))


@pytest.mark.parametrize("options", BATCHED, ids=str)
def test_a_batch_over_several_steps_or_files_needs_a_flag(options: Any, two_steps: Path) -> None:
    with pytest.raises(DataError) as raised:
        groups(two_steps, group="prompt_id,step", **options)
    assert "the rows have 2 values of 'step'" in raised.value.message
    assert "--batch-by step" in raised.value.hint and "--batch-by input" in raised.value.hint
    paths = [write("a.jsonl", rows("p", "p")), write("b.jsonl", rows("q", "q"))]
    with pytest.raises(DataError, match=r"there are 2 files; --batch-by file .*--batch-by input"):
        groups(paths, **options)


def test_each_way_to_say_the_batch(two_steps: Path) -> None:
    def batches(*paths: Path, **options: Any) -> list[int]:
        return look(*paths, scale="batch", **options).narrow.table["batch"].to_list()

    assert batches(two_steps, group="prompt_id,step", batch_by="step") == [0, 0, 1, 1]
    assert batches(two_steps, group="prompt_id,step", batch_by="input") == [0, 0, 0, 0]
    assert batches(two_steps, group="prompt_id,step", batch_by="file") == [0, 0, 0, 0]
    other = write("more.jsonl", rows("q", "q", step=[2, 2]))
    assert batches(two_steps, other, group="prompt_id,step", batch_by="file") == [0, 0, 0, 0, 1, 1]
    assert batches(two_steps, other, group="prompt_id,step", batch_by="step, file") == [0, 0, 1, 1, 2, 2]
    assert batches(two_steps, other, group="prompt_id,step", batch_by="step,input") == [0, 0, 1, 1, 1, 1]


def test_a_group_in_two_batches_is_refused(two_steps: Path) -> None:
    with pytest.raises(DataError) as raised:
        groups(two_steps, group_within="input", batch_by="step")
    assert "a group key (p) has rows in several batches of 'step'" in raised.value.message
    assert "add step to --group" in raised.value.hint and "--batch-by input" in raised.value.hint


def test_an_unknown_batch_column_is_named(two_steps: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'stop'.*did you mean 'step'"):
        groups(two_steps, scale="batch", batch_by="stop", group="prompt_id,step")


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
    assert None not in grpo_cli.advantages(frame([0.0, 1.0, 1.0], ["a", "b", "c"]), method=method).to_list()


def test_a_single_row_stops_the_run_and_one_larger_group_does_not() -> None:
    with pytest.raises(DataError, match="there is a single row: prompt_id may be an id of the rollout"):
        grpo_cli.advantages(frame([1.0]))
    assert grpo_cli.advantages(frame([1.0]), singleton="zero").to_list() == [0.0]
    assert grpo_cli.advantages(frame([1.0, 1.0, 1.0], ["a", "b", "b"])).to_list() == [0.0, 0.0, 0.0]


def test_messages_with_the_answers_are_not_called_prompts() -> None:
    asked, said = (
        [{"role": role, "content": f"{k // size}"} for k in range(8)] for role, size in (("user", 4), ("assistant", 1))
    )
    rows = [{"messages": [*turns], "reward": k % 2} for k, turns in enumerate(zip(asked, said, strict=True))]
    path = write("a.jsonl", rows)
    with pytest.raises(DataError, match="messages may contain the responses as well") as caught:
        look(path)
    assert "--group-size N" in caught.value.hint
    assert any("every group has a single reward" in verdict.lower() for verdict in verdicts(inspected(path).facts))


# --- the steps of reading, without a run ----------------------------------------------------------------------


def test_checks_are_asked_in_their_order_and_all_their_warnings_are_kept() -> None:
    samples = [0, 1, 1] + [0, 1, 2] * 3
    path = write("a.jsonl", rows(*"aaabbbcccaaa", sample_id=samples, step=[1] * 11 + [2]))
    assert "values of 'step'" in refused(path)
    warnings = look(path, group="prompt_id", group_within="input").facts["warnings"]
    assert [line.split(":")[0] for line in warnings] == [
        "3 rows repeat a sample_id inside their group",
        "a group key comes back in separate blocks of 3 rows",
    ]


def test_files_are_read_once_more_if_one_of_them_has_a_late_step(monkeypatch: pytest.MonkeyPatch) -> None:
    early = [{"prompt_id": at // 2, "reward": float(at % 2)} for at in range(20_000)]
    late = [{**row, "step": 7} if at in {9_000, 9_001} else row for at, row in enumerate(early)]
    tables = opened(write("a.jsonl", early), write("b.jsonl", late))
    asked: list[tuple[str, list[str]]] = []
    before = FileTable.scan

    def scan(table: FileTable, fields: Any) -> Any:
        asked.append((table.name.rpartition("/")[2], [field.name for field in fields]))
        return before(table, fields)

    monkeypatch.setattr(FileTable, "scan", scan)
    columns = read_columns(choose(layout(tables, Binding()), Plan()))
    assert asked == [
        ("a.jsonl", ["prompt_id", "reward"]),
        ("b.jsonl", ["prompt_id", "reward"]),
        ("a.jsonl", ["prompt_id", "reward"]),
        ("b.jsonl", ["prompt_id", "reward", "step"]),
    ]
    assert columns.lengths == (20_000, 20_000)
    assert columns.values["step"].is_not_null().arg_true().to_list() == [29_000, 29_001]


def test_a_late_step_is_read_beside_a_column_that_the_file_has() -> None:
    """A column of all files, an epoch, need not be in the file with the late step."""
    rows_there = [{"reward": float(at % 2)} for at in range(20_000)]
    late = [{**row, "step": 7} if at in {9_000, 9_001} else row for at, row in enumerate(rows_there)]
    first = write("a.jsonl", [{**row, "epoch": 1} for row in rows_there])
    tables = opened(first, write("b.jsonl", late))
    columns = read_columns(choose(layout(tables, Binding(group_size=4)), Plan()))
    assert columns.values["step"].is_not_null().arg_true().to_list() == [29_000, 29_001]
