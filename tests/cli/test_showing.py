"""How a status reads: a line per query while there are few, the ones that need a look when there are many."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.showing import epoch_line, show_status


def query(state: str = "running", late_us: int = 0, **other: Any) -> dict[str, Any]:
    return {
        "state": state, "cause": None, "answers": 3, "rows": 12, "answered_us": 1_704_067_200_000_000,
        "requested_period_us": 20_000_000, "achieved_period_us": 31_234_567, "late_us": late_us, "ends_us": None,
        **other,
    }  # fmt: skip


def status(queries: dict[str, Any]) -> dict[str, Any]:
    group = {"group": "a1b2", "costs_s": [0.1, 0.01, 0.0], "periods_us": {"20000000": 20_000_000}}
    return {
        "checkpoint": "state",
        "engine": {"owner": "process 7 on here", "alive": True},
        "epoch": 7,
        "streams": {},
        "queries": queries,
        "synopses": {
            "a1b2": {"since_us": None, "pane_us": 20_000_000, "measures": ["n", "sum_0"], "streams": ["r", "r"],
                     "keys": ["r.k", "r.g"], "where": "r.i > [1]"},
        },
        "state": {"chunks": 2, "bytes": 100},
        "last_epoch": {"rows": {"r": 10}, "seconds": 0.5, "jobs": 2, "due": dict.fromkeys(queries, 1)},
        "rejected": {"files": 2, "bytes": 80, "removed_files": 0, "removed_bytes": 0},
        "decisions": [
            {"epoch": 6, "idle": [], "flush": None, "nodes": {}},
            {"epoch": 7, "idle": [], "flush": None,
             "nodes": {"*": {"kind": "schedule", "policy": "hybrid", "budget_s": 0.6, "reason": "0.60 s of 1.00 s",
                             "groups": [{**group, "reason": "together every 40 s"}]}}},
        ],
    }  # fmt: skip


def test_a_small_status(capsys: pytest.CaptureFixture[str]) -> None:
    show_status(
        status({"good": query(), "slow": query(late_us=40_000_000), "bad": query("failed", cause="DIVIDE_BY_ZERO")})
    )
    text = capsys.readouterr().out
    lines = {line.split("│")[1].strip(): line for line in text.splitlines() if line.count("│") > 3}
    assert [part.strip() for part in lines["slow"].split("│")[5:8]] == ["20 s", "31.2 s", "40 s"]
    assert "failed: DIVIDE_BY_ZERO" in lines["bad"]
    assert [part.strip() for part in lines["a1b2"].split("│")[1:8]] == [
        "a1b2", "r", "r.k, r.g", "r.i > [1]", "2", "20 s", "the beginning",
    ]  # fmt: skip
    assert "schedule of epoch 7: hybrid; 0.60 s of 1.00 s\n  a1b2: together every 40 s" in text


@pytest.mark.parametrize(
    ("owner", "alive", "line", "state"),
    [
        ("process 7 on here", True, "checkpoint state: process 7 on here runs it", "running"),
        (None, False, "checkpoint state: no engine runs it", "stopped"),
        ("process 7 on here", False, "the last one, process 7 on here, did not come to its end", "stopped"),
        ("process 7 on there", None, "checkpoint state: process 7 on there has it, or died with it", "running"),
    ],
)
def test_a_status_says_whether_an_engine_runs(
    capsys: pytest.CaptureFixture[str], owner: str | None, alive: bool | None, line: str, state: str
) -> None:
    shown = status({"good": query(), "bad": query("failed", cause="no")})
    show_status({**shown, "engine": {"owner": owner, "alive": alive}})
    text = capsys.readouterr().out
    assert line in text
    states = {row.split("│")[1].strip(): row.split("│")[2].strip() for row in text.splitlines() if row.count("│") > 3}
    assert states["good"] == state
    assert states["bad"] == "failed: no"


def test_a_status_of_240_queries_shows_those_that_need_a_look(capsys: pytest.CaptureFixture[str]) -> None:
    queries = {f"q{i}": query(late_us=i * 1_000_000) for i in range(236)}
    queries |= {"over": query("ended"), "bad": query("failed", cause="no"), "a": query(), "b": query()}
    show_status(status(queries))
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 60
    assert "failed: no" in text
    assert "q235 " in text
    assert "q217 " in text
    assert "q216 " not in text
    assert "... and 220 more (219 running, 1 ended), at most 216 s late" in text


def test_an_epoch_names_some_of_its_queries() -> None:
    assert epoch_line(status({f"q{i}": query() for i in range(240)})).endswith("q7 1, ... and of 232 queries more")
    assert epoch_line(status({"a": query(), "b": query()})).endswith("windows answered: a 1, b 1")


def test_a_join_is_shown_with_its_way_and_what_hosts_have_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    shown = status({"pairs": query()})
    shown["flows"] = {
        "pairs": {"kind": "join", "way": {"reason": "hybrid left is least: 900 and 100 rows per epoch"}, "shed": 7}
    }
    shown["last_epoch"]["flows"] = {
        "pairs": {"received": [[450, 50], [450, 50]], "held": [[4000, 500], [4100, 500]], "pairs": 1234}
    }
    show_status(shown)
    text = capsys.readouterr().out
    assert "join pairs: hybrid left is least: 900 and 100 rows per epoch" in text
    assert "  rows sent + held by host: 500 + 4,500, 500 + 4,600; 1,234 pairs" in text
    assert "  shed for lack of memory: 7 rows" in text


def test_rejected_rows_show_what_was_removed_to_keep_within_limits(capsys: pytest.CaptureFixture[str]):
    shown = status({"q": query()})
    shown["streams"] = {
        "r": {"rows_in": 10, "used": 9, "late": 0, "shed": 0, "rejected": 1, "watermark_us": None, "last_us": None}
    }
    shown["rejected"] = {"files": 1, "bytes": 10, "removed_files": 3, "removed_bytes": 90}
    show_status(shown)
    out = capsys.readouterr().out
    assert "1 of 10 rows of stream 'r' were rejected\nthe newest of them are kept, with the reason" in out
    assert "3 older files of rejected rows were removed to keep within the limits" in out


def test_what_is_shed_is_told_with_the_reason_and_what_it_cost_each_query(capsys: pytest.CaptureFixture[str]) -> None:
    shown = status({"good": query()})
    shown["shedding"] = {"queries": {"good": {"rows": 1000, "shed": 250}, "whole": {"rows": 1000, "shed": 0}}}
    node = {"kind": "shedding", "strategy": "fit", "acting": ["answer late", "shed"], "keep": {"s>a1b2": 0.75},
            "reason": "9.00 s of work wait"}  # fmt: skip
    shown["decisions"][-1]["nodes"]["*shedding"] = node
    show_status(shown)
    text = capsys.readouterr().out
    assert "against overload act: answer late, shed" in text
    assert "epoch 7: 75% of s>a1b2 are kept; 9.00 s of work wait" in text
    assert "good has lost 250 of 1,000 rows" in text
    assert "whole has lost" not in text
    node["strategy"] = "off"
    show_status(shown)
    assert "75% of s>a1b2 would be kept" in capsys.readouterr().out
