"""Presets are data: what a bad entry says, how entries inherit, and what the commands tell of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from grpo_cli.engine.presets import parsed, presets
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.render.presets import equal
from tests.support.command import adv
from tests.support.jobs import rows_of, write

ENTRY = """
[base]
framework = "F"
estimator = "E"
source = { repo = "o/r", path = "a.py", date = "2026-01-01" }
plan.estimator.name = "grpo"
plan.divisor.epsilon = 1e-4
"""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('formula = "x"', "formula"),
        ("source.comit = 'x'", "comit"),
        ("inherits = 'bas'", "base"),
        ("inherits = 'other'", "inherits from itself"),
        ("inherits = 'a'\n[a]\ninherits = 'b'\n[b]\ninherits = 'a'", "the preset a inherits from itself"),
        ("inherits = 'a'\n[a]\ninherits = 3", "inherits of the preset a cannot be 3"),
        ("inherits = 'a'\n[a]\nplan = 3", "plan of the preset a cannot be 3"),
    ],
)
def test_an_entry_that_means_nothing_is_refused(more: str, said: str) -> None:
    with pytest.raises((UnknownName, UsageError), match=said):
        parsed(f"{ENTRY}[other]\nframework = 'F'\nestimator = 'G'\n{more}\n")


@pytest.mark.parametrize("field", ["plan.divisor.epsilo = 1.0", "plan.estimator.k = 2", "plan.shape = [{op = 'clop'}]"])
def test_a_plan_that_does_not_exist_is_refused(field: str) -> None:
    with pytest.raises((UnknownName, UsageError)):
        _ = parsed(f"{ENTRY}[other]\ninherits = 'base'\n{field}\n")["other"].plan


def test_an_entry_without_its_source_is_refused() -> None:
    with pytest.raises(UsageError, match=r"has no 'source\.repo'"):
        parsed("[x]\nframework = 'F'\nestimator = 'E'\n")


def test_an_entry_inherits_what_it_does_not_say() -> None:
    made = parsed(f"{ENTRY}[other]\ninherits = 'base'\noptions.x = 1\nplan.divisor.level = 'batch'\n")["other"]
    assert made.framework == "F"
    assert made.source["repo"] == "o/r"
    assert made.options == {"x": 1}
    assert made.parents == ("base",)
    assert made.plan.divisor.level == "batch"
    assert made.plan.divisor.epsilon == 1e-4


def test_a_chain_of_parents_has_an_end() -> None:
    write("x.jsonl", [{"prompt_id": 1, "reward": reward} for reward in (0, 1)])
    links = ["[p0]\ninherits = 'trl-grpo'\n", *(f"[p{at + 1}]\ninherits = 'p{at}'\n" for at in range(1000))]
    Path("long.toml").write_text("".join(links), encoding="utf-8")
    Path("short.toml").write_text("".join(links[:24]), encoding="utf-8")
    started = time.process_time()
    refused = adv("compute x.jsonl --presets long.toml -o -")
    assert time.process_time() - started < 5
    assert refused.status == 2
    assert refused.err == (
        "error: long.toml: the preset p32 has more than 32 presets before it; let it inherit from one of the first\n"
    )
    assert adv("compute x.jsonl --presets short.toml --preset p23 -o -").status == 0


def test_a_file_of_many_presets_is_read_in_linear_time() -> None:
    write("x.jsonl", [{"prompt_id": 1, "reward": reward} for reward in (0, 1)])
    took = []
    for many in (500, 4000):
        presets_of = "".join(f"[p{at}]\ninherits = 'trl-grpo'\n" for at in range(many))
        Path("many.toml").write_text(presets_of, encoding="utf-8")
        started = time.process_time()
        assert adv("compute x.jsonl --presets many.toml -o - -q").status == 0
        took.append(time.process_time() - started)
    assert took[1] < 12 * took[0] + 0.5


def test_a_preset_that_is_broken_upstream_says_why_it_is_refused() -> None:
    Path("presets.toml").write_text(f"{ENTRY}refused = 'the sign is drawn by chance'\n", encoding="utf-8")
    done = adv("compute x.jsonl --presets presets.toml --preset base")
    assert done.status == 2
    assert "the sign is drawn by chance" in done.err


@pytest.mark.parametrize("name", list(presets()))
def test_every_preset_is_explained(name: str) -> None:
    done = adv("presets", name)
    row = presets()[name]
    assert done.status == 0, done.err
    assert row.source["repo"] in done.out
    assert all(option in done.out.replace("\n", "") for option in row.options)
    assert max(map(len, done.out.splitlines())) <= 80


def test_all_presets_are_listed_and_given_as_json() -> None:
    listing = adv("presets --all")
    facts = json.loads(adv("presets --json").out)
    assert [one["name"] for one in facts] == list(presets())
    assert all(one["name"] in listing.out for one in facts)
    assert max(map(len, listing.out.splitlines())) <= 80


def test_old_versions_and_the_code_of_papers_need_all() -> None:
    listing = adv("presets").out.split()
    assert [row.name for row in presets().values() if (row.name in listing) == row.archive] == []
    assert f"--all lists {sum(row.archive for row in presets().values())} more" in " ".join(listing)


def test_methods_that_no_trainer_ships_need_all() -> None:
    listings = [adv(line).out.splitlines() for line in ("methods", "methods --all")]
    shipped, everything = ({line.split()[0] for line in lines if line[:1].strip()} for lines in listings)
    assert {"grpo", "rloo", "max-at-k", "expression"} <= shipped
    assert {"kalman", "bnpo", "james-stein"} <= everything - shipped


def test_a_preset_of_a_trainer_may_inherit_from_one_behind_all() -> None:
    more = "archive = true\n[other]\ninherits = 'base'\nframework = 'G'\n[third]\ninherits = 'base'\n"
    known = parsed(ENTRY + more)
    assert [known[name].archive for name in ("base", "other", "third")] == [True, False, True]


def test_equal_presets_know_each_other() -> None:
    for row in presets().values():
        if not row.refused:
            assert all(row.name in equal(presets()[other]) for other in equal(row))


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    for line in ("presets trl-gropo", "compute x.jsonl --preset trl-gropo"):
        done = adv(line)
        assert done.status == 2
        assert "trl-grpo" in done.err


def test_the_summary_names_the_preset_and_what_was_overridden() -> None:
    write("r.jsonl", [{"prompt_id": 1, "reward": r} for r in (0.0, 1.0)])
    done = adv("compute r.jsonl -o o.jsonl --preset trl-grpo --epsilon 0.5")
    assert "trl-grpo" in done.out
    assert "divisor.epsilon 0.5, not 0.0001" in done.out
    facts = json.loads(adv("compute r.jsonl -o o.jsonl --force --preset trl-grpo --json").out)
    assert facts["preset"]["name"] == "trl-grpo"
    assert facts["preset"]["overridden"] == {}
    a = 0.5 / (0.5**0.5 + 1e-4)
    assert [row["advantage"] for row in rows_of("o.jsonl")] == pytest.approx([-a, a])
    assert "preset" in adv("compute r.jsonl --explain --preset trl-grpo").out


@pytest.mark.parametrize("name", ["verl-reinforce-plus-plus", "easyr1-reinforce-plus-plus"])
def test_what_masked_mean_adds_to_the_number_of_tokens_is_said(name: str) -> None:
    said = [line for line in presets()[name].oddities if "masked_mean" in line]
    assert [line.partition(":")[0] for line in said] == [
        "masked_mean divides by the number of tokens + 1e-8, in the mean and in the variance"
    ]
