"""Files that Spark has written are spliced, replaced and written again, and Spark reads them all.

It needs Java 17.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow.parquet as pq
import pytest

from tests.support.command import ran

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS: Final = 1000
CODECS: Final = ("snappy", "gzip", "zstd", "none", "lz4", "lz4_raw")
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    **{codec: {"compression": codec} for codec in CODECS},
    "second pages": {"parquet.writer.version": "v2", "parquet.page.row.count.limit": 100},
    "bloom filters": {  # of columns without a dictionary only
        "parquet.bloom.filter.enabled#prompt_id": "true",
        "parquet.bloom.filter.expected.ndv#prompt_id": 200,
        "parquet.enable.dictionary": "false",
    },
    "row groups": {"parquet.block.size": 20_000, "parquet.page.size": 2000, "parquet.page.size.row.check.min": 10},
}
SMALL: Final = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}
COLUMNS: Final = (
    "concat('p', int(id / 4)) as prompt_id", "double(id * 7 % 5) as reward", "array(id, null) as items",
    "struct(id as a, map('k', id, 'l', null) as m, array(struct(id as b)) as c) as nested",
    "timestamp_seconds(id * 1001) as at", "date_add(date'2024-02-28', int(id % 3)) as day",
    "cast(id / 7 as decimal(20, 4)) as exact", "if(id % 9 = 0, null, repeat('ü', int(id % 40))) as text",
    "binary(string(id)) as raw",
)  # fmt: skip


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session in little memory, whose JVM ends with it."""
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("there is no Java")
    session = sql.SparkSession.builder.master("local[1]").config(map=SMALL).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    process = session.sparkContext._gateway.proc
    yield session
    session.stop()
    process.stdin.close()
    process.wait(timeout=60)


def wrote(spark: Any, folder: Path, options: dict[str, Any], *by: str) -> Path:
    """A folder of one file that Spark has written, with its side files."""
    frame = spark.range(ROWS, numPartitions=1).selectExpr(*COLUMNS, "id % 2 as part")
    frame = frame if by else frame.drop("part")
    frame.write.options(**options).partitionBy(*by).parquet(str(folder))
    assert (folder / "_SUCCESS").exists()
    return folder


def part(folder: Path) -> Path:
    (path,) = folder.glob("part-*.parquet")
    return path


def read(spark: Any, path: Path) -> list[dict[str, Any]]:
    """All rows, as Spark gives them, in the order of the file."""
    return [row.asDict(recursive=True) for row in spark.read.parquet(str(path)).collect()]


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def advantages(path: Path) -> list[float]:
    """The leave-one-out advantages that polars computes from what polars reads."""
    found = pl.read_parquet(path, columns=["prompt_id", "reward"])
    mean = pl.col("reward").mean().over("prompt_id")
    return found.select((pl.col("reward") - mean) * 4 / 3).to_series().to_list()


def spliced(path: Path) -> Path:
    target = path.with_name("out.parquet")
    ran(f"compute {path} -o {target} --quiet --method rloo")
    return target


def replaced(path: Path) -> Path:
    once = path.with_name("once.parquet")
    target = path.with_name("again.parquet")
    ran(f"compute {path} -o {once} --quiet")
    ran(f"compute {once} -o {target} --replace --quiet --method rloo")
    return target


@pytest.mark.parametrize("made", [spliced, replaced])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_spark_reads_its_own_files_with_one_more_column(
    spark: Any, tmp_path: Path, options: dict[str, Any], made: Callable[[Path], Path]
) -> None:
    path = part(wrote(spark, tmp_path / "in", options))
    before = read(spark, path)
    expected = advantages(path)
    found = read(spark, made(path))
    assert [*found[0]] == [*before[0], "advantage"]
    assert without(found, "advantage") == before
    assert [row["advantage"] for row in found] == pytest.approx(expected, abs=1e-12)


def test_spark_filters_and_counts_what_was_spliced(spark: Any, tmp_path: Path) -> None:
    """Statistics, page indexes and bloom filters are used by these."""
    options = {**OPTIONS["row groups"], **OPTIONS["bloom filters"]}
    path = part(wrote(spark, tmp_path / "in", options))
    facts = pq.read_metadata(path)
    assert facts.num_row_groups > 1
    assert facts.row_group(0).column(0).bloom_filter_offset is not None
    frame = spark.read.parquet(str(spliced(path)))
    columns = pl.read_parquet(path, columns=["prompt_id", "reward"])
    matching = columns.with_columns(advantage=pl.Series(advantages(path)))
    for wanted in ("advantage > 0.5", "prompt_id = 'p77'", "prompt_id = 'nobody'", "reward < 1 and advantage < 0"):
        assert frame.filter(wanted).count() == len(matching.sql(f"select * from self where {wanted}"))  # noqa: S608


def test_a_partitioned_folder_keeps_its_tree(spark: Any, tmp_path: Path) -> None:
    folder = wrote(spark, tmp_path / "in", {}, "part")
    done = ran(f"compute {folder} -o {tmp_path}/out/ --group-within input")
    assert "_SUCCESS" not in done.out
    before = read(spark, folder)
    found = read(spark, tmp_path / "out")
    assert [*found[0]][-2:] == ["advantage", "part"]
    assert sorted(without(found, "advantage"), key=str) == sorted(before, key=str)
    assert abs(sum(row["advantage"] for row in found)) < 1e-9


FAR: Final = (
    "if(id % 3 = 0, timestamp'9999-12-31 23:59:59.999999', timestamp_micros(id * 1001)) as never",
    "array(struct(timestamp'0001-01-02 00:00:00' as b, null as c)) as ever",
)


@pytest.mark.parametrize("times", ["TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_what_is_written_again_is_read_by_spark_too(spark: Any, tmp_path: Path, times: str) -> None:
    """Without some rows, and with columns that Spark's own entry in the footer has to tell of."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", times)
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
    folder = tmp_path / "in"
    spark.range(ROWS, numPartitions=1).selectExpr(*COLUMNS, *FAR).write.parquet(str(folder))
    target = tmp_path / "fewer.parquet"
    options = "--group-size 3 --group prompt_id --partial drop --facts --quiet"
    ran(f"compute {part(folder)} -o {target} {options}")
    found = read(spark, target)
    expected = read(spark, part(folder))
    added = ["advantage", "advantage_mean", "advantage_std", "advantage_size", "advantage_status"]
    assert [*found[0]] == [*expected[0], *added]
    assert without(found, *added) == [row for at, row in enumerate(expected) if at % 4 < 3]
    assert found[0]["advantage_mean"] == pytest.approx(sum(row["reward"] for row in expected[:3]) / 3)
