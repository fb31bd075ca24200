"""When an option has an effect: a row for each that needs another option, a plan that reads it, or a result that shows it.

An option that nothing reads is refused with the way out, so that nobody believes that it counted. Those of a file of options are
passed over: the file serves several commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.errors import Cures, UsageError, Way
from grpo_cli.options.conditions import Filter
from grpo_cli.options.export_kinds import EXPORT_KINDS, WITH_ADVANTAGES, listed
from grpo_cli.options.given import Given
from grpo_cli.options.table import DIVISOR, EVERY, METHOD, OPTIONS, POST, SHAPE, SKIPPED

# What a command line of `inspect` shows: everything (also in a report, in browse, and as JSON), a group with its rows, the table of
# all groups, a line for each value of --by, runs beside each other, or two rewards of the same rollouts.
WHOLE, GROUP, ROWS, GROUPS, LINES, RUNS, REWARDS = "whole", "group", "rows", "groups", "lines", "runs", "rewards"
LEAVE_OUT = "leave it out"
ARITHMETIC = (SHAPE, METHOD, DIVISOR, SKIPPED, POST)  # options of advantages alone
_MAY_COUNT = ("preset", "presets", "set")  # they may say which rows count
OF_ADVANTAGES = tuple(row.name for row in OPTIONS.values() if row.panel in ARITHMETIC and row.name != "presets")
LOGPROBS = ("mask", "token_logprobs", "old_token_logprobs", "token_entropy")


@dataclass(frozen=True)
class Asked:
    """What is asked for: the options that are given (and to which command), and the plan that they make."""

    given: Given
    plan: Plan
    plan_without: Callable[[str], Plan] | None  # the plan without one of the options; None if options do not make it
    # Whether a line for each value of --by has numbers that depend on advantages: where log-probs are known.
    drift_by_line: bool = True

    @property
    def command(self) -> str:
        """The command; empty where no command is meant."""
        return self.given.command

    @property
    def shows(self) -> str:
        """What the result is, of those of `inspect`."""
        given = self.given
        if self.command != "inspect":
            return WHOLE
        if given.before:
            return RUNS
        if "fail_on" in given:  # a gate may be any number
            return WHOLE
        if given.rescored or given.rescored_column:
            return REWARDS
        if given.format:
            return ROWS if given.show else LINES if given.by else GROUPS
        return GROUP if given.show and not given.json else WHOLE

    @property
    def has_advantages(self) -> bool:
        """Whether advantages are computed for the result."""
        if self.command == "export":
            # Labels are of solved rows, unless a plan is named.
            is_named = self.given.to != "labels" or any(self.given.is_typed(name) for name in OF_ADVANTAGES)
            return EXPORT_KINDS[str(self.given.to)].has_advantages and is_named
        if self.command == "select" or self.shows in {GROUPS, RUNS}:
            return False
        return self.shows != LINES or self.drift_by_line

    @property
    def drops_groups(self) -> bool:
        """Whether the plan leaves groups out of what is written."""
        groups = self.plan.groups
        of_size = groups.min_size > 1 and groups.small == "drop"
        return groups.zero_variance == "drop" or of_size or self.plan.alone.result == "drop"

    @property
    def facts(self) -> list[str]:
        """The facts of groups that the conditions and the order of a choice name."""
        names = [name for text in self.given.where for name in Filter.parse(text).names]
        return [*names, (self.given.most_by or "").removeprefix("-").replace("pass@", "pass_at_")]

    def reads(self, field: str) -> bool:
        """Whether the result depends on this field of the plan."""
        if field in self.plan.unread or (self.shows == LINES and field.startswith("divisor.")):
            return False
        counting: tuple[str, ...] = ("rewards.", "unit.take", "estimator.count")
        if self.command == "export" and self.drops_groups:
            counting = (*counting, "shape.", "groups.", "alone.")
        return self.has_advantages or field.startswith(counting)

    def reads_column(self, role: str) -> bool:
        """Whether the result depends on the extra column."""
        plan = self.plan
        if self.command == "audit":  # formulas that read it are tried
            return role != "kl" or role in plan.needs
        if role == "length" and self._shows_length:
            return True
        if not self.has_advantages:
            return self.drops_groups and any(role in op.needs for op in plan.shape)
        return role in {*plan.needs, *plan.may_read}

    @property
    def _shows_length(self) -> bool:
        """Whether lengths are shown, chosen by, or those of token lists."""
        given = self.given
        if self.command in {"inspect", "report", "browse"}:
            return self.shows not in {RUNS, REWARDS}
        if self.command == "compute":
            return bool(given.per_token)
        of_tokens = self.command == "export" and given.to == "tokens"
        return of_tokens or "shortest" in {given.pick, given.best} or "length" in self.facts


@dataclass(frozen=True)
class Need:
    """What an option needs: whether it is there, and the words for an error without it."""

    met: Callable[[Asked], bool]
    missing: str | Callable[[Asked], str]  # such as "has no effect without --group-size"


@dataclass(frozen=True)
class Row:
    """An option, what it needs to have an effect, and the way out; in these commands, or in all that take it."""

    option: str
    on: Need
    cures: Cures | Callable[[Asked], Cures]
    of: tuple[str, ...] = ()

    def is_idle(self, asked: Asked) -> bool:
        """Whether the option is given, and nothing reads it."""
        of_command = not self.of or asked.command in self.of
        return of_command and asked.given.is_typed(self.option) and not self.on.met(asked)

    def refusal(self, asked: Asked) -> UsageError:
        """The error of an idle option."""
        missing = self.on.missing if isinstance(self.on.missing, str) else self.on.missing(asked)
        cures = self.cures(asked) if callable(self.cures) else self.cures
        return UsageError(f"{EVERY[self.option].flag} {missing}", cures)


def idle(asked: Asked) -> Iterator[Row]:
    """The rows of the options that are given and that nothing reads."""
    return (row for row in NEEDS if row.is_idle(asked))


# --- what options need --------------------------------------------------------------------------------------


def given(*names: str, missing: str = "") -> Need:
    """One of these options."""
    flags = " and ".join(EVERY[name].flag for name in names)
    return Need(lambda asked: not asked.given.keys().isdisjoint(names), missing or f"has no effect without {flags}")


def shown_in(*kinds: str) -> Need:
    """One of these results of `inspect`."""
    words = {
        GROUP: "beside --show",
        ROWS: "beside --show",
        GROUPS: "on the table of --format",
        LINES: "on the table of --by",
        RUNS: "beside --against",
        REWARDS: "beside --old-rewards",
    }
    return Need(lambda asked: asked.shows in kinds, lambda asked: f"has no effect {words[asked.shows]}")


_WITHOUT_FORMAT = Way("--format", lead="leave out")


# --- words for results without advantages -------------------------------------------------------------------


def _not_for(asked: Asked) -> str:
    if asked.command == "export":
        return f"does not apply to --to {asked.given.to}"
    if asked.command == "select":
        return "has no effect on select, which reads rewards"
    return {
        RUNS: "has no effect beside --against, which compares rewards",
        GROUPS: "has no effect on the table of groups, which has no advantages",
        LINES: "has no effect on the table of --by without log-probs, which has no advantages",
    }[asked.shows]


def _instead(asked: Asked) -> Cures:
    if asked.command == "export":
        return f"it is for --to {listed(WITH_ADVANTAGES)}"
    if asked.shows == GROUPS:
        return [Way("--show", fill="KEY", lead="add"), _WITHOUT_FORMAT]
    return _WITHOUT_FORMAT if asked.shows == LINES else LEAVE_OUT


# --- rows of several options --------------------------------------------------------------------------------


def _of_arithmetic(option: str) -> Row:
    """An option of advantages: where none are computed, only what drops groups or says which rows count has an effect."""
    return Row(
        option, on=Need(lambda asked: asked.has_advantages or asked.reads(_field(option)), _not_for), cures=_instead
    )


def _field(option: str) -> str:
    """The field of the plan that the option sets, or one like it if it sets several."""
    several = {
        "singleton": "alone.result",
        "reward_clip": "shape.clip",
        "overlong": "shape.overlong",
        "kl_from": "shape.kl",
    }
    return EVERY[option].sets or several.get(option, option)


def _of_divisor(option: str) -> Row:
    """An option about the divisor: a plan that divides by nothing does not read it, unless its formula does."""

    def missing(asked: Asked) -> str:
        if asked.plan.method == "expression":
            return "has no effect: the formula does not name it"
        if asked.plan.divisor.level == "none":
            return "has no effect with scale none"
        return "has no effect on the divisor of this plan"

    def cures(asked: Asked) -> Cures:
        method = asked.plan.estimator
        if asked.plan.method == "expression":
            return "name std in --expr" if option == "ddof" else "name epsilon in --expr"
        if asked.plan.divisor.level != "none":
            return LEAVE_OUT
        if any(param.name == option for param in method.params):
            return Way("--param", fill=f"{option}=", lead=f"{method.name} has its own:")
        return "add --scale group or --scale batch" if len(method.scales) > 1 else f"{method.name} has no divisor"

    return Row(
        option, on=Need(lambda asked: not asked.has_advantages or asked.reads(_field(option)), missing), cures=cures
    )


# What reads an extra column, apart from a formula.
READERS: Final = {
    "length": Way("--whiten", "token", why="reads it, and so does --overlong MAX:BUFFER:PENALTY"),
    "logprob": Way("--method", "unlikeliness", why="reads it"),
    "baseline": Way("--method", "remax", why="reads it"),
    "references": Way("--method", "reference", why="reads it"),
    "kl": Way("--kl-coef", fill="X", why="reads it"),
    "truncated": Way("--set", fill="shape.truncated.factor=X", why="reads it"),
    "state": Way("--method", "gigpo", why="reads it"),
    "step_reward": Way("--method", "gigpo", why="reads it"),
    "role": Way("--method", "ema", why="reads it"),
    "input_length": Way("--method", "length-penalty", why="reads it"),
    "turns": Way("--method", "length-penalty", why="reads it"),
}


def _of_column(role: str) -> Row:
    """The option of an extra column, which few plans read."""

    def missing(asked: Asked) -> str:
        if role == "length" and asked.command == "select":
            return "has no effect here"
        if not asked.has_advantages:
            return _not_for(asked)
        return f"is not read by {'the formula' if asked.plan.method == 'expression' else 'this plan'}"

    def cures(asked: Asked) -> Cures:
        if role == "length" and asked.command == "select":
            return "it is for length in --where and --by, and for --pick shortest"
        if not asked.has_advantages:
            return _instead(asked)
        reader = f"name {role} in --expr" if asked.plan.method == "expression" else READERS[role]
        return [reader, LEAVE_OUT]

    option = ROLES[role].flag.removeprefix("--").replace("-", "_")
    return Row(option, on=Need(lambda asked: asked.reads_column(role), missing), cures=cures)


# --- what single options need -------------------------------------------------------------------------------


def _preset_counts(asked: Asked) -> bool:
    """Whether the preset says more than how advantages are computed: which rows count, and what a missing reward means."""
    name = str(asked.given.preset)
    if asked.has_advantages or asked.drops_groups or name not in presets() or presets()[name].masked_rows:
        return True
    if asked.plan_without is None:
        return True
    with suppress(UsageError):
        without = asked.plan_without("preset")
        return _counting(asked.plan) != _counting(without)
    return True


def _counting(plan: Plan) -> tuple[object, ...]:
    """What says which rows are rollouts, and which rewards count: a missing one is left out, unless it counts as 0."""
    rewards = plan.rewards
    return plan.unit.take, rewards.weights, rewards.combine, rewards.component_missing, rewards.missing == "as-zero"


def _names_own_preset(asked: Asked) -> bool:
    """Whether a preset that is not built in is named."""
    given = asked.given
    of_plans = [own.preset for own in (given.plans or {}).values()]
    names = [given.preset, *of_plans, *(text.partition(",")[0] for text in given.compared_presets)]
    return any(presets().origin(str(name)) for name in names if name in presets())


def _counts_constant(asked: Asked) -> bool:
    """Whether the result depends on how rewards are combined: in their sum they may be constant where each by itself is not."""
    if asked.command == "export":
        return asked.has_advantages or not {"constant", "nearly"}.isdisjoint(asked.facts)
    return asked.shows != RUNS


def _shows_constant(asked: Asked) -> bool:
    """Whether the rows of a group of equal rewards are shown, or their advantages could change the others."""
    if asked.command != "inspect":
        return True
    of_one_group = asked.shows == WHOLE and "show" not in asked.given
    return asked.shows != LINES and (not of_one_group or "std_threshold" in asked.given)


def _unread_field(asked: Asked) -> str:
    """The first field of --set that nothing reads; empty if there is none."""
    fields = [item.partition("=")[0].strip() for item in asked.given.typed_items("set")]
    return next((field for field in fields if not asked.reads(field)), "")


def _of_unread_field(asked: Asked) -> str:
    is_unread = _unread_field(asked) in asked.plan.unread
    return f"{_unread_field(asked)} {'is not read by this plan' if is_unread else _not_for(asked)}"


def _whitens(asked: Asked) -> bool:
    """Whether the plan whitens, also without the option that sets a number of the whitening."""
    plan = asked.plan if asked.plan_without is None else asked.plan_without("whiten_epsilon")
    return any(op.name == "whiten" for op in plan.post)


def _is_claim(asked: Asked) -> bool:
    """Whether a formula is claimed, which rules of rewards are a part of."""
    return not asked.given.keys().isdisjoint(OF_ADVANTAGES)


def _stops_or_is_claim(asked: Asked) -> bool:
    """The same, or a missing reward is to stop the run, or is left out, as it is anyhow."""
    return asked.plan.rewards.missing in {"error", "exclude"} or _is_claim(asked)


def _uses_batch(asked: Asked) -> bool:
    """Whether the batch of a row matters: an audit tries formulas over it."""
    return asked.plan.uses_batch or asked.command == "audit"


def _draws(asked: Asked) -> bool:
    """Whether groups, rows or pairs are chosen at random."""
    return asked.given.pick == "random" or not asked.given.keys().isdisjoint(
        {"limit", "control", "max_pairs", "copies"}
    )


def _counts_solved(asked: Asked) -> bool:
    """Whether a choice counts solved rows."""
    of_draws = any(name == "solved_runs" or name.startswith("pass_at_") for name in asked.facts)
    return of_draws or asked.given.pick == "shortest"


def _counts_masked(asked: Asked) -> bool:
    """Whether the result says which rows are masked, or leaves them out."""
    says = asked.given.to != "prompts" and asked.shows in {WHOLE, GROUP, ROWS}
    return says or "masked" in asked.facts or "masked_rows" in asked.given


def _of_claim(option: str, met: Callable[[Asked], bool]) -> Row:
    """A rule of rewards in an audit, which tries formulas with the usual ones."""
    cures = ["name the formula that is claimed with --preset or --method", LEAVE_OUT]
    return Row(option, on=Need(met, "has no effect on the formulas that are tried"), cures=cures, of=("audit",))


# --- the table ----------------------------------------------------------------------------------------------

_FIELDS_ARE_READ = Need(lambda asked: not _unread_field(asked), _of_unread_field)
_SKIPS_NARROW = Need(
    lambda asked: asked.reads("groups.std_threshold"), "says which groups --zero-variance drop or null skips"
)
_SUBTRACTS_KL = Need(lambda asked: "kl" in asked.plan.needs, "has no effect without --kl-coef")
_IS_DRAWN = Need(_draws, "has no effect here")
_NEEDS_SIZES = Need(lambda asked: asked.shows != LINES, "has no effect on the table of --by: it depends on signs alone")
_SEVERAL = Need(
    lambda asked: len(asked.given.reward) != 1 or bool(asked.plan.rewards.weights), "has no effect with one reward"
)
_KL = Way("--kl-from", fill="POLICY,REFERENCE", lead="add")
_OF_CHOICE = "it is for pass@K and solved_runs in --where and --by, and for --pick shortest"
_AS_JSON = (LEAVE_OUT, Way("--json", lead="add"))  # a document has all

NEEDS: Final = (
    # Advantages: --to sft has none, nor has a table of groups.
    *(_of_arithmetic(name) for name in OF_ADVANTAGES if name not in _MAY_COUNT),
    Row("preset", on=Need(_preset_counts, _not_for), cures=_instead),
    Row(
        "presets",
        on=Need(_names_own_preset, "adds presets, and no option names one of them"),
        cures=Way("--preset", fill="NAME", lead="add"),
        of=("compute", "inspect", "report", "export", "compare"),
    ),
    Row("set", on=_FIELDS_ARE_READ, cures=LEAVE_OUT),
    *(_of_column(role) for role in ROLES if role != "rollout"),
    # The plan.
    *map(_of_divisor, ("epsilon", "ddof", "std_of")),
    Row(
        "whiten_epsilon",
        on=Need(_whitens, "has no effect without whitening"),
        cures=Way("--whiten", "sample", lead="add"),
    ),
    Row("std_threshold", on=_SKIPS_NARROW, cures="add one of them"),
    Row(
        "batch_by",
        on=Need(_uses_batch, "has no effect: no number depends on the batch"),
        cures=["add --scale batch or --whiten sample", LEAVE_OUT],
    ),
    Row("kl_estimator", on=given("kl_from"), cures=_KL),
    Row("kl_reduce", on=given("kl_from"), cures=_KL),
    Row("kl_from", on=_SUBTRACTS_KL, cures=Way("--kl-coef", fill="X", lead="add")),
    Row(
        "mask",
        on=given("kl_from", "per_token", "token_logprobs", "to", missing="has no effect alone"),
        cures=Way("--per-token", why=", --kl-from or --token-logprobs", lead="add"),
    ),
    Row("component_missing", on=_SEVERAL, cures=[Way("--reward", lead="name several with"), LEAVE_OUT]),
    Row("combine", on=_SEVERAL, cures=[Way("--reward", lead="name several with"), LEAVE_OUT]),
    Row("combine", on=Need(_counts_constant, _not_for), cures=LEAVE_OUT),
    _of_claim("missing", _stops_or_is_claim),
    _of_claim("component_missing", _is_claim),
    _of_claim("combine", _is_claim),
    Row("partial", on=given("group_size"), cures=Way("--group-size", fill="N", lead="add")),
    # Choices.
    Row("seed", on=given("duplicate"), cures=Way("--duplicate", lead="add"), of=("compute",)),
    Row("seed", on=_IS_DRAWN, cures="it draws for --limit, --control and --pick random", of=("select",)),
    Row("seed", on=_IS_DRAWN, cures="it draws for --limit, --control and --max-pairs, --copies", of=("export",)),
    Row("solved_from", on=Need(_counts_solved, "has no effect here"), cures=_OF_CHOICE, of=("select",)),
    # What inspect shows.
    *(
        Row(row.name, on=_NEEDS_SIZES, cures=_WITHOUT_FORMAT, of=("inspect",))
        for row in OPTIONS.values()
        if row.panel == DIVISOR or row.name == "whiten_epsilon"
    ),
    Row(
        "zero_variance",
        on=Need(_shows_constant, "changes no number here: the advantages of these groups are 0"),
        cures=[
            Way("--where", "std > 0", why="leaves such groups out"),
            Way("--show", fill="KEY", lead="add"),
            LEAVE_OUT,
        ],
        of=("inspect",),
    ),
    Row("by", on=shown_in(WHOLE, LINES), cures=_AS_JSON, of=("inspect",)),
    Row("top", on=shown_in(WHOLE, GROUPS, RUNS), cures=_AS_JSON, of=("inspect",)),
    Row("sort", on=shown_in(WHOLE, GROUPS, RUNS), cures=_AS_JSON, of=("inspect",)),
    Row("pass_at", on=shown_in(WHOLE, RUNS), cures=_AS_JSON, of=("inspect",)),
    Row("duplicates", on=shown_in(WHOLE), cures=LEAVE_OUT, of=("inspect",)),
    Row("pass_at", on=shown_in(WHOLE, RUNS), cures=_AS_JSON, of=("inspect",)),
    Row("text_column", on=shown_in(WHOLE, GROUP, ROWS, REWARDS), cures=LEAVE_OUT, of=("inspect",)),
    Row("full", on=given("by", "top", "sort"), cures="leave it out: every section is shown", of=("inspect",)),
    *(Row(name, on=shown_in(WHOLE, LINES), cures=LEAVE_OUT, of=("inspect",)) for name in LOGPROBS),
    Row(
        "masked_column",
        on=Need(_counts_masked, "does not change these numbers: the rewards of masked rows count"),
        cures=[Way("--masked-rows", "exclude", lead="add"), LEAVE_OUT],
        of=("inspect", "export"),
    ),
)
