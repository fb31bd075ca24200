"""`--plan-by`: each part has the results and messages that it would have in a file of its own."""

from __future__ import annotations

import json
import random
import re
import sys
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.errors import DataError, GrpoError, UsageError
from grpo_cli.read.tables import FileTable
from tests.support.command import adv, facts_of, ran
from tests.support.jobs import rows_of, write
from tests.support.schema_files import WRITERS

PLANS = """
plan-by = "env_name"
[plan.math]
preset = "trl-grpo"
scale = "batch"
epsilon = 0.5
[plan.code]
method = "rloo"
whiten = "token"
clip = "-1:1"
[plan.chat]
reward = ["reward=1", "format=0.25"]
combine = "normalize"
zero-variance = "drop"
[plan."none of these"]
method = "ema"
"""


ALONE = {
    "math": "--preset trl-grpo --scale batch --epsilon 0.5 --batch-by input",
    "code": "--method rloo --whiten token --clip=-1:1 --batch-by input --length-column n",
    "chat": "--reward reward=1 --reward format=0.25 --combine normalize --zero-variance drop",
}


SHARED = "--group-within input"


TOGETHER = f"--config plans.toml {SHARED} --batch-by input --length-column n"


@pytest.fixture(autouse=True)
def plans(here: None) -> Path:
    path = Path("plans.toml")
    path.write_text(PLANS)
    return path


def rollouts(seed: int = 1, prompts: int = 24, step: int = 0) -> list[dict[str, Any]]:
    """Groups of several environments in no order, some of them with equal rewards."""
    drawn = random.Random(seed)  # noqa: S311 - test data
    rows = []
    for prompt in range(prompts):
        about = {"env_name": ("math", "code", "chat")[prompt % 3], "prompt_id": f"{step}-{prompt}", "step": step}
        for _ in range(drawn.randint(2, 5)):
            row = {**about, "reward": 1.0, "format": 0.0, "n": drawn.randint(5, 50)}
            if prompt % 4:
                row |= {"reward": round(drawn.random(), 3), "format": drawn.choice([0.0, 1.0])}
            rows.append(row)
    drawn.shuffle(rows)
    return rows


# --- the numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("words", ["", "--facts", "--only", "--per-token --tokens tokens"])
def test_each_part_has_the_bits_of_its_own_run(words: str, suffix: str) -> None:
    rows = [{**row, "at": at, "tokens": list(range(row["n"]))} for at, row in enumerate(rollouts())]
    write(f"all.{suffix}", rows)
    ran(f"compute all.{suffix} {TOGETHER} {words}")
    together = rows_of(f"all.advantages.{suffix}")
    alone = []
    for value, options in ALONE.items():
        write(f"{value}.{suffix}", [row for row in rows if row["env_name"] == value])
        ran(f"compute {value}.{suffix} {options} {SHARED} {words}")
        alone += rows_of(f"{value}.advantages.{suffix}")
    if words == "--only":  # a reward that only one plan reads is null in the rows of the others
        together = [{name: one for name, one in row.items() if one is not None} for row in together]
    assert sorted(map(json.dumps, together)) == sorted(map(json.dumps, alone))
    assert len(together) < len(rows)  # groups without a gradient are dropped of one part only
    if words != "--only":
        kept = [row["at"] for row in together]
        assert kept == sorted(kept)


def test_a_folder_is_one_input_whichever_values_its_files_have() -> None:
    first = rollouts(1)
    second = [row for row in rollouts(2, step=1) if row["env_name"] != "chat"]
    write("in/a.parquet", first)
    write("in/b.parquet", second)
    write("all.parquet", first + second)
    ran(f"compute in -o out/ {TOGETHER}")
    ran(f"compute all.parquet {TOGETHER}")
    assert rows_of("out/a.parquet") + rows_of("out/b.parquet") == rows_of("all.advantages.parquet")


def test_values_share_a_batch_where_a_column_joins_them() -> None:
    """They get what one value would: only together do their rows share a mean or std."""
    write("all.jsonl", rollouts())
    Path("parts.csv").write_text("env_name,part\nmath,math\ncode,code\nchat,code\n")
    ran("add all.jsonl --from parts.csv --on env_name -o joined.jsonl")
    batch = "--batch-by input"
    words = f"--plan-by part {SHARED} {batch} --plan math:method=rloo --plan code:method=reinforce++,whiten=sample"
    facts = facts_of(f"compute joined.jsonl {words}")
    assert {part["value"] for part in facts["parts"]} == {"math", "code"}
    found = pl.read_ndjson("joined.advantages.jsonl")
    for part, options in {"math": "--method rloo", "code": f"--method reinforce++ --whiten sample {batch}"}.items():
        together = found.filter(pl.col("part") == part)
        together.drop("advantage").write_ndjson(f"{part}.jsonl")
        ran(f"compute {part}.jsonl --reward reward {options} {SHARED}")
        assert pl.read_ndjson(f"{part}.advantages.jsonl").equals(together)


ROW = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]))


@given(st.lists(ROW, min_size=1))
def test_any_rows_are_computed_as_their_parts_alone(drawn: list[tuple[str | None, int, float]]) -> None:
    rows = [(env, f"{env}{number}", reward) for env, number, reward in drawn]
    frame = pl.DataFrame(rows, {"env": pl.String, "id": pl.String, "reward": pl.Float64}, orient="row")
    a: Any = {"scale": "batch"}
    b: Any = {"method": "rloo", "whiten": "sample"}
    others: Any = {"preset": "verl-grpo"}
    of_frame: Any = partial(grpo_cli.compute, group="id", singleton="raw")
    together = of_frame(frame, plan_by="env", plans={"a": a, "b": b, "default": others})
    for env, options in {"a": a, "b": b, None: others}.items():
        mask = frame["env"].eq_missing(pl.Series([env], dtype=pl.String))
        if mask.any():
            alone = of_frame(frame.filter(mask), **options)
            assert together.advantages.filter(mask).equals(alone.advantages, null_equal=True)
            assert together.status.filter(mask).equals(alone.status)
            assert together.plans[env or "null"] == alone.plan


def test_environments_of_a_known_layout_are_parts(tmp_path: Path) -> None:
    source = WRITERS["prime-rl"](tmp_path).path
    records = rows_of(source)
    for record in records:
        record["task"] = {"type": "even" if record["group"]["id"] == "g0" else "odd"}
    write(source, records)
    ran(f"compute {source} --plan-by task.type --plan even:method=rloo --plan odd:preset=trl-grpo -o together.jsonl")
    alone = []
    for env, plan in (("even", "--method rloo"), ("odd", "--preset trl-grpo")):
        write(source, [record for record in records if record["task"]["type"] == env])
        ran(f"compute {source} {plan} -o {env}.jsonl")
        alone += rows_of(f"{env}.jsonl")
    assert sorted(map(json.dumps, rows_of("together.jsonl"))) == sorted(map(json.dumps, alone))


OF_ALL = {"inputs", "outputs", "advantage_column", "more_columns", "seconds", "config", "version"}


def without(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a part, or of the run of this part alone."""
    return {name: value for name, value in facts.items() if name not in OF_ALL}


# --- what is said --------------------------------------------------------------------------------------------


def test_each_part_says_what_its_own_run_says_and_is_named_before_it() -> None:
    rows = rollouts()
    write("all.jsonl", rows)
    facts = facts_of(f"compute all.jsonl {TOGETHER}")
    assert facts["plan_by"] == "env_name"
    assert facts["rows"] == len(rows)
    values = list(dict.fromkeys(row["env_name"] for row in rows))
    assert [part["value"] for part in facts["parts"]] == values
    for value, part in zip(values, facts["parts"], strict=True):
        write("one.jsonl", [row for row in rows if row["env_name"] == value])
        alone = facts_of(f"compute one.jsonl {ALONE[value]} {SHARED} --force")
        assert without(part) == {"value": value, **without(alone)}
    out = ran(f"compute all.jsonl {TOGETHER} --force").out
    heads = re.findall(r"^part +env_name = (\w+)$", out, re.MULTILINE)
    assert heads == values
    assert re.search(rf"^input +all.jsonl\nrows +{len(rows)} in 24 groups\nwritten ", out, re.MULTILINE)
    out = ran(f"compute all.jsonl {TOGETHER} --explain").out
    assert out.count("worked out") == 3
    assert out.count("env_name = ") == 3


def test_a_gate_is_checked_for_each_part_and_names_the_one_that_fails() -> None:
    Path("in.csv").write_text("env,id,reward\na,1,0\na,1,1\nb,2,0\nb,2,0\n")
    words = "in.csv --plan-by env --plan default: --group id"
    failed = adv(f"compute {words} --fail-on 'zero_variance_share > 0.9'")
    assert failed.status == 3
    assert "error: env = b: the --fail-on condition" in failed.err
    ran(f"compute {words} --fail-on 'rows > 2'")


def test_parquet_names_the_plan_of_each_value() -> None:
    write("all.parquet", rollouts())
    ran(f"compute all.parquet {TOGETHER}")
    entry = json.loads(pq.read_metadata("all.advantages.parquet").metadata[b"grpo_adv"])
    assert entry["plan_by"] == "env_name"
    methods = {value: plan["method"] for value, plan in entry["plans"].items()}
    assert methods == {"math": "grpo", "code": "rloo", "chat": "grpo"}
    assert entry["rewards"] == {"math": ["reward"], "code": ["reward"], "chat": ["reward", "format"]}


# --- what is refused -----------------------------------------------------------------------------------------

ONE_GROUP = '{"env": "a", "id": 1, "reward": 0}\n{"env": "a", "id": 1, "reward": 1}\n'


def refused(line: str) -> str:
    result = adv(line)
    assert result.status in {1, 2}
    assert len(result.err.splitlines()) == 1
    return result.err.strip()


def test_values_without_a_plan_stop_the_run_and_are_listed_with_their_rows() -> None:
    Path("in.csv").write_text("env,id,reward\na,1,0\na,1,1\na,2,0\na,2,1\nb,3,0\nb,3,1\n,4,0\n,4,1\n,4,1\n")
    words = "compute in.csv --plan-by env --group id --plan"
    assert refused(f"{words} a:method=rloo") == (
        "error: env: 2 values have no plan: b (2 rows), null (3 rows); add --plan b:OPTION=X (in --config a table [plan.b]);"
        " add --plan default:OPTION=X for all other values"
    )
    misspelled = refused(f"{words} aa:method=rloo --plan b:")
    assert "2 values have no plan: a (4 rows), null (3 rows); add --plan a:" in misspelled
    ran(f"{words} a:method=rloo --plan default:")


def test_plans_without_rows_are_named_if_there_is_a_default_plan() -> None:
    Path("in.csv").write_text("env,prompt_id,reward\nmath,1,0\nmath,1,1\ncode,2,0\ncode,2,1\n")
    line = "compute in.csv --force --plan-by env --plan default: --plan"
    assert facts_of(f"{line} mth:method=rloo")["warnings"] == ["no row has env = mth, which has a plan"]
    several = facts_of(f"{line} math2:method=rloo --plan cde:method=rloo")
    assert several["warnings"] == ["no row has env = cde, math2, which have plans"]
    assert facts_of(f"{line} math:method=rloo")["warnings"] == []


def test_a_plan_of_a_value_that_no_row_has_needs_nothing(plans: Path) -> None:
    """It may need columns that the file does not have; it stops the run where rows have its value."""
    plans.write_text('plan-by="env"\n[plan.a]\nmethod="rloo"\n[plan.b]\nwhiten="token"\n[plan.c]\nreward=["passed"]\n')
    rows = "env,id,reward\na,0,0\na,0,1\n"
    source = Path("in.csv")
    source.write_text(rows)
    words = "compute in.csv --config plans.toml --group id --force -q"
    ran(words)
    source.write_text(f"{rows}b,9,1\nb,9,0\n")
    assert refused(words).startswith("error: [plan.b]: the plan needs response length")
    source.write_text(f"{rows}c,9,1\nc,9,0\n")
    assert "passed" in refused(words)


def test_a_group_of_two_values_is_refused_unless_the_column_is_part_of_the_key() -> None:
    Path("in.csv").write_text("env,id,reward\na,p1,1\na,p1,0\na,p7,0\na,p7,1\nb,p7,1\nb,p7,0\n")
    words = "compute in.csv --plan-by env --plan default:method=grpo"
    assert refused(f"{words} --group id") == (
        "error: a group key (p7) has rows in several values of 'env'; --group env,id makes a group of each; --plan-by takes a column that is the same in all rows of a group"
    )
    ran(f"{words} --group env,id")


def test_an_error_in_a_part_names_the_part_and_the_row_of_the_file() -> None:
    first = """\
{"env": "a", "id": "a0", "reward": 1}
{"env": "b", "id": "b0", "reward": 1}
{"env": "a", "id": "a1", "reward": 1}
{"env": "a", "id": "a0", "reward": 0}
"""
    source = Path("in.jsonl")
    source.write_text(first)
    words = "compute in.jsonl --plan-by env --plan default: --group id"
    said = refused(f"{words} --expect-size 2")
    assert said.startswith("error: env = a: in.jsonl:3: a1 has 1 row, not 2")
    source.write_text(first + '{"env": "b", "id": "b0", "reward": null}\n')
    assert "in.jsonl:5: reward is null" in refused(words)


def test_a_part_whose_groups_have_several_prompts_stops_as_it_would_alone() -> None:
    """Rows of the other part are not compared with its own."""
    fine = """\
{"env": "a", "task_id": "a0", "prompt": "0 + 1?", "reward": 0}
{"env": "a", "task_id": "a0", "prompt": "0 + 1?", "reward": 1}
{"env": "a", "task_id": "a1", "prompt": "1 + 1?", "reward": 0}
{"env": "a", "task_id": "a1", "prompt": "1 + 1?", "reward": 1}
"""
    row = '{{"env": "b", "task_id": "b{}", "prompt": "Who wrote book {}?", "reward": {}}}\n'
    mixed = [row.format(k % 2, k, k % 3) for k in range(4)]
    source = Path("all.jsonl")
    words = "compute all.jsonl --plan-by env --plan default:"
    source.write_text("".join(a + b for a, b in zip(fine.splitlines(keepends=True), mixed, strict=True)))
    assert refused(words).startswith("error: env = b: groups of task_id hold several prompts")
    source.write_text(fine + fine.replace('"env": "a"', '"env": "c"'))
    assert "several values of 'env'" in refused(words)
    source.write_text(fine.replace('"env": "a", "task_id": "a1"', '"env": "b", "task_id": "a1"'))
    assert adv(words).status == 0


def test_a_value_with_a_single_row_is_no_sign_of_a_wrong_key() -> None:
    """The key is wrong where no part has two rows of one group."""
    source = Path("in.csv")
    source.write_text("env,id,reward\na,a0,0\na,a0,1\na,a1,0\na,a1,1\nb,b0,1\n")
    words = "compute in.csv --plan-by env --plan default: --group id"
    ran(words)
    assert rows_of("in.advantages.csv")[-1]["advantage"] == 0
    source.write_text("env,id,reward\na,0,0\na,1,1\na,2,0\na,3,1\n")
    assert refused(f"{words} --force").startswith("error: every group has a single row: id may be an id")


REFUSED = """\
--plan-by env | --plan-by needs a plan for each value
--plan a:method=rloo | [plan.a] is a plan for one value; --plan-by COLUMN names its column
--plan-by env --plan rloo | --plan 'rloo' names no plan; write --plan VALUE:OPTION=X
--plan-by env --plan a:metod=rloo | no option of a plan named 'metod'; did you mean 'method'?
--plan-by env --plan a:scale=none,scale=none | scale is given twice for one plan; give it once
--plan-by env --plan a:scale=none,method | 'method' has no value; write method=VALUE
--plan-by env --plan a:method=rloo,whiten-epsilon=1 | [plan.a]: --whiten-epsilon has no effect
--plan-by env --plan a: --plan a: | two plans for 'a'
--plan-by env --plan a:method=rlo | [plan.a]: no method named 'rlo'; did you mean 'rloo'?
--plan-by no --plan default: | in.jsonl: no column 'no'; columns: env, id, reward
--plan-by env --plan a: --stream | --stream computes one plan
--plan-by env --plan default:zero-variance=drop --duplicate | --duplicate refills the rows of one plan
--plan-by env --plan a: --plan b:with=a | no option of a plan named 'with'
--plan-by env --plan a:group=id | a plan sets group; it is the same for all plans: give --group beside them
--config none.toml --plan-by env | --plan 'rloo' names no plan
--config with.toml --plan-by env | no option of [plan.b] in with.toml named 'with'
"""


@pytest.mark.parametrize("case", REFUSED.splitlines())
def test_plans_that_do_not_apply_are_refused_in_one_line(case: str) -> None:
    """Among them one that would share the batch of another: a plan cannot name another value."""
    words, says = case.split(" | ")
    Path("in.jsonl").write_text(ONE_GROUP)
    Path("none.toml").write_text('plan = "rloo"\n')
    Path("with.toml").write_text('[plan.a]\n[plan.b]\nwith = "a"\n')
    source = "-" if "--stream" in words else "in.jsonl"
    assert says in refused(f"compute {source} --group id {words}")


# What the file sets for one plan, the line, and what is said.
SET_FOR_ONE = """\
group = ["id"] | compute in.jsonl | [plan.a] in plans.toml sets group; it is the same for all plans: give --group beside them
scale = "none" | compute in.jsonl --scale batch | --scale is given, and [plan.a] in plans.toml sets scale
preset = "trl-grpo" | compute in.jsonl --method rloo | --method is given, and [plan.a] in plans.toml sets preset
"""


@pytest.mark.parametrize("case", SET_FOR_ONE.splitlines())
def test_a_plan_sets_the_arithmetic_and_not_the_columns(case: str, plans: Path) -> None:
    setting, line, says = case.split(" | ")
    Path("in.jsonl").write_text(ONE_GROUP)
    plans.write_text(f'plan-by = "env"\n[plan.a]\n{setting}\n')
    assert says in refused(f"{line} --config plans.toml")


def test_a_command_that_computes_one_plan_refuses_several(plans: Path) -> None:
    Path("in.jsonl").write_text(ONE_GROUP)
    plans.write_text('plan-by = "env"\n[plan.a]\n')
    says = refused("export in.jsonl --to weights -o out.jsonl --config plans.toml")
    assert "plans.toml has a plan for each value of a column, and this command computes one plan on all rows" in says
    compare = "compare in.jsonl --method grpo --method rloo"
    for command in (compare, "inspect in.jsonl", "report in.jsonl", "audit in.jsonl", "browse in.jsonl"):
        assert refused(f"{command} --config plans.toml") == says
    variable = adv(compare, GRPO_ADV_CONFIG="plans.toml")
    assert "plans.toml has a plan for each value of a column, and" in variable.err
    ran(f"{compare} --no-config --group id", GRPO_ADV_CONFIG="plans.toml")
    plans.write_text("[plan.a]\nmethod = 'rloo'\n")
    assert refused("audit in.jsonl --config plans.toml") == says


@pytest.mark.parametrize("command", ["export", "compare", "browse", "select", "inspect", "report", "audit"])
def test_an_option_of_several_plans_is_answered_with_one_value_at_a_time(command: str) -> None:
    ways = "one value at a time: --rows \"COLUMN == 'VALUE'\""
    assert refused(f"{command} in.jsonl --plan-by env") == f"error: no option named '--plan-by'; {ways}"
    assert refused(f"{command} in.jsonl --plan a:method=rloo") == f"error: no option named '--plan'; {ways}"
    with pytest.raises(UsageError, match="no option named 'plan_by'; one value at a time: rows \"COLUMN == 'VALUE'\""):
        grpo_cli.audit(pl.DataFrame({"reward": [0, 1]}), plan_by="env")  # type: ignore[call-arg]


# --- options -------------------------------------------------------------------------------------------------


def test_the_plans_may_be_in_the_file_of_the_variable() -> None:
    write("all.jsonl", rollouts())
    words = f"compute all.jsonl {SHARED} --batch-by input --length-column n -o"
    ran(f"{words} named.jsonl --config plans.toml")
    found = ran(f"{words} found.jsonl", GRPO_ADV_CONFIG="plans.toml")
    assert "note: plans.toml sets --plan-by env_name --plan" in found.err
    assert Path("named.jsonl").read_bytes() == Path("found.jsonl").read_bytes()


def test_options_beside_the_plans_apply_to_plans_that_do_not_set_them() -> None:
    shared = {"reward": "reward", "group_within": "input", "batch_by": "input", "ddof": 0, "scale": "batch"}
    of_frame: Any = partial(grpo_cli.compute, pl.DataFrame(rollouts()), **shared)
    plans = {"math": {"epsilon": 0.5}, "default": {"method": "rloo"}}
    found = of_frame(plan_by="env_name", plans=plans, preset="trl-grpo").plans
    assert found["math"] == of_frame(preset="trl-grpo", epsilon=0.5).plan
    assert found["code"] == of_frame(method="rloo").plan
    set_in_each = of_frame(plan_by="env_name", plans={"default": {}}, set={"divisor.epsilon": 0.5})
    assert {plan.divisor.epsilon for plan in set_in_each.plans.values()} == {0.5}


def test_what_is_given_beside_the_plans_is_for_those_that_read_it() -> None:
    write("in.jsonl", rollouts())
    shared = "compute in.jsonl --reward=reward --group-within=input --epsilon=0.5 --plan-by=env_name --plan"
    parts = {part["value"]: part for part in facts_of(f"{shared} math:method=grpo --plan default:method=rloo")["parts"]}
    assert parts["math"]["plan"]["divisor"]["epsilon"] == 0.5
    says = "--epsilon has no effect with scale none"
    assert f"[plan.default]: {says}" in refused(f"{shared} math:method=grpo --plan default:method=rloo,epsilon=1")
    assert says in refused(f"{shared} default:method=rloo")


def test_python_returns_the_plan_and_the_groups_of_each_value() -> None:
    frame = pl.DataFrame(rollouts())
    options: Any = {"plan_by": "env_name", "plans": {"default": {}}, "reward": "reward"}
    options["group_within"] = "input"
    result = grpo_cli.compute(frame, **options)
    assert {*result.groups["env_name"]} == {*result.plans} == {"math", "code", "chat"}
    with pytest.raises(UsageError, match=r"a plan of its own; they are in \.plans"):
        _ = result.plan


# The values of a column, the names of two plans, and the plan of each row: 1, 2, or d for all others.
SPELLED: list[tuple[list[Any], Any, str, str]] = [
    ([2.0, 2.5, 3.0, None], pl.Float64(), "2.0 2.50", "12dd"),
    ([2.0, 2.5, 3.0, None], pl.Float32(), "2 25e-1", "12dd"),
    ([0.1, 0.5, 1.0, None], pl.Float32(), "0.1 .5", "12dd"),
    ([1, 2, 3, None], pl.Int64(), "1.0 02", "12dd"),
    ([2**53, 2**53 + 1, 3, None], pl.Int64(), "9007199254740993 3.0", "d12d"),
    ([2**64 - 1, 2**64 - 2, 3, None], pl.UInt64(), "18446744073709551614 3", "d12d"),
    ([True, False, None], pl.Boolean(), "True 0", "12d"),
    (["2", "2.0", "x", None], pl.String(), "2.0 x", "d12d"),
    (["2", "2.0", "x", None], pl.Categorical(), "2.0 x", "d12d"),
    ([Decimal("1.50"), Decimal("2.00"), None], pl.Decimal(5, 2), "1.5 2", "12d"),
    ([date(2024, 1, 1), date(2024, 1, 2), None], pl.Date(), "2024-01-02 2024-03-01", "d1d"),
    ([1, 2, None], pl.Int64(), "null 2.0", "d21"),
]


def of_plans(frame: Any, names: str) -> str:
    """Which of three plans each row has; two of them are for these names."""
    first, second = names.split()
    scales = {"1": 1.0, "2": 2.0, "d": 4.0}
    plans = {
        name: {"method": "reinforce", "reward_scale": scale}
        for name, scale in zip((first, second, "default"), scales.values(), strict=True)
    }
    found = grpo_cli.compute(frame, plan_by="env", plans=plans, group="id").advantages
    words = {scale: word for word, scale in scales.items()}
    return "".join(words[value] for value in found)


@pytest.mark.parametrize(("values", "dtype", "names", "plans"), SPELLED)
def test_a_plan_is_for_a_value_however_it_is_written(values: list[Any], dtype: Any, names: str, plans: str) -> None:
    frame = pl.DataFrame({"id": "x", "reward": 1.0, "env": pl.Series(values, dtype=dtype)})
    frame = frame.with_columns(id=pl.int_range(pl.len()))
    assert of_plans(frame, names) == plans


def test_a_plan_of_a_file_of_lines_or_cells_is_for_a_value_however_it_is_written() -> None:
    Path("x.jsonl").write_text(
        "".join(f'{{"env":{env},"id":{at},"reward":1}}\n' for at, env in enumerate(["2", "2.0", '"2"', "true", "3"]))
    )
    assert of_plans("x.jsonl", "2.0 3.00") == "111d2"
    Path("x.csv").write_text(
        "".join(["env,id,reward\n", *(f"{env},{at},1\n" for at, env in enumerate(["2", "2.0", "002", "", "3e0"]))])
    )
    assert of_plans("x.csv", "2.0 3") == "11dd2"
    assert of_plans("x.csv", "2.0 2") == "21ddd"


def test_a_plan_for_a_value_that_the_column_cannot_have_is_refused() -> None:
    frame = pl.DataFrame({"id": [0, 0, 1, 1], "reward": [0, 1, 0, 1], "env": [1.5, 1.5, 2.0, 2.0]})
    with pytest.raises(
        DataError, match=r"env holds numbers \(1\.5, 2\), and the plan 'math' is for none; name each plan"
    ):
        grpo_cli.compute(frame, plan_by="env", plans={"math": {}, "default": {}}, group="id")
    with pytest.raises(DataError, match=r"the plans 2 and 2\.0 are for the same value; leave out all but one"):
        grpo_cli.compute(frame, plan_by="env", plans={"2": {}, "2.0": {}, "default": {}}, group="id")
    Path("plans.toml").write_text('plan-by = "env"\ngroup = "id"\n[plan.maths]\nmethod = "rloo"\n[plan.default]\n')
    frame.write_parquet("x.parquet")
    assert "and the plan 'maths' is for none" in refused("compute x.parquet --config plans.toml")
    Path("plans.toml").write_text('plan-by = "env"\ngroup = "id"\n[plan."7.0"]\nmethod = "rloo"\n[plan.default]\n')
    assert facts_of("compute x.parquet --config plans.toml")["warnings"][:1] == [
        "no row has env = 7.0, which has a plan"
    ]


def test_many_values_are_computed_as_each_alone() -> None:
    drawn = random.Random(3)  # noqa: S311 - test data
    rows = [{"env": f"e{drawn.randrange(60)}", "id": drawn.randrange(3), "reward": drawn.random()} for _ in range(700)]
    plans: dict[str, Any] = {f"e{at}": {"method": "rloo", "whiten": "sample"} for at in range(0, 60, 3)}
    plans["default"] = {"scale": "batch", "epsilon": 0.25}
    of_frame: Any = partial(grpo_cli.compute, group="env,id", group_within="input", singleton="raw")
    frame = pl.DataFrame(rows)
    together = of_frame(frame, plan_by="env", plans=plans)
    for env in frame["env"].unique():
        mask = frame["env"] == env
        alone = of_frame(frame.filter(mask), **plans.get(env, plans["default"]))
        assert together.advantages.filter(mask).equals(alone.advantages, null_equal=True)
        assert together.status.filter(mask).equals(alone.status)
        own = together.groups.filter(pl.col("env") == env)
        assert own.equals(alone.groups.select(own.columns), null_equal=True)


FEATURES: dict[str, Any] = {
    "": {},
    "--masked-column bad=true": {"bad": lambda at: at % 7 == 3},
    "--left-out-column why=oom": {"why": lambda at: "oom" if at % 11 == 3 else "" if at % 5 else "slow"},
    "--missing zero": {"reward": lambda at: None if at % 9 == 4 else at % 3 / 2},
    "--batch-by half --scale batch": {"half": lambda at: at // 60},
    "--group-size 2 --partial keep": {},
    "--facts": {"sample_id": lambda at: at % 60 // 2},  # repeats in some values
    "--only": {"model": lambda at: "ab"[at % 2 if at < 90 else 0]},  # several sources in some groups
    "--rows 'reward > 0'": {},
    "--rollout traj --rollout-reward last": {"traj": lambda at: at // 2},
    # Prompts are merged in some values.
    "--dtype f32": {"prompt": lambda at: f"How much is {at // 6 if at < 130 else at} and one?"},
    "--reward reward --reward fmt": {"fmt": lambda at: None if at % 13 == 5 else at % 2},
}


@pytest.mark.parametrize("words", FEATURES)
def test_values_of_one_plan_are_told_of_as_each_alone(words: str) -> None:
    """They are computed together, and cut: each has the facts and warnings that it has in a file of its own, by another path."""
    drawn = random.Random(5)  # noqa: S311 - test data
    rows = []
    for at in range(180):  # groups of 6 and 12, as if some prompts were drawn twice
        row = {"env": f"e{at // 30}", "id": at // 6 - (at // 6 % 5 == 1), "reward": drawn.choice([0.0, 0.5, 1.0])}
        rows.append(row | {name: value(at) for name, value in FEATURES[words].items()})
    if words == "--facts":
        drawn.shuffle(rows)
    write("all.jsonl", rows)
    options = f"--method rloo -g id {words} --json"
    if "--batch-by" in words:
        options = options.replace("rloo", "grpo")
    together = facts_of(f"compute all.jsonl --plan-by env --plan default: {options}")
    of_file = {"version", "inputs", "outputs", "advantage_column", "more_columns", "seconds", "value"}
    computed = rows_of("all.advantages.jsonl")
    warned = 0
    for part in together["parts"]:
        write("own.jsonl", [row for row in rows if row["env"] == part["value"]])
        alone = facts_of(f"compute own.jsonl {options} --force")
        warned += len(alone["warnings"])
        assert {**part, "value": ""} == {"value": ""} | {key: alone[key] for key in alone if key not in of_file}
        ids = {row["id"] for row in rows if row["env"] == part["value"]}
        assert rows_of("own.advantages.jsonl") == [row for row in computed if row["id"] in ids]
    assert [part["value"] for part in together["parts"]] == list(dict.fromkeys(row["env"] for row in rows))
    assert warned or words not in {"--facts", "--only", "--dtype f32"}


def test_what_is_wrong_with_one_of_many_values_is_told_of_it() -> None:
    rows = [{"env": f"e{at // 6}", "id": at // 3, "reward": at % 2, "step": 0} for at in range(60)]
    wrong: dict[str, tuple[str, Any, str]] = {
        "id": ("", None, "env = e7: a.jsonl:44: id is null or missing"),
        "reward": ("", None, "error: a.jsonl:44: reward is null or missing"),
        "step": ("", 1, "env = e7: prompts recur in several steps: a group key (14)"),
        "n": ("--method length-penalty --length-column n", -1, "env = e7: a.jsonl:44: n is negative"),
        "env": ("", "e8", "a group key (14) has rows in several values of 'env'"),
    }
    for name, (words, value, said) in wrong.items():
        some = [{"n": 1, **row} | ({name: value} if at == 43 else {}) for at, row in enumerate(rows)]
        write("a.jsonl", some)
        done = adv(f"compute a.jsonl --plan-by env --plan default: -g id {words} --missing error --force")
        assert (done.status, said in done.err) == (1, True), (name, done.err)


def lines_of(values: int) -> str:
    drawn = random.Random(1)  # noqa: S311 - test data
    text = "env,id,prompt,bad,reward\n"
    for at in range(12 * values):
        bad = str(drawn.random() < 0.2).lower()
        text += f"e{at // 12},{at // 4},What is one and {at // 4}?,{bad},{drawn.choice([0, 1])}\n"
    return text


def counted(values: int, words: str) -> tuple[int, int]:
    """How many functions a run calls, and how often it reads texts of a file."""
    Path("a.csv").write_text(lines_of(values))
    line = f"compute a.csv --plan-by env --plan default:method=rloo -g id --force {words}"
    ran(line)  # what is loaded once
    calls = readings = 0
    read = FileTable.records

    def records(*args: Any) -> Any:
        nonlocal readings
        readings += 1
        return read(*args)

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileTable, "records", records)
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            ran(line)
        finally:
            sys.setprofile(before)
    return calls, readings


@pytest.mark.parametrize(
    ("words", "most"),  # a part by itself took 2,190, 7,650, 8,390, 4,980 and 10,830
    [
        ("-q", 1_200),
        ("", 3_200),
        ("--json", 6_000),
        ("--masked-column bad=true -q", 3_000),
        ("--masked-column bad=true", 5_200),
    ],
)
def test_a_value_takes_few_steps_beside_those_of_its_rows(words: str, most: int) -> None:
    """The work grows with the rows: nothing is read again for each value, and what is found for all rows is cut."""
    few, many = counted(20, words), counted(120, words)
    assert many[1] == few[1] <= 2
    assert (many[0] - few[0]) / 100 < most


def test_names_of_values_are_texts_whatever_their_type() -> None:
    frame = pl.read_csv(b"env,id,reward\n1,1,0\n1,1,1\n2,2,0\n2,2,1\n")
    of_frame: Any = partial(grpo_cli.compute, frame, plan_by="env", group="id")
    result = of_frame(plans={"1": {"method": "rloo"}, "2": {"scale": "none"}})
    assert result.advantages.to_list() == [-1.0, 1.0, -0.5, 0.5]
    with pytest.raises(DataError, match=r"a value has no plan: 2 \(2 rows\)"):
        of_frame(plans={"1": {}})
    with pytest.raises(GrpoError, match="has no tables"):
        of_frame(plans={"1": "rloo"})


def test_each_part_may_have_a_reward_of_its_own(plans: Path) -> None:
    Path("in.csv").write_text("env,id,reward,score\ncode,c,,0\ncode,c,,1\nmath,m,1,\nmath,m,0,\n")
    plans.write_text('plan-by = "env"\n[plan.math]\n[plan.code]\nreward = ["score"]\n')
    done = ran("compute in.csv --group id --config plans.toml --scale none -o - -q")
    assert done.out == "env,id,reward,score,advantage\ncode,c,,0,-0.5\ncode,c,,1,0.5\nmath,m,1,,0.5\nmath,m,0,,-0.5\n"
