"""The options, each declared once: the command line, `--config`, the Python API and the documents read this table.

The panel of an option is its heading in `--help`, and what commands take it by (see `commands.py`). Importing this
table loads neither polars nor typer.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from grpo_cli.engine.extra_columns import ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

INPUT: Final = "Input"
OUTPUT: Final = "Output"
ENGINE: Final = "Beyond one machine"
GROUPS: Final = "Groups and batches"
REWARDS: Final = "Rewards"
SHAPE: Final = "Shaping the reward"
METHOD: Final = "Method"
DIVISOR: Final = "Divisor"
SKIPPED: Final = "Constant groups, small groups, singletons"
POST: Final = "Afterwards"
ROLE: Final = "Extra columns that some methods read"
MESSAGES: Final = "Messages and checks"
LOOK: Final = "What is shown"
CHOICE: Final = "Which groups and rows"
COMPARED: Final = "What is compared"
CHECKED: Final = "What is checked"
EXPORT: Final = "What is exported"
SFT: Final = "Of --to sft"
PAIRS: Final = "Of --to pairs"
WEIGHTS: Final = "Of --to weights"
PROMPTS: Final = "Of --to prompts"
TOKENS: Final = "Tokens (compute --per-token, export --to tokens)"
# The panels whose options make a plan.
PLAN: Final = (REWARDS, SHAPE, METHOD, DIVISOR, SKIPPED, POST)

Whiten = Literal["none", "sample", "token"]
Missing = Literal["error", "exclude", "zero", "as-zero", "propagate"]
Singleton = Literal["zero", "raw", "unit", "nan", "null", "drop", "error"]
# Commands that list names which an option may take.
Listing = Literal["", "methods", "presets", "schemas"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option, or the argument of a command: its name, what it takes and what it means.

    `sets` is the setting of the plan that it is another word for; a text that means more than one setting is
    translated in `resolve.settings`. `values` is the command that lists the names that it takes. `spelled` is the flag
    where it is not the name, and what an argument is called; `other` is a second flag.
    """

    name: str
    type: Any
    help: str
    panel: str = ""
    short: str = ""
    other: str = ""
    metavar: str | None = None
    sets: str = ""
    spelled: str = ""
    values: Listing = ""
    required: bool = False

    @property
    def flag(self) -> str:
        """How it is spelled on the command line."""
        return self.spelled or f"--{self.name.replace('_', '-')}"

    @property
    def is_argument(self) -> bool:
        """Whether it is given by its place instead of a flag."""
        return not self.flag.startswith("-")


_ROWS: Final = (
    Option(name="stream", type=bool, panel=INPUT,
           help="Standard input has its groups one after the other: each leaves as soon as it is complete."),
    Option(name="long", type=bool, panel=INPUT,
           help="One row per rollout, where the input has several in a record (lists, nested traces)."),
    Option(name="on_error", type=Literal["error", "skip"], panel=INPUT,
           help="Lines that are not JSON, as a last one cut short: stop (default), or leave them out and count them."),
    Option(name="max_line", type=int, metavar="BYTES", panel=INPUT,
           help="The longest line of text that is read (default 268435456): it has to fit into memory."),
    Option(name="config", type=str, metavar="FILE", panel=INPUT, help="TOML file with options by these names; flags win."),
    Option(name="output", short="-o", type=str, metavar="FILE|DIR/|-", panel=OUTPUT,
           help="Where to write, also s3://, gs://, az://; the suffix decides the format. Without it: beside the input, or stdin to stdout."),
    Option(name="force", type=bool, panel=OUTPUT, help="Replace an output file that exists."),
    Option(name="in_place", type=bool, panel=OUTPUT,
           help="Write into the inputs themselves; Parquet grows by the new column, the rest is rewritten and renamed."),
    Option(name="resume", type=bool, panel=OUTPUT,
           help="Skip outputs in DIR/ that an interrupted run with --resume, of the same plan and inputs, has finished."),
    Option(name="column", type=str, metavar="NAME", panel=OUTPUT, help="Name of the column with the advantages (default: advantage)."),
    Option(name="replace", type=bool, panel=OUTPUT, help="Compute a column anew that the input already has."),
    Option(name="dtype", type=Literal["f64", "f32"], panel=OUTPUT, help="Type of the new column (default: f64)."),
    Option(name="per_token", type=bool, panel=OUTPUT,
           help="The advantage on every token of the response, as a list column (needs --tokens, --mask or --length-column)."),
    Option(name="facts", type=bool, panel=OUTPUT, help="Also write COLUMN_mean, _std, _size and _status."),
    Option(name="only", type=bool, panel=OUTPUT, help="Write only the key, the rewards and the new columns."),
    Option(name="duplicate", type=bool, panel=OUTPUT,
           help="Refill dropped groups with copies of surviving ones (marked in COLUMN_copy)."),
    Option(name="seed", type=int, metavar="N", panel=OUTPUT, help="Which groups --duplicate copies, which rows or groups select draws (default: 0)."),
    Option(name="schema", type=str, metavar="NAME|none", values="schemas", panel=GROUPS,
           help="How the file is laid out (grpo-adv schemas lists them). Without it: recognised, and reported."),
    Option(name="group", short="-g", type=list[str], metavar="COL[,COL]", panel=GROUPS,
           help="Key column(s) of a group; dots reach into nested fields. Without it: found by name, and reported."),
    Option(name="group_size", type=int, metavar="N", panel=GROUPS,
           help="Groups are blocks of N consecutive rows (inside each key when --group is given)."),
    Option(name="partial", type=Literal["keep", "drop"], panel=GROUPS, help="What to do with a last block of fewer rows."),
    Option(name="expect_size", type=int, metavar="N", panel=GROUPS, help="Stop when a group has another size."),
    Option(name="group_within", type=str, metavar="COL|file|input", panel=GROUPS,
           help="Where a key is unique: in each value of a column, each file, or the whole input."),
    Option(name="batch_by", type=str, metavar="COL|file|input", panel=GROUPS,
           help="Rows that are normalised together: by column, by file, or the whole input."),
    Option(name="rollout", type=str, metavar="COL", panel=GROUPS,
           help="Id of a rollout that has several rows: it counts once, and its rows share the advantage."),
    Option(name="rollout_reward", type=Literal["first", "last", "mean", "each"], panel=GROUPS, sets="unit.take",
           help="Which reward a rollout counts with (default with --rollout: last)."),
    Option(name="reward", short="-r", type=list[str], metavar="COL[=WEIGHT]", panel=REWARDS,
           help="Reward column, or in objects of a list by its path, as 'rollouts[].correct'; repeat it for several. Without it: found by name, and reported."),
    Option(name="map", type=list[str], metavar="TEXT=NUMBER,...", panel=REWARDS,
           help="What a text in the place of a reward counts as, as 'pass=1,fail=0'; any other text stops the run."),
    Option(name="combine", type=Literal["sum", "normalize"], panel=REWARDS, sets="rewards.combine",
           help="Add the columns, or estimate for each and add the advantages (GDPO)."),
    Option(name="missing", type=Missing, metavar="RULE", panel=REWARDS, sets="rewards.missing",
           help="Rows without a finite reward: error (stop; default), exclude (leave out), zero (leave out, and give 0), as-zero (count as reward 0) or propagate (let NaN spread)."),
    Option(name="component_missing", type=Literal["skip", "zero", "propagate"], panel=REWARDS,
           sets="rewards.component_missing",
           help="One of several rewards is missing: skip it (default), count it as 0, or the row has no reward."),
    Option(name="reward_shift", type=float, metavar="X", panel=SHAPE, sets="shape.affine.shift", help="r becomes (r + X) * scale."),
    Option(name="reward_scale", type=float, metavar="X", panel=SHAPE, sets="shape.affine.scale", help="r becomes (r + shift) * X."),
    Option(name="reward_clip", type=str, metavar="LO:HI", panel=SHAPE, help="Clip the reward."),
    Option(name="kl_coef", type=float, metavar="X", panel=SHAPE, sets="shape.kl.coef", help="r becomes r - X * kl (needs --kl-column)."),
    Option(name="overlong", type=str, metavar="MAX:BUFFER:PENALTY", panel=SHAPE,
           help="DAPO's soft length penalty (needs --length-column)."),
    Option(name="preset", type=str, metavar="NAME", values="presets", panel=METHOD,
           help="A framework's exact arithmetic, as trl-grpo; flags override it; grpo-adv presets lists them."),
    Option(name="method", short="-m", type=str, metavar="NAME", values="methods", panel=METHOD, sets="estimator.name",
           help="The estimator (default: grpo); grpo-adv methods lists them."),
    Option(name="param", short="-p", type=list[str], metavar="NAME=VALUE", panel=METHOD, help="A parameter of the method."),
    Option(name="expr", type=str, metavar="SQL", panel=METHOD, sets="estimator.sql",
           help="A formula of your own, as '(reward - mean) / (std + epsilon)'."),
    Option(name="set", type=list[str], metavar="PART.FIELD=VALUE", panel=METHOD, help="Any field of the plan (see --explain)."),
    Option(name="scale", short="-s", type=Literal["group", "batch", "none"], panel=DIVISOR, sets="divisor.level",
           help="Whose standard deviation divides (default: the method's own; grpo group, rloo none)."),
    Option(name="epsilon", type=float, metavar="X", panel=DIVISOR, sets="divisor.epsilon",
           help="Added to the standard deviation (default: 1e-6)."),
    Option(name="ddof", type=int, metavar="0|1", panel=DIVISOR, sets="divisor.ddof",
           help="Divide the squares by n - ddof: 1 as torch.std (default), 0 as numpy.std."),
    Option(name="std_of", type=Literal["reward", "residual"], panel=DIVISOR, sets="divisor.of",
           help="The standard deviation of the rewards (default) or of what is left after the baseline."),
    Option(name="singleton", type=Singleton, metavar="RULE", panel=SKIPPED,
           help="A group with one scored row: zero (default), raw (its reward), unit (reward/(1+epsilon)), nan, null, drop (leave out) or error (stop)."),
    Option(name="zero_variance", type=Literal["keep", "drop", "null"], panel=SKIPPED, sets="groups.zero_variance",
           help="Constant groups: keep with 0 (default), leave out, or write null."),
    Option(name="std_threshold", type=float, metavar="T", panel=SKIPPED, sets="groups.std_threshold",
           help="Constant also means std <= T."),
    Option(name="min_group_size", type=int, metavar="N", panel=SKIPPED, sets="groups.min_size",
           help="Groups with fewer scored rows get null (--set groups.small=zero|drop)."),
    Option(name="whiten", type=Whiten, panel=POST,
           help="Standardise over the batch, each row or each token counting once."),
    Option(name="whiten_epsilon", type=float, metavar="X", panel=POST, sets="post.whiten.inside",
           help="Added to the variance under the root (default: 1e-8)."),
    Option(name="clip", type=str, metavar="LO:HI", panel=POST, help="Clip the advantage."),
    *(Option(name=role.flag.removeprefix("--").replace("-", "_"), type=str, metavar="COL", panel=ROLE,
             help=f"{role.meaning[0].upper()}{role.meaning[1:]}." + (" 'equal': every response has the same." if role.name == "length" else ""))
      for role in ROLES.values() if role.name != "rollout"),
    Option(name="engine", type=Literal["local", "ray"], panel=ENGINE,
           help="Compute in this process (default), or in tasks on a Ray cluster: the same numbers. Every machine needs the same files: a shared path or a store."),
    Option(name="ray_address", type=str, metavar="auto|HOST:PORT|local", panel=ENGINE,
           help="The cluster; local starts one on this machine for the run. Without it: RAY_ADDRESS, or else local."),
    Option(name="explain", other="--dry-run", type=bool, panel=MESSAGES,
           help="Show columns, grouping, formula and one group worked out; write nothing."),
    Option(name="fail_on", type=str, metavar="CONDITION", panel=MESSAGES,
           help="Exit 3 and write nothing when it holds, as 'zero_variance_share > 0.5'."),
    Option(name="json", type=bool, panel=MESSAGES, help="The result as JSON."),
    Option(name="summary", type=str, metavar="FILE", panel=MESSAGES, help="Also write the summary as JSON to a file."),
    Option(name="quiet", short="-q", type=bool, panel=MESSAGES, help="No summary and no progress, only errors."),
    Option(name="debug", type=bool, panel=MESSAGES, help="Show tracebacks, and what was read slowly and why."),
)  # fmt: skip

OPTIONS: Final[Mapping[str, Option]] = MappingProxyType({row.name: row for row in _ROWS})
# Options of other commands than `compute`.
_MORE: Final = (
    Option(name="by", type=str, metavar="COL", panel=LOOK, help="A line for each value of a column, such as the step: a trend."),
    Option(name="show", type=str, metavar="KEY", panel=LOOK,
           help="The rows of one group with reward, advantage and the beginning of the text."),
    Option(name="top", type=int, metavar="N", panel=LOOK, help="How many groups are listed at either end (default: 3)."),
    Option(name="sort", type=str, metavar="FACT", panel=LOOK, help="What groups are listed by (default: std)."),
    Option(name="format", type=Literal["md", "csv"], panel=LOOK,
           help="Only the table, for another program: all groups, or the trend of --by, or the rows of --show."),
    Option(name="text_column", type=str, metavar="COL", panel=LOOK,
           help="The text of the response (without it: found by name)."),
    Option(name="duplicates", type=bool, panel=LOOK, help="Look for equal texts inside a group in large files, too."),
    Option(name="before", spelled="--against", type=str, metavar="INPUT", panel=LOOK,
           help="Another run on the same prompts: how solve rates changed from it to this one, with an interval."),
    Option(name="methods", type=str, metavar="NAME,...", panel=LOOK,
           help="Methods whose advantages are drawn (default: grpo,rloo,dr-grpo)."),
    Option(name="presets", spelled="--preset", type=list[str], metavar="NAME[,OPTION=X]", values="presets", panel=COMPARED,
           help="A preset to compare, as trl-grpo or trl-grpo,scale=batch; repeat it."),
    Option(name="contenders", spelled="--method", short="-m", type=list[str], metavar="NAME[,OPTION=X]", values="methods", panel=COMPARED,
           help="A method to compare, as rloo or grpo,epsilon=1e-4; repeat it."),
    Option(name="write", type=bool, panel=COMPARED, help="Weave all the columns into the file, as advantage_NAME."),
    Option(name="to", type=Literal["sft", "pairs", "weights", "prompts", "tokens"], panel=EXPORT, required=True,
           help="sft: the best rows of each group. pairs: a better and a worse response. weights: rows with a weight. prompts: one row a prompt. tokens: the advantage on every token."),
    Option(name="prompt", type=str, metavar="COL", panel=EXPORT,
           help="The prompt, a text or messages; dots reach into nested fields. Without it: from the schema or by name, and reported."),
    Option(name="response", type=str, metavar="COL", panel=EXPORT, help="The response, a text or messages. Without it: as --prompt."),
    Option(name="messages", type=str, metavar="COL", panel=EXPORT, help="Instead of both: a conversation that ends with the response."),
    Option(name="best", spelled="--pick", type=Literal["best", "all-above"], panel=SFT,
           help="The best rows of each group (default), or all above its mean (with --min-reward: all that reach it)."),
    Option(name="min_reward", type=float, metavar="X", panel=SFT, help="Only rows with a reward of at least X."),
    Option(name="keep_duplicates", type=bool, panel=SFT,
           help="Keep rows with the same prompt and response (default: of a group the best one, of several groups the first)."),
    Option(name="pairs", type=Literal["extremes", "adjacent", "all"], panel=PAIRS,
           help="Of each group the best and the worst (default), each reward and the next lower one, or all with different rewards."),
    Option(name="min_margin", type=float, metavar="X", panel=PAIRS, help="Only pairs whose rewards differ by at least X."),
    Option(name="max_pairs", type=int, metavar="N", panel=PAIRS,
           help="At most N pairs of each group: those of the widest margins, or with --seed a random choice."),
    Option(name="weight", type=Literal["exp", "softmax", "positive"], panel=WEIGHTS,
           help="exp (default): w = min(exp(A/beta), max), times n / (sum of w in the group), so that a group has mean 1. softmax: exp(A/beta) / (sum of them in the group). positive: max(A, 0)."),
    Option(name="beta", type=float, metavar="X", panel=WEIGHTS, help="The temperature of exp and softmax (default: 1)."),
    Option(name="max_weight", type=float, metavar="X", panel=WEIGHTS, help="The largest exp(A/beta), before the group is normalised (default: 20)."),
    Option(name="pool", type=bool, panel=PROMPTS, help="Groups of the same prompt count as one, as those of several steps or runs."),
    Option(name="pass_at", type=str, metavar="K,...", panel=PROMPTS,
           help="Columns pass@K: 1 - C(n-c, K) / C(n, K) of n rows of which c are solved; null where n < K."),
    Option(name="solved_at", type=float, metavar="X", panel=PROMPTS,
           help="A row is solved with a reward of at least X (default: the highest of the input); of any kind with pass@K in --where."),
    Option(name="tokens", type=str, metavar="COL", panel=TOKENS,
           help="The list of the response's tokens; with --length-column or --mask that of the whole sequence."),
    Option(name="mask", type=str, metavar="COL", panel=TOKENS,
           help="A number for each token: the advantage stands where it is not 0 (or -100), and 0 elsewhere."),
    Option(name="prompt_tokens", type=str, metavar="COL", panel=TOKENS,
           help="The tokens of the prompt, a list or their number: as many zeros stand before."),
    Option(name="where", short="-w", type=str, metavar="CONDITION", panel=CHOICE,
           help="Keep the groups for which it holds, as '0.1 <= mean <= 0.9 and std > 0'."),
    Option(name="solved_from", spelled="--solved-at", type=float, metavar="X", panel=CHOICE,
           help="A row is solved from this reward on, for pass@K in --where and --by (default: the best reward that there is)."),
    Option(name="most", spelled="--top", type=int, metavar="N", panel=CHOICE,
           help="Keep the N groups with the largest fact that --by names; groups without it last."),
    Option(name="most_by", spelled="--by", type=str, metavar="FACT", panel=CHOICE,
           help="What --top goes by: std (default), mean, pass@4, ...; -FACT, as --by=-mean, takes the smallest."),
    Option(name="top_p", type=float, metavar="P", panel=CHOICE,
           help="Keep the fewest groups that hold the share P of the variance of the rewards inside groups, as 0.9."),
    Option(name="limit", type=int, metavar="N", panel=CHOICE,
           help="Keep at most N groups: the first ones, or with --seed a random choice."),
    Option(name="per_group", type=int, metavar="N", panel=CHOICE, help="Keep at most N rows of each group (export --to sft: 1 unless --pick all-above)."),
    Option(name="pick", type=Literal["best", "worst", "spread", "random"], panel=CHOICE,
           help="Which rows --per-group keeps (default: spread, those whose rewards differ most)."),
    Option(name="against", type=str, metavar="IN", panel=CHECKED, required=True, help="The file that it was made from."),
    Option(name="columns", spelled="--column", type=list[str], metavar="NAME", panel=CHECKED,
           help="Added or replaced column (default: the new names)."),
)  # fmt: skip
EVERY: Final[Mapping[str, Option]] = MappingProxyType({row.name: row for row in (*_ROWS, *_MORE)})
# What a frame in memory can be given: everything but files and messages.
ON_FRAMES: Final = tuple(row.name for row in _ROWS if row.panel not in {INPUT, OUTPUT, ENGINE, MESSAGES})
