"""What row windows and user-defined state keep: one store of rows, cut by key, with the columns they need."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model import Aggregate, Column, DataType, Kind, Query, RowsAggregate, Scan, Step
from headrace.planning.flow import FlowPlan, RowFeed, RowStore, refuse_unkept
from headrace.planning.synopsis import argument_of, column_of, normal, refuse_no_number, scans_of

__all__ = ["RowsPlan", "StepPlan", "plan_rows", "plan_step"]


@dataclass(frozen=True)
class RowsPlan(FlowPlan):
    """How a row window is answered: which columns `c0, c1, ...` of its store are keys, results and arguments.

    An argument is None where an aggregate counts whole rows; its type is that of the column.
    """

    keys: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()  # (name in the query, column of the store)
    arguments: tuple[tuple[Aggregate, str | None, DataType], ...] = ()

    @property
    def root(self) -> RowsAggregate:
        assert isinstance(self.query.root, RowsAggregate)
        return self.query.root

    @property
    def ties(self) -> tuple[str, ...]:
        """The columns that order rows of the same time: all that can be compared."""
        return _comparable(self.stores[0])


@dataclass(frozen=True)
class StepPlan(FlowPlan):
    """How a function of the user's is fed: which columns of its store are keys, and which ones it gets as what."""

    keys: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()

    @property
    def root(self) -> Step:
        assert isinstance(self.query.root, Step)
        return self.query.root

    @property
    def ties(self) -> tuple[str, ...]:
        """The columns that order rows of the same time."""
        return _comparable(self.stores[0])


def plan_step(query: Query) -> StepPlan:
    """The plan of user-defined state over one stream or a union of streams."""
    root = query.root
    assert isinstance(root, Step)
    scans = scans_of(root.input)
    kept: dict[tuple[str, ...], Column] = {}

    def column(sql: tuple[str, ...], type_: DataType) -> str:
        return kept.setdefault(sql, Column(f"c{len(kept)}", type_)).name

    keys = tuple(
        column(tuple(normal(column_of(scan, key)) for scan in scans), column_of(scans[0], key).type)
        for key in root.partition_by
    )
    columns = tuple(
        (name, column(tuple(column_of(scan, source).sql for scan in scans), column_of(scans[0], source).type))
        for name, source in root.rows
    )
    store = _store(query, scans, kept, root.partition_by)
    return StepPlan(query, (store,), keys, columns)


def _store(
    query: Query, scans: tuple[Scan, ...], kept: dict[tuple[str, ...], Column], keys: tuple[str, ...]
) -> RowStore:
    refuse_unkept(kept.values(), query.name, "a row window or a function")
    feeds = tuple(
        RowFeed(
            scan.stream,
            scan.where.sql if scan.where else None,
            tuple(sql[i] for sql in kept),
            tuple(normal(column_of(scan, key)) for key in keys),
        )
        for i, scan in enumerate(scans)
    )
    return RowStore(query.name, "rows", query.sql, feeds, tuple(kept.values()))


def _comparable(store: RowStore) -> tuple[str, ...]:
    return tuple(column.name for column in store.columns if _is_comparable(column.type))


def _is_comparable(type_: DataType) -> bool:
    if type_.kind is Kind.STRUCT:
        return all(_is_comparable(field.type) for field in type_.fields)
    return not type_.is_nested and type_.kind is not Kind.INTERVAL


def plan_rows(query: Query) -> RowsPlan:
    """The plan of a row window over one stream or a union of streams."""
    root = query.root
    assert isinstance(root, RowsAggregate)
    scans = scans_of(root.input)
    kept: dict[tuple[str, ...], Column] = {}

    def column(sql: tuple[str, ...], type_: DataType) -> str:
        return kept.setdefault(sql, Column(f"c{len(kept)}", type_)).name

    def of_all(name: str) -> tuple[str, ...]:
        return tuple(column_of(scan, name).sql for scan in scans)

    keys = tuple(
        column(tuple(normal(column_of(scan, key)) for scan in scans), column_of(scans[0], key).type)
        for key in root.window.partition_by
    )
    used = _used(query)
    results = tuple((each.name, column(of_all(each.name), each.type)) for each in scans[0].columns if each.name in used)
    arguments: list[tuple[Aggregate, str | None, DataType]] = []
    for aggregate in root.aggregates:
        sql, type_ = argument_of(aggregate, scans)
        refuse_no_number(aggregate, type_, query.name)
        arguments.append((aggregate, None if sql is None else column(sql, type_), type_))
    store = _store(query, scans, kept, root.window.partition_by)
    return RowsPlan(query, (store,), keys, results, tuple(arguments))


def _used(query: Query) -> frozenset[str]:
    """The input columns that some output mentions; a name that stands in a string too is kept in vain, no more."""
    text = " ".join(output.sql for output in query.finish.outputs)
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split()
    return frozenset(words)
