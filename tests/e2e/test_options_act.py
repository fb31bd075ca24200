"""A flag that is given counts, or is refused: every option of every command, in every mode of the command.

The options are those of the table, so a new one must have a line here, with rows on which it matters. An option acts if the files, the
numbers or the status differ from those without it; that a document repeats it, or that a warning says so, is no effect. It is refused if
the error names its flag as what is wrong: beside an error about something else it was not tried.
"""

from __future__ import annotations

import json
import random
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import grpo_cli
from grpo_cli.cli.command import read
from grpo_cli.errors import GrpoError
from grpo_cli.guests.browse.app import Browser
from grpo_cli.guests.browse.model import Model
from grpo_cli.options import config
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.export_kinds import EXPORT_KINDS
from grpo_cli.options.table import EVERY, Option
from grpo_cli.read.known_names import STEP_LIKE
from grpo_cli.render.figures import figures
from grpo_cli.render.report.page import tiles
from grpo_cli.runs.group_rows import report_groups, with_rows
from grpo_cli.runs.inspect import Job
from grpo_cli.stats.document import document
from tests.support.command import Done, adv, files
from tests.support.drawn import is_nightly

# Each option: words, and what must be beside them so that they matter. `of COMMAND` is for the option of that command alone; IN=FILE is
# another input.
ACTS = """
stream               | --stream
long                 | --long                               | IN=lists.jsonl -o out.parquet
on_error             | --on-error skip                      | IN=broken.jsonl
max_line             | --max-line 100
config               | --config options.toml
config of add        | --config replace.toml                | --from e.jsonl
no_config            | --no-config                          | VARIABLE=options.toml
no_config of add     | --no-config                          | VARIABLE=replace.toml --from e.jsonl
output               | -o other.jsonl
force                | --force                              | -o exists.jsonl
force of report      | --force                              | -o exists.html
in_place             | --in-place
column               | --column adv
column of audit      | --column centred
replace              | --replace                            | --column old
replace of compare   | --replace                            | IN=written.jsonl
replace of add       | --replace                            | --from e.jsonl
dtype                | --dtype f32
per_token            | --per-token                          | --tokens tok
distill              | --distill 0.5                        | --per-token --token-logprobs s --teacher-logprobs t
facts                | --facts
only                 | --only
duplicate            | --duplicate                          | --zero-variance drop
seed                 | --seed 3                             | --zero-variance drop --duplicate
seed of select       | --seed 3                             | --limit 2
seed of export       | --seed 3                             | --limit 2
tokens               | --tokens tok                         | --per-token --mask tmask
tokens of export     | --tokens tok
mask                 | --mask tmask                         | --per-token
mask of inspect      | --mask tmask                         | --token-logprobs s --old-token-logprobs o
mask of report       | --mask tmask                         | --token-logprobs s --old-token-logprobs o
mask of audit        | --mask tmask                         | IN=kl.jsonl --kl-coef 0.5 --kl-from s,o --kl-estimator k1 --kl-reduce sum
mask of export       | --mask tmask
prompt_tokens        | --prompt-tokens ptok                 | --per-token --tokens tok
prompt_tokens of export | --prompt-tokens ptok              | --tokens tok
token_logprobs       | --token-logprobs s                   | --per-token --distill 0.5 --teacher-logprobs t
token_logprobs of inspect | --token-logprobs s              | --old-token-logprobs o
token_logprobs of report  | --token-logprobs s              | --old-token-logprobs o
token_logprobs of export  | --token-logprobs s              | --tokens tok
teacher_logprobs     | --teacher-logprobs t                 | --per-token --distill 0.5 --token-logprobs s
old_token_logprobs   | --old-token-logprobs o               | --token-logprobs s
old_token_logprobs of export | --old-token-logprobs o       | --token-logprobs s --ratio-cap 2
token_entropy        | --token-entropy ent                  | --token-logprobs s --old-token-logprobs o
schema               | --schema none                        | --schemas mine.toml
schemas              | --schemas mine.toml
group                | --group who
group_size           | --group-size 11
partial              | --partial keep                       | --group prompt_id --group-size 3
expect_size          | --expect-size 4
group_within         | --group-within who
batch_by             | --batch-by env                       | --scale batch
rollout              | --rollout traj                       | --rollout-reward mean
rollout_reward       | --rollout-reward mean                | --rollout traj
masked_column        | --masked-column bad
left_out_column      | --left-out-column lost
rows                 | --rows 'idx > 4'
masked_rows          | --masked-rows exclude                | --masked-column bad
reward               | --reward fmt
map                  | --map pass=1,fail=0                  | --reward word
combine              | --combine normalize                  | -r reward -r fmt
missing              | --missing as-zero                    | IN=missing.jsonl
component_missing    | --component-missing propagate        | -r reward -r fmt IN=missing.jsonl
reward_shift         | --reward-shift 3                     | --reward-clip 0:3.5
reward_scale         | --reward-scale 2                     | --reward-clip 0:1
reward_clip          | --reward-clip 0.3:0.6
kl_coef              | --kl-coef 0.1                        | --kl-column kl
kl_from              | --kl-from s,o                        | --kl-coef 0.1 --kl-estimator k3 --kl-reduce mean
kl_estimator         | --kl-estimator k1                    | --kl-coef 0.1 --kl-from s,o --kl-reduce mean
kl_reduce            | --kl-reduce sum                      | --kl-coef 0.1 --kl-from s,o --kl-estimator k3
overlong             | --overlong 5:2:1.0                   | --length-column n
preset               | --preset trl-rloo                    | IN=missing.jsonl
presets              | --presets presets.toml               | --preset mine
method               | --method rloo
method of inspect    | --method reinforce
param                | --param k=3                          | --method passk --reward fmt
expr                 | --expr 'reward - min'
set                  | --set divisor.epsilon=0.5
plan_by              | --plan-by env                        | --plan math:method=rloo --plan code:method=grpo
plans                | --plan math:method=rloo              | --plan-by env --plan default:method=grpo
scale                | --scale batch
epsilon              | --epsilon 0.5
ddof                 | --ddof 0
std_of               | --std-of residual                    | --scale batch
singleton            | --singleton raw                      | IN=single.jsonl
zero_variance        | --zero-variance null                 | IN=constant.jsonl
std_threshold        | --std-threshold 0.3                  | --zero-variance null
min_group_size       | --min-group-size 5
whiten               | --whiten sample
whiten_epsilon       | --whiten-epsilon 0.5                 | --whiten sample
clip                 | --clip=-0.5:0.5
clip of inspect      | --clip=0:0.5
length_column        | --length-column n                    | --whiten token
length_column of inspect | --length-column n
length_column of report  | --length-column n
length_column of browse  | --length-column n
length_column of select  | --length-column n                | --where 'length > 4'
logprob_column       | --logprob-column lp                  | --method unlikeliness
baseline_column      | --baseline-column base               | --method remax
reference_column     | --reference-column refs              | --method reference
kl_column            | --kl-column kl                       | --kl-coef 0.1
truncated_column     | --truncated-column cut               | --set shape.truncated.factor=0.5
truncated_column of audit | --truncated-column cut          | IN=cut.jsonl --set shape.truncated.factor=0.5
state_column         | --state-column state                 | --method gigpo --rollout traj --step-reward-column sr
step_reward_column   | --step-reward-column sr              | --method gigpo --rollout traj --state-column state
role_column          | --role-column who                    | --method ema
role_column of audit | --role-column who                    | IN=ema.jsonl
input_length_column  | --input-length-column nin            | --method length-penalty --length-column n
input_length_column of audit | --input-length-column nin    | IN=lengths.jsonl --length-column n --turns-column tn
turns_column         | --turns-column tn                    | --method length-penalty --length-column n
turns_column of audit | --turns-column tn                   | IN=lengths.jsonl --length-column n --input-length-column nin
engine               | --engine ray
ray_address          | --ray-address local                  | --engine ray
explain              | --explain
fail_on              | --fail-on 'groups > 2'
fail_on of audit     | --fail-on 'mismatched_rows >= 0'
fail_on of inspect   | --fail-on 'zero_variance_share > 0'
fail_on of add       | --fail-on 'rows > 0'
fail_on of compare   | --fail-on 'rows > 0'
json                 | --json
summary              | --summary sum.json
quiet                | --quiet
color                | --color always
debug                | --debug                              | IN=broken.jsonl
where                | --where 'mean > 0.4'
by                   | --by env
show                 | --show p1
top                  | --top 1
sort                 | --sort mean
full                 | --full                               | --by env
format               | --format csv
text_column          | --text-column say2
duplicates           | --duplicates                         | --text-column say
pass_at              | --pass-at 2                          | --against b.jsonl
before               | --against b.jsonl
before of select     | --against b.jsonl                    | --where 'solved_runs > 0'
before of export     | --against b.jsonl                    | --where 'solved_runs > 0'
rescored             | --old-rewards b.jsonl
rescored_column      | --old-rewards-column old
compared_presets     | --preset trl-grpo
contenders           | --method ngrpo
write                | --write
to                   | --to pairs
prompt               | --prompt ask
response             | --response say2
messages             | --messages chat
best                 | --pick all-above
min_reward           | --min-reward 0.6
keep_duplicates      | --keep-duplicates                    | --per-group 4
per_group            | --per-group 2
pairs                | --pairs all
min_margin           | --min-margin 0.6
max_pairs            | --max-pairs 1                        | --pairs all
weight               | --weight positive
beta                 | --beta 3
max_weight           | --max-weight 1.5
ratio_cap            | --ratio-cap 2                        | --token-logprobs s --old-token-logprobs o
pool                 | --pool                               | -g traj
cluster              | --cluster env                        | --against b.jsonl
form                 | --form turns
keep                 | --keep half
tools                | --tools tl
target               | --target trl
copies               | --copies 3
solved_at            | --solved-at 0.3                      | --where 'pass@2 > 0.5'
solved_from          | --solved-at 0.3                      | --where 'pass@2 > 0.5'
pass_at of export    | --pass-at 2
limit                | --limit 2
control              | --control                            | --limit 3
holdout              | --holdout 0.4
holdout_seed         | --holdout-seed 5                     | --holdout 0.4
most                 | --top 2
most_by              | --by mean                            | --top 2
top_p                | --top-p 0.5
top_p_slack          | --top-p-slack 0.2                    | --top-p 0.5
pick                 | --pick worst                         | --per-group 2
source               | --from b.jsonl
chosen               | --column judge=j
on                   | --on idx                             | --from f.jsonl --column judge=j
take                 | --take last                          | --from f.jsonl --on env --column judge=j
by_position          | --by-position                        | --from d.jsonl --column judge=j
"""
# What a command is asked for in each mode; its options are added to it one by one. Modes like another one are for the nightly run.
MODES = """
compute              | compute a.jsonl
compute, formula     | compute a.jsonl --expr 'reward - mean'
compute, preset      | compute a.jsonl --preset trl-grpo
compute, no scale    | compute a.jsonl --method rloo
compute, plans       | compute a.jsonl --plan-by env --plan math:method=rloo --plan code:method=grpo
compute, rest        | compute a.jsonl --plan-by env --plan math:method=rloo --plan default:epsilon=0.1 | nightly
compute, tokens      | compute a.jsonl --per-token --tokens tok | nightly
compute, gate        | compute a.jsonl --explain
inspect              | inspect a.jsonl
inspect, by          | inspect a.jsonl --by env | nightly
inspect, show        | inspect a.jsonl --show '#2'
inspect, csv         | inspect a.jsonl --format csv
inspect, csv by      | inspect a.jsonl --format csv --by env | nightly
inspect, csv show    | inspect a.jsonl --format csv --show '#2'
inspect, runs        | inspect a.jsonl --against b.jsonl
inspect, runs csv    | inspect a.jsonl --against b.jsonl --format csv | nightly
inspect, old rewards | inspect a.jsonl --old-rewards b.jsonl
inspect, old column  | inspect a.jsonl --old-rewards-column old | nightly
inspect, log-probs   | inspect a.jsonl --token-logprobs s --old-token-logprobs o | nightly
inspect, lines       | inspect a.jsonl --token-logprobs s --old-token-logprobs o --by env --format csv
select               | select a.jsonl --where 'mean > 0.2 and scored > 2'
select, rows         | select a.jsonl --per-group 2
select, shortest     | select a.jsonl --per-group 2 --pick shortest --length-column n | nightly
export, sft          | export a.jsonl -o out.jsonl --prompt ask --response say --to sft
export, shortest     | export a.jsonl -o out.jsonl --prompt ask --response say --to sft --pick shortest | nightly
export, chats        | export a.jsonl -o out.jsonl --messages chat --to sft | nightly
export, labels       | export a.jsonl -o out.jsonl --prompt ask --response say --to labels
export, groups       | export a.jsonl -o out.jsonl --prompt ask --response say --to groups | nightly
export, pairs        | export a.jsonl -o out.jsonl --prompt ask --response say --to pairs | nightly
export, weights      | export a.jsonl -o out.jsonl --prompt ask --response say --to weights
export, prompts      | export a.jsonl -o out.jsonl --prompt ask --to prompts
export, tokens       | export a.jsonl -o out.jsonl --to tokens --tokens tok
report               | report a.jsonl -o out.html
report, runs         | report a.jsonl -o out.html --against b.jsonl | nightly
report, old rewards  | report a.jsonl -o out.html --old-rewards b.jsonl | nightly
browse               | browse a.jsonl
audit                | audit a.jsonl | nightly
audit, claim         | audit a.jsonl --method grpo
compare              | compare a.jsonl --method grpo --method rloo
compare, written     | compare a.jsonl --method grpo --method rloo --write | nightly
add                  | add a.jsonl --from c.jsonl
add, by key          | add a.jsonl --from f.jsonl --on idx --column judge=j | nightly"""
TEXT = {"quiet", "color", "debug", "json", "full", "format"}  # they change how a result is shown
# What they say is about a case: a broken line, a file that exists, a reward that is missing.
RULES = {"force", "replace", "map", "schema", "reward_shift", "std_of", "pool", "by_position", "config"}
# The first mode of a command tries all of its options, the others one in so many, from another one on; the nightly run tries all in each.
FEWER = 3
SLOW = {"audit": 6}  # a run takes half a second
# Options that are tried elsewhere, with what they need.
ELSEWHERE = {
    "stream": "tests/unit/runs/test_stream.py: the same bytes, earlier",
    "engine": "tests/nightly/test_ray.py: the same bytes, on other machines",
    "ray_address": "tests/nightly/test_ray.py",
}
# Where an option has no effect and is accepted, with the reason.
WITHOUT_EFFECT = """
compute, gate        | quiet               | a dry run of a line with -q is to be seen
compute, no scale    | param               | rloo has no parameters, and the error says that of this one
compare              | param               | likewise, grpo and rloo
compute, rest        | preset              | it is for the plan of the rest alone, and that of math stops at the missing rewards
audit, claim         | param               | likewise, grpo
add, by key          | replace             | the file has no column j that it could replace; `add` has one
add, by key          | config              | likewise
add, by key          | no_config           | likewise
inspect              | duplicates          | the texts of small files are compared anyhow; tests/unit/stats/test_inspection.py has a large one
report               | duplicates          | likewise
inspect              | color               | an alias may always set it; a table for other programs has no colours
report               | color               | likewise, a page
browse               | color               | the screen has them
browse               | quiet               | it is about what is printed before the screen
browse               | debug               | likewise
browse               | presets             | its presets can be chosen on the screen
inspect              | quiet               | a table for other programs is no summary
inspect              | std_of              | the effective sample size does not depend on a factor
inspect              | whiten              | likewise, where groups have the mean 0
inspect              | whiten_epsilon      | likewise
inspect, lines       | preset              | the shares of clipped tokens depend on the signs of advantages, which it changes in other files
inspect, lines       | input_length_column | likewise
inspect, lines       | turns_column        | likewise
inspect, runs csv    | group_within        | it settles whether ids restart; the groups of a prompt are pooled
select, rows         | masked_rows         | masked rows are never picked
select, shortest     | masked_rows         | likewise
add                  | schema              | it says which rows a record has; tests/unit/runs/test_add.py has such records
"""
# Keys of documents that repeat what was asked for.
ECHOES = {"plan", "preset", "where", "seed", "seconds", "config", "against", "map", "warnings", "role_columns"}


LISTS = """
{"prompt_id": "p1", "env": "math", "rewards": [0, 1, 0.5], "tok": [[1], [2, 3], [4]]}
{"prompt_id": "q", "env": "code", "rewards": [1, 0], "tok": [[5, 6], [7]]}
"""
PRESETS = """
[mine]
framework = "ours"
estimator = "rloo"
source = { repo = "ours", path = "ours.py", date = "2026-01-01" }
"""
SCHEMAS = """
[mine]
title = "Ours"
tool = "ours"
layout = "long"
source = "ours"
file = 'jsonl$'
fields = { prompt_id = "text", reward = "number", who = "text" }
group = ["env"]
reward = ["reward"]
"""


def table(text: str) -> Iterator[list[str]]:
    """The cells of each line."""
    for line in text.strip().splitlines():
        yield [cell.strip() for cell in line.split("|")]


def rollouts(seed: int = 1) -> list[dict[str, Any]]:
    drawn = random.Random(seed)  # noqa: S311 - test data
    rows: list[dict[str, Any]] = []
    for at, size in enumerate((4, 4, 4, 4, 4, 4, 3, 6)):
        for place in range(size):
            tokens = drawn.randint(3, 6)
            reward = {2: 1.0, 3: 0.0, 4: place % 2.0}.get(at, drawn.choice([0.0, 0.25, 0.5, 1.0]))
            fmt = 1.0 - place % 2 if at in {1, 4} else drawn.choice([0.0, 1.0])
            student = [-round(drawn.uniform(0.01, 2), 3) for _ in range(tokens)]
            rows.append({
                "prompt_id": f"p{at}", "half": at // 4, "env": ("code", "math")[at % 2], "reward": reward,
                "fmt": fmt, "word": "pass" if reward >= 0.5 else "fail", "n": tokens,
                "lp": -round(drawn.random(), 3), "base": round(drawn.random(), 2), "refs": [round(drawn.random(), 2)] * 2,
                "kl": round(drawn.random(), 3), "cut": drawn.random() < 0.3, "traj": f"p{at}t{place // 2}",
                "state": f"s{place % 2}", "sr": round(drawn.random(), 2), "who": drawn.choice("ab"),
                "nin": drawn.randint(5, 20), "tn": drawn.randint(1, 4), "idx": len(rows),
                "bad": len(rows) % 9 == 4, "lost": len(rows) % 11 == 5, "old": drawn.choice([0.0, 0.5, 1.0]),
                "ask": f"question {at}?", "say": f"answer {place % 3}" + "x" * drawn.randint(1, 9), "say2": f"other {place}",
                "tl": [{"type": "function", "function": {"name": "add", "parameters": {}}}],
                "chat": [{"role": "user", "content": f"question {at}?"}, {"role": "assistant", "content": f"chat {place % 3}"}],
                "tok": [drawn.randint(5, 99) for _ in range(tokens)], "ptok": [1, 2, 3][: 1 + place % 3],
                "tmask": [1, *(drawn.choice([0, 1]) for _ in range(tokens - 1))],
                "s": student, "t": [-round(drawn.uniform(0.01, 2), 3) for _ in range(tokens)],
                "o": [round(min(x + drawn.uniform(-0.6, 0.6), -0.001), 3) for x in student],
                "ent": [round(drawn.random(), 3) for _ in range(tokens)],
            })  # fmt: skip
    return rows


# What has made the advantages of a log, beside those of a.jsonl.
LOGS: Mapping[str, Mapping[str, Any]] = {
    "ema.jsonl": {"method": "ema", "role_column": "who"},
    "lengths.jsonl": {
        "method": "length-penalty",
        "length_column": "n",
        "input_length_column": "nin",
        "turns_column": "tn",
    },
    "cut.jsonl": {"set": "shape.truncated.factor=0.5", "truncated_column": "cut"},
    "kl.jsonl": {"kl_coef": 0.5, "kl_from": "s,o", "kl_estimator": "k1", "kl_reduce": "sum", "mask": "tmask"},
}


def logged(rows: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """The rows with advantages, under a name that compute does not write, and with others without a divisor."""
    frame = pl.DataFrame(rows).drop("advantages", "centred", strict=False)
    made, centred = (grpo_cli.advantages(frame, group="prompt_id", **how) for how in (options, {"method": "dr-grpo"}))
    return [{**row, "advantages": a, "centred": b} for row, a, b in zip(rows, made, centred, strict=True)]


@pytest.fixture(scope="module")
def inputs() -> Mapping[str, str]:
    rows = logged(rollouts())
    lines = {"a.jsonl": rows, "exists.jsonl": rows[:1]}
    lines["b.jsonl"] = [{**row, "reward": row["old"], "fmt": 1.0 - row["fmt"]} for row in rows]
    lines["missing.jsonl"] = [{**row, "reward": None if row["idx"] % 5 == 1 else row["reward"]} for row in rows]
    lines["single.jsonl"] = [*rows[:5], *rows[8:12]]
    lines["constant.jsonl"] = [{**row, "reward": 1.0} if row["prompt_id"] == "p1" else row for row in rows]
    lines["written.jsonl"] = [{**row, "advantage_grpo": 0.0} for row in rows]
    lines["c.jsonl"] = [{"judge": row["old"]} for row in rows]
    lines["d.jsonl"] = [{"idx": row["idx"] + 1, "judge": row["old"]} for row in rows]
    lines["f.jsonl"] = [{"idx": row["idx"], "env": row["env"], "judge": row["old"]} for row in rows]
    lines["e.jsonl"] = [{"old": row["base"]} for row in rows]
    lines |= {name: logged(rows, **how) for name, how in LOGS.items()}
    texts = {name: "".join(f"{json.dumps(row)}\n" for row in some) for name, some in lines.items()}
    texts["exists.html"] = ""
    texts["broken.jsonl"] = texts["a.jsonl"][:-30]
    texts["lists.jsonl"] = LISTS
    texts["options.toml"] = 'rows = ["idx > 4"]\n'
    texts["replace.toml"] = "replace = true\n"
    texts["presets.toml"] = PRESETS
    texts["mine.toml"] = SCHEMAS
    return texts


# --- a run ---------------------------------------------------------------------------------------------------


def without_echoes(document: Any) -> Any:
    """What was found, without what repeats the options."""
    if isinstance(document, dict):
        return {key: without_echoes(value) for key, value in document.items() if key not in ECHOES}
    return [*map(without_echoes, document)] if isinstance(document, list) else document


def flags_with_values(words: str) -> Iterator[list[str]]:
    found: list[list[str]] = []
    for word in shlex.split(words):
        if word.startswith("-"):
            found.append([word])
        else:
            found[-1].append(word)
    return iter(found)


class Line(NamedTuple):
    """A command line, and the file of options that the environment names."""

    command: str
    words: tuple[str, ...]
    variable: str = ""

    def beside(self, more: str) -> Line:
        """The same with what an option needs beside it, where the command takes that and the line has it not."""
        words = [*self.words]
        variable = self.variable
        rest = []
        for word in shlex.split(more):
            if word.startswith("IN="):
                words[0] = word.removeprefix("IN=")
            elif word.startswith("VARIABLE="):
                variable = word.removeprefix("VARIABLE=")
            else:
                rest.append(word)
        taken = {flag for row in COMMANDS[self.command].takes.values() for flag in spellings(row)}
        given = {word for word in words if word.startswith("-")}
        for flag, *values in flags_with_values(shlex.join(rest)):
            if flag in {"-o", "--from"} & given:  # another file
                words[words.index(flag) + 1] = values[0]
            elif flag.partition("=")[0] in taken - given:
                words += [flag, *values]
        return self._replace(words=(*words,), variable=variable)

    def with_(self, words: str) -> Line:
        return self._replace(words=(*self.words, *shlex.split(words)))


def spellings(row: Option) -> set[str]:
    return {flag for flag in (row.flag, row.short, row.other) if flag}


class Seen(NamedTuple):
    """What a user has after a line."""

    done: Done
    out: Any  # what it found: the document of --json, or the text
    made: Mapping[str, Any]  # the files that it wrote

    def same(self, other: Seen, *, in_text: bool) -> bool:
        """Whether the other line has the same result; `in_text` also what is printed beside it."""
        mine, its = ((one.done.status, one.out, one.made) for one in (self, other))
        return mine == its and (not in_text or self.done.err == other.done.err)


def plain(value: Any) -> Any:
    """Anything as plain data."""
    if isinstance(value, pl.DataFrame):
        return value.to_dicts()
    return repr(value)


def report_in_words(inspection: Any, target: Path, *_: Any, **__: Any) -> int:
    """What a report is drawn from, which takes no time."""
    drawn = [
        figures(inspection),
        with_rows(inspection, report_groups(inspection)),
        tiles(inspection),
        inspection.beside,
    ]
    return target.write_text(
        json.dumps([str(without_echoes(document(inspection.facts))), *map(str, drawn)], default=plain)
    )


def browsed(*words: str) -> Done:
    """What the screen of `browse` begins with; it needs a terminal."""
    try:
        line = read(["browse", *words])
        assert not isinstance(line, int)
        given = config.with_config(line.given, line.command.takes, variable=True).to_command("browse")
        with config.beside(given):
            job = Job.of(given.without({"where", "sort"}))
            model = Model.of(replace(job, view=replace(job.view, by_steps=True, named=STEP_LIKE)))
            app = Browser(model, given)
    except GrpoError as error:
        return Done(error.status, "", str(error))
    found = model.inspection
    by = None if found.by is None else found.by.to_list()
    groups, rows = found.groups.to_dicts(), found.scored.rows.to_dicts()
    begins = [app.texts, app.where, app.sort, app.first, groups, rows, by, found.narrow.mark_counts]
    return Done(0, str(begins), "")


@pytest.fixture(scope="module")
def runs(inputs: Mapping[str, str]) -> Callable[[Line], Seen]:
    """Run a line in a folder with the inputs; the same line is run once."""

    @cache
    def run(line: Line) -> Seen:
        there = files()
        for name in there.keys() - inputs.keys():
            Path(name).unlink()
        for name, text in inputs.items():
            if there.get(name) != text.encode():
                Path(name).write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            if line.variable:
                patch.setenv("GRPO_ADV_CONFIG", line.variable)
            try:
                done = browsed(*line.words) if line.command == "browse" else adv(line.command, *line.words)
            except GrpoError as error:  # --debug raises it
                done = Done(error.status, "", f"traceback of {error}")
        made: dict[str, Any] = {name: one for name, one in files().items() if inputs.get(name, "").encode() != one}
        if "sum.json" in made:
            made["sum.json"] = without_echoes(json.loads(made["sum.json"]))
        out = without_echoes(json.loads(done.out)) if done.out.startswith("{") else done.out
        return Seen(done, out, made)

    return run


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn."""
    monkeypatch.setattr("grpo_cli.render.report.write_report", report_in_words)


# --- every option --------------------------------------------------------------------------------------------


def rows_on_which_it_matters(command: str) -> Mapping[str, tuple[str, str]]:
    """The words of each option of the command, and what must be beside them."""
    found = {}
    for name, words, *beside in table(ACTS):
        option, _, of = name.partition(" of ")
        if not of or of == command:
            found[option] = (words, beside[0] if beside else "")
    return found


def is_refused(row: Option, done: Done) -> bool:
    """Whether the line is an error about this option: its flag is in the sentence that says what is wrong, before the ways out."""
    wrong, *_ = done.err.removeprefix("error: ").split("; ")
    return done.status == 2 and any(
        re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", wrong) for flag in spellings(row)
    )


def acts(
    row: Option, runs: Callable[[Line], Seen], without: Line, words: str, *, in_text: bool, alone: bool
) -> bool | None:
    """Whether the option acts on this line, or is refused by name; None if the line fails without it, too, so that nothing is known.

    By itself it may also be an error that asks for what it needs, and that the line without it has not.
    """
    with_it = runs(without.with_(words))
    if is_refused(row, with_it.done):
        return True
    before = runs(without)
    if before.done.status and with_it.done.status:
        return True if in_text and before.done.err != with_it.done.err else None
    if with_it.done.status == 2:
        return alone
    return not before.same(with_it, in_text=in_text)


def options_of(mode: str, command: str) -> list[str]:
    """The options that are tried in a mode."""
    options = [*COMMANDS[command].options]
    modes = [name for name, line, *_ in table(MODES) if line.split()[0] == command]
    every = SLOW.get(command, 1 if mode == modes[0] else FEWER)
    return options if is_nightly() else options[modes.index(mode) % every :: every]


def not_acting(line: Line, tried: Sequence[str], runs: Callable[[Line], Seen]) -> Iterator[str]:
    """The options that change nothing in this mode, and are not refused by name."""
    known = rows_on_which_it_matters(line.command)
    for name in tried:
        row = EVERY[name]
        if spellings(row) & {*line.words} or name in ELSEWHERE:
            continue
        words, beside = known[name]
        in_text = name in TEXT or line.command in {"report", "browse"}
        has_own_input = "IN=" in beside or "VARIABLE" in beside
        tries: list[bool | None] = []
        for more in (beside, "") if beside and not has_own_input else (beside,):
            if more != beside and name in RULES and tries != [None]:
                continue  # by itself it has a case only where what it needs is refused
            without = line.beside(more)
            if not in_text and "--json" not in without.words and "--format" not in without.words:
                without = without.with_("--json")
            tries.append(acts(row, runs, without, words, in_text=in_text, alone=not more))
        known_tries = [one for one in tries if one is not None]
        if not known_tries or not all(known_tries):
            yield name


@pytest.mark.parametrize(
    ("mode", "line"), [(mode, line) for mode, line, *when in table(MODES) if is_nightly() or not when]
)
def test_an_option_acts_or_is_refused(mode: str, line: str, runs: Callable[[Line], Seen]) -> None:
    command, *words = shlex.split(line)
    tried = options_of(mode, command)
    found = {*not_acting(Line(command, (*words,)), tried, runs)}
    excused = {option for where, option, _ in table(WITHOUT_EFFECT) if where in {mode, command}}
    assert found - excused == set()
    needless = {option for where, option, _ in table(WITHOUT_EFFECT) if where == mode != command} & {*tried} - found
    assert needless == set()  # they act, or are refused


def test_every_option_has_a_line() -> None:
    for command in {line.split()[0] for _, line, *_ in table(MODES)}:
        missing = {*COMMANDS[command].options} - {*rows_on_which_it_matters(command)} - {*ELSEWHERE}
        assert missing == set(), f"ACTS in {__file__} needs words for these options of {command}"


def test_every_command_that_reads_rewards_and_every_kind_of_export_has_a_mode() -> None:
    modes = [shlex.split(line) for _, line, *_ in table(MODES)]
    without_rewards = {"methods", "presets", "schemas", "targets", "skill", "verify"}
    missing = {*COMMANDS} - without_rewards - {command for command, *_ in modes}
    assert missing == set(), f"MODES in {__file__} needs a line for these commands"
    kinds = {words[words.index("--to") + 1] for words in modes if words[0] == "export"}
    assert {*EXPORT_KINDS} - kinds == set(), f"MODES in {__file__} needs a line for these kinds of export"


@pytest.mark.parametrize(("mode", "line"), [(mode, line) for mode, line, *_ in table(MODES)])
def test_every_mode_is_a_line_that_runs(mode: str, line: str, runs: Callable[[Line], Seen]) -> None:
    """Beside a line that is refused, every option would count as refused: that of tokens had a --prompt, which they do not take."""
    command, *words = shlex.split(line)
    done = runs(Line(command, (*words,))).done
    assert done.status == 0, f"{mode}: {done.err}"
