"""What commands print on a terminal of 80 columns, kept whole: `UPDATE_SNAPSHOTS=1 pytest tests/e2e/test_snapshots.py` rewrites it.

A change of words is then seen in the diff, beside all other lines that it moves.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from grpo_cli.engine.presets import presets
from tests.support.command import adv, ran
from tests.support.drawn import some
from tests.support.jobs import SAMPLES, samples_in

HERE = Path(__file__).resolve().parent / "snapshots"
CASES = {
    "compute": "compute rewards.jsonl -o out.jsonl",
    "compute-preset": "compute rewards.jsonl --preset trl-grpo --method rloo -o out.jsonl",
    "compute-batch": "compute steps.jsonl -g prompt_id,step --batch-by step --scale batch --whiten sample -o out.jsonl",
    "compute-normalize": "compute two_rewards.jsonl --method gdpo -r accuracy=1 -r format=0.5 --only -o out.csv",
    "compute-drop": "compute rewards.parquet --zero-variance drop --missing exclude -o out.parquet",
    "compute-explain": "compute rewards.jsonl --method rloo --scale batch --explain",
    "compute-merge": "compute steps.jsonl",
    "compute-unknown": "compute rewards.jsonl --metod rloo",
    "inspect": "inspect rewards.jsonl",
    "inspect-by": "inspect steps.jsonl --by step --group prompt_id,step",
    "inspect-show": "inspect rewards.jsonl --show add-17-25",
    "inspect-components": "inspect two_rewards.jsonl -r accuracy -r format",
    "inspect-rescored": "inspect rewards.jsonl --reward reward --rescored-column length",
    "inspect-against": "inspect rewards.jsonl --against before=rewards.jsonl",
    "select": "select rewards.jsonl --where '0.1 <= mean <= 0.9' --per-group 4 -o out.jsonl",
    "export-sft": "export chats.jsonl --to sft -o out.jsonl",
    "export-pairs": "export chats.jsonl --to pairs -o out.jsonl",
    "export-prompts": "export rewards.jsonl --to prompts --prompt prompt_id --pass-at 1,4 -o out.jsonl",
    "audit": "audit scored.jsonl",
    "audit-claim": "audit scored.jsonl --method rloo",
    "compare": "compare rewards.jsonl --preset trl-grpo --method rloo",
    "add": "add rewards.jsonl --from rewards.parquet --column length=tokens -o out.jsonl",
    "verify": "verify scored.jsonl --against rewards.jsonl",
    "methods-one": "methods rloo",
    "presets-one": "presets trl-grpo",
    "schemas-one": "schemas trl",
    "schemas-file": "schemas rewards.jsonl",
}


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scored") / "scored.jsonl"
    ran(f"compute {SAMPLES}/rewards.jsonl --quiet -o {path}")
    return path


@pytest.fixture(autouse=True)
def _files(place: Path, scored: Path) -> None:
    samples_in(place)
    shutil.copy(scored, place)


@pytest.mark.parametrize("inputs", ["rewards.jsonl --singleton zero", "steps.jsonl --group-within step --clip=-5:5"])
def test_a_summary_without_a_warning_fits_a_terminal_whatever_the_preset(inputs: str) -> None:
    fitting = 0
    per_row = [row for row in presets().values() if not (row.refused or row.plan.distill.coef)]
    computed = [row for row in per_row if {*row.plan.needs} <= {"length"}]
    for row in (tried := some(computed, 12)):
        length = "--length-column length" if row.plan.needs else ""
        if row.plan.uses_batch and "steps" in inputs:
            length += " --batch-by step"
        line = f"compute {inputs} --preset {row.name} {length} --force -o out.jsonl"
        done = adv(line)
        assert done.status == 0, (line, done.err)
        if "warning:" not in done.out:
            fitting += 1
            assert 15 < len(done.out.splitlines()) <= 23, (line, done.out)  # the command itself is the 24th
            assert "written        out.jsonl" in done.out
    assert len(computed) > 100
    assert fitting > 0.6 * len(tried)


@pytest.mark.parametrize("name", CASES)
def test_a_command_prints_what_it_printed(name: str) -> None:
    done = adv(CASES[name])
    said = f"--- standard error\n{done.err}\n" if done.err else ""
    text = f"$ grpo-adv {CASES[name]}\n{done.out}\n{said}--- exit status {done.status}\n"
    shown = re.sub(r"\b\d+\.\d+ s$", "0.01 s", text, flags=re.MULTILINE)
    kept = HERE / f"{name}.txt"
    if "UPDATE_SNAPSHOTS" in os.environ:
        kept.write_text(shown, encoding="utf-8")
    assert shown == kept.read_text(encoding="utf-8")


def test_every_snapshot_is_of_a_case() -> None:
    assert {path.stem for path in HERE.iterdir()} == {*CASES}
