"""What `inspect --against` says where prompts change in both directions, where none changes, and of three runs."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import adv, facts_of, ran


def run(name: str, solved: list[int]) -> None:
    """Prompts with 8 rollouts each, so many of which are solved."""
    rows = [f"p{at:03d},{int(k < many)}" for at, many in enumerate(solved) for k in range(8)]
    Path(name).write_text("\n".join(["prompt_id,reward", *rows]) + "\n")


def test_a_mean_that_stays_does_not_hide_prompts_that_fall_and_rise() -> None:
    """15 prompts fall from 7 to 0 of 8, and 85 rise from 3 to 4, with one more to 24: the mean moves by 0.2 points."""
    run("base.csv", [7] * 15 + [3] * 85)
    run("now.csv", [0] * 15 + [4] * 65 + [5] * 20)
    verdict = facts_of("inspect now.csv --against base=base.csv")["verdict"]
    assert verdict.startswith("now.csv shows no clear difference from base on 100 prompts: +0.0 points")
    assert verdict.endswith("but its prompts change by more than chance: 15 are worse, each beyond chance by itself.")


def test_where_no_prompt_changes_it_is_said() -> None:
    run("base.csv", [4, 5, 3, 4] * 5)
    run("now.csv", [5, 4, 4, 3] * 5)
    out = ran("inspect now.csv --against base=base.csv").out
    assert "now.csv: no prompt by itself can be told from chance, after correction for 20 prompts" in " ".join(
        out.split()
    )


def test_of_three_runs_each_has_a_line_in_the_verdict() -> None:
    for name, many in (("a.csv", 2), ("b.csv", 4), ("c.csv", 6)):
        run(name, [many] * 30)
    out = ran("inspect c.csv --against a.csv --against b.csv", COLUMNS="200").out
    lines = out[out.index("\nverdict") :].splitlines()[1:]
    assert lines[0].startswith("verdict        b solves more of these prompts than a: +25.0 points")
    assert lines[1].strip().startswith("c solves more of these prompts than a: +50.0 points")


def test_three_runs_have_short_names_on_the_screen_and_whole_ones_in_the_document() -> None:
    for step in (100, 200, 300):
        Path(f"data/ckpt_{step}").mkdir(parents=True)
        run(f"data/ckpt_{step}/rollouts.csv", [step // 50] * 30)
    line = (
        "inspect data/ckpt_300/rollouts.csv --against data/ckpt_100/rollouts.csv --against data/ckpt_200/rollouts.csv"
    )
    facts = facts_of(line)
    assert facts["runs"][0]["name"] == "data/ckpt_100/rollouts.csv"
    assert facts["verdict"].startswith("ckpt_200 solves more of these prompts than ckpt_100: +25.0 points")
    assert "rollouts.csv" not in ran(line).out
    # Names that were given stay, and so do those of two runs.
    named = f"{line.partition(' --')[0]} --against v=data/ckpt_100/rollouts.csv"
    assert facts_of(named)["verdict"].startswith("data/ckpt_300/rollouts.csv solves more of these prompts than v: ")


def test_two_folders_with_the_same_prompts_are_told_how_runs_are_compared() -> None:
    for name in ("old/1.csv", "old/2.csv", "new/1.csv", "new/2.csv"):
        Path(name).parent.mkdir(exist_ok=True)
        run(name, [4] * 5)
    assert "grpo-adv inspect NEW --against OLD" in adv("inspect old new").err


def test_two_files_with_the_same_prompts_are_told_how_runs_are_compared() -> None:
    run("a.csv", [2] * 5)
    run("b.csv", [4] * 5)
    for command in ("inspect a.csv b.csv", "compare a.csv b.csv --method grpo --method rloo"):
        done = adv(command)
        assert done.status != 0
        assert "grpo-adv inspect NEW --against OLD" in " ".join(done.err.split())


def test_a_change_in_one_direction_that_may_be_chance_is_not_told_as_one_beyond_it() -> None:
    """4 of 8 and then 8 of 8: as far apart in 7.7 % of all deals."""
    run("base.csv", [4])
    run("now.csv", [8])
    verdict = facts_of("inspect now.csv --against base=base.csv")["verdict"]
    assert verdict.startswith("now.csv shows no clear difference from base on this prompt: +50.0 points (p = 0.0")
    assert "beyond" not in verdict
    assert "more than chance" not in verdict


def test_graded_rewards_are_no_counts_of_solved_rollouts() -> None:
    for name, first in (("base.csv", 0.25), ("now.csv", 0.4)):
        Path(name).write_text(f"prompt_id,reward\na,{first}\na,0.75\nb,1\nb,0\n")
    out = ran("inspect now.csv --against base=base.csv --sort change").out
    assert "0.50 (2)" in out
    assert "1/2" not in out


def test_nothing_is_solved_where_rewards_are_graded() -> None:
    for name, up in (("base.csv", 0), ("now.csv", 0.5)):
        rows = [f"p{at},{-2 + at / 100 + k / 5 + up}" for at in range(40) for k in range(4)]
        Path(name).write_text("\n".join(["prompt_id,reward", *rows]) + "\n")
    verdict = facts_of("inspect now.csv --against base=base.csv")["verdict"]
    assert verdict.startswith("now.csv has a higher mean reward on these prompts than base: +")
    verdict = facts_of("inspect base.csv --against now=now.csv")["verdict"]
    assert verdict.startswith("base.csv has a lower mean reward on these prompts than now: -")


def test_rates_of_other_prompts_are_not_those_of_the_prompts_of_both() -> None:
    """The rates are 10 and 75 %, and of the prompts of both 20 and 75 %."""
    run("base.csv", [2] * 30 + [0] * 30)
    run("now.csv", [6] * 30)
    verdict = facts_of("inspect now.csv --against base=base.csv")["verdict"]
    assert verdict.startswith("now.csv solves more of the 30 prompts of both than base: +")


def test_a_long_name_and_many_prompts_fit_in_80_columns() -> None:
    name = "a_very_long_name_of_a_run_that_was_scored_again.csv"
    run("base.csv", [2, 6] * 60)
    run(name, [6, 4] * 60)
    out = ran(f"inspect {name} --against base=base.csv").out
    at = out.splitlines().index("difference from base, on the prompts of both")
    head, line, _ = out.splitlines()[at + 1 : at + 4]
    assert head.split()[-2:] == ["better/worse", "(chance)"]
    assert line.split()[-2].startswith("60/60")
    assert len(line) <= 80
    assert "to detect a change of" in " ".join(out.split())
    assert "a change of 2 points would take" in " ".join(out.split())


def cut_off_run(name: str, every: int) -> None:
    """40 prompts of 8 rollouts, half of them solved; every so many-th response is cut off."""
    rows = [f"p{at},{k % 2},{'length' if (at * 8 + k) % every == 0 else 'stop'}" for at in range(40) for k in range(8)]
    Path(name).write_text("\n".join(["prompt_id,reward,finish_reason", *rows]) + "\n")


def test_a_run_that_cuts_off_more_responses_says_so() -> None:
    cut_off_run("base.csv", 20)
    cut_off_run("now.csv", 3)
    verdict = facts_of("inspect now.csv --against base=base.csv")["verdict"]
    assert verdict.endswith("). 33.4% of its responses are cut off, 5% of those of base.")
    assert (
        "5% of its responses are cut off, 33.4% of those of now."
        in ran("inspect base.csv --against now=now.csv", COLUMNS="300").out
    )


def test_whole_prompts_that_are_cut_off_are_no_clear_difference() -> None:
    """11 and 13 of 40 prompts: 27.5 and 32.5 % of the responses, which are not told from chance."""
    for name, many in (("base.csv", 11), ("now.csv", 13)):
        rows = [f"p{at},{k % 2},{'length' if at < many else 'stop'}" for at in range(40) for k in range(8)]
        Path(name).write_text("\n".join(["prompt_id,reward,finish_reason", *rows]) + "\n")
    assert "cut off" not in facts_of("inspect now.csv --against base=base.csv")["verdict"]
