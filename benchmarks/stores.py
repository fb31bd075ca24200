"""Objects in a store: what `compute` moves and takes, beside the same job by hand, against an S3 server on loopback.

    python -m benchmarks.stores                     # the table; needs 1 GB of memory for the server
    python -m benchmarks.stores --write             # into README.md
    python -m benchmarks.stores --duckdb PYTHON     # the Python of DuckDB, where its httpfs is not in this one

The server (`memory_s3.py`) is a process of its own that counts the bytes of contents. Over loopback bytes cost next to nothing: elsewhere they
are what a run waits for. Processor time and memory are those of the client.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE: Final = Path(__file__).with_name("README.md")
MARKS: Final = ("<!-- stores -->\n", "<!-- end of stores -->\n")
MB: Final = 1 << 20
TEXT: Final = 4000  # bytes of a completion
SIZES: Final = {"parquet": 200 * MB, "jsonl": 100 * MB}
COLUMNS: Final = ("object", "who", "wall s", "processor s", "peak MB", "MB down", "MB up", "requests")
WINDOW: Final = "(PARTITION BY prompt_id)"


# --- the same job by hand ------------------------------------------------------------------------------------


def by_polars(source: str, target: str) -> None:
    """Scan, windows, sink."""
    import polars as pl

    options: Any = {
        "aws_endpoint_url": os.environ["AWS_ENDPOINT_URL"], "aws_region": "us-east-1", "aws_allow_http": "true",
        "aws_access_key_id": "key", "aws_secret_access_key": "secret",
    }  # fmt: skip
    reward, lines = pl.col("reward"), source.endswith(".jsonl")
    scanned = (pl.scan_ndjson if lines else pl.scan_parquet)(source, storage_options=options)
    mean, std = reward.mean().over("prompt_id"), reward.std().over("prompt_id")
    scored = scanned.with_columns(advantage=(reward - mean) / (std + 1e-6))
    (scored.sink_ndjson if lines else scored.sink_parquet)(target, storage_options=options)


def by_duckdb(source: str, target: str) -> None:
    """One statement over httpfs, from the package duckdb-ext-httpfs or from DuckDB's own site."""
    import duckdb

    database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    package = find_spec("duckdb_ext")
    folders = (package and package.submodule_search_locations) or []
    path = next((file for folder in folders for file in Path(folder).rglob("httpfs.duckdb_extension")), None)
    database.execute(f"LOAD '{path}'" if path else "INSTALL httpfs; LOAD httpfs")
    endpoint = os.environ["AWS_ENDPOINT_URL"].partition("://")[2]
    database.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID 'key', SECRET 'secret', REGION 'us-east-1', ENDPOINT '{endpoint}', "
        "URL_STYLE 'path', USE_SSL false)"
    )
    lines = source.endswith(".jsonl")
    read = f"read_json_auto('{source}', format='newline_delimited')" if lines else f"'{source}'"
    database.execute(
        f"COPY (SELECT *, (reward - avg(reward) OVER {WINDOW}) / (stddev_samp(reward) OVER {WINDOW} + 1e-6) AS advantage "
        f"FROM {read}) TO '{target}' (FORMAT {'json' if lines else 'parquet'})"
    )


def by_copy(source: str, target: str) -> None:
    """What moving the bytes takes: get the object and put it again, without a look at it."""
    import boto3

    client = boto3.client("s3")
    bucket, _, key = source.removeprefix("s3://").partition("/")
    with tempfile.NamedTemporaryFile() as file:
        client.download_fileobj(bucket, key, file)
        file.seek(0)
        client.upload_file(file.name, bucket, target.removeprefix(f"s3://{bucket}/"))


def make_inputs(*_: str) -> None:
    """Put the objects that are read; completions do not compress, as tokens and pictures do not.

    A process of its own, as all jobs: what this one would have in memory would count as that of its children.
    """
    import boto3
    import numpy as np
    import polars as pl

    client, draw = boto3.client("s3"), np.random.default_rng(0)
    for kind, size in SIZES.items():
        rows = size // TEXT
        frame = pl.DataFrame({
            "prompt_id": np.arange(rows) // 8,
            "reward": draw.random(rows).round(3),
            "completion": [draw.bytes(TEXT // 2).hex() for _ in range(rows)],
        })  # fmt: skip
        with tempfile.NamedTemporaryFile() as file:
            if kind == "parquet":
                frame.write_parquet(file.name, compression="uncompressed", row_group_size=5000)
            else:
                frame.write_ndjson(file.name)
            client.upload_file(file.name, "bench", f"in.{kind}")


BY_HAND: Final[dict[str, Callable[[str, str], None]]] = {
    "polars": by_polars,
    "DuckDB": by_duckdb,
    "get and put": by_copy,
}


# --- the table -------------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """What a run took."""

    wall: float
    processor: float
    memory: float
    down: float
    up: float
    requests: float


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server that ends with the block."""
    words = [sys.executable, str(Path(__file__).with_name("memory_s3.py"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip() if process.stdout else ''}"
        finally:
            process.terminate()


def moved(address: str) -> dict[str, int]:
    """What went down and up since the last time, in bytes, and how many requests there were."""
    with urlopen(address) as answer:  # noqa: S310 - the server of this benchmark
        found: dict[str, int] = json.load(answer)
    return found


def run(who: str, kind: str, client: Any, address: str, python: str) -> Taken:
    """One run in a process of its own, whose output is checked to be there, and removed."""
    source, key = f"s3://bench/in.{kind}", f"out.{kind}"
    target = f"s3://bench/{key}"
    tool = [sys.executable, "-m", "grpo_cli", "compute", source, "-o", target, "--quiet"]
    by_hand = [python if who == "DuckDB" else sys.executable, __file__, "--job", who, source, target]
    moved(address)
    started = time.perf_counter()
    process = subprocess.Popen(tool if who == "grpo-adv" else by_hand)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{who} failed on {source} with {process.returncode}")
    counts = moved(address)
    client.head_object(Bucket="bench", Key=key)
    client.delete_object(Bucket="bench", Key=key)
    return Taken(
        wall,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        counts["down"] / 1e6,
        counts["up"] / 1e6,
        counts["requests"],
    )


def table(rounds: int, python: str) -> list[str]:
    """The lines of the table: medians of interleaved rounds."""
    import boto3

    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    with serving() as address:
        os.environ.update(
            AWS_ENDPOINT_URL=address, AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret",  # noqa: S106
            AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true",
        )  # fmt: skip
        client = boto3.client("s3")
        client.create_bucket(Bucket="bench")
        subprocess.run([sys.executable, __file__, "--job", "inputs", "", ""], check=True)
        for kind in SIZES:
            seen: dict[str, list[Taken]] = {who: [] for who in ("grpo-adv", *BY_HAND)}
            for number in range(rounds):
                for who in list(seen)[:: -1 if number % 2 else 1]:
                    seen[who].append(run(who, kind, client, address, python))
            for who, taken in seen.items():
                middle = Taken(*map(statistics.median, zip(*taken, strict=True)))
                lines.append(
                    f"| {SIZES[kind] // MB} MB {kind} | {who} | {middle.wall:.2f} | {middle.processor:.2f} "
                    f"| {middle.memory:,.0f} | {middle.down:.1f} | {middle.up:.1f} | {middle.requests:.0f} |"
                )
    return lines


def main() -> None:
    """Print the table, or do one job by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", nargs=3, metavar=("WHO", "SOURCE", "TARGET"), help=argparse.SUPPRESS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--duckdb", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    given = parser.parse_args()
    if given.job:
        who, source, target = given.job
        (make_inputs if who == "inputs" else BY_HAND[who])(source, target)
        return
    lines = table(given.repeat, given.duckdb)
    print("\n".join(lines))
    if given.write:
        before, _, rest = PAGE.read_text().partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        PAGE.write_text("".join([before, MARKS[0], "\n", "\n".join(lines), "\n\n", MARKS[1], after]))


if __name__ == "__main__":
    main()
