"""The engine without one of its safeguards: the suite has teeth if it fails then."""

from __future__ import annotations

from typing import Any


def take_away(safeguard: str) -> None:
    """Removes one safeguard from the engine in this process."""
    removed = {"fencing": _fencing, "batches": _batches, "decisions": _decisions, "staging": _staging, "sinks": _sinks}
    if safeguard not in removed:
        raise ValueError(f"there is no safeguard '{safeguard}'; those that can be taken away: {', '.join(removed)}")
    removed[safeguard]()


def _fencing() -> None:
    """No lock, and a manifest that is there already is written over."""
    from headrace.engine.state import storage
    from headrace.engine.state.checkpoint import Checkpoint

    class Open:
        def held(self) -> bool:
            return True

        def release(self) -> None:
            return None

    commit = Checkpoint.commit

    def overwrite(self: Any, manifest: Any) -> None:
        self.storage.delete(f"manifests/{manifest.epoch}.json")
        commit(self, manifest)

    storage.LocalStorage.lock = lambda self, path, *arguments: Open()  # type: ignore[method-assign]
    Checkpoint.commit = overwrite  # type: ignore[method-assign]


def _batches() -> None:
    """A batch that a manifest has committed and Spark brings once more is run once more."""
    from headrace.engine.epoch import Epochs

    def run(self: Any, batch: Any, number: int) -> None:
        with self._busy:
            self._run(batch, number, None)

    Epochs.run = run  # type: ignore[method-assign]


def _decisions() -> None:
    """An epoch that is run again is decided again."""
    from headrace.engine.state.checkpoint import Checkpoint

    Checkpoint.decision = lambda self, epoch: None  # type: ignore[method-assign]
    Checkpoint.write_decision = lambda self, decision: None  # type: ignore[method-assign]


def _staging() -> None:
    """Tasks write results where readers look, instead of where they are renamed from when the epoch takes them."""
    from headrace.engine.sinks import choose as sinks
    from headrace.engine.sinks.choose import files as file_sink

    original = file_sink.FileSink.__init__

    def begin(self: Any, spec: Any, storage: Any) -> None:
        original(self, spec, storage)
        self.staged = "."

    file_sink.FileSink.__init__ = begin  # type: ignore[method-assign]
    sinks.STAGING = "_nothing"


def _sinks() -> None:
    """Files of an epoch that is run again are added to those it has given before."""
    from headrace.engine.sinks.files import FileSink

    adopt = FileSink.adopt

    def append(self: Any, files: list[str], epoch: int, replay: bool) -> None:
        adopt(self, files, epoch * 1000 + len(self.storage.names("")), False)

    FileSink.adopt = append  # type: ignore[method-assign]
