"""The report: its numbers, the page as a browser shows it, and the pictures."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.render.report import MOST, page_of, write_report
from grpo_cli.stats import group_rows
from grpo_cli.stats.against import against, verdict
from grpo_cli.stats.figures import BINS, OUTCOMES, Figure, advantages_by_method, count_by_kind, figures
from tests.support.jobs import inspected, write

if TYPE_CHECKING:
    from pathlib import Path

    from grpo_cli.stats.inspection import Inspection

METHODS = ["grpo", "rloo"]
NASTY = "</script><script>alert(1)</script> <b>bold</b> \u2028 & 'quoted'"


def rows() -> list[dict[str, Any]]:
    """Twelve groups of four rows over three steps: three always solved, four never, and one row without a reward."""
    found = []
    for group in range(12):
        for i in range(4):
            solved = {0: 1, 1: 1, 2: 0, 3: 0, 4: 0}.get(group, int(i < group % 4))
            text = NASTY if (group, i) == (5, 0) else f"text {group} {i}"
            row = {
                "prompt_id": f"p{group:02}",
                "step": group // 4,
                "reward": solved,
                "length": 10 * i + group,
                "completion": text,
            }
            found.append({**row, "prompt": f"what is {group}?"})
    found[-1]["reward"] = None
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    return report_of(tmp_path_factory.mktemp("report"))


def report_of(folder: Path) -> Inspection:
    return inspected(write(folder / "a.jsonl", rows()), by_steps=True)


def drawn(found: Inspection, methods: list[str] = METHODS) -> dict[str, Figure]:
    return {one.name: one for one in figures(found, advantages_by_method(found, methods))}


# --- numbers -----------------------------------------------------------------------------------------------


def outcome(rewards: list[int | None]) -> str:
    known = [reward for reward in rewards if reward is not None]
    return OUTCOMES[0] if len(set(known)) > 1 else OUTCOMES[1] if known[0] else OUTCOMES[2]


def test_rewards_are_counted_by_what_became_of_their_group(found: Inspection) -> None:
    groups: dict[str, list[int | None]] = {}
    for row in rows():
        groups.setdefault(row["prompt_id"], []).append(row["reward"])
    wanted = Counter((r, outcome(rewards)) for rewards in groups.values() for r in rewards if r is not None)
    facts = {(line["value"], line["kind"]): line["count"] for line in drawn(found)["rewards"].lines}
    assert facts == dict(wanted)
    sizes = {line["kind"]: line["count"] for line in drawn(found)["sizes"].lines}
    assert sizes == Counter(outcome(rewards) for rewards in groups.values())


def test_every_group_is_in_one_bar_of_the_solve_rates(found: Inspection) -> None:
    bars = {line["value"]: line["count"] for line in drawn(found)["solve_rates"].lines}
    assert (bars["never"], bars["always"], sum(bars.values())) == (4, 3, 12)


def test_many_values_are_counted_in_bins_that_hold_them_all() -> None:
    values = np.random.default_rng(3).normal(size=500)
    lines = count_by_kind(pl.Series(values), np.zeros(500, dtype=int))
    assert len(lines) <= BINS
    for line in lines:
        last = line["to"] == values.max()
        assert line["count"] == sum((line["from"] <= v < line["to"]) or (last and v == line["to"]) for v in values)


def test_the_advantages_are_those_of_each_method_and_the_runs_own_comes_first(found: Inspection) -> None:
    facts = advantages_by_method(found, ["rloo", "grpo"])
    assert list(facts) == ["grpo", "rloo"]
    alive = [value for value, row in zip(facts["rloo"], rows(), strict=True) if row["prompt_id"] == "p05"]
    assert alive == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])


def test_rollouts_of_several_rows_count_once_under_every_method() -> None:
    frame = pl.DataFrame({"prompt_id": [1] * 5, "id": [1, 2, 2, 2, 3], "reward": [0.0, 9.0, 9.0, 1.0, 1.0]})
    look = grpo_cli.inspect(frame, rollout="id")
    wanted = grpo_cli.advantages(frame, rollout="id", method="rloo")
    assert advantages_by_method(look.inspection, ["rloo"])["rloo"].to_list() == wanted.to_list()


def test_a_reward_column_and_a_method_of_one_name_are_two_columns() -> None:
    data = [{"prompt_id": 1, "rloo": i, "accuracy": 5} for i in range(2)]
    found = grpo_cli.inspect(pl.DataFrame(data), reward=["rloo", "accuracy"]).inspection
    facts = group_rows.report_groups(found, advantages_by_method(found, METHODS))
    assert facts["heads"] == ["row", "rewards.rloo", "accuracy", "reward", "grpo", "rloo", "status"]
    assert [line[1] for line in facts["rows"][0]["lines"]] == [0.0, 1.0]


def test_a_method_that_reads_another_column_says_which(found: Inspection) -> None:
    with pytest.raises(UsageError, match=r"opo needs response length.*--length-column"):
        advantages_by_method(found, ["opo"])
    with pytest.raises(UnknownName, match="did you mean 'grpo'"):
        advantages_by_method(found, ["grppo"])


def test_the_shares_over_the_steps_are_those_of_the_trend(found: Inspection) -> None:
    lines = drawn(found)["zero_variance"].lines
    first = {line["kind"]: line["share"] for line in lines if line["value"] == 0}
    assert first == {OUTCOMES[1]: 0.5, OUTCOMES[2]: 0.5, OUTCOMES[3]: 0.0}


def test_tiles_count_every_row_that_has_both(found: Inspection) -> None:
    assert sum(line["count"] for line in drawn(found)["lengths"].lines) == 47


def test_a_long_trend_is_thinned_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt_id": i, "reward": k, "step": i} for i in range(900) for k in range(2)])
    lines = drawn(inspected(path, by_steps=True))["mean_reward"].lines
    assert (len(lines), lines[0]["value"], lines[-1]["value"]) == (200, 0, 899)


def test_of_many_groups_the_most_informative_are_listed_and_others_from_all_over(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", [{"prompt_id": i, "reward": k * (i % 10 == 0)} for i in range(300) for k in range(2)]
    )
    found = inspected(path)
    codes = group_rows._choose(found, 60)
    assert len(codes) == len(set(codes.tolist())) == 60
    assert sum(code % 10 == 0 for code in codes) >= 30
    assert codes.max() > 290
    facts = group_rows.report_groups(found, {}, most=60)
    assert facts["says"].startswith("60 of 300 groups: the 30 with the largest spread")


def test_the_rows_of_a_listed_group_are_its_first_ones_with_every_advantage(tmp_path: Path) -> None:
    data = [{"prompt_id": i % 3, "reward": float(i % 2), "completion": f"{i}" + "x" * 3000} for i in range(90)]
    found = inspected(write(tmp_path / "a.jsonl", data))
    facts = group_rows.report_groups(found, advantages_by_method(found, METHODS))
    assert facts["heads"] == ["row", "reward", "grpo", "rloo", "status", "text"]
    assert [line[0] for line in facts["rows"][1]["lines"]] == [2 + 3 * i for i in range(group_rows.ROWS)]
    assert facts["rows"][0]["more"]
    assert {len(line[-1]) for one in facts["rows"] for line in one["lines"]} == {group_rows.LONGEST}


def against_another(folder: Path) -> Inspection:
    """A run in which every prompt but the last of each step was solved less often before, with the changes as facts."""
    found = report_of(folder)
    earlier = [{**row, "reward": row["reward"] and int(row["prompt_id"] < "p08")} for row in rows()]
    changes = against(found, inspected(write(folder / "before.jsonl", earlier)))
    names = {"against": ["before.jsonl"], "verdict": verdict(changes)}
    return replace(found, facts={**found.facts, "against": {**changes, **names}})


def test_changes_from_another_run_are_drawn_by_prompt_by_difficulty_and_one_by_one(tmp_path: Path) -> None:
    found = against_another(tmp_path)
    changes = found.facts["against"]
    figures = drawn(found)
    assert list(figures)[:3] == ["changes", "by_difficulty", "gained_and_lost"]
    kinds: Counter[str] = Counter()
    for line in figures["changes"].lines:
        kinds[line["kind"]] += line["count"]
    assert kinds == {name: changes[name] for name in ("better", "same") if changes[name]}
    assert sum(kinds.values()) == changes["prompts"] == 12
    bars = {(line["value"], line["kind"]): line["share"] for line in figures["by_difficulty"].lines}
    assert bars == {(one["difficulty"], run): one[run] for one in changes["by_difficulty"] for run in ("before", "now")}
    moves = [(line["value"], line["before"], line["now"]) for line in figures["gained_and_lost"].lines]
    assert moves == [(one["key"], one["before"], one["now"]) for one in changes["gained"]]
    assert moves


def test_a_page_with_another_run_says_what_changed_and_has_the_numbers_of_its_figures(tmp_path: Path) -> None:
    found = against_another(tmp_path)
    page = re.sub(r"<script.*?</script>", "", page_of(found, METHODS), flags=re.DOTALL)
    assert "Of 12 prompts that are also in before.jsonl the solve rate went from" in page
    for name, heads in (
        ("changes", ["value", "kind", "count"]),
        ("by_difficulty", ["value", "kind", "share", "prompts"]),
        ("gained_and_lost", ["value", "kind", "before", "now", "change"]),
    ):
        figure = re.search(f'<figure id="figure-{name}">(.*?)</figure>', page, re.DOTALL)[1]  # type: ignore[index]
        assert re.findall("<th scope=col>(.*?)</th>", figure) == heads
        assert figure.count("<tr>") == 1 + len(drawn(found)[name].lines)
    write_report(found, {}, tmp_path / "a.svg")
    picture = (tmp_path / "a.svg").read_text()
    assert all(f">{title}<" in picture for title in ("Change by prompt", "Change by difficulty", "Gained and lost"))
    assert "against before.jsonl" in picture


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<svg")])
def test_a_picture_has_all_figures(found: Inspection, tmp_path: Path, suffix: str, start: bytes) -> None:
    target = tmp_path / f"a.{suffix}"
    assert write_report(found, {}, target) == target.stat().st_size
    data = target.read_bytes()
    assert data.startswith(start)
    if suffix == "svg":
        for one in drawn(found, ["grpo", "rloo", "dr-grpo"]).values():
            assert f">{one.title}<" in data.decode()


def test_the_page_holds_everything_and_refers_to_nothing(found: Inspection) -> None:
    text = page_of(found, METHODS)
    ours = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://""", ours)
    assert "default-src 'none'" in text
    assert NASTY not in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert any(NASTY in line for one in data["groups"]["rows"] for line in one["lines"])
    assert len(data["groups"]["lines"]) == 12


def test_a_page_of_long_texts_stays_small(tmp_path: Path) -> None:
    data = [{"prompt_id": i // 8, "reward": i % 2, "completion": f"{i} " * 900} for i in range(20_000)]
    found = inspected(write(tmp_path / "a.jsonl", data))
    assert len(page_of(found, METHODS).encode()) < MOST


@pytest.mark.parametrize("rewards", [[None, None], [1.0], [0.0, 0.0], [0.0, 1.0, 2.0, 5.5]], ids=str)
def test_odd_files_have_a_report_too(tmp_path: Path, rewards: list[float | None]) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt_id": "a", "reward": reward} for reward in rewards])
    found = inspected(path, by_steps=True)
    assert "<h1>" in page_of(found, METHODS)
    assert write_report(found, {}, tmp_path / "a.svg") > 0


def test_a_trend_may_be_over_anything(tmp_path: Path) -> None:
    days = pl.date_range(pl.date(2026, 1, 1), pl.date(2026, 1, 3), eager=True)
    for column in (days, pl.Series([[1], [2], None]), pl.Series([True, False, None]), pl.Series(["a", "b", "c"])):
        frame = pl.DataFrame({"prompt_id": [0, 0, 1, 1, 2, 2], "reward": [0, 1, 1, 1, 0, 1]})
        frame = frame.with_columns(part=column.gather([0, 0, 1, 1, 2, 2]))
        frame.write_parquet(tmp_path / "a.parquet")
        found = inspected(tmp_path / "a.parquet", by="part")
        assert len(drawn(found)["mean_reward"].lines) == 3
        assert write_report(found, {"force": True}, tmp_path / "a.svg") > 0
        assert "zero_variance" in page_of(found, METHODS)
