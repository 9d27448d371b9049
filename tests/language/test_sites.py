"""Sites, the networks between them, and streams that are born at several."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.language import load_pipeline
from headrace.language.pipeline.rates import parse_rate
from headrace.model import LinkSettings, Network, Pipeline, Rate, Site

STREAMS = """\
streams:
  packets: {source: {format: parquet, path: 'in/{site}'}, schema: 'ts TIMESTAMP, src STRING, length INT', time: ts}
queries:
  q: {sql: 'SELECT COUNT(*) AS n FROM packets [WINDOW 1 min]'}
"""
ROUND_TRIPS = """\
region,eu-west-1,us-east-1,us-west-2,ap-south-1
eu-west-1,3,70,140,120
us-east-1,70,1,64,200
us-west-2,130,66,2,220
ap-south-1,120,200,220,1
"""
# Two links of 1 and 2 degrees along the equator, a node in between that no site is at, and an island.
TOPOLOGY = """\
graph [
  node [ id 0 label "Kansas City" Latitude 0 Longitude 0 ]
  node [ id 1 label "Middle" Latitude 0 Longitude 1 ]
  node [ id 2 label "New York" Latitude 0 Longitude 3 ]
  node [ id 3 label "Island" Latitude 10 Longitude 3 ]
  edge [ source 0 target 1 ]
  edge [ source 1 target 2 ]
]
"""
# Milliseconds of light in glass along a degree of the equator.
DEGREE_MS = 0.556361


def load(folder: Path, rest: str, streams: str = STREAMS) -> Pipeline:
    (folder / "rtt.csv").write_text(ROUND_TRIPS)
    (folder / "net.gml").write_text(TOPOLOGY)
    (folder / "p.yml").write_text(streams + rest)
    return load_pipeline(folder / "p.yml")


def test_a_stream_born_at_two_sites_is_read_from_a_path_of_its_own_at_each(tmp_path: Path) -> None:
    pipeline = load(
        tmp_path,
        """\
sites:
  paris: {streams: [packets], at: [48.86, 2.35], cores: 4, capacity: 40 MB/s}
  rome: {streams: [packets]}
  hub: {proxy: true}
network: {latency_ms: {paris-hub: 12, rome-hub: 25, paris-rome: 50}}
""",
    )
    assert pipeline.sites == (
        Site("paris", ("packets",), cores=4, capacity_bytes_per_s=40e6, at=(48.86, 2.35)),
        Site("rome", ("packets",)),
        Site("hub", proxy=True),
    )
    assert pipeline.birthplaces("packets") == ("paris", "rome")
    source = pipeline.stream("packets").source
    assert source is not None
    assert source.path == f"{tmp_path.resolve()}/in/{{site}}"
    assert pipeline.network == Network(("paris", "rome", "hub"), ((0, 37, 12), (37, 0, 25), (12, 25, 0)))
    assert pipeline.notes == (
        f"{tmp_path}/p.yml:9: network: 1 of 3 pairs are nearer over other places than directly; shortest paths count",
    )


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{format: parquet, path: in, options: {pathGlobFilter: '{site}-*'}}", id="an option says it"),
        pytest.param(
            "{format: kafka, options: {kafka.bootstrap.servers: 'localhost:9092', subscribe: t}, value: raw}",
            id="a broker has no path, and each site may have its own under one name",
        ),
    ],
)
def test_sources_of_a_stream_at_two_sites(source: str, tmp_path: Path) -> None:
    streams = STREAMS.replace("{format: parquet, path: 'in/{site}'}", source)
    if "raw" in source:
        streams = streams.replace("schema: 'ts TIMESTAMP, src STRING, length INT', time: ts", "time: kafka_timestamp")
    pipeline = load(
        tmp_path,
        "sites: {a: {streams: [packets]}, b: {streams: [packets], proxy: true}}\nnetwork: {latency_ms: {a-b: 1}}\n",
        streams,
    )
    assert pipeline.birthplaces("packets") == ("a", "b")


def test_round_trips_are_halved_and_the_mean_of_both_directions(tmp_path: Path) -> None:
    pipeline = load(
        tmp_path,
        """\
sites:
  eu_west_1: {streams: [packets]}
  east: {node: us-east-1, proxy: true}
  us_west_2: {streams: [packets]}
network: {round_trips: rtt.csv}
""",
    )
    assert pipeline.network == Network(
        ("eu_west_1", "east", "us_west_2"), ((0, 35, 67.5), (35, 0, 32.5), (67.5, 32.5, 0))
    )
    assert [note.partition("rtt.csv: ")[2] for note in pipeline.notes] == [
        "2 of 6 pairs have another round trip each way (the most: 'eu-west-1' and 'us-west-2', 140 and 130 ms); "
        "the mean counts",
        "the diagonal is not 0, and is ignored",
        "1 of 6 pairs are nearer over other places than directly; shortest paths count",
    ]


def test_paths_lead_over_nodes_where_nothing_runs_and_sites_are_where_the_file_says(tmp_path: Path) -> None:
    pipeline = load(
        tmp_path,
        """\
sites:
  kansas_city: {streams: [packets]}
  hub: {node: New York, proxy: true, streams: [packets], at: [40.7, -74]}
network: {topology: net.gml}
""",
    )
    assert pipeline.network is not None
    assert pipeline.network.sites == ("kansas_city", "hub")
    assert pipeline.network.distance_ms("kansas_city", "hub") == pytest.approx(3 * DEGREE_MS, rel=1e-4)
    assert [site.at for site in pipeline.sites] == [(0, 0), (40.7, -74)]
    assert pipeline.notes == ()


def test_one_site_needs_no_network(tmp_path: Path) -> None:
    streams = STREAMS.replace("in/{site}", "in")
    pipeline = load(tmp_path, "sites: {hub: {proxy: true, streams: [packets]}}\n", streams)
    assert pipeline.network == Network(("hub",), ((0,),))
    assert load(tmp_path, "", streams).network is None


LINKED = "sites: {a: {streams: [packets]}, b: {streams: [packets], proxy: true}}\nnetwork: {latency_ms: {a-b: 1}}\n"


@pytest.mark.parametrize(
    ("links", "found"),
    [
        pytest.param("links: {path: shared}", ("{}/shared", 10_000_000_000), id="beside the file"),
        pytest.param("links: {path: 's3a://b/links', limit: 2 GB}", ("s3a://b/links", 2 << 30), id="anywhere"),
        pytest.param("", (None, 10_000_000_000), id="beside the state unless said"),
    ],
)
def test_where_links_are(links: str, found: tuple[str | None, int], tmp_path: Path) -> None:
    settings = load(tmp_path, f"{LINKED}{links}\n").links
    path, limit = found
    assert settings == LinkSettings(path and path.format(tmp_path.resolve()), limit)


def test_mistakes_in_links_are_said(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        load(tmp_path, f"{LINKED}links: {{limit: plenty, kafka: x}}\n")
    assert [problem.message for problem in error.value.problems] == [
        "unknown key 'kafka' in links",
        "links.limit should be a size, not 'plenty'",
    ]
    with pytest.raises(SpecError, match="links without sites"):
        load(tmp_path, "links: {path: x}\n", STREAMS.replace("{site}", "a"))


SITES = "sites: {kansas_city: {streams: [packets]}, new_york: {streams: [packets], proxy: true}, x: {node: %s}}\n"


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        pytest.param(
            SITES % "Nowhere" + "network: {topology: net.gml}",
            "p.yml:5: site 'x' is node 'Nowhere', which is not in net.gml; known: Kansas City, Middle, New York, "
            "Island; node: says which place it is",
            id="a node that the file does not have",
        ),
        pytest.param(
            SITES % "Island" + "network: {topology: net.gml}",
            "p.yml:5: site 'x' cannot be reached from 'new_york' over the links of net.gml",
            id="a node that no link leads to",
        ),
        pytest.param(
            SITES % "kansas city" + "network: {topology: net.gml}",
            "p.yml:5: sites 'kansas_city' and 'x' are both 'Kansas City' of net.gml; keep one",
            id="two sites that are one node",
        ),
        pytest.param(
            SITES % "Island" + "network: {topology: none.gml}",
            "none.gml:1: cannot read the file: No such file or directory",
            id="a file that is not there",
        ),
        pytest.param(
            SITES % "Island" + "network: {topology: rtt.csv}",
            "rtt.csv:1: not GML: unexpected ','",
            id="a matrix that is taken for a topology",
        ),
        pytest.param(
            SITES % "Island" + "network: {round_trips: net.gml}",
            "net.gml:1: the first row is neither numbers nor names",
            id="a topology that is taken for a matrix",
        ),
    ],
)
def test_wrong_networks(rest: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, rest)
    assert expected in str(caught.value)


def test_every_problem_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n1,x\n")
    with pytest.raises(SpecError) as caught:
        load(
            tmp_path,
            "sites: {a: {streams: [packets, other]}, b: {streams: [packets], cores: 0}}\n"
            "network: {round_trips: bad.csv}\nplacement: {strategy: best}\n",
        )
    messages = [problem.message for problem in caught.value.problems]
    assert messages == [
        "site 'a': unknown stream 'other'",
        "sites.b.cores should be a whole number from 1 to 1000000, not 0",
        "exactly one site must be the proxy, where answers are wanted; found none",
        "the row of '1' stands where that of 'b' should",
        "unknown placement strategy 'best'; known: optimal, edge, edge+, in-network, warehouse",
    ]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        pytest.param("50000 rows/s", Rate(50_000), id="rows"),
        pytest.param("0.5row/s", Rate(0.5), id="half a row, without a blank"),
        pytest.param("4 MB/s", Rate(bytes_per_s=4e6), id="megabytes are a million bytes"),
        pytest.param("4 MiB/s", Rate(bytes_per_s=4 * 2**20), id="mebibytes are powers of two"),
        pytest.param("1.5 kB/s,10 rows/s", Rate(10, 1500), id="bytes and rows in any order"),
    ],
)
def test_rates(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    ["", "rows/s", "5", "5 rows", "5 rows/min", "-5 rows/s", "1e3 rows/s", "5 rows/s,", "0 B/s", "9" * 200 + " B/s",
     "5 rows/s, 6 rows/s", "\u0665 rows/s", "5 mb/s"],
)  # fmt: skip
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|twice"):
        parse_rate(text)
