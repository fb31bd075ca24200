"""`inspect --token-logprobs S --old-token-logprobs O`: how far the trained policy is from the one that sampled."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from tests.support.command import adv
from tests.support.jobs import rows_of, write

NEW = "--token-logprobs new --old-token-logprobs old"
KEYWORDS: Any = {"token_logprobs": "new", "old_token_logprobs": "old"}
ENTROPY: Any = {"token_entropy": "entropy"}
LISTS: list[Any] = [
    {"new": [-0.5, -1.0], "old": [-0.5, -1.5], "mask": [1, 1], "entropy": [0.5, 1.0]},
    {"new": [-0.25, -3.0, -1.0], "old": [-0.5, -1.5, -1.0], "mask": [1, 0, 1], "entropy": [0.25, 1.0, 0.0]},
    {"new": [-0.1], "old": [-1.1], "mask": [1], "entropy": [2.0]},
    {"new": [], "old": [], "mask": [], "entropy": []},
    {"new": [-2.0, -0.75], "old": [-1.0, -0.75], "mask": [0, 1], "entropy": [1.0, 3.0]},
    {"new": [-0.125], "old": [-0.5], "mask": [-100], "entropy": [0.75]},
    {"new": [-0.5, -0.5, -0.5], "old": [-0.5, -0.25, -1.5], "mask": [1, 1, 1], "entropy": [0.0, 0.0, 1.0]},
    {"new": [-4.0], "old": [-4.5], "mask": [1], "entropy": [0.5]},
]
ROWS: list[Any] = [
    {"prompt_id": at // 2, "step": at // 4, "reward": float(at % 2), "policy_version": at % 3, **lists}
    for at, lists in enumerate(LISTS)
]


def drift(rows: Sequence[Any], *, masked: bool = False) -> dict[str, float]:
    """The facts in loops; the advantage of GRPO is positive for a reward of 1 and negative for 0."""
    tokens = []
    weights = []
    for row in rows:
        counts = [bool(one) and one != -100 for one in row["mask"]] if masked else [True] * len(row["new"])
        kept = [at for at, one in enumerate(counts) if one]
        logs = [row["new"][at] - row["old"][at] for at in kept]
        weights += [math.exp(math.fsum(logs))] if logs else []
        sign = 1 if row["reward"] else -1
        tokens += [(log, sign, row["entropy"][at]) for log, at in zip(logs, kept, strict=True)]
    ratios = [math.exp(log) for log, _, _ in tokens]
    n = len(tokens)

    def mean(values: Any) -> float:
        return math.fsum(values) / n

    return {
        "rows": len(weights),
        "tokens": n,
        "k1": mean(-log for log, _, _ in tokens),
        "k2": mean(log * log / 2 for log, _, _ in tokens),
        "k3": mean(ratio - 1 - math.log(ratio) for ratio in ratios),
        "ratio_mean": mean(ratios),
        "ratio_above_1_2": mean(ratio > 1.2 for ratio in ratios),
        "ratio_above_2": mean(ratio > 2 for ratio in ratios),
        "ratio_below_0_8": mean(ratio < 0.8 for ratio in ratios),
        "ratio_below_0_5": mean(ratio < 0.5 for ratio in ratios),
        "clipped_above": mean(sign > 0 and math.exp(log) > 1.2 for log, sign, _ in tokens),
        "clipped_below": mean(sign < 0 and math.exp(log) < 0.8 for log, sign, _ in tokens),
        "token_ess": math.fsum(ratios) ** 2 / math.fsum(ratio**2 for ratio in ratios) / n,
        "sequence_ess": math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights) / len(weights),
        "entropy": mean(entropy for _, _, entropy in tokens),
    }


def quantile(rows: Sequence[Any], share: float) -> float:
    ratios = sorted(math.exp(s - o) for row in rows for s, o in zip(row["new"], row["old"], strict=True))
    return ratios[max(0, math.ceil(share * len(ratios)) - 1)]


def found(path: Path, options: str = "") -> Any:
    done = adv(f"inspect {path} {NEW} --json {options}")
    assert not done.status, done.err
    return json.loads(done.out)["off_policy"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl", ROWS)


def same(facts: Any, wanted: dict[str, float]) -> bool:
    return {name: facts[name] for name in wanted} == pytest.approx(wanted, rel=1e-12, abs=1e-15)


def test_the_facts_are_those_of_loops(path: Path) -> None:
    facts = found(path, "--token-entropy entropy")
    assert same(facts["all"], drift(ROWS))
    assert facts["columns"] == {"token_logprobs": "new", "old_token_logprobs": "old", "token_entropy": "entropy"}
    assert facts["missing"] == 0


def test_a_mask_leaves_the_tokens_that_count(path: Path) -> None:
    facts = found(path, "--token-entropy entropy --mask mask")
    assert same(facts["all"], drift(ROWS, masked=True))


def test_steps_and_versions_of_the_policy_have_lines(path: Path) -> None:
    steps, versions = found(path, "--token-entropy entropy --by step")["by"]
    assert steps["column"] == "step"
    assert versions["column"] == "policy_version"
    assert [line["value"] for line in steps["lines"]] == [0, 1]
    assert [line["value"] for line in versions["lines"]] == [0, 1, 2]
    for lines in (steps, versions):
        for line in lines["lines"]:
            assert same(line, drift([row for row in ROWS if row[lines["column"]] == line["value"]]))


def test_parquet_and_frames_say_the_same(path: Path) -> None:
    frame = pl.DataFrame(ROWS)
    frame.write_parquet("a.parquet")
    wanted = found(path)["all"]
    assert found(Path("a.parquet"))["all"] == wanted
    facts = grpo_cli.inspect(frame, **KEYWORDS)
    assert facts.facts["off_policy"]["all"] == wanted


@given(st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=40), min_size=1, max_size=6))
def test_quantiles_are_within_a_hundredth_of_the_log_ratio(lists: list[list[float]]) -> None:
    rows = [{"new": [-5 + x for x in logs], "old": [-5.0] * len(logs)} for logs in lists]
    frame = pl.DataFrame([{"prompt_id": 1, "reward": 1.0, **row} for row in rows])
    facts = grpo_cli.inspect(frame, **KEYWORDS, singleton="zero").facts["off_policy"]["all"]
    for name, share in {"p1": 0.01, "p5": 0.05, "median": 0.5, "p95": 0.95, "p99": 0.99}.items():
        exact = math.log(quantile(rows, share))
        assert math.log(facts[f"ratio_{name}"]) == pytest.approx(exact, rel=0.01, abs=1e-9)


def test_a_condition_names_the_quantities(path: Path) -> None:
    assert adv(f"inspect {path} {NEW} --fail-on 'ratio_above_2 > 0.01'").status == 3
    assert adv(f"inspect {path} {NEW} --fail-on 'token_ess < 0.1'").status == 0
    lost = adv(f"inspect {path} --fail-on 'token_ess < 0.1'")
    assert lost.status == 2
    assert "token_ess" in lost.err


def test_the_text_says_it_in_a_few_lines(path: Path) -> None:
    out = adv(f"inspect {path} {NEW} --by step").out
    assert "off-policy     13 tokens of 7 rows: new and old" in out
    assert "a clip of 0.2 cuts" in out
    assert "policy_version" in out


def test_a_table_for_other_programs_has_it_by_value(path: Path) -> None:
    table = pl.read_csv(adv(f"inspect {path} {NEW} --by step --format csv").out.encode())
    wanted = [drift([row for row in ROWS if row["step"] == step]) for step in (0, 1)]
    assert table["k3"].to_list() == pytest.approx([line["k3"] for line in wanted])
    assert table["rows"].to_list() == [4, 4]
    assert "k3" not in adv(f"inspect {path} --by step --format csv").out


def test_a_page_draws_it(path: Path) -> None:
    done = adv(f"report {path} {NEW} -o r.html")
    assert not done.status, done.err
    page = Path("r.html").read_text()
    assert "Off-policy over step" in page
    assert "Off-policy over policy_version" in page


def test_rows_without_lists_are_counted() -> None:
    rows = [{**ROWS[0], "old": None}, *ROWS[1:]]
    write("a.jsonl", rows)
    facts = found(Path("a.jsonl"), "--token-entropy entropy")
    assert facts["missing"] == 1
    assert same(facts["all"], drift(rows[1:]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--token-logprobs new", "give --token-logprobs and --old-token-logprobs"),
        ("--old-token-logprobs old", "give --token-logprobs and --old-token-logprobs"),
        ("--mask mask", "--mask has no effect alone; add --per-token, --kl-from or --token-logprobs"),
        ("--token-logprobs new --old-token-logprobs absent", "no column 'absent'"),
        ("--token-logprobs new --old-token-logprobs step", "step is 0, expected a list of numbers"),
        (f"{NEW} --format md", "the table of groups has no log-probs; add --by COL"),
        (f"{NEW} --fail-on 'entropy > 0'", "no quantity named 'entropy'"),
    ],
)
def test_what_does_not_fit_is_said(path: Path, options: str, said: str) -> None:
    done = adv(f"inspect {path} {options}")
    assert done.status
    assert said in done.err


def test_rows_that_are_left_out_are_not_counted_whatever_their_lists_are() -> None:
    broken = {"new": [float("nan")], "old": [-1.0], "mask": [1], "entropy": [0.0]}
    rows = [{**row, "failed": None} for row in ROWS] + [{**ROWS[0], **broken, "failed": "oom"}]
    write("a.jsonl", rows)
    of_rows = adv(f"inspect a.jsonl {NEW} --rows 'failed is null' --json")
    of_mark = adv(f"inspect a.jsonl {NEW} --left-out-column failed --json")
    for done in (of_rows, of_mark):
        facts = json.loads(done.out)["off_policy"]
        assert same(facts["all"], {name: drift(ROWS)[name] for name in ("rows", "tokens", "k3")})
        assert facts["missing"] == 0


def test_a_gate_sees_a_divergence_beyond_all_numbers() -> None:
    rows = [{**row, "old": [-2000.0] * len(row["old"])} for row in ROWS]
    write("a.jsonl", rows)
    for gate in ("k3 > 1", "ratio_mean > 2", "token_ess <= 1"):
        assert adv(f"inspect a.jsonl {NEW} -q --fail-on", gate).status == 3, gate


def dumped(generated: list[float]) -> Any:
    """The facts of a dump of NeMo-RL, whose last row has these log-probs of the generation."""
    rows = [
        {"content": ["text"], "rewards": [float(at % 2)], "input_lengths": [5], "token_ids": [[1, 2]],
         "token_loss_mask": [[0, 1]], "sample_loss_mask": [1.0], "advantages": [[0.0, 0.5]],
         "generation_logprobs": [[0.0, -1.0] if at < 3 else generated], "prev_logprobs": [[-9.0, -0.5]], "idx": at}
        for at in range(4)
    ]  # fmt: skip
    done = adv(f"inspect {write('train_data_step5.jsonl', rows)} --group-size 4 --json")
    assert done.status == 0
    return json.loads(done.out)


@pytest.mark.parametrize("generated", [[0.0, float("nan")], [0.0]])
def test_lists_that_nobody_asked_for_do_not_stop_an_inspection(generated: list[float]) -> None:
    facts = dumped(generated)
    assert "off_policy" not in facts
    assert any("how far off-policy the rows are is not known" in line for line in facts["warnings"])


def test_a_schema_names_the_columns() -> None:
    facts = dumped([0.0, -1.0])["off_policy"]
    assert facts["columns"]["mask"] == "token_loss_mask"
    assert facts["all"]["tokens"] == 4
    assert facts["all"]["k1"] == -0.5


def test_log_probs_that_were_not_computed_are_zeros() -> None:
    rows = [{**row, "new": [0.0] * len(row["new"])} for row in ROWS]
    write("a.jsonl", rows)
    assert "no row has log-probs other than 0 in new" in adv(f"inspect a.jsonl {NEW}").err


def test_a_file_without_log_probs_says_nothing_of_them(path: Path) -> None:
    done = adv(f"inspect {path} --json")
    assert "off_policy" not in json.loads(done.out)
    assert "off-policy" not in adv(f"inspect {path}").out


def test_a_weight_is_multiplied_by_the_truncated_ratio_of_its_row(path: Path) -> None:
    rows = [{**row, "prompt": "q", "completion": str(at)} for at, row in enumerate(ROWS)]
    write(path, rows)
    line = f"export {path} --to weights -o"
    plain = adv(f"{line} b.jsonl")
    capped = adv(f"{line} c.jsonl --ratio-cap 1.5 {NEW}")
    assert plain.status == capped.status == 0, capped.err
    before = {row["completion"]: row for row in rows_of("b.jsonl")}
    after = {row["completion"]: row for row in rows_of("c.jsonl")}
    for at, row in enumerate(rows):
        ratios = [min(math.exp(s - o), 1.5) for s, o in zip(row["new"], row["old"], strict=True)]
        if not ratios:
            assert str(at) not in after
            continue
        wanted = math.fsum(ratios) / len(ratios)
        assert after[str(at)]["ratio"] == pytest.approx(wanted, rel=1e-12)
        assert after[str(at)]["weight"] == pytest.approx(before[str(at)]["weight"] * wanted, rel=1e-12)
    assert "1 row: no log-probs" in capped.out + capped.err


def test_where_no_row_is_left_there_is_no_ratio(path: Path) -> None:
    write(path, [{**row, "prompt": "q", "completion": "a"} for row in ROWS])
    done = adv(f"export {path} --to weights -o b.jsonl --ratio-cap 2 {NEW} --where 'mean > 99'")
    assert done.status == 0
    assert Path("b.jsonl").read_text() == ""
    assert "no record is left" in done.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--ratio-cap 2", "give --ratio-cap, --token-logprobs and --old-token-logprobs"),
        (NEW, "give --ratio-cap"),
        (f"--ratio-cap 0 {NEW}", "--ratio-cap cannot be 0"),
    ],
)
def test_a_ratio_needs_a_cap_and_both_policies(path: Path, options: str, said: str) -> None:
    done = adv(f"export {path} --to weights -o - {options}")
    assert done.status == 2
    assert said in done.err
