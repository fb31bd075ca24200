"""`gs://` and `az://`, of which obstore sees the difference alone: what a file gives, and nothing that was not wanted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from grpo_cli.files import stores
from tests.support.command import adv, ran
from tests.support.hostile_server import Answer, Request, hostile, part
from tests.support.jobs import meanwhile, write

PAGE: Final = 2


@dataclass
class Store:
    """What is in it (`bucket/key`), and what was requested."""

    address: str = ""  # where clients connect to
    url: str = ""  # of the bucket, as the command line names it
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[str, bytes]] = field(default_factory=dict)  # parts of those that are not complete
    requests: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)  # statuses that the next requests get instead
    only: str = ""  # a part of the requests that get them

    def read(self, request: Request, name: str) -> Answer:
        """A whole object or a part of it, if it is still the one that is wanted."""
        data = self.objects.get(name)
        if data is None:
            return Answer(404, body=b"<Error><Code>NoSuchKey</Code></Error>")
        if request.headers.get("if-match", _tag(data)) != _tag(data):
            return Answer(412)
        return part(request, data, ETag=_tag(data))

    def save(self, name: str, data: bytes, *, only_new: bool) -> Answer:
        if only_new and name in self.objects:
            return Answer(409, body=b"<Error><Code>BlobAlreadyExists</Code></Error>")
        self.objects[name] = data
        return Answer(201, {"ETag": _tag(data)})

    def page(self, name: str, prefix: str, after: str) -> tuple[list[tuple[str, bytes]], str]:
        """Names and content of a page of a listing, and the last name where there are more."""
        bucket = f"{name.rstrip('/')}/"
        names = sorted(key.removeprefix(bucket) for key in self.objects if key.startswith(bucket + prefix))
        names = [key for key in names if key > after]
        return [(key, self.objects[bucket + key]) for key in names[:PAGE]], names[PAGE - 1] if len(names) > PAGE else ""


def _tag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


def azure(store: Store, request: Request, name: str, query: Mapping[str, str]) -> Answer:
    """The blobs of `az://`; the first part of a path is the account where the address has no name."""
    if request.method == "PUT":
        blocks = store.uploads.setdefault(name, {})
        if query.get("comp") == "block":
            blocks[query["blockid"]] = request.body
            return Answer(201)
        data = request.body
        if query.get("comp") == "blocklist":
            data = b"".join(blocks[block] for block in re.findall(r"<\w+>([^<]+)</\w+>", data.decode()))
        del store.uploads[name]
        return store.save(name, data, only_new=request.headers.get("if-none-match") == "*")
    if "comp" not in query:
        return store.read(request, name)
    found, more = store.page(name, query.get("prefix", ""), query.get("marker", ""))
    lines = [
        f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>Wed, 21 Oct 2015 07:28:00 GMT</Last-Modified>"
        f"<Content-Length>{len(data)}</Content-Length><Content-Type>x</Content-Type><Etag>{escape(_tag(data))}</Etag>"
        "</Properties></Blob>"
        for key, data in found
    ]
    page = f"<Blobs>{''.join(lines)}</Blobs><NextMarker>{escape(more)}</NextMarker>"
    return Answer(body=f"<EnumerationResults>{page}</EnumerationResults>".encode())


@contextmanager
def serving() -> Iterator[Store]:
    """A store that ends with the block."""
    store = Store()

    def rule(request: Request) -> Answer:
        store.requests.append(f"{request.method} {request.path}")
        if store.answers and store.only in store.requests[-1]:
            return Answer(store.answers.pop(0))
        split = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        request.headers.setdefault("range", request.headers.get("x-ms-range", ""))
        answer = azure(store, request, unquote(split.path).lstrip("/"), query)
        answer.headers["x-ms-version"] = "2023-11-03"
        return answer

    with hostile(rule) as server:
        store.address = server.address
        yield store


ROWS = [{"prompt_id": f"p{at // 4}", "reward": float(at % 3 == 0), "text": "x" * at} for at in range(24)]
LINES = "".join(f"{json.dumps(row)}\n" for row in ROWS).encode()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store with lines in the bucket `box`; the tool finds it and its keys in the environment."""
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    stores._store.cache_clear()
    stores._remembered.cache_clear()
    with serving() as found:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", found.address)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "known")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
        found.url = "az://box"
        found.objects["box/in.jsonl"] = LINES
        yield found
    stores._store.cache_clear()


def test_google_has_a_store_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("account.json").write_text(
        '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'
    )
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "account.json")
    assert type(stores._store("gs://box")).__name__ == "GCSStore"
    stores._store.cache_clear()


def computing(store: Store) -> str:
    return f"compute {store.url}/in.jsonl -o {store.url}/out.jsonl"


def test_a_prefix_and_a_glob_are_read_page_by_page(store: Store) -> None:
    for name in ("step_10.jsonl", "step_2.jsonl", "step_2.advantages.jsonl", "sub/step_3.jsonl", "notes.txt"):
        store.objects[f"box/run/{name}"] = LINES
    for pattern, files in (("run/", "step_2 step_10 sub/step_3"), ("run/*.jsonl", "step_2 step_10")):
        done = adv(f"inspect '{store.url}/{pattern}' --group-within file --json")
        assert json.loads(done.out)["inputs"] == [f"{store.url}/run/{name}.jsonl" for name in files.split()]


@pytest.mark.parametrize("name", ["in.jsonl", "in.parquet"])
def test_an_object_gets_the_bytes_that_a_file_gets(store: Store, name: str) -> None:
    store.objects[f"box/{name}"] = write(name, ROWS).read_bytes()
    ran(f"compute {name} -o local.{name} -q")
    ran(f"compute {store.url}/{name} -o {store.url}/out/ -q")
    assert store.objects[f"box/out/{name}"] == Path(f"local.{name}").read_bytes()


def test_an_object_that_exists_or_is_made_meanwhile_is_not_replaced_without_force(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.objects["box/out.jsonl"] = b"mine"
    done = adv(computing(store))
    assert done.status == 2
    assert "exists; add --force" in done.err
    assert store.objects["box/out.jsonl"] == b"mine"
    meanwhile(monkeypatch, lambda: store.objects.update({"box/out.jsonl": b"theirs"}))
    monkeypatch.setattr(stores, "exists", lambda _: False)  # it was made a moment after the last look
    done = adv(computing(store))
    assert done.status == 2
    assert "exists; add --force" in done.err
    assert store.objects["box/out.jsonl"] == b"theirs"
    ran(f"{computing(store)} --force")
    assert store.objects["box/out.jsonl"].count(b"advantage") == len(ROWS)


@pytest.mark.parametrize("force", [True, False])
def test_a_large_output_is_sent_in_parts_and_appears_whole(store: Store, *, force: bool) -> None:
    data = b"".join(json.dumps({**row, "text": "y" * (1 << 20)}).encode() + b"\n" for row in ROWS)
    sink = stores._Spooled(f"{store.url}/out.jsonl", force=force, at_once=1 << 20)
    sink.write(data)
    sink.complete()
    assert sum(line.startswith("PUT") for line in store.requests) > 2
    assert store.objects["box/out.jsonl"] == data
    assert store.uploads == {}


def test_an_object_that_changes_between_the_readings_stops_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: store.objects.update({"box/in.jsonl": LINES.replace(b"1.0", b"0.0", 1)}))
    done = adv(computing(store))
    assert done.status == 1
    assert [*store.objects] == ["box/in.jsonl"]
    assert "the file changed while it was being read" in done.err


@pytest.mark.parametrize(("force", "size"), [("", 1), ("--force", 6 << 20)])
@pytest.mark.parametrize(("status", "words"), [(403, "access denied"), (503, "unexpected answer from the store")])
def test_an_output_that_the_store_does_not_take_is_named_and_leaves_no_object(
    store: Store, status: int, words: str, force: str, size: int
) -> None:
    store.objects["box/in.jsonl"] = LINES + json.dumps({**ROWS[0], "text": "x" * size}).encode()
    store.only, store.answers = "PUT", [status] * 99
    done = adv(f"{computing(store)} {force}")
    assert (done.status, done.err.count("\n"), [*store.objects]) == (1, 1, ["box/in.jsonl"]), done
    assert f"{store.url}/out.jsonl: {words}" in done.err
    assert "known" not in done.err
    assert "c2VjcmV0" not in done.err
    assert store.uploads == {}
