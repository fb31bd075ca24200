"""`--explain`: what would be computed, part by part, and one real group worked out row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.engine.moments import Moments
from grpo_cli.engine.plan_parts import Whiten
from grpo_cli.render import plan_text, summary
from grpo_cli.render.text import Sheet, aligned, clean, column, count, cut, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl
    from rich.console import Console

    from grpo_cli.engine.compile import Scored
    from grpo_cli.engine.estimators.terms import Round
    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.tables import Narrow


SHOWN: Final = 12
PLACE: Final = 24
# Extra columns that a reader needs to follow the arithmetic, where they fit.
SHOWABLE: Final = ("length", "logprob", "baseline", "kl", "step_reward")
DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Worked:
    """A group of the frame, and where it stands in the input."""

    plan: Plan
    group: pl.DataFrame
    batch: pl.DataFrame
    label: str
    places: list[str]
    columns: tuple[str, ...]
    inputs: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, scored: Scored, narrow: Narrow) -> Worked:
        """The first group with something to compare and a row that moves; else the first one."""
        import polars as pl

        frame = scored.frame
        moved = pl.any_horizontal(pl.col("^.*\\.residual$") != 0).fill_null(value=False)
        telling = frame.filter((pl.col(".n") > 1) & ~pl.col(".constant").fill_null(value=True) & moved)
        code = int((telling if len(telling) else frame)["group"][0])
        indexed = frame.with_row_index(".row").filter(pl.col("group") == code)
        batch = frame.filter(pl.col("batch") == indexed["batch"][0])
        places = [narrow.place(row) for row in indexed[".row"].head(SHOWN).to_list()]
        return cls(plan, indexed, batch, narrow.label(code), places, narrow.reward_names, tuple(narrow.table.columns))

    @property
    def rows(self) -> int:
        """How many rows the group has, scorable or not."""
        return len(self.group)

    @property
    def place(self) -> str:
        """The file, or where it starts when there are several."""
        files = {place.rpartition(" row ")[0] for place in self.places}
        return clean(next(iter(files))) if len(files) == 1 else f"{len(files)} files"

    # --- numbers -----------------------------------------------------------------------------------------

    def numbers(self) -> list[tuple[str, str]]:
        """Those of the group, and of the batch where the plan uses it."""
        first = self.group.row(0, named=True)
        own = {key: _finite(first[f".{key}"]) for key in ("mean", "std", "min", "max")}
        told = [("  group", self._statistics(int(first[".n"] or 0), own))]
        return told + (self._batch_numbers() if self.plan.uses_batch else [])

    def _batch_numbers(self) -> list[tuple[str, str]]:
        rewards = self.batch[".r"].drop_nulls()
        whole = {"mean": _real(rewards.mean()), "std": _real(rewards.std(self.plan.divisor.ddof))}
        told = [("  batch", self._statistics(len(rewards), whole))]
        for op, mu, sd in self._whitenings():
            divisor = f"  divisor {number(sd, digits=DIGITS)}" if op.divide else ""
            told.append(("  whitening", f"mu {number(mu, sd, DIGITS)}{divisor}"))
        return told

    def _statistics(self, size: int, values: dict[str, float | None]) -> str:
        scale = max((abs(value) for value in values.values() if value is not None), default=0.0)
        ddof = {"std": f" (ddof {self.plan.divisor.ddof})"}
        told = (f"{key} {number(value, scale, DIGITS)}{ddof.get(key, '')}" for key, value in values.items())
        return "  ".join([f"n {size:,}", *told])

    def _whitenings(self) -> list[tuple[Whiten, float, float]]:
        """Mean and divisor of every whitening in this batch: the rounds of the program after the scaling."""
        from grpo_cli.engine.compile import compile_plan
        from grpo_cli.engine.estimators.terms import Round

        ops = [op for op in self.plan.post if isinstance(op, Whiten)]
        program = compile_plan(self.plan, len(self.columns), frozenset(self.inputs))
        last = max(i for i, step in enumerate(program.steps) if step.name.endswith(".scaled"))
        rounds = [step for step in program.steps[last:] if isinstance(step, Round)]
        return [(op, *self._moments(op, step)) for op, step in zip(ops, rounds, strict=True)]

    def _moments(self, op: Whiten, step: Round) -> tuple[float, float]:
        """What the engine subtracts and divides by."""
        import polars as pl

        weight = pl.lit(1.0) if step.weight is None else step.weight.cast(pl.Float64)
        counted = self.batch.select(x=step.value, w=weight).drop_nulls("x")
        moments = Moments.of(counted["x"].to_numpy(), np.zeros(len(counted), np.uint32), 1, counted["w"].to_numpy())
        variance = float(moments.variance(op.ddof)[0])
        return float(moments.mean[0]), math.sqrt(max(variance + op.inside, op.floor)) + op.epsilon

    # --- tables ------------------------------------------------------------------------------------------

    def tables(self, width: int) -> list[tuple[str, list[str]]]:
        """One table; with combined estimates one for each reward column, then one for all."""
        more = self.rows - SHOWN
        rest = [f"... {count(more, 'more row')}"] if more > 0 else []
        if self.plan.rewards.combine == "normalize":
            parts = [(f"z({clean(name)})", self._steps(f".component.{k}")) for k, name in enumerate(self.columns)]
            return [(title, self._table(steps, width) + rest) for title, steps in [*parts, ("together", self._last())]]
        steps = self._steps(".reward")
        unit = self.plan.unit
        if not (self.plan.post or unit.take != "each" or unit.per_step or unit.state_weight):
            del steps["scaled"]  # it is the advantage
        return [("", self._table(steps | self._last(), width) + rest)]

    def _steps(self, part: str) -> dict[str, list[str]]:
        """From the reward to the scaled residual."""
        shaped = {"shaped": self._column(".r")} if self.plan.shape and part == ".reward" else {}
        return {
            "reward": self._column(part),
            **shaped,
            "residual": self._column(f"{part}.residual"),
            "divisor": self._column(f"{part}.divisor"),
            "scaled": self._column(f"{part}.scaled"),
        }

    def _last(self) -> dict[str, list[str]]:
        scale = max((abs(v) for v in self.batch[".advantage"].drop_nulls() if math.isfinite(v)), default=0.0)
        value = column(self.group[".advantage"].head(SHOWN).to_list(), scale)
        return {"advantage": value, "status": self.group[".status"].head(SHOWN).cast(str).to_list()}

    def _column(self, name: str) -> list[str]:
        return column(self.group[name].head(SHOWN).to_list())

    def _table(self, steps: dict[str, list[str]], width: int) -> list[str]:
        """The rows of the table; extra columns stand before the reward when there is room for them."""
        row = {"row": self._row_names()}
        extras = {name: self._column(name) for name in SHOWABLE if name in self.plan.needs}
        for columns in (row | extras | steps, row | steps):
            left = frozenset({list(columns).index("status")} if "status" in columns else ())
            lines = aligned(list(columns), list(columns.values()), left)
            if max(map(len, lines)) <= width:
                break
        return lines

    def _row_names(self) -> list[str]:
        """The row in its file; with the file's name where the group lies in several."""
        if len({place.rpartition(" row ")[0] for place in self.places}) == 1:
            return [place.rpartition(" row ")[2] for place in self.places]
        return [cut(clean(place.replace(" row ", ":")), PLACE) for place in self.places]

    # --- by hand -----------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """The division (and the whitening) of the first row whose residual is not 0."""
        if self.plan.rewards.combine == "normalize":
            return []
        for i, row in enumerate(self.group.head(SHOWN).iter_rows(named=True)):
            if row[".status"] == "scored" and _finite(row[".reward.residual"]):
                return self._lines(self._row_names()[i], row)
        return []

    def _lines(self, name: str, row: dict[str, Any]) -> list[str]:
        def told(value: float, scale: float = 0.0) -> str:
            return number(value, scale, DIGITS)

        scaled, divisor = row[".reward.scaled"], row[".reward.divisor"]
        lines = [f"row {name}: {told(row['.reward.residual'])} / {told(divisor)} = {told(scaled)}"]
        if [type(op) for op in self.plan.post] == [Whiten]:
            ((op, mu, sd),) = self._whitenings()
            whitened = (scaled - mu) / sd if op.divide else scaled - mu
            term = f"{told(scaled)} {'+' if mu < 0 else '-'} {told(abs(mu), sd)}"
            lines.append(f"then {f'({term}) / {told(sd)}' if op.divide else term} = {told(whitened, sd)}")
        return lines


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


KEY: Final = 60


def render(plan: Plan, facts: Mapping[str, Any], scored: Scored, narrow: Narrow, console: Console) -> None:
    """Print the columns and the grouping, the plan, and a group; nothing has been or will be written."""
    sheet = Sheet(console)
    summary.show(summary.FOUND, facts, plan, sheet)
    sheet.row("reward", clean(" + ".join(facts["reward_columns"])), hang=2)
    for role, name in facts["role_columns"].items():
        sheet.row(role.replace("_", " "), clean("every response counts the same" if name == "equal" else name), hang=2)
    sheet.blank()
    summary.show([summary.preset], facts, plan, sheet)
    sheet.row("method", f"{plan.method}: {plan.estimator.summary}", hang=2)
    for part, lines in plan_text.full(plan, facts["reward_columns"]):
        sheet.row(f"  {part}", lines, hang=2)
    sheet.blank()
    _group(Worked.of(plan, scored, narrow), facts, sheet)
    sheet.blank()
    for warning in facts["warnings"]:
        sheet.row("warning", clean(warning), style="yellow")
    sheet.text("nothing was written")


def _group(worked: Worked, facts: Mapping[str, Any], sheet: Sheet) -> None:
    """The group's numbers, then a table whose last lines can be checked by hand."""
    key = ", ".join(map(clean, facts["group_key"]))
    named = f"{key} = " if key else ""
    sheet.row("worked out", f"{named}{cut(clean(worked.label), KEY)} ({count(worked.rows, 'row')})", hang=2)
    sheet.row("", f"in {worked.place}", hang=2)
    for label, line in worked.numbers():
        sheet.row(label, line, hang=2)
    for title, lines in worked.tables(sheet.console.width):
        sheet.blank()
        if title:
            sheet.text(title)
        for line in lines:
            sheet.text(line)
    checks = worked.check()
    if checks:
        sheet.blank()
        sheet.row("by hand", checks, hang=2)
