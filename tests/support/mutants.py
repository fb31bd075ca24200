"""One-line mutants of the package, each run against the tests that hold its room.

python -m tests.support.mutants [--seed 61] [--count 150] [--first N] [--seconds 100] [--room ROOM ...] [--list] [--no-control]

A mutant changes one expression on one line: a comparison, an operator, a whole number by one, a dropped term, clause or
`not`, `and` for `or`, two arguments that swap places. Texts, errors and annotations stay. Kinds are drawn equally often, so
that the rare ones occur. CONTRIBUTING.md names the tests of each room; those that name the module come first, and the run
stops at the first failure. Everything happens in a copy: the checkout is never changed, however the run ends.

Before the first mutant of a room its tests must pass without one (`--no-control` leaves that out). A mutant is killed by a
failing test, alive if all pass, and undecided after `--seconds`; whether one that is alive is equivalent, a reader decides.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
CALCULATED: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
TERMS = (ast.Add, ast.Sub)
ANNOTATIONS = {"annotation", "returns", "type_params", "decorator_list"}
TYPES = {"cast", "isinstance", "issubclass", "TypeVar"}  # their arguments are types
ERRORS = re.compile(r"(Error|Unknown\w+|Way|Warning)$")  # what is made of texts for a user
KILLED, ALIVE, UNDECIDED = "killed", "alive", "undecided"


@dataclass(frozen=True, order=True)
class Mutant:
    """One expression of a module, and what takes its place; columns are in bytes."""

    path: str
    line: int
    start: int
    end: int
    kind: str
    text: str

    def apply(self, source: str) -> str:
        """The module with this mutant."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        lines[self.line - 1] = (line[: self.start] + self.text.encode() + line[self.end :]).decode()
        return "".join(lines)

    def words(self, source: str) -> str:
        """The mutant as a line of the list."""
        was = source.splitlines()[self.line - 1].encode()[self.start : self.end].decode()
        return f"{self.path}:{self.line} {self.kind}: {was} -> {self.text}"


# --- what can be changed ----------------------------------------------------------------------------------------


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of a module, in order."""
    return sorted({*_in(path, ast.parse(source))})


def is_another(mutant: Mutant, source: str) -> bool:
    """Whether the changed module is a program, and another one."""
    try:
        changed = ast.parse(mutant.apply(source))
    except SyntaxError:
        return False
    return ast.dump(changed) != ast.dump(ast.parse(source))


def _in(path: str, tree: ast.AST) -> Iterator[Mutant]:
    """The mutants of all expressions below a node, without texts, errors and annotations."""
    if isinstance(tree, ast.expr) and tree.lineno == tree.end_lineno and tree.end_col_offset is not None:
        for kind, text in _changes(tree):
            yield Mutant(path, tree.lineno, tree.col_offset, tree.end_col_offset, kind, text)
    for field, value in ast.iter_fields(tree):
        if field in ANNOTATIONS:
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not _is_left_out(node):
                yield from _in(path, node)


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Assert():
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in TYPES or ERRORS.search(name) is not None
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name == "__slots__"
    return False


def _changes(node: ast.expr) -> Iterator[tuple[str, str]]:
    """What may take the place of an expression: the kind of the change, and the new text."""
    yield from _of_operators(node)
    yield from _of_clauses(node)
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            yield "off by one", str(number + 1)
        case ast.Call(args=[*args]):
            for at, (one, two) in enumerate(pairwise(args)):
                if isinstance(one, (ast.Name, ast.Attribute)) and isinstance(two, (ast.Name, ast.Attribute)):
                    swapped = copy(node)
                    swapped.args = [*args[:at], two, one, *args[at + 2 :]]
                    yield "swapped names", ast.unparse(swapped)


def _of_operators(node: ast.expr) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare():
            for at, op in enumerate(node.ops):
                changed = copy(node)
                changed.ops = [*node.ops[:at], COMPARED[type(op)](), *node.ops[at + 1 :]]
                yield "compare", _inside(changed)
        case ast.BinOp() if not _is_text(node.left) and not _is_text(node.right):
            if type(node.op) in CALCULATED:
                changed_op = copy(node)
                changed_op.op = CALCULATED[type(node.op)]()
                yield "arithmetic", _inside(changed_op)
            if isinstance(node.op, TERMS):
                yield "dropped term", _inside(node.left)


def _of_clauses(node: ast.expr) -> Iterator[tuple[str, str]]:
    match node:
        case ast.BoolOp():
            other = copy(node)
            other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", _inside(other)
            for at in range(len(node.values)):
                fewer = copy(node)
                fewer.values = [*node.values[:at], *node.values[at + 1 :]]
                yield "dropped clause", _inside(fewer if len(fewer.values) > 1 else fewer.values[0])
        case ast.UnaryOp(op=ast.Not()):
            yield "dropped not", _inside(node.operand)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for at, each in enumerate(node.generators):
                if each.ifs:
                    every = copy(each)
                    every.ifs = each.ifs[1:]
                    wider = copy(node)
                    wider.generators = [*node.generators[:at], every, *node.generators[at + 1 :]]
                    # A generator that is the only argument of a call shares its parentheses, and its place includes them.
                    yield "dropped clause", ast.unparse(wider)


def _inside(node: ast.expr) -> str:
    """The text of an expression that may stand inside of another one."""
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, (ast.Compare, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.IfExp)) else text


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def drawn(sources: Mapping[str, str], count: int, seed: int) -> list[Mutant]:
    """So many different mutants of these modules, each kind equally often; fewer if there are no more."""
    kinds: dict[str, list[Mutant]] = {}
    for path in sorted(sources):
        for mutant in mutants_of(path, sources[path]):
            kinds.setdefault(mutant.kind, []).append(mutant)
    dice = random.Random(seed)  # noqa: S311 - a published sample
    chosen = list[Mutant]()
    while len(chosen) < count and kinds:
        kind = dice.choice(sorted(kinds))
        mutant = kinds[kind].pop(dice.randrange(len(kinds[kind])))
        if is_another(mutant, sources[mutant.path]):
            chosen.append(mutant)
        if not kinds[kind]:
            del kinds[kind]
    return chosen


# --- which tests hold what --------------------------------------------------------------------------------------


def room_tests(contributing: str) -> dict[str, list[str]]:
    """The table "Which tests hold which room" of CONTRIBUTING.md: for each room its files and folders of tests."""
    table = contributing.partition("### Which tests hold which room\n")[2].partition("\n#")[0]
    rows = [line.strip("| ").split("|") for line in table.splitlines() if line.startswith("| `")]
    return {room.strip(" `"): re.findall(r"`([^`]+)`", tests) for room, tests in rows}


def in_order(root: Path, tests: Iterable[str], module: str) -> list[str]:
    """The files of these tests, first those that name the module, then in the order of the table."""
    dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, stem = dotted.rpartition(".")
    imports = re.compile(rf"{re.escape(dotted)}\b|from {re.escape(package)} import .*\b{re.escape(stem)}\b")
    files = list[Path]()
    for test in tests:
        place = root / test
        if not place.exists():
            raise SystemExit(f"CONTRIBUTING.md names {test}, which does not exist")
        files += sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    names = [str(file.relative_to(root)) for file in dict.fromkeys(files)]
    far = {
        name: (stem not in name, imports.search((root / name).read_text(encoding="utf-8")) is None) for name in names
    }
    return sorted(names, key=lambda name: sum(far[name]))


# --- the run ----------------------------------------------------------------------------------------------------


def copied(folder: Path) -> Path:
    """A copy of the checkout as it is, without what git ignores."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in names:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def tested(root: Path, tests: Sequence[str], seconds: float) -> tuple[str, str]:
    """Whether the package of this folder is killed by its tests, and the first failure."""
    environment = {**os.environ, "PYTHONPATH": str(root)}  # the copy, not what is installed, in processes as well
    words = ["-m", "pytest", "-x", "-q", "-n", "0", "--no-header", "--tb=no", "-p", "no:cacheprovider", *tests]
    with subprocess.Popen(
        [sys.executable, *words], cwd=root, env=environment, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return UNDECIDED, f"after {seconds:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what its tests have started as well
    if process.returncode == 0:
        return ALIVE, ""
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    lines = said.strip().splitlines()
    return KILLED, failures[0] if failures else lines[-1] if lines else f"status {process.returncode}"


def judged(root: Path, mutant: Mutant, tests: Sequence[str], seconds: float) -> tuple[str, str]:
    """What the tests say of a mutant; its module is as it was afterwards."""
    module = root / mutant.path
    source = module.read_bytes()
    module.write_text(mutant.apply(source.decode()), encoding="utf-8", newline="")
    try:
        return tested(root, in_order(root, tests, mutant.path), seconds)
    finally:
        module.write_bytes(source)


def main(words: Sequence[str] | None = None) -> int:
    """Draw mutants, run them, and print a line for each and the share that is killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutants", description="One-line mutants.")
    parser.add_argument("--seed", type=int, default=61)
    parser.add_argument("--count", type=int, default=150, help="how many are drawn")
    parser.add_argument("--first", type=int, default=1, help="the first that is run, from 1")
    parser.add_argument("--seconds", type=float, default=100, help="for each")
    parser.add_argument("--room", action="append", help="draw from these rooms only")
    parser.add_argument("--list", action="store_true", help="draw, and run nothing")
    parser.add_argument("--no-control", action="store_true", help="believe that the tests pass without a mutant")
    asked = parser.parse_args(words)
    known = room_tests((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    rooms = asked.room or [*known]
    modules = [path for room in rooms for path in (ROOT / "grpo_cli" / room).rglob("*.py")]
    sources = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in modules}
    chosen = drawn(sources, asked.count, asked.seed)
    numbered = [*enumerate(chosen, 1)][asked.first - 1 :]
    if asked.list:
        for number, mutant in numbered:
            print(f"{number} {mutant.words(sources[mutant.path])}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    counts = Counter[str]()
    controlled = set[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = copied(Path(folder))
        try:
            for number, mutant in numbered:
                room = next(room for room in known if mutant.path.startswith(f"grpo_cli/{room}/"))
                if room not in controlled and not asked.no_control:
                    verdict, why = tested(root, in_order(root, known[room], mutant.path), 3600)
                    if verdict != ALIVE:
                        print(f"the tests of {room} fail without a mutant: {why}")
                        return 1
                controlled.add(room)
                begun = time.monotonic()
                verdict, why = judged(root, mutant, known[room], asked.seconds)
                counts[verdict] += 1
                took = time.monotonic() - begun
                print(
                    f"{number} {verdict} {took:.0f} s {mutant.words(sources[mutant.path])} {why}".rstrip(), flush=True
                )
        except KeyboardInterrupt:
            print("interrupted")
    print(_summary(counts, len(chosen)))
    return 0


def _summary(counts: Mapping[str, int], drawn_count: int) -> str:
    decided = counts.get(KILLED, 0) + counts.get(ALIVE, 0)
    share = f"{counts.get(KILLED, 0) / decided:.0%} of {decided} decided" if decided else "none decided"
    each = ", ".join(f"{name} {counts.get(name, 0)}" for name in (KILLED, ALIVE, UNDECIDED))
    return f"ran {sum(counts.values())} of {drawn_count}: {each}; killed: {share}"


if __name__ == "__main__":
    sys.exit(main())
