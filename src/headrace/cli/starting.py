"""`headrace init`: a pipeline file to start from, over made rows or over files that are there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headrace.cli.sampling import Sample, sample, time_column
from headrace.errors import SpecError
from headrace.language import load_pipeline
from headrace.language.words import shown

__all__ = ["write_first_pipeline"]

FILE = "pipeline.yml"
# A column with fewer values than this is worth grouping by.
MOST_GROUPS = 1000
# A little more than the disorder of the first rows, and never nothing.
LEAST_LATENESS_S = 10

_MADE = """\
# A pipeline to start from: `headrace run {file} --once --flush`, then look into out/.
name: {name}
streams:
  events:
    # Rows that Spark makes: columns ts, key, value, amount, seq. For files of yours: headrace init --from FOLDER
    source: {{format: synthetic, options: {{rate: 1000, rows: 300000, epoch: 20000, keys: 50,
                                          skew: 2, disorder: 3 seconds}}}}
    lateness: 5 seconds
queries:
  busiest:          # at least every 20 seconds of event time, over the last minute
    sql: >
      SELECT key, COUNT(*) AS events, SUM(amount) AS amount
      FROM events [WINDOW 1 min SLIDE 20 s]
      GROUP BY key ORDER BY amount DESC LIMIT 3
  slowest:          # every whole minute, each once
    sql: >
      SELECT key, approx_percentile(value, 0.99) AS p99
      FROM events GROUP BY window(ts, '1 minute'), key
output: out
engine: {{trigger: 1 second, checkpoint: state}}
"""

_FOUND = """\
# A pipeline over {files}: `headrace run {file} --once --flush`, then look into out/.
name: {name}
streams:
  {stream}:
    source: {{format: {format}, path: {path}{options}}}
    # As found in the first {rows:,} rows of {sampled}.
    schema: >
      {schema}
    time: {time}
    lateness: {lateness} seconds     # {why}
queries:
{queries}output: out
engine: {{trigger: 1 second, checkpoint: state}}
"""


def write_first_pipeline(folder: Path, source: Path | None) -> tuple[Path, str]:
    """Writes a pipeline file that runs as it stands; the file, and what was found in the source, in words.

    SpecError if there is a file already, or if no stream can be made of the source.
    """
    file = folder / FILE
    if file.exists():
        raise SpecError(f"{file} is there already; give another folder, or remove it")
    name = re.sub(r"\W+", "-", folder.resolve().name).strip("-") or "first"
    if source is None:
        text, found = _MADE.format(file=file, name=name), "rows that Spark makes"
    else:
        text, found = _over(sample(source), file, name)
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    try:
        load_pipeline(file)
    except SpecError:
        file.unlink()
        raise
    return file, found


def _over(found: Sample, file: Path, name: str) -> tuple[str, str]:
    types = found.types()
    time = time_column(types, found.rows)
    if time is None:
        raise SpecError(_why_no_time(found, types))
    types[time] = "TIMESTAMP"
    disorder_s = found.disorder_s(time)
    lateness_s = max(LEAST_LATENESS_S, disorder_s)
    why = f"99.9 % of the rows read come at most {disorder_s} s after a later one"
    stream = re.sub(r"\W+", "_", found.folder.resolve().name).strip("_") or "rows"
    stream = stream if re.match(r"[A-Za-z_]", stream) else f"s_{stream}"
    options = {"header": "true"} if found.format == "csv" else {}
    options |= {} if found.pattern is None else {"pathGlobFilter": f"'{found.pattern}'"}
    told = "".join(f"{key}: {text}, " for key, text in options.items()).rstrip(", ")
    path = os.path.relpath(found.folder, file.parent)
    text = _FOUND.format(
        files=found.folder / (found.pattern or "*"), file=file, name=name, stream=stream, format=found.format,
        path=_yaml(path), options=f", options: {{{told}}}" if told else "", rows=found.rows.num_rows,
        sampled=found.file.name, schema=",\n      ".join(f"{_quoted(n)} {type_}" for n, type_ in types.items()),
        time=_yaml(time), lateness=lateness_s, why=why, queries=_queries(found, types, stream, time),
    )  # fmt: skip
    wrong = found.no_times(time)
    if wrong:
        why += f"; {len(wrong):,} of {found.rows.num_rows:,} values of {time} are no time, as {shown(wrong[0])}"
    return text, f"{found.format} files in {found.folder}: {len(types)} columns, event time {time}; {why}"


def _queries(found: Sample, types: dict[str, str], stream: str, time: str) -> str:
    """Rows per minute; and by the column with the most values that is still worth grouping by, the busiest."""
    lines = [
        f"  per_minute:\n    sql: SELECT COUNT(*) AS n FROM {stream} GROUP BY window({_quoted(time)}, '1 minute')\n"
    ]
    texts = {name: _values(found.rows[name]) for name, type_ in types.items() if type_ == "STRING"}
    keys = {name: count for name, count in texts.items() if 1 < count <= MOST_GROUPS}
    if keys:
        key = max(keys, key=lambda name: keys[name])
        lines.append(
            "  busiest:\n    sql: >\n"
            f"      SELECT {_quoted(key)}, COUNT(*) AS n FROM {stream} [WINDOW 5 min SLIDE 1 min]\n"
            f"      GROUP BY {_quoted(key)} ORDER BY n DESC LIMIT 10\n"
        )
    return "".join(lines)


def _values(column: pa.ChunkedArray) -> int:
    return int(pc.count_distinct(column).as_py())


def _why_no_time(found: Sample, types: dict[str, str]) -> str:
    columns = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    numbers = [name for name, type_ in types.items() if type_ in ("DOUBLE", "BIGINT")]
    near = " Numbers count as a time only if they are whole seconds since 1970." if numbers else ""
    return (
        f"--from {found.file}: no column is an event time, such as 2026-01-05T12:00:00Z ({columns}).{near} A DataFrame "
        "that makes a TIMESTAMP of a column can be given from Python: pipe.stream(name, df, time=...)"
    )


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


def _yaml(text: str) -> str:
    return text if re.fullmatch(r"[\w./-]+", text) else "'" + text.replace("'", "''") + "'"
