"""`grpo-adv schemas`, and what the other commands say of the schema that they read a file by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_cli.schemas.table import schemas
from tests.support.command import adv
from tests.support.jobs import write
from tests.support.schema_files import REFUSED, WRITERS


def test_the_list_names_every_schema_and_each_is_explained() -> None:
    done = adv("schemas")
    assert done.status == 0
    assert [name for name in schemas() if f"\n{name} " not in f"\n{done.out}"] == []
    facts = json.loads(adv("schemas", "--json").out)
    assert [one["name"] for one in facts] == list(schemas())
    done = adv("schemas", "verl-v1")
    assert "group = uid without its last two parts within step, reward = score" in done.out
    assert adv("schemas", "ver1").err == "error: no schema or file named 'ver1'; did you mean 'verl'?\n"


def test_the_reasons_for_and_against_a_schema_are_shown() -> None:
    WRITERS["verl"](Path())
    done = adv("schemas", "12.jsonl")
    assert "because      it has input, output, score, step, the file name" in done.out
    assert "nearly       verl-v1, but no uid" in done.out
    facts = json.loads(adv("schemas", "12.jsonl", "--json").out)
    assert facts["schema"] == "verl"
    assert facts["nearly"][0]["schema"] == "verl-v1"
    assert facts["nearly"][0]["against"] == ["no uid"]


def test_a_file_of_no_schema_says_so_and_an_aggregate_is_explained_although_it_is_refused() -> None:
    write("x.jsonl", [{"prompt_id": 1, "reward": 1}])
    assert "none: columns are found by name" in adv("schemas x.jsonl").out
    write("x.jsonl", [REFUSED["polaris"]])
    done = adv("schemas x.jsonl")
    assert done.status == 0
    assert "refused: one line per prompt" in done.out


@pytest.mark.parametrize("command", ["compute", "inspect"])
def test_the_schema_of_a_file_is_shown(command: str) -> None:
    WRITERS["verl"](Path())
    done = adv(command, "12.jsonl")
    assert done.status == 0
    assert "schema         verl rollout dump" in done.out


def test_a_pipe_of_one_document_is_read_and_written_as_one() -> None:
    text = json.dumps([{"prompt_id": 1, "reward": r} for r in (0, 1)], indent=1)
    done = adv("compute", "-", "--method", "rloo", "--quiet", stdin=text)
    assert [row["advantage"] for row in json.loads(done.out)] == [-1.0, 1.0]
    assert done.out == json.dumps(json.loads(done.out), indent=1)


@pytest.mark.parametrize(("name", "cure"), [("x.pt", "pickle runs code"), ("x.eval", "inspect log convert")])
def test_files_that_are_no_tables_say_how_they_become_some(name: str, cure: str) -> None:
    Path(name).write_bytes(b"PK")
    assert cure in adv("compute", name).err


def test_select_keeps_whole_documents_around_the_rows_that_stay() -> None:
    path = WRITERS["tau-bench"](Path()).path
    rows = json.loads(path.read_text(encoding="utf-8"))
    rows[1]["reward"] = 1.0
    path.write_text(json.dumps(rows, indent=2), encoding="utf-8")
    done = adv("select", path.name, "--where", "std > 0", "-o", "kept.json")
    assert done.status == 0
    kept = [row for row in rows if row["task_id"] == 0]
    assert Path("kept.json").read_text(encoding="utf-8") == json.dumps(kept, indent=2)


@pytest.mark.parametrize("name", ["nemo-gym-profile", "polaris", "big-math", "intellect-2"])
def test_an_aggregate_can_still_be_inspected_as_its_refusal_says(name: str) -> None:
    known = {"llama8b_solve_rate": 0.25} if name == "big-math" else {}
    write("x.jsonl", [REFUSED[name] | known] * 3)
    refused = adv("compute", "x.jsonl")
    assert refused.status == 1
    flags = refused.err.partition("; inspect ")[2].partition(" shows")[0].split()
    done = adv("inspect", "x.jsonl", *flags)
    assert done.status == 0
    assert "mean 0." in done.out
