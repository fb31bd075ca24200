"""On-policy distillation: what a teacher adds to the advantage of each token, against lists that plain Python makes."""

from __future__ import annotations

import gc
import json
import math
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

import grpo_cli
from grpo_cli.errors import UsageError
from grpo_cli.values import token_lists
from tests.support.command import adv
from tests.support.jobs import rows_of, write
from tests.support.per_token import computed

Row = dict[str, Any]
FORMATS = ("jsonl", "json", "parquet", "arrow")
LISTS = ("--per-token", "--token-logprobs", "student", "--teacher-logprobs", "teacher")
PLAIN = ("--method", "dr-grpo")


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


def distilled(row: Row, coef: float = 0.5) -> list[float]:
    a = advantage(row)
    return [a + coef * (t - s) for s, t in zip(row["student"], row["teacher"], strict=True)]


def reweighted(a: float, gap: float, share: float, clip: float) -> float:
    sign = (a > 0) - (a < 0)
    return a * ((1 - share) + share * min(max(math.exp(sign * gap), 1 - clip), 1 + clip))


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("options", "zeros"),
    [
        ((), False),
        (("--length-column", "n"), False),
        (("--tokens", "all_ids", "--length-column", "n"), True),
        (("--tokens", "student", "--prompt-tokens", "prompt_ids"), True),
    ],
    ids=str,
)
def test_each_token_gets_what_the_teacher_adds(
    options: tuple[str, ...], *, zeros: bool, suffix: str, tmp_path: Path
) -> None:
    path, out = write(tmp_path / f"in.{suffix}", ROWS), tmp_path / f"out.{suffix}"
    found = computed(path, out, *LISTS, *PLAIN, "--distill", "0.5", *options)
    assert found == [[0.0] * (zeros * len(row["prompt_ids"])) + distilled(row) for row in ROWS]
    assert adv("verify", str(out), "--against", str(path)).status == 0


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("more", [("--mask", "mask"), ("--mask", "mask", "--tokens", "all_ids")], ids=str)
def test_a_mask_leaves_out_the_prompt_whose_first_token_has_no_log_probability(
    suffix: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    path = write(tmp_path / f"in.{suffix}", ROWS)
    options = ("--per-token", "--token-logprobs", "all_student", "--teacher-logprobs", "all_teacher", *more)
    found = computed(path, tmp_path / f"out.{suffix}", *options, *PLAIN, "--distill", "0.5")
    assert found == [[0.0] * (row["n"] + 1) + distilled(row) for row in ROWS]


def test_lists_of_the_whole_sequence_go_with_a_length(tmp_path: Path) -> None:
    rows = [{**row, "all_student": [-9.0, *row["all_student"][1:]]} for row in ROWS]
    path = write(tmp_path / "in.jsonl", rows)
    options = ("--per-token", "--token-logprobs", "all_student", "--teacher-logprobs", "all_teacher")
    sizes = ("--tokens", "all_ids", "--length-column", "n")
    found = computed(path, tmp_path / "out.jsonl", *options, *sizes, *PLAIN, "--distill", "0.5")
    assert found == [[0.0] * (row["n"] + 1) + distilled(row) for row in ROWS]


@pytest.mark.parametrize("suffix", FORMATS)
def test_distill_0_gives_the_bytes_of_plain_per_token(suffix: str, tmp_path: Path) -> None:
    rows = [{**one, "reward": -one["reward"]} for one in ROWS]
    path = write(tmp_path / f"in.{suffix}", rows)
    plain, zero = tmp_path / f"plain.{suffix}", tmp_path / f"zero.{suffix}"
    assert computed(path, plain, "--per-token", "--tokens", "student") == computed(path, zero, *LISTS, "--distill", "0")
    if suffix in {"jsonl", "json"}:  # the metadata of other files name the columns
        assert plain.read_bytes() == zero.read_bytes()


def test_forms_and_bounds_are_fields_of_the_plan(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl"
    gaps = [[t - s for s, t in zip(one["student"], one["teacher"], strict=True)] for one in ROWS]
    clamped = computed(path, out, *LISTS, *PLAIN, "--distill", "2", "--set", "distill.clamp=0.5")
    assert clamped == [
        [advantage(one) + 2 * min(max(gap, -0.5), 0.5) for gap in of_row]
        for one, of_row in zip(ROWS, gaps, strict=True)
    ]
    by = (*LISTS, *PLAIN, "--distill", "0.25", "--set", "distill.form=reweight", "--set", "distill.clip=0.3")
    of_all, of_failures = computed(path, out, *by), computed(path, out, *by, "--set", "distill.negative_only=true")
    for one, of_row, mixed, failures in zip(ROWS, gaps, of_all, of_failures, strict=True):
        a = advantage(one)
        expected = [reweighted(a, gap, 0.25, 0.3) for gap in of_row]
        assert mixed == pytest.approx(expected, rel=1e-15)
        assert failures == pytest.approx(expected if a < 0 else [a] * len(of_row), rel=1e-15)


def test_without_rewards_the_teacher_alone_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "in.parquet", [{**one, "reward": None if one["n"] == 3 else one["reward"]} for one in ROWS])
    found = computed(path, tmp_path / "out.parquet", *LISTS, "--method", "none", "--distill", "1")
    assert found == [[t - s for s, t in zip(one["student"], one["teacher"], strict=True)] for one in ROWS]
    assert found == computed(path, tmp_path / "out.parquet", *LISTS, "--preset", "nemo-rl-opd")


def test_dropped_masked_and_unscored_rows(tmp_path: Path) -> None:
    rows = [{**one, "loss": 0 if one["n"] == 5 else 1} for one in ROWS]
    rows[2] |= {"reward": 1.0}
    rows[3] |= {"reward": 1.0}
    rows.append({**row(2), "prompt_id": 0, "reward": None, "student": None})
    options = (*LISTS, *PLAIN, "--distill", "0.5", "--missing", "exclude", "--masked-column", "loss=0")
    for suffix in ("jsonl", "parquet"):
        path = write(tmp_path / f"in.{suffix}", rows)
        kept = [distilled(ROWS[0]), distilled(ROWS[1]), distilled(ROWS[4]), [0.0] * 5, None]
        for to in ("jsonl", "parquet"):
            out = tmp_path / f"out.{to}"
            assert computed(path, out, *options, "--zero-variance", "drop", "--masked-rows", "vote") == kept
            assert computed(path, out, *options, "--zero-variance", "drop", "--masked-rows", "vote", "--only") == kept


def test_repeated_rows_records_of_several_rollouts_and_other_formats(tmp_path: Path) -> None:
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_text('{"prompt": "p", "rewards": [0, 1], "s": [[-1.0], [-2.0, -3.0]], "t": [[-0.5], [-1.0, -4.0]]}\n')
    lists = ("--per-token", "--token-logprobs", "s", "--teacher-logprobs", "t", "--distill", "1", *PLAIN)
    assert computed(path, out, *lists) == [[[0.0], [1.5, -0.5]]]
    rows = [{**one, "reward": 1.0} if one["prompt_id"] == 1 else one for one in ROWS]
    path = write(tmp_path / "rows.jsonl", rows)
    again = computed(path, out, *LISTS, *PLAIN, "--distill", "0.5", "--zero-variance", "drop", "--duplicate")
    copies = [row["n"] for row in rows_of(out)]
    assert len(copies) == len(ROWS)
    assert again == [distilled(ROWS[n]) for n in copies]


def test_plans_by_value_of_which_one_distills(tmp_path: Path) -> None:
    rows = [{**one, "env": "math" if one["prompt_id"] else "code"} for one in ROWS]
    plans = ("--plan-by", "env", "--plan", "math:method=dr-grpo,distill=0.5", "--plan", "code:method=dr-grpo")
    for suffix in ("jsonl", "parquet"):
        path = write(tmp_path / f"in.{suffix}", rows)
        found = computed(path, tmp_path / f"out.{suffix}", *LISTS, *plans)
        assert found == [distilled(one) if one["prompt_id"] else [advantage(one)] * one["n"] for one in ROWS]


def test_a_stream_gets_its_lists_group_by_group() -> None:
    lines = "".join(f"{json.dumps(one)}\n" for one in ROWS)
    options = ("--stream", "--group", "prompt_id", *LISTS, *PLAIN, "--distill", "0.5", "-q")
    done = adv("compute", "-", *options, stdin=lines)
    assert done.status == 0, done.err
    assert [one["advantage"] for one in done.rows] == list(map(distilled, ROWS))


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow"])
def test_frames_get_lists(kind: str) -> None:
    frame = pl.DataFrame(ROWS)
    given = {"polars": frame, "pandas": frame.to_pandas(), "arrow": frame.to_arrow()}[kind]
    names: Any = {"per_token": True, "token_logprobs": "student", "teacher_logprobs": "teacher"}
    found = grpo_cli.advantages(given, method="dr-grpo", distill=0.5, **names)
    listed = found.to_pylist() if kind == "arrow" else [list(one) for one in found]
    assert listed == list(map(distilled, ROWS))
    plan = grpo_cli.Plan.of({"estimator.name": "dr-grpo", "distill.coef": 0.5})
    assert grpo_cli.advantages(frame, plan, **names).to_list() == list(map(distilled, ROWS))
    with pytest.raises(UsageError, match="add per_token=True with token_logprobs and teacher_logprobs"):
        grpo_cli.advantages(frame, plan)
    by: Any = {
        "plan_by": "prompt_id",
        "plans": {"default": {"method": "dr-grpo"}, "1": {"method": "dr-grpo", "distill": 0.5}},
    }
    parts = grpo_cli.advantages(frame, **names, **by).to_list()
    assert parts == [distilled(one) if one["prompt_id"] == 1 else [advantage(one)] * one["n"] for one in ROWS]


@pytest.mark.parametrize("suffix", FORMATS)
def test_many_tokens_are_written_in_parts(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_lists, "AT_ONCE", 64)
    rows: list[dict[str, Any]] = [
        {
            "prompt_id": at // 4,
            "reward": at % 3,
            "s": [-0.001 * (at + k) for k in range(at % 50)],
            "t": [-0.5] * (at % 50),
        }
        for at in range(400)
    ]
    path = write(tmp_path / f"in.{suffix}", rows)
    lists = ("--per-token", "--token-logprobs", "s", "--teacher-logprobs", "t", "--distill", "1", "--method", "none")
    assert computed(path, tmp_path / f"out.{suffix}", *lists) == [[-0.5 - s for s in one["s"]] for one in rows]


def test_float32_lists_give_the_numbers_of_float64(tmp_path: Path) -> None:
    kinds = {"student": pl.List(pl.Float32), "teacher": pl.List(pl.Float32)}
    path = tmp_path / "in.parquet"
    pl.DataFrame(ROWS).cast(kinds).write_parquet(path)  # type: ignore[arg-type]
    narrow = pl.read_parquet(path)["teacher"].to_list()
    found = computed(path, tmp_path / "out.parquet", *LISTS, "--method", "none", "--distill", "1")
    assert found == [
        [t - s for s, t in zip(one["student"], of, strict=True)] for one, of in zip(ROWS, narrow, strict=True)
    ]


# --- what is said, and what is refused ---------------------------------------------------------------------------


def test_the_summary_the_explanation_and_the_parquet_file_say_it(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.parquet", ROWS), tmp_path / "out.parquet"
    options = (*LISTS, "--preset", "ms-swift-rlsd", "-o", str(out))
    facts = json.loads(adv("compute", str(path), *options, "--json").out)
    assert facts["per_token"]["columns"] == {"token_logprobs": "student", "teacher_logprobs": "teacher"}
    assert facts["per_token"]["response_tokens"] == 15
    noted = json.loads(pq.read_metadata(out).metadata[b"grpo_adv"])
    assert noted["plan"]["distill"] == {
        "form": "reweight",
        "coef": 0.5,
        "clamp": None,
        "clip": 0.2,
        "negative_only": False,
    }
    assert noted["per_token"] == facts["per_token"]["columns"]
    formula = "A (1 - 0.5 + 0.5 clip(exp(sign(A) d), 1 - 0.2, 1 + 0.2)); d = teacher - student log-probability"
    for more in ("--explain", "--force"):
        told = adv("compute", str(path), *options, more)
        assert f"then on each token (--per-token) {formula}" in " ".join(f"{told.out} {told.err}".split())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"teacher": [-1.0]}, "rows.jsonl:4: teacher has 1 numbers, student 3"),
        ({"teacher": [-1.0, None, -1.0]}, "rows.jsonl:4: teacher is null at token 2"),
        ({"student": [-1.0, math.nan, -1.0]}, "rows.jsonl:4: student is nan at token 2"),
        ({"teacher": [-math.inf, -1.0, -1.0]}, "rows.jsonl:4: teacher is -inf at token 1"),
        ({"teacher": [[-1.0]] * 3}, "rows.jsonl:4: teacher is a list of lists"),
        ({"teacher": None}, "rows.jsonl:4: without a list in student and teacher"),
        ({"teacher": -1.0}, "rows.jsonl:4: teacher is -1.0, expected a list of numbers"),
        ({"n": 2}, "rows.jsonl:4: student has 3 numbers, the response 2 tokens"),
    ],
    ids=str,
)
def test_lists_that_do_not_fit_are_an_error_with_the_row(change: Row, said: str, tmp_path: Path) -> None:
    rows = [*ROWS[:3], {**ROWS[3], **change}, *ROWS[4:]]
    path, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    done = adv("compute", str(path), *LISTS, "--distill", "1", "--length-column", "n", "-o", str(out), "-q")
    assert (done.status, out.exists()) == (1, False)
    assert said in done.err


def test_a_prompt_inside_of_the_lists_is_an_error_that_names_the_mask(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ROWS)
    lists = ("--per-token", "--token-logprobs", "all_student", "--teacher-logprobs", "all_teacher", "--distill", "1")
    done = adv("compute", str(path), *lists, "-q")
    said = "rows.jsonl:1: all_student is null at token 1; if it is a token of the prompt, --mask COL names a list"
    assert said in done.err
    sizes = ("--length-column", "n")
    path = write(tmp_path / "rows.jsonl", [{**one, "all_student": one["all_teacher"]} for one in ROWS])
    done = adv("compute", str(path), *lists, *sizes, "-q")
    said = "all_student has 1 numbers, the response 0 tokens; --tokens all_student says that the lists begin with the prompt"
    assert said in done.err
    found = computed(path, tmp_path / "out.jsonl", *lists, *sizes, "--tokens", "all_student", "--method", "none")
    assert found == [[0.0] * (2 * one["n"] + 1) for one in ROWS]


def test_a_mask_of_another_length_is_an_error_with_the_row(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ROWS)
    done = adv("compute", str(path), *LISTS, "--distill", "1", "--mask", "mask", "-q")
    assert "rows.jsonl:1: mask has 1 numbers, student 0" in done.err


@pytest.mark.parametrize(
    ("options", "said", "cure"),
    [
        (("--preset", "slime-opd"), "the plan changes the advantage on each token (distill.coef 1)", "--set distill.coef=0"),
        (("--distill", "0.5"), "(distill.coef 0.5), and this is one advantage a row", "--per-token with --token-logprobs"),
        (("--preset", "slime-opd", "--per-token", "--tokens", "student"), "compared with the student on each token", "--teacher-logprobs COL"),
        (("--distill", "1", "--per-token", "--token-logprobs", "student"), "compared with the student", "--teacher-logprobs COL"),
        (LISTS, "--teacher-logprobs has no effect without --distill", "--distill 1"),
        (LISTS[1:], "--token-logprobs has no effect without --per-token", "add --per-token"),
        ((*LISTS, "--distill", "2", "--set", "distill.form=reweight"), "distill.coef cannot be 2", "give 0 to 1"),
        ((*LISTS, "--distill", "1", "--set", "distill.clamp=-1"), "cannot be negative", "0 or more"),
        ((*LISTS[:-1], "student", "--distill", "1"), "are both the column 'student'", "give each its own column"),
        ((*LISTS[:-1], "teachr", "--distill", "1"), "no column named 'teachr'", "did you mean 'teacher'"),
        ((*LISTS, "--distill", "1", "--column", "teacher", "--replace"), "'teacher' is read by this run", "--column"),
        (("--set", "distill.coef=x"), "distill.coef cannot be 'x'", ""),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_meaning_is_refused_with_a_cure(
    options: tuple[str, ...], said: str, cure: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "in.jsonl", ROWS)
    done = adv("compute", str(path), *options, "-q")
    assert done.status in {1, 2}
    assert said in done.err
    assert cure in done.err


def test_other_commands_show_the_advantage_of_the_row_and_say_so_or_refuse(tmp_path: Path) -> None:
    path = str(write(tmp_path / "in.jsonl", [{**one, "advantage": 0.5} for one in ROWS]))
    done = adv("inspect", path, "--preset", "slime-opd")
    assert (
        done.status,
        "without what the teacher adds on each token" in " ".join(f"{done.out} {done.err}".split()),
    ) == (0, True)
    for command in (
        ("audit", path, "--preset", "slime-opd"),
        ("compare", path, "--preset", "slime-opd", "--preset", "slime-grpo"),
        ("export", path, "--to", "weights", "--preset", "slime-opd", "-o", str(tmp_path / "out.jsonl")),
    ):
        refused = adv(*command)
        assert (refused.status, "changes the advantage on each token" in refused.err) == (2, True)
        assert "compute --per-token writes lists; --set distill.coef=0 leaves that out" in refused.err


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux lists the open files of a process there")
def test_no_file_stays_open(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", ROWS)
    before = len([*Path("/proc/self/fd").iterdir()])
    for at in range(5):
        computed(path, tmp_path / f"out{at}.jsonl", *LISTS, *PLAIN, "--distill", "0.5")
    gc.collect()
    assert len([*Path("/proc/self/fd").iterdir()]) <= before
