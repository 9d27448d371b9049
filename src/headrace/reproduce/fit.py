"""The paper on overload in distributed systems: its worked numbers, and its open question of central or distributed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from headrace.policies.shedding import (
    Branch,
    Input,
    Network,
    Place,
    PlacePlan,
    Port,
    Throughput,
    load_of,
    outcome,
    plan_centrally,
    plan_uncoordinated,
    take_in_turn,
)
from headrace.policies.shedding.fit import (
    Tables,
    TableSettings,
    Terms,
    best_entry,
    build_table,
    build_tables,
    index_entries,
    look_up,
    plan_by_tables,
)
from headrace.reproduce.figure import Claim, Figure, Made, Paper, Picture, Settings, Value
from headrace.simulation.shed_tree import (
    Burst,
    Second,
    drifted,
    judged,
    levels_of,
    play_burst,
    report_bytes,
    shedding_tree,
)

__all__ = ["FIT"]

F = Fraction
STRATEGIES = ("central", "fit", "uncoordinated")
# Places report to the coordinator, and send their tables upstream, so often, in seconds.
REPORT_S = 1.0
# A strategy has reacted when what reaches answers stays within this part of what it comes to.
SETTLED = 0.05


# --- Table 1 and the examples of section 3 ---

TENTH = TableSettings(error=F(1, 10))


def _node_b(selectivity: Fraction) -> Place:
    upper = Input("1", (Branch("upper", F(3), selectivity, queries=("p",)),))
    return Place("B", (upper, Input("2", (Branch("lower", F(1), queries=("q",)),))))


_UPPER = Input("1", (Branch("upper", F(1), child=Port("B", "1")),))
NODE_A = Place("A", (_UPPER, Input("2", (Branch("lower", F(2), child=Port("B", "2")),))))
FIGURE_1 = Network((NODE_A, _node_b(F(1))))
ONE_EACH = {Port("A", "1"): F(1), Port("A", "2"): F(1)}
# Per plan: rates at A, A's load, what A lets through, B's load, what B lets through (the paper's text).
TABLE_1 = (
    ((F(1), F(1)), F(3), (F(1, 3), F(1, 3)), F(4, 3), (F(1, 4), F(1, 4))),
    ((F(1, 3), F(1, 3)), F(1), (F(1, 3), F(1, 3)), F(4, 3), (F(1, 4), F(1, 4))),
    ((F(1), F(0)), F(1), (F(1), F(0)), F(3), (F(1, 3), F(0))),
    ((F(0), F(1, 2)), F(1), (F(0), F(1, 2)), F(1, 2), (F(0), F(1, 2))),
    ((F(1, 5), F(2, 5)), F(1), (F(1, 5), F(2, 5)), F(1), (F(1, 5), F(2, 5))),
)


def _table_1(settings: Settings) -> Made:
    node_b = FIGURE_1.by_name["B"]
    rows: list[tuple[Value, ...]] = []
    claims = []
    for number, (rates, *expected) in enumerate(TABLE_1):
        passed = take_in_turn(NODE_A, rates).taken
        found = [
            load_of(NODE_A, rates, rates),
            passed,
            load_of(node_b, passed, passed),
            take_in_turn(node_b, passed).taken,
        ]
        rows.append((number, _listed(rates), *(_listed(value) for value in found)))
        claims.append(Claim(f"plan {number}", _plan(expected), _plan(found), found == expected))
    tables = build_tables(FIGURE_1, Terms(settings=TENTH))
    plan = plan_by_tables(FIGURE_1, tables, ONE_EACH)
    worth = outcome(FIGURE_1, ONE_EACH, plan, Throughput()).worth
    best = plan_centrally(FIGURE_1, ONE_EACH, Throughput()).bound
    claims.append(
        Claim("A finds the optimal plan 4 in the table it gets from B", "(1/5, 2/5), total 3/5",
              f"{_listed(plan.places['A'].taken)}, total {worth}; the linear program: {float(best or 0):.4f}",
              plan.places["A"].taken == (F(1, 5), F(2, 5)) and worth == F(3, 5) and abs(float(best or 0) - 0.6) < 1e-9)
    )  # fmt: skip
    claims += [*_node_b_claims(), *_split_claims()]
    columns = ("plan", "rates", "a_load", "a_throughput", "b_load", "b_throughput")
    notes = ("Plans 0 to 2 are what a fair scheduler makes of the rates: it takes rows of all inputs in turn.",)
    return Made(columns, tuple(rows), tuple(claims), (), notes)


def _node_b_claims() -> Iterator[Claim]:
    built = build_table(_node_b(F(1, 2)), {}, Throughput(), TENTH)
    spreads = built.table.grid.spreads
    yield Claim(
        "the spreads of node B for an error of 0.1", "0.1 and 0.05", _listed(spreads), spreads == (F(1, 10), F(1, 20))
    )
    yield Claim("entries of node B's table, in exact arithmetic", "48 (NOTES' erratum)", str(built.table.entries),
                built.table.entries == 48)  # fmt: skip
    yield Claim("entries of node B's table as printed", "46", str(built.table.entries), built.table.entries == 46,
                "46 comes of adding 0.05 in floating point: the sums exceed the bound a step too early.")  # fmt: skip
    index = index_entries(built.table)
    top = best_entry(index, (F(9), F(9)))
    yield Claim("the entry of the highest score", "(0, 1.0), score 1.0", f"{_listed(top.rates)}, score {top.worth}",
                (top.rates, top.worth) == ((F(0), F(1)), F(1)))  # fmt: skip
    calm = look_up(built, (F(1, 5), F(35, 100)))
    yield Claim("rates (0.2, 0.35) need no shedding", "no drops", calm.reason, not calm.sheds)
    entry = best_entry(index, (F(1, 2), F(1, 2)))
    found = f"{_listed(entry.rates)}, score {float(entry.worth)}"
    yield Claim("the best entry on the grid for rates (0.5, 0.5)", "(0.1, 0.5), score 0.55 (NOTES' erratum)", found,
                (entry.rates, entry.worth) == ((F(1, 10), F(1, 2)), F(11, 20)))  # fmt: skip
    yield Claim("the entry for rates (0.5, 0.5) as printed", "(0.15, 0.5), score 0.575", found,
                entry.rates == (F(3, 20), F(1, 2)),
                "0.15 is no multiple of the spread 0.1, so it is not in the table.")  # fmt: skip
    blended = look_up(built, (F(1, 2), F(1, 2)))
    score = blended.taken[0] / 2 + blended.taken[1]
    yield Claim("what is kept of rates (0.5, 0.5) by blending points", "the optimum is (1/6, 0.5), score 0.5833",
                f"{_listed(blended.taken)}, score {float(score):.4f}",
                blended.taken == (F(1, 6), F(1, 2)) and score == F(7, 12))  # fmt: skip


def _split_claims() -> Iterator[Claim]:
    branches = (Branch("upper", F(2), queries=("p",)), Branch("lower", F(5), queries=("q",)))
    built = build_table(Place("S", (Input("in", branches, cost=F(1)),)), {}, Throughput(), TableSettings(error=F(1, 5)))
    most = look_up(built, (F(1),)).taken[0]
    yield Claim(
        "the split: rates up to a third are feasible with a local plan", "r <= 1/3", f"r <= {most}", most == F(1, 3)
    )
    plan = look_up(built, (F(1, 5),))
    dropped, score = 1 - plan.inputs[0].keep_branches[1], sum(plan.branches)
    yield Claim("the split: the local plan at r = 0.2", "60 % of the lower branch dropped, score 0.28",
                f"{float(dropped):.0%} dropped, score {float(score)}",
                dropped == F(3, 5) and score == F(7, 25))  # fmt: skip
    whole = Place("S", (Input("in", (Branch("both", F(8), F(2), queries=("p",)),)),))
    alone = build_table(whole, {}, Throughput(), TableSettings(error=F(1, 4)))
    kept, worth = look_up(alone, (F(1, 5),)).taken[0], alone.table.worth.max()
    yield Claim("the split without local plans", "r = 0.125, score 0.25", f"r = {float(kept)}, score {float(worth)}",
                (kept, worth) == (F(1, 8), F(1, 4)))  # fmt: skip


def _listed(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def _plan(values: Sequence[object]) -> str:
    names = ("A's load", "A lets through", "B's load", "B lets through")
    return ", ".join(f"{name} {_listed(value)}" for name, value in zip(names, values, strict=True))


# --- central or distributed ---


@dataclass(frozen=True)
class _Reaction:
    """How one strategy took a burst on one tree; quality and loss are over the optimum of the linear program."""

    reaction_s: float
    quality: float
    lost: float
    bytes_per_s: float


def _react(
    settings: Settings, depth: int, branching: int, size: int, number: int, strategies: Sequence[str] = STRATEGIES
) -> dict[str, _Reaction]:
    network, rates = shedding_tree(settings.chance("tree", depth, branching, number), depth, branching)
    burst = Burst()
    loud = {port: burst.times * rate for port, rate in rates.items()}
    best = float(plan_centrally(network, loud, Throughput()).bound or 0)
    found = {}
    for name in strategies:
        decide, sent = _decider(name, network, rates, loud, burst, size)
        seconds = play_burst(network, rates, burst, decide)
        found[name] = _judge(seconds, burst, best, depth, sent)
    return found


def _decider(
    name: str, network: Network, rates: Mapping[Port, float], loud: Mapping[Port, float], burst: Burst, size: int
) -> tuple[Callable[[Place, Sequence[float], float], PlacePlan | None], float]:
    """What places decide by, and the bytes of metadata per second over all links."""
    if name == "uncoordinated":
        return lambda place, arriving, now: take_in_turn(place, arriving), 0.0
    if name == "fit":
        tables = build_tables(network, Terms(settings=TableSettings(size=size)))
        return lambda place, arriving, now: look_up(tables.places[place.name], arriving), _table_bytes(network, tables)
    levels = levels_of(network)
    calm, changed = (plan_centrally(network, seen, Throughput()) for seen in (rates, loud))
    # The root reports, and it is where the coordinator is; each level further away, a plan comes a latency later.
    report = -(-burst.at_s // REPORT_S) * REPORT_S

    def decide(place: Place, arriving: Sequence[float], now: float) -> PlacePlan | None:
        known = now >= report + levels[place.name] * burst.latency_s - 1e-9
        return (changed if known else calm).places[place.name]

    hops = sum(
        levels[place.name] * (report_bytes(place) + _plan_bytes(changed.places[place.name])) for place in network.places
    )
    return decide, hops / REPORT_S


def _plan_bytes(plan: PlacePlan) -> int:
    return len(json.dumps({**plan.to_json(), "reason": ""}))


def _table_bytes(network: Network, tables: Tables) -> float:
    """Bytes per second if every place but the root sends its table to its parent with every report."""
    sent = (len(json.dumps(tables.places[name].table.to_json())) for name in network.by_name if network.parents[name])
    return sum(sent) / REPORT_S


def _judge(seconds: Sequence[Second], burst: Burst, best: float, depth: int, sent: float) -> _Reaction:
    end = seconds[-1].worth
    # What reaches answers at the burst left the root before it.
    first = burst.at_s + depth * burst.latency_s
    after = [second for second in seconds if second.at_s >= first - 1e-9]
    unsettled = [second.at_s for second in after if abs(second.worth - end) > SETTLED * end]
    reaction = max(unsettled, default=first - burst.slice_s) + burst.slice_s - first
    lost = sum(max(0.0, best - second.worth) for second in after if second.at_s < first + 3) * burst.slice_s / best
    return _Reaction(round(reaction, 6), end / best, lost, sent)


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def _means(reactions: Sequence[Mapping[str, _Reaction]], name: str) -> tuple[float, float, float, float]:
    mine = [each[name] for each in reactions]
    return (_mean(r.reaction_s for r in mine), _mean(r.quality for r in mine), _mean(r.lost for r in mine),
            _mean(r.bytes_per_s for r in mine))  # fmt: skip


def _trees(settings: Settings) -> Made:
    shapes = [(1, 2), (2, 2), (3, 2), (4, 2), (2, 1), (2, 3), (2, 4)]
    shapes = shapes[:4] + shapes[4:6] if settings.quick else shapes
    count, size = int(settings.number("trees", 8, 3)), int(settings.number("size", 1000, 200))
    rows: list[tuple[Value, ...]] = []
    by_shape: dict[tuple[int, int], dict[str, tuple[float, float, float, float]]] = {}
    for done, (depth, branching) in enumerate(shapes):
        reactions = [_react(settings, depth, branching, size, number) for number in range(count)]
        by_shape[depth, branching] = {name: _means(reactions, name) for name in STRATEGIES}
        for name in STRATEGIES:
            rows.append(
                (depth, branching, f"depth {depth}, branching {branching}", name, *by_shape[depth, branching][name])
            )
        settings.progress(done + 1, len(shapes))
    columns = ("depth", "branching", "tree", "strategy", "reaction_s", "quality", "lost_s", "bytes_per_s")
    notes = (
        f"Rates at the root triple at 1.3 s. A link takes 50 ms, places measure rates every 50 ms, and reports to the "
        f"coordinator and tables to parents are sent every {REPORT_S:.0f} s. `quality` is what reaches answers in "
        "the end over the optimum of the linear program; `lost_s` is what is lost in the first three seconds, "
        f"in seconds of the optimum; `bytes_per_s` is metadata over all links. Tables have up to {size} points.",
    )
    pictures = tuple(Picture("tree", column, "strategy", log_y=log, bars=True)
                     for column, log in (("reaction_s", False), ("quality", False), ("bytes_per_s", True)))  # fmt: skip
    return Made(columns, tuple(rows), tuple(_tree_claims(by_shape)), pictures, notes)


def _tree_claims(
    by_shape: Mapping[tuple[int, int], Mapping[str, tuple[float, float, float, float]]],
) -> Iterator[Claim]:
    def column(number: int, name: str) -> list[float]:
        return [of[name][number] for of in by_shape.values()]

    yield Claim(
        "places that decide for themselves react faster than a coordinator", "expected of distributed approaches",
        ", ".join(f"{name} {max(column(0, name)):.2f} s at most" for name in STRATEGIES),
        all(fit < central for fit, central in zip(column(0, "fit"), column(0, "central"), strict=True)),
    )  # fmt: skip
    yield Claim(
        "a coordinator has the best quality in the end", "high quality by global control",
        ", ".join(f"{name} {min(column(1, name)):.3f} of the optimum at least" for name in ("central", "fit")),
        min(column(1, "central")) > 0.999 and min(column(1, "fit")) > 0.95,
    )  # fmt: skip
    yield Claim(
        "without coordination quality can be arbitrarily bad", "output quality can arbitrarily change",
        f"{min(column(1, 'uncoordinated')):.3f} to {max(column(1, 'uncoordinated')):.3f} of the optimum",
        max(column(1, "uncoordinated")) < min(column(1, "fit")) and min(column(1, "uncoordinated")) < 0.9,
    )  # fmt: skip
    yield Claim(
        "over the burst's first seconds tables lose the least", "fast reaction maintains quality",
        ", ".join(f"{name} {_mean(column(2, name)):.3f} s of the optimum" for name in STRATEGIES),
        _mean(column(2, "fit")) < min(_mean(column(2, "central")), _mean(column(2, "uncoordinated"))),
    )  # fmt: skip
    yield Claim(
        "coordination costs metadata: tables more than reports", "a large table is inefficient to send often",
        ", ".join(f"{name} {_mean(column(3, name)):,.0f} bytes/s" for name in STRATEGIES),
        _mean(column(3, "fit")) > _mean(column(3, "central")) > 0,
    )  # fmt: skip


def _sizes(settings: Settings) -> Made:
    sizes = (9, 36, 144, 1000)
    count = int(settings.number("trees", 12, 4))
    rows: list[tuple[Value, ...]] = []
    for done, size in enumerate(sizes):
        reactions = [_react(settings, 3, 2, size, number, ("fit",)) for number in range(count)]
        _, quality, lost, sent = _means(reactions, "fit")
        rows.append((size, quality, 1 - quality, lost, sent))
        settings.progress(done + 1, len(sizes))
    short = [float(row[2]) for row in rows]
    claims = (
        Claim("a smaller spread comes closer to the optimum, and costs more to send",
              "the smaller the spread, the closer",
              ", ".join(f"{row[0]} points: {float(row[2]):.2%} short, {float(row[4]):,.0f} bytes/s" for row in rows),
              short[0] > short[-1] and short[-1] < 0.02 and float(rows[0][4]) < float(rows[-1][4]) / 10),
    )  # fmt: skip
    columns = ("points", "quality", "short_of_optimum", "lost_s", "bytes_per_s")
    pictures = (Picture("points", "short_of_optimum"), Picture("points", "bytes_per_s", log_y=True))
    notes = ("Trees of depth 3, branching 2. Points are at most so many; two inputs take a square of them.",)
    return Made(columns, tuple(rows), claims, pictures, notes)


def _stale(settings: Settings) -> Made:
    drifts = (0.0, 0.1, 0.25, 0.5, 1.0)
    count, size = int(settings.number("trees", 12, 5)), int(settings.number("size", 1000, 200))
    ways = ("fresh tables", "stale tables", "stale central plan", "uncoordinated")
    rows: list[tuple[Value, ...]] = []
    curves: dict[str, list[float]] = {way: [] for way in ways}
    for done, drift in enumerate(drifts):
        found: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(count):
            network, rates = shedding_tree(settings.chance("stale", number), 3, 2)
            loud = {port: 3 * rate for port, rate in rates.items()}
            now = drifted(settings.chance("drift", number), network, drift)
            best = float(plan_centrally(now, loud, Throughput()).bound or 0)
            terms = Terms(settings=TableSettings(size=size))
            plans = {
                "fresh tables": plan_by_tables(now, build_tables(now, terms), loud),
                "stale tables": plan_by_tables(now, _half_known(now, build_tables(network, terms)), loud),
                "stale central plan": plan_centrally(network, loud, Throughput()),
                "uncoordinated": plan_uncoordinated(now, loud),
            }
            for way, plan in plans.items():
                found[way].append(judged(now, loud, plan) / best)
        for way, of in found.items():
            curves[way].append(_mean(of))
            rows.append((drift, way, _mean(of)))
        settings.progress(done + 1, len(drifts))
    stale, fresh = curves["stale tables"], curves["fresh tables"]
    claims = (
        Claim("stale tables cost quality", "lower quality than could be achieved otherwise",
              ", ".join(f"{old:.3f} against {new:.3f} at a drift of {drift}"
                        for drift, old, new in zip(drifts, stale, fresh, strict=True)),
              abs(stale[0] - fresh[0]) < 1e-6 and stale[-1] < fresh[-1] - 0.02 and stale[-1] < stale[1]),
        Claim("stale tables are still better than none", "not in the paper",
              f"uncoordinated: {', '.join(f'{value:.3f}' for value in curves['uncoordinated'])}",
              all(s > u for s, u in zip(stale[:4], curves["uncoordinated"], strict=False))),
        Claim("a stale central plan costs more than stale tables", "not in the paper",
              f"{', '.join(f'{value:.3f}' for value in curves['stale central plan'])}",
              all(s > c for c, s in zip(curves["stale central plan"][1:], stale[1:], strict=True))),
    )  # fmt: skip
    notes = (
        "`drift` is the spread of the logarithms of costs since tables and the central plan were made. Places know "
        "their own costs as they are, and those of others as they were; rows beyond a capacity are lost.",
    )
    return Made(("drift", "plan", "quality"), tuple(rows), claims, (Picture("drift", "quality", "plan"),), notes)


def _half_known(now: Network, old: Tables) -> Tables:
    """Places that know their own costs as they are now, and the tables of their children as these were."""
    found = {}
    for place in now.places:
        children = {child: old.places[child].table for child in now.children[place.name]}
        found[place.name] = build_table(place, children, old.terms.objective, old.terms.settings)
    return Tables(found, old.terms)


# --- beyond the paper: a thousand hosts ---


def _many_hosts(settings: Settings) -> Made:
    depth, size = int(settings.number("depth", 9)), int(settings.number("size", 400, 144))
    network, rates = shedding_tree(settings.chance("many"), depth, 2)
    loud = {port: 3 * rate for port, rate in rates.items()}
    hosts = len(network.places)
    tables, built_s = settings.timed(partial(build_tables, network, Terms(settings=TableSettings(size=size))))
    settings.progress(1, 3)
    by_tables, looked_s = settings.timed(partial(plan_by_tables, network, tables, loud))
    central, solved_s = settings.timed(partial(plan_centrally, network, loud, Throughput()))
    settings.progress(2, 3)
    best = float(central.bound or 0)
    plans = {"central": central, "fit": by_tables, "uncoordinated": plan_uncoordinated(network, loud)}
    rows = tuple((name, hosts, judged(network, loud, plan) / best) for name, plan in plans.items())
    quality = {name: value for name, _, value in rows}
    claims = (
        Claim(f"tables come near the optimum among {hosts} hosts", "not in the paper",
              ", ".join(f"{name} {value:.3f}" for name, value in quality.items()),
              quality["central"] > 0.999 and quality["fit"] > 0.85 and quality["uncoordinated"] < quality["fit"]),
    )  # fmt: skip
    notes = [f"A binary tree of {depth} levels below the root, {hosts} places; tables of up to {size} points."]
    if built_s is not None and looked_s is not None and solved_s is not None:
        notes.append(
            f"Processor time: all tables {built_s:.2f} s ({built_s / hosts * 1000:.2f} ms a place), all look-ups "
            f"{looked_s:.3f} s ({looked_s / hosts * 1e6:.0f} us a place), the linear program {solved_s:.2f} s."
        )
    return Made(
        ("strategy", "hosts", "quality"), rows, claims, (Picture("strategy", "quality", bars=True),), tuple(notes)
    )


FIT = Paper(
    "fit",
    "Dealing with Overload in Distributed Stream Processing Systems (Tatbul, Zdonik, 2006)",
    (
        Figure("table-1", "Table 1 and the examples of section 3", _table_1),
        Figure("central-or-distributed", "A burst, by depth and branching", _trees, ("trees", "size")),
        Figure("table-size", "Quality and bytes by the size of tables", _sizes, ("trees",)),
        Figure("stale", "What stale tables cost", _stale, ("trees", "size")),
        Figure("1000-hosts", "Shedding among a thousand hosts", _many_hosts, ("depth", "size")),
    ),
)
