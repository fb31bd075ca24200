"""Rows of a table by name, from three origins: built in, a file given to a run, and installed packages (entry points).

A package registers an object under the name that users give, so names are known without importing it:

    [project.entry-points."grpo_adv.estimators"]
    lab-midrange = "lab_plugin:MIDRANGE"
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from grpo_cli.errors import GrpoError, PluginError, UnknownName, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Row = TypeVar("Row")
T = TypeVar("T")
TAKES: Final[Mapping[Any, str]] = {
    str: "a text", bool: "true or false", tuple: "a list of texts", list: "a list of tables", Mapping: "a table"
}  # fmt: skip
SLOW = 1.0  # seconds; a longer import is reported
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
_NO_NAME = "none"  # --schema none


class PluginWarning(UserWarning):
    """A plugin that is slow, broken or in conflict with another; nothing else is affected."""


@dataclass(eq=False)
class Registry(Mapping[str, Row], Generic[Row]):
    """The rows of a table. A package is imported when one of its names is looked up, and by `items` and `values`.

    These two leave out broken rows, with a warning. `kind` is what a row is called, and `group` that of the entry points.
    `made` turns an entry (one of several, each a `like`) into a row; `validate` refuses a row that can be found by its name.
    What it needs anyway is loaded beforehand (`loads`): that is not the time of the package.
    """

    kind: str
    group: str
    built_in: Callable[[], Mapping[str, Row]]
    made: Callable[[str, dict[str, Any]], Row]
    like: type
    validate: Callable[[Row], object] = id
    loads: str = "polars"
    _file: str = ""  # given to this run, and its rows
    _of_file: Mapping[str, Row] = field(default_factory=dict)
    _imported: dict[EntryPoint, Row | PluginError] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Row:
        rows = self.at_hand
        return rows[name] if name in rows else self._of_package(name)

    def __contains__(self, name: object) -> bool:
        return name in self.at_hand or name in self._points()

    def __iter__(self) -> Iterator[str]:
        return iter({**self.at_hand, **self._points()})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def at_hand(self) -> Mapping[str, Row]:
        """The rows that need no import."""
        return {**self.built_in(), **self._of_file}

    def items(self) -> ItemsView[str, Row]:
        """All rows except broken ones."""
        rows = {**self.at_hand}
        for name, points in self._points().items():
            if name in rows:
                where = self.origin(name) or "built in"
                warn(f"{_packages(points)}: its {self.kind} {name} is left out: its name is taken ({where})")
                continue
            try:
                rows[name] = self._of_package(name)
            except PluginError as error:
                warn(f"{error.message}; it is left out")
        return rows.items()

    def values(self) -> ValuesView[Row]:
        """See `items`."""
        return dict(self.items()).values()

    def origin(self, name: str) -> str:
        """The file, or the package with its version, that a row comes from; empty if it is built in."""
        if name in self.built_in():
            return ""
        return self._file if name in self._of_file else _packages(self._points().get(name, ()))

    @contextmanager
    def beside(self, file: str, entries: dict[str, Any]) -> Iterator[None]:
        """Add the rows of a file for the duration of a block."""
        before = self._file, self._of_file
        try:
            for name in entries:
                if name in self.built_in():
                    raise UsageError(f"the {self.kind} {name} is built in", "give it another name")
            self._of_file = {name: self._row(name, entries) for name in entries}
        except GrpoError as error:
            error.inside(file)
            raise
        self._file = file
        try:
            yield
        finally:
            self._file, self._of_file = before

    def _row(self, name: str, entries: dict[str, Any]) -> Row:
        if not _NAME.fullmatch(name) or name == _NO_NAME:
            raise UsageError(f"a {self.kind} cannot be named {name!r}", "names have letters, digits and . _ + -")
        if not isinstance(entries[name], self.like):
            what = "a table" if self.like is Mapping else f"of the type {self.like.__name__}"
            raise UsageError(f"the {self.kind} {name} is not {what}, but {type(entries[name]).__name__}")
        return self.made(name, entries)

    def _points(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        return _installed(self.group, tuple(sys.path))

    def _of_package(self, name: str) -> Row:
        points = self._points()[name]
        if len(points) > 1:
            listed = _packages(points)
            raise PluginError(f"several packages have a {self.kind} {name}: {listed}", "uninstall all but one of them")
        (point,) = points
        if point not in self._imported:
            if self.loads:
                import_module(self.loads)
            began = perf_counter()
            self._imported[point] = self._loaded(point)
            if (seconds := perf_counter() - began) > SLOW:
                warn(f"{_packages(points)}: importing its {self.kind} {name} took {seconds:.1f} s")
        row = self._imported[point]
        if isinstance(row, PluginError):
            raise row.with_traceback(None)
        return row

    def _loaded(self, point: EntryPoint) -> Row | PluginError:
        try:
            if not point.pattern.match(point.value):
                raise UsageError(f"its entry point {point.value!r} is not MODULE:OBJECT")  # noqa: TRY301
            with redirect_stdout(sys.stderr):  # standard output may carry data
                entry = point.load()
                if self.like is Mapping:  # plain data, as a file would give: it does not change, and prints
                    entry = json.loads(json.dumps(entry, default=dict))
                row = self._row(point.name, {point.name: entry})
                self._imported[point] = row  # `validate` looks it up
                self.validate(row)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin may do anything
            what = f"the {self.kind} {point.name} of {_packages((point,))} cannot be used: {in_words(error)}"
            broken = PluginError(what, "repair the package, or uninstall it")
            broken.__cause__ = error
            return broken
        return row


def named(text: str) -> Any:
    """What MODULE:OBJECT names; the module is loaded."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


def strict(cls: type[T], what: str, entry: Mapping[str, Any]) -> T:
    """A dataclass of an entry of a file, whose keys it knows and whose values fit its fields."""
    refuse_misfits(cls, what, entry)
    return filled(cls, what, entry)


def refuse_misfits(cls: type, what: str, entry: Any) -> None:
    """Refuse an entry that is no table, has keys that there are not, or values of another type than the fields."""
    if not isinstance(entry, Mapping):
        raise UsageError(f"the {what} cannot be {entry!r}", f"it takes {TAKES[Mapping]}")
    known = _hints(cls)
    for key, value in entry.items():
        if key not in known:
            raise UnknownName.among(f"key of the {what}", key, known)
        if not _fits(value, known[key]):
            kind = get_origin(known[key]) or known[key]
            choices = get_args(known[key])
            takes = " or ".join(map(repr, choices)) if kind is Literal else TAKES.get(kind, TAKES[str])
            raise UsageError(f"{key} of the {what} cannot be {value!r}", f"it takes {takes}")


def filled(cls: type[T], what: str, entry: Mapping[str, Any]) -> T:
    """A dataclass of values that fit."""
    needed = [each.name for each in fields(cls) if each.default is each.default_factory is MISSING]  # type: ignore[arg-type]
    if missing := [repr(key) for key in needed if key not in entry]:
        raise UsageError(f"the {what} has no {', '.join(missing)}")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    """The types of the fields."""
    return get_type_hints(cls)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a TOML value fits the type of a field."""
    kind = get_origin(hint) or hint
    inner = get_args(hint)
    if kind is Literal:
        return value in inner
    if kind is tuple:
        return isinstance(value, (list, tuple)) and all(isinstance(item, inner[0]) for item in value)
    if kind is Mapping:
        of = (int, float) if inner[1] is float else inner[1]
        return isinstance(value, Mapping) and all(isinstance(item, of) for item in value.values())
    return isinstance(value, hint)


def in_words(error: BaseException) -> str:
    """Any error on one line."""
    if isinstance(error, GrpoError):
        return str(error)
    name = type(error).__name__
    try:
        return f"{name}: {error}".partition("\n")[0].removesuffix(": ")
    except Exception:  # noqa: BLE001 - an error of a plugin may have no text
        return name


@cache
def _installed(group: str, _: tuple[str, ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of a group by name, for a search path."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    if not _is_named(group):
        return found
    from importlib.metadata import entry_points

    try:
        for point in entry_points(group=group):
            found[point.name] = (*found.get(point.name, ()), point)
    except Exception as error:  # noqa: BLE001 - of any package that is damaged
        warn(f"the entry points of installed packages cannot be read, plugins are left out: {in_words(error)}")
    return found


def _is_named(group: str) -> bool:
    """Whether an installed package may have entry points of a group: its file of them names it, or it is in no folder.

    `importlib.metadata` takes 28 ms for that, a third of `grpo-adv --help`, and mostly there is none.
    """
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return True
    for place in sys.path:
        try:
            names = os.listdir(place or ".")  # noqa: PTH208 - pathlib takes several times as long
        except NotADirectoryError:
            return True  # an archive
        except OSError:
            continue
        for name in names:
            if name.lower().endswith((".dist-info", "egg-info")):
                with suppress(OSError), open(os.path.join(place, name, "entry_points.txt"), "rb") as handle:  # noqa: PTH118, PTH123
                    if group.encode() in handle.read():
                        return True
    return False


def _packages(points: tuple[EntryPoint, ...]) -> str:
    """The packages of entry points, with their versions."""
    names = (one.module if one.dist is None else f"{one.dist.name} {one.dist.version}" for one in points)
    return " and ".join(sorted(names))


def warn(text: str) -> None:
    """Warn about a plugin; the command line shows it as one line."""
    warnings.warn(text, PluginWarning, stacklevel=2)
