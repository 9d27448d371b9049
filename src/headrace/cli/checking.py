"""What is wrong with a pipeline file, as far as can be told without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
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


def why_missing(function: str) -> str | None:
    """Why `module:name` names nothing, as far as can be told without running a line of the module."""
    module, _, attribute = function.partition(":")
    path: Sequence[str] | None = None
    found: ModuleSpec | None = None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:depth]), path)
        if found is None:
            return f"no module '{'.'.join(parts[:depth])}' on Python's path or beside the pipeline file"
        path = list(found.submodule_search_locations or ())
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(Path(found.origin).read_bytes())
    except SyntaxError as error:
        return f"{found.origin}, line {error.lineno}: {error.msg}"
    # Wherever the name is bound, if only by an import: what a module does when it runs is not followed.
    names = {getattr(node, "name", None) or getattr(node, "id", None) for node in ast.walk(tree)}
    names |= {alias.asname or alias.name for node in ast.walk(tree) if hasattr(node, "names") for alias in node.names
              if isinstance(alias, ast.alias)}  # fmt: skip
    return None if names & {attribute.split(".")[0], "*"} else f"'{attribute}' is not in {found.origin}"


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
    return problems
