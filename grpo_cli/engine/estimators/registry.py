"""The table of methods, each declared once. Help, docs and tests are generated from it.

A method is a function of `Terms` and, where it is only a setting of the plan, the settings that make it.
Importing this table loads neither polars nor numpy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from math import log
from typing import Any, Final, Literal

from grpo_cli.engine.estimators import (
    baselines,
    exponential,
    outcome,
    pass_at_k,
    running_baseline,
    shrinkage,
    success_series,
)
from grpo_cli.engine.estimators.expression import expression
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.plugins import Registry

GROUP_ONLY = ("group",)
OF_GROUPS = ("none", "group")
BOTH_LEVELS = ("group", "batch")
ALL = ("none", "group", "batch")
OWN = ("none",)
TOKEN_WHITENING = {"post.whiten.level": "token"}
BINARY = {"shape.binary.threshold": 0.5}


@dataclass(frozen=True)
class Param:
    """A typed parameter of a method; `field` is the field of the plan that it sets, if any."""

    name: str
    default: Any
    help: str
    type: Any = float
    field: str = ""
    least: float | None = None
    most: float | None = None
    above: float | None = None

    def checked(self, value: Any) -> Any:
        """The value, if it is within the bounds."""
        low = self.least is not None and value < self.least
        not_above = self.above is not None and value <= self.above
        high = self.most is not None and value > self.most
        if low or not_above or high:
            raise UsageError(f"parameter {self.name} cannot be {value}", f"it takes {self.bounds}")
        return value

    @property
    def bounds(self) -> str:
        """Its bounds, in words."""
        bounds = (("at least", self.least), ("above", self.above), ("at most", self.most))
        return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)


Positive: Final = partial(Param, above=0.0)
NotNegative: Final = partial(Param, least=0.0)
ORDER = Param("order", 16, "size of the largest sets, T in the formula", type=int, least=1)
SET_SIZE = Param("k", 2, "size of the sets", type=int, least=1)
OMEGA = Param("omega", 1.0, "weight of the step part", field="unit.state_weight")
LIKELIEST = Param("penalty", 0.25, "reward share lost by the likeliest row", field="shape.rank.penalty")


@dataclass(frozen=True)
class Estimator:
    """One method: its function, what it needs, and the defaults of its plan.

    `centred`: a constant group gives exactly 0. `singleton`: the formula for a group of one row, whose mean is taken as 0.
    `nan_reach`: how far a NaN reaches. `rising_state`: the state is the number of the turn, which rises inside a rollout.
    """

    name: str
    build: Callable[..., Any]
    scale: str = "none"
    scales: tuple[str, ...] = OWN
    levels: tuple[str, ...] = GROUP_ONLY
    needs: tuple[str, ...] = ()
    params: tuple[Param, ...] = ()
    sets: Mapping[str, Any] = field(default_factory=dict)
    min_group: int = 2
    centred: bool = True
    batch: bool = False
    order_free: bool = True
    rising_state: bool = False
    spans_batches: bool = False
    singleton: Callable[..., Any] = outcome.raw
    nan_reach: Literal["row", "later", "group", "batch"] = "group"
    about: str = ""

    @property
    def doc(self) -> str:
        """Sentence, formula, limits and source: `about`, else the docstring of the function."""
        return inspect.cleandoc(self.about or self.build.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first sentence."""
        return self.doc.splitlines()[0]

    @property
    def formula(self) -> str:
        """The formula on one line."""
        lines = [line.strip().rstrip(",;") for line in self.doc.splitlines() if line.startswith("    ")]
        return "; ".join(lines)

    @property
    def source(self) -> str:
        """Where it comes from."""
        return self.doc.rpartition("Source:")[2].strip().rstrip(".").replace("\n", " ")


# Distances from the mean of the group, methods that look at a row alone, and those that depend on more than distances.
Centred: Final = partial(Estimator, build=baselines.centred)
ByRow: Final = partial(Estimator, nan_reach="row", min_group=1, centred=False)
OfValues: Final = partial(Estimator, centred=False)

_ROWS = (
    Centred(
        "grpo", scale="group", scales=ALL, levels=BOTH_LEVELS,
        about="""Reward minus the mean of its group, in units of the group's std.

            A = (r - mean) / (std + epsilon)

        A group of equal rewards gives 0. --scale none is Dr. GRPO, --scale batch is Lite PPO.
        Source: GRPO arXiv:2402.03300.
        """,
    ),
    Centred(
        "dr-grpo", scales=ALL, levels=BOTH_LEVELS,
        about="""Reward minus the mean of its group, not divided: GRPO without the std.

            A = r - mean

        Hard and easy prompts keep their natural weight. The same as --method grpo --scale none.
        Source: Dr. GRPO arXiv:2503.20783.
        """,
    ),
    Estimator("rloo", baselines.leave_one_out, scales=ALL, levels=BOTH_LEVELS),
    Estimator(
        "grpo-loo", baselines.leave_one_out, scale="group", scales=GROUP_ONLY,
        sets={"divisor.of": "others", "divisor.only_positive": True},
        about="""Reward measured against the others: minus their mean, divided by their std where that is above 0.

            A = (r - mean of the others) / (std of the others + epsilon), undivided where that std is 0

        A row that differs from otherwise equal rewards is not divided; with n = 2 nothing is.
        Source: NeMo-RL advantage_estimator.py.
        """,
    ),
    ByRow("reinforce", outcome.raw),
    Estimator(
        "reinforce++", outcome.raw, nan_reach="row", min_group=1, centred=False, sets=TOKEN_WHITENING,
        about="""The reward, whitened over all tokens of the batch.

            A = (r - mu)/sqrt(var + 1e-8), row i counting length_i times in mu and var

        Equal lengths give batch-norm. Source: REINFORCE++ arXiv:2501.03262.
        """,
    ),
    Centred(
        "reinforce++-baseline", scales=OF_GROUPS, sets=TOKEN_WHITENING,
        about="""Reward minus the group's mean, then whitened over all tokens of the batch.

            x = r - mean;  A = (x - mu)/sqrt(var + 1e-8), row i counting length_i times in mu and var

        Groups of equal rewards leave x = 0 and get -mu/sd, which is 0 only for equal lengths.
        Source: REINFORCE++ arXiv:2501.03262.
        """,
    ),
    Centred(
        "lite-ppo", scale="batch", scales=("batch",),
        about="""Group mean, batch std: prompts that are nearly solved are not blown up.

            A = (r - mean) / (std of the batch + epsilon)

        --std-of residual takes the std of the centred rewards instead of the raw ones.
        Source: Lite PPO arXiv:2508.08221.
        """,
    ),
    Centred(
        "batch-norm", scale="batch", scales=("none", "batch"), levels=BOTH_LEVELS,
        sets={"estimator.baseline_level": "batch"},
        about="""The reward standardised over the whole batch; groups play no part.

            A = (r - batch mean) / (batch std + epsilon)

        Easy prompts are rewarded for being easy. A batch of equal rewards gives 0. Source: rLLM prpo, AReaL reward_norm batch/batch.
        """,
    ),
    Estimator(
        "maxrl", outcome.maxrl, singleton=outcome.maxrl, scales=OF_GROUPS,
        params=(
            NotNegative("epsilon", 0.0, "added to the mean"),
            Param("nonpositive", "zero", "groups with mean <= 0", type=Literal["zero", "keep"]),
        ),
    ),
    OfValues(
        "conditional", outcome.relative_to_mean,
        params=(
            Positive("epsilon", 1e-6, "added to the mean"),
            Param("baseline", 0.0, "subtracted at the end"),
        ),
    ),
    OfValues(
        "ngrpo", outcome.virtual_best, singleton=outcome.virtual_best_singleton,
        params=(
            Param("best", 1.0, "the best possible reward"),
            Param("count", 1, "how many times it is added to each group", type=int, least=1),
            NotNegative("epsilon", 1e-6, "added to the std"),
        ),
    ),
    OfValues("vr-cond", success_series.conditional_weights, sets=BINARY),
    OfValues(
        "one-sided", outcome.one_sided,
        params=(Positive("epsilon", 1e-6, "added to the root of the mean"),),
    ),
    Estimator(
        "clipped-pnorm", outcome.clipped_mean, singleton=outcome.clipped_mean, batch=True,
        order_free=False,
        params=(Positive("floor", 0.125, "lower bound of the mean"),),
    ),
    *(
        OfValues(name, build, sets=BINARY, params=(ORDER,))
        for name, build in (
            ("maclaurin", success_series.maclaurin),
            ("maclaurin-loo", success_series.maclaurin_others),
            ("maclaurin-cross", success_series.maclaurin_disjoint),
            ("oversample-subset", success_series.subset_weights),
        )
    ),
    OfValues(
        "a-grae", outcome.asymmetric, singleton=outcome.asymmetric, nan_reach="batch",
        scale="group", scales=OF_GROUPS, batch=True,
        params=(Positive("epsilon", 1e-6, "added to both roots"),),
    ),
    Centred(
        "gdpo", scale="group", scales=OF_GROUPS,
        sets={"rewards.combine": "normalize", "post.whiten.level": "sample"},
        about="""Each reward column standardised in its group, added up, then whitened over the batch.

            z_k = (r_k - mean_k)/(std_k + epsilon);  x = sum w_k z_k;  A = (x - mu)/sqrt(var + 1e-8)

        A reward of small scale counts as much as one of large scale. One column gives GRPO, whitened.
        Source: GDPO arXiv:2601.05242 (official versions differ in the last step).
        """,
    ),
    Estimator("opo", baselines.length_weighted, scales=ALL, needs=("length",)),
    ByRow(
        "remax", baselines.given, needs=("baseline",),
    ),
    Estimator(
        "gpg", baselines.nonzero_rescaled, singleton=baselines.nonzero_rescaled, batch=True,
        params=(Positive("f_norm", 1.0, "divides the result"),),
    ),
    OfValues(
        "passk", pass_at_k.pass_at_k, nan_reach="row",
        params=(SET_SIZE, NotNegative("epsilon", 1e-6, "added to the std of the set reward")),
    ),
    OfValues(
        "passk-or-rate", pass_at_k.pass_at_k_or_rate, nan_reach="row", min_group=1, sets=BINARY,
        params=(
            Param("k", 4, "size of the sets", type=int, least=1),
            Positive("epsilon", 1e-6, "added to the std of the set reward"),
        ),
    ),
    Estimator("passk-best", pass_at_k.best_only, scale="group", scales=ALL),
    OfValues("pkpo", pass_at_k.pkpo, params=(SET_SIZE,)),
    Estimator("max-at-k", pass_at_k.max_at_k, params=(SET_SIZE,)),
    Estimator(
        "opmd", exponential.log_mean_exp, scales=ALL,
        params=(
            Param("baseline", "mean", "which baseline", type=Literal["mean", "logavgexp"]),
            Positive("tau", 1.0, "temperature of logavgexp"),
        ),
    ),
    Estimator(
        "asymre", baselines.shifted_mean, centred=False,
        params=(Param("shift", -0.1, "moves the baseline"),),
    ),
    Estimator(
        "rec", baselines.balanced, scales=OF_GROUPS, sets={"divisor.ddof": 0},
        params=(
            Param("drop", "none", "surplus failures get 0", type=Literal["none", "balance"]),
            Param("seed", 0, "which failures stay", type=int, least=0),
        ),
    ),
    Centred(
        "rank-penalty", scale="group", scales=GROUP_ONLY,
        sets={"shape.rank.penalty": 0.25, "shape.rank.numerator": "raw"},
        params=(LIKELIEST,),
        about="""GRPO whose statistics come from rewards penalised by likelihood; the numerator keeps the raw reward.

            r' = r (1 - penalty rank/n);  A = (r - mean r') / (std r' + epsilon), rank 0..n-1 by log-prob

        Not centred: even a group of successes alone is pushed up. penalty = 0 is GRPO.
        Source: Trinity-RFT grpo_advantage.py rank_penalty.
        """,
    ),
    Centred(
        "unlikeliness", scale="group", scales=OF_GROUPS,
        sets={"shape.rank.penalty": 0.25},
        params=(LIKELIEST,),
        about="""GRPO on rewards that are lower the likelier the response was.

            r' = r (1 - penalty rank/n);  A = (r' - mean r') / (std r' + epsilon), rank 0..n-1 by log-prob

        Unlikely successes gain, so the policy keeps its variety. penalty = 0 is GRPO.
        Source: Rewarding the Unlikely arXiv:2506.02355.
        """,
    ),
    Estimator(
        "james-stein", shrinkage.james_stein, nan_reach="batch", centred=False, batch=True,
        params=(NotNegative("epsilon", 1e-6, "added to the two variances"),),
    ),
    Estimator(
        "james-stein++", shrinkage.james_stein_whole, nan_reach="batch", centred=False, batch=True,
        params=(NotNegative("epsilon", 1e-6, "added to the two variances"),),
    ),
    Estimator(
        "entropic", exponential.entropic,
        params=(Param("beta", 2.0, "weight of the best rows"),),
    ),
    Estimator(
        "entropic-adaptive", exponential.entropic_adaptive,
        params=(
            Positive("delta", log(2), "target divergence, which sets beta"),
            Positive("beta_max", 1e6, "upper bound of beta"),
        ),
    ),
    Estimator(
        "risk-sensitive", exponential.risk_sensitive, singleton=exponential.utility_singleton,
        params=(Param("beta", 2.0, "> 0 seeks risk, < 0 avoids it"),),
    ),
    Estimator(
        "quantile", baselines.quantile, scale="group", scales=ALL,
        params=(Positive("level", 0.4, "the quantile used as the baseline", most=1.0),),
    ),
    Estimator(
        "mc-grpo", baselines.median_mad,
        params=(NotNegative("floor", 1e-3, "added to the median distance"),),
    ),
    OfValues(
        "bnpo", outcome.beta_normalised, singleton=outcome.beta_normalised_singleton, nan_reach="batch", batch=True,
        params=(
            Param("min", 0.0, "smallest possible reward"),
            Param("max", 1.0, "largest possible reward"),
        ),
    ),
    OfValues(
        "kalman", running_baseline.kalman, nan_reach="later", min_group=1, order_free=False,
        params=(
            NotNegative("process", 1e-5, "how much the level drifts from row to row"),
            Positive("noise", 1e-2, "variance of a reward around the level"),
            Positive("variance", 1.0, "variance of the level before the first row"),
            NotNegative("epsilon", 1e-8, "added to the root of P"),
        ),
    ),
    OfValues(
        "spo", running_baseline.success_tracker, nan_reach="later", min_group=1,
        order_free=False, spans_batches=True,
        sets={"post.whiten.level": "sample", "post.whiten.inside": 0.0, "post.whiten.epsilon": 1e-8},
        params=(
            NotNegative("rho", 0.96, "how fast old batches are forgotten", most=1.0),
            Positive("prior", 0.5, "successes and failures at the start"),
        ),
    ),
    ByRow(
        "psr", outcome.raw,
        about="""Positive samples only: the reward itself, meant for rewards 0/1.

            A = r

        Failures get 0. Source: PSR arXiv:2506.01347.
        """,
    ),
    Estimator(
        "none", outcome.nothing, nan_reach="row", min_group=1, sets={"rewards.missing": "as-zero"},
    ),
    ByRow("nsr", outcome.failures_only),
    OfValues(
        "w-reinforce", outcome.weighted_reinforce, nan_reach="row", min_group=1,
        params=(Param("weight", 0.1, "strength of the successes"),),
    ),
    Centred(
        "length-penalty", scales=OF_GROUPS,
        sets={"shape.length.output": 0.25},
        params=tuple(
            Param(part, weight, f"weight of the {what}", field=f"shape.length.{part}")
            for part, weight, what in (
                ("output", 0.25, "response length"),
                ("input", 0.1, "input length"),
                ("turns", 0.1, "number of turns"),
            )
        ),
        about="""Centred reward after a linear penalty on length, relative to the longest of the group.

            r' = r - mean (0.25 L/max L + 0.1 I/max I + 0.1 T/max T);  A = r' - mean r'

        The penalty grows with the group's mean, so failures are not taught to be short.
        Source: prime-rl algo/grpo.py length_penalty.
        """,
    ),
    ByRow(
        "reference", baselines.reference_mean, needs=("references",),
    ),
    ByRow(
        "a-star-po", baselines.reference_value, needs=("references",),
        params=(Param("beta", 0.5, "temperature of the value"),),
    ),
    OfValues(
        "ema", running_baseline.moving_average, nan_reach="later", min_group=1, batch=True,
        order_free=False,
        params=(
            NotNegative("decay", 0.95, "how slowly the baseline moves", most=1.0),
            Param("start", 0.0, "the baseline before the first row"),
        ),
    ),
    Centred(
        "step-wise", scale="group", scales=ALL, needs=("rollout",), order_free=False,
        sets={"unit.take": "last"},
        about="""GRPO over rollouts, for files with one row a step: a rollout counts once, by its last row.

            A = (r - mean) / (std + epsilon) over the group's rollouts, copied to every row of the rollout

        One row a rollout gives GRPO. --set unit.per_step=true divides by the rollout's number of rows.
        Source: Trinity-RFT multi_step_grpo_advantage.py.
        """,
    ),
    Centred(
        "gigpo", scales=OF_GROUPS, order_free=False,
        sets={"unit.take": "first", "unit.state_weight": 1.0},
        params=(
            OMEGA,
            Param("gamma", 0.95, "discount of later steps", field="unit.gamma"),
            Param(
                "count", "first", "the reward of a rollout in the episode part (each: every row counts)", type=Literal["first", "last", "mean", "each"], field="unit.take",
            ),
        ),
        about="""Episode against episodes of the prompt, plus step against steps from the same state.

            A = (R - mean R) + omega (G - mean G), G = discounted return from this step, means over equal states

        --scale group divides each part by its own std. omega = 0 is the episode part alone.
        Source: GiGPO arXiv:2505.10978.
        """,
    ),
    Centred(
        "mt-grpo", scales=OF_GROUPS, order_free=False, rising_state=True,
        sets={"unit.take": "last", "unit.state_weight": 1.0, "unit.gamma": 1.0},
        params=(OMEGA, Param("gamma", 1.0, "discount of later turns", field="unit.gamma")),
        about="""The outcome against the other outcomes of the prompt, plus the return from each turn on against the same turn of other rollouts.

            A = (R - mean R) + omega (G - mean G), G = reward of this turn + gamma G of the next one, means over turns of one number

        --reward is the outcome (if only last turns have it, add --missing as-zero), --state-column the
        number of the turn, which rises inside each rollout. Each turn has exactly one baseline:
        a sum of advantages of turns subtracts one mean for every turn that a rollout still takes, and so
        rewards stopping early (verl-project/verl 7244). A row is in its own mean, which shrinks turn k by
        (m - 1)/m if m rollouts reach it. The same as gigpo with gamma = 1 and count = last. --scale group
        divides each part by its own std. Source: MT-GRPO arXiv:2505.11821.
        """,
    ),
    OfValues(
        "expression", expression, min_group=1, order_free=False,
        params=(
            Param("sql", "(reward - mean) / (std + epsilon)", "the formula, as --expr gives it", type=str),
        ),
    ),
)  # fmt: skip

_BUILT_IN: Final[Mapping[str, Estimator]] = {row.name: row for row in _ROWS}


def _checked(name: str, entries: Mapping[str, Estimator]) -> Estimator:
    """A method of a package."""
    row = entries[name]
    if row.name != name:
        raise UsageError(f"its own name is {row.name}", "give both the same")
    for each in fields(row):
        value = getattr(row, each.name)
        kind = type(each.default)
        if kind in {bool, int, str, tuple} and type(value) is not kind:
            raise UsageError(f"its {each.name} cannot be {value!r:.40}", f"it is of the type {kind.__name__}")
    if "\n    " not in inspect.cleandoc(row.build.__doc__ or ""):
        raise UsageError("the docstring of its function has no formula", "one sentence, then A = ... on indented lines")
    if unknown := [need for need in row.needs if need not in ROLES]:
        raise UnknownName.among("extra column", unknown[0], ROLES)
    return row


ESTIMATORS = Registry("method", "grpo_adv.estimators", lambda: _BUILT_IN, _checked, Estimator)
