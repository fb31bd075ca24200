"""The golden tables: what the frameworks' own code returned, and the options that must give the same numbers."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_origin

import polars as pl

import grpo_cli
from grpo_cli.cli.command import read
from grpo_cli.options.resolve import plan_of
from grpo_cli.options.table import OPTIONS
from tests.support.command import adv

HERE = Path(__file__).resolve().parent.parent / "reference" / "golden"
TOLERANCE = 2e-5
KEYS = ("prompt_id", "sample", "run_id", "step")


@dataclass(frozen=True)
class Run:
    """One case on one dataset."""

    case: str
    dataset: str

    @property
    def args(self) -> list[str]:
        """The options of the command; those of the dataset say what a batch is, which is for plans with one."""
        facts = commands()["case"][self.case]
        beside = commands().get("dataset", {}).get(self.dataset, {}).get("args", [])
        args = [*facts["args"], *facts.get("on", {}).get(self.dataset, beside)]
        if "--batch-by" in args and not _uses_batch(args):
            at = args.index("--batch-by")
            del args[at : at + 2]
        return args

    @property
    def tolerance(self) -> float:
        """The general one; where the framework's float32 is off by more, what it is off by and a little."""
        deviations = cases()[self.case].get("dev_from_formula", {}).get(self.dataset, [])
        return float(TOLERANCE + 1.2 * max((one for one in deviations if isinstance(one, (int, float))), default=0.0))


def _uses_batch(args: Sequence[str]) -> bool:
    line = read(["compute", "x.parquet", *args])
    assert not isinstance(line, int)
    return plan_of(line.given.without({"batch_by"})).uses_batch


@cache
def cases() -> Mapping[str, Mapping[str, Any]]:
    """What is known of every case."""
    known: Mapping[str, Mapping[str, Any]] = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
    return known


@cache
def commands() -> Mapping[str, Any]:
    """Which command is which case."""
    return tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))


@cache
def table(kind: str, dataset: str) -> pl.DataFrame:
    """Input rows, or the advantages that were returned for them."""
    return pl.read_parquet(HERE / kind / f"{dataset}.parquet")


def runs(prefixes: Sequence[str] = ("",)) -> Iterator[Run]:
    """Every case on every dataset that it lists; those that are refused are left out."""
    shown = commands()["case"]
    for case, facts in cases().items():
        if case in shown and "args" in shown[case] and case.startswith(tuple(prefixes)):
            yield from (Run(case, dataset) for dataset in facts["datasets"])


def computed(run: Run) -> pl.Series:
    """The advantages of every row, by these options and in memory; null where a row is dropped."""
    options: dict[str, Any] = {}
    for flag, value in zip(run.args[::2], run.args[1::2], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        if get_origin(OPTIONS[name].type) is list:
            options.setdefault(name, []).append(value)
        else:
            options[name] = value
    advantages: pl.Series = grpo_cli.advantages(table("tables", run.dataset), **options)
    return advantages


def computed_by_command(run: Run, directory: Path) -> pl.Series:
    """The same from files: a row that is not written is dropped."""
    source = HERE / "tables" / f"{run.dataset}.parquet"
    out = directory / "out.parquet"
    done = adv(f"compute {source} -o {out} --force --quiet", *run.args)
    assert done.status == 0, f"{run}: {done.err.strip()}"
    rows = table("tables", run.dataset)
    written = pl.read_parquet(out)
    keys = [name for name in KEYS if name in rows.columns]
    assert written.join(rows, on=keys, how="semi").height == written.height == written.unique(keys).height
    return rows.select(keys).join(written, on=keys, how="left", maintain_order="left")["advantage"]


def differences(run: Run, got: pl.Series) -> list[str]:
    """The rows on which the tool and the framework differ."""
    wanted = table("expected", run.dataset)[run.case]
    both = table("tables", run.dataset).with_columns(wanted=wanted, advantage=got)
    facts = cases()[run.case]
    tolerance = pl.lit(run.tolerance)
    if facts["float32_noise"] and run.dataset == "zero_variance_mix":
        # The framework's own rounding, on constant groups or on all: no farther off than it is known to be.
        constant = (pl.col("reward").min() == pl.col("reward").max()).over("prompt_id")
        most = facts.get("float32_noise_max", 0.0)
        spread = facts.get("noise_spreads_to_batch", 0.0)
        if isinstance(most, str):
            # Its rounding decided which of them are dropped: by the formula all are.
            both, most = both.with_columns(wanted=pl.when(~constant).then(pl.col("wanted"))), 0.0
        tolerance = pl.when(constant).then(1.5 * most + TOLERANCE).otherwise(tolerance + 1.5 * spread)
    return [
        f"{row['prompt_id']}/{row['sample']}: {row['advantage']} instead of {row['wanted']}"
        for row in both.select("prompt_id", "sample", "advantage", "wanted", tolerance=tolerance).iter_rows(named=True)
        if not same(row["advantage"], row["wanted"], row["tolerance"])
    ]


def same(got: float | None, wanted: float | None, tolerance: float) -> bool:
    """Equal up to the tolerance; a row that was dropped is None on both sides, NaN is a value."""
    if got is None or wanted is None:
        return got is wanted
    if math.isnan(got) or math.isnan(wanted):
        return math.isnan(got) and math.isnan(wanted)
    # Deviations are recorded in units of the formula's value, which is what was computed.
    return abs(got - wanted) <= tolerance * max(1.0, abs(got), abs(wanted))
