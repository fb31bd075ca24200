"""What options ask for: the typed parts of a job, each made in one place.

A field that has the name of an option has its value (`made`); what means more than that is named here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from grpo_cli.engine.coerce import typed
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import UsageError, Way
from grpo_cli.files.stores import is_url
from grpo_cli.options.conditions import Filter
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import (
    counting,
    parts_of,
    plan_of,
    preset_of,
    refuse_beside,
    split_reward,
    stops_if_missing,
)
from grpo_cli.options.table import EVERY, NO_ROLLOUTS, OPTIONS, PER_TOKEN
from grpo_cli.read.build_table import PlanBy
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding, FileTable, KlField, OverTables
from grpo_cli.schemas.table import Mark, MarkKind
from grpo_cli.values.paths import items
from grpo_cli.write.outputs import STDOUT, Output
from grpo_cli.write.token_lists import TokenColumns

Made = TypeVar("Made")
OF_SEVERAL = ("component_missing", "combine")  # options about several rewards
_STDOUTS = frozenset({"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})


@dataclass(frozen=True, kw_only=True)
class OnFiles:
    """A job on input files, whose columns the binding names."""

    inputs: Sequence[str] = ()  # files, folders, patterns and URLs, as given; - is standard input
    before: Sequence[str] = ()  # other runs (--against)
    binding: Binding = field(default_factory=Binding)  # the columns of the key, the rewards and the rest

    @property
    def name(self) -> str:
        """What the newest run is called."""
        first, *more = self.inputs or [""]
        return f"{first} and {len(more)} more" if more else first

    @property
    def earlier(self) -> dict[str, str]:
        """The inputs of --against by their names; a path that exists as it is written has no name."""
        named = {}
        for text in self.before:
            name, sign, path = text.partition("=")
            if not sign or is_url(text) or Path(text).exists():
                name = path = text
            if not (name and path):
                raise UsageError(f"--against {text!r} needs a name and an input", "write --against step200=ckpt200/")
            if name in named or (len(self.before) > 1 and name == self.name):
                raise UsageError(f"two runs are called {name}", f"give them names: --against NAME={path}")
            if path == STDOUT and STDOUT in self.inputs:
                raise UsageError("both runs are read from standard input", "only one of them can be")
            named[name] = path
        return named

    @property
    def apart(self) -> Self:
        """The job that shows the steps of a run apart, where prompts recur in several of them."""
        return replace(self, binding=replace(self.binding, steps_apart=True))

    def opened(self, over: OverTables = map, output_folder: str | None = None) -> tuple[list[FileTable], list[str]]:
        """The files as tables, and warnings of those that are skipped.

        The files of other runs are found as well: no output is written over one of them.
        """
        for path in self.earlier.values():
            if path != STDOUT and not Path(path).is_fifo():  # standard input and a pipe are read once
                find_inputs([path])
        inputs, skipped = find_inputs(self.inputs, output_folder)
        return open_tables(inputs, self.binding, over), skipped


def made(kind: type[Made], given: Mapping[str, Any], **own: Any) -> Made:
    """A `kind`, whose fields have the values of the options of the same name; `own` are fields that mean something else."""
    names = [field.name for field in fields(kind) if field.name not in own]  # type: ignore[arg-type] # of a dataclass
    return kind(**{name: given[name] for name in names if name in given}, **own)


def binding_of(given: Given) -> Binding:
    """Which columns are the key, the rewards and the rest."""
    flags = {role.name: role.flag.removeprefix("--").replace("-", "_") for role in ROLES.values()}
    roles = {role: given[flag] for role, flag in flags.items() if flag in given}
    if roles.get("rollout") == NO_ROLLOUTS:
        del roles["rollout"]
    kl = _kl_of(given)
    if kl:
        roles["kl"] = kl[0].name
    base = preset_of(given)
    group = tuple(name for item in given.group for name in items(item) if name)
    if given.group and not group:
        raise UsageError("--group names no column", ["give the columns of the key", "leave it out"])
    return made(
        Binding,
        given,
        group=group,
        rewards=tuple(split_reward(text)[0] for text in given.reward),
        of_several=() if given.reward else tuple(EVERY[name].flag for name in OF_SEVERAL if given.is_typed(name)),
        roles=roles,
        made=kl,
        rollouts=counting(given),
        outcomes=_outcomes(part for text in given.map for part in items(text)),
        marks=_marks(given),
        masked_rows_typed=given.is_typed("masked_rows"),
        masked_by_preset="" if base is None else base.masked_rows,
        singletons_meant="singleton" in given,
        missing_is_error=stops_if_missing(given),
        skip_broken=given.on_error == "skip",
    )


def _kl_of(given: Given) -> tuple[KlField, ...]:
    """The KL that --kl-from makes from lists."""
    if given.kl_from is None:
        return ()
    base = preset_of(given)
    estimator, reduction = ("" if base is None else base.kl).split() or ("", "")
    how = given.kl_estimator or estimator, given.kl_reduce or reduction
    refuse_beside("kl_from", given, "kl_column")
    columns = tuple(items(given.kl_from))
    if len({*columns}) != 2 or not all(columns):  # noqa: PLR2004
        raise UsageError(
            f"--kl-from {given.kl_from!r} is not two columns", Way("--kl-from", fill="POLICY,REFERENCE", lead="write")
        )
    if not all(how):
        cure = Way("--kl-estimator", why="and --kl-reduce sum|mean", fill="k1|k2|k3", lead="add")
        raise UsageError("--kl-from needs an estimator and a reduction", cure)
    mask = given.mask or ""
    name = f"{how[1]} of {how[0]}({', '.join(columns)})"
    return (KlField(name, "number", columns, how[0], how[1] == "mean", mask),)


def _marks(given: Given) -> tuple[Mark, ...]:
    """The marks that flags name."""
    kinds: dict[str, MarkKind] = {"masked_column": "masked", "left_out_column": "left_out"}
    marks = []
    unmet = condition_of(given, "rows", "rows")
    if unmet is not None:
        marks.append(Mark(kind="left_out", state="unmet", flag="--rows", unmet=unmet))
    marks += [Mark.named(given[name], kind, OPTIONS[name].flag) for name, kind in kinds.items() if name in given]
    return tuple(marks)


def _outcomes(parts: Iterable[str]) -> dict[str, float | None]:
    """The number for each text; None for a missing reward."""
    outcomes = {}
    for part in parts:
        name, sign, number = (piece.strip() for piece in part.rpartition("="))
        if not (sign and number):
            cure = "write --map TEXT=NUMBER,..., for example --map pass=1,fail=0"
            raise UsageError(f"--map {part!r} gives no number", cure)
        if name in outcomes:
            raise UsageError(f"--map names {name!r} twice", "a text counts as one number")
        missing = number.lower() in {"nan", "null", "none"}  # Python's None, too
        outcomes[name] = None if missing else typed(number, float, f"--map {name}")
    return outcomes


def plan_by_of(given: Given, options: Mapping[str, Given] | None = None) -> PlanBy | None:
    """The column of --plan-by, and plan and binding of each part; None without it. `options` are those of each part, if known."""
    if given.plan_by is None:
        return None
    plans = {}
    for value, own in (parts_of(given) if options is None else options).items():
        try:
            # An option for all plans may be for one with other rewards.
            plans[value] = plan_of(own), replace(binding_of(own), of_several=())
        except UsageError as error:
            error.inside(f"[plan.{value}]")
            raise
    if not plans:
        cure = "give them with --plan, or as tables [plan.VALUE] in --config"
        raise UsageError("--plan-by needs a plan for each value", cure)
    return PlanBy(column=given.plan_by, plans=plans, of_several=binding_of(given).of_several)


def output_of(given: Given, word: str = "advantages", tokens: TokenColumns | None = None) -> Output:
    """How to write."""
    to = given.output
    summary = file_of("summary", given.summary)
    return made(Output, given, to=STDOUT if to in _STDOUTS else to, word=word, tokens=tokens, summary=summary)


def file_of(option: str, name: str | None) -> Path | None:
    """The path of a file to write, which an option names; None if it is not given. It must be a local file."""
    if name is None:
        return None
    if is_url(name):
        wrong = f"{EVERY[option].flag} {name}: only a local file can be written here"
        raise UsageError(wrong, "give a local path")
    return Path(name)


def is_silent(given: Given) -> bool:
    """Whether no result is shown."""
    return "quiet" in given and not {"json", "summary", "explain"} & {*given}


def tokens_of(given: Given, plans: Collection[Plan]) -> TokenColumns | None:
    """The columns that spread the advantage over tokens; None without --per-token.

    With a mask, a length column that a plan reads is not one of them.
    """
    named = [name for name in PER_TOKEN if name in given]
    lists = {"token_logprobs", "teacher_logprobs"} & {*named}
    distills = next((plan for plan in plans if plan.distill.coef), None)
    if not given.per_token:
        if distills is not None:
            cure = Way("--per-token", why="with --token-logprobs and --teacher-logprobs", lead="add")
            distills.refuse_distill("one advantage a row", cure)
        if named:
            raise UsageError(
                f"{EVERY[named[0]].flag} has no effect without --per-token", Way("--per-token", lead="add")
            )
        return None
    if len(lists) == 1 or (distills is not None and not lists):
        both = "give --token-logprobs COL and --teacher-logprobs COL, lists of the same tokens"
        raise UsageError("a teacher is compared with the student on each token", both)
    if lists and distills is None and "distill" not in given:
        raise UsageError("--teacher-logprobs has no effect without --distill", Way("--distill", "1", lead="add"))
    length = given.length_column or ""
    for_plan = length == "equal" or ("mask" in given and any("length" in plan.needs for plan in plans))
    columns = made(TokenColumns, given, length="" if for_plan else length)
    only_prompt = columns.names == [columns.prompt_tokens]
    return replace(columns, tokens=columns.token_logprobs) if only_prompt else columns


def draws_of(given: Given) -> tuple[int, ...] | None:
    """The numbers of --pass-at; a repeated one counts once."""
    if given.pass_at is None:
        return None
    draws = [typed(part.strip(), int, "--pass-at") for part in given.pass_at.split(",")]
    if min(draws) < 1:
        raise UsageError("--pass-at takes integers from 1", "for example --pass-at 1,4,8")
    return tuple(dict.fromkeys(draws))


def condition_of(given: Given, option: str, of: Literal["groups", "rows"] = "groups") -> Filter | None:
    """The condition that an option gives, on facts of groups or on columns of rows."""
    return Filter.parse(given[option], of) if option in given else None
