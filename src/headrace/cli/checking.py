"""What is wrong with a pipeline file, as far as can be told without running it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import Problem, SpecError
from headrace.language import load_pipeline
from headrace.model import Step
from headrace.planning import plan_query
from headrace.policies import tuning_of

__all__ = ["make_importable", "problems_of"]


def make_importable(spec: Path) -> None:
    """Lets the functions that a pipeline file names be in modules beside it; what is installed comes first."""
    folder = str(spec.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)


def problems_of(spec: Path, spark: bool = False) -> list[Problem]:
    """All problems; with `spark` also what Spark says of the expressions."""
    problems: list[Problem] = []

    @contextmanager
    def noting() -> Iterator[None]:
        try:
            yield
        except SpecError as error:
            problems.extend(error.problems)

    with noting():
        pipeline = load_pipeline(spec)
    if problems:
        return problems
    make_importable(spec)
    with noting():
        tuning_of(dict(pipeline.engine.conf))
    for query in pipeline.queries:
        with noting():
            plan_query(query)
        if isinstance(query.root, Step):
            from headrace.engine import load_function

            step = query.root.step
            for what, name in (("function", step.function), ("migration", step.migration)):
                with noting():
                    _ = name and load_function(name, query.name, what)
    if spark:
        from headrace.engine import build_session, judge

        session = build_session("check")
        for query in pipeline.queries:
            with noting():
                judge(query, pipeline.streams, session)
    return problems
