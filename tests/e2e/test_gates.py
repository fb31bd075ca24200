"""--fail-on in every command: what can be named, what stops a run, and what is said of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import grpo_cli
from grpo_cli.errors import GateError, UsageError
from grpo_cli.guests.audit.facts import Audited
from grpo_cli.runs.add import Added
from grpo_cli.runs.compute_files import Facts
from grpo_cli.stats.gates import Numbers
from grpo_cli.stats.inspection import Inspected
from grpo_cli.stats.runs import Runs
from tests.support.command import adv, ran

# Two prompts: a is solved in one of two rollouts, b in both; the last row has no reward.
ROWS = """\
{"prompt_id": "a", "id": 1, "step": 1, "reward": 0, "prompt": "p", "completion": "x", "new": [-1.0], "old": [-1.0], "e": [0.5]}
{"prompt_id": "a", "id": 2, "step": 1, "reward": 1, "prompt": "p", "completion": "y", "new": [-1.0], "old": [-2.0], "e": [1.5]}
{"prompt_id": "b", "id": 3, "step": 2, "reward": 1, "prompt": "q", "completion": "x", "new": [-1.0], "old": [-1.0], "e": [1.0]}
{"prompt_id": "b", "id": 4, "step": 2, "reward": 1, "prompt": "q", "completion": "z", "new": [-1.0], "old": [-1.0], "e": [1.0]}
"""


@pytest.fixture(autouse=True)
def files() -> None:
    Path("a.jsonl").write_text(ROWS, encoding="utf-8")
    Path("earlier.jsonl").write_text(ROWS.replace('"reward": 1', '"reward": 0'), encoding="utf-8")
    Path("more.jsonl").write_text('{"id": 1, "judge": 0.5}\n{"id": 9, "judge": 1}\n', encoding="utf-8")
    ran("compute a.jsonl --quiet -o scored.jsonl")


def outputs() -> set[str]:
    return {path.name for path in Path().iterdir()} - {"a.jsonl", "earlier.jsonl", "more.jsonl", "scored.jsonl"}


# --- numbers by hand ---------------------------------------------------------------------------------------

BY_HAND = """\
compute a.jsonl -o o.jsonl | rows == 4 and groups == 2 and zero_variance.share == 0.5 and zero_variance_share == 0.5
compute a.jsonl -o o.jsonl | status.scored == 4 and group_sizes.counts.2 == 2 and `status.small-group` == 0
compute a.jsonl -o o.jsonl | reward.mean == 0.75 and advantage.zero == 2 and zero_share == 0.5 and skipped_rows == 0
compute a.jsonl -o o.jsonl --zero-variance drop | dropped_rows == 2 and skipped == 1
compute a.jsonl -o o.jsonl -m rloo --epsilon 0.5 -s group | plan.divisor.epsilon == 0.5
compute a.jsonl -o o.jsonl -m grpo | warnings == 0 and inputs == 1 and outputs == 1 and seconds < 60
inspect a.jsonl | difficulty.alive == 1 and difficulty.always == 1 and live_rows == 2 and listed.most == 2
inspect a.jsonl --by step | by.lines == 2
inspect a.jsonl --show a | show.mean == 0.5 and show.rows == 2 and rewards.reward.count == 4
inspect a.jsonl --token-logprobs new --old-token-logprobs old | off_policy.tokens == 4 and tokens == 4 and off_policy.all.k1 == -0.25
inspect a.jsonl --token-logprobs new --old-token-logprobs old --token-entropy e | entropy == 1 and off_policy.missing == 0
inspect a.jsonl --against earlier.jsonl | solve_rate == 0.75 and base_solve_rate == 0 and change == 0.75 and prompts == 2
inspect a.jsonl --against earlier.jsonl | solve_rate.mean == 0.75 and change.mean == 0.75 and better == 2 and base.rollouts == 4
inspect a.jsonl --against earlier.jsonl --pass-at 1,2 | pass@2 == 1 and pass_all_2 == 0.5 and pass_at.1.mean == 0.75 and passes == 2
inspect a.jsonl --old-rewards earlier.jsonl --rollout id | agreement.same == 1 and reward.up == 3 and reward.mean == 0.75
select a.jsonl --where 'std > 0' -o o.jsonl | kept_rows == 2 and kept_zero_variance_share == 0 and dropped == 1 and outputs == 1
export a.jsonl --to sft -o o.jsonl | records == 2 and columns == 3 and outputs == 1
export a.jsonl --to pairs -o o.jsonl | records == 1 and groups_without_pair == 1
export a.jsonl --to weights -o o.jsonl | plan.divisor.ddof == 1
audit scored.jsonl | mismatched_rows == 0 and match.mismatched_rows == 0 and judged.mismatched_groups == 0 and rows == 4
audit scored.jsonl --method rloo | mismatched_rows == 2 and claim.mismatched_rows == 2
compare a.jsonl -m grpo -m rloo | plans == 2 and differences == 1 and groups == 2
compare a.jsonl -m grpo -m rloo --write -o o.jsonl | outputs == 1 and masked == 0
add a.jsonl --from more.jsonl --on id -o o.jsonl | matched == 1 and joined.unmatched == 3 and unused_share == 0.5
add more.jsonl --from more.jsonl --column judge=again -o o.jsonl | rows == 2 and replaced == 0 and warnings == 0
verify scored.jsonl --against a.jsonl | columns == 1
"""


@pytest.mark.parametrize("case", BY_HAND.splitlines())
def test_a_gate_sees_the_numbers_of_the_document(case: str) -> None:
    line, condition = case.split(" | ")
    stopped = adv(line, "--fail-on", condition)
    assert stopped.status == 3, stopped.err
    assert outputs() == set()
    ran(f"{line} --fail-on {shlex.quote(f'not ({condition})')}")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("compute a.jsonl -o o.jsonl", Facts),
        ("inspect a.jsonl --token-logprobs new --old-token-logprobs old --token-entropy e", Inspected),
        ("inspect a.jsonl --against earlier.jsonl --pass-at 2", Runs),
        ("audit scored.jsonl --method rloo", Audited),
        ("add a.jsonl --from more.jsonl --on id -o o.jsonl", Added),
    ],
)
def test_each_short_name_is_its_path(line: str, kind: Any) -> None:
    aliases = Numbers(kind).aliases
    assert aliases
    for name, path in aliases.items():
        alias, its_path = (text.replace("_K", "_2").replace(".K.", ".2.") for text in (name, path))
        both = f"{alias} == {its_path} or ({alias} is null and {its_path} is null)"
        assert adv(line, "-q", "--fail-on", both).status == 3, name


# --- what a run does not have --------------------------------------------------------------------------------

LACKS = """\
inspect a.jsonl | off_policy.k3 > 0.1 | off_policy.k3: this run has no off_policy; add --token-logprobs COL and --old-token-logprobs COL
inspect a.jsonl | k3 > 0.1 or rows > 0 | k3: this run has no off_policy; add --token-logprobs COL and --old-token-logprobs COL
inspect a.jsonl --token-logprobs new --old-token-logprobs old | entropy > 9 | entropy: this run has no off_policy.all.entropy; add --token-entropy COL
inspect a.jsonl | show.mean > 1 | show.mean: this run has no show; add --show KEY
inspect a.jsonl | length.mean > 1 | length.mean: this run has no length; add --length-column COL
inspect a.jsonl | components.advantage.reward > 1 | components.advantage.reward: this run has no components; add --reward COL for each of several
inspect a.jsonl --against earlier.jsonl | pass@2 < 1 | no key of newest.pass_at named '2.mean'; known: none; add --pass-at K
compute a.jsonl -o o.jsonl | per_token.tokens > 9 | per_token.tokens: this run has no per_token; add --per-token
compute a.jsonl -o o.jsonl | preset.overridden.x.plan > 9 | preset.overridden.x.plan: this run has no preset; add --preset NAME
compute a.jsonl -o o.jsonl | status.scord > 9 | no key of status named 'scord'; did you mean 'scored'?
export a.jsonl --to sft -o o.jsonl | groups_without_pair > 0 | groups_without_pair: this run has no groups_without_pair; add --to pairs
export a.jsonl --to sft -o o.jsonl | plan.divisor.ddof > 0 | plan.divisor.ddof: this run has no plan; add --to
audit scored.jsonl | claim.mismatched_rows > 0 | claim.mismatched_rows: this run has no claim; add --preset NAME
compare a.jsonl -m grpo -m rloo | outputs > 9 | outputs: this run has no outputs; add --write
add more.jsonl --from more.jsonl --column judge=again -o o.jsonl | unmatched > 0 | unmatched: this run has no joined; add --on COL
"""


@pytest.mark.parametrize("case", LACKS.splitlines())
def test_what_nobody_asked_for_is_an_error_that_names_the_option(case: str) -> None:
    line, condition, message = case.split(" | ")
    done = adv(line, "--fail-on", condition)
    assert done.status == 2, done.err
    assert message in done.err
    assert outputs() == set()


UNKNOWN = """\
compute none.jsonl | zero_variance.shar > 0.5 | no quantity named 'zero_variance.shar'; did you mean 'zero_variance.share'?
compute none.jsonl | share > 0.5 | no quantity named 'share'; did you mean 'zero_variance.share'?
compute none.jsonl | zero_variance > 0.5 | zero_variance is no number, it has several; name one of them: zero_variance.groups
compute none.jsonl | schema == 'trl' | schema is a text; a condition of --fail-on compares numbers
compute none.jsonl | skipped.0.rows > 1 | skipped is a list, and its items have no path; it stands for its length, as in 'skipped > 0'
compute none.jsonl | off_policy.k3 > 1 | no quantity named 'off_policy.k3'
inspect none.jsonl | zero_share > 0 | no quantity named 'zero_share'
inspect none.jsonl | advantage.mean > 0 | no quantity named 'advantage.mean'
select none.jsonl --limit 1 | kept > 0 | no quantity named 'kept'; did you mean kept_rows, kept_masked
verify none.jsonl --against a.jsonl | rows > 0 | no quantity named 'rows'
compare none.jsonl -m grpo -m rloo | differences.0.changed > 0 | differences is a list, and its items have no path
"""


@pytest.mark.parametrize("case", UNKNOWN.splitlines())
def test_a_name_that_the_document_cannot_have_is_refused_before_a_file_is_read(case: str) -> None:
    line, condition, message = case.split(" | ")
    done = adv(line, "--fail-on", condition)
    assert done.status == 2
    assert message in done.err


def test_a_comparison_with_null_never_holds() -> None:
    """Every group has one row: there is no group to compare, so the share is null."""
    Path("single.csv").write_text("id,reward\n1,0\n2,1\n", encoding="utf-8")
    line = "compute single.csv -g id --singleton zero -o o.csv --force"
    for condition in ("zero_variance.share > 0", "zero_variance.share <= 0", "zero_variance.share == 0"):
        ran(f"{line} --fail-on '{condition}'")
    assert adv(f"{line} --fail-on 'zero_variance.share is null'").status == 3


# --- warnings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "compute a.jsonl -q -o o.jsonl", "inspect a.jsonl -q", "select a.jsonl -q -o o.jsonl --limit 1",
        "export a.jsonl -q --to sft -o o.jsonl", "compare a.jsonl -q -m grpo -m rloo --write -o o.jsonl", "audit scored.jsonl -q",
    ],
)  # fmt: skip
def test_every_warning_that_is_known_before_writing_counts(line: str) -> None:
    """A condition that every row meets gives a warning; --quiet hides it and does not spare looking for it."""
    assert adv(f"{line} --rows 'reward >= 0' --fail-on 'warnings == 1'").status == 3
    assert outputs() == set()
    assert adv(f"{line} --fail-on 'warnings == 0'").status == 3
    ran(f"{line} --fail-on 'warnings > 0'")


# --- several conditions, parts, files of options -------------------------------------------------------------


def test_of_several_conditions_one_is_enough_and_is_named() -> None:
    done = adv("compute a.jsonl -o o.jsonl --fail-on 'rows < 4' --fail-on 'groups > 1' --fail-on 'rows > 3'")
    assert done.status == 3
    assert "the --fail-on condition 'groups > 1' holds, nothing was written; groups is 2" in done.err
    ran("compute a.jsonl -o o.jsonl --fail-on 'rows < 4' --fail-on 'groups > 2'")


def test_with_a_plan_for_each_value_a_path_is_of_each_part_then_of_the_whole_run() -> None:
    line = "compute a.jsonl --plan-by prompt_id --plan default: -o o.jsonl"
    for condition, part in {
        "rows == 2": "a", "zero_variance.share == 1": "b", "parts == 2": "a", "inputs == 1": "a", "warnings > 0": "b",
    }.items():  # fmt: skip
        done = adv(f"{line} --fail-on '{condition}'")
        assert done.status == 3, condition
        assert f"prompt_id = {part}: the --fail-on condition" in done.err
    assert outputs() == set()
    ran(f"{line} --fail-on 'rows > 2'")


def test_the_result_is_printed_where_looking_is_all_that_a_command_does() -> None:
    for line in (
        "inspect a.jsonl --fail-on 'rows > 1' --json",
        "audit scored.jsonl --fail-on 'rows > 1' --json",
        "verify scored.jsonl --against a.jsonl --fail-on 'columns > 0' --json",
    ):
        done = adv(line)
        assert done.status == 3
        assert json.loads(done.out)


def test_a_folder_that_a_trainer_wants_is_not_made_for_an_export_that_a_gate_stops() -> None:
    line = "export a.jsonl --to sft --target mlx-lm -o folder/"
    assert adv(f"{line} --fail-on 'records > 0'").status == 3
    assert outputs() == set()
    ran(line)
    assert Path("folder/train.jsonl").exists()


def test_a_gate_in_python_says_keywords() -> None:
    with pytest.raises(GateError, match="unmatched is 3"):
        grpo_cli.add_columns("a.jsonl", "more.jsonl", on="id", fail_on="joined.unmatched > 0")
    with pytest.raises(UsageError, match="unmatched: this run has no joined; add on=COL"):
        grpo_cli.add_columns("more.jsonl", "more.jsonl", column={"judge": "again"}, fail_on="unmatched > 0")
