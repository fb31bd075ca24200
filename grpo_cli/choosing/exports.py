"""The kinds of export: pure functions from rows with groups, rewards and advantages to records.

They get hashes instead of texts: equal hashes are equal texts, and 0 is a missing text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from grpo_cli.choosing.groups import Choice, bar_of, refuse_below
from grpo_cli.choosing.rows import pick_rows
from grpo_cli.engine.group_stats import Mask, Segments, finite_rows, group_extremes
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.errors import UsageError
from grpo_cli.options.conditions import Filter
from grpo_cli.read.group_keys import Coded, encode
from grpo_cli.read.texts import Converted, Hashes
from grpo_cli.schemas.table import words
from grpo_cli.stats.difficulty import BANDS, bands, pass_at, solve_rates, solved_counts
from grpo_cli.stats.facts import Number, reward_range
from grpo_cli.stats.inspection import Inspection, score_groups

# The form of conversations: one list, prompt and completion as two lists, or what is in the file.
Form = Literal["messages", "turns", "raw"]
BETA = 1.0  # the temperature in exp(A / beta), unless --beta says otherwise
MOST_COPIES = 1000  # of a row: more digits of a weight than anybody trains with, and an output of bearable size
MAX_WEIGHT = 20.0  # the largest exp(A / beta), unless --max-weight says otherwise


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of the export; None if not given."""

    to: str  # the kind of export, a name in `EXPORT_KINDS`
    choice: Choice = field(default_factory=lambda: Choice(per_group=1))  # which groups; the kind chooses rows
    prompt: str | None = None  # the column of the prompt; None: from the schema, else found by name
    response: str | None = None  # the column of the response; None: from the schema, else found by name
    # the column of a conversation that ends with the response, instead of prompt and response
    messages: str | None = None
    # sft: which rows of a group become records; None: the best
    pick: Literal["best", "all-above", "shortest"] | None = None
    form: Form | None = None  # of conversations; None: as many lists as the file has, as chat messages
    keep: tuple[str, ...] = ()  # further columns of the file that each record has
    target: str | None = None  # the trainer that will read the records; None: any
    tools: str | None = None  # the column of the tools that the model could call, or none; None: found by name
    on_error: Literal["error", "skip"] | None = None  # also of conversations with items that have no chat form
    per_group: int | None = None  # sft: records of a group at most; None: 1, with all-above no limit
    # sft: the least reward of a record; with all-above it replaces the mean of the group
    min_reward: float | None = None
    keep_duplicates: bool | None = None  # sft: whether equal responses to a prompt are kept
    # pairs: which responses of a group are compared; None: the best with the worst
    pairs: Literal["extremes", "adjacent", "all"] | None = None
    min_margin: float | None = None  # pairs: the least difference of the two rewards; None: any above 0
    # pairs: pairs of a group at most: the widest margins, or a random choice if there is a seed
    max_pairs: int | None = None
    # weights: how an advantage A becomes a weight; None: exp
    weight: Literal["exp", "softmax", "positive"] | None = None
    beta: float | None = None  # weights: the temperature in exp(A / beta); None: 1
    # weights: the largest exp(A / beta), before the weights of a group are scaled to mean 1; None: 20
    max_weight: float | None = None
    copies: int | None = None  # weights: how often the largest weight comes; None: a column with the weight
    by_sign: bool = False  # labels: good and bad are advantages above and below 0, by the plan that is named
    # weights: the largest importance ratio of a token; None: weights are not multiplied by a ratio
    ratio_cap: float | None = None
    # the column of log-probs of the tokens under the policy that is trained, for the ratio
    token_logprobs: str | None = None
    # the column of log-probs of the same tokens under the policy that sampled them
    old_token_logprobs: str | None = None
    pool: bool | None = None  # prompts: whether groups of the same prompt are merged
    pass_at: tuple[int, ...] | None = None  # prompts: each K for which pass@K is a column
    solved_at: float | None = None  # the least reward that counts as solved; None: the highest reward of the input
    # tokens: the column with the list of response tokens, or of all tokens if another column says which count
    tokens: str | None = None
    mask: str | None = None  # the column with a number for each token: tokens with 0 or -100 do not count
    # tokens: the column with the prompt tokens or their number, for the zeros that come first
    prompt_tokens: str | None = None
    length: str | None = None  # tokens: the column with the number of response tokens, which come last

    def __post_init__(self) -> None:
        refuse_below(self, max_pairs=1, copies=1)
        if self.copies is not None and self.copies > MOST_COPIES:
            raise UsageError(f"--copies cannot be {self.copies}", f"it takes 1 to {MOST_COPIES:,}")
        for name in ("beta", "max_weight", "ratio_cap"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"--{name.replace('_', '-')} cannot be {value:g}", "it takes a number above 0")
        of_ratio = {
            "--ratio-cap": self.ratio_cap,
            "--token-logprobs": self.token_logprobs,
            "--old-token-logprobs": self.old_token_logprobs,
        }
        missing = [flag for flag, value in of_ratio.items() if value is None]
        if 0 < len(missing) < len(of_ratio):
            cure = f"add {' and '.join(missing)}"
            raise UsageError("the ratio of a row needs a cap and the log-probs of both policies", cure)
        if self.weight == "positive" and (self.beta is not None or self.max_weight is not None):
            raise UsageError("--weight positive has no --beta and no --max-weight", "its weights are max(A, 0)")
        if self.weight == "softmax" and self.max_weight is not None:
            raise UsageError("--weight softmax has no --max-weight", "its weights add up to 1 in each group")


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What a first reading says of the texts of some rows, in their order."""

    rows: Index
    hashes: Mapping[str, Hashes]  # of each column of texts, as it is exported; 0 if it is missing or empty
    unanswered: Mask  # conversations in which the model says and calls nothing
    changed: Mask  # conversations that are not chat messages in the file
    wrong: Mapping[int, str]  # by row: why an item of a conversation is no message of any form
    converted: Converted  # the conversations that are not chat messages in the file, as chat messages
    hidden: Index  # items of encrypted reasoning, which are dropped
    branches: Index  # of a trace, beside its last one, which alone is exported
    with_tools: Mask
    tools: Hashes  # of each list of tools; 0 without tools, and for a trace, whose nodes hold more
    plain: Mask  # texts alone, no list of messages
    few_shot: Mask  # turns of the model in the prompt
    tool_results: Mask  # results of tools in the response
    reasoning: Mask  # reasoning beside the text of a turn
    formless: Mapping[int, Counter[str]]  # by position: the types of items that have no chat form

    def of(self, rows: Index) -> Index:
        """The positions of these rows."""
        return np.searchsorted(self.rows, rows)


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """The rows that a kind chooses from, in the order of the input: row number, group, reward, advantage, text hashes."""

    rows: Index  # the number of each row in the narrow table
    codes: Index  # the group of each row, a line of `groups`
    # finite, before any shaping; with `all_rows` the reward of the rollout; prompts: NaN for a missing one
    rewards: Vector
    advantages: Vector  # of each row; 0 if it is masked, NaN if it has none
    prompts: Hashes  # the hash of each prompt; all 0 if no column of it is compared
    responses: Hashes  # the hash of each response or conversation; all 0 for an export of prompts or tokens
    groups: pl.DataFrame  # the facts of all groups of the input, a line per code
    lengths: Vector | None = None  # for --pick shortest
    looked: Looked | None = None  # at the texts of more rows than these; None for tokens
    left_out: tuple[tuple[str, int], ...] = ()  # each reason why rows were left out, and the number of rows

    @property
    def height(self) -> int:
        """One more than the largest code; some groups below it may have no rows."""
        return int(self.codes.max(initial=-1)) + 1

    def at(self, kept: Mask | Index) -> Rollouts:
        """The rollouts at these positions."""
        of_rows: dict[str, Any] = {}
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                of_rows[name] = column[kept]
        return replace(self, **of_rows)

    def keep(self, kept: Mask, reason: str) -> Rollouts:
        """These rollouts; the others are counted under the reason to leave them out."""
        if kept.all():
            return self
        rows = int((~kept).sum())
        return replace(self.at(kept), left_out=(*self.left_out, (reason, rows)))


@dataclass(frozen=True)
class Scale:
    """The rewards with the solve rates 0 and 1."""

    worst: Number  # the reward with solve rate 0: 0 if all rewards lie in 0..1, else the lowest; None: no reward
    best: Number  # the reward with solve rate 1: 1 if all rewards lie in 0..1, else the highest; None: no reward


@dataclass(frozen=True, kw_only=True)
class Records:
    """What will be written: for each record the rows of its texts, and the computed columns."""

    # the rows of each text column: response, or chosen and rejected; of whole groups the first row of each
    rows: Mapping[str, Index]
    columns: pl.DataFrame  # the computed columns, a line per record
    left_out: tuple[tuple[str, int], ...] = ()  # the reason, and the number of rows
    warnings: tuple[str, ...] = ()  # about the records, each a sentence
    facts: Mapping[str, Any] = field(default_factory=dict)  # fields of the summary that only this kind has
    members: pl.Series | None = None  # the rows of each record that is a whole group, as lists

    def at(self, kept: Mask) -> Records:
        """Some of the records."""
        mask = pl.Series(kept)
        rows = {name: places[kept] for name, places in self.rows.items()}
        members = None if self.members is None else self.members.filter(mask)
        return replace(self, rows=rows, columns=self.columns.filter(mask), members=members)

    @property
    def all_rows(self) -> Index:
        """The rows that are in records, ascending, each once."""
        if self.members is not None:
            return np.unique(self.members.explode().drop_nulls().to_numpy())
        return np.unique(np.concatenate([*self.rows.values()]))


# --- sft -------------------------------------------------------------------------------------------------------


def sft(rollouts: Rollouts, wanted: Wanted) -> Records:
    """The best rows of each group, without duplicate texts."""
    ends = _ends(rollouts.rewards)
    most = wanted.per_group
    if not wanted.keep_duplicates:
        rollouts = rollouts.keep(_distinct(rollouts), "duplicate responses in their group")
    if wanted.min_reward is not None:
        rollouts = rollouts.keep(rollouts.rewards >= wanted.min_reward, f"a reward below {wanted.min_reward:g}")
    if wanted.pick != "all-above":
        most = most or 1
    elif wanted.min_reward is None:
        means = rollouts.groups["mean"].to_numpy()
        rollouts = rollouts.keep(rollouts.rewards > means[rollouts.codes], "not above the mean of its group")
    if wanted.pick == "shortest":
        bar = bar_of(rollouts.groups, wanted.solved_at)
        rollouts = rollouts.keep(rollouts.rewards >= bar, f"not solved: a reward below {bar:g}")
    if most is not None:
        codes = rollouts.codes.astype(np.uint32)
        lengths = rollouts.lengths
        picked = pick_rows(codes, rollouts.rewards, most, "best", 0, lengths)
        which = "best" if lengths is None else "shortest"
        rollouts = rollouts.keep(picked, f"not among the {which} {most} of its group")
    if not wanted.keep_duplicates:
        is_first = _first(rollouts.prompts, rollouts.responses)
        rollouts = rollouts.keep(is_first, "duplicates of another group's prompt and response")
    warnings = () if wanted.min_reward is not None else tuple(_lowest_kept(rollouts.rewards, *ends))
    return Records(
        rows={"response": rollouts.rows},
        columns=pl.DataFrame({"reward": rollouts.rewards}),
        left_out=rollouts.left_out,
        warnings=warnings,
    )


def _ends(rewards: Vector) -> tuple[float, float]:
    """The lowest and the highest reward."""
    return float(rewards.min(initial=np.inf)), float(rewards.max(initial=-np.inf))


def _lowest_kept(rewards: Vector, worst: float, best: float) -> Iterator[str]:
    """A warning about records that are the best of their group and still have the lowest reward of all rows."""
    if worst == best != 1:  # if all are solved, no record is a failure
        yield f"every row has the reward {worst:g}: no record is better than another row"
    lowest = (rewards == worst).sum() if worst < best else 0
    if lowest:
        have = "has" if lowest == 1 else "have"
        records = f"{lowest:,} of {len(rewards):,} records"
        more = rewards[rewards > worst].min(initial=best)
        yield f"{records} {have} the lowest reward, {worst:g}: no row of the same group is better; --min-reward {more:g} leaves them out"


def _distinct_keys(*keys: np.ndarray[tuple[int], Any]) -> Coded:
    """The distinct combinations of these numbers, in the order in which they first appear."""
    return encode(list(map(pl.Series, keys)))


def _first(*keys: np.ndarray[tuple[int], Any]) -> Mask:
    """The first row with each combination of these numbers."""
    first = np.zeros(len(keys[0]), dtype=bool)
    first[_distinct_keys(*keys).first.to_numpy()] = True
    return first


def _distinct(rollouts: Rollouts) -> Mask:
    """One row for each response of a group: the one with the highest reward, and the first if several have it."""
    order = np.argsort(-rollouts.rewards, kind="stable")
    kept = np.empty(len(order), dtype=bool)
    kept[order] = _first(rollouts.codes[order], rollouts.responses[order])
    return kept


# --- pairs -----------------------------------------------------------------------------------------------------


def pairs(rollouts: Rollouts, wanted: Wanted) -> Records:
    """Records with a better and a worse response to one prompt in one group; equal rewards make no pair."""
    of_prompts = _distinct_keys(rollouts.prompts, rollouts.codes)
    rollouts = replace(rollouts, codes=of_prompts.codes.cast(pl.Int64).to_numpy())
    rollouts = rollouts.keep(_distinct(rollouts), "duplicate responses in their group")
    rollouts = rollouts.at(np.lexsort((-rollouts.rewards, rollouts.codes)))
    codes = rollouts.codes
    rewards = rollouts.rewards
    made = np.array(_PAIRS[wanted.pairs or "extremes"](rollouts))
    margins = rewards[made[0]] - rewards[made[1]]
    differ = margins > 0
    wide = differ & (margins >= (wanted.min_margin or 0.0))
    facts = {"narrow_pairs": int(differ.sum() - wide.sum())}
    made = made[:, wide]
    margins = margins[wide]
    if wanted.max_pairs is not None:
        seed = wanted.choice.seed
        by = -margins if seed is None else np.random.default_rng(seed).random(len(margins))
        groups = codes[made[0]].astype(np.uint32)
        kept = pick_rows(groups, by, wanted.max_pairs, "worst", 0)
        facts["pairs_over_limit"] = int((~kept).sum())
        made = made[:, kept]
    better, worse = made[:, np.lexsort(made[::-1])]  # in the order of the better rows, then of the worse ones
    facts["groups_without_pair"] = of_prompts.size - len(np.unique(codes[better]))
    unused = len(rewards) - len(np.union1d(better, worse))
    chosen = rewards[better]
    rejected = rewards[worse]
    columns = {"chosen_reward": chosen, "rejected_reward": rejected, "margin": chosen - rejected}
    return Records(
        rows={"chosen": rollouts.rows[better], "rejected": rollouts.rows[worse]},
        columns=pl.DataFrame(columns),
        left_out=(*rollouts.left_out, ("not used in any pair", unused)),
        facts=facts,
    )


# Each gets rows sorted by group and descending reward, and returns the positions of better and of worse rows.


def _levels(rollouts: Rollouts) -> Index:
    """The first row with each distinct reward of a group."""
    new_group = np.diff(rollouts.codes, prepend=-1) != 0
    new_reward = np.diff(rollouts.rewards, prepend=0.0) != 0
    return np.flatnonzero(new_group | new_reward)


def _extremes(rollouts: Rollouts) -> tuple[Index, Index]:
    levels = _levels(rollouts)
    groups = Segments.of_ordered(rollouts.codes[levels])
    return levels[groups.starts], levels[groups.starts + groups.sizes - 1]


def _adjacent(rollouts: Rollouts) -> tuple[Index, Index]:
    levels = _levels(rollouts)
    codes = rollouts.codes[levels]
    same = codes[1:] == codes[:-1]
    return levels[:-1][same], levels[1:][same]


def _all(rollouts: Rollouts) -> tuple[Index, Index]:
    sizes = np.unique(rollouts.codes, return_counts=True)[1]
    places = np.arange(len(rollouts.rows))
    better = [places[:0]]
    worse = [places[:0]]
    for away in range(1, sizes.max(initial=0)):
        places = places[places < len(rollouts.rows) - away]
        places = places[rollouts.codes[places] == rollouts.codes[places + away]]
        better.append(places)
        worse.append(places + away)
    return np.concatenate(better), np.concatenate(worse)


_PAIRS = {
    "extremes": _extremes,
    "adjacent": _adjacent,
    "all": _all,
}


# --- labels ----------------------------------------------------------------------------------------------------


def labels(rollouts: Rollouts, wanted: Wanted) -> Records:
    """Every row as good or bad: by its reward, or by the sign of its advantage, where 0 is neither."""
    if wanted.by_sign:
        rollouts = rollouts.keep(np.isfinite(rollouts.advantages), "no finite advantage")
        rollouts = rollouts.keep(rollouts.advantages != 0, "an advantage of 0")
        good = rollouts.advantages > 0
        columns = {"label": good, "reward": rollouts.rewards, "advantage": rollouts.advantages}
    else:
        good = rollouts.rewards >= bar_of(rollouts.groups, wanted.solved_at)
        columns = {"label": good, "reward": rollouts.rewards}
    return Records(
        rows={"response": rollouts.rows},
        columns=pl.DataFrame(columns),
        left_out=rollouts.left_out,
        facts={"labels": {"true": int(good.sum()), "false": int((~good).sum())}},
    )


# --- groups ----------------------------------------------------------------------------------------------------


def whole_groups(rollouts: Rollouts, _: Wanted) -> Records:
    """A record for each prompt of a group, with the rows that have an advantage, in the order of the input."""
    rollouts = rollouts.keep(np.isfinite(rollouts.advantages), "no finite advantage")
    codes = _distinct_keys(rollouts.prompts, rollouts.codes).codes
    rows = {"row": rollouts.rows, "rewards": rollouts.rewards, "advantages": rollouts.advantages}
    lists = pl.DataFrame({"code": codes, **rows}).group_by("code", maintain_order=True).agg(pl.all())
    return Records(
        rows={"response": lists["row"].list.first().to_numpy()},
        columns=lists.select("rewards", "advantages"),
        left_out=rollouts.left_out,
        members=lists["row"],
    )


# --- weights ---------------------------------------------------------------------------------------------------


def weights(rollouts: Rollouts, wanted: Wanted) -> Records:
    """Every row whose weight is above 0."""
    rollouts = rollouts.keep(np.isfinite(rollouts.advantages), "no finite advantage")
    weight = _weight(rollouts, wanted)
    rollouts = rollouts.keep(weight > 0, "a weight of 0")
    columns = {"reward": rollouts.rewards, "advantage": rollouts.advantages, "weight": weight[weight > 0]}
    worst, best = _ends(rollouts.rewards)
    warnings = tuple(_lowest_kept(rollouts.rewards, worst, best)) if worst == best else ()
    lowest = int((rollouts.rewards == worst).sum()) if worst < best else 0
    return Records(
        rows={"response": rollouts.rows},
        columns=pl.DataFrame(columns),
        left_out=rollouts.left_out,
        warnings=warnings,
        facts={"lowest_reward_records": lowest},
    )


def as_copies(records: Records, most: int, seed: int) -> Records:
    """The records as whole copies: the largest weight comes `most` times, the others in proportion, by chance where it does not divide."""
    weight = records.columns["weight"].to_numpy()
    times = weight / weight.max(initial=0.0) * most
    whole = np.floor(times)
    copies = (whole + (np.random.default_rng(seed).random(len(times)) < times - whole)).astype(np.int64)
    of_records = np.repeat(np.arange(len(copies)), copies)
    rewards = records.columns["reward"].to_numpy()
    lowest = rewards[of_records] == rewards.min(initial=np.inf)
    return replace(
        records,
        rows={"response": records.rows["response"][of_records]},
        columns=records.columns[of_records].drop("weight"),
        left_out=(*records.left_out, ("a weight of less than a copy", int((copies == 0).sum()))),
        facts={"lowest_reward_records": int(lowest.sum()) if len(np.unique(rewards)) > 1 else 0},
    )


def _weight(rollouts: Rollouts, wanted: Wanted) -> Vector:
    """The weight of each row; where a quotient overflows, the largest number is used."""
    advantages = rollouts.advantages
    codes = rollouts.codes
    beta = wanted.beta or BETA
    if wanted.weight == "positive":
        return np.maximum(advantages, 0.0)
    # Subtracting the highest exponent of a group does not change the shares of its rows.
    with np.errstate(over="ignore"):
        if wanted.weight == "softmax":
            exponents = np.nan_to_num(_below_highest(advantages, rollouts) / beta)
        else:
            largest = math.log(wanted.max_weight or MAX_WEIGHT)
            limited = np.minimum(np.nan_to_num(advantages / beta), largest)
            exponents = _below_highest(limited, rollouts)
    weight = np.exp(exponents)
    total = 1 if wanted.weight == "softmax" else np.bincount(codes)[codes]
    sums = np.bincount(codes, weights=weight)
    return weight * total / sums[codes]


def _below_highest(values: Vector, rollouts: Rollouts) -> Vector:
    """The values minus the highest of their group."""
    _, most = group_extremes(rollouts.codes, values, rollouts.height)
    return values - most[rollouts.codes]


# --- prompts ---------------------------------------------------------------------------------------------------


def of_prompts(inspection: Inspection, prompts: Hashes, wanted: Wanted) -> Inspection:
    """The inspection with the groups to export, whose facts conditions use.

    `prompts` has the hash of each group's prompt; with `pool`, the groups of one prompt are merged. `.prompt` of a group says
    whether it has one.
    """
    if wanted.pool:
        inspection, prompts = _pooled(inspection, prompts, wanted.choice.where)
    rates = solve_rates(inspection.groups)
    if wanted.solved_at is not None:
        rows = inspection.raw.rows
        codes, rewards = finite_rows(rows["group"].to_numpy(), rows[".reward"])
        solved = solved_counts(codes, rewards, wanted.solved_at, len(inspection.groups))
        rates = (pl.Series(solved) / inspection.groups["scored"]).fill_nan(None)
    there = pl.Series(".prompt", prompts != 0)
    return replace(inspection, groups=inspection.groups.with_columns(rates.alias("solve_rate"), there))


def _pooled(inspection: Inspection, prompts: Hashes, where: Filter | None) -> tuple[Inspection, Hashes]:
    """The inspection with the groups of each prompt merged into one, and the prompts of these."""
    narrow = inspection.narrow
    of_groups = encode([pl.Series(prompts)])
    of_prompts = []
    for column in narrow.key:
        if encode([of_groups.codes, column]).size == of_groups.size:
            of_prompts.append(column.name)
        elif where and words(column.name) in where.names:
            wrong = f"{words(column.name)} has several values in the groups that --pool merges into one prompt"
            raise UsageError(wrong, "leave out --pool, or the condition on it")
    key = narrow.key[of_groups.first]
    codes = of_groups.codes.gather(narrow.table["group"])
    whole = replace(
        narrow,
        table=narrow.table.with_columns(codes.alias("group")),
        groups=Coded(codes, narrow.groups.first.gather(of_groups.first)),
        key=key[of_prompts or key.columns],
    )
    pooled = score_groups(whole, inspection.scored.plan, inspection.columns)
    return pooled, prompts[of_groups.first.to_numpy()]


def prompts(rollouts: Rollouts, wanted: Wanted) -> Records:
    """A row for each group, in order of first appearance, with the numbers that conditions use.

    Rows without a reward are not counted.
    """
    codes, first = np.unique(rollouts.codes, return_index=True)
    groups = rollouts.groups[codes]
    n = groups["scored"].to_list()
    best: Any = rollouts.groups["max"].max()
    solved_at = wanted.solved_at
    bar = best if solved_at is None else solved_at
    least = math.inf if bar is None else bar
    counts = solved_counts(rollouts.codes, rollouts.rewards, least, len(rollouts.groups))
    solved = counts[codes].tolist()
    std = pl.when(pl.col("scored") > 1).then("std")
    columns = groups.select("solve_rate", "mean", std, n="scored", best="max", worst="min")
    columns = columns.select("n", pl.selectors.float().fill_nan(None))
    difficulty = pl.Series(BANDS).gather(bands(columns["solve_rate"].to_numpy()))
    rated = pl.when(pl.col("solve_rate").is_not_null())
    columns = columns.with_columns(difficulty=rated.then(difficulty))
    passes = [pl.Series(f"pass@{k}", pass_at(n, solved, k), dtype=pl.Float64) for k in wanted.pass_at or ()]
    return Records(
        rows={"prompt": rollouts.rows[first]},
        columns=columns.with_columns(passes),
        left_out=rollouts.left_out,
        facts={
            "solved_at": bar if wanted.pass_at or solved_at is not None else None,
            "scale": Scale(*reward_range(rollouts.groups)) if solved_at is None else None,
        },
    )


# --- tokens ----------------------------------------------------------------------------------------------------


def tokens(rollouts: Rollouts, _: Wanted) -> Records:
    """Every row that has an advantage."""
    rollouts = rollouts.keep(np.isfinite(rollouts.advantages), "no finite advantage")
    columns = {"reward": rollouts.rewards, "advantage": rollouts.advantages}
    return Records(rows={"tokens": rollouts.rows}, columns=pl.DataFrame(columns), left_out=rollouts.left_out)
