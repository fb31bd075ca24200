"""`--pick shortest`: of each group the shortest response that solves the prompt."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from tests.support.command import adv
from tests.support.drawn import examples
from tests.support.jobs import rows_of, write

Row = dict[str, Any]
# Letters that JSON escapes, or that are several bytes, are one character each.
RESPONSES = st.text(alphabet='ab"\\\né😀', min_size=1, max_size=6)
ROW = {
    "prompt_id": st.sampled_from("abc"),
    "reward": st.sampled_from([None, 0.0, 0.5, 1.0]),
    "response": RESPONSES,
    "length": st.integers(1, 4),
}
ROWS = st.lists(st.fixed_dictionaries(ROW), max_size=12)
ALWAYS = [{"prompt_id": "z", "reward": reward, "response": "same", "length": 2} for reward in (0.0, 0.5, 1.0, 1.0)]


def shortest(rows: list[Row], bar: float, most: int) -> list[int]:
    """The rows that are kept, by loops: of each group the shortest that are solved, the first in the file of equals."""
    kept = list[int]()
    for key in "abcz":
        solved = [at for at, row in enumerate(rows) if row["prompt_id"] == key and (row["reward"] or 0) >= bar]
        kept += sorted(solved, key=lambda at: rows[at]["length"])[:most]
    return sorted(kept)


@pytest.mark.parametrize("by", ["length", "response"])
@pytest.mark.parametrize("solved_at", [None, 0.5])
@given(drawn=ROWS, most=st.integers(1, 3))
@examples(15)
def test_the_shortest_that_are_solved_are_kept(by: str, solved_at: float | None, drawn: list[Row], most: int) -> None:
    rows = [*drawn, *ALWAYS]
    frame = pl.DataFrame(rows).with_columns(prompt="prompt_id").with_row_index("at")
    if by == "response":
        frame = frame.drop("length")
        rows = [{**row, "length": len(row["response"])} for row in rows]
    wanted = shortest(rows, solved_at or 1.0, most)
    options: Any = {"pick": "shortest", "per_group": most, "solved_at": solved_at, "group": "prompt_id"}
    selected = grpo_cli.select(frame, missing="exclude", **options).frame
    assert selected["at"].to_list() == wanted
    found = grpo_cli.export(frame, "sft", keep_duplicates=True, missing="exclude", **options).frame
    assert found["completion"].to_list() == frame["response"].gather(wanted).to_list()


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_export_takes_one_of_each_group_and_says_what_it_left_out(suffix: str) -> None:
    table = b"""\
prompt_id,prompt,response,reward
a,a,long answer,1
a,a,short,1
a,a,no,0
b,b,x,0
b,b,yy,0
a,a,brief,1
"""
    path = write(f"x{suffix}", pl.read_csv(table).to_dicts())
    done = adv(f"export {path} --to sft --pick shortest -o y.jsonl")
    assert [row["completion"] for row in rows_of("y.jsonl")] == ["short"]
    assert "3 rows: not solved: a reward below 1" in done.out
    said = " ".join(done.out.split())
    assert "2 rows: not among the shortest 1 of its group" in said
    kept = adv(f"select {path} --per-group 1 --pick shortest -o z{suffix}")
    assert [row["response"] for row in rows_of(f"z{suffix}")] == ["short"]
    assert "groups         1 of 2 kept" in kept.out
    assert "3 rows: not solved: a reward below 1" in kept.out
    assert "2 rows: --per-group 1 (shortest)" in kept.out


def test_a_length_column_that_is_named_wins() -> None:
    frame = pl.read_csv(b"prompt_id,prompt,reward,response,cost,tokens\na,p,1,x,3,1\na,p,1,yy,1,2\na,p,1,zzz,2,3\n")
    named: Any = {"pick": "shortest", "length_column": "cost"}
    assert grpo_cli.export(frame, "sft", **named).frame["completion"].to_list() == ["yy"]
    assert grpo_cli.select(frame, per_group=1, **named).frame["response"].to_list() == ["yy"]


def test_conversations_have_a_length_too() -> None:
    frame = pl.read_ndjson(b"""\
{"prompt_id": "a", "reward": 1, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "long one"}]}
{"prompt_id": "a", "reward": 1, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "short"}]}
""")
    assert grpo_cli.export(frame, "sft", pick="shortest").frame["messages"][0].to_list()[1]["content"] == "short"


def test_nothing_is_solved_where_no_reward_is_known() -> None:
    frame = pl.read_csv(b"prompt_id,prompt,response,reward\na,p,x,NaN\na,p,y,NaN\n")
    with pytest.raises(grpo_cli.DataError, match="no record for sft is left of 2 rows: 2 no reward"):
        grpo_cli.export(frame, "sft", pick="shortest", missing="exclude")
