"""Several engines want one lease, in a simulated world of slow and failing storage, stopped engines and odd clocks."""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable

import pytest

from headrace.engine.state.lease import Lease
from headrace.errors import LockedError
from headrace.policies.lease import Hold, LeaseTimes, stand

TIMES = LeaseTimes()
END_S = 4000.0
# Clocks run apart by so much at most: far less than what is left between giving up and taking over.
RATES = (0.9, 1.1)
RETRY_S = 5.0
# Who wants a lease that nobody holds has it after so long: two leases by a slow clock, since another may take it and
# die at once, and some time to look.
NOBODY_S = 150.0


class World:
    """Threads of which one runs at a time, in the order of a simulated clock; whatever takes time passes it on."""

    def __init__(self, seed: int) -> None:
        self.rng, self.now_s = random.Random(seed), 0.0
        self._heap: list[tuple[float, int, threading.Semaphore]] = []
        self._sequence, self._back = 0, threading.Semaphore(0)
        self.checks: list[Callable[[], None]] = []
        self.failures: list[BaseException] = []

    def start(self, body: Callable[[], None]) -> None:
        go = threading.Semaphore(0)

        def run() -> None:
            go.acquire()
            try:
                body()
            except BaseException as failure:
                self.failures.append(failure)
            self._back.release()

        threading.Thread(target=run, daemon=True).start()
        self._push(0.0, go)

    def _push(self, after_s: float, go: threading.Semaphore) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_s + after_s, self._sequence, go))

    def wait(self, seconds: float) -> None:
        go = threading.Semaphore(0)
        self._push(max(0.0, seconds), go)
        self._back.release()
        go.acquire()

    def run(self) -> None:
        while self._heap and not self.failures:
            self.now_s, _, go = heapq.heappop(self._heap)
            for check in self.checks:
                check()
            go.release()
            self._back.acquire()
        if self.failures:
            raise self.failures[0]


class Storage:
    """Files in memory; an operation takes effect somewhere while it lasts, and may fail before or after it did."""

    root = "hdfs://far/away"

    def __init__(self, world: World, faulty: bool = True) -> None:
        self.world, self.faulty = world, faulty
        self.files: dict[str, bytes] = {}
        self.down_until_s = self.sick_until_s = 0.0
        self.errors = 0

    def _operate(self, effect: Callable[[], object]) -> object:
        rng, world = self.world.rng, self.world
        if not self.faulty:
            return effect()
        slow = rng.random() < 0.01
        delays = [rng.expovariate(1 / (20.0 if slow else 0.2)) for _ in range(2)]
        if slow:
            self.sick_until_s = max(self.sick_until_s, world.now_s + sum(delays))
        if rng.random() < 0.002:
            self.down_until_s = world.now_s + rng.uniform(5, 80)
            self.sick_until_s = max(self.sick_until_s, self.down_until_s)
        world.wait(delays[0])
        if world.now_s < self.down_until_s or rng.random() < 0.03:
            self._fail()
        found = effect()
        world.wait(delays[1])
        if rng.random() < 0.03:
            self._fail()
        return found

    def _fail(self) -> None:
        self.errors += 1
        raise OSError("storage has failed")

    def read(self, path: str) -> bytes | None:
        return self._operate(lambda: self.files.get(path))  # type: ignore[return-value]

    def create(self, path: str, data: bytes) -> None:
        def effect() -> None:
            if path in self.files:
                raise FileExistsError(path)
            self.files[path] = data

        self._operate(effect)

    def names(self, folder: str) -> list[str]:
        return self._operate(lambda: [p.rpartition("/")[2] for p in self.files if p.startswith(f"{folder}/")])  # type: ignore[return-value]

    def delete(self, path: str) -> None:
        self._operate(lambda: self.files.pop(path, None))


class Engine:
    """Takes the lease when it can, renews it, is stopped now and then, dies, comes back."""

    def __init__(self, world: World, storage: Storage) -> None:
        self.world, self.storage = world, storage
        self.rate, self.offset_s = world.rng.uniform(*RATES), world.rng.uniform(-1e6, 1e6)
        self.lease: Lease | None = None
        self.wants_since_s: float | None = None
        self.held, self.taken_over, self.stops, self.refused = 0, 0, 0, 0

    def clock(self) -> float:
        return self.offset_s + self.world.now_s * self.rate

    def sleep(self, seconds: float) -> None:
        self.world.wait(seconds / self.rate)
        if self.world.rng.random() < 0.02:  # SIGSTOP, a suspended machine: its clock goes on
            self.stops, self.wants_since_s = self.stops + 1, None
            self.world.wait(self.world.rng.choice([3.0, 15.0, 45.0, 70.0, 300.0]))
            self.wants_since_s = self.world.now_s

    def believes(self) -> bool:
        lease = self.lease
        return lease is not None and isinstance(stand(lease._held, self.clock(), TIMES), Hold)

    def run(self) -> None:
        while self.world.now_s < END_S:
            if self.wants_since_s is None:
                self.wants_since_s = self.world.now_s
            try:
                self.lease = Lease(self.storage, "lock", TIMES, self.clock, self.sleep, threads=False)
            except (LockedError, OSError) as refused:
                self.refused += isinstance(refused, LockedError)
                self.world.wait(RETRY_S)
                continue
            self.held, self.taken_over = self.held + 1, self.taken_over + self.lease.took_over
            dies_s = self.world.now_s + self.world.rng.expovariate(1 / 300)
            wait_s: float | None = TIMES.renew_s
            while wait_s is not None and self.world.now_s < min(dies_s, END_S):
                self.sleep(wait_s)
                wait_s = self.lease.try_to_renew()
            if wait_s is not None and self.world.rng.random() < 0.3:
                self.lease.release()
            self.lease, self.wants_since_s = None, None
            self.world.wait(self.world.rng.uniform(1, 100))


# In 121 one gives the lease back slowly and another takes it while it does.
@pytest.mark.parametrize("seed", [*range(7), 121])
def test_never_two_and_never_nobody_for_long(seed: int):
    world = World(seed)
    storage = Storage(world)
    engines = [Engine(world, storage) for _ in range(2 + seed % 3)]
    nobody_since_s, longest_s = 0.0, 0.0

    def check() -> None:
        nonlocal nobody_since_s, longest_s
        owners = [engine for engine in engines if engine.believes()]
        assert len(owners) <= 1, f"two hold it at {world.now_s:.1f} s"
        if owners or world.now_s < storage.sick_until_s or world.now_s > END_S:
            nobody_since_s = world.now_s
        waits = [world.now_s - max(nobody_since_s, e.wants_since_s) for e in engines if e.wants_since_s is not None]
        longest_s = max(longest_s, *waits, 0.0)

    world.checks.append(check)
    for engine in engines:
        world.start(engine.run)
    world.run()
    assert longest_s <= NOBODY_S
    assert sum(e.taken_over for e in engines) > 0, "somebody died without a word"
    assert sum(e.stops for e in engines) > 0
    assert sum(e.refused for e in engines) > 0, "a live one kept others out"
    assert storage.errors > 0
    assert len([path for path in storage.files if path.startswith("lock/")]) < 20, "old links are removed"


def held(world: World, storage: Storage) -> Lease:
    return Lease(storage, "lock", TIMES, lambda: world.now_s, lambda s: None, threads=False)


def test_a_renewal_survives_errors_of_storage():
    world = World(0)
    storage = Storage(world, faulty=False)
    lease, create = held(world, storage), storage.create

    def fails(path: str, data: bytes) -> None:
        raise OSError("no route to host")

    storage.create = fails  # type: ignore[method-assign]
    world.now_s = 10.0
    assert lease.try_to_renew() == 1.0
    assert lease.lost(look=True) is None
    storage.create = create  # type: ignore[method-assign]
    world.now_s = 30.0
    assert lease.try_to_renew() == 10.0
    world.now_s = 69.0
    assert lease.lost() is None
    storage.create = fails  # type: ignore[method-assign]
    lease.try_to_renew()
    world.now_s = 70.0
    assert lease.lost() == "it could not be renewed for 40 s; the last of 1 tries failed: OSError: no route to host"
    assert lease.try_to_renew() is None


def test_storage_that_does_not_answer_is_no_proof_of_loss():
    world = World(0)
    storage = Storage(world, faulty=False)
    lease = held(world, storage)

    def fails(folder: str) -> list[str]:
        raise OSError("no route to host")

    storage.names = fails  # type: ignore[method-assign]
    assert lease.lost(look=True) is None


def test_an_owner_whose_links_another_continued_knows_it():
    world = World(0)
    storage = Storage(world, faulty=False)
    lease = held(world, storage)
    storage.create("lock/1", b'{"id": "other", "owner": "process 9 on far", "released": false}')
    assert lease.lost() is None, "by the clock alone nobody can tell"
    assert lease.lost(look=True) == "process 9 on far has taken it over"
    assert lease.try_to_renew() is None
    assert lease.lost() == "process 9 on far has taken it over"
    lease.release()
    assert set(storage.files) == {"lock/0", "lock/1"}, "nothing is given back that is another's"


def test_an_owner_that_slept_through_a_whole_reign_does_not_add_a_link_that_counts():
    """Its next link was another's, and has been removed since: it can be created, and is not the newest."""
    world = World(0)
    storage = Storage(world, faulty=False)
    lease = held(world, storage)
    storage.create("lock/5", b'{"id": "other", "owner": "process 9 on far", "released": false}')
    assert lease.try_to_renew() is None
    assert lease.lost() == "process 9 on far has taken it over"


def test_who_gives_a_lease_back_gives_it_up_first():
    world = World(0)
    storage = Storage(world, faulty=False)
    lease, create, seen = held(world, storage), storage.create, list[str | None]()

    def slow(path: str, data: bytes) -> None:
        create(path, data)
        seen.append(lease.lost())

    storage.create = slow  # type: ignore[method-assign]
    lease.release()
    assert seen == ["this engine gave it back"]
