"""A record that has the types of a typed file, made of its schema alone: nothing of the data is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_cli.io.local import Input


def row_of(source: Input, kind: str) -> dict[str, Any]:
    """One value of its type for each column."""
    if kind == "parquet":
        import pyarrow.parquet as pq

        with source.open() as handle:
            schema = pq.read_schema(handle)
    else:
        from grpo_cli.formats.arrow import schema_of

        schema = schema_of(source)
    return {one.name: _value(one.type) for one in schema}


def _value(dtype: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_struct(dtype):
        inner = (dtype.field(at) for at in range(dtype.num_fields))
        return {one.name: _value(one.type) for one in inner}
    if pa.types.is_map(dtype):
        return {}
    if _is_list(dtype):
        return [_value(dtype.value_type)]
    if pa.types.is_boolean(dtype):
        return True
    if pa.types.is_integer(dtype):
        return 1
    if pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return 1.0
    return None if pa.types.is_null(dtype) else ""


def _is_list(dtype: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(dtype) for test in tests) or "list_view" in str(dtype)
