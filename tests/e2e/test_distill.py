"""On-policy distillation: what a teacher adds to the advantage of each token."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
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

Row = dict[str, Any]
FORMATS = ("jsonl", "json", "parquet", "arrow")
LISTS = "--per-token --token-logprobs student --teacher-logprobs teacher"
WHOLE = "--per-token --token-logprobs all_student --teacher-logprobs all_teacher"
HALF = "--method dr-grpo --distill 0.5"
NAMES: Any = {"per_token": True, "token_logprobs": "student", "teacher_logprobs": "teacher"}

# A mask leaves out the prompt, whose first token has no log-probability.
LINES = """
{"prompt_id": "a", "reward": 1.0, "n": 2, "student": [-0.5, -1.0], "teacher": [-0.25, -1.5], "prompt_ids": [5], "all_ids": [5, 7, 7], "mask": [0, 1, 1], "all_student": [null, -0.5, -1.0], "all_teacher": [-1.0, -0.25, -1.5]}
{"prompt_id": "a", "reward": 0.0, "n": 1, "student": [-2.0], "teacher": [-0.5], "prompt_ids": [5, 5], "all_ids": [5, 5, 7], "mask": [0, 0, 1], "all_student": [null, -9.0, -2.0], "all_teacher": [-1.0, -1.0, -0.5]}
{"prompt_id": "b", "reward": 0.5, "n": 0, "student": [], "teacher": [], "prompt_ids": [5], "all_ids": [5], "mask": [0], "all_student": [null], "all_teacher": [-1.0]}
{"prompt_id": "b", "reward": 1.5, "n": 3, "student": [-1.0, -1.0, -1.0], "teacher": [-0.5, -1.0, -2.0], "prompt_ids": [5], "all_ids": [5, 7, 7, 7], "mask": [0, 1, 1, 1], "all_student": [null, -1.0, -1.0, -1.0], "all_teacher": [-1.0, -0.5, -1.0, -2.0]}
"""
ROWS: list[Row] = [json.loads(line) for line in LINES.strip().splitlines()]
PLAIN = [[0.5, 0.5], [-0.5], [], [0.5, 0.5, 0.5]]  # the advantage of each row on its tokens
GAPS = [[0.25, -0.5], [1.5], [], [0.5, 0.0, -1.0]]  # teacher - student
DISTILLED = [[0.625, 0.25], [0.25], [], [0.75, 0.5, 0.0]]  # with half of that
BEHIND_THE_PROMPT = [[0, 0.625, 0.25], [0, 0, 0.25], [0], [0, 0.75, 0.5, 0.0]]

TOKENS = [
    (LISTS, DISTILLED),
    (f"{LISTS} --length-column n", DISTILLED),
    (f"{LISTS} --tokens all_ids --length-column n", BEHIND_THE_PROMPT),
    (f"{LISTS} --tokens student --prompt-tokens prompt_ids", BEHIND_THE_PROMPT),
    (f"{WHOLE} --mask mask", BEHIND_THE_PROMPT),
    (f"{WHOLE} --mask mask --tokens all_ids", BEHIND_THE_PROMPT),
]


def computed(path: Path, out: str, options: str) -> list[Any]:
    """The lists that `compute` writes."""
    ran(f"compute {path} -o {out} --force -q {options}")
    return [row["advantage"] for row in rows_of(out)]


@pytest.mark.parametrize(("tokens", "suffix"), paired(TOKENS, FORMATS))
def test_each_token_gets_what_the_teacher_adds(tokens: tuple[str, list[Any]], suffix: str) -> None:
    options, wanted = tokens
    path = write(f"in.{suffix}", ROWS)
    assert computed(path, f"out.{suffix}", f"{options} {HALF}") == wanted
    ran(f"verify out.{suffix} --against {path}")


def test_lists_of_the_whole_sequence_go_with_a_length() -> None:
    Path("in.jsonl").write_text(LINES.lstrip().replace("null", "-9"), encoding="utf-8")
    found = computed(Path("in.jsonl"), "out.jsonl", f"{WHOLE} --tokens all_ids --length-column n {HALF}")
    assert found == BEHIND_THE_PROMPT


@pytest.mark.parametrize("suffix", FORMATS)
def test_distill_0_gives_the_bytes_of_plain_per_token(suffix: str) -> None:
    path = write(f"in.{suffix}", [{**one, "reward": -one["reward"]} for one in ROWS])
    plain = computed(path, f"plain.{suffix}", "--per-token --tokens student")
    assert computed(path, f"zero.{suffix}", f"{LISTS} --distill 0") == plain
    if suffix in {"jsonl", "json"}:  # the metadata of other files name the columns
        assert Path(f"plain.{suffix}").read_bytes() == Path(f"zero.{suffix}").read_bytes()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--distill 2 --set distill.clamp=0.5", [[1.0, -0.5], [0.5], [], [1.5, 0.5, -0.5]]),
        # A quarter of the weight is the ratio of teacher and student, 0.7 to 1.3.
        (
            "--distill 0.25 --set distill.form=reweight --set distill.clip=0.3",
            [[0.5 * (0.75 + 0.25 * math.exp(0.25)), 0.4625], [-0.4625], [], [0.5375, 0.5, 0.4625]],
        ),
        (
            "--distill 0.25 --set distill.form=reweight --set distill.clip=0.3 --set distill.negative_only=true",
            [[0.5, 0.5], [-0.4625], [], [0.5, 0.5, 0.5]],
        ),
    ],
)
def test_forms_and_bounds_are_fields_of_the_plan(options: str, wanted: list[list[float]]) -> None:
    found = computed(write("in.jsonl", ROWS), "out.jsonl", f"{LISTS} --method dr-grpo {options}")
    for one, right in zip(found, wanted, strict=True):
        assert one == pytest.approx(right, rel=1e-15)


def test_without_rewards_the_teacher_alone_counts() -> None:
    path = write("in.parquet", [{**one, "reward": None if one["n"] == 1 else one["reward"]} for one in ROWS])
    for plan in ("--method none --distill 1", "--preset nemo-rl-opd"):
        assert computed(path, "out.parquet", f"{LISTS} {plan}") == GAPS


CONSTANT = {**ROWS[0], "prompt_id": "c", "n": 9}


@pytest.mark.parametrize(("suffix", "to"), [*product(["jsonl", "parquet"], repeat=2)])
def test_dropped_masked_and_unscored_rows(suffix: str, to: str) -> None:
    rows = [{**one, "loss": 1} for one in (*ROWS, CONSTANT, CONSTANT)]
    rows[3]["loss"] = 0
    rows.append({**rows[0], "reward": None, "student": None})
    path = write(f"in.{suffix}", rows)
    options = f"{LISTS} {HALF} --missing exclude --masked-column loss=0 --zero-variance drop --masked-rows vote"
    for more in ("", "--only"):
        found = computed(path, f"out.{to}", f"{options} {more}")
        assert found == [*DISTILLED[:3], [0.0, 0.0, 0.0], None]


def test_repeated_rows_and_records_of_several_rollouts() -> None:
    Path("in.jsonl").write_text(
        '{"prompt": "p", "rewards": [0, 1], "s": [[-1.0], [-2.0, -3.0]], "t": [[-0.5], [-1.0, -4.0]]}\n'
    )
    lists = "--per-token --token-logprobs s --teacher-logprobs t --distill 1 --method dr-grpo"
    assert computed(Path("in.jsonl"), "out.jsonl", lists) == [[[0.0], [1.5, -0.5]]]
    path = write("rows.jsonl", [*ROWS, CONSTANT, CONSTANT])
    again = computed(path, "out.jsonl", f"{LISTS} {HALF} --zero-variance drop --duplicate")
    copies = [row["n"] for row in rows_of("out.jsonl")]
    assert len(copies) == 6
    of_length = {2: DISTILLED[0], 1: DISTILLED[1], 0: DISTILLED[2], 3: DISTILLED[3]}
    assert again == [of_length[n] for n in copies]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_plans_by_value_of_which_one_distills(suffix: str) -> None:
    path = write(f"in.{suffix}", ROWS)
    plans = "--plan-by prompt_id --plan b:method=dr-grpo,distill=0.5 --plan a:method=dr-grpo"
    assert computed(path, f"out.{suffix}", f"{LISTS} {plans}") == [*PLAIN[:2], *DISTILLED[2:]]


def test_a_stream_gets_its_lists_group_by_group() -> None:
    done = ran(f"compute - --stream --group prompt_id {LISTS} {HALF}", stdin=LINES.lstrip())
    assert "on 6 of 6 tokens" in done.err
    assert [one["advantage"] for one in done.rows] == DISTILLED


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow"])
def test_frames_get_lists(kind: str) -> None:
    frame = pl.DataFrame(ROWS)
    given = {"polars": frame, "pandas": frame.to_pandas(), "arrow": frame.to_arrow()}[kind]
    found = grpo_cli.advantages(given, method="dr-grpo", distill=0.5, **NAMES)
    listed = found.to_pylist() if kind == "arrow" else map(list, found)
    assert [*listed] == DISTILLED


def test_a_plan_that_distills_asks_for_lists_of_a_frame() -> None:
    frame = pl.DataFrame(ROWS)
    plan = grpo_cli.Plan.of({"estimator.name": "dr-grpo", "distill.coef": 0.5})
    assert grpo_cli.advantages(frame, plan, **NAMES).to_list() == DISTILLED
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
    said = facts_of(line)["per_token"]
    assert said["columns"] == {"token_logprobs": "student", "teacher_logprobs": "teacher"}
    assert said["response_tokens"] == 6
    noted = json.loads(pq.read_metadata("out.parquet").metadata[b"grpo_adv"])
    plan = {"form": "reweight", "coef": 0.5, "clamp": None, "clip": 0.2, "negative_only": False}
    assert noted["plan"]["distill"] == plan
    assert noted["per_token"] == said["columns"]
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
    write("in.jsonl", [*ROWS[:3], {**ROWS[3], **change}])
    done = adv(f"compute in.jsonl {LISTS} --distill 1 --length-column n -o out.jsonl -q")
    assert done.status == 1
    assert not Path("out.jsonl").exists()
    assert f"in.jsonl:4: {said}" in done.err


@pytest.mark.parametrize(
    ("first", "options", "said"),
    [
        ("null", WHOLE, "all_student is null at token 1; if it is a token of the prompt, --mask COL names a list"),
        (
            "-9",
            f"{WHOLE} --length-column n",
            "all_student has 3 numbers, the response 2 tokens; --tokens all_student says that the lists begin with the prompt",
        ),
        ("null", f"{LISTS} --mask mask", "mask has 3 numbers, student 2"),
    ],
    ids=["null", "length", "mask"],
)
def test_a_prompt_inside_of_the_lists_is_an_error_that_names_the_option(first: str, options: str, said: str) -> None:
    Path("in.jsonl").write_text(LINES.lstrip().replace("null", first), encoding="utf-8")
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


@pytest.mark.parametrize(
    "line",
    [
        "audit in.jsonl --preset slime-opd",
        "compare in.jsonl --preset slime-opd --preset slime-grpo",
        "export in.jsonl --to weights --preset slime-opd -o out.jsonl",
    ],
)
def test_commands_without_lists_refuse(line: str) -> None:
    write("in.jsonl", [{**one, "advantage": 0.5} for one in ROWS])
    refused = adv(line)
    assert refused.status == 2
    assert "changes the advantage on each token" in refused.err
    assert "compute --per-token writes lists; --set distill.coef=0 leaves that out" in refused.err


def test_inspect_shows_the_advantage_of_the_row_and_says_so() -> None:
    write("in.jsonl", ROWS)
    done = ran("inspect in.jsonl --preset slime-opd")
    assert "without what the teacher adds on each token" in " ".join(f"{done.out} {done.err}".split())
