"""Rows that are marked as masked or failed: what a mark may look like, and what is said of columns that look like marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from tests.support.command import adv
from tests.support.drawn import paired
from tests.support.jobs import look, refused, write
from tests.support.schema_files import WRITERS, chat, lines

MASKED = "masked"


def frame(marks: Sequence[Any], name: str = "mark", **options: Any) -> pl.DataFrame:
    """Rows of one group, none of which is like another."""
    values = pl.Series(name, marks, strict=False, **options)
    return pl.DataFrame(
        {"prompt_id": ["a"] * len(marks), "reward": [float(i) for i in range(len(marks))], name: values}
    )


def in_file(marks: Sequence[Any], name: str = "mark") -> Path:
    return write("x.jsonl", [{"prompt_id": "a", "reward": i, name: mark} for i, mark in enumerate(marks)])


def marked(statuses: Iterable[Any]) -> list[int]:
    """The places of the rows that are masked."""
    return [at for at, status in enumerate(statuses) if status == MASKED]


# --- what marks a row ----------------------------------------------------------------------------------------------

# Without a value, a word for true or something that is not empty marks a row; a value those that equal it.
MARKS: list[tuple[list[Any], str, list[int]]] = [
    ([True, False, None, True], "", [0, 3]),
    ([1, 0, 0, 1], "", [0, 3]),
    (["404", "timed out", None, ""], "", [0, 1]),
    ([1.0, 0.0, float("nan"), -0.0], "", [0]),
    (["true", "false", "", "True"], "", [0, 3]),
    (["YES", "no", None, "y"], "", [0, 3]),
    (["on", "off", "T", "F"], "", [0, 2]),
    (["1", "0", "1.0", "0.0"], "", [0, 2]),
    ([" true", "false ", "no ", "no"], "", [0]),
    (["timed out after 60 s", "", None, "out of memory"], "", [0, 3]),
    (["nan", "None", "null", "x"], "", [3]),
    ([["boom"], [], None, ["a", "b"]], "", [0, 3]),
    (["[]", '["boom"]', "{}", ""], "", [1]),
    ([{"type": "Timeout"}, None, None, None], "", [0]),
    ([0.0, 1.0, 0.0, 1.0], "=0", [0, 2]),
    ([0, 1, 0, 1], "=0.0", [0, 2]),
    (["0", "1", "00", "x"], "=0", [0, 2]),
    ([True, False, False, False], "=true", [0]),
    ([True, False, False, False], "=True", [0]),
    ([True, False, False, False], "=1", [0]),
    ([True, False, True, True], "=0", [1]),
    ([1, 0, 0, 0], "=true", [0]),
    (["timeout", "oom", None, "Timeout"], "=timeout", [0]),
    (["timeout", "oom", None, ""], "=", [2, 3]),
    (["a=b", "a", "b", ""], "=a=b", [0]),
    ([["oom"], [], ["oom", "x"], None], '=["oom"]', [0]),
    ([1.0, float("nan"), 2.0, 3.0], "=nan", [1]),
]


@pytest.mark.parametrize(("marks", "value", "places"), MARKS)
def test_a_mark_is_read_however_it_is_written(marks: list[Any], value: str, places: list[int]) -> None:
    of_frame = grpo_cli.compute(frame(marks), masked_column=f"mark{value}").status
    of_file = look(in_file(marks), masked_column=f"mark{value}").scored.rows[".status"]
    assert marked(of_frame) == marked(of_file) == places


@pytest.mark.parametrize("kind", [pl.Categorical(), pl.Enum(["", "oom"]), pl.String()])
def test_a_mark_may_be_a_category(kind: Any) -> None:
    frame(["oom", "", "", "oom"], dtype=kind).write_parquet("x.parquet")
    assert marked(look("x.parquet", masked_column="mark").scored.rows[".status"]) == [0, 3]


def test_a_mark_may_be_inside_of_an_object() -> None:
    path = in_file([{"bad": True}, {"bad": False}, {}, None], "info")
    assert marked(look(path, masked_column="info.bad").scored.rows[".status"]) == [0]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_in_a_record_with_lists_a_mark_is_a_list_or_a_value_for_all(suffix: str) -> None:
    rows = [
        {"prompt": "a", "rewards": [1.0, 0.0, 0.5], "completions": ["x", "y", "z"], "cut": [0, 1, 0], "failed": False},
        {"prompt": "b", "rewards": [1.0, 0.0], "completions": ["x", "y"], "cut": [0, 0], "failed": True},
    ]
    path = write(f"x{suffix}", rows)
    seen = look(path, masked_column="cut", left_out_column="failed")
    assert [*seen.scored.rows[".status"]] == ["scored", "masked", "scored", "left-out", "left-out"]
    rows[1]["cut"] = [0, 0, 1]
    assert "cut has 3 values, rewards 2" in refused(write(f"y{suffix}", rows), masked_column="cut")


def test_the_reward_itself_may_be_the_mark() -> None:
    done = grpo_cli.compute(frame([0, 0, 0, 0]), left_out_column="reward=3")
    assert done.advantages.to_list() == pytest.approx([-1, 0, 1, None], abs=1e-5)


def test_a_row_with_two_marks_is_left_out() -> None:
    rows = frame([1, 1, 0, 0]).with_columns(failed=pl.Series(["", "oom", "oom", ""]))
    done = grpo_cli.compute(rows, masked_column="mark", left_out_column="failed")
    assert done.status.to_list() == ["masked", "left-out", "left-out", "scored"]


def test_a_judge_that_failed_is_no_rollout_even_where_failed_rows_vote() -> None:
    def trace(reward: float, *, ok: bool, trainable: bool) -> Any:
        scored = {"correct": {"score": reward, "weight": 1.0}}
        return {"agent": {"name": "a", "trainable": trainable}, "nodes": [], "rewards": scored, "ok": ok, "errors": []}

    about = {"group": {"id": "g"}, "run": {"work": {"step": 1}}, "task": {"type": "math", "key": "k"}}
    episodes = [
        {**about, "traces": [trace(1.0, ok=True, trainable=True), trace(0.5, ok=False, trainable=False)]},
        {**about, "traces": [trace(0.0, ok=False, trainable=True), trace(0.5, ok=True, trainable=False)]},
        {**about, "traces": [trace(0.0, ok=True, trainable=True)]},
    ]
    path = lines("step_1/train/effective/traces.jsonl", episodes)
    done = adv(f"compute {path} -o - --long --facts --masked-rows vote --scale none")
    assert [(row["advantage"], row["advantage_status"]) for row in done.rows] == [
        (pytest.approx(2 / 3), "scored"),
        (None, "not-a-rollout"),
        (pytest.approx(-1 / 3), "masked"),
        (None, "not-a-rollout"),
        (pytest.approx(-1 / 3), "scored"),
    ]


# --- marks that say nothing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marks", "shown"),
    [
        (["timeout", "true", "", "x"], "timeout, true, empty, ..."),
        ([2, 0, 1, 0], "2, 0, 1"),
        ([0.5, 0.0, 0.0, 0.0], "0.5, 0"),
        ([2, None, 3, None], "2, empty, 3"),
        (["1", "0", "2", ""], "1, 0, 2, ..."),
    ],
)
def test_what_is_neither_true_nor_false_is_refused_with_three_values(marks: list[Any], shown: str) -> None:
    with pytest.raises(DataError) as caught:
        look(in_file(marks), left_out_column="mark")
    assert str(caught.value) == (
        f"mark is neither true nor false in every row ({shown}); "
        "--left-out-column mark=VALUE names the value that marks a row"
    )


@pytest.mark.parametrize(
    ("marks", "flag", "said"),
    [
        ([1, 1], "mark", "mark in every row (1)"),
        (["a", "b"], "mark", "mark in every row (a, b)"),
        ([0, 0], "mark=0", "mark is 0 in every row (0)"),
    ],
)
def test_a_mark_of_every_row_is_refused(marks: list[Any], flag: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        look(in_file(marks), masked_column=flag)
    assert str(caught.value) == (
        f"--masked-column: {said}; --masked-column mark=VALUE names the value that marks a row"
    )


def test_in_a_stream_all_rows_of_a_block_may_be_marked() -> None:
    rows = "".join(f'{{"prompt_id":"{key}","reward":{i},"bad":{int(key == "a")}}}\n' for key in "ab" for i in range(2))
    options = ["--group", "prompt_id", "--left-out-column", "bad"]
    done = adv("compute - --stream --facts", *options, stdin=rows)
    assert [row["advantage_status"] for row in done.rows] == ["left-out", "left-out", "scored", "scored"]


def test_a_value_that_no_row_has_is_named() -> None:
    seen = look(in_file(["timeout", None, "oom", None]), left_out_column="mark=timout")
    assert seen.facts["warnings"] == ["--left-out-column: mark is timout in no row (timeout, empty, oom)"]
    assert marked(seen.scored.rows[".status"]) == []


def test_a_mark_that_is_false_in_every_row_is_no_mistake() -> None:
    assert look(in_file([False, False]), masked_column="mark").facts["warnings"] == []


@pytest.mark.parametrize("rule", ["vote", "exclude"])
def test_how_masked_rows_count_says_nothing_where_none_are_masked(rule: str) -> None:
    with pytest.raises(UsageError, match="--masked-rows says how masked rows count, and nothing marks any"):
        look(in_file([1, 0]), masked_rows=rule)


def test_a_mark_needs_a_column_that_is_there() -> None:
    assert "no column 'marks'; did you mean 'mark'" in refused(in_file([1, 0]), masked_column="marks")
    with pytest.raises(UsageError, match="--masked-column '=1' names no column"):
        look(in_file([1, 0]), masked_column="=1")


# --- flags and schemas ---------------------------------------------------------------------------------------------


def statuses(path: Path, options: str = "") -> list[str]:
    done = adv(f"compute {path} -o - --facts {options}")
    assert done.status == 0, done.err
    values = [row["advantage_status"] for row in done.rows]
    return [value[0] if isinstance(value, list) else value for value in values]


def test_a_flag_replaces_what_the_schema_says_of_its_column(tmp_path: Path) -> None:
    path = WRITERS["slime"](tmp_path).path
    assert statuses(path) == ["scored", "scored", "unscorable", "scored", "masked", "scored"]
    left_out = statuses(path, "--left-out-column remove_sample")
    assert left_out == ["scored", "scored", "unscorable", "scored", "left-out", "scored"]
    aborted = statuses(path, "--left-out-column status=aborted")
    assert aborted == ["scored", "scored", "unscorable", "left-out", "masked", "scored"]


# --- columns that look like marks, and are not read ----------------------------------------------------------------

UNREAD: dict[str, tuple[list[Any], str, str]] = {
    "mask_sample": ([True, False, None], "mask_sample", "mask_sample"),
    "remove_sample": ([1, 0, 0], "remove_sample", "remove_sample"),
    "is_masked": (["yes", "no", "no"], "is_masked", "is_masked"),
    "sample_loss_mask": ([0.0, 1.0, 1.0], "sample_loss_mask is 0", "sample_loss_mask=0"),
    "failure_kind": (["oom", None, None], "failure_kind", "failure_kind"),
    "failure_reason": (["oom", "", ""], "failure_reason", "failure_reason"),
    "error": ([{"type": "Timeout"}, None, None], "error", "error"),
    "errors": ([["boom"], [], []], "errors", "errors"),
    "has_error": ([True, False, False], "has_error", "has_error"),
    "is_truncated": (["true", "false", "false"], "is_truncated", "is_truncated"),
    "finish_reason": (["ABORT", "stop", "length"], "finish_reason is ABORT", "finish_reason=ABORT"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_column_that_looks_like_a_mark_is_named_with_flags_that_read_it(name: str) -> None:
    marks, words, flag = UNREAD[name]
    path = in_file(marks, name)
    cures = (
        f"--left-out-column {flag} leaves them out of their groups; --masked-column {flag} marks them as not trained on"
    )
    assert look(path).facts["warnings"] == [f"{words} in 1 of 3 rows, which count like all others: {cures}"]
    for kind in ("masked_column", "left_out_column"):
        read = look(path, **{kind: flag})
        assert read.facts["warnings"] == []
        assert [line["rows"] for line in read.facts["marks"]] == [1]


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        *paired(UNREAD, [[None] * 3, [False] * 3, [""] * 3]),
        ("finish_reason", ["stop", "length", "stop"]),
        ("finish_reason", ["stop", "tool_calls", None]),
        ("sample_loss_mask", [1.0, 1.0, 1.0]),
        ("error", [0.25, 0.5, 0.0]),
        ("error", [0.25, None, 0.5]),
        ("errors", [0, 3, 1]),
        ("failure_reason", ["none", None, ""]),
        ("is_masked", ["maybe", "no", "yes"]),
    ],
)
def test_nothing_is_said_of_a_column_that_marks_nothing(name: str, marks: list[Any]) -> None:
    assert look(in_file(marks, name)).facts["warnings"] == []


def test_of_several_failed_ends_the_first_is_counted_and_named() -> None:
    path = in_file(["stop", "error", "abort", "error"], "finish_reason")
    assert look(path).facts["warnings"][0].startswith("finish_reason is error in 2 of 4 rows")


def test_nothing_is_said_of_a_column_that_is_read_for_something_else() -> None:
    rows: list[Any] = [
        {"prompt_id": "a", "reward": i, "is_truncated": i == 1, "errors": [i], "has_error": i % 2} for i in range(4)
    ]
    path = write("x.jsonl", rows)
    found = look(
        path, group=["prompt_id", "has_error"], set=["shape.truncated.factor=0.5"], truncated_column="is_truncated"
    )
    assert found.facts["warnings"] == []


def test_nothing_is_said_of_a_reason_that_a_known_tool_gives_of_real_zeros() -> None:
    rows: list[Any] = [
        {"responses_create_params": {}, "response": {}, "reward": float(k), "_ng_task_index": t, "_ng_rollout_index": k,
         "failure_reason": "none" if k else "no_sql_extracted"}
        for k in (0, 1) for t in range(3)
    ]  # fmt: skip
    assert look(write("out.jsonl", rows)).facts["warnings"] == []


def test_nothing_is_said_of_responses_that_a_known_tool_cut_off() -> None:
    rows = [
        {"example_id": e, "prompt": chat("q"), "completion": chat("c"), "answer": "4", "reward": float(k), "is_truncated": k == 1}
        for e in (0, 1) for k in (0, 1)
    ]  # fmt: skip
    assert look(write("results.jsonl", rows)).facts["warnings"] == []
