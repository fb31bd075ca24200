"""How far a run is: per cent of its bytes that are read, and then written, whatever the command."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from grpo_cli.cli.command import Line, read
from grpo_cli.guests.audit import run as audit
from grpo_cli.options.config import with_config
from grpo_cli.render import progress
from grpo_cli.render.progress import phases
from grpo_cli.runs import compute_files, export, select

RUNS: Any = {"compute": compute_files, "select": select, "export": export, "audit": audit}
# How many pieces are written at least: texts of exports are taken 8 MB at a time.
COMMANDS = """\
compute in.jsonl -o out.jsonl | 4
compute in.jsonl more.jsonl -o out/ | 4
compute in.jsonl -o out.jsonl --plan-by half --plan default: | 4
select in.jsonl -o out.jsonl --where std>0 --per-group 1 | 4
export in.jsonl -o out.jsonl --to sft --prompt prompt_id --response completion | 1
audit in.jsonl --group prompt_id --column logged | 0
"""


@pytest.mark.parametrize("case", COMMANDS.splitlines())
def test_a_command_says_how_many_per_cent_are_done_and_never_goes_back(case: str) -> None:
    line, pieces = case.split(" | ")
    written = int(pieces)
    row = '{{"prompt_id": "p{}", "half": {}, "reward": {}, "completion": "{}", "logged": 0.5}}\n'
    rows = [row.format(k // 4, k // 3000, k % 2, f"{k}" + "x" * 4000) for k in range(6000)]
    Path("in.jsonl").write_text("".join(rows))
    names = ["in.jsonl"]
    if "more.jsonl" in line:
        Path("more.jsonl").write_text("".join(rows).replace(': "p', ': "q'))
        names.append("more.jsonl")
    found = read(line.split())
    assert isinstance(found, Line)
    given = with_config(found.given, found.command.takes)
    steps = RUNS[found.command.name]
    said = []
    steps.run(steps.Job.of(given), lambda *words: said.append(words))
    known = [words for words in said if len(words) > 2]
    assert {total for _, _, total, *_ in known} == {100}
    shares = [done for _, done, *_ in known]
    assert shares == sorted(shares)
    assert shares[-1] == (100 if written else 70)
    texts = Counter(text for text, *_ in known)
    assert texts["reading"] > 3
    assert texts["writing"] >= written
    sizes = [words[3] for words in known if words[0] == "reading"]
    size = sum(Path(name).stat().st_size for name in names)
    assert sizes == sorted(sizes)
    assert 0.9 * size < sizes[-1] <= size


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that bars know."""
    times = [0.0]

    def timed(*columns: Any, **more: Any) -> Progress:
        bar = Progress(*columns, **more, get_time=lambda: times[0])
        BARS.append(bar)
        return bar

    monkeypatch.setattr(progress, "Progress", timed)
    return times


BARS: list[Progress] = []
TERMINAL = Console(force_terminal=True, force_interactive=True)


def test_the_bar_has_a_percentage_and_a_time_left_only_while_the_size_of_the_work_is_known(now: list[float]) -> None:
    with phases(TERMINAL, after=60) as name:
        name("reading")
        assert line() == ""
        for done in (10, 20, 30):
            now[0] += 1
            name("reading", done, 100)
        assert line().startswith("30%, 0:00:")
        assert line().endswith(" left")
        name("computing")
        assert line() == "30%"


def test_the_bar_says_how_fast_files_are_read(now: list[float]) -> None:
    with phases(TERMINAL, after=60) as name:
        name("reading", 10, 100, 620_000_000)
        now[0] = 2.0
        assert "10%, 310 MB/s" in line()
        name("writing", 80, 100)
        assert "MB/s" not in line()


def line() -> str:
    """What the last column of the last bar says."""
    bar = BARS[-1]
    *_, last = bar.columns
    return str(last.render(bar.tasks[0]))  # type: ignore[union-attr]
