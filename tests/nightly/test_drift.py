"""Presets beside what people install: the advantage functions of released packages on uneven tables, each in its own environment.

The presets were checked against the repositories at the commits that they name (`tests/reference/golden`). A release may differ
from those, and this is where it shows. TRL has no such function; its trainers take steps in `test_trainers.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import grpo_cli
from grpo_cli.engine.presets import presets
from tests.nightly.test_targets import ALONE, PACKAGES, decoded
from tests.support.command import here

__all__ = ["here"]

TABLES = 60
OF_FLOAT32 = 1e-6  # they compute in it; the largest difference that was seen is 2.5e-07
ERROR_OF_ONE = {"verl-grpo-passk"}  # a group of one row stops it
BLOCKS = {"swift-grpo", "swift-rloo", "swift-reinforce-plus-plus", "twinkle-grpo", "twinkle-rloo"}  # groups of one size
# A preset, the package and its function, and what compute is told beside the preset.
OF_RELEASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("verl-grpo", "verl", "verl:grpo", {}),
    ("verl-grpo", "verl", "verl:grpo no-std", {"scale": "none"}),
    ("verl-grpo-vectorized", "verl", "verl:grpo_vectorized", {}),
    ("verl-grpo-passk", "verl", "verl:grpo_passk", {}),
    ("verl-rloo", "verl", "verl:rloo", {}),
    ("verl-rloo-vectorized", "verl", "verl:rloo_vectorized", {}),
    ("verl-reinforce-plus-plus-baseline", "verl", "verl:reinforce_plus_plus_baseline", {}),
    ("verl-reinforce-plus-plus", "verl", "verl:reinforce_plus_plus", {}),
    ("verl-opo", "verl", "verl:opo", {}),
    ("verl-gpg", "verl", "verl:gpg", {}),
    ("swift-dynamic-grpo", "ms-swift", "swift:grpo group", {}),
    ("swift-dynamic-grpo", "ms-swift", "swift:grpo batch", {"scale": "batch"}),
    ("swift-dynamic-grpo", "ms-swift", "swift:grpo none", {"scale": "none"}),
    ("swift-dynamic-rloo", "ms-swift", "swift:rloo none", {}),
    ("swift-dynamic-reinforce-plus-plus", "ms-swift", "swift:reinforce_plus_plus batch", {}),
    ("swift-grpo", "ms-swift", "swift:grpo group blocks", {}),
    ("swift-rloo", "ms-swift", "swift:rloo none blocks", {}),
    ("swift-reinforce-plus-plus", "ms-swift", "swift:reinforce_plus_plus batch blocks", {}),
    ("twinkle-grpo", "twinkle", "twinkle:GRPOAdvantage group", {}),
    ("twinkle-grpo", "twinkle", "twinkle:GRPOAdvantage none", {"scale": "none"}),
    ("twinkle-rloo", "twinkle", "twinkle:RLOOAdvantage group", {}),
    ("tinker-cookbook-grpo", "tinker", "tinker:compute_advantages", {}),
]


def tables(preset: str) -> list[dict[str, list[Any]]]:
    """Groups of 1 to 7 rows, which stand together; rewards of 0 and 1 in every second table, else of any size."""
    smallest = 2 if preset in ERROR_OF_ONE | BLOCKS else 1
    drawn = np.random.default_rng(28)
    made = []
    for at in range(TABLES):
        sizes = drawn.integers(smallest, 8, drawn.integers(2, 9))
        if preset in BLOCKS:
            sizes[:] = sizes[0]
        rows = int(sizes.sum())
        rewards = (drawn.random(rows) < 0.4).astype(float) if at % 2 else drawn.normal(size=rows).round(3)
        made.append({
            "group": np.repeat(np.arange(len(sizes)), sizes).tolist(),
            "reward": rewards.tolist(),
            "length": drawn.integers(1, 12, rows).tolist(),
        })  # fmt: skip
    return made


@pytest.mark.parametrize(("preset", "package", "function", "more"), OF_RELEASES, ids=str)
def test_a_preset_has_the_numbers_of_the_released_package(
    preset: str, package: str, function: str, more: dict[str, Any]
) -> None:
    given = tables(preset)
    Path("tables.json").write_text(json.dumps(given), encoding="utf-8")
    theirs = decoded(package, "computes.py", function, Path("tables.json"))
    assert len(theirs) == TABLES
    for table, expected in zip(given, map(np.array, theirs), strict=True):
        reads_lengths = {"length_column": "length"} if "length" in presets()[preset].plan.needs else {}
        options: dict[str, Any] = {"preset": preset, "group": "group", **reads_lengths, **more}
        ours = np.array(grpo_cli.advantages(pl.DataFrame(table), **options))
        far = np.abs(ours - expected) / np.maximum(1, np.abs(expected))
        assert far.max() < OF_FLOAT32, (table, ours, expected)


def test_the_page_of_releases_has_a_line_for_each_of_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "releases.md").read_text(encoding="utf-8")
    for preset, package, _, more in OF_RELEASES:
        (release,) = (
            one
            for one in PACKAGES[package] + [ALONE.get(package, "")]
            if one.startswith((package, "tinker-", "twinkle-"))
        )
        options = f"`--scale {more['scale']}` " if more else ""
        assert f"| `{preset}` | {options}| {release.replace('==', ' ')} |" in page, (preset, release)
