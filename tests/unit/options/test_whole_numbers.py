"""Whole numbers of any size: the largest that a count can be is taken, one that is larger is an error of usage."""

from __future__ import annotations

import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.errors import UsageError
from grpo_cli.options.table import EVERY
from tests.support.command import adv
from tests.support.jobs import write

LARGEST = 9_223_372_036_854_775_807
# A line for each option that takes a whole number, which stands for N.
LINES = """
compute in.jsonl --max-line N -o out.jsonl
compute in.jsonl --seed N --zero-variance drop --duplicate -o out.jsonl
compute in.jsonl --expect-size N -o out.jsonl
compute in.jsonl --group-size N --partial keep -o out.jsonl
compute in.jsonl --min-group-size N -o out.jsonl
compute in.jsonl --ddof N -o out.jsonl
inspect in.jsonl --top N
inspect in.jsonl --top N --sort mean --format csv
inspect in.jsonl --top N --by prompt_id
select in.jsonl --top N -o out.jsonl
select in.jsonl --limit N -o out.jsonl
select in.jsonl --per-group N -o out.jsonl
select in.jsonl --per-group 1 --pick random --seed N -o out.jsonl
select in.jsonl --holdout 0.5 --holdout-seed N -o out.jsonl
export in.jsonl --to weights --prompt prompt_id --response text --copies N -o out.jsonl
export in.jsonl --to pairs --prompt prompt_id --response text --max-pairs N -o out.jsonl
compute in.jsonl --method passk --param k=N -o out.jsonl
compute in.jsonl --set groups.min_size=N -o out.jsonl
inspect in.jsonl --against old=in.jsonl --pass-at N
""".strip().splitlines()


@pytest.fixture(autouse=True)
def _rows(here: None) -> None:
    rows = [{"prompt_id": f"p{at // 4}", "reward": (at * 7) % 5 % 2, "text": f"{at}"} for at in range(32)]
    write("in.jsonl", rows)


def test_each_option_that_takes_a_whole_number_has_a_line() -> None:
    whole = {option.flag for option in EVERY.values() if option.type is int}
    assert whole <= {word for line in LINES for word in line.split()}


@pytest.mark.parametrize("line", LINES)
def test_the_largest_count_is_taken_and_the_next_one_refused(line: str) -> None:
    largest = adv(line.replace("N", f"{LARGEST}"))  # any traceback fails here
    assert largest.status in {0, 1, 2}
    assert largest.status == 0 or "--ddof" in line or "--expect-size" in line or "--copies" in line, largest.err
    larger = adv(f"{line.replace('N', f'{LARGEST + 1}')}")
    assert larger.status == 2
    assert f"cannot be '{LARGEST + 1}'; it takes a whole number of at most {LARGEST}" in larger.err


def test_a_plan_from_python_has_the_same_bound() -> None:
    with pytest.raises(UsageError, match=f"it takes a whole number of at most {LARGEST}"):
        Plan.of({"groups.min_size": 10**50})
