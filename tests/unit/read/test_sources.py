"""Which columns are read: names in tiers, rewards and their components, extra columns, rows that cannot be scored."""

from __future__ import annotations

import math
from itertools import chain, product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from grpo_cli.read.known_names import GROUP_TIERS, REWARD_TIERS, SAMPLE_IDS
from tests.support.command import adv
from tests.support.drawn import some
from tests.support.jobs import NAN, frame, look, near, refused, write

INF = math.inf


def test_a_missing_length_is_named_if_the_file_has_one() -> None:
    Path("a.csv").write_text("uid,reward,response_length\n1,0,1\n1,1,2\n")
    Path("b.csv").write_text("uid,reward\n1,1\n")
    needs = "the plan needs response length.*--length-column {}; --length-column equal"
    with pytest.raises(UsageError, match=needs.format("response_length")):
        look("a.csv", method="opo")
    with pytest.raises(UsageError, match=needs.format("COLUMN")):
        look("b.csv", method="opo")


def test_a_schema_that_is_named_needs_no_column_of_logged_advantages() -> None:
    columns = {"prompt": "p", "completion": "c", "step": [0, 0, 1, 1], "acc": [0.0, 1.0, 0.0, 1.0], "form": 1.0}
    pl.DataFrame(columns).write_ndjson("a.jsonl")
    found = look("a.jsonl", schema="trl", method="dr-grpo")
    assert found.scored.rows[".advantage"].to_list() == [-0.5, 0.5, -0.5, 0.5]
    assert found.narrow.reward_names == ("acc", "form")


@pytest.mark.parametrize(("first", "second"), [("a.csv", "a.csv"), ("a.csv", "./b.csv"), ("*.csv", "*.csv")])
def test_a_file_that_is_named_twice_is_read_once_and_that_is_said(first: str, second: str) -> None:
    Path("a.csv").write_text("uid,reward\nx,0\nx,1\n")
    Path("b.csv").symlink_to("a.csv")
    facts = look(first, second).facts
    assert facts["rows"] == 2
    assert "named twice" in " ".join(facts["warnings"])


# --- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "reward"),
    some([*product(chain(*GROUP_TIERS), ["reward"]), *product(["uid"], chain(*REWARD_TIERS))], 3),
)
def test_a_key_and_a_reward_are_found_by_name_and_said(key: str, reward: str) -> None:
    Path("a.csv").write_text(f"{key},{reward}\nx,0\nx,1\n")
    narrow = look("a.csv").narrow
    assert narrow.key.columns == [key]
    assert narrow.reward_names == (reward,)
    assert narrow.notes[0].startswith(f"group = {key} (found by name")
    assert f"reward = {reward}" in narrow.notes


@pytest.mark.parametrize("tiers", [GROUP_TIERS, REWARD_TIERS], ids=["group", "reward"])
def test_a_name_of_an_earlier_tier_wins(tiers: tuple[tuple[str, ...], ...]) -> None:
    strong = tiers[0][0]
    weak = tiers[1][0]
    other = "reward" if tiers is GROUP_TIERS else "uid"
    pl.DataFrame({weak: [0, 1], strong: [1, 1], other: [1, 1]}).write_ndjson("a.jsonl")
    narrow = look("a.jsonl").narrow
    assert strong in {*narrow.key.columns, *narrow.reward_names}


@pytest.mark.parametrize(
    ("names", "listed", "keyword"),
    [
        ("prompt_id uid reward", "prompt_id, uid", "group=NAME"),
        ("prompt question reward", "prompt, question", "group=NAME"),
        ("uid score final_reward", "score, final_reward", "reward=NAME"),
        ("uid acc correct", "acc, correct", "reward=NAME"),
        ("a reward", "columns: a, reward", "group=NAME"),
        ("uid a", "columns: uid, a", "reward=NAME"),
    ],
)
def test_two_candidates_inside_a_tier_are_listed_and_without_one_all_columns(
    names: str, listed: str, keyword: str
) -> None:
    table = pl.DataFrame([pl.Series(name, [1, 1]) for name in names.split()])
    with pytest.raises(DataError) as raised:
        grpo_cli.advantages(table)
    assert listed in raised.value.message
    assert keyword in raised.value.hint


@pytest.mark.parametrize("option", ["group", "reward", "batch_by", "group_within"])
def test_a_column_that_is_not_there_is_refused_with_the_nearest(option: str) -> None:
    data = pl.DataFrame({"prompt_id": [1, 1], "reward": [0, 1], "score": [0, 1]})
    data.write_csv("a.csv")
    options: Any = {"group": "prompt_id", "scale": "batch", option: "scoer"}
    assert "no column 'scoer'; did you mean 'score'" in refused("a.csv", **options)
    with pytest.raises(DataError, match="frame: no column 'scoer'; did you mean 'score'"):
        grpo_cli.advantages(data, **options)


def test_names_are_those_of_all_files_together() -> None:
    Path("a.csv").write_text("prompt_id,reward\np,0\np,1\n")
    Path("b.csv").write_text("uid,reward\np,0\np,1\n")
    assert "several columns could be the group key: prompt_id, uid" in refused("a.csv", "b.csv")


@pytest.mark.parametrize("extra", ["step", "sample"])
def test_a_column_that_nobody_asked_for_may_be_missing_in_some_files(extra: str) -> None:
    Path("full.csv").write_text(f"prompt_id,reward,{extra}\np,0,0\np,0,0\n")
    Path("bare.csv").write_text("prompt_id,reward\nq,0\nq,1\n")
    for paths in (["full.csv", "bare.csv"], ["bare.csv", "full.csv"]):
        narrow = look(*paths).narrow
        assert narrow.lengths == (2, 2)
        assert len(narrow.warnings) == (1 if extra == "sample" else 0)


def test_a_file_or_frame_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="no rows"):
        grpo_cli.advantages(frame([1.0]).clear())
    assert "no rows" in refused(write("a.jsonl", []))


# --- rewards -----------------------------------------------------------------------------------------------


def two(a: list[Any], b: list[Any]) -> pl.DataFrame:
    return pl.DataFrame({"uid": 0, "a": pl.Series(a, dtype=pl.Float64), "b": pl.Series(b, dtype=pl.Float64)})


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
    zero: Any = {"reward": ["a", "b"], "component_missing": "zero"}
    assert centred(data, **zero, missing="exclude") == [-2.0, None, 2.0]
    assert centred(data, **zero, missing="as-zero") == near([-2 / 3, -8 / 3, 10 / 3])


def test_in_normalised_rewards_skip_and_zero_differ() -> None:
    data = two([0.0, 1.0, 1.0], [2.0, None, 4.0])
    options: Any = {"reward": ["a", "b"], "combine": "normalize", "method": "dr-grpo"}
    assert grpo_cli.advantages(data, **options).to_list() == near([-5 / 3, 1 / 3, 4 / 3])
    zeros = grpo_cli.advantages(data, **options, component_missing="zero").to_list()
    assert zeros == near([-2 / 3, -5 / 3, 7 / 3])


# --- rows that cannot be scored ----------------------------------------------------------------------------


@pytest.mark.parametrize(("odd", "message"), [(None, "null or missing"), (NAN, "nan"), (INF, "inf"), (-INF, "-inf")])
def test_a_row_without_a_finite_reward_stops_with_file_row_and_flag(odd: float | None, message: str) -> None:
    paths = (
        write("a.jsonl", [{"uid": 1, "reward": 0}]),
        write("b.jsonl", [{"uid": 2, "reward": r} for r in (0, odd, odd)]),
    )
    said = refused(*paths)
    assert f"b.jsonl:2: reward is {message}, expected a finite number (2 such rows)" in said
    assert "--missing exclude" in said


@pytest.mark.parametrize("odd", [None, NAN, INF, -INF])
def test_each_rule_for_a_missing_reward(odd: float | None) -> None:
    data = frame([2.0, 4.0, odd, 1.0, 3.0], [0, 0, 0, 1, 1])

    def advantages(rule: Any) -> list[float | None]:
        got = grpo_cli.compute(data, method="dr-grpo", missing=rule)
        assert got.status.to_list() == ["scored", "scored", "unscorable", "scored", "scored"]
        return got.advantages.to_list()

    assert advantages("exclude") == [-1, 1, None, -1, 1]
    assert advantages("zero") == [-1, 1, 0, -1, 1]
    assert advantages("as-zero") == [0, 2, -2, -1, 1]
    assert advantages("propagate") == near([NAN, NAN, NAN, -1, 1])


def test_a_group_without_any_reward_is_left_out_whole() -> None:
    data = frame([None, NAN, 1.0, 3.0], [0, 0, 1, 1])
    got = grpo_cli.compute(data, method="dr-grpo", missing="exclude")
    assert got.advantages.to_list() == [None, None, -1.0, 1.0]
    assert got.status.to_list()[:2] == ["unscorable", "unscorable"]
    assert got.groups["scored"].to_list() == [0, 2]
    assert got.groups["size"].to_list() == [2, 2]
    assert grpo_cli.advantages(data, method="dr-grpo", missing="as-zero").to_list() == [0.0, 0.0, -1.0, 1.0]


def test_a_reward_may_be_written_as_text_or_truth() -> None:
    assert grpo_cli.advantages(frame(["0.5", " 1.5 "]), method="dr-grpo").to_list() == [-0.5, 0.5]
    assert grpo_cli.advantages(frame([True, False]), method="dr-grpo").to_list() == [0.5, -0.5]
    with pytest.raises(DataError, match="frame row 2: reward is 'high', expected a number"):
        grpo_cli.advantages(frame(["0.5", "high"]))


# --- extra columns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "keyword"),
    [
        ("--method opo", "--length-column COLUMN"),
        ("--method remax", "--baseline-column COLUMN"),
        ("--method rank-penalty", "--logprob-column COLUMN"),
        ("--method reference", "--reference-column COLUMN"),
        ("--method step-wise", "--rollout COLUMN"),
        ("--method gigpo --rollout r", "--state-column COLUMN"),
        ("--kl-coef 0.1", "--kl-column COLUMN"),
        ("--overlong 100:10:1", "--length-column COLUMN"),
        ("--whiten token", "--length-column equal"),
        ("--rollout-reward mean", "--rollout COLUMN"),
        ("--set shape.truncated.factor=0", "--truncated-column COLUMN"),
    ],
)
def test_a_method_says_which_column_it_needs(options: str, keyword: str) -> None:
    Path("a.csv").write_text("prompt_id,reward\n0,0\n0,1\n")
    assert keyword in adv(f"compute a.csv {options}").err


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
    def warnings(*samples: Any) -> tuple[str, ...]:
        pl.DataFrame({"prompt_id": [0, 0, 0, 1, 1, 1], "reward": 0.0, name: samples}).write_ndjson("a.jsonl")
        return look("a.jsonl").narrow.warnings

    assert warnings(0, 1, 2, 0, 1, 2) == ()
    assert warnings(None, None, 1, 0, 1, 2) == ()
    (warning,) = warnings(0, 1, 1, 0, 0, 0)
    assert warning.startswith(f"3 rows repeat a {name} inside their group")


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        (
            "colour note_0 note_1 note_2 note_3 note_4 note_5 note_6 note_7 note_8 note_9 my_prompt my_score",
            "no column looks like the group key or the reward (columns: my_prompt, my_score, colour, note_0",
            "name them with --group NAME and --reward NAME",
        ),
        ("uid colour", "no column looks like the reward (columns: uid, colour)", "name it with --reward"),
        (
            "colour words",
            "no column looks like the group key or the reward (columns: colour, words)",
            "name them with --group NAME and --reward NAME; rows without a reward must be scored first",
        ),
    ],
    ids=["the likely columns first", "no reward", "no likely reward, nothing of the key"],
)
def test_everything_that_is_missing_is_one_error(names: str, message: str, hint: str) -> None:
    row = {name: 1.0 if name == "my_score" else "x" for name in names.split()}
    with pytest.raises(DataError) as error:
        look(write("a.jsonl", [row, row]))
    assert error.value.message.startswith(message)
    assert error.value.hint.startswith(hint)


def test_a_document_with_its_rows_inside_says_where_they_are() -> None:
    path = Path("a.json")
    path.write_text("""{
        "model": "m", "score": 0.5,
        "results": [{"prompt": "a", "ok_score": 1}, {"prompt": "a", "ok_score": 1}, {"prompt": "a", "ok_score": 1}]
    }""")
    said = refused(path)
    assert "the group key" in said
    assert "its results is a list of 3: --reward 'results[].NAME'" in said
    of_key = refused(path, group=["results"])
    assert "one row, and its key results is a list of objects; " in of_key
    assert "--reward 'results[].NAME'" in of_key


@pytest.mark.parametrize(
    ("key", "what"), [('["a", "b", "c"]', "a list"), ("[1, 2]", "a list"), ('{"a": 1}', "an object")]
)
def test_one_row_with_such_a_key_is_a_record_with_rows_inside(key: str, what: str) -> None:
    Path("a.jsonl").write_text(f'{{"prompt": {key}, "reward": 0.5}}\n')
    assert f"the file has one row, and its key prompt is {what}; the rows may be inside" in refused("a.jsonl")


def test_one_row_with_a_conversation_as_its_key_is_a_row() -> None:
    Path("a.jsonl").write_text('{"prompt": [{"role": "user", "content": "a"}], "reward": 1.0}\n')
    assert look("a.jsonl", singleton="zero").facts["groups"] == 1


def test_an_id_that_says_the_same_as_the_text_is_no_rival() -> None:
    columns = {"id": [1, 1, 2, 2], "prompt": ["p 1", "p 1", "p 2", "p 2"], "reward": [0, 1, 0, 1]}
    pl.DataFrame(columns).write_ndjson("a.jsonl")
    narrow = look("a.jsonl").narrow
    assert narrow.key.columns == ["prompt"]
    assert narrow.notes[0] == "group = prompt (found by name)"
    pl.DataFrame({**columns, "id": [1, 1, 1, 1]}).write_ndjson("b.jsonl")
    assert "several columns could be the group key: prompt, id" in refused("b.jsonl")


@pytest.mark.parametrize(("beside", "note"), [("conversation_id", ""), ("kind", ", no id beside it")])
def test_no_id_beside_a_text_is_said_only_where_it_is_true(beside: str, note: str) -> None:
    columns = {"prompt": ["p 1", "p 1", "p 2", "p 2"], beside: [1, 2, 3, 4], "reward": [0, 1, 0, 1]}
    pl.DataFrame(columns).write_ndjson("a.jsonl")
    assert look("a.jsonl").narrow.notes[0] == f"group = prompt (found by name{note})"


def test_a_file_of_metrics_beside_rollouts_is_named(tmp_path: Path) -> None:
    Path("rollouts.csv").write_text("prompt_id,reward\na,0\na,1\n")
    Path("metrics.csv").write_text("step,loss\n1,0.5\n")
    said = refused(tmp_path)
    assert "metrics.csv: no column 'prompt_id'; it is in 1 of 2 files, such as " in said
    assert "rollouts.csv: give only these" in said
