"""A file of cases to what a pipeline's tests are: every problem at once, each with its line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.errors import Problem, SpecError
from headrace.language.pipeline.case_values import read_value
from headrace.language.pipeline.files import read_text
from headrace.language.pipeline.yaml_nodes import Document, Value, read_yaml
from headrace.language.suggest import nearest
from headrace.model import Case, DataType, Pipeline, Row

__all__ = ["load_cases"]

_KEYS = {"rows": "by stream the rows that come in, and by table those it has", "expect": "by query the results"}


def load_cases(path: Path, pipeline: Pipeline) -> tuple[Case, ...]:
    """The cases of a file, of which there is at least one; SpecError with every problem found."""
    document = Document(str(path))
    try:
        root = read_yaml(read_text(path), document)
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise SpecError(Problem(f"cannot read the cases: {why}", file=document.file)) from exc
    cases = [] if root is None else [_case(name, value, pipeline) for name, value in root.mapping().items()]
    if not cases and not document.problems:
        document.add("there are no cases", 1, "write a name, and under it rows: and expect:")
    if document.problems:
        raise SpecError(document.problems)
    return tuple(cases)


def _case(name: str, value: Value, pipeline: Pipeline) -> Case:
    entries = value.mapping(_KEYS)
    for key in _KEYS:
        if key not in entries and isinstance(value.content, dict):
            value.document.add(f"case '{name}' has no {key}", value.line, f"write {key}: {_KEYS[key]}")
    rows: dict[str, tuple[tuple[Row, ...], ...]] = {}
    columns = {
        stream.name: {column.name: column.type for column in stream.source_columns} for stream in pipeline.streams
    }
    tables = {table.name: {column.name: column.type for column in table.columns} for table in pipeline.tables}
    for each, given in _known(entries.get("rows"), "stream or table" if tables else "stream", columns | tables):
        rows[each] = (_rows(given, tables[each]),) if each in tables else _epochs(given, columns[each])
    expected: dict[str, tuple[Row, ...]] = {}
    results = {query.name: {output.name: output.type for output in query.finish.outputs} for query in pipeline.queries}
    for query, given in _known(entries.get("expect"), "query", results):
        expected[query] = _alike(given, _rows(given, results[query]))
    if not expected and "expect" in entries and isinstance(entries["expect"].content, dict):
        entries["expect"].document.add(f"case '{name}' expects nothing", entries["expect"].line, "name a query")
    return Case(name, rows, expected)


def _known(section: Value | None, what: str, names: Mapping[str, object]) -> list[tuple[str, Value]]:
    """The entries of a section that name streams or queries of the pipeline; others are problems."""
    found = [] if section is None else list(section.mapping().items())
    for name, value in found:
        if name not in names:
            value.document.add(f"unknown {what} '{name}'", value.line, nearest(name, names))
    return [(name, value) for name, value in found if name in names]


def _epochs(value: Value, columns: Mapping[str, DataType]) -> tuple[tuple[Row, ...], ...]:
    """Rows that come together, or lists of such rows, one for each epoch."""
    items = value.items()
    if items and all(isinstance(item.content, list) for item in items):
        return tuple(_rows(item, columns) for item in items)
    return (_rows(value, columns),)


def _rows(value: Value, columns: Mapping[str, DataType]) -> tuple[Row, ...]:
    rows: list[Row] = []
    for item in value.items():
        entries = item.mapping(columns)
        rows.append({name: read_value(each, columns[name]) for name, each in entries.items() if name in columns})
    return tuple(rows)


def _alike(value: Value, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Expected rows, which all name the same columns: what is left out of one row is compared in none."""
    for item, row in zip(value.items(), rows, strict=True):
        if row.keys() != rows[0].keys():
            item.document.add(
                f"{item.path} names other columns than the first row, which has {', '.join(rows[0])}",
                item.line,
                "write null for NULL",
            )
    return rows
