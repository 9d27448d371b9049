"""A made figure becomes CSV, pictures and a report; the same rows become the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.reproducing import numbers_given
from headrace.errors import SpecError
from headrace.reproduce import Claim, Figure, Made, Paper, Picture, Settings, chosen, write_report
from headrace.reproduce.report import write_figure

CLAIMS = (
    Claim("A is more than B", "2 times", "1.9 times", holds=True),
    Claim("B is 7", "7", "9", holds=False, reason="B counts more here"),
)
MADE = Made(
    ("nodes", "way", "rate"),
    ((1, "a", 2.0), (2, "a", 1 / 3), (1, "b", 1.5), (2, "b", 1.25)),
    CLAIMS,
    (Picture("nodes", "rate", by="way"), Picture("way", "rate", bars=True)),
)
FIGURE = Figure("4", "Rates", lambda settings: MADE)
PAPER = Paper("p", "On Rates", (FIGURE,))


def test_rows_are_written_in_six_digits_and_claims_with_their_verdict(tmp_path: Path) -> None:
    write_figure(tmp_path, PAPER, FIGURE, MADE)
    report = write_report(tmp_path, [(PAPER, FIGURE, MADE)]).read_text()
    assert (tmp_path / "p-4.csv").read_text() == "nodes,way,rate\n1,a,2\n2,a,0.333333\n1,b,1.5\n2,b,1.25\n"
    assert "1 of 2 claims hold." in report
    assert "| B is 7 | 7 | 9 | differs | B counts more here |" in report
    assert all((tmp_path / name).is_file() for name in ("p-4.png", "p-4-2.png"))


def test_the_same_figure_twice_is_the_same_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_figure(tmp_path / name, PAPER, FIGURE, MADE)
    one, two = ({f.name: f.read_bytes() for f in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("columns", "picture", "told"),
    [
        pytest.param(("a",), Picture("a", "a"), "a row has 2 values", id="rows fit their columns"),
        pytest.param(("a", "b"), Picture("a", "c"), "a picture is of column 'c'", id="pictures are of columns"),
    ],
)
def test_a_figure_that_does_not_fit_cannot_be_made(columns: tuple[str, ...], picture: Picture, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Made(columns, ((1, 2),), (), (picture,))


def test_unknown_names_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(SpecError, match="it has: 4"):
        PAPER.only(("5",))
    with pytest.raises(SpecError, match="there is no paper 'x'"):
        chosen("x")
    with pytest.raises(SpecError, match="write NAME=NUMBER"):
        numbers_given(["nodes=many"])


def test_parts_of_an_experiment_have_chances_of_their_own() -> None:
    settings = Settings(seed=3)
    assert settings.chance("a").random() == settings.chance("a").random() != settings.chance("b").random()
