"""On-policy distillation: what a teacher adds to the advantage of each token, against lists that plain Python makes."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

import grpo_cli
from grpo_cli.errors import UsageError
from grpo_cli.values import token_lists
from tests.support.command import adv, facts_of, ran
from tests.support.drawn import paired
from tests.support.jobs import rows_of, write
from tests.support.per_token import computed

Row = dict[str, Any]
FORMATS = ("jsonl", "json", "parquet", "arrow")
LISTS = "--per-token --token-logprobs student --teacher-logprobs teacher"
WHOLE = "--per-token --token-logprobs all_student --teacher-logprobs all_teacher"
HALF = "--method dr-grpo --distill 0.5"


def row(at: int) -> Row:
    """Row `at` has `at` response tokens after `at + 1` tokens of the prompt."""
    student, teacher = [-0.25 * (k + 1) for k in range(at)], [-1.5 / (k + at) for k in range(at)]
    return {
        "prompt_id": at // 2, "reward": at * at / 4, "n": at, "student": student, "teacher": teacher,
        "mask": [0] * (at + 1) + [1] * at, "all_ids": [5] * (2 * at + 1), "prompt_ids": [5] * (at + 1),
        "all_student": [None, *[-9.0] * at, *student], "all_teacher": [-1.0] * (at + 1) + teacher,
    }  # fmt: skip


ROWS = [row(at) for at in range(6)]


def advantage(row: Row) -> float:
    return float(row["reward"] - mean(one["reward"] for one in ROWS if one["prompt_id"] == row["prompt_id"]))


def gaps(row: Row) -> list[float]:
    return [t - s for s, t in zip(row["student"], row["teacher"], strict=True)]


def distilled(row: Row) -> list[float]:
    return [advantage(row) + 0.5 * gap for gap in gaps(row)]


def reweighted(a: float, gap: float) -> float:
    """A quarter of the weight is the ratio of teacher and student, 0.7 to 1.3."""
    sign = (a > 0) - (a < 0)
    return a * (0.75 + 0.25 * min(max(math.exp(sign * gap), 0.7), 1.3))


TOKENS = [
    (LISTS, 0),
    (f"{LISTS} --length-column n", 0),
    (f"{LISTS} --tokens all_ids --length-column n", 1),
    (f"{LISTS} --tokens student --prompt-tokens prompt_ids", 1),
    (f"{WHOLE} --mask mask", 1),
    (f"{WHOLE} --mask mask --tokens all_ids", 1),
]


@pytest.mark.parametrize(("tokens", "suffix"), paired(TOKENS, FORMATS))
def test_each_token_gets_what_the_teacher_adds(tokens: tuple[str, int], suffix: str) -> None:
    """A mask leaves out the prompt, whose first token has no log-probability."""
    options, zeros = tokens
    path = write(f"in.{suffix}", ROWS)
    found = computed(path, f"out.{suffix}", f"{options} {HALF}")
    assert found == [[0.0] * zeros * len(row["prompt_ids"]) + distilled(row) for row in ROWS]
    ran(f"verify out.{suffix} --against {path}")


def test_lists_of_the_whole_sequence_go_with_a_length() -> None:
    path = write("in.jsonl", [{**row, "all_student": [-9.0, *row["all_student"][1:]]} for row in ROWS])
    found = computed(path, "out.jsonl", f"{WHOLE} --tokens all_ids --length-column n {HALF}")
    assert found == [[0.0] * (row["n"] + 1) + distilled(row) for row in ROWS]


@pytest.mark.parametrize("suffix", FORMATS)
def test_distill_0_gives_the_bytes_of_plain_per_token(suffix: str) -> None:
    path = write(f"in.{suffix}", [{**one, "reward": -one["reward"]} for one in ROWS])
    plain = computed(path, f"plain.{suffix}", "--per-token --tokens student")
    assert computed(path, f"zero.{suffix}", f"{LISTS} --distill 0") == plain
    if suffix in {"jsonl", "json"}:  # the metadata of other files name the columns
        assert Path(f"plain.{suffix}").read_bytes() == Path(f"zero.{suffix}").read_bytes()


def test_forms_and_bounds_are_fields_of_the_plan() -> None:
    path, out = write("in.jsonl", ROWS), "out.jsonl"
    clamped = computed(path, out, f"{LISTS} --method dr-grpo --distill 2 --set distill.clamp=0.5")
    assert clamped == [[advantage(one) + 2 * min(max(gap, -0.5), 0.5) for gap in gaps(one)] for one in ROWS]
    by = f"{LISTS} --method dr-grpo --distill 0.25 --set distill.form=reweight --set distill.clip=0.3"
    of_all, of_failures = computed(path, out, by), computed(path, out, f"{by} --set distill.negative_only=true")
    for one, mixed, failures in zip(ROWS, of_all, of_failures, strict=True):
        a = advantage(one)
        expected = [reweighted(a, gap) for gap in gaps(one)]
        assert mixed == pytest.approx(expected, rel=1e-15)
        assert failures == pytest.approx(expected if a < 0 else [a] * len(expected), rel=1e-15)


def test_without_rewards_the_teacher_alone_counts() -> None:
    path = write("in.parquet", [{**one, "reward": None if one["n"] == 3 else one["reward"]} for one in ROWS])
    for plan in ("--method none --distill 1", "--preset nemo-rl-opd"):
        assert computed(path, "out.parquet", f"{LISTS} {plan}") == list(map(gaps, ROWS))


@pytest.mark.parametrize(("suffix", "to"), [*product(["jsonl", "parquet"], repeat=2)])
def test_dropped_masked_and_unscored_rows(suffix: str, to: str) -> None:
    rows = [{**one, "loss": int(one["n"] != 5)} for one in ROWS]
    rows[2] |= {"reward": 1.0}
    rows[3] |= {"reward": 1.0}
    rows.append({**row(2), "prompt_id": 0, "reward": None, "student": None})
    path = write(f"in.{suffix}", rows)
    options = f"{LISTS} {HALF} --missing exclude --masked-column loss=0 --zero-variance drop --masked-rows vote"
    kept = [distilled(ROWS[0]), distilled(ROWS[1]), distilled(ROWS[4]), [0.0] * 5, None]
    for more in ("", "--only"):
        assert computed(path, f"out.{to}", f"{options} {more}") == kept


def test_repeated_rows_and_records_of_several_rollouts() -> None:
    path = write(
        "in.jsonl", [{"prompt": "p", "rewards": [0, 1], "s": [[-1.0], [-2.0, -3.0]], "t": [[-0.5], [-1.0, -4.0]]}]
    )
    lists = "--per-token --token-logprobs s --teacher-logprobs t --distill 1 --method dr-grpo"
    assert computed(path, "out.jsonl", lists) == [[[0.0], [1.5, -0.5]]]
    path = write("rows.jsonl", [{**one, "reward": 1.0} if one["prompt_id"] == 1 else one for one in ROWS])
    again = computed(path, "out.jsonl", f"{LISTS} {HALF} --zero-variance drop --duplicate")
    copies = [row["n"] for row in rows_of("out.jsonl")]
    assert len(copies) == len(ROWS)
    assert again == [distilled(ROWS[n]) for n in copies]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_plans_by_value_of_which_one_distills(suffix: str) -> None:
    path = write(f"in.{suffix}", [{**one, "env": "math" if one["prompt_id"] else "code"} for one in ROWS])
    plans = "--plan-by env --plan math:method=dr-grpo,distill=0.5 --plan code:method=dr-grpo"
    found = computed(path, f"out.{suffix}", f"{LISTS} {plans}")
    assert found == [distilled(one) if one["prompt_id"] else [advantage(one)] * one["n"] for one in ROWS]


def test_a_stream_gets_its_lists_group_by_group() -> None:
    lines = "".join(f"{json.dumps(one)}\n" for one in ROWS)
    done = ran(f"compute - --stream --group prompt_id {LISTS} {HALF} -q", stdin=lines)
    assert [one["advantage"] for one in done.rows] == list(map(distilled, ROWS))


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow"])
def test_frames_get_lists(kind: str) -> None:
    frame = pl.DataFrame(ROWS)
    given = {"polars": frame, "pandas": frame.to_pandas(), "arrow": frame.to_arrow()}[kind]
    names: Any = {"per_token": True, "token_logprobs": "student", "teacher_logprobs": "teacher"}
    found = grpo_cli.advantages(given, method="dr-grpo", distill=0.5, **names)
    listed = found.to_pylist() if kind == "arrow" else map(list, found)
    assert [*listed] == list(map(distilled, ROWS))


def test_a_plan_that_distills_asks_for_lists_of_a_frame() -> None:
    frame = pl.DataFrame(ROWS)
    names: Any = {"per_token": True, "token_logprobs": "student", "teacher_logprobs": "teacher"}
    plan = grpo_cli.Plan.of({"estimator.name": "dr-grpo", "distill.coef": 0.5})
    assert grpo_cli.advantages(frame, plan, **names).to_list() == list(map(distilled, ROWS))
    with pytest.raises(UsageError, match="add per_token with token_logprobs and teacher_logprobs"):
        grpo_cli.advantages(frame, plan)


@pytest.mark.parametrize("suffix", FORMATS)
def test_many_tokens_are_written_in_parts(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_lists, "AT_ONCE", 64)
    lists = [[-0.001 * (at + k) for k in range(at % 50)] for at in range(400)]
    rows = [{"prompt_id": at // 4, "reward": at % 3, "s": s, "t": [-0.5] * len(s)} for at, s in enumerate(lists)]
    options = "--per-token --token-logprobs s --teacher-logprobs t --distill 1 --method none"
    assert computed(write(f"in.{suffix}", rows), f"out.{suffix}", options) == [[-0.5 - s for s in one] for one in lists]


# --- what is said, and what is refused ---------------------------------------------------------------------------


def test_the_summary_the_explanation_and_the_parquet_file_say_it() -> None:
    write("in.parquet", ROWS)
    line = f"compute in.parquet {LISTS} --preset ms-swift-rlsd -o out.parquet"
    facts = facts_of(f"{line}")
    assert facts["per_token"]["columns"] == {"token_logprobs": "student", "teacher_logprobs": "teacher"}
    assert facts["per_token"]["response_tokens"] == 15
    noted = json.loads(pq.read_metadata("out.parquet").metadata[b"grpo_adv"])
    plan = {"form": "reweight", "coef": 0.5, "clamp": None, "clip": 0.2, "negative_only": False}
    assert noted["plan"]["distill"] == plan
    assert noted["per_token"] == facts["per_token"]["columns"]
    formula = "A (1 - 0.5 + 0.5 clip(exp(sign(A) d), 1 - 0.2, 1 + 0.2)); d = teacher - student log-probability"
    for more in ("--explain", "--force"):
        told = adv(f"{line} {more}")
        assert f"then on each token (--per-token) {formula}" in " ".join(f"{told.out} {told.err}".split())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"teacher": [-1.0]}, "teacher has 1 numbers, student 3"),
        ({"teacher": [-1.0, None, -1.0]}, "teacher is null at token 2"),
        ({"student": [-1.0, math.nan, -1.0]}, "student is nan at token 2"),
        ({"teacher": [-math.inf, -1.0, -1.0]}, "teacher is -inf at token 1"),
        ({"teacher": [[-1.0]] * 3}, "teacher is [[-1.0], [-1.0], [-1.0]], expected"),
        ({"teacher": None}, "without a list in student and teacher"),
        ({"teacher": -1.0}, "teacher is -1.0, expected a list of numbers"),
        ({"n": 2}, "student has 3 numbers, the response 2 tokens"),
    ],
    ids=str,
)
def test_lists_that_do_not_fit_are_an_error_with_the_row(change: Row, said: str) -> None:
    write("in.jsonl", [*ROWS[:3], {**ROWS[3], **change}, *ROWS[4:]])
    done = adv(f"compute in.jsonl {LISTS} --distill 1 --length-column n -o out.jsonl -q")
    assert (done.status, Path("out.jsonl").exists()) == (1, False)
    assert f"in.jsonl:4: {said}" in done.err


ENDS = [{**one, "all_student": one["all_teacher"]} for one in ROWS]


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (ROWS, WHOLE, "all_student is null at token 1; if it is a token of the prompt, --mask COL names a list"),
        (
            ENDS,
            f"{WHOLE} --length-column n",
            "all_student has 1 numbers, the response 0 tokens; --tokens all_student says that the lists begin with the prompt",
        ),
        (ROWS, f"{LISTS} --mask mask", "mask has 1 numbers, student 0"),
    ],
    ids=["null", "length", "mask"],
)
def test_a_prompt_inside_of_the_lists_is_an_error_that_names_the_option(
    rows: list[Row], options: str, said: str
) -> None:
    write("in.jsonl", rows)
    assert f"in.jsonl:1: {said}" in adv(f"compute in.jsonl {options} --distill 1 -q").err


@pytest.mark.parametrize(
    ("options", "said", "cure"),
    [
        ("--preset slime-opd", "the plan changes the advantage on each token (distill.coef 1)", "--set distill.coef=0"),
        ("--distill 0.5", "(distill.coef 0.5), and this is one advantage a row", "--per-token with --token-logprobs"),
        ("--preset slime-opd --per-token --tokens student", "compared with the student on each token", "--teacher-logprobs COL"),
        ("--distill 1 --per-token --token-logprobs student", "compared with the student", "--teacher-logprobs COL"),
        (LISTS, "--teacher-logprobs has no effect without --distill", "--distill 1"),
        ("--token-logprobs student --teacher-logprobs teacher", "--token-logprobs has no effect without --per-token", "add --per-token"),
        (f"{LISTS} --distill 2 --set distill.form=reweight", "distill.coef cannot be 2", "give 0 to 1"),
        (f"{LISTS} --distill 1 --set distill.clamp=-1", "cannot be negative", "0 or more"),
        ("--per-token --token-logprobs student --teacher-logprobs student --distill 1", "are both the column 'student'", "give each its own column"),
        ("--per-token --token-logprobs student --teacher-logprobs teachr --distill 1", "no column named 'teachr'", "did you mean 'teacher'"),
        (f"{LISTS} --distill 1 --column teacher --replace", "'teacher' is read by this run", "--column"),
        ("--set distill.coef=x", "distill.coef cannot be 'x'", ""),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_with_a_cure(options: str, said: str, cure: str) -> None:
    write("in.jsonl", ROWS)
    done = adv(f"compute in.jsonl {options} -q")
    assert done.status in {1, 2}
    assert said in done.err
    assert cure in done.err


def test_other_commands_show_the_advantage_of_the_row_and_say_so_or_refuse() -> None:
    write("in.jsonl", [{**one, "advantage": 0.5} for one in ROWS])
    done = adv("inspect in.jsonl --preset slime-opd")
    assert done.status == 0
    assert "without what the teacher adds on each token" in " ".join(f"{done.out} {done.err}".split())
    for line in (
        "audit in.jsonl --preset slime-opd",
        "compare in.jsonl --preset slime-opd --preset slime-grpo",
        "export in.jsonl --to weights --preset slime-opd -o out.jsonl",
    ):
        refused = adv(line)
        assert (refused.status, "changes the advantage on each token" in refused.err) == (2, True)
        assert "compute --per-token writes lists; --set distill.coef=0 leaves that out" in refused.err
