"""The result of `inspect`: facts of rewards and groups, and the frames that they were computed from.

Rows without a reward and groups of one row are not errors here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import polars as pl

from grpo_cli.engine.group_stats import finite_means, finite_rows, finite_stds, group_extremes
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import Scored, Status, score
from grpo_cli.errors import UnknownName
from grpo_cli.read import known_names
from grpo_cli.read.group_keys import encode, spanning
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import Binding
from grpo_cli.stats import correlations, difficulty, facts, passes
from grpo_cli.stats.correlations import Lengths
from grpo_cli.stats.courses import Course, course
from grpo_cli.stats.difficulty import AtSize, Difficulty, Spread
from grpo_cli.stats.document import ABSENT, Absent, asked_by
from grpo_cli.stats.facts import Number
from grpo_cli.stats.off_policy import OffPolicy
from grpo_cli.stats.passes import Draws
from grpo_cli.stats.trends import Trend, TrendLine, as_numbers, in_order, over_steps
from grpo_cli.values.cells import Kind, bare_texts, where
from grpo_cli.values.paths import PARENT

TOP = 3  # groups listed at either end
SORT = "std"
MOST_COURSES = 100  # categories whose trend is looked at
MOST_ENVIRONMENTS = 20  # values of a column that are environments, and no names of prompts
OF_GROUPS = {"group_std": "std", "zero_variance": "constant"}  # facts of a trend that are of groups, and their column
FILE = "file"
EMPTY = ("", "[]", "{}")  # no text, or no messages
# What groups can be sorted by, and what a line of the list shows.
GROUP_FACTS = ("size", "scored", "mean", "std", "min", "max", "solve_rate", "length")
LOGPROBS = ("--token-logprobs", "COL", "and --old-token-logprobs COL")
# Parts of a run's summary that are not about rewards.
NOT_SHOWN = frozenset({
    "advantage", "status", "skipped", "kept", "plan", "batches", "batch_key", "key_note", "failed", "skipped_rows", "zero_share",
})  # fmt: skip


@dataclass(frozen=True)
class RewardColumn:
    """A reward column by itself, without its weight."""

    INLINE: ClassVar = ("values",)

    values: facts.Distribution
    unscorable: int  # rows without a finite reward in this column, rows that are left out of their groups among them
    # of the groups with two finite rewards in this column, those where all are equal; None without such groups
    zero_variance_share: Number
    weight: float  # of the column in the reward; the other fields are of its values before weighting


@dataclass(frozen=True, kw_only=True)
class Components:
    """Correlations of reward columns within groups; `decides` has the closest correlation with the advantage."""

    # Pearson's of each reward column with each of them, after subtracting group means; None if one is then constant
    correlation: Mapping[str, Mapping[str, Number]]
    # Pearson's of each reward column with the response length within groups; absent without a column of lengths
    length: Mapping[str, Number] | None = None
    # Pearson's of each reward column with the advantage within groups; None if one of them is constant
    advantage: Mapping[str, Number]
    # the reward column with the largest |correlation| with the advantage; None if no column has any
    decides: str | None


@dataclass(frozen=True)
class Duplicates:
    """Responses that repeat an earlier response of their group; missing and empty texts do not count."""

    column: str  # of the responses that were compared
    rows: int  # that repeat the text of an earlier row of their group
    share: Number  # of the rows with a text; None if no row has one


# If more of the groups have rows in several categories, facts of whole groups are not told of a category: of fewer, a share is off by
# about one group in twenty.
MIXED = 0.05


@dataclass(frozen=True)
class CutOff:
    """Responses that were cut off, as by a limit of their length."""

    column: str  # that says so
    rows: int  # whose response was cut off
    share: float  # of all rows
    unsolved_share: Number  # the share among the rows with the worst reward; None without such rows
    solved_share: Number  # the share among the rows with the best reward; None without such rows


@dataclass(frozen=True)
class Environments:
    """How the mean reward of each environment goes over the steps."""

    column: str  # whose values are the environments, found by its name
    # how the mean reward goes, by the value as text; of at most 20 values
    courses: Mapping[str, Course]


@dataclass(frozen=True)
class MaskedEffect:
    """What the masked rows change: the numbers of all rewards, and those without them."""

    mean: Number  # of the rewards that count; None without any
    mean_without: Number  # the same without the masked rows
    solve_rate: Number  # the mean solve rate of the groups with at least two rewards; None without such groups
    solve_rate_without: Number  # the same without the masked rows
    zero_variance_share: Number  # the share of these groups whose rewards are all equal; None without such groups
    zero_variance_share_without: Number  # the same without the masked rows


@dataclass(frozen=True)
class FailedEffect:
    """What the rows that are left out of their groups would change: the numbers without them, and with rewards of 0 for them."""

    mean: Number  # of the rewards that count; None without any
    mean_with: Number  # the same with 0 for each row that is left out
    solve_rate: Number  # the mean solve rate of the groups with at least two rewards; None without such groups
    solve_rate_with: Number  # the same with 0 for each row that is left out; None if 0 is outside of the rewards
    zero_variance_share: Number  # the share of these groups whose rewards are all equal; None without such groups
    zero_variance_share_with: Number  # the same with 0 for each row that is left out


@dataclass(frozen=True, kw_only=True)
class GroupLine:
    """A group; `number` is its position in the files, `length` is present if lengths are known."""

    key: str  # the group key as text, or "block at row N" without a key
    number: int  # 1 for the first group of the input, and so on; with --where among the groups that meet it
    size: int  # all rows of the group, scored or not; rollouts if they are the unit
    scored: int  # rows (or rollouts, if they are the unit) with a reward that counts
    mean: Number  # of the rewards of the group; None if no row is scored
    std: Number  # sample std (divided by n - 1) of the rewards of the group; 0 with a single one, None without any
    min: Number  # the lowest reward of the group; None if no row is scored
    max: Number  # the highest reward of the group; None if no row is scored
    # the mean reward, scaled to 0 (worst of the input) .. 1 (best); None without one, or if worst is best
    solve_rate: Number
    # the mean length of its rows, scored or not; None if none is known, absent without a column of lengths
    length: Number | Absent = ABSENT


@dataclass(frozen=True)
class Listed:
    """The groups with the largest and the smallest values of a fact, and the number of groups that have the fact."""

    sort: str  # the fact of --sort that groups are ordered by, "std" by default
    groups: int  # how many have at least two rewards and a value of this fact
    most: Sequence[GroupLine]  # the --top groups with the largest values, the largest first
    # the --top groups with the smallest values, the smallest last; by std, where many are 0, examples of these: never
    # solved first, and one that is always solved
    least: Sequence[GroupLine]


@dataclass(frozen=True)
class RowLine:
    """A row of the group of --show."""

    file: str  # the name of the file that has the row
    row: int  # the number of the row in its file, from 1
    # by reward column, before weights; None if it is not finite, or the row is left out of its group
    rewards: Mapping[str, Number]
    reward: Number  # the weighted sum of the columns before shaping; None without one, and in further rows of a rollout
    advantage: Number  # under the plan; None if the row has none, or it is not finite
    status: Status  # "scored", or why the row has no advantage by the formula or is not trained on
    length: Number  # of the response; None if the row has no number, or without a column of lengths
    # the response, or a conversation with the speaker of each turn; None if the row has no text or texts are not read
    text: str | None


@dataclass(frozen=True, kw_only=True)
class ShownGroup:
    """The group of --show with its rows."""

    INLINE: ClassVar = ("group",)

    group: GroupLine
    prompt: str | None  # of the first row of the group; None if no column is known for it
    rows: Sequence[RowLine]  # of the group, in the order of the files


@dataclass(frozen=True)
class Inspected:
    """Statistics of rewards and groups: the result of `inspect`; `show` is present with --show."""

    INLINE: ClassVar = ("summary",)
    NOT_SHOWN: ClassVar = NOT_SHOWN | {"value"}  # fields that a document does not have

    summary: facts.Summary
    advantage_column: str | None  # that has logged advantages, if there is one
    combine: Literal["sum", "normalize"]  # whether components are added up or standardised first
    rewards: Mapping[str, RewardColumn]  # each reward column by itself, unweighted
    # how several reward columns go together
    components: Components | None = field(metadata=asked_by("--reward", "COL", "for each of several"))
    failed: int  # marked rows that are left out of their groups
    difficulty: Difficulty | None  # the solve rates of the groups
    spread: Spread  # of the rewards, within groups and between them
    at_size: Sequence[AtSize]  # the share of groups with a gradient at other sizes
    live_rows: int  # scored rows of groups whose rewards differ
    effective_rows: Number  # the effective sample size of the advantages
    method: str  # that made these advantages
    # how rewards go with the length, if there is a column of it
    length: Lengths | None = field(metadata=asked_by("--length-column", "COL"))
    truncated: CutOff | None  # the responses that were cut off; None if no column says so
    masked_effect: MaskedEffect | None  # what the masked rows change; None without any
    # what the rows that marks leave out of their groups would change; None without any
    failed_effect: FailedEffect | None
    # what k rollouts of each group solve
    draws: Draws | None = field(metadata=asked_by("--pass-at", "K"))
    # how each environment goes over the steps; None without such a column or without steps, and with --by, whose lines have it
    environments: Environments | None
    # equal responses within groups, if they were looked for
    duplicates: Duplicates | None = field(metadata=asked_by("--duplicates"))
    listed: Listed  # the groups that --top and --sort show
    # a line for each value of the column of --by, or of the steps
    by: Trend | None = field(metadata=asked_by("--by", "COL"))
    inputs: Sequence[str]  # the files
    verdicts: Sequence[str]  # the sentences at the end
    config: str | None = None  # the file of options that was read
    # the group of --show
    show: ShownGroup | None = field(default=None, metadata=asked_by("--show", "KEY"))
    # KL, ratios and ages of the policies, if there are log-probs
    off_policy: OffPolicy | None = field(default=None, metadata=asked_by(*LOGPROBS))
    # beside a trend over another column
    steps: Trend | None = field(default=None, metadata=asked_by("--by", "COL"))


@dataclass(frozen=True, kw_only=True)
class View:
    """What to show in addition to what is always shown."""

    by: str | None = None  # the column of --by, whose values have a line each
    by_steps: bool = False  # a trend over the steps, if there are any
    trend: bool = False  # the same, unless a group has rows of several steps
    draws: Sequence[int] = ()  # the numbers of --pass-at: rollouts drawn from each group
    top: int = TOP  # how many groups are listed at either end
    sort: str = SORT  # the fact of groups that the list is ordered by
    length: str | None = None  # the column of response lengths; None: one found by name
    text: str | None = None  # the column of the responses; None: one found by name
    # the column of --cluster, which says what prompts count together in a comparison of runs
    cluster: str | None = None
    duplicates: bool | None = None  # whether texts are compared; None: the caller decides by file size
    logprobs: Mapping[str, str] = field(default_factory=dict)  # the columns of log-probs of tokens, by option
    named: Collection[str] = ()  # names in a condition: step columns among them become facts of a group


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Rewards and groups: `described` are their facts if somebody asked, `groups` has a line per group; and what they were computed from.

    `raw` has the rewards as they are in the file, `scored` the advantages of the plan.
    """

    described: Inspected | None = None  # the facts; None until `with_facts` has computed them
    # a line for each group with its size, mean, std, solve rate and so on; its place is the code of the group
    groups: pl.DataFrame
    raw: Scored  # rows and groups with the weighted sum of the rewards, before shaping
    scored: Scored  # rows and groups with the advantages of the plan
    narrow: Narrow  # the rows that were read, with their groups and where they come from
    # The column that has each of these: length, text, prompt, by, steps, environment, advantage, stop, cluster, version, and "named", the text of a flag.
    columns: Mapping[str, str]
    beside: object = None  # what a page shows beside it: other runs (`Runs`), or another reward (`Rescored`)

    @property
    def facts(self) -> Inspected:
        """The facts, which `with_facts` has computed."""
        return cast("Inspected", self.described)

    def telling(self, **facts: Any) -> Self:
        """The inspection with other facts of these names."""
        return replace(self, described=replace(self.facts, **facts))

    def warned(self, warnings: Sequence[str]) -> Self:
        """The inspection with these warnings."""
        return self.telling(summary=replace(self.facts.summary, warnings=warnings))

    def read_from(self, inputs: Sequence[str], warnings: Sequence[str]) -> Self:
        """The inspection of these files, with further warnings."""
        if self.described is None:
            return self
        return self.telling(inputs=inputs).warned([*self.facts.summary.warnings, *warnings])

    @property
    def rows(self) -> pl.DataFrame:
        """The rewards row by row; if the length is known, with it and the mean of the group."""
        # With --length-column equal, the plan has a length column of its own.
        rows = self.raw.rows.drop("length", strict=False)
        length = _length(self.narrow, self.columns)
        if length is None:
            return rows
        of_group = self.groups["mean"].gather(rows["group"])
        return rows.with_columns(length, of_group.alias(".mean"))

    @property
    def by(self) -> pl.Series | None:
        """The trend column, row by row; None if there is none."""
        name = self.columns.get("by")
        if name is None:
            return None
        of_file = name == FILE and FILE not in self.narrow.carried
        return self.narrow.files() if of_file else self.narrow.carried[name]


def what_is_read(
    names: Sequence[str], binding: Binding, plan: Plan, view: View, stop: str = ""
) -> tuple[Binding, Plan, dict[str, str]]:
    """A binding that also reads the columns of the view, a plan that no row stops, and the column of each part of the view.

    `stop` is the column of the schema that says why a response ended.
    """
    plan = never_stopping(plan)
    columns = _columns(names, view, binding, stop)
    steps = [name for name in known_names.STEP_LIKE if name in names and name in view.named]
    return _with_columns(binding, plan, columns, view, steps), plan, columns


def never_stopping(plan: Plan) -> Plan:
    """The plan for an inspection, which no row stops."""
    if plan.rewards.missing != "error":
        return plan
    return replace(plan, rewards=replace(plan.rewards, missing="exclude"))


def score_groups(narrow: Narrow, plan: Plan, columns: Mapping[str, str]) -> Inspection:
    """An inspection without facts: rows, groups and advantages."""
    rewards = replace(plan.rewards, combine="sum")
    if rewards.missing == "propagate":
        rewards = replace(rewards, missing="exclude")  # NaN is for advantages
    raw_plan = Plan(unit=plan.unit, rewards=rewards)
    raw = score(raw_plan, narrow.table)
    scored = raw if raw_plan == plan else score(plan, narrow.table)
    groups = facts.group_facts(raw)
    if plan.rewards.combine == "normalize":  # a group has a gradient if any component varies
        groups = groups.with_columns(facts.group_facts(scored).select("constant", "nearly"))
    length = _length(narrow, columns)
    if length is not None:
        means = finite_means(raw.rows["group"].to_numpy(), length, len(groups))
        groups = groups.with_columns(length=pl.Series(means).fill_nan(None))
    groups = groups.with_columns(difficulty.solve_rates(groups))
    codes = narrow.table["group"].to_numpy()
    if narrow.masked.any():
        groups = groups.with_columns(
            masked=pl.Series(np.bincount(codes[narrow.masked.to_numpy()], minlength=len(groups)))
        )
    cut_off = _truncated(narrow, columns)
    if cut_off is not None:
        groups = groups.with_columns(truncated=pl.Series(np.bincount(codes, cut_off, len(groups)) / np.bincount(codes)))
    return Inspection(groups=groups, raw=raw, scored=scored, narrow=narrow, columns=columns)


def learned_from(inspection: Inspection) -> pl.Series:
    """What must differ within a group to give a gradient: the reward; null if not finite.

    If components are estimated separately, it is a number for each combination of components.
    """
    rewards = inspection.scored.plan.rewards
    rows = inspection.raw.rows
    finite = pl.when(pl.col(".reward").is_finite())
    if rewards.combine == "sum":
        return rows.select(finite.then(".reward")).to_series()
    every = range(len(inspection.narrow.reward_names))
    counted = [k for k in every if not rewards.weights or rewards.weights[k]]  # a weight of 0 gives no gradient
    parts = [rows[f"reward.{k}"] for k in counted or every]
    # All missing values are the same.
    parts = [part.set(~part.is_finite().fill_null(value=False), None) for part in parts]
    if rewards.component_missing == "zero":
        parts = [part.fill_null(0.0) for part in parts]
    elif rewards.missing == "as-zero":
        parts = [part.set(~rows[".scorable"], 0.0) for part in parts]
    combinations = encode(parts).codes.cast(pl.Float64)
    return rows.select(finite.then(combinations)).to_series()


def describe_groups(groups: pl.DataFrame, label: Callable[[int], str]) -> list[GroupLine]:
    """The label and the facts of each of these groups."""
    names = [name for name in GROUP_FACTS if name in groups.columns]
    number = pl.col("code").cast(pl.Int64) + 1
    lines = facts.only_finite(groups.select(*names, number=number))
    return [GroupLine(key=label(line["number"] - 1), **line) for line in lines.iter_rows(named=True)]


def key_columns(narrow: Narrow, facts: Collection[str]) -> list[pl.Series]:
    """The columns of the key, a line per group; a name that is also the name of a fact gets the prefix `key.`."""
    return [key.alias(f"key.{key.name}") if key.name in facts else key for key in narrow.key]


def prompt_columns(narrow: Narrow) -> tuple[str, ...]:
    """The columns of the key that name the prompt: all but steps, places, and those that only say where the key is unique."""
    rule = narrow.rule
    places = {*known_names.STEPS, PARENT}
    if rule.within not in rule.key:
        places.add(rule.within or "")
    names = [name for name in narrow.key.columns if name not in places and not name.startswith("@")]
    return tuple(names or narrow.request.layout.flags.group)  # a key whose only name is like that of a step


# --- columns -----------------------------------------------------------------------------------------------


def _columns(names: Sequence[str], view: View, binding: Binding, stop: str) -> dict[str, str]:
    """The column of each part of the view: the named column, else the first known name that exists."""
    free = [name for name in names if name not in {*binding.group, *binding.rewards}]

    def first(known: Sequence[str], among: Sequence[str] = free) -> str | None:
        return next((name for name in known if name in among), None)

    length = view.length or binding.roles.get("length") or first(known_names.LENGTHS)
    step = first(known_names.STEP_LIKE, names)
    shown = view.trend or view.by_steps or view.by is not None  # not only a choice of groups, which reads little
    beside = view.trend and view.by not in {None, *known_names.STEP_LIKE}
    of_steps = view.trend and step is not None and not beside
    columns = {
        "by": view.by or (step if view.by_steps or view.trend else None),
        "steps": step if beside else None,
        "environment": first(known_names.ENVIRONMENTS, names) if of_steps else None,
        "length": None if length == "equal" else length,
        "text": view.text or first(known_names.TEXTS),
        "prompt": first(known_names.PROMPTS),
        "named": view.text,
        "cluster": view.cluster,
        "stop": stop or first(known_names.TRUNCATED, names) if shown or "truncated" in view.named else None,
        "advantage": first(known_names.ADVANTAGES, names),
        "version": first(known_names.VERSIONS, names) if view.logprobs else None,
    }
    return {part: name for part, name in columns.items() if name is not None}


def _with_columns(
    binding: Binding, plan: Plan, columns: Mapping[str, str], view: View, steps: Sequence[str]
) -> Binding:
    """The binding that also reads these columns; the length has a role only if the arithmetic reads it."""
    named = view.length is not None or "length" in binding.roles
    carried: dict[str, Kind] = dict.fromkeys(steps, "key")
    if "length" in columns:
        carried[columns["length"]] = "number" if named else "key"
    parts = ["by", "steps", "environment", "stop", "version", "cluster"]
    if view.duplicates:
        parts.append("text")
    for part in parts:
        if part in columns and (part, columns[part]) != ("by", FILE):
            carried[columns[part]] = "key"
    carried |= binding.carried
    roles = {role: name for role, name in binding.roles.items() if role != "length" or role in plan.needs}
    return replace(binding, carried=carried, roles=roles, singletons_meant=True)


def _length(narrow: Narrow, columns: Mapping[str, str]) -> pl.Series | None:
    """The length of every row; None without such a column, or if its values are not numbers."""
    values = narrow.carried[columns["length"]] if "length" in columns else None
    if values is None or not values.dtype.is_numeric():
        return None
    return values.cast(pl.Float64).alias("length")


# --- facts -------------------------------------------------------------------------------------------------


def with_facts(inspection: Inspection, view: View) -> Inspection:
    """The inspection with its facts: the summary of a run without its advantages, and further facts."""
    groups = inspection.groups
    narrow = inspection.narrow
    columns = inspection.columns
    rows = inspection.rows
    plan = inspection.scored.plan
    summary = facts.summarize(inspection.raw, narrow, groups)
    ties = difficulty.count_ties(*_compared(inspection, rows))
    length = duplicates = None
    if "length" in rows.columns:
        length = correlations.with_lengths(columns["length"], rows, facts.reward_range(groups))
    if view.duplicates and "text" in columns:
        text = columns["text"]
        duplicates = _repeated_responses(text, rows["group"], narrow.carried[text])
    trend_by, of_trend = _trend_to_show(inspection, view)
    warnings = [*summary.warnings, *of_trend]
    if plan.distill.coef:
        warnings.append("advantages are those of rows, without what the teacher adds on each token")
    failed = 0 if narrow.marked is None else int((narrow.left_out & narrow.marked.met).sum())
    alive = groups.filter(~pl.col("constant"), pl.col("scored") > 1)
    said = Inspected(
        summary=replace(summary, plan=plan, warnings=warnings),
        advantage_column=columns.get("advantage"),
        combine=plan.rewards.combine,
        rewards=_by_column(inspection, summary),
        components=_components(inspection, rows),
        failed=failed,
        difficulty=difficulty.difficulty(groups),
        spread=difficulty.spread(groups, Plan().divisor.ddof),
        at_size=difficulty.other_sizes(ties),
        live_rows=int(alive["scored"].sum()),
        effective_rows=difficulty.effective_rows(_of_units(inspection)),
        method=plan.method,
        length=length,
        truncated=_cut_off(inspection),
        masked_effect=_masked_effect(inspection),
        failed_effect=_failed_effect(inspection),
        draws=_draws(inspection, view.draws),
        environments=_environments(inspection, trend_by),
        duplicates=duplicates,
        listed=_most_and_least(groups, narrow.label, view.sort, view.top),
        by=trend_by,
        steps=_trend_of_steps(inspection),
        inputs=(),
        verdicts=(),
    )
    return replace(inspection, described=said)


def _draws(inspection: Inspection, draws: Sequence[int]) -> Draws | None:
    """What so many rollouts drawn from each group solve; None if nobody asked."""
    _, best = facts.reward_range(inspection.groups)
    if not draws or best is None:
        return None
    rows = inspection.raw.rows
    codes, rewards = finite_rows(rows["group"].to_numpy(), rows[".reward"])
    size = len(inspection.groups)
    n = np.bincount(codes, minlength=size)
    return passes.of_groups(n, difficulty.solved_counts(codes, rewards, best, size), best, draws)


def _cut_off(inspection: Inspection) -> CutOff | None:
    """How many responses were cut off, and how many of the solved and of the unsolved ones."""
    known = truncated(inspection)
    if known is None:
        return None
    reward = inspection.rows[".reward"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    worst, best = facts.at_ends(reward, facts.reward_range(inspection.groups))
    of_worst, of_best = (float(known[at].mean()) if at.any() else None for at in (worst, best))
    return CutOff(inspection.columns["stop"], int(known.sum()), float(known.mean()), of_worst, of_best)


def _masked_effect(inspection: Inspection) -> MaskedEffect | None:
    """The mean, the mean solve rate and the share without a gradient, with the masked rows and without them."""
    masked = inspection.narrow.masked
    if not masked.any():
        return None
    reward = inspection.raw.rows[".reward"]
    (mean, rate, share), (mean_without, rate_without, share_without) = (
        _numbers(inspection, each) for each in (reward, where(~masked, reward))
    )
    return MaskedEffect(mean, mean_without, rate, rate_without, share, share_without)


def _failed_effect(inspection: Inspection) -> FailedEffect | None:
    """The same without the rows that marks leave out of their groups, and with rewards of 0 for them."""
    narrow = inspection.narrow
    if narrow.marked is None or inspection.raw.plan.unit.take != "each":
        return None
    failed = narrow.left_out & narrow.marked.met
    if not failed.any():
        return None
    reward = inspection.raw.rows[".reward"]
    (mean, rate, share), (mean_with, rate_with, share_with) = (
        _numbers(inspection, each) for each in (reward, reward.set(failed, 0.0))
    )
    worst, best = facts.reward_range(inspection.groups)
    if worst is None or best is None or not worst <= 0 <= best:
        rate_with = None  # 0 is none of the rewards that a solve rate is scaled from
    return FailedEffect(mean, mean_with, rate, rate_with, share, share_with)


def _numbers(inspection: Inspection, reward: pl.Series) -> tuple[Number, Number, Number]:
    """The mean of these rewards, the mean solve rate of the groups with two of them, and the share of these that are equal."""
    worst, best = facts.reward_range(inspection.groups)
    rows = pl.DataFrame({"group": inspection.raw.rows["group"], "reward": reward})
    rows = rows.filter(pl.col("reward").is_finite())
    value = pl.col("reward")
    # In the order of the file: the last digit of a mean over groups would depend on threads otherwise.
    groups = rows.group_by("group", maintain_order=True).agg(
        n=pl.len(), mean=value.mean(), equal=value.min() == value.max()
    )
    groups = groups.filter(pl.col("n") > 1)
    rate = None
    if len(groups) and worst is not None and best is not None and worst < best:
        rate = float((groups["mean"].to_numpy().mean() - worst) / (best - worst))
    share = float(groups["equal"].to_numpy().mean()) if len(groups) else None
    return (facts.plain(float(rows["reward"].to_numpy().mean())) if len(rows) else None), rate, share


def _trend_to_show(inspection: Inspection, view: View) -> tuple[Trend | None, list[str]]:
    """The trend, and a warning if groups have rows in several of its values.

    One that no option asked for is shown only over steps that divide the groups.
    """
    found = trend(inspection)
    if found is None or inspection.by is None:
        return None, []
    several = len(spanning(inspection.narrow.groups, inspection.by))
    is_asked_for = view.by or view.by_steps
    if not is_asked_for and (several or not over_steps(found.lines)):
        return None, []
    if not several:
        return found, []
    have = "group has" if several == 1 else "groups have"
    how = "a group counts at that of its first row, rows and their mean at their own"
    if not over_steps(found.lines) and several > MIXED * len(inspection.groups):
        # Which value the first row of a group has is then chance, and so are facts of the groups of a value.
        lines = [
            replace(line, group_std=None, zero_variance=None, all_best=None, all_worst=None) for line in found.lines
        ]
        found = replace(found, lines=lines)
        how += ", and facts of whole groups are left out"
    return found, [f"{several} {have} rows in several values of {found.column}: {how}"]


def _environments(inspection: Inspection, by: Trend | None) -> Environments | None:
    """How each environment goes over the steps of the trend; None without several of them."""
    column = inspection.columns.get("environment")
    if column is None or by is None or not over_steps(by.lines) or inspection.by is None:
        return None
    values = inspection.narrow.carried[column]
    if values.dtype.is_nested() or not 1 < values.n_unique() <= MOST_ENVIRONMENTS:
        return None
    coded = encode([values])
    names = bare_texts(values.gather(coded.first)).fill_null("null").to_list()
    courses = _of_each(inspection, coded.codes.to_numpy(), range(coded.size), inspection.by)
    found = {name: one for name, one in zip(names, courses, strict=True) if one is not None}
    return Environments(column, found) if found else None


def _trend_of_steps(inspection: Inspection) -> Trend | None:
    """The trend over the steps, beside one over another column; None if they do not divide the groups."""
    found = trend(inspection, "steps")
    if found is None or not over_steps(found.lines):
        return None
    several = spanning(inspection.narrow.groups, inspection.narrow.carried[found.column])
    return None if several else found


def _of_units(inspection: Inspection) -> pl.Series:
    """The advantage of every row, or if rollouts count, of the row that represents its rollout."""
    advantages = inspection.scored.rows[".advantage"]
    if inspection.scored.plan.unit.take == "each":
        return advantages
    return advantages.filter(inspection.scored.rows[".reward"].is_not_null())


def _by_column(inspection: Inspection, summary: facts.Summary) -> dict[str, RewardColumn]:
    """Each reward column by itself, unweighted, and the share of groups in which it does not vary."""
    raw = inspection.raw
    names = inspection.narrow.reward_names
    weights = inspection.scored.plan.rewards.weights
    if len(names) == 1 and not raw.plan.rewards.weights and raw.plan.unit.take == "each":
        share = summary.zero_variance.share
        alone = RewardColumn(summary.reward, unscorable=summary.unscorable, zero_variance_share=share, weight=1.0)
        return {names[0]: alone}
    described = {}
    codes = raw.rows["group"].to_numpy()
    for k, name in enumerate(names):
        values = inspection.narrow.table[f"reward.{k}"]
        spread = facts.distribution(values)
        described[name] = RewardColumn(
            spread,
            unscorable=len(values) - spread.count,
            zero_variance_share=facts.constant_share(codes, values, len(inspection.groups)),
            weight=weights[k] if weights else 1.0,
        )
    return described


def _compared(inspection: Inspection, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Groups and rows by the values of `learned_from`."""
    groups = inspection.groups
    if inspection.scored.plan.rewards.combine == "sum":
        return groups, rows
    rows = rows.select("group", learned_from(inspection).alias(".reward")).drop_nulls()
    codes = rows["group"].to_numpy()
    values = rows[".reward"]
    low, high = group_extremes(codes, values, len(groups))
    means = finite_means(codes, values, len(groups))
    return groups.with_columns(mean=means, min=low, max=high), rows


def _components(inspection: Inspection, rows: pl.DataFrame) -> Components | None:
    """Correlations of several reward columns with each other, the length and the advantage; None for a single column."""
    narrow = inspection.narrow
    rewards = {name: narrow.table[f"reward.{k}"] for k, name in enumerate(narrow.reward_names)}
    if len(rewards) == 1:
        return None
    codes = rows["group"].to_numpy()
    others = {"length": rows["length"]} if "length" in rows.columns else {}
    others["advantage"] = inspection.scored.rows[".advantage"]
    found = correlations.within_groups(codes, others, rewards)
    closest = max(rewards, key=lambda name: abs(found["advantage"][name] or 0.0))
    return Components(
        correlation=correlations.within_groups(codes, rewards, rewards),
        **found,
        decides=closest if found["advantage"][closest] else None,
    )


def _repeated_responses(column: str, codes: pl.Series, texts: pl.Series) -> Duplicates:
    if not texts.dtype.is_nested():
        texts = texts.set(texts.cast(pl.String).is_in(EMPTY), None)  # they repeat nothing
    codes, texts = codes.filter(texts.is_not_null()), texts.drop_nulls()
    rows = len(codes)
    repeated = rows - encode([codes, texts]).size
    return Duplicates(column, repeated, repeated / rows if rows else None)


def _most_and_least(groups: pl.DataFrame, label: Callable[[int], str], sort: str, top: int) -> Listed:
    """The groups with the most and the least of a fact, among those with two rewards to compare."""
    known = [name for name in GROUP_FACTS if name in groups.columns]
    if sort not in known:
        raise UnknownName.among("fact of a group", sort, known)
    groups = difficulty.comparable(groups).filter(pl.col(sort).is_not_null())
    top = min(top, len(groups))
    size = pl.col(sort).cast(pl.Float64).fill_nan(None)
    ordered = groups.lazy().sort(size, "scored", "code", descending=[True, True, False], nulls_last=True)
    others = max(len(groups) - top, 0)
    most = ordered.head(top).collect()
    least = ordered.tail(min(top, others)).collect()
    many = len(groups) >= 2 * top and groups["constant"].sum() > top
    if sort == SORT and many and not most["constant"].any():
        least = _without_gradient(groups, top)  # all of them have a std of 0
    return Listed(sort, len(groups), describe_groups(most, label), describe_groups(least, label))


def _without_gradient(groups: pl.DataFrame, top: int) -> pl.DataFrame:
    """Groups to read first where many have no gradient: those never solved with the longest texts, and one always solved."""
    constant = groups.filter("constant")
    rate = pl.col("solve_rate")
    never = constant.filter(rate == 0)
    always = constant.filter(rate == 1)
    if "length" in groups.columns:
        never = never.sort("length", descending=True, nulls_last=True, maintain_order=True)
    others = constant.filter(~rate.is_in([0.0, 1.0]).fill_null(value=False))
    one_always = always.head(1)
    hardest = never.head(top - len(one_always))
    first = pl.concat([hardest, one_always, others, never, always])
    return first.unique("code", maintain_order=True).head(top)


def trend(of: Inspection, part: Literal["by", "steps"] = "by") -> Trend | None:
    """One line for each value of the trend column; None without one. A group belongs to the value of its first row."""
    rows = of.rows
    groups = of.groups
    by = of.by if part == "by" else of.narrow.carried.get(of.columns.get(part, ""))
    if by is None:
        return None
    coded = encode([by])
    codes = coded.codes.to_numpy()
    size = coded.size
    values = as_numbers(by.gather(coded.first), typed=of.narrow.typed)
    value_of_group = codes[of.narrow.groups.first.to_numpy()]
    unscorable = codes[~rows[".scorable"].to_numpy()]
    mean = finite_means(codes, rows[".reward"], size)
    nothing = np.full(size, np.nan)
    length = finite_means(codes, rows["length"], size) if "length" in rows.columns else nothing
    cut_off = truncated(of)
    two = (groups["scored"] > 1).to_numpy()
    constant = groups["constant"].to_numpy()
    worst, best = facts.at_ends(groups["max"].to_numpy(), facts.reward_range(groups))
    sums = {
        "group_std": np.where(two, groups["std"].to_numpy(), 0.0),
        "zero_variance": constant,
        "all_best": constant & best,
        "all_worst": constant & worst,
    }
    comparable = np.bincount(value_of_group[two], minlength=size)
    shares = {name: np.bincount(value_of_group, of_groups, size) for name, of_groups in sums.items()}
    columns = {
        "groups": np.bincount(value_of_group, minlength=size),
        "rows": np.bincount(codes, minlength=size),
        "unscorable": np.bincount(unscorable, minlength=size),
        "mean": mean,
        "std": finite_stds(codes, rows[".reward"], mean),
        **shares,
        "length": length,
        "truncated": nothing
        if cut_off is None
        else np.bincount(codes, cut_off, size) / np.bincount(codes, minlength=size),
    }
    lines = pl.DataFrame(columns).with_columns(pl.col(*sums) / pl.Series(comparable))
    lines = facts.only_finite(lines)
    ordered = in_order(values)
    named = zip(ordered, lines[ordered].iter_rows(named=True), strict=True)
    of_values = [TrendLine(value=values[at], **line) for at, line in named]
    courses = {}
    if over_steps(of_values):
        place = np.empty(size, np.int64)
        place[ordered] = np.arange(size)
        courses = _courses(of, place[codes], place[value_of_group], [line.value for line in of_values])
    elif part == "by":
        of_values = [
            replace(line, course=one)
            for line, one in zip(
                of_values, _of_each(of, codes, ordered, of.narrow.carried.get(of.columns.get("steps", ""))), strict=True
            )
        ]
    return Trend(of.columns[part], of_values, courses)


def _of_each(of: Inspection, codes: Index, ordered: Sequence[int], steps: pl.Series | None) -> list[Course | None]:
    """How the mean reward of each category goes over the steps; None without steps, and beyond the first `MOST_COURSES`."""
    nothing: list[Course | None] = [None] * len(ordered)
    if steps is None or len(ordered) > MOST_COURSES:
        return nothing
    coded = encode([steps])
    values = as_numbers(steps.gather(coded.first), typed=of.narrow.typed)
    in_turn = in_order(values)
    named = [values[at] for at in in_turn]
    if len(named) < 2 or not all(isinstance(value, (int, float)) for value in named):  # noqa: PLR2004 - one step is no trend
        return nothing
    place = np.empty(coded.size, np.int64)
    place[in_turn] = np.arange(coded.size)
    of_rows = place[coded.codes.to_numpy()]
    rows = of.rows
    group = rows["group"].to_numpy()
    prompts = _prompts(of.narrow, of.groups, in_one=False)
    reward = rows[".reward"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    found: list[Course | None] = []
    for code in ordered:
        here = codes == code
        of_prompts = None if prompts is None else prompts[group[here]]
        found.append(course(of_rows[here], reward[here], named, of_prompts))
    return found


def truncated(of: Inspection) -> Vector | None:
    """For each row whether its response was cut off, as 0 and 1; None if no column says so."""
    return _truncated(of.narrow, of.columns)


def _truncated(narrow: Narrow, columns: Mapping[str, str]) -> Vector | None:
    column = narrow.carried.get(columns.get("stop", ""))
    if column is None or column.null_count() == len(column):
        return None
    reasons = bare_texts(column).str.to_lowercase()
    return reasons.is_in([*known_names.CUT_OFF]).fill_null(value=False).cast(pl.Float64).to_numpy()


def _courses(of: Inspection, of_rows: Index, of_groups: Index, named: Sequence[Any]) -> dict[str, Course]:
    """How the facts of a trend go over its values, whose places are those of each row and of each group."""
    groups = of.groups
    group = of.rows["group"].to_numpy()
    in_one = bool((of_groups[group] == of_rows).all())
    prompts = _prompts(of.narrow, groups, in_one=in_one)
    prompt_of_row = None if prompts is None else prompts[group]
    two = (groups["scored"] > 1).to_numpy()
    prompts_of_two = None if prompts is None else prompts[two]
    rows = {"mean": of.rows[".reward"].cast(pl.Float64).fill_null(np.nan).to_numpy()}
    if "length" in of.rows.columns:
        rows["length"] = of.rows["length"].fill_null(np.nan).to_numpy()
    if (cut_off := truncated(of)) is not None:
        rows["truncated"] = cut_off
    by_group = {
        name: groups[column].cast(pl.Float64).fill_null(np.nan).to_numpy()[two] for name, column in OF_GROUPS.items()
    }
    found = {name: course(of_rows, values, named, prompt_of_row) for name, values in rows.items()}
    found |= {name: course(of_groups[two], values, named, prompts_of_two) for name, values in by_group.items()}
    return {name: one for name, one in found.items() if one is not None}


def _prompts(narrow: Narrow, groups: pl.DataFrame, *, in_one: bool) -> Index | None:
    """The prompt of each group as a number; None if every prompt is in one step: that of its only group, all rows of which are `in_one`."""
    names = [name for name in prompt_columns(narrow) if name in narrow.key.columns]
    if not names:
        return None
    coded = encode([narrow.key[name] for name in names])
    return None if in_one and coded.size == len(groups) else coded.codes.to_numpy().astype(np.int64)
