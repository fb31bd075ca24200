"""The report: its numbers, the page as a browser shows it, and the pictures."""

from __future__ import annotations

import html
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.cli.report import _command
from grpo_cli.render.figures import OUTCOMES, Figure, figures
from grpo_cli.render.report import MOST, page_of, write_report
from grpo_cli.render.report.charts import chart
from grpo_cli.runs import group_rows
from grpo_cli.stats.facts import BARS, count_by_kind
from grpo_cli.stats.runs import Runs, compared
from grpo_cli.stats.verdicts import percent, with_other
from tests.support.command import adv
from tests.support.jobs import inspected, write

if TYPE_CHECKING:
    from grpo_cli.stats.inspection import Inspection

NASTY = "</script><script>alert(1)</script> <b>bold</b> \u2028 & 'quoted'"


def rows() -> list[dict[str, Any]]:
    """Twelve groups of four rows over three steps: three always solved, four never, and one row without a reward."""
    found = []
    rewards = "1111 1111 0000 0000 0000 1000 1100 1110 0000 1000 1100 111-"
    for group, digits in enumerate(rewards.split()):
        for i, digit in enumerate(digits):
            row = {"prompt_id": f"p{group:02}", "step": group // 4, "reward": json.loads(digit.replace("-", "null"))}
            row |= {"length": 10 * i + group, "completion": f"text {group} {i}", "prompt": f"what is {group}?"}
            found.append(row)
    found[20]["completion"] = NASTY
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    return inspected(write(tmp_path_factory.mktemp("report") / "a.jsonl", rows()), by_steps=True)


def beside(now: Inspection, before: Inspection) -> Inspection:
    """A run beside another one, as `report --against` reads both."""
    found = replace(compared({"before": before, "now": now}), trends={"before": before.facts.by})
    return with_other(now, found, found.verdict, found.warnings)


def drawn(found: Inspection) -> dict[str, Figure]:
    return {one.name: one for one in figures(found)}


def logged(path: str, steps: str, length: int = 0) -> Path:
    """A log: a line is a step, a word a group, a digit the reward of a row."""
    rows = [
        {"prompt_id": f"{step} {group}", "step": step, "reward": int(digit), "length": length}
        for step, line in enumerate(steps.splitlines())
        for group, word in enumerate(line.split())
        for digit in word
    ]
    return write(path, rows)


def drawn_of(path: Path | str, **options: Any) -> dict[str, Figure]:
    return drawn(inspected(path, **options))


# --- numbers -----------------------------------------------------------------------------------------------


def test_groups_whose_reward_is_0_or_1_up_to_rounding_are_never_or_always_solved() -> None:
    rounding = 0.1 + 0.2 - 0.3
    below_1 = 1 - 2**-53
    rewards = [rounding, rounding, 0.0, 0.0, below_1, below_1, 1.0, 1.0, 0.5, 0.5]
    keys = {"prompt_id": [*"aabbccddee"], "step": [0] * 8 + [1] * 2}
    pl.DataFrame({**keys, "reward": rewards}).write_parquet("a.parquet")
    found = inspected("a.parquet", by_steps=True)
    counts = Counter[str]()
    for line in drawn(found)["rewards"].lines:
        counts[line["kind"]] += line["count"]
    assert counts == {OUTCOMES[1]: 4, OUTCOMES[2]: 4, OUTCOMES[3]: 2}
    split = found.facts.summary.zero_variance
    assert split.all_best == 2
    assert split.all_worst == 2
    assert split.other == 1
    assert found.facts.by is not None
    first, second = found.facts.by.lines
    assert first.all_best == first.all_worst == 0.5
    assert second.all_best == second.all_worst == 0


def test_groups_are_counted_by_size_where_sizes_differ(found: Inspection) -> None:
    assert "sizes" not in drawn(found)
    assert drawn(found)["rewards"].caption.endswith("Every group has 4 rows.")
    lines = drawn_of(logged("a.jsonl", "01 010 010"))["sizes"].lines
    assert [(line["value"], line["count"]) for line in lines] == [(2, 1), (3, 2)]


def test_a_page_does_not_contradict_itself() -> None:
    """Graded or missing rewards give other rates than k/n: then the sizes of groups were said to differ."""
    columns = {"prompt_id": [*"aaaabbbbcccc"], "right": [0, 1] * 6, "form": [0.0, 0.5, 1.0] * 4}
    pl.DataFrame(columns).write_ndjson("a.jsonl")
    page = page_of(inspected("a.jsonl", reward=["right", "form=0.2"]))
    assert "Every group has 4 rows." in page
    assert "izes differ" not in page
    assert "<li>reward = right + 0.2 form</li>" in page


def test_the_captions_of_a_long_run_have_the_numbers_of_its_verdict() -> None:
    step = np.arange(900) // 2
    reward = (step * 7 + np.arange(900) % 2) % 100 / 100 + step / 100
    pl.DataFrame({"prompt_id": step, "step": step, "reward": reward}).write_parquet("long.parquet")
    found = inspected("long.parquet", by="step")
    (course,) = re.findall(r"the mean reward (goes from [\d.]+ to [\d.]+)", found.facts.verdicts[0])
    assert drawn(found)["mean_reward"].caption.startswith(f"The mean reward {course}.")


def test_the_course_of_a_run_comes_before_what_is_asked_for_by_another_column() -> None:
    at = np.arange(80)
    columns = {"prompt_id": at // 2, "env": [*"aabb"] * 20, "step": at // 8, "reward": at // 2 % 3 * (at % 2)}
    pl.DataFrame(columns).write_parquet("run.parquet")
    figures_of = drawn_of("run.parquet", by="env")
    over = [name for name, figure in figures_of.items() if figure.x == "step"]
    assert [*figures_of][: len(over)] == over
    assert "mean_reward_steps" in over
    assert figures_of["mean_reward"].kind == "bars"
    alone = drawn_of("run.parquet", by="step")
    assert replace(figures_of["mean_reward_steps"], name="mean_reward") == alone["mean_reward"]


def test_each_of_several_rewards_has_a_figure() -> None:
    Path("a.csv").write_text("prompt_id,format,accuracy\n0,0,0\n0,1,1\n0,0,2\n1,1,0\n1,0,1\n1,0,2\n")
    figures = drawn_of("a.csv", reward=["format", "accuracy"])
    assert figures["component_0"].title == "Rewards, format"
    assert figures["component_1"].title == "Rewards, accuracy"
    assert [(line["value"], line["count"]) for line in figures["component_0"].lines] == [(0, 4), (1, 2)]
    assert [(line["value"], line["count"]) for line in figures["component_1"].lines] == [(0, 2), (1, 2), (2, 2)]


def table_of(found: Inspection, **most: int) -> group_rows.GroupTable:
    """The table of a page with rows, in the order of the file."""
    listed = group_rows.with_rows(found, group_rows.report_groups(found), **most)
    places = sorted(range(len(listed.lines)), key=lambda at: listed.lines[at][1])
    rows = {new: listed.rows[old] for new, old in enumerate(places) if old in listed.rows}
    of_groups: Any = {
        name: [getattr(listed, name)[at] for at in places] for name in ("lines", "keys", "beginnings", "strips")
    }
    return replace(listed, rows=rows, **of_groups)


def column(table: group_rows.GroupTable, name: str) -> list[Any]:
    return [line[table.columns.index(name)] for line in table.lines]


def told(group: group_rows.GroupRows) -> Sequence[Sequence[tuple[str, str]]]:
    assert group.said is not None
    return group.said


def test_the_table_has_whole_keys_the_truth_and_both_ends_of_a_text() -> None:
    keys = [f"Please solve this long problem with care, {'and care ' * 30}: {n} + 1" for n in range(2)]
    text = "begin " + "thinking " * 1000 + "boxed 7"
    columns = {"prompt": [*keys, *keys], "response": [text] * 4, "answer": [*"xyxy"], "step": [0, 1, 0, 1]}
    pl.DataFrame({**columns, "reward": [0, 0, 1, 1]}).write_ndjson("a.jsonl")
    table = table_of(inspected("a.jsonl", by_steps=True))
    assert table.keys == keys
    assert table.beginnings == ["", ""]  # the key says it
    assert column(table, "step") == [0, 1]
    assert column(table, "key") == ["0", "1"]
    assert column(table, "number") == [1, 2]
    assert [row.truth for row in table.rows.values()] == ["x", "y"]
    ((speaker, shown),) = told(table.rows[0])[0]
    assert speaker == "response"
    assert re.fullmatch("begin .*boxed 7", shown, re.DOTALL)
    assert len(shown) == group_rows.LONGEST


def test_figures_count_every_group_and_every_row_with_a_reward(found: Inspection) -> None:
    figures = drawn(found)
    differ, always, never, *_ = OUTCOMES
    rewards = {(line["value"], line["kind"]): line["count"] for line in figures["rewards"].lines}
    assert rewards == {(0, differ): 11, (1, differ): 9, (1, always): 11, (0, never): 16}
    bars = {line["value"]: line["count"] for line in figures["solve_rates"].lines}
    assert bars["never"] == 4
    assert bars["always"] == 3
    assert sum(bars.values()) == 12
    assert sum(line["count"] for line in figures["lengths"].lines) == 47
    assert found.facts.by is not None
    shares = [line.zero_variance for line in found.facts.by.lines]
    assert [line["share"] for line in figures["zero_variance"].lines] == shares


@pytest.mark.parametrize(
    "values", [range(1, 501), np.arange(251) / 250, np.arange(-64, 65) / 64, [*range(7, 300), 301]]
)
def test_every_bin_has_as_many_steps_as_the_next_except_the_last(values: Any) -> None:
    values = np.array(values, dtype=float)
    lines = count_by_kind(pl.Series(values), np.zeros(len(values), dtype=int), OUTCOMES)
    first, *others, last = [line["count"] for line in lines]
    assert len(lines) <= BARS
    assert {*others} <= {first}
    assert 0.7 * first <= last <= first
    widths = [line["to"] - line["from"] for line in lines]
    assert max(widths) == pytest.approx(min(widths))
    for line in lines:
        inside = (line["from"] < values) & (values < line["to"])
        assert line["count"] == inside.sum()


def test_up_to_a_hundred_and_one_values_have_a_bar_each() -> None:
    values = [k / 100 for k in range(101)]
    lines = count_by_kind(pl.Series(values), np.zeros(101, dtype=int), OUTCOMES)
    assert [line["value"] for line in lines] == values
    assert {line["count"] for line in lines} == {1}


def test_the_caption_counts_rollouts_where_they_have_several_rows() -> None:
    """Two rollouts of a with the rewards 1 and 0, two of b with 1; each has three rows."""
    rows = "a,1,1\n" * 3 + "a,2,0\n" * 3 + "b,3,1\n" * 3 + "b,4,1\n" * 3
    frame = pl.read_csv(f"prompt_id,id,reward\n{rows}".encode())
    caption = drawn(grpo_cli.inspect(frame, rollout="id").inspection)["rewards"].caption
    assert caption == "2 of 4 rollouts are in groups with a gradient. Every group has 2 rollouts."


def test_a_reward_column_called_advantage_and_the_advantages_are_two_columns() -> None:
    frame = pl.DataFrame({"prompt_id": [1, 1], "advantage": [0, 1], "accuracy": [5, 5]})
    facts = table_of(grpo_cli.inspect(frame, reward=["advantage", "accuracy"]).inspection)
    assert facts.heads == ["row", "rewards.advantage", "accuracy", "reward", "advantage", "status"]
    assert [line[1] for line in facts.rows[0].lines] == [0.0, 1.0]


def test_the_band_of_the_reward_is_the_interval_of_the_runs_over_groups() -> None:
    """With groups of one size it is Student's, of their means and four imagined ones: two of the worst and two of the best reward.

    Student's t of 5 degrees is 2.57058: the means 0.25 0.75 0 0 1 1 have the mean 0.5 and the std 0.47434.
    """
    log = logged("a.jsonl", "0001 0111\n0101\n11 11")
    zero, one, two = drawn_of(log, by_steps=True)["mean_reward"].lines
    assert zero["mean"] == 0.5
    assert "low" not in one
    assert zero["low"] == pytest.approx(0.5 - 2.57058 * 0.47434 / 6**0.5, abs=1e-3)
    assert zero["high"] == pytest.approx(0.5 + 2.57058 * 0.47434 / 6**0.5, abs=1e-3)
    assert two["low"] == pytest.approx(2 / 3 - 2.57058 * 0.51640 / 6**0.5, abs=1e-3)  # two solved groups prove little
    assert two["high"] == 1.0  # a mean of rewards cannot leave them


def test_a_larger_group_counts_more_in_the_band_as_in_the_mean() -> None:
    """Eight groups of 2 rows with the mean 0.5 and two of 40 rows that are always solved: the band is around the mean of the rows."""
    step = f"{'01 ' * 8}{'1' * 40} {'1' * 40}\n"
    line = drawn_of(logged("a.jsonl", step * 2), by_steps=True)["mean_reward"].lines[0]
    assert line["mean"] == pytest.approx(88 / 96)
    assert line["low"] < line["mean"] < line["high"]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("finish_reason", ["length", "stop", "tool_calls", None]),
        ("stop_reason", ["max_tokens", "end_turn", "", None]),
        ("is_truncated", [1, 0, 0, None]),
    ],
)
def test_responses_that_were_cut_off_and_rows_without_a_reward_are_shares_of_a_step(
    column: str, values: list[Any]
) -> None:
    known = {"prompt_id": [*"aaaabbbb"], "step": [0] * 4 + [1] * 4, "reward": [0, 1, 0, 1, None, 1, 0, 1]}
    pl.DataFrame({**known, column: values * 2}).write_parquet("a.parquet")
    lines = drawn_of("a.parquet", by_steps=True)["ended"].lines
    shares = {f"{line['kind']} in {line['value']}": line["share"] for line in lines}
    assert shares == {
        "truncated in 0": 0.25, "truncated in 1": 0.25, "without a reward in 0": 0, "without a reward in 1": 0.25,
    }  # fmt: skip


def test_conversations_that_do_not_fit_are_those_of_the_first_groups_and_the_page_says_so() -> None:
    texts = [f"{at} " + "x" * 990 for at in range(400)]
    at = np.arange(400)
    pl.DataFrame({"prompt_id": at // 2, "reward": at % 2, "completion": texts}).write_ndjson("a.jsonl")
    facts = table_of(inspected("a.jsonl"), text=50_000)
    places = [at for at, one in facts.rows.items() if one.said]
    assert 24 <= len(places) <= 26
    assert places == [*range(len(places))]
    assert f" {len(places)} of them have their rollouts here, some of each solve rate." in facts.says
    assert told(facts.rows[1])[1] == [("response", texts[3])]


def test_a_long_conversation_is_whole_and_one_that_is_larger_than_the_page_has_the_ends_of_its_turns() -> None:
    texts = ["go on", *(f"{at} " + "y" * 500 for at in range(100))]
    chat = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    pl.DataFrame({"prompt_id": ["a"] * 4, "messages": [chat] * 4, "reward": [0, 1, 0, 1]}).write_ndjson("a.jsonl")
    found = inspected("a.jsonl")
    (whole,) = table_of(found).rows.values()
    assert [text for _, text in told(whole)[0]] == texts[1:]
    (cut,) = table_of(found, text=40_000).rows.values()
    assert sum(len(text) for row in told(cut) for _, text in row) <= 40_000
    assert len(told(cut)[0]) == 100


@pytest.mark.parametrize(("slope", "said"), [(1, "get higher"), (-1, "get lower"), (0, "do not get higher")])
def test_the_caption_says_whether_longer_responses_get_higher_rewards(slope: int, said: str) -> None:
    at = np.arange(64)
    length = 50 + slope * (at % 2) * 9 + at % 4 // 2
    pl.DataFrame({"prompt_id": at // 8, "reward": at % 2, "length": length}).write_ndjson("a.jsonl")
    caption = drawn_of("a.jsonl")["lengths"].caption
    assert caption.startswith(f"Longer responses {said} rewards (r = ")
    assert "-0.00" not in caption
    assert "+0.00" not in caption


def test_other_sizes_have_the_intervals_and_the_bounds_that_the_terminal_prints() -> None:
    figure = drawn_of(logged("a.jsonl", "0000 0001 0011 0111 1111 " * 12))["other_sizes"]
    *others, last = figure.lines
    assert last["value"] == 8
    ends = f"{percent(others[0]['share'])} at 2, {percent(last['share'])} at 8"
    assert figure.caption.endswith(f": {ends}. A bar is the 95% interval.")
    assert all(line["low"] < line["share"] < line["high"] for line in figure.lines)
    thirds = logged("b.jsonl", "0123 " * 15 + "000 " * 5)
    bound = drawn_of(thirds)["other_sizes"]
    assert bound.caption.endswith(": 75% at 2, >=75% at 4. A bar is the 95% interval.")
    assert bound.lines[-1]["high"] == 1.0


def categories() -> Inspection:
    """Two groups of math have a gradient, two of code none, one of three of logic; one response of code was cut off."""
    rows = """\
prompt_id,env,reward,length,finish_reason
0,math,0,10,stop
0,math,1,10,stop
1,math,0,11,stop
1,math,1,11,stop
2,code,0,12,stop
2,code,0,12,length
3,code,1,13,stop
3,code,1,13,stop
4,logic,0,14,stop
4,logic,1,14,stop
5,logic,0,15,stop
5,logic,0,15,stop
6,logic,0,16,stop
6,logic,1,16,stop
7,it's,0,17,stop
7,it's,1,17,stop
"""
    pl.read_csv(rows.encode()).write_parquet("a.parquet")
    return inspected("a.parquet", by="env", by_steps=True)


def test_categories_are_bars_sorted_by_the_share_without_a_gradient_and_do_not_go_anywhere() -> None:
    trends = {name: one for name, one in drawn(categories()).items() if one.kind == "bars"}
    assert [*trends] == ["mean_reward", "zero_variance", "length_over", "spread_over", "ended"]
    for figure in trends.values():
        assert list(dict.fromkeys(line["value"] for line in figure.lines)) == ["code", "logic", "it's", "math"]
        assert figure.title.endswith(" by env")
        assert "goes" not in figure.caption
    assert trends["mean_reward"].caption.startswith("The mean reward is between 0.333 (logic) and 0.5 (")
    without = trends["zero_variance"].caption
    assert without == "The share of groups without a gradient is between 0% (it's) and 100% (code)."
    assert trends["ended"].caption == "The share truncated is between 0% (logic) and 25% (code)."


def test_bars_of_two_runs_stand_below_each_other_in_a_picture_too() -> None:
    found = categories()
    write_report(beside(found, found), Path("a.svg"))
    picture = Path("a.svg").read_text()
    bars = re.findall(r'aria-label="mean: [^"]*" [^>]* d="M0,([\d.]+)h[\d.]+v([\d.]+)h', picture)
    assert len(bars) == 24
    of_a_figure = sorted({(float(start), float(start) + float(high)) for start, high in bars})
    for (_, end), (start, _) in pairwise(of_a_figure):
        assert end <= start + 1e-6
    assert "nbsp" not in picture


def test_of_many_categories_those_with_the_largest_shares_are_drawn_and_the_others_counted() -> None:
    lines = [f"{k},never {k},0\n{k},never {k},0\nx{k},both {k},0\nx{k},both {k},1\n" for k in range(50)]
    Path("a.csv").write_text("".join(["prompt_id,env,reward\n", *lines]))
    figure = drawn_of("a.csv", by="env")["mean_reward"]
    assert all(line["value"].startswith("never") for line in figure.lines)
    assert len(figure.lines) == 40
    assert figure.caption.endswith(" 60 values with smaller shares without a gradient are not drawn.")


def test_captions_say_what_a_figure_shows() -> None:
    log = pl.read_ndjson(logged("a.jsonl", "0000 0101\n0000 0101\n0000 01010")).drop("length")
    truncated = "0000 0000" + "1000 1000" + "1100 11000"
    log = log.with_columns(truncated=pl.Series(map(int, truncated.replace(" ", ""))))
    log.write_parquet("a.parquet")
    figures = drawn_of("a.parquet", by_steps=True, method="rloo")
    assert figures["ended"].caption == "The share truncated is 0% at first and 44.4% at last."
    assert figures["sizes"].caption == "Groups have 4 to 5 rows; 83.3% have 4."
    without = "48% of the rows have the advantage 0 and no gradient; the others have -0.667 to 0.75."
    assert figures["advantages"].caption == without
    assert figures["spread_over"].caption.endswith(" Groups at 0 have no gradient.")
    assert figures["solve_rates"].caption.endswith(" Groups of different sizes are smoothed across bars.")


@pytest.mark.parametrize("size", [2, 7, 9, 10, 64])
def test_the_condition_of_a_bar_is_short_and_holds_its_solve_rate_alone(size: int) -> None:
    log = logged("a.jsonl", " ".join("1" * k + "0" * (size - k) for k in range(size + 1)))
    always_failed, *bars, always_solved = [line["where"] for line in drawn_of(log)["solve_rates"].lines]
    assert always_failed == "solve_rate == 0"
    assert always_solved == "solve_rate == 1"
    for k, where in enumerate(bars, start=1):
        ((low, high),) = re.findall(r"^(0\.\d{1,3}) < solve_rate < ([01]\.\d{1,3})$", where)
        assert (k - 1) / size < float(low) < k / size < float(high) < (k + 1) / size


def test_the_runs_that_are_compared_are_in_the_same_figures() -> None:
    """Their trends are lines, their solve rates and changes from the first are bars with intervals."""
    logged("a.jsonl", "1000 1000 1000 1000 1000 1000 1000 1000\n" * 4, length=1)
    logged("b.jsonl", "1110 1110 1110 1110 1110 1110 1110 1110\n" * 4, length=3)
    logged("now.jsonl", "1100 1100 1100 1100 1100 1100 1100 1100\n" * 4, length=4)
    done = adv("report now.jsonl --against first=a.jsonl --against b.jsonl --pass-at 2 -o r.html")
    assert done.status == 0, done.err
    page = Path("r.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)
    charts = json.loads(data)["charts"]
    for name, field, now in (("mean_reward", "mean", 0.5), ("zero_variance", "share", 0), ("length_over", "mean", 4)):
        chart = charts[name]
        (lines,) = (rows for rows in chart["datasets"].values() if "kind" in rows[0])
        assert Counter(line["kind"] for line in lines) == {"now.jsonl": 4, "first": 4, "b.jsonl": 4}
        assert {line[field] for line in lines if line["kind"] == "now.jsonl"} == {now}
    assert "The mean reward is 0.5 in every step; first: is 0.25 in every step; b.jsonl: is 0.75 in every step." in page
    assert "b.jsonl solves more of these prompts than first: +50.0 points" in page
    rates = json.dumps(charts["run_rates"])
    changes = json.dumps(charts["run_changes"])
    assert all(run in rates for run in ("first", "b.jsonl", "now.jsonl", "pass@2", "pass^2"))
    assert "change from first" in changes
    assert '"share": 0.5' in changes


def test_of_several_runs_the_figures_of_one_say_of_which(found: Inspection) -> None:
    two = drawn(beside(found, found))
    assert two["solve_rates"].title == "Solve rates of now"
    assert two["run_rates"].title == "Solve rates of the runs"
    assert drawn(found)["solve_rates"].title == "Solve rates"
    page = page_of(beside(found, found))
    assert '<h2>now</h2><dl class="tiles">' in page
    assert '<h2>now</h2><dl class="tiles">' not in page_of(found)


@pytest.mark.parametrize(("groups", "ticks"), [(1, [0, 1]), (6, [0, 1, 2, 3, 4, 5, 6]), (7, None)])
def test_an_axis_of_few_groups_has_no_ticks_between_them(groups: int, ticks: list[int] | None) -> None:
    figure = drawn_of(logged("a.jsonl", "01 " * groups))["solve_rates"]
    axis = chart(figure).to_dict()["encoding"]["y"]["axis"]
    assert axis.get("values") == ticks
    assert axis["format"] == ",d"


def test_numbers_stand_on_a_scale_and_bars_are_as_wide_as_their_distance() -> None:
    figure = drawn_of(logged("a.jsonl", "0001 0011 0111 0000"))["advantages"]
    values = {line["value"] for line in figure.lines}
    assert 0.0 in values
    specification = chart(figure).to_dict()
    assert specification["encoding"]["x"]["type"] == "quantitative"
    ordered = sorted(values)
    closest = min(other - one for one, other in pairwise(ordered))
    assert specification["mark"]["size"] == pytest.approx(
        max(3, min(30, 0.8 * 380 * closest / (ordered[-1] - ordered[0])))
    )
    ends = {(line["value"], line["kind"]): (line["start"], line["end"]) for line in chart(figure).data.values}
    assert {high - low for low, high in ends.values()} == {line["count"] for line in figure.lines}


def test_rates_by_length_are_means_of_rollouts_of_similar_length_and_of_those_that_were_cut_off() -> None:
    """Rollouts of 10 to 89 tokens, of which the longer half is solved, and 20 of 99 tokens that were cut off and are not."""
    at = np.arange(100)
    columns = {
        "prompt_id": at % 10, "length": np.minimum(10 + at, 99) * (at < 80) + 99 * (at >= 80),
        "reward": ((at >= 40) & (at < 80)).astype(int), "finish_reason": np.where(at < 80, "stop", "length"),
    }  # fmt: skip
    pl.DataFrame(columns).write_parquet("a.parquet")
    figure = drawn_of("a.parquet", by_steps=True)["lengths"]
    assert figure.title == "Solve rate by length"
    *finished, cut_off = figure.lines
    assert [line["mean"] for line in finished] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert sum(line["count"] for line in finished) == 80
    assert (cut_off["from"], cut_off["to"], cut_off["mean"], cut_off["count"], cut_off["kind"]) == (
        99,
        99,
        0,
        20,
        "truncated",
    )
    for line in figure.lines:
        assert 0 <= line["low"] <= line["mean"] <= line["high"] <= 1
        assert line["from"] <= line["at"] <= line["to"]


def test_a_long_trend_is_thinned_out() -> None:
    lines = drawn_of(logged("a.jsonl", "01\n" * 900), by_steps=True)["mean_reward"].lines
    assert len(lines) == 200
    assert lines[0]["value"] == 0
    assert lines[-1]["value"] == 899


def test_the_table_has_every_group_the_never_solved_and_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"prompt_id": f"p{p}", "reward": int(at < p % 3), "length": 10 * p + at, "finish_reason": "length" if p == 3 else "stop"}
        for p in range(9) for at in range(2)
    ]  # fmt: skip
    found = inspected(write(Path("a.jsonl"), rows), by_steps=True)
    table = group_rows.report_groups(found)
    assert table.keys == ["p3", "p6", "p0", "p7", "p4", "p1", "p8", "p5", "p2"]  # p3 was cut off
    assert table.strips == ["00"] * 3 + ["70"] * 3 + ["77"] * 3
    assert table.shown == ["key", "number", "solve_rate", "length", "truncated"]
    monkeypatch.setattr(group_rows, "GROUPS", 3)
    sample = group_rows.with_rows(found, group_rows.report_groups(found))
    assert sample.keys == ["p3", "p4", "p2"]
    assert sample.says.startswith("3 of 9 groups, evenly sampled. Never solved and longest first.")


def test_ten_thousand_groups_are_all_in_the_table_and_some_of_every_bar_and_step_have_their_rows() -> None:
    at = np.arange(20_000)
    group = at // 2
    columns = {"prompt_id": group, "reward": at % 2 * (group % 10 > 0), "step": group // 2_500}
    pl.DataFrame(columns).write_parquet("a.parquet")
    table = group_rows.report_groups(found := inspected("a.parquet", by_steps=True))
    assert len(table.lines) == 10_000
    assert {*table.keys} == {*map(str, range(10_000))}
    with_rows = group_rows.with_rows(found, table, most=40)
    rates, steps = column(table, "solve_rate"), column(table, "step")
    opened = Counter((rates[place], steps[place]) for place in with_rows.rows)
    assert opened == dict.fromkeys([(rate, step) for rate in (0.0, 0.5) for step in range(4)], 5)
    assert 0 in with_rows.rows


def test_every_bar_has_groups_with_their_rows_however_many_steps_and_rates_there_are() -> None:
    """400 steps of one never solved group and two others each: the never solved ones took all of the room."""
    group = np.arange(1_200).repeat(4)
    at = np.arange(4_800) % 4
    graded = np.where(group % 3 == 0, 0.0, np.where(group % 3 == 1, at % 2, group / 1_200 * (at + 1) / 4))
    pl.DataFrame({"prompt_id": group, "reward": graded, "step": group // 3}).write_parquet("a.parquet")
    found = inspected("a.parquet", by_steps=True)
    table = group_rows.with_rows(found, group_rows.report_groups(found), most=60)
    rates = column(table, "solve_rate")
    tenths = Counter(int(np.ceil(10 * rates[place])) for place in table.rows)
    assert {*tenths} == {int(np.ceil(10 * rate)) for rate in rates}
    assert max(tenths.values()) - min(tenths.values()) <= 1
    steps = column(table, "step")
    assert len({steps[place] for place in table.rows if rates[place] == 0}) == tenths[0]


def test_the_table_has_the_prompt_the_environment_and_k_of_n() -> None:
    at = np.arange(24)
    columns = {
        "task": at // 4, "env_name": [*"aaaabbbb"] * 3, "question": [f"what is {one // 4} times 4?" for one in at],
        "score": [1, 0, 1, None] * 6,
    }  # fmt: skip
    pl.DataFrame(columns).write_ndjson("a.jsonl")
    table = table_of(inspected("a.jsonl", group=["task"], reward=["score"]))
    assert column(table, "env_name") == ["a", "b"] * 3
    assert table.beginnings == [f"what is {one} times 4?" for one in range(6)]
    assert table.strips == ["770-"] * 6
    assert table.solved
    assert [*zip(column(table, "solve_rate"), column(table, "scored"), column(table, "size"), strict=True)] == [
        (pytest.approx(2 / 3, abs=1e-6), 3, 4)
    ] * 6
    of_many = columns | {"env_name": [f"{one // 4}" for one in at]}  # another name for each prompt is no environment
    pl.DataFrame(of_many).write_ndjson("b.jsonl")
    assert "env_name" not in table_of(inspected("b.jsonl", group=["task"], reward=["score"])).columns


def test_by_the_environment_the_table_keeps_the_step() -> None:
    at = np.arange(32)
    pl.DataFrame({"prompt_id": at // 4, "env": [*"aaaabbbb"] * 4, "step": at // 8, "reward": at % 3 % 2}).write_parquet(
        "a.parquet"
    )
    table = table_of(inspected("a.parquet", by="env"))
    assert column(table, "step") == [0, 0, 1, 1, 2, 2, 3, 3]
    assert column(table, "env") == ["a", "b"] * 4


@pytest.mark.parametrize("size", [3, 16, 17, 40])
def test_a_strip_has_the_rewards_from_the_best_to_the_worst_and_few_of_many(size: int) -> None:
    rewards = [k / (size - 1) for k in range(size)]
    pl.DataFrame({"prompt_id": [0] * size, "reward": rewards}).write_parquet("a.parquet")
    (strip,) = table_of(inspected("a.parquet")).strips
    assert len(strip) == min(size, group_rows.STRIP)
    assert [*strip] == sorted(strip, reverse=True)
    assert strip.startswith("7")
    assert set(strip) == {"7", "4", "0"} if size == 3 else {*strip} == {*"01234567"}


def test_the_rows_of_a_listed_group_are_its_first_ones_with_their_advantages() -> None:
    texts = [f"{at}" + "x" * 3000 for at in range(90)]
    at = np.arange(90)
    pl.DataFrame({"prompt_id": at % 3, "reward": at % 2, "completion": texts}).write_ndjson("a.jsonl")
    facts = table_of(inspected("a.jsonl"))
    assert facts.heads == ["row", "reward", "advantage", "status"]
    assert [line[0] for line in facts.rows[1].lines] == [2 + 3 * i for i in range(group_rows.ROWS)]
    assert facts.rows[0].more
    assert {len(text) for one in facts.rows.values() for ((_, text),) in told(one)} == {group_rows.LONGEST}


def test_a_page_with_another_run_says_what_changed_and_has_the_numbers_of_its_figures() -> None:
    """Half of the prompts were never solved before, and the others always."""
    now = inspected(logged("now.jsonl", "01111111 " * 12))
    before = inspected(logged("before.jsonl", "00000000 " * 6 + "11111111 " * 6))
    found = beside(now, before)
    assert isinstance(found.beside, Runs)
    figures = drawn(found)
    assert list(figures)[:2] == ["run_rates", "run_changes"]
    assert [line["share"] for line in figures["run_rates"].lines] == [0.5, 7 / 8]
    (change,) = found.beside.differences
    (first, *_) = change.gained
    assert f" now gained most on {first.key} ({first.shrunken:+.2f}), " in figures["run_changes"].caption
    page = re.sub(r"<script.*?</script>", "", page_of(found), flags=re.DOTALL)
    assert f'<p class="lead">{html.escape(found.beside.verdict)}</p>' in page
    for name in ("run_rates", "run_changes"):
        (figure,) = re.findall(f'<figure id="figure-{name}">(.*?)</figure>', page, re.DOTALL)
        assert re.findall("<th scope=col>(.*?)</th>", figure) == ["value", "kind", "share", "low", "high"]
        assert figure.count("<tr>") == 1 + len(figures[name].lines)
    write_report(found, Path("a.svg"))
    picture = Path("a.svg").read_text()
    assert ">Solve rates of the runs<" in picture
    assert ">Difference from before<" in picture
    assert "against before" in picture


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<svg")])
def test_a_picture_has_all_figures(found: Inspection, suffix: str, start: bytes) -> None:
    target = Path(f"a.{suffix}")
    assert write_report(found, target) == target.stat().st_size
    data = target.read_bytes()
    assert data.startswith(start)
    if suffix == "svg":
        for one in drawn(found).values():
            assert f">{one.title}<" in data.decode()


def test_the_page_contains_everything_and_loads_nothing(found: Inspection) -> None:
    text = page_of(found)
    ours = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://""", ours)
    assert "default-src 'none'" in text
    assert NASTY not in text
    (data,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    groups = json.loads(data)["groups"]
    keys, *_ = groups["values"]
    assert groups["rows"][str(keys["each"].index("p05"))]["said"][0][0] == ["response", NASTY]
    assert len(keys["each"]) == 12


def test_the_page_says_what_made_it_and_when_its_files_were_written() -> None:
    path = logged("a.jsonl", "01")
    os.utime(path, (0, 86_400 * 365))
    text = page_of(inspected(path), "grpo-adv report <a>")
    assert f"<h1>Rewards of {path}</h1>" in text
    assert (
        f"grpo-adv report &lt;a&gt; · grpo-adv {grpo_cli.__version__} · files last written 1971-01-01 00:00 UTC</p>"
        in text
    )


def test_a_page_of_long_texts_stays_small() -> None:
    at = np.arange(20_000)
    texts = [f"{one} " * 900 for one in at]
    pl.DataFrame({"prompt_id": at // 8, "reward": at % 2, "completion": texts}).write_ndjson("a.jsonl")
    assert len(page_of(inspected("a.jsonl")).encode()) < MOST


@pytest.mark.parametrize("rewards", [[None, None], [1.0], [0.0, 0.0], [0.0, 1.0, 2.0, 5.5]], ids=str)
def test_odd_files_have_a_report_too(rewards: list[float | None]) -> None:
    pl.DataFrame({"prompt_id": ["a"] * len(rewards), "reward": rewards}).write_ndjson("a.jsonl")
    found = inspected("a.jsonl", by_steps=True)
    assert "<h1>" in page_of(found)
    assert write_report(found, Path("a.svg")) > 0


@pytest.mark.parametrize(
    "values", [[date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)], [[1], [2], None], [True, False, None], [*"abc"]]
)
def test_a_trend_may_be_over_anything(values: list[Any]) -> None:
    frame = pl.DataFrame({"prompt_id": [0, 1, 2] * 2, "part": values * 2, "reward": [0, 1, 0, 1, 1, 1]})
    frame.write_parquet("a.parquet")
    found = inspected("a.parquet", by="part")
    assert len(drawn(found)["mean_reward"].lines) == 3
    assert write_report(found, Path("a.svg")) > 0
    assert "zero_variance" in page_of(found)


def test_a_repeated_run_writes_the_same_page_and_no_signature_of_an_address() -> None:
    words = ["report", "https://u:secret@x.org/a.jsonl", "https://x.org/a.jsonl?sig=secret", "-o", "out.html"]
    named = _command(words)
    assert named == _command([*words, "-q", "--force"])
    assert named.startswith("grpo-adv report ")
    assert "secret" not in named
    assert "a.jsonl" in named
