"""The key of encrypted files, from a file: on a command line everybody on the machine could read it."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from grpo_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPTION: Final = "--parquet-key"
_SIZES: Final = (16, 24, 32)  # of AES-128, AES-192 and AES-256
_SPELT: Final[Mapping[bytes, Callable[[bytes], bytes]]] = MappingProxyType(
    {
        b"hex:": lambda text: bytes.fromhex(text.decode("ascii")),
        b"base64:": lambda text: base64.b64decode(text, validate=True),
    }
)
_PREFIX: Final = b"\naad:"
_FORMS: Final = "it holds 16, 24 or 32 bytes as they are, or hex: or base64: and their text"


class Key(NamedTuple):
    """A key, and the AAD prefix that files may want beside it. Neither is shown to anybody."""

    secret: bytes
    prefix: bytes | None

    def __repr__(self) -> str:
        """Messages and logs see this."""
        return "Key(...)"


def key_of(path: str) -> Key:
    """Read a key, and the prefix from a second line `aad:...`."""
    try:
        text, _, prefix = Path(path).read_bytes().partition(_PREFIX)
    except OSError as error:
        raise UsageError(f"{OPTION} {path}: {(error.strerror or str(error)).lower()}") from None
    secret = _secret(text)
    if len(secret) not in _SIZES:
        raise UsageError(f"{OPTION} {path}: this is no key", _FORMS)
    return Key(secret, prefix.rstrip(b"\r\n") or None)


def _secret(text: bytes) -> bytes:
    for mark, read in _SPELT.items():
        if text.startswith(mark):
            try:
                return read(text.removeprefix(mark).strip())
            except (binascii.Error, ValueError):
                return b""
    return text if len(text) in _SIZES else text.removesuffix(b"\n").removesuffix(b"\r")
