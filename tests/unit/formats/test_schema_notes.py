"""What other tools noted of the schema in a Parquet footer stays true."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo_cli.formats.registry import FORMATS
from tests.support.weaving import NOTE, inserting, woven_with_notes

SPARK = "org.apache.spark.sql.parquet.row.metadata"
SPARK_NOTE = """{"type": "struct", "fields": [
    {"name": "k", "type": "long", "nullable": true, "metadata": {}},
    {"name": "r", "type": "double", "nullable": true, "metadata": {}}
]}"""
HUGGINGFACE_NOTE = """{"info": {"x": 1, "features": {
    "k": {"dtype": "int64", "_type": "Value"}, "r": {"dtype": "int64", "_type": "Value"}
}}}"""


def woven(data: bytes, **added: list[Any]) -> tuple[bytes, list[str]]:
    return woven_with_notes(FORMATS["parquet"], data, inserting(added, replace=True))


def parquet_of(table: pa.Table, notes: dict[str, str], **options: Any) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(notes)
    return sink.getvalue()


def described(notes: dict[str, str]) -> tuple[Any, list[str]]:
    data = parquet_of(pa.table({"k": [1, 2], "r": [0.5, 1.0]}), notes, store_schema=False)
    out, told_of = woven(data, advantage=[0.5, 1.5], status=["a", "b"], n=[1, 2], t=[[0.5], [0.0, 1.5]])
    found = pq.read_metadata(io.BytesIO(out)).metadata
    return {key: found[key.encode()].decode() for key in notes}, told_of


def test_other_tools_schemas_gain_the_columns() -> None:
    avro = '{"type": "record", "name": "t", "fields": []}'
    found, left = described({
        SPARK: SPARK_NOTE, "parquet.avro.schema": avro, "avro.schema": avro, "huggingface": HUGGINGFACE_NOTE, "mine": "{}",
    })  # fmt: skip
    unknown = "is left without the new column: its format is unknown"
    assert left == [f"in: the metadata entry {key!r} {unknown}" for key in ("parquet.avro.schema", "avro.schema")]
    assert found["avro.schema"] == found["parquet.avro.schema"] == avro
    spark = json.loads(found[SPARK])["fields"]
    assert spark[:2] == json.loads(SPARK_NOTE)["fields"]
    assert spark[2:] == json.loads("""[
        {"name": "advantage", "type": "double", "nullable": true, "metadata": {}},
        {"name": "status", "type": "string", "nullable": true, "metadata": {}},
        {"name": "n", "type": "long", "nullable": true, "metadata": {}},
        {"name": "t", "type": {"type": "array", "elementType": "double", "containsNull": true}, "nullable": true, "metadata": {}}
    ]""")
    assert json.loads(found["huggingface"]) == json.loads("""{"info": {"x": 1, "features": {
        "k": {"dtype": "int64", "_type": "Value"}, "r": {"dtype": "int64", "_type": "Value"},
        "advantage": {"dtype": "float64", "_type": "Value"}, "status": {"dtype": "string", "_type": "Value"},
        "n": {"dtype": "int64", "_type": "Value"},
        "t": {"feature": {"dtype": "float64", "_type": "Value"}, "_type": "Sequence"}
    }}}""")
    assert [*json.loads(found["huggingface"])["info"]["features"]] == ["k", "r", "advantage", "status", "n", "t"]
    assert found["mine"] == "{}"


@pytest.mark.parametrize("key", [SPARK, "pandas", "huggingface", "avro.schema"])
@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"fields":[]}', '{"fields":3}', '{"info":{"features":{"z":1}}}']
)
def test_what_cannot_be_parsed_stays_and_is_noted(key: str, text: str) -> None:
    found, left = described({key: text})
    assert found == {key: text}
    assert left == [f"in: the metadata entry {key!r} is left without the new column: its format is unknown"]


def test_our_own_entry_is_replaced_and_not_doubled() -> None:
    table = pa.table({"k": [1, 2]}).replace_schema_metadata({"grpo_adv": "old", "mine": "kept"})
    once, _ = woven(parquet_of(table, {}), advantage=[0.5, 1.5])
    twice, _ = woven(once, advantage=[1.0, 2.0])
    for data in (once, twice):
        assert pq.read_schema(io.BytesIO(data)).metadata == {b"grpo_adv": NOTE["grpo_adv"].encode(), b"mine": b"kept"}
        assert list(pq.read_metadata(io.BytesIO(data)).metadata).count(b"grpo_adv") == 1


def test_a_replaced_column_gets_a_new_description_in_its_place() -> None:
    notes = {SPARK: SPARK_NOTE.replace("double", "long"), "huggingface": HUGGINGFACE_NOTE}
    table = pa.table({"k": [1, 2], "r": [1, 2]}, metadata={"pandas": '{"columns":[{"field_name":"k"}]}'})
    out, _ = woven(parquet_of(table, notes), k=[0.5, 1.5])
    found = pq.read_metadata(io.BytesIO(out)).metadata
    spark = SPARK_NOTE.replace("double", "long").replace("long", "double", 1)
    assert json.loads(found[SPARK.encode()]) == json.loads(spark)
    assert json.loads(found[b"huggingface"]) == json.loads(HUGGINGFACE_NOTE.replace("int64", "float64", 1))
    (column,) = json.loads(found[b"pandas"])["columns"]
    assert column["pandas_type"] == "float64"
    assert pq.read_schema(io.BytesIO(out)).types == [pa.float64(), pa.int64()]
