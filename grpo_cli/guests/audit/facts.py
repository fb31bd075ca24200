"""What an audit found, as the classes that text and `--json` are made from.

That includes what the rows leave open: formulas that fit as well, what would tell them apart, and the interval of an epsilon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.engine import presets
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip, Divisor
from grpo_cli.guests.audit.baselines import starts_of
from grpo_cli.guests.audit.candidates import EPSILONS, Candidate, Said, plain_method, untried
from grpo_cli.guests.audit.causes import Cause, causes, counted_per_fragment, noise_cause
from grpo_cli.guests.audit.flags import OPTIONS, flags_of, of_input, options_of
from grpo_cli.guests.audit.formulas import Formulas, formula_key
from grpo_cli.guests.audit.readings import Precision, Reading
from grpo_cli.guests.audit.trial import FAR, Evidence, Fit, Intervals, Judged, Log, equal
from grpo_cli.guests.audit.whole_log import cause_of_log
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import encode
from grpo_cli.read.marks import counts_of
from grpo_cli.read.narrow import Narrow
from grpo_cli.stats.document import asked_by
from grpo_cli.stats.facts import MarkedRows, Number, marked_rows, plain

VERSION: Final = 1
LISTED = 10  # groups that disagree
EXPLAINED = 4  # formulas that fit equally well, whose differences are explained to choose between them
EPSILON = "divisor.epsilon"
INSIDE = "divisor.inside"
# Formulas that differ only in these are one tie.
CONSTANTS = (EPSILON, INSIDE, "post.whiten.epsilon", "post.whiten.inside")
TOLD = 8  # formulas for which it is said what would tell them apart
ROLES = ("length", "input_length", "turns")  # 1 in invented rows
# What could be logged besides ordinary groups, as groups of the lowest (0) and the highest (1) reward of the log and numbers between or beyond.
ORDINARY = 6  # groups
INVENTED: Final[Mapping[str, Sequence[float]]] = {
    "one group of unequal size": [0, 1, 1],
    "a group of equal rewards": [1, 1, 1, 1],
    "rewards between the lowest and the highest": [0, 0.3, 0.6, 1],
    "a group whose rewards are nearly equal": [0.5, 0.5, 0.5, 0.501],
    "higher rewards": [0, 1, 1, 4],
    "lower rewards": [-3, 0, 0, 1],
}
Verdict = Literal["match", "noise", "few", "nothing", "near", "none"]


@dataclass(frozen=True)
class Disagreement:
    """A group that differs from a formula, with its first row that does; `expected` is what the formula computes."""

    key: str  # of the group
    place: str  # the file and the row
    rows: int  # of the group that differ
    expected: Number  # what the formula computes for this row; None: no finite number
    logged: Number  # what the file has


@dataclass(frozen=True)
class Differences:
    """How far a formula is from what was logged, and the first groups that differ."""

    read_as: str  # how exactly the logged values were read: float64, float32, float16, bfloat16, or such as 4 decimals
    mismatched_rows: int  # whose logged value is further from the formula than the tolerance
    mismatched_groups: int  # with at least one such row
    max_difference: Number  # the largest absolute difference: of the rows that agree in a match, of all rows in a claim
    disagreements: Sequence[Disagreement]  # the first groups of the file that differ, at most 10


@dataclass(frozen=True)
class Match(Differences):
    """The best formula, and the evidence for it; `max_difference` is that of the rows that agree."""

    name: str  # of its first preset, else its method
    plan: Plan  # its arithmetic, with the constants that were solved from the log
    factor: float  # by which its advantages are multiplied
    verdict: Verdict  # docs/audit.md explains the words
    tolerance: float  # how far equal values may differ
    equations: int  # distinct pairs of a group's rewards and a row's reward that say something about the formula
    constants: int  # that were solved from the log
    epsilon: EpsilonInterval | None  # the interval that the rows leave for it
    weights: Mapping[str, float]  # of the reward columns
    flags: str  # the options of `compute` that give it, and read the rows as here; a factor is none of them
    preset_names: Sequence[str]  # presets with this plan, the first the most likely
    plain_method: str  # the method whose default options give this plan
    without_effect: Sequence[str]  # fields of the plan about rows and groups that the input has none of


@dataclass(frozen=True)
class Differing:
    """A field in which the claim is not the formula that was found."""

    claimed: Any  # the value in the claimed plan; None: it has no such field, or no value there
    logged: Any  # the value in the formula that was found; None: it has no such field, or no value there


@dataclass(frozen=True)
class Claim(Differences):
    """How far the formula that was named is from what was logged."""

    # the fields that can explain the differences, by dotted name; empty if every row matches
    differs: Mapping[str, Differing]


@dataclass(frozen=True, kw_only=True)
class Audited:
    """Which formula made the advantages of some rows."""

    GATED: ClassVar = dict.fromkeys(("judged",))

    version: Literal[1]  # of the form of this document
    inputs: Sequence[str]  # the files
    column: str  # of the advantages
    rows: int  # that were compared
    groups: int  # of these rows
    marks: Sequence[MarkedRows]  # rows that do not count like others, by mark and reason, the most frequent first
    notes: Sequence[str]  # how rows were read and grouped
    match: Match  # the best formula
    ties: Sequence[Tie]  # formulas that fit as well
    headline: str | None  # what explains the whole log, if no formula does
    causes: Sequence[Cause]  # why some groups differ
    # how the formula that was named fits, if one was
    claim: Claim | None = field(metadata=asked_by("--preset", "NAME"))
    not_tried: Mapping[str, Sequence[str]]  # presets that need a column, by its role
    warnings: Sequence[str]  # about the input, each a sentence
    config: str | None = None  # the file of options that was read

    @property
    def judged(self) -> Differences:
        """How far the claim is from what was logged, or the best formula if nothing was claimed."""
        return self.claim or self.match


@dataclass(frozen=True)
class Result:
    """The rows under one way to group them, which `note` names, the fits, best first, and the formulas that were tried."""

    columns: Columns  # as they were read for this way to group
    narrow: Narrow  # the rows with their groups and rewards, without those left out
    note: str  # how the rows are grouped, in words; empty for the key as it is
    fits: list[Fit]  # how well the likeliest formulas fit, the best first
    log: Log  # the logged advantages, read as exactly as fits best; of a large file the rows of some groups
    tried: Sequence[Candidate]  # the formulas that were compared with the log


def facts_of(result: Result, column: str, said: Said) -> Audited:
    """What was found, of the grouping that fits best."""
    narrow = result.narrow
    result, explained = _explained(result)
    best = result.fits[0]
    cause = None if best.explains_all else _cause_of_log(result, said)
    judged = Judged.of(best.candidate, result.log)
    if cause is not None:
        explained = [cause]
    elif best.explains_all and not judged.wrong.any():
        explained = counted_per_fragment(judged)
    return Audited(
        version=VERSION,
        inputs=[table.name for table in narrow.tables],
        column=column,
        rows=len(narrow.table),
        groups=narrow.groups.size,
        marks=marked_rows(counts_of(result.columns.marked, result.columns.foreign_counts)),
        notes=[*narrow.notes, *filter(None, [result.note])],
        match=_match(result, judged),
        ties=ties_of(result.fits, result.log),
        headline=None if cause is None else cause.says,
        causes=explained,
        claim=None if said.claim is None else _check_claim(said.claim, result),
        not_tried=untried({*narrow.request.roles, "input_length", "turns"}),
        warnings=narrow.warnings,
    )


def _cause_of_log(result: Result, said: Said) -> Cause | None:
    narrow = result.narrow
    parts = encode([narrow.file, *narrow.carried.values()]).codes.to_numpy()
    # With --overlong every formula reads the length, and with --kl-coef the KL.
    read_by_all = {need for op in said.shape for need in op.needs}
    return cause_of_log(result.log, [one for one in result.tried if {*one.plan.needs} <= read_by_all], parts)


def _match(result: Result, judged: Judged) -> Match:
    narrow, best, log = result.narrow, result.fits[0], result.log
    candidate, plan = best.candidate, best.candidate.plan
    known = log.evidence(plan, judged.reading)
    weights = dict(zip(narrow.reward_names, plan.rewards.weights, strict=False))
    return Match(
        **_differences(judged, narrow, ~judged.wrong),
        name=candidate.name,
        plan=plan,
        factor=candidate.factor,
        verdict=_verdict(best, judged, known),
        tolerance=judged.reading.largest,
        equations=known.equations,
        constants=candidate.constants,
        epsilon=epsilon_of(candidate, log, judged.reading) if best.explains_all else None,
        weights=weights,
        flags=" ".join([flags_of(candidate), *of_input(result.columns, narrow, plan)]),
        preset_names=candidate.presets,
        plain_method=plain_method(plan) if not candidate.claimed and narrow.schema is None else "",
        without_effect=_without_effect(plan, judged.log),
    )


def _verdict(best: Fit, judged: Judged, known: Evidence) -> Verdict:
    """docs/audit.md explains the words."""
    if not np.nan_to_num(judged.log.logged).any():
        return "nothing"
    if not best.explains_all:
        return "near" if judged.wrong.sum() <= FAR * judged.log.size else "none"
    if not known.groups:
        return "nothing"
    if not known.suffices(best.candidate.constants):
        return "few"
    return "noise" if best.mismatched else "match"


def _differences(judged: Judged, narrow: Narrow, rows: Mask) -> dict[str, Any]:
    """The fields of `Differences`; the largest difference is that of these rows."""
    wrong, error = judged.wrong, judged.error
    codes, first, counts = np.unique(judged.log.codes[wrong], return_index=True, return_counts=True)
    listed = np.argsort(first)[:LISTED]
    at = np.flatnonzero(wrong)[first[listed]].tolist()
    disagreements = []
    for group, row, place in zip(listed, at, narrow.places(at), strict=True):
        expected, logged = float(judged.computed[row]), float(judged.log.logged[row])
        key, rows_of_group = narrow.label(int(codes[group])), int(counts[group])
        disagreements.append(Disagreement(key, place, rows_of_group, plain(expected), plain(logged)))
    largest = error.max(initial=0.0, where=np.isfinite(error) & rows)
    return {
        "read_as": judged.reading.says,
        "mismatched_rows": int(wrong.sum()),
        "mismatched_groups": len(codes),
        "max_difference": plain(float(largest)),
        "disagreements": disagreements,
    }


def _explained(result: Result) -> tuple[Result, list[Cause]]:
    """The result, the formula first whose causes leave the fewest rows unexplained, and these causes."""
    first = result.fits[0]
    if first.noisy is not None:
        return result, [noise_cause(first.noisy, result.log.whole.codes)]
    if not 0 < first.mismatched <= FAR * first.rows:
        return result, []
    tied = [fit for fit in result.fits if fit.is_tied_with(first)]
    tied.sort(key=lambda fit: (fit is not first, not fit.candidate.presets))
    distinct = dict[Any, Fit]()  # what float32 noise is divided by, and whether it is clipped
    for fit in tied:
        plan = fit.candidate.plan
        distinct.setdefault((plan.divisor, plan.post), fit)
    compared = [*distinct.values()][:EXPLAINED]
    explained = [(fit, causes(Judged.of(fit.candidate, result.log))) for fit in compared]

    def unexplained(one: tuple[Fit, list[Cause]]) -> int:
        return sum(cause.rows for cause in one[1] if cause.cause == "unexplained")

    best, found = min(explained, key=unexplained)
    others = [fit for fit in result.fits if fit is not best]
    return replace(result, fits=[best, *others]), found


def _check_claim(claim: Plan, result: Result) -> Claim:
    """How far the claimed formula is from the logged values, and in which fields it differs from the best one."""
    judged = Judged.of(Candidate(claim, claimed=True), result.log)
    changed = presets.differences(result.fits[0].candidate.plan, claim) if judged.wrong.any() else {}
    # Rules that apply to no row of this file cause no difference.
    without_effect = {*_without_effect(claim, judged.log), *claim.unread}
    differs = {key: Differing(*each) for key, each in changed.items() if key not in without_effect}
    every_row = np.ones(len(judged.wrong), bool)
    return Claim(**_differences(judged, result.narrow, every_row), differs=differs)


def _without_effect(plan: Plan, log: Log) -> list[str]:
    """The plan fields for kinds of rows and groups that this file does not have."""
    frames = log.formulas.shaped(plan).frames
    groups, scorable = frames.groups, frames.select([".scorable"])[".scorable"]
    decides = {
        ("rewards.missing",): not scorable.all(),
        ("rewards.component_missing",): log.formulas.has_missing,
        ("alone.baseline", "alone.sd", "alone.result"): (groups[".n"] == 1).any(),
        ("groups.zero_variance",): groups[".zero_variance"].fill_null(value=False).any(),
    }
    return [name for names, some in decides.items() if not some for name in names]


# --- what the rows leave open --------------------------------------------------------------------------


@dataclass(frozen=True)
class EpsilonInterval:
    """Where the epsilon lies, how exactly the values were read, and a sentence if several usual ones lie there."""

    low: float  # the least epsilon that all rows allow; if the plan adds it under the root, the least `inside`
    high: float  # the largest one that all rows allow
    read_as: Precision  # how exactly the logged values were read: a float type, or rounded decimals
    says: str  # a sentence if several usual epsilons lie in the interval; else empty


@dataclass(frozen=True)
class Tie:
    """A formula that fits as well, by its presets or its method with options; and what to log to tell it apart, if that is known."""

    names: Sequence[str]  # its presets, else its method with options; a factor comes first
    told_apart_by: str  # what to log so that it differs from the best formula; empty if nothing that was tried does


def ties_of(fits: Sequence[Fit], log: Log) -> list[Tie]:
    """Formulas that fit the rows as well as the best."""
    best, nearest = fits[0].candidate, min(fits, key=lambda fit: fit.rank)
    tied = [fit.candidate for fit in fits[1:] if fit.is_tied_with(nearest)]
    of_presets = {_formula(one) for one in tied if one.presets}
    formulas = dict[Any, list[Candidate]]()  # by their options if they are no presets
    for one in tied:
        if one.presets:
            formulas.setdefault(_formula(one), []).append(one)
        elif not _same_method(one, best) or (_formula(one) not in of_presets and _options(one, best, best.plan)):
            formulas.setdefault((_flags(one, best, *CONSTANTS), one.plan.divisor.inside > 0), []).append(one)
    told = _told_apart_by(best, [ones[0] for ones in formulas.values()], log, fits[0].reading)
    ties = []
    for ones, by in zip(formulas.values(), told, strict=True):
        named = [f"{one.times}{name}" for one in ones for name in one.presets]
        named = named or [_flags(ones[0], best, EPSILON, INSIDE) + _epsilons(ones) + _insides(ones)]
        ties.append(Tie([*dict.fromkeys(named)], by))
    return ties


def _formula(one: Candidate) -> Any:
    """The factor and the formula, without the constants of a divisor that it has not."""
    plan = one.plan if one.plan.divisor.level != "none" else replace(one.plan, divisor=Divisor(level="none"))
    return one.factor, formula_key(plan, missing=False, singletons=False)


def _same_method(one: Candidate, best: Candidate) -> bool:
    plan = one.plan
    same = plan.estimator.build is best.plan.estimator.build and plan.weight == best.plan.weight
    return same and one.factor == best.factor


def _options(one: Candidate, best: Candidate, plan: Plan) -> dict[str, Any]:
    """The settings of the divisor and the whitening that the formula reads and that are not those of this plan."""
    # Within a group, the std of the residuals is that of the rewards.
    of_group = _same_method(one, best) and one.plan.divisor.level != "batch"
    unread = {*one.plan.unread, *(["divisor.of"] if of_group else [])}
    changed = presets.differences(one.plan, plan)
    return {name: changed[name][1] for name in (*OPTIONS, "divisor.measure") if name in changed and name not in unread}


def _flags(one: Candidate, best: Candidate, *without: str) -> str:
    """The factor, the method, and its options."""
    unread = ["divisor.of"] if _same_method(one, best) and one.plan.divisor.level != "batch" else []
    return " ".join([f"{one.times}{one.plan.flag}", *options_of(one.plan, *unread, *without)])


def _epsilons(ones: Sequence[Candidate]) -> str:
    """The option for the epsilons of these formulas; empty if they have the usual one."""
    used = {one.plan.divisor.epsilon for one in ones if EPSILON not in one.plan.unread}
    if used <= {Divisor().epsilon}:
        return ""
    ends = dict.fromkeys((min(used), max(used)))
    return f" --epsilon {' to '.join(f'{end:g}' for end in ends)}"


def _insides(ones: Sequence[Candidate]) -> str:
    """The same for what they add under the root."""
    used = {one.plan.divisor.inside for one in ones if INSIDE not in one.plan.unread} - {0.0}
    ends = dict.fromkeys((min(used), max(used))) if used else ()
    return f" --set {INSIDE}={' to '.join(f'{end:g}' for end in ends)}" if used else ""


def _told_apart_by(best: Candidate, others: Sequence[Candidate], log: Log, reading: Reading) -> Iterator[str]:
    """For each of the others, what to log so that it differs from the best; empty if nothing that is tried does.

    The formulas are computed on invented groups: for each kind, ordinary groups and a group of the kind are a batch.
    """
    table = _invented(log)
    roles = {role: pl.lit(1.0) for role in ROLES}
    formulas = Formulas(table.select("group", "reward.0", batch=pl.col("kind").rank("dense"), **roles))
    may_differ = [] if "reward.1" in log.table.columns else others[:TOLD]
    told = [one for one in may_differ if {*best.plan.needs, *one.plan.needs} <= {*ROLES}]
    formulas.compute(one.plan for one in (*told, *([best] if told else [])))
    for one in others:
        kinds = table["kind"].clear()
        if one in told:
            expected = best.factor * formulas.advantages(best.plan)
            given = one.factor * formulas.advantages(one.plan)
            same = equal(given, expected, reading.of(expected))
            kinds = table["kind"].filter(pl.Series(~same))
        yield next(iter(kinds), "")


def _invented(log: Log) -> pl.DataFrame:
    """Groups with the lowest and the highest reward of the log: of each kind ordinary ones, and the one that is named."""
    reward, sizes = log.table["reward.0"].to_numpy(), np.bincount(log.codes)
    lowest, highest = float(np.nanmin(reward)), float(np.nanmax(reward))
    size = np.bincount(sizes).argmax()
    ordinary = [[float(at <= ones % size) for at in range(size)] for ones in range(ORDINARY)]
    groups = [(kind, each) for kind, more in INVENTED.items() for each in (*ordinary, more)]
    table = pl.DataFrame(
        {
            "kind": [kind for kind, _ in groups],
            "group": pl.Series(range(len(groups)), dtype=pl.UInt32),
            "reward.0": pl.Series([[*map(float, each)] for _, each in groups]),
        }
    )
    return table.explode("reward.0").with_columns(pl.col("reward.0") * (highest - lowest) + lowest)


def epsilon_of(candidate: Candidate, log: Log, reading: Reading) -> EpsilonInterval | None:
    """The interval of the epsilon (under the root, if it stands there) that all rows leave, and how exactly they were read.

    None if the formula has none, or does not show it.
    """
    (start,) = starts_of([candidate], log)
    ((_, rule),) = start.members
    if rule is None or candidate.plan.weight.by != "none" or any(isinstance(op, Clip) for op in candidate.plan.post):
        return None
    values, spread = start.parts(rule)
    divisors = Intervals.of(
        np.abs(log.logged / candidate.factor), reading.of(log.logged) / abs(candidate.factor)
    ).divisors(np.abs(values))
    low, high = divisors.beside(spread, squared=rule.inside > 0).shared
    if not low <= high < np.inf:
        return None
    is_open = sum(low <= value <= high for value in EPSILONS) > 1
    says = f"epsilon {low:.2g} to {high:.2g}: {reading.says} cannot say more"
    return EpsilonInterval(low, high, reading.words, says if is_open else "")
