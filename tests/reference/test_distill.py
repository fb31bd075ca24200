"""On-policy distillation: the numbers of the frameworks' own code on the tokens of a small table.

`golden/distill.json` has the rows, and for each case what the named function of the framework returned for them. To make a case
again, check out the commit, call the function with the lists as padded float32 tensors, and keep the tokens of the mask.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from grpo_cli.engine.presets import presets
from tests.support.command import adv
from tests.support.goldens import HERE, TOLERANCE
from tests.support.jobs import write

DISTILLED: Any = json.loads((HERE / "distill.json").read_text(encoding="utf-8"))
CASES: dict[str, Any] = DISTILLED["cases"]
LISTS = ("--per-token", "--token-logprobs", "student", "--teacher-logprobs", "teacher", "--mask", "mask")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("case", CASES)
def test_a_case_gives_the_numbers_of_the_framework(case: str, suffix: str, tmp_path: Path) -> None:
    rows = DISTILLED["rows"]
    path = tmp_path / f"in.{suffix}"
    out = tmp_path / f"out.{suffix}"
    write(path, rows) if suffix == "jsonl" else pl.DataFrame(rows).write_parquet(path)
    options = ("--group", "group", "--reward", "reward", *LISTS, *CASES[case]["args"])
    done = adv("compute", str(path), *options, "-o", str(out), "-q")
    assert done.status == 0, done.err
    found = (pl.read_ndjson if suffix == "jsonl" else pl.read_parquet)(out)["advantage"].to_list()
    for got, wanted in zip(found, CASES[case]["advantages"], strict=True):
        assert got == pytest.approx(wanted, rel=TOLERANCE, abs=TOLERANCE)


def test_every_preset_that_distills_has_a_case_whose_source_is_its_own() -> None:
    cases = {case["args"][1]: case["source"] for case in CASES.values()}
    distilling = {name: row.source for name, row in presets().items() if not row.refused and row.plan.distill.coef}
    assert {*cases} == {*distilling}
    for name, source in distilling.items():
        assert cases[name].startswith(f"{source['repo']} {source['commit']} ")
