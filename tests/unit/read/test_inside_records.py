"""Rewards inside records: objects of a list by their path, and lists of rewards that no schema knows."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from grpo_cli.write.verify import verify
from tests.support.command import adv, ran
from tests.support.jobs import compute, look, refused, rows_of, selected, write

RECORDS = """\
{"prompt": "p0", "rollouts": [{"text": "x", "r": 1.0}, {"text": "x", "r": 0.0}]}
{"prompt": "p1", "rollouts": [{"text": "x", "r": 1.0}, {"text": "x", "r": 1.0}, {"text": "x", "r": 0.25}]}
{"prompt": "p2", "rollouts": []}
{"prompt": "p3", "rollouts": [{"text": "x", "r": 0.5}, {"text": "x", "r": 0.75}, {"text": "x", "r": 1.0}]}
"""
WITH_ADVANTAGES = """\
{"prompt": "p0", "rollouts": [{"text": "x", "r": 1.0,"advantage":0.5}, {"text": "x", "r": 0.0,"advantage":-0.5}]}
{"prompt": "p1", "rollouts": [{"text": "x", "r": 1.0,"advantage":0.25}, {"text": "x", "r": 1.0,"advantage":0.25}, {"text": "x", "r": 0.25,"advantage":-0.5}]}
{"prompt": "p2", "rollouts": []}
{"prompt": "p3", "rollouts": [{"text": "x", "r": 0.5,"advantage":-0.25}, {"text": "x", "r": 0.75,"advantage":0.0}, {"text": "x", "r": 1.0,"advantage":0.25}]}
"""


def made(text: str, name: str = "a.jsonl") -> Path:
    """A file with this text."""
    path = Path(name)
    path.write_text(text)
    return path


def advantages(path: Path | str, *reward: str, **options: Any) -> list[float | None]:
    return look(path, reward=[*reward], **options).scored.rows[".advantage"].to_list()


def groups(path: Path | str, **options: Any) -> int:
    found: int = look(path, **options).facts["groups"]
    return found


@pytest.fixture
def records() -> Path:
    return made(RECORDS)


def test_objects_of_a_list_are_rollouts_and_their_record_is_the_group(records: Path) -> None:
    found = compute(records, reward=["rollouts[].r"], method="dr-grpo", output="o.jsonl")
    assert Path("o.jsonl").read_text() == WITH_ADVANTAGES
    assert "read as objects at rollouts[]: group = record, reward = r" in found.narrow.notes
    assert verify("o.jsonl", records) == verify("o.jsonl", records, ["advantage"])


@pytest.mark.parametrize(
    ("name", "text", "reward"),
    [
        ("a.jsonl", RECORDS, "rollouts[].r"),
        ("a.json", '{"results": [\n  {"rollouts": [{"r": 0.75},\n {"r": 0}]},\n {"rollouts": []}]}', "results[].rollouts[].r"),
        ("a.jsonl", '{"rewards": [0.75, 0]}\n{"rewards": []}\n{"rewards": [1, 1, 0]}\n', "rewards"),
    ],
)  # fmt: skip
def test_replaced_advantages_are_verified(name: str, text: str, reward: str) -> None:
    once = Path(f"once_{name}")
    twice = Path(f"twice_{name}")
    compute(made(text, name), reward=[reward], output=str(once))
    compute(once, reward=[reward], method="dr-grpo", replace=True, output=str(twice))
    assert twice.read_bytes() != once.read_bytes()
    assert verify(twice, once, ["advantage"]).by == "bytes"
    broken = made(twice.read_text().replace("0.75", "0.625"), str(twice))
    with pytest.raises(DataError):
        verify(broken, once, ["advantage"])


FULL = '{"q": "a", "rollouts": [{"r": 0}, {"r": 1}]}'


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_list_of_objects_may_have_a_fixed_size(suffix: str) -> None:
    rollout = pa.struct([("r", pa.float64()), ("text", pa.string())])
    records = [[{"r": 1.0, "text": "x"}, {"r": 0.0, "text": "y"}], [{"r": 0.25, "text": "z"}, {"r": 0.75, "text": "x"}]]
    table = pa.table({"prompt": ["p0", "p1"], "rollouts": pa.array(records, pa.list_(rollout, 2))})
    path = Path(f"a{suffix}")
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        feather.write_feather(table, path)
    assert advantages(path, "rollouts[].r", method="dr-grpo") == [0.5, -0.5, -0.25, 0.25]


EMPTY = ['{"q": 1, "rollouts": []}', '{"q": 2, "rollouts": null}', '{"q": 3}']


@pytest.mark.parametrize(
    ("name", "text", "reward"),
    [
        ("a.jsonl", "\n".join([FULL, *EMPTY, FULL, ""]), "rollouts[].r"),
        ("a.json", f'{{"results": [{FULL}, {", ".join(EMPTY)},\n {FULL}]}}', "results[].rollouts[].r"),
        ("a.jsonl", '{"r": [0, 1]}\n{"r": []}\n{"r": null}\n{"q": 3}\n{"r": [0, 1]}\n', "r"),
    ],
)
def test_records_without_rollouts_are_counted_and_numbered(name: str, text: str, reward: str) -> None:
    path = Path(name)
    out = Path(f"s_{name}")
    path.write_text(text)
    facts = compute(path, reward=[reward], output=f"o_{name}").facts
    assert f"{path}: 3 records have no rollouts" in facts["warnings"]
    assert look(path, reward=[reward]).narrow.key.to_series().to_list() == [0, 4]
    chosen = selected(path, reward=[reward], where="mean >= 0", output=str(out))
    assert chosen["kept_rows"] == chosen["rows"] == 4
    assert f"{path}: 3 records have no rollouts" in chosen["warnings"]
    not_written = f"{path}: records without rollouts are not written"
    if name == "a.json":
        assert not_written not in chosen["warnings"]
        assert out.read_text() == text
    else:
        assert not_written in chosen["warnings"]
        lines = text.splitlines(keepends=True)
        assert out.read_text() == lines[0] + lines[4]


@given(
    groups=st.lists(st.lists(st.sampled_from([-180.0, -60.0, 0.0, 60.0, 120.0]), max_size=5), max_size=6),
    indent=st.sampled_from((None, 1, "\t")),
)
def test_every_other_byte_stays(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[float]], indent: int | str | None
) -> None:
    folder = tmp_path_factory.mktemp("paths")
    given = list[Any]()
    wanted = list[Any]()
    for rewards in [*groups, [60.0, 0.0]]:
        mean = sum(rewards) / max(1, len(rewards))
        given.append({"rollouts": [{"r": r} for r in rewards]})
        wanted.append({"rollouts": [{"r": r, "advantage": r - mean} for r in rewards]})
    path = folder / "a.json"
    out = folder / "o.json"
    path.write_text(json.dumps({"run": 1, "results": given, "end": [{}]}, indent=indent))
    compute(path, reward=["results[].rollouts[].r"], method="dr-grpo", singleton="zero", output=str(out))
    assert verify(out, path).by == "bytes"
    document = {"run": 1, "results": wanted, "end": [{}]}
    if indent is None:
        assert json.loads(out.read_text()) == document
    else:
        assert out.read_text() == json.dumps(document, indent=indent)


@pytest.mark.parametrize(
    ("document", "reward", "group", "codes"),
    [
        ('[{"infos": [{"r": 1}, {"r": 0}]}, {"infos": [{"r": 1}]}]', "infos[].r", "", "001"),
        ('{"infos": [{"id": 1, "r": {"a": 1}},\n {"id": 2, "r": {"a": 0}}]}', "infos[].r.a", "infos[].id", "01"),
        ('{"a": {"b": [{"c": [{"r": 1}, {"r": 0}]},\n {"c": [{"r": 1}]}]}}', "a.b[].c[].r", "", "001"),
    ],
)
def test_a_document_is_read_along_a_path(document: str, reward: str, group: str, codes: str) -> None:
    path = made(document, "a.json")
    table = look(path, reward=[reward], singleton="zero", group=group.split()).narrow.table
    assert "".join(map(str, table["group"])) == codes


def test_the_only_list_of_a_file_is_no_group_by_itself() -> None:
    path = made('{"results": [{"r": 1},\n {"r": 0}]}', "a.json")
    assert "no column looks like the group key" in refused(path, reward=["results[].r"])


@pytest.mark.parametrize("name", ["rollouts[].q", "q"])
def test_a_key_inside_of_the_objects_divides_and_joins_records(name: str) -> None:
    path = made("""\
{"rollouts": [{"q": "a", "r": 1}, {"q": "b", "r": 1}]}
{"rollouts": [{"q": "a", "r": 0}, {"q": "b", "r": 0}]}
""")
    assert advantages(path, "rollouts[].r", group=[name], method="rloo") == [1, 1, -1, -1]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_parquet_and_arrow_get_a_list_for_each_record(suffix: str, records: Path) -> None:
    before = rows_of(records)
    path = write(f"a.{suffix}", before)
    out = Path(f"o.{suffix}")
    compute(path, reward=["rollouts[].r"], method="dr-grpo", output=str(out))
    wanted = [[0.5, -0.5], [0.25, 0.25, -0.5], [], [-0.25, 0.0, 0.25]]
    assert rows_of(out) == [{**row, "advantage": one} for row, one in zip(before, wanted, strict=True)]
    assert verify(out, path).added == ("advantage",)


def test_a_path_into_a_table_without_lists_is_refused_in_one_line() -> None:
    path = made("prompt,rollouts\np,1\n", "a.csv")
    assert "a.csv: csv has no rollouts[] that can be read" in refused(path, reward=["rollouts[].r"])
    pl.DataFrame({"a": [[{"b": [{"r": 1}]}]]}).write_parquet("a.parquet")
    assert "parquet has no a[].b[] that can be read" in refused("a.parquet", reward=["a[].b[].r"])


def test_a_path_that_leads_nowhere_says_so(records: Path) -> None:
    assert "a.jsonl: no column 'x'" in refused(records, reward=["rollouts[].x"])
    assert "there is nothing at none[]" in refused(records, reward=["none[].x"])
    assert "a.jsonl:1: text is 'x', expected a number" in refused(records, reward=["rollouts[].text"])
    with pytest.raises(UsageError, match=r"names the objects of a list; name a field, as rollouts\[\]\.reward"):
        look(records, reward=["rollouts[]"])
    with pytest.raises(UsageError, match=r"must be in one object, not in rollouts\[\] and other\[\]"):
        look(records, reward=["rollouts[].r", "other[].r"])


def test_select_drops_objects_and_keeps_the_rest(records: Path) -> None:
    selected(records, reward=["rollouts[].r"], where="scored > 2", output="o.jsonl")
    _, second, _, fourth = RECORDS.splitlines(keepends=True)  # the third has no rollouts
    assert Path("o.jsonl").read_text() == second + fourth


# --- lists of rewards ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "name", "named"), [("jsonl", "score", []), ("parquet", "mine", ["mine"])])
def test_a_record_with_a_list_of_rewards_is_a_group(suffix: str, name: str, named: list[str]) -> None:
    before = [{"prompt": "a", name: [True, False]}, {"prompt": "b", name: [True]}, {"prompt": "c", name: [False, True]}]
    path = write(f"a.{suffix}", before)
    out = Path(f"o.{suffix}")
    found = compute(path, method="dr-grpo", reward=named, output=str(out))
    wanted = [[0.5, -0.5], [0.0], [-0.5, 0.5]]
    assert rows_of(out) == [{**row, "advantage": one} for row, one in zip(before, wanted, strict=True)]
    assert f"read as records with lists of rewards in {name}: group = record, reward = {name}" in found.narrow.notes
    assert verify(out, path).added == ("advantage",)


def test_a_list_of_rewards_beside_one_response_is_refused_unless_the_key_is_named() -> None:
    path = made('{"prompt": 0, "response": "text", "reward": [0.1, 0, 0.3]}\n' * 2)
    said = refused(path)
    assert "reward has lists of rewards, but each record has one response" in said
    assert "--group @parent" in said
    facts = look(path, group=["@parent"]).facts
    assert facts["groups"] == 2
    assert facts["rows"] == 6
    assert "one response" in " ".join(facts["notes"])


@pytest.mark.parametrize(
    "record",
    [
        """{"prompt": [{"role": "system", "content": "q"}, {"role": "user", "content": "q"}],
            "completion": [{"role": "assistant", "content": "x"}], "reward": [0.0, 1.0]}""",
        '{"response": "x", "reward": [0.0, 1.0]}',
        '{"response": "x", "response_ids": [1, 2, 3], "reward": [0.0, 1.0]}',
        '{"response": "x", "reward_names": ["accuracy", "format"], "reward": [0.0, 1.0]}',
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_lists_that_are_not_of_rollouts_do_not_hide_the_one_response(suffix: str, record: str) -> None:
    path = write(f"a.{suffix}", [json.loads(record)] * 2)
    assert "has lists of rewards, but each record has one" in refused(path)


@pytest.mark.parametrize(
    "record",
    [
        '{"prompt": "p", "reward": [0, 1], "response": ["x", "y"]}',
        '{"prompt": "p", "reward": [0, 1], "response": "x", "texts": ["x", "y"]}',
        '{"prompt": "p", "reward": [0, 1], "response": "x", "length": [5, 6]}',
        '{"prompt": "p", "reward": [0, 1], "solution": "42"}',
        '{"prompt": "p", "reward": [0, 1]}',
        # A chat, or tokens, with as many items as rewards is one prompt.
        '{"prompt": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "reward": [0, 1]}',
        '{"prompt": [1, 2], "reward": [0, 1]}',
        '{"messages": ["x", "y"], "reward": [0, 1]}',
    ],
)
def test_a_list_of_rewards_beside_a_list_of_responses_or_a_truth_is_of_rollouts(record: str) -> None:
    Path("a.jsonl").write_text(f"{record}\n{record}\n")
    assert look("a.jsonl").facts["groups"] == 2


KEYS = """
"prompt": ["a", "b", "a", "b"]
"prompt": [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}], [{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]]
"uid": [7, 8, 7, 8]
"uid": ["a", "b", "a", "b"], "prompt": ["x", "x", "x", "x"]
"""


@pytest.mark.parametrize("keys", KEYS.strip().splitlines())
@pytest.mark.parametrize(("suffix", "reward"), [("jsonl", "rewards"), ("parquet", "score")])
def test_a_record_that_lists_the_prompts_of_its_rewards_is_a_batch_of_groups(
    suffix: str, reward: str, keys: str
) -> None:
    one = json.loads(f'{{"step": 1, {keys}, "texts": ["w", "x", "y", "z"], "{reward}": [1.0, 0.0, 0.0, 2.0]}}')
    two = {**one, "step": 2, reward: [1.0, 0.0, 0.0, 4.0]}
    found = look(write(f"a.{suffix}", [one, two]), method="dr-grpo", group_within="step")
    assert found.scored.rows[".advantage"].to_list() == [0.5, -1, -0.5, 1, 0.5, -2, -0.5, 2]
    assert found.facts["groups"] == 4


@pytest.mark.parametrize(
    "beside",
    [
        '"prompt": "q", "uid": ["a", "b", "c", "d"]',
        '"prompt": [{"role": "user", "content": "a"}], "row_id": [0, 1, 2, 3]',
        '"prompt": "q", "instructions": ["a", "b", "c", "d"]',
        '"prompt": "q", "instructions": ["a", "b"]',
        '"prompt": ["q"]',
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_record_with_one_prompt_is_a_group_whatever_lists_it_has_beside(suffix: str, beside: str) -> None:
    record = f'{{{beside}, "completions": ["w", "x", "y", "z"], "rewards": [1.0, 0.0, 0.0, 2.0]}}'
    path = write(f"a.{suffix}", [json.loads(record)] * 2)
    assert groups(path) == 2


@pytest.mark.parametrize(("name", "values"), [("env", '["x", "y"]'), ("step", "[7]"), ("sample", "[1, 2, 3]")])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_columns_that_only_checks_read_may_have_lists_of_other_lengths(suffix: str, name: str, values: str) -> None:
    beside = f'"prompt": ["a", "a", "b", "b"], "completions": ["w", "x", "y", "z"], "{name}": {values}'
    record = json.loads(f'{{{beside}, "rewards": [1.0, 0.0, 0.0, 2.0]}}')
    path = write(f"a.{suffix}", [record, record])
    assert groups(path) == 4
    said = refused(path, group=["prompt", name])
    assert re.search(f"{name} has . values?, rewards 4", said)


@pytest.mark.parametrize("beside", ['"uid": ["a", "b", "c", "d"]', '"instruction": "solve"'])
def test_prompts_that_repeat_are_the_key_before_ids_that_do_not(beside: str) -> None:
    record = f'{{{beside}, "prompt": ["a", "a", "b", "b"], "rewards": [1, 0, 0, 2]}}'
    assert groups(made(record)) == 2


def test_lists_beside_rewards_may_be_of_a_type_that_cannot_be_read() -> None:
    intervals = pa.array([[(1, 2, 3)]] * 2, pa.list_(pa.month_day_nano_interval()))
    table = pa.table({"prompt": ["a", "b"], "took": intervals, "rewards": [[1.0, 0.0]] * 2})
    with pa.ipc.new_file("a.arrow", table.schema) as writer:
        writer.write_table(table)
    assert groups("a.arrow") == 2


def test_lists_of_one_reward_stay_rows_of_their_own() -> None:
    found = look(made('{"uid": 1, "reward": [0]}\n{"uid": 1, "reward": [1]}\n'), method="rloo")
    assert found.scored.rows[".advantage"].to_list() == [-1, 1]
    assert found.narrow.key.columns == ["uid"]


def test_a_key_that_is_named_joins_the_lists_of_records() -> None:
    path = made('{"id": "a", "score": [1, 0]}\n{"id": "a", "score": [1, 0]}\n')
    facts = look(path, group=["id"]).facts
    assert facts["groups"] == 1
    assert facts["rows"] == 4


def test_a_list_with_a_text_is_refused_with_its_row() -> None:
    path = made('{"score": [1, 0]}\n' * 40 + '{"score": [1, "bad"]}\n')
    assert "a.jsonl:41: score is [1, 'bad'], expected a list of numbers" in refused(path)


def test_lists_of_rewards_are_read_at_a_path_as_well() -> None:
    path = made(
        """{"type": "text", "instances": [
{"prompt": "a", "rewards": [1, 0]},
{"prompt": "b", "rewards": [0, 0, 3]}
]}""",
        "a.json",
    )
    compute(path, reward=["instances[].rewards"], method="dr-grpo", output="o.json")
    assert (
        Path("o.json").read_text()
        == """{"type": "text", "instances": [
{"prompt": "a", "rewards": [1, 0],"advantage":[0.5,-0.5]},
{"prompt": "b", "rewards": [0, 0, 3],"advantage":[-1.0,-1.0,2.0]}
]}"""
    )


@pytest.mark.parametrize("preset", ["fireworks-igpo", "atropos-mt-grpo"])
def test_turns_inside_of_records_get_the_credit_of_turns_that_are_rows(preset: str) -> None:
    nested = made("""\
{"uid": 0, "run": 0, "turns": [{"gain": 0.0, "outcome": 0.0}, {"gain": 0.7, "outcome": 0.0}, {"gain": 0.4, "outcome": 1.0}]}
{"uid": 0, "run": 1, "turns": [{"gain": 0.4, "outcome": 0.0}, {"gain": 0.1, "outcome": 0.0}, {"gain": 0.8, "outcome": 0.0}]}
{"uid": 1, "run": 2, "turns": [{"gain": 0.8, "outcome": 0.0}, {"gain": 0.5, "outcome": 0.0}]}
{"uid": 1, "run": 3, "turns": [{"gain": 0.2, "outcome": 0.0}, {"gain": 0.9, "outcome": 1.0}]}
""")
    flat = made(
        """\
uid,run,gain,outcome
0,0,0.0,0.0
0,0,0.7,0.0
0,0,0.4,1.0
0,1,0.4,0.0
0,1,0.1,0.0
0,1,0.8,0.0
1,2,0.8,0.0
1,2,0.5,0.0
1,3,0.2,0.0
1,3,0.9,1.0
""",
        "flat.csv",
    )
    options: Any = {"preset": preset, "group": ["uid"], "rollout": "run"}
    compute(nested, reward=["turns[].gain", "turns[].outcome"], output="n.jsonl", **options)
    compute(flat, reward=["gain", "outcome"], output="f.csv", **options)
    wanted = [row["advantage"] for row in rows_of("f.csv")]
    assert [turn["advantage"] for row in rows_of("n.jsonl") for turn in row["turns"]] == wanted
    assert len({*wanted}) > 3


def test_turns_compared_only_with_their_own_rollout_are_warned_about() -> None:
    path = made("""\
{"uid": 0, "run": 0, "turns": [{"reward": 0.0}, {"reward": 0.7}, {"reward": 0.4}]}
{"uid": 0, "run": 1, "turns": [{"reward": 0.4}, {"reward": 0.1}, {"reward": 0.8}]}
{"uid": 1, "run": 2, "turns": [{"reward": 0.8}, {"reward": 0.5}, {"reward": 0.2}]}
{"uid": 1, "run": 3, "turns": [{"reward": 0.2}, {"reward": 0.0}, {"reward": 0.7}]}
""")
    plan = {"preset": "fireworks-igpo", "reward": ["turns[].reward"], "rollout": "run"}
    assert look(path, **plan).facts["warnings"] == [
        "each group has the rows of one rollout (by run), compared only with each other: name the prompt with --group"
    ]
    assert not look(path, group=["uid"], **plan).facts["warnings"]


# --- texts in place of numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "json"])
def test_texts_count_as_the_map_says(suffix: str) -> None:
    outcomes = ["pass", "fail", None, "timeout", "0.5"]
    path = write(f"a.{suffix}", [{"uid": 1, "result": text} for text in outcomes])
    found = advantages(path, "result", map=["pass=1,fail=0", "timeout=-1"], missing="exclude", method="dr-grpo")
    assert found == [0.875, -0.125, None, -1.125, 0.375]


def test_a_map_is_for_all_rewards_and_numbers_stay() -> None:
    rows = pl.read_csv(b"uid,result,bonus,ok\n1,pass,0.0,true\n1,fail,0.5,false\n")
    options: Any = {"map": {"pass": 3, "fail": 0}, "method": "rloo"}
    assert list(grpo_cli.advantages(rows, reward=["result", "bonus=2", "ok"], **options)) == [3, -3]
    rows.write_ndjson("a.jsonl")
    assert advantages("a.jsonl", "result", "bonus=2", "ok", **options) == [3, -3]


def test_outcomes_in_objects_of_a_list_are_mapped() -> None:
    path = made('{"tries": [{"result": "pass"}, {"result": "fail"}]}\n')
    assert advantages(path, "tries[].result", map="pass=1,fail=0", method="rloo") == [1, -1]


@pytest.mark.parametrize(
    "command", ["inspect", "select --limit 1 -o o.jsonl", "export --to prompts --prompt uid -o o.jsonl"]
)
def test_every_command_says_what_texts_count_as(command: str) -> None:
    path = made("uid,result\n0,fail\n0,pass\n1,fail\n1,pass\n", "a.csv")
    done = ran(f"{command} --reward result --map pass=1,fail=0 {path}")
    assert "text values: pass = 1, fail = 0" in done.out + done.err


@pytest.mark.parametrize(("word", "to"), [("None", "nan"), ("N/A", "null"), ("NA", None), ("null", math.nan)])
def test_a_text_may_be_a_missing_reward(word: str, to: Any) -> None:
    path = made(f"prompt_id,reward\na,1\na,{word}\na,0\n", "a.csv")
    said = refused(path)
    assert f"reward is '{word}', " in said
    assert "--map TEXT=NUMBER,... gives each text of a reward a number (nan: no reward)" in said
    mapped = refused(path, map={word: to})
    assert "reward is null or missing, " in mapped
    assert "--missing exclude" in mapped
    found = look(path, map={word: to}, missing="exclude", method="rloo")
    assert found.scored.rows[".advantage"].to_list() == [1, None, -1]
    assert found.facts["map"] == {word: None}
    done = adv(f"compute {path} -o - --map {word}={to} --missing exclude")
    assert f"text values: {word} = missing" in done.err


@pytest.mark.parametrize(
    ("map_", "kind", "said"),
    [
        ("pass=1,fail=0", DataError, r"a\.csv row 3: result is 'crash', which --map does not name; add .*--map 'crash=NUMBER'"),
        ({}, DataError, r"a\.csv row 1: result is 'pass', expected a number; .*--map TEXT=NUMBER,\.\.\."),
        ("=", UsageError, "--map '=' gives no number"),
        ("pass,fail=0", UsageError, "--map 'pass' gives no number; write --map TEXT=NUMBER"),
    ],
)  # fmt: skip
def test_a_text_that_the_map_does_not_name_is_refused_with_row_and_flag(
    map_: Any, kind: type[Exception], said: str
) -> None:
    path = made("uid,result\n1,pass\n1,fail\n1,crash\n1,crash\n", "a.csv")
    with pytest.raises(kind, match=said):
        look(path, reward=["result"], map=map_)


# --- JSON as text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "arrow", "json"])
def test_a_path_leads_into_texts_that_are_json(suffix: str) -> None:
    texts = """\
{"id": 0, "of": {"r": 0}}
{"id": 0, "of": {"r": 0.5}}
{"id": 1, "of": {"r": 0}}
{"id": 1, "of": {"r": 0.5}}"""
    packed = pl.DataFrame({"meta": texts.splitlines(), "other": [1, 2, 3, 4]})
    options: Any = {"group": ["meta.id"], "reward": ["meta.of.r"], "method": "rloo"}
    assert list(grpo_cli.advantages(packed, **options)) == [-0.5, 0.5, -0.5, 0.5]
    path = write(f"a.{suffix}", packed.to_dicts())
    found = compute(path, **options, output=f"o.{suffix}")
    assert found.scored.rows[".advantage"].to_list() == [-0.5, 0.5, -0.5, 0.5]
    assert verify(f"o.{suffix}", path).added == ("advantage",)


def test_a_field_that_some_texts_lack_is_missing_there() -> None:
    rows = pl.DataFrame({"uid": 1, "meta": ['{"r": 1}', '{"r": 0}', "{}", None, ""]})
    rows.write_ndjson("a.jsonl")
    assert advantages("a.jsonl", "meta.r", missing="exclude", method="rloo") == [1, -1, None, None, None]


def test_a_text_without_the_field_is_a_missing_column() -> None:
    def said(text: str) -> str:
        path = write("a.jsonl", [{"uid": 1, "meta": text}])
        return refused(path, reward=["meta.r"])

    assert "no column 'meta.r'" in said("plain")
    assert "no column 'meta.r'" in said("[1]")
    assert "no column 'meta.r'" in said('{"q": 1}')
    nested = said('{"r": {"a": 1}}')
    assert "a.jsonl:1: meta.r is {'a': 1}, expected a number" in nested
    assert "--reward COL.PART takes a part" in nested


def test_a_record_that_is_the_group_is_called_so(records: Path) -> None:
    def said(line: str) -> str:
        done = adv(f"{line} {records} --reward rollouts[].r")
        assert "@parent" not in done.out + done.err
        return done.out + done.err

    assert said("inspect --format csv").startswith("record,size,")
    assert json.loads(said("inspect --json"))["group_key"] == ["record"]
    assert "different group keys; name the prompt with --group" in said("inspect --against before=a.jsonl")
    said("compute --explain")
    assert "nearly, record, pass@K" in said("select --where zz>0")
    said("select -o b.jsonl --json --where record<2 --where mean>0.5")
    assert [row["prompt"] for row in rows_of("b.jsonl")] == ["p1"]
    said("export --to prompts --prompt prompt -o c.jsonl --json")


@pytest.mark.parametrize("words", ["1=5,0=-1,0.5=2", "1.0=5,0.0=-1,0.50=2", "1e0=5,-0.0=-1,5e-1=2"])
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_number_is_mapped_however_it_is_written(suffix: str, words: str) -> None:
    rows = pl.read_csv(b"prompt_id,reward\na,1.0\na,0.0\na,0.5\na,0.25\n")
    path = write(f"in.{suffix}", rows.to_dicts())
    found = look(path, map=words).scored.rows[".reward"]
    assert found.to_list() == [5, -1, 2, 0.25]
