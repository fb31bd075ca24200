"""Methods, presets and schemas of installed packages and of files: used, listed, and never in the way of anything else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import grpo_cli
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.presets import presets
from grpo_cli.errors import PluginError, UsageError
from grpo_cli.plugins import SLOW, PluginWarning
from grpo_cli.schemas.table import schemas
from tests.support.command import Done, adv, process
from tests.support.drawn import is_nightly
from tests.support.jobs import write
from tests.support.json_schemas import schemas as json_schemas

TEMPLATE = Path(__file__).resolve().parent.parent.parent / "examples" / "plugin"
ROWS = "".join(f'{{"prompt_id": {k // 3}, "reward": {(0, 1, 5)[k % 3]}}}\n' for k in range(6))
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


def install(site: Path, name: str, points: dict[str, dict[str, str]], **modules: str) -> None:
    """A package as pip leaves it, without its record of files."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{key} = {at}\n" for key, at in rows.items()) for group, rows in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in.jsonl").write_text(ROWS)
    return tmp_path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, here and in processes that are started."""
    found = tmp_path / "site"
    found.mkdir()
    monkeypatch.syspath_prepend(found)
    for rows in (ESTIMATORS, presets(), schemas()):
        rows._imported.clear()
    for name in ("bad", "slow", "lab_plugin", "naming"):
        sys.modules.pop(name, None)
    return found


@pytest.fixture
def template(site: Path) -> Path:
    points = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]["entry-points"]
    install(site, "lab-plugin", points, lab_plugin=(TEMPLATE / "lab_plugin.py").read_text())
    return site


def many(place: Path) -> None:
    """Rows that tell most formulas apart."""
    rows = [{"prompt_id": k // 5, "reward": k * k % 17 / 4} for k in range(60)]
    write(place / "in.jsonl", rows)


def values(done: Done) -> list[float]:
    assert done.status == 0, done.err
    return [row["advantage"] for row in done.rows]


# --- the template ----------------------------------------------------------------------------------------------


def test_the_tests_of_the_template_pass(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{template}:{TEMPLATE.parent.parent}")
    # As many examples as here; in the nightly run, and where `.ci/run` has installed the wheel, as many as hypothesis draws.
    examples = [] if is_nightly() else ["-p", "tests.conftest"]
    options = [*examples, "-n", "0", "-p", "no:cacheprovider", "--rootdir", str(TEMPLATE), "-c", "/dev/null", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-o", "addopts=", str(TEMPLATE)],
        cwd=template, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_names_of_a_package_mean_what_it_says(template: Path, place: Path) -> None:
    method = adv("compute", "in.jsonl", "-m", "lab-midrange", "-o", "-", cwd=place)
    assert values(method) == MIDRANGE
    assert "lab-midrange (from lab-plugin 1.0)" in method.err
    preset = adv("compute", "in.jsonl", "--preset", "lab-trainer", "--scale", "none", "-o", "-", cwd=place)
    assert values(preset) == MIDRANGE
    assert "lab-trainer (from lab-plugin 1.0)" in preset.err
    facts = json.loads(adv("compute", "in.jsonl", "--preset", "lab-trainer", "--json", cwd=place).out)
    assert facts["plan"]["package"] == facts["preset"]["from"] == "lab-plugin 1.0"
    Draft202012Validator(json.loads(json_schemas()["compute"])).validate(facts)


def test_an_audit_finds_the_method_and_the_preset_of_a_package(template: Path, place: Path) -> None:
    many(place)
    adv("compute", "in.jsonl", "-m", "lab-midrange", "-o", "out.jsonl", "-q", cwd=place)
    done = adv("audit", "out.jsonl", cwd=place)
    assert "matches --method lab-midrange" in done.out, done.err
    adv("compute", "in.jsonl", "--preset", "lab-trainer", "-o", "more.jsonl", "-q", cwd=place)
    assert "lab-trainer" in adv("audit", "more.jsonl", cwd=place).out


@pytest.mark.parametrize(
    ("command", "name"), [("methods", "lab-midrange"), ("presets", "lab-trainer"), ("schemas", "lab-log")]
)
def test_listings_and_explanations_name_the_package(command: str, name: str, template: Path) -> None:
    listed = adv(command)
    assert re.search(rf"^{name} .*\n(.*\n)?.*from lab-plugin 1\.0", listed.out, re.MULTILINE), listed.out
    assert f"{name} (from lab-plugin 1.0)" in adv(command, name).out
    rows = {row["name"]: row["origin"] for row in json.loads(adv(command, "--json").out)}
    assert rows.pop(name) == "lab-plugin 1.0"
    assert {*rows.values()} == {"built in"}


def test_an_unknown_name_is_answered_with_that_of_a_package_without_importing_it(template: Path, place: Path) -> None:
    (template / "lab_plugin.py").write_text("raise RuntimeError\n")
    done = adv("compute", "in.jsonl", "-m", "lab-midrang", cwd=place)
    assert done.err == "error: no method named 'lab-midrang'; did you mean 'lab-midrange'?\n"


def test_the_shell_completes_names_without_importing_the_package(site: Path, place: Path) -> None:
    install(site, "sleepy", {"grpo_adv.presets": {"lab-one": "sleepy:X"}}, sleepy="import time; time.sleep(60)\n")
    (place / "ours.toml").write_text(f"[lab-ours]\n{PRESET}")
    line = "grpo-adv compute --presets ours.toml --preset lab-"
    words = {"_GRPO_ADV_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "5"}
    env: dict[str, Any] = {**words, "PYTHONPATH": path_of(site)}
    done = process(cwd=place, **env)
    assert {*done.out.split()} == {"lab-one", "lab-ours"}, done.err


def path_of(site: Path) -> str:
    return f"{site}:{TEMPLATE.parent.parent}"


def test_the_schema_of_a_package_is_explained_for_a_file_and_read_when_it_is_named(template: Path, place: Path) -> None:
    (place / "log.jsonl").write_text(
        '{"question": "a", "points": 1, "round": 1}\n{"question": "a", "points": 0, "round": 1}\n'
    )
    assert "lab-log (from lab-plugin 1.0): lab log" in adv("schemas", "log.jsonl", cwd=place).out
    named = adv("compute", "log.jsonl", "--schema", "lab-log", "-m", "dr-grpo", "-o", "-", cwd=place)
    assert values(named) == [0.5, -0.5]


# --- what is not used is not imported --------------------------------------------------------------------------

NOT_ASKED = [
    ["--version"],
    ["--help"],
    ["compute", "--help"],
    ["compute", "in.jsonl", "-o", "-", "-q"],
    ["compute", "in.jsonl", "--preset", "trl-grpo", "-o", "-", "-q"],
    ["compute", "in.jsonl", "-m", "rloo", "--schema", "none", "-o", "-", "-q"],
    ["inspect", "in.jsonl", "-q"],
    ["compare", "in.jsonl", "-m", "rloo", "--preset", "trl-grpo", "-q"],
    ["methods", "rloo"],
    ["presets", "trl-grpo"],
    ["schemas", "trl"],
]


@pytest.mark.parametrize("line", NOT_ASKED, ids=" ".join)
@pytest.mark.parametrize("code", ["raise RuntimeError('imported')", "import time; time.sleep(600)"])
def test_a_package_is_not_imported_unless_one_of_its_names_is_used(
    code: str, line: list[str], site: Path, place: Path
) -> None:
    groups = ("grpo_adv.estimators", "grpo_adv.presets", "grpo_adv.schemas")
    install(site, "bad", {group: {"bad-one": "bad:X", "grpo": "bad:X"} for group in groups}, bad=code)
    plain = adv(*line, cwd=place)
    assert plain.status == 0, plain.err
    assert plain.err == ""


# --- what is wrong with a package ------------------------------------------------------------------------------

BROKEN = {
    "raise RuntimeError('no GPU here\\nand more')": "RuntimeError: no GPU here",
    "import nowhere_to_be_found": "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
    "import sys; sys.exit(3)": "SystemExit: 3",
    "Y = 1": "AttributeError: module 'bad' has no attribute 'X'",
    "X = 1": "is not",
    "def": "SyntaxError",
}


@pytest.mark.parametrize("code", BROKEN)
@pytest.mark.parametrize(
    ("group", "command", "use"),
    [("estimators", "methods", "-m"), ("presets", "presets", "--preset"), ("schemas", "schemas", "--schema")],
)
def test_a_broken_package_is_one_line_and_stops_nothing_else(
    group: str, command: str, use: str, code: str, site: Path, place: Path
) -> None:
    install(site, "bad", {f"grpo_adv.{group}": {"bad-one": "bad:X"}}, bad=code)
    used = adv("compute", "in.jsonl", use, "bad-one", cwd=place)
    assert (used.status, used.err.count("\n")) == (2, 1)
    assert used.err.startswith(f"error: the {command[:-1]} bad-one of bad 1.0 cannot be used: ")
    assert BROKEN[code] in used.err
    listed = adv(command)
    assert listed.status == 0
    assert listed.err == used.err.replace("error:", "warning:").partition("; repair")[0] + "; it is left out\n"
    assert "bad-one" not in listed.out
    assert adv(command, "-h").err == ""


def test_an_entry_point_that_is_not_one_is_named(site: Path, place: Path) -> None:
    install(site, "bad", {"grpo_adv.estimators": {"bad-one": "a file.py"}})
    used = adv("compute", "in.jsonl", "-m", "bad-one", cwd=place)
    assert used.err.startswith(
        "error: the method bad-one of bad 1.0 cannot be used: its entry point 'a file.py' is not MODULE:OBJECT;"
    )


def test_a_package_that_cannot_be_imported_does_not_stop_an_audit_without_a_match(site: Path, place: Path) -> None:
    install(site, "bad", {"grpo_adv.estimators": {"bad-one": "bad:X"}}, bad="")
    many(place)
    adv("compute", "in.jsonl", "--expr", "reward * n - min / 7", "-o", "out.jsonl", "-q", cwd=place)
    done = adv("audit", "out.jsonl", cwd=place)
    assert (done.status, "no match" in done.out) == (0, True), done.err
    assert done.err.splitlines() == [done.err.strip()] and done.err.startswith("warning: ")


def test_a_package_that_is_broken_does_not_stop_an_audit(site: Path, place: Path) -> None:
    fails = '''
from grpo_cli import Estimator
def fails(t):
    """Fails.

        A = r

    Never. Source: none.
    """
    return t.role("nothing")
X = Estimator(name="bad-one", build=fails)
'''
    install(
        site, "bad", {"grpo_adv.estimators": {"bad-one": "bad:X"}, "grpo_adv.presets": {"worse": "bad:Y"}}, bad=fails
    )
    many(place)
    adv("compute", "in.jsonl", "-m", "rloo", "-o", "out.jsonl", "-q", cwd=place)
    done = adv("audit", "out.jsonl", cwd=place)
    assert "matches --method rloo" in done.out
    lines = done.err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["warning"] * 2
    assert "the preset worse of bad 1.0 cannot be used: AttributeError" in lines[0]
    assert "the method bad-one of bad 1.0 failed: ColumnNotFoundError" in lines[1]
    used = adv("compute", "in.jsonl", "-m", "bad-one", cwd=place)
    assert (used.status, used.err.count("\n")) == (2, 1)
    assert "the method bad-one of bad 1.0 failed: ColumnNotFoundError" in used.err


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
    code = METHOD.replace("BODY", body).replace("FACT", fact)
    install(site, "bad", {"grpo_adv.estimators": {"bad-one": "bad:X"}}, bad=code)


@pytest.mark.parametrize("body", LIES)
def test_a_method_that_lies_is_one_line_with_its_package(body: str, site: Path, place: Path) -> None:
    method(site, body)
    many(place)
    used = adv("compute", "in.jsonl", "-m", "bad-one", "-o", "out.jsonl", cwd=place)
    assert (used.status, used.out, used.err.count("\n")) == (2, "", 1), used
    assert used.err.startswith("error: the method bad-one of bad 1.0 failed: ")
    assert LIES[body] in used.err
    assert not (place / "out.jsonl").exists()
    adv("compute", "in.jsonl", "-m", "rloo", "-o", "out.jsonl", "-q", cwd=place)
    audited = adv("audit", "out.jsonl", cwd=place)
    assert "matches --method rloo" in audited.out
    assert audited.err == used.err.replace("error:", "warning:").partition("; repair")[0] + "; it is left out\n"


@pytest.mark.parametrize(
    "fact", ["min_group='2'", "scales='none'", "about=3", "batch='x'", "centred='no'", "params=None"]
)
def test_a_fact_of_a_method_has_its_type(fact: str, site: Path, place: Path) -> None:
    method(site, fact=fact)
    for line in (["compute", "in.jsonl", "-m", "bad-one"], ["methods"], ["audit", "in.jsonl", "--column", "reward"]):
        done = adv(*line, cwd=place)
        said = (
            f"the method bad-one of bad 1.0 cannot be used: its {fact.replace('=', ' cannot be ')}; it is of the type "
        )
        assert said in done.err
        assert done.err.count("\n") == 1


def test_what_a_method_prints_is_not_among_the_data(site: Path, place: Path) -> None:
    method(site, "print('hello'); return t.d")
    done = adv("compute", "in.jsonl", "-m", "bad-one", "-o", "-", "-q", cwd=place)
    assert values(done) == [0.0, 1.0, 5.0] * 2
    assert done.err == "hello\n"


@pytest.mark.parametrize(
    ("value", "said"),
    [("float('nan')", "4 advantages are NaN"), ("float('inf')", "4 advantages are infinite"), ("None", "4 null")],
)
def test_values_that_are_no_numbers_are_counted(value: str, said: str, site: Path, place: Path) -> None:
    method(site, f"return pl.when(t.d > 0).then(pl.lit({value}, pl.Float64)).otherwise(t.d)")
    done = adv("compute", "in.jsonl", "-m", "bad-one", "-o", "out.jsonl", cwd=place)
    assert done.status == 0, done.err
    assert said in done.out


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
    ("kind", "table"), [("presets", "PRESET"), ("presets", "Raises(PRESET)"), ("schemas", "SCHEMA"), ("schemas", "Raises(SCHEMA)")]
)  # fmt: skip
def test_a_table_of_a_package_is_read_as_plain_data(kind: str, table: str, site: Path, place: Path) -> None:
    install(site, "bad", {f"grpo_adv.{kind}": {"bad-one": "bad:X"}}, bad=TABLES + table)
    assert values(adv("compute", "in.jsonl", f"--{kind[:-1]}", "bad-one", "-o", "-", cwd=place))
    for line in ([kind, "bad-one"], [kind, "--json"], [kind]):
        assert adv(*line).err == ""


@pytest.mark.parametrize(
    ("kind", "table", "said"),
    [
        ("presets", "{**PRESET, 'options': {'a': object()}}", "TypeError: 'object' object is not iterable"),
        (
            "presets",
            "{**PRESET, 'oddities': [3]}",
            "oddities of the preset bad-one cannot be [3]; it takes a list of texts",
        ),
        ("presets", "{**PRESET, 'inherits': 'bad-one'}", "the preset bad-one inherits from itself"),
        ("schemas", "{**SCHEMA, 'title': 3}", "title of the schema bad-one cannot be 3; it takes a text"),
    ],
)
def test_a_table_of_a_package_that_is_wrong_is_one_line(
    kind: str, table: str, said: str, site: Path, place: Path
) -> None:
    install(site, "bad", {f"grpo_adv.{kind}": {"bad-one": "bad:X"}}, bad=TABLES + table)
    used = adv("compute", "in.jsonl", f"--{kind[:-1]}", "bad-one", cwd=place)
    assert (used.status, used.err.count("\n")) == (2, 1)
    assert f"error: the {kind[:-1]} bad-one of bad 1.0 cannot be used: {said}" in used.err
    for line in ([kind], [kind, "--json"]):
        listed = adv(*line)
        assert (listed.status, listed.err.count("\n")) == (0, 1)
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


def test_columns_that_a_method_names_are_kept_apart(site: Path, place: Path) -> None:
    """For the plans of an audit, one of which fails, and for several reward columns."""
    of_presets = {"low": "naming:LOW", "high": "naming:HIGH", "top": "naming:TOP"}
    install(
        site,
        "naming",
        {"grpo_adv.estimators": {"point": "naming:X"}, "grpo_adv.presets": of_presets},
        naming=NAMES_A_COLUMN,
    )
    many(place)
    for preset in ("low", "high"):
        assert adv("compute", "in.jsonl", "--preset", preset, "-o", "out.jsonl", "-q", "--force", cwd=place).status == 0
        assert f"matches {preset}" in adv("audit", "out.jsonl", cwd=place).out
    rows = [{"id": 0, "x": x, "y": y} for x, y in ((0.0, 1.0), (1.0, 3.0), (4.0, 2.0))]
    write(place / "two.jsonl", rows)
    words = ["two.jsonl", "-m", "point", "--group", "id", "--reward", "x", "--reward", "y", "--combine", "normalize"]
    assert values(adv("compute", *words, "-o", "-", cwd=place)) == [-3.0, 0.0, 2.0]


def test_a_name_that_is_taken_stays_what_it_was(site: Path, place: Path) -> None:
    for name in ("one", "two"):
        install(site, name, {"grpo_adv.presets": {"trl-grpo": f"{name}:X", "same": f"{name}:X"}})
    listed = adv("presets").err.splitlines()
    assert listed[0] == "warning: one 1.0 and two 1.0: its preset trl-grpo is left out: its name is taken (built in)"
    assert listed[1] == "warning: several packages have a preset same: one 1.0 and two 1.0; it is left out"
    assert adv("compute", "in.jsonl", "--preset", "trl-grpo", "-o", "-", "-q", cwd=place).status == 0
    used = adv("compute", "in.jsonl", "--preset", "same", cwd=place)
    assert (used.status, "uninstall all but one of them" in used.err) == (2, True)


def test_a_slow_import_is_named(site: Path) -> None:
    module = f"import time\ntime.sleep({SLOW + 0.01})\nX = {{'inherits': 'trl-grpo'}}\n"
    install(site, "slow", {"grpo_adv.presets": {"slow-one": "slow:X"}}, slow=module)
    done = adv("presets", "slow-one")
    assert re.fullmatch(r"warning: slow 1\.0: importing its preset slow-one took \d+\.\d s\n", done.err)
    assert done.out.startswith("slow-one (from slow 1.0): TRL")


def test_what_a_package_prints_when_it_is_imported_is_not_among_the_data(template: Path, place: Path) -> None:
    module = template / "lab_plugin.py"
    module.write_text(f"{module.read_text()}\nprint('hello')\n")
    assert values(adv("compute", "in.jsonl", "-m", "lab-midrange", "-o", "-", "-q", cwd=place)) == MIDRANGE


def test_a_damaged_package_of_somebody_else_stops_nothing(site: Path, place: Path) -> None:
    install(site, "other", {"console_scripts": {}})
    (site / "other-1.0.dist-info" / "entry_points.txt").write_text("[grpo_adv.presets]\nno sign here\n")
    done = adv("presets")
    assert done.status == 0
    assert done.err.startswith("warning: the entry points of installed packages cannot be read, plugins are left out: ")
    assert done.err.count("\n") == 1


def test_in_python_they_are_warnings_and_errors(site: Path) -> None:
    install(site, "bad", {"grpo_adv.presets": {"bad-one": "bad:X"}}, bad="X = {'inherits': 'none'}\n")
    with pytest.warns(PluginWarning, match=r"bad-one of bad 1\.0 cannot be used: no preset that bad-one inherits from"):
        assert "bad-one" not in dict(presets().items())
    with pytest.raises(PluginError, match=r"bad-one of bad 1\.0 cannot be used"):
        presets()["bad-one"]


# --- files -----------------------------------------------------------------------------------------------------


def test_a_file_of_presets_adds_to_those_that_are_there(place: Path) -> None:
    (place / "ours.toml").write_text(f"[ours]\n{PRESET}[theirs]\ninherits = 'ours'\nplan.divisor.ddof = 0\n")
    done = adv("compute", "in.jsonl", "--preset", "theirs", "--presets", "ours.toml", "--json", "--explain", cwd=place)
    facts = json.loads(done.out)
    assert (facts["plan"]["divisor"]["epsilon"], facts["plan"]["divisor"]["ddof"]) == (0.5, 0)
    assert facts["preset"]["from"] == "ours.toml"
    assert "ours (from ours.toml): Ours" in adv("presets", "ours", "--presets", "ours.toml", cwd=place).out
    both = adv("compare", "in.jsonl", "--preset", "ours", "--preset", "trl-grpo", "--presets", "ours.toml", cwd=place)
    assert both.status == 0, both.err
    gone = adv("compute", "in.jsonl", "--preset", "theirs", cwd=place)
    assert (gone.status, "no preset named 'theirs'" in gone.err) == (2, True), "a file is beside one run"


def test_a_file_of_schemas_is_detected(place: Path) -> None:
    (place / "log.jsonl").write_text('{"q": "a", "points": 1}\n{"q": "a", "points": 0}\n')
    (place / "ours.toml").write_text(f"[ours]{SCHEMA}")
    line = ["compute", "log.jsonl", "--schemas", "ours.toml", "-m", "dr-grpo", "-o", "-"]
    done = adv(*line, cwd=place)
    assert values(done) == [0.5, -0.5]
    assert "our log" in done.err
    assert values(adv(*line, "--schema", "ours", cwd=place)) == [0.5, -0.5]
    assert "ours (from ours.toml): our log" in adv("schemas", "log.jsonl", "--schemas", "ours.toml", cwd=place).out


def test_python_takes_the_same_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    monkeypatch.chdir(place)
    (place / "ours.toml").write_text(f"[ours]\n{PRESET}")
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
def test_a_file_that_is_wrong_is_one_line(option: str, text: str, said: str, place: Path) -> None:
    (place / "ours.toml").write_text(text)
    done = adv("compute", "in.jsonl", f"--{option}", "ours.toml", "-o", "-", cwd=place)
    assert done.status in {1, 2}
    assert done.err.startswith("error: ")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


# --- other machines --------------------------------------------------------------------------------------------


def test_tasks_on_other_machines_are_given_the_schemas(place: Path, template: Path) -> None:
    """What looks at a file there is pickled with the rows, and looks nothing up by name."""
    import pickle

    from grpo_cli.read.open_tables import find_inputs, open_tables
    from grpo_cli.read.recognise import with_schema
    from grpo_cli.read.tables import Binding

    (place / "log.jsonl").write_text('{"question": "a", "points": 1, "round": 1}\n')
    (table,) = open_tables(find_inputs([str(place / "log.jsonl")])[0], Binding(schema="none"))
    sent: list[bytes] = []

    def over(work: Any, files: Any) -> list[Any]:
        sent.append(pickle.dumps(work))
        return list(map(work, files))

    (read,) = with_schema([table], "lab-log", over)
    assert read.schema == schemas()["lab-log"]
    assert b"lab log" in sent[0], "the row itself"


def test_every_table_knows_its_own_rows_by_heart() -> None:
    """Where no package is installed all rows are at hand."""
    for rows in (ESTIMATORS, presets(), schemas()):
        assert [*rows] == [*rows.at_hand]
        assert len(rows) == len(rows.at_hand)
        assert {rows.origin(name) for name in rows} == {""}
