"""Methods, presets, schemas, targets and commands of installed packages and of files: used, listed, and never in the way of anything else."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jsonschema import Draft202012Validator

import grpo_cli
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.presets import presets
from grpo_cli.errors import PluginError, UsageError
from grpo_cli.options.commands import COMMANDS
from grpo_cli.plugins import SLOW, PluginWarning
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.recognise import with_schema
from grpo_cli.read.tables import Binding
from grpo_cli.schemas.table import schemas
from grpo_cli.targets.table import targets
from tests.support.battery import Row, check
from tests.support.command import Done, adv, facts_of, process, ran
from tests.support.drawn import paired
from tests.support.jobs import write
from tests.support.json_schemas import schemas as json_schemas

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "examples" / "plugin"
MODULES = ("lab_plugin", "lab_command", "lab_unsolved")
MIDRANGE = [-2.5, -1.5, 2.5] * 2
PRESET = 'inherits = "trl-grpo"\nframework = "Ours"\nplan.divisor.epsilon = 0.5\n'
SCHEMA = """
title = "our log"
tool = "ours"
layout = "long"
source = "us"
fields = { q = "text", points = "number" }
group = ["q"]
reward = ["points"]
"""


def install(site: Path, name: str, points: str, **modules: str) -> None:
    """A package as pip leaves it, without its record of files."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)


def bad(site: Path, kind: str, code: str) -> None:
    """A package called bad with one method, preset or schema, which is X of its module."""
    install(site, "bad", f"[grpo_adv.{kind}]\nbad-one = bad:X\n", bad=code)


@pytest.fixture(autouse=True)
def _rows() -> None:
    write("in.jsonl", [{"prompt_id": k // 3, "reward": (0, 1, 5)[k % 3]} for k in range(6)])
    # Rows that tell most formulas apart.
    write("many.jsonl", [{"prompt_id": k // 5, "reward": k * k % 17 / 4} for k in range(60)])


@pytest.fixture
def site(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    found = place / "site"
    found.mkdir()
    monkeypatch.syspath_prepend(found)
    for rows in (ESTIMATORS, presets(), schemas(), targets(), COMMANDS):
        rows._imported.clear()
    for name in ("bad", "called", "slow", "naming", *MODULES):
        sys.modules.pop(name, None)
    return found


@pytest.fixture
def template(site: Path) -> Path:
    points = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{key} = {at}\n" for key, at in rows.items()) for group, rows in points.items()]
    modules = {name: (TEMPLATE / f"{name}.py").read_text() for name in MODULES}
    install(site, "lab-plugin", "".join(lines), **modules)
    return site


def values(line: str) -> list[float]:
    done = ran(line)
    return [row["advantage"] for row in done.rows]


def one_line(done: Done, said: str) -> None:
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1), done
    assert done.err.startswith(f"error: {said}"), done.err


# --- the template ----------------------------------------------------------------------------------------------


def test_the_tests_of_the_template_pass(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{template}:{ROOT}")
    options = f"-n 0 -p no:cacheprovider --rootdir {TEMPLATE} -c /dev/null -q -o addopts= {TEMPLATE}"
    words = [sys.executable, "-m", "pytest", *options.split()]
    done = subprocess.run(words, cwd=template, capture_output=True, text=True, check=False)
    assert "24 passed" in done.stdout, done.stdout + done.stderr


def test_every_entry_point_is_documented_and_in_the_template() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "grpo_cli").rglob("*.py"))
    groups = {*re.findall(r'Registry\(\s*"\w+", "(grpo_adv\.\w+)"', code)}
    assert len(groups) >= 5
    points = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]["entry-points"]
    assert {*points} == groups, "examples/plugin has an object of each kind"
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    documented = {*re.findall(r"^\| `(grpo_adv\.\w+)`", page, re.MULTILINE)}
    assert documented == groups, "docs/plugins.md has a line for each"


@pytest.mark.usefixtures("template")
def test_the_method_of_the_template_obeys_the_laws_that_it_declares() -> None:
    def midrange(rows: Sequence[Row]) -> list[float]:
        groups = defaultdict(list)
        for row in rows:
            groups[row.batch, row.group].append(row.reward)
        middles = {key: (min(rewards) + max(rewards)) / 2 for key, rewards in groups.items()}
        return [row.reward - middles[row.batch, row.group] for row in rows]

    check("lab-midrange", midrange, linear=True)


@pytest.mark.usefixtures("template")
def test_names_of_a_package_mean_what_it_says() -> None:
    for name in ("-m lab-midrange", "--preset lab-trainer --scale none"):
        done = adv(f"compute in.jsonl {name} -o -")
        assert [row["advantage"] for row in done.rows] == MIDRANGE
        assert f"{name.split()[1]} (from lab-plugin 1.0)" in done.err
    facts = facts_of("compute in.jsonl --preset lab-trainer")
    assert facts["plan"]["package"] == facts["preset"]["from"] == "lab-plugin 1.0"
    Draft202012Validator(json.loads(json_schemas()["compute"])).validate(facts)


@pytest.mark.usefixtures("template")
def test_an_audit_finds_the_method_and_the_preset_of_a_package() -> None:
    for flag, name, said in (("-m", "lab-midrange", "matches --method lab-midrange"), ("--preset", "lab-trainer", "lab-trainer")):  # fmt: skip
        ran(f"compute many.jsonl {flag} {name} -o out.jsonl -q --force")
        done = adv("audit out.jsonl")
        assert said in done.out, done.err


@pytest.mark.usefixtures("template")
@pytest.mark.parametrize(
    ("command", "name"),
    [("methods", "lab-midrange"), ("presets", "lab-trainer"), ("schemas", "lab-log"), ("targets", "lab-tuner")],
)
def test_listings_and_explanations_name_the_package(command: str, name: str) -> None:
    listed = adv(command)
    assert re.search(rf"^{name} .*\n(.*\n)?.*from lab-plugin 1\.0", listed.out, re.MULTILINE), listed.out
    assert f"{name} (from lab-plugin 1.0)" in adv(f"{command} {name}").out
    rows = {row["name"]: row["origin"] for row in facts_of(command)}
    assert rows.pop(name) == "lab-plugin 1.0"
    assert {*rows.values()} == {"built in"}


def test_an_unknown_name_is_answered_with_that_of_a_package_without_importing_it(template: Path) -> None:
    (template / "lab_plugin.py").write_text("raise RuntimeError\n")
    done = adv("compute in.jsonl -m lab-midrang")
    assert done.err == "error: no method named 'lab-midrang'; did you mean 'lab-midrange'?\n"


def test_the_shell_completes_names_without_importing_the_package(site: Path) -> None:
    install(site, "sleepy", "[grpo_adv.presets]\nlab-one = sleepy:X\n", sleepy="import time; time.sleep(60)\n")
    Path("ours.toml").write_text(f"[lab-ours]\n{PRESET}")
    line = "grpo-adv compute --presets ours.toml --preset lab-"
    words: dict[str, Any] = {"_GRPO_ADV_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "5"}
    done = process(**words, PYTHONPATH=f"{site}:{ROOT}")
    assert {*done.out.split()} == {"lab-one", "lab-ours"}, done.err


@pytest.mark.usefixtures("template")
def test_the_schema_of_a_package_is_explained_for_a_file_and_read_when_it_is_named() -> None:
    write("log.jsonl", [{"question": "a", "points": points, "round": 1} for points in (1, 0)])
    assert "lab-log (from lab-plugin 1.0): lab log" in adv("schemas log.jsonl").out
    assert values("compute log.jsonl --schema lab-log -m dr-grpo -o -") == [0.5, -0.5]


def test_what_a_package_prints_when_it_is_imported_is_not_among_the_data(template: Path) -> None:
    module = template / "lab_plugin.py"
    module.write_text(f"{module.read_text()}\nprint('hello')\n")
    assert values("compute in.jsonl -m lab-midrange -o - -q") == MIDRANGE


# --- what is not used is not imported --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "--version", "--help", "compute --help", "compute in.jsonl -o - -q", "compute in.jsonl --preset trl-grpo -o - -q",
        "compute in.jsonl -m rloo --schema none -o - -q", "inspect in.jsonl -q",
        "compare in.jsonl -m rloo --preset trl-grpo -q", "methods rloo", "presets trl-grpo", "schemas trl",
    ],
)  # fmt: skip
def test_a_package_is_not_imported_unless_one_of_its_names_is_used(line: str, site: Path) -> None:
    points = [f"[grpo_adv.{kind}]\nbad-one = bad:X\ngrpo = bad:X\n" for kind in ("estimators", "presets", "schemas")]
    install(site, "bad", "".join(points), bad="import os; os._exit(3)")
    done = adv(line)
    assert done.status == 0
    assert done.err == ""


# --- what is wrong with a package ------------------------------------------------------------------------------

KINDS = [("estimators", "method", "-m"), ("presets", "preset", "--preset"), ("schemas", "schema", "--schema")]
BROKEN = {
    "raise RuntimeError('no GPU here\\nand more')": "RuntimeError: no GPU here",
    "import nowhere_to_be_found": "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
    "import sys; sys.exit(3)": "SystemExit: 3",
    "Y = 1": "AttributeError: module 'bad' has no attribute 'X'",
    "X = 1": "is not",
    "def": "SyntaxError",
}


@pytest.mark.parametrize(("code", "used_as"), paired(BROKEN, KINDS))
def test_a_broken_package_is_one_line_and_stops_nothing_else(
    code: str, used_as: tuple[str, str, str], site: Path
) -> None:
    kind, what, use = used_as
    bad(site, kind, code)
    used = adv(f"compute in.jsonl {use} bad-one")
    one_line(used, f"the {what} bad-one of bad 1.0 cannot be used: ")
    assert BROKEN[code] in used.err
    listed = adv(f"{what}s")
    assert listed.status == 0
    assert listed.err == used.err.replace("error:", "warning:").partition("; repair")[0] + "; it is left out\n"
    assert "bad-one" not in listed.out
    assert adv(f"{what}s -h").err == ""


def test_an_entry_point_that_is_not_one_is_named(site: Path) -> None:
    install(site, "bad", "[grpo_adv.estimators]\nbad-one = a file.py\n")
    said = "the method bad-one of bad 1.0 cannot be used: its entry point 'a file.py' is not MODULE:OBJECT;"
    one_line(adv("compute in.jsonl -m bad-one"), said)


def test_a_package_that_cannot_be_imported_does_not_stop_an_audit_without_a_match(site: Path) -> None:
    bad(site, "estimators", "")
    ran("compute many.jsonl --expr 'reward * n - min / 7' -o out.jsonl -q")
    done = adv("audit out.jsonl")
    assert (done.status, "no match" in done.out) == (0, True), done.err
    assert done.err.startswith("warning: ")
    assert done.err.count("\n") == 1


METHOD = '''
import os, sys
import polars as pl
from grpo_cli import Estimator
def build(t):
    """Lies.

        A = r

    Source: none.
    """
    BODY
X = Estimator(name="bad-one", build=build, FACT)
'''
LIES = {
    "return t.role('nothing')": "ColumnNotFoundError",
    "return 1.5": "it returns 1.5, not an expression of polars",
    "return None": "it returns None, not an expression of polars",
    "return t.d.head(2)": "height of column '.1' (2) does not match height of column 'group' (60)",
    "return t.d.append(t.d)": "height of column '.1' (120) does not match",
    "return t.d.sum()": "height of column '.1' (1) does not match",
    "return pl.lit('abc')": "it returns a column of the type String, not numbers",
    "return t.d > 1": "it returns a column of the type Boolean, not numbers",
    "return pl.struct(t.d.alias('a'))": "it returns a column of the type Struct({'a': Float64}), not numbers",
    "return t.d.cast(pl.Int64).cast(pl.Date)": "it returns a column of the type Date, not numbers",
    "t.n = 3": "FrozenInstanceError: cannot assign to field 'n'",
    "sys.exit(0)": "SystemExit: 0",
    "raise GeneratorExit": "GeneratorExit",
    "raise type('Mute', (Exception,), {'__str__': None})": "Mute",
    "from polars.exceptions import PanicException; raise PanicException('boom')": "PanicException: boom",
}


def method(site: Path, body: str = "return t.d", fact: str = "") -> None:
    bad(site, "estimators", METHOD.replace("BODY", body).replace("FACT", fact))


@pytest.mark.parametrize("body", LIES)
def test_a_method_that_lies_is_one_line_with_its_package(body: str, site: Path) -> None:
    method(site, body)
    used = adv("compute many.jsonl -m bad-one -o out.jsonl")
    one_line(used, "the method bad-one of bad 1.0 failed: ")
    assert LIES[body] in used.err
    assert not Path("out.jsonl").exists()
    adv("compute many.jsonl -m rloo -o out.jsonl -q")
    audited = adv("audit out.jsonl")
    assert "matches --method rloo" in audited.out
    assert audited.err == used.err.replace("error:", "warning:").partition("; repair")[0] + "; it is left out\n"


@pytest.mark.parametrize(
    "fact", ["min_group='2'", "scales='none'", "about=3", "batch='x'", "centred='no'", "params=None"]
)
def test_a_fact_of_a_method_has_its_type(fact: str, site: Path) -> None:
    method(site, fact=fact)
    for line in ("compute in.jsonl -m bad-one", "methods", "audit in.jsonl --column reward"):
        said = (
            f"the method bad-one of bad 1.0 cannot be used: its {fact.replace('=', ' cannot be ')}; it is of the type "
        )
        done = adv(line)
        assert said in done.err
        assert done.err.count("\n") == 1


def test_what_a_method_prints_is_not_among_the_data(site: Path) -> None:
    method(site, "print('hello'); return t.d")
    done = adv("compute in.jsonl -m bad-one -o - -q")
    assert [row["advantage"] for row in done.rows] == [0.0, 1.0, 5.0] * 2
    assert done.err == "hello\n"


@pytest.mark.parametrize(
    ("value", "said"),
    [("float('nan')", "4 advantages are NaN"), ("float('inf')", "4 advantages are infinite"), ("None", "4 null")],
)
def test_values_that_are_no_numbers_are_counted(value: str, said: str, site: Path) -> None:
    method(site, f"return pl.when(t.d > 0).then(pl.lit({value}, pl.Float64)).otherwise(t.d)")
    done = adv("compute in.jsonl -m bad-one -o out.jsonl")
    assert (done.status, said in done.out) == (0, True), done


TABLES = """
class Text(str):
    def __format__(self, spec): raise RuntimeError("no text")
class Raises(dict):
    def get(self, *_): raise RuntimeError("no value")
PRESET = {"inherits": "trl-grpo", "framework": Text("Ours"), "plan": {"divisor": {"epsilon": 0.5}}}
SCHEMA = {"title": Text("ours"), "tool": "ours", "layout": "long", "source": "us", "group": ("prompt_id",), "reward": ("reward",),
          "fields": {"prompt_id": "number", "reward": "number"}}
X = """


@pytest.mark.parametrize(
    ("what", "table"), [("preset", "PRESET"), ("preset", "Raises(PRESET)"), ("schema", "SCHEMA"), ("schema", "Raises(SCHEMA)")]
)  # fmt: skip
def test_a_table_of_a_package_is_read_as_plain_data(what: str, table: str, site: Path) -> None:
    bad(site, f"{what}s", TABLES + table)
    assert values(f"compute in.jsonl --{what} bad-one -o -")
    for line in (f"{what}s bad-one", f"{what}s --json", f"{what}s"):
        assert adv(line).err == ""


@pytest.mark.parametrize(
    ("what", "table", "said"),
    [
        ("preset", "{**PRESET, 'options': {'a': object()}}", "TypeError: 'object' object is not iterable"),
        ("preset", "{**PRESET, 'oddities': [3]}", "oddities of the preset bad-one cannot be [3]; it takes a list of texts"),
        ("preset", "{**PRESET, 'inherits': 'bad-one'}", "the preset bad-one inherits from itself"),
        ("schema", "{**SCHEMA, 'title': 3}", "title of the schema bad-one cannot be 3; it takes a text"),
    ],
)  # fmt: skip
def test_a_table_of_a_package_that_is_wrong_is_one_line(what: str, table: str, said: str, site: Path) -> None:
    bad(site, f"{what}s", TABLES + table)
    one_line(adv(f"compute in.jsonl --{what} bad-one"), f"the {what} bad-one of bad 1.0 cannot be used: {said}")
    for line in (f"{what}s", f"{what}s --json"):
        listed = adv(line)
        assert listed.status == 0
        assert listed.err.count("\n") == 1
        assert "bad-one" not in listed.out


NAMES_A_COLUMN = '''
from grpo_cli import Estimator
from grpo_cli.engine.estimators.registry import Param
def build(t, *, share):
    """Reward minus a point between the smallest and the largest reward of its group.

        A = r - (min + share (max - min))

    Source: none.
    """
    if share > 0.9:
        raise ValueError("too far up")
    return t.d - t.let(share * (t.most - t.least), "point")
X = Estimator(name="point", build=build, centred=False, params=(Param(name="share", type=float, default=0.5, help="where"),))
def preset(share):
    return {"framework": "Points", "estimator": "point", "options": {}, "source": {"repo": "a/b", "path": "c.py", "date": "2026-11-23"},
            "plan": {"estimator": {"name": "point", "share": share}}}
LOW, HIGH, TOP = preset(0.25), preset(0.75), preset(1.0)
'''


def test_columns_that_a_method_names_are_kept_apart(site: Path) -> None:
    """For the plans of an audit, one of which fails, and for several reward columns."""
    of_presets = "[grpo_adv.presets]\nlow = naming:LOW\nhigh = naming:HIGH\ntop = naming:TOP\n"
    install(site, "naming", f"[grpo_adv.estimators]\npoint = naming:X\n{of_presets}", naming=NAMES_A_COLUMN)
    for preset in ("low", "high"):
        ran(f"compute many.jsonl --preset {preset} -o out.jsonl -q --force")
        assert f"matches {preset}" in adv("audit out.jsonl").out
    write("two.jsonl", [{"id": 0, "x": x, "y": y} for x, y in ((0.0, 1.0), (1.0, 3.0), (4.0, 2.0))])
    line = "compute two.jsonl -m point --group id --reward x --reward y --combine normalize -o -"
    assert values(line) == [-3.0, 0.0, 2.0]


def test_a_name_that_is_taken_stays_what_it_was(site: Path) -> None:
    for name in ("one", "two"):
        install(site, name, f"[grpo_adv.presets]\ntrl-grpo = {name}:X\nsame = {name}:X\n")
    listed = adv("presets").err.splitlines()
    assert listed[0] == "warning: one 1.0 and two 1.0: its preset trl-grpo is left out: its name is taken (built in)"
    assert listed[1] == "warning: several packages have a preset same: one 1.0 and two 1.0; it is left out"
    assert values("compute in.jsonl --preset trl-grpo -o - -q")
    used = adv("compute in.jsonl --preset same")
    assert used.status == 2
    assert "uninstall all but one of them" in used.err


def test_a_slow_import_is_named(site: Path) -> None:
    module = f"import time\ntime.sleep({SLOW + 0.01})\nX = {{'inherits': 'trl-grpo'}}\n"
    install(site, "slow", "[grpo_adv.presets]\nslow-one = slow:X\n", slow=module)
    done = adv("presets slow-one")
    assert re.fullmatch(r"warning: slow 1\.0: importing its preset slow-one took \d+\.\d s\n", done.err)
    assert done.out.startswith("slow-one (from slow 1.0): TRL")


def test_a_damaged_package_of_somebody_else_stops_nothing(site: Path) -> None:
    install(site, "other", "[grpo_adv.presets]\nno sign here\n")
    done = adv("presets")
    assert done.status == 0
    assert done.err.count("\n") == 1
    assert done.err.startswith("warning: the entry points of installed packages cannot be read, plugins are left out: ")


def test_in_python_they_are_warnings_and_errors(site: Path) -> None:
    bad(site, "presets", "X = {'inherits': 'none'}\n")
    with pytest.warns(PluginWarning, match=r"bad-one of bad 1\.0 cannot be used: no preset that bad-one inherits from"):
        assert "bad-one" not in dict(presets().items())
    with pytest.raises(PluginError, match=r"bad-one of bad 1\.0 cannot be used"):
        presets()["bad-one"]


# --- files -----------------------------------------------------------------------------------------------------


def test_a_file_of_presets_adds_to_those_that_are_there() -> None:
    Path("ours.toml").write_text(f"[ours]\n{PRESET}[theirs]\ninherits = 'ours'\nplan.divisor.ddof = 0\n")
    facts = facts_of("compute in.jsonl --preset theirs --presets ours.toml --explain")
    assert facts["plan"]["divisor"]["epsilon"] == 0.5
    assert facts["plan"]["divisor"]["ddof"] == 0
    assert facts["preset"]["from"] == "ours.toml"
    assert "ours (from ours.toml): Ours" in adv("presets ours --presets ours.toml").out
    ran("compare in.jsonl --preset ours --preset trl-grpo --presets ours.toml")
    # A file is beside one run.
    one_line(adv("compute in.jsonl --preset theirs"), "no preset named 'theirs'")


def test_a_file_of_schemas_is_detected() -> None:
    write("log.jsonl", [{"q": "a", "points": points} for points in (1, 0)])
    Path("ours.toml").write_text(f"[ours]{SCHEMA}")
    line = "compute log.jsonl --schemas ours.toml -m dr-grpo -o -"
    assert values(line) == values(f"{line} --schema ours") == [0.5, -0.5]
    assert "our log" in adv(line).err
    assert "ours (from ours.toml): our log" in adv("schemas log.jsonl --schemas ours.toml").out


def test_python_takes_the_same_files() -> None:
    Path("ours.toml").write_text(f"[ours]\n{PRESET}")
    frame = pl.DataFrame({"prompt_id": [1, 1], "reward": [0.0, 1.0]})
    got = grpo_cli.advantages(frame, preset="ours", presets="ours.toml").to_list()
    assert got == pytest.approx([-0.5 / (0.5**0.5 + 0.5), 0.5 / (0.5**0.5 + 0.5)])
    with pytest.raises(UsageError, match="no preset named 'ours'"):
        grpo_cli.advantages(frame, preset="ours")


WRONG_FILES: list[tuple[str, str, str]] = [
    ("presets", "[trl-grpo]\ninherits = 'trl-grpo'", "ours.toml: the preset trl-grpo is built in; give it another name"),
    ("presets", "ours = 3", "ours.toml: the preset ours is not a table, but int"),
    ("presets", "['a b']\ninherits = 'trl-grpo'", "ours.toml: a preset cannot be named 'a b'"),
    ("presets", "[ours]\nplan = 3", "ours.toml: plan of the preset ours cannot be 3; it takes a table"),
    ("presets", "[ours]\ninherits = 'trl-grpoo'", "no preset that ours inherits from named 'trl-grpoo'; did you mean 'trl-grpo'?"),
    ("presets", "[ours]\ninherits = 'trl-grpo'\nplan.divisor.epsilo = 1", "ours.toml: no field of divisor named 'epsilo'"),
    ("presets", "[ours]\ninherits = 'trl-grpo'\nplan.estimator.name = 'mystery'", "ours.toml: no method named 'mystery'"),
    ("presets", "[ours]\nframework = 'F'\nestimator = 'E'", "ours.toml: the preset ours has no 'source.repo', 'source.path', 'source.date'; every"),
    ("presets", "[ours", "ours.toml: not TOML ("),
    ("schemas", "[trl]", "ours.toml: the schema trl is built in"),
    ("schemas", f"[none]{SCHEMA}", "ours.toml: a schema cannot be named 'none'"),
    ("schemas", "[ours]\ntitle = 'x'", "ours.toml: the schema ours has no 'tool', 'layout', 'source'\n"),
    ("schemas", f"[ours]{SCHEMA}".replace('["q"]', '"q"'), "ours.toml: group of the schema ours cannot be 'q'; it takes a list of texts"),
    ("schemas", f"[ours]{SCHEMA}file = '('", "ours.toml: an expression of the schema ours is invalid: '('"),
    ("schemas", f"[ours]{SCHEMA}derive = 3", "ours.toml: derive of the schema ours cannot be 3; it takes a table"),
    ("schemas", f"[ours]{SCHEMA}rewards = 3", "ours.toml: the rewards of the schema ours cannot be 3; it takes a table"),
    ("schemas", f"[ours]{SCHEMA}masked = {{ a = [1] }}", "ours.toml: masked of the schema ours cannot be [1]; it takes a list of texts"),
]  # fmt: skip


@pytest.mark.parametrize(("option", "text", "said"), WRONG_FILES, ids=[said for *_, said in WRONG_FILES])
def test_a_file_that_is_wrong_is_one_line(option: str, text: str, said: str) -> None:
    Path("ours.toml").write_text(text)
    done = adv(f"compute in.jsonl --{option} ours.toml -o -")
    assert done.status in {1, 2}
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert done.err.startswith("error: ")
    assert said in done.err


# --- other machines --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("template")
def test_tasks_on_other_machines_are_given_the_schemas() -> None:
    """What looks at a file there is pickled with the rows, and looks nothing up by name."""
    path = write("log.jsonl", [{"question": "a", "points": 1, "round": 1}])
    (table,) = open_tables(find_inputs([str(path)])[0], Binding(schema="none"))
    sent = []

    def over(work: Any, files: Any) -> list[Any]:
        sent.append(pickle.dumps(work))
        return list(map(work, files))

    (read,) = with_schema([table], "lab-log", over)
    assert read.schema == schemas()["lab-log"]
    assert b"lab log" in sent[0], "the row itself"


def test_every_table_knows_its_own_rows_by_heart() -> None:
    """Where no package is installed all rows are at hand."""
    for rows in (ESTIMATORS, presets(), schemas(), targets(), COMMANDS):
        assert [*rows] == [*rows.at_hand]
        assert len(rows) == len(rows.at_hand)
        assert {rows.origin(name) for name in rows} == {""}


# --- commands --------------------------------------------------------------------------------------------------

COMMAND = """
from grpo_cli import Command, Option
X = Command(name="bad-one", help="Counts.", options=("json", "color", "debug"), example="grpo-adv bad-one in.jsonl", {})
"""
CALLED = """
from dataclasses import dataclass
@dataclass
class Job:
    inputs: list[str]
    most: int
    @classmethod
    def of(cls, given): return cls(given["inputs"], given.get("most_rows", 9))
@dataclass
class Facts:
    most: int
def run(job, phase):
    BODY
    return Facts(job.most)
def show(facts, console): console.print(f"at most {facts.most}")
"""
OWN = 'own=(Option("most_rows", "How many.", type=int, metavar="N"),)'


def command(site: Path, fields: str = OWN, body: str = "", *, name: str = "bad-one") -> None:
    """A package with a command, whose steps are in another module."""
    called = fields if "job=" in fields else f'{fields}, job="called:Job", shown_by="called:show"'
    code = COMMAND.format(called).replace("bad-one", name)
    points = f"[grpo_adv.commands]\n{name} = bad:X\n"
    install(site, "bad", points, bad=code, called=CALLED.replace("BODY", body or "pass"))


@pytest.mark.usefixtures("template")
def test_a_command_of_a_package_is_run_as_any_other() -> None:
    assert adv("lab-unsolved in.jsonl").out == "0 of 2 groups are unsolved\n"
    assert facts_of("lab-unsolved in.jsonl --solved-above 5")["unsolved"] == [
        {"prompt_id": 0, "size": 3},
        {"prompt_id": 1, "size": 3},
    ]
    assert adv("lab-unsolved in.jsonl --quiet").out == ""
    one_line(adv("lab-unsolved"), "FILE is missing")
    one_line(adv("lab-unsolved in.jsonl --solved"), "no option named '--solved'; did you mean '--solved-above'?")
    one_line(adv("lab-unsolve"), "no command named 'lab-unsolve'; did you mean 'lab-unsolved'?")


@pytest.mark.usefixtures("template")
@pytest.mark.parametrize(
    ("condition", "status", "said"),
    [
        ("groups > 1", 3, "error: the --fail-on condition 'groups > 1' holds; groups is 2\n"),
        ("unsolved > 1", 3, "error: the --fail-on condition 'unsolved > 1' holds; unsolved is 2\n"),
        ("unsolved > 2", 0, ""),
        ("grups > 1", 2, "error: no quantity named 'grups'; did you mean 'groups'?\n"),
    ],
)
def test_a_gate_on_the_facts_of_a_package_stops(condition: str, status: int, said: str) -> None:
    done = adv("lab-unsolved", "in.jsonl", "--solved-above", "5", "--fail-on", condition)
    assert (done.status, done.err) == (status, said)
    assert done.out.startswith("2 of 2 groups are unsolved\n") == (status != 2)


@pytest.mark.usefixtures("template")
def test_a_summary_of_the_facts_of_a_package_is_written() -> None:
    ran("lab-unsolved in.jsonl --summary facts.json -q")
    assert json.loads(Path("facts.json").read_text(encoding="utf-8"))["groups"] == 2


@pytest.mark.usefixtures("template")
def test_help_lists_the_commands_of_packages_and_loads_nothing_heavy_for_them() -> None:
    done = adv("--help")
    assert "lab-unsolved  List the groups that no rollout has solved, to sample them again\n" in done.out
    assert "(lab-plugin 1.0)." in done.out
    assert "--solved-above X                 Rewards above X solve a prompt" in adv("lab-unsolved --help").out


def test_help_with_a_command_of_a_package_loads_no_polars(template: Path) -> None:
    script = (
        "import sys; sys.argv = ['grpo-adv', '--help']\nfrom grpo_cli.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print({'polars', 'pyarrow', 'numpy', 'lab_command'} & {*sys.modules})"
    )
    words = [sys.executable, "-c", script]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": f"{template}:{ROOT}"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "{'lab_command'}"


@pytest.mark.usefixtures("template")
def test_an_error_of_the_python_api_names_flags_where_a_command_of_a_package_called_it() -> None:
    write("two.jsonl", [{"q": k // 2, "a": k, "b": -k} for k in range(4)])
    done = adv("lab-unsolved two.jsonl --group q")
    assert (done.status, "--reward" in done.err, "reward=" in done.err) == (1, True, False), done.err


def test_a_command_takes_its_own_options(site: Path) -> None:
    command(site)
    assert adv("bad-one in.jsonl").out == "at most 9\n"
    assert adv("bad-one in.jsonl --most-rows 3").out == "at most 3\n"
    one_line(adv("bad-one in.jsonl --most-rows x"), "--most-rows cannot be 'x'")
    assert "Of this command\n  --most-rows N " in adv("bad-one --help").out


def test_the_file_of_options_sets_those_of_a_package(site: Path) -> None:
    command(site)
    module = site / "bad.py"
    module.write_text(module.read_text().replace('("json",', '("config", "json",'))
    Path("options.toml").write_text("most-rows = 4\n")
    assert adv("bad-one in.jsonl --config options.toml").out == "options        options.toml\nat most 4\n"
    assert facts_of("bad-one in.jsonl --config options.toml") == {"most": 4}
    assert (
        adv("bad-one in.jsonl", GRPO_ADV_CONFIG="options.toml").err
        == "note: options.toml sets --most-rows 4; --no-config leaves it out\n"
    )


def test_the_shell_completes_a_command_of_a_package_and_its_options(template: Path) -> None:
    for line, at, found in (
        ("grpo-adv lab-", "1", "lab-unsolved"),
        ("grpo-adv lab-unsolved --sol", "2", "--solved-above"),
    ):
        words: dict[str, Any] = {"_GRPO_ADV_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": at}
        assert process(**words, PYTHONPATH=f"{template}:{ROOT}").out.split() == [found]


@pytest.mark.parametrize("line", ["--version", "compute --help", "compute in.jsonl -o - -q", "methods rloo"])
def test_packages_are_not_looked_at_for_a_command_that_is_there(line: str, site: Path) -> None:
    install(site, "bad", "[grpo_adv.commands]\nbad-one = bad:X\ncompute = bad:X\n", bad="import os; os._exit(3)")
    COMMANDS._points = None  # type: ignore[assignment, method-assign] # nobody asks for entry points
    try:
        assert adv(line).status == 0
    finally:
        del COMMANDS._points


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_command_is_one_sentence_and_the_others_are_there(code: str, site: Path) -> None:
    bad(site, "commands", code)
    used = adv("bad-one in.jsonl")
    one_line(used, "the command bad-one of bad 1.0 cannot be used: ")
    assert BROKEN[code] in used.err
    listed = adv("--help")
    assert listed.err == used.err.replace("error:", "warning:").partition("; repair")[0] + "; it is left out\n"
    assert (listed.status, "  compute  " in listed.out, "bad-one" in listed.out) == (0, True, False)
    line = {"_GRPO_ADV_COMPLETE": "complete_bash", "COMP_WORDS": "grpo-adv ", "COMP_CWORD": "1"}
    assert "compute" in process(**line, PYTHONPATH=f"{site}:{ROOT}").out.split()  # type: ignore[arg-type]


def test_a_package_cannot_take_the_name_of_a_command(site: Path) -> None:
    command(site, name="compute")
    assert values("compute in.jsonl -o - -q")
    done = adv("--help")
    assert done.err == "warning: bad 1.0: its command compute is left out: its name is taken (built in)\n"
    assert "Counts." not in done.out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("help=3", "help of the command bad-one cannot be 3; it takes a text"),
        ("options=('jsn',)", "no option named 'jsn'; did you mean 'json'?"),
        ("options='json'", "options of the command bad-one cannot be 'json'; it takes a list of texts"),
        ("own=('most',)", "it has 'most' for an option; make it with grpo_cli.Option"),
        ("own=(Option('json', 'x'),)", "its option json has a name of grpo-adv: --json; give it another name"),
        ("own=(Option('own', 'x', short='-g'),)", "its option own has a name of grpo-adv: -g; give it another name"),
        ("own=(Option('own', 3),)", "help of the option own cannot be 3; it takes a text"),
        ("own=(Option('own', 'x', type=dict),)", "its option own has the type <class 'dict'>; it takes str, bool, int"),
        ("argument='file'", "it has 'file' for an option; make it with grpo_cli.Option"),
        ("common=('group',)", "no option of the command named 'group'; known: inputs, json"),
        ("job=''", "it calls '', which is not MODULE:OBJECT; set body, or job and shown_by"),
        ("job='called', shown_by='called:show'", "it calls 'called', which is not MODULE:OBJECT"),
        ("name='other'", "its own name is other; give both the same"),
    ],
)  # fmt: skip
def test_a_command_that_is_wrong_is_one_line(fields: str, said: str, site: Path) -> None:
    base = {
        "name": "'bad-one'",
        "help": "'x'",
        "options": "('json',)",
        "example": "'x'",
        "job": "'called:Job'",
        "shown_by": "'called:show'",
    }
    own = dict(part.split("=", 1) for part in re.split(r", (?=\w+=')", fields))
    arguments = ", ".join(f"{name}={value}" for name, value in {**base, **own}.items())
    bad(site, "commands", f"from grpo_cli import Command, Option\nX = Command({arguments})\n")
    one_line(adv("bad-one in.jsonl"), f"the command bad-one of bad 1.0 cannot be used: {said}")
    done = adv("--help")
    assert (done.status, done.err.count("\n")) == (0, 1)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("from grpo_cli import nothing", "ImportError: cannot import name 'nothing' from 'grpo_cli'"),
        ("raise KeyError('x')", "KeyError: 'x'"),
    ],
)
def test_a_command_that_fails_is_one_sentence_with_its_package(body: str, said: str, site: Path) -> None:
    command(site, body=body)
    done = adv("bad-one in.jsonl")
    one_line(done, f"the command bad-one of bad 1.0 failed: {said}")
    assert done.err.endswith("; --debug shows where\n")


def test_what_a_command_calls_that_is_not_there_is_named(site: Path) -> None:
    command(site, "job='called:Jobs', shown_by='called:show'")
    one_line(adv("bad-one in.jsonl"), "the command bad-one of bad 1.0 failed: AttributeError: module 'called' has no")


@pytest.mark.usefixtures("site")
def test_a_command_in_an_archive_on_the_path_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    command(Path("packed"))
    shutil.make_archive("packed", "zip", "packed")
    monkeypatch.syspath_prepend(Path("packed.zip").resolve())
    assert adv("bad-one in.jsonl").out == "at most 9\n"


def test_help_does_not_ask_all_packages_for_their_metadata_where_none_has_a_command() -> None:
    script = "import sys; sys.argv = ['grpo-adv', '--help']\nfrom grpo_cli.cli.entry import main\ntry:\n    main()\nexcept SystemExit:\n    print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
