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
from grpo_cli.read.known_names import GROUP_TIERS, LAST_REWARDS, REWARD_TIERS, SAMPLE_IDS
from tests.support.command import adv
from tests.support.drawn import some
from tests.support.jobs import NAN, frame, look, near, refused, write

INF = math.inf


def made(text: str, name: str = "a.csv") -> str:
    """A file with this text."""
    Path(name).write_text(text)
    return name


def lines(text: str) -> list[list[str]]:
    """The parts of each line, between bars."""
    return [[part.strip() for part in line.split(" | ")] for line in text.strip().splitlines()]


def test_a_missing_length_is_named_if_the_file_has_one() -> None:
    needs = "the plan needs response length.*--length-column {}; --length-column equal"
    with pytest.raises(UsageError, match=needs.format("response_length")):
        look(made("uid,reward,response_length\n1,0,1\n1,1,2\n"), method="opo")
    with pytest.raises(UsageError, match=needs.format("COLUMN")):
        look(made("uid,reward\n1,1\n"), method="opo")


def test_a_schema_that_is_named_needs_no_column_of_logged_advantages() -> None:
    rows = pl.read_csv(b"prompt,completion,step,acc,form\np,c,0,0.0,1.0\np,c,0,1.0,1.0\np,c,1,0.0,1.0\np,c,1,1.0,1.0\n")
    rows.write_ndjson("a.jsonl")
    found = look("a.jsonl", schema="trl", method="dr-grpo")
    assert found.scored.rows[".advantage"].to_list() == [-0.5, 0.5, -0.5, 0.5]
    assert found.narrow.reward_names == ("acc", "form")


@pytest.mark.parametrize(("first", "second"), [("a.csv", "a.csv"), ("a.csv", "./b.csv"), ("*.csv", "*.csv")])
def test_a_file_that_is_named_twice_is_read_once_and_that_is_said(first: str, second: str) -> None:
    Path("b.csv").symlink_to(made("uid,reward\nx,0\nx,1\n"))
    facts = look(first, second).facts
    assert facts["rows"] == 2
    assert "named twice" in " ".join(facts["warnings"])


# --- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "reward"),
    some([*product(chain(*GROUP_TIERS), ["reward"]), *product(["uid"], chain(*REWARD_TIERS, LAST_REWARDS))], 3),
)
def test_a_key_and_a_reward_are_found_by_name_and_said(key: str, reward: str) -> None:
    narrow = look(made(f"{key},{reward}\nx,0\nx,1\n")).narrow
    assert narrow.key.columns == [key]
    assert narrow.reward_names == (reward,)
    assert narrow.notes[0].startswith(f"group = {key} (found by name")
    assert f"reward = {reward}" in narrow.notes


@pytest.mark.parametrize("text", ["prompt,prompt_id,reward\n0,1,1\n0,1,1\n", "rewards,reward,uid\n0,1,1\n1,1,1\n"])
def test_a_name_of_an_earlier_tier_wins(text: str) -> None:
    narrow = look(made(text)).narrow
    _, strong, _ = text.splitlines()[0].split(",")
    assert strong in {*narrow.key.columns, *narrow.reward_names}


@pytest.mark.parametrize("name", ["passed", "success", "result"])
@pytest.mark.parametrize(
    ("truths", "found"),
    [(["true", "false"], True), (["1", "0.5"], True), (["ok", "1"], False), (["ok", "bad"], False), (["", ""], False)],
)
def test_a_column_that_is_often_something_else_is_the_reward_if_it_has_numbers(
    name: str, truths: list[str], *, found: bool
) -> None:
    path = made(f"uid,{name}\nx,{truths[0]}\nx,{truths[1]}\n")
    if found:
        assert look(path).narrow.reward_names == (name,)
    else:
        with pytest.raises(DataError, match="no column looks like the reward"):
            look(path)


def test_a_better_name_wins_over_those_that_are_often_something_else() -> None:
    assert look(made("uid,success,passed,solved\nx,1,1,0\nx,0,0,1\n")).narrow.reward_names == ("solved",)


CANDIDATES = """
prompt_id,uid,reward     | prompt_id, uid      | group=NAME
prompt,question,reward   | prompt, question    | group=NAME
uid,score,final_reward   | score, final_reward | reward=NAME
uid,acc,correct          | acc, correct        | reward=NAME
uid,passed,accuracy      | passed, accuracy    | reward=NAME
a,reward                 | columns: a, reward  | group=NAME
uid,a                    | columns: uid, a     | reward=NAME
"""


@pytest.mark.parametrize(("names", "listed", "keyword"), lines(CANDIDATES))
def test_two_candidates_inside_a_tier_are_listed_and_without_one_all_columns(
    names: str, listed: str, keyword: str
) -> None:
    row = "1," * names.count(",") + "1"
    table = pl.read_csv(f"{names}\n{row}\n{row}\n".encode())
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
    first = made("prompt_id,reward\np,0\np,1\n")
    second = made("uid,reward\np,0\np,1\n", "b.csv")
    assert "several columns could be the group key: prompt_id, uid" in refused(first, second)


@pytest.mark.parametrize(("extra", "warnings"), [("step", 0), ("sample", 1)])
def test_a_column_that_nobody_asked_for_may_be_missing_in_some_files(extra: str, warnings: int) -> None:
    full = made(f"prompt_id,reward,{extra}\np,0,0\np,0,0\n")
    bare = made("prompt_id,reward\nq,0\nq,1\n", "bare.csv")
    for paths in ([full, bare], [bare, full]):
        narrow = look(*paths).narrow
        assert narrow.lengths == (2, 2)
        assert len(narrow.warnings) == warnings


def test_a_file_or_frame_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="no rows"):
        grpo_cli.advantages(frame([1.0]).clear())
    assert "no rows" in refused(write("a.jsonl", []))


# --- rewards -----------------------------------------------------------------------------------------------


def two(a: list[Any], b: list[Any]) -> pl.DataFrame:
    types = {"a": pl.Float64, "b": pl.Float64}
    return pl.DataFrame([a, b], schema=types).with_columns(uid=0)


def centred(data: pl.DataFrame, **options: Any) -> list[float | None]:
    return list(grpo_cli.advantages(data, method="dr-grpo", **options))


def test_components_are_added_with_their_weights() -> None:
    data = two([1.0, 0.0], [0.0, 4.0])
    assert centred(data, reward=["a", "b"]) == [-1.5, 1.5]
    assert centred(data, reward=["a=2", "b=0.25"]) == [0.5, -0.5]
    assert centred(data, reward={"a": 1, "b": 0}) == [0.5, -0.5]
    assert centred(data, reward="a=-1") == [-0.5, 0.5]


def test_a_reward_column_is_named_once_with_one_weight() -> None:
    data = two([1.0, 0.0], [0.0, 1.0])
    with pytest.raises(UsageError, match="'a' is named twice"):
        centred(data, reward=["a=1", "a=2"])
    with pytest.raises(UsageError, match="3 reward weights for 2 reward columns"):
        centred(data, reward=["a", "b"], set="rewards.weights=1,2,3")


@pytest.mark.parametrize("missing", [None, NAN, INF, -INF])
def test_a_missing_component_is_skipped_without_changing_the_other_weights(missing: float | None) -> None:
    data = two([1.0, 5.0], [1.0, missing])
    assert centred(data, reward=["a=1", "b=2"]) == [-1.0, 1.0]
    assert centred(data, reward=["a=1", "b=2"], component_missing="zero") == [-1.0, 1.0]


@pytest.mark.parametrize("missing", [None, NAN, INF])
def test_a_missing_component_may_take_the_whole_reward_away(missing: float | None) -> None:
    data = two([1.0, 5.0, 2.0], [1.0, missing, 0.0])
    options: dict[str, Any] = {"reward": ["a", "b"], "component_missing": "propagate"}
    with pytest.raises(DataError, match=r"row 2: a is 5\.0, b is .*, expected a finite number"):
        centred(data, **options)
    assert centred(data, **options, missing="exclude") == [0.0, None, 0.0]


def test_a_row_without_any_component_is_not_scorable() -> None:
    data = two([1.0, None, 2.0], [1.0, None, 4.0])
    both = ["a", "b"]
    with pytest.raises(DataError, match="row 2: a is null or missing, b is null or missing"):
        centred(data, reward=both)
    assert centred(data, reward=both, missing="exclude") == [-2.0, None, 2.0]
    assert centred(data, reward=both, component_missing="zero", missing="exclude") == [-2.0, None, 2.0]
    as_zero = centred(data, reward=both, component_missing="zero", missing="as-zero")
    assert as_zero == near([-2 / 3, -8 / 3, 10 / 3])


def test_in_normalised_rewards_skip_and_zero_differ() -> None:
    data = two([0.0, 1.0, 1.0], [2.0, None, 4.0])
    skipped = centred(data, reward=["a", "b"], combine="normalize")
    assert skipped == near([-5 / 3, 1 / 3, 4 / 3])
    zeros = centred(data, reward=["a", "b"], combine="normalize", component_missing="zero")
    assert zeros == near([-2 / 3, -5 / 3, 7 / 3])


# --- rows that cannot be scored ----------------------------------------------------------------------------


@pytest.mark.parametrize(("odd", "message"), [(None, "null or missing"), (NAN, "nan"), (INF, "inf"), (-INF, "-inf")])
def test_a_row_without_a_finite_reward_stops_with_file_row_and_flag(odd: float | None, message: str) -> None:
    first = write("a.jsonl", [{"uid": 1, "reward": 0}])
    second = write("b.jsonl", [{"uid": 2, "reward": 0}, {"uid": 2, "reward": odd}, {"uid": 2, "reward": odd}])
    said = refused(first, second)
    assert f"b.jsonl:2: reward is {message}, expected a finite number (2 such rows)" in said
    assert "--missing exclude" in said


@pytest.mark.parametrize("odd", [None, NAN, INF, -INF])
def test_each_rule_for_a_missing_reward(odd: float | None) -> None:
    data = frame([2.0, 4.0, odd, 1.0, 3.0], [0, 0, 0, 1, 1])
    assert centred(data, missing="exclude") == [-1, 1, None, -1, 1]
    assert centred(data, missing="zero") == [-1, 1, 0, -1, 1]
    assert centred(data, missing="as-zero") == [0, 2, -2, -1, 1]
    assert centred(data, missing="propagate") == near([NAN, NAN, NAN, -1, 1])
    status = grpo_cli.compute(data, missing="zero").status
    assert status.to_list() == ["scored", "scored", "unscorable", "scored", "scored"]


def test_a_group_without_any_reward_is_left_out_whole() -> None:
    data = frame([None, NAN, 1.0, 3.0], [0, 0, 1, 1])
    got = grpo_cli.compute(data, method="dr-grpo", missing="exclude")
    assert got.advantages.to_list() == [None, None, -1.0, 1.0]
    assert got.status.to_list() == ["unscorable", "unscorable", "scored", "scored"]
    assert got.groups["scored"].to_list() == [0, 2]
    assert got.groups["size"].to_list() == [2, 2]
    assert centred(data, missing="as-zero") == [0.0, 0.0, -1.0, 1.0]


def test_a_reward_may_be_written_as_text_or_truth() -> None:
    assert centred(frame(["0.5", " 1.5 "])) == [-0.5, 0.5]
    assert centred(frame([True, False])) == [0.5, -0.5]
    with pytest.raises(DataError, match="frame row 2: reward is 'high', expected a number"):
        centred(frame(["0.5", "high"]))


# --- extra columns -----------------------------------------------------------------------------------------


NEEDS = """
--method opo                    | --length-column COLUMN
--method remax                  | --baseline-column COLUMN
--method rank-penalty           | --logprob-column COLUMN
--method reference              | --reference-column COLUMN
--method step-wise              | --rollout COLUMN
--method gigpo --rollout r      | --state-column COLUMN
--kl-coef 0.1                   | --kl-column COLUMN
--overlong 100:10:1             | --length-column COLUMN
--whiten token                  | --length-column equal
--rollout-reward mean           | --rollout COLUMN
--set shape.truncated.factor=0  | --truncated-column COLUMN
"""


@pytest.mark.parametrize(("options", "keyword"), lines(NEEDS))
def test_a_method_says_which_column_it_needs(options: str, keyword: str) -> None:
    path = made("prompt_id,reward\n0,0\n0,1\n")
    assert keyword in adv(f"compute {path} {options}").err


@pytest.mark.parametrize(("value", "word"), [(None, "null"), (NAN, "not finite"), (INF, "not finite")])
def test_an_extra_column_is_complete(value: float | None, word: str) -> None:
    data = frame([0.0, 1.0, 1.0], length=[4.0, value, 2.0])
    with pytest.raises(DataError) as raised:
        grpo_cli.advantages(data, method="opo", length_column="length")
    assert raised.value.message == f"frame row 2: length is {word}"
    assert "response length" in raised.value.hint


def test_an_extra_column_has_numbers() -> None:
    data = frame([0.0, 1.0], length=["4", "long"])
    wrong = "frame row 2: length is 'long', expected a number; name a column of numbers; map=TEXT=NUMBER,"
    with pytest.raises(DataError, match=wrong):
        grpo_cli.advantages(data, method="opo", length_column="length")


def test_length_column_equal_reads_no_column_of_that_name() -> None:
    data = frame([0.0, 1.0], equal=[1.0, 99.0])
    assert grpo_cli.advantages(data, method="opo", length_column="equal").to_list() == [-0.5, 0.5]


def test_a_column_may_play_two_parts() -> None:
    data = frame([1.0, 3.0])
    assert grpo_cli.advantages(data, method="remax", baseline_column="reward").to_list() == [0.0, 0.0]


# --- duplicates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLE_IDS)
def test_rows_that_repeat_a_sample_of_their_group_are_counted_and_warned_about(name: str) -> None:
    def warnings(samples: str) -> tuple[str, ...]:
        rows = zip("aaabbb", samples.split(","), strict=True)
        text = "".join(f"{key},0,{sample}\n" for key, sample in rows)
        return look(made(f"uid,reward,{name}\n{text}")).narrow.warnings

    assert warnings("0,1,2,0,1,2") == ()
    assert warnings(",,1,0,1,2") == ()
    (warning,) = warnings("0,1,1,0,0,0")
    assert warning.startswith(f"3 rows repeat a {name} inside their group")


def test_a_list_of_a_document_is_no_key_and_that_is_said() -> None:
    path = made('{"score": 0.5, "results": [{"prompt": "a", "ok_score": 1}, {"prompt": "a", "ok_score": 1}]}', "a.json")
    said = refused(path, group=["results"])
    assert "one row, and its key results is a list of objects; " in said
    assert "--reward 'results[].NAME'" in said


@pytest.mark.parametrize(
    ("key", "what"), [('["a", "b", "c"]', "a list"), ("[1, 2]", "a list"), ('{"a": 1}', "an object")]
)
def test_one_row_with_such_a_key_is_a_record_with_rows_inside(key: str, what: str) -> None:
    path = made(f'{{"prompt": {key}, "reward": 0.5}}\n', "a.jsonl")
    assert f"the file has one row, and its key prompt is {what}; the rows may be inside" in refused(path)


def test_one_row_with_a_conversation_as_its_key_is_a_row() -> None:
    path = made('{"prompt": [{"role": "user", "content": "a"}], "reward": 1.0}\n', "a.jsonl")
    assert look(path, singleton="zero").facts["groups"] == 1


def test_an_id_that_says_the_same_as_the_text_is_no_rival() -> None:
    narrow = look(made("id,prompt,reward\n1,p 1,0\n1,p 1,1\n2,p 2,0\n2,p 2,1\n")).narrow
    assert narrow.key.columns == ["prompt"]
    assert narrow.notes[0] == "group = prompt (found by name)"
    other = made("id,prompt,reward\n1,p 1,0\n1,p 1,1\n1,p 2,0\n1,p 2,1\n")
    assert "several columns could be the group key: prompt, id" in refused(other)


@pytest.mark.parametrize(("beside", "note"), [("conversation_id", ""), ("kind", ", no id beside it")])
def test_no_id_beside_a_text_is_said_only_where_it_is_true(beside: str, note: str) -> None:
    path = made(f"prompt,{beside},reward\np 1,1,0\np 1,2,1\np 2,3,0\np 2,4,1\n")
    assert look(path).narrow.notes[0] == f"group = prompt (found by name{note})"


def test_a_file_of_metrics_beside_rollouts_is_named(tmp_path: Path) -> None:
    made("prompt_id,reward\na,0\na,1\n", "rollouts.csv")
    made("step,loss\n1,0.5\n", "metrics.csv")
    said = refused(tmp_path)
    assert "metrics.csv: no column 'prompt_id'; it is in 1 of 2 files, such as " in said
    assert "rollouts.csv: give only these" in said


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl", ".parquet", ".arrow"])
def test_a_file_without_lines_of_json_has_no_broken_ones_to_skip(suffix: str) -> None:
    path = write(f"a{suffix}", [{"prompt_id": "a", "reward": 0.0}, {"prompt_id": "a", "reward": 1.0}])
    assert look(path, on_error="skip", method="dr-grpo").scored.rows[".advantage"].to_list() == [-0.5, 0.5]


def test_columns_that_could_be_rewards_are_named_and_how_to_give_several() -> None:
    path = made("uid,format_reward,correctness_reward,reward_note\nx,0,1,ok\nx,1,0,bad\n")
    with pytest.raises(DataError) as raised:
        look(path)
    could = "2 columns could be rewards (format_reward, correctness_reward): name those that count with --reward NAME, once for each"
    assert could in str(raised.value)
    assert "must be scored first" not in str(raised.value)
    path = made("other,format_reward,correctness_reward\nx,0,1\nx,1,0\n")
    with pytest.raises(DataError) as raised:
        look(path)
    assert could in str(raised.value)
    assert "name the group key with --group NAME" in str(raised.value)
