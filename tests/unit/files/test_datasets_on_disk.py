"""Folders that Hugging Face libraries write: a saved data set, its cache, a repository in the cache of the hub."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import ipc

from grpo_cli.errors import DataError
from tests.support.jobs import advantages, compute, look, write

ROWS = [{"prompt_id": k // 4, "reward": float(k % 3 == 0)} for k in range(30)]


def shards(folder: Path, count: int, name: str = "data") -> Path:
    """The rows as `save_to_disk` writes them: Arrow streams that are cut anywhere, and two notes beside them."""
    folder.mkdir(parents=True)
    size = -(-len(ROWS) // count)
    for at in range(count):
        table = pl.DataFrame(ROWS[at * size : (at + 1) * size]).to_arrow(compat_level=pl.CompatLevel.oldest())
        with ipc.new_stream(folder / f"{name}-{at:05d}-of-{count:05d}.arrow", table.schema) as writer:
            writer.write_table(table)
    (folder / "dataset_info.json").write_text('{"features": {}, "splits": null}', encoding="utf-8")
    if name == "data":  # a cache has no such note
        listed = [{"filename": path.name} for path in sorted(folder.glob("*.arrow"))]
        (folder / "state.json").write_text(json.dumps({"_data_files": listed}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("count", [1, 3])
def test_a_saved_data_set_is_read_as_one(count: int, tmp_path: Path) -> None:
    folder = shards(tmp_path / "saved", count)
    found = compute(folder, method="rloo", output=f"{tmp_path}/out/")
    wanted = advantages([row["reward"] for row in ROWS], [row["prompt_id"] for row in ROWS], method="rloo")
    assert found.scored.rows[".advantage"].to_list() == wanted
    made = sorted((tmp_path / "out").iterdir())
    assert len(made) == count
    tables = [ipc.open_stream(path).read_all() for path in made]
    assert pa.concat_tables(tables)["advantage"].to_pylist() == wanted


def test_blocks_go_on_from_shard_to_shard(tmp_path: Path) -> None:
    found = look(shards(tmp_path / "saved", 4), schema="none", group_size=4, partial="keep")
    assert found.facts["groups"] == 8


def test_one_of_several_splits_has_to_be_named(tmp_path: Path) -> None:
    for split in ("train", "test"):
        shards(tmp_path / "saved" / split, 2)
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}', encoding="utf-8")
    for named in (tmp_path / "saved", tmp_path):
        with pytest.raises(
            DataError, match=r"saved: a data set with 2 splits: train, test; name one of them, as .*/saved/train"
        ):
            look(named)
    for split in ("train", "test"):
        assert look(tmp_path / "saved" / split).facts["rows"] == len(ROWS)
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}', encoding="utf-8")
    shutil.rmtree(tmp_path / "saved" / "test")
    assert look(tmp_path / "saved").facts["rows"] == len(ROWS)


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = shards(tmp_path / "saved", 3)
    (folder / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(DataError, match=r"data-00001-of-00003\.arrow: no such file, but state\.json lists it"):
        look(folder)


@pytest.mark.parametrize("pattern", ["saved", "saved/*.arrow", "sav*"])
def test_a_shard_of_an_earlier_save_is_not_read(pattern: str, tmp_path: Path) -> None:
    folder = shards(tmp_path / "saved", 3)
    shutil.copy(folder / "data-00001-of-00003.arrow", folder / "data-00001-of-00002.arrow")
    found = look(str(tmp_path / pattern))
    assert found.facts["rows"] == len(ROWS)
    assert "data-00001-of-00002.arrow" in str(found.facts)
    assert look(folder / "data-00001-of-00002.arrow").facts["rows"] == 10  # a file that is named is read


@pytest.mark.parametrize("state", ["[]", "{", '{"_data_files": 5}', '{"_data_files": [{}]}', "[" * 9999, '"\udcff"'])
def test_an_unrelated_state_json_is_ignored(state: str, tmp_path: Path) -> None:
    folder = shards(tmp_path / "saved", 2)
    (folder / "state.json").write_bytes(state.encode("utf-8", "surrogateescape"))
    assert look(folder).facts["rows"] == len(ROWS)


def test_what_was_computed_of_a_cached_data_set_is_not_read_with_it(tmp_path: Path) -> None:
    shards(tmp_path / "cache", 1, "name-train")
    copy = (tmp_path / "cache" / "name-train-00000-of-00001.arrow").read_bytes()
    (tmp_path / "cache" / "cache-5b3b6e4df39bfaa2.arrow").write_bytes(copy)
    assert look(tmp_path / "cache").facts["rows"] == len(ROWS)


def test_of_a_repository_in_the_cache_of_the_hub_the_files_of_now_are_read(tmp_path: Path) -> None:
    repository = tmp_path / "datasets--org--name"
    for at, revision in enumerate(("aaa", "bbb")):
        blob = write(repository / "blobs" / f"{at}{at}", ROWS[: 4 * (at + 1)])
        (repository / "snapshots" / revision).mkdir(parents=True)
        (repository / "snapshots" / revision / "train.jsonl").symlink_to(blob)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_bytes(b"bbb\n")
    for top in (repository, tmp_path, repository / "snapshots"):
        found = look(top)
        assert found.facts["rows"] == 8
        assert found.facts["inputs"] == [str(repository / "snapshots" / "bbb" / "train.jsonl")]


def test_a_reference_that_is_no_text_names_no_snapshot(tmp_path: Path) -> None:
    write(tmp_path / "snapshots" / "bbb" / "train.jsonl", ROWS)
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "main").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="no file to read in this directory"):
        look(tmp_path / "snapshots")
