"""`--format`: one table for another program, of all groups, of a trend or of one group's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from grpo_cli.ends import GROUP_FACTS
from grpo_cli.errors import UnknownName
from grpo_cli.formats.cells import canonical
from grpo_cli.shown import shown
from grpo_cli.view.words import number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from grpo_cli.inspection import Inspection

DIGITS: Final = 6


def asked(found: Inspection, *, show: str | None, sort: str | None, top: int | None) -> pl.DataFrame:
    """The rows of a group if one is shown, else the trend if there is one, else the groups."""
    if show is not None:
        return _rows(shown(found, show)["rows"])
    if found.facts["by"] is not None:
        told = found.facts["by"]
        return pl.DataFrame(told["lines"], infer_schema_length=None).rename({"value": told["column"]})
    return _groups(found, sort, top)


def _rows(rows: list[Mapping[str, Any]]) -> pl.DataFrame:
    flat = [{k: v for k, v in row.items() if k != "rewards"} | dict(row["rewards"]) for row in rows]
    return pl.DataFrame(flat, infer_schema_length=None)


def _groups(found: Inspection, sort: str | None, top: int | None) -> pl.DataFrame:
    """Every group with its key; in their order, or the most first."""
    names = [name for name in (*GROUP_FACTS, "constant") if name in found.groups.columns]
    keys = [canonical(one) if one.dtype.is_nested() else one for one in found.narrow.key.get_columns()]
    facts = found.groups.select(names).with_columns(pl.selectors.float().fill_nan(None))
    frame = pl.DataFrame([*(key for key in keys if key.name not in names), *facts.get_columns()])
    if not keys:
        frame = pl.DataFrame([(found.narrow.groups.first + 1).alias("first_row"), *facts.get_columns()])
    if sort is not None:
        if sort not in names:
            raise UnknownName.among("fact of a group", sort, names)
        frame = frame.sort(sort, descending=True, nulls_last=True, maintain_order=True)
    return frame if top is None else frame.head(top)


def markdown(frame: pl.DataFrame) -> str:
    """A table as Markdown has it; numbers to the right."""
    right = [dtype.is_numeric() for dtype in frame.dtypes]
    lines = [frame.columns, ["--:" if one else "---" for one in right]]
    lines += [[_cell(value) for value in row] for row in frame.iter_rows()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value, digits=DIGITS)
    return " ".join(str(value).split()).replace("|", "\\|")


def _csv(frame: pl.DataFrame) -> str:
    return frame.write_csv()


WRITERS: Final[Mapping[str, Callable[[pl.DataFrame], str]]] = {"md": markdown, "csv": _csv}
