"""Which groups are kept: conditions, shares, the top N, and those that go to further outputs (`rows`: which rows of them)."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import polars as pl

from grpo_cli.engine.extra_columns import MASKED
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.errors import DataError, UnknownName, UsageError, Way
from grpo_cli.options.conditions import Filter
from grpo_cli.read.group_keys import spanning
from grpo_cli.read.known_names import STEP_LIKE
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.pairs import key_texts
from grpo_cli.read.tables import column_names
from grpo_cli.read.texts import plain_texts
from grpo_cli.schemas.table import words
from grpo_cli.stats import facts
from grpo_cli.stats.difficulty import pass_at, solved_counts
from grpo_cli.stats.inspection import Inspection, prompt_columns, score_groups

FACTS = (
    "size", "scored", "unscorable", "mean", "std", "min", "max", "spread", "solve_rate", "constant", "nearly", "length", "truncated", "masked",
)  # fmt: skip

OF_RUNS = ("runs", "solved_runs")
OF_DRAWS = r"(^|[._])(group|uid)([._]|$)"  # ids of groups: a prompt has another in each step
Pick = Literal["best", "worst", "spread", "random", "shortest"]


def refuse_below(options: object, **least: int) -> None:
    """Refuse attributes (options) that are set to less than these numbers."""
    for name, bound in least.items():
        value = getattr(options, name)
        if value is not None and value < bound:
            raise UsageError(f"--{name.replace('_', '-')} cannot be {value}", f"it takes {bound} or more")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which groups are kept, and how many of their rows."""

    where: Filter | None = None  # condition that the facts of a group must meet; None: every group meets it
    solved_at: float | None = None  # least reward that counts as solved (pass@K); None: the highest in the input
    top: int | None = None  # the number of groups to keep with the largest `by`; None: all
    by: str = "std"  # what --top sorts by; -FACT takes the smallest
    top_p: float | None = None  # the share of the sum of the groups' variances to keep
    top_p_slack: float = 0.0  # how far below it the sum may stay
    limit: int | None = None  # groups to keep at most: the first, or a random choice if there is a seed; None: all
    per_group: int | None = None  # rows to keep at most of each group; None: all
    pick: Pick = "spread"  # which rows `per_group` keeps; shortest: of the solved ones
    seed: int | None = None  # of the random choices; None: `limit` takes the first groups, and the other draws use 0
    runs: int = 1  # this one and those of --against
    control: bool = False  # whether as many groups are also drawn at random, for a file of their own
    holdout: float | None = None  # the share of prompts that are split off
    holdout_seed: int | None = None  # another number splits the prompts in another way; None: 0

    def __post_init__(self) -> None:
        refuse_below(self, limit=1, per_group=1, top=1, seed=0, top_p_slack=0, holdout_seed=0)
        if self.runs > 1 and not {*OF_RUNS} & {*self.names}:
            cure = "for example --where 'solved_runs == 0 and runs == 3'"
            raise UsageError("--against counts runs, and --where and --by name neither runs nor solved_runs", cure)
        if self.holdout is not None and not 0 < self.holdout < 1:
            raise UsageError(f"--holdout cannot be {self.holdout:g}", "it takes a share between 0 and 1")
        if self.holdout_seed is not None and self.holdout is None:
            raise UsageError("--holdout-seed is part of --holdout", Way("--holdout", fill="SHARE", lead="add"))
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"--top-p cannot be {self.top_p}", "it takes a share above 0, up to 1")
        if self.top_p_slack and self.top_p is None:
            raise UsageError("--top-p-slack is part of --top-p", Way("--top-p", fill="P", lead="add"))
        if self.by != "std" and self.top is None:
            raise UsageError("--by is the order for --top", Way("--top", fill="N", lead="add"))
        if all(limit is None for limit in (self.where, self.limit, self.top, self.top_p)):
            if self.control:
                cure = "add --where, --top, --top-p or --limit"
                raise UsageError("--control is a draw beside a choice of groups", cure)
            if self.per_group is None and self.holdout is None:
                cure = "give --where CONDITION, --top N, --top-p P, --per-group N or --limit N, or --holdout SHARE"
                raise UsageError("nothing says what to keep", cure)

    @property
    def beside(self) -> list[str]:
        """The further outputs, in their order."""
        return [name for name in ("holdout", "control") if getattr(self, name)]

    @property
    def names(self) -> list[str]:
        """The facts of groups that the options name."""
        in_condition = self.where.names if self.where else ()
        return [*in_condition, self.by.removeprefix("-").replace("pass@", "pass_at_")]


def only(inspection: Inspection, where: Filter) -> Inspection:
    """The inspection of the groups that meet a condition, as if the input had no others."""
    masks, _ = choose_groups(inspection, Choice(where=where))
    kept = masks[""]
    if not kept.any():
        raise DataError(f"no group meets --where {where.text}", "inspect without --where shows all groups")
    places = np.flatnonzero(kept[inspection.narrow.table["group"].to_numpy()])
    groups = f"{int(kept.sum()):,} of {len(kept):,} groups"
    return of_rows(inspection, places, f"where {where.text}: {groups}")


def of_rows(inspection: Inspection, places: Index, note: str) -> Inspection:
    """The inspection of these rows, as if the input had no others; a note says why."""
    narrow = inspection.narrow.at(places)
    whole = replace(narrow, notes=(*narrow.notes, note))
    return score_groups(whole, inspection.scored.plan, inspection.columns)


def _quantities(inspection: Inspection, choice: Choice) -> pl.DataFrame:
    """What conditions can name: the facts and the key of each group, and pass@K and step columns if they are named."""
    groups = inspection.groups.with_columns(
        pl.col("constant", "nearly").cast(pl.Int8),
        unscorable=pl.col("size") - pl.col("scored"),
        spread=pl.col("max") - pl.col("min"),
    )
    quantities = groups.select([name for name in FACTS if name in groups.columns])
    quantities = quantities.with_columns(pl.selectors.float().fill_nan(None))
    narrow = inspection.narrow
    if MASKED not in quantities.columns and any(mark.kind == MASKED for mark in narrow.request.layout.marks):
        quantities = quantities.with_columns(
            pl.lit(0).alias(MASKED)
        )  # of none of these rows, as on a day without a time-out
    keys = [key.alias(words(key.name)) for key in narrow.key if not key.dtype.is_nested()]
    keys = [key for key in keys if key.name not in FACTS]
    there = {*quantities.columns, *(key.name for key in keys)}
    keys += _steps(narrow, {*choice.names} - there)
    keys = [key.cast(pl.String) if isinstance(key.dtype, pl.Categorical) else key for key in keys]
    quantities = quantities.with_columns(keys)
    draws = {int(name[8:]) for name in choice.names if re.fullmatch(r"pass_at_[1-9]\d*", name)}
    return quantities.with_columns(_passes(inspection, choice.solved_at, draws)) if draws else quantities


def _steps(narrow: Narrow, names: Collection[str]) -> list[pl.Series]:
    """The value of each of these step columns in every group; null if its rows have several."""
    codes = narrow.table["group"]
    values = []
    for name in STEP_LIKE:
        if name in names and name in narrow.carried:
            step = narrow.carried[name]
            several = codes.gather(spanning(narrow.groups, step))
            first = step.gather(narrow.groups.first)
            values.append(first.scatter(several, None).alias(name))
    return values


def _of_runs(runs: Sequence[Inspection], solved_at: float | None) -> Iterator[pl.Series]:
    """In how many runs the prompt of each group of the first has a reward, and in how many some row of it is solved."""
    from grpo_cli.stats.against import matched  # few runs compare

    bar = bar_of(pl.concat(run.groups.select("max") for run in runs), solved_at)
    for name, least in zip(OF_RUNS, (-math.inf, bar), strict=True):
        counts = pl.zeros(len(runs[0].groups), pl.Int64, eager=True)
        for run in runs:
            here, there = (keys["key"] for keys in matched(runs[0], run).keys)
            reached = there.filter(run.groups["max"] >= least)
            counts += here.is_in(reached.implode())
        yield counts.alias(name)


def bar_of(groups: pl.DataFrame, solved_at: float | None) -> float:
    """The least reward that counts as solved: by default the highest of all groups."""
    if solved_at is not None:
        return solved_at
    highest: Any = groups["max"].max()
    return -math.inf if highest is None else highest


def _passes(inspection: Inspection, solved_at: float | None, draws: Collection[int]) -> Iterator[pl.Series]:
    """pass@K of each group, for each K."""
    rewards = inspection.raw.rows[".reward"].to_numpy()
    scored = np.isfinite(rewards)
    bar = bar_of(inspection.groups, solved_at)
    codes = inspection.narrow.table["group"].to_numpy()
    height = len(inspection.groups)
    n = np.bincount(codes[scored], minlength=height)
    solved = solved_counts(codes, rewards, bar, height)
    for k in sorted(draws):
        if n.max() < k:
            raise DataError(f"no group has {k} scored rows for pass@{k}", f"the largest group has {n.max()}")
        yield pl.Series(f"pass_at_{k}", pass_at(n.tolist(), solved.tolist(), k), dtype=pl.Float64)


def choose_groups(
    inspection: Inspection, choice: Choice, others: Sequence[Inspection] = (), picked: Mask | None = None
) -> tuple[dict[str, Mask], list[facts.Dropped]]:
    """The groups of each output (that of the kept ones is called ""), and what each reason has dropped.

    Conditions come first, then --top-p, --top, --limit and --holdout. `others` are the runs of --against.
    The control is drawn from groups with a row that is `picked`.
    """
    quantities = _quantities(inspection, choice)
    if others:
        quantities = quantities.with_columns(_of_runs([inspection, *others], choice.solved_at))
    left = np.ones(len(quantities), dtype=bool)
    dropped = []

    def drop(groups: Index, reason: str) -> None:
        left[groups] = False
        if len(groups):
            dropped.append(_dropped(inspection, np.sort(groups), reason))

    drop(_without_a_row(inspection), "--rows leaves out all of their rows")
    free = left.copy()  # what the control is drawn from
    beside = {}
    for groups, reason in _beyond(choice, quantities, left, column_names(inspection.narrow.tables)):
        drop(groups, reason)
    if choice.holdout is not None:
        by, held = _held_out(inspection, choice.holdout, choice.holdout_seed or 0)
        _refuse_one_sided(choice.holdout, held[left])
        free &= ~held
        beside["holdout"] = left & held
        drop(np.flatnonzero(beside["holdout"]), f"--holdout {choice.holdout:g} by {by}")
    if choice.control:
        if picked is not None:
            free &= _has_row(inspection, picked)
        beside["control"] = _drawn(free, int((free & left).sum()), choice.seed or 0)
    return {"": left, **beside}, dropped


def _without_a_row(inspection: Inspection) -> Index:
    """The groups of which --rows leaves out every row."""
    marked = inspection.narrow.marked
    if marked is None or marked.met.all():
        return np.zeros(0, np.int64)
    return np.flatnonzero(~_has_row(inspection, marked.met.to_numpy()))


def _has_row(inspection: Inspection, rows: Mask) -> Mask:
    """Which groups have one of these rows."""
    codes = inspection.narrow.table["group"].to_numpy()[rows]
    counts: Index = np.bincount(codes, minlength=len(inspection.groups))
    return counts > 0


def _refuse_one_sided(share: float, held: Mask) -> None:
    """Refuse a split that leaves one of its sides empty; `held` is of the groups that the conditions left."""
    if len(held) and held.sum() in {0, len(held)}:
        which = "all" if held.any() else "none"
        wrong = f"--holdout {share:g} holds out {which} of the {len(held):,} groups"
        raise DataError(wrong, "another share, or another split: --holdout-seed N")


def _drawn(free: Mask, as_many: int, seed: int) -> Mask:
    """So many of the free groups, at random."""
    draw = np.random.default_rng([seed, 1])  # not that of --limit
    drawn = draw.permutation(np.flatnonzero(free))[:as_many]
    return np.isin(np.arange(len(free)), drawn)


def _beyond(
    choice: Choice, quantities: pl.DataFrame, left: Mask, columns: Collection[str]
) -> Iterator[tuple[Index, str]]:
    """The groups that each step drops, and its reason; they are no longer `left` when the next step is asked for."""
    if choice.where is not None:
        for part in choice.where.parts:
            fails = ~_holds(quantities, part, columns)
            yield np.flatnonzero(left & fails), f"{part.text} is false"
    if choice.top_p is not None:
        rest = np.flatnonzero(left)
        beyond = _beyond_share(quantities["std"][rest], choice.top_p, choice.top_p_slack)
        yield rest[beyond], f"--top-p {choice.top_p:g}"
    if choice.top is not None:
        rest = np.flatnonzero(left)
        order = _descending(quantities, choice.by)[rest].argsort(kind="stable")
        yield rest[order[choice.top :]], f"--top {choice.top} --by {choice.by}"
    if choice.limit is not None:
        rest = np.flatnonzero(left)
        order = rest if choice.seed is None else np.random.default_rng(choice.seed).permutation(rest)
        yield order[choice.limit :], f"--limit {choice.limit}"


def _held_out(inspection: Inspection, share: float, seed: int) -> tuple[str, Mask]:
    """The groups whose prompt is in the holdout: by a hash of its key, so that it depends on no other prompt and on no machine.

    Of a key that names a draw of the prompt, such as `group.id`, by its text; also what names the prompt.
    """
    narrow = inspection.narrow
    schema = narrow.request.schema
    names = prompt_columns(narrow)
    of_draws = any(re.search(OF_DRAWS, name) for name in names)
    if names and (narrow.request.layout.flags.group or not of_draws):
        keys = key_texts(narrow, narrow, names)[0]["words"].to_list()
    else:
        text = (schema and schema.prompt) or inspection.columns.get("prompt")
        first = narrow.groups.first.cast(pl.Int64).to_numpy()
        keys = plain_texts(narrow, first, text) if text else [None]
        if None in keys:
            key = ", ".join(narrow.key_words) or "blocks of rows"
            cure = "name the column of the prompt with --group"
            raise DataError(f"the group key ({key}) names no prompt, which --holdout splits by", cure)
        names = (str(text),)
    held = []
    for prompt in keys:
        digest = blake2b(f"{seed}:{prompt}".encode(), digest_size=8).digest()
        held.append(int.from_bytes(digest) < share * 2**64)
    return ", ".join(names), np.array(held)


def _descending(quantities: pl.DataFrame, by: str) -> Vector:
    """Sort keys for groups: the largest fact first (with -FACT the smallest), groups without it last."""
    name = by.removeprefix("-").replace("pass@", "pass_at_")
    if name not in quantities.columns or not quantities[name].dtype.is_numeric():
        numeric = [fact.name for fact in quantities if fact.dtype.is_numeric()]
        raise _unknown_fact(by.removeprefix("-").strip(), numeric)
    values = quantities[name].cast(pl.Float64).fill_nan(None)
    if not by.startswith("-"):
        values = -values
    return values.fill_null(math.inf).to_numpy()


def _beyond_share(stds: pl.Series, share: float, slack: float) -> Index:
    """The groups outside the smallest set whose variances add up to this share of all, less the slack."""
    variances = (stds**2).fill_null(0.0).fill_nan(0.0).to_numpy()
    order = np.argsort(-variances, kind="stable")
    total = np.cumsum(variances[order])
    least = share * total[-1] * (1 - 1e-12) - slack if len(total) else 0.0
    kept = np.searchsorted(total, least) + 1 if least > 0 else 0
    return order[kept:]


def _holds(quantities: pl.DataFrame, part: Filter, columns: Collection[str]) -> Mask:
    """Which groups meet a condition; an error knows the `columns` of rows."""
    for name in part.names:
        if name not in quantities.columns:
            raise _unknown_fact(name, quantities.columns, columns)
    return holding(quantities, part)


def holding(quantities: pl.DataFrame, condition: Filter) -> Mask:
    """Which lines meet a condition on these columns, all of which are there."""
    try:
        holds = quantities.with_columns(condition.expression().alias(".holds"))[".holds"]
    except pl.exceptions.PolarsError:
        types = []
        for name in condition.names:
            kind = "number" if quantities.schema[name].is_numeric() else "text"
            types.append(f"{name} is a {kind}")
        raise UsageError(f"{condition.text!r} compares values of different types", ", ".join(types)) from None
    return np.asarray(holds.to_numpy(), dtype=bool)


def _unknown_fact(name: str, known: Sequence[str], columns: Collection[str] = ()) -> UnknownName:
    """The error for a name that is not a fact, with a suggestion."""
    if name == "length":
        return UnknownName("no length is known", "name the column with --length-column")
    if name == "truncated":
        return UnknownName(
            "no column says whether a response was cut off", "such as truncated, finish_reason or stop_reason"
        )
    if name == "masked":
        return UnknownName(
            "nothing says which rows are masked",
            Way("--masked-column", lead="name the column that marks them with", fill="COL"),
        )
    if name in columns:
        cure = Way("--rows", lead="a condition on rows, such as this one, is", fill="'CONDITION'")
        return UnknownName(f"{name} is a column of rows, and --where is about facts of groups", cure)
    listed = [fact for fact in known if not fact.startswith("pass_at_")]
    return UnknownName.among("fact of a group", name.replace("pass_at_", "pass@"), [*listed, "pass@K"])


def _dropped(inspection: Inspection, codes: Index, reason: str) -> facts.Dropped:
    """These groups as dropped for a reason, with the first keys."""
    keys = [inspection.narrow.label(code) for code in codes[: facts.LISTED].tolist()]
    rows = int(facts.rows_of(inspection.groups).to_numpy()[codes].sum())
    return facts.Dropped(reason=reason, groups=len(codes), rows=rows, keys=keys)
