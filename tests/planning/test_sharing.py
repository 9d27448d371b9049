"""What a workload keeps, and from what each query is answered: every rule, and where it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from headrace.model import Query, Stream
from headrace.planning import AnswerPlan, Known, Supplier, Supply, Workload, cover, plan_answer, plan_query, share
from headrace.units import SECOND_US

Bind = Callable[..., Query]
ITSELF = "kept for itself"
REORDERED = "the same keys in another order"
UNION = "a union of disjoint filters kept for others"
FINER = "rolled up from finer keys that are there already"
LEVEL = "rolled up from a finer level of the same GROUP BY"
W = "[WINDOW 10 min SLIDE 2 min]"


@pytest.fixture
def planned(bind: Bind) -> Callable[..., dict[str, AnswerPlan]]:
    def made(**queries: str) -> dict[str, AnswerPlan]:
        return {name: plan_answer(bind(sql, name)) for name, sql in queries.items()}

    return made


@pytest.fixture
def texts(streams: Mapping[str, Stream]) -> tuple[Stream, ...]:
    return tuple(streams.values())


def count(
    keys: str = "", where: str = "", stream: str = "packets", aggregate: str = "COUNT(*)", window: str = W
) -> str:
    select = f"{keys}, {aggregate} AS v" if keys else f"{aggregate} AS v"
    passed, by = f"WHERE {where}" if where else "", f"GROUP BY {keys}" if keys else ""
    return f"SELECT {select} FROM {stream} {window} {passed} {by}"


def both(keys: str, first: str, second: str) -> str:
    """A count over two streams at once."""
    inner = f"SELECT {first} FROM packets UNION ALL SELECT {second} FROM flows"
    return f"SELECT {keys}, COUNT(*) AS v FROM ({inner}) {W} GROUP BY {keys}"


def why(workload: Workload, query: str) -> list[str]:
    return [workload.supplies[d.synopsis.id].why for d in workload.plans[query].demands]


def known_of(workload: Workload, rows: Mapping[str, float] | None = None) -> dict[str, Known]:
    """What the next share knows, when these rows per epoch were measured."""
    return {
        id_: Known(kept.synopsis, replace(cover(None, kept, None), rows=(rows or {}).get(id_)))
        for id_, kept in workload.kept.items()
    }


Planned = Callable[..., dict[str, AnswerPlan]]

# All at once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "reasons", "kept"),
    [
        pytest.param({"a": count("src")}, {"a": [ITSELF]}, 1, id="one query keeps its own"),
        pytest.param(
            {"a": count("src"), "b": count("src", aggregate="SUM(length)", window="[WINDOW 1 min]")},
            {"a": [ITSELF], "b": [ITSELF]},
            1,
            id="other measures and windows of the same are the same",
        ),
        pytest.param({"a": count("src"), "b": count("dst")}, {"a": [ITSELF], "b": [ITSELF]}, 2, id="other keys"),
        pytest.param(
            {"a": count("src"), "b": count("src", stream="flows")}, {"a": [ITSELF], "b": [ITSELF]}, 2,
            id="another stream",
        ),
        pytest.param(
            {"a": count("src"), "b": count("src", "port = 80")}, {"a": [ITSELF], "b": [ITSELF]}, 2, id="another filter"
        ),
        pytest.param(
            {"a": count("src, dst"), "b": count("src")}, {"a": [ITSELF], "b": [ITSELF]}, 2,
            id="finer keys that are not there yet are not waited for",
        ),
        pytest.param(
            {"a": count("src", aggregate="MEDIAN(x)"), "b": count("src", aggregate="COUNT(DISTINCT x)")},
            {"a": [ITSELF, ITSELF], "b": [ITSELF, ITSELF]}, 3,
            id="distinct doubles have one zero where percentiles have two",
        ),
        pytest.param(
            {"a": count("src", aggregate="MEDIAN(length)"), "b": count("src", aggregate="COUNT(DISTINCT length)")},
            {"a": [ITSELF, ITSELF], "b": [ITSELF, ITSELF]}, 2,
            id="details of one column are shared",
        ),
        pytest.param(
            {"a": count("src", aggregate="MEDIAN(length)"), "b": count("src", aggregate="MEDIAN(port)")},
            {"a": [ITSELF, ITSELF], "b": [ITSELF, ITSELF]}, 3,
            id="details of two columns are two",
        ),
        pytest.param(
            {"a": count("src", "port = 80"), "b": count("src", "port = 443"), "c": count("src", "port IN (80, 443)")},
            {"a": [ITSELF], "b": [ITSELF], "c": [UNION]}, 2,
            id="a union of two filters",
        ),
        pytest.param(
            {"c": count("src", "port IN (80, 443)"), "a": count("src", "port = 80"), "b": count("src", "port = 443")},
            {"a": [ITSELF], "b": [ITSELF], "c": [UNION]}, 2,
            id="in whatever order they come",
        ),
        pytest.param(
            {"a": count("src", "src = 'x'"), "b": count("src", "src = 'y'"), "c": count("src", "src IN ('x', 'y')")},
            {"a": [ITSELF], "b": [ITSELF], "c": [UNION]}, 2,
            id="a union over strings of a column of strings",
        ),
        pytest.param(
            {"a": count("src", "port = '7'"), "b": count("src", "port = '07'"),
             "c": count("src", "port IN ('7', '07')")},
            {"a": [ITSELF], "b": [ITSELF], "c": [ITSELF]}, 3,
            id="strings do not tell numbers apart",
        ),
        pytest.param(
            {"a": count("src", "port IN (80, 22)"), "b": count("src", "port IN (22, 443)"),
             "c": count("src", "port IN (22, 80, 443)")},
            {"a": [ITSELF], "b": [ITSELF], "c": [ITSELF]}, 3,
            id="filters that overlap would count rows twice",
        ),
        pytest.param(
            {"a": count("src", "port = 80 AND ok"), "b": count("src", "port = 443"),
             "c": count("src", "port IN (80, 443)")},
            {"a": [ITSELF], "b": [ITSELF], "c": [ITSELF]}, 3,
            id="a conjunct more in one of them",
        ),
        pytest.param(
            {"a": count("src", "port = 80"), "b": count("dst", "port = 443"), "c": count("src", "port IN (80, 443)")},
            {"a": [ITSELF], "b": [ITSELF], "c": [ITSELF]}, 3,
            id="other keys in one of them",
        ),
        pytest.param(
            {"a": count("src", "port = 80"), "b": count("src, dst", "port = 443"),
             "c": count("src", "port IN (80, 443)")},
            {"a": [ITSELF], "b": [ITSELF], "c": [ITSELF]}, 3,
            id="finer keys in one of them",
        ),
        pytest.param(
            {"a": count("src", "port = 80"), "b": count("src", "port = 443"),
             "c": count("src", "port IN (80, 443)", aggregate="MEDIAN(x)")},
            {"a": [ITSELF], "b": [ITSELF], "c": [UNION, ITSELF]}, 3,
            id="groups of a union, details that nobody else has",
        ),
        pytest.param(
            {"a": count("src", "port = 80", aggregate="approx_top_k(dst, 3)"),
             "b": count("src", "port = 443", aggregate="approx_top_k(dst, 3)"),
             "c": count("src", "port IN (80, 443)", aggregate="approx_top_k(dst, 3)")},
            {"a": [ITSELF, ITSELF], "b": [ITSELF, ITSELF], "c": [UNION, ITSELF]}, 5,
            id="the heaviest of parts are not the heaviest of all",
        ),
    ],
)  # fmt: skip
def test_rules(
    planned: Planned, texts: tuple[Stream, ...], queries: dict[str, str], reasons: dict[str, list[str]], kept: int
):
    workload = share(planned(**queries), texts)
    assert {name: why(workload, name) for name in queries} == reasons
    assert len(workload.kept) == kept


def test_the_same_keys_in_another_order_are_kept_once(planned: Planned):
    workload = share(planned(a=count("src, dst"), b=count("dst, src")))
    ((id_, _),) = workload.kept.items()
    reasons = sorted(reason for name in "ab" for reason in why(workload, name))
    assert reasons == [ITSELF, REORDERED]
    (other,) = (s for s in workload.supplies.values() if s.why == REORDERED)
    assert other == Supply((Supplier(id_, (1, 0)),), REORDERED), "no group is spread over bins"


def test_three_keys_say_where_each_is(planned: Planned):
    first = share(planned(a=count("src, dst, port")))
    workload = share(planned(a=count("src, dst, port"), b=count("port, src, dst")), known=known_of(first))
    (source,) = workload.supplies[workload.plans["b"].main].suppliers
    assert (source.synopsis, source.keys) == (workload.plans["a"].main, (2, 0, 1))


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        pytest.param(("src, dst", "src, dst"), ("src, dst", "src, dst"), True, id="the same keys of both streams"),
        pytest.param(
            ("src, dst", "src, dst"), ("dst AS src, src AS dst", "dst, src"), True, id="keys swapped in both streams"
        ),
        pytest.param(
            ("src, dst", "src, dst"),
            ("dst AS src, src AS dst", "src, dst"),
            False,
            id="keys swapped in one stream",
        ),
        pytest.param(("src, dst", "src, dst"), ("src, dst", "dst, src"), False, id="or in the other"),
    ],
)
def test_streams_of_a_union_must_agree_on_the_order_of_keys(
    planned: Planned, one: tuple[str, str], other: tuple[str, str], shared: bool
):
    workload = share(planned(a=both("src, dst", *one), b=both("src, dst", *other)))
    assert (len(workload.kept) == 1) is shared


def test_a_stream_is_not_a_union_of_streams(planned: Planned):
    workload = share(planned(a=both("src", "src", "src"), b=count("src")))
    assert len(workload.kept) == 2


def test_parts_of_a_union_of_streams_are_not_looked_for(planned: Planned, texts: tuple[Stream, ...]):
    def of(where: str) -> str:
        inner = f"SELECT src FROM packets WHERE {where} UNION ALL SELECT src FROM flows WHERE {where}"
        return f"SELECT src, COUNT(*) AS v FROM ({inner}) {W} GROUP BY src"

    workload = share(planned(a=of("port = 1"), b=of("port = 2"), c=of("port IN (1, 2)")), texts)
    assert len(workload.kept) == 3


def test_without_streams_no_column_is_known_to_hold_strings(planned: Planned, texts: tuple[Stream, ...]):
    plans = planned(a=count("", "src = 'x'"), b=count("", "src = 'y'"), c=count("", "src IN ('x', 'y')"))
    assert (len(share(plans).kept), len(share(plans, texts).kept)) == (3, 2)


# What is kept for it -------------------------------------------------------------------------------------------------


def test_panes_divide_the_windows_of_all_queries_served(planned: Planned, texts: tuple[Stream, ...]):
    workload = share(
        planned(
            a=count("src", "port = 80", window="[WINDOW 12 s SLIDE 6 s]"),
            b=count("src", "port = 443", window="[WINDOW 10 s SLIDE 5 s]"),
            c=count("src", "port IN (80, 443)", window="[WINDOW 8 s SLIDE 4 s]"),
        ),
        texts,
    )
    panes = {name: workload.kept[workload.plans[name].main].pane_us // SECOND_US for name in "ab"}
    assert panes == {"a": 2, "b": 1}


def test_averages_sums_and_counts_share_their_measures(planned: Planned):
    plans = planned(
        a=count("src", aggregate="AVG(length)"), b=count("src", aggregate="SUM(length)"),
        c=count("src", aggregate="COUNT(length)"), d=count("src", aggregate="MAX(length)"),
    )  # fmt: skip
    (kept,) = share(plans).kept.values()
    assert sorted(m.kind for m in kept.measures) == ["count", "max", "rows", "sum"]
    assert [m.column for m in kept.measures] == sorted(m.column for m in kept.measures), "in an order of their own"


def test_parts_of_a_union_keep_what_the_union_needs(planned: Planned, texts: tuple[Stream, ...]):
    workload = share(
        planned(
            a=count("src", "port = 80"), b=count("src", "port = 443", aggregate="MIN(x)"),
            c=count("src", "port IN (80, 443)", aggregate="SUM(length)"),
        ),
        texts,
    )  # fmt: skip
    kinds = {name: {m.kind for m in workload.kept[workload.plans[name].main].measures} for name in "ab"}
    assert kinds == {"a": {"rows", "sum"}, "b": {"rows", "min", "sum"}}


def test_groups_are_queries_with_the_same_groups_of_rows(planned: Planned):
    plans = planned(a=count("src"), b=count("dst"), c=count("src", aggregate="MEDIAN(x)"), d=count("src", "ok"))
    workload = share(plans)
    assert list(workload.groups.values()) == [("a", "c"), ("b",), ("d",)]
    assert workload.sources_of("c") == tuple(d.synopsis.id for d in plans["c"].demands)


def test_nothing_asked_nothing_kept():
    workload = share({})
    assert (workload.kept, workload.supplies, workload.groups) == ({}, {}, {})


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_queries_does_not_matter(planned: Planned, texts: tuple[Stream, ...], order: int):
    queries = {
        "a": count("src, dst"), "b": count("dst, src"), "c": count("src", "port = 1"), "d": count("src", "port = 2"),
        "e": count("src", "port IN (1, 2)"), "f": count("src", aggregate="AVG(x)"),
    }  # fmt: skip
    whole = share(planned(**queries), texts)
    other = share(planned(**dict(list(queries.items())[::order])), texts)
    assert (other.kept, other.supplies) == (whole.kept, whole.supplies)


# Queries that come and go --------------------------------------------------------------------------------------------


def test_a_restart_changes_nothing(planned: Planned, texts: tuple[Stream, ...]):
    plans = planned(
        a=count("src", "port = 80"), b=count("src", "port = 443"), c=count("src", "port IN (80, 443)"),
        d=count("src, dst"), e=count("dst, src", aggregate="MEDIAN(x)"),
    )  # fmt: skip
    first = share(plans, texts)
    assert share(plans, texts, known_of(first), first.supplies) == first


def test_a_coarser_query_that_comes_later_is_answered_from_history(planned: Planned):
    first = share(planned(fine=count("src, dst")))
    workload = share(planned(fine=count("src, dst"), coarse=count("dst"), all=count()), known=known_of(first))
    fine = workload.plans["fine"].main
    assert list(workload.kept) == [fine]
    assert workload.supplies[workload.plans["coarse"].main] == Supply((Supplier(fine, (1,)),), FINER, whole=True)
    assert workload.supplies[workload.plans["all"].main] == Supply((Supplier(fine, ()),), FINER, whole=True)


@pytest.mark.parametrize(
    ("there", "comes"),
    [
        pytest.param(count("src, dst", "port = 80"), count("src"), id="of fewer rows"),
        pytest.param(count("src, dst"), count("src", "port = 80"), id="of more rows"),
        pytest.param(count("src, dst", stream="flows"), count("src"), id="of another stream"),
        pytest.param(count("dst, port"), count("src"), id="of other keys"),
        pytest.param(count("src"), count("src, dst"), id="that are coarser"),
    ],
)
def test_history_that_does_not_fit_is_no_help(planned: Planned, there: str, comes: str):
    first = share(planned(there=there))
    workload = share(planned(there=there, comes=comes), known=known_of(first))
    assert why(workload, "comes") == [ITSELF]


def test_details_are_rolled_up_with_their_groups(planned: Planned):
    first = share(planned(fine=count("src, dst", aggregate="MEDIAN(x)")))
    workload = share(
        planned(fine=count("src, dst", aggregate="MEDIAN(x)"), coarse=count("src", aggregate="PERCENTILE(x, 0.9)")),
        known=known_of(first),
    )
    assert why(workload, "coarse") == [FINER, FINER]
    assert len(workload.kept) == 2


def test_the_smallest_of_finer_ones_is_rolled_up(planned: Planned):
    first = share(planned(wide=count("src, dst, port"), slim=count("src, port")))
    wide, slim = (first.plans[name].main for name in ("wide", "slim"))
    for rows, wanted in (({wide: 900.0, slim: 30.0}, slim), ({wide: 20.0, slim: 30.0}, wide)):
        workload = share(
            {**first.plans, **planned(coarse=count("src"))}, known=known_of(first, rows), supplies=first.supplies
        )
        assert workload.sources_of("coarse") == (wanted,)


def test_a_choice_stands_though_a_better_one_comes(planned: Planned, texts: tuple[Stream, ...]):
    alone = share(planned(web=count("src", "port IN (80, 443)")), texts)
    workload = share(
        planned(web=count("src", "port IN (80, 443)"), a=count("src", "port = 80"), b=count("src", "port = 443")),
        texts, known_of(alone), alone.supplies,
    )  # fmt: skip
    assert why(workload, "web") == [ITSELF], "its panes have history, those of the others have none"
    assert len(workload.kept) == 3


def test_what_a_union_is_made_of_stays_when_its_own_queries_leave(planned: Planned, texts: tuple[Stream, ...]):
    queries = {"a": count("src", "port = 80"), "b": count("src", "port = 443"), "c": count("src", "port IN (80, 443)")}
    first = share(planned(**queries), texts)
    workload = share(planned(c=queries["c"]), texts, known_of(first), first.supplies)
    assert why(workload, "c") == [UNION]
    assert workload.kept.keys() == first.kept.keys()
    again = share(planned(c=queries["c"]), texts, known_of(workload), workload.supplies)
    assert again == workload


def test_what_nobody_needs_any_more_goes(planned: Planned):
    first = share(planned(a=count("src"), b=count("dst", aggregate="MEDIAN(x)")))
    workload = share(planned(a=count("src")), known=known_of(first), supplies=first.supplies)
    assert list(workload.kept) == [workload.plans["a"].main]
    assert list(workload.supplies) == [workload.plans["a"].main]


def test_a_choice_whose_source_is_lost_is_made_anew(planned: Planned, texts: tuple[Stream, ...]):
    queries = {"a": count("src", "port = 80"), "b": count("src", "port = 443"), "c": count("src", "port IN (80, 443)")}
    first = share(planned(**queries), texts)
    lost = {id_: known for id_, known in known_of(first).items() if id_ != first.plans["a"].main}
    workload = share(planned(c=queries["c"]), texts, lost, first.supplies)
    assert why(workload, "c") == [ITSELF]


def test_a_union_of_what_is_there_is_preferred_to_something_new(planned: Planned, texts: tuple[Stream, ...]):
    parts = {"a": count("src", "port = 80"), "b": count("src", "port = 443")}
    first = share(planned(**parts), texts)
    workload = share(
        planned(**parts, c=count("src", "port IN (80, 443)")), texts, known_of(first), first.supplies
    )  # fmt: skip
    assert why(workload, "c") == [UNION]
    assert workload.kept == first.kept


@pytest.mark.parametrize(
    ("fine", "coarse", "rolled"),
    [
        pytest.param(100.0, 100.0, True, id="no more rows"),
        pytest.param(125.0, 100.0, True, id="a quarter more"),
        pytest.param(126.0, 100.0, False, id="more than that"),
        pytest.param(None, 100.0, False, id="the finer was not measured"),
        pytest.param(100.0, None, False, id="the coarser was not"),
    ],
)
def test_a_synopsis_is_not_kept_beside_a_finer_one_of_about_its_size(
    planned: Planned, fine: float | None, coarse: float | None, rolled: bool
):
    plans = planned(fine=count("src, dst"), coarse=count("src"))
    first = share(plans)
    known = known_of(first, {plans["fine"].main: fine, plans["coarse"].main: coarse})
    workload = share(plans, known=known, supplies=first.supplies)
    supply = workload.supplies[plans["coarse"].main]
    assert (len(workload.kept) == 1, supply.whole) == (rolled, rolled)
    assert supply.why == (
        f"rolled up from finer keys, which have {fine:.0f} rows per epoch where it had {coarse:.0f}"
        if rolled
        else ITSELF
    )


@pytest.mark.parametrize(
    ("fine", "coarse", "rolled"),
    [
        pytest.param({"since_us": 10}, {"since_us": 10}, True, id="as far back"),
        pytest.param({"since_us": 11}, {"since_us": 10}, False, id="less far back"),
        pytest.param({"since_us": 10}, {"since_us": None}, False, id="the coarser from the beginning"),
        pytest.param({"columns": {}}, {}, False, id="without its measures"),
    ],
)
def test_a_finer_one_takes_over_only_if_it_has_the_history(
    planned: Planned, fine: dict[str, object], coarse: dict[str, object], rolled: bool
):
    plans = planned(fine=count("src, dst"), coarse=count("src"))
    first = share(plans)
    changed = {plans["fine"].main: fine, plans["coarse"].main: coarse}
    known = {
        id_: Known(k.synopsis, replace(k.coverage, **changed[id_]))  # type: ignore[arg-type]
        for id_, k in known_of(first, dict.fromkeys(changed, 100.0)).items()
    }
    workload = share(plans, known=known, supplies=first.supplies)
    assert (len(workload.kept) == 1) == rolled


# Parts of a workload -------------------------------------------------------------------------------------------------


def test_some_queries_need_only_their_part(planned: Planned, texts: tuple[Stream, ...]):
    plans = planned(
        a=count("src", "port = 80", window="[WINDOW 12 s SLIDE 6 s]"),
        b=count("src", "port = 443", aggregate="MIN(x)"),
        c=count("src", "port IN (80, 443)", aggregate="SUM(length)", window="[WINDOW 8 s SLIDE 4 s]"),
        d=count("dst"),
    )
    whole = share(plans, texts)
    part = whole.only(["a"])
    assert (list(part.plans), list(part.kept), part.groups) == (["a"], [plans["a"].main], {plans["a"].main: ("a",)})
    (kept,) = part.kept.values()
    assert ([m.kind for m in kept.measures], kept.pane_us) == (["rows"], 6 * SECOND_US), (
        "panes only as short as it needs"
    )
    union = whole.only(["c"])
    assert union.kept.keys() == {plans["a"].main, plans["b"].main}
    assert all({m.kind for m in kept.measures} == {"rows", "sum"} for kept in union.kept.values())
    assert whole.only(plans) == whole
    assert whole.only(["a", "c"]).only(["a"]) == part
    assert whole.only([]).kept == {}


def test_all_levels_of_a_cube_are_answered_from_one_synopsis(bind: Bind, texts: tuple[Stream, ...]) -> None:
    by = "GROUP BY window(ts, '1 minute'), CUBE (src, port)"
    below = plan_query(bind(f"SELECT src, port, COUNT(*) AS n, SUM(length) AS t FROM packets {by}")).below
    workload = share({plan.name: plan for plan in below if isinstance(plan, AnswerPlan)}, texts)
    assert len(workload.kept) == 1
    assert sorted(why(workload, plan.name)[0] for plan in below) == [ITSELF, LEVEL, LEVEL, LEVEL]
