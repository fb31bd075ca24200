"""The ladder: which formulas explain logged advantages. Each rung is a function from what is known to fits, the costlier later.

readings -> baselines -> divisors -> constants -> what is not linear, and for a log that none of these explains, `whole_log`. Formulas are
solved on a sample; the likely ones are then measured on all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from grpo_cli.engine.moments import Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.guests.audit.baselines import Known
from grpo_cli.guests.audit.bends import not_linear
from grpo_cli.guests.audit.candidates import Candidate, Said, candidates, plainness
from grpo_cli.guests.audit.constants import with_constants, with_constants_of_rounded
from grpo_cli.guests.audit.divisors import (
    SLACK,
    of_agreeing_groups,
    of_batches,
    of_other_groups,
    of_two_values,
    within_half_a_step,
)
from grpo_cli.guests.audit.float32 import noisy_groups
from grpo_cli.guests.audit.readings import readings_of
from grpo_cli.guests.audit.trial import BETTER, FAR, Fit, Judged, Log
from grpo_cli.guests.audit.weights import of_rewards
from grpo_cli.read.narrow import Narrow
from grpo_cli.schemas.table import schemas

CONFIRMED = 2_000_000  # rows that are computed to confirm plans, all plans together
FEWEST = 6  # plans that are confirmed at least
MOST = 40  # plans that are confirmed at most
Rung = Callable[[Known], list[Fit]]
# Rungs on one line are climbed together: the std of a batch may be so near a round number that a factor gives the same values. Rounded
# values are therefore solved for a factor even where a formula of the batch is within half a step (twice Dr. GRPO, std + 0.001).
LADDER: Final[Sequence[Sequence[Rung]]] = (
    (of_agreeing_groups,),
    (of_other_groups,),
    (of_batches, of_two_values, with_constants),
    (not_linear,),
)
LADDER_OF_ROUNDED: Final[Sequence[Sequence[Rung]]] = ((with_constants_of_rounded,), (not_linear,))


class Found(NamedTuple):
    """The fits, best first, the log as it was read, and the formulas that were tried on it."""

    fits: list[Fit]
    log: Log
    tried: Sequence[Candidate]

    @property
    def missed(self) -> int:
        """How many rows differ from the best."""
        return self.fits[0].mismatched


def search(narrow: Narrow, logged: Vector, said: Said) -> Found:
    """What explains the logged values.

    They are read in every way that their digits and their type allow. Only if no formula fits, several rewards may have weights.
    Presets of the tool that wrote the file, if it is known, are tried with every scale.
    """
    of_schema = [name for name, schema in schemas().at_hand.items() if schema.title == narrow.schema]
    schema = next(iter(of_schema), "")
    tool = schema.removeprefix("ms-").split("-")[0]  # as the names of its presets begin: nemo-rl-grpo, swift-grpo
    components, roles = len(narrow.reward_names), {*narrow.request.roles, "input_length", "turns"}
    tried = candidates(said, roles, components, tool)
    rewards = np.concatenate([narrow.table[f"reward.{at}"].to_numpy() for at in range(components)])
    log = Log.part(narrow, logged).read_as(*readings_of(logged, rewards))
    best = climbed(log, tried, tool)
    may_be_weighted = best.missed and components > 1 and not said.weights
    has_evidence = may_be_weighted and log.evidence(Plan.of({})).suffices(components)
    for weights in of_rewards(log, components) if has_evidence else ():
        formulas = candidates(said._replace(weights=weights), roles, components, tool)
        weighted = [one._replace(constants=components) for one in formulas if not one.claimed]
        with_weights = climbed(log, weighted, tool)
        if with_weights.missed < BETTER * best.missed:
            best = with_weights
        if not best.missed:
            break
    if best.missed:
        best = best._replace(fits=[*_noisy_fit(tried, log.read_as(log.readings[0])), *best.fits])
    return best


def climbed(log: Log, tried: Sequence[Candidate], tool: str) -> Found:
    """The fits, the best first: what the values say as exactly as their type allows, and what they say if they were rounded."""
    exact, *others = log.readings
    fits = list[Fit]()
    for reading in (exact, *(one for one in others if not one.is_rounded)):
        if not _explained(fits):
            fits += _climb(LADDER, log.read_as(reading), tried)
    if rounded := [one for one in others if one.is_rounded]:
        fits = [*_judged_again(fits, log), *within_half_a_step(Known(log, tried))]
        ladder = LADDER_OF_ROUNDED if not _explained(fits) else LADDER_OF_ROUNDED[:1]
        for reading in rounded:
            if not _explained(fits, by_groups=True):
                fits += _climb(ladder, log.read_as(reading), tried)
    return Found(_ranked(_confirmed(fits, log), tool), log, tried)


def _climb(ladder: Sequence[Sequence[Rung]], log: Log, tried: Sequence[Candidate]) -> list[Fit]:
    """The fits of the rungs, up to those that explain every row."""
    known = Known(log, tried)
    for rungs in ladder:
        for rung in rungs:
            known.fits += rung(known)
        if _explained(known.fits):
            break
    return known.fits


def _explained(fits: Sequence[Fit], *, by_groups: bool = False) -> bool:
    """Whether a formula explains every row; `by_groups`: one that reads only the groups."""
    return any(not fit.mismatched and not (by_groups and fit.candidate.plan.uses_batch) for fit in fits)


def _judged_again(fits: list[Fit], log: Log) -> list[Fit]:
    """The fits with the best of those that differ somewhere under every reading of the log."""
    fits = sorted(fits, key=lambda fit: fit.rank)
    again = []
    for fit in fits[:MOST]:
        one = fit.candidate
        computed = one.factor * log.formulas.advantages(one.plan) if fit.mismatched else None
        again.append(fit if computed is None else Judged(one, log, computed).fit)
    return again


def _ranked(fits: list[Fit], tool: str) -> list[Fit]:
    """The best first; of those that the rows cannot tell apart, the plainest."""
    fits = sorted(fits, key=lambda fit: fit.rank)
    tied = [fit for fit in fits if fit.is_tied_with(fits[0])]
    behind = [fit for fit in fits if not fit.is_tied_with(fits[0])]

    def plainest(fit: Fit) -> tuple[Any, ...]:
        one = fit.candidate
        return not one.claimed, one.is_odd, fit.reading.is_rounded, *plainness(one, tool)

    distinct = list[Fit]()  # a formula may have been tried under two readings: the finer one is first
    for fit in sorted(tied, key=plainest):
        if all(fit.candidate != other.candidate for other in distinct):
            distinct.append(fit)
    return distinct + behind


def _confirmed(found: list[Fit], log: Log) -> list[Fit]:
    """The likely formulas measured on all rows: as many as can be computed in a few seconds.

    If less than half of the part is explained, one is enough to count the rows that differ.
    """
    if log.part_of is None:
        return found
    found = sorted(found, key=lambda fit: fit.rank)
    likely = [fit for fit in found if fit.mismatched <= 2 * found[0].mismatched + SLACK]
    if found[0].mismatched > FAR * found[0].rows:
        likely = likely[:1]
    budget = max(FEWEST, min(CONFIRMED // log.whole.size, MOST))
    fits, measured, whole = list[Fit](), dict[Any, Fit](), log.whole
    settled = [fit for fit in likely if log.settles(fit.candidate.plan)]
    for one in (fit.candidate for fit in likely if not log.settles(fit.candidate.plan)):
        formula = whole.formulas.key(one.plan), one.factor, one.solved
        if formula not in measured and len(measured) < budget:
            computed = one.factor * whole.formulas.advantages(one.plan)
            measured[formula] = Judged(one, whole, computed).fit
        if formula in measured:
            fits.append(measured[formula]._replace(candidate=one))
    return settled + fits


def _noisy_fit(tried: Sequence[Candidate], log: Log) -> list[Fit]:
    """The first preset that explains every row once float32 noise of constant groups is added; nothing if there is none."""
    whitened = [one for one in tried if one.presets and one.plan.post]
    for one in whitened:
        noisy = noisy_groups(one.plan, log)
        if noisy is not None and log.part_of is not None:
            noisy = noisy_groups(one.plan, log.whole)
        if noisy is not None:
            return [Judged.of(one, log.whole).fit._replace(noisy=noisy)]
    return []
