"""A flag wins over everything that a schema says, in every schema."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError
from grpo_cli.options.given import Given
from grpo_cli.read.layout import layout
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.request import Request, choose
from grpo_cli.read.texts import TextColumns, text_columns
from grpo_cli.runs.asked import binding_of
from grpo_cli.schemas.table import schemas
from tests.support.command import adv
from tests.support.drawn import paired, some
from tests.support.jobs import look, near, refused, rows_of
from tests.support.schema_files import WRITERS, Written

# What is left of each schema's key where --group-within says in what it is unique: no step, no run, no file.
OF_SCHEMAS = """
trl                   prompt
trl-trackio           prompt
ms-swift              prompt
ms-swift-megatron     prompt
ms-swift-ray          prompt
verl                  input
verl-v1               uid_of_prompt
trinity               eid.task
nemo-rl
nemo-gym              _ng_task_index
nemo-gym-no-index     responses_create_params
areal                 task_id
skyrl                 data_source input_prompt
areal-normalized      task_id
prime-rl-stream       group.id
prime-rl-branches     group_id
prime-rl              group.id
verifiers-traces      task.key
prime-rl-rollouts     example_id
prime-platform        env_name problem_id
verifiers             example_id
verifiers-id          id
verifiers-prompt      prompt
tinker                split group_idx
slime                 group_index
roll                  id
rllm                  task_hash name
open-instruct         prompt_idx
lm-eval               filter doc_id
inspect               id
inspect-table         id
harbor                eval task
eval-protocol         input_metadata.row_id
openr1                uuid
graded-completions    @file @parent
wide                  @file @parent
atropos               @file @parent
atropos-trajectories  prompt_used
human-eval            task_id
tau-bench             task_id
tau2                  task_id
evalplus              task_id
mt-bench              question_id turn
livecodebench         question_id
qwen-math             idx
rlhflow               @file @parent
rlhflow-answers       @file @parent
simpo                 @file @parent
tree-of-thought       idx
reasoning-gym         @file @parent
math-rollouts         model_id unique_id branch_path run_id
"""
LEFT = {name: tuple(left) for name, *left in map(str.split, OF_SCHEMAS.strip().splitlines())}
EACH_SCHEMA = pytest.mark.parametrize("name", sorted(WRITERS))
LENGTHS = Plan.of({"estimator.name": "opo"})


def asked(written: Written, plan: Plan | None = None, **given: Any) -> Request:
    """What would be read of a file with these options."""
    binding = binding_of(Given(written.flags, **given))
    tables = open_tables(find_inputs([str(written.path)])[0], binding)
    return choose(layout(tables, binding), plan or Plan())


def test_every_schema_is_in_the_table() -> None:
    assert {*LEFT} == {*WRITERS}


@pytest.mark.parametrize(("name", "within"), paired(sorted(WRITERS), ["input", "file", "worker"]))
def test_group_within_replaces_the_steps_runs_and_files_of_the_key(name: str, within: str) -> None:
    request = asked(WRITERS[name](Path()), group_within=within)
    left = tuple(part for part in LEFT[name] if part != "@file" or len(request.layout.tables) > 1)
    assert request.key == left
    assert request.rule.within == within
    assert within == "input" or request.layout.key_note.endswith(f" within {within}")


@EACH_SCHEMA
def test_a_flag_wins_over_what_the_schema_fills_in(name: str) -> None:
    written = WRITERS[name](Path())
    batch = Plan.of({"post.whiten.level": "sample"})
    assert asked(written, group=["mine", "other"]).key == ("mine", "other")
    assert asked(written, group=["mine"], group_within="step").rule.within == "step"
    assert asked(written, reward=["mine", "other=2"]).rewards == ("mine", "other")
    assert asked(written, batch, batch_by="mine").rule.batch_by == "mine"
    assert asked(written, batch, batch_by="input").rule.batch_by == "input"
    assert asked(written, LENGTHS, length_column="mine").roles["length"] == "mine"
    assert asked(written, rollout="mine").roles["rollout"] == "mine"
    assert asked(written, rollout="none").layout.rollouts == ()
    assert asked(written, group_size=2).rule.size == 2
    assert asked(written, schema="none", group=["mine"], reward=["other"]).schema is None


@pytest.mark.parametrize("name", some(WRITERS, 3))
def test_columns_of_texts_that_are_named_win(name: str) -> None:
    written = WRITERS[name](Path())
    tables = open_tables(find_inputs([str(written.path)])[0], binding_of(Given(written.flags)))
    assert text_columns(tables, TextColumns(messages="mine")) == TextColumns(messages="mine")
    both = TextColumns(prompt="mine", response="other")
    assert text_columns(tables, both) == both
    for one in (TextColumns(prompt="mine"), TextColumns(response="other")):
        with suppress(DataError):  # the other one has to be named as well
            found = text_columns(tables, one)
            assert "mine" in {found.prompt, one.response and "mine"}
            assert "other" in {found.response, one.prompt and "other"}
            assert not found.messages


@pytest.mark.parametrize(
    ("name", "flags", "letters"),
    [
        ("inspect", {}, ["C=5", "P=2", "I=-1"]),
        ("inspect-table", {}, ["C=5", "P=2", "I=-1,N=-1"]),
        ("evalplus", {"reward": ["plus_status"]}, ["pass=5", "fail=-1", "timeout=-1"]),
    ],
)
def test_the_numbers_of_map_win_over_those_of_a_schema(name: str, flags: dict[str, Any], letters: list[str]) -> None:
    written = WRITERS[name](Path())
    of_schema = schemas()[name].letters
    numbers: dict[float | None, float | None] = {None: None}
    for letter in ",".join(letters).split(","):
        text, number = letter.split("=")
        numbers[of_schema[text]] = float(number)
    options = {**written.flags, **flags, "missing": "exclude"}
    usual = look(written.path, **options).scored.frame[".reward"].to_list()
    named = look(written.path, **options, map=letters).scored.frame[".reward"].to_list()
    assert named == near([numbers[reward] for reward in usual])
    if name == "inspect":
        assert named == [5.0, -1.0, 2.0, None]


def test_a_letter_that_map_does_not_name_is_refused() -> None:
    path = WRITERS["inspect"](Path()).path
    assert "is 'I', which --map does not name" in refused(path, map=["C=5", "P=2"])


def test_the_id_of_a_rollout_that_is_named_wins_over_the_one_before_it_in_the_schema() -> None:
    """slime's rows have a rollout_id and an index: here the flag names the second, by which each row is a rollout."""
    row = (
        '{"group_index": 0, "index": %d, "rollout_id": %d, "prompt": "p", "response": "r", "reward": %d, '
        '"response_length": 1, "label": "", "status": "completed", "metadata": {}, "tokens": [1]}\n'
    )
    lines = [row % (at, at // 2, at // 2) for at in range(4)]
    Path("rows.jsonl").write_text("".join(lines))
    assert look("rows.jsonl", schema="slime").facts["rollouts"] == 2
    assert look("rows.jsonl", schema="slime", rollout="rollout_id").facts["rollouts"] == 2
    assert look("rows.jsonl", schema="slime", rollout="index").facts["rollouts"] == 4


# --- one prompt whose rows are spread over steps -----------------------------------------------------------------

HALF = 0.5 / ((1 / 3) ** 0.5 + 1e-6)  # (1 - 0.5) / (std + epsilon), ddof 1
SPREAD = {
    "verl": """\
{"input": "p", "output": "o0", "gts": "1", "score": 1, "step": 0}
{"input": "p", "output": "o1", "gts": "1", "score": 0, "step": 1}
{"input": "p", "output": "o2", "gts": "1", "score": 1, "step": 2}
{"input": "p", "output": "o3", "gts": "1", "score": 0, "step": 3}
""",
    "trl": """\
{"step": 0, "prompt": "p", "completion": "o0", "acc": 1.0, "advantage": 0.0}
{"step": 1, "prompt": "p", "completion": "o1", "acc": 0.0, "advantage": 0.0}
{"step": 2, "prompt": "p", "completion": "o2", "acc": 1.0, "advantage": 0.0}
{"step": 3, "prompt": "p", "completion": "o3", "acc": 0.0, "advantage": 0.0}
""",
    "prime-platform": """\
{"run_id": "r", "step": 0, "problem_id": 1, "sample_id": 0, "env_name": "math", "prompt": "p", "completion": "o0", "reward": 1, "advantage": 0}
{"run_id": "r", "step": 1, "problem_id": 1, "sample_id": 1, "env_name": "math", "prompt": "p", "completion": "o1", "reward": 0, "advantage": 0}
{"run_id": "r", "step": 2, "problem_id": 1, "sample_id": 2, "env_name": "math", "prompt": "p", "completion": "o2", "reward": 1, "advantage": 0}
{"run_id": "r", "step": 3, "problem_id": 1, "sample_id": 3, "env_name": "math", "prompt": "p", "completion": "o3", "reward": 0, "advantage": 0}
""",
}


@pytest.mark.parametrize("name", SPREAD)
def test_rows_of_several_steps_are_one_group_with_group_within_input(name: str) -> None:
    path = "rows.jsonl"
    Path(path).write_text(SPREAD[name])
    options = f"--schema {name} --group-within input"
    wanted = near([HALF, -HALF, HALF, -HALF])
    assert [row["mine"] for row in adv(f"compute {path} {options} --column mine -o - -q").rows] == wanted
    frame = pl.read_ndjson(path)
    assert grpo_cli.advantages(frame, schema=name, group_within="input").to_list() == wanted
    pairs = adv(f"export {path} {options} --to pairs --pairs all -o -").rows
    assert len(pairs) == 4, "each of two solved with each of two failed"
    told = adv(f"compute {path} {options} --explain").out
    assert "within step" not in told.partition("method")[0]


def test_blocks_go_on_in_the_next_file_if_the_whole_input_is_one() -> None:
    Path("a.jsonl").write_text('{"reward": 1}\n{"reward": 0}\n{"reward": 1}\n')
    Path("b.jsonl").write_text('{"reward": 0}\n')
    words = "compute a.jsonl b.jsonl --group-size 4 -o out/"
    assert "the last block has 3 rows, not 4" in adv(words).err
    assert adv(f"{words} --group-within input").status == 0
    rows = rows_of("out/a.jsonl") + rows_of("out/b.jsonl")
    assert [row["advantage"] for row in rows] == near([HALF, -HALF, HALF, -HALF])


def test_blocks_within_a_column_end_with_their_file_as_well() -> None:
    text = '{"step": 1, "reward": 0}\n{"step": 2, "reward": 1}\n{"step": 1, "reward": 2}\n{"step": 2, "reward": 3}\n'
    Path("a.jsonl").write_text(text)
    Path("b.jsonl").write_text(text)
    found = look("a.jsonl", "b.jsonl", group_size=2, group_within="step")
    assert found.narrow.table["group"].to_list() == [0, 1, 0, 1, 2, 3, 2, 3]
