"""A birth changes the way its rows travel: each row is in each answer once, whoever is behind, whenever they learn it.

A world in miniature: births that admit rows in disorder and send them as rows, or as panes once these are closed;
links of epochs; and a receiver that takes some epochs of some links at a time, and learns of plans when it does.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from headrace.model import Stay
from headrace.policies.placement import HandOver, LinkMark, end_way, hand_over, mark_of

PANE, WINDOW, LATENESS = 20, 60, 15


@dataclass
class Sent:
    """An epoch of a link: how many rows by pane, the watermark, who takes over, and whether this was the last."""

    panes: Counter[int]
    watermark: int
    next: HandOver | None = None
    ended: bool = False


@dataclass
class Birth:
    """Plans of odd number have it send panes, others rows."""

    rng: random.Random
    version: int = 1
    under_way: HandOver | None = None
    last: int | None = None
    watermark: int = -1
    since: dict[int, int] = field(default_factory=lambda: {1: 0})
    open: dict[int, Counter[int]] = field(default_factory=dict)
    links: dict[int, list[Sent]] = field(default_factory=lambda: {1: []})
    admitted: list[int] = field(default_factory=list)

    def epoch(self, now: int, planned: int) -> None:
        decided = hand_over(self.version, planned, self.last, PANE, self.under_way)
        if isinstance(decided, HandOver):
            self.under_way, self.since[decided.version] = decided, decided.at_us
            self.links[decided.version] = []
        came = [now + self.rng.randrange(-40, 25) for _ in range(self.rng.randrange(6))]
        rows = [row for row in came if row >= max(0, self.watermark)]
        self.admitted += rows
        if rows:
            self.last = max(rows if self.last is None else (*rows, self.last))
            self.watermark = max(self.watermark, self.last - LATENESS)
        for version, since in self.since.items():
            until = min((at for other, at in self.since.items() if other > version), default=None)
            mine = [row for row in rows if row >= since and (until is None or row < until)]
            self.send(version, mine)
        if end_way(self.under_way, self.watermark) and self.under_way is not None:
            self.links[self.version][-1].ended = True
            del self.since[self.version]
            self.version, self.under_way = self.under_way.version, None

    def send(self, version: int, rows: list[int]) -> None:
        panes = Counter(row // PANE * PANE for row in rows)
        if version % 2:
            kept = self.open.setdefault(version, Counter())
            kept.update(panes)
            panes = Counter({pane: kept.pop(pane) for pane in list(kept) if pane + PANE <= self.watermark})
        leaves = self.under_way is not None and version < self.under_way.version
        self.links[version].append(Sent(panes, self.watermark, self.under_way if leaves else None))


@dataclass
class Receiver:
    """Merges what came, and answers each window once, when no birth is behind its end."""

    births: list[Birth]
    known: int = 1
    merged: Counter[int] = field(default_factory=Counter)
    taken: dict[tuple[int, int], int] = field(default_factory=dict)
    answers: dict[int, int] = field(default_factory=dict)

    def epoch(self, rng: random.Random, planned: int, most: int) -> None:
        self.known = planned if rng.random() < 0.3 else self.known
        for number, birth in enumerate(self.births):
            for version in (v for v in birth.links if v <= self.known):
                first = self.taken.get((number, version), 0)
                end = min(len(birth.links[version]), first + rng.randrange(most + 1))
                for sent in birth.links[version][first:end]:
                    assert not any(pane + PANE <= self.mark(number) for pane in sent.panes), "older than its watermark"
                    self.merged.update(sent.panes)
                self.taken[number, version] = end
        mark = min(self.mark(number) for number in range(len(self.births)))
        for end in range(PANE, mark + 1, PANE):
            if end not in self.answers:
                self.answers[end] = sum(self.merged[pane] for pane in range(end - WINDOW, end, PANE))

    def mark(self, number: int) -> int:
        birth = self.births[number]
        marks = []
        for version in (v for v in birth.links if v <= self.known):
            taken = self.taken.get((number, version), 0)
            last = birth.links[version][taken - 1] if taken else None
            told = LinkMark(version) if last is None else LinkMark(version, last.watermark, last.next, last.ended)
            marks.append(told)
        return next((m for m in [mark_of(tuple(marks), self.known)] if m is not None), -1)


@pytest.mark.parametrize("seed", range(30))
def test_each_row_is_in_each_answer_once_however_far_sites_are_apart(seed: int) -> None:
    rng = random.Random(seed)
    births = [Birth(random.Random(seed * 7 + i)) for i in range(3)]
    receiver, plan = Receiver(births), 1
    for epoch in range(120):
        plan += epoch == 40 or rng.random() < 0.05
        for birth in births:
            if rng.random() < (0.9 if epoch % 30 < 20 else 0.4):  # who is away has its rows when it returns
                birth.epoch(epoch * 10, plan if rng.random() < 0.5 else birth.version)
        receiver.epoch(rng, plan, most=3 if epoch % 40 < 30 else 0)
    for more in range(150):  # all there is arrives
        for birth in births:
            birth.epoch(1200 + 10 * more, plan)
        receiver.epoch(rng, plan, most=9)
    rows = Counter(row // PANE * PANE for birth in births for row in birth.admitted)
    assert max(receiver.answers) > 1500
    for end, found in receiver.answers.items():
        assert found == sum(rows[pane] for pane in range(end - WINDOW, end, PANE)), f"seed {seed}, window to {end}"
    assert {birth.version for birth in births} == {plan}, "all have come to the newest plan"
    assert plan > 1


@pytest.mark.parametrize(
    ("running", "planned", "last", "under_way", "found"),
    [
        pytest.param(1, 2, 59, None, 60, id="the end of the pane of the last row"),
        pytest.param(1, 2, 60, None, 80, id="a row at an end belongs to the next pane"),
        pytest.param(1, 2, None, None, 0, id="nothing has come"),
        pytest.param(1, 4, 59, None, 60, id="plans between are left out"),
        pytest.param(2, 2, 59, None, None, id="it is the newest"),
        pytest.param(3, 2, 59, None, None, id="it is newer"),
        pytest.param(1, 3, 59, HandOver(2, 40, ""), None, id="one at a time"),
    ],
)
def test_when_a_sender_hands_over(
    running: int, planned: int, last: int | None, under_way: HandOver | None, found: int | None
) -> None:
    decided = hand_over(running, planned, last, PANE, under_way)
    assert (None if isinstance(decided, Stay) else decided.at_us) == found


TO_2, TO_3 = HandOver(2, 60, ""), HandOver(3, 80, "")


@pytest.mark.parametrize(
    ("links", "known", "mark"),
    [
        pytest.param((LinkMark(1, 70),), 1, 70, id="one way"),
        pytest.param((LinkMark(1, 70, TO_2, True),), 1, 60, id="who does not know the plan stands still"),
        pytest.param((LinkMark(1, 70, TO_2, True), LinkMark(2)), 2, 60, id="what follows has not begun"),
        pytest.param((LinkMark(1, 70, TO_2), LinkMark(2, 50)), 2, 60, id="nor come to times of its own"),
        pytest.param((LinkMark(1, 70, TO_2), LinkMark(2, 65)), 2, 65, id="both ways hold until the old has ended"),
        pytest.param((LinkMark(2, 90), LinkMark(1, 50, TO_2)), 2, 50, id="in any order"),
        pytest.param((LinkMark(1, 70, TO_2, True), LinkMark(2, 90, TO_3, True), LinkMark(3, 95)), 3, 95, id="twice"),
        pytest.param((LinkMark(1, 70, TO_2, True), LinkMark(2, 90, TO_3, True)), 2, 80, id="twice, and one is known"),
        pytest.param((LinkMark(1), LinkMark(2, 90)), 2, None, id="the old way is not heard of yet"),
    ],
)
def test_time_goes_on_over_a_change_of_ways(links: tuple[LinkMark, ...], known: int, mark: int | None) -> None:
    assert mark_of(links, known) == mark
