"""`grpo-adv`, and `python -m grpo_cli`."""

import sys
from typing import Final

_INTERRUPTED: Final = 130


def main() -> None:
    """Run the command line; an interrupt while it is still loading is no traceback either."""
    try:
        from grpo_cli.cli.entry import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
