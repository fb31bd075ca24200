"""`inspect --old-rewards`: two rewards of the same rollouts, against loops over plain lists and files as tools write them."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.engine.column_stats import PIECE
from grpo_cli.render.text import number
from grpo_cli.stats.rescored import Agreement, agreement, count_pairs
from tests.support import harbor
from tests.support.command import Done, adv
from tests.support.jobs import rows_of, write
from tests.support.schema_files import chat, lines, verifiers_episode


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


LINE = "inspect new.jsonl --rescored old.jsonl"


def found(done: Done) -> Any:
    assert done.status == 0
    assert done.err == ""
    return json.loads(done.out)


def compared(words: str = "") -> Any:
    """What `inspect --old-rewards` says of the files in this tmp_path."""
    return found(adv(f"{LINE} {words} --json"))


def spearman(old: list[float], new: list[float]) -> float:
    return float(pl.DataFrame({"old": old, "new": new}).select(pl.corr("old", "new", method="spearman")).item())


def grpo(rewards: list[float]) -> list[float]:
    std = stdev(rewards) if len(rewards) > 1 else 0.0
    return [(one - fmean(rewards)) / (std + 1e-6) if std else 0.0 for one in rewards]


def flips(said: Any) -> dict[tuple[float, float], int]:
    return {(one["before"], one["now"]): one["rows"] for one in said["flips"]}


def test_agreement_is_that_of_plain_formulas() -> None:
    rows = rollouts(3, groups=30)
    old = [row["old"] for row in rows]
    new = [row["reward"] for row in rows]
    said = agreement(count_pairs(pl.Series(old), pl.Series(new)))
    assert said.same == sum(one == other for one, other in zip(old, new, strict=True))
    assert said.share == said.same / len(rows)
    assert said.rank_correlation == pytest.approx(spearman(old, new), abs=1e-12)
    chance = fmean(old) * fmean(new) + (1 - fmean(old)) * (1 - fmean(new))
    assert said.kappa == pytest.approx((said.share - chance) / (1 - chance))


def test_a_constant_reward_has_neither_kappa_nor_correlation() -> None:
    said = agreement(pl.DataFrame({"before": [1.0], "now": [1.0], "rows": [7]}))
    assert said == Agreement(same=7, share=1.0, kappa=None, rank_correlation=None)


@pytest.mark.parametrize("digits", [0, 15], ids=["a few values", "a value for each row"])
def test_pairs_of_values_are_counted_however_many_there_are(digits: int) -> None:
    draw = random.Random(digits)  # noqa: S311
    old, new = ([round(draw.gauss(0, 1), digits) + 0.0 for _ in range(PIECE + 5)] for _ in "ab")
    counts = count_pairs(pl.Series(old), pl.Series(new))
    counted = Counter[tuple[float, float]]()
    for before, now, rows in counts.iter_rows():
        counted[before, now] += rows
    assert counted == Counter(zip(old, new, strict=True))
    said = agreement(counts)
    assert said.kappa is None
    assert said.rank_correlation == pytest.approx(spearman(old, new), abs=1e-9)
    assert said.same == sum(one == other for one, other in zip(old, new, strict=True))


@pytest.mark.parametrize("left_out", [(), ("uuid",)], ids=["by id", "by text"])
def test_two_files_are_paired_and_compared_row_by_row(left_out: tuple[str, ...]) -> None:
    rows = rollouts()
    files(rows, *left_out)
    said = compared()
    assert said["paired"] == {
        "by": ["completion" if left_out else "uuid"], "key": ["prompt_id"], "rows": len(rows), "only": {"now": 0, "before": 0},
    }  # fmt: skip
    pairs = [(row["old"], row["reward"]) for row in rows]
    assert flips(said) == Counter(pairs)
    assert said["reward"]["up"] == sum(new > old for old, new in pairs)
    assert said["reward"]["down"] == sum(new < old for old, new in pairs)
    old = []
    new = []
    for start in range(0, len(rows), 4):
        old += grpo([row["old"] for row in rows[start : start + 4]])
        new += grpo([row["reward"] for row in rows[start : start + 4]])
    advantage = said["advantage"]
    assert advantage["moved"] == pytest.approx(sum(abs(one - other) for one, other in zip(old, new, strict=True)))
    changed = [
        (-abs(row["reward"] - row["old"]), -round(abs(one - other), 9), at)
        for at, (row, one, other) in enumerate(zip(rows, old, new, strict=True)) if row["reward"] != row["old"]
    ]  # fmt: skip
    listed = [(row["row"], row["text"], row["before"], row["now"]) for row in said["largest"]]
    largest = [at for *_, at in sorted(changed)[:10]]
    assert listed == [(at + 1, rows[at]["completion"], rows[at]["old"], rows[at]["reward"]) for at in largest]


@pytest.mark.parametrize("seed", range(2))
def test_rows_of_one_input_and_missing_rewards_are_in_no_number(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    rows = rollouts(seed, values=(-1.0, 0.0, 0.25, 2.0))
    for row in draw.sample(rows, 6):
        row[draw.choice(["old", "reward"])] = None
    files(rows)
    before = Path("old.jsonl").read_text().splitlines(keepends=True)[3:]
    Path("old.jsonl").write_text("".join(before))
    kept = {json.loads(line)["uuid"] for line in before}
    said = compared()
    shared = [row for row in rows if row["uuid"] in kept]
    both = [row for row in shared if None not in {row["old"], row["reward"]}]
    old = [row["old"] for row in both]
    new = [row["reward"] for row in both]
    assert said["rows"] == 45
    assert said["compared"] == len(both)
    assert said["paired"]["only"] == {"now": 3, "before": 0}
    assert said["warnings"] == []
    shown = " ".join(adv(LINE).out.split())
    assert f"new new.jsonl: reward, mean of the pairs {number(fmean(new))} " in shown
    assert said["agreement"]["same"] == sum(one == other for one, other in zip(old, new, strict=True))
    assert said["agreement"]["rank_correlation"] == pytest.approx(spearman(old, new))
    assert flips(said) == Counter(zip(old, new, strict=True))
    of_sides: list[dict[str, float]] = [{}, {}]
    alive = [set[str](), set[str]()]
    for name, (side, reward) in product({row["prompt_id"] for row in rows}, enumerate(("old", "reward"))):
        group = [row for row in shared if row["prompt_id"] == name and row[reward] is not None]
        advantages = grpo([row[reward] for row in group])
        of_sides[side] |= {row["uuid"]: one for row, one in zip(group, advantages, strict=True)}
        if len({row[reward] for row in group}) > 1:
            alive[side].add(name)
    assert said["groups"]["with_gradient"] == {"before": len(alive[0]), "now": len(alive[1])}
    assert said["groups"]["gained"] == len(alive[1] - alive[0])
    assert said["groups"]["lost"] == len(alive[0] - alive[1])
    x, y = ([side[row["uuid"]] for row in both] for side in of_sides)
    assert said["advantage"]["sign_changes"] == sum(one * other < 0 for one, other in zip(x, y, strict=True))
    assert said["advantage"]["total"]["before"] == pytest.approx(sum(map(abs, x)))
    assert said["advantage"]["total"]["now"] == pytest.approx(sum(map(abs, y)))


def test_two_columns_of_one_file_say_the_same_as_two_files() -> None:
    rows = rollouts(5)
    files(rows)
    write("both.jsonl", rows)
    two = compared()
    one = found(adv("inspect both.jsonl --reward reward --rescored-column old --json"))
    for name in ("agreement", "flips", "groups", "advantage"):
        assert one[name] == two[name]
    named = adv("inspect new.jsonl --rescored both.jsonl --rescored-column old --json")
    assert found(named)["flips"] == two["flips"]
    same = adv("inspect both.jsonl --rescored-column reward")
    assert same.status == 2
    assert (
        same.err
        == "error: the reward and --old-rewards-column are the same column, reward; name the new reward with --reward\n"
    )


def test_a_column_of_texts_that_has_the_name_of_a_length_is_no_reward() -> None:
    write("in.jsonl", [{"prompt_id": k // 2, "reward": k % 2, "length": "ab"[k % 2]} for k in range(8)])
    done = adv("inspect in.jsonl --rescored-column length")
    assert done.status == 1
    assert done.err.startswith("error: in.jsonl:1: length is 'a', expected a number; name a column of numbers; ")


def test_python_says_the_same_of_frames() -> None:
    rows = rollouts(6)
    files(rows, "uuid")
    said = compared()
    new, old = (pl.read_ndjson(name) for name in ("new.jsonl", "old.jsonl"))
    for before in (old, old.to_pandas(), Path("old.jsonl")):
        look = grpo_cli.inspect(new, rescored=before)
        assert look.facts["rescored"]["advantage"] == said["advantage"]
        assert look.verdicts[0] == said["verdict"]
    both = grpo_cli.inspect(pl.DataFrame(rows), reward="reward", rescored_column="old")
    assert both.facts["rescored"]["flips"] == said["flips"]


def test_repeated_texts_pair_where_it_is_all_one_and_stop_where_it_is_not() -> None:
    texts = [(group, text) for group in range(5) for text in ("yes", "yes", "no")]
    rows = [{"prompt_id": group, "completion": text, "reward": float(text == "yes")} for group, text in texts]
    write("new.jsonl", [{**row, "reward": float(k % 2)} for k, row in enumerate(rows)])
    write("old.jsonl", rows)
    said = compared()
    assert said["compared"] == 15
    assert flips(said) == Counter((row["reward"], float(k % 2)) for k, row in enumerate(rows))
    write("old.jsonl", [{**row, "reward": float(k % 3 == 0)} for k, row in enumerate(rows)])
    done = adv(LINE)
    assert done.status == 1
    assert done.err == (
        "error: completion is the same in several rollouts of a group whose rewards differ, so the text does not tell them apart: "
        "0 (2 rows, new.jsonl:1 and new.jsonl:2; 2 rows, old.jsonl:1 and old.jsonl:2), "
        "1 (2 rows, new.jsonl:4 and new.jsonl:5; 2 rows, old.jsonl:4 and old.jsonl:5), "
        "2 (2 rows, new.jsonl:7 and new.jsonl:8; 2 rows, old.jsonl:7 and old.jsonl:8); name the id of the rollout with --rollout; "
        "if the rows of both inputs stand in the same order, grpo-adv add makes the old reward a column for --old-rewards-column\n"
    )


@pytest.mark.parametrize(("first", "warned"), [(18, True), (12, False)])
def test_a_warning_says_that_most_rollouts_are_in_one_input_only(first: int, warned: bool) -> None:  # noqa: FBT001 - a case is a pair
    rows = [{"prompt_id": "p", "uuid": k, "reward": float(k % 2)} for k in range(48)]
    said = found(adv(both(rows[first:], rows[:30])))
    assert said["rows"] == 30 - first
    assert said["paired"]["only"] == {"now": 18, "before": first}
    says = "only 40% of the rollouts are in both inputs: --against compares different rollouts of the same prompts"
    assert said["warnings"] == [says] * warned


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_row_without_one_of_the_rewards_is_in_none_of_the_numbers(suffix: str) -> None:
    rows = rollouts(10)
    rows[5]["old"] = rows[11]["reward"] = None
    write(f"in.{suffix}", rows)
    said = found(adv(f"inspect in.{suffix} --rescored-column old --json"))
    both = [row for row in rows if None not in {row["old"], row["reward"]}]
    assert said["compared"] == 46
    assert said["unscored"] == {"now": 1, "before": 1}
    means = [said["reward"][side]["mean"] for side in ("now", "before")]
    assert means == pytest.approx([fmean(row[name] for row in both) for name in ("reward", "old")])
    assert said["reward"]["mean_change"] == pytest.approx(means[0] - means[1])
    assert {one["text"] for one in said["largest"]} <= {row["completion"] for row in both}


def test_groups_are_chosen_by_the_new_reward_and_gates_hold() -> None:
    rows = rollouts(9)
    files(rows)
    different = Counter(name for name, _ in {(row["prompt_id"], row["reward"]) for row in rows})
    pairs = Counter((row["old"], row["reward"]) for row in rows if different[row["prompt_id"]] > 1)
    said = compared("--where 'std > 0'")
    assert flips(said) == pairs
    done = adv(f"{LINE} --fail-on 'groups > 3'")
    assert done.status == 3
    assert done.err.endswith("the --fail-on condition 'groups > 3' holds; groups is 12\n")


# --- the other option is named where it was meant --------------------------------------------------------------


def test_other_rollouts_are_sent_to_against() -> None:
    rows = rollouts()
    files(rows, "uuid")
    other = [{**row, "completion": f"quite another {row['completion']}"} for row in rows]
    write("other.jsonl", other)
    done = adv("inspect new.jsonl --rescored other.jsonl")
    assert done.status == 1
    assert (
        done.err
        == "error: no rollout is in both inputs (by completion within prompt_id); --against compares different rollouts of the same prompts\n"
    )
    for name in ("new", "other"):  # numbers of samples are the same in every run
        numbered = enumerate(rows_of(f"{name}.jsonl"))
        again = [{**row, "sample": k % 4, "reward": float(k % 2) if name == "new" else 0.5} for k, row in numbered]
        write(f"{name}.jsonl", again)
    done = adv("inspect new.jsonl --rescored other.jsonl")
    assert done.status == 1
    assert (
        done.err
        == "error: the rows with the same sample have different texts in completion (10 of 10 that were compared); they are different rollouts: --against compares different rollouts of the same prompts\n"
    )


def test_rows_that_nothing_pairs_are_sent_to_a_column_beside_the_other() -> None:
    for name, first in (("new", 1), ("old", 0)):
        write(f"{name}.jsonl", [{"prompt_id": "p", "reward": reward} for reward in (first, 0)])
    done = adv(LINE)
    assert done.err.endswith("grpo-adv add makes the old reward a column for --old-rewards-column\n")
    write("column.jsonl", [{"old": 0}, {"old": 0}])
    assert adv("add new.jsonl --from column.jsonl -o both.jsonl").status == 0
    done = adv("inspect both.jsonl --rescored-column old")
    assert "1 up, 0 down" in done.out


def test_options_that_say_nothing_here_are_refused() -> None:
    files(rollouts())
    for more, other in (
        ("--show p0", "--show"),
        ("--by step", "--by"),
        ("--top 3", "--top"),
        ("--against old.jsonl", "--old-rewards"),
    ):
        done = adv(f"{LINE} {more}")
        assert done.status == 2
        assert f"and {other} cannot be combined" in done.err
    done = adv(f"{LINE} --format csv")
    assert done.status == 2
    assert (
        done.err
        == "error: --old-rewards has several tables, and CSV has one; --format md and --json have all of them\n"
    )
    missing = adv("inspect new.jsonl --rescored gone.jsonl")
    assert missing.status == 1
    assert "gone.jsonl" in missing.err


# --- what is shown ------------------------------------------------------------------------------------------------


def test_one_screen_and_markdown_have_the_same_numbers() -> None:
    files(rollouts())
    screen = adv(LINE)
    assert screen.status == 0
    assert len(screen.out.splitlines()) <= 42
    assert all(len(line) <= 80 for line in screen.out.splitlines())
    page = adv(f"{LINE} --format md")
    assert page.status == 0
    said = json.loads(adv(f"{LINE} --json").out)
    assert page.out.rstrip().endswith(said["verdict"])
    for row in said["largest"]:
        assert f"| {row['text']} |" in page.out
    assert said["verdict"] in " ".join(screen.out.split())


def test_flips_of_few_values_are_a_table_and_many_values_are_none() -> None:
    rows = rollouts(16, groups=40, values=(0.0, 0.5, 1.0))
    files(rows)
    pairs = Counter((row["old"], row["reward"]) for row in rows)
    words = [entry.split() for entry in adv(LINE).out.splitlines()]
    at = words.index(["old", "new", "0", "new", "0.5", "new", "1"])
    for entry, value in zip(words[at + 1 : at + 4], (0.0, 0.5, 1.0), strict=True):
        assert entry == [f"{value:g}", *(str(pairs[value, other]) for other in (0.0, 0.5, 1.0))]
    write("new.jsonl", [{**row, "reward": k / 7} for k, row in enumerate(rows)])
    assert compared()["flips"] is None
    assert not any(entry.startswith("old  new ") for entry in adv(LINE).out.splitlines())


def test_small_shares_are_not_shown_as_nothing() -> None:
    rows = [{"prompt_id": k // 4, "uuid": k, "reward": float(k % 4), "old": float(k % 4)} for k in range(8000)]
    rows[5]["reward"] = 1.001
    write("in.jsonl", rows)
    done = adv("inspect in.jsonl --reward reward --rescored-column old")
    words = " ".join(done.out.split())
    assert "(-0.0%)" not in words
    assert "(+0.0%)" not in words
    assert "(0.0%" not in words
    assert "(<0.1% of the total |A|)" in words


def test_the_report_draws_both_rewards() -> None:
    pytest.importorskip("altair")
    files(rollouts())
    done = adv("report new.jsonl --rescored old.jsonl -o a.html")
    assert done.status == 0, done.err
    page = Path("a.html").read_text()
    assert 'id="figure-rescored"' in page
    assert "Rewards of new.jsonl re-scored from old.jsonl" in page
    refused = adv("report new.jsonl --rescored old.jsonl --against old.jsonl -o b.html")
    assert refused.status == 2
    assert not Path("b.html").exists()


# --- files as tools write them ---------------------------------------------------------------------------------


def test_replay_of_verifiers_is_paired_by_the_id_of_the_trace() -> None:
    """Replay appends traces as they are scored, in any order; an episode that failed is copied as it is."""
    named = [(task, f"{task}-{k}") for task in ("a", "b", "c") for k in range(4)]
    old, new = ({trace: float(k % step == 0) for k, (_, trace) in enumerate(named)} for step in (2, 3))
    lines("run/traces.jsonl", [verifiers_episode(task, trace, old[trace]) for task, trace in named])
    again = [verifiers_episode(task, trace, new[trace], episode="replay") for task, trace in named[::-1]]
    lines("replay/traces.jsonl", again)
    said = found(adv("inspect replay/traces.jsonl --rescored run/traces.jsonl --json"))
    assert said["paired"] == {"by": ["id"], "key": ["task.key"], "rows": 12, "only": {"now": 0, "before": 0}}
    assert flips(said) == Counter((old[trace], new[trace]) for _, trace in named)
    lines("replay/traces.jsonl", [row for row in again for _ in range(2)])  # --num-rescores 2
    twice = adv("inspect replay/traces.jsonl --rescored run/traces.jsonl")
    assert twice.status == 1
    assert "id is the same in several rows of a group" in twice.err


def gym_row(task: int, index: int, reward: float) -> Any:
    """A row as NeMo Gym writes it; `gym eval reverify` (00fa09c0c, nemo_gym/rollout_reverification.py) keeps these numbers."""
    said = [{"type": "output_text", "text": f"{task} and {index}"}]
    answer = {"type": "message", "role": "assistant", "content": said}
    return {
        "responses_create_params": {"input": chat(f"question {task}")},
        "response": {"id": f"resp_{task}_{index}", "output": [answer]},
        "reward": reward, "_ng_task_index": task, "_ng_rollout_index": index, "agent_ref": {"name": "simple_agent"},
    }  # fmt: skip


def test_reverified_rollouts_of_nemo_gym_are_paired_by_task_and_index() -> None:
    """Results are written as they complete; rows that the verifier failed on stand in a file beside them."""
    old = {(task, index): float(index % 2) for index in range(4) for task in range(5)}
    new = {place: 1 - reward if place[0] == place[1] else reward for place, reward in old.items()}
    lines("rollouts.jsonl", [gym_row(*place, reward) for place, reward in old.items()])
    done = [gym_row(*place, reward) for place, reward in new.items()][::-1]
    lines("reverified.jsonl", done[2:])
    lines("reverified_failures.jsonl", [{**row, "_ng_failure_class": "judge_failed"} for row in done[:2]])
    said = found(adv("inspect reverified.jsonl --rescored rollouts.jsonl --json"))
    assert said["paired"] == {
        "by": ["_ng_rollout_index"], "key": ["_ng_task_index"], "rows": 18, "only": {"now": 0, "before": 2},
    }  # fmt: skip
    assert said["reward"]["changed"] == 3  # of 4, one of which failed
    assert {row["key"] for row in said["largest"]} == {"0", "1", "2"}


BY_FLAGS = "--group task_name --reward verifier_result.rewards.reward --group-within input"


@pytest.mark.parametrize(
    ("files", "words", "by"),
    [("", "", "source_trial_id"), ("/*/result.json", BY_FLAGS, "config.source_trial.trial_id")],
    ids=["job folders", "results"],
)
def test_regraded_trials_of_harbor_are_paired_with_those_that_they_name(files: str, words: str, by: str) -> None:
    """A regrade is a new trial, whose config names the one it scores again (SourceTrialConfig in harbor/models/trial/config.py).

    It copies the logs of the agent, so texts would tell the same; not every agent leaves a trajectory.
    """
    named = [(task, k) for task in ("a", "b") for k in range(4)]
    for job in ("job", "regraded"):
        harbor.job(Path(job), len(named))
    for place, (task, k) in enumerate(named):
        name = f"{place}-{task}"
        harbor.trial(Path("job"), task, name, {"reward": float(k % 2 == 0)})
        again = harbor.trial(Path("regraded"), task, f"{9 - place}-{task}", {"reward": float(k % 3 == 0)})
        result = json.loads((again / "result.json").read_text())
        path = f"job/{name}"
        source = {"action": "regrade", "type": "local", "trial_id": f"id-{name}", "path": path}
        result["config"]["source_trial"] = source
        (again / "result.json").write_text(json.dumps(result))
    said = found(adv(f"inspect regraded{files} --rescored job{files} {words} --json"))
    assert said["paired"]["by"] == [by]
    assert said["compared"] == 8
    assert flips(said) == Counter((float(k % 2 == 0), float(k % 3 == 0)) for _, k in named)


# --- what pairs rows, and what does not ------------------------------------------------------------------------


def both(now: list[Any], before: list[Any]) -> str:
    write("now.jsonl", now)
    write("before.jsonl", before)
    return "inspect now.jsonl --rescored before.jsonl --json"


def test_a_prompt_that_comes_back_in_another_step_is_paired_within_each_step() -> None:
    rows = [
        {"prompt_id": f"p{prompt}", "sample": k, "step": step, "reward": float(step ^ k % 2)}
        for step, prompt, k in product(range(2), range(2), range(4))
    ]
    line = both(rows, rows[8:] + rows[:8])
    for way in ("--group-within step", "--group step,prompt_id"):
        said = found(adv(f"{line} {way}"))
        key = ["step", "prompt_id"]
        assert said["reward"]["changed"] == 0
        assert said["paired"]["key"] == key
        assert said["paired"]["by"] == ["sample"]
    texts = [{**row, "completion": f"{row['sample']}"} for row in rows]
    for row in texts:
        del row["sample"]
    said = found(adv(both(texts, texts[8:] + texts[:8]), "--group-within", "step"))
    assert said["reward"]["changed"] == 0
    assert said["paired"]["by"] == ["completion"]


def test_blocks_of_a_prompt_are_paired_across_their_ends() -> None:
    rows = rollouts(11, groups=3, size=8)
    line = both(rows, rows[::-1])
    said = found(adv(f"{line} --group prompt_id --group-size 4"))
    assert said["compared"] == 24
    assert said["reward"]["changed"] == 0


def test_equal_texts_are_exchanged_only_where_every_reward_is_equal() -> None:
    rows = [{"prompt_id": "p", "completion": "same", "a": 1.0, "b": float(k)} for k in range(3)]
    line = both(rows, rows[::-1])
    done = adv(f"{line} --reward a=1 --reward b=1")
    assert done.status == 1
    assert "completion is the same in several rollouts" in done.err
    assert found(adv(f"{line} --reward a"))["reward"]["changed"] == 0


def test_keys_and_ids_pair_across_files_with_and_without_types() -> None:
    rows = [{"prompt": k // 4 % 4, "step": k // 16, "trajectory_id": k, "reward": float(k % 2)} for k in range(32)]
    write("a.jsonl", rows)
    pl.DataFrame(rows).write_csv("b.csv")
    flags = "--group prompt --group-within step --rollout trajectory_id --json"
    for new, old in (("a.jsonl", "b.csv"), ("b.csv", "a.jsonl")):
        facts = found(adv(f"inspect {new} --rescored {old} {flags}"))
        assert facts["paired"]["rows"] == 32
        assert facts["paired"]["by"] == ["trajectory_id"]


def test_a_number_and_its_text_are_different_ids() -> None:
    rows = [{**row, "uuid": k} for k, row in enumerate(rollouts(12))]
    line = both(rows, [{**row, "uuid": str(row["uuid"])} for row in rows])
    said = found(adv(line))
    assert said["paired"]["by"] == ["completion"]
    assert said["compared"] == len(rows)
    done = adv(f"{line} --rollout uuid")
    assert done.status == 1
    assert "no rollout is in both inputs (by uuid within prompt_id)" in done.err


def test_ids_that_do_not_pair_are_named_and_texts_are_used() -> None:
    rows = rollouts(12)
    said = found(adv(both(rows, [*rows[::-1], rows[0]])))
    paired = said["paired"]
    assert said["compared"] == 48
    assert paired["by"] == ["completion"]
    assert paired["only"] == {"now": 0, "before": 1}
    assert said["warnings"] == ["uuid pairs no rollouts (null, repeated or other values): their texts do"]
    assert found(adv(both(rows, rows[::-1])))["warnings"] == []


@pytest.mark.parametrize("kind", ["numbers", "wide numbers", "texts"])
def test_ids_of_the_whole_input_pair_only_rows_of_one_group(kind: str) -> None:
    rows = [{name: value for name, value in row.items() if name != "step"} for row in rollouts(14)]
    for k, row in enumerate(rows):
        row["uuid"] = {"numbers": k, "wide numbers": 2**62 - 10**17 * (k % 7) - k, "texts": f"u{k}"}[kind]
        row["prompt_id"] = int(row["prompt_id"][1:]) * (10**18 if kind == "wide numbers" else 1)
    moved = [{**row, "prompt_id": rows[k + 4 * (k < 6)]["prompt_id"]} for k, row in enumerate(rows)]
    said = found(adv(both(rows, moved[::-1])))
    assert said["compared"] == 42
    assert said["paired"]["by"] == ["uuid"]
    assert said["paired"]["only"] == {"now": 6, "before": 6}
    assert said["reward"]["changed"] == 0


def test_inputs_without_a_common_group_name_a_key_of_each() -> None:
    rows = rollouts(15, groups=2)
    done = adv(both(rows, [{**row, "prompt_id": f"q{row['prompt_id']}"} for row in rows]))
    assert done.status == 1
    assert (
        done.err
        == "error: no group is in both inputs (prompt_id is p0 and qp0); --old-rewards takes the same rollouts with another reward; name their key with --group\n"
    )


def test_ids_of_64_unsigned_bits_pair() -> None:
    frame = pl.DataFrame(rollouts(13)).with_columns(completion_id=pl.int_range(pl.len(), dtype=pl.UInt64) + 2**63 + 1)
    frame.drop("uuid", "old").write_parquet("now.parquet")
    frame.drop("uuid", "old").reverse().write_parquet("before.parquet")
    said = found(adv("inspect now.parquet --rescored before.parquet --json"))
    assert said["paired"]["by"] == ["completion_id"]
    assert said["reward"]["changed"] == 0
    assert said["compared"] == len(frame)


def test_texts_inside_of_structs_pair_in_frames() -> None:
    frame = pl.DataFrame([{"prompt_id": k // 4, "r": {"text": f"t{k}"}, "reward": float(k % 2)} for k in range(8)])
    look = grpo_cli.inspect(frame, rescored=frame.reverse(), text_column="r.text")
    assert look.facts["rescored"]["compared"] == 8
    assert look.facts["rescored"]["reward"]["changed"] == 0


def test_lists_that_are_numbered_in_several_files_are_not_paired_by_their_numbers(tmp_path: Path) -> None:
    for side, prompts in (("now", "ab"), ("then", "ba")):
        Path(side).mkdir()
        for at, prompt in enumerate(prompts):
            record = {"prompt": prompt, "completions": ["yes", "no"], "rewards": [1, 0] if prompt == "a" else [0, 1]}
            write(tmp_path / side / f"{at}.jsonl", [record])
    line = "inspect now --rescored then --text-column completions"
    done = adv(line)
    said = "no group is in both inputs (file, record is now/0.jsonl, 0 and then/0.jsonl, 0)"
    assert done.status == 1
    assert said in done.err
    by_prompt = adv(f"{line} --group prompt --json")
    assert json.loads(by_prompt.out)["agreement"]["share"] == 1.0
