"""Where files are read and written: in this process, or in tasks on a Ray cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from grpo_cli.errors import UsageError, Way
from grpo_cli.options.given import Given
from grpo_cli.read.open_tables import STDIN
from grpo_cli.runs.progress import HERE, Workers
from grpo_cli.write.outputs import STDOUT


def workers(given: Given) -> AbstractContextManager[Workers]:
    """The workers that --engine means."""
    refuse_engine(given)
    if given.engine != "ray":
        return nullcontext(HERE)
    from grpo_cli.runs.on_ray import on_ray

    return on_ray(given.ray_address, verbose=bool(given.debug))


def refuse_engine(given: Given) -> None:
    """Refuse what tasks on other machines cannot read or write."""
    on_ray = given.engine == "ray"
    if "ray_address" in given and not on_ray:
        raise UsageError("--ray-address needs a run on Ray", Way("--engine", "ray", lead="add"))
    earlier = (text.rpartition("=")[2] for text in given.before)  # of NAME=INPUT
    read = (*given.inputs, *earlier, given.rescored)
    away = "leave out --engine ray"
    refusals = (
        ("stream" in given, "--stream reads standard input, --engine ray reads files", "leave out one of them"),
        (STDIN in read, "--engine ray reads files, and this is standard input", away),
        (given.output == STDOUT, "--engine ray writes files from several processes", "give -o FILE or -o DIRECTORY/"),
        (given.on_error == "skip", "--on-error skip reads every line in this process to find the broken ones", away),
    )  # fmt: skip
    for holds, message, hint in refusals:
        if on_ray and holds:
            raise UsageError(message, hint)
