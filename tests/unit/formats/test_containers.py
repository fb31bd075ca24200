"""Files that hold their rows in another container: what is read is what was put in, and nothing in them is run."""

from __future__ import annotations

import json
import os
import pickle
import re
import sqlite3
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from grpo_cli.errors import DataError, UsageError
from grpo_cli.formats import registry
from tests.support.bad_files import torch_zip, zipped
from tests.support.command import files
from tests.support.jobs import compute, look, near, refused, rows_of

# --- all of them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", registry._CONTAINERS)
def test_every_container_is_documented(suffix: str) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "schemas.md").read_text(encoding="utf-8")
    rows = re.findall(r"^ *\| (`\..*?) \| ", page, re.MULTILINE)
    assert f"`{suffix}`" in ", ".join(rows), "docs/schemas.md needs a line in its table of containers"


# --- tables of W&B and MLflow -------------------------------------------------------------------------------------


TABLE = """{"columns": ["prompt_id", "reward", "text"], "index": [0, 1, 2], "data": [
    [0, 0.0, "é 0"], [0, 1.0, "é 1"], [1, 0.5, "é 2"]
], "ncols": 3}"""
WITH_ADVANTAGES = r"""{"prompt_id": 0, "reward": 0.0, "text": "\u00e9 0","advantage":-1.0}
{"prompt_id": 0, "reward": 1.0, "text": "\u00e9 1","advantage":1.0}
{"prompt_id": 1, "reward": 0.5, "text": "\u00e9 2","advantage":0.0}
"""


@pytest.mark.parametrize("text", [TABLE, TABLE.replace('"index": [0, 1, 2], ', "")])
def test_a_table_of_columns_and_data_is_read(text: str) -> None:
    path = Path("eval.table.json")
    path.write_text(text)
    assert compute(path, method="rloo").facts["outputs"] == ["eval.table.advantages.jsonl"]
    assert Path("eval.table.advantages.jsonl").read_text() == WITH_ADVANTAGES
    compute(path, method="rloo", output="o.parquet")
    assert pl.read_parquet("o.parquet")["advantage"].to_list() == [-1, 1, 0]
    compute(path, method="rloo", output="out/")
    assert Path("out/eval.table.jsonl").read_text() == WITH_ADVANTAGES
    assert path.read_text() == text


@pytest.mark.parametrize("to", ["out/", "s3://bucket/out/"])
def test_two_inputs_whose_outputs_would_have_one_name_are_refused(to: str) -> None:
    Path("x.json").write_text(TABLE)
    Path("x.jsonl").write_text(WITH_ADVANTAGES)
    cases: list[tuple[Any, str]] = [({}, r"x\.advantages\.jsonl"), ({"output": to}, rf"{to}x\.jsonl")]
    for options, written in cases:
        with pytest.raises(UsageError, match=f"two inputs would be written to {written}; run them separately"):
            compute("x.json", "x.jsonl", force=True, group_within="file", **options)
    assert files().keys() == {"x.json", "x.jsonl"}


def test_a_table_is_never_written_into() -> None:
    path = Path("eval.table.json")
    path.write_text(TABLE)
    with pytest.raises(UsageError, match=r"eval\.table\.json cannot be changed in place: its format is read-only"):
        compute(path, in_place=True)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ('{"columns": ["a", "a"], "data": [[1, 2]]}', "columns 1 and 2 are named 'a'"),
        ('{"columns": ["a", "b"], "data": [[1, 2], [1]]}', "t.json row 2: 1 values for 2 columns"),
        ('{"columns": ["a", "b"], "data": [{"a": 1}]}', "t.json row 1: no values for 2 columns"),
        ('{"columns": ["reward"], "data": []}', "t.json: no rows"),
    ],
)
def test_a_table_that_is_none_says_where(found: str, message: str) -> None:
    Path("t.json").write_text(found)
    assert message in refused("t.json")


# --- Inspect archives -----------------------------------------------------------------------------------------------


SAMPLE = """{
  "id": "NAME", "epoch": EPOCH, "input": "what is NAME?", "error": null, "messages": [],
  "scores": {"match": {"value": "VALUE"}}
}"""
SAMPLES_OF_LOG = [line.split() for line in ("a 1 I", "b 1 C", "a 2 C", "b 2 I", "a 10 I", "b 10 C")]


def inspect_archive(path: Path, *, started: bool = False) -> Path:
    """An archive as Inspect writes it: its parts, and a member for each sample."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", '{"version": 2, "eval": {"task": "t"}, "plan": {}}')
        for name, epoch, value in SAMPLES_OF_LOG:
            sample = SAMPLE.replace("NAME", name).replace("EPOCH", epoch).replace("VALUE", value)
            archive.writestr(f"samples/{name}_epoch_{epoch}.json", sample)
        archive.writestr("summaries.json", "[]")
        if not started:
            archive.writestr("header.json", '{"version": 2, "status": "success", "eval": {"task": "t"}, "plan": {}}')
    return path


@pytest.mark.parametrize("started", [True, False])
def test_an_inspect_archive_is_read_as_its_log(*, started: bool, tmp_path: Path) -> None:
    path = inspect_archive(Path("log.eval"), started=started)
    found = compute(path, method="dr-grpo")
    assert "read as Inspect log" in found.narrow.notes[0]
    made = json.loads(Path("log.advantages.json").read_text())
    samples = pl.DataFrame(made["samples"])
    assert samples["id"].to_list() == ["a", "a", "a", "b", "b", "b"]
    assert samples["epoch"].to_list() == [1, 2, 10, 1, 2, 10]
    assert samples["advantage"].to_list() == near([-1 / 3, 2 / 3, -1 / 3, 1 / 3, -2 / 3, 1 / 3])
    assert made["eval"] == {"task": "t"}
    assert look(tmp_path).facts["rows"] == 6  # found in a directory, and what was made of it is not


def with_zstandard(path: Path) -> Path:
    """The same archive with its members packed by zstandard, which the zipfile of this Python may not write."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, pa.compress(content, "zstd", asbytes=True))
        heads = archive.infolist()
        at = archive.start_dir
    data = bytearray(path.read_bytes())
    for info in heads:
        content = contents[info.filename]
        sizes = struct.pack("<III", zlib.crc32(content), info.compress_size, len(content))
        for place in (info.header_offset + 8, at + 10):  # the method, 4 bytes of time, what it holds
            data[place : place + 2] = struct.pack("<H", 93)
            data[place + 6 : place + 18] = sizes
        at += 46 + len(info.filename)
    path.write_bytes(data)
    return path


def test_members_packed_by_zstandard_are_read() -> None:
    packed = with_zstandard(inspect_archive(Path("packed.eval")))
    compute(inspect_archive(Path("plain.eval")))
    compute(packed)
    assert Path("packed.advantages.json").read_bytes() == Path("plain.advantages.json").read_bytes()
    data = packed.read_bytes()
    for broken in (data.replace(b"\x28\xb5\x2f\xfd", b"\0\0\0\0"), data[:20] + bytes(20) + data[40:]):
        packed.write_bytes(broken)
        with pytest.raises(DataError, match=r"packed\.eval: cannot be unpacked"):
            look(packed)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04broken"])
@pytest.mark.parametrize("suffix", [".eval", ".pt", ".db"])
def test_a_container_that_is_broken_is_one_line(suffix: str, content: bytes) -> None:
    Path(f"a{suffix}").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\{suffix}: (not readable as an? |has 0 tables)") as error:
        look(f"a{suffix}")
    if content.startswith(b"PK") and suffix != ".db":
        assert str(error.value).endswith("the end of the archive is missing; was its writer stopped?")


def with_zeros(data: bytes) -> bytes:
    at = data.index(b"samples/a_epoch_2.json") + 30  # in what is packed behind its name
    return data[:at] + bytes(20) + data[at + 20 :]


def with_a_late_list(data: bytes) -> bytes:
    """The size of the list is another one, and the list begins at a later member; zipfile takes that for all of it."""
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    end = data.rindex(b"PK\5\6")
    return data[: end + 12] + struct.pack("<II", end - second, second) + data[end + 20 :]


def with_another_name(data: bytes) -> bytes:
    at = data.rindex(b"samples/b_epoch_2.json")
    return data[:at] + b"r" + data[at + 1 :]


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        (with_zeros, ""),
        (with_a_late_list, "8 of 9 members are listed"),
        (with_another_name, r"'ramples/b_epoch_2\.json' is named 'samples/b_epoch_2\.json'"),
    ],
)
def test_an_archive_with_a_broken_or_lost_member_is_refused(spoiled: Callable[[bytes], bytes], why: str) -> None:
    path = inspect_archive(Path("log.eval"))
    path.write_bytes(spoiled(path.read_bytes()))
    with pytest.raises(DataError, match=rf"log\.eval: cannot be unpacked: {why}"):
        look(path)


# --- SQLite ---------------------------------------------------------------------------------------------------------


def trackio(path: Path, logs: list[tuple[str, int, Any]]) -> Path:
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)")  # fmt: skip
        opened.execute("CREATE TABLE configs (run_name TEXT, config TEXT)")
        for run, step, logged in logs:
            values = ("2026", run, step, json.dumps(logged))
            opened.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", values)
        opened.commit()
    return path


def completions(step: int) -> Any:
    table = f"""{{"loss": 0.5, "completions": {{"_type": "trackio.table", "_value": [
        {{"step": {step}, "prompt": "a", "completion": "x", "acc": 1.0, "advantage": 0.0}},
        {{"step": {step}, "prompt": "a", "completion": "y", "acc": 0.0, "advantage": 0.0}},
        {{"step": {step}, "prompt": "b", "completion": "x", "acc": 1.0, "advantage": 0.0}},
        {{"step": {step}, "prompt": "b", "completion": "y", "acc": 0.0, "advantage": 0.0}}
    ]}}}}"""
    return json.loads(table)


def test_tables_that_trackio_logged_are_rows_with_their_run() -> None:
    logs = [("one", 1, {"loss": 1.0}), ("one", 1, completions(1)), ("one", 2, completions(2))]
    path = trackio(Path("project.db"), logs)
    before = path.read_bytes()
    found = compute(path, method="rloo", column="mine")
    made = Path("project.advantages.jsonl").read_text().splitlines()
    assert len(made) == 8
    assert made[5] == (
        '{"run_name": "one", "step": 2, "table": "completions", "prompt": "a", "completion": "y", "acc": 0.0, "advantage": 0.0,"mine":-1.0}'
    )
    assert [line.partition('"mine":')[2] for line in made] == ["1.0}", "-1.0}"] * 4
    assert found.facts["groups"] == 4
    assert files().keys() == {"project.db", "project.advantages.jsonl"}
    assert path.read_bytes() == before


def test_the_same_prompts_of_two_runs_are_never_merged() -> None:
    path = trackio(Path("project.db"), [("one", 1, completions(1)), ("two", 1, completions(1))])
    assert look(path, column="mine").facts["groups"] == 4
    traces = json.loads("""{"traces": [
        {"_type": "trackio.trace", "messages": [], "metadata": {"uid": 1, "reward": 0}},
        {"_type": "trackio.trace", "messages": [], "metadata": {"uid": 1, "reward": 1}}
    ]}""")
    path = trackio(Path("traces.db"), [("one", 1, traces), ("two", 1, traces)])
    assert "several values of 'run_name'" in refused(path)
    found = look(path, group=["uid", "run_name"], method="rloo")
    assert found.scored.rows[".advantage"].to_list() == [-1, 1, -1, 1]


def test_what_a_writer_has_not_put_into_the_database_yet_is_read_as_well() -> None:
    path = Path("rows.sqlite")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute('CREATE TABLE "my rows" (prompt_id INTEGER, reward REAL, raw BLOB)')
        writer.executemany('INSERT INTO "my rows" VALUES (?, ?, ?)', [(0, 0.0, b"\0"), (0, 1.0, b"\1")])
        writer.commit()
        compute(path, method="rloo", output="o.jsonl")
    assert (
        Path("o.jsonl").read_text()
        == """\
{"prompt_id": 0, "reward": 0.0, "raw": "AA==","advantage":-1.0}
{"prompt_id": 0, "reward": 1.0, "raw": "AQ==","advantage":1.0}
"""
    )


WRITER = """
import os, sqlite3, sys
writer = sqlite3.connect(sys.argv[1], isolation_level=None)
writer.execute(f"PRAGMA journal_mode={sys.argv[2]}")
writer.execute("PRAGMA cache_size=1")
writer.execute("CREATE TABLE IF NOT EXISTS r (prompt_id INTEGER, reward REAL, text TEXT)")
writer.execute("BEGIN")
writer.executemany("INSERT INTO r VALUES (?, ?, ?)", [(at // 2, at % 2, "x" * 500) for at in range(200)])
writer.execute("COMMIT")
writer.execute("BEGIN")
writer.execute("UPDATE r SET reward = 7.0")
os._exit(0)
"""


@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST", "WAL"])
@pytest.mark.parametrize("name", ["a link", "the file"])
def test_rewards_that_were_never_committed_are_not_read(mode: str, name: str) -> None:
    path = Path("rows.sqlite")
    subprocess.run([sys.executable, "-c", WRITER, str(path), mode], check=True)
    before = files()
    assert len(before) > 1  # what the writer left beside it
    if name == "a link":
        Path("sub").mkdir()
        Path("sub/rows.sqlite").symlink_to(path.resolve())
        path = Path("sub/rows.sqlite")
    if mode == "WAL":
        compute(path, method="rloo", output="o.jsonl")
        assert [row["reward"] for row in rows_of("o.jsonl")] == [0, 1] * 100
    else:
        with pytest.raises(DataError, match=r"a transaction is open or was interrupted: .*/rows\.sqlite-journal; wait"):
            compute(path, method="rloo", output="o.jsonl")
    assert {name: Path(name).read_bytes() for name in before} == before


def test_several_tables_are_a_question() -> None:
    with closing(sqlite3.connect(Path("a.db"))) as opened:
        opened.execute("CREATE TABLE a (x)")
        opened.execute("CREATE TABLE b (x)")
    assert "has 2 tables: a, b; export one of them as JSON lines" in refused("a.db")


# --- files of torch.save --------------------------------------------------------------------------------------------


SAMPLE_LINES = """\
{"group_index": 0, "index": 0, "prompt": "p", "response": "é", "response_length": 3, "reward": 0.0, "status": "completed", "tokens": [1, 2], "remove_sample": false}
{"group_index": 0, "index": 1, "prompt": "p", "response": "é", "response_length": 3, "reward": 1.0, "status": "completed", "tokens": [1, 2], "remove_sample": false}
{"group_index": 1, "index": 2, "prompt": "p", "response": "é", "response_length": 3, "reward": 0.0, "status": "completed", "tokens": [1, 2], "remove_sample": false}
{"group_index": 1, "index": 3, "prompt": "p", "response": "é", "response_length": 3, "reward": 1.0, "status": "completed", "tokens": [1, 2], "remove_sample": false}
"""
SAMPLES = [json.loads(line) for line in SAMPLE_LINES.splitlines()]


@pytest.mark.parametrize(
    "content",
    [
        {"rollout_id": 7, "samples": SAMPLES, "metadata": {"a": (1, None)}},
        SAMPLES,
        {"rollout_id": 7, "samples": [SAMPLES[:2], SAMPLES[2:]]},
        pl.DataFrame(SAMPLES).to_dict(as_series=False),
    ],
)
def test_a_dump_of_samples_is_read(content: Any) -> None:
    path = Path("rollout_7.pt")
    path.write_bytes(torch_zip(pickle.dumps(content, 2)))
    found = compute(path, method="rloo")
    made = rows_of("rollout_7.advantages.jsonl")
    assert [row.pop("advantage") for row in made] == [-1, 1, -1, 1]
    for row, sample in zip(made, SAMPLES, strict=True):
        assert sample.items() <= row.items()
    assert "read as slime samples" in found.narrow.notes[0]


def tensor(kind: str, count: int, size: Sequence[int], stride: Sequence[int], key: int = 0) -> str:
    """What makes a tensor of the numbers beside the pickle, in the words of a pickle."""
    sizes = "".join(f"I{number}\n" for number in size)
    steps = "".join(f"I{number}\n" for number in stride)
    storage = f"(S'storage'\nctorch\n{kind}Storage\nS'{key}'\nS'cpu'\nI{count}\ntQ"
    return f"ctorch._utils\n_rebuild_tensor_v2\n({storage}I0\n({sizes}t({steps}tI00\n(dtR"


def test_tensors_are_lists_of_their_numbers() -> None:
    arrays: dict[str, tuple[str, Any]] = {
        "prompt_id": ("Long", np.array([5, 5])),
        "reward": ("Float", np.array([0.0, 1.0], np.float32)),
        "tokens": ("Long", np.array([[1, 2], [3, 4]])),
        "mask": ("Bool", np.array([[True, False], [False, True]])),
        "half": ("Half", np.array([0.5, 2.5], np.float16)),
        "brain": ("BFloat16", np.array([0x3FC0, 0xBFC0], np.uint16)),
    }
    words = ""
    members = {}
    for key, (name, (kind, values)) in enumerate(arrays.items()):
        stride = (2, 1)[-values.ndim :]
        words += f"S'{name}'\n" + tensor(kind, values.size, values.shape, stride, key)
        members[f"archive/data/{key}"] = values.tobytes()
    members["archive/data.pkl"] = f"({words}d.".encode()
    Path("batch.pt").write_bytes(zipped(members, zipfile.ZIP_STORED))
    compute("batch.pt", method="rloo", output="o.jsonl")
    assert (
        Path("o.jsonl").read_text()
        == """\
{"prompt_id": 5, "reward": 0.0, "tokens": [1, 2], "mask": [true, false], "half": 0.5, "brain": 1.5,"advantage":-1.0}
{"prompt_id": 5, "reward": 1.0, "tokens": [3, 4], "mask": [false, true], "half": 2.5, "brain": -1.5,"advantage":1.0}
"""
    )


CALLED: list[str] = []


def call(text: str) -> str:
    CALLED.append(text)
    return text


class Calls:
    """What a hostile pickle is made of: it has something called when it is opened."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.args


def hostile() -> dict[str, bytes]:
    written = {
        "os.system": Calls(os.system, "false"),
        "builtins.getattr": Calls(getattr, 1, "real"),
        "numpy": np.arange(3),
        "a function of this test, inside of a list": [{"reward": 1, "x": [Calls(call, "ran")]}],
    }
    pickles = {name: pickle.dumps(one, protocol) for name, one in written.items() for protocol in (2, 4)}
    spelled = "cos\nsystem\n(S'false'\ntR."
    here = __name__
    return pickles | {
        "protocol 0": spelled.encode(),
        "INST": f"(S'ran'\ni{here}\ncall\n.".encode(),
        "OBJ": f"(c{here}\ncall\nS'ran'\no.".encode(),
        "STACK_GLOBAL": b"\x80\x04\x8c" + bytes([len(here)]) + here.encode() + b"\x8c\x04call\x93\x8c\x03ran\x85R.",
        "a dotted name": b"\x80\x04\x8c\x05torch\x8c\x12FloatStorage.upper\x93)R.",
        "an attribute of what is admitted": b"\x80\x04\x8c\x0ctorch._utils\x8c\x22_rebuild_tensor_v2.__class__.__mro__\x93)R.",
        "another function of torch": b"ctorch.serialization\nload\n(S'x'\ntR.",
        "a persistent id": b"\x80\x02(X\x07\x00\x00\x00storagecos\nsystem\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ.",
        "an extension": b"\x80\x02\x82\x01.",
    }


@pytest.mark.parametrize("name", hostile())
def test_a_pickle_that_would_call_anything_is_refused_before_it_does(name: str) -> None:
    CALLED.clear()
    Path("a.pt").write_bytes(torch_zip(hostile()[name]))
    with pytest.raises(DataError, match=r"a\.pt: (its pickle would call .* not allowed; it was not called|not readable as a torch\.save file)"):  # fmt: skip
        look("a.pt")
    assert not CALLED


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x08\x00\x00\x00__call__K\x01sb.",  # attributes of what is admitted
        b"\x80\x02ctorch\nFloatStorage\n)R.",  # a name that is no function
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00(K\x01t(K\x01tt\x52.",  # a tensor of something else
        b"\x80\x02]q\x00h\x00a.",  # a list that holds itself
        b"\x80\x02K\x01.",
        b"\x80\x02].",
        b"\x80\x02]K\x01a.",
        b"\x80\x02",
        b"",
    ],
)
def test_a_pickle_without_samples_is_one_line(data: bytes) -> None:
    Path("a.pt").write_bytes(torch_zip(data))
    with pytest.raises(DataError, match=r"a\.pt: (has no list of samples|not readable as a torch\.save file)"):
        look("a.pt")


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_brackets_in_texts_and_numbers_and_many_small_lists_are_no_bomb(protocol: int) -> None:
    row = {"prompt_id": 1, "text": "]}" * 500, "tokens": [93] * 500, "logs": [[] for _ in range(100)]}
    row["pairs"] = [(at, 93) for at in range(100)]
    row["calls"] = [{} for _ in range(100)]
    rows = [row | {"reward": 0.0}, row | {"reward": 1.0}]
    Path("a.pt").write_bytes(torch_zip(pickle.dumps(rows, protocol)))
    assert look("a.pt", method="rloo").scored.rows[".advantage"].to_list() == [-1.0, 1.0]


@pytest.mark.parametrize(("size", "stride"), [((7,), (1,)), ((10**9,), (0,)), ((6,), (2,)), ((6,), (-1,)), ((3, 3), (1, 1))])  # fmt: skip
def test_a_tensor_beyond_its_storage_is_refused(size: Any, stride: Any) -> None:
    words = f"(S'reward'\n{tensor('Double', 6, size, stride)}d."
    Path("a.pt").write_bytes(torch_zip(words.encode(), bytes(48)))
    assert "a tensor beyond its storage" in refused("a.pt")


def test_a_member_that_is_compressed_is_refused() -> None:
    Path("a.pt").write_bytes(zipped({"archive/data.pkl": bytes(10_000)}))
    assert "archive/data.pkl is compressed" in refused("a.pt")
