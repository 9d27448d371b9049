"""Who holds a lease on storage without locks: a chain of small files, each created once only.

    0 A   1 A   2 A   3 A                  A renews by adding a link
                          |-- lease --|
                          3 A         4 B  B adds one after the newest has not changed for the whole lease

Only one engine can create a link, so of an owner that renews and another that takes over one fails, and knows it. Old
links are removed: who has created one looks whether it is the newest.
Between links time decides, and each engine goes by its own steady clock; nobody compares wall clocks:

    the owner        gives up when it has not renewed for `lost_s`, counted from before it began to write its last link
    the others       wait for `lease_s`, counted from when they had read that link

A link is read after it is written, so an owner that is stopped, slow or cut off has given up before another may begin,
as long as their clocks do not run apart by more than `lost_s` to `lease_s`. Gray and Cheriton, "Leases" (1989).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "Added",
    "Failed",
    "Hold",
    "Holding",
    "LeaseTimes",
    "Link",
    "Lost",
    "Refuse",
    "Take",
    "Wait",
    "Watch",
    "renew",
    "stand",
    "watch",
]


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds: how long a lease lasts, after which its owner gives up, how often it is renewed and looked at."""

    lease_s: float = 60.0
    lost_s: float = 40.0
    renew_s: float = 10.0
    look_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.look_s <= self.renew_s < self.lost_s < self.lease_s:
            raise ValueError(f"a lease is looked at, renewed, given up and taken over in this order, not as {self}")


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the chain: its number, the engine that made it, and whether that engine gave the lease back."""

    number: int
    id: str
    owner: str
    released: bool = False


@dataclass(frozen=True, slots=True)
class Take:
    """Create this link; the lease is taken if that succeeds, and no later link is there."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after so long."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Another engine is alive."""

    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The lease is held; renew it after so long."""

    renew_in_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is not held, or must be treated so; what is lost stays lost."""

    reason: str


@dataclass(frozen=True, slots=True)
class Watch:
    """The newest link that an engine without the lease has read, and when it had read it first."""

    number: int
    since_s: float


def watch(
    before: Watch | None, found: Link | None, asked_s: float, now_s: float, times: LeaseTimes
) -> tuple[Watch | None, Take | Wait | Refuse]:
    """What an engine that wants the lease does; it asked for the newest link at `asked_s` and had it at `now_s`."""
    if found is None:
        return before, Take(0, "nobody has ever held it")
    if found.released:
        return before, Take(found.number + 1, f"{found.owner} gave it back")
    if before is None:
        return Watch(found.number, now_s), Wait(times.look_s, f"{found.owner} may be alive")
    if found.number != before.number:
        return before, Refuse(f"{found.owner}, which renewed its lease while this engine looked on")
    left_s = times.lease_s - (asked_s - before.since_s)
    if left_s > 0:
        return before, Wait(min(times.look_s, left_s), f"{found.owner} may be alive for another {left_s:.0f} s")
    return before, Take(found.number + 1, f"{found.owner} has not renewed it for {times.lease_s:.0f} s")


@dataclass(frozen=True, slots=True)
class Added:
    """The link is there and the newest; `again` says that it was found there, made by a try that seemed to fail."""

    again: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Nobody knows whether the link is there."""

    error: str


@dataclass(frozen=True, slots=True)
class Holding:
    """An owner's last link and when it began to write it; tries to write the next one that failed, and since when."""

    link: int
    since_s: float
    failures: int = 0
    trying_since_s: float | None = None
    error: str = ""
    lost: Lost | None = None


def renew(held: Holding, began_s: float, outcome: Added | Failed | Link) -> Holding:
    """The owner's state after a try, begun at `began_s`, to add a link; a Link is another engine's that was there.

    A try that seemed to fail may have made the link: it counts from when the first of them began.
    """
    if held.lost is not None:
        return held
    first_s = began_s if held.trying_since_s is None else held.trying_since_s
    match outcome:
        case Added(again):
            return Holding(held.link + 1, first_s if again else began_s)
        case Failed(error):
            return replace(held, failures=held.failures + 1, trying_since_s=first_s, error=error)
        case Link():
            return replace(held, lost=Lost(f"{outcome.owner} has taken it over"))


def stand(held: Holding, now_s: float, times: LeaseTimes) -> Hold | Lost:
    """Whether an owner may act at `now_s`, and when it is to renew: soon after a failure, later after more of them."""
    if held.lost is not None:
        return held.lost
    age_s = now_s - held.since_s
    if age_s >= times.lost_s:
        why = f"; the last of {held.failures} tries failed: {held.error}" if held.failures else ""
        return Lost(f"it could not be renewed for {age_s:.0f} s{why}")
    if held.failures:
        return Hold(min(times.renew_s, times.look_s * 2.0 ** min(held.failures - 2, 9)))
    return Hold(max(0.0, times.renew_s - age_s))
