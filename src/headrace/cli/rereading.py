"""A pipeline file that is edited while it runs: what has changed in it, and what of that the run can take over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from headrace.errors import SpecError
from headrace.language import bind_query, given_of, include_patterns, load_pipeline
from headrace.model import Pipeline, Query, Step, StepFunction, Stream, Table

__all__ = ["Edit", "FileLook", "Rereading", "Settled", "compare"]

# A person who saves a file does not notice a second.
POLL_S = 1.0

_Stamp = tuple[str, int, int, int]
Look = tuple[_Stamp, ...]


class Changing(Protocol):
    """A run, as far as an edit concerns it."""

    @property
    def is_active(self) -> bool: ...

    def change(self, add: tuple[Query, ...], drop: tuple[str, ...]) -> None: ...


@dataclass(frozen=True)
class Edit:
    """What an edited file asks of a run: queries to add and drop at once, and what has to wait for a restart.

    `quiet` says of queries that go on how they have changed; `pipeline` is what runs once the edit is taken over.
    """

    pipeline: Pipeline
    add: tuple[Query, ...] = ()
    drop: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


def compare(running: Pipeline, edited: Pipeline) -> Edit:
    """What a run of one pipeline has to change to be a run of another, as far as it can without a restart."""
    restart = _restart(running, edited)
    known = {query.name: query for query in running.queries}
    found: dict[str, Query] = {}
    waiting: list[str] = []
    for query in edited.queries:
        try:
            found[query.name] = _on_running(query, running, edited)
        except SpecError as error:
            late = "as the run has its streams and tables; it waits for a restart"
            waiting += [f"{problem}, {late}" for problem in error.problems]
            if query.name in known:
                found[query.name] = known[query.name]
    changed = {name for name in known.keys() & found.keys() if _facts(known[name]) != _facts(found[name])}
    goes_on = [name for name in found if name in changed and found[name].sql == known[name].sql]
    return Edit(
        replace(running, queries=tuple(found.values())),
        tuple(query for name, query in found.items() if name not in known or name in changed),
        tuple(name for name in known if name not in found or name in changed),
        tuple(f"query '{name}' goes on with another {_difference(known[name], found[name])}" for name in goes_on),
        restart,
        tuple(waiting),
    )


def _facts(query: Query) -> dict[str, object]:
    return {"SQL": query.sql, "sink": query.sink, "priority": query.priority, "weight": query.weight,
            "lifetime": query.lifetime_us, "function": _function(query),
            "expectation": given_of(query.expect)}  # fmt: skip


def _function(query: Query) -> StepFunction | None:
    return query.root.step if isinstance(query.root, Step) else None


def _difference(before: Query, after: Query) -> str:
    mine, yours = _facts(before), _facts(after)
    return ", ".join(key for key in mine if mine[key] != yours[key])


def _restart(running: Pipeline, edited: Pipeline) -> tuple[str, ...]:
    parts = {
        "name": (running.name, edited.name),
        "output": (running.output, edited.output),
        "engine": (running.engine, edited.engine),
        "sites": (running.sites, edited.sites),
        "placement": (running.placement, edited.placement),
        "network": (running.network, edited.network),
    }
    return (
        *_differing("stream", running.streams, edited.streams),
        *_differing("table", running.tables, edited.tables),
        *(f"{part} has changed" for part, (old, new) in parts.items() if old != new),
    )


def _differing(what: str, running: Sequence[Stream | Table], edited: Sequence[Stream | Table]) -> list[str]:
    """Which streams or tables are not what they were, and how."""
    before, after = {each.name: each for each in running}, {each.name: each for each in edited}
    kinds = {name: "is new" if name not in before else "is gone" if name not in after else "has changed"
             for name in {**before, **after} if before.get(name) != after.get(name)}  # fmt: skip
    return [f"{what} '{name}' {kind}" for name, kind in kinds.items()]


def _on_running(query: Query, running: Pipeline, edited: Pipeline) -> Query:
    """A query of the edited file on the streams, and under the output, that the run has."""
    sink = query.sink
    if edited.output != running.output and sink.path == f"{edited.output.rstrip('/')}/{query.name}":
        sink = replace(sink, path=f"{running.output.rstrip('/')}/{query.name}")
    if (edited.streams, edited.tables) != (running.streams, running.tables):
        streams = {stream.name: stream for stream in running.streams}
        tables = {table.name: table for table in running.tables}
        bound = bind_query(query.name, query.sql, streams, step=_function(query), tables=tables)
        query = replace(query, root=bound.root, finish=bound.finish)
    return replace(query, sink=sink)


class FileLook:
    """How a pipeline file and those it includes look now: times, sizes, identities."""

    def __init__(self, spec: Path) -> None:
        self._spec = spec
        self._read: _Stamp | None = None
        self._patterns: tuple[str, ...] = ()

    def __call__(self) -> Look:
        stamp = _stamp(self._spec)
        if stamp != self._read:
            self._read, self._patterns = stamp, include_patterns(self._spec)
        return (stamp, *(_stamp(file) for pattern in self._patterns for file in self._matches(pattern)))

    def _matches(self, pattern: str) -> list[Path]:
        try:
            return sorted(self._spec.resolve().parent.glob(pattern))
        except (ValueError, NotImplementedError, OSError):
            return []  # reading the file says what is wrong with it


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return str(path), 0, -1, 0
    return str(path), found.st_mtime_ns, found.st_size, found.st_ino


class Settled:
    """Says when something has changed and stays as it is from one look to the next: nobody is writing any more."""

    def __init__(self, look: Callable[[], Look]) -> None:
        self._look = look
        self._known = self._last = look()

    def changed(self) -> bool:
        now = self._look()
        steady, self._last = now == self._last, now
        if not steady or now == self._known:
            return False
        self._known = now
        return True


class Rereading:
    """Watches a pipeline file and takes its changes over into a run, which never ends because of one."""

    def __init__(
        self,
        spec: Path,
        pipeline: Pipeline,
        report: Callable[[str], None],
        load: Callable[[Path], Pipeline] = load_pipeline,
    ) -> None:
        self._spec, self._pipeline, self._report, self._load = spec, pipeline, report, load
        self._settled = Settled(FileLook(spec))
        self._ended = threading.Event()

    def start(self, run: Changing) -> None:
        threading.Thread(target=self._watch, args=(run,), name="headrace-rereading", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _watch(self, run: Changing) -> None:
        while not self._ended.wait(POLL_S):
            try:
                if self._settled.changed():
                    self.reread(run)
            except Exception as failure:
                if self._ended.is_set():
                    return
                first = next((line for line in str(failure).splitlines() if line.strip()), type(failure).__name__)
                self._report(f"{self._spec} was not taken over, the run goes on as before: {first}")

    def reread(self, run: Changing) -> None:
        """Takes the file over as it is now, or says why not."""
        try:
            edit = compare(self._pipeline, self._load(self._spec))
            if edit.add or edit.drop:
                self._report(f"{self._spec} has changed")
                run.change(edit.add, edit.drop)
                self._pipeline = edit.pipeline
        except SpecError as error:
            self._refused(error)
            return
        for line in edit.quiet:
            self._report(line)
        for line in edit.restart:
            self._report(f"{self._spec}: {line}; the run goes on without that until it is started again")
        for line in edit.waiting:
            self._report(line)
        if not (edit.add or edit.drop or edit.restart or edit.waiting):
            self._report(f"{self._spec} was saved and says what it said before")

    def _refused(self, error: SpecError) -> None:
        count = len(error.problems)
        self._report(
            f"{self._spec} was not taken over, the run goes on as before: {count} problem{'s' if count > 1 else ''}"
        )
        for problem in error.problems:
            self._report(f"  {problem}")
