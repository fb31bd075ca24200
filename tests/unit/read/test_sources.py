"""Which columns are read: names in tiers, rewards and their components, extra columns, rows that cannot be scored."""

from __future__ import annotations

import json
import math
from itertools import chain, product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from grpo_cli.read.known_names import GROUP_TIERS, REWARD_TIERS, SAMPLE_IDS
from tests.support.drawn import some
from tests.support.jobs import NAN, frame, look, near, refused, write

INF = math.inf


def table(*names: str, **columns: list[Any]) -> pl.DataFrame:
    """Two rows: these columns of small numbers, and others as given."""
    return pl.DataFrame({**{name: [1, 1] for name in names}, **columns})


def test_a_missing_length_is_named_if_the_file_has_one() -> None:
    rows = [{"uid": 1, "reward": r, "response_length": r + 1} for r in (0, 1)]
    with pytest.raises(
        UsageError, match=r"the plan needs response length.*--length-column response_length; --length-column equal"
    ):
        look(write("a.jsonl", rows), method="opo")
    with pytest.raises(
        UsageError, match=r"the plan needs response length.*--length-column COLUMN; --length-column equal"
    ):
        look(write("b.jsonl", [{"uid": 1, "reward": 1}]), method="opo")


def test_a_schema_that_is_named_needs_no_column_of_logged_advantages() -> None:
    rows = [{"prompt": "p", "completion": "c", "step": k // 2, "acc": k % 2 / 1, "form": 1.0} for k in range(4)]
    found = look(write("a.jsonl", rows), schema="trl", method="dr-grpo")
    assert found.scored.rows[".advantage"].to_list() == [-0.5, 0.5] * 2 and found.narrow.reward_names == ("acc", "form")


@pytest.mark.parametrize("names", [["a.jsonl", "a.jsonl"], ["a.jsonl", "./b.jsonl"], ["*.jsonl", "*.jsonl"]])
def test_a_file_that_is_named_twice_is_read_once_and_that_is_said(names: list[str]) -> None:
    path = write("a.jsonl", [{"uid": "x", "reward": r} for r in (0, 1)])
    Path("b.jsonl").symlink_to(path)
    facts = look(*(Path(name) for name in names)).facts
    assert facts["rows"] == 2 and "named twice" in " ".join(facts["warnings"])


# --- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "reward"),
    some([*product(chain(*GROUP_TIERS), ["reward"]), *product(["uid"], chain(*REWARD_TIERS))], 3),
)
def test_a_key_and_a_reward_are_found_by_name_and_said(key: str, reward: str) -> None:
    narrow = look(write("a.jsonl", [{key: "x", reward: r} for r in (0, 1)])).narrow
    assert (tuple(narrow.key.columns), narrow.reward_names) == ((key,), (reward,))
    assert narrow.notes[0].startswith(f"group = {key} (found by name") and f"reward = {reward}" in narrow.notes


@pytest.mark.parametrize("tiers", [GROUP_TIERS, REWARD_TIERS], ids=["group", "reward"])
def test_a_name_of_an_earlier_tier_wins(tiers: tuple[tuple[str, ...], ...]) -> None:
    strong, weak = tiers[0][0], tiers[1][0]
    other = "reward" if tiers is GROUP_TIERS else "uid"
    data = [{weak: i, strong: 1, other: 1} for i in range(2)]
    narrow = look(write("a.jsonl", data)).narrow
    assert strong in {*narrow.key.columns, *narrow.reward_names}


@pytest.mark.parametrize(
    ("names", "listed", "keyword"),
    [
        (("prompt_id", "uid", "reward"), "prompt_id, uid", "group=NAME"),
        (("prompt", "question", "reward"), "prompt, question", "group=NAME"),
        (("uid", "score", "final_reward"), "score, final_reward", "reward=NAME"),
        (("uid", "acc", "correct"), "acc, correct", "reward=NAME"),
        (("a", "reward"), "columns: a, reward", "group=NAME"),
        (("uid", "a"), "columns: uid, a", "reward=NAME"),
    ],
)
def test_two_candidates_inside_a_tier_are_listed_and_without_one_all_columns(
    names: tuple[str, ...], listed: str, keyword: str
) -> None:
    with pytest.raises(DataError) as raised:
        grpo_cli.advantages(table(*names))
    assert listed in raised.value.message and keyword in raised.value.hint


@pytest.mark.parametrize("option", ["group", "reward", "batch_by", "group_within"])
def test_a_column_that_is_not_there_is_refused_with_the_nearest(option: str) -> None:
    data = [{"prompt_id": 1, "reward": r, "score": r} for r in (0, 1)]
    options: Any = {"group": "prompt_id", "scale": "batch", option: "scoer"}
    assert "no column 'scoer'; did you mean 'score'" in refused(write("a.jsonl", data), **options)
    with pytest.raises(DataError, match="frame: no column 'scoer'; did you mean 'score'"):
        grpo_cli.advantages(pl.DataFrame(data), **options)


def test_names_are_those_of_all_files_together() -> None:
    first = write("a.jsonl", [{"prompt_id": "p", "reward": r} for r in (0, 1)])
    other = write("b.jsonl", [{"uid": "p", "reward": r} for r in (0, 1)])
    assert "several columns could be the group key: prompt_id, uid" in refused(first, other)


@pytest.mark.parametrize("extra", ["step", "sample"])
def test_a_column_that_nobody_asked_for_may_be_missing_in_some_files(extra: str) -> None:
    full = write("a.jsonl", [{"prompt_id": "p", "reward": r, extra: r} for r in (0, 0)])
    bare = write("b.jsonl", [{"prompt_id": "q", "reward": r} for r in (0, 1)])
    for paths in ([full, bare], [bare, full]):
        narrow = look(*paths).narrow
        assert narrow.lengths == (2, 2)
        assert len(narrow.warnings) == (1 if extra == "sample" else 0)


def test_a_file_or_frame_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="no rows"):
        grpo_cli.advantages(frame([1.0]).clear())
    assert "no rows" in refused(write("a.jsonl", []))


# --- rewards -----------------------------------------------------------------------------------------------


def two(a: list[Any], b: list[Any]) -> pl.DataFrame:
    return pl.DataFrame({"uid": [0] * len(a), "a": a, "b": b}, schema_overrides={"a": pl.Float64, "b": pl.Float64})


def centred(data: pl.DataFrame, **options: Any) -> list[float | None]:
    return list(grpo_cli.advantages(data, method="dr-grpo", **options))


def test_components_are_added_with_their_weights() -> None:
    data = two([1.0, 0.0], [0.0, 4.0])
    assert centred(data, reward=["a", "b"]) == [-1.5, 1.5]
    assert centred(data, reward=["a=2", "b=0.25"]) == [0.5, -0.5]
    assert centred(data, reward={"a": 1, "b": 0}) == [0.5, -0.5]
    assert centred(data, reward="a=-1") == [-0.5, 0.5]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reward": ["a=1", "a=2"]}, "'a' is named twice"),
        ({"reward": ["a", "b"], "set": "rewards.weights=1,2,3"}, "3 reward weights for 2 reward columns"),
    ],
)
def test_a_reward_column_is_named_once_with_one_weight(options: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        centred(two([1.0, 0.0], [0.0, 1.0]), **options)


@pytest.mark.parametrize("missing", [None, NAN, INF, -INF])
def test_a_missing_component_is_skipped_without_changing_the_other_weights(missing: float | None) -> None:
    data = two([1.0, 5.0], [1.0, missing])
    assert centred(data, reward=["a=1", "b=2"]) == [-1.0, 1.0]
    assert centred(data, reward=["a=1", "b=2"], component_missing="zero") == [-1.0, 1.0]


@pytest.mark.parametrize("missing", [None, NAN, INF])
def test_a_missing_component_may_take_the_whole_reward_away(missing: float | None) -> None:
    data = two([1.0, 5.0, 2.0], [1.0, missing, 0.0])
    with pytest.raises(DataError, match=r"row 2: a is 5\.0, b is .*, expected a finite number"):
        centred(data, reward=["a", "b"], component_missing="propagate")
    got = centred(data, reward=["a", "b"], component_missing="propagate", missing="exclude")
    assert got == [0.0, None, 0.0]


def test_a_row_without_any_component_is_not_scorable() -> None:
    data = two([1.0, None, 2.0], [1.0, None, 4.0])
    with pytest.raises(DataError, match="row 2: a is null or missing, b is null or missing"):
        centred(data, reward=["a", "b"])
    assert centred(data, reward=["a", "b"], missing="exclude") == [-2.0, None, 2.0]
    assert centred(data, reward=["a", "b"], missing="exclude", component_missing="zero") == [-2.0, None, 2.0]
    got = centred(data, reward=["a", "b"], missing="as-zero", component_missing="zero")
    assert got == pytest.approx([2 - 8 / 3, -8 / 3, 6 - 8 / 3])


def test_in_normalised_rewards_skip_and_zero_differ() -> None:
    data = two([0.0, 1.0, 1.0], [2.0, None, 4.0])
    options: Any = {"reward": ["a", "b"], "combine": "normalize", "method": "dr-grpo"}
    assert grpo_cli.advantages(data, **options).to_list() == pytest.approx([-2 / 3 - 1, 1 / 3, 1 / 3 + 1])
    zeros = grpo_cli.advantages(data, **options, component_missing="zero").to_list()
    assert zeros == pytest.approx([-2 / 3, 1 / 3 - 2, 1 / 3 + 2])


# --- rows that cannot be scored ----------------------------------------------------------------------------

ODD = [None, NAN, INF, -INF]


@pytest.mark.parametrize(("odd", "message"), [(None, "null or missing"), (NAN, "nan"), (INF, "inf"), (-INF, "-inf")])
def test_a_row_without_a_finite_reward_stops_with_file_row_and_flag(odd: float | None, message: str) -> None:
    paths = [
        write("a.jsonl", [{"uid": 1, "reward": 0}] * 2),
        write("b.jsonl", [{"uid": 2, "reward": r} for r in (0, odd, odd)]),
    ]
    with pytest.raises(DataError) as error:
        look(*paths)
    assert f"b.jsonl:2: reward is {message}, expected a finite number (2 such rows)" in error.value.message
    assert "--missing exclude" in error.value.hint


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("exclude", [-1.0, 1.0, None]),
        ("zero", [-1.0, 1.0, 0.0]),
        ("as-zero", [0.0, 2.0, -2.0]),
        ("propagate", [NAN, NAN, NAN]),
    ],
)
def test_each_rule_for_a_missing_reward(odd: float | None, rule: Any, wanted: list[float | None]) -> None:
    data = frame([2.0, 4.0, odd, 1.0, 3.0], [0, 0, 0, 1, 1])
    got = grpo_cli.compute(data, method="dr-grpo", missing=rule)
    assert got.advantages.to_list() == near([*wanted, -1.0, 1.0])
    assert got.status.to_list() == ["scored", "scored", "unscorable", "scored", "scored"]


def test_a_group_without_any_reward_is_left_out_whole() -> None:
    data = frame([None, NAN, 1.0, 3.0], [0, 0, 1, 1])
    got = grpo_cli.compute(data, method="dr-grpo", missing="exclude")
    assert got.advantages.to_list() == [None, None, -1.0, 1.0]
    assert got.status.to_list()[:2] == ["unscorable", "unscorable"]
    assert got.groups["scored"].to_list() == [0, 2] and got.groups["size"].to_list() == [2, 2]
    assert grpo_cli.advantages(data, method="dr-grpo", missing="as-zero").to_list() == [0.0, 0.0, -1.0, 1.0]


def test_a_reward_may_be_written_as_text_or_truth() -> None:
    assert grpo_cli.advantages(frame(["0.5", " 1.5 "]), method="dr-grpo").to_list() == [-0.5, 0.5]
    assert grpo_cli.advantages(frame([True, False]), method="dr-grpo").to_list() == [0.5, -0.5]
    with pytest.raises(DataError, match="frame row 2: reward is 'high', expected a number"):
        grpo_cli.advantages(frame(["0.5", "high"]))


# --- extra columns -----------------------------------------------------------------------------------------

NEEDS = [
    ({"method": "opo"}, "length_column=COLUMN"),
    ({"method": "remax"}, "baseline_column=COLUMN"),
    ({"method": "rank-penalty"}, "logprob_column=COLUMN"),
    ({"method": "reference"}, "reference_column=COLUMN"),
    ({"method": "step-wise"}, "rollout=COLUMN"),
    ({"method": "gigpo", "rollout": "r"}, "state_column=COLUMN"),
    ({"kl_coef": 0.1}, "kl_column=COLUMN"),
    ({"overlong": "100:10:1"}, "length_column=COLUMN"),
    ({"whiten": "token"}, "length_column equal"),
    ({"rollout_reward": "mean"}, "rollout=COLUMN"),
    ({"set": "shape.truncated.factor=0"}, "truncated_column=COLUMN"),
]


@pytest.mark.parametrize(("options", "keyword"), NEEDS, ids=str)
def test_a_method_says_which_column_it_needs(options: Any, keyword: str) -> None:
    with pytest.raises(UsageError) as raised:
        grpo_cli.advantages(frame([0.0, 1.0]), **options)
    assert keyword in raised.value.hint


@pytest.mark.parametrize(("value", "word"), [(None, "null"), (NAN, "not finite"), (float("inf"), "not finite")])
def test_an_extra_column_is_complete(value: float | None, word: str) -> None:
    data = frame([0.0, 1.0, 1.0], length=[4.0, value, 2.0])
    with pytest.raises(DataError) as raised:
        grpo_cli.advantages(data, method="opo", length_column="length")
    assert raised.value.message == f"frame row 2: length is {word}"
    assert "response length" in raised.value.hint


def test_an_extra_column_has_numbers() -> None:
    wrong = "frame row 2: length is 'long', expected a number; name a column of numbers; map=TEXT=NUMBER,"
    with pytest.raises(DataError, match=wrong):
        grpo_cli.advantages(frame([0.0, 1.0], length=["4", "long"]), method="opo", length_column="length")


def test_length_column_equal_reads_no_column_of_that_name() -> None:
    data = frame([0.0, 1.0], equal=[1.0, 99.0])
    assert grpo_cli.advantages(data, method="opo", length_column="equal").to_list() == [-0.5, 0.5]


def test_a_column_may_play_two_parts() -> None:
    data = frame([1.0, 3.0])
    assert grpo_cli.advantages(data, method="remax", baseline_column="reward").to_list() == [0.0, 0.0]


# --- duplicates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLE_IDS)
def test_rows_that_repeat_a_sample_of_their_group_are_counted_and_warned_about(name: str) -> None:
    def warnings(samples: list[Any]) -> tuple[str, ...]:
        data = [{"prompt_id": i // 3, "reward": 0.0, name: sample} for i, sample in enumerate(samples)]
        return look(write("a.jsonl", data)).narrow.warnings

    assert warnings([0, 1, 2, 0, 1, 2]) == ()
    (warning,) = warnings([0, 1, 1, 0, 0, 0])
    assert warning.startswith(f"3 rows repeat a {name} inside their group")


def test_a_sample_id_that_is_missing_repeats_nothing() -> None:
    data = [{"prompt_id": 0, "reward": 0.0, "sample": sample} for sample in (None, None, 1)]
    assert look(write("a.jsonl", data)).narrow.warnings == ()


@pytest.mark.parametrize(
    ("row", "message", "hint"),
    [
        (
            {"colour": "red", **{f"note_{i}": "x" for i in range(20)}, "my_prompt": "a", "my_score": 1.0},
            "no column looks like the group key or the reward (columns: my_prompt, my_score, colour, note_0",
            "name them with --group NAME and --reward NAME",
        ),
        ({"uid": "x", "colour": "red"}, "no column looks like the reward (columns: uid, colour)", "name it with --reward"),
        (
            {"colour": "red", "words": "x"},
            "no column looks like the group key or the reward (columns: colour, words)",
            "name them with --group NAME and --reward NAME; rows without a reward must be scored first",
        ),
    ],
    ids=["the likely columns first", "no reward", "no likely reward, nothing of the key"],
)  # fmt: skip
def test_everything_that_is_missing_is_one_error(row: Any, message: str, hint: str) -> None:
    with pytest.raises(DataError) as error:
        look(write("a.jsonl", [row, row]))
    assert error.value.message.startswith(message) and error.value.hint.startswith(hint)


def test_a_document_with_its_rows_inside_says_where_they_are() -> None:
    record = {"model": "m", "score": 0.5, "results": [{"prompt": "a", "ok_score": 1}] * 3}
    path = Path("a.json")
    path.write_text(json.dumps(record, indent=1))
    reads = r"--reward 'results\[\]\.NAME'"
    with pytest.raises(DataError, match=rf"the group key .*its results is a list of 3: {reads}"):
        look(path)
    with pytest.raises(DataError, match=rf"one row, and its key results is a list of objects; .*{reads}"):
        look(path, group=["results"])


@pytest.mark.parametrize(
    ("key", "what"), [(["a", "b", "c"], "a list"), ([1, 2], "a list"), ({"a": 1}, "an object")], ids=str
)
def test_one_row_with_such_a_key_is_a_record_with_rows_inside(key: Any, what: str) -> None:
    said = f"the file has one row, and its key prompt is {what}; the rows may be inside"
    with pytest.raises(DataError, match=said):
        look(write("a.jsonl", [{"prompt": key, "reward": 0.5}]))


def test_one_row_with_a_conversation_as_its_key_is_a_row() -> None:
    row = {"prompt": [{"role": "user", "content": "a"}], "reward": 1.0}
    assert look(write("a.jsonl", [row]), singleton="zero").facts["groups"] == 1


def test_an_id_that_says_the_same_as_the_text_is_no_rival() -> None:
    rows = [{"id": at // 2, "prompt": f"p {at // 2}", "reward": at % 2} for at in range(8)]
    narrow = look(write("a.jsonl", rows)).narrow
    assert narrow.key.columns == ["prompt"] and narrow.notes[0] == "group = prompt (found by name)"
    assert "several columns could be the group key: prompt, id" in refused(
        write("b.jsonl", [{**row, "id": at // 4} for at, row in enumerate(rows)])
    )


@pytest.mark.parametrize(("beside", "note"), [("conversation_id", ""), ("kind", ", no id beside it")])
def test_no_id_beside_a_text_is_said_only_where_it_is_true(beside: str, note: str) -> None:
    rows = [{"prompt": f"p {at // 2}", beside: at, "reward": at % 2} for at in range(8)]
    assert look(write("a.jsonl", rows)).narrow.notes[0] == f"group = prompt (found by name{note})"


def test_a_file_of_metrics_beside_rollouts_is_named(tmp_path: Path) -> None:
    write("rollouts.jsonl", [{"prompt_id": "a", "reward": at} for at in range(2)])
    write("metrics.jsonl", [{"step": 1, "loss": 0.5}])
    said = r"metrics\.jsonl: no column 'prompt_id'; it is in 1 of 2 files, such as .*rollouts\.jsonl: give only these"
    with pytest.raises(DataError, match=said):
        look(tmp_path)
