"""Encrypted Parquet: opened with the key of a file, written with the same key again, and never in plain text."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64decode, b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption
from typer.testing import CliRunner

from grpo_cli.cli.app import app
from grpo_cli.errors import UsageError
from grpo_cli.files.inputs import Input
from grpo_cli.files.keys import Key, key_of
from grpo_cli.formats.parquet.sealed import seal_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not hasattr(encryption, "create_encryption_properties"), reason="this pyarrow takes no keys"
)
SECRET: Final = b"0123456789abcdef"
PREFIX: Final = b"table-7"
ROWS: Final = 1200
TEXT: Final = "nobody shall read this"
TABLE: Final = pa.table({
    "prompt_id": [f"p{row // 4}" for row in range(ROWS)],
    "reward": [float(row * 7 % 5) for row in range(ROWS)],
    "text": [f"{TEXT} {row}" for row in range(ROWS)],
    "nested": [{"a": [row, None], "b": str(row)} for row in range(ROWS)],
})  # fmt: skip
WAYS: Final[dict[str, dict[str, Any]]] = {
    "all": {},
    "plain footer": {"plaintext_footer": True},
    "counter mode": {"encryption_algorithm": "AES_GCM_CTR_V1"},
    "prefix": {"aad_prefix": PREFIX},
    "prefix elsewhere": {"aad_prefix": PREFIX, "store_aad_prefix": False},
    "prefix elsewhere, plain footer": {"aad_prefix": PREFIX, "store_aad_prefix": False, "plaintext_footer": True},
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def run(*arguments: object) -> str:
    """What the command says; it ends well."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert not done.exit_code, done.output
    return " ".join(done.output.split())


def refused(*arguments: object) -> str:
    """The one line of a refusal."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code in {1, 2}
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert done.output.count("\n") == 1
    return done.output


def wrote(path: Path, way: dict[str, Any], **options: Any) -> Path:
    """A file that pyarrow encrypts with our key."""
    locked = encryption.create_encryption_properties(SECRET, **way)
    pq.write_table(TABLE, path, encryption_properties=locked, row_group_size=500, **options)
    return path


def key_file(folder: Path, secret: bytes = SECRET, prefix: bytes | None = PREFIX) -> Path:
    path = folder / "key"
    path.write_bytes(secret + (b"\naad:" + prefix if prefix else b""))
    return path


def key_for(folder: Path, way: dict[str, Any]) -> Path:
    """A file with the prefix only where it is needed."""
    return key_file(folder, prefix=None if way.get("store_aad_prefix", True) else PREFIX)


def opened(path: Path, prefix: bytes | None = None) -> pq.ParquetFile:
    """What pyarrow opens with the key."""
    key = encryption.create_decryption_properties(SECRET, aad_prefix=prefix)
    return pq.ParquetFile(path, decryption_properties=key)


def read(path: Path, prefix: bytes | None = None) -> pa.Table:
    return opened(path, prefix).read()


def said(path: Path) -> Any:
    return seal_of(Input.at(path))


@ways
@pytest.mark.parametrize("options", [[], ["--replace", "--column", "text"]])
def test_the_output_is_the_input_and_the_column_encrypted_alike(
    tmp_path: Path, way: dict[str, Any], options: list[str]
) -> None:
    source, out, clear = wrote(tmp_path / "in.parquet", way), tmp_path / "out.parquet", tmp_path / "clear.parquet"
    told = run("compute", source, "-o", out, "--parquet-key", key_for(tmp_path, way), *options)
    assert "(the general path) and encrypted with the same key" in told
    assert said(out) == said(source)
    pq.write_table(TABLE, clear)
    run("compute", clear, "-o", tmp_path / "expected.parquet", *options, "--quiet")
    prefix = None if way.get("store_aad_prefix", True) else PREFIX
    assert read(out, prefix).equals(pq.read_table(tmp_path / "expected.parquet"))
    ours = [opened(out, prefix).metadata.metadata, pq.read_metadata(tmp_path / "expected.parquet").metadata]
    assert ours[0][b"grpo_adv"] == ours[1][b"grpo_adv"]


@ways
def test_nothing_can_be_read_without_the_key(tmp_path: Path, way: dict[str, Any]) -> None:
    source, out = wrote(tmp_path / "in.parquet", way, compression="none"), tmp_path / "out.parquet"
    run("compute", source, "-o", out, "--parquet-key", key_for(tmp_path, way), "--facts", "--quiet")
    assert TEXT.encode() not in out.read_bytes()
    with pytest.raises((pa.ArrowException, OSError)):
        pq.read_table(out)
    with pytest.raises(pl.exceptions.PolarsError):
        pl.read_parquet(out)


@ways
def test_row_groups_and_codecs_stay(tmp_path: Path, way: dict[str, Any]) -> None:
    source, out = wrote(tmp_path / "in.parquet", way, compression="gzip"), tmp_path / "out.parquet"
    run("compute", source, "-o", out, "--parquet-key", key_for(tmp_path, way), "--quiet")
    prefix = None if way.get("store_aad_prefix", True) else PREFIX
    told = opened(out, prefix).metadata
    assert [told.row_group(at).num_rows for at in range(told.num_row_groups)] == [500, 500, 200]
    assert {told.row_group(0).column(at).compression for at in range(told.num_columns)} == {"GZIP"}


def test_dropped_rows_and_chosen_groups_are_encrypted_too(tmp_path: Path) -> None:
    source, out = wrote(tmp_path / "in.parquet", {}), tmp_path / "out.parquet"
    run("select", source, "-o", out, "--limit", 3, "--parquet-key", key_file(tmp_path, prefix=None), "--quiet")
    assert read(out).equals(TABLE.slice(0, 12))


def test_verify_opens_both(tmp_path: Path) -> None:
    source, out, key = wrote(tmp_path / "in.parquet", {}), tmp_path / "out.parquet", key_file(tmp_path, prefix=None)
    run("compute", source, "-o", out, "--parquet-key", key, "--quiet")
    assert "plus advantage, value by value" in run("verify", out, "--against", source, "--parquet-key", key)
    changed = TABLE.set_column(1, "reward", pa.array([9.0] * ROWS))
    pq.write_table(changed, source, encryption_properties=encryption.create_encryption_properties(SECRET))
    assert "reward differs" in refused("verify", out, "--against", source, "--parquet-key", key)


def test_a_pipe_is_encrypted_on_both_ends(tmp_path: Path) -> None:
    source, key = wrote(tmp_path / "in.parquet", {}), key_file(tmp_path, prefix=None)
    command = [sys.executable, "-m", "grpo_cli", "compute", "-", "--parquet-key", str(key), "--quiet"]
    done = subprocess.run(command, input=source.read_bytes(), capture_output=True, check=True)
    (tmp_path / "out.parquet").write_bytes(done.stdout)
    assert read(tmp_path / "out.parquet").column_names == [*TABLE.column_names, "advantage"]


def test_files_that_are_not_encrypted_are_spliced_whatever_key_there_is(tmp_path: Path) -> None:
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(TABLE, source)
    told = run("compute", source, "-o", out, "--parquet-key", key_file(tmp_path))
    assert "general path" not in told
    assert "byte by byte" in run("verify", out, "--against", source, "--parquet-key", key_file(tmp_path))


# --- refusals ------------------------------------------------------------------------------------------


@ways
def test_without_the_key_the_option_is_named(tmp_path: Path, way: dict[str, Any]) -> None:
    source, out = wrote(tmp_path / "in.parquet", way), tmp_path / "out.parquet"
    for command in (["compute", source, "-o", out], ["inspect", source]):
        assert "is encrypted; --parquet-key FILE names a file with its key" in refused(*command)
    assert not out.exists()


@ways
def test_another_key_opens_nothing(tmp_path: Path, way: dict[str, Any]) -> None:
    source, out, key = wrote(tmp_path / "in.parquet", way), tmp_path / "out.parquet", key_file(tmp_path, SECRET[::-1])
    told = refused("compute", source, "-o", out, "--parquet-key", key)
    assert "the key of --parquet-key does not open it" in told
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in.parquet", "key"]


def test_a_prefix_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    source, key = wrote(tmp_path / "in.parquet", WAYS["prefix elsewhere"]), key_file(tmp_path, prefix=None)
    told = refused("compute", source, "--parquet-key", key)
    assert "a second line of the file with the key: aad:PREFIX" in told


@pytest.mark.parametrize("options", [["-o", "out.jsonl"], ["-o", "out.parquet", "--only"], ["-o", "out.csv"]])
def test_nothing_goes_into_plain_text(tmp_path: Path, options: list[str]) -> None:
    source, key = wrote(tmp_path / "in.parquet", {}), key_file(tmp_path, prefix=None)
    options = [str(tmp_path / one) if one.startswith("out") else one for one in options]
    assert "would hold it in plain text" in refused("compute", source, *options, "--parquet-key", key)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in.parquet", "key"]


def test_an_encrypted_file_does_not_grow_in_place(tmp_path: Path) -> None:
    source, key = wrote(tmp_path / "in.parquet", {}), key_file(tmp_path, prefix=None)
    before = source.read_bytes()
    told = refused("compute", source, "--in-place", "--parquet-key", key)
    assert "cannot be changed in place: the footer is encrypted; write a new file with -o FILE" in told
    assert source.read_bytes() == before


class Service(encryption.KmsClient):  # type: ignore[misc]
    """A key management service that hides nothing."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return b64encode(key)

    def unwrap_key(self, key: bytes, _: str) -> bytes:
        return b64decode(key)


def managed(path: Path, **how: Any) -> Path:
    """A file whose keys a service keeps."""
    asked = encryption.EncryptionConfiguration(footer_key="f", **how)
    locked = encryption.CryptoFactory(Service).file_encryption_properties(encryption.KmsConnectionConfig(), asked)
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=locked) as writer:
        writer.write_table(TABLE)
    return path


TEXTS: Final = {"c": ["text"]}


@pytest.mark.parametrize(
    "how",
    [
        {"column_keys": TEXTS, "plaintext_footer": True},
        {"column_keys": TEXTS},
        {"uniform_encryption": True},
        {"uniform_encryption": True, "plaintext_footer": True},
    ],
)
def test_what_a_service_keeps_the_keys_of_is_refused_with_and_without_a_key(tmp_path: Path, how: Any) -> None:
    source, out, key = managed(tmp_path / "in.parquet", **how), tmp_path / "out.parquet", key_file(tmp_path)
    assert "is encrypted; decrypt it first: it has several keys, or" in refused("compute", source, "-o", out)
    assert "does not open it; decrypt it first" in refused("compute", source, "-o", out, "--parquet-key", key)
    assert not out.exists()


def test_what_duckdb_encrypts_is_told_apart_from_a_wrong_key(tmp_path: Path) -> None:
    """It leaves out the identifier of the file, and pyarrow does not open that."""
    base = duckdb.connect()
    base.execute("set force_mbedtls_unsafe = 'true'")
    base.execute(f"pragma add_parquet_key('ours', '{SECRET.decode()}')")
    base.register("given", TABLE.drop_columns("nested"))
    source, key = tmp_path / "in.parquet", key_file(tmp_path, prefix=None)
    base.execute(f"copy given to '{source}' (encryption_config {{footer_key: 'ours'}})")
    assert "decrypt it first: it is encrypted as DuckDB does it" in refused("inspect", source, "--parquet-key", key)


def test_columns_in_plain_text_can_be_looked_at_without_a_key(tmp_path: Path) -> None:
    source = managed(tmp_path / "in.parquet", column_keys=TEXTS, plaintext_footer=True)
    clear = tmp_path / "clear.parquet"
    pq.write_table(TABLE.drop_columns("text"), clear)
    assert run("inspect", source).split("rows")[1:] == run("inspect", clear).split("rows")[1:]
    assert "is encrypted" in refused("inspect", source, "--text-column", "text", "--show", "p1")
    assert "is encrypted" in refused("compute", source, "-o", tmp_path / "out.jsonl")


# --- the file with the key -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 24, 32])
@pytest.mark.parametrize("prefix", [None, b"a:b\tc"])
def test_a_key_is_read_in_every_spelling(tmp_path: Path, size: int, prefix: bytes | None) -> None:
    path, secret = tmp_path / "key", bytes(range(240, 240 - size, -1))
    for text in (
        secret,
        secret + b"\n",
        secret + b"\r\n",
        b"hex:" + secret.hex().encode(),
        b"base64:" + b64encode(secret),
    ):
        path.write_bytes(text.removesuffix(b"\n") + b"\naad:" + prefix + b"\n" if prefix else text)
        assert key_of(str(path)) == Key(secret, prefix)


def test_the_bytes_of_a_key_are_taken_as_they_are(tmp_path: Path) -> None:
    """32 digits are a key of 32 bytes; and a key may end in a line feed."""
    path = tmp_path / "key"
    for secret in (b"01" * 16, b"0123456789abcde\n", b"\r\n" * 8):
        path.write_bytes(secret)
        assert key_of(str(path)).secret == secret


@pytest.mark.parametrize("text", [b"", b"short", b"hex:0", b"hex:xyz", b"base64:?", b"base64:AAAA", b"0" * 17])
def test_what_is_no_key_is_not_shown(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=r"this is no key; it holds 16, 24 or 32 bytes") as error:
        key_of(str(path))
    assert not text or text.decode() not in str(error.value).replace(str(path), "").replace("hex: or base64:", "")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    source = wrote(tmp_path / "in.parquet", {})
    assert "--parquet-key nowhere: no such file" in refused("compute", source, "--parquet-key", "nowhere")


def test_a_key_is_in_no_message(tmp_path: Path) -> None:
    source = replace(Input.at(wrote(tmp_path / "in.parquet", {})), key=Key(SECRET, PREFIX))
    assert SECRET.decode() not in f"{source!r} {source.key!r}"
