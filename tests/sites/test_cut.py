"""A placement cuts a pipeline into one per site: what each site reads, runs and sends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query, parse_schema
from headrace.model import (
    DataType,
    EngineSettings,
    Kind,
    Network,
    Pipeline,
    PlacementSettings,
    SinkSpec,
    Site,
    Source,
    Stream,
)
from headrace.planning import plan_query
from headrace.sites import SitePart, Where, cut, cut_as_placed

PACKETS = Stream(
    "packets", parse_schema("ts TIMESTAMP, src STRING, port INT, length INT"), "ts", 5_000_000,
    source=Source("parquet", "/in/{site}/packets", (("pathGlobFilter", "{site}-*"),)),
)  # fmt: skip
FLOWS = Stream("flows", parse_schema("ts TIMESTAMP, src STRING, x DOUBLE"), "ts", source=Source("parquet", "/in/flows"))
SUM = "SELECT src, SUM(length) AS n FROM packets [WINDOW 1 min] WHERE port = 80 GROUP BY src"
JOIN = "SELECT p.src, f.x FROM packets p [RANGE 10 s] JOIN flows f [RANGE 5 s] ON p.src = f.src"
FILTERED = (
    "SELECT packets.`ts` AS `ts`, packets.`src` AS `src`, packets.`port` AS `port`, packets.`length` AS `length` "
    "FROM packets WHERE (packets.port = 80)"
)
NETWORK = Network(("paris", "rome", "hub"), ((0.0, 30.0, 12.0), (30.0, 0.0, 25.0), (12.0, 25.0, 0.0)))
APART = (Site("paris", ("packets", "flows")), Site("rome", ("packets",)), Site("hub", proxy=True))
AT_HUB = (Site("paris"), Site("rome"), Site("hub", ("packets", "flows"), proxy=True))
HUB_TOO = (Site("paris", ("flows",)), Site("rome", ("packets",)), Site("hub", ("packets",), proxy=True))
ALL = frozenset((stream, site) for stream in ("packets", "flows") for site in ("paris", "rome", "hub"))


def pipeline(sites: tuple[Site, ...], **queries: str) -> Pipeline:
    streams = {"packets": PACKETS, "flows": FLOWS}
    bound = tuple(
        bind_query(name, sql, streams, sink=SinkSpec("parquet", f"/out/{name}")) for name, sql in queries.items()
    )
    settings = EngineSettings(checkpoint="/state")
    return Pipeline("p", (PACKETS, FLOWS), bound, engine=settings, sites=sites, network=NETWORK)


def told(part: SitePart) -> dict[str, str]:
    """The SQL of a part's queries; links by what they carry."""
    names = {link.query: link.stream for link in part.sends}
    return {names.get(query.name, query.name): query.sql for query in part.pipeline.queries}


@pytest.mark.parametrize(
    ("sites", "queries", "where", "wanted"),
    [
        pytest.param(
            APART, {"q": SUM}, Where({"q": "hub"}, ALL),
            {
                "paris": {"packets": FILTERED},
                "rome": {"packets": FILTERED},
                "hub": {"q": SUM},
            },
            id="rows that pass the filter travel from each birthplace, with the columns in use",
        ),
        pytest.param(
            APART, {"q": SUM}, Where({"q": "hub"}),
            {
                "paris": {"packets": "all"}, "rome": {"packets": "all"}, "hub": {"q": SUM},
            },
            id="where filters are placed elsewhere whole rows travel",
        ),
        pytest.param(
            APART, {"q": SUM, "n": "SELECT COUNT(*) AS n FROM packets [WINDOW 1 min] WHERE port = 81"},
            Where({"q": "hub", "n": "hub"}, ALL),
            {
                "paris": {"packets": "either"}, "rome": {"packets": "either"},
                "hub": {"q": SUM, "n": "SELECT COUNT(*) AS n FROM packets [WINDOW 1 min] WHERE port = 81"},
            },
            id="queries of a site share a link, which carries what any of them wants",
        ),
        pytest.param(
            APART, {"j": JOIN}, Where({"j": "hub"}, ALL),
            {"paris": {"packets": "*", "flows": "*"}, "rome": {"packets": "*"}, "hub": {"j": JOIN}},
            id="both sides of a join travel to where it runs",
        ),
        pytest.param(
            APART, {"j": JOIN}, Where({"j": "paris"}, ALL),
            {"paris": {"packets": "FROM packets_at_paris AS packets", "answers": JOIN}, "rome": {"packets": "*"},
             "hub": {"j": "*"}},
            id="answers travel to the proxy, and a site sends itself what it shares with others",
        ),
        pytest.param(AT_HUB, {"q": SUM, "j": JOIN}, Where({"q": "hub", "j": "hub"}, ALL),
                     {"hub": {"q": SUM, "j": JOIN}}, id="where all is at one site nothing is cut"),
        pytest.param(
            HUB_TOO, {"q": SUM}, Where({"q": "hub"}, ALL),
            {"rome": {"packets": "*"}, "hub": {"packets": "FROM packets_at_hub AS packets", "q": SUM}},
            id="a site that nothing is asked of runs nothing",
        ),
    ],
)  # fmt: skip
def test_what_each_site_runs(
    sites: tuple[Site, ...], queries: dict[str, str], where: Where, wanted: dict[str, dict[str, str]]
) -> None:
    parts = cut(pipeline(sites, **queries), where)
    found = {site: told(part) for site, part in parts.items()}
    assert found.keys() == wanted.keys()
    for site, texts in wanted.items():
        ours = {"answers" if name.startswith("answers_") else name: sql for name, sql in found[site].items()}
        assert ours.keys() == texts.keys()
        for name, text in texts.items():
            match text:
                case "all":
                    assert ours[name].count(" AS `") == 4
                    assert "WHERE" not in ours[name]
                case "either":
                    assert "WHERE (packets.port = 80) OR (packets.port = 81)" in ours[name]
                case "*":
                    assert ours[name].startswith("SELECT ")
                case _:
                    assert text in ours[name]


WHOLE = "SELECT COUNT(*) AS n FROM packets [WINDOW 1 min]"
PLAIN = "SELECT src, length FROM packets WHERE port = 80"
TOP_K = "SELECT src, approx_top_k(port, 3) AS k FROM packets [WINDOW 1 min] GROUP BY src"
PANES = (
    "SELECT packets.src AS k0, COUNT(*) AS n, SUM(packets.length) AS sum_ca513b66b9ce FROM packets WHERE "
    "packets.port = 80 GROUP BY window(packets.`ts`, '60000000 microseconds'), packets.src"
)


@pytest.mark.parametrize(
    ("queries", "partial", "wanted"),
    [
        pytest.param({"q": SUM}, ALL, 1, id="an aggregate that begins where rows are born sends panes"),
        pytest.param({"q": SUM, "again": SUM}, ALL, 1, id="queries that keep the same panes share a link"),
        pytest.param({"q": SUM, "n": WHOLE}, ALL, 2, id="others have links of their own"),
        pytest.param({"q": SUM}, ALL - {("packets", "rome")}, 0, id="unless it begins at all births rows travel"),
        pytest.param({"q": SUM, "p": PLAIN}, ALL, 0, id="what another query needs as rows travels as rows"),
        pytest.param({"q": SUM, "k": TOP_K}, ALL, 0, id="the heaviest of a birth are not the heaviest of all"),
    ],
)
def test_panes_travel_where_all_that_is_asked_can_be_merged(
    queries: dict[str, str], partial: frozenset[tuple[str, str]], wanted: int
) -> None:
    parts = cut(pipeline(APART, **queries), Where(dict.fromkeys(queries, "hub"), ALL, partial))
    links = parts["hub"].receives
    (stream,) = parts["hub"].pipeline.streams
    assert {query.name for query in parts["hub"].pipeline.queries} == set(queries)
    assert stream.as_panes == bool(wanted)
    assert len([link for link in links if link.panes]) == 2 * wanted
    assert [column.name for column in stream.pane_columns] == list(
        dict.fromkeys(link.panes for link in links if wanted)
    )
    if wanted:
        assert parts["rome"].pipeline.queries[0].sql == PANES
        (feed, *_) = {f for q in parts["hub"].pipeline.queries for d in plan_query(q).demands for f in d.synopsis.feeds}  # type: ignore[union-attr]
        assert feed.panes in {link.panes for link in links}, "both ends name panes by what they are of"


def test_a_query_that_selects_all_columns_of_a_union_has_them_all() -> None:
    union = (
        "SELECT src, COUNT(*) AS n FROM (SELECT * FROM packets UNION ALL SELECT *, 1, 2 FROM flows_) AS u "
        "[WINDOW 1 min] GROUP BY src"
    )
    flows = replace(FLOWS, name="flows_", columns=FLOWS.columns[:2])
    asked = pipeline(APART, p=PLAIN)
    query = bind_query("u", union, {"packets": PACKETS, "flows_": flows}, sink=SinkSpec("parquet", "/out/u"))
    sites = (Site("paris", ("packets", "flows_")), *APART[1:])
    whole = replace(asked, streams=(PACKETS, flows), queries=(*asked.queries, query), sites=sites)
    parts = cut(whole, Where({"p": "hub", "u": "hub"}))
    received = {stream.name: len(stream.columns) for stream in parts["hub"].pipeline.streams}
    assert received == {"packets": 4, "flows_": 2}


def test_a_received_stream_has_a_time_that_no_clock_of_the_receiver_judges() -> None:
    parts = cut(pipeline(APART, q=SUM), Where({"q": "hub"}, ALL))
    (stream,) = parts["hub"].pipeline.streams
    assert (stream.name, stream.source, stream.lateness_us) == ("packets", None, 0)
    assert [link.sender for link in parts["hub"].receives] == ["paris", "rome"]
    assert {link.id for link in parts["hub"].receives} == {parts[s].sends[0].id for s in ("paris", "rome")}


def test_links_of_sites_that_send_to_each_other_say_so() -> None:
    parts = cut(pipeline(APART, q=SUM, j=JOIN), Where({"q": "hub", "j": "paris"}, ALL))
    told = {(link.sender, link.receiver, link.back) for part in parts.values() for link in part.sends}
    assert told == {
        ("paris", "hub", False), ("rome", "hub", False), ("rome", "paris", False), ("paris", "paris", True),
    }  # fmt: skip


def test_each_site_reads_its_own_place_and_keeps_its_own_state() -> None:
    parts = cut(pipeline(APART, q=SUM), Where({"q": "hub"}, ALL))
    source = parts["rome"].pipeline.streams[0].source
    assert source == Source("parquet", "/in/rome/packets", (("pathGlobFilter", "rome-*"),))
    assert parts["rome"].pipeline.engine.checkpoint == "/state/rome"
    (link,) = parts["rome"].sends
    assert parts["rome"].pipeline.queries[0].sink == SinkSpec("parquet", f"/state/links/{link.id}")


def test_a_pipeline_of_which_nothing_is_cut_is_what_it_was() -> None:
    whole = pipeline(AT_HUB, q=SUM)
    assert cut(whole, Where({"q": "hub"}, ALL))["hub"].pipeline == whole


def test_links_are_named_by_their_content() -> None:
    def ids(**queries: str) -> set[str]:
        parts = cut(pipeline(APART, **queries), Where(dict.fromkeys(queries, "hub"), ALL))
        return {link.id for link in parts["hub"].receives}

    assert ids(q=SUM) == ids(again=SUM.replace("1 min", "2 min"))
    assert not ids(q=SUM) & ids(q=SUM.replace("80", "81"))


def test_answers_of_a_type_that_only_spark_knows_are_made_at_the_proxy() -> None:
    asked = pipeline(APART, q="SELECT src, schema_of_json('[1]') AS j FROM flows")
    unknown = [
        replace(
            q,
            finish=replace(q.finish, outputs=tuple(replace(o, type=DataType(Kind.UNKNOWN)) for o in q.finish.outputs)),
        )
        for q in asked.queries
    ]
    parts = cut(replace(asked, queries=tuple(unknown)), Where({"q": "paris"}, ALL))
    assert told(parts["hub"]).keys() == {"q"}


def test_shedding_across_sites_is_refused() -> None:
    asked = pipeline(APART, q=SUM)
    with pytest.raises(SpecError, match="shedding across sites"):
        cut(replace(asked, engine=replace(asked.engine, shedding="fit")), Where({"q": "hub"}, ALL))


@pytest.mark.parametrize("strategy", ["optimal", "warehouse", "edge", "in-network"])
def test_what_is_placed_is_cut(strategy: str) -> None:
    parts = cut_as_placed(replace(pipeline(APART, q=SUM), placement=PlacementSettings(strategy)))
    assert "q" in told(parts["hub"])
    sent = [link.id for part in parts.values() for link in part.sends]
    received = [link.id for part in parts.values() for link in part.receives]
    assert sorted(sent) == sorted(received)
    filtered = [query for query in parts["rome"].pipeline.queries if "WHERE" in query.sql]
    assert bool(filtered) == (strategy != "warehouse")
