"""Every schema reads what its tool writes, is recognised alone, and puts advantages into the file's own layout."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from grpo_cli.errors import DataError, UnknownName, UsageError
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding, FileTable
from grpo_cli.schemas.table import REFUSED as REFUSED_LAYOUTS
from grpo_cli.schemas.table import parsed, schemas
from grpo_cli.write.verify import verify
from tests.support.battery import Row
from tests.support.jobs import Seen, compute, look, near, refused, rows_of, write
from tests.support.oracles import ORACLES
from tests.support.schema_files import REFUSED, WRITERS, Written

READ = sorted(WRITERS)


def done(written: Written, **more: Any) -> Seen:
    """What `compute` finds; without an output it writes nothing."""
    given = {**written.flags, **more}
    return compute(written.path, explain="output" not in given, **given)


def opened(path: Path | str) -> tuple[list[FileTable], list[str]]:
    """The tables of a file or folder, and what was passed over."""
    inputs, skipped = find_inputs([str(path)])
    return open_tables(inputs, Binding()), skipped


def expected(rewards: Sequence[float | None], codes: Sequence[int]) -> list[float | None]:
    """GRPO by the oracle; None where there is no reward."""
    scored = [Row(group=str(code), reward=r) for r, code in zip(rewards, codes, strict=True) if r is not None]
    values = iter(ORACLES["grpo"](scored))
    return [None if reward is None else next(values) for reward in rewards]


def test_every_schema_has_a_writer_and_every_writer_a_schema() -> None:
    refused = {name for name, schema in schemas().items() if schema.layout in REFUSED_LAYOUTS}
    assert {*WRITERS} == {*schemas()} - refused, "tests/support/schema_files.toml has a file of each"
    assert {*REFUSED} == refused


@pytest.mark.parametrize("name", READ)
def test_a_file_as_its_tool_writes_it_is_recognised_and_read_without_flags(name: str) -> None:
    written = WRITERS[name](Path())
    found = done(written)
    assert found.facts["schema"] == schemas()[name].title
    assert found.facts["notes"][0].startswith(f"read as {schemas()[name].title}: group = ")
    assert found.facts["rows"] == len(written.rewards)
    codes = found.narrow.table["group"].to_list()
    assert [codes.count(code) for code in dict.fromkeys(codes)] == list(written.sizes)
    rewards = found.scored.frame.select(pl.when(".scorable").then(".reward")).to_series().to_list()
    assert rewards == near(written.rewards)
    assert found.scored.frame[".advantage"].to_list() == near(expected(written.rewards, codes))


@pytest.mark.parametrize("name", READ)
def test_an_output_has_every_byte_of_its_input_and_can_be_verified(name: str) -> None:
    written = WRITERS[name](Path())
    facts = done(written, output="out/").facts
    for new, old in zip(facts["outputs"], facts["inputs"], strict=True):
        assert verify(Path(new), Path(old)).added == (facts["advantage_column"],)


@pytest.mark.parametrize("name", READ)
def test_long_gives_one_row_per_rollout_where_a_record_holds_several(name: str) -> None:
    written = WRITERS[name](Path())
    if schemas()[name].layout == "long":
        with pytest.raises(DataError, match="leave out --long"):
            done(written, output="out/", long=True)
        return
    found = done(written, output="out/", long=True)
    advantages = []
    for output in found.facts["outputs"]:
        path = Path(output)
        if path.suffix == ".json" and not path.read_bytes().startswith(b"["):
            path = path.rename(f"{path}l")
        advantages += [row["advantage"] for row in rows_of(path)]
    codes = found.narrow.table["group"].to_list()
    assert advantages == near(expected(written.rewards, codes))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_has_no_reward_per_rollout_is_refused_with_what_it_is(name: str) -> None:
    schema = schemas()[name]
    said = refused(write("data.jsonl", [REFUSED[name]] * 3))
    assert said == f"data.jsonl: {schema.title}: {schema.refusal}; {'; '.join(schema.hint)}"
    assert "\n" not in said


def test_a_reward_beside_a_pass_rate_is_no_aggregate() -> None:
    rows = [{**REFUSED["polaris"], "prompt_id": 1, "reward": k} for k in (0, 1)]
    found = done(Written(write("data.jsonl", rows), [2], [0.0, 1.0]))
    assert found.facts["schema"] is None
    assert found.facts["rows"] == 2


# --- flags and choice -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trl", "ms-swift"])
def test_columns_of_this_tool_are_no_rewards_of_a_log_without_reward_names(name: str) -> None:
    written = WRITERS[name](Path())
    first = done(written, output="x/", column="mine", facts=True)
    again = done(replace(written, path=Path(first.facts["outputs"][0])), column="again")
    assert again.facts["reward_columns"] == first.facts["reward_columns"]
    assert again.scored.rows[".advantage"].equals(first.scored.rows[".advantage"])


def test_where_keys_are_sorted_rewards_may_follow_the_advantage() -> None:
    lines = b"accuracy,advantage,completion,format,prompt,step\n0.0,0.5,c,1.0,p,1\n0.5,0.5,c,1.0,p,1\n"
    pl.read_csv(lines).write_parquet("completions_00001.parquet")
    found = look("completions_00001.parquet", column="mine")
    assert found.facts["reward_columns"] == ["accuracy", "format"]


def test_a_schema_that_is_named_is_not_guessed() -> None:
    Path("x.jsonl").write_text("""\
{"input": "q", "output": "o", "score": 0, "step": 1, "uid": "a_0_0"}
{"input": "q", "output": "o", "score": 1, "step": 1, "uid": "a_1_0"}
""")
    assert look("x.jsonl").facts["schema"] == schemas()["verl-v1"].title
    assert look("x.jsonl", schema="verl").facts["schema"] == schemas()["verl"].title
    with pytest.raises(UnknownName, match="did you mean 'verl'"):
        look("x.jsonl", schema="ver1")


def test_two_schemas_that_fit_equally_well_are_an_error_with_both_names() -> None:
    Path("y.jsonl").write_text(
        '{"uuid": "u", "generations": [], "correctness_math_verify": [true, false], '
        '"prompt": "p", "completions": [], "rewards": [1.0, 0.5]}\n'
    )
    with pytest.raises(DataError, match=r"two schemas fit: openr1 .* and wide .*--schema NAME; --schema none"):
        opened("y.jsonl")
    assert look("y.jsonl", schema="wide").scored.frame[".reward"].to_list() == [1.0, 0.5]


def test_files_of_different_schemas_are_not_mixed() -> None:
    WRITERS["verl"](Path())
    WRITERS["slime"](Path())
    with pytest.raises(DataError, match=r"the files have different schemas: .*--schema NAME"):
        opened(".")


def test_a_key_that_does_not_look_as_the_schema_says_names_the_row() -> None:
    Path("x.jsonl").write_text("""\
{"input": "q", "output": "o", "score": 1, "step": 1, "uid": "a_0_0"}
{"input": "q", "output": "o", "score": 1, "step": 1, "uid": "plain"}
""")
    assert "x.jsonl:2: uid is 'plain', which has no uid without its last two parts" in refused("x.jsonl")


def test_blocks_need_their_size() -> None:
    assert "--group-size N" in refused(WRITERS["nemo-rl"](Path()).path)


def test_several_scorers_are_the_users_choice_and_letters_are_numbers_there_too() -> None:
    Path("log.json").write_text("""{"version": 2, "eval": {}, "samples": [
        {"id": 1, "epoch": 1, "scores": {"match": {"value": "C"}, "model": {"value": 0.25}}},
        {"id": 1, "epoch": 2, "scores": {"match": {"value": "C"}, "model": {"value": 0.25}}}]}""")
    assert "match, model; choose one with --reward scores.NAME.value" in refused("log.json")
    found = look("log.json", reward=["scores.match.value", "scores.model.value=2"])
    assert found.scored.frame[".reward"].to_list() == [1.5, 1.5]


@pytest.mark.parametrize(("name", "lengths"), [("tinker", [2.0, 3.0] * 4), ("open-instruct", [2.0, 3.0, 4.0, 5.0] * 2)])
def test_a_method_that_needs_lengths_finds_them(name: str, lengths: list[float]) -> None:
    found = done(WRITERS[name](Path()), whiten="token")
    assert found.narrow.table["length"].to_list() == lengths


# --- second copies --------------------------------------------------------------------------------------------


def test_second_copies_are_passed_over_in_a_directory_and_named() -> None:
    effective = WRITERS["prime-rl"](Path()).path
    text = effective.read_text()
    for part in ("train/all", "eval/effective"):
        path = Path("rollouts") / "step_1" / part / "traces.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    tables, skipped = opened(".")
    assert [table.name for table in tables] == [str(effective)]
    assert skipped[0].startswith("skipped 2 files ")
    assert len(opened("rollouts/step_1/train/all/traces.jsonl")[0]) == 1


def test_a_copy_is_read_if_there_is_no_original() -> None:
    original = WRITERS["prime-rl"](Path("other")).path
    Path("all").mkdir()
    original.rename("all/traces.jsonl")
    assert len(opened("all")[0]) == 1


# --- the table itself -----------------------------------------------------------------------------------------

ENTRY = """
[mine]
title = "mine"
tool = "mine"
layout = "long"
source = "here"
fields = { a = "number" }
group = ["a"]
reward = ["b"]
"""


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        ("", 'colour = "red"'),
        ('"number"', '"numbr"'),
        ('"long"', '"lnog"'),
        ("", 'left_out = { error = "fill" }'),
        ("", "[mine.derive.x]\nfrm = 'a'\nmeans = 'm'"),
        ("", "rewards = { shpe = 'float' }"),
    ],
)
def test_a_schema_is_data_and_unknown_words_in_it_are_errors(known: str, unknown: str) -> None:
    assert parsed(ENTRY)["mine"].group == ("a",)
    with pytest.raises(UnknownName):
        parsed(ENTRY.replace(known, unknown) if known else f"{ENTRY}{unknown}\n")


@pytest.mark.parametrize("key", ["title", "fields", "group", "reward"])
def test_a_schema_that_lacks_a_fact_is_an_error(key: str) -> None:
    with pytest.raises(UsageError):
        parsed(re.sub(rf"^{key} = .*\n", "", ENTRY, flags=re.MULTILINE))


def test_detection_does_not_depend_on_the_order_of_rows_or_keys() -> None:
    for name in ("verl", "slime", "tinker", "open-instruct", "verifiers"):
        folder = Path(name)
        folder.mkdir()
        written = WRITERS[name](folder)
        rows = [json.loads(line) for line in written.path.read_text().splitlines()]
        turned = [dict(reversed(row.items())) for row in reversed(rows)]
        (table,), _ = opened(write(written.path, turned))
        assert table.schema is schemas()[name]


def test_a_folder_of_steps_keeps_its_steps_apart_and_knows_its_batches() -> None:
    for step in (7, 8):
        folder = Path(str(step))
        folder.mkdir()
        path = WRITERS["trl"](folder).path
        frame = pl.read_parquet(path).with_columns(pl.lit(step).alias("step"))
        path.unlink()
        frame.write_parquet(path.with_name(f"completions_{step:05d}.parquet"))
    found = look(".", column="mine", scale="batch")
    assert found.facts["groups"] == 4
    assert found.facts["batches"] == 2
    assert found.facts["batch_key"] == "step"


def test_of_several_metrics_one_has_to_be_named() -> None:
    Path("samples_x_2025.jsonl").write_text("""\
{"doc_id": 0, "target": "4", "resps": [["x"]], "filtered_resps": ["x"], "filter": "none", "metrics": ["acc", "acc_norm", "bleu"], "target_hash": "t", "acc": 0.0, "acc_norm": 0.0, "bleu": 0.0}
{"doc_id": 0, "target": "4", "resps": [["x"]], "filtered_resps": ["x"], "filter": "none", "metrics": ["acc", "acc_norm", "bleu"], "target_hash": "t", "acc": 1.0, "acc_norm": 1.0, "bleu": 1.0}
""")
    said = refused("samples_x_2025.jsonl")
    assert re.search("several columns could be the reward of a .*: acc, acc_norm, bleu; choose one", said)
    assert look("samples_x_2025.jsonl", reward=["acc"]).facts["groups"] == 1


def test_one_sample_of_each_prompt_is_nothing_to_compare() -> None:
    Path("1.jsonl").write_text("""\
{"input": "q0", "output": "x", "score": 1.0, "step": 1}
{"input": "q1", "output": "x", "score": 1.0, "step": 1}
""")
    assert "input within step has one sample per prompt, nothing to compare" in refused("1.jsonl")


@pytest.mark.parametrize("part", ['"id": 1', '"answer": "a"'])
def test_verifiers_files_of_all_ages_are_known(part: str) -> None:
    chat = '[{"role": "user", "content": "q"}]'
    row = f'{{"prompt": {chat}, "completion": {chat}, "reward": 1.0, "task": "t", {part}}}\n'
    Path("results.jsonl").write_text(2 * row)
    tables, _ = opened("results.jsonl")
    assert tables[0].schema is not None
    assert tables[0].schema.tool.startswith("verifiers (old")
