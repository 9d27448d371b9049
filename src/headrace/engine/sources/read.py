"""All streams of a site as one streaming DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.sources.messages import CORRUPT, decode
from headrace.engine.sources.selecting import UNMADE, selected
from headrace.engine.spark.secrets import resolve
from headrace.errors import Problem, SpecError
from headrace.language import SYNTHETIC_FORMAT, intake_unit, is_set
from headrace.model import PLACE, Source, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LINKS", "United", "made_in_python", "read_stream", "sources_of", "unite"]

# Beside the frames of streams, the source that says what came along links; no stream can have this name.
LINKS = ""

# Formats whose readers can hand over a line they could not parse instead of failing.
_LENIENT = frozenset({"json", "csv"})


def made_in_python(streams: Sequence[Stream]) -> bool:
    """Whether Spark asks a Python process what rows there are."""
    return any(stream.source is not None and stream.source.format == SYNTHETIC_FORMAT for stream in streams)


def read_stream(spark: SparkSession, stream: Stream, intake: int | None = None) -> tuple[DataFrame, bool]:
    """The stream's rows, and whether ones that cannot be read or made come along in a column of their own.

    `intake` is how much an epoch takes, where the engine sets that.
    """
    source = stream.source
    if source is None:
        raise ValueError(f"stream '{stream.name}' has no source to read")
    options = resolve(source.options, f"stream '{stream.name}'")
    if source.format == "kafka":
        options |= _kafka_options(source)
    if intake is not None and (unit := intake_unit(stream)) is not None:
        options["maxOffsetsPerTrigger" if unit == "rows" else "maxBytesPerTrigger"] = str(intake)
    if source.format == SYNTHETIC_FORMAT:
        from headrace.engine.sources.synthetic import synthetic_source

        spark.dataSource.register(synthetic_source())
    lenient = source.format in _LENIENT and options.get("mode", "PERMISSIVE").upper() == "PERMISSIVE"
    schema = ", ".join(f"`{column.name}` {column.type}" for column in stream.source_columns)
    reader = spark.readStream.format("headrace_synthetic" if source.format == SYNTHETIC_FORMAT else source.format)
    if lenient:
        schema += f", {CORRUPT} STRING"
        options["columnNameOfCorruptRecord"] = CORRUPT
    if source.format not in (SYNTHETIC_FORMAT, "kafka", "rate", "rate-micro-batch", "socket"):
        reader = reader.schema(schema)
    try:
        rows = reader.options(**options).load(source.path) if source.path else reader.options(**options).load()
        if source.value is not None:
            rows = decode(rows, stream)
    except Exception as exc:
        complaint = str(exc).splitlines()[0]
        raise SpecError(Problem(f"stream '{stream.name}' cannot be read as {source.format}: {complaint}")) from exc
    if stream.select is not None:
        return selected(rows, stream), True
    return rows, lenient or source.value is not None


def _kafka_options(source: Source) -> dict[str, str]:
    """What is set unless the user has: a new checkpoint begins with the first message."""
    options = {} if is_set(source, "starting") else {"startingOffsets": "earliest"}
    if source.value is not None:
        options["includeHeaders"] = "true"
    return options


@dataclass(frozen=True)
class United:
    """All streams as one: flat columns, which rows carry cheaply, and the SQL that makes structs of them."""

    rows: DataFrame
    structs: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    sources: tuple[str, ...] = ()  # as Spark numbers them

    def by_stream(self, rows: DataFrame) -> DataFrame:
        """Rows with `_s`, the stream's number, and a column per stream; Spark reads through the structs."""
        return rows.selectExpr("_s", *self.structs)

    def flat(self, stream: str, rows: DataFrame) -> DataFrame:
        """A stream's own rows, as those of all streams are."""
        return rows.selectExpr(*self.columns[stream])


def sources_of(streams: Sequence[Stream], frames: Mapping[str, DataFrame]) -> tuple[str, ...]:
    """What Spark reads, in order: streams, and links in place of the streams that come along them."""
    if LINKS not in frames:
        return tuple(stream.name for stream in streams)
    return (*(stream.name for stream in streams if frames[stream.name].isStreaming), LINKS)


def unite(streams: Sequence[Stream], frames: Mapping[str, DataFrame], used: Mapping[str, frozenset[str]]) -> United:
    """The columns in use of all streams; each row has those of its stream, the others are null."""
    types: dict[tuple[int, str], str] = {}
    for i, stream in enumerate(streams):
        messages = stream.source is not None and stream.source.value is not None
        kept = {*used[stream.name], stream.time, CORRUPT, UNMADE, *(PLACE if messages else ())}
        for field in frames[stream.name].schema.fields:
            if field.name in kept:
                types[i, field.name] = field.dataType.simpleString()
    numbers = {stream.name: i for i, stream in enumerate(streams)} | {LINKS: -1}
    columns = {
        stream: (
            f"{i} AS _s",
            *(
                f"`{name}` AS `_{j}_{name}`" if j == i else f"CAST(NULL AS {type_}) AS `_{j}_{name}`"
                for (j, name), type_ in types.items()
            ),
        )
        for stream, i in numbers.items()
    }
    sources = sources_of(streams, frames)
    parts = [frames[source].selectExpr(*columns[source]) for source in sources]
    united = parts[0]
    for part in parts[1:]:
        united = united.unionAll(part)
    structs = tuple(
        f"named_struct({', '.join(f'{name!r}, `_{j}_{name}`' for j, name in types if j == i)}) AS `{stream.name}`"
        for i, stream in enumerate(streams)
    )
    return United(united, structs, columns, sources)
