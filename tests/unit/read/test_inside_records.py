"""Rewards inside records: objects of a list by their path, and lists of rewards that no schema knows."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from grpo_cli.write.verify import verify
from tests.support.command import adv
from tests.support.jobs import compute, look, near, refused, rows_of, selected, write

# Groups as lists of rewards, for the files below and for `centred`, a plain loop.
GROUPS: list[list[float]] = [[1, 0], [1, 1, 0], [], [0.5, 0.25, 0.75, 1.0]]
RECORDS: list[Any] = [
    {"prompt": f"p{k}", "rollouts": [{"text": "x", "r": r} for r in rewards]} for k, rewards in enumerate(GROUPS)
]


def centred(groups: list[list[float]]) -> list[list[float]]:
    return [[r - sum(rewards) / len(rewards) for r in rewards] for rewards in groups]


def with_advantages(records: list[Any]) -> list[Any]:
    """The records with the advantage beside each reward, made by hand."""
    made = copy.deepcopy(records)
    for record in made:
        rewards = [rollout["r"] for rollout in record["rollouts"]]
        for rollout, advantage in zip(record["rollouts"], centred([rewards])[0], strict=True):
            rollout["advantage"] = advantage
    return made


def test_objects_of_a_list_are_rollouts_and_their_record_is_the_group() -> None:
    path = write("a.jsonl", RECORDS)
    found = compute(path, reward=["rollouts[].r"], method="dr-grpo", output="o.jsonl")
    assert rows_of("o.jsonl") == with_advantages(RECORDS)
    assert "read as objects at rollouts[]: group = record, reward = r" in found.narrow.notes
    assert verify("o.jsonl", path) == verify("o.jsonl", path, ["advantage"])


@pytest.mark.parametrize(
    ("name", "text", "reward"),
    [
        ("a.jsonl", "".join(f"{json.dumps(record)}\n" for record in RECORDS), "rollouts[].r"),
        ("a.json", json.dumps({"results": RECORDS}, indent=1), "results[].rollouts[].r"),
        ("a.json", json.dumps(RECORDS), "rollouts[].r"),
        ("a.jsonl", "".join(f'{{"rewards": {rewards}}}\n' for rewards in GROUPS), "rewards"),
    ],
)
def test_replaced_advantages_are_verified(name: str, text: str, reward: str) -> None:
    once, twice = Path(f"once_{name}"), Path(f"twice_{name}")
    Path(name).write_text(text)
    compute(name, reward=[reward], output=str(once))
    compute(once, reward=[reward], method="dr-grpo", replace=True, output=str(twice))
    assert twice.read_bytes() != once.read_bytes()
    assert verify(twice, once, ["advantage"]).by == "bytes"
    twice.write_text(twice.read_text().replace("0.75", "0.625"))
    with pytest.raises(DataError):
        verify(twice, once, ["advantage"])


EMPTY: list[Any] = [{"q": 1, "rollouts": []}, {"q": 2, "rollouts": None}, {"q": 3}]
FULL: list[Any] = [{"q": q, "rollouts": [{"r": 0}, {"r": 1}]} for q in "ab"]


@pytest.mark.parametrize(
    ("name", "text", "reward"),
    [
        ("a.jsonl", "".join(f"{json.dumps(record)}\n" for record in (FULL[0], *EMPTY, FULL[1])), "rollouts[].r"),
        ("a.json", json.dumps([FULL[0], *EMPTY, FULL[1]]), "[].rollouts[].r"),
        ("a.json", json.dumps({"results": [FULL[0], *EMPTY, FULL[1]]}, indent=2), "results[].rollouts[].r"),
        ("a.jsonl", "".join(f"{line}\n" for line in ('{"r": [0, 1]}', '{"r": []}', '{"r": null}', '{"q": 3}', '{"r": [0, 1]}')), "r"),
    ],
)  # fmt: skip
def test_records_without_rollouts_are_counted_and_numbered(name: str, text: str, reward: str) -> None:
    path = Path(name)
    path.write_text(text)
    facts = compute(path, reward=[reward], output=f"o_{name}").facts
    assert f"{path}: 3 records have no rollouts" in facts["warnings"]
    assert look(path, reward=[reward]).narrow.key.to_series().to_list() == [0, 4]
    out = Path(f"s_{name}")
    chosen = selected(path, reward=[reward], where="mean >= 0", output=str(out))
    assert chosen["kept_rows"] == chosen["rows"] == 4
    assert f"{path}: 3 records have no rollouts" in chosen["warnings"]
    not_written = f"{path}: records without rollouts are not written"
    lines, is_document = text.splitlines(keepends=True), name == "a.json"
    assert (not_written in chosen["warnings"]) != is_document
    assert out.read_text() == (text if is_document else lines[0] + lines[4])


@given(
    groups=st.lists(st.lists(st.integers(-3, 3).map(lambda k: 60.0 * k), max_size=5), min_size=1, max_size=6).filter(
        lambda groups: max(map(len, groups)) > 1
    ),
    indent=st.sampled_from((None, 1, "\t")),
)
def test_every_other_byte_stays(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[float]], indent: int | str | None
) -> None:
    folder = tmp_path_factory.mktemp("paths")
    document = {"run": 1, "results": [{"rollouts": [{"r": r} for r in rewards]} for rewards in groups], "end": [{}]}
    path = folder / "a.json"
    path.write_text(json.dumps(document, indent=indent))
    compute(path, reward=["results[].rollouts[].r"], method="dr-grpo", output=str(folder / "o.json"))
    wanted = {**document, "results": with_advantages(document["results"])}  # type: ignore[arg-type]
    text = (folder / "o.json").read_text()
    assert json.loads(text) == wanted
    assert verify(folder / "o.json", path).by == "bytes"
    if indent is not None:
        assert text == json.dumps(wanted, indent=indent)


@pytest.mark.parametrize(
    ("document", "reward", "sizes"),
    [
        ([{"infos": [{"r": 1}, {"r": 0}]}, {"infos": [{"r": 1}]}], "infos[].r", [2, 1]),
        ({"infos": [{"id": 1, "r": {"a": 1}}, {"id": 2, "r": {"a": 0}}]}, "infos[].r.a", [1, 1]),
        ({"a": {"b": [{"c": [{"r": 1}, {"r": 0}]}, {"c": [{"r": 1}]}]}}, "a.b[].c[].r", [2, 1]),
    ],
)
def test_a_document_is_read_along_a_path(document: Any, reward: str, sizes: list[int]) -> None:
    Path("a.json").write_text(json.dumps(document, indent=1))
    key: Any = {"group": ["infos[].id"]} if isinstance(document, dict) and "infos" in document else {}
    found = look("a.json", reward=[reward], singleton="zero", **key)
    assert found.narrow.table["group"].value_counts().sort("group")["count"].to_list() == sizes


def test_the_only_list_of_a_file_is_no_group_by_itself() -> None:
    Path("a.json").write_text(json.dumps({"results": [{"r": 1}, {"r": 0}]}, indent=1))
    assert "no column looks like the group key" in refused("a.json", reward=["results[].r"])


def test_a_key_inside_of_the_objects_divides_and_joins_records() -> None:
    rows = [
        {"rollouts": [{"q": q, "r": r} for q, r in pairs]} for pairs in ([("a", 1), ("b", 1)], [("a", 0), ("b", 0)])
    ]
    for name in ("rollouts[].q", "q"):
        found = look(write("a.jsonl", rows), reward=["rollouts[].r"], group=[name], method="rloo")
        assert found.scored.rows[".advantage"].to_list() == [1, 1, -1, -1]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_parquet_and_arrow_get_a_list_for_each_record(suffix: str) -> None:
    path, out = write(f"a.{suffix}", RECORDS), Path(f"o.{suffix}")
    compute(path, reward=["rollouts[].r"], method="dr-grpo", output=str(out))
    made = [{**record, "advantage": values} for record, values in zip(RECORDS, centred(GROUPS), strict=True)]
    assert rows_of(out) == made
    assert verify(out, path).added == ("advantage",)


def test_a_path_into_a_table_without_lists_is_refused_in_one_line() -> None:
    Path("a.csv").write_text("prompt,rollouts\np,1\n")
    assert "a.csv: csv has no rollouts[] that can be read" in refused("a.csv", reward=["rollouts[].r"])
    pl.DataFrame({"a": [[{"b": [{"r": 1}]}]]}).write_parquet("a.parquet")
    assert "parquet has no a[].b[] that can be read" in refused("a.parquet", reward=["a[].b[].r"])


@pytest.mark.parametrize(
    ("rewards", "kind", "message"),
    [
        (["rollouts[].x"], DataError, "a.jsonl: no column 'x'"),
        (["none[].x"], DataError, r"there is nothing at none\[\]"),
        (["rollouts[]"], UsageError, r"names the objects of a list; name a field, as rollouts\[\]\.reward"),
        (["rollouts[].r", "other[].r"], UsageError, r"must be in one object, not in rollouts\[\] and other\[\]"),
        (["rollouts[].text"], DataError, "a.jsonl:1: text is 'x', expected a number"),
    ],
)
def test_a_path_that_leads_nowhere_says_so(rewards: list[str], kind: type[Exception], message: str) -> None:  # fmt: skip
    with pytest.raises(kind, match=message):
        look(write("a.jsonl", RECORDS), reward=rewards)


def test_select_drops_objects_and_keeps_the_rest() -> None:
    path = write("a.jsonl", RECORDS)
    selected(path, reward=["rollouts[].r"], where="scored > 2", output="o.jsonl")
    assert rows_of("o.jsonl") == [RECORDS[1], RECORDS[3]]  # the third has no rollouts


# --- lists of rewards ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["score", "mine"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_record_with_a_list_of_rewards_is_a_group(suffix: str, name: str) -> None:
    records: list[Any] = [
        {"prompt": f"p{k}", name: rewards} for k, rewards in enumerate([[True, False], [True], [False, True, True]])
    ]
    path, out = write(f"a.{suffix}", records), Path(f"o.{suffix}")
    named: Any = {} if name == "score" else {"reward": [name]}
    found = compute(path, method="dr-grpo", output=str(out), **named)
    wanted = centred([record[name] for record in records])
    assert rows_of(out) == [{**record, "advantage": a} for record, a in zip(records, wanted, strict=True)]
    assert f"read as records with lists of rewards in {name}: group = record, reward = {name}" in found.narrow.notes
    assert verify(out, path).added == ("advantage",)


def test_a_list_of_rewards_beside_one_response_is_refused_unless_the_key_is_named() -> None:
    path = write("a.jsonl", [{"prompt": k, "response": "text", "reward": [0.1, k, 0.3]} for k in range(2)])
    with pytest.raises(
        DataError, match=r"reward has lists of rewards, but each record has one response.*--group @parent"
    ):
        look(path)
    facts = look(path, group=["@parent"]).facts
    assert (facts["groups"], facts["rows"]) == (2, 6) and any("one response" in note for note in facts["notes"])


@pytest.mark.parametrize(
    "beside",
    [
        {
            "prompt": [{"role": k, "content": "q"} for k in ("system", "user")],
            "completion": [{"role": "assistant", "content": "x"}],
        },
        {"response": "x"},
        {"response": "x", "response_ids": [1, 2, 3]},
        {"response": "x", "reward_names": ["accuracy", "format"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_lists_that_are_not_of_rollouts_do_not_hide_the_one_response(suffix: str, beside: Any) -> None:
    path = write(f"a.{suffix}", [{**beside, "reward": [0.0, 1.0]}] * 2)
    assert "has lists of rewards, but each record has one" in refused(path)


@pytest.mark.parametrize(
    "beside",
    [
        {"response": ["x", "y"]},
        {"response": "x", "texts": ["x", "y"]},
        {"response": "x", "length": [5, 6]},
        {"solution": "42"},
        {},
    ],
)
def test_a_list_of_rewards_beside_a_list_of_responses_or_a_truth_is_of_rollouts(beside: Any) -> None:
    assert look(write("a.jsonl", [{"prompt": "p", "reward": [0, 1], **beside}] * 2)).facts["groups"] == 2


CHATS = [[{"role": "user", "content": text}] for text in "abab"]


@pytest.mark.parametrize(
    "keys",
    [{"prompt": list("abab")}, {"prompt": CHATS}, {"uid": [7, 8, 7, 8]}, {"uid": list("abab"), "prompt": ["x"] * 4}],
    ids=str,
)
@pytest.mark.parametrize(("suffix", "reward"), [("jsonl", "rewards"), ("parquet", "score")])
def test_a_record_that_lists_the_prompts_of_its_rewards_is_a_batch_of_groups(
    suffix: str, reward: str, keys: Any
) -> None:
    records = [{"step": k, **keys, "texts": list("wxyz"), reward: [1.0, 0.0, 0.0, 2.0 * k]} for k in (1, 2)]
    path = write(f"a.{suffix}", records)
    found = look(path, method="dr-grpo", group_within="step")
    assert found.scored.rows[".advantage"].to_list() == [0.5, -1, -0.5, 1, 0.5, -2, -0.5, 2]
    assert found.facts["groups"] == 4


def test_a_chat_or_tokens_with_as_many_items_as_rewards_are_one_prompt() -> None:
    for name, prompt in (("prompt", [*CHATS[0], *CHATS[1]]), ("prompt", [1, 2]), ("messages", ["x", "y"])):
        facts = look(write("a.jsonl", [{name: prompt, "reward": [0, 1]}] * 2)).facts
        assert facts["groups"] == 2, name


@pytest.mark.parametrize(
    "beside",
    [
        {"prompt": "q", "uid": list("abcd")},
        {"prompt": CHATS[0], "row_id": [0, 1, 2, 3]},
        {"prompt": "q", "instructions": list("abcd")},
        {"prompt": "q", "instructions": list("ab")},
        {"prompt": ["q"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_record_with_one_prompt_is_a_group_whatever_lists_it_has_beside(suffix: str, beside: Any) -> None:
    records = [{**beside, "completions": list("wxyz"), "rewards": [1.0, 0.0, 0.0, 2.0 * k]} for k in (1, 2)]
    path = write(f"a.{suffix}", records)
    assert look(path).facts["groups"] == 2


@pytest.mark.parametrize("beside", [{"env": ["x", "y"]}, {"step": [7]}, {"sample": [1, 2, 3]}], ids=str)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_columns_that_only_checks_read_may_have_lists_of_other_lengths(suffix: str, beside: Any) -> None:
    records = [{**beside, "prompt": list("aabb"), "completions": list("wxyz"), "rewards": [1.0, 0.0, 0.0, 2.0]}] * 2
    path = write(f"a.{suffix}", records)
    assert look(path).facts["groups"] == 4
    (name,) = beside
    with pytest.raises(DataError, match=f"{name} has . values?, rewards 4"):
        look(path, group=["prompt", name])


@pytest.mark.parametrize("beside", [{"uid": list("abcd")}, {"instruction": "solve"}], ids=str)
def test_prompts_that_repeat_are_the_key_before_ids_that_do_not(beside: Any) -> None:
    record = {**beside, "prompt": list("aabb"), "completions": list("wxyz"), "rewards": [1, 0, 0, 2]}
    assert look(write("a.jsonl", [record])).facts["groups"] == 2


def test_lists_beside_rewards_may_be_of_a_type_that_cannot_be_read() -> None:
    intervals = pa.array([[(1, 2, 3)]] * 2, pa.list_(pa.month_day_nano_interval()))
    table = pa.table({"prompt": ["a", "b"], "took": intervals, "rewards": [[1.0, 0.0]] * 2})
    with pa.ipc.new_file("a.arrow", table.schema) as writer:
        writer.write_table(table)
    assert look("a.arrow").facts["groups"] == 2


def test_lists_of_one_reward_stay_rows_of_their_own() -> None:
    found = look(write("a.jsonl", [{"uid": 1, "reward": [r]} for r in (0, 1)]), method="rloo")
    assert found.scored.rows[".advantage"].to_list() == [-1, 1]
    assert found.narrow.key.columns == ["uid"]


def test_a_key_that_is_named_joins_the_lists_of_records() -> None:
    rows = [{"id": "a", "score": [1, 0]}, {"id": "a", "score": [1, 0]}]
    found = look(write("a.jsonl", rows), group=["id"])
    assert found.facts["groups"] == 1 and found.facts["rows"] == 4


def test_a_list_with_a_text_is_refused_with_its_row() -> None:
    rows = [{"score": [1, 0]}] * 40 + [{"score": [1, "bad"]}]
    assert "a.jsonl:41: score is [1, 'bad'], expected a list of numbers" in refused(write("a.jsonl", rows))


def test_lists_of_rewards_are_read_at_a_path_as_well() -> None:
    instances = [{"prompt": "a", "rewards": [1, 0]}, {"prompt": "b", "rewards": [0, 0, 3]}]
    Path("a.json").write_text(json.dumps({"type": "text", "instances": instances}))
    compute("a.json", reward=["instances[].rewards"], method="dr-grpo", output="o.json")
    made = json.loads(Path("o.json").read_text())
    assert [row["advantage"] for row in made["instances"]] == [[0.5, -0.5], [-1, -1, 2]]


@pytest.mark.parametrize("preset", ["fireworks-igpo", "atropos-mt-grpo"])
def test_turns_inside_of_records_get_the_credit_of_turns_that_are_rows(preset: str) -> None:
    names = ["gain", "outcome"]
    turns = [
        [{"gain": (3 * k + 5 * at) % 7 / 7, "outcome": float(at == 2 and k % 3 == 0)} for at in range(3)]
        for k in range(8)
    ]
    write("nested.jsonl", [{"uid": k // 4, "run": k, "turns": some} for k, some in enumerate(turns)])
    flat = [{"uid": k // 4, "run": k, **turn} for k, some in enumerate(turns) for turn in some]
    write("flat.jsonl", flat)
    for name, path in (("nested", "turns[]."), ("flat", "")):
        rewards, output = [f"{path}{column}" for column in names], f"{name}-out.jsonl"
        compute(f"{name}.jsonl", preset=preset, group=["uid"], rollout="run", reward=rewards, output=output)
    nested, rows = (rows_of(f"{name}-out.jsonl") for name in ("nested", "flat"))
    assert [turn["advantage"] for row in nested for turn in row["turns"]] == [row["advantage"] for row in rows]
    assert len({row["advantage"] for row in rows}) > 3


def test_turns_compared_only_with_their_own_rollout_are_warned_about() -> None:
    turns = [[{"reward": (3 * k + 5 * at) % 7 / 7} for at in range(3)] for k in range(8)]
    source = write("a.jsonl", [{"uid": k // 4, "run": k, "turns": some} for k, some in enumerate(turns)])
    plan = {"preset": "fireworks-igpo", "reward": ["turns[].reward"], "rollout": "run"}
    (warning,) = look(source, **plan).facts["warnings"]
    assert warning == (
        "each group has the rows of one rollout (by run), compared only with each other: name the prompt with --group"
    )
    assert not look(source, group=["uid"], **plan).facts["warnings"]


# --- texts in place of numbers ---------------------------------------------------------------------------------

OUTCOMES = ["pass", "fail", "pass", "timeout", None, "fail", "0.25", "pass"]
WORTH: dict[str | None, float] = {"pass": 1.0, "fail": 0.0, "timeout": -1.0, "0.25": 0.25}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "json"])
def test_texts_count_as_the_map_says(suffix: str) -> None:
    path = write(f"a.{suffix}", [{"uid": 1, "result": text} for text in OUTCOMES])
    words = ["pass=1,fail=0", "timeout=-1"]
    found = look(path, reward=["result"], map=words, missing="exclude", method="dr-grpo")
    known = [WORTH[text] for text in OUTCOMES if text is not None]
    wanted = iter([value - sum(known) / len(known) for value in known])
    assert found.scored.rows[".advantage"].to_list() == near([None if text is None else next(wanted) for text in OUTCOMES])  # fmt: skip


def test_a_map_is_for_all_rewards_and_numbers_stay() -> None:
    rows = [{"uid": 1, "result": text, "bonus": k / 2, "ok": text == "pass"} for k, text in enumerate(["pass", "fail"])]
    options: Any = {"reward": ["result", "bonus=2", "ok"], "map": {"pass": 3, "fail": 0}, "method": "rloo"}
    assert list(grpo_cli.advantages(pl.DataFrame(rows), **options)) == [3, -3]
    assert list(look(write("a.jsonl", rows), **options).scored.rows[".advantage"]) == [3, -3]


def test_outcomes_in_objects_of_a_list_are_mapped() -> None:
    path = write("a.jsonl", [{"tries": [{"result": "pass"}, {"result": "fail"}]}])
    found = look(path, reward=["tries[].result"], map="pass=1,fail=0", method="rloo")
    assert found.scored.rows[".advantage"].to_list() == [1, -1]


@pytest.mark.parametrize(
    "command",
    [
        "compute --explain",
        "inspect",
        "select --limit 1 -o o.jsonl",
        "export --to prompts --prompt prompt_id -o o.jsonl",
    ],
)
def test_every_command_says_what_texts_count_as(command: str) -> None:
    rows = [{"prompt_id": at // 2, "result": "pass" if at % 2 else "fail"} for at in range(4)]
    write("a.jsonl", rows)
    done = adv(f"{command} --reward result --map pass=1,fail=0 a.jsonl")
    assert done.status == 0, done.err
    assert "text values: pass = 1, fail = 0" in done.out + done.err


@pytest.mark.parametrize(("word", "to"), [("None", "nan"), ("N/A", "null"), ("NA", None), ("null", math.nan)])
def test_a_text_may_be_a_missing_reward(word: str, to: Any) -> None:
    path = Path("a.csv")
    path.write_text(f"prompt_id,reward\na,1\na,{word}\na,0\n")
    with pytest.raises(
        DataError,
        match=rf"reward is '{word}', .*--map TEXT=NUMBER,... gives each text of a reward a number \(nan: a missing reward\)",
    ):
        look(path)
    with pytest.raises(DataError, match=r"reward is null or missing, .*--missing exclude"):
        look(path, map={word: to})
    found = look(path, map={word: to}, missing="exclude", method="rloo")
    assert found.scored.rows[".advantage"].to_list() == [1, None, -1] and found.facts["map"] == {word: None}
    done = adv(f"compute {path} -o - --map {word}={to} --missing exclude")
    assert f"text values: {word} = missing" in done.err


def test_a_text_that_the_map_does_not_name_is_refused_with_row_and_flag() -> None:
    path = write("a.jsonl", [{"uid": 1, "result": text} for text in ("pass", "fail", "crash", "crash")])
    cases: list[tuple[dict[str, str], str]] = [
        (
            {"map": "pass=1,fail=0"},
            r"a\.jsonl:3: result is 'crash', which --map does not name; add .*--map 'crash=NUMBER'",
        ),
        ({}, r"a\.jsonl:1: result is 'pass', expected a number; .*--map TEXT=NUMBER,\.\.\."),
        ({"map": "="}, "--map '=' gives no number"),
        ({"map": "pass,fail=0"}, "--map 'pass' gives no number; write --map TEXT=NUMBER"),
    ]
    for options, said in cases:
        with pytest.raises(DataError if "jsonl" in said else UsageError, match=said):
            look(path, reward=["result"], **options)


# --- JSON as text --------------------------------------------------------------------------------------------------

PACKED = [{"meta": json.dumps({"id": k // 2, "of": {"r": k % 2 / 2}}), "other": k} for k in range(6)]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "arrow", "json", "frame"])
def test_a_path_leads_into_texts_that_are_json(suffix: str) -> None:
    options: Any = {"group": ["meta.id"], "reward": ["meta.of.r"], "method": "rloo"}
    if suffix == "frame":
        assert list(grpo_cli.advantages(pl.DataFrame(PACKED), **options)) == [-0.5, 0.5] * 3
        return
    path = write(f"a.{suffix}", PACKED)
    found = compute(path, **options, output=f"o.{suffix}")
    assert found.scored.rows[".advantage"].to_list() == [-0.5, 0.5] * 3
    assert verify(f"o.{suffix}", path).added == ("advantage",)


def test_a_field_that_some_texts_lack_is_missing_there() -> None:
    rows = [{"uid": 1, "meta": text} for text in ('{"r": 1}', '{"r": 0}', "{}", None, "")]
    found = look(write("a.jsonl", rows), reward=["meta.r"], missing="exclude", method="rloo")
    assert found.scored.rows[".advantage"].to_list() == [1, -1, None, None, None]


@pytest.mark.parametrize(
    ("text", "reward", "message"),
    [
        ("plain", "meta.r", "no column 'meta.r'"),
        ("[1]", "meta.r", "no column 'meta.r'"),
        ('{"q": 1}', "meta.r", "no column 'meta.r'"),
        (
            '{"r": {"a": 1}}',
            "meta.r",
            r"a\.jsonl:1: meta\.r is {'a': 1}, expected a number; .*--reward COL\.PART takes a part",
        ),
    ],
)
def test_a_text_without_the_field_is_a_missing_column(text: str, reward: str, message: str) -> None:  # fmt: skip
    with pytest.raises(DataError, match=message):
        look(write("a.jsonl", [{"uid": 1, "meta": text}]), reward=[reward])


def test_a_record_that_is_the_group_is_called_so() -> None:
    write("a.jsonl", RECORDS)
    commands = [
        "inspect --format csv",
        "inspect --json",
        "inspect --against before=a.jsonl",
        "compute --explain",
        "select --where zz>0",
        "select -o b.jsonl --json --where record<2 --where mean>0.5",
        "export --to prompts --prompt prompt -o c.jsonl --json",
    ]
    words = [line.split() for line in commands]
    said = [adv(word, "a.jsonl", "--reward", "rollouts[].r", *options) for word, *options in words]
    assert not [done for done in said if "@parent" in done.out + done.err]
    table, facts, against, _, unknown, chosen, _ = said
    assert table.out.startswith("record,size,") and json.loads(facts.out)["group_key"] == ["record"]
    assert "different group keys; name the prompt with --group" in against.err
    assert "nearly, record, pass@K" in unknown.err
    assert [row["prompt"] for row in rows_of("b.jsonl")] == ["p1"] and chosen.status == 0


@pytest.mark.parametrize("words", ["1=5,0=-1,0.5=2", "1.0=5,0.0=-1,0.50=2", "1e0=5,-0.0=-1,5e-1=2"])
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_number_is_mapped_however_it_is_written(suffix: str, words: str) -> None:
    path = write(f"in.{suffix}", [{"prompt_id": "a", "reward": reward} for reward in (1.0, 0.0, 0.5, 0.25)])
    assert look(path, map=words).scored.rows[".reward"].to_list() == [5, -1, 2, 0.25]
