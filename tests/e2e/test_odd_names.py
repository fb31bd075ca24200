"""Names that the grammar of an option has a meaning for: each has a way to be said, and the error of the wrong way shows it."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.options.resolve import normalized
from grpo_cli.values.paths import items
from tests.support.command import adv, ran
from tests.support.drawn import paired
from tests.support.jobs import near, rows_of, write

LINES = """
{"id": "p0", "k,l": 0, "env": "math:hard", "reward": 0.0, "acc=1": 0.0, "x=y": 0.0, "a[]": 0, "len gth": 1, "p.q": 0, " sp": 0}
{"id": "p0", "k,l": 0, "env": "math:hard", "reward": 1.0, "acc=1": 1.0, "x=y": 1.0, "a[]": 1, "len gth": 2, "p.q": 0, " sp": 0}
{"id": "p0", "k,l": 0, "env": "math:hard", "reward": 0.0, "acc=1": 0.0, "x=y": 0.0, "a[]": 0, "len gth": 1, "p.q": 0, " sp": 0}
{"id": "p0", "k,l": 0, "env": "math:hard", "reward": 1.0, "acc=1": 1.0, "x=y": 1.0, "a[]": 1, "len gth": 2, "p.q": 0, " sp": 0}
{"id": "p1", "k,l": 1, "env": "code", "reward": 0.0, "acc=1": 0.0, "x=y": 0.0, "a[]": 0, "len gth": 1, "p.q": 1, " sp": 1}
{"id": "p1", "k,l": 1, "env": "code", "reward": 1.0, "acc=1": 1.0, "x=y": 1.0, "a[]": 1, "len gth": 2, "p.q": 1, " sp": 1}
{"id": "p1", "k,l": 1, "env": "code", "reward": 0.0, "acc=1": 0.0, "x=y": 0.0, "a[]": 0, "len gth": 1, "p.q": 1, " sp": 1}
{"id": "p1", "k,l": 1, "env": "code", "reward": 1.0, "acc=1": 1.0, "x=y": 1.0, "a[]": 1, "len gth": 2, "p.q": 1, " sp": 1}
"""
ROWS: list[dict[str, Any]] = [json.loads(line) for line in LINES.strip().splitlines()]
PLAIN = "-g id --reward reward"


@pytest.fixture(params=["in.jsonl", "in.csv"])
def name(request: pytest.FixtureRequest) -> str:
    """A file of these rows."""
    return write(request.param, ROWS).name


def advantages(name: str, options: str) -> list[float]:
    ran(f"compute {name} {options} -o out.jsonl --force -q")
    return [row["advantage"] for row in rows_of("out.jsonl")]


def error(name: str, options: str) -> str:
    done = adv(f"compute {name} {options} -o none.jsonl")
    assert done.status in {1, 2}, done
    return done.err


@pytest.mark.parametrize("named", ["x=y=1", "acc=1=1", "a[]", "reward"])
def test_a_reward_may_have_a_name_that_looks_like_a_weight_or_a_path(named: str, name: str) -> None:
    half = 0.5 / ((1 / 3) ** 0.5 + 1e-6)
    assert advantages(name, f"-g id --reward {named}") == near([-half, half] * 4)


@pytest.mark.parametrize(
    "group",
    ["-g id", "-g '\"k,l\"'", "-g p.q", "-g '\" sp\"'", "-g 'id,\"k,l\"'", "-g '\"k,l\", id'", "-g '\"k,l\"' -g p.q"],
)
def test_a_key_may_have_a_name_with_a_comma_or_spaces(group: str, name: str) -> None:
    wanted = advantages(name, f"{PLAIN} --scale batch --batch-by id")
    batched = advantages(name, f"{group} --reward reward --scale batch --batch-by '\"k,l\"'")
    assert batched == near(wanted)
    within = advantages(name, f"{group} --reward reward --group-within 'k,l'")
    assert within == near(advantages(name, PLAIN))


@pytest.mark.parametrize(
    ("wrong", "way", "right"),
    [
        ("-g id --reward x=y", "a column x=y is --reward x=y=1", "-g id --reward x=y=1"),
        ("-g id --reward acc=1", "no column 'acc'; did you mean 'acc=1'?", "-g id --reward acc=1=1"),
        ("--reward reward --group k,l", "no column 'k'; columns: ", "--reward reward --group '\"k,l\"'"),
        (f"{PLAIN} --scale batch --batch-by k,l", "no column 'k'; columns: ", f"{PLAIN} --scale batch --batch-by '\"k,l\"'"),
        ("--reward reward --group ' sp'", "no column 'sp'; ", "--reward reward --group '\" sp\"'"),
    ],
)  # fmt: skip
def test_the_error_of_the_wrong_way_shows_the_columns(wrong: str, way: str, right: str, name: str) -> None:
    assert way in error(name, wrong)
    assert advantages(name, right)


def test_a_value_of_plan_by_may_have_a_colon_and_a_formula_with_commas_stands_in_quotes(name: str) -> None:
    for plans, alone in (
        ("--plan 'math:hard:method=rloo,scale=none' --plan code:method=rloo", "--method rloo"),
        ("--plan math:hard: --plan code:method=grpo", ""),
        ("""--plan 'default:"expr=LEAST(reward, 0.5) - mean"'""", "--expr 'LEAST(reward, 0.5) - mean'"),
    ):
        assert advantages(name, f"{PLAIN} --plan-by env {plans}") == near(advantages(name, f"{PLAIN} {alone}"))
    said = error(name, "--plan-by env --plan math:hard:metod=rloo")
    assert "option of a plan named 'metod'; did you mean 'method'" in said


@pytest.mark.parametrize(
    ("text", "value", "method"),
    [
        ("a:method=rloo", "a", "rloo"), ("a:b:method=rloo", "a:b", "rloo"), ("a=1:method=rloo", "a=1", "rloo"), ("::method=rloo", ":", "rloo"),
        ("http://x:80/y: method=rloo", "http://x:80/y", "rloo"), ("a:method=rloo,clip=0:1", "a", "rloo"), ("a:b:", "a:b", None),
        ("method:method=rloo", "method", "rloo"), ("a:clip=0:", "a", None),
    ],
)  # fmt: skip
def test_the_options_of_a_plan_begin_after_the_colon_before_their_names(
    text: str, value: str, method: str | None
) -> None:
    ((named, own),) = normalized("plans", [text])[1].items()
    assert named == value
    assert own.get("method") == method


def test_a_condition_names_any_column_of_the_key_in_backticks(name: str) -> None:
    one = "'1'" if name == "in.csv" else "1"  # CSV has no types
    rows = f"""{name} -g '"k,l",p.q' --reward reward"""
    conditions = ("-w", f"`k,l` == {one}", "-w", f"std > 0 or `p.q` == {one}")
    done = adv(f"select {rows} -o kept-{name} --json", *conditions)
    facts = json.loads(done.out)
    assert facts["kept_groups"] == 1
    assert facts["where"] == f"`k,l` == {one} and (std > 0 or `p.q` == {one})"
    assert "a name like this stands in backticks: `p.q`" in adv(f"inspect {rows} -w 'p.q == 1'").err


PATTERNS = ["^k$", "^.*$", "*", "a b", "size ", "$", "and", "\u00e9 \u00e8"]
CONDITIONS = [
    ("{} == 1", [1]), ("2 > {}", [-2, 1]), ("-{} == -1 and std > 0", [1]), ("not {} == 0", [-2, 1]), ("0.5 < {} <= 1", [1]),
]  # fmt: skip


@pytest.mark.parametrize(("named", "meant"), paired(PATTERNS, CONDITIONS))
def test_a_name_in_a_condition_is_never_a_pattern(named: str, meant: tuple[str, list[int]]) -> None:
    condition, wanted = meant
    write("in.jsonl", [{"id": k // 2, named: k // 2 * 3 - 2, "reward": k % 2} for k in range(4)])  # -2 and 1
    key = f"id,{named}" if named.strip() == named else f'id,"{named}"'
    done = adv("select in.jsonl -o - -q", "-g", key, "-w", condition.format(f"`{named}`"))
    assert sorted({row[named] for row in done.rows}) == wanted, done.err


def test_a_long_list_is_cut_in_time_that_grows_with_it() -> None:
    start = time.process_time()
    assert len(items('"' + "a=1," * 30_000)) == 30_001
    assert time.process_time() - start < 2


def test_texts_of_map_may_have_commas_and_spaces_around_them() -> None:
    frame = pl.DataFrame({"id": ["a"] * 4, "reward": ["yes, mostly", "no", " no", "yes, mostly "]})
    with pytest.raises(grpo_cli.DataError, match=re.escape("""map='"yes, mostly=NUMBER"'""")):
        grpo_cli.advantages(frame, map="no=0", group="id")
    found = grpo_cli.advantages(frame, map=['"yes, mostly=1"', "no = 0"], method="rloo", group="id").to_list()
    assert found == near([2 / 3, -2 / 3, -2 / 3, 2 / 3])


@pytest.mark.parametrize("number", ["1_0", "\uff11", "\u0661", "1e1_0"])
def test_a_number_is_written_as_in_a_reward(number: str) -> None:
    write("in.jsonl", ROWS)
    for options in ("--reward reward --map pass={}", "--reward reward={}", "--reward reward --epsilon {}", "--reward reward --clip={}:9"):  # fmt: skip
        assert "a number" in error("in.jsonl", f"-g id {options.format(number)}")
    frame = pl.DataFrame({"id": ["a"] * 2, "reward": [number, "0"]})
    with pytest.raises(grpo_cli.DataError, match="which map does not name"):
        grpo_cli.advantages(frame, map=["10=5", "1=2"], group="id")


def test_a_column_whose_name_has_an_equals_sign_is_added_under_its_name(name: str) -> None:
    line = f"add {name} --from {name} -o added.jsonl -q --force"
    ran(f"{line} --column x=y --column acc=1 --replace")
    row = rows_of("added.jsonl")[1]
    assert row["x=y"] == ROWS[1]["x=y"]
    assert row["acc=1"] == ROWS[1]["acc=1"]
    assert "no column named 'x'" in adv(f"{line} --column x=y=z").err
    assert "no column named 'q'" in adv(f"{line} --column q=z").err
