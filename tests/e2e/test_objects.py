"""Objects in stores, against an S3 server and web servers on loopback; a proxy counts what goes over the wire."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib import request

import boto3
import numpy as np
import polars as pl
import pytest

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files import stores
from grpo_cli.files.installation import install
from grpo_cli.formats.registry import FORMATS
from grpo_cli.guests.browse.model import Model
from grpo_cli.read.texts import Reader, TextColumns
from grpo_cli.runs import export
from grpo_cli.runs.inspect import Job
from tests.support import ray_runs
from tests.support.command import adv, facts_of, ran
from tests.support.drawn import paired
from tests.support.hostile_server import Answer, Request, hostile, part
from tests.support.jobs import meanwhile, rows_of, write
from tests.support.s3_server import PAGE, Proxy, proxied, running
from tests.support.weaving import inserting, woven

ROWS: Final = [
    {"prompt_id": f"p{group}", "reward": float((group + row) % 3 == 0), "text": "x" * row}
    for group in range(6) for row in range(4)
]  # fmt: skip
LINES: Final = "".join(f"{json.dumps(row)}\n" for row in ROWS).encode()
OTHER_LINES: Final = LINES.replace(b"1.0", b"0.0", 1)
MB: Final = 1 << 20
KEYS: Final = {"AWS_ACCESS_KEY_ID": "known", "AWS_SECRET_ACCESS_KEY": "very-secret"}


@dataclass
class Bucket:
    """`s3://bucket`, as the tests' own client sees it, which goes past the proxy."""

    client: Any
    proxy: Proxy

    def put(self, key: str, data: bytes | Path) -> str:
        body = data if isinstance(data, bytes) else data.read_bytes()
        self.client.put_object(Bucket="bucket", Key=key, Body=body)
        return f"s3://bucket/{key}"

    def __getitem__(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket="bucket", Key=key)["Body"].read())

    def keys(self) -> list[str]:
        """Of all objects; no upload is left that was not completed."""
        assert self.uploads() == []
        return [one["Key"] for one in self.client.list_objects_v2(Bucket="bucket").get("Contents", [])]

    def uploads(self) -> list[Any]:
        return list(self.client.list_multipart_uploads(Bucket="bucket").get("Uploads", []))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running() as port:
        yield port


@pytest.fixture(scope="module")
def whole_server(port: int) -> Iterator[Bucket]:
    """The tool finds the server and its keys in the environment."""
    ours = {name.lower(): value for name, value in KEYS.items()}
    client: Any = boto3.client("s3", region_name="us-east-1", endpoint_url=f"http://127.0.0.1:{port}", **ours)
    with proxied(port) as proxy, pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patched.delenv(name)
        ours = {"AWS_ENDPOINT_URL": proxy.address, "AWS_EC2_METADATA_DISABLED": "true", **KEYS}
        nothing = {"AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_CONFIG_FILE": os.devnull}
        for name, value in (ours | nothing).items():
            patched.setenv(name, value)
        forget()
        yield Bucket(client, proxy)
    forget()


@pytest.fixture
def s3(port: int, whole_server: Bucket) -> Iterator[Bucket]:
    """An empty bucket called `bucket`."""
    stores._remembered.cache_clear()
    whole_server.client.create_bucket(Bucket="bucket")
    whole_server.proxy.reset()
    yield whole_server
    request.urlopen(request.Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST"), timeout=20).close()


@pytest.fixture
def url(s3: Bucket) -> str:
    """An object of lines."""
    return s3.put("in.jsonl", LINES)


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


# --- S3 ------------------------------------------------------------------------------------------------------


def test_the_text_of_a_parquet_object_never_travels(s3: Bucket, place: Path) -> None:
    rng = np.random.default_rng(1)
    rows = 2000
    path = place / "in.parquet"
    texts = [rng.bytes(8000).hex() for _ in range(rows)]
    frame = pl.DataFrame({"prompt_id": np.arange(rows) // 8, "reward": rng.integers(0, 2, rows), "text": texts})
    frame.write_parquet(path, compression="uncompressed", row_group_size=500)
    assert path.stat().st_size > 30 * MB
    url = s3.put("run/in.parquet", path)
    s3.proxy.reset()
    ran(f"compute {url} -o s3://bucket/out/ -q")
    assert s3.proxy.sent + s3.proxy.received < 0.05 * path.stat().st_size
    ran("compute in.parquet -o local.parquet -q")
    assert s3["out/in.parquet"] == Path("local.parquet").read_bytes()


@pytest.mark.parametrize(
    "name", ["in.jsonl", "in.jsonl.gz", "in.jsonl.zst", "in.csv", "in.json", "in.parquet", "in.arrow"]
)
def test_an_object_gets_the_bytes_that_a_file_gets(s3: Bucket, name: str) -> None:
    url = s3.put(name, write(name, ROWS))
    for source, output in ((name, "local"), (name, "s3://bucket/sent"), (url, "s3://bucket/out"), (url, "fetched")):
        ran(f"compute {source} -o {output}.{name} -q --method rloo --facts")
    expected = Path(f"local.{name}").read_bytes()
    assert s3[f"sent.{name}"] == s3[f"out.{name}"] == Path(f"fetched.{name}").read_bytes() == expected


def test_without_o_the_output_is_written_beside_the_object(s3: Bucket) -> None:
    url = s3.put("run/in.jsonl", LINES)
    ran(f"compute {url} -q")
    assert s3.keys() == ["run/in.advantages.jsonl", "run/in.jsonl"]
    done = adv(f"verify s3://bucket/run/in.advantages.jsonl --against {url}")
    assert "plus advantage, byte by byte" in done.out


def test_columns_of_an_object_are_joined_by_key_into_an_object(s3: Bucket) -> None:
    rows = [{**row, "id": f"r{at}"} for at, row in enumerate(ROWS)]
    s3.put("in.jsonl", write("in.jsonl", rows))
    s3.put("judge.parquet", write("judge.parquet", [{"id": f"r{at}", "judge": at} for at in range(30)][::-1]))
    ran("add s3://bucket/in.jsonl --from s3://bucket/judge.parquet --on id -o s3://bucket/out.jsonl")
    added = [json.loads(line) for line in s3["out.jsonl"].splitlines()]
    assert added == [{**row, "judge": at} for at, row in enumerate(rows)]


def test_a_prefix_and_a_glob_are_read_in_natural_order_without_own_outputs(s3: Bucket) -> None:
    names = "step_10.jsonl step_2.jsonl step_2.advantages.jsonl sub/step_3.jsonl notes.txt .hidden.jsonl empty.jsonl"
    for name in names.split():
        s3.put(f"run/{name}", b"" if name.startswith("empty") else LINES)
    for pattern, files in (
        ("run/", "step_2 step_10 sub/step_3"), ("run/*.jsonl", "step_2 step_10"),
        ("run/**/step_?.jsonl", "step_2 sub/step_3"), ("run", "step_2 step_10 sub/step_3"),
    ):  # fmt: skip
        done = adv(f"inspect 's3://bucket/{pattern}' --group-within file --json")
        assert json.loads(done.out)["inputs"] == [f"s3://bucket/run/{one}.jsonl" for one in files.split()]


def test_a_job_folder_in_a_store_is_refused_in_one_line(s3: Bucket) -> None:
    for name in ("result.json", "config.json", "a/result.json", "a/config.json", "a/agent/trajectory.json"):
        s3.put(f"job/{name}", b'{"task_name": "t"}')
    done = adv("inspect s3://bucket/job/")
    assert done.status == 2
    assert "s3://bucket/job/: job folders of Harbor are not read from a store; copy it to a disk first" in done.err


def test_many_pages_of_a_listing_are_read(s3: Bucket) -> None:
    for at in range(2 * PAGE):
        s3.put(f"many/{at}.txt", b"x")
    url = s3.put("many/zz.jsonl", LINES)
    assert facts_of("inspect s3://bucket/many/")["inputs"] == [url]


def test_select_audit_and_schemas_take_objects(s3: Bucket, url: str) -> None:
    ran(f"select {url} -w 'std > 0' -o s3://bucket/kept.jsonl -q")
    assert {*s3["kept.jsonl"].splitlines()} <= {*LINES.splitlines()}
    ran(f"compute {url} -o s3://bucket/scored.jsonl -q")
    audited = facts_of("audit s3://bucket/scored.jsonl")
    assert audited["match"]["mismatched_rows"] == 0
    assert "none: columns are found by name" in adv(f"schemas {url}").out


def test_an_object_that_exists_or_is_made_meanwhile_is_not_replaced_without_force(
    s3: Bucket, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = s3.put("out.jsonl", b"mine")
    done = adv(f"compute {url} -o {out}")
    assert done.status == 2
    assert s3["out.jsonl"] == b"mine"
    assert f"{out} exists; add --force" in done.err
    ran(f"compute {url} -o {out} --force -q")
    assert s3["out.jsonl"] != b"mine"
    done = adv(f"compute {url} -o {url} --force")
    assert done.status == 2
    assert s3["in.jsonl"] == LINES
    meanwhile(monkeypatch, lambda: s3.put("late.jsonl", b"theirs"))
    done = adv(f"compute {url} -o s3://bucket/late.jsonl")
    assert done.status == 2
    assert s3["late.jsonl"] == b"theirs"
    assert "late.jsonl exists" in done.err


@pytest.mark.parametrize("name", ["in.jsonl", "in.parquet"])
def test_an_object_that_changes_between_the_readings_stops_the_run(
    s3: Bucket, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (write(f"{reward}/{name}", [{**ROWS[0], "reward": reward}, *ROWS[1:]]) for reward in (0.0, 1.0))
    url = s3.put(name, before)
    meanwhile(monkeypatch, lambda: s3.put(name, after))
    done = adv(f"compute {url} -o s3://bucket/out.{name}")
    assert done.status == 1
    assert f"{url}: the file changed while it was being read" in done.err
    assert s3.keys() == [name]


@pytest.mark.parametrize("size", [30, 26])  # 12 + 12 + 6 is copied; 2 behind 12 + 12 is too short to be copied
def test_an_object_that_is_too_large_for_one_copy_is_copied_in_parts(s3: Bucket, place: Path, size: int) -> None:
    texts = [np.random.default_rng(at).bytes(MB // 16).hex() for at in range(size * 8)]
    rewards = [float(at % 3) for at in range(size * 8)]
    frame = pl.DataFrame({"prompt_id": [at // 8 for at in range(size * 8)], "reward": rewards, "text": texts})
    path = place / "in.parquet"
    frame.write_parquet(path, compression="uncompressed", row_group_size=40)
    url = s3.put("in.parquet", path)
    s3.proxy.reset()
    sink: Any = stores._Upload("s3://bucket/out.parquet", force=False, most_copy=12 * MB)
    added = inserting({"advantage": rewards})
    FORMATS["parquet"].weave(stores.pinned(url), None, sink, added)
    sink.complete()
    assert s3.proxy.sent < (3 * MB if size == 26 else MB)
    assert s3["out.parquet"] == woven(FORMATS["parquet"], path.read_bytes(), added)


def test_an_upload_of_many_parts_is_completed_or_forgotten(s3: Bucket) -> None:
    data = np.random.default_rng(0).bytes(13 * MB)
    sink = stores._Upload("s3://bucket/out", force=False, part=6 * MB)
    sink.writelines(data[at : at + MB] for at in range(0, len(data), MB))
    assert len(sink._parts) == 2
    assert len(s3.uploads()) == 1
    sink.complete()
    assert s3["out"] == data
    with pytest.raises(InputChanged), stores.uploading("s3://bucket/other", force=False) as never:
        never.writelines(broken_off(s3))
    assert s3.keys() == ["out"]


def broken_off(s3: Bucket) -> Iterator[bytes]:
    """What a run writes that stops once an upload has begun."""
    yield bytes(17 * MB)
    assert s3.uploads()
    raise InputChanged.between_readings("in.jsonl")


def test_a_gate_that_holds_leaves_no_object(s3: Bucket, url: str) -> None:
    assert adv(f"compute {url} -o s3://bucket/out.jsonl --fail-on 'rows > 1' -q").status == 3
    assert s3.keys() == ["in.jsonl"]


@pytest.mark.parametrize("status", ["503 Slow Down", "500 Internal Server Error", "429 Too Many Requests"])
def test_a_server_that_is_busy_for_a_moment_is_asked_again(s3: Bucket, url: str, status: str) -> None:
    s3.proxy.answers.append(status)
    ran(f"compute {url} -o s3://bucket/out.jsonl -q")
    assert not s3.proxy.answers


@pytest.mark.usefixtures("afresh")
def test_a_server_that_is_slow_is_asked_again(s3: Bucket, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_ADV_TIMEOUT", "0.5")
    s3.proxy.pauses += [1.5, 0, 1.5]
    ran(f"compute {url} -o out.jsonl -q")
    assert s3.proxy.pauses == []
    assert len(rows_of("out.jsonl")) == len(ROWS)


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_credentials_that_have_expired_are_said(s3: Bucket, url: str, method: str) -> None:
    source = stores.pinned(url) if method == "GET" else None
    s3.proxy.answers += ["400 Bad Request\n<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"] * 8
    if source is None:
        said = adv(f"compute {url} -o out.jsonl").err
    else:
        with pytest.raises(DataError) as error, source.open() as handle:
            handle.read()
        said = str(error.value)
    assert "in.jsonl" in said
    assert "expired" in said


EXPORT: Final = "--to weights --prompt prompt_id --response text -q"


@pytest.mark.parametrize("line", ["compute {} -q", f"export {{}} {EXPORT}"], ids=["compute", "export"])
@pytest.mark.parametrize("fault", ["busy", "cut"])
def test_a_run_goes_on_where_the_store_stumbles(s3: Bucket, url: str, line: str, fault: str) -> None:
    ran(f"{line.format(url)} -o whole.jsonl")
    stores._remembered.cache_clear()
    s3.proxy.answers += ["503 Slow Down"] * 2 * (fault == "busy")
    s3.proxy.cut = int(fault == "cut")
    ran(f"{line.format(url)} -o s3://bucket/out.jsonl")
    assert s3.proxy.answers == []
    assert s3.proxy.cut == 0
    assert s3["out.jsonl"] == Path("whole.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("fault", "target"), paired(["changed", "made meanwhile", "denied", "down"], ["out.jsonl", "out.parquet"])
)
def test_an_export_that_fails_leaves_no_object(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch, fault: str, target: str
) -> None:
    url = s3.put("in-403.jsonl", LINES)  # a number in a name, or in the time that an answer took, is no status
    act, status, words = {
        "changed": (lambda: s3.put("in-403.jsonl", OTHER_LINES), 1, "changed while it was being read"),
        "made meanwhile": (lambda: s3.put(target, b"theirs"), 2, f"s3://bucket/{target} exists"),
        "denied": (lambda: s3.proxy.answers.extend(["403 Forbidden"] * 20), 1, "access denied"),
        "down": (lambda: s3.proxy.answers.extend(["503 Slow Down"] * 20), 1, "unexpected answer from the store"),
    }[fault]  # fmt: skip
    meanwhile(monkeypatch, act, export, "scored")
    done = adv(f"export {url} {EXPORT} -o s3://bucket/{target}")
    s3.proxy.answers.clear()
    assert (done.status, done.err.count("\n"), words in done.err) == (status, 1, True), done
    theirs = [b"theirs"] if fault == "made meanwhile" else []
    assert [s3[name] for name in s3.keys() if name != "in-403.jsonl"] == theirs  # noqa: SIM118 - not a dictionary


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


@pytest.mark.parametrize(("upload", "suffix"), paired(UPLOADS, ["jsonl", "parquet"]))
def test_an_upload_that_fails_in_the_middle_leaves_no_object(
    s3: Bucket, place: Path, monkeypatch: pytest.MonkeyPatch, upload: tuple[str, list[str], str], suffix: str
) -> None:
    request_, answers, words = upload
    monkeypatch.setitem(stores._Upload.__init__.__kwdefaults__ or {}, "part", 5 * MB)
    texts = [np.random.default_rng(at).bytes(MB // 6).hex() for at in range(len(ROWS))]
    frame = pl.DataFrame(ROWS).with_columns(text=pl.Series(texts))
    path = place / f"in.{suffix}"
    frame.write_ndjson(path) if suffix == "jsonl" else frame.write_parquet(path, compression="uncompressed")
    url = s3.put(path.name, path)
    s3.proxy.only, s3.proxy.answers = request_.replace("/out", f"/out.{suffix}"), [*answers]
    done = adv(f"compute {url} -o s3://bucket/out.{suffix} -q")
    assert len(s3.proxy.answers) < len(answers)
    assert (done.status, done.err.count("\n"), words in done.err) == ((1, 1, True) if words else (0, 0, True)), done
    assert s3.keys() == [path.name, f"out.{suffix}"][: 1 if words else 2]


@pytest.mark.parametrize(("method", "name"), [("HEAD", "in"), ("GET", "in"), ("HEAD", "out"), ("PUT", "out")], ids=str)
def test_an_object_that_may_not_be_read_or_written_is_named(s3: Bucket, url: str, method: str, name: str) -> None:
    s3.proxy.only = f"{method} /bucket/{name}.jsonl"
    s3.proxy.answers += ["403 Forbidden\n<Error><Code>AccessDenied</Code></Error>"] * 20
    done = adv(f"compute {url} -o s3://bucket/out.jsonl -q")
    assert (done.status, done.err.count("\n"), s3.keys()) == (1, 1, ["in.jsonl"]), done
    assert f"s3://bucket/{name}.jsonl: access denied" in done.err


@pytest.mark.parametrize(
    ("damage", "name"), paired(["cut", "length", "garbage", "empty"], ["in.parquet", "in.arrow", "in.jsonl.gz"])
)
def test_a_broken_object_is_refused_as_a_broken_file_is(s3: Bucket, name: str, damage: str) -> None:
    data = write(name, ROWS).read_bytes()
    data = {
        "cut": data[:-9],
        "length": data[:-8] + b"\xff\xff\xff\x7f" + data[-4:],
        "garbage": data[:-300] + b"\xa7" * 200 + data[-100:],
        "empty": b"",
    }[damage]
    Path(name).write_bytes(data)
    url = s3.put(name, data)
    local = adv(f"compute {name} -o out.{name}")
    done = adv(f"compute {url} -o s3://bucket/out.{name}")
    assert (local.status, local.err.count("\n")) == (1, 1), local
    assert done.status == 1
    assert done.err == local.err.replace(name, url)
    assert s3.keys() == [name]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("403 Forbidden", "access denied"),
        ("404 Not Found", "no such object"),
        ("400 Bad Request", "s3://bucket/in.jsonl: "),
    ],
)
def test_what_a_store_refuses_is_said_in_one_line_without_credentials(
    s3: Bucket, url: str, answer: str, words: str
) -> None:
    s3.proxy.answers += [answer] * 20
    done = adv(f"compute {url} -o out.jsonl")
    assert (done.status, done.err.count("\n"), words in done.err) == (1, 1, True), done
    assert "known" not in done.err
    assert "very-secret" not in done.err


@pytest.mark.usefixtures("afresh")
def test_a_bucket_or_credentials_that_are_missing_are_said(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no such bucket" in adv("inspect s3://other/in.jsonl").err
    assert "no such object, and none below it" in adv("inspect s3://bucket/in.jsonl").err
    assert "names no bucket" in adv("inspect s3:///in.jsonl").err
    s3.client.put_object(Bucket="bucket", Key="in.jsonl", Body=LINES, ACL="public-read")
    for name in KEYS:
        monkeypatch.delenv(name)
    forget()
    assert "no credentials for S3" in adv("inspect s3://bucket/in.jsonl").err
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    forget()
    ran("inspect s3://bucket/in.jsonl")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert "Account must be specified; have your credentials expired?" in adv("inspect az://box/in.jsonl").err


@pytest.mark.usefixtures("afresh")
@pytest.mark.parametrize(
    ("library", "line"),
    [
        ("obstore", "inspect s3://bucket/in.jsonl"),
        ("boto3", "inspect s3://bucket/in.jsonl"),
        ("obstore", "compute in.jsonl -o gs://bucket/out.jsonl"),
        ("boto3", "compute in.jsonl -o s3://bucket/out.jsonl"),
    ],
)
def test_a_library_that_is_missing_is_named(
    s3: Bucket, library: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("in.jsonl", write("in.jsonl", ROWS))
    monkeypatch.setitem(sys.modules, library, None)
    done = adv(line)
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert f"needs obstore and boto3; {install('cloud')}" in done.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("report {} -o s3://bucket/r.html", "--output s3://bucket/r.html: only a local file can be written here"),
        ("compute {} -o o.jsonl --summary s3://bucket/s.json", "--summary s3://bucket/s.json: only a local file"),
        ("report {}", "a report of objects has no default name; give -o report.html"),
        ("compute {} --in-place", "is in an object store and cannot be changed in place"),
    ],
)
def test_what_only_a_file_can_be_is_refused(s3: Bucket, url: str, line: str, said: str) -> None:
    done = adv(line.format(url))
    assert (done.status, said in done.err) == (2, True), done
    assert s3.keys() == ["in.jsonl"]


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


def test_a_file_on_a_web_server_is_read_by_parts() -> None:
    Path("in.jsonl").write_bytes(LINES)
    ran("compute in.jsonl -o local.jsonl -q")
    names = ("/a%20b/in.jsonl", "/signed.jsonl?Signature=secret%2F1")
    with hostile(web(dict.fromkeys(names, LINES))) as server:
        for name in names:
            done = ran(f"compute {server.address}{name} -o out.jsonl --force")
            assert "secret" not in done.out + done.err
            assert Path("out.jsonl").read_bytes() == Path("local.jsonl").read_bytes()
        done = adv(f"compute {server.address}{names[0]}")
        assert done.status == 2
        assert "is read-only" in done.err
        assert "no such object" in adv(f"compute {server.address}/other.jsonl -o x.jsonl").err


def test_a_web_server_that_gives_no_parts_is_refused() -> None:
    with hostile(lambda _: Answer(headers={"ETag": '"one"'}, body=LINES)) as server:
        done = adv(f"compute {server.address}/in.jsonl -o out.jsonl")
    assert done.status == 1
    assert "Range request not supported" in done.err


def test_a_saved_data_set_is_refused_and_its_named_shards_are_read(s3: Bucket) -> None:
    shards = [f"data-0000{at}-of-00002.arrow" for at in range(2)]
    for name, rows in zip([*shards, "data-00000-of-00001.arrow"], (ROWS[:12], ROWS[12:], ROWS[:12]), strict=True):
        s3.put(f"saved/{name}", write(name, rows))
    s3.put("saved/dataset_info.json", b'{"features": {}}')
    s3.put("saved/state.json", json.dumps({"_data_files": [{"filename": name} for name in shards]}).encode())
    for url in ("s3://bucket/saved", "s3://bucket/saved/", "s3://bucket/saved/*.arrow", "s3://bucket/**"):
        done = adv(f"inspect {url}")
        assert (done.status, done.err.count("\n")) == (1, 1), done
        assert (
            "s3://bucket/saved/: a data set of save_to_disk; copy it to a disk; name its .arrow files one by one"
            in done.err
        )
    named = " ".join(f"s3://bucket/saved/{name}" for name in shards)
    assert facts_of(f"inspect {named} --group-within input")["rows"] == len(ROWS)


def test_a_data_set_of_the_hub_is_listed_and_read_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"type": "file", "size": len(LINES)}
    folder = {"type": "directory", "path": "data/sub"}
    pages = {
        "/api/datasets/owner/runs/tree/main/data?recursive=true": [{**entry, "path": "data/b_10.jsonl"}, folder],
        "/next": [{**entry, "path": "data/b_2.jsonl"}, {**entry, "path": "data/README.md"}],
    }
    files = {
        "/datasets/owner/runs/resolve/main/data/b_2.jsonl": LINES,
        "/datasets/owner/runs/resolve/main/data/b_10.jsonl": LINES,
        "/datasets/owner/runs/resolve/v1.0/data/b_2.jsonl": LINES[: LINES.index(b"\n", 900) + 1],
    }

    def rule(request: Request) -> Answer:
        if request.path not in pages:
            return web(files)(request)
        link = {} if request.path == "/next" else {"Link": f'<{hub.address}/next>; rel="next"'}
        return Answer(headers=link, body=json.dumps(pages[request.path]).encode())

    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    with hostile(rule) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        facts = facts_of("inspect hf://datasets/owner/runs/data --group-within file")
        assert facts["inputs"] == [f"hf://datasets/owner/runs/data/{name}" for name in ("b_2.jsonl", "b_10.jsonl")]
        assert facts["rows"] == 2 * len(ROWS)
        assert {one.headers["authorization"] for one in hub.seen} == {"Bearer hf-secret"}
        done = adv("inspect hf://datasets/owner/runs@v1.0/data/b_2.jsonl --json")
        assert json.loads(done.out)["rows"] < len(ROWS)
        assert "not the name of a data set" in adv("inspect hf://models/x").err
        elsewhere = adv("inspect hf://buckets/owner/runs/a.jsonl")
        assert "AWS_ENDPOINT_URL=https://s3.hf.co/OWNER" in elsewhere.err


@pytest.mark.usefixtures("afresh")
def test_an_endpoint_of_s3_may_have_a_path_as_that_of_the_hubs_buckets_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile(web({"/owner/runs/a.jsonl": LINES})) as gateway:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"{gateway.address}/owner")
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        done = adv("inspect s3://runs/a.jsonl --json")
    assert json.loads(done.out)["rows"] == len(ROWS), done.err


def test_tasks_look_at_objects_and_read_and_write_them(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = ray_runs.without_ray(monkeypatch)
    for at in range(3):
        s3.put(f"run/{at}.jsonl", LINES)
    line = "compute s3://bucket/run/ --group-within input -q"
    ran(f"{line} -o s3://bucket/one/")
    ran(f"{line} -o s3://bucket/many/ --engine ray")
    assert [s3[f"many/{at}.jsonl"] for at in range(3)] == [s3[f"one/{at}.jsonl"] for at in range(3)]
    # Three tasks look at an object each, one reads all of them (they are small), and one writes them.
    assert [one.__name__ for one in tasks] == ["work_on"] * 4 + ["write_files"]
    again = adv(f"{line} -o s3://bucket/many/ --engine ray")
    assert again.status == 2
    assert "exists" in again.err
    assert s3.uploads() == []


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_export_goes_to_an_object_and_comes_from_one(s3: Bucket, url: str, suffix: str) -> None:
    Path("in.jsonl").write_bytes(LINES)
    ran(f"export in.jsonl {EXPORT} -o out.{suffix}")
    ran(f"export {url} {EXPORT} -o s3://bucket/out.{suffix}")
    assert s3[f"out.{suffix}"] == Path(f"out.{suffix}").read_bytes()
    again = adv(f"export {url} {EXPORT} -o s3://bucket/out.{suffix}")
    assert again.status == 2
    assert "--force" in again.err
    wrong = adv(f"export {url} --to weights --prompt prompt_id --response nix -o s3://bucket/no.{suffix}")
    assert wrong.status == 1
    assert s3.keys() == ["in.jsonl", f"out.{suffix}"]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_the_text_of_a_rollout_is_a_few_ranges_of_an_object(s3: Bucket, place: Path, name: str) -> None:
    letters = np.random.default_rng(7).integers(97, 123, (4_000, 4_000), dtype=np.uint8)
    number = pl.int_range(len(letters))
    texts = pl.DataFrame({"completion": [bytes(line).decode() for line in letters]})
    rows = texts.with_columns(prompt_id=number // 4, reward=number % 2)
    path = place / name
    rows.write_parquet(path, row_group_size=100) if name.endswith(".parquet") else rows.write_ndjson(path)
    model = Model.of(Job(inputs=[s3.put(name, path)]))
    reader = Reader(model.inspection.narrow, TextColumns())
    s3.proxy.reset()
    for at in (0, 1_999, 3_999):
        assert [part.text for part in reader.passages(at)] == [rows["completion"][at]]
    assert s3.proxy.received < 3 * MB < path.stat().st_size / 3


MARKED: Final = [
    {**row, "prompt": row["prompt_id"], "completion": row["text"], "step": at // 8, "failure": "timeout" if at % 7 == 3 else None}
    for at, row in enumerate(ROWS)
]  # fmt: skip
OF_A_STORE: Final = """
compute IN --left-out-column failure=timeout -o OUT
compute IN --left-out-column failure=timeout --facts -o OUT
compute IN --rows 'step > 0' --facts -o OUT
compute IN --rows 'failure is null' --zero-variance drop -o OUT
compute IN --rows 'failure is null' --only -o OUT
compute IN --masked-column failure=timeout --facts --column a -o OUT
select IN --rows 'step > 0' --limit 2 -o OUT
export IN --to sft --keep step,failure -o OUT
export IN --to sft --form messages -o OUT
export IN --to sft --form turns --rows 'step > 0' -o OUT
export IN --to pairs --form raw --keep step -o OUT
export IN --to weights --left-out-column failure=timeout --keep step -o OUT
export IN --to prompts --pass-at 1,2 --keep step -o OUT
export IN --to labels --keep failure -o OUT
inspect IN --against BASE --cluster step --group prompt_id
inspect IN --against BASE --pass-at 1,2 --rows 'step > 0' --group prompt_id
inspect IN --left-out-column failure=timeout --by step
compute IN --left-out-column failure=nothing -o OUT
compute IN --rows 'step > 90' -o OUT
compute IN --rows 'stop > 0' -o OUT
compute IN --left-out-column step=x -o OUT
export IN --to sft --keep nothing -o OUT
compute IN --fail-on 'status.left-out == 0 and zero_variance.share >= 0' -o OUT
compute IN --left-out-column failure=timeout --fail-on 'status.left-out > 2' -o OUT
select IN --limit 2 --fail-on 'chosen.groups < 99' -o OUT
inspect IN --against BASE --group prompt_id --fail-on 'solve_rate.mean < 2'
"""


@pytest.mark.parametrize(("line", "suffix"), paired(OF_A_STORE.strip().splitlines(), ["jsonl", "parquet", "csv"]))
def test_every_option_does_with_an_object_what_it_does_with_a_file(s3: Bucket, line: str, suffix: str) -> None:
    local = {"IN": f"in.{suffix}", "BASE": f"base.{suffix}", "OUT": f"out.{suffix}"}
    write(local["IN"], MARKED)
    write(local["BASE"], [{**row, "reward": 1.0 - float(str(row["reward"]))} for row in MARKED])
    for name in ("IN", "BASE"):
        s3.put(local[name], Path(local[name]))

    def done(place: str) -> Any:
        here = line
        for name, path in local.items():
            here = here.replace(name, f"{place}{path}")
        ended = adv(here, COLUMNS="120")  # the longer names of objects are not cut
        said = [re.sub(r"[\d.]+ s\b", "", text).replace(place, "") for text in (ended.out, ended.err)]
        return ended.status, *(" ".join(text.replace("s3: //", "").split()) for text in said)

    of_files = done("")
    of_objects = done("s3://bucket/")
    assert of_objects == of_files
    if Path(local["OUT"]).exists():
        assert s3[local["OUT"]] == Path(local["OUT"]).read_bytes()
    assert len(s3.keys()) == 2 + Path(local["OUT"]).exists()
    assert Path(local["OUT"]).exists() == (of_files[0] == 0 and "OUT" in line)
