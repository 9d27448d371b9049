"""Sites, rates and where streams are born: what cannot be built."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.model import Network, Pipeline, PlacementSettings, Rate, Site


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda: Site("a", cores=0), "at least 1 core, not 0", id="a site without cores"),
        pytest.param(lambda: Site("a", capacity_bytes_per_s=0.0), "more than 0 bytes per second", id="no capacity"),
        pytest.param(
            lambda: Site("a", capacity_bytes_per_s=float("nan")), "not nan", id="a capacity that is no number"
        ),
        pytest.param(lambda: Site("a", at=(91.0, 0.0)), "latitude 91, longitude 0: nowhere", id="beyond the pole"),
        pytest.param(lambda: Site("a", at=(0.0, float("nan"))), "nowhere", id="a place that is no number"),
        pytest.param(lambda: Rate(), "rows or bytes per second, or both", id="a rate of nothing known"),
        pytest.param(lambda: Rate(rows_per_s=-1.0), "more than 0, not -1", id="a negative rate"),
        pytest.param(lambda: Rate(1.0, float("inf")), "more than 0, not inf", id="an infinite rate"),
        pytest.param(lambda: PlacementSettings("best"), "unknown placement strategy 'best'", id="an unknown strategy"),
    ],
)
def test_what_cannot_be(build: Callable[[], object], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        build()


def test_birthplaces_are_in_the_order_of_the_sites() -> None:
    pipeline = Pipeline("p", (), (), sites=(Site("b", ("s", "t")), Site("hub", proxy=True), Site("a", ("s",))))
    assert pipeline.birthplaces("s") == ("b", "a")
    assert pipeline.birthplaces("t") == ("b",)
    assert pipeline.birthplaces("u") == ()


def test_notes_are_no_part_of_what_a_pipeline_means() -> None:
    network = Network(("a",), ((0.0,),))
    assert Pipeline("p", (), (), network=network, notes=("x",)) == Pipeline("p", (), (), network=network)
    assert Pipeline("p", (), (), network=network) != Pipeline("p", (), ())
