"""What an audit found, as the classes that text and `--json` are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import Candidate, Said, candidates, plain_method, untried
from grpo_cli.auditing.causes import Cause, causes, counted_per_fragment, noise_cause
from grpo_cli.auditing.search import Search
from grpo_cli.auditing.trial import FAR, Evidence, Fit, Tolerance, Trial, differences, evidence
from grpo_cli.auditing.undecided import EpsilonInterval, epsilon_of, ties_of, told_apart_by
from grpo_cli.auditing.whole_log import cause_of_log
from grpo_cli.engine import presets
from grpo_cli.engine.group_stats import Mask
from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.score import advantages, score
from grpo_cli.read.columns import Columns
from grpo_cli.read.group_keys import encode
from grpo_cli.read.narrow import Narrow
from grpo_cli.stats.facts import Number, plain

VERSION: Final = 1
LISTED: Final = 10
EXPLAINED: Final = 4  # formulas that fit equally well, whose differences are explained to choose between them
Verdict = Literal["match", "noise", "few", "nothing", "near", "none"]


@dataclass(frozen=True)
class Ranked:
    """A formula that was tried."""

    name: str
    mismatched_rows: int
    typical_difference: Number
    plan: Plan


@dataclass(frozen=True)
class Match(Ranked):
    """The best formula, and the evidence for it.

    `without_effect` are fields of its plan about rows and groups that the input has none of.
    """

    mismatched_groups: int
    max_difference: Number
    tolerance: float
    near: bool
    decisive_rows: int
    verdict: Verdict
    equations: int
    constants: int
    epsilon: EpsilonInterval | None
    weights: Mapping[str, float]
    preset_names: Sequence[str]
    plain_method: str
    factor: float
    without_effect: Sequence[str]


@dataclass(frozen=True)
class Disagreement:
    """A group that differs from a formula (the nearest, or in `claim` the claimed one), with its first row that does.

    `expected` is what that formula computes.
    """

    key: str
    place: str
    rows: int
    expected: Number
    logged: Number


@dataclass(frozen=True)
class Differing:
    """A field in which the claim is not the formula that was found."""

    claimed: Any
    logged: Any


@dataclass(frozen=True)
class Claim:
    """How far the formula that was named is from what was logged."""

    mismatched_rows: int
    mismatched_groups: int
    max_difference: Number
    disagreements: Sequence[Disagreement]
    differs: Mapping[str, Differing]


@dataclass(frozen=True, kw_only=True)
class Audited:
    """Which formula made the advantages of some rows."""

    version: Literal[1]
    inputs: Sequence[str]
    column: str
    rows: int
    groups: int
    notes: Sequence[str]
    match: Match
    ties: Sequence[str]
    tied_formulas: Sequence[Sequence[str]]
    told_apart_by: Sequence[str]
    ranking: Sequence[Ranked]
    disagreements: Sequence[Disagreement]
    headline: str | None
    causes: Sequence[Cause]
    claim: Claim | None
    sampled_rows: int | None
    not_tried: Mapping[str, Sequence[str]]
    warnings: Sequence[str]
    config: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Valued:
    value: str


@dataclass(frozen=True, kw_only=True)
class AuditedPart(Audited, _Valued):
    """The same for the rows with one value of --plan-by."""

    LEFT_OUT = frozenset({"config"})


@dataclass(frozen=True, kw_only=True)
class AuditedParts:
    """The result of `audit --plan-by`."""

    version: Literal[1]
    inputs: Sequence[str]
    plan_by: str
    parts: Sequence[AuditedPart]
    warnings: Sequence[str]
    config: str | None = None


@dataclass(frozen=True, slots=True)
class Grouping:
    """The rows under one way to group them, which `note` names."""

    columns: Columns
    narrow: Narrow
    logged: Vector
    note: str


@dataclass(frozen=True, slots=True)
class Result:
    """The fits for one grouping, best first."""

    grouping: Grouping
    fits: list[Fit]
    log: Search


def facts_of(result: Result, column: str, said: Said) -> Audited:
    """What was found, of the grouping that fits best."""
    narrow = result.grouping.narrow
    result, explained = _explained(result)
    best = result.fits[0]
    candidate, plan = best.candidate, best.candidate.plan
    cause = None if best.explains_all else _cause_of_log(result, said, plan)
    judged = Judged.of(result.log, candidate)
    if cause is not None:
        explained = [cause]
    elif best.explains_all and not judged.wrong.any():
        allowed = judged.tolerance.of(judged.log.logged)
        explained = counted_per_fragment(plan, judged.log.table, judged.computed, allowed)
    ties = ties_of(result.fits)
    notes = [*narrow.notes, *([result.grouping.note] if result.grouping.note else [])]
    return Audited(
        version=VERSION,
        inputs=[table.name for table in narrow.tables],
        column=column,
        rows=len(narrow.table),
        groups=narrow.groups.size,
        notes=notes,
        match=_match(result, judged),
        ties=[name for names, _ in ties for name in names],
        tied_formulas=[names for names, _ in ties],
        told_apart_by=told_apart_by(candidate, [tied for _, tied in ties], result.log.part),
        ranking=[Ranked(**_described(fit)) for fit in result.fits[:LISTED]],
        disagreements=judged.disagreements(narrow),
        headline=None if cause is None else cause.says,
        causes=explained,
        claim=None if said.claim is None else _check_claim(said.claim, result),
        sampled_rows=len(result.log.rows),
        not_tried=untried({*narrow.roles, "input_length", "turns"}),
        warnings=list(narrow.warnings),
    )


def _cause_of_log(result: Result, said: Said, plan: Plan) -> Cause | None:
    narrow = result.grouping.narrow
    parts = encode([narrow.file, *narrow.carried.values()], len(narrow.table)).codes.to_numpy()
    tried = candidates(replace(said, weights=plan.rewards.weights), (), len(narrow.reward_names))
    return cause_of_log(result.log.whole, tried, parts)


def _match(result: Result, judged: Judged) -> Match:
    narrow, best, log, part = result.grouping.narrow, result.fits[0], judged.log, result.log.part
    candidate, plan = best.candidate, best.candidate.plan
    known = evidence(plan, part.table, part.logged, part.counts)
    near = best.noisy is not None or judged.rows <= FAR * log.size
    # Only groups whose rewards differ distinguish formulas.
    constant = score(Plan.of({"rewards.missing": "exclude"}), log.table).frame[".constant"].fill_null(value=True)
    shows_epsilon = part if part.size == log.size and not plan.uses_batch else log
    return Match(
        **{**_described(best), "mismatched_rows": judged.rows},
        mismatched_groups=judged.groups,
        max_difference=judged.largest(~judged.wrong),
        tolerance=judged.tolerance.largest,
        near=near,
        decisive_rows=int(log.counts[~constant.to_numpy()].sum()),
        verdict=_verdict(best, near=near, known=known, tolerance=judged.tolerance, logged=log.logged),
        equations=known.equations,
        constants=candidate.constants,
        epsilon=epsilon_of(candidate, shows_epsilon) if best.explains_all else None,
        weights=dict(zip(narrow.reward_names, plan.rewards.weights, strict=False)),
        preset_names=list(candidate.presets),
        plain_method=plain_method(plan) if not candidate.claimed and narrow.schema is None else "",
        factor=candidate.factor,
        without_effect=_without_effect(plan, log.table),
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """What a formula computes for the rows of a log, and where it differs: for a part of them if that shows all."""

    log: Trial
    tolerance: Tolerance
    computed: Vector
    wrong: Mask
    error: Vector

    @classmethod
    def of(cls, log: Search, candidate: Candidate) -> Judged:
        """Rows that differ are rows of the whole log."""
        plan = candidate.plan
        for trial in (log.part, log.whole) if log.settles(plan) else (log.whole,):
            computed = candidate.factor * advantages(plan, trial.table)
            tolerance = trial.tolerance.of_formula(trial.logged, solved=candidate.solved)
            wrong, error = differences(computed, trial.logged, tolerance)
            if not wrong.any():
                break
        return cls(trial, tolerance, computed, wrong, error)

    @property
    def rows(self) -> int:
        """How many rows differ."""
        return int(self.wrong.sum())

    @property
    def groups(self) -> int:
        """How many groups have a row that differs."""
        return len(np.unique(self.log.table["group"].to_numpy()[self.wrong]))

    def largest(self, rows: Mask) -> float | None:
        """The largest difference of these rows."""
        return plain(float(self.error.max(initial=0.0, where=np.isfinite(self.error) & rows)))

    def disagreements(self, narrow: Narrow) -> list[Disagreement]:
        """The first groups that disagree: key, and place and both values of the first such row."""
        rows = np.flatnonzero(self.wrong)
        groups = narrow.table["group"].to_numpy()[rows] if len(rows) else rows
        codes, first, counts = np.unique(groups, return_index=True, return_counts=True)
        listed = np.argsort(first)[:LISTED]
        at = rows[first[listed]]
        return [
            Disagreement(
                key=narrow.label(int(codes[i])),
                place=place,
                rows=int(counts[i]),
                expected=plain(float(self.computed[row])),
                logged=plain(float(self.log.logged[row])),
            )
            for i, row, place in zip(listed, at, narrow.places(at.tolist()), strict=True)
        ]


def _verdict(best: Fit, *, near: bool, known: Evidence, tolerance: Tolerance, logged: Vector) -> Verdict:
    """`match`, `noise`, `few`, `nothing`, `near` or `none`; docs/trainers.md explains them."""
    if not np.nan_to_num(logged).any():
        return "nothing"
    if not best.explains_all:
        return "near" if near else "none"
    if not known.groups:
        return "nothing"
    if not known.suffices(tolerance, best.candidate.constants):
        return "few"
    return "noise" if best.mismatched else "match"


def _explained(result: Result) -> tuple[Result, list[Cause]]:
    """The result, the formula first whose causes leave the fewest rows unexplained, and these causes."""
    narrow, logged, first = result.grouping.narrow, result.grouping.logged, result.fits[0]
    if first.noisy is not None:
        return result, [noise_cause(first.noisy, narrow.table)]
    if not first.mismatched or first.mismatched > FAR * len(logged):
        return result, []
    by_unexplained: dict[int, tuple[Fit, list[Cause]]] = {}
    ties = (fit for fit in result.fits if fit.is_tied_with(first))
    tried: set[Any] = set()  # what float32 noise is divided by, and whether it is clipped
    for fit in sorted(ties, key=lambda fit: (fit is not first, not fit.candidate.presets)):
        plan = fit.candidate.plan
        noise = plan.divisor, plan.post
        if noise in tried or len(tried) == EXPLAINED or 0 in by_unexplained:
            continue
        tried.add(noise)
        judged = Judged.of(result.log, fit.candidate)
        explained = causes(plan, narrow.table, judged.computed, logged, judged.wrong, judged.tolerance.of(logged))
        left = sum(cause.rows for cause in explained if cause.cause == "unexplained")
        by_unexplained.setdefault(left, (fit, explained))
    best, explained = by_unexplained[min(by_unexplained)]
    return replace(result, fits=[best, *(fit for fit in result.fits if fit is not best)]), explained


def _described(fit: Fit) -> dict[str, Any]:
    """The fields of `Ranked`."""
    return {
        "name": fit.candidate.name,
        "mismatched_rows": fit.mismatched,
        "typical_difference": plain(fit.typical),
        "plan": fit.candidate.plan,
    }


def _check_claim(claim: Plan, result: Result) -> Claim:
    """How far the claimed formula is from the logged values, and in which fields it differs from the best one."""
    judged = Judged.of(result.log, Candidate(claim))
    changed = presets.differences(result.fits[0].candidate.plan, claim) if judged.rows else {}
    # Rules that apply to no row of this file cause no difference.
    without_effect = {*_without_effect(claim, judged.log.table), *claim.unread}
    return Claim(
        mismatched_rows=judged.rows,
        mismatched_groups=judged.groups,
        max_difference=judged.largest(np.ones(len(judged.wrong), dtype=bool)),
        disagreements=judged.disagreements(result.grouping.narrow),
        differs={key: Differing(*each) for key, each in changed.items() if key not in without_effect},
    )


def _without_effect(plan: Plan, table: pl.DataFrame) -> list[str]:
    """The plan fields for kinds of rows and groups that this file does not have."""
    frame = score(plan, table).frame
    known = table.select(pl.col("^reward[.].*$").is_finite().fill_null(value=False))
    decides = {
        ("rewards.missing",): (~frame[".scorable"]).any(),
        ("rewards.component_missing",): not known.select(pl.all_horizontal(pl.all())).to_series().all(),
        ("alone.baseline", "alone.sd", "alone.result"): (frame[".n"] == 1).any(),
        ("groups.zero_variance",): frame[".zero_variance"].fill_null(value=False).any(),
    }
    return [name for names, some in decides.items() if not some for name in names]
