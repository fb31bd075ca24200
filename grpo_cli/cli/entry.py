"""From the words of a command line to an exit status: errors become messages here, and nowhere else."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

from grpo_cli.cli.guard import BROKEN_PIPE, guarded, silence, system_words

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGNALLED: Final = 128  # and the number of the signal
INTERRUPTED: Final = SIGNALLED + signal.SIGINT
# A terminal that is closed sends the last of them; there is none on Windows.
ENDING: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
# The commands whose lines are mostly plain; the others are typer's.
PLAIN: Final = ("compute", "inspect", "report", "select", "audit", "compare")


def main() -> NoReturn:
    """Run the command line; never a traceback for what a user can cause."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup, and jobs in the background
            signal.signal(number, _signalled)
    try:
        status = _run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        _leave(INTERRUPTED, "interrupted, nothing was left half-written")
    except BrokenPipeError:
        _leave(BROKEN_PIPE)
    except OSError as error:
        _leave(1, system_words(error))
    except (Exception, SystemExit):
        # A signal that arrives inside one of our functions that polars calls comes back in polars' words.
        if not _SIGNALS:
            raise
        _leave(SIGNALLED + _SIGNALS[0])
    sys.exit(status)


def _run(words: Sequence[str]) -> int:
    """Do what a plain line says, and have typer read every other one."""
    if words and words[0] in PLAIN:
        command = getattr(import_module(f"grpo_cli.cli.{words[0]}"), words[0])
        given = command.understood(words[1:])
        if given is not None:
            return guarded(lambda: command.body(given), given)
    from grpo_cli.cli.app import run

    return run()


_SIGNALS: Final[list[int]] = []  # those that have asked for the end


def _signalled(number: int, _: object) -> NoReturn:
    """Unwind, so that temporary files go."""
    _SIGNALS.append(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(SIGNALLED + number)


def _leave(status: int, message: str = "") -> NoReturn:
    if message:
        print(f"grpo-adv: {message}", file=sys.stderr)
    silence()
    sys.exit(status)
