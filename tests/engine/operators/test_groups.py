"""Random workloads that share synopses, answered group by group and bin by bin, against every window asked alone."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars as pl
import pytest
from held import Held, hold

from headrace.engine.operators.specs import spec_of
from headrace.kernels import answer
from headrace.kernels.answer import Panes, answers
from headrace.kernels.deliver import bins_of
from headrace.kernels.panes import layout_of, partial
from headrace.language import bind_query, parse_schema
from headrace.model import Due, Failure, Stream
from headrace.planning import Known, Workload, cover, plan_answer, share
from headrace.policies import due_windows, last_end_with_rows
from headrace.units import SECOND_US

Rng = random.Random
STREAM = Stream("packets", parse_schema("ts TIMESTAMP, src STRING, dst STRING, port INT, length INT, x DOUBLE"), "ts")
# Ours and DuckDB's name of the same.
AGGREGATES = {
    "COUNT(*)": "COUNT(*)",
    "COUNT(x)": "COUNT(x)",
    "SUM(length)": "SUM(length)",
    "AVG(length)": "AVG(length)",
    "MIN(src)": "MIN(src)",
    "MAX(x)": "MAX(x)",
    "VAR_POP(x)": "VAR_POP(x)",
    "SUM(length) FILTER (WHERE port = 80)": "SUM(length) FILTER (WHERE port = 80)",
    "COUNT(DISTINCT dst)": "COUNT(DISTINCT dst)",
    "SUM(DISTINCT length)": "SUM(DISTINCT length)",
    "MEDIAN(length)": "QUANTILE_CONT(length, 0.5)",
}
KEYS = [(), (), ("src",), ("dst",), ("src", "dst"), ("dst", "src"), ("src", "port", "dst")]
FILTERS = [None, None, "port = 80", "port = 443", "port IN (80, 443)", "port = 22 OR port = 80", "dst = 'p'", "x > 1"]


@dataclass(frozen=True)
class Asked:
    """A query in parts, so that it can be asked of another engine too."""

    keys: tuple[str, ...]
    where: str | None
    aggregates: tuple[str, ...]
    size_s: int
    slide_s: int
    hopping: bool
    cumulates: bool = False

    def begin_us(self, end_us: int) -> int:
        size = self.size_s * SECOND_US
        return (end_us - 1) // size * size if self.cumulates else end_us - size

    def sql(self) -> str:
        names = [*self.keys, *(f"{text} AS v{i}" for i, text in enumerate(self.aggregates))]
        slides = "CUMULATE" if self.cumulates else "SLIDE"
        window = "" if self.hopping else f"[WINDOW {self.size_s} s {slides} {self.slide_s} s]"
        by = [f"window(ts, '{self.size_s} seconds', '{self.slide_s} seconds')"] if self.hopping else []
        by += self.keys
        where = f"WHERE {self.where}" if self.where else ""
        group = f"GROUP BY {', '.join(by)}" if by else ""
        return f"SELECT {', '.join(names)} FROM packets {window} {where} {group}"


def drawn(rng: Rng) -> Asked:
    size = rng.randint(1, 12)
    slide, hopping = rng.randint(1, min(size, 6)), rng.random() < 0.4
    return Asked(
        rng.choice(KEYS),
        rng.choice(FILTERS),
        tuple(rng.sample(list(AGGREGATES), rng.randint(1, 3))),
        size,
        slide,
        hopping,
        not hopping and size % slide == 0 and rng.random() < 0.5,
    )


def rows_of(rng: Rng, count: int) -> pl.DataFrame:
    kinds: dict[str, tuple[Any, list[Any]]] = {
        "src": (pl.String, ["a", "b", None]),
        "dst": (pl.String, ["p", "q"]),
        "port": (pl.Int32, [80, 443, 22, None]),
        "length": (pl.Int32, [None, 1, 40, 1500]),
        "x": (pl.Float64, [None, 0.5, 2.0, -3.25]),
    }
    # A few bursts with silence between.
    bursts = [rng.randint(-40, 40) for _ in range(3)]
    times = [(rng.choice(bursts) + rng.randint(0, 8)) * SECOND_US + rng.randrange(SECOND_US) for _ in range(count)]
    columns = {name: pl.Series(rng.choices(values, k=count), dtype=t) for name, (t, values) in kinds.items()}
    return pl.DataFrame({"t": pl.Series(times, dtype=pl.Int64), **columns})


def absorbed(workload: Workload, rows: pl.DataFrame, bins: int, cuts: int) -> Panes:
    """Panes of all kept synopses in `cuts` chunks, their groups spread over bins by the keys in their own order."""
    return hold((list(_chunk(workload, rows[i::cuts], bins)) for i in range(cuts)), bins)


def _chunk(workload: Workload, packets: pl.DataFrame, bins: int) -> Iterator[Held]:
    for id_, kept in workload.kept.items():
        (feed,) = kept.synopsis.feeds
        form = layout_of(kept.synopsis, kept.measures, kept.pane_us)
        columns = {"p": f"packets.t - ((packets.t % {kept.pane_us}) + {kept.pane_us}) % {kept.pane_us}"}
        columns |= {f"k{i}": sql for i, sql in enumerate(feed.keys)}
        columns |= {"d": feed.detail} if feed.detail else {}
        arguments = [None if m.arguments is None else f"x{i}" for i, m in enumerate(kept.measures)]
        columns |= {f"x{i}": m.arguments[0] for i, m in enumerate(kept.measures) if m.arguments is not None}
        select = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
        plain = duckdb.sql(f"SELECT {select} FROM packets WHERE {feed.where or 'true'}").pl()
        frame = partial(plain, form, arguments, [])
        keys = form.groups[: form.keys]
        if frame.is_empty():
            continue
        if not keys:
            yield id_, 0, frame
            continue
        places = [zlib.crc32(repr(row).encode()) % bins for row in frame.select(keys).rows()]
        for (bin_,), part in frame.with_columns(h=pl.Series(places)).partition_by(
            "h", as_dict=True, include_key=False
        ).items():  # fmt: skip
            yield id_, int(bin_), part


Row = tuple[Any, ...]


def alone(asked: Asked, ends: Iterable[int], rows: pl.DataFrame) -> set[Row]:
    """What DuckDB answers to each window."""
    until = list(ends)
    windows = pl.DataFrame(
        {"b": [asked.begin_us(end) for end in until], "e": until}, schema={"b": pl.Int64, "e": pl.Int64}
    )
    values = ", ".join(["e", *asked.keys, *(AGGREGATES[text] for text in asked.aggregates)])
    by = ", ".join(["e", *asked.keys])
    inside = f"t >= b AND t < e AND ({asked.where or 'true'})"
    found = duckdb.sql(f"SELECT {values} FROM windows JOIN rows ON {inside} GROUP BY {by}").fetchall()
    if not asked.keys and not asked.hopping and not asked.cumulates:
        there = {row[0] for row in found}
        none = tuple(0 if text.startswith("COUNT") else None for text in asked.aggregates)
        found += [(end, *none) for end in windows["e"] if end not in there]
    return {tuple(plain(v) for v in row) for row in found}


def plain(value: Any) -> Any:
    """Numbers of all types, alike when they are equal up to rounding."""
    if value is None or isinstance(value, str):
        return value
    number = float(value)
    return 0.0 if abs(number) < 1e-9 else float(f"{number:.9g}")


def together(workload: Workload, due: Mapping[str, Due], panes: Panes) -> dict[str, list[Row]]:
    """What the engine answers, all queries of a group from one scan per bin."""
    found: dict[str, list[Row]] = {name: [] for name in due}
    for names in workload.groups.values():
        some = [name for name in names if name in due]
        specs = [(spec_of(workload, name), due[name]) for name in some]
        for bin_ in bins_of(specs[0][0], panes.bins) if specs else ():
            for position, frame in answers(specs, panes, bin_):
                if isinstance(frame, Failure):
                    raise frame.error()
                name, spec = some[position], specs[position][0]
                assert frame.columns == ["window_start", "window_end", *spec.keys, *(a.name for a in spec.aggregates)]
                starts = frame["window_start"].dt.epoch("us").to_list()
                assert starts == [spec.begin_us(end) for end in frame["window_end"].dt.epoch("us")]
                ends = frame["window_end"].dt.epoch("us")
                for end, row in zip(ends, frame.drop("window_start", "window_end").rows(), strict=True):
                    found[name].append(tuple(plain(v) for v in (end, *row)))
    return found


def planned(asked: Mapping[str, Asked], later: Sequence[str]) -> Workload:
    """How the queries share, when some came after the others."""
    plans = {name: plan_answer(bind_query(name, q.sql(), {"packets": STREAM})) for name, q in asked.items()}
    first = share({name: plan for name, plan in plans.items() if name not in later}, [STREAM])
    known = {id_: Known(kept.synopsis, cover(None, kept, None)) for id_, kept in first.kept.items()}
    return share(plans, [STREAM], known, first.supplies)


def due_of(rng: Rng, workload: Workload, rows: pl.DataFrame) -> dict[str, Due]:
    """All ends from before the first row to after the last, or some of them, or only a few."""
    found: dict[str, Due] = {}
    first, last = rows["t"].min(), rows["t"].max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    for name, plan in workload.plans.items():
        window = plan.aggregate.window
        until = last_end_with_rows(window, last) + 2 * window.slide_us
        due = due_windows(window, first - 3 * window.slide_us, None, until)
        if due is None:
            continue
        if rng.random() < 0.5:
            due = Due(tuple(sorted(rng.sample(due.ends, rng.randint(1, due.count)))))
        found[name] = due
    return found


def check(
    asked: Mapping[str, Asked], workload: Workload, due: Mapping[str, Due], rows: pl.DataFrame, panes: Panes
) -> None:
    found = together(workload, due, panes)
    for name, some in due.items():
        why = "; ".join(workload.supplies[d.synopsis.id].why for d in workload.plans[name].demands)
        assert len(set(found[name])) == len(found[name]), f"a window's group is answered twice: {asked[name]}, {why}"
        wanted = alone(asked[name], some.ends, rows)
        assert set(found[name]) == wanted, f"{asked[name].sql()}: {why}"


@pytest.mark.parametrize("bins", [1, 3])
@pytest.mark.parametrize("seed", range(25))
def test_a_shared_workload_answers_as_every_query_alone(seed: int, bins: int, monkeypatch: pytest.MonkeyPatch):
    rng = Rng(seed)
    if seed % 2:
        # So few that several goes are needed.
        monkeypatch.setattr(answer, "MOST_GROUPS", rng.choice([1, 3, 20]))
    asked = {f"q{i}": drawn(rng) for i in range(rng.randint(2, 7))}
    asked["twin"] = asked["q0"]
    later = [name for name in asked if rng.random() < 0.4]
    rows = rows_of(rng, rng.choice([1, 5, 60]))
    workload = planned(asked, later)
    panes = absorbed(workload, rows, bins, cuts=rng.randint(1, 3))
    check(asked, workload, due_of(rng, workload, rows), rows, panes)


BY_BOTH = {"size_s": 4, "slide_s": 2, "hopping": False}


@pytest.mark.parametrize("bins", [1, 4])
@pytest.mark.parametrize(
    ("asked", "later"),
    [
        pytest.param(
            {
                "one": Asked(("src", "dst"), "port = 80", ("COUNT(*)",), **BY_BOTH),
                "other": Asked(("dst", "src"), "port = 443", ("COUNT(*)",), **BY_BOTH),
                "both": Asked(("src", "dst"), "port IN (80, 443)", ("COUNT(*)",), **BY_BOTH),
            },
            [],
            id="a union of synopses whose keys are in different orders",
        ),
        pytest.param(
            {
                "fine": Asked(("src", "dst"), None, ("COUNT(*)",), **BY_BOTH),
                "coarse": Asked(("src",), None, ("COUNT(*)", "COUNT(DISTINCT dst)"), **BY_BOTH),
            },
            ["coarse"],
            id="groups rolled up from finer keys, details kept for themselves",
        ),
        pytest.param(
            {
                "one": Asked(("src", "dst"), None, ("COUNT(*)", "MEDIAN(length)"), **BY_BOTH),
                "other": Asked(("dst", "src"), None, ("COUNT(*)", "MEDIAN(x)"), **BY_BOTH),
                "third": Asked(("dst", "src"), None, ("COUNT(DISTINCT port)", "MEDIAN(length)"), **BY_BOTH),
            },
            ["other", "third"],
            id="groups from keys in another order, details in their own",
        ),
        pytest.param(
            {
                "plain": Asked(("src",), None, ("COUNT(*)",), **BY_BOTH),
                "fine": Asked(("src", "dst"), None, ("MEDIAN(length)",), **BY_BOTH),
                "detailed": Asked(("src",), None, ("COUNT(x)", "MEDIAN(length)"), **BY_BOTH),
            },
            ["detailed"],
            id="groups kept for themselves, details of one query of the group rolled up",
        ),
        pytest.param(
            {
                "fine": Asked(("src", "dst"), None, ("MEDIAN(length)",), **BY_BOTH),
                "coarse": Asked((), None, ("COUNT(*)", "MEDIAN(length)"), **BY_BOTH),
            },
            ["coarse"],
            id="no keys, rolled up from some",
        ),
    ],
)
def test_bins_that_do_not_match(
    asked: Mapping[str, Asked], later: list[str], bins: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(AGGREGATES, "MEDIAN(x)", "QUANTILE_CONT(x, 0.5)")
    monkeypatch.setitem(AGGREGATES, "COUNT(DISTINCT port)", "COUNT(DISTINCT port)")
    rng = Rng(0)
    rows = rows_of(rng, 80)
    workload = planned(asked, later)
    panes = absorbed(workload, rows, bins, cuts=2)
    check(asked, workload, due_of(rng, workload, rows), rows, panes)


def test_a_leap_over_years_is_answered_where_there_are_rows():
    asked = {
        "keyed": Asked(("src",), None, ("COUNT(*)",), 6, 4, False),
        "hopping": Asked((), None, ("SUM(length)",), 9, 3, True),
        "tumbling": Asked(("src",), None, ("COUNT(*)",), 7, 7, False),
        "cumulating": Asked(("src",), None, ("COUNT(*)",), 12, 4, False, cumulates=True),
    }
    rows = rows_of(Rng(5), 30)
    leap = pl.concat([rows, rows[:1].with_columns(t=pl.lit(10**9 * SECOND_US))])
    workload = planned(asked, [])
    due = {}
    for name, plan in workload.plans.items():
        found = due_windows(plan.aggregate.window, -100 * SECOND_US, None, (10**9 + 50) * SECOND_US)
        assert found is not None
        assert found.count > 10**8
        due[name] = found
    got = together(workload, due, absorbed(workload, leap, 1, cuts=2))
    for name, some in due.items():
        near = [e for e in range(-100, 100) if e * SECOND_US in some.ends]
        near += [e for e in range(10**9 - 50, 10**9 + 50) if e * SECOND_US in some.ends]
        assert set(got[name]) == alone(asked[name], [e * SECOND_US for e in near], leap)


def test_a_dense_past_and_many_ends_take_no_matrix():
    #   A day in panes of a second, of which every tenth holds a row: 8,640 panes, 86,400 ends, windows of a day.
    asked = {"day": Asked(("src",), None, ("COUNT(*)",), 86_400, 1, False)}
    workload = planned(asked, [])
    times = [second * SECOND_US for second in range(0, 86_400, 10)]
    rows = rows_of(Rng(1), len(times)).with_columns(t=pl.Series(times), src=pl.lit("a"))
    panes = absorbed(workload, rows, 1, cuts=1)
    spec = spec_of(workload, "day")
    due = Due(range(SECOND_US, 86_400 * SECOND_US + 1, SECOND_US))
    counts: list[int] = []
    for _, frame in answers([(spec, due)], panes, 0):
        assert isinstance(frame, pl.DataFrame)
        counts += frame[frame.columns[-1]].to_list()
    assert counts == [math.ceil(second / 10) for second in range(1, 86_401)]


# One query's failure --------------------------------------------------------------------------------------------------


def test_a_query_that_fails_does_not_disturb_its_group():
    wide = Stream("wide", parse_schema("ts TIMESTAMP, k STRING, n BIGINT"), "ts")
    sqls = {
        "sum": "SELECT k, SUM(n) AS v FROM wide [WINDOW 10 s] GROUP BY k",
        "count": "SELECT k, COUNT(n) AS v FROM wide [WINDOW 10 s] GROUP BY k",
    }
    workload = share({name: plan_answer(bind_query(name, sql, {"wide": wide})) for name, sql in sqls.items()}, [wide])
    ((id_, kept),) = workload.kept.items()
    form = layout_of(kept.synopsis, kept.measures, kept.pane_us)
    rows = pl.DataFrame({"p": [0, 0], "k0": ["a", "a"], "x": [2**63 - 1, 1]})
    frame = partial(rows, form, [None if m.arguments is None else "x" for m in kept.measures], [])
    specs = [(spec_of(workload, name), Due((10 * SECOND_US,))) for name in sqls]
    found = dict(answers(specs, hold([[(id_, 0, frame)]]), 0))
    assert isinstance(found[0], Failure)
    assert "SUM(wide.n) exceeds BIGINT" in found[0].text
    assert isinstance(found[1], pl.DataFrame)
    at = [datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC) for second in (0, 10)]
    assert found[1].rows() == [(*at, "a", 2)]
