"""What is decided for an epoch: logged before anything acts, or read again if the epoch was begun before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.engine.clocks import EpochClock
from headrace.engine.operators.port import Ask, Decided, Operator
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.workload import describe_workload
from headrace.errors import CorruptStateError
from headrace.model import EpochDecision, Flush, Intake, SettingTerms
from headrace.planning import Workload
from headrace.policies import find_idle

__all__ = ["Deciding"]


class Deciding:
    """Makes one decision after the other; remembers the last, and which file describes the workload."""

    def __init__(
        self,
        settings: SettingTerms,
        checkpoint: Checkpoint,
        operators: Sequence[Operator],
        clock: EpochClock,
        marks: Callable[[int], Mapping[str, int | None]],
        since: Callable[[int], Mapping[str, int]],
    ) -> None:
        self._settings, self._checkpoint, self._operators, self._clock = settings, checkpoint, operators, clock
        self._marks, self._since = marks, since
        self._last: EpochDecision | None = None
        self._described: tuple[Workload, int] | None = None

    def decision(
        self, standing: Standing, batch: int, flush: Flush | None, intake: Intake | None
    ) -> tuple[EpochDecision, bool]:
        """What is decided for the coming epoch, and whether that was decided before a crash."""
        epoch = standing.manifest.epoch + 1
        found = self._checkpoint.decision(epoch)
        replay = found is not None
        if found is None:
            found = self._decided(standing, epoch, batch, flush, intake)
            self._checkpoint.write_decision(found)
        else:
            self._refuse_others(found, standing, batch, flush)
            self._described = standing.workload, found.workload
        self._last = found
        return found, replay

    def _decided(
        self, standing: Standing, epoch: int, batch: int, flush: Flush | None, intake: Intake | None
    ) -> EpochDecision:
        now = self._clock.tell(epoch, self._last or self._checkpoint.decision(epoch - 1))
        idle = find_idle(standing.clocks, standing.streams, standing.read_together, now.listened_us, now.since_us)
        ask = Ask(standing, epoch, flush, self._last, now.wall_us)
        decided = sum((operator.decide(ask) for operator in self._operators), Decided())
        return EpochDecision(
            epoch, batch, now.wall_us, epoch, tuple(sorted(standing.live)), idle, flush, decided.nodes, intake,
            now.listened_us, standing.admissions(decided.keep, epoch, decided.buckets, decided.keyed),
            self._describe(standing, epoch),
            {} if flush is not None else self._marks(batch), self._since(batch),
        )  # fmt: skip

    def _describe(self, standing: Standing, epoch: int) -> int:
        """The file that says under what the coming epoch is decided, written before the decision that names it."""
        if self._described is None or self._described[0] is not standing.workload:
            told = describe_workload(
                standing.workload, standing.streams, self._settings, standing.manifest, standing.tables
            )
            self._checkpoint.write_workload(epoch, told)
            self._described = standing.workload, epoch
        return self._described[1]

    def _refuse_others(self, decision: EpochDecision, standing: Standing, batch: int, flush: Flush | None) -> None:
        """CorruptStateError if a decision that is there is about another batch, or other queries."""
        which = f"decision {decision.epoch} of {self._checkpoint.storage.root}"
        if (decision.batch, decision.flush is None) != (batch, flush is None):
            raise CorruptStateError(f"{which} is for batch {decision.batch}, not {batch}")
        if decision.queries != tuple(sorted(standing.live)):
            raise CorruptStateError(
                f"{which} is for the queries {', '.join(decision.queries)}, and its workload is of others"
            )
