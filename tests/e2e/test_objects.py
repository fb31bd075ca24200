"""Objects in stores, against an S3 server and web servers on loopback; a proxy counts what goes over the wire."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib import request

import boto3
import numpy as np
import polars as pl
import pytest

from grpo_cli.browse.model import Model
from grpo_cli.errors import DataError, InputChanged, UsageError
from grpo_cli.files import stores
from grpo_cli.files.installation import install
from grpo_cli.formats.registry import FORMATS
from grpo_cli.read.texts import Reader, TextColumns
from grpo_cli.runs import export
from grpo_cli.runs.inspect import Job
from tests.support import ray_runs
from tests.support.command import adv
from tests.support.drawn import some
from tests.support.hostile_server import Answer, Request, hostile, part
from tests.support.jobs import meanwhile, write
from tests.support.s3_server import PAGE, Proxy, proxied, running
from tests.support.weaving import inserting, woven

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

ROWS: Final = [
    {"prompt_id": f"p{group}", "reward": float((group + row) % 3 == 0), "text": "x" * row}
    for group in range(6) for row in range(4)
]  # fmt: skip
LINES: Final = "".join(f"{json.dumps(row)}\n" for row in ROWS).encode()
MB: Final = 1 << 20


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running() as port:
        yield port


@pytest.fixture(scope="module")
def server(port: int) -> Iterator[Proxy]:
    """The tool finds the server and its keys in the environment."""
    with proxied(port) as proxy, pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patched.delenv(name)
        patched.setenv("AWS_ENDPOINT_URL", proxy.address)
        patched.setenv("AWS_ACCESS_KEY_ID", "known")
        patched.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
        patched.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patched.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patched.setenv("AWS_CONFIG_FILE", os.devnull)
        forget()
        yield proxy
    forget()


@pytest.fixture(scope="module")
def client(server: Proxy, port: int) -> Any:
    """The tests' own client goes past the proxy."""
    return boto3.Session().client("s3", region_name="us-east-1", endpoint_url=f"http://127.0.0.1:{port}")


@pytest.fixture
def s3(port: int, server: Proxy, client: Any) -> Iterator[Any]:
    """A client of an empty bucket called `bucket`."""
    stores._remembered.cache_clear()
    client.create_bucket(Bucket="bucket")
    server.reset()
    yield client
    request.urlopen(request.Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST"), timeout=20).close()


@pytest.fixture
def afresh() -> Iterator[None]:
    """For a test of other keys or settings: the clients of other tests are not in it, nor are its own in theirs."""
    forget()
    yield
    forget()


def forget() -> None:
    """Clients and bytes that are in the process."""
    for one in (stores._store, stores._boto3, stores._remembered):
        one.cache_clear()


def put(client: Any, key: str, data: bytes | Path) -> str:
    client.put_object(Bucket="bucket", Key=key, Body=data if isinstance(data, bytes) else data.read_bytes())
    return f"s3://bucket/{key}"


def content(client: Any, key: str) -> bytes:
    return bytes(client.get_object(Bucket="bucket", Key=key)["Body"].read())


def keys(client: Any) -> list[str]:
    return [one["Key"] for one in client.list_objects_v2(Bucket="bucket").get("Contents", [])]


def uploads(client: Any) -> list[Any]:
    return list(client.list_multipart_uploads(Bucket="bucket").get("Uploads", []))


# --- S3 ------------------------------------------------------------------------------------------------------


def test_the_text_of_a_parquet_object_never_travels(s3: Any, server: Proxy, tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(1), 2000
    frame = pl.DataFrame({
        "prompt_id": np.repeat(np.arange(rows // 8), 8), "reward": rng.integers(0, 2, rows).astype(float),
        "text": [rng.bytes(8000).hex() for _ in range(rows)],
    })  # fmt: skip
    path = tmp_path / "in.parquet"
    frame.write_parquet(path, compression="uncompressed", row_group_size=500)
    size = path.stat().st_size
    assert size > 30 * MB
    url = put(s3, "run/in.parquet", path)
    server.reset()
    assert adv("compute", url, "-o", "s3://bucket/out/", "-q", cwd=tmp_path).status == 0
    assert server.sent + server.received < 0.05 * size
    assert adv("compute", "in.parquet", "-o", "local.parquet", "-q", cwd=tmp_path).status == 0
    assert content(s3, "out/in.parquet") == (tmp_path / "local.parquet").read_bytes()


@pytest.mark.parametrize(
    "name", ["in.jsonl", "in.jsonl.gz", "in.jsonl.zst", "in.csv", "in.json", "in.parquet", "in.arrow"]
)
def test_an_object_gets_the_bytes_that_a_file_gets(s3: Any, tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ROWS)
    url = put(s3, name, path)
    more = ["-q", "--method", "rloo", "--facts"]
    assert adv("compute", name, "-o", f"local.{name}", *more, cwd=tmp_path).status == 0
    for output in (f"s3://bucket/out/{name}", f"fetched.{name}"):
        done = adv("compute", url, "-o", output, *more, cwd=tmp_path)
        assert done.status == 0, done
    expected = (tmp_path / f"local.{name}").read_bytes()
    assert content(s3, f"out/{name}") == expected == (tmp_path / f"fetched.{name}").read_bytes()


def test_without_o_the_output_is_written_beside_the_object(s3: Any, tmp_path: Path) -> None:
    url = put(s3, "run/in.jsonl", LINES)
    assert adv("compute", url, "-q", cwd=tmp_path).status == 0
    assert keys(s3) == ["run/in.advantages.jsonl", "run/in.jsonl"]
    done = adv("verify", "s3://bucket/run/in.advantages.jsonl", "--against", url, cwd=tmp_path)
    assert "plus advantage, byte by byte" in done.out


def test_a_file_goes_into_a_store(s3: Any, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(LINES)
    assert adv("compute", "in.jsonl", "-o", "s3://bucket/a/b.jsonl", "-q", cwd=tmp_path).status == 0
    assert adv("compute", "in.jsonl", "-o", "local.jsonl", "-q", cwd=tmp_path).status == 0
    assert content(s3, "a/b.jsonl") == (tmp_path / "local.jsonl").read_bytes()


def test_columns_of_an_object_are_joined_by_key_into_an_object(s3: Any, tmp_path: Path) -> None:
    rows = [{**row, "id": f"r{at}"} for at, row in enumerate(ROWS)]
    for name, data in (
        ("in.jsonl", rows),
        ("judge.parquet", [{"id": f"r{at}", "judge": at} for at in range(30)][::-1]),
    ):
        put(s3, name, write(tmp_path / name, data))
    line = "add s3://bucket/in.jsonl --from s3://bucket/judge.parquet --on id -o s3://bucket/out.jsonl"
    done = adv(*line.split(), cwd=tmp_path)
    assert done.status == 0, done
    added = [json.loads(line) for line in content(s3, "out.jsonl").splitlines()]
    assert added == [{**row, "judge": at} for at, row in enumerate(rows)]


def test_a_prefix_and_a_glob_are_read_in_natural_order_without_own_outputs(s3: Any, tmp_path: Path) -> None:
    for name in (
        "step_10.jsonl",
        "step_2.jsonl",
        "step_2.advantages.jsonl",
        "sub/step_3.jsonl",
        "notes.txt",
        ".hidden.jsonl",
        "empty.jsonl",
    ):
        put(s3, f"run/{name}", b"" if name.startswith("empty") else LINES)
    for pattern, files in (("run/", ["step_2", "step_10", "sub/step_3"]), ("run/*.jsonl", ["step_2", "step_10"]),
                           ("run/**/step_?.jsonl", ["step_2", "sub/step_3"]), ("run", ["step_2", "step_10", "sub/step_3"])):  # fmt: skip
        done = adv("inspect", f"s3://bucket/{pattern}", "--group-within", "file", "--json", cwd=tmp_path)
        assert done.status == 0, done
        assert json.loads(done.out)["inputs"] == [f"s3://bucket/run/{one}.jsonl" for one in files]


def test_a_job_folder_in_a_store_is_refused_in_one_line(s3: Any) -> None:
    for name in (
        "job/result.json",
        "job/config.json",
        "job/a/result.json",
        "job/a/config.json",
        "job/a/agent/trajectory.json",
    ):
        put(s3, name, b'{"task_name": "t"}')
    done = adv("inspect", "s3://bucket/job/")
    assert done.status == 2
    assert "s3://bucket/job/: job folders of Harbor are not read from a store; copy it to a disk first" in done.err


def test_many_pages_of_a_listing_are_read(s3: Any, tmp_path: Path) -> None:
    for at in range(2 * PAGE):
        put(s3, f"many/{at}.txt", b"x")
    put(s3, "many/zz.jsonl", LINES)
    done = adv("inspect", "s3://bucket/many/", "--json", cwd=tmp_path)
    assert json.loads(done.out)["inputs"] == ["s3://bucket/many/zz.jsonl"]


def test_select_audit_and_schemas_take_objects(s3: Any, tmp_path: Path) -> None:
    url = put(s3, "in.jsonl", LINES)
    assert adv("select", url, "-w", "std > 0", "-o", "s3://bucket/kept.jsonl", "-q", cwd=tmp_path).status == 0
    assert set(content(s3, "kept.jsonl").splitlines()) <= set(LINES.splitlines())
    assert adv("compute", url, "-o", "s3://bucket/scored.jsonl", "-q", cwd=tmp_path).status == 0
    assert (
        json.loads(adv("audit", "s3://bucket/scored.jsonl", "--json", cwd=tmp_path).out)["match"]["mismatched_rows"]
        == 0
    )
    assert "none: columns are found by name" in adv("schemas", url, cwd=tmp_path).out


def test_an_object_that_exists_is_not_replaced_without_force(s3: Any, tmp_path: Path) -> None:
    url = put(s3, "in.jsonl", LINES)
    put(s3, "out.jsonl", b"mine")
    done = adv("compute", url, "-o", "s3://bucket/out.jsonl", cwd=tmp_path)
    assert (done.status, content(s3, "out.jsonl")) == (2, b"mine")
    assert "s3://bucket/out.jsonl exists; add --force" in done.err
    assert adv("compute", url, "-o", "s3://bucket/out.jsonl", "--force", "-q", cwd=tmp_path).status == 0
    assert content(s3, "out.jsonl") != b"mine"
    done = adv("compute", url, "-o", url, "--force", cwd=tmp_path)
    assert (done.status, content(s3, "in.jsonl")) == (2, LINES)


def test_an_object_that_is_made_meanwhile_is_not_replaced(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(s3, "in.jsonl", LINES)
    meanwhile(monkeypatch, lambda: put(s3, "out.jsonl", b"theirs"))
    done = adv("compute", url, "-o", "s3://bucket/out.jsonl", cwd=tmp_path)
    assert (done.status, content(s3, "out.jsonl")) == (2, b"theirs")
    assert "s3://bucket/out.jsonl exists" in done.err


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_object_that_changes_between_the_readings_stops_the_run(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    frame = pl.DataFrame(ROWS)
    path = tmp_path / f"in.{suffix}"
    for step, reward in enumerate((0.0, 1.0)):
        changed = frame.with_columns(reward=pl.when(pl.int_range(pl.len()) == 0).then(reward).otherwise("reward"))
        (changed.write_ndjson if suffix == "jsonl" else changed.write_parquet)(tmp_path / f"{step}.{suffix}")
    path.write_bytes((tmp_path / f"0.{suffix}").read_bytes())
    url = put(s3, path.name, path)
    meanwhile(monkeypatch, lambda: put(s3, path.name, tmp_path / f"1.{suffix}"))
    done = adv("compute", url, "-o", f"s3://bucket/out.{suffix}", cwd=tmp_path)
    assert done.status == 1
    assert f"{url}: the file changed while it was being read" in done.err
    assert (keys(s3), uploads(s3)) == ([path.name], [])


@pytest.mark.parametrize("size", [30, 26])  # 12 + 12 + 6 is copied; 2 behind 12 + 12 is too short to be copied
def test_an_object_that_is_too_large_for_one_copy_is_copied_in_parts(
    s3: Any, server: Proxy, tmp_path: Path, size: int
) -> None:
    frame = pl.DataFrame({
        "prompt_id": [at // 8 for at in range(size * 8)], "reward": [float(at % 3) for at in range(size * 8)],
        "text": [np.random.default_rng(at).bytes(MB // 16).hex() for at in range(size * 8)],
    })  # fmt: skip
    frame.write_parquet(tmp_path / "in.parquet", compression="uncompressed", row_group_size=40)
    url = put(s3, "in.parquet", tmp_path / "in.parquet")
    server.reset()
    sink: Any = stores._Upload("s3://bucket/out.parquet", force=False, most_copy=12 * MB)
    added = inserting({"advantage": frame["reward"]})
    FORMATS["parquet"].weave(stores.pinned(url), None, sink, added)
    sink.complete()
    assert server.sent < (3 * MB if size == 26 else MB)
    assert content(s3, "out.parquet") == woven(FORMATS["parquet"], (tmp_path / "in.parquet").read_bytes(), added)


def test_an_upload_of_many_parts_is_completed_or_forgotten(s3: Any) -> None:
    data = np.random.default_rng(0).bytes(13 * MB)
    sink = stores._Upload("s3://bucket/out", force=False, part=6 * MB)
    sink.writelines(data[at : at + MB] for at in range(0, len(data), MB))
    assert (len(sink._parts), keys(s3)) == (2, [])
    sink.complete()
    assert content(s3, "out") == data
    with pytest.raises(InputChanged), stores.uploading("s3://bucket/other", force=False) as never:
        never.writelines(broken_off(s3))
    assert (keys(s3), uploads(s3)) == (["out"], [])


def broken_off(client: Any) -> Iterator[bytes]:
    """What a run writes that stops once an upload has begun."""
    yield bytes(17 * MB)
    assert uploads(client)
    raise InputChanged.between_readings("in.jsonl")


def test_an_output_that_is_spooled_first_is_sent_whole_and_replaces_nothing(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_Upload", stores._Spooled)  # as gs:// and az:// are written
    with stores.uploading("s3://bucket/out", force=False) as sink:
        sink.writelines([b"one ", b"two"])
    assert content(s3, "out") == b"one two"
    monkeypatch.setattr(stores, "exists", lambda _: False)  # it was made a moment later
    with (
        pytest.raises(UsageError, match="s3://bucket/out exists"),
        stores.uploading("s3://bucket/out", force=False) as sink,
    ):
        sink.write(b"other")
    with stores.uploading("s3://bucket/out", force=True) as sink:
        sink.write(b"x" * 6 * MB)
    assert content(s3, "out") == b"x" * 6 * MB
    with pytest.raises(ValueError, match="stop"), stores.uploading("s3://bucket/never", force=True):
        raise ValueError("stop")
    assert (keys(s3), uploads(s3)) == (["out"], [])


def test_a_gate_that_holds_leaves_no_object(s3: Any, tmp_path: Path) -> None:
    url = put(s3, "in.jsonl", LINES)
    assert adv("compute", url, "-o", "s3://bucket/out.jsonl", "--fail-on", "rows > 1", "-q", cwd=tmp_path).status == 3
    assert (keys(s3), uploads(s3)) == (["in.jsonl"], [])


def test_a_server_that_is_busy_for_a_moment_is_asked_again(s3: Any, server: Proxy, tmp_path: Path) -> None:
    url = put(s3, "in.jsonl", LINES)
    for status in ("503 Slow Down", "500 Internal Server Error", "429 Too Many Requests"):
        stores._remembered.cache_clear()
        server.reset()
        server.answers.append(status)
        done = adv("compute", url, "-o", "s3://bucket/out.jsonl", "--force", "-q", cwd=tmp_path)
        assert done.status == 0, (status, done)
        assert not server.answers


@pytest.mark.usefixtures("afresh")
def test_a_server_that_is_slow_is_asked_again(
    s3: Any, server: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(s3, "in.jsonl", LINES)
    monkeypatch.setenv("GRPO_ADV_TIMEOUT", "0.5")
    server.pauses += [1.5, 0, 1.5]
    done = adv("compute", url, "-o", str(tmp_path / "out.jsonl"), "-q", cwd=tmp_path)
    assert (done.status, server.pauses) == (0, [])
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == len(LINES.splitlines())


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_credentials_that_have_expired_are_said(s3: Any, server: Proxy, tmp_path: Path, method: str) -> None:
    url = put(s3, "in.jsonl", LINES)
    source = stores.pinned(url) if method == "GET" else None
    server.answers += ["400 Bad Request\n<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"] * 8
    if source is None:
        said = adv("compute", url, "-o", str(tmp_path / "out.jsonl"), cwd=tmp_path).err
    else:
        with pytest.raises(DataError) as error, source.open() as handle:
            handle.read()
        said = str(error.value)
    assert "in.jsonl" in said
    assert "expired" in said


def test_an_answer_that_is_cut_is_asked_for_again_or_refused(s3: Any, server: Proxy, tmp_path: Path) -> None:
    url = put(s3, "in.jsonl", LINES)
    assert adv("compute", url, "-o", "whole.jsonl", "-q", cwd=tmp_path).status == 0
    stores._remembered.cache_clear()
    server.cut = 1
    done = adv("compute", url, "-o", "cut.jsonl", "-q", cwd=tmp_path)
    assert server.cut == 0
    if done.status:
        assert done.err.count("\n") == 1
        assert not (tmp_path / "cut.jsonl").exists()
    else:
        assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


EXPORT: Final = ("--to", "weights", "--prompt", "prompt_id", "--response", "text", "-q")


@pytest.mark.parametrize("fault", ["busy", "cut"])
def test_an_export_goes_on_where_the_store_stumbles(s3: Any, server: Proxy, tmp_path: Path, fault: str) -> None:
    url = put(s3, "in.jsonl", LINES)
    assert adv("export", url, *EXPORT, "-o", "whole.jsonl", cwd=tmp_path).status == 0
    stores._remembered.cache_clear()
    server.answers += ["503 Slow Down"] * 2 * (fault == "busy")
    server.cut = int(fault == "cut")
    done = adv("export", url, *EXPORT, "-o", "s3://bucket/out.jsonl", cwd=tmp_path)
    assert (server.answers, server.cut) == ([], 0)
    assert done.status == 0, done
    assert content(s3, "out.jsonl") == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("target", ["out.jsonl", "out.parquet"])
@pytest.mark.parametrize("fault", ["changed", "made meanwhile", "denied", "down"])
def test_an_export_that_fails_leaves_no_object(
    s3: Any, server: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, target: str
) -> None:
    url = put(s3, "in-403.jsonl", LINES)  # a number in a name, or in the time that an answer took, is no status
    act, status, words = {
        "changed": (lambda: put(s3, "in-403.jsonl", LINES.replace(b"1.0", b"0.0", 1)), 1, "changed while it was being read"),
        "made meanwhile": (lambda: put(s3, target, b"theirs"), 2, f"s3://bucket/{target} exists"),
        "denied": (lambda: server.answers.extend(["403 Forbidden"] * 20), 1, "access denied"),
        "down": (lambda: server.answers.extend(["503 Slow Down"] * 20), 1, "unexpected answer from the store"),
    }[fault]  # fmt: skip
    meanwhile(monkeypatch, act, export, "scored")
    done = adv("export", url, *EXPORT, "-o", f"s3://bucket/{target}", cwd=tmp_path)
    server.answers.clear()
    assert (done.status, done.err.count("\n"), words in done.err) == (status, 1, True), done
    assert uploads(s3) == []
    assert [content(s3, name) for name in keys(s3) if name != "in-403.jsonl"] == [b"theirs"] * (
        fault == "made meanwhile"
    )


HALF_DONE: Final = (
    "200 OK\n<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
)


UPLOADS: Final = [
    ("?uploads", ["403 Forbidden"], "access denied"),
    ("partNumber=2", ["403 Forbidden"], "access denied"),
    ("partNumber=2", ["503 Slow Down"] * 20, "unexpected answer from the store"),
    ("partNumber=2", ["503 Slow Down"], ""),
    ("POST /bucket/out?uploadId", ["403 Forbidden"], "access denied"),
    ("POST /bucket/out?uploadId", [HALF_DONE] * 20, "unexpected answer from the store"),
    ("POST /bucket/out?uploadId", [HALF_DONE], ""),
]


@pytest.mark.parametrize(("request_", "answers", "words"), some(UPLOADS, 2))
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_upload_that_fails_in_the_middle_leaves_no_object(
    s3: Any,
    server: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    request_: str,
    answers: list[str],
    words: str,
) -> None:
    monkeypatch.setitem(stores._Upload.__init__.__kwdefaults__ or {}, "part", 5 * MB)
    rows = [{**row, "text": np.random.default_rng(at).bytes(MB // 6).hex()} for at, row in enumerate(ROWS)]
    frame, path = pl.DataFrame(rows), tmp_path / f"in.{suffix}"
    if suffix == "jsonl":
        frame.write_ndjson(path)
    else:
        frame.write_parquet(path, compression="uncompressed")
    url = put(s3, path.name, path)
    server.only, server.answers = request_.replace("/out", f"/out.{suffix}"), [*answers]
    done = adv("compute", url, "-o", f"s3://bucket/out.{suffix}", "-q", cwd=tmp_path)
    assert len(server.answers) < len(answers)
    assert (done.status, done.err.count("\n")) == ((1, 1) if words else (0, 0)), done
    assert (words in done.err, uploads(s3)) == (True, [])
    assert keys(s3) == [path.name, f"out.{suffix}"][: 1 if words else 2]


@pytest.mark.parametrize("name", ["in.jsonl", "out.jsonl"])
@pytest.mark.parametrize("method", ["HEAD", "GET", "PUT"])
def test_an_object_that_may_not_be_read_or_written_is_named(
    s3: Any, server: Proxy, tmp_path: Path, method: str, name: str
) -> None:
    url = put(s3, "in.jsonl", LINES)
    server.only = f"{method} /bucket/{name}"
    server.answers += ["403 Forbidden\n<Error><Code>AccessDenied</Code></Error>"] * 20
    done = adv("compute", url, "-o", "s3://bucket/out.jsonl", "-q", cwd=tmp_path)
    if (method, name) in {("PUT", "in.jsonl"), ("GET", "out.jsonl")}:  # no such request is made
        assert (done.status, len(server.answers)) == (0, 20)
        return
    assert (done.status, done.err.count("\n"), keys(s3)) == (1, 1, ["in.jsonl"]), done
    assert f"s3://bucket/{name}: access denied" in done.err


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl.gz"])
@pytest.mark.parametrize("damage", ["cut", "length", "garbage", "empty"])
def test_a_broken_object_is_refused_as_a_broken_file_is(s3: Any, tmp_path: Path, suffix: str, damage: str) -> None:
    data = write(tmp_path / f"in.{suffix}", ROWS).read_bytes()
    data = {
        "cut": data[:-9],
        "length": data[:-8] + b"\xff\xff\xff\x7f" + data[-4:],
        "garbage": data[:-300] + b"\xa7" * 200 + data[-100:],
        "empty": b"",
    }[damage]  # fmt: skip
    (tmp_path / f"in.{suffix}").write_bytes(data)
    url = put(s3, f"in.{suffix}", data)
    local = adv("compute", f"in.{suffix}", "-o", f"out.{suffix}", cwd=tmp_path)
    done = adv("compute", url, "-o", f"s3://bucket/out.{suffix}", cwd=tmp_path)
    assert (done.status, done.err) == (1, local.err.replace(f"in.{suffix}", url))
    assert (local.status, local.err.count("\n")) == (1, 1), local
    assert (keys(s3), uploads(s3)) == ([f"in.{suffix}"], [])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("403 Forbidden", "access denied"),
        ("404 Not Found", "no such object"),
        ("400 Bad Request", "s3://bucket/in.jsonl: "),
    ],
)
def test_what_a_store_refuses_is_said_in_one_line_without_credentials(
    s3: Any, server: Proxy, tmp_path: Path, answer: str, words: str
) -> None:
    url = put(s3, "in.jsonl", LINES)
    server.answers += [answer] * 20
    done = adv("compute", url, "-o", "out.jsonl", cwd=tmp_path)
    assert done.status == 1
    assert words in done.err
    assert done.err.count("\n") == 1
    assert "known" not in done.err
    assert "very-secret" not in done.err


@pytest.mark.usefixtures("afresh")
def test_a_bucket_or_credentials_that_are_missing_are_said(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no such bucket" in adv("inspect", "s3://other/in.jsonl", cwd=tmp_path).err
    assert "no such object, and none below it" in adv("inspect", "s3://bucket/in.jsonl", cwd=tmp_path).err
    assert "names no bucket" in adv("inspect", "s3:///in.jsonl", cwd=tmp_path).err
    s3.put_object(Bucket="bucket", Key="in.jsonl", Body=LINES, ACL="public-read")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    forget()
    assert "no credentials for S3" in adv("inspect", "s3://bucket/in.jsonl", cwd=tmp_path).err
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    forget()
    assert adv("inspect", "s3://bucket/in.jsonl", cwd=tmp_path).status == 0
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert "no credentials were found; set AZURE_STORAGE" in adv("inspect", "az://box/in.jsonl", cwd=tmp_path).err


@pytest.mark.usefixtures("afresh")
@pytest.mark.parametrize("library", ["obstore", "boto3"])
@pytest.mark.parametrize("output", ["s3://bucket/out.jsonl", "gs://bucket/out.jsonl"])
def test_a_library_that_is_missing_is_named(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, output: str
) -> None:
    url = put(s3, "in.jsonl", LINES)
    (tmp_path / "in.jsonl").write_bytes(LINES)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.chdir(tmp_path)  # a clone is named from where the command runs
    lines = [["inspect", url], ["compute", "in.jsonl", "-o", output]]
    for line in lines if library == "obstore" else lines[: 1 + output.startswith("s3")]:
        done = adv(*line, cwd=tmp_path)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert f"needs obstore and boto3; {install('cloud')}" in done.err


def test_what_only_a_file_can_be_is_refused(s3: Any, tmp_path: Path) -> None:
    url = put(s3, "in.jsonl", LINES)
    for words, said in (
        (
            ["report", url, "-o", "s3://bucket/r.html"],
            "--output s3://bucket/r.html: only a local file can be written here",
        ),
        (
            ["compute", url, "-o", "o.jsonl", "--summary", "s3://bucket/s.json"],
            "--summary s3://bucket/s.json: only a local file",
        ),
        (["report", url], "a report of objects has no default name; give -o report.html"),
        (["compute", url, "--in-place"], "is in an object store and cannot be changed in place"),
    ):
        done = adv(*words, cwd=tmp_path)
        assert done.status == 2
        assert said in done.err
    assert keys(s3) == ["in.jsonl"]


# --- web servers ---------------------------------------------------------------------------------------------


def web(files: Mapping[str, bytes]) -> Callable[[Request], Answer]:
    """The rule of a web server that gives parts of these files, and knows their ETags."""

    def rule(request: Request) -> Answer:
        data = files.get(request.path)
        tag = f'"{hash(data)}"'
        if data is None or request.headers.get("if-match", tag) != tag:
            return Answer(404 if data is None else 412)
        return part(request, data, ETag=tag)

    return rule


def test_a_file_on_a_web_server_is_read_by_parts(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(LINES)
    assert adv("compute", "in.jsonl", "-o", "local.jsonl", "-q", cwd=tmp_path).status == 0
    names = ("/a%20b/in.jsonl", "/signed.jsonl?Signature=secret%2F1")
    with hostile(web(dict.fromkeys(names, LINES))) as server:
        for url in (f"{server.address}{name}" for name in names):
            done = adv("compute", url, "-o", "out.jsonl", "--force", cwd=tmp_path)
            assert done.status == 0, done
            assert "secret" not in done.out + done.err
            assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes()
        done = adv("compute", f"{server.address}{names[0]}", cwd=tmp_path)
        assert (done.status, "is read-only" in done.err) == (2, True)
        assert "no such object" in adv("compute", f"{server.address}/other.jsonl", "-o", "x.jsonl", cwd=tmp_path).err


def test_a_web_server_that_gives_no_parts_is_refused(tmp_path: Path) -> None:
    with hostile(lambda _: Answer(headers={"ETag": '"one"'}, body=LINES)) as server:
        done = adv("compute", f"{server.address}/in.jsonl", "-o", "out.jsonl", cwd=tmp_path)
    assert done.status == 1
    assert "does not support range requests; download it first" in done.err


def test_a_file_on_a_web_server_that_changes_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/in.jsonl": LINES}
    with hostile(web(files)) as server:
        meanwhile(monkeypatch, lambda: files.update({"/in.jsonl": LINES.replace(b"1.0", b"0.0", 1)}))
        done = adv("compute", f"{server.address}/in.jsonl", "-o", "out.jsonl", cwd=tmp_path)
    assert done.status == 1
    assert "the file changed while it was being read" in done.err
    assert not (tmp_path / "out.jsonl").exists()


def test_of_a_saved_data_set_only_its_own_shards_are_read(s3: Any, tmp_path: Path) -> None:
    shards = [f"data-0000{at}-of-00002.arrow" for at in range(2)]
    for at, name in enumerate([*shards, "data-00000-of-00001.arrow"]):
        pl.DataFrame(ROWS[12 * (at % 2) : 12 * (at % 2) + 12]).write_ipc(tmp_path / name)
        put(s3, f"saved/{name}", tmp_path / name)
    put(s3, "saved/dataset_info.json", b'{"features": {}}')
    put(s3, "saved/state.json", json.dumps({"_data_files": [{"filename": name} for name in shards]}).encode())
    for url in ("s3://bucket/saved", "s3://bucket/saved/*.arrow"):
        done = adv("inspect", url, "--group-within", "input", "--json", cwd=tmp_path)
        assert done.status == 0, done
        assert json.loads(done.out)["rows"] == len(ROWS)
    s3.delete_object(Bucket="bucket", Key=f"saved/{shards[1]}")
    done = adv("inspect", "s3://bucket/saved", cwd=tmp_path)
    assert (done.status, done.err.count("\n")) == (1, 1), done
    assert f"{shards[1]}: no such object, but state.json lists it" in done.err


def test_a_data_set_of_the_hub_is_listed_and_read_with_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, resolve = "/api/datasets/owner/runs/tree", "/datasets/owner/runs/resolve"
    entry = {"type": "file", "size": len(LINES)}
    pages = {
        f"{tree}/main/data?recursive=true": [
            {**entry, "path": "data/b_10.jsonl"},
            {"type": "directory", "path": "data/sub"},
        ],
        "/next": [{**entry, "path": "data/b_2.jsonl"}, {**entry, "path": "data/README.md"}],
    }
    files = {f"{resolve}/main/data/{name}": LINES for name in ("b_2.jsonl", "b_10.jsonl")}
    files[f"{resolve}/v1.0/data/b_2.jsonl"] = LINES[: LINES.index(b"\n", 900) + 1]

    def rule(request: Request) -> Answer:
        if request.path not in pages:
            return web(files)(request)
        link = {} if request.path == "/next" else {"Link": f'<{hub.address}/next>; rel="next"'}
        return Answer(headers=link, body=json.dumps(pages[request.path]).encode())

    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    with hostile(rule) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        done = adv("inspect", "hf://datasets/owner/runs/data", "--group-within", "file", "--json", cwd=tmp_path)
        assert done.status == 0, done
        facts = json.loads(done.out)
        assert facts["inputs"] == [f"hf://datasets/owner/runs/data/{name}" for name in ("b_2.jsonl", "b_10.jsonl")]
        assert facts["rows"] == 2 * len(ROWS)
        assert all(one.headers["authorization"] == "Bearer hf-secret" for one in hub.seen)
        done = adv("inspect", "hf://datasets/owner/runs@v1.0/data/b_2.jsonl", "--json", cwd=tmp_path)
        assert json.loads(done.out)["rows"] < len(ROWS)
        assert "not the name of a data set" in adv("inspect", "hf://models/x", cwd=tmp_path).err
        assert (
            "AWS_ENDPOINT_URL=https://s3.hf.co/OWNER"
            in adv("inspect", "hf://buckets/owner/runs/a.jsonl", cwd=tmp_path).err
        )


def test_an_endpoint_of_s3_may_have_a_path_as_that_of_the_hubs_buckets_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hostile(web({"/owner/runs/a.jsonl": LINES})) as gateway:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"{gateway.address}/owner")
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        stores._boto3.cache_clear()
        done = adv("inspect", "s3://runs/a.jsonl", "--json", cwd=tmp_path)
    stores._boto3.cache_clear()
    assert json.loads(done.out)["rows"] == len(ROWS), done.err


def test_tasks_look_at_objects_and_read_and_write_them(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = ray_runs.without_ray(monkeypatch)
    for at in range(3):
        put(s3, f"run/{at}.jsonl", LINES)
    words = ("compute", "s3://bucket/run/", "--group-within", "input", "-q")
    assert adv(*words, "-o", "s3://bucket/one/", cwd=tmp_path).status == 0
    done = adv(*words, "-o", "s3://bucket/many/", "--engine", "ray", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    for at in range(3):
        assert content(s3, f"many/{at}.jsonl") == content(s3, f"one/{at}.jsonl")
    # Three tasks look at an object each, one reads all of them (they are small), and one writes them.
    assert [one.__name__ for one in tasks] == ["work_on"] * 4 + ["write_files"]
    again = adv(*words, "-o", "s3://bucket/many/", "--engine", "ray", cwd=tmp_path)
    assert again.status == 2
    assert "exists" in again.err
    assert uploads(s3) == []


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_export_goes_to_an_object_and_comes_from_one(s3: Any, suffix: str, tmp_path: Path) -> None:
    source, (local, to) = put(s3, "in.jsonl", LINES), (tmp_path / f"out.{suffix}", f"s3://bucket/out.{suffix}")
    words = ("--to", "weights", "--prompt", "prompt_id", "--response", "text", "-q")
    (tmp_path / "in.jsonl").write_bytes(LINES)
    assert adv("export", str(tmp_path / "in.jsonl"), *words, "-o", str(local)).status == 0
    done = adv("export", source, *words, "-o", to)
    assert done.status == 0, done.err
    assert content(s3, f"out.{suffix}") == local.read_bytes()
    again = adv("export", source, *words, "-o", to)
    assert (again.status, "--force" in again.err) == (2, True)
    wrong = adv(
        "export", source, *words[:2], "--prompt", "prompt_id", "--response", "nix", "-o", f"s3://bucket/no.{suffix}"
    )
    assert wrong.status == 1
    assert sorted(keys(s3)) == ["in.jsonl", f"out.{suffix}"]
    assert uploads(s3) == []


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_the_text_of_a_rollout_is_a_few_ranges_of_an_object(s3: Any, server: Proxy, tmp_path: Path, name: str) -> None:
    letters = np.random.default_rng(7).integers(97, 123, (4_000, 4_000), dtype=np.uint8)
    rows = pl.DataFrame(
        {
            "prompt_id": [f"p{at // 4}" for at in range(len(letters))],
            "reward": [float(at % 2) for at in range(len(letters))],
            "completion": [bytes(line).decode() for line in letters],
        }
    )
    path = tmp_path / name
    if name.endswith(".parquet"):
        rows.write_parquet(path, row_group_size=100)
    else:
        rows.write_ndjson(path)
    model = Model.of(Job(inputs=[put(s3, name, path)]))
    reader = Reader(model.inspection.narrow, TextColumns())
    server.reset()
    for at in (0, 1_999, 3_999):
        assert [part.text for part in reader.passages(at)] == [rows["completion"][at]]
    assert server.received < 3 * MB < path.stat().st_size / 3
