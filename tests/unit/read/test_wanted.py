"""What several readers of a column make of it: one kind, and the strongest need."""

from __future__ import annotations

from grpo_cli.read.tables import KlField
from grpo_cli.read.wanted import Need, WantedColumn, WantedColumns, of_any
from grpo_cli.values.cells import Field, Kind


def seen(wanted: WantedColumns) -> dict[str, tuple[Kind, Need]]:
    return {name: (column.field.kind, column.need) for name, column in wanted.columns.items()}


def test_a_column_that_is_required_stays_required_and_what_the_plan_computes_with_decides_its_kind() -> None:
    wanted = WantedColumns()
    wanted.require(["step", "score"], "key")
    wanted.require(["score"], "number")
    wanted.seek(["step", "acc"], "key")
    wanted.add(["score", "acc", "error"])
    assert seen(wanted) == {
        "step": ("key", "required"), "score": ("number", "required"), "acc": ("key", "sought"), "error": ("key", "optional"),
    }  # fmt: skip


def test_a_column_that_only_checks_read_becomes_required_where_the_schema_derives_it() -> None:
    wanted = WantedColumns()
    wanted.add(["session"])
    wanted.add(["session"], "required")
    assert seen(wanted) == {"session": ("key", "required")}


def test_the_caller_decides_the_kind_of_what_only_checks_read_and_nothing_else() -> None:
    wanted = WantedColumns()
    wanted.require(["uid"], "key")
    wanted.seek(["acc"], "key")
    wanted.add(["length"])
    for name in ("uid", "acc", "length", "entropy"):
        wanted.carry(name, "number", "required")
    assert seen(wanted) == {
        "uid": ("key", "required"), "acc": ("key", "sought"), "length": ("number", "optional"), "entropy": ("number", "required"),
    }  # fmt: skip


def test_a_column_that_is_made_of_others_is_read_by_its_own_field() -> None:
    made = KlField("kl", "number", ("policy", "reference"), "k3", mean=False, mask="")
    wanted = WantedColumns([made])
    wanted.require(["kl"], "number")
    assert wanted.columns == {"kl": WantedColumn(made, "required")}


def test_of_several_plans_a_file_may_lack_what_only_some_of_them_require() -> None:
    one = WantedColumns()
    one.require(["uid", "kl"], "key")
    one.require(["acc"], "number")
    other = WantedColumns()
    other.require(["uid"], "key")
    other.seek(["acc"], "key")
    other.require(["kl"], "number")
    other.require(["format"], "number")
    assert of_any([one.columns, other.columns]) == {
        "uid": WantedColumn(Field("uid", "key"), "required"),
        "kl": WantedColumn(Field("kl", "number"), "required"),
        "acc": WantedColumn(Field("acc", "number"), "sought"),
        "format": WantedColumn(Field("format", "number"), "optional"),
    }
