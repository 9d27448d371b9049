"""The engine without one of its safeguards: the suite has teeth if it fails then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import uuid4


def take_away(safeguard: str) -> None:
    """Removes one safeguard from the engine in this process."""
    if safeguard not in SAFEGUARDS:
        raise ValueError(f"there is no safeguard '{safeguard}'; those that can be taken away: {', '.join(SAFEGUARDS)}")
    SAFEGUARDS[safeguard]()


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
    Checkpoint.commit = overwrite  # type: ignore[method-assign]


def _batches() -> None:
    """A batch that a manifest has committed and Spark brings once more is run once more."""
    from headrace.engine.epochs import Epochs

    def run(self: Any, batch: Any, number: int) -> None:
        with self._busy:
            self._run(batch, number, None)

    Epochs.run = run  # type: ignore[method-assign]


def _decisions() -> None:
    """An epoch that is run again is decided again; that it is run again is known all the same."""
    from headrace.engine.epoch import Epoch

    admit = Epoch._admit

    def decide_again(self: Any, number: int, flush: Any, intake: Any) -> Any:
        path = f"decisions/{self.standing.manifest.epoch + 1}.json"
        known = self._checkpoint.storage.size(path) is not None
        self._checkpoint.storage.delete(path)
        progress = admit(self, number, flush, intake)
        progress.replay = known
        return progress

    Epoch._admit = decide_again  # type: ignore[method-assign]


def _staging() -> None:
    """Tasks write results where readers look, instead of where they are renamed from when the epoch takes them."""
    from headrace.engine.sinks.files import FileSink

    begin = FileSink.__init__

    def begin_in_the_open(self: Any, spec: Any, storage: Any) -> None:
        begin(self, spec, storage)
        self.staged = "."

    FileSink.__init__ = begin_in_the_open  # type: ignore[method-assign]
    # What is written in the open cannot be told from results: nobody can clear it.
    FileSink.forget = lambda self: None  # type: ignore[method-assign]


def _sinks() -> None:
    """Files of an epoch that is run again are added to those it has given before."""
    from headrace.engine.sinks.files import FileSink

    def append(self: Any, files: list[str], epoch: int, replay: bool) -> None:
        for file in files:
            self.storage.move(f"{self.staged}/{file}", f"epoch-{epoch:09d}-{uuid4().hex}.parquet")
            self._last = epoch

    FileSink.adopt = append  # type: ignore[method-assign]


SAFEGUARDS = {"fencing": _fencing, "batches": _batches, "decisions": _decisions, "staging": _staging, "sinks": _sinks}
