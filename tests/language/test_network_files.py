"""Files of latencies: round trips in CSV and topologies in GML, good, odd and wrong ones."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SpecError
from headrace.language.pipeline.gml import GmlError, parse_gml
from headrace.language.pipeline.network_files import MOST_PLACES, NetworkFile, great_circle_ms, shortest_paths
from headrace.language.pipeline.round_trips import load_round_trips, read_round_trips
from headrace.language.pipeline.topologies import load_topology, read_topology
from headrace.language.pipeline.yaml_nodes import Document


def trips(text: str) -> NetworkFile:
    document = Document("rtt.csv")
    found = read_round_trips(text, document)
    assert document.problems == []
    assert found is not None
    return found


def topology(inside: str) -> NetworkFile:
    document = Document("net.gml")
    found = read_topology(f"graph [\n{inside}\n]", document)
    assert document.problems == []
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("0,30\n30,0\n", ("1", "2"), id="without names places are numbered from 1"),
        pytest.param(",a,b\na,0,30\nb,30,0\n", ("a", "b"), id="with names and an empty corner"),
        pytest.param('site,"a, x",b\n"a, x",0,30\nb,30,0', ("a, x", "b"), id="with a word in the corner, and quotes"),
        pytest.param("\n0 , 3e1\r\n\r\n 30.0,0\r\n\r\n", ("1", "2"), id="with blanks and line ends of Windows"),
        pytest.param(",1,2\n1,0,30\n2,30,0\n", ("1", "2"), id="with numbers for names"),
        pytest.param("-,a,b\na,-,30\nb,30,\n", ("a", "b"), id="with anything on the diagonal"),
    ],
)
def test_ways_to_write_a_matrix(text: str, names: tuple[str, ...]) -> None:
    found = trips(text)
    assert found.names == names
    assert found.latency_ms.tolist() == [[0, 15], [15, 0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", ["rtt.csv:1: the file is empty"], id="nothing"),
        pytest.param(
            "0,1,2\n1,0\n2,1,0\n",
            ["rtt.csv:2: 2 numbers in this row, and the matrix has 3 columns; it must be square"],
            id="a short row",
        ),
        pytest.param(
            "0,1,2\n1,0,3\n",
            ["rtt.csv:2: the matrix has 3 columns and 2 rows; it must be square"],
            id="a row too few",
        ),
        pytest.param(
            "0,1\n1,0\n2,2\n",
            ["rtt.csv:3: the matrix has 2 columns and 3 rows; it must be square"],
            id="a row too many",
        ),
        pytest.param(
            ",a,b,a\na,0,1,1\nb,1,0,1\nc,1,1,0\n",
            [
                "rtt.csv:1: two columns are named 'a'",
                "rtt.csv:4: the row of 'c' stands where that of 'a' should; rows have the names of the columns",
            ],
            id="a name twice, and another order",
        ),
        pytest.param(
            ",a,b,c\na,0,NaN,-3\nb,,0,1e9\nc,inf,far,0\n",
            [
                "rtt.csv:2: the round trip from 'a' to 'b' is 'NaN'; milliseconds are a number",
                "rtt.csv:2: the round trip from 'a' to 'c' is '-3'; milliseconds are 0 or more",
                "rtt.csv:3: no round trip from 'b' to 'a'; write its milliseconds",
                "rtt.csv:3: the round trip from 'b' to 'c' is '1e9'; milliseconds are a number of at most two days",
                "rtt.csv:4: the round trip from 'c' to 'a' is 'inf'; milliseconds are a number",
                "rtt.csv:4: the round trip from 'c' to 'b' is 'far'; milliseconds are a number",
            ],
            id="every kind of wrong number at once",
        ),
        pytest.param("0;1\n1;0\n", ["rtt.csv:1: the first row is neither numbers nor names"], id="semicolons"),
        pytest.param('0,"1\n', ["rtt.csv:1: not CSV"], id="an open quote"),
        pytest.param(
            ("0," * MOST_PLACES + "0,0\n") * 2,
            [f"the matrix has more than {MOST_PLACES} rows or columns"],
            id="a row of too many",
        ),
        pytest.param("0\n" * (MOST_PLACES + 5), [f"more than {MOST_PLACES} rows"], id="too many rows"),
    ],
)
def test_wrong_matrices(text: str, expected: list[str]) -> None:
    document = Document("rtt.csv")
    assert read_round_trips(text, document) is None
    told = [str(problem) for problem in document.problems]
    assert len(told) == len(expected)
    assert all(part in line for part, line in zip(expected, told, strict=True)), told


def test_a_file_wrong_throughout_is_described_by_its_first_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "rtt.csv"
    path.write_text("\n".join(",".join("0" if i == j else "-1" for j in range(30)) for i in range(30)))
    with pytest.raises(SpecError) as caught:
        load_round_trips(path)
    assert len(caught.value.problems) == 21
    assert str(caught.value).endswith("and 850 more problems")


@pytest.mark.parametrize("load", [load_round_trips, load_topology])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"\xff\xfe0", "not UTF-8", id="no text"),
        pytest.param(b"#" * 16_000_001, "larger than 16000000 bytes", id="a large file"),
    ],
)
def test_files_that_cannot_be_read(load, content: bytes, expected: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=f"f:1: cannot read the file: it is {expected}"):
        load(path)


NODES = """\
node [ id 0 label "Paris" Latitude 48.86 Longitude 2.35 ]
node [ id 1 label "New York" Country "US" Longitude -74.01 Latitude 40.71 ]
"""


def test_a_link_is_as_long_as_the_great_circle_at_two_thirds_of_light() -> None:
    found = topology(NODES + 'edge [ source 0 target 1 LinkLabel "a [b] &quot;c&quot;" ]')
    # 5837 km at 199,861 km/s.
    assert found.latency_ms[0, 1] == pytest.approx(29.2, abs=0.05)
    assert found.at == {"Paris": (48.86, 2.35), "New York": (40.71, -74.01)}


@pytest.mark.parametrize("key", ["latency_ms", "latency", "delay", "weight", "Latency"])
def test_a_link_that_says_its_latency_has_that(key: str) -> None:
    assert topology(NODES + f"edge [ source 1 target 0 {key} 7.5 ]").latency_ms[0, 1] == 7.5


def test_of_several_links_the_fastest_counts_and_loops_do_not() -> None:
    links = "edge [ source 0 target 1 delay 9 ] edge [ source 1 target 0 delay 4 ] edge [ source 0 target 0 delay 1 ]"
    assert topology(NODES + links).latency_ms.tolist() == [[0, 4], [4, 0]]


def test_nodes_without_coordinates_are_in_the_middle_of_their_neighbours() -> None:
    found = topology(
        """\
node [ id 0 Latitude 0 Longitude 179 ]
node [ id 1 Latitude 0 Longitude -179 ]
node [ id 2 label "between" ]
node [ id 3 label "beside" ]
node [ id 4 label "alone" ]
node [ id 5 label "lost" ]
edge [ source 0 target 2 ]
edge [ source 1 target 2 ]
edge [ source 2 target 3 ]
edge [ source 4 target 5 ]"""
    )
    assert found.names == ("0", "1", "between", "beside", "alone", "lost")
    assert abs(found.at["between"][1]) == pytest.approx(180)
    assert found.latency_ms[0, 1] == pytest.approx(2 * 0.556361, rel=1e-4)
    assert found.latency_ms[2, 3] == pytest.approx(0)
    assert math.isinf(found.latency_ms[0, 4])
    assert found.notes == (
        "4 of 6 nodes have no coordinates; where they have neighbours that do, they are taken to be in their middle",
        "1 of 4 links have neither coordinates at both ends nor a latency; they are left out",
    )
    with pytest.raises(SpecError, match="no path from 0 to 2 places, such as alone"):
        found.network()


def test_labels_that_stand_twice_say_their_ids() -> None:
    found = topology("node [ id 3 label \"x\" ] node [ id 7 label \"x\" ] node [ id 8 label \"\" ]"
                     "edge [ source 3 target 7 delay 1 ]")  # fmt: skip
    assert found.names == ("x#3", "x#7", "8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", ["net.gml:1: there is no graph with nodes in the file"], id="nothing"),
        pytest.param("graph [\n]\n", ["net.gml:1: there is no graph with nodes"], id="no nodes"),
        pytest.param("graph [\nnode [ id 0\n", ["net.gml:2: not GML: the file ends within 'node'"], id="no end"),
        pytest.param("graph [ ] ]", ["net.gml:1: not GML: expected a key, found ']'"], id="an end too many"),
        pytest.param("graph [\nid [\n]\n\nlabel label 3]",
                     ["net.gml:5: not GML: expected a value of 'label', found 'label'"], id="a key without a value"),
        pytest.param('graph [\nlabel "x', ["net.gml:2: not GML: its text has no closing quote"], id="an open quote"),
        pytest.param("graph [ Latitude NaN ]", ["expected a value of 'Latitude', found 'NaN'"], id="not a number"),
        pytest.param("a [ " * 40 + "] " * 40, ["not GML: too many levels"], id="forty levels"),
        pytest.param("graph [ 3 ]", ["not GML: expected a key, found '3'"], id="a value without a key"),
        pytest.param(f"graph [ id {'9' * 99} ]", ["a number of 99 characters"], id="a number of 99 digits"),
        pytest.param("graph [ [ ] ]", ["not GML: expected a key, found a list"], id="a list without a key"),
        pytest.param(
            "graph [\n"
            "node [ label \"x\" ]\n"
            "node [ id 1 Latitude 91 Longitude 0 ]\n"
            "node [ id 1 ]\n"
            "node [ id 2 Latitude 3 ]\n"
            "edge [ source 1 ]\n"
            "edge [ source 1 target 9 ]\n"
            "edge [ source 1 target 2\ndelay -1 ]\n"
            "edge [ source 1 target 2 weight \"5\" ]\n"
            "]",
            [
                "net.gml:2: a node has no id",
                "net.gml:3: Latitude is 91.0; it is from -90 to 90 degrees",
                "net.gml:4: two nodes have id 1",
                "net.gml:5: a node has one coordinate; it has both Latitude and Longitude, or none",
                "net.gml:6: a link has no target",
                "net.gml:7: a link names no known node 9",
                "net.gml:9: the delay of a link is -1; it is 0 or more milliseconds",
                "net.gml:10: the weight of a link is no number; it is 0 or more milliseconds",
            ],
            id="every kind of mistake at once",
        ),
        pytest.param(
            "graph [\nnode [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] ]",
            ["net.gml:1: no link has a length: no node has coordinates, and no link says its latency"],
            id="neither coordinates nor latencies",
        ),
        pytest.param(
            "graph [ " + " ".join(f"node [ id {i} ]" for i in range(MOST_PLACES + 1)) + " ]",
            [f"the graph has {MOST_PLACES + 1} nodes; the most is {MOST_PLACES}"],
            id="too many nodes",
        ),
    ],
)  # fmt: skip
def test_wrong_topologies(text: str, expected: list[str]) -> None:
    document = Document("net.gml")
    assert read_topology(text, document) is None
    told = [str(problem) for problem in document.problems]
    assert len(told) == len(expected), told
    assert all(part in line for part, line in zip(expected, told, strict=True)), told


@settings(max_examples=200)
@given(
    words=st.lists(
        st.sampled_from(
            ["graph", "node", "edge", "[", "]", "id", "1", "2", "source", "target", "Latitude", "Longitude", "label",
             '"x"', '"', "-1e9", "#", "\n", "weight", "True", ",", "é"]
        ),
        max_size=60,
    )
)  # fmt: skip
def test_whatever_the_words_a_topology_is_read_or_refused(words: list[str]) -> None:
    document = Document("net.gml")
    found = read_topology(" ".join(words), document)
    assert (found is None) == bool(document.problems)


@settings(max_examples=200)
@given(text=st.text(alphabet='0123456789.,-e\n"ab nN', max_size=80))
def test_whatever_the_text_a_matrix_is_read_or_refused(text: str) -> None:
    document = Document("rtt.csv")
    found = read_round_trips(text, document)
    assert (found is None) == bool(document.problems)


def test_the_line_of_a_gml_mistake_counts_texts_of_several_lines() -> None:
    with pytest.raises(GmlError) as caught:
        parse_gml('a "x\ny\n"\n\n]')
    assert caught.value.line == 5


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_shortest_paths_are_a_metric_that_no_link_undercuts(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    half = np.triu(np.where(rng.random((size, size)) < 0.4, rng.integers(0, 50, (size, size)), math.inf), 1)
    direct = np.where(np.tri(size, k=0, dtype=bool), 0, half)
    direct = np.maximum(direct, direct.T)
    np.fill_diagonal(direct, 0)
    found = shortest_paths(direct)
    assert (found <= direct).all()
    assert (found == found.T).all()
    for middle in range(size):
        assert (found <= found[:, middle, None] + found[None, middle, :]).all()
    # Every finite path is made of links: reached in at most so many steps.
    steps = direct
    for _ in range(size):
        steps = np.min(steps[:, :, None] + direct[None, :, :], axis=1)
    assert (steps == found).all()


def test_half_the_globe_is_no_farther_than_half_its_circle() -> None:
    assert great_circle_ms((0, 0), (0, 180)) == pytest.approx(math.pi * 6371 / 199.861639, rel=1e-6)
