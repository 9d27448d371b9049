"""The answer step of an epoch: all due windows of all queries.

plain columns to Parquet                      one job for all of them, tasks write the files
HAVING, computed columns to Parquet           one more job for all of them, by way of Spark SQL
other sinks, DISTINCT, OVER, ordered expressions   a job each, by Spark's own writers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.engine.failures import blamed, cause_of, raise_if_not_a_querys
from headrace.engine.operators.finishing import (
    answer_ddl,
    answer_schema,
    direct_finish,
    refined,
    shows_kept,
    spark_finish,
)
from headrace.engine.operators.giving import give
from headrace.engine.operators.slots import slots_of
from headrace.engine.operators.specs import spec_of
from headrace.engine.sinks.choose import ConsoleSink, FileSink, MemorySink, Sink
from headrace.engine.spark.arrow_rows import arrow_schema
from headrace.engine.spark.deadline import TookTooLong
from headrace.engine.state.state_io import StateIo
from headrace.engine.trial import Trial
from headrace.kernels.answer import AnswerSpec, Panes
from headrace.kernels.chunks import Chunk, holding
from headrace.kernels.deliver import AnswerTask, CombineTask, DeliverTask, Delivery, Work
from headrace.kernels.slots import Slots, SlotsDelivery, SlotsTask
from headrace.kernels.values import spelled
from headrace.model import Counts, Due, Query, Spent
from headrace.planning import Shedding, Workload, edges_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Answered", "Answering", "Given", "give_to_sinks", "hand_over", "writes_parquet"]


@dataclass(frozen=True)
class Given:
    """An epoch to answer: what is due in it, the chunks that hold panes, and what windows were shed of."""

    epoch: int
    replay: bool
    due: Mapping[str, Due]
    chunks: tuple[Chunk, ...]
    shedding: Shedding = field(default_factory=Shedding)


@dataclass
class Answered:
    """What became of the due queries: rows written where that is known, causes of failures, what groups took; and
    counts of results that Spark has given and something is expected of."""

    rows: dict[str, int] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    spent: list[Spent] = field(default_factory=list)


class Told(Protocol):
    """Rows that queries got in an epoch, and why those that failed did."""

    rows: dict[str, int]
    failed: dict[str, str]


def give_to_sinks(
    deliveries: Iterable[Delivery],
    names: Sequence[str],
    sinks: Mapping[str, Sink],
    of: tuple[int, bool],
    told: Told,
    probe: Callable[[str], None],
) -> None:
    """Gives the sinks the files that tasks have written for them; `of` is the epoch, and whether it is repeated."""
    files: dict[str, list[str]] = {name: [] for name in names}
    for delivery in deliveries:
        name = names[delivery.work]
        if delivery.error is not None:
            told.failed[name] = delivery.error
        else:
            assert delivery.file is not None
            files[name].append(delivery.file)
            told.rows[name] = told.rows.get(name, 0) + delivery.rows
    probe("mid-sinks")
    for name in names:
        if name not in told.failed:
            sink = sinks[name]
            assert isinstance(sink, FileSink)
            hand_over(sink, files[name], name, of, told)


def hand_over(sink: FileSink, files: list[str], name: str, of: tuple[int, bool], told: Told) -> None:
    """Gives one sink its files; a table that does not take them, because of its columns, fails the query alone."""
    try:
        sink.adopt(files, *of)
    except Exception as failure:
        told.failed[name] = cause_of(failure)
        told.rows.pop(name, None)


def writes_parquet(query: Query, sink: Sink, io: StateIo) -> bool:
    """Whether tasks can write a query's results themselves; a query whose results are tested is finished by Spark."""
    if query.tests_results or not isinstance(sink, FileSink) or sink.partition_by or sink.key:
        return False
    return sink.format == "parquet" and not sink.options and io.delivers_to(sink.storage)


class Answering:
    """Answers epochs; remembers what groups of queries took, to spread them over tasks."""

    def __init__(self, io: StateIo, folder: str, bins: int, probe: Callable[[str], None], trial: Trial) -> None:
        self._io, self._folder, self._bins, self._probe, self._trial = io, folder, bins, probe, trial
        self._specs: dict[str, AnswerSpec] = {}
        self._workload: Workload | None = None
        self._took: dict[str, float] = {}

    def spec(self, workload: Workload, name: str) -> AnswerSpec:
        """What tasks need to answer a query."""
        if workload is not self._workload:
            self._workload = workload
            self._specs.clear()
            self._took = {group: seconds for group, seconds in self._took.items() if group in workload.groups}
        if name not in self._specs:
            self._specs[name] = spec_of(workload, name)
        return self._specs[name]

    def answer(self, workload: Workload, sinks: Mapping[str, Sink], given: Given) -> Answered:
        """Answers what is due and gives it to the sinks."""
        answered = Answered()
        works = {name: self._work(workload, name, sinks[name], due, given) for name, due in given.due.items()}
        panes = self._panes(workload, works, given)
        direct = {name: work for name, work in works.items() if work.finish is not None}
        if direct:
            combine = self._combine(workload, direct, panes)
            delivered = blamed(lambda: self._delivered(combine))
            self._take_over(tuple(direct), sinks, delivered, given, answered)
        rest = {name: work for name, work in works.items() if work.finish is None}
        for name in self._finished(workload, sinks, rest, panes, given, answered):
            del rest[name]
        for name, work in rest.items():
            self._deliver_by_sql(workload, sinks[name], name, work, panes, given, answered)
        return answered

    def results(self, workload: Workload, name: str, given: Given) -> DataFrame:
        """The results of one node that is due, as Spark SQL finishes them."""
        query, work = workload.plans[name].query, Work(self.spec(workload, name), given.due[name], None, None)
        task = AnswerTask(self._panes(workload, {name: work}, given), work, answer_schema(query))
        results = spark_finish(self._io.rows(task, self._bins, answer_ddl(query)), query.finish)
        feeds = workload.plans[name].feeds
        for step in feeds.steps if feeds is not None else ():
            results = refined(results, step)
        return results

    def _finished(
        self,
        workload: Workload,
        sinks: Mapping[str, Sink],
        works: Mapping[str, Work],
        panes: Panes,
        given: Given,
        answered: Answered,
    ) -> tuple[str, ...]:
        """Answers those queries that Spark SQL can finish in one job, and names them; none if that job fails."""
        names = [name for name in works if writes_parquet(workload.plans[name].query, sinks[name], self._io)]
        slots, fitting = slots_of([workload.plans[name].query for name in names])
        if not fitting:
            return ()
        together = {names[position]: works[names[position]] for position in fitting}
        combine = self._combine(workload, together, panes)
        try:
            delivered = self._trial.within(lambda: self._by_slots(combine, slots))
        except TookTooLong:
            return ()
        except Exception as failure:
            # One of them fails: each by itself tells which.
            raise_if_not_a_querys(failure)
            return ()
        self._take_over(tuple(together), sinks, delivered, given, answered)
        return tuple(together)

    def _delivered(self, combine: CombineTask) -> list[Delivery | Spent]:
        """Answers directly finished queries and leaves their files in the sinks' staging folders."""
        tasks = min(len(combine.units), self._io.slots)
        combine = combine.shared_by(tasks)
        if self._bins == 1:
            return self._io.run(DeliverTask(combine.works, combine), tasks)
        then = DeliverTask(combine.works)
        return self._io.run_by_key(combine, tasks, then, min(tasks, len(combine.works)))

    def _by_slots(self, combine: CombineTask, slots: Slots) -> list[Delivery | Spent]:
        """Answers queries that Spark SQL finishes, all of them together, and leaves their files likewise."""
        tasks = min(len(combine.units), self._io.slots)
        rows = self._io.rows(SlotsTask(combine.shared_by(tasks), slots), tasks, slots.ddl).selectExpr(*slots.select)
        if self._bins > 1:
            rows = rows.repartition(min(tasks, len(combine.works)), "_q")
        return self._io.over(rows, arrow_schema(rows), SlotsDelivery(combine.works, slots))

    def _work(self, workload: Workload, name: str, sink: Sink, due: Due, given: Given) -> Work:
        plan = workload.plans[name]
        finish = direct_finish(plan.query) if writes_parquet(plan.query, sink, self._io) else None
        staging = sink.staging if isinstance(sink, FileSink) else None
        kept = None
        if shows_kept(plan.query):
            kept = given.shedding.kept_of(edges_of(workload, name), plan.aggregate.window, due.ends)
        return Work(self.spec(workload, name), due, finish, staging, kept)

    def _panes(self, workload: Workload, works: Mapping[str, Work], given: Given) -> Panes:
        """The chunks that hold panes of the due windows, by synopsis."""
        least: dict[str, int] = {}
        for name, work in works.items():
            begin = work.spec.begin_us(work.due.first_us)
            for id_ in workload.sources_of(name):
                least[id_] = min(begin, least.get(id_, begin))
        return Panes(self._folder, holding(given.chunks, least), self._bins)

    def _combine(self, workload: Workload, works: Mapping[str, Work], panes: Panes) -> CombineTask:
        groups: dict[tuple[str, bool], list[int]] = {}
        for number, (name, work) in enumerate(works.items()):
            groups.setdefault((workload.plans[name].main, work.spec.main.whole), []).append(number)
        members = tuple((main, tuple(numbers)) for (main, _), numbers in groups.items())
        weights = tuple(self._took.get(main, 0.01) for main, _ in members)
        return CombineTask(panes, tuple(works.values()), members, weights)

    def _take_over(
        self,
        names: tuple[str, ...],
        sinks: Mapping[str, Sink],
        delivered: Sequence[Delivery | Spent],
        given: Given,
        answered: Answered,
    ) -> None:
        """Gives the sinks the files that tasks have written for them."""
        spent = [item for item in delivered if isinstance(item, Spent)]
        answered.spent += spent
        self._took |= {item.group: item.seconds for item in spent}
        items = [item for item in delivered if isinstance(item, Delivery)]
        give_to_sinks(items, names, sinks, (given.epoch, given.replay), answered, self._probe)

    def _deliver_by_sql(
        self, workload: Workload, sink: Sink, name: str, work: Work, panes: Panes, given: Given, answered: Answered
    ) -> None:
        query = workload.plans[name].query
        task = AnswerTask(panes, work, answer_schema(query))
        try:
            answers = self._io.rows(task, self._bins, answer_ddl(query))
            results = spark_finish(answers, query.finish)

            def write() -> int:
                return give(query, sink, results, given.epoch, given.replay, answered.counts)

            if isinstance(sink, FileSink | MemorySink | ConsoleSink):
                answered.rows[name] = self._trial.judged(
                    write, lambda: answers.write.format("noop").mode("append").save(), f"{work.due.count:,} windows"
                )
            else:
                # Others may have taken some of the results: the work cannot be stopped and done again.
                answered.rows[name] = write()
        except Exception as failure:
            answered.failed[name] = cause_of(failure, spelled(query.root))
