"""From names on a command line to pinned files, and from these to tables with a format and a schema."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from grpo_cli.errors import UsageError
from grpo_cli.files.inputs import Input, expand, pinned, spool
from grpo_cli.files.kept import note_standard_input
from grpo_cli.files.stores import Stored, find, is_url
from grpo_cli.files.trials import RESULT, in_store, unfinished
from grpo_cli.formats import registry
from grpo_cli.formats.interface import InLines
from grpo_cli.read.recognise import recognise
from grpo_cli.read.tables import Binding, FileTable, OverTables
from grpo_cli.schemas.table import schemas

STDIN = "-"
Name = TypeVar("Name", Path, str)
NAMED = 3  # skipped files listed in a warning


def find_inputs(names: Sequence[str], output_folder: str | None = None) -> tuple[list[Input], list[str]]:
    """Pin the files to read, and warn of those that are skipped.

    Outputs of this tool, hidden and empty files, copies that a schema knows, and everything in the output folder are
    skipped; a file that is named explicitly is always read.
    """
    if STDIN in names:
        if len(names) > 1:
            raise UsageError("standard input cannot be read together with files", "give it as the only input")
        if sys.stdin is None:
            raise UsageError("standard input is closed", ["pipe something in", "name a file"])
        note_standard_input()
        return [spool(sys.stdin.buffer)], []
    objects, left_out = _find_objects([name for name in names if is_url(name)], output_folder)
    names = [name for name in names if not is_url(name)]
    if not names:
        return objects, _skipped(left_out, [])
    matched = expand(names, registry.SUFFIXES)
    named = {Path(name) for name in names}
    folder = None if output_folder is None else Path(os.path.realpath(output_folder))
    passed_over = set()
    for real, path in matched.files.items():
        is_output = folder is not None and Path(real).is_relative_to(folder)
        if path not in named and (is_output or not path.stat().st_size):
            passed_over.add(path)
    if len(passed_over) == len(matched.files):
        passed_over = set()
    others = [path for path in matched.files.values() if path not in passed_over]
    files, copies = _without_copies(others, named)
    running = [trial for path in files if path.is_dir() for trial in unfinished(path)]
    skipped = [str(path) for path in (*matched.skipped, *sorted(passed_over), *copies)]
    return [*map(pinned, files), *objects], _skipped([*skipped, *left_out], running)


def _find_objects(urls: Sequence[str], output_folder: str | None) -> tuple[list[Input], list[str]]:
    """The same for objects in stores."""
    files = dict[str, Stored]()
    skipped = []
    for url in urls:
        found, passed_over = find(url, registry.SUFFIXES)
        if in_store(file.path for file in found):
            raise UsageError(f"{url}: job folders of Harbor are not read from a store", "copy it to a disk first")
        files |= {file.path: file for file in found}
        skipped += passed_over
    outputs = []
    if output_folder is not None:
        outputs = [file for file in files if file not in urls and file.startswith(output_folder)]
    if len(outputs) < len(files):
        skipped += [files.pop(file).name for file in outputs]
    paths, copies = _without_copies(files, urls)
    return [files[path] for path in paths], [*skipped, *copies]


def _without_copies(files: Collection[Name], named: Collection[Name]) -> tuple[list[Name], list[Name]]:
    """The files to read, and those that by their schema have no rows, or only copies of rows of other files.

    A file that is named explicitly is always read.
    """
    names = {path: str(path) for path in files}
    passed: dict[Name, None] = {}
    rules = [rule for known in schemas().at_hand.values() for rule in known.copies]
    for rule in rules:
        hits = {path: hit for path, name in names.items() if (hit := re.search(rule.skip, name))}
        others = [name for path, name in names.items() if path not in hits]
        beside: dict[Name, str] = {path: _filled(rule.beside, hit) for path, hit in hits.items() if path not in named}
        there = {each for each in {*beside.values()} if any(re.search(each, name) for name in others)}
        passed |= {path: None for path, each in beside.items() if each in there}
    if len(passed) == len(files):
        return list(files), []
    return [path for path in files if path not in passed], list(passed)


def _filled(pattern: str, hit: re.Match[str]) -> str:
    """A pattern with the parts of another name that it refers to."""
    return re.sub(r"\\g<(\w+)>", lambda part: re.escape(hit[part[1]]), pattern)


def _skipped(files: Sequence[str], trials: Sequence[str]) -> list[str]:
    """A warning that lists the skipped files, and trials without a result that is read, if any."""
    warnings = []
    of_files = "(own outputs, empty, hidden, copies, or named twice)"
    for what, more, names in (
        ("file", of_files, files),
        ("trial", f"without a readable {RESULT}", trials),
    ):
        if names:
            count = f"1 {what}" if len(names) == 1 else f"{len(names)} {what}s"
            rest = ", ..." if len(names) > NAMED else ""
            warnings.append(f"skipped {count} {more}: {', '.join(names[:NAMED])}{rest}")
    return warnings


def open_tables(
    inputs: Sequence[Input],
    binding: Binding,
    over: OverTables = map,
) -> list[FileTable]:
    """The files as tables: format and schema detected, one row per rollout; only a sample is read yet.

    `over` looks at the sample of each file.
    """
    tables = []
    for given in inputs:
        source = registry.as_text(replace(given, max_line=binding.max_line), deferred=True)
        known = registry.of(source)
        if binding.skip_broken and isinstance(known, InLines):
            source = known.without_broken(source)
        tables.append(FileTable(source, known))
    return recognise(tables, binding, over)
