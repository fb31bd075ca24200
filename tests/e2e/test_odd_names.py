"""Names that the grammar of an option has a meaning for: each has a way to be said, and the error of the wrong way shows it."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.schemas.table import items
from tests.support.command import adv
from tests.support.jobs import near

ROWS: list[dict[str, Any]] = [
    {"id": f"p{k // 4}", "k,l": k // 4, "env": "math:hard" if k < 4 else "code", "reward": float(k % 2), "acc=1": float(k % 2), "x=y": float(k % 2),
     "a[]": k % 2, "len gth": 1 + k % 2, "p.q": k // 4, " sp": k // 4}
    for k in range(8)
]  # fmt: skip
WRITERS: dict[str, Any] = {
    "jsonl": pl.DataFrame.write_ndjson, "csv": pl.DataFrame.write_csv, "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
}  # fmt: skip


@pytest.fixture(params=WRITERS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    WRITERS[request.param](pl.DataFrame(ROWS), tmp_path / f"in.{request.param}")
    return tmp_path


def advantages(place: Path, options: str, group: str = "-g id") -> list[float]:
    (name,) = (path.name for path in place.glob("in.*"))
    done = adv("compute", name, *shlex.split(f"{group} {options}"), "-o", "out.jsonl", "--force", "-q", cwd=place)
    assert done.status == 0, done.err
    return [json.loads(line)["advantage"] for line in (place / "out.jsonl").read_text().splitlines()]


def error(place: Path, options: str) -> str:
    (name,) = (path.name for path in place.glob("in.*"))
    done = adv("compute", name, *shlex.split(options), "-o", "none.jsonl", cwd=place)
    assert done.status in {1, 2}, done
    return done.err


@pytest.mark.parametrize("named", ["x=y=1", "acc=1=1", "a[]", "reward"])
def test_a_reward_may_have_a_name_that_looks_like_a_weight_or_a_path(named: str, place: Path) -> None:
    half = 0.5 / ((1 / 3) ** 0.5 + 1e-6)
    assert advantages(place, f"--reward '{named}'") == near([-half, half] * 4)


@pytest.mark.parametrize(
    "group",
    ["-g id", "-g '\"k,l\"'", "-g p.q", "-g '\" sp\"'", "-g 'id,\"k,l\"'", "-g '\"k,l\", id'", "-g '\"k,l\"' -g p.q"],
)
def test_a_key_may_have_a_name_with_a_comma_or_spaces(group: str, place: Path) -> None:
    wanted = advantages(place, "--reward reward --scale batch --batch-by id")
    assert advantages(place, "--reward reward --scale batch --batch-by '\"k,l\"'", group) == near(wanted)
    assert advantages(place, "--reward reward --group-within 'k,l'", group) == near(
        advantages(place, "--reward reward")
    )


@pytest.mark.parametrize(
    ("wrong", "way"),
    [
        ("-g id --reward x=y", "a column x=y is --reward x=y=1"),
        ("-g id --reward acc=1", "did you mean --reward acc=1=1?"),
        ("--reward reward --group k,l", "did you mean --group '\"k,l\"'?"),
        ("-g id --reward reward --scale batch --batch-by k,l", "did you mean --batch-by '\"k,l\"'?"),
        ("--reward reward --group ' sp'", "did you mean --group '\" sp\"'?"),
    ],
)
def test_the_error_of_the_wrong_way_shows_one_that_can_be_pasted(wrong: str, way: str, place: Path) -> None:
    said = error(place, wrong)
    assert way in said
    pasted = re.search(r"(--reward \S*=1\b'?|'\".*\"')", said)
    assert pasted is not None
    assert advantages(place, pasted[0] if "--reward" in pasted[0] else f"--reward reward -g {pasted[0]}", "-g id")


def test_a_value_of_plan_by_may_have_a_colon(place: Path) -> None:
    plain = advantages(place, "--reward reward --method rloo")
    plans = "--plan 'math:hard:method=rloo,scale=none' --plan 'code:with=math:hard'"
    assert advantages(place, f"--reward reward --plan-by env {plans}") == near(plain)
    empty = "--plan math:hard: --plan code:method=grpo"
    assert advantages(place, f"--reward reward --plan-by env {empty}") == near(advantages(place, "--reward reward"))
    assert "option of a plan named 'metod'; did you mean 'method'" in error(
        place, "--plan-by env --plan math:hard:metod=rloo"
    )


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
    from grpo_cli.options.resolve import normalized

    ((named, own),) = normalized("plans", [text])[1].items()
    assert (named, own.get("method")) == (value, method)


def test_a_formula_with_commas_stands_in_quotes(place: Path) -> None:
    wanted = advantages(place, "--reward reward --expr 'LEAST(reward, 0.5) - mean'")
    plans = """--plan 'default:"expr=LEAST(reward, 0.5) - mean"'"""
    assert advantages(place, f"--reward reward --plan-by env {plans}") == near(wanted)


def test_a_condition_names_any_column_of_the_key_in_backticks(place: Path) -> None:
    (name,) = (path.name for path in place.glob("in.*"))
    one = "'1'" if name == "in.csv" else "1"  # CSV has no types
    words = [name, "-g", '"k,l",p.q', "--reward", "reward"]
    done = adv(
        "select",
        *words,
        "-w",
        f"`k,l` == {one}",
        "-w",
        f"std > 0 or `p.q` == {one}",
        "-o",
        f"kept-{name}",
        "--json",
        cwd=place,
    )
    facts = json.loads(done.out)
    assert (facts["kept_groups"], facts["where"]) == (1, f"`k,l` == {one} and (std > 0 or `p.q` == {one})")
    said = adv("inspect", *words, "-w", "p.q == 1", cwd=place).err
    assert "a name like this stands in backticks: `p.q`" in said


@pytest.mark.parametrize("name", ["^k$", "^.*$", "*", "a b", "size ", "$", "and", "\u00e9 \u00e8"])
@pytest.mark.parametrize("condition", ["{} == 1", "2 > {}", "{} + 1 == 2 and std > 0", "not {} == 0", "0.5 < {} <= 1"])
def test_a_name_in_a_condition_is_never_a_pattern(name: str, condition: str, tmp_path: Path) -> None:
    rows = [{"id": k // 2, name: k // 2 * 3 - 2, "reward": k % 2} for k in range(4)]  # -2 and 1
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    where = condition.format(f"`{name}`")
    done = adv(
        "select",
        "in.jsonl",
        "-g",
        f"id,{name}" if name.strip() == name else f'id,"{name}"',
        "-w",
        where,
        "-o",
        "-",
        "-q",
        cwd=tmp_path,
    )
    wanted = [-2, 1] if condition in {"2 > {}", "not {} == 0"} else [1]
    assert sorted({row[name] for row in done.rows}) == wanted, done.err


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
def test_a_number_is_written_as_in_a_reward(number: str, place: Path) -> None:
    for options in (f"--map pass={number}", f"--reward reward={number}", f"--epsilon {number}", f"--clip={number}:9"):
        assert "a number" in error(
            place, f"-g id {options}" if "--reward" in options else f"-g id --reward reward {options}"
        )
    frame = pl.DataFrame({"id": ["a"] * 2, "reward": [number, "0"]})
    with pytest.raises(grpo_cli.DataError, match="which map does not name"):
        grpo_cli.advantages(frame, map=["10=5", "1=2"], group="id")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a", ["a"]), ("a,b", ["a", "b"]), (" a , b ", ["a", "b"]), ('"a,b"', ["a,b"]), ('"a,b",c', ["a,b", "c"]), ('c, "a,b" ', ["c", "a,b"]),
        ('"a"', ['"a"']), ('" a"', [" a"]), ('"a', ['"a']), ('5" disk,b', ['5" disk', "b"]), ('x"y,z"', ['x"y', 'z"']), ("", [""]), (",", ["", ""]),
        ("a,", ["a", ""]), ('"a,b"c', ['"a', 'b"c']),
    ],
)  # fmt: skip
def test_a_list_is_cut_at_its_commas_and_not_inside_quotes(text: str, wanted: list[str]) -> None:
    assert items(text) == wanted


def test_new_names_of_added_columns_are_cut_where_a_column_ends(place: Path) -> None:
    (name,) = (path.name for path in place.glob("in.*"))
    words = ["add", name, "--from", name, "-o", "added.jsonl", "-q", "--force"]
    assert adv(*words, "--column", "x=y=z", "--column", "acc=1=a=b", cwd=place).status == 0
    row = json.loads((place / "added.jsonl").read_text().splitlines()[1])
    assert (row["z"], row["a=b"]) == (ROWS[1]["x=y"], ROWS[1]["acc=1"])
    assert "no column named 'q'" in adv(*words, "--column", "q=z", cwd=place).err
