"""All streams of a site as one streaming DataFrame: a column per stream, null but for the stream a row is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.errors import Problem, SpecError
from headrace.model import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CORRUPT", "read_stream", "unite"]

CORRUPT = "_corrupt_record"
# Formats whose readers can hand over a line they could not parse instead of failing.
_LENIENT = frozenset({"json", "csv"})


def read_stream(spark: SparkSession, stream: Stream) -> tuple[DataFrame, bool]:
    """The stream's rows, and whether unparseable ones come along in a column of their own."""
    source = stream.source
    if source is None:
        raise ValueError(f"stream '{stream.name}' has no source to read")
    options = dict(source.options)
    if source.format == "synthetic":
        from headrace.engine.synthetic import SyntheticSource

        spark.dataSource.register(SyntheticSource)
    lenient = source.format in _LENIENT and options.get("mode", "PERMISSIVE").upper() == "PERMISSIVE"
    schema = ", ".join(f"`{column.name}` {column.type}" for column in stream.columns)
    reader = spark.readStream.format("headrace_synthetic" if source.format == "synthetic" else source.format)
    if lenient:
        schema += f", {CORRUPT} STRING"
        options["columnNameOfCorruptRecord"] = CORRUPT
    if source.format not in ("synthetic", "kafka", "rate", "rate-micro-batch", "socket"):
        reader = reader.schema(schema)
    try:
        rows = reader.options(**options).load(source.path) if source.path else reader.options(**options).load()
    except Exception as exc:
        raise SpecError(
            Problem(f"stream '{stream.name}' cannot be read as {source.format}: {str(exc).splitlines()[0]}")
        ) from exc
    return rows, lenient


def unite(streams: Sequence[Stream], frames: Mapping[str, DataFrame], used: Mapping[str, frozenset[str]]) -> DataFrame:
    """One DataFrame over all streams: `_s`, the stream's number, and per stream a struct of the columns in use."""
    types = {}
    for stream in streams:
        fields = {field.name: field.dataType.simpleString() for field in frames[stream.name].schema.fields}
        wanted = [name for name in fields if name in used[stream.name] or name in (stream.time, CORRUPT)]
        types[stream.name] = {name: fields[name] for name in wanted}
    parts = []
    for i, stream in enumerate(streams):
        columns = [f"{i} AS _s"]
        for other in streams:
            names = types[other.name]
            if other.name == stream.name:
                columns.append(f"named_struct({', '.join(f'{name!r}, `{name}`' for name in names)}) AS `{other.name}`")
            else:
                shape = ",".join(f"`{name}`:{type_}" for name, type_ in names.items())
                columns.append(f"CAST(NULL AS STRUCT<{shape}>) AS `{other.name}`")
        parts.append(frames[stream.name].selectExpr(*columns))
    united = parts[0]
    for part in parts[1:]:
        united = united.unionAll(part)
    return united
