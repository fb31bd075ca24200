"""Files that real tools wrote, where they are at hand: `GRPO_ADV_SAMPLES` names the folder.

Rows, groups, sizes and constant groups are those that plain Python's json finds.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import DataError
from grpo_cli.schemas.table import schemas
from tests.support.jobs import look

FOLDER = os.environ.get("GRPO_ADV_SAMPLES", "")
# They are not ours to hand on.
pytestmark = pytest.mark.skipif(not FOLDER, reason="GRPO_ADV_SAMPLES names no folder of real files")


TABLE = tomllib.loads(Path(__file__).with_name("samples.toml").read_text(encoding="utf-8"))
SAMPLES: dict[str, Any] = TABLE["samples"]
BLOCKS: list[Any] = TABLE["blocks"]
REFUSED: dict[str, str] = TABLE["refused"]
ANOTHER = {"column": "mine", "scale": "none"}


def there(name: str) -> Path:
    path = Path(FOLDER, name)
    assert path.exists(), f"{path} is not there"
    return path


def check(sample: dict[str, Any], found: Any) -> None:
    facts = found.facts
    codes = Counter(found.narrow.table["group"].to_list())
    assert facts["schema"] == (schemas()[sample["schema"]].title if sample["schema"] else None)
    assert facts["rows"] == sample["rows"]
    assert {f"{size}": count for size, count in Counter(codes.values()).items()} == sample["sizes"]
    assert facts["zero_variance"]["groups"] == sample["constant"]
    assert facts["singletons"] == sample["singletons"]
    assert facts["reward"]["mean"] == pytest.approx(sample["mean"], abs=1e-6)


def test_every_file_of_the_folder_is_tried() -> None:
    known = {*SAMPLES, *REFUSED, *(one["name"] for one in BLOCKS)}
    assert known == {path.name for path in Path(FOLDER).iterdir() if path.suffix != ".md"}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_file_is_read_without_flags_or_with_those_that_it_needs(name: str) -> None:
    check(SAMPLES[name], look(there(name), **SAMPLES[name].get("flags", {})))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block['name']} {block['partial']}")
def test_a_problem_drawn_twice_is_cut_into_its_blocks(block: dict[str, Any]) -> None:
    found = look(there(block["name"]), group_size=8, partial=block["partial"], **ANOTHER)
    check(block["found"], found)
    from grpo_cli.values.cells import Field

    theirs = found.narrow.tables[0].scan([Field("advantage", "number")]).frame["advantage"]
    rows = range(len(theirs)) if found.narrow.rows is None else found.narrow.rows.tolist()
    ours = found.scored.frame[".advantage"].to_list()
    for row, one in zip(rows, ours, strict=True):
        assert not one or abs(theirs[row] - one) < 2e-7


@pytest.mark.parametrize("name", sorted({one["name"] for one in BLOCKS}))
def test_a_problem_drawn_twice_is_suspected_with_the_flag_that_cuts_it(name: str) -> None:
    (warning, *_) = look(there(name), **ANOTHER).facts["warnings"]
    dropped = [one["partial"] for one in BLOCKS if one["name"] == name]
    partial = " --partial keep" if "drop" in dropped else ""  # of the last group only a row is there
    assert warning.endswith(f"--group-size 8{partial} cuts them")


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_without_usable_rewards_is_one_line_of_error(name: str) -> None:
    with pytest.raises(DataError, match=REFUSED[name]) as raised:
        look(there(name))
    assert "\n" not in str(raised.value)
