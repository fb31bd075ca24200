"""`grpo-adv`, and `python -m grpo_cli`."""

import os
import signal
import sys

_INTERRUPTED = 130  # as a shell reports a process that SIGINT (2) ended: 128 + 2


def main() -> None:
    """Run the command line; an interrupt while it is still loading prints no traceback either."""
    if sys.platform == "win32":
        sys.exit("error: grpo-adv runs on Linux and macOS, not on Windows itself; on Windows run it in WSL")
    # numpy's linear algebra is not used here, and its threads wait in a loop for work: 0.1 s of processor time a run.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # polars' allocator has four arenas a core, which do not share freed memory: with one a core, runs take
    # 2 to 10 % less memory and time.
    os.environ.setdefault("_RJEM_MALLOC_CONF", f"narenas:{os.cpu_count() or 1}")
    # Until the command line has its own handlers: the interrupt may hit the import of anything, even of numpy or polars.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    try:
        from grpo_cli.cli.entry import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
