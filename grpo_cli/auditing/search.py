"""Find the plans that explain logged advantages: solve them on a sample, then measure the likely ones on all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl

from grpo_cli.auditing.candidates import Candidate, Said, candidates, is_of_tool, plain_method
from grpo_cli.auditing.float32 import noisy_groups
from grpo_cli.auditing.formulas import Formulas, Known, formula_key
from grpo_cli.auditing.solve import (
    LEVELS,
    Start,
    clipped,
    starts_of,
    with_known_constants,
    with_solved_constants,
)
from grpo_cli.auditing.trial import FAR, FLOAT32_ERROR, MANTISSAS, SAMPLE, Fit, Tolerance, Trial, lines
from grpo_cli.auditing.weights import of_groups, of_rewards
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.extra_columns import APART
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.read.narrow import Narrow
from grpo_cli.schemas.table import schemas

CONFIRMED: Final = 2_000_000  # rows that are computed to confirm plans, all plans together
FEWEST: Final = 6  # plans that are confirmed at least
SLACK: Final = 6  # further rows that may differ in the sample
SAME: Final = 9  # decimals in which the values of two starts agree if they are the same
MOST: Final = 40  # plans that are confirmed at most
DECIMALS: Final = range(2, 7)  # decimals of rounded values; a number with one or none may be exact
EXACT: Final = 3  # rewards with more decimals may have been rounded
BETTER: Final = 0.5  # a coarser reading has to reduce the rows that differ to this share
TWENTIETHS: Final = 0.5  # values of two decimals may be exact if a larger share are twentieths
# Three of four rounded values need one of the last two bits, fewer if they are multiples of each other; eighths need none.
LAST_BITS: Final = 0.25
VALUES: Final = 4  # distinct values that are needed to recognise rounding


def search(narrow: Narrow, logged: Vector, said: Said, known: Known) -> tuple[list[Fit], Search]:
    """The fits, best first, and the log as it was read.

    The values are read as exactly as their type allows. Only if no formula fits so, they may have been rounded, or
    several rewards may have weights. Presets of the tool that wrote the file, if it is known, are tried with every scale.
    """
    schema = next((name for name, schema in schemas().at_hand.items() if schema.title == narrow.schema), "")
    tool = schema.removeprefix("ms-").split("-")[0]  # as the names of its presets begin: nemo-rl-grpo, swift-grpo
    components, roles = len(narrow.reward_names), {*narrow.roles, "input_length", "turns"}
    tried = candidates(said, roles, components, tool)
    log = Search.of(narrow, logged, known)
    exact = Tolerance.of_type(logged)
    reading = log.reading(exact)
    best = reading.fits(tried, tool)

    def read_again(tried: Sequence[Candidate], tolerance: Tolerance) -> None:
        nonlocal best, reading
        if best[0].mismatched:
            coarser = log.reading(tolerance)
            fits = coarser.fits(tried, tool)
            if fits[0].mismatched < BETTER * best[0].mismatched:
                best, reading = fits, coarser

    tolerances = [*_readings_of_rewards(narrow), *_rounded_readings(logged)] if best[0].mismatched else []
    for tolerance in tolerances:
        read_again(tried, tolerance)
    enough = log.part.has_evidence_for(Candidate(Plan.of({}), constants=components))
    if best[0].mismatched and components > 1 and not said.weights and enough:
        for weights in of_rewards(log.part, components):
            tried_again = candidates(replace(said, weights=weights), roles, components, tool)
            with_weights = [replace(one, constants=components) for one in tried_again if not one.claimed]
            for tolerance in (exact, *tolerances):
                read_again(with_weights, tolerance)
    if best[0].mismatched:
        best = [*_noisy_fit(tried, reading), *best]
    return best, reading


@dataclass(frozen=True)
class Search:
    """All rows of a log, and a part of them on which formulas are solved: all of a small log."""

    whole: Trial
    part: Trial
    rows: Index  # of the part
    shows_all: bool  # every group of the log is like one of the part

    @classmethod
    def of(cls, narrow: Narrow, logged: Vector, known: Known) -> Search:
        """The log as it is."""
        whole = Trial.of(Formulas(narrow.table, known), logged)
        rows, counts, shows_all = _part(narrow.table, logged)
        if len(rows) == len(logged):
            return cls(whole, whole, rows, shows_all)
        return cls(whole, Trial.of(Formulas(narrow.at(rows).table, known), logged[rows], counts), rows, shows_all)

    @property
    def is_small(self) -> bool:
        """Whether the part is the whole log."""
        return self.part is self.whole

    def reading(self, tolerance: Tolerance) -> Search:
        """The same with the values read as this tolerance says."""
        whole = replace(self.whole, tolerance=tolerance)
        return replace(self, whole=whole, part=whole if self.is_small else replace(self.part, tolerance=tolerance))

    def settles(self, plan: Plan) -> bool:
        """Whether the part shows all that the log shows of a plan."""
        alike = not plan.needs and not plan.uses_batch and plan.estimator.order_free
        return self.is_small or (self.shows_all and alike)

    def fits(self, tried: Sequence[Candidate], tool: str) -> list[Fit]:
        """The fits on all rows, the best first.

        The batches of a large log are computed only if no formula of its groups fits.
        """
        levels = LEVELS if self.is_small else LEVELS[:1]
        starts = starts_of(tried, self.part.formulas, np.arange(len(self.rows)), self.part, levels)
        found = _known(starts)
        # The std of a batch may be nearly a round number: then a factor gives nearly the same values.
        if not _explained(fit for fit in found if not fit.candidate.plan.uses_batch):
            of_batch = [] if self.is_small else [*self._starts_of_batch(starts)]
            found += [fit for fit in _known(of_batch) if fit.candidate.plan.uses_batch]
            starts += of_batch
            found += self._proven(starts, with_solved_constants)
        if not _explained(found):
            found += self._proven(starts, clipped)
            found += self._proven(starts, of_groups)
        fits = self._confirmed(found)
        fits.sort(key=lambda fit: fit.rank)
        ties = [fit for fit in fits if fit.is_tied_with(fits[0])]
        others = [fit for fit in fits if not fit.is_tied_with(fits[0])]
        return [*sorted(ties, key=partial(_plainness, tool=tool)), *others]

    def _starts_of_batch(self, starts: Sequence[Start]) -> Iterator[Start]:
        """The starts with rules of the batch, if the values of each batch are on a line over theirs.

        Those with equal values on the part are computed once.
        """
        off = [_off_the_lines(start.values, self.part) for start in starts]
        most = min(2 * min(off) + SLACK, FAR * self.part.size)
        first, spreads = dict[bytes, Start](), dict[Any, Vector]()
        for start in (start for start, rows in zip(starts, off, strict=True) if rows <= most):
            of_batch = replace(start, formulas=self.whole.formulas, rows=self.rows, levels=LEVELS[1:], spreads=spreads)
            like = first.setdefault(_bits(start.values), of_batch)
            yield of_batch if like is of_batch else replace(of_batch, like=like)

    def _proven(self, starts: Sequence[Start], solve: Callable[[Start], Iterable[Candidate]]) -> Iterator[Fit]:
        """What is solved and explains every row, if there are enough equations for its constants."""
        for start in starts:
            solved = [*solve(start)]
            # A weight relative to the batch is computed with all rows of it.
            weighed = [one for one in solved if one.plan.weight.by != "none" and one.plan.uses_batch]
            fits = self.whole.fits(weighed) if weighed else start.fits(solved)
            yield from (fit for fit in fits if not fit.mismatched and self.part.has_evidence_for(fit.candidate))

    def _confirmed(self, found: list[Fit]) -> list[Fit]:
        """The likely formulas measured on all rows: as many as can be computed in a few seconds.

        If less than half of the part is explained, one is enough to count the rows that differ.
        """
        if self.is_small:
            return found
        found = sorted(found, key=lambda fit: fit.rank)
        likely = [fit for fit in found if fit.mismatched <= 2 * found[0].mismatched + SLACK]
        if found[0].mismatched > FAR * found[0].rows:
            likely = likely[:1]
        settled = [fit for fit in likely if self.settles(fit.candidate.plan)]
        budget = max(FEWEST, min(CONFIRMED // self.whole.size, MOST))
        open_ = [fit for fit in likely if not self.settles(fit.candidate.plan)]
        return [*settled, *self.whole.fits(fit.candidate for fit in _first_formulas(open_, budget))]


def _known(starts: Sequence[Start]) -> list[Fit]:
    """The candidates of these starts, and their divisors with usual constants."""
    found, seen = list[Fit](), set[tuple[bytes, bool]]()
    for start in starts:
        # The divisors of equal values are tried once.
        values = _bits(start.values), start.plain is None
        known = with_known_constants(start) if values not in seen else ()
        found += start.fits([*start.members, *known])
        seen.add(values)
    return found


def _bits(values: Vector) -> bytes:
    """The same for values that are equal up to rounding."""
    return (np.round(values, SAME) + 0.0).tobytes()


def _explained(fits: Iterable[Fit]) -> bool:
    return any(not fit.mismatched for fit in fits)


def _off_the_lines(values: Vector, log: Trial) -> float:
    """How many rows are not on the line of their batch through the logged values over these."""
    line = lines(values, log.logged, log.table["batch"].to_numpy())
    off = ~(np.abs(line - log.logged) <= log.tolerance.of(log.logged))
    return float(log.counts[off & np.isfinite(log.logged)].sum())


def _noisy_fit(tried: Sequence[Candidate], log: Search) -> list[Fit]:
    """The first preset that explains every row once float32 noise of constant groups is added; nothing if there is none."""
    for candidate in (candidate for candidate in tried if candidate.presets and candidate.plan.post):
        if log.is_small or noisy_groups(candidate.plan, log.part, is_part=True) is not None:
            noisy = noisy_groups(candidate.plan, log.whole, is_part=False)
            if noisy is not None:
                return [replace(log.whole.fits([candidate])[0], noisy=noisy)]
    return []


def _readings_of_rewards(narrow: Narrow) -> list[Tolerance]:
    """The tolerance of float32 if rewards were rounded to it or to decimals, after advantages were computed from them."""
    rewards = np.concatenate([narrow.table[f"reward.{k}"].to_numpy() for k in range(len(narrow.reward_names))])
    rewards = rewards[np.isfinite(rewards)]
    fine = rewards[np.round(rewards, EXACT) != rewards]
    return [Tolerance()] if len(fine) and Tolerance.of_type(fine) == Tolerance() else []


def _rounded_readings(logged: Vector) -> list[Tolerance]:
    """Tolerances for loggers that round or write 16 bits, if the values show it.

    Numbers with one decimal or few bits may be exact, and so may twentieths, which have two decimals.
    """
    values = np.unique(np.abs(logged[np.isfinite(logged) & (logged != 0)]))
    if not len(values):
        return []
    tolerances = []
    single = values.astype(np.float32)
    stored = single if np.array_equal(single, values) else values  # a rounded number in the type of the file
    decimals = next(
        (d for d in range(DECIMALS[-1] + 1) if (np.round(values, d).astype(stored.dtype) == stored).all()), 0
    )
    twentieths = np.mean(np.abs(values * 20 - np.round(values * 20)) < FLOAT32_ERROR)
    if decimals in DECIMALS and (decimals > DECIMALS[0] or (len(values) >= VALUES and twentieths < TWENTIETHS)):
        tolerances.append(Tolerance(0.5 * 10.0**-decimals + (3e-7 if stored is single else 1e-9), 0.0))
    # The bits that each value needs: half of all rounded values need the last one.
    mantissas = (np.frexp(values)[0] * (1 << 53)).astype(np.int64)
    bits = 53 - np.log2((mantissas & -mantissas).astype(np.float64)).astype(np.int64)
    is_full = len(values) >= VALUES
    return tolerances + [
        Tolerance(1e-7, 1e-6, 0.0, size)
        for size in MANTISSAS
        if is_full and bits.max() == size and np.mean(bits >= size - 1) > LAST_BITS
    ]


def _plainness(fit: Fit, tool: str) -> tuple[Any, ...]:
    """Sort formulas that the rows cannot tell apart.

    First comes the claimed one, then one without a factor, the user's own preset, a preset of the tool that wrote the file, a method with
    its default options, a formula without steps before and after the divisor, and a preset, the one with the fewest steps first.
    """
    plan, names, factor = fit.candidate.plan, fit.candidate.presets, fit.candidate.factor
    methods, plain = list(ESTIMATORS), plain_method(plan)
    steps = len(plan.shape) + len(plan.post) + (plan.rewards.combine != "sum") + (plan.weight.by != "none")
    return (
        not fit.candidate.claimed,
        plan.divisor.level == "constant",
        0 if factor == 1 else len(f"{factor:g}"),
        not any(map(presets().origin, names)),
        not any(is_of_tool(name, tool) for name in names),
        methods.index(plain) if plain else len(methods),
        steps > 0,
        not names,
        steps,
        methods.index(plan.method),
        plan.divisor.of != "reward",
    )


def _part(table: pl.DataFrame, logged: Vector) -> tuple[Index, Vector, bool]:
    """The rows of some groups, how many rows each stands for, and whether every group is like one of them.

    Groups are alike if they have the same rewards with the same logged values, in any order.
    """
    codes = table["group"].to_numpy()
    if len(codes) <= SAMPLE:
        return np.arange(len(codes)), np.ones(len(codes)), True
    read = [name for name in table.columns if name.startswith("reward.") or name in APART]
    hashes = table.select(*read, pl.Series("logged", logged)).hash_rows().to_numpy()
    of_group = np.zeros(int(codes.max()) + 1, np.uint64)
    np.add.at(of_group, codes, hashes)
    _, first, number = np.unique(of_group, return_index=True, return_counts=True)
    counts = np.zeros(len(of_group))
    counts[first] = number
    # Every k-th kind of group, so that the part covers the whole file.
    stride = max(int(np.bincount(codes)[first].sum()) // SAMPLE, 1)
    chosen = np.zeros(len(of_group), dtype=bool)
    chosen[np.sort(first)[::stride]] = True
    rows = np.flatnonzero(chosen[codes])
    return rows, counts[codes[rows]], stride == 1 and "rollout" not in table.columns


def _first_formulas(fits: list[Fit], number: int) -> list[Fit]:
    """The fits of the first formulas, this many; plans of the same formula count once."""
    formulas: set[Any] = set()
    first = []
    for fit in fits:
        formula = formula_key(fit.candidate.plan, missing=True, singletons=True)
        if formula in formulas or len(formulas) < number:
            formulas.add(formula)
            first.append(fit)
    return first
