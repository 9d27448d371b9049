"""How a query is run: its operators as nodes, each planned by its kind, those below others with a derived stream.

SELECT ... FROM (SELECT ... FROM a JOIN b ... UNION ALL SELECT ... FROM c) AS u [WINDOW 1 min]

c ------------------------> aggregate      the join is a node of its own, and the aggregate reads the stream of its
a, b --> join --> pairs_... ---^           pairs as it reads c
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from headrace.errors import SpecError
from headrace.model import (
    Column,
    DataType,
    Finish,
    Join,
    Kind,
    Lookup,
    NamedExpression,
    Operator,
    Output,
    Query,
    Results,
    RowsAggregate,
    Scan,
    Step,
    Stream,
    Union,
    WindowAggregate,
    columns_of,
)
from headrace.planning.flow import Derived, FlowPlan, NodePlan
from headrace.planning.join import PAIR_TIME, JoinPlan, plan_join
from headrace.planning.lookup import plan_lookup
from headrace.planning.row_window import plan_rows, plan_step
from headrace.planning.select import plan_select
from headrace.planning.synopsis import AnswerPlan, plan_answer

__all__ = ["plan_query"]


def plan_query(query: Query) -> AnswerPlan | FlowPlan:
    """The plan of a query and of all nodes below its root; SpecError if one of them cannot be kept."""
    try:
        return _planned(query)
    except SpecError as error:
        # A node below another has a name that the user never wrote.
        raise SpecError(replace(problem, query=query.name) for problem in error.problems) from error


def _planned(query: Query) -> AnswerPlan | FlowPlan:
    root, below = _over(query.root)
    query = replace(query, root=root)
    plan: AnswerPlan | FlowPlan
    match root:
        case Scan() | Union():
            plan = plan_select(query)
        case Join():
            plan = plan_join(query)
        case Lookup():
            plan = plan_lookup(query)
        case RowsAggregate():
            plan = plan_rows(query)
        case Step():
            plan = plan_step(query)
        case _:
            plan = plan_answer(query)
    return replace(plan, below=below)


def _over(root: Operator) -> tuple[Operator, tuple[NodePlan, ...]]:
    """A node's operator over streams alone, and the nodes that make those of them that are derived."""
    match root:
        case Scan() | Union():
            inner, below = _fed(root)
            return inner, _once(below)
        case Join(left=left, right=right):
            (one, before), (other, after) = _fed(left.input), _fed(right.input)
            sides = replace(left, input=one), replace(right, input=other)
            return replace(root, left=sides[0], right=sides[1]), _once((*before, *after))
        case WindowAggregate(input=child, time=time):
            inner, below = _fed(child, time)
            return replace(root, input=inner, time=None), _once(below)
        case RowsAggregate(input=child) | Step(input=child) | Lookup(input=child):
            inner, below = _fed(child)
            return replace(root, input=inner), _once(below)
        case _:
            raise TypeError(f"{type(root).__name__} is no node")


def _fed(operator: Operator, time: str | None = None) -> tuple[Operator, tuple[NodePlan, ...]]:
    """What a node reads, as scans; pairs of a join are dated by the column `time`, or by the later of their times."""
    match operator:
        case Scan(of=None):
            return operator, ()
        case Scan(stream=name, of=Results() as results):
            return replace(operator, of=None), (_results(name, results),)
        case Union(inputs=inputs):
            fed = [_fed(child, time) for child in inputs]
            return replace(operator, inputs=tuple(child for child, _ in fed)), tuple(p for _, many in fed for p in many)
        case Join():
            pairs = _pairs(operator, time)
            columns = (
                NamedExpression(c.name, f"{pairs.name}.{c.name}", c.type, (f"{pairs.name}.{c.name}",))
                for c in operator.columns
            )
            return Scan(pairs.name, tuple(columns)), (pairs,)
        case _:
            raise TypeError(f"{type(operator).__name__} gives no rows to another operator")


def _pairs(join: Join, time: str | None) -> JoinPlan:
    """A join below another operator: a node named by its content, all of whose columns are results."""
    name = "pairs_" + hashlib.sha256(repr((join, time)).encode()).hexdigest()[:12]
    outputs = tuple(Output(c.name, c.name, c.type) for c in columns_of(join))
    plan = _planned(Query(name, "", join, Finish(outputs)))
    assert isinstance(plan, JoinPlan)
    dated = Column(PAIR_TIME, DataType(Kind.TIMESTAMP))
    stream = Stream(name, (*(Column(c.name, c.type) for c in join.columns), dated), time or PAIR_TIME)
    # A pair that is dated by one of its rows, or is none, can be as old as the oldest row that still meets new ones.
    delay_us = plan.reach_us if time is not None or join.how != "inner" else 0
    return replace(plan, feeds=Derived(stream, delay_us))


def _results(name: str, results: Results) -> AnswerPlan | FlowPlan:
    """A subquery that aggregates, or a lookup: a node whose results are the rows of a stream."""
    first, steps = results, list[tuple[Scan, Finish]]()
    while isinstance(first.root, Scan):
        assert first.root.of is not None
        steps.insert(0, (replace(first.root, of=None), first.finish))
        first = first.root.of
    plan = _planned(Query(name, "", first.root, first.finish))
    if isinstance(plan, AnswerPlan):
        plan = replace(plan, coarse=first.coarse)
    stream = Stream(name, tuple(Column(o.name, o.type) for o in results.finish.outputs), results.time)
    window = first.root.window if isinstance(first.root, WindowAggregate) else None
    return replace(plan, feeds=Derived(stream, window=window, steps=tuple(steps)))


def _once(plans: Iterable[NodePlan]) -> tuple[NodePlan, ...]:
    return tuple({plan.name: plan for plan in plans}.values())
