"""What is wrong with a pipeline file, as far as can be told without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path

from headrace.cli.preflight import look_around
from headrace.errors import EngineError, Problem, SpecError
from headrace.language import lacking_packages, line_of, load_pipeline
from headrace.model import Pipeline, Query, Step
from headrace.planning import place, plan_pipeline, plan_query
from headrace.policies import tuning_of
from headrace.policies.placement import Infeasible
from headrace.sites import parts_to_run

__all__ = ["Examined", "examine", "make_importable", "why_missing"]


def make_importable(spec: Path) -> None:
    """Lets the functions that a pipeline file names be in modules beside it; what is installed comes first."""
    folder = str(spec.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)


def why_missing(function: str) -> str | None:
    """Why `module:name` names nothing, as far as can be told without running a line of the module."""
    module, _, attribute = function.partition(":")
    if not module or not attribute:
        return "write module:name"
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


@dataclass(frozen=True)
class Examined:
    """A pipeline file as far as can be told without running it: every problem, and what is to be known besides."""

    pipeline: Pipeline | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    def sound(self) -> Pipeline:
        """The pipeline, if nothing is wrong with it; else SpecError with every problem."""
        if self.problems or self.pipeline is None:
            raise SpecError(self.problems)
        return self.pipeline


def examine(
    spec: Path,
    conf: Mapping[str, str] | None = None,
    spark: bool = False,
    site: str | None = None,
    alone: bool = False,
) -> Examined:
    """What `check` says of a file, and `run` before it starts; with `spark` also what Spark says of the expressions.

    With `site` only what that site needs must be there; `alone`, nothing that sources and sinks need.
    """
    try:
        pipeline = load_pipeline(spec)
    except SpecError as error:
        return Examined(None, error.problems)
    make_importable(spec)
    settings = {**dict(pipeline.engine.conf), **(conf or {})}
    findings = _Findings(spec, pipeline, alone, notes=list(pipeline.notes))
    with findings.noting():
        tuning_of(settings)
    findings.of_queries()
    findings.of_placement()
    findings.of_surroundings(site, settings)
    if spark:
        findings.of_spark(conf or {})
    named = (problem if problem.file else replace(problem, file=str(spec)) for problem in findings.problems)
    return Examined(pipeline, tuple(named), tuple(findings.notes))


@dataclass(frozen=True)
class _Findings:
    """What is wrong with a pipeline, and what is to be known besides; some checks need that none before has failed."""

    spec: Path
    pipeline: Pipeline
    alone: bool
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Notes the problems that a check raises."""
        try:
            yield
        except SpecError as error:
            self.problems.extend(error.problems)

    def of_queries(self) -> None:
        """Packages, plans and functions that are not there."""
        if not self.alone:
            self.problems.extend(lacking_packages(self.pipeline.queries))
        for query in self.pipeline.queries:
            with self.noting():
                plan_query(query)
            for what, function in _functions(query):
                missing = why_missing(function)
                if missing is not None:
                    self.problems.append(Problem(f"{what} '{function}' is not there: {missing}", query=query.name))

    def of_placement(self) -> None:
        """Sites that no placement fits."""
        if self.pipeline.network is None or self.problems:
            return
        placed = place(self.pipeline, plan_pipeline(self.pipeline)[0])
        if not isinstance(placed.found, Infeasible):
            return
        said = f"there is no placement: {placed.found.reason}"
        # A bound on latency holds whatever flows; a capacity is judged by rates that may be guesses.
        if placed.found.best_latency_ms is None:
            self.notes.append(said)
        else:
            line, hint = line_of(self.spec, "placement"), "allow more in placement.max_latency"
            self.problems.append(Problem(said, file=str(self.spec), line=line, hint=hint))

    def of_surroundings(self, site: str | None, settings: Mapping[str, str]) -> None:
        """Files, folders and services that are not there; of one site, only those it needs."""
        around = self.pipeline
        if (around.network is not None or site is not None) and not self.problems:
            with self.noting():
                parts = parts_to_run(self.pipeline, site)
                around = self.pipeline if site is None else parts[site].pipeline
        for found in () if self.alone else look_around(around, settings):
            problem = replace(found.problem, file=str(self.spec), line=line_of(self.spec, *found.keys))
            self.notes.append(str(problem)) if found.note else self.problems.append(problem)

    def of_spark(self, conf: Mapping[str, str]) -> None:
        """What only Spark can judge of expressions."""
        if self.problems:
            return
        from headrace.engine import build_session, judge, judge_select, read_table, session_settings

        session = build_session("check", conf=session_settings(self.pipeline, conf))
        for stream in self.pipeline.streams:
            if stream.select is not None:
                with self.noting():
                    judge_select(session, stream)
        for query in self.pipeline.queries:
            with self.noting():
                judge(query, self.pipeline.streams, session)
        for table in self.pipeline.tables:
            try:
                read_table(session, table)
            except EngineError as missing:
                self.problems.append(Problem(str(missing), line=line_of(self.spec, "tables", table.name)))


def _functions(query: Query) -> Iterator[tuple[str, str]]:
    """What a query names functions for, and the functions: `module:name`."""
    if isinstance(query.root, Step):
        yield "function", query.root.step.function
        if query.root.step.migration is not None:
            yield "migration", query.root.step.migration
    if query.sink.format == "python":
        yield "sink function", dict(query.sink.options).get("function", "")
