"""What tasks need of a plan: plain values that travel to them."""

from __future__ import annotations

from headrace.kernels.answer import AnswerSpec, DemandSpec
from headrace.kernels.panes import layout_of, storage_of
from headrace.kernels.row_windows import RowsSpec
from headrace.kernels.values import PlannedAggregate, text_of
from headrace.kernels.windows import Top
from headrace.model import Aggregate, CumulativeWindow, HoppingWindow
from headrace.planning import AnswerPlan, Demand, RowsPlan, Workload, is_scaled

__all__ = ["spec_of", "spec_of_rows"]


def spec_of(workload: Workload, query: str) -> AnswerSpec:
    """The part of a plan that tasks need."""
    plan = workload.plans[query]
    root = plan.aggregate
    main = workload.supplies[plan.main]
    # Rows are in bins by the keys of their synopsis in its own order: only with one order do they match.
    order = main.suppliers[0].keys
    spread = main.whole or any(source.keys != order for source in main.suppliers)

    def demand(found: Demand) -> DemandSpec:
        supply = workload.supplies[found.synopsis.id]
        layout = layout_of(found.synopsis, found.measures, root.window.pane_us)
        whole = spread or supply.whole or any(source.keys != order for source in supply.suppliers)
        return DemandSpec(layout, tuple((s.synopsis, s.keys) for s in supply.suppliers), whole)

    return AnswerSpec(
        root.window.size_us,
        not root.keys and not isinstance(root.window, HoppingWindow),
        root.keys,
        tuple(
            PlannedAggregate(
                s.aggregate.name,
                s.aggregate.function,
                str(s.aggregate.type),
                s.aggregate.distinct,
                s.synopsis,
                s.columns,
                s.parameters,
                is_scaled(plan.query, s.aggregate),
                text_of(s.aggregate, root.input),
            )
            for s in plan.columns
        ),
        tuple(demand(d) for d in plan.demands),
        _top(plan),
        isinstance(root.window, CumulativeWindow),
    )


def _top(plan: AnswerPlan) -> Top | None:
    """The groups that `ORDER BY ... LIMIT` can want, when it orders by a single measure first."""
    finish = plan.query.finish
    if not finish.limit or finish.having is not None or finish.distinct or finish.over or not finish.order_by:
        return None
    if plan.query.shedding.scale:  # what is scaled is not in the order of what was kept
        return None
    first = finish.order_by[0]
    for source in plan.columns:
        plain = source.aggregate.function in ("sum", "count", "min", "max") and source.synopsis == plan.main
        # The limbs of a sum are not in the order of the sums.
        plain &= not any(m.kind == "limbs" and m.column == source.columns[0] for m in plan.demands[0].measures)
        if plain and first.sql.strip("`") == source.aggregate.name:
            return Top(source.columns[0], finish.limit, first.descending, first.nulls_first)
    return None


def spec_of_rows(plan: RowsPlan) -> RowsSpec:
    """The part of a plan that tasks need."""
    return RowsSpec(
        plan.root.window.rows,
        plan.keys,
        plan.ties,
        plan.results,
        tuple(
            (
                PlannedAggregate(
                    a.name,
                    a.function,
                    str(a.type),
                    a.distinct,
                    "",
                    (),
                    _parameters(a),
                    text=text_of(a, plan.root.input),
                ),
                argument,
                storage_of(type_),
            )
            for a, argument, type_ in plan.arguments
        ),
    )


def _parameters(aggregate: Aggregate) -> tuple[float, ...]:
    # Five is Spark's default for approx_top_k.
    return aggregate.parameters or ((5.0,) if aggregate.function == "approx_top_k" else ())
