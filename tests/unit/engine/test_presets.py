"""Presets are data: what a bad entry says, how entries inherit, and what the commands tell of them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from grpo_cli.engine.presets import parsed, presets
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.render.presets import equal
from tests.support.command import adv

ROWS = "prompt_id,reward\n1,0\n1,1\n"
ENTRY = """
[base]
framework = "F"
estimator = "E"
source = { repo = "o/r", path = "a.py", date = "2026-01-01" }
plan.estimator.name = "grpo"
plan.divisor.epsilon = 1e-4
"""


MEANINGLESS = """
formula = "x"                                            | formula
source.comit = 'x'                                       | comit
inherits = 'bas'                                         | base
inherits = 'other'                                       | inherits from itself
inherits = 'a'; [a]; inherits = 'b'; [b]; inherits = 'a' | the preset a inherits from itself
inherits = 'a'; [a]; inherits = 3                        | inherits of the preset a cannot be 3
inherits = 'a'; [a]; plan = 3                            | plan of the preset a cannot be 3
"""


@pytest.mark.parametrize("line", MEANINGLESS.strip().splitlines())
def test_an_entry_that_means_nothing_is_refused(line: str) -> None:
    more, _, said = line.replace("; ", "\n").partition(" | ")
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
    Path("x.csv").write_text(ROWS)
    links = ["[p0]\ninherits = 'trl-grpo'\n", *(f"[p{at + 1}]\ninherits = 'p{at}'\n" for at in range(1000))]
    Path("long.toml").write_text("".join(links))
    Path("short.toml").write_text("".join(links[:24]))
    started = time.process_time()
    refused = adv("compute x.csv --presets long.toml -o -")
    assert time.process_time() - started < 5
    assert refused.status == 2
    assert refused.err == (
        "error: long.toml: the preset p32 has more than 32 presets before it; let it inherit from one of the first\n"
    )
    assert adv("compute x.csv --presets short.toml --preset p23 -o -").status == 0


def test_a_file_of_many_presets_is_read_in_linear_time() -> None:
    Path("x.csv").write_text(ROWS)
    took = []
    for many in (500, 4000):
        entries = [f"[p{at}]\ninherits = 'trl-grpo'\n" for at in range(many)]
        Path("many.toml").write_text("".join(entries))
        started = time.process_time()
        assert adv("compute x.csv --presets many.toml --preset p0 -o - -q").status == 0
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
    shipped = re.findall(r"^\S+", adv("methods").out, re.MULTILINE)
    everything = re.findall(r"^\S+", adv("methods --all").out, re.MULTILINE)
    assert {"grpo", "rloo", "max-at-k", "expression"} <= {*shipped}
    assert {"kalman", "bnpo", "james-stein"} <= {*everything} - {*shipped}


def test_a_preset_of_a_trainer_may_inherit_from_one_behind_all() -> None:
    more = "archive = true\n[other]\ninherits = 'base'\nframework = 'G'\n[third]\ninherits = 'base'\n"
    known = parsed(ENTRY + more)
    assert known["base"].archive
    assert not known["other"].archive
    assert known["third"].archive


def test_equal_presets_know_each_other() -> None:
    for row in presets().values():
        if not row.refused:
            assert all(row.name in equal(presets()[other]) for other in equal(row))


def test_the_facts_name_the_preset_and_what_was_overridden() -> None:
    Path("r.csv").write_text(ROWS)
    facts = json.loads(adv("compute r.csv -o o.csv --preset trl-grpo --json").out)
    assert facts["preset"]["name"] == "trl-grpo"
    assert facts["preset"]["overridden"] == {}


@pytest.mark.parametrize("name", ["verl-reinforce-plus-plus", "easyr1-reinforce-plus-plus"])
def test_what_masked_mean_adds_to_the_number_of_tokens_is_said(name: str) -> None:
    said = [line for line in presets()[name].oddities if "masked_mean" in line]
    assert [line.partition(":")[0] for line in said] == [
        "masked_mean divides by the number of tokens + 1e-8, in the mean and in the variance"
    ]
