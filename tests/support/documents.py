"""The generated parts of the README and of docs/: `python -m tests.support.documents` writes them, tests compare them.

A page marks what is generated:

    <!-- table: NAME -->             one of TABLES, made from the tables of the code
    <!-- output: COMMAND -->         what the command prints on the sample data
    <!-- source: FILE#NAME -->       a function, a row or a section of that file, unchanged
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from grpo_cli import errors
from grpo_cli.engine import plan_parts
from grpo_cli.engine.estimators import expression
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets as known_presets
from grpo_cli.formats.registry import FORMATS
from grpo_cli.guests.browse.keys import KEYS
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.export_kinds import EXPORT_KINDS, WITH_ADVANTAGES, listed
from grpo_cli.options.table import EVERY, OF_PART, Option
from grpo_cli.render import plan_text
from grpo_cli.render.methods import as_dict as method_facts
from grpo_cli.render.presets import as_dict as preset_facts
from grpo_cli.render.schemas import reward_of
from grpo_cli.render.targets import FORMS
from grpo_cli.render.targets import title as target_title
from grpo_cli.schemas.table import LAYOUTS, REFUSED
from grpo_cli.schemas.table import schemas as known_schemas
from grpo_cli.stats.gates import Numbers
from grpo_cli.targets.table import WHEN, Reads, Target
from grpo_cli.targets.table import targets as known_targets
from tests.support.command import Done, adv
from tests.support.jobs import samples_in
from tests.support.json_schemas import DOCUMENTS, sentences
from tests.support.readings import OUTCOMES, readings
from tests.support.terms import TERMS
from tests.unit.test_rooms import PACKAGE, RULES

ROOT = PACKAGE.parent
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
# Inside of a list the markers and what is between them are indented.
BLOCK = re.compile(r"^( *)<!-- (output|table|source): (.+?) -->\n.*?<!-- end -->\n", re.DOTALL | re.MULTILINE)
SHELL = frozenset("|<>&;$`*")
SINGLE = re.compile(r'(?:"[^"]*"|\'[^\']*\')')


# --- running what a page shows ------------------------------------------------------------------------------


def shell(command: str, cwd: Path) -> Done:
    """Run a command as a user would in bash, 80 columns wide, with this interpreter's commands first, for a minute at most."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    words = ["bash", "-c", command]
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=60)
    return Done(done.returncode, done.stdout, done.stderr)


def run(command: str, cwd: Path) -> Done:
    """Run a command: in this process where it is `grpo-adv` alone, in a shell where it has pipes or sets something."""
    done = Done(0, "", "")
    for part in [command] if command.startswith("set ") else command.split(" && "):
        to_file = re.search(r" > ([\w./-]+)$", part)
        words = part[: to_file.start()] if to_file else part
        in_process = words.startswith("grpo-adv ") and not SHELL & {*SINGLE.sub("", words)}
        done = adv(*shlex.split(words)[1:], cwd=cwd) if in_process else shell(part, cwd)
        if in_process and to_file:
            (cwd / to_file[1]).write_text(done.out, encoding="utf-8")
            done = Done(done.status, "", done.err)
        if done.status:
            break
    return done


def commands_of(body: str) -> list[str]:
    """The commands of a block: one where it sets something; after an installation, which is not made again, the last."""
    if "pip install" in body:
        last = body.rpartition("&& ")[2].strip().removeprefix(".venv/bin/")
        return [last] if last.startswith("grpo-adv") else []
    body = body.replace(".venv/bin/", "")
    return [f"set -e\n{body}"] if body.startswith("set ") else body.splitlines()


def captured(command: str) -> str:
    """What a command prints, without the time it took."""
    with tempfile.TemporaryDirectory() as scratch:
        samples_in(Path(scratch, "sample_data"))
        done = run(command, Path(scratch))
    if done.status:
        raise RuntimeError(done.err)
    printed = re.sub(r"[0-9.]+ s$", "0.03 s", done.out, flags=re.MULTILINE)
    return fenced("text", f"$ {command}\n{printed}")


# --- Markdown ------------------------------------------------------------------------------------------------


def fenced(kind: str, text: str) -> str:
    return f"```{kind}\n{text.rstrip()}\n```\n"


def plain(text: str) -> str:
    """Text in which Markdown sees no mark-up."""
    return re.sub(r"([*_|])", r"\\\1", text).replace("<", "&lt;")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(header: str, rows: Iterable[Iterable[str]]) -> str:
    titles = header.split(" | ")
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def sections(parts: Mapping[str, str]) -> str:
    return "\n".join(f"## {title}\n\n{body}" for title, body in parts.items())


# --- the command line ----------------------------------------------------------------------------------------


def commands() -> str:
    return table("command | what it does", ([f"`{row.name}`", row.help] for row in COMMANDS.values()))


def options() -> str:
    """A section for each panel of `--help`, a row for each option."""
    panels: dict[str, list[Option]] = {}
    for row in EVERY.values():
        panels.setdefault(row.panel, []).append(row)
    header = "option | takes | meaning | in"
    return sections({title: table(header, map(_option, rows)) for title, rows in panels.items()})


def _option(row: Option) -> list[str]:
    flags = ", ".join(code(flag) for flag in (row.flag, row.short, row.other) if flag)
    takes = (row.metavar or " ".join(map(str, get_args(row.type)))).replace("|", " ")
    inside = [command.name for command in COMMANDS.values() if row.name in command.options]
    return [flags, code(takes), plain(row.help), ", ".join(inside)]


def arguments() -> str:
    """What the commands take that is not in the table of options."""
    rows: dict[tuple[str, str], list[str]] = {}
    for command in COMMANDS.values():
        if command.argument is not None:
            rows.setdefault((command.argument.flag, command.argument.help), []).append(command.name)
    return table("takes | meaning | in", ([code(flag.replace("|", " ")), plain(text), ", ".join(names)] for (flag, text), names in rows.items()))  # fmt: skip


def exits() -> str:
    classes: dict[int, list[type[errors.GrpoError]]] = {}
    for one in vars(errors).values():
        if isinstance(one, type) and issubclass(one, errors.GrpoError) and one is not errors.GrpoError:
            classes.setdefault(one.status, []).append(one)
    meaning = {
        0: "done",
        1: "the data cannot be used, or the system refused a file: the message names file, row or group, and the flag that helps",
        2: "invalid command line",
        3: "a `--fail-on` condition holds; nothing was written",
        130: "interrupted (128 + the signal's number: 143 terminated, 129 the terminal was closed); 0 if every output had its name by then",
        141: "the reader of a pipe has left",
    }
    rows = [
        [str(status), text, ", ".join(code(one.__name__) for one in classes.pop(status, []))]
        for status, text in meaning.items()
    ]
    if classes:
        raise RuntimeError(f"no words for the exit statuses {[*classes]}")
    return table("status | meaning | in Python", rows)


# --- the plan, methods, presets, schemas -----------------------------------------------------------------------


def plan_fields() -> str:
    """Every field that `--set` knows, part by part in the order of the arithmetic."""
    parts = [
        *((name, part) for name, part in plan_parts.PARTS.items() if name in {"unit", "rewards"}),
        *((f"shape.{name}", op) for name, op in plan_parts.SHAPE.items()),
        *((name, part) for name, part in plan_parts.PARTS.items() if name not in {"unit", "rewards"}),
        *((f"post.{name}", op) for name, op in plan_parts.POST.items()),
    ]
    rows = [
        [code(f"{name}.{one.name}"), _values(get_type_hints(part)[one.name]), code(_default(one))]
        for name, part in parts for one in fields(part)
    ]  # fmt: skip
    return table("field | takes | default", rows)


def group_weights() -> str:
    """The factor of a group's advantages for each value of weight.by, with its default constants."""
    values = get_args(get_type_hints(plan_parts.Weight)["by"])
    formulas = {value: dict(plan_text.parts(Plan.of({"weight.by": value})))["weight"] for value in values}
    rows = [[code(value), *(plain(line.removeprefix("then ")) for line in formulas[value])] for value in values[1:]]
    return table("`weight.by` | the advantage becomes", rows)


def _values(kind: Any) -> str:
    choices = [value for value in get_args(kind) if isinstance(value, str)]
    if choices:
        return code(" ".join(choices))
    return {bool: "true or false", int: "a whole number"}.get(kind, "numbers" if "tuple" in str(kind) else "a number")


def _default(one: Any) -> str:
    if one.default is MISSING or one.default is None or one.default == ():
        return ""
    return str(one.default).lower() if isinstance(one.default, bool) else f"{one.default}"


def methods() -> str:
    rows = []
    for name in ESTIMATORS:
        facts = method_facts(name)
        scales = ", ".join([f"**{facts['scale']}**", *(scale for scale in facts["scales"] if scale != facts["scale"])])
        needs = ", ".join(code(need["flag"]) for need in facts["needs"])
        rows.append([f"`{name}`", plain(facts["summary"]), scales, needs])
    return table("method | what it is | scale | needs", rows)


def method_details() -> str:
    """A section for each method: formula, limit cases and source, then its parameters."""
    return sections({f"`{name}`": _method(method_facts(name)) for name in ESTIMATORS})


def _method(facts: Mapping[str, Any]) -> str:
    _, formula, *rest = facts["doc"].split("\n\n")
    body = fenced("text", "\n".join(line.strip() for line in formula.splitlines()))
    body += f"\n{plain(' '.join(rest).replace(chr(10), ' '))}\n"
    if facts["params"]:
        body += "\n" + table("parameter | default | takes | meaning", map(_parameter, facts["params"]))
    return body


def _parameter(param: Mapping[str, Any]) -> list[str]:
    takes = " ".join(param["choices"]) if param["choices"] else param["type"]
    return [code(param["name"]), code(str(param["default"])), takes, plain(param["help"])]


def presets() -> str:
    """A table for each framework."""
    frameworks: dict[str, list[list[str]]] = {}
    for name, row in known_presets().items():
        facts = preset_facts(name)
        formula = f"refused: {row.refused}" if row.refused else "; ".join(facts["formula"]).replace(":;", ":")
        singletons = "" if row.refused else "; ".join(facts["rules"]["singletons"])
        frameworks.setdefault(row.framework, []).append([f"`{name}`", plain(formula), plain(singletons)])
    header = "preset | computes | singletons"
    return sections({framework: table(header, rows) for framework, rows in frameworks.items()})


def schemas() -> str:
    rows = []
    for row in known_schemas().values():
        refused = row.layout in REFUSED
        group, reward = (f"refused: {row.refusal}", "") if refused else (row.grouping, reward_of(row))
        rows.append([f"`{row.name}`", *map(plain, (row.tool, row.layout, group, reward))])
    return table("schema | written by | layout | group | reward", rows)


def layouts() -> str:
    return table("layout | what it is", ([code(name), text] for name, text in LAYOUTS.items()))


def reading_outcomes() -> str:
    counts = Counter(one.outcome for one in readings().values())
    rows = [[text, str(counts[name])] for name, text in OUTCOMES.items()]
    return table("what the tool does | layouts", [*rows, ["groups that nobody meant, without a word", "0"]])


def audit_verdicts() -> str:
    """What an audit says of the logs of the corpus, as the nightly test has recorded it."""
    recorded = json.loads((ROOT / "tests" / "reference" / "audit_verdicts.json").read_text(encoding="utf-8"))
    rows = [[kind, *map(str, counts.values())] for kind, counts in recorded.items()]
    total = [sum(counts[name] for counts in recorded.values()) for name in next(iter(recorded.values()))]
    head = "logs | the right formula | it is among those that fit as well | no formula | a wrong one"
    return table(head, [*rows, ["all", *map(str, total)]])


def terms() -> str:
    """What screens call things that code calls otherwise."""
    return table("on screens and pages | what it is | options, JSON, Python", (row[:3] for row in TERMS))


def formats() -> str:
    rows = (row for row in FORMATS.rows.values() if row.suffixes)
    return table("format | suffixes", ([row.name, " ".join(map(code, row.suffixes))] for row in rows))


def targets() -> str:
    """A section for each trainer, a row for each kind that it reads, and why it does not read others."""
    header = "`--to` | read by | as | files | trains on | to know | checked"
    parts = {}
    for name, row in known_targets().items():
        rows = [_reads(row, kind, reads) for kind, reads in row.kinds.items()]
        about = f"{plain(target_title(row))}, {row.release} ({plain(row.source)}).\n\n"
        not_read = "".join(f"* {code(kind)} is not read: {why}.\n" for kind, why in row.not_read.items())
        parts[code(name)] = about + table(header, rows) + (f"\n{not_read}" if not_read else "")
    return sections(parts)


def _reads(row: Target, kind: str, reads: Reads) -> list[str]:
    know = "; ".join(say if when == "always" else f"{WHEN[when]}: {say}" for when, say in reads.know.items())
    named = ", ".join(f"{ours} is {code(theirs)}" for ours, theirs in reads.names.items())
    form = f"{FORMS[reads.form]}{f' ({named})' if named else ''}"
    files = f"{' '.join(map(code, row.suffixes_of(kind)))}{' in one folder' if reads.folder else ''}"
    return [code(kind), plain(reads.by), form, files, plain(reads.trains_on), plain(know), reads.checked or row.checked]


def names(known: Iterable[str]) -> str:
    return ", ".join(map(code, known)) + "\n"


def formula_names() -> str:
    columns = {name: f"{ROLES[name].meaning} (needs `{ROLES[name].flag}`)" for name in expression.COLUMNS}
    return table("name | meaning", ([code(name), text] for name, text in {**expression.NAMES, **columns}.items()))


# --- the house -------------------------------------------------------------------------------------------------


def rooms() -> str:
    """The rules of the test on imports, with what each room says of itself."""
    rows = []
    for name, below in RULES.items():
        home = PACKAGE / name / "__init__.py" if (PACKAGE / name).is_dir() else PACKAGE / f"{name}.py"
        doc = ast.get_docstring(ast.parse(home.read_text(encoding="utf-8"))) or ""
        rows.append([code(name), doc.splitlines()[0], ", ".join(below.split()) or "nothing"])
    return table("room | what it is for | imports from", rows)


def export_kinds() -> str:
    """What a record of each kind is, and which kinds take options of advantages."""
    rows = ([code(kind.name), kind.record, kind.columns] for kind in EXPORT_KINDS.values())
    last = f"\n`--method`, `--scale`, `--clip` and other options of advantages apply to {listed(map(code, WITH_ADVANTAGES))} only; other kinds refuse them.\n"
    return table("`--to` | one record is | columns", rows) + last


def documents() -> str:
    rows = (
        [code(f"grpo-adv {command} --json"), ", ".join(f"[{name}](schemas/{name}.json)" for name in kinds)]
        for command, kinds in DOCUMENTS.items()
    )
    return table("command | its schemas", rows)


# The documents that a gate is about, by what asks for them; with --plan-by it is about each part, which is like a whole run.
GATED = {
    {"inspect-runs": "inspect against runs", "inspect-rescored": "inspect of two rewards"}.get(name, name): kind
    for command, kinds in DOCUMENTS.items() if "fail_on" in COMMANDS[command].options
    for name, kind in kinds.items() if name != "compute-parts"
}  # fmt: skip


def gates() -> str:
    """A section for each command with --fail-on: the paths of its document, with what is there."""
    return sections({title: table("path | what it is | asked for by", _gates(kind)) for title, kind in GATED.items()})


def _gates(kind: Any) -> Iterator[list[str]]:
    shown = set[str]()
    for place in Numbers(kind).places:
        path = "plan.PART.FIELD" if place.path.startswith("plan.") else place.path
        if not place.is_number or path in shown:
            continue
        shown.add(path)
        name = next(step.attribute for step in reversed(place.steps) if step.attribute)
        said = sentences(place.owner).get(name.removesuffix("_")) or inspect.getdoc(getattr(place.owner, name)) or ""
        if path != place.path:
            said = "a number of the plan: its fields are those of `--set`"
        yield [
            code(path),
            plain(f"how many: {said}" if place.meaning == "list" else said),
            code(place.way.said(errors.Spelling()) if place.way else ""),
        ]


def short_names() -> str:
    """The aliases, with the commands that have them."""
    names: dict[str, dict[str, None]] = {}
    inside: dict[str, dict[str, None]] = {}
    for title, kind in GATED.items():
        for alias, path in Numbers(kind).aliases.items():
            names.setdefault(path, {})[alias] = None
            inside.setdefault(path, {})[title] = None
    rows = ([code(path), ", ".join(map(code, names[path])), ", ".join(inside[path])] for path in names)
    return table("path | short | in", rows)


def browse_keys() -> str:
    return table("key | what it does", ([code(key.shown), plain(key.help)] for key in KEYS))


TABLES: Mapping[str, Callable[[], str]] = {
    "commands": commands, "options": options, "arguments": arguments, "exits": exits, "plan fields": plan_fields, "group weights": group_weights,
    "methods": methods, "method details": method_details, "presets": presets, "schemas": schemas, "layouts": layouts, "targets": targets,
    "readings": reading_outcomes, "audit verdicts": audit_verdicts,
    "formats": formats, "gates": gates, "short names": short_names,
    "part options": lambda: names(EVERY[name].flag for name in OF_PART),
    "formula functions": lambda: names(expression.FUNCTIONS), "formula names": formula_names,
    "export kinds": export_kinds, "documents": documents, "rooms": rooms, "browse keys": browse_keys, "names": terms,
}  # fmt: skip


def source(place: str) -> str:
    """A piece of the project, unchanged: a function, a row with that name, or a section of a TOML file."""
    file, name = place.split("#")
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".toml"):
        if name not in tomllib.loads(text):
            raise RuntimeError(f"{file} has no [{name}]")
        found = re.search(rf"^\[{name}\]\n(.+\n|\n(?=\[{name}\.))+", text, re.MULTILINE)
        return fenced("toml", found[0] if found else "")
    node: Any = next(node for node in ast.walk(ast.parse(text)) if _is_called(node, name))
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return fenced("python", "\n".join(line[indent:] for line in lines))


def _is_called(node: Any, name: str) -> bool:
    if isinstance(node, ast.Call):
        return any(isinstance(one, ast.Constant) and one.value == name for one in node.args[:1])
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name


def regenerated(text: str) -> str:
    """A page with its generated parts regenerated."""

    def fresh(found: re.Match[str]) -> str:
        indent, kind, what = found.groups()
        body = TABLES[what]() if kind == "table" else captured(what) if kind == "output" else source(what)
        return textwrap.indent(f"<!-- {kind}: {what} -->\n\n{body}\n<!-- end -->\n", indent)

    return BLOCK.sub(fresh, text)


if __name__ == "__main__":
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = regenerated(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(ROOT))  # noqa: T201 - says what it wrote
