"""From options (typed, written in a file, or given in Python) to a plan; `runs/asked.py` makes the rest of a job of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import Any, Final, get_origin

from grpo_cli.engine.coerce import typed
from grpo_cli.engine.estimators import expression
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Counting, ShapeOp
from grpo_cli.engine.presets import Preset, differences, preset, presets
from grpo_cli.errors import UnknownName, UsageError, Way, near_names
from grpo_cli.options.given import Given
from grpo_cli.options.meant import meant
from grpo_cli.options.needs import Asked, idle
from grpo_cli.options.table import BY_VALUE, EVERY, NO_ROLLOUTS, OF_PART, OPTIONS, Option
from grpo_cli.values.paths import items

FORMULA = frozenset({"preset", "method", "expr", "param"})  # they are chosen together
SINGLETON = {
    "unit": {"alone.baseline": "zero", "alone.sd": "one", "alone.result": "keep"},
    **{
        name: {"alone.baseline": "own", "alone.result": name}
        for name in ("zero", "raw", "nan", "null", "drop", "error")
    },
}


def normalized(name: str, value: Any, where: str = "", known: Mapping[str, Option] = EVERY) -> tuple[str, Any]:
    """An option's value as the command line would have given it."""
    row = known[name]
    hint = row.type
    if name == "plans":
        return name, _plans(value, where)
    if get_origin(hint) is list:
        if isinstance(value, Mapping):
            return name, [f"{inner}={outer}" for inner, outer in value.items()]
        return name, [str(item) for item in _several(value)]
    if hint is str and not isinstance(value, str):
        value = ":".join(map(str, _several(value)))
    key = row.flag.removeprefix("--")
    return name, typed(value, hint, f"{key}{where}" if where else key.replace("-", "_"))


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _plans(value: Any, where: str) -> dict[str, Given]:
    """The options of the plan for each value, from tables or from texts such as `math:preset=trl-grpo,scale=batch`."""
    plans = {}
    if isinstance(value, Mapping):
        value = [*value.items()]
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            of, own = _plan_in_words(item)
        elif isinstance(item, tuple) and isinstance(item[1], Mapping):
            of = str(item[0])
            table = item[1]
            own = options_of_plan(f"[plan.{of}]{where}", table)
        else:
            raise UsageError(f"plan{where} has no tables", "a plan is a table of options, such as [plan.math]")
        if of in plans:
            raise UsageError(f"two plans for {of!r}", "give each value one --plan")
        plans[of] = own
    return plans


def _plan_in_words(text: str) -> tuple[str, Given]:
    """The value and the options of its plan, from `math:preset=trl-grpo,scale=batch`."""
    # A value may have colons: the options begin after the first one that is followed by a name of theirs.
    names = "|".join(OF_PART).replace("_", "-")
    found = re.match(rf'(.*?):(?=\s*"?(?:{names})=|\s*$)', text, re.DOTALL)
    cut = len(found[1]) if found else text.partition("=")[0].rfind(":")
    if cut < 0:
        raise UsageError(f"--plan {text!r} names no plan", "write --plan VALUE:OPTION=X, for example math:method=rloo")
    options = filter(None, items(text[cut + 1 :]))
    return text[:cut], own_options(options, OF_PART)


def options_of_plan(table: str, entries: Mapping[str, Any], known: Collection[str] = OF_PART) -> Given:
    """The options of a plan from its table in a file, or from a mapping."""
    own = Given()
    for key, value in entries.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise _not_of_a_plan(table, str(key), [option.replace("_", "-") for option in OF_PART if option in known])
        own |= [normalized(name, value, f" of {table}")]
    return own


def _not_of_a_plan(place: str, key: str, known: Collection[str]) -> UnknownName:
    option = OPTIONS.get(key.replace("-", "_"))
    if option is not None and option.name not in OF_PART:
        return UnknownName(f"{place} sets {key}", f"it is the same for all plans: give {option.flag} beside them")
    return UnknownName.among(f"option of {place}", key, known)


def own_options(texts: Iterable[str], known: Collection[str]) -> Given:
    """The options after the name of a plan, each as OPTION=X."""
    given = Given()
    names = [name.replace("_", "-") for name in OPTIONS if name in known]
    for text in texts:
        spelled, sign, value = text.partition("=")
        if not sign and spelled not in names:
            cure = "write OPTION=X for an option, repeat the flag for another plan"
            raise UsageError(f"{text!r} after the name of a plan is no option", cure)
        if spelled not in names:
            raise _not_of_a_plan("a plan", spelled, names)
        if not value:
            raise UsageError(f"{text!r} has no value", f"write {spelled}=VALUE")
        name, value = normalized(spelled.replace("-", "_"), value)
        if name in given and not isinstance(value, list):
            raise UsageError(f"{spelled} is given twice for one plan", "give it once")
        given[name] = [*given[name], *value] if name in given else value
    refuse_twice(given)
    return given


def over(own: Given, below: Given) -> Given:
    """The options of one plan, and below them those for all plans: a field that both set is that of its own."""
    fields = settings(own)
    if "set" in below and "set" not in own:
        items = [item for item in below.set if not _overlaps(item.partition("=")[0].strip(), fields)]
        below = Given(below, set=items) if items else below.without({"set"})
    return Given(below, **own)


def _overlaps(field: str, others: Iterable[str]) -> bool:
    """Whether a field is one of these, a part of one, or has one as its part."""
    return any(f"{field}.".startswith(f"{other}.") or other.startswith(f"{field}.") for other in others)


def parts_of(given: Given) -> dict[str, Given]:
    """The options of each part of --plan-by: its own, and below them those of the run; empty without --plan-by."""
    plans = (given.plans or {}) if "plan_by" in given else {}
    return with_shared(given.without(BY_VALUE), plans, together=FORMULA)


def with_shared(shared: Given, plans: Mapping[str, Given], together: Collection[str] = ()) -> dict[str, Given]:
    """The options of each plan: its own, and below them those that are given for all plans, where it reads them.

    Those of `together` are for the plans without a preset, method or formula of their own. An option that no plan reads stays with each
    of them, and is refused when the plan is made.
    """
    parts = {}
    for value, own in plans.items():
        has_formula = bool(FORMULA - {"param"} & {*own})
        parts[value] = over(own, shared.without(together if has_formula else ()))
    asked = dict[str, Asked]()
    for value, part in parts.items():
        with suppress(UsageError):  # raised again when its plan is made
            asked[value] = _asked(part)
    options_without_effect = {value: {row.option for row in idle(own)} for value, own in asked.items()}
    for name in shared:
        takers = [value for value, part in parts.items() if name in part and name not in plans[value]]
        if parts and not takers and shared.is_typed(name):
            of_its_own = "method, preset or formula" if name in FORMULA else EVERY[name].flag.removeprefix("--")
            raise UsageError(f"{EVERY[name].flag} has no effect: every plan has its own {of_its_own}", "leave it out")
        idlers = {value for value in takers if name in options_without_effect.get(value, ())}
        if idlers < {*takers}:
            for value in idlers:
                _leave_unread(parts[value], name, asked[value])
                options_without_effect[value] = {row.option for row in idle(asked[value])}  # of those that are left
    return parts


def _leave_unread(part: Given, name: str, asked: Asked) -> None:
    """Remove what a plan does not read of an option that another plan reads."""
    kept = [item for item in part.set if asked.reads(item.partition("=")[0].strip())] if name == "set" else []
    if kept:
        part["set"] = kept
    else:
        del part[name]


def plan_of(given: Given) -> Plan:
    """The plan: the method's defaults, then the preset if one is named, then the flags."""
    plan = _plan(given)
    if plan.method == "expression" and "estimator.sql" not in settings(given):
        raise UsageError("the method expression needs a formula", f"give --expr '{plan.params['sql']}'")
    if plan.method == "expression":  # before an output that exists is refused: --force would not help
        expression.parsed(str(plan.params["sql"]))
    if {"distill.clip", "distill.negative_only"} & {*settings(given)} and plan.distill.form == "add":
        wrong = "distill.clip and distill.negative_only have no effect with distill.form add"
        raise UsageError(wrong, Way("--set", "distill.form=reweight", lead="add"))
    refuse_without_effect(given)
    size = given.expect_size
    if size is not None and size < 1:
        raise UsageError(f"a group cannot have {size} rows", "--expect-size takes 1 or more")
    return plan


def _plan(given: Given) -> Plan:
    """The plan, even if options have no effect."""
    flags = settings(given)
    if given.plans is not None:
        value = next(iter(given.plans), "VALUE")
        raise UsageError(
            f"[plan.{value}] is a plan for one value", Way("--plan-by", why="names its column", fill="COLUMN")
        )
    method = "grpo" if given.method is None else given.method
    if method not in ESTIMATORS:
        raise unknown_method(method)
    base = preset_of(given)
    if given.rollout == NO_ROLLOUTS:
        flags["unit.take"] = "each"
    elif "rollout" in given and (how := counting(given)) not in {"each", "none"}:
        # A rollout that is named counts once, unless the preset or the user says otherwise.
        flags["unit.take"] = "last" if how == "once" else how
    return Plan.of(*(() if base is None else base.layers), flags)


def preset_of(given: Given) -> Preset | None:
    """The preset that is named, if one is."""
    name = given.preset
    if name is None:
        return None
    if name not in presets():
        raise unknown_preset(name)
    return preset(name)


def counting(given: Given) -> Counting:
    """How several rows of one rollout count: by the flags, else as in the preset's tool, else once.

    "once" if nothing says which of them counts, "none" if every row counts.
    """
    named = given.rollout
    flags = settings(given)
    if named == NO_ROLLOUTS:
        reward = given.rollout_reward or "each"
        if reward != "each":
            wrong = f"--rollout none says that rows are rollouts, --rollout-reward {reward} that they are not"
            raise UsageError(wrong, "leave out one of them")
        return "none"
    base = preset_of(given)
    layers = () if base is None else base.layers
    take = Plan.of(*layers, flags).unit.take
    if take != "each":
        return take
    by = {"unit.take", "estimator.count"}
    if by & {*flags}:
        return "none"
    if base is None:
        return "once"
    says_each = any(by & {*layer} for layer in layers)
    return base.rollouts if named is None or base.rollouts != "each" or says_each else "once"


def unknown_method(name: str) -> UnknownName:
    """The error for an unknown method: points to the preset of that name, to what people mean by it, or to a near name."""
    if name in presets():
        return UnknownName.of("method", name, f"it is a preset: --preset {name}")
    return _unknown("method", name, ESTIMATORS)


def unknown_preset(name: str) -> UnknownName:
    """The error for an unknown preset; names of algorithms are explained as for --method."""
    if name in ESTIMATORS:
        cures = [f"it is a method: --method {name}", f"grpo-adv presets {name} lists presets of that name"]
        return UnknownName.of("preset", name, cures)
    if len(near_names(name, presets())) > 1 and not meant("method", name):
        return UnknownName.among("preset", name, presets(), f"grpo-adv presets {name} lists all of them")
    return _unknown("preset", name, presets())


def _unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    cures = meant("method", name)
    if cures:
        return UnknownName.of(kind, name, cures)
    return UnknownName.among(kind, name, known, lost=f"grpo-adv {kind}s lists them")


def weights_of(given: Given) -> list[float]:
    """The weights of the reward columns, if any has one."""
    return list(_weights(given.reward).get("rewards.weights", ()))


@dataclass(frozen=True)
class Overridden:
    """A field of a preset that a flag changed."""

    preset: Any  # its value in the preset; None if the preset does not have the field
    plan: Any  # its value in the plan; None if the plan does not have the field


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The preset of a plan, where a file or a package has it, and what flags changed of it."""

    name: str  # of the preset, as --preset takes it
    from_: str | None = None  # the file, or the package with its version, that has the preset; absent if it is built in
    # where its formula was read: `repo`, `path` and `date`, and `commit` or `version` if known
    source: Mapping[str, str]
    # the fields in which the plan is not the preset, by dotted name; empty if none
    overridden: Mapping[str, Overridden]


def origin(given: Given, plan: Plan) -> Origin | None:
    """The named preset, where it comes from, and what the flags changed; None without a preset."""
    base = preset_of(given)
    if base is None:
        return None
    changed = differences(plan, base.plan)
    overridden = {key: Overridden(before, now) for key, (before, now) in changed.items()}
    from_ = presets().origin(base.name) or None
    return Origin(name=base.name, from_=from_, source=base.source, overridden=overridden)


def settings(given: Given) -> dict[str, object]:
    """Dotted settings from the options that were given."""
    fields = {}
    # --set names one field of the plan, so it is applied last: one plan's own --set may follow an option for all plans.
    for name, value in sorted(given.items(), key=lambda item: item[0] == "set"):
        option = OPTIONS.get(name)
        if option is not None and option.sets:
            fields[option.sets] = value
        elif name in _TRANSLATED:
            fields |= _TRANSLATED[name](value)
    if "expr" in given:
        fields.setdefault("estimator.name", "expression")
    return fields


def stops_if_missing(given: Given) -> bool:
    """Whether a missing reward is an error because the user says so."""
    return settings(given).get("rewards.missing") == "error"


def claim_of(given: Given) -> Plan | None:
    """The plan that is claimed to have made the advantages of a file; None without an option about the arithmetic."""
    arithmetic = any(not key.startswith(("rewards.", "shape.")) for key in settings(given))
    return plan_of(given) if arithmetic or "preset" in given else None


def shape_of(given: Given) -> Sequence[ShapeOp]:
    """What is done to the rewards before the formula."""
    shape = {key: value for key, value in settings(given).items() if key.startswith("shape.")}
    return Plan.of(shape).shape


def refuse_twice(given: Given) -> None:
    """Refuse two options that set one field of the plan: only the last would count."""
    setters: dict[str, str] = {}
    for name, value in given.items():
        items = [[each] for each in value] if name in {"param", "set"} else [value]
        for item in items:
            for field in settings(Given({name: item})):
                if name == "expr" and field == "estimator.name":  # its method may be given as well
                    continue
                words = " ".join(EVERY[name].words(item))
                for other, before in setters.items():
                    if _overlaps(field, [other]):
                        raise UsageError(f"{before} and {words} both set {other}", "leave one of them out")
                setters[field] = words


def _weights(rewards: Sequence[str]) -> dict[str, Any]:
    weights = [split_reward(text)[1] for text in rewards]
    if all(weight is None for weight in weights):
        return {}
    return {"rewards.weights": [1.0 if weight is None else weight for weight in weights]}


def split_reward(text: str) -> tuple[str, float | None]:
    """The column and the weight of --reward."""
    name, sign, weight = text.rpartition("=")
    if not (name if sign else text):
        raise UsageError(f"--reward {text!r} names no column", "write --reward COLUMN or --reward COLUMN=WEIGHT")
    try:
        return (name, typed(weight, float, f"the weight of {name}")) if sign else (text, None)
    except UsageError as error:
        error.cures.append(f"a column {text} is --reward {quote(text)}=1")
        raise


def _pairs(flag: str, prefix: str, items: list[str]) -> dict[str, Any]:
    fields = {}
    for text in items:
        name, sign, value = text.partition("=")
        if not sign or not name:
            shape = "PART.FIELD=VALUE" if flag == "--set" else f"{name or 'NAME'}=VALUE"
            raise UsageError(f"{flag} {text!r} sets nothing", f"write {flag} {shape}")
        fields[f"{prefix}{name.strip()}"] = value.strip()
    return fields


def _bounds(flag: str, key: str, text: str) -> dict[str, Any]:
    low, sign, high = text.partition(":")
    if not sign:
        cure = f"write {flag} LO:HI, for example {flag}=-5:5 (one may be empty)"
        raise UsageError(f"{flag} {text!r} is not two bounds", cure)
    bounds = {}
    for name, value in (("lo", low.strip()), ("hi", high.strip())):
        if value:
            bounds[f"{key}.{name}"] = typed(value, float, f"{flag} {text}: a bound")
    return bounds


def _overlong(text: str) -> dict[str, Any]:
    parts = text.split(":")
    names = ("max", "buffer", "penalty")
    if len(parts) not in {2, 3}:
        raise UsageError(f"--overlong {text!r} is not MAX:BUFFER:PENALTY", "for example --overlong 4096:512:1.0")
    return {f"shape.overlong.{name}": part for name, part in zip(names, parts, strict=False)}


def _whiten(level: str) -> dict[str, Any]:
    return {"post.whiten": None} if level == "none" else {"post.whiten.level": level}


_TRANSLATED: Final[Mapping[str, Callable[[Any], Mapping[str, Any]]]] = {
    "reward": _weights,
    "param": partial(_pairs, "--param", "estimator."),
    "set": partial(_pairs, "--set", ""),
    "reward_clip": partial(_bounds, "--reward-clip", "shape.clip"),
    "clip": partial(_bounds, "--clip", "post.clip"),
    "overlong": _overlong,
    "whiten": _whiten,
    "singleton": SINGLETON.__getitem__,
}


def refuse_without_effect(given: Given, *plans: Plan, drift_by_line: bool = True) -> None:
    """Refuse options that have no effect here: that none of these plans reads, or the one that the options make.

    `drift_by_line` is whether a line for each value of --by has numbers that depend on advantages.
    """
    each = [Asked(given, plan, plan_without=None) for plan in plans] or [_asked(given)]
    first, *others = ([*idle(replace(asked, drift_by_line=drift_by_line))] for asked in each)
    for row in first:
        if all(row in other for other in others):
            raise row.refusal(replace(each[0], drift_by_line=drift_by_line))


def with_effect(given: Given) -> Given:
    """The options without those that have no effect, a file's too."""
    typed = Given(dict(given)).to_command(given.command)
    return given.without({row.option for row in idle(_asked(typed))})


def without_idle_of_file(given: Given) -> Given:
    """The options without those of a file of options that have no effect here, such as a column that a plan alone reads."""
    idle_options = given.keys() - with_effect(given).keys() - {"set"}  # of several fields some may have one
    return given.without({name for name in idle_options if not given.is_typed(name)})


def _asked(given: Given) -> Asked:
    """The options with the plan that they make."""
    return Asked(given, _plan(given), lambda name: _plan(given.without({name})))


def refuse_beside(name: str, given: Given, *others: str) -> None:
    """Refuse options that cannot be combined with this one."""
    for other in others:
        if other in given:
            both = f"{EVERY[name].flag} and {EVERY[other].flag}"
            raise UsageError(f"{both} cannot be combined", "leave one of them out")
