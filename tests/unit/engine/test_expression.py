"""A formula is arithmetic over named quantities; no part of SQL that reads, queries or recurses reaches polars."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import grpo_cli
from grpo_cli.engine.estimators.expression import FUNCTIONS, MOST_DEPTH, MOST_TOKENS, NAMES, parsed
from grpo_cli.errors import UnknownName, UsageError

FRAME = pl.DataFrame({"prompt_id": ["a"] * 3 + ["b"] * 2, "reward": [0.25, 0.5, 1.0, 0.5, 0.75]})
ARGUMENTS = {
    "LOG": "reward, 2", "POW": "reward, 2", "POWER": "reward, 2", "MOD": "reward, 2", "ATAN2": "reward, 2",
    "NULLIF": "reward, 9", "IFNULL": "reward, 0", "IF": "reward > 0.5, 1, 0", "QUANTILE_CONT": "reward, 0.5",
}  # fmt: skip


def computed(sql: str) -> list[float]:
    values: list[float] = grpo_cli.advantages(FRAME, expr=sql).to_list()
    return values


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_listed_function_computes(name: str) -> None:
    arguments = ARGUMENTS.get(name, "reward")
    values = computed(f"{name}({arguments})")
    assert len(values) == len(FRAME)
    assert None not in values
    assert computed(f"{name.lower()}({arguments})") == values


@pytest.mark.parametrize("name", NAMES)
def test_every_quantity_computes_also_in_quotes(name: str) -> None:
    assert computed(f'"{name}" + 0') == computed(f"{name} + 0")


def test_conditions_and_cases_are_part_of_a_formula() -> None:
    case = "CASE WHEN reward BETWEEN 0.5 AND 0.75 OR reward IN (9.0, 10.5) THEN 1.5e0 WHEN NOT reward > .3 THEN -1 ELSE 0 END"
    assert computed(case) == [-1.0, 1.5, 0.0, 1.5, 1.5]
    assert computed("case when reward is null or reward <> 0.5 then 2 else reward % 2 end") == [2.0, 0.5, 2.0, 0.5, 2.0]


@pytest.mark.parametrize("numbers", ["9, 10", "-1,+9", "9,NULL", "9", "9, 10.5"])
def test_a_list_may_hold_whole_numbers_alone(numbers: str) -> None:
    assert computed(f"CASE WHEN 18 * reward in ( {numbers} ) THEN 1 ELSE 0 END") == [0.0, 1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("sql", "of_a_half"),
    [
        ("POWER(10, 10) * reward", 5e9),
        ("POW(2, 40)", 2.0**40),
        ("POWER(2, -1)", 0.5),
        ("GREATEST(2147483647, 1) + 1", 2147483648.0),
        ("CASE WHEN reward > 0 THEN 100000 ELSE 1 END * 100000", 1e10),
        ("IF(reward > 0, 100000, 1) * 100000", 1e10),
        ("COALESCE(2147483647, 1) + n", 2147483650.0),
        ("SUM(CASE WHEN reward > 0 THEN 2147483647 ELSE 1 END)", 3 * 2147483647.0),
        ("POWER(COUNT(*), 40)", 3.0**40),
        ("POWER(COUNT(reward), COUNT(*) * 20)", 3.0**60),
        ("SUM(reward > 0.3) - 5", -3.0),
        ("(reward > 0.1) - (reward > 0.3)", 0.0),
        ("-(reward > 0.1) - TRUE", -2.0),
        ("reward * (1.0 / 3.0)", 0.5 / 3),
        ("1.0 / 3", 1 / 3),
        ("5. / 2 + .5", 3.0),
        ("1e2 / 3", 100 / 3),
        ("99999999999 * 99999999999", 99999999999.0**2),
        ("ROUND(reward / 3, 2)", 0.17),
        ("TRUNC(POWER(10, 1) / 3, 3)", 3.333),
        ("ROUND(GREATEST(1, 2147483647) * 2, 0)", 4294967294.0),
        ("QUANTILE_CONT(reward, 1)", 1.0),
    ],
)
def test_arithmetic_is_that_of_floats(sql: str, of_a_half: float) -> None:
    assert computed(sql)[1] == of_a_half


@pytest.mark.parametrize("digits", ["-1", "1.5", "1e0", "reward"])
def test_the_digits_of_a_rounding_are_a_whole_number_and_shown_as_they_were_given(digits: str) -> None:
    with pytest.raises(UsageError, match=rf"\({digits}\)"):
        computed(f"ROUND(reward, {digits})")


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("2 < COALESCE(NULLIF(reward, 9), 3)", [0.0] * 5),
        ("2 < COALESCE(NULLIF(reward, reward), 3)", [1.0] * 5),
        ("(0 < IF(reward < 100, 3, 4)) * 2 - 1", [1.0] * 5),
        ("SUM(0 < IF(reward < 100, 3, 4))", [3.0, 3.0, 3.0, 2.0, 2.0]),
        ("SUM(AVG(reward)) - SUM(mean)", [0.0] * 5),
        ("AVG(ABS(reward - MAX(reward)))", [1.25 / 3] * 3 + [0.125] * 2),
        ("QUANTILE_CONT(GREATEST(reward, 0.5), 0.5) + COUNT( * )", [3.5, 3.5, 3.5, 2.625, 2.625]),
    ],
)
def test_what_polars_takes_for_one_value_is_there_in_every_row(sql: str, values: list[float]) -> None:
    assert computed(sql) == pytest.approx(values)


def test_a_formula_is_computed_for_each_reward_column() -> None:
    frame = FRAME.with_columns(second=1 - 2 * FRAME["reward"])
    sql = "POWER(2, 2) * (reward - mean) / (MAX(reward) + n)"
    both = grpo_cli.advantages(frame, expr=sql, reward=["reward", "second"], combine="normalize")
    each = [grpo_cli.advantages(frame, expr=sql, reward=name) for name in ("reward", "second")]
    assert both.to_list() == pytest.approx((each[0] + each[1]).to_list())


REFUSED = """
read_csv('secret') => read_csv
READ_PARQUET('http://127.0.0.1:1/x') => READ_PARQUET
reward + (SELECT 1) => SELECT
(select x from read_csv('secret')) => select
CAST(reward AS INT) => CAST
reward::int => :
reward || 'x' => |
'secret' => '
reward -- mean => --
reward /* mean */ => /*
reward; SELECT 1 => ;
UNNEST(reward) => UNNEST
reward OVER (PARTITION BY mean) => OVER
prompt_id => prompt_id
$1 => $
`reward` => `
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_everything_else_is_refused_by_name_before_polars_sees_it(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sql, _, name = line.partition(" => ")
    Path("secret").write_text("top secret line\n1\n", encoding="utf-8")
    monkeypatch.setattr(pl, "sql_expr", lambda _: pytest.fail("polars has seen it"))
    with pytest.raises((UsageError, UnknownName)) as error:
        computed(sql)
    assert repr(name) in str(error.value)
    assert "top secret" not in str(error.value)


@pytest.mark.parametrize("sql", ["LEAST()", "greatest( )", "SUM()"])
def test_a_function_without_a_value_is_refused(sql: str) -> None:
    with pytest.raises(UsageError, match="takes a value"):
        computed(sql)


TOO_LONG = {
    "long sum": "reward + " * 20_000 + "reward",
    "comments": "-" * 20_000 + "reward",
    "parentheses": "(" * 5_000 + "reward" + ")" * 5_000,
    "one too deep": "(" * (MOST_DEPTH + 1) + "reward" + ")" * (MOST_DEPTH + 1),
    "signs": "- " * (MOST_TOKENS - 1) + "reward",
    "not": "NOT " * (MOST_TOKENS - 1) + "reward",
}
TOO_LONG["cases"] = TOO_LONG["one too deep"].replace("(", "CASE WHEN reward > 1 THEN 1 ELSE ").replace(")", " END")


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_formula_too_long_or_too_deep_is_one_short_line(name: str) -> None:
    with pytest.raises(UsageError) as error:
        computed(TOO_LONG[name])
    assert len(str(error.value)) < 400


def test_the_longest_formula_computes() -> None:
    terms = MOST_TOKENS // 2
    total = computed(" + ".join(["reward"] * terms))
    assert total == pytest.approx([*terms * FRAME["reward"]])


def test_what_cannot_be_parsed_is_shown() -> None:
    with pytest.raises(UsageError, match="is not a formula"):
        parsed("reward +")
