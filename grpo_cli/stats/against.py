"""Two runs on the same prompts: how solve rates changed, and how sure that is. Everything is plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from grpo_cli.errors import DataError
from grpo_cli.formats.cells import canonical
from grpo_cli.formats.interface import PARENT
from grpo_cli.read.known_names import STEP_LIKE
from grpo_cli.stats.difficulty import BANDS, USEFUL
from grpo_cli.stats.facts import worst_and_best
from grpo_cli.stats.figures import count_by_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.stats.inspection import Inspection

    Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

VERSION: Final = 1
DRAWS: Final = 2000  # of all prompts, with replacement
LEAST_DRAWS, MOST_NUMBERS = 200, 200_000_000  # of very many prompts fewer draws: their mean varies little
LEVEL: Final = 0.95
LISTED: Final = 5
DIGITS: Final = 12
KINDS: Final = ("better", "same", "worse")
HALF: Final = 0.5


def against(now: Inspection, before: Inspection) -> dict[str, Any]:
    """What changed from `before` to `now`, prompt by prompt.

    Groups with the same key but for its step are one prompt. The interval is that of the mean change: prompts are drawn
    with replacement, each with its two rates.
    """
    names = _prompt_columns(now, before)
    worst, best = worst_and_best(*_extremes([now, before]))
    if worst is None or best is None or worst == best:
        raise DataError("both runs have one reward throughout: there is no solve rate to compare")
    tables = [_by_prompt(one, names, worst, best) for one in (now, before)]
    both = tables[0].join(tables[1], on="key", how="inner", maintain_order="left", suffix="_before")
    if not len(both):
        examples = " and ".join(f"{table['key'][0]}" for table in tables)
        wrong = f"no prompt is in both runs ({', '.join(names)} is {examples})"
        raise DataError(wrong, "--group NAME takes a key that is the same in both, as the prompt itself")
    rates, rates_before = both["rate"].to_numpy(), both["rate_before"].to_numpy()
    change = np.round(rates - rates_before, DIGITS)  # else rounding in a mean would make a prompt better
    draws, low, high = _interval(change)
    only = [one.join(other, on="key", how="anti", maintain_order="left") for one, other in (tables, tables[::-1])]
    return {
        "version": VERSION,
        "key": list(names),
        "worst": worst,
        "best": best,
        "prompts": len(both),
        "only_now": {"prompts": len(only[0]), "keys": only[0]["key"].head(LISTED).to_list()},
        "only_before": {"prompts": len(only[1]), "keys": only[1]["key"].head(LISTED).to_list()},
        "rows": {"now": int(both["n"].sum()), "before": int(both["n_before"].sum())},
        "solve_rate": {
            "now": float(rates.mean()), "before": float(rates_before.mean()), "change": float(change.mean()),
            "low": low, "high": high, "level": LEVEL, "draws": draws,
        },
        "changes": count_by_kind(pl.Series(change), 1 - np.sign(change).astype(np.int8), KINDS),
        "better": int((change > 0).sum()),
        "worse": int((change < 0).sum()),
        "same": int((change == 0).sum()),
        "solved_first": int(((rates > 0) & (rates_before == 0)).sum()),
        "solved_no_more": int(((rates == 0) & (rates_before > 0)).sum()),
        "flips": {
            "up": int(((rates >= HALF) & (rates_before < HALF)).sum()),
            "down": int(((rates < HALF) & (rates_before >= HALF)).sum()),
        },
        "by_difficulty": _by_difficulty(rates, rates_before),
        "gained": _largest(both, change, -change),
        "lost": _largest(both, change, change),
    }  # fmt: skip


def _prompt_columns(now: Inspection, before: Inspection) -> tuple[str, ...]:
    """The columns of the key without those that tell steps apart; both runs have to have the same."""
    kept = [
        tuple(name for name in one.narrow.key.columns if name not in {*STEP_LIKE, PARENT} and not name.startswith("@"))
        for one in (now, before)
    ]
    if not kept[0] or kept[0] != kept[1]:
        keys = " and ".join(", ".join(one.narrow.key_words) or "blocks" for one in (now, before))
        prompts = {one.columns.get("prompt") for one in (now, before)}
        same = prompts.pop() if len(prompts) == 1 else None
        cure = f"--group {same} takes the prompt, which both have" if same else "name the prompt with --group"
        raise DataError(f"the groups of the two runs have no key in common ({keys})", cure)
    return kept[0]


def _extremes(runs: Sequence[Inspection]) -> tuple[float | None, float | None]:
    low: list[Any] = [one.groups["min"].min() for one in runs]
    high: list[Any] = [one.groups["max"].max() for one in runs]
    return min((v for v in low if v is not None), default=None), max((v for v in high if v is not None), default=None)


def _by_prompt(one: Inspection, names: Sequence[str], worst: float, best: float) -> pl.DataFrame:
    """A line for each prompt with a reward: its key, how many rewards it has, and its solve rate."""
    texts = [canonical(one.narrow.key[name]).str.strip_chars('"').fill_null("null") for name in names]
    key = pl.select(pl.concat_str(texts, separator=", ")).to_series().alias("key")
    groups = one.groups.select("scored", "mean").with_columns(key).filter(pl.col("scored") > 0)
    pooled = groups.group_by("key", maintain_order=True).agg(
        n=pl.col("scored").sum(), mean=(pl.col("mean") * pl.col("scored")).sum() / pl.col("scored").sum()
    )
    return pooled.with_columns(rate=((pl.col("mean") - worst) / (best - worst)).clip(0.0, 1.0))


def _interval(change: Floats) -> tuple[int, float, float]:
    """How often prompts were drawn, and between which ends the middle share of the mean changes lies."""
    draws = max(LEAST_DRAWS, min(DRAWS, MOST_NUMBERS // len(change)))
    random = np.random.default_rng(0)
    means = [change[random.integers(len(change), size=len(change))].mean() for _ in range(draws)]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return draws, float(low), float(high)


def _by_difficulty(rates: Floats, before: Floats) -> list[dict[str, Any]]:
    """The mean rates of the prompts that were never, seldom, sometimes, mostly and always solved before."""
    low, high = USEFUL
    places = np.select([before == 0, before < low, before <= high, before < 1], [0, 1, 2, 3], 4)
    lines = []
    for place, band in enumerate(BANDS):
        here = places == place
        if here.any():
            means = {"before": float(before[here].mean()), "now": float(rates[here].mean())}
            lines.append(
                {"difficulty": band, "prompts": int(here.sum()), **means, "change": means["now"] - means["before"]}
            )
    return lines


def _largest(both: pl.DataFrame, change: Floats, order: Floats) -> list[dict[str, Any]]:
    """The prompts whose rates changed most in one direction."""
    first = [at for at in np.argsort(order, kind="stable")[:LISTED].tolist() if order[at] < 0]
    return [
        {
            "key": both["key"][at],
            "before": both["rate_before"][at],
            "now": both["rate"][at],
            "change": float(change[at]),
        }
        for at in first
    ]


def verdict(facts: Mapping[str, Any]) -> str:
    """What the interval lets one say."""
    rate = facts["solve_rate"]
    if rate["low"] <= 0 <= rate["high"]:
        return "The interval holds 0: on other prompts of this kind there may be no change."
    return f"The run is {'better' if rate['change'] > 0 else 'worse'} than the one before on these prompts."
