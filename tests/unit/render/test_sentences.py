"""Every sentence with a number in a summary, beside a count of the same rows in plain Python."""

from __future__ import annotations

import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command import adv
from tests.support.drawn import examples
from tests.support.jobs import rows_of, write

Row = dict[str, Any]
Options = Mapping[str, str]
Lines = Mapping[str, str]  # what stands under each label of a summary

ROWS: Final = st.fixed_dictionaries({
    "prompt_id": st.sampled_from("bcde"),
    "reward": st.sampled_from([None, 0.0, 0.0, 0.25, 0.5, 1.0, 1.0]),
    "masked": st.sampled_from([0, 0, 0, 1]),
    "out": st.sampled_from([0, 0, 0, 1]),
})  # fmt: skip
USUAL: Final = [{"prompt_id": "a", "reward": reward, "masked": 0, "out": 0} for reward in (0.0, 1.0)]  # can be compared
OPTIONS: Final = st.fixed_dictionaries({
    "--missing": st.sampled_from(["exclude", "zero", "as-zero"]),
    "--masked-rows": st.sampled_from(["vote", "exclude"]),
})  # fmt: skip
RULES: Final = st.fixed_dictionaries({
    "--zero-variance": st.sampled_from(["keep", "drop", "null"]),
    "--singleton": st.sampled_from(["zero", "null", "drop"]),
})  # fmt: skip


class Counted:
    """What a plain loop counts in the rows."""

    def __init__(self, rows: Sequence[Row], options: Options) -> None:
        """Go through the rows once."""
        self.rows = rows
        self.masked = self.missing = 0
        self.rewards: list[float] = []  # those that count
        self.of_groups: dict[str, list[float]] = {}
        left = list[Row]()
        for row in rows:
            of_group = self.of_groups.setdefault(row["prompt_id"], [])
            if row["out"] or (row["masked"] and options["--masked-rows"] == "exclude"):
                continue
            left.append(row)
            self.masked += row["masked"]
            reward = row["reward"]
            if reward is None:
                self.missing += 1
                reward = 0.0 if options["--missing"] == "as-zero" else None
            if reward is not None:
                self.rewards.append(reward)
                of_group.append(reward)
        self.out = len(rows) - len(left)
        self.comparable = [found for found in self.of_groups.values() if len(found) > 1]
        self.constant = [found[0] for found in self.comparable if len({*found}) == 1]
        self.missing_rule = options["--missing"]
        self.keeps = options.get("--zero-variance", "keep") == "keep"
        self.statuses = Counter(map(self.status, left))
        if self.out:
            self.statuses["left-out"] = self.out

    def status(self, row: Row) -> str:
        """That of a row that is not left out."""
        found = self.of_groups[row["prompt_id"]]
        if row["reward"] is None and self.missing_rule != "as-zero":
            return "unscorable"
        if row["masked"]:
            return "masked"
        if len(found) == 1:
            return "singleton"
        return "scored" if self.keeps or len({*found}) > 1 else "zero-variance"


def near(text: str, value: float) -> bool:
    """Whether a number that is shown with four digits is this one."""
    return float(text.replace(",", "")) == pytest.approx(value, rel=1e-3, abs=1e-9)


def counted(times: int, unit: str) -> str:
    return f"{times:,} {unit}{'' if times == 1 else 's'}"


def clauses(text: str) -> Lines:
    """The lines of a summary by the labels that they stand under."""
    found: dict[str, str] = {}
    label = ""
    for line in filter(None, text.splitlines()):
        label = line[:15].strip() or label
        found[label] = f"{found.get(label, '')}{line[15:].strip()}\n"
    return found


def of(clause: str, lines: Lines, label: str) -> list[re.Match[str]]:
    """What a pattern finds in the lines under a label."""
    return [*re.finditer(clause, lines.get(label, ""), re.MULTILINE)]


def one(clause: str, lines: Lines, label: str) -> tuple[str, ...]:
    (match,) = of(clause, lines, label)
    return match.groups()


def check_rewards(lines: Lines, rows: Counted) -> None:
    mean, std = one(r"^mean (\S+)  std (\S+)", lines, "rewards")
    assert near(mean, statistics.mean(rows.rewards))
    assert near(std, statistics.stdev(rows.rewards))
    found = one(r"min (\S+)  25% (\S+)  median (\S+)  75% (\S+)  max (\S+)", lines, "rewards")
    quartiles = statistics.quantiles(rows.rewards, n=4, method="inclusive")
    assert all(map(near, found, (min(rows.rewards), *quartiles, max(rows.rewards))))
    bars = {float(match[1]): int(match[2]) for match in of(r"^([\d.]+) +(\d+)  ", lines, "rewards")}
    assert bars == Counter(rows.rewards)
    for match in of(r"([\d.]+)% at (\d)", lines, "rewards"):
        share = 100 * rows.rewards.count(float(match[2])) / len(rows.rewards)
        assert float(match[1]) == pytest.approx(share, abs=0.051)


def check_groups(lines: Lines, rows: Counted) -> None:
    sizes = [*Counter(row["prompt_id"] for row in rows.rows).values()]
    same = f"{len(sizes)}, group size {sizes[0]}"
    different = f"{len(sizes)}, group size {min(sizes)} to {max(sizes)}, median {statistics.median(sizes):g}"
    assert lines["groups"].startswith(same if len({*sizes}) == 1 else different)


def split(rows: Counted) -> str:
    """How the groups with one reward are counted."""
    kinds = {1.0: "always solved", 0.0: "never solved"}
    found = Counter(kinds.get(value, "all equal between") for value in rows.constant)
    return ", ".join(f"{found[kind]} {kind}" for kind in (*kinds.values(), "all equal between") if found[kind])


def said_of(command: str, rows: Counted, options: Options) -> tuple[Lines, list[float | None]]:
    """The lines that a command prints, and the advantages that it writes."""
    advantages = []
    with tempfile.TemporaryDirectory() as name:
        write(Path(name, "in.jsonl"), rows.rows)
        words = " ".join(f"{flag} {value}" for flag, value in options.items())
        line = f"{command} in.jsonl --masked-column masked --left-out-column out {words}"
        done = adv(line, cwd=Path(name), COLUMNS="400")
        assert done.status == 0, done
        if command == "compute":
            advantages = [row["advantage"] for row in rows_of(Path(name, "in.advantages.jsonl"))]
    return clauses(done.out), advantages


# What the summary calls a status.
SAID = {"no gradient": "zero-variance", "no reward": "unscorable", "left out": "left-out", "small group": "small-group"}


def times(clause: str, lines: Lines, label: str) -> int:
    """The count that a sentence says; 0 without the sentence."""
    found = [int(match[1]) for match in of(clause, lines, label)]
    assert len(found) <= 1
    return sum(found)


@given(drawn=st.lists(ROWS, max_size=14), options=OPTIONS, rules=RULES)
@examples(30)
def test_every_count_in_a_summary_is_that_of_its_rows(drawn: list[Row], options: Options, rules: Options) -> None:
    rows = Counted([*USUAL, *drawn], {**options, **rules})
    lines, advantages = said_of("compute", rows, {**options, **rules})
    total, said, dropped = one(r"^(\d+): (.*?)(?:; (\d+) not written)?$", lines, "rows")
    assert int(total) == len(rows.rows) == len(advantages) + int(dropped or 0)
    counts_said = dict(part.split(" ", 1)[::-1] for part in said.split(", "))
    assert {SAID.get(kind, kind): int(number) for kind, number in counts_said.items()} == rows.statuses
    check_groups(lines, rows)
    check_rewards(lines, rows)
    counts = [len(found) for found in rows.of_groups.values()]
    assert times(r"^(\d+) groups? with one reward", lines, "singletons") == counts.count(1)
    assert times(r"(\d+) (?:more )?left out of their groups", lines, "marked") == rows.out
    assert times(r"(\d+) (?:more )?masked: not trained on, the rewards count", lines, "marked") == rows.masked
    assert times(r"^(\d+) rows? without a reward", lines, "no reward") == rows.missing
    none = counts.count(0) if rows.missing else 0
    assert times(r"^(\d+) groups? ha(?:s|ve) no reward that counts", lines, "no reward") == none
    constant = len(rows.constant)
    comparable = len(rows.comparable)
    if constant:
        have = "has" if constant == 1 else "have"
        share = percent(constant, comparable)
        sentence = f"{constant} of {counted(comparable, 'group')} {have} no gradient ({share}): {split(rows)}"
        assert sentence in lines["no gradient"].splitlines()
    else:
        assert lines["no gradient"] == "none: rewards differ in every group that can be compared\n"
    assert times(r" (\d+) (?:are|is) 0", lines, "advantages") == advantages.count(0.0)
    assert times(r" (\d+) null", lines, "advantages") == advantages.count(None)


@given(drawn=st.lists(ROWS, max_size=14), options=OPTIONS)
@examples(20)
def test_every_count_of_inspect_is_that_of_its_rows(drawn: list[Row], options: Options) -> None:
    rows = Counted([*USUAL, *drawn], options)
    lines, _ = said_of("inspect", rows, options)
    assert int(one(r"^(\d+)(?:,|$)", lines, "rows")[0]) == len(rows.rows)
    assert times(r"(\d+) without a reward", lines, "rows") == rows.missing
    assert times(r"(\d+) (?:more )?left out of their groups", lines, "rows") == rows.out
    assert times(r"(\d+) (?:more )?masked: not trained on, the rewards count", lines, "rows") == rows.masked
    check_groups(lines, rows)
    check_rewards(lines, rows)
    counts = [len(found) for found in rows.of_groups.values()]
    assert times(r"(\d+) singletons?", lines, "groups") == counts.count(1)
    means = [statistics.mean(found) for found in rows.comparable]
    inside = sum(0.2 <= mean <= 0.8 for mean in means)
    within = rf"^{inside} of {counted(len(means), 'group')} from 0\.2 to 0\.8, both included; mean (\S+)"
    assert near(one(within, lines, "solve rate")[0], statistics.mean(means))
    if rows.constant:
        share = percent(len(rows.constant), len(means))
        assert f"\n{share} of the groups: {split(rows)}" in "\n".join(lines.values())
    total = len(rows.rows)
    vary = sum(len(found) for found in rows.comparable if len({*found}) > 1)
    found = one(r"^(\d+) of (\d+) rows are in groups with a gradient", lines, "sample size")
    assert [*map(int, found)] == [vary, total]
    verdict = lines["verdict"].replace("\n", " ")
    claims = {
        rf"{percent(rows.out, total)} of the rows are left out of their groups": rows.out,
        rf"{percent(rows.masked, total)} of the rows are masked": rows.masked,
        rf"{counts.count(1)} groups? ha(?:s|ve) a single reward": counts.count(1),
        rf"{rows.missing} rows? \({percent(rows.missing, total)}\) ha(?:s|ve) no finite reward": rows.missing,
    }
    for sentence, expected in claims.items():
        assert bool(re.search(sentence, verdict)) == bool(expected), (sentence, verdict)


def percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole, 1):g}%"
