"""Dotted settings become a Plan: layers, parts, operations in order, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args, get_origin, get_type_hints

import polars as pl
import pytest

from grpo_cli.engine.estimators.registry import ESTIMATORS, Param
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import ORDERED, PARTS, POST, SHAPE, Affine, Binary, Clip, NanToZero, Whiten
from grpo_cli.engine.score import advantages
from grpo_cli.errors import UnknownName, UsageError
from tests.support.jobs import of_plan

VALID = {"shape.overlong.max": 100.0, "shape.overlong.buffer": 10.0}  # an overlong op is refused without them
FIELDS = [(part, f.name) for part, kind in PARTS.items() for f in dataclasses.fields(kind)]
OP_FIELDS = [
    (part, op, f.name) for part, ops in ORDERED.items() for op, kind in ops.items() for f in dataclasses.fields(kind)
]


def other(hint: Any, default: Any) -> tuple[str, Any]:
    """A text for a field that is not its default, and the value that it means."""
    if hint is float:
        return "0.75", 0.75
    if hint is int:
        return ("0", 0) if default == 1 else ("1", 1)
    if hint is bool:
        return ("false", False) if default else ("true", True)
    if get_origin(hint) is tuple:
        return "1,0.5", (1.0, 0.5)
    choices = [choice for choice in get_args(hint) if isinstance(choice, str) and choice != default]
    return (choices[0], choices[0]) if choices else ("0.75", 0.75)


def operation(part: tuple[Any, ...], name: str) -> Any:
    return next(op for op in part if op.name == name)


def layer(text: str) -> dict[str, Any]:
    """Of 'estimator.name=passk, estimator.k=3', the settings."""
    return dict(one.split("=", 1) for one in text.split(", ") if one)


def of(*layers: str) -> Plan:
    return Plan.of(*map(layer, layers))


def lines(text: str) -> list[list[str]]:
    """The parts of each line, between bars."""
    return [[part.strip() for part in line.split("|")] for line in text.strip().splitlines()]


# --- fields ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("part", "field"), FIELDS)
def test_every_field_of_every_part_can_be_set(part: str, field: str) -> None:
    kind = PARTS[part]
    text, value = other(get_type_hints(kind)[field], getattr(kind(), field))
    if (part, field) == ("groups", "min_size"):
        text = "3"
        value = 3
    before = Plan.of({})
    plan = Plan.of({f"{part}.{field}": text})
    assert getattr(getattr(plan, part), field) == value
    changed = dataclasses.replace(getattr(before, part), **{field: value})
    assert plan == dataclasses.replace(before, **{part: changed})


@pytest.mark.parametrize(("part", "op", "field"), OP_FIELDS)
def test_every_field_of_every_operation_can_be_set(part: str, op: str, field: str) -> None:
    kind = ORDERED[part][op]
    default = next(f.default for f in dataclasses.fields(kind) if f.name == field)
    text, value = other(get_type_hints(kind)[field], default)
    base = VALID if op == "overlong" else {}
    if field == "max":
        text = "75"
        value = 75.0
    plan = Plan.of({**base, f"{part}.{op}.{field}": text})
    made = operation(getattr(plan, part), op)
    assert getattr(made, field) == value


PARAMS = [(row.name, param) for row in ESTIMATORS.values() for param in row.params]


@pytest.mark.parametrize(("method", "param"), PARAMS, ids=[f"{m}-{p.name}" for m, p in PARAMS])
def test_every_parameter_of_every_method_is_typed(method: str, param: Param) -> None:
    own = {int: ("3", 3), str: ("own", "own")}
    text, value = own.get(param.type) or other(param.type, param.default)
    plan = Plan.of({"estimator.name": method, f"estimator.{param.name}": text})
    if param.field:
        part, *path = param.field.split(".")
        holder = getattr(plan, part)
        if part in ORDERED:
            holder = operation(holder, path[0])
        assert getattr(holder, path[-1]) == value
    else:
        assert plan.params[param.name] == value
    if param.type is not str:
        with pytest.raises(UsageError, match="cannot be 'many'"):
            Plan.of({"estimator.name": method, f"estimator.{param.name}": "many"})


# --- layers ------------------------------------------------------------------------------------------------


def test_a_stronger_layer_wins_over_a_weaker_one_and_over_the_method() -> None:
    assert of("estimator.name=rec").divisor.ddof == 0
    divisor = of("estimator.name=rec", "divisor.ddof=1, divisor.floor=0.5", "divisor.floor=0.25").divisor
    assert divisor.ddof == 1
    assert divisor.floor == 0.25


def test_the_default_scale_follows_the_method_that_wins() -> None:
    assert of("estimator.name=rloo", "estimator.name=grpo").divisor.level == "group"
    assert of("divisor.level=batch", "estimator.name=rloo").divisor.level == "batch"


@pytest.mark.parametrize(
    "layers",
    [
        ["estimator.name=passk", "estimator.k=3", "divisor.floor=0.0"],
        ["estimator.name=rank-penalty, estimator.penalty=0.9"],
        ["estimator.name=grpo, estimator.baseline_level=batch"],
    ],
)
def test_a_stronger_method_leaves_the_parameters_of_a_weaker_one_behind(layers: list[str]) -> None:
    assert of(*layers, "estimator.name=rloo") == of("estimator.name=rloo")


def test_a_parameter_is_inherited_from_the_same_method_and_no_other() -> None:
    weaker = "estimator.name=rank-penalty, estimator.penalty=0.9"
    assert of(weaker, "estimator.name=unlikeliness") == of("estimator.name=unlikeliness")
    passk = "estimator.name=passk, estimator.k=4"
    assert of(passk, "estimator.name=pkpo").params == {"k": 2}
    assert of(passk, "estimator.name=passk").params["k"] == 4


def test_a_parameter_that_renames_a_field_yields_to_a_stronger_word_on_the_field() -> None:
    named = "estimator.name=gigpo, estimator.omega=0.5"
    field = "unit.state_weight=0.25"
    assert of(named, field).unit.state_weight == 0.25
    assert of(field, named).unit.state_weight == 0.5


def test_none_takes_an_operation_of_a_weaker_layer_away_with_all_its_fields() -> None:
    clip = layer("shape.clip.lo=0, shape.clip.hi=1")
    gone = {"shape.clip": None}
    assert Plan.of(clip, gone).shape == ()
    assert Plan.of(clip, gone, {"shape.clip.hi": 2}).shape == (Clip(hi=2.0),)


@pytest.mark.parametrize("gone", [None, "None", "false", False])
def test_an_operation_of_the_method_can_be_taken_away_and_set_again_by_a_stronger_layer(gone: object) -> None:
    assert of("estimator.name=gdpo").post == (Whiten(),)
    assert Plan.of({"estimator.name": "gdpo"}, {"post.whiten": gone}).post == ()
    again = Plan.of({"estimator.name": "gdpo"}, {"post.whiten": None}, {"post.whiten.level": "token"})
    assert again.post == (Whiten(level="token"),)


def test_an_operation_can_be_put_there_with_its_defaults() -> None:
    assert of("post.nan_to_zero=yes").post == (NanToZero(),)
    assert Plan.of({"post.nan_to_zero": True}).post == (NanToZero(),)


# --- order -------------------------------------------------------------------------------------------------


def test_operations_set_separately_are_in_the_order_of_the_table() -> None:
    names = list(ORDERED["shape"])
    settings = {**VALID, **{f"shape.{name}": True for name in reversed(names)}}
    assert [op.name for op in Plan.of(settings).shape] == names


def test_a_list_keeps_its_own_order_and_a_field_set_over_it_changes_its_operation_in_place_or_follows_it() -> None:
    listed = {"shape": [{"op": "clip", "lo": 0}, {"op": "affine", "shift": 1}]}
    more = {"shape.affine.scale": 2, "shape.binary.threshold": 0, "shape.clip.hi": 1}
    wanted = (Clip(lo=0.0, hi=1.0), Affine(shift=1.0, scale=2.0), Binary(threshold=0.0))
    assert Plan.of(listed, more).shape == wanted
    assert Plan.of(listed, {"shape.clip": None}).shape == (Affine(shift=1.0),)


# --- refusals ----------------------------------------------------------------------------------------------

UNKNOWN = """
estimator.name=rlo                      | no method named 'rlo'; did you mean 'rloo'
divisr.epsilon=1                        | no part of the plan named 'divisr'; did you mean 'divisor'
=1                                      | no part of the plan named ''
divisor.epsilom=1                       | no field of divisor named 'epsilom'; did you mean 'epsilon'
divisor=1                               | no field of divisor named ''; known: level,
divisor.epsilon.x=1                     | no field of divisor named 'epsilon.x'
shape.klip.lo=1                         | no operation of shape named 'klip'; did you mean 'clip'
shape.clip.low=1                        | no field of shape.clip named 'low'; did you mean 'lo'
estimator.name=passk, estimator.kk=1    | no parameter of passk named 'kk'; known: k, epsilon
estimator.k=1                           | no parameter of grpo named 'k'; known: none
"""


def unknown(settings: dict[str, Any]) -> str:
    with pytest.raises(UnknownName) as raised:
        Plan.of(settings)
    return str(raised.value)


@pytest.mark.parametrize(("settings", "message"), lines(UNKNOWN))
def test_an_unknown_name_is_refused_with_the_nearest_one(settings: str, message: str) -> None:
    assert message in unknown(layer(settings))


def test_an_unknown_name_in_a_list_is_refused() -> None:
    assert "no method named" in unknown({"estimator.name": ["grpo"]})
    assert "no operation of shape named 'klip'" in unknown({"shape": [{"op": "klip"}]})
    assert "no operation of shape named" in unknown({"shape": [{"lo": 1}]})


WRONG = """
divisor.epsilon         | small | a number
divisor.epsilon         | nan   | a finite number
divisor.ddof            | 0.5   | a whole number
divisor.ddof            | one   | a whole number
divisor.ddof            | inf   | a whole number
divisor.only_positive   | maybe | true or false
divisor.level           | rows  | choose from none, group, batch, constant
rewards.weights         | 1,x   | a number
shape.clip.lo           | x     | a number
estimator.baseline_level | row  | choose from group, batch
shape.clip              | 0:1   | true or false
shape                   | clip  | one by one
"""
# Values of Python, as JSON writes them.
WRONG_IN_PYTHON = f"""
divisor.epsilon       | true        | a number
divisor.epsilon       | [1]         | a number
divisor.epsilon       | {10**400}   | a number
divisor.ddof          | 0.5         | a whole number
divisor.only_positive | 1           | true or false
divisor.level         | null        | choose from
rewards.weights       | 1.0         | a list of numbers
rewards.weights       | [1, null]   | a number
shape                 | ["clip"]    | one by one
"""


def refused(field: str, value: object, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        Plan.of({field: value})
    assert not isinstance(raised.value, UnknownName)
    assert field in raised.value.message
    assert hint in raised.value.hint


@pytest.mark.parametrize(("field", "value", "hint"), lines(WRONG))
def test_a_text_of_the_wrong_type_is_refused_with_what_the_field_takes(field: str, value: str, hint: str) -> None:
    refused(field, value, hint)


@pytest.mark.parametrize(("field", "value", "hint"), lines(WRONG_IN_PYTHON), ids=lambda text: text[:20])
def test_a_value_of_the_wrong_type_is_refused_with_what_the_field_takes(field: str, value: str, hint: str) -> None:
    refused(field, json.loads(value), hint)


MEANINGLESS = """
estimator.name=passk, divisor.level=group                | passk has no scale 'group'
estimator.name=quantile, estimator.baseline_level=batch  | quantile has no batch baseline
divisor.level=batch, divisor.of=others                   | the others is a group quantity
divisor.ddof=2                                           | divisor.ddof cannot be 2
divisor.ddof=-1                                          | divisor.ddof cannot be -1
post.whiten.ddof=2                                       | post.whiten.ddof cannot be 2
post.whiten.ddof=-1                                      | post.whiten.ddof cannot be -1
post.whiten.ddof=4, post.whiten.level=token              | post.whiten.ddof cannot be 4
post.whiten.inside=-1e-9                                 | post.whiten.inside cannot be negative
post.whiten.floor=-1e-9                                  | post.whiten.floor cannot be negative
post.whiten.epsilon=-1e-9                                | post.whiten.epsilon cannot be negative
estimator.name=rec, divisor.ddof=2                       | divisor.ddof cannot be 2
divisor.epsilon=-1e-9                                    | divisor.epsilon cannot be negative
divisor.inside=-1e-9                                     | divisor.inside cannot be negative
divisor.floor=-1e-9                                      | divisor.floor cannot be negative
shape.clip.lo=1, shape.clip.hi=0                         | clip 1:0 is empty
shape.overlong.max=10, shape.overlong.buffer=0           | overlong 10:0:1 is out of range
shape.overlong.max=10, shape.overlong.buffer=11          | overlong 10:11:1 is out of range
shape.overlong.buffer=1                                  | overlong 0:1:1 is out of range
groups.min_size=0                                        | cannot have 0 rows
divisor.level=constant, divisor.constant=0               | divisor.constant cannot be 0
groups.std_threshold=-0.1                                | never <= -0.1
"""


@pytest.mark.parametrize(("settings", "message"), lines(MEANINGLESS))
def test_what_means_nothing_is_refused(settings: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        of(settings)
    assert message in raised.value.message
    assert raised.value.hint


WITH_DDOF = [kind for part in (PARTS, SHAPE, POST) for kind in part.values() if "ddof" in kind.__annotations__]


@pytest.mark.parametrize("kind", WITH_DDOF)
def test_every_ddof_is_0_or_1(kind: type) -> None:
    for ddof in (0, 1):
        assert kind(ddof=ddof).ddof == ddof
    with pytest.raises(UsageError, match=r"ddof cannot be 2"):
        kind(ddof=2)


def test_an_operation_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="shape lists 'clip' twice") as raised:
        Plan.of({"shape": [{"op": "clip", "lo": 0}, {"op": "clip", "hi": 1}]})
    assert raised.value.hint


# --- what a plan says of itself ----------------------------------------------------------------------------


NEEDS = """
                                                        |
shape.kl.coef=0.1                                       | kl
shape.overlong.max=100, shape.overlong.buffer=10        | length
shape.truncated.factor=0.5                              | truncated
shape.rank.penalty=0.5                                  | logprob
estimator.name=opo, shape.overlong.max=100, shape.overlong.buffer=10 | length
post.whiten.level=token                                 | length
unit.take=mean                                          | rollout
unit.per_step=true                                      | rollout
estimator.name=gigpo                                    | rollout state step_reward
estimator.name=gigpo, estimator.omega=0, estimator.count=each |
"""


@pytest.mark.parametrize(("settings", "needs"), lines(NEEDS.strip("\n")))
def test_a_plan_names_the_extra_columns_that_it_reads(settings: str, needs: str) -> None:
    assert " ".join(of(settings).needs) == needs


OF_GROUPS_ALONE = ["", "estimator.name=gdpo, post.whiten=None"]
OF_BATCHES = [
    "divisor.level=batch", "estimator.baseline_level=batch, divisor.level=none", "post.whiten.level=sample",
    "estimator.name=gdpo", "estimator.name=gpg",
]  # fmt: skip


def test_a_plan_knows_whether_other_groups_matter() -> None:
    assert [settings for settings in OF_GROUPS_ALONE if of(settings).uses_batch] == []
    assert [settings for settings in OF_BATCHES if not of(settings).uses_batch] == []


def test_a_singleton_is_a_group_like_any_other_where_groups_are_not_compared() -> None:
    assert of("estimator.name=reinforce").alone.result == "keep"
    assert of("estimator.baseline_level=batch, divisor.level=none").alone.result == "keep"
    assert of("estimator.name=batch-norm").alone.result == "keep"
    assert of("estimator.name=batch-norm, estimator.baseline_level=group").alone.result == "zero"
    assert of("estimator.name=reinforce, alone.result=zero").alone.result == "zero"


# --- settings that nothing reads ---------------------------------------------------------------------------

CSV = b"""\
group,batch,reward.0
0,0,0.1
0,0,0.9
0,0,0.4
1,0,1.0
1,0,1.0
1,0,1.0
2,0,0.3
3,1,-2.0
3,1,5.0
3,1,0.25
4,2,7.0
"""
ROWS = pl.read_csv(CSV).cast({"group": pl.UInt32, "batch": pl.UInt32})
IDLE = [
    "",
    "divisor.level=none",
    "divisor.level=constant, divisor.constant=3.0, divisor.only_positive=true",
    "divisor.level=batch, divisor.of=residual, alone.result=zero",
    "divisor.level=batch, groups.min_size=2, groups.zero_variance=drop",
    "alone.result=null, groups.min_size=2",
    "groups.zero_variance=null",
    "estimator.name=rloo",
    "estimator.name=expression, estimator.sql=reward - mean",
    "estimator.name=expression, estimator.sql=(reward - mean) / (std + epsilon)",
    "post.whiten.level=sample, post.whiten.divide=false",
    "divisor.measure=mad, weight.by=std",
]


@pytest.mark.parametrize("settings", IDLE)
def test_no_advantage_depends_on_a_setting_that_is_said_to_be_unread(settings: str) -> None:
    plan = of(settings)
    before = advantages(plan, ROWS).tobytes()
    tried = 0
    for name in plan.unread:
        part, _, field = name.rpartition(".")
        kind = Whiten if part == "post.whiten" else PARTS[part]
        text, _ = other(get_type_hints(kind)[field], getattr(kind(), field))
        try:
            changed = of(settings, f"{name}={text}")
        except UsageError:  # it is refused rather than unread
            continue
        tried += changed != plan
        assert advantages(changed, ROWS).tobytes() == before, name
    assert tried >= min(2, len(plan.unread))


@pytest.mark.parametrize(
    ("settings", "is_read"),
    [
        ("divisor.level=batch", False),  # its std is that of the rewards
        ("divisor.level=batch, divisor.of=residual", True),  # the residual of a lone row is one of them
        ("divisor.level=group, divisor.of=residual", False),
        ("divisor.level=group, alone.result=keep", True),
    ],
)
def test_the_baseline_of_a_lone_row_is_read_where_its_residual_counts(settings: str, is_read: bool) -> None:  # noqa: FBT001 - a column of the table
    assert ("alone.baseline" not in of(settings).unread) is is_read
    group = [[1.0], [0.0, 1.0, 1.0]]
    own, zero = (of_plan(of(settings, f"alone.baseline={name}"), *group) for name in ("own", "zero"))
    assert (own != zero) is is_read
