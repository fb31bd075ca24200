"""The generated parts of README.md: `python -m tests.readme` writes them, a test compares them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.options.table import CHOICE, EVERY, LOOK, OPTIONS, Option

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"<!-- (output|table): (.+?) -->\n.*?<!-- end -->\n", re.DOTALL)


def samples_in(folder: Path) -> None:
    """The samples as they are in the repository, without what somebody computed beside them."""
    shutil.copytree(
        ROOT / "sample_data", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.advantages.*", "__*")
    )


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the README as a user would, 80 columns wide, with this interpreter's commands first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    return subprocess.run(command, shell=True, cwd=cwd, env=env, capture_output=True, text=True, check=False)  # noqa: S602


def captured(command: str) -> str:
    """What a command prints, without the time it took."""
    with tempfile.TemporaryDirectory() as scratch:
        samples_in(Path(scratch, "sample_data"))
        done = shell(command, Path(scratch))
    if done.returncode:
        raise RuntimeError(done.stderr)
    told = re.sub(r"[0-9.]+ s$", "0.03 s", done.stdout, flags=re.MULTILINE)
    return f"```text\n$ {command}\n{told.rstrip()}\n```\n"


def methods() -> str:
    lines = ["| method | formula | scale | needs | source |", "|---|---|---|---|---|"]
    for row in ESTIMATORS.values():
        scales = ", ".join([f"**{row.scale}**", *(scale for scale in row.scales if scale != row.scale)])
        needs = ", ".join(f"`{ROLES[need].flag}`" for need in needed(row.name))
        formula = row.formula.replace("|", "\\|").rstrip(",;")
        lines.append(f"| `{row.name}` | {formula} | {scales} | {needs} | {row.source} |")
    return "\n".join(lines) + "\n"


def needed(name: str) -> tuple[str, ...]:
    from grpo_cli.engine.plan import Plan

    return Plan.of({"estimator.name": name}).needs


def options() -> str:
    return _options(OPTIONS.values())


def looks() -> str:
    return _options(row for row in EVERY.values() if row.panel in {LOOK, CHOICE})


def _options(rows: Iterable[Option]) -> str:
    lines = ["| option | takes | meaning |", "|---|---|---|"]
    for row in rows:
        takes = row.metavar or " ".join(map(str, getattr(row.type, "__args__", ())))
        short = f", `{row.short}`" if row.short else ""
        other = f", `{row.other}`" if row.other else ""
        lines.append(f"| `{row.flag}`{short}{other} | {takes.replace('|', ' ')} | {row.help.replace('|', ' or ')} |")
    return "\n".join(lines) + "\n"


def presets() -> str:
    from grpo_cli.engine.presets import presets as known
    from grpo_cli.render.presets import as_dict

    lines = ["| preset | framework | computes |", "|---|---|---|"]
    for row in known().values():
        told = as_dict(row.name)
        formula = row.refused or "; ".join(told["formula"]).replace("|", "\\|")
        lines.append(f"| `{row.name}` | {row.framework} | {formula} |")
    return "\n".join(lines) + "\n"


def gates() -> str:
    from grpo_cli.stats.facts import GATES

    return ", ".join(f"`{name}`" for name in GATES) + "\n"


def schemas() -> str:
    from grpo_cli.render.schemas import reward_of
    from grpo_cli.schemas.table import REFUSED
    from grpo_cli.schemas.table import schemas as known

    lines = ["| schema | written by | layout | group | reward |", "|---|---|---|---|---|"]
    for row in known().values():
        refused = row.layout in REFUSED
        group, reward = (f"refused: {row.refusal}", "") if refused else (row.grouping, reward_of(row))
        lines.append(f"| `{row.name}` | {row.tool} | {row.layout} | {group} | {reward} |".replace("_", "\\_"))
    return "\n".join(lines) + "\n"


TABLES = {
    "schemas": schemas,
    "methods": methods,
    "options": options,
    "looks": looks,
    "gates": gates,
    "presets": presets,
}


def regenerated(text: str) -> str:
    """The README with its generated parts made anew."""

    def fresh(found: re.Match[str]) -> str:
        kind, what = found.groups()
        body = captured(what) if kind == "output" else TABLES[what]()
        return f"<!-- {kind}: {what} -->\n{body}<!-- end -->\n"

    return BLOCK.sub(fresh, text)


if __name__ == "__main__":
    README.write_text(regenerated(README.read_text(encoding="utf-8")), encoding="utf-8")
