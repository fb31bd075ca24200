"""The data of the screen: groups by order and condition, the rollouts of a group, and places worth a look.

Nothing here knows a terminal. Numbers come from the narrow table; texts are read elsewhere, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import polars as pl

from grpo_cli.choosing.groups import Choice, choose_groups
from grpo_cli.engine.group_stats import finite_rows, group_extremes
from grpo_cli.engine.moments import Index, Vector
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, StepsApart, UnknownName
from grpo_cli.options.commands import COMMANDS, command_line
from grpo_cli.options.conditions import Filter
from grpo_cli.options.export_kinds import EXPORT_KINDS
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import with_effect
from grpo_cli.read.tables import FileTable
from grpo_cli.runs.group_rows import describe_rows, rows_of_groups
from grpo_cli.runs.inspect import Job, scored
from grpo_cli.runs.progress import Watching
from grpo_cli.stats.facts import Number, marked_lines, marked_rows, plain, reward_range
from grpo_cli.stats.inspection import Inspection, RowLine, never_stopping, score_groups, trend
from grpo_cli.stats.trends import Trend
from grpo_cli.stats.verdicts import label_of_equal
from grpo_cli.values.paths import as_list

NEW_FILE = "NEW_FILE"  # the name of an output in a command that is only shown
# What the groups that are shown can be written as.
KINDS = {"select": "the rows as they are in their files"} | {
    f"export --to {kind.name}": kind.help for kind in EXPORT_KINDS.values()
}
ORDER = "order"  # groups keep the order of the file
# What groups can be sorted by, and what it means.
FACTS = {
    ORDER: "the order of the files",
    "size": "rows",
    "scored": "rows with a reward",
    "mean": "mean reward",
    "solve_rate": "solve rate",
    "std": "standard deviation of the rewards",
    "spread": "largest reward - smallest reward",
    "min": "smallest reward",
    "max": "largest reward",
    "length": "mean length",
    "advantage": "largest |advantage|",
}


@dataclass(frozen=True, kw_only=True)
class GroupLine:
    """What a line of the list says of a group."""

    size: int  # all rows of the group, scored or not; rollouts if they are the unit
    mean: Number  # of its rewards; None if no row is scored
    std: Number  # sample std of its rewards; 0 with a single one, NaN without any
    # the mean reward, scaled to 0 (worst of the input) .. 1 (best); None without one, or if worst is best
    solve_rate: Number
    constant: bool  # whether it has at least two rewards, all of them equal
    status: (
        str  # why the plan treats it apart, else "scored"; "zero-variance" also if a plan keeps groups of equal rewards
    )
    rewards: Sequence[Number]  # of all its rows, in the order of the files; None where a row has none that counts


@dataclass(frozen=True)
class Rollout:
    """A rollout of a group, and its position in the input."""

    line: RowLine
    position: int


@dataclass(frozen=True)
class Model:
    """The rows of some files, scored under a plan."""

    job: Job
    tables: Sequence[FileTable]
    inspection: Inspection
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, job: Job, phase: Callable[..., None] = lambda *_: None) -> Self:
        """Read the files of a job."""
        phase("finding files", 0, 100)
        tables, skipped = job.opened()
        inspection = scored(tables, job.binding, job.plan, job.view, over=Watching(tables, phase))
        marks = marked_lines(marked_rows(inspection.narrow.mark_counts))
        return cls(job, tables, inspection, (*inspection.narrow.warnings, *skipped, *marks))

    def as_shown(self, given: Given) -> Given:
        """The options with the key of the groups, if steps are shown apart: a command that is shown or run must name it."""
        if not any(isinstance(warning, StepsApart) for warning in self.warnings):
            return given
        return Given(given, group=[as_list(*self.inspection.narrow.rule.key)])

    def under(self, plan: Plan) -> Self:
        """The same rows under another plan; files are read again only if it needs a column that was not read."""
        narrow = self.inspection.narrow
        old = narrow.request.plan
        has_columns = {*plan.needs} <= {*narrow.table.columns} and (old.uses_batch or not plan.uses_batch)
        if has_columns and plan.unit == old.unit:
            inspection = score_groups(narrow, never_stopping(plan), self.inspection.columns)
        else:
            inspection = scored(self.tables, self.job.binding, plan, self.job.view)
            for table in self.tables:
                table.source.check()
        return replace(self, job=replace(self.job, plan=plan), inspection=inspection)

    @property
    def equal(self) -> str:
        """What groups of equal rewards are called under the plan."""
        return label_of_equal(self.inspection.scored.plan)

    # --- groups ------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.inspection.groups)

    def shown(self, where: str, sort: str = ORDER) -> Index:
        """The codes of the groups that meet a condition, the largest fact first; groups without it come last."""
        codes = np.arange(self.size)
        if where.strip():
            mask = choose_groups(self.inspection, Choice(where=Filter.parse(where)))[0][""]
            codes = np.flatnonzero(mask)
        if sort == ORDER:
            return codes
        return codes[np.argsort(-self.fact(sort)[codes], kind="stable")]

    @property
    def facts(self) -> list[str]:
        """What these groups can be sorted by."""
        return [name for name in FACTS if name != "length" or "length" in self.inspection.groups.columns]

    def fact(self, name: str) -> Vector:
        """A fact of every group; NaN where there is none."""
        if name not in self.facts:
            raise UnknownName.among("fact of a group", name, self.facts)
        if name == "advantage":
            return self._largest_advantage
        groups = self.inspection.groups
        values = groups["max"] - groups["min"] if name == "spread" else groups[name]
        return values.cast(pl.Float64).to_numpy()

    @cached_property
    def _largest_advantage(self) -> Vector:
        sizes = self.inspection.scored.rows[".advantage"].abs()
        _, largest = group_extremes(*finite_rows(self.codes, sizes), self.size)
        return np.where(np.isfinite(largest), largest, np.nan)

    @property
    def codes(self) -> Any:
        """The group of every row."""
        return self.inspection.narrow.table["group"].to_numpy()

    def lines_of(self, codes: list[int]) -> list[GroupLine]:
        """The facts of these groups and the rewards of each."""
        groups = self.inspection.groups[codes].select("size", "mean", "std", "solve_rate", "constant")
        statuses = self.inspection.scored.groups[".status"]
        reward = self.inspection.raw.rows[".reward"]
        lines = []
        for code, rows, facts in zip(
            codes, rows_of_groups(self.inspection, codes), groups.iter_rows(named=True), strict=True
        ):
            equal = facts["constant"] and statuses[code] == "scored"
            status = "zero-variance" if equal else statuses[code]
            lines.append(GroupLine(**facts, status=status, rewards=[*map(plain, reward.gather(rows))]))
        return lines

    @property
    def ends(self) -> tuple[float, float]:
        """The worst and the best reward, for strips of rewards."""
        low, high = reward_range(self.inspection.groups)
        return (0.0 if low is None else low), (1.0 if high is None else high)

    # --- rollouts ----------------------------------------------------------------------------------------------

    def rollouts(self, code: int) -> list[Rollout]:
        """The rollouts of a group, the largest advantage first."""
        (rows,) = rows_of_groups(self.inspection, [code])
        described = zip(describe_rows(self.inspection, rows), rows.tolist(), strict=True)
        lines = [Rollout(line, position=row) for line, row in described]
        return sorted(
            lines, key=lambda one: -np.inf if one.line.advantage is None else one.line.advantage, reverse=True
        )

    # --- steps -------------------------------------------------------------------------------------------------

    @cached_property
    def trend(self) -> Trend | None:
        """A line for each step; None without steps."""
        return trend(self.inspection)

    # --- places worth a look -----------------------------------------------------------------------------------

    def dead(self, shown: Index, after: int) -> int:
        """The next group without a gradient after this place of a list; after the last the first again."""
        dead = np.flatnonzero(~(self.fact("advantage")[shown] > 0))
        if not len(dead):
            raise DataError("every listed group has a gradient")
        following = np.searchsorted(dead, after, side="right") % len(dead)
        return int(shown[dead[following]])


# --- command lines that repeat what the screen shows -------------------------------------------------------


def commands(given: Given, kind: str, *, where: str, sort: str, show: str | None) -> list[str]:
    """The command that opens this view, and the one that writes its groups; both include the options from --config."""
    view = with_effect(given).without({"config", "where", "sort", "show"})
    if where:
        view["where"] = [where]
    if sort != ORDER:
        view["sort"] = sort
    if show is not None:
        view["show"] = show
    lines = [command_line("browse", view)]
    if where or kind != "select":
        lines.append(command_line(*options_for(kind, given, where, NEW_FILE)))
    return lines


def options_for(kind: str, given: Given, where: str, output: str) -> tuple[str, Given]:
    """The command that writes the groups as one of `KINDS`, with those options of the view that it has a use for."""
    command, _, to = kind.partition(" --to ")
    options = given.among(COMMANDS[command].takes).without({"config", "quiet", "debug", "where"})
    if to:
        options["to"] = to
    if where:
        options["where"] = [where]
    return command, Given(with_effect(options.to_command(command)), output=output)
