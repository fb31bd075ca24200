"""Runs on Ray itself: every method on one small cluster, workers that are killed, and what a user sees.

Needs the extra `ray`. Everything that is started listens on loopback only, with a token.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, UsageError
from grpo_cli.guests.audit import run as audit
from grpo_cli.read.tables import Binding
from grpo_cli.runs import compute_files, on_ray, ray_cluster
from tests.support import ray_runs
from tests.support.command import process
from tests.support.jobs import job
from tests.support.raylets import INSTALLED, raylets
from tests.support.unprivileged import unprivileged

pytestmark = [
    pytest.mark.skipif(not INSTALLED, reason="the extra ray is not installed"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
# A user has none of the variables that the tests set; here the home directory cannot be written either.
AS_ALONE: dict[str, Any] = {"HOME": "/nonexistent", "RAY_ADDRESS": "", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
BINARY = {"bnpo", "vr-cond", "maxrl", "spo"}
COMPUTE = "compute in --group prompt_id --group-within input"
ON_RAY = "--engine ray --ray-address local"


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    with raylets(2):
        yield


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("method", [name for name in ESTIMATORS if name != "expression"])  # it needs a formula
def test_every_method_gives_the_same_on_ray(method: str, tmp_path: Path) -> None:
    folder = ray_runs.shards(tmp_path / "in", ray_runs.rows(binary=method in BINARY))
    batch = Plan.of({"estimator.name": method}).uses_batch
    options: dict[str, Any] = {"method": method, "group": "prompt_id", **ray_runs.options_of(method)}
    if batch:
        options["batch_by"] = "input"
    ray_runs.both(tmp_path, folder, **options)


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_batches_rollouts_and_files_cut_into_sections(suffix: str, tmp_path: Path) -> None:
    folder = ray_runs.shards(tmp_path / "in", ray_runs.rows(2000), suffix=suffix)
    options: dict[str, Any] = {"group": "prompt_id", "reward": ["reward", "other=0.5"]}
    ray_runs.both(tmp_path / "a", folder, whiten="sample", scale="batch", batch_by="input", **options)
    ray_runs.both(tmp_path / "b", folder, rollout="rollout", rollout_reward="last", **options)


@pytest.mark.usefixtures("_cluster")
def test_inspect_and_audit_give_the_same_on_ray(tmp_path: Path) -> None:
    folder = ray_runs.shards(tmp_path / "in", ray_runs.rows())
    ray_runs.both_inspected(folder, group="prompt_id", reward=["reward", "logprob"], by="role")
    compute_files.run(to_compute(tmp_path))
    question = audit.Job(inputs=[f"{tmp_path}/out"], binding=Binding(group=("prompt_id",), rewards=("reward",)))
    assert ray_runs.both_audited(question)["match"]["mismatched_rows"] == 0


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("stage", ["work_on", "write_files"])
def test_a_worker_that_is_killed_in_a_stage_changes_nothing(
    stage: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support import dying

    folder = ray_runs.shards(tmp_path / "in", ray_runs.rows(2000), suffix=suffix)
    marker = tmp_path / "alive"
    marker.touch()
    monkeypatch.setattr(on_ray, stage, dying.once(marker, getattr(on_ray, stage)))
    ray_runs.both(tmp_path, folder, group="prompt_id")
    assert not marker.exists()


def to_compute(tmp_path: Path) -> compute_files.Job:
    return job(tmp_path / "in", group="prompt_id", group_within="input", output=f"{tmp_path}/out/")


@pytest.mark.usefixtures("_cluster")
def test_an_error_in_a_task_is_one_of_this_tool(tmp_path: Path) -> None:
    folder = ray_runs.shards(tmp_path / "in", ray_runs.rows(), suffix="jsonl")
    with (folder / "shard_3.jsonl").open("a") as broken:
        broken.write("{")
    assert "shard_3.jsonl" in str(ray_runs.errors(tmp_path, folder, group="prompt_id"))


@pytest.mark.usefixtures("_cluster")
def test_files_that_a_machine_does_not_see_stop_the_run_before_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support import dying

    ray_runs.shards(tmp_path / "in", ray_runs.rows())
    monkeypatch.setattr(ray_cluster, "unseen", dying.blind)
    wrong = r"shard_0\.parquet is a different file here; every machine of the cluster needs"
    with ray_runs.on_tasks() as workers, pytest.raises(DataError, match=wrong):
        compute_files.run(to_compute(tmp_path), workers=workers)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("damage", ["cut", "footer", "empty"])
def test_a_broken_file_is_refused_as_one_process_refuses_it(damage: str, tmp_path: Path) -> None:
    folder = ray_runs.shards(tmp_path / "in", ray_runs.rows())
    path = folder / "shard_3.parquet"
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-9], "footer": data[:-300] + b"\xa7" * 200 + data[-100:], "empty": b"PAR1"}[damage])
    assert "shard_3.parquet" in str(ray_runs.errors(tmp_path, folder, group="prompt_id"))


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("stage", ["reading", "computing", "writing"])
def test_a_file_that_changes_during_a_run_of_a_cluster_is_refused(stage: str, suffix: str, tmp_path: Path) -> None:
    folder = ray_runs.shards(tmp_path / "in", ray_runs.rows(), suffix=suffix)
    changed = list[str]()

    def change(name: str, done: int = 0, total: int = 0) -> None:
        if name == stage and not changed and (done < total or name == "computing"):
            path = folder / f"shard_4.{suffix}"
            data = path.read_bytes()
            path.write_bytes(data.replace(b"0.25", b"0.75") if suffix == "jsonl" else data)
            changed.append(name)

    wrong = rf"shard_4\.{suffix}(: the file changed| is a different file)"
    with ray_runs.on_tasks() as workers, pytest.raises(DataError, match=wrong):
        compute_files.run(to_compute(tmp_path), change, workers)
    assert changed
    assert not (tmp_path / "out" / f"shard_4.{suffix}").exists()
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("stage", ["computing", "writing"])
def test_an_output_that_another_one_makes_during_a_run_of_a_cluster_stays(stage: str, tmp_path: Path) -> None:
    ray_runs.shards(tmp_path / "in", ray_runs.rows())
    theirs = tmp_path / "out" / "shard_4.parquet"
    theirs.parent.mkdir()

    def another(name: str, *_: object) -> None:
        if name == stage:
            theirs.write_text("theirs")

    with ray_runs.on_tasks() as workers, pytest.raises(UsageError, match=r"shard_4\.parquet:? exists"):
        compute_files.run(to_compute(tmp_path), another, workers)
    assert theirs.read_text() == "theirs"


def test_what_a_user_may_not_read_or_write_is_named_as_by_one_process(tmp_path: Path) -> None:
    ray_runs.shards(tmp_path / "in", ray_runs.rows())
    (tmp_path / "ro").mkdir()
    for locked, mode, output in (("in/shard_3.parquet", 0, "out/"), ("ro", 0o500, "ro/out/"), ("ro", 0o500, "ro/")):
        (tmp_path / locked).chmod(mode)
        local, parted = (
            unprivileged(f"{COMPUTE} -o {output} {more}", cwd=tmp_path, **AS_ALONE) for more in ("", ON_RAY)
        )
        (tmp_path / locked).chmod(0o700)
        assert parted == local
        assert (local.status, local.err.count("\n"), "permission denied" in local.err) == (1, 1, True), local
        assert not [*tmp_path.glob("ro/*"), *tmp_path.glob("out/*")]


def test_a_full_disk_is_named_and_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    ray_runs.shards(tmp_path / "in", ray_runs.rows(20_000, 2_500), suffix="jsonl")
    command = f"{sys.executable} -m grpo_cli {COMPUTE} -o full/ {ON_RAY}"
    script = f'mount -t tmpfs -o size=1m none full || exit 77; {command}; status=$?; du -a full; exit "$status"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], cwd=tmp_path, env={**os.environ, **AS_ALONE},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("no mount namespace may be made here")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done
    assert "no space left" in done.stderr.lower()
    assert ".tmp" not in done.stdout


def test_a_user_sees_what_one_process_shows_and_nothing_else(tmp_path: Path) -> None:
    ray_runs.shards(tmp_path / "in", ray_runs.rows())
    local = process(f"{COMPUTE} --json -o local/", cwd=tmp_path)
    parted = process(f"{COMPUTE} --json -o parted/ {ON_RAY}", cwd=tmp_path, **AS_ALONE)
    assert parted.status == 0
    assert parted.err == ""
    ray_runs.same_facts(json.loads(local.out), json.loads(parted.out))
    ray_runs.same_files(tmp_path / "local", tmp_path / "parted")


def test_a_refusal_is_one_line_and_a_gate_leaves_no_output(tmp_path: Path) -> None:
    ray_runs.shards(tmp_path / "in", ray_runs.rows())
    refused = process(f"compute in --group prompt_id -o out/ {ON_RAY}", cwd=tmp_path, **AS_ALONE)
    assert refused.status == 1
    assert refused.err.startswith("error: 74 group keys (")
    assert refused.err.count("\n") == 1
    gated = process(f"{COMPUTE} -o out/ {ON_RAY} -q --fail-on 'rows > 1'", cwd=tmp_path, **AS_ALONE)
    assert gated.status == 3
    assert gated.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_leaves_no_process_and_listened_on_loopback(number: int, tmp_path: Path) -> None:
    ray_runs.shards(tmp_path / "in", ray_runs.rows(100_000, 12_500), suffix="jsonl")
    command = [sys.executable, "-m", "grpo_cli", *f"{COMPUTE} -o out/ {ON_RAY}".split()]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, env={**os.environ, **AS_ALONE}) as running:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any("work_on" in name for name in family(running.pid).values()):
            time.sleep(0.1)
        below = family(running.pid)
        heard = listened_on(below)
        running.send_signal(number)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert said.count(b"\n") <= 1
    assert heard
    assert heard <= {"127.0.0.1", "::ffff:127.0.0.1"}
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in below):
        time.sleep(0.1)
    assert not [name for pid, name in below.items() if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.rglob("*.tmp"))


def family(top: int) -> dict[int, str]:
    """The descendants of a process, and their command lines."""
    parents = dict[int, int]()
    names = dict[int, str]()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                names[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    below = {top}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid: names.get(pid, "") for pid in below - {top}}


def listened_on(processes: Iterable[int]) -> set[str]:
    """The addresses that processes listen on."""
    inodes = set[str]()
    for pid in processes:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(link.readlink().name.removeprefix("socket:[").removesuffix("]"))
    found = set[str]()
    for table, family_ in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                packed = b"".join(
                    bytes.fromhex(words[1].split(":")[0][at : at + 8])[::-1]
                    for at in range(0, len(words[1].split(":")[0]), 8)
                )
                found.add(socket.inet_ntop(family_, packed))
    return found
