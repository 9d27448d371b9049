"""All streams of a site as one streaming DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Problem, SpecError
from headrace.model import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CORRUPT", "United", "read_stream", "unite"]

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


@dataclass(frozen=True)
class United:
    """All streams as one: flat columns, which rows carry cheaply, and the SQL that makes structs of them."""

    rows: DataFrame
    structs: tuple[str, ...]

    def by_stream(self, rows: DataFrame) -> DataFrame:
        """Rows with `_s`, the stream's number, and a column per stream; Spark reads through the structs."""
        return rows.selectExpr("_s", *self.structs)


def unite(streams: Sequence[Stream], frames: Mapping[str, DataFrame], used: Mapping[str, frozenset[str]]) -> United:
    """The columns in use of all streams; each row has those of its stream, the others are null."""
    types: dict[tuple[int, str], str] = {}
    for i, stream in enumerate(streams):
        for field in frames[stream.name].schema.fields:
            if field.name in used[stream.name] or field.name in (stream.time, CORRUPT):
                types[i, field.name] = field.dataType.simpleString()
    parts = []
    for i, stream in enumerate(streams):
        columns = [
            f"`{name}` AS `_{j}_{name}`" if j == i else f"CAST(NULL AS {type_}) AS `_{j}_{name}`"
            for (j, name), type_ in types.items()
        ]
        parts.append(frames[stream.name].selectExpr(f"{i} AS _s", *columns))
    united = parts[0]
    for part in parts[1:]:
        united = united.unionAll(part)
    structs = tuple(
        f"named_struct({', '.join(f'{name!r}, `_{j}_{name}`' for j, name in types if j == i)}) AS `{stream.name}`"
        for i, stream in enumerate(streams)
    )
    return United(united, structs)
