"""What holds for every test: how many examples are drawn, and what the nightly run adds."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from grpo_cli import errors

# Where this is set, each command that a test starts would compile the package again, which is most of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# As in a process of the command, and for the same reason: thousands of tests are many objects to walk again and again.
gc.set_threshold(100_000)

# Tests say `@given` and leave the number of examples to these. A machine that does other work is no defect of an example.
PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("everyday", max_examples=20, **PATIENT)
settings.register_profile("nightly", max_examples=800, **PATIENT)
settings.register_profile("few", max_examples=4, **PATIENT)  # where the same examples run elsewhere
settings.load_profile("everyday")

FOLDERS = count()


@pytest.fixture(autouse=True)
def _signals_are_not_ignored() -> Generator[None, None, None]:
    """Under nohup and in the background, processes that tests start would inherit that SIGINT and SIGHUP are ignored."""
    ignored = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGHUP else signal.default_int_handler)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def _no_test_waits_for_the_disk() -> Generator[None, None, None]:
    """No test pulls the plug: a run waits twice for the disk, some milliseconds each, thousands of times in all.

    What is written is still to be a file that is open. Tests of the order of writing put their own in its place.
    """
    actual = os.fsync

    def written(fd: Any) -> None:
        os.fstat(fd if isinstance(fd, int) else fd.fileno())

    os.fsync = written
    yield
    os.fsync = actual


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a number of its own: for one of the test's name pytest looks at the folders of all tests before."""
    return tmp_path_factory.mktemp(str(next(FOLDERS)), numbered=False)


@pytest.fixture(scope="session", autouse=True)
def ways_out_are_one_by_one() -> Generator[None, None, None]:
    """An error whose sentence hides two ways out fails the test that meets it; a semicolon inside of quotes is part of a value."""
    made = errors.one_by_one

    def seen(cures: errors.Cures) -> list[errors.Cure]:
        found = made(cures)
        for cure in found:
            bare = re.sub(r"'[^']*'", "", cure if isinstance(cure, str) else cure.said(errors.Spelling()))
            assert "; " not in bare, f"two ways out in one: {cure}"
        return found

    errors.one_by_one = seen
    yield
    errors.one_by_one = made


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="forty times as many examples; a skipped test fails")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("nightly"):
        settings.load_profile("nightly")


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One more than cores: a fourth of a worker's time is spent waiting, for processes and servers that tests start."""
    found = yield
    return found + ("PYTEST_XDIST_AUTO_NUM_WORKERS" not in os.environ)


def pytest_sessionstart(session: pytest.Session) -> None:
    """All tests take minutes, and pytest itself says nothing while it starts."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and session.config.args == session.config.getini("testpaths"):
        terminal.write_line(
            "all tests take 3 to 8 minutes on 2 cores, depending on the machine; those of a room take seconds: pytest tests/unit/read"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In the nightly run everything is installed: what is skipped there would be skipped for ever."""
    report = yield
    if report.skipped and item.config.getoption("nightly"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in the nightly run: {report.longrepr}"
    return report
