"""`--plan-by`: each part has the results and messages that it would have in a file of its own."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from grpo_cli.errors import DataError, GrpoError, UsageError
from tests.support.command import adv, facts_of, ran
from tests.support.jobs import rows_of, write
from tests.support.schema_files import WRITERS

Rows = list[dict[str, Any]]

# By value, the options of its plan.
PLANS: dict[str, Any] = {
    "math": {"preset": "trl-grpo", "scale": "batch", "epsilon": 0.5},
    "code": {"method": "rloo", "whiten": "token", "clip": "-1:1"},
    "chat": {"reward": ["reward=1", "format=0.25"], "combine": "normalize", "zero_variance": "drop"},
    "none of these": {"method": "ema"},
}
SHARED = "--length-column n --batch-by input --group-within input"


def rollouts(seed: int = 1, prompts: int = 24, step: int = 0) -> Rows:
    """Groups of several environments in no order, some of them with equal rewards."""
    drawn = random.Random(seed)  # noqa: S311 - test data
    rows = []
    for prompt in range(prompts):
        env = ("math", "code", "chat")[prompt % 3]
        for _ in range(drawn.randint(2, 5)):
            reward = round(drawn.random(), 3) if prompt % 4 else 1.0
            format_ = float(drawn.random() > 0.5 and prompt % 4 > 0)
            extra = {"reward": reward, "format": format_, "n": drawn.randint(5, 50)}
            rows.append({"env_name": env, "prompt_id": f"{step}-{prompt}", "step": step, **extra})
    drawn.shuffle(rows)
    return rows


def toml(plans: Mapping[str, Any] = PLANS, by: str = "env_name", name: str = "plans.toml") -> str:
    lines = [f"plan-by = {json.dumps(by)}"]
    for value, own in plans.items():
        lines.append(f"[plan.{json.dumps(value)}]")
        lines += [f"{name.replace('_', '-')} = {json.dumps(option)}" for name, option in own.items()]
    Path(name).write_text("\n".join(lines))
    return name


def of_part(value: str) -> str:
    """The flags that compute a part alone."""
    words = [SHARED]
    for name, option in PLANS[value].items():
        several = option if isinstance(option, list) else [option]
        words += [f"--{name.replace('_', '-')}={one}" for one in several]
    return " ".join(words)


def values_of(path: Path) -> list[tuple[Any, ...]]:
    """The advantages with what identifies the rows."""
    return [(row["prompt_id"], row["reward"], row["n"], row["advantage"]) for row in rows_of(path)]


# --- the numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_each_part_has_the_bits_of_its_own_run(suffix: str) -> None:
    rows = rollouts()
    whole = write(f"all.{suffix}", rows)
    config = toml()
    ran(f"compute {whole.name} --config {config} {SHARED}")
    together = values_of(Path(f"all.advantages.{suffix}"))
    expected = []
    for value in ("math", "code", "chat"):
        alone = write(f"alone/{value}.{suffix}", [row for row in rows if row["env_name"] == value])
        ran(f"compute {alone} {of_part(value)}")
        expected.append(values_of(Path(f"alone/{value}.advantages.{suffix}")))
    assert sorted(together) == sorted(row for part in expected for row in part)
    assert len(together) < len(rows)  # groups without a gradient are dropped of one part only
    order = [(row["prompt_id"], row["reward"], row["n"]) for row in rows]
    kept = {row[:3] for row in together}
    assert [row[:3] for row in together] == [row for row in order if row in kept]


def test_a_folder_is_one_input_whichever_values_its_files_have() -> None:
    first = rollouts(1)
    second = [row for row in rollouts(2, step=1) if row["env_name"] != "chat"]
    write("in/a.parquet", first)
    write("in/b.parquet", second)
    write("all.parquet", first + second)
    words = f"--config {toml()} {SHARED}"
    ran(f"compute in -o out/ {words}")
    ran(f"compute all.parquet {words}")
    apart = values_of(Path("out/a.parquet")) + values_of(Path("out/b.parquet"))
    assert apart == values_of(Path("all.advantages.parquet"))


def test_values_share_a_batch_where_a_column_joins_them() -> None:
    """They get what one value would: only together do their rows share a mean or std."""
    rows = rollouts()
    plans = {"math": {"method": "rloo"}, "code": {"method": "reinforce++", "whiten": "sample"}}
    write("all.jsonl", rows)
    parts = {"math": "math", "code": "code", "chat": "code"}
    write("parts.jsonl", [{"env_name": value, "part": part} for value, part in parts.items()])
    ran("add all.jsonl --from parts.jsonl --on env_name -o joined.jsonl")
    words = f"--plan-by part {SHARED} --plan math:method=rloo --plan code:method=reinforce++,whiten=sample"
    facts = facts_of(f"compute joined.jsonl {words}")
    assert {part["value"] for part in facts["parts"]} == {"math", "code"}
    named = pl.DataFrame([{**row, "part": parts[row["env_name"]]} for row in rows])
    expected = grpo_cli.compute(named, plan_by="part", plans=plans, batch_by="input", reward="reward")
    assert [row["advantage"] for row in rows_of("joined.advantages.jsonl")] == expected.advantages.to_list()


@pytest.mark.parametrize(
    ("plans", "said"),
    [
        ("--plan a: --plan b:with=a", "error: no option of a plan named 'with'"),
        ("--config plans.toml", "error: no option of [plan.b] in plans.toml named 'with'"),
    ],
)
def test_a_plan_cannot_name_another_value_to_share_its_batch(plans: str, said: str) -> None:
    write("all.jsonl", [{"env": "ab"[k % 2], "id": f"{k % 2}", "reward": k // 2} for k in range(4)])
    Path("plans.toml").write_text('[plan.a]\n[plan.b]\nwith = "a"\n')
    assert refused(f"compute all.jsonl --plan-by env --group id {plans}").startswith(said)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])), min_size=1))  # fmt: skip
def test_any_rows_are_computed_as_their_parts_alone(drawn: list[tuple[str | None, int, float]]) -> None:
    frame = pl.DataFrame(
        {"env": [env for env, _, _ in drawn], "id": [f"{env}{id_}" for env, id_, _ in drawn], "reward": [r for *_, r in drawn]},
        schema={"env": pl.String, "id": pl.String, "reward": pl.Float64},
    )  # fmt: skip
    plans = {"a": {"scale": "batch"}, "b": {"method": "rloo", "whiten": "sample"}, "default": {"preset": "verl-grpo"}}
    shared: Any = {"group": "id", "singleton": "raw"}
    together = grpo_cli.compute(frame, plan_by="env", plans=plans, **shared)
    for env, options in (("a", plans["a"]), ("b", plans["b"]), (None, plans["default"])):
        mask = frame["env"].eq_missing(pl.Series([env], dtype=pl.String))
        if mask.any():
            alone = grpo_cli.compute(frame.filter(mask), **{**shared, **options})
            assert together.advantages.filter(mask).equals(alone.advantages, null_equal=True)
            assert together.status.filter(mask).equals(alone.status)
            assert together.plans[env or "null"] == alone.plan


def test_facts_and_only_and_tokens_are_written_by_value() -> None:
    rows = [{**row, "tokens": list(range(row["n"]))} for row in rollouts()]
    for words in ("--facts", "--only", "--per-token --tokens tokens"):
        source = write("all.jsonl", rows)
        ran(f"compute {source.name} --config {toml()} {SHARED} {words} --force")
        together = Path("all.advantages.jsonl").read_text().splitlines()
        alone: list[str] = []
        for value in ("math", "code", "chat"):
            write("one.jsonl", [row for row in rows if row["env_name"] == value])
            ran(f"compute one.jsonl {of_part(value)} {words} --force")
            alone += Path("one.advantages.jsonl").read_text().splitlines()
        if words == "--only":  # a reward that only one plan reads is null in the rows of the others
            known = [{name: one for name, one in json.loads(line).items() if one is not None} for line in together]
            together, alone = [json.dumps(one) for one in known], [json.dumps(json.loads(line)) for line in alone]
        assert sorted(together) == sorted(alone)


def test_environments_of_a_known_layout_are_parts(tmp_path: Path) -> None:
    source = WRITERS["prime-rl"](tmp_path).path
    records = rows_of(source)
    for record in records:
        record["task"] = {"type": "even" if record["group"]["id"] == "g0" else "odd"}
    write(source, records)
    ran(f"compute {source} --plan-by task.type --plan even:method=rloo --plan odd:preset=trl-grpo -o together.jsonl")
    alone = []
    for env, plan in (("even", "--method=rloo"), ("odd", "--preset=trl-grpo")):
        write(source, [record for record in records if record["task"]["type"] == env])
        ran(f"compute {source} {plan} -o {env}.jsonl")
        alone += rows_of(f"{env}.jsonl")
    assert sorted(map(json.dumps, rows_of("together.jsonl"))) == sorted(map(json.dumps, alone))


# --- what is said --------------------------------------------------------------------------------------------

OF_ALL = {"inputs", "outputs", "advantage_column", "more_columns", "seconds", "config", "version"}


def test_each_part_says_what_its_own_run_says() -> None:
    rows = rollouts()
    config = toml()
    write("all.jsonl", rows)
    facts = facts_of(f"compute all.jsonl --config {config} {SHARED}")
    assert facts["plan_by"] == "env_name"
    assert facts["rows"] == len(rows)
    assert [part["value"] for part in facts["parts"]] == list(dict.fromkeys(row["env_name"] for row in rows))
    for part in facts["parts"]:
        value = part["value"]
        write("one.jsonl", [row for row in rows if row["env_name"] == value])
        alone = facts_of(f"compute one.jsonl {of_part(value)} --force")
        # One plan of the file reads the length: there is no warning that this one does not.
        unread = "--length-column n is not read by this plan"
        alone["warnings"] = [line for line in alone["warnings"] if line != unread]
        for one in (alone, part):
            for name in OF_ALL:
                one.pop(name, None)
        assert part == {"value": value, **alone}


def test_the_summary_names_each_part_before_what_it_says() -> None:
    write("all.jsonl", rollouts())
    config = toml()
    out = ran(f"compute all.jsonl --config {config} {SHARED}").out
    heads = [line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("part ")]
    assert sorted(heads) == ["env_name = chat", "env_name = code", "env_name = math"]
    last = [line.split() for line in out.splitlines() if line.startswith(("input ", "rows ", "written "))][-3:]
    assert last[:2] == [["input", "all.jsonl"], ["rows", str(len(rollouts())), "in", "24", "groups"]]
    out = ran(f"compute all.jsonl --config {config} {SHARED} --explain").out
    assert out.count("worked out") == out.count("env_name = ") == 3


def test_audit_finds_the_formula_of_each_value_by_its_rows() -> None:
    rows = rollouts(prompts=60)
    plans = {"math": {"preset": "trl-grpo"}, "code": {"method": "rloo"}, "chat": {"scale": "none"}}
    write("all.jsonl", rows)
    config = toml(plans)
    ran(f"compute all.jsonl --config {config} {SHARED}")
    logged = "all.advantages.jsonl"
    found = {}
    for value, plan in (("math", "--preset trl-grpo"), ("code", "--method rloo"), ("chat", "--scale none")):
        words = f"audit {logged} {SHARED} --rows \"env_name == '{value}'\""
        match = facts_of(words)["match"]
        assert match["verdict"] == "match"
        found[value] = match["plan"]["method"], match["plan"]["divisor"]["level"]
        assert facts_of(f"{words} {plan}")["claim"]["mismatched_rows"] == 0
    assert found == {"math": ("grpo", "group"), "code": ("rloo", "none"), "chat": ("grpo", "none")}


def test_a_gate_is_checked_for_each_part_and_names_the_one_that_fails() -> None:
    rows = [{"env": e, "id": f"{e}{k // 2}", "reward": float(k % 2 and e == "a")} for e in "ab" for k in range(8)]
    write("all.jsonl", rows)
    words = "all.jsonl --plan-by env --plan default: --group id"
    failed = adv(f"compute {words} --fail-on 'zero_variance_share > 0.9'")
    assert failed.status == 3
    assert "error: env = b: the --fail-on condition" in failed.err
    assert adv(f"compute {words} --force --fail-on 'rows > 8'").status == 0


def test_parquet_names_the_plan_of_each_value() -> None:
    write("all.parquet", rollouts())
    ran(f"compute all.parquet --config {toml()} {SHARED}")
    entry = json.loads(pq.read_metadata("all.advantages.parquet").metadata[b"grpo_adv"])
    assert entry["plan_by"] == "env_name"
    methods = {value: plan["method"] for value, plan in entry["plans"].items()}
    assert methods == {"math": "grpo", "code": "rloo", "chat": "grpo"}
    assert entry["rewards"] == {"math": ["reward"], "code": ["reward"], "chat": ["reward", "format"]}


# --- what is refused -----------------------------------------------------------------------------------------

ONE_GROUP = [{"env": "a", "id": 1, "reward": 0}, {"env": "a", "id": 1, "reward": 1}]


def refused(line: str) -> str:
    result = adv(line)
    assert result.status in {1, 2}
    assert len(result.err.splitlines()) == 1
    return result.err.strip()


def test_values_without_a_plan_stop_the_run_and_are_listed_with_their_rows() -> None:
    sizes = {"a": 4, "b": 2, None: 6}
    rows = [{"env": env, "id": f"{env}{k // 2}", "reward": k % 2} for env, n in sizes.items() for k in range(n)]
    write("all.jsonl", rows)
    words = "compute all.jsonl --plan-by env --group id --plan"
    assert refused(f"{words} a:method=rloo") == (
        "error: env: 2 values have no plan: b (2 rows), null (6 rows); add --plan b:OPTION=X (in --config a table [plan.b]);"
        " add --plan default:OPTION=X for all other values"
    )
    misspelled = refused(f"{words} aa:method=rloo --plan b:")
    assert "2 values have no plan: a (4 rows), null (6 rows); add --plan a:" in misspelled
    assert adv(f"{words} a:method=rloo --plan default:").status == 0


@pytest.mark.parametrize(
    ("plans", "warned"),
    [
        (["mth:method=rloo"], "no row has env = mth, which has a plan"),
        (["math2:method=rloo", "cde:method=rloo"], "no row has env = cde, math2, which have plans"),
        (["math:method=rloo"], ""),
    ],
)
def test_plans_without_rows_are_named_if_there_is_a_default_plan(plans: list[str], warned: str) -> None:
    rows = [{"prompt_id": f"{env}{k // 2}", "env": env, "reward": k % 2} for env in ("math", "code") for k in range(4)]
    write("in.jsonl", rows)
    words = " ".join(f"--plan {plan}" for plan in ("default:", *plans))
    warnings = facts_of(f"compute in.jsonl --plan-by env {words} --force")["warnings"]
    assert warnings == [warned] * bool(warned)


def test_a_plan_of_a_value_that_no_row_has_needs_nothing() -> None:
    """It may need columns that the file does not have; it stops the run where rows have its value."""
    rows = [{"env": "a", "id": k // 2, "reward": k % 2} for k in range(4)]
    write("all.jsonl", rows)
    plans: dict[str, Any] = {"a": {"method": "rloo"}, "b": {"whiten": "token"}, "c": {"reward": ["passed"]}}
    config = toml(plans, "env")
    words = f"compute all.jsonl --config {config} --group id --force -q"
    assert adv(words).status == 0
    write("all.jsonl", [*rows, {"env": "b", "id": 9, "reward": 1}, {"env": "b", "id": 9, "reward": 0}])
    assert refused(words).startswith("error: [plan.b]: the plan needs response length")
    write("all.jsonl", [*rows, {"env": "c", "id": 9, "reward": 1}, {"env": "c", "id": 9, "reward": 0}])
    assert "passed" in refused(words)


def test_a_group_of_two_values_is_refused_unless_the_column_is_part_of_the_key() -> None:
    rows = [{"env": "ab"[k > 2], "id": "p7", "reward": k % 2} for k in range(5)]
    write("all.jsonl", [{"env": "a", "id": "p1", "reward": 1}, {"env": "a", "id": "p1", "reward": 0}, *rows])
    words = "compute all.jsonl --plan-by env --plan default:method=grpo"
    assert refused(f"{words} --group id") == (
        "error: a group key (p7) has rows in several values of 'env'; --group env,id makes a group of each; --plan-by takes a column that is the same in all rows of a group"
    )
    assert adv(f"{words} --group env,id").status == 0


def test_an_error_in_a_part_names_the_part_and_the_row_of_the_file() -> None:
    rows = [{"env": env, "id": f"{env}{k}", "reward": 1} for k in range(3) for env in "ab"]
    write("all.jsonl", [*rows, {"env": "a", "id": "a0", "reward": 0}])
    words = "compute all.jsonl --plan-by env --plan default: --group id"
    said = refused(f"{words} --expect-size 2")
    assert said.startswith("error: env = a: all.jsonl:3: a1 has 1 row, not 2")
    write("all.jsonl", [*rows, *rows, {"env": "b", "id": "b1", "reward": None}])
    assert "all.jsonl:13: reward is null" in refused(words)


def test_a_part_whose_groups_have_several_prompts_stops_as_it_would_alone() -> None:
    """Rows of the other part are not compared with its own."""
    fine = [{"env": "a", "task_id": f"a{k // 2}", "prompt": f"{k // 2} + 1?", "reward": k % 2} for k in range(8)]
    mixed = [{"env": "b", "task_id": f"b{k % 2}", "prompt": f"Who wrote book {k}?", "reward": k % 3} for k in range(8)]
    words = "compute all.jsonl --plan-by env --plan default:"
    write("all.jsonl", [row for pair in zip(fine, mixed, strict=True) for row in pair])
    assert refused(words).startswith("error: env = b: groups of task_id hold several prompts")
    write("all.jsonl", [{**row, "env": env} for row in fine for env in "ac"])
    assert "several values of 'env'" in refused(words)
    write("all.jsonl", [{**row, "env": "ab"[k // 2 % 2]} for k, row in enumerate(fine)])
    assert adv(words).status == 0


def test_a_value_with_a_single_row_is_no_sign_of_a_wrong_key() -> None:
    """The key is wrong where no part has two rows of one group."""
    rows = [{"env": "a", "id": f"a{k // 2}", "reward": k % 2} for k in range(4)]
    write("all.jsonl", [*rows, {"env": "b", "id": "b0", "reward": 1}])
    words = "compute all.jsonl --plan-by env --plan default: --group id"
    ran(words)
    assert [row["advantage"] for row in rows_of("all.advantages.jsonl")][-1] == 0
    write("all.jsonl", [{**row, "id": f"{at}"} for at, row in enumerate(rows)])
    assert refused(f"{words} --force").startswith("error: every group has a single row: id may be an id")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--plan-by env", "--plan-by needs a plan for each value"),
        ("--plan a:method=rloo", "[plan.a] is a plan for one value; --plan-by COLUMN names its column"),
        ("--plan-by env --plan rloo", "--plan 'rloo' names no plan; write --plan VALUE:OPTION=X"),
        ("--plan-by env --plan a:metod=rloo", "no option of a plan named 'metod'; did you mean 'method'?"),
        ("--plan-by env --plan a:scale=none,scale=none", "scale is given twice for one plan; give it once"),
        ("--plan-by env --plan a:scale=none,method", "'method' has no value; write method=VALUE"),
        ("--plan-by env --plan a:method=rloo,whiten-epsilon=1", "[plan.a]: --whiten-epsilon has no effect"),
        ("--plan-by env --plan a: --plan a:", "two plans for 'a'"),
        ("--plan-by env --plan a:method=rlo", "[plan.a]: no method named 'rlo'; did you mean 'rloo'?"),
        ("--plan-by no --plan default:", "in.jsonl: no column 'no'; columns: env, id, reward"),
        ("--plan-by env --plan a: --stream", "--stream computes one plan"),
        ("--plan-by env --plan default:zero-variance=drop --duplicate", "--duplicate refills the rows of one plan"),
    ],
)  # fmt: skip
def test_plans_that_do_not_apply_are_refused_in_one_line(words: str, says: str) -> None:
    write("in.jsonl", ONE_GROUP)
    source = "-" if "--stream" in words else "in.jsonl"
    assert says in refused(f"compute {source} --group id {words}")


def test_a_plan_sets_the_arithmetic_and_not_the_columns() -> None:
    write("in.jsonl", ONE_GROUP)
    config = toml({"a": {"group": ["id"]}}, "env")
    assert "a plan sets group; it is the same for all plans: give --group beside them" in refused(
        "compute in.jsonl --plan-by env --plan a:group=id"
    )
    assert "[plan.a] in plans.toml sets group; it is the same for all plans: give --group beside them" in refused(
        f"compute in.jsonl --config {config}"
    )
    toml({"a": {"scale": "none"}}, "env")
    line = f"compute in.jsonl --config {config}"
    assert "--scale is given, and [plan.a] in plans.toml sets scale" in refused(f"{line} --scale batch")
    toml({"a": {"preset": "trl-grpo"}}, "env")
    assert "--method is given, and [plan.a] in plans.toml sets preset" in refused(f"{line} --method rloo")
    Path(config).write_text('plan-by = "env"\nplan = "rloo"\n')
    assert "--plan 'rloo' names no plan" in refused(f"compute in.jsonl --config {config}")


def test_a_command_that_computes_one_plan_refuses_several() -> None:
    write("in.jsonl", ONE_GROUP)
    config = toml({"a": {}}, "env")
    export = "export in.jsonl --to weights -o out.jsonl"
    says = refused(f"{export} --config {config}")
    assert "plans.toml has a plan for each value of a column, and this command computes one plan on all rows" in says
    compare = "compare in.jsonl --method grpo --method rloo"
    for command in (compare, "inspect in.jsonl", "report in.jsonl", "audit in.jsonl", "browse in.jsonl"):
        assert says == refused(f"{command} --config {config}")
    variable = adv(compare, GRPO_ADV_CONFIG=config)
    assert "plans.toml has a plan for each value of a column, and" in variable.err
    assert adv(f"{compare} --no-config --group id", GRPO_ADV_CONFIG=config).status == 0
    Path("plans.toml").write_text("[plan.a]\nmethod = 'rloo'\n")
    assert says == refused(f"audit in.jsonl --config {config}")
    for command in ("export", "compare", "browse", "select", "inspect", "report", "audit"):
        for words in ("--plan-by env", "--plan a:method=rloo"):
            said = refused(f"{command} in.jsonl {words}")
            wrong = f"error: no option named '{words.split()[0]}'; one value at a time: --rows"
            assert said == f"{wrong} \"COLUMN == 'VALUE'\""
    with pytest.raises(UsageError, match="no option named 'plan_by'; one value at a time: rows \"COLUMN == 'VALUE'\""):
        grpo_cli.audit(pl.DataFrame(ONE_GROUP), plan_by="env")  # type: ignore[call-arg]


# --- options -------------------------------------------------------------------------------------------------


def test_the_plans_may_be_in_the_file_of_the_variable() -> None:
    rows = rollouts()
    write("all.jsonl", rows)
    words = f"compute all.jsonl {SHARED} -o"
    ran(f"{words} named.jsonl --config {toml()}")
    found = adv(f"{words} found.jsonl", GRPO_ADV_CONFIG="plans.toml")
    assert found.status == 0
    assert "note: plans.toml sets --plan-by env_name --plan" in found.err
    assert Path("named.jsonl").read_bytes() == Path("found.jsonl").read_bytes()


def test_options_beside_the_plans_apply_to_plans_that_do_not_set_them() -> None:
    frame = pl.DataFrame(rollouts())
    plans = {"math": {"epsilon": 0.5}, "default": {"method": "rloo"}}
    shared: Any = {
        "reward": "reward",
        "group_within": "input",
        "batch_by": "input",
        "ddof": 0,
        "scale": "batch",
    }
    found = grpo_cli.compute(frame, plan_by="env_name", plans=plans, preset="trl-grpo", **shared).plans
    assert found["math"] == grpo_cli.compute(frame, preset="trl-grpo", epsilon=0.5, **shared).plan
    assert found["code"] == grpo_cli.compute(frame, method="rloo", **shared).plan
    set_in_each = grpo_cli.compute(
        frame, plan_by="env_name", plans={"default": {}}, set={"divisor.epsilon": 0.5}, **shared
    )
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


def test_names_of_values_are_texts_whatever_their_type() -> None:
    frame = pl.DataFrame({"env": [1, 1, 2, 2], "id": [1, 1, 2, 2], "reward": [0.0, 1.0, 0.0, 1.0]})
    result = grpo_cli.compute(frame, plan_by="env", plans={"1": {"method": "rloo"}, "2": {"scale": "none"}}, group="id")
    assert result.advantages.to_list() == [-1.0, 1.0, -0.5, 0.5]
    with pytest.raises(DataError, match=r"a value has no plan: 2 \(2 rows\)"):
        grpo_cli.compute(frame, plan_by="env", plans={"1": {}}, group="id")
    with pytest.raises(GrpoError, match="has no tables"):
        grpo_cli.compute(frame, plan_by="env", plans={"1": "rloo"}, group="id")


def test_each_part_may_have_a_reward_of_its_own() -> None:
    rows = [{"env": "code", "id": f"c{k // 4}", "reward": None, "score": float(k % 2)} for k in range(16)]
    rows += [{"env": "math", "id": f"m{k // 4}", "reward": float(k % 4 == 0), "score": None} for k in range(8)]
    write("in.jsonl", rows)
    config = toml({"math": {}, "code": {"reward": ["score"]}}, "env")
    done = adv(f"compute in.jsonl --group id --config {config} -o - -q")
    assert (done.status, len(done.out.splitlines())) == (0, 24), done.err
