"""A server on loopback that answers as none should: what it says of files, and whom it sends where, is up to a test."""

from __future__ import annotations

import http.server
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar, Final

from tests.support.s3_server import listening

DRIPS: Final = 200  # bytes that a dripping answer gives, one after the other
PAUSE: Final = 0.02  # seconds before each of them
MOST: Final = 10_000  # requests that a server answers


@dataclass
class Answer:
    """A status, headers and a body; `drip` sends it byte by byte, `length` is added to what is said of it."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    drip: bool = False
    length: int = 0  # what is said of the body's length, beyond what it has


@dataclass(frozen=True)
class Request:
    """What was requested: the method, the path with its query, the headers by their names in lower case, and the body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


def part(request: Request, data: bytes, **headers: str) -> Answer:
    """What an honest server says of a file."""
    about = {"ETag": '"one"', "Accept-Ranges": "bytes", **headers}
    asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
    if asked is None:
        return Answer(200, about, data)
    start = int(asked[1])
    end = min(int(asked[2]), len(data) - 1)
    return Answer(206, {"Content-Range": f"bytes {start}-{end}/{len(data)}", **about}, data[start : end + 1])


@dataclass
class Server:
    """A server, the rule by which it answers, and the requests it got."""

    rule: Callable[[Request], Answer]
    port: int = 0
    seen: list[Request] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server_of_test: ClassVar[Server]

    def _request(self) -> None:
        server = self.server_of_test
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, self.rfile.read(int(headers.get("content-length", "0"))))
        server.seen.append(request)
        answer = server.rule(request) if len(server.seen) <= MOST else Answer(503)
        self.send_response(answer.status)
        for name, value in {"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body) + answer.length))
        self.end_headers()
        if self.command == "HEAD":
            return
        with suppress(OSError):  # the other side has had enough
            if not answer.drip:
                self.wfile.write(answer.body)
            for at in range(DRIPS if answer.drip else 0):
                self.wfile.write(answer.body[at : at + 1])
                self.wfile.flush()
                time.sleep(PAUSE)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _request  # noqa: N815 - the names of http.server

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@contextmanager
def hostile(rule: Callable[[Request], Answer]) -> Iterator[Server]:
    """A server that answers by a rule, and ends with the block."""
    server = Server(rule)
    handler = type("Handler", (_Handler,), {"server_of_test": server})
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.port = web.server_port
    with listening(web):
        yield server
