"""What a pipeline expects of rows and results, from text: `late < 5 %`, `rows > 0`, a condition over results."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from headrace.errors import Problem, SpecError
from headrace.language.sql.binder import bind_query
from headrace.language.suggest import nearest
from headrace.language.words import shown
from headrace.model import (
    ALL_ROWS,
    OTHERWISE,
    RESULTS,
    STREAM_COUNTS,
    Column,
    CountTest,
    DataType,
    Expectation,
    Kind,
    Otherwise,
    Output,
    Query,
    ResultTest,
    Scan,
    Stream,
)

__all__ = ["Given", "given_of", "stream_expected", "with_expectations"]

# An expectation as it is written, and what follows where it is not met.
Given = tuple[str, str]
_COUNT = re.compile(r"\s*([A-Za-z_]\w*)\s*(<=|>=|<|>|==?)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*")
# A time that results may lack; no condition can name it.
_TIME = "_headrace_time"


def stream_expected(given: Iterable[Given]) -> tuple[Expectation, ...]:
    """What is expected of a stream; ValueError says what is wrong.

    >>> stream_expected([("late < 5 %", "warn")])[0].test
    CountTest(count='late', operator='<', limit=0.05, of_rows=True)
    """
    return tuple(Expectation(text, _stream_test(text), _otherwise(otherwise)) for text, otherwise in given)


def with_expectations(query: Query, given: Iterable[Given], file: str | None = None, line: int | None = None) -> Query:
    """A bound query with what is expected of its results; SpecError with all that is wrong."""
    found, problems = list[Expectation](), list[Problem]()
    for text, otherwise in given:
        try:
            test = _result_test(text, query.finish.outputs)
            found.append(Expectation(text, test, _otherwise(otherwise)))
        except ValueError as error:
            problems.append(Problem(f"expect: {error}", file, line, query=query.name))
    if problems:
        raise SpecError(problems)
    return replace(query, expect=tuple(found))


def given_of(expectations: Iterable[Expectation]) -> tuple[Given, ...]:
    """Expectations as they were written."""
    return tuple((each.text, each.otherwise) for each in expectations)


def _otherwise(word: str) -> Otherwise:
    for known in OTHERWISE:
        if word == known:
            return known
    raise ValueError(f"what follows is one of {', '.join(OTHERWISE)}, not {shown(word)}")


def _stream_test(text: str) -> CountTest:
    match = _COUNT.fullmatch(text)
    if match is None:
        known = ", ".join(STREAM_COUNTS)
        raise ValueError(
            f"{shown(text)} is nothing that can be expected of a stream; write a count ({known}), a comparison, and a "
            "number or a part of all rows, such as rejected < 1 %"
        )
    name = match.group(1).lower()
    if name not in STREAM_COUNTS:
        raise ValueError(f"{shown(text)}: no rows are counted as '{match.group(1)}'; {nearest(name, STREAM_COUNTS)}")
    return _count_test(text, match)


def _count_test(text: str, match: re.Match[str]) -> CountTest:
    name, operator, part = match.group(1).lower(), match.group(2).replace("==", "="), match.group(4) == "%"
    limit = float(match.group(3)) / (100 if part else 1)
    if part and (limit > 1 or name == ALL_ROWS):
        raise ValueError(f"{shown(text)}: {name} are compared with " + ("a number" if limit <= 1 else "at most 100 %"))
    if operator == "<" and limit == 0:
        raise ValueError(f"{shown(text)} can never be met; write {name} = 0")
    return CountTest(name, operator, limit, part)


def _result_test(text: str, outputs: tuple[Output, ...]) -> CountTest | ResultTest:
    match, names = _COUNT.fullmatch(text), {output.name.lower() for output in outputs}
    name = None if match is None else match.group(1).lower()
    if match is not None and name == ALL_ROWS:
        if ALL_ROWS in names:
            raise ValueError(
                f"{shown(text)} could be about the number of results or their column 'rows'; rename the column"
            )
        return _count_test(text, match)
    if match is not None and name in STREAM_COUNTS and name not in names:
        raise ValueError(
            f"{shown(text)}: '{name}' counts rows of a stream; write it under the stream, or rows > 0 here"
        )
    return ResultTest(_condition(text, outputs))


def _condition(text: str, outputs: tuple[Output, ...]) -> str:
    """Spark SQL of a condition over one result, bound under the guard of queries."""
    columns = tuple(Column(output.name, output.type) for output in outputs)
    stream = Stream(RESULTS, (*columns, Column(_TIME, DataType(Kind.TIMESTAMP))), _TIME)
    try:
        bound = bind_query(RESULTS, f"SELECT ({text}) AS holds FROM {RESULTS}", {RESULTS: stream})
    except SpecError as error:
        raise ValueError(f"{shown(text)}: {_told(error.problems[0])}") from error
    root = bound.root
    if not isinstance(root, Scan) or len(root.columns) != 1 or root.where is not None or len(bound.finish.outputs) != 1:
        raise ValueError(f"{shown(text)} is not one condition over a result")
    found = root.columns[0]
    if _TIME in found.sql:
        raise ValueError(f"{shown(text)}: unknown column '{_TIME}'")
    if found.type.kind not in (Kind.BOOLEAN, Kind.UNKNOWN):
        raise ValueError(f"{shown(text)} is {found.type}, and a condition is true or false")
    return found.sql


def _told(problem: Problem) -> str:
    if problem.message.startswith("an aggregate over"):
        return "a condition is about one result; what is about several is a query of its own"
    hint = None if problem.hint is None else problem.hint.replace(f", {_TIME}", "")
    return problem.message if hint is None else f"{problem.message}; {hint}"
