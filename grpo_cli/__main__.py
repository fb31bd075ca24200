"""`python -m grpo_cli` is the command `grpo-adv`."""

from grpo_cli.cli.app import main

main()
