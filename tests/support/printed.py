"""What an audit prints is run: the options of the formula that it names and of each that it says fits as well."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np

import grpo_cli
from grpo_cli.guests.audit.run import said_of
from grpo_cli.options.given import Given

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

FLOAT32 = 2e-5  # error of float32 arithmetic, relative to max(1, |A|)
SLACK = 1e-6  # what arithmetic adds to half a step
BITS = {"float16": 11, "bfloat16": 8}  # of the mantissa


def options_of(flags: str) -> dict[str, Any]:
    """The keywords of `compute` for these options."""
    words, options = shlex.split(flags), dict[str, Any]()
    for flag, value in zip(words[::2], words[1::2], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        if name in {"set", "reward"}:
            options.setdefault(name, []).append(value)
        else:
            options[name] = float(value) if name == "epsilon" else int(value) if re.fullmatch(r"\d+", value) else value
    return options


def printed(facts: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """The factor and the options of each formula that is said to fit."""
    match = facts["match"]
    yield match["factor"], match["flags"]
    of_input = re.sub(r"^(--preset|--method) \S+( --(scale|std-of|ddof|epsilon|whiten|set) \S+)*", "", match["flags"])
    for name in (name for tie in facts["ties"] for name in tie["names"]):
        factor, _, flags = name.rpartition(" x ")
        flags = flags if flags.startswith("--") else f"--preset {flags}"
        for one in ends_of(flags):
            yield float(factor or 1), one + of_input


def ends_of(flags: str) -> list[str]:
    """The options with both ends of each range, such as `--epsilon 0 to 1e-06`."""
    found = re.search(r"(--epsilon |--set \S+=)(\S+) to (\S+)", flags)
    if found is None:
        return [flags]
    return [
        one for end in found.groups()[1:] for one in ends_of(flags.replace(found.group(0), f"{found.group(1)}{end}"))
    ]


def not_reproduced(frame: pl.DataFrame, facts: Mapping[str, Any], **read: Any) -> list[str]:
    """Which of the printed formulas do not give the advantages that were logged.

    The first must be as near as the audit says that it matches, the others within the coarsest reading.
    """
    logged = frame["advantage"].cast(float).fill_null(np.nan).to_numpy()
    wrong, allowed = [], of_reading(facts["match"]["read_as"], logged)
    for number, (factor, flags) in enumerate(printed(facts)):
        options = {**read, **options_of(flags)}
        if number:  # those that fit as well are read as the notes say
            options |= _as_in_notes(facts, options, frame)
        given = grpo_cli.advantages(frame.drop("advantage"), **options).to_numpy().astype(float)
        off = np.abs(factor * given - logged)
        if (off > allowed).any() or not np.isfinite(off[np.isfinite(logged)]).all():
            wrong.append(f"{factor:g} x {flags}: {np.nanmax(off):.2g}")
        allowed = coarsest(logged)
    return wrong


def _as_in_notes(facts: Mapping[str, Any], options: dict[str, Any], frame: pl.DataFrame) -> dict[str, Any]:
    plan = said_of(Given(options)).plan
    batch = re.search(r"batches by (\w+)", " ".join(facts["notes"]))
    of_batch = {"batch_by": batch.group(1) if batch else "input"} if plan.uses_batch else {}
    return {**of_batch, **({"length_column": "length"} if {"length"} & {*plan.needs} & {*frame.columns} else {})}


def of_reading(read_as: str, logged: Any) -> Any:
    """How far a formula may be from each value that was read so."""
    size = np.maximum(1, np.abs(logged))
    if read_as.endswith("decimals"):
        return np.maximum(FLOAT32 * size, 0.5 * 10.0 ** -int(read_as[0])) + SLACK * size
    if read_as in BITS:
        _, exponents = np.frexp(logged)
        return np.maximum(FLOAT32 * size, np.ldexp(0.5, exponents - BITS[read_as])) + SLACK * size
    return (1 + SLACK) * FLOAT32 * size


def coarsest(logged: Any) -> Any:
    """How far a formula may be from each value if the log is rounded as coarsely as all values allow."""
    values = np.nan_to_num(np.asarray(logged, dtype=float))
    mantissas, _ = np.frexp(values)
    of_float32 = 1e-7 * np.maximum(1, np.abs(values))  # decimals may be stored in it
    grids = [
        f"{kept} decimals" for kept in range(2, 5) if (np.abs(np.round(values, kept) - values) <= of_float32).all()
    ]
    grids += [name for name, bits in BITS.items() if not (mantissas * 2.0**bits % 1).any()]
    return np.max([of_reading(one, values) for one in ("float32", *grids)], axis=0)
