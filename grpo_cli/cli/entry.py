"""From a command line to an exit status; only here do errors become messages."""

from __future__ import annotations

import gc
import logging
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from functools import partial
from io import RawIOBase, TextIOWrapper
from itertools import pairwise
from threading import Timer
from typing import Any, Final, NoReturn

from grpo_cli.cli.limits import is_little_memory, refuse_no_threads, watch_memory
from grpo_cli.cli.terminal import CYAN, RED, coloured, set_colours
from grpo_cli.errors import Cure, GrpoError, printable, reason
from grpo_cli.files.finished import begin, is_complete, put_off
from grpo_cli.files.kept import keeping

# Modules and parsed rows are many objects with hardly a cycle: at Python's threshold of 700 the collector would walk
# them again and again. Loading a command makes up to 200,000.
_NEW_OBJECTS = 1_000_000
SIGNALLED = 128  # the exit status after a signal is this and the number of the signal
_INDENT = 7  # columns of a label and a space
_NARROWEST = 40  # columns that text is broken into, at least
_SOON = 0.02  # seconds until a signal is sent again
INTERRUPTED = SIGNALLED + signal.SIGINT
BROKEN_PIPE = 141  # as a shell reports a process that SIGPIPE (13) ended: 128 + 13
# A closed terminal sends SIGHUP, which Windows does not have.
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def main() -> NoReturn:
    """Run the command line; errors that a user can cause print no traceback."""
    gc.set_threshold(_NEW_OBJECTS)
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup, and jobs in the background
            signal.signal(number, _signalled)
    sys.unraisablehook = _unraisable
    _buffer_output()
    if (
        os.environ.get("COLUMNS") == "0"
    ):  # of a terminal without a size, as some containers have: rich would print nothing at all
        del os.environ["COLUMNS"]
    try:
        status = _run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
        _ignore_signals()
        gc.freeze()  # the memory goes with the process: no last search for cycles
    except KeyboardInterrupt:
        _leave(*((0,) if is_complete() else (INTERRUPTED, "interrupted, nothing was left half-written")))
    except BrokenPipeError:
        _leave(BROKEN_PIPE)
    except OSError as error:
        # A full disk, a missing permission, a closed stream.
        where = error.filename or ("reading or writing failed" if _has_folder() else "the working directory")
        _leave(1, f"{where}: {reason(error)}")
    except BaseException as error:
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            _leave(BROKEN_PIPE)  # rich would exit with 1, the status of an error
        # polars turns a signal inside one of our functions that it calls into an exception of its own.
        if not _SIGNALS:
            raise
        _leave(_after_signal())
    sys.exit(_after_signal() if _SIGNALS and not status else status)


def _after_signal() -> int:
    """The status of a run that got a signal: whoever repeats failed runs repeats none whose outputs are all there."""
    return 0 if is_complete() else SIGNALLED + _SIGNALS[0]


def _buffer_output() -> None:
    """Give standard output the buffer that PYTHONUNBUFFERED, which many containers set, takes away; and let any text be printed.

    Without a buffer, a write that ends halfway (on a full disk, or where the reader leaves) is no error, and the rest would be lost in silence.
    """
    plain = sys.stdout
    if plain is not None and isinstance(getattr(plain, "buffer", None), RawIOBase):
        sys.stdout = open(1, "w", encoding=plain.encoding, errors=plain.errors, closefd=False)  # noqa: SIM115 - to the end
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors in {"strict", "surrogateescape"}:
        # With PYTHONIOENCODING=ascii a name may have letters that cannot be printed: an escape, as on standard error.
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(words: Sequence[str]) -> int:
    """Parse the line and run its command."""
    from grpo_cli.cli.command import read

    debug = False
    try:
        for word, value in pairwise([*words, ""]):
            if word.partition("=")[0] == "--color":  # also for --help and for what cannot be read
                set_colours(word.partition("=")[2] or value)
        line = read(words)
        if isinstance(line, int):
            return line
        debug = bool(line.given.debug)
        set_colours(line.given.color)
        if debug:
            log = logging.getLogger("grpo_cli")
            log.setLevel(logging.DEBUG)
            log.addHandler(logging.StreamHandler())
        refuse_no_threads()
        watch_memory()
        begin(0 if line.given.summary is None else 1)
        with keeping(prints=True):
            line.run()
    except GrpoError as error:
        if debug:
            raise
        _say(error.message, error.hints, [_command(words, error, cure) for cure in error.cures])
        return error.status
    except BaseException as error:
        text = _words_of_others(error)
        if debug or not text or _SIGNALS:
            raise
        _say(text)
        return 1
    return 0


def _words_of_others(error: BaseException) -> str:
    """The message for an error of Python or polars that data can cause; empty for other errors."""
    if isinstance(error, MemoryError):
        return "not enough memory for this input"
    if isinstance(error, ImportError | SystemError) and is_little_memory():
        return f"not enough memory to load a library: {str(error).partition(chr(10))[0]}"
    if isinstance(error, RuntimeError) and "new thread" in str(error):
        return "the system cannot start more threads"
    if isinstance(error, RecursionError):
        return "a record is nested too deeply to be read"
    if type(error).__name__ == "PanicException":  # polars is not imported for this
        return f"polars stopped: {str(error).partition(chr(10))[0]}; --debug shows where"
    return ""


_SIGNALS: Final[list[int]] = []  # the signals received that end the run


def _signalled(number: int, _: object) -> None:
    """Unwind, so that temporary files are removed; a file that gets its name at this moment is counted first."""
    _SIGNALS.append(number)
    if not put_off(partial(_unwind, number)):
        _unwind(number)


def _unwind(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(SIGNALLED + number)


def _unraisable(args: Any) -> None:
    """A signal that arrives where Python cannot raise, in a callback of the garbage collector, is sent again."""
    if not _SIGNALS:
        sys.__unraisablehook__(args)
        return
    again = Timer(_SOON, os.kill, (os.getpid(), _SIGNALS[-1]))
    again.daemon = True
    again.start()


def _ignore_signals() -> None:
    """There is nothing left to unwind, and an exception at interpreter exit would print a traceback."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _has_folder() -> bool:
    """Whether the working directory is still there."""
    try:
        os.getcwd()  # noqa: PTH109 - nothing needs its path
    except OSError:
        return False
    return True


def _leave(status: int, message: str = "") -> NoReturn:
    _ignore_signals()
    if message:
        _say(message)
    # Output that is still buffered for a closed pipe would raise again at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


def _say(message: str, hints: Sequence[str] = (), commands: Sequence[str] = ()) -> None:
    """Print an error: in a log as one line, on a terminal with a line for each way out, and the command that takes it if there is one."""
    if sys.stderr is None or not sys.stderr.isatty():
        print("error:", printable("; ".join([message, *hints])), file=sys.stderr)
        return
    import shutil
    import textwrap

    width = max(_NARROWEST, shutil.get_terminal_size().columns) - _INDENT
    ways = zip(hints, commands, strict=True)
    labelled = [("error", RED, message, ""), *(("help", CYAN, hint, command) for hint, command in ways)]
    for label, colour, text, command in labelled:
        lines = textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False)
        start = " " * (_INDENT - len(label) - 2) + coloured(f"{label}:", colour, sys.stderr)
        print(start, f"\n{' ' * _INDENT}".join(lines), file=sys.stderr)
        if command:
            print(" " * (_INDENT - 1), coloured(printable(command), CYAN, sys.stderr), file=sys.stderr)


def _command(words: Sequence[str], error: GrpoError, cure: Cure) -> str:
    """The command that takes a way out, or has the word that was meant; empty if there is none to copy."""
    from grpo_cli.options.commands import COMMANDS

    if error.wrong and error.wrong in words:  # another option would not help
        instead = ["grpo-adv", *(error.right if word == error.wrong else word for word in words)]
        return shlex.join(instead) if error.right and cure is error.cures[0] else ""
    if isinstance(cure, str):
        return ""
    try:
        takes = COMMANDS[words[0]].takes
    except (LookupError, GrpoError):  # no command, or one of a package that is broken
        return ""
    row = next((row for row in takes.values() if row.flag == cure.flag), None)
    if row is None or (row.takes and not cure.value):
        return ""
    names = [name for name in (row.flag, row.other) if name]
    is_given = any(word.partition("=")[0] in names or (row.short and word.startswith(row.short)) for word in words)
    if is_given or "-" in words:  # standard input is read once
        return ""
    return shlex.join(["grpo-adv", *words, *row.words(cure.value or True)])
