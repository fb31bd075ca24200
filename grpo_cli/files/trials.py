"""Job folders of Harbor: a folder for each trial, with its result and what its agent did."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from grpo_cli.errors import DataError
from grpo_cli.files.named import opened

RESULT = "result.json"
CONFIG = "config.json"
_BOTH = (RESULT, CONFIG)  # a running trial has only the second
_NAMED = (b'"task_name"', b'"trial_name"')  # at the beginning of the result of a trial
_HEAD = 4096  # bytes
_LOOKED_INTO = 3  # trials, should the result of one be cut short


def is_job(folder: Path, below: Iterable[str] | None = None) -> bool:
    """Whether a folder is a trial of Harbor, or has such folders (`below`: the names of its folders, if known)."""
    if _has_result(folder) and _is_trial(folder):
        return True
    names = _folders(folder) if below is None else below
    with_result = (folder / name for name in names if _has_result(folder / name))
    return any(map(_is_trial, islice(with_result, _LOOKED_INTO)))


def trials_of(folder: Path) -> list[Path]:
    """The finished trials in a job folder by their names, or the trial itself."""
    if _is_trial(folder):
        return [folder]
    return [folder / name for name in sorted(_folders(folder)) if (folder / name / RESULT).is_file()]


def unfinished(folder: Path) -> list[str]:
    """The trials in a job folder that have no result yet, or never will, by their names, which end with a slash."""
    trials = () if _is_trial(folder) else (folder / name for name in sorted(_folders(folder)))
    begun = [trial for trial in trials if (trial / CONFIG).is_file()]
    return [f"{trial}/" for trial in begun if not (trial / RESULT).is_file()]


def in_store(paths: Iterable[str]) -> bool:
    """Whether there is a job among the objects of a store, by their names: results of trials beside that of the job."""
    names = {*paths}
    folders = {name.removesuffix(f"/{RESULT}") for name in names if name.endswith(f"/{RESULT}")}
    inside = [folder for folder in folders if folder.rpartition("/")[0] in folders]
    return any(f"{folder}/{CONFIG}" in names for folder in inside)


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir()]


def _has_result(folder: Path) -> bool:
    return all(os.path.isfile(f"{folder}/{name}") for name in _BOTH)  # noqa: PTH113 - called for thousands of folders


def _is_trial(folder: Path) -> bool:
    """Whether the result in a folder is that of a trial; a job has one as well."""
    try:
        with opened(folder / RESULT) as handle:
            head = handle.read(_HEAD)
    except (OSError, DataError):
        return False
    return all(name in head for name in _NAMED)
