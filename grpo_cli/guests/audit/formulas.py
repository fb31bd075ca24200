"""A cache of the advantages of plans on the rows of a table: each formula is computed once, and many together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.extra_columns import MASKED
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Binary
from grpo_cli.engine.score import Shaped, advantages
from grpo_cli.errors import PluginError
from grpo_cli.plugins import warn


class Formulas:
    """The advantages of plans on the rows of a table.

    If the table has some `rows` of a `whole`, a formula of the batch is computed with all of these; those of a whole are not kept.
    """

    def __init__(
        self,
        table: pl.DataFrame,
        whole: Formulas | None = None,
        rows: Index | slice = slice(None),
        *,
        keeps: bool = True,
    ) -> None:
        self.table = table
        self.rows = rows
        self._keeps = keeps
        self._whole = whole
        self._known: dict[Any, Vector] = {}  # advantages by formula
        self._shaped: dict[Any, Shaped] = {}
        self._failed: set[str] = set()  # methods that cannot be computed

    def advantages(self, plan: Plan) -> Vector:
        """The advantages of a plan; all NaN if its method fails, or cannot be computed for groups in several batches."""
        whole = self._whole if plan.uses_batch else None
        formula = (whole or self).key(plan)  # rows of the batch that are not here may lack rewards
        if whole is not None and formula not in self._known:
            self._known[formula] = whole.advantages(plan)[self.rows]
        self.compute([plan])
        if formula in self._known:
            return self._known[formula]
        if not self._keeps and self._may_compute(plan):
            with self._left_out_if_it_fails(plan.method):
                return advantages(plan, self.table)
        return np.full(len(self.table), np.nan)

    def compute(self, plans: Iterable[Plan]) -> None:
        """Compute these together if they are kept: most plans share their shaped rewards.

        The method of a package is computed separately, since it may fail.
        """
        waiting: dict[Any, dict[Any, Plan]] = {}
        for plan in plans if self._keeps else ():
            formula = self.key(plan)
            if formula not in self._known and self._may_compute(plan):
                own = formula if ESTIMATORS.origin(plan.method) else None
                waiting.setdefault((_shaped_key(plan, missing=self.has_missing), own), {})[formula] = plan
        for formulas in waiting.values():
            first, *_ = formulas.values()
            with self._left_out_if_it_fails(first.method):
                computed = self.shaped(first).advantages([*formulas.values()])
                self._known.update(zip(formulas, computed, strict=True))

    def shaped(self, plan: Plan) -> Shaped:
        """The plan up to its estimator."""
        key = _shaped_key(plan, missing=self.has_missing)
        if key not in self._shaped:
            self._shaped[key] = Shaped.of(plan, self.table)
        return self._shaped[key]

    def plain(self, plan: Plan) -> Plan:
        """The plan without what changes nothing in these rows: the sum of one reward, a threshold for zeros and ones."""
        if self._has_one_reward and plan.rewards.combine == "normalize":
            plan = replace(plan, rewards=replace(plan.rewards, combine="sum"))
        if self._is_binary and plan.shape and isinstance(plan.shape[0], Binary) and 0 <= plan.shape[0].threshold < 1:
            plan = replace(plan, shape=plan.shape[1:])
        return plan

    def counts_successes(self, plan: Plan) -> bool:
        """Whether the formula sees zeros and ones instead of other rewards."""
        shape = self.plain(plan).shape
        return plan.estimator.order_free and bool(shape) and isinstance(shape[0], Binary)

    def key(self, plan: Plan) -> Any:
        """The parts of a plan that can matter for these rows."""
        return formula_key(plan, missing=self.has_missing, singletons=self._has_singletons)

    @contextmanager
    def _left_out_if_it_fails(self, method: str) -> Iterator[None]:
        try:
            yield
        except PluginError as error:
            if method not in self._failed:
                warn(f"{error.message}; it is left out")
            self._failed.add(method)

    def _may_compute(self, plan: Plan) -> bool:
        of_more_rows = self._whole is not None and plan.uses_batch
        divided = self._divides_groups and plan.uses_batch and not plan.estimator.spans_batches
        return plan.method not in self._failed and not of_more_rows and not divided

    @property
    def has_special_rows(self) -> bool:
        """Whether some rows may count otherwise than others."""
        return self._has_singletons or MASKED in self.table.columns

    @property
    def has_whole_batches(self) -> bool:
        """Whether these rows are all of their batches, which hold whole groups."""
        return self._whole is None and not self._divides_groups

    @cached_property
    def _divides_groups(self) -> bool:
        """Whether some group has rows in several batches."""
        return self.table.select("group", "batch").n_unique() > self.table["group"].n_unique()

    @cached_property
    def has_missing(self) -> bool:
        """Whether a reward is missing."""
        finite = pl.col("^reward[.].*$").is_finite().fill_null(value=False)
        return not self.table.select(pl.all_horizontal(finite).all()).item()

    @cached_property
    def _has_one_reward(self) -> bool:
        return "reward.1" not in self.table.columns and "rollout" not in self.table.columns

    @cached_property
    def _is_binary(self) -> bool:
        return self._has_one_reward and self.table["reward.0"].is_in([0.0, 1.0]).all()

    @cached_property
    def _has_singletons(self) -> bool:
        """Whether rules for singletons may matter."""
        only_row = bool((np.bincount(self.table["group"].to_numpy()) == 1).any())
        return self.has_missing or "rollout" in self.table.columns or only_row


def formula_key(plan: Plan, *, missing: bool, singletons: bool) -> Any:
    """The parts of a plan that can matter for rows with or without missing rewards and singletons."""
    alone = (plan.alone, plan.groups) if singletons else (replace(plan.groups, small="null"),)
    estimator = plan.estimator.build, str(plan.params), plan.baseline_level
    return *_shaped_key(plan, missing=missing), *estimator, plan.divisor, plan.weight, plan.post, alone


def _shaped_key(plan: Plan, *, missing: bool) -> tuple[Any, ...]:
    """The parts of a plan that determine the shaped rewards and the facts of groups that it reads."""
    rules = (plan.rewards.missing, plan.rewards.component_missing) if missing else ()
    reads_std = plan.groups.std_threshold is not None or plan.weight.by in {"std", "hard"}
    std = (plan.divisor.ddof, plan.groups.std_threshold) if reads_std else ()
    return plan.rewards.combine, plan.rewards.weights, rules, plan.unit, plan.shape, std
