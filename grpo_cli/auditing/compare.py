"""Several plans on the same rows: where their advantages differ, and how much.

Every plan is measured against the first. The rewards are read once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.engine.compile import Scored, score
from grpo_cli.errors import UsageError
from grpo_cli.read.build_table import read, refuse_singletons, refuse_unscorable
from grpo_cli.read.choose_columns import columns_of_roles
from grpo_cli.stats.facts import plain, spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.tables import Binding, Narrow, Table

    Floats = NDArray[np.float64]

VERSION: Final = 1
LARGEST: Final = 3
LEAST: Final = 1e-9  # of the typical size: closer advantages are the same
SOLVED: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The advantages of every plan by its name, the rows they belong to, and the differences as plain data."""

    scored: Mapping[str, Scored]
    narrow: Narrow
    facts: Mapping[str, Any]


def compare(tables: Sequence[Table], binding: Binding, plans: Mapping[str, Plan]) -> Compared:
    """Compute every plan; the first is what the others are measured against."""
    if len(plans) < 2:  # noqa: PLR2004 - two are a comparison
        raise UsageError("a comparison needs two plans", "give --preset or --method twice")
    narrow = read(tables, binding, max(plans.values(), key=lambda plan: (plan.uses_batch, len(plan.needs))))
    for plan in plans.values():
        columns_of_roles(replace(binding, roles=narrow.roles), plan)
    scored = {name: score(plan, narrow.table) for name, plan in plans.items()}
    for one in scored.values():
        refuse_unscorable(one.plan, one.frame[".scorable"], narrow)
        refuse_singletons(one.plan, one.frame[".n"], narrow)
    values = {name: _values(one) for name, one in scored.items()}
    first, *others = scored
    facts = {
        "version": VERSION,
        "inputs": [table.name for table in tables],
        "rows": len(narrow.table),
        "groups": narrow.groups.size,
        "notes": list(narrow.notes),
        "plans": [_described(name, one.plan, values[name]) for name, one in scored.items()],
        "against": first,
        "differences": [_difference(name, scored[first], values[first], values[name], narrow) for name in others],
        "warnings": list(narrow.warnings),
    }
    return Compared(scored=scored, narrow=narrow, facts=facts)


def _values(scored: Scored) -> Floats:
    """One advantage a row; NaN where there is none."""
    frame = scored.frame
    kept = frame.select(pl.when(pl.col(".kept")).then(".advantage").fill_null(float("nan"))).to_series()
    return kept.to_numpy().astype(np.float64)


def _described(name: str, plan: Plan, values: Floats) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    return {
        "name": name,
        "plan": plan.as_dict(),
        "advantage": {
            **spread_of(pl.Series(finite)),
            "rms": _rms(finite),
            "zero_share": float(np.mean(finite == 0)) if len(finite) else None,
            "missing": int(len(values) - len(finite)),
        },
    }


def _difference(name: str, base: Scored, first: Floats, other: Floats, narrow: Narrow) -> dict[str, Any]:
    both = np.isfinite(first) & np.isfinite(other)
    frame = base.frame.select("group", ".n", ".mean", ".min", ".max").filter(pl.Series(both))
    x, y = first[both], other[both]
    told = _numbers(x, y)
    low, high = frame[".min"].min(), frame[".max"].max()
    solved = low is not None and high is not None and float(low) >= 0 and float(high) <= 1  # type: ignore[arg-type]
    return {
        "name": name,
        "rows": len(x),
        "lost": int((np.isfinite(first) != np.isfinite(other)).sum()),
        **told,
        "rank_correlation": _correlation(_ranks(x), _ranks(y)),
        "correlation": _correlation(x, y),
        "largest": _largest(np.flatnonzero(both), x, y, narrow),
        "by_size": _by(x, y, frame[".n"].fill_null(0).to_numpy(), sorted({*frame[".n"].drop_nulls().to_list()})),
        "by_solve_rate": _by_rate(x, y, frame[".mean"].to_numpy()) if solved else None,
    }


def _numbers(x: Floats, y: Floats) -> dict[str, Any]:
    """How two columns of advantages differ, row by row."""
    near = LEAST * max(_rms(x) or 0.0, _rms(y) or 0.0)
    moved = np.abs(y - x) > near
    size = _rms(x)
    return {
        "changed": int(moved.sum()),
        "sign_flips": int(np.sum((np.sign(x) * np.sign(y) < 0) & moved)),
        "scale_ratio": plain((_rms(y) or 0.0) / size) if size else None,
        "mean_change": plain(float(np.mean(np.abs(y - x)))) if len(x) else None,
        "largest_change": plain(float(np.max(np.abs(y - x)))) if len(x) else None,
    }


def _rms(values: Floats) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) else None


def _ranks(values: Floats) -> Floats:
    return pl.Series(values).rank("average").to_numpy().astype(np.float64)


def _correlation(x: Floats, y: Floats) -> float | None:
    """Of Pearson; None where one of them does not vary."""
    if len(x) < 2:  # noqa: PLR2004 - a line needs two points
        return None
    dx, dy = x - x.mean(), y - y.mean()
    size = np.sqrt(np.sum(dx**2)) * np.sqrt(np.sum(dy**2))
    return float(np.clip(np.sum(dx * dy) / size, -1.0, 1.0)) if size > 0 else None


def _largest(rows: NDArray[np.int64], x: Floats, y: Floats, narrow: Narrow) -> list[dict[str, Any]]:
    change = np.abs(y - x)
    top = np.argsort(-change, kind="stable")[:LARGEST]
    codes = narrow.table["group"]
    return [
        {
            "key": narrow.label(int(codes[int(rows[at])])), "place": narrow.place(int(rows[at])),
            "reward": narrow.table["reward.0"][int(rows[at])], "first": float(x[at]), "other": float(y[at]),
        }
        for at in map(int, top) if change[at] > 0
    ]  # fmt: skip


def _by(x: Floats, y: Floats, keys: NDArray[Any], values: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"size": int(value), "rows": int(here.sum()), **_numbers(x[here], y[here])}
        for value in values
        if (here := keys == value).any()
    ]


def _by_rate(x: Floats, y: Floats, mean: Floats) -> list[dict[str, Any]]:
    """Groups that are always failed, seldom, often and always solved."""
    told = []
    edges = pairwise(SOLVED)
    parts = [
        ("0", mean == 0),
        *((f"{a:g}..{b:g}", (mean > a) & (mean <= b) & (mean < 1)) for a, b in edges),
        ("1", mean == 1),
    ]
    for label, here in parts:
        if here.any():
            told.append({"solve_rate": label, "rows": int(here.sum()), **_numbers(x[here], y[here])})
    return told
