"""In which order sites run to the end of what there is, and when their windows are closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.engine.links.folder import LinkFolder
from headrace.engine.state.storage import LocalStorage
from headrace.language import bind_query, parse_schema
from headrace.model import Link, LinkEnds, LinkEpoch, LinkReceipt, LinkSettings, Pipeline, Stream
from headrace.sites import SitePart
from headrace.sites.running import ends_of, in_order, run_to_the_end

STREAM = Stream("r", parse_schema("ts TIMESTAMP, k STRING"), "ts")


def link(sender: str, receiver: str, dated: bool = True, panes: str | None = None) -> Link:
    name = f"{sender}_{receiver}"
    return Link(name, sender, receiver, name if dated else "q", "r", dated, panes=panes)


def parts(folder: Path, *links: Link, queries: tuple[str, ...] = ("hub",)) -> dict[str, SitePart]:
    """Sites with these links; the query q runs at some of them."""

    def part(site: str) -> SitePart:
        sends = tuple(each for each in links if each.sender == site)
        names = [each.query for each in sends if each.dated] + (["q"] if site in queries else [])
        asked = tuple(bind_query(name, "SELECT k FROM r", {"r": STREAM}) for name in names)
        pipeline = Pipeline(site, (STREAM,), asked, links=LinkSettings(str(folder)))
        return SitePart(site, pipeline, sends, tuple(each for each in links if each.receiver == site))

    return {site: part(site) for site in dict.fromkeys(s for each in links for s in (each.sender, each.receiver))}


class World:
    """Sites that send an epoch along each of their links in their first run, and receive whatever is there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.told = folder, list[str]()

    def start(self, part: SitePart, flush: bool | tuple[str, ...]) -> World:
        self.told.append(part.site + ("!" if flush is True else "".join(f":{stream}" for stream in flush or ())))
        for each in part.receives:
            folder = self.of(each)
            if folder.sent():
                folder.acknowledge(LinkReceipt(each.id, "b", "a", folder.sent()[-1]))
        for each in part.sends:
            # Answers and panes are given when windows are closed.
            if not self.of(each).sent() and ((each.dated and each.panes is None) or flush):
                self.of(each).send(LinkEpoch(each.id, "a", 0, -1))
        return self

    def of(self, each: Link) -> LinkFolder:
        return LinkFolder(each, LocalStorage(str(self.folder / each.id), sync=False))

    def await_termination(self) -> None:
        """It has run."""


@pytest.mark.parametrize(
    ("links", "queries", "flush", "told"),
    [
        pytest.param((link("a", "hub"), link("b", "hub")), ("hub",), True, "a! b! hub!", id="senders first"),
        pytest.param((link("b", "hub"), link("a", "b")), ("hub",), False, "a b hub", id="a chain"),
        pytest.param(
            (link("a", "hub"), link("hub", "hub")), ("hub",), True, "a hub hub hub!", id="a site that sends to itself"
        ),
        pytest.param(
            (link("a", "hub"), link("hub", "hub")), ("hub",), False, "a hub hub", id="nothing is closed unless asked"
        ),
        pytest.param(
            (link("a", "b"), link("b", "a"), link("a", "hub", dated=False)), ("a", "hub"), True,
            "a b hub a a! hub!", id="the proxy closes its windows when it has the answers of others",
        ),
        pytest.param(
            (link("a", "b"), link("b", "a"), link("a", "hub", panes="x"), link("hub", "hub")), ("hub",), True,
            "a b hub a hub a:r hub hub!", id="panes that are open are closed first, and arrive",
        ),
    ],
)  # fmt: skip
def test_who_runs_when(
    links: tuple[Link, ...], queries: tuple[str, ...], flush: bool, told: str, tmp_path: Path
) -> None:
    world, sites = World(tmp_path), parts(tmp_path, *links, queries=queries)
    run_to_the_end(sites, world.start, flush, lambda root: LocalStorage(root, sync=False))
    assert world.told == told.split()
    received = {each.id: world.of(each).receipt() for each in links}
    assert all(receipt is not None and receipt.epoch == 0 for receipt in received.values())


def test_sites_that_send_to_each_other_have_no_order(tmp_path: Path) -> None:
    assert in_order(parts(tmp_path, link("a", "b"), link("b", "a"))) is None


def test_the_ends_of_a_site_are_its_links(tmp_path: Path) -> None:
    sites = parts(tmp_path, link("a", "hub"))
    ends = ends_of(sites["hub"])
    assert (ends.path, ends.sends, ends.receives) == (str(tmp_path), (), (link("a", "hub"),))
    assert ends_of(SitePart("x", sites["a"].pipeline)) == LinkEnds()
