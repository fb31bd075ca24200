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
from grpo_cli.choosing.groups import Pick, pick_rows
from grpo_cli.errors import DataError, UnknownName, UsageError
from grpo_cli.options.resolve import normalized
from tests.support import jobs
from tests.support.command import adv
from tests.support.conditions import holds
from tests.support.drawn import some
from tests.support.jobs import rows_of, write
from tests.support.schema_files import WRITERS

GROUPS = {"half": [0, 1, 0, 1], "never": [0, 0], "always": [1, 1, 1], "rare": [0, 0, 0, 0, 1], "alone": [1]}
ROWS = [{"prompt_id": key, "i": i, "reward": r} for key, rewards in GROUPS.items() for i, r in enumerate(rewards)]


def selected(rows: list[Any] = ROWS, **options: Any) -> tuple[list[Any], Any]:
    """The rows that are left of a file, and what was said."""
    source = write("in.jsonl", rows)
    target = Path("out.jsonl")
    facts = jobs.selected(source, output=str(target), **options)
    return rows_of(target), facts


def keys(rows: list[Any]) -> list[str]:
    return list(dict.fromkeys(row["prompt_id"] for row in rows))


# --- groups ------------------------------------------------------------------------------------------------


def quantities(key: str, rewards: list[float]) -> Any:
    return {
        "prompt_id": key,
        "size": len(rewards),
        "scored": len(rewards),
        "mean": statistics.fmean(rewards),
        "solve_rate": statistics.fmean(rewards),
        "std": statistics.stdev(rewards) if len(rewards) > 1 else 0.0,
        "min": min(rewards),
        "max": max(rewards),
        "spread": max(rewards) - min(rewards),
        "constant": len(rewards) > 1 and len(set(rewards)) == 1,
    }


@pytest.mark.parametrize(
    "where",
    [
        "0.1 <= mean <= 0.9 and std > 0", "mean == 1 or size > 4", "not constant == 1",
        "constant == 0 and solve_rate < 0.5", "prompt_id == 'rare'", "prompt_id != 'rare' and spread > 0.2",
        "max == spread", "size > 100",
    ],
)  # fmt: skip
def test_the_groups_that_stay_are_those_for_which_the_condition_holds(where: str) -> None:
    rows, facts = selected(where=where)
    wanted = [key for key, rewards in GROUPS.items() if holds(where, quantities(key, [float(r) for r in rewards]))]
    assert rows == [row for row in ROWS if row["prompt_id"] in wanted]
    assert facts["kept_groups"] == len(wanted)
    assert facts["kept_rows"] == len(rows)
    assert sum(one["groups"] for one in facts["dropped"]) == len(GROUPS) - len(wanted)
    assert sum(one["rows"] for one in facts["dropped"]) == len(ROWS) - len(rows)


def test_each_group_is_dropped_for_the_first_reason_that_applies() -> None:
    _, facts = selected(where="0.1 <= mean <= 0.9 and std > 0.5", limit=1)
    shown = [(one["reason"], one["groups"], one["rows"], one["keys"]) for one in facts["dropped"]]
    assert shown == [
        ("0.1 <= mean is false", 1, 2, ["never"]),
        ("mean <= 0.9 is false", 2, 4, ["always", "alone"]),
        ("std > 0.5 is false", 1, 5, ["rare"]),
    ]
    assert facts["zero_variance_share"] == 0.5
    assert facts["kept_zero_variance_share"] == 0.0


def test_a_limit_keeps_the_first_groups_or_with_a_seed_a_random_sample() -> None:
    assert keys(selected(limit=2)[0]) == ["half", "never"]
    drawn = {tuple(keys(selected(limit=2, seed=seed, force=True)[0])) for seed in range(12)}
    assert len(drawn) > 3
    order = list(GROUPS)
    assert all(order.index(one) < order.index(other) for one, other in drawn)
    assert selected(limit=2, seed=5, force=True)[0] == selected(limit=2, seed=5, force=True)[0]


def test_rows_without_a_reward_stay_with_their_group() -> None:
    rows = [{"prompt_id": "a", "reward": r} for r in (0, None, 1)] + [{"prompt_id": "b", "reward": None}] * 2
    kept, _ = selected(rows, where="unscorable > 0 and scored == 2")
    assert kept == rows[:3]
    assert selected(rows, where="mean <= 1", force=True)[0] == rows[:3]  # no mean is in no range


def test_the_length_is_a_fact_too() -> None:
    rows = [{"prompt_id": k, "reward": 1, "tokens": n} for k, n in (("a", 1), ("a", 3), ("b", 9), ("b", 9))]
    assert keys(selected(rows, where="length < 3", length_column="tokens")[0]) == ["a"]


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


@given(groups=REWARDS, most=st.integers(1, 5))
def test_spread_keeps_the_rows_with_the_largest_variance(groups: list[list[float]], most: int) -> None:
    for rewards, kept in zip(groups, chosen(groups, most, "spread"), strict=True):
        assert len(kept) == min(most, len(rewards))
        best = max(statistics.pvariance(some) for some in itertools.combinations(rewards, len(kept)))
        assert statistics.pvariance(kept) == pytest.approx(best)


@given(groups=REWARDS, most=st.integers(1, 5), seed=st.integers(0, 9))
def test_a_random_choice_keeps_that_many_rows_and_depends_only_on_the_seed(
    groups: list[list[float]], most: int, seed: int
) -> None:
    kept = chosen(groups, most, "random", seed)
    assert [len(some) for some in kept] == [min(most, len(rewards)) for rewards in groups]
    assert kept == chosen(groups, most, "random", seed)


def test_every_row_has_the_same_chance() -> None:
    codes = np.zeros(4, dtype=np.uint32)
    values = np.arange(4.0)
    times = sum(pick_rows(codes, values, 2, "random", seed).astype(int) for seed in range(400))
    assert np.abs(np.asarray(times) - 200).max() < 60


def test_rows_without_a_reward_are_never_picked() -> None:
    rows = [{"prompt_id": "a", "reward": r} for r in (None, 0.5, None, 0.25)]
    kept, facts = selected(rows, per_group=3, pick="best")
    assert [row["reward"] for row in kept] == [0.5, 0.25]
    assert facts["dropped"] == [{"reason": "--per-group 3 (best)", "rows": 2}]


def test_of_equal_rewards_the_earlier_row_stays() -> None:
    for pick in ("best", "worst"):
        rows, _ = selected(where="constant == 1", per_group=1, pick=pick, force=True)
        assert [(row["prompt_id"], row["i"]) for row in rows] == [("never", 0), ("always", 0)]


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
    jobs.selected("in.jsonl", where="size == 2 and scored == 2", output="out.jsonl")
    lines = ODD.splitlines(keepends=True)
    assert Path("out.jsonl").read_bytes().removeprefix(b"\xef\xbb\xbf") == b"".join(lines[2:4])


def test_if_all_rows_are_kept_the_file_is_the_same() -> None:
    csv = b'prompt_id,"reward"\r\na, 1.0\r\n'
    for name, data in (("in.jsonl", ODD), ("in.csv", csv), ("in.jsonl.gz", gzip.compress(ODD, mtime=0))):
        Path(name).write_bytes(data)
        jobs.selected(name, limit=9, output=f"out.{name}")
        assert Path(f"out.{name}").read_bytes() == data


def test_a_record_of_csv_keeps_its_quotes() -> None:
    Path("in.csv").write_bytes(b'prompt_id,reward,"a b"\na,1,"x, ""y"""\nb,0,\nb,1.50,z\n')
    where = "std > 0 or prompt_id == 'a'"
    jobs.selected("in.csv", where=where, per_group=1, pick="best", output="out.csv")
    assert Path("out.csv").read_bytes() == b'prompt_id,reward,"a b"\na,1,"x, ""y"""\nb,1.50,z\n'


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_the_rows_of_a_table_keep_their_values_and_types(suffix: str) -> None:
    more = {"tags": pl.lit(["a", None]), "kind": pl.lit("x").cast(pl.Categorical), "raw": pl.lit(b"\x00")}
    frame = pl.DataFrame(ROWS).with_columns(pl.col("reward").cast(pl.Float32), **more)
    source = Path(f"in.{suffix}")
    target = Path(f"out.{suffix}")
    (frame.write_parquet if suffix == "parquet" else frame.write_ipc)(source)
    facts = jobs.selected(source, where="std > 0", output=str(target))
    assert facts["warnings"] == []  # rows that are left out were meant to be
    kept = frame.filter(pl.col("prompt_id").is_in(["half", "rare"]))
    found = (pl.read_parquet if suffix == "parquet" else pl.read_ipc)(target)
    assert found.equals(kept)
    assert found.schema == kept.schema
    if suffix == "parquet":
        assert pq.read_schema(target).equals(pq.read_schema(source))


def test_shards_stay_shards_and_one_may_be_left_empty() -> None:
    for shard in range(3):
        write(f"in/{shard}.jsonl", [{**row, "prompt_id": f"{shard}{row['prompt_id']}"} for row in ROWS])
    where = "prompt_id == '0half' or prompt_id == '2half'"
    facts = jobs.selected("in", where=where, output="out/")
    sizes = [len(rows_of(f"out/{shard}.jsonl")) for shard in range(3)]
    assert sizes == [4, 0, 4]
    assert facts["kept_rows"] == 8


def test_a_warning_says_that_no_row_is_left() -> None:
    rows, facts = selected(where="mean > 7")
    assert rows == []
    assert facts["warnings"] == ["no row is left"]


def test_without_a_name_the_output_is_beside_the_input_and_is_not_read_as_one() -> None:
    source = write("in.jsonl", ROWS)
    facts = jobs.selected(source, limit=1)
    assert facts["outputs"] == ["in.selected.jsonl"]
    again = jobs.selected(".", limit=1, force=True)
    assert again["inputs"] == [str(source)]
    assert any("skipped 1 file" in warning for warning in again["warnings"])


def test_meaningless_options_are_refused(tmp_path: Path) -> None:
    source = write("in.jsonl", ROWS)
    for options, facts in (
        ({}, "nothing says what to keep"),
        ({"limit": 0}, "--limit cannot be 0"),
        ({"per_group": -1}, "--per-group cannot be -1"),
        ({"where": "mean"}, "compares nothing; a condition compares facts of a group with numbers, as in '0.1 <= mean"),
        ({"where": "prompt_id > 3"}, "compares values of different types; prompt_id is a text"),
        ({"limit": 1, "seed": -1}, "--seed cannot be -1"),
    ):
        with pytest.raises(UsageError, match=facts):
            jobs.selected(source, **options)
    for unknown in ({"where": "sdt > 0"}, {"most": 99, "most_by": "sdt"}):  # there are fewer groups than 99
        with pytest.raises(UnknownName, match="did you mean 'std'"):
            jobs.selected(source, **unknown)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl"]


# --- layouts of other tools --------------------------------------------------------------------------------


def wide() -> tuple[Path, list[bytes]]:
    """A prompt a line, its rollouts in lists; the second prompt is always solved."""
    lines = [
        json.dumps({"uuid": key, "problem": f"what is {key}?", "generations": [f"{key} one", f"{key} two"],
                    "correctness_math_verify": list(solved), "is_reasoning_complete": [True, True]}).encode() + b"\n"
        for key, solved in (("a", (True, False)), ("b", (True, True)), ("c", (False, True)))
    ]  # fmt: skip
    path = Path("wide.jsonl")
    path.write_bytes(b"".join(lines))
    return path, lines


def test_a_line_with_a_whole_group_stays_as_it_is() -> None:
    source, lines = wide()
    facts = jobs.selected(source, where="std > 0", output="out.jsonl")
    assert facts["rows"] == 6
    assert facts["kept_rows"] == 4
    assert Path("out.jsonl").read_bytes() == lines[0] + lines[2]


def test_a_line_that_loses_some_of_its_rows_becomes_rows() -> None:
    source, _ = wide()
    facts = jobs.selected(source, per_group=1, pick="best", output="out.jsonl")
    assert [row["generations"] for row in rows_of("out.jsonl")] == ["a one", "b one", "c two"]
    assert "written as one line per row" in facts["warnings"][-1]


@pytest.mark.parametrize("name", some(sorted(WRITERS), 2))
def test_a_group_of_every_known_layout_can_be_chosen(name: str, tmp_path: Path) -> None:
    written = WRITERS[name](tmp_path)
    source = written.path
    target = tmp_path / "chosen" / source.name
    target.parent.mkdir()
    flags = dict(normalized(flag, value) for flag, value in written.flags.items())
    facts = jobs.selected(source, **flags, limit=1, output=f"{target}/" if source.is_dir() else str(target))
    assert facts["kept_groups"] == 1
    assert facts["kept_rows"] == written.sizes[0]
    assert facts["groups"] == len(written.sizes)


def test_runs_of_the_same_prompts_are_pooled() -> None:
    """pass@8 is a fact of eight rows, and each run has four."""
    for name, solved in (("a", 0), ("b", 2)):
        rows = [{"prompt_id": f"p{p}", "reward": int(p > 0 and k < solved)} for p in range(3) for k in range(4)]
        write(f"{name}.jsonl", rows)
    done = adv("select a.jsonl b.jsonl --group-within input --where 'pass@8 >= 0.5' -o out/ -q")
    assert done.status == 0
    assert done.err == ""
    assert {row["prompt_id"] for name in "ab" for row in rows_of(f"out/{name}.jsonl")} == {"p1", "p2"}


# --- several inputs, one file ------------------------------------------------------------------------------------


def _folder() -> None:
    """Two steps; the first file ends without a line end, and its lines are written in an odd way."""
    Path("run").mkdir()
    lines = b'{"prompt_id":"a",  "reward":0}\n{"prompt_id":"b","reward":1}\n{"reward":1.0, "prompt_id":"a"}'
    Path("run/step_1.jsonl").write_bytes(lines)
    lines = b'{"prompt_id":"c","reward":0,"text":"x"}\n{"prompt_id":"d","reward":2}\n{"prompt_id":"c","reward":3}\n'
    Path("run/step_2.jsonl.gz").write_bytes(gzip.compress(lines))


JOINED = [
    '{"prompt_id":"a",  "reward":0}', '{"reward":1.0, "prompt_id":"a"}',
    '{"prompt_id":"c","reward":0,"text":"x"}', '{"prompt_id":"c","reward":3}',
]  # fmt: skip


@pytest.mark.parametrize("to", ["-", "one.jsonl", "one.jsonl.gz"])
def test_the_lines_of_a_folder_go_into_one_file_unchanged(to: str) -> None:
    _folder()
    done = adv("select run --where 'std > 0' -o", to, "-q")
    assert done.status == 0
    assert done.err == ""
    written = done.out.encode() if to == "-" else Path(to).read_bytes()
    if to.endswith(".gz"):
        written = gzip.decompress(written)
    assert written.decode() == "\n".join(JOINED) + "\n"


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "json"])
def test_other_formats_have_the_columns_of_all_files_with_their_types(suffix: str) -> None:
    _folder()
    done = adv(f"select run --where 'std > 0' -o one.{suffix} --json")
    assert done.status == 0
    assert json.loads(done.out)["outputs"] == [f"one.{suffix}"]
    back = adv(f"select one.{suffix} --limit 9 -o back.jsonl -q")
    assert back.status == 0, back.err
    assert [(row["prompt_id"], float(row["reward"]), row.get("text") or None) for row in rows_of("back.jsonl")] == [
        ("a", 0, None), ("a", 1, None), ("c", 0, "x"), ("c", 3, None),
    ]  # fmt: skip


def test_columns_of_types_that_do_not_go_together_are_an_error_and_nothing_is_written() -> None:
    for step, value in ((1, [1, 2]), (2, [{"a": 1}, None])):
        frame = pl.DataFrame({"prompt_id": [step] * 2, "reward": [0.0, 1.0], "x": value})
        frame.write_parquet(f"{step}.parquet")
    done = adv("select 1.parquet 2.parquet --limit 9 -o one.parquet")
    assert done.status == 1
    assert not Path("one.parquet").exists()
    assert "x is Int64 and Struct({'a': Int64}) in different inputs; give -o FILE.jsonl" in done.err
    assert adv("select 1.parquet 2.parquet --limit 9 -o one.jsonl -q").status == 0


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        (pl.Series([1, 2**53]), pl.Series([0.5, None]), pl.Float64),
        (pl.Series([1, 2**53 + 1]), pl.Series([0.5, None]), None),
        (pl.Series([1, 2**63 - 1]), pl.Series([0.5, None]), None),
        (pl.Series([1, -1]), pl.Series([1, 2**64 - 1], dtype=pl.UInt64), None),
        (pl.Series([None, 0.1], dtype=pl.Float32), pl.Series([0.1, 1e300]), pl.Float64),
        (pl.Series([1, 2**40]), pl.Series([0.5, 2.0], dtype=pl.Float32), pl.Float64),
    ],
)
def test_numbers_of_two_types_keep_their_values_in_one_file_or_are_an_error(
    one: pl.Series, other: pl.Series, kept: type[pl.DataType] | None, tmp_path: Path
) -> None:
    for step, values in enumerate((one, other)):
        frame = pl.DataFrame({"prompt_id": [step] * 2, "reward": [0.0, 1.0], "x": values})
        frame.write_ipc(f"{step}.arrow")
    done = adv("select . --limit 9 -o one.arrow -q")
    if kept is None:
        assert done.status == 1
        assert not Path("one.arrow").exists()
        assert "in different inputs, and no type of number holds all its values; give -o FILE.jsonl" in done.err
        if one.dtype.is_integer() and other.dtype.is_integer():  # a frame has integers of 128 bits
            assert grpo_cli.select(Path("[01].arrow"), limit=9).frame["x"].to_list() == [*one, *other]
            return
        with pytest.raises(DataError, match="no type of number holds all its values"):
            grpo_cli.select(tmp_path, limit=9)
        return
    assert done.status == 0
    assert done.err == ""
    whole = pl.read_ipc("one.arrow")["x"]
    assert whole.dtype == kept
    assert whole.to_list() == [*one, *other] == grpo_cli.select(Path("[01].arrow"), limit=9).frame["x"].to_list()


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [({"a": 1}, {"b": 1}, [{"a": 1, "b": None}, {"a": None, "b": 1}]), ([1], [1.5], [[1.0], [1.5]])],
)
def test_other_types_of_lines_become_one_frame_in_python(one: Any, other: Any, both: list[Any], tmp_path: Path) -> None:
    for name, value in (("a", one), ("b", other)):
        write(f"{name}.jsonl", [{"prompt_id": name, "reward": k, "x": value} for k in range(2)])
    found = grpo_cli.select(tmp_path, limit=9).frame["x"]
    assert found.to_list() == [both[0]] * 2 + [both[1]] * 2


def test_one_of_the_inputs_is_not_the_output() -> None:
    _folder()
    done = adv("select run --limit 9 -o run/step_1.jsonl --force")
    assert done.status == 2
    assert "input" in done.err


def test_a_column_of_steps_is_a_fact_of_a_group_whose_rows_agree_on_it() -> None:
    rows = [
        {"prompt_id": key, "step": step, "reward": at % 2}
        for key, steps in {"a": (1, 1), "b": (2, 2), "c": (2, 3), "d": (3, 3)}.items()
        for at, step in enumerate(steps)
    ]

    def kept(**options: Any) -> list[str]:
        return keys(selected(rows, group_within="input", force=True, **options)[0])

    assert kept(where="step == 2") == ["b"]
    assert kept(where="step >= 2 and mean > 0") == ["b", "d"]
    assert kept(where="mean > 0", most=1, most_by="step") == ["d"]
    with pytest.raises(UnknownName, match="no fact of a group named 'stepp'"):
        kept(where="stepp == 2")
