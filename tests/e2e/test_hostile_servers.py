"""Servers that answer as none should: each is refused in one line, and none gets a token that is not its own."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from grpo_cli.errors import DataError
from grpo_cli.files import stores
from tests.support.command import Done, adv
from tests.support.hostile_server import DRIPS, Answer, Request, hostile, part

LINES = "".join(f'{{"prompt_id": "p{at // 4}", "reward": {float(at % 3 == 0)}}}\n' for at in range(24)).encode()
TREE = "/api/datasets/owner/runs/tree/main/data?recursive=true"
FILE = "/datasets/owner/runs/resolve/main/data/a.jsonl"
LISTED: list[Any] = [{"type": "file", "path": "data/a.jsonl", "size": len(LINES)}]
OTHER_LINES = LINES.replace(b"1.0", b"0.5")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clients and bytes of other tests are forgotten, the token is ours, and nothing is asked again for minutes."""
    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    monkeypatch.setenv("GRPO_ADV_TIMEOUT", "2")
    for cached in (stores._store, stores._remembered):
        cached.cache_clear()
    yield
    for cached in (stores._store, stores._remembered):
        cached.cache_clear()


def hub(request: Request) -> Answer:
    if request.path == TREE:
        return Answer(body=json.dumps(LISTED).encode())
    return part(request, LINES) if request.path == FILE else Answer(404)


def listing(answer: Answer) -> Callable[[Request], Answer]:
    """A hub with this answer to whoever wants its listing."""
    return lambda request: answer if request.path == TREE else Answer(404)


def asked(address: str, folder: Path, name: str = "hf://datasets/owner/runs/data", *words: str) -> Done:
    return adv("compute", name, "-o", "out.jsonl", "-q", *words, cwd=folder, HF_ENDPOINT=address)


def refused(done: Done, *words: str) -> None:
    assert (done.status, done.err.count("\n")) == (1, 1), done
    assert "hf-secret" not in done.err
    for word in words:
        assert word in done.err


def test_an_honest_hub_is_read(tmp_path: Path) -> None:
    with hostile(hub) as server:
        assert asked(server.address, tmp_path) == Done(0, "", "")
        assert {one.headers["authorization"] for one in server.seen} == {"Bearer hf-secret"}


@pytest.mark.parametrize("by", ["link", "redirect"])
@pytest.mark.parametrize("scheme", ["http", "file"])
def test_a_listing_that_leads_elsewhere_is_not_followed(by: str, scheme: str, tmp_path: Path) -> None:
    with hostile(hub) as other:
        there = f"{other.address}{TREE}" if scheme == "http" else f"file://{tmp_path}/secret.json"
        (tmp_path / "secret.json").write_text(json.dumps(LISTED))

        def rule(request: Request) -> Answer:
            if request.path != TREE:
                return hub(request)
            if by == "link":
                return Answer(headers={"Link": f'<{there}>; rel="next"'}, body=b"[]")
            return Answer(302, {"Location": there})

        with hostile(rule) as server:
            done = asked(server.address, tmp_path)
        assert done.status in {1, 2} and done.err.count("\n") == 1, done
        assert other.seen == []
        assert not (tmp_path / "out.jsonl").exists()


def test_a_file_that_lies_elsewhere_is_read_without_the_token(tmp_path: Path) -> None:
    with hostile(lambda request: part(request, LINES)) as other:

        def rule(request: Request) -> Answer:
            return Answer(302, {"Location": f"{other.address}/cdn"}) if request.path == FILE else hub(request)

        with hostile(rule) as server:
            assert asked(server.address, tmp_path) == Done(0, "", "")
        assert other.seen and not any("authorization" in one.headers for one in other.seen)


def test_a_link_without_a_host_is_the_hubs_own(tmp_path: Path) -> None:
    def rule(request: Request) -> Answer:
        return Answer(headers={"Link": '</more>; rel="next"'}, body=b"[]") if request.path == TREE else (
            Answer(body=json.dumps(LISTED).encode()) if request.path == "/more" else hub(request)
        )  # fmt: skip

    with hostile(rule) as server:
        assert asked(server.address, tmp_path) == Done(0, "", "")


def test_a_data_set_that_has_moved_on_the_same_hub_is_followed(tmp_path: Path) -> None:
    moved = "/api/datasets/new-owner/runs/tree/main/data?recursive=true"

    def rule(request: Request) -> Answer:
        if request.path == TREE:
            return Answer(307, {"Location": moved})
        return Answer(body=json.dumps(LISTED).encode()) if request.path == moved else hub(request)

    with hostile(rule) as server:
        assert asked(server.address, tmp_path) == Done(0, "", "")


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
    with hostile(listing(answer)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        with pytest.raises(DataError, match=r"^hf://datasets/owner/runs/data: the hub's listing does not end;"):
            list(stores._listed_on_hub("hf://datasets/owner/runs", "data", **limits))
        assert len(server.seen) <= 60


@pytest.mark.parametrize(
    "body",
    [b"<html>log in</html>", b"{}", b"[5]", b'[{"type":"file"}]', b'[{"type":"file","path":"a","size":"x"}]', b"\xff", b"[" * 9999],
)  # fmt: skip
def test_a_listing_that_is_none_is_one_line(body: bytes, tmp_path: Path) -> None:
    with hostile(listing(Answer(body=body))) as server:
        refused(
            asked(server.address, tmp_path),
            "no such object" if body == b"{}" else "the hub did not answer with a list of files",
        )


@pytest.mark.parametrize("path", ["data/../../../../evil.jsonl", "data//evil.jsonl", "data/./b/../../evil.jsonl"])
def test_a_listed_file_is_not_written_outside_of_the_output_folder(path: str, tmp_path: Path) -> None:
    listed = [*LISTED, {"type": "file", "path": path, "size": len(LINES)}]

    def rule(request: Request) -> Answer:
        if request.path == TREE:
            return Answer(body=json.dumps(listed).encode())
        return part(request, LINES) if request.path.endswith(".jsonl") else Answer(404)

    place = tmp_path / "a" / "b" / "c"
    place.mkdir(parents=True)
    with hostile(rule) as server:
        words = ["compute", "hf://datasets/owner/runs/data", "-o", "out/", "--group-within", "file"]
        done = adv(*words, cwd=place, HF_ENDPOINT=server.address)
    written = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert done.status == 0, done
    assert written and all(one.is_relative_to(place / "out") for one in written)


def test_a_hub_that_refuses_leaves_no_connection_open(tmp_path: Path) -> None:
    with hostile(lambda _: Answer(403, body=b"no")) as server:
        done = asked(server.address, tmp_path)
    refused(done)
    assert "access denied" in done.err
    gc.collect()  # an open connection is a warning then, and so an error


def wrong(request: Request, how: str) -> Answer:
    honest = part(request, LINES)
    if request.method == "HEAD":
        return honest
    if how == "range":
        honest.headers["Content-Range"] = f"bytes 5-{len(LINES) - 1}/{len(LINES)}"
        honest.body = LINES[5:]
    elif how == "short":
        honest.body = honest.body[:-20]
    elif how == "tag":
        return part(request, OTHER_LINES, ETag='"two"')
    elif how == "size":
        return part(request, LINES + LINES)
    elif how in {"more said", "less said"}:
        honest.length = 20 if how == "more said" else -20
    elif how == "drip":
        honest.drip = True
    elif how == "loop":
        return Answer(302, {"Location": request.path})
    elif how == "file":
        return Answer(302, {"Location": "file:///etc/passwd"})
    return honest


@pytest.mark.parametrize("how", ["range", "short", "more said", "less said", "tag", "size", "drip", "loop", "file"])
@pytest.mark.parametrize("scheme", ["http", "hf", "s3"])
def test_wrong_bytes_are_never_computed(scheme: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule: Callable[[Request], Answer] = lambda request: wrong(request, how)  # noqa: E731
    with hostile(rule) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        stores._boto3.cache_clear()
        if how == "drip":
            monkeypatch.setenv("GRPO_ADV_TIMEOUT", "0.5")  # it is asked twice
        name = {"http": f"{server.address}/a.jsonl", "hf": "hf://datasets/owner/runs/data/a.jsonl", "s3": "s3://bucket/a.jsonl"}  # fmt: skip
        done = asked(server.address, tmp_path, name[scheme])
    stores._boto3.cache_clear()
    refused(done)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("answers", ["the new bytes", "412"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_an_object_that_changes_between_two_ranges_of_a_reading_stops_the_run(
    scheme: str, suffix: str, answers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewards = {"before": [0.0, 1.0], "after": [1.0, 0.0]}
    versions = {}
    for name, reward in rewards.items():
        texts = [np.random.default_rng(at).bytes(500_000).hex() for at in range(24)]
        frame = pl.DataFrame({"prompt_id": [at // 4 for at in range(24)], "text": texts, "reward": reward * 12})
        frame.write_parquet(tmp_path / name, row_group_size=4, compression="uncompressed")
        lines = frame.write_ndjson().encode()
        versions[name] = lines if suffix == "jsonl" else (tmp_path / name).read_bytes()
    assert len(versions["before"]) == len(versions["after"]) > 1 << 23  # not one range
    ranges = [0]

    def rule(request: Request) -> Answer:
        ranges[0] += "range" in request.headers
        if ranges[0] <= 2:
            return part(request, versions["before"])
        if answers == "412" and "if-match" in request.headers:
            return Answer(412)
        return part(request, versions["after"], ETag='"two"')

    with hostile(rule) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        stores._boto3.cache_clear()
        name = f"{server.address}/a.{suffix}" if scheme == "http" else f"s3://bucket/a.{suffix}"
        done = adv("compute", name, "-o", f"out.{suffix}", "-q", cwd=tmp_path)
    stores._boto3.cache_clear()
    assert ranges[0] > 2
    refused(done, f"a.{suffix}: the file changed while it was being read")
    assert not (tmp_path / f"out.{suffix}").exists()


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "nan", "inf"])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(
    seconds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPO_ADV_TIMEOUT", seconds)
    done = adv("compute", "http://127.0.0.1:9/a.jsonl", "-o", "out.jsonl", cwd=tmp_path)
    assert done.status == 2
    assert done.err.startswith(f"error: the environment variable GRPO_ADV_TIMEOUT is '{seconds}'; set it")
