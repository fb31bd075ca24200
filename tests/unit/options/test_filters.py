"""The condition language of --fail-on: what it means and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.options.conditions import Filter
from tests.support import conditions as meaning

VALUES: dict[str, Any] = {"mean": 0.5, "std": 0.0, "n": 8, "nothing": None, "word": "solved"}


def holds(text: str, **values: Any) -> bool:
    return Filter.parse(text).holds({**VALUES, **values})


TRUE = """
0 <= std <= mean < n >= 8
not mean > 1 and n == 8
-1 < mean
-n == -8
word == 'solved'
  mean > 0
mean > 0 or mean > 1 and std > 0
"""


@pytest.mark.parametrize("text", TRUE.splitlines()[1:])
def test_what_is_true_holds_and_its_opposite_does_not(text: str) -> None:
    assert holds(text)
    assert not holds(f"not ({text})")


def test_a_comparison_with_a_missing_quantity_is_false() -> None:
    assert not holds("nothing > 0")
    assert not holds("nothing <= 0")
    assert not holds("-nothing < 1")


def test_every_name_is_listed_once_in_its_order() -> None:
    assert Filter.parse("b > 0 and a > b or 1 < c < a").names == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mena > 0", "no quantity named 'mena'; did you mean 'mean'"),
        ("zzzzzz > 0", "known: mean, std, n, nothing, word"),
        ("mean > 0 or mena > 0", "mena"),  # even where it would not be looked at
    ],
)
def test_an_unknown_name_is_refused_with_those_that_are_close_or_all(text: str, says: str) -> None:
    with pytest.raises(UnknownName, match=says):
        holds(text)


@pytest.mark.parametrize("text", ["mean > 'a'", "word < 1", "-word > 0"])
def test_what_cannot_be_compared_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"cannot (compare|calculate)"):
        holds(text)


PYTHON = """
print(1) > 0
mean.real > 0
().__class__ == 0
(lambda: 1) == 0
mean[0] > 0
(m := mean) > 0
[1][0] > 0
{1: 2} == 0
[x for x in n] == 0
f'{mean}' == 'a'
mean > 1 if n > 1 else n > 2
mean in (1, 2)
mean is None
2 ** 9 > mean
n % 2 == 0
n // 2 == 4
n & 1 == 0
n << 2 > 0
~n < 0
+n > 0
*mean > 0, 1
(yield) > 0
mean > 1j
mean == ...
mean == b'a'
mean / std > 1
n - 1 > 0
zero-variance > 0.5
2 * mean > 1
mean + 1 > 1
"""


@pytest.mark.parametrize("text", PYTHON.strip().splitlines())
def test_the_rest_of_python_is_refused_when_the_condition_is_read(text: str) -> None:
    with pytest.raises(UsageError, match=r"cannot contain|is not a condition"):
        Filter.parse(text)


# A condition on rows, and the names in it. \u03bc and \u00b5 are two letters, and e with \u0301 is not \u00e9.
OF_ROWS = """
\ufb01eld > field | \ufb01eld field
\u00b5s > 1 or \u03bcs > 1 | \u00b5s \u03bcs
cafe\u0301 > caf\u00e9 | cafe\u0301 caf\u00e9
a.\ufb01.x > 1.5 and a[].\u00b5 < 1e5 | a.\ufb01.x a[].\u00b5
`\ufb01 x` == '\ufb01 \u00b5' | \ufb01_x
`null` is null and `true` == true | null true
name_0_of_condition > `and` | name_0_of_condition and
nest.`a.b` > `x`.`y.z`.w and v > 1.5 | nest.a.b x.y.z.w v
x == 'it\\'s a.b \u00b5' and \u00b5 > 1 | x \u00b5
"""


@pytest.mark.parametrize("line", OF_ROWS.strip().splitlines())
def test_a_name_is_read_as_it_is_written(line: str) -> None:
    text, names = line.split(" | ")
    condition = Filter.parse(text, "rows")
    assert condition.names == [name.replace("_x", " x") for name in names.split()]
    for part in condition.parts:  # which are written by us
        assert Filter.parse(part.text, "rows").names == part.names


@pytest.mark.parametrize("name", ["nest.`a.b`", "nest.a", "`nest.a`", "`x`", "`x y`", "x[].y", "\u00b5"])
def test_a_name_is_shown_as_it_is_written(name: str) -> None:
    (part,) = Filter.parse(f"{name} > 1", "rows").parts
    assert part.text == f"{name} > 1"
    with pytest.raises(UsageError) as error:
        Filter.parse(f"{name} == null", "rows")
    assert f"'{name} == null' asks nothing" in str(error.value)


def test_a_text_in_quotes_stays_as_it_is() -> None:
    (condition,) = Filter.parse("x == 'it\\'s a.b \u00b5 \ufb01'", "rows").parts
    frame = pl.DataFrame({"x": ["it's a.b \u00b5 \ufb01", "it's a.b \u03bc fi"]})
    assert frame.select(condition.expression()).to_series().to_list() == [True, False]
    frame = pl.DataFrame({"k": ["pass@4", "pass_at_4"], "pass_at_2": [1.0, 1.0]})
    both = Filter.parse("k == 'pass@4' and pass@2 > 0.5")
    assert frame.select(both.expression()).to_series().to_list() == [True, False]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u00b5s > > 1", "at '> 1'"),
        ("`a b` >> \u00b5.x", "not a condition at '`a b` >> \u00b5.x'|cannot contain"),
        ("\ufb01.x > 1", "`\ufb01.x`"),
        ("f(\ufb01=1) > 2", "'f(\ufb01=1)'"),
        ("mean \u2264 0.9", "at '\u2264 0.9'"),
        ("mean is None", "'None'"),
    ],
)
def test_an_error_shows_names_as_they_are_written(text: str, shown: str) -> None:
    with pytest.raises(UsageError) as raised:
        Filter.parse(text)
    assert any(part in str(raised.value) for part in shown.split("|"))
    assert "of_condition" not in str(raised.value)


NO_CONDITION = """
mean >
> 1
mean > 1)
mean = 1
mean > 1; n > 2
import os
mean >> > 1
mean && n
'unclosed
"""
ODD = ["", "   ", "mean > 1\nn > 2", "mean > 1\0", "mean > '\udc80'"]
ODD += ["not " * 5000 + "mean > 0", "(" * 5000 + "mean > 0" + ")" * 5000, "+".join(["mean"] * 5000) + " > 0"]


@pytest.mark.parametrize("text", [*NO_CONDITION.strip().splitlines(), *ODD], ids=lambda text: repr(text[:12]))
def test_what_is_no_condition_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        Filter.parse(text)


COMPARES_NOTHING = """
mean
1
True
'a'
-mean
not mean
mean and std
mean > 0 and n
not (mean > 0 or 1)
(mean and std) > 0
(not mean) > 0
"""


@pytest.mark.parametrize("text", COMPARES_NOTHING.strip().splitlines())
def test_what_compares_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="compares nothing"):
        Filter.parse(text)


def test_the_message_shows_where_reading_stopped_and_an_example() -> None:
    with pytest.raises(UsageError, match=r"at '> 1'.*as in 'zero_variance\.share > 0\.5 or groups < 8'"):
        Filter.parse("groups > > 1", "run")
    with pytest.raises(UsageError, match=r"at '> 1'.*facts of a group .* as in '0\.1 <= mean <= 0\.9 and std > 0'"):
        Filter.parse("mean > > 1")


def test_nothing_is_evaluated_as_python() -> None:
    victim = Path("made")
    with pytest.raises(UsageError):
        holds(f"open({str(victim)!r}, 'w') == 0")
    assert not victim.exists()


# --- as columns --------------------------------------------------------------------------------------------


def column(frame: pl.DataFrame, text: str) -> list[bool]:
    """For each row whether the condition holds."""
    return frame.with_columns(found=Filter.parse(text).expression())["found"].to_list()


CELLS = st.none() | st.sampled_from([-1.5, -1.0, 0.0, 0.25, 0.5, 1.0, 2.0, 8.0])
NAMES = st.sampled_from(["a", "b", "c", "1", "0", "0.5"])


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(" ".join)


def conditions() -> st.SearchStrategy[str]:
    words = st.sampled_from(["and", "or"])
    symbols = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    terms = NAMES | NAMES.map("-{}".format)
    compared = joined(terms, symbols, terms)
    return st.recursive(
        compared | joined(compared, symbols, terms),
        lambda inner: joined(inner, words, inner).map("({})".format) | inner.map("not ({})".format),
        max_leaves=4,
    )


ROWS = st.lists(st.fixed_dictionaries({"a": CELLS, "b": CELLS, "c": CELLS}), min_size=1, max_size=5)


@given(text=conditions(), rows=ROWS)
def test_a_column_of_a_condition_is_the_condition_of_each_row(text: str, rows: list[dict[str, float | None]]) -> None:
    condition = Filter.parse(text)
    frame = pl.DataFrame(rows, schema=dict.fromkeys("abc", pl.Float64))
    wanted = [meaning.holds(text, row) for row in rows]
    assert column(frame, text) == wanted
    for row, is_wanted in zip(rows, wanted, strict=True):
        assert condition.holds(row) == is_wanted
        assert all(part.holds(row) for part in condition.parts) == is_wanted


@pytest.mark.parametrize("text", ["1 < a", "0 == a", "1 < -a", "-1 >= a", "1 < a < 2", "a < 1", "1 < 2 <= a"])
def test_nothing_holds_of_what_is_missing_in_every_row(text: str) -> None:
    frame = pl.DataFrame({"a": [None, None]}, schema={"a": pl.Float64})
    assert column(frame, text) == [False, False]


def test_the_parts_of_a_condition_are_what_must_all_hold() -> None:
    parts = Filter.parse("0.1 <= mean <= 0.9 and (std > 0 or size > 4) and not size == 2").parts
    assert [part.text for part in parts] == ["0.1 <= mean", "mean <= 0.9", "std > 0 or size > 4", "not size == 2"]


def test_texts_are_compared_as_texts() -> None:
    frame = pl.DataFrame({"word": ["solved", None, "failed"]})
    assert column(frame, "word == 'solved'") == [True, False, False]


def test_a_column_is_compared_with_an_integer_that_no_double_holds() -> None:
    frame = pl.DataFrame({"a": [1.0, None]})
    assert column(frame, f"a < {10**400} and a > -{10**400}") == [True, False]


def test_only_a_text_is_called_a_text() -> None:
    with pytest.raises(UsageError, match="cannot compare numbers with texts: \"n < 'a'\""):
        holds("n < 'a'")
    with pytest.raises(pl.exceptions.PolarsError):  # a defect of the tool: the condition is not blamed
        holds("n < 3", n=[1, 2])


# --- several conditions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["mean > 0", "mean > 1", "mean > 1 or std == 0", "not mean > 1", "mean > 0 # why"])
@pytest.mark.parametrize("second", ["n == 8", "n == 7", "n == 7 or mean > 0", "n > 1 and n < 9"])
def test_of_several_conditions_on_a_group_all_have_to_hold(first: str, second: str) -> None:
    whole = Filter.parse([first, second])
    wanted = holds(first) and holds(second)
    assert whole.holds(VALUES) is wanted
    assert holds(whole.text) is wanted


def test_each_of_several_conditions_is_one_by_itself() -> None:
    with pytest.raises(UsageError, match="is not a condition"):
        Filter.parse(["mean > 0) or (mean < 1", "std > 0"])
