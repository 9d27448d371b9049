"""What a pipeline may shed, decided before an epoch: its graph as a place with branches, and the plan for its rows.

               ┌ edges of a part: cost, selectivity ─▶ its queries
    stream ── read ── split
               └ edges of a part that is never shed

A *part* are the queries that share synopses: their edges keep one fraction of a stream's rows, because what a synopsis
has not got none of its queries can answer from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import ClassVar

from headrace.errors import Problem, SpecError
from headrace.model import (
    ERROR,
    KEPT,
    WITHOUT_PAIRS,
    WITHOUT_RESULTS,
    DataType,
    EngineSettings,
    JoinMeasures,
    KeyedMeasures,
    Kind,
    Output,
    Query,
    Remembered,
    Shed,
    SheddingDecision,
    TimeWindow,
    WindowAggregate,
    edge_into,
)
from headrace.planning.flow import FlowPlan, NodePlan
from headrace.planning.join import JoinPlan
from headrace.planning.sharing import Workload
from headrace.planning.synopsis import AnswerPlan, is_scaled
from headrace.policies.remedies import Lag, Offer, Remedies, Remedy, choose_remedies
from headrace.policies.shedding import (
    Branch,
    Fair,
    Input,
    Network,
    Objective,
    OverloadState,
    Place,
    PlacePlan,
    Port,
    RowCosts,
    Throughput,
    Waiting,
    detect_overload,
    plan_centrally,
)
from headrace.policies.shedding.fit import Terms, build_tables, plan_by_tables
from headrace.policies.shedding.protect import BUCKETS, protect_rare

__all__ = [
    "Asked",
    "Part",
    "Shedding",
    "counted_edges",
    "decide_shedding",
    "edges_into",
    "edges_of",
    "epoch_seconds",
    "even_spread_offers",
    "objective_of",
    "parts_of",
    "protected_edges",
    "with_kept",
]

# Of an epoch's time that nothing is planned into, because no epoch is like the last: so many times as much as epochs of
# late were longer than expected on average, between these bounds. One epoch in twenty is longer than that.
HEADROOM, HEADROOM_OVER = (0.03, 0.08), 4.0
# Of an epoch's time that is for the answers as long as they need it. Rows are not shed to let answers have more.
ANSWERS = 0.2
# How much of the most that answers have taken counts an epoch later: they come with some epochs and not with others.
FADING = 0.9
# What epochs are to take when one follows the other without a pause.
UNPACED_S = 1.0
# An epoch is at least so many times as long as one without rows, whatever the trigger: else fixed costs leave no room.
LEAST_EPOCH = 2.5
# Where reading takes more than this part of what fits an epoch, shedding cannot hold the lag.
MOST_READING = 0.9
# Tables have two points and more along each input; beyond so many streams the linear program plans instead.
MOST_INPUTS = 10
# What is kept of an edge is decided to so many digits; what is as good as everything is everything.
DIGITS, EVERYTHING = 4, 0.999
# A row of one priority outweighs rows of the next lower one that cost so many times less.
PRIORITY_STEP = 1000.0
PLACE = "engine"
# How much of an average the newest epoch is.
NEWEST = 0.3


def with_kept(query: Query, settings: EngineSettings) -> Query:
    """The query with the columns that tell of shedding among its results, if the pipeline allows its rows to be shed.

    These are `kept`, and the error of each result that is a scaled aggregate and nothing else.
    """
    if settings.shedding == "off" or query.why_never_shed is not None:
        return replace(query, shedding=replace(query.shedding, scale=False)) if query.shedding.scale else query
    added = [Output(KEPT, KEPT, DataType(Kind.DOUBLE))]
    aggregates = query.root.aggregates if isinstance(query.root, WindowAggregate) else ()
    scaled = {aggregate.name for aggregate in aggregates if is_scaled(query, aggregate)}
    for output in query.finish.outputs:
        if output.sql.strip("`") in scaled:
            source = f"{output.sql.strip('`')}{ERROR}"
            added.append(Output(f"{output.name}{ERROR}", source, DataType(Kind.DOUBLE)))
    names = {output.name.lower() for output in query.finish.outputs}
    for each in added:
        if each.name.lower() in names:
            hint = "rename yours, or write shedding: never"
            text = f"a query that may be shed has a result column '{each.name}' of its own"
            raise SpecError(Problem(text, query=query.name, hint=hint))
    return replace(query, finish=replace(query.finish, outputs=(*query.finish.outputs, *added)))


@dataclass(frozen=True)
class Part:
    """Queries that share synopses, by stream the edges into these, and why they are never shed, if they are not.

    A join that is shed `by_key` is one part, whose edges on both sides keep the same keys.
    """

    name: str
    queries: tuple[str, ...]
    edges: Mapping[str, tuple[str, ...]]
    why_never: str | None = None
    by_key: bool = False


def parts_of(workload: Workload, live: Iterable[str], streams: Iterable[str]) -> tuple[Part, ...]:
    """The parts of the queries that run, over these declared streams."""
    declared = set(streams)
    groups: list[tuple[list[str], set[str]]] = []
    for name in live:
        ids = set(_feeds(workload, name))
        joined = [group for group in groups if group[1] & ids]
        groups = [group for group in groups if not group[1] & ids]
        queries = [query for group in joined for query in group[0]]
        groups.append(([*queries, name], ids.union(*(group[1] for group in joined))))
    parts = []
    for queries, ids in groups:
        feeds = [
            (stream, edge_into(id_, stream))
            for name in queries
            for id_, fed in _feeds(workload, name).items()
            for stream in fed
        ]
        why = next((why for n in queries if (why := _why_never(workload.queries[n])) is not None), None)
        by_key = why is None and all(isinstance(workload.queries[n], JoinPlan) for n in queries)
        parts.append(Part(min(ids), tuple(queries), _by_stream(feeds, declared), why, by_key))
    return tuple(parts)


def _why_never(root: NodePlan) -> str | None:
    """Why no row of a query is ever shed: by itself, or because of what is below it."""
    below = [plan for plan in root.tree if plan is not root]
    if not below or root.query.why_never_shed is not None:
        return root.query.why_never_shed
    return WITHOUT_PAIRS if any(isinstance(plan, JoinPlan) for plan in below) else WITHOUT_RESULTS


def _feeds(workload: Workload, query: str) -> dict[str, tuple[str, ...]]:
    """By synopsis and store that a query needs, those of nodes below it included, the streams that feed it."""
    found: dict[str, tuple[str, ...]] = {}
    for node in sorted(workload.under((query,))):
        if node in workload.plans:
            for id_ in workload.sources_of(node):
                found[id_] = tuple(feed.stream for feed in workload.kept[id_].synopsis.feeds)
        else:
            for store in workload.flows[node].stores:
                found[store.id] = tuple(feed.stream for feed in store.feeds)
    return found


def _by_stream(feeds: Iterable[tuple[str, str]], declared: set[str]) -> dict[str, tuple[str, ...]]:
    """Edges by stream; what joins make of streams is no input of its own."""
    found: dict[str, dict[str, None]] = {}
    for stream, edge in feeds:
        if stream in declared:
            found.setdefault(stream, {})[edge] = None
    return {stream: tuple(sorted(edges)) for stream, edges in sorted(found.items())}


# By pane its begin, the rows of it that came along an edge, and how many of them were shed.
PaneAccount = tuple[int, int, int]


@dataclass(frozen=True)
class Shedding(Remembered):
    """All that shedding remembers from epoch to epoch; committed with each.

    `panes` has by edge the accounts of its panes, while windows reach them; `queries` by query those of all its rows;
    `rows_per_byte` what files hold, by stream; `other_s` what the last epoch took besides the answers of aggregates;
    `between_s` what Spark takes between two epochs, on average; `answers_s` the most that answers have taken of late;
    `over` by which part of their time epochs of late were longer than expected, on average.
    """

    KIND: ClassVar[str] = "shedding"

    costs: RowCosts = field(default_factory=RowCosts)
    overload: OverloadState = field(default_factory=OverloadState)
    remedies: Remedies = field(default_factory=Remedies)
    panes: Mapping[str, tuple[PaneAccount, ...]] = field(default_factory=dict)
    queries: Mapping[str, Shed] = field(default_factory=dict)
    buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # rows of late by edge that protects
    rows_per_byte: Mapping[str, float] = field(default_factory=dict)
    other_s: float = 0.0
    between_s: float = 0.0
    answers_s: float = 0.0
    over: float = 1.0

    @property
    def headroom(self) -> float:
        """The part of an epoch's time that nothing is planned into."""
        least, most = HEADROOM
        return min(most, max(least, HEADROOM_OVER * self.over))

    @property
    def outlives_queries(self) -> bool:
        return True

    def kept_of(self, edges: Sequence[str], window: TimeWindow, ends: Iterable[int]) -> dict[int, float]:
        """By window end the part that edges kept of the window's rows, of windows that lost some."""
        accounts = sorted(account for edge in edges for account in self.panes.get(edge, ()))
        if not any(shed for _, _, shed in accounts):
            return {}
        begins = [pane for pane, _, _ in accounts]
        rows = [0, *accumulate(came for _, came, _ in accounts)]
        shed = [0, *accumulate(lost for _, _, lost in accounts)]
        found: dict[int, float] = {}
        for end in ends:
            first, last = bisect_left(begins, window.begin_us(end)), bisect_left(begins, end)
            if lost := shed[last] - shed[first]:
                came = rows[last] - rows[first]
                found[end] = (came - lost) / came
        return found

    def kept_of_all(self, edges: Sequence[str]) -> float:
        """The part that edges kept of all rows whose accounts are held."""
        accounts = [account for edge in edges for account in self.panes.get(edge, ())]
        came, lost = sum(rows for _, rows, _ in accounts), sum(shed for _, _, shed in accounts)
        return (came - lost) / came if came else 1.0

    def with_panes(self, made: Mapping[str, Mapping[int, tuple[int, int]]]) -> Shedding:
        """The same with the accounts of an epoch's rows."""
        panes = dict(self.panes)
        for edge, counts in made.items():
            sums = {pane: (rows, shed) for pane, rows, shed in self.panes.get(edge, ())}
            for pane, (rows, shed) in counts.items():
                before = sums.get(pane, (0, 0))
                sums[pane] = before[0] + rows, before[1] + shed
            panes[edge] = tuple((pane, *sums[pane]) for pane in sorted(sums))
        return replace(self, panes=panes)

    def with_queries(
        self, edges: Mapping[str, Sequence[str]], made: Mapping[str, Mapping[int, tuple[int, int]]]
    ) -> Shedding:
        """The same with an epoch in the accounts of these queries, given their edges; others are forgotten."""
        found: dict[str, Shed] = {}
        for name, mine in edges.items():
            counts = [count for edge in mine for count in made.get(edge, {}).values()]
            now = Shed(sum(rows for rows, _ in counts), sum(shed for _, shed in counts))
            found[name] = self.queries.get(name, Shed()) + now
        return replace(self, queries=found)

    def with_buckets(self, made: Mapping[str, Mapping[int, int]]) -> Shedding:
        """The same with an epoch's counts of rows by bucket of keys; what is no longer counted is forgotten."""
        found: dict[str, tuple[float, ...]] = {}
        for edge, counts in made.items():
            before = self.buckets.get(edge)
            now = [float(counts.get(bucket, 0)) for bucket in range(BUCKETS)]
            pairs = zip(before or now, now, strict=True)
            found[edge] = tuple(round(old + NEWEST * (new - old), 2) for old, new in pairs)
        return replace(self, buckets=found)

    def reaching(self, reach_us: Mapping[str, int]) -> Shedding:
        """The same without panes before the time that windows over an edge reach, and without edges that are gone."""
        held = {
            edge: tuple(account for account in accounts if account[0] >= reach_us[edge])
            for edge, accounts in self.panes.items()
            if edge in reach_us
        }
        return replace(self, panes={edge: accounts for edge, accounts in held.items() if accounts})


def epoch_seconds(trigger_s: float, fixed_s: float) -> float:
    """How long an epoch may be: the trigger, unless fixed costs would fill that."""
    return max(trigger_s or UNPACED_S, LEAST_EPOCH * fixed_s)


@dataclass(frozen=True)
class Asked:
    """What is known before an epoch: rows by stream that it takes and that stay behind, and what answering takes.

    `between_s` is what Spark takes besides each epoch, `offers` what remedies other than shedding can take away.
    """

    coming: Mapping[str, float]
    behind: Mapping[str, float]
    since_s: float
    started: bool
    trigger_s: float
    answer_s: float = 0.0
    offers: Mapping[Remedy, Offer] = field(default_factory=dict)
    between_s: float = 0.0


def decide_shedding(
    state: Shedding, parts: Sequence[Part], queries: Mapping[str, Query], settings: EngineSettings, asked: Asked
) -> tuple[SheddingDecision, Shedding]:
    """What an epoch sheds, with the reason, and what is remembered of the judgement."""
    costs, fixed_s = state.costs, state.costs.fixed_s + asked.between_s
    epoch_s = epoch_seconds(asked.trigger_s, fixed_s)
    answers_s = max(asked.answer_s, FADING * state.answers_s)
    capacity_s = max(0.0, epoch_s * (1 - state.headroom) - min(answers_s, ANSWERS * epoch_s) - fixed_s)
    work = {stream: _work_s(costs, parts, stream) for stream in asked.coming.keys() | asked.behind.keys()}
    coming_s = sum(rows * work[stream] for stream, rows in asked.coming.items())
    behind_s = sum(rows * work[stream] for stream, rows in asked.behind.items())
    waiting = Waiting(coming_s, behind_s, asked.since_s, asked.started)
    found = detect_overload(waiting, capacity_s, epoch_s, state.overload, shed_backlog=settings.backlog == "shed")
    scale = found.demand_s / coming_s if coming_s else 1.0
    rows = {stream: count * scale for stream, count in asked.coming.items()}
    needs_s = fixed_s + (found.demand_s or found.state.arriving_s) + asked.answer_s
    # Answers alone may be too much; then no row is in the way.
    late_s = asked.answer_s - ANSWERS * epoch_s
    overloaded = found.overloaded or (late_s > 0 and needs_s > epoch_s)
    lag = Lag(
        found.waiting_s, found.trend_s, found.state.age_s, needs_s, epoch_s, overloaded and costs.are_known
    )  # fmt: skip
    offers = {**asked.offers, **_offers(asked.answer_s, late_s, waiting, capacity_s)}
    if found.overloaded:
        offers[Remedy.SHED] = _to_shed(costs, parts, rows)
    remedies = choose_remedies(lag, offers, state.remedies)
    after = replace(
        state,
        overload=found.state,
        remedies=remedies,
        between_s=round(asked.between_s, 4),
        answers_s=round(answers_s, 4),
    )
    decision = SheddingDecision(
        settings.shedding,
        tuple(name for name in remedies.acting if name != Remedy.SHED or settings.shedding != "off"),
        waiting_s=round(found.waiting_s, 4),
        needs_s=round(found.demand_s or coming_s, 4),
        capacity_s=round(capacity_s, 4),
        reason=_why(costs, found.reason, remedies),
    )
    if not found.overloaded or not remedies.acts(Remedy.SHED):
        return decision, after
    skip = {s: _skip_s(costs, parts, s, state.buckets) for s in rows}
    keep, plan_reason = _plan(parts, costs, rows, skip, capacity_s, queries, settings)
    kept = _kept_by_query(parts, keep, rows, costs)
    if settings.shedding == "off":
        least = min(kept.values(), default=1.0)
        would = f"shedding is off; with shedding: fit, {least:.0%} to {max(kept.values(), default=1.0):.0%} of rows"
        return replace(decision, keep=keep, kept=kept, reason=f"{decision.reason}; {would} would be kept"), after
    buckets = {edge: protect_rare(state.buckets[edge], part) for edge, part in keep.items() if edge in state.buckets}
    reason = f"{decision.reason}; {plan_reason}"
    return replace(decision, keep=keep, kept=kept, reason=reason, buckets=buckets), after


def even_spread_offers(measures: Mapping[str, JoinMeasures | KeyedMeasures]) -> dict[Remedy, Offer]:
    """What a more even spread of joins and of state would save: what the busiest host or bin does beyond the mean."""
    found: dict[Remedy, Offer] = {}
    for name, each in measures.items():
        busy = each.seconds if isinstance(each, JoinMeasures) else each.busy_s
        gain = max(busy) - sum(busy) / len(busy) if busy else 0.0
        remedy = Remedy.SPREAD_JOINS if isinstance(each, JoinMeasures) else Remedy.MOVE_STATE
        if gain > 0 and (remedy not in found or found[remedy].gain_s < gain):
            found[remedy] = Offer(gain, f"the busiest part of '{name}' works {gain:.2f} s longer than the mean")
    return found


def _why(costs: RowCosts, found: str, remedies: Remedies) -> str:
    if not costs.are_known:
        return "costs are not known yet"
    return f"{found}; {remedies.reason}" if remedies.acting else found


def _work_s(costs: RowCosts, parts: Sequence[Part], stream: str) -> float:
    """Seconds that a row of a stream takes if every edge keeps it."""
    return costs.read_s(stream) + sum(_branch_s(costs, part, stream) for part in parts)


def _skip_s(costs: RowCosts, parts: Sequence[Part], stream: str, protected: Iterable[str]) -> float:
    """Seconds that a row of a stream takes if no edge keeps it.

    Where some edge may keep any row, by its key, nobody knows before all expressions are evaluated.
    """
    edges = {edge for part in parts for edge in part.edges.get(stream, ())}
    by_key = any(part.by_key and stream in part.edges for part in parts)
    return costs.read_s(stream) if by_key or edges.intersection(protected) else costs.skip_s(stream)


def _branch_s(costs: RowCosts, part: Part, stream: str) -> float:
    return sum(costs.keep_s(edge) * costs.share_of(edge) for edge in part.edges.get(stream, ()))


def _offers(answer_s: float, late_s: float, waiting: Waiting, capacity_s: float) -> dict[Remedy, Offer]:
    found = {}
    if late_s > 0:
        found[Remedy.ANSWER_LATE] = Offer(late_s, f"answers take {answer_s:.2f} s of an epoch")
    room_s = capacity_s - waiting.coming_s
    if waiting.behind_s > 0 and room_s > 0:
        found[Remedy.INTAKE] = Offer(min(room_s, waiting.behind_s), f"epochs have room for {room_s:.2f} s of work")
    return found


def _to_shed(costs: RowCosts, parts: Sequence[Part], rows: Mapping[str, float]) -> Offer:
    free = [part for part in parts if part.why_never is None]
    gain_s = sum(count * _branch_s(costs, part, stream) for stream, count in rows.items() for part in free)
    return Offer(gain_s, "rows are left out")


def _plan(
    parts: Sequence[Part],
    costs: RowCosts,
    rows: Mapping[str, float],
    skip: Mapping[str, float],
    capacity_s: float,
    queries: Mapping[str, Query],
    settings: EngineSettings,
) -> tuple[dict[str, float], str]:
    """By edge the fraction to keep, of edges that shed, and why; `skip` are the seconds of a row that no edge keeps."""
    read_s = sum(count * skip[stream] for stream, count in rows.items())
    keep_s = sum(count * _work_s(costs, parts, stream) for stream, count in rows.items()) - read_s
    # Rows that are shed have been read. If reading alone takes the capacity, rows are kept as if reading could be shed,
    # too: to shed all of them would not hold the lag either.
    only_reads = read_s > MOST_READING * capacity_s
    left_s = capacity_s * keep_s / (keep_s + read_s) if only_reads and keep_s else capacity_s - read_s
    left_s = max(left_s, 1e-9)
    taken_s = {stream: max(0.0, costs.read_s(stream) - skip_s) for stream, skip_s in skip.items()}
    dropped = {each.name: each for each in _together(parts, rows)}
    if not dropped:
        return {}, "no rows come"
    inputs = (
        Input(name, tuple(_branch(costs, part, each.rows) for part in each.parts), taken_s.get(name, 0.0))
        for name, each in dropped.items()
    )
    place = Place(PLACE, tuple(inputs), left_s)
    rates = {Port(PLACE, name): sum(each.rows.values()) for name, each in dropped.items()}
    plan = _place_plan(place, rates, objective_of(rates, queries, settings), settings.shedding)
    keep: dict[str, float] = {}
    for each in plan.inputs:
        for part, flow in zip(dropped[each.input].parts, each.branches, strict=True):
            fraction = round(float(flow) / float(each.arriving), DIGITS) if each.arriving else 1.0
            if fraction < EVERYTHING and part.why_never is None:
                streams = part.edges if part.by_key else (each.input,)
                keep |= {edge: fraction for stream in streams for edge in part.edges[stream]}
    return keep, f"{plan.reason}; reading alone takes {read_s:.2f} s" if only_reads else plan.reason


@dataclass(frozen=True)
class _Together:
    """Rows that are dropped together, by stream, and the parts that they go to: one dimension of the plan."""

    name: str
    rows: Mapping[str, float]
    parts: tuple[Part, ...]


def _together(parts: Sequence[Part], rows: Mapping[str, float]) -> Iterator[_Together]:
    """The rows of each stream; those of all streams of a join that is shed by key."""
    for stream, count in sorted(rows.items()):
        mine = tuple(part for part in parts if stream in part.edges and not part.by_key)
        if mine and count > 0:
            yield _Together(stream, {stream: count}, mine)
    for part in parts:
        came = {stream: rows.get(stream, 0.0) for stream in part.edges}
        if part.by_key and any(came.values()):
            yield _Together(f"keys of {part.name}", came, (part,))


def _place_plan(place: Place, rates: Mapping[Port, float], objective: Objective, strategy: str) -> PlacePlan:
    network = Network((place,))
    if strategy == "central" or len(place.inputs) > MOST_INPUTS:
        return plan_centrally(network, rates, objective).places[PLACE]
    tables = build_tables(network, Terms(objective, most=rates))
    return plan_by_tables(network, tables, rates).places[PLACE]


def _branch(costs: RowCosts, part: Part, rows: Mapping[str, float]) -> Branch:
    """What a mean row of these costs on its way into a part."""
    total = sum(rows.values())
    share = sum(n * max(costs.share_of(edge) for edge in part.edges[s]) for s, n in rows.items()) / total
    # A branch that costs nothing would take any number of rows.
    cost = max(sum(n * _branch_s(costs, part, s) for s, n in rows.items()) / total, 1e-12)
    return Branch(part.name, cost, max(share, 1e-9), queries=part.queries, never=part.why_never is not None)


def objective_of(rates: Mapping[Port, float], queries: Mapping[str, Query], settings: EngineSettings) -> Objective:
    """What a pipeline wants of a plan, given the rows that are offered."""
    weights = {name: float(query.weight) for name, query in queries.items()}
    if settings.objective == "fair":
        return Fair(dict(rates), weights)
    if settings.objective == "priority":
        ranks = {priority: rank for rank, priority in enumerate(sorted({q.priority for q in queries.values()}))}
        # Three ranks are what floats tell apart; those below count as one.
        lowest = max(0, len(ranks) - 3)
        weights = {n: w * PRIORITY_STEP ** max(0, ranks[queries[n].priority] - lowest) for n, w in weights.items()}
    return Throughput(weights)


def _kept_by_query(
    parts: Sequence[Part], keep: Mapping[str, float], rows: Mapping[str, float], costs: RowCosts
) -> dict[str, float]:
    """By query the part of the rows it reads that is kept."""
    found: dict[str, float] = {}
    for part in parts:
        came = {s: rows.get(s, 0.0) * max(costs.share_of(e) for e in edges) for s, edges in part.edges.items()}
        used = sum(count * keep.get(part.edges[stream][0], 1.0) for stream, count in came.items())
        whole = sum(came.values())
        found |= dict.fromkeys(part.queries, round(used / whole, DIGITS) if whole else 1.0)
    return found


def protected_edges(workload: Workload) -> dict[str, int]:
    """By edge the number of the group key, in the order of its synopsis, whose rare values some query protects."""
    found: dict[str, int] = {}
    for plan in workload.plans.values():
        key = plan.query.protected_key
        if key is not None and plan.query.why_never_shed is None:
            for demand in plan.demands:
                for source in workload.supplies[demand.synopsis.id].suppliers:
                    for feed in workload.kept[source.synopsis].synopsis.feeds:
                        found.setdefault(edge_into(source.synopsis, feed.stream), source.keys[key])
    return found


def edges_of(workload: Workload, query: str) -> tuple[str, ...]:
    """The edges whose panes a query's groups are made of; of a join, those that bring its rows."""
    plan = workload.queries[query]
    if isinstance(plan, JoinPlan):
        return edges_into(plan)
    assert isinstance(plan, AnswerPlan)
    sources = [source.synopsis for source in workload.supplies[plan.main].suppliers]
    return tuple(edge_into(id_, feed.stream) for id_ in sources for feed in workload.kept[id_].synopsis.feeds)


def edges_into(plan: FlowPlan) -> tuple[str, ...]:
    """The edges that bring the rows of a flow."""
    return tuple(dict.fromkeys(edge_into(store.id, feed.stream) for store in plan.stores for feed in store.feeds))


def counted_edges(workload: Workload) -> dict[str, int]:
    """By edge whose rows are counted, because results tell of them, the length of the panes they are counted by."""
    found: dict[str, int] = {}
    for name in workload.plans:
        for edge in edges_of(workload, name) if name in workload.queries else ():
            found[edge] = workload.kept[edge.partition(">")[2]].pane_us
    for plan in workload.flows.values():
        if isinstance(plan, JoinPlan) and plan.shed_by_key:
            found |= dict.fromkeys(edges_into(plan), max(1, plan.span_us))
    return found
