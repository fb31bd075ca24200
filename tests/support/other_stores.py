"""Azure's store on loopback, as far as obstore speaks to it: objects in memory, pages of two names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.hostile_server import Answer, Request, hostile, part

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
