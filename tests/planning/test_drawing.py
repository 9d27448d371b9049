"""Placements as tables, flowcharts and maps."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from headrace.model import Network
from headrace.planning.drawing import draw_mermaid, flow_table
from headrace.planning.map_svg import draw_svg
from headrace.policies.placement import Flow, Part, Placement, Problem

NETWORK = Network(("paris", "rome", "hub", "idle"), ((0, 30, 12, 9), (30, 0, 25, 9), (12, 25, 0, 9), (9, 9, 9, 0)))
AT = {"paris": (48.9, 2.3), "rome": (41.9, 12.5), "hub": (52.5, 13.4), "idle": (50.1, 8.7)}
# Packets of two sites are counted where they are born; of rome's, a sample goes along with the counts.
PROBLEM = Problem(
    (
        Part("packets@paris", "paris"),
        Part("packets@rome", "rome"),
        Part("count"),
        Part("merge"),
        Part("show"),
        Part('answers "<1>"', "hub"),
    ),
    (
        Flow("packets@paris", "merge", 2e6),
        Flow("packets@rome", "count", 800_000),
        Flow("count", "merge", 20_000),
        Flow("count", "show", 5_000),
        Flow("merge", 'answers "<1>"', 500),
        Flow("show", 'answers "<1>"', 400),
    ),
    NETWORK,
)
SITES = {
    "packets@paris": "paris",
    "packets@rome": "rome",
    "count": "rome",
    "merge": "hub",
    "show": "hub",
    'answers "<1>"': "hub",
}
PLACED = PROBLEM.placed(SITES, "for a test")


def test_the_table_of_a_placement() -> None:
    assert flow_table(PROBLEM, PLACED).splitlines() == [
        'flow                    from   to     bytes/s  ms',
        'packets@paris -> merge  paris  hub     2 MB/s  12',
        'packets@rome -> count   rome   rome  800 kB/s   -',
        'count -> merge          rome   hub    20 kB/s  25',
        'count -> show           rome   hub   (5 kB/s)  25',
        'merge -> answers "<1>"  hub    hub    500 B/s   -',
        'show -> answers "<1>"   hub    hub    400 B/s   -',
        "2.02 MB/s between 2 pairs of sites; cost 2.45e+07 (bytes/s x ms); longest path 25 ms; for a test",
    ]  # fmt: skip


def test_the_bytes_of_a_table_without_those_in_brackets_are_those_of_the_links() -> None:
    crossing = [line for line in flow_table(PROBLEM, PLACED).splitlines()[1:-1] if not line.endswith("-")]
    units = {"MB": 1e6, "kB": 1e3, "B": 1}
    rates = [re.search(r"(?<!\()\b([\d.]+) (MB|kB|B)/s  ", line) for line in crossing]
    total = sum(float(rate[1]) * units[rate[2]] for rate in rates if rate)
    assert total == sum(PROBLEM.links_of(SITES).values())


def test_the_flowchart_of_a_placement() -> None:
    assert draw_mermaid(PROBLEM, PLACED).splitlines() == [
        "flowchart LR",
        '  subgraph s0["paris"]',
        '    p0(["packets@paris"])',
        "  end",
        '  subgraph s1["rome"]',
        '    p1(["packets@rome"])',
        '    p2["count"]',
        "  end",
        '  subgraph s2["hub"]',
        '    p3["merge"]',
        '    p4["show"]',
        '    p5[["answers #quot;#lt;1#gt;#quot;"]]',
        "  end",
        '  p0 == "2 MB/s, 12 ms" ==> p3',
        "  p1 --> p2",
        '  p2 == "20 kB/s, 25 ms" ==> p3',
        '  p2 == "along, 25 ms" ==> p4',
        "  p3 --> p5",
        "  p4 --> p5",
    ]


def shapes(svg: str) -> tuple[dict[str, tuple[float, float]], list[float], list[str]]:
    """Circles of sites by name, widths of links, and all texts."""
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    places = {}
    for group in root.iter(f"{space}g"):
        told, circle = group.find(f"{space}title"), group.find(f"{space}circle")
        if circle is not None and told is not None and told.text is not None:
            places[told.text.partition(":")[0]] = (float(circle.attrib["cx"]), float(circle.attrib["cy"]))
    widths = [float(path.attrib["stroke-width"]) for path in root.iter(f"{space}path") if path.get("fill") == "none"]
    return places, widths, [text.text or "" for text in root.iter(f"{space}text")]


def test_the_map_has_sites_where_they_are_and_links_as_wide_as_their_bytes() -> None:
    places, widths, texts = shapes(draw_svg(PROBLEM, PLACED, AT, title="optimal"))
    assert places.keys() == {"paris", "rome", "hub", "idle"}
    (px, py), (rx, ry), (hx, hy) = (places[site] for site in ("paris", "rome", "hub"))
    assert px < rx < hx, "east is right"
    assert hy < py < ry, "north is up"
    # A degree of longitude is shorter than one of latitude, here by the cosine of the mean latitude, 48.35.
    assert (hx - px) / (13.4 - 2.3) == pytest.approx(0.6646 * (ry - hy) / (52.5 - 41.9), rel=0.001)
    assert widths[0] > 2 * widths[1]
    assert {"2 MB/s, 12 ms", "20 kB/s, 25 ms", 'answers "<1>"', "merge"} <= set(texts)
    assert "optimal: 2.02 MB/s on 2 links, longest path 25 ms" in texts


def test_without_the_coordinates_of_a_site_that_takes_part_sites_lie_on_a_circle() -> None:
    places, _, _ = shapes(draw_svg(PROBLEM, PLACED, {site: AT[site] for site in ("paris", "rome", "idle")}))
    xs, ys = zip(*(places[site] for site in NETWORK.sites), strict=True)
    # Four sites: above, right, below, left of the middle.
    assert xs[0] == xs[2] == pytest.approx((xs[1] + xs[3]) / 2)
    assert ys[1] == ys[3] == pytest.approx((ys[0] + ys[2]) / 2)
    assert ys[0] < ys[1] < ys[2]


def test_a_network_on_both_sides_of_the_date_line_is_not_torn_apart() -> None:
    problem = Problem((Part("a", "paris"), Part("b", "rome"), Part("c", "hub")),
                      (Flow("a", "c", 1.0), Flow("b", "c", 1.0)), NETWORK)  # fmt: skip
    placement = problem.placed({"a": "paris", "b": "rome", "c": "hub"}, "")
    places, _, _ = shapes(draw_svg(problem, placement, {"paris": (0, 170), "rome": (0, -170), "hub": (0, 100)}))
    assert places["hub"][0] < places["paris"][0] < places["rome"][0]
    assert places["rome"][0] - places["paris"][0] < 0.3 * (places["paris"][0] - places["hub"][0])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param('</title><script>alert("x")</script>', id="a script"),
        pytest.param("a\x00b\x1b[31m\x85", id="characters that XML forbids"),
        pytest.param("&amp; &#x0; ]]>", id="things that look like entities"),
        pytest.param("ü" * 300, id="a long name"),
    ],
)
def test_names_cannot_break_out_of_a_drawing(name: str) -> None:
    problem = Problem(
        (Part(name, name), Part(f"{name}2", "hub")), (Flow(name, f"{name}2", 3.0),),
        Network((name, "hub"), ((0, 1), (1, 0))),
    )  # fmt: skip
    placement = problem.placed({name: name, f"{name}2": "hub"}, "")
    places, _, texts = shapes(draw_svg(problem, placement, title=name))
    assert len(places) == 2
    assert all("script" not in element.tag for element in ElementTree.fromstring(draw_svg(problem, placement)).iter())
    assert texts
    mermaid = draw_mermaid(problem, placement)
    assert all(line.count('"') % 2 == 0 and "<" not in line for line in mermaid.splitlines())
    assert len(mermaid.splitlines()) == 8


@pytest.mark.parametrize(
    "at",
    [
        pytest.param({}, id="no coordinates"),
        pytest.param(dict.fromkeys(NETWORK.sites, (5.0, 5.0)), id="all at one place"),
        pytest.param({site: (0.0, float(i)) for i, site in enumerate(NETWORK.sites)}, id="all on one line"),
        pytest.param({"paris": (90, 0), "rome": (-90, 180), "hub": (0, -180)}, id="poles"),
    ],
)
def test_whatever_the_coordinates_all_sites_are_inside_the_picture(at: dict[str, tuple[float, float]]) -> None:
    everything_here = replace(PLACED, sites=dict.fromkeys(SITES, "hub"))
    for placement in (PLACED, everything_here):
        svg = draw_svg(PROBLEM, placement, at)
        width, height = (float(x) for x in re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0])
        places, _, _ = shapes(svg)
        assert places
        assert all(0 < x < width and 0 < y < height for x, y in places.values())


def test_a_placement_at_one_site_has_no_links() -> None:
    problem = Problem((Part("a", "hub"), Part("b", "hub")), (Flow("a", "b", 1.0),), NETWORK)
    placement: Placement = problem.placed({"a": "hub", "b": "hub"}, "all at home")
    assert flow_table(problem, placement).endswith(
        "0 B/s between 0 pairs of sites; cost 0 (bytes/s x ms); longest path 0 ms; all at home"
    )
    assert shapes(draw_svg(problem, placement))[1] == []
