"""Which synopses a workload keeps, and how each query is answered from them.

A query *demands* synopses; the workload *keeps* some and *supplies* every demand from those:

    itself            the demanded synopsis is kept
    the same keys     kept with its keys in another order
    a union           several kept ones, with the same keys, whose filters part the demanded rows among them
    finer keys        one kept with more keys, rolled up; of ROLLUP and its kin always the finest level

What was kept before is preferred, because it has history: a query that arrives later answers at once from it, and a
restart finds everything where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd

from headrace.model import Kind, Measure, Stream, Synopsis
from headrace.planning.admission import columns_in_use
from headrace.planning.coverage import Coverage, covers
from headrace.planning.filters import disjoint_union
from headrace.planning.flow import FlowPlan, NodePlan, RowStore
from headrace.planning.synopsis import AnswerPlan

__all__ = ["Kept", "Known", "Supplier", "Supply", "Workload", "assemble_workload", "nodes_of", "share", "streams_read"]

# A coarser synopsis is rolled up from a finer one instead of being kept when the finer has at most so many times its
# rows: then keeping it costs more, in every epoch, than rolling up does.
ROLL_UP_BELOW = 1.25


@dataclass(frozen=True, slots=True)
class Kept:
    """A synopsis that is kept, with what its queries need of it."""

    synopsis: Synopsis
    measures: tuple[Measure, ...]
    pane_us: int


@dataclass(frozen=True, slots=True)
class Supplier:
    """A kept synopsis that gives (a part of) a demanded one: `keys` are the positions of the demanded keys in it."""

    synopsis: str
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Supply:
    """The kept synopses that together give a demanded one, and why these.

    `whole` says that a group's rows may be spread over the bins of the source, so that no bin answers alone.
    """

    suppliers: tuple[Supplier, ...]
    why: str
    whole: bool = False


@dataclass(frozen=True)
class Workload:
    """All nodes of a site's queries, what they keep together, and where each demand is supplied from.

    `plans` and `flows` are by name the nodes that are answered from panes, and those whose results come with their
    rows: the roots of queries, and what is below them, which is named by its content.
    """

    plans: Mapping[str, AnswerPlan]
    kept: Mapping[str, Kept]
    supplies: Mapping[str, Supply]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # main synopsis -> its nodes
    flows: Mapping[str, FlowPlan] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> dict[str, AnswerPlan | FlowPlan]:
        """All nodes by name."""
        return {**self.plans, **self.flows}

    @cached_property
    def queries(self) -> dict[str, AnswerPlan | FlowPlan]:
        """The roots of queries, by the queries' names."""
        return {name: plan for name, plan in self.nodes.items() if plan.feeds is None}

    @cached_property
    def derived(self) -> dict[str, NodePlan]:
        """By name of the stream that each makes the nodes that others read, each after those below it."""
        trees = (plan for root in self.queries.values() for plan in root.tree)
        return {plan.feeds.name: self.nodes[plan.name] for plan in trees if plan.feeds is not None}

    @cached_property
    def rounds(self) -> tuple[tuple[str, ...], ...]:
        """The nodes in the order in which they are stepped, each in the last round before those that read it.

        So all roots are in the last round, and queries that have nothing below them share their jobs as ever.
        """
        depths: dict[str, int] = {}

        def visit(plan: NodePlan, depth: int) -> None:
            depths[plan.name] = max(depth, depths.get(plan.name, 0))
            for inner in plan.below:
                visit(inner, depth + 1)

        for root in self.queries.values():
            visit(root, 0)
        deepest = max(depths.values(), default=0)
        return tuple(tuple(n for n in self.nodes if depths[n] == d) for d in range(deepest, -1, -1))

    @property
    def stores(self) -> tuple[RowStore, ...]:
        """The rows that are kept for flows."""
        return tuple(store for plan in self.flows.values() for store in plan.stores)

    @property
    def derived_streams(self) -> tuple[Stream, ...]:
        """The streams that nodes make for those above them."""
        return tuple(plan.feeds.stream for plan in self.derived.values() if plan.feeds is not None)

    def columns_in_use(self, streams: Sequence[Stream]) -> dict[str, frozenset[str]]:
        """Per declared stream the columns that some query reads."""
        return columns_in_use([plan.query for plan in self.nodes.values()], streams)

    def under(self, queries: Iterable[str]) -> frozenset[str]:
        """The nodes that some queries need, their roots included."""
        return frozenset(plan.name for name in queries for plan in self.queries[name].tree)

    def queries_over(self, node: str) -> tuple[str, ...]:
        """The queries that need a node."""
        return tuple(name for name, root in self.queries.items() if any(plan.name == node for plan in root.tree))

    def sources_of(self, query: str) -> tuple[str, ...]:
        """The kept synopses a query is answered from."""
        ids = (d.synopsis.id for d in self.plans[query].demands)
        return tuple(dict.fromkeys(source.synopsis for id_ in ids for source in self.supplies[id_].suppliers))

    def only(self, names: Iterable[str]) -> Workload:
        """The part of the workload that some of its queries need."""
        wanted = self.under(names)
        plans = {name: plan for name, plan in self.plans.items() if name in wanted}
        flows = {name: plan for name, plan in self.flows.items() if name in wanted}
        return replace(assemble_workload(plans, self.supplies, self._definitions()), flows=flows)

    def _definitions(self) -> dict[str, Synopsis]:
        return {id_: kept.synopsis for id_, kept in self.kept.items()}


def nodes_of(plans: Iterable[AnswerPlan | FlowPlan]) -> tuple[dict[str, AnswerPlan], dict[str, FlowPlan]]:
    """All nodes of some queries by name: those that panes answer, and those whose results come with their rows."""
    answers: dict[str, AnswerPlan] = {}
    flows: dict[str, FlowPlan] = {}
    for root in plans:
        for plan in root.tree:
            if isinstance(plan, AnswerPlan):
                answers.setdefault(plan.name, plan)
            else:
                assert isinstance(plan, FlowPlan)
                flows.setdefault(plan.name, plan)
    return answers, flows


def streams_read(plan: NodePlan) -> tuple[str, ...]:
    """The declared streams that a query reads."""
    made = {each.feeds.name for each in plan.tree if each.feeds is not None}
    return tuple(dict.fromkeys(stream for each in plan.tree for stream in each.reads if stream not in made))


@dataclass(frozen=True, slots=True)
class Known:
    """A synopsis kept before, and what it covers."""

    synopsis: Synopsis
    coverage: Coverage

    @property
    def rows(self) -> float | None:
        """How many rows it took per epoch, if that was measured."""
        return self.coverage.rows


def share(
    plans: Mapping[str, AnswerPlan],
    streams: Sequence[Stream] = (),
    known: Mapping[str, Known] | None = None,
    supplies: Mapping[str, Supply] | None = None,
) -> Workload:
    """The cheapest way to keep what all plans demand, given what is kept already (`known`, `supplies`)."""
    known = known or {}
    supplies = supplies or {}
    demanded = {d.synopsis.id: d.synopsis for plan in plans.values() for d in plan.demands}
    coarse = demanded.keys() - {d.synopsis.id for plan in plans.values() if not plan.coarse for d in plan.demands}
    texts = [f"{s.name}.{c.name}" for s in streams for c in s.columns if c.type.kind is Kind.STRING]
    offers = {**{id_: k.synopsis for id_, k in known.items()}, **demanded}
    chosen: dict[str, Supply] = {}
    # Finer and narrower synopses first: they can only be kept, and others are made of them.
    for id_ in sorted(demanded, key=lambda i: (-len(demanded[i].keys), _width(demanded[i]), i)):
        before = supplies.get(id_)
        kept_now = {s.synopsis for supply in chosen.values() for s in supply.suppliers}
        if before is not None and all(s.synopsis in known for s in before.suppliers):
            chosen[id_] = _rolled_up(demanded[id_], offers, known, kept_now) or before
            continue
        if id_ in coarse and id_ not in known and (finer := _finer(demanded[id_], offers, kept_now)) is not None:
            chosen[id_] = finer
            continue
        chosen[id_] = _supply(demanded[id_], offers, known, kept_now | known.keys(), texts)
    return assemble_workload(plans, chosen, offers)


def _supply(
    wanted: Synopsis,
    offers: Mapping[str, Synopsis],
    known: Mapping[str, Known],
    kept: Iterable[str],
    texts: Sequence[str],
) -> Supply:
    id_ = wanted.id
    others = {i: offers[i] for i in sorted(set(kept)) if i != id_}
    own = Supply((Supplier(id_, tuple(range(len(wanted.keys)))),), "kept for itself")
    for i, other in others.items():
        keys = _positions(wanted, other)
        if keys is not None and len(other.keys) == len(wanted.keys) and _where(other) == _where(wanted):
            return Supply((Supplier(i, keys),), "the same keys in another order")
    if id_ in known:
        return _rolled_up(wanted, offers, known, others) or own
    if len(wanted.feeds) == 1 and wanted.feeds[0].where is not None:
        alike = [
            (other.feeds[0].where or "", (i, keys))
            for i, other in others.items()
            if (keys := _positions(wanted, other)) is not None
            and len(other.keys) == len(wanted.keys)
            and other.feeds[0].where is not None
        ]
        parts = disjoint_union(wanted.feeds[0].where, alike, texts)
        if parts is not None:
            return Supply(tuple(Supplier(i, keys) for i, keys in parts), "a union of disjoint filters kept for others")
    finer = [
        (known[i].rows or 0.0, i, keys)
        for i, other in others.items()
        if i in known and _where(other) == _where(wanted) and (keys := _positions(wanted, other)) is not None
    ]
    if finer:
        _, i, keys = min(finer)
        return Supply((Supplier(i, keys),), "rolled up from finer keys that are there already", whole=True)
    return own


def _finer(wanted: Synopsis, offers: Mapping[str, Synopsis], kept: Iterable[str]) -> Supply | None:
    """A level of GROUP BY from a finer one of the same rows: one pass over them serves both."""
    found = [
        (len(offers[i].keys), i, keys)
        for i in kept
        if i != wanted.id
        and _where(offers[i]) == _where(wanted)
        and (keys := _positions(wanted, offers[i])) is not None
    ]
    if not found:
        return None
    _, i, keys = min(found)
    return Supply((Supplier(i, keys),), "rolled up from a finer level of the same GROUP BY", whole=True)


def _rolled_up(
    wanted: Synopsis, offers: Mapping[str, Synopsis], known: Mapping[str, Known], kept: Iterable[str]
) -> Supply | None:
    """A synopsis that was kept so far, rolled up from a finer one that has hardly more rows."""
    rows = known[wanted.id].rows if wanted.id in known else None
    for i in sorted(set(kept) - {wanted.id}):
        keys = _positions(wanted, offers[i])
        theirs = known[i].rows if i in known else None
        if keys is None or not rows or theirs is None or _where(offers[i]) != _where(wanted):
            continue
        if theirs <= ROLL_UP_BELOW * rows and covers(known[i].coverage, known[wanted.id].coverage):
            why = f"rolled up from finer keys, which have {theirs:.0f} rows per epoch where it had {rows:.0f}"
            return Supply((Supplier(i, keys),), why, whole=True)
    return None


def _width(synopsis: Synopsis) -> int:
    """Filters that name fewer values come first, so that wider ones find them."""
    where = synopsis.feeds[0].where
    return 0 if where is None else len(where)


def _where(synopsis: Synopsis) -> tuple[str | None, ...]:
    return tuple(feed.where for feed in synopsis.feeds)


def _positions(wanted: Synopsis, other: Synopsis) -> tuple[int, ...] | None:
    """Where the wanted keys are among the other's; None if its rows cannot be made of the other's."""
    if wanted.keep is not None or other.keep is not None or len(wanted.feeds) != len(other.feeds):
        return None
    if wanted.apart != other.apart:
        return None
    found: set[tuple[int, ...]] = set()
    for ours, theirs in zip(wanted.feeds, other.feeds, strict=True):
        # Panes that come from elsewhere have the measures of one synopsis, and no others.
        if (ours.stream, ours.detail, ours.panes) != (theirs.stream, theirs.detail, theirs.panes):
            return None
        if any(key not in theirs.keys for key in ours.keys):
            return None
        found.add(tuple(theirs.keys.index(key) for key in ours.keys))
    positions = next(iter(found)) if len(found) == 1 else None
    if positions is None or len(set(positions)) < len(positions):
        return None
    return positions if all(wanted.keys[i] == other.keys[p] for i, p in enumerate(positions)) else None


def assemble_workload(
    plans: Mapping[str, AnswerPlan], supplies: Mapping[str, Supply], definitions: Mapping[str, Synopsis]
) -> Workload:
    """What has to be kept for the supplies of these plans, and no more."""
    used: dict[str, Supply] = {}
    measures: dict[str, dict[str, Measure]] = {}
    panes: dict[str, int] = {}
    groups: dict[str, list[str]] = {}
    for name, plan in plans.items():
        groups.setdefault(plan.main, []).append(name)
        for demand in plan.demands:
            id_ = demand.synopsis.id
            used[id_] = supplies[id_]
            for source in supplies[id_].suppliers:
                columns = measures.setdefault(source.synopsis, {})
                columns |= {m.column: m for m in demand.measures}
                panes[source.synopsis] = gcd(panes.get(source.synopsis, 0), plan.aggregate.window.pane_us)
    kept = {
        id_: Kept(definitions[id_], tuple(columns[c] for c in sorted(columns)), panes[id_])
        for id_, columns in sorted(measures.items())
    }
    return Workload(plans, kept, used, {main: tuple(names) for main, names in groups.items()})
