"""What the facts of a look mean, in plain words: what to worry about first, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# From here on something is worth a sentence.
DEAD: Final = 0.1
MANY: Final = 0.5
GAIN: Final = 0.1
CORRELATED: Final = 0.3
REPEATED: Final = 0.05
FEW: Final = 0.5
UNEVEN: Final = 2.0
LEAST: Final = 1e-3


def verdicts(facts: Mapping[str, Any]) -> list[str]:
    """The sentences, the most important first; at least one."""
    found = [line for rule in RULES for line in rule(facts)]
    return found or ["Nothing stands out: groups vary, rewards are there, and no group is alone."]


def _unscorable(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["unscorable"]:
        share = _share(facts["unscorable"] / facts["rows"])
        known = facts["declared_unscorable"] >= facts["unscorable"]
        fate = "leaves them out, as the schema says" if known else "stops for them unless --missing says what they are"
        yield f"{facts['unscorable']:,} rows ({share}) have no finite reward. compute {fate}."


def _lone(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["groups"] and facts["singletons"] == facts["groups"] > 1:
        key = next(
            (note[8:].removesuffix(" (found by name)") for note in facts["notes"] if note.startswith("group = ")),
            "the key",
        )
        yield f"Every group has a single reward: {key} is probably an id of the rollout, not of the prompt. Name the prompt's column with --group."
    elif facts["singletons"]:
        share = _share(facts["singletons"] / facts["groups"])
        have = "group has" if facts["singletons"] == 1 else "groups have"
        yield f"{facts['singletons']:,} {have} a single reward and nothing to compare it with ({share})."


def _zero_variance(facts: Mapping[str, Any]) -> Iterator[str]:
    seen = facts["zero_variance"]
    if seen["share"] is None:
        return
    if not seen["groups"]:
        yield "Every group carries a gradient: none has equal rewards throughout."
        return
    comparable = round(seen["groups"] / seen["share"])
    kinds = (("always solved", "all_best"), ("never solved", "all_worst"), ("equal at another reward", "other"))
    split = ", ".join(f"{_share(seen[name] / comparable)} {word}" for word, name in kinds if seen[name])
    cure = _cure(seen) if seen["share"] >= DEAD else ""
    of = "groups" if comparable == facts["groups"] else f"the {comparable:,} groups that can be compared"
    yield f"{_share(seen['share'])} of {of} carry no gradient: {split}.{cure}"


def _cure(seen: Mapping[str, Any]) -> str:
    if seen["all_best"] > seen["all_worst"]:
        return " Consider dropping them (--zero-variance drop) or sampling harder prompts."
    if seen["all_worst"]:
        return " Consider dropping them (--zero-variance drop), easier prompts, or more rows a group."
    return " Consider dropping them (--zero-variance drop)."


def _larger_groups(facts: Mapping[str, Any]) -> Iterator[str]:
    """The smallest size that would bring a good deal more groups to life."""
    seen = facts["expected"]
    if seen is None or seen["observed"] < DEAD:
        return
    now, sizes = 1 - seen["observed"], facts["group_sizes"]
    better = [one for one in facts["at_size"] if one["size"] > sizes["median"] and one["alive"] >= now + GAIN]
    if better:
        size, alive = better[0]["size"], _share(better[0]["alive"])
        yield f"With {size} rows a group about {alive} of the groups would carry one, instead of {_share(now)}."
    elif MANY <= seen["observed"] < 1 and facts["at_size"][-1]["found"] == "model":
        yield "More rows a group would hardly help: prompts differ in difficulty more than rows differ in luck."


def _nearly(facts: Mapping[str, Any]) -> Iterator[str]:
    nearly = facts["zero_variance"]["nearly"]
    if nearly:
        yield f"{nearly:,} groups are nearly constant (spread <= 1e-9 of the size): rounding, which a division by the std would blow up."


def _components(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, seen in facts["rewards"].items():
        share = seen["zero_variance_share"]
        if len(facts["rewards"]) > 1 and share is not None and share >= MANY:
            yield f"{name} does not vary inside {_share(share)} of the groups, whatever its spread over all rows."


def _uneven(facts: Mapping[str, Any]) -> Iterator[str]:
    size = facts["group_sizes"]
    if size["max"] >= UNEVEN * size["min"] and size["min"] > 1:
        yield f"Groups are uneven: {size['min']:,} to {size['max']:,} rows. --expect-size N stops for those of another size."


def _length(facts: Mapping[str, Any]) -> Iterator[str]:
    seen = facts["length"]
    value = seen and seen["within_groups"]
    if value is not None and abs(value) >= CORRELATED:
        longer = "higher" if value > 0 else "lower"
        yield f"Inside groups longer responses get {longer} rewards (correlation {value:+.2f}): is length being taught?"


def _duplicates(facts: Mapping[str, Any]) -> Iterator[str]:
    seen = facts["duplicates"]
    if seen and seen["share"] is not None and seen["share"] >= REPEATED:
        yield f"{_share(seen['share'])} of the responses repeat another one of their group: is the temperature too low, or a file read twice?"


def _effective(facts: Mapping[str, Any]) -> Iterator[str]:
    pull, scored = facts["effective_rows"], facts["rows"] - facts["unscorable"]
    if pull is not None and scored and 0 < pull < FEW * scored:
        yield f"The batch pulls like {pull:,.0f} of its {scored:,} rows: what few rows say counts most."


RULES: Final = (
    _lone, _zero_variance, _larger_groups, _components, _unscorable, _nearly, _duplicates, _length, _effective, _uneven,
)  # fmt: skip


def _share(share: float) -> str:
    """A share in words; never rounded to nothing or to everything."""
    if 0 < share < LEAST or 1 - LEAST < share < 1:
        return "<0.1%" if share < MANY else ">99.9%"
    return f"{100 * share:.1f}".removesuffix(".0") + "%"
