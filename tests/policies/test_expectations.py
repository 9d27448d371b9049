"""What is expected, and what follows where it is not so: a table of cases."""

from __future__ import annotations

import pytest

from headrace.language import stream_expected
from headrace.model import Counts, Expectation, Expected, ResultTest
from headrace.policies.expectations import Verdict, found_otherwise, judge_epoch


def of_stream(text: str, otherwise: str = "warn") -> Expectation:
    return stream_expected([(text, otherwise)])[0]


def of_results(text: str, otherwise: str = "warn") -> Expectation:
    return Expectation(text, ResultTest(f"results.{text}"), otherwise)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expectation", "counts", "found"),
    [
        pytest.param(of_stream("rejected < 1 %"), Counts(1000, {"rejected": 9}), None, id="a part below the limit"),
        pytest.param(of_stream("rejected < 1 %"), Counts(1000, {"rejected": 10}),
                     "10 of 1,000 rows are rejected (1 %)", id="a part at a limit that it must be below"),
        pytest.param(of_stream("rejected <= 1 %"), Counts(1000, {"rejected": 10}), None, id="a part at the limit"),
        pytest.param(of_stream("late < 5 %"), Counts(0, {"late": 0}), None, id="a part of no rows"),
        pytest.param(of_stream("late = 0"), Counts(9, {"late": 2}), "2 of 9 rows are late (22.2 %)", id="a number"),
        pytest.param(of_stream("used > 50%"), Counts(8, {"used": 4}), "4 of 8 rows are used (50 %)", id="half"),
        pytest.param(of_stream("rows > 0"), Counts(0), "there are 0", id="no rows"),
        pytest.param(of_stream("rows >= 1000"), Counts(1000), None, id="enough rows"),
        pytest.param(of_stream("used >= 1"), Counts(0, {"used": 0}), "0 of 0 rows are used", id="a number of no rows"),
        pytest.param(of_results("n > 0"), Counts(7, {"n > 0": 0}), None, id="all results pass"),
        pytest.param(of_results("n > 0"), Counts(7, {"n > 0": 2}), "2 of 7 results are otherwise", id="some do not"),
        pytest.param(of_results("n > 0"), Counts(0), None, id="no results, none of which fails"),
    ],
)  # fmt: skip
def test_what_is_found_instead(expectation: Expectation, counts: Counts, found: str | None) -> None:
    assert found_otherwise(expectation, counts) == found


def history(otherwise: str, *rows: int | None) -> list[Verdict]:
    """The verdicts of epochs in which a query had so many results, None where none were due."""
    verdicts, before = [], tuple[Expected, ...]()
    for epoch, count in enumerate(rows):
        counts = {} if count is None else {"query q": Counts(count)}
        verdicts.append(judge_epoch(epoch, {"query q": [of_stream("rows > 0", otherwise)]}, counts, before))
        before = verdicts[-1].expected
    return verdicts


def test_a_warning_is_told_once_and_taken_back() -> None:
    verdicts = history("warn", 3, 0, 0, None, 0, 5, 5, 0)
    assert [verdict.notes for verdict in verdicts] == [
        (),
        ("query q is not as expected (rows > 0): in epoch 1 there are 0",),
        (), (), (),
        ("query q is as expected again (rows > 0) from epoch 5 on",),
        (),
        ("query q is not as expected (rows > 0): in epoch 7 there are 0",),
    ]  # fmt: skip
    assert not any(verdict.failed or verdict.stop for verdict in verdicts)
    assert verdicts[4].expected == (Expected("query q", "rows > 0", "warn", 4, 3, 1, "there are 0"),)
    assert verdicts[-1].expected == (Expected("query q", "rows > 0", "warn", 7, 4, 7, "there are 0"),)


def test_failing_fails_its_owner() -> None:
    assert history("fail", 1, 0)[1].failed == {"query q": "expected rows > 0: in epoch 1 there are 0"}


def test_stopping_stops_in_every_epoch_that_is_not_as_expected() -> None:
    told = [verdict.stop for verdict in history("stop", 0, 1, 0, 0)]
    assert [text is not None for text in told] == [True, False, True, True]
    assert told[2] == "query q is not as expected (rows > 0): in epoch 2 there are 0"


def test_several_owners_and_expectations_are_judged_each_by_itself() -> None:
    owners = {
        "stream s": [of_stream("late < 5 %"), of_stream("rejected = 0", "fail")],
        "query q": [of_results("a > 0", "stop"), of_results("b > 0", "stop")],
    }
    counts = {
        "stream s": Counts(10, {"late": 9, "rejected": 1}),
        "query q": Counts(4, {"a > 0": 1, "b > 0": 2}),
    }
    verdict = judge_epoch(3, owners, counts, ())
    assert [each.unmet for each in verdict.expected] == [1, 1, 1, 1]
    assert verdict.failed == {"stream s": "expected rejected = 0: in epoch 3 1 of 10 rows are rejected (10 %)"}
    assert verdict.stop == (
        "query q is not as expected (a > 0): in epoch 3 1 of 4 results are otherwise; "
        "query q is not as expected (b > 0): in epoch 3 2 of 4 results are otherwise"
    )


def test_what_is_no_longer_expected_is_forgotten_and_what_follows_may_change() -> None:
    before = (Expected("query q", "rows > 0", "warn", 5, 2), Expected("query q", "n > 0", "warn", 5, 1))
    verdict = judge_epoch(9, {"query q": [of_stream("rows > 0", "fail")]}, {}, before)
    assert verdict.expected == (Expected("query q", "rows > 0", "fail", 5, 2),)
