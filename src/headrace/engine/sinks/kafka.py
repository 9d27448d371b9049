"""Results as messages: a JSON object per result, keyed by its group, with the query and the epoch in headers.

An epoch that is given again is sent again: each result at least once, and again only with the same headers, key and
window.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.engine.sinks.shape import Delivered
from headrace.engine.sinks.sink import Sink
from headrace.engine.spark.secrets import resolve
from headrace.engine.spark.thrown import Link, chain_of
from headrace.engine.state.storage import Storage
from headrace.errors import EngineError, Problem, SpecError
from headrace.model import Query, RowsAggregate, Shape, Step, WindowAggregate, shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["KafkaSink", "key_columns"]

_NAME = re.compile(r"`?([A-Za-z_]\w*)`?")
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def key_columns(query: Query) -> tuple[str, ...]:
    """The result columns that are a group's keys, or those of a row window, in the order of the SELECT list.

    Of a function's results they are those with the names that keys have among its rows.
    """
    root = query.root
    keys: set[str] = set()
    if isinstance(root, WindowAggregate):
        keys = set(root.keys)
    elif isinstance(root, RowsAggregate):
        keys = set(root.window.partition_by)
    elif isinstance(root, Step):
        keys = {name for name, column in root.rows if column in root.partition_by}
    plain = ((output.name, _NAME.fullmatch(output.sql)) for output in query.finish.outputs)
    return tuple(name for name, match in plain if match is not None and match.group(1) in keys)


class KafkaSink(Sink):
    """Sends results to a topic by Spark's writer."""

    def __init__(self, query: Query, storage: Storage) -> None:
        self.query, self.keys, self._delivered = query.name, key_columns(query), Delivered(storage, query.name)
        self.options = resolve(query.sink.options, f"query '{query.name}'")
        for needed in ("kafka.bootstrap.servers", "topic"):
            if needed not in self.options:
                raise SpecError(Problem(f"a kafka sink needs the option '{needed}'", query=query.name))

    def forget(self) -> None:
        self._delivered.forget()

    def claim(self, columns: Shape) -> None:
        """Refuses messages with other columns than those that the topic has had from this query."""
        servers, topic = self.options["kafka.bootstrap.servers"], self.options["topic"]
        self._delivered.claim(f"topic {topic}", (servers, topic), columns)

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

        value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in results.columns)), _JSON)
        headers = F.array(
            *(
                F.struct(F.lit(key).alias("key"), F.lit(text).cast("binary").alias("value"))
                for key, text in (("headrace-query", self.query), ("headrace-epoch", str(epoch)))
            )
        )
        messages = results.select(self._key().alias("key"), value.alias("value"), headers.alias("headers"))
        try:
            messages.write.format("kafka").options(**self.options).save()
        except Exception as failure:
            told = _broker_says(chain_of(failure))
            if told is None:
                raise
            raise EngineError(
                f"query '{self.query}' cannot write to Kafka: {told}; nothing is lost, the run "
                "goes on from here when it is started again"
            ) from failure
        return None

    def _key(self) -> Column:
        """One key as its text, several as a JSON object, none as null: the broker spreads such messages."""
        from pyspark.sql import functions as F  # noqa: N812

        if not self.keys:
            return F.lit(None).cast("string")
        if len(self.keys) == 1:
            return F.col(f"`{self.keys[0]}`").cast("string")
        return F.to_json(F.struct(*(F.col(f"`{name}`") for name in self.keys)), _JSON)


# What a broker refuses however often it is sent.
_REFUSED = re.compile(r"Record(Batch)?TooLarge|InvalidRecord|InvalidTopic|Serialization|InvalidConfiguration|Config")


def _broker_says(chain: Iterable[Link]) -> str | None:
    """What the broker, or its absence, has to do with a failure; None if it is the results' own.

    >>> _broker_says([Link(("org.apache.kafka.common.errors.TimeoutException",), "no answer")])
    'TimeoutException: no answer'
    >>> _broker_says([Link(("org.apache.kafka.common.errors.RecordTooLargeException",), "9 bytes")])
    >>> _broker_says([Link(("java.lang.ArithmeticException",), "org.apache.kafka.common.errors.TimeoutException: x")])
    """
    for link in chain:
        kind = link.name.rpartition(".")[2]
        if link.name.startswith("org.apache.kafka.common."):
            return None if _REFUSED.match(kind) else f"{kind}: {shown(link.message)}"
    return None
