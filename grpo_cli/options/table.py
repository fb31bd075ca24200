"""The options and the commands, each declared once: the command line, `--config`, the Python API and the documents read these tables.

An option's panel is its heading in `--help`; commands list the panels that they take. The body of command NAME is the
function NAME in `cli/NAME.py`, which is loaded when the command is called. To add a command, add a row to `_COMMANDS` and
that module. Importing these tables loads neither polars nor typer.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Literal, get_args, get_origin

from grpo_cli.engine.extra_columns import ROLES

INPUT: Final = "Input"
OUTPUT: Final = "Output"
ENGINE: Final = "Beyond one machine"
GROUPS: Final = "Groups and batches"
REWARDS: Final = "Rewards"
SHAPE: Final = "Shaping the reward"
METHOD: Final = "Method"
DIVISOR: Final = "Divisor"
SKIPPED: Final = "Groups without a gradient, small groups, singletons"
POST: Final = "After the division"
ROLE: Final = "Extra columns for some methods"
MESSAGES: Final = "Messages and checks"
LOOK: Final = "What to show"
CHOICE: Final = "Which groups and rows to keep"
COMPARED: Final = "What to compare"
CHECKED: Final = "What to check"
SKILL: Final = "Where to install"
ADDED: Final = "What to add"
EXPORT: Final = "What to export"
SFT: Final = "For --to sft"
PAIRS: Final = "For --to pairs"
WEIGHTS: Final = "For --to weights"
PROMPTS: Final = "For --to prompts"
TOKENS: Final = "Tokens (compute --per-token, export --to tokens)"
# The panels whose options make a plan.
PLAN: Final = (REWARDS, SHAPE, METHOD, DIVISOR, SKIPPED, POST)

Whiten = Literal["none", "sample", "token"]
Missing = Literal["error", "exclude", "zero", "as-zero", "propagate"]
Singleton = Literal["zero", "raw", "unit", "nan", "null", "drop", "error"]
# The commands that list the names an option takes.
Listing = Literal["", "methods", "presets", "schemas"]


@dataclass(frozen=True)
class Option:
    """An option, or the argument of a command: its name, its type and its help.

    `brief` is what `--help` says in one line, where `help` (which `--help-all` and the documents show) is too long for that.
    `sets` is the plan field that the option sets; an option that sets several is translated in `resolve.settings`.
    `values` is the command that lists the names it takes. `spelled` is the flag where it differs from the name, and the
    placeholder of an argument; `other` is a second flag.
    """

    name: str
    help: str
    type: Any = str
    brief: str = ""
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
        """The flag on the command line."""
        return self.spelled or f"--{self.name.replace('_', '-')}"

    @property
    def is_argument(self) -> bool:
        """Whether it is positional."""
        return not self.flag.startswith("-")

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values it may have, if they are a fixed set."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def takes(self) -> str:
        """The placeholder after the flag; empty for one without a value."""
        return self.metavar or "|".join(self.choices)

    def words(self, value: Any) -> list[str]:
        """The command-line words that set this value."""
        if self.type is bool:
            return [self.flag if value else f"{self.flag}=false"]
        if isinstance(value, Mapping):  # the value of --plan
            value = [f"{of}:{','.join(f'{name}={own[name]}' for name in own)}" for of, own in value.items()]
        items = map(str, value if isinstance(value, list) else [value])
        return [word for item in items for word in ([f"{self.flag}={item}"] if item[:1] == "-" else [self.flag, item])]


def _of_panels(panels: Mapping[str, tuple[Option, ...]]) -> tuple[Option, ...]:
    """The options of these panels; a number has the usual placeholder if it has none of its own."""
    usual = {int: "N", float: "X"}
    return tuple(
        replace(row, panel=panel, metavar=row.metavar or usual.get(row.type))
        for panel, rows in panels.items()
        for row in rows
    )


NO_ROLLOUTS: Final = "none"  # --rollout none: every row is a rollout

_ROWS: Final = _of_panels({
    INPUT: (
        Option("stream", type=bool,
               help="Standard input is sorted by group: write each group as soon as it is complete."),
        Option("long", type=bool,
               help="Write one row per rollout where a record of the input has several (lists, nested traces)."),
        Option("on_error", type=Literal["error", "skip"],
               help="Lines that are not JSON, such as a truncated last line: stop (default), or skip and count them."),
        Option("max_line", type=int, metavar="BYTES",
               help="Longest line to read (default: 268435456). Each line must fit in memory.",
               brief="Longest line to read"),
        Option("config", metavar="FILE",
               help="TOML file with these options; flags override it. Of a pyproject.toml, the table [tool.grpo-adv]. Default: the file that GRPO_ADV_CONFIG names.",
               brief="TOML file with these options"),
        Option("no_config", type=bool,
               help="Ignore GRPO_ADV_CONFIG, and print no note about a grpo-adv.toml that is not read.",
               brief="Ignore config files"),
    ),
    OUTPUT: (
        Option("output", short="-o", metavar="FILE|DIR/|-",
               help="Output file, directory or URL (s3://, gs://, az://). The suffix sets the format. Default: next to the input; stdin goes to stdout; required by export.",
               brief="Output file, DIR/, or - for stdout"),
        Option("force", type=bool, help="Overwrite an existing output file."),
        Option("in_place", type=bool,
               help="Replace the input files by their outputs: each is written beside its input, and renamed.",
               brief="Add the column to the input files themselves"),
        Option("column", metavar="NAME", help="Name of the advantage column (default: advantage).",
               brief="Name of the advantage column"),
        Option("replace", type=bool, help="Overwrite the column if the input already has it.",
               brief="Overwrite a column that the input has"),
        Option("dtype", type=Literal["f64", "f32"], help="Type of the new column (default: f64)."),
        Option("per_token", type=bool,
               help="Write the advantage for every response token, as a list column (needs --tokens, --mask or --length-column)."),
        Option("facts", type=bool, help="Also write COLUMN_mean, _std, _size and _status."),
        Option("only", type=bool, help="Write only the group key, the rewards and the new columns."),
        Option("duplicate", type=bool,
               help="Replace dropped groups with copies of kept ones (marked in COLUMN_copy)."),
        Option("seed", type=int, help="Seed for --duplicate, and for the random choices of select and export (default: 0).",
               brief="Seed of a random choice"),
    ),
    GROUPS: (
        Option("schema", metavar="NAME|none", values="schemas",
               help="File layout (grpo-adv schemas lists them). Default: detected and reported.",
               brief="File layout (default: detected)"),
        Option("schemas", metavar="FILE",
               help="TOML file with your own schemas; they are detected too.", brief="TOML file with your own schemas"),
        Option("group", short="-g", type=list[str], metavar="COL[,COL]",
               help="Columns of the group key; dots reach into nested fields. Default: found by name and reported.",
               brief="Columns of the group key (default: by name)"),
        Option("group_size", type=int,
               help="Groups are blocks of N consecutive rows (within each key if --group is given).",
               brief="Groups are blocks of N consecutive rows"),
        Option("partial", type=Literal["keep", "drop"], help="What to do with an incomplete last block."),
        Option("expect_size", type=int, help="Stop if any group has a different size."),
        Option("group_within", metavar="COL|file|input",
               help="Where a group key is unique: within each value of a column, each file, or the whole input.",
               brief="Where a key is unique: step, file or input"),
        Option("batch_by", metavar="COL|file|input",
               help="Which rows form a batch: those with the same value in a column, those of the same file, or the whole input.",
               brief="What a batch is: a step, a file or the input"),
        Option("rollout", metavar="COL|none",
               help="Column with the rollout id, if a rollout has several rows: it counts once, and its rows share the advantage. none: every row is a rollout. Default: from the schema, and reported."),
        Option("rollout_reward", type=Literal["first", "last", "mean", "each"], sets="unit.take",
               help="Reward of a rollout with several rows: first, last or mean of theirs (default: they must be equal). each: every row counts."),
        Option("masked_column", metavar="COL[=VALUE]",
               help="Column that marks rows which count in their group and are not trained on (sample_loss_mask=0, remove_sample): a word for true, or VALUE. Their status is masked. Not the token mask of --mask.",
               brief="Column that marks rows not trained on"),
        Option("left_out_column", metavar="COL[=VALUE]",
               help="Column that marks rows which leave their group before the mean (has_error, failure_kind=timeout): a word for true, a text that is not empty, or VALUE. Their advantage is null.",
               brief="Column that marks rows to leave out"),
        Option("masked_rows", type=Literal["vote", "exclude"],
               help="Whether marked rows count in their group: vote (count, and are not trained on) or exclude (left out). Default: as the preset's tool does, else the tool that wrote the file."),
    ),
    REWARDS: (
        Option("reward", short="-r", type=list[str], metavar="COL[=WEIGHT]",
               help="Reward column; inside a list of objects, its path: 'rollouts[].correct'. Repeat for several. Default: found by name and reported.",
               brief="Reward column; repeat it for several"),
        Option("map", type=list[str], metavar="TEXT=NUMBER,...",
               help="Rewards for text values, for example 'pass=1,fail=0' (N/A=nan: a missing reward); any other text stops the run.",
               brief="Rewards for text values: pass=1,fail=0"),
        Option("combine", type=Literal["sum", "normalize"], sets="rewards.combine",
               help="Add the reward columns (default), or estimate each and add the advantages (GDPO)."),
        Option("missing", type=Missing, sets="rewards.missing",
               help="Rows without a finite reward: error (default: stop), exclude (leave out), zero (leave out, advantage 0), as-zero (count as reward 0) or propagate (NaN spreads).",
               brief="Rows without a finite reward"),
        Option("component_missing", type=Literal["skip", "zero", "propagate"],
               sets="rewards.component_missing",
               help="If one of several rewards is missing: skip it (default), count it as 0, or treat the row as having no reward."),
    ),
    SHAPE: (
        Option("reward_shift", type=float, sets="shape.affine.shift", help="r becomes (r + X) * scale."),
        Option("reward_scale", type=float, sets="shape.affine.scale", help="r becomes (r + shift) * X."),
        Option("reward_clip", metavar="LO:HI", help="Clip the rewards."),
        Option("kl_coef", type=float, sets="shape.kl.coef", help="r becomes r - X * kl (needs --kl-column)."),
        Option("overlong", metavar="MAX:BUFFER:PENALTY",
               help="DAPO's soft length penalty (needs --length-column)."),
    ),
    METHOD: (
        Option("preset", metavar="NAME", values="presets",
               help="A framework's exact arithmetic, for example trl-grpo (grpo-adv presets lists them). Flags override it.",
               brief="A framework's exact arithmetic: trl-grpo ..."),
        Option("presets", metavar="FILE",
               help="TOML file with your own presets, for --preset.", brief="TOML file with your own presets"),
        Option("method", short="-m", metavar="NAME", values="methods", sets="estimator.name",
               help="Advantage estimator (default: grpo; grpo-adv methods lists them).",
               brief="Advantage estimator: grpo, rloo, dr-grpo ..."),
        Option("param", short="-p", type=list[str], metavar="NAME=VALUE", help="Parameter of the method."),
        Option("expr", metavar="SQL", sets="estimator.sql",
               help="Your own formula, for example '(reward - mean) / (std + epsilon)'."),
        Option("set", type=list[str], metavar="PART.FIELD=VALUE", help="Set any field of the plan (--explain lists them)."),
        Option("plan_by", metavar="COL",
               help="A separate plan for each value of a column, such as env_name: each value's rows are computed as in a separate run.",
               brief="A plan for each value of a column"),
        Option("plans", spelled="--plan", type=list[str], metavar="VALUE:OPTION=X,...",
               help="Plan for one value of --plan-by, for example math:preset=trl-grpo,scale=batch; in a config file, a table [plan.math]. default:... is for all other values; chat:with=math adds chat to the part of math.",
               brief="Plan for a value: math:preset=trl-grpo"),
    ),
    DIVISOR: (
        Option("scale", short="-s", type=Literal["group", "batch", "none"], sets="divisor.level",
               help="Divide by the standard deviation of the group or the batch, or not at all (default: the method's own; grpo: group, rloo: none).",
               brief="What to divide by (default: as the method)"),
        Option("epsilon", type=float, sets="divisor.epsilon",
               help="Added to the standard deviation (default: 1e-6)."),
        Option("ddof", type=int, metavar="0|1", sets="divisor.ddof",
               help="Divide the sum of squares by n - ddof: 1 like torch.std (default), 0 like numpy.std."),
        Option("std_of", type=Literal["reward", "residual"], sets="divisor.of",
               help="Standard deviation of the rewards (default) or of the residuals after the baseline."),
    ),
    SKIPPED: (
        Option("singleton", type=Singleton, metavar="RULE",
               help="Advantage of a group with one scored row: zero (default), raw (its reward), unit (reward/(1+epsilon)), nan, null; drop leaves it out, error stops."),
        Option("zero_variance", type=Literal["keep", "drop", "null"], sets="groups.zero_variance",
               help="Groups without a gradient (all rewards equal): keep with advantage 0 (default), drop, or write null.",
               brief="Groups with equal rewards"),
        Option("std_threshold", type=float, metavar="T", sets="groups.std_threshold",
               help="Also treat groups with std <= T as groups without a gradient."),
        Option("min_group_size", type=int, sets="groups.min_size",
               help="Groups with fewer scored rows get null (--set groups.small=zero|drop changes that)."),
    ),
    POST: (
        Option("whiten", type=Whiten,
               help="Standardise the advantages over the batch, weighting each sample or each token equally."),
        Option("whiten_epsilon", type=float, sets="post.whiten.inside",
               help="Added to the variance under the square root (default: 1e-8)."),
        Option("clip", metavar="LO:HI", help="Clip the advantages."),
    ),
    ROLE: (
        *(Option(role.flag.removeprefix("--").replace("-", "_"), metavar="COL",
                 help=f"{role.meaning[0].upper()}{role.meaning[1:]}." + (" 'equal' means that all responses have the same length." if role.name == "length" else ""))
          for role in ROLES.values() if role.name != "rollout"),
    ),
    ENGINE: (
        Option("engine", type=Literal["local", "ray"],
               help="Read and write files in this process (default) or in tasks on a Ray cluster; the outputs are the same. Every machine must see the same files, on a shared path or in a store."),
        Option("ray_address", metavar="auto|HOST:PORT|local",
               help="Cluster to use; local starts one on this machine for the run. Default: RAY_ADDRESS, else local."),
    ),
    MESSAGES: (
        Option("explain", other="--dry-run", type=bool,
               help="Show the columns, the grouping, the formula and one group worked out; write nothing.",
               brief="Show columns and formula; write nothing"),
        Option("fail_on", type=list[str], metavar="CONDITION",
               help="Exit 3 and write nothing if the condition holds, for example 'zero_variance_share > 0.5'; of several, any.",
               brief="Exit with status 3 if the condition holds"),
        Option("json", type=bool, help="Print the result as JSON."),
        Option("summary", metavar="FILE", help="Also write the summary as JSON to a file."),
        Option("quiet", short="-q", type=bool, help="Print errors only, no summary and no progress.",
               brief="Print errors only"),
        Option("color", type=Literal["auto", "always", "never"],
               help="Colours: on terminals unless NO_COLOR is set (auto), always or never.",
               brief="When to use colours"),
        Option("debug", type=bool, help="Show tracebacks, and which data took the slow reader and why.",
               brief="Show tracebacks, and slowly read data"),
    ),
})  # fmt: skip

OPTIONS: Final[Mapping[str, Option]] = MappingProxyType({row.name: row for row in _ROWS})
# Options that `compute` does not have.
_MORE: Final = _of_panels({
    LOOK: (
        Option("by", metavar="COL", help="Trend: one line per value of a column, such as step.",
               brief="Trend over the values of a column: step"),
        Option("show", metavar="KEY",
               help="Show the rows of one group: reward, advantage and the ends of the text.",
               brief="Rows of one group"),
        Option("top", type=int, help="How many groups to list at each end (default: 3).",
               brief="How many groups to list at each end"),
        Option("sort", metavar="FACT", help="Sort the listed groups by this fact (default: std; in browse: file order).",
               brief="Sort the listed groups by this fact"),
        Option("format", type=Literal["md", "csv"],
               help="Print only a table, for other programs: all groups, the trend of --by, or the rows of --show.",
               brief="Print only a table, for other programs"),
        Option("text_column", metavar="COL",
               help="Column with the response text (default: found by name).",
               brief="Column with the response text"),
        Option("duplicates", type=bool, help="Look for identical texts within groups even in large files."),
        Option("before", spelled="--against", type=list[str], metavar="[NAME=]INPUT",
               help="An earlier run on the same prompts: how solve rates have changed, with a 95% interval. Of several, the first is the base.",
               brief="What changed since an earlier run"),
        Option("cluster", metavar="COL",
               help="With --against: prompts with the same value (a problem family, an environment) count together in the intervals.",
               brief="Prompts that count together in intervals"),
        Option("rescored", spelled="--old-rewards", other="--rescored", metavar="INPUT",
               help="An input with the old rewards of the same rollouts: how far they agree with the new ones, which groups gain or lose their gradient, and which advantages change.",
               brief="An input with their old rewards"),
        Option("rescored_column", spelled="--old-rewards-column", other="--rescored-column", metavar="COL",
               help="Column of the old rewards, in the --old-rewards input or else in this one (with --reward NEW).",
               brief="Column of the old rewards"),
        Option("methods", metavar="NAME,...",
               help="Methods whose advantages to plot (default: grpo,rloo,dr-grpo).",
               brief="Methods whose advantages to plot"),
    ),
    COMPARED: (
        Option("compared_presets", spelled="--preset", type=list[str], metavar="NAME[,OPTION=X]", values="presets",
               help="Preset to compare, for example trl-grpo or trl-grpo,scale=batch. Repeat for several.",
               brief="Preset to compare; repeat it for several"),
        Option("contenders", spelled="--method", short="-m", type=list[str], metavar="NAME[,OPTION=X]", values="methods",
               help="Method to compare, for example rloo or grpo,epsilon=1e-4. Repeat for several.",
               brief="Method to compare; repeat it for several"),
        Option("vs_reward", type=list[str], metavar="COL[=WEIGHT]",
               help="Another reward column for the same plan, compared with that of --reward. Repeat for several.",
               brief="Another reward for the same plan"),
        Option("write", type=bool, help="Add a column advantage_NAME to the file for each plan.",
               brief="Add a column for each plan to the file"),
    ),
    EXPORT: (
        Option("to", type=Literal["sft", "pairs", "weights", "prompts", "tokens"], required=True,
               help="sft: the best rows of each group. pairs: preference pairs (DPO). weights: rows with a weight. prompts: one row per prompt. tokens: the advantage of every token.",
               brief="What to export (required)"),
        Option("prompt", metavar="COL",
               help="Column with the prompt, text or messages; dots reach into nested fields. Default: from the schema or by name, and reported.",
               brief="Column with the prompt (default: found)"),
        Option("response", metavar="COL", help="Column with the response, text or messages. Default: as for --prompt.",
               brief="Column with the response (default: found)"),
        Option("messages", metavar="COL", help="Column with a conversation that ends with the response, instead of --prompt and --response.",
               brief="Column with a whole conversation, instead"),
    ),
    SFT: (
        Option("best", spelled="--pick", type=Literal["best", "all-above"],
               help="The best rows of each group (default), or all rows above the group mean (with --min-reward: all that reach it).",
               brief="The best rows, or all above the mean"),
        Option("min_reward", type=float, help="Only rows with a reward of at least X."),
        Option("keep_duplicates", type=bool,
               help="Keep repeated prompts with the same response (default: within a group the best is kept, across groups the first)."),
    ),
    PAIRS: (
        Option("pairs", type=Literal["extremes", "adjacent", "all"],
               help="Per group: the best and the worst response (default), each reward and the next lower one, or all pairs with different rewards.",
               brief="Which responses make a pair"),
        Option("min_margin", type=float, help="Only pairs whose rewards differ by at least X.",
               brief="Smallest reward difference within a pair"),
        Option("max_pairs", type=int,
               help="At most N pairs per group: the widest margins, or with --seed a random choice."),
    ),
    WEIGHTS: (
        Option("weight", type=Literal["exp", "softmax", "positive"],
               help="exp (default): w = min(exp(A/beta), max), scaled to mean 1 in each group. softmax: exp(A/beta) / its sum over the group. positive: max(A, 0).",
               brief="How advantages become weights (default: exp)"),
        Option("beta", type=float, help="Temperature of exp and softmax (default: 1)."),
        Option("max_weight", type=float, help="Largest exp(A/beta), before groups are normalised (default: 20)."),
    ),
    PROMPTS: (
        Option("pool", type=bool, help="Pool groups with the same prompt, for example from several steps or runs.",
               brief="Pool groups with the same prompt"),
        Option("pass_at", metavar="K,...",
               help="Add pass@K columns: 1 - C(n-c, K) / C(n, K) for c solved rows of n; null where n < K."),
        Option("solved_at", type=float,
               help="A row counts as solved if its reward is at least X (default: the highest reward of the input). With pass@K in --where, for every kind of export."),
    ),
    TOKENS: (
        Option("tokens", metavar="COL",
               help="Column with the list of response tokens, or of all tokens of the sequence if --length-column or --mask is given."),
        Option("mask", metavar="COL",
               help="Column with one number per token: tokens with 0 or -100 get 0, the others the advantage."),
        Option("prompt_tokens", metavar="COL",
               help="Column with the prompt tokens, a list or a count: that many zeros come first."),
    ),
    CHOICE: (
        Option("where", short="-w", type=list[str], metavar="CONDITION",
               help="Keep groups that meet the condition, for example '0.1 <= mean <= 0.9 and std > 0'; of several, all.",
               brief="Keep groups that meet it: 'std > 0'"),
        Option("solved_from", spelled="--solved-at", type=float,
               help="A row counts as solved if its reward is at least X, for pass@K in --where and --by (default: the highest reward).",
               brief="Rewards of at least X count as solved"),
        Option("most", spelled="--top", type=int,
               help="Keep the N groups with the largest --by fact; groups without that fact come last.",
               brief="Keep the N groups with the largest --by"),
        Option("most_by", spelled="--by", metavar="FACT",
               help="Fact for --top: std (default), mean, pass@4, ...; --by=-mean takes the smallest.",
               brief="Fact for --top: std (default), mean, pass@4"),
        Option("top_p", type=float, metavar="P",
               help="Keep the smallest set of groups whose reward variances add up to a share P of all, for example 0.9.",
               brief="Fewest groups with share P of the variance"),
        Option("top_p_slack", type=float,
               help="Subtract X from the sum that --top-p asks for; RAGEN-2 takes 0.01 and skips a batch below it."),
        Option("limit", type=int,
               help="Keep at most N groups: the first, or with --seed a random choice.",
               brief="Keep at most N groups"),
        Option("per_group", type=int, help="Keep at most N rows per group (export --to sft: 1 unless --pick all-above).",
               brief="Keep at most N rows of each group"),
        Option("pick", type=Literal["best", "worst", "spread", "random"],
               help="Which rows --per-group keeps (default: spread, the rows whose rewards differ most).",
               brief="Which rows --per-group keeps"),
    ),
    SKILL: (
        Option("install", metavar="DIR", help="Write DIR/grpo-adv/SKILL.md instead of printing it.",
               brief="Write DIR/grpo-adv/SKILL.md"),
    ),
    ADDED: (
        Option("source", spelled="--from", metavar="COLUMNS", required=True,
               help="File with the columns, in any supported format; its row i belongs to row i of FILE, or to those with the same key (--on).",
               brief="File with the columns (required)"),
        Option("chosen", spelled="--column", type=list[str], metavar="NAME[=NEW]",
               help="Column of --from to add, and its name in the output. Repeat for several (default: all).",
               brief="Column to add, and its name (default: all)"),
        Option("on", type=list[str], metavar="COL[,COL]",
               help="Match rows by these columns of both files, HERE=THERE where the names differ; dots reach into nested fields. Rows without a match get null, and are counted.",
               brief="Match rows by these columns; HERE=THERE"),
        Option("take", type=Literal["first", "last", "mean"],
               help="With --on: what a row gets if several rows of --from have its key (default: stop).",
               brief="For several rows of --from with one key"),
        Option("by_position", type=bool, help="Add row i to row i although ids in both files differ.",
               brief="Row i belongs to row i, whatever the ids"),
    ),
    MESSAGES: (
        Option("all", type=bool,
               help="Also list old versions, code from papers, and methods that no trainer ships.",
               brief="Also list old versions and papers"),
    ),
    CHECKED: (
        Option("against", metavar="IN", required=True, help="The file that OUT was made from.",
               brief="The file that OUT was made from (required)"),
        Option("columns", spelled="--column", type=list[str], metavar="NAME",
               help="Added or replaced column (default: the columns that are new).",
               brief="Added column (default: those that are new)"),
    ),
})  # fmt: skip
EVERY: Final[Mapping[str, Option]] = MappingProxyType({row.name: row for row in (*_ROWS, *_MORE)})
# A plan for each value: not for commands that compute one plan on all rows.
BY_VALUE: Final = ("plan_by", "plans")
# What each plan of --plan-by may set: the arithmetic. Keys, ids and extra columns are those of the input.
OF_PART: Final = tuple(
    row.name for row in _ROWS if (row.panel in PLAN or row.sets) and row.name not in {"map", "presets", *BY_VALUE}
)
WITH: Final = "with"  # also: the value whose part (plan and batch) the rows of this value join
# The options for a frame in memory: everything except files and messages.
ON_FRAMES: Final = tuple(row.name for row in _ROWS if row.panel not in {INPUT, OUTPUT, ENGINE, MESSAGES})


# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A command: what it does, an example, and the names of its argument and options.

    `common` are the options that most runs need, which `--help` shows; a command without them shows all that it has.
    """

    name: str
    help: str
    argument: Option | None
    options: tuple[str, ...]
    example: str
    common: tuple[str, ...] = ()
    more: str = ""

    @property
    def takes(self) -> dict[str, Option]:
        """The argument and the options by name, in the order of the help."""
        argument = {} if self.argument is None else {self.argument.name: self.argument}
        return argument | {name: EVERY[name] for name in self.options}


_PANELS: Final = {row.panel for row in EVERY.values()}
_OF_PANEL: Final = {panel: [row.name for row in EVERY.values() if row.panel == panel] for panel in _PANELS}


def _options(*which: str, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The options of these panels and names, in this order."""
    names = chain.from_iterable([name] if name in EVERY else _OF_PANEL[name] for name in which)
    return tuple(name for name in names if name not in without)


def _name(of: Listing) -> Option:
    return Option("name", spelled="NAME", values=of, help="Name to explain.")


_INPUTS: Final = Option(
    "inputs",
    type=list[str],
    spelled="INPUT",
    required=True,
    help="Files, directories, quoted globs, URLs (s3://, hf://, ...), or - for stdin.",
    brief="Files, directories, globs, URLs, - for stdin",
)
# inspect and report show rewards as they are in the file, so they take no shaping.
_ADVANTAGE: Final = (GROUPS, REWARDS, METHOD, DIVISOR, SKIPPED, POST, ROLE)
# Parts of what `--help` shows.
_GROUPED: Final = ("group", "group_size", "group_within", "schema")
_REWARDED: Final = ("reward", "map", "missing")

_COMMANDS: Final = (
    Command(
        "compute",
        help="Compute advantages and add them to the file as a new column.",
        argument=_INPUTS,
        options=_options(
            INPUT, OUTPUT, TOKENS, GROUPS, REWARDS, SHAPE, METHOD, DIVISOR, SKIPPED, POST, ROLE, ENGINE, MESSAGES,
            without=("all",),
        ),
        common=(
            "preset", "method", "scale", *_GROUPED, "batch_by", *_REWARDED, "zero_variance", "output", "force", "in_place", "column",
            "explain", "fail_on", "json", "quiet",
        ),
        example="grpo-adv compute rewards.jsonl --method rloo --scale batch",
    ),
    Command(
        "inspect",
        help="Inspect rewards and groups: spread, solve rates, groups without a gradient, and which group size would help.",
        argument=_INPUTS,
        options=_options(
            "where", LOOK, "pass_at", *_ADVANTAGE, ENGINE, "on_error", "max_line", "config", "no_config", "fail_on", "json", "quiet",
            "color", "debug", without=("methods",)
        ),
        common=(
            "preset", "method", *_GROUPED, *_REWARDED, "where", "by", "show", "top", "sort", "format", "before", "rescored", "fail_on",
            "json", "quiet",
        ),
        example="grpo-adv inspect rewards.jsonl --by step",
    ),
    Command(
        "browse",
        help="Browse rollouts in the terminal: groups, rewards, advantages and texts, with sorting, filters and search.",
        argument=_INPUTS,
        options=_options(
            "where", "sort", "show", "by", "prompt", "response", "messages", "text_column", *_ADVANTAGE, "on_error",
            "max_line", "config", "no_config", "quiet", "color", "debug", without=BY_VALUE,
        ),
        common=(
            "preset", "method", "scale", *_GROUPED, *_REWARDED, "where", "sort", "show", "by", "text_column", "color",
        ),
        example="grpo-adv browse rewards.jsonl --where '0 < mean < 1' --sort std",
    ),
    Command(
        "report",
        help="Plot rewards, groups and advantages: a self-contained HTML page or an image.",
        argument=_INPUTS,
        options=_options(
            "output", "force", "by", "before", "rescored", "rescored_column", "methods", "text_column", "duplicates", *_ADVANTAGE, "on_error", "max_line",
            "config", "no_config", "quiet", "color", "debug",
        ),
        common=(
            "preset", "method", *_GROUPED, *_REWARDED, "by", "before", "rescored", "methods", "text_column", "output",
            "force", "quiet",
        ),
        example="grpo-adv report rewards.jsonl -o report.html",
    ),
    Command(
        "select",
        help="Select groups by solve rate, spread, pass@K, ..., and rows within them; the rows stay unchanged.",
        argument=_INPUTS,
        options=_options(
            CHOICE, "seed", "output", "force", GROUPS, REWARDS, "length_column", "on_error", "max_line", "config", "no_config",
            "json", "summary", "quiet", "color", "debug",
        ),
        common=(
            "where", "limit", "per_group", "pick", "most", "most_by", "top_p", *_GROUPED, *_REWARDED, "output", "force",
            "json", "quiet",
        ),
        example="grpo-adv select rewards.jsonl --where '0.1 <= mean <= 0.9' -o alive.jsonl",
    ),
    Command(
        "export",
        help="Export training data: best rows (SFT), preference pairs (DPO), weighted rows, prompts, tokens.",
        argument=_INPUTS,
        options=_options(
            EXPORT, SFT, "per_group", PAIRS, WEIGHTS, PROMPTS, TOKENS, "where", "limit", "seed", "output", "force", SHAPE, *_ADVANTAGE,
            "on_error", "max_line", "config", "no_config", "fail_on", "json", "summary", "quiet", "color", "debug", without=BY_VALUE,
        ),
        common=(
            "to", "prompt", "response", "messages", "where", "limit", "per_group", "best", "min_reward", "pairs", "min_margin", "weight",
            "pool", "method", "group", "group_within", "reward", "output", "force", "json",
        ),
        example="grpo-adv export rewards.jsonl --to sft -o sft.jsonl",
        more="--method, --scale and the other plan options set the advantages of --to weights and --to tokens.",
    ),
    Command(
        "audit",
        help="Find the formula behind the advantages in a file, and the rows that disagree with it.",
        argument=_INPUTS,
        options=_options("column", SHAPE, *_ADVANTAGE, ENGINE, "on_error", "config", "no_config", "fail_on", "json", "quiet", "color", "debug"),
        common=(
            "preset", "method", "scale", *_GROUPED, "batch_by", *_REWARDED, "reward_clip", "column", "fail_on", "json", "quiet",
        ),
        example="grpo-adv audit completions.parquet --column advantage",
        more="Give a --preset (or --method and its options) to check that claim; --reward-clip and other shaping options apply to every formula tried.",
    ),
    Command(
        "compare",
        help="Compute several plans on the same rows and show where they differ.",
        argument=_INPUTS,
        options=_options(
            COMPARED, "output", "force", "in_place", "column", "replace", "dtype", *_ADVANTAGE, "config",
            "no_config", "json", "quiet", "color", "debug", without=("preset", "method", "expr", *BY_VALUE),
        ),
        common=(
            "compared_presets", "contenders", "vs_reward", "write", "scale", *_GROUPED, "batch_by", *_REWARDED, "output", "force", "in_place", "json",
            "quiet",
        ),
        example="grpo-adv compare rewards.jsonl --preset trl-grpo --preset verl-grpo",
        more="Other options apply to all plans; append options to a name to set them for one plan: --method grpo,scale=batch.",
    ),
    Command(
        "methods",
        help="List the methods, or explain one: formula, parameters, columns, source.",
        argument=_name("methods"),
        options=_options("all", "json", "color", "debug"),
        example="grpo-adv methods rloo",
    ),
    Command(
        "presets",
        help="List the presets, or explain one: formula, constants, rules, source, equivalent presets.",
        argument=Option(
            "name", spelled="NAME|WORD", values="presets",
            help="Preset to explain, or a framework or part of a name to list.", brief="Preset to explain, or a framework to list",
        ),
        options=_options("presets", "all", "json", "color", "debug"),
        example="grpo-adv presets trl-grpo",
    ),
    Command(
        "schemas",
        help="List the known file layouts, explain one, or say which layout a file has and why.",
        argument=Option(
            "name", spelled="NAME|FILE", values="schemas",
            help="Schema to explain, or file to match.",
        ),
        options=_options("schemas", "json", "color", "debug"),
        example="grpo-adv schemas rewards.jsonl",
    ),
    Command(
        "add",
        help="Add columns from another file, by row or by key; all other bytes of the file stay the same.",
        argument=Option(
            "file", spelled="FILE", required=True,
            help="The file that gets the columns, a URL, or - for stdin.", brief="The file that gets the columns; -: stdin",
        ),
        options=_options(
            ADDED, "schema", "output", "force", "in_place", "replace", "max_line", "config", "no_config", "fail_on", "json",
            "summary", "quiet", "color", "debug",
        ),
        example="grpo-adv add rewards.jsonl --from judge.parquet --on rollout_id",
    ),
    Command(
        "verify",
        help="Check that a file is its input plus the added columns and nothing else; exit 1 at the first difference.",
        argument=Option("file", spelled="OUT", required=True, help="The output file to check."),
        options=_options(CHECKED, "json", "quiet", "color", "debug"),
        example="grpo-adv verify rewards.advantages.jsonl --against rewards.jsonl",
    ),
    Command(
        "skill",
        help="Print a guide for coding agents, or install it as a skill.",
        argument=None,
        options=_options("install", "force", "color", "debug"),
        example="grpo-adv skill --install skills",
    ),
)  # fmt: skip

COMMANDS: Final[Mapping[str, Command]] = MappingProxyType({row.name: row for row in _COMMANDS})


def command_line(command: str, given: Mapping[str, Any]) -> str:
    """A command line of options by their names, as a shell takes it."""
    options = [EVERY[name].words(value) for name, value in given.items() if name != "inputs" and value is not False]
    return shlex.join(["grpo-adv", command, *given["inputs"], *chain.from_iterable(options)])
