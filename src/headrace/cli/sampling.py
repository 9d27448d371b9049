"""The first rows of files that somebody wants to stream: their format, columns, types and disorder."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from headrace.errors import SpecError

__all__ = ["Sample", "ddl_of", "sample", "time_column"]

# So much of a file tells its columns: tens of thousands of rows.
MOST_BYTES = 4 << 20
_FORMATS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".log": "json", ".csv": "csv", ".parquet": "parquet"}
_PACKED = (".gz", ".bz2", ".zst")
_INSTANT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?$"
# A column of texts is one of times if so many of them are: a run rejects the others, each with its reason.
INSTANTS = 0.99
# Seconds since 1970 from 2001 to 2096: what integers that Spark reads as a TIMESTAMP look like.
_SECONDS = (1_000_000_000, 4_000_000_000)
_TIME_NAMES = ("ts", "time", "timestamp", "event_time", "eventtime", "@timestamp", "datetime", "date", "created_at")
_ARROW = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "uint8": "SMALLINT",
    "uint16": "INT", "uint32": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "STRING", "null": "STRING",
    "large_string": "STRING", "binary": "BINARY", "date32[day]": "DATE",
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """Rows of one file, and where Spark would stream its like from: a folder, and a pattern if others are in it."""

    file: Path
    format: str
    folder: Path
    pattern: str | None
    rows: pa.Table

    def types(self) -> dict[str, str]:
        """By column its type in Spark DDL."""
        return {name: self._type(name) for name in self.rows.column_names}

    def _type(self, name: str) -> str:
        column = self.rows[name]
        if self.format != "parquet" and pa.types.is_timestamp(column.type):
            return "TIMESTAMP"
        if pa.types.is_string(column.type) and _is_instants(column):
            return "TIMESTAMP"
        return ddl_of(column.type)

    def no_times(self, time: str) -> list[str]:
        """Texts of the event time that are none."""
        column = self.rows[time]
        if not pa.types.is_string(column.type):
            return []
        column = column.drop_null()
        return [str(each) for each in column.filter(pc.invert(pc.match_substring_regex(column, _INSTANT))).to_pylist()]

    def disorder_s(self, time: str) -> int:
        """By how many seconds rows come after later ones, 1 in 1000 left out: the lateness that admits the others."""
        column = self.rows[time]
        if pa.types.is_string(column.type):
            column = column.filter(pc.match_substring_regex(column, _INSTANT))
            column = pc.cast(pc.replace_substring_regex(column, "(Z|[+-][0-9:]+)$", ""), pa.timestamp("us"))
        if pa.types.is_timestamp(column.type):
            column = pc.cast(column, pa.timestamp("us", column.type.tz), safe=False)
            column = pc.divide(pc.cast(column, pa.int64()), 1_000_000)
        times = pc.cast(column, pa.float64()).drop_null()
        if not len(times):
            return 0
        behind = pc.subtract(pc.cumulative_max(times), times)
        return int(-(-pc.quantile(behind, 0.999)[0].as_py() // 1))


def sample(place: Path) -> Sample:
    """The first rows of a file, or of the first file of the commonest kind in a folder; SpecError if there are none."""
    if not place.exists():
        raise SpecError(f"--from {place}: there is no such file or folder")
    files = sorted(f for f in place.iterdir() if f.is_file() and f.name[0] not in "._") if place.is_dir() else [place]
    kinds = Counter(_suffix(file) for file in files if _format(file) is not None)
    if not kinds:
        known = ", ".join(f"*{suffix}" for suffix in _FORMATS)
        raise SpecError(f"--from {place}: no file here is of a kind that is known by its name ({known}; also .gz)")
    kind = kinds.most_common(1)[0][0]
    file = next(file for file in files if _suffix(file) == kind and _format(file) is not None)
    others = [other for other in file.parent.iterdir() if other.is_file() and other.name[0] not in "._"]
    pattern = None if all(_suffix(other) == kind for other in others) else f"*{kind}"
    format_ = _format(file)
    assert format_ is not None
    try:
        rows = _READERS[format_](file)
    except (pa.ArrowException, OSError, EOFError) as problem:
        first = str(problem).splitlines()[0]
        raise SpecError(f"--from {file}: cannot be read as {format_}: {first}") from problem
    if not rows.num_rows or not rows.num_columns:
        raise SpecError(f"--from {file}: has no rows")
    return Sample(file, format_, file.parent, pattern, rows)


def time_column(types: dict[str, str], rows: pa.Table) -> str | None:
    """The column that is most likely the event time: a TIMESTAMP, or seconds since 1970, by name and then by place."""
    instants = [name for name, type_ in types.items() if type_ == "TIMESTAMP"]
    seconds = [name for name, type_ in types.items() if type_ in ("INT", "BIGINT") and _is_seconds(name, rows[name])]
    return next(iter(sorted(instants, key=_rank)), None) or next(iter(sorted(seconds, key=_rank)), None)


def ddl_of(type_: pa.DataType) -> str:
    """An Arrow type as Spark writes it.

    >>> ddl_of(pa.struct([("a", pa.int64()), ("b.c", pa.list_(pa.string()))]))
    'STRUCT<`a`: BIGINT, `b.c`: ARRAY<STRING>>'
    """
    if pa.types.is_struct(type_):
        return "STRUCT<" + ", ".join(f"`{field.name}`: {ddl_of(field.type)}" for field in type_) + ">"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"ARRAY<{ddl_of(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"MAP<{ddl_of(type_.key_type)}, {ddl_of(type_.item_type)}>"
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz else "TIMESTAMP_NTZ"
    if pa.types.is_dictionary(type_):
        return ddl_of(type_.value_type)
    return _ARROW.get(str(type_), "STRING")


def _rank(name: str) -> int:
    plain = name.lower()
    return _TIME_NAMES.index(plain) if plain in _TIME_NAMES else len(_TIME_NAMES)


def _is_seconds(name: str, column: Any) -> bool:
    least, most = (pc.min_max(column)[key].as_py() for key in ("min", "max"))
    named = _rank(name) < len(_TIME_NAMES) or re.search(r"(time|_at|_ts)$", name.lower()) is not None
    return named and least is not None and _SECONDS[0] <= least <= most < _SECONDS[1]


def _is_instants(column: Any) -> bool:
    values = column.drop_null()
    if not len(values):
        return False
    return bool(pc.mean(pc.match_substring_regex(values, _INSTANT)).as_py() >= INSTANTS)


def _suffix(file: Path) -> str:
    return "".join(file.suffixes[-2:]) if file.suffix in _PACKED else file.suffix


def _format(file: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix not in _PACKED]
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def _begin(file: Path) -> io.BytesIO:
    """The first whole lines of a file, unpacked."""
    with pa.input_stream(str(file), compression="detect") as stream:
        data = stream.read(MOST_BYTES)
    return io.BytesIO(data if len(data) < MOST_BYTES else data[: data.rfind(b"\n") + 1])


def _read_json(file: Path) -> pa.Table:
    begin = _begin(file)
    try:
        return pyarrow.json.read_json(begin, pyarrow.json.ReadOptions(block_size=MOST_BYTES))
    except pa.ArrowInvalid:
        # One bad line must not hide what the others are like; a run rejects it and goes on, too.
        rows = _of_common_kinds(begin.getvalue().splitlines())
        if not rows:
            raise
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: [row.get(name) for row in rows] for name in names})


def _of_common_kinds(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The lines that are JSON objects, those left out in which a value is of another kind than most of its column.

    >>> _of_common_kinds([b'{"a": 1}', b'{"a": "x"}', b'{"a": 2.5, "b": "y"}', b'{"a": ', b"[]"])
    [{'a': 1}, {'a': 2.5, 'b': 'y'}]
    """
    rows = [row for row in map(_parsed, lines) if isinstance(row, dict)]
    kinds: dict[str, Counter[str]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                kinds.setdefault(name, Counter())[_kind(value)] += 1
    common = {name: counts.most_common(1)[0][0] for name, counts in kinds.items()}
    return [row for row in rows if all(value is None or _kind(value) == common[name] for name, value in row.items())]


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _kind(value: object) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def _read_csv(file: Path) -> pa.Table:
    return pyarrow.csv.read_csv(_begin(file))


def _read_parquet(file: Path) -> pa.Table:
    return pyarrow.parquet.ParquetFile(file).read_row_group(0).slice(0, 100_000)


_READERS: dict[str, Callable[[Path], pa.Table]] = {"json": _read_json, "csv": _read_csv, "parquet": _read_parquet}
