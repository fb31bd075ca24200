"""The numbers that a --fail-on condition may name: every number of a document, by its path.

Paths come from the types of the facts, not from a run, so a name is right or wrong before a file is read. A list stands for
its length, and its items have no path; below a mapping any key is allowed. What an option would have to ask for and nobody did
is an error, not a number that no condition meets: a gate on `off_policy.k3` must not pass because there are no log-probs.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from grpo_cli.errors import UnknownName, UsageError, Way, near_names
from grpo_cli.stats.document import ABSENT, Absent, members
from grpo_cli.values.paths import splits

LISTED = 10  # names in an error
KEY = "KEY"  # stands for any key of a mapping in a listed path
DRAWS = "K"  # stands for a number at the end of an alias
_OF_DRIFT = (
    "tokens", "k1", "k2", "k3", "ratio_mean", "ratio_p1", "ratio_p5", "ratio_median", "ratio_p95", "ratio_p99",
    "ratio_above_1_2", "ratio_above_2", "ratio_below_0_8", "ratio_below_0_5", "clipped_above", "clipped_below",
    "token_ess", "sequence_ess", "entropy",
)  # fmt: skip
# Short names of paths. A document has those whose path it has.
ALIASES: Final[Mapping[str, str]] = {
    # of the rewards and groups of compute and inspect
    "zero_variance_groups": "zero_variance.groups",
    "zero_variance_share": "zero_variance.share",
    "nearly_constant_groups": "zero_variance.nearly",
    "all_best": "zero_variance.all_best",
    "all_worst": "zero_variance.all_worst",
    "group_size_min": "group_sizes.min",
    "group_size_max": "group_sizes.max",
    "reward_mean": "reward.mean",
    "reward_std": "reward.std",
    "reward_min": "reward.min",
    "reward_max": "reward.max",
    # of the advantages of compute
    "advantage_mean": "advantage.mean",
    "advantage_std": "advantage.std",
    "advantage_min": "advantage.min",
    "advantage_max": "advantage.max",
    "null_advantages": "advantage.null",
    "nan_advantages": "advantage.nan",
    # of the log-probs of inspect
    **{name: f"off_policy.all.{name}" for name in _OF_DRIFT},
    **{f"off_policy.{name}": f"off_policy.all.{name}" for name in ("rows", *_OF_DRIFT)},
    # of inspect --against
    "solve_rate": "newest.solve_rate.mean",
    "solve_rate_low": "newest.solve_rate.low",
    "solve_rate_high": "newest.solve_rate.high",
    "base_solve_rate": "base.solve_rate.mean",
    "change": "difference.change.mean",
    "change_low": "difference.change.low",
    "change_high": "difference.change.high",
    f"pass_at_{DRAWS}": f"newest.pass_at.{DRAWS}.mean",
    f"pass_all_{DRAWS}": f"newest.pass_all.{DRAWS}.mean",
    # of audit
    "mismatched_rows": "judged.mismatched_rows",
    "mismatched_groups": "judged.mismatched_groups",
    "max_difference": "judged.max_difference",
    # of add --on
    "matched": "joined.matched",
    "unmatched": "joined.unmatched",
    "unmatched_share": "joined.unmatched_share",
    "unused": "joined.unused",
    "unused_share": "joined.unused_share",
}


class Step(NamedTuple):
    """From facts to the value of an attribute, or from a mapping to that of a key."""

    attribute: str = ""  # empty: a key of a mapping, which the path says
    key: str = ""  # the name of the attribute in the path; empty for facts that stand beside the others
    way: Way | None = None  # the option without which there is no value; None: no option asks for it
    may_be_left_out: bool = False  # the document has no such key if the value is None


# "any" is what a type does not say: below a mapping, such as the parameters of a method, it may be a number.
Meaning = Literal["number", "list", "text", "section", "any"]


class Place(NamedTuple):
    """A place in a document."""

    path: str  # to it; `KEY` stands for any key of a mapping
    steps: tuple[Step, ...]  # that lead to its value
    meaning: Meaning  # what is there
    owner: Any  # the class of the last attribute on the way, which says what it is

    @property
    def way(self) -> Way | None:
        """The option without which nothing is there; None if there is none."""
        return next((step.way for step in reversed(self.steps) if step.way), None)

    @property
    def is_number(self) -> bool:
        """Whether a condition can name it."""
        return self.meaning in {"number", "list"} or (self.meaning == "any" and KEY in self.path)

    def has(self, name: str) -> bool:
        """Whether a name is this path."""
        pattern = re.escape(self.path).replace(KEY, ".+")
        return re.fullmatch(pattern, name) is not None


class Numbers:
    """The numbers in the documents of a class, by path.

    A class of facts may have more than its document: `GATED` are properties that a condition may name as well, each with the
    option that it takes, or None.
    """

    def __init__(self, kind: Any) -> None:
        self.places = places(kind)

    @cached_property
    def paths(self) -> list[str]:
        """All of them."""
        return list(dict.fromkeys(one.path for one in self.places if one.is_number))

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The aliases of these paths; `K` stands for a number."""
        known = {one.path for one in self.places}
        return {name: path for name, path in ALIASES.items() if path.replace(f".{DRAWS}.", f".{KEY}.") in known}

    def path(self, name: str) -> str:
        """The path that an alias stands for; another name is a path itself."""
        if name in self.aliases:
            return self.aliases[name]
        head, sign, last = name.rpartition("_")
        if last.isdecimal():
            of_draws = self.aliases.get(f"{head}{sign}{DRAWS}", name)
            return of_draws.replace(f".{DRAWS}.", f".{last}.")
        return name

    def refuse_unknown(self, name: str) -> None:
        """Refuse a name that is neither a path to a number nor an alias of one."""
        there = self._at(self.path(name))
        if any(one.is_number for one in there):
            return
        meanings = {one.meaning: one.path for one in there}
        if "section" in meanings:
            below = [path for path in self.paths if path.startswith(f"{meanings['section']}.")]
            raise UnknownName(f"{name} is no number, it has several", f"name one of them: {_listed(below)}")
        if "text" in meanings:
            raise UnknownName(f"{name} is a text", "a condition of --fail-on compares numbers")
        for head, _ in splits(name):
            if any(one.meaning == "list" for one in self._at(head)):
                cure = f"it stands for its length, as in '{head} > 0'"
                raise UnknownName(f"{head} is a list, and its items have no path", cure)
        raise self._unknown(name)

    def value(self, facts: Any, name: str) -> float | None:
        """The number at a path, or that of an alias; None if there is nothing to measure.

        A path into what this run did not compute is an error, which names the option that asks for it.
        """
        path = self.path(name)
        missing = list[UsageError]()
        for one in self._at(path):
            if one.is_number:
                try:
                    return _number(one, facts, path, name)
                except UsageError as error:
                    missing.append(error)
        raise missing[0]

    def _at(self, path: str) -> list[Place]:
        """The places with this path; facts of a run may be of several classes."""
        return [one for one in self.places if one.has(path)]

    def _unknown(self, name: str) -> UnknownName:
        """The error for a name that nothing has: it lists those that are near, or that end in the same way."""
        names = [*self.aliases, *self.paths]
        last = name.rpartition(".")[2]
        near = near_names(name, names) or [one for one in names if one.rpartition(".")[2] == last]
        cure = "--json shows what there is, and docs/filters.md has all names"
        if near:
            cure = f"did you mean {_listed(near) if len(near) > 1 else repr(near[0])}?"
        return UnknownName(f"no quantity named {name!r}", cure)


# --- types ---------------------------------------------------------------------------------------------------


@cache
def places(kind: Hashable) -> tuple[Place, ...]:
    """All places in the documents of a class, and in its `GATED` properties. What stands beside the others comes last."""
    own = list[Place]()
    beside = list[Place]()
    inline = getattr(kind, "INLINE", ())
    left_out = getattr(kind, "NOT_SHOWN", ())
    types = get_type_hints(kind)
    for name, one in members(kind).items():
        if "." not in one.path:  # else it is a member of a class that stands beside the others
            is_left_out = one.field.default in (None, ABSENT)
            step = Step(one.path, name, one.field.metadata.get("way"), may_be_left_out=is_left_out)
            own += _below(name, (step,), types[one.path], kind)
    for name, way in getattr(kind, "GATED", {}).items():
        if name not in left_out:
            own += _below(name, (Step(name, name, way),), _returned(kind, name), kind)
    for name in inline:
        step = Step(name)
        for place in places(types[name] if name in types else _returned(kind, name)):
            if place.path.partition(".")[0] not in left_out:
                beside.append(place._replace(steps=(step, *place.steps)))
    return (*own, *beside)


def _returned(kind: Any, name: str) -> Any:
    """The type of a property."""
    return get_type_hints(getattr(kind, name).fget)["return"]


def _below(path: str, steps: tuple[Step, ...], hint: Any, owner: Any) -> Iterator[Place]:
    """A value of this type, and all places in it."""
    for kind in _alternatives(hint):
        if get_origin(kind) in {Mapping, dict}:
            yield Place(path, steps, "section", owner)
            yield from _below(f"{path}.{KEY}", (*steps, Step()), get_args(kind)[1], owner)
        elif isinstance(kind, type) and is_dataclass(kind):
            yield Place(path, steps, "section", owner)
            for one in places(kind):
                yield one._replace(path=f"{path}.{one.path}", steps=(*steps, *one.steps))
        elif get_origin(kind) in {Sequence, list, tuple}:
            yield Place(path, steps, "list", owner)
        else:
            meaning: Meaning = "any" if kind is Any else "number" if kind in {int, float, bool} else "text"
            yield Place(path, steps, meaning, owner)


def _alternatives(hint: Any) -> Iterator[Any]:
    """The types that a value may have where there is one."""
    if get_origin(hint) in {Union, UnionType}:
        for one in get_args(hint):
            yield from _alternatives(one)
    elif get_origin(hint) is Literal:
        yield type(get_args(hint)[0])
    elif hint not in {NoneType, Absent}:
        yield hint


# --- values --------------------------------------------------------------------------------------------------


class _At(NamedTuple):
    """Where a walk along a path is: the value there, the path so far and what is left of it, and the last option on the way."""

    value: Any
    passed: str
    rest: str
    way: Way | None = None

    def to(self, value: Any, key: str, way: Way | None = None) -> _At:
        """One step further."""
        passed = f"{self.passed}.{key}" if self.passed and key else self.passed or key
        rest = self.rest[len(key) + 1 :] if key else self.rest
        return _At(value, passed, rest, way or self.way)


def _value(at: _At, steps: Sequence[Step], name: str) -> Any:
    """The value at the end of these steps; an error that says what is missing on the way."""
    if not steps:
        return at.value
    step, *others = steps
    if step.attribute:
        there = at.to(getattr(at.value, step.attribute, ABSENT), step.key, step.way)
        is_missing = there.value is None and (others or step.may_be_left_out)
        if there.value is ABSENT or is_missing or not at.rest.startswith(step.key):
            raise UsageError(f"{name}: this run has no {there.passed}", _added(there.way))
        return _value(there, others, name)
    lacking: UsageError = UnknownName.among(f"key of {at.passed}", at.rest, at.value)
    lacking.cures += _added(at.way)
    for key in at.value:  # with dots in them, several may be the beginning of the rest
        if f"{at.rest}.".startswith(f"{key}.") and (key == at.rest) == (not others):
            try:
                return _value(at.to(at.value[key], key), others, name)
            except UsageError as error:
                lacking = error
    raise lacking


def _number(place: Place, facts: Any, path: str, name: str) -> float | None:
    """The number at this place; of a list how long it is."""
    value = _value(_At(facts, "", path), place.steps, name)
    if place.meaning == "list":
        if value is None:
            raise UsageError(f"{name}: this run has no {path}")
        return len(value)
    if value is not None and not isinstance(value, (int, float)):
        raise UsageError(f"{name} is not a number, but {value!r}", "a condition of --fail-on compares numbers")
    return value


def _added(way: Way | None) -> list[Way]:
    """The way out, if there is one."""
    return [] if way is None else [replace(way, lead="add")]


def _listed(names: Sequence[str]) -> str:
    """Some of these names."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{', '.join(names[:LISTED])}{more}"
