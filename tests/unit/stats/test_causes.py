"""The causes that a file shows are in the verdict, the facts and the table of `inspect`: truncation, masked rows, environments."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.render.figures import figures
from grpo_cli.runs.group_rows import report_groups
from grpo_cli.stats.inspection import Inspection
from tests.support.command import adv, facts_of, ran


def written(name: str, head: str, rows: list[str]) -> None:
    Path(name).write_text("\n".join([head, *rows]) + "\n")


def cut_off() -> None:
    """40 prompts with 4 rollouts each: two solved, two not, of which one is cut off at its length."""
    rows = [
        f"p{at},{reward},{end}"
        for at in range(40)
        for reward, end in ((1, "stop"), (1, "stop"), (0, "stop"), (0, "length"))
    ]
    written("a.csv", "prompt_id,reward,finish_reason", rows)


def test_responses_that_are_cut_off_are_in_the_text_the_verdict_and_the_document() -> None:
    cut_off()
    assert facts_of("inspect a.csv --json")["truncated"] == {
        "column": "finish_reason", "rows": 40, "share": 0.25, "unsolved_share": 0.5, "solved_share": 0.0,
    }  # fmt: skip
    out = ran("inspect a.csv", COLUMNS="200").out
    assert "truncated      40 of 160 responses (25%), by finish_reason" in out
    assert (
        "25% of the responses are cut off (finish_reason): 50% of those with the worst reward, 0% of those with the best. "
        "Raise the limit of the length, or look for loops."
    ) in out
    assert adv("inspect a.csv --fail-on 'truncated.share > 0.2'").status == 3
    assert ran("inspect a.csv --where 'truncated > 0' --format csv").out.count("\n") == 41


def test_nothing_is_advised_where_as_many_solved_responses_are_cut_off() -> None:
    rows = [
        f"p{at},{reward},{end}"
        for at in range(40)
        for reward, end in ((1, "stop"), (1, "length"), (0, "stop"), (0, "length"))
    ]
    written("a.csv", "prompt_id,reward,stop_reason", rows)
    out = ran("inspect a.csv", COLUMNS="200").out
    assert (
        "50% of the responses are cut off (stop_reason): 50% of those with the worst reward, 50% of those with the best."
        in out
    )
    assert "Raise the limit" not in out


def test_what_masked_rows_change_is_said() -> None:
    """Two prompts: 1 1 0 and a masked 0; 1 1 and two masked zeros, which is always solved without them."""
    rows = ["a,1,0", "a,1,0", "a,0,0", "a,0,1", "b,1,0", "b,1,0", "b,0,1", "b,0,1"]
    written("a.csv", "prompt_id,reward,masked", rows)
    facts = facts_of("inspect a.csv --masked-column masked --json")
    assert facts["masked_effect"] == {
        "mean": 0.5, "mean_without": 0.8, "solve_rate": 0.5, "solve_rate_without": (2 / 3 + 1) / 2,
        "zero_variance_share": 0.0, "zero_variance_share_without": 0.5,
    }  # fmt: skip
    assert (
        "37.5% of the rows are masked (masked). Their rewards count. Without them the mean is 0.8 instead of 0.5, "
        "the mean solve rate 83.3% instead of 50%, and the share of no gradient 50% instead of 0%."
    ) in " ".join(facts["verdicts"])
    groups = ran("inspect a.csv --masked-column masked --where 'masked > 1' --format csv").out
    assert [line.split(",")[0] for line in groups.splitlines()] == ["prompt_id", "b"]


def test_each_environment_has_its_trend_in_the_table_the_document_and_csv() -> None:
    """12 steps: math rises from 1/12 to 1, code stays at 1/2."""
    rows = [
        {
            "prompt_id": f"{env}{step}",
            "step": step,
            "env_name": env,
            "reward": int(at <= step) if env == "math" else at % 2,
        }
        for step in range(12)
        for at in range(12)
        for env in ("math", "code")
    ]
    pl.DataFrame(rows).write_ndjson("run.jsonl")
    code, math = facts_of("inspect run.jsonl --by env_name --json")["by"]["lines"]
    assert (code["course"]["shape"], math["course"]["shape"]) == ("none", "line")
    assert (math["course"]["first"], math["course"]["last"]) == pytest.approx((1.5 / 12, 11.5 / 12))
    out = ran("inspect run.jsonl --by env_name", COLUMNS="120").out
    assert any(line.startswith("math") and line.rstrip(" █").endswith("0.125 to 0.958") for line in out.splitlines())
    assert any(line.startswith("code") and line.rstrip(" █").endswith("no trend") for line in out.splitlines())
    table = [*csv.DictReader(ran("inspect run.jsonl --by env_name --format csv").out.splitlines())]
    assert [(line["env_name"], line["over_steps_shape"]) for line in table] == [("code", "none"), ("math", "line")]


def test_a_column_of_rows_in_where_names_rows() -> None:
    cut_off()
    done = adv("inspect a.csv --where 'finish_reason == \"length\"'")
    assert done.status == 2
    assert "finish_reason is a column of rows, and --where is about facts of groups" in done.err
    assert "--rows" in done.err


def test_a_comparison_of_plans_ends_with_its_verdict() -> None:
    """RLOO is 2 (r - mean) in groups of two, and GRPO without the std r - mean; with its std they differ by 1.41."""
    written("a.csv", "prompt_id,reward", ["a,0", "a,1", "b,0", "b,1"])
    out = ran("compare a.csv --method dr-grpo --method rloo", COLUMNS="200").out
    assert out.splitlines()[-1] == "verdict        rloo is dr-grpo times 2, nearly in every row; no sign changes."
    out = ran("compare a.csv --method grpo --method grpo,epsilon=1e-8", COLUMNS="200").out
    assert out.splitlines()[-1].startswith("verdict        grpo,epsilon=1e-8 is the same as grpo up to ")


def test_bars_are_smoothed_only_where_sizes_differ() -> None:
    rows = [f"p{at},{(at * 7 + k * k * 13) % 97 / 97}" for at in range(30) for k in range(8)]
    written("a.csv", "prompt_id,reward", rows)
    out = ran("inspect a.csv", COLUMNS="200").out
    assert "smoothed" not in out
    assert "the bars are fifths without their upper end; counted exactly,\n" in out


def test_how_many_groups_are_neither_too_easy_nor_too_hard_is_counted_apart_from_the_bars() -> None:
    """Rates 0.8 of 5 and 0.75 of 4 rows: bars that are smoothed have another number from 0.2 to 0.8."""
    written("a.csv", "prompt_id,reward", [f"p{n},{int(k)}" for n in (4, 5) for k in range(n)])
    lines = [line.strip() for line in ran("inspect a.csv").out.splitlines()]
    at = lines.index("smoothed across groups of different sizes; counted exactly,")
    assert lines[at + 1].startswith("2 of 2 groups from 0.2 to 0.8, both included; mean ")


def test_masked_rows_count_in_one_plan_and_not_in_the_other() -> None:
    """Rows 1 1 0 and a masked 0: r - mean is 1/2 with it and 1/3 without it, where the masked row has no advantage."""
    written("a.csv", "prompt_id,reward,masked", ["a,1,0", "a,1,0", "a,0,0", "a,0,1"])
    line = "compare a.csv --masked-column masked --method dr-grpo --method dr-grpo,masked-rows=exclude"
    (found,) = facts_of(f"{line} --json")["differences"]
    assert (found["rows"], found["lost"], found["changed"]) == (3, 1, 3)
    assert found["largest_change"] == pytest.approx(1 / 6)
    ran(f"{line} --write --column adv -o b.csv")
    one, other = "adv_dr_grpo", "adv_dr_grpo_masked_rows_exclude"
    rows = [*csv.DictReader(Path("b.csv").read_text().splitlines())]
    assert [float(row[one]) for row in rows] == [0.5, 0.5, -0.5, -0.5]
    assert [row[other] and round(float(row[other]), 6) for row in rows] == [0.333333, 0.333333, -0.666667, ""]
    done = adv("compare a.csv --masked-column masked --method grpo --method grpo,masked-rows=drop")
    assert "masked-rows cannot be 'drop'" in done.err


# Rows of known layouts: what says of the last row that its response was cut off, and the column by which it is found.
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    "status": [
        {"group_index": at // 2, "index": at, "prompt": "p", "response": "r", "response_length": 7, "reward": at % 2, "status": "truncated" if at == 3 else "completed"}
        for at in range(4)
    ],
    "truncate_status": [
        {"eid": {"batch": 0, "task": at // 2, "run": at % 2, "step": 0}, "reward": at % 2, "response_length": 3, "truncate_status": "response_truncated" if at == 3 else None}
        for at in range(4)
    ],
    "response.incomplete_details.reason": [
        {"responses_create_params": {}, "response": {"incomplete_details": {"reason": "max_output_tokens"} if at == 3 else None}, "reward": at % 2, "_ng_task_index": at // 2, "_ng_rollout_index": at % 2}
        for at in range(4)
    ],
}  # fmt: skip


@pytest.mark.parametrize("column", LAYOUTS)
def test_responses_that_are_cut_off_are_found_by_the_column_of_the_layout(column: str) -> None:
    lines = "".join(f"{json.dumps(row)}\n" for row in LAYOUTS[column])
    Path("a.jsonl").write_text(lines)
    found = facts_of("inspect a.jsonl")
    assert found["schema"] is not None
    assert found["truncated"] == {
        "column": column,
        "rows": 1,
        "share": 0.25,
        "unsolved_share": 0.0,
        "solved_share": 0.5,
    }
    assert f"1 of 4 responses (25%), by {column}" in ran("inspect a.jsonl").out
    assert adv("inspect a.jsonl --fail-on 'truncated.rows > 0'").status == 3


def test_an_episode_of_rllm_says_why_it_ended() -> None:
    for at in range(2):
        episode = {
            "training_step": 0, "episode_id": f"t:{at}", "task_hash": "h", "termination_reason": "max_response_length_exceeded" if at else "env_done",
            "trajectories": [{"name": "solver", "uid": f"u{at}", "reward": 1 - at}],
        }  # fmt: skip
        Path(f"episode_hash1_id{at}.json").write_text(json.dumps(episode))
    assert facts_of("inspect .")["truncated"] == {
        "column": "termination_reason", "rows": 1, "share": 0.5, "unsolved_share": 1.0, "solved_share": 0.0,
    }  # fmt: skip


def test_a_column_without_any_value_does_not_say_that_no_response_was_cut_off() -> None:
    rows = [{"prompt_id": "p", "reward": k % 2, "finish_reason": None} for k in range(4)]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert facts_of("inspect a.jsonl")["truncated"] is None
    # Nor does the column of a layout that the file does not have.
    Path("b.jsonl").write_text(
        "".join(
            f"{json.dumps({k: v for k, v in row.items() if k != 'truncate_status'})}\n"
            for row in LAYOUTS["truncate_status"]
        )
    )
    assert facts_of("inspect b.jsonl")["truncated"] is None


def test_what_rows_that_failed_would_change_is_said() -> None:
    """Two prompts: 1 0 and two that failed, and 1 1 and one that failed: 3/4 without these, 3/7 with zeros for them."""
    rows = ["a,1,0", "a,0,0", "a,,1", "a,,1", "b,1,0", "b,1,0", "b,,1"]
    written("a.csv", "prompt_id,reward,failed", rows)
    facts = facts_of("inspect a.csv --left-out-column failed")
    assert facts["failed_effect"] == {
        "mean": 0.75, "mean_with": 3 / 7, "solve_rate": 0.75, "solve_rate_with": pytest.approx((1 / 4 + 2 / 3) / 2),
        "zero_variance_share": 0.5, "zero_variance_share_with": 0.0,
    }  # fmt: skip
    assert (
        "42.9% of the rows are left out of their groups (failed). With rewards of 0 for them the mean is 0.429 instead of 0.75, "
        "the mean solve rate 45.8% instead of 75%, and the share of no gradient 0% instead of 50%."
    ) in facts["verdicts"]
    assert facts_of("inspect a.csv --missing exclude")["failed_effect"] is None
    # --rows chooses rows, and says nothing of failures.
    assert facts_of("inspect a.csv --rows 'failed == 0'")["failed_effect"] is None


def environments(name: str = "env_name") -> None:
    """20 steps of 8 new prompts: math and game rise by 0.6, code stays at 1/2, logic is never solved."""
    drawn = random.Random(4)  # noqa: S311 - test data
    rates: dict[str, Callable[[int], float]] = {
        "math": lambda step: 0.2 + 0.03 * step,
        "game": lambda step: 0.1 + 0.03 * step,
        "code": lambda _: 0.5,
        "logic": lambda _: 0,
    }
    rows = [
        {
            "prompt_id": f"{env}{step}{at}",
            "step": step,
            name: env,
            "reward": k / 8 if env == "code" else int(drawn.random() < rate(step)),
        }
        for step in range(20)
        for env, rate in rates.items()
        for at in range(2)
        for k in range(9)
    ]
    pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col("reward").cast(pl.Float64)).write_ndjson(
        "run.jsonl"
    )


def test_an_environment_that_stands_still_is_named_without_a_flag() -> None:
    environments()
    facts = facts_of("inspect run.jsonl")
    assert facts["environments"]["column"] == "env_name"
    shapes = {name: one["shape"] for name, one in facts["environments"]["courses"].items()}
    assert shapes == {"math": "line", "game": "line", "code": "none", "logic": "none"}
    (said,) = [line for line in facts["verdicts"] if line.startswith("By env_name")]
    assert said.startswith(
        "By env_name, no trend beyond chance in the mean reward of code (always 0.5) and logic (always 0), while math goes from "
    )
    by_flag = facts_of("inspect run.jsonl --by env_name")
    assert by_flag["environments"] is None
    (of_flag,) = [line for line in by_flag["verdicts"] if "no trend beyond chance in the mean reward of" in line]
    assert {*of_flag.split(" ")} >= {"code", "logic"}


def column_of_page(inspection: Inspection, name: str) -> list[Any]:
    table = report_groups(inspection)
    return [line[table.columns.index(name)] for line in table.lines]


def test_the_page_tells_the_trend_of_each_environment_and_keeps_their_column() -> None:
    environments()
    look = grpo_cli.inspect("run.jsonl", by="env_name")
    caption = next(figure.caption for figure in figures(look.inspection) if figure.name == "mean_reward")
    assert " Over the steps " in caption
    assert "code has no trend beyond chance (always 0.5)" in caption
    assert "math goes from " in caption
    assert {*column_of_page(grpo_cli.inspect("run.jsonl").inspection, "env_name")} == {"math", "game", "code", "logic"}


def test_a_step_of_csv_is_a_number_on_the_page_which_a_click_compares() -> None:
    rows = [f"{step},p{step}{at},{k % 2}" for step in range(12) for at in range(4) for k in range(4)]
    written("a.csv", "step,prompt_id,reward", rows)
    inspection = grpo_cli.inspect("a.csv", by="step").inspection
    figure = next(figure for figure in figures(inspection) if figure.name == "mean_reward")
    assert figure.lines[3]["where"] == "step == 3"
    assert {*column_of_page(inspection, "step")} == {*range(12)}


def test_environments_are_not_told_where_nothing_moves_or_there_are_many() -> None:
    rows = [f"{step},p{step}{at},{'ab'[at % 2]},{k % 2}" for step in range(12) for at in range(4) for k in range(4)]
    written("a.csv", "step,prompt_id,env,reward", rows)
    facts = facts_of("inspect a.csv")
    assert {one["shape"] for one in facts["environments"]["courses"].values()} == {"none"}
    assert "By env" not in " ".join(facts["verdicts"])
    written("b.csv", "step,prompt_id,env,reward", [line.replace(",a,", f",{at},") for at, line in enumerate(rows)])
    assert facts_of("inspect b.csv")["environments"] is None
    written("c.csv", "prompt_id,env,reward", [line.partition(",")[2] for line in rows])
    assert facts_of("inspect c.csv")["environments"] is None


def test_facts_of_groups_are_not_told_of_a_category_that_groups_mix() -> None:
    """A group that is cut off in some rows counts at its first row, which is chance."""
    cut_off()
    out = ran("inspect a.csv --by finish_reason").out
    head = next(line for line in out.splitlines() if line.startswith("finish_reason  groups"))
    assert "no gradient" not in head
    assert "spread" not in head
    assert "By finish_reason, " not in out
    assert "facts of whole groups are left out" in " ".join(out.split())


def test_the_bar_of_the_share_without_a_gradient_stands_beside_it_and_the_table_fits() -> None:
    rows = [
        f"p{at},{step},{int((at + k + step) % 3 == 0) if at % 2 else 0},{('an environment with a long name ', 'sql ')[at % 2]}v1,{k},stop"
        for step in range(6)
        for at in range(12)
        for k in range(4)
    ]
    written("a.csv", "prompt_id,step,reward,env_name,response_length,finish_reason", rows)
    lines = ran("inspect a.csv --by env_name").out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("env_name"))
    head, first = lines[at : at + 2]
    assert max(map(len, lines[at : at + 3])) <= 80
    written(
        "b.csv",
        "prompt_id,step,reward,env_name",
        [",".join(row.split(",")[:3]) + "," + row.split(",")[3][:3] for row in rows],
    )
    lines = ran("inspect b.csv --by env_name").out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("env_name"))
    head, first = lines[at : at + 2]
    assert first.index("█") < head.index("over steps")
    assert first.index("█") > first.index("100%")


@pytest.mark.parametrize("option", ["", " --by env_name"])
def test_environments_that_move_against_each_other_are_told_where_the_mean_stays(option: str) -> None:
    """12 steps of 12 rollouts: math is solved once more in each step, code once less, and the mean stays at 13/24."""
    rows = [
        {"prompt_id": f"{env}{step}", "step": step, "env_name": env, "reward": int(at <= (step if env == "math" else 11 - step))}
        for step in range(12)
        for env in ("math", "code")
        for at in range(12)
    ]  # fmt: skip
    pl.DataFrame(rows).write_ndjson("run.jsonl")
    said = facts_of(f"inspect run.jsonl{option}")["verdicts"]
    assert (
        "By env_name, the mean reward of math goes from 0.125 to 0.958 and that of code goes from 0.958 to 0.125."
        in said
    )
    rising = [{**row, "reward": int(row["reward"] or row["env_name"] == "code")} for row in rows]
    pl.DataFrame(rising).write_ndjson("run.jsonl")
    assert "that of" not in " ".join(facts_of(f"inspect run.jsonl{option}")["verdicts"])
