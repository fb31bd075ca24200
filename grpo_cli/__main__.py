"""`grpo-adv`, and `python -m grpo_cli`: the way in, which is there before anything is imported."""

import sys


def main() -> None:
    """Run the command line; an interrupt while it is still loading is no traceback either."""
    try:
        from grpo_cli.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
