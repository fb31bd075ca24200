"""How far a run is: per cent of its bytes that are read, and then written, whatever the command."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from grpo_cli.choosing.exports import Wanted
from grpo_cli.read.tables import Binding
from grpo_cli.render import progress
from grpo_cli.render.progress import phases
from grpo_cli.runs import audit, export, select
from grpo_cli.write.outputs import Output
from tests.support.jobs import compute, write


def computed(phase: Any) -> None:
    compute("in.jsonl", output="out.jsonl", phase=phase)


def computed_of_two_files(phase: Any) -> None:
    Path("more.jsonl").write_text(Path("in.jsonl").read_text().replace(': "p', ': "q'))
    compute("in.jsonl", "more.jsonl", output="out/", phase=phase)


def computed_by_parts(phase: Any) -> None:
    compute("in.jsonl", output="out.jsonl", phase=phase, plan_by="half", plans={"default": {}})


def selected(phase: Any) -> None:
    given = {"inputs": ["in.jsonl"], "output": "out.jsonl", "where": "std > 0", "per_group": 1}
    select.run(select.Job.of(given), phase)


def exported(phase: Any) -> None:
    wanted = Wanted(to="sft", prompt="prompt_id", response="completion")
    export.run(export.Job(inputs=["in.jsonl"], output=Output(to="out.jsonl"), wanted=wanted), phase)


def audited(phase: Any) -> None:
    audit.run(audit.Job(inputs=["in.jsonl"], binding=Binding(group=("prompt_id",))), phase)


@pytest.mark.parametrize(
    ("command", "written"),  # texts of exports are taken 8 MB at a time
    [(computed, 4), (computed_of_two_files, 4), (computed_by_parts, 4), (selected, 4), (exported, 1), (audited, 0)],
)
def test_a_command_says_how_many_per_cent_are_done_and_never_goes_back(command: Any, written: int) -> None:
    logged = {"advantage": 0.5} if command is audited else {}
    rows = [
        {"prompt_id": f"p{k // 4}", "half": k // 3000, "reward": k % 2, "completion": f"{k}" + "x" * 4000, **logged}
        for k in range(6000)
    ]
    write("in.jsonl", rows)
    said: list[tuple[Any, ...]] = []
    command(lambda *words: said.append(words))
    known = [words for words in said if len(words) > 2]
    assert {total for _, _, total, *_ in known} == {100}
    shares = [done for _, done, *_ in known]
    assert shares == sorted(shares)
    assert shares[-1] == (100 if written else 70)
    texts = Counter(text for text, *_ in known)
    assert texts["reading"] > 3
    assert texts["writing"] >= written
    sizes = [words[3] for words in known if words[0] == "reading"]
    read = sum(Path(name).stat().st_size for name in ("in.jsonl", "more.jsonl") if Path(name).exists())
    assert sizes == sorted(sizes)
    assert 0.9 * read < sizes[-1] <= read


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
        assert line().startswith("30 %, 0:00:")
        assert line().endswith(" left")
        name("computing")
        assert line() == "30 %"


def test_the_bar_says_how_fast_files_are_read(now: list[float]) -> None:
    with phases(TERMINAL, after=60) as name:
        name("reading", 10, 100, 620_000_000)
        now[0] = 2.0
        assert "10 %, 310 MB/s" in line()
        name("writing", 80, 100)
        assert "MB/s" not in line()


def line() -> str:
    """What the last column of the last bar says."""
    bar = BARS[-1]
    *_, last = bar.columns
    return str(last.render(bar.tasks[0]))  # type: ignore[union-attr]
