"""`grpo-adv browse`: groups, their rollouts and the texts of these on a terminal. The model is plain code, the screens are thin."""

from grpo_cli.options.commands import ADVANTAGE, GROUPED, READ, REWARDED, SHOWN, Command, options_of

COMMAND = Command(
    "browse",
    "Browse rollouts in the terminal: groups, rewards, advantages and texts, with sorting, filters and search.",
    options=options_of(
        "where", "sort", "show", "by", "prompt", "response", "messages", "text_column", *ADVANTAGE, *READ, *SHOWN,
    ),
    common=(
        "preset", "method", "scale", *GROUPED, *REWARDED, "where", "sort", "show", "by", "text_column", "color",
    ),
    body="grpo_cli.guests.browse.run:browse",
    example="grpo-adv browse rewards.jsonl --where '0 < mean < 1' --sort std",
)  # fmt: skip
