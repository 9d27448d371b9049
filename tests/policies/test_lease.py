"""Who may take a lease, who still holds one, and who must assume that it is lost."""

from __future__ import annotations

import pytest

from headrace.policies.lease import (
    Added,
    Failed,
    Hold,
    Holding,
    LeaseTimes,
    Link,
    Lost,
    Refuse,
    Take,
    Wait,
    Watch,
    renew,
    stand,
    watch,
)

TIMES = LeaseTimes(lease_s=60, lost_s=40, renew_s=10, look_s=2)
A7 = Link(7, "a", "engine A")


@pytest.mark.parametrize(
    ("before", "found", "asked_s", "now_s", "does"),
    [
        pytest.param(None, None, 5, 6, Take(0, "nobody has ever held it"), id="a new checkpoint is taken at once"),
        pytest.param(
            None, Link(7, "a", "engine A", released=True), 5, 6, Take(8, "engine A gave it back"), id="given back"
        ),
        pytest.param(None, A7, 5, 6, Wait(2, "engine A may be alive"), id="it is watched first"),
        pytest.param(Watch(7, 6), A7, 30, 31, Wait(2, "engine A may be alive for another 36 s"), id="half of it"),
        pytest.param(Watch(7, 6), A7, 65, 99, Wait(1, "engine A may be alive for another 1 s"),
                     id="a slow answer does not count: the owner may have renewed while it was on its way"),
        pytest.param(Watch(7, 6), A7, 66, 67, Take(8, "engine A has not renewed it for 60 s"), id="the whole lease"),
        pytest.param(
            Watch(7, 6), Link(8, "a", "engine A"), 500, 501,
            Refuse("engine A, which renewed its lease while this engine looked on"),
            id="a link that came in between is a sign of life, however long it took to look",
        ),
        pytest.param(
            Watch(7, 6), Link(8, "b", "engine B"), 66, 67,
            Refuse("engine B, which renewed its lease while this engine looked on"),
            id="another was faster",
        ),
    ],
)  # fmt: skip
def test_an_engine_that_wants_a_lease(
    before: Watch | None, found: Link | None, asked_s: float, now_s: float, does: Take | Wait | Refuse
):
    assert watch(before, found, asked_s, now_s, TIMES)[1] == does


def test_silence_counts_from_when_the_link_was_first_read():
    seen, _ = watch(None, A7, 5, 6, TIMES)
    assert seen == Watch(7, 6)
    assert watch(seen, A7, 30, 31, TIMES)[0] == seen


HELD = Holding(7, since_s=100)
LATE = Lost("it could not be renewed for 40 s")
OFF = Failed("OSError: the line is down")


@pytest.mark.parametrize(
    ("events", "now_s", "stands"),
    [
        pytest.param([], 103, Hold(7), id="renewed three seconds ago"),
        pytest.param([], 115, Hold(0), id="a renewal that is overdue is due now"),
        pytest.param([], 139.9, Hold(0), id="nobody can have taken it yet"),
        pytest.param([], 140, LATE, id="lost before another may take it"),
        pytest.param([(110, Added())], 149, Hold(0), id="time runs from when the link began to be written"),
        pytest.param([(110, Added())], 150, LATE, id="and ends likewise"),
        pytest.param([(110, OFF)], 111, Hold(1), id="a failure is tried again soon"),
        pytest.param([(110, OFF), (111, OFF), (113, OFF), (117, OFF)], 120, Hold(8), id="later each time"),
        pytest.param([(110, OFF)] * 9, 120, Hold(10), id="but not later than it would be renewed"),
        pytest.param([(110, OFF), (112, Added())], 113, Hold(9), id="one that succeeds makes good"),
        pytest.param(
            [(110, OFF), (112, OFF)], 140,
            Lost("it could not be renewed for 40 s; the last of 2 tries failed: OSError: the line is down"),
            id="storage that is gone for long costs the lease",
        ),
        pytest.param([(110, OFF), (135, Added(again=True))], 149.9, Hold(0),
                     id="a try that seemed to fail counts from when it began"),
        pytest.param([(110, OFF), (135, Added(again=True))], 150, LATE, id="no longer"),
        pytest.param([(110, Link(8, "b", "engine B"))], 111, Lost("engine B has taken it over"), id="another has it"),
        pytest.param(
            [(110, Link(8, "b", "engine B")), (111, Added())], 112, Lost("engine B has taken it over"),
            id="what is lost stays lost",
        ),
    ],
)  # fmt: skip
def test_an_engine_that_holds_a_lease(
    events: list[tuple[float, Added | Failed | Link]], now_s: float, stands: Hold | Lost
):
    held = HELD
    for began_s, outcome in events:
        held = renew(held, began_s, outcome)
    assert stand(held, now_s, TIMES) == stands


@pytest.mark.parametrize("times", [(60, 70, 10, 2), (60, 40, 50, 2), (60, 40, 10, 20), (60, 40, 10, 0)])
def test_times_in_another_order_are_refused(times: tuple[float, float, float, float]):
    with pytest.raises(ValueError, match="looked at, renewed, given up and taken over in this order"):
        LeaseTimes(*times)
