"""Other readers of Parquet than those that the tests need anyway read what was spliced, once and again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pytest

from tests.support.command import adv

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS: Final = 4000


def by_datafusion(path: Path) -> dict[str, list[Any]]:
    context = pytest.importorskip("datafusion").SessionContext()
    return context.read_parquet(str(path)).to_arrow_table().to_pydict()  # type: ignore[no-any-return]


def by_daft(path: Path) -> dict[str, list[Any]]:
    return pytest.importorskip("daft").read_parquet(str(path)).to_pydict()  # type: ignore[no-any-return]


def by_fastparquet(path: Path) -> dict[str, list[Any]]:
    frame = pytest.importorskip("fastparquet").ParquetFile(str(path)).to_pandas()
    return {name: frame[name].tolist() for name in frame.columns}


def by_datasets(path: Path) -> dict[str, list[Any]]:
    kind = pytest.importorskip("datasets").Dataset
    return kind.from_parquet(str(path), cache_dir=str(path.parent / "cache")).to_dict()  # type: ignore[no-any-return]


def by_chdb(path: Path) -> dict[str, list[Any]]:
    query = f"select * from file('{path}', Parquet)"  # noqa: S608 - a path of our own
    return pytest.importorskip("chdb").query(query, "ArrowTable").to_pydict()  # type: ignore[no-any-return]


READERS: Final = (by_datafusion, by_daft, by_fastparquet, by_datasets, by_chdb)


def spliced(path: Path) -> Path:
    target = path.with_name("out.parquet")
    assert adv(f"compute {path} -o {target} --quiet").status == 0
    return target


def replaced(path: Path) -> Path:
    assert adv(f"compute {path} --in-place --quiet").status == 0
    options = ["--in-place", "--replace", "--method", "rloo", "--quiet"]
    assert adv(f"compute {path}", *options).status == 0
    return path


@pytest.mark.parametrize("made", [spliced, replaced])
@pytest.mark.parametrize("reader", READERS)
def test_every_column_is_read_as_it_is(
    tmp_path: Path, reader: Callable[[Path], dict[str, list[Any]]], made: Callable[[Path], Path]
) -> None:
    path = tmp_path / "in.parquet"
    rewards = np.random.default_rng(5).normal(size=ROWS)
    text = ["t" * (row % 50) for row in range(ROWS)]
    frame = pl.DataFrame({"prompt_id": np.arange(ROWS) // 8, "reward": rewards, "text": text})
    frame.write_parquet(path, row_group_size=1000)
    output = made(path)
    found = reader(output)
    wanted = pl.read_parquet(output)
    assert list(found) == wanted.columns == [*frame.columns, "advantage"]
    assert found == wanted.to_dict(as_series=False)
    assert wanted.drop("advantage").equals(frame)


def test_a_file_of_datasets_keeps_its_values_and_its_features(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {
        "prompt_id": [f"p{row // 4}" for row in range(400)],
        "reward": [row % 3 for row in range(400)],
        "messages": [[{"role": "user", "content": "x" * (row // 4)}] for row in range(400)],
        "label": [row % 2 for row in range(400)],
    }
    was = datasets.Dataset.from_dict(columns).cast_column("label", datasets.ClassLabel(names=["bad", "good"]))
    source = tmp_path / "in.parquet"
    was.to_parquet(str(source), batch_size=100)
    output = spliced(source)
    assert "byte by byte" in adv(f"verify {output} --against {source}").out
    now = datasets.Dataset.from_parquet(str(output), cache_dir=str(tmp_path / "cache"))
    assert now.features == {**was.features, "advantage": datasets.Value("float64")}
    assert now.remove_columns("advantage").to_dict() == was.to_dict()
