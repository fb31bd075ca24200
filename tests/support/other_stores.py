"""Google's and Azure's stores on loopback, as far as obstore speaks to them: objects in memory, pages of two names."""

from __future__ import annotations

import http.server
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import md5
from itertools import count
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.s3_server import WebServer, listening

PAGE: Final = 2
_WHEN: Final = 1_700_000_000


@dataclass
class Store:
    """What is in it (`bucket/key`), and what was requested."""

    port: int = 0
    url: str = ""  # of the bucket, as the command line names it
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[str, bytes]] = field(default_factory=dict)  # parts of those that are not complete
    requests: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)  # statuses that the next requests get instead
    only: str = ""  # a part of the requests that get them

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self.port}"


def _tag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


class _Handler(http.server.BaseHTTPRequestHandler):
    """What both have in common: whole objects, parts of them by Range, and conditions on ETags."""

    protocol_version = "HTTP/1.1"
    store: ClassVar[Store]
    numbers: ClassVar[Iterator[int]] = count(1)

    def _request(self) -> None:
        split = urlsplit(self.path)
        self.name = unquote(split.path).lstrip("/")
        self.query = {name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.store.requests.append(f"{self.command} {self.path}")
        if self.store.answers and self.store.only in self.store.requests[-1]:
            self._send(self.store.answers.pop(0))
        else:
            getattr(self, f"_{self.command.lower()}")()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _request  # noqa: N815 - the names of http.server

    def _send(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), "x-ms-version": "2023-11-03", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _get(self) -> None:
        if "prefix" in self.query or "list-type" in self.query or "comp" in self.query:
            self._list()
            return
        data = self.store.objects.get(self.name)
        if data is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif self.headers.get("If-Match", _tag(data)) != _tag(data):
            self._send(412)
        else:
            about = {"ETag": _tag(data), "Last_Modified": formatdate(_WHEN, usegmt=True)}
            part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or self.headers.get("x-ms-range") or "")
            if part is None:
                self._send(200, data, **about)
                return
            start, end = int(part[1]), min(int(part[2]), len(data) - 1)
            self._send(206, data[start : end + 1], Content_Range=f"bytes {start}-{end}/{len(data)}", **about)

    _head = _get

    def _save(self, data: bytes, *, only_new: bool, there: int) -> None:
        if only_new and self.name in self.store.objects:
            self._send(there, b"<Error><Code>BlobAlreadyExists</Code></Error>")
            return
        self.store.objects[self.name] = data
        self._send(201 if there != 412 else 200, ETag=_tag(data))

    def _page(self, after: str) -> tuple[list[tuple[str, bytes]], str]:
        """Names and content of a page of a listing, and the last name where there are more."""
        bucket = self.name.rstrip("/")
        start = f"{bucket}/{self.query.get('prefix', '')}"
        names = sorted(name for name in self.store.objects if name.startswith(start))
        names = [name for name in names if name > f"{bucket}/{after}"] if after else names
        found = [(name.removeprefix(f"{bucket}/"), self.store.objects[name]) for name in names[:PAGE]]
        return found, found[-1][0] if len(names) > PAGE else ""

    def _list(self) -> None:
        raise NotImplementedError

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


class Google(_Handler):
    """The XML interface of `gs://`."""

    def _put(self) -> None:
        if "uploadId" in self.query:
            self.store.uploads[self.query["uploadId"]][self.query["partNumber"].zfill(5)] = self.body
            self._send(200, ETag=_tag(self.body))
        else:
            self._save(self.body, only_new=self.headers.get("x-goog-if-generation-match") == "0", there=412)

    def _post(self) -> None:
        if "uploads" in self.query:
            number = f"upload-{next(self.numbers)}"
            self.store.uploads[number] = {}
            answer = f"<UploadId>{number}</UploadId>"
            self._send(200, f"<InitiateMultipartUploadResult>{answer}</InitiateMultipartUploadResult>".encode())
            return
        parts = self.store.uploads.pop(self.query["uploadId"])
        data = self.store.objects[self.name] = b"".join(parts[number] for number in sorted(parts))
        tag = escape(_tag(data))
        self._send(200, f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>".encode())

    def _delete(self) -> None:
        self.store.uploads.pop(self.query.get("uploadId", ""), None)
        self._send(204)

    def _list(self) -> None:
        found, more = self._page(self.query.get("continuation-token", ""))
        lines = [
            f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size><ETag>{escape(_tag(data))}</ETag>"
            "<LastModified>2023-11-14T22:13:20.000Z</LastModified></Contents>"
            for name, data in found
        ]
        token = f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" * bool(more)
        self._send(200, f"<ListBucketResult>{''.join(lines)}{token}</ListBucketResult>".encode())


class Azure(_Handler):
    """The blobs of `az://`; the first part of a path is the account where the address has no name."""

    def _put(self) -> None:
        blocks = self.store.uploads.setdefault(self.name, {})
        if self.query.get("comp") == "block":
            blocks[self.query["blockid"]] = self.body
            self._send(201)
            return
        data, only_new = self.body, self.headers.get("If-None-Match") == "*"
        if self.query.get("comp") == "blocklist":
            named = re.findall(r"<\w+>([^<]+)</\w+>", self.body.decode())
            data = b"".join(blocks[name] for name in named)
        del self.store.uploads[self.name]
        self._save(data, only_new=only_new, there=409)

    def _list(self) -> None:
        found, more = self._page(self.query.get("marker", ""))
        lines = [
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{formatdate(_WHEN, usegmt=True)}</Last-Modified>"
            f"<Content-Length>{len(data)}</Content-Length><Content-Type>x</Content-Type><Etag>{escape(_tag(data))}</Etag>"
            "</Properties></Blob>"
            for name, data in found
        ]
        page = f"<Blobs>{''.join(lines)}</Blobs><NextMarker>{escape(more)}</NextMarker>"
        self._send(200, f"<EnumerationResults>{page}</EnumerationResults>".encode())


@contextmanager
def serving(kind: type[_Handler]) -> Iterator[Store]:
    """A store of this kind that ends with the block."""
    store = Store()
    handler = type("Handler", (kind,), {"store": store})
    web = WebServer(("127.0.0.1", 0), handler)
    store.port = web.server_port
    with listening(web):
        yield store
