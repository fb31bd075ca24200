"""The options, each declared once: the command line, `--config`, the Python API and the documents read this table.

An option's panel is its heading in `--help`; commands (`commands.py`) list the panels that they take. Importing this table loads
neither polars nor typer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, get_args, get_origin

from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.options.export_kinds import EXPORT_KINDS

INPUT = "Input"
OUTPUT = "Output"
ENGINE = "Beyond one machine"
GROUPS = "Groups and batches"
REWARDS = "Rewards"
SHAPE = "Shaping the reward"
METHOD = "Method"
PLANS = "A plan for each value of a column"
DIVISOR = "Divisor"
SKIPPED = "Groups without a gradient, small groups, singletons"
POST = "After the division"
ROLE = "Extra columns for some methods"
MESSAGES = "Messages and checks"
LOOK = "What to show"
CHOICE = "Which groups and rows to keep"
COMPARED = "What to compare"
CHECKED = "What to check"
SKILL = "Where to install"
ADDED = "What to add"
EXPORT = "What to export"
SFT = "For --to sft"
PAIRS = "For --to pairs"
WEIGHTS = "For --to weights"
PROMPTS = "For --to prompts"
TOKENS = "Tokens and log-probs"
OF_KINDS = (SFT, PAIRS, WEIGHTS, PROMPTS)
# The panels whose options make a plan.
PLAN = (REWARDS, SHAPE, METHOD, DIVISOR, SKIPPED, POST)

# The commands that list the names an option takes.
Listing = Literal["", "methods", "presets", "schemas", "targets"]


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
    metavar: str = ""
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
        items = value if isinstance(value, list) else [value]
        if isinstance(value, Mapping):  # the value of --plan
            items = []
            for of, own in value.items():
                options = [f"{name}={setting}" for name, setting in own.items()]
                items.append(f"{of}:{','.join(options)}")
        words = []
        for item in map(str, items):
            words += [f"{self.flag}={item}"] if item.startswith("-") else [self.flag, item]
        return words


# What most options are: a switch, a number, the name of a column, or what may be given several times.
Switch = partial(Option, type=bool)
Whole = partial(Option, type=int, metavar="N")
Number = partial(Option, type=float, metavar="X")
Column = partial(Option, metavar="COL")
Several = partial(Option, type=list[str])


def _of_panels(panels: Mapping[str, tuple[Option, ...]]) -> tuple[Option, ...]:
    """The options of these panels."""
    return tuple(replace(row, panel=panel) for panel, rows in panels.items() for row in rows)


NO_ROLLOUTS = "none"  # --rollout none: every row is a rollout
NO_TOOLS = "none"  # --tools none: records have no tools

_ROWS = _of_panels({
    INPUT: (
        Switch("stream", "Standard input is sorted by group: write each group as soon as it is complete."),
        Switch("long", "Write one row per rollout where a record of the input has several (lists, nested traces)."),
        Option("on_error", "Lines that are not JSON, such as a truncated last line: stop (default), or skip and count them.",
               type=Literal["error", "skip"]),
        Whole("max_line", "Longest line to read (default: 268435456). Each line must fit in memory.",
              metavar="BYTES", brief="Longest line to read"),
        Option("config", "TOML file with these options; flags override it. Of a pyproject.toml, the table [tool.grpo-adv]. Default: the file that GRPO_ADV_CONFIG names.",
               metavar="FILE", brief="TOML file with these options"),
        Switch("no_config", "Ignore GRPO_ADV_CONFIG, and print no note about a grpo-adv.toml that is not read.",
               brief="Ignore config files"),
    ),
    OUTPUT: (
        Option("output", "Output file, directory or URL (s3://, gs://, az://). The suffix sets the format. Default: next to the input; stdin goes to stdout; required by export.",
               short="-o", metavar="FILE|DIR/|-", brief="Output file, DIR/, or - for stdout"),
        Switch("force", "Overwrite an existing output file."),
        Switch("in_place", "Replace the input files by their outputs: each is written beside its input, and renamed.",
               brief="Add the column to the input files themselves"),
        Option("column", "Name of the advantage column (default: advantage).",
               metavar="NAME", brief="Name of the advantage column"),
        Switch("replace", "Overwrite the column if the input already has it.",
               brief="Overwrite a column that the input has"),
        Option("dtype", "Type of the new column (default: f64).", type=Literal["f64", "f32"]),
        Switch("per_token", "Write the advantage for every response token, as a list column (needs --tokens, --mask or --length-column)."),
        Number("distill", "With --per-token: add X * (teacher - student log-probability) to the advantage of each response token (on-policy distillation).",
               sets="distill.coef"),
        Switch("facts", "Also write COLUMN_mean, _std, _size and _status."),
        Switch("only", "Write only the group key, the rewards and the new columns."),
        Switch("duplicate", "Replace dropped groups with copies of kept ones (marked in COLUMN_copy)."),
        Whole("seed", "Seed for --duplicate, and for the random choices of select and export (default: 0).",
              brief="Seed of a random choice"),
    ),
    GROUPS: (
        Option("schema", "File layout (grpo-adv schemas lists them). Default: detected and reported.",
               metavar="NAME|none", values="schemas", brief="File layout (default: detected)"),
        Option("schemas", "TOML file with your own schemas; they are detected too.",
               metavar="FILE", brief="TOML file with your own schemas"),
        Several("group", "Columns of the group key; dots reach into nested fields. Default: found by name and reported.",
                short="-g", metavar="COL[,COL]", brief="Columns of the group key (default: by name)"),
        Whole("group_size", "Groups are blocks of N consecutive rows (within each key if --group is given).",
              brief="Groups are blocks of N consecutive rows"),
        Option("partial", "What to do with an incomplete last block.", type=Literal["keep", "drop"]),
        Whole("expect_size", "Stop if any group has another size."),
        Option("group_within", "Where a group key is unique: within each value of a column, each file, or the whole input.",
               metavar="COL|file|input", brief="Where a key is unique: step, file or input"),
        Option("batch_by", "Which rows form a batch: those with the same value in a column, those of the same file, or the whole input.",
               metavar="COL|file|input", brief="What a batch is: a step, a file or the input"),
        Option("rollout", "Column with the rollout id, if a rollout has several rows: it counts once, and its rows share the advantage. none: every row is a rollout. Default: from the schema, and reported.",
               metavar="COL|none"),
        Option("rollout_reward", "Reward of a rollout with several rows: first, last or mean of theirs (default: they must be equal). each: every row counts.",
               type=Literal["first", "last", "mean", "each"], sets="unit.take"),
        Option("masked_column", "Column that marks rows which count in their group and are not trained on (sample_loss_mask=0, remove_sample): a word for true, or VALUE. Their status is masked. Not the token mask of --mask.",
               metavar="COL[=VALUE]", brief="Column that marks rows not trained on"),
        Option("left_out_column", "Column that marks rows which leave their group before the mean (has_error, failure_kind=timeout): a word for true, a text that is not empty, or VALUE. Their advantage is null.",
               metavar="COL[=VALUE]", brief="Column that marks rows to leave out"),
        Several("rows", "Only rows that meet the condition on their columns count, for example 'failure_kind is null and step >= 10'; the others stay in the file and are left out of their groups (advantage null). A comparison with null is not met. Of several, all. --where is about groups.",
                metavar="CONDITION", brief="Only these rows count: 'step >= 10'"),
        Option("masked_rows", "Whether marked rows count in their group: vote (count, and are not trained on) or exclude (left out). Default: as the preset's tool does, else the tool that wrote the file.",
               type=Literal["vote", "exclude"]),
    ),
    REWARDS: (
        Several("reward", "Reward column; inside a list of objects, its path: 'rollouts[].correct'. Repeat for several. Default: found by name and reported.",
                short="-r", metavar="COL[=WEIGHT]", brief="Reward column; repeat it for several"),
        Several("map", "Rewards for text values, for example 'pass=1,fail=0' (N/A=nan: no reward); any other text stops the run.",
                metavar="TEXT=NUMBER,...", brief="Rewards for text values: pass=1,fail=0"),
        Option("combine", "Add the reward columns (default), or estimate each and add the advantages (GDPO).",
               type=Literal["sum", "normalize"], sets="rewards.combine"),
        Option("missing", "Rows without a reward (null, NaN, infinite): error (default: stop), exclude (leave out), zero (leave out, advantage 0), as-zero (count as reward 0) or propagate (NaN spreads).",
               type=Literal["error", "exclude", "zero", "as-zero", "propagate"], sets="rewards.missing", brief="Rows without a reward"),
        Option("component_missing", "If one of several rewards is missing: skip it (default), count it as 0, or treat the row as having no reward.",
               type=Literal["skip", "zero", "propagate"], sets="rewards.component_missing"),
    ),
    SHAPE: (
        Number("reward_shift", "r becomes (r + X) * scale.", sets="shape.affine.shift"),
        Number("reward_scale", "r becomes (r + shift) * X.", sets="shape.affine.scale"),
        Option("reward_clip", "Clip the rewards.", metavar="LO:HI"),
        Number("kl_coef", "r becomes r - X * kl (needs --kl-column or --kl-from).", sets="shape.kl.coef"),
        Option("kl_from", "KL of a row from two lists of log-probs of its tokens, of the policy (s) and of the reference (r); --mask COL says which tokens count.",
               metavar="POLICY,REFERENCE", brief="KL from two lists of log-probs"),
        Option("kl_estimator", "Estimate at each token, for --kl-from: k1 = s - r, k2 = (s - r)^2 / 2, k3 = exp(r - s) - (r - s) - 1. Default: that of the preset's tool.",
               type=Literal["k1", "k2", "k3"], brief="Estimate at each token, for --kl-from"),
        Option("kl_reduce", "KL of a row: the sum over its tokens, or their mean. Default: that of the preset's tool.",
               type=Literal["sum", "mean"], brief="KL of a row: sum or mean of its tokens"),
        Option("overlong", "DAPO's soft length penalty (needs --length-column).",
               metavar="MAX:BUFFER:PENALTY"),
    ),
    METHOD: (
        Option("preset", "A framework's exact arithmetic, for example trl-grpo (grpo-adv presets lists them). Flags override it.",
               metavar="NAME", values="presets", brief="A framework's exact arithmetic: trl-grpo ..."),
        Option("presets", "TOML file with your own presets, for --preset.",
               metavar="FILE", brief="TOML file with your own presets"),
        Option("method", "Advantage estimator (default: grpo; grpo-adv methods lists them).",
               short="-m", metavar="NAME", values="methods", sets="estimator.name", brief="Advantage estimator: grpo, rloo, dr-grpo ..."),
        Several("param", "Parameter of the method.", short="-p", metavar="NAME=VALUE"),
        Option("expr", "Your own formula, for example '(reward - mean) / (std + epsilon)'.",
               metavar="SQL", sets="estimator.sql"),
        Several("set", "Set any field of the plan (--explain lists them).", metavar="PART.FIELD=VALUE"),
    ),
    PLANS: (
        Column("plan_by", "A separate plan for each value of a column, such as env_name: each value's rows are computed as in a separate run.",
               brief="A plan for each value of a column"),
        Several("plans", "Plan for one value of --plan-by, for example math:preset=trl-grpo,scale=batch; in a config file, a table [plan.math]. default:... is for all other values.",
                spelled="--plan", metavar="VALUE:OPTION=X,...", brief="Plan for a value: math:preset=trl-grpo"),
    ),
    DIVISOR: (
        Option("scale", "Divide by the standard deviation of the group or the batch, or not at all (default: the method's own; grpo: group, rloo: none).",
               short="-s", type=Literal["group", "batch", "none"], sets="divisor.level", brief="What to divide by (default: as the method)"),
        Number("epsilon", "Added to the standard deviation (default: 1e-6).",
               sets="divisor.epsilon"),
        Whole("ddof", "Divide the sum of squares by n - ddof: 1 like torch.std (default), 0 like numpy.std.",
              metavar="0|1", sets="divisor.ddof"),
        Option("std_of", "Standard deviation of the rewards (default) or of the residuals after the baseline.",
               type=Literal["reward", "residual"], sets="divisor.of"),
    ),
    SKIPPED: (
        Option("singleton", "Advantage of a group with one scored row: zero (default), raw (its reward), unit (reward/(1+epsilon)), nan, null; drop leaves it out, error stops.",
               type=Literal["zero", "raw", "unit", "nan", "null", "drop", "error"], metavar="RULE"),
        Option("zero_variance", "Groups without a gradient (all rewards equal): keep with advantage 0 (default), drop, or write null.",
               type=Literal["keep", "drop", "null"], sets="groups.zero_variance", brief="Groups without a gradient"),
        Number("std_threshold", "Also treat groups with std <= T as groups without a gradient.",
               metavar="T", sets="groups.std_threshold"),
        Whole("min_group_size", "Groups with fewer scored rows get null (--set groups.small=zero|drop changes that).",
              sets="groups.min_size"),
    ),
    POST: (
        Option("whiten", "Standardise the advantages over the batch, weighting each sample or each token equally.",
               type=Literal["none", "sample", "token"]),
        Number("whiten_epsilon", "Added to the variance under the square root (default: 1e-8).",
               sets="post.whiten.inside"),
        Option("clip", "Clip the advantages.", metavar="LO:HI"),
    ),
    ROLE: (
        *(Column(role.flag.removeprefix("--").replace("-", "_"),
                 f"{role.meaning[0].upper()}{role.meaning[1:]}." + (" 'equal' means that all responses have the same length." if role.name == "length" else ""))
          for role in ROLES.values() if role.name != "rollout"),
    ),
    ENGINE: (
        Option("engine", "Read and write files in this process (default) or in tasks on a Ray cluster; the outputs are the same. Every machine must see the same files, on a shared path or in a store.",
               type=Literal["local", "ray"]),
        Option("ray_address", "Cluster to use; local starts one on this machine for the run. Default: RAY_ADDRESS, else local.",
               metavar="auto|HOST:PORT|local"),
    ),
    MESSAGES: (
        Switch("explain", "Show the columns, the grouping, the formula and one group worked out; write nothing.",
               other="--dry-run", brief="Show columns and formula; write nothing"),
        Several("fail_on", "Exit 3 and write nothing if the condition holds: on any number of --json by its path, a list being its length, for example 'zero_variance.share > 0.5 or warnings > 0'; of several, any.",
                metavar="CONDITION", brief="Exit with status 3 if the condition holds"),
        Switch("json", "Print the result as JSON."),
        Option("summary", "Also write the summary as JSON to a file.", metavar="FILE"),
        Switch("quiet", "Print errors only, no summary and no progress.",
               short="-q", brief="Print errors only"),
        Option("color", "Colours: on terminals unless NO_COLOR is set (auto), always or never.",
               type=Literal["auto", "always", "never"], brief="When to use colours"),
        Switch("debug", "Show tracebacks, and which data took the slow reader and why.",
               brief="Show tracebacks and slow reads"),
    ),
})  # fmt: skip

OPTIONS: Final[Mapping[str, Option]] = {row.name: row for row in _ROWS}
# Options that `compute` does not have.
_MORE = _of_panels({
    LOOK: (
        Column("by", "Compare the values of a column, such as step or env: one line for each.",
               brief="Compare the values of a column: step, env"),
        Option("show", "Show the rows of one group: reward, advantage and the ends of the text.",
               metavar="KEY", brief="Show the rows of one group"),
        Whole("top", "How many groups to list at each end (default: 3); with --against how many prompts (default: 5).",
              brief="How many groups to list at each end"),
        Option("sort", "Sort the listed groups by this fact (default: std; in browse: file order); with --against the prompts (default: change).",
               metavar="FACT", brief="Sort the listed groups by this fact"),
        Option("full", "Show every section; with --by, --top or --sort the default is the head, their tables and the verdict.",
               type=bool, brief="Show every section, also with --by"),
        Option("format", "Print only a table, for other programs: all groups, the lines of --by, or the rows of --show; of --against the runs, or with --sort, --top or --where the prompts.",
               type=Literal["md", "csv"], brief="Print only a table, for other programs"),
        Column("text_column", "Column with the response text (default: found by name).",
               brief="Column with the response text"),
        Switch("duplicates", "Look for identical texts within groups even in large files."),
        Option("pass_at", "pass@K and pass^K of the prompts, with 95% intervals; with --against of each run. In export, of each prompt with --to prompts: 1 - C(n-c, K) / C(n, K) for c solved rows of n; null where n < K.",
               metavar="K,..."),
        Several("before", "Earlier run on the same prompts: shows how solve rates changed, with a 95% interval, and which prompts changed. Of several, the first is the base. In select and export: other runs, counted by the facts runs and solved_runs of --where.",
                spelled="--against", metavar="[NAME=]INPUT", brief="Earlier run to compare with"),
        Column("cluster", "With --against: prompts with the same value, such as a template or a family, count together in intervals and p values, from 8 values up. Default: prompts are taken to be independent.",
               brief="Prompts with the same value count together"),
        Option("rescored", "File with the earlier rewards of the same rollouts: how far both agree, which groups gain or lose their gradient, and which advantages change.",
               spelled="--old-rewards", other="--rescored", metavar="INPUT", brief="File with earlier rewards of these rollouts"),
        Column("rescored_column", "Column of the old rewards, in the --old-rewards input or else in this one (with --reward NEW).",
               spelled="--old-rewards-column", other="--rescored-column", brief="Column of the old rewards"),
    ),
    COMPARED: (
        Several("compared_presets", "Preset to compare, for example trl-grpo or trl-grpo,scale=batch. Repeat for several.",
                spelled="--preset", metavar="NAME[,OPTION=X]", values="presets", brief="Preset to compare; repeat it for several"),
        Several("contenders", "Method to compare, for example rloo or grpo,epsilon=1e-4. Repeat for several.",
                spelled="--method", short="-m", metavar="NAME[,OPTION=X]", values="methods", brief="Method to compare; repeat it for several"),
        Switch("write", "Add a column advantage_NAME to the file for each plan.",
               brief="Add a column for each plan to the file"),
    ),
    EXPORT: (
        Option("to", " ".join(f"{kind.name}: {kind.help}." for kind in EXPORT_KINDS.values()),
               type=Literal[tuple(EXPORT_KINDS)], required=True, brief="What to export (required)"),
        Column("prompt", "Column with the prompt, text or messages; dots reach into nested fields. Default: from the schema or by name, and reported.",
               brief="Column with the prompt (default: found)"),
        Column("response", "Column with the response, text or messages. Default: as for --prompt.",
               brief="Column with the response (default: found)"),
        Column("messages", "Column with a conversation that ends with the response, instead of --prompt and --response.",
               brief="Column with the whole conversation"),
        Option("form", "Conversations as one list (messages), as prompt and completion (turns), or as they are in the file (raw). Default: as many lists as the file has, as chat messages with their texts, tool calls and reasoning.",
               type=Literal["messages", "turns", "raw"], brief="Conversations: one list, two lists, as they are"),
        Option("target", "The trainer that will read the file (grpo-adv targets lists them): its form, its names of columns and its suffix; the summary says what it trains on and what to set.",
               metavar="NAME", values="targets", brief="The trainer that reads it: trl, verl ..."),
        Several("keep", "Columns to carry into every record; dots reach into nested fields. The rows of a pair or a prompt must share the value.",
                metavar="COL[,COL]", brief="Columns to carry into every record"),
        Option("tools", "Column with the tools that the model could call, which conversations need (default: found by name or from the schema; none: leave them out).",
               metavar="COL|none", brief="Column with the tools (default: found)"),
    ),
    SFT: (
        Option("best", "The best rows of each group (default; of equal ones the first in the file), all rows above the group mean (with --min-reward: all that reach it), or the shortest that are solved (--solved-at), by the length column or their text.",
               spelled="--pick", type=Literal["best", "all-above", "shortest"], brief="Best, above the mean, or shortest solved"),
        Number("min_reward", "Only rows with a reward of at least X."),
        Switch("keep_duplicates", "Keep repeated prompts with the same response (default: within a group the best is kept, across groups the first)."),
    ),
    PAIRS: (
        Option("pairs", "Per group: the best and the worst response (default), each reward and the next lower one, or all pairs with different rewards.",
               type=Literal["extremes", "adjacent", "all"], brief="Which responses make a pair"),
        Number("min_margin", "Only pairs whose rewards differ by at least X.",
               brief="Smallest reward difference within a pair"),
        Whole("max_pairs", "At most N pairs per group: the widest margins, or with --seed a random choice."),
    ),
    WEIGHTS: (
        Option("weight", "exp (default): w = min(exp(A/beta), max), scaled to mean 1 in each group. softmax: exp(A/beta) / its sum over the group. positive: max(A, 0).",
               type=Literal["exp", "softmax", "positive"], brief="How advantages become weights (default: exp)"),
        Number("beta", "Temperature of exp and softmax (default: 1)."),
        Number("max_weight", "Largest exp(A/beta), before groups are normalised (default: 20)."),
        Whole("copies", "Whole copies instead of a weight, which every trainer reads: the largest weight of the output comes N times, the others in proportion, drawn with --seed where it does not divide.",
              brief="Whole copies instead of a weight"),
        Number("ratio_cap", "Multiply each weight by the truncated ratio of its row: the mean of min(exp(new - old), X) over its tokens, from --token-logprobs and --old-token-logprobs.",
               brief="Multiply weights by a truncated ratio"),
    ),
    PROMPTS: (
        Switch("pool", "Pool groups with the same prompt, for example from several steps or runs.",
               brief="Pool groups with the same prompt"),
        Number("solved_at", "A row counts as solved if its reward is at least X (default: the highest reward of the input). With pass@K in --where, for every kind of export; also for --pick shortest."),
    ),
    TOKENS: (
        Column("tokens", "Column with the list of response tokens, or of all tokens of the sequence if --length-column or --mask is given."),
        Column("mask", "Column with one number per token: tokens with 0 or -100 get 0, the others the advantage."),
        Column("prompt_tokens", "Column with the prompt tokens, a list or a count: that many zeros come first."),
        Column("token_logprobs", "Column with lists, over the response tokens or all tokens: the log-prob of each sampled token under the policy that is trained, the student of --teacher-logprobs.",
               brief="Lists of log-probs of the trained policy"),
        Column("teacher_logprobs", "Column with the teacher's log-probs, one per token."),
        Column("old_token_logprobs", "Lists with the log-prob of each token of --token-logprobs under the policy that sampled it, such as that of the inference engine: KL, ratios and effective sample sizes. --mask says which tokens count.",
               brief="Lists of log-probs of the sampling policy"),
        Column("token_entropy", "Column with lists: the entropy at each token."),
    ),
    CHOICE: (
        Several("where", "Keep groups that meet the condition, for example '0.1 <= mean <= 0.9 and std > 0'; of several, all. In inspect --against: list the prompts whose change meets it, 'change < 0 and p < 0.05'.",
                short="-w", metavar="CONDITION", brief="Keep groups that meet a condition: 'std > 0'"),
        Number("solved_from", "A row counts as solved if its reward is at least X, for pass@K in --where and --by, and for --pick shortest (default: the highest reward).",
               spelled="--solved-at", brief="Rewards of at least X count as solved"),
        Whole("most", "Keep the N groups with the largest --by fact; groups without that fact come last.",
              spelled="--top", brief="Keep the N groups with the largest --by"),
        Option("most_by", "Fact for --top: std (default), mean, pass@4, ...; --by=-mean takes the smallest.",
               spelled="--by", metavar="FACT", brief="Fact for --top: std (default), mean, pass@4"),
        Number("top_p", "Keep the smallest set of groups whose reward variances add up to a share P of all, for example 0.9.",
               metavar="P", brief="Fewest groups with share P of the variance"),
        Number("top_p_slack", "Subtract X from the sum that --top-p asks for; RAGEN-2 takes 0.01 and skips a batch below it."),
        Whole("limit", "Keep at most N groups: the first, or with --seed a random choice.",
              brief="Keep at most N groups"),
        Whole("per_group", "Keep at most N rows per group (export --to sft: 1 unless --pick all-above).",
              brief="Keep at most N rows of each group"),
        Option("pick", "Which rows --per-group keeps (default: spread, the rows whose rewards differ most; shortest: of those that are solved).",
               type=Literal["best", "worst", "spread", "random", "shortest"], brief="Which rows --per-group keeps"),
        Switch("control", "Also write as many groups, drawn from all groups with --seed (default: 0), to OUT.control.jsonl: a control for training on the choice.",
               brief="Also write as many groups at random"),
        Number("holdout", "Split off the groups of this share of the prompts, to OUT.holdout.jsonl: by a hash of the prompt's key, so the same on every machine, in every order and in larger files.",
               metavar="SHARE", brief="Split off this share of the prompts"),
        Whole("holdout_seed", "Another split for --holdout (default: 0)."),
    ),
    SKILL: (
        Option("install", "Write DIR/grpo-adv/SKILL.md instead of printing it.",
               metavar="DIR", brief="Write DIR/grpo-adv/SKILL.md"),
    ),
    ADDED: (
        Option("source", "File with the columns, in any supported format; its row i belongs to row i of FILE, or to those with the same key (--on).",
               spelled="--from", metavar="COLUMNS", required=True, brief="File with the columns (required)"),
        Several("chosen", "Column of --from to add, and its name in the output. Repeat for several (default: all).",
                spelled="--column", metavar="NAME[=NEW]", brief="Column to add, and its name (default: all)"),
        Several("on", "Match rows by these columns of both files, HERE=THERE where the names differ; dots reach into nested fields. Rows without a match get null, and are counted.",
                metavar="COL[,COL]", brief="Match rows by these columns; HERE=THERE"),
        Option("take", "With --on: which value to take if several rows of --from have the key (default: stop).",
               type=Literal["first", "last", "mean"], brief="Value to take if several rows have one key"),
        Switch("by_position", "Add row i to row i although ids in both files differ.",
               brief="Row i belongs to row i, whatever the ids"),
    ),
    MESSAGES: (
        Switch("all", "Also list old versions, code from papers, and methods that no trainer ships.",
               brief="Also list old versions and papers"),
    ),
    CHECKED: (
        Option("against", "The file that OUT was made from.",
               metavar="IN", required=True, brief="The file that OUT was made from (required)"),
        Several("columns", "Added or replaced column (default: the columns that are new).",
                spelled="--column", metavar="NAME", brief="Added column (default: those that are new)"),
    ),
})  # fmt: skip
EVERY: Final[Mapping[str, Option]] = {row.name: row for row in (*_ROWS, *_MORE)}
# What each plan of --plan-by may set: the arithmetic. Keys, ids and extra columns are those of the input.
OF_PART = tuple(row.name for row in _ROWS if (row.panel in PLAN or row.sets) and row.name not in {"map", "presets"})
# The options for a frame in memory: everything except files and messages.
ON_FRAMES = (*(row.name for row in _ROWS if row.panel not in {INPUT, OUTPUT, PLANS, ENGINE, MESSAGES}), "mask")
# What says which tokens get which advantage, with --mask.
PER_TOKEN = ("tokens", "prompt_tokens", "token_logprobs", "teacher_logprobs")
BY_VALUE = ("plan_by", "plans")
COMPUTED = (*ON_FRAMES, *BY_VALUE, "per_token", "distill", *PER_TOKEN)
