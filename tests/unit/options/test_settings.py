"""Every option: what it sets, the same from a file, and every text that is refused."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import pytest

from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import Clip
from grpo_cli.errors import UnknownName, UsageError
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.config import with_config
from grpo_cli.options.export_kinds import EXPORT_KINDS, kinds_that_take
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import normalized, parts_of, plan_of, settings
from grpo_cli.options.table import OF_KINDS, OPTIONS
from grpo_cli.runs.compute_files import Job
from grpo_cli.schemas.table import Mark
from tests.support.command import adv
from tests.support.keywords import KINDS

if TYPE_CHECKING:
    from grpo_cli.options.commands import Command
    from grpo_cli.options.table import Option


def options_of(text: str) -> Given:
    """Of 'epsilon = 1, set = ["alone.sd=nan"]', the options."""
    return Given(tomllib.loads(f"it = {{{text}}}")["it"])


def of_file(text: str, flags: str = "") -> Given:
    """The options of a file that has this text, and these flags."""
    Path("c.toml").write_text(text)
    return with_config(Given(options_of(flags), config="c.toml"))


def lines(text: str) -> list[list[str]]:
    """The parts of each line, between bars."""
    return [[part.strip() for part in line.split(" | ")] for line in text.strip().splitlines()]


@dataclass(frozen=True)
class Effect:
    """An option with a value, the options given with it, and the only things that it may change."""

    value: Any
    changes: dict[str, Any]
    beside: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: str, changes: str) -> tuple[str, Effect]:
        """The first option that is given is the one that is meant."""
        (name, value), *beside = options_of(given).items()
        return name, cls(value, flat("", options_of(changes)), dict(beside))


def flat(prefix: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    found = dict[str, Any]()
    for name, inner in value.items():
        found |= flat(f"{prefix}.{name}".strip("."), inner)
    return found


def mark(text: str, kind: Any, flag: str) -> dict[str, Any]:
    return {"binding.marks": [asdict(Mark.named(text, kind, flag))]}


# Paths speak of the plan (`plan.divisor.epsilon`), the binding and the output.
WRITTEN = """
force = true                                | output.force = true
in_place = true                             | output.in_place = true
replace = true                              | output.replace = true
facts = true                                | output.facts = true
only = true                                 | output.only = true
long = true                                 | output.long = true
schema = "verl"                             | binding.schema = "verl"
group_size = 4                              | binding.group_size = 4
expect_size = 8                             | binding.expect_size = 8
group_within = "file"                       | binding.group_within = "file"
batch_by = "step", scale = "batch"          | binding.batch_by = "step"
masked_rows = "exclude"                     | binding.masked_rows = "exclude"
length_column = "x", whiten = "token"       | binding.roles.length = "x"
logprob_column = "x", method = "unlikeliness" | binding.roles.logprob = "x"
baseline_column = "x", method = "remax"     | binding.roles.baseline = "x"
kl_column = "x", kl_coef = 0.1              | binding.roles.kl = "x"
truncated_column = "x", set = ["shape.truncated.factor=0.5"] | binding.roles.truncated = "x"
state_column = "x", method = "gigpo"        | binding.roles.state = "x"
step_reward_column = "x", method = "gigpo"  | binding.roles.step_reward = "x"
role_column = "x", method = "ema"           | binding.roles.role = "x"
input_length_column = "x", method = "length-penalty" | binding.roles.input_length = "x"
turns_column = "x", method = "length-penalty" | binding.roles.turns = "x"
reference_column = "x", method = "reference" | binding.roles.references = "x"
output = "out.csv"                          | output.to = "out.csv"
column = "adv"                              | output.column = "adv"
dtype = "f32"                               | output.dtype = "f32"
per_token = true, length_column = "n", whiten = "token" | tokens.length = "n"
group = ["a, b", "c.d"]                     | binding.group = ["a", "b", "c.d"]
partial = "drop", group_size = 4            | binding.partial = "drop"
rollout = "traj"                            | binding.roles.rollout = "traj", plan.unit.take = "last"
rollout_reward = "mean"                     | plan.unit.take = "mean", binding.rollouts = "mean"
reward = ["acc=1", "format=0.5", "x.y"]     | binding.rewards = ["acc", "format", "x.y"], plan.rewards.weights = [1.0, 0.5, 1.0]
map = ["pass=1,b=0.5", "fail=0"]            | binding.outcomes.pass = 1, binding.outcomes.b = 0.5, binding.outcomes.fail = 0
combine = "normalize"                       | plan.rewards.combine = "normalize"
missing = "exclude"                         | plan.rewards.missing = "exclude"
component_missing = "propagate"             | plan.rewards.component_missing = "propagate"
reward_shift = -0.5                         | plan.shape.affine.shift = -0.5, plan.shape.affine.scale = 1.0
reward_scale = 2.0                          | plan.shape.affine.scale = 2.0, plan.shape.affine.shift = 0.0
reward_clip = "-1:2"                        | plan.shape.clip.lo = -1.0, plan.shape.clip.hi = 2.0
kl_coef = 0.1                               | plan.shape.kl.coef = 0.1
overlong = "100:20:0.5"                     | plan.shape.overlong = {max = 100.0, buffer = 20.0, penalty = 0.5, beyond = "linear"}
preset = "trl-grpo"                         | plan.divisor.epsilon = 1e-4, plan.rewards.missing = "zero", binding.rollouts = "each"
method = "dr-grpo"                          | plan.method = "dr-grpo", plan.divisor.level = "none"
param = ["k=3"], method = "passk"           | plan.params.k = 3
set = ["divisor.floor=0.5", "groups.min_size = 2"] | plan.divisor.floor = 0.5, plan.groups.min_size = 2
scale = "batch"                             | plan.divisor.level = "batch"
epsilon = 0.25                              | plan.divisor.epsilon = 0.25
ddof = 0                                    | plan.divisor.ddof = 0
std_of = "residual"                         | plan.divisor.of = "residual"
singleton = "null"                          | plan.alone.result = "null", binding.singletons_meant = true
zero_variance = "drop"                      | plan.groups.zero_variance = "drop"
std_threshold = 0.1, zero_variance = "drop" | plan.groups.std_threshold = 0.1
min_group_size = 3                          | plan.groups.min_size = 3
duplicate = true, zero_variance = "drop"    | output.duplicate = true
seed = 7, zero_variance = "drop", duplicate = true | output.seed = 7
whiten = "token" | plan.post.whiten = {level = "token", divide = true, ddof = 1, inside = 1e-8, floor = 0.0, epsilon = 0.0, masked = "by-level"}
whiten_epsilon = 0.5, whiten = "sample"     | plan.post.whiten.inside = 0.5
clip = "-5:5"                               | plan.post.clip.lo = -5.0, plan.post.clip.hi = 5.0
kl_from = "s, r", preset = "trl-rloo", kl_coef = 0.5 | \
    binding.made = [{name = "sum of k1(s, r)", kind = "number", columns = ["s", "r"], estimator = "k1", mean = false, mask = ""}], \
    binding.roles.kl = "sum of k1(s, r)"
kl_estimator = "k3", kl_from = "s, r", preset = "trl-rloo", kl_coef = 0.5 | \
    binding.made = [{name = "sum of k3(s, r)", kind = "number", columns = ["s", "r"], estimator = "k3", mean = false, mask = ""}], \
    binding.roles.kl = "sum of k3(s, r)"
kl_reduce = "mean", kl_from = "s, r", preset = "trl-rloo", kl_coef = 0.5 | \
    binding.made = [{name = "mean of k1(s, r)", kind = "number", columns = ["s", "r"], estimator = "k1", mean = true, mask = ""}], \
    binding.roles.kl = "mean of k1(s, r)"
"""
TEACHER = {"per_token": True, "distill": 0.0, "token_logprobs": "a", "teacher_logprobs": "b"}
EFFECTS: dict[str, Effect] = {
    **dict(Effect.of(given, changes) for given, changes in lines(WRITTEN)),
    "distill": Effect(0.5, {"plan.distill.coef": 0.5}, TEACHER),
    "masked_column": Effect("m=0", mark("m=0", "masked", "--masked-column")),
    "left_out_column": Effect("bad", mark("bad", "left_out", "--left-out-column")),
    "expr": Effect("reward - min", {"plan.params.sql": "reward - min"}, {"expr": "reward - mean"}),
}
# What only the command itself reads, and a condition, which equals no other: tests/unit/runs/test_rows.py.
OF_THE_COMMAND = """
rows config no_config stream engine ray_address explain fail_on on_error max_line json summary quiet color debug presets schemas
plan_by plans
"""
NAMES = sorted(EFFECTS)


def meaning(given: dict[str, Any]) -> dict[str, Any]:
    """All that some options mean, as one flat mapping of plain values."""
    job = Job.of(Given(given))
    plan = job.plan.as_dict()
    for part in ("shape", "post"):
        plan[part] = {op.pop("op"): op for op in plan[part]}
    output = asdict(replace(job.output, tokens=None))
    tokens = job.output.tokens.given if job.output.tokens else {}
    binding = asdict(
        replace(job.binding, of_several=(), masked_rows_typed=False)
    )  # who gave them: those of a file may be without effect
    every = flat("", {"plan": plan, "binding": binding, "output": output, "tokens": tokens})
    return plain(every)


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """As JSON has them: tuples are lists."""
    found: dict[str, Any] = json.loads(json.dumps(values, default=list))
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    assert set(before) <= set(after)
    return {path: value for path, value in after.items() if path not in before or before[path] != value}


def toml(given: dict[str, Any]) -> str:
    lines = [f"{name.replace('_', '-')} = {json.dumps(value)}\n" for name, value in given.items()]
    Path("c.toml").write_text("".join(lines))
    return "c.toml"


def test_every_option_has_its_effect_written_down_here() -> None:
    assert {*EFFECTS, *OF_THE_COMMAND.split()} == set(OPTIONS)


@pytest.mark.parametrize("name", NAMES)
def test_an_option_sets_what_it_says_and_nothing_else(name: str) -> None:
    effect = EFFECTS[name]
    assert changes(meaning(effect.beside), meaning({**effect.beside, name: effect.value})) == plain(effect.changes)


def sample_of(option: Option) -> Any:
    """A value that the option takes."""
    if get_origin(option.type) is Literal:
        return get_args(option.type)[-1]
    return {bool: True, int: 3, float: 0.5, str: "x"}.get(option.type, ["x"])


@pytest.mark.parametrize(
    "command", [row for row in COMMANDS.values() if "config" in row.options], ids=lambda row: row.name
)
def test_a_file_may_hold_every_option_of_the_command_that_it_is_given_to(command: Command) -> None:
    values = dict[str, Any]()
    wanted = dict[str, Any]()
    for option in command.takes.values():
        if not option.is_argument and option.name not in {"config", "no_config"}:  # a file names no other file
            wanted[option.name] = values[option.flag.removeprefix("--")] = sample_of(option)
    if "plans" in wanted:
        values["plan"] = ["a:epsilon=0.5"]
        wanted["plans"] = {"a": {"epsilon": 0.5}}
    path = toml(values)
    if "to" in wanted:  # what is for other kinds of export is left to them
        of_kind = EXPORT_KINDS[wanted["to"]].takes
        of_others = {name for name in wanted if kinds_that_take(name) or command.takes[name].panel in OF_KINDS} - {
            *of_kind
        }
        wanted = {name: value for name, value in wanted.items() if name not in of_others}
    read = with_config(Given(config=path), command.takes)
    assert read == {"config": path, **wanted}


def test_the_types_of_options_that_code_reads_are_those_of_the_table() -> None:
    rows = {name: row for command in COMMANDS.values() for name, row in command.takes.items()}
    for name, kind in Given.__annotations__.items():
        if name != "plans":  # a table of options for each value
            row = rows[name]
            wanted = "Texts" if get_origin(row.type) is list else KINDS.get(row.type, "Text")
            assert kind in {wanted, "str" * row.required}, name


def test_one_file_serves_compute_and_select() -> None:
    config = Path("c.toml")
    Path("rows.csv").write_text("prompt_id,reward\n0,0\n0,1\n1,0\n1,3\n2,0\n2,5\n")
    config.write_text('epsilon = 1e-4\nreward = "reward"\n')
    assert adv("compute rows.csv --config c.toml -o - -q").status == 0
    config.write_text('epsilon = 1e-4\ntop = 1\nby = "mean"\n')
    assert adv("select rows.csv --config c.toml -o - -q").out == "prompt_id,reward\n2,0\n2,5\n"
    config.write_text('to = "prompts"\nprompt = "prompt_id"\n')
    assert len(adv("export rows.csv --config c.toml -o - -q").rows) == 3
    wrong = adv("inspect rows.csv --config c.toml")
    assert wrong.status == 2
    assert "is an option of another command" in wrong.err


@pytest.mark.parametrize("name", NAMES)
def test_the_same_name_in_a_file_means_the_same(name: str) -> None:
    given = {**EFFECTS[name].beside, name: EFFECTS[name].value}
    read = with_config(Given(config=toml(given)), COMMANDS["compute"].takes)
    del read["config"]
    assert meaning(read) == meaning(given)


# The types are those of TOML.
FILES = """
reward = {acc = 1, format = 0.5}                 |                             | plan.rewards.weights = [1.0, 0.5]
reward = ["a", "b"]                              |                             | plan.rewards.weights = []
group = "a,b"                                    |                             | binding.group = ["a", "b"]
epsilon = "0.5"                                  |                             | plan.divisor.epsilon = 0.5
set = {"divisor.floor" = 0.5}                    |                             | plan.divisor.floor = 0.5
force = "yes"                                    |                             | output.force = true
column = 3                                       |                             | output.column = "3"
epsilon = 1; set = ["divisor.floor=0.5"]         | set = ["divisor.epsilon=3"] | plan.divisor.epsilon = 3.0, plan.divisor.floor = 0.5
set = ["divisor.epsilon=1"]; epsilon = 2         | epsilon = 3.0               | plan.divisor.epsilon = 3.0
set = ["shape.affine.shift=9"]                   | reward_shift = 1.0, set = ["groups.min_size=2"] | plan.shape.affine.shift = 1.0
method = "passk"; param = {k = 4, epsilon = 0.5} | param = ["k=3"]             | plan.params.k = 3, plan.params.epsilon = 0.5
method = "passk"; param = {k = 4}                | method = "rloo"             | plan.method = "rloo"
whiten = "sample"                                | whiten = "none"             | plan.method = "grpo"
reward-clip = "0:9"; clip = "0:9"                | clip = "-1:2"               | plan.shape.clip.hi = 9.0, plan.post.clip.lo = -1.0, plan.post.clip.hi = 2.0
overlong = "9:3:1"                               | overlong = "100:20:0.5"     | plan.shape.overlong.max = 100.0, plan.shape.overlong.penalty = 0.5
expr = "reward"                                  | expr = "reward - min"       | plan.params.sql = "reward - min"
output = "x.csv"; force = true                   | output = "y.csv"            | output.to = "y.csv", output.force = true
"""


@pytest.mark.parametrize(("text", "flags", "wanted"), lines(FILES))
def test_a_file_means_what_it_says_and_a_flag_wins_field_by_field(text: str, flags: str, wanted: str) -> None:
    found = meaning(of_file(text.replace("; ", "\n"), flags))
    assert flat("", options_of(wanted)).items() <= found.items()
    assert "plan.post.whiten.level" not in found


OF_ONE_PLAN = """
set = ["divisor.epsilon=2"]                 | epsilon = 1.0               | 1 2
set = ["divisor.epsilon=2"]                 | scale = "batch"             | 2 2
epsilon = 1.0                               | set = ["divisor.epsilon=2"] | 2 1
set = ["divisor.floor=0.5"], epsilon = 1.0  | set = ["divisor.epsilon=2"] | 2 1
"""


@pytest.mark.parametrize(("of_run", "own", "epsilons"), lines(OF_ONE_PLAN))
def test_a_field_that_a_plan_sets_itself_is_not_that_of_the_run(of_run: str, own: str, epsilons: str) -> None:
    run = Given(options_of(of_run), plan_by="env", plans={"a": options_of(own), "b": Given()})
    parts = parts_of(run)
    assert [plan_of(parts[value]).divisor.epsilon for value in "ab"] == [*map(float, epsilons.split())]


@pytest.mark.parametrize("option", ["where", "fail-on", "group", "reward", "map"])
def test_a_list_of_the_line_replaces_that_of_the_file(option: str) -> None:
    name = option.replace("-", "_")
    Path("c.toml").write_text(f"{option} = ['rows > 1', 'rows > 2']")
    takes = COMMANDS["inspect"].takes
    given = Given(config="c.toml")
    assert with_config(given, takes)[name] == ["rows > 1", "rows > 2"]
    assert with_config(Given({name: ["rows > 3"]}, **given), takes)[name] == ["rows > 3"]


BOTH_SET = """
epsilon = 1.0, set = ["divisor.epsilon=2"]        | --epsilon 1.0 and --set divisor.epsilon=2 both set divisor.epsilon
set = ["alone.sd=one", "alone.sd=nan"]            | --set alone.sd=one and --set alone.sd=nan both set alone.sd
param = ["k=1", "k = 2"]                          | --param k=1 and --param k = 2 both set estimator.k
singleton = "raw", set = ["alone.result=nan"]     | --singleton raw and --set alone.result=nan both set alone.result
whiten = "none", set = ["post.whiten.level=token"] | --whiten none and --set post.whiten.level=token both set post.whiten
param = ["name=rloo"], method = "grpo"            | --param name=rloo and --method grpo both set estimator.name
reward = ["a=2"], set = ["rewards.weights=3"]     | --reward a=2 and --set rewards.weights=3 both set rewards.weights
"""


@pytest.mark.parametrize(("given", "words"), lines(BOTH_SET))
def test_a_field_that_two_options_set_is_refused(given: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{words}; leave one of them out")):
        with_config(options_of(given))


@pytest.mark.parametrize(
    "given",
    [
        'epsilon = 1.0, set = ["divisor.floor=2", "alone.sd=nan"]',
        'param = ["k=1", "epsilon=2"]',
        'method = "expression", expr = "reward"',
        'reward = ["a", "b"], set = ["rewards.weights=3,4"]',
        'singleton = "raw", set = ["alone.sd=nan"]',
        'reward_clip = "0:1", clip = "0:1"',
        'preset = "trl-grpo", epsilon = 1.0, set = ["rewards.missing=exclude"]',
    ],
)
def test_options_that_set_other_fields_go_together(given: str) -> None:
    assert with_config(options_of(given)) == options_of(given)


def test_a_preset_gives_way_to_the_options() -> None:
    preset = {"estimator.name": "grpo", "divisor.epsilon": 1e-4, "rewards.missing": "zero"}
    assert plan_of(Given(preset="trl-grpo")) == Plan.of(preset)
    assert plan_of(Given(preset="trl-grpo", epsilon=0.25)) == Plan.of({**preset, "divisor.epsilon": 0.25})
    assert plan_of(Given(preset="trl-grpo", method="rloo")) == Plan.of({**preset, "estimator.name": "rloo"})
    assert Plan.of({"post.whiten.level": "token"}, settings(Given(whiten="none"))).post == ()


UNKNOWN_KEYS = """
epsilom = 1         | no option in c.toml named 'epsilom'; did you mean 'epsilon'
config = 'x.toml'   | no option in c.toml named 'config'
group_size = 4      | no option in c.toml named 'group_size'; did you mean 'group-size'
"""


@pytest.mark.parametrize(("text", "message"), lines(UNKNOWN_KEYS))
def test_an_unknown_key_of_a_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnknownName) as raised:
        of_file(text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "text",
    ["epsilon = 'small'", "epsilon = [1]", "group-size = 1.5", "force = 1", "scale = 'rows'", f"epsilon = 1{'0' * 400}"],
)  # fmt: skip
def test_a_wrong_type_in_a_file_is_refused_with_the_name_of_both(text: str) -> None:
    name = text.partition(" =")[0]
    with pytest.raises(UsageError, match=rf"^{name} in c\.toml cannot be"):
        of_file(text)


MALFORMED = """
reward_clip | 5          | --reward-clip '5' is not two bounds
reward_clip | a:b        | --reward-clip a:b: a bound cannot be 'a'
reward_clip | 0:1:2      | a bound cannot be '1:2'
reward_clip | nan:1      | a bound cannot be 'nan'
clip        | 0:x        | --clip 0:x: a bound cannot be 'x'
overlong    | 100        | --overlong '100' is not MAX:BUFFER:PENALTY
overlong    | 1:2:3:4    | is not MAX:BUFFER:PENALTY
overlong    | 100::1     | shape.overlong.buffer cannot be ''
overlong    | 100:200    | overlong 100:200:1 is out of range
param       | k          | --param 'k' sets nothing
param       | =3         | --param '=3' sets nothing
set         | divisor.epsilon     | --set 'divisor.epsilon' sets nothing
set         | =1         | --set '=1' sets nothing
set         | divisor.epsilon=1=2 | divisor.epsilon cannot be '1=2'
reward      | a=b=c      | the weight of a=b cannot be 'c'
reward      | a=nan      | the weight of a cannot be 'nan'
reward      | =2         | names no column
reward      |            | names no column
"""


@pytest.mark.parametrize(("name", "text", "message"), lines(MALFORMED))
def test_a_malformed_text_is_a_usage_error_that_says_so(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        plan_of(Given({name: [text] if name in {"param", "set", "reward"} else text}))
    assert message in str(raised.value)
    assert raised.value.hint


@pytest.mark.parametrize(("text", "lo", "hi"), [(":5", None, 5.0), ("-5:", -5.0, None), (" 0 : 1 ", 0.0, 1.0)])
def test_one_bound_may_be_left_empty(text: str, lo: float | None, hi: float | None) -> None:
    plan = plan_of(Given(reward_clip=text, clip=text))
    for (clip,) in (plan.shape, plan.post):
        assert clip == Clip(lo=lo, hi=hi)


SINGLETONS = """
zero  | binding.singletons_meant = true
raw   | binding.singletons_meant = true, plan.alone.result = "raw"
nan   | binding.singletons_meant = true, plan.alone.result = "nan"
null  | binding.singletons_meant = true, plan.alone.result = "null"
drop  | binding.singletons_meant = true, plan.alone.result = "drop"
error | binding.singletons_meant = true, plan.alone.result = "error"
unit  | binding.singletons_meant = true, plan.alone.result = "keep", plan.alone.baseline = "zero"
"""


def test_every_value_of_singleton_is_a_rule_of_the_plan() -> None:
    rules = dict(lines(SINGLETONS))
    assert {*rules} == {*get_args(OPTIONS["singleton"].type)}
    for word, rule in rules.items():
        found = changes(meaning({}), meaning({"singleton": word}))
        assert found == flat("", options_of(rule))


IDLE = """
method = "rloo", epsilon = 0.1      | --epsilon has no effect with scale none | add --scale group or --scale batch
method = "rloo", ddof = 0           | --ddof has no effect with scale none    | add --scale
method = "reinforce", epsilon = 0.1 | --epsilon has no effect with scale none | reinforce has no divisor
method = "passk", epsilon = 0.1     | --epsilon has no effect with scale none | --param epsilon=
scale = "none", std_of = "residual" | --std-of has no effect with scale none  | add --scale
method = "psr", std_of = "residual" | --std-of has no effect with scale none  | psr has no divisor
method = "gdpo", whiten_epsilon = 0.1, whiten = "none" | --whiten-epsilon has no effect | add --whiten
expr = "reward", method = "rloo"    | --expr cannot be combined with the method rloo | leave out --method
seed = -1, duplicate = true         | --seed cannot be -1                     | 0 or more
seed = 1                            | --seed has no effect without --duplicate | add --duplicate
"""


@pytest.mark.parametrize(("given", "message", "hint"), lines(IDLE))
def test_an_option_that_would_change_nothing_is_refused(given: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        Job.of(options_of(given))
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_an_expression_may_be_given_with_the_method_by_name() -> None:
    assert plan_of(Given(expr="reward", method="expression")) == plan_of(Given(expr="reward"))


def test_values_of_python_become_those_of_the_command_line() -> None:
    assert normalized("group", ("a", "b")) == ("group", ["a", "b"])
    assert normalized("param", {"k": 3}) == ("param", ["k=3"])
    assert normalized("reward", "acc") == ("reward", ["acc"])
    assert normalized("ddof", 0.0) == ("ddof", 0)


def test_every_option_has_a_flag_a_help_and_a_panel() -> None:
    for option in OPTIONS.values():
        # The plan of a value is `--plan`; in Python they are given together.
        assert option.flag == "--" + {"plans": "plan"}.get(option.name, option.name).replace("_", "-")
        assert option.help.endswith((".", ")"))
        assert option.panel
    shorts = [option.short for option in OPTIONS.values() if option.short]
    assert len(shorts) == len({*shorts})
