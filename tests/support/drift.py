"""What has changed in a framework's checkout since its presets were read.

python -m tests.support.drift CHECKOUT [--repo OWNER/NAME]

Compares the place that each preset names (a file, some of its lines or one function) as it was at the recorded commit
with the file as it is in the checkout. The repository is that of the remote `origin` unless it is named; a preset of
another name is of the same repository, which was renamed or moved, if its commit is in the checkout. Exit status 1 if a
place has changed or is gone; places that only moved are the same.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from grpo_cli.engine.presets import Preset, presets

PLACE = re.compile(r"(?P<path>[^:]+)(?::(?:(?P<first>\d+)(?:-(?P<last>\d+))?|(?P<function>\w+)))?")


@dataclass(frozen=True)
class Place:
    """A place that presets name, what became of it, and the lines that differ."""

    path: str
    commit: str
    names: tuple[str, ...]
    verdict: str
    differences: tuple[str, ...] = ()


def drift(checkout: Path, repo: str, known: Mapping[str, Preset]) -> list[Place]:
    """Every place of the repository's presets, in the order of the table; no old version from before it was renamed."""
    places = defaultdict(list)
    for row in known.values():
        commit = row.source.get("commit", "")
        if row.source["repo"].lower() == repo.lower() or (not row.archive and _has(checkout, commit)):
            places[row.source["path"], commit].append(row.name)
    return [_compared(checkout, path, commit, tuple(names)) for (path, commit), names in places.items()]


def _has(checkout: Path, commit: str) -> bool:
    return bool(commit) and _git(checkout, "cat-file", "-e", commit) is not None


def _compared(checkout: Path, place: str, commit: str, names: tuple[str, ...]) -> Place:
    found = PLACE.fullmatch(place)
    assert found is not None, f"a preset's path is not PATH, PATH:FIRST-LAST or PATH:FUNCTION: {place}"
    then = _git(checkout, "show", f"{commit}:{found['path']}") if commit else None
    if then is None:
        return Place(place, commit, names, "unknown: the recorded commit is not in this checkout (git fetch it)")
    if not (checkout / found["path"]).is_file():
        return Place(place, commit, names, "gone: there is no such file any more")
    now = (checkout / found["path"]).read_text(encoding="utf-8")
    before = _part(then, found)
    after = _part(now, found)
    if before is None:
        return Place(place, commit, names, "unknown: the recorded place is not in the recorded file")
    if before == after:
        return Place(place, commit, names, "same")
    if _within(before, now.splitlines()):
        return Place(place, commit, names, "same, at other lines")
    if after is None:
        return Place(place, commit, names, f"gone: there is no function {found['function']} any more")
    # Lines may have moved: what is compared is the whole file where only numbers name them.
    old, new = (before, after) if found["function"] else (then.splitlines(), now.splitlines())
    lines = tuple(unified_diff(old, new, f"{place} at {commit[:12]}", place, lineterm="", n=1))
    return Place(place, commit, names, "changed", lines)


def _part(text: str, place: re.Match[str]) -> list[str] | None:
    """The lines that a place names; None where there is no such function."""
    lines = text.splitlines()
    if place["function"]:
        spans = [
            lines[node.lineno - 1 : node.end_lineno]
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == place["function"]
        ]
        return spans[0] if spans else None
    if place["first"]:
        return lines[int(place["first"]) - 1 : int(place["last"] or place["first"])] or None
    return lines


def _within(part: Sequence[str], lines: Sequence[str]) -> bool:
    return any(lines[at : at + len(part)] == part for at in range(len(lines) - len(part) + 1))


def _git(checkout: Path, *words: str) -> str | None:
    """What git prints; None where it cannot."""
    done = subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, encoding="utf-8", check=False)
    return done.stdout if done.returncode == 0 else None


def main(words: Sequence[str]) -> int:
    """Print the verdict on each place, and what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--repo", help="OWNER/NAME, where the remote origin is another one")
    given = parser.parse_args(words)
    remote = (_git(given.checkout, "remote", "get-url", "origin") or "").strip().removesuffix(".git")
    repo = given.repo or "/".join(re.split("[/:]", remote)[-2:])
    places = drift(given.checkout, repo, presets())
    if not places:
        what = repo or "a repository without a remote"
        sys.stderr.write(
            f"no preset names {what} or a commit of this checkout: git fetch it, or give --repo OWNER/NAME\n"
        )
        return 2
    for place in places:
        sys.stdout.write(f"{place.verdict}: {place.path} ({', '.join(place.names)})\n")
        sys.stdout.writelines(f"    {line}\n" for line in place.differences)
    return int(any(place.verdict.startswith(("changed", "gone")) for place in places))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
