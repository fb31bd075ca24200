"""How Python calls the tool: keywords that complete, and errors and warnings that name keywords instead of flags."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, cleandoc, signature
from textwrap import indent, wrap
from typing import Any, ParamSpec, TypeVar

from grpo_cli.errors import GrpoError, GrpoWarning, Spelling
from grpo_cli.files.kept import keeping
from grpo_cli.options.config import beside
from grpo_cli.options.table import EVERY
from grpo_cli.stats.document import document

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

WIDTH = 100  # characters of a line of help
PACKAGE = __name__.partition(".")[0]
_FLAG = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)( (?=['A-Z]))?")
_AFTER = re.compile(r"^(Returns|Example)$", re.MULTILINE)  # the sections of a docstring after its parameters


def in_keywords(text: str) -> str:
    """A message with keywords instead of flags: "--group NAME" becomes "group=NAME", "--scale group" becomes "scale group"."""
    return _FLAG.sub(lambda flag: flag[1].replace("-", "_") + "=" * bool(flag[2]), text)


class InKeywords(Spelling):
    """Options as keywords."""

    def option(self, flag: str, value: str) -> str:
        """`group=NAME` for a placeholder or a text in quotes, `scale group` for another value."""
        keyword = flag.removeprefix("--").replace("-", "_")
        sign = "=" if value.startswith("'") or value[:1].isupper() else " "
        return f"{keyword}{sign}{value}" if value else keyword

    def text(self, text: str) -> str:
        """The sentence with keywords."""
        return in_keywords(text)


def plain(facts: Any, *without: str) -> dict[str, Any]:
    """Facts as plain data whose sentences name keywords, without those about files that have no name."""
    found = {name: fact for name, fact in document(facts).items() if name not in without}
    for name in {"verdicts", "warnings"} & {*found}:
        found[name] = [*map(in_keywords, found[name])]
    return found


def warn(sentences: Iterable[str]) -> tuple[str, ...]:
    """Give each of these as a warning at the line that called this package, and return them with keywords."""
    said = tuple(map(in_keywords, sentences))
    for sentence in said:
        warnings.warn(sentence, GrpoWarning, stacklevel=_outside())
    return said


def _outside() -> int:
    """The level of the stack, seen from the caller of this function, that is the first outside of this package."""
    level = 1
    frame = sys._getframe(1)  # noqa: SLF001 - what warnings itself does; skip_file_prefixes is of Python 3.12
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame = frame.f_back
        level += 1
    return level


def takes(
    options: Iterable[str], keywords: Mapping[str, str] = {}
) -> Callable[[Callable[Arguments, Returned]], Callable[Arguments, Returned]]:
    """A function of the API that takes these options; `keywords` are the options whose keyword is another name, by keyword.

    `help` lists them, a prompt completes them, and an error is raised here: it names keywords, and its traceback ends with
    the line that called.
    """
    spelled = {name: keyword for keyword, name in keywords.items()}
    by_keyword = {spelled.get(name, name): name for name in options}

    def decorated(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
        @wraps(function)
        def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
            __tracebackhide__ = True  # IPython and pytest show the line that called
            try:
                with keeping(), beside(kwargs):
                    return function(*args, **kwargs)
            except GrpoError as error:
                error.spelling = InKeywords()
                raise error.with_traceback(None) from None

        if by_keyword:
            _describe(called, by_keyword)
        return called

    return decorated


def _describe(function: Callable[..., Any], options: Mapping[str, str]) -> None:
    """Give a function the signature and the help of its options, by keyword."""
    own = signature(function)
    parameters = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    more = {keyword: name for keyword, name in options.items() if keyword not in own.parameters}
    for keyword, name in more.items():
        parameters.append(Parameter(keyword, Parameter.KEYWORD_ONLY, default=None, annotation=EVERY[name].type))
    lines = []
    for keyword, name in more.items():
        lines.append(f"{keyword}:")
        lines += wrap(in_keywords(EVERY[name].help), WIDTH, initial_indent="    ", subsequent_indent="    ")
    doc = cleandoc(function.__doc__ or "")
    after = _AFTER.search(doc)
    end = after.start() if after else len(doc)
    listed = "\n".join([doc[:end].rstrip(), *lines, "", doc[end:]])
    function.__doc__ = indent(listed, "    ").strip()
    function.__dict__["__signature__"] = own.replace(parameters=parameters)
