"""An S3 server as a process of its own on loopback, and a proxy before it that counts bytes and breaks answers."""

from __future__ import annotations

import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

_SERVER: Final = (
    "import sys\n"
    "from moto.server import ThreadedMotoServer\n"
    "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\n"
    "server.start()\n"
    "print(server.get_host_and_port()[1], flush=True)\n"
    "sys.stdin.read()\n"  # until the tests close it, or end
)
PAGE: Final = 20  # objects of a page of a listing
_BLOCK: Final = 1 << 16


class Quiet(socketserver.BaseServer):
    """A server of tests; Python's own prints a traceback for each client that goes before it has its whole answer."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error of the tests."""


@contextmanager
def listening(server: socketserver.BaseServer) -> Iterator[None]:
    """Serve in a thread until the end of the block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def running() -> Iterator[int]:
    """The port of a server that ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVER], env={**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@dataclass
class Proxy:
    """What has passed in each direction, and what is to happen to requests."""

    port: int
    sent: int = 0
    received: int = 0
    requests: list[str] = field(default_factory=list)  # "GET /bucket/key"
    answers: list[str] = field(default_factory=list)  # status lines and bodies that the next requests get instead
    only: str = ""  # a part of the requests that get them
    pauses: list[float] = field(default_factory=list)  # seconds that the next requests wait
    cut: int = 0  # this many answers end after their first bytes

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        """Count from 0 again, and break nothing."""
        self.sent = self.received = self.cut = 0
        self.requests.clear()
        self.answers.clear()
        self.only = ""
        self.pauses.clear()


@contextmanager
def proxied(server: int) -> Iterator[Proxy]:
    """A proxy before the server at this port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            """One connection; a request is looked at when its first bytes come in."""
            with socket.create_connection(("127.0.0.1", server)) as upstream:
                back = threading.Thread(target=self._answers, args=(upstream,), daemon=True)
                back.start()
                with suppress(OSError):
                    while data := self.request.recv(_BLOCK):
                        proxy.sent += len(data)
                        method, _, rest = data.partition(b" ")
                        if method in {b"GET", b"HEAD", b"PUT", b"POST", b"DELETE"}:
                            proxy.requests.append(f"{method.decode()} {rest.partition(b' ')[0].decode()}")
                            if proxy.pauses:
                                time.sleep(proxy.pauses.pop(0))
                            if proxy.answers and proxy.only in proxy.requests[-1]:
                                status, _, body = proxy.answers.pop(0).partition("\n")
                                head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                                self.request.sendall((head + (body if method != b"HEAD" else "")).encode())
                                break
                        upstream.sendall(data)
                with suppress(OSError):
                    upstream.shutdown(socket.SHUT_RDWR)
                back.join()

        def _answers(self, upstream: socket.socket) -> None:
            with suppress(OSError):
                while data := upstream.recv(_BLOCK):
                    proxy.received += len(data)
                    if proxy.cut and b"206" in data[:20]:
                        proxy.cut -= 1
                        self.request.sendall(data[: len(data) // 2])
                        break
                    self.request.sendall(data)
            with suppress(OSError):
                self.request.shutdown(socket.SHUT_RDWR)

    class Server(Quiet, socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    front = Server(("127.0.0.1", 0), Handler)
    proxy = Proxy(front.server_address[1])
    with listening(front):
        yield proxy
