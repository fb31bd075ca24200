"""An S3 server that holds its objects in memory and touches no more bytes of them than a request asks for.

`python -m benchmarks.memory_s3` prints its port, and ends with its standard input. It knows what the jobs of `stores.py` request, and
refuses everything else: it is for measuring, and moto is for testing. `GET /` gives what was moved since the last time, as JSON.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

WHEN = formatdate(1_700_000_000, usegmt=True)


class Handler(BaseHTTPRequestHandler):
    """Objects, ranges of them, uploads in parts, parts that are copied."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, tuple[str, bytes]]] = {}  # by bucket/key: a tag, and the content
    uploads: ClassVar[dict[str, dict[int, bytes | memoryview]]] = {}
    numbers = count(1)
    moved: ClassVar[dict[str, int]] = dict.fromkeys(("down", "up", "requests"), 0)
    lock = threading.Lock()

    def _handle_request(self) -> None:
        split = urlsplit(self.path)
        self.name = unquote(split.path).strip("/")
        self.query = {name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        body = self._body()
        if not self.name:
            self._answer(200, json.dumps(self.moved).encode())
            self.moved.update(dict.fromkeys(self.moved, 0))
            return
        with self.lock:
            self.moved["requests"] += 1
            self.moved["up"] += len(body)
        getattr(self, f"_{self.command.lower()}")(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle_request  # noqa: N815 - the names of http.server

    def _body(self) -> bytes:
        read = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return read
        parts, at = [], 0
        while size := int(read[at : (end := read.index(b"\r\n", at))].partition(b";")[0], 16):
            parts.append(read[end + 2 : end + 2 + size])
            at = end + 4 + size
        return b"".join(parts)

    def _answer(self, status: int, data: bytes | memoryview = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
            with self.lock:
                self.moved["down"] += len(data)

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _put(self, body: bytes) -> None:
        if "/" not in self.name:  # a bucket
            self._answer(200)
        elif "uploadId" in self.query:
            part: bytes | memoryview = body
            copied = self.headers.get("x-amz-copy-source")
            if copied:
                _, data = self.objects[unquote(copied).strip("/")]
                first, last = self.headers["x-amz-copy-source-range"].removeprefix("bytes=").split("-")
                part = memoryview(data)[int(first) : int(last) + 1]
            number = int(self.query["partNumber"])
            self.uploads[self.query["uploadId"]][number] = part
            tag = f'"{self.query["uploadId"]}-{number}"'
            result = f"<CopyPartResult><ETag>{escape(tag)}</ETag></CopyPartResult>" if copied else ""
            self._answer(200, result.encode(), ETag=tag)
        else:
            self._keep(body)

    def _post(self, _: bytes) -> None:
        if "uploads" in self.query:
            upload = str(next(self.numbers))
            self.uploads[upload] = {}
            bucket, key = self.name.split("/", 1)
            about = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            self._answer(200, f"<InitiateMultipartUploadResult>{about}</InitiateMultipartUploadResult>".encode())
        else:
            parts = self.uploads.pop(self.query["uploadId"])
            self._keep(b"".join(parts[number] for number in sorted(parts)), "CompleteMultipartUploadResult")

    def _keep(self, data: bytes, result: str = "") -> None:
        if self.headers.get("If-None-Match") == "*" and self.name in self.objects:
            self._fail(412, "PreconditionFailed")
            return
        tag = f'"{next(self.numbers)}"'
        self.objects[self.name] = tag, data
        self._answer(200, f"<{result}><ETag>{escape(tag)}</ETag></{result}>".encode() if result else b"", ETag=tag)

    def _get(self, _: bytes) -> None:
        if "/" not in self.name:
            self._list()
            return
        if self.name not in self.objects:
            self._fail(404, "NoSuchKey")
            return
        tag, data = self.objects[self.name]
        if self.headers.get("If-Match", tag) != tag:
            self._fail(412, "PreconditionFailed")
            return
        about = {"ETag": tag, "Last_Modified": WHEN, "Accept_Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if part is None:
            self._answer(200, data, **about)
            return
        start = int(part[1]) if part[1] else max(0, len(data) - int(part[2]))
        end = min(int(part[2]) + 1 if part[1] and part[2] else len(data), len(data))
        self._answer(206, memoryview(data)[start:end], Content_Range=f"bytes {start}-{end - 1}/{len(data)}", **about)

    _head = _get

    def _list(self) -> None:
        start = f"{self.name}/{self.query.get('prefix', '')}"
        found = [
            f"<Contents><Key>{escape(name.partition('/')[2])}</Key><Size>{len(data)}</Size><ETag>{escape(tag)}</ETag>"
            "<LastModified>2023-11-14T22:13:20.000Z</LastModified></Contents>"
            for name, (tag, data) in sorted(self.objects.items())
            if name.startswith(start)
        ]
        self._answer(200, f"<ListBucketResult>{''.join(found)}</ListBucketResult>".encode())

    def _delete(self, _: bytes) -> None:
        self.uploads.pop(self.query.get("uploadId", ""), None)
        if "uploadId" not in self.query:
            self.objects.pop(self.name, None)
        self._answer(204)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


def main() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
