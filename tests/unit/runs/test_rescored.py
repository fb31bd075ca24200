"""`inspect --old-rewards`: two rewards of the same rollouts, against loops over plain lists and files as tools write them."""

from __future__ import annotations

import json
import math
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.engine.column_stats import PIECE
from grpo_cli.stats.rescored import Agreement, agreement, count_pairs
from tests.support import harbor
from tests.support.command import adv, facts_of, ran
from tests.support.jobs import write
from tests.support.schema_files import verifiers_episode


def rollouts(seed: int = 0, *, groups: int = 12, size: int = 4, values: tuple[float, ...] = (0.0, 1.0)) -> list[Any]:
    """Rows with an old reward and a new one, which differ in some."""
    draw = random.Random(seed)  # noqa: S311 - rewards, not secrets
    rows = []
    for group, k in product(range(groups), range(size)):
        old = draw.choice(values) if group else 1.0
        new = draw.choice(values) if draw.random() < 0.3 else old
        about = {"prompt_id": f"p{group}", "step": group % 3, "completion": f"answer {k} of {group}"}
        rows.append({**about, "length": 10 * k + group, "uuid": f"{group}-{k}", "reward": new, "old": old})
    return rows


def files(rows: list[Any], *left_out: str) -> None:
    frame = pl.DataFrame(rows).drop(left_out)
    write("new.jsonl", frame.drop("old").to_dicts())
    before = frame.drop("reward").rename({"old": "reward"}).to_dicts()
    random.Random(1).shuffle(before)  # noqa: S311
    write("old.jsonl", before)


def texts(new: str, old: str) -> None:
    Path("new.jsonl").write_text(new)
    Path("old.jsonl").write_text(old)


LINE = "inspect new.jsonl --rescored old.jsonl"
# Rewards 0, 0, 1 have the advantages -THIRD, -THIRD, 2 THIRD; 0, 1 have -HALF, HALF.
THIRD = (1 / 3) / (math.sqrt(1 / 3) + 1e-6)
HALF = (1 / 2) / (math.sqrt(1 / 2) + 1e-6)


def both(now: list[Any], before: list[Any]) -> str:
    write("now.jsonl", now)
    write("before.jsonl", before)
    return "inspect now.jsonl --rescored before.jsonl"


def flips(said: Any) -> dict[tuple[float, float], int]:
    return {(one["before"], one["now"]): one["rows"] for one in said["flips"]}


def test_agreement_is_that_of_plain_formulas() -> None:
    """7 of 10 are the same, of which one expects 5 by chance: half of the old rewards are 1, and 6 of 10 new ones."""
    said = agreement(pl.read_csv(b"before,now,rows\n1.0,1.0,4\n1.0,0.0,1\n0.0,1.0,2\n0.0,0.0,3\n"))
    assert said.same == 7
    assert said.share == 0.7
    assert said.kappa == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert said.rank_correlation == pytest.approx((4 * 3 - 1 * 2) / math.sqrt(5 * 5 * 6 * 4))
    constant = agreement(pl.read_csv(b"before,now,rows\n1.0,1.0,7\n"))
    assert constant == Agreement(same=7, share=1.0, kappa=None, rank_correlation=None)


def test_rows_of_one_input_and_missing_rewards_are_in_no_number() -> None:
    texts(
        """\
{"prompt_id": "a", "uuid": "a0", "reward": 1}
{"prompt_id": "a", "uuid": "a1", "reward": null}
{"prompt_id": "a", "uuid": "a2", "reward": 0}
{"prompt_id": "a", "uuid": "a3", "reward": 0}
{"prompt_id": "b", "uuid": "b0", "reward": 1}
{"prompt_id": "b", "uuid": "b1", "reward": 0}
{"prompt_id": "b", "uuid": "only here", "reward": 0}
{"prompt_id": "c", "uuid": "c0", "reward": 1}
{"prompt_id": "c", "uuid": "c1", "reward": 1}
""",
        """\
{"prompt_id": "a", "uuid": "a0", "reward": 0}
{"prompt_id": "a", "uuid": "a1", "reward": 1}
{"prompt_id": "a", "uuid": "a2", "reward": null}
{"prompt_id": "a", "uuid": "a3", "reward": 0}
{"prompt_id": "b", "uuid": "b0", "reward": 1}
{"prompt_id": "b", "uuid": "b1", "reward": 1}
{"prompt_id": "c", "uuid": "c0", "reward": 1}
{"prompt_id": "c", "uuid": "c1", "reward": 0}
""",
    )
    said = facts_of(LINE)
    assert said["rows"] == 8
    assert said["compared"] == 6
    assert said["unscored"] == {"now": 1, "before": 1}
    assert said["paired"]["only"] == {"now": 1, "before": 0}
    assert said["warnings"] == []
    assert "new new.jsonl: reward, mean of the pairs 0.6667 " in " ".join(ran(LINE).out.split())
    assert said["agreement"]["same"] == 3
    assert flips(said) == {(0, 0): 1, (0, 1): 2, (1, 0): 1, (1, 1): 2}
    assert said["groups"] == {"groups": 3, "with_gradient": {"now": 2, "before": 2}, "gained": 1, "lost": 1}
    # a was 0, 1, 0 and is 1, 0, 0; each has one row that is in no pair.
    advantage = said["advantage"]
    assert advantage["sign_changes"] == 1
    assert advantage["total"]["before"] == pytest.approx(2 * THIRD + 2 * HALF)
    assert advantage["total"]["now"] == pytest.approx(3 * THIRD + 2 * HALF)
    # Groups are chosen by the new reward, which is constant in c, and gates hold.
    assert flips(facts_of(f"{LINE} --where 'std > 0'")) == {(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1}
    done = adv(f"{LINE} --fail-on 'groups > 2'")
    assert done.status == 3
    assert done.err.endswith("the --fail-on condition 'groups > 2' holds; groups is 3\n")


REFUSED = """\
--rescored old.jsonl --against old.jsonl | and --old-rewards cannot be combined
--rescored old.jsonl --format csv | error: --old-rewards has several tables, and CSV has one; --format md and --json have all of them
--rescored old.jsonl --show p0 | and --show cannot be combined
--rescored old.jsonl --by step | and --by cannot be combined
--rescored old.jsonl --top 3 | and --top cannot be combined
--rescored-column reward | error: the reward and --old-rewards-column are the same column, reward; name the new reward with --reward
"""


@pytest.mark.parametrize("case", REFUSED.splitlines())
def test_options_that_say_nothing_here_are_refused(case: str) -> None:
    flags, says = case.split(" | ")
    files(rollouts())
    done = adv(f"inspect new.jsonl {flags}")
    assert done.status == 2
    assert says in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("digits", [0, 15])  # a few values, and one for each row
def test_pairs_of_values_are_counted_however_many_there_are(digits: int) -> None:
    draw = np.random.default_rng(digits)
    frame = pl.DataFrame(draw.normal(size=(PIECE + 5, 2)).round(digits) + 0.0, ["before", "now"])
    counts = count_pairs(frame["before"], frame["now"])
    counted = counts.group_by("before", "now").agg(pl.col("rows").sum())
    wanted = frame.group_by("before", "now").len()
    assert counted.sort("before", "now").rows() == wanted.sort("before", "now").rows()
    said = agreement(counts)
    assert said.kappa is None
    spearman = frame.select(pl.corr("before", "now", method="spearman")).item()
    assert said.rank_correlation == pytest.approx(spearman, abs=1e-9)
    assert said.same == len(frame.filter(pl.col("before") == pl.col("now")))


@pytest.mark.parametrize("by", ["uuid", "completion"])
def test_two_files_are_paired_and_compared_row_by_row(by: str) -> None:
    new = """\
{"prompt_id": "a", "uuid": "a0", "completion": "one", "reward": 1}
{"prompt_id": "a", "uuid": "a1", "completion": "two", "reward": 0}
{"prompt_id": "a", "uuid": "a2", "completion": "six", "reward": 0}
{"prompt_id": "b", "uuid": "b0", "completion": "one", "reward": 1}
{"prompt_id": "b", "uuid": "b1", "completion": "two", "reward": 1}
{"prompt_id": "b", "uuid": "b2", "completion": "six", "reward": 0}
{"prompt_id": "c", "uuid": "c0", "completion": "one", "reward": 0.5}
{"prompt_id": "c", "uuid": "c1", "completion": "two", "reward": 0}
"""
    old = """\
{"prompt_id": "c", "uuid": "c1", "completion": "two", "reward": 0}
{"prompt_id": "c", "uuid": "c0", "completion": "one", "reward": 0}
{"prompt_id": "b", "uuid": "b1", "completion": "two", "reward": 1}
{"prompt_id": "b", "uuid": "b0", "completion": "one", "reward": 0}
{"prompt_id": "b", "uuid": "b2", "completion": "six", "reward": 0}
{"prompt_id": "a", "uuid": "a2", "completion": "six", "reward": 1}
{"prompt_id": "a", "uuid": "a1", "completion": "two", "reward": 1}
{"prompt_id": "a", "uuid": "a0", "completion": "one", "reward": 1}
"""
    other = "about" if by == "completion" else "uuid"
    texts(new.replace("uuid", other), old.replace("uuid", other))
    said = facts_of(LINE)
    assert said["paired"] == {"by": [by], "key": ["prompt_id"], "rows": 8, "only": {"now": 0, "before": 0}}
    assert flips(said) == {(0, 0): 2, (0, 0.5): 1, (0, 1): 1, (1, 0): 2, (1, 1): 2}
    assert said["reward"]["up"] == 2
    assert said["reward"]["down"] == 2
    assert said["advantage"]["moved"] == pytest.approx(8 * THIRD + 2 * HALF)
    # The rewards that changed most, then the advantages that did.
    listed = [[row["row"], row["key"], row["text"], row["before"], row["now"]] for row in said["largest"]]
    assert listed == [[4, "b", "one", 0, 1], [2, "a", "two", 1, 0], [3, "a", "six", 1, 0], [7, "c", "one", 0, 0.5]]


def test_two_columns_of_one_file_and_frames_say_the_same_as_two_files() -> None:
    rows = rollouts(5)
    files(rows, "uuid")
    write("both.jsonl", rows)
    two = facts_of(LINE)
    one = facts_of("inspect both.jsonl --reward reward --rescored-column old")
    for name in ("agreement", "flips", "groups", "advantage"):
        assert one[name] == two[name]
    assert facts_of("inspect new.jsonl --rescored both.jsonl --rescored-column old")["flips"] == two["flips"]
    missing = adv("inspect new.jsonl --rescored gone.jsonl")
    assert missing.status == 1
    assert "gone.jsonl" in missing.err
    new = pl.read_ndjson("new.jsonl")
    old = pl.read_ndjson("old.jsonl")
    for before in (old, old.to_pandas(), Path("old.jsonl")):
        look = grpo_cli.inspect(new, rescored=before)
        assert look.facts["rescored"]["advantage"] == two["advantage"]
        assert look.verdicts[0] == two["verdict"]
    both = grpo_cli.inspect(pl.DataFrame(rows), reward="reward", rescored_column="old")
    assert both.facts["rescored"]["flips"] == two["flips"]


def test_a_column_of_texts_that_has_the_name_of_a_length_is_no_reward() -> None:
    Path("in.csv").write_text("prompt_id,reward,length\n1,0,a\n1,1,b\n")
    done = adv("inspect in.csv --rescored-column length")
    assert done.status == 1
    assert done.err.startswith("error: in.csv row 1: length is 'a', expected a number; name a column of numbers; ")


def test_repeated_texts_pair_where_it_is_all_one_and_stop_where_it_is_not() -> None:
    rows = """\
{"prompt_id": 0, "completion": "yes", "reward": 1}
{"prompt_id": 0, "completion": "yes", "reward": 1}
{"prompt_id": 0, "completion": "no", "reward": 0}
{"prompt_id": 1, "completion": "yes", "reward": 1}
{"prompt_id": 1, "completion": "yes", "reward": 1}
"""
    first = rows.replace("1}", "0}", 1)
    texts(first, rows)
    said = facts_of(LINE)
    assert said["compared"] == 5
    assert flips(said) == {(0, 0): 1, (1, 0): 1, (1, 1): 3}
    Path("old.jsonl").write_text(first)
    done = adv(LINE)
    assert done.status == 1
    assert done.err == (
        "error: completion is the same in several rollouts of a group whose rewards differ, so the text does not tell them apart: "
        "0 (2 rows, new.jsonl:1 and new.jsonl:2; 2 rows, old.jsonl:1 and old.jsonl:2); name the id of the rollout with --rollout; "
        "if the rows of both inputs stand in the same order, grpo-adv add makes the old reward a column for --old-rewards-column\n"
    )


def test_a_warning_says_that_most_rollouts_are_in_one_input_only() -> None:
    row = '{{"prompt_id": "p", "uuid": {}, "reward": {}}}\n'
    rows = [row.format(k, k % 2) for k in range(48)]
    Path("old.jsonl").write_text("".join(rows[:30]))
    Path("new.jsonl").write_text("".join(rows[18:]))
    said = facts_of(LINE)
    assert said["paired"]["only"] == {"now": 18, "before": 18}
    says = "only 40% of the rollouts are in both inputs: --against compares different rollouts of the same prompts"
    assert said["warnings"] == [says]
    Path("new.jsonl").write_text("".join(rows[12:]))
    half = facts_of(LINE)
    assert half["paired"]["only"] == {"now": 18, "before": 12}
    assert half["warnings"] == []


def test_a_row_without_one_of_the_rewards_is_in_none_of_the_numbers() -> None:
    Path("in.csv").write_text("prompt_id,reward,old,completion\na,1,0,b\na,,1,c\na,0,,d\nb,0.5,0.5,e\nb,0,1,f\n")
    said = facts_of("inspect in.csv --rescored-column old")
    assert said["compared"] == 3
    assert said["unscored"] == {"now": 1, "before": 1}
    assert said["reward"]["now"]["mean"] == pytest.approx(0.5)
    assert said["reward"]["before"]["mean"] == pytest.approx(0.5)
    assert said["reward"]["mean_change"] == pytest.approx(0)
    assert [row["text"] for row in said["largest"]] == ["b", "f"]


# --- the other option is named where it was meant --------------------------------------------------------------


def test_other_rollouts_are_sent_to_against() -> None:
    """Numbers of samples are the same in every run: there the texts tell."""
    Path("new.jsonl").write_text("""\
{"prompt_id": "a", "sample": 0, "completion": "one", "reward": 0}
{"prompt_id": "a", "sample": 1, "completion": "two", "reward": 1}
""")
    Path("other.jsonl").write_text("""\
{"prompt_id": "a", "sample": 0, "completion": "three", "reward": 0.5}
{"prompt_id": "a", "sample": 1, "completion": "four", "reward": 0.5}
""")
    line = "inspect new.jsonl --rescored other.jsonl"
    done = adv(line)
    assert done.status == 1
    other = "--against compares different rollouts of the same prompts"
    words = "have different texts in completion (2 of 2 that were compared); they are different rollouts"
    assert done.err == f"error: the rows with the same sample {words}: {other}\n"
    for name in ("new.jsonl", "other.jsonl"):
        path = Path(name)
        path.write_text(path.read_text().replace("sample", "about"))
    done = adv(line)
    assert done.status == 1
    assert done.err == f"error: no rollout is in both inputs (by completion within prompt_id); {other}\n"


def test_rows_that_nothing_pairs_are_sent_to_a_column_beside_the_other() -> None:
    Path("new.csv").write_text("prompt_id,reward\np,1\np,0\n")
    Path("old.csv").write_text("prompt_id,reward\np,0\np,0\n")
    done = adv("inspect new.csv --rescored old.csv")
    assert done.err.endswith("grpo-adv add makes the old reward a column for --old-rewards-column\n")
    Path("column.csv").write_text("old\n0\n0\n")
    ran("add new.csv --from column.csv -o both.csv")
    assert "1 up, 0 down" in ran("inspect both.csv --rescored-column old").out


# --- what is shown ------------------------------------------------------------------------------------------------


def test_one_screen_and_markdown_have_the_same_numbers() -> None:
    files(rollouts())
    screen = ran(LINE).out
    assert len(screen.splitlines()) <= 42
    assert all(len(line) <= 80 for line in screen.splitlines())
    page = ran(f"{LINE} --format md").out
    said = facts_of(LINE)
    assert page.rstrip().endswith(said["verdict"])
    for row in said["largest"]:
        assert f"| {row['text']} |" in page
    assert said["verdict"] in " ".join(screen.split())


def test_flips_of_few_values_are_a_table_and_many_values_are_none() -> None:
    Path("in.csv").write_text("""\
prompt_id,reward,old
a,0,0
a,0.5,0
a,1,0
a,0.5,0
b,1,1
b,0,1
b,0.5,0.5
""")
    line = "inspect in.csv --reward reward --rescored-column old"
    table = """\
old new 0 new 0.5 new 1
0 1 2 1
0.5 0 1 0
1 1 0 1
"""
    out = "\n".join(" ".join(row.split()) for row in ran(line).out.splitlines())
    assert table in out
    many = "".join(f"a,{k},{k / 7}\n" for k in range(100))
    Path("in.csv").write_text(f"prompt_id,reward,old\n{many}")
    assert facts_of(line)["flips"] is None
    assert "old  new " not in ran(line).out


def test_small_shares_are_not_shown_as_nothing() -> None:
    rows = [{"prompt_id": k // 4, "reward": float(k % 4), "old": float(k % 4)} for k in range(8000)]
    rows[5]["reward"] = 1.001
    write("in.jsonl", rows)
    words = " ".join(ran("inspect in.jsonl --reward reward --rescored-column old").out.split())
    assert "(-0.0%)" not in words
    assert "(+0.0%)" not in words
    assert "(0.0%" not in words
    assert "(<0.1% of the total |A|)" in words


def test_the_report_draws_both_rewards() -> None:
    pytest.importorskip("altair")
    files(rollouts())
    ran("report new.jsonl --rescored old.jsonl -o a.html")
    page = Path("a.html").read_text()
    assert 'id="figure-rescored"' in page
    assert "Rewards of new.jsonl re-scored from old.jsonl" in page
    refused = adv("report new.jsonl --rescored old.jsonl --against old.jsonl -o b.html")
    assert refused.status == 2
    assert not Path("b.html").exists()


# --- files as tools write them ---------------------------------------------------------------------------------


def test_replay_of_verifiers_is_paired_by_the_id_of_the_trace() -> None:
    """Replay appends traces as they are scored, in any order; an episode that failed is copied as it is."""
    traces = [
        "a-0 1 1",
        "a-1 0 0",
        "a-2 1 0",
        "b-0 0 1",
        "b-1 1 0",
        "b-2 0 0",
    ]  # the id, and the rewards before and now
    before = []
    again = []
    for one in traces:
        name, old, new = one.split()
        before.append(verifiers_episode(name[0], name, float(old)))
        again.append(verifiers_episode(name[0], name, float(new), episode="replay"))
    write("run/traces.jsonl", before)
    write("replay/traces.jsonl", again[::-1])
    line = "inspect replay/traces.jsonl --rescored run/traces.jsonl"
    said = facts_of(line)
    assert said["paired"] == {"by": ["id"], "key": ["task.key"], "rows": 6, "only": {"now": 0, "before": 0}}
    assert flips(said) == {(0, 0): 2, (0, 1): 1, (1, 0): 2, (1, 1): 1}
    write("replay/traces.jsonl", again + again)  # --num-rescores 2
    twice = adv(line)
    assert twice.status == 1
    assert "id is the same in several rows of a group" in twice.err
    write("run/traces.jsonl", before + before)  # the same ids, row for row
    assert "id is the same in several rows of a group" in adv(line).err


# Rows as NeMo Gym writes them; `gym eval reverify` (00fa09c0c, nemo_gym/rollout_reverification.py) keeps their numbers.
GYM = (
    '{{"responses_create_params": {{"input": [{{"role": "user", "content": "question {0}"}}]}}, "response": {{"id": "resp_{0}_{1}",'
    ' "output": [{{"type": "message", "role": "assistant", "content": [{{"type": "output_text", "text": "{0} and {1}"}}]}}]}},'
    ' "reward": {2}, "_ng_task_index": {0}, "_ng_rollout_index": {1}, "agent_ref": {{"name": "simple_agent"}}}}\n'
)


def test_reverified_rollouts_of_nemo_gym_are_paired_by_task_and_index() -> None:
    """Results are written as they complete; rows that the verifier failed on stand in a file beside them."""
    places = [(task, index) for index in range(4) for task in range(5)]
    Path("rollouts.jsonl").write_text("".join(GYM.format(task, index, index % 2) for task, index in places))
    done = [GYM.format(task, index, index % 2 ^ (task == index)) for task, index in reversed(places)]
    failed = "".join(done[:2]).replace('"agent_ref"', '"_ng_failure_class": "judge_failed", "agent_ref"')
    Path("reverified.jsonl").write_text("".join(done[2:]))
    Path("reverified_failures.jsonl").write_text(failed)
    said = facts_of("inspect reverified.jsonl --rescored rollouts.jsonl")
    by = {"by": ["_ng_rollout_index"], "key": ["_ng_task_index"]}
    assert said["paired"] == {**by, "rows": 18, "only": {"now": 0, "before": 2}}
    assert said["reward"]["changed"] == 3  # of 4, one of which failed
    assert {row["key"] for row in said["largest"]} == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("files", "words", "by"),
    [
        ("", "", "source_trial_id"),
        (
            "/*/result.json",
            "--group task_name --reward verifier_result.rewards.reward --group-within input",
            "config.source_trial.trial_id",
        ),
    ],
)
def test_regraded_trials_of_harbor_are_paired_with_those_that_they_name(files: str, words: str, by: str) -> None:
    """A regrade is a new trial, whose config names the one it scores again (SourceTrialConfig in harbor/models/trial/config.py).

    It copies the logs of the agent, so texts would tell the same; not every agent leaves a trajectory.
    """
    trials = ["a 1 1", "a 0 0", "a 1 0", "b 0 1", "b 1 0", "b 0 0"]  # the task, and the rewards before and now
    job, regraded = Path("job"), Path("regraded")
    harbor.job(job, len(trials))
    harbor.job(regraded, len(trials))
    for place, trial in enumerate(trials):
        task, old, new = trial.split()
        name = f"{place}-{task}"
        harbor.trial(job, task, name, {"reward": float(old)})
        result = harbor.trial(regraded, task, f"{9 - place}-{task}", {"reward": float(new)}) / "result.json"
        about = json.loads(result.read_text())
        source = {"action": "regrade", "type": "local", "trial_id": f"id-{name}", "path": f"job/{name}"}
        about["config"]["source_trial"] = source
        result.write_text(json.dumps(about))
    said = facts_of(f"inspect regraded{files} --rescored job{files} {words}")
    assert said["paired"]["by"] == [by]
    assert flips(said) == {(0, 0): 2, (0, 1): 1, (1, 0): 2, (1, 1): 1}


# --- what pairs rows, and what does not ------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "by"), [("--group-within step", "sample"), ("--group step,prompt_id", "completion")])
def test_a_prompt_that_comes_back_in_another_step_is_paired_within_each_step(way: str, by: str) -> None:
    rows = """\
{"step": 0, "prompt_id": "p0", "sample": "0", "reward": 0}
{"step": 0, "prompt_id": "p0", "sample": "1", "reward": 1}
{"step": 0, "prompt_id": "p1", "sample": "0", "reward": 0}
{"step": 0, "prompt_id": "p1", "sample": "1", "reward": 1}
"""
    rows = rows.replace("sample", by)
    later = rows.replace('step": 0', 'step": 1').replace('reward": 1', 'reward": 2').replace('reward": 0', 'reward": 1')
    texts(rows + later, later + rows)
    said = facts_of(f"{LINE} {way}")
    assert said["reward"]["changed"] == 0
    assert said["paired"]["key"] == ["step", "prompt_id"]
    assert said["paired"]["by"] == [by]


def test_blocks_of_a_prompt_are_paired_across_their_ends() -> None:
    rows = rollouts(11, groups=3, size=8)
    said = facts_of(f"{both(rows, rows[::-1])} --group prompt_id --group-size 4")
    assert said["compared"] == 24
    assert said["reward"]["changed"] == 0


def test_equal_texts_are_exchanged_only_where_every_reward_is_equal() -> None:
    texts(
        """\
{"prompt_id": "p", "completion": "same", "a": 1, "b": 0}
{"prompt_id": "p", "completion": "same", "a": 1, "b": 1}
""",
        """\
{"prompt_id": "p", "completion": "same", "a": 1, "b": 1}
{"prompt_id": "p", "completion": "same", "a": 1, "b": 0}
""",
    )
    done = adv(f"{LINE} --reward a=1 --reward b=1")
    assert done.status == 1
    assert "completion is the same in several rollouts" in done.err
    assert facts_of(f"{LINE} --reward a")["reward"]["changed"] == 0


def test_keys_and_ids_pair_across_files_with_and_without_types() -> None:
    Path("a.jsonl").write_text("""\
{"prompt": 1, "step": 0, "trajectory_id": 0, "reward": 0}
{"prompt": 1, "step": 0, "trajectory_id": 1, "reward": 1}
{"prompt": 1, "step": 1, "trajectory_id": 2, "reward": 0}
{"prompt": 1, "step": 1, "trajectory_id": 3, "reward": 1}
""")
    Path("b.csv").write_text("prompt,step,trajectory_id,reward\n1,0,0,0\n1,0,1,1\n1,1,2,0\n1,1,3,1\n")
    flags = "--group prompt --group-within step --rollout trajectory_id"
    for line in ("inspect a.jsonl --rescored b.csv", "inspect b.csv --rescored a.jsonl"):
        paired = facts_of(f"{line} {flags}")["paired"]
        assert paired["rows"] == 4
        assert paired["by"] == ["trajectory_id"]


def test_a_number_and_its_text_are_different_ids() -> None:
    rows = """\
{"prompt_id": "p", "uuid": 1, "completion": "a", "reward": 0}
{"prompt_id": "p", "uuid": 2, "completion": "b", "reward": 1}
"""
    texts(rows, rows.replace('"uuid": 1', '"uuid": "1"').replace('"uuid": 2', '"uuid": "2"'))
    said = facts_of(LINE)
    assert said["paired"]["by"] == ["completion"]
    assert said["compared"] == 2
    done = adv(f"{LINE} --rollout uuid")
    assert done.status == 1
    assert "no rollout is in both inputs (by uuid within prompt_id)" in done.err


def test_ids_that_do_not_pair_are_named_and_texts_are_used() -> None:
    rows = rollouts(12)
    said = facts_of(both(rows, [*rows[::-1], rows[0]]))
    assert said["compared"] == 48
    assert said["paired"]["by"] == ["completion"]
    assert said["paired"]["only"] == {"now": 0, "before": 1}
    assert said["warnings"] == ["uuid pairs no rollouts (null, repeated or other values): their texts do"]
    assert facts_of(both(rows, rows[::-1]))["warnings"] == []


@pytest.mark.parametrize("kind", ["numbers", "wide numbers", "texts"])
def test_ids_of_the_whole_input_pair_only_rows_of_one_group(kind: str) -> None:
    rows = rollouts(14)
    for k, row in enumerate(rows):
        del row["step"]
        row["uuid"] = {"numbers": k, "wide numbers": 2**62 - 10**17 * (k % 7) - k, "texts": f"u{k}"}[kind]
        row["prompt_id"] = k // 4 * (10**18 if kind == "wide numbers" else 1)
    moved = [{**row, "prompt_id": rows[k + 4 * (k < 6)]["prompt_id"]} for k, row in enumerate(rows)]
    said = facts_of(both(rows, moved[::-1]))
    assert said["compared"] == 42
    assert said["paired"]["by"] == ["uuid"]
    assert said["paired"]["only"] == {"now": 6, "before": 6}
    assert said["reward"]["changed"] == 0


def test_inputs_without_a_common_group_name_a_key_of_each() -> None:
    Path("new.csv").write_text("prompt_id,completion,reward\np0,a,0\np0,b,1\n")
    Path("old.csv").write_text("prompt_id,completion,reward\nqp0,a,0\nqp0,b,1\n")
    done = adv("inspect new.csv --rescored old.csv")
    assert done.status == 1
    said = "no group is in both inputs (prompt_id is p0 and qp0); --old-rewards takes the same rollouts with another reward; name their key with --group"
    assert done.err == f"error: {said}\n"


def test_ids_of_64_unsigned_bits_pair() -> None:
    frame = pl.DataFrame(rollouts(13)).with_columns(completion_id=pl.int_range(pl.len(), dtype=pl.UInt64) + 2**63 + 1)
    frame.drop("uuid", "old").write_parquet("now.parquet")
    frame.drop("uuid", "old").reverse().write_parquet("before.parquet")
    said = facts_of("inspect now.parquet --rescored before.parquet")
    assert said["paired"]["by"] == ["completion_id"]
    assert said["reward"]["changed"] == 0
    assert said["compared"] == len(frame)


def test_texts_inside_of_structs_pair_in_frames() -> None:
    texts = pl.struct(text=pl.Series([*"abcd"]))
    frame = pl.DataFrame({"prompt_id": [0, 0, 1, 1], "reward": [0.0, 1.0, 0.0, 1.0]}).with_columns(r=texts)
    look = grpo_cli.inspect(frame, rescored=frame.reverse(), text_column="r.text")
    assert look.facts["rescored"]["compared"] == 4
    assert look.facts["rescored"]["reward"]["changed"] == 0


def test_lists_that_are_numbered_in_several_files_are_not_paired_by_their_numbers() -> None:
    a = '{"prompt": "a", "completions": ["yes", "no"], "rewards": [1, 0]}'
    b = '{"prompt": "b", "completions": ["yes", "no"], "rewards": [0, 1]}'
    for name, record in {"now/0": a, "now/1": b, "then/0": b, "then/1": a}.items():
        path = Path(f"{name}.jsonl")
        path.parent.mkdir(exist_ok=True)
        path.write_text(record)
    line = "inspect now --rescored then --text-column completions"
    done = adv(line)
    assert done.status == 1
    assert "no group is in both inputs (file, record is now/0.jsonl, 0 and then/0.jsonl, 0)" in done.err
    assert facts_of(f"{line} --group prompt")["agreement"]["share"] == 1.0


def test_a_table_of_ids_and_scores_becomes_a_column_with_add() -> None:
    files(rollouts(), "step", "completion", "length")
    ids = [{"uuid": row["uuid"], "score": row["old"]} for row in rollouts()]
    write("old.jsonl", ids)
    done = adv("inspect new.jsonl --old-rewards old.jsonl")
    assert done.status == 1
    assert "--old-rewards old.jsonl: no column looks like the group key" in done.err
    cure = "grpo-adv add new.jsonl --from old.jsonl --on uuid"
    assert f"{cure} makes the old reward a column, for --old-rewards-column" in done.err
    ran(f"{cure.removeprefix('grpo-adv ')} -o both.jsonl")
    facts = facts_of("inspect both.jsonl --old-rewards-column score --json")
    assert facts["rows"] == len(ids)


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        ([0, 1, 0, 0], [1, 1, 0, 0], "1 group gains a gradient."),
        ([1, 1, 0, 0], [0, 1, 0, 1], "2 groups lose their gradient."),
        ([0, 1, 1, 1], [1, 1, 0, 1], "1 group gains a gradient, 1 group loses its gradient."),
        ([0, 1, 1, 0], [1, 0, 1, 0], "No group gains or loses its gradient."),
    ],
)
def test_the_verdict_says_how_many_groups_gain_and_lose_a_gradient(now: Any, before: Any, said: str) -> None:
    rows = [{"prompt_id": key, "uuid": at, "completion": f"c{at}"} for at, key in enumerate("aabb")]
    files([{**row, "reward": one, "old": other} for row, one, other in zip(rows, now, before, strict=True)])
    assert said in facts_of(LINE)["verdict"]
