"""How results lie at their place: in folders by columns, or one of each key."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.sink import Output, SinkSpec
from headrace.model.types import Kind

__all__ = ["why_no_layout"]

# Formats whose files can lie in folders by value, and those that can keep one result of each key.
FOLDERS = ("parquet", "json", "csv", "orc", "delta")
TABLES = ("delta", "jdbc")
# What cannot be the name of a folder or be compared with itself.
_UNNAMED = frozenset({Kind.BINARY, Kind.ARRAY, Kind.MAP, Kind.STRUCT, Kind.INTERVAL, Kind.FLOAT, Kind.DOUBLE})


def why_no_layout(sink: SinkSpec, outputs: Sequence[Output]) -> str | None:
    """Why results with these columns cannot lie as a sink wants them to; None if they can."""
    types = {output.name: output.type.kind for output in outputs}
    if sink.partition_by:
        if sink.format not in FOLDERS:
            return f"partition_by is for files ({', '.join(FOLDERS)}), not for a {sink.format} sink"
        if len(set(sink.partition_by)) == len(types):
            return "partition_by leaves no column for the files"
        if sink.key:
            return (
                "a table that keeps one result of each key is not partitioned: leave out partition_by or mode: upsert"
            )
    if sink.key and sink.format not in TABLES:
        return f"mode: upsert is for tables ({', '.join(TABLES)}), not for a {sink.format} sink"
    for what, names in (("partition_by", sink.partition_by), ("key", sink.key)):
        for name in names:
            if name not in types:
                return f"{what} names '{name}', which is no result; results are {', '.join(types)}"
            if types[name] in _UNNAMED:
                return f"{what} names '{name}', a {types[name].value}: it takes texts, whole numbers, dates and times"
        if len(set(names)) < len(names):
            return f"{what} names a column twice"
    if sink.key and sink.latest is None:
        return "mode: upsert keeps the latest result of each key: latest: names the column that says which that is"
    if sink.latest is not None and sink.latest not in types:
        return f"latest names '{sink.latest}', which is no result; results are {', '.join(types)}"
    return None
