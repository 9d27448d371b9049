"""The engine without one of its safeguards: the suite has teeth if it fails then."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4


def take_away(safeguard: str) -> None:
    """Removes one safeguard from the engine in this process."""
    if safeguard not in SAFEGUARDS:
        raise ValueError(f"there is no safeguard '{safeguard}'; those that can be taken away: {', '.join(SAFEGUARDS)}")
    SAFEGUARDS[safeguard]()


def _replace(owner: type, name: str, by: Callable[..., Any]) -> None:
    """Puts a function in the place of one that takes the same: a run must fail for what is taken away alone."""
    there, given = (list(inspect.signature(call).parameters) for call in (getattr(owner, name), by))
    if there != given:
        raise TypeError(f"{owner.__name__}.{name} takes {there}, what is to replace it {given}")
    setattr(owner, name, by)


def _fencing() -> None:
    """No lock, and a manifest that is there already is written over."""
    from headrace.engine.state import storage
    from headrace.engine.state.checkpoint import Checkpoint

    commit = Checkpoint.commit

    def overwrite(self: Any, manifest: Any) -> None:
        self.storage.delete(f"manifests/{manifest.epoch}.json")
        commit(self, manifest)

    # Whoever asks for a lock has it.
    storage.fcntl = SimpleNamespace(flock=lambda *arguments: None, LOCK_EX=0, LOCK_NB=0)  # type: ignore[attr-defined]
    _replace(Checkpoint, "commit", overwrite)


def _batches() -> None:
    """A batch that a manifest has committed and Spark brings once more is run once more."""
    from headrace.engine.epochs import Epochs

    def run(self: Any, batch: Any, number: int) -> None:
        with self._busy:
            self._run(batch, number, None)

    _replace(Epochs, "run", run)


def _decisions() -> None:
    """An epoch that is run again is decided again; that it is run again is known all the same."""
    from headrace.engine.deciding import Deciding

    decide = Deciding.decision

    def decide_again(self: Any, standing: Any, batch: int, flush: Any, intake: Any) -> Any:
        path = f"decisions/{standing.manifest.epoch + 1}.json"
        known = self._checkpoint.storage.size(path) is not None
        self._checkpoint.storage.delete(path)
        return decide(self, standing, batch, flush, intake)[0], known

    _replace(Deciding, "decision", decide_again)


def _staging() -> None:
    """Tasks write results where readers look, instead of where they are renamed from when the epoch takes them."""
    from headrace.engine.sinks.files import FileSink

    begin = FileSink.__init__

    def begin_in_the_open(self: Any, spec: Any, storage: Any, mark: Any = None) -> None:
        begin(self, spec, storage, mark)
        self.staged = "."

    _replace(FileSink, "__init__", begin_in_the_open)
    # What is written in the open cannot be told from results: nobody can clear it.
    _replace(FileSink, "forget", lambda self: None)


def _sinks() -> None:
    """Files of an epoch that is run again are added to those it has given before."""
    from headrace.engine.sinks.files import FileSink

    def append(self: Any, files: list[str], epoch: int, replay: bool) -> None:
        for file in files:
            self.storage.move(f"{self.staged}/{file}", f"epoch-{epoch:09d}-{uuid4().hex}.parquet")
            self._last = epoch

    _replace(FileSink, "adopt", append)


SAFEGUARDS = {"fencing": _fencing, "batches": _batches, "decisions": _decisions, "staging": _staging, "sinks": _sinks}
