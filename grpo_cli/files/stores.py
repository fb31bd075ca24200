"""Objects in stores and on web servers: found, pinned by ETag and size, read by ranges, written whole or not at all.

`s3://`, `gs://` and `az://` are read and written, `http(s)://` and `hf://datasets/` are read, by obstore (the extra
`cloud`) with its own retries. On S3 boto3 writes, because it can let the store copy bytes that stay as they are.
Credentials are found as the tools of each store find them; no message contains them.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, lru_cache
from io import RawIOBase
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, ClassVar, Self, cast
from urllib.parse import quote, urljoin, urlsplit

from grpo_cli.errors import DataError, InputChanged, UsageError, Way
from grpo_cli.files.inputs import (
    STATE,
    Input,
    Pin,
    Suffixes,
    file_of,
    is_arrow_data,
    is_note,
    is_passed_over,
    is_readable,
    natural,
)
from grpo_cli.files.inputs import pinned as pinned_file
from grpo_cli.files.kept import is_input, note

WRITABLE = ("s3", "gs", "az")
SCHEMES = (*WRITABLE, "http", "https", "hf")
_URL = re.compile(rf"({'|'.join(SCHEMES)})://")
_LEAST = 1 << 16  # fewest bytes of a request
_MOST = 1 << 23  # most bytes of a request, when an object is read sequentially
# Bytes of a part of an upload; twice as many after every thousand of the 10,000 that are allowed.
_PART = 1 << 24
_MANY = 1000  # parts of one size
_LEAST_COPY = 5 << 20  # the smallest part that S3 accepts, except for the last
_MOST_COPY = 5 << 30  # the largest part that S3 copies
# Bytes of an object that is sent in a single request, which can be made to replace nothing.
_MOST_AT_ONCE = 320 << 20
_MOST_PAGES = 2000  # most pages of a hub listing, each with a thousand files
_MOST_LISTED = 64 << 20  # most bytes of a page
_LISTING = 600  # most seconds for all pages
_TIMEOUT = "GRPO_ADV_TIMEOUT"  # seconds that a request to a store may take
# Errors that obstore raises itself.
_OF_STORES = (FileNotFoundError, PermissionError, ConnectionError, TimeoutError)
_MAGIC = re.compile(r"[*?[]")


def is_url(name: str) -> bool:
    """Whether a name is a URL, not a file."""
    return _URL.match(name) is not None


# --- reading -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored(Input):
    """An object that is read twice and must not change; `path` may have a signature, which `name` leaves out."""

    is_local: ClassVar[bool] = False

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """Pin an object."""
        url = os.fspath(path)
        with _explained(shown(url)):
            import obstore

            store, key = _place(url)
            return cls.of(url, obstore.head(store, key))

    @classmethod
    def of(cls, url: str, found: Any) -> Self:
        """Pin an object by the metadata of the store."""
        note(url)
        changed = int(found["last_modified"].timestamp() * 1e9)
        return cls(shown(url), url, Pin(0, found["size"], changed, 0, 0, found["e_tag"] or ""))

    def open(self) -> BinaryIO:
        """Open at the first byte."""
        return file_of(_Ranges(self).into, self.pin.size, buffer=_LEAST)

    def check(self) -> None:
        """Stop the run if this is no longer the object that was pinned."""
        if Stored.at(self.path).pin != self.pin:
            raise InputChanged.between_readings(self.name)

    def between(self, start: int, end: int) -> bytes:
        """A range of bytes of the object as it was pinned."""
        tag = self.pin.tag
        with _explained(self.name):
            import obstore

            store, key = _place(self.path)
            same: Any = {"if_match": tag} if tag else {}
            same["range"] = (start, end)
            answer = obstore.get(store, key, options=same)
            found = answer.meta
            data = bytes(answer.bytes())
        # A server that does not support If-Match returns the new bytes.
        tags = {tag, found["e_tag"] or tag} - {""}
        if len(data) != end - start or found["size"] != self.pin.size or len(tags) > 1:
            raise InputChanged.between_readings(self.name)
        return data


def pinned(name: Path | str) -> Input:
    """Pin the file or object with this name; a pipe is spooled."""
    return Stored.at(str(name)) if is_url(str(name)) else pinned_file(Path(name))


class _Ranges:
    """The bytes of an object. Requests grow while it is read sequentially, and stay small for random access."""

    def __init__(self, source: Stored) -> None:
        self._source = source
        self._data = b""
        self._start = 0
        self._step = _LEAST

    def into(self, buffer: memoryview, at: int) -> int:
        """Fill a buffer with the bytes from an offset on."""
        size = self._source.pin.size
        end = self._start + len(self._data)
        if not self._start <= at < end and len(buffer):
            self._step = min(2 * self._step, _MOST) if self._data and at == end else _LEAST
            # A little more than is wanted: a buffered reader asks separately for the rest of a block.
            want = max(len(buffer) + _LEAST if len(buffer) > _LEAST else 0, self._step)
            self._start, end = (0, size) if size <= _MOST else (at, at + want)
            if want == _LEAST:  # random access
                self._start -= self._start % _LEAST
            self._data = _remembered(self._source, self._start, min(end, size))
        piece = memoryview(self._data)[at - self._start :][: len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


@lru_cache(maxsize=16)
def _remembered(source: Stored, start: int, end: int) -> bytes:
    """Cache bytes that may be read several times: the beginning and the end of a file, and all of a small file."""
    return source.between(start, end)


# --- finding -------------------------------------------------------------------------------------------------


def find(url: str, suffixes: Suffixes) -> tuple[list[Stored], list[str]]:
    """The objects that match a URL, in natural order, and the names of those that were skipped.

    A URL is an object, a glob, or a prefix with everything of a known suffix below it.
    """
    root, key = _split(url)
    if "*" in root:
        raise UsageError(f"{url}: a bucket name cannot contain a wildcard", "name one bucket")
    if urlsplit(url).scheme in {"http", "https"}:
        return [Stored.at(url)], []
    magic = _MAGIC.search(key)
    if magic is None and not key.endswith("/") and key:
        with suppress(_NoObject):
            return [Stored.at(url)], []
    prefix = key[: magic.start()].rpartition("/")[0] if magic else key.rstrip("/")
    pattern = _as_pattern(key)
    files = []
    skipped = []
    with _explained(shown(url)):
        objects = sorted(_listed(root, prefix), key=lambda item: natural(PurePosixPath(item["path"])))
    there = {item["path"] for item in objects}
    with_data = {_folder(item["path"]) for item in objects if is_arrow_data(PurePosixPath(item["path"]).name)}
    for item in objects:
        name = item["path"]
        if magic is None and is_note(PurePosixPath(name).name, beside_arrow=_folder(name) in with_data):
            continue
        inside = name[len(prefix) :].lstrip("/").split("/")
        if not (pattern.fullmatch(name) if magic else is_readable(name, suffixes)):
            continue
        if not item["size"] or any(map(is_passed_over, inside)):
            skipped.append(f"{root}/{name}")
        elif name.endswith(".arrow") and f"{_folder(name)}{STATE}" in there:  # which lists the files that belong to it
            saved = f"{root}/{_folder(name)}: a data set of save_to_disk"
            raise DataError(saved, ["copy it to a disk", "name its .arrow files one by one"])
        else:
            full = f"{root}/{name}"  # listings of the hub have no ETag
            files.append(Stored.at(full) if root.startswith("hf://") else Stored.of(full, item))
    if not files:
        why = f"all {len(skipped)} objects it matches are skipped" if skipped else "no such object, and none below it"
        raise DataError(f"{shown(url)}: {why}", f"the suffixes that can be read are {' '.join(suffixes)}")
    return files, skipped


def _folder(name: str) -> str:
    """The folder of a key, with its slash at the end."""
    return name[: name.rfind("/") + 1]


def _as_pattern(key: str) -> re.Pattern[str]:
    """A glob: `*` and `?` stop at a slash, `**/` is any number of folders, `[!0]` is any other character but a slash."""
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?\]?[^]]*\])", key)
    # `translate` ends its pattern with an anchor of two characters.
    found = (words.get(p) or ("(?!/)" if p.startswith("[") else "") + fnmatch.translate(p)[:-2] for p in parts)
    return re.compile("".join(found), re.DOTALL)


def _listed(root: str, prefix: str) -> Iterator[Mapping[str, Any]]:
    """The metadata of every object below a prefix, page by page."""
    if root.startswith("hf://"):
        yield from _listed_on_hub(root, prefix)
        return
    import obstore

    for page in obstore.list(_store(root), prefix or None):
        yield from page


# --- Hugging Face ----------------------------------------------------------------------------------------------


def _hub(root: str) -> tuple[str, str, dict[str, str]]:
    """The address of the hub, the name of a data set with its revision, and the headers of a request."""
    _, _, rest = root.partition("hf://datasets/")
    name, _, revision = rest.partition("@")
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{address}/%s/datasets/{name}", quote(revision or "main", safe=""), headers


def _listed_on_hub(
    root: str, prefix: str, most_pages: int = _MOST_PAGES, seconds: float = _LISTING
) -> Iterator[Mapping[str, Any]]:
    """The files of a data set, page by page. The token is only sent to the address of the hub."""
    from urllib import error, request  # slow to load

    address, revision, headers = _hub(root)
    home = _origin(address)
    name = shown(f"{root}/{prefix}".rstrip("/"))

    opener = request.OpenerDirector()  # not the default opener, which opens file:// as well
    of_web = (request.ProxyHandler, request.HTTPHandler, request.HTTPSHandler)
    for handler in (*of_web, request.HTTPDefaultErrorHandler, request.HTTPErrorProcessor):
        opener.add_handler(handler())
    page = f"{address % 'api'}/tree/{revision}/{quote(prefix)}?recursive=true"
    until = time.monotonic() + seconds
    for _ in range(most_pages):
        if _origin(page) != home:
            raise DataError(f"{name}: the hub redirects to {shown(page)}, which is not followed", "set HF_ENDPOINT to an address that does not redirect")  # fmt: skip
        try:
            with opener.open(request.Request(page, headers=headers), timeout=60) as answer:  # noqa: S310 - http or https: `_origin`
                text = _all_of(answer, name, until)
                link = answer.headers.get("Link", "")
        except error.HTTPError as answered:
            answered.close()  # an error is an answer as well, with an open connection
            if "Location" not in answered.headers:
                raise
            page = urljoin(page, answered.headers["Location"])
            continue
        try:
            entries = [entry for entry in json.loads(text) if entry["type"] == "file"]
            files = [{"path": str(entry["path"]), "size": int(entry["size"])} for entry in entries]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise DataError(
                f"{name}: the hub did not answer with a list of files", "does HF_ENDPOINT name a hub?"
            ) from None
        yield from files  # without ETag and time: a file that is read is pinned by a separate request
        following = re.search(r'<([^>]*)>; *rel="next"', link)
        if following is None:
            return
        page = urljoin(page, following[1])
    raise _endless(name)


def _all_of(answer: Any, name: str, until: float) -> bytes:
    """The body of an answer, unless it is too long or too slow."""
    parts = []
    size = 0
    while part := answer.read1(_LEAST):
        parts.append(part)
        size += len(part)
        if size > _MOST_LISTED or time.monotonic() > until:
            raise _endless(name)
    return b"".join(parts)


def _origin(url: str) -> tuple[str, str]:
    """Scheme and host of a web address."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise UsageError(f"{shown(url)}: not the address of a web server", "HF_ENDPOINT must begin with https://")
    return parts.scheme, parts.netloc.lower()


def _endless(name: str) -> DataError:
    return DataError(f"{name}: the hub's listing does not end", "name a folder or a file in it")


# --- which store -----------------------------------------------------------------------------------------------


def shown(url: str) -> str:
    """A URL for messages, without parts that may have a signature or a password."""
    parts = urlsplit(url)
    place = parts.netloc
    path = url.partition(f"://{place}")[2]
    if parts.scheme in {"http", "https"}:
        place = place.rpartition("@")[2]
        path = path.partition("?")[0]
    return f"{parts.scheme}://{place}{path}"


def _split(url: str) -> tuple[str, str]:
    """The root of a store (a bucket, a data set) and the key in that store."""
    scheme, _, rest = url.partition("://")
    if scheme == "hf":
        kind, *names = rest.split("/")
        if kind != "datasets" or len(names) < 2:  # noqa: PLR2004 - owner and name
            bucket = "a bucket of the hub is s3://NAME/PATH with AWS_ENDPOINT_URL=https://s3.hf.co/OWNER"
            raise UsageError(f"{url}: not the name of a data set", ["write hf://datasets/OWNER/NAME/PATH", bucket])
        return f"hf://datasets/{names[0]}/{names[1]}", "/".join(names[2:])
    place, _, key = rest.partition("/")
    if not place:
        raise UsageError(f"{url} names no bucket", f"write {scheme}://BUCKET/PATH")
    return f"{scheme}://{place}", key


def _place(url: str) -> tuple[Any, str]:
    """The store of an object, and its key. The whole address of a web server is the store: it may have a query."""
    root, key = _split(url)
    if root.startswith("hf://"):
        address, revision, _ = _hub(root)
        return _store(f"{root} {address.replace('/%s', '')}/resolve/{revision}/{quote(key)}"), ""
    return (_store(url), "") if root.startswith("http") else (_store(root), key)


@cache
def _store(root: str) -> Any:
    """The client of a store, made once."""
    from obstore import store

    scheme, _, place = root.partition("://")
    retry: Any = {"max_retries": 5, "retry_timeout": 2 * _timeout()}
    if scheme == "s3":
        return store.S3Store(place, retry_config=retry, **_s3_options())
    if scheme == "gs":
        return store.GCSStore(place, retry_config=retry, client_options=_client())
    if scheme == "az":
        return store.AzureStore(place, retry_config=retry, client_options=_client())
    headers = {}
    if scheme == "hf":
        dataset, _, root = root.partition(" ")
        headers = _hub(dataset)[2]
    client: Any = {**_client(), "allow_http": True, "default_headers": headers}
    return store.HTTPStore.from_url(root, retry_config=retry, client_options=client)


def _timeout() -> timedelta:
    text = os.environ.get(_TIMEOUT, "120")
    try:
        found = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        found = timedelta()
    if found <= timedelta():
        raise UsageError(
            f"the environment variable {_TIMEOUT} is {text!r}", "set it to a number of seconds, 120 by default"
        )
    return found


def _client() -> Any:
    timeout = _timeout()
    allow_http = os.environ.get("AWS_ALLOW_HTTP") == "true"
    return {"connect_timeout": min(timeout, timedelta(seconds=10)), "timeout": timeout, "allow_http": allow_http}


def _s3_options() -> dict[str, Any]:
    """Endpoint, region and credentials as boto3 finds them: in the environment, in a profile, or on the machine."""
    from obstore.auth.boto3 import Boto3CredentialProvider

    session, client = _boto3()
    endpoint = client.meta.endpoint_url
    options: dict[str, Any] = {"client_options": {**_client(), "allow_http": endpoint.startswith("http://")}}
    options["region"] = client.meta.region_name or "us-east-1"
    if not urlsplit(endpoint).netloc.endswith(".amazonaws.com"):
        options["endpoint"] = endpoint
    if os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in {"1", "true"}:
        return {**options, "skip_signature": True}
    if session.get_credentials() is None:
        hint = "set AWS_PROFILE or AWS_ACCESS_KEY_ID, or AWS_SKIP_SIGNATURE=true for a public bucket"
        raise DataError("no credentials for S3 in the environment, in a profile or on this machine", hint)
    return {**options, "credential_provider": Boto3CredentialProvider(session)}


@cache
def _boto3() -> tuple[Any, Any]:
    import boto3
    from botocore.config import Config

    session = boto3.Session()
    settings = Config(retries={"max_attempts": 5, "mode": "standard"}, connect_timeout=10, read_timeout=60)
    return session, session.client("s3", config=settings, region_name=session.region_name or "us-east-1")


class _NoObject(DataError):
    """No object has this name; it may be a prefix."""


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn an error of a store into one line that says what helps."""
    try:
        yield
    except (DataError, UsageError):
        raise
    except ModuleNotFoundError:
        from grpo_cli.files.installation import missing_extra

        raise missing_extra(f"{name} needs obstore and boto3", "cloud") from None
    except Exception as error:
        explained = _refusal(name, error)
        if explained is None:
            raise
        raise explained from None


_ANSWERED = re.compile(r"status code: (\d{3})")


def _refusal(name: str, error: Exception) -> DataError | None:
    """An error of obstore, boto3 or the hub with what the user can do; None for errors of another kind."""
    kind = type(error).__name__
    home = type(error).__module__.partition(".")[0]
    if home not in {"obstore", "botocore", "boto3", "urllib"} and not isinstance(error, _OF_STORES):
        return None
    code = ""
    status = getattr(error, "code", None)
    if hasattr(error, "response"):
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    text = str(error)
    if answered := _ANSWERED.search(text):  # obstore has classes for some of these errors only
        status = answered[1]
    said = {kind, code, str(status)}
    if said & {"PreconditionError", "PreconditionFailed", "412"}:
        return InputChanged.between_readings(name)
    if "ExpiredToken" in f"{text} {code}":
        return DataError(f"{name}: the credentials have expired", "log in again")
    if "NoSuchBucket" in text or code == "NoSuchBucket":
        return DataError(f"{name}: there is no such bucket", "check its name, the account and the region")
    if said & {"NotFoundError", "FileNotFoundError", "NoSuchKey", "404"}:
        return _NoObject(f"{name}: no such object", "check its name")
    if said & {"PermissionError", "PermissionDeniedError", "UnauthenticatedError", "AccessDenied", "401", "403"}:
        return DataError(f"{name}: access denied", "do your credentials for this store give access to it?")
    reason = re.sub(r"\?\S*", "", text.splitlines()[0] if text else kind)[:160]
    return DataError(
        f"{name}: unexpected answer from the store: {reason}",
        "have your credentials expired? is its region another one? try again",
    )


# --- writing -------------------------------------------------------------------------------------------------


def exists(url: str) -> bool:
    """Whether there is an object with this name."""
    with _explained(url):
        import obstore

        store, key = _place(url)
        with suppress(FileNotFoundError):
            obstore.head(store, key)
            return True
        return False


@contextmanager
def uploading(url: str, *, force: bool) -> Iterator[BinaryIO]:
    """Give a file to write; it becomes the object if the body succeeds, otherwise nothing of it stays in the store.

    Without `force`, an object that was created meanwhile is not replaced, if the store can guarantee that.
    """
    with _explained(url):
        sink = _Upload(url, force=force) if url.startswith("s3://") else _Spooled(url, force=force)
    try:
        yield cast("BinaryIO", sink)
        with _explained(url):
            sink.complete()
    except BaseException:
        with suppress(Exception):
            sink.abort()
        raise


class _Spooled(RawIOBase):
    """An object that is written to disk first: not every store can undo a broken upload."""

    def __init__(self, url: str, *, force: bool, at_once: int = _MOST_AT_ONCE) -> None:
        self._at_once = at_once
        self._url = url
        self._force = force
        self._file = tempfile.TemporaryFile(prefix="grpo-adv.")  # noqa: SIM115

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def complete(self) -> None:
        """Send it."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        store, key = _place(self._url)
        size = self._file.tell()
        self._file.seek(0)
        if not self._force and exists(self._url):
            raise _exists(self._url)
        once = not self._force and size <= self._at_once
        try:
            obstore.put(store, key, self._file, mode="create" if once else "overwrite", use_multipart=not once)
        except AlreadyExistsError:
            raise _exists(self._url) from None
        self._file.close()

    def abort(self) -> None:
        """Send nothing."""
        self._file.close()


class _Upload(RawIOBase):
    """An object on S3, sent in parts while it is written; it appears when all parts have arrived."""

    def __init__(self, url: str, *, force: bool, part: int = _PART, most_copy: int = _MOST_COPY) -> None:
        root, key = _split(url)
        self._part = part
        self._most_copy = most_copy
        self._url = url
        self._where = {"Bucket": root.partition("://")[2], "Key": key}
        self._only_new = {} if force else {"IfNoneMatch": "*"}
        self._client = _boto3()[1]
        self._buffer = bytearray()
        self._sent = 0
        self._upload: dict[str, str] = {}
        self._parts: list[str] = []  # their ETags

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sent + len(self._buffer)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        size = self._part << (len(self._parts) // _MANY)
        if len(self._buffer) >= size:
            self._send_part()
        return len(view)

    def copied(self, source: Input, length: int) -> int:
        """Let the store copy the first bytes of an object; return how many were copied."""
        if not isinstance(source, Stored) or not source.path.startswith("s3://") or length < _LEAST_COPY or self.tell():
            return 0
        root, key = _split(source.path)
        with _explained(source.name):
            self._begin()
            for start in range(0, length, self._most_copy):
                end = min(start + self._most_copy, length)
                if end - start < _LEAST_COPY:  # too short for a part that is not the last
                    return start
                answer = self._client.upload_part_copy(
                    **self._where, **self._upload, PartNumber=len(self._parts) + 1,
                    CopySource={"Bucket": root.partition("://")[2], "Key": key},
                    CopySourceRange=f"bytes={start}-{end - 1}", CopySourceIfMatch=source.pin.tag,
                )  # fmt: skip
                self._parts.append(answer["CopyPartResult"]["ETag"])
                self._sent = end
        return length

    def _begin(self) -> None:
        if not self._upload:
            self._upload = {"UploadId": self._client.create_multipart_upload(**self._where)["UploadId"]}

    def _send_part(self) -> None:
        with _explained(self._url):
            self._begin()
            answer = self._client.upload_part(
                **self._where, **self._upload, PartNumber=len(self._parts) + 1, Body=bytes(self._buffer)
            )
        self._parts.append(answer["ETag"])
        self._sent += len(self._buffer)
        self._buffer.clear()

    def complete(self) -> None:
        """Send what is buffered, and complete the object."""
        try:
            if not self._upload:
                self._client.put_object(**self._where, **self._only_new, Body=bytes(self._buffer))
                return
            if self._buffer:
                self._send_part()
            parts = [{"ETag": tag, "PartNumber": number} for number, tag in enumerate(self._parts, 1)]
            self._client.complete_multipart_upload(
                **self._where, **self._upload, **self._only_new, MultipartUpload={"Parts": parts}
            )
        except Exception as error:
            if getattr(error, "response", {}).get("Error", {}).get("Code") in {"PreconditionFailed", "412"}:
                raise _exists(self._url) from None
            raise

    def abort(self) -> None:
        """Let the store discard all parts."""
        if self._upload:
            self._client.abort_multipart_upload(**self._where, **self._upload)


def _exists(url: str) -> UsageError:
    return UsageError(f"{url} exists", [Way("--force", why="to replace it", lead="add"), "give another name with -o"])


def refuse_url(url: str, *, force: bool) -> None:
    """Refuse an output that cannot be written, that is an input, or that exists."""
    scheme = url.partition("://")[0]
    if scheme not in WRITABLE:
        raise UsageError(
            f"{shown(url)}: {scheme}:// is read-only", "give -o FILE, or an object in s3://, gs:// or az://"
        )
    if is_input(url):
        raise UsageError(f"{url} is an input: it is never overwritten", "give another name with -o")
    if not force and exists(url):
        raise _exists(url)
