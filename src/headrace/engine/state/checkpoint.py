"""The checkpoint: decisions before they act, one manifest per epoch, and state files that a manifest names.

checkpoint/
  headrace.json        version, identity, number of bins
  lock, lock.links/    held by the one engine that writes: a lock of the operating system, or a lease
  spark/               Spark's own offsets and commits
  decisions/N.json     what was decided for epoch N
  manifests/N.json     what epoch N left behind: the commit point
  workload/N.json      under what epochs from N on are decided: streams, queries, settings, the synopses that are kept
  state/*.chunk        panes and rows, named by a manifest or garbage
  rejected/            rows that were refused, with the reason
  tables/NAME/*        snapshots of tables, named by a decision or a manifest or garbage
  delivered/           the last epoch of sinks that cannot tell by themselves

docs/files.md says how long each of them stays.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headrace.engine.state.sealed import seal, unseal
from headrace.engine.state.storage import Holder, Lock, Storage
from headrace.errors import CorruptStateError, LockedError, StateError, VersionError
from headrace.kernels.chunks import Chunk
from headrace.model import (
    SCHEDULE,
    SHEDDING,
    TABLES,
    AnswersState,
    Entry,
    EpochDecision,
    Expected,
    JoinState,
    KeyedState,
    LookupState,
    Observed,
    Shed,
    Snapshot,
    TablesState,
    plain,
    restored,
    shown,
)
from headrace.planning import Coverage, NodeState, Schedule, Shedding
from headrace.policies import StreamClock

__all__ = ["VERSION", "Checkpoint", "Manifest", "NodeState", "QueryState"]

VERSION = 4
# The name of a file that is being written, under which nobody reads it.
HALF_WRITTEN = re.compile(r"\..+\.[0-9a-f]{32}")
# Decisions, manifests and workloads kept for `status` and for the curious; only the last of each is needed.
KEPT = 20


@dataclass(frozen=True, slots=True)
class QueryState:
    """Where a query stands: its SQL, since when it has complete panes, its last answered window end, its fate."""

    sql: str
    since_us: int | None = None
    answered_us: int | None = None
    rows: int = 0
    answers: int = 0
    failed: str | None = None
    slide_us: int = 0  # asked for
    gap_us: float | None = None  # between successive window ends, on average, of late
    waiting_us: int = 0  # how far behind its deadline it is
    lifetime_us: int | None = None
    ends_us: int | None = None  # where its lifetime ends
    ended: bool = False

    @property
    def runs(self) -> bool:
        return self.failed is None and not self.ended

    def failed_by(self, cause: str) -> QueryState:
        """The same, failed; the cause is written down without secrets, and not at any length."""
        return replace(self, failed=shown(cause))


@dataclass(frozen=True, slots=True)
class Nodes:
    """What operators remember, by node."""

    states: Mapping[str, NodeState]


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is true after an epoch; whatever no manifest says did not happen."""

    epoch: int
    batch: int
    clocks: Mapping[str, StreamClock] = field(default_factory=dict)
    ledger: Mapping[str, Entry] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    coverage: Mapping[str, Coverage] = field(default_factory=dict)  # by kept synopsis
    workload: int = -1  # the workload file that describes what is kept
    chunks: tuple[Chunk, ...] = ()
    nodes: Mapping[str, NodeState] = field(default_factory=dict)  # what operators remember
    observed: Observed = field(default_factory=Observed)
    edges: Mapping[str, Shed] = field(default_factory=dict)  # of edges that have shed
    expected: tuple[Expected, ...] = ()  # how expectations have fared

    @property
    def schedule(self) -> Schedule:
        """What is remembered of all aggregates' executions."""
        found = self.nodes.get(SCHEDULE)
        return found if isinstance(found, Schedule) else Schedule()

    @property
    def flows(self) -> dict[str, AnswersState | JoinState | KeyedState | LookupState]:
        """What is remembered of joins, row windows, functions, and of lookups and answers that others read."""
        others = Schedule | Shedding | TablesState
        return {name: node for name, node in self.nodes.items() if not isinstance(node, others)}

    @property
    def tables(self) -> Mapping[str, Snapshot]:
        """By table the snapshot that rows were looked up in."""
        found = self.nodes.get(TABLES)
        return found.snapshots if isinstance(found, TablesState) else {}

    @property
    def shedding(self) -> Shedding:
        """What is remembered of costs, of overload and of what windows lost."""
        found = self.nodes.get(SHEDDING)
        return found if isinstance(found, Shedding) else Shedding()

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "clocks": {name: asdict(clock) for name, clock in self.clocks.items()},
            "ledger": {name: asdict(entry) for name, entry in self.ledger.items()},
            "queries": {name: asdict(query) for name, query in self.queries.items()},
            "coverage": {id_: asdict(coverage) for id_, coverage in self.coverage.items()},
            "workload": self.workload,
            "chunks": [chunk.to_json() for chunk in self.chunks],
            "nodes": plain(self.nodes),
            "observed": plain(self.observed),
            "edges": plain(self.edges),
            "expected": plain(self.expected),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Manifest:
        return cls(
            value["epoch"],
            value["batch"],
            {name: StreamClock(**clock) for name, clock in value["clocks"].items()},
            {name: Entry(**entry) for name, entry in value["ledger"].items()},
            {name: QueryState(**query) for name, query in value["queries"].items()},
            {
                id_: Coverage(c["since_us"], c["columns"], tuple((p, s) for p, s in c["panes"]), c["rows"])
                for id_, c in value["coverage"].items()
            },
            value["workload"],
            tuple(Chunk.from_json(chunk) for chunk in value["chunks"]),
            restored(Nodes, {"states": value["nodes"]}).states,
            restored(Observed, value["observed"]),
            {edge: restored(Shed, shed) for edge, shed in value["edges"].items()},
            tuple(restored(Expected, each) for each in value.get("expected", ())),
        )


class Checkpoint:
    """Reads and writes a checkpoint; `open` takes the lock, `read` does not and must not write."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.bins = 1
        self.id = ""
        self._lock: Lock | None = None
        self._persisted: frozenset[str] = frozenset()  # chunks that a manifest has named
        self._workloads: list[int] = []  # files there are, in order
        self._garbage: list[str] = []  # to be removed after the next commit
        self._snapshots: frozenset[str] = frozenset()  # of tables, that the last manifest names

    @property
    def state_folder(self) -> str:
        return f"{self.storage.root}/state"

    def open(self, bins: int, streams: Mapping[str, str]) -> Manifest | None:
        """Takes the lock and gives the last manifest, or None for a new checkpoint.

        `streams` maps each stream to what it is read from; Spark's offsets belong to exactly these.
        """
        self.check_version()
        self._lock = self.storage.lock("lock")
        try:
            return self._open(bins, streams)
        except BaseException:
            self.close()
            raise

    def read(self) -> dict[str, Any] | None:
        """Makes the checkpoint readable without the lock; None if there is none."""
        found = self.check_version()
        if found is not None:
            self.bins, self.id = found["bins"], found["id"]
        return found

    def check_version(self) -> dict[str, Any] | None:
        """The version file; VersionError or CorruptStateError if this Headrace cannot read the checkpoint."""
        data = self.storage.read("headrace.json")
        if data is None:
            if self.storage.names("manifests"):
                raise CorruptStateError(f"{self.storage.root}/headrace.json is missing, though there are manifests")
            return None
        try:
            found = json.loads(data)
            version = found["version"]
            if version == VERSION:
                if not re.fullmatch(r"\w+", found["id"]) or not isinstance(found["bins"], int) or found["bins"] < 1:
                    raise ValueError("'id' is a word, and 'bins' a number from 1")
                _ = found["streams"]
        except (ValueError, KeyError, TypeError) as exc:
            raise CorruptStateError(f"{self.storage.root}/headrace.json cannot be read: {exc}") from exc
        if version != VERSION:
            raise VersionError(
                f"checkpoint {self.storage.root} has version {version}, this Headrace reads version {VERSION}; "
                "use the Headrace that wrote it, or start with a new checkpoint"
            )
        assert isinstance(found, dict)
        return found

    def _open(self, bins: int, streams: Mapping[str, str]) -> Manifest | None:
        found = self.check_version()
        if found is None:
            found = {"version": VERSION, "id": uuid.uuid4().hex, "bins": bins, "streams": dict(streams)}
            self.storage.create("headrace.json", json.dumps(found).encode())
        if found["streams"] != dict(streams):
            made = ", ".join(f"{name} ({source})" for name, source in found["streams"].items())
            given = ", ".join(f"{name} ({source})" for name, source in streams.items())
            raise StateError(
                f"checkpoint {self.storage.root} was made for the streams {made}, not {given}; "
                "a change of streams needs a new checkpoint"
            )
        self.bins, self.id = found["bins"], found["id"]
        self.storage.make_folder("state")
        manifest = self.latest()
        self._persisted = frozenset(chunk.name for chunk in manifest.chunks) if manifest else frozenset()
        self._snapshots = _snapshots(manifest)
        self._check_spark(manifest)
        return manifest

    def latest(self) -> Manifest | None:
        """The last manifest; CorruptStateError names one that cannot be trusted."""
        numbers = self._numbers("manifests")
        if not numbers:
            return None
        return self.manifest(numbers[-1])

    def manifest(self, epoch: int) -> Manifest:
        """The manifest of one epoch."""
        return Manifest.from_json(self._sealed(f"manifests/{epoch}.json"))

    def decision(self, epoch: int) -> EpochDecision | None:
        """What was decided for an epoch before, if anything was."""
        if self.storage.size(f"decisions/{epoch}.json") is None:
            return None
        return EpochDecision.from_json(self._sealed(f"decisions/{epoch}.json"))

    def manifests(self) -> list[int]:
        """Epochs whose manifests are still kept, in order."""
        return self._numbers("manifests")

    def decisions(self) -> list[int]:
        """Epochs whose decisions are still kept, in order."""
        return self._numbers("decisions")

    def write_decision(self, decision: EpochDecision) -> None:
        """Makes a decision durable; from here on a replay of the epoch decides the same, about the same rows."""
        self.storage.persist_all("spark")
        self.storage.create(f"decisions/{decision.epoch}.json", seal(decision.to_json()))

    def write_workload(self, epoch: int, value: Mapping[str, Any]) -> None:
        """Says under what epoch `epoch`, and those after it until the next such file, are decided."""
        self._workloads += [epoch] if epoch not in self._workloads else []
        self.storage.delete(f"workload/{epoch}.json")
        self.storage.create(f"workload/{epoch}.json", seal(value))

    def workload(self, epoch: int) -> dict[str, Any]:
        """Under what epochs from `epoch` on were decided, as a manifest or a decision names it."""
        return self._sealed(f"workload/{epoch}.json")

    def commit(self, manifest: Manifest) -> None:
        """The commit point of an epoch: after this it happened, before it did not."""
        self.check_lock(look=True)
        chunks = frozenset(chunk.name for chunk in manifest.chunks)
        if new := chunks - self._persisted:
            self.storage.persist(["state", *(f"state/{name}" for name in new)])
        try:
            self.storage.create(f"manifests/{manifest.epoch}.json", seal(manifest.to_json()))
        except FileExistsError as exc:
            raise LockedError(
                f"epoch {manifest.epoch} of {self.storage.root} was committed by another engine; this one stops"
            ) from exc
        self._persisted = chunks

    def holder(self) -> Holder:
        """Which engine has the checkpoint, or had it last without giving it back."""
        return self.storage.holder("lock")

    def check_lock(self, look: bool = False) -> None:
        """LockedError if this engine has lost the checkpoint, or must assume so."""
        why = "this engine gave it back" if self._lock is None else self._lock.lost(look)
        if why is not None:
            raise LockedError(f"checkpoint {self.storage.root} is no longer this engine's, which stops: {why}")

    def clean(self, manifest: Manifest, dropped: frozenset[str]) -> None:
        """Removes what the manifest no longer names and old logs; a crash in between leaves garbage, nothing else."""
        garbage, self._garbage = self._garbage, []
        # Nobody reads an older snapshot of a table: the epoch that uses this one has happened.
        before, self._snapshots = self._snapshots, _snapshots(manifest)
        for path in (*garbage, *(f"state/{name}" for name in dropped), *(before - self._snapshots)):
            self.storage.delete(path)
        oldest = manifest.epoch - KEPT
        self.storage.delete(f"manifests/{oldest}.json")
        self.storage.delete(f"decisions/{oldest}.json")
        # A workload serves until the next is described: the first of two goes when the second is old enough to.
        while len(self._workloads) > 1 and self._workloads[1] <= min(oldest, manifest.workload):
            self.storage.delete(f"workload/{self._workloads.pop(0)}.json")

    def clean_orphans(self, manifest: Manifest | None, queries: Collection[str]) -> None:
        """Removes what crashed attempts left: state that no manifest names, files half written, old logs; and notes of
        what was delivered for others than these queries.

        An engine that was taken for dead may be about to commit. It cannot after this one has: until then nothing goes.
        """
        named = {chunk.name for chunk in manifest.chunks} if manifest else set()
        last = manifest.epoch if manifest else -1
        found = [f"state/{name}" for name in self.storage.names("state") if name not in named]
        # An epoch that was decided and not committed is run again under what it was decided under.
        begun = self.decision(last + 1)
        needed = {each.workload for each in (manifest, begun) if each is not None}
        found += [f"workload/{number}.json" for number in self._numbers("workload") if number not in needed]
        for folder in ("manifests", "decisions"):
            found += [f"{folder}/{number}.json" for number in self._numbers(folder) if number <= last - KEPT]
        for folder in ("", "manifests", "decisions", "workload", "delivered"):
            halves = [name for name in self.storage.names(folder) if HALF_WRITTEN.fullmatch(name)]
            found += [f"{folder}/{name}" if folder else name for name in halves]
        snapshots = _snapshots(manifest) | _snapshots(begun)
        for table in self.storage.names("tables"):
            paths = (f"tables/{table}/{name}" for name in self.storage.names(f"tables/{table}"))
            found += [path for path in paths if path not in snapshots]
        found += [f"delivered/{name}" for name in self.storage.names("delivered") if name not in queries]
        found += [f"rejected/{name}" for name in self.storage.names("rejected") if name.startswith("_staging")]
        self._workloads = sorted(needed)
        if self._lock is not None and self._lock.took_over:
            self._garbage = found
            return
        for path in found:
            self.storage.delete(path)

    def close(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check_spark(self, manifest: Manifest | None) -> None:
        """Spark's offsets must continue where the manifest ends: never rows twice, never rows skipped."""
        self._mend_spark(manifest)
        planned = _greatest(self.storage.names("spark/offsets"))
        committed = _greatest(self.storage.names("spark/commits"))
        batch = manifest.batch if manifest else -1
        if batch >= 0 and planned < batch:
            raise CorruptStateError(
                f"{self.storage.root}/spark knows batches up to {planned}, the last manifest is of batch {batch}; "
                "restore the whole checkpoint, or start with a new one"
            )
        if committed > batch or planned > batch + 1:
            raise CorruptStateError(
                f"{self.storage.root}/spark has committed batch {committed}, the last manifest is of batch {batch}: "
                "manifests are missing; restore the whole checkpoint, or start with a new one"
            )

    def _mend_spark(self, manifest: Manifest | None) -> None:
        """Removes what a loss of power left of Spark's logs: empty files at their ends, on which nothing was built."""
        epoch, batch = (manifest.epoch, manifest.batch) if manifest else (-1, -1)
        begun = self.storage.size(f"decisions/{epoch + 1}.json") is not None
        sources = [f"sources/{name}" for name in self.storage.names("spark/sources")]
        # Offsets and files read are on disk before a decision is; commits are Spark's own affair.
        for folder in ("commits", *(() if begun else ("offsets", *sources))):
            last = _greatest(self.storage.names(f"spark/{folder}"))
            if (folder != "offsets" or last > batch) and self.storage.size(f"spark/{folder}/{last}") == 0:
                self.storage.delete(f"spark/{folder}/{last}")

    def _numbers(self, folder: str) -> list[int]:
        found = (name.removesuffix(".json") for name in self.storage.names(folder))
        return sorted(int(name) for name in found if name.isdigit())

    def _sealed(self, path: str) -> dict[str, Any]:
        return unseal(self.storage.read(path), f"{self.storage.root}/{path}")


def _snapshots(known: Manifest | EpochDecision | None) -> frozenset[str]:
    """The folders of the snapshots of tables that a manifest or a decision names."""
    return frozenset(f"tables/{table}/{each.folder}" for table, each in known.tables.items()) if known else frozenset()


def _greatest(names: list[str]) -> int:
    return max((int(name) for name in names if name.isdigit()), default=-1)
