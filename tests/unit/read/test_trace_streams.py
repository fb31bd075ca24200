"""The folder of a prime-rl run is one input: its stream of traces, with the advantages that were written later."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.read.open_tables import find_inputs
from tests.support.command import adv
from tests.support.jobs import inspected, look, write
from tests.support.prime_runs import Run, branches, episode, evaluation, sealed, shipped, training

NAMES = ["monitors/file/traces/stream/00000.jsonl.zst", "monitors/file/traces/stream/00001.jsonl.zst",
         "monitors/file/traces/stream/00002.jsonl"]  # fmt: skip


def read(run: Path) -> list[str]:
    """The files that are read of a folder."""
    return [Path(source.name).relative_to(run).as_posix() for source in find_inputs([str(run)])[0]]


def audited(run: Path, flags: str = "") -> Any:
    done = adv(f"audit {run} --json {flags}")
    assert done.status == 0, done.err
    return json.loads(done.out)


def matched(run: Path, flags: str = "") -> Any:
    """The audit of a run whose advantages are all explained."""
    facts = audited(run, flags)
    assert facts["match"]["mismatched_rows"] == 0
    return facts


# --- which files are read ----------------------------------------------------------------------------------------


def test_of_a_run_only_the_stream_is_read() -> None:
    run = training().write(Path("run"))
    assert read(run) == ["monitors/file/traces/stream.jsonl"]
    (skipped,) = find_inputs([str(run)])[1]
    assert skipped.startswith("skipped 9 files ")


def test_of_a_run_all_chunks_are_read_in_order() -> None:
    assert read(training().write(Path("run"), chunks=2)) == NAMES


@pytest.mark.parametrize("folder", ["monitors/file", "monitors/file/traces", "monitors/file/traces/stream"])
def test_a_folder_inside_a_run_is_as_good(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(training().write(Path("run"), chunks=2) / folder)
    facts = matched(Path())
    assert facts["rows"] == 18


def test_a_chunk_and_its_compressed_twin_are_read_once() -> None:
    run = training().write(Path("run"), chunks=2)
    stream = run / "monitors/file/traces/stream"
    rows = [json.loads(line) for line in (stream / "00002.jsonl").read_text().splitlines()]
    sealed(stream / "00002.jsonl.zst", rows)
    assert read(run) == NAMES


def test_the_streams_of_earlier_attempts_are_in_that_of_the_last() -> None:
    run = training().write(Path("run"))
    shutil.copytree(run / "monitors/file", run / "monitors/file.attempt_1")
    assert read(run) == ["monitors/file/traces/stream.jsonl"]


# --- what is in them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [0, 2])
def test_groups_are_whole_though_their_episodes_arrive_mixed_and_in_several_chunks(chunks: int) -> None:
    found = look(training().write(Path("run"), chunks=chunks))
    assert found.facts["groups"] == 6
    assert found.facts["group_sizes"]["counts"] == {"4": 6}
    assert found.facts["schema"] == "prime-rl trace stream"


def test_evaluations_in_the_stream_of_a_training_are_of_no_group() -> None:
    run = Run([*training().episodes, *evaluation(step=1), *evaluation(step=2)]).write(Path("run"))
    facts = inspected(run).facts
    assert facts.summary.group_sizes.counts == {"4": 6}
    assert [line.kind for line in facts.summary.marks if "eval" in line.mark] == ["foreign"]


def test_a_stream_of_evaluations_alone_can_be_inspected() -> None:
    run = Run([*evaluation(step=0, groups=3)]).write(Path("run"), chunks=1)
    facts = inspected(run).facts
    assert facts.summary.rows == 12
    assert facts.summary.groups == 3


def test_an_episode_without_a_trace_is_no_row() -> None:
    episodes = [*training().episodes]
    episodes[:0] = [episode(f"lost{at}", []) for at in range(20)]
    found = look(Run(episodes).write(Path("run"), chunks=1))
    assert found.facts["rows"] == 24
    assert found.facts["schema"] == "prime-rl trace stream"


def test_outputs_have_the_bytes_of_their_chunks(tmp_path: Path) -> None:
    run = training().write(Path("run"), chunks=2)
    done = adv(f"compute {run} -o out/ --quiet")
    assert done.status == 0, done.err
    for name in NAMES:
        new = tmp_path / "out" / Path(name).name
        assert adv(f"verify {new} --against {run / name}").status == 0


# --- advantages that were written later --------------------------------------------------------------------------


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("chunks", [0, 2])
def test_audit_finds_the_advantages_in_the_updates(chunks: int, index: bool) -> None:  # noqa: FBT001 - a parameter
    facts = matched(training().write(Path("run"), chunks=chunks, index=index))
    assert facts["column"] == "info.advantage"
    assert facts["rows"] == 18
    assert facts["match"]["plan"]["method"] in {"grpo", "dr-grpo"}
    assert facts["match"]["plan"]["divisor"]["level"] == "none"


def test_the_newest_update_of_a_trace_counts_unless_it_has_no_advantage() -> None:
    run = training()
    first = [shipped(update["trace_id"], 9.0) for update in run.updates]
    later = [shipped(update["trace_id"], None) for update in run.updates]
    matched(Run(run.episodes, [*first, *run.updates, *later]).write(Path("run")))


def test_groups_that_have_not_been_trained_on_are_not_compared_and_counted() -> None:
    run = training(steps=3)
    waiting = {"s3g0t0", "s3g1t0", "s3g1t1", "s3g1t2"}  # one group waits in part, one as a whole
    updates = [update for update in run.updates if update["trace_id"] not in waiting]
    facts = matched(Run([*run.episodes, *evaluation(step=1)], updates).write(Path("run")))
    assert facts["rows"] == 21
    assert facts["notes"][-1] == "left out 8 rows of groups that have not been trained on, or not whole"


def test_a_wrong_advantage_is_still_found() -> None:
    run = training()
    facts = audited(Run(run.episodes, [*run.updates, shipped("s1g2t1", 7.0)]).write(Path("run")))
    assert [one["logged"] for one in facts["match"]["disagreements"]] == [7.0]


def test_a_last_line_that_is_being_written_stops_nothing_that_is_asked_to_skip_it() -> None:
    run = training().write(Path("run"), chunks=2)
    traces = run / "monitors/file/traces"
    for name in ("stream/00002.jsonl", "annotations/orch.index.jsonl"):
        with (traces / name).open("a") as handle:
            handle.write('{"trace_id": "s9')
    assert "the last line is cut short" in adv(f"audit {run}").err
    facts = matched(run, "--on-error skip")
    assert "left out 1 line that is not a JSON object" in facts["warnings"][0]


def test_another_column_than_the_advantage_is_that_of_the_stream() -> None:
    run = training()
    for one in run.episodes:
        one["traces"][0]["info"]["mine"] = 0.0
    facts = audited(Run(run.episodes, run.updates[:3]).write(Path("run")), "--column info.mine")
    assert facts["column"] == "info.mine"
    assert facts["rows"] == 18
    assert facts["match"]["verdict"] == "nothing"


def test_a_stream_without_updates_has_no_advantages() -> None:
    run = training().write(Path("run"))
    shutil.rmtree(run / "monitors/file/traces/annotations")
    done = adv(f"audit {run}")
    assert "no column has advantages; name it with --column NAME" in done.err


def test_the_advantage_in_the_traces_of_older_versions_is_found_without_its_name() -> None:
    run = training()
    known = {update["trace_id"]: update["info"]["advantage"] for update in run.updates}
    for one in run.episodes:
        for each in one["traces"]:
            each["info"] |= {"advantage": known[each["id"]]} if each["id"] in known else {}
    path = write("rollouts/step_1/train/effective/traces.jsonl", run.episodes)
    facts = matched(path)
    assert facts["column"] == "info.advantage"


# --- a row per branch --------------------------------------------------------------------------------------------


def test_a_trace_with_several_branches_counts_once() -> None:
    rewards = [[1.0, 0.0, 0.0, 0.5], [0.0, 1.0, 1.0, 0.0]]
    path = branches(Path("default/train.parquet"), rewards, extra={(0, 0): 2, (1, 2): 1})
    for options in ({"method": "dr-grpo"}, {"preset": "prime-rl-grpo"}):
        found = look(path, **options)
        assert found.facts["rollouts"] == 8
        assert found.facts["rows"] == 11
        assert found.facts["warnings"] == []
        expected = [0.625, 0.625, 0.625, -0.375, -0.375, 0.125, -0.5, 0.5, 0.5, 0.5, -0.5]
        assert found.scored.frame[".advantage"].to_list() == pytest.approx(expected)
