"""How far a run is: per cent of its bytes that are read, and then written, whatever the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from grpo_cli.choosing.exports import Wanted
from grpo_cli.choosing.groups import Choice
from grpo_cli.engine.plan import Plan
from grpo_cli.options.conditions import Filter
from grpo_cli.read.build_table import PlanBy
from grpo_cli.read.tables import Binding
from grpo_cli.render import progress
from grpo_cli.render.progress import phases
from grpo_cli.runs import audit, compute_files, export, select
from grpo_cli.write.outputs import Output

Phase = Callable[..., None]


def job(kind: Any, folder: Path, **more: Any) -> Any:
    """The job that reads `in.jsonl` and writes `out.jsonl`, with these fields changed."""
    return kind(**{"inputs": [str(folder / "in.jsonl")], "output": Output(to=str(folder / "out.jsonl")), **more})


def computed(folder: Path, phase: Phase) -> None:
    compute_files.run(job(compute_files.Job, folder, plan=Plan()), phase)


def computed_of_two_files(folder: Path, phase: Phase) -> None:
    (folder / "more.jsonl").write_text((folder / "in.jsonl").read_text().replace(': "p', ': "q'))
    inputs = [str(folder / name) for name in ("in.jsonl", "more.jsonl")]
    to = Output(to=f"{folder}/out/")
    compute_files.run(job(compute_files.Job, folder, plan=Plan(), inputs=inputs, output=to), phase)


def computed_by_parts(folder: Path, phase: Phase) -> None:
    parts = PlanBy(column="half", plans={"default": (Plan(), Binding())})
    compute_files.run(job(compute_files.Job, folder, plan=Plan(), parts=parts), phase)


def selected(folder: Path, phase: Phase) -> None:
    choice = Choice(where=Filter.parse("std > 0"), per_group=1)
    select.run(job(select.Job, folder, choice=choice), phase)


def exported(folder: Path, phase: Phase) -> None:
    wanted = Wanted(to="sft", prompt="prompt_id", response="completion")
    export.run(job(export.Job, folder, wanted=wanted), phase)


def audited(folder: Path, phase: Phase) -> None:
    audit.run(audit.Job(inputs=[str(folder / "in.jsonl")], binding=Binding(group=("prompt_id",))), phase)


@pytest.mark.parametrize(
    ("command", "written"),  # texts of exports are taken 8 MB at a time
    [(computed, 4), (computed_of_two_files, 4), (computed_by_parts, 4), (selected, 4), (exported, 1), (audited, 0)],
)
def test_a_command_says_how_many_per_cent_are_done_and_never_goes_back(
    command: Any, written: int, tmp_path: Path
) -> None:
    logged = {"advantage": 0.5} if command is audited else {}
    rows = [
        {"prompt_id": f"p{k // 4}", "half": k // 3000, "reward": k % 2, "completion": f"{k}" + "x" * 4000, **logged}
        for k in range(6000)
    ]
    Path("in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said: list[tuple[Any, ...]] = []
    command(tmp_path, lambda *words: said.append(words))
    known = [words for words in said if len(words) > 2]
    shares = [done for _, done, total, *_ in known if total == 100]
    sizes = [size for text, _, _, size in (words for words in said if len(words) == 4) if text == "reading"]
    read = sum(file.stat().st_size for file in tmp_path.iterdir() if file.name in {"in.jsonl", "more.jsonl"})
    assert sizes == sorted(sizes)
    assert 0.9 * read < sizes[-1] <= read
    assert len(shares) == len(known)
    assert shares == sorted(shares)
    assert len([text for text, *_ in known if text == "reading"]) > 3
    assert len([text for text, *_ in known if text == "writing"]) >= written
    assert shares[-1] == (100 if written else 70)


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
