"""The folder of a link and both of its ends, without Spark: what is refused, by name, and when a sender waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.links.folder import LinkFolder
from headrace.engine.links.links import Links
from headrace.engine.links.measuring import Measuring
from headrace.engine.links.receiving import Receiving
from headrace.engine.links.sending import Sending
from headrace.engine.links.told import ends_told, note_ends
from headrace.engine.state.carry_over import refuse_other_forms
from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.sealed import seal, unseal
from headrace.engine.state.storage import LocalStorage
from headrace.errors import CorruptStateError, LockedError, StateError
from headrace.language import parse_schema
from headrace.model import (
    Entry,
    Link,
    LinkEnds,
    LinkEpoch,
    LinkFile,
    LinkMeasure,
    LinkReceipt,
    SiteMeasures,
    Stream,
    StreamMeasure,
    TimeWindow,
    plain,
)
from headrace.policies import StreamClock

LINK = Link("r_1", "rome", "hub", "r_1", "r")
STREAM = Stream("r", parse_schema("ts TIMESTAMP, k STRING"), "ts")
SENDER, RECEIVER = "a" * 32, "b" * 32


def vars_of(value: object) -> dict[str, Any]:
    found = plain(value)
    assert isinstance(found, dict)
    return found


def sent(epoch: int, before: int, mark: int | None = None, size: int = 10, sender: str = SENDER) -> LinkEpoch:
    file = LinkFile(f"epoch-{epoch:09d}-000.parquet", size, 7)
    return LinkEpoch("r_1", sender, epoch, before, (file,), mark, {"r": Entry(used=1)})


@pytest.fixture
def folder(tmp_path: Path) -> LinkFolder:
    found = LinkFolder(LINK, LocalStorage(str(tmp_path / "r_1"), sync=False))
    for epoch in (sent(3, -1, 30), sent(4, 3, 40), sent(6, 4, 60)):
        found.send(epoch)
    return found


@pytest.fixture
def receiving(folder: LinkFolder, tmp_path: Path) -> Receiving:
    storage = LocalStorage(str(tmp_path / "state"), sync=False)
    for batch, offset in enumerate(({"r_1": 4}, {"r_1": 6})):
        storage.create(f"spark/offsets/{batch}", f"v1\n{{}}\n{json.dumps(offset)}".encode())
    checkpoint = Checkpoint(storage)
    checkpoint.id = RECEIVER
    return Receiving((folder,), (STREAM,), checkpoint, lambda point: None)


def sending(folder: LinkFolder, limit: int = 1000, pause: Callable[[float], None] = lambda s: None, **rest: Any) -> Any:
    checkpoint = Checkpoint(LocalStorage("/nowhere", sync=False))
    checkpoint.id = SENDER
    notes: list[str] = rest.get("notes", [])
    made = Sending(
        [folder], {"r_1": ("r",)}, checkpoint, limit, None, notes.append, lambda point: None, pause,  # type: ignore[arg-type]
        measuring=rest.get("measuring"),
    )  # fmt: skip
    made.begin()
    return made


def altered(folder: LinkFolder, number: int, change: Callable[[dict[str, Any]], None], of: int | None = None) -> None:
    """Puts a well-sealed file in the place of what was sent."""
    path = f"sent/{number if of is None else of}.json"
    value = unseal(folder.storage.read(path), path)
    change(value)
    folder.storage.replace(f"sent/{number}.json", seal(value))


def flip(folder: LinkFolder) -> None:
    data = bytearray(folder.storage.read("sent/4.json") or b"")
    data[20] ^= 1
    folder.storage.replace("sent/4.json", bytes(data))


def cut_short(folder: LinkFolder) -> None:
    folder.storage.replace("sent/4.json", (folder.storage.read("sent/4.json") or b"")[:-9])


def named(name: str) -> Callable[[LinkFolder], None]:
    return lambda folder: altered(folder, 4, lambda value: value["files"][0].update(name=name))


def foreign(folder: LinkFolder) -> None:
    altered(folder, 4, lambda value: value.update(link="other"))


def of_another_sender(folder: LinkFolder) -> None:
    folder.acknowledge(LinkReceipt("r_1", RECEIVER, "c" * 32, 2))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(flip, r"sent/4\.json is altered or truncated", id="a flipped byte"),
        pytest.param(cut_short, r"sent/4\.json is altered or truncated", id="a truncated file"),
        pytest.param(lambda f: f.storage.delete("sent/4.json"), r"sent/4\.json is missing", id="the last of a batch"),
        pytest.param(lambda f: f.storage.delete("sent/3.json"), "sent after epoch 3: that is missing", id="one before"),
        pytest.param(foreign, "is of epoch 4 of link other", id="a file of another link"),
        pytest.param(lambda f: altered(f, 4, lambda v: None, of=3), "is of epoch 3 of link r_1", id="an epoch again"),
        pytest.param(of_another_sender, "is of checkpoint aaaaaaaaaaaa", id="another sender"),
        pytest.param(named("../../secret.parquet"), "as a file of epoch 4", id="a path"),
        pytest.param(named("epoch-000000003-000.parquet"), "as a file of epoch 4", id="a file of another epoch"),
        pytest.param(
            lambda f: altered(f, 4, lambda v: v.update(run="code")), "is nothing that a site sends", id="more than data"
        ),
    ],
)
def test_what_is_not_as_it_was_sent_is_refused_by_name(
    receiving: Receiving, folder: LinkFolder, fault: Callable[[LinkFolder], None], said: str
) -> None:
    assert [each.epoch for each in receiving._epochs(folder, {}, {"r_1": 4})] == [3, 4]
    fault(folder)
    with pytest.raises(CorruptStateError, match=said):
        receiving._epochs(folder, {}, {"r_1": 4})


def test_a_batch_has_what_was_sent_between_its_offsets(receiving: Receiving, folder: LinkFolder) -> None:
    assert [each.epoch for each in receiving._epochs(folder, {"r_1": 4}, {"r_1": 6})] == [6]
    assert receiving._epochs(folder, {"r_1": 6}, {"r_1": 6}) == []


def test_a_stream_follows_the_least_of_its_links(receiving: Receiving, folder: LinkFolder, tmp_path: Path) -> None:
    assert receiving.marks(1) == {"r": 60}
    other = LinkFolder(Link("r_2", "paris", "hub", "r_2", "r"), LocalStorage(str(tmp_path / "r_2"), sync=False))
    both = Receiving((folder, other), (STREAM,), receiving.checkpoint, lambda point: None)
    assert both.marks(1) == {"r": None}, "one has not begun"
    other.send(LinkEpoch("r_2", SENDER, 9, -1, (), 50))
    line = json.dumps({"r_1": 6, "r_2": 9})
    receiving.checkpoint.storage.create("spark/offsets/2", f"v1\n{{}}\n{line}".encode())
    assert both.marks(2) == {"r": 50}


def test_what_was_received_is_removed_and_the_last_is_still_told_of(receiving: Receiving, folder: LinkFolder) -> None:
    for number in (3, 4, 6):
        folder.storage.create(f"epoch-{number:09d}-000.parquet", b"x")
    receiving.committed(Manifest(0, 0))
    assert folder.receipt() == LinkReceipt("r_1", RECEIVER, SENDER, 4)
    sender = sending(folder)
    sender.trim()
    assert folder.sent() == [4, 6], "the watermark of a link that brings nothing is still asked for"
    assert [folder.files_of(number) for number in (3, 4, 6)] == [[], [], ["epoch-000000006-000.parquet"]]
    receiving.committed(Manifest(1, 1))
    sender.trim()
    assert folder.sent() == [6]


def test_a_link_has_one_receiver(receiving: Receiving, folder: LinkFolder) -> None:
    receiving.refuse_others()
    folder.acknowledge(LinkReceipt("r_1", "c" * 32, SENDER, 3))
    with pytest.raises(StateError, match="is received by checkpoint cccccccccccc, not by bbbbbbbbbbbb"):
        receiving.refuse_others()


def manifest(epoch: int, mark: int | None, failed: str | None = None) -> Manifest:
    return Manifest(epoch, 0, {"r": StreamClock(watermark_us=mark)}, queries={"r_1": QueryState("", failed=failed)})


def test_an_epoch_is_sent_once_and_only_if_it_tells_something(folder: LinkFolder) -> None:
    sender = sending(folder)
    sender.committed(manifest(7, 60))
    assert folder.sent() == [3, 4, 6], "neither rows nor time"
    sender.committed(manifest(8, 70))
    again = sending(folder)
    again.committed(manifest(8, 70))
    assert plain(folder.epoch(8)) == plain(LinkEpoch("r_1", SENDER, 8, 6, (), 70, {"r": Entry()}))
    again.committed(manifest(9, 90, failed="division by zero"))
    assert folder.sent()[-1] == 8, "time does not go on where rows are missing"


@pytest.mark.parametrize(
    ("mark", "answered", "since", "told"),
    [
        pytest.param(59, 40, None, 59, id="all closed panes are sent"),
        pytest.param(65, 40, None, 59, id="a pane that is closed is still to be sent"),
        pytest.param(19, None, None, 19, id="none is closed"),
        pytest.param(25, None, None, 19, id="the first is still to be sent"),
        pytest.param(65, None, 40, 59, id="of a query that came later the first is still to be sent"),
        pytest.param(None, None, None, None, id="nothing has come"),
    ],
)
def test_time_goes_on_along_a_link_up_to_the_panes_that_were_sent(
    folder: LinkFolder, mark: int | None, answered: int | None, since: int | None, told: int | None
) -> None:
    link = replace(LINK, panes="_panes_1")
    sender = sending(folder)
    sender._windows = {"r_1": TimeWindow(20, 20)}
    state = QueryState("", answered_us=answered, since_us=since)
    left = Manifest(7, 0, {"r": StreamClock(first_us=3, last_us=mark, watermark_us=mark)}, queries={"r_1": state})
    assert sender._watermark(left, link) == told


def test_a_link_tells_how_many_bytes_it_has_carried(folder: LinkFolder) -> None:
    sender = sending(folder)
    sender._sealed = lambda files: [LinkFile(name, 10, 7) for _, name in files]
    folder.storage.create("epoch-000000007-000.parquet", b"x" * 10)
    folder.storage.create("epoch-000000007-001.parquet", b"x" * 10)
    sender.committed(manifest(7, 70))
    sender.committed(manifest(8, 80))
    assert [folder.epoch(number).total_bytes for number in (7, 8)] == [20, 20]


@pytest.mark.parametrize(
    ("before", "received", "now", "left"),
    [
        pytest.param(LINK, 4, "r", "refused", id="rows that a stream goes on from"),
        pytest.param(LINK, None, "r", "refused", id="nothing was received as yet"),
        pytest.param(LINK, 6, "r", "", id="all has been received"),
        pytest.param(LINK, 4, "s", "noted", id="the stream is asked for no more"),
        pytest.param(replace(LINK, panes="_panes_1"), 4, "r", "noted", id="panes that are asked for no more"),
    ],
)
def test_an_edit_leaves_no_rows_behind_on_links_of_before(
    receiving: Receiving, folder: LinkFolder, before: Link, received: int | None, now: str, left: str
) -> None:
    storage, notes = receiving.checkpoint.storage, list[str]()
    note_ends(storage, LinkEnds("x", receives=(before,)))
    if received is not None:
        folder.acknowledge(LinkReceipt("r_1", RECEIVER, SENDER, received))
    ends = LinkEnds("x", receives=(Link("other", "rome", "hub", "other", now),))
    empty = Receiving((), (), receiving.checkpoint, lambda point: None)
    links = Links(sending(folder), empty, ends, receiving.checkpoint, lambda root: folder.storage, notes.append)
    if left == "refused":
        with pytest.raises(StateError, match=r"epochs (3|6) to 6 of rome are still on their way: run it as it was"):
            links.begin(None)
        assert ends_told(storage).receives == (before,), "and the next start knows of it, too"
        return
    links.begin(None)
    assert ends_told(storage) == ends
    told = "nothing here asks for link r_1 from rome any more: what it sent in epochs 6 to 6 is left behind"
    assert notes == ([told] if left else [])


def test_what_sites_have_measured_goes_along_links(receiving: Receiving, folder: LinkFolder, tmp_path: Path) -> None:
    oslo = {"oslo": SiteMeasures(3, {"f": StreamMeasure(5)}), "rome": SiteMeasures(2)}
    sender = sending(folder, measuring=Measuring("rome", {"r_at_rome": "r"}, {"r_1": 12.0}))
    ledger, clocks = {"r": Entry(used=40, late=2)}, {"r": StreamClock(5, 95, 70)}
    left = Manifest(7, 0, {**clocks, "r_at_rome": clocks["r"]}, {**ledger, "r_at_rome": ledger["r"]},
                    {"r_1": QueryState("")})  # fmt: skip
    sender.committed(left, oslo)
    rome = SiteMeasures(7, {"r": StreamMeasure(40, 5, 95)}, {"r_1": LinkMeasure("hub", "r", 0, 0, 40, 12.0, 5, 95)})
    assert folder.epoch(7).measured == {"oslo": oslo["oslo"], "rome": rome}
    receiving.checkpoint.storage.create("spark/offsets/2", b'v1\n{}\n{"r_1": 7}')
    assert receiving.told(Manifest(2, 2)) == folder.epoch(7).measured, "and from there to those it sends to"


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        pytest.param({"rome": {"epoch": -1}}, "a count is from 0 to", id="a negative count"),
        pytest.param({"rome": {"epoch": 2**70}}, "a count is from 0 to", id="a count of more than 64 bits"),
        pytest.param({"\x1b[2J": {"epoch": 1}}, "is no name", id="a name that is none"),
        pytest.param({f"s{i}": {"epoch": 1} for i in range(1001)}, "1001 names, at most 1000", id="too many sites"),
        pytest.param({"rome": {"epoch": 1, "run": "code"}}, "has an unknown 'run'", id="more than data"),
        pytest.param(
            {"rome": {"epoch": 1, "links": {"x": vars_of(LinkMeasure("h", "r", 1, 1, 1, 8.0)) | {"row_bytes": 1e999}}}},
            "a row has 0 bytes or more", id="no number",
        ),
    ],
)  # fmt: skip
def test_measures_that_no_site_sends_are_refused_by_name(folder: LinkFolder, measured: Any, said: str) -> None:
    altered(folder, 6, lambda value: value.update(measured=measured))
    with pytest.raises(CorruptStateError, match=rf"sent/6\.json is nothing that a site sends: .*{said}"):
        folder.epoch(6)


def test_panes_of_a_query_that_came_later_begin_with_the_last_of_its_links(
    receiving: Receiving, folder: LinkFolder, tmp_path: Path
) -> None:
    assert receiving.since(1) == {}
    storages = [folder.storage, LocalStorage(str(tmp_path / "r_2"), sync=False)]
    links = [Link(f"r_{i}", "rome", "hub", f"r_{i}", "r", panes="_panes_1") for i in (1, 2)]
    both = [LinkFolder(link, storage) for link, storage in zip(links, storages, strict=True)]
    both[0].send(LinkEpoch("r_1", SENDER, 8, 6, since_us=40))
    both[1].send(LinkEpoch("r_2", SENDER, 9, -1, since_us=50))
    line = json.dumps({"r_1": 8, "r_2": 9})
    receiving.checkpoint.storage.create("spark/offsets/2", f"v1\n{{}}\n{line}".encode())
    merged = Receiving(tuple(both), (STREAM,), receiving.checkpoint, lambda point: None)
    assert merged.since(2) == {"_panes_1": 50}


@pytest.mark.parametrize(("was", "now"), [("rows", "panes"), ("panes", "rows")])
def test_a_stream_does_not_change_its_form_under_queries_that_go_on(was: str, now: str) -> None:
    before, after = (replace(STREAM, as_panes=form == "panes") for form in (was, now))
    refuse_other_forms((before,), (before,), {"q": QueryState("")})
    refuse_other_forms((before,), (after,), {})
    with pytest.raises(StateError, match=f"came here as {was}, and by the placement of now would come as {now}"):
        refuse_other_forms((before,), (after,), {"q": QueryState("")})


def test_two_engines_do_not_send_one_epoch(folder: LinkFolder) -> None:
    with pytest.raises(LockedError, match=r"epoch 6 of link .* was sent by another engine"):
        folder.send(sent(6, 4))


@pytest.mark.parametrize(
    ("epoch", "received", "said"),
    [
        pytest.param(5, None, "was sent epoch 6, and the checkpoint ends with epoch 5: it was set back", id="a sender"),
        pytest.param(6, (SENDER, 9), "has epoch 9 of checkpoint aaaaaaaaaaaa, which this one", id="links"),
        pytest.param(6, ("c" * 32, 4), "has epoch 4 of checkpoint cccccccccccc, which this one", id="another sender's"),
    ],
)
def test_what_was_set_back_is_refused(
    folder: LinkFolder, epoch: int, received: tuple[str, int] | None, said: str
) -> None:
    if received is not None:
        folder.acknowledge(LinkReceipt("r_1", RECEIVER, *received))
    with pytest.raises(StateError, match=said):
        sending(folder).committed(manifest(epoch, 60))


def test_a_sender_that_is_too_far_ahead_waits_for_its_receiver(folder: LinkFolder) -> None:
    notes, waits = list[str](), list[float]()

    def receive(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            folder.acknowledge(LinkReceipt("r_1", RECEIVER, SENDER, 4))

    sending(folder, 25, receive, notes=notes).make_room(lambda: False, receives=True)
    assert len(waits) == 3
    assert notes == ["link r_1 has 30 B that its receiver has not taken, and its limit is 25 B: this site waits for it"]


def never(seconds: float) -> None:
    raise AssertionError("it waits")


def test_a_run_that_leaves_does_not_wait(folder: LinkFolder) -> None:
    sending(folder, 25, never).make_room(lambda: True, receives=False)


def test_what_a_ring_of_sites_brings_does_not_wait(folder: LinkFolder) -> None:
    ring = LinkFolder(replace(LINK, back=True), folder.storage)
    sending(ring, 25, never).make_room(lambda: False, receives=True)
    with pytest.raises(AssertionError, match="it waits"):
        sending(ring, 25, never).make_room(lambda: False, receives=False)
