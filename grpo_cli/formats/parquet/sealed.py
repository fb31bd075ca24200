"""Encrypted Parquet: how a file says that it is, and what opens it and closes it again.

One key for the footer and all columns is what pyarrow takes from Python. Files whose columns have keys of their
own, or whose keys a key management service keeps, are told apart by what stands in them in plain text.

https://github.com/apache/parquet-format/blob/master/Encryption.md
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from grpo_cli.errors import DataError
from grpo_cli.files.keys import OPTION
from grpo_cli.formats.columnar import readable
from grpo_cli.formats.parquet import footer, thrift

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from grpo_cli.files.inputs import Input
    from grpo_cli.formats.parquet.thrift import Field

_NAME: Final = "Parquet"
_CURE: Final = f"{OPTION} FILE names a file with its key"
_MANAGED: Final = "decrypt it first: it has several keys, or a key management service keeps them"
_NAMELESS: Final = "decrypt it first: it is encrypted as DuckDB does it, which pyarrow cannot open"
# Where the algorithm and the name of the key stand: in FileCryptoMetaData, or in a footer that is plain text itself.
_SECRET_FOOTER: Final = (1, 2)
_PLAIN_FOOTER: Final = (8, 9)
_ALGORITHMS: Final = {1: "AES_GCM_V1", 2: "AES_GCM_CTR_V1"}
_PREFIX, _UNIQUE, _SUPPLIED = 1, 2, 3  # of either algorithm
_OWN_KEY: Final = 2  # of ColumnCryptoMetaData


class Seal(NamedTuple):
    """What a file says of its encryption."""

    algorithm: str
    plain_footer: bool
    prefix: bytes | None
    wants_prefix: bool
    managed: bool
    nameless: bool  # nothing in it is bound to the file, which the format demands


def seal_of(source: Input) -> Seal | None:
    """Tell how a file is encrypted; none for one that is not, or that cannot be followed."""
    with suppress(*footer.BROKEN, OSError, footer.Unspliceable), source.open() as handle:
        raw, secret = footer.ending(handle, source.pin.size)
        fields = thrift.by_id(raw, 0)
        algorithm, name = _SECRET_FOOTER if secret else _PLAIN_FOOTER
        chunks = [] if secret else _chunks(raw, fields)
        managed = name in fields or any(_has_own_key(raw, one) for one in chunks)
        if algorithm in fields:
            return _seal(raw, fields[algorithm], plain_footer=not secret, managed=managed)
    return None


def _seal(raw: bytes, algorithm: Field, *, plain_footer: bool, managed: bool) -> Seal:
    (which,) = thrift.walk(raw, algorithm.start)
    told = thrift.by_id(raw, which.start)
    prefix = thrift.binary(raw, told[_PREFIX].start) if _PREFIX in told else None
    wants = _SUPPLIED in told and told[_SUPPLIED].kind == thrift.TRUE
    return Seal(_ALGORITHMS[which.id], plain_footer, prefix, wants, managed, nameless=_UNIQUE not in told)


def _has_own_key(raw: bytes, chunk: Mapping[int, Field]) -> bool:
    crypto = footer.CRYPTO[0]
    return crypto in chunk and _OWN_KEY in thrift.by_id(raw, chunk[crypto].start)


def locked(source: Input, handle: BinaryIO) -> frozenset[str]:
    """Name the columns of a file that cannot be read without a key, where others can."""
    with suppress(*footer.BROKEN, footer.Unspliceable):
        raw, secret = footer.ending(handle, source.pin.size)
        fields = {} if secret else _first_fields(raw)
        chunks = enumerate(_chunks(raw, fields))
        shut = {leaf for leaf, chunk in chunks if not chunk.keys().isdisjoint(footer.CRYPTO)}
        if shut:
            known = footer.columns(raw, thrift.items(raw, fields[footer.SCHEMA].start))
            names = {one.name for one in known if not shut.isdisjoint(range(one.first, one.last))}
            return frozenset(names if len(names) < len(known) else ())
    return frozenset()


def _first_fields(raw: bytes) -> dict[int, Field]:
    """Find the fields of a footer up to the row groups, without stepping over thousands of these."""
    found = {}
    for one in thrift.walk(raw, 0, {footer.ROW_GROUPS: lambda _, at: at}):
        found[one.id] = one
        if one.id == footer.ROW_GROUPS:
            break
    return found


def _chunks(raw: bytes, fields: Mapping[int, Field]) -> list[dict[int, Field]]:
    """Give the column chunks of the first row group."""
    if footer.ROW_GROUPS not in fields:
        return []
    _, groups, at = thrift.opened(raw, fields[footer.ROW_GROUPS].start)
    if not groups:
        return []
    first = thrift.by_id(raw, at)[footer.CHUNKS]
    return [thrift.by_id(raw, at) for at in thrift.items(raw, first.start)[:-1]]


@contextmanager
def openable(source: Input) -> Iterator[None]:
    """Turn what pyarrow and polars say about a broken file, or one that their key does not open, into one line."""
    with readable(source, _NAME):
        try:
            yield
        except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
            seal = None if getattr(error, "errno", None) else seal_of(source)
            if seal is None:
                raise
            raise refusal(source, seal) from error


def refusal(source: Input, seal: Seal) -> DataError:
    """Say why an encrypted file cannot be read, and what helps."""
    if source.key is None:
        what = "file" if seal.plain_footer else "footer"
        return DataError(f"{source.name}: the {what} is encrypted", _MANAGED if seal.managed else _CURE)
    if seal.wants_prefix and source.key.prefix is None:
        told = f"{source.name}: the key does not open it without the AAD prefix"
        return DataError(told, "write it into a second line of the file with the key: aad:PREFIX")
    hint = _MANAGED if seal.managed else _NAMELESS if seal.nameless else ""
    return DataError(f"{source.name}: the key of {OPTION} does not open it", hint)


def opener(source: Input) -> Any:
    """What pyarrow reads an input with; none where there is no key."""
    if source.key is None:
        return None
    secret, prefix = source.key
    return _made("create_decryption_properties", secret, aad_prefix=prefix, allow_plaintext_files=True)


def opened(source: Input, handle: BinaryIO, **options: Any) -> pq.ParquetFile:
    """Open an input with its key, if there is one."""
    return pq.ParquetFile(handle, decryption_properties=opener(source), **options)


def closer(source: Input) -> Any:
    """What pyarrow writes with, so that an output is encrypted as its input is."""
    seal = seal_of(source)
    if seal is None:
        raise DataError(f"{source.name}: how it is encrypted cannot be told", "decrypt it first")
    if source.key is None:
        raise refusal(source, seal)
    if seal.managed:
        raise DataError(f"{source.name}: what it says of its keys would be lost", _MANAGED)
    return _made(
        "create_encryption_properties",
        source.key.secret,
        aad_prefix=source.key.prefix or seal.prefix,
        store_aad_prefix=seal.prefix is not None,
        encryption_algorithm=seal.algorithm,
        plaintext_footer=seal.plain_footer,
    )


def _made(name: str, secret: bytes, **options: Any) -> Any:
    from pyarrow.parquet import encryption

    make = getattr(encryption, name, None)
    if make is None:
        raise DataError(f"pyarrow {pa.__version__} takes no keys", "pip install -U pyarrow")
    return make(secret, **options)
