"""`--control` and `--holdout`: what goes to a file beside the selected groups."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import DataError, UsageError
from tests.support.command import adv
from tests.support.jobs import rows_of, write

KEY: Any = {"group": "prompt_id,step"}


def table(prompts: int = 40, steps: int = 3) -> pl.DataFrame:
    """Every prompt is drawn in several steps, four times; its solve rate depends on its number."""
    drawn = product(range(steps), range(prompts), range(4))
    rows = [(f"p{p}", step, float(n < p % 5), n) for step, p, n in drawn]
    return pl.DataFrame(rows, ["prompt_id", "step", "reward", "n"], orient="row")


def held_out(prompt: str, share: float, seed: int) -> bool:
    """What the documentation says: 8 bytes of BLAKE2b of the seed and the key, as a share of all such numbers."""
    digest = hashlib.blake2b(f"{seed}:{prompt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64 < share


def prompts(frame: Any) -> set[str]:
    return {*frame["prompt_id"]}


# --- holdout ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "seed"), [(0.1, None), (0.5, 0), (0.5, 7), (0.9, 3)])
def test_a_prompt_is_held_out_by_the_hash_of_its_key(share: float, seed: int | None) -> None:
    frame = table()
    done = grpo_cli.select(frame, holdout=share, holdout_seed=seed, **KEY)
    held = done.beside["holdout"]
    wanted = {p for p in prompts(frame) if held_out(p, share, seed or 0)}
    assert prompts(held) == wanted
    assert prompts(done.frame) == prompts(frame) - wanted
    assert len(done.frame) + len(held) == len(frame)
    assert done.facts["beside"] == {"holdout": {"groups": len(groups(held)), "rows": len(held)}}


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet", ".json"])
def test_the_split_depends_neither_on_the_format_nor_on_the_order_nor_on_other_prompts(suffix: str) -> None:
    shuffled = table().sample(fraction=1.0, shuffle=True, seed=1)
    frame = shuffled.filter(pl.col("prompt_id") != "p3")
    write(f"x{suffix}", frame.to_dicts())
    done = adv(f"select x{suffix} -g prompt_id,step --holdout 0.4 --json -o train{suffix}")
    assert json.loads(done.out)["outputs"] == [f"train{suffix}", f"train.holdout{suffix}"]
    held = rows_of(f"train.holdout{suffix}")
    assert {row["prompt_id"] for row in held} == {p for p in prompts(frame) if held_out(p, 0.4, 0)}
    assert len(held) + len(rows_of(f"train{suffix}")) == len(frame)


def test_a_number_as_the_key_is_held_out_like_its_text() -> None:
    texts = table().with_columns(pl.col("prompt_id").str.slice(1))
    numbers = texts.cast({"prompt_id": pl.Int64})
    one = grpo_cli.select(numbers, holdout=0.5, **KEY).beside["holdout"]
    other = grpo_cli.select(texts, holdout=0.5, **KEY).beside["holdout"]
    assert one.cast({"prompt_id": pl.String}).equals(other)


def test_every_input_and_one_output_of_all_have_their_holdout() -> None:
    write("in/a.jsonl", table(30).to_dicts())
    write("in/b.jsonl", table(20, 1).to_dicts())
    line = "select in -g prompt_id,step --group-within file --holdout 0.4 -o"
    assert adv(f"{line} out/").status == 0
    assert adv(f"{line} all.jsonl").status == 0
    of_a = rows_of("out/a.holdout.jsonl")
    of_b = rows_of("out/b.holdout.jsonl")
    assert of_a + of_b == rows_of("all.holdout.jsonl")
    keys = [f"p{i}" for i in range(30)]
    assert {row["prompt_id"] for row in of_a} == {key for key in keys if held_out(key, 0.4, 0)}


def test_a_holdout_is_a_share_between_0_and_1_and_its_seed_a_part_of_it() -> None:
    with pytest.raises(UsageError, match="holdout cannot be 1; it takes a share between 0 and 1"):
        grpo_cli.select(table(), holdout=1.0, **KEY)
    with pytest.raises(UsageError, match="holdout cannot be 0"):
        grpo_cli.select(table(), holdout=0.0, **KEY)
    with pytest.raises(UsageError, match="holdout_seed is part of holdout"):
        grpo_cli.select(table(), holdout_seed=1, limit=2, **KEY)


def test_a_split_with_an_empty_side_is_refused() -> None:
    with pytest.raises(DataError, match="holds out none of the 120 groups; another share, or another split"):
        grpo_cli.select(table(), holdout=0.001, **KEY)
    with pytest.raises(DataError, match=r"holds out all of the 120 groups"):
        grpo_cli.select(table(), holdout=0.99999, **KEY)


def test_a_key_that_names_no_prompt_is_refused() -> None:
    Path("x.jsonl").write_text('{"reward": 0}\n{"reward": 1}\n' * 4)
    done = adv("select x.jsonl --group-size 4 --holdout 0.5 -o y.jsonl")
    assert "the group key (blocks of rows) names no prompt, which --holdout splits by; name the column of" in done.err
    assert "the prompt with --group" in done.err
    assert not Path("y.jsonl").exists()


def test_the_id_of_a_draw_is_no_prompt_and_the_text_decides() -> None:
    drawn = product(range(3), range(30), range(2))
    rows = [(100 * step + p, step, f"What is {p} + é?", reward) for step, p, reward in drawn]
    frame = pl.DataFrame(rows, ["group_index", "step", "prompt", "reward"], orient="row")
    frame.write_parquet("x.parquet")
    done = adv("select x.parquet --holdout 0.4 -o y.jsonl")
    assert "--holdout 0.4 by prompt" in done.out
    held = {row["prompt"] for row in rows_of("y.holdout.jsonl")}
    left = {row["prompt"] for row in rows_of("y.jsonl")}
    assert held == {prompt for prompt in frame["prompt"] if held_out(prompt, 0.4, 0)}
    assert left == {*frame["prompt"]} - held
    said = adv("select x.parquet -g group_index --holdout 0.4 -o z.jsonl")
    assert "--holdout 0.4 by group_index" in said.out
    frame.select("group_index", "reward").write_ndjson("w.jsonl")
    said = adv("select w.jsonl --holdout 0.4")
    assert "the group key (group_index) names no prompt" in said.err


def test_no_second_file_is_written_over() -> None:
    write("x.jsonl", table().to_dicts())
    line = "select x.jsonl -g prompt_id,step --holdout 0.5 -o y.jsonl"
    Path("y.holdout.jsonl").write_text("mine")
    assert "y.holdout.jsonl exists" in adv(line).err
    assert not Path("y.jsonl").exists()
    assert adv(f"{line} --force").status == 0


@pytest.mark.parametrize(
    "options",
    ["to=sft", "to=pairs", "to=weights", "to=prompts", "to=prompts pool=true", "to=tokens tokens=ids"],
)
def test_exported_records_are_split_in_the_same_way(options: str) -> None:
    response = pl.concat_str("prompt_id", "n", "step")
    frame = table().with_columns(prompt="prompt_id", response=response, ids=pl.concat_list("n", "n"))
    given: Any = dict(one.split("=") for one in options.split())
    whole = grpo_cli.export(frame, **given, **KEY).frame
    done = grpo_cli.export(frame, holdout=0.4, **given, **KEY)
    held = done.beside["holdout"]
    if "prompt" in whole.columns:
        is_held = [held_out(prompt, 0.4, 0) for prompt in whole["prompt"]]
        assert held.rows() == whole.filter(is_held).rows()
    assert len(done.frame) + len(held) == len(whole)
    assert done.facts["beside"] == {"holdout": len(held)}
    write("x.jsonl", frame.to_dicts())
    flags = " ".join(f"--{one}" for one in options.removesuffix("=true").split())
    run = adv(f"export x.jsonl {flags} -g prompt_id,step --holdout 0.4 -o y.jsonl")
    assert f"holdout        {len(held)} records" in run.out
    assert len(rows_of("y.holdout.jsonl")) == len(held)


# --- control ---------------------------------------------------------------------------------------------------


def groups(frame: Any) -> set[tuple[str, int]]:
    return set(frame.select("prompt_id", "step").rows())


@pytest.mark.parametrize(
    "options", [{"where": "0.2 <= mean <= 0.8"}, {"top": 9}, {"limit": 60}, {"limit": 60, "seed": 4}, {"top_p": 0.5}]
)
def test_the_control_has_as_many_groups_of_all_and_all_of_their_rows(options: dict[str, Any]) -> None:
    frame = table()

    def drawn(**more: Any) -> Any:
        return grpo_cli.select(frame, control=True, **{**options, **more}, **KEY)

    done = drawn()
    control = done.beside["control"]
    assert len(groups(control)) == len(groups(done.frame))
    assert done.facts["beside"]["control"]["groups"] == len(groups(control))
    assert len(control) == 4 * len(groups(control))
    assert groups(control) < groups(frame)
    assert groups(control) != groups(done.frame)
    assert drawn().beside["control"].equals(control)
    assert not drawn(seed=9).beside["control"].equals(control)


def test_every_group_is_drawn_as_often_as_another() -> None:
    frame = table(10, 1)
    counts = Counter[str]()
    for seed in range(150):
        done = grpo_cli.select(frame, where="mean == 0.5", control=True, seed=seed, group="prompt_id")
        counts.update(prompts(done.beside["control"]))
    assert len(counts) == 10
    assert counts.total() == 150 * 2
    assert all(abs(count - 30) < 4 * 4.9 for count in counts.values())  # four standard deviations


def test_the_control_has_no_prompt_of_the_holdout_and_rows_are_picked_alike() -> None:
    frame = table()
    done = grpo_cli.select(frame, where="mean > 0", control=True, holdout=0.3, per_group=2, **KEY)
    held = done.beside["holdout"]
    control = done.beside["control"]
    assert prompts(held).isdisjoint(prompts(control) | prompts(done.frame))
    for part in (done.frame, held, control):
        assert {*part.group_by("prompt_id", "step").len()["len"]} == {2}
    assert len(groups(control)) == len(groups(done.frame))


@pytest.mark.parametrize("where", ["std > 0", "mean < 0.5"])
def test_the_control_has_as_many_groups_where_only_solved_rows_are_kept(where: str) -> None:
    done = grpo_cli.select(table(), where=where, per_group=1, pick="shortest", length_column="n", control=True, **KEY)
    control = done.beside["control"]
    assert len(control) == len(groups(control)) == len(groups(done.frame))
    assert done.facts["beside"]["control"]["groups"] == len(control)


def test_the_control_is_drawn_from_groups_with_rows_that_meet_a_condition() -> None:
    done = grpo_cli.select(table(), rows="step == 1", where="mean >= 0.5", control=True, **KEY)
    assert {step for _, step in groups(done.beside["control"])} == {1}


def test_files_have_the_control_beside_them() -> None:
    write("x.csv", table().to_dicts())
    done = adv("select x.csv -g prompt_id,step --where 'mean == 0.5' --control")
    assert "control        24 groups (96 rows)" in done.out
    control = grpo_cli.select(table(), where="mean == 0.5", control=True, **KEY).beside["control"]
    written = rows_of("x.selected.control.csv")
    assert [row["prompt_id"] for row in written] == control["prompt_id"].to_list()


def test_an_export_has_a_control_of_as_many_groups() -> None:
    frame = table().with_columns(question="prompt_id", answer=pl.format("{}-{}-{}", "prompt_id", "step", "n"))
    named: Any = {"prompt": "question", "response": "answer", "where": "0 < mean < 0.5"}
    done = grpo_cli.export(frame, "sft", control=True, **named, **KEY)
    control = done.beside["control"]
    hard = {p for p in prompts(frame) if int(p[1:]) % 5 == 1}
    assert {*done.frame["prompt"]} == hard
    assert len(control) == len(done.frame) == 3 * len(hard)
    assert not {*control["prompt"]} <= hard
