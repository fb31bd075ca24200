"""The columns that are read: what each is, how it is read, and whether a file may lack it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_cli.values.cells import Field, Kind

# Which files may lack a column, from the weakest need to the strongest. Optional: those whose first rows do not show it. Sought:
# any file, and any row of it may be the first to have it. Required: none.
Need = Literal["optional", "sought", "required"]
NEEDS: tuple[Need, ...] = ("optional", "sought", "required")


@dataclass(frozen=True)
class WantedColumn:
    """A column to read."""

    field: Field  # its name, its kind and what reads it: of a class of its own if it is made of other columns
    need: Need


class WantedColumns:
    """The columns to read, in order. Whoever reads one says how it needs it; of several needs the strongest counts."""

    def __init__(self, made: Iterable[Field] = ()) -> None:
        self.columns: dict[str, WantedColumn] = {}
        self.made = {field.name: field for field in made}  # columns that are made of others

    def require(self, names: Iterable[str], kind: Kind) -> None:
        """Every file must have these. Of several kinds the last counts: a column of the key that is a reward is read as a number."""
        for name in names:
            self._want(name, kind, "required")

    def seek(self, names: Iterable[str], kind: Kind) -> None:
        """Any row may be the first to have these, and no row must."""
        for name in names:
            self._want(name, kind, "sought")

    def add(self, names: Iterable[str], need: Need = "optional") -> None:
        """Further columns, which are read as keys; one that is wanted already keeps its kind."""
        for name in names:
            there = self.columns.get(name)
            self._want(name, "key" if there is None else there.field.kind, need)

    def carry(self, name: str, kind: Kind, need: Need) -> None:
        """A column that the caller takes along. It has this kind unless the plan or a flag reads it, and this need if nothing else does."""
        there = self.columns.get(name)
        if there is None:
            self._want(name, kind, need)
        elif there.need == "optional":
            self._want(name, kind, "optional")

    def _want(self, name: str, kind: Kind, need: Need) -> None:
        there = self.columns.get(name)
        if there is not None:
            need = max(need, there.need, key=NEEDS.index)
        self.columns[name] = WantedColumn(self.made.get(name) or Field(name, kind), need)


def of_any(parts: Sequence[Mapping[str, WantedColumn]]) -> dict[str, WantedColumn]:
    """The columns that some part wants; a file may lack one that not every part requires."""
    columns = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        wanted = [part[name] for part in parts if name in part]
        numbers = (column.field for column in wanted if column.field.kind != "key")
        needs = {column.need for column in wanted}
        need: Need = "optional"
        if "sought" in needs:
            need = "sought"
        elif needs == {"required"} and len(wanted) == len(parts):
            need = "required"
        columns[name] = WantedColumn(next(numbers, wanted[0].field), need)
    return columns
