"""Which formula made the advantages of a file.

`run` opens the files, `groupings` tries the ways to group their rows, and for each the `ladder` is climbed: `readings` (to what the values were
rounded), `baselines` (what is divided), `divisors`, `constants` and `bends` (what is not linear), a file for each rung, and `weights` of several
rewards. Where no rung explains every row, `causes` and `whole_log` say why. `facts` is the answer, `flags` its options, `text` its words.
"""

from grpo_cli.options.commands import ADVANTAGE, GROUPED, REWARDED, SHOWN, Command, options_of
from grpo_cli.options.table import ENGINE, SHAPE

COMMAND = Command(
    "audit",
    "Find the formula behind the advantages in a file, and the rows that disagree with it.",
    options=options_of("column", SHAPE, "mask", *ADVANTAGE, ENGINE, "on_error", "config", "no_config", "fail_on", "json", *SHOWN),
    common=(
        "preset", "method", "scale", *GROUPED, "batch_by", *REWARDED, "reward_clip", "column", "fail_on", "json", "quiet",
    ),
    job="grpo_cli.guests.audit.run:Job",
    shown_by="grpo_cli.guests.audit.text:render",
    example="grpo-adv audit completions.parquet --column advantage",
    more="Give a --preset (or --method and its options) to check that claim; --reward-clip and other shaping options apply to every formula tried.",
)  # fmt: skip
