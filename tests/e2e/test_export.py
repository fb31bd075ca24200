"""`export`: what the next training job gets, from every format to every format."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow.parquet as pq
import pytest

from tests.support.command import Done, adv, files, ran
from tests.support.jobs import rows_of, write
from tests.support.schema_files import WRITERS

Row = dict[str, Any]
LINES = r"""
{"prompt_id": "a", "prompt": "Frage »a«?", "completion": "a-0 ✓\n", "reward": 0.0}
{"prompt_id": "a", "prompt": "Frage »a«?", "completion": "a-1 ✓\n", "reward": 1.0}
{"prompt_id": "a", "prompt": "Frage »a«?", "completion": "a-2 ✓\n", "reward": 1.0}
{"prompt_id": "a", "prompt": "Frage »a«?", "completion": "a-3 ✓\n", "reward": 0.5}
{"prompt_id": "b", "prompt": "Frage \"b\"?", "completion": "b-0 ✓\n", "reward": 0.0}
{"prompt_id": "b", "prompt": "Frage \"b\"?", "completion": "b-1 ✓\n", "reward": 0.0}
{"prompt_id": "c", "prompt": "Frage c?", "completion": "c-0 ✓\n", "reward": 1.0}
{"prompt_id": "d", "prompt": "Frage d?", "completion": "d-0 ✓\n", "reward": 0.25}
{"prompt_id": "d", "prompt": "Frage d?", "completion": "d-1 ✓\n", "reward": -1.0}
{"prompt_id": "d", "prompt": "Frage d?", "completion": "d-2 ✓\n", "reward": 0.75}
"""


def given(lines: str) -> None:
    Path("in.jsonl").write_text(lines.lstrip(), encoding="utf-8")


@pytest.fixture(autouse=True)
def _rollouts(place: Path) -> None:
    given(LINES)


def exported(options: str, source: str = "in.jsonl") -> list[Row]:
    return ran(f"export {source} -o - {options}").rows


def column(name: str, options: str) -> list[Any]:
    """The values of a column of the records."""
    return [row[name] for row in exported(options)]


def names(texts: list[str]) -> list[str]:
    """The completions of the first rows by their names."""
    return [text.removesuffix(" ✓\n") for text in texts]


def dropped_of(options: str) -> dict[str, int]:
    """The reasons for which rows are left out, and how many; the records are in `out.jsonl`."""
    done = ran(f"export in.jsonl -o out.jsonl --force --json {options}")
    return {one["reason"]: one["rows"] for one in json.loads(done.out)["dropped"]}


def refused(done: Done, message: str) -> None:
    assert done.status in {1, 2}
    assert done.err.count("\n") == 1, done
    assert message in done.err
    assert not Path("out.jsonl").exists()


# --- sft ---------------------------------------------------------------------------------------------------


def test_the_best_row_of_each_group_is_for_finetuning() -> None:
    assert ran("export in.jsonl --to sft -o - -q").out == (
        r"""{"prompt":"Frage »a«?","completion":"a-1 ✓\n","reward":1.0}
{"prompt":"Frage \"b\"?","completion":"b-0 ✓\n","reward":0.0}
{"prompt":"Frage c?","completion":"c-0 ✓\n","reward":1.0}
{"prompt":"Frage d?","completion":"d-2 ✓\n","reward":0.75}
"""
    )
    assert dropped_of("--to sft") == {"not among the best 1 of its group": 6}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--per-group 2 --min-reward 0.5", "a-1 a-2 c-0 d-2"),
        ("--pick all-above", "a-1 a-2 d-0 d-2"),
        ("--pick all-above --min-reward 1", "a-1 a-2 c-0"),
        ("--where 'std > 0' --limit 1", "a-1"),
        ("--where 'pass@1 > 0' --solved-at 0.5", "a-1 c-0 d-2"),
    ],
)
def test_several_rows_of_a_group_or_of_some_groups(options: str, wanted: str) -> None:
    assert names(column("completion", f"--to sft {options}")) == wanted.split()


def test_a_text_is_exported_once() -> None:
    given("""
{"step": 1, "prompt": "p", "completion": "x", "reward": 1.0}
{"step": 1, "prompt": "p", "completion": "x", "reward": 1.0}
{"step": 1, "prompt": "p", "completion": "y", "reward": 0.5}
{"step": 2, "prompt": "p", "completion": "x", "reward": 1.0}
{"step": 2, "prompt": "p", "completion": "z", "reward": 0.0}
""")
    options = "--to sft --per-group 2 --group prompt,step"
    assert column("completion", options) == ["x", "y", "z"]
    assert column("completion", f"{options} --keep-duplicates") == ["x", "x", "x", "z"]


def test_the_mean_of_a_group_is_that_of_the_input() -> None:
    """0.3, before duplicates and rows without a text are left out."""
    given("""
{"prompt": "p", "completion": "x", "reward": 0.0}
{"prompt": "p", "completion": "x", "reward": 0.0}
{"prompt": "p", "completion": "x", "reward": 0.0}
{"prompt": "p", "completion": null, "reward": 0.0}
{"prompt": "p", "completion": "b", "reward": 0.5}
{"prompt": "p", "completion": "a", "reward": 0.6}
{"prompt": "p", "completion": "c", "reward": 1.0}
""")
    assert column("completion", "--to sft --pick all-above") == ["b", "a", "c"]


def test_rows_without_text_or_reward_are_left_out_and_counted() -> None:
    given("""
{"prompt": "p", "completion": null, "reward": 1.0}
{"prompt": "p", "completion": "", "reward": 0.9}
{"prompt": "p", "completion": "a", "reward": null}
{"prompt": "p", "completion": "b", "reward": NaN}
{"prompt": "p", "completion": "c", "reward": 0.1}
{"prompt": "p", "completion": "d", "reward": 0.0}
""")
    reasons = {"no reward": 2, "no prompt or completion": 2, "not among the best 1 of its group": 1}
    assert dropped_of("--to sft") == reasons
    assert rows_of("out.jsonl") == [{"prompt": "p", "completion": "c", "reward": 0.1}]


@pytest.mark.parametrize("name", ["rlhflow", "livecodebench", "qwen-math"])
def test_a_schema_knows_prompt_and_response_of_records_with_lists(name: str) -> None:
    found = exported("--to sft --per-group 2 --keep-duplicates", str(WRITERS[name](Path()).path))
    assert {row["completion"] for row in found} >= {"x", "y"}
    assert {row["prompt"] for row in found} <= {"a", "p"}


# --- pairs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", ["a-1 a-0", "d-2 d-1"]),
        (
            "--pairs all --min-margin 0.5",
            ["a-1 a-0", "a-1 a-3", "a-2 a-0", "a-2 a-3", "a-3 a-0", "d-0 d-1", "d-2 d-0", "d-2 d-1"],
        ),
        ("--pairs all --min-margin 0.75", ["a-1 a-0", "a-2 a-0", "d-0 d-1", "d-2 d-1"]),
        ("--pairs adjacent", ["a-1 a-3", "a-3 a-0", "d-0 d-1", "d-2 d-0"]),
    ],
)
def test_a_better_and_a_worse_answer_are_a_pair(options: str, wanted: list[str]) -> None:
    found = exported(f"--to pairs {options}")
    pairs = [" ".join(names([row["chosen"], row["rejected"]])) for row in found]
    assert sorted(pairs) == wanted


def test_a_pair_has_both_rewards_and_their_margin() -> None:
    first, last = exported("--to pairs")
    assert first["prompt"] == "Frage »a«?"
    assert list(last.items())[3:] == [("chosen_reward", 0.75), ("rejected_reward", -1.0), ("margin", 1.75)]
    assert dropped_of("--to pairs") == {"not used in any pair": 6}  # two of a, b, c, one of d
    assert dropped_of("--to pairs --pairs all") == {"not used in any pair": 3}
    assert column("margin", "--to pairs --pairs all --max-pairs 1") == [1, 1.75]
    drawn = exported("--to pairs --pairs all --max-pairs 2 --seed 3")
    assert len(drawn) == 4
    assert exported("--to pairs --pairs all --max-pairs 2 --seed 3") == drawn


@pytest.mark.parametrize("options", ["--to pairs -o out.jsonl", "--to sft -o out.parquet"])
def test_a_full_temporary_directory_is_named_in_the_error(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> BinaryIO:
        return Path("/dev/full").open("w+b")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    done = adv(f"export in.jsonl {options}")
    refused(done, f"the texts of the records: no space left in {tempfile.gettempdir()}")
    assert [*files()] == ["in.jsonl"]


def test_rows_of_a_pair_may_be_far_apart() -> None:
    rows = []
    for k in range(3):
        rows += [{"prompt_id": p, "prompt": "p", "completion": f"{p}-{k} " * 200, "reward": k} for p in range(500)]
    write("in.jsonl", rows)
    found = exported("--to pairs --group prompt_id")
    assert [row["chosen"] for row in found] == [f"{p}-2 " * 200 for p in range(500)]
    assert [row["rejected"] for row in found] == [f"{p}-0 " * 200 for p in range(500)]


def test_a_pair_answers_one_prompt() -> None:
    given("""
{"uid": 1, "prompt": "turn one", "completion": "a", "reward": 0.0}
{"uid": 1, "prompt": "turn two", "completion": "b", "reward": 1.0}
{"uid": 1, "prompt": "turn two", "completion": "c", "reward": 0.0}
""")
    (pair,) = exported("--to pairs -g uid")
    assert pair["chosen"] == "b"
    assert pair["rejected"] == "c"


# --- weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (  # exp(A/0.5), at most 2, the mean of a group being 1
            "--method dr-grpo --beta 0.5 --max-weight 2",
            [0.2262488, 1.5793716, 1.5793716, 0.6150079, 1, 1, 1, 1.3071062, 0.1072938, 1.5856],
        ),
        (
            "--weight softmax --method dr-grpo --beta 2",
            [0.1791643, 0.2953921, 0.2953921, 0.2300516, 0.5, 0.5, 1, 0.3546996, 0.1898570, 0.4554433],
        ),
        ("--weight positive", [0.7833478, 0.7833478, 0.2773498, 0.8320494]),
    ],
)
def test_a_row_weighs_by_its_advantage(options: str, wanted: list[float]) -> None:
    assert column("weight", f"--to weights {options}") == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize(("options", "share"), [("", 1.0), ("--weight softmax", 0.5), ("--max-weight 1e308", 1.0)])
@pytest.mark.parametrize("beta", ["0.0001", "1e-320"])
def test_a_beta_that_is_very_small_leaves_no_group_without_weights(options: str, share: float, beta: str) -> None:
    """Every exponential of a group far below the others is 0."""
    given("""
{"prompt_id": "low", "prompt": "p", "completion": "0", "reward": -5.0}
{"prompt_id": "low", "prompt": "p", "completion": "1", "reward": -5.0}
{"prompt_id": "high", "prompt": "p", "completion": "2", "reward": 5.0}
{"prompt_id": "high", "prompt": "p", "completion": "3", "reward": 4.0}
""")
    weights = column("weight", f"--to weights --group prompt_id --method reinforce --beta {beta} {options}")
    assert weights[:2] == [share, share]
    assert sum(weights[2:]) == 2 * share


# --- prompts -----------------------------------------------------------------------------------------------


PROMPTS = r"""
prompt,n,solve_rate,mean,std,best,worst,difficulty,pass@2,pass@1,pass@3
Frage »a«?,4,0.75,0.625,0.47871355387816905,1.0,0.0,medium,1.0,0.75,1.0
"Frage ""b""?",2,0.0,0.0,0.0,0.0,0.0,never,0.0,0.0,
Frage c?,1,1.0,1.0,,1.0,1.0,always,,1.0,
Frage d?,3,0.3333333333333333,0.0,0.9013878188659973,0.75,-1.0,medium,0.6666666666666667,0.33333333333333337,1.0
"""


def test_a_prompt_has_its_solve_rate_its_band_and_its_chances() -> None:
    """pass@2 of d: of the three pairs of its rows two have the one that is solved."""
    ran("export in.jsonl --to prompts --pass-at 2,1,3,2 --solved-at 0.5 -o out.csv")
    assert Path("out.csv").read_text(encoding="utf-8") == PROMPTS.lstrip()
    assert column("solve_rate", "--to prompts") == [0.8125, 0.5, 1.0, 0.5]
    assert column("difficulty", "--to prompts") == ["easy", "medium", "always", "medium"]


def test_a_prompt_without_a_finite_reward_has_no_rate() -> None:
    given('{"prompt": "p", "reward": NaN}\n{"prompt": "p", "reward": null}\n')
    (row,) = exported("--to prompts --pass-at 1")
    assert row["n"] == 0
    assert row["solve_rate"] is None
    assert row["best"] is None
    assert row["pass@1"] is None


def test_runs_of_the_same_prompts_are_pooled() -> None:
    given("""
{"step": 1, "prompt": "x", "reward": 1}
{"step": 1, "prompt": "x", "reward": 0}
{"step": 1, "prompt": "y", "reward": 0}
{"step": 2, "prompt": "y", "reward": 1}
{"step": 2, "prompt": "x", "reward": 1}
{"step": 2, "prompt": "x", "reward": 1}
""")
    assert column("n", "--to prompts -g prompt,step") == [2, 1, 1, 2]
    pool = "--to prompts -g prompt,step --pool"
    assert column("prompt", pool) == ["x", "y"]
    assert column("n", pool) == [4, 2]
    assert column("solve_rate", pool) == [0.75, 0.5]
    assert column("n", f"{pool} -w 'solve_rate > 0.5'") == [4]
    done = adv(f"export in.jsonl {pool} --where 'step == 1' -o out.jsonl")
    refused(done, "step has several values in the groups that --pool merges into one prompt; leave out --pool")


@pytest.mark.parametrize("pool", ["", "--pool"])
def test_a_condition_changes_no_number_that_is_exported(pool: str) -> None:
    given("""
{"step": 1, "prompt": "x", "reward": 0.9}
{"step": 1, "prompt": "x", "reward": 0.1}
{"step": 1, "prompt": "y", "reward": 0.6}
{"step": 2, "prompt": "y", "reward": 0.7}
{"step": 2, "prompt": "x", "reward": 0.5}
{"step": 2, "prompt": "x", "reward": 0.5}
{"step": 2, "prompt": "z", "reward": 0.6}
""")
    options = f"--to prompts -g prompt,step {pool} --pass-at 1,2"
    every = exported(options)
    assert exported(f"{options} --where 'mean < 0.62'") == [row for row in every if row["mean"] < 0.62]
    assert exported(f"{options} --where 'size > 1'") == [row for row in every if row["n"] > 1]
    assert exported(f"{options} --where 'max < 0.8'") == [row for row in every if row["best"] < 0.8]
    assert exported(f"{options} --where 'solve_rate > 0.5'") == [row for row in every if row["solve_rate"] > 0.5]
    assert exported(f"{options} --where 'pass@1 > 0'") == [row for row in every if row["pass@1"] > 0]
    assert exported(f"{options} --limit 2") == every[:2]


@pytest.mark.parametrize(
    ("rewards", "options", "rate", "said"),
    [
        ((-1.0, 0.5, 1.0), "", 7 / 12, "solve rate     scaled from -1 (0) to 1 (1)"),
        ((-1.0, 0.5, 1.0), "--solved-at 1", 1 / 3, ""),
        ((0.4, 0.9), "", 0.65, ""),
        ((7.0, 7.0), "", None, "unknown: all rewards are equal"),
    ],
)
def test_the_scale_of_a_solve_rate_is_that_of_the_input_and_is_printed(
    rewards: tuple[float, ...], options: str, rate: float | None, said: str
) -> None:
    write("in.jsonl", [{"prompt": "a", "reward": reward} for reward in rewards])
    done = adv(f"export in.jsonl --to prompts {options} -o out.jsonl")
    assert said in done.out
    assert ("scaled from" in done.out) == ("scaled from" in said)
    (row,) = rows_of("out.jsonl")
    assert row["solve_rate"] == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize("pool", ["", "--pool"])
def test_a_prompt_without_text_is_no_prompt(pool: str) -> None:
    given("""
{"prompt_id": "a", "prompt": "x", "reward": 1.0}
{"prompt_id": "b", "prompt": null, "reward": 1.0}
{"prompt_id": "c", "prompt": "", "reward": 1.0}
""")
    assert column("prompt", f"--to prompts {pool}") == ["x"]


# --- tokens ------------------------------------------------------------------------------------------------

OF_TOKENS = """
{"p": 1, "reward": 1.0, "prompt_ids": [5], "ids": [7], "all_ids": [5, 7], "n": 1, "mask": [0, 1], "labels": [-100, 7], "m": 1}
{"p": 1, "reward": 0.0, "prompt_ids": [], "ids": [7, 7], "all_ids": [7, 7], "n": 2, "mask": [1, 1], "labels": [7, 7], "m": 0}
{"p": 1, "reward": 0.5, "prompt_ids": [5, 5], "ids": [7], "all_ids": [5, 5, 7], "n": 1, "mask": [0, 0, 1], "labels": [-100, -100, 7], "m": 2}
"""
TOKENS: list[Row] = [json.loads(line) for line in OF_TOKENS.strip().splitlines()]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--tokens ids", [[0.5], [-0.5, -0.5], [0.0]]),
        ("--length-column n", [[0.5], [-0.5, -0.5], [0.0]]),
        ("--tokens ids --prompt-tokens prompt_ids", [[0.0, 0.5], [-0.5, -0.5], [0.0, 0.0, 0.0]]),
        ("--tokens ids --prompt-tokens m", [[0.0, 0.5], [-0.5, -0.5], [0.0, 0.0, 0.0]]),
        ("--tokens all_ids --length-column n", [[0.0, 0.5], [-0.5, -0.5], [0.0, 0.0, 0.0]]),
        ("--mask mask", [[0.0, 0.5], [-0.5, -0.5], [0.0, 0.0, 0.0]]),
        ("--mask labels --tokens all_ids", [[0.0, 0.5], [-0.5, -0.5], [0.0, 0.0, 0.0]]),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_every_token_of_the_response_has_the_advantage(options: str, wanted: list[list[float]], suffix: str) -> None:
    write(f"in.{suffix}", TOKENS)
    found = exported(f"--to tokens -g p --method dr-grpo {options}", f"in.{suffix}")
    assert [row.pop("advantages") for row in found] == wanted
    for row, known in zip(found, TOKENS, strict=True):
        assert row.items() <= {**known, "advantage": known["reward"] - 0.5}.items()


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ("--length-column n", {"n": 0.0}),
        ("--length-column n --tokens all_ids", {"n": 0}),
        ("--length-column n --prompt-tokens prompt_ids", {"n": 0}),
        ("--tokens ids", {"ids": []}),
        ("--tokens ids --prompt-tokens prompt_ids", {"prompt_ids": None}),
        ("--mask mask", {"mask": []}),
    ],
    ids=str,
)
def test_a_response_of_no_tokens_is_no_record(options: str, change: Row) -> None:
    write("in.jsonl", [TOKENS[0], {**TOKENS[1], **change}, TOKENS[2]])
    assert [*dropped_of(f"--to tokens -g p {options}").values()] == [1]
    assert [row["advantages"] != [] for row in rows_of("out.jsonl")] == [True, True]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"n": 9}, "--tokens ids --length-column n", "in.jsonl:2: n is 9, ids has 2 tokens"),
        ({"mask": [1]}, "--tokens all_ids --mask mask", "in.jsonl:2: mask has 1 entries, all_ids 2"),
        ({"n": -1}, "--length-column n", "in.jsonl:2: n is -1, expected a number of tokens"),
        ({"ids": [[1]]}, "--tokens ids", "in.jsonl:2: ids is not a flat list"),
        ({"n": float("nan")}, "--length-column n", "in.jsonl:2: n is NaN, expected a number of tokens"),
        ({"n": 10**400}, "--length-column n", "more than the 16,777,216 tokens that a row may have"),
        ({"mask": [None, [1]]}, "--mask mask", "in.jsonl:2: mask is [null, [1]], expected a list"),
        ({}, "", "give --tokens COL, --mask COL or --length-column COL; it could be prompt_ids, all_ids"),
        ({}, "--mask mask --length-column n", "leave one of them out"),
    ],
)
def test_lengths_that_do_not_fit_are_an_error(change: Row, options: str, message: str) -> None:
    write("in.jsonl", [TOKENS[0], {**TOKENS[1], **change}, TOKENS[2]])
    refused(adv(f"export in.jsonl --to tokens -g p -o out.jsonl {options}"), message)


def test_advantages_on_tokens_are_a_list_column() -> None:
    write("in.jsonl", TOKENS)
    ran("export in.jsonl --to tokens -g p --tokens ids -o out.parquet")
    written = [str(one.type) for one in pq.read_schema("out.parquet")]  # by no name that only some readers know
    assert written == ["list<element: int64>", "list<element: double>", "double", "double"]


# --- messages ----------------------------------------------------------------------------------------------


def arguments_of(answers: list[Any]) -> list[Any]:
    """Those of the only call of each answer."""
    return [turns[0]["tool_calls"][0]["function"]["arguments"] for turns in answers]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([{"a": 1}, {"a": 2}, {"b": "x"}], [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": None, "b": "x"}]),
        ([{}, {"a": 1}, '{"a": 2}'], ["{}", '{"a": 1}', '{"a": 2}']),
        ([{}, {}, {}], ["{}", "{}", "{}"]),
        ([{"a": 1}, {"a": "é"}, None], [{"a": "1"}, {"a": "é"}, None]),
    ],
    ids=["one-type", "texts-and-objects", "empty", "inside"],
)
def test_only_the_field_without_a_type_becomes_text(arguments: list[Any], wanted: list[Any]) -> None:
    rows = []
    for at, one in enumerate(arguments):
        call = {"id": "x", "function": {"name": "f", "arguments": one}}
        answer = [{"role": "assistant", "content": f"ü{at}", "tool_calls": [call]}]
        rows.append({"prompt_id": 1, "prompt": "p", "completion": answer, "reward": -at})
    write("in.jsonl", rows)
    ran("export in.jsonl --to sft --per-group 3 -o out.parquet")
    assert arguments_of(pl.read_parquet("out.parquet")["completion"].to_list()) == wanted
    as_lines = column("completion", "--to sft --per-group 3")
    assert as_lines == [row["completion"] for row in rows]  # lines keep what the file has
    ran("export in.jsonl --to pairs --pairs adjacent -o pairs.parquet")
    pairs = pl.read_parquet("pairs.parquet")
    assert arguments_of(pairs["chosen"].to_list()) == wanted[:2]
    assert arguments_of(pairs["rejected"].to_list()) == wanted[1:]
    assert pairs["chosen"].dtype == pairs["rejected"].dtype


def chat(*turns: str) -> list[Row]:
    return [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(turns)]


def test_conversations_stay_as_they_are() -> None:
    tool = '[{"role": "user",  "content": "2+2?"}, {"role": "assistant", "content": null, "tool_calls": [{"id": 1e2}]}]'
    given(f'{{"task_id": 1, "messages": {tool}, "reward": 1.0}}\n')
    assert adv("export in.jsonl --to sft -o -").out == f'{{"messages":{tool},"reward":1.0}}\n'


def test_pairs_and_prompts_of_conversations_share_the_turns_that_are_equal() -> None:
    good = chat("q", "a", "again", "good")
    bad = chat("q", "a", "again", "bad")
    write("in.jsonl", [{"task_id": 1, "messages": good, "reward": 1}, {"task_id": 1, "messages": bad, "reward": 0}])
    (pair,) = exported("--to pairs")
    assert pair["prompt"] == chat("q", "a", "again")
    assert pair["chosen"] == good[3:]
    assert pair["rejected"] == bad[3:]
    assert column("prompt", "--to prompts") == [chat("q")]


def test_a_text_beside_messages_becomes_a_turn_and_a_conversation_as_text_becomes_messages() -> None:
    given(r"""
{"prompt_id": 0, "prompt": [{"role": "user", "content": "q"}], "completion": "a", "reward": 1}
{"prompt_id": 1, "prompt": "q", "completion": {"role": "assistant", "content": "a"}, "reward": 1}
{"prompt_id": 2, "prompt": "q", "completion": "a", "reward": 1}
{"prompt_id": 3, "prompt": "[\n{\"role\": \"user\", \"content\": \"q\"}]", "completion": "[{not json", "reward": 1}
""")
    answer = [{"role": "assistant", "content": "a"}]
    half = [{"role": "assistant", "content": "[{not json"}]
    assert column("prompt", "--to sft") == [chat("q"), chat("q"), "q", chat("q")]
    assert column("completion", "--to sft") == [answer, answer, "a", half]


# --- formats -----------------------------------------------------------------------------------------------

KINDS = pytest.mark.parametrize("kind", ["sft", "pairs", "weights", "prompts"])


@KINDS
def test_every_format_gives_the_same_records_and_columnar_ones_have_types(kind: str) -> None:
    wanted = exported(f"--to {kind}")
    for suffix in ("json", "parquet", "arrow", "csv"):
        write(f"in.{suffix}", rows_of("in.jsonl"))
        assert exported(f"--to {kind}", f"in.{suffix}") == wanted
    for suffix, read in (("parquet", pl.read_parquet), ("arrow", pl.read_ipc)):
        ran(f"export in.jsonl --to {kind} -o out.{suffix}")
        frame = read(f"out.{suffix}")
        assert frame.to_dicts() == wanted
        computed = frame.drop("prompt", "completion", "chosen", "rejected", strict=False)
        assert {*computed.dtypes} <= {pl.Float64, pl.Int64, pl.String}


def test_several_files_become_one() -> None:
    rows = rows_of("in.jsonl")
    write("parts/a.jsonl", rows[:4])
    write("parts/b.parquet", rows[4:])
    assert exported("--to sft", "'parts/*'") == exported("--to sft")
    assert exported("--to sft", "parts/a.jsonl parts/b.parquet") == exported("--to sft")


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--to prompts --response x", "--response does not apply to --to prompts"),
        ("--to weights --beta 0", "--beta cannot be 0"),
        ("--to weights --weight positive --beta 1", "--weight positive has no --beta"),
        ("--to pairs --max-pairs 0", "--max-pairs cannot be 0; it takes 1 or more"),
        ("--to prompts --pass-at x", "--pass-at"),
        ("--to sft --messages m --prompt p", "leave out --prompt and --response"),
        ("--to sft --prompt prompt --response no", "in.jsonl: no row has a text in the column 'no'"),
    ],
)
def test_options_that_do_not_apply_are_refused(options: str, message: str) -> None:
    refused(adv(f"export in.jsonl -o out.jsonl {options}"), message)


def test_an_output_is_a_file_of_its_own() -> None:
    refused(adv("export in.jsonl --to sft"), "-o is missing")
    refused(adv("export in.jsonl --to sft -o ."), "is a directory")
    refused(adv("export in.jsonl --to sft -o in.jsonl --force"), "is an input")
    Path("old.jsonl").touch()
    refused(adv("export in.jsonl --to sft -o old.jsonl"), "exists")
    ran("export in.jsonl --to sft -o old.jsonl --force")


def test_an_error_asks_for_columns_that_it_does_not_find() -> None:
    given('{"prompt_id": 1, "ask": "p", "my_output": "c", "reward": 1.0}\n')
    columns = "no column looks like the prompt (columns: prompt_id, ask, my_output, reward)"
    refused(adv("export in.jsonl --to sft -o -"), f"{columns}; give --prompt NAME and --response NAME")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_texts_inside_of_records_are_named_by_their_full_path_as_the_reward_is(suffix: str) -> None:
    attempts = [{"answer": "a0", "score": 0.0}, {"answer": "a1", "score": 1.0}]
    write(f"x.{suffix}", [{"case": "c0", "attempts": attempts}, {"case": "c1", "attempts": attempts}])
    options = "--to sft --reward attempts[].score --prompt case --response attempts[].answer"
    found = exported(options, f"x.{suffix}")
    assert [(row["prompt"], row["completion"]) for row in found] == [("c0", "a1"), ("c1", "a1")]


@pytest.mark.parametrize("kind", ["sft", "pairs"])
def test_a_conversation_that_is_none_is_refused_with_its_row(kind: str) -> None:
    rows = [{"prompt_id": at // 2, "messages": chat("q", f"{at}"), "reward": at % 2} for at in range(8)]
    rows[5]["messages"] = "oops"
    write("in.jsonl", rows)
    done = adv(f"export in.jsonl --group prompt_id --to {kind} -o out.jsonl")
    refused(done, "in.jsonl:6: a conversation is not a list of messages")


def test_prompts_that_are_all_empty_lists_name_the_flag_for_another_column() -> None:
    given("""
{"responses_create_params": {"input": []}, "response": {"output": [1]}, "_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 0}
{"responses_create_params": {"input": []}, "response": {"output": [1]}, "_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 1}
""")
    done = adv("export in.jsonl --to sft -o out.jsonl")
    refused(done, "no row has a text in the column 'responses_create_params.input'")
    assert "name another one with --prompt, --response or --messages" in done.err


# --- exports with nothing to learn from ----------------------------------------------------------------------------


@pytest.mark.parametrize(("reward", "count"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("kind", ["sft", "weights"])
def test_records_of_a_set_in_which_everything_failed_warn(kind: str, reward: int, count: int) -> None:
    line = '{"prompt": "p", "completion": "c%d", "reward": %d}\n'
    given(line % (0, reward) + line % (1, reward))
    done = adv(f"export in.jsonl --to {kind} -o out.jsonl")
    said = "every row has the reward 0: no record is better than another row"
    assert " ".join(done.out.split()).count(said) == count


def test_groups_of_one_row_make_no_pair_and_an_empty_export_can_stop_a_pipeline() -> None:
    given("""
{"prompt_id": 0, "prompt": "p", "completion": "c", "reward": 0}
{"prompt_id": 1, "prompt": "p", "completion": "d", "reward": 1}
""")
    done = adv("export in.jsonl --to pairs -o some.jsonl")
    assert (done.status, Path("some.jsonl").exists()) == (1, False)
    assert "no record for pairs is left of 2 rows: 2 not used in any pair" in done.err
    gate = "--to pairs -o out.jsonl --fail-on 'records == 0'"
    assert adv(f"export in.jsonl {gate}").status == 3
    assert not Path("out.jsonl").exists()
    given(Path("in.jsonl").read_text().replace('"prompt_id": 1', '"prompt_id": 0'))
    ran(f"export in.jsonl {gate}")
    assert len(rows_of("out.jsonl")) == 1


@pytest.mark.parametrize("to", ["sft", "pairs", "weights"])
def test_a_chat_of_a_record_with_several_rewards_is_nobodys_response(to: str) -> None:
    turns = chat("1+1?", "2")
    group: Row = {"tokens": [[1], [2]], "masks": [[1], [1]], "scores": [1.0, 0.0], "messages": turns}
    write("atropos.jsonl", [group, group])
    done = adv(f"export atropos.jsonl --to {to} -o out.jsonl")
    refused(done, "messages has one text for all rollouts of a record")
    ran("export atropos.jsonl --to prompts -o out.jsonl")
    own = {**group, "messages": [turns, chat("1+1?", "3")]}
    write("chats.jsonl", [own, own])
    ran(f"export chats.jsonl --to {to} -o {to}.jsonl")
    write("equal.jsonl", [{**group, "scores": [1.0, 1.0]}] * 2)
    ran("export equal.jsonl --to sft -o equal.out.jsonl")
