"""Layouts: lists, arrays, logs and nested records are read as Python's json reads them, and keep their form in the output."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.errors import DataError, UsageError
from grpo_cli.files.compression import packing, unpacked
from grpo_cli.files.inputs import Input
from grpo_cli.formats.json_document.walk import put, rows_of, steps, woven
from grpo_cli.formats.registry import FORMATS, listed, nested
from grpo_cli.runs.compute_files import Facts, run
from grpo_cli.values.cells import Excerpt, Field
from grpo_cli.write.verify import verify
from tests.support.command import adv
from tests.support.jobs import compute, job, look, refused, write
from tests.support.jobs import rows_of as rows_of_file
from tests.support.weaving import in_memory, inserting

ROWS = [{"prompt_id": i // 2, "reward": i % 2} for i in range(6)]
RLOO = [-1.0, 1.0] * 3


def array(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def taken(path: str) -> Any:
    return json.loads(Path(path).read_text())


def advantages(rows: Any) -> list[Any]:
    return [row["advantage"] for row in rows]


# --- arrays and documents -------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 0, 2, "\t"])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_an_array_is_read_and_keeps_its_shape(name: str, indent: int | str | None) -> None:
    compute(array(name, json.dumps(ROWS, indent=indent)), method="rloo", output="out.json")
    rows = taken("out.json")
    assert advantages(rows) == RLOO
    if indent:
        assert Path("out.json").read_text() == json.dumps(rows, indent=indent)
    for row in rows:
        del row["advantage"]
    assert rows == ROWS


def test_an_array_under_the_name_of_lines_stays_an_array() -> None:
    path = array("a.jsonl", json.dumps(ROWS))
    (out,) = compute(path, method="rloo").facts["outputs"]
    assert advantages(taken(out)) == RLOO
    assert verify(Path(out), path).by == "bytes"


@pytest.mark.parametrize("suffix", [".json.gz", ".json"])
def test_a_packed_array_is_read_and_written_packed(suffix: str) -> None:
    path = Path(f"a{suffix}")
    path.write_bytes(gzip.compress(json.dumps(ROWS, indent=1).encode()))
    (out,) = compute(path, method="rloo").facts["outputs"]
    text = Path(out).read_bytes()
    if suffix == ".json.gz":
        text = gzip.decompress(text)
    assert advantages(json.loads(text)) == RLOO


@pytest.mark.parametrize("target", ["o.jsonl", "o.csv", "o.parquet", "o.arrow", "o.json", "o.json.gz"])
def test_an_array_can_be_written_as_every_format(target: str) -> None:
    compute(write("a.json", ROWS), method="rloo", output=target)
    assert look(target, reward=["advantage"], column="b").scored.frame[".reward"].to_list() == RLOO


def test_one_indented_object_is_one_row_and_a_folder_of_them_is_many() -> None:
    for i, row in enumerate(ROWS):
        array(f"{i}.json", json.dumps(row, indent=2))
    facts = compute(".", method="rloo", group_within="input", output="out/").facts
    assert advantages(map(taken, facts["outputs"])) == RLOO
    assert facts["groups"] == 3


def test_dropped_rows_leave_their_separators() -> None:
    text = """[
  {
    "prompt_id": 1,
    "reward": 1
  },
  {
    "prompt_id": 0,
    "reward": 0
  },
  {
    "prompt_id": 1,
    "reward": 1
  },
  {
    "prompt_id": 0,
    "reward": 1
  }
]"""
    compute(array("a.json", text), method="rloo", zero_variance="drop", output="o.json")
    assert (
        Path("o.json").read_text()
        == """[
  {
    "prompt_id": 0,
    "reward": 0,
    "advantage": -1.0
  },
  {
    "prompt_id": 0,
    "reward": 1,
    "advantage": 1.0
  }
]"""
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"reward": 1}\n{\n"reward": 2}\n', r"a\.json:3: not JSON: extra data at column 1; jq -c"),
        (" \n", r"a\.json: no rows"),
        ('[{"prompt_id": 1, "reward": 1},', r"a\.json:1: the document is cut short"),
        ('[{"prompt_id": 1,\n "reward": }]', r"a\.json:2: not JSON: expecting value at column 12"),
        ('[{"prompt_id": 1}\n,\n 3]', r"a\.json:3: item 2 of \[\] is 3, expected an object"),
        ('[{"prompt_id": 1, "reward": 1}] x', r"a\.json:1: not JSON: extra data at column 33"),
        ("[]", r"a\.json: no rows"),
        ("", r"no rows; the file is empty"),
        ('[{"prompt_id": 1, "reward": "good"}]', r"a\.json row 1: reward is 'good', expected a number"),
        ('[{"prompt_id": 1, "reward": 1, "advantage": 0}]', r"already has a column 'advantage'"),
    ],
)
def test_an_array_that_cannot_be_read_is_one_line_that_says_where(text: str, message: str) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        compute(array("a.json", text), output="o.json")
    assert not Path("o.json").exists()


json_text = st.text(st.characters(codec="utf-8"), max_size=8)
scalar = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | json_text
value = st.recursive(
    scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_text, inner, max_size=3),
    max_leaves=6,
)
item = st.dictionaries(json_text | st.sampled_from(["traces", "advantage"]), value, max_size=4)


@given(items=st.lists(item, min_size=4, max_size=4), indent=st.none() | st.integers(0, 3), ascii_only=st.booleans())
def test_new_fields_are_the_only_difference(items: Any, indent: Any, ascii_only: Any) -> None:
    """The first and the last item stand before and after the rollouts."""
    before, one, two, after = items
    outer = {"before": before, "traces": [{"inner": [one, two], "n": 0}, {"n": 1, "inner": []}], "after": after}
    text = json.dumps(outer, indent=indent, ensure_ascii=ascii_only)
    rows = rows_of(text, steps("traces[].inner[]"))
    assert [row.value for row in rows] == [one, two]
    texts = [text[row.start : row.end] for row in rows]
    assert [*map(json.loads, texts)] == [one, two]
    new = [put(text, ["advantage"], [number], replace=True) for text, number in zip(texts, "56", strict=True)]
    one["advantage"] = 5
    two["advantage"] = 6
    assert json.loads("".join(woven(text, rows, [0, 1], new))) == outer
    outer["traces"][0]["inner"] = [two]
    assert json.loads("".join(woven(text, rows, [1], new[1:]))) == outer


# --- lists ----------------------------------------------------------------------------------------------------


WIDE = listed(FORMATS["jsonl"], ("rewards",), keys_too=False)


def test_lists_become_rows_and_new_columns_become_lists_of_the_same_lengths() -> None:
    source = in_memory("""\
{"k": 0, "rewards": null}
{"k": 1, "rewards": [true, "0.5", null]}
{"k": 2, "rewards": []}
{"k": 3, "rewards": [-2]}
{"k": 4, "rewards": [0.25, " 2 "]}
{"k": 5, "rewards": null}
""")
    scanned = WIDE.scan(source, [Field("k", "key"), Field("rewards", "number"), Field("@parent", "key")])
    assert scanned.frame["k"].to_list() == [1, 1, 1, 3, 4, 4]
    assert scanned.frame["@parent"].to_list() == [1, 1, 1, 3, 4, 4]
    assert scanned.frame["rewards"].to_list() == [1.0, 0.5, None, -2.0, 0.25, 2.0]
    weaving = inserting({"a": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    for index in (scanned.index, None):
        records = WIDE.records(source, index, weaving).added
        assert records["a"].to_list() == [None, [1, 2, 3], [], [4], [5, 6], None]
    with pytest.raises(DataError, match="no rows"):
        WIDE.scan(in_memory('{"rewards": null}\n{"rewards": []}\n'), [Field("rewards", "number")])


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow", "json"])
def test_a_wide_file_of_every_format_gets_a_list_column(suffix: str) -> None:
    lines = b"""\
{"prompt": "a", "completions": ["x", "y"], "rewards": [1.0, 0.0]}
{"prompt": "b", "completions": [], "rewards": null}
{"prompt": "c", "completions": ["x", "y", "z"], "rewards": [0.0, 0.0, 3.0]}
"""
    path = write(f"wide.{suffix}", pl.read_ndjson(lines).to_dicts())
    (out,) = compute(path, method="rloo").facts["outputs"]
    written = rows_of_file(out)
    assert advantages(written) == [[1.0, -1.0], None, [-1.5, -1.5, 3.0]]
    assert [row["completions"] for row in written] == [["x", "y"], [], ["x", "y", "z"]]


def test_long_takes_lists_of_rollouts_apart_and_leaves_chats_whole() -> None:
    chat = '"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]'
    line = f'{{"uuid": "u", {chat}, "generations": ["x", "y"], "correctness_math_verify": [true, false]}}\n'
    compute(array("w.jsonl", line), method="rloo", long=True, output="o.jsonl")
    first, second = rows_of_file("o.jsonl")
    assert first["messages"] == second["messages"] == json.loads(f"{{{chat}}}")["messages"]
    assert [first["generations"], second["generations"]] == ["x", "y"]
    assert advantages([first, second]) == [1.0, -1.0]


def traces(*rollouts: str) -> str:
    """Lines of verifiers: of 'a1', a rollout of the group a with the reward 1."""
    line = '{"group":{"id":"%s"},"task":{},"traces":[{"rewards":{"r":{"score":%s,"weight":1}}}]}\n'
    return "".join(line % (rollout[0], rollout[1]) for rollout in rollouts)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_packed_lines_of_nested_records_are_read_and_written_packed(suffix: str) -> None:
    path = Path(f"traces.jsonl{suffix}")
    with path.open("wb") as sink, packing(sink, suffix) as inside:
        inside.write(traces("g0", "g1").encode())
    (out,) = compute(path, method="rloo").facts["outputs"]
    with unpacked(Input.at(out)) as handle:
        failed, solved = map(json.loads, handle.read().splitlines())
    assert failed["traces"][0]["advantage"] == -1.0
    assert solved["traces"][0]["advantage"] == 1.0
    assert Path(out).read_bytes()[:2] == path.read_bytes()[:2]


def test_lists_of_other_lengths_are_refused_with_their_line() -> None:
    path = array("w.jsonl", '{"prompt": "a", "completions": ["x", "y"], "rewards": [1, 0], "acc": [1, 0, 1]}\n')
    assert "w.jsonl:1: rewards has 2 values, rewards or acc 3" in refused(path, reward=["rewards", "acc"])


@pytest.mark.parametrize("others", [1, 5, 9])
def test_a_list_of_another_length_takes_no_text_from_the_other_records(others: int) -> None:
    """Where most records have an item per rollout, a record that does not has no texts, and is counted as left out."""
    lines = "".join(f'{{"prompt": "p{at}", "responses": ["a", "b"], "rewards": [1, 0]}}\n' for at in range(others))
    array("w.jsonl", lines + '{"prompt": "odd", "responses": ["a", "b", "c"], "rewards": [1, 0]}\n')
    done = adv("export w.jsonl --to pairs -o out.jsonl")
    pairs = rows_of_file("out.jsonl")
    assert [row["chosen"] for row in pairs] == ["a"] * others
    assert [row["rejected"] for row in pairs] == ["b"] * others
    assert "2 rows: no prompt or response" in done.out + done.err
    done = adv("compute w.jsonl --long -o long.jsonl")
    assert done.status == 1
    assert f"w.jsonl:{others + 1}: responses has 3 values, rewards 2" in done.err


def test_lists_that_match_by_chance_belong_to_the_whole_record() -> None:
    lines = """\
{"prompt": "p0", "tags": ["t"], "rewards": [1, 0]}
{"prompt": "p1", "tags": ["t", "t"], "rewards": [1, 0]}
{"prompt": "p2", "tags": ["t", "t", "t"], "rewards": [1, 0]}
"""
    adv(f"compute {array('w.jsonl', lines)} --long -o long.jsonl")
    assert [len(row["tags"]) for row in rows_of_file("long.jsonl")] == [1, 1, 2, 2, 3, 3]


def test_a_single_rollout_of_a_list_is_its_own_item() -> None:
    source = in_memory('{"k":"a","text":["x","y"],"rewards":[0,1]}\n{"k":"b","text":["z",null],"rewards":[1,1]}\n')
    for index in (WIDE.scan(source, ()).index, None):
        plain = Excerpt(index, np.array([1, 2, 3]), ["k", "text"], as_json=False)
        as_json = plain._replace(as_json=True)
        assert pl.concat(WIDE.rows(source, plain))["text"].to_list() == ["y", "z", None]
        assert pl.concat(WIDE.rows(source, as_json))["text"].to_list() == ['"y"', '"z"', None]


def test_whole_records_may_be_dropped_and_parts_of_them_only_with_long() -> None:
    kept = '{"prompt": "a", "completions": ["x", "y"], "rewards": [1, 0]'
    path = array("w.jsonl", f'{kept}}}\n{{"prompt": "b", "completions": ["x", "y"], "rewards": [1, 1]}}\n')
    compute(path, method="rloo", zero_variance="drop", output="o.jsonl")
    assert Path("o.jsonl").read_text() == kept + ',"advantage":[1.0,-1.0]}\n'
    parts = inserting({"a": [1.0]}, take=[1])
    with pytest.raises(DataError, match="--long"):
        WIDE.records(in_memory('{"k": 0, "rewards": [1, 0]}\n'), None, parts)


def test_a_nested_line_without_a_kept_rollout_goes() -> None:
    compute(array("t.jsonl", traces("a1", "b1", "a0", "b1")), method="rloo", zero_variance="drop", output="o.jsonl")
    solved, failed = rows_of_file("o.jsonl")
    assert solved["group"]["id"] == failed["group"]["id"] == "a"
    assert advantages(solved["traces"] + failed["traces"]) == [1.0, -1.0]


def test_replace_rewrites_the_field_in_place() -> None:
    trace = '{"advantage": 9, "rewards": {"r": {"score": 1, "weight": 1}}}'
    line = f'{{"group": {{"id": "a"}}, "task": {{"advantage": 8}}, "traces": [{trace}]}}\n'
    compute(array("traces.jsonl", line * 2), replace=True, output="o.jsonl")
    assert Path("o.jsonl").read_text() == line.replace('"advantage": 9', '"advantage": 0.0') * 2


# --- messy lines ----------------------------------------------------------------------------------------------

GOOD = "".join(json.dumps(row) + "\n" for row in ROWS)


def test_a_broken_last_line_is_an_error_and_can_be_left_out() -> None:
    path = array("x.jsonl", f'\n{GOOD}<PLACEHOLDER>\n{{"prompt_id": 1, "rew')
    with pytest.raises(DataError, match=r"x\.jsonl:8: not JSON.*--on-error skip"):
        look(path)
    facts = run(job(path, method="rloo", on_error="skip")).facts
    assert isinstance(facts, Facts)
    assert facts.summary.rows == 6
    assert "left out 2 lines that are not JSON objects (line 8, 9)" in facts.summary.warnings[0]
    assert pl.read_ndjson("x.advantages.jsonl")["advantage"].to_list() == RLOO
    with pytest.raises(UsageError, match="leave out"):
        compute(path, on_error="skip", in_place=True)
    with pytest.raises(UsageError, match="is an input"):
        compute(path, on_error="skip", output=str(path), force=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('\nGOOD<PLACEHOLDER>\n\n{"prompt_id": 1, "reward": null}\n', r"x\.jsonl:10: reward is null"),
        ('<PLACEHOLDER>\nGOOD{"prompt_id": 1, "reward": "abc"}\n', r"x\.jsonl:8: reward is 'abc'"),
        ("<PLACEHOLDER>\n", r"x\.jsonl: none of its lines can be read"),
    ],
)
def test_lines_beside_those_that_are_left_out_are_judged_under_their_numbers(text: str, says: str) -> None:
    path = array("x.jsonl", text.replace("GOOD", GOOD))
    with pytest.raises(DataError, match=says):
        run(job(path, explain=True, on_error="skip"))


# A reward as it stands in a line, and what a person reads.
SPELLINGS: dict[str, float | None] = {
    "1": 1, "0.5": 0.5, "-2.25": -2.25, "true": 1, "false": 0, '"1"': 1, '"0.5"': 0.5, '"True"': 1, '" 2 "': 2, '"7/8"': 0.875,
    "[1]": 1, "[0.5]": 0.5, "1" + "0" * 30: 1e30, "null": None, "NaN": None, "Infinity": None, "-Infinity": None,
}  # fmt: skip
# A prompt as it stands in a line, and which one it is.
PROMPTS = {
    '"p"': 1, "1": 2, '"1"': 3, '[{"role": "user", "content": "p"}]': 4, '[{"content": "p", "role": "user"}]': 4, '{"a": 1}': 5, "2": 6,
}  # fmt: skip
LINE = st.tuples(
    st.sampled_from([*SPELLINGS]),
    st.sampled_from([*PROMPTS]),
    st.sampled_from(["", ',"late":{"reward":9,"prompt":[]}']),
)


@given(
    lines=st.lists(LINE, min_size=2, max_size=12),
    ending=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from(["", "\ufeff"]),
    blank=st.booleans(),
    final=st.booleans(),
)
def test_any_mix_of_messy_features_gives_the_rows_that_a_person_reads(
    lines: Any, ending: str, mark: str, *, blank: bool, final: bool, tmp_path_factory: Any
) -> None:
    texts = [f'{{"reward": {reward}, "prompt": {prompt}{late}}}' for reward, prompt, late in lines]
    path = tmp_path_factory.getbasetemp() / "messy.jsonl"
    separator = ending + ending if blank else ending
    text = mark + separator.join(texts) + (ending if final else "")
    path.write_bytes(text.encode())
    found = look(path, group=["prompt"], missing="exclude", singleton="zero")
    rewards = found.scored.frame.select(pl.when(".scorable").then(".reward")).to_series()
    assert rewards.to_list() == [SPELLINGS[reward] for reward, _, _ in lines]
    prompts = [PROMPTS[prompt] for _, prompt, _ in lines]
    order = [*dict.fromkeys(prompts)]
    assert found.narrow.table["group"].to_list() == [order.index(prompt) for prompt in prompts]
    whole = path.with_name("messy.json")
    whole.write_text(f"\n[{', '.join(texts)}]")
    again = look(whole, group=["prompt"], missing="exclude", singleton="zero")
    assert again.narrow.table.equals(found.narrow.table)


def test_a_reward_of_parts_is_refused_with_the_flag_that_names_one() -> None:
    lines = """\
{"prompt_id": 1, "reward": {"accuracy": 0, "format": 0.5}}
{"prompt_id": 1, "reward": {"accuracy": 1, "format": 0.5}}
"""
    path = array("x.jsonl", lines)
    assert "reward is {'accuracy': 0, 'format': 0.5}, expected a number; " in refused(path)
    assert "--reward COL.PART takes a part" in refused(path)
    assert look(path, reward=["reward.accuracy", "reward.format"]).scored.frame[".reward"].to_list() == [0.5, 1.5]


def test_an_empty_folder_and_a_folder_of_empty_files_say_so() -> None:
    assert "no file to read" in refused(".")
    Path("a.jsonl").touch()
    assert "a.jsonl: no rows" in refused(".")


def test_nested_documents_are_not_read_from_the_middle_of_other_things() -> None:
    kind = nested(FORMATS["jsonl"], "traces[]")
    with pytest.raises(DataError, match="no rows"):
        kind.scan(in_memory(b'{"traces": null}\n{"traces": {}}\n{"other": []}\n'), [Field("r", "number")])
    twice = b'{"traces": [{"r": 1}], "traces": [{"r": 2}, {"r": 3}]}\n'
    with pytest.raises(DataError, match="in:1: traces is named twice in one object"):
        kind.scan(in_memory(twice), [Field("r", "number")])
