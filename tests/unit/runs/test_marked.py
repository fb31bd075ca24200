"""Rows that their tool does not count like others: what each command makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest

import grpo_cli
from tests.support.command import adv, facts_of, ran
from tests.support.jobs import rows_of, write

NO = None


def written(name: str, text: str) -> str:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
    return name


def trace(score: float | None, *, ok: bool = True, trainable: bool = True) -> Any:
    rewards = {} if score is None else {"correct": {"score": score, "weight": 1.0}}
    return {"rewards": rewards, "ok": ok, "agent": {"name": "a", "trainable": trainable}, "nodes": [], "info": {}}


JUDGE = trace(NO, trainable=False)


def episode(group: str, *traces: Any) -> str:
    record = {"group": {"id": group}, "task": {"key": group}, "run": {"work": {"step": 1}}, "traces": traces}
    return f"{json.dumps(record)}\n"


def advantages(file: str, options: str = "") -> list[float | None]:
    """The advantages that `compute` gives; of traces, those of each episode in turn."""
    rows = ran(f"compute {file} -o - --quiet {options}").rows
    return [of["advantage"] for row in rows for of in row.get("traces", [row])]


# --- what the trainers give: tests/reference/test_marked.py has their numbers ------------------------------------

SLIME = """\
{"group_index": 0, "index": 0, "prompt": "p", "response": "a", "response_length": 2, "label": "", "reward": 1, "status": "completed", "remove_sample": false}
{"group_index": 0, "index": 1, "prompt": "p", "response": "b", "response_length": 2, "label": "", "reward": 0, "status": "completed", "remove_sample": false}
{"group_index": 0, "index": 2, "prompt": "p", "response": "c", "response_length": 2, "label": "", "reward": 0, "status": "failed", "remove_sample": true}
{"group_index": 0, "index": 3, "prompt": "p", "response": "d", "response_length": 2, "label": "", "reward": 1, "status": "completed", "remove_sample": false}
"""


def test_a_sample_that_slime_removes_from_the_loss_counts_in_its_group_and_its_status_is_not_looked_at() -> None:
    """The std of the rewards is 0.5774."""
    file = written("samples.jsonl", SLIME)
    done = ran(f"compute {file} -o - --facts --preset slime-grpo")
    assert [row["advantage"] for row in done.rows] == pytest.approx([0.866024, -0.866024, -0.866024, 0.866024])
    assert [row["advantage_status"] for row in done.rows] == ["scored", "scored", "masked", "scored"]
    assert "1 masked: not trained on, the rewards count (remove_sample is true" in " ".join(done.err.split())


def test_a_group_of_rows_that_are_left_out_has_no_mean_and_no_std() -> None:
    """A NaN beside the empty mean would make every later average of the column NaN."""
    written("rows.csv", "prompt_id,reward,bad\na,1,true\na,0,true\nb,1,\n")
    done = ran("compute rows.csv -o - --facts --left-out-column bad")
    assert (
        done.out
        == """\
prompt_id,reward,bad,advantage,advantage_mean,advantage_std,advantage_size,advantage_status
a,1,true,,,,0,left-out
a,0,true,,,,0,left-out
b,1,,0.0,1.0,0.0,1,singleton
"""
    )


def test_a_judge_beside_the_solver_is_no_rollout() -> None:
    first = episode("g", trace(1.0), JUDGE)
    facts = facts_of(f"inspect {written('traces.jsonl', first + episode('g', trace(0.0), JUDGE))}")
    assert facts["rows"] == 2
    assert facts["group_sizes"]["max"] == 2
    assert facts["unscorable"] == 0
    assert facts["marks"] == [{"kind": "foreign", "mark": "agent.trainable is false", "reason": "", "rows": 2}]


def test_a_failed_rollout_of_nemo_gym_is_masked_and_named() -> None:
    file = written("rollouts.jsonl", """\
{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "mask_sample": false, "failure_kind": null}
{"_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 0.0, "mask_sample": true, "failure_kind": "timeout"}
{"_ng_task_index": 0, "_ng_rollout_index": 2, "reward": 0.0, "mask_sample": true, "failure_kind": "oom"}
{"_ng_task_index": 0, "_ng_rollout_index": 3, "reward": 0.0, "mask_sample": true, "failure_kind": "timeout"}
""")  # fmt: skip
    facts = facts_of(f"inspect {file}")
    assert facts["masked"] == 3
    assert facts["unscorable"] == 0
    assert {line["reason"]: line["rows"] for line in facts["marks"]} == {"timeout": 2, "oom": 1}
    assert (
        "75% of the rows are masked (mask_sample is true: timeout 2, oom 1). Their rewards count. Without them "
        "the mean is 1 instead of 0.25. --masked-rows exclude leaves them out."
    ) in facts["verdicts"]
    assert advantages(file, "--masked-rows exclude") == [0.0, NO, NO, NO]


def test_a_flag_wins_over_the_preset_and_the_preset_over_the_schema() -> None:
    traces = [trace(1.0), trace(0.0), trace(1.0, ok=False), trace(0.0)]
    file = written("traces.jsonl", "".join(episode("g", one) for one in traces))
    left_out = pytest.approx([2 / 3, -1 / 3, NO, -1 / 3])
    voting = [0.5, -0.5, 0.5, -0.5]
    plain = "-m grpo -s none"
    assert advantages(file, plain) == left_out  # prime-rl wrote it
    assert advantages(file, f"{plain} --missing propagate") == left_out
    assert advantages(file, "--preset slime-grpo -s none") == voting  # slime looks at no status
    assert advantages(file, "--preset slime-grpo -s none --masked-rows exclude") == left_out
    assert advantages(file, f"{plain} --masked-rows vote") == voting


# --- plain tables ------------------------------------------------------------------------------------------------

TABLE = """\
{"prompt_id": "a", "reward": 1.0, "bad": "", "n": 2, "prompt": "p", "completion": "x"}
{"prompt_id": "a", "reward": 0.0, "bad": "oom", "n": 2, "prompt": "p", "completion": "y"}
{"prompt_id": "a", "reward": 0.0, "bad": "", "n": 2, "prompt": "p", "completion": "z"}
"""


def test_a_column_says_which_rows_are_left_out_or_masked_under_every_preset() -> None:
    file = written("in.jsonl", TABLE)
    assert advantages(file, "-m rloo --left-out-column bad") == [1.0, NO, -1.0]
    assert advantages(file, "-m rloo --masked-column bad=oom") == [1.0, -0.5, -0.5]
    assert advantages(file, "-m rloo --masked-column bad --masked-rows exclude") == [1.0, NO, -1.0]
    preset = "--preset prime-rl-grpo --masked-column bad"  # prime-rl itself leaves such rows out
    assert advantages(file, preset) == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert advantages(file, f"{preset} --masked-rows exclude") == pytest.approx([0.5, NO, -0.5])


def test_a_mark_that_nothing_reads_is_named_with_its_flags() -> None:
    file = written("in.csv", "prompt_id,reward,sample_loss_mask\na,1,1\na,0,0\na,0,1\n")
    done = ran(f"compute {file} -o -")
    assert "sample_loss_mask is 0 in 1 of 3 rows" in done.err
    assert "--masked-column sample_loss_mask=0" in done.err


def test_a_masked_row_has_zeros_on_its_tokens() -> None:
    flags = f"{written('in.jsonl', TABLE)} -m rloo -o - --masked-column bad --length-column n"
    done = ran(f"compute {flags} --per-token")
    assert [row["advantage"] for row in done.rows] == [[1.0, 1.0], [0.0, 0.0], [-0.5, -0.5]]
    tokens = ran(f"export {flags} --to tokens")
    assert [row["advantages"] for row in tokens.rows] == [[1.0, 1.0], [0.0, 0.0], [-0.5, -0.5]]


@pytest.mark.parametrize("kind", ["sft --pick all-above --min-reward 0", "pairs", "weights"])
def test_a_masked_row_is_in_no_data_to_train_on(kind: str) -> None:
    text = ran(f"export {written('in.jsonl', TABLE)} -o - --masked-column bad --to {kind}").out
    assert '"x"' in text
    assert '"z"' in text
    assert '"y"' not in text


def test_select_keeps_marked_rows_with_their_group_and_never_picks_them() -> None:
    file = written("in.jsonl", TABLE)
    done = ran(f"select {file} --where 'size > 1' --masked-column bad -o -")
    assert done.out == TABLE
    assert "1 masked among them" in done.err
    picked = ran(f"select {file} --per-group 3 --masked-column bad -o -")
    assert [row["completion"] for row in picked.rows] == ["x", "z"]


def test_select_keeps_the_record_of_a_kept_trace_whole() -> None:
    kept = episode("a", trace(1.0), JUDGE) + episode("a", trace(0.0), JUDGE)
    file = written("traces.jsonl", kept + 2 * episode("b", trace(0.0), JUDGE))
    assert ran(f"select {file} --where 'std > 0' -o -").out == kept


TWELVE = pl.read_csv(b"""\
prompt_id,reward,bad
0,1,0
0,0,0
0,0,1
0,1,0
1,0,0
1,1,0
1,1,0
1,1,1
2,0,1
2,0,0
2,0,0
2,1,0
""")


@pytest.mark.parametrize(
    ("masked_rows", "note"),
    [("vote", "masked rows count in their groups"), ("exclude", "marked rows are left out")],
)
def test_audit_tries_marked_rows_both_ways_and_says_which_was_used(
    masked_rows: Literal["vote", "exclude"], note: str
) -> None:
    logged = grpo_cli.advantages(TWELVE, masked_column="bad", masked_rows=masked_rows, epsilon=1e-4)
    found = grpo_cli.audit(TWELVE.with_columns(advantage=logged), masked_column="bad")
    assert found["match"]["mismatched_rows"] == 0
    assert note in " ".join(found["notes"])


def test_audit_leaves_out_what_a_flag_leaves_out() -> None:
    logged = grpo_cli.advantages(TWELVE, left_out_column="bad", epsilon=1e-4)
    found = grpo_cli.audit(TWELVE.with_columns(advantage=logged), left_out_column="bad")
    assert found["rows"] == 9
    assert found["match"]["mismatched_rows"] == 0


def test_a_mark_that_only_late_rows_have_is_found() -> None:
    row = '{{"_ng_task_index": {0}, "_ng_rollout_index": {1}, "reward": {1}}}\n'
    early = "".join(row.format(at // 2, at % 2) for at in range(40_000))
    late = '{"_ng_task_index": 19999, "_ng_rollout_index": 2, "reward": 0, "_ng_failure_class": "judge_failed"}\n'
    found = facts_of(f"inspect {written('rollouts.jsonl', early + late)}")
    assert found["left_out"] == 1
    assert found["marks"][0]["reason"] == "judge_failed"


def test_a_stream_of_judges_and_evaluations_alone_has_no_rollout() -> None:
    evaluated = {**trace(1.0), "info": {"kind": "eval"}}
    done = adv(f"inspect {written('run/stream.jsonl', episode('g', JUDGE) + episode('h', evaluated))}")
    assert done.status == 1
    assert (
        "stream.jsonl: no row is a rollout: agent.trainable is false in 1, info.kind is eval or grade in 1; "
        in done.err
    )


@pytest.mark.parametrize("reason", ["failure_kind", "failure_reason"])
def test_the_reason_beside_a_column_that_was_named_is_counted(reason: str) -> None:
    rows = [("false", "null"), ("true", '"timeout"'), ("true", '"oom"'), ("true", '"timeout"')]
    line = '{{"id": "a", "reward": 1.0, "bad": {}, "' + reason + '": {}}}\n'
    file = written("rollouts.jsonl", "".join(line.format(*row) for row in rows))
    marks = facts_of(f"inspect {file} --group id --masked-column bad")["marks"]
    assert {mark["reason"]: mark["rows"] for mark in marks} == {"timeout": 2, "oom": 1}


STATUS = """
exclude | scored unscorable
zero | scored unscorable
as-zero | scored scored
propagate | scored unscorable
"""


@pytest.mark.parametrize("case", STATUS.strip().splitlines())
def test_a_row_whose_missing_reward_counts_as_0_is_scored_and_still_counted_as_unscorable(case: str) -> None:
    missing, statuses = case.split(" | ")
    rows = '{"q": "a", "reward": 1}\n{"q": "a", "reward": null}\n{"q": "a", "reward": 0}\n'
    Path("in.jsonl").write_text(rows)
    done = ran(f"compute in.jsonl -g q --missing {missing} --facts -o out.jsonl --json")
    facts = json.loads(done.out)
    assert [row["advantage_status"] for row in rows_of("out.jsonl")] == [*statuses.split(), "scored"]
    assert (facts["unscorable"], facts["status"]["scored"]) == (1, 1 + statuses.count("scored"))
    gated = adv(f"compute in.jsonl -g q --missing {missing} -o gated.jsonl --fail-on 'unscorable > 0'")
    assert gated.status == 3


NESTED: Any = [
    {"q": "a", "reward": reward, "meta": {"status": status, "n": n, "deep": {"x": status}}}
    for reward, status, n in ((1, "ok", 1), (0, "failed", 2**53), (0, "ok", 2), (1, "ok", 2**53 + 1))
]


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "arrow", "jsonl.gz"])
@pytest.mark.parametrize(
    ("option", "row"),
    [("meta.status=failed", 1), ("meta.deep.x=failed", 1), (f"meta.n={2**53}", 1), (f"meta.n={2**53 + 1}", 3)],
)
def test_a_mark_may_be_inside_of_an_object(suffix: str, option: str, row: int) -> None:
    path = write(f"in.{suffix}", NESTED)
    done = ran(f"compute {path} -g q --left-out-column {option} -o out.jsonl --json")
    facts = json.loads(done.out)
    assert facts["left_out"] == 1
    assert [at for at, found in enumerate(rows_of("out.jsonl")) if found["advantage"] is None] == [row]
    column = option.partition("=")[0]
    unknown = adv(f"compute {path} -g q --left-out-column {column}x=failed -o out.jsonl --force")
    assert (unknown.status, f"no column '{column}x'" in unknown.err) == (1, True), unknown


def test_a_column_with_the_whole_name_is_that_mark() -> None:
    path = write("in.jsonl", [{**row, "meta.status": "failed" if at == 3 else "ok"} for at, row in enumerate(NESTED)])
    ran(f"compute {path} -g q --left-out-column meta.status=failed -o out.jsonl")
    assert [row["advantage"] is None for row in rows_of("out.jsonl")] == [False, False, False, True]


def test_a_value_inside_of_an_object_that_no_row_has_gets_a_warning() -> None:
    done = ran(f"compute {write('in.jsonl', NESTED)} -g q --left-out-column meta.status=faild -o out.jsonl")
    assert "meta.status is faild in no row; did you mean failed?" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("select quiet.jsonl --where 'masked == 0'", 0, "1 of 1 kept"),
        ("select quiet.jsonl --where 'masked > 0'", 0, "0 of 1 kept"),
        ("select quiet.jsonl --top 1 --by masked", 0, "1 of 1 kept"),
        ("select quiet.jsonl --masked-rows exclude --where 'std > 0'", 0, "1 of 1 kept"),
        ("select plain.jsonl --masked-column why=timeout --where 'masked == 0'", 0, "1 of 1 kept"),
        ("select plain.jsonl --where 'masked == 0'", 2, "nothing says which rows are masked"),
    ],
)
def test_a_condition_on_masked_rows_holds_on_a_day_without_any(line: str, status: int, said: str) -> None:
    """A layout, or a flag, says what marks a row; that no row has it is no mistake."""
    written("quiet.jsonl", SLIME.replace("true}", "false}"))
    written("plain.jsonl", "".join(f'{{"prompt_id": 0, "reward": {at % 2}, "why": "none"}}\n' for at in range(4)))
    done = adv(f"{line} -o out.jsonl")
    assert done.status == status, done.err
    assert said in " ".join((done.out + done.err).split())
