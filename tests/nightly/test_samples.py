"""Files that real tools wrote, where they are at hand: `GRPO_ADV_SAMPLES` names the folder.

Rows, groups, sizes and constant groups are those that plain Python's json finds.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import DataError
from grpo_cli.schemas.table import schemas
from tests.support.jobs import look

FOLDER = os.environ.get("GRPO_ADV_SAMPLES", "")
# They are not ours to hand on.
pytestmark = pytest.mark.skipif(not FOLDER, reason="GRPO_ADV_SAMPLES names no folder of real files")


@dataclass(frozen=True)
class Sample:
    """What is in a file, and the flags that it needs."""

    schema: str
    rows: int
    sizes: dict[int, int]
    constant: int
    singletons: int
    mean: float
    flags: dict[str, Any] = field(default_factory=dict)


LONE = {"singleton": "zero"}
ANOTHER = {"column": "mine", "scale": "none"}

SAMPLES = {
    "atropos__cybersec_objreward.jsonl": Sample("atropos", 16, {8: 2}, 0, 0, 0.221431),
    "atropos__gsm8k_dpo_rollouts.jsonl": Sample("atropos", 2, {1: 2}, 0, 2, 1.0, LONE),
    "atropos__test_trajectories.jsonl": Sample("atropos-trajectories", 2, {2: 1}, 1, 0, 0.0),
    "eval_protocol__evaluation_rows.jsonl": Sample("eval-protocol", 127, {2: 1, 5: 25}, 21, 0, 0.758621),
    "human_eval__uneven_169.jsonl": Sample("human-eval", 169, {1: 159, 2: 5}, 3, 159, 0.485207),
    "inspect__popularity_letters.json": Sample("inspect", 3, {1: 3}, 0, 3, 2 / 3, LONE),
    "lm_eval__polymer_infinity_tokens.jsonl": Sample("lm-eval", 24, {1: 24}, 0, 7, 186.899589, LONE),
    "nemo_gym__aalcr_uneven.jsonl": Sample("nemo-gym", 5, {2: 1, 3: 1}, 2, 0, 0.6),
    "nemo_gym__bbq_no_task_index.jsonl": Sample("", 5, {5: 1}, 0, 0, 0.7, {"group_size": 5}),
    "openr1_math__three_rows_wide.jsonl": Sample("openr1", 6, {2: 3}, 1, 0, 0.666667),
    "reasoning_gym__time_intervals.json": Sample("reasoning-gym", 150, {3: 50}, 23, 0, 0.934996),
    "rolloutscope_fixture__prime_rl_step0.jsonl": Sample("verifiers", 3, {1: 1, 2: 1}, 0, 1, 0.5),
    "tau_bench__gpt4o_airline.json.gz": Sample("tau-bench", 200, {4: 50}, 24, 0, 0.42),
    "verifiers__mmmu_mostly_constant.jsonl": Sample("verifiers-id", 15, {3: 5}, 4, 0, 0.933333),
    "verifiers__oldest_no_id.jsonl": Sample("verifiers-prompt", 4, {2: 2}, 2, 0, 1.0),
    "verifiers__prml_fractional.jsonl": Sample("verifiers", 15, {3: 5}, 0, 0, 8.084532),
    "verifiers__wordle_example_id.jsonl": Sample("verifiers", 15, {3: 5}, 0, 0, 1.380635),
    "verl__gsm8k_step1_n1.jsonl": Sample("verl", 128, {1: 128}, 0, 128, 0.015625, LONE),
}
BLOCKS = {
    ("prime_platform__svbench_netlogs_a.jsonl", "keep"): Sample("prime-platform", 25, {1: 1, 8: 3}, 2, 1, 1.7852),
    ("prime_platform__svbench_netlogs_a.jsonl", "drop"): Sample("prime-platform", 24, {8: 3}, 2, 0, 1.784583),
    ("prime_platform__svbench_phishing_one_group.jsonl", "keep"): Sample("prime-platform", 16, {8: 2}, 0, 0, 0.25),
}
REFUSED = {
    "nemo_gym__placeholder_not_json.jsonl": r"placeholder_not_json\.jsonl:1: not JSON",
    "nemo_gym__circle_click_reward_profiling.jsonl": r"one line per task, mean/reward is already the mean",
    "nemo_gym__bbq_no_task_index.jsonl": r"no column looks like the group key .*provenance_id.*--group NAME",
    "atropos__gsm8k_dpo_rollouts.jsonl": r"every group has a single row",
    "inspect__popularity_letters.json": r"every group has a single row: id has one sample per prompt",
    "lm_eval__polymer_infinity_tokens.jsonl": r"every group has a single row: doc_id within filter",
    "verl__gsm8k_step1_n1.jsonl": r"every group has a single row: input within step",
    "prime_platform__svbench_phishing_one_group.jsonl": r"already has a column 'advantage'",
}


def there(name: str) -> Path:
    path = Path(FOLDER, name)
    assert path.exists(), f"{path} is not there"
    return path


def holds(sample: Sample, found: Any) -> bool:
    facts = found.facts
    codes = Counter(found.narrow.table["group"].to_list())
    assert facts["schema"] == (schemas()[sample.schema].title if sample.schema else None)
    assert facts["rows"] == sample.rows
    assert Counter(codes.values()) == sample.sizes
    assert facts["zero_variance"]["groups"] == sample.constant
    assert facts["singletons"] == sample.singletons
    return bool(facts["reward"]["mean"] == pytest.approx(sample.mean, abs=1e-6))


def test_every_file_of_the_folder_is_tried() -> None:
    known = {*SAMPLES, *REFUSED, *(name for name, _ in BLOCKS)}
    assert known == {path.name for path in Path(FOLDER).iterdir() if path.suffix != ".md"}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_file_is_read_without_flags_or_with_those_that_it_needs(name: str) -> None:
    assert holds(SAMPLES[name], look(there(name), **SAMPLES[name].flags))


@pytest.mark.parametrize(("name", "partial"), BLOCKS)
def test_a_problem_drawn_twice_is_cut_into_its_blocks(name: str, partial: str) -> None:
    found = look(there(name), group_size=8, partial=partial, **ANOTHER)
    assert holds(BLOCKS[name, partial], found)
    logged = found.narrow.tables[0].scan
    from grpo_cli.values.cells import Field

    theirs = logged([Field("advantage", "number")]).frame["advantage"]
    rows = range(len(theirs)) if found.narrow.rows is None else found.narrow.rows.tolist()
    ours = found.scored.frame[".advantage"].to_list()
    pairs = [(theirs[row], one) for row, one in zip(rows, ours, strict=True) if one]
    assert all(abs(a - b) < 2e-7 for a, b in pairs)


@pytest.mark.parametrize("name", sorted({name for name, _ in BLOCKS}))
def test_a_problem_drawn_twice_is_suspected_with_the_flag_that_cuts_it(name: str) -> None:
    (warning, *_) = look(there(name), **ANOTHER).facts["warnings"]
    partial = " --partial keep" if (name, "drop") in BLOCKS else ""  # of the last group only a row is there
    assert warning.endswith(f"--group-size 8{partial} cuts them")


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_without_usable_rewards_is_one_line_of_error(name: str) -> None:
    with pytest.raises(DataError, match=REFUSED[name]) as raised:
        look(there(name))
    assert "\n" not in str(raised.value)
