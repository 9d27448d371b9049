"""A look at the first rows of a stream, read as a run reads them: what parses, what does not, and their disorder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.engine.failures import failure_of
from headrace.engine.operators.projection import text_literal
from headrace.engine.sources.messages import CORRUPT
from headrace.engine.sources.read import read_stream
from headrace.engine.sources.selecting import UNMADE
from headrace.errors import EngineError
from headrace.model import Column, Stream, shown
from headrace.units import SECOND_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

__all__ = ["Refused", "StreamSample", "Taken", "look", "take"]

# Of unparseable lines so many are looked at closely.
MOST_LINES = 200
# The share of rows that the suggested lateness admits, as promised in the documents.
ADMITTED = 0.999
BATCH, PLACE = "_batch", "_place"


@dataclass(frozen=True)
class Refused:
    """Rows that would be rejected for one reason; for unparseable ones the column to blame, and one of its values."""

    rows: int
    reason: str
    column: str | None = None
    type: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class StreamSample:
    """What the first rows of a stream are like; times are microseconds since 1970.

    behind      rows that come after a row of a later time
    late        rows that come later than the stream's lateness allows, if every row were an epoch of its own
    wanted_us   the least lateness by which 99.9 % of rows come in time, whatever the epochs
    """

    stream: str
    rows: int
    refused: tuple[Refused, ...]
    first_us: int | None = None
    last_us: int | None = None
    behind: int = 0
    late: int = 0
    wanted_us: int = 0
    worst_us: int = 0

    @property
    def parsed(self) -> int:
        return self.rows - sum(each.rows for each in self.refused)


@dataclass(frozen=True)
class Taken:
    """The first rows of a stream, numbered as they came; `lenient` if unparseable ones are among them."""

    stream: Stream
    rows: DataFrame
    lenient: bool

    def good(self, now_us: int) -> DataFrame:
        """The rows that would be admitted, with the stream's columns, in the order in which they came."""
        names = [f"`{column.name}`" for column in self.stream.columns]
        return self._judged(now_us).filter("reason IS NULL").orderBy(BATCH, PLACE).selectExpr(*names)

    def _judged(self, now_us: int) -> DataFrame:
        when = f"`{self.stream.time}`"
        why = "'unparseable'"
        if self.stream.select is not None:
            why = f"COALESCE(substring_index({UNMADE}, ' with ', 1), 'unparseable')"
        unparseable = f"WHEN {CORRUPT} IS NOT NULL THEN {why} " if self.lenient else ""
        ahead = f"WHEN unix_micros({when}) > {now_us + self.stream.ahead_us} THEN 'too far ahead of the clock' "
        reason = f"CASE {unparseable}WHEN {when} IS NULL THEN 'no event time' {ahead}END AS reason"
        return self.rows.selectExpr("*", reason, f"unix_micros({when}) AS _us")


def take(spark: SparkSession, stream: Stream, most: int, folder: str) -> Taken:
    """The first rows of a stream, at most so many, as its source gives them to an epoch; EngineError if it cannot."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    # One file, or so many messages, at a time.
    source, lenient = read_stream(spark, stream, most if stream.source and stream.source.format == "kafka" else 1)
    counts: dict[int, int] = {}

    def keep(batch: DataFrame, number: int) -> None:
        left = most - sum(count for at, count in counts.items() if at != number)
        if left > 0:
            part = f"{folder}/rows/{BATCH}={number}"
            batch.limit(left).coalesce(1).withColumn(PLACE, F.monotonically_increasing_id()).write.parquet(
                part, mode="overwrite"
            )
            counts[number] = batch.sparkSession.read.parquet(part).count()

    writer = source.writeStream.foreachBatch(keep).option("checkpointLocation", f"{folder}/spark")
    query = writer.trigger(availableNow=True).start()
    try:
        while not query.awaitTermination(1) and sum(counts.values()) < most:
            pass
    except Exception as failure:
        raise EngineError(f"stream '{stream.name}' cannot be read: {shown(failure_of(failure).text)}") from failure
    query.stop()
    schema = source.schema.add(PLACE, "long").add(BATCH, "integer")
    rows = spark.read.schema(schema).parquet(f"{folder}/rows") if counts else spark.createDataFrame([], schema)
    return Taken(stream, rows, lenient)


def look(taken: Taken, now_us: int) -> StreamSample:
    """What a stream's first rows are like."""
    stream, judged = taken.stream, taken._judged(now_us).cache()
    try:
        reasons = {
            row.reason: row.n for row in judged.groupBy("reason").agg({"*": "count"}).toDF("reason", "n").collect()
        }
        parsed = judged.filter("reason IS NULL")
        ahead = f"max(_us) OVER (ORDER BY {BATCH}, {PLACE} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        times = parsed.selectExpr("_us", f"{ahead} - _us AS behind").selectExpr(
            "min(_us) AS first", "max(_us) AS last", "count_if(behind > 0) AS behind", "max(behind) AS worst",
            f"count_if(behind > {stream.lateness_us}) AS late",
            f"percentile_disc({ADMITTED}) WITHIN GROUP (ORDER BY behind) AS wanted",
        ).first()  # fmt: skip
        assert times is not None
        refused = [Refused(rows, reason) for reason, rows in reasons.items() if reason not in (None, "unparseable")]
        if rows := reasons.get("unparseable"):
            refused += _blamed(taken, judged.filter("reason = 'unparseable'").limit(MOST_LINES), rows)
    finally:
        judged.unpersist()
    return StreamSample(
        stream.name, sum(reasons.values()), tuple(sorted(refused, key=lambda each: -each.rows)), times["first"],
        times["last"], times.behind, times.late, -(-int(times.wanted or 0) // SECOND_US) * SECOND_US, times.worst or 0,
    )  # fmt: skip


def _blamed(taken: Taken, lines: DataFrame, rows: int) -> list[Refused]:
    """Which columns make lines unparseable, each line read once for every column; rows in proportion to the lines."""
    source = taken.stream.source
    assert source is not None
    format_, given = (
        (source.format, source.options) if source.value is None else (source.value.format, source.value.options)
    )
    if format_ not in ("json", "csv"):
        return [Refused(rows, "unparseable")]
    columns = taken.stream.value_columns
    options = _map({**dict(given), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_bad"})
    tried = [f"{_tried(format_, columns, column, options)} AS c{i}" for i, column in enumerate(columns)]
    found: dict[int | None, list[SparkRow]] = {}
    for row in lines.selectExpr(f"make_valid_utf8({CORRUPT}) AS line").selectExpr("line", *tried).collect():
        bad = [i for i in range(len(columns)) if row[f"c{i}"].bad]
        # Where no column can be read the line is at fault, and where each can it is the line's shape.
        found.setdefault(bad[0] if bad and len(bad) < len(columns) else None, []).append(row)
    looked = sum(map(len, found.values()))
    return [
        Refused(round(rows * len(some) / looked), f"not {format_}", None, None, some[0].line)
        if at is None
        else Refused(
            round(rows * len(some) / looked),
            "unparseable",
            columns[at].name,
            str(columns[at].type),
            some[0][f"c{at}"].value,
        )
        for at, some in found.items()
    ]


def _tried(format_: str, columns: tuple[Column, ...], column: Column, options: str) -> str:
    """Whether a line cannot be read with one column as declared and the others as texts, and that column's text."""

    def schema(type_: str) -> str:
        if format_ == "json":
            return f"`{column.name}` {type_}, _bad STRING"
        return ", ".join(f"`{c.name}` {type_ if c is column else 'STRING'}" for c in columns) + ", _bad STRING"

    read = f"from_{format_}(line, {text_literal(schema(str(column.type)))}, {options})._bad IS NOT NULL"
    text = f"from_{format_}(line, {text_literal(schema('STRING'))}, {options}).`{column.name}`"
    return f"named_struct('bad', {read}, 'value', {text})"


def _map(options: dict[str, Any]) -> str:
    return "map(" + ", ".join(f"{text_literal(key)}, {text_literal(str(text))}" for key, text in options.items()) + ")"
