"""What is wrong with a pipeline file, as far as can be told without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path

from headrace.errors import Problem, SpecError
from headrace.language import load_pipeline
from headrace.model import Step
from headrace.planning import plan_query
from headrace.policies import tuning_of

__all__ = ["make_importable", "problems_of", "why_missing"]


def make_importable(spec: Path) -> None:
    """Lets the functions that a pipeline file names be in modules beside it; what is installed comes first."""
    folder = str(spec.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)


def why_missing(function: str) -> str | None:
    """Why `module:name` names nothing, as far as can be told without running a line of the module."""
    module, _, attribute = function.partition(":")
    try:
        found = _found(module)
        if found is None:
            return f"no module '{module}' on Python's path or beside the pipeline file"
        source = found.loader.get_source(module) if isinstance(found.loader, InspectLoader) else None
        names = None if source is None else set(_bound(ast.parse(source)))
    except SyntaxError as error:
        return f"{error.filename or module}, line {error.lineno}: {error.msg}"
    except Exception:  # whatever is odd about a module shows when it is run
        return None
    if names is None or names & {attribute.split(".")[0], "*", "__getattr__"}:
        return None
    return f"'{attribute}' is not in {found.origin}"


def _found(module: str) -> ModuleSpec | None:
    """The module, by all finders there are, without running the packages it is in."""
    found, path, name = None, None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        finders = (finder.find_spec(name, path) for finder in sys.meta_path)
        found = next((spec for spec in finders if spec is not None), None)
        if found is None:
            return None
        path = None if found.submodule_search_locations is None else list(found.submodule_search_locations)
    return found


def _bound(tree: ast.AST) -> Iterator[str]:
    """Names that code binds, at whatever place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]


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
            step = query.root.step
            named = {"function": step.function, **({"migration": step.migration} if step.migration else {})}
            for what, name in named.items():
                missing = why_missing(name)
                if missing is not None:
                    problems.append(Problem(f"{what} '{name}' is not there: {missing}", query=query.name))
    if spark:
        from headrace.engine import build_session, judge

        session = build_session("check")
        for query in pipeline.queries:
            with noting():
                judge(query, pipeline.streams, session)
    return [problem if problem.file else replace(problem, file=str(spec)) for problem in problems]
