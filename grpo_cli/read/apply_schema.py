"""What a schema adds to the flags: the key, the rewards and the rest of a Binding, wherever no flag says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import polars as pl

from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats import registry
from grpo_cli.formats.cells import canonical
from grpo_cli.formats.interface import PARENT
from grpo_cli.read.derived_columns import FILE, OWN
from grpo_cli.read.detect_schema import recognised
from grpo_cli.read.tables import FileTable
from grpo_cli.schemas.sample import Sample, reward_names
from grpo_cli.schemas.table import LISTED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from grpo_cli.engine.plan import Plan
    from grpo_cli.read.tables import Binding, Table
    from grpo_cli.schemas.table import Schema, Unscorable

_EMPTY: Final = ("", "[]", "{}")


@dataclass(frozen=True, slots=True)
class Bound:
    """Tables and flags after the schema has had its say."""

    tables: Sequence[Table]
    binding: Binding
    schema: Schema | None = None
    notes: tuple[str, ...] = ()
    words: str = ""  # the key as the schema calls it
    marks: tuple[Unscorable, ...] = ()  # those whose column there is

    @property
    def looked_for(self) -> list[str]:
        """Columns that are read beside the key and the rewards, where there are any."""
        if self.schema is None:
            return []
        return [*(one.column for one in self.marks), *([self.schema.rollout] if self.schema.rollout else [])]

    @property
    def logged(self) -> str:
        """The column of the trainer's own advantage, where it tells the baseline."""
        return self.schema.advantage if self.schema is not None and self.schema.centred else ""

    def declared(self, columns: Mapping[str, pl.Series], rewards: Sequence[str]) -> pl.Series | None:
        """The rows that the schema says have no reward."""
        if self.schema is None:
            return None
        found = [_in_state(columns[one.column], one) for one in self.marks if one.column in columns]
        if self.schema.missing:
            found += [pl.DataFrame([columns[name] for name in rewards]).select(_no_number()).to_series()]
        return None if not found else pl.DataFrame(found).select(pl.any_horizontal(pl.all())).to_series()


def _no_number() -> pl.Expr:
    return pl.all_horizontal(pl.all().is_null() | ~pl.all().is_finite())


def laid_out(tables: Sequence[Table], binding: Binding) -> Sequence[Table]:
    """The tables as the schema of their files reads them, one row per rollout."""
    seen = recognised(tables, binding.schema)
    first = next((one for one in seen if isinstance(one, FileTable)), None)
    if first is None or first.schema is None or first.schema.layout not in LISTED:
        return seen
    rewards = binding.rewards or _rewards(first.schema, first)
    return [_listed(one, first.schema, rewards) if isinstance(one, FileTable) else one for one in seen]


def bound(given: Sequence[Table], binding: Binding, plan: Plan) -> Bound:
    """Fill in what the flags leave open, from the schema that the files are of."""
    tables = laid_out(given, binding)
    files = [one for one in tables if isinstance(one, FileTable)]
    schema = files[0].schema if files else None
    if schema is None:
        return Bound(tables, binding)
    names = set(files[0].columns())
    rewards = binding.rewards or _rewards(schema, files[0])
    group = binding.group or _group(schema, binding, names, alone=len(files) == 1)
    filled = replace(
        binding,
        group=group,
        rewards=rewards,
        group_within=binding.group_within or (schema.within or None if not binding.group else None),
        batch_by=binding.batch_by or (_batch(schema, names) if plan.uses_batch else None),
        roles={**_roles(schema, plan, names), **binding.roles},
    )
    words = "" if binding.group else _words(schema, binding)
    reward = f"reward = {' + '.join(map(schema.words, rewards))}"
    notes = (
        f"read as {schema.title}: group = {words or ', '.join(group)}, {reward}",
        *([schema.note] if _noted(schema, binding) else []),
    )
    marks = tuple(one for one in schema.unscorable if one.column.split(".")[0] in names)
    return Bound(tables, filled, schema, notes, words, marks)


def _words(schema: Schema, binding: Binding) -> str:
    if schema.blocks:
        return schema.grouping.replace("--group-size", str(binding.group_size))
    cut = "" if binding.group_size is None else f", in blocks of {binding.group_size} rows"
    return schema.grouping + cut


def _noted(schema: Schema, binding: Binding) -> bool:
    return bool(schema.note) and not (binding.rewards if schema.rewards is not None else binding.group_size)


def _rewards(schema: Schema, table: FileTable) -> tuple[str, ...]:
    found = schema.reward or reward_names(schema, Sample.of(table.source, table.format, table.columns()))
    if not found:
        raise DataError(
            f"{table.name}: no column that could be the reward of a {schema.title}", "name it with --reward"
        )
    return found


def _group(schema: Schema, binding: Binding, names: Collection[str], *, alone: bool) -> tuple[str, ...]:
    """The key as far as its columns are there; the last one has to be. A single file need not be told from others."""
    if schema.blocks and binding.group_size is None:
        cure = "give --group-size N, the number of rollouts of a prompt"
        raise DataError(f"a {schema.title} names no prompt: groups are blocks of rows", cure)
    *outer, last = [name for name in schema.group if not (alone and name == FILE)] or [""]
    return (*(name for name in outer if _there(schema, name, names)), *([last] if last else []))


def _there(schema: Schema, name: str, names: Collection[str]) -> bool:
    made = schema.derive.get(name)
    source = name if made is None else made.source
    return source in OWN or source == PARENT or source in names or source.split(".")[0] in names


def _batch(schema: Schema, names: Collection[str]) -> str | None:
    return schema.batch if schema.batch in {"file", "input"} or _there(schema, schema.batch, names) else None


def _roles(schema: Schema, plan: Plan, names: Collection[str]) -> dict[str, str]:
    """Extra columns that the plan needs and the schema knows."""
    known = {"length": schema.length}
    return {role: known[role] for role in plan.needs if known.get(role) and _there(schema, known[role], names)}


def _listed(table: FileTable, schema: Schema, rewards: Sequence[str]) -> FileTable:
    """A file whose lists become rows: those of its rewards say how many."""
    if table.format.packed is not None:
        return table
    items = tuple(name for name in rewards if name not in schema.derive)
    if not items:
        raise UsageError(f"a {schema.title} needs the column of its rewards", "name it with --reward")
    return table.of_schema(schema, registry.listed(table.format, items, keys_too=schema.layout != "wide"))


def _in_state(column: pl.Series, mark: Unscorable) -> pl.Series:
    """Which rows of a column are in the state that means: no reward."""
    if mark.state == "null":
        return column.is_null()
    text = canonical(column).str.strip_chars('"').fill_null("" if mark.state == "filled" else "?")
    if mark.state == "filled":
        return ~text.is_in(_EMPTY)
    if mark.state == "in":
        return text.is_in(list(mark.values))
    if mark.state == "zero":
        return (text.cast(pl.Float64, strict=False) == 0).fill_null(value=False) | (text.str.to_lowercase() == "false")
    return text.str.to_lowercase() == mark.state


def refuse_steps(bound_: Bound, columns: Mapping[str, pl.Series], codes: pl.Series, plan: Plan) -> None:
    """Several rows of one rollout must not be taken for several rollouts."""
    name = "" if bound_.schema is None else bound_.schema.rollout
    if not name or name not in columns or plan.unit.take != "each" or "rollout" in bound_.binding.roles:
        return
    known = pl.DataFrame({"code": codes, "rollout": canonical(columns[name])}).drop_nulls()
    if known.n_unique() < len(known):
        cure = f"--rollout {name} counts each once (add --rollout-reward each to count rows)"
        raise DataError(f"several rows are of one rollout ({name})", cure)
