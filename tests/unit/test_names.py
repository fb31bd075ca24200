"""Names of columns in files are never patterns: polars takes "*" and names such as ^a$ for one, wherever it takes an expression.

`selectors.by_name`, brackets and positions take a name as it is. In a method of a column its own name is a pattern as well:
`tests/e2e/test_column_names.py` runs all commands on such names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "grpo_cli"
OF_POLARS = {"col", "exclude", "struct", "field"}
OF_FRAMES = {"select", "drop", "group_by", "sort", "sort_by", "agg", "drop_nulls", "partition_by", "explode", "pivot"}
ROOMS_WITHOUT_FILES = {"engine"}  # its columns have names of ours: those of roles, facts and `reward.0`
MODULES = [
    str(path.relative_to(PACKAGE))
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts[0] not in ROOMS_WITHOUT_FILES
]
# What has no name of a file in it, for a reader has looked: facts, roles and positions, types, expressions, functions of the same name.
KNOWN = {
    "api/__init__.py": {"select(rows)", "select(names)", "drop(left_out)", "col(pl.String)"},
    "guests/audit/groupings.py": {"drop(LEFT_OUT)"},
    "stats/compare.py": {"select(reward)"},
    "guests/audit/float32.py": {"select((name for name in table.columns if not name.startswith('reward.')))"},
    "guests/audit/weights.py": {"col(names)", "select(names)", "select(*names)"},  # rewards by position
    "guests/audit/trial.py": {
        "col([name for name in self.table.columns if name.startswith('reward.') or name in plan.needs])",
        "select(*read)",  # rewards by position, and roles
    },
    "choosing/exports.py": {"select(std)"},
    "choosing/groups.py": {"select([name for name in FACTS if name in groups.columns])"},
    "read/checks/rollouts.py": {"agg(lost)"},
    "read/narrow.py": {"col(pl.String)"},
    "read/pairs.py": {"drop(FILE)", "select(columns)"},
    "render/inspect.py": {"sort(sort)", "select(names)", "select(*NUMBERS)"},
    "runs/against.py": {"sort(self.sort)"},  # a fact of a change
    "stats/against.py": {"sort(size)", "sort(by)", "drop_nulls(sort)"},  # an expression, and facts of a change
    "stats/inspection.py": {"col(*sums)", "col(sort)", "select(*names)", "sort(size)"},
    "values/cells.py": {"select(whole)", "struct(fields)"},
    "write/records.py": {"col(name)", "select(is_list)", "drop(*without)"},  # of computed columns
    "write/write_outputs.py": {"drop(FILE)"},
}


def is_one_name(node: ast.expr) -> bool:
    """Whether the name is written there, or an expression is: what a variable holds, only a reader can know."""
    match node:
        case ast.Constant() | ast.Call() | ast.Compare() | ast.BinOp() | ast.UnaryOp():
            return True
        case ast.List() | ast.Tuple():
            return all(map(is_one_name, node.elts))
        case ast.Starred():
            return is_one_name(node.value)
        case ast.GeneratorExp() | ast.ListComp():
            return is_one_name(node.elt)
    return False


def names_in_variables(path: Path) -> Iterator[str]:
    """The calls that take something for a name of a column, or for a pattern, and do not show what."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        method = node.func.attr
        owner = ast.unparse(node.func.value)
        if (method in OF_FRAMES and owner != "np") or (
            method in OF_POLARS and (owner == "pl" or owner.endswith("struct"))
        ):
            yield from (f"{method}({ast.unparse(one)})" for one in node.args if not is_one_name(one))


@pytest.mark.parametrize("module", MODULES)
def test_a_name_of_a_file_never_reaches_polars_as_a_pattern(module: str) -> None:
    assert {*names_in_variables(PACKAGE / module)} == KNOWN.get(module, set())


def test_a_method_of_names_in_a_variable_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "frame.select(names)\npl.col(f'{name}')\nseries.struct.field(name)\npl.col('reward')\nframe['a'].sum()\n"
    )
    assert [*names_in_variables(path)] == ["select(names)", "col(f'{name}')", "field(name)"]
