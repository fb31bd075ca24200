"""One real group, row by row, read from the dotted columns that the engine leaves in its frame."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from grpo_cli.parts import Whiten
from grpo_cli.view.sheet import aligned
from grpo_cli.view.words import clean, column, cut, number

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine import Scored
    from grpo_cli.narrow import Narrow
    from grpo_cli.plan import Plan

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
        """The first group with something to compare; else the first one."""
        import polars as pl

        from grpo_cli.engine import score

        # A run keeps only its results; the way to them is worth a second pass when it is asked for.
        worked = "workings" if any(name.endswith(".residual") for name in scored.frame.columns) else ""
        frame = scored.frame if worked else score(plan, narrow.table, workings=True).frame
        telling = frame.filter((pl.col(".n") > 1) & ~pl.col(".constant").fill_null(value=True))
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

    # --- numbers ---------------------------------------------------------------------------------------------

    def numbers(self) -> list[tuple[str, str]]:
        """Those of the group, and of the batch where the plan uses it."""
        first, size = self.group.row(0, named=True), int(self.group[".n"][0] or 0)
        scale = abs(first[".max"] or 0.0)
        facts = {"mean": first[".mean"], "std": _finite(first[".std"]), "min": first[".min"], "max": first[".max"]}
        ddof = f" (ddof {self.plan.divisor.ddof})"
        told = [("  group", f"n {size}  " + "  ".join(f"{k} {number(v, scale)}{ddof if k == 'std' else ''}" for k, v in facts.items()))]
        return told + (self._batch_numbers() if self.plan.uses_batch else [])

    def _batch_numbers(self) -> list[tuple[str, str]]:
        rewards = self.batch[".r"].drop_nulls()
        mean, std = rewards.mean(), rewards.std(self.plan.divisor.ddof)
        told = [("  batch", f"n {len(rewards):,}  mean {number(_real(mean))}  std {number(_real(std))} (ddof {self.plan.divisor.ddof})")]
        for op, mu, sd in self._whitenings():
            divisor = f"  sqrt(var) {number(sd)}" if op.divide else ""
            told.append(("  whitening", f"mu {number(mu, sd)}{divisor}"))
        return told

    def _whitenings(self) -> list[tuple[Whiten, float, float]]:
        """Mean and divisor of every whitening in this group's batch: the rounds of the program after the scaling."""
        from grpo_cli.engine import compile_plan
        from grpo_cli.estimators.terms import Round

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

    # --- tables ----------------------------------------------------------------------------------------------

    def tables(self, width: int) -> list[tuple[str, list[str]]]:
        """One table; with combined estimates one for each reward column, then one for all."""
        more = self.rows - SHOWN
        rest = [f"... {more:,} more {'row' if more == 1 else 'rows'}"] if more > 0 else []
        if self.plan.rewards.combine == "normalize":
            parts = [(f"z({clean(name)})", self._table(self._steps(f".component.{k}"), width) + rest) for k, name in enumerate(self.columns)]
            return [*parts, ("together", self._table(self._last(), width) + rest)]
        steps = self._steps(".reward")
        changed = bool(self.plan.post or self.plan.unit.take != "each" or self.plan.unit.per_step or self.plan.unit.state_weight)
        if not changed:
            steps.pop("scaled")
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
        return {"advantage": self._column(".advantage"), "status": self.group[".status"].head(SHOWN).cast(str).to_list()}

    def _column(self, name: str) -> list[str]:
        return column(self.group[name].head(SHOWN).to_list())

    def _table(self, steps: dict[str, list[str]], width: int) -> list[str]:
        """The rows of the table; extra columns stand before the reward when there is room for them."""
        row = {"row": self._row_names()}
        extras = {name: self._column(name) for name in SHOWABLE if name in self.plan.needs and name in self.group.columns}
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

    # --- by hand ---------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """The division (and the whitening) of the first row whose residual is not 0."""
        if self.plan.rewards.combine == "normalize":
            return []
        for i, row in enumerate(self.group.head(SHOWN).iter_rows(named=True)):
            if row[".status"] == "scored" and _finite(row[".reward.residual"]):
                return self._lines(self._row_names()[i], row)
        return []

    def _lines(self, name: str, row: dict[str, Any]) -> list[str]:
        scaled, divisor = row[".reward.scaled"], row[".reward.divisor"]
        lines = [f"row {name}: {number(row['.reward.residual'])} / {number(divisor)} = {number(scaled)}"]
        if [type(op) for op in self.plan.post] == [Whiten]:
            ((op, mu, sd),) = self._whitenings()
            whitened = (scaled - mu) / sd if op.divide else scaled - mu
            term = f"{number(scaled)} {'+' if mu < 0 else '-'} {number(abs(mu), sd)}"
            lines.append(f"then {f'({term}) / {number(sd)}' if op.divide else term} = {number(whitened, sd)}")
        return lines


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
