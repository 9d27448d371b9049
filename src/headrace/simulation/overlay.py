"""An overlay that finds the keeper of a name by the digits of its hash, as Tapestry does (sections 2.2 and 4 of the
paper on network-aware placement).

Sites and names have identifiers of 40 hexadecimal digits. A site knows, for every prefix of its own identifier and
every next digit, the nearest site that begins like that. A message comes one digit closer to its name with every hop;
where no site has the wanted digit, the next digit that some site has stands in for it (surrogate routing). Whether some
site has a digit is the same for all who ask, so all routes of a name end at one site, its root.

    name 4f1…     paris a03… ──4──▶ rome 4c9… ──4f──▶ oslo 4f7…  (no other site begins with 4f: the root)

A `Wire` carries letters over it in simulated time, loses, delays and repeats them, and has keepers crash.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Generic, TypeVar

import numpy as np

from headrace.model import Network

__all__ = ["Arrival", "Faults", "Letter", "Overlay", "Wire", "identifier"]

T = TypeVar("T")

_DIGITS = "0123456789abcdef"
# Sent again after so many times the way there and back: what is only late has come by then, unless it is very late.
_PATIENCE = 2.0
# Added to every wait, so that a letter to one's own site is not repeated endlessly at one instant.
_LEAST_WAIT_MS = 1.0


def identifier(name: str) -> str:
    """The digits that a site or a zone of that name is found by: 160 bits, as in Tapestry.

    >>> identifier("paris")[:8]
    '3c4bd4d0'
    """
    return hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()


class Overlay:
    """The routes between the sites of one network; built once, used by every tree that is placed there.

    `without` names sites that have left: routes avoid them, and what they were the root of has the next root.
    """

    def __init__(self, network: Network) -> None:
        if not network.sites:
            raise ValueError("an overlay needs at least one site; the network has none")
        self.sites = network.sites
        self.latency_ms = np.array(network.latency_ms, dtype=np.float64)
        np.fill_diagonal(self.latency_ms, 0.0)
        self.position = {site: place for place, site in enumerate(network.sites)}
        self._identifiers = [identifier(site) for site in network.sites]
        self._beginning = _by_prefix(self._identifiers)
        self._nearest: dict[tuple[int, str], int] = {}
        self._routes: dict[tuple[str, str], tuple[str, ...]] = {}

    def distance_ms(self, a: str, b: str) -> float:
        return float(self.latency_ms[self.position[a], self.position[b]])

    def length_ms(self, route: Sequence[str]) -> float:
        return sum(self.distance_ms(a, b) for a, b in pairwise(route))

    def root(self, name: str, without: Collection[str] = ()) -> str:
        """The site that keeps a name.

        >>> overlay = Overlay(Network(("paris", "rome"), ((0.0, 9.0), (9.0, 0.0))))
        >>> overlay.root("merge"), overlay.root("merge", without={overlay.root("merge")})
        ('rome', 'paris')
        """
        start = next((site for site in self.sites if site not in without), None)
        if start is None:
            raise ValueError(f"no site is left to keep '{name}': all {len(self.sites)} have left the overlay")
        return self.route(start, name, without)[-1]

    def route(self, start: str, name: str, without: Collection[str] = ()) -> tuple[str, ...]:
        """The sites a message passes from `start` to the root of a name, both included; a site's name leads to it."""
        if not without and (start, name) in self._routes:
            return self._routes[start, name]
        gone = {self.position[site] for site in without}
        if len(gone) >= len(self.sites):
            raise ValueError(f"no site is left to keep '{name}': all {len(self.sites)} have left the overlay")
        wanted, here, prefix = identifier(name), self.position[start], ""
        passed = [here]
        while True:
            prefix = self._next_prefix(prefix, wanted, gone)
            if not self._identifiers[here].startswith(prefix) or here in gone:
                here = self._closest(here, prefix, gone)
                passed.append(here)
            if self._is_alone(prefix, gone):
                found = tuple(self.sites[place] for place in passed)
                if not without:
                    self._routes[start, name] = found
                return found

    def table(self, site: str) -> Mapping[tuple[int, str], str]:
        """The routing table of a site: whom it knows by how many leading digits they share and the digit after these.

        >>> overlay = Overlay(Network(("paris", "rome"), ((0.0, 9.0), (9.0, 0.0))))
        >>> overlay.table("paris")
        {(0, '2'): 'rome', (0, '3'): 'paris'}
        """
        here = self.position[site]
        own = self._identifiers[here]
        known: dict[tuple[int, str], str] = {}
        for level in range(len(own)):
            if level and len(self._beginning[own[:level]]) == 1:
                break
            for digit in _DIGITS:
                if own[:level] + digit in self._beginning:
                    known[level, digit] = self.sites[self._closest(here, own[:level] + digit, set())]
        return known

    def _next_prefix(self, prefix: str, wanted: str, gone: set[int]) -> str:
        """One digit more: the wanted one, or the first after it that some site still has."""
        first = int(wanted[len(prefix)], 16)
        for step in range(len(_DIGITS)):
            longer = prefix + _DIGITS[(first + step) % len(_DIGITS)]
            members = self._beginning.get(longer)
            if members is not None and (not gone or any(place not in gone for place in members)):
                return longer
        raise AssertionError("a prefix that was followed has a member")

    def _closest(self, here: int, prefix: str, gone: set[int]) -> int:
        key = (here, prefix)
        if not gone and key in self._nearest:
            return self._nearest[key]
        members = [place for place in self._beginning[prefix] if place not in gone]
        # A site is nearest to itself, also where another one is 0 ms away.
        found = here if here in members else members[int(np.argmin(self.latency_ms[here, members]))]
        if not gone:
            self._nearest[key] = found
        return found

    def _is_alone(self, prefix: str, gone: set[int]) -> bool:
        members = self._beginning[prefix]
        return len(members) == 1 or (bool(gone) and sum(place not in gone for place in members) == 1)


def _by_prefix(identifiers: list[str]) -> dict[str, list[int]]:
    """Who begins with what, up to the prefixes that one site alone has."""
    beginning: dict[str, list[int]] = {}
    waiting = [("", list(range(len(identifiers))))]
    while waiting:
        prefix, members = waiting.pop()
        if len(members) > 1 or not prefix:
            split: dict[str, list[int]] = {}
            for place in members:
                split.setdefault(identifiers[place][: len(prefix) + 1], []).append(place)
            beginning |= split
            waiting += split.items()
    return beginning


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong on the way, by chance.

    `loss` is the share of letters lost each time they are sent, but never more than `losses` times in a row, so that
    every letter arrives in the end. `jitter_ms` is the most a letter is late: later ones overtake it. At most `crashes`
    keepers of names crash: with a chance of `crash_share` when a letter comes, and again once they have answered it.
    """

    loss: float = 0.0
    losses: int = 8
    jitter_ms: float = 0.0
    crashes: int = 0
    crash_share: float = 0.05

    def __post_init__(self) -> None:
        for name in ("loss", "crash_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share between 0 and 1, not {getattr(self, name)}")
        for name in ("losses", "jitter_ms", "crashes"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is 0 or more, not {getattr(self, name)}")

    @property
    def lose(self) -> bool:
        """Whether a letter may never arrive, so that it must be sent until it is acknowledged."""
        return self.loss > 0 or self.crashes > 0


@dataclass(frozen=True, slots=True)
class Letter(Generic[T]):
    """Something from a site for the keeper of a name (`to_keeper`) or for the server at a site.

    Letters to keepers, and those that are `routed`, pass the overlay's sites; the others go straight. What a keeper has
    sent (`by_keeper`) is no longer repeated once it has crashed: its replacement says it again.
    """

    sender: str
    to: str
    content: T
    to_keeper: bool = False
    by_keeper: bool = False
    routed: bool = False


@dataclass(frozen=True, slots=True)
class Arrival(Generic[T]):
    """A letter at a site, and the sites it passed."""

    letter: Letter[T]
    route: tuple[str, ...]

    @property
    def site(self) -> str:
        return self.route[-1]


class Wire(Generic[T]):
    """Carries letters between sites in simulated time; all chance comes from `rng`, ties keep the order of sending.

    Where letters may be lost, each is sent until it is acknowledged, so it arrives at least once. When a keeper
    crashes, whoever wrote to the names it kept, and has not crashed, sends all these letters to the next root of the
    name. The server at its site runs on. Keepers at `lasting` sites never crash.
    """

    def __init__(self, overlay: Overlay, rng: random.Random, faults: Faults, lasting: Collection[str] = ()) -> None:
        self.overlay, self.rng, self.faults = overlay, rng, faults
        self.now_ms = 0.0
        self.hops = self.lost = self.repeated = 0
        self.crashed: set[str] = set()
        self._lasting = frozenset(lasting)
        self._letters: list[Letter[T]] = []
        self._attempts: list[int] = []
        self._unacknowledged: set[int] = set()
        self._to_names: dict[str, list[int]] = {}
        self._events: list[tuple[float, int, str, int, tuple[str, ...]]] = []
        self._sequence = count()

    def post(self, letter: Letter[T]) -> None:
        number = self._add(letter)
        if self.faults.lose:
            self._unacknowledged.add(number)
            if letter.to_keeper:
                self._to_names.setdefault(letter.to, []).append(number)
        self._send(number)

    def note(self, keeper: str, content: T, after_ms: float) -> None:
        """Something that the keeper at a site will know after a time, if it has not crashed by then."""
        number = self._add(Letter(keeper, keeper, content, to_keeper=True, by_keeper=True))
        self._push(self.now_ms + after_ms + self._jitter_ms(), "arrives", number, (keeper,))

    def attempts(self) -> int:
        """How often something must be sent until it arrives; what was lost on the way is counted."""
        found = 1
        while found <= self.faults.losses and self._by_chance(self.faults.loss):
            found += 1
        self.lost += found - 1
        self.repeated += found - 1
        return found

    def next_arrival(self) -> Arrival[T] | None:
        """The next letter that someone reads; None when nothing is under way any more."""
        while self._events:
            self.now_ms, _, what, number, route = heappop(self._events)
            if what == "acknowledged":
                # What a keeper read that has crashed since, nobody knows any more.
                if not (self._letters[number].to_keeper and route[-1] in self.crashed):
                    self._unacknowledged.discard(number)
            elif what == "due":
                if number in self._unacknowledged:
                    self.repeated += 1
                    self._send(number)
            elif not self._letters[number].to_keeper or self._is_read(route[-1]):
                if number in self._unacknowledged:
                    self._acknowledge(number, route)
                return Arrival(self._letters[number], route)
        return None

    def may_crash(self, site: str) -> None:
        """By chance the keeper at a site crashes: called when it has answered a letter."""
        left = len(self.crashed) < self.faults.crashes and site not in self._lasting and site not in self.crashed
        if left and self._by_chance(self.faults.crash_share):
            self._crash(site)

    def _is_read(self, site: str) -> bool:
        """Whether the keeper at a site runs, and goes on running for long enough to read a letter."""
        self.may_crash(site)
        return site not in self.crashed

    def _crash(self, site: str) -> None:
        moved = [name for name in self._to_names if self.overlay.root(name, self.crashed) == site]
        self.crashed.add(site)
        for number in tuple(self._unacknowledged):
            if self._is_silent(number):
                self._unacknowledged.discard(number)
        for number in [number for name in moved for number in self._to_names[name]]:
            # What is not acknowledged is sent again anyway.
            if number not in self._unacknowledged and not self._is_silent(number):
                self._unacknowledged.add(number)
                self._attempts[number] = 0
                self.repeated += 1
                self._send(number)

    def _is_silent(self, number: int) -> bool:
        letter = self._letters[number]
        return letter.by_keeper and letter.sender in self.crashed

    def _add(self, letter: Letter[T]) -> int:
        self._letters.append(letter)
        self._attempts.append(0)
        return len(self._letters) - 1

    def _send(self, number: int) -> None:
        route = self._route(self._letters[number])
        there_ms = self.overlay.length_ms(route)
        self.hops += len(route) - 1
        self._attempts[number] += 1
        if self._is_lost(number):
            self.lost += 1
        else:
            self._push(self.now_ms + there_ms + self._jitter_ms(), "arrives", number, route)
        if self.faults.lose:
            wait_ms = _LEAST_WAIT_MS + _PATIENCE * (2 * there_ms + self.faults.jitter_ms)
            self._push(self.now_ms + wait_ms, "due", number, route)

    def _route(self, letter: Letter[T]) -> tuple[str, ...]:
        if letter.to_keeper:
            return self.overlay.route(letter.sender, letter.to, self.crashed)
        if letter.routed:
            # A site is the root of its own name, also when its keeper has crashed: servers run on.
            return self.overlay.route(letter.sender, letter.to)
        return (letter.sender,) if letter.sender == letter.to else (letter.sender, letter.to)

    def _acknowledge(self, number: int, route: tuple[str, ...]) -> None:
        if self._is_lost(number):
            self.lost += 1
        else:
            back_ms = self.overlay.distance_ms(route[-1], route[0])
            self._push(self.now_ms + back_ms + self._jitter_ms(), "acknowledged", number, route)

    def _is_lost(self, number: int) -> bool:
        return self._attempts[number] <= self.faults.losses and self._by_chance(self.faults.loss)

    def _by_chance(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share

    def _jitter_ms(self) -> float:
        return self.rng.uniform(0.0, self.faults.jitter_ms) if self.faults.jitter_ms else 0.0

    def _push(self, time_ms: float, what: str, number: int, route: tuple[str, ...]) -> None:
        heappush(self._events, (time_ms, next(self._sequence), what, number, route))
