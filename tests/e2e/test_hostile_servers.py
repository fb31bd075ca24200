"""Servers that answer as none should: each is refused in one line, and none gets a token that is not its own."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from grpo_cli.errors import DataError
from grpo_cli.files import stores
from tests.support.command import Done, adv, files
from tests.support.drawn import paired
from tests.support.hostile_server import DRIPS, Answer, Request, hostile, part

Rule = Callable[[Request], Answer]
LINES = b"""{"prompt_id": "a", "reward": 1.0}
{"prompt_id": "a", "reward": 0.0}
"""
TREE = "/api/datasets/owner/runs/tree/main/data?recursive=true"
FILE = "/datasets/owner/runs/resolve/main/data/a.jsonl"
LISTED = Answer(body=b'[{"type": "file", "path": "data/a.jsonl", "size": 68}]')
OK = Done(0, "", "")


def forget() -> None:
    """Clients and bytes that are in the process."""
    for cached in (stores._store, stores._boto3, stores._remembered):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of other tests is known, the token is ours, S3 needs none, and nothing is asked again for minutes."""
    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    monkeypatch.setenv("GRPO_ADV_TIMEOUT", "2")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    forget()
    yield
    forget()


def hub(request: Request) -> Answer:
    if request.path == TREE:
        return LISTED
    return part(request, LINES) if request.path == FILE else Answer(404)


def but(path: str, answer: Answer) -> Rule:
    """A hub with another answer to whoever wants this path."""
    return lambda request: answer if request.path == path else hub(request)


def computed(address: str, name: str = "hf://datasets/owner/runs/data") -> Done:
    return adv(f"compute {name} -o out.jsonl -q", HF_ENDPOINT=address, AWS_ENDPOINT_URL=address)


def refused(done: Done, said: str = "") -> None:
    assert (done.status, done.err.count("\n"), said in done.err) == (1, 1, True), done
    assert "hf-secret" not in done.err
    assert [*Path().glob("out*")] == []


@pytest.mark.parametrize("by", ["link", "redirect"])
@pytest.mark.parametrize("scheme", ["http", "file"])
def test_a_listing_that_leads_elsewhere_is_not_followed(by: str, scheme: str, place: Path) -> None:
    Path("secret.json").write_bytes(LISTED.body)
    with hostile(hub) as other:
        there = f"{other.address}{TREE}" if scheme == "http" else f"file://{place}/secret.json"
        link = Answer(headers={"Link": f'<{there}>; rel="next"'}, body=b"[]")
        with hostile(but(TREE, link if by == "link" else Answer(302, {"Location": there}))) as server:
            done = computed(server.address)
        assert done.status in {1, 2} and done.err.count("\n") == 1, done
        assert other.seen == []
        assert not Path("out.jsonl").exists()


def test_a_file_that_lies_elsewhere_is_read_without_the_token() -> None:
    with hostile(lambda request: part(request, LINES)) as other:
        with hostile(but(FILE, Answer(302, {"Location": f"{other.address}/cdn"}))) as server:
            assert computed(server.address) == OK
        assert {one.headers["authorization"] for one in server.seen} == {"Bearer hf-secret"}
        assert other.seen
        for one in other.seen:
            assert "authorization" not in one.headers


@pytest.mark.parametrize(
    "first",
    [
        Answer(headers={"Link": '</more>; rel="next"'}, body=b"[]"),  # without a host
        Answer(307, {"Location": "/more"}),  # the data set has moved
    ],
    ids=["link", "moved"],
)
def test_a_link_on_the_same_hub_is_followed(first: Answer) -> None:
    rule = but(TREE, first)
    with hostile(lambda request: LISTED if request.path == "/more" else rule(request)) as server:
        assert computed(server.address) == OK


@pytest.mark.parametrize(
    ("answer", "limits"),
    [
        (Answer(headers={"Link": f'<{TREE}>; rel="next"'}, body=b"[]"), {"most_pages": 50}),
        (Answer(body=b" " * DRIPS, drip=True), {"seconds": 0.5}),
    ],
    ids=["without an end", "drips"],
)
def test_a_listing_that_goes_on_and_on_is_left(
    answer: Answer, limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with hostile(but(TREE, answer)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        with pytest.raises(DataError, match=r"^hf://datasets/owner/runs/data: the hub's listing does not end;"):
            list(stores._listed_on_hub("hf://datasets/owner/runs", "data", **limits))
        assert len(server.seen) <= 60


@pytest.mark.parametrize(
    "body",
    [b"<html>log in</html>", b"{}", b"[5]", b'[{"type":"file"}]', b'[{"type":"file","path":"a","size":"x"}]', b"\xff", b"[" * 9999],
)  # fmt: skip
def test_a_listing_that_is_none_is_one_line(body: bytes) -> None:
    with hostile(but(TREE, Answer(body=body))) as server:
        done = computed(server.address)
    refused(done, "no such object" if body == b"{}" else "the hub did not answer with a list of files")


@pytest.mark.parametrize("path", ["data/../../../../evil.jsonl", "data//evil.jsonl", "data/./b/../../evil.jsonl"])
def test_a_listed_file_is_not_written_outside_of_the_output_folder(path: str, place: Path) -> None:
    evil = f', {{"type": "file", "path": "{path}", "size": 68}}]'
    listed = Answer(body=LISTED.body.replace(b"]", evil.encode()))

    def rule(request: Request) -> Answer:
        return listed if request.path == TREE else part(request, LINES)

    inner = place / "a" / "b" / "c"
    inner.mkdir(parents=True)
    with hostile(rule) as server:
        line = "compute hf://datasets/owner/runs/data -o out/ --group-within file"
        done = adv(line, cwd=inner, HF_ENDPOINT=server.address)
    assert done.status == 0, done
    written = [*files(place)]
    assert written
    for name in written:
        assert name.startswith("a/b/c/out/")


def test_a_hub_that_refuses_leaves_no_connection_open() -> None:
    with hostile(lambda _: Answer(403, body=b"no")) as server:
        refused(computed(server.address), "access denied")
    gc.collect()  # an open connection is a warning then, and so an error


def changed(**change: Any) -> Rule:
    """The file, but for what is said of it or is sent."""

    def rule(request: Request) -> Answer:
        answer = part(request, LINES)
        for name, value in change.items() if request.method == "GET" else ():
            setattr(answer, name, value)
        return answer

    return rule


def elsewhere(location: str) -> Rule:
    return lambda request: part(request, LINES) if request.method == "HEAD" else Answer(302, {"Location": location})


RANGE = {"ETag": '"one"', "Content-Range": "bytes 5-67/68"}
WRONG: dict[str, Rule] = {
    "range": changed(headers=RANGE, body=LINES[5:]),
    "short": changed(body=LINES[:-20]),
    "more said": changed(length=20),
    "less said": changed(length=-20),
    "tag": lambda request: part(request, LINES, ETag='"one"' if request.method == "HEAD" else '"two"'),
    "size": lambda request: part(request, LINES if request.method == "HEAD" else LINES + LINES),
    "drip": changed(drip=True),
    "loop": lambda request: elsewhere(request.path)(request),
    "file": elsewhere("file:///etc/passwd"),
}


PLACES = ["{}/a.jsonl", "hf://datasets/owner/runs/data/a.jsonl", "s3://bucket/a.jsonl"]


@pytest.mark.parametrize(("how", "name"), paired(WRONG, PLACES))
def test_wrong_bytes_are_never_computed(how: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "drip":
        monkeypatch.setenv("GRPO_ADV_TIMEOUT", "0.5")  # it is asked twice
    with hostile(WRONG[how]) as server:
        refused(computed(server.address, name.format(server.address)))


@pytest.mark.parametrize(
    ("name", "suffix", "answers"),
    [
        ("{}/a", "jsonl", "412"), ("{}/a", "parquet", "the new bytes"),
        ("s3://bucket/a", "jsonl", "the new bytes"), ("s3://bucket/a", "parquet", "412"),
    ],
)  # fmt: skip
def test_an_object_that_changes_between_two_ranges_of_a_reading_stops_the_run(
    name: str, suffix: str, answers: str, place: Path
) -> None:
    texts = [f"{at}" * 500_000 for at in range(10, 34)]
    versions = []
    for rewards in ([0.0, 1.0] * 12, [1.0, 0.0] * 12):
        path = place / f"version.{suffix}"
        frame = pl.DataFrame({"prompt_id": [*range(6)] * 4, "text": texts, "reward": rewards})
        if suffix == "jsonl":
            frame.write_ndjson(path)
        else:
            frame.write_parquet(path, row_group_size=4, compression="uncompressed")
        versions.append(path.read_bytes())
    assert len(versions[0]) == len(versions[1]) > 1 << 23  # not one range
    ranges = []

    def rule(request: Request) -> Answer:
        ranges.extend(request.headers.get("range", "").split())
        if len(ranges) <= 2:
            return part(request, versions[0])
        if answers == "412" and "if-match" in request.headers:
            return Answer(412)
        return part(request, versions[1], ETag='"two"')

    with hostile(rule) as server:
        done = computed(server.address, f"{name.format(server.address)}.{suffix}")
    assert len(ranges) > 2
    refused(done, f"a.{suffix}: the file changed while it was being read")


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "nan", "inf"])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(seconds: str) -> None:
    done = adv("compute http://127.0.0.1:9/a.jsonl -o out.jsonl", GRPO_ADV_TIMEOUT=seconds)
    assert done.status == 2
    assert done.err.startswith(f"error: the environment variable GRPO_ADV_TIMEOUT is '{seconds}'; set it")
