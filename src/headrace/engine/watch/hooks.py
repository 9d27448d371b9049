"""What a caller may watch or replace: tests stop time here, and kill the engine at named points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.engine.clocks import read_clocks
from headrace.engine.state.checkpoint import Manifest
from headrace.hiding import hide
from headrace.model import EpochDecision
from headrace.planning import Asked
from headrace.policies import Reading
from headrace.policies.shedding import RowSample

__all__ = ["Hooks"]


def _ignore(_: object) -> None:
    return None


def _nothing() -> None:
    return None


def _as_it_is(sample: RowSample) -> RowSample:
    return sample


def _as_known(asked: Asked) -> Asked:
    return asked


@dataclass(frozen=True)
class Hooks:
    """`clocks` reads the machine's clocks; `clock_us`, if given, is the time of an epoch, and all clocks go by it.
    `probe` is called at named points of an epoch, `on_decision` with what is decided for an epoch, `on_epoch` after
    each commit, `on_note` with what a user should know. `measured` may replace what an epoch's rows were seen to
    cost, `asked` what overload is judged by before an epoch. `on_replayed` is called by a start when an epoch that was
    begun before has ended, and may end the start."""

    clock_us: Callable[[int], int] | None = None
    clocks: Callable[[], Reading] = read_clocks
    probe: Callable[[str], None] = _ignore
    on_decision: Callable[[EpochDecision], None] = _ignore
    on_epoch: Callable[[Manifest], None] = _ignore
    on_note: Callable[[str], None] = _ignore
    measured: Callable[[RowSample], RowSample] = _as_it_is
    asked: Callable[[Asked], Asked] = _as_known
    on_replayed: Callable[[], None] = _nothing

    def reading(self, epoch: int) -> Reading:
        """What the clocks show as an epoch is decided."""
        if self.clock_us is None:
            return self.clocks()
        return Reading(*(self.clock_us(epoch),) * 3)

    def without_secrets(self) -> Hooks:
        """The same, told notes in which secrets are hidden."""
        told = self.on_note
        return replace(self, on_note=lambda text: told(hide(text)))

    def watched_by(self, on_decision: Callable[[EpochDecision], None], *on_epoch: Callable[[Manifest], None]) -> Hooks:
        """The same, with others told first."""

        def decided(decision: EpochDecision) -> None:
            on_decision(decision)
            self.on_decision(decision)

        def committed(manifest: Manifest) -> None:
            for each in on_epoch:
                each(manifest)
            self.on_epoch(manifest)

        return replace(self, on_decision=decided, on_epoch=committed)
