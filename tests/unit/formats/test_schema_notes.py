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


def woven(data: bytes, **added: list[Any]) -> tuple[bytes, list[str]]:
    return woven_with_notes(FORMATS["parquet"], data, inserting(added, replace=True))


def described(notes: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    table, sink = pa.table({"k": [1, 2], "r": [0.5, 1.0]}), io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(notes)
    out, told_of = woven(sink.getvalue(), advantage=[0.5, 1.5], status=["a", "b"], n=[1, 2], t=[[0.5], [0.0, 1.5]])
    found = pq.read_metadata(io.BytesIO(out)).metadata
    return {key: found[key.encode()].decode() for key in notes}, told_of


def test_other_tools_schemas_gain_the_columns() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "k", "type": "long", "nullable": True, "metadata": {}},
        {"name": "r", "type": "double"},
    ]
    avro = json.dumps(
        {"type": "record", "name": "t", "fields": [{"name": "k", "type": "long"}, {"name": "r", "type": "double"}]}
    )
    value = {"dtype": "int64", "_type": "Value"}
    found, left = described({
        SPARK: json.dumps({"type": "struct", "fields": fields}), "parquet.avro.schema": avro, "avro.schema": avro,
        "huggingface": json.dumps({"info": {"features": {"k": value, "r": value}, "x": 1}}), "mine": "{}",
    })  # fmt: skip
    assert left == []
    spark = json.loads(found[SPARK])["fields"]
    assert [(field["name"], field["type"]) for field in spark[2:]] == [
        ("advantage", "double"),
        ("status", "string"),
        ("n", "long"),
        ("t", {"type": "array", "elementType": "double", "containsNull": True}),
    ]
    assert spark[:2] == fields
    for key in ("avro.schema", "parquet.avro.schema"):
        assert json.loads(found[key])["fields"][2] == {"name": "advantage", "type": ["null", "double"], "default": None}
        assert json.loads(found[key])["fields"][5]["type"] == ["null", {"type": "array", "items": ["null", "double"]}]
    info = json.loads(found["huggingface"])["info"]
    assert list(info["features"]) == ["k", "r", "advantage", "status", "n", "t"]
    assert info["features"]["status"] == {"dtype": "string", "_type": "Value"} and info["x"] == 1
    number = {"dtype": "float64", "_type": "Value"}
    assert info["features"]["t"] == {"feature": number, "_type": "Sequence"}
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
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": [1, 2]}).replace_schema_metadata({"grpo_adv": "old", "mine": "kept"}), sink)
    once, _ = woven(sink.getvalue(), advantage=[0.5, 1.5])
    twice, _ = woven(once, advantage=[1.0, 2.0])
    for data in (once, twice):
        assert pq.read_schema(io.BytesIO(data)).metadata == {b"grpo_adv": NOTE["grpo_adv"].encode(), b"mine": b"kept"}
        assert list(pq.read_metadata(io.BytesIO(data)).metadata).count(b"grpo_adv") == 1


def test_a_replaced_column_gets_a_new_description_in_its_place() -> None:
    fields: list[dict[str, Any]] = [
        {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("k", "r")
    ]
    value = {"dtype": "int64", "_type": "Value"}
    table, sink = pa.table({"k": [1, 2], "r": [1, 2]}), io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema(table.schema, {"pandas": '{"columns":[{"field_name":"k"}]}'})) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {
                SPARK: json.dumps({"type": "struct", "fields": fields}),
                "huggingface": json.dumps({"info": {"features": {"k": value, "r": value}}}),
            }
        )
    out, _ = woven(sink.getvalue(), k=[0.5, 1.5])
    found = pq.read_metadata(io.BytesIO(out)).metadata
    assert [field["type"] for field in json.loads(found[SPARK.encode()])["fields"]] == ["double", "long"]
    features = json.loads(found[b"huggingface"])["info"]["features"]
    assert [(name, feature["dtype"]) for name, feature in features.items()] == [("k", "float64"), ("r", "int64")]
    assert [column["pandas_type"] for column in json.loads(found[b"pandas"])["columns"]] == ["float64"]
    assert pq.read_schema(io.BytesIO(out)).types == [pa.float64(), pa.int64()]
